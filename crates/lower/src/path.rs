//! Places: what an l-value, or a path into a variable, refers to.
//!
//! A path with constant indices is one storage tree. A dynamic stack index yields one *alternative* per element, each
//! with a guard that compares the index. A read selects among the alternatives (zero if no guard holds); a write writes
//! each of them under its guard. A bit slice is recorded in addition.

use crate::codes;
use crate::context::{Binding, Lowerer};
use crate::tree::{HeaderTree, Tree};
use base::Span;
use ir::{BinOp, Operand, SlotId};
use num_traits::ToPrimitive;
use sema::Value;
use sema::typed::{Expr, ExprKind};

/// One of the trees to which a place may refer.
#[derive(Clone, Debug)]
pub(crate) struct Alternative {
    /// One bit: whether this is the one. `None`: always.
    pub guard: Option<Operand>,
    /// The storage, or the value if the path starts at a value.
    pub tree: Tree,
    /// The validity slot of the enclosing header, if writes have no effect while that is invalid.
    pub valid: Option<SlotId>,
}

/// The bits of a scalar that a place covers.
#[derive(Clone, Debug)]
pub(crate) enum BitRange {
    /// All bits.
    Whole,
    /// `[hi:lo]`
    Fixed { hi: u32, lo: u32 },
    /// `width` bits from bit `low` up.
    From { low: Operand, width: u32 },
}

/// What an l-value refers to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The trees it may refer to; at most one guard holds.
    pub alternatives: Vec<Alternative>,
    /// Whether one guard always holds.
    pub complete: bool,
    /// The bits it covers.
    pub bits: BitRange,
}

impl Place {
    /// The place that is exactly this tree.
    pub fn of(tree: Tree) -> Place {
        Place {
            alternatives: vec![Alternative { guard: None, tree, valid: None }],
            complete: true,
            bits: BitRange::Whole,
        }
    }

    /// The storage, if the place is a variable, a header or part of a struct. `None` for bit slices, fields of headers,
    /// and places with several alternatives.
    pub fn plain(&self) -> Option<&Tree> {
        match (self.alternatives.as_slice(), &self.bits) {
            ([Alternative { guard: None, tree, valid: None }], BitRange::Whole) => Some(tree),
            _ => None,
        }
    }

    /// All slots to which it may refer.
    pub fn slots(&self) -> Vec<SlotId> {
        self.alternatives.iter().flat_map(|a| a.tree.slots()).collect()
    }

    fn children(self, index: usize) -> Place {
        let alternatives = self.alternatives.into_iter().map(|a| {
            let valid = match &a.tree {
                Tree::Header(HeaderTree { valid: Operand::Slot(valid), retained: false, .. }) => Some(*valid),
                _ => a.valid,
            };
            Alternative { guard: a.guard, tree: a.tree.child(index), valid }
        });
        Place { alternatives: alternatives.collect(), ..self }
    }
}

impl Lowerer<'_> {
    /// The place of a path; for any other expression, its value.
    pub fn place(&mut self, e: &Expr) -> Place {
        match &e.kind {
            ExprKind::Local(local) => match self.local(*local) {
                Binding::Tree(tree) => Place::of(tree),
                Binding::Known(value) => Place::of(self.value_tree(&value, &e.ty)),
                Binding::PacketIn | Binding::PacketOut | Binding::Instance(_) | Binding::Outside(_) => {
                    Place::of(Tree::Nothing)
                }
            },
            ExprKind::Field(base, index) | ExprKind::TupleElement(base, index) => {
                self.place(base).children(*index as usize)
            }
            ExprKind::StackElement { stack, index } => self.element(stack, index),
            ExprKind::StackNext(stack) => self.next_or_last(stack, e.span, true),
            ExprKind::StackLast(stack) => self.next_or_last(stack, e.span, false),
            ExprKind::Slice { base, high, low } => {
                let mut place = self.place(base);
                place.bits = match place.bits {
                    BitRange::Whole => BitRange::Fixed { hi: *high, lo: *low },
                    BitRange::Fixed { lo, .. } => BitRange::Fixed { hi: lo + high, lo: lo + low },
                    BitRange::From { low: from, .. } => {
                        let offset = Operand::new_const(32, u128::from(*low));
                        BitRange::From { low: self.b.bin(BinOp::Add, from, offset).into(), width: high - low + 1 }
                    }
                };
                place
            }
            ExprKind::SliceFrom { base, low, width } => {
                let mut place = self.place(base);
                let low = self.eval(low).operand();
                let low = self.b.resize_u(32, low);
                let low = match place.bits {
                    BitRange::Whole => low,
                    BitRange::Fixed { lo, .. } => {
                        self.b.bin(BinOp::Add, low, Operand::new_const(32, u128::from(lo))).into()
                    }
                    BitRange::From { low: from, .. } => self.b.bin(BinOp::Add, low, from).into(),
                };
                // A variable in `low` may change before the place is used.
                let low = self.freeze(&low.into()).operand();
                place.bits = BitRange::From { low, width: *width };
                place
            }
            _ => Place::of(self.eval(e)),
        }
    }

    fn element(&mut self, stack: &Expr, index: &Expr) -> Place {
        let base = self.place(stack);
        if let Some(value) = self.constant(index) {
            let at = match &value {
                Value::Int(v) => v.to_usize(),
                other => other.to_u64().and_then(|v| usize::try_from(v).ok()),
            };
            return match at {
                Some(at) if base.alternatives.iter().all(|a| at < a.tree.children().len()) => base.children(at),
                _ => {
                    self.refuse(codes::NOT_CONSTANT, index.span, "the index is outside of the stack");
                    Place { alternatives: Vec::new(), ..base }
                }
            };
        }
        let index = self.eval(index).operand();
        let width = self.width(&index);
        let mut alternatives = Vec::new();
        let count = base.alternatives.iter().map(|a| a.tree.children().len()).max().unwrap_or(0);
        let mut guards = Vec::new();
        for i in 0..count {
            if width < 64 && i as u64 >= 1 << width {
                break;
            }
            guards.push(self.b.bin(BinOp::Eq, index.clone(), Operand::new_const(width, i as u128)));
        }
        for alternative in base.alternatives {
            for (element, &guard) in alternative.tree.children().iter().zip(&guards) {
                // The number of alternatives is the product of those of nested indices.
                if !self.b.charge(1) {
                    break;
                }
                let guard = match &alternative.guard {
                    Some(outer) => self.and(outer.clone(), guard.into()),
                    None => guard.into(),
                };
                let tree = element.clone();
                alternatives.push(Alternative { guard: Some(guard), tree, valid: alternative.valid });
            }
        }
        Place { alternatives, complete: false, bits: BitRange::Whole }
    }

    /// `stack.next` or `stack.last`; the parser fails with `StackOutOfBounds` if there is no such element.
    fn next_or_last(&mut self, stack: &Expr, span: Span, want_next: bool) -> Place {
        let Some((elements, next)) = self.parser_stack(stack, span) else { return Place::of(Tree::Nothing) };
        let limit = Operand::new_const(32, elements.len() as u128);
        let there_is = match want_next {
            true => self.b.bin(BinOp::Ult, next, limit),
            false => {
                // `next` is in 1..=n; 0 wraps around.
                let last = self.b.bin(BinOp::Sub, next, Operand::new_const(32, 1));
                self.b.bin(BinOp::Ult, last, limit)
            }
        };
        self.fail_unless(there_is.into(), "StackOutOfBounds");
        let mut alternatives = Vec::new();
        for (i, tree) in elements.iter().enumerate() {
            let value = if want_next { i } else { i + 1 };
            let guard = self.b.bin(BinOp::Eq, next, Operand::new_const(32, value as u128));
            alternatives.push(Alternative { guard: Some(guard.into()), tree: tree.clone(), valid: None });
        }
        Place { alternatives, complete: true, bits: BitRange::Whole }
    }

    /// The elements and the `nextIndex` slot of a stack on which `next` or `last` is used.
    pub fn parser_stack(&mut self, stack: &Expr, span: Span) -> Option<(std::rc::Rc<[Tree]>, SlotId)> {
        let place = self.place(stack);
        match place.plain() {
            Some(Tree::Stack { elements, next: Some(next) }) => Some((elements.clone(), *next)),
            _ => {
                let message = "`next`, `last` and `lastIndex` need a stack that is a variable or its field";
                self.refuse(codes::UNSUPPORTED_EXPRESSION, span, message);
                None
            }
        }
    }

    /// The current value of a place.
    pub fn read(&mut self, place: &Place) -> Tree {
        let Some((last, others)) = place.alternatives.split_last() else { return Tree::Nothing };
        let mut tree = match &last.guard {
            None => last.tree.clone(),
            Some(_) if place.complete => last.tree.clone(),
            Some(guard) => {
                let zero = self.zero_like(&last.tree);
                self.select(guard, &last.tree, &zero)
            }
        };
        for other in others.iter().rev() {
            if self.is_too_large() {
                break;
            }
            if let Some(guard) = &other.guard {
                tree = self.select(guard, &other.tree, &tree);
            }
        }
        match &place.bits {
            BitRange::Whole => tree,
            BitRange::Fixed { hi, lo } => self.slice(tree.operand(), *hi, *lo).into(),
            BitRange::From { low, width } => {
                let value = tree.operand();
                let shifted = self.b.bin(BinOp::Lshr, value, low.clone());
                self.b.resize_u(*width, shifted).into()
            }
        }
    }

    /// `o[hi:lo]`, with constants folded.
    pub fn slice(&mut self, o: Operand, hi: u32, lo: u32) -> Operand {
        match &o {
            Operand::Const(c) if hi < c.width() => c.slice(hi, lo).into(),
            _ if lo == 0 && hi + 1 == self.width(&o) => o,
            _ => self.b.slice(o, hi, lo).into(),
        }
    }

    /// Zeros in the shape of a tree.
    pub fn zero_like(&self, tree: &Tree) -> Tree {
        let program = self.b.program();
        tree.map(&mut |o| Operand::new_const(o.width(program), 0))
    }

    /// `cond ? a : b`, operand by operand; both have the same shape.
    pub fn select(&mut self, cond: &Operand, a: &Tree, b: &Tree) -> Tree {
        if self.is_too_large() {
            return b.clone();
        }
        if let Operand::Const(c) = cond {
            return if c.is_true() { a.clone() } else { b.clone() };
        }
        let mut others = Vec::new();
        b.map(&mut |o| {
            others.push(o.clone());
            o.clone()
        });
        let mut others = others.into_iter();
        a.map(&mut |then| match others.next() {
            Some(other) if other != *then => self.b.select(cond.clone(), then.clone(), other).into(),
            _ => then.clone(),
        })
    }

    /// A copy of a value that later writes do not affect.
    pub fn freeze(&mut self, tree: &Tree) -> Tree {
        let mut changes = false;
        let program = self.b.program();
        tree.for_each_operand(&mut |o| {
            changes |= o.slot().is_some_and(|s| program.slots[s.index()].kind != ir::SlotKind::Temp);
        });
        if !changes {
            return tree.clone();
        }
        tree.map(&mut |o| match o {
            Operand::Const(_) => o.clone(),
            Operand::Slot(_) => {
                let copy = self.b.temp(o.width(self.b.program()));
                self.b.mov(copy, o);
                copy.into()
            }
        })
    }
}

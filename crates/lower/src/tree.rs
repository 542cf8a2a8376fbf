//! Values and storage as trees of operands.
//!
//! One type serves both. A *storage* tree has a slot at every leaf (and says which IR header it is); a *value* tree has
//! slots, constants or both. Reading a variable is handing out its storage tree, so nothing is copied until something is
//! written; whoever evaluates something with side effects in between makes a copy first (`Lowerer::freeze`).
//!
//! Children are shared (`Rc`), so that projecting a field of a big struct costs one step.

use base::Bits;
use ir::{HeaderId, Operand, SlotId};
use std::rc::Rc;

/// A value or a place for one.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// No bits: externs, strings, `void`.
    Nothing,
    /// `bit`, `int`, `bool`, `error`, enums.
    Leaf(Operand),
    /// A varbit: its value, right-aligned, and its length in bits (32 bits wide).
    Varbit { value: Operand, length: Operand },
    /// A header.
    Header(HeaderTree),
    /// A header union's members.
    Union(Rc<[Tree]>),
    /// Fields of a struct, elements of a tuple or list.
    Struct(Rc<[Tree]>),
    /// A stack or array; header stacks in storage have a `nextIndex`.
    Stack { elements: Rc<[Tree]>, next: Option<SlotId> },
}

/// A header's validity and fields.
#[derive(Clone, Debug)]
pub(crate) struct HeaderTree {
    /// The IR header, for storage that has one.
    pub id: Option<HeaderId>,
    /// Storage that keeps its fields while it is invalid: the slots are its own, and `id` is for the wire only (`loose.rs`).
    pub loose: bool,
    /// One bit.
    pub valid: Operand,
    /// By P4 field; a field of struct type is a subtree.
    pub fields: Rc<[Tree]>,
}

impl HeaderTree {
    /// A valid header with these values in its fields.
    pub fn of_values(fields: Rc<[Tree]>) -> HeaderTree {
        HeaderTree { id: None, loose: false, valid: Operand::Const(Bits::from_bool(true)), fields }
    }
}

impl Tree {
    /// A constant leaf.
    pub fn constant(width: u32, value: u128) -> Tree {
        Tree::Leaf(Operand::new_const(width, value))
    }

    /// Subtree number `index` of a struct, header, union, tuple or stack.
    pub fn child(&self, index: usize) -> Tree {
        self.children().get(index).cloned().unwrap_or(Tree::Nothing)
    }

    /// The subtrees, validity and `nextIndex` not among them.
    pub fn children(&self) -> &[Tree] {
        match self {
            Tree::Struct(c) | Tree::Union(c) | Tree::Stack { elements: c, .. } => c,
            Tree::Header(h) => &h.fields,
            Tree::Nothing | Tree::Leaf(_) | Tree::Varbit { .. } => &[],
        }
    }

    /// The operand of a scalar; for anything else (after an error) a zero bit.
    pub fn operand(&self) -> Operand {
        match self {
            Tree::Leaf(o) => o.clone(),
            Tree::Varbit { value, .. } => value.clone(),
            _ => Operand::Const(Bits::zero(1)),
        }
    }

    /// Calls `f` for every operand: values, lengths, validities; for stacks their `nextIndex` too.
    pub fn for_each_operand(&self, f: &mut impl FnMut(&Operand)) {
        match self {
            Tree::Nothing => {}
            Tree::Leaf(o) => f(o),
            Tree::Varbit { value, length } => {
                f(value);
                f(length);
            }
            Tree::Header(h) => {
                f(&h.valid);
                h.fields.iter().for_each(|t| t.for_each_operand(f));
            }
            Tree::Union(c) | Tree::Struct(c) => c.iter().for_each(|t| t.for_each_operand(f)),
            Tree::Stack { elements, next } => {
                elements.iter().for_each(|t| t.for_each_operand(f));
                next.iter().for_each(|n| f(&Operand::Slot(*n)));
            }
        }
    }

    /// All slots in it.
    pub fn slots(&self) -> Vec<SlotId> {
        let mut slots = Vec::new();
        self.for_each_operand(&mut |o| slots.extend(o.slot()));
        slots
    }

    /// Values of the wire form in order: fields without validities. Varbits come with their length.
    pub fn for_each_wire_leaf(&self, f: &mut impl FnMut(&Operand, Option<&Operand>)) {
        match self {
            Tree::Leaf(o) => f(o, None),
            Tree::Varbit { value, length } => f(value, Some(length)),
            _ => self.children().iter().for_each(|t| t.for_each_wire_leaf(f)),
        }
    }

    /// Values that a controller sees, in order: as the wire form, with each header's validity before its fields, and each
    /// varbit's length after its value.
    pub fn for_each_told_leaf(&self, f: &mut impl FnMut(&Operand)) {
        match self {
            Tree::Leaf(o) => f(o),
            Tree::Varbit { value, length } => {
                f(value);
                f(length);
            }
            _ => {
                if let Tree::Header(h) = self {
                    f(&h.valid);
                }
                self.children().iter().for_each(|t| t.for_each_told_leaf(f));
            }
        }
    }

    /// A value of the same shape with every operand replaced.
    pub fn map(&self, f: &mut impl FnMut(&Operand) -> Operand) -> Tree {
        match self {
            Tree::Nothing => Tree::Nothing,
            Tree::Leaf(o) => Tree::Leaf(f(o)),
            Tree::Varbit { value, length } => Tree::Varbit { value: f(value), length: f(length) },
            Tree::Header(h) => {
                let valid = f(&h.valid);
                let fields = h.fields.iter().map(|t| t.map(f)).collect();
                Tree::Header(HeaderTree { id: None, loose: false, valid, fields })
            }
            Tree::Union(c) => Tree::Union(c.iter().map(|t| t.map(f)).collect()),
            Tree::Struct(c) => Tree::Struct(c.iter().map(|t| t.map(f)).collect()),
            Tree::Stack { elements, .. } => {
                Tree::Stack { elements: elements.iter().map(|t| t.map(f)).collect(), next: None }
            }
        }
    }

    /// All headers in it, in order.
    pub fn for_each_header(&self, f: &mut impl FnMut(&HeaderTree)) {
        match self {
            Tree::Header(h) => f(h),
            _ => self.children().iter().for_each(|t| t.for_each_header(f)),
        }
    }

    /// Whether it is a single operand.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Tree::Leaf(_))
    }
}

impl From<Operand> for Tree {
    fn from(o: Operand) -> Tree {
        Tree::Leaf(o)
    }
}

impl From<SlotId> for Tree {
    fn from(s: SlotId) -> Tree {
        Tree::Leaf(Operand::Slot(s))
    }
}

//! Methods of headers, header unions and stacks: `isValid`, `setValid`, `setInvalid`, `push_front`, `pop_front`.
//!
//! A union has at most one valid member: making a member valid makes the others invalid. Stack operations are expanded:
//! `push_front(n)` copies elements upwards, starting with the last one, and `pop_front(n)` downwards, starting with the
//! first. Freed elements become invalid, and `nextIndex` moves along within its bounds (P4_16, "Operations on header
//! stacks").

use crate::codes;
use crate::context::Lowerer;
use crate::path::{Alternative, Place};
use crate::tree::{HeaderTree, Tree};
use base::{Diagnostic, Span};
use ir::{BinOp, Op, Operand};
use sema::Type;
use sema::types::StructId;
use std::rc::Rc;

impl Lowerer<'_> {
    /// Reports that a header without a wire format is extracted or emitted, itself or as part of a value: the program
    /// cannot be loaded. If there is no such header, it reports an error, since the value is not a header variable.
    pub fn unfit_for_wire(&mut self, tree: &Tree, ty: &Type, done: &str, span: Span) {
        match self.unfit_header(ty) {
            Some((id, reason)) => {
                let info = self.p.types.fields_of(id);
                let message = format!("header `{}` cannot be {done}: {reason}", info.name);
                let reason =
                    Diagnostic::error(codes::UNSUPPORTED_HEADER, span, message).note(info.span, "declared here");
                self.foreign_header(reason, done, tree, ty);
            }
            None => {
                let message = format!("this cannot be {done}: it is a value, not a header variable");
                self.refuse(codes::UNSUPPORTED_HEADER, span, message);
            }
        }
    }

    /// Whether a type contains a header without a wire format.
    pub fn has_unfit_header(&self, ty: &Type) -> bool {
        self.unfit_header(ty).is_some()
    }

    /// The first header type in a type that has no wire format (see `Lowerer::header`), and why.
    fn unfit_header(&self, ty: &Type) -> Option<(StructId, String)> {
        let types = &self.p.types;
        match types.underlying(ty) {
            Type::Header(id) => {
                let fields = &types.fields_of(id).fields;
                let bits = types.width_bits(ty, false)?;
                let reason = if !bits.is_multiple_of(8) {
                    let varbit = types.width_bits(ty, true) != Some(bits);
                    let without = if varbit { " without its varbit field" } else { "" };
                    format!("it has {bits} bits{without}, not a multiple of 8")
                } else {
                    let empty = fields.iter().find(|f| types.width_bits(&f.ty, true) == Some(0))?;
                    format!("its field `{}` has no bits", empty.name)
                };
                Some((id, reason))
            }
            Type::Struct(id) | Type::HeaderUnion(id) => {
                types.fields_of(id).fields.iter().find_map(|f| self.unfit_header(&f.ty))
            }
            Type::Stack(element, _) => self.unfit_header(&element),
            _ => None,
        }
    }

    /// Runs `f` for each alternative of a place, under its guard.
    pub fn for_each_alternative(&mut self, place: &Place, mut f: impl FnMut(&mut Self, &Alternative)) {
        let done = self.new_join("");
        for alternative in &place.alternatives {
            if self.is_too_large() {
                break;
            }
            match &alternative.guard {
                None => f(self, alternative),
                Some(guard) => {
                    let facts = self.facts.clone();
                    let other = self.split(guard.clone());
                    f(self, alternative);
                    self.to(done);
                    self.start_block(other, facts);
                }
            }
        }
        self.continue_at(done);
    }

    /// `x.isValid()` of a header or union.
    pub fn is_valid(&mut self, tree: &Tree) -> Operand {
        match tree {
            Tree::Header(h) => h.valid.clone(),
            Tree::Union(members) => {
                let mut valid = Self::bit(false);
                for member in members.iter() {
                    if let Tree::Header(h) = member {
                        valid = match &valid {
                            Operand::Const(_) => h.valid.clone(),
                            Operand::Slot(_) => self.b.bin(BinOp::Or, valid, h.valid.clone()).into(),
                        };
                    }
                }
                valid
            }
            _ => Self::bit(false),
        }
    }

    /// `header.setValid()`
    pub fn set_valid(&mut self, place: &Place) {
        self.for_each_alternative(place, |cx, a| {
            if let Tree::Header(h) = &a.tree {
                cx.invalidate_siblings(h);
                match (h.id, &h.valid) {
                    _ if h.retained => cx.make_retained_valid(h),
                    (Some(header), _) => cx.b.emit(Op::SetValid { header }),
                    (None, Operand::Slot(valid)) => cx.b.set(*valid, 1),
                    _ => {}
                }
                cx.facts.extend(h.valid.slot());
            }
        });
    }

    /// `header.setInvalid()`; for a union or a member of one, all members become invalid.
    pub fn set_invalid(&mut self, place: &Place) {
        self.for_each_alternative(place, |cx, a| {
            a.tree.for_each_header(&mut |h| {
                cx.invalidate_siblings(h);
                cx.invalidate(h);
            });
        });
    }

    /// Makes the other members of the union that contains a header invalid, if there is one.
    pub fn invalidate_siblings(&mut self, h: &HeaderTree) {
        let Some(members) = h.valid.slot().and_then(|v| self.union_members.get(&v).cloned()) else { return };
        for member in members.iter() {
            if self.is_too_large() {
                break;
            }
            if let Tree::Header(other) = member
                && other.valid != h.valid
            {
                self.invalidate(other);
            }
        }
    }

    /// Makes a header invalid; the fields of a retained header are kept.
    fn invalidate(&mut self, h: &HeaderTree) {
        match h.valid {
            Operand::Slot(valid) if h.retained => {
                self.b.set(valid, 0);
                self.forget(h);
            }
            _ => self.clear_header(h),
        }
    }

    /// `stack.push_front(count)`
    pub fn push_front(&mut self, place: &Place, count: usize) {
        self.for_each_alternative(place, |cx, a| {
            let Tree::Stack { elements, next } = &a.tree else { return };
            let size = elements.len();
            for i in (count.min(size)..size).rev() {
                cx.store_element(elements, i, i - count);
            }
            elements.iter().take(count).for_each(|e| e.for_each_header(&mut |h| cx.invalidate(h)));
            if let Some(next) = next {
                let count = count.min(size) as u128;
                let sum = cx.b.bin(BinOp::Add, *next, Operand::new_const(32, count));
                let limit = Operand::new_const(32, size as u128);
                let over = cx.b.bin(BinOp::Ult, limit.clone(), sum);
                cx.b.emit(Op::Select { dst: *next, cond: over.into(), then: limit, other: sum.into() });
            }
        });
    }

    /// `stack.pop_front(count)`
    pub fn pop_front(&mut self, place: &Place, count: usize) {
        self.for_each_alternative(place, |cx, a| {
            let Tree::Stack { elements, next } = &a.tree else { return };
            let size = elements.len();
            for i in 0..size.saturating_sub(count) {
                cx.store_element(elements, i, i + count);
            }
            let freed = elements.iter().skip(size.saturating_sub(count));
            freed.for_each(|e| e.for_each_header(&mut |h| cx.invalidate(h)));
            if let Some(next) = next {
                let count = Operand::new_const(32, count.min(size) as u128);
                cx.b.emit(Op::Bin { op: BinOp::SatSubU, dst: *next, a: (*next).into(), b: count });
            }
        });
    }

    fn store_element(&mut self, elements: &Rc<[Tree]>, to: usize, from: usize) {
        let (to, from) = (elements[to].clone(), elements[from].clone());
        self.store(&to, &from, None);
    }
}

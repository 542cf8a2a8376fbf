//! Methods of headers, header unions and stacks: `isValid`, `setValid`, `setInvalid`, `push_front`, `pop_front`.
//!
//! A union has at most one valid member: making one valid makes the others invalid. Stacks are expanded: `push_front(n)`
//! copies elements upwards from the last one, `pop_front(n)` downwards from the first, what becomes free is invalid, and
//! `nextIndex` moves along within its bounds (P4_16, "Operations on header stacks").

use crate::context::Lowerer;
use crate::path::{Alternative, Place};
use crate::tree::{HeaderTree, Tree};
use ir::{BinOp, Op, Operand};
use std::rc::Rc;

impl Lowerer<'_> {
    /// Runs `f` for the alternative of a place whose guard holds.
    pub fn for_each_alternative(&mut self, place: &Place, mut f: impl FnMut(&mut Self, &Alternative)) {
        let done = self.new_join("");
        for alternative in &place.alternatives {
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
        self.land(done);
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
                    (Some(header), _) => cx.b.emit(Op::SetValid { header }),
                    (None, Operand::Slot(valid)) => cx.b.set(*valid, 1),
                    _ => {}
                }
                cx.facts.extend(h.valid.slot());
            }
        });
    }

    /// `header.setInvalid()`; of a union: all members.
    pub fn set_invalid(&mut self, place: &Place) {
        self.for_each_alternative(place, |cx, a| a.tree.for_each_header(&mut |h| cx.clear_header(h)));
    }

    /// Makes the other members of a header's union invalid, if it is in one.
    pub fn invalidate_siblings(&mut self, h: &HeaderTree) {
        let Some(members) = h.valid.slot().and_then(|v| self.union_members.get(&v).cloned()) else { return };
        for member in members.iter() {
            if let Tree::Header(other) = member
                && other.valid != h.valid
            {
                self.clear_header(other);
            }
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
            elements.iter().take(count).for_each(|e| cx.reset(e));
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
            elements.iter().skip(size.saturating_sub(count)).for_each(|e| cx.reset(e));
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

//! Writes to storage. Here and in `header.rs` is all code that changes slots of headers, apart from extraction.
//!
//! **Guards.** A field of a header that may be invalid is written as `f = valid ? value : f`. The write then has no
//! effect on an invalid header (P4_16, "Operations on headers"), whose fields stay zero. A whole header is copied
//! together with its validity and needs no guard: the source's fields are zero if it is invalid.
//!
//! Headers that keep their fields (`retained.rs`) are written without guards.
//!
//! **Overlap.** `{ a, b } = { b, a }` and `s = { s.y, s.x }` must read before they write: the value is frozen if it
//! refers to a slot of the target at another position.

use crate::context::Lowerer;
use crate::path::{Alternative, BitRange, Place};
use crate::tree::{HeaderTree, Tree};
use base::Bits;
use ir::{BinOp, CastKind, Op, Operand, SlotId};
use std::collections::HashMap;

impl Lowerer<'_> {
    /// Writes a value to a place.
    pub fn assign(&mut self, place: &Place, value: &Tree) {
        let mut value = value.clone();
        if !value.is_leaf() && place.alternatives.iter().any(|a| overlaps(&a.tree, &value)) {
            value = self.freeze(&value);
        }
        for alternative in &place.alternatives {
            if self.is_too_large() {
                return;
            }
            self.assign_one(alternative, &place.bits, &value);
        }
    }

    fn assign_one(&mut self, to: &Alternative, bits: &BitRange, value: &Tree) {
        let mut guard = to.guard.clone();
        if let Some(valid) = to.valid.filter(|v| !self.facts.contains(v)) {
            guard = Some(match guard {
                Some(guard) => self.and(guard, valid.into()),
                None => valid.into(),
            });
        }
        match (bits, &to.tree) {
            (BitRange::Whole, tree) => self.store(tree, value, guard.as_ref()),
            (_, Tree::Leaf(Operand::Slot(slot))) => self.store_bits(*slot, bits, value.operand(), guard.as_ref()),
            _ => {}
        }
    }

    fn store_bits(&mut self, slot: SlotId, bits: &BitRange, value: Operand, guard: Option<&Operand>) {
        let width = self.b.program().width(slot);
        match bits {
            BitRange::Fixed { hi, lo } => match guard {
                None => self.b.emit(Op::SetSlice { dst: slot, hi: *hi, lo: *lo, a: value }),
                Some(_) => {
                    let new = self.b.temp(width);
                    self.b.mov(new, slot);
                    self.b.emit(Op::SetSlice { dst: new, hi: *hi, lo: *lo, a: value });
                    self.store_scalar(slot, new.into(), guard);
                }
            },
            BitRange::From { low, width: bits } => {
                let ones = Bits::ones((*bits).min(width)).resize_u(width);
                let mask = self.b.bin(BinOp::Shl, ones, low.clone());
                let keep = self.b.un(ir::UnOp::Not, mask);
                let kept = self.b.bin(BinOp::And, slot, keep);
                let value = self.b.resize_u(width, value);
                let moved = self.b.bin(BinOp::Shl, value, low.clone());
                let new = self.b.bin(BinOp::Or, kept, moved);
                self.store_scalar(slot, new.into(), guard);
            }
            BitRange::Whole => self.store_scalar(slot, value, guard),
        }
    }

    fn store_scalar(&mut self, slot: SlotId, value: Operand, guard: Option<&Operand>) {
        if value == Operand::Slot(slot) {
            return;
        }
        match guard {
            None => self.b.mov(slot, value),
            Some(cond) => self.b.emit(Op::Select { dst: slot, cond: cond.clone(), then: value, other: slot.into() }),
        }
    }

    fn store_operand(&mut self, to: &Operand, value: &Operand, guard: Option<&Operand>) {
        if let Operand::Slot(slot) = to {
            self.store_scalar(*slot, value.clone(), guard);
        }
    }

    /// Copies a value to storage of the same shape, under a guard.
    pub fn store(&mut self, to: &Tree, value: &Tree, guard: Option<&Operand>) {
        match (to, value) {
            (Tree::Nothing, _) | (_, Tree::Nothing) => {}
            (Tree::Leaf(to), value) => self.store_operand(to, &value.operand(), guard),
            (Tree::Varbit { value: tv, length: tl }, Tree::Varbit { value, length }) => {
                self.store_operand(tv, value, guard);
                self.store_operand(tl, length, guard);
            }
            (Tree::Header(to), Tree::Header(value)) => self.store_header(to, value, guard),
            (Tree::Header(to), Tree::Struct(fields)) => {
                self.store_header(to, &HeaderTree::of_values(fields.clone()), guard);
            }
            (Tree::Union(to), Tree::Union(value)) => {
                // Copied member by member, without invalidating siblings: the source has at most one valid member.
                for (to, value) in to.iter().zip(value.iter()) {
                    if let (Tree::Header(to), Tree::Header(value)) = (to, value) {
                        self.copy_header(to, value, guard);
                    }
                }
            }
            (Tree::Stack { elements: to, next: tn }, Tree::Stack { elements: value, next: vn }) => {
                for (to, value) in to.iter().zip(value.iter()) {
                    self.store(to, value, guard);
                }
                if let (Some(to), Some(value)) = (tn, vn) {
                    self.store_scalar(*to, (*value).into(), guard);
                }
            }
            (to, value) => {
                for (to, value) in to.children().iter().zip(value.children()) {
                    self.store(to, value, guard);
                }
            }
        }
    }

    /// Copies a header. If it is a member of a union, the other members become invalid, whether it is valid or not
    /// (P4_16, "Operations on header unions"); this happens after the copy, whose source may be one of them.
    fn store_header(&mut self, to: &HeaderTree, value: &HeaderTree, guard: Option<&Operand>) {
        let member = to.valid.slot().is_some_and(|v| self.union_members.contains_key(&v));
        self.copy_header(to, value, guard);
        match guard {
            _ if !member => {}
            None => self.invalidate_siblings(to),
            Some(guard) => {
                let facts = self.facts.clone();
                let done = self.new_join("");
                let other = self.split(guard.clone());
                self.invalidate_siblings(to);
                self.to(done);
                self.start_block(other, facts);
                self.continue_at(done);
            }
        }
    }

    fn copy_header(&mut self, to: &HeaderTree, value: &HeaderTree, guard: Option<&Operand>) {
        if to.valid == value.valid && to.valid.slot().is_some() {
            return;
        }
        if to.retained {
            return self.copy_to_retained(to, value, guard);
        }
        let value = &self.without_kept_fields(value);
        let surely_valid = match &value.valid {
            Operand::Const(c) => c.is_true(),
            Operand::Slot(s) => self.facts.contains(s),
        };
        match (guard, &value.valid, to.id) {
            (None, Operand::Const(c), Some(header)) if !c.is_true() => {
                self.b.emit(Op::SetInvalid { header });
                self.forget(to);
                return;
            }
            (None, Operand::Const(_), Some(header)) => self.b.emit(Op::SetValid { header }),
            _ => self.store_operand(&to.valid, &value.valid, guard),
        }
        for (to, value) in to.fields.iter().zip(value.fields.iter()) {
            self.store(to, value, guard);
        }
        match to.valid {
            Operand::Slot(slot) if surely_valid && guard.is_none() => {
                self.facts.insert(slot);
            }
            _ if surely_valid => {}
            _ => self.forget(to),
        }
    }

    /// Forgets that a header is valid.
    pub fn forget(&mut self, header: &HeaderTree) {
        if let Operand::Slot(slot) = &header.valid {
            self.facts.remove(slot);
        }
    }

    /// Initialises a variable: bits are zero, headers invalid.
    pub fn reset(&mut self, to: &Tree) {
        match to {
            Tree::Header(h) => self.clear_header(h),
            Tree::Stack { elements, next } => {
                elements.iter().for_each(|e| self.reset(e));
                if let Some(next) = next {
                    self.b.set(*next, 0);
                }
            }
            Tree::Nothing | Tree::Leaf(_) | Tree::Varbit { .. } => {
                to.for_each_operand(&mut |o| {
                    if let Operand::Slot(slot) = o {
                        self.b.set(*slot, 0);
                    }
                });
            }
            Tree::Struct(_) | Tree::Union(_) => to.children().iter().for_each(|c| self.reset(c)),
        }
    }

    /// Makes a header invalid and sets its fields to zero.
    pub fn clear_header(&mut self, h: &HeaderTree) {
        match h.id {
            Some(header) if !h.retained => self.b.emit(Op::SetInvalid { header }),
            _ => {
                if let Operand::Slot(valid) = h.valid {
                    self.b.set(valid, 0);
                }
                h.fields.iter().for_each(|f| self.reset(f));
            }
        }
        self.forget(h);
    }

    /// Coalesces a move: the operation that computes a temporary writes the target of the move instead. The temporary
    /// must have been created after `first_new` and must have no other use.
    pub fn move_result(&mut self, to: SlotId, value: &Operand, first_new: usize) {
        let last = self.b.program().slots.len() - 1;
        if let Operand::Slot(temp) = value
            && temp.index() >= first_new
            && temp.index() == last
            && !self.b.is_terminated()
            && !self.is_too_large()
        {
            let (stage, block) = (self.b.current_stage(), self.b.current());
            let program = self.b.program_mut();
            let inst = program.stages[stage.index()].blocks[block.index()].insts.last_mut();
            if let Some(dst) = inst.and_then(|i| result_of(&mut i.op))
                && *dst == *temp
            {
                *dst = to;
                program.slots.pop();
                return;
            }
        }
        self.b.mov(to, value);
    }

    /// Resizes a value to `width` bits: sign-extended if `signed`, else zero-extended, or truncated.
    pub fn resize(&mut self, value: Operand, width: u32, signed: bool) -> Operand {
        let from = self.width(&value);
        match &value {
            Operand::Const(c) if signed => c.resize_s(width).into(),
            Operand::Slot(_) if signed && from < width => self.b.cast(CastKind::Sext, width, value).into(),
            _ => self.b.resize_u(width, value),
        }
    }
}

/// The destination of an operation that only computes a value from its operands; `None` for operations with side
/// effects.
fn result_of(op: &mut Op) -> Option<&mut SlotId> {
    match op {
        Op::Bin { dst, .. }
        | Op::Un { dst, .. }
        | Op::Cast { dst, .. }
        | Op::Concat { dst, .. }
        | Op::Slice { dst, .. }
        | Op::Select { dst, .. } => Some(dst),
        _ => None,
    }
}

/// Whether copying `value` to `to` slot by slot could read a slot that has been overwritten already.
fn overlaps(to: &Tree, value: &Tree) -> bool {
    let mut at: HashMap<SlotId, usize> = HashMap::new();
    let mut position = 0;
    to.for_each_operand(&mut |o| {
        if let Operand::Slot(slot) = o {
            at.insert(*slot, position);
        }
        position += 1;
    });
    let mut position = 0;
    let mut overlaps = false;
    value.for_each_operand(&mut |o| {
        if let Operand::Slot(slot) = o {
            overlaps |= at.get(slot).is_some_and(|p| *p != position);
        }
        position += 1;
    });
    overlaps
}

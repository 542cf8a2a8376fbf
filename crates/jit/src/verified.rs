//! Incremental checksum update: checksums that were verified, and what has changed since.
//!
//! Where every path to an Internet checksum has compared an earlier one over the same fields with the packet's
//! checksum, and continues only if they are equal, the later one need not be summed again: RFC 1624, equation 3,
//! computes it from the packet's checksum and the changed fields. A router that decrements the time to live adds one to
//! the checksum, with end-around carry:
//!
//! ```text
//! s = hash csum16 (…, ttl, …)
//! wrong = ne s, check                         (packets that are wrong, and those whose ttl is 1 or less, are dropped)
//! ttl = sub ttl, 1
//! check = hash csum16 (…, ttl, …)       =>    check = check + 0x0100, end around
//! ```
//!
//! The values of fields that a `switch` in the parser has found are propagated in the same way, for fields that are
//! copied to others.
//!
//! These facts are [`SumFacts`], part of an entry point's [`Facts`](crate::flow::Facts). They are about the frame,
//! which is not written before the deparser (its checksum is right; fields are greater than a number), and about slots
//! that are a field of the frame less a constant. Extracting, adding or removing a header invalidates the facts about
//! it.
//!
//! The equation gives the sum modulo 65,535 and never the sum zero, so the result is 0x0000 where summing anew gives
//! 0xffff for fields that are all zero. Therefore some field must be known to be nonzero.
//!
//! Tests: `tests/sums.rs`; `tests/files/incremental_checksum.ir`; crate `difftest`.

use crate::csum::Sum;
use crate::flow::Facts;
use crate::packet::At;
use crate::translate::Translator;
use crate::value::const_words;
use crate::{Optimisation, Options};
use base::Bits;
use cranelift_codegen::ir::types::{I16, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{BinOp, BitSet, HashAlgorithm, HeaderId, Inst, Op, Operand, Program, SlotId, SlotKind, Terminator, UnOp};
use std::collections::BTreeMap;

/// Longest chain of operations of which a flag may be computed.
const DEPTH_MAX: u32 = 10;
/// Most fields that may have changed.
const CHANGED_MAX: usize = 2;
/// Bits of the widest changed field.
const CHANGED_BITS_MAX: u32 = 32;
/// A multiple of 65,535 that is greater than any changed field, so that subtracting the field does not underflow.
const ENOUGH: u64 = 0xffff << 32;
/// Bits of [`ENOUGH`].
const ENOUGH_BITS: u32 = 48;

/// The lists of operands that the program sums more than once.
#[derive(Clone, Default)]
pub(crate) struct Sums {
    lists: Vec<Vec<Operand>>,
    /// The headers with fields in a list or copied.
    headers: BitSet,
    /// The slots in lists.
    slots: BitSet,
    /// Slots that are copied to a header's field: for example an EtherType that the parser has examined moves to
    /// another header when a tag is added.
    copied: BitSet,
}

impl Sums {
    /// `is_loaded_late` says which slots are fields that can be loaded from the frame.
    pub fn new(program: &Program, options: &Options, is_loaded_late: impl Fn(SlotId) -> bool) -> Sums {
        let mut sums = Sums {
            lists: Vec::new(),
            headers: BitSet::new(program.headers.len()),
            slots: BitSet::new(program.slots.len()),
            copied: BitSet::new(program.slots.len()),
        };
        let insts = || program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts);
        let is_field = |slot: SlotId| matches!(program.slots[slot.index()].kind, SlotKind::Field(_));
        for inst in insts() {
            if let Op::Mov { dst, src: Operand::Slot(src) } = inst.op
                && is_field(dst)
                && is_loaded_late(src)
                && options.has(Optimisation::SplitPaths)
            {
                sums.copied.insert(src.index());
            }
        }
        if !options.has(Optimisation::IncrementalChecksum) {
            return sums.with_headers(program);
        }
        let lists: Vec<&[Operand]> = insts().filter_map(|inst| Some(summed(program, &inst.op)?.1)).collect();
        for (i, list) in lists.iter().enumerate() {
            let is_twice = lists[..i].contains(list) && !sums.lists.iter().any(|known| known == list);
            if is_twice && list.iter().all(|operand| operand.slot().is_none_or(&is_loaded_late)) {
                sums.lists.push(list.to_vec());
            }
        }
        sums.lists.iter().flatten().filter_map(Operand::slot).for_each(|slot| sums.slots.insert(slot.index()));
        sums.with_headers(program)
    }

    fn with_headers(mut self, program: &Program) -> Sums {
        for slot in self.slots.iter().chain(self.copied.iter()) {
            if let SlotKind::Field(header) = program.slots[slot].kind {
                self.headers.insert(header.index());
            }
        }
        self
    }

    /// Whether there is nothing to track.
    pub fn is_empty(&self) -> bool {
        self.headers.iter().next().is_none()
    }
}

/// The destination and operands of a checksum over these operands only.
fn summed<'p>(program: &Program, op: &'p Op) -> Option<(SlotId, &'p [Operand])> {
    let Op::Hash { algorithm: HashAlgorithm::Csum16, dst, base, max: None, data, varbits, payload: false } = op else {
        return None;
    };
    let starts_at_zero = matches!(base, Operand::Const(c) if c.is_zero());
    (starts_at_zero && varbits.is_empty() && program.width(*dst) == 16).then_some((*dst, data))
}

/// The state of a checksum of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// The slot is the sum of the list.
    Computed { list: usize, sum: SlotId },
    /// The flag says whether the sum of the list differs from the field `check` or, with `is_same`, whether it is
    /// equal.
    Compared { list: usize, check: SlotId, flag: SlotId, is_same: bool },
    /// The field `check` is the sum of the list.
    Right { list: usize, check: SlotId },
}

/// Facts about the frame's checksums at one program point.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SumFacts {
    state: State,
    /// Fields whose value in the frame is greater than this.
    above: BTreeMap<SlotId, u64>,
    /// Slots of fields that are less than in the frame by this.
    less: BTreeMap<SlotId, u64>,
    /// Values of fields, valid while the field is clean.
    equal: BTreeMap<SlotId, Bits>,
}

impl SumFacts {
    /// The value of a field, if it is clean.
    pub fn value(&self, slot: SlotId) -> Option<&Bits> {
        self.equal.get(&slot)
    }

    /// Joins `other` into these facts; returns whether they changed.
    pub fn join(&mut self, other: &SumFacts) -> bool {
        if self == other {
            return false;
        }
        let before = self.clone();
        if self.state != other.state {
            self.state = State::Unknown;
        }
        self.above.retain(|slot, _| other.above.contains_key(slot));
        self.above.iter_mut().for_each(|(slot, least)| *least = (*least).min(other.above[slot]));
        self.less.retain(|slot, by| other.less.get(slot) == Some(by));
        self.equal.retain(|slot, value| other.equal.get(slot) == Some(value));
        *self != before
    }

    /// The transfer function of an operation. `is_in_frame`: whether a slot is a clean field before the operation.
    pub fn step(&mut self, program: &Program, sums: &Sums, op: &Op, is_in_frame: impl Fn(SlotId) -> bool) {
        let before = self.state;
        op.for_each_def(program, |slot| {
            if let SlotKind::Valid(header) = program.slots[slot.index()].kind {
                self.header_changes(program, sums, header);
            }
            match self.state {
                State::Computed { sum: own, .. } | State::Compared { flag: own, .. } if own == slot => {
                    self.state = State::Unknown;
                }
                _ => {}
            }
            self.less.remove(&slot);
        });
        match op {
            Op::Bin { op: BinOp::Sub, dst, a: Operand::Slot(a), b: Operand::Const(by) }
                if dst == a && sums.slots.contains(dst.index()) && is_in_frame(*dst) && by.width() <= 64 =>
            {
                self.less.insert(*dst, const_words(by)[0]);
            }
            Op::Bin { op: op @ (BinOp::Eq | BinOp::Ne), dst, a: Operand::Slot(a), b: Operand::Slot(b) } => {
                if let State::Computed { list, sum } = before
                    && let Some(check) = [(a, b), (b, a)].into_iter().find(|(s, _)| **s == sum).map(|(_, check)| *check)
                    && is_in_frame(check)
                {
                    self.state = State::Compared { list, check, flag: *dst, is_same: *op == BinOp::Eq };
                }
            }
            _ => {
                if let Some((sum, data)) = summed(program, op)
                    && let Some(list) = sums.lists.iter().position(|list| list == data)
                    && data.iter().filter_map(Operand::slot).all(is_in_frame)
                {
                    self.state = State::Computed { list, sum };
                }
            }
        }
    }

    fn header_changes(&mut self, program: &Program, sums: &Sums, header: HeaderId) {
        let is_of_it = |slot: SlotId| program.slots[slot.index()].kind == SlotKind::Field(header);
        let is_check = match self.state {
            State::Compared { check, .. } | State::Right { check, .. } => is_of_it(check),
            State::Unknown | State::Computed { .. } => false,
        };
        if sums.headers.contains(header.index()) || is_check {
            self.state = State::Unknown;
            self.above.retain(|slot, _| !is_of_it(*slot));
            self.less.retain(|slot, _| !is_of_it(*slot));
            self.equal.retain(|slot, _| !is_of_it(*slot));
        }
    }

    /// Learns from a branch: a flag has a value at the end of a block.
    fn learn(
        &mut self,
        program: &Program,
        insts: &[Inst],
        sums: &Sums,
        (flag, value, depth): (SlotId, bool, u32),
        is_in_frame: &impl Fn(SlotId) -> bool,
    ) {
        match self.state {
            State::Compared { list, check, flag: own, is_same } if own == flag && is_same == value => {
                self.state = State::Right { list, check };
            }
            _ => {}
        }
        let assigns = |inst: &Inst, slot: SlotId| {
            let mut found = false;
            inst.op.for_each_def(program, |def| found |= def == slot);
            found
        };
        let Some(at) = insts.iter().rposition(|inst| assigns(inst, flag)).filter(|_| depth > 0) else { return };
        let is_unchanged = |slot: SlotId| !insts[at..].iter().any(|inst| assigns(inst, slot));
        let (a, b, op) = match &insts[at].op {
            Op::Un { op: UnOp::Not, a: Operand::Slot(a), .. } if is_unchanged(*a) => {
                return self.learn(program, insts, sums, (*a, !value, depth - 1), is_in_frame);
            }
            Op::Mov { src: Operand::Slot(a), .. } if is_unchanged(*a) => {
                return self.learn(program, insts, sums, (*a, value, depth - 1), is_in_frame);
            }
            Op::Bin { op, a, b, .. } => (a, b, *op),
            _ => return,
        };
        if matches!((op, value), (BinOp::And, true) | (BinOp::Or, false)) {
            for slot in [a, b].into_iter().filter_map(Operand::slot).filter(|slot| is_unchanged(*slot)) {
                self.learn(program, insts, sums, (slot, value, depth - 1), is_in_frame);
            }
        }
        // A comparison that implies that a field is greater than a number.
        let above = match (op, value, a, b) {
            (BinOp::Ule, false, Operand::Slot(s), Operand::Const(c)) => Some((*s, const_words(c)[0])),
            (BinOp::Ult, true, Operand::Const(c), Operand::Slot(s)) => Some((*s, const_words(c)[0])),
            (BinOp::Ult, false, Operand::Slot(s), Operand::Const(c))
            | (BinOp::Ule, true, Operand::Const(c), Operand::Slot(s))
            | (BinOp::Eq, true, Operand::Slot(s), Operand::Const(c))
            | (BinOp::Ne, false, Operand::Slot(s), Operand::Const(c)) => {
                const_words(c)[0].checked_sub(1).map(|below| (*s, below))
            }
            (BinOp::Eq, false, Operand::Slot(s), Operand::Const(c))
            | (BinOp::Ne, true, Operand::Slot(s), Operand::Const(c))
                if c.is_zero() =>
            {
                Some((*s, 0))
            }
            _ => None,
        };
        if let Some((slot, least)) = above
            && sums.slots.contains(slot.index())
            && is_in_frame(slot)
            && is_unchanged(slot)
        {
            let known = self.above.entry(slot).or_insert(least);
            *known = (*known).max(least);
        }
    }
}

/// The facts on the edge from a block, at whose end `facts` hold, to the node `to`. `target` maps blocks to nodes.
pub(crate) fn learn_from(
    program: &Program,
    sums: &Sums,
    block: &ir::Block,
    (to, target): (usize, impl Fn(ir::BlockId) -> usize),
    facts: &mut Facts,
    is_in_frame: impl Fn(SlotId) -> bool,
) {
    match &block.term {
        Terminator::Branch { cond: Operand::Slot(flag), then, other } if !sums.is_empty() => {
            let (then, other) = (target(*then), target(*other));
            if then != other {
                facts.sums.learn(program, &block.insts, sums, (*flag, to == then, DEPTH_MAX), &is_in_frame);
            }
        }
        Terminator::Switch { on: Operand::Slot(on), cases, default }
            if sums.copied.contains(on.index()) && is_in_frame(*on) && target(*default) != to =>
        {
            let mut leading_here = cases.iter().filter(|(_, case)| target(*case) == to);
            if let (Some((value, _)), None) = (leading_here.next(), leading_here.next()) {
                facts.sums.equal.insert(*on, value.clone());
            }
        }
        _ => {}
    }
}

/// A changed field of a sum.
struct Change {
    slot: SlotId,
    width: u32,
    /// Bits by which it is shifted up in its 16-bit word.
    up: u32,
}

impl Translator<'_, '_> {
    /// The checksum of `data`, computed from the frame's, if that is known to be right and little has changed.
    pub fn updated_checksum(&mut self, data: &[Operand]) -> Option<Value> {
        let State::Right { list, check } = self.facts_now.sums.state else { return None };
        if self.facts.sums.lists.get(list).is_none_or(|list| list != data) {
            return None;
        }
        let (header, check) = self.facts.lazy_field(check)?;
        if check.width != 16 || !check.bit.is_multiple_of(8) {
            return None;
        }
        let mut changes = Vec::new();
        let (mut end, mut is_never_zero) = (0, false);
        for operand in data {
            let width = self.width(operand);
            end += width;
            let Some(slot) = operand.slot() else {
                is_never_zero |= operand.constant().is_some_and(|c| !c.is_zero());
                continue;
            };
            let above = self.facts_now.sums.above.get(&slot);
            if self.flow.is_dirty(self.facts, &self.facts_now, slot) {
                changes.push(Change { slot, width, up: (16 - end % 16) % 16 });
                let less = self.facts_now.sums.less.get(&slot);
                is_never_zero |= above.zip(less).is_some_and(|(above, less)| above >= less);
            } else {
                is_never_zero |= above.is_some();
            }
        }
        let fits = changes.iter().all(|change| change.width <= CHANGED_BITS_MAX);
        if !is_never_zero && !changes.is_empty() || changes.len() > CHANGED_MAX || !fits {
            return None;
        }
        let at = At { base: self.header_pointer(header), offset: check.bit / 8 };
        let right = self.load_be(at, 2);
        match &changes[..] {
            [] => return Some(right),
            [Change { slot, width, up }] if width + up <= 16 => {
                let sums = &self.facts_now.sums;
                if let (Some(above), Some(&less)) = (sums.above.get(slot), sums.less.get(slot))
                    && *above >= less
                {
                    return Some(self.add_end_around(right, less << up));
                }
            }
            _ => {}
        }
        let was = self.b.ins().bxor_imm_u(right, 0xffff);
        let mut sum = Sum::of(was, 16);
        for Change { slot, up, .. } in changes {
            let (header, field) = self.facts.lazy_field(slot)?;
            let at = At { base: self.header_pointer(header), offset: 0 };
            let old = self.load_field(at, self.facts.headers[header.index()].fixed_bytes, &field);
            let old = self.words_of_val(&old)[0];
            let new = self.read_word(&Operand::Slot(slot));
            let (old, new) = (self.b.ins().ishl_imm_u(old, i64::from(up)), self.b.ins().ishl_imm_u(new, i64::from(up)));
            let enough = self.iconst(ENOUGH);
            let without = self.b.ins().isub(enough, old);
            let with = self.b.ins().iadd(without, new);
            self.add_term(&mut sum, with, 0, ENOUGH_BITS + 1);
        }
        Some(self.fold(sum))
    }

    /// The sum modulo 65,535 of a checksum, which is not 0xffff, and a 16-bit number. It is computed in the frame's
    /// byte order: swapping the bytes of both operands swaps the bytes of the sum.
    fn add_end_around(&mut self, right: Value, number: u64) -> Value {
        let (lies, number) = match self.swapped(right) {
            Some((lies, _)) => (lies, u64::from((number as u16).swap_bytes())),
            None => (right, number),
        };
        let sum = self.add_imm(lies, number);
        let over = self.add_imm(lies, number + 1);
        let over = self.b.ins().ushr_imm_u(over, 16);
        let sum = self.b.ins().iadd(sum, over);
        match self.swapped(right) {
            Some(_) => self.swap(sum, I16),
            None => {
                let sum = self.b.ins().ireduce(I16, sum);
                self.b.ins().uextend(I64, sum)
            }
        }
    }
}

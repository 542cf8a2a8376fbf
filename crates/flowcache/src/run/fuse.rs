//! Instruction fusion: combines operations that occur together.
//!
//! Needs: registers are set once, before they are read; all operations compute, and all writes follow them. So an
//! operation may be moved to where its result is read. Guarantees: every register that is read afterwards has the
//! same value as before.
//!
//! ```text
//! Load r0; AddConst r1 = r0 - 1                       LoadAdd r1
//! Shl r2 = r1 << 8                              ─▶
//! SumValue r2; Sum r3; Not r4 = r3                    Sum r4 = !(… + (r1 << 8))
//! ```
//!
//! A sum also takes over the write of its result, if that overlaps no other write and nothing that is read
//! afterwards.

use super::arithmetic::ones;
use super::{Op, Sum, Write};
use crate::path::{Rewrite, Word};
use ir::{BinOp, UnOp};
use std::ops::Range;

/// Number of registers; register numbers are bytes.
const REGISTERS: usize = 256;

/// Definitions and numbers of uses of registers.
struct Uses {
    set_by: [usize; REGISTERS],
    reads: [u32; REGISTERS],
}

impl Uses {
    fn of(ops: &[Op], writes: &[Write]) -> Uses {
        let mut uses = Uses { set_by: [usize::MAX; REGISTERS], reads: [0; REGISTERS] };
        for (i, op) in ops.iter().enumerate() {
            let (set, read) = registers(op);
            if let Some(set) = set {
                uses.set_by[usize::from(set)] = i;
            }
            read.iter().flatten().for_each(|read| uses.reads[usize::from(*read)] += 1);
        }
        for write in writes {
            if let Write::Store { from, .. } = write {
                uses.reads[usize::from(*from)] += 1;
            }
        }
        uses
    }

    /// The operation that sets a register, if there is only one use of it.
    fn only_for(&self, ops: &[Option<Op>], register: u8) -> Option<(usize, Op)> {
        let at = self.set_by[usize::from(register)];
        let op = ops.get(at).copied().flatten()?;
        (self.reads[usize::from(register)] == 1).then_some((at, op))
    }
}

/// The register that a computing operation sets, and those that it reads.
fn registers(op: &Op) -> (Option<u8>, [Option<u8>; 3]) {
    match *op {
        Op::Const { to, .. } | Op::Load { to, .. } | Op::LoadBits { to, .. } | Op::LoadAdd { to, .. } => {
            (Some(to), [None; 3])
        }
        Op::Binary { to, a, b, .. } => (Some(to), [Some(a), Some(b), None]),
        Op::BinaryConst { to, a, .. } | Op::AddConst { to, a, .. } | Op::Unary { to, a, .. } => {
            (Some(to), [Some(a), None, None])
        }
        Op::Select { to, cond, then, other } => (Some(to), [Some(cond), Some(then), Some(other)]),
        Op::SumValue { from } => (None, [Some(from), None, None]),
        Op::Sum(Sum { to, has_value, from, .. }) => (Some(to), [has_value.then_some(from), None, None]),
        Op::Copy { .. }
        | Op::CopyTo8 { .. }
        | Op::CopyTo16 { .. }
        | Op::Store8 { .. }
        | Op::Store16 { .. }
        | Op::Store32 { .. }
        | Op::Store64 { .. }
        | Op::Store { .. }
        | Op::StoreBits { .. }
        | Op::Put8 { .. }
        | Op::Put16 { .. }
        | Op::PutTo8 { .. }
        | Op::PutTo16 { .. }
        | Op::PutBits { .. }
        | Op::PutBits64 { .. } => (None, [None; 3]),
    }
}

/// Fuses computing operations. Their results are read by other ones and by `writes`; `words` are the words of sums.
pub(super) fn fuse(ops: Vec<Op>, words: &[Word], writes: &mut Vec<Write>, rewrite: &Rewrite) -> Vec<Op> {
    let mut uses = Uses::of(&ops, writes);
    let mut ops: Vec<Option<Op>> = ops.into_iter().map(Some).collect();
    for i in 0..ops.len() {
        match ops[i] {
            Some(Op::AddConst { to, a, width, b }) => {
                if let Some((at, Op::Load { at: from, shift, width: loaded, .. })) = uses.only_for(&ops, a)
                    && width <= loaded
                {
                    ops[at] = None;
                    ops[i] = Some(Op::LoadAdd { to, at: from, shift, width, b });
                }
            }
            Some(Op::Sum(sum)) if !sum.has_value => {
                if let Some(Some(Op::SumValue { from })) = i.checked_sub(1).map(|before| ops[before]) {
                    ops[i - 1] = None;
                    ops[i] = Some(Op::Sum(with_value(sum, from, &mut ops, &uses)));
                }
            }
            Some(Op::Unary { op: UnOp::Not, to, a, width: 16 }) => {
                if let Some((at, Op::Sum(sum))) = uses.only_for(&ops, a)
                    && !sum.complements
                {
                    ops[at] = Some(Op::Sum(Sum { to, complements: true, ..sum }));
                    ops[i] = None;
                    uses.set_by[usize::from(to)] = at;
                }
            }
            _ => {}
        }
    }
    take_writes(&mut ops, &uses, words, writes, rewrite);
    ops.into_iter().flatten().collect()
}

/// Makes sums write their results, where possible.
fn take_writes(ops: &mut [Option<Op>], uses: &Uses, words: &[Word], writes: &mut Vec<Write>, rewrite: &Rewrite) {
    if writes.iter().any(|write| matches!(write, Write::Copy { .. })) {
        return;
    }
    let place = |write: &Write| match *write {
        Write::Store { bit, width, .. } => bit..bit + usize::from(width),
        Write::Copy { to, len, .. } => to * 8..(to + len) * 8,
    };
    let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    let mut at = 0;
    while let Some(write) = writes.get(at) {
        let own = place(write);
        let others = writes.iter().enumerate().filter(|(other, _)| *other != at);
        if let Write::Store { bit, width: 16, from } = *write
            && bit % 8 == 0
            && let Some((setter, Op::Sum(sum))) = uses.only_for(ops, from)
            && others.clone().all(|(_, other)| !overlap(&place(other), &own))
            // The bit of the received frame at the same position.
            && let Some(received) = (bit + usize::from(rewrite.replaced) * 8).checked_sub(usize::from(rewrite.head) * 8)
            && !ops[setter + 1..].iter().flatten().any(|op| reads(op, words, &(received..received + 16)))
        {
            ops[setter] = Some(Op::Sum(Sum { store: (bit / 8) as u16, ..sum }));
            writes.remove(at);
        } else {
            at += 1;
        }
    }
}

/// Whether a computing operation reads any of these bits of the received frame.
fn reads(op: &Op, words: &[Word], bits: &Range<usize>) -> bool {
    // Masks are over eight bytes as a big-endian number.
    let reads_word = |at: u16, mask: u64| {
        let at = usize::from(at) * 8;
        (0..64).any(|i| mask >> (63 - i) & 1 != 0 && bits.contains(&(at + i)))
    };
    match *op {
        Op::Load { at, shift, width, .. } | Op::LoadAdd { at, shift, width, .. } => {
            reads_word(at, ones(width) << shift)
        }
        Op::LoadBits { bit, width, .. } => {
            usize::from(bit) < bits.end && bits.start < usize::from(bit) + usize::from(width)
        }
        Op::Sum(sum) => {
            let all = usize::from(sum.first)..usize::from(sum.first) + usize::from(sum.count);
            words[all].iter().any(|word| reads_word(word.at, word.mask))
        }
        _ => false,
    }
}

/// The sum with a register added, and with the shift that computes the register, if that is its only use.
fn with_value(sum: Sum, from: u8, ops: &mut [Option<Op>], uses: &Uses) -> Sum {
    match uses.only_for(ops, from) {
        Some((at, Op::BinaryConst { op: BinOp::Shl, a, width, b, .. })) if b < u64::from(width) => {
            ops[at] = None;
            Sum { has_value: true, from: a, shift: b as u8, width, ..sum }
        }
        _ => Sum { has_value: true, from, shift: 0, width: 64, ..sum },
    }
}

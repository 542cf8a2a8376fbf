//! Algebraic simplification of single instructions.
//!
//! Needs: a well-formed program, preferably after constant propagation. Guarantees: same behaviour; the number of
//! instructions does not grow. Handles neutral and absorbing constants, equal operands, powers of two, casts and slices
//! without effect, selections between equal operands, comparisons of single bits, branches on a complement, and
//! switches on a single bit.
//!
//! ```text
//! x = mul y, 8w8                  x = shl y, 8w3
//! c = eq b, 1w0           =>      c = not b
//! branch c, b1, b2                branch b, b2, b1
//! ```
//!
//! Tests: `tests/files/simplify.ir`, `tests/properties.rs`.

use base::Bits;
use base::ids::SlotId;
use ir::{BinOp, Block, CastKind, Op, Operand, Program, Terminator, UnOp};
use std::collections::HashSet;

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut stages = std::mem::take(&mut program.stages);
    let mut changed = false;
    for block in stages.iter_mut().flat_map(|s| &mut s.blocks) {
        for inst in &mut block.insts {
            while let Some(op) = simpler(program, &inst.op) {
                inst.op = op;
                changed = true;
            }
        }
        changed |= positive_branch(block) | branch_on_bit(block);
    }
    program.stages = stages;
    changed
}

/// A simpler equivalent operation, if there is one. Each step makes the operation cheaper or moves a constant to the
/// right, so that repetition terminates.
fn simpler(program: &Program, op: &Op) -> Option<Op> {
    let mov = |dst: &SlotId, src: &Operand| Some(Op::Mov { dst: *dst, src: src.clone() });
    match op {
        Op::Bin { op, dst, a, b } => binary(program, *op, *dst, a, b),
        Op::Cast { dst, a, .. } if a.width(program) == program.width(*dst) => mov(dst, a),
        Op::Slice { dst, a, .. } if a.width(program) == program.width(*dst) => mov(dst, a),
        Op::Slice { dst, a, lo: 0, .. } => Some(Op::Cast { kind: CastKind::Trunc, dst: *dst, a: a.clone() }),
        Op::SetSlice { dst, a, .. } if a.width(program) == program.width(*dst) => mov(dst, a),
        Op::Concat { dst, hi: Operand::Const(c), lo } if c.is_zero() => {
            Some(Op::Cast { kind: CastKind::Zext, dst: *dst, a: lo.clone() })
        }
        Op::Select { dst, then, other, .. } if then == other => mov(dst, then),
        // Two different bits.
        Op::Select { dst, cond, then: Operand::Const(t), other: Operand::Const(_) } if t.width() == 1 => {
            if t.is_true() { mov(dst, cond) } else { Some(Op::Un { op: UnOp::Not, dst: *dst, a: cond.clone() }) }
        }
        _ => None,
    }
}

fn binary(program: &Program, op: BinOp, dst: SlotId, a: &Operand, b: &Operand) -> Option<Op> {
    use BinOp::*;
    let width = a.width(program);
    let mov = |src: &Operand| Some(Op::Mov { dst, src: src.clone() });
    let constant = |c: Bits| Some(Op::Mov { dst, src: Operand::Const(c) });
    let bin = |op: BinOp, b: Bits| Some(Op::Bin { op, dst, a: a.clone(), b: Operand::Const(b) });
    if op.is_commutative() && a.constant().is_some() && b.constant().is_none() {
        return Some(Op::Bin { op, dst, a: b.clone(), b: a.clone() });
    }
    if a == b && a.slot().is_some() {
        match op {
            And | Or => return mov(a),
            Sub | Xor | SatSubU | SatSubS => return constant(Bits::zero(width)),
            Eq | Ule | Sle => return constant(Bits::from_bool(true)),
            Ne | Ult | Slt => return constant(Bits::from_bool(false)),
            _ => {}
        }
    }
    let c = b.constant()?;
    let (is_zero, is_ones, is_one) = (c.is_zero(), *c == Bits::ones(width), *c == Bits::new(width, 1));
    match op {
        Add | Sub | Or | Xor | Shl | Lshr | Ashr | SatAddU | SatSubU | SatAddS | SatSubS if is_zero => mov(a),
        Shl | Lshr if c.to_u64().is_none_or(|n| n >= width.into()) => constant(Bits::zero(width)),
        And | Mul if is_zero => constant(Bits::zero(width)),
        And if is_ones => mov(a),
        Or if is_ones => constant(Bits::ones(width)),
        Xor if is_ones => Some(Op::Un { op: UnOp::Not, dst, a: a.clone() }),
        Mul | Div if is_one => mov(a),
        Mod if is_one => constant(Bits::zero(width)),
        Mul | Div | Mod => {
            let power = power_of_two(c)?;
            match op {
                Mul => bin(Shl, Bits::new(32, power.into())),
                Div => bin(Lshr, Bits::new(32, power.into())),
                _ => bin(And, c.sub(&Bits::new(width, 1))),
            }
        }
        Eq | Ne if width == 1 => {
            if (op == Eq) == c.is_true() {
                mov(a)
            } else {
                Some(Op::Un { op: UnOp::Not, dst, a: a.clone() })
            }
        }
        Ult if is_zero => constant(Bits::from_bool(false)),
        Ule if is_ones => constant(Bits::from_bool(true)),
        _ => None,
    }
}

/// The exponent of a power of two.
fn power_of_two(c: &Bits) -> Option<u32> {
    let mut set = (0..c.width()).filter(|i| c.bit(*i));
    match (set.next(), set.next()) {
        (Some(i), None) => Some(i),
        _ => None,
    }
}

/// Replaces a branch on a complement that the block computes by a branch on its operand.
fn positive_branch(block: &mut Block) -> bool {
    let Terminator::Branch { cond: Operand::Slot(cond), then, other } = &block.term else { return false };
    let mut written = HashSet::new();
    for inst in block.insts.iter().rev() {
        if let Op::Un { op: UnOp::Not, dst, a: Operand::Slot(a) } = &inst.op
            && dst == cond
        {
            if a == dst || written.contains(a) {
                return false;
            }
            block.term = Terminator::Branch { cond: Operand::Slot(*a), then: *other, other: *then };
            return true;
        }
        // Only plain operations are passed: header operations and lookups write several slots.
        match inst.op.dst() {
            Some(dst) if dst != *cond => drop(written.insert(dst)),
            _ => return false,
        }
    }
    false
}

/// Replaces a switch on one bit by a branch.
fn branch_on_bit(block: &mut Block) -> bool {
    let Terminator::Switch { on, cases, default } = &block.term else { return false };
    let to = |value: bool| cases.iter().find(|(c, _)| c.is_true() == value).map_or(*default, |(_, to)| *to);
    if cases.first().is_none_or(|(c, _)| c.width() != 1) {
        return false;
    }
    block.term = Terminator::Branch { cond: on.clone(), then: to(true), other: to(false) };
    true
}

//! Liveness analysis of registers: states that differ only in dead registers are equivalent.

use crate::helper::Helper;
use crate::instruction::{Atomic, FRAME_POINTER, Op, Operand};

/// `r1` to `r5`, which calls clobber.
const ARGUMENTS: u16 = 0b11_1110;

fn bit(register: u8) -> u16 {
    1 << register
}

fn operand(src: Operand) -> u16 {
    match src {
        Operand::Register(register) => bit(register),
        Operand::Immediate(_) => 0,
    }
}

/// The registers that an instruction reads, and those that it writes.
fn effect(op: &Op) -> (u16, u16) {
    use crate::instruction::Alu;
    match *op {
        Op::Alu { alu: Alu::Mov, dst, src, .. } => (operand(src), bit(dst)),
        Op::Alu { dst, src, .. } => (bit(dst) | operand(src), bit(dst)),
        Op::Neg { dst, .. } | Op::Swap { dst, .. } => (bit(dst), bit(dst)),
        Op::LoadImmediate { dst, .. } => (0, bit(dst)),
        Op::Second | Op::Jump { .. } => (0, 0),
        Op::Load { dst, base, .. } => (bit(base), bit(dst)),
        Op::Store { base, src, .. } => (bit(base) | operand(src), 0),
        Op::Atomic { atomic: Atomic::CompareExchange, base, src, .. } => (bit(base) | bit(src) | 1, 1),
        Op::Atomic { fetch, base, src, .. } => (bit(base) | bit(src), if fetch { bit(src) } else { 0 }),
        Op::Branch { dst, src, .. } => (bit(dst) | operand(src), 0),
        Op::Call { helper } => {
            let read = match Helper::of(helper) {
                Some(Helper::Trace) | None => ARGUMENTS,
                Some(helper) => ((1u16 << helper.arguments().len()) - 1) << 1,
            };
            (read, ARGUMENTS | 1)
        }
        Op::CallLocal { .. } => (ARGUMENTS, ARGUMENTS | 1),
        Op::Exit => (1, 0),
    }
}

/// The successors of an instruction in its function.
pub(super) fn successors(number: usize, op: &Op) -> [Option<usize>; 2] {
    match *op {
        Op::Jump { to } => [Some(to), None],
        Op::Branch { to, .. } => [Some(number + 1), Some(to)],
        Op::LoadImmediate { .. } => [Some(number + 2), None],
        Op::Exit | Op::Second => [None, None],
        _ => [Some(number + 1), None],
    }
}

/// The live registers before each instruction, as bit sets.
pub(crate) fn live(ops: &[Op]) -> Vec<u16> {
    let mut live = vec![0u16; ops.len()];
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); ops.len()];
    for (number, op) in ops.iter().enumerate() {
        for to in successors(number, op).into_iter().flatten().filter(|to| *to < ops.len()) {
            before[to].push(number);
        }
    }
    let mut waiting: Vec<usize> = (0..ops.len()).collect();
    while let Some(number) = waiting.pop() {
        let op = &ops[number];
        let (read, written) = effect(op);
        let after = successors(number, op).into_iter().flatten().filter_map(|to| live.get(to)).fold(0, |a, b| a | b);
        let now = read | after & !written | bit(FRAME_POINTER as u8);
        if now != live[number] {
            live[number] = now;
            waiting.extend(&before[number]);
        }
    }
    live
}

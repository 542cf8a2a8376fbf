//! Semantics of BPF arithmetic and comparisons on numbers, shared by verifier and interpreter.
//!
//! Division by zero gives zero, and the remainder of a division by zero is the dividend; shifts use the lowest five or
//! six bits of the amount (RFC 9669, section 4.1).

use crate::instruction::{Alu, Condition};

/// The result of `a op b` on 64 bits (`wide`) or 32 bits, zero-extended.
pub(crate) fn compute(alu: Alu, wide: bool, a: u64, b: u64) -> u64 {
    match wide {
        true => match alu {
            Alu::Add => a.wrapping_add(b),
            Alu::Sub => a.wrapping_sub(b),
            Alu::Mul => a.wrapping_mul(b),
            Alu::Div => a.checked_div(b).unwrap_or(0),
            Alu::Mod => a.checked_rem(b).unwrap_or(a),
            Alu::Or => a | b,
            Alu::And => a & b,
            Alu::Xor => a ^ b,
            Alu::Mov => b,
            Alu::Lsh => a << (b & 63),
            Alu::Rsh => a >> (b & 63),
            Alu::Arsh => (a as i64 >> (b & 63)) as u64,
        },
        false => {
            let (a, b) = (a as u32, b as u32);
            u64::from(match alu {
                Alu::Add => a.wrapping_add(b),
                Alu::Sub => a.wrapping_sub(b),
                Alu::Mul => a.wrapping_mul(b),
                Alu::Div => a.checked_div(b).unwrap_or(0),
                Alu::Mod => a.checked_rem(b).unwrap_or(a),
                Alu::Or => a | b,
                Alu::And => a & b,
                Alu::Xor => a ^ b,
                Alu::Mov => b,
                Alu::Lsh => a << (b & 31),
                Alu::Rsh => a >> (b & 31),
                Alu::Arsh => (a as i32 >> (b & 31)) as u32,
            })
        }
    }
}

/// The result of `-a` on 64 bits (`wide`) or 32 bits, zero-extended.
pub(crate) fn negate(wide: bool, a: u64) -> u64 {
    match wide {
        true => a.wrapping_neg(),
        false => u64::from((a as u32).wrapping_neg()),
    }
}

/// The lowest `bits` bits of `a` in big or little endian byte order, on a machine of either byte order.
pub(crate) fn swap(big: bool, bits: u8, a: u64) -> u64 {
    match (bits, big) {
        (16, true) => u64::from((a as u16).to_be()),
        (32, true) => u64::from((a as u32).to_be()),
        (_, true) => a.to_be(),
        (16, false) => u64::from((a as u16).to_le()),
        (32, false) => u64::from((a as u32).to_le()),
        (_, false) => a.to_le(),
    }
}

/// Whether `a` and `b`, or their lower 32 bits if not `wide`, satisfy a condition.
pub(crate) fn holds(condition: Condition, wide: bool, a: u64, b: u64) -> bool {
    let (a, b, sa, sb) = match wide {
        true => (a, b, a as i64, b as i64),
        false => (a & 0xffff_ffff, b & 0xffff_ffff, i64::from(a as i32), i64::from(b as i32)),
    };
    match condition {
        Condition::Eq => a == b,
        Condition::Ne => a != b,
        Condition::Gt => a > b,
        Condition::Ge => a >= b,
        Condition::Lt => a < b,
        Condition::Le => a <= b,
        Condition::Set => a & b != 0,
        Condition::SGt => sa > sb,
        Condition::SGe => sa >= sb,
        Condition::SLt => sa < sb,
        Condition::SLe => sa <= sb,
    }
}

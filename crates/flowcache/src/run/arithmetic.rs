//! [`BinOp`] and [`UnOp`] on values of at most 64 bits. `base::Bits` defines their semantics; `tests.rs` compares
//! the two.

use ir::{BinOp, UnOp};

/// The largest value of `width` bits, 1 to 64.
#[inline(always)]
pub(super) fn ones(width: u8) -> u64 {
    u64::MAX >> (64u8.wrapping_sub(width) & 63)
}

/// The two's complement value of a number of `width` bits.
#[inline(always)]
fn signed(value: u64, width: u8) -> i64 {
    let unused = 64 - u32::from(width);
    (value << unused) as i64 >> unused
}

/// `a op b`. Bits of the operands above `width` are ignored, except in a shift amount.
#[inline(always)]
pub(super) fn binary(op: BinOp, a: u64, b: u64, width: u8) -> u64 {
    let max = ones(width);
    let a = a & max;
    let b = if op.is_shift() { b } else { b & max };
    let (a_signed, b_signed) = (signed(a, width), signed(b, width));
    let clamp = |exact: i128| {
        let top = i128::from(max >> 1);
        exact.clamp(-top - 1, top) as u64 & max
    };
    match op {
        BinOp::Add => a.wrapping_add(b) & max,
        BinOp::Sub => a.wrapping_sub(b) & max,
        BinOp::Mul => a.wrapping_mul(b) & max,
        BinOp::Div => a.checked_div(b).unwrap_or(max),
        BinOp::Mod => a.checked_rem(b).unwrap_or(a),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl if b >= u64::from(width) => 0,
        BinOp::Shl => a << b & max,
        BinOp::Lshr if b >= u64::from(width) => 0,
        BinOp::Lshr => a >> b,
        BinOp::Ashr => (a_signed >> b.min(63)) as u64 & max,
        BinOp::SatAddU => a.checked_add(b).map_or(max, |sum| sum.min(max)),
        BinOp::SatSubU => a.saturating_sub(b),
        BinOp::SatAddS => clamp(i128::from(a_signed) + i128::from(b_signed)),
        BinOp::SatSubS => clamp(i128::from(a_signed) - i128::from(b_signed)),
        BinOp::Eq => u64::from(a == b),
        BinOp::Ne => u64::from(a != b),
        BinOp::Ult => u64::from(a < b),
        BinOp::Ule => u64::from(a <= b),
        BinOp::Slt => u64::from(a_signed < b_signed),
        BinOp::Sle => u64::from(a_signed <= b_signed),
    }
}

/// `op a`. Bits of `a` above `width` are ignored.
#[inline(always)]
pub(super) fn unary(op: UnOp, a: u64, width: u8) -> u64 {
    match op {
        UnOp::Not => !a & ones(width),
        UnOp::Neg => a.wrapping_neg() & ones(width),
    }
}

/// The one's complement sum of two numbers of 64 bits, each four 16-bit parts (RFC 1071, 2(A) and 2(C)).
#[inline(always)]
pub(super) fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

/// Folds the four 16-bit words into their one's complement sum; 0 only for 0.
#[inline(always)]
pub(super) fn fold(sum: u64) -> u64 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}

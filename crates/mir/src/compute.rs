//! The semantics of operations: the single definition for the interpreter and constant folding. Compiled code is tested
//! against it.
//!
//! An integer is a `u128` less than 2 to the power of its type's width. All operations are total.

use crate::op::{Atomic, Binary, Cast, Condition, Part, Unary};
use crate::types::{Type, low_bits};

/// The number read as two's complement.
fn signed(ty: Type, a: u128) -> i128 {
    let unused = 128 - ty.bits();
    (a << unused) as i128 >> unused
}

/// See [`Unary`].
pub fn unary(op: Unary, ty: Type, a: u128) -> u128 {
    let bits = ty.bits();
    let result = match op {
        Unary::Neg => a.wrapping_neg(),
        Unary::Not => !a,
        Unary::ByteSwap => a.swap_bytes() >> (128 - bits),
        Unary::LeadingZeros => u128::from(a.leading_zeros() - (128 - bits)),
        Unary::TrailingZeros => u128::from(a.trailing_zeros().min(bits)),
    };
    result & ty.mask()
}

/// See [`Binary`].
pub fn binary(op: Binary, ty: Type, a: u128, b: u128) -> u128 {
    let bits = ty.bits();
    let amount = (b % u128::from(bits)) as u32;
    let result = match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        // Only for `i64`, so the product has at most 128 bits.
        Binary::MulHigh => a.wrapping_mul(b) >> bits.min(127),
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::Rem => a.checked_rem(b).unwrap_or(a),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a << amount,
        Binary::Shr => a >> amount,
        Binary::Sar => (signed(ty, a) >> amount) as u128,
        Binary::Rotl if amount == 0 => a,
        Binary::Rotl => a << amount | a >> (bits - amount),
    };
    result & ty.mask()
}

/// See [`Condition`].
pub fn compare(condition: Condition, ty: Type, a: u128, b: u128) -> bool {
    let (sa, sb) = (signed(ty, a), signed(ty, b));
    match condition {
        Condition::Eq => a == b,
        Condition::Ne => a != b,
        Condition::Ult => a < b,
        Condition::Ule => a <= b,
        Condition::Ugt => a > b,
        Condition::Uge => a >= b,
        Condition::Slt => sa < sb,
        Condition::Sle => sa <= sb,
        Condition::Sgt => sa > sb,
        Condition::Sge => sa >= sb,
    }
}

/// See [`Cast`].
pub fn cast(op: Cast, from: Type, to: Type, a: u128) -> u128 {
    match op {
        Cast::Trunc | Cast::Zext => a & to.mask(),
        Cast::Sext => signed(from, a) as u128 & to.mask(),
    }
}

/// A packed integer; `number` returns the values of the parts.
pub fn pack(parts: &[Part], mut number: impl FnMut(&Part) -> u128) -> u128 {
    parts.iter().fold(0, |all, part| all | (number(part) & low_bits(part.width.into())) << part.offset)
}

/// See [`crate::op::Op::Hash`].
pub fn hash([k0, k1, s0, s1]: [u128; 4]) -> u128 {
    let product = (k0 ^ s0).wrapping_mul(k1 ^ s1);
    (product ^ product >> 64) & Type::I64.mask()
}

/// The new value.
pub fn atomic(op: Atomic, ty: Type, old: u128, operand: u128) -> u128 {
    match op {
        Atomic::Add => binary(Binary::Add, ty, old, operand),
        Atomic::And => old & operand,
        Atomic::Or => old | operand,
        Atomic::Xor => old ^ operand,
        Atomic::Exchange => operand,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_types_wrap() {
        assert_eq!(binary(Binary::Add, Type::I8, 0xff, 2), 1);
        assert_eq!(binary(Binary::Sar, Type::I8, 0x80, 9), 0xc0);
        assert_eq!(binary(Binary::Rotl, Type::I16, 0x8001, 17), 0x0003);
        assert_eq!(binary(Binary::MulHigh, Type::I64, u64::MAX.into(), u64::MAX.into()), u128::from(u64::MAX - 1));
        assert_eq!(unary(Unary::LeadingZeros, Type::I16, 1), 15);
        assert_eq!(unary(Unary::TrailingZeros, Type::I16, 0), 16);
        assert_eq!(unary(Unary::ByteSwap, Type::I32, 0x0102_0304), 0x0403_0201);
        assert_eq!(cast(Cast::Sext, Type::I1, Type::I8, 1), 0xff);
        assert!(compare(Condition::Slt, Type::I8, 0x80, 0x7f));
    }

    #[test]
    fn division_is_total() {
        assert_eq!((binary(Binary::Div, Type::I32, 7, 0), binary(Binary::Rem, Type::I32, 7, 0)), (0, 7));
    }
}

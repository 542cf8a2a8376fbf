//! The semantics of arithmetic operations on constants, by methods of [`Bits`], including the corner cases. The
//! interpreter executes with it and the optimiser folds with it; compiled code is tested against it.
//!
//! Tests: at the end of the file (corner cases only; the arithmetic itself is tested in `base`).

use crate::op::{BinOp, CastKind, Op, Operand, UnOp};
use base::Bits;
use base::ids::SlotId;

impl BinOp {
    /// `a op b`. The widths must be as the verifier requires.
    pub fn apply(self, a: &Bits, b: &Bits) -> Bits {
        // A shift amount that does not fit 64 bits is larger than any width.
        let amount = || b.to_u64().unwrap_or(u64::MAX);
        match self {
            BinOp::Add => a.add(b),
            BinOp::Sub => a.sub(b),
            BinOp::Mul => a.mul(b),
            BinOp::Div => a.div_u(b).unwrap_or_else(|| Bits::ones(a.width())),
            BinOp::Mod => a.mod_u(b).unwrap_or_else(|| a.clone()),
            BinOp::And => a.and(b),
            BinOp::Or => a.or(b),
            BinOp::Xor => a.xor(b),
            BinOp::Shl => a.shl(amount()),
            BinOp::Lshr => a.lshr(amount()),
            BinOp::Ashr => a.ashr(amount()),
            BinOp::SatAddU => a.sat_add_u(b),
            BinOp::SatSubU => a.sat_sub_u(b),
            BinOp::SatAddS => a.sat_add_s(b),
            BinOp::SatSubS => a.sat_sub_s(b),
            BinOp::Eq => Bits::from_bool(a == b),
            BinOp::Ne => Bits::from_bool(a != b),
            BinOp::Ult => Bits::from_bool(a.ult(b)),
            BinOp::Ule => Bits::from_bool(a.ule(b)),
            BinOp::Slt => Bits::from_bool(a.slt(b)),
            BinOp::Sle => Bits::from_bool(a.sle(b)),
        }
    }
}

impl UnOp {
    /// `op a`.
    pub fn apply(self, a: &Bits) -> Bits {
        match self {
            UnOp::Not => a.not(),
            UnOp::Neg => a.neg(),
        }
    }
}

impl CastKind {
    /// `a` cast to `width`.
    pub fn apply(self, a: &Bits, width: u32) -> Bits {
        match self {
            CastKind::Zext => a.zext(width),
            CastKind::Sext => a.sext(width),
            CastKind::Trunc => a.trunc(width),
        }
    }
}

impl Op {
    /// Evaluates an [arithmetic](Op::is_arithmetic) operation; `dst_width` is the destination's width. `value` returns
    /// an operand's value if it is known; it is also called for the destination of a `set_slice`, whose other bits
    /// stay. `None` for other operations and if a needed value is unknown.
    pub fn evaluate(&self, dst_width: u32, mut value: impl FnMut(&Operand) -> Option<Bits>) -> Option<Bits> {
        Some(match self {
            Op::Mov { src, .. } => value(src)?,
            Op::Bin { op, a, b, .. } => op.apply(&value(a)?, &value(b)?),
            Op::Un { op, a, .. } => op.apply(&value(a)?),
            Op::Cast { kind, a, .. } => kind.apply(&value(a)?, dst_width),
            Op::Concat { hi, lo, .. } => value(hi)?.concat(&value(lo)?),
            Op::Slice { a, hi, lo, .. } => value(a)?.slice(*hi, *lo),
            Op::SetSlice { dst, hi, lo, a } => value(&Operand::Slot(*dst))?.set_slice(*hi, *lo, &value(a)?),
            Op::Select { cond, then, other, .. } => {
                let chosen = if value(cond)?.is_true() { then } else { other };
                value(chosen)?
            }
            _ => return None,
        })
    }

    /// The destination of an arithmetic operation.
    pub fn arithmetic_dst(&self) -> Option<SlotId> {
        if self.is_arithmetic() { self.dst() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_zero_and_shifts_by_more_than_the_width_are_defined() {
        let (a, zero) = (Bits::new(8, 0xa5), Bits::zero(8));
        assert_eq!(BinOp::Div.apply(&a, &zero), Bits::ones(8));
        assert_eq!(BinOp::Mod.apply(&a, &zero), a);
        let huge = Bits::ones(100);
        assert_eq!(BinOp::Shl.apply(&a, &huge), zero);
        assert_eq!(BinOp::Lshr.apply(&a, &huge), zero);
        assert_eq!(BinOp::Ashr.apply(&a, &huge), Bits::ones(8));
    }
}

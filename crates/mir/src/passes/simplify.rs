//! Algebraic simplification: operations that equal one of their operands, a constant, or a simpler operation.
//!
//! Each instruction is visited once, in reverse post-order, and sees its operands' simplified definitions. So
//! identities that follow from earlier ones are found in one run.
//!
//! Needs: a well-formed function. Guarantees: none of the implemented identities applies within a block, unless a loop
//! created it.
//!
//! ```text
//! v2 = const.i64 0
//! v3 = add.i64 v0, v2                       v3 is v0
//! v4 = zext.i64 v1                =>        v5 is v1
//! v5 = trunc.i32 v4                         load le4 frame v0+16
//! v6 = const.i64 12
//! v7 = add.i64 v0, v6
//! load le4 frame v7+4
//! ```
//!
//! Tests: `tests/passes/simplify.mir`.

use crate::cfg::Cfg;
use crate::function::{Function, Module, Replacements};
use crate::op::{Address, Binary, Cast, Condition, Op, Unary};
use crate::types::{Type, Value};

/// The simpler form of an instruction.
enum Simpler {
    /// One of its operands.
    Is(Value),
    /// Another operation.
    By(Op),
}

/// Runs the pass.
pub(super) fn run(_: &Module, function: &mut Function) -> bool {
    let cfg = Cfg::new(function);
    let mut replacements = Replacements::new(function);
    // By value: its definition, with replaced operands.
    let mut made: Vec<Option<Op>> = vec![None; function.values.len()];
    let mut changed = false;
    for &block in cfg.reverse_postorder() {
        let mut insts = std::mem::take(&mut function.block_mut(block).insts);
        for inst in &mut insts {
            inst.op.operands_mut(|value| *value = replacements.of(*value));
            let Some(result) = inst.result else {
                changed |= address_of(&mut inst.op).is_some_and(|address| fold_address(&made, address));
                continue;
            };
            // Few simplifications enable others, and none undoes another.
            for _ in 0..4 {
                let facts = Facts { function, made: &made, ty: function.type_of(result) };
                match facts.simpler(&inst.op) {
                    Some(Simpler::Is(value)) => {
                        replacements.add(result, value);
                        changed = true;
                        break;
                    }
                    Some(Simpler::By(op)) => {
                        inst.op = op;
                        changed = true;
                    }
                    None => break,
                }
            }
            changed |= address_of(&mut inst.op).is_some_and(|address| fold_address(&made, address));
            made[result.index()] = Some(inst.op.clone());
        }
        function.block_mut(block).insts = insts;
    }
    function.replace(&replacements);
    changed
}

fn address_of(op: &mut Op) -> Option<&mut Address> {
    match op {
        Op::Load(_, address)
        | Op::Store(_, address, _)
        | Op::Atomic(_, _, address, _)
        | Op::CompareExchange(_, address, ..)
        | Op::Release(_, address, _)
        | Op::Count(address, _)
        | Op::Prefetch(address, _) => Some(address),
        _ => None,
    }
}

/// Folds constants added to the base into the offset.
fn fold_address(made: &[Option<Op>], address: &mut Address) -> bool {
    let mut folded = false;
    while let Some(Op::Binary(op @ (Binary::Add | Binary::Sub), base, other)) = &made[address.base.index()] {
        let Some(Op::Const(number)) = made[other.index()] else { break };
        let number = if *op == Binary::Sub { (number as i64).wrapping_neg() } else { number as i64 };
        let Some(offset) = i64::from(address.offset).checked_add(number).and_then(|sum| sum.try_into().ok()) else {
            break;
        };
        *address = Address { base: *base, offset };
        folded = true;
    }
    folded
}

struct Facts<'a> {
    function: &'a Function,
    made: &'a [Option<Op>],
    /// The result's type.
    ty: Type,
}

impl Facts<'_> {
    fn constant(&self, value: Value) -> Option<u128> {
        match self.made[value.index()] {
            Some(Op::Const(number)) => Some(number),
            _ => None,
        }
    }

    fn simpler(&self, op: &Op) -> Option<Simpler> {
        match op {
            Op::Binary(op, a, b) => self.binary(*op, *a, *b),
            Op::Compare(condition, a, b) => self.compare(*condition, *a, *b),
            Op::Unary(op, a) => match (&self.made[a.index()], op) {
                (Some(Op::Unary(inner, of)), Unary::Neg | Unary::Not | Unary::ByteSwap) if inner == op => {
                    Some(Simpler::Is(*of))
                }
                _ => None,
            },
            Op::Select(_, a, b) if a == b => Some(Simpler::Is(*a)),
            Op::Cast(cast, a) => self.cast(*cast, *a),
            Op::Pack(parts) => match parts[..] {
                // All bits of one value, unshifted.
                [part] if part.offset == 0 && u32::from(part.width) == self.function.type_of(part.value).bits() => {
                    match self.function.type_of(part.value) == self.ty {
                        true => Some(Simpler::Is(part.value)),
                        false => Some(Simpler::By(Op::Cast(Cast::Zext, part.value))),
                    }
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn binary(&self, op: Binary, a: Value, b: Value) -> Option<Simpler> {
        // Constants go to the right.
        if op.is_commutative() && self.constant(a).is_some() && self.constant(b).is_none() {
            return Some(Simpler::By(Op::Binary(op, b, a)));
        }
        let zero = || Some(Simpler::By(Op::Const(0)));
        let all = self.ty.mask();
        if a == b {
            match op {
                Binary::And | Binary::Or => return Some(Simpler::Is(a)),
                Binary::Xor | Binary::Sub => return zero(),
                _ => {}
            }
        }
        let number = self.constant(b)?;
        match (op, number) {
            (Binary::Add | Binary::Sub | Binary::Or | Binary::Xor, 0) => Some(Simpler::Is(a)),
            (Binary::Mul | Binary::Div, 1) => Some(Simpler::Is(a)),
            (Binary::Mul | Binary::MulHigh | Binary::And | Binary::Div, 0) => zero(),
            (Binary::Rem, 1) => zero(),
            (Binary::Rem, 0) => Some(Simpler::Is(a)),
            (Binary::And, number) if number == all => Some(Simpler::Is(a)),
            (Binary::Shl | Binary::Shr | Binary::Sar | Binary::Rotl, number)
                if number % u128::from(self.ty.bits()) == 0 =>
            {
                Some(Simpler::Is(a))
            }
            _ => None,
        }
    }

    fn compare(&self, condition: Condition, a: Value, b: Value) -> Option<Simpler> {
        use Condition::{Eq, Ne, Sge, Sgt, Sle, Slt, Uge, Ugt, Ule, Ult};
        if a == b {
            return Some(Simpler::By(Op::Const(matches!(condition, Eq | Ule | Uge | Sle | Sge).into())));
        }
        if self.constant(a).is_some() && self.constant(b).is_none() {
            let turned = match condition {
                Eq => Eq,
                Ne => Ne,
                Ult => Ugt,
                Ule => Uge,
                Ugt => Ult,
                Uge => Ule,
                Slt => Sgt,
                Sle => Sge,
                Sgt => Slt,
                Sge => Sle,
            };
            return Some(Simpler::By(Op::Compare(turned, b, a)));
        }
        let number = self.constant(b)?;
        let ty = self.function.type_of(a);
        match (condition, number) {
            (Ult, 0) => Some(Simpler::By(Op::Const(0))),
            (Uge, 0) => Some(Simpler::By(Op::Const(1))),
            (Ne, 0) | (Eq, 1) if ty == Type::I1 => Some(Simpler::Is(a)),
            (Eq, 0) | (Ne, 1) if ty == Type::I1 => Some(Simpler::By(Op::Unary(Unary::Not, a))),
            // A widened truth value.
            (Eq | Ne, 0) => match self.made[a.index()] {
                Some(Op::Cast(Cast::Zext | Cast::Sext, of)) if self.function.type_of(of) == Type::I1 => {
                    Some(match condition {
                        Ne => Simpler::Is(of),
                        _ => Simpler::By(Op::Unary(Unary::Not, of)),
                    })
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn cast(&self, cast: Cast, a: Value) -> Option<Simpler> {
        let Some(Op::Cast(inner, of)) = self.made[a.index()] else { return None };
        let from = self.function.type_of(of);
        match (cast, inner) {
            (Cast::Trunc, Cast::Trunc) => Some(Simpler::By(Op::Cast(Cast::Trunc, of))),
            (Cast::Zext, Cast::Zext) => Some(Simpler::By(Op::Cast(Cast::Zext, of))),
            (Cast::Sext, Cast::Sext) => Some(Simpler::By(Op::Cast(Cast::Sext, of))),
            // A zero-extended value is not negative.
            (Cast::Sext, Cast::Zext) => Some(Simpler::By(Op::Cast(Cast::Zext, of))),
            (Cast::Trunc, Cast::Zext | Cast::Sext) => Some(match from.bits().cmp(&self.ty.bits()) {
                std::cmp::Ordering::Equal => Simpler::Is(of),
                std::cmp::Ordering::Less => Simpler::By(Op::Cast(inner, of)),
                std::cmp::Ordering::Greater => Simpler::By(Op::Cast(Cast::Trunc, of)),
            }),
            (Cast::Zext, Cast::Trunc | Cast::Sext) | (Cast::Sext, Cast::Trunc) => None,
        }
    }
}

//! Compile-time evaluation: constant folding for the checker, and evaluation of a constructor-dependent expression in
//! an instance.
//!
//! Arithmetic on fixed-width values is [`base::Bits`]'s; arithmetic on `int` is `num-bigint`'s. The functions here
//! never panic: an operation without a value (division by zero, a shift by a negative amount, an operand that is not
//! constant) is a [`FoldError`] or `None`. Shifts and products of `int` are bounded by [`MAX_INT_BITS`].
//!
//! Specification: P4_16, "Compile-time known and local compile-time known values", "Operations on …".

use crate::typed::{BinaryOp, Expr, ExprKind, InstanceId, LocalId, Program, UnaryOp};
use crate::types::{StructKind, Type, TypeTable};
use crate::value::Value;
use base::Bits;
use base::bits::MAX_WIDTH;
use num_bigint::{BigInt, Sign};
use num_traits::{One, ToPrimitive, Zero};

/// The maximum size of an `int` result, in bits.
pub const MAX_INT_BITS: u64 = 1 << 20;

/// Why an operation on constants has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldError {
    /// An operand is not a constant of a suitable kind; not an error in itself.
    NotConstant,
    /// `/ 0` or `% 0`
    DivisionByZero,
    /// Division or remainder of a negative `int`.
    NegativeDivision,
    /// A shift by a negative amount.
    NegativeShift,
    /// The result has more than [`MAX_INT_BITS`] bits.
    TooLarge,
}

impl FoldError {
    /// The text for a diagnostic.
    pub fn text(self) -> &'static str {
        match self {
            FoldError::NotConstant => "not a compile-time known value",
            FoldError::DivisionByZero => "division by zero",
            FoldError::NegativeDivision => "division and modulo are not defined for negative `int` values",
            FoldError::NegativeShift => "shift by a negative amount",
            FoldError::TooLarge => "the value is too large",
        }
    }
}

/// Whether the representation type is signed: `int<W>`, also below a `type` or serialisable enum.
pub fn is_signed(types: &TypeTable, ty: &Type) -> bool {
    matches!(types.underlying(ty), Type::Bits { signed: true, .. })
}

/// The default value of a type, which `...` denotes (P4_16, "Default values"); `None` for types without one.
pub fn default_value(types: &TypeTable, ty: &Type) -> Option<Value> {
    Some(match ty {
        Type::Bool => Value::Bool(false),
        Type::Error => Value::Error(0),
        Type::Int => Value::Int(BigInt::zero()),
        Type::Bits { width, .. } => Value::Bits(Bits::zero((*width).min(MAX_WIDTH))),
        Type::Varbit(_) => Value::Varbit(Bits::zero(0)),
        Type::Enum(_) => Value::Enum(0),
        Type::Header(_) | Type::HeaderUnion(_) => Value::Invalid,
        Type::Struct(id) => {
            let fields = &types.structs[id.index()].fields;
            Value::Seq(fields.iter().map(|f| default_value(types, &f.ty)).collect::<Option<_>>()?)
        }
        Type::Tuple(elements) => Value::Seq(elements.iter().map(|t| default_value(types, t)).collect::<Option<_>>()?),
        Type::Stack(element, n) => {
            Value::Seq(std::iter::repeat_n(default_value(types, element)?, *n as usize).collect())
        }
        Type::SerEnum(_) | Type::Newtype(_) => return default_value(types, &types.underlying(ty)),
        _ => return None,
    })
}

/// Folds `op value`.
///
/// # Errors
///
/// A [`FoldError`] if the operation has no value.
pub fn unary(op: UnaryOp, value: &Value) -> Result<Value, FoldError> {
    Ok(match (op, value) {
        (UnaryOp::Not, Value::Bool(b)) => Value::Bool(!b),
        (UnaryOp::Plus, Value::Int(_) | Value::Bits(_)) => value.clone(),
        (UnaryOp::Neg, Value::Int(v)) => Value::Int(-v),
        (UnaryOp::Neg, Value::Bits(v)) => Value::Bits(v.neg()),
        (UnaryOp::BitNot, Value::Bits(v)) => Value::Bits(v.not()),
        _ => return Err(FoldError::NotConstant),
    })
}

/// Folds `left op right`; `signed` is how fixed-width operands of a comparison, `>>` or saturating operation are read.
///
/// # Errors
///
/// A [`FoldError`] if the operation has no value: constants of unsuitable kinds, division by zero or of a negative
/// `int`, a shift by a negative amount, a result that is too large.
pub fn binary(op: BinaryOp, left: &Value, right: &Value, signed: bool) -> Result<Value, FoldError> {
    use BinaryOp::*;
    match op {
        Eq => return Ok(Value::Bool(left == right)),
        Ne => return Ok(Value::Bool(left != right)),
        Shl | Shr => return shift(op, left, right, signed),
        _ => {}
    }
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => match op {
            And => Ok(Value::Bool(*a && *b)),
            Or => Ok(Value::Bool(*a || *b)),
            _ => Err(FoldError::NotConstant),
        },
        (Value::Int(a), Value::Int(b)) => int(op, a, b),
        (Value::Bits(a), Value::Bits(b)) if op == Concat => {
            if u64::from(a.width()) + u64::from(b.width()) > u64::from(MAX_WIDTH) {
                return Err(FoldError::TooLarge);
            }
            Ok(Value::Bits(a.concat(b)))
        }
        (Value::Bits(a), Value::Bits(b)) if a.width() == b.width() => bits(op, a, b, signed),
        _ => Err(FoldError::NotConstant),
    }
}

fn bits(op: BinaryOp, a: &Bits, b: &Bits, signed: bool) -> Result<Value, FoldError> {
    use BinaryOp::*;
    let less = |a: &Bits, b: &Bits| if signed { a.slt(b) } else { a.ult(b) };
    Ok(match op {
        Mul => Value::Bits(a.mul(b)),
        Div | Mod if b.is_zero() => return Err(FoldError::DivisionByZero),
        Div => Value::Bits(a.div_u(b).ok_or(FoldError::DivisionByZero)?),
        Mod => Value::Bits(a.mod_u(b).ok_or(FoldError::DivisionByZero)?),
        Add => Value::Bits(a.add(b)),
        Sub => Value::Bits(a.sub(b)),
        AddSat => Value::Bits(if signed { a.sat_add_s(b) } else { a.sat_add_u(b) }),
        SubSat => Value::Bits(if signed { a.sat_sub_s(b) } else { a.sat_sub_u(b) }),
        BitAnd => Value::Bits(a.and(b)),
        BitOr => Value::Bits(a.or(b)),
        BitXor => Value::Bits(a.xor(b)),
        Lt => Value::Bool(less(a, b)),
        Le => Value::Bool(!less(b, a)),
        Gt => Value::Bool(less(b, a)),
        Ge => Value::Bool(!less(a, b)),
        Concat | Shl | Shr | Eq | Ne | And | Or => return Err(FoldError::NotConstant),
    })
}

fn int(op: BinaryOp, a: &BigInt, b: &BigInt) -> Result<Value, FoldError> {
    use BinaryOp::*;
    Ok(match op {
        Mul if a.bits() + b.bits() > MAX_INT_BITS => return Err(FoldError::TooLarge),
        Mul => Value::Int(a * b),
        Div | Mod if b.is_zero() => return Err(FoldError::DivisionByZero),
        Div | Mod if a.sign() == Sign::Minus || b.sign() == Sign::Minus => return Err(FoldError::NegativeDivision),
        Div => Value::Int(a / b),
        Mod => Value::Int(a % b),
        Add => Value::Int(a + b),
        Sub => Value::Int(a - b),
        // Not in the specification, but accepted by the reference compiler: bitwise operators on unbounded two's
        // complement.
        BitAnd => Value::Int(a & b),
        BitOr => Value::Int(a | b),
        BitXor => Value::Int(a ^ b),
        Lt => Value::Bool(a < b),
        Le => Value::Bool(a <= b),
        Gt => Value::Bool(a > b),
        Ge => Value::Bool(a >= b),
        _ => return Err(FoldError::NotConstant),
    })
}

fn shift(op: BinaryOp, left: &Value, right: &Value, signed: bool) -> Result<Value, FoldError> {
    let amount = match right {
        Value::Int(n) if n.sign() == Sign::Minus => return Err(FoldError::NegativeShift),
        Value::Int(n) => n.to_u64().unwrap_or(u64::MAX),
        Value::Bits(n) => n.to_u64().unwrap_or(u64::MAX),
        _ => return Err(FoldError::NotConstant),
    };
    Ok(match (left, op) {
        (Value::Bits(v), BinaryOp::Shl) => Value::Bits(v.shl(amount)),
        (Value::Bits(v), _) => Value::Bits(if signed { v.ashr(amount) } else { v.lshr(amount) }),
        (Value::Int(v), BinaryOp::Shl) if v.is_zero() => Value::Int(BigInt::zero()),
        (Value::Int(v), BinaryOp::Shl) => {
            if v.bits().saturating_add(amount) > MAX_INT_BITS {
                return Err(FoldError::TooLarge);
            }
            Value::Int(v << amount)
        }
        (Value::Int(v), _) => {
            let floor = if v.sign() == Sign::Minus { -BigInt::one() } else { BigInt::zero() };
            Value::Int(if amount > v.bits() { floor } else { v >> amount })
        }
        _ => return Err(FoldError::NotConstant),
    })
}

/// Converts a value between two types for which a cast exists; `None` if the result has no value.
pub fn cast(types: &TypeTable, value: &Value, from: &Type, to: &Type) -> Option<Value> {
    let (from, to) = (types.underlying(from), types.underlying(to));
    Some(match (value, &to) {
        (Value::Bits(v), Type::Bits { width, .. }) => {
            let signed = matches!(from, Type::Bits { signed: true, .. });
            Value::Bits(if signed { v.resize_s(*width) } else { v.resize_u(*width) })
        }
        (Value::Int(v), Type::Bits { width, .. }) => Value::Bits(Bits::from_bigint(*width, v)),
        (Value::Bool(b), Type::Bits { width, .. }) => Value::Bits(Bits::from_bool(*b).resize_u(*width)),
        (Value::Bits(v), Type::Bool) => Value::Bool(v.is_true()),
        (Value::Int(v), Type::Bool) => Value::Bool(!v.is_zero()),
        (Value::Bits(v), Type::Int) => {
            let signed = matches!(from, Type::Bits { signed: true, .. });
            Value::Int(if signed { v.to_bigint_signed() } else { BigInt::from(v.to_biguint()) })
        }
        (Value::Bits(v), Type::Varbit(max)) if v.width() <= *max => Value::Varbit(v.clone()),
        (Value::Seq(values), _) => {
            let from_types = element_types(types, &from, values.len())?;
            let to_types = element_types(types, &to, values.len())?;
            let pairs = values.iter().zip(from_types.iter().zip(&to_types));
            Value::Seq(pairs.map(|(v, (f, t))| cast(types, v, f, t)).collect::<Option<_>>()?)
        }
        (Value::Invalid, Type::Header(_) | Type::HeaderUnion(_)) => Value::Invalid,
        _ if from == to => value.clone(),
        _ => return None,
    })
}

/// The types of the `n` elements of a composite type.
pub fn element_types(types: &TypeTable, ty: &Type, n: usize) -> Option<Vec<Type>> {
    let found = match ty {
        Type::Header(id) | Type::Struct(id) => types.structs[id.index()].fields.iter().map(|f| f.ty.clone()).collect(),
        Type::Tuple(elements) => elements.to_vec(),
        Type::List(element) | Type::Stack(element, _) => vec![(**element).clone(); n],
        _ => return None,
    };
    (found.len() == n).then_some(found)
}

/// The value of an expression in an instance; see [`Program::eval`].
pub fn eval(program: &Program, expr: &Expr, within: Option<InstanceId>) -> Option<Value> {
    eval_with(program, expr, within, &|_| None)
}

/// The value of an expression in an instance, where `local` supplies the values of some run-time parameters.
pub fn eval_with(
    program: &Program,
    expr: &Expr,
    within: Option<InstanceId>,
    locals: &dyn Fn(LocalId) -> Option<Value>,
) -> Option<Value> {
    let types = &program.types;
    let sub = |e: &Expr| eval_with(program, e, within, locals);
    match &expr.kind {
        ExprKind::Const(value) => Some(value.clone()),
        ExprKind::Local(local) => locals(*local),
        ExprKind::CtorParam(i) => Some(program.instances.get(within?.index())?.args.get(*i as usize)?.value.clone()),
        ExprKind::Instance(reference) => program.resolve(*reference, within).map(Value::Instance),
        ExprKind::Unary(op, e) => unary(*op, &sub(e)?).ok(),
        ExprKind::Binary(op, a, b) => {
            let left = sub(a)?;
            match (op, &left) {
                (BinaryOp::And, Value::Bool(false)) | (BinaryOp::Or, Value::Bool(true)) => Some(left),
                _ => binary(*op, &left, &sub(b)?, is_signed(types, &a.ty)).ok(),
            }
        }
        ExprKind::Ternary { cond, then, otherwise } => match sub(cond)? {
            Value::Bool(true) => sub(then),
            Value::Bool(false) => sub(otherwise),
            _ => None,
        },
        ExprKind::Cast(e) => cast(types, &sub(e)?, &e.ty, &expr.ty),
        ExprKind::Aggregate(elements) => Some(Value::Seq(elements.iter().map(sub).collect::<Option<_>>()?)),
        ExprKind::Slice { base, high, low } => match sub(base)? {
            Value::Bits(v) if low <= high && *high < v.width() => Some(Value::Bits(v.slice(*high, *low))),
            _ => None,
        },
        ExprKind::SliceFrom { base, low, width } => match (sub(base)?, sub(low)?.to_u64()?) {
            (Value::Bits(v), low) => Some(Value::Bits(v.lshr(low).resize_u(*width))),
            _ => None,
        },
        ExprKind::Field(base, i) | ExprKind::TupleElement(base, i) => field(types, &sub(base)?, &base.ty, *i as usize),
        ExprKind::StackElement { stack, index } => match sub(stack)? {
            Value::Seq(elements) => elements.get(sub(index)?.to_u64()? as usize).cloned(),
            _ => None,
        },
        _ => None,
    }
}

/// The field `index` of a constant of type `ty`; the fields of an invalid header are zero.
pub fn field(types: &TypeTable, value: &Value, ty: &Type, index: usize) -> Option<Value> {
    match value {
        Value::Seq(elements) => elements.get(index).cloned(),
        Value::Invalid => {
            let info = types.struct_info(ty)?;
            let field = info.fields.get(index)?;
            match info.kind {
                StructKind::HeaderUnion => Some(Value::Invalid),
                _ => default_value(types, &field.ty),
            }
        }
        _ => None,
    }
}

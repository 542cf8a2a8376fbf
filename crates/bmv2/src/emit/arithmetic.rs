//! Arithmetic of unbounded integers, in widths that suffice.
//!
//! bmv2 computes with integers of any size and truncates the result on assignment. Two functions do the same with
//! slots. [`Cx::modulo`] computes the required low bits of a sum, product, shift or mask from the low bits of its
//! operands. [`Cx::exact`] computes the whole number, in as many bits as it can have; operations that depend on whole
//! operands (comparisons, right shifts, quotients, saturation) use it. The reference compiler masks each result to the
//! width of its type, so hardly any value is wider than that.

use super::Cx;
use crate::model::{BinaryOp, Expr, Field, UnaryOp};
use base::Bits;
use ir::{BinOp, CastKind, HashAlgorithm, Op, Operand, UnOp};
use num_bigint::{BigInt, Sign};
use num_traits::Signed;

/// Widest untruncated result of a left shift by an amount that is not constant, in bits. An amount of n bits may add
/// 2^n - 1 bits, so each additional bit of the amount doubles the result. This limit allows amounts of 10 bits; wider
/// ones are masked by p4c or in the source.
const SHIFTED_BITS_MAX: u32 = 2048;

/// A whole number: unsigned, or in two's complement.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub operand: Operand,
    pub signed: bool,
}

impl Value {
    pub fn unsigned(operand: Operand) -> Value {
        Value { operand, signed: false }
    }
}

/// Width of a hash in bits.
pub(super) fn hash_width(algorithm: HashAlgorithm, program: &ir::Program) -> u32 {
    match algorithm {
        HashAlgorithm::Calculation(id) => program.calculations[id.index()].function.width(),
        HashAlgorithm::Crc8 => 8,
        HashAlgorithm::CrcCcitt => 16,
        HashAlgorithm::Crc32 | HashAlgorithm::Crc32Custom | HashAlgorithm::Xor32 | HashAlgorithm::HashEx => 32,
        HashAlgorithm::Crc16 | HashAlgorithm::Crc16Custom | HashAlgorithm::Csum16 | HashAlgorithm::Xor16 => 16,
        HashAlgorithm::Identity | HashAlgorithm::Random | HashAlgorithm::Crc64 | HashAlgorithm::Xxh64 => 64,
    }
}

/// A number in as few bits as possible.
fn constant(number: &BigInt) -> Value {
    let signed = number.is_negative();
    let width = (number.bits() as u32 + u32::from(signed)).max(1);
    Value { operand: Bits::from_bigint(width, number).into(), signed }
}

/// The width of a number as a mask, and whether it is all ones; `None` if it is no mask.
fn mask_bits(expr: &Expr) -> Option<(u32, bool)> {
    let Expr::Number(mask) = expr else { return None };
    if mask.sign() == Sign::Minus {
        return None;
    }
    let bits = (mask.bits() as u32).max(1);
    let all_ones = mask + 1 == (BigInt::from(1) << bits);
    Some((bits, all_ones))
}

impl Cx<'_> {
    fn width(&self, operand: &Operand) -> u32 {
        operand.width(self.b.program())
    }

    pub(super) fn field_value(&self, field: Field) -> Value {
        Value { operand: self.slot(field).into(), signed: self.m.field(field).signed }
    }

    /// A value in another width: sign- or zero-extended, or truncated.
    pub(super) fn resize(&mut self, value: &Value, width: u32) -> Operand {
        let from = self.width(&value.operand);
        match &value.operand {
            operand if from == width => operand.clone(),
            Operand::Const(c) if value.signed => Operand::Const(c.resize_s(width)),
            Operand::Const(c) => Operand::Const(c.resize_u(width)),
            operand if from > width => self.b.cast(CastKind::Trunc, width, operand.clone()).into(),
            operand if value.signed => self.b.cast(CastKind::Sext, width, operand.clone()).into(),
            operand => self.b.cast(CastKind::Zext, width, operand.clone()).into(),
        }
    }

    /// Two values extended to a common width, with `more` additional bits, and to common signedness.
    fn common(&mut self, a: &Value, b: &Value, more: u32) -> (Operand, Operand, bool) {
        let signed = a.signed || b.signed;
        let needs = |cx: &Self, v: &Value| cx.width(&v.operand) + u32::from(signed && !v.signed);
        let width = needs(self, a).max(needs(self, b)) + more;
        (self.resize(a, width), self.resize(b, width), signed)
    }

    fn binary(&mut self, op: BinOp, a: Operand, b: Operand) -> Operand {
        self.b.bin(op, a, b).into()
    }

    /// The low `width` bits of an expression's value.
    pub(super) fn modulo(&mut self, expr: &Expr, width: u32) -> Operand {
        let ring = |op: BinaryOp| match op {
            BinaryOp::Add => Some(BinOp::Add),
            BinaryOp::Sub => Some(BinOp::Sub),
            BinaryOp::Mul => Some(BinOp::Mul),
            BinaryOp::BitAnd => Some(BinOp::And),
            BinaryOp::BitOr => Some(BinOp::Or),
            BinaryOp::BitXor => Some(BinOp::Xor),
            _ => None,
        };
        match expr {
            Expr::Number(n) => Bits::from_bigint(width, n).into(),
            Expr::Binary(BinaryOp::BitAnd, a, b) if mask_bits(a).is_some() || mask_bits(b).is_some() => {
                let (value, mask) = if mask_bits(b).is_some() { (a, b) } else { (b, a) };
                self.masked(value, mask, width)
            }
            Expr::Binary(op, a, b) if let Some(op) = ring(*op) => {
                let (a, b) = (self.modulo(a, width), self.modulo(b, width));
                self.binary(op, a, b)
            }
            Expr::Binary(BinaryOp::Shl, a, amount) => {
                let a = self.modulo(a, width);
                let amount = self.exact(amount);
                self.binary(BinOp::Shl, a, amount.operand)
            }
            Expr::Unary(UnaryOp::BitNot, a) => {
                let a = self.modulo(a, width);
                self.b.un(UnOp::Not, a).into()
            }
            Expr::Choice(parts) => {
                let [cond, then, other] = &**parts;
                let cond = self.boolean(cond);
                let (then, other) = (self.modulo(then, width), self.modulo(other, width));
                self.b.select(cond, then, other).into()
            }
            expr => {
                let exact = self.exact(expr);
                self.resize(&exact, width)
            }
        }
    }

    /// The low bits of a value under a constant mask.
    fn masked(&mut self, value: &Expr, mask: &Expr, width: u32) -> Operand {
        let (bits, all_ones) = mask_bits(mask).unwrap_or((1, false));
        let narrow = bits.min(width);
        let mut low = self.modulo(value, narrow);
        if !all_ones {
            let mask = self.modulo(mask, narrow);
            low = self.binary(BinOp::And, low, mask);
        }
        self.resize(&Value::unsigned(low), width)
    }

    /// The whole value of a numeric expression. A value with too many bits is reported as an error, after which values
    /// are meaningless.
    pub(super) fn exact(&mut self, expr: &Expr) -> Value {
        let nothing = Value::unsigned(Operand::new_const(1, 0));
        if self.is_over_limit() || !self.faults.is_empty() {
            return nothing;
        }
        // The operands are within the limit, so the value has at most about twice as many bits.
        let value = self.exact_of(expr);
        let width = self.width(&value.operand);
        if width > lower::WIDTH_LIMIT {
            self.fault(format!("a value of {width} bits; the widest has {}", lower::WIDTH_LIMIT));
            return nothing;
        }
        value
    }

    fn exact_of(&mut self, expr: &Expr) -> Value {
        match expr {
            Expr::Number(n) => constant(n),
            Expr::Field(field) => self.field_value(*field),
            Expr::ValidField(header) => Value::unsigned(self.headers[*header].valid()),
            Expr::Local(i) => match self.locals.get(*i) {
                Some(operand) => Value::unsigned(operand.clone()),
                None => Value::unsigned(Operand::new_const(1, 0)),
            },
            Expr::Register(register, index) => {
                let index = self.index(index);
                let (register, width) = (self.registers[*register], self.m.registers[*register].width);
                let dst = self.b.temp(width);
                self.b.emit(Op::RegisterRead { register, dst, index, peek: false });
                Value::unsigned(dst.into())
            }
            Expr::LastField(stack, field) => {
                let m = self.m;
                let last = self.last_index(self.next_of_stack[*stack]);
                let header = super::headers::HeaderRef::Indexed(m.stacks[*stack].elements.clone(), last);
                self.field_of(&header, *field)
            }
            Expr::LastMemberField(stack, member, field) => {
                let m = self.m;
                let last = self.last_index(self.next_of_union_stack[*stack]);
                let headers = m.union_stacks[*stack].elements.iter().map(|u| m.unions[*u].members[*member]).collect();
                self.field_of(&super::headers::HeaderRef::Indexed(headers, last), *field)
            }
            Expr::FieldOf(header, field) => {
                let header = self.header_ref(header);
                self.field_of(&header, *field)
            }
            Expr::Unary(UnaryOp::BoolToData, a) => Value::unsigned(self.boolean(a)),
            Expr::Unary(UnaryOp::BitNot, a) => {
                let a = self.exact(a);
                let width = self.width(&a.operand) + u32::from(!a.signed);
                let wide = self.resize(&a, width);
                Value { operand: self.b.un(UnOp::Not, wide).into(), signed: true }
            }
            Expr::Unary(op @ (UnaryOp::LastIndex | UnaryOp::Size), stack) => {
                let next = match &**stack {
                    Expr::Stack(stack) => self.next_of_stack[*stack],
                    Expr::UnionStack(stack) => self.next_of_union_stack[*stack],
                    _ => return Value::unsigned(Operand::new_const(1, 0)),
                };
                Value::unsigned(if *op == UnaryOp::Size { next.into() } else { self.last_index(next) })
            }
            Expr::Choice(parts) => {
                let [cond, then, other] = &**parts;
                let cond = self.boolean(cond);
                let (then, other) = (self.exact(then), self.exact(other));
                let (then, other, signed) = self.common(&then, &other, 0);
                Value { operand: self.b.select(cond, then, other).into(), signed }
            }
            Expr::Binary(op, a, b) => self.exact_binary(*op, a, b),
            // Booleans and headers are no numbers.
            _ => Value::unsigned(Operand::new_const(1, 0)),
        }
    }

    fn exact_binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Value {
        let width_of = |e: &Expr| match e {
            Expr::Number(n) => u32::try_from(n).unwrap_or(1),
            _ => 1,
        };
        match op {
            BinaryOp::Add | BinaryOp::Sub => {
                let (a, b) = (self.exact(a), self.exact(b));
                let (a, b, signed) = self.common(&a, &b, 1);
                let op = if op == BinaryOp::Add { BinOp::Add } else { BinOp::Sub };
                let signed = signed || op == BinOp::Sub;
                Value { operand: self.binary(op, a, b), signed }
            }
            BinaryOp::Mul => {
                let (a, b) = (self.exact(a), self.exact(b));
                let width = self.width(&a.operand) + self.width(&b.operand);
                let signed = a.signed || b.signed;
                let (a, b) = (self.resize(&a, width), self.resize(&b, width));
                Value { operand: self.binary(BinOp::Mul, a, b), signed }
            }
            BinaryOp::Div | BinaryOp::Mod => {
                // Both operands are positive; otherwise bmv2 stops.
                let (a, b) = (self.exact(a), self.exact(b));
                let (a, b, _) = self.common(&a, &b, 0);
                Value::unsigned(self.binary(if op == BinaryOp::Div { BinOp::Div } else { BinOp::Mod }, a, b))
            }
            BinaryOp::Shl => {
                let (a, amount) = (self.exact(a), self.exact(b));
                let most = match &amount.operand {
                    Operand::Const(c) => c.to_u64().unwrap_or(u64::MAX),
                    operand => 1u64.checked_shl(self.width(operand)).map_or(u64::MAX, |n| n - 1),
                };
                let width = u64::from(self.width(&a.operand)).saturating_add(most);
                let is_constant = matches!(amount.operand, Operand::Const(_));
                let limit = if is_constant { lower::WIDTH_LIMIT } else { SHIFTED_BITS_MAX };
                if width > u64::from(limit) {
                    self.fault(format!("a left shift whose result has {width} bits; {limit} are possible"));
                    return Value::unsigned(Operand::new_const(1, 0));
                }
                let wide = self.resize(&a, width as u32);
                Value { operand: self.binary(BinOp::Shl, wide, amount.operand), signed: a.signed }
            }
            BinaryOp::Shr => {
                let (a, amount) = (self.exact(a), self.exact(b));
                let op = if a.signed { BinOp::Ashr } else { BinOp::Lshr };
                Value { operand: self.binary(op, a.operand, amount.operand), signed: a.signed }
            }
            BinaryOp::BitAnd => {
                for (value, mask) in [(a, b), (b, a)] {
                    if let Some((bits, _)) = mask_bits(mask) {
                        return Value::unsigned(self.masked(value, mask, bits));
                    }
                }
                let (a, b) = (self.exact(a), self.exact(b));
                let (x, y, _) = self.common(&a, &b, 0);
                let signed = a.signed && b.signed;
                Value { operand: self.binary(BinOp::And, x, y), signed }
            }
            BinaryOp::BitOr | BinaryOp::BitXor => {
                let (a, b) = (self.exact(a), self.exact(b));
                let (a, b, signed) = self.common(&a, &b, 0);
                let op = if op == BinaryOp::BitOr { BinOp::Or } else { BinOp::Xor };
                Value { operand: self.binary(op, a, b), signed }
            }
            BinaryOp::TwosComplement => Value { operand: self.modulo(a, width_of(b)), signed: true },
            BinaryOp::SaturateUnsigned | BinaryOp::SaturateSigned => {
                let a = self.exact(a);
                self.saturate(a, width_of(b), op == BinaryOp::SaturateSigned)
            }
            // These are booleans.
            _ => Value::unsigned(Operand::new_const(1, 0)),
        }
    }

    /// The value clamped to the range of a width.
    pub(super) fn saturate(&mut self, value: Value, width: u32, signed: bool) -> Value {
        let (high, low) = match signed {
            true => ((BigInt::from(1) << (width - 1)) - 1, -(BigInt::from(1) << (width - 1))),
            false => ((BigInt::from(1) << width) - 1, BigInt::ZERO),
        };
        let mut chosen = self.resize(&value, width);
        for (bound, above) in [(high, true), (low, false)] {
            let limit = constant(&bound);
            let (a, b, is_signed) = self.common(&value, &limit, 0);
            let less = if is_signed { (BinOp::Slt, BinOp::Sle) } else { (BinOp::Ult, BinOp::Ule) };
            let outside = match above {
                true => self.binary(less.0, b, a),
                false => self.binary(less.1, a, b),
            };
            chosen = self.b.select(outside, Bits::from_bigint(width, &bound), chosen).into();
        }
        Value { operand: chosen, signed }
    }

    /// A boolean expression as one bit.
    pub(super) fn boolean(&mut self, expr: &Expr) -> Operand {
        match expr {
            Expr::Bool(b) => Bits::from_bool(*b).into(),
            Expr::Unary(UnaryOp::Not, a) => {
                let a = self.boolean(a);
                self.not(a)
            }
            Expr::Unary(UnaryOp::DataToBool, a) => match &**a {
                Expr::Unary(UnaryOp::BoolToData, inner) => self.boolean(inner),
                a => {
                    let value = self.exact(a);
                    match self.width(&value.operand) {
                        1 => value.operand,
                        width => self.binary(BinOp::Ne, value.operand, Operand::new_const(width, 0)),
                    }
                }
            },
            Expr::Unary(UnaryOp::Valid, header) => {
                let header = self.header_ref(header);
                self.is_valid(&header)
            }
            Expr::Unary(UnaryOp::ValidUnion, union) => {
                let unions = self.unions_of(union);
                let (unions, index) = unions;
                let mut each = Vec::new();
                for union in unions {
                    let mut valid: Operand = Bits::from_bool(false).into();
                    for header in self.m.unions[union].members.clone() {
                        let other = self.headers[header].valid();
                        valid = self.or(valid, other);
                    }
                    each.push(valid);
                }
                match index {
                    Some(index) => self.choose(&index, each),
                    None => each.pop().unwrap_or(Bits::from_bool(false).into()),
                }
            }
            Expr::Binary(BinaryOp::And, a, b) => {
                let (a, b) = (self.boolean(a), self.boolean(b));
                self.and(a, b)
            }
            Expr::Binary(BinaryOp::Or, a, b) => {
                let (a, b) = (self.boolean(a), self.boolean(b));
                self.or(a, b)
            }
            Expr::Choice(parts) => {
                let [cond, then, other] = &**parts;
                let (cond, then, other) = (self.boolean(cond), self.boolean(then), self.boolean(other));
                self.b.select(cond, then, other).into()
            }
            Expr::Binary(op, a, b) => self.compare(*op, a, b),
            _ => Bits::from_bool(false).into(),
        }
    }

    fn compare(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Operand {
        let equality = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
        if equality && is_boolean(a) {
            let (a, b) = (self.boolean(a), self.boolean(b));
            return self.binary(if op == BinaryOp::Eq { BinOp::Eq } else { BinOp::Ne }, a, b);
        }
        if equality && is_header(a) {
            let (a, b) = (self.header_ref(a), self.header_ref(b));
            let equal = self.same_header(&a, &b);
            return if op == BinaryOp::Eq { equal } else { self.not(equal) };
        }
        if equality && is_union(a) {
            let equal = self.same_union(a, b);
            return if op == BinaryOp::Eq { equal } else { self.not(equal) };
        }
        let (a, b) = (self.exact(a), self.exact(b));
        // A bit compared with 1 is the bit itself.
        if let (BinaryOp::Eq, Operand::Slot(_), Operand::Const(c)) = (op, &a.operand, &b.operand)
            && self.width(&a.operand) == 1
            && c.is_true()
            && c.width() == 1
        {
            return a.operand;
        }
        let (a, b, signed) = self.common(&a, &b, 0);
        let (less, less_or_equal) = if signed { (BinOp::Slt, BinOp::Sle) } else { (BinOp::Ult, BinOp::Ule) };
        match op {
            BinaryOp::Eq => self.binary(BinOp::Eq, a, b),
            BinaryOp::Ne => self.binary(BinOp::Ne, a, b),
            BinaryOp::Lt => self.binary(less, a, b),
            BinaryOp::Le => self.binary(less_or_equal, a, b),
            BinaryOp::Gt => self.binary(less, b, a),
            _ => self.binary(less_or_equal, b, a),
        }
    }

    /// Whether two headers are both valid, and have the same type and fields.
    fn same_header(&mut self, a: &super::headers::HeaderRef, b: &super::headers::HeaderRef) -> Operand {
        use super::headers::HeaderRef;
        let first = |h: &HeaderRef| match h {
            HeaderRef::Known(h) => Some(*h),
            HeaderRef::Indexed(headers, _) => headers.first().copied(),
        };
        let (Some(x), Some(y)) = (first(a), first(b)) else { return Bits::from_bool(false).into() };
        if self.m.headers[x].ty != self.m.headers[y].ty {
            return Bits::from_bool(false).into();
        }
        let (valid_a, valid_b) = (self.is_valid(a), self.is_valid(b));
        let mut equal = self.and(valid_a, valid_b);
        for field in 0..self.m.header_type(x).fields.len() {
            let (p, q) = (self.field_of(a, field), self.field_of(b, field));
            let same = self.binary(BinOp::Eq, p.operand, q.operand);
            equal = self.and(equal, same);
            if let (HeaderRef::Known(x), HeaderRef::Known(y)) = (a, b)
                && let (Some(p), Some(q)) =
                    (self.headers[*x].fields[field].length, self.headers[*y].fields[field].length)
            {
                let same = self.binary(BinOp::Eq, p.into(), q.into());
                equal = self.and(equal, same);
            }
        }
        equal
    }

    fn same_union(&mut self, a: &Expr, b: &Expr) -> Operand {
        let mut equal: Operand = Bits::from_bool(false).into();
        let members = match self.unions_of(a).0.first() {
            Some(union) => self.m.unions[*union].members.len(),
            None => 0,
        };
        for member in 0..members {
            let of = |e: &Expr| Expr::MemberOf(Box::new(e.clone()), member);
            let (x, y) = (self.header_ref(&of(a)), self.header_ref(&of(b)));
            let same = self.same_header(&x, &y);
            equal = self.or(equal, same);
        }
        equal
    }

    /// The unions that an expression may name, and the index that selects one.
    fn unions_of(&mut self, expr: &Expr) -> (Vec<usize>, Option<Operand>) {
        match expr {
            Expr::Union(union) => (vec![*union], None),
            Expr::UnionElement(stack, index) => {
                let index = self.index32(index);
                (self.m.union_stacks[*stack].elements.clone(), Some(index))
            }
            _ => (Vec::new(), None),
        }
    }

    /// The index of a stack's last element; out of range if the stack is empty.
    fn last_index(&mut self, next: ir::SlotId) -> Operand {
        self.b.bin(BinOp::Sub, next, Operand::new_const(32, 1)).into()
    }

    /// An index in 32 bits; a value that does not fit becomes an index out of range.
    pub(super) fn index32(&mut self, expr: &Expr) -> Operand {
        self.bounded(expr, 32)
    }

    /// An index in at most 64 bits; a value that does not fit becomes an index out of range.
    pub(super) fn index(&mut self, expr: &Expr) -> Operand {
        let value = self.exact(expr);
        match self.width(&value.operand) {
            width if width <= 64 && !value.signed => value.operand,
            _ => self.bounded_value(value, 64),
        }
    }

    fn bounded(&mut self, expr: &Expr, width: u32) -> Operand {
        let value = self.exact(expr);
        self.bounded_value(value, width)
    }

    fn bounded_value(&mut self, value: Value, width: u32) -> Operand {
        let from = self.width(&value.operand);
        if from <= width && !value.signed {
            return self.resize(&value, width);
        }
        let limit = Value::unsigned(Bits::ones(width).into());
        let low = self.resize(&value, width);
        let value = Value { operand: self.resize(&value, from.max(width)), signed: false };
        let (a, b, _) = self.common(&value, &limit, 0);
        let beyond = self.binary(BinOp::Ult, b, a);
        self.b.select(beyond, Bits::ones(width), low).into()
    }
}

pub(super) fn is_boolean(expr: &Expr) -> bool {
    match expr {
        Expr::Bool(_) => true,
        Expr::Unary(op, _) => {
            matches!(op, UnaryOp::Not | UnaryOp::DataToBool | UnaryOp::Valid | UnaryOp::ValidUnion)
        }
        Expr::Binary(op, ..) => {
            use BinaryOp::*;
            matches!(op, Eq | Ne | Gt | Ge | Lt | Le | And | Or)
        }
        Expr::Choice(parts) => is_boolean(&parts[1]),
        _ => false,
    }
}

fn is_header(expr: &Expr) -> bool {
    matches!(expr, Expr::Header(_) | Expr::Element(..) | Expr::MemberOf(..))
}

fn is_union(expr: &Expr) -> bool {
    matches!(expr, Expr::Union(_) | Expr::UnionElement(..))
}

//! Expressions, including the type-value objects of arguments, with type checking.

use crate::codes;
use crate::model::{BinaryOp, Expr, Target, UnaryOp};
use crate::names::Reader;
use crate::read::{At, Read};
use num_bigint::BigInt;
use num_traits::Num;

/// Most digits of a number: those of the widest value in hexadecimal.
const DIGITS_MAX: usize = lower::WIDTH_LIMIT as usize / 4;

/// The type of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    Number,
    Bool,
    /// With the header type's index.
    Header(usize),
    Stack(usize),
    Union,
    UnionStack(usize),
}

impl Type {
    fn noun(self) -> &'static str {
        match self {
            Type::Number => "a number",
            Type::Bool => "a boolean",
            Type::Header(_) => "a header",
            Type::Stack(_) => "a header stack",
            Type::Union => "a header union",
            Type::UnionStack(_) => "a stack of header unions",
        }
    }
}

/// A hexadecimal number with an optional sign.
pub(crate) fn hex(value: &At<'_>) -> Read<BigInt> {
    let text = value.text()?;
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    if digits.len() > DIGITS_MAX {
        return value.fail(codes::RANGE, format!("a number of {} digits; {DIGITS_MAX} are possible", digits.len()));
    }
    // A constant of 0 bits has no digits.
    if text == "0x" {
        return Ok(BigInt::ZERO);
    }
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return value.fail(codes::SHAPE, format!("`{text}` is not a hexadecimal number"));
    }
    match BigInt::from_str_radix(digits, 16) {
        Ok(number) => Ok(if negative { -number } else { number }),
        Err(_) => value.fail(codes::SHAPE, format!("`{text}` is not a hexadecimal number")),
    }
}

impl Reader {
    /// An expression of type number.
    pub fn number(&self, value: &At<'_>) -> Read<Expr> {
        let (expr, ty) = self.expression(value)?;
        match ty {
            Type::Number => Ok(expr),
            other => value.fail(codes::CONTRADICTION, format!("{} where a number should be", other.noun())),
        }
    }

    /// An expression of type boolean.
    pub fn condition(&self, value: &At<'_>) -> Read<Expr> {
        let (expr, ty) = self.expression(value)?;
        match ty {
            Type::Bool => Ok(expr),
            other => value.fail(codes::CONTRADICTION, format!("{} where a boolean should be", other.noun())),
        }
    }

    /// A condition, which may be given as a number that is nonzero where the condition holds.
    pub fn condition_or_number(&self, value: &At<'_>) -> Read<Expr> {
        let (expr, ty) = self.expression(value)?;
        match ty {
            Type::Bool => Ok(expr),
            Type::Number => Ok(Expr::Unary(UnaryOp::DataToBool, Box::new(expr))),
            other => value.fail(codes::CONTRADICTION, format!("{} where a boolean should be", other.noun())),
        }
    }

    /// A header or metadata, and its type.
    pub fn header_or_metadata(&self, value: &At<'_>) -> Read<(Expr, usize)> {
        match self.expression(value)? {
            (expr, Type::Header(ty)) => Ok((expr, ty)),
            (_, other) => value.fail(codes::CONTRADICTION, format!("{} where a header should be", other.noun())),
        }
    }

    /// A header of the packet, and its type.
    pub fn header(&self, value: &At<'_>) -> Read<(Expr, usize)> {
        match self.header_or_metadata(value)? {
            (Expr::Header(h), _) if self.m.headers[h].metadata => {
                value.fail(codes::UNSUPPORTED, "metadata where a header of the packet should be")
            }
            header => Ok(header),
        }
    }

    /// A header union.
    pub fn union(&self, value: &At<'_>) -> Read<Expr> {
        let (expr, ty) = self.expression(value)?;
        match ty {
            Type::Union => Ok(expr),
            other => value.fail(codes::CONTRADICTION, format!("{} where a header union should be", other.noun())),
        }
    }

    /// A target of an assignment.
    pub fn target(&self, value: &At<'_>) -> Read<Target> {
        match self.expression(value)?.0 {
            Expr::Number(_) if !is_constant(value) => Ok(Target::Nowhere),
            Expr::Field(field) if self.m.field(field).varbit => {
                value.fail(codes::UNSUPPORTED, "a field of variable length is assigned to by `assign_VL`")
            }
            Expr::Field(field) => Ok(Target::Field(field)),
            Expr::FieldOf(header, field) => Ok(Target::FieldOf(*header, field)),
            Expr::LastField(stack, field) => Ok(Target::LastField(stack, field)),
            Expr::Register(register, index) => Ok(Target::Register(register, *index)),
            Expr::ValidField(_) => value.fail(codes::UNSUPPORTED, "`$valid$` is read-only"),
            _ => value.fail(codes::CONTRADICTION, "nothing can be assigned to this"),
        }
    }

    /// An expression or argument: an object with `type` and `value`.
    pub fn expression(&self, object: &At<'_>) -> Read<(Expr, Type)> {
        let ty = object.need("type")?;
        let value = object.need("value")?;
        Ok(match ty.text()? {
            "expression" if value.get("op").is_none() => self.expression(&value)?,
            "expression" => self.operation(&value)?,
            "field" => {
                let [header, field] = value.tuple()?;
                if header.is_object() {
                    return self.field_of_computed(&header, &field);
                }
                if field.is_text() && field.text()? == "$valid$" {
                    let header = self.headers.named("header", &header)?;
                    return Ok((Expr::ValidField(header), Type::Number));
                }
                (self.field(&value)?.map_or(nothing(), Expr::Field), Type::Number)
            }
            "hexstr" => (Expr::Number(hex(&value)?), Type::Number),
            "bool" => (Expr::Bool(value.boolean()?), Type::Bool),
            "local" | "runtime_data" => {
                let index = value.number()? as usize;
                if index >= self.locals {
                    let message = format!("the table entry has {} values, not one with number {index}", self.locals);
                    return value.fail(codes::RANGE, message);
                }
                (Expr::Local(index), Type::Number)
            }
            "register" => {
                let [array, index] = value.tuple()?;
                let array = self.registers.named("register array", &array)?;
                (Expr::Register(array, Box::new(self.number(&index)?)), Type::Number)
            }
            "stack_field" => {
                let [stack, field] = value.tuple()?;
                let stack = self.stacks.named("header stack", &stack)?;
                let ty = self.m.stacks[stack].ty;
                // The last element itself.
                if field.is_text() && field.text()? == "last" && !self.fields[ty].contains_key("last") {
                    let index = Expr::Unary(UnaryOp::LastIndex, Box::new(Expr::Stack(stack)));
                    return Ok((Expr::Element(stack, Box::new(index)), Type::Header(ty)));
                }
                let Some(index) = self.field_of(ty, &field)? else { return Ok((nothing(), Type::Number)) };
                if self.m.header_types[self.m.stacks[stack].ty].fields[index].varbit {
                    return field.fail(codes::UNSUPPORTED, "a field of variable length cannot be used here");
                }
                (Expr::LastField(stack, index), Type::Number)
            }
            "header" => {
                let header = self.headers.named("header", &value)?;
                (Expr::Header(header), Type::Header(self.m.headers[header].ty))
            }
            "header_stack" => {
                let stack = self.stacks.named("header stack", &value)?;
                (Expr::Stack(stack), Type::Stack(stack))
            }
            "header_union" => (Expr::Union(self.unions.named("header union", &value)?), Type::Union),
            "header_union_stack" => {
                let stack = self.union_stacks.named("header union stack", &value)?;
                (Expr::UnionStack(stack), Type::UnionStack(stack))
            }
            other => return ty.fail(codes::UNSUPPORTED, format!("a value of type `{other}` cannot be used here")),
        })
    }

    fn operation(&self, value: &At<'_>) -> Read<(Expr, Type)> {
        let op = value.need("op")?;
        let unary = |u: UnaryOp, expr: Expr| Expr::Unary(u, Box::new(expr));
        let number = |name: &str| value.need(name).and_then(|v| self.number(&v));
        let condition = |name: &str| value.need(name).and_then(|v| self.condition(&v));
        let index = |name: &str| value.need(name).and_then(|v| Ok((v.number()? as usize, v)));
        let binary = |b: BinaryOp| -> Read<Expr> {
            // Unary `+` and `-`.
            let left = match (b, value.get("left")) {
                (BinaryOp::Add | BinaryOp::Sub, None) => Expr::Number(BigInt::ZERO),
                _ => number("left")?,
            };
            Ok(Expr::Binary(b, Box::new(left), Box::new(number("right")?)))
        };
        let logical = |b: BinaryOp| -> Read<Expr> {
            Ok(Expr::Binary(b, Box::new(condition("left")?), Box::new(condition("right")?)))
        };
        use BinaryOp as B;
        Ok(match op.text()? {
            "+" => (binary(B::Add)?, Type::Number),
            "-" => (binary(B::Sub)?, Type::Number),
            "*" => (binary(B::Mul)?, Type::Number),
            "/" => (binary(B::Div)?, Type::Number),
            "%" => (binary(B::Mod)?, Type::Number),
            "<<" => (binary(B::Shl)?, Type::Number),
            ">>" => (binary(B::Shr)?, Type::Number),
            "&" => (binary(B::BitAnd)?, Type::Number),
            "|" => (binary(B::BitOr)?, Type::Number),
            "^" => (binary(B::BitXor)?, Type::Number),
            "~" => (unary(UnaryOp::BitNot, number("right")?), Type::Number),
            ">" => (binary(B::Gt)?, Type::Bool),
            ">=" => (binary(B::Ge)?, Type::Bool),
            "<" => (binary(B::Lt)?, Type::Bool),
            "<=" => (binary(B::Le)?, Type::Bool),
            "and" => (logical(B::And)?, Type::Bool),
            "or" => (logical(B::Or)?, Type::Bool),
            "not" => (unary(UnaryOp::Not, condition("right")?), Type::Bool),
            "d2b" => (unary(UnaryOp::DataToBool, number("right")?), Type::Bool),
            "b2d" => (unary(UnaryOp::BoolToData, condition("right")?), Type::Number),
            "two_comp_mod" => (self.with_width(value, B::TwosComplement)?, Type::Number),
            "usat_cast" => (self.with_width(value, B::SaturateUnsigned)?, Type::Number),
            "sat_cast" => (self.with_width(value, B::SaturateSigned)?, Type::Number),
            "==" | "!=" => {
                let [left, right] = [value.need("left")?, value.need("right")?];
                let ((a, left_type), (b, right_type)) = (self.expression(&left)?, self.expression(&right)?);
                let comparable = match (left_type, right_type) {
                    (Type::Header(_), Type::Header(_)) => true,
                    (Type::Stack(_) | Type::UnionStack(_), _) => false,
                    (a, b) => a == b,
                };
                if !comparable {
                    let message = format!("{} is compared with {}", left_type.noun(), right_type.noun());
                    return op.fail(codes::CONTRADICTION, message);
                }
                let which = if op.text()? == "==" { B::Eq } else { B::Ne };
                (Expr::Binary(which, Box::new(a), Box::new(b)), Type::Bool)
            }
            "?" => {
                let [left, right] = [value.need("left")?, value.need("right")?];
                let ((a, left_type), (b, right_type)) = (self.expression(&left)?, self.expression(&right)?);
                if left_type != right_type || !matches!(left_type, Type::Number | Type::Bool) {
                    let message = format!("a choice of {} and {}", left_type.noun(), right_type.noun());
                    return op.fail(codes::UNSUPPORTED, message);
                }
                (Expr::Choice(Box::new([condition("cond")?, a, b])), left_type)
            }
            "valid" => {
                let (expr, ty) = self.expression(&value.need("right")?)?;
                match ty {
                    Type::Header(_) => (unary(UnaryOp::Valid, expr), Type::Bool),
                    other => return op.fail(codes::CONTRADICTION, format!("whether {} is valid", other.noun())),
                }
            }
            "valid_union" => (unary(UnaryOp::ValidUnion, self.union(&value.need("right")?)?), Type::Bool),
            "last_stack_index" | "size_stack" => {
                let (expr, ty) = self.expression(&value.need("right")?)?;
                if !matches!(ty, Type::Stack(_) | Type::UnionStack(_)) {
                    return op.fail(codes::CONTRADICTION, format!("an index of {}", ty.noun()));
                }
                let which = if op.text()? == "size_stack" { UnaryOp::Size } else { UnaryOp::LastIndex };
                (unary(which, expr), Type::Number)
            }
            "access_field" => {
                let (expr, ty) = self.expression(&value.need("left")?)?;
                let Type::Header(ty) = ty else {
                    return op.fail(codes::CONTRADICTION, format!("a field of {}", ty.noun()));
                };
                let (position, at) = index("right")?;
                match self.positions[ty].get(position) {
                    // The validity follows the fields.
                    None if position == self.positions[ty].len() => {
                        let valid = unary(UnaryOp::Valid, expr);
                        (unary(UnaryOp::BoolToData, valid), Type::Number)
                    }
                    None => return at.fail(codes::RANGE, format!("the header has no field {position}")),
                    Some(None) => (nothing(), Type::Number),
                    Some(Some(field)) if self.m.header_types[ty].fields[*field].varbit => {
                        return at.fail(codes::UNSUPPORTED, "a field of variable length cannot be used here");
                    }
                    Some(Some(field)) => match expr {
                        Expr::Header(header) => {
                            (Expr::Field(crate::model::Field { header, field: *field }), Type::Number)
                        }
                        expr => (Expr::FieldOf(Box::new(expr), *field), Type::Number),
                    },
                }
            }
            "access_union_header" => {
                let expr = self.union(&value.need("left")?)?;
                let (index, at) = index("right")?;
                let union = match &expr {
                    Expr::Union(union) => *union,
                    Expr::UnionElement(stack, _) => self.m.union_stacks[*stack].elements[0],
                    _ => return op.fail(codes::UNSUPPORTED, "a member of this union"),
                };
                match self.m.unions[union].members.get(index) {
                    None => return at.fail(codes::RANGE, format!("the union has no member {index}")),
                    Some(header) => {
                        let ty = Type::Header(self.m.headers[*header].ty);
                        match expr {
                            Expr::Union(_) => (Expr::Header(*header), ty),
                            expr => (Expr::MemberOf(Box::new(expr), index), ty),
                        }
                    }
                }
            }
            "dereference_header_stack" => {
                let (expr, ty) = self.expression(&value.need("left")?)?;
                let Type::Stack(stack) = ty else {
                    return op.fail(codes::CONTRADICTION, format!("an element of {}", ty.noun()));
                };
                drop(expr);
                let index = number("right")?;
                let ty = Type::Header(self.m.stacks[stack].ty);
                match constant_index(&index, &self.m.stacks[stack].elements) {
                    Some(header) => (Expr::Header(header), ty),
                    None => (Expr::Element(stack, Box::new(index)), ty),
                }
            }
            "dereference_union_stack" => {
                let (_, ty) = self.expression(&value.need("left")?)?;
                let Type::UnionStack(stack) = ty else {
                    return op.fail(codes::CONTRADICTION, format!("an element of {}", ty.noun()));
                };
                let index = number("right")?;
                match constant_index(&index, &self.m.union_stacks[stack].elements) {
                    Some(union) => (Expr::Union(union), Type::Union),
                    None => (Expr::UnionElement(stack, Box::new(index)), Type::Union),
                }
            }
            other => return op.fail(codes::UNSUPPORTED, format!("there is no operation `{other}`")),
        })
    }

    /// A field, or the validity, of a header that an operation computes.
    fn field_of_computed(&self, header: &At<'_>, field: &At<'_>) -> Read<(Expr, Type)> {
        let (expr, ty) = self.operation(header)?;
        let Type::Header(ty) = ty else {
            return header.fail(codes::CONTRADICTION, format!("a field of {}", ty.noun()));
        };
        if field.text()? == "$valid$" {
            let valid = Expr::Unary(UnaryOp::Valid, Box::new(expr));
            return Ok((Expr::Unary(UnaryOp::BoolToData, Box::new(valid)), Type::Number));
        }
        let Some(index) = self.field_of(ty, field)? else { return Ok((nothing(), Type::Number)) };
        match expr {
            Expr::Header(header) => Ok((Expr::Field(crate::model::Field { header, field: index }), Type::Number)),
            expr => Ok((Expr::FieldOf(Box::new(expr), index), Type::Number)),
        }
    }

    /// The width of a number that is a field or a validity.
    pub fn width_of(&self, expr: &Expr) -> Option<u32> {
        let of = |ty: usize, field: usize| self.m.header_types[ty].fields.get(field).map(|f| f.width);
        match expr {
            Expr::Field(field) => Some(self.m.field(*field).width),
            Expr::ValidField(_) | Expr::Unary(UnaryOp::BoolToData, _) => Some(1),
            Expr::LastField(stack, field) => of(self.m.stacks[*stack].ty, *field),
            Expr::FieldOf(header, field) => match &**header {
                Expr::Element(stack, _) => of(self.m.stacks[*stack].ty, *field),
                Expr::MemberOf(union, member) => match &**union {
                    Expr::UnionElement(stack, _) => {
                        let union = self.m.union_stacks[*stack].elements[0];
                        of(self.m.headers[self.m.unions[union].members[*member]].ty, *field)
                    }
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// An operation whose right operand is a number of bits.
    fn with_width(&self, value: &At<'_>, op: BinaryOp) -> Read<Expr> {
        let (left, right) = (self.number(&value.need("left")?)?, value.need("right")?);
        let width = self.number(&right)?;
        match &width {
            Expr::Number(n) if *n >= BigInt::from(1) && *n <= BigInt::from(lower::WIDTH_LIMIT) => {}
            Expr::Number(n) => return right.fail(codes::RANGE, format!("{n} bits")),
            _ => return right.fail(codes::UNSUPPORTED, "a number of bits that is known at run time only"),
        }
        Ok(Expr::Binary(op, Box::new(left), Box::new(width)))
    }
}

/// Whether a number is written as a constant, rather than being a field of 0 bits.
fn is_constant(value: &At<'_>) -> bool {
    value.get("type").is_some_and(|ty| ty.text().is_ok_and(|ty| ty == "hexstr"))
}

/// The value of a field of 0 bits.
fn nothing() -> Expr {
    Expr::Number(BigInt::ZERO)
}

/// The element at a constant index, if that is in range.
fn constant_index(index: &Expr, elements: &[usize]) -> Option<usize> {
    let Expr::Number(index) = index else { return None };
    usize::try_from(index).ok().and_then(|i| elements.get(i)).copied()
}

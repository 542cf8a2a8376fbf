//! Operators: operand types, implicit conversions and constant folding.
//!
//! Specification: P4_16, chapter "Expressions", one section per kind of type.

use super::Checker;
use super::expr::constant;
use super::limits::MAX_STRING;
use crate::codes;
use crate::consteval::{self, FoldError};
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Bits, Diagnostic, Span};
use num_traits::ToPrimitive;
use syntax::ast;

impl<'a> Checker<'a> {
    pub(super) fn unary(&mut self, op: UnaryOp, operand: &'a ast::Expr, span: Span) -> Expr {
        let operand = self.expr(operand, None);
        let operand = self.strip_enum(operand);
        let fits = match op {
            _ if operand.ty.is_unknown() => return self.poison(span),
            UnaryOp::Not => operand.ty == Type::Bool,
            UnaryOp::BitNot => matches!(operand.ty, Type::Bits { .. }),
            UnaryOp::Neg | UnaryOp::Plus => matches!(operand.ty, Type::Bits { .. } | Type::Int),
        };
        if !fits {
            let message = format!("`{}` cannot be applied to `{}`", op.symbol(), self.show(&operand.ty));
            let mut d = Diagnostic::error(codes::BAD_OPERANDS, span, message);
            if op == UnaryOp::BitNot && operand.ty == Type::Int {
                d = d.help("give the number a width, as 8w3");
            }
            self.report(d);
            return self.poison(span);
        }
        let ty = operand.ty.clone();
        if let ExprKind::Const(value) = &operand.kind {
            let folded = consteval::unary(op, value);
            return self.folded(folded, ty, span);
        }
        match op {
            UnaryOp::Plus => Expr { span, ..operand },
            _ => Expr { kind: ExprKind::Unary(op, Box::new(operand)), ty, span },
        }
    }

    fn folded(&mut self, result: Result<Value, FoldError>, ty: Type, span: Span) -> Expr {
        match result {
            Ok(value) => constant(value, ty, span),
            Err(e) => {
                self.error(codes::NO_VALUE, span, e.text());
                self.poison(span)
            }
        }
    }

    pub(super) fn binary(
        &mut self,
        op: BinaryOp,
        left: &'a ast::Expr,
        right: &'a ast::Expr,
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        for side in [left, right] {
            if let ast::ExprKind::Default = side.kind
                && !matches!(op, BinaryOp::Eq | BinaryOp::Ne)
            {
                self.report(
                    Diagnostic::error(
                        codes::SHAPE_UNKNOWN,
                        side.span,
                        format!("`...` cannot be an operand of `{}`", op.symbol()),
                    )
                    .help("it is a default value in an initialiser"),
                );
                return self.poison(span);
            }
        }
        // A literal on the left of a comparison takes its type from the right side.
        let (a, b) = match op {
            BinaryOp::Eq | BinaryOp::Ne if is_shapeless(left) && !is_shapeless(right) => {
                let b = self.expr(right, None);
                let a = self.expr(left, Some(&b.ty));
                (a, b)
            }
            BinaryOp::Eq | BinaryOp::Ne => {
                let a = self.expr(left, None);
                let b = self.expr(right, Some(&a.ty));
                (a, b)
            }
            _ => (self.expr(left, expected), self.expr(right, expected)),
        };
        self.binary_typed(op, a, b, span)
    }

    /// The typed expression `a op b`, with both sides converted as the operator requires.
    pub fn binary_typed(&mut self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Expr {
        use BinaryOp::*;
        if a.ty.is_unknown() || b.ty.is_unknown() {
            return self.poison(span);
        }
        match op {
            And | Or => {
                if a.ty != Type::Bool || b.ty != Type::Bool {
                    return self.bad_operands(op, &a, &b, span, Some("operands of `&&` and `||` are `bool`"));
                }
                self.make_binary(op, a, b, Type::Bool, span)
            }
            Eq | Ne => self.comparison(op, a, b, span),
            Shl | Shr => self.shift(op, a, b, span),
            Concat => self.concat(a, b, span),
            Lt | Le | Gt | Ge => {
                let Some((a, b)) = self.same_numbers(op, a, b, span) else { return self.poison(span) };
                self.make_binary(op, a, b, Type::Bool, span)
            }
            Mul | Div | Mod | Add | Sub | AddSat | SubSat | BitAnd | BitXor | BitOr => {
                let negative = |e: &Expr| {
                    e.ty == Type::Int && self.const_int(e).is_some_and(|v| v.sign() == num_bigint::Sign::Minus)
                };
                if matches!(op, Div | Mod) && (negative(&a) || negative(&b)) {
                    self.error(codes::NO_VALUE, span, FoldError::NegativeDivision.text());
                    return self.poison(span);
                }
                let Some((a, b)) = self.same_numbers(op, a, b, span) else { return self.poison(span) };
                let ty = a.ty.clone();
                let wrong = match op {
                    AddSat | SubSat if ty == Type::Int => {
                        Some("not defined for `int`; give the numbers a width, as 8w3")
                    }
                    Div | Mod if matches!(ty, Type::Bits { signed: true, .. }) => {
                        Some("not defined for `int<W>`; cast to `bit<W>`")
                    }
                    _ => None,
                };
                if wrong.is_some() {
                    return self.bad_operands(op, &a, &b, span, wrong);
                }
                self.make_binary(op, a, b, ty, span)
            }
        }
    }

    fn bad_operands(&mut self, op: BinaryOp, a: &Expr, b: &Expr, span: Span, help: Option<&str>) -> Expr {
        let message =
            format!("`{}` cannot be applied to `{}` and `{}`", op.symbol(), self.show(&a.ty), self.show(&b.ty));
        let mut d = Diagnostic::error(codes::BAD_OPERANDS, span, message);
        if let Some(help) = help {
            d = d.help(help);
        } else if let (Type::Bits { width: w, signed: s }, Type::Bits { width: v, signed: t }) = (&a.ty, &b.ty) {
            d = d.help(match (w == v, s == t) {
                (true, false) => format!("cast one side, as ({})", self.show(&a.ty)),
                _ => {
                    format!("cast one side to the other's type, as ({})", self.show(if w > v { &a.ty } else { &b.ty }))
                }
            });
        }
        self.report(d);
        self.poison(span)
    }

    /// Both operands converted to a common numeric type; reports an error if there is none.
    fn same_numbers(&mut self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Option<(Expr, Expr)> {
        let (a, b) = (self.strip_enum(a), self.strip_enum(b));
        match (&a.ty, &b.ty) {
            (Type::Int, Type::Int) => Some((a, b)),
            (Type::Bits { .. }, Type::Int) => {
                let ty = a.ty.clone();
                let b = self.coerce(b, &ty);
                Some((a, b))
            }
            (Type::Int, Type::Bits { .. }) => {
                let ty = b.ty.clone();
                let a = self.coerce(a, &ty);
                Some((a, b))
            }
            (x @ Type::Bits { .. }, y) if x == y => Some((a, b)),
            _ => {
                self.bad_operands(op, &a, &b, span, None);
                None
            }
        }
    }

    fn comparison(&mut self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Expr {
        // Assignments convert an `int` to a `type`, comparisons do not.
        if let (Type::Newtype(_), Type::Int) | (Type::Int, Type::Newtype(_)) = (&a.ty, &b.ty) {
            let named = if b.ty == Type::Int { &a.ty } else { &b.ty };
            let help = format!("cast the number: ({}) …", self.show(named));
            return self.bad_operands(op, &a, &b, span, Some(&help));
        }
        if self.is_anonymous(&a.ty) && self.is_anonymous(&b.ty) {
            self.report(
                Diagnostic::error(codes::SHAPE_UNKNOWN, span, "the struct type of these two records is not known")
                    .help("cast one of them: (S) { … }"),
            );
            return self.poison(span);
        }
        let Some(ty) = self.join(&a.ty, &b.ty) else { return self.bad_operands(op, &a, &b, span, None) };
        if !self.comparable(&ty) {
            let message = format!("values of type `{}` cannot be compared", self.show(&ty));
            self.error(codes::NOT_COMPARABLE, span, message);
            return self.poison(span);
        }
        let (a, b) = (self.coerce(a, &ty), self.coerce(b, &ty));
        self.make_binary(op, a, b, Type::Bool, span)
    }

    fn comparable(&self, ty: &Type) -> bool {
        match ty {
            Type::Bool | Type::Error | Type::MatchKind | Type::String | Type::Int | Type::Bits { .. } => true,
            Type::Varbit(_) | Type::Enum(_) | Type::SerEnum(_) => true,
            Type::Newtype(id) => self.comparable(&self.prog.types.newtypes[id.index()].underlying),
            Type::Header(id) | Type::HeaderUnion(id) | Type::Struct(id) => {
                self.prog.types.structs[id.index()].fields.iter().all(|f| self.comparable(&f.ty))
            }
            Type::Tuple(types) => types.iter().all(|t| self.comparable(t)),
            Type::Stack(element, _) | Type::List(element) => self.comparable(element),
            _ => false,
        }
    }

    fn shift(&mut self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Expr {
        let (a, b) = (self.strip_enum(a), self.strip_enum(b));
        let constant_amount = b.as_const().is_some() && matches!(b.ty, Type::Bits { .. });
        let amount_ok = constant_amount || matches!(b.ty, Type::Int | Type::Bits { signed: false, .. });
        if !matches!(a.ty, Type::Int | Type::Bits { .. }) || !amount_ok {
            let signed = matches!(b.ty, Type::Bits { signed: true, .. });
            return self.bad_operands(op, &a, &b, span, signed.then_some("the amount of a shift is unsigned"));
        }
        if a.ty == Type::Int && !self.is_compile_time(&b) {
            self.report(
                Diagnostic::error(codes::WIDTH_NEEDED, a.span, "a number that is shifted by a variable needs a width")
                    .help("write it with a width, as 32w1"),
            );
            return self.poison(span);
        }
        let ty = a.ty.clone();
        if let (ExprKind::Const(x), Some(amount)) = (&a.kind, self.const_int(&b)) {
            let folded = consteval::binary(op, x, &Value::Int(amount), consteval::is_signed(&self.prog.types, &a.ty));
            return self.folded(folded, ty, span);
        }
        let b = match self.const_int(&b) {
            Some(amount) if amount.sign() == num_bigint::Sign::Minus => {
                self.error(codes::NO_VALUE, b.span, FoldError::NegativeShift.text());
                return self.poison(span);
            }
            // An amount above the maximum width shifts out all bits.
            Some(amount) => {
                let amount = amount.to_u32().unwrap_or(u32::MAX);
                constant(Value::Bits(Bits::new(32, u128::from(amount))), Type::bit(32), b.span)
            }
            None => b,
        };
        Expr { kind: ExprKind::Binary(op, Box::new(a), Box::new(b)), ty, span }
    }

    fn concat(&mut self, a: Expr, b: Expr, span: Span) -> Expr {
        let (a, b) = (self.strip_enum(a), self.strip_enum(b));
        match (&a.ty, &b.ty) {
            (Type::String, Type::String) => {
                if let (ExprKind::Const(Value::Str(x)), ExprKind::Const(Value::Str(y))) = (&a.kind, &b.kind) {
                    if x.len() + y.len() > MAX_STRING {
                        self.error(codes::NO_VALUE, span, FoldError::TooLarge.text());
                        return self.poison(span);
                    }
                    return constant(Value::Str(format!("{x}{y}").into()), Type::String, span);
                }
                self.bad_operands(BinaryOp::Concat, &a, &b, span, Some("strings are joined at compile time only"))
            }
            (Type::Bits { width: w, signed }, Type::Bits { width: v, .. }) => {
                let ty = Type::Bits { width: w.saturating_add(*v), signed: *signed };
                if w.saturating_add(*v) > base::bits::MAX_WIDTH {
                    self.error(codes::NO_VALUE, span, FoldError::TooLarge.text());
                    return self.poison(span);
                }
                self.make_binary(BinaryOp::Concat, a, b, ty, span)
            }
            (Type::Int, _) | (_, Type::Int) => self.bad_operands(
                BinaryOp::Concat,
                &a,
                &b,
                span,
                Some("a number that is concatenated needs a width, as 8w3"),
            ),
            _ => self.bad_operands(BinaryOp::Concat, &a, &b, span, None),
        }
    }

    fn make_binary(&mut self, op: BinaryOp, a: Expr, b: Expr, ty: Type, span: Span) -> Expr {
        match (&a.kind, &b.kind) {
            (ExprKind::Const(x), ExprKind::Const(y)) => {
                let signed = consteval::is_signed(&self.prog.types, &a.ty);
                let folded = consteval::binary(op, x, y, signed);
                return self.folded(folded, ty, span);
            }
            (ExprKind::Const(Value::Bool(x)), _) if op == BinaryOp::And && !x => {
                return constant(Value::Bool(false), ty, span);
            }
            (ExprKind::Const(Value::Bool(true)), _) if op == BinaryOp::Or => {
                return constant(Value::Bool(true), ty, span);
            }
            (_, ExprKind::Const(Value::Bits(zero)))
                if matches!(op, BinaryOp::Div | BinaryOp::Mod) && zero.is_zero() =>
            {
                self.error(codes::NO_VALUE, span, FoldError::DivisionByZero.text());
                return self.poison(span);
            }
            _ => {}
        }
        Expr { kind: ExprKind::Binary(op, Box::new(a), Box::new(b)), ty, span }
    }

    pub(super) fn ternary(
        &mut self,
        cond: &'a ast::Expr,
        then: &'a ast::Expr,
        otherwise: &'a ast::Expr,
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        let cond = self.expr_as(cond, &Type::Bool);
        let (a, b) = if expected.is_none() && is_shapeless(then) && !is_shapeless(otherwise) {
            let b = self.expr(otherwise, None);
            let a = self.expr(then, Some(&b.ty));
            (a, b)
        } else {
            let a = self.expr(then, expected);
            let hint = expected.cloned().unwrap_or_else(|| a.ty.clone());
            let b = self.expr(otherwise, Some(&hint));
            (a, b)
        };
        let Some(mut ty) = self.join(&a.ty, &b.ty) else {
            let message = format!(
                "the two values of `?:` have different types, `{}` and `{}`",
                self.show(&a.ty),
                self.show(&b.ty)
            );
            self.report(Diagnostic::error(codes::BRANCHES_DIFFER, span, message).help("cast one of them"));
            return self.poison(span);
        };
        if ty == Type::Int && !self.is_compile_time(&cond) {
            match expected {
                Some(wanted @ Type::Bits { .. }) => ty = wanted.clone(),
                _ => {
                    self.report(
                        Diagnostic::error(codes::WIDTH_NEEDED, span, "the values of `?:` need a width")
                            .help("write one of them with a width, as 8w1"),
                    );
                    return self.poison(span);
                }
            }
        }
        let (a, b) = (self.coerce(a, &ty), self.coerce(b, &ty));
        match &cond.kind {
            ExprKind::Const(Value::Bool(chosen)) if !cond.ty.is_unknown() => {
                let value = if *chosen { a } else { b };
                Expr { span, ..value }
            }
            _ => Expr {
                kind: ExprKind::Ternary { cond: Box::new(cond), then: Box::new(a), otherwise: Box::new(b) },
                ty,
                span,
            },
        }
    }
}

/// Whether the type of an expression depends on the context.
fn is_shapeless(e: &ast::Expr) -> bool {
    matches!(
        e.kind,
        ast::ExprKind::List(_) | ast::ExprKind::Record { .. } | ast::ExprKind::InvalidHeader | ast::ExprKind::Default
    )
}

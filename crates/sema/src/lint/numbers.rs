//! W0840 and W0841: shifts that discard all bits, comparisons that always have the same result.
//!
//! The range of an operand is that of its type, or narrower: that of its type before a widening cast, or that under a
//! mask. (Literals that do not fit are reported where they are converted, W0503; explicit casts are silent.)

use super::catalog::{ALWAYS_SAME, SHIFTED_OUT};
use super::visit::{self, Visitor};
use super::{Context, warning};
use crate::typed::*;
use crate::types::Type;
use crate::value::Value;
use base::{Bits, Diagnostic};
use num_bigint::BigInt;
use num_traits::{One, Zero};

#[derive(Default)]
struct Found(Vec<(&'static super::Lint, Diagnostic)>);

pub(super) fn check(cx: &mut Context) {
    let p = cx.program;
    for f in &p.functions {
        body(cx, &[&f.annotations], |v| visit::stmts(&f.body.stmts, v));
    }
    for a in &p.actions {
        let owner = a.owner.map_or(&[][..], |c| &p.controls[c.index()].annotations);
        body(cx, &[&a.annotations, owner], |v| visit::stmts(&a.body.stmts, v));
    }
    for c in &p.controls {
        body(cx, &[&c.annotations, &c.body.annotations], |v| {
            visit::stmts(&c.locals, v);
            visit::stmts(&c.body.stmts, v);
        });
    }
    for parser in &p.parsers {
        body(cx, &[&parser.annotations], |v| visit::stmts(&parser.locals, v));
        for s in &parser.states {
            body(cx, &[&parser.annotations, &s.annotations], |v| visit::state(s, v));
        }
    }
}

fn body(cx: &mut Context, around: &[&[Annotation]], walk: impl FnOnce(&mut Found)) {
    let mut found = Found::default();
    walk(&mut found);
    for (lint, d) in found.0 {
        cx.warn(lint, around, d);
    }
}

impl Visitor<'_> for Found {
    fn expr(&mut self, e: &Expr) {
        let ExprKind::Binary(op, a, b) = &e.kind else { return };
        match op {
            BinaryOp::Shl | BinaryOp::Shr => self.shift(a, b, e.span),
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
                self.comparison(*op, a, b, e.span);
            }
            _ => {}
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if let StmtKind::Assign { target, op: Some(BinaryOp::Shl | BinaryOp::Shr), value } = &stmt.kind {
            self.shift(target, value, stmt.span);
        }
    }
}

impl Found {
    fn shift(&mut self, a: &Expr, amount: &Expr, span: base::Span) {
        let (Type::Bits { width, signed }, Some(n)) = (&a.ty, amount.as_const().and_then(Value::as_bits)) else {
            return;
        };
        if *width == 0 || n.to_u64().is_some_and(|n| n < u64::from(*width)) {
            return;
        }
        let ty = if *signed { "int" } else { "bit" };
        let message = format!("a value of type `{ty}<{width}>` is shifted by {}", n.to_biguint());
        let d = warning(&SHIFTED_OUT, span, message)
            .label("none of its bits are left")
            .help(format!("cast it to a wider type before the shift, or shift by less than {width}"));
        self.0.push((&SHIFTED_OUT, d));
    }

    fn comparison(&mut self, op: BinaryOp, a: &Expr, b: &Expr, span: base::Span) {
        use BinaryOp::*;
        let (value, constant, op) = match (constant(a), constant(b)) {
            (None, Some(c)) => (a, c, op),
            (Some(c), None) => {
                let turned = match op {
                    Lt => Gt,
                    Le => Ge,
                    Gt => Lt,
                    Ge => Le,
                    other => other,
                };
                (b, c, turned)
            }
            _ => return,
        };
        let Some((low, high)) = range(value) else { return };
        let always = match op {
            Eq if constant < low || constant > high || outside_mask(value, &constant) => false,
            Ne if constant < low || constant > high || outside_mask(value, &constant) => true,
            Lt if high < constant => true,
            Lt if low >= constant => false,
            Le if high <= constant => true,
            Le if low > constant => false,
            Gt if low > constant => true,
            Gt if high <= constant => false,
            Ge if low >= constant => true,
            Ge if high < constant => false,
            _ => return,
        };
        let what = match outside_mask(value, &constant) && matches!(op, Eq | Ne) && constant >= low && constant <= high
        {
            true => format!("bits of {constant} lie outside of the mask"),
            false => format!("a value from {low} to {high} against {constant}"),
        };
        let d = warning(&ALWAYS_SAME, span, format!("this comparison is always {always}"))
            .label(what)
            .help("check the constant and the width of the other side");
        self.0.push((&ALWAYS_SAME, d));
    }
}

fn bits_of(bits: &Bits, signed: bool) -> BigInt {
    if signed { bits.to_bigint_signed() } else { BigInt::from(bits.to_biguint()) }
}

fn constant(e: &Expr) -> Option<BigInt> {
    match (&e.ty, e.as_const()?) {
        (Type::Bits { signed, .. }, Value::Bits(bits)) => Some(bits_of(bits, *signed)),
        _ => None,
    }
}

/// The range of values that an expression can have.
fn range(e: &Expr) -> Option<(BigInt, BigInt)> {
    let Type::Bits { width, signed } = e.ty else { return None };
    let power = |n: u32| BigInt::one() << n;
    match &e.kind {
        ExprKind::Cast(inner) => {
            if let (Type::Bits { width: w, signed: s }, Some(range)) = (&inner.ty, range(inner))
                && *s == signed
                && *w <= width
            {
                return Some(range);
            }
        }
        ExprKind::Binary(BinaryOp::BitAnd, a, b) if !signed => {
            if let Some(mask) = constant(a).or_else(|| constant(b)) {
                return Some((BigInt::zero(), mask));
            }
        }
        _ => {}
    }
    match (signed, width) {
        (_, 0) => None,
        (false, w) => Some((BigInt::zero(), power(w) - 1)),
        (true, w) => Some((-power(w - 1), power(w - 1) - 1)),
    }
}

/// Whether a masked value can never equal a constant, because the constant has bits outside the mask.
fn outside_mask(e: &Expr, value: &BigInt) -> bool {
    match &e.kind {
        ExprKind::Binary(BinaryOp::BitAnd, a, b) if matches!(e.ty, Type::Bits { signed: false, .. }) => {
            constant(a).or_else(|| constant(b)).is_some_and(|mask| (value & &mask) != *value)
        }
        _ => false,
    }
}

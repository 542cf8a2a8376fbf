//! Conversions, implicit and explicit.
//!
//! There are few implicit ones (P4_16, "Implicit casts"): `int` to a fixed width (or to a `type` of one), a
//! serialisable enum to its underlying type, and list and record *literals* to a struct, header, tuple, list or array.
//! All become [`ExprKind::Cast`] or [`ExprKind::Aggregate`]; constants are converted immediately.

use super::Checker;
use super::expr::constant;
use super::generics::Subst;
use crate::codes;
use crate::consteval;
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Diagnostic, Span};
use num_bigint::BigInt;
use num_traits::One;
use syntax::ast;

impl<'a> Checker<'a> {
    /// Converts implicitly; reports an error if there is no such conversion.
    pub fn coerce(&mut self, e: Expr, to: &Type) -> Expr {
        match self.try_coerce(e, to) {
            Ok(e) => e,
            Err(e) if self.has_unknown(&e.ty) || self.has_unknown(to) => self.poison(e.span),
            Err(e) => {
                let message = format!("expected `{}`, found `{}`", self.show(to), self.show(&e.ty));
                let mut d = Diagnostic::error(codes::MISMATCH, e.span, message);
                if let Some(help) = self.mismatch_help(&e, to) {
                    d = d.help(help);
                }
                self.report(d);
                self.poison(e.span)
            }
        }
    }

    /// Adds to a type error reported since index `before` a note on where the expected type comes from.
    pub(super) fn note_origin(&mut self, before: usize, origin: Span, text: &str) {
        let Some([d]) = self.diags.get_mut(before..) else { return };
        if d.code == codes::MISMATCH && d.notes.is_empty() && !origin.is_none() {
            d.notes.push((origin, text.to_string()));
        }
    }

    /// Whether a type contains [`Type::Unknown`].
    fn has_unknown(&self, ty: &Type) -> bool {
        match ty {
            Type::Unknown => true,
            Type::Tuple(types) | Type::Extern(_, types) | Type::Block(_, types) => {
                types.iter().any(|t| self.has_unknown(t))
            }
            Type::List(element) | Type::Set(element) | Type::Stack(element, _) => self.has_unknown(element),
            _ => false,
        }
    }

    fn mismatch_help(&mut self, e: &Expr, to: &Type) -> Option<String> {
        Some(match (&e.ty, to) {
            (Type::Parser(_) | Type::Control(_) | Type::Block(..), Type::Block(..)) => {
                return self.block_difference(&e.ty, to);
            }
            (Type::Bits { signed: a, width: w }, Type::Bits { signed: b, width: v }) if a == b || w == v => {
                format!("cast it: ({}) …", self.show(to))
            }
            (Type::Bits { width, signed }, Type::Bits { signed: b, .. }) => format!(
                "cast it twice: ({}) ({}) …",
                self.show(to),
                self.show(&Type::Bits { width: *width, signed: if *signed == *b { *signed } else { *b } })
            ),
            (Type::Bits { width: 1, signed: false }, Type::Bool) => "compare it: … == 1".to_string(),
            (Type::Int | Type::Bits { .. }, Type::Bool) => "compare it: … != 0".to_string(),
            (Type::Bool, Type::Bits { width: 1, .. }) => "cast it: (bit<1>) …".to_string(),
            (_, Type::Newtype(_) | Type::SerEnum(_)) => format!("cast it: ({}) …", self.show(to)),
            (Type::Newtype(_), Type::Bits { .. }) => format!("cast it: ({}) …", self.show(to)),
            _ => return None,
        })
    }

    /// Explains why a parser or control does not have the wanted type.
    fn block_difference(&mut self, given: &Type, wanted: &Type) -> Option<String> {
        let (kind, given_params) = self.block_params(given)?;
        let (wanted_kind, wanted_params) = self.block_params(wanted)?;
        if kind != wanted_kind {
            return Some(format!("a {} is needed here, this is a {}", wanted_kind.word(), kind.word()));
        }
        if given_params.len() != wanted_params.len() {
            return Some(format!("it has {} parameters, {} are needed", given_params.len(), wanted_params.len()));
        }
        let write = |p: &SigParam, text: String| match p.direction {
            Direction::None => text,
            Direction::In => format!("in {text}"),
            Direction::Out => format!("out {text}"),
            Direction::InOut => format!("inout {text}"),
        };
        for (have, want) in given_params.iter().zip(&wanted_params) {
            let fits = self.match_types(&mut Subst::none(), &want.ty, &have.ty);
            if !fits || have.direction != want.direction {
                let (is, should) = (write(have, self.show(&have.ty)), write(want, self.show(&want.ty)));
                return Some(format!("its parameter `{}` is `{is}`, `{should}` is needed", have.name));
            }
        }
        None
    }

    /// Converts implicitly.
    ///
    /// # Errors
    ///
    /// The unchanged expression, if there is no implicit conversion.
    pub fn try_coerce(&mut self, e: Expr, to: &Type) -> Result<Expr, Expr> {
        if e.ty == *to {
            return Ok(e);
        }
        match (&e.ty, to) {
            (Type::Unknown, _) | (_, Type::Unknown) => Ok(self.poison(e.span)),
            (Type::Int, Type::Bits { .. } | Type::Newtype(_)) => {
                // An extension of the specification that the reference compiler also has: see docs/semantics.md,
                // "Types".
                if !matches!(self.prog.types.underlying(to), Type::Bits { .. }) {
                    return Err(e);
                }
                if let ExprKind::Const(Value::Int(v)) = &e.kind {
                    let v = v.clone();
                    self.warn_overflow(&v, to, e.span);
                }
                if self.is_compile_time(&e) { Ok(self.convert(e, to.clone())) } else { Err(e) }
            }
            (Type::Bits { .. }, Type::Int) if self.is_compile_time(&e) => Ok(self.convert(e, Type::Int)),
            (Type::SerEnum(id), _) => {
                let Some(repr) = self.prog.types.enums[id.index()].repr.clone() else { return Err(e) };
                if matches!(to, Type::SerEnum(_) | Type::Enum(_)) {
                    return Err(e);
                }
                if repr == *to { Ok(self.convert(e, repr)) } else { Err(e) }
            }
            (Type::Parser(_) | Type::Control(_), Type::Block(..)) | (Type::Block(..), Type::Block(..)) => {
                let from = e.ty.clone();
                if self.match_types(&mut Subst::none(), to, &from) { Ok(e) } else { Err(e) }
            }
            _ if is_literal(&e) => self.coerce_literal(e, to),
            _ => Err(e),
        }
    }

    /// Converts a list or record literal to a composite type, element by element.
    fn coerce_literal(&mut self, e: Expr, to: &Type) -> Result<Expr, Expr> {
        let count = match &e.kind {
            ExprKind::Aggregate(elements) => elements.len(),
            ExprKind::Const(Value::Seq(values)) => values.len(),
            _ => return Err(e),
        };
        let named = match &e.ty {
            Type::Struct(id) if self.prog.types.structs[id.index()].name.is_empty() => Some(*id),
            Type::Tuple(_) => None,
            _ => return Err(e),
        };
        let (to_types, to_fields) = match to {
            Type::Struct(id) | Type::Header(id) => {
                let fields = &self.prog.types.structs[id.index()].fields;
                (fields.iter().map(|f| f.ty.clone()).collect::<Vec<_>>(), Some(*id))
            }
            Type::Tuple(types) => (types.to_vec(), None),
            Type::List(element) => (vec![(**element).clone(); count], None),
            Type::Stack(element, n) if count == *n as usize => (vec![(**element).clone(); count], None),
            _ => return Err(e),
        };
        if to_types.len() != count {
            return Err(e);
        }
        let span = e.span;
        let Some(from_types) = consteval::element_types(&self.prog.types, &e.ty, count) else { return Err(e) };
        let mut elements: Vec<Option<Expr>> = match e.kind {
            ExprKind::Aggregate(elements) => elements.into_iter().map(Some).collect(),
            ExprKind::Const(Value::Seq(values)) => {
                values.into_iter().zip(from_types).map(|(v, ty)| Some(constant(v, ty, span))).collect()
            }
            _ => Vec::new(),
        };
        // Elements are matched by name if both sides have names.
        if let Some(from) = named {
            let Some(target) = to_fields else {
                let e = self.aggregate(elements.into_iter().flatten().collect(), Type::Struct(from), span);
                return Err(e);
            };
            let target = self.prog.types.structs[target.index()].fields.clone();
            let source = self.prog.types.structs[from.index()].fields.clone();
            let order: Option<Vec<usize>> =
                target.iter().map(|t| source.iter().position(|s| s.name == t.name)).collect();
            let Some(order) = order else {
                let e = self.aggregate(elements.into_iter().flatten().collect(), Type::Struct(from), span);
                return Err(e);
            };
            elements = order.into_iter().map(|i| elements[i].take()).collect();
        }
        let mut result: Vec<Expr> = Vec::with_capacity(elements.len());
        for (element, ty) in elements.into_iter().flatten().zip(&to_types) {
            result.push(self.coerce(element, ty));
        }
        Ok(self.aggregate(result, to.clone(), span))
    }

    /// A composite value, folded if all elements are constant.
    pub fn aggregate(&mut self, elements: Vec<Expr>, ty: Type, span: Span) -> Expr {
        if elements.iter().all(|e| e.as_const().is_some()) {
            let values = elements.into_iter().filter_map(|e| match e.kind {
                ExprKind::Const(value) => Some(value),
                _ => None,
            });
            return constant(Value::Seq(values.collect()), ty, span);
        }
        Expr { kind: ExprKind::Aggregate(elements), ty, span }
    }

    /// Performs a conversion that is known to exist.
    pub fn convert(&mut self, e: Expr, to: Type) -> Expr {
        if e.ty == to {
            return e;
        }
        if let ExprKind::Const(value) = &e.kind
            && let Some(value) = consteval::cast(&self.prog.types, value, &e.ty, &to)
        {
            return constant(value, to, e.span);
        }
        let span = e.span;
        Expr { kind: ExprKind::Cast(Box::new(e)), ty: to, span }
    }

    pub(super) fn cast_expr(&mut self, ty: &'a ast::TypeRef, operand: &'a ast::Expr, span: Span) -> Expr {
        let to = self.resolve_type(ty);
        let operand = match to {
            Type::Unknown => self.expr(operand, None),
            _ => self.expr(operand, Some(&to)),
        };
        if to.is_unknown() || operand.ty.is_unknown() {
            return self.poison(span);
        }
        let cast = self.cast(operand, &to, span);
        Expr { span, ..cast }
    }

    /// An explicit cast.
    pub fn cast(&mut self, e: Expr, to: &Type, span: Span) -> Expr {
        if e.ty == *to || is_literal(&e) {
            return self.coerce(e, to);
        }
        if let (Type::Int, Type::Bool) = (&e.ty, to)
            && let Some(v) = self.const_int(&e)
            && v != BigInt::from(0)
            && v != BigInt::one()
        {
            self.error(codes::BAD_CAST, span, format!("only 0 and 1 can be cast to `bool`, not {v}"));
            return self.poison(span);
        }
        if let (Type::Bits { .. }, Type::Int) = (&e.ty, to)
            && !self.is_compile_time(&e)
        {
            self.report(
                Diagnostic::error(codes::NOT_CONSTANT, span, "values of type `int` exist at compile time only")
                    .help("cast to a type with a width, as (bit<32>)"),
            );
            return self.poison(span);
        }
        if !self.can_cast(&e.ty, to) {
            let message = format!("`{}` cannot be cast to `{}`", self.show(&e.ty), self.show(to));
            let mut d = Diagnostic::error(codes::BAD_CAST, span, message);
            if let (Type::Bits { width: w, .. }, Type::Bits { width: v, signed }) = (&e.ty, to)
                && w != v
            {
                let between = Type::Bits { width: *w, signed: *signed };
                d = d.help(format!(
                    "change the sign first, then the width: ({}) ({}) …",
                    self.show(to),
                    self.show(&between)
                ));
            }
            self.report(d);
            return self.poison(span);
        }
        if let (Type::Bits { .. }, ExprKind::Const(Value::Int(v))) = (to, &e.kind) {
            let v = v.clone();
            // A negative number cast to `bit` is a common idiom (`-1` for all ones): no warning.
            if v.sign() != num_bigint::Sign::Minus {
                self.warn_overflow(&v, to, span);
            }
        }
        self.convert(e, to.clone())
    }

    /// Whether an explicit cast exists.
    fn can_cast(&self, from: &Type, to: &Type) -> bool {
        let types = &self.prog.types;
        match (from, to) {
            _ if from == to => true,
            (Type::Bits { width: 1, signed: false }, Type::Bool) => true,
            (Type::Bool, Type::Bits { width: 1, signed: false }) => true,
            (Type::Int, Type::Bool) => true,
            (Type::Bits { width: a, signed: s }, Type::Bits { width: b, signed: t }) => a == b || s == t,
            (Type::Int, Type::Bits { .. }) | (Type::Bits { .. }, Type::Int) => true,
            (Type::SerEnum(id), _) => types.enums[id.index()].repr.as_ref().is_some_and(|r| self.can_cast(r, to)),
            (_, Type::SerEnum(id)) => types.enums[id.index()].repr.as_ref().is_some_and(|r| self.can_cast(from, r)),
            (Type::Newtype(id), _) => self.can_cast(&types.newtypes[id.index()].underlying, to),
            (_, Type::Newtype(id)) => {
                let underlying = &types.newtypes[id.index()].underlying;
                match (from, underlying) {
                    (Type::Bits { .. }, Type::Bits { .. }) => from == underlying,
                    _ => self.can_cast(from, underlying),
                }
            }
            _ => false,
        }
    }
}

/// Whether an expression is a list or record literal (or a constant made of one).
fn is_literal(e: &Expr) -> bool {
    matches!(e.kind, ExprKind::Aggregate(_) | ExprKind::Const(Value::Seq(_)))
}

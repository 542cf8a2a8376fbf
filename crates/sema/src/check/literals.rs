//! Literals of composite types: `{ a, b }`, `{ x = a }`, `…` (default values), `{#}` (invalid headers).
//!
//! Specification: P4_16, "Operations on tuple expressions", "Operations on structure-valued expressions", "Initializing
//! with default values".

use super::Checker;
use super::expr::constant;
use crate::codes;
use crate::consteval;
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Diagnostic, Span};
use std::sync::Arc;
use syntax::ast;

impl<'a> Checker<'a> {
    /// `...`: the default value of the expected type.
    pub(super) fn default_expr(&mut self, expected: Option<&Type>, span: Span) -> Expr {
        let Some(ty) = expected else {
            self.report(
                Diagnostic::error(codes::SHAPE_UNKNOWN, span, "the type that `...` stands for is not known here")
                    .help("cast it: (T) ..."),
            );
            return self.poison(span);
        };
        self.default_of(ty, span)
    }

    fn default_of(&mut self, ty: &Type, span: Span) -> Expr {
        if ty.is_unknown() {
            return self.poison(span);
        }
        match consteval::default_value(&self.prog.types, ty) {
            Some(value) => constant(value, ty.clone(), span),
            None => {
                let message = format!("`{}` has no default value", self.show(ty));
                self.error(codes::NO_DEFAULT_VALUE, span, message);
                self.poison(span)
            }
        }
    }

    pub(super) fn invalid_header(&mut self, expected: Option<&Type>, span: Span) -> Expr {
        match expected {
            Some(ty @ (Type::Header(_) | Type::HeaderUnion(_) | Type::Unknown)) => {
                constant(Value::Invalid, ty.clone(), span)
            }
            Some(ty) => {
                let message = format!("`{{#}}` is an invalid header, not `{}`", self.show(ty));
                self.error(codes::MISMATCH, span, message);
                self.poison(span)
            }
            None => {
                self.report(
                    Diagnostic::error(codes::SHAPE_UNKNOWN, span, "the header type of `{#}` is not known here")
                        .help("cast it: (H) {#}"),
                );
                self.poison(span)
            }
        }
    }

    pub(super) fn list(&mut self, elements: &'a [ast::Expr], expected: Option<&Type>, span: Span) -> Expr {
        let dots = matches!(elements.last(), Some(ast::Expr { kind: ast::ExprKind::Default, .. }));
        let given = if dots { &elements[..elements.len() - 1] } else { elements };
        // A `...` that is not last is reported when that element is checked.
        let shape: Option<(Vec<Type>, Type)> = match expected {
            Some(ty @ (Type::Struct(id) | Type::Header(id))) => {
                let fields = &self.prog.types.structs[id.index()].fields;
                Some((fields.iter().map(|f| f.ty.clone()).collect(), ty.clone()))
            }
            Some(ty @ Type::Tuple(types)) => Some((types.to_vec(), ty.clone())),
            Some(ty @ Type::Stack(element, n)) => Some((vec![(**element).clone(); *n as usize], ty.clone())),
            Some(ty @ Type::List(element)) => Some((vec![(**element).clone(); given.len()], ty.clone())),
            _ => None,
        };
        if let Some(Type::Unknown) = expected {
            for e in given {
                self.expr(e, expected);
            }
            return self.poison(span);
        }
        let Some((types, ty)) = shape else {
            if dots {
                self.report(
                    Diagnostic::error(codes::SHAPE_UNKNOWN, span, "the type that `...` fills up is not known here")
                        .help("cast it: (T) { … }"),
                );
                return self.poison(span);
            }
            let exprs: Vec<Expr> = given.iter().map(|e| self.expr(e, None)).collect();
            let ty = Type::Tuple(exprs.iter().map(|e| e.ty.clone()).collect());
            if exprs.iter().any(|e| e.ty.is_unknown()) {
                return self.poison(span);
            }
            return self.aggregate(exprs, ty, span);
        };
        if given.len() > types.len() || (given.len() < types.len() && !dots) {
            let message = format!("`{}` needs {} values, here are {}", self.show(&ty), types.len(), given.len());
            let mut d = Diagnostic::error(codes::WRONG_LENGTH, span, message);
            if given.len() < types.len() {
                d = d.help("end the list with `...` for default values");
            }
            self.report(d);
            for e in given {
                self.expr(e, None);
            }
            return self.poison(span);
        }
        let mut result: Vec<Expr> = given.iter().zip(&types).map(|(e, t)| self.expr_as(e, t)).collect();
        let place = elements.last().map_or(span, |e| e.span);
        for t in &types[given.len()..] {
            let element = self.default_of(t, place);
            result.push(element);
        }
        if result.iter().any(|e| e.ty.is_unknown()) {
            return self.poison(span);
        }
        self.aggregate(result, ty, span)
    }

    pub(super) fn record(
        &mut self,
        fields: &'a [ast::NamedExpr],
        dots: Option<Span>,
        expected: Option<&Type>,
        span: Span,
    ) -> Expr {
        for (i, field) in fields.iter().enumerate() {
            if let Some(first) = fields[..i].iter().find(|f| f.name == field.name) {
                self.report(
                    Diagnostic::error(codes::FIELD_TWICE, field.name.span, format!("`{}` is given twice", field.name))
                        .note(first.name.span, "the first one"),
                );
                return self.poison(span);
            }
        }
        let (id, ty) = match expected {
            Some(ty @ (Type::Struct(id) | Type::Header(id))) => (*id, ty.clone()),
            Some(Type::Unknown) => {
                for field in fields {
                    self.expr(&field.value, expected);
                }
                return self.poison(span);
            }
            _ => return self.anonymous_record(fields, dots, span),
        };
        let info = self.prog.types.structs[id.index()].clone();
        let unknown: Vec<_> = fields.iter().filter(|field| info.field(&field.name.text).is_none()).collect();
        let mut ok = unknown.is_empty();
        // Errors within the values are reported before errors about their fields.
        for field in &unknown {
            self.expr(&field.value, None);
        }
        for field in unknown {
            let names: Vec<&str> = info.fields.iter().map(|f| &*f.name).collect();
            let message = format!("`{}` has no field `{}`", self.show(&ty), field.name);
            self.unknown_member(codes::NO_SUCH_MEMBER, &field.name, message, info.span, names.into_iter());
        }
        let mut result = Vec::with_capacity(info.fields.len());
        let mut missing: Vec<&str> = Vec::new();
        for field in &info.fields {
            match (fields.iter().find(|f| f.name.text == field.name), dots) {
                (Some(given), _) => result.push(self.expr_as(&given.value, &field.ty)),
                (None, Some(dots)) => {
                    let value = self.default_of(&field.ty, dots);
                    result.push(value);
                }
                (None, None) => missing.push(&field.name),
            }
        }
        if !missing.is_empty() {
            let message = format!("`{}` needs a value for {}", self.show(&ty), quoted(&missing));
            self.report(
                Diagnostic::error(codes::BAD_FIELDS, span, message).help("end the list with `...` for default values"),
            );
            ok = false;
        }
        if !ok || result.iter().any(|e| e.ty.is_unknown()) {
            return self.poison(span);
        }
        self.aggregate(result, ty, span)
    }

    fn anonymous_record(&mut self, fields: &'a [ast::NamedExpr], dots: Option<Span>, span: Span) -> Expr {
        if let Some(dots) = dots {
            self.report(
                Diagnostic::error(codes::SHAPE_UNKNOWN, dots, "the type that `...` fills up is not known here")
                    .help("cast it: (T) { … }"),
            );
            return self.poison(span);
        }
        let exprs: Vec<Expr> = fields.iter().map(|f| self.expr(&f.value, None)).collect();
        if exprs.iter().any(|e| e.ty.is_unknown()) {
            return self.poison(span);
        }
        let types: Vec<(Arc<str>, Type)> =
            fields.iter().zip(&exprs).map(|(f, e)| (f.name.text.clone(), e.ty.clone())).collect();
        let ty = self.anonymous_struct(types, span);
        self.aggregate(exprs, ty, span)
    }
}

/// A list of quoted names for a message.
pub(crate) fn quoted(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

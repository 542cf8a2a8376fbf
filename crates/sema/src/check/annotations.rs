//! Annotations (P4_16, "Annotations"): evaluates their expressions and derives control-plane names.
//!
//! The body of an unstructured annotation is defined by its consumer: an expression that cannot be evaluated here is
//! not an error, and the tokens are kept. Structured annotations are checked.

use super::Checker;
use crate::codes;
use crate::typed::*;
use crate::value::Value;
use base::Diagnostic;
use std::sync::Arc;
use syntax::ast;

impl<'a> Checker<'a> {
    /// Evaluates annotations.
    pub fn annotations(&mut self, annotations: &'a [ast::Annotation]) -> Vec<Annotation> {
        for (i, annotation) in annotations.iter().enumerate() {
            let structured = |a: &ast::Annotation| {
                matches!(a.body, ast::AnnotationBody::List(_) | ast::AnnotationBody::KeyValues(_))
            };
            let earlier = annotations[..i].iter().find(|a| a.name == annotation.name);
            if let Some(first) = earlier.filter(|a| structured(a) || structured(annotation)) {
                let first = first.span;
                self.report(
                    Diagnostic::error(
                        codes::ANNOTATION_TWICE,
                        annotation.span,
                        format!("`@{}` is given twice", annotation.name),
                    )
                    .note(first, "the first one"),
                );
            }
        }
        annotations.iter().map(|a| self.annotation(a)).collect()
    }

    fn annotation(&mut self, annotation: &'a ast::Annotation) -> Annotation {
        let body = match &annotation.body {
            ast::AnnotationBody::Empty => {
                self.check_known(annotation, &[], None);
                AnnotationBody::Empty
            }
            ast::AnnotationBody::Unstructured { tokens, exprs } => {
                let values = match (exprs, tokens.is_empty()) {
                    (_, true) => Some(Vec::new()),
                    (Some(exprs), _) => self.values_without_errors(exprs),
                    (None, _) => None,
                };
                self.check_known(annotation, tokens, values.as_deref());
                AnnotationBody::Unstructured { tokens: tokens.clone(), values }
            }
            ast::AnnotationBody::List(exprs) => {
                AnnotationBody::List(exprs.iter().map(|e| self.annotation_value(e)).collect())
            }
            ast::AnnotationBody::KeyValues(pairs) => {
                let mut result: Vec<(Arc<str>, Value)> = Vec::new();
                for pair in pairs {
                    if result.iter().any(|(k, _)| *k == pair.name.text) {
                        let message = format!("the key `{}` is given twice", pair.name);
                        self.error(codes::ANNOTATION_TWICE, pair.name.span, message);
                    }
                    let value = self.annotation_value(&pair.value);
                    result.push((pair.name.text.clone(), value));
                }
                AnnotationBody::KeyValues(result)
            }
        };
        Annotation { name: annotation.name.text.clone(), body, span: annotation.span }
    }

    /// Reports a body that an annotation defined by the specification or by P4Runtime cannot have.
    fn check_known(&mut self, annotation: &ast::Annotation, tokens: &[ast::AnnotationToken], values: Option<&[Value]>) {
        let empty = matches!(annotation.body, ast::AnnotationBody::Empty);
        let one_string = matches!(values, Some([Value::Str(_)]));
        let (wrong, help) = match &*annotation.name.text {
            "name" if !empty && !one_string => (true, "write @name(\"…\")"),
            "deprecated" if !one_string => (true, "it takes one string: @deprecated(\"why, and what instead\")"),
            "noWarn" if !one_string => (true, "it takes the name of a warning, as @noWarn(\"unused\")"),
            "match" if !matches!(values, Some([Value::MatchKind(_)])) => {
                (true, "it takes a match kind: @match(ternary)")
            }
            "pkginfo" if empty => (true, "it takes keys and values: @pkginfo(name = \"…\", version = \"…\")"),
            "p4runtime_translation" if !is_translation(tokens) => (
                true,
                "it takes a URI and the type that controllers see, `string` or `bit<W>`: \
                 @p4runtime_translation(\"example.org/port\", bit<32>)",
            ),
            _ => (false, ""),
        };
        if wrong {
            let message = format!("`@{}` cannot have this body", annotation.name);
            self.report(Diagnostic::error(codes::BAD_ANNOTATION, annotation.span, message).help(help));
        }
    }

    /// The values of expressions, or `None` if one has no value; reports nothing.
    fn values_without_errors(&mut self, exprs: &'a [ast::Expr]) -> Option<Vec<Value>> {
        let mut values = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let value = match &expr.kind {
                ast::ExprKind::String(s) => Value::Str(s.clone()),
                ast::ExprKind::Int(literal) if literal.ty == ast::IntLiteralType::Int => {
                    Value::Int(literal.value.clone())
                }
                ast::ExprKind::Bool(b) => Value::Bool(*b),
                ast::ExprKind::Path(path)
                    if self.scopes.lookup(&path.name.text).is_none()
                        && !self.prog.match_kinds.contains(&path.name.text) =>
                {
                    return None;
                }
                _ => {
                    let before = self.diags.len();
                    let typed = self.expr(expr, None);
                    let failed = self.diags.len() > before;
                    self.retract(before);
                    match typed.kind {
                        ExprKind::Const(value) if !failed => value,
                        _ => return None,
                    }
                }
            };
            values.push(value);
        }
        Some(values)
    }

    fn annotation_value(&mut self, expr: &'a ast::Expr) -> Value {
        let typed = self.expr(expr, None);
        if !typed.ty.is_unknown() && typed.as_const().is_none() {
            self.error(codes::NOT_CONSTANT, expr.span, "the value of an annotation must be known at compile time");
        }
        match typed.kind {
            ExprKind::Const(value @ (Value::Str(_) | Value::Int(_) | Value::Bits(_) | Value::Bool(_))) => value,
            ExprKind::Const(_) if !typed.ty.is_unknown() => {
                let message = format!("a value of type `{}` is not allowed in an annotation", self.show(&typed.ty));
                self.report(
                    Diagnostic::error(codes::BAD_ANNOTATION, expr.span, message)
                        .help("values in `@name[…]` are strings, integers and booleans"),
                );
                Value::Absent
            }
            _ => Value::Absent,
        }
    }

    /// The control-plane name of a declaration.
    pub fn control_name(&self, name: &str, annotations: &[Annotation]) -> ControlName {
        let hidden = find_annotation(annotations, "hidden").is_some();
        let given = find_annotation(annotations, "name").and_then(Annotation::as_str);
        match given {
            Some(text) => match text.strip_prefix('.') {
                Some(rest) => ControlName { name: rest.to_string(), global: true, hidden },
                None => ControlName { name: text.to_string(), global: false, hidden },
            },
            None => ControlName { name: name.to_string(), global: false, hidden },
        }
    }

    /// Warns about the use of something `@deprecated`.
    pub fn warn_deprecated(&mut self, what: &str, annotations: &[Annotation], span: base::Span, declared: base::Span) {
        let Some(annotation) = find_annotation(annotations, "deprecated") else { return };
        let mut d = Diagnostic::warning(codes::DEPRECATED, span, format!("{what} is deprecated"))
            .note(declared, "declared here");
        if let Some(text) = annotation.as_str() {
            d = d.help(text);
        }
        self.report(d);
    }
}

/// Whether the body of `@p4runtime_translation` is a URI and a type: `string`, `bit<W>`, or W alone.
fn is_translation(tokens: &[ast::AnnotationToken]) -> bool {
    use ast::AnnotationTokenKind::*;
    let shape: Vec<_> =
        tokens.iter().map(|t| (t.kind, if t.kind == Symbol || t.kind == Word { &*t.text } else { "" })).collect();
    matches!(
        shape.as_slice(),
        [(String, _), (Symbol, ","), (Word, "string") | (Int, _)]
            | [(String, _), (Symbol, ","), (Word, "bit"), (Symbol, "<"), (Int, _), (Symbol, ">")]
    )
}

//! Annotations: their expressions are evaluated where they stand, and names for the control plane are taken from them.
//!
//! The body of an unstructured annotation belongs to whoever knows it: an expression in it that means nothing here is not
//! an error, the tokens are kept. Structured annotations are checked.

use super::Checker;
use crate::codes;
use crate::typed::*;
use crate::value::Value;
use base::Diagnostic;
use std::sync::Arc;
use syntax::ast;

impl<'a> Checker<'a> {
    /// Annotations with their values.
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
            ast::AnnotationBody::Empty => AnnotationBody::Empty,
            ast::AnnotationBody::Unstructured { tokens, exprs } => {
                let values = match (exprs, tokens.is_empty()) {
                    (_, true) => Some(Vec::new()),
                    (Some(exprs), _) => self.quiet_values(exprs),
                    (None, _) => None,
                };
                if &*annotation.name.text == "name" && !matches!(values.as_deref(), Some([Value::Str(_)])) {
                    self.report(
                        Diagnostic::error(codes::BAD_ANNOTATION, annotation.span, "`@name` takes one string")
                            .help("write @name(\"…\")"),
                    );
                }
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

    /// Values of expressions that may mean nothing: no complaints.
    fn quiet_values(&mut self, exprs: &'a [ast::Expr]) -> Option<Vec<Value>> {
        let mut values = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let value = match &expr.kind {
                ast::ExprKind::String(s) => Value::Str(s.clone()),
                ast::ExprKind::Int(literal) if literal.ty == ast::IntLiteralType::Int => {
                    Value::Int(literal.value.clone())
                }
                ast::ExprKind::Bool(b) => Value::Bool(*b),
                ast::ExprKind::Path(path) if self.scopes.lookup(&path.name.text).is_none() => return None,
                _ => {
                    let before = self.diags.len();
                    let typed = self.expr(expr, None);
                    let failed = self.diags.len() > before;
                    self.diags.truncate(before);
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
            ExprKind::Const(value) => value,
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

    /// Warns where something deprecated is used.
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

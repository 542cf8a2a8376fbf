//! Definitions of macros.

use crate::token::Token;
use base::Span;
use std::sync::Arc;

/// A macro.
#[derive(Debug)]
pub(super) struct Macro {
    /// Parameters of a function-like macro; the last of a variadic one is `__VA_ARGS__` or its own name.
    pub(super) params: Option<Vec<Arc<str>>>,
    pub(super) variadic: bool,
    pub(super) body: Vec<Token>,
    /// Span of its definition.
    pub(super) span: Span,
}

impl Macro {
    /// Whether another definition is equivalent, so that redefinition is allowed.
    pub(super) fn same_as(&self, other: &Macro) -> bool {
        self.params == other.params
            && self.variadic == other.variadic
            && self.body.len() == other.body.len()
            && self.body.iter().zip(&other.body).all(|(a, b)| a.kind == b.kind && a.text() == b.text())
    }
}

//! Warnings about valid but probably wrong programs. They are found on the typed program, after all checks, if there
//! was no error.
//!
//! [`check`] runs them all. Each is one file with one function from program to diagnostics: `uninit` and `validity` use
//! the data-flow analysis of `flow`, the others are scans. False positives are avoided: in doubt no warning is given,
//! and `@noWarn("…")` on the declaration or an enclosing one suppresses it, by p4c's name for it or by its code
//! (`catalog` has both; P4_16, "No warnings annotation").
//!
//! **Invariants.** No warning is about compiler-generated code (which has no span), none is given twice for the same
//! span, and they are in source order. Cost is n log n in program size (see `flow`).
//!
//! Tests: `crates/sema/tests/lint.rs`, the full text of each warning and near misses.

mod catalog;
mod emitted;
mod flow;
mod keys;
mod numbers;
mod places;
mod states;
mod uninit;
mod unused;
mod validity;
mod visit;

pub use catalog::{LINTS, Lint};

use crate::typed::*;
use base::{Diagnostic, Span};
use std::collections::{HashMap, HashSet};
use syntax::ast;

/// The maximum number of warnings.
const MAX_WARNINGS: usize = 200;

/// The input of each warning, and the warnings found so far.
pub(crate) struct Context<'p> {
    pub program: &'p Program,
    pub ast: &'p ast::Program,
    found: Vec<Diagnostic>,
    /// The span of each parser state's name, by the span of the whole state.
    state_names: HashMap<Span, Span>,
}

/// The warnings about a program without errors.
pub fn check(program: &Program, ast: &ast::Program) -> Vec<Diagnostic> {
    let parsers = ast.decls.iter().filter_map(|d| if let ast::DeclKind::Parser(p) = &d.kind { Some(p) } else { None });
    let state_names = parsers.flat_map(|p| &p.states).map(|s| (s.span, s.name.span)).collect();
    let mut cx = Context { program, ast, found: Vec::new(), state_names };
    let flow = flow::Flow::new(program);
    uninit::check(&mut cx, &flow);
    validity::check(&mut cx, &flow);
    states::check(&mut cx);
    unused::check(&mut cx);
    keys::check(&mut cx);
    emitted::check(&mut cx);
    numbers::check(&mut cx);
    let mut found = cx.found;
    found.sort_by_key(|d| (d.span, d.code));
    let mut seen = HashSet::new();
    found.retain(|d| !d.span.is_none() && seen.insert((d.code, d.span)));
    found.truncate(MAX_WARNINGS);
    found
}

impl Context<'_> {
    fn state_name(&self, state: &State) -> Span {
        self.state_names.get(&state.span).copied().unwrap_or(state.span)
    }

    /// Whether [`MAX_WARNINGS`] is reached, so the search can stop.
    fn is_full(&self) -> bool {
        self.found.len() >= MAX_WARNINGS
    }

    /// Adds a warning, unless `@noWarn` on an enclosing declaration suppresses it.
    fn warn(&mut self, lint: &Lint, around: &[&[Annotation]], diagnostic: Diagnostic) {
        if !silenced(lint, around) {
            self.found.push(diagnostic);
        }
    }
}

/// Whether `@noWarn` on these declarations suppresses a warning.
fn silenced(lint: &Lint, around: &[&[Annotation]]) -> bool {
    let annotations = around.iter().flat_map(|a| a.iter()).filter(|a| &*a.name == "noWarn");
    annotations.into_iter().any(|a| match a.values() {
        Some(values) => values
            .iter()
            .filter_map(|v| v.as_str())
            .any(|name| name == lint.code || lint.names.contains(&name.replace('-', "_").as_str())),
        None => false,
    })
}

/// A diagnostic with the warning's code.
fn warning(lint: &Lint, span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::warning(lint.code, span, message)
}

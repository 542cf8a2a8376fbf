//! Warnings about what is allowed and bites: found on the typed program, after everything else, if there was no error.
//!
//! [`check`] runs them all. Each is one file with one function from program to diagnostics: `uninit` and `validity` read
//! the path analysis of `flow`, the others are scans. The measure is low noise: in doubt a warning is not given, and
//! `@noWarn("…")` on the declaration or on one around it silences it, by p4c's name for it or by its code. `catalog` has
//! both.
//!
//! **Invariants.** No warning is about what the compiler made up (it has no place), none is given twice for one place,
//! and they come in the order of the source. Cost is n log n in program size (`flow` says more).
//!
//! Tests: `crates/sema/tests/lint.rs`, the whole text of each warning and near misses.

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

/// After this many the rest is not given.
const MAX_WARNINGS: usize = 200;

/// What each warning is given.
pub(crate) struct Context<'p> {
    pub program: &'p Program,
    pub ast: &'p ast::Program,
    found: Vec<Diagnostic>,
    /// The name of each parser state, by the place of all of it.
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

    /// Whether there are so many that no more need be looked for.
    fn is_full(&self) -> bool {
        self.found.len() >= MAX_WARNINGS
    }

    /// A warning, unless one of the declarations around it is annotated to be silent.
    fn warn(&mut self, lint: &Lint, around: &[&[Annotation]], diagnostic: Diagnostic) {
        if !silenced(lint, around) {
            self.found.push(diagnostic);
        }
    }
}

/// Whether `@noWarn` of these declarations silences a warning.
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

/// A warning of a kind.
fn warning(lint: &Lint, span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::warning(lint.code, span, message)
}

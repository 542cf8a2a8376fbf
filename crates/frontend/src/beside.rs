//! Type errors beside syntax errors: a missing semicolon in one declaration need not hide what is wrong in another.
//!
//! What the parser could not read is missing in the tree, so only errors are given that the missing parts cannot have caused: those of
//! declarations without syntax error, that point at no declaration with one, and that do not say that something is missing. Where it is not
//! clear where declarations begin and end, nothing is given. No warnings: what is never used may be used in what is missing.
//!
//! Tests: `tests/golden/type_errors_beside.p4`; `tests/one_mistake.rs` counts that one syntax error stays one.

use base::{Diagnostic, Severity, SourceMap, Span};
use syntax::ast;

/// Behind errors of these kinds nobody knows where declarations begin and end, or what files would have declared.
const UNCLEAR: &[&str] = &[
    syntax::codes::INCLUDE_NOT_FOUND,
    syntax::codes::BAD_DIRECTIVE,
    syntax::codes::UNKNOWN_DIRECTIVE,
    syntax::codes::ERROR_DIRECTIVE,
    syntax::codes::UNBALANCED_CONDITIONAL,
    syntax::codes::BAD_CONDITION,
    syntax::codes::PREPROCESSOR_LIMIT,
    syntax::codes::MACRO_ARGUMENTS,
    syntax::codes::BAD_PASTE,
    syntax::codes::NOT_A_PROGRAM,
    syntax::codes::INCLUDE_REFUSED,
    syntax::codes::OPEN_COMMENT,
    syntax::codes::OPEN_STRING,
    syntax::codes::UNCLOSED,
    syntax::codes::TOO_DEEP,
    syntax::codes::TOO_MANY_ERRORS,
];

/// Errors that something does not exist, or does not fit what is declared elsewhere in a form that may be incomplete.
const OF_WHAT_IS_MISSING: &[&str] = &[
    sema::codes::NOT_DECLARED,
    sema::codes::NO_SUCH_TYPE,
    sema::codes::NO_SUCH_MEMBER,
    sema::codes::NO_SUCH_STATE,
    sema::codes::NO_SUCH_MATCH_KIND,
    sema::codes::NO_SUCH_PARAMETER,
    sema::codes::NO_SUCH_METHOD,
    sema::codes::NO_SUCH_ENUM_MEMBER,
    sema::codes::BAD_MAIN,
    sema::codes::BAD_STATES,
    sema::codes::ENDLESS_PARSER,
    sema::codes::NOT_IMPLEMENTED,
    sema::codes::NOT_INFERRED,
];

/// The type errors of a tree that was read with `found` that these cannot have caused.
pub(crate) fn type_errors(program: &ast::Program, sources: &SourceMap, found: &[Diagnostic]) -> Vec<Diagnostic> {
    let errors: Vec<&Diagnostic> = found.iter().filter(|d| d.severity == Severity::Error).collect();
    if errors.iter().any(|error| error.span.is_none() || UNCLEAR.contains(&error.code)) {
        return Vec::new();
    }
    let whole = |decl: &ast::Decl| {
        let mut span = decl.span;
        span.start = decl
            .annotations
            .iter()
            .map(|a| a.span)
            .filter(|s| s.file == span.file)
            .fold(span.start, |start, s| start.min(s.start));
        span
    };
    let (broken, sound): (Vec<Span>, Vec<Span>) =
        program.decls.iter().map(whole).partition(|decl| errors.iter().any(|error| touches(*decl, error.span)));
    let is_in = |span: Span, of: &[Span]| of.iter().any(|decl| touches(*decl, span));
    let mut beside = sema::check(program, sources).diagnostics;
    beside.retain(|error| {
        error.severity == Severity::Error
            && !OF_WHAT_IS_MISSING.contains(&error.code)
            && is_in(error.span, &sound)
            && !is_in(error.span, &broken)
            && !error.notes.iter().any(|(note, _)| is_in(*note, &broken))
    });
    beside
}

/// Whether a place is in a declaration, or right behind it (where something is missing).
fn touches(decl: Span, place: Span) -> bool {
    decl.file == place.file && place.start <= decl.end && decl.start <= place.end
}

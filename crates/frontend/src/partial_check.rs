//! Type errors in programs with syntax errors: a missing semicolon in one declaration should not hide errors in
//! another.
//!
//! What the parser could not read is missing in the tree, so only errors are reported that the missing parts cannot
//! have caused: those in declarations without a syntax error whose notes point to no declaration with one. An error
//! about a missing member points to the declaration of the type. An error about an undeclared name is reported if the
//! name occurs nowhere in the program except in declarations without a syntax error. If the boundaries of declarations
//! are unclear, nothing is reported. Warnings are not reported: what is unused may be used in the missing parts.
//!
//! Tests: `tests/golden/type_errors_beside.p4`, `unknown_names_beside.p4`; `tests/one_mistake.rs` checks that one
//! syntax error remains one error.

use base::{Diagnostic, FileId, Severity, SourceMap, Span};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use syntax::ast;
use syntax::lexer::Lexer;
use syntax::token::{Interner, TokenKind};

/// Errors after which the boundaries of declarations, or the declarations of missing files, are unknown.
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

/// Errors about an undeclared name, or about a use that conflicts with a declaration. After a syntax error the
/// declaration may be missing or incomplete.
const OF_WHAT_IS_MISSING: &[&str] = &[
    sema::codes::NO_SUCH_STATE,
    sema::codes::NO_SUCH_MATCH_KIND,
    sema::codes::BAD_MAIN,
    sema::codes::BAD_STATES,
    sema::codes::ENDLESS_PARSER,
    sema::codes::NOT_IMPLEMENTED,
    sema::codes::NOT_INFERRED,
];

/// Errors about a name that is declared nowhere, not even as a member of a type with a single declaration.
const OF_A_NAME: &[&str] = &[sema::codes::NOT_DECLARED, sema::codes::NO_SUCH_TYPE, sema::codes::NO_SUCH_ENUM_MEMBER];

/// The type errors of a program with the syntax errors `found` that these cannot have caused.
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
    let unread = words_outside(&sound, sources);
    // For an enum, a note points to its declaration; `error`, which has several, has no such note.
    let has_declaration = |error: &Diagnostic| {
        error.code == sema::codes::NO_SUCH_ENUM_MEMBER && error.notes.iter().any(|(note, _)| !note.is_none())
    };
    let may_be_missing = |error: &Diagnostic| {
        OF_A_NAME.contains(&error.code)
            && !has_declaration(error)
            && unread.as_ref().is_none_or(|words| {
                let name = sources.text(error.span).unwrap_or_default().trim_start_matches('.').trim_start();
                // If this is the use of a macro, the name that it expands to is unknown here.
                let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                !is_name || words.contains(name)
            })
    };
    let mut beside = sema::check(program, sources).diagnostics;
    beside.retain(|error| {
        error.severity == Severity::Error
            && !OF_WHAT_IS_MISSING.contains(&error.code)
            && !may_be_missing(error)
            && is_in(error.span, &sound)
            && !is_in(error.span, &broken)
            && !error.notes.iter().any(|(note, _)| is_in(*note, &broken))
    });
    beside
}

/// The names that occur outside these declarations; `None` if `##` may form further names there.
fn words_outside(decls: &[Span], sources: &SourceMap) -> Option<HashSet<Arc<str>>> {
    let mut by_file: HashMap<FileId, Vec<Span>> = HashMap::new();
    decls.iter().for_each(|decl| by_file.entry(decl.file).or_default().push(*decl));
    let mut words = HashSet::new();
    let mut interner = Interner::default();
    for (index, source) in sources.files().enumerate() {
        let file = FileId(index as u32);
        let mut here = by_file.remove(&file).unwrap_or_default();
        here.sort_unstable_by_key(|decl| decl.start);
        let end = source.text.len();
        let mut from = 0;
        for (start, next) in here.iter().map(|d| (d.start as usize, d.end as usize)).chain([(end, end)]) {
            if from < start {
                let mut lexer = Lexer::part(file, &source.text, from..start);
                loop {
                    let token = lexer.next(&mut interner);
                    match token.kind {
                        TokenKind::Eof => break,
                        TokenKind::HashHash => return None,
                        _ => words.extend(token.text),
                    }
                }
            }
            from = from.max(next);
        }
    }
    Some(words)
}

/// Whether a span is in a declaration or directly after it (where something is missing).
fn touches(decl: Span, place: Span) -> bool {
    decl.file == place.file && place.start <= decl.end && decl.start <= place.end
}

//! Preprocessor, lexer and parser: from P4_16 source text to the syntax tree.
//!
//! [`preprocess`] reads the main file and the files that it includes through a [`FileLoader`], lexes each file
//! ([`lexer`]) and produces one token sequence ([`token`]) whose spans point into the files; [`parser`] builds the tree
//! ([`ast`]). Every step returns its value *and* diagnostics; none fails or panics, whatever the text. The language is
//! that of the P4_16 specification, section "P4 grammar", with p4c's additions listed in `parser`.
//!
//! Not here: opening files and the embedded architecture files (left to the caller), name resolution and types
//! (`sema`).

pub mod ast;
mod braces;
pub mod codes;
pub mod dump;
mod foreign;
pub mod lexer;
pub mod loader;
pub mod parser;
pub mod preprocess;
pub mod token;

use base::{Diagnostic, SourceMap};

pub use loader::{FileLoader, MemoryLoader, Options, SourceInput};
pub use parser::parse;

/// The syntax tree of a program, and diagnostics.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The tree; complete only when no diagnostic is an error.
    pub program: ast::Program,
    /// Diagnostics of the preprocessor, then of the parser.
    pub diagnostics: Vec<Diagnostic>,
}

/// Preprocesses and parses a program; adds the files that are read to `sources`.
pub fn parse_program(
    source: SourceInput,
    options: &Options,
    loader: &dyn FileLoader,
    sources: &mut SourceMap,
) -> Parsed {
    if let Some((what, help)) = foreign::what(&source.text) {
        let file = sources.add(source.name.as_str(), source.text);
        let message = format!("`{}` is not a P4 program: it is {what}", source.name);
        let diagnostic = base::Diagnostic::error(codes::NOT_A_PROGRAM, base::Span::new(file, 0, 0), message).help(help);
        return Parsed { program: parser::parse(&[]).0, diagnostics: vec![diagnostic] };
    }
    let (mut tokens, mut diagnostics) = preprocess::preprocess(source, options, loader, sources);
    if let Some((closed, found)) = braces::close(&tokens, sources) {
        tokens = closed;
        diagnostics.extend(found);
    }
    let (program, found) = parser::parse(&tokens);
    diagnostics.extend(found);
    Parsed { program, diagnostics }
}

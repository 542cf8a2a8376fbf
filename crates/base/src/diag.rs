//! Diagnostics: what is wrong with a P4 program, where, and how to fix it.
//!
//! Every stage of the compiler returns its value *and* a list of diagnostics; none prints. A diagnostic has a stable
//! code (`E0123`/`W0012`, never reused), a primary span, secondary spans with their own text, and a help line. Codes
//! are grouped: 00xx preprocessor, 01xx lexer, 02xx parser, 03xx names, 04xx types, 05xx constants and instantiation,
//! 06xx lowering and architecture (also «not supported»), 07xx IR text and verifier, 08xx lints.

use crate::span::{SourceMap, Span};

/// The severity of a diagnostic. Only errors stop a compilation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Severity {
    /// The program is accepted but probably wrong.
    Warning,
    /// The program is rejected.
    Error,
}

/// A message about a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Stable code, such as `E0301`.
    pub code: &'static str,
    /// One sentence, lower case, no full stop, naming the object in «`ticks`».
    pub message: String,
    /// The primary span; `Span::NONE` if there is none.
    pub span: Span,
    /// Text under the primary caret; may be empty.
    pub label: String,
    /// Secondary spans that explain it (first declaration, origin of the expected type), each with its text.
    pub notes: Vec<(Span, String)>,
    /// How to fix it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error with a primary span.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code,
            message: message.into(),
            span,
            label: String::new(),
            notes: Vec::new(),
            help: None,
        }
    }

    /// A warning with a primary span.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Sets the text under the primary caret.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Adds a secondary span.
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.notes.push((span, text.into()));
        self
    }

    /// Sets the help line.
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Renders the diagnostic with source excerpts and carets; `colour` adds ANSI escape sequences.
    pub fn render(&self, sources: &SourceMap, colour: bool) -> String {
        crate::diag::render::render(self, sources, colour)
    }
}

/// Whether any diagnostic is an error.
pub fn has_errors(diags: &[Diagnostic]) -> bool {
    diags.iter().any(|d| d.severity == Severity::Error)
}

mod render;

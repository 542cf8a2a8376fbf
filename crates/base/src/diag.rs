//! Diagnostics: what is wrong with a P4 program, where, and what to do about it.
//!
//! Every stage of the compiler returns its value *and* a list of these; none prints. A diagnostic has a stable code
//! (`E0123`/`W0012`, never reused), one primary place, secondary places with their own text, and a help line. Codes are
//! grouped: 00xx preprocessor, 01xx lexer, 02xx parser, 03xx names, 04xx types, 05xx constants and instantiation,
//! 06xx lowering and architecture (also «not supported»), 07xx IR text and verifier, 08xx what is allowed and bites.

use crate::span::{SourceMap, Span};

/// How bad it is. Only errors stop a compilation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Severity {
    /// The program is accepted; something likely bites.
    Warning,
    /// The program is refused.
    Error,
}

/// One message about a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Stable code, as `E0301`.
    pub code: &'static str,
    /// One sentence, lower case, no full stop, naming the object in «`ticks`».
    pub message: String,
    /// The primary place; `Span::NONE` when there is none.
    pub span: Span,
    /// Text under the primary caret; may be empty.
    pub label: String,
    /// Other places that explain it (first declaration, expected type's origin).
    pub notes: Vec<(Span, String)>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error with a primary place.
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

    /// A warning with a primary place.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Sets the text under the primary caret.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Adds another place.
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.notes.push((span, text.into()));
        self
    }

    /// Sets the help line.
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Renders with source excerpt and caret, as compilers do; `colour` adds ANSI escapes.
    pub fn render(&self, sources: &SourceMap, colour: bool) -> String {
        crate::diag::render::render(self, sources, colour)
    }
}

/// Whether any of them is an error.
pub fn has_errors(diags: &[Diagnostic]) -> bool {
    diags.iter().any(|d| d.severity == Severity::Error)
}

mod render;

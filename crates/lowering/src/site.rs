//! Places in the source that the runtime's calls name.

use base::Span;

/// What a log or assertion site is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SiteKind {
    /// `Op::Log`: the arguments' widths; each takes `ceil(width / 64)` words of the call.
    Log {
        /// Bits of each argument.
        arg_widths: Vec<u32>,
    },
    /// `Op::Assert`.
    Assert,
}

/// A log or assertion site; the runtime's calls give its index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// What it is.
    pub kind: SiteKind,
    /// The format string with `{}` per argument, or the assertion's text.
    pub text: String,
    /// Where it stands in the source.
    pub span: Span,
}

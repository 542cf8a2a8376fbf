//! Log and assertion sites: source positions to which the runtime's calls refer.

use base::Span;

/// The kind of a site.
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

/// A log or assertion site; the runtime's calls refer to it by index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Its kind.
    pub kind: SiteKind,
    /// The format string with `{}` per argument, or the assertion's text.
    pub text: String,
    /// Source position.
    pub span: Span,
}

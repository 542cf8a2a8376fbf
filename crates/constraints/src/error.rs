//! The error type of this crate: why a text is not a constraint, and where.

use std::ops::Range;

/// Why a text is not a constraint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Byte range in the text.
    pub place: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// How to correct it, if that is known.
    pub help: Option<String>,
}

impl Error {
    pub(crate) fn new(place: Range<usize>, message: impl Into<String>) -> Error {
        Error { place, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }
}

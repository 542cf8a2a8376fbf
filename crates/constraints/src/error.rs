//! Why a text is no constraint, and where.

use std::ops::Range;

/// Why a text is no constraint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Bytes of the text.
    pub place: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What would be right, if that is known.
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

//! The result type of decoding and encoding.

use crate::error::{Error, ErrorKind};

/// The result of decoding or encoding part of a message.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An error, as a result.
pub(crate) fn fail<T>(kind: ErrorKind, text: impl Into<String>) -> Result<T> {
    Err(Error::new(kind, text))
}

/// The error for what a version or format cannot express.
pub(crate) fn unencodable<T>(text: impl Into<String>) -> Result<T> {
    fail(ErrorKind::NxbrcUnencodableError, text)
}

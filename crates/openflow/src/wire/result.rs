//! What reading and writing give.

use crate::error::{Error, ErrorKind};

/// What reading or writing a part of a message gives.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An error.
pub(crate) fn fail<T>(kind: ErrorKind, text: impl Into<String>) -> Result<T> {
    Err(Error::new(kind, text))
}

/// What cannot be said in a version or format.
pub(crate) fn unencodable<T>(text: impl Into<String>) -> Result<T> {
    fail(ErrorKind::NxbrcUnencodableError, text)
}

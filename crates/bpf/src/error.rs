//! Errors of loading objects and programs, and of accessing maps.

use thiserror::Error;

/// Why an object file was refused. A message says what is wrong, where, and how to fix it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct Error(pub(crate) String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }
}

/// Why a program was not loaded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum VerifyError {
    /// The object has no such program, or the program cannot be linked.
    #[error(transparent)]
    Object(#[from] Error),
    /// A map cannot be created.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The verifier refused the program.
    #[error("{place}: `{instruction}`: {reason}")]
    Refused {
        /// Number of the instruction, in units of eight bytes from the start of the linked program.
        number: usize,
        /// Function, number of the instruction within it, and section with offset.
        place: String,
        /// The instruction as text.
        instruction: String,
        /// The register concerned, and why.
        reason: String,
    },
    /// The program was verified but could not be compiled.
    #[error("machine code: {0}")]
    Compile(String),
}

/// Why an access to a map was refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MapError {
    /// No map has this name.
    #[error("there is no map `{name}`; maps of this program: {known}")]
    Unknown {
        /// The name requested.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A key or value has a different size than the map's.
    #[error("map `{map}`: the {what} has {found} bytes, the map's have {expected}")]
    Size {
        /// The map.
        map: String,
        /// `key` or `value`.
        what: &'static str,
        /// Bytes given.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The map cannot have this key.
    #[error("map `{map}`: {reason}")]
    Key {
        /// The map.
        map: String,
        /// What is wrong with the key.
        reason: String,
    },
    /// The map is full.
    #[error("map `{map}` is full: it has {max} entries (`max_entries`)")]
    Full {
        /// The map.
        map: String,
        /// Its maximum number of entries.
        max: u32,
    },
    /// The entry exists although it must not, or does not exist although it must.
    #[error("map `{map}`: the key {}", if *.exists { "exists already" } else { "does not exist" })]
    Exists {
        /// The map.
        map: String,
        /// Whether the key exists.
        exists: bool,
    },
    /// The map's type does not support the operation.
    #[error("map `{map}`: {reason}")]
    Unsupported {
        /// The map.
        map: String,
        /// Why.
        reason: String,
    },
}

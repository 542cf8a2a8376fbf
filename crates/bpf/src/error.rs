//! Why an object, a program or an access to a map was refused.

use thiserror::Error;

/// Why an object file was refused. Every message says what, where and the remedy.
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
    /// The object has no such program, or it cannot be linked.
    #[error(transparent)]
    Object(#[from] Error),
    /// A map cannot be made.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The program could do something that it must not do.
    #[error("{place}: `{instruction}`: {reason}")]
    Refused {
        /// Number of the instruction, counted in units of eight bytes from the start of the linked program.
        number: usize,
        /// Function, number of the instruction in it, and section with offset.
        place: String,
        /// The instruction as text.
        instruction: String,
        /// The register concerned, and why.
        reason: String,
    },
    /// The program was verified but could not be translated to machine code.
    #[error("machine code: {0}")]
    Compile(String),
}

/// Why an access to a map was refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MapError {
    /// There is no map of this name.
    #[error("there is no map `{name}`; maps of this program: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A key or value has another size than the map's.
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
    /// A key that the map can never have.
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
        /// Its bound.
        max: u32,
    },
    /// The entry exists and must not, or does not and must.
    #[error("map `{map}`: the key {}", if *.exists { "exists already" } else { "does not exist" })]
    Exists {
        /// The map.
        map: String,
        /// Whether the key exists.
        exists: bool,
    },
    /// The operation is not one for this type of map.
    #[error("map `{map}`: {reason}")]
    Unsupported {
        /// The map.
        map: String,
        /// Why.
        reason: String,
    },
}

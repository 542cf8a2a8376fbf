//! Reasons for refusing a megaflow.

/// The reason for which a megaflow was not inserted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The mask is longer than the window.
    #[error("the pattern has {bytes} bytes; a megaflow compares the first {}", crate::path::WINDOW)]
    Window {
        /// Length of the mask.
        bytes: usize,
    },
    /// The value does not fit the mask.
    #[error("byte {byte} of the pattern's value is missing, or has bits outside of the mask")]
    Value {
        /// The first such byte.
        byte: usize,
    },
    /// The range of lengths is empty, or has only frames of 65,535 bytes and more.
    #[error("the pattern is for frames of {shortest} to {longest} bytes")]
    Lengths {
        /// Minimum length in bytes.
        shortest: u32,
        /// Maximum length in bytes.
        longest: u32,
    },
    /// The rewrite covers bytes that some frames of the pattern do not have.
    #[error("the rewriting needs {needs} bytes; frames of the pattern have {shortest} at least")]
    Short {
        /// Number of bytes that the rewrite needs.
        needs: usize,
        /// Minimum length of a frame in bytes.
        shortest: u32,
    },
    /// The mask is new, there are [`MASKS_MAX`](super::MASKS_MAX) others, and each has more megaflows than can be
    /// evicted at once.
    #[error("there are {} masks; one of them is being evicted", super::MASKS_MAX)]
    Masks,
}

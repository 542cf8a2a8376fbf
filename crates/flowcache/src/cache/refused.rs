//! Why a megaflow is refused.

/// Why a megaflow has not been inserted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// A mask of more bytes than the window.
    #[error("the pattern has {bytes} bytes; a megaflow compares the first {}", crate::path::WINDOW)]
    Window {
        /// Bytes of the mask.
        bytes: usize,
    },
    /// A value that is not of the mask.
    #[error("byte {byte} of the pattern's value is missing, or has bits outside of the mask")]
    Value {
        /// The first such byte.
        byte: usize,
    },
    /// No frame has such a length, or only frames of 65,535 bytes and more.
    #[error("the pattern is for frames of {shortest} to {longest} bytes")]
    Lengths {
        /// Bytes at least.
        shortest: u32,
        /// Bytes at most.
        longest: u32,
    },
    /// A rewriting of bytes that some frames of the pattern do not have.
    #[error("the rewriting needs {needs} bytes; frames of the pattern have {shortest} at least")]
    Short {
        /// Bytes that the rewriting needs.
        needs: usize,
        /// Bytes that a frame has at least.
        shortest: u32,
    },
    /// A further mask, and all others have more megaflows than can be evicted at once.
    #[error("there are {} masks; one of them is being evicted", super::MASKS_MAX)]
    Masks,
}

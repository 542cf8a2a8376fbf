//! Errors of mapping a peer's memory.

use crate::room::{NotAdmitted, Shortage};
use std::io;

/// Why a file was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file is not memory: a device, a pipe, a socket, or a file on disk.
    #[error("its file is not in memory (it must be a memfd, or a file of tmpfs or hugetlbfs)")]
    NotMemory,
    /// The file ends before the requested range does.
    #[error("the region ends at byte {end} of its file, which has {file}")]
    BeyondFile {
        /// End of the range: an offset in the file, in bytes.
        end: u64,
        /// Length of the file in bytes.
        file: u64,
    },
    /// The range is empty, or its end overflows.
    #[error("the region is empty or its end overflows")]
    BadRange,
    /// The owner's quota of mappings is used up.
    #[error("more than {most} regions are mapped for this port at a time")]
    Quota {
        /// The quota, in mappings.
        most: usize,
    },
    /// The quotas of all owners exceed what a process can guard.
    #[error("this process cannot guard more shared memory: it has as many ports with peers as it can serve")]
    TooMany,
    /// There is not enough memory for pages that are not allocated yet, or that
    /// the peer may free and have allocated again.
    #[error("{0}")]
    NoRoom(#[from] Shortage),
    /// A system call failed.
    #[error("the kernel refuses to map it: {0}")]
    System(#[from] io::Error),
}

impl From<NotAdmitted> for MapError {
    fn from(reason: NotAdmitted) -> MapError {
        match reason {
            NotAdmitted::NoRoom(shortage) => MapError::NoRoom(shortage),
            NotAdmitted::NotMemory => MapError::NotMemory,
            NotAdmitted::TooMany(most) => MapError::Quota { most },
            NotAdmitted::BeyondFile { end, file } => MapError::BeyondFile { end, file },
            reason @ NotAdmitted::TooMuch(_) => MapError::System(std::io::Error::other(reason)),
            NotAdmitted::NoAnswer(error) => MapError::System(error),
        }
    }
}

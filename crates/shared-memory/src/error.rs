//! Why memory is not mapped.

use crate::room::Shortage;
use std::io;

/// Why a file was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Not memory: a device, a pipe, a socket, or a file on a disk.
    #[error("its file is not in memory (it must be a memfd, or a file of tmpfs or hugetlbfs)")]
    NotMemory,
    /// The file ends before the range does.
    #[error("the region ends at byte {end} of its file, which has {file}")]
    BeyondFile {
        /// Where the range would end.
        end: u64,
        /// How long the file is.
        file: u64,
    },
    /// The range is empty, or its end is no number.
    #[error("the region is empty or its end overflows")]
    BadRange,
    /// The owner has as many mappings as its quota says.
    #[error("more than {most} regions are mapped for this port at a time")]
    Quota {
        /// What the quota says.
        most: usize,
    },
    /// The quotas of all owners are more than a process can have.
    #[error("this process cannot guard more shared memory: it has as many ports with peers as it can serve")]
    TooMany,
    /// There is no memory for pages that are not allocated yet, or that the peer may free and have allocated again.
    #[error("{0}")]
    NoRoom(#[from] Shortage),
    /// The kernel refused.
    #[error("the kernel refuses to map it: {0}")]
    System(#[from] io::Error),
}

//! What a peer's file is, as far as the kernel says without asking the server of a file system.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// As much memory as is freed at once: within a few milliseconds, in pages of 4 KB.
pub(crate) const QUICK_BYTES: usize = 32 << 20;

/// Whether closing a file in memory may free more than [`QUICK_BYTES`].
pub(crate) fn is_large(file: BorrowedFd<'_>) -> bool {
    about(file).is_none_or(|about| allocated(&about) > QUICK_BYTES as u64)
}

/// Which file it is, as long as it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    pub(crate) fn of(file: BorrowedFd<'_>) -> FileId {
        about(file).map_or_else(FileId::default, |about| FileId { device: about.st_dev, number: about.st_ino })
    }
}

/// Bytes of a file in memory that are not allocated, as far as its size and what is allocated say.
pub(crate) fn holes(file: BorrowedFd<'_>) -> u64 {
    let holes = |about: libc::stat| u64::try_from(about.st_size).unwrap_or(0).saturating_sub(allocated(&about));
    about(file).map_or(u64::MAX, holes)
}

/// Blocks are of 512 bytes, whatever the file system says.
fn allocated(about: &libc::stat) -> u64 {
    u64::try_from(about.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// Whether a file in memory can grow no more.
pub(crate) fn cannot_grow(file: BorrowedFd<'_>) -> bool {
    // SAFETY: asks for flags.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) & libc::F_SEAL_GROW != 0 }
}

fn about(file: BorrowedFd<'_>) -> Option<libc::stat> {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes a `stat`, for which all zeros is valid too.
    unsafe { (libc::fstat(file.as_raw_fd(), about.as_mut_ptr()) == 0).then(|| about.assume_init()) }
}

/// Whether a file is in memory: a memfd, or a file of tmpfs or hugetlbfs. Only these have seals (`fcntl(2)`), and the question
/// is answered by the kernel alone; every other one about a file may wait for the server of its file system.
pub(crate) fn is_memory(file: impl AsFd) -> bool {
    // SAFETY: asks for flags.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GET_SEALS) >= 0 }
}

//! Properties of a peer's file that the kernel knows without asking a file system's server.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The most memory that may be freed at once, in bytes: in pages of 4 KB this takes a few milliseconds.
pub(crate) const QUICK_BYTES: usize = 32 << 20;

/// Whether closing a file in memory may free more than [`QUICK_BYTES`].
pub(crate) fn is_large(file: BorrowedFd<'_>) -> bool {
    about(file).is_none_or(|about| allocated(&about) > QUICK_BYTES as u64)
}

/// Identifies a file as long as it exists: device and inode number.
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

/// Bytes of a file in memory that are not allocated: its size less its allocated blocks.
pub(crate) fn holes(file: BorrowedFd<'_>) -> u64 {
    let holes = |about: libc::stat| u64::try_from(about.st_size).unwrap_or(0).saturating_sub(allocated(&about));
    about(file).map_or(u64::MAX, holes)
}

/// Size of a file in bytes; 0 if the kernel does not tell.
pub(crate) fn size(file: BorrowedFd<'_>) -> u64 {
    about(file).map_or(0, |about| u64::try_from(about.st_size).unwrap_or(0))
}

/// Allocated bytes. `st_blocks` counts units of 512 bytes, whatever the file system's block size.
fn allocated(about: &libc::stat) -> u64 {
    u64::try_from(about.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// Whether a file in memory is sealed against growing.
pub(crate) fn cannot_grow(file: BorrowedFd<'_>) -> bool {
    // SAFETY: reads flags; no pointers are passed.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) & libc::F_SEAL_GROW != 0 }
}

/// Whether a file in memory is sealed against shrinking, so that its mappings never lose a page.
pub(crate) fn cannot_shrink(file: BorrowedFd<'_>) -> bool {
    // SAFETY: reads flags; no pointers are passed.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn about(file: BorrowedFd<'_>) -> Option<libc::stat> {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes a `stat`, for which all zeros is valid too.
    unsafe { (libc::fstat(file.as_raw_fd(), about.as_mut_ptr()) == 0).then(|| about.assume_init()) }
}

/// Whether a file is in memory: a memfd, or a file of tmpfs or hugetlbfs. Only these have seals (`fcntl(2)`), and the
/// kernel alone answers this query; any other query about a file may wait for its file system's server.
pub(crate) fn is_memory(file: impl AsFd) -> bool {
    // SAFETY: reads flags; no pointers are passed.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GET_SEALS) >= 0 }
}

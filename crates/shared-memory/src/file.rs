//! What a peer's file is, as far as the kernel says without asking the server of a file system.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// As much memory as is freed at once: within a few milliseconds, in pages of 4 KB.
pub(crate) const QUICK_BYTES: usize = 32 << 20;

/// Whether closing a file in memory may free more than [`QUICK_BYTES`].
pub(crate) fn is_large(file: BorrowedFd<'_>) -> bool {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes a `stat`, for which all zeros is valid too.
    let blocks = unsafe {
        if libc::fstat(file.as_raw_fd(), about.as_mut_ptr()) != 0 {
            return true;
        }
        about.assume_init().st_blocks
    };
    // Blocks are of 512 bytes, whatever the file system says.
    u64::try_from(blocks).unwrap_or(0).saturating_mul(512) > QUICK_BYTES as u64
}

/// Whether a file is in memory: a memfd, or a file of tmpfs or hugetlbfs. Only these have seals (`fcntl(2)`), and the question
/// is answered by the kernel alone; every other one about a file may wait for the server of its file system.
pub(crate) fn is_memory(file: impl AsFd) -> bool {
    // SAFETY: asks for flags.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GET_SEALS) >= 0 }
}

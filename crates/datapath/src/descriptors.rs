//! Closes file descriptors that a child process inherits unintentionally.
//!
//! Rust opens everything with close-on-exec; DPDK and its libraries do not. A child that holds a port's socket open
//! hides from the peer that the switch has closed it.
//!
//! Tests: `crates/sluice/tests/compiler.rs`.
#![allow(unsafe_code)]

/// Closes all descriptors but the standard ones. To be called first in `main`: does nothing once there is a second
/// thread, which may have opened something.
pub fn close_inherited() {
    const FIRST: libc::c_uint = 3;
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads == 1 {
        // SAFETY: the process has just started, with this thread alone, and has opened nothing of its own, so no
        // object owns one of these.
        unsafe { libc::close_range(FIRST, libc::c_uint::MAX, 0) };
    }
}

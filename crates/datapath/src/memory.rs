//! When freed memory goes back to the system.
//!
//! Unmapping pages interrupts every processor that runs a thread of the process, workers included. mimalloc returns freed memory
//! after a short delay and in small pieces: while a controller wrote a million entries, each worker was interrupted some hundred
//! times a second, for ten microseconds and more on a virtual machine, and packets were lost. So freed memory is kept for the
//! next request, and goes back all at once when that disturbs least: after a program was compiled ([`returning`]), and when
//! few changes come in ([`Quiet`]). Arrays of tables are not the allocator's (`tables::region`) and go back when they are freed.
//!
//! What programs' state may take at most is in [`budget`].
//!
//! Tests: at the end, and `tests/memory.rs`. Measured with `sluice bench --control --packets`: interrupts of the worker's processor.
#![allow(unsafe_code)]

mod budget;
mod process;

pub(crate) use budget::entry_fits;
pub use budget::{Reservation, half_of_memory, limit_cells, limit_entries};
pub use process::{give_back, resident_bytes};

use libmimalloc_sys::{mi_option_set, mi_option_t};
use std::time::{Duration, Instant};

/// `mi_option_purge_delay` of mimalloc 2 and 3: milliseconds until freed memory goes back, -1 for never.
pub const PURGE_DELAY: mi_option_t = 15;
/// Longer than any process runs. Not "never": mimalloc keeps no account of what is freed under that, so `mi_collect` could not
/// return it.
pub const KEPT_MS: std::ffi::c_long = 1 << 40;
/// mimalloc reads this variable itself; it takes precedence.
const VARIABLE: &str = "MIMALLOC_PURGE_DELAY";

/// Keeps freed memory until [`give_back`], if mimalloc is the allocator and the environment does not say otherwise.
pub fn keep_freed() {
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: sets an option that exists; mimalloc reads options at any time.
        unsafe { mi_option_set(PURGE_DELAY, KEPT_MS) };
    }
}

/// Runs `work` and then gives freed memory back, also after a panic: compiling a program takes far more than requests do.
pub fn returning<R>(work: impl FnOnce() -> R) -> R {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            give_back();
        }
    }
    let _end = End;
    work()
}

/// Decides when freed memory goes back in a running switch: when a window of time had few changes and the process has grown.
#[derive(Debug)]
pub struct Quiet {
    window_begin: Instant,
    changes_then: u64,
    /// Bytes of the process in memory when it was given back last.
    resident_then: u64,
}

impl Quiet {
    /// The length of a window.
    pub const WINDOW: Duration = Duration::from_secs(10);
    /// Changes in a window that are few: a controller that is not loading a table.
    pub const CHANGES_FEW: u64 = 10;
    /// Growth in bytes that is worth an interruption.
    pub const GROWTH_MIN: u64 = 32 << 20;

    /// Begins a window. `changes` is a count that only grows; `resident` the bytes of the process in memory.
    pub fn new(now: Instant, changes: u64, resident: u64) -> Quiet {
        Quiet { window_begin: now, changes_then: changes, resident_then: resident }
    }

    /// Whether it is time. `resident` is asked at the end of a window only.
    pub fn is_due(&mut self, now: Instant, changes: u64, resident: impl FnOnce() -> u64) -> bool {
        if now.duration_since(self.window_begin) < Self::WINDOW {
            return false;
        }
        let few = changes.saturating_sub(self.changes_then) <= Self::CHANGES_FEW;
        (self.window_begin, self.changes_then) = (now, changes);
        few && resident() > self.resident_then + Self::GROWTH_MIN
    }

    /// Memory was given back; so much is left.
    pub fn given_back(&mut self, resident: u64) {
        self.resident_then = resident;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_after_a_window_with_few_changes_if_the_process_has_grown() {
        const MB: u64 = 1 << 20;
        let begin = Instant::now();
        let after = |windows: u32| begin + Quiet::WINDOW * windows;
        let mut quiet = Quiet::new(begin, 0, 100 * MB);
        assert!(!quiet.is_due(begin + Quiet::WINDOW / 2, 0, || panic!("the window is not over")));
        assert!(!quiet.is_due(after(1), 10_000, || panic!("writes go on")));
        assert!(!quiet.is_due(after(2), 10_001, || 110 * MB), "too little to interrupt anybody");
        assert!(quiet.is_due(after(3), 10_002, || 500 * MB));
        quiet.given_back(480 * MB);
        assert!(!quiet.is_due(after(4), 10_002, || 490 * MB), "what is left is in use");
        assert!(quiet.is_due(after(5), 10_002, || 520 * MB));
    }
}

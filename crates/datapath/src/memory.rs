//! Controls when freed memory is returned to the system.
//!
//! Unmapping pages interrupts every processor that runs a thread of the process (TLB shootdown), workers included.
//! mimalloc returns freed memory after a short delay and in small pieces: while a controller wrote a million entries,
//! each worker was interrupted some hundred times a second, for ten microseconds and more on a virtual machine, and
//! packets were lost. So freed memory is kept for reuse, and returned all at once when that disturbs least: after
//! compiling a program ([`returning`]), and when there are few changes ([`Quiet`]). Tables' arrays do not use the
//! allocator (`tables::region`) and are returned when freed.
//!
//! Limits on the memory of programs' state are in [`budget`].
//!
//! Tests: at the end, and `tests/memory.rs`. Measured with `sluice bench --control --packets`: interrupts of the
//! worker's processor.
#![allow(unsafe_code)]

mod budget;
mod process;

pub(crate) use budget::entry_fits;
pub use budget::{Reservation, half_of_memory, limit_cells, limit_entries};
pub use process::{give_back, resident_bytes};

use libmimalloc_sys::{mi_option_set, mi_option_t};
use std::time::{Duration, Instant};

/// `mi_option_purge_delay` of mimalloc 2 and 3: milliseconds until freed memory is returned, -1 for never.
pub const PURGE_DELAY: mi_option_t = 15;
/// Longer than any process runs, in milliseconds. Not "never": with that, mimalloc does not track freed memory, so
/// `mi_collect` could not return it.
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

/// Runs `work` and then returns freed memory, also after a panic: compiling a program takes far more memory than
/// requests do.
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

/// Decides when freed memory is returned in a running switch: after a time window with few changes in which the
/// process has grown.
#[derive(Debug)]
pub struct Quiet {
    window_begin: Instant,
    changes_then: u64,
    /// Resident bytes of the process when memory was last returned.
    resident_then: u64,
}

impl Quiet {
    /// The length of a window.
    pub const WINDOW: Duration = Duration::from_secs(10);
    /// Most changes in a window that count as few: a controller that is not loading a table.
    pub const CHANGES_FEW: u64 = 10;
    /// Growth in bytes that justifies interrupting workers.
    pub const GROWTH_MIN: u64 = 32 << 20;

    /// Begins a window. `changes` is a monotonic count of changes; `resident` is the process's resident bytes.
    pub fn new(now: Instant, changes: u64, resident: u64) -> Quiet {
        Quiet { window_begin: now, changes_then: changes, resident_then: resident }
    }

    /// Whether to return memory now. `resident` is called only at the end of a window.
    pub fn is_due(&mut self, now: Instant, changes: u64, resident: impl FnOnce() -> u64) -> bool {
        if now.duration_since(self.window_begin) < Self::WINDOW {
            return false;
        }
        let few = changes.saturating_sub(self.changes_then) <= Self::CHANGES_FEW;
        (self.window_begin, self.changes_then) = (now, changes);
        few && resident() > self.resident_then + Self::GROWTH_MIN
    }

    /// Notes that memory was returned and `resident` bytes remain.
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

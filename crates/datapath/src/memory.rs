//! What the allocator must not do while workers run.
//!
//! Memory that goes back to the system is taken out of the page tables, and every processor that runs a thread of the process is
//! interrupted for that, workers, too. mimalloc gives back what was freed a while ago, in small pieces: a controller that writes a million
//! entries made it interrupt each worker some hundred times a second, for ten microseconds and more on a virtual machine, and
//! packets were lost. So what is freed stays with the process, for the next request. That is what requests took at most at a time;
//! arrays of tables are not the allocator's (`tables::region`) and do go back.
//!
//! Compiling a program takes far more than requests do, once, so what it used does go back when it is over
//! ([`returning`]): in large pieces, together. What was freed before and by others stays.
//!
//! Tests: at the end. What it is worth: `sluice bench --control --packets`, interrupts of the worker's processor.
#![allow(unsafe_code)]

use libmimalloc_sys::{mi_collect, mi_option_get, mi_option_set, mi_option_t};
use std::sync::{Mutex, PoisonError};

/// `mi_option_purge_delay` of mimalloc 2 and 3: milliseconds until freed memory goes back, -1 for never.
const PURGE_DELAY: mi_option_t = 15;
const NEVER: std::ffi::c_long = -1;
/// Who says otherwise is obeyed: mimalloc reads it itself.
const VARIABLE: &str = "MIMALLOC_PURGE_DELAY";

/// Freed memory stays with the process from now on, if mimalloc is its allocator and the environment does not say otherwise.
pub fn keep_freed() {
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: an option that exists is set; mimalloc reads options at any time.
        unsafe { mi_option_set(PURGE_DELAY, NEVER) };
    }
}

/// How long freed memory waits for more to go back with it, while [`returning`] runs: as long as most programs take to compile.
const TOGETHER_MS: std::ffi::c_long = 1000;

/// How many calls of [`returning`] run.
static RETURNING: Mutex<u32> = Mutex::new(0);

/// Runs `work`, and gives the memory that it has taken and freed back to the system when it is over. Without effect unless
/// [`keep_freed`] is in force. What other threads free meanwhile may go back as well.
pub fn returning<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: reads an option.
    let is_kept = unsafe { mi_option_get(PURGE_DELAY) } == NEVER;
    let mut running = RETURNING.lock().unwrap_or_else(PoisonError::into_inner);
    if *running == 0 && !is_kept {
        drop(running);
        return work();
    }
    *running += 1;
    // SAFETY: an option that exists is set.
    unsafe { mi_option_set(PURGE_DELAY, TOGETHER_MS) };
    drop(running);
    let _end = End;
    work()
}

/// The end of [`returning`], also by a panic.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let mut running = RETURNING.lock().unwrap_or_else(PoisonError::into_inner);
        *running -= 1;
        // SAFETY: gives back what nobody uses; then an option that exists is set.
        unsafe {
            mi_collect(true);
            if *running == 0 {
                mi_option_set(PURGE_DELAY, NEVER);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::{mi_free, mi_malloc};

    fn purge_delay_ms() -> std::ffi::c_long {
        // SAFETY: reads an option.
        unsafe { mi_option_get(PURGE_DELAY) }
    }

    /// The option's number is mimalloc's, which may number others one day: its default tells that it is this one.
    #[test]
    fn it_is_the_purge_delay_that_is_set() {
        if std::env::var_os(VARIABLE).is_some() {
            return;
        }
        // Of version 2 and of version 3.
        const DEFAULTS_MS: [std::ffi::c_long; 2] = [10, 1000];
        assert!(DEFAULTS_MS.contains(&purge_delay_ms()), "{}", purge_delay_ms());
        keep_freed();
        assert_eq!(purge_delay_ms(), NEVER);
        what_a_compilation_used_goes_back_and_what_requests_used_stays();
    }

    /// Megabytes of the process that are in memory.
    fn resident_mb() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages: u64 = pages.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
        (pages * 4096) >> 20
    }

    /// Takes so many megabytes in small pieces, writes to them and frees them.
    fn use_memory(mb: usize) {
        const PIECE: usize = 4000;
        // SAFETY: each piece is written where it is, and freed once.
        unsafe {
            let pieces: Vec<_> = (0..(mb << 20) / PIECE).map(|_| mi_malloc(PIECE)).collect();
            pieces.iter().for_each(|piece| piece.cast::<u8>().write_bytes(1, PIECE));
            pieces.into_iter().for_each(|piece| mi_free(piece));
        }
    }

    /// Behind the other one, which begins with the default.
    fn what_a_compilation_used_goes_back_and_what_requests_used_stays() {
        let before = resident_mb();
        returning(|| use_memory(200));
        let after = resident_mb();
        assert!(after < before + 60, "{after} MB after it, {before} before");
        use_memory(200);
        let kept = resident_mb();
        assert!(kept > before + 140, "{kept} MB are kept, {before} before");
        assert_eq!(purge_delay_ms(), NEVER);
    }
}

//! What the allocator must not do while workers run.
//!
//! Memory that goes back to the system is taken out of the page tables, and every processor that runs a thread of the process is
//! interrupted for that, workers, too. mimalloc gives back what was freed a while ago, in small pieces: a controller that writes a million
//! entries made it interrupt each worker some hundred times a second, for ten microseconds and more on a virtual machine, and
//! packets were lost. So what is freed stays with the process, for the next request. That is what requests took at most at a time;
//! arrays of tables are not the allocator's (`tables::region`) and do go back.
//!
//! Tests: at the end. What it is worth: `sluice bench --control --packets`, interrupts of the worker's processor.
#![allow(unsafe_code)]

use libmimalloc_sys::{mi_option_set, mi_option_t};

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

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::mi_option_get;

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
    }
}

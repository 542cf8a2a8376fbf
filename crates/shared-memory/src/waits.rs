//! Whether a thread has blocked in the kernel.
//!
//! An access to a peer's page blocks while the peer punches a hole around it (`shmem_fault`), and the SIGBUS
//! handler's `mmap` blocks while the peer truncates the file. Neither is a system call that the thread makes for
//! the peer, so only the kernel's counters show it: a *voluntary context switch* is a thread that blocks, an
//! involuntary one a thread that is preempted.
//!
//! Threads: any; the counts are of the thread that asks. Tests: below.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::thread::ThreadId;

/// How often a thread has blocked so far.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    thread: ThreadId,
    count: i64,
}

impl Waits {
    /// The count of the calling thread. Makes one system call, which does not block.
    pub fn now() -> Waits {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: a structure of the right size to write to; all zeros, which it
        // keeps in case of an error, is a valid one.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        Waits { thread: std::thread::current().id(), count: usage.ru_nvcsw }
    }

    /// Whether the thread has blocked since `before`; false if `before` is of another thread.
    pub fn is_after_waiting_since(&self, before: &Waits) -> bool {
        self.thread == before.thread && self.count > before.count
    }
}

#[cfg(test)]
mod tests {
    use super::Waits;
    use std::time::Duration;

    #[test]
    fn who_sleeps_has_waited_and_others_have_not() {
        let before = Waits::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = Waits::now();
                std::thread::sleep(Duration::from_millis(1));
                assert!(Waits::now().is_after_waiting_since(&own));
                assert!(!Waits::now().is_after_waiting_since(&before), "of another thread");
            });
        });
        // Waiting for the other thread counts; a count is not after itself.
        let now = Waits::now();
        assert!(now.is_after_waiting_since(&before) && !now.is_after_waiting_since(&now));
    }
}

//! The kernel's counts for a thread: waits, page faults and processor time.
//!
//! An access to a peer's page blocks while the peer punches a hole around it (`shmem_fault`), and the `mmap` in the
//! SIGBUS handler blocks while the peer truncates the file. The code that accesses the page sees neither, but the
//! kernel counts both: a *voluntary context switch* means that the thread waited, an involuntary one that it was
//! preempted. A page that has to be cleared first (a huge page takes a tenth of a millisecond and more) shows as a page
//! fault and as processor time.
//!
//! Threads: any; the counts are the calling thread's. Tests: below.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::time::Duration;

/// Counts of a thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Voluntary context switches: how often it has waited.
    pub waits: u64,
    /// Page faults, minor and major.
    pub faults: u64,
    /// Of these, those that read the page from a disk.
    pub major_faults: u64,
    /// Processor time in user and kernel mode.
    pub time: Duration,
}

impl Usage {
    /// The calling thread's counts. Makes two system calls, which do not block.
    ///
    /// `getrusage` has the processor time of the last timer tick, milliseconds ago; so that is read from the thread's clock.
    pub fn now() -> Usage {
        let (mut usage, mut time) = (MaybeUninit::<libc::rusage>::zeroed(), MaybeUninit::<libc::timespec>::zeroed());
        // SAFETY: the pointers are to structures of these types; all zeros, which they keep if a call fails, are valid
        // values.
        let (usage, time) = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr());
            (usage.assume_init(), time.assume_init())
        };
        Usage {
            waits: usage.ru_nvcsw as u64,
            faults: (usage.ru_minflt + usage.ru_majflt) as u64,
            major_faults: usage.ru_majflt as u64,
            time: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Usage;
    use std::time::{Duration, Instant};

    #[test]
    fn who_sleeps_has_waited_and_who_computes_has_used_time() {
        let before = Usage::now();
        std::thread::sleep(Duration::from_millis(1));
        assert!(Usage::now().waits > before.waits);
        let start = Instant::now();
        while Usage::now().time < before.time + Duration::from_millis(2) {
            assert!(start.elapsed() < Duration::from_secs(120));
        }
        let pages = vec![1u8; 1 << 22];
        assert!(Usage::now().faults > before.faults && pages[1 << 21] == 1);
    }
}

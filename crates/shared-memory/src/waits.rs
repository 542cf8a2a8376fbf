//! What the kernel has counted for a thread: waits, page faults, processor time.
//!
//! An access to a peer's page waits while the peer punches a hole around it (`shmem_fault`), and the SIGBUS handler's `mmap` waits
//! while the peer truncates the file. Neither is a system call that the thread makes for the peer, so nothing tells but what the
//! kernel counts: a *voluntary context switch* is a thread that waits, an involuntary one a thread that another one displaces. A
//! page that has to be cleared first (a huge one takes a tenth of a millisecond and more) is a fault and processor time.
//!
//! Threads: any; the counts are of the thread that asks. Tests: below.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::time::Duration;

/// What a thread has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How often it has waited.
    pub waits: u64,
    /// Page faults.
    pub faults: u64,
    /// Processor time, its own and the kernel's for it.
    pub time: Duration,
}

impl Usage {
    /// Of the calling thread. One system call, which does not wait.
    pub fn now() -> Usage {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: a structure of the right size to write to; all zeros, which it keeps in case of an error, is a valid one.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Usage {
            waits: usage.ru_nvcsw as u64,
            faults: (usage.ru_minflt + usage.ru_majflt) as u64,
            time: of(usage.ru_utime) + of(usage.ru_stime),
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

//! A time limit for calls that access a peer's memory.
//!
//! Each access to a page that the peer frees may block until the page is freed, and a burst has hundreds of accesses.
//! So a peer that frees one part of its memory while it allocates another could hold up a thread for the sum of all
//! these waits. Therefore a loop over a peer's buffers checks an [`Overdue`] before each buffer and ends when its call
//! has taken longer than [`LIMIT`]: once held up, the call accesses no further buffer.
//!
//! Reading the clock for each buffer would cost as much as copying the buffer. Instead each thread counts the calls
//! that it begins and ends ([`enter`]), and a *monitor* thread compares these counts every [`LIMIT`]: a call that was
//! in progress at the previous comparison, too, is overdue. So a call costs two stores and a check costs one load, both
//! in a cache line that no other thread writes but the monitor. A call may take up to twice [`LIMIT`] before a check
//! ends it.
//!
//! [`super::Usage`] tells afterwards whether a call was held up.
//!
//! Threads: each has a record of its own, which a later thread reuses. Tests: below.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No call is overdue before it has taken this long. A burst takes some ten microseconds.
pub const LIMIT: Duration = Duration::from_millis(20);

/// State shared by a thread and the monitor.
#[derive(Debug)]
#[repr(align(128))]
struct Record {
    /// Number of calls begun and ended: odd during a call.
    count: AtomicU64,
    overdue: AtomicBool,
    /// The monitor's: `count` at its last comparison.
    seen: AtomicU64,
    is_used: AtomicBool,
}

static RECORDS: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

fn records() -> MutexGuard<'static, Vec<&'static Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The thread's record, if it has one.
    static OWN: Cell<Option<&'static Record>> = const { Cell::new(None) };
    /// Returns the record for reuse when the thread ends.
    static RETURNED: Returned = const { Returned };
}

struct Returned;

impl Drop for Returned {
    fn drop(&mut self) {
        if let Some(record) = OWN.take() {
            record.is_used.store(false, Ordering::Release);
        }
    }
}

#[inline]
fn own() -> &'static Record {
    OWN.get().unwrap_or_else(begin)
}

#[cold]
fn begin() -> &'static Record {
    let mut records = records();
    let free = records.iter().find(|record| !record.is_used.load(Ordering::Acquire)).copied();
    let record = free.unwrap_or_else(|| {
        let (count, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let new = Record { count, overdue: AtomicBool::new(false), seen, is_used: AtomicBool::new(true) };
        let new: &'static Record = Box::leak(Box::new(new));
        records.push(new);
        new
    });
    record.is_used.store(true, Ordering::Release);
    OWN.set(Some(record));
    RETURNED.with(|_| ());
    record
}

/// Starts the monitor, unless it runs. To be called on a thread that may block, before calls matter: without it no call is
/// ever overdue, and bursts are not cut short.
///
/// # Errors
/// The thread cannot be started.
pub fn start_monitor() -> io::Result<()> {
    static RUNS: Mutex<bool> = Mutex::new(false);
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*runs {
        std::thread::Builder::new().name("overdue".into()).spawn(monitor)?;
        *runs = true;
    }
    Ok(())
}

fn monitor() {
    loop {
        std::thread::sleep(LIMIT);
        records().iter().for_each(|record| look(record));
    }
}

fn look(record: &Record) {
    let count = record.count.load(Ordering::Relaxed);
    let is_the_same = record.seen.swap(count, Ordering::Relaxed) == count;
    if is_the_same && count % 2 == 1 {
        record.overdue.store(true, Ordering::Relaxed);
    }
}

/// A call that accesses a peer's memory; it ends when this is dropped. A thread has at most one at a time.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct Entered(&'static Record);

/// Begins a call that accesses a peer's memory.
#[inline]
pub fn enter() -> Entered {
    let record = own();
    record.count.store(record.count.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    // The monitor may have set it when the last call had just ended.
    if record.overdue.load(Ordering::Relaxed) {
        record.overdue.store(false, Ordering::Relaxed);
    }
    Entered(record)
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let count = self.0.count.load(Ordering::Relaxed);
        self.0.count.store((count | 1).wrapping_add(1), Ordering::Relaxed);
        // Loops outside of calls, as tests have them, are not to end either.
        if self.0.overdue.load(Ordering::Relaxed) {
            self.0.overdue.store(false, Ordering::Relaxed);
        }
    }
}

/// Tells whether the current call of a thread is overdue.
#[derive(Clone, Copy, Debug)]
pub struct Overdue(&'static AtomicBool);

impl Overdue {
    /// The calling thread's. To be obtained once per burst.
    #[inline]
    pub fn of_this_thread() -> Overdue {
        Overdue(&own().overdue)
    }

    /// Whether the call is overdue, so that its loops must end.
    #[inline(always)]
    pub fn is_now(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn wait_until(mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(120));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_call_that_goes_on_becomes_overdue_and_the_next_one_is_not() {
        start_monitor().expect("a thread is left");
        let overdue = Overdue::of_this_thread();
        for _ in 0..3 {
            let call = enter();
            wait_until(|| overdue.is_now());
            drop(call);
            assert!(!overdue.is_now());
            // Between calls nothing is overdue.
            std::thread::sleep(3 * LIMIT);
            assert!(!overdue.is_now());
        }
    }

    #[test]
    fn a_call_is_overdue_at_the_second_look_and_no_other_is() {
        let (count, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let record = Record { count, overdue: AtomicBool::new(false), seen, is_used: AtomicBool::new(true) };
        let is_overdue_after_a_look = || {
            look(&record);
            record.overdue.load(Ordering::Relaxed)
        };
        let step = || _ = record.count.fetch_add(1, Ordering::Relaxed);
        for _ in 0..100 {
            assert!(!is_overdue_after_a_look() && !is_overdue_after_a_look(), "between calls");
            step();
            assert!(!is_overdue_after_a_look(), "it may have begun just now");
            step();
            step();
            assert!(!is_overdue_after_a_look(), "another one");
            step();
        }
        step();
        assert!(!is_overdue_after_a_look() && is_overdue_after_a_look());
    }

    #[test]
    fn records_are_used_again() {
        let take = || std::thread::spawn(|| drop(enter())).join().expect("it does not panic");
        (0..100).for_each(|_| take());
        assert!(records().len() < 50, "{}", records().len());
    }
}

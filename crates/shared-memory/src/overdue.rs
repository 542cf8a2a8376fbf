//! Calls that touch a peer's memory, and whether one takes too long.
//!
//! Each access to a page that the peer frees may wait until that is done ([`super::Usage`]), and a burst has hundreds of accesses: a
//! peer that frees one part of its memory while it allocates another could hold a thread up for as long as all of these
//! waits together. So a loop over a peer's buffers asks an [`Overdue`] before each, and ends when its call has been going on for
//! [`LIMIT`]: what was held up once is not held up again in the same call.
//!
//! A look at the clock for each buffer would cost as much as its copy. Instead a thread counts the calls that it begins and ends
//! ([`enter`]), and a *monitor* thread compares these counts every [`LIMIT`]: a call that is the same as at the last look is
//! overdue. So a call costs two stores, a question one load from a line that nobody writes, and a call may take up to twice
//! [`LIMIT`] before its next question has the answer.
//!
//! Threads: each has a record of its own, which the next thread uses again. Tests: below.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// How long a call may touch a peer's memory, at least: bursts take some ten microseconds.
pub const LIMIT: Duration = Duration::from_millis(20);

/// What a thread and the monitor share.
#[derive(Debug)]
#[repr(align(128))]
struct Record {
    /// Calls begun and ended: odd within one.
    count: AtomicU64,
    overdue: AtomicBool,
    /// Of the monitor: `count` at its last look.
    seen: AtomicU64,
    is_used: AtomicBool,
}

static RECORDS: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

fn records() -> MutexGuard<'static, Vec<&'static Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// This thread's, if it has one.
    static OWN: Cell<Option<&'static Record>> = const { Cell::new(None) };
    /// Gives it back.
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
    static MONITOR: Once = Once::new();
    // Without a monitor no call is ever overdue: bursts are what they were.
    MONITOR.call_once(|| drop(std::thread::Builder::new().name("overdue".into()).spawn(monitor)));
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

/// A call that touches a peer's memory; it ends when this is dropped. One at a time for each thread.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct Entered(&'static Record);

/// Begins a call that touches a peer's memory.
#[inline]
pub fn enter() -> Entered {
    let record = own();
    record.count.store(record.count.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    Entered(record)
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let count = self.0.count.load(Ordering::Relaxed);
        self.0.count.store((count | 1).wrapping_add(1), Ordering::Relaxed);
        if self.0.overdue.load(Ordering::Relaxed) {
            self.0.overdue.store(false, Ordering::Relaxed);
        }
    }
}

/// Answers whether the calling thread's call is overdue.
#[derive(Clone, Copy, Debug)]
pub struct Overdue(&'static AtomicBool);

impl Overdue {
    /// Of the calling thread. To be asked for once for a burst.
    #[inline]
    pub fn of_this_thread() -> Overdue {
        Overdue(&own().overdue)
    }

    /// Whether the loop is to end.
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
    fn short_calls_are_never_overdue_however_many() {
        // Looks of the monitor's, at the worst moments.
        let record = own();
        for _ in 0..1000 {
            let call = enter();
            look(record);
            drop(call);
            look(record);
        }
        let call = enter();
        look(record);
        look(record);
        assert!(Overdue::of_this_thread().is_now(), "two looks into one call");
        drop(call);
    }

    #[test]
    fn records_are_used_again() {
        let take = || std::thread::spawn(|| drop(enter())).join().expect("it does not panic");
        (0..100).for_each(|_| take());
        assert!(records().len() < 50, "{}", records().len());
    }
}

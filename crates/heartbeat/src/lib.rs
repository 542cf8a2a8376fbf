//! Progress of the process's threads, for a watchdog.
//!
//! A thread that must never stop owns a [`Heartbeat`] and calls [`Heartbeat::beat`] in each iteration of its loop.
//! Another thread owns a [`Monitor`] and periodically polls it for threads that have not beaten for longer than their
//! limit. Before a thread waits for work without a time limit, it calls [`Heartbeat::rest`]: until its next beat it is
//! not considered stuck.
//!
//! Threads that serve a single peer, or that only improve performance, are not *vital* ([`Heartbeat::not_vital`]). If
//! one of them stalls, this is reported, but the process should not end: otherwise a peer that blocks its own thread
//! could end it for everybody.
//!
//! A beat is one plain store to a cache line of the thread's own, cheap enough for every iteration of a worker.
//!
//! Threads: one beats, any may monitor. Tests below.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A thread's heartbeat. The thread is no longer monitored after this is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    thread: Arc<Thread>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Thread {
    name: String,
    limit: Duration,
    is_vital: bool,
    beats: AtomicU64,
    rests: AtomicBool,
}

static THREADS: Mutex<Vec<Weak<Thread>>> = Mutex::new(Vec::new());

fn threads() -> MutexGuard<'static, Vec<Weak<Thread>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heartbeat {
    /// A heartbeat for a thread of this name, whose iterations take no longer than `limit` unless it is stuck.
    pub fn new(name: impl Into<String>, limit: Duration) -> Heartbeat {
        Heartbeat::of(name.into(), limit, true)
    }

    /// Like [`Heartbeat::new`], for a thread that the process can do without.
    pub fn not_vital(name: impl Into<String>, limit: Duration) -> Heartbeat {
        Heartbeat::of(name.into(), limit, false)
    }

    fn of(name: String, limit: Duration, is_vital: bool) -> Heartbeat {
        let (beats, rests) = (AtomicU64::new(0), AtomicBool::new(false));
        let thread = Arc::new(Thread { name, limit, is_vital, beats, rests });
        let mut threads = threads();
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&thread));
        Heartbeat { thread }
    }

    /// Records progress. Only the thread itself calls this, so a plain load and store suffice.
    #[inline]
    pub fn beat(&self) {
        let beats = self.thread.beats.load(Ordering::Relaxed);
        self.thread.beats.store(beats.wrapping_add(1), Ordering::Release);
        if self.thread.rests.load(Ordering::Relaxed) {
            self.thread.rests.store(false, Ordering::Release);
        }
    }

    /// Records that the thread waits for work without a time limit; [`Heartbeat::beat`] ends this.
    pub fn rest(&self) {
        self.thread.rests.store(true, Ordering::Release);
    }
}

/// A thread that makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Name of the thread.
    pub thread: String,
    /// Time without progress, as far as the monitor has observed it.
    pub since: Duration,
    /// Whether the process depends on the thread.
    pub is_vital: bool,
}

/// One observer's knowledge of all threads.
#[derive(Debug, Default)]
pub struct Monitor {
    /// By the thread's address: its number of beats, and since when that has not changed.
    seen: HashMap<usize, (Weak<Thread>, u64, Instant)>,
}

impl Monitor {
    /// Threads that have made no progress for longer than their limit, as observed by earlier calls.
    pub fn stuck(&mut self) -> Vec<Stuck> {
        self.stuck_at(Instant::now())
    }

    /// Like [`Monitor::stuck`], with the given current time.
    pub fn stuck_at(&mut self, now: Instant) -> Vec<Stuck> {
        let all: Vec<Arc<Thread>> = threads().iter().filter_map(Weak::upgrade).collect();
        self.seen.retain(|_, (thread, ..)| thread.strong_count() > 0);
        let mut stuck = Vec::new();
        for thread in all {
            let beats = thread.beats.load(Ordering::Acquire);
            let rests = thread.rests.load(Ordering::Acquire);
            let seen = self.seen.entry(Arc::as_ptr(&thread) as usize);
            let (of, before, since) = seen.or_insert_with(|| (Arc::downgrade(&thread), beats, now));
            // Another thread's state may have been allocated at the address of one that ended.
            if rests || *before != beats || !std::ptr::eq(of.as_ptr(), Arc::as_ptr(&thread)) {
                (*of, *before, *since) = (Arc::downgrade(&thread), beats, now);
            } else if now.saturating_duration_since(*since) > thread.limit {
                let since = now.saturating_duration_since(*since);
                stuck.push(Stuck { thread: thread.name.clone(), since, is_vital: thread.is_vital });
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn stuck(monitor: &mut Monitor, now: Instant, of: &str) -> bool {
        monitor.stuck_at(now).iter().any(|stuck| stuck.thread == of)
    }

    #[test]
    fn a_thread_without_progress_is_stuck_and_one_that_waits_is_not() {
        let (first, other) = (Heartbeat::new("a first", LIMIT), Heartbeat::new("another", LIMIT));
        let (mut monitor, mut now) = (Monitor::default(), Instant::now());
        assert!(!stuck(&mut monitor, now, "a first"));
        for _ in 0..3 {
            now += LIMIT;
            other.beat();
            stuck(&mut monitor, now, "another");
        }
        assert!(stuck(&mut monitor, now, "a first"));
        assert!(!stuck(&mut monitor, now, "another"));
        first.beat();
        assert!(!stuck(&mut monitor, now, "a first"), "it goes on");
        first.rest();
        for _ in 0..3 {
            now += 2 * LIMIT;
            assert!(!stuck(&mut monitor, now, "a first"), "it waits for work");
        }
        first.beat();
        assert!(!stuck(&mut monitor, now, "a first"));
        assert!(stuck(&mut monitor, now + 2 * LIMIT, "a first"), "it had work");
        drop(first);
        assert!(!stuck(&mut monitor, now + 2 * LIMIT, "a first"), "it has ended");
    }

    #[test]
    fn who_is_not_vital_says_so() {
        let _threads = (Heartbeat::new("vital", LIMIT), Heartbeat::not_vital("not vital", LIMIT));
        let (mut monitor, now) = (Monitor::default(), Instant::now());
        monitor.stuck_at(now);
        let stuck = monitor.stuck_at(now + 2 * LIMIT);
        let is_vital = |name| stuck.iter().find(|stuck| stuck.thread == name).map(|stuck| stuck.is_vital);
        assert_eq!((is_vital("vital"), is_vital("not vital")), (Some(true), Some(false)));
    }
}

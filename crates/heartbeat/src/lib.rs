//! Whether the threads of the process make progress.
//!
//! A thread that must never stop takes a [`Heartbeat`] and calls [`Heartbeat::beat`] in each round of its loop. Somebody else
//! keeps a [`Monitor`] and asks it now and then which threads have not done so for longer than they said they would take.
//! A thread that waits for work without a time limit says so ([`Heartbeat::rest`]): until its next beat it cannot be stuck.
//!
//! Threads that serve one peer, or that only make things faster, are not *vital* ([`Heartbeat::not_vital`]): one of these that
//! stands still is a fault to be told, but none for which the process should end, or a peer that stops its own thread could end
//! it for everybody.
//!
//! A beat is one plain store to a cache line of the thread's own, cheap enough for every round of a worker.
//!
//! Threads: one beats, any may look. Tests below.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A thread's own end; the thread is forgotten when it is dropped.
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
    /// For a thread of this name, whose rounds take no longer than `limit` unless it is stuck.
    pub fn new(name: impl Into<String>, limit: Duration) -> Heartbeat {
        Heartbeat::of(name.into(), limit, true)
    }

    /// The same for a thread without which the process goes on.
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

    /// The thread has made progress. Only this thread calls it, so a plain load and store is enough.
    #[inline]
    pub fn beat(&self) {
        let beats = self.thread.beats.load(Ordering::Relaxed);
        self.thread.beats.store(beats.wrapping_add(1), Ordering::Release);
        if self.thread.rests.load(Ordering::Relaxed) {
            self.thread.rests.store(false, Ordering::Release);
        }
    }

    /// The thread is about to wait for work, however long that takes; [`Heartbeat::beat`] ends it.
    pub fn rest(&self) {
        self.thread.rests.store(true, Ordering::Release);
    }
}

/// A thread that makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Its name.
    pub thread: String,
    /// Since when, as far as was looked.
    pub since: Duration,
    /// Whether the process cannot do without it.
    pub is_vital: bool,
}

/// What one watcher has seen of all threads.
#[derive(Debug, Default)]
pub struct Monitor {
    /// By the thread's address: its beats, and since when there are so many.
    seen: HashMap<usize, (Weak<Thread>, u64, Instant)>,
}

impl Monitor {
    /// Threads that have not made progress for longer than their limit, as far as earlier calls saw.
    pub fn stuck(&mut self) -> Vec<Stuck> {
        self.stuck_at(Instant::now())
    }

    /// The same, as if it were `now`.
    pub fn stuck_at(&mut self, now: Instant) -> Vec<Stuck> {
        let all: Vec<Arc<Thread>> = threads().iter().filter_map(Weak::upgrade).collect();
        self.seen.retain(|_, (thread, ..)| thread.strong_count() > 0);
        let mut stuck = Vec::new();
        for thread in all {
            let beats = thread.beats.load(Ordering::Acquire);
            let rests = thread.rests.load(Ordering::Acquire);
            let seen = self.seen.entry(Arc::as_ptr(&thread) as usize);
            let (of, before, since) = seen.or_insert_with(|| (Arc::downgrade(&thread), beats, now));
            // Another thread may have come to the address of one that ended.
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

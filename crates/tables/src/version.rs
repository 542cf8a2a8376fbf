//! A change counter that makes a lookup of several steps see one state.
//!
//! Engines whose lookup reads several places (a trie's levels, the tuples of a classifier) let each *single* change
//! become visible with one store, so a lookup that runs during one change sees the state before it or after it. But
//! while it walks there may be two: having passed the place of the first, it could see the second without the first, a
//! state that never was. So the writer counts before each change, and a reader that finds that the count moved looks
//! again. A reader never waits for a writer: it goes on as soon as a lookup, some tens of nanoseconds, falls between two
//! changes.
//!
//! Correctness: let a lookup read something that change `n` stored. The writer had a release fence between counting `n`
//! and that store, the reader has an acquire fence between that load and its second look at the counter: it sees `n` or
//! later. So if both looks give the same `c`, the lookup has seen nothing of the changes after `c`; and having acquired
//! `c`, it has seen everything of those before it. What it saw of change `c` itself is all or nothing.
//!
//! Threads: one writer, any number of readers. Tests: `tests/loom.rs`, `tests/stress.rs`.

use crate::sync::{AtomicU64, Ordering, fence};

/// The counter, alone on its cache lines: the writer writes it at every change, what lies beside it in an engine is read.
#[derive(Debug)]
#[repr(align(128))]
pub struct Version(AtomicU64);

impl Version {
    /// At zero.
    pub fn new() -> Version {
        Version(AtomicU64::new(0))
    }

    /// The writer's, before the first store of a change.
    pub fn change(&self) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(next, Ordering::Release);
        fence(Ordering::Release);
    }

    /// A reader's, before it looks: the count.
    #[inline(always)]
    pub fn begin(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// A reader's, after it looked: whether no change began meanwhile.
    #[inline(always)]
    pub fn is_still(&self, before: u64) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == before
    }

    /// A reader's: runs `look` until no change began meanwhile.
    #[inline(always)]
    pub fn read<R>(&self, mut look: impl FnMut() -> R) -> R {
        loop {
            let before = self.begin();
            let result = look();
            if self.is_still(before) {
                return result;
            }
        }
    }
}

impl Default for Version {
    fn default() -> Self {
        Version::new()
    }
}

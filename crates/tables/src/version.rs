//! A version counter that makes lookups of several steps linearisable: a sequence lock for changes that are each
//! atomic.
//!
//! Engines whose lookup reads several locations (the levels of a trie, the tuples of a classifier) publish each
//! *single* change with one store, so a lookup that runs during one change sees the state before it or after it. But
//! two changes may fall into one lookup: having passed the location of the first, it could see the second without the
//! first, a state that never existed. So the writer advances the counter before each change, and a reader that finds it
//! advanced looks up again. Readers do not wait for a writer to finish: a lookup takes some tens of nanoseconds, and
//! succeeds as soon as one fits between two changes.
//!
//! Correctness: suppose that a lookup reads a value stored by change `n`. The writer has a release fence between
//! advancing the counter to `n` and that store, the reader an acquire fence between that load and its second load of
//! the counter: so this sees `n` or later. If both loads give the same `c`, the lookup has therefore seen nothing of
//! the changes after `c`; and having acquired `c`, it has seen everything of the changes before it. Of change `c`
//! itself it has seen all or nothing.
//!
//! Threads: one writer, any number of readers. Tests: `tests/loom.rs`, `tests/stress.rs`.

use crate::sync::{AtomicU64, Ordering, fence};

/// The counter, on cache lines of its own: the writer changes it often, while the fields beside it in an engine are
/// mostly read.
#[derive(Debug)]
#[repr(align(128))]
pub struct Version(AtomicU64);

impl Version {
    /// A counter at zero.
    pub fn new() -> Version {
        Version(AtomicU64::new(0))
    }

    /// Advances the counter. Called by the writer before the first store of a change.
    pub fn change(&self) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(next, Ordering::Release);
        fence(Ordering::Release);
    }

    /// The counter, for a reader before its lookup.
    #[inline(always)]
    pub fn begin(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether no change has begun since [`begin`](Version::begin) returned `before`; for a reader after its lookup.
    #[inline(always)]
    pub fn is_still(&self, before: u64) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == before
    }

    /// Repeats `look` until no change begins meanwhile; for readers.
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

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
//! **Slow lookups.** A lookup that takes longer than a change, as among a hundred thousand masks, would not fit between
//! two changes of a writer that does nothing else. After [`REPEATS_MAX`] vain attempts a reader asks the writer to wait
//! ([`Repeats`]), which it does before its next change, for at most [`PAUSE_MAX`]. A reader that is stopped meanwhile
//! delays one change in [`HURRIED`] so long. Correctness does not depend on it.
//!
//! Threads: one writer, any number of readers. Tests: below; `tests/loom.rs`, `tests/stress.rs`.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Attempts of a lookup before it asks the writer to wait.
const REPEATS_MAX: u32 = 2;

/// Limit on the time that a change waits for readers, chosen: more than the slowest lookup of a reader that runs.
pub const PAUSE_MAX: Duration = Duration::from_millis(4);

/// Changes that do not wait after one has waited in vain, chosen: a stopped reader costs a change a few microseconds.
const HURRIED: u32 = 1024;

/// The counter, on cache lines of its own: the writer changes it often, while the fields beside it in an engine are
/// mostly read.
#[derive(Debug)]
#[repr(align(128))]
pub struct Version {
    count: AtomicU64,
    /// Readers that ask the writer to wait.
    asking: AtomicU32,
    /// Changes that will not wait for those, because one has waited in vain.
    hurried: AtomicU32,
}

impl Version {
    /// A counter at zero.
    pub fn new() -> Version {
        Version { count: AtomicU64::new(0), asking: AtomicU32::new(0), hurried: AtomicU32::new(0) }
    }

    /// Advances the counter. Called by the writer before the first store of a change; it first waits for readers that ask
    /// it to.
    pub fn change(&self) {
        self.let_readers_finish();
        let next = self.count.load(Ordering::Relaxed).wrapping_add(1);
        self.count.store(next, Ordering::Release);
        fence(Ordering::Release);
    }

    fn let_readers_finish(&self) {
        if self.asking.load(Ordering::Relaxed) == 0 {
            return;
        }
        match self.hurried.load(Ordering::Relaxed) {
            0 if self.wait_for_readers() => {}
            0 => self.hurried.store(HURRIED, Ordering::Relaxed),
            left => self.hurried.store(left - 1, Ordering::Relaxed),
        }
    }

    /// A reader asks the writer to wait.
    #[cold]
    fn ask(&self) {
        self.asking.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until no reader asks for it any more. Returns whether that was so in time.
    #[cfg(not(loom))]
    fn wait_for_readers(&self) -> bool {
        let start = std::time::Instant::now();
        for poll in 0u64.. {
            if self.asking.load(Ordering::Relaxed) == 0 {
                return true;
            }
            if start.elapsed() >= PAUSE_MAX {
                break;
            }
            match poll {
                ..100 => std::hint::spin_loop(),
                _ => std::thread::sleep(Duration::from_micros(20)),
            }
        }
        false
    }

    /// The model checker has no time.
    #[cfg(loom)]
    fn wait_for_readers(&self) -> bool {
        false
    }

    /// The counter, for a reader before its lookup.
    #[inline(always)]
    pub fn begin(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether no change has begun since [`begin`](Version::begin) returned `before`; for a reader after its lookup.
    #[inline(always)]
    pub fn is_still(&self, before: u64) -> bool {
        fence(Ordering::Acquire);
        self.count.load(Ordering::Relaxed) == before
    }

    /// For a reader whose lookup is to be repeated again and again if need be.
    #[inline(always)]
    pub fn repeats(&self) -> Repeats<'_> {
        Repeats { version: self, count: 0 }
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

/// The vain attempts of a lookup.
#[derive(Debug)]
pub struct Repeats<'a> {
    version: &'a Version,
    count: u32,
}

impl Repeats<'_> {
    /// Counts an attempt during which a change began.
    #[inline(always)]
    pub fn again(&mut self) {
        // Inline, so that the count needs no memory in a lookup that succeeds at once.
        self.count += 1;
        if self.count == REPEATS_MAX {
            self.version.ask();
        }
    }
}

impl Drop for Repeats<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.count >= REPEATS_MAX {
            self.version.asking.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Default for Version {
    fn default() -> Self {
        Version::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_change_waits_until_a_lookup_has_finished_that_was_repeated_too_often() {
        const ROUNDS: u32 = 20;
        let mut waited = 0;
        // A reader that gets no processor for long is not waited for: such a round says nothing.
        for _ in 0..50 * ROUNDS {
            let version = Version::new();
            let (has_asked, has_finished) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut repeats = version.repeats();
                    (0..REPEATS_MAX).for_each(|_| repeats.again());
                    let before = version.begin();
                    has_asked.store(true, Ordering::Release);
                    std::thread::sleep(Duration::from_micros(200));
                    has_finished.store(version.is_still(before), Ordering::Relaxed);
                    // The count of those that ask orders nothing by itself.
                    fence(Ordering::Release);
                    drop(repeats);
                });
                while !has_asked.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let start = std::time::Instant::now();
                version.change();
                fence(Ordering::Acquire);
                let took = start.elapsed();
                if took < PAUSE_MAX {
                    assert!(has_finished.load(Ordering::Relaxed), "the change came in between, after {took:?}");
                    waited += 1;
                }
            });
            assert_eq!(version.asking.load(Ordering::Relaxed), 0, "nobody asks any more");
            if waited == ROUNDS {
                return;
            }
        }
        panic!("the change waited in vain but for {waited} times");
    }

    #[test]
    fn a_reader_that_does_not_come_back_delays_few_changes() {
        let version = Version::new();
        let mut repeats = version.repeats();
        (0..REPEATS_MAX).for_each(|_| repeats.again());
        let start = std::time::Instant::now();
        (0..10 * u64::from(HURRIED)).for_each(|_| version.change());
        let waits = start.elapsed().as_secs_f64() / PAUSE_MAX.as_secs_f64();
        assert!(waits >= 9.0, "it waits for the reader now and then: {waits:.1} times");
        drop(repeats);
        assert_eq!(version.asking.load(Ordering::Relaxed), 0);
    }
}

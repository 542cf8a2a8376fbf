//! Which masked values are surely not there: a Bloom filter over the entries of all tuples.
//!
//! Each entry sets two bits of one 32-bit word, chosen by its hash, so a test reads one word (Putze, Sanders, Singler:
//! "Cache-, hash- and space-efficient Bloom filters", the blocked filter). There is at least one word per entry: then a
//! tuple without a matching value passes in less than 1 of 100 cases.
//!
//! Bits are never cleared. After as many insertions as it has words the filter is made anew, from the entries that there
//! are then.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, through tables.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Entries that the smallest filter is for.
const LEAST: usize = 64;

/// The filter.
pub(super) struct Filter {
    words: Box<[AtomicU32]>,
    /// Hashes are shifted right by this for the position of their word.
    shift: u32,
    /// The writer's: insertions until it must be made anew.
    left: AtomicUsize,
}

/// The bits that an entry with this hash sets.
#[inline(always)]
fn bits(hash: u32) -> u32 {
    1 << (hash & 31) | 1 << (hash >> 5 & 31)
}

impl Filter {
    /// Bytes of the array.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// A filter for twice as many entries as `hashes`, with those in it.
    pub(super) fn new(hashes: &[u32]) -> Filter {
        let room = (2 * hashes.len()).max(LEAST).next_power_of_two();
        let words = (0..room).map(|_| AtomicU32::new(0)).collect();
        let filter = Filter { words, shift: 32 - room.ilog2(), left: AtomicUsize::new(room) };
        hashes.iter().for_each(|hash| filter.add(*hash));
        filter
    }

    /// Whether [`add`](Filter::add) should be preceded by a new filter.
    pub(super) fn is_worn(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Adds an entry; the writer's.
    pub(super) fn add(&self, hash: u32) {
        let word = &self.words[(hash >> self.shift) as usize];
        word.store(word.load(Ordering::Relaxed) | bits(hash), Ordering::Release);
        self.left.store(self.left.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }

    /// Whether there may be an entry with this hash.
    #[inline(always)]
    pub(super) fn test(&self, hash: u32) -> bool {
        let word = (hash >> self.shift) as usize & (self.words.len() - 1);
        let bits = bits(hash);
        self.words[word].load(Ordering::Acquire) & bits == bits
    }

    /// The words, and by how much to shift a hash for the position of its word.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn parts(&self) -> (*const i32, u32) {
        (self.words.as_ptr().cast(), self.shift)
    }
}

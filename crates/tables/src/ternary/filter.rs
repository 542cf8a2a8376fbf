//! A blocked Bloom filter over the entries of all tuples: it tells for most masked values that no entry has them.
//!
//! Each entry sets two bits of one 32-bit word, chosen by its hash, so a test reads one word (Putze, Sanders, Singler:
//! "Cache-, hash- and space-efficient Bloom filters"). There is at least one word per entry; then the false positive
//! rate for a tuple is below 1 %.
//!
//! Bits are never cleared. After as many insertions as it has words, the filter is rebuilt from the current entries.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, through tables.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Words of the smallest filter.
const WORDS_MIN: usize = 64;

/// A blocked Bloom filter.
pub(super) struct Filter {
    words: Box<[AtomicU32]>,
    /// Shift of a hash that gives the index of its word.
    shift: u32,
    /// Insertions until the filter is saturated; used by the writer only.
    left: AtomicUsize,
}

/// The bits that an entry with this hash sets.
#[inline(always)]
fn bits(hash: u32) -> u32 {
    1 << (hash & 31) | 1 << (hash >> 5 & 31)
}

impl Filter {
    /// Bytes of the words.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// A filter with room for twice as many entries as `hashes`, which it contains.
    pub(super) fn new(hashes: &[u32]) -> Filter {
        let room = (2 * hashes.len()).max(WORDS_MIN).next_power_of_two();
        let words = (0..room).map(|_| AtomicU32::new(0)).collect();
        let filter = Filter { words, shift: 32 - room.ilog2(), left: AtomicUsize::new(room) };
        hashes.iter().for_each(|hash| filter.add(*hash));
        filter
    }

    /// Whether the filter is saturated: it must be rebuilt before the next [`add`](Filter::add).
    pub(super) fn needs_rebuild(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Whether the filter is far larger than so many entries need.
    pub(super) fn is_too_large(&self, entries: usize) -> bool {
        self.words.len() > WORDS_MIN && self.words.len() >= super::SHRINK * entries
    }

    /// Adds an entry; for the writer only.
    pub(super) fn add(&self, hash: u32) {
        let word = &self.words[(hash >> self.shift) as usize];
        word.store(word.load(Ordering::Relaxed) | bits(hash), Ordering::Release);
        self.left.store(self.left.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }

    /// Whether there may be an entry with this hash; false means that there is none.
    #[inline(always)]
    pub(super) fn test(&self, hash: u32) -> bool {
        let word = (hash >> self.shift) as usize & (self.words.len() - 1);
        let bits = bits(hash);
        self.words[word].load(Ordering::Acquire) & bits == bits
    }

    /// The address of the words, and the shift of a hash that gives the index of its word.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn parts(&self) -> (*const i32, u32) {
        (self.words.as_ptr().cast(), self.shift)
    }
}

//! Linear search for small tables: the entries in arrays, best rank first, compared eight at a time.
//!
//! The arrays are immutable and replaced as a whole, so lookups need neither hashes nor links. The tuples are
//! maintained too although no one reads them, so that a growing table switches to them with one store.
#![allow(unsafe_code)]

use super::lanes::{LANES, Pass};
use super::search::Shared;
use abi::EntryHeader;

/// Limit of the entries of a table that is searched linearly.
pub(super) const LINEAR_MAX: usize = 16;

/// The entries of a small table.
pub(super) struct Linear {
    /// Indices of the key's words in which some mask has bits.
    words: Vec<usize>,
    /// For each group of eight entries, and each of those words: the values and the masks.
    lanes: Vec<[[u64; LANES]; 2]>,
    entries: Vec<*mut EntryHeader>,
    /// For tables with ranges: the low and high ends of each entry.
    ranges: Vec<u64>,
}

/// One entry for [`Linear::new`].
pub(super) struct Item<'a> {
    pub(super) rank: (i32, u64),
    pub(super) mask: &'a [u64],
    /// The masked value; in tables with ranges followed by the low and the high ends.
    pub(super) words: &'a [u64],
    pub(super) entry: *mut EntryHeader,
}

impl Linear {
    /// About its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lanes) + size_of_val(&*self.entries) + size_of_val(&*self.ranges)
    }

    pub(super) fn new(mut items: Vec<Item<'_>>) -> Linear {
        items.sort_unstable_by_key(|item| (std::cmp::Reverse(item.rank.0), item.rank.1));
        let count = items.first().map_or(0, |item| item.mask.len());
        let words: Vec<usize> = (0..count).filter(|i| items.iter().any(|item| item.mask[*i] != 0)).collect();
        let mut lanes = Vec::new();
        for chunk in items.chunks(LANES) {
            for &word in &words {
                // Unused lanes have masks of zero, so they match every key; searches ignore them.
                let mut lane = [[0; LANES]; 2];
                for (i, item) in chunk.iter().enumerate() {
                    (lane[0][i], lane[1][i]) = (item.words[word], item.mask[word]);
                }
                lanes.push(lane);
            }
        }
        let ranges = items.iter().flat_map(|item| item.words[count..].iter().copied()).collect();
        Linear { words, lanes, entries: items.iter().map(|item| item.entry).collect(), ranges }
    }

    /// The best entry that matches the key, or null.
    ///
    /// # Safety
    /// As [`Linear::find`].
    #[inline(always)]
    pub(super) unsafe fn search<P: Pass>(&self, shared: &Shared, key: *const u64) -> *mut EntryHeader {
        // SAFETY: the caller's promise.
        unsafe { self.find::<P>(shared, key) }.map_or(std::ptr::null_mut(), |i| self.entry(i))
    }

    /// The entry at a position in rank order.
    #[inline(always)]
    pub(super) fn entry(&self, position: usize) -> *mut EntryHeader {
        self.entries[position]
    }

    /// The position of the best entry that matches the key.
    ///
    /// # Safety
    /// `key` has the table's words; the processor has the instructions of `P`.
    #[inline(always)]
    pub(super) unsafe fn find<P: Pass>(&self, shared: &Shared, key: *const u64) -> Option<usize> {
        let width = self.words.len();
        for (group, entries) in self.entries.chunks(LANES).enumerate() {
            // SAFETY: the caller's promise.
            let accepts = unsafe { P::accept(&self.words, &self.lanes[group * width..][..width], key) };
            let mut accepts = accepts & ((1 << entries.len()) - 1);
            while accepts != 0 {
                let i = accepts.trailing_zeros() as usize;
                // SAFETY: the caller's promise.
                let key = |i: usize| unsafe { key.add(i).read_unaligned() };
                let ends = 2 * shared.words * (group * LANES + i);
                if shared.ranges.is_empty() || shared.in_ranges(|i| self.ranges[ends + i], key) {
                    return Some(group * LANES + i);
                }
                accepts &= accepts - 1;
            }
        }
        None
    }
}

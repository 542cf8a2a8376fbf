//! Few entries: all of them beside each other, best rank first, eight compared at a time.
//!
//! The arrays are immutable and replaced as a whole, so their readers need neither hash nor links. Tuples are kept beside
//! them, unread, so that a table that grows goes over to them with one store.
#![allow(unsafe_code)]

use super::lanes::{LANES, Pass};
use super::search::Shared;
use abi::EntryHeader;

/// Tables of up to this many entries are compared linearly.
pub(super) const LINEAR_MAX: usize = 16;

/// The entries.
pub(super) struct Linear {
    /// Positions of the key's words that some mask has bits of.
    words: Vec<usize>,
    /// For eight entries after the other, for each of those words: the values and the masks.
    lanes: Vec<[[u64; LANES]; 2]>,
    entries: Vec<*mut EntryHeader>,
    /// In tables with ranges: low and high ends of each entry.
    ranges: Vec<u64>,
}

/// One entry for [`Linear::new`].
pub(super) struct Item<'a> {
    pub(super) rank: (i32, u64),
    pub(super) mask: &'a [u64],
    /// The masked value; with ranges then the low and the high ends.
    pub(super) words: Vec<u64>,
    pub(super) entry: *mut EntryHeader,
}

impl Linear {
    /// About how many bytes.
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
                // Lanes without an entry never accept: their value has bits that are not zero behind the mask.
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

    /// The first entry that accepts the key, or null.
    ///
    /// # Safety
    /// As [`Linear::find`].
    #[inline(always)]
    pub(super) unsafe fn search<P: Pass>(&self, shared: &Shared, key: *const u64) -> *mut EntryHeader {
        // SAFETY: the caller's promise.
        unsafe { self.find::<P>(shared, key) }.map_or(std::ptr::null_mut(), |i| self.entry(i))
    }

    /// The entry at a position in the order of ranks.
    #[inline(always)]
    pub(super) fn entry(&self, position: usize) -> *mut EntryHeader {
        self.entries[position]
    }

    /// The position of the first entry that accepts the key.
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

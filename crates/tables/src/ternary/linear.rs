//! Few entries: all of them in one array, best rank first, compared one after the other.
//!
//! The array is immutable and replaced as a whole, so its readers need neither hash nor links. Tuples are kept beside it,
//! unread, so that a table that grows goes over to them with one store.
#![allow(unsafe_code)]

use super::Shared;
use abi::EntryHeader;

/// Tables of up to this many entries are compared linearly.
pub(super) const LINEAR_MAX: usize = 16;

/// The entries. Each has the words of its value, of its mask and, in tables with ranges, of the low and the high ends.
pub(super) struct Linear {
    stride: usize,
    words: Vec<u64>,
    entries: Vec<*mut EntryHeader>,
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
    pub(super) fn new(mut items: Vec<Item<'_>>) -> Linear {
        items.sort_unstable_by_key(|item| (std::cmp::Reverse(item.rank.0), item.rank.1));
        let stride = items.first().map_or(0, |item| item.mask.len() + item.words.len());
        let mut words = Vec::with_capacity(stride * items.len());
        for item in &items {
            let (value, ranges) = item.words.split_at(item.mask.len());
            words.extend_from_slice(value);
            words.extend_from_slice(item.mask);
            words.extend_from_slice(ranges);
        }
        Linear { stride, words, entries: items.iter().map(|item| item.entry).collect() }
    }

    /// The first entry that accepts the key, or null.
    #[inline]
    pub(super) fn search(&self, shared: &Shared, key: impl Fn(usize) -> u64 + Copy) -> *mut EntryHeader {
        let n = shared.words;
        for (words, entry) in self.words.chunks_exact(self.stride.max(1)).zip(&self.entries) {
            let (value, rest) = words.split_at(n);
            let (mask, ranges) = rest.split_at(n);
            let differ = (0..n).fold(0, |differ, i| differ | (key(i) ^ value[i]) & mask[i]);
            if differ == 0 && shared.in_ranges(|i| ranges[i], key) {
                return *entry;
            }
        }
        std::ptr::null_mut()
    }
}

//! The hash table of one mask's megaflows.
//!
//! A bucket of seven entries is a cache line: 32 bits of each entry's hash (its tag) and its slot. The same bits
//! choose the bucket, so a table grows without reading keys. If a bucket is full, an entry goes into one of the
//! next buckets. Each bucket counts the entries that have passed it, so a search ends at the first bucket that none
//! has passed, and removal needs no tombstones (as in Facebook's F14).
//!
//! A *filter* rules out hashes, so that a frame without a megaflow skips most masks without reading a bucket. It
//! has 64 bits per bucket, of which an entry sets two (a blocked Bloom filter; Putze, Sanders and Singler, "Cache-,
//! Hash- and Space-Efficient Bloom Filters", WEA 2007). Bits of removed entries stay until more have been removed
//! than there are.

use super::tags::{equal, tag};
use crate::memory::{Array, prefetch};

/// Number of entries in a bucket.
const WAYS: usize = 7;
/// Maximum number of buckets that a search reads.
pub(super) const PROBES_MAX: usize = 8;
/// Average number of entries per bucket at which a table grows. With 4, 5 % of the buckets would hold more than
/// seven.
const LOAD_MAX: usize = 4;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// Tags of entries; 0 if unused. The last one is not an entry: see [`Bucket::passed`].
    tags: [u32; WAYS + 1],
    slots: [u32; WAYS + 1],
}

impl Bucket {
    const EMPTY: Bucket = Bucket { tags: [0; WAYS + 1], slots: [0; WAYS + 1] };

    /// The number of entries stored in later buckets because this one was full.
    #[inline(always)]
    fn passed(&self) -> u32 {
        self.slots[WAYS]
    }

    /// A bit mask of the entries with this tag.
    #[inline(always)]
    fn find(&self, tag: u32) -> u32 {
        equal(&self.tags, tag) & ((1 << WAYS) - 1)
    }
}

/// A hash table from hashes to slots of megaflows.
pub(super) struct Table {
    /// The buckets; a power of two in number.
    buckets: Array<Bucket>,
    /// The filter, one word per bucket.
    filter: Array<u64>,
    len: usize,
    /// Number of entries removed since the filter was built.
    left: usize,
}

/// Minimum number of removals before the filter is rebuilt, so that a small table does not rebuild it at every
/// removal.
const LEFT_MIN: usize = 64;

/// An entry's bits in the filter word. They are above the bits that choose the word, in tables of up to 2^20
/// buckets.
#[inline(always)]
fn filter_bits(tag: u32) -> u64 {
    1 << (tag >> 26) | 1 << (tag >> 20 & 63)
}

/// The result of reading a hash's home bucket.
#[derive(Clone, Copy)]
pub(super) enum First {
    /// No entry has this tag.
    None,
    /// This slot is the only candidate.
    Only(u32),
    /// There may be several candidates, or some in later buckets.
    Search,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { buckets: Array::filled(Bucket::EMPTY, 1), filter: Array::filled(0, 1), len: 0, left: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.buckets.len() - 1)
    }

    /// Prefetches the home bucket of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets[self.home(tag(hash))]);
    }

    /// Whether the filter admits an entry with this hash. `false` is certain.
    #[inline(always)]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let tag = tag(hash);
        let bits = filter_bits(tag);
        self.filter[tag as usize & (self.filter.len() - 1)] & bits == bits
    }

    /// Reads the home bucket of a hash, which mostly suffices.
    #[inline(always)]
    pub(super) fn first(&self, hash: u64) -> First {
        let tag = tag(hash);
        let bucket = &self.buckets[self.home(tag)];
        let found = bucket.find(tag);
        if found & found.wrapping_sub(1) != 0 || bucket.passed() != 0 {
            First::Search
        } else if found == 0 {
            First::None
        } else {
            First::Only(bucket.slots[found.trailing_zeros() as usize & WAYS])
        }
    }

    /// The first slot with this hash that `is_it` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let mut at = self.home(tag);
        for _ in 0..PROBES_MAX {
            let bucket = &self.buckets[at];
            let mut found = bucket.find(tag);
            while found != 0 {
                let slot = bucket.slots[found.trailing_zeros() as usize & WAYS];
                if is_it(slot) {
                    return Some(slot);
                }
                found &= found - 1;
            }
            if bucket.passed() == 0 {
                break;
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
        None
    }

    /// Adds a slot. If there is no room near its home bucket, returns the slot of an entry whose removal would make
    /// room.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) -> Result<(), u32> {
        if self.len >= self.buckets.len() * LOAD_MAX {
            self.grow();
        }
        let tag = tag(hash);
        // Doubling may help, but not if many entries have the same hash (equal keys of different lengths).
        for _ in 0..2 {
            if place(&mut self.buckets, tag, slot) {
                self.len += 1;
                let home = self.home(tag);
                self.filter[home] |= filter_bits(tag);
                return Ok(());
            }
            if self.buckets.len() > 2 * self.len.next_power_of_two() || !self.grow() {
                break;
            }
        }
        Err(self.neighbour(hash))
    }

    /// An entry of the home bucket of a hash.
    fn neighbour(&self, hash: u64) -> u32 {
        self.buckets[self.home(tag(hash))].slots[(hash >> 32) as usize % WAYS]
    }

    /// Doubles the buckets. Returns `false` and changes nothing if some entry would have no room.
    fn grow(&mut self) -> bool {
        let mut buckets = Array::filled(Bucket::EMPTY, self.buckets.len() * 2);
        for (tag, slot) in self.entries() {
            if !place(&mut buckets, tag, slot) {
                return false;
            }
        }
        self.buckets = buckets;
        self.make_filter();
        true
    }

    fn make_filter(&mut self) {
        let mut filter = Array::filled(0, self.buckets.len());
        for (tag, _) in self.entries() {
            filter[self.home(tag)] |= filter_bits(tag);
        }
        (self.filter, self.left) = (filter, 0);
    }

    fn entries(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.buckets.iter().flat_map(|b| (0..WAYS).map(move |i| (b.tags[i], b.slots[i]))).filter(|(tag, _)| *tag != 0)
    }

    /// At most `max` slots.
    pub(super) fn some(&self, max: usize) -> Vec<u32> {
        self.entries().map(|(_, slot)| slot).take(max).collect()
    }

    /// Removes a slot, which must be present.
    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let tag = tag(hash);
        let mut at = self.home(tag);
        let mut passed = Vec::new();
        for _ in 0..PROBES_MAX {
            let bucket = &mut self.buckets[at];
            if let Some(i) = (0..WAYS).find(|i| bucket.tags[*i] == tag && bucket.slots[*i] == slot) {
                (bucket.tags[i], bucket.slots[i]) = (0, 0);
                self.len -= 1;
                for at in passed {
                    let bucket: &mut Bucket = &mut self.buckets[at];
                    bucket.slots[WAYS] -= 1;
                }
                self.left += 1;
                if self.left > self.len.max(LEFT_MIN) {
                    self.make_filter();
                }
                return;
            }
            passed.push(at);
            at = (at + 1) & (self.buckets.len() - 1);
        }
        debug_assert!(false, "a megaflow is in its mask's table");
    }
}

/// Puts an entry into the first bucket with room. Returns `false` and changes nothing if there is none.
fn place(buckets: &mut [Bucket], tag: u32, slot: u32) -> bool {
    let mask = buckets.len() - 1;
    let home = tag as usize & mask;
    for probe in 0..PROBES_MAX.min(buckets.len()) {
        let bucket = &mut buckets[(home + probe) & mask];
        if let Some(i) = (0..WAYS).find(|i| bucket.tags[*i] == 0) {
            (bucket.tags[i], bucket.slots[i]) = (tag, slot);
            for passed in 0..probe {
                buckets[(home + passed) & mask].slots[WAYS] += 1;
            }
            return true;
        }
    }
    false
}

//! A hash table from keys of up to 16 bytes to pointers, for engines that need one ([`crate::lpm`]): buckets of two
//! slots in one cache line, with chaining, probed without locks and without branches.
//!
//! # Memory layout
//!
//! Readers start at a [`MapSnapshot`]: the bucket array, its index mask and the two hash seeds. A snapshot is
//! immutable, and lives until all workers that could have loaded it have been quiescent; a map that grows gets a new
//! one. Seeds stay the same for the life of a map.
//!
//! A [`Bucket`] has [`BUCKET_BYTES`] bytes and is aligned to them:
//!
//! ```text
//! offset  0   key of slot 0: words 0 and 1 of the key (word 1 is zero for keys of one word)
//!        16   key of slot 1
//!        32   entry of slot 0, null if the slot has none
//!        40   entry of slot 1
//!        48   the next bucket of the chain, or null (nearly always)
//!        56   used by the writer only
//! ```
//!
//! # Hash
//!
//! `p = (w0 ^ seed0) * (w1 ^ seed1)` as a 128-bit product of 64-bit words, `hash = low64(p) ^ high64(p)`,
//! `bucket = buckets + BUCKET_BYTES * (hash & mask)`. Two exclusive ors, one multiplication. The seeds are random, so
//! that no sender can choose keys that collide.
//!
//! # Probe
//!
//! ```text
//! do {
//!     e0 = bucket[32]; e1 = bucket[40];                 // the entries before the keys
//!     m0 = (bucket[0], bucket[8]) == (w0, w1);  m1 = (bucket[16], bucket[24]) == (w0, w1);
//!     hit = (m0 ? e0 : 0) | (m1 ? e1 : 0);              // at most one slot of a chain has the key and an entry
//! } while (hit == 0 && (bucket = bucket[48]) != 0);
//! ```
//!
//! # Concurrent readers
//!
//! - A slot is *filled* by storing the key, then the entry with release order. A reader loads the entry (acquire)
//!   before the key, so a non-null entry comes with its own key. On x86-TSO plain loads in this order and plain stores
//!   are enough, since loads are not reordered with loads, nor stores with stores.
//! - A slot's key never changes while a reader could combine it with an older entry: a slot whose entry was removed is
//!   refilled with *another* key only after all workers have been quiescent (the bucket records the epoch of the
//!   removal). Refilling with the same key is always safe.
//! - Changing an action stores another entry pointer over the old one: one word. Entries themselves are immutable.
//! - Buckets are only ever appended to a chain. Growing copies keys and entry pointers into a new array, which is
//!   published by one store of its snapshot's address; readers of the old one see the map as it was then.
//!
//! So lookups are linearisable: a lookup returns what the map held for the key at some moment during the lookup (or
//! when the batch began, for code that holds the snapshot pointer).
//!
//! # Costs
//!
//! The average load is at most one entry per bucket ([`MAX_LOAD_PER_BUCKET`]); then 8 % of buckets have a chain, after
//! growing 1.4 %. An insertion touches one chain; growth doubles the array at once, so insertions take amortised
//! constant time. A map never shrinks.
//!
//! Threads: one writer (`&mut`), any number of readers of the snapshot. Tests: `tests/properties.rs`,
//! `tests/stress.rs`, `tests/loom.rs`.
#![allow(unsafe_code)]

use crate::reclaim::Domain;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, CachePadded, Ordering};
use abi::EntryHeader;
use std::ptr;

/// Bytes of a bucket, and its alignment: one cache line.
pub const BUCKET_BYTES: usize = 64;
/// Slots of a bucket.
pub const SLOTS: usize = 2;
/// Byte offsets of the slots' keys in a bucket.
pub const KEY_OFFSETS: [usize; SLOTS] = [0, 16];
/// Byte offsets of the slots' entry pointers in a bucket.
pub const ENTRY_OFFSETS: [usize; SLOTS] = [32, 40];
/// Byte offset of the pointer to the next bucket of the chain.
pub const OVERFLOW_OFFSET: usize = 48;
/// Limit of a key in bytes; tables with longer keys use another engine.
pub const MAX_KEY_BYTES: u32 = 16;
/// The average number of entries per bucket above which the map grows.
pub const MAX_LOAD_PER_BUCKET: usize = 1;

/// Buckets of a new map.
const FIRST_BUCKETS: usize = if cfg!(loom) { 1 } else { 16 };
/// Overflow buckets that are allocated together.
const OVERFLOW_CHUNK: usize = if cfg!(loom) { 1 } else { 32 };

/// What readers load first. Immutable.
#[repr(C)]
#[derive(Debug)]
pub struct MapSnapshot {
    /// `mask + 1` buckets, aligned to [`BUCKET_BYTES`].
    pub buckets: *const Bucket,
    /// Number of buckets, a power of two, minus one.
    pub mask: u64,
    /// The hash's seeds; they never change during the life of a map.
    pub seeds: [u64; 2],
}

/// A bucket of two slots. The module's documentation has the layout and the protocol.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Bucket {
    keys: [[AtomicU64; 2]; SLOTS],
    entries: [AtomicPtr<EntryHeader>; SLOTS],
    overflow: AtomicPtr<Bucket>,
    /// Used by the writer only: 0 for a slot that never had an entry, otherwise the low bits of the epoch of the last
    /// removal.
    removed: [AtomicU32; SLOTS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Bucket>() == BUCKET_BYTES && align_of::<Bucket>() == BUCKET_BYTES);
    assert!(std::mem::offset_of!(Bucket, keys) == KEY_OFFSETS[0] && size_of::<[AtomicU64; 2]>() == KEY_OFFSETS[1]);
    assert!(std::mem::offset_of!(Bucket, entries) == ENTRY_OFFSETS[0]);
    assert!(std::mem::offset_of!(Bucket, overflow) == OVERFLOW_OFFSET);
    assert!(size_of::<MapSnapshot>() == 32);
    assert!(std::mem::offset_of!(MapSnapshot, mask) == 8 && std::mem::offset_of!(MapSnapshot, seeds) == 16);
};

/// The hash of a key of one word (`[w, 0]`) or two.
#[inline]
pub fn hash(key: [u64; 2], seeds: [u64; 2]) -> u64 {
    let product = u128::from(key[0] ^ seeds[0]) * u128::from(key[1] ^ seeds[1]);
    product as u64 ^ (product >> 64) as u64
}

/// Looks a key up. Returns its entry, or null.
///
/// # Safety
/// `snapshot` is a published snapshot, and the calling thread has not been quiescent since it loaded it.
#[inline]
pub unsafe fn probe(snapshot: *const MapSnapshot, key: [u64; 2]) -> *mut EntryHeader {
    // SAFETY: the caller holds the snapshot, which keeps its buckets and their chains alive.
    unsafe {
        let MapSnapshot { buckets, mask, seeds } = *snapshot;
        let mut bucket = buckets.add((hash(key, seeds) & mask) as usize);
        loop {
            let hit = (*bucket).find(key);
            if !hit.is_null() {
                return hit;
            }
            bucket = (*bucket).overflow.load(Ordering::Acquire);
            if bucket.is_null() {
                return ptr::null_mut();
            }
        }
    }
}

impl Bucket {
    #[cfg(loom)]
    fn new() -> Bucket {
        let key = || [AtomicU64::new(0), AtomicU64::new(0)];
        let entry = || AtomicPtr::new(ptr::null_mut());
        Bucket {
            keys: [key(), key()],
            entries: [entry(), entry()],
            overflow: AtomicPtr::new(ptr::null_mut()),
            removed: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    /// The key's entry in this bucket, or null. Entries are loaded before keys.
    #[inline]
    fn find(&self, key: [u64; 2]) -> *mut EntryHeader {
        let entries = [self.entries[0].load(Ordering::Acquire), self.entries[1].load(Ordering::Acquire)];
        let pick = |slot: usize| if self.has_key(slot, key) { entries[slot] } else { ptr::null_mut() };
        let (first, second) = (pick(0), pick(1));
        if first.is_null() { second } else { first }
    }

    #[inline]
    fn has_key(&self, slot: usize, key: [u64; 2]) -> bool {
        let word = |i: usize| self.keys[slot][i].load(Ordering::Relaxed);
        (word(0) ^ key[0]) | (word(1) ^ key[1]) == 0
    }

    /// Whether a slot without an entry may be filled with `key` now.
    fn may_take(&self, slot: usize, key: [u64; 2], domain: &Domain) -> bool {
        let removed = self.removed[slot].load(Ordering::Relaxed);
        if removed == 0 || self.has_key(slot, key) {
            return true;
        }
        // Epochs wrap in 32 bits: after 2^31 further epochs a removal may look recent again, which only leaves the slot
        // unused longer.
        let age = (domain.safe_epoch() as u32).wrapping_sub(removed);
        age < 1 << 31
    }

    fn fill(&self, slot: usize, key: [u64; 2], entry: *mut EntryHeader) {
        self.keys[slot][0].store(key[0], Ordering::Relaxed);
        self.keys[slot][1].store(key[1], Ordering::Relaxed);
        self.entries[slot].store(entry, Ordering::Release);
    }
}

/// An array of buckets with its chains and its snapshot.
#[derive(Debug)]
struct Array {
    buckets: Box<[Bucket]>,
    /// Buckets of chains, in chunks; the last chunk has `overflow_left` unused ones at its end.
    overflow: Vec<Box<[Bucket]>>,
    overflow_left: usize,
    snapshot: Box<CachePadded<MapSnapshot>>,
}

fn zeroed_buckets(count: usize) -> Box<[Bucket]> {
    #[cfg(not(loom))]
    {
        // SAFETY: all-zero bytes are a valid `Bucket`: null pointers and zero integers.
        unsafe { Box::new_zeroed_slice(count).assume_init() }
    }
    #[cfg(loom)]
    (0..count).map(|_| Bucket::new()).collect()
}

impl Array {
    fn new(buckets: usize, seeds: [u64; 2]) -> Array {
        let buckets = zeroed_buckets(buckets.next_power_of_two());
        let snapshot =
            Box::new(CachePadded(MapSnapshot { buckets: buckets.as_ptr(), mask: buckets.len() as u64 - 1, seeds }));
        Array { buckets, overflow: Vec::new(), overflow_left: 0, snapshot }
    }

    /// Stores a key that has no entry in the first slot of its chain that may be filled.
    fn put(&mut self, key: [u64; 2], entry: *mut EntryHeader, domain: &Domain) {
        let mut bucket: *const Bucket = &self.buckets[(hash(key, self.snapshot.seeds) & self.snapshot.mask) as usize];
        loop {
            // SAFETY: buckets of the array and of its chains live as long as `self`.
            let here = unsafe { &*bucket };
            for slot in 0..SLOTS {
                if here.entries[slot].load(Ordering::Relaxed).is_null() && here.may_take(slot, key, domain) {
                    here.fill(slot, key, entry);
                    return;
                }
            }
            let next = here.overflow.load(Ordering::Relaxed);
            if next.is_null() {
                let fresh = self.overflow_bucket();
                // SAFETY: as above; the bucket is new and ours.
                unsafe { (*fresh).fill(0, key, entry) };
                here.overflow.store(fresh.cast_mut(), Ordering::Release);
                return;
            }
            bucket = next;
        }
    }

    fn overflow_bucket(&mut self) -> *const Bucket {
        if self.overflow_left == 0 {
            self.overflow.push(zeroed_buckets(OVERFLOW_CHUNK));
            self.overflow_left = OVERFLOW_CHUNK;
        }
        let chunk = self.overflow.last().expect("a chunk was pushed");
        let at = OVERFLOW_CHUNK - self.overflow_left;
        self.overflow_left -= 1;
        &chunk[at]
    }

    /// The bucket and slot that hold a key's entry.
    fn locate(&self, key: [u64; 2]) -> Option<(&Bucket, usize)> {
        let mut bucket: *const Bucket = &self.buckets[(hash(key, self.snapshot.seeds) & self.snapshot.mask) as usize];
        // SAFETY: buckets of the array and of its chains live as long as `self`.
        while let Some(here) = unsafe { bucket.as_ref() } {
            let found =
                |&slot: &usize| !here.entries[slot].load(Ordering::Relaxed).is_null() && here.has_key(slot, key);
            if let Some(slot) = (0..SLOTS).find(found) {
                return Some((here, slot));
            }
            bucket = here.overflow.load(Ordering::Relaxed);
        }
        None
    }

    /// All keys with their entries.
    fn iter(&self) -> impl Iterator<Item = ([u64; 2], *mut EntryHeader)> + '_ {
        let buckets = self.buckets.iter().chain(self.overflow.iter().flat_map(|chunk| chunk.iter()));
        buckets.flat_map(|b| {
            (0..SLOTS).filter_map(move |slot| {
                let entry = b.entries[slot].load(Ordering::Relaxed);
                let key = [b.keys[slot][0].load(Ordering::Relaxed), b.keys[slot][1].load(Ordering::Relaxed)];
                (!entry.is_null()).then_some((key, entry))
            })
        })
    }
}

/// A bucket array that [`PointerMap::grow`] replaced, to be dropped when no reader can hold its snapshot any more.
#[derive(Debug)]
pub struct OldArray(#[allow(dead_code, reason = "kept alive until dropped")] Array);

// SAFETY: the pointers point at memory that the array owns, or at entries, which are only compared with null.
unsafe impl Send for OldArray {}

/// The writer's side: maps keys to entry pointers. It owns the buckets, not the entries.
#[derive(Debug)]
pub struct PointerMap {
    array: Array,
    len: usize,
}

// SAFETY: the pointers point at memory that the map owns; entry pointers are only stored and returned.
unsafe impl Send for PointerMap {}

impl PointerMap {
    /// An empty map with random seeds.
    pub fn new() -> PointerMap {
        PointerMap::with_seeds(crate::random_seeds())
    }

    /// An empty map with these seeds.
    pub fn with_seeds(seeds: [u64; 2]) -> PointerMap {
        PointerMap { array: Array::new(FIRST_BUCKETS, seeds), len: 0 }
    }

    /// What readers load first; to be published. It changes only in [`grow`](PointerMap::grow).
    pub fn snapshot(&self) -> *const MapSnapshot {
        &raw const self.array.snapshot.0
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry of a key, or null.
    pub fn get(&self, key: [u64; 2]) -> *mut EntryHeader {
        // SAFETY: the snapshot is ours and lives as long as `self`.
        unsafe { probe(self.snapshot(), key) }
    }

    /// Whether the next [`insert`](PointerMap::insert) should be preceded by a [`grow`](PointerMap::grow).
    pub fn is_crowded(&self) -> bool {
        self.len >= self.array.buckets.len() * MAX_LOAD_PER_BUCKET
    }

    /// Doubles the number of buckets. The caller publishes the new [`snapshot`](PointerMap::snapshot), then retires the
    /// old array.
    #[must_use = "the old array must be retired, readers may hold it"]
    pub fn grow(&mut self, domain: &Domain) -> OldArray {
        let mut array = Array::new(self.array.buckets.len() * 2, self.array.snapshot.seeds);
        for (key, entry) in self.array.iter() {
            array.put(key, entry, domain);
        }
        OldArray(std::mem::replace(&mut self.array, array))
    }

    /// Adds a key that is not stored yet; `entry` is not null.
    pub fn insert(&mut self, key: [u64; 2], entry: *mut EntryHeader, domain: &Domain) {
        debug_assert!(!entry.is_null() && self.get(key).is_null(), "a new key and an entry");
        self.array.put(key, entry, domain);
        self.len += 1;
    }

    /// Replaces a key's entry. Returns the old one, which the caller retires, or null if the key is not stored.
    pub fn replace(&mut self, key: [u64; 2], entry: *mut EntryHeader) -> *mut EntryHeader {
        debug_assert!(!entry.is_null());
        let Some((bucket, slot)) = self.array.locate(key) else { return ptr::null_mut() };
        let old = bucket.entries[slot].load(Ordering::Relaxed);
        bucket.entries[slot].store(entry, Ordering::Release);
        old
    }

    /// Removes a key. Returns its entry and the epoch of the removal.
    pub fn remove(&mut self, key: [u64; 2], domain: &Domain) -> Option<(*mut EntryHeader, u64)> {
        let (bucket, slot) = self.array.locate(key)?;
        let old = bucket.entries[slot].load(Ordering::Relaxed);
        bucket.entries[slot].store(ptr::null_mut(), Ordering::Release);
        let epoch = domain.advance();
        // Zero means "never used"; 1 stands for a later epoch, which is safe.
        bucket.removed[slot].store((epoch as u32).max(1), Ordering::Relaxed);
        self.len -= 1;
        Some((old, epoch))
    }

    /// All keys with their entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = ([u64; 2], *mut EntryHeader)> + '_ {
        self.array.iter()
    }
}

impl Default for PointerMap {
    fn default() -> Self {
        PointerMap::new()
    }
}

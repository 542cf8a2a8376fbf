//! The array of buckets of a table: probe sequences, and filling, changing and emptying slots. The writer's side of
//! [`super::probe`].
//!
//! Threads: a bucket has one writer at a time; any number of readers. Tests: `tests/properties.rs`, `tests/loom.rs`.
#![allow(unsafe_code)]

use super::bucket::{Bucket, Shape};
use super::{ExactSnapshot, Form, Place, WINDOW};
#[cfg(not(loom))]
use crate::region::Region;
use crate::sync::{CachePadded, prefetch};
use std::ops::{Deref, Range};

/// Buckets after the last home bucket: the window of second buckets, the rest of the longest run of linear probing, and
/// one bucket that is always empty, so that every search ends.
const BEHIND: usize = WINDOW as usize + RUN as usize;
/// Limit of the buckets that a key may be in, from its second one on.
const RUN: u32 = if cfg!(loom) { 2 } else { 64 };

/// Entries that are copied to a new array per round.
const GROUP: usize = if cfg!(loom) { 2 } else { 32 };

/// The position of a slot in an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Index of the bucket.
    pub bucket: u32,
    /// Index of the slot in the bucket.
    pub slot: u32,
}

#[cfg(not(loom))]
type Buckets = Region<Bucket>;
#[cfg(loom)]
type Buckets = Vec<Bucket>;

fn zeroed(count: usize) -> Buckets {
    #[cfg(not(loom))]
    {
        // SAFETY: a bucket has only integers; zero bytes are an empty one.
        let buckets: Buckets = unsafe { Region::zeroed(count) };
        buckets.make_pages();
        buckets
    }
    #[cfg(loom)]
    (0..count).map(|_| Bucket::new()).collect()
}

/// An array of buckets with its snapshot.
#[derive(Debug)]
pub struct Array {
    buckets: Buckets,
    shape: Shape,
    snapshot: Box<CachePadded<ExactSnapshot>>,
}

// SAFETY: the snapshot points at the buckets, which the array owns.
unsafe impl Send for Array {}

impl Array {
    /// An empty array with `homes` home buckets, and those after them.
    pub fn new(homes: u32, form: Form, seeds: [u64; 2]) -> Array {
        let buckets = zeroed(homes as usize + BEHIND);
        let snapshot = Box::new(CachePadded(ExactSnapshot {
            buckets: buckets.deref().as_ptr(),
            count: homes.into(),
            seeds,
            form,
        }));
        Array { buckets, shape: form.shape, snapshot }
    }

    /// What readers load.
    pub fn snapshot(&self) -> &ExactSnapshot {
        &self.snapshot
    }

    /// Number of home buckets.
    pub fn homes(&self) -> u32 {
        self.snapshot.count as u32
    }

    /// A bucket.
    pub fn bucket(&self, bucket: u32) -> &Bucket {
        &self.buckets[bucket as usize]
    }

    /// The last bucket of the probe sequence with this second bucket.
    #[cfg(not(loom))]
    pub(super) fn last_of_path(second: u32) -> u32 {
        second + RUN - 1
    }

    /// Whether a key with this home may be in another bucket, or would have to go there.
    #[cfg(not(loom))]
    pub(super) fn is_passed_or_full(&self, home: u32, hash: u64) -> bool {
        let meta = self.bucket(home).meta();
        meta.passed(Place::of(hash, self.snapshot.count).mark) || meta.free(&self.shape) == 0
    }

    /// Whether a bucket has no free slot.
    #[cfg(not(loom))]
    pub(super) fn is_full(&self, bucket: u32) -> bool {
        self.bucket(bucket).meta().free(&self.shape) == 0
    }

    /// Whether readers find a slot.
    #[cfg(not(loom))]
    pub(super) fn is_live(&self, at: At) -> bool {
        self.bucket(at.bucket).meta().live(&self.shape) >> at.slot & 1 == 1
    }

    /// Number of all buckets, including those after the home buckets.
    #[cfg(not(loom))]
    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Its memory in bytes.
    #[cfg(not(loom))]
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.bytes()
    }

    /// The probe sequence of a hash.
    pub(super) fn path(&self, hash: u64) -> impl Iterator<Item = u32> + use<> {
        let Place { home, second, .. } = Place::of(hash, self.snapshot.count);
        std::iter::once(home).chain(second..second + RUN)
    }

    /// The live slot that holds `key` and that `is` accepts.
    pub fn locate(&self, hash: u64, key: &[u32], is: impl Fn(&Bucket, usize) -> bool) -> Option<At> {
        let mark = Place::of(hash, self.snapshot.count).mark;
        for bucket in self.path(hash) {
            let here = self.bucket(bucket);
            let meta = here.meta();
            let mut found = here.matching(&self.shape, key) & meta.live(&self.shape);
            while found != 0 {
                let slot = found.trailing_zeros();
                if is(here, slot as usize) {
                    return Some(At { bucket, slot });
                }
                found &= found - 1;
            }
            if !meta.passed(mark) {
                return None;
            }
        }
        None
    }

    /// Whether a slot is in the home bucket of a key with this hash.
    #[cfg(not(loom))]
    pub(crate) fn is_home(&self, hash: u64, at: At) -> bool {
        Place::of(hash, self.snapshot.count).home == at.bucket
    }

    /// A free slot for a key, `from` the given bucket of its probe sequence on: then a search that has passed the old
    /// slot finds or will find the new one. `None` if the probe sequence has no free slot.
    pub fn reserve(&self, hash: u64, from: Option<u32>) -> Option<At> {
        let mut path = self.path(hash).skip_while(|bucket| from.is_some_and(|from| from != *bucket));
        path.find_map(|bucket| {
            let free = self.bucket(bucket).meta().free(&self.shape);
            (free != 0).then(|| At { bucket, slot: free.trailing_zeros() })
        })
    }

    /// A free slot in a bucket.
    #[cfg(not(loom))]
    pub(crate) fn reserve_in(&self, bucket: u32) -> Option<At> {
        let free = self.bucket(bucket).meta().free(&self.shape);
        (free != 0).then(|| At { bucket, slot: free.trailing_zeros() })
    }

    /// Publishes a reserved slot, whose entry has been written, under `key`, and hides the slot that it replaces.
    pub fn publish(&self, hash: u64, key: &[u32], at: At, instead_of: Option<At>) {
        let mark = Place::of(hash, self.snapshot.count).mark;
        for bucket in self.path(hash).take_while(|bucket| *bucket != at.bucket) {
            let passed = self.bucket(bucket);
            if !passed.meta().passed(mark) {
                passed.pass(mark);
            }
        }
        let bucket = self.bucket(at.bucket);
        bucket.set_key(&self.shape, at.slot as usize, key);
        match instead_of {
            Some(old) if old.bucket == at.bucket => bucket.publish(at.slot as usize, Some(old.slot as usize)),
            Some(old) => {
                bucket.publish(at.slot as usize, None);
                self.unpublish(old);
            }
            None => bucket.publish(at.slot as usize, None),
        }
    }

    /// Hides a live slot from readers. Its bytes do not change until it is released.
    pub fn unpublish(&self, at: At) {
        self.bucket(at.bucket).unpublish(at.slot as usize);
    }

    /// Frees a hidden slot; every reader has been quiescent since it was hidden.
    pub fn release(&self, at: At) {
        self.bucket(at.bucket).release(at.slot as usize);
    }

    /// All live slots.
    pub fn live(&self) -> impl Iterator<Item = At> + '_ {
        self.live_in(0..self.buckets.len())
    }

    /// The buckets that keys with one of these homes may be in.
    #[cfg(not(loom))]
    pub(crate) fn reach(&self, homes: Range<u32>) -> Range<usize> {
        homes.start as usize..(homes.end as usize + BEHIND).min(self.buckets.len())
    }

    /// The live slots of a range of buckets.
    pub(crate) fn live_in(&self, buckets: Range<usize>) -> impl Iterator<Item = At> + '_ {
        (buckets.start as u32..).zip(&self.buckets[buckets]).flat_map(|(bucket, b)| {
            let live = b.meta().live(&self.shape);
            (0..self.shape.slots).filter(move |slot| live >> slot & 1 == 1).map(move |slot| At { bucket, slot })
        })
    }

    /// Fills this empty array, which no reader sees yet, with the entries of another: first every key that finds room
    /// in its home bucket, then the others, so that as many as possible are at home. Returns false if a key finds no
    /// room at all.
    pub fn fill_from(&self, old: &Array, hash: impl Fn(&Array, At) -> u64) -> bool {
        let mut key = [0; 4];
        let key = &mut key[..self.shape.key_words()];
        let mut put = |from: At, hash: u64, at: At| {
            let theirs = old.bucket(from.bucket);
            theirs.key(&self.shape, from.slot as usize, key);
            self.bucket(at.bucket).copy_entry(at.slot as usize, theirs, from.slot as usize, &self.shape);
            self.publish(hash, key, at, None);
        };
        let mut others = Vec::new();
        let mut group = Vec::with_capacity(GROUP);
        let mut live = old.live();
        loop {
            // The home buckets of one group are prefetched before it is inserted.
            group.extend(live.by_ref().take(GROUP));
            if group.is_empty() {
                break;
            }
            let hashed = |from: At| {
                let hash = hash(old, from);
                let home = Place::of(hash, self.snapshot.count).home;
                prefetch(self.bucket(home));
                (from, hash, home)
            };
            let places: [Option<(At, u64, u32)>; GROUP] = std::array::from_fn(|i| group.get(i).copied().map(hashed));
            group.clear();
            for (from, hash, home) in places.into_iter().flatten() {
                match self.reserve(hash, None) {
                    Some(at) if at.bucket == home => put(from, hash, at),
                    _ => others.push((from, hash)),
                }
            }
        }
        others.into_iter().all(|(from, hash)| match self.reserve(hash, None) {
            Some(at) => {
                put(from, hash, at);
                true
            }
            None => false,
        })
    }
}

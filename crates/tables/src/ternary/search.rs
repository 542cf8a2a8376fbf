//! The part of a ternary table that readers see, and its lookup.
//!
//! **Hashing eight tuples at once.** A lookup must hash the key under each tuple's mask. So the masks of eight tuples
//! are interleaved word by word, and eight hashes are computed together in vector registers ([`super::lanes`]): each
//! 64-bit word contributes the product of its halves, after the addition of secret numbers (the NH hash of Black,
//! Halevi, Krawczyk, Krovetz, Rogaway: "UMAC: fast and secure message authentication"). Words in which no mask has bits
//! are skipped; a word whose mask is zero contributes zero, so hashes do not depend on which words are skipped. The
//! [`Filter`] then selects those of the eight tuples that may have a matching entry; the others, nearly all that have
//! none, cost nothing more.
//!
//! **Batches.** For each of up to 16 keys the first tuple that may have a matching entry is found, and its bucket
//! prefetched; then the first node of each bucket is prefetched; then the searches continue from there.
//!
//! Threads: any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use super::filter::Filter;
use super::lanes::{Hasher, LANES, Pass, Portable, Word, hash_one};
use super::linear::Linear;
use super::memory::{Buckets, Node};
use super::vectors::Published;
use crate::lpm::walk::prefetch;
use crate::version::Version;
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EntryHeader, TableHandle};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Limit of the tuples that are probed without testing the filter.
const UNFILTERED_MAX: usize = 2;
/// Keys of a batch whose memory is prefetched together.
const BATCH: usize = 16;
/// The part of the engine that readers see; its address is fixed for the life of the table.
pub(super) struct Shared {
    /// The entries of a small table; null if there are too many.
    pub(super) linear: AtomicPtr<Linear>,
    /// The bit vectors; null unless there are many masks.
    pub(super) vectors: AtomicPtr<Published>,
    pub(super) tuples: AtomicPtr<TupleList>,
    /// Contains all linked entries, and perhaps removed ones.
    pub(super) filter: AtomicPtr<Filter>,
    pub(super) version: Version,
    pub(super) hasher: Hasher,
    /// Words of a packet's key.
    pub(super) words: usize,
    /// The range fields, which are checked on candidates.
    pub(super) ranges: Vec<RangeField>,
}

/// The position of a range field in the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeField {
    pub(super) word: usize,
    pub(super) shift: u32,
    /// The mask of a field within one word, after the shift.
    pub(super) mask: u64,
    /// More than 1 for fields above 64 bits.
    pub(super) words: usize,
}

/// The entries with one mask.
pub(super) struct Tuple {
    /// The mask, with as many words as the key.
    pub(super) mask: Vec<u64>,
    /// The initial value of the tuple's hashes.
    pub(super) salt: u64,
    pub(super) buckets: AtomicPtr<Buckets>,
}

/// A segment of the list of all tuples, which are in descending order of their highest priorities. Immutable except for
/// the link. A segment of at most [`UNFILTERED_MAX`] tuples is the only one.
pub(super) struct TupleList {
    pub(super) tuples: Vec<(i32, *const Tuple)>,
    /// The next segment, or null. A segment that has been replaced keeps its link: what it leads to is not freed before
    /// its readers have been quiescent.
    pub(super) next: AtomicPtr<TupleList>,
    /// The words of the key in which some mask has bits.
    words: Vec<Word>,
    /// For each group of eight tuples, their rows ([`super::lanes::Rows`]).
    rows: Vec<[u64; LANES]>,
}

/// The state of a search: the tuples of a group of eight that may have a matching entry.
#[derive(Clone, Copy, Default)]
struct Found<'a> {
    /// The segment; none if the search has ended.
    list: Option<&'a TupleList>,
    group: usize,
    /// One bit for each such tuple. If there is none, the search has ended.
    candidates: u32,
    hashes: [u32; LANES],
}

impl TupleList {
    /// About its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.tuples) + size_of_val(&*self.words) + size_of_val(&*self.rows)
    }

    /// A segment of these tuples, which are sorted.
    pub(super) fn new(tuples: Vec<(i32, *const Tuple)>, hasher: &Hasher) -> TupleList {
        // SAFETY: the writer lists tuples that are alive.
        let tuple = |i: usize| unsafe { &*tuples[i].1 };
        let has_bits = |word: &usize| (0..tuples.len()).any(|i| tuple(i).mask[*word] != 0);
        let words: Vec<Word> = (0..hasher.words()).filter(has_bits).map(|i| hasher.word(i)).collect();
        let mut rows = Vec::with_capacity(tuples.len().div_ceil(LANES) * (words.len() + 1));
        for first in (0..tuples.len()).step_by(LANES) {
            let group = first..(first + LANES).min(tuples.len());
            let mut row = |of: &dyn Fn(&Tuple) -> u64| {
                let mut row = [0; LANES];
                group.clone().for_each(|i| row[i - first] = of(tuple(i)));
                rows.push(row);
            };
            row(&|tuple| hasher.first(tuple.salt, &words));
            words.iter().for_each(|word| row(&|tuple| tuple.mask[word.position]));
        }
        TupleList { tuples, next: AtomicPtr::new(ptr::null_mut()), words, rows }
    }

    /// The segment with another tuple at this position.
    pub(super) fn with(&self, at: usize, tuple: (i32, *const Tuple), hasher: &Hasher) -> TupleList {
        let mut tuples = Vec::with_capacity(self.tuples.len() + 1);
        tuples.extend_from_slice(&self.tuples[..at]);
        tuples.push(tuple);
        tuples.extend_from_slice(&self.tuples[at..]);
        // SAFETY: the writer lists tuples that are alive.
        let (mask, salt) = unsafe { (&(*tuple.1).mask, (*tuple.1).salt) };
        let covered = |word: usize| mask[word] == 0 || self.words.iter().any(|w| w.position == word);
        if !(0..hasher.words()).all(covered) {
            return TupleList::new(tuples, hasher);
        }
        let mut rows = self.moved(at, tuples.len(), |to| if to > at { to - 1 } else { to });
        let (group, lane) = (at / LANES * (self.words.len() + 1), at % LANES);
        rows[group][lane] = hasher.first(salt, &self.words);
        for (word, row) in self.words.iter().zip(&mut rows[group + 1..]) {
            row[lane] = mask[word.position];
        }
        TupleList { tuples, next: AtomicPtr::new(ptr::null_mut()), words: self.words.clone(), rows }
    }

    /// The segment without the tuple at this position.
    pub(super) fn without(&self, at: usize, hasher: &Hasher) -> TupleList {
        let mut tuples = Vec::with_capacity(self.tuples.len() - 1);
        tuples.extend_from_slice(&self.tuples[..at]);
        tuples.extend_from_slice(&self.tuples[at + 1..]);
        let rows = self.moved(at, tuples.len(), |to| if to >= at { to + 1 } else { to });
        let is_used = |word: usize| rows[1 + word..].iter().step_by(self.words.len() + 1).any(|row| *row != [0; LANES]);
        if tuples.is_empty() || !(0..self.words.len()).all(is_used) {
            return TupleList::new(tuples, hasher);
        }
        TupleList { tuples, next: AtomicPtr::new(ptr::null_mut()), words: self.words.clone(), rows }
    }

    /// Rows for `len` tuples of which those before `from` stay, and each later one is that at position `source` here,
    /// if there is one.
    fn moved(&self, from: usize, len: usize, source: impl Fn(usize) -> usize) -> Vec<[u64; LANES]> {
        let width = self.words.len() + 1;
        let mut rows = vec![[0; LANES]; len.div_ceil(LANES) * width];
        let same = (from / LANES * width).min(rows.len());
        rows[..same].copy_from_slice(&self.rows[..same]);
        for to in from / LANES * LANES..len {
            let of = source(to);
            if of < self.tuples.len() {
                let (to_row, of_row) = (to / LANES * width, of / LANES * width);
                for i in 0..width {
                    rows[to_row + i][to % LANES] = self.rows[of_row + i][of % LANES];
                }
            }
        }
        rows
    }

    /// Whether the tuples are few and small enough to stay cached, so that prefetching does not pay.
    ///
    /// # Safety
    /// The tuples are alive.
    #[inline(always)]
    unsafe fn is_cached(&self) -> bool {
        const BUCKETS_MAX: usize = 1024;
        // SAFETY: the caller's promise.
        let buckets = |(_, tuple): &(i32, *const Tuple)| unsafe { (*(**tuple).buckets.load(Ordering::Acquire)).len() };
        self.tuples.len() <= UNFILTERED_MAX && self.tuples.iter().map(buckets).sum::<usize>() <= BUCKETS_MAX
    }

    /// The first group, from number `group` of this segment on, with a tuple that may have an entry of at least this
    /// priority.
    ///
    /// # Safety
    /// `key` has the table's words; the processor has the instructions; the caller is online.
    #[inline(always)]
    unsafe fn find<P: Pass>(&self, filter: &Filter, group: usize, key: *const u64, priority: i32) -> Found<'_> {
        if self.tuples.len() <= UNFILTERED_MAX {
            let mut found = Found { list: Some(self), ..Found::default() };
            for i in 0..if group == 0 { self.tuples.len() } else { 0 } {
                // SAFETY: the caller's promise.
                found.hashes[i] = unsafe { hash_one(&self.words, &self.rows, i, key) };
                found.candidates |= 1 << i;
            }
            return found;
        }
        let (mut list, mut group) = (self, group);
        loop {
            let width = list.words.len() + 1;
            let groups = list.tuples.chunks(LANES).zip(list.rows.chunks_exact(width)).enumerate();
            for (group, (tuples, rows)) in groups.skip(group) {
                if tuples[0].0 < priority {
                    return Found::default();
                }
                // SAFETY: the caller's promise.
                let (passed, hashes) = unsafe { P::pass(&list.words, rows, key, filter) };
                let candidates = passed & ((1 << tuples.len()) - 1);
                if candidates != 0 {
                    return Found { list: Some(list), group, candidates, hashes };
                }
            }
            // SAFETY: linked segments outlive the caller's batch.
            let Some(next) = (unsafe { list.next.load(Ordering::Acquire).as_ref() }) else { return Found::default() };
            (list, group) = (next, 0);
        }
    }
}

impl Shared {
    /// The best entry that matches a key, or null: repeats [`Shared::search`] until no change began meanwhile.
    ///
    /// # Safety
    /// As [`Shared::search`].
    #[inline(always)]
    unsafe fn find<P: Pass>(&self, key: *const u64) -> *mut EntryHeader {
        // No closure here: it would be compiled without the caller's target features.
        let mut repeats = self.version.repeats();
        loop {
            let before = self.version.begin();
            // SAFETY: the caller's promise.
            let found = unsafe { self.search::<P>(key) };
            if self.version.is_still(before) {
                return found;
            }
            repeats.again();
        }
    }

    /// The best entry that matches a key, or null; may be inconsistent if several changes overlap with it.
    ///
    /// # Safety
    /// The caller is online; `key` has the table's words; the processor has the instructions of `P`.
    #[inline(always)]
    unsafe fn search<P: Pass>(&self, key: *const u64) -> *mut EntryHeader {
        // SAFETY: the caller's promise; linked memory outlives the caller's batch.
        unsafe {
            if let Some(linear) = self.linear.load(Ordering::Acquire).as_ref() {
                return linear.search::<P>(self, key);
            }
            if let Some(vectors) = self.vectors.load(Ordering::Acquire).as_ref() {
                return vectors.search::<P>(self, key);
            }
            let (list, filter) = self.lists();
            if list.tuples.len() > UNFILTERED_MAX {
                return self.search_on::<P>(filter, list.find::<P>(filter, 0, key, i32::MIN), key);
            }
            let mut best = None::<&Node>;
            for (i, &(priority, tuple)) in list.tuples.iter().enumerate() {
                if best.is_some_and(|b| b.priority > priority) {
                    break;
                }
                self.probe(&*tuple, hash_one(&list.words, &list.rows, i, key), key, &mut best);
            }
            best.map_or(ptr::null_mut(), |node| node.entry.load(Ordering::Acquire))
        }
    }

    /// # Safety
    /// As [`Shared::search`].
    #[inline(always)]
    unsafe fn lists(&self) -> (&TupleList, &Filter) {
        // SAFETY: linked memory outlives the caller's batch.
        unsafe { (&*self.tuples.load(Ordering::Acquire), &*self.filter.load(Ordering::Acquire)) }
    }

    /// The best entry that matches a key, or null; continues a search from the first candidates, `found`.
    ///
    /// # Safety
    /// As [`Shared::search`].
    #[inline(always)]
    unsafe fn search_on<P: Pass>(&self, filter: &Filter, found: Found<'_>, key: *const u64) -> *mut EntryHeader {
        let (mut found, mut best) = (found, None::<&Node>);
        // SAFETY: the caller's promise; the list's tuples and all linked memory outlive the caller's batch.
        unsafe {
            while let (Some(list), 1..) = (found.list, found.candidates) {
                let i = found.candidates.trailing_zeros() as usize;
                found.candidates &= found.candidates - 1;
                let (priority, tuple) = *list.tuples.get_unchecked(LANES * found.group + i);
                if best.is_some_and(|b| b.priority > priority) {
                    break;
                }
                self.probe(&*tuple, found.hashes[i], key, &mut best);
                if found.candidates == 0 {
                    found = list.find::<P>(filter, found.group + 1, key, best.map_or(i32::MIN, |b| b.priority));
                }
            }
        }
        best.map_or(ptr::null_mut(), |node| node.entry.load(Ordering::Acquire))
    }

    /// Makes the first entry of a tuple that matches the key the best one, if it beats the best so far.
    ///
    /// # Safety
    /// As [`Shared::search`]; the tuple was in the list.
    #[inline(always)]
    unsafe fn probe(&self, tuple: &Tuple, hash: u32, key: *const u64, best: &mut Option<&Node>) {
        // SAFETY: linked memory outlives the caller's batch; the key has the table's words.
        unsafe {
            let key = |i: usize| key.add(i).read_unaligned();
            let buckets = &*tuple.buckets.load(Ordering::Acquire);
            let mut next = buckets.head(hash).load(Ordering::Acquire);
            while let Some(node) = next.as_ref() {
                if best.is_some_and(|b| !node.beats(b)) {
                    break;
                }
                if node.hash == hash && self.accepts(next, |i| key(i) & tuple.mask[i], key) {
                    *best = Some(node);
                    break;
                }
                next = node.next.load(Ordering::Acquire);
            }
        }
    }

    /// Whether a node's value equals the masked key, and its ranges contain the key.
    ///
    /// # Safety
    /// The node is alive and has the words of this engine.
    #[inline(always)]
    unsafe fn accepts(&self, node: *const Node, masked: impl Fn(usize) -> u64, key: impl Fn(usize) -> u64) -> bool {
        // SAFETY: the caller's promise.
        let word = |i: usize| unsafe { Node::word(node, i) };
        (0..self.words).all(|i| word(i) == masked(i))
            && (self.ranges.is_empty() || self.in_ranges(|i| word(self.words + i), key))
    }

    /// Whether the key is within all ranges; `ends` returns the words of the low ends, then of the high ends.
    #[inline]
    pub(super) fn in_ranges(&self, ends: impl Fn(usize) -> u64, key: impl Fn(usize) -> u64) -> bool {
        self.ranges.iter().all(|range| {
            let (low, high) = (range.word, self.words + range.word);
            if range.words == 1 {
                let part = |w: u64| w >> range.shift & range.mask;
                let value = part(key(range.word));
                part(ends(low)) <= value && value <= part(ends(high))
            } else {
                let at_least = |a: &dyn Fn(usize) -> u64, b: &dyn Fn(usize) -> u64| {
                    (0..range.words).rev().map(a).ge((0..range.words).rev().map(b))
                };
                let value = |i: usize| key(range.word + i);
                at_least(&value, &|i| ends(low + i)) && at_least(&|i| ends(high + i), &value)
            }
        })
    }

    /// Looks up as many keys as there are results.
    ///
    /// # Safety
    /// As [`Shared::search`] for each key.
    #[inline(always)]
    unsafe fn search_all<P: Pass>(&self, keys: *const u64, result: &mut [*const EntryHeader]) {
        for (chunk, result) in result.chunks_mut(BATCH).enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let key = |i: usize| keys.add((chunk * BATCH + i) * self.words);
                let before = self.version.begin();
                let linear = self.linear.load(Ordering::Acquire).as_ref();
                match (linear, self.vectors.load(Ordering::Acquire).as_ref()) {
                    (Some(linear), _) => {
                        for (i, result) in result.iter_mut().enumerate() {
                            *result = linear.search::<P>(self, key(i));
                        }
                    }
                    (None, Some(vectors)) => {
                        for (i, result) in result.iter_mut().enumerate() {
                            *result = vectors.search::<P>(self, key(i));
                        }
                    }
                    (None, None) => self.search_batch::<P>(key(0), result),
                }
                if !self.version.is_still(before) {
                    // One by one: a writer that keeps changing the table would otherwise make whole batches be looked
                    // up again and again.
                    for (i, result) in result.iter_mut().enumerate() {
                        *result = self.find::<P>(key(i));
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`Shared::search`] for each key; there are at most [`BATCH`].
    #[inline(always)]
    unsafe fn search_batch<P: Pass>(&self, keys: *const u64, result: &mut [*const EntryHeader]) {
        // SAFETY: the caller's promise; linked memory outlives the caller's batch.
        unsafe {
            let (list, filter) = self.lists();
            if list.is_cached() {
                for (i, result) in result.iter_mut().enumerate() {
                    *result = self.search::<P>(keys.add(i * self.words));
                }
                return;
            }
            let mut found = [Found::default(); BATCH];
            let mut heads = [ptr::null::<AtomicPtr<Node>>(); BATCH];
            for i in 0..result.len() {
                found[i] = list.find::<P>(filter, 0, keys.add(i * self.words), i32::MIN);
                let Found { list, group, candidates, hashes } = found[i];
                if let (Some(list), 1..) = (list, candidates) {
                    let lane = candidates.trailing_zeros() as usize;
                    let (_, tuple) = *list.tuples.get_unchecked(LANES * group + lane);
                    heads[i] = (*(*tuple).buckets.load(Ordering::Acquire)).head(hashes[lane]);
                    prefetch(heads[i].cast());
                }
            }
            for head in heads[..result.len()].iter().filter(|head| !head.is_null()) {
                prefetch((**head).load(Ordering::Acquire).cast());
            }
            for (i, result) in result.iter_mut().enumerate() {
                *result = self.search_on::<P>(filter, found[i], keys.add(i * self.words));
                prefetch(result.cast());
            }
        }
    }
}

/// The lookup functions, compiled twice: for any processor, and for those with AVX2.
macro_rules! lookups {
    ($module:ident, $pass:ty $(, $feature:meta)?) => {
        mod $module {
            use super::*;

            /// Looks a key up; see [`LookupFn`].
            $(#[$feature])?
            pub(super) unsafe extern "C" fn one(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
                // SAFETY: the caller passes a handle of such a table and a key of its layout, and is online; what is
                // linked stays until it is quiescent.
                unsafe {
                    let shared = &*(*handle).snapshot.load(Ordering::Acquire).cast::<Shared>();
                    shared.find::<$pass>(key.cast())
                }
            }

            /// Looks keys up; see [`LookupBatchFn`].
            $(#[$feature])?
            pub(super) unsafe extern "C" fn many(
                handle: *const TableHandle,
                keys: *const u8,
                count: u32,
                out: *mut *const EntryHeader,
            ) {
                // SAFETY: as above; there is room for as many entries. What is in `out` is not read.
                unsafe {
                    let shared = &*(*handle).snapshot.load(Ordering::Acquire).cast::<Shared>();
                    (0..count as usize).for_each(|i| out.add(i).write(ptr::null()));
                    shared.search_all::<$pass>(keys.cast(), std::slice::from_raw_parts_mut(out, count as usize));
                }
            }
        }
    };
}

lookups!(portable, Portable);
#[cfg(target_arch = "x86_64")]
lookups!(vectors, super::super::lanes::Avx2, target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2"));

/// The lookup functions for this processor.
pub(super) fn lookups() -> (LookupFn, LookupBatchFn) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
        {
            return (vectors::one, vectors::many);
        }
    }
    (portable::one, portable::many)
}

//! Lookups through calls: one key, or a batch with prefetching.
//!
//! Keys above 16 bytes are compared in the out-of-line cell, where they precede the entry. The slot holds 32 bits of
//! their hash, so that nearly always only the matching cell is read.
#![allow(unsafe_code)]

use super::bucket::Bucket;
use super::{ENTRY_ADDRESS_BYTES, ExactSnapshot, Form, Place, hash, hash_words, probe};
use crate::sync::{Ordering, prefetch};
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EntryHeader, TableHandle};
use std::ptr;

/// Keys of a batch that are processed together: about as many lines as can be fetched at once.
const GROUP: usize = 16;

impl Form {
    /// The address of a slot's entry.
    ///
    /// # Safety
    /// The slot is live, or was when the caller was last quiescent.
    #[inline]
    pub(crate) unsafe fn entry(&self, bucket: &Bucket, slot: usize) -> *mut EntryHeader {
        let at = bucket.entry(&self.shape, slot);
        if !self.out_of_line {
            return at.wrapping_add(self.before as usize).cast();
        }
        let mut address = [0; 8];
        // SAFETY: the slot has so many bytes, which do not change.
        unsafe { ptr::copy_nonoverlapping(at, address.as_mut_ptr(), ENTRY_ADDRESS_BYTES as usize) };
        ptr::with_exposed_provenance_mut(u64::from_le_bytes(address) as usize)
    }

    /// The address of the key that precedes an out-of-line entry.
    ///
    /// # Safety
    /// The entry is live and has a wide key.
    #[inline]
    pub(crate) unsafe fn wide_key(&self, entry: *const EntryHeader) -> *const u64 {
        entry.cast::<u8>().wrapping_sub(self.before as usize + 8 * self.wide_words as usize).cast()
    }

    /// Whether a live slot holds this wide key.
    ///
    /// # Safety
    /// As of [`Form::entry`], and `key` has the words of a key.
    #[inline]
    pub(crate) unsafe fn has_wide(&self, bucket: &Bucket, slot: usize, key: *const u64) -> bool {
        // SAFETY: the caller's promise; keys in cells are written before their slot is live and aligned to 8.
        unsafe {
            let stored = self.wide_key(self.entry(bucket, slot));
            (0..self.wide_words as usize).all(|i| stored.add(i).read() == key.add(i).read_unaligned())
        }
    }
}

/// A key of `W` 32-bit words: as those, and as two 64-bit words. `key` points at a key of the table's layout.
#[inline]
unsafe fn read<const W: usize>(key: *const u8) -> ([u32; W], [u64; 2]) {
    // SAFETY: a key has so many bytes, and is a multiple of 8 bytes long.
    unsafe {
        let second = if W > 2 { key.cast::<u64>().add(1).read_unaligned() } else { 0 };
        (key.cast::<[u32; W]>().read_unaligned(), [key.cast::<u64>().read_unaligned(), second])
    }
}

#[inline]
unsafe fn hash_inline<const W: usize>(snapshot: *const ExactSnapshot, key: *const u8) -> u64 {
    // SAFETY: the caller's.
    unsafe { hash(read::<W>(key).1, W > 2, (*snapshot).seeds, (*snapshot).form.mix) }
}

#[inline]
unsafe fn inline_entry<const W: usize>(
    snapshot: *const ExactSnapshot,
    hash: u64,
    key: *const u8,
) -> *const EntryHeader {
    // SAFETY: the caller's.
    unsafe {
        let form = &(*snapshot).form;
        match probe(snapshot, &form.shape, hash, &read::<W>(key).0, |_, _| true) {
            Some((bucket, slot)) => form.entry(&*bucket, slot),
            None => ptr::null(),
        }
    }
}

#[inline]
unsafe fn hash_wide(snapshot: *const ExactSnapshot, key: *const u8) -> u64 {
    // SAFETY: the caller's promise; keys that are passed to calls consist of words.
    unsafe {
        let ExactSnapshot { form, seeds, .. } = &*snapshot;
        hash_key(key.cast(), form.wide_words as usize, *seeds)
    }
}

/// The hash of a wide key.
///
/// # Safety
/// `key` points at `words` words, with any alignment.
#[inline]
unsafe fn hash_key(key: *const u64, words: usize, seeds: [u64; 2]) -> u64 {
    // SAFETY: the caller's promise.
    let word = |i: usize| if i < words { unsafe { key.add(i).read_unaligned() } } else { 0 };
    hash_words(words, word, seeds)
}

#[inline]
unsafe fn wide(snapshot: *const ExactSnapshot, hash: u64, key: *const u8) -> *const EntryHeader {
    // SAFETY: the caller's.
    unsafe {
        let form = &(*snapshot).form;
        let is = |bucket: &Bucket, slot: usize| form.has_wide(bucket, slot, key.cast());
        match probe(snapshot, &form.shape, hash, &[hash as u32], is) {
            Some((bucket, slot)) => form.entry(&*bucket, slot),
            None => ptr::null(),
        }
    }
}

unsafe fn snapshot_of(handle: *const TableHandle) -> *const ExactSnapshot {
    // SAFETY: the caller passes a handle of an exact table.
    unsafe { (*handle).snapshot.load(Ordering::Acquire).cast::<ExactSnapshot>() }
}

/// Looks a key up; see [`LookupFn`].
unsafe extern "C" fn lookup_inline<const W: usize>(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: the caller passes a handle of such a table and a key of its layout, and is online.
    unsafe {
        let snapshot = snapshot_of(handle);
        inline_entry::<W>(snapshot, hash_inline::<W>(snapshot, key), key)
    }
}

/// Looks a key up; see [`LookupFn`].
unsafe extern "C" fn lookup_wide(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: as above.
    unsafe {
        let snapshot = snapshot_of(handle);
        wide(snapshot, hash_wide(snapshot, key), key)
    }
}

/// Hashes and prefetches all keys of a group, then looks them up.
#[inline]
unsafe fn batch(
    handle: *const TableHandle,
    keys: *const u8,
    count: u32,
    out: *mut *const EntryHeader,
    stride: usize,
    hash: impl Fn(*const ExactSnapshot, *const u8) -> u64,
    find: impl Fn(*const ExactSnapshot, u64, *const u8) -> *const EntryHeader,
) {
    // SAFETY: the caller passes a handle of such a table, keys of its layout and room for their entries, and is online.
    unsafe {
        let snapshot = snapshot_of(handle);
        let ExactSnapshot { buckets, count: homes, form, .. } = &*snapshot;
        let mut hashes = [0; GROUP];
        let count = count as usize;
        for first in (0..count).step_by(GROUP) {
            let group = first..(first + GROUP).min(count);
            for i in group.clone() {
                hashes[i - first] = hash(snapshot, keys.add(i * stride));
                prefetch(buckets.add(Place::of(hashes[i - first], *homes).home as usize));
            }
            if form.wide_words > 0 {
                // Prefetches the cells of the first slots whose bits of the hash match, where the keys will be
                // compared.
                for hash in &hashes[..group.len()] {
                    let bucket = &*buckets.add(Place::of(*hash, *homes).home as usize);
                    let live = bucket.meta().live(&form.shape);
                    let found = bucket.matching(&form.shape, &[*hash as u32]) & live;
                    if found != 0 {
                        let entry = form.entry(bucket, found.trailing_zeros() as usize);
                        prefetch(form.wide_key(entry));
                        prefetch(entry);
                    }
                }
            }
            for i in group {
                out.add(i).write(find(snapshot, hashes[i - first], keys.add(i * stride)));
            }
        }
    }
}

/// Looks keys up; see [`LookupBatchFn`].
unsafe extern "C" fn batch_inline<const W: usize>(
    handle: *const TableHandle,
    keys: *const u8,
    count: u32,
    out: *mut *const EntryHeader,
) {
    // SAFETY: as of `batch`.
    unsafe {
        let hash = |s: *const ExactSnapshot, key: *const u8| hash_inline::<W>(s, key);
        let find = |s: *const ExactSnapshot, hash: u64, key: *const u8| inline_entry::<W>(s, hash, key);
        batch(handle, keys, count, out, W.next_multiple_of(2) * 4, hash, find);
    }
}

/// Looks keys up; see [`LookupBatchFn`].
unsafe extern "C" fn batch_wide(handle: *const TableHandle, keys: *const u8, count: u32, out: *mut *const EntryHeader) {
    // SAFETY: as of `batch`.
    unsafe {
        let stride = 8 * (*snapshot_of(handle)).form.wide_words as usize;
        let hash = |s: *const ExactSnapshot, key: *const u8| hash_wide(s, key);
        let find = |s: *const ExactSnapshot, hash: u64, key: *const u8| wide(s, hash, key);
        batch(handle, keys, count, out, stride, hash, find);
    }
}

impl Form {
    /// The lookup functions for tables of this form.
    pub(crate) fn lookups(&self) -> (LookupFn, LookupBatchFn) {
        match (self.wide_words, self.shape.key_bytes) {
            (0, 4) => (lookup_inline::<1>, batch_inline::<1>),
            (0, 8) => (lookup_inline::<2>, batch_inline::<2>),
            (0, 12) => (lookup_inline::<3>, batch_inline::<3>),
            (0, _) => (lookup_inline::<4>, batch_inline::<4>),
            _ => (lookup_wide, batch_wide),
        }
    }
}

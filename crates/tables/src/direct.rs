//! Direct index: the bits of a few exact key fields, concatenated, are the index of the entry in an array.
//!
//! Layout: `TableHandle::snapshot` points at `2^bits` entry pointers, null where there is no entry. `bits` is the sum
//! of the fields' widths; the last field has the lowest bits ([`shifts`]), so that the VLANs of a port, say, are
//! adjacent. Before the entries lie [`FIELDS_MAX`] words that describe the fields' positions in the key for lookups
//! through calls ([`FieldPlace`]). The array never moves. A lookup reads one atomic word, so it is linearisable.
//!
//! Pages of the array without entries take no physical memory ([`Region`]). Still, sparse entries touch more memory
//! than buckets would, so keys of more than [`ALWAYS_BITS`] bits are indices only in tables whose declared size
//! suggests that many of them will be used ([`INDICES_PER_ENTRY_MAX`]).
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use crate::engine::{Engine, Rank, Writing, one_by_one};
use crate::key::KeyShape;
use crate::reclaim::Domain;
use crate::region::Region;
use abi::table::{KeyField, LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, KeyLayout, TableHandle};
use base::entry::MatchKind;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Limit in bits of keys that are indices whatever the table's size.
pub const ALWAYS_BITS: u32 = 16;
/// Limit in bits of keys that can be indices: an array of 32 MB, most of which is usually not touched.
pub const MAX_BITS: u32 = 22;
/// Limit of the array's length per entry of the declared size, for keys of more than [`ALWAYS_BITS`] bits.
pub const INDICES_PER_ENTRY_MAX: u64 = 128;
/// Limit of the number of key fields: the bytes of a word.
pub const FIELDS_MAX: usize = 8;

/// The bit position of each key field in the index, in key order.
pub fn shifts(layout: &KeyLayout) -> Vec<u32> {
    let mut shift = layout.fields.iter().map(|f| f.width).sum();
    let one = |f: &KeyField| {
        shift -= f.width;
        shift
    };
    layout.fields.iter().map(one).collect()
}

/// A field's bit position in the key, its width, and its bit position in the index, packed into one word.
#[derive(Clone, Copy)]
struct FieldPlace(usize);

impl FieldPlace {
    fn new(field: &KeyField, shift: u32) -> FieldPlace {
        FieldPlace(((8 * field.offset) | (field.width << 8) | (shift << 16)) as usize)
    }

    fn part_of_index(self, key: u64) -> u64 {
        let [at, width, shift, ..] = self.0.to_le_bytes();
        ((key >> at) & ((1 << width) - 1)) << shift
    }
}

/// The writer's side.
pub(crate) struct Direct {
    /// The fields' descriptions, then the entries.
    words: Region<AtomicPtr<EntryHeader>>,
}

/// Whether a table of `size` entries with keys of this shape is directly indexed.
pub(crate) fn fits(shape: &KeyShape, size: u64) -> bool {
    let fields = &shape.layout().fields;
    let bits: u32 = fields.iter().map(|f| f.width).sum();
    let exact = fields.iter().all(|f| f.kind == MatchKind::Exact);
    let dense = bits <= ALWAYS_BITS || bits <= MAX_BITS && 1 << bits <= size.saturating_mul(INDICES_PER_ENTRY_MAX);
    !fields.is_empty() && fields.len() <= FIELDS_MAX && shape.words() == 1 && exact && dense
}

/// A direct-index engine for keys of this shape; `None` if they need another engine.
pub(crate) fn engine(shape: &KeyShape, size: u64) -> Option<Box<dyn Engine>> {
    if !fits(shape, size) {
        return None;
    }
    let layout = shape.layout();
    let bits: u32 = layout.fields.iter().map(|f| f.width).sum();
    // SAFETY: all zero bytes are null pointers.
    let words: Region<AtomicPtr<EntryHeader>> = unsafe { Region::zeroed(FIELDS_MAX + (1 << bits)) };
    for ((word, field), shift) in words.iter().zip(&layout.fields).zip(shifts(layout)) {
        word.store(ptr::without_provenance_mut(FieldPlace::new(field, shift).0), Ordering::Relaxed);
    }
    Some(Box::new(Direct { words }))
}

/// The index of a key.
fn index(fields: &[AtomicPtr<EntryHeader>], key: u64) -> usize {
    let part = |field: &AtomicPtr<EntryHeader>| FieldPlace(field.load(Ordering::Relaxed).addr()).part_of_index(key);
    fields.iter().fold(0, |index, field| index | part(field)) as usize
}

impl Direct {
    fn entry(&self, packed: &[u64]) -> &AtomicPtr<EntryHeader> {
        let (fields, entries) = self.words.split_at(FIELDS_MAX);
        &entries[index(fields, packed[0])]
    }
}

/// Looks a key up; see [`LookupFn`].
unsafe extern "C" fn lookup(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: the caller passes a handle of such a table, and a key of its layout: one word, whose fields have no bits
    // above their widths. The fields' descriptions precede the entries.
    unsafe {
        let entries = (*handle).snapshot.load(Ordering::Acquire).cast::<AtomicPtr<EntryHeader>>();
        let fields = std::slice::from_raw_parts(entries.sub(FIELDS_MAX), FIELDS_MAX);
        (*entries.add(index(fields, key.cast::<u64>().read_unaligned()))).load(Ordering::Acquire)
    }
}

/// Looks keys up; see [`LookupBatchFn`].
unsafe extern "C" fn lookup_batch(
    handle: *const TableHandle,
    keys: *const u8,
    count: u32,
    out: *mut *const EntryHeader,
) {
    // SAFETY: the caller passes a handle of such a table, keys of its layout and room for their entries, and is online.
    unsafe {
        one_by_one(lookup, 8, handle, keys, count, out);
    }
}

impl Engine for Direct {
    fn kind(&self) -> EngineKind {
        EngineKind::DirectIndex
    }

    fn lookup(&self) -> LookupFn {
        lookup
    }

    fn lookup_batch(&self) -> LookupBatchFn {
        lookup_batch
    }

    fn snapshot(&self) -> *const c_void {
        self.words[FIELDS_MAX..].as_ptr().cast()
    }

    fn insert(&mut self, _w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        self.entry(packed).store(entry, Ordering::Release);
    }

    fn replace(&mut self, _w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        self.entry(packed).store(entry, Ordering::Release);
    }

    fn remove(&mut self, _w: &Writing<'_>, packed: &[u64], _rank: Rank) {
        self.entry(packed).store(ptr::null_mut(), Ordering::Release);
    }

    fn collect(&mut self, _domain: &Domain) {}

    fn find(&self, packed: &[u64]) -> Option<*mut EntryHeader> {
        Some(self.entry(packed).load(Ordering::Relaxed))
    }
}

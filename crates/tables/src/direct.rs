//! Direct index: one exact key field of up to 16 bits is the position of its entry in an array.
//!
//! Layout: `TableHandle::snapshot` points at `2^width` entry pointers, null where there is no entry. The array never
//! moves. One atomic word per key, so every lookup is the state of that key at that moment.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use crate::engine::{Engine, Rank, Writing, one_by_one};
use crate::key::KeyShape;
use crate::reclaim::Domain;
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, TableHandle};
use base::entry::MatchKind;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The widest key.
pub const MAX_WIDTH: u32 = 16;

/// The writer's side.
pub(crate) struct Direct {
    entries: Box<[AtomicPtr<EntryHeader>]>,
}

/// Whether keys of this shape are positions.
pub(crate) fn fits(shape: &KeyShape) -> bool {
    matches!(shape.layout().fields.as_slice(), [field] if field.kind == MatchKind::Exact && field.width <= MAX_WIDTH)
}

/// The engine for keys of this shape; `None` if it needs another engine.
pub(crate) fn engine(shape: &KeyShape) -> Option<Box<dyn Engine>> {
    let [field] = shape.layout().fields.as_slice() else { return None };
    if !fits(shape) {
        return None;
    }
    // SAFETY: all zero bytes are null pointers.
    let entries = unsafe { Box::new_zeroed_slice(1 << field.width).assume_init() };
    Some(Box::new(Direct { entries }))
}

/// Looks a key up; see [`LookupFn`].
unsafe extern "C" fn lookup(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: the caller passes a handle of such a table, and a key of its layout: one word with a value below
    // `2^width`.
    unsafe {
        let entries = (*handle).snapshot.load(Ordering::Acquire).cast::<AtomicPtr<EntryHeader>>();
        (*entries.add(key.cast::<u64>().read_unaligned() as usize)).load(Ordering::Acquire)
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
        self.entries.as_ptr().cast()
    }

    fn insert(&mut self, _w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        self.entries[packed[0] as usize].store(entry, Ordering::Release);
    }

    fn replace(&mut self, _w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        self.entries[packed[0] as usize].store(entry, Ordering::Release);
    }

    fn remove(&mut self, _w: &Writing<'_>, packed: &[u64], _rank: Rank) {
        self.entries[packed[0] as usize].store(ptr::null_mut(), Ordering::Release);
    }

    fn collect(&mut self, _domain: &Domain) {}

    fn find(&self, packed: &[u64]) -> Option<*mut EntryHeader> {
        Some(self.entries[packed[0] as usize].load(Ordering::Relaxed))
    }
}

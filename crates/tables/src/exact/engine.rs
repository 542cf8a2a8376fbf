//! [`ExactMap`] as a table's engine: publishes its snapshots and retires the arrays it outgrows.
#![allow(unsafe_code)]

use super::{ExactMap, ExactSnapshot, MAX_KEY_BYTES, OldArray, probe};
use crate::engine::{Engine, Rank, Writing, one_by_one};
use crate::key::KeyShape;
use crate::reclaim::{Domain, Limbo};
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, TableHandle};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// The writer's side.
struct Exact {
    map: ExactMap,
    /// Whether keys have two words, or one.
    two_words: bool,
    limbo: Limbo<OldArray>,
}

/// The engine for keys of this shape, all exact; `None` if it needs another engine.
pub(crate) fn engine(shape: &KeyShape) -> Option<Box<dyn Engine>> {
    let fits = shape.packed_words() == shape.words() && shape.layout().bytes <= MAX_KEY_BYTES;
    let two_words = shape.words() == 2;
    fits.then(|| Box::new(Exact { map: ExactMap::new(), two_words, limbo: Limbo::default() }) as Box<dyn Engine>)
}

/// Looks a key of one word up; see [`LookupFn`].
unsafe extern "C" fn lookup_one(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: the caller passes a handle of such a table and a key of its layout, and is online.
    unsafe {
        let snapshot = (*handle).snapshot.load(Ordering::Acquire).cast::<ExactSnapshot>();
        probe(snapshot, [key.cast::<u64>().read_unaligned(), 0])
    }
}

/// Looks a key of two words up; see [`LookupFn`].
unsafe extern "C" fn lookup_two(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: as above.
    unsafe {
        let snapshot = (*handle).snapshot.load(Ordering::Acquire).cast::<ExactSnapshot>();
        probe(snapshot, key.cast::<[u64; 2]>().read_unaligned())
    }
}

/// Looks keys up; see [`LookupBatchFn`].
unsafe extern "C" fn batch_one(handle: *const TableHandle, keys: *const u8, count: u32, out: *mut *const EntryHeader) {
    // SAFETY: the caller passes a handle of such a table, keys of its layout and room for their entries, and is online.
    unsafe {
        one_by_one(lookup_one, 8, handle, keys, count, out);
    }
}

/// Looks keys up; see [`LookupBatchFn`].
unsafe extern "C" fn batch_two(handle: *const TableHandle, keys: *const u8, count: u32, out: *mut *const EntryHeader) {
    // SAFETY: the caller passes a handle of such a table, keys of its layout and room for their entries, and is online.
    unsafe {
        one_by_one(lookup_two, 16, handle, keys, count, out);
    }
}

fn words(packed: &[u64]) -> [u64; 2] {
    [packed[0], packed.get(1).copied().unwrap_or(0)]
}

impl Engine for Exact {
    fn kind(&self) -> EngineKind {
        EngineKind::ExactInline
    }

    fn lookup(&self) -> LookupFn {
        if self.two_words { lookup_two } else { lookup_one }
    }

    fn lookup_batch(&self) -> LookupBatchFn {
        if self.two_words { batch_two } else { batch_one }
    }

    fn snapshot(&self) -> *const c_void {
        self.map.snapshot().cast()
    }

    fn insert(&mut self, w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        if self.map.is_crowded() {
            let old = self.map.grow(w.domain);
            w.handle.snapshot.store(self.map.snapshot().cast_mut().cast(), Ordering::Release);
            self.limbo.push(w.domain.advance(), old);
        }
        self.map.insert(words(packed), entry, w.domain);
    }

    fn replace(&mut self, _w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        self.map.replace(words(packed), entry);
    }

    fn remove(&mut self, w: &Writing<'_>, packed: &[u64], _rank: Rank) {
        self.map.remove(words(packed), w.domain);
    }

    fn collect(&mut self, domain: &Domain) {
        self.limbo.collect(domain, drop);
    }

    fn find(&self, packed: &[u64]) -> Option<*mut EntryHeader> {
        Some(self.map.get(words(packed)))
    }
}

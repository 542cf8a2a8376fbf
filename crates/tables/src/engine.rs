//! What a match engine is to its table.
//!
//! An engine maps packed keys ([`crate::key`]) to entry pointers for readers. It owns its own memory, not the entries;
//! the table ([`crate::Table`]) knows which entries there are, and never asks an engine to insert what is there or to
//! change what is not. All calls are the writer's.
#![allow(unsafe_code)]

use crate::reclaim::Domain;
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, TableHandle};
use std::ffi::c_void;

/// Priority and insertion number of an entry: higher priorities first, then lower numbers.
pub(crate) type Rank = (i32, u64);

/// What an engine may use while it changes.
pub(crate) struct Writing<'a> {
    /// Readers to wait for before memory is reused.
    pub(crate) domain: &'a Domain,
    /// The entry with a packed key, or null; only for engines that do not find keys themselves.
    pub(crate) stored: &'a dyn Fn(&[u64]) -> *mut EntryHeader,
    /// The entry that is replaced or removed, or null. It is live.
    pub(crate) old: *mut EntryHeader,
}

/// A match engine's writing side.
pub(crate) trait Engine: Send {
    /// How compiled code may probe it.
    fn kind(&self) -> EngineKind;
    /// The lookup through the handle.
    fn lookup(&self) -> LookupFn;
    /// The lookup of many keys.
    fn lookup_batch(&self) -> LookupBatchFn;
    /// What readers find behind the handle at first.
    fn snapshot(&self) -> *const c_void;
    /// The first words of the snapshot, which compiled code may assume until the engine invalidates that
    /// ([`Domain::invalidate`]).
    fn snapshot_words(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Prefetches the memory that a change for this key will need; the caller then does other things first.
    fn prefetch(&self, _packed: &[u64]) {}
    /// Adds an entry.
    fn insert(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader);
    /// Puts another entry in the place of one.
    fn replace(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader);
    /// Removes an entry.
    fn remove(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank);
    /// Frees what no reader can see any more.
    fn collect(&mut self, domain: &Domain);
    /// The entry with this key, for engines that find keys themselves; `None` for those that leave it to the table.
    fn find(&self, _packed: &[u64]) -> Option<*mut EntryHeader> {
        None
    }
}

/// What a [`LookupBatchFn`] of an engine does that has nothing to gain from several keys at a time.
///
/// # Safety
/// As of `lookup` for each of `count` keys that are `stride` bytes apart, and `out` has room for as many entries.
#[inline]
pub(crate) unsafe fn one_by_one(
    lookup: LookupFn,
    stride: usize,
    handle: *const TableHandle,
    keys: *const u8,
    count: u32,
    out: *mut *const EntryHeader,
) {
    for i in 0..count as usize {
        // SAFETY: the caller's promise.
        unsafe { out.add(i).write(lookup(handle, keys.add(i * stride))) };
    }
}

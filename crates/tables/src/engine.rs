//! The interface between a match engine and its table.
//!
//! An engine maps packed keys ([`crate::key`]) to entry pointers for readers. It owns its own memory, not the entries.
//! The table ([`crate::Table`]) knows which entries exist; it never inserts a key that the engine has, nor changes one
//! that it has not. All methods are for the writer.
#![allow(unsafe_code)]

use crate::reclaim::Domain;
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, TableHandle};
use std::ffi::c_void;

/// The rank of an entry, priority and insertion number: higher priorities come first, then lower numbers.
pub(crate) type Rank = (i32, u64);

/// The context of a change of an engine.
pub(crate) struct Writing<'a> {
    /// The readers that must be quiescent before memory is reused.
    pub(crate) domain: &'a Domain,
    /// The entry with a packed key, or null; only for engines that do not find keys themselves.
    pub(crate) stored: &'a dyn Fn(&[u64]) -> *mut EntryHeader,
    /// The entry that is replaced or removed, or null. It is live.
    pub(crate) old: *mut EntryHeader,
}

/// The writer's side of a match engine.
pub(crate) trait Engine: Send {
    /// How compiled code may look keys up.
    fn kind(&self) -> EngineKind;
    /// The function that looks up one key through the table's handle.
    fn lookup(&self) -> LookupFn;
    /// The function that looks up a batch of keys.
    fn lookup_batch(&self) -> LookupBatchFn;
    /// The initial value of the handle's snapshot pointer.
    fn snapshot(&self) -> *const c_void;
    /// The first words of the snapshot, which compiled code may assume until the engine calls [`Domain::invalidate`].
    fn snapshot_words(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Prefetches the memory that a change of this key will need; the caller does other work meanwhile.
    fn prefetch(&self, _packed: &[u64]) {}
    /// Adds an entry.
    fn insert(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader);
    /// Replaces an entry.
    fn replace(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank, entry: *mut EntryHeader);
    /// Removes an entry.
    fn remove(&mut self, w: &Writing<'_>, packed: &[u64], rank: Rank);
    /// Frees retired memory that no reader can see any more.
    fn collect(&mut self, domain: &Domain);
    /// The entry with this key, or null. `None` if the engine does not find keys, and the table's records must.
    fn find(&self, _packed: &[u64]) -> Option<*mut EntryHeader> {
        None
    }
}

/// A [`LookupBatchFn`] for engines that gain nothing from batches: looks keys up one at a time.
///
/// # Safety
/// As for `lookup`, for each of `count` keys, which are `stride` bytes apart; `out` has room for as many entries.
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

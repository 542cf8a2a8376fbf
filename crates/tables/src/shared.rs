//! Entries that several keys share. A million routes have a few thousand next hops, and an entry with neither an index
//! nor a time of its last hit consists only of its action and parameters. So such tables store each distinct content
//! once, with a reference count. If contents may be as many as keys, only a limited number of them is indexed
//! ([`SharedEntries::at_most`]); beyond the limit each entry has one user, and is not recorded here.
//!
//! Threads: writer only. Tests: `shared/tests.rs`; tables with shared entries in `tests/properties.rs`.
#![allow(unsafe_code)]

use crate::entry::{EntryMemory, Runs, Tag};
use crate::index::Index;
use abi::EntryHeader;

/// The indexed entries in use, by content.
#[derive(Debug)]
pub(crate) struct SharedEntries {
    /// Limit of the indexed contents.
    most: usize,
    index: Index,
    /// By position: address and reference count. The address is null at free positions.
    entries: Vec<(*mut EntryHeader, u32)>,
    free: Vec<u32>,
    /// Number of entries that were ever made.
    made: u64,
}

// SAFETY: the pointers are only compared and read, by the owner of the entries.
unsafe impl Send for SharedEntries {}

impl Default for SharedEntries {
    fn default() -> SharedEntries {
        SharedEntries::at_most(usize::MAX)
    }
}

impl SharedEntries {
    /// An empty set that indexes at most so many contents.
    pub(crate) fn at_most(most: usize) -> SharedEntries {
        SharedEntries { most, index: Index::default(), entries: Vec::new(), free: Vec::new(), made: 0 }
    }

    /// Whether there is an entry that runs `runs`, so that [`take`](SharedEntries::take) would not make one.
    pub(crate) fn has(&self, memory: &EntryMemory, runs: Runs<'_>) -> bool {
        // SAFETY: entries at positions in use are live.
        let same = |p: u32| unsafe { memory.writer().does_run(self.entries[p as usize].0, runs) };
        self.index.find(memory.writer().hash(runs), same).is_some()
    }

    /// An entry that runs `runs`, with one more reference; a new one if necessary.
    pub(crate) fn take(&mut self, memory: &mut EntryMemory, runs: Runs<'_>) -> *mut EntryHeader {
        let hash = memory.writer().hash(runs);
        // SAFETY: entries at positions in use are live.
        let same = |p: u32| unsafe { memory.writer().does_run(self.entries[p as usize].0, runs) };
        if let Some(position) = self.index.find(hash, same) {
            let (entry, users) = &mut self.entries[position as usize];
            *users += 1;
            return *entry;
        }
        self.made += 1;
        let entry = memory.make(runs, Tag::NONE);
        if self.free.is_empty() && self.entries.len() >= self.most {
            return entry;
        }
        let position = self.free.pop().unwrap_or_else(|| {
            self.entries.push((std::ptr::null_mut(), 0));
            self.entries.len() as u32 - 1
        });
        if self.index.is_crowded(position) {
            let there = (0..).zip(&self.entries).filter(|(_, (entry, _))| !entry.is_null());
            // SAFETY: as above.
            self.index.grow(position, there.map(|(p, (entry, _))| (unsafe { memory.writer().hash_of(*entry) }, p)));
        }
        self.entries[position as usize] = (entry, 1);
        self.index.insert(hash, position);
        entry
    }

    /// Drops a reference. Returns true if that was the last one; the caller then retires the entry.
    pub(crate) fn release(&mut self, memory: &EntryMemory, entry: *mut EntryHeader) -> bool {
        // SAFETY: entries in use are live.
        let hash_of = |entry| unsafe { memory.writer().hash_of(entry) };
        let hash = hash_of(entry);
        let is_it = |p: u32| self.entries[p as usize].0 == entry;
        let Some(position) = self.index.find(hash, is_it) else {
            debug_assert!(self.most < usize::MAX, "the entry has users");
            return true;
        };
        let users = &mut self.entries[position as usize].1;
        *users -= 1;
        if *users > 0 {
            return false;
        }
        let SharedEntries { index, entries, free, .. } = self;
        index.remove(hash, |p| p == position, |p| hash_of(entries[p as usize].0));
        entries[position as usize].0 = std::ptr::null_mut();
        free.push(position);
        true
    }

    /// Number of indexed entries in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Number of entries that were ever made.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// All indexed entries in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = *mut EntryHeader> + '_ {
        self.entries.iter().map(|(entry, _)| *entry).filter(|entry| !entry.is_null())
    }
}

#[cfg(test)]
mod tests;

//! Entries that several keys share: a million routes lead to a few thousand next hops, and an entry that has neither an
//! index nor a time of its last hit is nothing but its action and parameters. So such tables keep each content once, and
//! count its users. Where contents may be as many as keys, only so many of them are looked for
//! ([`SharedEntries::at_most`]): those that come when there are that many have one user each, and nothing is noted of them.
//!
//! Threads: the writer's. Tests: `shared/tests.rs`; tables with shared entries in `tests/properties.rs`.
#![allow(unsafe_code)]

use crate::entry::{EntryMemory, Runs, Tag};
use crate::index::Index;
use abi::EntryHeader;

/// The entries in use, by content.
#[derive(Debug)]
pub(crate) struct SharedEntries {
    /// Most contents that are noted.
    most: usize,
    index: Index,
    /// By position; the address is null at positions that are free.
    entries: Vec<(*mut EntryHeader, u32)>,
    free: Vec<u32>,
    /// How often a new entry was made.
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
    /// Notes at most so many contents.
    pub(crate) fn at_most(most: usize) -> SharedEntries {
        SharedEntries { most, index: Index::default(), entries: Vec::new(), free: Vec::new(), made: 0 }
    }

    /// Whether there is an entry that runs this, so that [`take`](SharedEntries::take) makes none.
    pub(crate) fn has(&self, memory: &EntryMemory, runs: Runs<'_>) -> bool {
        // SAFETY: entries at positions in use are live.
        let same = |p: u32| unsafe { memory.writer().does_run(self.entries[p as usize].0, runs) };
        self.index.find(memory.writer().hash(runs), same).is_some()
    }

    /// The entry that runs this, with one user more; perhaps a new one.
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

    /// One user less: true if there is none any more, and the entry is the caller's to retire.
    pub(crate) fn give_back(&mut self, memory: &EntryMemory, entry: *mut EntryHeader) -> bool {
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

    /// How many entries in use are noted.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// How often a new entry was made.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// All entries in use that are noted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = *mut EntryHeader> + '_ {
        self.entries.iter().map(|(entry, _)| *entry).filter(|entry| !entry.is_null())
    }
}

#[cfg(test)]
mod tests;

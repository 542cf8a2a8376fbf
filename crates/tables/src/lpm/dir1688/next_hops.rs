//! Next-hop indices: small numbers for the distinct entries of a prefix table. There are few: a million routes have a
//! few thousand next hops.
//!
//! An array that readers see maps each index to the entry's address.
//!
//! Threads: writer only. Tests: `tests/properties.rs`, through tables.

use abi::EntryHeader;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of the indices, exclusive; index 0 stands for no entry.
pub const NEXT_HOPS_MAX: usize = 1 << 15;

/// The addresses of entries, by index.
pub type Entries = [AtomicU64; NEXT_HOPS_MAX];

/// The entry with an index; null for 0.
#[inline(always)]
pub fn entry_of(entries: &Entries, number: u16) -> *mut EntryHeader {
    ptr::with_exposed_provenance_mut(entries[usize::from(number) % NEXT_HOPS_MAX].load(Ordering::Acquire) as usize)
}

/// The indices in use, with reference counts.
#[derive(Debug)]
pub struct NextHops {
    /// Index by the entry's address.
    numbers: HashMap<usize, u16>,
    /// By index: the number of prefixes that refer to it.
    users: Vec<u32>,
    free: Vec<u16>,
}

impl NextHops {
    /// No index is in use.
    pub fn new() -> NextHops {
        NextHops { numbers: HashMap::new(), users: vec![0], free: Vec::new() }
    }

    /// The index of an entry that a prefix refers to; 0 for null.
    pub fn number(&self, entry: *mut EntryHeader) -> u16 {
        if entry.is_null() { 0 } else { self.numbers[&entry.addr()] }
    }

    /// The index of an entry, with one more reference; `None` if all are in use.
    pub fn take(&mut self, entries: &Entries, entry: *mut EntryHeader) -> Option<u16> {
        if let Some(number) = self.numbers.get(&entry.addr()) {
            self.users[usize::from(*number)] += 1;
            return Some(*number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.users.len() < NEXT_HOPS_MAX => {
                self.users.push(0);
                (self.users.len() - 1) as u16
            }
            None => return None,
        };
        self.users[usize::from(number)] = 1;
        self.numbers.insert(entry.addr(), number);
        entries[usize::from(number)].store(entry.expose_provenance() as u64, Ordering::Release);
        Some(number)
    }

    /// Drops a reference. Returns the index if that was the last one; the caller [frees](NextHops::free) it when no
    /// reader can have it any more.
    pub fn release(&mut self, entry: *mut EntryHeader) -> Option<u16> {
        let number = self.number(entry);
        let users = &mut self.users[usize::from(number)];
        *users -= 1;
        (*users == 0).then(|| {
            self.numbers.remove(&entry.addr());
            number
        })
    }

    /// Makes an index available again.
    pub fn free(&mut self, number: u16) {
        self.free.push(number);
    }
}

impl Default for NextHops {
    fn default() -> Self {
        NextHops::new()
    }
}

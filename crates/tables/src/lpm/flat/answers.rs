//! Numbers for the entries that prefixes lead to, which are few: a million routes have some thousand next hops.
//!
//! A number leads to the entry's address.
//!
//! Threads: the writer's. Tests: `tests/properties.rs`, through tables.

use abi::EntryHeader;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// There are less numbers than this; 0 stands for no entry.
pub const NUMBERS: usize = 1 << 15;

/// What numbers lead to: addresses of entries.
pub type Entries = [AtomicU64; NUMBERS];

/// The entry of a number; null for 0.
#[inline(always)]
pub fn entry_of(entries: &Entries, number: u16) -> *mut EntryHeader {
    ptr::with_exposed_provenance_mut(entries[usize::from(number) % NUMBERS].load(Ordering::Acquire) as usize)
}

/// The numbers in use.
#[derive(Debug)]
pub struct Answers {
    /// By address.
    numbers: HashMap<usize, u16>,
    /// By number: prefixes that lead there.
    users: Vec<u32>,
    free: Vec<u16>,
}

impl Answers {
    /// None.
    pub fn new() -> Answers {
        Answers { numbers: HashMap::new(), users: vec![0], free: Vec::new() }
    }

    /// The number of an entry that some prefix leads to; 0 for null.
    pub fn number(&self, entry: *mut EntryHeader) -> u16 {
        if entry.is_null() { 0 } else { self.numbers[&entry.addr()] }
    }

    /// The number of an entry, with one user more; `None` if there are no more numbers.
    pub fn take(&mut self, entries: &Entries, entry: *mut EntryHeader) -> Option<u16> {
        if let Some(number) = self.numbers.get(&entry.addr()) {
            self.users[usize::from(*number)] += 1;
            return Some(*number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.users.len() < NUMBERS => {
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

    /// One user less: the number, if there is none any more. When no reader has it, it is to be [freed](Answers::free).
    pub fn give_back(&mut self, entry: *mut EntryHeader) -> Option<u16> {
        let number = self.number(entry);
        let users = &mut self.users[usize::from(number)];
        *users -= 1;
        (*users == 0).then(|| {
            self.numbers.remove(&entry.addr());
            number
        })
    }

    /// A number may be used again.
    pub fn free(&mut self, number: u16) {
        self.free.push(number);
    }
}

impl Default for Answers {
    fn default() -> Self {
        Answers::new()
    }
}

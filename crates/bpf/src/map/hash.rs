//! Which slot has which key: a chained hash table whose readers take no lock.
//!
//! A writer holds the table's mutex. Chains are grouped into stripes with a version each, odd while a writer changes
//! one of the stripe's chains (a seqlock). A reader whose stripe changed while it searched searches again; after a
//! number of attempts it takes the mutex. A slot goes from one chain to another only through the list of free slots, and
//! leaving the first chain changes the version of that one, so a reader that was led astray notices.
//!
//! The hash is the standard library's keyed one, so that senders of packets cannot choose keys that collide.

use super::entry::{KEY_BYTES_MAX, Refused, Update};
use super::words::Words;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// End of a chain.
const NONE: u32 = u32::MAX;
/// Most version counters of a table. Readers of a bucket retry when its counter changes; more counters than workers can write at
/// a time gain nothing.
const STRIPES_MAX: usize = 1024;
/// Times that a reader searches before it takes the mutex.
const ATTEMPTS: u32 = 16;
/// Used entries that the clock's hand passes in one eviction at most. An eviction then costs the same in a table of any size; as many
/// entries as a burst has packets.
const PASSED_MAX: u32 = 64;
/// Slots that are read under the mutex at a time.
const DUMPED: u32 = 64;

/// The table.
pub(super) struct HashIndex {
    hasher: RandomState,
    /// First slot of each chain; a power of two of them.
    heads: Box<[AtomicU32]>,
    /// Next slot in a slot's chain.
    next: Box<[AtomicU32]>,
    /// Whether a slot is in a chain.
    live: Box<[AtomicBool]>,
    /// Whether a slot was found since the hand of the clock passed it; of LRU tables only.
    used: Box<[AtomicBool]>,
    keys: Words,
    key_size: usize,
    versions: Box<[AtomicU32]>,
    max: u32,
    count: AtomicU32,
    evicts: bool,
    writer: Mutex<Writer>,
}

struct Writer {
    free: VecDeque<u32>,
    /// Where the search for an entry to evict goes on (the clock algorithm, an approximation of LRU).
    hand: u32,
}

impl HashIndex {
    pub(super) fn new(slots: u32, max: u32, key_size: u32, evicts: bool) -> HashIndex {
        let chains = (max as usize).next_power_of_two();
        let numbers = |n: usize, value: u32| (0..n).map(|_| AtomicU32::new(value)).collect();
        let flags = |n: u32| (0..n).map(|_| AtomicBool::new(false)).collect();
        HashIndex {
            hasher: RandomState::new(),
            heads: numbers(chains, NONE),
            next: numbers(slots as usize, NONE),
            live: flags(slots),
            used: flags(if evicts { slots } else { 0 }),
            keys: Words::new(slots, key_size),
            key_size: key_size as usize,
            versions: numbers(chains.min(STRIPES_MAX), 0),
            max,
            count: AtomicU32::new(0),
            evicts,
            writer: Mutex::new(Writer { free: (0..slots).collect(), hand: 0 }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize & (self.heads.len() - 1)
    }

    pub(super) fn len(&self) -> u32 {
        self.count.load(Relaxed)
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let chain = self.chain(key);
        let version = &self.versions[chain & (self.versions.len() - 1)];
        for _ in 0..ATTEMPTS {
            let before = version.load(Acquire);
            if before & 1 == 0 {
                let found = self.search(chain, key);
                fence(Acquire);
                if version.load(Relaxed) == before {
                    return self.mark(found);
                }
            }
            std::hint::spin_loop();
        }
        let _writer = self.lock();
        self.mark(self.search(chain, key))
    }

    fn mark(&self, found: Option<u32>) -> Option<u32> {
        if self.evicts
            && let Some(slot) = found
            && !self.used[slot as usize].load(Relaxed)
        {
            self.used[slot as usize].store(true, Relaxed);
        }
        found
    }

    /// Goes through a chain, and no further than a chain can be long while others change it.
    fn search(&self, chain: usize, key: &[u8]) -> Option<u32> {
        let mut slot = self.heads[chain].load(Acquire);
        for _ in 0..self.next.len() {
            if slot == NONE {
                return None;
            }
            if self.keys.equals(slot, key) {
                return Some(slot);
            }
            slot = self.next[slot as usize].load(Acquire);
        }
        None
    }

    /// Changes a chain so that readers of its stripe notice.
    fn change(&self, chain: usize, change: impl FnOnce()) {
        let version = &self.versions[chain & (self.versions.len() - 1)];
        let before = version.load(Relaxed);
        version.store(before.wrapping_add(1), Relaxed);
        fence(Release);
        change();
        version.store(before.wrapping_add(2), Release);
    }

    /// The link that leads to a slot of a chain. The caller holds the mutex.
    fn link_to(&self, chain: usize, slot: u32) -> Option<&AtomicU32> {
        let mut link = &self.heads[chain];
        loop {
            match link.load(Relaxed) {
                NONE => return None,
                found if found == slot => return Some(link),
                other => link = &self.next[other as usize],
            }
        }
    }

    fn unlink(&self, writer: &mut Writer, chain: usize, slot: u32) {
        if let Some(link) = self.link_to(chain, slot) {
            let after = self.next[slot as usize].load(Relaxed);
            self.change(chain, || link.store(after, Release));
            self.live[slot as usize].store(false, Relaxed);
            self.count.fetch_sub(1, Relaxed);
            writer.free.push_back(slot);
        }
    }

    /// Makes or replaces an entry. `write` fills the value of its new slot. True if the key is new.
    pub(super) fn update(&self, key: &[u8], update: Update, write: impl FnOnce(u32)) -> Result<bool, Refused> {
        let chain = self.chain(key);
        let mut writer = self.lock();
        let old = self.search(chain, key);
        match (old, update) {
            (Some(_), Update::New) => return Err(Refused::Exists(true)),
            (None, Update::Existing) => return Err(Refused::Exists(false)),
            _ => {}
        }
        if old.is_none() && self.len() >= self.max {
            match self.evicts {
                true => self.evict(&mut writer),
                false => return Err(Refused::Full),
            }
        }
        // There is one: slots outnumber entries.
        let slot = writer.free.pop_front().ok_or(Refused::Full)?;
        let place = slot as usize;
        // A reader that sees the new key sees that the slot has left its old chain.
        fence(Release);
        self.keys.write(slot, key);
        write(slot);
        // An entry that is never looked up goes when the hand comes to it.
        if self.evicts {
            self.used[place].store(old.is_some(), Relaxed);
        }
        let link = old.and_then(|old| self.link_to(chain, old));
        match (old, link) {
            (Some(old), Some(link)) => {
                self.next[place].store(self.next[old as usize].load(Relaxed), Relaxed);
                self.change(chain, || link.store(slot, Release));
                self.live[old as usize].store(false, Relaxed);
                writer.free.push_back(old);
            }
            _ => {
                let head = &self.heads[chain];
                self.next[place].store(head.load(Relaxed), Relaxed);
                self.change(chain, || head.store(slot, Release));
                self.count.fetch_add(1, Relaxed);
            }
        }
        self.live[place].store(true, Relaxed);
        Ok(old.is_none())
    }

    pub(super) fn delete(&self, key: &[u8]) -> bool {
        let chain = self.chain(key);
        let mut writer = self.lock();
        let found = self.search(chain, key);
        if let Some(slot) = found {
            self.unlink(&mut writer, chain, slot);
        }
        found.is_some()
    }

    /// Removes an entry that was not used since the hand passed it, or the last of [`PASSED_MAX`] that were.
    fn evict(&self, writer: &mut Writer) {
        let slots = self.next.len() as u32;
        let mut passed = 0;
        for _ in 0..2 * slots {
            let slot = writer.hand;
            writer.hand = (slot + 1) % slots;
            let place = slot as usize;
            if !self.live[place].load(Relaxed) {
                continue;
            }
            if self.used[place].swap(false, Relaxed) && passed < PASSED_MAX {
                passed += 1;
                continue;
            }
            let mut buffer = [0; KEY_BYTES_MAX as usize];
            let key = &mut buffer[..self.key_size];
            self.keys.read(slot, key);
            let chain = self.chain(key);
            self.unlink(writer, chain, slot);
            return;
        }
    }

    /// Entries that were used since the hand passed them.
    #[cfg(test)]
    pub(super) fn marked(&self) -> usize {
        self.used.iter().filter(|used| used.load(Relaxed)).count()
    }

    /// Calls a function with the slot and key of every entry.
    pub(super) fn for_each(&self, mut f: impl FnMut(u32, &[u8])) {
        let mut key = vec![0; self.key_size];
        let slots = self.next.len() as u32;
        for from in (0..slots).step_by(DUMPED as usize) {
            let _writer = self.lock();
            for slot in from..slots.min(from + DUMPED) {
                if self.live[slot as usize].load(Relaxed) {
                    self.keys.read(slot, &mut key);
                    f(slot, &key);
                }
            }
        }
    }
}

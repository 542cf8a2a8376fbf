//! The index of hash maps from keys to slots: a chained hash table with lock-free readers.
//!
//! A writer holds the table's mutex. Chains are grouped into stripes, each with a version that is odd while a writer
//! modifies one of its chains (a seqlock). A reader whose stripe changed during its search retries; after a number of
//! attempts it takes the mutex. A slot moves between chains only through the free list, and removing it from its old
//! chain changes that chain's version, so that a reader that followed it into another chain notices.
//!
//! The hash function is the standard library's keyed one, so that senders of packets cannot choose colliding keys.

use super::entry::{KEY_BYTES_MAX, Refused, Update};
use super::words::Words;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// The maximum number of version counters of a table. Readers of a bucket retry when its counter changes; more counters
/// than concurrently writing workers gain nothing.
const STRIPES_MAX: usize = 1024;
/// The number of searches before a reader takes the mutex.
const ATTEMPTS: u32 = 16;
/// The maximum number of used entries that one eviction passes, as many as a burst has packets: the cost of an eviction
/// does not depend on the table's size.
const PASSED_MAX: u32 = 64;
/// The number of slots that are read per acquisition of the mutex.
const DUMPED: u32 = 64;

/// A chained hash table.
pub(super) struct HashIndex {
    hasher: RandomState,
    /// The first slot of each chain; the number of chains is a power of two.
    heads: Box<[AtomicU32]>,
    /// The next slot in a slot's chain.
    next: Box<[AtomicU32]>,
    /// Whether a slot is in a chain.
    live: Box<[AtomicBool]>,
    /// In LRU tables, whether a lookup found the slot since the clock's hand passed it.
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
    /// The clock's hand: where the search for an entry to evict continues (the clock algorithm, an approximation of
    /// LRU).
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

    /// Searches a chain, with a bound on its length, since writers may modify it meanwhile.
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

    /// Modifies a chain under its stripe's version, so that readers notice.
    fn change(&self, chain: usize, change: impl FnOnce()) {
        let version = &self.versions[chain & (self.versions.len() - 1)];
        let before = version.load(Relaxed);
        version.store(before.wrapping_add(1), Relaxed);
        fence(Release);
        change();
        version.store(before.wrapping_add(2), Release);
    }

    /// The link that points to a slot of a chain. The caller holds the mutex.
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

    /// Creates or replaces an entry; true if the key is new. `write` fills the value of its new slot.
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
        // The free list is not empty: there are more slots than entries.
        let slot = writer.free.pop_front().ok_or(Refused::Full)?;
        let place = slot as usize;
        // A reader that sees the new key also sees that the slot has left its old chain.
        fence(Release);
        self.keys.write(slot, key);
        write(slot);
        // An entry that is never looked up is evicted when the hand reaches it.
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

    /// Evicts the next entry that was not used since the hand passed it, after at most [`PASSED_MAX`] used ones.
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

    /// The number of entries that were used since the hand passed them.
    #[cfg(test)]
    pub(super) fn marked(&self) -> usize {
        self.used.iter().filter(|used| used.load(Relaxed)).count()
    }

    /// Calls a function with the slot and the key of every entry.
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

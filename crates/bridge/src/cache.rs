//! The flow cache of a worker: megaflows with an exact-match cache before them (Pfaff et al., "The Design and
//! Implementation of Open vSwitch", NSDI 2015, sections 4 and 6).
//!
//! A *megaflow* is the cached result of a translation: the bits of the record as parsed that it consulted (mask),
//! their values (key), and the effects. Megaflows with the same mask form one hash table; a lookup searches masks
//! in the order of their hits (tuple space search). Overlapping megaflows have the same effects, so the first hit
//! ends the lookup.
//!
//! The *exact-match cache* (field `front`) maps the hash of a packet under the union of all masks to a megaflow. It
//! is only a hint: the megaflow's own mask and key are compared. With few masks it would cost more than it saves,
//! and is not used.
//!
//! **Many masks.** An attacker can send traffic that needs as many masks as are allowed (tuple space explosion;
//! Csikor et al., CoNEXT 2019). A mask is worth searching if more than one in [`Cache::set_gain`] of the lookups
//! hit it. Masks are sorted by hits, and a lookup ends at the first mask that is not worth it. Every
//! `TRIED_INTERVAL`th lookup that misses also searches one of the remaining masks, in turn; a hit there is
//! weighted accordingly.
//!
//! **Bounds.** Entries are limited by number and by memory. The number adapts so that a sweep over all entries,
//! which finds idle and outdated ones, takes about a second. If there is no room for a new entry, the least useful
//! entry of a sample is evicted.
//!
//! Single-threaded: each worker has its own cache, and a hit takes no lock.
//!
//! Tests: `cache/tests.rs`.

pub mod admission;
#[cfg(test)]
mod tests;
pub mod worth;

use crate::effects::{Effect, Effects};
use crate::key::{Layout, Words, mix};
use crate::recent::{Dependence, Seen, Subject};
use crate::translate::Translation;
use std::collections::HashMap;
use std::sync::Arc;

/// Lower and upper bound of the adaptive limit on entries.
const ENTRIES: std::ops::RangeInclusive<usize> = 1024..=1 << 18;
/// Maximum size of all entries, in bytes.
const BYTES_MAX: usize = 128 << 20;
/// Maximum number of masks. A new one evicts the entries of the mask with the fewest packets.
const MASKS_MAX: usize = 512;
/// Up to this number of masks, the exact-match cache is not used.
const MASKS_WITHOUT_FRONT: usize = 2;
/// Slots of the exact-match cache. Each hash has a pair, of which the first is the newer one.
const FRONT: usize = 8192;
/// Sample size of an eviction.
const SAMPLE: usize = 8;
/// Lookups between two sorts of the masks.
const SORT_INTERVAL: u64 = 4096;
/// Minimum number of masks that a lookup searches.
const SEARCHED_MIN: usize = 1;
/// One in this number of misses also searches a mask that is not worth it.
const TRIED_INTERVAL: u64 = 4;

/// A number that no entry has.
const NONE: u32 = u32::MAX;

/// The generations of all state that megaflows can depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Generation {
    /// The global generation of tables, groups, meters and ports.
    pub tables: u64,
    /// The generation of the MAC table for `NORMAL`.
    pub stations: u64,
}

/// A megaflow mask: the bits of the record and of the frame's length that are compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mask {
    /// Record words with their masks, by ascending word.
    pub words: Box<[(u32, u64)]>,
    /// Mask of the frame's length.
    pub length: u32,
}

/// A cached megaflow.
#[derive(Debug)]
pub struct Entry {
    mask: u32,
    hash: u64,
    /// The next entry of the chain with this mask and hash.
    next: u32,
    start: u64,
    key: Box<[u64]>,
    length: u32,
    /// Effects on its packets.
    pub effects: Effects,
    /// The state that the effects depend on, each with its generation at translation.
    pub dependences: Box<[(Dependence, u64)]>,
    /// The generation at which the entry was last known to be valid.
    pub generation: Generation,
    /// Words whose parsed values lookups did not see, because the translation wrote them.
    pub written: Words,
    /// Whether the translation found flows by other means than lookups of the packet.
    pub finds_flows: bool,
    /// Packets that have not been added to the flows' counters yet.
    pub packets: u64,
    /// Bytes that have not been added to the flows' counters yet.
    pub bytes: u64,
    /// Packets and bytes that have been added to the flows' counters.
    pub settled: (u64, u64),
    /// Time of the last hit, in microseconds.
    pub used_us: u64,
    /// When its learned flows were last renewed, in microseconds.
    pub renewed_us: u64,
    /// Number of hits, halved by each sweep.
    recent: u32,
    /// A serial number, unique to each entry and to each version of it.
    pub serial: u64,
    /// Whether no megaflow over frames can be made of it (`crate::front`).
    pub is_untraceable: bool,
    /// Handles of the frame cache's megaflows that were made of it. They are removed when this entry is removed or
    /// replaced.
    pub frames: Vec<u32>,
    size: usize,
}

/// The hash table of the megaflows with one mask.
#[derive(Debug)]
struct Masked {
    mask: Arc<Mask>,
    /// First entry of each chain, by hash.
    heads: HashMap<u64, u32, std::hash::BuildHasherDefault<crate::classifier::Keep>>,
    entries: usize,
    /// Hits found by a search, halved with each sort.
    hits: u64,
    /// Packets of its megaflows, including hits of the exact-match and frame caches.
    packets: u64,
}

/// A cache hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The number of the entry.
    pub entry: u32,
    /// Whether the exact-match cache had it.
    pub is_exact: bool,
}

/// A packet to look up.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its record after parsing.
    pub record: &'a [u64],
    /// Its frame's length in bytes.
    pub bytes: u32,
    /// Where its processing starts (`abi::flows::Arrival::start`).
    pub start: u64,
}

/// The flow cache of a worker.
#[derive(Debug)]
pub struct Cache {
    seed: u64,
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    masks: Vec<Option<Masked>>,
    by_mask: HashMap<Arc<Mask>, u32>,
    /// Numbers of the masks, in descending order of hits.
    order: Vec<u32>,
    /// How many masks of `order` are searched.
    searched: usize,
    /// Which of the other masks was tried last.
    tried: usize,
    /// Number of searches, halved with each sort.
    searches: u64,
    /// See [`Cache::set_gain`].
    gain: u64,
    /// The union of all masks; it may still contain bits of removed ones.
    union: Vec<(u32, u64)>,
    union_length: u32,
    is_union_wide: bool,
    /// The exact-match cache: upper half of a hash, and entry.
    front: Vec<(u32, u32)>,
    limit: usize,
    bytes: usize,
    hand: usize,
    lookups: u64,
    serial: u64,
    /// Number of evicted entries.
    pub evictions: u64,
}

impl Cache {
    /// An empty cache.
    pub fn new(layout: &Layout) -> Cache {
        Cache {
            seed: layout.seed(),
            slots: Vec::new(),
            free: Vec::new(),
            masks: Vec::new(),
            by_mask: HashMap::new(),
            order: Vec::new(),
            searched: usize::MAX,
            tried: 0,
            searches: 0,
            gain: u64::MAX,
            union: Vec::new(),
            union_length: 0,
            is_union_wide: false,
            front: vec![(0, NONE); FRONT],
            // Sweeps that take too long lower the limit.
            limit: *ENTRIES.end(),
            bytes: 0,
            hand: 0,
            lookups: 0,
            serial: 0,
            evictions: 0,
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of masks.
    pub fn masks(&self) -> usize {
        self.order.len()
    }

    /// The current limit on entries.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The number of slots, used or free, for sweeps.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The entry with this number.
    pub fn get(&self, at: u32) -> Option<&Entry> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// The entry with this number.
    pub fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// An entry to be replaced in place: gets a new serial number, so that whatever was derived from the old one is
    /// invalid.
    pub fn get_mut_anew(&mut self, at: u32) -> Option<&mut Entry> {
        self.serial += 1;
        let serial = self.serial;
        let entry = self.get_mut(at)?;
        (entry.serial, entry.is_untraceable) = (serial, false);
        Some(entry)
    }

    /// Tries to confirm an outdated entry with the log of changes: whether none of the changes since its last
    /// validation can affect its packets. If so, the entry is valid at `generation`, up to which `seen` must have
    /// followed the log. `false` if the log does not tell.
    pub(crate) fn confirm(&mut self, at: u32, seen: &Seen, generation: Generation) -> bool {
        let Some(entry) = self.slots.get_mut(at as usize).and_then(Option::as_mut) else { return false };
        let Some(masked) = &self.masks[entry.mask as usize] else { return false };
        let uses_stations = || entry.dependences.iter().any(|(on, _)| *on == Dependence::Stations);
        if entry.finds_flows || (entry.generation.stations != generation.stations && uses_stations()) {
            return false;
        }
        let subject = Subject {
            words: &masked.mask.words,
            key: &entry.key,
            written: entry.written,
            dependences: &entry.dependences,
        };
        let is_right = !seen.concerns(entry.generation.tables, &subject);
        if is_right {
            entry.generation = generation;
        }
        is_right
    }

    /// The mask of an entry.
    pub fn mask_of(&self, at: u32) -> Option<&Arc<Mask>> {
        Some(&self.masks[self.get(at)?.mask as usize].as_ref()?.mask)
    }

    /// Looks up the megaflow of a packet.
    pub fn lookup(&mut self, packet: Packet<'_>) -> Option<Hit> {
        self.lookups += 1;
        if self.lookups.is_multiple_of(SORT_INTERVAL) {
            self.sort();
        }
        if self.order.len() <= MASKS_WITHOUT_FRONT {
            return self.search(packet).map(|entry| Hit { entry, is_exact: false });
        }
        let hash = self.hash(packet);
        let (pair, tag) = front_place(hash);
        for slot in [pair, pair + 1] {
            let (other, at) = self.front[slot];
            if other == tag && at != NONE && self.is_for(at, packet) {
                return Some(Hit { entry: at, is_exact: true });
            }
        }
        let entry = self.search(packet)?;
        self.put_in_front(hash, entry);
        Some(Hit { entry, is_exact: false })
    }

    fn put_in_front(&mut self, hash: u64, entry: u32) {
        let (pair, tag) = front_place(hash);
        self.front[pair + 1] = self.front[pair];
        self.front[pair] = (tag, entry);
    }

    /// The hash of a packet over the union of all masks.
    pub fn hash(&self, packet: Packet<'_>) -> u64 {
        hash(self.seed, &self.union, self.union_length, packet)
    }

    /// Sets the gain of a hit: what it saves, in searches of one mask. [`u64::MAX`], the initial value, searches
    /// all masks.
    pub fn set_gain(&mut self, gain: u64) {
        self.gain = gain;
        if gain == u64::MAX {
            self.searched = usize::MAX;
        }
    }

    /// Whether an entry matches a packet.
    fn is_for(&self, at: u32, packet: Packet<'_>) -> bool {
        let Some(entry) = self.get(at) else { return false };
        let Some(masked) = &self.masks[entry.mask as usize] else { return false };
        is_same(entry, &masked.mask, packet)
    }

    fn search(&mut self, packet: Packet<'_>) -> Option<u32> {
        self.searches += 1;
        let searched = self.searched.min(self.order.len());
        for at in 0..searched {
            if let Some(entry) = self.search_mask(at, packet, 1) {
                return Some(entry);
            }
        }
        let others = self.order.len() - searched;
        if others == 0 || !self.searches.is_multiple_of(TRIED_INTERVAL) {
            return None;
        }
        self.tried = (self.tried + 1) % others;
        self.search_mask(searched + self.tried, packet, others as u64 * TRIED_INTERVAL)
    }

    /// Searches one mask, given by its position in `order`. A hit adds `hits` to the mask's count.
    fn search_mask(&mut self, at: usize, packet: Packet<'_>, hits: u64) -> Option<u32> {
        let masked = self.masks[self.order[at] as usize].as_mut()?;
        let hash = hash(self.seed, &masked.mask.words, masked.mask.length, packet);
        let mut at = masked.heads.get(&hash).copied().unwrap_or(NONE);
        while let Some(entry) = self.slots.get(at as usize).and_then(Option::as_ref) {
            if is_same(entry, &masked.mask, packet) {
                masked.hits += hits;
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// Searches the masks that [`Cache::lookup`] left out. A hit is put into the exact-match cache, so that the
    /// next lookup finds it.
    pub fn search_others(&mut self, packet: Packet<'_>) -> Option<Hit> {
        let entry =
            (self.searched.min(self.order.len())..self.order.len()).find_map(|at| self.search_mask(at, packet, 1))?;
        self.put_in_front(self.hash(packet), entry);
        Some(Hit { entry, is_exact: false })
    }

    /// Records hits of an entry.
    pub fn touch(&mut self, at: u32, packets: u64, bytes: u64, now_us: u64) {
        let Some(entry) = self.slots.get_mut(at as usize).and_then(Option::as_mut) else { return };
        if let Some(masked) = &mut self.masks[entry.mask as usize] {
            masked.packets += packets;
        }
        entry.packets += packets;
        entry.bytes += bytes;
        entry.used_us = entry.used_us.max(now_us);
        entry.recent = entry.recent.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
    }

    /// Looks up the megaflow of a packet in all masks, without recording anything.
    pub fn find(&self, packet: Packet<'_>) -> Option<u32> {
        self.order.iter().find_map(|mask| {
            let masked = self.masks[*mask as usize].as_ref()?;
            let mut at = *masked.heads.get(&hash(self.seed, &masked.mask.words, masked.mask.length, packet))?;
            while !self.is_for(at, packet) {
                at = self.get(at)?.next;
            }
            Some(at)
        })
    }

    /// Marks an entry's packets and bytes as added to the flows' counters.
    pub fn settle(entry: &mut Entry) {
        entry.settled.0 += std::mem::take(&mut entry.packets);
        entry.settled.1 += std::mem::take(&mut entry.bytes);
    }

    /// Adds a megaflow, and returns its number. Entries that are evicted for it are passed to `gone`.
    pub fn insert(
        &mut self,
        packet: Packet<'_>,
        mut translation: Translation,
        generation: Generation,
        now_us: u64,
        gone: &mut dyn FnMut(Entry),
    ) -> u32 {
        let mask = Mask { words: std::mem::take(&mut translation.consulted), length: translation.length };
        let size = bytes_of(&mask, &translation);
        while !self.is_empty() && (self.len() >= self.limit || self.bytes + size > BYTES_MAX) {
            self.evict(gone);
        }
        let at = self.mask_for(mask, gone);
        let Some(masked) = &mut self.masks[at as usize] else { return NONE };
        let mask = Arc::clone(&masked.mask);
        let hash = hash(self.seed, &mask.words, mask.length, packet);
        self.serial += 1;
        let entry = Entry {
            mask: at,
            hash,
            next: masked.heads.get(&hash).copied().unwrap_or(NONE),
            start: packet.start,
            key: mask.words.iter().map(|(word, mask)| packet.record[*word as usize] & mask).collect(),
            length: packet.bytes & mask.length,
            effects: translation.effects,
            dependences: translation.dependences,
            generation,
            written: translation.written,
            finds_flows: translation.finds_flows,
            packets: 0,
            bytes: 0,
            settled: (0, 0),
            used_us: now_us,
            renewed_us: now_us,
            recent: 1,
            serial: self.serial,
            is_untraceable: false,
            frames: Vec::new(),
            size,
        };
        self.bytes += size;
        masked.entries += 1;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        masked.heads.insert(hash, slot);
        self.slots[slot as usize] = Some(entry);
        if self.searched < self.order.len() {
            self.put_in_front(self.hash(packet), slot);
        }
        slot
    }

    /// Removes an entry and returns it.
    pub fn remove(&mut self, at: u32) -> Option<Entry> {
        let entry = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        self.bytes -= entry.size;
        let masked = self.masks[entry.mask as usize].as_mut()?;
        masked.entries -= 1;
        let head = masked.heads.get(&entry.hash).copied().unwrap_or(NONE);
        if head == at {
            if entry.next == NONE {
                masked.heads.remove(&entry.hash);
            } else {
                masked.heads.insert(entry.hash, entry.next);
            }
        } else {
            let mut before = head;
            while let Some(other) = self.slots.get_mut(before as usize).and_then(Option::as_mut) {
                if other.next == at {
                    other.next = entry.next;
                    break;
                }
                before = other.next;
            }
        }
        if masked.entries == 0 {
            self.drop_mask(entry.mask);
        }
        Some(entry)
    }

    /// Removes all entries.
    pub fn clear(&mut self, gone: &mut dyn FnMut(Entry)) {
        for at in 0..self.slots.len() as u32 {
            if let Some(entry) = self.remove(at) {
                gone(entry);
            }
        }
        self.slots.clear();
        self.free.clear();
    }

    /// An example of a packet that an entry matches: a record of `words` words that is zero outside the mask, which is
    /// put into `record`, frame length, start.
    pub fn example(&self, at: u32, words: usize, record: &mut Vec<u64>) -> Option<(u32, u64)> {
        let (entry, mask) = (self.get(at)?, self.mask_of(at)?);
        record.clear();
        record.resize(words, 0);
        for ((word, _), value) in mask.words.iter().zip(&entry.key) {
            record[*word as usize] = *value;
        }
        Some((entry.length, entry.start))
    }

    /// Whether everything that a translation consulted is in the entry's mask.
    pub fn covers(&self, at: u32, translation: &Translation) -> bool {
        let Some(mask) = self.mask_of(at) else { return false };
        let of = |word: u32| mask.words.binary_search_by_key(&word, |(word, _)| *word).map_or(0, |i| mask.words[i].1);
        translation.length & !mask.length == 0
            && translation.consulted.iter().all(|(word, bits)| bits & !of(*word) == 0)
    }

    /// Adapts the limit on entries to the duration of a sweep.
    pub fn adapt(&mut self, sweep_us: u64) {
        self.limit = match sweep_us {
            2_000_000.. => self.limit / 2,
            1_300_000.. => self.limit / 4 * 3,
            ..1_000_000 if self.len() > self.limit / 4 * 3 => self.limit + 4096,
            _ => self.limit,
        }
        .clamp(*ENTRIES.start(), *ENTRIES.end());
    }

    /// Halves the count of an entry's hits.
    pub fn age(entry: &mut Entry) {
        entry.recent /= 2;
    }

    fn evict(&mut self, gone: &mut dyn FnMut(Entry)) {
        let slots = self.slots.len();
        let mut worst: Option<(u32, u64, u32)> = None;
        let (mut seen, mut passed) = (0, 0);
        while seen < SAMPLE && passed < slots {
            self.hand = (self.hand + 1) % slots;
            passed += 1;
            if let Some(entry) = &self.slots[self.hand] {
                seen += 1;
                let rank = (entry.recent, entry.used_us, self.hand as u32);
                worst = Some(worst.map_or(rank, |worst| worst.min(rank)));
            }
        }
        if let Some(entry) = worst.and_then(|(_, _, at)| self.remove(at)) {
            self.evictions += 1;
            gone(entry);
        }
    }

    fn mask_for(&mut self, mask: Mask, gone: &mut dyn FnMut(Entry)) -> u32 {
        if let Some(at) = self.by_mask.get(&mask) {
            return *at;
        }
        if self.order.len() >= MASKS_MAX {
            let packets = |at: &u32| self.masks[*at as usize].as_ref().map_or(0, |masked| masked.packets);
            if let Some(least) = self.order.iter().copied().min_by_key(packets) {
                for at in self.entries_of(least) {
                    if let Some(entry) = self.remove(at) {
                        self.evictions += 1;
                        gone(entry);
                    }
                }
            }
        }
        let mask = Arc::new(mask);
        let masked = Masked { mask: Arc::clone(&mask), heads: HashMap::default(), entries: 0, hits: 0, packets: 0 };
        let at = match self.masks.iter().position(Option::is_none) {
            Some(at) => {
                self.masks[at] = Some(masked);
                at as u32
            }
            None => {
                self.masks.push(Some(masked));
                self.masks.len() as u32 - 1
            }
        };
        self.take_in(&mask);
        self.by_mask.insert(mask, at);
        self.order.push(at);
        at
    }

    /// The numbers of all entries with a mask.
    fn entries_of(&self, mask: u32) -> Vec<u32> {
        let mut entries = Vec::new();
        for head in self.masks[mask as usize].iter().flat_map(|masked| masked.heads.values()) {
            let mut at = *head;
            while let Some(entry) = self.get(at) {
                entries.push(at);
                at = entry.next;
            }
        }
        entries
    }

    fn drop_mask(&mut self, at: u32) {
        if let Some(masked) = self.masks[at as usize].take() {
            self.by_mask.remove(&masked.mask);
        }
        if let Some(place) = self.order.iter().position(|other| *other == at) {
            self.order.remove(place);
            if self.searched != usize::MAX && place < self.searched {
                self.searched -= 1;
            }
        }
        self.is_union_wide = true;
    }

    /// Adds a mask to the union. If the union grows, the hashes of the exact-match cache change, and it is emptied.
    fn take_in(&mut self, mask: &Mask) {
        let mut is_new = mask.length & !self.union_length != 0;
        self.union_length |= mask.length;
        for (word, bits) in &mask.words {
            match self.union.binary_search_by_key(word, |(word, _)| *word) {
                Ok(at) => {
                    is_new |= bits & !self.union[at].1 != 0;
                    self.union[at].1 |= bits;
                }
                Err(at) => {
                    self.union.insert(at, (*word, *bits));
                    is_new = true;
                }
            }
        }
        if is_new {
            self.front.fill((0, NONE));
        }
    }

    /// Recomputes the union without the bits of removed masks.
    fn unite(&mut self) {
        let before = (std::mem::take(&mut self.union), std::mem::take(&mut self.union_length));
        let masks: Vec<Arc<Mask>> = self.masks.iter().flatten().map(|masked| Arc::clone(&masked.mask)).collect();
        let front = std::mem::take(&mut self.front);
        masks.iter().for_each(|mask| self.take_in(mask));
        self.front = front;
        if before != (self.union.clone(), self.union_length) {
            self.front.fill((0, NONE));
        }
        self.is_union_wide = false;
    }

    fn sort(&mut self) {
        let masks = &self.masks;
        let hits = |at: &u32| masks[*at as usize].as_ref().map_or(0, |masked| masked.hits);
        self.order.sort_by_key(|at| std::cmp::Reverse(hits(at)));
        if self.gain != u64::MAX {
            let is_worth = |at: &u32| hits(at).saturating_mul(self.gain) > self.searches;
            let worth = self.order.iter().take_while(|at| is_worth(at)).count();
            self.searched = worth.max(SEARCHED_MIN.min(self.order.len()));
        }
        self.searches /= 2;
        self.masks.iter_mut().flatten().for_each(|masked| {
            masked.hits /= 2;
            masked.packets /= 2;
        });
        if self.is_union_wide {
            self.unite();
        }
    }
}

/// The slot pair of a hash in the exact-match cache, and the tag that is stored there.
fn front_place(hash: u64) -> (usize, u32) {
    ((hash as usize & (FRONT / 2 - 1)) * 2, (hash >> 32) as u32)
}

fn hash(seed: u64, words: &[(u32, u64)], length: u32, packet: Packet<'_>) -> u64 {
    let first = mix(seed ^ packet.start, u64::from(packet.bytes & length));
    words.iter().fold(first, |hash, (word, mask)| mix(hash, packet.record[*word as usize] & mask))
}

fn is_same(entry: &Entry, mask: &Mask, packet: Packet<'_>) -> bool {
    entry.start == packet.start
        && entry.length == packet.bytes & mask.length
        && mask.words.iter().zip(&entry.key).all(|((word, mask), key)| packet.record[*word as usize] & mask == *key)
}

/// Approximate size of an entry, in bytes.
fn bytes_of(mask: &Mask, translation: &Translation) -> usize {
    let effects = &translation.effects;
    std::mem::size_of::<Entry>()
        + 8 * mask.words.len()
        + std::mem::size_of::<Effect>() * effects.list.len()
        + 16 * (effects.usages.len() + effects.tables.len() + effects.stations.len() + translation.dependences.len())
        + 512 * effects.learned.len()
}

//! The flow cache of a worker: megaflows, and an exact-match front.
//!
//! A *megaflow* is what a translation yielded: which bits of the record as parsed it consulted (mask), what they were (key), and the
//! effects. Megaflows with the same mask are one hash table; a lookup tries masks by how often they hit (Pfaff et al., "The Design
//! and Implementation of Open vSwitch", NSDI 2015, sections 4 and 6). Any hit is right, so the first one ends the lookup.
//!
//! The *front* maps the hash of all bits that any mask has to a megaflow. It is a hint: the megaflow's own mask and key are compared.
//! With few masks it would cost more than it saves and is left out.
//!
//! **Many masks.** Traffic can be made to need as many masks as there are (tuple space explosion; Csikor et al., CoNEXT 2019). A mask is
//! worth a search if, of the packets that get there, more than one in [`Cache::set_gain`] hits. Masks are in the order of their hits, and
//! a lookup ends at the first one that is not. Now and then it tries one of the others, in turn, whose hits count accordingly.
//!
//! **Bounds.** Entries are limited by number and by memory; the number adapts so that a sweep over all of them, which finds idle
//! and outdated ones, takes about a second. A new entry that finds no room evicts the least useful one of a sample.
//!
//! Single-threaded: each worker has its own, and a hit takes no lock.
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

/// Entries at most, whatever the limit adapts to, and at least.
const ENTRIES: std::ops::RangeInclusive<usize> = 1024..=1 << 18;
/// Bytes of entries at most.
const BYTES_MAX: usize = 128 << 20;
/// Masks at most: an entry of one more makes room by the entries of the mask with the fewest packets.
const MASKS_MAX: usize = 512;
/// Masks that are tried without the front.
const MASKS_WITHOUT_FRONT: usize = 2;
/// Slots of the front: pairs, the newer one first.
const FRONT: usize = 8192;
/// Entries among which the least useful one is found.
const SAMPLE: usize = 8;
/// Lookups between two sortings of the masks.
const SORT_INTERVAL: u64 = 4096;
/// Masks that are always searched.
const SEARCHED_MIN: usize = 1;
/// One search of so many tries a mask that is not worth it.
const TRIED_INTERVAL: u64 = 4;

/// No entry.
const NONE: u32 = u32::MAX;

/// The generations of everything that megaflows depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Generation {
    /// Of tables, groups, meters and ports.
    pub tables: u64,
    /// Of addresses for `NORMAL`.
    pub stations: u64,
}

/// Which bits of a record and of the frame's length are compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mask {
    /// Words, in order.
    pub words: Box<[(u32, u64)]>,
    /// Of the length.
    pub length: u32,
}

/// A megaflow.
#[derive(Debug)]
pub struct Entry {
    mask: u32,
    hash: u64,
    /// The next one with this mask and hash.
    next: u32,
    start: u64,
    key: Box<[u64]>,
    length: u32,
    /// What happens to its packets.
    pub effects: Effects,
    /// Until when that is right.
    pub dependences: Box<[(Dependence, u64)]>,
    /// The generation of everything at which it was right for the last time.
    pub generation: Generation,
    /// Words that say nothing about what lookups found.
    pub written: Words,
    /// Whether flows were found otherwise than by lookups of its packets.
    pub finds_flows: bool,
    /// Not added to flows yet.
    pub packets: u64,
    /// Not added to flows yet.
    pub bytes: u64,
    /// Packets and bytes that were added to flows.
    pub settled: (u64, u64),
    /// When it was used last.
    pub used_us: u64,
    /// When the flows that it learned were renewed last.
    pub renewed_us: u64,
    /// Hits, halved with each sweep.
    recent: u32,
    /// Another one for each entry, and after each change of one.
    pub serial: u64,
    /// Its packets cannot be known by their frames (`crate::front`).
    pub is_untraceable: bool,
    /// What the front knows of its frames, by handles: it is forgotten when this entry ends or becomes another.
    pub frames: Vec<u32>,
    size: usize,
}

/// Megaflows with one mask.
#[derive(Debug)]
struct Masked {
    mask: Arc<Mask>,
    /// First entries by hash.
    heads: HashMap<u64, u32, std::hash::BuildHasherDefault<crate::classifier::Keep>>,
    entries: usize,
    /// Of searches.
    hits: u64,
    /// Packets of its megaflows, also those that were found without a search.
    packets: u64,
}

/// A lookup's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The entry.
    pub entry: u32,
    /// Whether the front had it.
    pub is_exact: bool,
}

/// A packet to be looked up.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its record as parsed.
    pub record: &'a [u64],
    /// Its frame's length.
    pub bytes: u32,
    /// Where it begins.
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
    /// Masks, the most hit one first.
    order: Vec<u32>,
    /// How many of them are searched.
    searched: usize,
    /// The one of the others that was tried last.
    tried: usize,
    /// Searches, halved with each sorting.
    searches: u64,
    /// See [`Cache::set_gain`].
    gain: u64,
    /// All bits of all masks, maybe also of some that are gone.
    union: Vec<(u32, u64)>,
    union_length: u32,
    is_union_wide: bool,
    /// Upper halves of hashes and entries.
    front: Vec<(u32, u32)>,
    limit: usize,
    bytes: usize,
    hand: usize,
    lookups: u64,
    serial: u64,
    /// Entries that made room.
    pub evictions: u64,
}

impl Cache {
    /// An empty one.
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
            // Sweeps that take too long lower it.
            limit: *ENTRIES.end(),
            bytes: 0,
            hand: 0,
            lookups: 0,
            serial: 0,
            evictions: 0,
        }
    }

    /// How many entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many masks.
    pub fn masks(&self) -> usize {
        self.order.len()
    }

    /// How many entries there may be now.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Slots, used or not, for sweeps.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// An entry, if there is one of this number.
    pub fn get(&self, at: u32) -> Option<&Entry> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// An entry, if there is one of this number.
    pub fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// An entry that is to become another: what was made of it before is no longer right.
    pub fn get_mut_anew(&mut self, at: u32) -> Option<&mut Entry> {
        self.serial += 1;
        let serial = self.serial;
        let entry = self.get_mut(at)?;
        (entry.serial, entry.is_untraceable) = (serial, false);
        Some(entry)
    }

    /// Whether changes since an entry was right were about no packet of it, as far as the last ones tell. It is right at `generation`
    /// then, up to which these were followed.
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

    /// The entry of a packet.
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

    /// The hash of all bits of a packet that any mask has.
    pub fn hash(&self, packet: Packet<'_>) -> u64 {
        hash(self.seed, &self.union, self.union_length, packet)
    }

    /// What a hit saves, in searches of a mask. At first it is without bound: all masks are searched.
    pub fn set_gain(&mut self, gain: u64) {
        self.gain = gain;
        if gain == u64::MAX {
            self.searched = usize::MAX;
        }
    }

    /// Whether an entry is this packet's.
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

    /// Searches one mask, by its place in the order. A hit counts for so many.
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

    /// The entry of a packet that [`Cache::lookup`] did not find, whatever its mask. The next lookup finds it.
    pub fn search_others(&mut self, packet: Packet<'_>) -> Option<Hit> {
        let entry =
            (self.searched.min(self.order.len())..self.order.len()).find_map(|at| self.search_mask(at, packet, 1))?;
        self.put_in_front(self.hash(packet), entry);
        Some(Hit { entry, is_exact: false })
    }

    /// Notes hits.
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

    /// The entry of a packet, which does not count as a lookup.
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

    /// What an entry has counted was added to flows.
    pub fn settle(entry: &mut Entry) {
        entry.settled.0 += std::mem::take(&mut entry.packets);
        entry.settled.1 += std::mem::take(&mut entry.bytes);
    }

    /// Adds a megaflow; what it replaces or evicts goes to `gone`.
    pub fn insert(
        &mut self,
        packet: Packet<'_>,
        translation: Translation,
        generation: Generation,
        now_us: u64,
        gone: &mut dyn FnMut(Entry),
    ) -> u32 {
        let mut words: Vec<(u32, u64)> = translation.consulted.iter().collect();
        words.sort_unstable();
        words.dedup();
        let mask = Mask { words: words.into(), length: translation.length };
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
            dependences: translation.dependences.into(),
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

    /// Removes an entry.
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

    /// A record that an entry is for: zero where its mask is.
    pub fn example(&self, at: u32, words: usize) -> Option<(Vec<u64>, u32, u64)> {
        let (entry, mask) = (self.get(at)?, self.mask_of(at)?);
        let mut record = vec![0; words];
        for ((word, _), value) in mask.words.iter().zip(&entry.key) {
            record[*word as usize] = *value;
        }
        Some((record, entry.length, entry.start))
    }

    /// Whether a translation consulted nothing that the entry's mask leaves out.
    pub fn covers(&self, at: u32, translation: &Translation) -> bool {
        let Some(mask) = self.mask_of(at) else { return false };
        let of = |word: u32| mask.words.binary_search_by_key(&word, |(word, _)| *word).map_or(0, |i| mask.words[i].1);
        translation.length & !mask.length == 0 && translation.consulted.iter().all(|(word, bits)| bits & !of(word) == 0)
    }

    /// A sweep over all entries took so long: there may be more or fewer.
    pub fn adapt(&mut self, sweep_us: u64) {
        self.limit = match sweep_us {
            2_000_000.. => self.limit / 2,
            1_300_000.. => self.limit / 4 * 3,
            ..1_000_000 if self.len() > self.limit / 4 * 3 => self.limit + 4096,
            _ => self.limit,
        }
        .clamp(*ENTRIES.start(), *ENTRIES.end());
    }

    /// Halves what is known of an entry's use.
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

    /// All entries with a mask.
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

    /// Takes a mask's bits into those of all; the front's hashes are others if there are more then.
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

    /// The bits of all masks anew, without those that are gone.
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

/// A hash's pair of slots of the front, and what is kept of it there.
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

/// Bytes that an entry takes, roughly.
fn bytes_of(mask: &Mask, translation: &Translation) -> usize {
    let effects = &translation.effects;
    std::mem::size_of::<Entry>()
        + 8 * mask.words.len()
        + std::mem::size_of::<Effect>() * effects.list.len()
        + 16 * (effects.usages.len() + effects.tables.len() + effects.stations.len() + translation.dependences.len())
        + 512 * effects.learned.len()
}

//! Changes: insertion, eviction, removal.

use std::sync::Arc;

use super::masks::Bits;
use super::{Body, Cache, Key, NONE, QUARANTINE, Refused, Row, SLOT_MASK, UNBOUNDED, handle, pair};
use crate::path::{Pattern, WINDOW};
use crate::run::Prepared;

/// Number of megaflows that an eviction compares.
const SAMPLE: usize = 8;
/// Number of slots that an eviction visits to find an unused megaflow.
const SAMPLE_SLOTS: usize = 64;
/// Maximum number of megaflows evicted at once to make room for a mask; later insertions evict the others.
const MASK_EVICTED_MAX: usize = 64;
/// Greater lengths are not distinguished.
const LEN_MAX: u32 = UNBOUNDED as u32 - 1;

/// A checked pattern.
struct Wanted {
    bits: Bits,
    key: Key,
    row: Row,
}

impl Wanted {
    fn new(port: u32, pattern: &Pattern, rewrite: &Prepared) -> Result<Wanted, Refused> {
        if pattern.mask.len() > WINDOW {
            return Err(Refused::Window { bytes: pattern.mask.len() });
        }
        let outside = |i: &usize| pattern.value.get(*i).is_none_or(|v| v & !pattern.mask.get(*i).unwrap_or(&0) != 0);
        if let Some(byte) = (0..pattern.mask.len().max(pattern.value.len())).find(outside) {
            return Err(Refused::Value { byte });
        }
        let (shortest, longest) = (pattern.shortest, pattern.longest);
        if shortest > longest || shortest > LEN_MAX {
            return Err(Refused::Lengths { shortest, longest });
        }
        if rewrite.needs() > shortest as usize {
            return Err(Refused::Short { needs: rewrite.needs(), shortest });
        }
        let bits = Bits::new(&words_of(&pattern.mask));
        let row = words_of(&pattern.value);
        let key = Key {
            words: bits.inline_of(&row),
            port,
            shortest: shortest as u16,
            longest: if longest == u32::MAX { UNBOUNDED } else { longest.min(LEN_MAX) as u16 },
            ..Key::UNUSED
        };
        Ok(Wanted { bits, key, row })
    }
}

/// The words of a window, in memory order.
fn words_of(bytes: &[u8]) -> Row {
    let mut window = [0; WINDOW];
    window[..bytes.len()].copy_from_slice(bytes);
    std::array::from_fn(|i| pair(window.as_chunks().0[i]))
}

impl<T> Cache<T> {
    /// Adds a megaflow for frames of a port and returns its handle. A megaflow with the same pattern and port is
    /// replaced.
    ///
    /// If there are too many megaflows, one is evicted: the least recently used one of a sample. Payloads of
    /// evicted megaflows, and `payload` itself if the insertion is refused, are passed to `evicted`. `pattern` must
    /// be disjoint from all others of the port, or agree with them about the frames that both match.
    ///
    /// A bounded pattern whose longest frame exceeds 65,534 bytes is cut off there.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the pattern is invalid, or needs an additional mask for which there is no room yet.
    pub fn insert(
        &mut self,
        port: u32,
        pattern: &Pattern,
        mut rewrite: Prepared,
        payload: T,
        mut evicted: impl FnMut(T),
    ) -> Result<u32, Refused> {
        let checked = Wanted::new(port, pattern, &rewrite).and_then(|wanted| {
            let mask = self.mask_for(&wanted.bits, &mut evicted)?;
            Ok((wanted, mask))
        });
        let (wanted, mask) = match checked {
            Ok(checked) => checked,
            Err(refused) => {
                evicted(payload);
                return Err(refused);
            }
        };
        self.statistics.inserted += 1;
        self.share_shape(&mut rewrite);
        let hash = self.hash.of(port, &wanted.bits, &wanted.row);
        if let Some(slot) = self.masks.table(mask).find(hash, |slot| self.is_equal(slot, &wanted)) {
            let body = self.bodies[slot as usize].as_mut();
            let generation = self.keys.lines[slot as usize].generation.wrapping_add(1);
            self.keys.lines[slot as usize].generation = generation;
            if let Some(old) = body.map(|body| std::mem::replace(body, Body { rewrite, payload })) {
                evicted(old.payload);
            }
            return Ok(handle(slot, generation));
        }
        // Insert before evicting, so that the mask is not removed together with its last megaflow.
        let slot = self.free_slot();
        while let Err(neighbour) = self.masks.table_mut(mask).insert(hash, slot) {
            self.statistics.evicted += 1;
            self.take(neighbour, Some(mask)).into_iter().for_each(&mut evicted);
        }
        let generation = self.keys.lines[slot as usize].generation;
        let mut key = Key { mask, generation, ..wanted.key };
        if wanted.bits.is_wide() {
            key.wide = self.keys.add_wide(wanted.row);
        }
        self.keys.lines[slot as usize] = key;
        self.bodies[slot as usize] = Some(Body { rewrite, payload });
        self.len += 1;
        if self.len > self.limit {
            self.evict(slot, &mut evicted);
        }
        Ok(handle(slot, generation))
    }

    /// Removes a megaflow; `None` if it has been removed already.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        self.get(handle)?;
        self.take(handle & SLOT_MASK, None)
    }

    /// Removes all megaflows. Statistics continue, and old handles stay invalid.
    pub fn clear(&mut self, mut evicted: impl FnMut(T)) {
        for slot in 0..self.slots() as u32 {
            self.take(slot, None).into_iter().for_each(&mut evicted);
        }
    }

    /// Removes all megaflows for which `keep` returns false. It gets handles and payloads.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, &mut T) -> bool) {
        for slot in 0..self.slots() {
            let Some(handle) = self.at(slot) else { continue };
            let is_kept = self.bodies[slot].as_mut().is_none_or(|body| keep(handle, &mut body.payload));
            if !is_kept {
                self.take(slot as u32, None);
            }
        }
    }

    /// Changes the maximum number of megaflows, which is clamped as in [`Cache::new`]. At most `max_evicted` of the
    /// excess are evicted now; each later insertion evicts one.
    pub fn set_limit(&mut self, limit: usize, max_evicted: usize, mut evicted: impl FnMut(T)) {
        self.limit = limit.clamp(1, super::LIMIT_MAX);
        for _ in 0..self.len.saturating_sub(self.limit).min(max_evicted) {
            self.evict(NONE, &mut evicted);
        }
    }

    /// Makes a rewrite share its shape with equal ones. Unused shapes are dropped before the set's allocation
    /// grows.
    fn share_shape(&mut self, rewrite: &mut Prepared) {
        if let Some(shape) = self.shapes.get(rewrite.shape()) {
            rewrite.share(shape);
            return;
        }
        if self.shapes.len() == self.shapes.capacity() {
            self.shapes.retain(|shape| Arc::strong_count(shape) > 1);
        }
        self.shapes.insert(Arc::clone(rewrite.shape()));
    }

    /// The number of a mask, which is added if it is new.
    fn mask_for(&mut self, bits: &Bits, evicted: &mut impl FnMut(T)) -> Result<u8, Refused> {
        if let Some(mask) = self.masks.find(bits) {
            return Ok(mask);
        }
        if self.masks.is_full()
            && let Some(least) = self.masks.least()
        {
            for slot in self.masks.table(least).some(MASK_EVICTED_MAX) {
                self.statistics.evicted += 1;
                self.take(slot, None).into_iter().for_each(&mut *evicted);
            }
            if self.masks.is_full() {
                return Err(Refused::Masks);
            }
        }
        let (mask, union_changed) = self.masks.add(bits.clone());
        if union_changed {
            self.front.clear();
        }
        Ok(mask)
    }

    /// Whether a slot's megaflow has the same port, lengths and key.
    fn is_equal(&self, slot: u32, wanted: &Wanted) -> bool {
        let key = &self.keys.lines[slot as usize];
        (key.port, key.shortest, key.longest) == (wanted.key.port, wanted.key.shortest, wanted.key.longest)
            && self.keys.row(slot, &wanted.bits) == wanted.row
    }

    /// A slot that was freed some time ago, or a new one.
    fn free_slot(&mut self) -> u32 {
        if self.free.len() > QUARANTINE
            && let Some(slot) = self.free.pop_front()
        {
            return slot;
        }
        self.keys.lines.push(Key::UNUSED);
        self.bodies.push(None);
        (self.bodies.len() - 1) as u32
    }

    /// Evicts a megaflow other than `except`: the one of a sample that has been unused for longest. Megaflows used
    /// since their last visit get a second chance (as in the clock algorithm).
    fn evict(&mut self, except: u32, evicted: &mut impl FnMut(T)) {
        let mut victim: Option<(u8, u32)> = None;
        let (mut seen, mut looked) = (0, 0);
        let slots = self.slots();
        let enough = |seen, looked, victim: Option<(u8, u32)>| match victim {
            None => looked > slots,
            Some((0, _)) => looked > SAMPLE_SLOTS,
            Some(_) => seen >= SAMPLE || looked > SAMPLE_SLOTS,
        };
        while !enough(seen, looked, victim) {
            self.hand = if self.hand + 1 < self.slots() { self.hand + 1 } else { 0 };
            looked += 1;
            let (slot, key) = (self.hand as u32, &mut self.keys.lines[self.hand]);
            if key.is_unused() || slot == except {
                continue;
            }
            seen += 1;
            key.age = if key.used { 0 } else { key.age.saturating_add(1) };
            key.used = false;
            if victim.is_none_or(|(age, _)| key.age > age) {
                victim = Some((key.age, slot));
            }
        }
        if let Some((_, slot)) = victim {
            self.statistics.evicted += 1;
            self.take(slot, None).into_iter().for_each(evicted);
        }
    }

    /// Removes a slot's megaflow. Its mask is removed with its last megaflow, unless it is `kept`.
    fn take(&mut self, slot: u32, kept: Option<u8>) -> Option<T> {
        let body = self.bodies[slot as usize].take()?;
        let key = self.keys.lines[slot as usize];
        let bits = self.masks.get(key.mask);
        let hash = self.hash.of(key.port, bits, &self.keys.row(slot, bits));
        let table = self.masks.table_mut(key.mask);
        table.remove(hash, slot);
        if table.len() == 0 && kept != Some(key.mask) && self.masks.remove(key.mask) {
            self.front.clear();
        }
        if key.wide != NONE {
            self.keys.wide_free.push(key.wide);
        }
        self.keys.lines[slot as usize] = Key { generation: key.generation.wrapping_add(1), ..Key::UNUSED };
        self.free.push_back(slot);
        self.len -= 1;
        Some(body.payload)
    }
}

//! The front, an exact-match cache: maps the hash of a frame's bits under the union of all masks to the megaflow of
//! the last such frame.
//!
//! It stores no keys. Its result is compared with the megaflow's own key, so a stale slot only costs a search. It
//! is set-associative; a set of eight slots is a cache line. Slots carry an *epoch*: starting a new epoch empties
//! the front without writing to it.

use super::tags::{equal, tag};
use super::{NONE, SLOT_BITS, SLOT_MASK};
use crate::memory::{Array, prefetch};

/// Maximum number of slots (8 MB).
pub(super) const SLOTS_MAX: usize = 1 << 20;
/// Initial number of slots.
const SLOTS_MIN: usize = 1 << 10;
const WAYS: usize = 8;
/// A full set replaces a slot for one in this number of new frames. So if there are more frames than slots, most
/// slots stay in place (Qureshi et al., "Adaptive Insertion Policies for High Performance Caching", ISCA 2007).
const RELUCTANCE: u32 = 4;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Set {
    tags: [u32; WAYS],
    /// Epoch and megaflow's slot.
    slots: [u32; WAYS],
}

impl Set {
    const EMPTY: Set = Set { tags: [0; WAYS], slots: [0; WAYS] };
}

/// The exact-match cache.
pub(super) struct Front {
    /// The sets; a power of two in number.
    sets: Array<Set>,
    /// The current epoch, 1 to 255; empty slots have 0.
    epoch: u32,
    /// Number of frames that found their set full.
    crowded: u32,
}

impl Front {
    pub(super) fn new() -> Front {
        Front { sets: Array::filled(Set::EMPTY, SLOTS_MIN / WAYS), epoch: 1, crowded: 0 }
    }

    #[inline(always)]
    fn set(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.sets.len() - 1)
    }

    /// Prefetches the set of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.sets[self.set(hash)]);
    }

    /// The megaflow's slot stored for a hash, or [`NONE`]. It may belong to another frame.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64) -> u32 {
        let set = &self.sets[self.set(hash)];
        let found = equal(&set.tags, tag(hash));
        let slot = set.slots[found.trailing_zeros() as usize & (WAYS - 1)];
        if found != 0 && slot >> SLOT_BITS == self.epoch { slot & SLOT_MASK } else { NONE }
    }

    /// Stores a frame's megaflow, if there is room or it is this frame's turn to replace a slot.
    pub(super) fn insert(&mut self, hash: u64, slot: u32, megaflows: usize) {
        let (epoch, tag) = (self.epoch, tag(hash));
        let at = self.set(hash);
        let set = &mut self.sets[at];
        let known = equal(&set.tags, tag);
        let way = if known != 0 {
            known.trailing_zeros() as usize
        } else if let Some(free) = set.slots.iter().position(|s| s >> SLOT_BITS != epoch) {
            free
        } else {
            self.crowded += 1;
            if !self.crowded.is_multiple_of(RELUCTANCE) {
                return;
            }
            // Pseudo-random: a different position each time.
            (self.crowded / RELUCTANCE) as usize % WAYS
        };
        set.tags[way] = tag;
        set.slots[way] = epoch << SLOT_BITS | slot;
        let slots = self.sets.len() * WAYS;
        if slots < SLOTS_MAX && (megaflows * 2 > slots || self.crowded as usize > slots) {
            self.sets = Array::filled(Set::EMPTY, self.sets.len() * 2);
            self.crowded = 0;
        }
    }

    /// Empties the front, because the union of masks has changed.
    pub(super) fn clear(&mut self) {
        self.epoch += 1;
        if self.epoch >> (32 - SLOT_BITS) != 0 {
            self.epoch = 1;
            self.sets.fill(Set::EMPTY);
        }
    }
}

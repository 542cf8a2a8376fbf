//! The exact-match front: from the hash of all bits that any mask has to the megaflow that such a frame had last.
//!
//! It has no keys. What it finds is compared with the megaflow's own key, so stale slots cost a search and nothing else. A set of eight
//! is a cache line. Slots carry an *epoch*: a new epoch empties the front without touching it.

use super::tags::{equal, tag};
use super::{NONE, SLOT_BITS, SLOT_MASK};
use crate::memory::{Array, prefetch};

/// Slots at most: 8 MB.
pub(super) const SLOTS_MAX: usize = 1 << 20;
/// Slots at first.
const SLOTS_MIN: usize = 1 << 10;
const WAYS: usize = 8;
/// A full set takes one in so many new frames, so that more frames than there are slots leave most of them in place (Qureshi et al.,
/// "Adaptive Insertion Policies for High Performance Caching", ISCA 2007).
const RELUCTANCE: u32 = 4;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Set {
    tags: [u32; WAYS],
    /// Epoch, slot.
    slots: [u32; WAYS],
}

impl Set {
    const EMPTY: Set = Set { tags: [0; WAYS], slots: [0; WAYS] };
}

/// The front.
pub(super) struct Front {
    /// A power of two.
    sets: Array<Set>,
    /// 1 to 255; 0 is no slot's.
    epoch: u32,
    /// Counts frames that found their set full.
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

    /// Reads the set of a hash ahead.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.sets[self.set(hash)]);
    }

    /// The slot that such a frame had last, or [`NONE`]. It may be another frame's.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64) -> u32 {
        let set = &self.sets[self.set(hash)];
        let found = equal(&set.tags, tag(hash));
        let slot = set.slots[found.trailing_zeros() as usize & (WAYS - 1)];
        if found != 0 && slot >> SLOT_BITS == self.epoch { slot & SLOT_MASK } else { NONE }
    }

    /// Remembers a frame's slot, if there is room or chance wants it.
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
            // As good as random, and another one each time.
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

    /// Empties it, since other bits are hashed from now on.
    pub(super) fn clear(&mut self) {
        self.epoch += 1;
        if self.epoch >> (32 - SLOT_BITS) != 0 {
            self.epoch = 1;
            self.sets.fill(Set::EMPTY);
        }
    }
}

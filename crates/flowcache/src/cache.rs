//! The cache: megaflows, and a lookup of a batch of frames.
//!
//! ```text
//! frame ─▶ row of 64-bit words ─▶ front: hash of all bits that any mask has ─▶ megaflow ─▶ its mask, its key: hit
//!                                   │ not found, or another key
//!                                   └─▶ each mask, most useful first: hash of its bits ─▶ bucket ─▶ megaflow ─▶ its key: hit, into front
//! ```
//!
//! *Tuple space search* (Srinivasan, Suri and Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999): one hash table
//! per distinct mask. The *front* is what Open vSwitch calls a microflow cache (Pfaff et al., NSDI 2015, 4.1). It says only where to
//! look: the megaflow's own mask, key, port and lengths are compared, so it can be stale and cannot be wrong. Megaflows are disjoint or
//! agree, so whichever matches is right.
//!
//! **Memory.** A frame costs one cache line of the front (or of a mask's table), one of the megaflow's key, and those of its rewriting
//! and payload. Frames are taken [`CHUNK`] at a time through each of these steps, and each step prefetches what the next one reads, so
//! that memory accesses overlap. Large arrays lie in huge pages ([`crate::memory`]). A frame without a megaflow reads a word of a filter
//! for each mask ([`table`]). All is bounded by `limit` megaflows, [`MASKS_MAX`] masks and [`front::SLOTS_MAX`] slots of the front.
//!
//! **Hostile senders.** Hashes are keyed ([`hash`]). A lookup probes at most [`table::PROBES_MAX`] buckets of a mask. A sender who makes
//! many masks (tuple space explosion, CVE-2019-25076) pays for them with misses of its own: frames of established megaflows are found by
//! the front. A search is bounded by what masks are worth, if the owner wants that ([`Cache::set_thrifty`]).
//!
//! One thread owns a cache. Tests: `cache/tests.rs`, against a plain list.

mod change;
mod front;
mod hash;
mod lookup;
mod masks;
mod refused;
mod table;
mod tags;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::memory::Array;
use crate::path::{Pattern, WINDOW};
use crate::run::{Prepared, Shape};

pub use refused::Refused;

/// No megaflow: a miss.
pub const NONE: u32 = u32::MAX;
/// Megaflows that a cache has at most: a handle has 24 bits for the slot.
pub const LIMIT_MAX: usize = (1 << SLOT_BITS) - 2 - QUARANTINE;
/// Masks at most. A miss asks the filter of each; 20 to 35 cycles a mask were measured (`cargo run --release -p flowcache --example
/// cycles`, loaded machine), so that a miss stays below 2,500 cycles.
pub const MASKS_MAX: usize = 64;

/// Pairs of 64-bit words of the window.
const PAIRS: usize = WINDOW / 16;
/// A frame's first bytes as words, in pairs as they are hashed.
type Row = [[u64; 2]; PAIRS];
/// Frames that go through the steps of a lookup together: as many as a burst has mostly, so that a step takes long enough for what the
/// one before has prefetched.
const CHUNK: usize = 32;
/// Pairs of a key in its cache line, from the first that its mask has on: headers up to TCP's ports over IPv4 and a VLAN tag.
const INLINE: usize = 3;
const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Slots that wait before they are used again: a batch's worth, so that a hit of a batch is not taken for a megaflow that was inserted
/// while the batch was worked on.
const QUARANTINE: usize = 64;

/// Megaflows for which there is address space from the beginning, so that no frame waits until they have been moved to a larger place.
/// The system gives memory when they are used. Twice a bridge's most.
const RESERVED_MAX: usize = 1 << 19;

/// A frame as it was received: `buffer[offset..][..len]`, and the port that it came from.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The buffer that it lies in.
    pub buffer: &'a [u8],
    /// Where it begins.
    pub offset: usize,
    /// Its bytes. What lies behind them in the buffer does not count.
    pub len: usize,
    /// The port.
    pub port: u32,
}

/// How often what happened since the cache was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Frames that the front found.
    pub front_hits: u64,
    /// Frames that the search of masks found.
    pub mask_hits: u64,
    /// Frames without a megaflow.
    pub misses: u64,
    /// Masks that were searched for frames which the front did not find.
    pub probes: u64,
    /// Megaflows inserted; also those that replaced an equal one.
    pub inserted: u64,
    /// Megaflows evicted because there were too many, or too many masks.
    pub evicted: u64,
}

/// A megaflow's key, one cache line. An unused slot has lengths that no frame has.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Key {
    words: [[u64; 2]; INLINE],
    port: u32,
    /// Index into [`Keys::wide`], if that is not all.
    wide: u32,
    shortest: u16,
    /// [`UNBOUNDED`]: any length.
    longest: u16,
    mask: u8,
    generation: u8,
    /// Since the eviction last looked.
    used: bool,
    /// How often the eviction found it unused in a row.
    age: u8,
}

const _: () = assert!(size_of::<Key>() == 64, "a key is a cache line");

/// The length that stands for all frames which are too long for 16 bits.
const UNBOUNDED: u16 = u16::MAX;

impl Key {
    const UNUSED: Key = Key {
        words: [[0; 2]; INLINE],
        port: 0,
        wide: NONE,
        shortest: 1,
        longest: 0,
        mask: 0,
        generation: 0,
        used: false,
        age: 0,
    };

    fn is_unused(&self) -> bool {
        self.longest < self.shortest
    }
}

/// What a megaflow does: a cache line, if the payload has at most 24 bytes.
#[repr(align(64))]
struct Body<T> {
    rewrite: Prepared,
    payload: T,
}

/// A megaflow, as [`Cache::get`] shows it.
#[derive(Debug)]
pub struct Megaflow<'a, T> {
    /// How its frames change.
    pub rewrite: &'a Prepared,
    /// What the caller keeps for it.
    pub payload: &'a T,
}

/// Keys of all megaflows by slot.
struct Keys {
    lines: Array<Key>,
    /// All of a key, if its cache line does not have room for that.
    wide: Vec<Row>,
    wide_free: Vec<u32>,
}

/// A bounded set of megaflows, each with a rewriting and the caller's `T`.
pub struct Cache<T> {
    limit: usize,
    len: usize,
    keys: Keys,
    bodies: Array<Option<Body<T>>>,
    free: VecDeque<u32>,
    /// Of the rewritings; most megaflows share few.
    shapes: HashSet<Arc<Shape>>,
    masks: masks::Masks,
    front: front::Front,
    hash: hash::Hash,
    rows: Box<lookup::Rows>,
    /// Where the eviction looks next.
    hand: usize,
    statistics: Statistics,
}

impl<T> Cache<T> {
    /// An empty cache of at most `limit` megaflows (1 to [`LIMIT_MAX`]; other numbers are brought into this range).
    ///
    /// `seed` keys the hashes. It should be random and secret, so that senders cannot choose frames that collide.
    pub fn new(seed: u64, limit: usize) -> Cache<T> {
        let hash = hash::Hash::new(seed);
        let limit = limit.clamp(1, LIMIT_MAX);
        let reserved = (limit + 1 + QUARANTINE).min(RESERVED_MAX);
        Cache {
            limit,
            len: 0,
            keys: Keys { lines: Array::with_capacity(reserved), wide: Vec::new(), wide_free: Vec::new() },
            bodies: Array::with_capacity(reserved),
            free: VecDeque::new(),
            shapes: HashSet::new(),
            masks: masks::Masks::new(),
            front: front::Front::new(),
            hash,
            rows: Box::new(lookup::Rows::new()),
            hand: 0,
            statistics: Statistics::default(),
        }
    }

    /// Megaflows in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Megaflows that there may be.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Distinct masks of the megaflows.
    pub fn masks(&self) -> usize {
        self.masks.len()
    }

    /// What happened so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The megaflow of a handle; `None` if it has left the cache since.
    #[inline]
    pub fn get(&self, handle: u32) -> Option<Megaflow<'_, T>> {
        let slot = self.slot(handle)?;
        self.bodies.get(slot)?.as_ref().map(|body| Megaflow { rewrite: &body.rewrite, payload: &body.payload })
    }

    /// As [`Cache::get`], to change the payload.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> Option<(&Prepared, &mut T)> {
        let slot = self.slot(handle)?;
        self.bodies.get_mut(slot)?.as_mut().map(|body| (&body.rewrite, &mut body.payload))
    }

    /// The slot of a handle, if it is still the same megaflow's.
    #[inline(always)]
    fn slot(&self, handle: u32) -> Option<usize> {
        let slot = (handle & SLOT_MASK) as usize;
        let key = self.keys.lines.get(slot)?;
        (u32::from(key.generation) == handle >> SLOT_BITS).then_some(slot)
    }

    /// Which frames a megaflow is for: their port and bits.
    pub fn pattern(&self, handle: u32) -> Option<(u32, Pattern)> {
        self.get(handle)?;
        let slot = handle & SLOT_MASK;
        let key = &self.keys.lines[slot as usize];
        let mask = self.masks.get(key.mask);
        let (mut bits, mut value) = ([0; WINDOW], [0; WINDOW]);
        for (to, pair) in bits.as_chunks_mut().0.iter_mut().zip(mask.pairs()) {
            *to = bytes_of(*pair);
        }
        for (to, pair) in value.as_chunks_mut().0.iter_mut().zip(self.keys.row(slot, mask)) {
            *to = bytes_of(pair);
        }
        let len = bits.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        let longest = if key.longest == UNBOUNDED { u32::MAX } else { key.longest.into() };
        let pattern =
            Pattern { mask: bits[..len].into(), value: value[..len].into(), shortest: key.shortest.into(), longest };
        Some((key.port, pattern))
    }

    /// Slots, used or not: the bound of a sweep by [`Cache::at`].
    pub fn slots(&self) -> usize {
        self.keys.lines.len()
    }

    /// The handle of the megaflow in a slot.
    pub fn at(&self, slot: usize) -> Option<u32> {
        self.bodies.get(slot)?.as_ref()?;
        Some(handle(slot as u32, self.keys.lines[slot].generation))
    }

    /// Handles of all megaflows.
    pub fn handles(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots()).filter_map(|slot| self.at(slot))
    }
}

/// Two words of a frame.
#[inline(always)]
fn pair(bytes: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

fn bytes_of([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

fn handle(slot: u32, generation: u8) -> u32 {
    u32::from(generation) << SLOT_BITS | slot
}

impl Keys {
    /// All of a key.
    fn row(&self, slot: u32, bits: &masks::Bits) -> Row {
        let key = &self.lines[slot as usize];
        if bits.is_wide() { self.wide[key.wide as usize] } else { bits.row_of(&key.words) }
    }

    fn add_wide(&mut self, words: Row) -> u32 {
        match self.wide_free.pop() {
            Some(free) => {
                self.wide[free as usize] = words;
                free
            }
            None => {
                self.wide.push(words);
                (self.wide.len() - 1) as u32
            }
        }
    }
}

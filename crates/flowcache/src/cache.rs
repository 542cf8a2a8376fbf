//! The cache: megaflows over frames, and a batched lookup.
//!
//! ```text
//! frame ─▶ row of 64-bit words ─▶ front: hash under the union of masks ─▶ megaflow ─▶ compare mask and key: hit
//!                                   │ not found, or another key
//!                                   └─▶ each mask, most hits first: hash ─▶ bucket ─▶ megaflow ─▶ compare key: hit,
//!                                                                                     added to the front
//! ```
//!
//! *Tuple space search* (Srinivasan, Suri and Varghese, "Packet Classification using Tuple Space Search", SIGCOMM
//! 1999): one hash table per distinct mask. The *front* is an exact-match cache, which Open vSwitch calls the
//! microflow cache (Pfaff et al., NSDI 2015, 4.1). It only says where to look: the megaflow's own mask, key, port
//! and lengths are compared, so the front may be stale without being wrong. Megaflows are disjoint or agree, so any
//! match is right.
//!
//! **Memory.** A frame reads one cache line of the front (or of a mask's table), one of the megaflow's key, and
//! those of its rewrite and payload. [`CHUNK`] frames at a time pass through each of these steps, and each step
//! prefetches what the next one reads, so that memory accesses overlap. Large arrays lie in huge pages
//! ([`crate::memory`]). A frame without a megaflow reads one filter word per mask ([`table`]). Memory is bounded by
//! `limit` megaflows, [`MASKS_MAX`] masks and [`front::SLOTS_MAX`] slots of the front.
//!
//! **Hostile senders.** Hashes are keyed ([`hash`]). A lookup probes at most [`table::PROBES_MAX`] buckets of a
//! mask. A sender who causes many masks (tuple space explosion, CVE-2019-25076) mostly slows down its own misses:
//! the front finds frames of established megaflows. With [`Cache::set_thrifty`], a search also leaves out masks
//! that are not worth searching.
//!
//! A cache is owned by one thread. Tests: `cache/tests.rs`, against a plain list.

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
/// Maximum number of megaflows of a cache: a handle has 24 bits for the slot.
pub const LIMIT_MAX: usize = (1 << SLOT_BITS) - 2 - QUARANTINE;
/// Maximum number of masks. A miss checks the filter of each; 20 to 35 cycles per mask were measured (`cargo run
/// --release -p flowcache --example cycles`, on a loaded machine), so that a miss stays below 2,500 cycles.
pub const MASKS_MAX: usize = 64;

/// Number of pairs of 64-bit words in the window.
const PAIRS: usize = WINDOW / 16;
/// The first bytes of a frame as words, in pairs as they are hashed.
type Row = [[u64; 2]; PAIRS];
/// Frames that pass through the steps of a lookup together: the usual size of a burst, so that a step takes long
/// enough for the prefetches of the step before it.
const CHUNK: usize = 32;
/// Pairs of a key in its cache line, starting at the mask's first nonzero pair: headers up to TCP's ports over IPv4
/// and a VLAN tag.
const INLINE: usize = 3;
const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Number of freed slots that are not reused yet: a batch's worth, so that a hit of a batch is not mistaken for a
/// megaflow that is inserted while the batch is processed.
const QUARANTINE: usize = 64;

/// Number of megaflows for which address space is reserved at the start, so that no frame waits while arrays are
/// moved. The system provides memory on first use. Twice the limit of a bridge.
const RESERVED_MAX: usize = 1 << 19;

/// A received frame, `buffer[offset..][..len]`, and its port.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The buffer that contains it.
    pub buffer: &'a [u8],
    /// Its offset in the buffer.
    pub offset: usize,
    /// Its length in bytes. Bytes after it in the buffer are ignored.
    pub len: usize,
    /// The port on which it was received.
    pub port: u32,
}

/// Event counts since the cache was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Frames found by the front.
    pub front_hits: u64,
    /// Frames found by a search of masks.
    pub mask_hits: u64,
    /// Frames without a megaflow.
    pub misses: u64,
    /// Masks searched, counted per frame that the front did not find.
    pub probes: u64,
    /// Insertions, including those that replaced an equal megaflow.
    pub inserted: u64,
    /// Evictions because there were too many megaflows or masks.
    pub evicted: u64,
}

/// A megaflow's key: one cache line. An unused slot has a range of lengths that no frame is in.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Key {
    words: [[u64; 2]; INLINE],
    port: u32,
    /// Index into [`Keys::wide`] of the whole key, if it does not fit here.
    wide: u32,
    shortest: u16,
    /// Maximum length; [`UNBOUNDED`] stands for any.
    longest: u16,
    mask: u8,
    generation: u8,
    /// Whether it was used since an eviction last visited it.
    used: bool,
    /// Number of consecutive visits by evictions at which it was unused.
    age: u8,
}

const _: () = assert!(size_of::<Key>() == 64, "a key is a cache line");

/// The length of all frames whose length does not fit 16 bits.
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

/// A megaflow's actions: one cache line, if the payload has at most 24 bytes.
#[repr(align(64))]
struct Body<T> {
    rewrite: Prepared,
    payload: T,
}

/// A megaflow, as returned by [`Cache::get`].
#[derive(Debug)]
pub struct Megaflow<'a, T> {
    /// The rewrite of its frames.
    pub rewrite: &'a Prepared,
    /// The caller's data.
    pub payload: &'a T,
}

/// The keys of all megaflows, by slot.
struct Keys {
    lines: Array<Key>,
    /// Whole keys of those that do not fit their cache lines.
    wide: Vec<Row>,
    wide_free: Vec<u32>,
}

/// A bounded set of megaflows, each with a rewrite and a payload of type `T`.
pub struct Cache<T> {
    limit: usize,
    len: usize,
    keys: Keys,
    bodies: Array<Option<Body<T>>>,
    free: VecDeque<u32>,
    /// Distinct shapes of rewrites; most megaflows share few.
    shapes: HashSet<Arc<Shape>>,
    masks: masks::Masks,
    front: front::Front,
    hash: hash::Hash,
    rows: Box<lookup::Rows>,
    /// Position of the next eviction.
    hand: usize,
    statistics: Statistics,
}

impl<T> Cache<T> {
    /// An empty cache for at most `limit` megaflows, which is clamped to 1 to [`LIMIT_MAX`].
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

    /// The number of megaflows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no megaflows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The maximum number of megaflows.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The number of distinct masks.
    pub fn masks(&self) -> usize {
        self.masks.len()
    }

    /// Event counts so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The megaflow with this handle; `None` if it has been removed.
    #[inline]
    pub fn get(&self, handle: u32) -> Option<Megaflow<'_, T>> {
        let slot = self.slot(handle)?;
        self.bodies.get(slot)?.as_ref().map(|body| Megaflow { rewrite: &body.rewrite, payload: &body.payload })
    }

    /// Like [`Cache::get`], but the payload can be changed.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> Option<(&Prepared, &mut T)> {
        let slot = self.slot(handle)?;
        self.bodies.get_mut(slot)?.as_mut().map(|body| (&body.rewrite, &mut body.payload))
    }

    /// The slot of a handle, if it still belongs to the same megaflow.
    #[inline(always)]
    fn slot(&self, handle: u32) -> Option<usize> {
        let slot = (handle & SLOT_MASK) as usize;
        let key = self.keys.lines.get(slot)?;
        (u32::from(key.generation) == handle >> SLOT_BITS).then_some(slot)
    }

    /// The port and pattern of a megaflow.
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

    /// The number of slots, used or free: the bound of a sweep with [`Cache::at`].
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
    /// A whole key.
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

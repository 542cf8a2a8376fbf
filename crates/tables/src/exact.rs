//! Exact match: a hash table whose entries lie in its buckets, so that a lookup is one cache line, probed without locks
//! and without branches, and simple enough for `jit` to inline the probe.
//!
//! # Memory layout (what inlined probes rely on)
//!
//! `TableHandle::snapshot` points at an [`ExactSnapshot`]: the buckets, their number, the hash's seeds. A snapshot never
//! changes, and lives until all workers that could have loaded it have been quiescent; a table that grows publishes a
//! new one. A bucket is one cache line of as many slots as fit, two to eight ([`Shape`]; `abi::ExactLayout` tells `jit`):
//!
//! ```text
//! offset  0   the keys of the slots: the first 8 bytes of each, one after the other, then what is left of each, 4 or
//!             8 bytes; key_bytes in all, a multiple of 4, words little-endian. Keys of 4 bytes lie one after the other
//!         k   the entries of the slots, one after the other: entry_bytes each
//!        60   the states, a 32-bit word: bits 0..8 which slots are live, 8..16 which are dead (the writer's),
//!             16..32 the marks of keys that were passed on
//! ```
//!
//! *Near* entries are the bytes that `abi::entry` describes; the lookup's result is an address in the bucket. An 8-byte
//! key with a port as data takes 12 bytes of the line, a 16-byte key with two parameters 28. Entries that are larger, and
//! those with a time of the last hit, are *far*: six bytes of the slot are the entry's address. Far entries that are the
//! same byte for byte are one, mostly ([`crate::shared`]). Keys above 16 bytes are in
//! the far cell too, and the slot's key is 32 bits of the hash ([`store`]): such tables are looked up through calls.
//!
//! # Hash and probe
//!
//! `p = (w0 ^ seed0) * (w1 ^ seed1)` as a 128-bit product, where `w1` is `w0` with its halves exchanged for keys of one
//! word; `h = low64(p) ^ high64(p)`. The seeds are random, so that no sender can choose keys that collide, and the same in
//! all tables of a program: code made for the tables as they are hashes a key of two once. They are others in each program, since entries
//! are read in the order of their hashes: written in that order to a table with the same seeds, they would all want the same
//! few buckets. The key's
//! *home* is bucket `h * count >> 64` (so the number of buckets need not be a power of two), its *second* bucket
//! `home + 1 + (h & 31)`, then come those behind the second, one after the other. Its *mark* is `h >> 5 & 15`.
//!
//! ```text
//! loop {
//!     states = bucket[60];                                  // before keys and entries
//!     hits = (bits of the slots whose key is equal) & states;
//!     if hits != 0 { return slot number trailing_zeros(hits) }
//!     if !(states >> (16 + mark) & 1) { return miss }
//!     bucket = next bucket;                                 // seldom
//! }
//! ```
//!
//! A mark is set in every bucket that an entry was passed on from, so a miss too is one line, mostly. Why a second bucket
//! at a distance and not the next one: at a load of 0.7 two slots in ten overflow otherwise, and neighbours of full buckets
//! fill up in turn. Why not anywhere: within two kilobytes it is mostly on the same page, and compiled code finds it
//! without knowing the table.
//!
//! # Why readers may run while the writer writes
//!
//! - A slot is *filled* while it is neither live nor dead: entry, key, then its live bit with release order. A reader
//!   loads the states (acquire) before keys and entries: what it sees live has its own key and entry. On x86-TSO plain
//!   loads and stores in this order are enough.
//! - A slot that is emptied or replaced becomes *dead*: it is not found any more, and nothing of it changes until every
//!   reader that could have found it has been quiescent. Then it is free.
//! - A change of an entry writes the new one to another slot. In the same bucket one store makes the new one live and the
//!   old one dead. If that bucket is full, the new one goes to a *later* bucket of the key's path, is live before the
//!   old one is dead, and the marks on the way are set before that: a reader that finds the old one dead finds the new
//!   one. It never goes to an earlier bucket: a reader could have passed it and then find the old one dead. Readers may
//!   find both; they take the first.
//! - Entries do not move within an array. Growing copies them into a new one, which becomes visible with one store of
//!   `TableHandle::snapshot`; readers of the old one see the table as it was then.
//!
//! So a lookup returns what the table held for that key at some moment during the lookup (or when the batch began, for
//! code that holds the snapshot pointer).
//!
//! # Load and costs
//!
//! An array has room for as many entries at a load of [`load`]; it doubles, but never beyond what the table's size needs.
//! Every entry that is not at home makes its lookup a branch mispredicted and a line that was not prefetched: with five slots a bucket
//! that is one in 40 at 0.5, one in 14 at 0.7 and one in 10 at 0.8. Short keys have half of the slots free: a key and data of 12
//! bytes then take 26. Two or three long ones in a bucket would take too much, so they share it at 0.7: 16 bytes of key with 8 of
//! data take 46 with everything; a table has no other memory per entry.
//!
//! Threads: one writer (`&mut`), any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`,
//! `tests/loom.rs`; rates: `examples/exact.rs`.
#![allow(unsafe_code)]

mod array;
mod bucket;
#[cfg(not(loom))]
pub(crate) mod dynamic;
#[cfg(not(loom))]
mod lookup;
#[cfg(not(loom))]
pub(crate) mod store;

pub use array::{Array, At};
pub use bucket::{BUCKET_BYTES, Bucket, META_OFFSET, PASSED_MARKS, PASSED_SHIFT, SLOTS_MAX, Shape};

/// Number of buckets among which a key's second one is chosen, behind its home.
pub const WINDOW: u64 = if cfg!(loom) { 1 } else { 32 };
/// The lowest bit of a key's mark in its hash.
pub const MARK_SHIFT: u32 = 5;
/// Entries per slot when an array is full.
pub fn load(shape: &Shape) -> f64 {
    if shape.slots > 3 { 0.5 } else { 0.7 }
}

/// Bytes of the address of a far entry in its slot: user space has 47 bits of addresses.
pub const FAR_BYTES: u32 = 6;
/// Bytes of a key that lies in a slot; longer ones are in the far cell.
pub const MAX_KEY_BYTES: u32 = 16;

/// What `TableHandle::snapshot` of an exact table points at. Immutable.
#[repr(C)]
#[derive(Debug)]
pub struct ExactSnapshot {
    /// Aligned to [`BUCKET_BYTES`].
    pub buckets: *const Bucket,
    /// Number of buckets that are a key's home, below `2^32`; there are more behind them.
    pub count: u64,
    /// The hash's seeds; they never change during the life of a table.
    pub seeds: [u64; 2],
    /// How the buckets are divided; it never changes during the life of a table either.
    pub form: Form,
}

/// What the slots of a table's buckets are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// How a bucket is divided.
    pub shape: Shape,
    /// Bytes of an entry in front of its address.
    pub before: u32,
    /// Whether slots have addresses of entries.
    pub far: bool,
    /// For tables whose keys lie in far cells, in front of the entries: words of a key; otherwise 0.
    pub wide_words: u32,
    /// What hashes of keys that are not wide are multiplied by: 1, or [`MIX`].
    pub mix: u64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Bucket>() == BUCKET_BYTES as usize && align_of::<Bucket>() == BUCKET_BYTES as usize);
    assert!(std::mem::offset_of!(ExactSnapshot, count) == 8 && std::mem::offset_of!(ExactSnapshot, seeds) == 16);
};

/// The hash of a key of up to two words; `key[1]` counts if there are `two`. `mix` is [`Form::mix`].
#[inline]
pub fn hash(key: [u64; 2], two: bool, seeds: [u64; 2], mix: u64) -> u64 {
    let second = if two { key[1] } else { key[0].rotate_left(32) };
    fold(key[0] ^ seeds[0], second ^ seeds[1]).wrapping_mul(mix)
}

/// The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio, odd (Knuth, "The Art of Computer Programming", volume 3,
/// section 6.4). Without it the products of sequential keys form arithmetic progressions, which crowd in a few buckets for some
/// seeds. It lengthens every lookup by a multiplication, so only packet-written tables use it: they cannot grow, so they would refuse
/// entries. Other tables get more buckets when they crowd.
pub const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The halves of a product, added bit by bit.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a key of any number of words, which `word` gives: zero behind the last.
#[inline]
pub fn hash_words(words: usize, word: impl Fn(usize) -> u64, seeds: [u64; 2]) -> u64 {
    let step = |h: u64, i: usize| fold(word(i) ^ h, word(i + 1) ^ seeds[1]).wrapping_add(h.rotate_left(29));
    (0..words).step_by(2).fold(seeds[0], step).wrapping_mul(MIX)
}

/// Where a key may be.
#[derive(Clone, Copy)]
struct Place {
    home: u32,
    second: u32,
    mark: u32,
}

impl Place {
    #[inline]
    fn of(hash: u64, count: u64) -> Place {
        let home = ((u128::from(hash) * u128::from(count)) >> 64) as u32;
        let second = home + 1 + (hash % WINDOW) as u32;
        Place { home, second, mark: (hash >> MARK_SHIFT) as u32 % PASSED_MARKS }
    }
}

/// Looks a key up, given its hash: the bucket and slot that have it and that `is` accepts.
///
/// # Safety
/// `snapshot` is a published snapshot of buckets of this shape, and the calling thread has not been quiescent since it
/// loaded it; neither may it be while it uses what it found.
#[inline]
pub unsafe fn probe(
    snapshot: *const ExactSnapshot,
    shape: &Shape,
    hash: u64,
    key: &[u32],
    is: impl Fn(&Bucket, usize) -> bool,
) -> Option<(*const Bucket, usize)> {
    // SAFETY: the caller holds the snapshot, which keeps its buckets alive; the last of them has no marks.
    unsafe {
        let ExactSnapshot { buckets, count, .. } = *snapshot;
        let Place { home, second, mark } = Place::of(hash, count);
        let mut bucket = buckets.add(home as usize);
        let mut next = buckets.add(second as usize);
        loop {
            let here = &*bucket;
            let meta = here.meta();
            let mut found = here.matching(shape, key) & meta.live(shape);
            while found != 0 {
                let slot = found.trailing_zeros() as usize;
                if is(here, slot) {
                    return Some((bucket, slot));
                }
                found &= found - 1;
            }
            if !meta.passed(mark) {
                return None;
            }
            bucket = next;
            next = next.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Random;

    /// The finding: with keys in sequence and some seeds, 30 keys had the same bucket where 4 are usual, and a table that packets write
    /// refused entries long before it was full.
    #[test]
    fn keys_in_sequence_spread_over_buckets_with_any_seeds() {
        const KEYS: u64 = 4000;
        const BUCKETS: u64 = 1024;
        let mut random = Random::new(3);
        for _ in 0..200 {
            let seeds = [random.below(u64::MAX), random.below(u64::MAX)];
            let spread = |key: &dyn Fn(u64) -> Vec<u64>| {
                let mut buckets = vec![0u32; BUCKETS as usize];
                for i in 0..KEYS {
                    let key = key(i);
                    let hash = match key.as_slice() {
                        [one] => hash([*one, 0], false, seeds, MIX),
                        [one, two] => hash([*one, *two], true, seeds, MIX),
                        more => hash_words(more.len(), |i| more.get(i).copied().unwrap_or(0), seeds),
                    };
                    buckets[Place::of(hash, BUCKETS).home as usize] += 1;
                }
                *buckets.iter().max().expect("there are some")
            };
            for shift in (0..48).step_by(8) {
                // As many as a Poisson distribution of mean 4 has once in some millions.
                assert!(spread(&|i| vec![i << shift]) <= 20, "{shift} {seeds:x?}");
                assert!(spread(&|i| vec![i << shift, 7]) <= 20, "{shift} {seeds:x?}");
                assert!(spread(&|i| vec![i / 64, (i % 64) << shift]) <= 20, "{shift} {seeds:x?}");
                assert!(spread(&|i| vec![1, i << shift, 2]) <= 20, "{shift} {seeds:x?}");
            }
        }
    }
}

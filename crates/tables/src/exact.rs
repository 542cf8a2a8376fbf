//! Exact match: a hash table whose buckets are cache lines with the keys and entries inside, so that most lookups touch
//! one line. Probes take no lock and have no branches on a hit at home, and are simple enough for `jit` to inline.
//!
//! # Memory layout (inlined probes rely on it)
//!
//! `TableHandle::snapshot` points at an [`ExactSnapshot`]: the buckets, their number, and the seeds of the hash. A
//! snapshot is immutable, and lives until all workers that could have loaded it have been quiescent; a table that grows
//! publishes a new one. A bucket is one cache line with as many slots as fit, two to eight ([`Shape`];
//! `abi::ExactLayout` describes it to `jit`):
//!
//! ```text
//! offset  0   the slots' keys: the first 8 bytes of each key, consecutively, then the remaining 4 or 8 bytes of each;
//!             key_bytes per key in all, a multiple of 4, in little-endian words. Keys of 4 bytes are consecutive
//!         k   the slots' entries, consecutively: entry_bytes each
//!        60   the state word, 32 bits: bits 0..8 live slots, bits 8..16 dead slots (used by the writer only),
//!             bits 16..32 overflow marks
//! ```
//!
//! *Inline* entries lie in the bucket: the bytes that `abi::entry` describes are there, and the lookup returns an
//! address in it. An 8-byte key with a port as action data takes 12 bytes of the line, a 16-byte key with two
//! parameters 28. *Out-of-line* entries are those that are larger or have a time of the last hit: the slot
//! holds their address in six bytes. Most out-of-line entries with equal bytes are shared ([`crate::shared`]). Keys
//! above 16 bytes are out of line too, and the slot's key is 32 bits of the hash ([`store`]); such tables are looked up
//! through calls.
//!
//! # Hash and probe sequence
//!
//! `p = (w0 ^ seed0) * (w1 ^ seed1)` as a 128-bit product, where for keys of one word `w1` is `w0` with its halves
//! exchanged; `h = low64(p) ^ high64(p)`. The seeds are random, so that no sender can choose keys that collide. They
//! are the same in all tables of a program, so specialised code hashes a key only once if two tables share it. They
//! differ between programs, since entries are read in the order of their hashes: if they were written in that order to
//! a table with the same seeds, the first ones would all fall into the same few buckets.
//!
//! The key's *home* bucket is `h * count >> 64` (so the number of buckets need not be a power of two), its *second*
//! bucket `home + 1 + (h & 31)`; from there on probing is linear. Its *overflow mark* is bit `h >> 5 & 15` of 16.
//!
//! ```text
//! loop {
//!     states = bucket[60];                                  // before keys and entries
//!     hits = (bits of the slots whose key is equal) & states;
//!     if hits != 0 { return slot number trailing_zeros(hits) }
//!     if !(states >> (16 + mark) & 1) { return miss }
//!     bucket = next bucket;                                 // cold
//! }
//! ```
//!
//! When a key overflows, its mark is set in every bucket of its probe sequence before the one that takes it; so most
//! misses also end after one line. The second bucket is at a distance because at a load of 0.7 two slots in ten would
//! overflow into the adjacent bucket, and the neighbours of full buckets would fill up in turn (primary clustering).
//! The distance is limited because within two kilobytes the second bucket is mostly on the same page, and because
//! compiled code can compute it without the table's size.
//!
//! # Concurrent readers
//!
//! - A slot is *filled* while it is neither live nor dead: entry, key, then its live bit with release order. A reader
//!   loads the state word (acquire) before keys and entries, so a slot that it sees live has its own key and entry. On
//!   x86-TSO plain loads and stores in this order are enough.
//! - An emptied or replaced slot becomes *dead*: lookups no longer find it, and its bytes do not change until every
//!   reader that could have found it has been quiescent. Then it is free.
//! - A modified entry is written to another slot. In the same bucket one store makes the new slot live and the old one
//!   dead. If that bucket is full, the new entry goes to a *later* bucket of the key's probe sequence; the overflow
//!   marks before it are set first, and it is live before the old one is dead, so a reader that finds the old one dead
//!   finds the new one. It never goes to an earlier bucket: a reader could have probed that already and then find the
//!   old one dead. A reader that could find both returns the first.
//! - Entries do not move within an array. Growing copies them into a new array, which is published by one store to
//!   `TableHandle::snapshot`; readers of the old one see the table as it was then.
//!
//! So lookups are linearisable: a lookup returns what the table held for the key at some moment during the lookup (or
//! when the batch began, for code that holds the snapshot pointer).
//!
//! # Load factor and costs
//!
//! An array is sized for the load factor [`load`]; it doubles, but never beyond what the table's declared size needs.
//! Every entry that is not in its home bucket costs its lookup a branch misprediction and a line that was not
//! prefetched: with five slots per bucket that is one in 40 at load 0.5, one in 14 at 0.7 and one in 10 at 0.8. Short
//! keys leave half of the slots free: a key and data of 12 bytes then take 26. Buckets of two or three long entries
//! would need too much memory, so their load is 0.7: 16 bytes of key with 8 of data take 46, everything included. The
//! table has no other memory per entry.
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

/// Number of buckets after the home bucket among which a key's second one lies.
pub const WINDOW: u64 = if cfg!(loom) { 1 } else { 32 };
/// The lowest bit of the overflow mark in a hash.
pub const MARK_SHIFT: u32 = 5;
/// The load factor, live entries per slot, at which an array is full.
pub fn load(shape: &Shape) -> f64 {
    if shape.slots > 3 { 0.5 } else { 0.7 }
}

/// Bytes of an out-of-line entry's address in its slot; addresses of user space have 47 bits.
pub const ENTRY_ADDRESS_BYTES: u32 = 6;
/// Limit in bytes of a key that is stored in its slot; longer ones are stored in the out-of-line cell.
pub const MAX_KEY_BYTES: u32 = 16;

/// What `TableHandle::snapshot` of an exact table points at. Immutable.
#[repr(C)]
#[derive(Debug)]
pub struct ExactSnapshot {
    /// Aligned to [`BUCKET_BYTES`].
    pub buckets: *const Bucket,
    /// Number of home buckets, below `2^32`; more buckets follow that are only overflowed into.
    pub count: u64,
    /// The seeds of the hash; they never change during the life of a table.
    pub seeds: [u64; 2],
    /// The layout of the buckets; it never changes during the life of a table either.
    pub form: Form,
}

/// The layout of a table's buckets and entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The layout of a bucket.
    pub shape: Shape,
    /// Bytes of an entry before its address.
    pub before: u32,
    /// Whether slots hold addresses of entries instead of the entries themselves.
    pub out_of_line: bool,
    /// Words of a key, for tables whose keys are stored in out-of-line cells, before the entries; otherwise 0.
    pub wide_words: u32,
    /// The factor that hashes of keys in slots are multiplied by: 1, or [`MIX`].
    pub mix: u64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Bucket>() == BUCKET_BYTES as usize && align_of::<Bucket>() == BUCKET_BYTES as usize);
    assert!(std::mem::offset_of!(ExactSnapshot, count) == 8 && std::mem::offset_of!(ExactSnapshot, seeds) == 16);
};

/// The hash of a key of one word, or of two if `two`. `mix` is [`Form::mix`].
#[inline]
pub fn hash(key: [u64; 2], two: bool, seeds: [u64; 2], mix: u64) -> u64 {
    let second = if two { key[1] } else { key[0].rotate_left(32) };
    fold(key[0] ^ seeds[0], second ^ seeds[1]).wrapping_mul(mix)
}

/// The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio, odd (Knuth, "The Art of Computer
/// Programming", volume 3, section 6.4). Without it the products of sequential keys form arithmetic progressions, which
/// for some seeds cluster in a few buckets. It adds a multiplication to every lookup, so only packet-written tables use
/// it: they cannot grow, and would refuse entries. Other tables grow when keys cluster.
pub const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The exclusive or of the halves of a 128-bit product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a key of any number of words; `word` returns word `i`, or 0 beyond the last.
#[inline]
pub fn hash_words(words: usize, word: impl Fn(usize) -> u64, seeds: [u64; 2]) -> u64 {
    let step = |h: u64, i: usize| fold(word(i) ^ h, word(i + 1) ^ seeds[1]).wrapping_add(h.rotate_left(29));
    (0..words).step_by(2).fold(seeds[0], step).wrapping_mul(MIX)
}

/// The probe sequence of a key, and its overflow mark.
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

/// Looks a key up by its hash: returns the bucket and slot that hold `key` and that `is` accepts.
///
/// # Safety
/// `snapshot` is a published snapshot of buckets of this shape. The calling thread has not been quiescent since it
/// loaded it, and is not while it uses the result.
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

    /// The bug: with sequential keys and some seeds, 30 keys had the same home bucket where 4 are expected, and a
    /// packet-written table refused entries long before it was full.
    #[test]
    fn sequential_keys_spread_over_buckets_with_any_seeds() {
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
                // A Poisson distribution with mean 4 exceeds this about once in some millions.
                assert!(spread(&|i| vec![i << shift]) <= 20, "{shift} {seeds:x?}");
                assert!(spread(&|i| vec![i << shift, 7]) <= 20, "{shift} {seeds:x?}");
                assert!(spread(&|i| vec![i / 64, (i % 64) << shift]) <= 20, "{shift} {seeds:x?}");
                assert!(spread(&|i| vec![1, i << shift, 2]) <= 20, "{shift} {seeds:x?}");
            }
        }
    }
}

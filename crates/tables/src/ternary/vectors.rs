//! Many masks: bit vectors (Lakshman, Stiliadis: "High-speed policy-based packet forwarding using efficient
//! multi-dimensional range matching", SIGCOMM 1998).
//!
//! Tuple space search costs a step for each mask, so whoever may choose masks makes it slow (Csikor et al.: "Tuple space
//! explosion", CoNEXT 2019). Here a lookup costs the same whatever the masks are: the key is cut into nibbles of four bits, for each value of each
//! nibble a row of bits says which entries accept it, and the conjunction of one row of each nibble has the entries that accept the key. Entries
//! are in the order of their ranks, so the first bit is the answer; 256 entries (a *block*) are done at a time. Ranges are
//! checked on candidates, as with tuples.
//!
//! What it costs grows with the number of entries, so [`Cost`] chooses: tables of many entries with few masks keep to tuples. These
//! are kept beside the vectors, unread, so that a table goes over to them, and back, with one store.
//!
//! Changes: rows are immutable. New entries are in a short list beside them ([`Linear`]), which is replaced as a whole; removed ones are null in
//! `entries`. After [`changes_max`] changes the rows are made anew.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use super::lanes::Pass;
use super::linear::{Item, Linear};
use super::search::Shared;
use abi::EntryHeader;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Entries whose bits are taken together.
const BLOCK: usize = 256;
/// Values of a nibble.
const VALUES: usize = 16;
/// Nibbles whose conjunction is made before it is looked at.
const STEP: usize = 8;
/// Nibbles that masks may have bits of: keys of 64 bytes.
const NIBBLES_MAX: usize = 128;
/// Bytes of the rows: what is left to a table of a processor's second-level cache.
const BYTES_MAX: usize = 1 << 20;

/// Estimated cycles of a lookup that finds nothing, by either plan.
pub(super) struct Cost {
    vectors: usize,
    tuples: usize,
}

impl Cost {
    /// For `entries` with `masks` different masks that have bits of `nibbles` nibbles in `words` words.
    pub(super) fn new(entries: usize, masks: usize, nibbles: usize, words: usize) -> Cost {
        // Measured with 1,024 entries: a row of a block costs a load and an and, eight tuples some 20 cycles and 15 for each word.
        let blocks = entries.div_ceil(BLOCK);
        let fits = (1..=NIBBLES_MAX).contains(&nibbles) && blocks * nibbles * VALUES * size_of::<Row>() <= BYTES_MAX;
        let vectors = if fits { 40 + blocks * (8 + 2 * nibbles) } else { usize::MAX / 2 };
        Cost { vectors, tuples: masks.div_ceil(super::lanes::LANES) * (20 + 15 * words) }
    }

    /// Whether a table with this plan should have vectors from now on. A plan that is there is left for one that is twice as good,
    /// or, with vectors, for one that is better at all.
    pub(super) fn prefers_vectors(&self, has_them: bool) -> bool {
        if has_them { self.vectors <= self.tuples } else { 2 * self.vectors < self.tuples }
    }
}

/// How many entries may come and go until the rows are made anew: what the list of new ones costs a lookup, and the rows a change.
pub(super) fn changes_max(entries: usize) -> usize {
    (entries / 64).max(32)
}

/// One bit for each entry of a block.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Row([u64; BLOCK / 64]);

/// Four bits of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nibble {
    word: usize,
    shift: u32,
}

/// The nibbles that a mask has bits of.
pub(super) fn nibbles(mask: &[u64]) -> impl Iterator<Item = Nibble> {
    let all = (0..mask.len()).flat_map(|word| (0..64).step_by(4).map(move |shift| Nibble { word, shift }));
    all.filter(|nibble| mask[nibble.word] >> nibble.shift & 0xf != 0)
}

/// Entries as bit vectors.
pub(super) struct Vectors {
    nibbles: Vec<Nibble>,
    /// By block, nibble and value.
    rows: Vec<Row>,
    /// By rank. Null: removed, or beyond the last.
    entries: Box<[AtomicPtr<EntryHeader>]>,
    ranks: Vec<(i32, u64)>,
    /// In tables with ranges: low and high ends of each entry.
    ranges: Vec<u64>,
}

impl Vectors {
    /// Of all entries of a table.
    pub(super) fn new(mut items: Vec<Item<'_>>) -> Vectors {
        items.sort_unstable_by_key(|item| (std::cmp::Reverse(item.rank.0), item.rank.1));
        let words = items.first().map_or(0, |item| item.mask.len());
        let all: Vec<u64> = (0..words).map(|i| items.iter().fold(0, |all, item| all | item.mask[i])).collect();
        let nibbles: Vec<Nibble> = nibbles(&all).collect();
        let blocks = items.len().div_ceil(BLOCK);
        let mut rows = vec![Row([0; BLOCK / 64]); blocks * nibbles.len() * VALUES];
        for (block, items) in items.chunks(BLOCK).enumerate() {
            for (n, nibble) in nibbles.iter().enumerate() {
                let rows = &mut rows[(block * nibbles.len() + n) * VALUES..][..VALUES];
                for (i, item) in items.iter().enumerate() {
                    let of = |words: &[u64]| (words[nibble.word] >> nibble.shift & 0xf) as usize;
                    let (value, mask) = (of(&item.words), of(item.mask));
                    // All values that differ from this one where the mask has no bits.
                    let free = !mask & 0xf;
                    let mut other = free;
                    loop {
                        rows[value & mask | other].0[i / 64] |= 1 << (i % 64);
                        if other == 0 {
                            break;
                        }
                        other = (other - 1) & free;
                    }
                }
            }
        }
        let entry = |i: usize| AtomicPtr::new(items.get(i).map_or(ptr::null_mut(), |item| item.entry));
        Vectors {
            nibbles,
            rows,
            entries: (0..blocks * BLOCK).map(entry).collect(),
            ranks: items.iter().map(|item| item.rank).collect(),
            ranges: items.iter().flat_map(|item| item.words[words..].iter().copied()).collect(),
        }
    }

    /// About how many bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.entries) + size_of_val(&*self.ranks) + size_of_val(&*self.ranges)
    }

    /// The place of the entry with this rank, unless it is not here or removed.
    pub(super) fn place(&self, rank: (i32, u64)) -> Option<&AtomicPtr<EntryHeader>> {
        let at =
            self.ranks.binary_search_by_key(&(std::cmp::Reverse(rank.0), rank.1), |r| (std::cmp::Reverse(r.0), r.1));
        let place = &self.entries[at.ok()?];
        (!place.load(Ordering::Relaxed).is_null()).then_some(place)
    }

    /// The position of the first entry that accepts the key, and the entry.
    ///
    /// # Safety
    /// `key` has the table's words.
    #[inline(always)]
    unsafe fn search(&self, shared: &Shared, key: *const u64) -> Option<(usize, *mut EntryHeader)> {
        // SAFETY: the caller's promise.
        let key = |i: usize| unsafe { key.add(i).read_unaligned() };
        let width = self.nibbles.len();
        let mut places = [0_u16; NIBBLES_MAX];
        for (i, (place, nibble)) in places.iter_mut().zip(&self.nibbles).enumerate() {
            *place = (i * VALUES) as u16 + (key(nibble.word) >> nibble.shift & 0xf) as u16;
        }
        for (block, rows) in self.rows.chunks_exact(width * VALUES).enumerate() {
            let mut accept = [u64::MAX; BLOCK / 64];
            for places in places[..width].chunks(STEP) {
                for place in places {
                    // SAFETY: a block has sixteen rows for each of `width` nibbles.
                    let row = unsafe { rows.get_unchecked(usize::from(*place)) };
                    accept.iter_mut().zip(row.0).for_each(|(bits, row)| *bits &= row);
                }
                if accept == [0; BLOCK / 64] {
                    break;
                }
            }
            for (i, mut bits) in accept.into_iter().enumerate() {
                while bits != 0 {
                    let at = block * BLOCK + i * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let entry = self.entries[at].load(Ordering::Acquire);
                    let ends = 2 * shared.words * at;
                    let accepts = || shared.ranges.is_empty() || shared.in_ranges(|i| self.ranges[ends + i], key);
                    if !entry.is_null() && accepts() {
                        return Some((at, entry));
                    }
                }
            }
        }
        None
    }
}

/// An entry that is not in the rows yet.
pub(super) struct Fresh {
    pub(super) rank: (i32, u64),
    pub(super) mask: Vec<u64>,
    /// As in [`Item`].
    pub(super) words: Vec<u64>,
    pub(super) entry: *mut EntryHeader,
}

/// What readers see: the rows and the entries beside them. Immutable but for `entries` of the rows.
pub(super) struct Published {
    vectors: Arc<Vectors>,
    fresh: Linear,
    /// Of the entries of `fresh`, in its order.
    ranks: Vec<(i32, u64)>,
}

impl Published {
    pub(super) fn new(vectors: Arc<Vectors>, fresh: &[Fresh]) -> Published {
        let item = |f: &Fresh| (f.rank, f.words.clone(), f.entry);
        let items = fresh.iter().map(|f| {
            let (rank, words, entry) = item(f);
            Item { rank, mask: &f.mask, words, entry }
        });
        let mut ranks: Vec<(i32, u64)> = fresh.iter().map(|f| f.rank).collect();
        ranks.sort_unstable_by_key(|rank| (std::cmp::Reverse(rank.0), rank.1));
        Published { vectors, fresh: Linear::new(items.collect()), ranks }
    }

    /// About how many bytes, without the rows.
    pub(super) fn bytes(&self) -> usize {
        self.fresh.bytes() + size_of_val(&*self.ranks)
    }

    /// The first entry that accepts the key, or null.
    ///
    /// # Safety
    /// `key` has the table's words; the processor has the instructions of `P`.
    #[inline(always)]
    pub(super) unsafe fn search<P: Pass>(&self, shared: &Shared, key: *const u64) -> *mut EntryHeader {
        // SAFETY: the caller's promise.
        let (old, fresh) = unsafe { (self.vectors.search(shared, key), self.fresh.find::<P>(shared, key)) };
        match (old, fresh) {
            (None, None) => ptr::null_mut(),
            (Some((_, entry)), None) => entry,
            (None, Some(i)) => self.fresh.entry(i),
            (Some((at, entry)), Some(i)) => {
                let ((a, old), (b, new)) = (self.vectors.ranks[at], self.ranks[i]);
                if (a, new) > (b, old) { entry } else { self.fresh.entry(i) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_masks_have_vectors_and_many_entries_of_few_masks_tuples() {
        let prefers = |entries, masks, nibbles, has| Cost::new(entries, masks, nibbles, 1).prefers_vectors(has);
        assert!(prefers(1024, 1024, 16, false) && prefers(100, 100, 16, false) && prefers(4096, 2000, 26, false));
        assert!(
            !prefers(100, 2, 16, false) && !prefers(10_000, 30, 16, false) && !prefers(1 << 20, 1 << 20, 16, false)
        );
        // Near the border a table keeps what it has.
        assert!(prefers(600, 64, 16, true) && !prefers(600, 64, 16, false));
        assert!(!prefers(600, 8, 16, true), "eight masks are one step");
    }

    #[test]
    fn nibbles_are_those_with_bits_of_the_mask() {
        let found: Vec<_> = nibbles(&[0x10, 0, 0xf000_0000_0000_000f]).map(|n| (n.word, n.shift)).collect();
        assert_eq!(found, [(0, 4), (2, 0), (2, 60)]);
    }
}

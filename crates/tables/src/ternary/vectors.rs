//! Bit vectors for tables with many masks (Lakshman, Stiliadis: "High-speed policy-based packet forwarding using
//! efficient multi-dimensional range matching", SIGCOMM 1998).
//!
//! Tuple space search takes a step for each mask, so anyone who can choose masks can slow it down (Csikor et al.:
//! "Tuple space explosion", CoNEXT 2019). The cost of bit vectors does not depend on the masks. The key is divided into
//! nibbles of four bits; for each value of each nibble a bit vector (a *row*) says which entries match it; and the AND
//! of one row per nibble has the entries that match the key. Entries are in rank order, so the first bit is the result.
//! 256 entries (a *block*) are processed at a time. Ranges are checked on candidates, as in tuples.
//!
//! The cost grows with the number of entries, so [`Cost`] chooses: tables of many entries with few masks keep using
//! tuples. Tuples are maintained beside the bit vectors although no one reads them, so that a table switches to either
//! with one store.
//!
//! Changes: rows are immutable. New entries go to a short list beside them ([`Linear`]), which is replaced as a whole;
//! removed ones become null in `entries`. After [`changes_max`] changes the rows are rebuilt.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use super::lanes::Pass;
use super::linear::{Item, Linear};
use super::order;
use super::search::Shared;
use abi::EntryHeader;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Entries of a block; a row has a bit for each.
const BLOCK: usize = 256;
/// Nibbles of a word.
pub(super) const NIBBLES: usize = 16;
/// Values of a nibble.
const VALUES: usize = 16;
/// Rows that are combined before the result is tested for zero.
const STEP: usize = 8;
/// Limit of the nibbles in which masks have bits: keys of 64 bytes.
const NIBBLES_MAX: usize = 128;
/// Limit of the rows' size in bytes: one table's share of a second-level cache.
const BYTES_MAX: usize = 1 << 20;

/// Estimated cycles of a lookup without a match, with bit vectors and with tuples.
pub(super) struct Cost {
    vectors: usize,
    tuples: usize,
    /// Size of the rows.
    bytes: usize,
}

impl Cost {
    /// The cost for `entries` entries with `masks` different masks, which have bits in `nibbles` nibbles and `words`
    /// words.
    pub(super) fn new(entries: usize, masks: usize, nibbles: usize, words: usize) -> Cost {
        // Measured with 1,024 entries: a row of a block costs a load and an AND, eight tuples about 20 cycles plus 15
        // per word.
        let blocks = entries.div_ceil(BLOCK);
        let bytes = blocks * nibbles * VALUES * size_of::<Row>();
        let fits = (1..=NIBBLES_MAX).contains(&nibbles) && bytes <= BYTES_MAX;
        let vectors = if fits { 40 + blocks * (8 + 2 * nibbles) } else { usize::MAX / 2 };
        Cost { vectors, tuples: masks.div_ceil(super::lanes::LANES) * (20 + 15 * words), bytes }
    }

    /// Whether a table should use bit vectors from now on; `has_them` if it does now. With hysteresis, so that many
    /// entries change between two rebuilds: it switches to bit vectors if they cost less than half and leave an eighth
    /// of their limit, and back as soon as tuples cost less.
    pub(super) fn prefers_vectors(&self, has_them: bool) -> bool {
        match has_them {
            true => self.vectors <= self.tuples,
            false => 2 * self.vectors < self.tuples && self.bytes <= BYTES_MAX / 8 * 7,
        }
    }
}

/// The number of additions and removals after which the rows are rebuilt: it balances lookups in the list of new
/// entries and copying that list against rebuilding.
pub(super) fn changes_max(entries: usize) -> usize {
    (entries / 64).clamp(32, 512)
}

/// A bit vector: one bit for each entry of a block.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Row([u64; BLOCK / 64]);

/// The position of four bits in a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nibble {
    word: usize,
    shift: u32,
}

/// The nibbles in which a mask has bits.
fn nibbles(mask: &[u64]) -> impl Iterator<Item = Nibble> {
    let all = (0..mask.len()).flat_map(|word| (0..64).step_by(4).map(move |shift| Nibble { word, shift }));
    all.filter(|nibble| mask[nibble.word] >> nibble.shift & 0xf != 0)
}

/// The bit vectors of a table's entries.
pub(super) struct Vectors {
    nibbles: Vec<Nibble>,
    /// In the order of block, nibble and value.
    rows: Vec<Row>,
    /// In rank order. Null if removed, and beyond the last one.
    entries: Box<[AtomicPtr<EntryHeader>]>,
    ranks: Vec<(i32, u64)>,
    /// The masks of all entries.
    masks: Vec<u64>,
    /// The words of all entries, as in [`Item`].
    words: Vec<u64>,
    /// How many words an entry has.
    stride: usize,
}

impl Vectors {
    /// The entries that have not been removed, and later ones, which are in rank order: all in that order.
    pub(super) fn with<'a>(&'a self, fresh: &'a [Fresh]) -> Vec<Item<'a>> {
        let mut items = Vec::with_capacity(self.ranks.len() + fresh.len());
        let mut fresh = fresh.iter().map(Fresh::item).peekable();
        let width = self.masks.len().checked_div(self.ranks.len()).unwrap_or(0);
        for (i, rank) in self.ranks.iter().enumerate() {
            while let Some(item) = fresh.next_if(|item| order(item.rank) < order(*rank)) {
                items.push(item);
            }
            let entry = self.entries[i].load(Ordering::Relaxed);
            if !entry.is_null() {
                let (mask, words) = (&self.masks[i * width..][..width], &self.words[i * self.stride..][..self.stride]);
                items.push(Item { rank: *rank, mask, words, entry });
            }
        }
        items.extend(fresh);
        items
    }

    /// The bit vectors for all entries of a table.
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
                    let (value, mask) = (of(item.words), of(item.mask));
                    // All values that agree with this one in the mask's bits.
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
            masks: items.iter().flat_map(|item| item.mask).copied().collect(),
            words: items.iter().flat_map(|item| item.words).copied().collect(),
            stride: items.first().map_or(0, |item| item.words.len()),
        }
    }

    /// About its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_entries = size_of_val(&*self.entries) + size_of_val(&*self.ranks);
        size_of_val(&*self.rows) + of_entries + size_of_val(&*self.masks) + size_of_val(&*self.words)
    }

    /// The slot in `entries` of the entry with this rank; `None` if it is not in the rows or removed.
    pub(super) fn place(&self, rank: (i32, u64)) -> Option<&AtomicPtr<EntryHeader>> {
        let at = self.ranks.binary_search_by_key(&order(rank), |rank| order(*rank));
        let place = &self.entries[at.ok()?];
        (!place.load(Ordering::Relaxed).is_null()).then_some(place)
    }

    /// The best entry that matches the key, and its position.
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
                    let ends = self.stride * at + shared.words;
                    let accepts = || shared.ranges.is_empty() || shared.in_ranges(|i| self.words[ends + i], key);
                    if !entry.is_null() && accepts() {
                        return Some((at, entry));
                    }
                }
            }
        }
        None
    }
}

/// An entry that was added after the rows were built.
pub(super) struct Fresh {
    pub(super) rank: (i32, u64),
    pub(super) mask: Vec<u64>,
    /// As in [`Item`].
    pub(super) words: Vec<u64>,
    pub(super) entry: *mut EntryHeader,
}

impl Fresh {
    fn item(&self) -> Item<'_> {
        Item { rank: self.rank, mask: &self.mask, words: &self.words, entry: self.entry }
    }
}

/// The part that readers see: the rows, and the entries added later. Immutable except for `entries` of the rows.
pub(super) struct Published {
    vectors: Arc<Vectors>,
    fresh: Linear,
    /// The ranks of the entries of `fresh`, in its order.
    ranks: Vec<(i32, u64)>,
}

impl Published {
    /// `fresh` is in rank order.
    pub(super) fn new(vectors: Arc<Vectors>, fresh: &[Fresh]) -> Published {
        let items = fresh.iter().map(Fresh::item).collect();
        Published { vectors, fresh: Linear::new(items), ranks: fresh.iter().map(|f| f.rank).collect() }
    }

    /// About its size in bytes, without the rows.
    pub(super) fn bytes(&self) -> usize {
        self.fresh.bytes() + size_of_val(&*self.ranks)
    }

    /// The best entry that matches the key, or null.
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
        // Near the break-even point a table keeps what it uses.
        assert!(prefers(600, 64, 16, true) && !prefers(600, 64, 16, false));
        assert!(!prefers(600, 8, 16, true), "eight masks are one step");
        // So does one near the limit of their size.
        let most = BYTES_MAX / size_of::<Row>() / VALUES / 16 * BLOCK;
        assert!(prefers(most, most, 16, true) && !prefers(most, most, 16, false) && !prefers(most + 1, most, 16, true));
    }

    #[test]
    fn nibbles_are_the_masked_ones() {
        let found: Vec<_> = nibbles(&[0x10, 0, 0xf000_0000_0000_000f]).map(|n| (n.word, n.shift)).collect();
        assert_eq!(found, [(0, 4), (2, 0), (2, 60)]);
    }
}

//! The distinct masks, each with its table, and the union of them all.

use super::table::Table;
use super::{INLINE, MASKS_MAX, WORDS};

/// Which words of a window count, and which of their bits.
#[derive(Clone)]
pub(super) struct Bits {
    /// Places of the words, in units of eight bytes, ascending. What is not used is 0.
    index: [u8; WORDS + 2],
    /// The bits, as the frame's bytes lie in memory (little-endian).
    words: [u64; WORDS + 2],
    count: usize,
}

impl Bits {
    /// From all words of a window.
    pub(super) fn new(window: &[u64; WORDS]) -> Bits {
        let mut bits = Bits { index: [0; WORDS + 2], words: [0; WORDS + 2], count: 0 };
        for (i, word) in window.iter().enumerate().filter(|(_, word)| **word != 0) {
            bits.index[bits.count] = i as u8;
            bits.words[bits.count] = *word;
            bits.count += 1;
        }
        bits
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Place of the k-th word.
    #[inline(always)]
    pub(super) fn index(&self, k: usize) -> usize {
        usize::from(self.index[k]) & (WORDS - 1)
    }

    /// The k-th word's bits; 0 behind the last.
    #[inline(always)]
    pub(super) fn word(&self, k: usize) -> u64 {
        self.words[k]
    }

    /// The k-th word of a frame, without the bits that do not count.
    #[inline(always)]
    pub(super) fn of(&self, row: &[u64; WORDS], k: usize) -> u64 {
        row[self.index(k)] & self.words[k]
    }

    /// Whether a frame's first words are a key's. All [`INLINE`] are compared, those behind the last with 0: one loop of constant length
    /// is cheaper than a mispredicted end.
    #[inline(always)]
    pub(super) fn differs(&self, row: &[u64; WORDS], key: &[u64; INLINE]) -> u64 {
        let mut differs = 0;
        for (k, key) in key.iter().enumerate() {
            differs |= self.of(row, k) ^ key;
        }
        differs
    }

    fn is(&self, other: &Bits) -> bool {
        self.count == other.count && self.index == other.index && self.words == other.words
    }
}

/// A mask that megaflows have.
struct Mask {
    bits: Bits,
    table: Table,
    /// Frames found, halved from time to time.
    hits: u32,
    is_used: bool,
}

/// All masks. A mask's number stays while it has megaflows.
pub(super) struct Masks {
    masks: Vec<Mask>,
    /// Numbers of masks in use, those with most hits first.
    order: Vec<u8>,
    union: Bits,
    /// Hits until the order is made anew.
    until_sorted: u32,
}

/// Hits between two orders.
const SORT_EVERY: u32 = 1024;

impl Masks {
    pub(super) fn new() -> Masks {
        Masks { masks: Vec::new(), order: Vec::new(), union: Bits::new(&[0; WORDS]), until_sorted: SORT_EVERY }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.order.len() == MASKS_MAX
    }

    /// Numbers in the order of a search.
    #[inline(always)]
    pub(super) fn order(&self) -> &[u8] {
        &self.order
    }

    #[inline(always)]
    pub(super) fn union(&self) -> &Bits {
        &self.union
    }

    #[inline(always)]
    pub(super) fn get(&self, mask: u8) -> &Bits {
        &self.masks[usize::from(mask)].bits
    }

    #[inline(always)]
    pub(super) fn table(&self, mask: u8) -> &Table {
        &self.masks[usize::from(mask)].table
    }

    pub(super) fn table_mut(&mut self, mask: u8) -> &mut Table {
        &mut self.masks[usize::from(mask)].table
    }

    pub(super) fn find(&self, bits: &Bits) -> Option<u8> {
        self.order.iter().copied().find(|m| self.get(*m).is(bits))
    }

    /// Adds a mask; there is room. Returns its number and whether the union has changed.
    pub(super) fn add(&mut self, bits: Bits) -> (u8, bool) {
        debug_assert!(!self.is_full(), "a mask is evicted before one is added");
        let mask = Mask { bits, table: Table::new(), hits: 0, is_used: true };
        let number = match self.masks.iter().position(|m| !m.is_used) {
            Some(free) => {
                self.masks[free] = mask;
                free
            }
            None => {
                self.masks.push(mask);
                self.masks.len() - 1
            }
        };
        self.order.push(number as u8);
        (number as u8, self.unite())
    }

    /// Removes a mask without megaflows. Returns whether the union has changed.
    pub(super) fn remove(&mut self, mask: u8) -> bool {
        let unused = &mut self.masks[usize::from(mask)];
        unused.is_used = false;
        unused.table = Table::new();
        self.order.retain(|m| *m != mask);
        self.unite()
    }

    /// The mask with the fewest megaflows, and of these the one with the fewest hits.
    pub(super) fn least(&self) -> Option<u8> {
        self.order.iter().copied().min_by_key(|m| {
            let mask = &self.masks[usize::from(*m)];
            (mask.table.len(), mask.hits)
        })
    }

    /// Counts hits of a mask, and orders the masks by them now and then.
    pub(super) fn count_hits(&mut self, mask: u8, hits: u32) {
        let counted = &mut self.masks[usize::from(mask)];
        counted.hits = counted.hits.saturating_add(hits);
        self.until_sorted = self.until_sorted.saturating_sub(hits);
    }

    /// Orders the masks by hits if it is time.
    pub(super) fn sort(&mut self) {
        if self.until_sorted != 0 {
            return;
        }
        self.until_sorted = SORT_EVERY;
        let masks = &mut self.masks;
        self.order.sort_by_key(|m| std::cmp::Reverse(masks[usize::from(*m)].hits));
        for mask in masks {
            mask.hits /= 2;
        }
    }

    fn unite(&mut self) -> bool {
        let mut window = [0; WORDS];
        for mask in self.order.iter().map(|m| self.get(*m)) {
            for k in 0..mask.count() {
                window[mask.index(k)] |= mask.word(k);
            }
        }
        let union = Bits::new(&window);
        let changed = !union.is(&self.union);
        self.union = union;
        changed
    }
}

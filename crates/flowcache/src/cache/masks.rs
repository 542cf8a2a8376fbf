//! The distinct masks, each with its hash table, and their union.

use super::table::Table;
use super::{INLINE, MASKS_MAX, PAIRS, Row};

/// A mask over a window. The data needed for a hit is in its first cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Bits {
    /// The first [`INLINE`] pairs from the first nonzero one on, in memory order (little-endian).
    inline: [[u64; 2]; INLINE],
    /// Index of the first of these pairs.
    from: u8,
    /// Number of pairs up to the last nonzero one.
    pairs: u8,
    /// Whether there are nonzero pairs outside the inline part.
    is_wide: bool,
    /// Number of bytes up to the last nonzero one.
    end: u16,
    all: Row,
}

impl Bits {
    pub(super) fn new(all: &Row) -> Bits {
        let is_any = |pair: &[u64; 2]| *pair != [0; 2];
        let from = all.iter().position(is_any).unwrap_or(0).min(PAIRS - INLINE);
        let last = all.iter().rposition(is_any);
        let end = last.map_or(0, |last| {
            let [low, high] = all[last];
            last as u32 * 16 + 16 - (u128::from(high) << 64 | u128::from(low)).leading_zeros() / 8
        });
        let pairs = last.map_or(0, |last| last + 1);
        Bits {
            inline: std::array::from_fn(|i| all[from + i]),
            from: from as u8,
            pairs: pairs as u8,
            is_wide: pairs > from + INLINE,
            end: end as u16,
            all: *all,
        }
    }

    /// The number of bytes up to the last nonzero one.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.end.into()
    }

    /// The pairs up to the last nonzero one.
    #[inline(always)]
    pub(super) fn pairs(&self) -> &[[u64; 2]] {
        &self.all[..usize::from(self.pairs).min(PAIRS)]
    }

    /// Whether keys with this mask do not fit their inline part.
    #[inline(always)]
    pub(super) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// The inline part of a row.
    #[inline(always)]
    pub(super) fn inline_of(&self, row: &Row) -> [[u64; 2]; INLINE] {
        let from = usize::from(self.from).min(PAIRS - INLINE);
        std::array::from_fn(|i| row[from + i])
    }

    /// A row with this inline part; all other words are zero.
    pub(super) fn row_of(&self, inline: &[[u64; 2]; INLINE]) -> Row {
        let mut row = [[0; 2]; PAIRS];
        row[usize::from(self.from)..][..INLINE].copy_from_slice(inline);
        row
    }

    /// The bits in which the inline part of a frame's row differs from a key.
    #[inline(always)]
    pub(super) fn differs(&self, row: &Row, key: &[[u64; 2]; INLINE]) -> u64 {
        let row = self.inline_of(row);
        let mut differs = [0; 2];
        for i in 0..INLINE {
            for k in 0..2 {
                differs[k] |= row[i][k] & self.inline[i][k] ^ key[i][k];
            }
        }
        differs[0] | differs[1]
    }

    /// Whether a frame's row matches a key.
    pub(super) fn is_row(&self, row: &Row, key: &Row) -> bool {
        self.pairs().iter().zip(row).zip(key).all(|((bits, row), key)| (0..2).all(|k| row[k] & bits[k] == key[k]))
    }

    fn is(&self, other: &Bits) -> bool {
        self.all == other.all
    }
}

/// A mask of megaflows.
struct Mask {
    bits: Bits,
    table: Table,
    /// Number of frames found, halved with each sort.
    hits: u32,
    is_used: bool,
}

/// All masks. A mask keeps its number while it has megaflows.
pub(super) struct Masks {
    masks: Vec<Mask>,
    /// Numbers of the masks in use, in descending order of hits.
    order: Vec<u8>,
    /// Whether masks that are not worth searching are left out.
    is_thrifty: bool,
    /// How many masks of `order` are searched.
    searched: usize,
    /// Which of the other masks was tried last.
    tried: usize,
    /// Number of searches until another mask is tried.
    until_tried: u32,
    /// Number of frames searched for, halved with each sort.
    searches: u32,
    union: Bits,
    /// Number of frames to search for until the next sort.
    until_sorted: u32,
}

/// Number of frames searched for between two sorts.
const SORT_EVERY: u32 = 1024;
/// A mask is searched while at least one frame in this number hits it. The pipeline takes about as long as
/// searching this many masks; the number was chosen for a short pipeline, for which it matters most.
const WORTH: u32 = 64;
/// Minimum number of masks that are searched.
const SEARCHED_MIN: usize = 1;
/// One search in this number also tries a mask that is not worth it.
const TRIED_INTERVAL: u32 = 4;

impl Masks {
    pub(super) fn new() -> Masks {
        Masks {
            masks: Vec::new(),
            order: Vec::new(),
            is_thrifty: false,
            searched: usize::MAX,
            tried: 0,
            until_tried: 0,
            searches: 0,
            union: Bits::new(&[[0; 2]; PAIRS]),
            until_sorted: SORT_EVERY,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.order.len() == MASKS_MAX
    }

    /// Sets whether masks that are not worth searching are left out. Returns the former setting.
    pub(super) fn set_thrifty(&mut self, is_thrifty: bool) -> bool {
        if !is_thrifty {
            self.searched = usize::MAX;
        }
        std::mem::replace(&mut self.is_thrifty, is_thrifty)
    }

    /// Makes the next search cover all masks. Returns the former number of searched masks, for
    /// [`Masks::search_only`].
    pub(super) fn search_all(&mut self) -> usize {
        std::mem::replace(&mut self.searched, usize::MAX)
    }

    /// Reverts [`Masks::search_all`].
    pub(super) fn search_only(&mut self, searched: usize) {
        self.searched = searched;
    }

    /// The masks' numbers in search order.
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

    /// Adds a mask, for which there must be room. Returns its number and whether the union has changed.
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

    /// Removes a mask that has no megaflows. Returns whether the union has changed.
    pub(super) fn remove(&mut self, mask: u8) -> bool {
        let unused = &mut self.masks[usize::from(mask)];
        unused.is_used = false;
        unused.table = Table::new();
        if let Some(at) = self.order.iter().position(|m| *m == mask) {
            self.order.remove(at);
            if self.searched != usize::MAX && at < self.searched {
                self.searched -= 1;
            }
        }
        self.unite()
    }

    /// Starts a search for `frames` frames. Returns how many masks of the order to search and, every few searches,
    /// the position of one of the others, in turn, to sample its hits.
    pub(super) fn next_search(&mut self, frames: usize) -> (usize, Option<usize>) {
        self.searches = self.searches.saturating_add(frames as u32);
        self.until_sorted = self.until_sorted.saturating_sub(frames as u32);
        let searched = self.searched.min(self.order.len());
        let others = self.order.len() - searched;
        self.until_tried = self.until_tried.checked_sub(1).unwrap_or(TRIED_INTERVAL - 1);
        if others == 0 || self.until_tried != 0 {
            return (searched, None);
        }
        self.tried = (self.tried + 1) % others;
        (searched, Some(searched + self.tried))
    }

    /// The mask with the fewest megaflows; among equals, the one with the fewest hits.
    pub(super) fn least(&self) -> Option<u8> {
        self.order.iter().copied().min_by_key(|m| {
            let mask = &self.masks[usize::from(*m)];
            (mask.table.len(), mask.hits)
        })
    }

    /// Counts hits of a mask.
    pub(super) fn count_hits(&mut self, mask: u8, hits: u32) {
        let others = self.order.len() - self.searched.min(self.order.len());
        // A mask that is only sampled counts for the searches that did not try it.
        let is_tried = others != 0 && self.order.get(self.searched + self.tried) == Some(&mask);
        let counted = &mut self.masks[usize::from(mask)];
        counted.hits = counted.hits.saturating_add(if is_tried { hits * others as u32 * TRIED_INTERVAL } else { hits });
    }

    /// Sorts the masks by hits, if that is due.
    pub(super) fn sort(&mut self) {
        if self.until_sorted != 0 {
            return;
        }
        self.until_sorted = SORT_EVERY;
        let masks = &mut self.masks;
        self.order.sort_by_key(|m| std::cmp::Reverse(masks[usize::from(*m)].hits));
        if !self.is_thrifty {
            self.searches /= 2;
            masks.iter_mut().for_each(|mask| mask.hits /= 2);
            return;
        }
        let is_worth = |m: &&u8| masks[usize::from(**m)].hits.saturating_mul(WORTH) > self.searches;
        let worth = self.order.iter().take_while(is_worth).count();
        self.searched = worth.max(SEARCHED_MIN.min(self.order.len()));
        self.searches /= 2;
        for mask in masks {
            mask.hits /= 2;
        }
    }

    fn unite(&mut self) -> bool {
        let mut window = [[0; 2]; PAIRS];
        for mask in self.order.iter().map(|m| self.get(*m)) {
            for (all, bits) in window.iter_mut().zip(mask.pairs()) {
                (0..2).for_each(|k| all[k] |= bits[k]);
            }
        }
        let union = Bits::new(&window);
        let changed = !union.is(&self.union);
        self.union = union;
        changed
    }
}

//! The distinct masks, each with its table, and the union of them all.

use super::table::Table;
use super::{INLINE, MASKS_MAX, PAIRS, Row};

/// Which bits of a window count. What a hit needs is its first cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Bits {
    /// Those from the first pair that has any on, as the frame's bytes lie in memory (little-endian).
    inline: [[u64; 2]; INLINE],
    /// The first of these pairs.
    from: u8,
    /// Pairs up to the last that has any.
    pairs: u8,
    /// Whether there are more than the first ones.
    is_wide: bool,
    /// Bytes of a window up to the last that counts.
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

    /// Bytes of a window up to the last that counts.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.end.into()
    }

    /// The bits by place, up to the last that counts.
    #[inline(always)]
    pub(super) fn pairs(&self) -> &[[u64; 2]] {
        &self.all[..usize::from(self.pairs).min(PAIRS)]
    }

    /// Whether a key with these bits has more than its inline part.
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

    /// The row of which this is the inline part.
    pub(super) fn row_of(&self, inline: &[[u64; 2]; INLINE]) -> Row {
        let mut row = [[0; 2]; PAIRS];
        row[usize::from(self.from)..][..INLINE].copy_from_slice(inline);
        row
    }

    /// Bits in which the inline part of a frame's row is not a key's.
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

    /// Whether a frame's row is a key's.
    pub(super) fn is_row(&self, row: &Row, key: &Row) -> bool {
        self.pairs().iter().zip(row).zip(key).all(|((bits, row), key)| (0..2).all(|k| row[k] & bits[k] == key[k]))
    }

    fn is(&self, other: &Bits) -> bool {
        self.all == other.all
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
    /// Whether those that do not pay are left out.
    is_thrifty: bool,
    /// How many of them are searched.
    searched: usize,
    /// The one of the others that was searched last.
    tried: usize,
    /// Searches until one of the others is tried.
    until_tried: u32,
    /// Frames that were searched for, halved from time to time.
    searches: u32,
    union: Bits,
    /// Frames that are searched for until the order is made anew.
    until_sorted: u32,
}

/// Frames that are searched for between two orders.
const SORT_EVERY: u32 = 1024;
/// A mask is searched as long as at least one frame in so many has a hit there. The pipeline takes about as long as searching so many
/// masks; chosen for a short one, to which a miss would cost the most.
const WORTH: u32 = 64;
/// Masks that are always searched.
const SEARCHED_MIN: usize = 1;
/// One search of so many tries a mask that is not worth it.
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

    /// Sets whether masks are left out that do not pay; whether they were.
    pub(super) fn set_thrifty(&mut self, is_thrifty: bool) -> bool {
        if !is_thrifty {
            self.searched = usize::MAX;
        }
        std::mem::replace(&mut self.is_thrifty, is_thrifty)
    }

    /// Has the next search go through all masks; how many it was before, for [`Masks::search_only`].
    pub(super) fn search_all(&mut self) -> usize {
        std::mem::replace(&mut self.searched, usize::MAX)
    }

    /// Undoes [`Masks::search_all`].
    pub(super) fn search_only(&mut self, searched: usize) {
        self.searched = searched;
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
        if let Some(at) = self.order.iter().position(|m| *m == mask) {
            self.order.remove(at);
            if self.searched != usize::MAX && at < self.searched {
                self.searched -= 1;
            }
        }
        self.unite()
    }

    /// The places of the masks that are searched for so many frames that the front does not know, and that of one of the others: of
    /// each in turn, now and then, for whether it would pay.
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

    /// The mask with the fewest megaflows, and of these the one with the fewest hits.
    pub(super) fn least(&self) -> Option<u8> {
        self.order.iter().copied().min_by_key(|m| {
            let mask = &self.masks[usize::from(*m)];
            (mask.table.len(), mask.hits)
        })
    }

    /// Counts hits of a mask, and orders the masks by them now and then.
    pub(super) fn count_hits(&mut self, mask: u8, hits: u32) {
        let others = self.order.len() - self.searched.min(self.order.len());
        // One that is tried for all others stands for as many tries.
        let is_tried = others != 0 && self.order.get(self.searched + self.tried) == Some(&mask);
        let counted = &mut self.masks[usize::from(mask)];
        counted.hits = counted.hits.saturating_add(if is_tried { hits * others as u32 * TRIED_INTERVAL } else { hits });
    }

    /// Orders the masks by hits if it is time.
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

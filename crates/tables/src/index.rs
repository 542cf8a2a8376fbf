//! A hash index from keys to entry indices, for tables whose engines do not find keys themselves.
//!
//! It stores no keys, only 4-byte cells with positions; the caller hashes and compares keys. The bits of a cell that
//! the position does not need hold high bits of the hash as a tag, so that different keys are rarely compared. Open
//! addressing with linear probing and backward shift deletion, at most three quarters full. Large indices use huge
//! pages, since each search touches a different page.
//!
//! Threads: writer only. Tests: `index/tests.rs`.

use crate::region::Region;
use crate::sync::prefetch;
use std::cell::Cell;

/// An empty cell.
const EMPTY: u32 = 0;

/// A hash index; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Inverted values: the position in the low bits (as many as the index of a cell has), the hash's bits above them.
    /// The number of cells is a power of two, and positions are below three quarters of it, so no used cell looks
    /// empty.
    cells: Option<Region<Cell<u32>>>,
    len: usize,
}

impl Index {
    fn cells(&self) -> &[Cell<u32>] {
        self.cells.as_deref().unwrap_or_default()
    }

    fn mask(&self) -> u32 {
        (self.cells().len() as u32).wrapping_sub(1)
    }

    /// Prefetches the cell where the search for a hash starts.
    pub(crate) fn prefetch(&self, hash: u32) {
        if let Some(cell) = self.cells().get((hash & self.mask()) as usize) {
            prefetch(cell);
        }
    }

    /// The position with this hash that `is` accepts.
    pub(crate) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.cell_of(hash, is).map(|at| !self.cells()[at].get() & self.mask())
    }

    fn cell_of(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<usize> {
        let (cells, mask) = (self.cells(), self.mask());
        if cells.is_empty() {
            return None;
        }
        let mut at = (hash & mask) as usize;
        loop {
            match cells[at].get() {
                EMPTY => return None,
                cell if (!cell ^ hash) & !mask == 0 && is(!cell & mask) => return Some(at),
                _ => at = (at + 1) & mask as usize,
            }
        }
    }

    /// Whether [`grow`](Index::grow) must be called before `position` is inserted.
    pub(crate) fn is_crowded(&self, position: u32) -> bool {
        (self.len + 1).max(position as usize + 1) * 4 > self.cells().len() * 3
    }

    /// Makes room for `position`. `all` yields the hashes and positions that are stored.
    pub(crate) fn grow(&mut self, position: u32, all: impl Iterator<Item = (u32, u32)>) {
        let wanted = (self.len + 1).max(position as usize + 1) * 4 / 3 + 1;
        self.cells = Some(Region::zeros(wanted.next_power_of_two().max(16)));
        all.for_each(|(hash, position)| self.place(hash, position));
    }

    /// Adds a position that is not stored yet, if the index is not [crowded](Index::is_crowded).
    pub(crate) fn insert(&mut self, hash: u32, position: u32) {
        debug_assert!(!self.is_crowded(position));
        self.place(hash, position);
        self.len += 1;
    }

    fn place(&self, hash: u32, position: u32) {
        let (cells, mask) = (self.cells(), self.mask());
        let mut at = (hash & mask) as usize;
        while cells[at].get() != EMPTY {
            at = (at + 1) & mask as usize;
        }
        cells[at].set(!(hash & !mask | position));
    }

    /// Removes the position with this hash that `is` accepts. `hash_of` returns the hashes of other positions.
    pub(crate) fn remove(&mut self, hash: u32, is: impl Fn(u32) -> bool, hash_of: impl Fn(u32) -> u32) {
        let Some(mut hole) = self.cell_of(hash, is) else { return };
        let (cells, mask) = (self.cells(), self.mask() as usize);
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let cell = cells[at].get();
            if cell == EMPTY {
                break;
            }
            // A cell may move into the hole unless its home is after the hole.
            let home = hash_of(!cell & mask as u32) as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                cells[hole].set(cell);
                hole = at;
            }
        }
        cells[hole].set(EMPTY);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests;

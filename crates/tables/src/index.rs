//! Where the entry with a given key is: a hash index from keys to entry indices, for the tables whose engines do not
//! find keys by themselves.
//!
//! It stores no keys, only positions in 4 bytes; the caller hashes and compares. As many high bits of the hash as a
//! position leaves free are kept beside it, so that other keys are rarely compared. Open addressing with linear probing
//! and backward shift deletion, at most three quarters full. Large ones lie in huge pages, since each look is at another one.
//!
//! Threads: the writer's. Tests: `index/tests.rs`.

use crate::region::Region;
use crate::sync::prefetch;
use std::cell::Cell;

/// A cell that nothing was written to.
const EMPTY: u32 = 0;

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Each inverted: the position in the low bits, as many as number the cells, and the hash's bits above those. The number
    /// of cells is a power of two; positions are less than three quarters of it, so no cell in use looks empty.
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

    /// Prefetches the memory where a hash is looked for.
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

    /// Whether [`grow`](Index::grow) must come before the insertion of `position`.
    pub(crate) fn is_crowded(&self, position: u32) -> bool {
        (self.len + 1).max(position as usize + 1) * 4 > self.cells().len() * 3
    }

    /// Makes room for `position`; `all` gives the hashes and positions of what is there.
    pub(crate) fn grow(&mut self, position: u32, all: impl Iterator<Item = (u32, u32)>) {
        let wanted = (self.len + 1).max(position as usize + 1) * 4 / 3 + 1;
        self.cells = Some(Region::zeros(wanted.next_power_of_two().max(16)));
        all.for_each(|(hash, position)| self.place(hash, position));
    }

    /// Adds a position that is not there, when it is not [crowded](Index::is_crowded).
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

    /// Removes the position with this hash that `is` accepts; `hash_of` gives the hashes of others.
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
            // A cell may move into the hole unless its home lies behind the hole.
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

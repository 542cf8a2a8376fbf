//! Where the entry with a given key is: a hash index from packed keys (and priorities) to entry indices, for the tables
//! whose engines do not find keys by themselves.
//!
//! It stores no keys, only positions; the caller hashes and compares. Open addressing with linear probing and backward
//! shift deletion, at most three quarters full.
//!
//! Threads: the writer's. Tests: `index/tests.rs`.

const EMPTY: u32 = u32::MAX;

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Hash and position; the length is zero or a power of two.
    cells: Vec<(u32, u32)>,
    len: usize,
}

impl Index {
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.cells.len() - 1)
    }

    /// The position with this hash that `is` accepts.
    pub(crate) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.cell_of(hash, is).map(|at| self.cells[at].1)
    }

    fn cell_of(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            match self.cells[at] {
                (_, EMPTY) => return None,
                (h, position) if h == hash && is(position) => return Some(at),
                _ => at = (at + 1) & (self.cells.len() - 1),
            }
        }
    }

    /// Adds a position that is not there.
    pub(crate) fn insert(&mut self, hash: u32, position: u32) {
        debug_assert_ne!(position, EMPTY);
        if (self.len + 1) * 4 > self.cells.len() * 3 {
            let larger = vec![(0, EMPTY); (self.cells.len() * 2).max(16)];
            let old = std::mem::replace(&mut self.cells, larger);
            old.into_iter().filter(|(_, p)| *p != EMPTY).for_each(|(h, p)| self.place(h, p));
        }
        self.place(hash, position);
        self.len += 1;
    }

    fn place(&mut self, hash: u32, position: u32) {
        let mut at = self.home(hash);
        while self.cells[at].1 != EMPTY {
            at = (at + 1) & (self.cells.len() - 1);
        }
        self.cells[at] = (hash, position);
    }

    /// Removes the position with this hash that `is` accepts.
    pub(crate) fn remove(&mut self, hash: u32, is: impl Fn(u32) -> bool) {
        let Some(mut hole) = self.cell_of(hash, is) else { return };
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let (h, position) = self.cells[at];
            if position == EMPTY {
                break;
            }
            // A cell may move into the hole unless its home lies behind the hole.
            if (at.wrapping_sub(self.home(h)) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = (h, position);
                hole = at;
            }
        }
        self.cells[hole] = (0, EMPTY);
        self.len -= 1;
    }
}

/// Hash of a packed key and its priority.
pub(crate) fn hash(packed: &[u64], priority: i32) -> u32 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |h: u64, word: u64| {
        let product = u128::from(h ^ word) * u128::from(K);
        product as u64 ^ (product >> 64) as u64
    };
    let h = mix(packed.iter().fold(K, |h, word| mix(h, *word)), priority as u64);
    (h ^ h >> 32) as u32
}

#[cfg(test)]
mod tests;

//! A set of small numbers, one bit each.

/// A set of numbers below a bound that is fixed when it is made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    /// The empty set of numbers below `bound`.
    pub fn new(bound: usize) -> BitSet {
        BitSet { words: vec![0; bound.div_ceil(64)] }
    }

    pub fn insert(&mut self, i: usize) {
        self.words[i / 64] |= 1 << (i % 64);
    }

    pub fn remove(&mut self, i: usize) {
        self.words[i / 64] &= !(1 << (i % 64));
    }

    pub fn contains(&self, i: usize) -> bool {
        self.words[i / 64] >> (i % 64) & 1 == 1
    }

    /// Adds all of `other`; whether that changed anything.
    pub fn union(&mut self, other: &BitSet) -> bool {
        let mut changed = false;
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            changed |= other & !*word != 0;
            *word |= other;
        }
        changed
    }
}

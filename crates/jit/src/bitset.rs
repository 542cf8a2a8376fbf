//! A fixed-size set of small integers, for the dataflow analyses of [`crate::flow`].

/// Which of `0..len` are in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct BitSet(Vec<u64>);

impl BitSet {
    /// The empty set over `0..len`.
    pub fn new(len: usize) -> BitSet {
        BitSet(vec![0; len.div_ceil(64)])
    }

    /// All of `0..len`.
    pub fn full(len: usize) -> BitSet {
        let mut set = BitSet::new(len);
        for i in 0..len {
            set.insert(i);
        }
        set
    }

    pub fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub fn remove(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }

    pub fn contains(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }

    /// Adds everything in `other`; whether that changed anything.
    pub fn union(&mut self, other: &BitSet) -> bool {
        let mut changed = false;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            changed |= *b & !*a != 0;
            *a |= *b;
        }
        changed
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(w, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    w * 64 + bit
                })
            })
        })
    }
}

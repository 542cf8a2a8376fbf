//! A set of prefixes of a value of fixed width, one bit for each possible prefix: it finds the values whose longest
//! match a prefix is.
//!
//! The prefix of the first `len` bits of a value is number `1 << len | those bits`, as in a binary heap: the prefixes
//! that extend number `n` by one bit are `2 n` and `2 n + 1`, and the prefixes of full length are the values
//! themselves.
//!
//! Threads: writer only. Tests: below.

use std::cell::Cell;

/// Words of the set for values of 8 bits.
pub const OCTET_WORDS: usize = 8;

/// A view of the set's bits.
#[derive(Clone, Copy)]
pub struct Tree<'a>(pub &'a [Cell<u64>]);

impl Tree<'_> {
    fn values(self) -> usize {
        32 * self.0.len()
    }

    /// Whether the set contains a prefix.
    pub fn has(self, number: usize) -> bool {
        self.0[number / 64].get() >> (number % 64) & 1 == 1
    }

    /// Adds a prefix to the set, or removes it.
    pub fn set(self, number: usize, there: bool) {
        let (word, bit) = (&self.0[number / 64], 1 << (number % 64));
        word.set(if there { word.get() | bit } else { word.get() & !bit });
    }

    /// Visits the values that prefix `number` covers and no longer prefix of the set does.
    pub fn own_values(self, number: usize, visit: &mut impl FnMut(usize)) {
        if number >= self.values() {
            return visit(number - self.values());
        }
        for longer in [2 * number, 2 * number + 1] {
            if !self.has(longer) {
                self.own_values(longer, visit);
            }
        }
    }

    /// The length of the longest shorter prefix in the set that covers prefix `number`; `None` if there is none. The
    /// empty prefix does not count.
    pub fn shorter(self, number: usize) -> Option<u32> {
        let above = std::iter::successors(Some(number / 2), |n| Some(n / 2)).take_while(|n| *n > 1);
        above.into_iter().find(|n| self.has(*n)).map(usize::ilog2)
    }

    /// The prefixes of the set: their bits, right-aligned, and their length.
    pub fn prefixes(self) -> impl Iterator<Item = (u32, u32)> {
        let words = self.0.iter().enumerate().filter(|(_, word)| word.get() != 0);
        words.flat_map(move |(i, word)| {
            let word = word.get();
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| {
                let number = 64 * i + bit;
                let len = number.ilog2();
                ((number - (1 << len)) as u32, len)
            })
        })
    }
}

/// The number of a prefix of a value of `bits` bits.
pub fn number_of(value: u32, bits: u32, len: u32) -> usize {
    1 << len | (value >> (bits - len)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_addresses_of_no_longer_prefix() {
        let words: Vec<Cell<u64>> = vec![Cell::new(0); OCTET_WORDS];
        let tree = Tree(&words);
        let own = |number| {
            let mut own = Vec::new();
            tree.own_values(number, &mut |value| own.push(value));
            own
        };
        let (short, long, value) = (number_of(0x40, 8, 2), number_of(0x50, 8, 4), number_of(0x7f, 8, 8));
        for number in [short, long, value] {
            tree.set(number, true);
        }
        assert_eq!(own(short), (0x40..0x50).chain(0x60..0x7f).collect::<Vec<_>>());
        assert_eq!(own(long), (0x50..0x60).collect::<Vec<_>>());
        assert_eq!(own(1), (0..0x40).chain(0x80..0x100).collect::<Vec<_>>());
        assert_eq!((tree.shorter(value), tree.shorter(short)), (Some(2), None));
        assert_eq!(tree.prefixes().collect::<Vec<_>>(), [(1, 2), (5, 4), (0x7f, 8)]);
        tree.set(long, false);
        assert_eq!(own(short), (0x40..0x7f).collect::<Vec<_>>());
    }
}

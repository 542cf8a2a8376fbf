//! Rules by the bytes of their keys, for structures that test a key one byte at a time: prefilters and bit vectors.

use abi::Rule;

/// Number of values of a byte.
pub const BYTE_VALUES: usize = 256;

/// The position of a byte in the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Index of the word in the key.
    pub word: usize,
    /// Index of the byte in the word; 0 is the lowest.
    pub byte: u32,
}

/// The bytes of the key in which some rule has mask bits, in key order.
pub fn columns(rules: &[&Rule]) -> Vec<Column> {
    let mut examined = vec![0; rules.first().map_or(0, |rule| rule.mask.len())];
    rules.iter().for_each(|rule| examined.iter_mut().zip(&rule.mask).for_each(|(examined, mask)| *examined |= mask));
    let all = (0..examined.len()).flat_map(|word| (0..8).map(move |byte| Column { word, byte }));
    all.filter(|c| byte_of(examined[c.word], c.byte) != 0).collect()
}

/// Byte number `byte` of a word; 0 is the lowest.
pub fn byte_of(word: u64, byte: u32) -> u64 {
    word >> (8 * byte) & 0xff
}

/// The byte values that agree with `wanted` in the bits of `mask`.
pub fn accepted(mask: u64, wanted: u64) -> impl Iterator<Item = usize> {
    let free = !mask & 0xff;
    // All subsets of the free bits, in descending order down to none.
    let subset = move |rest: &u64| rest.checked_sub(1).map(|less| less & free);
    std::iter::successors(Some(free), subset).map(move |rest| (wanted | rest) as usize)
}

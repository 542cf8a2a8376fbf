//! Keys by their bytes, for what accepts or rejects them a byte at a time: prefilters, bit vectors.

use abi::Rule;

/// Values of a byte.
pub const ROWS: usize = 256;

/// A byte of the key that some rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The word of the key.
    pub word: usize,
    /// Which of its bytes, from the lowest.
    pub byte: u32,
}

/// The columns of rules, in the order of the key.
pub fn columns(rules: &[&Rule]) -> Vec<Column> {
    let mut asked = vec![0; rules.first().map_or(0, |rule| rule.mask.len())];
    rules.iter().for_each(|rule| asked.iter_mut().zip(&rule.mask).for_each(|(asked, mask)| *asked |= mask));
    let all = (0..asked.len()).flat_map(|word| (0..8).map(move |byte| Column { word, byte }));
    all.filter(|c| byte_of(asked[c.word], c.byte) != 0).collect()
}

/// A byte of a word, from the lowest.
pub fn byte_of(word: u64, byte: u32) -> u64 {
    word >> (8 * byte) & 0xff
}

/// The values of a byte that are `wanted` in the bits of a mask.
pub fn accepted(mask: u64, wanted: u64) -> impl Iterator<Item = usize> {
    let free = !mask & 0xff;
    // All subsets of the free bits, from all of them down to none.
    let subset = move |rest: &u64| rest.checked_sub(1).map(|less| less & free);
    std::iter::successors(Some(free), subset).map(move |rest| (wanted | rest) as usize)
}

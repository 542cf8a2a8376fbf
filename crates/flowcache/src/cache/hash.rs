//! The hash of a frame's masked words and its port.
//!
//! NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: Fast and Secure Message Authentication", CRYPTO 1999): the sum of products of
//! pairs of words, each plus a secret one. Whoever does not know the secret words finds colliding frames only by chance, 2^-64 a pair.
//! The 128 bits of the sum are then folded by one more multiplication, so that all bits of the hash depend on all of it.

use super::WORDS;

/// The secret words.
pub(super) struct Hash {
    keys: [u64; WORDS + 4],
}

impl Hash {
    /// They follow from `seed` by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    pub(super) fn new(seed: u64) -> Hash {
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        });
        Hash { keys }
    }

    /// The hash of the port and of `word(0)..word(count)`; `count` is at most [`WORDS`], and `word(count)` is 0.
    #[inline(always)]
    pub(super) fn of(&self, port: u32, count: usize, word: impl Fn(usize) -> u64) -> u64 {
        let keys = &self.keys;
        let mut sum = wide(keys[0].wrapping_add(port.into()), keys[1].wrapping_add(word(0)));
        let mut k = 1;
        while k < count.min(WORDS) {
            let (a, b) = (keys[k + 1].wrapping_add(word(k)), keys[k + 2].wrapping_add(word(k + 1)));
            sum = sum.wrapping_add(wide(a, b));
            k += 2;
        }
        let folded = wide(sum as u64 ^ keys[WORDS + 2], (sum >> 64) as u64 ^ keys[WORDS + 3]);
        folded as u64 ^ (folded >> 64) as u64
    }
}

#[inline(always)]
fn wide(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

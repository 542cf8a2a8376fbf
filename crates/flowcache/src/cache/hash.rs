//! The keyed hash of a frame's masked words and its port.
//!
//! NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: Fast and Secure Message Authentication", CRYPTO 1999):
//! the sum of the products of pairs of words, each word plus a secret one. A sender who does not know the secret
//! words finds colliding frames only by chance, with probability 2^-64 per pair of frames. The sum of 128 bits is
//! then folded by one more multiplication, so that all bits of the hash depend on all of it. All pairs up to the
//! mask's last nonzero one are hashed, with masked-out bits as 0.

use super::masks::Bits;
use super::{PAIRS, Row};

/// The secret key of the hash.
pub(super) struct Hash {
    port: [u64; 2],
    pairs: [[u64; 2]; PAIRS],
    fold: [u64; 2],
}

impl Hash {
    /// Derives the key from `seed` by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    pub(super) fn new(seed: u64) -> Hash {
        let mut state = seed;
        let mut pair = || {
            std::array::from_fn(|_| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ z >> 31
            })
        };
        Hash { port: pair(), pairs: std::array::from_fn(|_| pair()), fold: pair() }
    }

    /// The hash of the port and of a row under a mask.
    #[inline(always)]
    pub(super) fn of(&self, port: u32, bits: &Bits, row: &Row) -> u64 {
        self.of_pairs(port, bits, row.iter().copied())
    }

    /// Like [`Hash::of`], for a row that is produced on the fly.
    #[inline(always)]
    pub(super) fn of_pairs(&self, port: u32, bits: &Bits, row: impl Iterator<Item = [u64; 2]>) -> u64 {
        let mut sum = wide(self.port[0].wrapping_add(port.into()), self.port[1]);
        for ((mask, key), row) in bits.pairs().iter().zip(&self.pairs).zip(row) {
            sum = sum.wrapping_add(wide(key[0].wrapping_add(row[0] & mask[0]), key[1].wrapping_add(row[1] & mask[1])));
        }
        let folded = wide(sum as u64 ^ self.fold[0], (sum >> 64) as u64 ^ self.fold[1]);
        folded as u64 ^ (folded >> 64) as u64
    }
}

#[inline(always)]
fn wide(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

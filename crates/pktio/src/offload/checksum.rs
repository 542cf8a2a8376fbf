//! The Internet checksum (RFC 1071): a one's complement sum of 16-bit words. It does not depend on byte order if it is
//! stored in the same order as it was read. Computed here on 64-bit words.

use std::ops::Add;

/// A sum over bytes, not yet folded to 16 bits. Sums may be added if each part begins at an even offset.
#[derive(Clone, Copy)]
pub(super) struct Sum(u64);

/// Bytes per iteration: four independent sums, which compilers vectorise.
const ROUND: usize = 32;

impl Sum {
    /// The sum of `bytes`, at most 64 KB; an odd last byte is padded with a zero.
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Sum {
        let mut sums = [0u64; ROUND / 8];
        let (rounds, rest) = bytes.as_chunks::<ROUND>();
        for round in rounds {
            for (sum, word) in sums.iter_mut().zip(round.as_chunks::<8>().0) {
                *sum += halves(u64::from_ne_bytes(*word));
            }
        }
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            sums[0] += halves(u64::from_ne_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        Sum(sums.iter().sum::<u64>() + halves(u64::from_ne_bytes(last)))
    }

    /// The sum folded to 16 bits, in memory order.
    #[inline]
    pub(super) fn folded(self) -> [u8; 2] {
        let mut sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        (((sum & 0xffff) + (sum >> 16)) as u16).to_ne_bytes()
    }

    /// The one's complement of the sum, in memory order: an IP header's checksum.
    #[inline]
    pub(super) fn complement(self) -> [u8; 2] {
        (!u16::from_ne_bytes(self.folded())).to_ne_bytes()
    }

    /// A transport header's checksum, never zero: in UDP zero means that there is no checksum (RFC 768); elsewhere both
    /// representations of zero are equivalent.
    #[inline]
    pub(super) fn checksum(self) -> [u8; 2] {
        match self.complement() {
            [0, 0] => [0xff, 0xff],
            sum => sum,
        }
    }
}

impl Add for Sum {
    type Output = Sum;

    #[inline]
    fn add(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }
}

/// The sum of both halves of a word, which cannot overflow.
#[inline]
fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// Stores a sum at offset `at`.
#[inline]
pub(super) fn store_sum(data: &mut [u8], at: usize, sum: [u8; 2]) {
    data[at..at + 2].copy_from_slice(&sum);
}

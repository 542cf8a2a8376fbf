//! The Internet checksum (RFC 1071): a one's complement sum of 16-bit words, whose byte order does not matter as long as
//! it is stored as it was read. Summed here in words of 64 bits.

use std::ops::Add;

/// A sum over bytes, not yet folded to 16 bits. Each of the parts that are added begins at an even offset.
#[derive(Clone, Copy)]
pub(super) struct Sum(u64);

/// Bytes per round: four independent sums, which compilers make vector instructions of.
const ROUND: usize = 32;

impl Sum {
    /// Of `bytes`, at most 64 KB at a time; an odd one at the end counts as if a zero followed.
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

    /// 16 bits, as they are stored.
    #[inline]
    pub(super) fn folded(self) -> [u8; 2] {
        let mut sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        (((sum & 0xffff) + (sum >> 16)) as u16).to_ne_bytes()
    }

    /// The complement, as it is stored: a header's checksum.
    #[inline]
    pub(super) fn complement(self) -> [u8; 2] {
        (!u16::from_ne_bytes(self.folded())).to_ne_bytes()
    }

    /// The same for a transport header, never zero: in UDP that means that there is no checksum (RFC 768); elsewhere both
    /// zeros are equal.
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

/// Both halves of a word, added without overflow.
#[inline]
fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// Puts a sum into its place.
#[inline]
pub(super) fn store_sum(data: &mut [u8], at: usize, sum: [u8; 2]) {
    data[at..at + 2].copy_from_slice(&sum);
}

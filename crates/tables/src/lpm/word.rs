//! Words that hold left-aligned values of the prefix field: unsigned integers of its width or the next larger one.

use std::fmt::Debug;

/// Bits that a node of the trie branches on.
pub const STRIDE: u32 = 8;
/// Bits that index the trie's directory.
pub const DIRECTORY_BITS: u32 = 16;

/// A word that holds a left-aligned value.
pub trait Word: Copy + Eq + Ord + Debug + Send + Sync + 'static {
    /// Its width in bits.
    const BITS: u32;
    /// Zero.
    const ZERO: Self;
    /// The `width` low bits of a number, left-aligned.
    fn align(value: u128, width: u32) -> Self;
    /// The inverse of [`align`](Word::align).
    fn number(self, width: u32) -> u128;
    /// The 8 bits after the first `depth` bits; `depth` is a multiple of 8.
    fn octet(self, depth: u32) -> usize;
    /// The first [`DIRECTORY_BITS`] bits.
    fn directory_index(self) -> usize;
    /// The number of leading bits that are equal.
    fn common(self, other: Self) -> u32;
    /// The first `len` bits, then zeros.
    fn prefix(self, len: u32) -> Self;
    /// Whether the first `len` bits are equal.
    #[inline(always)]
    fn agrees(self, other: Self, len: u32) -> bool {
        self.common(other) >= len
    }
}

macro_rules! word {
    ($($word:ty, $octet:expr;)*) => {$(
        impl Word for $word {
            const BITS: u32 = <$word>::BITS;
            const ZERO: Self = 0;
            #[inline(always)]
            fn align(value: u128, width: u32) -> Self {
                if width == 0 { 0 } else { (value as $word) << (<$word>::BITS - width) }
            }
            fn number(self, width: u32) -> u128 {
                if width == 0 { 0 } else { u128::from(self >> (<$word>::BITS - width)) }
            }
            #[inline(always)]
            fn octet(self, depth: u32) -> usize {
                let octet: fn($word, u32) -> usize = $octet;
                octet(self, depth)
            }
            #[inline(always)]
            fn directory_index(self) -> usize {
                (self >> (<$word>::BITS - DIRECTORY_BITS)) as usize
            }
            #[inline(always)]
            fn common(self, other: Self) -> u32 {
                (self ^ other).leading_zeros()
            }
            #[inline(always)]
            fn prefix(self, len: u32) -> Self {
                if len == 0 { 0 } else { self & (<$word>::MAX << (<$word>::BITS - len)) }
            }
        }
    )*};
}

word! {
    u32, |word, depth| (word << depth >> 24) as usize;
    u64, |word, depth| (word << depth >> 56) as usize;
    // An octet lies in one of the halves; shifting the whole 128 bits takes longer.
    u128, |word, depth| {
        let half = if depth < 64 { (word >> 64) as u64 } else { word as u64 };
        (half << (depth % 64) >> 56) as usize
    };
}

/// A stored prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix<T> {
    /// Left-aligned; the bits after the prefix are zero.
    pub value: T,
    /// Length in bits.
    pub len: u32,
}

//! The innermost steps of a ternary lookup, eight tuples or entries at a time: hash the key under the masks of eight
//! tuples and test the filter or, in small tables, compare it with eight entries. Each is written twice: portably, and
//! with 256-bit vector instructions.
//!
//! Threads: any number of readers. Tests: `lanes/tests.rs` compares the two versions with each other and with the hash
//! of one tuple.
#![allow(unsafe_code)]

use super::filter::Filter;

/// Tuples or entries that are processed together.
pub(super) const LANES: usize = 8;

/// The secret numbers of the NH hash: two of 32 bits for each word of the key, in the halves of a `u64`.
pub(super) struct Hasher {
    secrets: Vec<u64>,
}

/// The contribution of a word to an NH hash.
#[inline(always)]
fn product(word: u64, secret: u64) -> u64 {
    let low = (word as u32).wrapping_add(secret as u32);
    let high = ((word >> 32) as u32).wrapping_add((secret >> 32) as u32);
    u64::from(low).wrapping_mul(u64::from(high))
}

const FINAL_FACTOR: u32 = 0x9e37_79b1;
const FINAL_SHIFT: u32 = 15;

#[inline(always)]
fn finish(sum: u64) -> u32 {
    let hash = (sum as u32 ^ (sum >> 32) as u32).wrapping_mul(FINAL_FACTOR);
    hash ^ hash >> FINAL_SHIFT
}

impl Hasher {
    /// A hasher with random secrets for keys of so many words.
    pub(super) fn new(words: usize) -> Hasher {
        Hasher { secrets: (0..words).map(|_| crate::random_seeds()[0]).collect() }
    }

    /// The number of words of a key.
    pub(super) fn words(&self) -> usize {
        self.secrets.len()
    }

    /// The hash of a masked key in a tuple with this salt; words of zero contribute nothing.
    pub(super) fn hash(&self, salt: u64, words: impl Iterator<Item = u64>) -> u32 {
        let sum = words.zip(&self.secrets).fold(salt, |sum, (word, secret)| {
            sum.wrapping_add(product(word, *secret)).wrapping_sub(product(0, *secret))
        });
        finish(sum)
    }

    /// The initial value of the sums in [`Rows`] for a tuple with this salt: it subtracts in advance what zeros would
    /// contribute for each of `words`.
    pub(super) fn first(&self, salt: u64, words: &[Word]) -> u64 {
        words.iter().fold(salt, |sum, word| sum.wrapping_sub(product(0, word.secret)))
    }

    /// The word at a position.
    pub(super) fn word(&self, position: usize) -> Word {
        Word { position, secret: self.secrets[position] }
    }
}

/// A word of the key in which some mask has bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) position: usize,
    secret: u64,
}

/// Eight tuples: the initial values of their sums, then for each word their masks.
pub(super) type Rows = [[u64; LANES]];

/// The hash of a key in one of eight tuples.
///
/// # Safety
/// The key has the words, and `lane` is below [`LANES`].
#[inline(always)]
pub(super) unsafe fn hash_one(words: &[Word], rows: &Rows, lane: usize, key: *const u64) -> u32 {
    finish(words.iter().zip(&rows[1..]).fold(rows[0][lane], |sum, (word, masks)| {
        // SAFETY: the caller's promise.
        let key = unsafe { key.add(word.position).read_unaligned() };
        sum.wrapping_add(product(key & masks[lane], word.secret))
    }))
}

/// Eight entries of a small table: their values and masks, for each of the key's relevant words.
pub(super) type Entries = [[[u64; LANES]; 2]];

/// Operations on eight tuples or entries at a time.
pub(super) trait Pass {
    /// The hashes of a key in eight tuples, and which of them may have a matching entry by the filter (a bit each).
    ///
    /// # Safety
    /// The key has the words, and the processor has the instructions.
    unsafe fn pass(words: &[Word], rows: &Rows, key: *const u64, filter: &Filter) -> (u32, [u32; LANES]);

    /// Which of eight entries match a key, a bit each.
    ///
    /// # Safety
    /// As [`Pass::pass`].
    unsafe fn accept(words: &[usize], entries: &Entries, key: *const u64) -> u32;
}

/// The portable version.
pub(super) struct Portable;

impl Pass for Portable {
    #[inline(always)]
    unsafe fn pass(words: &[Word], rows: &Rows, key: *const u64, filter: &Filter) -> (u32, [u32; LANES]) {
        let mut sums = rows[0];
        for (word, masks) in words.iter().zip(&rows[1..]) {
            // SAFETY: the caller's promise.
            let key = unsafe { key.add(word.position).read_unaligned() };
            for i in 0..LANES {
                sums[i] = sums[i].wrapping_add(product(key & masks[i], word.secret));
            }
        }
        let hashes = sums.map(finish);
        let passed = hashes.iter().rev().fold(0, |passed, hash| passed << 1 | u32::from(filter.test(*hash)));
        (passed, hashes)
    }

    #[inline(always)]
    unsafe fn accept(words: &[usize], entries: &Entries, key: *const u64) -> u32 {
        let mut differ = [0; LANES];
        for (&word, [values, masks]) in words.iter().zip(entries) {
            // SAFETY: the caller's promise.
            let word = unsafe { key.add(word).read_unaligned() };
            for i in 0..LANES {
                differ[i] |= (word ^ values[i]) & masks[i];
            }
        }
        differ.iter().rev().fold(0, |accepts, differ| accepts << 1 | u32::from(*differ == 0))
    }
}

/// The version for processors with AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Pass for Avx2 {
    #[inline(always)]
    unsafe fn pass(words: &[Word], rows: &Rows, key: *const u64, filter: &Filter) -> (u32, [u32; LANES]) {
        // SAFETY: the caller's promise.
        unsafe { avx2::pass(words, rows, key, filter) }
    }

    #[inline(always)]
    unsafe fn accept(words: &[usize], entries: &Entries, key: *const u64) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { avx2::accept(words, entries, key) }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Entries, FINAL_FACTOR, FINAL_SHIFT, Filter, LANES, Rows, Word};
    use std::arch::x86_64::*;

    /// Eight numbers as two vectors.
    ///
    /// # Safety
    /// The processor has the instructions.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn halves(row: &[u64; LANES]) -> [__m256i; 2] {
        let row = row.as_ptr().cast::<__m256i>();
        // SAFETY: a row has eight numbers.
        unsafe { [_mm256_loadu_si256(row), _mm256_loadu_si256(row.add(1))] }
    }

    /// # Safety
    /// As [`super::Pass::accept`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn accept(words: &[usize], entries: &Entries, key: *const u64) -> u32 {
        // SAFETY: the key has the words.
        unsafe {
            let mut differ = [_mm256_setzero_si256(); 2];
            for (&word, [values, masks]) in words.iter().zip(entries) {
                let key = _mm256_set1_epi64x(key.add(word).read_unaligned() as i64);
                for ((differ, value), mask) in differ.iter_mut().zip(halves(values)).zip(halves(masks)) {
                    *differ = _mm256_or_si256(*differ, _mm256_and_si256(_mm256_xor_si256(key, value), mask));
                }
            }
            let [low, high] = differ.map(|differ| {
                let equal = _mm256_cmpeq_epi64(differ, _mm256_setzero_si256());
                _mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32
            });
            low | high << 4
        }
    }

    /// # Safety
    /// As [`super::Pass::pass`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn pass(words: &[Word], rows: &Rows, key: *const u64, filter: &Filter) -> (u32, [u32; LANES]) {
        // SAFETY: rows have eight numbers; the key has the words; gathered words are the filter's.
        unsafe {
            let mut sums = halves(&rows[0]);
            for (word, masks) in words.iter().zip(rows.get_unchecked(1..)) {
                let key = _mm256_set1_epi64x(key.add(word.position).read_unaligned() as i64);
                let secret = _mm256_set1_epi64x(word.secret as i64);
                for (sum, mask) in sums.iter_mut().zip(halves(masks)) {
                    let parts = _mm256_add_epi32(_mm256_and_si256(key, mask), secret);
                    let product = _mm256_mul_epu32(parts, _mm256_srli_epi64::<32>(parts));
                    *sum = _mm256_add_epi64(*sum, product);
                }
            }
            // Folds the halves of each sum, and packs the eight results into one vector.
            let [low, high] = sums.map(|sum| _mm256_xor_si256(sum, _mm256_srli_epi64::<32>(sum)));
            let even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
            let (low, high) = (_mm256_permutevar8x32_epi32(low, even), _mm256_permutevar8x32_epi32(high, even));
            let sums = _mm256_blend_epi32::<0xf0>(low, high);
            let hashes = _mm256_mullo_epi32(sums, _mm256_set1_epi32(FINAL_FACTOR as i32));
            let hashes = _mm256_xor_si256(hashes, _mm256_srli_epi32::<{ FINAL_SHIFT as i32 }>(hashes));
            let mut out = [0; LANES];
            _mm256_storeu_si256(out.as_mut_ptr().cast(), hashes);
            let (at, shift) = filter.parts();
            let positions = _mm256_srl_epi32(hashes, _mm_cvtsi32_si128(shift as i32));
            let there = _mm256_i32gather_epi32::<4>(at, positions);
            let (one, five) = (_mm256_set1_epi32(1), _mm256_set1_epi32(31));
            let first = _mm256_sllv_epi32(one, _mm256_and_si256(hashes, five));
            let second = _mm256_sllv_epi32(one, _mm256_and_si256(_mm256_srli_epi32::<5>(hashes), five));
            let bits = _mm256_or_si256(first, second);
            let passed = _mm256_cmpeq_epi32(_mm256_and_si256(there, bits), bits);
            (_mm256_movemask_ps(_mm256_castsi256_ps(passed)) as u32, out)
        }
    }
}

#[cfg(test)]
mod tests;

//! Tags of hashes, and a vectorised comparison of eight tags.
#![allow(unsafe_code)]

/// The tag of a hash, which is never 0.
#[inline(always)]
pub(super) fn tag(hash: u64) -> u32 {
    (hash as u32).max(1)
}

/// A bit mask: bit `i` says whether `tags[i]` equals `tag`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn equal(tags: &[u32; 8], tag: u32) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: all x86-64 processors have SSE2; both loads are within the eight tags.
    unsafe {
        let (first, tag) = (tags.as_ptr().cast(), _mm_set1_epi32(tag as i32));
        let low = _mm_cmpeq_epi32(_mm_loadu_si128(first), tag);
        let high = _mm_cmpeq_epi32(_mm_loadu_si128(first.add(1)), tag);
        let both = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
        _mm_movemask_epi8(both) as u32
    }
}

/// A bit mask: bit `i` says whether `tags[i]` equals `tag`.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn equal(tags: &[u32; 8], tag: u32) -> u32 {
    (0..8).fold(0, |found, i| found | u32::from(tags[i] == tag) << i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_for_each_equal_tag() {
        for pattern in 0..=255u32 {
            let tags =
                std::array::from_fn(|i| if pattern >> i & 1 == 1 { 0x8000_0001 } else { 0x7fff_0001 + i as u32 });
            assert_eq!(equal(&tags, 0x8000_0001), pattern);
        }
    }
}

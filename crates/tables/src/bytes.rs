//! Little-endian numbers of up to 8 bytes to and from memory, in stores and loads of 8, 4, 2 and 1 bytes.
//!
//! A copy of unknown length compiles to a call, which uses masked stores, or loads that are wider than the stores
//! before them. Then store-to-load forwarding fails, and the load waits until all earlier stores have left the
//! processor's store buffer. With tables larger than the caches these stores wait for memory.
#![allow(unsafe_code)]

/// Writes the low bytes of a word: as many as `out` has, at most eight.
#[inline]
pub(crate) fn put_le(out: &mut [u8], word: u64) {
    // SAFETY: the bytes are the caller's.
    unsafe { put_le_at(out.as_mut_ptr(), out.len(), word) }
}

/// Writes the low `bytes` bytes of a word, at most eight.
///
/// # Safety
/// There is room for them, and no one else accesses it.
#[inline]
pub(crate) unsafe fn put_le_at(mut at: *mut u8, bytes: usize, mut word: u64) {
    // SAFETY: the parts are adjacent and have `bytes` bytes in all.
    unsafe {
        if bytes >= 8 {
            return at.cast::<u64>().write_unaligned(word.to_le());
        }
        if bytes & 4 != 0 {
            at.cast::<u32>().write_unaligned((word as u32).to_le());
            (at, word) = (at.add(4), word >> 32);
        }
        if bytes & 2 != 0 {
            at.cast::<u16>().write_unaligned((word as u16).to_le());
            (at, word) = (at.add(2), word >> 16);
        }
        if bytes & 1 != 0 {
            at.write(word as u8);
        }
    }
}

/// The word with these bytes, of which at most the first eight are used.
#[inline]
pub(crate) fn get_le(mut bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    let (mut word, mut shift) = (0, 0);
    if bytes.len() & 4 != 0
        && let Some((four, rest)) = bytes.split_first_chunk()
    {
        word = u64::from(u32::from_le_bytes(*four));
        (bytes, shift) = (rest, 32);
    }
    if bytes.len() & 2 != 0
        && let Some((two, rest)) = bytes.split_first_chunk()
    {
        word |= u64::from(u16::from_le_bytes(*two)) << shift;
        (bytes, shift) = (rest, shift + 16);
    }
    if let [one] = bytes {
        word |= u64::from(*one) << shift;
    }
    word
}

/// Sets words to zero, one store per word: loads of single words that follow need not wait, as they would after a
/// `fill`.
#[inline]
pub(crate) fn zero(words: &mut [u64]) {
    // The compiler must not see that these are zeros, or it would emit a call.
    words.iter_mut().for_each(|word| *word = std::hint::black_box(0));
}

#[cfg(test)]
mod tests {
    use super::{get_le, put_le};

    #[test]
    fn bytes_of_every_length_round_trip() {
        let word = 0x8877_6655_4433_2211_u64;
        for len in 0..=8 {
            let mut bytes = [0xcc; 9];
            put_le(&mut bytes[..len], word);
            assert_eq!(bytes[..len], word.to_le_bytes()[..len]);
            assert_eq!(bytes[len], 0xcc);
            let mask = if len == 0 { 0 } else { u64::MAX >> (64 - 8 * len) };
            assert_eq!(get_le(&bytes[..len]), word & mask);
        }
    }
}

//! Hashes over bit strings (`ir::HashAlgorithm`).
//!
//! The input is a bit string, most significant bit first; for CRCs and checksums it is padded with zeros at the end to
//! whole bytes, and the payload follows. A hash is a number of at most 64 bits.
//!
//! Tests: at the end of the file, against published check values.

use base::Bits;
use crc::{CRC_16_ARC, CRC_32_ISO_HDLC, Crc};
use ir::HashAlgorithm;

/// The hash of `data` and then `payload`; `None` for [`HashAlgorithm::Random`], which is no function of them.
pub fn hash(algorithm: HashAlgorithm, data: &Bits, payload: &[u8]) -> Option<u64> {
    let mut bytes = left_aligned(data);
    bytes.extend_from_slice(payload);
    Some(match algorithm {
        HashAlgorithm::Crc32 | HashAlgorithm::Crc32Custom => Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&bytes).into(),
        HashAlgorithm::Crc16 | HashAlgorithm::Crc16Custom => Crc::<u16>::new(&CRC_16_ARC).checksum(&bytes).into(),
        HashAlgorithm::Csum16 => internet_checksum(&bytes).into(),
        HashAlgorithm::Xor16 => words(&bytes).fold(0, |x, w| x ^ w).into(),
        HashAlgorithm::Identity => data.resize_u(64).to_u64().unwrap_or(0),
        HashAlgorithm::Random => return None,
    })
}

/// `base + hash mod max` in the width of `base`; without `max`, and with a `max` above 64 bits, `base + hash`; a `max` of
/// zero gives `base`.
pub fn scale(hash: u64, base: &Bits, max: Option<&Bits>) -> Bits {
    let offset = match max.map(|max| (max.is_zero(), max.to_u64())) {
        Some((true, _)) => 0,
        Some((false, Some(max))) => hash % max,
        Some((false, None)) | None => hash,
    };
    base.add(&Bits::new(64, offset.into()).resize_u(base.width()))
}

/// Operands one after the other, the first one most significant.
pub fn concat<'a>(parts: impl IntoIterator<Item = &'a Bits>) -> Bits {
    parts.into_iter().fold(Bits::zero(0), |all, part| all.concat(part))
}

/// The bytes of a bit string, padded with zeros at the end.
fn left_aligned(data: &Bits) -> Vec<u8> {
    let padding = data.width().next_multiple_of(8) - data.width();
    data.concat(&Bits::zero(padding)).to_bytes_be()
}

/// 16-bit words in network order, the last one padded with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = words(bytes).map(u64::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(algorithm: HashAlgorithm, bytes: &[u8]) -> u64 {
        hash(algorithm, &Bits::from_bytes_be(bytes.len() as u32 * 8, bytes), &[]).expect("a function of the data")
    }

    #[test]
    fn published_check_values() {
        assert_eq!(of(HashAlgorithm::Crc32, b"123456789"), 0xcbf4_3926);
        assert_eq!(of(HashAlgorithm::Crc16, b"123456789"), 0xbb3d);
        // RFC 1071, section 3: the sum is ddf2, its complement 220d.
        assert_eq!(of(HashAlgorithm::Csum16, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
        assert_eq!(of(HashAlgorithm::Xor16, &[0x12, 0x34, 0x00, 0xff, 0x80]), 0x92cb);
        assert_eq!(of(HashAlgorithm::Identity, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x0203_0405_0607_0809);
    }

    #[test]
    fn bits_are_padded_at_the_end_and_payload_follows() {
        let split = hash(HashAlgorithm::Crc32, &Bits::new(12, 0xabc), &[0x12]);
        assert_eq!(split, Some(of(HashAlgorithm::Crc32, &[0xab, 0xc0, 0x12])));
        assert_eq!(of(HashAlgorithm::Csum16, &[]), 0xffff);
    }

    #[test]
    fn scaling_wraps_in_the_width_of_the_base() {
        assert_eq!(scale(1000, &Bits::new(8, 250), Some(&Bits::new(16, 10))), Bits::new(8, 250));
        assert_eq!(scale(1007, &Bits::new(8, 250), Some(&Bits::new(16, 10))), Bits::new(8, 1));
        assert_eq!(scale(7, &Bits::new(8, 1), Some(&Bits::new(16, 0))), Bits::new(8, 1));
        assert_eq!(scale(0x1ff, &Bits::new(8, 0), None), Bits::new(8, 0xff));
        assert_eq!(scale(7, &Bits::new(8, 1), Some(&Bits::ones(100))), Bits::new(8, 8));
    }
}

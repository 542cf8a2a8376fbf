//! Hashes over bit strings (`ir::HashAlgorithm`).
//!
//! The input is a bit string, most significant bit first; for CRCs and checksums it is padded with zeros at the end to
//! whole bytes, and the payload follows. A hash is a number of at most 64 bits.
//!
//! Tests: at the end of the file, against published check values.

use abi::state::CrcParameters;
use base::Bits;
use crc::{CRC_16_ARC, CRC_16_IBM_3740, CRC_32_ISO_HDLC, Crc};
use ir::HashAlgorithm;

/// The custom CRCs of 16 and 32 bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CustomCrcs {
    /// Of 16 bits.
    pub crc16: CrcParameters,
    /// Of 32 bits.
    pub crc32: CrcParameters,
    /// Those with a name, by `ir::CalculationId`.
    pub calculations: Vec<CrcParameters>,
}

impl Default for CustomCrcs {
    fn default() -> CustomCrcs {
        CustomCrcs { crc16: CrcParameters::CRC16, crc32: CrcParameters::CRC32, calculations: Vec::new() }
    }
}

impl CustomCrcs {
    /// Those of a program, before anybody has changed them.
    pub fn of(program: &ir::Program) -> CustomCrcs {
        let plain = |c: &ir::Calculation| if c.width == 16 { CrcParameters::CRC16 } else { CrcParameters::CRC32 };
        CustomCrcs { calculations: program.calculations.iter().map(plain).collect(), ..CustomCrcs::default() }
    }
}

/// The hash of `data` and then `payload`; `None` for [`HashAlgorithm::Random`], which is no function of them. Custom CRCs
/// are as nobody has changed them; there are no calculations.
pub fn hash(algorithm: HashAlgorithm, data: &Bits, payload: &[u8]) -> Option<u64> {
    hash_with(&CustomCrcs::default(), algorithm, data, payload)
}

/// [`hash`] with these custom CRCs.
pub fn hash_with(custom: &CustomCrcs, algorithm: HashAlgorithm, data: &Bits, payload: &[u8]) -> Option<u64> {
    let mut bytes = left_aligned(data);
    bytes.extend_from_slice(payload);
    Some(match algorithm {
        HashAlgorithm::Crc32 => Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&bytes).into(),
        HashAlgorithm::Crc16 => Crc::<u16>::new(&CRC_16_ARC).checksum(&bytes).into(),
        HashAlgorithm::Crc32Custom => crc(&custom.crc32, &bytes).into(),
        HashAlgorithm::Crc16Custom => crc(&custom.crc16, &bytes).into(),
        HashAlgorithm::Calculation(id) => crc(custom.calculations.get(id.index())?, &bytes).into(),
        HashAlgorithm::CrcCcitt => Crc::<u16>::new(&CRC_16_IBM_3740).checksum(&bytes).into(),
        HashAlgorithm::Csum16 => internet_checksum(&bytes).into(),
        HashAlgorithm::Xor16 => words(&bytes).fold(0, |x, w| x ^ w).into(),
        HashAlgorithm::Identity => {
            let first = &bytes[..(data.width().div_ceil(8) as usize).min(8)];
            first.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
        }
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

/// Bit by bit, as the division is done by hand.
fn crc(parameters: &CrcParameters, bytes: &[u8]) -> u32 {
    let top = 1u32 << (parameters.width - 1);
    let mut remainder = parameters.initial;
    for byte in bytes {
        for i in 0..8 {
            let bit = byte >> (if parameters.reflect_in { i } else { 7 - i }) & 1;
            let carry = (remainder & top != 0) != (bit == 1);
            remainder <<= 1;
            if carry {
                remainder ^= parameters.polynomial;
            }
        }
    }
    // Bits above the width never come back down.
    let remainder = if parameters.width == 32 { remainder } else { remainder & 0xffff };
    let result = if parameters.reflect_out { remainder.reverse_bits() >> (32 - parameters.width) } else { remainder };
    result ^ parameters.xor_out
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
        assert_eq!(of(HashAlgorithm::CrcCcitt, b"123456789"), 0x29b1);
        // RFC 1071, section 3: the sum is ddf2, its complement 220d.
        assert_eq!(of(HashAlgorithm::Csum16, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
        assert_eq!(of(HashAlgorithm::Xor16, &[0x12, 0x34, 0x00, 0xff, 0x80]), 0x92cb);
        assert_eq!(of(HashAlgorithm::Identity, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x0102_0304_0506_0708);
        assert_eq!(hash(HashAlgorithm::Identity, &Bits::new(12, 0xabc), &[1]), Some(0xabc0));
    }

    #[test]
    fn custom_crcs_have_their_published_check_values() {
        let of = |width, polynomial, initial, reflect, xor_out| {
            let parameters =
                CrcParameters { width, polynomial, initial, xor_out, reflect_in: reflect, reflect_out: reflect };
            assert!(parameters.are_possible());
            crc(&parameters, b"123456789")
        };
        assert_eq!(crc(&CrcParameters::CRC16, b"123456789"), 0xbb3d);
        assert_eq!(crc(&CrcParameters::CRC32, b"123456789"), 0xcbf4_3926);
        assert_eq!(of(16, 0x1021, 0xffff, false, 0), 0x29b1, "CRC-16/IBM-3740");
        assert_eq!(of(16, 0x3d65, 0, true, 0xffff), 0xea82, "CRC-16/DNP");
        assert_eq!(of(32, 0x1edc_6f41, u32::MAX, true, u32::MAX), 0xe306_9283, "CRC-32/ISCSI");
        assert_eq!(of(32, 0x04c1_1db7, u32::MAX, false, u32::MAX), 0xfc89_1918, "CRC-32/BZIP2");
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

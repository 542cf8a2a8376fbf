//! Hashes over bit strings (`ir::HashAlgorithm`).
//!
//! The input is a bit string, most significant bit first. For CRCs and checksums it is padded with zeros at the end to
//! whole bytes, followed by the payload. A hash is a number of at most 64 bits.
//!
//! Tests: at the end of the file, against published check values.

use abi::state::{CrcParameters, HashParameters};
use base::Bits;
use crc::{Algorithm, CRC_8_SMBUS, CRC_16_ARC, CRC_16_IBM_3740, CRC_32_ISO_HDLC, Crc};
use ir::HashAlgorithm;

/// The initial parameters of bmv2's `crc64_custom`.
const CRC64: Algorithm<u64> = Algorithm {
    width: 64,
    poly: 0x1b,
    init: 0,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0x46a5_a938_8a5b_effe,
    residue: 0,
};

/// Parameters of configurable hashes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Those of `crc16_custom` calls without a calculation.
    pub crc16: CrcParameters,
    /// Those of `crc32_custom` calls without a calculation.
    pub crc32: CrcParameters,
    /// Those of calculations, by `ir::CalculationId`.
    pub calculations: Vec<HashParameters>,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { crc16: CrcParameters::CRC16, crc32: CrcParameters::CRC32, calculations: Vec::new() }
    }
}

impl Parameters {
    /// The initial parameters of a program.
    pub fn of(program: &ir::Program) -> Parameters {
        let calculations = program.calculations.iter().map(|c| HashParameters::initial(c.function)).collect();
        Parameters { calculations, ..Parameters::default() }
    }
}

/// The hash of `data` followed by `payload`, with initial parameters of custom CRCs and without calculations. `None`
/// for [`HashAlgorithm::Random`], which is not a function of the data.
pub fn hash(algorithm: HashAlgorithm, data: &Bits, payload: &[u8]) -> Option<u64> {
    hash_with(&Parameters::default(), algorithm, data, payload)
}

/// [`hash`] with these parameters.
pub fn hash_with(custom: &Parameters, algorithm: HashAlgorithm, data: &Bits, payload: &[u8]) -> Option<u64> {
    let mut bytes = left_aligned(data);
    bytes.extend_from_slice(payload);
    Some(match algorithm {
        HashAlgorithm::Crc32 => Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&bytes).into(),
        HashAlgorithm::Crc16 => Crc::<u16>::new(&CRC_16_ARC).checksum(&bytes).into(),
        HashAlgorithm::Crc32Custom => crc(&custom.crc32, &bytes).into(),
        HashAlgorithm::Crc16Custom => crc(&custom.crc16, &bytes).into(),
        HashAlgorithm::Calculation(id) => match custom.calculations.get(id.index())? {
            HashParameters::Crc(parameters) => crc(parameters, &bytes).into(),
            HashParameters::Toeplitz(key) => toeplitz(key, &bytes).into(),
        },
        HashAlgorithm::CrcCcitt => Crc::<u16>::new(&CRC_16_IBM_3740).checksum(&bytes).into(),
        HashAlgorithm::Csum16 => internet_checksum(&bytes).into(),
        HashAlgorithm::Xor16 => words(&bytes).fold(0, |x, w| x ^ w).into(),
        HashAlgorithm::Xor32 => bytes.chunks(4).fold(0, |x, word| x ^ first_word(word)).into(),
        HashAlgorithm::Crc8 => Crc::<u8>::new(&CRC_8_SMBUS).checksum(&bytes).into(),
        HashAlgorithm::Crc64 => Crc::<u64>::new(&CRC64).checksum(&bytes),
        HashAlgorithm::Xxh64 => xxh64(&bytes),
        HashAlgorithm::HashEx => hash_ex(&bytes).into(),
        HashAlgorithm::Identity => {
            let first = &bytes[..(data.width().div_ceil(8) as usize).min(8)];
            first.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
        }
        HashAlgorithm::Random => return None,
    })
}

/// `base + hash mod max`, in the width of `base`. It is `base + hash` without `max` or if `max` exceeds 64 bits, and
/// `base` if `max` is zero.
pub fn scale(hash: u64, base: &Bits, max: Option<&Bits>) -> Bits {
    let offset = match max.map(|max| (max.is_zero(), max.to_u64())) {
        Some((true, _)) => 0,
        Some((false, Some(max))) => hash % max,
        Some((false, None)) | None => hash,
    };
    base.add(&Bits::new(64, offset.into()).resize_u(base.width()))
}

/// Concatenates operands; the first one is most significant.
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

/// The first four bytes as a big-endian number; missing bytes are zero.
fn first_word(bytes: &[u8]) -> u32 {
    (0..4).fold(0, |word, i| word << 8 | u32::from(bytes.get(i).copied().unwrap_or(0)))
}

/// The Toeplitz hash, bit by bit: for each set bit, XOR with the 32-bit window of the key at that bit. The key wraps
/// around.
fn toeplitz(key: &[u8], bytes: &[u8]) -> u32 {
    let bit = |of: &[u8], at: usize| u32::from(of[at / 8 % of.len()] >> (7 - at % 8) & 1);
    let set = (0..bytes.len() * 8).filter(|at| bit(bytes, *at) == 1);
    set.fold(0, |hash, at| hash ^ (at..at + 32).fold(0, |window, i| window << 1 | bit(key, i)))
}

/// 32-bit FNV-1a on sign-extended bytes, followed by a final mix.
fn hash_ex(bytes: &[u8]) -> u32 {
    let signed = |byte: u8| i32::from(byte.cast_signed()).cast_unsigned();
    let mut hash = bytes.iter().fold(0x811c_9dc5u32, |hash, byte| (hash ^ signed(*byte)).wrapping_mul(0x0100_0193));
    hash = hash.wrapping_add(hash << 13);
    hash ^= hash >> 7;
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 17;
    hash.wrapping_add(hash << 5)
}

/// XXH64 with seed 0, following the steps of the specification (Collet, "xxHash fast digest algorithm", 0.1.1).
fn xxh64(bytes: &[u8]) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let round = |lane: u64, input: u64| lane.wrapping_add(input.wrapping_mul(P[1])).rotate_left(31).wrapping_mul(P[0]);
    let little_endian = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let stripes = bytes.chunks_exact(32);
    let mut rest = stripes.remainder();
    let mut hash = if bytes.len() < 32 {
        P[4]
    } else {
        let mut lanes = [P[0].wrapping_add(P[1]), P[1], 0, P[0].wrapping_neg()];
        for stripe in stripes {
            for (lane, input) in lanes.iter_mut().zip(stripe.chunks(8)) {
                *lane = round(*lane, little_endian(input));
            }
        }
        let turned =
            lanes.iter().zip([1, 7, 12, 18]).fold(0u64, |sum, (lane, by)| sum.wrapping_add(lane.rotate_left(by)));
        lanes.iter().fold(turned, |hash, lane| (hash ^ round(0, *lane)).wrapping_mul(P[0]).wrapping_add(P[3]))
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    while !rest.is_empty() {
        let (taken, mixed) = match rest.len() {
            8.. => {
                let mixed = hash ^ round(0, little_endian(&rest[..8]));
                (8, mixed.rotate_left(27).wrapping_mul(P[0]).wrapping_add(P[3]))
            }
            4.. => {
                let mixed = hash ^ little_endian(&rest[..4]).wrapping_mul(P[0]);
                (4, mixed.rotate_left(23).wrapping_mul(P[1]).wrapping_add(P[2]))
            }
            _ => (1, (hash ^ u64::from(rest[0]).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0])),
        };
        (hash, rest) = (mixed, &rest[taken..]);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(P[1]);
    hash = (hash ^ hash >> 29).wrapping_mul(P[2]);
    hash ^ hash >> 32
}

/// A CRC by bitwise polynomial division.
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
    // Bits above the width do not affect lower ones, and are masked.
    let remainder = if parameters.width == 32 { remainder } else { remainder & 0xffff };
    let result = if parameters.reflect_out { remainder.reverse_bits() >> (32 - parameters.width) } else { remainder };
    result ^ parameters.xor_out
}

/// The Internet checksum (RFC 1071).
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
        assert_eq!(of(HashAlgorithm::Crc8, b"123456789"), 0xf4);
        assert_eq!(of(HashAlgorithm::Crc64, b"123456789"), CRC64.check);
        assert_eq!(of(HashAlgorithm::Xxh64, b""), 0xef46_db37_51d8_e999);
        assert_eq!(of(HashAlgorithm::Xxh64, b"abc"), 0x44bc_2cf5_ad77_0999);
        // No published value: the output of simple_switch where `char` is signed.
        assert_eq!(of(HashAlgorithm::HashEx, b""), 0x5902_879e);
        assert_eq!(of(HashAlgorithm::HashEx, b"123456789"), 0xaf67_fb84);
        assert_eq!(of(HashAlgorithm::HashEx, &[0x80, 1, 0xff]), 0x1a00_1dee);
        assert_eq!(of(HashAlgorithm::Xor32, &[0x12, 0x34, 0x00, 0xff, 0x80]), 0x9234_00ff);
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
    fn toeplitz_has_the_vectors_of_its_specification() {
        // Microsoft, "Verifying the RSS hash calculation": IPv4, with and without TCP ports.
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
            0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
            0xbe, 0xac, 0x01, 0xfa,
        ];
        let data = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!((toeplitz(&key, &data), toeplitz(&key, &data[..8])), (0x51cc_c178, 0x323e_8fc2));
        assert_eq!(toeplitz(&[1, 2, 3, 4], &[0x80, 0, 0, 0, 0x80]), 0, "the key begins again");
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

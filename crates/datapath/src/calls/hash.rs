//! Hash functions over bit strings, for compiled code (`ir::HashAlgorithm`): table-driven, no allocation.
//!
//! The input is a bit string, padded with zeros at the end to whole bytes, followed by the payload. The oracle has its
//! own implementation (`interp::hash`); they share nothing.
//!
//! Hashes with configurable parameters are tables that the control plane publishes and packets load; until it does,
//! the initial parameters apply.
//!
//! Tests: `calls/tests.rs`.

use abi::StateError;
use abi::state::{CrcParameters, HashParameters};
use arc_swap::ArcSwapOption;
use ir::{Calculated, Calculation, HashAlgorithm};
use std::sync::Arc;
use xxhash_rust::xxh64::Xxh64;

/// The hash of `data`, whose last byte is padded with zeros, followed by `payload`. `algorithm` is a
/// [`HashAlgorithm::code`]; `None` for the algorithm that is a random number, and for calculations.
pub fn hash(algorithm: u32, data: &[u8], payload: &[u8]) -> Option<u64> {
    const CRC32: u32 = HashAlgorithm::Crc32.code();
    const CRC32_CUSTOM: u32 = HashAlgorithm::Crc32Custom.code();
    const CRC16: u32 = HashAlgorithm::Crc16.code();
    const CRC16_CUSTOM: u32 = HashAlgorithm::Crc16Custom.code();
    const CRC_CCITT: u32 = HashAlgorithm::CrcCcitt.code();
    const IDENTITY: u32 = HashAlgorithm::Identity.code();
    const CSUM16: u32 = HashAlgorithm::Csum16.code();
    const XOR16: u32 = HashAlgorithm::Xor16.code();
    const XOR32: u32 = HashAlgorithm::Xor32.code();
    const CRC8: u32 = HashAlgorithm::Crc8.code();
    const CRC64: u32 = HashAlgorithm::Crc64.code();
    const XXH64: u32 = HashAlgorithm::Xxh64.code();
    const HASH_EX: u32 = HashAlgorithm::HashEx.code();
    Some(match algorithm {
        CRC32 | CRC32_CUSTOM => (!crc32(crc32(u32::MAX, data), payload)).into(),
        CRC16 | CRC16_CUSTOM => crc16(crc16(0, data), payload).into(),
        CRC_CCITT => CCITT.of(data, payload).into(),
        IDENTITY => first_bytes(data),
        CSUM16 => (!fold(sum16(data, payload))).into(),
        XOR16 => xor16(data, payload).into(),
        XOR32 => xor32(data, payload).into(),
        CRC8 => crc8(data, payload).into(),
        CRC64 => crc64(data, payload),
        XXH64 => xxh64(data, payload),
        HASH_EX => hash_ex(data, payload).into(),
        _ => return None,
    })
}

/// A published hash function; `current` is `None` while its parameters are the initial ones.
#[derive(Clone, Debug)]
struct Published {
    function: Calculated,
    current: Arc<ArcSwapOption<Current>>,
}

/// A function with its parameters.
#[derive(Debug)]
enum Current {
    Crc(Box<CustomCrc>),
    Toeplitz(Toeplitz),
}

impl Published {
    fn initial(function: Calculated) -> Published {
        Published { function, current: Arc::default() }
    }

    fn parameters(&self) -> HashParameters {
        match self.current.load().as_deref() {
            Some(Current::Crc(crc)) => HashParameters::Crc(crc.parameters),
            Some(Current::Toeplitz(toeplitz)) => HashParameters::Toeplitz(toeplitz.key.clone()),
            None => HashParameters::initial(self.function),
        }
    }

    fn of(&self, data: &[u8], payload: &[u8]) -> u64 {
        match (self.current.load().as_deref(), self.function) {
            (Some(Current::Crc(crc)), _) => crc.of(data, payload).into(),
            (Some(Current::Toeplitz(toeplitz)), _) => toeplitz.of(data, payload).into(),
            (None, Calculated::Crc16) => crc16(crc16(0, data), payload).into(),
            (None, Calculated::Crc32) => (!crc32(crc32(u32::MAX, data), payload)).into(),
            // The initial key is all zeros.
            (None, Calculated::Toeplitz) => 0,
        }
    }
}

/// The hashes of a program with configurable parameters: custom CRCs without a name, by width, and calculations.
#[derive(Debug)]
pub struct Parametric {
    nameless: [Published; 2],
    calculations: Vec<(String, Published)>,
}

impl Parametric {
    /// The hashes of a program. Those with the same name and function as in an `earlier` one share its parameters,
    /// now and later.
    pub fn new(calculations: &[Calculation], earlier: Option<&Parametric>) -> Parametric {
        let nameless = earlier.map(|earlier| earlier.nameless.clone());
        let calculation = |Calculation { name, function }: &Calculation| {
            let mut known = earlier.iter().flat_map(|earlier| &earlier.calculations);
            let same = known.find(|(other, published)| other == name && published.function == *function);
            (name.clone(), same.map_or_else(|| Published::initial(*function), |(_, published)| published.clone()))
        };
        Parametric {
            nameless: nameless.unwrap_or_else(|| [Calculated::Crc16, Calculated::Crc32].map(Published::initial)),
            calculations: calculations.iter().map(calculation).collect(),
        }
    }

    /// Publishes parameters for a calculation, or for all hashes of their function.
    ///
    /// # Errors
    /// [`StateError::WrongKind`] if the parameters fit no function or not the calculation's; [`StateError::NotFound`]
    /// if there is no calculation of this name.
    pub fn set(&self, calculation: Option<&str>, parameters: &HashParameters) -> Result<(), StateError> {
        let function = parameters.function().ok_or(StateError::WrongKind)?;
        let current = Arc::new(match parameters {
            HashParameters::Crc(parameters) => Current::Crc(Box::new(CustomCrc::new(*parameters))),
            HashParameters::Toeplitz(key) => Current::Toeplitz(Toeplitz::new(key)),
        });
        let mut named = self.calculations.iter();
        match calculation.map(|name| named.find(|(other, _)| other == name)) {
            Some(None) => return Err(StateError::NotFound),
            Some(Some((_, published))) if published.function != function => return Err(StateError::WrongKind),
            Some(Some((_, published))) => published.current.store(Some(current)),
            None => {
                let all = self.nameless.iter().chain(self.calculations.iter().map(|(_, published)| published));
                for published in all.filter(|published| published.function == function) {
                    published.current.store(Some(Arc::clone(&current)));
                }
            }
        }
        Ok(())
    }

    /// The parameters of all hashes; those without a name first.
    pub fn all(&self) -> Vec<(Option<String>, HashParameters)> {
        let nameless = self.nameless.iter().map(|published| (None, published.parameters()));
        let named = self.calculations.iter().map(|(name, published)| (Some(name.clone()), published.parameters()));
        nameless.chain(named).collect()
    }

    /// The hash, if the algorithm has configurable parameters.
    pub fn hash(&self, algorithm: u32, data: &[u8], payload: &[u8]) -> Option<u64> {
        const CRC16_CUSTOM: u32 = HashAlgorithm::Crc16Custom.code();
        const CRC32_CUSTOM: u32 = HashAlgorithm::Crc32Custom.code();
        let published = match algorithm {
            CRC16_CUSTOM => &self.nameless[0],
            CRC32_CUSTOM => &self.nameless[1],
            _ => &self.calculations.get(algorithm.checked_sub(HashAlgorithm::CALCULATIONS)? as usize)?.1,
        };
        Some(published.of(data, payload))
    }
}

/// The Toeplitz hash with a key, by nibbles of the data.
#[derive(Debug)]
struct Toeplitz {
    key: Vec<u8>,
    /// By the position of a data byte in the key: the contribution of each value of its upper and its lower nibble.
    parts: Vec<[[u32; 16]; 2]>,
}

impl Toeplitz {
    /// `key` is a multiple of four bytes long.
    fn new(key: &[u8]) -> Toeplitz {
        // The 40 key bits from a byte on: all that affect this data byte.
        let window = |at: usize| (at..at + 5).fold(0u64, |bits, i| bits << 8 | u64::from(key[i % key.len()]));
        let part = |at: usize, shift: usize, value: usize| {
            let bits = (0..4).filter(|bit| value >> (3 - bit) & 1 == 1);
            bits.fold(0, |sum, bit| sum ^ (window(at) >> (8 - shift - bit)) as u32)
        };
        let parts = (0..key.len()).map(|at| [0, 4].map(|shift| std::array::from_fn(|value| part(at, shift, value))));
        Toeplitz { key: key.to_vec(), parts: parts.collect() }
    }

    fn of(&self, data: &[u8], payload: &[u8]) -> u32 {
        let bytes = data.iter().chain(payload).zip(self.parts.iter().cycle());
        bytes.fold(0, |sum, (byte, [upper, lower])| sum ^ upper[usize::from(byte >> 4)] ^ lower[usize::from(byte & 15)])
    }
}

/// A CRC with any parameters. The remainder is kept in the upper bits of a 32-bit word, whatever its width.
#[derive(Debug)]
struct CustomCrc {
    parameters: CrcParameters,
    table: [u32; 256],
}

impl CustomCrc {
    const fn new(parameters: CrcParameters) -> CustomCrc {
        let polynomial = parameters.polynomial << (32 - parameters.width);
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut remainder = (byte as u32) << 24;
            let mut bit = 0;
            while bit < 8 {
                let carry = remainder >> 31 == 1;
                remainder = remainder << 1 ^ if carry { polynomial } else { 0 };
                bit += 1;
            }
            table[byte] = remainder;
            byte += 1;
        }
        CustomCrc { parameters, table }
    }

    fn of(&self, data: &[u8], payload: &[u8]) -> u32 {
        let CrcParameters { width, initial, xor_out, reflect_in, reflect_out, .. } = self.parameters;
        let remainder = data.iter().chain(payload).fold(initial << (32 - width), |remainder, byte| {
            let byte = if reflect_in { byte.reverse_bits() } else { *byte };
            remainder << 8 ^ self.table[(remainder >> 24) as usize ^ usize::from(byte)]
        });
        xor_out ^ if reflect_out { remainder.reverse_bits() } else { remainder >> (32 - width) }
    }
}

static CCITT: CustomCrc = CustomCrc::new(CrcParameters::CCITT);

/// Reflected polynomial of CRC-32 (IEEE 802.3).
const CRC32_POLYNOMIAL: u32 = 0xedb8_8320;
/// Reflected polynomial of CRC-16/ARC.
const CRC16_POLYNOMIAL: u32 = 0xa001;

/// The remainders of all byte values followed by 0 to 7 zero bytes.
static CRC32: [[u32; 256]; 8] = {
    let mut tables = [crc_table(CRC32_POLYNOMIAL); 8];
    let mut t = 1;
    while t < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[t - 1][i];
            tables[t][i] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            i += 1;
        }
        t += 1;
    }
    tables
};

static CRC16: [u32; 256] = crc_table(CRC16_POLYNOMIAL);

/// Polynomial x^8 + x^2 + x + 1, not reflected.
static CRC8: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut remainder = i as u8;
        let mut bit = 0;
        while bit < 8 {
            remainder = remainder << 1 ^ if remainder >> 7 == 1 { 0x07 } else { 0 };
            bit += 1;
        }
        table[i] = remainder;
        i += 1;
    }
    table
};

/// Polynomial x^64 + x^4 + x^3 + x + 1, reflected.
static CRC64: [u64; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut remainder = i as u64;
        let mut bit = 0;
        while bit < 8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 1 { 0x1bu64.reverse_bits() } else { 0 };
            bit += 1;
        }
        table[i] = remainder;
        i += 1;
    }
    table
};

const fn crc_table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut remainder = i as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 1 { polynomial } else { 0 };
            bit += 1;
        }
        table[i] = remainder;
        i += 1;
    }
    table
}

/// Eight bytes at a time: their remainders do not depend on each other ("slicing-by-8", Kounavis and Berry: "A
/// systematic approach to building high performance software-based CRC generators").
fn crc32(mut crc: u32, bytes: &[u8]) -> u32 {
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes")) ^ u64::from(crc);
        crc = (0..8).fold(0, |sum, i| sum ^ CRC32[7 - i][(word >> (8 * i) & 0xff) as usize]);
    }
    chunks.remainder().iter().fold(crc, |crc, b| crc >> 8 ^ CRC32[0][((crc ^ u32::from(*b)) & 0xff) as usize])
}

fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    let step = |crc: u32, b: &u8| crc >> 8 ^ CRC16[((crc ^ u32::from(*b)) & 0xff) as usize];
    bytes.iter().fold(u32::from(crc), step) as u16
}

fn crc8(data: &[u8], payload: &[u8]) -> u8 {
    data.iter().chain(payload).fold(0, |crc, byte| CRC8[usize::from(crc ^ byte)])
}

fn crc64(data: &[u8], payload: &[u8]) -> u64 {
    let step = |crc: u64, byte: &u8| crc >> 8 ^ CRC64[((crc ^ u64::from(*byte)) & 0xff) as usize];
    data.iter().chain(payload).fold(0, step)
}

fn xxh64(data: &[u8], payload: &[u8]) -> u64 {
    let mut hash = Xxh64::new(0);
    hash.update(data);
    hash.update(payload);
    hash.digest()
}

/// `hash_ex` of bmv2's simple_switch, which sign-extends bytes.
fn hash_ex(data: &[u8], payload: &[u8]) -> u32 {
    let mut hash: u32 = 2_166_136_261;
    for byte in data.iter().chain(payload) {
        let high = if byte & 0x80 != 0 { 0xffff_ff00 } else { 0 };
        hash = (hash ^ (high | u32::from(*byte))).wrapping_mul(16_777_619);
    }
    hash = hash.wrapping_mul((1 << 13) + 1);
    hash ^= hash >> 7;
    hash = hash.wrapping_mul(9);
    hash ^= hash >> 17;
    hash.wrapping_mul(33)
}

/// The first eight bytes as a number.
fn first_bytes(data: &[u8]) -> u64 {
    data.iter().take(8).fold(0, |value, b| value << 8 | u64::from(*b))
}

/// Calls `f` with the concatenation of both parts as 16-bit words in network order, the last one padded with zeros.
fn words16(data: &[u8], payload: &[u8], mut f: impl FnMut(u16)) {
    let mut data = data.chunks_exact(2);
    (&mut data).for_each(|pair| f(u16::from_be_bytes([pair[0], pair[1]])));
    let mut payload = payload;
    if let [odd] = data.remainder() {
        let next = payload.split_first();
        f(u16::from_be_bytes([*odd, next.map_or(0, |(first, _)| *first)]));
        payload = next.map_or(&[], |(_, rest)| rest);
    }
    let mut payload = payload.chunks_exact(2);
    (&mut payload).for_each(|pair| f(u16::from_be_bytes([pair[0], pair[1]])));
    if let [odd] = payload.remainder() {
        f(u16::from_be_bytes([*odd, 0]));
    }
}

fn sum16(data: &[u8], payload: &[u8]) -> u64 {
    let mut sum = 0u64;
    words16(data, payload, |word| sum += u64::from(word));
    sum
}

/// One's complement sum: adds the carries back in (RFC 1071).
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn xor16(data: &[u8], payload: &[u8]) -> u16 {
    let mut all = 0;
    words16(data, payload, |word| all ^= word);
    all
}

fn xor32(data: &[u8], payload: &[u8]) -> u32 {
    let bytes = data.iter().chain(payload);
    bytes.enumerate().fold(0, |all, (at, byte)| all ^ u32::from(*byte) << (24 - at % 4 * 8))
}

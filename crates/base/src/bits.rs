//! Bit-vector values of any width: the one place where P4 arithmetic is defined.
//!
//! The constant evaluator, the interpreter and the optimiser's constant folding all use this file, and compiled code is
//! tested against it. A [`Bits`] is a width and a pattern of that many bits; whether the pattern is read as `bit<W>` or
//! as `int<W>` (two's complement) is not part of the value. Where the reading matters, the operation's name states it
//! (`_u`/`_s`, `ult`/`slt`, `lshr`/`ashr`, `zext`/`sext`); all other operations are the same for both (P4_16
//! specification, sections "Operations on fixed-width bit types (unsigned integers)", "Operations on fixed-width signed
//! integers", "Casts").
//!
//! Invariants:
//! - bits above the width are always zero, and a value has exactly one representation, so derived `==` and `Hash` are
//!   equality of width and value;
//! - values are immutable; every operation returns a new one;
//! - no operation panics for any operand values; division by zero is `None`. The caller (type checker, IR verifier) is
//!   responsible for widths: binary operations require equal widths, which debug builds check; in release builds the
//!   result has the left operand's width. Only a width above [`MAX_WIDTH`] always panics.
//!
//! Up to 128 bits are stored inline in a `u128`, wider values in a `BigUint`. That is fast enough for an interpreter;
//! compiled code does not use this type.
//!
//! Tests: `bits/tests.rs`, every operation against `num-bigint` at widths on both sides of each word boundary.

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{One, ToPrimitive, Zero};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The maximum width: 2^20 bits, 128 KiB. Far above any header; it bounds the memory that a program can make the
/// compiler allocate.
pub const MAX_WIDTH: u32 = 1 << 20;

/// The maximum width that is stored inline, in bits.
const INLINE_WIDTH: u32 = u128::BITS;

/// A bit pattern of a given width. Serialised as its text form.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Bits {
    width: u32,
    value: Value,
}

/// `Small` exactly when the width is at most [`INLINE_WIDTH`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Value {
    Small(u128),
    Big(BigUint),
}

/// The `width` low bits set, for inline widths.
fn mask(width: u32) -> u128 {
    if width == 0 { 0 } else { u128::MAX >> (INLINE_WIDTH - width.min(INLINE_WIDTH)) }
}

/// The `width` low bits set, for any width.
fn big_mask(width: u32) -> BigUint {
    (BigUint::one() << width) - BigUint::one()
}

// Construction and conversion.
impl Bits {
    /// The low `width` bits of `value`.
    pub fn new(width: u32, value: u128) -> Bits {
        assert!(width <= MAX_WIDTH, "width {width} exceeds {MAX_WIDTH}");
        let value =
            if width <= INLINE_WIDTH { Value::Small(value & mask(width)) } else { Value::Big(BigUint::from(value)) };
        Bits { width, value }
    }

    /// Two's complement of `value`, wrapped or sign-extended to `width`.
    pub fn from_i128(width: u32, value: i128) -> Bits {
        if width <= INLINE_WIDTH {
            Bits::new(width, value as u128)
        } else {
            Bits::new(INLINE_WIDTH, value as u128).sext(width)
        }
    }

    /// All bits zero.
    pub fn zero(width: u32) -> Bits {
        Bits::new(width, 0)
    }

    /// All bits one.
    pub fn ones(width: u32) -> Bits {
        if width <= INLINE_WIDTH { Bits::new(width, u128::MAX) } else { Bits::from_biguint(width, &big_mask(width)) }
    }

    /// A one-bit value: `true` is 1.
    pub fn from_bool(b: bool) -> Bits {
        Bits::new(1, u128::from(b))
    }

    /// The low `width` bits of the big-endian number in `bytes`, which may be longer or shorter than the width.
    pub fn from_bytes_be(width: u32, bytes: &[u8]) -> Bits {
        let bytes = &bytes[bytes.len().saturating_sub(width.div_ceil(8) as usize)..];
        if width <= INLINE_WIDTH {
            Bits::new(width, bytes.iter().fold(0, |v, &b| v << 8 | u128::from(b)))
        } else {
            Bits::from_owned(width, BigUint::from_bytes_be(bytes))
        }
    }

    /// The low `width` bits of `value`.
    pub fn from_biguint(width: u32, value: &BigUint) -> Bits {
        Bits::from_owned(width, value.clone())
    }

    /// The low `width` bits of the two's complement of `value`.
    pub fn from_bigint(width: u32, value: &BigInt) -> Bits {
        let magnitude = Bits::from_biguint(width, value.magnitude());
        if value.sign() == Sign::Minus { magnitude.neg() } else { magnitude }
    }

    fn from_owned(width: u32, value: BigUint) -> Bits {
        if width <= INLINE_WIDTH {
            let low = value.iter_u64_digits().take(2).enumerate().fold(0, |v, (i, d)| v | u128::from(d) << (64 * i));
            return Bits::new(width, low);
        }
        assert!(width <= MAX_WIDTH, "width {width} exceeds {MAX_WIDTH}");
        let value = if value.bits() > u64::from(width) { value & big_mask(width) } else { value };
        Bits { width, value: Value::Big(value) }
    }

    /// The number of bits.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The unsigned value; `None` if it needs more than 128 bits.
    pub fn to_u128(&self) -> Option<u128> {
        match &self.value {
            Value::Small(v) => Some(*v),
            Value::Big(v) => v.to_u128(),
        }
    }

    /// The unsigned value; `None` if it needs more than 64 bits.
    pub fn to_u64(&self) -> Option<u64> {
        match &self.value {
            Value::Small(v) => u64::try_from(*v).ok(),
            Value::Big(v) => v.to_u64(),
        }
    }

    /// The two's complement value; `None` if it does not fit.
    pub fn to_i128(&self) -> Option<i128> {
        if self.width <= INLINE_WIDTH { Some(self.small_signed()) } else { self.to_bigint_signed().to_i128() }
    }

    /// The value as `ceil(width / 8)` bytes in network order, padded with zero bits on the left.
    pub fn to_bytes_be(&self) -> Vec<u8> {
        let len = self.width.div_ceil(8) as usize;
        match &self.value {
            Value::Small(v) => v.to_be_bytes()[16 - len..].to_vec(),
            Value::Big(v) => {
                // `BigUint` writes zero as one byte; the width here is above 128 bits, so it never exceeds `len`.
                let digits = v.to_bytes_be();
                let mut bytes = vec![0; len - digits.len()];
                bytes.extend(digits);
                bytes
            }
        }
    }

    /// The unsigned value.
    pub fn to_biguint(&self) -> BigUint {
        match &self.value {
            Value::Small(v) => BigUint::from(*v),
            Value::Big(v) => v.clone(),
        }
    }

    /// The two's complement value.
    pub fn to_bigint_signed(&self) -> BigInt {
        let value = BigInt::from(self.to_biguint());
        if self.is_negative() { value - (BigInt::one() << self.width) } else { value }
    }

    /// Whether every bit is zero.
    pub fn is_zero(&self) -> bool {
        match &self.value {
            Value::Small(v) => *v == 0,
            Value::Big(v) => v.is_zero(),
        }
    }

    /// Whether any bit is one; the reading of a width-1 value as `bool`.
    pub fn is_true(&self) -> bool {
        !self.is_zero()
    }

    /// Whether the top bit is set, that is, the two's complement value is below zero.
    pub fn is_negative(&self) -> bool {
        self.width > 0 && self.bit(self.width - 1)
    }

    /// Bit `i`, counting from 0 at the least significant end; `false` outside the width.
    pub fn bit(&self, i: u32) -> bool {
        match &self.value {
            Value::Small(v) => i < INLINE_WIDTH && v >> i & 1 == 1,
            Value::Big(v) => v.bit(u64::from(i)),
        }
    }

    /// The inline value sign-extended; the width must be inline.
    fn small_signed(&self) -> i128 {
        match (&self.value, self.width) {
            (Value::Small(_), 0) | (Value::Big(_), _) => 0,
            (Value::Small(v), w) => (*v << (INLINE_WIDTH - w)) as i128 >> (INLINE_WIDTH - w),
        }
    }
}

// Arithmetic. All results have the left operand's width.
impl Bits {
    /// Applies an operation on inline values, or on big ones; the result is truncated to the width.
    fn binary(
        &self,
        other: &Bits,
        small: impl FnOnce(u128, u128) -> u128,
        big: impl FnOnce(&BigUint, &BigUint) -> BigUint,
    ) -> Bits {
        debug_assert_eq!(self.width, other.width, "operands of different widths");
        match (&self.value, &other.value) {
            (Value::Small(a), Value::Small(b)) => Bits::new(self.width, small(*a, *b)),
            (Value::Big(a), Value::Big(b)) => Bits::from_owned(self.width, big(a, b)),
            _ => Bits::from_owned(self.width, big(&self.to_biguint(), &other.to_biguint())),
        }
    }

    /// Sum modulo 2^width.
    pub fn add(&self, other: &Bits) -> Bits {
        self.binary(other, u128::wrapping_add, |a, b| a + b)
    }

    /// Difference modulo 2^width.
    pub fn sub(&self, other: &Bits) -> Bits {
        self.binary(other, u128::wrapping_sub, |a, b| a + (BigUint::one() << self.width.max(other.width)) - b)
    }

    /// Product modulo 2^width.
    pub fn mul(&self, other: &Bits) -> Bits {
        self.binary(other, u128::wrapping_mul, |a, b| a * b)
    }

    /// Two's complement negation: `0 - self` modulo 2^width.
    pub fn neg(&self) -> Bits {
        Bits::zero(self.width).sub(self)
    }

    /// Unsigned quotient; `None` when `other` is zero.
    pub fn div_u(&self, other: &Bits) -> Option<Bits> {
        (!other.is_zero()).then(|| self.binary(other, |a, b| a / b, |a, b| a / b))
    }

    /// Unsigned remainder; `None` when `other` is zero.
    pub fn mod_u(&self, other: &Bits) -> Option<Bits> {
        (!other.is_zero()).then(|| self.binary(other, |a, b| a % b, |a, b| a % b))
    }

    /// `|+|` on `bit<W>`: the sum, or the largest value if it does not fit.
    pub fn sat_add_u(&self, other: &Bits) -> Bits {
        let top = self.width;
        self.binary(
            other,
            |a, b| a.checked_add(b).map_or(u128::MAX, |sum| sum.min(mask(top))),
            |a, b| (a + b).min(big_mask(top)),
        )
    }

    /// `|-|` on `bit<W>`: the difference, or zero if it is negative.
    pub fn sat_sub_u(&self, other: &Bits) -> Bits {
        self.binary(other, u128::saturating_sub, |a, b| if a > b { a - b } else { BigUint::zero() })
    }

    /// `|+|` on `int<W>`: the sum, or the nearest end of the range.
    pub fn sat_add_s(&self, other: &Bits) -> Bits {
        self.saturating_s(other, i128::saturating_add, |a, b| a + b)
    }

    /// `|-|` on `int<W>`: the difference, or the nearest end of the range.
    pub fn sat_sub_s(&self, other: &Bits) -> Bits {
        self.saturating_s(other, i128::saturating_sub, |a, b| a - b)
    }

    fn saturating_s(
        &self,
        other: &Bits,
        small: impl FnOnce(i128, i128) -> i128,
        big: impl FnOnce(BigInt, BigInt) -> BigInt,
    ) -> Bits {
        debug_assert_eq!(self.width, other.width, "operands of different widths");
        let Some(high_bit) = self.width.checked_sub(1) else { return self.clone() };
        if self.width <= INLINE_WIDTH && other.width <= INLINE_WIDTH {
            let max = (mask(self.width) >> 1) as i128;
            let result = small(self.small_signed(), other.small_signed()).clamp(-max - 1, max);
            return Bits::from_i128(self.width, result);
        }
        let bound = BigInt::one() << high_bit;
        let result = big(self.to_bigint_signed(), other.to_bigint_signed());
        Bits::from_bigint(self.width, &result.clamp(-&bound, &bound - BigInt::one()))
    }
}

// Bitwise operations and shifts.
impl Bits {
    /// Bitwise and.
    pub fn and(&self, other: &Bits) -> Bits {
        self.binary(other, |a, b| a & b, |a, b| a & b)
    }

    /// Bitwise or.
    pub fn or(&self, other: &Bits) -> Bits {
        self.binary(other, |a, b| a | b, |a, b| a | b)
    }

    /// Bitwise exclusive or.
    pub fn xor(&self, other: &Bits) -> Bits {
        self.binary(other, |a, b| a ^ b, |a, b| a ^ b)
    }

    /// Bitwise complement.
    pub fn not(&self) -> Bits {
        match &self.value {
            Value::Small(v) => Bits::new(self.width, !v),
            Value::Big(v) => Bits::from_owned(self.width, big_mask(self.width) ^ v),
        }
    }

    /// Left shift; `n >= width` gives zero.
    pub fn shl(&self, n: u64) -> Bits {
        if n >= u64::from(self.width) {
            return Bits::zero(self.width);
        }
        match &self.value {
            Value::Small(v) => Bits::new(self.width, v << n),
            Value::Big(v) => Bits::from_owned(self.width, v << n),
        }
    }

    /// Logical right shift (`>>` on `bit<W>`); `n >= width` gives zero.
    pub fn lshr(&self, n: u64) -> Bits {
        if n >= u64::from(self.width) {
            return Bits::zero(self.width);
        }
        match &self.value {
            Value::Small(v) => Bits::new(self.width, v >> n),
            Value::Big(v) => Bits::from_owned(self.width, v >> n),
        }
    }

    /// Arithmetic right shift (`>>` on `int<W>`); `n >= width` gives copies of the sign.
    pub fn ashr(&self, n: u64) -> Bits {
        let shifted = self.lshr(n);
        if !self.is_negative() {
            return shifted;
        }
        let kept = u64::from(self.width).saturating_sub(n);
        shifted.or(&Bits::ones(self.width).shl(kept))
    }
}

// Comparisons.
impl Bits {
    /// `self < other` on `bit<W>`.
    pub fn ult(&self, other: &Bits) -> bool {
        debug_assert_eq!(self.width, other.width, "operands of different widths");
        self.cmp_unsigned(other).is_lt()
    }

    /// `self <= other` on `bit<W>`.
    pub fn ule(&self, other: &Bits) -> bool {
        debug_assert_eq!(self.width, other.width, "operands of different widths");
        self.cmp_unsigned(other).is_le()
    }

    /// `self < other` on `int<W>`.
    pub fn slt(&self, other: &Bits) -> bool {
        self.cmp_signed(other).is_lt()
    }

    /// `self <= other` on `int<W>`.
    pub fn sle(&self, other: &Bits) -> bool {
        self.cmp_signed(other).is_le()
    }

    /// Order of the unsigned values; the widths may differ.
    fn cmp_unsigned(&self, other: &Bits) -> Ordering {
        match (&self.value, &other.value) {
            (Value::Small(a), Value::Small(b)) => a.cmp(b),
            (Value::Big(a), Value::Big(b)) => a.cmp(b),
            _ => self.to_biguint().cmp(&other.to_biguint()),
        }
    }

    /// Order of the two's complement values: of equal signs the patterns order the same way.
    fn cmp_signed(&self, other: &Bits) -> Ordering {
        debug_assert_eq!(self.width, other.width, "operands of different widths");
        other.is_negative().cmp(&self.is_negative()).then_with(|| self.cmp_unsigned(other))
    }
}

/// By unsigned value, then by width, so that the order agrees with `==`. For the P4 operators use
/// [`ult`](Bits::ult) and [`slt`](Bits::slt).
impl Ord for Bits {
    fn cmp(&self, other: &Bits) -> Ordering {
        self.cmp_unsigned(other).then(self.width.cmp(&other.width))
    }
}

impl PartialOrd for Bits {
    fn partial_cmp(&self, other: &Bits) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// Concatenation, slices, casts: the operations that change the width.
impl Bits {
    /// `self ++ low`: `self` becomes the most significant part.
    pub fn concat(&self, low: &Bits) -> Bits {
        let width = self.width + low.width;
        match (&self.value, &low.value) {
            (Value::Small(h), Value::Small(l)) if width <= INLINE_WIDTH => {
                Bits::new(width, h.checked_shl(low.width).unwrap_or(0) | l)
            }
            _ => Bits::from_owned(width, self.to_biguint() << low.width | low.to_biguint()),
        }
    }

    /// `self[hi:lo]`, both ends included; `lo <= hi < width`. Bits outside the width read as zero.
    pub fn slice(&self, hi: u32, lo: u32) -> Bits {
        debug_assert!(lo <= hi && hi < self.width, "slice [{hi}:{lo}] of {} bits", self.width);
        self.lshr(u64::from(lo)).resize_u((hi + 1).saturating_sub(lo))
    }

    /// `self` with `[hi:lo]` replaced by `v`, whose width is `hi - lo + 1`; `lo <= hi < width`.
    pub fn set_slice(&self, hi: u32, lo: u32, v: &Bits) -> Bits {
        debug_assert!(lo <= hi && hi < self.width, "slice [{hi}:{lo}] of {} bits", self.width);
        debug_assert_eq!(v.width, hi - lo + 1, "value for slice [{hi}:{lo}]");
        let hole = Bits::ones((hi + 1).saturating_sub(lo)).resize_u(self.width).shl(u64::from(lo));
        self.and(&hole.not()).or(&v.resize_u(self.width).shl(u64::from(lo)).and(&hole))
    }

    /// Cast to a wider (or equal) `bit<w>`: zeros on the left.
    pub fn zext(&self, w: u32) -> Bits {
        debug_assert!(w >= self.width, "zero extension of {} bits to {w}", self.width);
        self.resize_u(w)
    }

    /// Cast to a wider (or equal) `int<w>`: copies of the sign on the left.
    pub fn sext(&self, w: u32) -> Bits {
        debug_assert!(w >= self.width, "sign extension of {} bits to {w}", self.width);
        self.resize_s(w)
    }

    /// Cast to a narrower (or equal) width: the low bits.
    pub fn trunc(&self, w: u32) -> Bits {
        debug_assert!(w <= self.width, "truncation of {} bits to {w}", self.width);
        self.resize_u(w)
    }

    /// `bit<W>` to `bit<w>`: [`zext`](Bits::zext) or [`trunc`](Bits::trunc).
    pub fn resize_u(&self, w: u32) -> Bits {
        match &self.value {
            _ if w == self.width => self.clone(),
            Value::Small(v) => Bits::new(w, *v),
            Value::Big(v) => Bits::from_biguint(w, v),
        }
    }

    /// `int<W>` to `int<w>`: [`sext`](Bits::sext) or [`trunc`](Bits::trunc).
    pub fn resize_s(&self, w: u32) -> Bits {
        let resized = self.resize_u(w);
        if w > self.width && self.is_negative() {
            resized.or(&Bits::ones(w).shl(u64::from(self.width)))
        } else {
            resized
        }
    }
}

/// `<width>w0x<hex>`, as IR text writes constants; `{:#}` leaves the width out: `0x<hex>`.
impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            write!(f, "{}w", self.width)?;
        }
        match &self.value {
            Value::Small(v) => write!(f, "0x{v:x}"),
            Value::Big(v) => write!(f, "0x{v:x}"),
        }
    }
}

/// Why a text is not a [`Bits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseBitsError {
    /// Not of the form `<width>w<digits>`.
    Form,
    /// The width is not a number up to [`MAX_WIDTH`].
    Width,
    /// The digits are not a `0x`, `0o`, `0b` or decimal number.
    Digits,
    /// The value needs more bits than the width has.
    Range,
}

impl fmt::Display for ParseBitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseBitsError::Form => write!(f, "expected `<width>w<value>`, as `8w0xff`"),
            ParseBitsError::Width => write!(f, "expected a width of at most {MAX_WIDTH} bits"),
            ParseBitsError::Digits => write!(f, "expected a decimal, `0x`, `0o` or `0b` number"),
            ParseBitsError::Range => write!(f, "the value does not fit into the width"),
        }
    }
}

impl std::error::Error for ParseBitsError {}

impl Bits {
    /// Parses the output of `Display` (`32w0xff`), and other bases: `8w255`, `8w0b1010`. `_` may separate digits.
    ///
    /// # Errors
    ///
    /// The text does not have this form, the width is above [`MAX_WIDTH`], or the value does not fit the width.
    pub fn parse(text: &str) -> Result<Bits, ParseBitsError> {
        let (width, digits) = text.split_once('w').ok_or(ParseBitsError::Form)?;
        if width.is_empty() || !width.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseBitsError::Width);
        }
        let width = width.parse().ok().filter(|&w: &u32| w <= MAX_WIDTH).ok_or(ParseBitsError::Width)?;
        let (radix, digits) = match digits.get(..2) {
            Some("0x" | "0X") => (16, &digits[2..]),
            Some("0o" | "0O") => (8, &digits[2..]),
            Some("0b" | "0B") => (2, &digits[2..]),
            _ => (10, digits),
        };
        // `parse_bytes` accepts signs, and `_` anywhere but in front; a number has neither sign nor leading `_`.
        if !digits.starts_with(|c: char| c.is_digit(radix)) {
            return Err(ParseBitsError::Digits);
        }
        if width <= INLINE_WIDTH && !digits.contains('_') {
            // The fast path, for values up to 128 bits without `_`: nearly all constants.
            if let Ok(value) = u128::from_str_radix(digits, radix) {
                let fits = value & mask(width) == value;
                return if fits { Ok(Bits::new(width, value)) } else { Err(ParseBitsError::Range) };
            }
        }
        let value = BigUint::parse_bytes(digits.as_bytes(), radix).ok_or(ParseBitsError::Digits)?;
        if value.bits() > u64::from(width) { Err(ParseBitsError::Range) } else { Ok(Bits::from_owned(width, value)) }
    }
}

impl From<Bits> for String {
    fn from(bits: Bits) -> String {
        bits.to_string()
    }
}

impl TryFrom<String> for Bits {
    type Error = ParseBitsError;

    fn try_from(text: String) -> Result<Bits, ParseBitsError> {
        Bits::parse(&text)
    }
}

impl FromStr for Bits {
    type Err = ParseBitsError;

    fn from_str(text: &str) -> Result<Bits, ParseBitsError> {
        Bits::parse(text)
    }
}

#[cfg(test)]
mod tests;

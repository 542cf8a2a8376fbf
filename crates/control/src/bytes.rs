//! Integers as byte strings (P4Runtime specification, "Bytestrings").
//!
//! Received strings are big-endian and of any length above zero, as long as the value fits. Sent strings are the
//! shortest that represent the value, with at least one byte, so that what a controller reads equals what it wrote.

use crate::error::{Error, Result};
use base::Bits;
use std::fmt::Display;

/// The shortest string of an unsigned value.
pub fn canonical(value: &Bits) -> Vec<u8> {
    shortest(&value.to_bytes_be())
}

/// The shortest string of a two's complement value.
pub fn canonical_signed(value: &Bits) -> Vec<u8> {
    if !value.is_negative() {
        // A leading zero byte is needed where the sign bit of the shortest string would be set.
        let mut bytes = canonical(value);
        if bytes[0] & 0x80 != 0 {
            bytes.insert(0, 0);
        }
        return bytes;
    }
    let bytes = value.sext(value.width().div_ceil(8) * 8).to_bytes_be();
    let redundant = bytes.windows(2).take_while(|pair| pair[0] == 0xff && pair[1] & 0x80 != 0).count();
    bytes[redundant..].to_vec()
}

/// The string without leading zero bytes; at least one byte remains.
pub(crate) fn shortest(bytes: &[u8]) -> Vec<u8> {
    without_zeros(bytes).to_vec()
}

/// As [`shortest`], without a copy.
pub(crate) fn without_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    if zeros < bytes.len() { &bytes[zeros..] } else { &[0] }
}

/// Decodes a `bit<width>` value.
///
/// # Errors
///
/// OUT_OF_RANGE if it is empty or does not fit; the message names `what`.
pub fn parse(width: u32, bytes: &[u8], what: impl Display) -> Result<Bits> {
    if bytes.is_empty() {
        return Err(Error::out_of_range(format!("{what}: the value is empty; a zero is the byte 0x00")));
    }
    let digits = without_zeros(bytes);
    let bits = digits.len() as u64 * 8 - u64::from(digits[0].leading_zeros().min(7));
    if bits > u64::from(width) && digits != &[0][..] {
        return Err(Error::out_of_range(format!("{what}: the value 0x{} needs more than {width} bits", hex(digits))));
    }
    Ok(Bits::from_bytes_be(width, digits))
}

/// Decodes an `int<width>` value.
///
/// # Errors
///
/// OUT_OF_RANGE if it is empty or does not fit; the message names `what`.
pub fn parse_signed(width: u32, bytes: &[u8], what: impl Display) -> Result<Bits> {
    let Some(first) = bytes.first() else {
        return Err(Error::out_of_range(format!("{what}: the value is empty; a zero is the byte 0x00")));
    };
    let negative = first & 0x80 != 0;
    // Sign-extend to the full width, then check that the bits above the width are copies of the sign.
    let fill = if negative { 0xff } else { 0 };
    let redundant = bytes.iter().take_while(|b| **b == fill).count();
    let digits = &bytes[redundant..];
    let full_width = digits.len() as u32 * 8 + 1;
    if digits.len() as u64 * 8 > u64::from(width) + 7 {
        return Err(Error::out_of_range(format!("{what}: the value 0x{} needs more than {width} bits", hex(bytes))));
    }
    let mut with_sign = vec![fill];
    with_sign.extend(digits);
    let value = Bits::from_bytes_be(full_width, &with_sign);
    let narrowed = value.resize_s(width);
    if narrowed.resize_s(full_width.max(width)) != value.resize_s(full_width.max(width)) {
        return Err(Error::out_of_range(format!("{what}: the value 0x{} needs more than {width} bits", hex(bytes))));
    }
    Ok(narrowed)
}

/// Lower-case hexadecimal digits, for messages.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn unsigned_values_of_any_length_are_accepted_if_they_fit() {
        for (width, bytes, value) in [
            (8, &[0x63][..], 99),
            (16, &[0x00, 0x63], 99),
            (16, &[0x30, 0x64], 12388),
            (16, &[0x00, 0x30, 0x64], 12388),
            (12, &[0x00, 0x00, 0x63], 99),
            (9, &[0x01, 0xff], 511),
            (1, &[0x01], 1),
            (1, &[0x00], 0),
        ] {
            assert_eq!(parse(width, bytes, "x"), Ok(Bits::new(width, value)));
        }
        for (width, bytes) in [
            (8, &[0x01, 0x63][..]),
            (8, &[]),
            (16, &[0x01, 0x00, 0x63]),
            (12, &[0x10, 0x63]),
            (12, &[0x00, 0x40, 0x63]),
            (9, &[0x02, 0x00]),
        ] {
            assert_eq!(parse(width, bytes, "x").map_err(|e| e.code), Err(Code::OutOfRange), "{width} {bytes:?}");
        }
    }

    #[test]
    fn signed_values_of_any_length_are_accepted_if_they_fit() {
        for (width, bytes, value) in [
            (8, &[0x63][..], 99i128),
            (8, &[0x9d], -99),
            (8, &[0xff, 0x9d], -99),
            (12, &[0xfd, 0x1d], -739),
            (16, &[0x00, 0x00], 0),
            (16, &[0xff], -1),
            (12, &[0x00], 0),
        ] {
            assert_eq!(parse_signed(width, bytes, "x"), Ok(Bits::from_i128(width, value)), "{width} {bytes:?}");
        }
        for (width, bytes) in [(8, &[0x00, 0x9d][..]), (12, &[0x8d, 0x1d]), (16, &[]), (12, &[0x08, 0x00])] {
            assert_eq!(parse_signed(width, bytes, "x").map_err(|e| e.code), Err(Code::OutOfRange), "{width} {bytes:?}");
        }
    }

    #[test]
    fn answers_are_as_short_as_they_can_be() {
        assert_eq!(canonical(&Bits::zero(48)), [0]);
        assert_eq!(canonical(&Bits::new(48, 0x0a00)), [0x0a, 0x00]);
        assert_eq!(canonical(&Bits::zero(0)), [0]);
        for (width, value, bytes) in [
            (8, 99i128, &[0x63][..]),
            (8, -99, &[0x9d]),
            (12, -739, &[0xfd, 0x1d]),
            (16, 0, &[0]),
            (16, 200, &[0x00, 0xc8]),
            (16, -1, &[0xff]),
            (16, -200, &[0xff, 0x38]),
        ] {
            assert_eq!(canonical_signed(&Bits::from_i128(width, value)), bytes);
            assert_eq!(parse_signed(width, bytes, "x"), Ok(Bits::from_i128(width, value)));
        }
    }
}

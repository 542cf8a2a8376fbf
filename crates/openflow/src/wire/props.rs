//! Properties: the type-length-value lists of OpenFlow 1.4 and later, of 1.3's table features and of Nicira's extensions.
//!
//! A property's length counts its header and payload; it is followed by zeros up to a multiple of 8 bytes.

use super::{Reader, Result, Writer};
use crate::error::{Error, ErrorKind};

/// From this type on a property is an experimenter's.
const EXPERIMENTER: u16 = 0xffff;

/// What a property is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// OpenFlow's own, by its number.
    Standard(u16),
    /// An experimenter's: whose, and which of its types.
    Experimenter(u32, u32),
}

/// A property with what follows its header.
#[derive(Debug)]
pub(crate) struct Property<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its payload.
    pub(crate) payload: Reader<'a>,
}

/// The next property of a list.
pub(crate) fn read<'a>(r: &mut Reader<'a>) -> Result<Property<'a>> {
    let mut at = r.short(ErrorKind::BpcBadLen);
    let number = at.u16()?;
    let len = usize::from(at.u16()?);
    if len < 4 {
        return Err(Error::new(ErrorKind::BpcBadLen, format!("property {number} claims {len} bytes")));
    }
    let mut payload = at.sub(len - 4)?;
    let padding = len.next_multiple_of(8) - len;
    at.skip(padding)?;
    r.skip(len + padding)?;
    if number < EXPERIMENTER {
        return Ok(Property { kind: Kind::Standard(number), payload });
    }
    let experimenter = payload.u32()?;
    let kind = payload.u32()?;
    if experimenter == 0 {
        return Err(Error::new(ErrorKind::BpcBadExperimenter, "experimenter 0"));
    }
    Ok(Property { kind: Kind::Experimenter(experimenter, kind), payload })
}

impl Property<'_> {
    /// A payload of 8 bits; more bytes are ignored.
    pub(crate) fn u8(mut self) -> Result<u8> {
        self.payload.u8()
    }

    /// A payload of 16 bits; more bytes are ignored, as the specification pads it within the length.
    pub(crate) fn u16(mut self) -> Result<u16> {
        self.payload.u16()
    }

    /// A payload of 32 bits.
    pub(crate) fn u32(mut self) -> Result<u32> {
        let value = self.payload.u32()?;
        self.end(value)
    }

    /// A payload of 64 bits, behind four bytes of padding.
    pub(crate) fn u64(mut self) -> Result<u64> {
        self.payload.skip(4)?;
        let value = self.payload.u64()?;
        self.end(value)
    }

    fn end<T>(self, value: T) -> Result<T> {
        if self.payload.is_empty() { Ok(value) } else { Err(self.payload.bad_length("a property is too long")) }
    }

    /// The error for a property that is not known in this place.
    pub(crate) fn unknown(&self, place: &str) -> Error {
        match self.kind {
            Kind::Standard(number) => Error::new(ErrorKind::BpcBadType, format!("property {number} of {place}")),
            Kind::Experimenter(experimenter, kind) => {
                let known = [crate::error::NICIRA, crate::error::ONF].contains(&experimenter);
                let error = if known { ErrorKind::BpcBadExpType } else { ErrorKind::BpcBadExperimenter };
                Error::new(error, format!("property {kind} of experimenter {experimenter:#x} of {place}"))
            }
        }
    }
}

/// Appends a property; `payload` appends what follows its header.
pub(crate) fn write(out: &mut Vec<u8>, number: u16, payload: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let start = out.len();
    out.u16(number);
    out.u16(0);
    payload(out)?;
    end(out, start)
}

/// Appends an experimenter's property.
pub(crate) fn write_experimenter(
    out: &mut Vec<u8>,
    experimenter: u32,
    kind: u32,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    write(out, EXPERIMENTER, |out| {
        out.u32(experimenter);
        out.u32(kind);
        payload(out)
    })
}

/// Writes the length of the property that began at `start`, and pads it.
fn end(out: &mut Vec<u8>, start: usize) -> Result<()> {
    out.patch_length(start + 2, start)?;
    out.align(start);
    Ok(())
}

/// Appends a property of 8 bits.
pub(crate) fn write_u8(out: &mut Vec<u8>, number: u16, value: u8) {
    for word in [number, 5] {
        out.u16(word);
    }
    out.bytes(&[value, 0, 0, 0]);
}

/// Appends a property of 16 bits: its length counts two bytes of padding.
pub(crate) fn write_u16(out: &mut Vec<u8>, number: u16, value: u16) {
    for word in [number, 8, value, 0] {
        out.u16(word);
    }
}

/// Appends a property of 32 bits.
pub(crate) fn write_u32(out: &mut Vec<u8>, number: u16, value: u32) {
    out.u16(number);
    out.u16(8);
    out.u32(value);
}

/// Appends a property of 64 bits.
pub(crate) fn write_u64(out: &mut Vec<u8>, number: u16, value: u64) {
    out.u16(number);
    out.u16(16);
    out.u32(0);
    out.u64(value);
}

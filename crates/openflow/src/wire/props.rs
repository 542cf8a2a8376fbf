//! Properties: the TLV lists of OpenFlow 1.4 and later, of 1.3's table features and of Nicira's extensions.
//!
//! A property's length covers header and payload; zeros follow up to a multiple of 8 bytes.

use super::{Reader, Result, Writer};
use crate::error::{Error, ErrorKind};

/// The first experimenter type.
const EXPERIMENTER: u16 = 0xffff;

/// A property's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A type of OpenFlow's own.
    Standard(u16),
    /// An experimenter's: experimenter id and experimenter type.
    Experimenter(u32, u32),
}

/// A property without its header.
#[derive(Debug)]
pub(crate) struct Property<'a> {
    /// Its type.
    pub(crate) kind: Kind,
    /// Its payload.
    pub(crate) payload: Reader<'a>,
}

/// Reads the next property of a list.
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
    /// The payload as 8 bits; more bytes are ignored.
    pub(crate) fn u8(mut self) -> Result<u8> {
        self.payload.u8()
    }

    /// The payload as 16 bits; more bytes are ignored, since the specification counts padding in the length.
    pub(crate) fn u16(mut self) -> Result<u16> {
        self.payload.u16()
    }

    /// The payload as 32 bits.
    pub(crate) fn u32(mut self) -> Result<u32> {
        let value = self.payload.u32()?;
        self.end(value)
    }

    /// The payload as 64 bits, after four bytes of padding.
    pub(crate) fn u64(mut self) -> Result<u64> {
        self.payload.skip(4)?;
        let value = self.payload.u64()?;
        self.end(value)
    }

    fn end<T>(self, value: T) -> Result<T> {
        if self.payload.is_empty() { Ok(value) } else { Err(self.payload.bad_length("a property is too long")) }
    }

    /// The error for a property that is unknown in this place.
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

/// Appends a property; `payload` appends its payload.
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

/// Fills in the length of the property that begins at `start`, and pads it.
fn end(out: &mut Vec<u8>, start: usize) -> Result<()> {
    out.patch_length(start + 2, start)?;
    out.align(start);
    Ok(())
}

/// Appends a property with 8 bits.
pub(crate) fn write_u8(out: &mut Vec<u8>, number: u16, value: u8) {
    for word in [number, 5] {
        out.u16(word);
    }
    out.bytes(&[value, 0, 0, 0]);
}

/// Appends a property with 16 bits; its length counts two bytes of padding.
pub(crate) fn write_u16(out: &mut Vec<u8>, number: u16, value: u16) {
    for word in [number, 8, value, 0] {
        out.u16(word);
    }
}

/// Appends a property with 32 bits.
pub(crate) fn write_u32(out: &mut Vec<u8>, number: u16, value: u32) {
    out.u16(number);
    out.u16(8);
    out.u32(value);
}

/// Appends a property with 64 bits.
pub(crate) fn write_u64(out: &mut Vec<u8>, number: u16, value: u64) {
    out.u16(number);
    out.u16(16);
    out.u32(0);
    out.u64(value);
}

//! The wire layout of headers.
//!
//! A header consists of fixed segments, whose fields have constant bit offsets, and at most one varbit. If the varbit
//! does not begin at a byte boundary, the whole header is one segment ([`Segment::Odd`]), read and written as one wide
//! number.

use crate::error::Error;
use ir::{Field, Header, Program, SlotId};

/// A field of a fixed segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldAt {
    pub slot: SlotId,
    /// Offset in bits of the field's first (most significant) bit from the start of the segment.
    pub bit: u32,
    pub width: u32,
}

/// The varbit field of a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Varbit {
    /// The slot of its value, right-aligned.
    pub slot: SlotId,
    /// The slot of its current length in bits.
    pub length: SlotId,
    /// Its maximum length in bits.
    pub width: u32,
}

/// A segment of a header.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    /// Number of bytes, and the fields in wire order, without gaps.
    Fixed(u32, Vec<FieldAt>),
    /// A varbit that begins and ends at a byte boundary.
    Var(Varbit),
    /// A header whose varbit does not begin at a byte boundary: the fields before it, by offset from the header's
    /// start; the varbit; the fields after it, by offset from the varbit's end.
    Odd(Vec<FieldAt>, Varbit, Vec<FieldAt>),
}

/// A header's wire layout.
#[derive(Clone, Debug)]
pub(crate) struct HeaderLayout {
    /// In wire order.
    pub segments: Vec<Segment>,
    /// Length in bytes without the varbit.
    pub fixed_bytes: u32,
    /// Length in bytes with the longest varbit.
    pub max_bytes: u32,
    pub valid: SlotId,
    pub varbit: Option<Varbit>,
}

/// Total number of bits of consecutive fields that begin at offset 0.
pub(crate) fn bits_of(fields: &[FieldAt]) -> u32 {
    fields.last().map_or(0, |field| field.bit + field.width)
}

fn place(program: &Program, fields: &[Field]) -> Vec<FieldAt> {
    let mut bit = 0;
    let one = |field: &Field| {
        let width = program.width(field.slot);
        bit += width;
        FieldAt { slot: field.slot, bit: bit - width, width }
    };
    fields.iter().map(one).collect()
}

/// The layouts of a program's headers.
///
/// # Errors
/// [`Error::Unsupported`] if the length of a header is not a whole number of bytes.
pub(crate) fn layouts(program: &Program) -> Result<Vec<HeaderLayout>, Error> {
    program.headers.iter().map(|header| layout(program, header)).collect()
}

fn layout(program: &Program, header: &Header) -> Result<HeaderLayout, Error> {
    let at = header.fields.iter().position(|field| field.varbit_length.is_some());
    let varbit = at.and_then(|at| {
        let Field { slot, varbit_length, .. } = header.fields[at];
        varbit_length.map(|length| Varbit { slot, length, width: program.width(slot) })
    });
    let (before, after) = match at {
        Some(at) => (&header.fields[..at], &header.fields[at + 1..]),
        None => (&header.fields[..], &[][..]),
    };
    let (before, after) = (place(program, before), place(program, after));
    let fixed = bits_of(&before) + bits_of(&after);
    if !fixed.is_multiple_of(8) {
        let name = &header.name;
        return Err(Error::Unsupported(format!("header `{name}`: its length is not a whole number of bytes")));
    }
    let is_odd = varbit.is_some() && !bits_of(&before).is_multiple_of(8);
    let segments = match varbit {
        Some(varbit) if is_odd => vec![Segment::Odd(before, varbit, after)],
        _ => {
            let fixed =
                |fields: Vec<FieldAt>| (!fields.is_empty()).then(|| Segment::Fixed(bits_of(&fields) / 8, fields));
            fixed(before).into_iter().chain(varbit.map(Segment::Var)).chain(fixed(after)).collect()
        }
    };
    let max_bytes = (fixed + varbit.map_or(0, |varbit| varbit.width)).div_ceil(8);
    Ok(HeaderLayout { segments, fixed_bytes: fixed / 8, max_bytes, valid: header.valid, varbit })
}

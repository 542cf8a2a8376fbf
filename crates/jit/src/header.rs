//! The wire layout of headers.
//!
//! A header is a sequence of segments: fixed ones, whose fields have constant bit offsets, and at most one varbit. All
//! loads from packets and stores to them work on segments. If a varbit does not begin at a byte boundary, the whole
//! header is one segment ([`Segment::Odd`]) that is read and written as one wide number: rare and slow.

use crate::Error;
use ir::{HeaderId, Program, SlotId};

/// A field of a fixed segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldAt {
    /// The field's slot.
    pub slot: SlotId,
    /// Bits between the segment's start and the field's first (most significant) bit.
    pub bit: u32,
    /// Bits of the field.
    pub width: u32,
}

impl FieldAt {
    /// The first byte that holds bits of it.
    pub fn first_byte(&self) -> u32 {
        self.bit / 8
    }

    /// One past the last byte that holds bits of it.
    pub fn end_byte(&self) -> u32 {
        (self.bit + self.width).div_ceil(8)
    }
}

/// A part of a header.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    /// `bytes` bytes whose fields have constant offsets.
    Fixed {
        /// Length in bytes.
        bytes: u32,
        /// The fields in wire order, without gaps.
        fields: Vec<FieldAt>,
    },
    /// A varbit field of a multiple of 8 bits.
    Var {
        /// The slot of its value, right-aligned.
        slot: SlotId,
        /// The slot of its length in bits.
        length: SlotId,
        /// Its greatest length in bits.
        width: u32,
    },
    /// A whole header whose varbit does not begin at a byte boundary. The varbit's length is still a multiple of 8
    /// bits.
    Odd {
        /// The fields before the varbit, by offset from the header's start.
        before: Vec<FieldAt>,
        /// The slot of the varbit's value, right-aligned.
        slot: SlotId,
        /// The slot of its length in bits.
        length: SlotId,
        /// Its greatest length in bits.
        width: u32,
        /// The fields after the varbit, by offset from its end.
        after: Vec<FieldAt>,
    },
}

/// Bits of adjacent fields that begin at offset 0.
pub(crate) fn bits_of(fields: &[FieldAt]) -> u32 {
    fields.last().map_or(0, |f| f.bit + f.width)
}

/// A header's wire layout.
#[derive(Clone, Debug)]
pub(crate) struct HeaderLayout {
    /// The segments in wire order.
    pub segments: Vec<Segment>,
    /// Bytes without the varbit.
    pub fixed_bytes: u32,
    /// Bytes with the longest varbit.
    pub max_bytes: u32,
    /// The validity slot.
    pub valid: SlotId,
    /// The varbit's slots (value, length), if there is one.
    pub var: Option<(SlotId, SlotId)>,
}

impl HeaderLayout {
    /// The layout of `header`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a part of the header is not a whole number of bytes.
    pub fn new(program: &Program, header: HeaderId) -> Result<HeaderLayout, Error> {
        let h = &program.headers[header.index()];
        let odd =
            |what: &str| Error::Unsupported(format!("header `{}`: {what} is not a whole number of bytes", h.name));
        let varbit = h.fields.iter().position(|f| f.varbit_length.is_some());
        let bits_before: u32 = h.fields.iter().take(varbit.unwrap_or(0)).map(|f| program.width(f.slot)).sum();
        if let Some(at) = varbit.filter(|_| !bits_before.is_multiple_of(8)) {
            return HeaderLayout::odd(program, h, at).ok_or_else(|| odd("its length"));
        }
        let mut segments = Vec::new();
        let (mut fields, mut bit) = (Vec::new(), 0u32);
        let (mut fixed_bytes, mut max_bytes, mut var) = (0, 0, None);
        for field in &h.fields {
            let width = program.width(field.slot);
            match field.varbit_length {
                None => {
                    fields.push(FieldAt { slot: field.slot, bit, width });
                    bit += width;
                }
                Some(length) => {
                    if bit > 0 {
                        segments.push(Segment::Fixed { bytes: bit / 8, fields: std::mem::take(&mut fields) });
                    }
                    fixed_bytes += bit / 8;
                    max_bytes += width / 8;
                    bit = 0;
                    segments.push(Segment::Var { slot: field.slot, length, width });
                    var = Some((field.slot, length));
                }
            }
        }
        if !bit.is_multiple_of(8) {
            return Err(odd("its length"));
        }
        if bit > 0 {
            segments.push(Segment::Fixed { bytes: bit / 8, fields });
        }
        fixed_bytes += bit / 8;
        Ok(HeaderLayout { segments, fixed_bytes, max_bytes: max_bytes + fixed_bytes, valid: h.valid, var })
    }

    /// The layout of a header whose varbit is field `at`; `None` if the fixed part is not a whole number of bytes.
    fn odd(program: &Program, header: &ir::Header, at: usize) -> Option<HeaderLayout> {
        let place = |fields: &[ir::Field]| {
            let mut bit = 0;
            let mut one = |f: &ir::Field| {
                let width = program.width(f.slot);
                bit += width;
                FieldAt { slot: f.slot, bit: bit - width, width }
            };
            fields.iter().map(&mut one).collect::<Vec<FieldAt>>()
        };
        let (before, after) = (place(&header.fields[..at]), place(&header.fields[at + 1..]));
        let fixed = bits_of(&before) + bits_of(&after);
        let slot = header.fields[at].slot;
        let length = header.fields[at].varbit_length?;
        let width = program.width(slot);
        fixed.is_multiple_of(8).then(|| HeaderLayout {
            segments: vec![Segment::Odd { before, slot, length, width, after }],
            fixed_bytes: fixed / 8,
            max_bytes: (fixed + width).div_ceil(8),
            valid: header.valid,
            var: Some((slot, length)),
        })
    }

    /// Whether the header is one [`Segment::Odd`].
    pub fn is_odd(&self) -> bool {
        matches!(self.segments[..], [Segment::Odd { .. }])
    }
}

/// By byte of a fixed segment: whether it holds bits of a field that `dirty` says is modified.
pub(crate) fn dirty_bytes(bytes: u32, fields: &[FieldAt], dirty: impl Fn(SlotId) -> bool) -> Vec<bool> {
    let mut marks = vec![false; bytes as usize];
    for f in fields.iter().filter(|f| dirty(f.slot)) {
        marks[f.first_byte() as usize..f.end_byte() as usize].fill(true);
    }
    marks
}

/// The maximal runs of equal marks: `(mark, start, end)`.
pub(crate) fn runs(marks: &[bool]) -> Vec<(bool, u32, u32)> {
    let mut out: Vec<(bool, u32, u32)> = Vec::new();
    for (i, &mark) in marks.iter().enumerate() {
        match out.last_mut() {
            Some((m, _, end)) if *m == mark => *end = i as u32 + 1,
            _ => out.push((mark, i as u32, i as u32 + 1)),
        }
    }
    out
}

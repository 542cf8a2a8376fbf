//! The encoding of a field's values under each of its OXM or NXM numbers.
//!
//! Most fields have the same encoding under all of their numbers. Three of Nicira's older numbers differ; they are
//! normalised here, so that a flow is the same value whichever number it was sent with:
//!
//! | number | meaning |
//! | --- | --- |
//! | `NXM_OF_IN_PORT` | `in_port` in 16 bits: reserved ports begin at 0xff00 |
//! | `NXM_OF_IP_TOS` | `ip_dscp` in the upper six of eight bits |
//! | `NXM_OF_VLAN_TCI` | `vlan_pcp` and `vlan_vid` concatenated; the CFI bit is OpenFlow's `OFPVID_PRESENT` |
//!
//! A program may declare a field for the whole of `NXM_OF_VLAN_TCI`. Actions that write the CFI, and so add or remove a
//! tag, write this field; they are encoded as they were received.
//!
//! Registers of 64 and 128 bits are concatenated registers of 32 bits (ovs-fields(7)), which matches refer to.

use crate::action::{Subfield, port};
use crate::error::ErrorKind;
use crate::field::{FieldId, Fields, OxmNumber, class};
use crate::wire::{Result, fail};

/// `OFPVID_PRESENT`: the bit of `vlan_vid` for the presence of a tag (OpenFlow 1.3.5, 7.2.3.7).
pub(crate) const VLAN_PRESENT: u128 = 0x1000;

/// The field `vlan_vid`, if it has `OFPVID_PRESENT`.
pub(crate) fn vlan_vid(fields: &Fields) -> Option<FieldId> {
    fields.basic(6).filter(|id| fields.get(*id).width == 13)
}

/// The field of `NXM_OF_VLAN_TCI`, if the program declares one for the whole tag.
pub(crate) fn vlan_tci(fields: &Fields) -> Option<FieldId> {
    fields.numbered(VLAN_TCI).filter(|id| fields.get(*id).width == 16)
}

/// A number in class `OFPXMC_OPENFLOW_BASIC`.
pub(crate) const fn basic(field: u8) -> OxmNumber {
    OxmNumber { class: class::OPENFLOW_BASIC, field, experimenter: 0 }
}

/// A number in class `NXM_0`.
pub(crate) const fn nxm_0(field: u8) -> OxmNumber {
    OxmNumber { class: class::NXM_0, field, experimenter: 0 }
}

/// A number in class `NXM_1`.
pub(crate) const fn nxm_1(field: u8) -> OxmNumber {
    OxmNumber { class: class::NXM_1, field, experimenter: 0 }
}

/// `NXM_OF_IN_PORT`.
pub(crate) const IN_PORT: OxmNumber = nxm_0(0);
/// `NXM_OF_VLAN_TCI`.
pub(crate) const VLAN_TCI: OxmNumber = nxm_0(4);
/// `NXM_OF_IP_TOS`.
pub(crate) const IP_TOS: OxmNumber = nxm_0(5);

/// Which of a field's numbers is used for encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// The field's preferred number, normally OpenFlow's own.
    Oxm,
    /// Nicira's number, if the field has one.
    Nxm,
}

/// The encoding of values under a number, relative to the field's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// The same.
    Plain,
    /// A port number of 16 bits.
    Port,
    /// Shifted left by two bits.
    Tos,
}

/// A field under one of its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    /// The field.
    pub(crate) id: FieldId,
    /// The number.
    pub(crate) number: OxmNumber,
    /// The width of a value on the wire in bits.
    pub(crate) width: u32,
    /// The length of a value on the wire in bytes.
    pub(crate) bytes: usize,
    form: Form,
}

impl Known {
    fn new(id: FieldId, number: OxmNumber, fields: &Fields) -> Known {
        let field = fields.get(id);
        let (form, width, bytes) = match (number, field.width) {
            (IN_PORT, 17..) => (Form::Port, 16, 2),
            (IP_TOS, 6) => (Form::Tos, 8, 1),
            _ => (Form::Plain, field.width, field.bytes()),
        };
        Known { id, number, width, bytes, form }
    }

    /// The value on the wire with all bits set.
    pub(crate) fn full(&self) -> u128 {
        ones(self.width)
    }

    /// Converts a value and mask on the wire to the field's.
    pub(crate) fn read(&self, value: u128, mask: u128, fields: &Fields) -> (u128, u128) {
        match self.form {
            Form::Plain => (value, mask),
            Form::Port if mask == self.full() => (u128::from(port::from_16(value as u16)), fields.get(self.id).full()),
            Form::Port => (value, mask),
            Form::Tos => (value >> 2, mask >> 2),
        }
    }

    /// Converts the field's value and mask to those on the wire; `None` if the encoding lacks them.
    pub(crate) fn write(&self, value: u128, mask: u128, fields: &Fields) -> Option<(u128, u128)> {
        match self.form {
            Form::Plain => Some((value, mask)),
            Form::Port if mask == fields.get(self.id).full() => {
                let number = u32::try_from(value).ok().and_then(port::to_16)?;
                Some((u128::from(number), self.full()))
            }
            Form::Port => (mask <= self.full()).then_some((value, mask)),
            Form::Tos if mask == fields.get(self.id).full() => Some((value << 2, self.full())),
            Form::Tos => Some((value << 2, mask << 2)),
        }
    }

    /// Converts a subfield to offset and number of bits on the wire.
    pub(crate) fn write_bits(&self, bits: Subfield, fields: &Fields) -> Option<(u32, u32)> {
        match self.form {
            Form::Plain => Some((bits.offset, bits.bits)),
            Form::Port if bits.offset == 0 && bits.bits == fields.get(self.id).width => Some((0, 16)),
            Form::Port => (bits.offset + bits.bits <= 16).then_some((bits.offset, bits.bits)),
            Form::Tos => Some((bits.offset + 2, bits.bits)),
        }
    }

    /// Converts an offset and number of bits on the wire, which must be within the value, to a subfield.
    fn read_bits(&self, offset: u32, bits: u32) -> Option<Subfield> {
        let offset = if self.form == Form::Tos { offset.checked_sub(2)? } else { offset };
        Some(Subfield { field: self.id, offset, bits })
    }
}

/// A mask of the `bits` lowest bits.
pub(crate) fn ones(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// The field with a number.
pub(crate) fn known(number: OxmNumber, fields: &Fields) -> Option<Known> {
    let of_width = |basic: u8, width: u32| fields.basic(basic).filter(|id| fields.get(*id).width == width);
    // A program may declare a separate field for Nicira's number; it must be the same field as OpenFlow's nevertheless.
    let id = match number {
        IN_PORT => of_width(0, 32),
        IP_TOS => of_width(8, 6),
        _ => None,
    };
    let id = id.or_else(|| fields.numbered(number))?;
    Some(Known::new(id, number, fields))
}

/// The number under which a field is encoded.
pub(crate) fn number_of(id: FieldId, style: Style, fields: &Fields) -> Option<Known> {
    let numbers = &fields.get(id).numbers;
    let nicira = |number: &&OxmNumber| matches!(number.class, class::NXM_0 | class::NXM_1);
    let older =
        || [IN_PORT, IP_TOS].into_iter().find(|number| known(*number, fields).is_some_and(|known| known.id == id));
    let number = match style {
        Style::Oxm => numbers.first().copied(),
        Style::Nxm => numbers.iter().find(nicira).copied().or_else(older).or_else(|| numbers.first().copied()),
    };
    number.map(|number| Known::new(id, number, fields))
}

/// `NXM_OF_VLAN_TCI`, if the subfield is of a VLAN id without `OFPVID_PRESENT`: the name that Open vSwitch uses.
pub(crate) fn in_vlan_tci(bits: Subfield, fields: &Fields) -> Option<Known> {
    let vid = parts(VLAN_TCI, fields)?.pop().filter(|vid| vid.id == bits.field)?;
    (bits.offset + bits.bits < vid.width).then(|| Known::new(vid.id, VLAN_TCI, fields))
}

/// A field that is part of a longer value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The field.
    pub(crate) id: FieldId,
    /// Its lowest bit in the value.
    pub(crate) lo: u32,
    /// Its width in bits.
    pub(crate) width: u32,
}

/// The concatenated fields under a number, the most significant first; `None` if the number has no parts or a part is
/// missing. Bits outside the parts are zero.
pub(crate) fn parts(number: OxmNumber, fields: &Fields) -> Option<Vec<Part>> {
    let at = |number: OxmNumber, lo: u32, width: u32| {
        let id = fields.numbered(number)?;
        (fields.get(id).width == width).then_some(Part { id, lo, width })
    };
    let registers = |first: u8, count: u8| {
        (0..count).map(|i| at(nxm_1(first + i), 32 * u32::from(count - 1 - i), 32)).collect::<Option<Vec<Part>>>()
    };
    match number {
        VLAN_TCI => Some(vec![at(basic(7), 13, 3)?, at(basic(6), 0, 13)?]),
        IP_TOS => Some(vec![at(basic(8), 2, 6)?]),
        OxmNumber { class: class::PACKET_REGISTERS, field: n @ 0..8, .. } => registers(2 * n, 2),
        OxmNumber { class: class::NXM_1, field: n @ 111..115, .. } => registers(4 * (n - 111), 4),
        _ => None,
    }
}

/// The subfield that an action names by a number, an offset and a number of bits.
pub(crate) fn subfield(number: OxmNumber, len: usize, offset: u32, bits: u32, fields: &Fields) -> Result<Subfield> {
    let known = known(number, fields);
    let parts = parts(number, fields);
    let (width, bytes) = match (&known, &parts) {
        (Some(known), _) => (known.width, known.bytes),
        (None, Some(parts)) => {
            let width = parts.iter().map(|part| part.width).sum::<u32>();
            (width, width as usize / 8)
        }
        (None, None) => return fail(ErrorKind::BacBadSetType, unknown(number)),
    };
    if len != bytes {
        return fail(
            ErrorKind::BacBadSetLen,
            format!("{bytes} bytes, not {len}, are in a value of {}", unknown(number)),
        );
    }
    if bits == 0 || offset >= width || bits > width - offset {
        return fail(ErrorKind::BacBadSetLen, format!("bits {offset}, {bits} of them, of {width} bits"));
    }
    let within = |part: &&Part| part.lo <= offset && offset + bits <= part.lo + part.width;
    if let Some(part) = parts.iter().flatten().find(within) {
        return Ok(Subfield { field: part.id, offset: offset - part.lo, bits });
    }
    match known {
        Some(known) => match known.read_bits(offset, bits) {
            Some(bits) => Ok(bits),
            None => fail(ErrorKind::BacBadSetLen, "the lowest two bits of the type of service cannot be named"),
        },
        None => fail(ErrorKind::BacBadSetType, format!("{} is only known in parts", unknown(number))),
    }
}

/// A name for an unknown field, from its number.
pub(crate) fn unknown(number: OxmNumber) -> String {
    match number.class {
        class::EXPERIMENTER => format!("field {} of experimenter {:#x}", number.field, number.experimenter),
        class => format!("field {} of class {class:#x}", number.field),
    }
}

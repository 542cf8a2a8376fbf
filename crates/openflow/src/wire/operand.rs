//! Operands shared by OpenFlow's own and experimenters' actions: ports, fields, subfields, padding.

use crate::action::{Action, HeaderAction, Subfield, port};
use crate::error::ErrorKind;
use crate::field::{FieldId, Fields};
use crate::wire::number::{self, Known, Style, VLAN_PRESENT, VLAN_TCI};
use crate::wire::oxm::{Entry, Header};
use crate::wire::{Reader, Result, Writer, fail, unencodable};

/// `OFPAT_EXPERIMENTER`.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

/// Refuses an action whose length, header included, is not `len`.
pub(crate) fn exactly(len: usize, body: &Reader) -> Result<()> {
    let has = body.position() + body.left();
    if has == len { Ok(()) } else { fail(ErrorKind::BacBadLen, format!("an action of {has} bytes, not {len}")) }
}

/// Refuses padding that is not zero.
pub(crate) fn zeros(bytes: &[u8], kind: ErrorKind) -> Result<()> {
    if bytes.iter().all(|byte| *byte == 0) { Ok(()) } else { fail(kind, "bytes that must be zero are not") }
}

/// Refuses ports that cannot be output to.
pub(crate) fn output_port(number: u32) -> Result<u32> {
    match number {
        1..port::MAX | port::IN_PORT..=port::LOCAL => Ok(number),
        _ => fail(ErrorKind::BacBadOutPort, format!("nothing is sent to port {number}")),
    }
}

/// A header action.
pub(crate) fn header(name: HeaderAction, argument: u128) -> Action {
    Action::Header { name, argument }
}

/// Reads an EtherType, which must be one of `may`.
pub(crate) fn ether_type(r: &mut Reader, may: &[u16]) -> Result<u128> {
    let found = r.u16()?;
    if may.contains(&found) {
        Ok(found.into())
    } else {
        fail(ErrorKind::BacBadArgument, format!("a tag with EtherType {found:#06x}"))
    }
}

/// Refuses a value above a maximum.
pub(crate) fn limited(value: u128, max: u128) -> Result<u128> {
    if value <= max { Ok(value) } else { fail(ErrorKind::BacBadArgument, format!("{value:#x} is more than {max:#x}")) }
}

/// Refuses fields that actions may not write.
pub(crate) fn check_writable(field: FieldId, fields: &Fields) -> Result<()> {
    let field = fields.get(field);
    if field.writable {
        Ok(())
    } else {
        fail(ErrorKind::BacBadSetArgument, format!("`{}` cannot be written", field.name))
    }
}

/// Appends the actions that set an OXM entry's value under its mask.
pub(crate) fn set(entry: &Entry, fields: &Fields, actions: &mut Vec<Action>) -> Result<()> {
    if entry.is_cookie {
        return fail(ErrorKind::BacBadSetType, "no action writes a cookie");
    }
    if entry.number == VLAN_TCI && number::parts(VLAN_TCI, fields).is_some() && entry.mask & VLAN_PRESENT != 0 {
        // A write of the CFI adds or removes the tag (ovs-fields(7)).
        if let Some(field) = number::vlan_tci(fields) {
            check_writable(field, fields)?;
            actions.push(Action::SetField { field, value: entry.value, mask: entry.mask });
        } else if entry.value & VLAN_PRESENT == 0 {
            actions.push(header(HeaderAction::PopVlan, 0));
        } else if entry.mask == number::ones(16) {
            actions.push(header(HeaderAction::SetVlanVid, entry.value & 0xfff));
            actions.push(header(HeaderAction::SetVlanPcp, entry.value >> 13));
        } else {
            return fail(ErrorKind::BacBadSetArgument, "a part of a VLAN tag together with its CFI");
        }
        return Ok(());
    }
    if let Some(known) = number::known(entry.number, fields) {
        check_writable(known.id, fields)?;
        let (value, mask) = known.read(entry.value, entry.mask, fields);
        actions.push(Action::SetField { field: known.id, value, mask });
        return Ok(());
    }
    let Some(parts) = number::parts(entry.number, fields) else {
        return fail(ErrorKind::BacBadSetType, format!("there is no {}", number::unknown(entry.number)));
    };
    for part in parts {
        let (value, mask) =
            (entry.value >> part.lo & number::ones(part.width), entry.mask >> part.lo & number::ones(part.width));
        if mask != 0 {
            check_writable(part.id, fields)?;
            actions.push(Action::SetField { field: part.id, value, mask });
        }
    }
    Ok(())
}

/// Decodes a copy: two offsets, `pad` ignored bytes, two OXM headers.
pub(crate) fn read_copy(bits: u16, r: &mut Reader, pad: usize, fields: &Fields) -> Result<Action> {
    let offsets = [r.u16()?, r.u16()?];
    r.skip(pad)?;
    let from = subfield_of(Header::read(r)?, offsets[0].into(), bits.into(), fields)?;
    let to = subfield_of(Header::read(r)?, offsets[1].into(), bits.into(), fields)?;
    zeros(r.rest(), ErrorKind::NxbrcMustBeZero)?;
    check_writable(to.field, fields)?;
    Ok(Action::Move { from, to })
}

/// The subfield of the field in an OXM header.
pub(crate) fn subfield_of(header: Header, offset: u32, bits: u32, fields: &Fields) -> Result<Subfield> {
    if header.has_mask {
        return fail(ErrorKind::BmcBadMask, "a field is named with a mask");
    }
    number::subfield(header.number, header.len, offset, bits, fields)
}

/// A port in 16 bits, for OpenFlow 1.0 and Nicira's formats.
pub(crate) fn port_16(number: u32) -> Result<u16> {
    port::to_16(number).map_or_else(|| unencodable(format!("port {number} does not fit in 16 bits")), Ok)
}

/// Pads the structure that begins at `start` and fills in its length.
pub(crate) fn finish(start: usize, out: &mut Vec<u8>) -> Result<()> {
    out.align(start);
    out.patch_length(start + 2, start)
}

/// The operands of a copy on the wire: fields, offsets and the number of bits.
pub(crate) struct Ends {
    known: [Known; 2],
    offsets: [u32; 2],
    bits: u32,
}

/// The operands of a copy in an encoding style.
pub(crate) fn ends_of(from: Subfield, to: Subfield, style: Style, fields: &Fields) -> Result<Ends> {
    let (from, offset_from, bits_from) = bits_of(from, style, fields)?;
    let (to, offset_to, bits_to) = bits_of(to, style, fields)?;
    // Only a port's two lengths can differ: Nicira's 16 bits stand for all of the field.
    Ok(Ends { known: [from, to], offsets: [offset_from, offset_to], bits: bits_from.min(bits_to) })
}

/// A subfield in an encoding style: the field, the offset and the number of bits.
pub(crate) fn bits_of(bits: Subfield, style: Style, fields: &Fields) -> Result<(Known, u32, u32)> {
    let name = &fields.get(bits.field).name;
    let Some(known) = number::number_of(bits.field, style, fields) else {
        return unencodable(format!("`{name}` has no OXM number"));
    };
    match known.write_bits(bits, fields) {
        Some((offset, bits)) => Ok((known, offset, bits)),
        None => unencodable(format!("bits {} to {} of `{name}`", bits.offset, bits.offset + bits.bits)),
    }
}

/// Encodes a copy: the number of bits, offsets, `pad` zeros, OXM headers.
pub(crate) fn write_copy(ends: &Ends, pad: usize, out: &mut Vec<u8>) {
    out.u16(ends.bits as u16);
    out.u16(ends.offsets[0] as u16);
    out.u16(ends.offsets[1] as u16);
    out.zeros(pad);
    for known in &ends.known {
        Header::of(known, false).write(out);
    }
}

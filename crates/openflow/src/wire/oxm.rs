//! Matches as lists of OXM and NXM TLVs (OpenFlow 1.3.5, 7.2.3; ovs-fields(7)), and the headers of such TLVs.
//!
//! A TLV is a header (class, field, mask bit, length), a value and an optional mask. OpenFlow 1.0's fixed match
//! structure is in [`match10`](super::match10).
//!
//! OXM and NXM numbers are decoded in every version, as in Open vSwitch. A field must follow its prerequisites, and is
//! encoded in that order.

use crate::error::ErrorKind;
use crate::field::{FieldId, Fields, OxmNumber, class};
use crate::matching::Match;
use crate::message::Version;
use crate::wire::number::{self, Known, Part, Style, VLAN_PRESENT, VLAN_TCI};
use crate::wire::{Reader, Result, Writer, fail, match10, unencodable};

/// `OFPMT_OXM`.
const TYPE_OXM: u16 = 1;
/// `NXM_NX_COOKIE`: appears in matches but is no field of a packet. `NXM_NX_MPLS_TTL` has the same number, so that only
/// the length of the value tells them apart.
const COOKIE: OxmNumber = number::nxm_1(30);
/// The length of a cookie in bytes.
const COOKIE_LEN: usize = 8;

/// The header of an OXM TLV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The field's number.
    pub(crate) number: OxmNumber,
    /// Whether a mask follows the value.
    pub(crate) has_mask: bool,
    /// The length of value and mask in bytes.
    pub(crate) len: usize,
}

impl Header {
    /// Decodes a header: four bytes, or eight for an experimenter's.
    pub(crate) fn read(r: &mut Reader) -> Result<Header> {
        let bits = r.u32()?;
        let class = (bits >> 16) as u16;
        let mut len = (bits & 0xff) as usize;
        let mut experimenter = 0;
        if class == class::EXPERIMENTER {
            experimenter = r.u32()?;
            len = match len.checked_sub(4) {
                Some(len) => len,
                None => return Err(r.bad_length("an experimenter's field is shorter than its header")),
            };
        }
        let number = OxmNumber { class, field: (bits >> 9) as u8 & 0x7f, experimenter };
        Ok(Header { number, has_mask: bits >> 8 & 1 != 0, len })
    }

    /// The header of a TLV with this field.
    pub(crate) fn of(known: &Known, has_mask: bool) -> Header {
        Header { number: known.number, has_mask, len: known.bytes * (1 + usize::from(has_mask)) }
    }

    /// Encodes the header.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let is_experimenter = self.number.class == class::EXPERIMENTER;
        let len = self.len + if is_experimenter { 4 } else { 0 };
        out.u16(self.number.class);
        out.u8(self.number.field << 1 | u8::from(self.has_mask));
        out.u8(len as u8);
        if is_experimenter {
            out.u32(self.number.experimenter);
        }
    }

    /// The length of the value alone in bytes.
    fn value_len(&self) -> usize {
        if self.has_mask { self.len / 2 } else { self.len }
    }

    /// Whether it is that of a cookie, and not of a field with the same number.
    fn is_cookie(&self, fields: &Fields) -> bool {
        self.number == COOKIE
            && self.value_len() == COOKIE_LEN
            && number::known(COOKIE, fields).is_none_or(|known| known.bytes != COOKIE_LEN)
    }
}

/// An OXM TLV of a known field, as on the wire.
pub(crate) struct Entry {
    /// The field's number.
    pub(crate) number: OxmNumber,
    /// Whether it is a cookie.
    pub(crate) is_cookie: bool,
    /// The width under this number in bits.
    pub(crate) width: u32,
    /// Whether a mask was sent.
    pub(crate) has_mask: bool,
    /// The value.
    pub(crate) value: u128,
    /// The mask; all ones if none was sent.
    pub(crate) mask: u128,
}

/// The kinds of errors that a TLV can have, which differ between matches and actions.
pub(crate) struct Kinds {
    pub(crate) field: ErrorKind,
    pub(crate) length: ErrorKind,
    pub(crate) value: ErrorKind,
}

const IN_MATCH: Kinds =
    Kinds { field: ErrorKind::BmcBadField, length: ErrorKind::BmcBadLen, value: ErrorKind::BmcBadValue };

/// The width in bits and the length in bytes of values under a header's number.
fn size_of(header: &Header, fields: &Fields) -> Option<(u32, usize)> {
    if header.is_cookie(fields) {
        return Some((64, COOKIE_LEN));
    }
    if let Some(known) = number::known(header.number, fields) {
        return Some((known.width, known.bytes));
    }
    let width = number::parts(header.number, fields)?.iter().map(|part| part.width).sum::<u32>();
    Some((width, width as usize / 8))
}

/// Decodes a TLV.
pub(crate) fn read_entry(r: &mut Reader, kinds: &Kinds, fields: &Fields) -> Result<Entry> {
    let header = Header::read(r)?;
    let Some((width, bytes)) = size_of(&header, fields) else {
        return fail(kinds.field, format!("there is no {}", number::unknown(header.number)));
    };
    if header.value_len() != bytes || header.has_mask && header.len % 2 != 0 {
        return fail(kinds.length, format!("{}: {} bytes", number::unknown(header.number), header.len));
    }
    let full = number::ones(width);
    let value = r.uint(bytes)?;
    let mask = if header.has_mask { r.uint(bytes)? } else { full };
    if header.has_mask && value & !mask != 0 {
        return fail(
            ErrorKind::BmcBadWildcards,
            format!("{}: a value has bits outside its mask", number::unknown(header.number)),
        );
    }
    if value & !full != 0 {
        return fail(kinds.value, format!("{}: more than {width} bits", number::unknown(header.number)));
    }
    let is_cookie = header.is_cookie(fields);
    Ok(Entry { number: header.number, is_cookie, width, has_mask: header.has_mask, value, mask: mask & full })
}

/// Decodes the `ofp_match` of a version.
pub(crate) fn read_match(version: Version, r: &mut Reader, fields: &Fields) -> Result<Match> {
    if version == Version::V10 {
        return match10::read(r, fields);
    }
    let mut bytes = r.short(ErrorKind::BmcBadLen);
    let kind = bytes.u16()?;
    let len = usize::from(bytes.u16()?);
    if len < 4 {
        return fail(ErrorKind::BmcBadLen, format!("a match of {len} bytes"));
    }
    if kind != TYPE_OXM {
        return fail(ErrorKind::BmcBadType, format!("a match of type {kind}"));
    }
    let entries = bytes.sub(len - 4)?;
    bytes.skip(len.next_multiple_of(8) - len)?;
    r.skip(len.next_multiple_of(8))?;
    read_entries(entries, fields, None)
}

/// Decodes `len` bytes of TLVs.
pub(crate) fn read_nx_match(len: usize, r: &mut Reader, fields: &Fields) -> Result<Match> {
    let entries = r.short(ErrorKind::BmcBadLen).sub(len)?;
    r.skip(len)?;
    read_entries(entries, fields, None)
}

/// The same for a match that may include a cookie; the cookie and its mask are zero if absent.
pub(crate) fn read_nx_match_with_cookie(len: usize, r: &mut Reader, fields: &Fields) -> Result<(Match, u64, u64)> {
    let entries = r.short(ErrorKind::BmcBadLen).sub(len)?;
    r.skip(len)?;
    let mut cookie = (0, 0);
    let matching = read_entries(entries, fields, Some(&mut cookie))?;
    Ok((matching, cookie.0, cookie.1))
}

fn read_entries(mut r: Reader, fields: &Fields, mut cookie: Option<&mut (u64, u64)>) -> Result<Match> {
    let mut matching = Match::any();
    while !r.is_empty() {
        let entry = read_entry(&mut r, &IN_MATCH, fields)?;
        if entry.is_cookie {
            match cookie.as_deref_mut() {
                None => return fail(ErrorKind::BmcBadField, "a cookie cannot be matched here"),
                Some(cookie) if cookie.1 != 0 => return fail(ErrorKind::BmcDupField, "two cookies"),
                Some(cookie) => *cookie = (entry.value as u64, entry.mask as u64),
            }
            continue;
        }
        match number::parts(entry.number, fields) {
            Some(parts) => add_parts(&mut matching, &entry, &parts, fields)?,
            None => {
                let Some(known) = number::known(entry.number, fields) else {
                    return fail(ErrorKind::BmcBadField, format!("there is no {}", number::unknown(entry.number)));
                };
                let (value, mask) = known.read(entry.value, entry.mask, fields);
                add(&mut matching, known.id, value, mask, fields)?;
            }
        }
    }
    Ok(matching)
}

/// Adds a term to a match; refuses a mask that the field does not allow, missing prerequisites and duplicates.
fn add(matching: &mut Match, id: FieldId, value: u128, mask: u128, fields: &Fields) -> Result<()> {
    let field = fields.get(id);
    if !field.maskable && mask != 0 && mask != field.full() {
        return fail(ErrorKind::BmcBadMask, format!("`{}` cannot be masked", field.name));
    }
    if !matching.provides(id, fields) {
        return fail(ErrorKind::BmcBadPrereq, format!("`{}` needs another field", field.name));
    }
    if !matching.add(id, value, mask) {
        return fail(ErrorKind::BmcDupField, format!("`{}` twice", field.name));
    }
    Ok(())
}

/// Adds a term for each of the concatenated fields of a TLV.
fn add_parts(matching: &mut Match, entry: &Entry, parts: &[Part], fields: &Fields) -> Result<()> {
    let mut mask = entry.mask;
    let all = parts.iter().fold(0, |all, part| all | number::ones(part.width) << part.lo);
    if entry.value & !all != 0 {
        return fail(ErrorKind::BmcBadValue, "bits that are always zero");
    }
    if entry.number == VLAN_TCI {
        let (no_tag, pcp) = (entry.value & VLAN_PRESENT == 0 && mask & VLAN_PRESENT != 0, entry.value >> 13);
        if no_tag {
            // An untagged packet has only zeros here, so that other values can never match.
            if entry.value != 0 {
                return fail(ErrorKind::BmcBadValue, "VLAN bits of packets without a tag");
            }
            return add(matching, parts[1].id, 0, mask & number::ones(13), fields);
        }
        if mask >> 13 != 0 && mask & VLAN_PRESENT == 0 {
            if pcp == 0 {
                return fail(ErrorKind::BmcBadMask, "VLAN priority 0 with or without a tag");
            }
            // A priority other than zero implies a tag.
            mask |= VLAN_PRESENT;
        }
    }
    let value = if mask == entry.mask { entry.value } else { entry.value | VLAN_PRESENT };
    // The least significant first: `OFPVID_PRESENT` of the VLAN id is a prerequisite of the priority.
    for part in parts.iter().rev() {
        let (value, mask) = (value >> part.lo & number::ones(part.width), mask >> part.lo & number::ones(part.width));
        if mask != 0 {
            add(matching, part.id, value, mask, fields)?;
        }
    }
    Ok(())
}

/// Encodes the `ofp_match` of a version.
pub(crate) fn write_match(version: Version, matching: &Match, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    if version == Version::V10 {
        return match10::write(matching, fields, out);
    }
    let start = out.len();
    out.u16(TYPE_OXM);
    out.u16(0);
    write_entries(Style::Oxm, matching, fields, out)?;
    out.patch_length(start + 2, start)?;
    out.align(start);
    Ok(())
}

/// Encodes TLVs without a header; in OpenFlow 1.0 with Nicira's numbers.
pub(crate) fn write_nx_match(version: Version, matching: &Match, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    write_entries(style(version), matching, fields, out)
}

/// The encoding style of a version.
pub(crate) fn style(version: Version) -> Style {
    if version == Version::V10 { Style::Nxm } else { Style::Oxm }
}

fn write_entries(style: Style, matching: &Match, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let terms = matching.ordered_terms(fields);
    let tag = if style == Style::Nxm { number::parts(VLAN_TCI, fields) } else { None };
    let mut has_tag = false;
    for term in terms {
        if let Some(tag) = tag.as_ref().filter(|tag| tag.iter().any(|part| part.id == term.field)) {
            if !has_tag {
                write_tag(matching, tag, out);
            }
            has_tag = true;
            continue;
        }
        let field = fields.get(term.field);
        let Some(known) = number::number_of(term.field, style, fields) else {
            return unencodable(format!("`{}` has no OXM number", field.name));
        };
        let Some((value, mask)) = known.write(term.value, term.mask, fields) else {
            return unencodable(format!("`{}`: {:#x}", field.name, term.value));
        };
        write_entry(&known, value, mask, out);
    }
    Ok(())
}

fn write_tag(matching: &Match, parts: &[Part], out: &mut Vec<u8>) {
    let (mut value, mut mask) = (0, 0);
    for part in parts {
        if let Some(term) = matching.term(part.id) {
            value |= term.value << part.lo;
            mask |= term.mask << part.lo;
        }
    }
    let has_mask = mask != number::ones(16);
    Header { number: VLAN_TCI, has_mask, len: if has_mask { 4 } else { 2 } }.write(out);
    out.u16(value as u16);
    if has_mask {
        out.u16(mask as u16);
    }
}

/// Encodes a TLV, with a mask unless it is all ones.
pub(crate) fn write_entry(known: &Known, value: u128, mask: u128, out: &mut Vec<u8>) {
    let has_mask = mask != known.full();
    Header::of(known, has_mask).write(out);
    out.uint(value, known.bytes);
    if has_mask {
        out.uint(mask, known.bytes);
    }
}

/// Decodes an OXM header: the field, whether there is a mask, the length of value and mask in bytes.
pub(crate) fn read_field_header(r: &mut Reader, fields: &Fields) -> Result<(FieldId, bool, usize)> {
    let mut bytes = r.short(ErrorKind::BmcBadLen);
    let before = bytes.position();
    let header = Header::read(&mut bytes)?;
    r.skip(bytes.position() - before)?;
    match number::known(header.number, fields) {
        Some(known) => Ok((known.id, header.has_mask, header.len)),
        None => fail(ErrorKind::BmcBadField, format!("there is no {}", number::unknown(header.number))),
    }
}

/// Encodes an OXM header.
pub(crate) fn write_field_header(
    version: Version,
    field: FieldId,
    has_mask: bool,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Result<()> {
    match number::number_of(field, style(version), fields) {
        Some(known) => {
            Header::of(&known, has_mask).write(out);
            Ok(())
        }
        None => unencodable(format!("`{}` has no OXM number", fields.get(field).name)),
    }
}

#[cfg(test)]
mod tests;

//! Nicira's `learn` action (ovs-actions(7)): the parts of the learned flow, each of which copies bits.
//!
//! A part begins with 16 bits: the number of bits, their source (a field or a constant) and their destination (the
//! match, a load or an output). A field is a four-byte OXM header and a bit offset; a constant takes as many 16-bit
//! words as it needs.

use crate::action::{Learn, LearnSpec, Source, Subfield};
use crate::error::ErrorKind;
use crate::field::{Fields, class};
use crate::wire::number::{self, Style};
use crate::wire::operand::{bits_of, check_writable, subfield_of, zeros};
use crate::wire::oxm::Header;
use crate::wire::{Reader, Result, Writer, fail, unencodable};

/// `NX_LEARN_F_` bits.
const SEND_FLOW_REM: u16 = 1;
const DELETE_LEARNED: u16 = 2;
const WRITE_RESULT: u16 = 4;

const N_BITS: u16 = 0x3ff;
const FROM_CONSTANT: u16 = 1 << 13;
const TO: u16 = 3 << 11;
const TO_MATCH: u16 = 0;
const TO_LOAD: u16 = 1 << 11;
const TO_OUTPUT: u16 = 2 << 11;

/// Decodes the action after its subtype; the long form (`learn2`) has a limit and a result.
pub(crate) fn read(is_long: bool, r: &mut Reader, fields: &Fields) -> Result<Learn> {
    let mut learn = Learn {
        idle_timeout: r.u16()?,
        hard_timeout: r.u16()?,
        priority: r.u16()?,
        cookie: r.u64()?,
        flags: r.u16()?,
        table: r.u8()?,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 0,
        result: None,
        specs: Vec::new(),
    };
    zeros(r.bytes(1)?, ErrorKind::BacBadArgument)?;
    learn.fin_idle_timeout = r.u16()?;
    learn.fin_hard_timeout = r.u16()?;
    let may = SEND_FLOW_REM | DELETE_LEARNED | if is_long { WRITE_RESULT } else { 0 };
    if learn.table == 0xff || learn.flags & !may != 0 {
        return fail(
            ErrorKind::BacBadArgument,
            format!("`learn` into table {} with flags {:#x}", learn.table, learn.flags),
        );
    }
    if is_long {
        learn.limit = r.u32()?;
        let offset = r.u16()?;
        zeros(r.bytes(2)?, ErrorKind::NxbacMustBeZero)?;
        if learn.flags & WRITE_RESULT != 0 {
            let result = subfield_of(Header::read(r)?, offset.into(), 1, fields)?;
            check_writable(result.field, fields)?;
            learn.result = Some(result);
        } else if offset != 0 {
            return fail(ErrorKind::BacBadArgument, "`learn` has the place of a result but writes none");
        }
    }
    while !r.is_empty() {
        let head = r.u16()?;
        if head == 0 {
            break;
        }
        learn.specs.push(read_spec(head, r, fields)?);
    }
    zeros(r.rest(), ErrorKind::BacBadArgument)?;
    Ok(learn)
}

/// A field operand of a part.
struct Named {
    header: Header,
    offset: u32,
    bits: u32,
}

impl Named {
    fn read(bits: u32, r: &mut Reader) -> Result<Named> {
        let mut header = r.sub(4)?.short(ErrorKind::BacBadLen);
        let header = Header::read(&mut header)?;
        Ok(Named { header, offset: r.u16()?.into(), bits })
    }

    /// The whole port field, if the operand is all 16 bits of Nicira's shorter ingress port.
    fn whole_port(&self, fields: &Fields) -> Option<Subfield> {
        let port = number::known(number::IN_PORT, fields)?;
        let is_whole = self.header.number == number::IN_PORT && self.offset == 0 && self.bits == port.width;
        is_whole.then(|| Subfield { field: port.id, offset: 0, bits: fields.get(port.id).width })
    }

    fn subfield(&self, fields: &Fields) -> Result<Subfield> {
        subfield_of(self.header, self.offset, self.bits, fields)
    }
}

fn read_spec(head: u16, r: &mut Reader, fields: &Fields) -> Result<LearnSpec> {
    let bits = u32::from(head & N_BITS);
    let from_constant = head & FROM_CONSTANT != 0;
    let to = head & TO;
    if to == TO || to == TO_OUTPUT && from_constant {
        return fail(ErrorKind::BacBadArgument, format!("a part of `learn` begins with {head:#06x}"));
    }
    if from_constant {
        let value = read_constant(bits, r)?;
        let named = Named::read(bits, r)?;
        let whole = named.whole_port(fields).and_then(|whole| {
            let known = number::known(number::IN_PORT, fields)?;
            Some((whole, known.read(value, known.full(), fields).0))
        });
        let (subfield, value) = match whole {
            Some(whole) => whole,
            None => (named.subfield(fields)?, value),
        };
        return part(to, subfield, Source::Value(value), fields);
    }
    let from = Named::read(bits, r)?;
    if to == TO_OUTPUT {
        let whole = from.whole_port(fields);
        return Ok(LearnSpec::Output { from: whole.map_or_else(|| from.subfield(fields), Ok)? });
    }
    let into = Named::read(bits, r)?;
    if let (Some(from), Some(into)) = (from.whole_port(fields), into.whole_port(fields)) {
        return part(to, into, Source::Field(from), fields);
    }
    let from = from.subfield(fields)?;
    part(to, into.subfield(fields)?, Source::Field(from), fields)
}

fn part(to: u16, subfield: Subfield, from: Source, fields: &Fields) -> Result<LearnSpec> {
    if to == TO_MATCH {
        return Ok(LearnSpec::Match { to: subfield, from });
    }
    check_writable(subfield.field, fields)?;
    Ok(LearnSpec::Load { to: subfield, from })
}

fn read_constant(bits: u32, r: &mut Reader) -> Result<u128> {
    let bytes = r.bytes(2 * bits.div_ceil(16) as usize)?;
    let (above, low) = bytes.split_at(bytes.len().saturating_sub(16));
    let value = low.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
    if above.iter().any(|byte| *byte != 0) || value & !number::ones(bits) != 0 {
        return fail(ErrorKind::BacBadArgument, format!("a constant in `learn` has more than {bits} bits"));
    }
    Ok(value)
}

/// Whether only the long form can express the action.
pub(crate) fn is_long(learn: &Learn) -> bool {
    learn.limit != 0 || learn.result.is_some()
}

/// Encodes the action after its subtype.
pub(crate) fn write(learn: &Learn, is_long: bool, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let result_flag = if learn.result.is_some() { WRITE_RESULT } else { 0 };
    out.u16(learn.idle_timeout);
    out.u16(learn.hard_timeout);
    out.u16(learn.priority);
    out.u64(learn.cookie);
    out.u16(learn.flags & !WRITE_RESULT | result_flag);
    out.u8(learn.table);
    out.u8(0);
    out.u16(learn.fin_idle_timeout);
    out.u16(learn.fin_hard_timeout);
    if is_long {
        out.u32(learn.limit);
        let result = learn.result.map(|result| bits_of(result, Style::Nxm, fields)).transpose()?;
        out.u16(result.map_or(0, |(_, offset, _)| offset as u16));
        out.u16(0);
        if let Some((known, _, _)) = result {
            Header::of(&known, false).write(out);
        }
    }
    for spec in &learn.specs {
        match spec {
            LearnSpec::Match { to, from } => write_spec(TO_MATCH, Some(*to), *from, fields, out)?,
            LearnSpec::Load { to, from } => write_spec(TO_LOAD, Some(*to), *from, fields, out)?,
            LearnSpec::Output { from } => write_spec(TO_OUTPUT, None, Source::Field(*from), fields, out)?,
        }
    }
    Ok(())
}

fn write_spec(kind: u16, to: Option<Subfield>, from: Source, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let name = |bits: Subfield| -> Result<(u32, u32, u32)> {
        let (known, offset, bits) = match number::in_vlan_tci(bits, fields) {
            Some(known) => (known, bits.offset, bits.bits),
            None => bits_of(bits, Style::Nxm, fields)?,
        };
        if known.number.class == class::EXPERIMENTER {
            return unencodable(format!("`learn` cannot name `{}`", fields.get(known.id).name));
        }
        let header = u32::from(known.number.class) << 16 | u32::from(known.number.field) << 9 | known.bytes as u32;
        Ok((header, offset, bits))
    };
    let to_named = to.map(name).transpose()?;
    match from {
        Source::Value(value) => {
            let (Some(to), Some((_, _, bits))) = (to, to_named) else {
                return unencodable("`learn` outputs to a constant port");
            };
            let known = bits_of(to, Style::Nxm, fields)?.0;
            let is_whole = to.offset == 0 && to.bits == fields.get(to.field).width;
            let value = if is_whole && known.number == number::IN_PORT {
                let written = known.write(value, fields.get(to.field).full(), fields);
                match written {
                    Some((value, _)) => value,
                    None => return unencodable(format!("port {value:#x}")),
                }
            } else {
                value
            };
            out.u16(bits as u16 | FROM_CONSTANT | kind);
            out.uint(value, 2 * bits.div_ceil(16) as usize);
        }
        Source::Field(from) => {
            let (header, offset, bits) = name(from)?;
            let bits = to_named.map_or(bits, |(_, _, to)| to.min(bits));
            out.u16(bits as u16 | kind);
            out.u32(header);
            out.u16(offset as u16);
        }
    }
    if let Some((header, offset, _)) = to_named {
        out.u32(header);
        out.u16(offset as u16);
    }
    Ok(())
}

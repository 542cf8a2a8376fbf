//! Packet-ins and packet-outs.
//!
//! OpenFlow 1.0, 5.3.6, 5.4.1; 1.3.5, 7.3.7, 7.4.1; 1.5.1, 7.3.6; `NXT_PACKET_IN`, `NXT_PACKET_IN2`, `NXT_RESUME`.

use super::flow::{read_nx_match, write_nx_match};
use super::v10::{read_port, write_port};
use super::{Context, Reader, Result, Writer, action, oxm, props};
use crate::action::port;
use crate::error::{Error, ErrorKind};
use crate::field::FieldId;
use crate::matching::Match;
use crate::message::{PacketIn, PacketOut, Version};

/// `OFP_NO_BUFFER`: the packet is not buffered.
const NO_BUFFER: u32 = u32::MAX;
/// The cookie of a packet-in that no flow sent.
const NO_COOKIE: u64 = u64::MAX;
/// The OXM number of `in_port` in the basic class.
const IN_PORT: u8 = 0;

/// Property types of `NXT_PACKET_IN2`.
mod property {
    pub(super) const PACKET: u16 = 0;
    pub(super) const FULL_LEN: u16 = 1;
    pub(super) const BUFFER: u16 = 2;
    pub(super) const TABLE: u16 = 3;
    pub(super) const COOKIE: u16 = 4;
    pub(super) const REASON: u16 = 5;
    pub(super) const METADATA: u16 = 6;
    pub(super) const USERDATA: u16 = 7;
    pub(super) const CONTINUATION: u16 = 8;
}

fn in_port_field(c: Context<'_>) -> Option<FieldId> {
    c.fields.basic(IN_PORT)
}

fn in_port_of(c: Context<'_>, fields: &Match) -> Option<u32> {
    let term = fields.term(in_port_field(c)?)?;
    u32::try_from(term.value).ok()
}

fn add_in_port(c: Context<'_>, number: u32, fields: &mut Match) {
    if let Some(id) = in_port_field(c) {
        fields.add(id, u128::from(number), c.fields.get(id).full());
    }
}

/// The number of a reason in a version; 1.4 distinguishes several reasons of actions.
fn reason_in(version: Version, reason: u8) -> u8 {
    if version < Version::V14 && (3..=5).contains(&reason) { 1 } else { reason }
}

/// Decodes a packet-in of the version's own format.
pub(super) fn read_in(c: Context<'_>, r: &mut Reader<'_>) -> Result<PacketIn> {
    r.skip(4)?;
    let total_len = r.u16()?;
    if c.version == Version::V10 {
        let number = read_port(c.version, r)?;
        let reason = r.u8()?;
        r.skip(1)?;
        let mut fields = Match::any();
        add_in_port(c, number, &mut fields);
        let frame = r.rest().to_vec();
        return Ok(PacketIn { total_len, reason, cookie: NO_COOKIE, fields, frame, ..PacketIn::default() });
    }
    let (reason, table, cookie) = (r.u8()?, r.u8()?, r.u64()?);
    let fields = oxm::read_match(c.version, r, c.fields)?;
    r.skip(2)?;
    let frame = r.rest().to_vec();
    Ok(PacketIn { total_len, reason, table, cookie, fields, frame, ..PacketIn::default() })
}

/// Decodes `NXT_PACKET_IN`.
pub(super) fn read_in_nx(c: Context<'_>, r: &mut Reader<'_>) -> Result<PacketIn> {
    r.skip(4)?;
    let (total_len, reason, table, cookie) = (r.u16()?, r.u8()?, r.u8()?, r.u64()?);
    let len = usize::from(r.u16()?);
    r.skip(6)?;
    let (fields, _) = read_nx_match(c, len, r)?;
    r.skip(2)?;
    let frame = r.rest().to_vec();
    Ok(PacketIn { total_len, reason, table, cookie, fields, frame, ..PacketIn::default() })
}

/// Decodes `NXT_PACKET_IN2` and `NXT_RESUME`.
pub(super) fn read_in2(c: Context<'_>, r: &mut Reader<'_>) -> Result<PacketIn> {
    let mut packet = PacketIn { cookie: NO_COOKIE, ..PacketIn::default() };
    let mut full_len = None;
    while !r.is_empty() {
        let mut prop = props::read(r)?;
        let props::Kind::Standard(kind) = prop.kind else { return Err(prop.unknown("a packet-in")) };
        match kind {
            property::PACKET => packet.frame = prop.payload.rest().to_vec(),
            property::FULL_LEN => full_len = Some(prop.u32()?),
            property::BUFFER => {
                prop.u32()?;
            }
            property::TABLE => packet.table = prop.u8()?,
            property::COOKIE => packet.cookie = prop.u64()?,
            property::REASON => packet.reason = prop.u8()?,
            property::METADATA => {
                packet.fields = oxm::read_nx_match(prop.payload.left(), &mut prop.payload, c.fields)?;
            }
            property::USERDATA => packet.userdata = prop.payload.rest().to_vec(),
            property::CONTINUATION => {
                prop.payload.skip(4)?;
                packet.continuation = Some(prop.payload.rest().to_vec());
            }
            _ => return Err(prop.unknown("a packet-in")),
        }
    }
    let len = u32::try_from(packet.frame.len()).unwrap_or(u32::MAX);
    let full_len = full_len.unwrap_or(len);
    if len == 0 || full_len < len {
        return Err(Error::new(ErrorKind::BrcBadLen, format!("a packet-in with {len} bytes of {full_len}")));
    }
    packet.total_len = u16::try_from(full_len).unwrap_or(u16::MAX);
    Ok(packet)
}

/// Appends a packet-in of the version's own format.
pub(super) fn write_in(c: Context<'_>, packet: &PacketIn, out: &mut Vec<u8>) -> Result<()> {
    let reason = reason_in(c.version, packet.reason);
    out.u32(NO_BUFFER);
    out.u16(packet.total_len);
    if c.version == Version::V10 {
        write_port(c.version, in_port_of(c, &packet.fields).unwrap_or(port::ANY), out)?;
        out.bytes(&[reason, 0]);
    } else {
        out.bytes(&[reason, packet.table]);
        out.u64(packet.cookie);
        oxm::write_match(c.version, &packet.fields, c.fields, out)?;
        out.u16(0);
    }
    out.bytes(&packet.frame);
    Ok(())
}

/// Appends `NXT_PACKET_IN`.
pub(super) fn write_in_nx(c: Context<'_>, packet: &PacketIn, out: &mut Vec<u8>) -> Result<()> {
    out.u32(NO_BUFFER);
    out.u16(packet.total_len);
    out.bytes(&[reason_in(c.version, packet.reason), packet.table]);
    out.u64(packet.cookie);
    let at = out.len();
    out.zeros(8);
    let len = write_nx_match(c, &packet.fields, (0, 0), out)?;
    out.patch(at, len);
    out.u16(0);
    out.bytes(&packet.frame);
    Ok(())
}

/// Appends `NXT_PACKET_IN2`, or `NXT_RESUME`, which has no userdata.
pub(super) fn write_in2(c: Context<'_>, packet: &PacketIn, is_resume: bool, out: &mut Vec<u8>) -> Result<()> {
    props::write(out, property::PACKET, |out| {
        out.bytes(&packet.frame);
        Ok(())
    })?;
    if usize::from(packet.total_len) != packet.frame.len() {
        props::write_u32(out, property::FULL_LEN, u32::from(packet.total_len));
    }
    props::write_u8(out, property::TABLE, packet.table);
    if packet.cookie != NO_COOKIE {
        props::write_u64(out, property::COOKIE, packet.cookie);
    }
    props::write_u8(out, property::REASON, reason_in(c.version, packet.reason));
    props::write(out, property::METADATA, |out| oxm::write_nx_match(c.version, &packet.fields, c.fields, out))?;
    if let Some(continuation) = &packet.continuation {
        props::write(out, property::CONTINUATION, |out| {
            out.u32(0);
            out.bytes(continuation);
            Ok(())
        })?;
    }
    if !packet.userdata.is_empty() && !is_resume {
        props::write(out, property::USERDATA, |out| {
            out.bytes(&packet.userdata);
            Ok(())
        })?;
    }
    Ok(())
}

/// Decodes a packet-out.
pub(super) fn read_out(c: Context<'_>, r: &mut Reader<'_>) -> Result<PacketOut> {
    let buffer = r.u32()?;
    let mut fields = Match::any();
    let (in_port, len) = if c.version == Version::V15 {
        let len = r.u16()?;
        r.skip(2)?;
        fields = oxm::read_match(c.version, r, c.fields)?;
        let none = || Error::new(ErrorKind::BrcBadPort, "a packet-out without in_port");
        (in_port_of(c, &fields).ok_or_else(none)?, len)
    } else {
        let number = read_port(c.version, r)?;
        let len = r.u16()?;
        if c.version != Version::V10 {
            r.skip(6)?;
        }
        add_in_port(c, number, &mut fields);
        (number, len)
    };
    if in_port >= port::MAX && ![port::LOCAL, port::CONTROLLER, port::ANY].contains(&in_port) {
        return Err(Error::new(ErrorKind::BrcBadPort, format!("a packet-out from port {in_port:#x}")));
    }
    let actions = action::read_actions(c.version, usize::from(len), r, c.fields)?;
    let rest = r.rest();
    let frame = if buffer == NO_BUFFER { rest.to_vec() } else { Vec::new() };
    Ok(PacketOut { buffer, fields, in_port, actions, frame })
}

/// Appends a packet-out.
pub(super) fn write_out(c: Context<'_>, packet: &PacketOut, out: &mut Vec<u8>) -> Result<()> {
    out.u32(packet.buffer);
    let at = match c.version {
        Version::V15 => {
            let at = out.len();
            out.u32(0);
            let mut fields = packet.fields.clone();
            add_in_port(c, packet.in_port, &mut fields);
            oxm::write_match(c.version, &fields, c.fields, out)?;
            at
        }
        version => {
            write_port(version, packet.in_port, out)?;
            let at = out.len();
            out.zeros(if version == Version::V10 { 2 } else { 8 });
            at
        }
    };
    let start = out.len();
    action::write_actions(c.version, &packet.actions, c.fields, out)?;
    out.patch_length(at, start)?;
    if packet.buffer == NO_BUFFER {
        out.bytes(&packet.frame);
    }
    Ok(())
}

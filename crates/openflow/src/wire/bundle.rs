//! Bundles and forwarded requests: messages that contain messages.
//!
//! OpenFlow 1.4.1, 7.3.9, 7.4.6; ONF's extensions 230 (bundles) and 350 (forwarded requests) for 1.3. Messages nest one
//! level deep.

use super::{Context, Formats, Reader, Result, Writer, header};
use crate::error::{Error, ErrorKind};
use crate::field::Fields;
use crate::message::{BundleControl, Framed, Message, Version};

/// The function that decodes a whole message.
pub(super) type ReadMessage = fn(&[u8], &Fields, &Formats) -> Result<Framed>;

fn kind(number: u16) -> Result<BundleControl> {
    use BundleControl::*;
    let all =
        [OpenRequest, OpenReply, CloseRequest, CloseReply, CommitRequest, CommitReply, DiscardRequest, DiscardReply];
    let bad = || Error::new(ErrorKind::BfcBadType, format!("bundle control {number}"));
    all.get(usize::from(number)).copied().ok_or_else(bad)
}

/// Decodes a bundle control message. All its properties are experimenters', none of which is known.
pub(super) fn read_control(r: &mut Reader<'_>) -> Result<Message> {
    let bundle = r.u32()?;
    let kind = kind(r.u16()?)?;
    let flags = r.u16()?;
    if !r.is_empty() {
        return Err(super::props::read(r)?.unknown("a bundle"));
    }
    Ok(Message::BundleControl { bundle, kind, flags })
}

/// Appends a bundle control message.
pub(super) fn write_control(bundle: u32, kind: BundleControl, flags: u16, out: &mut Vec<u8>) {
    out.u32(bundle);
    out.u16(kind as u16);
    out.u16(flags);
}

/// Decodes a bundle add message.
pub(super) fn read_add(c: Context<'_>, xid: u32, r: &mut Reader<'_>, read: ReadMessage) -> Result<Message> {
    let bundle = r.u32()?;
    r.skip(2)?;
    let flags = r.u16()?;
    let mut at = r.short(ErrorKind::BfcMsgBadLen);
    let before = at.left();
    let header = at.array()?;
    let len = super::length(&header).map_err(|error| Error::new(ErrorKind::BfcMsgBadLen, error.text))?;
    let mut at = r.short(ErrorKind::BfcMsgBadLen);
    let bytes = at.bytes(len)?;
    r.skip(len)?;
    if header[0] != c.version as u8 {
        return Err(Error::new(ErrorKind::BfcBadVersion, format!("version {} in a bundle", header[0])));
    }
    if bytes[4..8] != xid.to_be_bytes() {
        return Err(Error::new(ErrorKind::BfcMsgBadXid, "the xid differs from the message's in the bundle"));
    }
    let message = Box::new(read_inner(c, bytes, read)?);
    // Properties are aligned relative to the inner message.
    r.skip((len.next_multiple_of(8) - len).min(before - len))?;
    if !r.is_empty() {
        return Err(super::props::read(r)?.unknown("a bundle"));
    }
    Ok(Message::BundleAdd { bundle, flags, message })
}

/// Decodes an inner message, which must modify the switch's state.
fn read_inner(c: Context<'_>, bytes: &[u8], read: ReadMessage) -> Result<Framed> {
    if let Some(kind) = bytes.get(1).filter(|kind| !header::can_nest(**kind)) {
        return Err(Error::new(ErrorKind::BfcMsgUnsup, format!("message type {kind} in a message")));
    }
    let framed = read(bytes, c.fields, &c.formats)?;
    if is_change(&framed.message) {
        return Ok(framed);
    }
    Err(Error::new(ErrorKind::BfcMsgUnsup, "a message in a message that changes nothing"))
}

/// Whether a message may be in a bundle.
fn is_change(message: &Message) -> bool {
    matches!(
        message,
        Message::FlowMod(_)
            | Message::GroupMod(_)
            | Message::MeterMod(_)
            | Message::PortMod(_)
            | Message::TableMod { .. }
            | Message::PacketOut(_)
    )
}

/// Appends the part of a bundle add message before the inner message.
pub(super) fn write_add(bundle: u32, flags: u16, out: &mut Vec<u8>) {
    out.u32(bundle);
    out.u16(0);
    out.u16(flags);
}

/// Decodes a forwarded request.
pub(super) fn read_forwarded(c: Context<'_>, r: &mut Reader<'_>, read: ReadMessage) -> Result<Message> {
    let framed = read_inner(c, r.rest(), read)?;
    if matches!(framed.message, Message::GroupMod(_) | Message::MeterMod(_)) {
        return Ok(Message::Requestforward(Box::new(framed)));
    }
    Err(Error::new(ErrorKind::BrcBadType, "a forwarded request that is no group or meter mod"))
}

/// Refuses a message that cannot be an inner message of this version.
pub(super) fn check_inner(version: Version, message: &Framed) -> Result<()> {
    if !is_change(&message.message) {
        return Err(Error::new(ErrorKind::BfcMsgUnsup, "a message in a message that changes nothing"));
    }
    if message.version != version {
        return Err(Error::new(ErrorKind::BfcBadVersion, "a message in a message of another version"));
    }
    Ok(())
}

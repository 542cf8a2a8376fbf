//! Experimenter messages: Nicira's and ONF's by their types; others are kept as bytes.

use super::bundle::ReadMessage;
use super::{Context, FLOW_NXM, Reader, Result, Writer, bundle, connection, flow, group, packet};
use crate::error::{Error, ErrorKind, NICIRA, ONF};
use crate::message::{Message, Version};

/// Nicira's message types.
pub(super) mod nicira {
    pub(in crate::wire) const ROLE_REQUEST: u32 = 10;
    pub(in crate::wire) const ROLE_REPLY: u32 = 11;
    pub(in crate::wire) const SET_FLOW_FORMAT: u32 = 12;
    pub(in crate::wire) const FLOW_MOD: u32 = 13;
    pub(in crate::wire) const FLOW_REMOVED: u32 = 14;
    pub(in crate::wire) const FLOW_MOD_TABLE_ID: u32 = 15;
    pub(in crate::wire) const SET_PACKET_IN_FORMAT: u32 = 16;
    pub(in crate::wire) const PACKET_IN: u32 = 17;
    pub(in crate::wire) const SET_ASYNC: u32 = 19;
    pub(in crate::wire) const SET_CONTROLLER_ID: u32 = 20;
    pub(in crate::wire) const MONITOR_CANCEL: u32 = 21;
    pub(in crate::wire) const MONITOR_PAUSED: u32 = 22;
    pub(in crate::wire) const MONITOR_RESUMED: u32 = 23;
    pub(in crate::wire) const TLV_TABLE_MOD: u32 = 24;
    pub(in crate::wire) const TLV_TABLE_REQUEST: u32 = 25;
    pub(in crate::wire) const TLV_TABLE_REPLY: u32 = 26;
    pub(in crate::wire) const SET_ASYNC2: u32 = 27;
    pub(in crate::wire) const RESUME: u32 = 28;
    pub(in crate::wire) const PACKET_IN2: u32 = 30;
    pub(in crate::wire) const GROUP_MOD: u32 = 31;
}

/// ONF's message types for OpenFlow 1.3.
pub(super) mod onf {
    pub(in crate::wire) const MONITOR_CANCEL: u32 = 1870;
    pub(in crate::wire) const MONITOR_PAUSED: u32 = 1871;
    pub(in crate::wire) const MONITOR_RESUMED: u32 = 1872;
    pub(in crate::wire) const ROLE_STATUS: u32 = 1911;
    pub(in crate::wire) const BUNDLE_CONTROL: u32 = 2300;
    pub(in crate::wire) const BUNDLE_ADD: u32 = 2301;
    pub(in crate::wire) const REQUESTFORWARD: u32 = 2350;
}

/// Decodes an experimenter message. `read` decodes an inner message.
pub(super) fn read(c: Context<'_>, xid: u32, r: &mut Reader<'_>, read: ReadMessage) -> Result<Message> {
    let (experimenter, kind) = (r.u32()?, r.u32()?);
    match experimenter {
        NICIRA => read_nicira(c, kind, r),
        ONF => read_onf(c, xid, kind, r, read),
        _ => Ok(Message::Experimenter { experimenter, kind, data: r.rest().to_vec() }),
    }
}

fn read_nicira(c: Context<'_>, kind: u32, r: &mut Reader<'_>) -> Result<Message> {
    let is_old = c.version == Version::V10;
    Ok(match kind {
        nicira::ROLE_REQUEST => Message::RoleRequest(connection::read_role_nx(r)?),
        nicira::ROLE_REPLY => Message::RoleReply(connection::read_role_nx(r)?),
        nicira::SET_FLOW_FORMAT if is_old => Message::SetFlowFormat(format(r.u32()?, &[0, FLOW_NXM])?),
        nicira::FLOW_MOD if is_old => Message::FlowMod(flow::read_mod_nx(c, r)?),
        nicira::FLOW_REMOVED if is_old => Message::FlowRemoved(flow::read_removed_nx(c, r)?),
        nicira::FLOW_MOD_TABLE_ID => {
            let is_set = r.u8()? != 0;
            r.skip(7)?;
            Message::FlowModTableId(is_set)
        }
        nicira::SET_PACKET_IN_FORMAT => Message::SetPacketInFormat(format(r.u32()?, &[0, 1, 2])?),
        nicira::PACKET_IN => Message::PacketIn(Box::new(packet::read_in_nx(c, r)?)),
        nicira::PACKET_IN2 => Message::PacketIn(Box::new(packet::read_in2(c, r)?)),
        nicira::RESUME => Message::Resume(Box::new(packet::read_in2(c, r)?)),
        nicira::SET_ASYNC => Message::SetAsync(connection::read_async(c, r)?),
        nicira::SET_ASYNC2 if c.version < Version::V14 => Message::SetAsync(connection::read_async_props(c, r)?),
        nicira::SET_CONTROLLER_ID => {
            if r.bytes(6)?.iter().any(|byte| *byte != 0) {
                return Err(Error::new(ErrorKind::NxbrcMustBeZero, "padding of a controller's id"));
            }
            Message::SetControllerId(r.u16()?)
        }
        nicira::MONITOR_CANCEL if is_old => Message::FlowMonitorCancel(r.u32()?),
        nicira::MONITOR_PAUSED if is_old => Message::FlowMonitorPaused,
        nicira::MONITOR_RESUMED if is_old => Message::FlowMonitorResumed,
        nicira::TLV_TABLE_MOD | nicira::TLV_TABLE_REQUEST | nicira::TLV_TABLE_REPLY => {
            r.rest();
            Message::TlvTable
        }
        nicira::GROUP_MOD if is_old => Message::GroupMod(group::read_mod(c, r)?),
        _ => Message::Experimenter { experimenter: NICIRA, kind, data: r.rest().to_vec() },
    })
}

fn read_onf(c: Context<'_>, xid: u32, kind: u32, r: &mut Reader<'_>, read: ReadMessage) -> Result<Message> {
    if c.version != Version::V13 {
        return Ok(Message::Experimenter { experimenter: ONF, kind, data: r.rest().to_vec() });
    }
    Ok(match kind {
        onf::MONITOR_CANCEL => Message::FlowMonitorCancel(r.u32()?),
        onf::MONITOR_PAUSED => Message::FlowMonitorPaused,
        onf::MONITOR_RESUMED => Message::FlowMonitorResumed,
        onf::ROLE_STATUS => connection::read_role_status(r)?,
        onf::BUNDLE_CONTROL => bundle::read_control(r)?,
        onf::BUNDLE_ADD => bundle::read_add(c, xid, r, read)?,
        onf::REQUESTFORWARD => bundle::read_forwarded(c, r, read)?,
        _ => Message::Experimenter { experimenter: ONF, kind, data: r.rest().to_vec() },
    })
}

fn format(number: u32, known: &[u32]) -> Result<u32> {
    // The error that Open vSwitch reports.
    let bad = || Error::new(ErrorKind::BrcEperm, format!("format {number}"));
    known.contains(&number).then_some(number).ok_or_else(bad)
}

/// Appends the header of an experimenter's message.
pub(super) fn write_header(experimenter: u32, kind: u32, out: &mut Vec<u8>) {
    out.u32(experimenter);
    out.u32(kind);
}

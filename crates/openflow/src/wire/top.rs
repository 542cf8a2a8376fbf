//! The message type of each message in each version.
//!
//! OpenFlow 1.0, 5.1; 1.3.5, 7.1; 1.4.1, 7.1.1; 1.5.1, 7.1.1.

use super::experimenter::{nicira, onf};
use super::header::*;
use super::{
    Context, Formats, Reader, Result, Writer, bundle, connection, experimenter, flow, group, lacks, meter, multipart,
    packet, port, queue, table,
};
use crate::error::{Error, ErrorKind, NICIRA, ONF};
use crate::field::Fields;
use crate::message::{Framed, Message, Version};

/// Decodes a message.
pub(super) fn read(bytes: &[u8], fields: &Fields, formats: &Formats) -> Result<Framed> {
    let mut r = Reader::new(bytes, ErrorKind::BrcBadLen);
    let (number, kind, len) = (r.u8()?, r.u8()?, r.u16()?);
    let xid = r.u32()?;
    if usize::from(len) != bytes.len() {
        return Err(r.bad_length(&format!("a message of {} bytes claims {len}", bytes.len())));
    }
    if kind == HELLO {
        let message = connection::read_hello(number, &mut r);
        return Ok(Framed { version: super::nearest(number), xid, message });
    }
    let bad_version = || Error::new(ErrorKind::BrcBadVersion, format!("version {number}"));
    let version = Version::numbered(number).ok_or_else(bad_version)?;
    let bad_type = || Error::new(ErrorKind::BrcBadType, format!("type {kind} of OpenFlow {version:?}"));
    let kind = from_number(version, kind).ok_or_else(bad_type)?;
    let message = read_body(Context { version, fields, formats: *formats }, kind, xid, &mut r)?;
    if !r.is_empty() {
        return Err(r.bad_length(&format!("{} bytes are left over", r.left())));
    }
    Ok(Framed { version, xid, message })
}

fn read_body(c: Context<'_>, kind: u8, xid: u32, r: &mut Reader<'_>) -> Result<Message> {
    let version = c.version;
    Ok(match kind {
        ERROR => connection::read_error(version, r)?,
        ECHO_REQUEST => Message::EchoRequest(r.rest().to_vec()),
        ECHO_REPLY => Message::EchoReply(r.rest().to_vec()),
        EXPERIMENTER => experimenter::read(c, xid, r, read)?,
        FEATURES_REQUEST => Message::FeaturesRequest,
        FEATURES_REPLY => Message::FeaturesReply(connection::read_features(version, r)?),
        GET_CONFIG_REQUEST => Message::GetConfigRequest,
        GET_CONFIG_REPLY => Message::GetConfigReply(connection::read_config(r)?),
        SET_CONFIG => Message::SetConfig(connection::read_config(r)?),
        PACKET_IN => Message::PacketIn(Box::new(packet::read_in(c, r)?)),
        FLOW_REMOVED => Message::FlowRemoved(flow::read_removed(c, r)?),
        PORT_STATUS => {
            let (reason, port) = port::read_status(version, r)?;
            Message::PortStatus { reason, port }
        }
        PACKET_OUT => Message::PacketOut(packet::read_out(c, r)?),
        FLOW_MOD => Message::FlowMod(flow::read_mod(c, r)?),
        GROUP_MOD => Message::GroupMod(group::read_mod(c, r)?),
        PORT_MOD => Message::PortMod(port::read_mod(version, r)?),
        TABLE_MOD => {
            let (table, config, vacancy) = table::read_mod(version, r)?;
            Message::TableMod { table, config, vacancy }
        }
        MULTIPART_REQUEST => Message::Multipart(multipart::read_request(c, r)?),
        MULTIPART_REPLY => multipart::read_reply(c, r)?,
        BARRIER_REQUEST => Message::BarrierRequest,
        BARRIER_REPLY => Message::BarrierReply,
        QUEUES_REQUEST => Message::QueueGetConfigRequest { port: queue::read_request(version, r)? },
        QUEUES_REPLY => {
            let (port, queues) = queue::read_reply(version, r)?;
            Message::QueueGetConfigReply { port, queues }
        }
        ROLE_REQUEST => Message::RoleRequest(connection::read_role(version, r)?),
        ROLE_REPLY => Message::RoleReply(connection::read_role(version, r)?),
        GET_ASYNC_REQUEST => Message::GetAsyncRequest,
        GET_ASYNC_REPLY if version < Version::V14 => Message::GetAsyncReply(connection::read_async(c, r)?),
        GET_ASYNC_REPLY => Message::GetAsyncReply(connection::read_async_props(c, r)?),
        SET_ASYNC if version < Version::V14 => Message::SetAsync(connection::read_async(c, r)?),
        SET_ASYNC => Message::SetAsync(connection::read_async_props(c, r)?),
        METER_MOD => Message::MeterMod(meter::read_mod(r)?),
        ROLE_STATUS => connection::read_role_status(r)?,
        TABLE_STATUS => {
            let (reason, (table, config, vacancy)) = table::read_status(r)?;
            Message::TableStatus { reason, table, config, vacancy }
        }
        REQUESTFORWARD => bundle::read_forwarded(c, r, read)?,
        BUNDLE_CONTROL => bundle::read_control(r)?,
        BUNDLE_ADD => bundle::read_add(c, xid, r, read)?,
        CONTROLLER_STATUS => Message::ControllerStatus(connection::read_controller(r)?),
        _ => return Err(Error::new(ErrorKind::BrcBadType, format!("type {kind}"))),
    })
}

/// A message's type on the wire.
enum Number {
    Standard(u8),
    Nicira(u32),
    Onf(u32),
}

/// A message's type on a connection.
fn number_of(c: Context<'_>, message: &Message) -> Result<Number> {
    use Number::*;
    let version = c.version;
    let extension = |kind: u32, standard: u8| if version == Version::V13 { Onf(kind) } else { Standard(standard) };
    let monitor = |old: u32, new: u32| if version == Version::V10 { Nicira(old) } else { Onf(new) };
    let number = match message {
        Message::Hello { .. } => Standard(HELLO),
        Message::Error { .. } => Standard(ERROR),
        Message::EchoRequest(_) => Standard(ECHO_REQUEST),
        Message::EchoReply(_) => Standard(ECHO_REPLY),
        Message::FeaturesRequest => Standard(FEATURES_REQUEST),
        Message::FeaturesReply(_) => Standard(FEATURES_REPLY),
        Message::GetConfigRequest => Standard(GET_CONFIG_REQUEST),
        Message::GetConfigReply(_) => Standard(GET_CONFIG_REPLY),
        Message::SetConfig(_) => Standard(SET_CONFIG),
        Message::PacketIn(_) => match c.formats.packet_in {
            1 => Nicira(nicira::PACKET_IN),
            2 => Nicira(nicira::PACKET_IN2),
            _ => Standard(PACKET_IN),
        },
        Message::Resume(_) => Nicira(nicira::RESUME),
        Message::PacketOut(_) => Standard(PACKET_OUT),
        Message::FlowRemoved(_) if c.is_nxm() => Nicira(nicira::FLOW_REMOVED),
        Message::FlowRemoved(_) => Standard(FLOW_REMOVED),
        Message::PortStatus { .. } => Standard(PORT_STATUS),
        Message::FlowMod(_) if c.is_nxm() => Nicira(nicira::FLOW_MOD),
        Message::FlowMod(_) => Standard(FLOW_MOD),
        Message::GroupMod(_) if version == Version::V10 => Nicira(nicira::GROUP_MOD),
        Message::GroupMod(_) => Standard(GROUP_MOD),
        Message::MeterMod(_) => Standard(METER_MOD),
        Message::PortMod(_) => Standard(PORT_MOD),
        Message::TableMod { .. } => Standard(TABLE_MOD),
        Message::Multipart(_) => Standard(MULTIPART_REQUEST),
        Message::MultipartReply { .. } => Standard(MULTIPART_REPLY),
        Message::BarrierRequest => Standard(BARRIER_REQUEST),
        Message::BarrierReply => Standard(BARRIER_REPLY),
        Message::RoleRequest(_) if version == Version::V10 => Nicira(nicira::ROLE_REQUEST),
        Message::RoleRequest(_) => Standard(ROLE_REQUEST),
        Message::RoleReply(_) if version == Version::V10 => Nicira(nicira::ROLE_REPLY),
        Message::RoleReply(_) => Standard(ROLE_REPLY),
        Message::RoleStatus { .. } => extension(onf::ROLE_STATUS, ROLE_STATUS),
        Message::GetAsyncRequest => Standard(GET_ASYNC_REQUEST),
        Message::GetAsyncReply(_) => Standard(GET_ASYNC_REPLY),
        Message::SetAsync(config) if version < Version::V14 && connection::is_async_new(config) => {
            Nicira(nicira::SET_ASYNC2)
        }
        Message::SetAsync(_) if version == Version::V10 => Nicira(nicira::SET_ASYNC),
        Message::SetAsync(_) => Standard(SET_ASYNC),
        Message::QueueGetConfigRequest { .. } => Standard(QUEUES_REQUEST),
        Message::QueueGetConfigReply { .. } => Standard(QUEUES_REPLY),
        Message::BundleControl { .. } => extension(onf::BUNDLE_CONTROL, BUNDLE_CONTROL),
        Message::BundleAdd { .. } => extension(onf::BUNDLE_ADD, BUNDLE_ADD),
        Message::Requestforward(_) => extension(onf::REQUESTFORWARD, REQUESTFORWARD),
        Message::TableStatus { .. } => Standard(TABLE_STATUS),
        Message::ControllerStatus(_) => Standard(CONTROLLER_STATUS),
        Message::SetPacketInFormat(_) => Nicira(nicira::SET_PACKET_IN_FORMAT),
        Message::SetFlowFormat(_) if version == Version::V10 => Nicira(nicira::SET_FLOW_FORMAT),
        Message::SetFlowFormat(_) => return Err(lacks(version, "other format of flows")),
        Message::FlowModTableId(_) => Nicira(nicira::FLOW_MOD_TABLE_ID),
        Message::SetControllerId(_) => Nicira(nicira::SET_CONTROLLER_ID),
        Message::FlowMonitorCancel(_) | Message::FlowMonitorPaused | Message::FlowMonitorResumed
            if version >= Version::V14 =>
        {
            return Err(lacks(version, "message that ends or pauses flow monitors: a multipart message does"));
        }
        Message::FlowMonitorCancel(_) => monitor(nicira::MONITOR_CANCEL, onf::MONITOR_CANCEL),
        Message::FlowMonitorPaused => monitor(nicira::MONITOR_PAUSED, onf::MONITOR_PAUSED),
        Message::FlowMonitorResumed => monitor(nicira::MONITOR_RESUMED, onf::MONITOR_RESUMED),
        Message::TlvTable => Nicira(nicira::TLV_TABLE_REQUEST),
        Message::Experimenter { .. } => Standard(EXPERIMENTER),
    };
    match number {
        Standard(kind) if !is_in(version, kind) => Err(lacks(version, &format!("message of type {kind}"))),
        number => Ok(number),
    }
}

/// Appends a message.
pub(super) fn write(c: Context<'_>, xid: u32, message: &Message, out: &mut Vec<u8>) -> Result<()> {
    if let Message::MultipartReply { reply, more } = message {
        return multipart::write_one(c, xid, reply, *more, out);
    }
    let start = out.len();
    let number = number_of(c, message)?;
    let kind = if let Number::Standard(kind) = number { kind } else { EXPERIMENTER };
    write_header(c.version, to_number(c.version, kind), xid, out);
    match number {
        Number::Standard(_) => {}
        Number::Nicira(kind) => experimenter::write_header(NICIRA, kind, out),
        Number::Onf(kind) => experimenter::write_header(ONF, kind, out),
    }
    if let Message::Hello { versions } = message {
        out[start] = connection::newest(*versions);
    }
    write_body(c, message, out)?;
    finish(start, out)
}

/// Appends an inner message.
fn write_inner(c: Context<'_>, message: &Framed, out: &mut Vec<u8>) -> Result<()> {
    bundle::check_inner(c.version, message)?;
    write(c, message.xid, &message.message, out)
}

fn write_body(c: Context<'_>, message: &Message, out: &mut Vec<u8>) -> Result<()> {
    let version = c.version;
    match message {
        Message::Hello { versions } => connection::write_hello(*versions, out),
        Message::Error { kind, data } => connection::write_error(version, *kind, data, out),
        Message::EchoRequest(data) | Message::EchoReply(data) => out.bytes(data),
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed
        | Message::TlvTable => {}
        Message::FeaturesReply(features) => connection::write_features(version, features, out)?,
        Message::GetConfigReply(config) | Message::SetConfig(config) => connection::write_config(config, out),
        Message::PacketIn(packet) => match c.formats.packet_in {
            1 => packet::write_in_nx(c, packet, out)?,
            2 => packet::write_in2(c, packet, false, out)?,
            _ => packet::write_in(c, packet, out)?,
        },
        Message::Resume(packet) => packet::write_in2(c, packet, true, out)?,
        Message::PacketOut(packet) => packet::write_out(c, packet, out)?,
        Message::FlowRemoved(flow) => flow::write_removed(c, flow, out)?,
        Message::PortStatus { reason, port } => port::write_status(version, *reason, port, out)?,
        Message::FlowMod(flow) => flow::write_mod(c, flow, out)?,
        Message::GroupMod(group) => group::write_mod(c, group, out)?,
        Message::MeterMod(meter) => meter::write_mod(meter, out),
        Message::PortMod(port) => port::write_mod(version, port, out)?,
        Message::TableMod { table, config, vacancy } => table::write_mod(version, (*table, *config, *vacancy), out),
        Message::Multipart(request) => multipart::write_request(c, request, out)?,
        Message::MultipartReply { reply, more } => multipart::write_one(c, 0, reply, *more, out)?,
        Message::RoleRequest(role) | Message::RoleReply(role) if version == Version::V10 => {
            connection::write_role_nx(role, out)?;
        }
        Message::RoleRequest(role) | Message::RoleReply(role) => connection::write_role(version, role, out),
        Message::RoleStatus { role, reason, generation } => {
            connection::write_role_status(*role, *reason, *generation, out);
        }
        Message::GetAsyncReply(config) | Message::SetAsync(config) if version >= Version::V14 => {
            connection::write_async_props(version, config, out);
        }
        Message::SetAsync(config) if connection::is_async_new(config) => {
            connection::write_async_props(version, config, out)
        }
        Message::GetAsyncReply(config) | Message::SetAsync(config) => connection::write_async(version, config, out),
        Message::QueueGetConfigRequest { port } => queue::write_request(version, *port, out)?,
        Message::QueueGetConfigReply { port, queues } => queue::write_reply(version, *port, queues, out)?,
        Message::BundleControl { bundle, kind, flags } => bundle::write_control(*bundle, *kind, *flags, out),
        Message::BundleAdd { bundle, flags, message } => {
            bundle::write_add(*bundle, *flags, out);
            write_inner(c, message, out)?;
        }
        Message::Requestforward(message) => write_inner(c, message, out)?,
        Message::TableStatus { reason, table, config, vacancy } => {
            table::write_status(*reason, (*table, *config, *vacancy), out)?;
        }
        Message::ControllerStatus(status) => connection::write_controller(status, out)?,
        Message::SetPacketInFormat(format) | Message::SetFlowFormat(format) => out.u32(*format),
        Message::FlowModTableId(is_set) => {
            out.u8(u8::from(*is_set));
            out.zeros(7);
        }
        Message::SetControllerId(id) => {
            out.zeros(6);
            out.u16(*id);
        }
        Message::FlowMonitorCancel(id) => out.u32(*id),
        Message::Experimenter { experimenter, kind, data } => {
            experimenter::write_header(*experimenter, *kind, out);
            out.bytes(data);
        }
    }
    Ok(())
}

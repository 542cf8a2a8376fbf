//! Connection messages: hello, errors, features, configuration, roles, asynchronous messages, controller status.
//!
//! OpenFlow 1.0, 5.3.1, 5.3.2, 5.4.4, 5.5; 1.3.5, 7.3.1, 7.3.2, 7.3.9, 7.3.10, 7.4.4, 7.5; 1.4.1, 7.3.10, 7.4.4; 1.5.1,
//! 7.3.5.19, 7.4.8; `NXT_ROLE_REQUEST`, `NXT_SET_ASYNC_CONFIG`, `NXT_SET_ASYNC_CONFIG2`.

use super::flow_stats::entry;
use super::{Context, HEADER, Reader, Result, Writer, port, props, v10};
use crate::error::{Code, Error, ErrorKind, NICIRA};
use crate::message::{AsyncConfig, ControllerStatus, Features, Message, Role, RoleRequest, SwitchConfig, Version};

/// The number of bytes of a request that fit in the longest error message.
pub(super) const ERROR_DATA_MAX: usize = 0xffff - HEADER - 12;
/// The error type of Nicira's errors in OpenFlow 1.0.
const ERROR_VENDOR: u16 = 0xb0c2;
/// The error type of experimenters' errors.
const ERROR_EXPERIMENTER: u16 = 0xffff;
/// `OFPHET_VERSIONBITMAP`: the hello element with the version bitmap.
const VERSION_BITMAP: u16 = 1;
/// The `generation_id` for none.
const NO_GENERATION: u64 = u64::MAX;
/// The short controller id for none.
const NO_SHORT: u16 = u16::MAX;

/// Decodes a hello. Without a bitmap, the sender supports all versions up to the header's.
pub(super) fn read_hello(version: u8, r: &mut Reader<'_>) -> Message {
    let up_to = (1_u64 << (u32::from(version) + 1).min(32)) - 2;
    let mut versions = up_to as u32;
    let mut elements = *r;
    r.rest();
    // Elements after a malformed one are ignored, as unknown elements are (OpenFlow 1.3.5, 7.5.1).
    while let Ok((kind, mut element)) = read_element(&mut elements) {
        if kind == VERSION_BITMAP
            && let Ok(bitmap) = element.u32()
        {
            versions = bitmap;
        }
    }
    Message::Hello { versions }
}

fn read_element<'a>(r: &mut Reader<'a>) -> Result<(u16, Reader<'a>)> {
    let (kind, len) = (r.u16()?, usize::from(r.u16()?));
    let body = len.checked_sub(4).ok_or_else(|| r.bad_length("an element of a hello is too short"))?;
    let element = r.sub(body)?;
    r.align();
    Ok((kind, element))
}

/// Appends a hello's elements; 1.0 has none.
pub(super) fn write_hello(versions: u32, out: &mut Vec<u8>) {
    if versions >> Version::V13 as u8 != 0 {
        out.u16(VERSION_BITMAP);
        out.u16(8);
        out.u32(versions);
    }
}

/// The newest version of a bitmap, for the header of the hello.
pub(super) fn newest(versions: u32) -> u8 {
    versions.checked_ilog2().map_or(Version::V10 as u8, |bit| bit as u8)
}

/// Decodes an error message.
pub(super) fn read_error(version: Version, r: &mut Reader<'_>) -> Result<Message> {
    let (kind, code) = (r.u16()?, r.u16()?);
    let code = match kind {
        ERROR_VENDOR if code == 0 && version == Version::V10 => {
            let vendor = r.u32()?;
            let code = Code::Vendor(r.u16()?, r.u16()?);
            if vendor != NICIRA {
                return Err(Error::new(ErrorKind::BrcBadExperimenter, format!("an error of vendor {vendor:#x}")));
            }
            code
        }
        ERROR_EXPERIMENTER if version != Version::V10 => Code::Experimenter(r.u32()?, code),
        _ => Code::Standard(kind, code),
    };
    Ok(Message::Error { kind: ErrorKind::numbered(version, code), data: r.rest().to_vec() })
}

/// Appends an error message.
pub(super) fn write_error(version: Version, kind: ErrorKind, data: &[u8], out: &mut Vec<u8>) {
    match kind.code(version) {
        Code::Standard(kind, code) => {
            out.u16(kind);
            out.u16(code);
        }
        Code::Vendor(kind, code) => {
            out.u16(ERROR_VENDOR);
            out.u16(0);
            out.u32(NICIRA);
            out.u16(kind);
            out.u16(code);
        }
        Code::Experimenter(experimenter, kind) => {
            out.u16(ERROR_EXPERIMENTER);
            out.u16(kind);
            out.u32(experimenter);
        }
    }
    out.bytes(&data[..data.len().min(ERROR_DATA_MAX)]);
}

/// Decodes a features reply.
pub(super) fn read_features(version: Version, r: &mut Reader<'_>) -> Result<Features> {
    let mut features = Features { datapath: r.u64()?, buffers: r.u32()?, tables: r.u8()?, ..Features::default() };
    let auxiliary = r.u8()?;
    r.skip(2)?;
    features.capabilities = v10::capabilities(version, r.u32()?);
    let actions = r.u32()?;
    if version == Version::V10 {
        features.actions = actions;
        while !r.is_empty() {
            features.ports.push(port::read(version, r)?);
        }
    } else {
        features.auxiliary = auxiliary;
    }
    Ok(features)
}

/// Appends a features reply. Only 1.0's has ports, as many as fit in a message.
pub(super) fn write_features(version: Version, features: &Features, out: &mut Vec<u8>) -> Result<()> {
    let is_old = version == Version::V10;
    out.u64(features.datapath);
    out.u32(features.buffers);
    out.bytes(&[features.tables, if is_old { 0 } else { features.auxiliary }, 0, 0]);
    out.u32(v10::capabilities(version, features.capabilities));
    out.u32(if is_old { features.actions } else { 0 });
    if is_old {
        const MOST: usize = (0xffff - HEADER - 24) / 48;
        features.ports.iter().take(MOST).try_for_each(|port| port::write(version, port, out))?;
    }
    Ok(())
}

/// Decodes the switch configuration.
pub(super) fn read_config(r: &mut Reader<'_>) -> Result<SwitchConfig> {
    Ok(SwitchConfig { flags: r.u16()?, miss_send_len: r.u16()? })
}

/// Appends the switch configuration.
pub(super) fn write_config(config: &SwitchConfig, out: &mut Vec<u8>) {
    out.u16(config.flags);
    out.u16(config.miss_send_len);
}

fn role(number: u32) -> Result<Role> {
    Ok(match number {
        0 => Role::NoChange,
        1 => Role::Equal,
        2 => Role::Master,
        3 => Role::Slave,
        _ => return Err(Error::new(ErrorKind::RrfcBadRole, format!("role {number}"))),
    })
}

/// Decodes a role.
pub(super) fn read_role(version: Version, r: &mut Reader<'_>) -> Result<RoleRequest> {
    let role = role(r.u32()?)?;
    let short = r.u16()?;
    r.skip(2)?;
    let generation = r.u64()?;
    let generation = (generation != NO_GENERATION).then_some(generation);
    Ok(RoleRequest { role, generation, short: if version == Version::V15 { short } else { NO_SHORT } })
}

/// Appends a role.
pub(super) fn write_role(version: Version, request: &RoleRequest, out: &mut Vec<u8>) {
    out.u32(request.role as u32);
    out.u16(if version == Version::V15 { request.short } else { 0 });
    out.u16(0);
    out.u64(request.generation.unwrap_or(NO_GENERATION));
}

/// Decodes Nicira's role, whose numbers are one less.
pub(super) fn read_role_nx(r: &mut Reader<'_>) -> Result<RoleRequest> {
    let number = r.u32()?;
    let role = role(number.saturating_add(1))?;
    Ok(RoleRequest { role, generation: None, short: NO_SHORT })
}

/// Appends Nicira's role; an error for `NoChange`, which it lacks.
pub(super) fn write_role_nx(request: &RoleRequest, out: &mut Vec<u8>) -> Result<()> {
    let none = || Error::new(ErrorKind::RrfcBadRole, "OpenFlow 1.0 cannot ask for the current role");
    out.u32((request.role as u32).checked_sub(1).ok_or_else(none)?);
    Ok(())
}

/// Decodes a role status.
pub(super) fn read_role_status(r: &mut Reader<'_>) -> Result<Message> {
    let role = role(r.u32()?)?;
    let reason = r.u8()?;
    r.skip(3)?;
    let generation = r.u64()?;
    while !r.is_empty() {
        props::read(r)?;
    }
    Ok(Message::RoleStatus { role, reason, generation })
}

/// Appends a role status.
pub(super) fn write_role_status(role: Role, reason: u8, generation: u64, out: &mut Vec<u8>) {
    out.u32(role as u32);
    out.bytes(&[reason, 0, 0, 0]);
    out.u64(generation);
}

/// The packet-in reason of an action before 1.4; since then, the reasons action set, group and packet-out are bits of
/// their own.
const BY_ACTION: u32 = 1 << 1;
const BY_ACTION_14: u32 = 0x38;

/// The kinds of asynchronous messages in order of their properties, each with the reasons that it has in a version.
fn kinds(version: Version, config: &mut AsyncConfig) -> [(&mut [u32; 2], u32); 6] {
    [
        (&mut config.packet_in, if version < Version::V14 { 0x07 } else { 0x3f }),
        (&mut config.port_status, 0x07),
        (&mut config.flow_removed, 0x3f),
        (&mut config.role_status, 0x07),
        (&mut config.table_status, 0x18),
        (&mut config.requestforward, 0x03),
    ]
}

/// Before 1.4, sets the reasons that 1.4 distinguishes as the one for actions.
fn tell_actions_apart(version: Version, config: &mut AsyncConfig) {
    if version >= Version::V14 {
        return;
    }
    for mask in &mut config.packet_in {
        *mask = *mask & !BY_ACTION_14 | if *mask & BY_ACTION == 0 { 0 } else { BY_ACTION_14 };
    }
}

/// Decodes the asynchronous configuration of 1.3 and `NXT_SET_ASYNC_CONFIG`: the first three kinds, the master's mask
/// before the slave's.
pub(super) fn read_async(c: Context<'_>, r: &mut Reader<'_>) -> Result<AsyncConfig> {
    let mut config = c.formats.asynchronous;
    for (masks, known) in kinds(c.version, &mut config).into_iter().take(3) {
        *masks = [r.u32()? & known, r.u32()? & known];
    }
    tell_actions_apart(c.version, &mut config);
    Ok(config)
}

/// Appends the asynchronous configuration of 1.3.
pub(super) fn write_async(version: Version, config: &AsyncConfig, out: &mut Vec<u8>) {
    let mut config = *config;
    for (masks, known) in kinds(version, &mut config).into_iter().take(3) {
        out.u32(masks[0] & known);
        out.u32(masks[1] & known);
    }
}

/// Whether only the format of 1.4 can express the configuration.
pub(super) fn is_async_new(config: &AsyncConfig) -> bool {
    [config.role_status, config.table_status, config.requestforward] != [[0; 2]; 3]
}

/// Decodes the asynchronous configuration of 1.4 and `NXT_SET_ASYNC_CONFIG2`: two properties for each kind, the slave's
/// before the master's. Kinds without properties keep their masks.
pub(super) fn read_async_props(c: Context<'_>, r: &mut Reader<'_>) -> Result<AsyncConfig> {
    let mut config = c.formats.asynchronous;
    while !r.is_empty() {
        let prop = props::read(r)?;
        let unsupported = || Error::new(ErrorKind::AcfcUnsupported, format!("{:?}", prop.kind));
        let props::Kind::Standard(number) = prop.kind else { return Err(unsupported()) };
        let mut kinds = kinds(c.version, &mut config);
        let (masks, known) = kinds.get_mut(usize::from(number / 2)).ok_or_else(unsupported)?;
        let mask = prop.u32()?;
        if mask & !*known != 0 {
            return Err(Error::new(ErrorKind::AcfcInvalid, format!("mask {mask:#x} of property {number}")));
        }
        masks[usize::from(number % 2 == 0)] = mask;
    }
    tell_actions_apart(c.version, &mut config);
    Ok(config)
}

/// Appends the asynchronous configuration of 1.4.
pub(super) fn write_async_props(version: Version, config: &AsyncConfig, out: &mut Vec<u8>) {
    let mut config = *config;
    for (number, (masks, known)) in (0..).step_by(2).zip(kinds(version, &mut config)) {
        props::write_u32(out, number, masks[1] & known);
        props::write_u32(out, number + 1, masks[0] & known);
    }
}

/// Decodes a controller status.
pub(super) fn read_controller(r: &mut Reader<'_>) -> Result<ControllerStatus> {
    let mut r = entry(r)?;
    let short = r.u16()?;
    let role = role(r.u32()?)?;
    let (reason, channel) = (r.u8()?, r.u8()?);
    r.skip(6)?;
    let mut status = ControllerStatus { short, role, reason, is_up: channel == 0, uri: String::new() };
    while !r.is_empty() {
        let mut prop = props::read(&mut r)?;
        if prop.kind == props::Kind::Standard(0) {
            let len = prop.payload.left();
            status.uri = super::read_text(&mut prop.payload, len)?;
        }
    }
    Ok(status)
}

/// Appends a controller status.
pub(super) fn write_controller(status: &ControllerStatus, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.u16(0);
    out.u16(status.short);
    out.u32(status.role as u32);
    out.bytes(&[status.reason, u8::from(!status.is_up)]);
    out.zeros(6);
    props::write(out, 0, |out| {
        out.bytes(status.uri.as_bytes());
        Ok(())
    })?;
    out.patch_length(start, start)
}

//! Ports: descriptions, mods, statistics.
//!
//! OpenFlow 1.0, 5.2.1, 5.3.3, 5.3.5; 1.3.5, 7.2.1, 7.3.4.3, 7.3.5.6; 1.4.1, 7.2.1, 7.3.4.3, 7.3.5.6.

use super::flow_stats::entry;
use super::v10::{port_config, port_features_from, port_features_to, port_state, read_port, write_port};
use super::{Reader, Result, Writer, props, read_text};
use crate::error::{Error, ErrorKind};
use crate::message::{Counts, Port, PortMod, PortReason, PortStats, Version};

/// The length of a port's name in bytes, with its final zero.
const NAME: usize = 16;
/// The property type of Ethernet ports.
const ETHERNET: u16 = 0;

/// Decodes a port description.
pub(super) fn read(version: Version, r: &mut Reader<'_>) -> Result<Port> {
    let mut port = Port { number: read_port(version, r)?, ..Port::default() };
    match version {
        Version::V10 => read_rest(version, r, &mut port)?,
        Version::V13 => {
            r.skip(4)?;
            read_rest(version, r, &mut port)?;
        }
        Version::V14 | Version::V15 => {
            let len = usize::from(r.u16()?);
            let body = len.checked_sub(6).ok_or_else(|| r.bad_length("a port is too short"))?;
            let mut r = r.sub(body)?;
            r.skip(2)?;
            read_rest(version, &mut r, &mut port)?;
        }
    }
    Ok(port)
}

/// Decodes the part after the port number.
fn read_rest(version: Version, r: &mut Reader<'_>, port: &mut Port) -> Result<()> {
    port.address = r.array()?;
    if version != Version::V10 {
        r.skip(2)?;
    }
    port.name = read_text(r, NAME)?;
    port.config = port_config(version, r.u32()?);
    port.state = port_state(version, r.u32()?);
    if version < Version::V14 {
        return read_features(version, r, port);
    }
    while !r.is_empty() {
        let mut prop = props::read(r)?;
        if prop.kind == props::Kind::Standard(ETHERNET) {
            prop.payload.skip(4)?;
            read_features(version, &mut prop.payload, port)?;
        }
    }
    Ok(())
}

fn read_features(version: Version, r: &mut Reader<'_>, port: &mut Port) -> Result<()> {
    for features in &mut port.features {
        *features = port_features_from(version, r.u32()?);
    }
    if version != Version::V10 {
        port.speeds = [r.u32()?, r.u32()?];
    }
    Ok(())
}

/// Appends a port description.
pub(super) fn write(version: Version, port: &Port, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    write_port(version, port.number, out)?;
    if version != Version::V10 {
        out.u32(0);
    }
    out.bytes(&port.address);
    if version != Version::V10 {
        out.u16(0);
    }
    out.text(&port.name, NAME);
    out.u32(port_config(version, port.config));
    out.u32(port_state(version, port.state));
    if version < Version::V14 {
        write_features(version, port, out);
        return Ok(());
    }
    props::write(out, ETHERNET, |out| {
        out.u32(0);
        write_features(version, port, out);
        Ok(())
    })?;
    out.patch_length(start + 4, start)
}

fn write_features(version: Version, port: &Port, out: &mut Vec<u8>) {
    for features in port.features {
        out.u32(port_features_to(version, features));
    }
    if version != Version::V10 {
        out.u32(port.speeds[0]);
        out.u32(port.speeds[1]);
    }
}

/// Decodes a port status.
pub(super) fn read_status(version: Version, r: &mut Reader<'_>) -> Result<(PortReason, Port)> {
    let reason = match r.u8()? {
        0 => PortReason::Add,
        1 => PortReason::Delete,
        2 => PortReason::Modify,
        number => return Err(Error::new(ErrorKind::NxbrcBadReason, format!("port status for reason {number}"))),
    };
    r.skip(7)?;
    Ok((reason, read(version, r)?))
}

/// Appends a port status.
pub(super) fn write_status(version: Version, reason: PortReason, port: &Port, out: &mut Vec<u8>) -> Result<()> {
    out.u8(reason as u8);
    out.zeros(7);
    write(version, port, out)
}

/// Decodes a port mod.
pub(super) fn read_mod(version: Version, r: &mut Reader<'_>) -> Result<PortMod> {
    let port = read_port(version, r)?;
    let is_old = version == Version::V10;
    if !is_old {
        r.skip(4)?;
    }
    let address = r.array()?;
    if !is_old {
        r.skip(2)?;
    }
    let config = port_config(version, r.u32()?);
    let mask = port_config(version, r.u32()?);
    let mut advertise = 0;
    if version < Version::V14 {
        advertise = r.u32()?;
        r.skip(4)?;
    }
    while !r.is_empty() && version >= Version::V14 {
        let prop = props::read(r)?;
        match prop.kind {
            props::Kind::Standard(ETHERNET) => advertise = prop.u32()?,
            _ => return Err(prop.unknown("a port mod")),
        }
    }
    Ok(PortMod { port, address, config, mask, advertise: port_features_from(version, advertise) })
}

/// Appends a port mod.
pub(super) fn write_mod(version: Version, port: &PortMod, out: &mut Vec<u8>) -> Result<()> {
    let is_old = version == Version::V10;
    write_port(version, port.port, out)?;
    if !is_old {
        out.u32(0);
    }
    out.bytes(&port.address);
    if !is_old {
        out.u16(0);
    }
    out.u32(port_config(version, port.config));
    out.u32(port_config(version, port.mask));
    let advertise = port_features_to(version, port.advertise);
    if version < Version::V14 {
        out.u32(advertise);
        out.u32(0);
    } else if advertise != 0 {
        props::write_u32(out, ETHERNET, advertise);
    }
    Ok(())
}

/// Decodes port statistics.
pub(super) fn read_stats(version: Version, r: &mut Reader<'_>) -> Result<PortStats> {
    let mut stats = PortStats::default();
    if version < Version::V14 {
        stats.port = read_port(version, r)?;
        r.skip(if version == Version::V10 { 6 } else { 4 })?;
        read_counts(r, &mut stats)?;
        r.skip(32)?;
        if version == Version::V13 {
            stats.duration = (r.u32()?, r.u32()?);
        }
        return Ok(stats);
    }
    let mut r = entry(r)?;
    r.skip(2)?;
    stats.port = r.u32()?;
    stats.duration = (r.u32()?, r.u32()?);
    read_counts(&mut r, &mut stats)?;
    while !r.is_empty() {
        props::read(&mut r)?;
    }
    Ok(stats)
}

fn read_counts(r: &mut Reader<'_>, stats: &mut PortStats) -> Result<()> {
    let packets = [r.u64()?, r.u64()?];
    let bytes = [r.u64()?, r.u64()?];
    stats.received = Counts { packets: packets[0], bytes: bytes[0] };
    stats.sent = Counts { packets: packets[1], bytes: bytes[1] };
    stats.dropped = [r.u64()?, r.u64()?];
    stats.errors = [r.u64()?, r.u64()?];
    Ok(())
}

/// Appends port statistics. Counters of Ethernet errors are not supported: all ones.
pub(super) fn write_stats(version: Version, stats: &PortStats, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let is_new = version >= Version::V14;
    if is_new {
        out.u32(0);
    }
    write_port(version, stats.port, out)?;
    if !is_new {
        out.align(start);
    } else {
        out.u32(stats.duration.0);
        out.u32(stats.duration.1);
    }
    let [packets, bytes] = [[stats.received.packets, stats.sent.packets], [stats.received.bytes, stats.sent.bytes]];
    for value in [packets, bytes, stats.dropped, stats.errors].concat() {
        out.u64(value);
    }
    if !is_new {
        out.bytes(&[0xff; 32]);
        if version == Version::V13 {
            out.u32(stats.duration.0);
            out.u32(stats.duration.1);
        }
        return Ok(());
    }
    props::write(out, ETHERNET, |out| {
        out.u32(0);
        out.bytes(&[0xff; 32]);
        Ok(())
    })?;
    out.patch_length(start, start)
}

//! Queues: descriptions and statistics. OpenFlow 1.0, 5.2.2, 5.3.4; 1.3.5, 7.2.2, 7.3.6; 1.4.1, 7.3.5.8, 7.3.5.10.

use super::flow_stats::entry;
use super::v10::{read_port, write_port};
use super::{Reader, Result, Writer, props};
use crate::action::port;
use crate::message::{Counts, Queue, QueueStats, Version};

/// Property types: minimum and maximum rate.
const RATES: [u16; 2] = [1, 2];

/// Decodes the port of a queue configuration request.
pub(super) fn read_request(version: Version, r: &mut Reader<'_>) -> Result<u32> {
    let port = read_port(version, r)?;
    r.skip(if version == Version::V10 { 2 } else { 4 })?;
    Ok(port)
}

/// Appends the port of a queue configuration request.
pub(super) fn write_request(version: Version, port: u32, out: &mut Vec<u8>) -> Result<()> {
    write_port(version, port, out)?;
    out.zeros(if version == Version::V10 { 2 } else { 4 });
    Ok(())
}

/// Decodes a port's queues.
pub(super) fn read_reply(version: Version, r: &mut Reader<'_>) -> Result<(u32, Vec<Queue>)> {
    let port = read_port(version, r)?;
    r.skip(if version == Version::V10 { 6 } else { 4 })?;
    let mut queues = Vec::new();
    while !r.is_empty() {
        queues.push(read(version, port, r)?);
    }
    Ok((port, queues))
}

/// Appends a port's queues.
pub(super) fn write_reply(version: Version, port: u32, queues: &[Queue], out: &mut Vec<u8>) -> Result<()> {
    write_port(version, port, out)?;
    out.zeros(if version == Version::V10 { 6 } else { 4 });
    queues.iter().try_for_each(|queue| write(version, queue, out))
}

/// Decodes a queue of a port.
pub(super) fn read(version: Version, port: u32, r: &mut Reader<'_>) -> Result<Queue> {
    // OpenFlow 1.4 encodes the port first, 1.3 the queue.
    let (port, queue) = match version {
        Version::V10 => (port, r.u32()?),
        Version::V13 => {
            let queue = r.u32()?;
            (r.u32()?, queue)
        }
        Version::V14 | Version::V15 => (r.u32()?, r.u32()?),
    };
    let (before, padding) = if version == Version::V10 { (6, 2) } else { (10, 6) };
    let len = usize::from(r.u16()?);
    let body = len.checked_sub(before).ok_or_else(|| r.bad_length("a queue is too short"))?;
    let mut r = r.sub(body)?;
    r.skip(padding)?;
    let mut rates = [None; 2];
    while !r.is_empty() {
        let (kind, rate) = if version >= Version::V14 {
            let prop = props::read(&mut r)?;
            let props::Kind::Standard(kind) = prop.kind else { continue };
            (kind, prop)
        } else {
            let mut prop = props::read(&mut r)?;
            let props::Kind::Standard(kind) = prop.kind else { continue };
            prop.payload.skip(4)?;
            (kind, prop)
        };
        if let Some(at) = RATES.iter().position(|known| *known == kind) {
            rates[at] = Some(rate.u16()?);
        }
    }
    Ok(Queue { port, queue, rates })
}

/// Appends a queue.
pub(super) fn write(version: Version, queue: &Queue, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    match version {
        Version::V10 => out.u32(queue.queue),
        Version::V13 => {
            out.u32(queue.queue);
            out.u32(queue.port);
        }
        Version::V14 | Version::V15 => {
            out.u32(queue.port);
            out.u32(queue.queue);
        }
    }
    let at = out.len();
    out.u16(0);
    out.align(start);
    for (number, rate) in RATES.into_iter().zip(queue.rates) {
        let Some(rate) = rate else { continue };
        if version >= Version::V14 {
            props::write_u16(out, number, rate);
        } else {
            for value in [number, 16, 0, 0, rate, 0, 0, 0] {
                out.u16(value);
            }
        }
    }
    out.patch_length(at, start)
}

/// Decodes the port and queue of a request for statistics or descriptions. OpenFlow 1.0 (5.3.5) names any port
/// `OFPP_ALL`, later versions `OFPP_ANY`.
pub(super) fn read_filter(version: Version, r: &mut Reader<'_>) -> Result<(u32, u32)> {
    let port = match read_port(version, r)? {
        port::ALL if version == Version::V10 => port::ANY,
        port => port,
    };
    if version == Version::V10 {
        r.skip(2)?;
    }
    Ok((port, r.u32()?))
}

/// Appends the port and queue of a request.
pub(super) fn write_filter(version: Version, port: u32, queue: u32, out: &mut Vec<u8>) -> Result<()> {
    let port = if version == Version::V10 && port == port::ANY { port::ALL } else { port };
    write_port(version, port, out)?;
    if version == Version::V10 {
        out.u16(0);
    }
    out.u32(queue);
    Ok(())
}

/// Decodes queue statistics.
pub(super) fn read_stats(version: Version, r: &mut Reader<'_>) -> Result<QueueStats> {
    if version >= Version::V14 {
        let mut r = entry(r)?;
        r.skip(6)?;
        let stats = read_stats(Version::V13, &mut r)?;
        while !r.is_empty() {
            props::read(&mut r)?;
        }
        return Ok(stats);
    }
    let (port, queue) = read_filter(version, r)?;
    let (bytes, packets) = (r.u64()?, r.u64()?);
    let errors = r.u64()?;
    let duration = if version == Version::V10 { (0, 0) } else { (r.u32()?, r.u32()?) };
    Ok(QueueStats { port, queue, sent: Counts { packets, bytes }, errors, duration })
}

/// Appends queue statistics.
pub(super) fn write_stats(version: Version, stats: &QueueStats, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    if version >= Version::V14 {
        out.u64(0);
        write_stats(Version::V13, stats, out)?;
        return out.patch_length(start, start);
    }
    write_filter(version, stats.port, stats.queue, out)?;
    for value in [stats.sent.bytes, stats.sent.packets, stats.errors] {
        out.u64(value);
    }
    if version != Version::V10 {
        out.u32(stats.duration.0);
        out.u32(stats.duration.1);
    }
    Ok(())
}

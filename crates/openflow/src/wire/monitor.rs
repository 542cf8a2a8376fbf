//! Flow monitors: requests and flow updates.
//!
//! OpenFlow 1.4.1, 7.3.5.17. ONF's extension for 1.3 uses Nicira's formats for 1.0, except for matches, instructions
//! and ports; Open vSwitch supports all three.

use super::flow::{as_actions, read_nx_match, reason, reason_number, write_nx_match};
use super::flow_stats::entry;
use super::v10::{read_port, write_port};
use super::{Context, Reader, Result, Writer, action, instruction, lacks, oxm};
use crate::action::Instructions;
use crate::error::{Error, ErrorKind};
use crate::message::{
    Counts, FlowEntry, FlowMonitor, FlowUpdate, GROUP_ANY, MonitorCommand, RemovedReason, Timeouts, UpdateEvent,
    Version, monitor_flag,
};

const ABBREVIATED_OLD: u16 = 3;
const ABBREVIATED: u16 = 4;
const PAUSED: u16 = 5;
const RESUMED: u16 = 6;

/// Decodes a flow monitor request.
pub(super) fn read_request(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowMonitor> {
    let id = r.u32()?;
    if c.version >= Version::V14 {
        let (out_port, out_group) = (r.u32()?, r.u32()?);
        let flags = r.u16()?;
        let table = r.u8()?;
        let command = match r.u8()? {
            0 => MonitorCommand::Add,
            1 => MonitorCommand::Modify,
            2 => MonitorCommand::Delete,
            number => return Err(Error::new(ErrorKind::MofcBadCommand, format!("monitor command {number}"))),
        };
        if command != MonitorCommand::Delete {
            check_flags(flags, 0x7f)?;
        }
        let matching = oxm::read_match(c.version, r, c.fields)?;
        return Ok(FlowMonitor { id, command, flags, out_port, out_group, table, matching });
    }
    let flags = r.u16()?;
    check_flags(flags, 0x3f)?;
    let is_nxm = c.version == Version::V10;
    let mut out_port = if is_nxm { read_port(c.version, r)? } else { 0 };
    let len = usize::from(r.u16()?);
    if !is_nxm {
        out_port = r.u32()?;
    }
    let table = r.u8()?;
    if r.bytes(if is_nxm { 5 } else { 3 })?.iter().any(|byte| *byte != 0) {
        return Err(Error::new(ErrorKind::NxbrcMustBeZero, "padding of a flow monitor"));
    }
    let matching = if is_nxm { read_nx_match(c, len, r)?.0 } else { oxm::read_match(c.version, r, c.fields)? };
    Ok(FlowMonitor { id, command: MonitorCommand::Add, flags, out_port, out_group: GROUP_ANY, table, matching })
}

fn check_flags(flags: u16, known: u16) -> Result<()> {
    let events = monitor_flag::ADD | monitor_flag::REMOVED | monitor_flag::MODIFY;
    if flags & events != 0 && flags & !known == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::MofcBadFlags, format!("monitor flags {flags:#x}")))
}

/// Appends a flow monitor request.
pub(super) fn write_request(c: Context<'_>, monitor: &FlowMonitor, out: &mut Vec<u8>) -> Result<()> {
    out.u32(monitor.id);
    if c.version >= Version::V14 {
        out.u32(monitor.out_port);
        out.u32(monitor.out_group);
        out.u16(monitor.flags);
        out.bytes(&[monitor.table, monitor.command as u8]);
        return oxm::write_match(c.version, &monitor.matching, c.fields, out);
    }
    if monitor.command != MonitorCommand::Add {
        return Err(lacks(c.version, "changes of flow monitors"));
    }
    if monitor.out_group != GROUP_ANY {
        return Err(lacks(c.version, "flow monitor limited to a group"));
    }
    out.u16(monitor.flags);
    let is_nxm = c.version == Version::V10;
    if is_nxm {
        write_port(c.version, monitor.out_port, out)?;
    }
    let at = out.len();
    out.u16(0);
    if !is_nxm {
        out.u32(monitor.out_port);
    }
    out.u8(monitor.table);
    out.zeros(if is_nxm { 5 } else { 3 });
    let len = if is_nxm { write_nx_match(c, &monitor.matching, (0, 0), out)? } else { write_match(c, monitor, out)? };
    out.patch(at, len);
    Ok(())
}

/// Appends a match with its header, whose length ONF's extension repeats.
fn write_match(c: Context<'_>, monitor: &FlowMonitor, out: &mut Vec<u8>) -> Result<u16> {
    let start = out.len();
    oxm::write_match(c.version, &monitor.matching, c.fields, out)?;
    Ok(u16::from_be_bytes([out[start + 2], out[start + 3]]))
}

/// Decodes a flow update.
pub(super) fn read_update(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowUpdate> {
    let mut r = entry(r)?;
    let number = r.u16()?;
    let update = if c.version >= Version::V14 {
        read_update_14(c, number, &mut r)?
    } else {
        read_update_old(c, number, &mut r)?
    };
    if r.is_empty() { Ok(update) } else { Err(r.bad_length("bytes follow a flow update")) }
}

fn bad_event(number: u16) -> Error {
    Error::new(ErrorKind::NxbrcFmBadEvent, format!("flow update {number}"))
}

fn read_update_14(c: Context<'_>, number: u16, r: &mut Reader<'_>) -> Result<FlowUpdate> {
    let event = match number {
        0 => UpdateEvent::Initial,
        1 => UpdateEvent::Added,
        2 => UpdateEvent::Removed,
        3 => UpdateEvent::Modified,
        ABBREVIATED => return Ok(FlowUpdate::Abbreviated { xid: r.u32()? }),
        PAUSED | RESUMED => {
            r.skip(4)?;
            return Ok(FlowUpdate::Paused(number == PAUSED));
        }
        _ => return Err(bad_event(number)),
    };
    let table = r.u8()?;
    let why = u16::from(r.u8()?);
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let priority = r.u16()?;
    r.skip(4)?;
    let cookie = r.u64()?;
    let matching = oxm::read_match(c.version, r, c.fields)?;
    let instructions = instruction::read_instructions(c.version, r.left(), r, c.fields)?;
    let flow = FlowEntry { table, matching, priority, cookie, timeouts, instructions, ..empty_flow() };
    Ok(FlowUpdate::Full { event, reason: reason_of(event, why)?, flow })
}

fn read_update_old(c: Context<'_>, number: u16, r: &mut Reader<'_>) -> Result<FlowUpdate> {
    let event = match number {
        0 => UpdateEvent::Added,
        1 => UpdateEvent::Removed,
        2 => UpdateEvent::Modified,
        ABBREVIATED_OLD => return Ok(FlowUpdate::Abbreviated { xid: r.u32()? }),
        _ => return Err(bad_event(number)),
    };
    let (why, priority) = (r.u16()?, r.u16()?);
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let len = usize::from(r.u16()?);
    let table = r.u8()?;
    r.skip(1)?;
    let cookie = r.u64()?;
    let (matching, instructions) = if c.version == Version::V10 {
        let (matching, _) = read_nx_match(c, len, r)?;
        let apply = action::read_actions(c.version, r.left(), r, c.fields)?;
        (matching, Instructions { apply, ..Instructions::default() })
    } else {
        let matching = oxm::read_match(c.version, r, c.fields)?;
        (matching, instruction::read_instructions(c.version, r.left(), r, c.fields)?)
    };
    let flow = FlowEntry { table, matching, priority, cookie, timeouts, instructions, ..empty_flow() };
    Ok(FlowUpdate::Full { event, reason: reason_of(event, why)?, flow })
}

/// The removal reason of an update; other events have none.
fn reason_of(event: UpdateEvent, number: u16) -> Result<RemovedReason> {
    if event == UpdateEvent::Removed { reason(number) } else { Ok(RemovedReason::IdleTimeout) }
}

fn empty_flow() -> FlowEntry {
    FlowEntry {
        table: 0,
        matching: crate::matching::Match::any(),
        priority: 0,
        cookie: 0,
        timeouts: Timeouts::default(),
        flags: 0,
        importance: 0,
        duration: (0, 0),
        ages: (0, 0),
        counts: Counts::default(),
        instructions: Instructions::default(),
    }
}

/// Appends a flow update.
pub(super) fn write_update(c: Context<'_>, update: &FlowUpdate, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.u16(0);
    let is_new = c.version >= Version::V14;
    match update {
        FlowUpdate::Abbreviated { xid } => {
            out.u16(if is_new { ABBREVIATED } else { ABBREVIATED_OLD });
            out.u32(*xid);
        }
        FlowUpdate::Paused(is_paused) if is_new => {
            out.u16(if *is_paused { PAUSED } else { RESUMED });
            out.u32(0);
        }
        FlowUpdate::Paused(_) => return Err(lacks(c.version, "flow update for pauses")),
        FlowUpdate::Full { event, reason, flow } => {
            let why = if *event == UpdateEvent::Removed { reason_number(c.version, *reason) } else { 0 };
            if is_new {
                write_full_14(c, *event, why, flow, out)?;
            } else {
                write_full_old(c, *event, why, flow, out)?;
            }
        }
    }
    out.patch_length(start, start)
}

fn write_full_14(c: Context<'_>, event: UpdateEvent, why: u8, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    out.u16(event as u16);
    out.bytes(&[flow.table, why]);
    for value in [flow.timeouts.idle, flow.timeouts.hard, flow.priority, 0, 0] {
        out.u16(value);
    }
    out.u64(flow.cookie);
    oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    instruction::write_instructions(c.version, &flow.instructions, c.fields, out)
}

fn write_full_old(c: Context<'_>, event: UpdateEvent, why: u8, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    out.u16(match event {
        UpdateEvent::Initial | UpdateEvent::Added => 0,
        UpdateEvent::Removed => 1,
        UpdateEvent::Modified => 2,
    });
    for value in [u16::from(why), flow.priority, flow.timeouts.idle, flow.timeouts.hard] {
        out.u16(value);
    }
    let at = out.len();
    out.bytes(&[0, 0, flow.table, 0]);
    out.u64(flow.cookie);
    if c.version == Version::V10 {
        let len = write_nx_match(c, &flow.matching, (0, 0), out)?;
        out.patch(at, len);
        return action::write_actions(c.version, &as_actions(&flow.instructions), c.fields, out);
    }
    let start = out.len();
    oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    let len = u16::from_be_bytes([out[start + 2], out[start + 3]]);
    out.patch(at, len);
    instruction::write_instructions(c.version, &flow.instructions, c.fields, out)
}

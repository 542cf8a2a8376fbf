//! Flow mods, flow removals, and Nicira's matches on the cookie.
//!
//! OpenFlow 1.0, 5.3.3, 5.4.2; 1.3.5, 7.3.4.1, 7.4.2; 1.5.1, 7.4.2; `NXT_FLOW_MOD`, `NXT_FLOW_REMOVED`.

use super::oxs::Oxs;
use super::v10::{read_port, write_port_10};
use super::{Context, Reader, Result, Writer, instruction, lacks, oxm};
use crate::action::{Action, Instructions, port};
use crate::error::{Error, ErrorKind};
use crate::matching::Match;
use crate::message::{
    Counts, FlowCommand, FlowMod, FlowRemoved, GROUP_ANY, RemovedReason, Timeouts, Version, flow_flag,
};

/// All tables; in 1.0, an unspecified table.
const TABLE_ALL: u8 = 0xff;
/// `OFPFF_EMERG`: OpenFlow 1.0's flag for the emergency flow cache.
const EMERGENCY: u16 = 4;
/// The header of `NXM_NX_COOKIE` without length and mask bit.
const COOKIE: u32 = 0x0001_0000 | 30 << 9;

/// The flow mod command with a number.
fn command(number: u16) -> Result<FlowCommand> {
    Ok(match number {
        0 => FlowCommand::Add,
        1 => FlowCommand::Modify,
        2 => FlowCommand::ModifyStrict,
        3 => FlowCommand::Delete,
        4 => FlowCommand::DeleteStrict,
        _ => return Err(Error::new(ErrorKind::FmfcBadCommand, format!("command {number}"))),
    })
}

fn is_delete(command: FlowCommand) -> bool {
    matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict)
}

/// The flow flags of a version.
pub(super) fn known_flags(version: Version) -> u16 {
    use flow_flag::*;
    let old = SEND_FLOW_REM | CHECK_OVERLAP;
    if version == Version::V10 { old } else { old | RESET_COUNTS | NO_PKT_COUNTS | NO_BYT_COUNTS }
}

/// Decodes a flow mod.
pub(super) fn read_mod(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowMod> {
    if c.version == Version::V10 { read_mod_10(c, r) } else { read_mod_13(c, r) }
}

fn read_mod_13(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowMod> {
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let table = r.u8()?;
    let command = command(u16::from(r.u8()?))?;
    if table == TABLE_ALL && !is_delete(command) {
        return Err(Error::new(ErrorKind::FmfcBadTableId, "table 255 in other than a deletion"));
    }
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let priority = r.u16()?;
    let buffer = r.u32()?;
    let (out_port, out_group) = (r.u32()?, r.u32()?);
    let flags = check_flags(c.version, r.u16()?)?;
    let importance = r.u16()?;
    let matching = oxm::read_match(c.version, r, c.fields)?;
    let instructions = instruction::read_instructions(c.version, r.left(), r, c.fields)?;
    Ok(FlowMod {
        command,
        table,
        matching,
        priority,
        cookie,
        cookie_mask: if command == FlowCommand::Add { 0 } else { cookie_mask },
        timeouts,
        buffer,
        out_port: if is_delete(command) { out_port } else { port::ANY },
        out_group: if is_delete(command) { out_group } else { GROUP_ANY },
        flags,
        importance: if c.version >= Version::V14 { importance } else { 0 },
        instructions,
    })
}

fn read_mod_10(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowMod> {
    let mut ahead = *r;
    let wildcards = ahead.u32()?;
    let matching = oxm::read_match(c.version, r, c.fields)?;
    let cookie = r.u64()?;
    let mut flow = read_rest_10(c, r, matching, cookie)?;
    flow.instructions = instruction::read_instructions(c.version, r.left(), r, c.fields)?;
    // Flows without wildcards have the highest priority (OpenFlow 1.0, 3.4).
    if wildcards & 0x003f_ffff == 0 {
        flow.priority = u16::MAX;
    }
    Ok(flow)
}

/// Decodes `NXT_FLOW_MOD`.
pub(super) fn read_mod_nx(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowMod> {
    let new_cookie = r.u64()?;
    let mut flow = read_rest_10(c, r, Match::any(), new_cookie)?;
    let len = usize::from(r.u16()?);
    r.skip(6)?;
    let (matching, (cookie, mask)) = read_nx_match(c, len, r)?;
    flow.matching = matching;
    if mask != 0 {
        if flow.command == FlowCommand::Add {
            return Err(Error::new(ErrorKind::NxbrcNxmInvalid, "an addition matches a cookie"));
        }
        let changes_cookie = new_cookie != u64::MAX && new_cookie != cookie;
        if changes_cookie && !is_delete(flow.command) {
            return Err(Error::new(
                ErrorKind::NxbrcNxmInvalid,
                "a modification that matches one cookie and sets another",
            ));
        }
        (flow.cookie, flow.cookie_mask) = (cookie, mask);
    }
    flow.instructions = instruction::read_instructions(c.version, r.left(), r, c.fields)?;
    Ok(flow)
}

/// Decodes what the flow mods of 1.0 and Nicira share after the cookie.
fn read_rest_10(c: Context<'_>, r: &mut Reader<'_>, matching: Match, cookie: u64) -> Result<FlowMod> {
    let number = r.u16()?;
    let (command, table) = if c.formats.flow_mod_table_id {
        (command(number & 0xff)?, (number >> 8) as u8)
    } else {
        (command(number)?, TABLE_ALL)
    };
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let priority = r.u16()?;
    let buffer = r.u32()?;
    let out_port = read_port(Version::V10, r)?;
    let raw = r.u16()?;
    if raw & EMERGENCY != 0 {
        let is_timed = timeouts != Timeouts::default();
        let kind = if is_timed { ErrorKind::FmfcBadEmergTimeout } else { ErrorKind::FmfcTableFull };
        return Err(Error::new(kind, "there is no emergency flow cache"));
    }
    let mut flags = check_flags(Version::V10, raw)?;
    if command == FlowCommand::Add {
        // The counters of an added flow start at zero (OpenFlow 1.0, 4.6); later versions have a flag for it.
        flags |= flow_flag::RESET_COUNTS;
    }
    Ok(FlowMod {
        command,
        table,
        matching,
        priority,
        cookie,
        cookie_mask: 0,
        timeouts,
        buffer,
        out_port: if is_delete(command) { out_port } else { port::ANY },
        out_group: GROUP_ANY,
        flags,
        importance: 0,
        instructions: Instructions::default(),
    })
}

fn check_flags(version: Version, flags: u16) -> Result<u16> {
    let unknown = flags & !known_flags(version);
    if unknown == 0 { Ok(flags) } else { Err(Error::new(ErrorKind::FmfcBadFlags, format!("flags {unknown:#x}"))) }
}

/// Appends a flow mod, in Nicira's format if the connection uses it.
pub(super) fn write_mod(c: Context<'_>, flow: &FlowMod, out: &mut Vec<u8>) -> Result<()> {
    if c.version == Version::V10 { write_mod_10(c, flow, out) } else { write_mod_13(c, flow, out) }
}

fn write_mod_13(c: Context<'_>, flow: &FlowMod, out: &mut Vec<u8>) -> Result<()> {
    out.u64(flow.cookie);
    out.u64(flow.cookie_mask);
    out.u8(flow.table);
    out.u8(flow.command as u8);
    for value in [flow.timeouts.idle, flow.timeouts.hard, flow.priority] {
        out.u16(value);
    }
    for value in [flow.buffer, flow.out_port, flow.out_group] {
        out.u32(value);
    }
    out.u16(flow.flags & known_flags(c.version));
    out.u16(if c.version >= Version::V14 { flow.importance } else { 0 });
    oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    instruction::write_instructions(c.version, &flow.instructions, c.fields, out)
}

fn write_mod_10(c: Context<'_>, flow: &FlowMod, out: &mut Vec<u8>) -> Result<()> {
    let is_nxm = c.is_nxm();
    if flow.out_group != GROUP_ANY {
        return Err(lacks(c.version, "flow mod limited to a group"));
    }
    if flow.cookie_mask != 0 && !is_nxm {
        return Err(lacks(c.version, "flow mod limited to cookies"));
    }
    let Instructions { apply, metadata, .. } = &flow.instructions;
    if (Instructions { apply: apply.clone(), metadata: *metadata, ..Instructions::default() }) != flow.instructions {
        return Err(Error::new(ErrorKind::BicUnsupInst, "OpenFlow 1.0 has actions only"));
    }
    let mut command = flow.command as u16;
    if c.formats.flow_mod_table_id {
        command |= u16::from(flow.table) << 8;
    } else if flow.table != TABLE_ALL {
        return Err(lacks(c.version, "flow mod that names a table"));
    }
    if !is_nxm {
        oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    }
    let keeps_cookie = is_nxm && flow.cookie_mask != 0;
    out.u64(if keeps_cookie { u64::MAX } else { flow.cookie });
    for value in [command, flow.timeouts.idle, flow.timeouts.hard, flow.priority] {
        out.u16(value);
    }
    out.u32(flow.buffer);
    write_port_10(flow.out_port, out)?;
    out.u16(flow.flags & known_flags(c.version));
    if is_nxm {
        let at = out.len();
        out.zeros(8);
        let len = write_nx_match(c, &flow.matching, (flow.cookie, flow.cookie_mask), out)?;
        out.patch(at, len);
    }
    instruction::write_instructions(c.version, &flow.instructions, c.fields, out)
}

/// Decodes a match of `len` bytes of NXM, padded to a multiple of 8, and the value and mask of the cookie that it
/// matches.
pub(super) fn read_nx_match(c: Context<'_>, len: usize, r: &mut Reader<'_>) -> Result<(Match, (u64, u64))> {
    let (matching, cookie, mask) = oxm::read_nx_match_with_cookie(len, r, c.fields)?;
    r.skip(len.next_multiple_of(8) - len)?;
    Ok((matching, (cookie & mask, mask)))
}

/// Appends a match in NXM, with a match on the cookie unless its mask is zero, padded to a multiple of 8 bytes. Returns
/// its length without padding.
pub(super) fn write_nx_match(
    c: Context<'_>,
    matching: &Match,
    (cookie, mask): (u64, u64),
    out: &mut Vec<u8>,
) -> Result<u16> {
    let start = out.len();
    oxm::write_nx_match(c.version, matching, c.fields, out)?;
    match mask {
        0 => {}
        u64::MAX => {
            out.u32(COOKIE | 8);
            out.u64(cookie);
        }
        _ => {
            out.u32(COOKIE | 0x100 | 16);
            out.u64(cookie & mask);
            out.u64(mask);
        }
    }
    let len =
        u16::try_from(out.len() - start).map_err(|_| Error::new(ErrorKind::BmcBadLen, "the match is too long"))?;
    out.align(start);
    Ok(len)
}

/// Instructions as a list of actions for OpenFlow 1.0 statistics and notifications: goto-table becomes a resubmit,
/// meters are omitted, and the actions of write-actions come last.
pub(super) fn as_actions(instructions: &Instructions) -> Vec<Action> {
    let mut actions = instructions.apply.clone();
    if let Some((value, mask)) = instructions.metadata {
        actions.push(Action::WriteMetadata { value, mask });
    }
    if let Some(table) = instructions.goto {
        actions.push(Action::Resubmit { port: None, table: Some(table), with_ct: false });
    }
    actions.extend(instructions.write.iter().cloned());
    actions
}

/// The removal reason with a number.
pub(super) fn reason(number: u16) -> Result<RemovedReason> {
    Ok(match number {
        0 => RemovedReason::IdleTimeout,
        1 => RemovedReason::HardTimeout,
        2 => RemovedReason::Delete,
        3 => RemovedReason::GroupDelete,
        4 => RemovedReason::MeterDelete,
        5 => RemovedReason::Eviction,
        _ => return Err(Error::new(ErrorKind::NxbrcBadReason, format!("removed for reason {number}"))),
    })
}

/// The number of a removal reason in a version; before 1.4, newer reasons are encoded as deletion.
pub(super) fn reason_number(version: Version, reason: RemovedReason) -> u8 {
    let is_new = matches!(reason, RemovedReason::MeterDelete | RemovedReason::Eviction);
    let has_no_groups = version == Version::V10 && reason == RemovedReason::GroupDelete;
    let reason = if is_new && version < Version::V14 || has_no_groups { RemovedReason::Delete } else { reason };
    reason as u8
}

/// Decodes a flow removal.
pub(super) fn read_removed(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowRemoved> {
    if c.version == Version::V15 {
        return read_removed_15(c, r);
    }
    let matching = if c.version == Version::V10 { oxm::read_match(c.version, r, c.fields)? } else { Match::any() };
    let cookie = r.u64()?;
    let priority = r.u16()?;
    let reason = reason(u16::from(r.u8()?))?;
    let table = r.u8()?;
    let duration = (r.u32()?, r.u32()?);
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    let removed = FlowRemoved { matching, priority, cookie, table, reason, duration, timeouts, counts };
    if c.version == Version::V10 {
        return Ok(FlowRemoved { table: TABLE_ALL, timeouts: Timeouts { hard: 0, ..timeouts }, ..removed });
    }
    Ok(FlowRemoved { matching: oxm::read_match(c.version, r, c.fields)?, ..removed })
}

fn read_removed_15(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowRemoved> {
    let table = r.u8()?;
    let reason = reason(u16::from(r.u8()?))?;
    let priority = r.u16()?;
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let cookie = r.u64()?;
    let matching = oxm::read_match(c.version, r, c.fields)?;
    let stats = Oxs::read(r)?;
    let duration = stats.duration.unwrap_or_default();
    Ok(FlowRemoved { matching, priority, cookie, table, reason, duration, timeouts, counts: stats.counts })
}

/// Decodes `NXT_FLOW_REMOVED`.
pub(super) fn read_removed_nx(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowRemoved> {
    let cookie = r.u64()?;
    let priority = r.u16()?;
    let reason = reason(u16::from(r.u8()?))?;
    // The table id plus one; old switches send 0.
    let table = r.u8()?.wrapping_sub(1);
    let duration = (r.u32()?, r.u32()?);
    let timeouts = Timeouts { idle: r.u16()?, hard: 0 };
    let len = usize::from(r.u16()?);
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    let (matching, _) = read_nx_match(c, len, r)?;
    Ok(FlowRemoved { matching, priority, cookie, table, reason, duration, timeouts, counts })
}

/// Appends a flow removal, in Nicira's format if the connection uses it.
pub(super) fn write_removed(c: Context<'_>, flow: &FlowRemoved, out: &mut Vec<u8>) -> Result<()> {
    let reason = reason_number(c.version, flow.reason);
    if c.version == Version::V15 {
        out.u8(flow.table);
        out.u8(reason);
        for value in [flow.priority, flow.timeouts.idle, flow.timeouts.hard] {
            out.u16(value);
        }
        out.u64(flow.cookie);
        oxm::write_match(c.version, &flow.matching, c.fields, out)?;
        let stats = Oxs { duration: Some(flow.duration), counts: flow.counts, ..Oxs::default() };
        stats.write(out);
        return Ok(());
    }
    let is_nxm = c.is_nxm();
    if c.version == Version::V10 && !is_nxm {
        oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    }
    out.u64(flow.cookie);
    out.u16(flow.priority);
    out.u8(reason);
    out.u8(match (c.version, is_nxm) {
        (Version::V10, true) => flow.table.wrapping_add(1),
        (Version::V10, false) => 0,
        _ => flow.table,
    });
    out.u32(flow.duration.0);
    out.u32(flow.duration.1);
    out.u16(flow.timeouts.idle);
    let at = out.len();
    out.u16(if c.version == Version::V10 { 0 } else { flow.timeouts.hard });
    out.u64(flow.counts.packets);
    out.u64(flow.counts.bytes);
    if is_nxm {
        let len = write_nx_match(c, &flow.matching, (0, 0), out)?;
        out.patch(at, len);
    } else if c.version != Version::V10 {
        oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    }
    Ok(())
}

//! Flow statistics: requests, individual entries, aggregates.
//!
//! OpenFlow 1.0, 5.3.5; 1.3.5, 7.3.5.2, 7.3.5.3; 1.5.1, 7.3.5.2 to 7.3.5.4; `NXST_FLOW`, `NXST_AGGREGATE`.

use super::flow::{as_actions, known_flags, read_nx_match, write_nx_match};
use super::oxs::Oxs;
use super::v10::{read_port, write_port, write_port_10};
use super::{Context, Reader, Result, Writer, action, instruction, lacks, oxm};
use crate::action::Instructions;
use crate::message::{Counts, FlowEntry, FlowFilter, GROUP_ANY, Timeouts, Version};

/// Decodes the filter of a flow statistics request.
pub(super) fn read_filter(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowFilter> {
    if c.version == Version::V10 {
        let matching = oxm::read_match(c.version, r, c.fields)?;
        let table = r.u8()?;
        r.skip(1)?;
        let out_port = read_port(c.version, r)?;
        return Ok(FlowFilter { table, out_port, out_group: GROUP_ANY, cookie: 0, cookie_mask: 0, matching });
    }
    let table = r.u8()?;
    r.skip(3)?;
    let (out_port, out_group) = (r.u32()?, r.u32()?);
    r.skip(4)?;
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let matching = oxm::read_match(c.version, r, c.fields)?;
    Ok(FlowFilter { table, out_port, out_group, cookie, cookie_mask, matching })
}

/// Decodes the filter of Nicira's requests.
pub(super) fn read_filter_nx(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowFilter> {
    let out_port = read_port(Version::V10, r)?;
    let len = usize::from(r.u16()?);
    let table = r.u8()?;
    r.skip(3)?;
    let (matching, (cookie, cookie_mask)) = read_nx_match(c, len, r)?;
    Ok(FlowFilter { table, out_port, out_group: GROUP_ANY, cookie, cookie_mask, matching })
}

/// Appends the filter of a flow statistics request, in Nicira's format if the connection uses it.
pub(super) fn write_filter(c: Context<'_>, filter: &FlowFilter, out: &mut Vec<u8>) -> Result<()> {
    if c.version != Version::V10 {
        out.bytes(&[filter.table, 0, 0, 0]);
        out.u32(filter.out_port);
        out.u32(filter.out_group);
        out.u32(0);
        out.u64(filter.cookie);
        out.u64(filter.cookie_mask);
        return oxm::write_match(c.version, &filter.matching, c.fields, out);
    }
    if filter.out_group != GROUP_ANY {
        return Err(lacks(c.version, "request for flows limited to a group"));
    }
    if c.is_nxm() {
        write_port_10(filter.out_port, out)?;
        let at = out.len();
        out.u16(0);
        out.bytes(&[filter.table, 0, 0, 0]);
        let len = write_nx_match(c, &filter.matching, (filter.cookie, filter.cookie_mask), out)?;
        out.patch(at, len);
        return Ok(());
    }
    if filter.cookie_mask != 0 {
        return Err(lacks(c.version, "request for flows limited to cookies"));
    }
    oxm::write_match(c.version, &filter.matching, c.fields, out)?;
    out.bytes(&[filter.table, 0]);
    write_port(c.version, filter.out_port, out)
}

/// Reads the length of an entry, and returns a reader of the rest of the entry.
pub(super) fn entry<'a>(r: &mut Reader<'a>) -> Result<Reader<'a>> {
    let len = usize::from(r.u16()?);
    let body = len.checked_sub(2).ok_or_else(|| r.bad_length("an entry is shorter than its length"))?;
    r.sub(body)
}

/// Decodes a flow entry.
pub(super) fn read_entry(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowEntry> {
    let mut r = entry(r)?;
    let mut flow = match c.version {
        Version::V10 => read_entry_10(c, &mut r)?,
        Version::V13 | Version::V14 => read_entry_13(c, &mut r)?,
        Version::V15 => read_entry_15(c, &mut r)?,
    };
    if c.version == Version::V10 {
        flow.instructions.apply = action::read_actions(c.version, r.left(), &mut r, c.fields)?;
    } else {
        flow.instructions = instruction::read_instructions(c.version, r.left(), &mut r, c.fields)?;
    }
    Ok(flow)
}

fn read_entry_10(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowEntry> {
    let table = r.u8()?;
    r.skip(1)?;
    let matching = oxm::read_match(c.version, r, c.fields)?;
    let duration = (r.u32()?, r.u32()?);
    let priority = r.u16()?;
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    r.skip(6)?;
    let cookie = r.u64()?;
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    Ok(FlowEntry {
        table,
        matching,
        priority,
        cookie,
        timeouts,
        flags: 0,
        importance: 0,
        duration,
        ages: (0, 0),
        counts,
        instructions: Instructions::default(),
    })
}

fn read_entry_13(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowEntry> {
    let table = r.u8()?;
    r.skip(1)?;
    let duration = (r.u32()?, r.u32()?);
    let priority = r.u16()?;
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let flags = r.u16()?;
    let importance = r.u16()?;
    r.skip(2)?;
    let cookie = r.u64()?;
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    let matching = oxm::read_match(c.version, r, c.fields)?;
    Ok(FlowEntry {
        table,
        matching,
        priority,
        cookie,
        timeouts,
        flags: flags & known_flags(c.version),
        importance: if c.version >= Version::V14 { importance } else { 0 },
        duration,
        ages: (0, 0),
        counts,
        instructions: Instructions::default(),
    })
}

fn read_entry_15(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowEntry> {
    r.skip(2)?;
    let table = r.u8()?;
    r.skip(1)?;
    let priority = r.u16()?;
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let flags = r.u16()?;
    let importance = r.u16()?;
    let cookie = r.u64()?;
    let matching = oxm::read_match(c.version, r, c.fields)?;
    let stats = Oxs::read(r)?;
    Ok(FlowEntry {
        table,
        matching,
        priority,
        cookie,
        timeouts,
        flags: flags & known_flags(c.version),
        importance,
        duration: stats.duration.unwrap_or_default(),
        ages: (stats.idle.unwrap_or(0), 0),
        counts: stats.counts,
        instructions: Instructions::default(),
    })
}

/// Decodes a flow entry of Nicira's format.
pub(super) fn read_entry_nx(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowEntry> {
    let mut r = entry(r)?;
    let table = r.u8()?;
    r.skip(1)?;
    let duration = (r.u32()?, r.u32()?);
    let priority = r.u16()?;
    let timeouts = Timeouts { idle: r.u16()?, hard: r.u16()? };
    let len = usize::from(r.u16()?);
    // Seconds plus one; 0 if unknown.
    let ages = (r.u16()?, r.u16()?);
    let cookie = r.u64()?;
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    let (matching, _) = read_nx_match(c, len, &mut r)?;
    let apply = action::read_actions(c.version, r.left(), &mut r, c.fields)?;
    Ok(FlowEntry {
        table,
        matching,
        priority,
        cookie,
        timeouts,
        flags: 0,
        importance: 0,
        duration,
        ages: (u32::from(ages.0.saturating_sub(1)), u32::from(ages.1.saturating_sub(1))),
        counts,
        instructions: Instructions { apply, ..Instructions::default() },
    })
}

/// Appends a flow entry, in Nicira's format if the connection uses it.
pub(super) fn write_entry(c: Context<'_>, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.u16(0);
    match c.version {
        Version::V10 if c.is_nxm() => write_entry_nx(c, flow, out)?,
        Version::V10 => write_entry_10(c, flow, out)?,
        Version::V13 | Version::V14 => write_entry_13(c, flow, out)?,
        Version::V15 => write_entry_15(c, flow, out)?,
    }
    if c.version == Version::V10 {
        action::write_actions(c.version, &as_actions(&flow.instructions), c.fields, out)?;
    } else {
        instruction::write_instructions(c.version, &flow.instructions, c.fields, out)?;
    }
    out.patch_length(start, start)
}

fn write_entry_10(c: Context<'_>, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    out.bytes(&[flow.table, 0]);
    oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    write_duration(flow.duration, out);
    for value in [flow.priority, flow.timeouts.idle, flow.timeouts.hard] {
        out.u16(value);
    }
    out.zeros(6);
    write_counts(flow, out);
    Ok(())
}

fn write_entry_13(c: Context<'_>, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    out.bytes(&[flow.table, 0]);
    write_duration(flow.duration, out);
    let importance = if c.version >= Version::V14 { flow.importance } else { 0 };
    let flags = flow.flags & known_flags(c.version);
    for value in [flow.priority, flow.timeouts.idle, flow.timeouts.hard, flags, importance, 0] {
        out.u16(value);
    }
    write_counts(flow, out);
    oxm::write_match(c.version, &flow.matching, c.fields, out)
}

fn write_entry_15(c: Context<'_>, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    out.bytes(&[0, 0, flow.table, 0]);
    let flags = flow.flags & known_flags(c.version);
    for value in [flow.priority, flow.timeouts.idle, flow.timeouts.hard, flags, flow.importance] {
        out.u16(value);
    }
    out.u64(flow.cookie);
    oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    oxs_of(flow).write(out);
    Ok(())
}

fn write_entry_nx(c: Context<'_>, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    out.bytes(&[flow.table, 0]);
    write_duration(flow.duration, out);
    for value in [flow.priority, flow.timeouts.idle, flow.timeouts.hard] {
        out.u16(value);
    }
    let at = out.len();
    out.u16(0);
    for age in [flow.ages.0, flow.ages.1] {
        out.u16(u16::try_from(age.saturating_add(1)).unwrap_or(u16::MAX));
    }
    write_counts(flow, out);
    let len = write_nx_match(c, &flow.matching, (0, 0), out)?;
    out.patch(at, len);
    Ok(())
}

fn write_duration((seconds, nanoseconds): (u32, u32), out: &mut Vec<u8>) {
    out.u32(seconds);
    out.u32(nanoseconds);
}

fn write_counts(flow: &FlowEntry, out: &mut Vec<u8>) {
    for value in [flow.cookie, flow.counts.packets, flow.counts.bytes] {
        out.u64(value);
    }
}

fn oxs_of(flow: &FlowEntry) -> Oxs {
    Oxs { duration: Some(flow.duration), idle: Some(flow.ages.0), flows: None, counts: flow.counts }
}

/// Decodes a flow entry without instructions (`OFPMP_FLOW_STATS`, 1.5).
pub(super) fn read_short(c: Context<'_>, r: &mut Reader<'_>) -> Result<FlowEntry> {
    let mut r = entry(r)?;
    r.skip(2)?;
    let table = r.u8()?;
    r.skip(1)?;
    let priority = r.u16()?;
    let matching = oxm::read_match(c.version, &mut r, c.fields)?;
    let stats = Oxs::read(&mut r)?;
    if !r.is_empty() {
        return Err(r.bad_length("bytes follow a flow's statistics"));
    }
    Ok(FlowEntry {
        table,
        matching,
        priority,
        cookie: 0,
        timeouts: Timeouts::default(),
        flags: 0,
        importance: 0,
        duration: stats.duration.unwrap_or_default(),
        ages: (stats.idle.unwrap_or(0), 0),
        counts: stats.counts,
        instructions: Instructions::default(),
    })
}

/// Appends a flow entry without instructions.
pub(super) fn write_short(c: Context<'_>, flow: &FlowEntry, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.zeros(4);
    out.bytes(&[flow.table, 0]);
    out.u16(flow.priority);
    oxm::write_match(c.version, &flow.matching, c.fields, out)?;
    oxs_of(flow).write(out);
    out.patch_length(start, start)
}

/// Decodes aggregate statistics.
pub(super) fn read_aggregate(version: Version, r: &mut Reader<'_>) -> Result<(Counts, u32)> {
    if version == Version::V15 {
        let stats = Oxs::read(r)?;
        return Ok((stats.counts, stats.flows.unwrap_or(0)));
    }
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    let flows = r.u32()?;
    r.skip(4)?;
    Ok((counts, flows))
}

/// Appends aggregate statistics.
pub(super) fn write_aggregate(version: Version, counts: Counts, flows: u32, out: &mut Vec<u8>) {
    if version == Version::V15 {
        return Oxs { flows: Some(flows), counts, ..Oxs::default() }.write(out);
    }
    out.u64(counts.packets);
    out.u64(counts.bytes);
    out.u32(flows);
    out.u32(0);
}

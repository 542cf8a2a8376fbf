//! Instructions (OpenFlow 1.3.5, 7.2.4; 1.5.1, 7.2.5). OpenFlow 1.0 has a list of actions instead.
//!
//! A meter action at the start of 1.5's apply-actions and the meter instruction of 1.3 and 1.4 are both
//! [`Instructions::meter`]. In OpenFlow 1.0, write-metadata is Nicira's action and goto-table is Nicira's `resubmit`,
//! as in Open vSwitch.

use crate::action::{Action, Instructions};
use crate::error::ErrorKind;
use crate::field::Fields;
use crate::message::Version;
use crate::wire::action::{read_actions, write_actions};
use crate::wire::{Reader, Result, Writer, fail, unencodable};

/// `OFPIT_` numbers.
mod kind {
    pub(super) const GOTO_TABLE: u16 = 1;
    pub(super) const WRITE_METADATA: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 3;
    pub(super) const APPLY_ACTIONS: u16 = 4;
    pub(super) const CLEAR_ACTIONS: u16 = 5;
    pub(super) const METER: u16 = 6;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
}

/// Decodes `len` bytes of instructions.
pub(crate) fn read_instructions(version: Version, len: usize, r: &mut Reader, fields: &Fields) -> Result<Instructions> {
    let mut read = if version == Version::V10 {
        Instructions { apply: read_actions(version, len, r, fields)?, ..Instructions::default() }
    } else {
        read_list(version, len, r, fields)?
    };
    match version {
        Version::V10 => {
            if let Some(Action::WriteMetadata { value, mask }) = read.apply.last() {
                read.metadata = Some((*value, *mask));
                read.apply.pop();
            }
        }
        Version::V15 => {
            if let Some(Action::Meter(meter)) = read.apply.first() {
                read.meter = Some(*meter);
                read.apply.remove(0);
            }
        }
        _ => {}
    }
    check_lists(&read)?;
    Ok(read)
}

fn read_list(version: Version, len: usize, r: &mut Reader, fields: &Fields) -> Result<Instructions> {
    let mut list = r.short(ErrorKind::BicBadLen).sub(len)?;
    r.skip(len)?;
    let mut read = Instructions::default();
    let mut seen = 0u32;
    while !list.is_empty() {
        let kind = list.u16()?;
        let len = usize::from(list.u16()?);
        if len < 8 || !len.is_multiple_of(8) {
            return fail(ErrorKind::BicBadLen, format!("an instruction of type {kind} with {len} bytes"));
        }
        let mut body = list.sub(len - 4)?;
        let full_len = match kind {
            kind::GOTO_TABLE | kind::CLEAR_ACTIONS => Some(8),
            kind::METER if matches!(version, Version::V13 | Version::V14) => Some(8),
            kind::WRITE_METADATA => Some(24),
            kind::WRITE_ACTIONS | kind::APPLY_ACTIONS => None,
            kind::EXPERIMENTER => return fail(ErrorKind::BicBadExperimenter, "no experimenter's instruction is known"),
            _ => return fail(ErrorKind::BicUnknownInst, format!("there is no instruction {kind}")),
        };
        if full_len.is_some_and(|full| full != len) {
            return fail(ErrorKind::BicBadLen, format!("an instruction of type {kind} with {len} bytes"));
        }
        if seen >> kind & 1 != 0 {
            return fail(ErrorKind::BicDupInst, format!("instruction {kind} twice"));
        }
        seen |= 1 << kind;
        match kind {
            kind::GOTO_TABLE => read.goto = Some(body.u8()?),
            kind::CLEAR_ACTIONS => read.clear = true,
            kind::METER => read.meter = Some(body.u32()?),
            kind::WRITE_METADATA => {
                body.skip(4)?;
                let (value, mask) = (body.u64()?, body.u64()?);
                read.metadata = Some((value & mask, mask));
            }
            _ => {
                body.skip(4)?;
                let actions = read_actions(version, body.left(), &mut body, fields)?;
                if kind == kind::APPLY_ACTIONS {
                    read.apply = actions;
                } else {
                    read.write = actions;
                }
            }
        }
    }
    Ok(read)
}

/// Refuses actions that are not allowed in their list.
fn check_lists(read: &Instructions) -> Result<()> {
    let is_conjunction = |action: &Action| matches!(action, Action::Conjunction { .. });
    if read.apply.iter().any(is_conjunction) {
        let alone = read.apply.iter().all(|action| is_conjunction(action) || matches!(action, Action::Note(_)));
        let others = read.meter.is_some()
            || read.clear
            || !read.write.is_empty()
            || read.metadata.is_some()
            || read.goto.is_some();
        if !alone || others {
            return fail(ErrorKind::NxbacBadConjunction, "`conjunction` stands beside nothing but `note`");
        }
    }
    if read.apply.iter().any(|action| matches!(action, Action::WriteMetadata { .. })) {
        return fail(ErrorKind::BacUnsupportedOrder, "`write_metadata` comes last");
    }
    if let Some(action) = read.write.iter().find(|action| !may_be_in_set(action)) {
        return fail(ErrorKind::BacBadType, format!("the action set cannot have {action:?}"));
    }
    check_nested(&read.apply, false)
}

fn check_nested(actions: &[Action], is_nested: bool) -> Result<()> {
    for action in actions {
        match action {
            Action::Meter(_) if is_nested => return fail(ErrorKind::BacBadArgument, "`meter` within another action"),
            Action::Clone(actions) => check_nested(actions, true)?,
            _ => {}
        }
    }
    Ok(())
}

/// Whether an action may be in the action set (OpenFlow 1.3.5, 5.10; ovs-actions(7), "Actions in the action set").
fn may_be_in_set(action: &Action) -> bool {
    matches!(
        action,
        Action::Output { .. }
            | Action::Group(_)
            | Action::Resubmit { .. }
            | Action::SetQueue(_)
            | Action::SetField { .. }
            | Action::SetFieldIfPresent { .. }
            | Action::Move { .. }
            | Action::Header { .. }
            | Action::DecTtlControllers(_)
            | Action::Unsupported("ct" | "ct_clear" | "encap" | "decap" | "dec_nsh_ttl")
    )
}

/// Encodes instructions.
pub(crate) fn write_instructions(
    version: Version,
    instructions: &Instructions,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Result<()> {
    if version == Version::V10 {
        return write_10(instructions, fields, out);
    }
    let Instructions { meter, apply, clear, write, metadata, goto } = instructions;
    let mut apply = apply.clone();
    let mut meter = *meter;
    if version == Version::V15 {
        if let Some(meter) = meter.take() {
            apply.insert(0, Action::Meter(meter));
        }
    } else if let (None, Some(Action::Meter(first))) = (meter, apply.first()) {
        meter = Some(*first);
        apply.remove(0);
    }
    if let Some(meter) = meter {
        out.u16(kind::METER);
        out.u16(8);
        out.u32(meter);
    }
    write_list(version, kind::APPLY_ACTIONS, &apply, fields, out)?;
    if *clear {
        out.u16(kind::CLEAR_ACTIONS);
        out.u16(8);
        out.zeros(4);
    }
    write_list(version, kind::WRITE_ACTIONS, write, fields, out)?;
    if let Some((value, mask)) = metadata {
        out.u16(kind::WRITE_METADATA);
        out.u16(24);
        out.zeros(4);
        out.u64(*value);
        out.u64(*mask);
    }
    if let Some(table) = goto {
        out.u16(kind::GOTO_TABLE);
        out.u16(8);
        out.u8(*table);
        out.zeros(3);
    }
    Ok(())
}

fn write_list(version: Version, kind: u16, actions: &[Action], fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    if actions.is_empty() {
        return Ok(());
    }
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    out.zeros(4);
    write_actions(version, actions, fields, out)?;
    out.patch_length(start + 2, start)
}

fn write_10(instructions: &Instructions, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let Instructions { meter, apply, clear, write, metadata, goto } = instructions;
    if meter.is_some() || *clear || !write.is_empty() {
        return unencodable("OpenFlow 1.0 has neither meters nor an action set");
    }
    write_actions(Version::V10, apply, fields, out)?;
    if let Some((value, mask)) = *metadata {
        // Nicira's action must come last; metadata before another action is written by a load.
        let (field, is_last) = (fields.basic(2), goto.is_none());
        let action = match field {
            Some(field) if !is_last => Action::SetField { field, value: value.into(), mask: mask.into() },
            _ => Action::WriteMetadata { value, mask },
        };
        write_actions(Version::V10, &[action], fields, out)?;
    }
    if let Some(table) = goto {
        let action = Action::Resubmit { port: None, table: Some(*table), with_ct: false };
        write_actions(Version::V10, &[action], fields, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! OpenFlow's own actions (1.0.0, 5.2.4; 1.3.5, 7.2.5; 1.5.1, 7.2.6), and lists of actions.
//!
//! Some actions of OpenFlow 1.0 have no equivalent in later versions, and vice versa. They are decoded by their
//! meaning:
//!
//! | action | decoded as |
//! | --- | --- |
//! | 1.0 `SET_VLAN_VID`, `SET_VLAN_PCP` | [`HeaderAction::SetVlanVid`], [`HeaderAction::SetVlanPcp`]: may push a tag |
//! | `SET_NW_SRC`, `SET_NW_DST`, `SET_NW_TOS`, `SET_NW_ECN` | [`Action::SetFieldIfPresent`] |
//! | `SET_TP_SRC`, `SET_TP_DST` | one [`Action::SetFieldIfPresent`] for each port field of TCP, UDP and SCTP |
//! | `SET_DL_SRC`, `SET_DL_DST` and others that 1.2 deprecates | [`Action::SetField`] |
//!
//! Versions that have these actions encode them as such; the others use set-field, as in Open vSwitch. OpenFlow 1.0
//! lacks push-vlan: its actions that set a VLAN push the tag, so that push-vlan is omitted, and set-field of a whole
//! VLAN id becomes that action (as in Open vSwitch).
//!
//! Decoding checks everything that needs no state of the bridge: lengths, ports, fields and their bits, whether a field
//! is writable. Actions of Nicira, ONF and Sluice are in [`nicira`](super::nicira).

use crate::action::{Action, HeaderAction, port};
use crate::error::ErrorKind;
use crate::field::{FieldId, Fields};
use crate::message::Version;
use crate::wire::number::{self, Style, VLAN_PRESENT};
use crate::wire::operand::{
    EXPERIMENTER, ends_of, ether_type, exactly, finish, header, limited, output_port, port_16, read_copy, set,
    write_copy, zeros,
};
use crate::wire::oxm::{self, Kinds};
use crate::wire::{Reader, Result, Writer, fail, nicira, unencodable};

/// The maximum nesting depth of actions.
const MAX_DEPTH: usize = 16;

const IN_SET_FIELD: Kinds =
    Kinds { field: ErrorKind::BacBadSetType, length: ErrorKind::BacBadSetLen, value: ErrorKind::BacBadSetArgument };

// OXM numbers of basic-class fields that actions refer to.
const ETH_DST: u8 = 3;
const ETH_SRC: u8 = 4;
const VLAN_VID: u8 = 6;
const VLAN_PCP: u8 = 7;
const IP_DSCP: u8 = 8;
const IP_ECN: u8 = 9;
const IPV4_SRC: u8 = 11;
const IPV4_DST: u8 = 12;
const TP_SRC: [u8; 3] = [13, 15, 17];
const TP_DST: [u8; 3] = [14, 16, 18];
const MPLS_LABEL: u8 = 34;
const MPLS_TC: u8 = 35;

/// Decodes `len` bytes of actions.
pub(crate) fn read_actions(version: Version, len: usize, r: &mut Reader, fields: &Fields) -> Result<Vec<Action>> {
    read_nested(version, len, r, fields, 0)
}

/// The same at nesting depth `depth`.
fn read_nested(version: Version, len: usize, r: &mut Reader, fields: &Fields, depth: usize) -> Result<Vec<Action>> {
    if depth > MAX_DEPTH {
        return fail(ErrorKind::BacTooMany, format!("actions nest deeper than {MAX_DEPTH}"));
    }
    let mut list = r.short(ErrorKind::BacBadLen).sub(len)?;
    r.skip(len)?;
    let mut actions = Vec::new();
    while !list.is_empty() {
        let mut peek = list;
        let kind = peek.u16()?;
        let len = usize::from(peek.u16()?);
        if len < 8 || !len.is_multiple_of(8) {
            return fail(ErrorKind::BacBadLen, format!("an action of type {kind} with {len} bytes"));
        }
        let mut body = list.sub(len)?;
        body.skip(4)?;
        if kind == EXPERIMENTER {
            let nested = |r: &mut Reader| read_nested(version, r.left(), r, fields, depth + 1);
            nicira::read(version, &mut body, fields, nested, &mut actions)?;
        } else if version == Version::V10 {
            read_10(kind, &mut body, fields, &mut actions)?;
        } else {
            read_13(version, kind, &mut body, fields, &mut actions)?;
        }
    }
    Ok(actions)
}

fn read_10(kind: u16, r: &mut Reader, fields: &Fields, actions: &mut Vec<Action>) -> Result<()> {
    let full_len = match kind {
        4 | 5 | 11 => 16,
        0..=10 => 8,
        _ => return fail(ErrorKind::BacBadType, format!("OpenFlow 1.0 has no action {kind}")),
    };
    exactly(full_len, r)?;
    match kind {
        0 => {
            let port = output_port(port::from_16(r.u16()?))?;
            actions.push(Action::Output { port, max_len: r.u16()? });
        }
        1 => actions.push(header(HeaderAction::SetVlanVid, limited(r.u16()?.into(), 0xfff)?)),
        2 => actions.push(header(HeaderAction::SetVlanPcp, limited(r.u8()?.into(), 7)?)),
        3 => actions.push(header(HeaderAction::PopVlan, 0)),
        11 => {
            let port = output_port(port::from_16(r.u16()?))?;
            if port > port::MAX && port != port::IN_PORT && port != port::LOCAL {
                return fail(ErrorKind::BacBadOutPort, format!("port {port:#x} has no queues"));
            }
            r.skip(6)?;
            actions.push(Action::Enqueue { port, queue: r.u32()? });
        }
        // These have 1.1's numbers plus one.
        4..=8 => read_deprecated(kind - 1, r, fields, actions)?,
        _ => read_deprecated(kind, r, fields, actions)?,
    }
    Ok(())
}

/// Decodes a deprecated set action of 1.0 or 1.1, by its number in 1.1.
fn read_deprecated(kind: u16, r: &mut Reader, fields: &Fields, actions: &mut Vec<Action>) -> Result<()> {
    let mut set = |numbers: &[u8], value: u128, always: bool| -> Result<()> {
        let ids: Vec<FieldId> = numbers.iter().filter_map(|number| fields.basic(*number)).collect();
        if !ids.iter().any(|id| fields.get(*id).writable) {
            return fail(ErrorKind::BacBadType, format!("there is no field for action {kind}"));
        }
        for field in ids {
            let mask = fields.get(field).full();
            if value & !mask != 0 {
                return fail(ErrorKind::BacBadArgument, format!("{value:#x} is too large"));
            }
            actions.push(if always {
                Action::SetField { field, value, mask }
            } else {
                Action::SetFieldIfPresent { field, value, mask }
            });
        }
        Ok(())
    };
    match kind {
        1 => set(&[VLAN_VID], VLAN_PRESENT | limited(r.u16()?.into(), 0xfff)?, true),
        2 => set(&[VLAN_PCP], limited(r.u8()?.into(), 7)?, true),
        3 => set(&[ETH_SRC], r.uint(6)?, true),
        4 => set(&[ETH_DST], r.uint(6)?, true),
        5 => set(&[IPV4_SRC], r.uint(4)?, false),
        6 => set(&[IPV4_DST], r.uint(4)?, false),
        7 => {
            let tos = r.u8()?;
            if tos & 3 != 0 {
                return fail(ErrorKind::BacBadArgument, format!("type of service {tos:#x}"));
            }
            set(&[IP_DSCP], u128::from(tos >> 2), false)
        }
        8 => set(&[IP_ECN], limited(r.u8()?.into(), 3)?, false),
        9 => set(&TP_SRC, r.uint(2)?, false),
        10 => set(&TP_DST, r.uint(2)?, false),
        13 => set(&[MPLS_LABEL], limited(r.uint(4)?, 0xf_ffff)?, true),
        14 => set(&[MPLS_TC], limited(r.u8()?.into(), 7)?, true),
        _ => fail(ErrorKind::BacBadType, format!("there is no action {kind}")),
    }
}

fn read_13(version: Version, kind: u16, r: &mut Reader, fields: &Fields, actions: &mut Vec<Action>) -> Result<()> {
    match kind {
        25 => return read_set_field(version, r, fields, actions),
        28 if version == Version::V15 => {
            let bits = r.u16()?;
            actions.push(read_copy(bits, r, 2, fields)?);
            return Ok(());
        }
        0 | 3 | 4 => exactly(16, r)?,
        1..=27 => exactly(8, r)?,
        29 if version == Version::V15 => exactly(8, r)?,
        _ => return fail(ErrorKind::BacBadType, format!("there is no action {kind}")),
    }
    let action = match kind {
        0 => {
            let port = output_port(r.u32()?)?;
            Action::Output { port, max_len: r.u16()? }
        }
        1..=10 | 13 | 14 => return read_deprecated(kind, r, fields, actions),
        11 => header(HeaderAction::CopyTtlOut, 0),
        12 => header(HeaderAction::CopyTtlIn, 0),
        15 => header(HeaderAction::SetMplsTtl, r.u8()?.into()),
        16 => header(HeaderAction::DecMplsTtl, 0),
        17 => header(HeaderAction::PushVlan, ether_type(r, &[0x8100, 0x88a8])?),
        18 => header(HeaderAction::PopVlan, 0),
        19 => header(HeaderAction::PushMpls, ether_type(r, &[0x8847, 0x8848])?),
        20 => header(HeaderAction::PopMpls, r.u16()?.into()),
        21 => Action::SetQueue(r.u32()?),
        22 => Action::Group(r.u32()?),
        23 => header(HeaderAction::SetNwTtl, r.u8()?.into()),
        24 => header(HeaderAction::DecNwTtl, 0),
        26 => header(HeaderAction::PushPbb, ether_type(r, &[0x88e7])?),
        27 => header(HeaderAction::PopPbb, 0),
        _ => Action::Meter(r.u32()?),
    };
    actions.push(action);
    Ok(())
}

fn read_set_field(version: Version, r: &mut Reader, fields: &Fields, actions: &mut Vec<Action>) -> Result<()> {
    let entry = oxm::read_entry(r, &IN_SET_FIELD, fields)?;
    if entry.has_mask && version != Version::V15 {
        return fail(ErrorKind::BacBadSetMask, "set-field has a mask only in OpenFlow 1.5");
    }
    zeros(r.rest(), ErrorKind::BacBadSetArgument)?;
    if entry.number == number::basic(0) {
        return fail(ErrorKind::BacBadSetArgument, "set-field does not write the ingress port (1.3.5, 7.2.5)");
    }
    if entry.number == number::basic(VLAN_VID) && entry.width == 13 && entry.value & entry.mask & VLAN_PRESENT == 0 {
        return fail(ErrorKind::BacBadSetArgument, "set-field writes a VLAN id without OFPVID_PRESENT");
    }
    set(&entry, fields, actions)
}

/// Encodes actions.
pub(crate) fn write_actions(version: Version, actions: &[Action], fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let mut left = actions;
    // Whether an earlier action guarantees a VLAN tag.
    let mut has_tag = false;
    while let Some((action, behind)) = left.split_first() {
        let done = ports_in_all(left, fields);
        if let Some((kind, value, count)) = done.filter(|(_, _, count)| version == Version::V10 || *count > 1) {
            write_short(kind, out, |out| out.u16(value));
            left = &left[count..];
            continue;
        }
        match action {
            Action::Header { name: name @ (HeaderAction::SetVlanVid | HeaderAction::SetVlanPcp), argument }
                if version != Version::V10 =>
            {
                write_vlan(version, *name, *argument, has_tag, fields, out)?;
                has_tag = true;
            }
            _ => write_action(version, action, fields, out)?,
        }
        match action {
            Action::Header { name: HeaderAction::PushVlan, .. } => has_tag = true,
            Action::Header { name: HeaderAction::PopVlan, .. } => has_tag = false,
            Action::SetField { field, value, mask }
                if number::vlan_tci(fields) == Some(*field) && mask & VLAN_PRESENT != 0 =>
            {
                has_tag = value & VLAN_PRESENT != 0;
            }
            _ => {}
        }
        left = behind;
    }
    Ok(())
}

/// The leading actions that together set the port of every transport protocol, which is one action in 1.0: its type,
/// the port and the number of these actions.
fn ports_in_all(actions: &[Action], fields: &Fields) -> Option<(u16, u16, usize)> {
    let Action::SetFieldIfPresent { value: port, .. } = actions.first()? else { return None };
    for (kind, numbers) in [(9, TP_SRC), (10, TP_DST)] {
        let ids: Vec<FieldId> = numbers.iter().filter_map(|number| fields.basic(*number)).collect();
        let same = actions.len() >= ids.len()
            && !ids.is_empty()
            && ids.iter().zip(actions).all(|(id, action)| match action {
                Action::SetFieldIfPresent { field, value, mask } => {
                    field == id && value == port && *mask == fields.get(*id).full()
                }
                _ => false,
            });
        if same {
            return Some((kind, u16::try_from(*port).ok()?, ids.len()));
        }
    }
    None
}

/// Encodes an action of 8 bytes.
fn write_short(kind: u16, out: &mut Vec<u8>, argument: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(kind);
    out.u16(8);
    argument(out);
    out.align(start);
}

fn write_vlan(
    version: Version,
    name: HeaderAction,
    argument: u128,
    has_tag: bool,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (number, value) = match name {
        HeaderAction::SetVlanVid => (VLAN_VID, VLAN_PRESENT | argument),
        _ => (VLAN_PCP, argument),
    };
    let Some(field) = fields.basic(number) else {
        return unencodable("there is no field for a VLAN tag");
    };
    if !has_tag {
        write_short(17, out, |out| out.u16(0x8100));
    }
    let mask = fields.get(field).full();
    write_action(version, &Action::SetField { field, value: value & mask, mask }, fields, out)
}

fn write_action(version: Version, action: &Action, fields: &Fields, out: &mut Vec<u8>) -> Result<()> {
    let is_10 = version == Version::V10;
    match action {
        Action::Output { port, max_len } if is_10 => {
            let port = port_16(*port)?;
            write_short(0, out, |out| {
                out.u16(port);
                out.u16(*max_len);
            });
        }
        Action::Output { port, max_len } => {
            out.u16(0);
            out.u16(16);
            out.u32(*port);
            out.u16(*max_len);
            out.zeros(6);
        }
        Action::Enqueue { port, queue } if is_10 => {
            let port = port_16(*port)?;
            out.u16(11);
            out.u16(16);
            out.u16(port);
            out.zeros(6);
            out.u32(*queue);
        }
        Action::Enqueue { port, queue } => {
            write_action(version, &Action::SetQueue(*queue), fields, out)?;
            write_action(version, &Action::Output { port: *port, max_len: 0xffff }, fields, out)?;
            write_action(version, &Action::PopQueue, fields, out)?;
        }
        Action::Header { name, argument } => write_header(version, *name, *argument, fields, out)?,
        Action::SetField { field, value, mask } => write_set_field(version, *field, *value, *mask, fields, out)?,
        Action::SetFieldIfPresent { field, value, mask } => {
            let kind = [(IPV4_SRC, 6), (IPV4_DST, 7), (IP_DSCP, 8)]
                .into_iter()
                .find(|(number, _)| fields.basic(*number) == Some(*field));
            match kind.filter(|_| is_10 && *mask == fields.get(*field).full()) {
                Some((8, _)) => write_short(8, out, |out| out.u8((*value << 2) as u8)),
                Some((_, kind)) => write_short(kind, out, |out| out.u32(*value as u32)),
                None => write_set_field(version, *field, *value, *mask, fields, out)?,
            }
        }
        Action::SetQueue(queue) if !is_10 => write_short(21, out, |out| out.u32(*queue)),
        Action::Group(group) if !is_10 => write_short(22, out, |out| out.u32(*group)),
        Action::Meter(meter) if version == Version::V15 => write_short(29, out, |out| out.u32(*meter)),
        Action::Move { from, to } if version == Version::V15 => {
            let ends = ends_of(*from, *to, Style::Oxm, fields)?;
            let start = out.len();
            out.u16(28);
            out.u16(0);
            write_copy(&ends, 2, out);
            finish(start, out)?;
        }
        Action::Clone(actions) => nicira::write_clone(out, |out| write_actions(version, actions, fields, out))?,
        _ => nicira::write(version, action, fields, out)?,
    }
    Ok(())
}

fn write_header(
    version: Version,
    name: HeaderAction,
    argument: u128,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Result<()> {
    if version == Version::V10 {
        match name {
            HeaderAction::PushVlan => {}
            HeaderAction::PopVlan => write_short(3, out, |_| {}),
            HeaderAction::SetVlanVid => write_short(1, out, |out| out.u16(argument as u16)),
            HeaderAction::SetVlanPcp => write_short(2, out, |out| out.u8(argument as u8)),
            _ => return nicira::write_header(name, argument, fields, out),
        }
        return Ok(());
    }
    match name {
        HeaderAction::CopyTtlOut => write_short(11, out, |_| {}),
        HeaderAction::CopyTtlIn => write_short(12, out, |_| {}),
        HeaderAction::SetMplsTtl => write_short(15, out, |out| out.u8(argument as u8)),
        HeaderAction::DecMplsTtl => write_short(16, out, |_| {}),
        HeaderAction::PushVlan => write_short(17, out, |out| out.u16(argument as u16)),
        HeaderAction::PopVlan => write_short(18, out, |_| {}),
        HeaderAction::PushMpls => write_short(19, out, |out| out.u16(argument as u16)),
        HeaderAction::PopMpls => write_short(20, out, |out| out.u16(argument as u16)),
        HeaderAction::SetNwTtl => write_short(23, out, |out| out.u8(argument as u8)),
        HeaderAction::DecNwTtl => write_short(24, out, |_| {}),
        HeaderAction::PushPbb => write_short(26, out, |out| out.u16(argument as u16)),
        HeaderAction::PopPbb => write_short(27, out, |_| {}),
        HeaderAction::SetVlanVid | HeaderAction::SetVlanPcp => {
            return write_vlan(version, name, argument, true, fields, out);
        }
    }
    Ok(())
}

fn write_set_field(
    version: Version,
    field: FieldId,
    value: u128,
    mask: u128,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Result<()> {
    let is_whole = mask == fields.get(field).full();
    if version == Version::V10 {
        for (kind, number) in [(4, ETH_SRC), (5, ETH_DST)] {
            if is_whole && fields.basic(number) == Some(field) {
                out.u16(kind);
                out.u16(16);
                out.uint(value, 6);
                out.zeros(6);
                return Ok(());
            }
        }
        // OpenFlow's VLAN id has the bit `OFPVID_PRESENT`, which 1.0's lacks.
        if is_whole && value & VLAN_PRESENT != 0 && number::vlan_vid(fields) == Some(field) {
            write_short(1, out, |out| out.u16((value & 0xfff) as u16));
            return Ok(());
        }
        return nicira::write_load(field, value, mask, true, fields, out);
    }
    if !is_whole && version != Version::V15 {
        return nicira::write_load(field, value, mask, false, fields, out);
    }
    // Set-field must not have the ingress port's OpenFlow number.
    let style = if fields.basic(0) == Some(field) { Style::Nxm } else { Style::Oxm };
    let Some(known) = number::number_of(field, style, fields) else {
        return unencodable(format!("`{}` has no OXM number", fields.get(field).name));
    };
    let Some((value, mask)) = known.write(value, mask, fields) else {
        return unencodable(format!("{value:#x} in `{}`", fields.get(field).name));
    };
    let start = out.len();
    out.u16(25);
    out.u16(0);
    oxm::write_entry(&known, value, mask, out);
    finish(start, out)
}

#[cfg(test)]
mod tests;

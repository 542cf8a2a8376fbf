//! Groups: mods, statistics, descriptions, features.
//!
//! OpenFlow 1.3.5, 7.3.4.2, 7.3.5.9 to 7.3.5.11; 1.5.1, 7.3.4.3. OpenFlow 1.0 has no groups; Open vSwitch's
//! `NXT_GROUP_MOD` and `NXST_GROUP` for it use 1.5's format. The selection method is Netronome's property, as described
//! in ovs-ofctl(8).

use super::flow_stats::entry;
use super::{Context, Reader, Result, Writer, action, oxm, props};
use crate::action::{Bucket, port};
use crate::error::{Error, ErrorKind};
use crate::field::FieldId;
use crate::message::{
    Counts, GROUP_ANY, GroupCommand, GroupDesc, GroupFeatures, GroupKind, GroupMod, GroupStats, Selection, Version,
    bucket,
};

/// Netronome's experimenter id, and a wrong one that old switches send.
const NETRONOME: [u32; 2] = [0x0000_154d, 0x0000_1540];
/// The experimenter type of Netronome's selection method property.
const SELECTION_METHOD: u32 = 1;
/// The length of a selection method's name in bytes, with its final zero.
const METHOD_LEN: usize = 16;

/// Whether groups use 1.5's format.
fn is_new(version: Version) -> bool {
    matches!(version, Version::V10 | Version::V15)
}

fn kind(number: u8) -> Result<GroupKind> {
    Ok(match number {
        0 => GroupKind::All,
        1 => GroupKind::Select,
        2 => GroupKind::Indirect,
        3 => GroupKind::FastFailover,
        _ => return Err(Error::new(ErrorKind::GmfcBadType, format!("a group of type {number}"))),
    })
}

fn bad_bucket(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::GmfcBadBucket, text)
}

/// Decodes a group mod.
pub(super) fn read_mod(c: Context<'_>, r: &mut Reader<'_>) -> Result<GroupMod> {
    let command = r.u16()?;
    let kind = kind(r.u8()?)?;
    r.skip(1)?;
    let group = r.u32()?;
    if !is_new(c.version) {
        let command = command_of(command, bucket::ALL, false)?;
        let len = r.left();
        let buckets = read_buckets(c, len, kind, r)?;
        if command == GroupCommand::Delete && !buckets.is_empty() {
            return Err(Error::new(ErrorKind::GmfcInvalidGroup, "a deletion with buckets"));
        }
        return Ok(GroupMod { command, group, kind, buckets, selection: Selection::default() });
    }
    let len = usize::from(r.u16()?);
    r.skip(2)?;
    let command = command_of(command, r.u32()?, true)?;
    let buckets = read_buckets(c, len, kind, r)?;
    if matches!(command, GroupCommand::RemoveBucket(_)) && !buckets.is_empty() {
        return Err(bad_bucket("a removal of buckets with buckets"));
    }
    let selection = read_properties(c, kind, r)?;
    let can_select = matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
    if selection != Selection::default() && !can_select {
        return Err(Error::new(ErrorKind::BpcBadValue, "a selection method for a command without it"));
    }
    Ok(GroupMod { command, group, kind, buckets, selection })
}

fn command_of(number: u16, bucket_id: u32, has_buckets: bool) -> Result<GroupCommand> {
    let is_place = bucket_id <= bucket::MAX || [bucket::FIRST, bucket::LAST].contains(&bucket_id);
    let (command, is_valid) = match number {
        0 => (GroupCommand::Add, bucket_id == bucket::ALL),
        1 => (GroupCommand::Modify, bucket_id == bucket::ALL),
        2 => (GroupCommand::Delete, bucket_id == bucket::ALL),
        0x8000 => (GroupCommand::AddOrModify, bucket_id == bucket::ALL),
        3 if has_buckets => (GroupCommand::InsertBucket(bucket_id), is_place),
        5 if has_buckets => (GroupCommand::RemoveBucket(bucket_id), is_place || bucket_id == bucket::ALL),
        _ => return Err(Error::new(ErrorKind::GmfcBadCommand, format!("group command {number}"))),
    };
    if is_valid { Ok(command) } else { Err(bad_bucket(format!("bucket {bucket_id:#x} of group command {number}"))) }
}

/// A command's number, and the bucket id of its message.
fn number_of(command: GroupCommand) -> (u16, u32) {
    match command {
        GroupCommand::Add => (0, bucket::ALL),
        GroupCommand::Modify => (1, bucket::ALL),
        GroupCommand::Delete => (2, bucket::ALL),
        GroupCommand::AddOrModify => (0x8000, bucket::ALL),
        GroupCommand::InsertBucket(id) => (3, id),
        GroupCommand::RemoveBucket(id) => (5, id),
    }
}

/// Appends a group mod.
pub(super) fn write_mod(c: Context<'_>, group: &GroupMod, out: &mut Vec<u8>) -> Result<()> {
    let (number, bucket_id) = number_of(group.command);
    out.u16(number);
    out.bytes(&[group.kind as u8, 0]);
    out.u32(group.group);
    if !is_new(c.version) {
        if matches!(group.command, GroupCommand::InsertBucket(_) | GroupCommand::RemoveBucket(_)) {
            return Err(Error::new(ErrorKind::GmfcBadCommand, format!("{:?} has no changes of buckets", c.version)));
        }
        no_selection(c.version, &group.selection)?;
        return write_buckets(c, &group.buckets, group.kind, out);
    }
    let at = out.len();
    out.u32(0);
    out.u32(bucket_id);
    let start = out.len();
    write_buckets(c, &group.buckets, group.kind, out)?;
    out.patch_length(at, start)?;
    write_selection(c, &group.selection, out)
}

fn no_selection(version: Version, selection: &Selection) -> Result<()> {
    if selection.method.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::BpcBadExperimenter, format!("{version:?} has no selection methods of groups")))
}

fn read_buckets(c: Context<'_>, len: usize, kind: GroupKind, r: &mut Reader<'_>) -> Result<Vec<Bucket>> {
    let mut all = r.sub(len)?.short(ErrorKind::GmfcBadBucket);
    let mut buckets = Vec::new();
    let mut ids = std::collections::HashSet::new();
    while !all.is_empty() {
        let mut one = entry(&mut all)?;
        let bucket = if is_new(c.version) {
            read_bucket_15(c, kind, &mut one)?
        } else {
            read_bucket_13(c, buckets.len() as u32, &mut one)?
        };
        if !ids.insert(bucket.id) {
            return Err(bad_bucket(format!("two buckets have id {}", bucket.id)));
        }
        buckets.push(bucket);
    }
    Ok(buckets)
}

fn watched(number: u32) -> Option<u32> {
    (number != port::ANY).then_some(number)
}

fn read_bucket_13(c: Context<'_>, id: u32, r: &mut Reader<'_>) -> Result<Bucket> {
    let weight = r.u16()?;
    let (watch_port, watch_group) = (watched(r.u32()?), watched(r.u32()?));
    r.skip(4)?;
    let actions = action::read_actions(c.version, r.left(), r, c.fields)?;
    Ok(Bucket { id, weight, watch_port, watch_group, actions })
}

fn read_bucket_15(c: Context<'_>, kind: GroupKind, r: &mut Reader<'_>) -> Result<Bucket> {
    let len = usize::from(r.u16()?);
    let id = r.u32()?;
    if id > bucket::MAX {
        return Err(bad_bucket(format!("bucket id {id:#x}")));
    }
    if len > r.left() {
        return Err(bad_bucket("a bucket's actions are longer than the bucket"));
    }
    let actions = action::read_actions(c.version, len, r, c.fields)?;
    let weight = u16::from(kind == GroupKind::Select);
    let mut bucket = Bucket { id, weight, watch_port: None, watch_group: None, actions };
    while !r.is_empty() {
        let prop = props::read(r)?;
        match prop.kind {
            props::Kind::Standard(0) => bucket.weight = prop.u16()?,
            props::Kind::Standard(1) => bucket.watch_port = watched(prop.u32()?),
            props::Kind::Standard(2) => bucket.watch_group = watched(prop.u32()?),
            _ => return Err(prop.unknown("a bucket")),
        }
    }
    Ok(bucket)
}

fn write_buckets(c: Context<'_>, buckets: &[Bucket], kind: GroupKind, out: &mut Vec<u8>) -> Result<()> {
    for bucket in buckets {
        let start = out.len();
        out.u16(0);
        if is_new(c.version) {
            out.u16(0);
            out.u32(bucket.id);
            let actions = out.len();
            action::write_actions(c.version, &bucket.actions, c.fields, out)?;
            out.patch_length(start + 2, actions)?;
            if kind == GroupKind::Select || bucket.weight != 0 {
                props::write_u16(out, 0, bucket.weight);
            }
            for (number, watched) in [(1, bucket.watch_port), (2, bucket.watch_group)] {
                if let Some(watched) = watched {
                    props::write_u32(out, number, watched);
                }
            }
        } else {
            out.u16(bucket.weight);
            out.u32(bucket.watch_port.unwrap_or(port::ANY));
            out.u32(bucket.watch_group.unwrap_or(GROUP_ANY));
            out.u32(0);
            action::write_actions(c.version, &bucket.actions, c.fields, out)?;
        }
        out.patch_length(start, start)?;
    }
    Ok(())
}

fn read_properties(c: Context<'_>, kind: GroupKind, r: &mut Reader<'_>) -> Result<Selection> {
    let mut selection = Selection::default();
    while !r.is_empty() {
        let mut prop = props::read(r)?;
        match prop.kind {
            props::Kind::Experimenter(who, SELECTION_METHOD) if NETRONOME.contains(&who) => {
                if kind != GroupKind::Select {
                    return Err(Error::new(
                        ErrorKind::BpcBadValue,
                        "a selection method of another than a select group",
                    ));
                }
                selection = read_selection(c, &mut prop.payload)?;
            }
            _ => return Err(prop.unknown("a group")),
        }
    }
    Ok(selection)
}

fn read_selection(c: Context<'_>, r: &mut Reader<'_>) -> Result<Selection> {
    r.skip(4)?;
    let method = super::read_text(r, METHOD_LEN)?;
    let parameter = r.u64()?;
    let bad = |text: String| Error::new(ErrorKind::BpcBadValue, text);
    if !["hash", "dp_hash"].contains(&method.as_str()) {
        return Err(bad(format!("selection method `{method}`")));
    }
    if method != "hash" && !r.is_empty() {
        return Err(bad(format!("selection method `{method}` with fields")));
    }
    let mut fields: Vec<(FieldId, u128)> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    while !r.is_empty() {
        let (id, has_mask, len) = oxm::read_field_header(r, c.fields)?;
        if has_mask || len > 16 {
            return Err(Error::new(ErrorKind::BmcBadMask, "a selection field's value is its mask"));
        }
        if !seen.insert(id) {
            return Err(Error::new(ErrorKind::BmcDupField, "a selection field twice"));
        }
        let mask = r.uint(len)?;
        if mask & !c.fields.get(id).full() != 0 {
            return Err(Error::new(ErrorKind::BmcBadMask, "a selection field's mask is too wide"));
        }
        fields.push((id, mask));
    }
    Ok(Selection { method, parameter, fields })
}

fn write_selection(c: Context<'_>, selection: &Selection, out: &mut Vec<u8>) -> Result<()> {
    if selection.method.is_empty() {
        return Ok(());
    }
    props::write_experimenter(out, NETRONOME[0], SELECTION_METHOD, |out| {
        out.u32(0);
        out.text(&selection.method, METHOD_LEN);
        out.u64(selection.parameter);
        for (id, mask) in &selection.fields {
            let at = out.len();
            oxm::write_field_header(c.version, *id, false, c.fields, out)?;
            // The header's last byte counts the value, and an experimenter id in front of it.
            let header = [out[at], out[at + 1], out[at + 3]];
            let number = if header[..2] == [0xff, 0xff] { 4 } else { 0 };
            out.uint(*mask, usize::from(header[2]) - number);
        }
        Ok(())
    })
}

/// Decodes group statistics.
pub(super) fn read_stats(r: &mut Reader<'_>) -> Result<GroupStats> {
    let mut r = entry(r)?;
    r.skip(2)?;
    let (group, references) = (r.u32()?, r.u32()?);
    r.skip(4)?;
    let counts = Counts { packets: r.u64()?, bytes: r.u64()? };
    let duration = (r.u32()?, r.u32()?);
    let mut buckets = Vec::new();
    while !r.is_empty() {
        buckets.push(Counts { packets: r.u64()?, bytes: r.u64()? });
    }
    Ok(GroupStats { group, references, counts, duration, buckets })
}

/// Appends group statistics.
pub(super) fn write_stats(group: &GroupStats, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    for value in [0, group.group, group.references, 0] {
        out.u32(value);
    }
    out.u64(group.counts.packets);
    out.u64(group.counts.bytes);
    out.u32(group.duration.0);
    out.u32(group.duration.1);
    for counts in &group.buckets {
        out.u64(counts.packets);
        out.u64(counts.bytes);
    }
    out.patch_length(start, start)
}

/// Decodes a group description.
pub(super) fn read_desc(c: Context<'_>, r: &mut Reader<'_>) -> Result<GroupDesc> {
    let mut r = entry(r)?;
    let kind = kind(r.u8()?)?;
    r.skip(1)?;
    let group = r.u32()?;
    if !is_new(c.version) {
        let len = r.left();
        let buckets = read_buckets(c, len, kind, &mut r)?;
        return Ok(GroupDesc { group, kind, buckets, selection: Selection::default() });
    }
    let len = usize::from(r.u16()?);
    r.skip(6)?;
    let buckets = read_buckets(c, len, kind, &mut r)?;
    let selection = read_properties(c, kind, &mut r)?;
    Ok(GroupDesc { group, kind, buckets, selection })
}

/// Appends a group description; without the selection method in versions that lack it.
pub(super) fn write_desc(c: Context<'_>, group: &GroupDesc, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.bytes(&[0, 0, group.kind as u8, 0]);
    out.u32(group.group);
    if is_new(c.version) {
        let at = out.len();
        out.u64(0);
        let buckets = out.len();
        write_buckets(c, &group.buckets, group.kind, out)?;
        out.patch_length(at, buckets)?;
        write_selection(c, &group.selection, out)?;
    } else {
        write_buckets(c, &group.buckets, group.kind, out)?;
    }
    out.patch_length(start, start)
}

/// Decodes group features.
pub(super) fn read_features(r: &mut Reader<'_>) -> Result<GroupFeatures> {
    let (kinds, capabilities) = (r.u32()?, r.u32()?);
    let max = [r.u32()?, r.u32()?, r.u32()?, r.u32()?];
    let actions = [r.u32()?, r.u32()?, r.u32()?, r.u32()?];
    Ok(GroupFeatures { kinds, capabilities, max, actions })
}

/// Appends group features.
pub(super) fn write_features(features: &GroupFeatures, out: &mut Vec<u8>) {
    out.u32(features.kinds);
    out.u32(features.capabilities);
    for value in features.max.iter().chain(&features.actions) {
        out.u32(*value);
    }
}

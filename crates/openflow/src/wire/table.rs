//! Tables: mods, descriptions, status, statistics, features.
//!
//! OpenFlow 1.0, 5.3.5; 1.3.5, 7.3.3, 7.3.5.4, 7.3.5.5; 1.4.1, 7.3.3, 7.3.5.6, 7.4.5; 1.5.1, 7.3.5.18.

use super::flow_stats::entry;
use super::props::{Kind, Property};
use super::{Context, Reader, Result, Writer, oxm, props, read_text};
use crate::error::{Error, ErrorKind};
use crate::field::FieldId;
use crate::message::{TableFeatures, TableStats, Version};

/// The length of a table's name in bytes, with its final zero.
const NAME: usize = 32;
/// Property types of mods and descriptions.
const EVICTION: u16 = 2;
const VACANCY: u16 = 3;
/// `OFPFW_ALL`: in 1.0, tables can wildcard every field.
const WILDCARDS_10: u32 = 0x003f_ffff;
/// All tables.
const TABLE_ALL: u8 = 0xff;

/// A table's configuration: its number, `OFPTC_` bits, vacancy thresholds down and up and the current vacancy, in
/// percent.
pub(super) type TableDesc = (u8, u32, Option<(u8, u8, u8)>);

/// A table mod: its table, `OFPTC_` bits, and vacancy thresholds down and up in percent.
pub(super) type TableMod = (u8, u32, Option<(u8, u8)>);

/// Decodes a table mod.
pub(super) fn read_mod(version: Version, r: &mut Reader<'_>) -> Result<TableMod> {
    let table = r.u8()?;
    r.skip(3)?;
    let config = r.u32()?;
    let mut vacancy = None;
    while !r.is_empty() && version >= Version::V14 {
        if let Some((down, up, now)) = read_property(r, true)? {
            if down > up || up > 100 || now != 0 {
                let text = format!("vacancy thresholds {down}, {up}, now {now}");
                return Err(Error::new(ErrorKind::BpcBadValue, text));
            }
            vacancy = Some((down, up));
        }
    }
    Ok((table, config, vacancy))
}

/// Appends a table mod.
pub(super) fn write_mod(version: Version, (table, config, vacancy): TableMod, out: &mut Vec<u8>) {
    out.bytes(&[table, 0, 0, 0]);
    out.u32(config);
    if version >= Version::V14 {
        write_vacancy(vacancy.map(|(down, up)| (down, up, 0)), out);
    }
}

/// Decodes a property of a table: its vacancy; `None` for eviction.
fn read_property(r: &mut Reader<'_>, is_strict: bool) -> Result<Option<(u8, u8, u8)>> {
    let mut prop = props::read(r)?;
    match prop.kind {
        Kind::Standard(VACANCY) => {
            let (down, up, now) = (prop.payload.u8()?, prop.payload.u8()?, prop.payload.u8()?);
            Ok(Some((down, up, now)))
        }
        Kind::Standard(EVICTION) => prop.u32().map(|_| None),
        _ if is_strict => Err(prop.unknown("a table")),
        _ => Ok(None),
    }
}

fn write_vacancy(vacancy: Option<(u8, u8, u8)>, out: &mut Vec<u8>) {
    if let Some((down, up, now)) = vacancy {
        out.u16(VACANCY);
        out.u16(8);
        out.bytes(&[down, up, now, 0]);
    }
}

/// Decodes a table description.
pub(super) fn read_desc(r: &mut Reader<'_>) -> Result<TableDesc> {
    let mut r = entry(r)?;
    let table = r.u8()?;
    r.skip(1)?;
    let config = r.u32()?;
    let mut vacancy = None;
    while !r.is_empty() {
        vacancy = read_property(&mut r, false)?.or(vacancy);
    }
    Ok((table, config, vacancy))
}

/// Appends a table description.
pub(super) fn write_desc((table, config, vacancy): TableDesc, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.bytes(&[0, 0, table, 0]);
    out.u32(config);
    write_vacancy(vacancy, out);
    out.patch_length(start, start)
}

/// Decodes a table status.
pub(super) fn read_status(r: &mut Reader<'_>) -> Result<(u8, TableDesc)> {
    let reason = r.u8()?;
    r.skip(7)?;
    Ok((reason, read_desc(r)?))
}

/// Appends a table status.
pub(super) fn write_status(reason: u8, table: TableDesc, out: &mut Vec<u8>) -> Result<()> {
    out.u8(reason);
    out.zeros(7);
    write_desc(table, out)
}

/// Decodes table statistics.
pub(super) fn read_stats(version: Version, r: &mut Reader<'_>) -> Result<TableStats> {
    let mut stats = TableStats { table: r.u8()?, ..TableStats::default() };
    r.skip(3)?;
    if version == Version::V10 {
        stats.name = read_text(r, NAME)?;
        r.skip(4)?;
        stats.max = r.u32()?;
    }
    stats.active = r.u32()?;
    (stats.lookups, stats.matched) = (r.u64()?, r.u64()?);
    Ok(stats)
}

/// Appends table statistics.
pub(super) fn write_stats(version: Version, stats: &TableStats, out: &mut Vec<u8>) {
    out.bytes(&[stats.table, 0, 0, 0]);
    if version == Version::V10 {
        out.text(&stats.name, NAME);
        out.u32(WILDCARDS_10);
        out.u32(stats.max);
    }
    out.u32(stats.active);
    out.u64(stats.lookups);
    out.u64(stats.matched);
}

/// Property types of table features for flows; the type for the table miss is one more.
mod property {
    pub(super) const INSTRUCTIONS: u16 = 0;
    pub(super) const NEXT: u16 = 2;
    pub(super) const WRITE: u16 = 4;
    pub(super) const APPLY: u16 = 6;
    pub(super) const MATCH: u16 = 8;
    pub(super) const WILDCARDS: u16 = 10;
    pub(super) const WRITE_FIELDS: u16 = 12;
    pub(super) const APPLY_FIELDS: u16 = 14;
    /// The types that table features must include if they include any, as a bitmap.
    pub(super) const REQUIRED: u32 = 0x5555;
    /// 1.5's last type: it adds synchronisation, copy-field and packet types.
    pub(super) const LAST: u16 = 22;
}

/// Decodes table features.
pub(super) fn read_features(c: Context<'_>, r: &mut Reader<'_>) -> Result<TableFeatures> {
    let mut r = entry(r)?;
    let mut table = TableFeatures { table: r.u8()?, ..TableFeatures::default() };
    if table.table == TABLE_ALL {
        return Err(Error::new(ErrorKind::TffcBadTable, "features of table 255"));
    }
    if c.version == Version::V15 {
        table.command = r.u8()?;
        if table.command > 3 {
            return Err(Error::new(ErrorKind::TffcBadCommand, format!("command {}", table.command)));
        }
        table.features = r.u32()?;
    } else {
        r.skip(5)?;
    }
    table.name = read_text(&mut r, NAME)?;
    table.metadata = (r.u64()?, r.u64()?);
    (table.config, table.max) = (r.u32()?, r.u32()?);
    let mut seen = 0_u32;
    while !r.is_empty() {
        let prop = props::read(&mut r)?;
        let Kind::Standard(number) = prop.kind else { return Err(prop.unknown("table features")) };
        let bit = 1_u32.checked_shl(u32::from(number)).unwrap_or(0);
        if seen & bit != 0 {
            return Err(Error::new(ErrorKind::TffcBadFeatures, format!("property {number} twice")));
        }
        seen |= bit;
        read_feature(c, number, prop, &mut table)?;
    }
    if seen & property::REQUIRED != property::REQUIRED && (seen != 0 || c.version != Version::V15) {
        return Err(Error::new(ErrorKind::TffcBadFeatures, format!("properties {seen:#x} only")));
    }
    copy_to_misses(seen, &mut table);
    Ok(table)
}

fn read_feature(c: Context<'_>, number: u16, mut prop: Property<'_>, table: &mut TableFeatures) -> Result<()> {
    let miss = usize::from(number & 1);
    match number & !1 {
        property::INSTRUCTIONS => table.instructions[miss] = read_types(&mut prop.payload)?,
        property::NEXT => table.next[miss] = prop.payload.rest().to_vec(),
        property::WRITE => table.write[miss] = read_types(&mut prop.payload)?,
        property::APPLY => table.apply[miss] = read_types(&mut prop.payload)?,
        property::MATCH if miss == 0 => table.matches = read_fields(c, &mut prop.payload)?,
        property::WILDCARDS if miss == 0 => table.wildcards = read_ids(c, &mut prop.payload)?,
        property::WRITE_FIELDS => table.write_fields[miss] = read_ids(c, &mut prop.payload)?,
        property::APPLY_FIELDS => table.apply_fields[miss] = read_ids(c, &mut prop.payload)?,
        _ if c.version == Version::V15 && number > 15 && number <= property::LAST => {}
        _ => return Err(prop.unknown("table features")),
    }
    Ok(())
}

/// Properties for the table miss that are absent equal those for flows.
fn copy_to_misses(seen: u32, table: &mut TableFeatures) {
    let is_left_out = |number: u16| seen & 1 << (number + 1) == 0;
    if is_left_out(property::INSTRUCTIONS) {
        table.instructions[1] = table.instructions[0].clone();
    }
    if is_left_out(property::NEXT) {
        table.next[1] = table.next[0].clone();
    }
    if is_left_out(property::WRITE) {
        table.write[1] = table.write[0].clone();
    }
    if is_left_out(property::APPLY) {
        table.apply[1] = table.apply[0].clone();
    }
    if is_left_out(property::WRITE_FIELDS) {
        table.write_fields[1] = table.write_fields[0].clone();
    }
    if is_left_out(property::APPLY_FIELDS) {
        table.apply_fields[1] = table.apply_fields[0].clone();
    }
}

/// Decodes instruction or action types; experimenters' have four bytes more.
fn read_types(r: &mut Reader<'_>) -> Result<Vec<u16>> {
    let mut types = Vec::new();
    while !r.is_empty() {
        types.push(r.u16()?);
        let len = usize::from(r.u16()?);
        r.skip(len.saturating_sub(4))?;
    }
    Ok(types)
}

fn read_fields(c: Context<'_>, r: &mut Reader<'_>) -> Result<Vec<(FieldId, bool)>> {
    let mut fields = Vec::new();
    while !r.is_empty() {
        let (id, has_mask, _) = oxm::read_field_header(r, c.fields)?;
        fields.push((id, has_mask));
    }
    Ok(fields)
}

fn read_ids(c: Context<'_>, r: &mut Reader<'_>) -> Result<Vec<FieldId>> {
    Ok(read_fields(c, r)?.into_iter().map(|(id, _)| id).collect())
}

/// Appends table features.
pub(super) fn write_features(c: Context<'_>, table: &TableFeatures, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let is_new = c.version == Version::V15;
    out.bytes(&[0, 0, table.table, if is_new { table.command } else { 0 }]);
    out.u32(if is_new { table.features } else { 0 });
    out.text(&table.name, NAME);
    out.u64(table.metadata.0);
    out.u64(table.metadata.1);
    out.u32(table.config);
    out.u32(table.max);
    if !(is_new && has_no_properties(table)) {
        write_properties(c, table, out)?;
    }
    out.patch_length(start, start)
}

/// Whether only the table itself is named, which 1.5 allows.
fn has_no_properties(table: &TableFeatures) -> bool {
    let types = [&table.instructions, &table.write, &table.apply];
    let fields = [&table.write_fields, &table.apply_fields];
    types.into_iter().flatten().all(Vec::is_empty)
        && fields.into_iter().flatten().all(Vec::is_empty)
        && table.next.iter().all(Vec::is_empty)
        && table.matches.is_empty()
        && table.wildcards.is_empty()
}

fn write_properties(c: Context<'_>, table: &TableFeatures, out: &mut Vec<u8>) -> Result<()> {
    for miss in [0_u16, 1] {
        let at = usize::from(miss);
        write_types(property::INSTRUCTIONS + miss, &table.instructions[at], out)?;
        props::write(out, property::NEXT + miss, |out| {
            out.bytes(&table.next[at]);
            Ok(())
        })?;
        write_types(property::WRITE + miss, &table.write[at], out)?;
        write_ids(c, property::WRITE_FIELDS + miss, &table.write_fields[at], out)?;
        write_types(property::APPLY + miss, &table.apply[at], out)?;
        write_ids(c, property::APPLY_FIELDS + miss, &table.apply_fields[at], out)?;
    }
    write_fields(c, property::MATCH, table.matches.iter().copied(), out)?;
    write_ids(c, property::WILDCARDS, &table.wildcards, out)
}

fn write_types(number: u16, types: &[u16], out: &mut Vec<u8>) -> Result<()> {
    props::write(out, number, |out| {
        for kind in types {
            out.u16(*kind);
            out.u16(4);
        }
        Ok(())
    })
}

fn write_ids(c: Context<'_>, number: u16, fields: &[FieldId], out: &mut Vec<u8>) -> Result<()> {
    write_fields(c, number, fields.iter().map(|id| (*id, false)), out)
}

fn write_fields(
    c: Context<'_>,
    number: u16,
    mut fields: impl Iterator<Item = (FieldId, bool)>,
    out: &mut Vec<u8>,
) -> Result<()> {
    props::write(out, number, |out| {
        fields.try_for_each(|(id, has_mask)| oxm::write_field_header(c.version, id, has_mask, c.fields, out))
    })
}

//! Generated entries, as encoded `WriteRequest`s, for a table of which only the P4Info is known.
//!
//! Keys are distinct and spread over the fields' range: an entry's number is multiplied by an odd constant, which is a
//! bijection modulo 2^width. Prefixes of 32-bit fields have lengths distributed as in Internet routing tables
//! (`tables::workload`). Actions and their parameters follow from the number, too, so a MODIFY with another seed gives
//! each entry other values.

use anyhow::{Context, Result, bail, ensure};
use messages::p4::config::v1::{self as config, P4Info, match_field::Match, match_field::MatchType};
use messages::p4::v1 as pb;
use pb::update::Type;
use prost::Message;
use prost::bytes::Bytes;

/// A table and its number of entries.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The table's name in the P4Info, or a suffix of it.
    pub table: String,
    /// The number of entries.
    pub count: usize,
}

impl std::str::FromStr for Fill {
    type Err = String;

    fn from_str(text: &str) -> Result<Fill, String> {
        let (table, count) = text.split_once('=').ok_or("it is written TABLE=N, as routing=1000000")?;
        let count = count.parse().map_err(|_| format!("`{count}` is no number of entries"))?;
        Ok(Fill { table: table.to_string(), count })
    }
}

/// The generated entries of a table.
pub struct Entries<'a> {
    /// The table.
    pub table: &'a config::Table,
    action: &'a config::Action,
    /// The number of entries.
    pub count: usize,
    prefixes: Vec<(u32, u32)>,
}

/// The odd constant that numbers are multiplied by.
const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

impl<'a> Entries<'a> {
    /// The entries that `fill` describes.
    ///
    /// # Errors
    /// If there is no such table, or it cannot have such entries.
    pub fn new(info: &'a P4Info, fill: &Fill) -> Result<Entries<'a>> {
        let name = |p: &Option<config::Preamble>| p.as_ref().map_or(String::new(), |p| p.name.clone());
        let named = |t: &&config::Table| {
            let name = name(&t.preamble);
            name == fill.table || name.ends_with(&format!(".{}", fill.table))
        };
        let table = info.tables.iter().find(named).with_context(|| {
            let names: Vec<String> = info.tables.iter().map(|t| name(&t.preamble)).collect();
            format!("--fill: there is no table `{}`; there is {}", fill.table, names.join(", "))
        })?;
        let (count, what) = (fill.count, &fill.table);
        ensure!(table.implementation_id == 0, "--fill: `{what}` has an action profile; entries of such are not made");
        ensure!(table.size <= 0 || count <= table.size as usize, "--fill: `{what}` has room for {}", table.size);
        use config::action_ref::Scope;
        let not_for_entries = [Scope::DefaultOnly as i32, Scope::GroupAction as i32];
        let action = table.action_refs.iter().find(|r| !not_for_entries.contains(&r.scope));
        let action =
            action.and_then(|r| info.actions.iter().find(|a| a.preamble.as_ref().is_some_and(|p| p.id == r.id)));
        let action = action.with_context(|| format!("--fill: `{what}` has no action for entries"))?;
        let mut prefixes = Vec::new();
        let mut room = 0u32;
        for field in &table.match_fields {
            match field.r#match {
                Some(Match::MatchType(kind)) if kind == MatchType::Lpm as i32 => {
                    ensure!(field.bitwidth == 32, "--fill: prefixes of {} bits are not made", field.bitwidth);
                    prefixes = tables::workload::ipv4_prefixes(count, 1);
                    room = 128;
                }
                Some(Match::MatchType(kind)) if kind == MatchType::Exact as i32 => {
                    room = room.max(u32::try_from(field.bitwidth).unwrap_or(0));
                }
                _ => bail!("--fill: field `{}` of `{what}` is neither exact nor a prefix", field.name),
            }
        }
        ensure!(room >= 64 || count as u128 <= 1 << room, "--fill: no field of `{what}` has {count} values");
        Ok(Entries { table, action, count, prefixes })
    }

    /// All entries in encoded requests of `batch` updates each. `seed` changes the actions' arguments.
    pub fn requests(&self, kind: Type, head: &pb::WriteRequest, batch: usize, seed: u64) -> Vec<Bytes> {
        let all: Vec<usize> = (0..self.count).collect();
        let request = |numbers: &[usize]| {
            let updates = numbers.iter().map(|n| self.update(kind, *n, seed)).collect();
            Bytes::from(pb::WriteRequest { updates, ..head.clone() }.encode_to_vec())
        };
        all.chunks(batch.max(1)).map(request).collect()
    }

    fn update(&self, kind: Type, number: usize, seed: u64) -> pb::Update {
        let widest = self.table.match_fields.iter().map(|f| f.bitwidth).max().unwrap_or(0);
        let field = |f: &config::MatchField| {
            use pb::field_match::{Exact, FieldMatchType, Lpm};
            let is_prefix = f.r#match == Some(Match::MatchType(MatchType::Lpm as i32));
            let value = if is_prefix {
                let (value, prefix_len) = self.prefixes[number];
                FieldMatchType::Lpm(Lpm { value: shortest(value.into()), prefix_len: prefix_len as i32 })
            } else {
                // Only the widest field needs to distinguish all entries.
                let n = if f.bitwidth == widest { number } else { number % 64 };
                FieldMatchType::Exact(Exact { value: spread(n as u128, f.bitwidth) })
            };
            pb::FieldMatch { field_id: f.id, field_match_type: Some(value) }
        };
        let param = |p: &config::action::Param| pb::action::Param {
            param_id: p.id,
            value: spread(number as u128 + u128::from(seed) * 7, p.bitwidth),
        };
        let action_id = self.action.preamble.as_ref().map_or(0, |p| p.id);
        let action = pb::Action { action_id, params: self.action.params.iter().map(param).collect() };
        let entry = pb::TableEntry {
            table_id: self.table.preamble.as_ref().map_or(0, |p| p.id),
            r#match: self.table.match_fields.iter().map(field).collect(),
            action: Some(pb::TableAction { r#type: Some(pb::table_action::Type::Action(action)) }),
            ..Default::default()
        };
        let entity = pb::Entity { entity: Some(pb::entity::Entity::TableEntry(entry)) };
        pb::Update { r#type: kind.into(), entity: Some(entity) }
    }
}

/// A number of `width` bits; distinct for numbers below 2^width.
fn spread(number: u128, width: i32) -> Vec<u8> {
    let width = u32::try_from(width).unwrap_or(0).clamp(1, 128);
    shortest(number.wrapping_mul(SPREAD) & (u128::MAX >> (128 - width)))
}

/// The canonical bytestring of P4Runtime: without leading zeros, at least one byte.
fn shortest(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|b| **b == 0).count().min(15);
    bytes[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_stay_different_in_the_width_of_the_field() {
        for width in [8, 12, 48] {
            let count = 1usize << width.min(12);
            let values: BTreeSet<Vec<u8>> = (0..count).map(|n| spread(n as u128, width)).collect();
            assert_eq!(values.len(), count);
            assert!(values.iter().all(|v| v.len() <= (width as usize).div_ceil(8)));
        }
    }
}

//! Cells of register, counter and meter arrays (P4Runtime specification, "RegisterEntry", "CounterEntry &
//! DirectCounterEntry", "MeterEntry & DirectMeterEntry"). A write without an index sets all cells. Direct resources are
//! in `entry`.

use crate::entry::{counter_data, counter_json, meter_config, meter_json, meter_words};
use crate::names::{Names, find, id_of};
use crate::text::name_text;
use crate::values;
use crate::{Change, Kind, Verb};
use messages::p4::v1 as pb;
use pb::entity::Entity;
use serde_json::{Value, json};
use stf::Command;

/// The kind of register cells.
pub(crate) struct Registers;
/// The kind of counter cells.
pub(crate) struct Counters;
/// The kind of meter cells.
pub(crate) struct Meters;

/// The entity for all cells of an array, given the key of one cell.
pub(crate) fn whole(key: &Entity) -> Option<Entity> {
    match key {
        Entity::RegisterEntry(cell) if cell.index.is_some() => {
            Some(Entity::RegisterEntry(pb::RegisterEntry { index: None, ..cell.clone() }))
        }
        Entity::CounterEntry(cell) if cell.index.is_some() => {
            Some(Entity::CounterEntry(pb::CounterEntry { index: None, ..*cell }))
        }
        Entity::MeterEntry(cell) if cell.index.is_some() => {
            Some(Entity::MeterEntry(pb::MeterEntry { index: None, ..*cell }))
        }
        _ => None,
    }
}

/// The value of `entity`, in the cell of `of`.
pub(crate) fn at_index(entity: &Entity, of: &Entity) -> Entity {
    match (entity, of) {
        (Entity::RegisterEntry(value), Entity::RegisterEntry(at)) => {
            Entity::RegisterEntry(pb::RegisterEntry { index: at.index, ..value.clone() })
        }
        (Entity::CounterEntry(value), Entity::CounterEntry(at)) => {
            Entity::CounterEntry(pb::CounterEntry { index: at.index, ..*value })
        }
        (Entity::MeterEntry(value), Entity::MeterEntry(at)) => {
            Entity::MeterEntry(pb::MeterEntry { index: at.index, ..*value })
        }
        _ => entity.clone(),
    }
}

pub(crate) fn index_text(index: Option<&pb::Index>) -> String {
    index.map_or("all".to_string(), |index| index.index.to_string())
}

fn index_json(index: Option<&pb::Index>) -> Value {
    index.map_or("all".into(), |index| index.index.into())
}

fn index_of(index: Option<u64>, name: &str, size: i64) -> Result<Option<pb::Index>, String> {
    let Some(index) = index else { return Ok(None) };
    match i64::try_from(index) {
        Ok(index) if (0..size).contains(&index) => Ok(Some(pb::Index { index })),
        _ => Err(format!("`{name}` has {size} cells, so there is no cell {index}")),
    }
}

fn order(id: u32, index: Option<&pb::Index>) -> Vec<u8> {
    let at = index.map_or(0, |index| u64::try_from(index.index).unwrap_or(0).saturating_add(1));
    [&id.to_be_bytes()[..], &at.to_be_bytes()[..]].concat()
}

impl Kind for Registers {
    fn noun(&self) -> &'static str {
        "register"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        if names.info.registers.is_empty() && name.is_none() {
            return Ok(vec![]);
        }
        let found = name.map(|name| find("register", name, &names.info.registers, |r| &r.preamble)).transpose()?;
        let register_id = found.map_or(0, |r| id_of(&r.preamble));
        Ok(vec![Entity::RegisterEntry(pb::RegisterEntry { register_id, ..Default::default() })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let Entity::RegisterEntry(cell) = entity else { return None };
        Some(Entity::RegisterEntry(pb::RegisterEntry { data: None, ..cell.clone() }))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        false
    }

    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::RegisterEntry(cell) = entity else { return None };
        let name = name_text(&names.name_in(&names.info.registers, |r| &r.preamble, cell.register_id));
        let data = values::data_text(cell.data.as_ref()?);
        Some(format!("register_write {name} {} {data}", index_text(cell.index.as_ref())))
    }

    fn order(&self, _: &Names, entity: &Entity) -> Vec<u8> {
        let Entity::RegisterEntry(cell) = entity else { return vec![] };
        order(cell.register_id, cell.index.as_ref())
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        let Entity::RegisterEntry(cell) = entity else { return Value::Null };
        let data = cell.data.as_ref().map(values::data_text);
        let parts: Option<Vec<&str>> = data.as_ref().map(|data| data.split_whitespace().collect());
        json!({
            "register": names.name_in(&names.info.registers, |r| &r.preamble, cell.register_id),
            "index": index_json(cell.index.as_ref()),
            "value": parts,
        })
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::RegisterWrite { name, index, values } = command else { return None };
        let cell = || {
            let info = find("register", name, &names.info.registers, |r| &r.preamble)?;
            let index = index_of(*index, name, info.size.into())?;
            let data = Some(values::parse(&names.info, info.type_spec.as_ref(), values)?);
            Ok(Entity::RegisterEntry(pb::RegisterEntry { register_id: id_of(&info.preamble), index, data }))
        };
        Some(cell().map(|entity| Change { verb: Verb::Modify, entity }))
    }
}

impl Kind for Counters {
    fn noun(&self) -> &'static str {
        "counter"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        if names.info.counters.is_empty() && name.is_none() {
            return Ok(vec![]);
        }
        let found = name.map(|name| find("counter", name, &names.info.counters, |c| &c.preamble)).transpose()?;
        let counter_id = found.map_or(0, |c| id_of(&c.preamble));
        Ok(vec![Entity::CounterEntry(pb::CounterEntry { counter_id, ..Default::default() })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let Entity::CounterEntry(cell) = entity else { return None };
        Some(Entity::CounterEntry(pb::CounterEntry { data: None, ..*cell }))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        false
    }

    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::CounterEntry(cell) = entity else { return None };
        let name = name_text(&names.name_in(&names.info.counters, |c| &c.preamble, cell.counter_id));
        let data = cell.data?;
        Some(format!(
            "counter_write {name} {} {} {}",
            index_text(cell.index.as_ref()),
            data.packet_count,
            data.byte_count
        ))
    }

    fn order(&self, _: &Names, entity: &Entity) -> Vec<u8> {
        let Entity::CounterEntry(cell) = entity else { return vec![] };
        order(cell.counter_id, cell.index.as_ref())
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        let Entity::CounterEntry(cell) = entity else { return Value::Null };
        let mut object = counter_json(&cell.data.unwrap_or_default());
        object["counter"] = names.name_in(&names.info.counters, |c| &c.preamble, cell.counter_id).into();
        object["index"] = index_json(cell.index.as_ref());
        object
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::CounterWrite { name, index, packets, bytes } = command else { return None };
        let cell = || {
            let info = find("counter", name, &names.info.counters, |c| &c.preamble)?;
            let index = index_of(*index, name, info.size)?;
            let data = Some(counter_data(*packets, *bytes)?);
            Ok(Entity::CounterEntry(pb::CounterEntry { counter_id: id_of(&info.preamble), index, data }))
        };
        Some(cell().map(|entity| Change { verb: Verb::Modify, entity }))
    }
}

impl Kind for Meters {
    fn noun(&self) -> &'static str {
        "meter"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        if names.info.meters.is_empty() && name.is_none() {
            return Ok(vec![]);
        }
        let found = name.map(|name| find("meter", name, &names.info.meters, |m| &m.preamble)).transpose()?;
        let meter_id = found.map_or(0, |m| id_of(&m.preamble));
        Ok(vec![Entity::MeterEntry(pb::MeterEntry { meter_id, ..Default::default() })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let Entity::MeterEntry(cell) = entity else { return None };
        let (meter_id, index) = (cell.meter_id, cell.index);
        Some(Entity::MeterEntry(pb::MeterEntry { meter_id, index, ..Default::default() }))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        false
    }

    /// A meter without a configuration needs no line: that is its initial state, in which it passes everything.
    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::MeterEntry(cell) = entity else { return None };
        let name = name_text(&names.name_in(&names.info.meters, |m| &m.preamble, cell.meter_id));
        let config = cell.config.as_ref()?;
        Some(format!("meter_write {name} {} {}", index_text(cell.index.as_ref()), meter_words(config, " ")))
    }

    fn order(&self, _: &Names, entity: &Entity) -> Vec<u8> {
        let Entity::MeterEntry(cell) = entity else { return vec![] };
        order(cell.meter_id, cell.index.as_ref())
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        let Entity::MeterEntry(cell) = entity else { return Value::Null };
        json!({
            "meter": names.name_in(&names.info.meters, |m| &m.preamble, cell.meter_id),
            "index": index_json(cell.index.as_ref()),
            "config": cell.config.as_ref().map(meter_json),
        })
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::MeterWrite { name, index, rates } = command else { return None };
        let cell = || {
            let info = find("meter", name, &names.info.meters, |m| &m.preamble)?;
            let index = index_of(*index, name, info.size)?;
            let config = Some(meter_config(*rates)?);
            Ok(Entity::MeterEntry(pb::MeterEntry {
                meter_id: id_of(&info.preamble),
                index,
                config,
                ..Default::default()
            }))
        };
        Some(cell().map(|entity| Change { verb: Verb::Modify, entity }))
    }
}

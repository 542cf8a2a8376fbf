//! Counters, meters and registers: indexed arrays, and direct resources of table entries (P4Runtime specification,
//! "CounterEntry & DirectCounterEntry", "MeterEntry & DirectMeterEntry", "RegisterEntry").
//!
//! They can only be modified. An update without an index sets all cells, and a read without an index or id returns
//! everything. The per-colour counts of a meter can be read and reset to zero. The default entry of a table has direct
//! resources like any other entry; the data plane identifies it by an empty key.

use crate::data;
use crate::entity::{self, Entity, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::{EntryKey, Forwarding};
use crate::schema::{ArraySchema, TableSchema, present};
use base::entry::{CounterValue, MeterConfig};
use base::ids::ExternId;
use p4info::{MeterType, ObjectKind};
use std::ops::Range;

/// The data plane's form of a counter's value.
pub(crate) fn counter_value(data: entity::CounterData, name: &str) -> Result<CounterValue> {
    let count = |n: i64| u64::try_from(n).map_err(|_| Error::invalid(format!("{name}: the count {n} is negative")));
    Ok(CounterValue { packets: count(data.packet_count)?, bytes: count(data.byte_count)? })
}

/// A counter's value as controllers see it; counts above `i64::MAX` are clamped.
pub(crate) fn counter_data(value: CounterValue) -> entity::CounterData {
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    entity::CounterData { byte_count: count(value.bytes), packet_count: count(value.packets) }
}

/// The data plane's form of a meter's configuration, checked against the meter's type.
pub(crate) fn meter_config(config: entity::MeterConfig, of: MeterType, name: &str) -> Result<MeterConfig> {
    let rate = |what: &str, n: i64| {
        u64::try_from(n).map_err(|_| Error::invalid(format!("{name}: the meter's {what} {n} is negative")))
    };
    let entity::MeterConfig { cir, cburst, pir, pburst, eburst } = config;
    if of == MeterType::TwoRateThreeColor && eburst != 0 {
        return Err(Error::invalid(format!("{name}: `eburst` is for single-rate meters, this has two rates")));
    }
    if of == MeterType::SingleRateTwoColor && eburst != 0 {
        return Err(Error::invalid(format!("{name}: `eburst` is for meters of three colours, this has two")));
    }
    if of != MeterType::TwoRateThreeColor && (pir != cir || pburst != cburst) {
        let message = format!(
            "{name} has a single rate: `pir` {pir} and `pburst` {pburst} must be `cir` {cir} and `cburst` {cburst}"
        );
        return Err(Error::invalid(message));
    }
    if pir < cir {
        return Err(Error::invalid(format!("{name}: the peak rate {pir} is below the committed rate {cir}")));
    }
    Ok(MeterConfig {
        cir: rate("cir", cir)?,
        cburst: rate("cburst", cburst)?,
        pir: rate("pir", pir)?,
        pburst: rate("pburst", pburst)?,
        eburst: rate("eburst", eburst)?,
    })
}

/// A meter's configuration as controllers see it.
pub(crate) fn meter_config_data(config: MeterConfig) -> entity::MeterConfig {
    let rate = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    entity::MeterConfig {
        cir: rate(config.cir),
        cburst: rate(config.cburst),
        pir: rate(config.pir),
        pburst: rate(config.pburst),
        eburst: rate(config.eburst),
    }
}

/// A meter's per-colour counts as controllers see them.
pub(crate) fn meter_counter_data([green, yellow, red]: [CounterValue; 3]) -> entity::MeterCounterData {
    let of = |value| Some(counter_data(value));
    entity::MeterCounterData { green: of(green), yellow: of(yellow), red: of(red) }
}

/// Whether a write resets a meter's per-colour counts. Zero is the only value that can be written.
pub(crate) fn resets_colours(data: Option<entity::MeterCounterData>, name: &str) -> Result<bool> {
    let Some(data) = data else { return Ok(false) };
    let is_zero = |count: Option<entity::CounterData>| count.unwrap_or_default() == Default::default();
    if [data.green, data.yellow, data.red].into_iter().all(is_zero) {
        return Ok(true);
    }
    Err(Error::invalid(format!("{name}: the counts of colours can only be set to 0")))
}

fn only_modify(kind: UpdateKind, what: &str) -> Result<()> {
    match kind {
        UpdateKind::Modify => Ok(()),
        _ => Err(Error::invalid(format!("{what} can only be modified, not inserted or deleted"))),
    }
}

/// The cells that an index selects; all for none.
fn cells(array: &ArraySchema, index: Option<i64>, name: &str) -> Result<Range<u64>> {
    let Some(index) = index else { return Ok(0..array.size) };
    let cell = u64::try_from(index).map_err(|_| Error::invalid(format!("{name}: the index {index} is negative")))?;
    if cell >= array.size {
        return Err(Error::out_of_range(format!("{name} has {} cells; there is no index {index}", array.size)));
    }
    Ok(cell..cell + 1)
}

impl Forwarding {
    fn array(&self, id: u32, kind: ObjectKind) -> Result<(&ArraySchema, ExternId, String)> {
        let array = self.schema.array_by_id(id, kind)?;
        let name = format!("{} `{}`", kind.noun(), array.name);
        Ok((array, present(array.target, kind, &array.name)?, name))
    }

    /// The array with an id, or all arrays of a kind for 0.
    fn arrays(&self, id: u32, kind: ObjectKind) -> Result<Vec<(u32, &ArraySchema, ExternId)>> {
        if id != 0 {
            let (array, target, _) = self.array(id, kind)?;
            return Ok(vec![(id, array, target)]);
        }
        let arrays = self.schema.arrays.iter().filter(|(_, array)| array.kind == kind);
        Ok(arrays.filter_map(|(id, array)| Some((*id, array, array.target?))).collect())
    }

    pub(crate) fn write_counter(&self, kind: UpdateKind, entry: &entity::CounterEntry) -> Result<()> {
        let (array, target, name) = self.array(entry.counter_id, ObjectKind::Counter)?;
        only_modify(kind, &name)?;
        let cells = cells(array, entry.index, &name)?;
        let Some(data) = entry.data else { return Ok(()) };
        let value = counter_value(data, &name)?;
        cells
            .into_iter()
            .try_for_each(|cell| self.state().counter_set(target, cell, value).map_err(|e| Error::from_state(e, &name)))
    }

    pub(crate) fn read_counters(&self, query: &entity::CounterEntry, into: &mut Vec<Entity>) -> Result<()> {
        for (counter_id, array, target) in self.arrays(query.counter_id, ObjectKind::Counter)? {
            let name = format!("counter `{}`", array.name);
            for cell in cells(array, query.index.filter(|_| query.counter_id != 0), &name)? {
                let value = self.state().counter(target, cell).map_err(|e| Error::from_state(e, &name))?;
                let (index, data) = (Some(cell as i64), Some(counter_data(value)));
                into.push(Entity::Counter(entity::CounterEntry { counter_id, index, data }));
            }
        }
        Ok(())
    }

    pub(crate) fn write_meter(&self, kind: UpdateKind, entry: &entity::MeterEntry) -> Result<()> {
        let (array, target, name) = self.array(entry.meter_id, ObjectKind::Meter)?;
        only_modify(kind, &name)?;
        let reset = resets_colours(entry.counter_data, &name)?;
        let cells = cells(array, entry.index, &name)?;
        let config = entry.config.map(|config| meter_config(config, array.meter_type, &name)).transpose()?;
        cells.into_iter().try_for_each(|cell| {
            self.state().meter_set(target, cell, config).map_err(|e| Error::from_state(e, &name))?;
            if reset {
                self.state().meter_counts_reset(target, cell).map_err(|e| Error::from_state(e, &name))?;
            }
            Ok(())
        })
    }

    pub(crate) fn read_meters(&self, query: &entity::MeterEntry, into: &mut Vec<Entity>) -> Result<()> {
        for (meter_id, array, target) in self.arrays(query.meter_id, ObjectKind::Meter)? {
            let name = format!("meter `{}`", array.name);
            for cell in cells(array, query.index.filter(|_| query.meter_id != 0), &name)? {
                let config = self.state().meter(target, cell).map_err(|e| Error::from_state(e, &name))?;
                let config = config.map(meter_config_data);
                let counted = || self.state().meter_counts(target, cell).map_err(|e| Error::from_state(e, &name));
                let counter_data = query.counter_data.map(|_| counted()).transpose()?.map(meter_counter_data);
                let index = Some(cell as i64);
                into.push(Entity::Meter(entity::MeterEntry { meter_id, index, config, counter_data }));
            }
        }
        Ok(())
    }

    pub(crate) fn write_register(&self, kind: UpdateKind, entry: &entity::RegisterEntry) -> Result<()> {
        let (array, target, name) = self.array(entry.register_id, ObjectKind::Register)?;
        only_modify(kind, &name)?;
        let cells = cells(array, entry.index, &name)?;
        let value = entry.data.as_ref().ok_or_else(|| Error::invalid(format!("{name}: the data is missing")))?;
        let cell_type = array.cell.as_ref().ok_or_else(|| Error::internal(format!("{name} has no cell type")))?;
        let value = data::decode(&self.schema.info.type_info, cell_type, value, &name)?;
        let _held = self.between_packets()?;
        cells.into_iter().try_for_each(|cell| {
            self.state().register_set(target, cell, &value).map_err(|e| Error::from_state(e, &name))
        })
    }

    pub(crate) fn read_registers(&self, query: &entity::RegisterEntry, into: &mut Vec<Entity>) -> Result<()> {
        for (register_id, array, target) in self.arrays(query.register_id, ObjectKind::Register)? {
            let name = format!("register `{}`", array.name);
            let cell_type = array.cell.as_ref().ok_or_else(|| Error::internal(format!("{name} has no cell type")))?;
            for cell in cells(array, query.index.filter(|_| query.register_id != 0), &name)? {
                let value = self.state().register(target, cell).map_err(|e| Error::from_state(e, &name))?;
                let data = data::encode_bits(&self.schema.info.type_info, cell_type, &value).ok_or_else(|| {
                    Error::unimplemented(format!("{name}: reading cells of type {cell_type:?} is not supported"))
                })?;
                let index = Some(cell as i64);
                into.push(Entity::Register(entity::RegisterEntry { register_id, index, data: Some(data) }));
            }
        }
        Ok(())
    }

    pub(crate) fn write_direct_counter(&self, kind: UpdateKind, entry: &entity::DirectCounterEntry) -> Result<()> {
        let (table, key) = self.direct_entry(entry.table_entry.as_ref())?;
        let name = format!("the direct counter of table `{}`", table.name);
        only_modify(kind, &name)?;
        let (_, counter) = table.direct_counter.ok_or_else(|| no_direct(table, "counter"))?;
        self.check_entry(table, &key)?;
        let Some(data) = entry.data else { return Ok(()) };
        let value = counter_value(data, &name)?;
        self.state().direct_counter_set(counter, &key.0, key.1, value).map_err(|e| Error::from_state(e, &name))
    }

    pub(crate) fn read_direct_counters(
        &self,
        query: &entity::DirectCounterEntry,
        into: &mut Vec<Entity>,
    ) -> Result<()> {
        let resource = |table: &TableSchema| table.direct_counter.map(|(_, counter)| counter);
        for (entry, key, counter) in self.direct_entries(query.table_entry.as_ref(), "counter", resource)? {
            into.push(self.direct_counter_of(entry, &key, counter)?);
        }
        Ok(())
    }

    /// The direct counter of an entry; `entry` identifies it in the answer.
    pub(crate) fn direct_counter_of(
        &self,
        entry: entity::TableEntry,
        key: &EntryKey,
        counter: ExternId,
    ) -> Result<Entity> {
        let value = self.state().direct_counter(counter, &key.0, key.1);
        let data = Some(counter_data(value.map_err(|e| Error::from_state(e, "the direct counter"))?));
        Ok(Entity::DirectCounter(entity::DirectCounterEntry { table_entry: Some(entry), data }))
    }

    pub(crate) fn write_direct_meter(&self, kind: UpdateKind, entry: &entity::DirectMeterEntry) -> Result<()> {
        let (table, key) = self.direct_entry(entry.table_entry.as_ref())?;
        let name = format!("the direct meter of table `{}`", table.name);
        only_modify(kind, &name)?;
        let reset = resets_colours(entry.counter_data, &name)?;
        let (_, meter) = table.direct_meter.ok_or_else(|| no_direct(table, "meter"))?;
        self.check_entry(table, &key)?;
        let config = entry.config.map(|config| meter_config(config, table.meter_type, &name)).transpose()?;
        let state = self.state();
        state.direct_meter_set(meter, &key.0, key.1, config).map_err(|e| Error::from_state(e, &name))?;
        match reset {
            true => state.direct_meter_counts_reset(meter, &key.0, key.1).map_err(|e| Error::from_state(e, &name)),
            false => Ok(()),
        }
    }

    pub(crate) fn read_direct_meters(&self, query: &entity::DirectMeterEntry, into: &mut Vec<Entity>) -> Result<()> {
        let resource = |table: &TableSchema| table.direct_meter.map(|(_, meter)| meter);
        for (entry, key, meter) in self.direct_entries(query.table_entry.as_ref(), "meter", resource)? {
            into.push(self.direct_meter_of(entry, &key, meter, query.counter_data.is_some())?);
        }
        Ok(())
    }

    /// The direct meter of an entry, with its per-colour counts if requested; `entry` identifies it in the answer.
    pub(crate) fn direct_meter_of(
        &self,
        entry: entity::TableEntry,
        key: &EntryKey,
        meter: ExternId,
        with_counts: bool,
    ) -> Result<Entity> {
        let refused = |e| Error::from_state(e, "the direct meter");
        let config = self.state().direct_meter(meter, &key.0, key.1).map_err(refused)?.map(meter_config_data);
        let counted = || self.state().direct_meter_counts(meter, &key.0, key.1).map_err(refused);
        let counter_data = with_counts.then(counted).transpose()?.map(meter_counter_data);
        Ok(Entity::DirectMeter(entity::DirectMeterEntry { table_entry: Some(entry), config, counter_data }))
    }

    /// The table and key of the entry whose direct resource is written.
    fn direct_entry(&self, entry: Option<&entity::TableEntry>) -> Result<(&TableSchema, EntryKey)> {
        let entry = entry.ok_or_else(|| Error::invalid("the direct resource's table entry is missing"))?;
        let table = self.schema.table_by_id(entry.table_id)?;
        if entry.is_default_action {
            check_default(entry, &table.name)?;
            return Ok((table, DEFAULT));
        }
        Ok((table, self.schema.entry_key(entry)?.0))
    }

    fn check_entry(&self, table: &TableSchema, key: &EntryKey) -> Result<()> {
        let target = present(table.target, ObjectKind::Table, &table.name)?;
        if *key == DEFAULT {
            return Ok(());
        }
        let found = self.state().entry(target, &key.0, key.1);
        found.map(drop).map_err(|e| Error::from_state(e, &format!("the entry of table `{}`", table.name)))
    }

    /// The entries that a read of direct resources selects, with the resource; table id 0 selects all tables.
    fn direct_entries(
        &self,
        query: Option<&entity::TableEntry>,
        what: &str,
        resource: impl Fn(&TableSchema) -> Option<ExternId>,
    ) -> Result<Vec<(entity::TableEntry, EntryKey, ExternId)>> {
        let query = query.ok_or_else(|| Error::invalid(format!("the direct {what}'s table entry is missing")))?;
        let mut entries = Vec::new();
        let tables: Vec<(u32, &TableSchema)> = match query.table_id {
            0 => self.schema.tables.iter().map(|(id, table)| (*id, table)).collect(),
            id => vec![(id, self.schema.table_by_id(id)?)],
        };
        for (id, table) in tables {
            let (Some(resource), Some(_)) = (resource(table), table.target) else {
                if query.table_id != 0 {
                    return Err(no_direct(table, what));
                }
                continue;
            };
            let keys = entity::TableEntry { table_id: id, action: None, ..query.clone() };
            let mut found = Vec::new();
            self.read_table_entries(&keys, &mut found)?;
            if found.is_empty() && !query.matches.is_empty() {
                return Err(Error::not_found(format!("the entry of table `{}` does not exist", table.name)));
            }
            for entity in found {
                let Entity::Table(entry) = entity else { continue };
                let key = if entry.is_default_action { DEFAULT } else { self.schema.entry_key(&entry)?.0 };
                // Only the fields that identify the entry.
                let entry = entity::TableEntry {
                    table_id: id,
                    matches: entry.matches,
                    priority: entry.priority,
                    is_default_action: entry.is_default_action,
                    ..Default::default()
                };
                entries.push((entry, key, resource));
            }
        }
        Ok(entries)
    }
}

/// The key under which the data plane stores the default entry.
pub(crate) const DEFAULT: EntryKey = (Vec::new(), 0);

/// Refuses a default entry with match fields or a priority.
pub(crate) fn check_default(entry: &entity::TableEntry, table: &str) -> Result<()> {
    match entry.matches.is_empty() && entry.priority == 0 {
        true => Ok(()),
        false => {
            Err(Error::invalid(format!("the default entry of table `{table}` has neither match fields nor a priority")))
        }
    }
}

fn no_direct(table: &TableSchema, what: &str) -> Error {
    Error::invalid(format!("table `{}` has no direct {what}", table.name))
}

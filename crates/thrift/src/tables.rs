//! Tables: entries by handle, default entries, and the direct counters and meters of entries.
//!
//! In bmv2 the lowest priority wins, in P4Runtime the highest: one is [`PRIORITY_MAX`] minus the other. Properties of
//! an entry that bmv2's methods do not have (metadata, a timeout, a meter) are kept when its action is changed.
//!
//! Tests: `tests/py/test_thrift.py`.

use crate::arrays::{counter_value, meter_config, read_counter_value, read_rates};
use crate::fault::{Answer, Fault, table as code, with_code};
use crate::handles::{Handles, Name, NoEntry};
use crate::profiles::{group_handle, group_id, member_handle, member_id};
use crate::program::Program;
use crate::service::{BATCH, Context};
use crate::wire::{Elements, Value};
use base::entry::KeyMatch;
use control::Code;
use control::entity::{
    CounterData, DirectCounterEntry, DirectMeterEntry, Entity, FieldMatch, MeterConfig, TableAction, TableEntry,
    Update, UpdateKind,
};
use control::schema::TableSchema;
use std::collections::HashSet;
use std::sync::Arc;

/// The sum of a priority in bmv2 and the corresponding one in P4Runtime.
const PRIORITY_MAX: i32 = i32::MAX;
/// The member of `BmResourceType` for tables.
const MATCH_TABLE: i32 = 0;
/// Length in bytes of the priority at the end of an entry's name.
const PRIORITY_BYTES: usize = 4;
const NS_PER_MS: i64 = 1_000_000;
/// Limit on entries with handles in a table: handles take about as much memory as the entries.
const ENTRIES_MAX: usize = 1 << 20;
/// For error messages: how to read larger tables.
const SHOW: &str = "which is the most that have handles; `sluice table show` and P4Runtime read tables of any size";

/// A table of the program.
#[derive(Clone)]
struct Table {
    program: Arc<Program>,
    id: u32,
}

impl Table {
    fn schema(&self) -> &TableSchema {
        // It was looked up there.
        &self.program.schema.tables[&self.id]
    }

    /// The table's name in messages.
    fn label(&self) -> &str {
        &self.schema().label
    }

    /// Whether this is the program's initial default action.
    fn is_initial(&self, action: &TableAction) -> bool {
        let info = self.program.schema.info.tables.iter().find(|info| info.preamble.id == self.id);
        let initial = info.and_then(|info| info.initial_default_action.as_ref());
        match action {
            TableAction::Action(action) => initial.is_none_or(|initial| initial.action_id == action.action_id),
            _ => false,
        }
    }

    fn is_indirect(&self) -> bool {
        self.schema().profile.is_some()
    }

    /// The name of an entry, which identifies it within its table.
    fn name_of(&self, entry: &TableEntry) -> Option<Vec<u8>> {
        let mut name = self.program.key_bytes(self.schema(), &entry.matches)?;
        name.extend(entry.priority.to_be_bytes());
        Some(name)
    }

    /// The entry with a name, without an action.
    fn entry(&self, name: &[u8]) -> Answer<TableEntry> {
        let (key, priority) = name.split_last_chunk::<PRIORITY_BYTES>().ok_or_else(|| self.lost())?;
        let params = self.program.params(self.schema(), key, None).ok_or_else(|| self.lost())?;
        let key = self.program.key(self.schema(), &params, code::BAD_MATCH_KEY)?;
        let priority = i32::from_be_bytes(*priority);
        Ok(TableEntry { table_id: self.id, matches: key.matches, priority, ..TableEntry::default() })
    }

    fn lost(&self) -> Fault {
        Fault::with_message(format!("a key of {} cannot be represented", self.label()))
    }

    /// An action as a `BmActionEntry`.
    fn action_entry(&self, action: Option<&TableAction>) -> Value {
        let of = |kind: i32, fields: Vec<(i16, Value)>| {
            Value::Struct(std::iter::once((1, Value::I32(kind))).chain(fields).collect())
        };
        match action {
            Some(TableAction::Action(action)) => match self.program.called(action) {
                Some((name, data)) => of(1, vec![(2, Value::text(name)), (3, Value::List(data))]),
                None => of(0, vec![]),
            },
            Some(TableAction::Member(id)) => of(2, vec![(4, Value::I32(member_handle(*id)))]),
            Some(TableAction::Group(id)) => of(3, vec![(5, Value::I32(group_handle(*id)))]),
            // An action set of P4Runtime cannot be represented in bmv2.
            Some(TableAction::OneShot(_)) | None => of(0, vec![]),
        }
    }

    /// An entry as a `BmMtEntry`.
    fn entry_value(&self, handles: &Handles, handle: i32, entry: &TableEntry) -> Answer<Value> {
        let key = self.program.key_bytes(self.schema(), &entry.matches).ok_or_else(|| self.lost())?;
        let given = handles.given(handle);
        let params = self.program.params(self.schema(), &key, given).ok_or_else(|| self.lost())?;
        let priority = if self.schema().needs_priority { PRIORITY_MAX - entry.priority } else { -1 };
        let mut fields = vec![
            (1, Value::List(params)),
            (2, Value::Struct(vec![(1, Value::I32(priority))])),
            (3, Value::I32(handle)),
            (4, self.action_entry(entry.action.as_ref())),
        ];
        if entry.idle_timeout_ns > 0 {
            let ms = |ns: i64| Value::I32(i32::try_from(ns / NS_PER_MS).unwrap_or(i32::MAX));
            let since = entry.time_since_last_hit.unwrap_or(0);
            fields.push((5, Value::Struct(vec![(1, ms(entry.idle_timeout_ns)), (2, ms(since))])));
        }
        Ok(Value::Struct(fields))
    }

    /// Extends a query to everything that a later write of the entry must contain.
    fn query(&self, of: TableEntry) -> TableEntry {
        let schema = self.schema();
        TableEntry {
            table_id: self.id,
            meter_config: schema.direct_meter.map(|_| MeterConfig::default()),
            counter_data: schema.direct_counter.map(|_| CounterData::default()),
            time_since_last_hit: schema.idle_timeout.then_some(0),
            ..of
        }
    }
}

impl Context<'_> {
    /// The table that argument 2 names.
    fn table(&mut self) -> Answer<Table> {
        let name = self.text(2)?;
        let program = self.program()?;
        let Some((id, _)) = program.table(name) else {
            return Err(Fault::Coded(code::INVALID_TABLE_NAME, format!("there is no table `{name}`")));
        };
        Ok(Table { program, id })
    }

    /// The table that argument 2 names; an error if it is direct and the method is for indirect tables, or vice versa.
    fn table_of_kind(&mut self, indirect: bool) -> Answer<Table> {
        let table = self.table()?;
        if table.is_indirect() == indirect {
            return Ok(table);
        }
        let what = if indirect { "has no action profile" } else { "has an action profile" };
        Err(Fault::Coded(code::WRONG_TABLE_TYPE, format!("{} {what}", table.label())))
    }

    /// Scans a table: assigns handles to all entries, and frees those of removed entries.
    fn look(&mut self, table: &Table) -> Answer<()> {
        let mut names: HashSet<Vec<u8>> = HashSet::new();
        let query = TableEntry { table_id: table.id, ..TableEntry::default() };
        let found = self.read_each(Entity::Table(query), |entity| {
            let Entity::Table(entry) = entity else { return Ok(()) };
            names.insert(table.name_of(&entry).ok_or_else(|| table.lost())?);
            match names.len() > ENTRIES_MAX {
                true => {
                    Err(Fault::with_message(format!("{} has more than {ENTRIES_MAX} entries, {SHOW}", table.label())))
                }
                false => Ok(()),
            }
        });
        found.map_err(|error| error.fault(code::ERROR))?;
        let handles = self.handles(table.id);
        handles.retain(|name| names.contains(name));
        let mut new: Vec<Vec<u8>> = names.into_iter().filter(|name| handles.known(name).is_none()).collect();
        // Assigns handles in the order in which entries match, independently of the order in the table.
        new.sort_by_cached_key(|name| {
            let (key, priority) = name.split_at(name.len() - PRIORITY_BYTES);
            (std::cmp::Reverse(priority.to_vec()), key.to_vec())
        });
        for name in &new {
            handles
                .of(name)
                .ok_or_else(|| Fault::with_message(format!("{}: there is no handle left", table.label())))?;
        }
        handles.complete = true;
        Ok(())
    }

    /// Makes sure that entries which existed before the first scan have handles.
    fn complete(&mut self, table: &Table) -> Answer<()> {
        match self.handles(table.id).complete {
            true => Ok(()),
            false => self.look(table),
        }
    }

    /// Makes sure that a handle is available for one more entry; if not, scans the table to free those of removed
    /// entries.
    fn make_room(&mut self, table: &Table) -> Answer<()> {
        if self.handles(table.id).len() >= ENTRIES_MAX {
            self.look(table)?;
        }
        match self.handles(table.id).len() < ENTRIES_MAX {
            true => Ok(()),
            false => {
                let why = format!("{} has {ENTRIES_MAX} entries, {SHOW}", table.label());
                Err(Fault::Coded(code::FULL, why))
            }
        }
    }

    /// The name and the current contents of the entry whose handle is in an argument.
    fn by_handle(&mut self, table: &Table, argument: i16) -> Answer<(Name, TableEntry)> {
        let handle = self.i32(argument)?;
        self.complete(table)?;
        let label = table.label();
        let invalid = || Fault::Coded(code::INVALID_HANDLE, format!("{label} has no entry with handle {handle}"));
        let name = self.handles(table.id).name(handle).map_err(|why| match why {
            NoEntry::Invalid => invalid(),
            NoEntry::Expired => {
                Fault::Coded(code::EXPIRED_HANDLE, format!("{label}: the entry with handle {handle} is gone"))
            }
        })?;
        match self.find(table, table.entry(&name)?)? {
            Some(entry) => Ok((name, entry)),
            None => {
                self.handles(table.id).remove(&name);
                Err(invalid())
            }
        }
    }

    /// The entry with this key and priority. A key that matches everything selects all entries in a query, so the
    /// results are compared.
    fn find(&self, table: &Table, entry: TableEntry) -> Answer<Option<TableEntry>> {
        let (matches, priority) = (entry.matches.clone(), entry.priority);
        let is = |found: &TableEntry| found.priority == priority && same(&found.matches, &matches);
        let mut found = None;
        let read = self.read_some(Entity::Table(table.query(entry)), |entity| match entity {
            Entity::Table(entry) if is(&entry) => {
                found = Some(entry);
                false
            }
            _ => true,
        });
        read.map_err(|error| with_code(error, code::ERROR))?;
        Ok(found)
    }

    /// The entry with the key in argument `key` and the priority in argument `options`.
    fn key(&self, table: &Table, key: i16, options: i16) -> Answer<TableEntry> {
        let schema = table.schema();
        if schema.fields.is_empty() {
            return Err(Fault::Coded(code::BAD_MATCH_KEY, format!("{} has no key", table.label())));
        }
        let key = table.program.key(schema, self.list(key)?, code::BAD_MATCH_KEY)?;
        let priority = match self.option(options).and_then(|options| options.field(1)) {
            Some(Value::I32(given)) if schema.needs_priority => {
                let ours = PRIORITY_MAX.checked_sub(*given).filter(|ours| *ours > 0);
                ours.ok_or_else(|| Fault::Coded(code::BAD_MATCH_KEY, format!("{} is not a valid priority", given)))?
            }
            None if schema.needs_priority => {
                return Err(Fault::Coded(code::BAD_MATCH_KEY, format!("{}: the priority is missing", table.label())));
            }
            _ => 0,
        };
        Ok(TableEntry { table_id: table.id, matches: key.matches, priority, ..TableEntry::default() })
    }

    /// The action in two arguments, its name and its data.
    fn action(&self, table: &Table, name: i16, data: i16, default: bool) -> Answer<TableAction> {
        let (name, data) = (self.text(name)?, self.data(data)?);
        let Some(id) = table.program.action(&table.schema().actions, name, default) else {
            let why = format!(
                "{} has no action `{name}` {}",
                table.label(),
                if default { "by default" } else { "for entries" }
            );
            return Err(Fault::Coded(code::INVALID_ACTION_NAME, why));
        };
        Ok(TableAction::Action(table.program.call(id, &data, code::BAD_ACTION_DATA)?))
    }

    /// Rejects a change of a constant entry, or the addition of one to a constant table.
    fn check_may_change(&self, table: &Table, entry: Option<&TableEntry>) -> Answer<()> {
        let what = match entry {
            _ if table.schema().is_const => "is constant",
            Some(entry) if entry.is_const => "has this entry as a constant one",
            _ => return Ok(()),
        };
        Err(Fault::Coded(code::IMMUTABLE_ENTRIES, format!("{} {what}", table.label())))
    }

    /// Writes an entry, and maps errors to codes. Its key must have been checked ([`Program::key`]).
    fn write_entry(&self, table: &Table, kind: UpdateKind, entry: TableEntry) -> Answer<()> {
        self.write_one(kind, Entity::Table(entry)).map_err(|error| match error.code {
            Code::AlreadyExists => Fault::Coded(code::DUPLICATE_ENTRY, error.message),
            Code::ResourceExhausted => Fault::Coded(code::FULL, error.message),
            Code::NotFound => Fault::Coded(code::INVALID_HANDLE, error.message),
            _ => with_code(error, code::ERROR),
        })?;
        tracing::debug!("thrift: an entry of {} is written", table.label());
        Ok(())
    }

    /// Adds an entry; returns its handle.
    fn add_entry(&mut self, table: &Table, action: TableAction) -> Answer<Option<Value>> {
        self.check_may_change(table, None)?;
        self.complete(table)?;
        let options = 6 - i16::from(table.is_indirect());
        let entry = TableEntry { action: Some(action), ..self.key(table, 3, options)? };
        let name = table.name_of(&entry).ok_or_else(|| table.lost())?;
        let given = table.program.prefix_given(table.schema(), self.list(3)?);
        self.make_room(table)?;
        self.write_entry(table, UpdateKind::Insert, entry)?;
        let handles = self.handles(table.id);
        let handle = handles.of(&name).inspect(|handle| handles.give(*handle, given));
        let full = || {
            Fault::with_message(format!("{}: the entry is added, but there is no handle left for it", table.label()))
        };
        handle.map(|handle| Some(Value::I32(handle))).ok_or_else(full)
    }

    fn modify_entry(&mut self, table: &Table, action: TableAction) -> Answer<Option<Value>> {
        let (_, entry) = self.by_handle(table, 3)?;
        self.check_may_change(table, Some(&entry))?;
        self.write_entry(table, UpdateKind::Modify, TableEntry { action: Some(action), ..to_write(entry) })?;
        Ok(None)
    }

    /// An existing member.
    fn existing_member(&mut self, table: &Table, argument: i16) -> Answer<TableAction> {
        let handle = self.i32(argument)?;
        let id = member_id(handle);
        let profile = table.schema().profile.unwrap_or_default();
        match self.read_member(profile, id)? {
            Some(_) => Ok(TableAction::Member(id)),
            None => Err(Fault::Coded(code::INVALID_MEMBER, format!("there is no member {handle}"))),
        }
    }

    /// An existing group that has members.
    fn existing_group(&mut self, table: &Table, argument: i16) -> Answer<TableAction> {
        let handle = self.i32(argument)?;
        let id = group_id(handle);
        let profile = table.schema().profile.unwrap_or_default();
        if !table.program.schema.profiles.get(&profile).is_some_and(|profile| profile.with_selector) {
            return Err(Fault::Coded(code::WRONG_TABLE_TYPE, format!("{} has no selector", table.label())));
        }
        match self.read_group(profile, id)? {
            Some(group) if group.members.is_empty() => {
                Err(Fault::Coded(code::EMPTY_GROUP, format!("group {handle} has no members")))
            }
            Some(_) => Ok(TableAction::Group(id)),
            None => Err(Fault::Coded(code::INVALID_GROUP, format!("there is no group {handle}"))),
        }
    }
}

/// An entry that was read, in the form for a write.
fn to_write(entry: TableEntry) -> TableEntry {
    TableEntry { counter_data: None, meter_counter_data: None, time_since_last_hit: None, is_const: false, ..entry }
}

/// Whether two keys have the same matches.
fn same(a: &[FieldMatch], b: &[FieldMatch]) -> bool {
    a.len() == b.len() && a.iter().all(|of| b.contains(of))
}

/// The key and priority that identify an entry, without anything else.
fn identity(entry: TableEntry) -> TableEntry {
    TableEntry { table_id: entry.table_id, matches: entry.matches, priority: entry.priority, ..TableEntry::default() }
}

pub(crate) fn count(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    let count = count_entries(on, &table)?;
    Ok(Some(Value::I64(count as i64)))
}

fn count_entries(on: &Context<'_>, table: &Table) -> Answer<usize> {
    let mut count = 0;
    let query = TableEntry { table_id: table.id, ..TableEntry::default() };
    let counted = on.read_each(Entity::Table(query), |_| {
        count += 1;
        Ok(())
    });
    counted.map_err(|error| error.fault(code::ERROR))?;
    Ok(count)
}

pub(crate) fn clear(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    if table.schema().is_const {
        return Err(Fault::Coded(code::IMMUTABLE_ENTRIES, format!("{} is constant", table.label())));
    }
    // In steps, since a list of all entries may need too much memory. At most as many as there are at the start:
    // entries that other clients add meanwhile may remain.
    let mut left = count_entries(on, &table)?;
    while left > 0 {
        match clear_some(on, &table, left.min(BATCH))? {
            0 => break,
            gone => left = left.saturating_sub(gone),
        }
    }
    if on.bool(3)? {
        return reset_default(on);
    }
    Ok(None)
}

/// Deletes up to `most` entries that are not constant; returns their number.
fn clear_some(on: &mut Context<'_>, table: &Table, most: usize) -> Answer<usize> {
    let mut entries = Vec::new();
    let query = TableEntry { table_id: table.id, ..TableEntry::default() };
    on.read_some(Entity::Table(query), |entity| {
        if let Entity::Table(entry) = entity
            && !entry.is_const
        {
            entries.push(identity(entry));
        }
        entries.len() < most
    })
    .map_err(|error| with_code(error, code::ERROR))?;
    let delete = |entry: &TableEntry| Update { kind: UpdateKind::Delete, entity: Some(Entity::Table(entry.clone())) };
    if entries.is_empty() {
        return Ok(0);
    }
    let results = on.write(entries.iter().map(delete).collect()).map_err(|error| with_code(error, code::ERROR))?;
    for (entry, result) in entries.iter().zip(results) {
        match result {
            Ok(()) => {
                let name = table.name_of(entry);
                name.iter().for_each(|name| on.handles(table.id).remove(name));
            }
            // Another client has deleted it already.
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => return Err(with_code(error, code::ERROR)),
        }
    }
    Ok(entries.len())
}

pub(crate) fn add(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(false)?;
    let action = on.action(&table, 4, 5, false)?;
    on.add_entry(&table, action)
}

pub(crate) fn add_to_member(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(true)?;
    let action = on.existing_member(&table, 4)?;
    on.add_entry(&table, action)
}

pub(crate) fn add_to_group(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(true)?;
    let action = on.existing_group(&table, 4)?;
    on.add_entry(&table, action)
}

pub(crate) fn modify(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(false)?;
    let action = on.action(&table, 4, 5, false)?;
    on.modify_entry(&table, action)
}

pub(crate) fn modify_to_member(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(true)?;
    let action = on.existing_member(&table, 4)?;
    on.modify_entry(&table, action)
}

pub(crate) fn modify_to_group(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(true)?;
    let action = on.existing_group(&table, 4)?;
    on.modify_entry(&table, action)
}

pub(crate) fn delete(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    let (name, entry) = on.by_handle(&table, 3)?;
    on.check_may_change(&table, Some(&entry))?;
    on.write_entry(&table, UpdateKind::Delete, identity(entry))?;
    on.handles(table.id).remove(&name);
    Ok(None)
}

pub(crate) fn set_timeout(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    if !table.schema().idle_timeout {
        return Err(Fault::Coded(code::AGEING_DISABLED, format!("{} has no timeouts", table.label())));
    }
    let ms = on.i32(4)?;
    if ms < 0 {
        return Err(Fault::Coded(code::ERROR, format!("a timeout of {ms} ms")));
    }
    let (_, entry) = on.by_handle(&table, 3)?;
    on.check_may_change(&table, Some(&entry))?;
    let entry = TableEntry { idle_timeout_ns: i64::from(ms) * NS_PER_MS, ..to_write(entry) };
    on.write_entry(&table, UpdateKind::Modify, entry)?;
    Ok(None)
}

pub(crate) fn set_default(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(false)?;
    let action = on.action(&table, 3, 4, true)?;
    write_default(on, &table, Some(action))
}

pub(crate) fn reset_default(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    write_default(on, &table, None)
}

pub(crate) fn set_default_indirect(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table_of_kind(true)?;
    Err(Fault::Coded(
        code::ERROR,
        format!("not supported: another default entry of {}, since it has an action profile", table.label()),
    ))
}

fn write_default(on: &mut Context<'_>, table: &Table, action: Option<TableAction>) -> Answer<Option<Value>> {
    let schema = table.schema();
    if schema.const_default {
        let info = table.program.schema.info.tables.iter().find(|info| info.preamble.id == table.id);
        let constant = info.and_then(|info| info.const_default_action_id);
        let same = match &action {
            Some(TableAction::Action(action)) => Some(action.action_id) == constant,
            _ => true,
        };
        // There is nothing to reset.
        if action.is_none() {
            return Ok(None);
        }
        let code = if same { code::DEFAULT_ENTRY_IS_CONST } else { code::DEFAULT_ACTION_IS_CONST };
        return Err(Fault::Coded(code, format!("the default entry of {} is constant", table.label())));
    }
    let set = action.is_some();
    let entry = TableEntry { table_id: table.id, is_default_action: true, action, ..TableEntry::default() };
    on.write_one(UpdateKind::Modify, Entity::Table(entry)).map_err(|error| with_code(error, code::ERROR))?;
    match set {
        true => on.defaults_set().insert(table.id),
        false => on.defaults_set().remove(&table.id),
    };
    Ok(None)
}

pub(crate) fn default_entry(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    read_default(on, &table).map(Some)
}

fn read_default(on: &mut Context<'_>, table: &Table) -> Answer<Value> {
    let query = TableEntry { table_id: table.id, is_default_action: true, ..TableEntry::default() };
    let found = on.read(Entity::Table(query)).map_err(|error| with_code(error, code::ERROR))?;
    let action = found.into_iter().find_map(|entity| match entity {
        Entity::Table(entry) => entry.action,
        _ => None,
    });
    // The implicit default action is not an entry in bmv2.
    let silent = !table.program.has_default(table.schema()) && !on.defaults_set().contains(&table.id);
    let action = action.filter(|action| !silent || !table.is_initial(action));
    Ok(table.action_entry(action.as_ref()))
}

/// The id of a table in the description, and the handles of some of its entries; `id` is from the P4Info.
pub(crate) fn handles_of(on: &mut Context<'_>, id: u32, entries: &[TableEntry]) -> Answer<(i32, Vec<i32>)> {
    let program = on.program()?;
    let Some(schema) = program.schema.tables.get(&id) else {
        return Err(Fault::with_message(format!("the program has no table {id} any more")));
    };
    let number = program.id_of(MATCH_TABLE, &schema.name);
    let number = number.ok_or_else(|| Fault::with_message(format!("{} has no number", schema.label)))?;
    let table = Table { program: Arc::clone(&program), id };
    on.complete(&table)?;
    let handles = on.handles(id);
    let handle = |entry: &TableEntry| {
        let name = table.name_of(entry)?;
        match handles.known(&name) {
            None if handles.len() < ENTRIES_MAX => handles.of(&name),
            known => known,
        }
    };
    Ok((number, entries.iter().filter_map(handle).collect()))
}

/// The handle of the entry of a table with this key and priority.
pub(crate) fn handle_of(on: &mut Context<'_>, table: &str, key: &[KeyMatch], priority: i32) -> Option<i32> {
    let program = on.program().ok()?;
    let (id, schema) = program.schema.tables.iter().find(|(_, schema)| schema.name == table)?;
    let entry = TableEntry { table_id: *id, matches: schema.key_of(key), priority, ..TableEntry::default() };
    handles_of(on, *id, &[entry]).ok()?.1.first().copied()
}

pub(crate) fn entries(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    on.look(&table)?;
    let handles = std::mem::take(on.handles(table.id));
    let mut list = Elements::of(&Value::Struct(vec![]));
    // The byte range of each entry in the answer.
    let mut places: Vec<(i32, std::ops::Range<usize>)> = Vec::new();
    let query = Entity::Table(table.query(TableEntry::default()));
    let told = on.read_each(query, |entity| {
        let Entity::Table(entry) = entity else { return Ok(()) };
        // An entry written after the scan is listed the next time.
        let handle = table.name_of(&entry).and_then(|name| handles.known(&name));
        let Some(handle) = handle else { return Ok(()) };
        let from = list.len_bytes();
        list.push(&table.entry_value(&handles, handle, &entry)?)?;
        places.push((handle, from..list.len_bytes()));
        Ok(())
    });
    *on.handles(table.id) = handles;
    told.map_err(|error| error.fault(code::ERROR))?;
    // In order of their numbers, as in bmv2.
    places.sort_by_key(|(handle, _)| handle & 0x00ff_ffff);
    Ok(Some(Value::Elements(list.reordered(places.into_iter().map(|(_, range)| range)))))
}

pub(crate) fn entry(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    let (_, entry) = on.by_handle(&table, 3)?;
    let handle = on.i32(3)?;
    table.entry_value(on.handles(table.id), handle, &entry).map(Some)
}

pub(crate) fn entry_from_key(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = on.table()?;
    if on.list(3)?.is_empty() {
        let default = read_default(on, &table)?;
        return Ok(Some(Value::Struct(vec![
            (1, Value::List(vec![])),
            (2, Value::Struct(vec![])),
            (3, Value::I32(0)),
            (4, default),
        ])));
    }
    let key = on.key(&table, 3, 4)?;
    on.complete(&table)?;
    let Some(entry) = on.find(&table, key)? else {
        return Err(Fault::Coded(code::BAD_MATCH_KEY, format!("{} has no entry with this key", table.label())));
    };
    let name = table.name_of(&entry).ok_or_else(|| table.lost())?;
    if on.handles(table.id).known(&name).is_none() {
        on.make_room(&table)?;
    }
    let handle = on.handles(table.id).of(&name);
    let handle = handle.ok_or_else(|| Fault::with_message(format!("{}: there is no handle left", table.label())))?;
    table.entry_value(on.handles(table.id), handle, &entry).map(Some)
}

/// The table in the arguments, if it has direct counters.
fn counted(on: &mut Context<'_>) -> Answer<Table> {
    let table = on.table()?;
    match table.schema().direct_counter {
        Some(_) => Ok(table),
        None => Err(Fault::Coded(code::COUNTERS_DISABLED, format!("{} has no direct counter", table.label()))),
    }
}

pub(crate) fn read_counter(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = counted(on)?;
    let (_, entry) = on.by_handle(&table, 3)?;
    Ok(Some(read_counter_value(entry.counter_data.unwrap_or_default())))
}

pub(crate) fn write_counter(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = counted(on)?;
    let (_, entry) = on.by_handle(&table, 3)?;
    let data = Some(counter_value(on, 4)?);
    let write = Entity::DirectCounter(DirectCounterEntry { table_entry: Some(identity(entry)), data });
    on.write_one(UpdateKind::Modify, write).map_err(|error| with_code(error, code::ERROR))?;
    Ok(None)
}

pub(crate) fn reset_counters(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let table = counted(on)?;
    let mut entries = Vec::new();
    let query = TableEntry { table_id: table.id, ..TableEntry::default() };
    let read = on.read_each(Entity::Table(query), |entity| {
        if let Entity::Table(entry) = entity {
            entries.push(identity(entry));
        }
        match entries.len() > ENTRIES_MAX {
            true => Err(Fault::with_message(format!("{} has more than {ENTRIES_MAX} entries, {SHOW}", table.label()))),
            false => Ok(()),
        }
    });
    read.map_err(|error| error.fault(code::ERROR))?;
    for batch in entries.chunks(BATCH) {
        let zero = |entry: &TableEntry| Update {
            kind: UpdateKind::Modify,
            entity: Some(Entity::DirectCounter(DirectCounterEntry {
                table_entry: Some(entry.clone()),
                data: Some(CounterData::default()),
            })),
        };
        let results = on.write(batch.iter().map(zero).collect()).map_err(|error| with_code(error, code::ERROR))?;
        // A missing entry has no counter to reset.
        let refused = results.into_iter().filter_map(Result::err).find(|error| error.code != Code::NotFound);
        if let Some(error) = refused {
            return Err(with_code(error, code::ERROR));
        }
    }
    Ok(None)
}

/// The table and entry in the arguments, if the table has direct meters.
fn metered(on: &mut Context<'_>) -> Answer<(Table, TableEntry)> {
    let table = on.table()?;
    if table.schema().direct_meter.is_none() {
        return Err(Fault::Coded(code::METERS_DISABLED, format!("{} has no direct meter", table.label())));
    }
    let (_, entry) = on.by_handle(&table, 3)?;
    Ok((table, entry))
}

pub(crate) fn set_meter_rates(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (table, entry) = metered(on)?;
    let config = meter_config(on.list(4)?, table.schema().meter_type);
    let config = config.map_err(|(_, why)| Fault::Coded(code::INVALID_METER_OPERATION, why))?;
    let write = DirectMeterEntry { table_entry: Some(identity(entry)), config: Some(config), counter_data: None };
    let done = on.write_one(UpdateKind::Modify, Entity::DirectMeter(write));
    done.map_err(|error| with_code(error, code::INVALID_METER_OPERATION))?;
    Ok(None)
}

pub(crate) fn meter_rates(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (table, entry) = metered(on)?;
    Ok(Some(read_rates(entry.meter_config, table.schema().meter_type)))
}

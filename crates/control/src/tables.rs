//! Table entries (P4Runtime specification, "TableEntry").
//!
//! An entry is identified by its key and priority. What the data plane does not store (the controller's metadata,
//! one-shot action sets as sent) is stored beside it in [`EntryExtras`] and added again on reading.

use crate::calls::{NewEntry, check_resources};
use crate::entity::{self, CounterData, Entity, TableAction, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::{EntryKey, Forwarding};
use crate::matches;
use crate::schema::{ListedAction, TableSchema, present};
use abi::state::StateError;
use base::entry::{ActionCall, EntryAction, TableEntry};
use base::ids::TableId;
use constraints::Values;
use p4info::ObjectKind;
use std::sync::Arc;

/// The part of an entry that the data plane does not store.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct EntryExtras {
    pub(crate) metadata: Vec<u8>,
    pub(crate) controller_metadata: u64,
    pub(crate) one_shot: Option<(u32, entity::ActionSet)>,
}

impl Forwarding {
    pub(crate) fn write_table_entry(&mut self, kind: UpdateKind, entry: &entity::TableEntry) -> Result<()> {
        let table = self.schema.table_by_id(entry.table_id)?;
        let name = Arc::clone(&table.label);
        if entry.is_const {
            return Err(Error::invalid(format!("{name}: `is_const` must not be set in a write")));
        }
        if entry.is_default_action {
            return self.write_default_entry(kind, entry);
        }
        if table.fields.is_empty() {
            return Err(Error::invalid(format!("{name} has no key; only its default entry can be written")));
        }
        if kind == UpdateKind::Insert
            && let Some(new) = self.schema.new_entry(entry)
        {
            return self.insert_new(new.has_more.then_some(entry), new);
        }
        let (key, target) = self.schema.entry_key(entry)?;
        let immutable = table.is_const || self.is_const_entry(target, &key);
        let timed = self.has_timers(table, target).then(|| (entry.table_id, key.clone()));
        let done = match kind {
            UpdateKind::Insert => {
                if table.is_const {
                    return Err(Error::denied(format!("{name} is constant")));
                }
                self.insert_entry(entry, key, target)
            }
            UpdateKind::Modify => {
                if immutable && entry.action.is_some() {
                    return Err(Error::denied(format!("{name}: the entry is constant, its action cannot be given")));
                }
                self.modify_entry(entry, key, target, immutable)
            }
            UpdateKind::Delete => {
                if immutable {
                    return Err(Error::denied(format!("{name}: the entry is constant")));
                }
                self.delete_entry(&name, key, target)
            }
            UpdateKind::Unspecified => Ok(()),
        };
        if let (Some(place), Ok(())) = (timed, &done) {
            match kind {
                UpdateKind::Insert => self.timers.added(place, u64::try_from(entry.idle_timeout_ns).unwrap_or(0)),
                UpdateKind::Delete => self.timers.removed(&place),
                UpdateKind::Modify | UpdateKind::Unspecified => self.timers.changed(place),
            }
        }
        done
    }

    /// Whether this module's timers, rather than the data plane, detect the table's idle entries.
    fn has_timers(&self, table: &TableSchema, target: TableId) -> bool {
        table.idle_timeout && !self.state().reports_idle(target)
    }

    pub(crate) fn is_const_entry(&self, table: TableId, key: &EntryKey) -> bool {
        self.schema.const_entries.get(&table).is_some_and(|keys| keys.contains(key))
    }

    /// Inserts an entry that calls an action. `sent` is the entry as sent if it has more parts than `new`.
    pub(crate) fn insert_new(&mut self, sent: Option<&entity::TableEntry>, new: NewEntry) -> Result<()> {
        let NewEntry { table_id, target, entry, .. } = new;
        let table = self.schema.table_by_id(table_id)?;
        self.state().insert(target, &entry).map_err(|error| match error {
            StateError::Exists => exists(&table.label),
            other => Error::from_state(other, &table.label),
        })?;
        let timed = self.has_timers(table, target);
        let had_extras = self.extras.get(&target).is_some_and(|extras| !extras.is_empty());
        let key = (entry.key, entry.priority);
        if let Some(sent) = sent {
            self.keep_extras(target, &key, sent, None);
            self.write_resources(sent, target, &key, UpdateKind::Insert)?;
        } else if had_extras {
            self.extras.get_mut(&target).and_then(|extras| extras.remove(&key));
        }
        if timed {
            self.timers.added((table_id, key), entry.idle_timeout_ns);
        }
        Ok(())
    }

    /// Inserts an entry of any kind.
    fn insert_entry(&mut self, entry: &entity::TableEntry, key: EntryKey, target: TableId) -> Result<()> {
        let table = self.schema.table_by_id(entry.table_id)?;
        let name = Arc::clone(&table.label);
        let Some(action) = &entry.action else {
            return Err(Error::invalid(format!("{name}: the entry's action is missing")));
        };
        check_resources(table, entry, &name)?;
        if let Some(Err(clause)) = table.restriction.as_ref().map(|r| r.check(Values::Entry(&key.0, key.1))) {
            return Err(Error::invalid(format!("{name}: the entry violates its restriction `{clause}`")));
        }
        // An existing entry must be found before a one-shot group is created.
        if self.state().entry(target, &key.0, key.1).is_ok() {
            return Err(exists(&name));
        }
        let (action, one_shot) = self.entry_action(entry.table_id, action, false, None)?;
        let new = TableEntry {
            key: key.0.clone(),
            priority: key.1,
            action,
            idle_timeout_ns: u64::try_from(entry.idle_timeout_ns).unwrap_or(0),
        };
        if let Err(error) = self.state().insert(target, &new) {
            self.release_one_shot(entry.table_id, one_shot.as_ref());
            return Err(Error::from_state(error, &name));
        }
        self.keep_extras(target, &key, entry, one_shot);
        self.write_resources(entry, target, &key, UpdateKind::Insert)
    }

    fn modify_entry(
        &mut self,
        entry: &entity::TableEntry,
        key: EntryKey,
        target: TableId,
        immutable: bool,
    ) -> Result<()> {
        let table = self.schema.table_by_id(entry.table_id)?;
        let name = Arc::clone(&table.label);
        check_resources(table, entry, &name)?;
        let old = self.state().entry(target, &key.0, key.1).map_err(|e| Error::from_state(e, &entry_of(&name)))?;
        if let (Some(action), false) = (&entry.action, immutable) {
            let earlier = self.extras(target, &key).and_then(|extras| Some(extras.one_shot.as_ref()?.0));
            let (action, one_shot) = self.entry_action(entry.table_id, action, false, earlier)?;
            let idle_timeout_ns = u64::try_from(entry.idle_timeout_ns).unwrap_or(0);
            let new = TableEntry { key: key.0.clone(), priority: key.1, action, idle_timeout_ns };
            if let Err(error) = self.state().modify(target, &new) {
                self.release_one_shot(entry.table_id, one_shot.as_ref());
                return Err(Error::from_state(error, &entry_of(&name)));
            }
            let earlier = self.keep_extras(target, &key, entry, one_shot);
            self.release_one_shot(entry.table_id, earlier.and_then(|e| e.one_shot).as_ref());
        } else if !immutable {
            let idle_timeout_ns = u64::try_from(entry.idle_timeout_ns).unwrap_or(0);
            let new = TableEntry { idle_timeout_ns, ..old.entry };
            self.state().modify(target, &new).map_err(|e| Error::from_state(e, &entry_of(&name)))?;
            let one_shot = self.extras(target, &key).and_then(|e| e.one_shot.clone());
            self.keep_extras(target, &key, entry, one_shot);
        }
        self.write_resources(entry, target, &key, UpdateKind::Modify)
    }

    fn delete_entry(&mut self, name: &str, key: EntryKey, target: TableId) -> Result<()> {
        self.state().delete(target, &key.0, key.1).map_err(|e| Error::from_state(e, &entry_of(name)))?;
        let extras = self.extras.get_mut(&target).filter(|extras| !extras.is_empty());
        let earlier = extras.and_then(|extras| extras.remove(&key));
        if let Some(one_shot) = earlier.and_then(|earlier| earlier.one_shot) {
            let table = self.schema.tables.iter().find(|(_, t)| t.target == Some(target)).map(|(id, _)| *id);
            table.into_iter().for_each(|table| self.release_one_shot(table, Some(&one_shot)));
        }
        Ok(())
    }

    pub(crate) fn extras(&self, table: TableId, key: &EntryKey) -> Option<&EntryExtras> {
        self.extras.get(&table)?.get(key)
    }

    /// Stores the extras of an entry if they are not the default. Returns those stored before.
    fn keep_extras(
        &mut self,
        table: TableId,
        key: &EntryKey,
        entry: &entity::TableEntry,
        one_shot: Option<(u32, entity::ActionSet)>,
    ) -> Option<EntryExtras> {
        if one_shot.is_none() && entry.metadata.is_empty() && entry.controller_metadata == 0 {
            return self.extras.get_mut(&table).filter(|extras| !extras.is_empty())?.remove(key);
        }
        let extras =
            EntryExtras { metadata: entry.metadata.clone(), controller_metadata: entry.controller_metadata, one_shot };
        self.extras.entry(table).or_default().insert(key.clone(), extras)
    }

    /// Writes the direct meter and counter of an entry that was just written.
    fn write_resources(
        &self,
        entry: &entity::TableEntry,
        target: TableId,
        key: &EntryKey,
        kind: UpdateKind,
    ) -> Result<()> {
        let table = self.schema.table_by_id(entry.table_id)?;
        let name = Arc::clone(&table.label);
        debug_assert_eq!(table.target, Some(target));
        // A new entry's counter is already zero.
        let counts = entry.counter_data.filter(|data| kind == UpdateKind::Modify || *data != CounterData::default());
        if let (Some((_, counter)), Some(data)) = (table.direct_counter, counts) {
            let value = crate::arrays::counter_value(data, &name)?;
            let set = self.state().direct_counter_set(counter, &key.0, key.1, value);
            set.map_err(|e| Error::from_state(e, &format!("the direct counter of {name}")))?;
        }
        if let Some((_, meter)) = table.direct_meter {
            let config = |config| crate::arrays::meter_config(config, table.meter_type, &name);
            let config = entry.meter_config.map(config).transpose()?;
            // A new entry's meter has no configuration; a modified one is reset if no configuration is given.
            if config.is_some() || kind == UpdateKind::Modify {
                let set = self.state().direct_meter_set(meter, &key.0, key.1, config);
                set.map_err(|e| Error::from_state(e, &format!("the direct meter of {name}")))?;
            }
            // The per-colour counts of a new entry are already zero.
            if entry.meter_counter_data.is_some() && kind == UpdateKind::Modify {
                let reset = self.state().direct_meter_counts_reset(meter, &key.0, key.1);
                reset.map_err(|e| Error::from_state(e, &format!("the direct meter of {name}")))?;
            }
        }
        Ok(())
    }

    fn write_default_entry(&mut self, kind: UpdateKind, entry: &entity::TableEntry) -> Result<()> {
        let table = self.schema.table_by_id(entry.table_id)?;
        let name = format!("the default entry of table `{}`", table.name);
        if kind != UpdateKind::Modify {
            return Err(Error::invalid(format!("{name} is always there; it can only be modified")));
        }
        crate::arrays::check_default(entry, &table.name)?;
        if entry.idle_timeout_ns != 0 || entry.time_since_last_hit.is_some() {
            return Err(Error::invalid(format!("{name} has no idle timeout")));
        }
        if table.const_default {
            return Err(Error::denied(format!("{name} is constant")));
        }
        if table.profile.is_some() && entry.action.is_some() {
            return Err(Error::denied(format!("{name} cannot be changed: the table has an action profile")));
        }
        check_resources(table, entry, &name)?;
        let target = present(table.target, ObjectKind::Table, &table.name)?;
        let action = match &entry.action {
            Some(action) => Some(self.entry_action(entry.table_id, action, true, None)?.0),
            None => None,
        };
        self.state().set_default(target, action.as_ref()).map_err(|e| Error::from_state(e, &name))?;
        let extras = EntryExtras {
            metadata: entry.metadata.clone(),
            controller_metadata: entry.controller_metadata,
            one_shot: None,
        };
        match entry.action {
            Some(_) => self.default_extras.insert(target, extras),
            None => self.default_extras.remove(&target),
        };
        self.write_resources(entry, target, &crate::arrays::DEFAULT, UpdateKind::Modify)
    }

    /// The data plane's action for an entry's action. A one-shot group is created in place of the `earlier` one, and
    /// returned with the action set as sent.
    fn entry_action(
        &mut self,
        table_id: u32,
        action: &TableAction,
        default: bool,
        earlier: Option<u32>,
    ) -> Result<(EntryAction, Option<(u32, entity::ActionSet)>)> {
        let table = self.schema.table_by_id(table_id)?;
        let name = Arc::clone(&table.label);
        match (table.profile, action) {
            (None, TableAction::Action(action)) => {
                Ok((EntryAction::Call(self.schema.action_call(&name, &table.actions, action, default)?), None))
            }
            (None, _) => Err(Error::invalid(format!("{name} has no action profile; its entries give an action"))),
            (Some(_), TableAction::Action(_)) => Err(Error::invalid(format!(
                "{name} has an action profile; its entries give a member, a group or an action set"
            ))),
            (Some(profile), reference) => self.profile_action(table_id, profile, reference, earlier),
        }
    }

    /// An action call as a controller sees it; `None` if the list does not have the action.
    pub(crate) fn encode_action(&self, list: &[ListedAction], call: &ActionCall) -> Option<entity::Action> {
        let listed = list.iter().find(|a| a.position == call.action)?;
        let schema = self.schema.actions.get(&listed.id)?;
        let params = schema.params.iter().zip(&call.args).map(|(p, value)| (p.id, p.value.encode(value))).collect();
        Some(entity::Action { action_id: listed.id, params })
    }

    pub(crate) fn read_table_entries(&self, query: &entity::TableEntry, into: &mut Vec<Entity>) -> Result<()> {
        for (query, target) in self.tables_to_read(query)? {
            self.read_one_table(&query, target, into)?;
        }
        Ok(())
    }

    /// The tables that a query selects (the one it names, or all for id 0), each with the query for that table alone.
    pub(crate) fn tables_to_read(&self, query: &entity::TableEntry) -> Result<Vec<(entity::TableEntry, TableId)>> {
        if query.table_id != 0 {
            return Ok(vec![(query.clone(), self.table_to_read(query)?)]);
        }
        let tables = self.schema.tables.iter().filter(|(_, table)| table.target.is_some());
        let one = |(id, table): (&u32, &TableSchema)| {
            let time_since_last_hit = query.time_since_last_hit.filter(|_| table.idle_timeout);
            let query = entity::TableEntry { table_id: *id, time_since_last_hit, ..query.clone() };
            let target = self.table_to_read(&query)?;
            Ok((query, target))
        };
        tables.map(one).collect()
    }

    fn table_to_read(&self, query: &entity::TableEntry) -> Result<TableId> {
        let table = self.schema.table_by_id(query.table_id)?;
        let name = Arc::clone(&table.label);
        if query.time_since_last_hit.is_some() && !table.idle_timeout {
            return Err(Error::invalid(format!("{name} does not support idle timeouts")));
        }
        present(table.target, ObjectKind::Table, &table.name)
    }

    fn read_one_table(&self, query: &entity::TableEntry, target: TableId, into: &mut Vec<Entity>) -> Result<()> {
        let table = self.schema.table_by_id(query.table_id)?;
        if query.is_default_action {
            if query.time_since_last_hit.is_some() || query.idle_timeout_ns != 0 {
                let message = format!("the default entry of table `{}` has no idle timeout", table.name);
                return Err(Error::invalid(message));
            }
            into.extend(self.default_entry(query, target).map(Entity::Table));
            return Ok(());
        }
        if !query.matches.is_empty() {
            let (key, _) = self.schema.entry_key(query)?;
            // A read that selects nothing returns nothing; only direct resources answer NOT_FOUND.
            if let Ok(found) = self.state().entry(target, &key.0, key.1) {
                into.extend(self.selected(query, target, table, &found).map(Entity::Table));
            }
            return Ok(());
        }
        for found in self.state().entries(target) {
            into.extend(self.selected(query, target, table, &found).map(Entity::Table));
        }
        Ok(())
    }

    /// The entry that `entry` identifies, in the form of an update that would restore it.
    pub(crate) fn table_entry_to_write(&self, entry: &entity::TableEntry) -> Option<entity::TableEntry> {
        let table = self.schema.tables.get(&entry.table_id)?;
        let target = table.target?;
        let query = entity::TableEntry {
            table_id: entry.table_id,
            counter_data: Some(Default::default()),
            meter_config: Some(Default::default()),
            ..Default::default()
        };
        if entry.is_default_action {
            let now = self.default_entry(&query, target)?;
            // The default entry of a table with a profile cannot be written, so it has not been changed.
            let action = now.action.filter(|_| table.profile.is_none());
            return Some(entity::TableEntry { action, is_const: false, ..now });
        }
        let (key, _) = self.schema.entry_key(entry).ok()?;
        let found = self.state().entry(target, &key.0, key.1).ok()?;
        let now = self.selected(&query, target, table, &found)?;
        Some(to_write(now))
    }

    /// An entry that was read, with its extras, in the form of an update that would restore it; without direct
    /// resources.
    pub(crate) fn entry_as_sent(
        &self,
        table_id: u32,
        target: TableId,
        found: &abi::state::ReadEntry,
        extras: Option<&EntryExtras>,
    ) -> Option<entity::TableEntry> {
        let query = entity::TableEntry { table_id, ..Default::default() };
        self.selected_with(&query, target, self.schema.tables.get(&table_id)?, found, extras).map(to_write)
    }

    /// The entry as a controller sees it; `None` if it does not match the query's filters.
    pub(crate) fn selected(
        &self,
        query: &entity::TableEntry,
        target: TableId,
        table: &TableSchema,
        found: &abi::state::ReadEntry,
    ) -> Option<entity::TableEntry> {
        // Few tables have extras, and the lookup needs a copy of the key.
        let of_table = self.extras.get(&target).filter(|extras| !extras.is_empty());
        let extras = of_table.and_then(|extras| extras.get(&(found.entry.key.clone(), found.entry.priority)));
        self.selected_with(query, target, table, found, extras)
    }

    fn selected_with(
        &self,
        query: &entity::TableEntry,
        target: TableId,
        table: &TableSchema,
        found: &abi::state::ReadEntry,
        extras: Option<&EntryExtras>,
    ) -> Option<entity::TableEntry> {
        let key = (found.entry.key.clone(), found.entry.priority);
        let entry = entity::TableEntry {
            table_id: query.table_id,
            matches: matches::encode(&table.fields, &key.0),
            action: self.encode_entry_action(table, &found.entry.action, extras),
            priority: key.1,
            controller_metadata: extras.map_or(0, |e| e.controller_metadata),
            metadata: extras.map_or(vec![], |e| e.metadata.clone()),
            meter_config: self.read_direct_meter_config(query, table, &key),
            counter_data: self.read_direct_counter_data(query, table, &key),
            meter_counter_data: self.read_direct_meter_counts(query, table, &key),
            is_default_action: false,
            idle_timeout_ns: i64::try_from(found.entry.idle_timeout_ns).unwrap_or(i64::MAX),
            time_since_last_hit: query
                .time_since_last_hit
                .map(|_| i64::try_from(found.idle_ns.unwrap_or(0)).unwrap_or(i64::MAX)),
            is_const: self.is_const_entry(target, &key),
        };
        let action_id = |action: &Option<TableAction>| match action {
            Some(TableAction::Action(action)) => Some(action.action_id),
            _ => None,
        };
        let passes = (query.priority == 0 || query.priority == entry.priority)
            && (query.controller_metadata == 0 || query.controller_metadata == entry.controller_metadata)
            && (query.metadata.is_empty() || query.metadata == entry.metadata)
            && (query.action.is_none() || action_id(&query.action) == action_id(&entry.action));
        passes.then_some(entry)
    }

    fn encode_entry_action(
        &self,
        table: &TableSchema,
        action: &EntryAction,
        extras: Option<&EntryExtras>,
    ) -> Option<TableAction> {
        if let Some((_, one_shot)) = extras.and_then(|e| e.one_shot.as_ref()) {
            return Some(TableAction::OneShot(one_shot.clone()));
        }
        match action {
            EntryAction::Call(call) => self.encode_action(&table.actions, call).map(TableAction::Action),
            EntryAction::Member(member) => Some(TableAction::Member(*member)),
            EntryAction::Group(group) => Some(TableAction::Group(*group)),
        }
    }

    fn read_direct_counter_data(
        &self,
        query: &entity::TableEntry,
        table: &TableSchema,
        key: &EntryKey,
    ) -> Option<entity::CounterData> {
        query.counter_data?;
        let (_, counter) = table.direct_counter?;
        self.state().direct_counter(counter, &key.0, key.1).ok().map(crate::arrays::counter_data)
    }

    fn read_direct_meter_config(
        &self,
        query: &entity::TableEntry,
        table: &TableSchema,
        key: &EntryKey,
    ) -> Option<entity::MeterConfig> {
        query.meter_config?;
        let (_, meter) = table.direct_meter?;
        self.state().direct_meter(meter, &key.0, key.1).ok().flatten().map(crate::arrays::meter_config_data)
    }

    fn read_direct_meter_counts(
        &self,
        query: &entity::TableEntry,
        table: &TableSchema,
        key: &EntryKey,
    ) -> Option<entity::MeterCounterData> {
        query.meter_counter_data?;
        let (_, meter) = table.direct_meter?;
        self.state().direct_meter_counts(meter, &key.0, key.1).ok().map(crate::arrays::meter_counter_data)
    }

    fn default_entry(&self, query: &entity::TableEntry, target: TableId) -> Option<entity::TableEntry> {
        let table = self.schema.tables.get(&query.table_id)?;
        let extras = self.default_extras.get(&target).cloned().unwrap_or_default();
        Some(entity::TableEntry {
            table_id: query.table_id,
            action: self.encode_entry_action(table, &self.state().default_action(target), None),
            metadata: extras.metadata,
            controller_metadata: extras.controller_metadata,
            meter_config: self.read_direct_meter_config(query, table, &crate::arrays::DEFAULT),
            counter_data: self.read_direct_counter_data(query, table, &crate::arrays::DEFAULT),
            meter_counter_data: self.read_direct_meter_counts(query, table, &crate::arrays::DEFAULT),
            is_default_action: true,
            is_const: table.const_default,
            ..Default::default()
        })
    }
}

/// The entry as an update: a constant entry has no action, because only its direct resources can have been changed.
fn to_write(now: entity::TableEntry) -> entity::TableEntry {
    let action = now.action.filter(|_| !now.is_const);
    entity::TableEntry { action, is_const: false, ..now }
}

fn entry_of(table: &str) -> String {
    format!("the entry of {table}")
}

fn exists(table: &str) -> Error {
    Error::already_exists(format!("{table}: the entry exists already"))
}

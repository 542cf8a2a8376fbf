//! Checks of a table entry against the program alone: its key, its action and its direct resources.
//!
//! Nothing here reads the state of a switch, so any thread may do it (`restore` does).
//!
//! Source: P4Runtime specification, "TableEntry". Tests: `tests/p4runtime`.

use crate::entity::{self, TableAction};
use crate::error::{Error, Result, choices};
use crate::forwarding::EntryKey;
use crate::matches;
use crate::schema::{ActionSchema, ListedAction, Schema, TableSchema, present};
use base::Bits;
use base::entry::{ActionCall, EntryAction, TableEntry};
use base::ids::TableId;
use constraints::Values;
use p4info::{ActionScope, ObjectKind};
use std::sync::Arc;

/// An entry to be inserted that calls an action, in the form that the state takes.
pub(crate) struct NewEntry {
    pub(crate) table_id: u32,
    pub(crate) target: TableId,
    pub(crate) entry: TableEntry,
    /// Whether the entry as sent has more to write: metadata, or direct resources that are not the default.
    pub(crate) has_more: bool,
}

impl Schema {
    /// The insertion of an entry that calls an action. `None` if the entry is of another kind or wrong; the ordinary
    /// write then handles it and reports the error.
    pub(crate) fn new_entry(&self, entry: &entity::TableEntry) -> Option<NewEntry> {
        let table = self.tables.get(&entry.table_id)?;
        let Some(TableAction::Action(action)) = &entry.action else { return None };
        let is_other = entry.is_const || entry.is_default_action || table.is_const;
        if is_other || table.profile.is_some() || table.fields.is_empty() {
            return None;
        }
        let ((key, priority), target) = self.entry_key(entry).ok()?;
        check_resources(table, entry, &table.label).ok()?;
        if table.restriction.as_ref().is_some_and(|r| r.check(Values::Entry(&key, priority)).is_err()) {
            return None;
        }
        let call = self.action_call(&table.label, &table.actions, action, false).ok()?;
        let idle_timeout_ns = u64::try_from(entry.idle_timeout_ns).unwrap_or(0);
        // A new entry's counter is zero, and its meter has no configuration.
        let counts = entry.counter_data.is_some_and(|data| data != entity::CounterData::default());
        let has_metadata = !entry.metadata.is_empty() || entry.controller_metadata != 0;
        Some(NewEntry {
            table_id: entry.table_id,
            target,
            entry: TableEntry { key, priority, action: EntryAction::Call(call), idle_timeout_ns },
            has_more: has_metadata || counts || entry.meter_config.is_some(),
        })
    }

    /// The key and priority of an entry, and its table.
    pub(crate) fn entry_key(&self, entry: &entity::TableEntry) -> Result<(EntryKey, TableId)> {
        let table = self.table_by_id(entry.table_id)?;
        let name = Arc::clone(&table.label);
        let target = present(table.target, ObjectKind::Table, &table.name)?;
        let key = matches::decode(&name, &table.fields, &entry.matches)?;
        match (table.needs_priority, entry.priority) {
            (true, priority) if priority <= 0 => {
                Err(Error::invalid(format!("{name}: entries need a priority above 0, {priority} is given")))
            }
            (false, priority) if priority != 0 => Err(Error::invalid(format!(
                "{name} has no ternary, range or optional field; its entries have no priority, {priority} is given"
            ))),
            (_, priority) => Ok(((key, priority), target)),
        }
    }

    /// The call of an action, checked against the list of actions allowed and the action's parameters.
    pub(crate) fn action_call(
        &self,
        owner: &str,
        list: &[ListedAction],
        action: &entity::Action,
        default: bool,
    ) -> Result<ActionCall> {
        let Some(listed) = list.iter().find(|a| a.id == action.action_id) else {
            let names: Vec<String> = list.iter().map(|a| self.action_name(a.id)).collect();
            let names = choices(names.iter().map(String::as_str));
            let given = self.action_name(action.action_id);
            return Err(Error::invalid(format!("{owner} has no action `{given}`; it has {names}")));
        };
        let schema = self.actions.get(&listed.id).ok_or_else(|| Error::internal("a listed action is unknown"))?;
        match (listed.scope, default) {
            (ActionScope::TableOnly, true) => {
                return Err(Error::denied(format!("{owner}: action `{}` is for entries only", schema.name)));
            }
            (ActionScope::DefaultOnly, false) => {
                return Err(Error::denied(format!("{owner}: action `{}` is for the default entry only", schema.name)));
            }
            (ActionScope::GroupAction, _) => {
                let message = format!("{owner}: action `{}` is for action sets, as their group action", schema.name);
                return Err(Error::denied(message));
            }
            _ => {}
        }
        let args = self.action_arguments(owner, schema, action)?;
        Ok(ActionCall { action: listed.position, args })
    }

    /// The arguments of an action, checked against its parameters.
    pub(crate) fn action_arguments(
        &self,
        owner: &str,
        schema: &ActionSchema,
        action: &entity::Action,
    ) -> Result<Vec<Bits>> {
        for (i, (id, _)) in action.params.iter().enumerate() {
            if !schema.params.iter().any(|p| p.id == *id) {
                let names = choices(schema.params.iter().map(|p| p.name.as_str()));
                let message = format!("{owner}: action `{}` has no parameter {id}; it has {names}", schema.name);
                return Err(Error::invalid(message));
            }
            if action.params[..i].iter().any(|(earlier, _)| earlier == id) {
                return Err(Error::invalid(format!("{owner}: parameter {id} of `{}` is given twice", schema.name)));
            }
        }
        let argument = |param: &crate::schema::ParamSchema| -> Result<Bits> {
            let what = format_args!("{owner}, parameter `{}` of action `{}`", param.name, schema.name);
            let given = action.params.iter().find(|(id, _)| *id == param.id);
            let (_, value) = given.ok_or_else(|| Error::invalid(format!("{what} is missing")))?;
            param.value.decode(value, what)
        };
        let args: Vec<Bits> = schema.params.iter().map(argument).collect::<Result<_>>()?;
        if let Some(Err(clause)) = schema.restriction.as_ref().map(|r| r.check(Values::Call(&args))) {
            let message = format!("{owner}: action `{}` is called against its restriction `{clause}`", schema.name);
            return Err(Error::invalid(message));
        }
        Ok(args)
    }
}

/// Refuses direct resources and timeouts that the table does not have. To be called before anything is written.
pub(crate) fn check_resources(table: &TableSchema, entry: &entity::TableEntry, name: &str) -> Result<()> {
    if entry.idle_timeout_ns < 0 {
        return Err(Error::invalid(format!("{name}: the idle timeout is negative")));
    }
    if !table.idle_timeout && (entry.idle_timeout_ns != 0 || entry.time_since_last_hit.is_some()) {
        return Err(Error::invalid(format!(
            "{name} does not support idle timeouts (`support_timeout`, `psa_idle_timeout` or `pna_idle_timeout` in the program)"
        )));
    }
    if entry.time_since_last_hit.is_some() {
        return Err(Error::invalid(format!("{name}: `time_since_last_hit` is read only")));
    }
    if entry.counter_data.is_some() && table.direct_counter.is_none() {
        return Err(Error::invalid(format!("{name} has no direct counter")));
    }
    if let Some(data) = entry.counter_data {
        crate::arrays::counter_value(data, name)?;
    }
    if entry.meter_config.is_some() && table.direct_meter.is_none() {
        return Err(Error::invalid(format!("{name} has no direct meter")));
    }
    if let Some(config) = entry.meter_config {
        crate::arrays::meter_config(config, table.meter_type, name)?;
    }
    if entry.meter_counter_data.is_some() && table.direct_meter.is_none() {
        return Err(Error::invalid(format!("{name} has no direct meter")));
    }
    crate::arrays::resets_colours(entry.meter_counter_data, name)?;
    Ok(())
}

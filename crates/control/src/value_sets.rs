//! Parser value sets (P4Runtime specification, "ValueSetEntry"). In the data plane a value set is a table whose only
//! result is hit or miss, and a member is an entry of it. A write replaces all members, including those that other
//! tables hold under masks (`ir::masked_sets`).

use crate::entity::{self, Entity, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::Forwarding;
use crate::matches;
use crate::schema::present;
use abi::state::Phase;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::TableId;
use ir::masked_sets::masked_key;
use p4info::ObjectKind;

impl Forwarding {
    pub(crate) fn write_value_set(&mut self, kind: UpdateKind, entry: &entity::ValueSetEntry) -> Result<()> {
        let set = self.schema.value_set_by_id(entry.value_set_id)?;
        let name = format!("value set `{}`", set.name);
        if kind != UpdateKind::Modify {
            return Err(Error::invalid(format!("{name} can only be modified, not inserted or deleted")));
        }
        let target = present(set.target, ObjectKind::ValueSet, &set.name)?;
        if entry.members.len() as u64 > set.size {
            let message = format!("{name}: {} members, the limit is {}", entry.members.len(), set.size);
            return Err(Error::exhausted(message));
        }
        let mut keys: Vec<Vec<KeyMatch>> = Vec::new();
        for member in &entry.members {
            let key = matches::decode(&name, &set.fields, member)?;
            if keys.contains(&key) {
                return Err(Error::already_exists(format!("{name}: a member is given twice")));
            }
            keys.push(key);
        }
        // Members have no order, but their tables need a priority for some match kinds.
        let priority = i32::from(set.fields.iter().any(|f| f.kind.is_some_and(MatchKind::needs_priority)));
        let state = self.state();
        let mut tables = vec![(target, keys)];
        for (table, masks) in self.schema.program.masked_tables(target) {
            let mut masked: Vec<Vec<KeyMatch>> = Vec::new();
            for key in tables[0].1.iter().map(|key| masked_key(key, &masks)) {
                if !masked.contains(&key) {
                    masked.push(key);
                }
            }
            tables.push((table, masked));
        }
        let action = EntryAction::Call(ActionCall { action: 0, args: vec![] });
        let member = |key| TableEntry { key, priority, action: action.clone(), idle_timeout_ns: 0 };
        let mut changes: Vec<(TableId, UpdateKind, TableEntry)> = Vec::new();
        for (table, keys) in tables {
            let old: Vec<TableEntry> = state.entries(table).into_iter().map(|e| e.entry).collect();
            let new: Vec<Vec<KeyMatch>> =
                keys.iter().filter(|key| !old.iter().any(|e| e.key == **key)).cloned().collect();
            let gone = old.into_iter().filter(|e| !keys.contains(&e.key));
            changes.extend(gone.map(|entry| (table, UpdateKind::Delete, entry)));
            changes.extend(new.into_iter().map(|key| (table, UpdateKind::Insert, member(key))));
        }
        let change = |(table, kind, entry): &(TableId, UpdateKind, TableEntry), undo: bool| match (*kind
            == UpdateKind::Insert)
            != undo
        {
            true => state.insert(*table, entry),
            false => state.delete(*table, &entry.key, entry.priority),
        };
        // All changes are applied, or none.
        let _batch = self.begin_phase(Phase::Atomic);
        for (at, next) in changes.iter().enumerate() {
            let Err(error) = change(next, false) else { continue };
            let _taken_back = self.begin_phase(Phase::Undo);
            for done in changes[..at].iter().rev() {
                change(done, true).map_err(|e| {
                    let error = Error::from_state(e, &name);
                    Error::internal(format!("the members could not be put back: {error}"))
                })?;
            }
            return Err(Error::from_state(error, &name));
        }
        Ok(())
    }

    pub(crate) fn read_value_sets(&self, query: &entity::ValueSetEntry, into: &mut Vec<Entity>) -> Result<()> {
        if query.value_set_id != 0 {
            self.schema.value_set_by_id(query.value_set_id)?;
        }
        for (value_set_id, set) in &self.schema.value_sets {
            let selected = query.value_set_id == 0 || query.value_set_id == *value_set_id;
            let (true, Some(target)) = (selected, set.target) else { continue };
            let entries = self.state().entries(target);
            let members = entries.iter().map(|e| matches::encode(&set.fields, &e.entry.key)).collect();
            into.push(Entity::ValueSet(entity::ValueSetEntry { value_set_id: *value_set_id, members }));
        }
        Ok(())
    }
}

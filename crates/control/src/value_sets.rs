//! Parser value sets (P4Runtime specification, "ValueSetEntry"): in the data plane a value set is a table whose only
//! result is whether it was hit, so a member is an entry. A write replaces all members.

use crate::entity::{self, Entity, UpdateKind};
use crate::error::{Error, Result};
use crate::matches;
use crate::pipeline::Forwarding;
use crate::schema::present;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
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
        // Members have no order; the tables that hold them want a priority where the kinds need one.
        let priority = i32::from(set.fields.iter().any(|f| f.kind.is_some_and(MatchKind::needs_priority)));
        let state = self.state();
        let old: Vec<TableEntry> = state.entries(target).into_iter().map(|e| e.entry).collect();
        for gone in old.iter().filter(|e| !keys.contains(&e.key)) {
            state.delete(target, &gone.key, gone.priority).map_err(|e| Error::from_state(e, &name))?;
        }
        for key in keys.into_iter().filter(|key| !old.iter().any(|e| e.key == *key)) {
            let action = EntryAction::Call(ActionCall { action: 0, args: vec![] });
            let member = TableEntry { key, priority, action, idle_timeout_ns: 0 };
            state.insert(target, &member).map_err(|e| Error::from_state(e, &name))?;
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

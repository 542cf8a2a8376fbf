//! RECONCILE_AND_COMMIT: a new program takes over what was written into the old one.
//!
//! Objects meet by fully qualified name. Everything is read from the old config as a controller would read it, ids are
//! translated, and it is written into the new one as a controller would write it: so the rules that protect the new
//! program are the ones that protect it always, and whatever does not fit is named. Counts that change between the copy and
//! the switch-over are lost; packets are not.

use crate::entity::{
    Action, ActionSet, CounterEntry, DigestEntry, Entity, FieldMatch, Group, Member, MeterEntry, MulticastGroup,
    RegisterEntry, TableAction, TableEntry, Update, UpdateKind, ValueSetEntry,
};
use crate::error::{Error, Result};
use crate::pipeline::Forwarding;
use crate::schema::Schema;
use p4info::{ObjectKind, P4Info};
use std::sync::Arc;

/// Copies all entities; `Err` names the first that does not fit.
pub(crate) fn carry_over(old: &Forwarding, new: &mut Forwarding) -> Result<()> {
    let translate = Translate { old: &old.schema, new: Arc::clone(&new.schema.info) };
    // Members before groups before entries: each may only refer to what is there.
    for entity in old_entities(old)? {
        let updates = translate.updates(&entity).map_err(|e| refuse(&e))?;
        for mut update in updates {
            // An entry that the new program brings itself gets the old one's action.
            if let (UpdateKind::Insert, Some(Entity::Table(entry))) = (update.kind, &update.entity) {
                update.kind = if new.has_entry(entry) { UpdateKind::Modify } else { UpdateKind::Insert };
            }
            new.write(&update).map_err(|e| refuse(&e))?;
        }
    }
    Ok(())
}

fn refuse(error: &Error) -> Error {
    Error::invalid(format!("the existing state cannot be kept: {error}"))
}

fn old_entities(old: &Forwarding) -> Result<Vec<Entity>> {
    let table_query = TableEntry {
        counter_data: Some(Default::default()),
        meter_config: Some(Default::default()),
        ..Default::default()
    };
    let mut all = Vec::new();
    for query in [
        Entity::Member(Member::default()),
        Entity::Group(Group::default()),
        Entity::Table(table_query.clone()),
        Entity::Table(TableEntry { is_default_action: true, ..Default::default() }),
        Entity::Counter(CounterEntry::default()),
        Entity::Meter(MeterEntry::default()),
        Entity::Register(RegisterEntry::default()),
        Entity::ValueSet(ValueSetEntry::default()),
        Entity::MulticastGroup(MulticastGroup::default()),
        Entity::CloneSession(Default::default()),
        Entity::Digest(DigestEntry::default()),
    ] {
        old.read(&query, &mut all)?;
    }
    // What the program itself defines comes with the new program.
    all.retain(|entity| match entity {
        Entity::Table(entry) if entry.is_const => false,
        Entity::Table(entry) if entry.is_default_action => !old.default_is_initial(entry.table_id),
        Entity::Counter(entry) => entry.data.is_some_and(|data| data != Default::default()),
        Entity::Meter(entry) => entry.config.is_some(),
        Entity::ValueSet(entry) => !entry.members.is_empty(),
        _ => true,
    });
    Ok(all)
}

/// From ids of one program to those of another with the same names.
struct Translate<'a> {
    old: &'a Schema,
    new: Arc<P4Info>,
}

impl Translate<'_> {
    fn object(&self, kind: ObjectKind, name: &str) -> Result<u32> {
        let info = &self.new;
        let preambles: Vec<&p4info::Preamble> = match kind {
            ObjectKind::Action => info.actions.iter().map(|o| &o.preamble).collect(),
            ObjectKind::Table => info.tables.iter().map(|o| &o.preamble).collect(),
            ObjectKind::ValueSet => info.value_sets.iter().map(|o| &o.preamble).collect(),
            ObjectKind::ControllerHeader => info.controller_packet_metadata.iter().map(|o| &o.preamble).collect(),
            ObjectKind::ActionProfile => info.action_profiles.iter().map(|o| &o.preamble).collect(),
            ObjectKind::Counter => info.counters.iter().map(|o| &o.preamble).collect(),
            ObjectKind::DirectCounter => info.direct_counters.iter().map(|o| &o.preamble).collect(),
            ObjectKind::Meter => info.meters.iter().map(|o| &o.preamble).collect(),
            ObjectKind::DirectMeter => info.direct_meters.iter().map(|o| &o.preamble).collect(),
            ObjectKind::Register => info.registers.iter().map(|o| &o.preamble).collect(),
            ObjectKind::Digest => info.digests.iter().map(|o| &o.preamble).collect(),
        };
        let missing = || Error::invalid(format!("the new program has no {} `{name}`", kind.noun()));
        preambles.into_iter().find(|p| p.name == name).map(|p| p.id).ok_or_else(missing)
    }

    fn updates(&self, entity: &Entity) -> Result<Vec<Update>> {
        let update = |kind, entity| Ok(vec![Update { kind, entity: Some(entity) }]);
        match entity {
            Entity::Table(entry) => {
                let kind = if entry.is_default_action { UpdateKind::Modify } else { UpdateKind::Insert };
                update(kind, Entity::Table(self.table_entry(entry)?))
            }
            Entity::Member(member) => {
                let action_profile_id = self.profile(member.action_profile_id)?;
                let action = member.action.as_ref().map(|action| self.action(action)).transpose()?;
                update(UpdateKind::Insert, Entity::Member(Member { action_profile_id, action, ..member.clone() }))
            }
            Entity::Group(group) => {
                let action_profile_id = self.profile(group.action_profile_id)?;
                update(UpdateKind::Insert, Entity::Group(Group { action_profile_id, ..group.clone() }))
            }
            Entity::Counter(entry) => {
                let counter_id = self.array(entry.counter_id, ObjectKind::Counter)?;
                update(UpdateKind::Modify, Entity::Counter(CounterEntry { counter_id, ..entry.clone() }))
            }
            Entity::Meter(entry) => {
                let meter_id = self.array(entry.meter_id, ObjectKind::Meter)?;
                update(UpdateKind::Modify, Entity::Meter(MeterEntry { meter_id, ..entry.clone() }))
            }
            Entity::Register(entry) => {
                let register_id = self.array(entry.register_id, ObjectKind::Register)?;
                update(UpdateKind::Modify, Entity::Register(RegisterEntry { register_id, ..entry.clone() }))
            }
            Entity::ValueSet(entry) => {
                let name = &self.old.value_set_by_id(entry.value_set_id)?.name;
                let value_set_id = self.object(ObjectKind::ValueSet, name)?;
                update(UpdateKind::Modify, Entity::ValueSet(ValueSetEntry { value_set_id, ..entry.clone() }))
            }
            Entity::Digest(entry) => {
                let name = &self.old.digest_by_id(entry.digest_id)?.name;
                let digest_id = self.object(ObjectKind::Digest, name)?;
                update(UpdateKind::Insert, Entity::Digest(DigestEntry { digest_id, ..*entry }))
            }
            Entity::MulticastGroup(_) | Entity::CloneSession(_) => update(UpdateKind::Insert, entity.clone()),
            Entity::DirectCounter(_) | Entity::DirectMeter(_) | Entity::Extern { .. } => Ok(vec![]),
        }
    }

    fn profile(&self, id: u32) -> Result<u32> {
        self.object(ObjectKind::ActionProfile, &self.old.profile_by_id(id)?.name)
    }

    fn array(&self, id: u32, kind: ObjectKind) -> Result<u32> {
        self.object(kind, &self.old.array_by_id(id, kind)?.name)
    }

    fn table_entry(&self, entry: &TableEntry) -> Result<TableEntry> {
        let name = &self.old.table_by_id(entry.table_id)?.name;
        let table_id = self.object(ObjectKind::Table, name)?;
        let old = self.old.info.tables.iter().find(|t| t.preamble.id == entry.table_id);
        let new = self.new.tables.iter().find(|t| t.preamble.id == table_id);
        let (Some(old), Some(new)) = (old, new) else {
            return Err(Error::internal(format!("table `{name}` is not in its own P4Info")));
        };
        let matches = entry.matches.iter().map(|given| {
            let field = old.match_fields.iter().find(|f| f.id == given.field_id);
            let same = field.and_then(|field| new.match_fields.iter().find(|f| f.name == field.name));
            let gone = || Error::invalid(format!("a match field of table `{name}` is gone"));
            Ok(FieldMatch { field_id: same.ok_or_else(gone)?.id, value: given.value.clone() })
        });
        let matches = matches.collect::<Result<_>>()?;
        let action = match &entry.action {
            Some(TableAction::Action(action)) => Some(TableAction::Action(self.action(action)?)),
            Some(TableAction::OneShot(set)) => Some(TableAction::OneShot(self.action_set(set)?)),
            other => other.clone(),
        };
        let time_since_last_hit = None;
        Ok(TableEntry { table_id, matches, action, time_since_last_hit, ..entry.clone() })
    }

    fn action_set(&self, set: &ActionSet) -> Result<ActionSet> {
        let mut set = set.clone();
        for part in &mut set.actions {
            part.action = part.action.as_ref().map(|action| self.action(action)).transpose()?;
        }
        Ok(set)
    }

    fn action(&self, action: &Action) -> Result<Action> {
        let name = self.old.action_name(action.action_id);
        let action_id = self.object(ObjectKind::Action, &name)?;
        let old = self.old.info.actions.iter().find(|a| a.preamble.id == action.action_id);
        let new = self.new.actions.iter().find(|a| a.preamble.id == action_id);
        let (Some(old), Some(new)) = (old, new) else {
            return Err(Error::internal(format!("action `{name}` is not in its own P4Info")));
        };
        let params = action.params.iter().map(|(id, value)| {
            let param = old.params.iter().find(|p| p.id == *id);
            let same = param.and_then(|param| new.params.iter().find(|p| p.name == param.name));
            let gone = || Error::invalid(format!("a parameter of action `{name}` is gone"));
            Ok((same.ok_or_else(gone)?.id, value.clone()))
        });
        Ok(Action { action_id, params: params.collect::<Result<_>>()? })
    }
}

impl Forwarding {
    fn has_entry(&self, entry: &TableEntry) -> bool {
        !entry.is_default_action
            && self.entry_key(entry).is_ok_and(|(key, table)| self.state().entry(table, &key.0, key.1).is_ok())
    }

    /// Whether a table's default action is still the program's.
    fn default_is_initial(&self, table_id: u32) -> bool {
        let Some(target) = self.schema.tables.get(&table_id).and_then(|t| t.target) else { return true };
        let initial = &self.schema.program.tables[target.index()].default_action;
        self.state().default_action(target) == base::entry::EntryAction::Call(initial.clone())
    }
}

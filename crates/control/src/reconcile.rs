//! Carries state over from the old program to a new one: RECONCILE_AND_COMMIT, and `sluice load`.
//!
//! [`crate::compare`] decides object by object. State that is kept is shared by the target and not touched here, except
//! for the part that only controllers see (metadata, action sets). All other state is read from the old config as a
//! controller would read it, its ids are translated, and it is written into the new one as a controller would write it.
//! So the usual checks protect the new program, and whatever does not fit is reported. The target adds the counts of
//! copied objects after the switch-over, so none is lost. It also copies registers once more while no packet runs, so
//! no write of a packet is lost.

use crate::compare::{Compared, Comparison, Fate};
use crate::entity::{
    Action, ActionSet, CounterEntry, DigestEntry, DirectCounterEntry, DirectMeterEntry, Entity, FieldMatch, Group,
    Member, MeterEntry, MulticastGroup, RegisterEntry, TableAction, TableEntry, Update, UpdateKind, ValueSetEntry,
};
use crate::error::{Error, Result};
use crate::forwarding::Forwarding;
use crate::journal::default_resources;
use crate::schema::Schema;
use base::ids::ExternId;
use p4info::{ObjectKind, P4Info};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What became of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The object, and how the two programs differ in it.
    pub object: Compared,
    /// Number of its entries, members, groups or cells that were carried over; for kept tables, of their entries.
    pub carried: u64,
    /// Number of those that were lost.
    pub lost: u64,
    /// Why the first of them was lost.
    pub reason: Option<String>,
}

/// What became of all state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// By object, including objects without state.
    pub outcomes: Vec<Outcome>,
    /// Number of multicast groups and clone sessions that were carried over.
    pub replication: u64,
    /// Reasons why others were lost.
    pub replication_lost: Vec<String>,
}

impl Report {
    /// Whether some state was lost.
    pub fn loses(&self) -> bool {
        !self.replication_lost.is_empty() || self.outcomes.iter().any(|o| o.lost > 0)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { kind, name, fate, notes } = &self.object;
        write!(f, "{} {} `{name}`", fate.name(), kind.noun())?;
        if self.carried > 0 || self.lost > 0 {
            write!(f, ": {} carried over", self.carried)?;
        }
        if self.lost > 0 {
            write!(f, ", {} lost", self.lost)?;
        }
        if !notes.is_empty() {
            write!(f, " ({})", notes.join("; "))?;
        }
        match &self.reason {
            Some(reason) => write!(f, "; the first: {reason}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in &self.outcomes {
            writeln!(f, "{outcome}")?;
        }
        for lost in &self.replication_lost {
            writeln!(f, "dropped {lost}")?;
        }
        Ok(())
    }
}

/// Refuses the change if state would be lost; the message names each object.
pub(crate) fn check(report: &Report) -> Result<()> {
    if !report.loses() {
        return Ok(());
    }
    let lines = report.outcomes.iter().filter(|o| o.lost > 0).map(Outcome::to_string);
    let lines: Vec<String> = lines.chain(report.replication_lost.iter().cloned()).collect();
    Err(Error::invalid(format!("the existing state cannot be kept:\n{}", lines.join("\n"))))
}

/// Fills a new config with the old one's state. `shares` says whether the target shares what the comparison keeps.
pub(crate) fn carry_over(old: &Forwarding, new: &mut Forwarding, comparison: &Comparison, shares: bool) -> Report {
    let mut report = Report::default();
    let mut carrier = Carrier {
        translate: Translate { old: &old.schema, new: Arc::clone(&new.schema.info) },
        counted: match shares {
            true => comparison.keep.copied_externs.iter().map(|(was, _)| *was).collect(),
            false => BTreeSet::new(),
        },
        old,
        new,
    };
    // Members before groups before entries, because each refers to the previous kind.
    let rank = |object: &Compared| (object.kind != ObjectKind::ActionProfile, object.kind);
    let mut order: Vec<&Compared> = comparison.objects.iter().collect();
    order.sort_by_key(|object| rank(object));
    for object in order {
        let outcome = match object.fate {
            Fate::Kept if shares => carrier.share(object),
            _ => carrier.copy(object),
        };
        report.outcomes.push(outcome);
    }
    for query in [Entity::MulticastGroup(MulticastGroup::default()), Entity::CloneSession(Default::default())] {
        let mut found = Vec::new();
        let _ = old.read(&query, &mut found);
        for entity in found {
            match carrier.put(&entity) {
                Ok(()) => report.replication += 1,
                Err(error) => report.replication_lost.push(error.message),
            }
        }
    }
    report
}

struct Carrier<'a> {
    old: &'a Forwarding,
    new: &'a mut Forwarding,
    translate: Translate<'a>,
    /// Externs of the old program whose counts the target will add.
    counted: BTreeSet<ExternId>,
}

impl Carrier<'_> {
    /// Carries over the part of a shared table or profile that only controllers see.
    fn share(&mut self, object: &Compared) -> Outcome {
        let mut carried = 0;
        let (was, now) = (&self.old.schema.program, &self.new.schema.program);
        match object.kind {
            ObjectKind::Table | ObjectKind::ValueSet => {
                if let Some((from, to)) = was.table_named(&object.name).zip(now.table_named(&object.name)) {
                    carried = self.old.state().len(from);
                    if let Some(extras) = self.old.extras.get(&from) {
                        self.new.extras.insert(to, extras.clone());
                    }
                    if let Some(extras) = self.old.default_extras.get(&from) {
                        self.new.default_extras.insert(to, extras.clone());
                    }
                }
            }
            ObjectKind::ActionProfile => {
                if let Some((from, to)) = was.extern_named(&object.name).zip(now.extern_named(&object.name)) {
                    carried = (self.old.state().members(from).len() + self.old.state().groups(from).len()) as u64;
                    self.new.one_shots.copy(&self.old.one_shots, from, to);
                }
            }
            _ => {}
        }
        Outcome { object: object.clone(), carried, lost: 0, reason: None }
    }

    /// Copies an object's contents into the new program.
    fn copy(&mut self, object: &Compared) -> Outcome {
        let mut outcome = Outcome { object: object.clone(), carried: 0, lost: 0, reason: None };
        for entity in self.contents(object) {
            let done = match object.fate {
                Fate::Incompatible => Err(Error::invalid(object.notes.first().cloned().unwrap_or_default())),
                _ => self.put(&entity),
            };
            match done {
                Ok(()) => outcome.carried += 1,
                Err(error) => {
                    outcome.lost += 1;
                    outcome.reason.get_or_insert(error.message);
                }
            }
        }
        outcome
    }

    /// Writes an entity of the old program into the new one.
    fn put(&mut self, entity: &Entity) -> Result<()> {
        for mut update in self.translate.updates(entity)? {
            // If the new program already has this entry, it gets the old one's action.
            if let (UpdateKind::Insert, Some(Entity::Table(entry))) = (update.kind, &update.entity) {
                update.kind = if self.new.has_entry(entry) { UpdateKind::Modify } else { UpdateKind::Insert };
            }
            self.new.write(&update)?;
        }
        Ok(())
    }

    /// The contents of an object of the old program, without what the program itself set up.
    fn contents(&self, object: &Compared) -> Vec<Entity> {
        let schema = &self.old.schema;
        let mut found = Vec::new();
        for query in self.queries(object) {
            // An object that the old program never uses has no contents.
            let _ = self.old.read(&query, &mut found);
        }
        let initial = |register_id: u32| {
            let target = schema.arrays.get(&register_id)?.target?;
            match &schema.program.externs[target.index()].kind {
                ir::ExternKind::Register { initial, .. } => Some((target, initial)),
                _ => None,
            }
        };
        // A default entry with the program's own action: only the direct resources that controllers wrote.
        let own = |entity: &Entity| match entity {
            Entity::Table(entry) if entry.is_default_action && self.old.default_is_initial(entry.table_id) => {
                Some(default_resources(entry))
            }
            _ => None,
        };
        let beside: Vec<Entity> = found.iter().filter_map(own).flatten().collect();
        found.extend(beside);
        // What the old program itself defines is not carried over.
        found.retain(|entity| match entity {
            Entity::Table(entry) if entry.is_const => false,
            Entity::Table(entry) if entry.is_default_action => !self.old.default_is_initial(entry.table_id),
            Entity::Counter(entry) => entry.data.is_some_and(|data| data != Default::default()),
            Entity::Meter(entry) => entry.config.is_some(),
            Entity::ValueSet(entry) => !entry.members.is_empty(),
            Entity::Register(entry) => {
                initial(entry.register_id).zip(entry.index).is_none_or(|((target, initial), i)| {
                    let index = u64::try_from(i).unwrap_or(u64::MAX);
                    self.old.state().register(target, index).as_ref() != Ok(initial)
                })
            }
            _ => true,
        });
        found
    }

    fn queries(&self, object: &Compared) -> Vec<Entity> {
        let schema = &self.old.schema;
        let id = |kind| Translate::find(&schema.info, kind, &object.name).unwrap_or_default();
        match object.kind {
            _ if object.fate == Fate::New => vec![],
            ObjectKind::Table => {
                let table_id = id(ObjectKind::Table);
                let counted = schema.tables.get(&table_id).and_then(|t| t.direct_counter);
                let counted = counted.is_some_and(|(_, ext)| self.counted.contains(&ext));
                let entries = TableEntry {
                    table_id,
                    counter_data: (!counted).then(Default::default),
                    meter_config: Some(Default::default()),
                    ..Default::default()
                };
                let default = TableEntry { is_default_action: true, ..entries.clone() };
                vec![Entity::Table(entries), Entity::Table(default)]
            }
            ObjectKind::ActionProfile => {
                let action_profile_id = id(ObjectKind::ActionProfile);
                vec![
                    Entity::Member(Member { action_profile_id, ..Default::default() }),
                    Entity::Group(Group { action_profile_id, ..Default::default() }),
                ]
            }
            ObjectKind::Counter => {
                let target = schema.program.extern_named(&object.name);
                if target.is_some_and(|ext| self.counted.contains(&ext)) {
                    return vec![];
                }
                vec![Entity::Counter(CounterEntry { counter_id: id(ObjectKind::Counter), ..Default::default() })]
            }
            ObjectKind::Meter => {
                vec![Entity::Meter(MeterEntry { meter_id: id(ObjectKind::Meter), ..Default::default() })]
            }
            ObjectKind::Register => {
                vec![Entity::Register(RegisterEntry { register_id: id(ObjectKind::Register), ..Default::default() })]
            }
            ObjectKind::ValueSet => {
                let value_set_id = id(ObjectKind::ValueSet);
                vec![Entity::ValueSet(ValueSetEntry { value_set_id, ..Default::default() })]
            }
            ObjectKind::Digest => {
                vec![Entity::Digest(DigestEntry { digest_id: id(ObjectKind::Digest), config: None })]
            }
            // These are carried over with their tables' entries.
            ObjectKind::DirectCounter | ObjectKind::DirectMeter => vec![],
            ObjectKind::Action | ObjectKind::ControllerHeader => vec![],
        }
    }
}

/// Translates ids of one program to those of another, by name.
struct Translate<'a> {
    old: &'a Schema,
    new: Arc<P4Info>,
}

impl Translate<'_> {
    fn object(&self, kind: ObjectKind, name: &str) -> Result<u32> {
        let missing = || Error::invalid(format!("the new program has no {} `{name}`", kind.noun()));
        Translate::find(&self.new, kind, name).ok_or_else(missing)
    }

    fn find(info: &P4Info, kind: ObjectKind, name: &str) -> Option<u32> {
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
        preambles.into_iter().find(|p| p.name == name).map(|p| p.id)
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
            Entity::DirectCounter(DirectCounterEntry { table_entry: Some(of), data }) => {
                let table_entry = Some(self.table_entry(of)?);
                update(UpdateKind::Modify, Entity::DirectCounter(DirectCounterEntry { table_entry, data: *data }))
            }
            Entity::DirectMeter(DirectMeterEntry { table_entry: Some(of), config, .. }) => {
                let entry =
                    DirectMeterEntry { table_entry: Some(self.table_entry(of)?), config: *config, counter_data: None };
                update(UpdateKind::Modify, Entity::DirectMeter(entry))
            }
            // The target shares those with the same name and function.
            Entity::Calculation(_) => Ok(vec![]),
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
        set.group_action = set.group_action.as_ref().map(|action| self.action(action)).transpose()?;
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
            && self.schema.entry_key(entry).is_ok_and(|(key, table)| self.state().entry(table, &key.0, key.1).is_ok())
    }

    /// Whether a table's default action is still the program's initial one.
    pub(crate) fn default_is_initial(&self, table_id: u32) -> bool {
        let Some(target) = self.schema.tables.get(&table_id).and_then(|t| t.target) else { return true };
        let initial = &self.schema.program.tables[target.index()].default_action;
        self.state().default_action(target) == base::entry::EntryAction::Call(initial.clone())
    }
}

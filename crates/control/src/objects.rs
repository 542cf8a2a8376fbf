//! The objects of a program that a request is about.
//!
//! Requests about different objects may be carried out at the same time, also while a batch of updates is half done; two
//! of which one writes what the other reads or writes may not (P4Runtime specification, "Parallelism of Read and Write
//! Requests").

use crate::entity::{Entity, TableEntry};
use crate::schema::Schema;
use std::collections::BTreeSet;

/// Stands for multicast groups and clone sessions; no object of a P4Info has such an id.
const REPLICATION: u32 = u32::MAX;
/// Stands for the parameters of hash calculations.
const CALCULATIONS: u32 = u32::MAX - 1;

/// Objects of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Objects {
    /// All of them.
    All,
    /// Those with these ids. An action profile stands for the tables that use it.
    Some(BTreeSet<u32>),
}

impl Objects {
    /// The objects that entities, or queries, are about.
    pub fn of<'a>(schema: &Schema, entities: impl IntoIterator<Item = Option<&'a Entity>>) -> Objects {
        let (mut all, mut last) = (BTreeSet::new(), None);
        for entity in entities.into_iter().flatten() {
            match object(schema, entity) {
                // A query of all objects of a kind.
                None | Some(0) => return Objects::All,
                same if same == last => {}
                Some(id) => {
                    all.insert(id);
                    last = Some(id);
                }
            }
        }
        Objects::Some(all)
    }

    /// Whether some object is in both.
    pub fn overlap(&self, other: &Objects) -> bool {
        match (self, other) {
            (Objects::All, _) | (_, Objects::All) => true,
            (Objects::Some(a), Objects::Some(b)) => a.intersection(b).next().is_some(),
        }
    }
}

/// The object that an entity is about; `None` if it may be about any.
fn object(schema: &Schema, entity: &Entity) -> Option<u32> {
    let table = |id: u32| schema.tables.get(&id).and_then(|table| table.profile).unwrap_or(id);
    let of_entry = |entry: &Option<TableEntry>| entry.as_ref().map(|entry| table(entry.table_id));
    match entity {
        Entity::Table(entry) => Some(table(entry.table_id)),
        Entity::DirectCounter(entry) => of_entry(&entry.table_entry),
        Entity::DirectMeter(entry) => of_entry(&entry.table_entry),
        Entity::Member(member) => Some(member.action_profile_id),
        Entity::Group(group) => Some(group.action_profile_id),
        Entity::Meter(entry) => Some(entry.meter_id),
        Entity::Counter(entry) => Some(entry.counter_id),
        Entity::Register(entry) => Some(entry.register_id),
        Entity::ValueSet(entry) => Some(entry.value_set_id),
        Entity::Digest(entry) => Some(entry.digest_id),
        Entity::MulticastGroup(_) | Entity::CloneSession(_) => Some(REPLICATION),
        Entity::Calculation(_) => Some(CALCULATIONS),
        Entity::Extern { .. } => None,
    }
}

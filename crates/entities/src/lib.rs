//! P4Runtime entities as lines of the set-up language (`stf::script`) and as JSON, with the names of a P4Info.
//!
//! ```text
//!   line ──stf::parse──▶ Command ──Names::change──▶ Change (an entity, and what to do with it) ──▶ Update
//!   entity ──Names::line──▶ line         Names::json──▶ JSON
//!   file ──config::Wanted::read──▶ entities ──config::plan──▶ Updates           config::text: entities ──▶ file
//! ```
//!
//! Every kind of entity is one file with one [`Kind`], listed in [`KINDS`]: its noun, the queries that read all
//! entities of the kind, the key that identifies one, and its text and JSON forms. Commands, `sluice config` and
//! `sluice run --entries` use that list.
//!
//! Invariants: a line that [`Names::line`] prints is read back as the same entity. Ids, widths and types come from a
//! server, so invalid ones must not cause a panic. No I/O.
//!
//! Tests: in `tests.rs`; `tests/py/test_config.py` with the real switch.

mod arrays;
mod calls;
pub mod config;
mod digests;
mod entry;
mod names;
mod packets;
mod profiles;
mod replication;
mod text;
mod value_sets;
pub mod values;

pub use names::{Names, id_of, name_of};

use messages::p4::v1 as pb;
use pb::entity::Entity;
use prost::Message;
use serde_json::Value;
use stf::Command;

/// The operation of a line on an entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Create it; it must not exist.
    Insert,
    /// Change it; it must exist.
    Modify,
    /// Create it, or change it if it exists.
    Set,
    /// Remove it.
    Delete,
    /// Add the entity's parts to the existing ones (members of value sets).
    Extend,
    /// Remove the entity's parts from the existing ones.
    Shrink,
    /// Remove all entries of the table that are not constant.
    Clear,
}

/// The meaning of a line: an operation and its entity.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The operation.
    pub verb: Verb,
    /// The entity.
    pub entity: Entity,
}

/// A kind of entity.
pub trait Kind: Sync {
    /// The noun for it in messages, such as `multicast group`.
    fn noun(&self) -> &'static str;

    /// P4Runtime queries for all entities of this kind; with a name, for those of the object with this name, as in
    /// `show NAME`.
    ///
    /// # Errors
    ///
    /// There is no object of this name.
    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String>;

    /// The entity without its contents: what identifies it, and what a delete sends. `None` for entities of other
    /// kinds.
    fn key(&self, entity: &Entity) -> Option<Entity>;

    /// Whether entities of this kind are inserted and deleted; others always exist and can only be modified.
    fn comes_and_goes(&self, entity: &Entity) -> bool;

    /// The line (or lines) that creates the entity; `None` if none is needed.
    fn line(&self, names: &Names, entity: &Entity) -> Option<String>;

    /// Sort key of the entity among those of its kind in a file.
    fn order(&self, names: &Names, entity: &Entity) -> Vec<u8> {
        let _ = names;
        self.key(entity).map_or_else(Vec::new, |key| encoded(&key))
    }

    /// The entity as a JSON object.
    fn json(&self, names: &Names, entity: &Entity) -> Value;

    /// The meaning of a line; `None` for lines about other kinds.
    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>>;
}

/// All kinds, in the order in which a file creates them: an entity comes after those that it refers to.
pub const KINDS: [&dyn Kind; 11] = [
    &profiles::Members,
    &profiles::Groups,
    &replication::MulticastGroups,
    &replication::CloneSessions,
    &value_sets::ValueSets,
    &digests::Digests,
    &entry::Defaults,
    &entry::Entries,
    &arrays::Registers,
    &arrays::Counters,
    &arrays::Meters,
];

/// The kind of an entity.
pub fn kind_of(entity: &Entity) -> Option<&'static dyn Kind> {
    KINDS.into_iter().find(|kind| kind.key(entity).is_some())
}

/// The kind with a noun.
pub fn kind(noun: &str) -> Option<&'static dyn Kind> {
    KINDS.into_iter().find(|kind| kind.noun() == noun)
}

/// The encoded entity; equal for equal entities, so usable as a map key.
pub fn encoded(entity: &Entity) -> Vec<u8> {
    pb::Entity { entity: Some(entity.clone()) }.encode_to_vec()
}

/// A P4Runtime update.
pub fn update(kind: pb::update::Type, entity: Entity) -> pb::Update {
    pb::Update { r#type: kind.into(), entity: Some(pb::Entity { entity: Some(entity) }) }
}

impl Names {
    /// The meaning of a line; `None` if it is not about a P4Runtime entity (`packet`, `mc_node_create`, ...).
    pub fn change(&self, command: &Command) -> Option<Result<Change, String>> {
        KINDS.into_iter().find_map(|kind| kind.change(self, command))
    }

    /// The line that creates an entity.
    pub fn line(&self, entity: &Entity) -> Option<String> {
        kind_of(entity)?.line(self, entity)
    }

    /// A description of an entity's key: `meter I.police 2`, `default action of I.t`.
    pub fn title(&self, entity: &Entity) -> String {
        let cell = |what: &str, name: String, index: Option<&pb::Index>| {
            format!("{what} {} {}", text::name_text(&name), arrays::index_text(index))
        };
        match entity {
            Entity::TableEntry(entry) if entry.is_default_action => {
                format!("default action of {}", text::name_text(&self.table_name(entry.table_id)))
            }
            Entity::TableEntry(entry) => self.key_words(entry),
            Entity::ValueSetEntry(set) => {
                let name = self.name_in(&self.info.value_sets, |set| &set.preamble, set.value_set_id);
                format!("value set {}", text::name_text(&name))
            }
            Entity::ActionProfileMember(member) => {
                format!("member {} {}", text::name_text(&self.profile_name(member.action_profile_id)), member.member_id)
            }
            Entity::ActionProfileGroup(group) => {
                format!("group {} {}", text::name_text(&self.profile_name(group.action_profile_id)), group.group_id)
            }
            Entity::RegisterEntry(of) => {
                let name = self.name_in(&self.info.registers, |r| &r.preamble, of.register_id);
                cell("register", name, of.index.as_ref())
            }
            Entity::CounterEntry(of) => {
                let name = self.name_in(&self.info.counters, |c| &c.preamble, of.counter_id);
                cell("counter", name, of.index.as_ref())
            }
            Entity::MeterEntry(of) => {
                cell("meter", self.name_in(&self.info.meters, |m| &m.preamble, of.meter_id), of.index.as_ref())
            }
            other => self.line(other).unwrap_or_else(|| "an entity of an unknown kind".to_string()),
        }
    }

    /// An entity as a JSON object.
    pub fn json(&self, entity: &Entity) -> Value {
        kind_of(entity).map_or(Value::Null, |kind| kind.json(self, entity))
    }
}

#[cfg(test)]
mod tests;

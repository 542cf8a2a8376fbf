//! What a role may do: role configurations (P4Runtime specification, "Role Config").
//!
//! A primary brings its role's configuration with its claim; whoever claims the role later without one has full access again. A
//! configuration names objects of the program by id. Outside of them the role's updates are refused, reads that name the role
//! find nothing, and digests and idle timeouts are not told. Objects that a role has for itself are closed to other
//! roles, but for the default role, which always has full access.
//!
//! Which messages carry configurations is decided in `messages::convert`. Tests: `crates/control/tests/p4runtime/roles.rs`.

use crate::entity::Entity;
use crate::error::{Error, Result};
use crate::packets::Packet;
use std::collections::BTreeSet;

/// What a role may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleConfig {
    /// Tables, profiles, counters and so on by id; `None` for all.
    pub objects: Option<BTreeSet<u32>>,
    /// Those of them that no other role may write.
    pub exclusive: BTreeSet<u32>,
    /// Whether multicast groups and clone sessions are among them.
    pub replication: bool,
    /// Which packets it gets.
    pub packets_in: Packets,
    /// Which packets it may send.
    pub packets_out: Packets,
    /// Whether it may change the program.
    pub sets_program: bool,
    /// Type and value of the message as received, to be sent back in notifications.
    pub message: (String, Vec<u8>),
}

/// A choice of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packets {
    /// None.
    None,
    /// All.
    All,
    /// Those that have one of these values as metadata of this id.
    With(Vec<(u32, Vec<u8>)>),
}

impl Packets {
    /// Whether a packet is among them.
    pub(crate) fn contain(&self, packet: &Packet) -> bool {
        let shortest = crate::bytes::shortest;
        match self {
            Packets::None => false,
            Packets::All => true,
            Packets::With(values) => values.iter().any(|(id, value)| {
                packet.metadata.iter().any(|(have, is)| have == id && shortest(is) == shortest(value))
            }),
        }
    }
}

/// A configuration as it comes with a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GivenConfig {
    /// One that is understood.
    Known(RoleConfig),
    /// One that is not; why.
    Unknown(String),
}

/// The object that an entity belongs to.
enum Place {
    Object(u32),
    Replication,
}

fn place(entity: &Entity) -> Place {
    let table = |entry: &Option<crate::entity::TableEntry>| entry.as_ref().map_or(0, |entry| entry.table_id);
    Place::Object(match entity {
        Entity::MulticastGroup(_) | Entity::CloneSession(_) => return Place::Replication,
        Entity::Table(entry) => entry.table_id,
        Entity::Member(member) => member.action_profile_id,
        Entity::Group(group) => group.action_profile_id,
        Entity::Counter(entry) => entry.counter_id,
        Entity::Meter(entry) => entry.meter_id,
        Entity::Register(entry) => entry.register_id,
        Entity::DirectCounter(entry) => table(&entry.table_entry),
        Entity::DirectMeter(entry) => table(&entry.table_entry),
        Entity::ValueSet(entry) => entry.value_set_id,
        Entity::Digest(entry) => entry.digest_id,
        Entity::Extern { extern_id, .. } => *extern_id,
        // No object of the P4Info: of the default role, and of roles for everything.
        Entity::Calculation(_) => 0,
    })
}

impl RoleConfig {
    /// Whether an object is in the role's scope.
    pub(crate) fn has_object(&self, id: u32) -> bool {
        self.objects.as_ref().is_none_or(|objects| objects.contains(&id))
    }

    /// Whether an entity is in the role's scope.
    pub(crate) fn has(&self, entity: &Entity) -> bool {
        match place(entity) {
            Place::Object(id) => self.has_object(id),
            Place::Replication => self.replication,
        }
    }

    /// Whether no other role may write an entity.
    pub(crate) fn keeps_for_itself(&self, entity: &Entity) -> bool {
        matches!(place(entity), Place::Object(id) if self.exclusive.contains(&id))
    }
}

/// What limits the updates of one role.
pub(crate) struct Scope {
    pub(crate) name: String,
    pub(crate) own: Option<RoleConfig>,
    /// Of other roles, with their names.
    pub(crate) others: Vec<(String, RoleConfig)>,
}

impl Scope {
    /// Refuses what is not the role's to write.
    pub(crate) fn check(&self, entity: Option<&Entity>) -> Result<()> {
        let Some(entity) = entity else { return Ok(()) };
        if self.own.as_ref().is_some_and(|own| !own.has(entity)) {
            return Err(Error::denied(format!("{} has no access to this object by its configuration", self.name)));
        }
        match self.others.iter().find(|(_, other)| other.keeps_for_itself(entity)) {
            Some((other, _)) => Err(Error::denied(format!("{other} has this object for itself"))),
            None => Ok(()),
        }
    }
}

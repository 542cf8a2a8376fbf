//! Role configurations: what a role may read and write (P4Runtime specification, "Role Config").
//!
//! A client that becomes primary sets its role's configuration; without one the role has full access. A configuration
//! names objects of the program by id. For other objects, the role's updates are refused, reads in the role's name
//! return nothing, and digests and idle timeouts are not sent. Objects that a role has exclusively are closed to other
//! roles, except the default role, which always has full access.
//!
//! `messages::convert` defines which messages carry configurations. Tests: `crates/control/tests/p4runtime/roles.rs`.

use crate::entity::Entity;
use crate::error::{Error, Result};
use crate::packets::Packet;
use std::collections::BTreeSet;

/// What a role may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleConfig {
    /// Ids of its tables, profiles, counters and so on; `None` for all objects.
    pub objects: Option<BTreeSet<u32>>,
    /// The ids that no other role may write.
    pub exclusive: BTreeSet<u32>,
    /// Whether it may access multicast groups and clone sessions.
    pub replication: bool,
    /// The packet-ins that it receives.
    pub packets_in: Packets,
    /// The packet-outs that it may send.
    pub packets_out: Packets,
    /// Whether it may change the program.
    pub sets_program: bool,
    /// Type and value of the message as received, to be returned in notifications.
    pub message: (String, Vec<u8>),
}

/// A filter on packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packets {
    /// None.
    None,
    /// All.
    All,
    /// Packets whose metadata has one of these values: metadata id and value.
    With(Vec<(u32, Vec<u8>)>),
}

impl Packets {
    /// Whether a packet passes the filter.
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

/// The configuration in a client's claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GivenConfig {
    /// A valid configuration.
    Known(RoleConfig),
    /// A message that is not understood; the reason.
    Unknown(String),
}

/// What an entity's access is decided by.
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
        // Not an object of the P4Info: only the default role and roles without a list of objects may access it.
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

    /// Whether this role has the entity's object exclusively.
    pub(crate) fn has_exclusively(&self, entity: &Entity) -> bool {
        matches!(place(entity), Place::Object(id) if self.exclusive.contains(&id))
    }
}

/// The access rights of one role, in relation to the other roles.
pub(crate) struct Scope {
    pub(crate) name: String,
    pub(crate) own: Option<RoleConfig>,
    /// Names and configurations of the other roles.
    pub(crate) others: Vec<(String, RoleConfig)>,
}

impl Scope {
    /// Refuses an entity that the role may not write.
    pub(crate) fn check(&self, entity: Option<&Entity>) -> Result<()> {
        let Some(entity) = entity else { return Ok(()) };
        if self.own.as_ref().is_some_and(|own| !own.has(entity)) {
            return Err(Error::denied(format!("{} has no access to this object by its configuration", self.name)));
        }
        match self.others.iter().find(|(_, other)| other.has_exclusively(entity)) {
            Some((other, _)) => Err(Error::denied(format!("{other} has this object for itself"))),
            None => Ok(()),
        }
    }
}

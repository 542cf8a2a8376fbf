//! Who may write: primaries and backups per device and role (P4Runtime specification, "Client Arbitration and Controller
//! Replication").
//!
//! Invariants, per device and role: no two live clients have the same election id; the primary is the live client whose
//! id is the highest ever seen, so there is at most one, and none after it left until someone comes with an id at least
//! as high.

use crate::entity::{ElectionId, Role};
use crate::error::{Code, Error, Result};
use crate::roles::{GivenConfig, RoleConfig, Scope};
use std::collections::BTreeMap;

/// A stream of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClientId(pub u64);

/// Live streams per device and role.
pub const CLIENTS_MAX: usize = 64;
/// Roles that a device remembers.
pub const ROLES_MAX: usize = 1024;

/// A client's claim.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArbitrationRequest {
    /// Which device.
    pub device_id: u64,
    /// In which role.
    pub role: Role,
    /// Unset: never primary.
    pub election_id: Option<ElectionId>,
    /// What the role may do; without one, everything.
    pub role_config: Option<GivenConfig>,
}

/// Who is primary in a role of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleInfo {
    /// Which role.
    pub role: Role,
    /// Whether the client with `election_id` is there.
    pub has_primary: bool,
    /// The highest ever seen.
    pub election_id: Option<ElectionId>,
    /// Live streams, the primary's included.
    pub clients: usize,
}

/// What a client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArbitrationUpdate {
    /// Which device.
    pub device_id: u64,
    /// In which role.
    pub role: Role,
    /// The highest ever seen; unset if there was no primary yet.
    pub election_id: Option<ElectionId>,
    /// The role's configuration: type and value of the message.
    pub role_config: Option<(String, Vec<u8>)>,
    /// OK: you are primary. ALREADY_EXISTS: someone else is. NOT_FOUND: nobody is.
    pub status: Code,
}

#[derive(Default, Debug)]
struct RoleState {
    highest: Option<ElectionId>,
    clients: BTreeMap<ClientId, Option<ElectionId>>,
    /// What the last primary brought.
    config: Option<RoleConfig>,
}

impl RoleState {
    fn primary(&self) -> Option<ClientId> {
        let highest = self.highest?;
        self.clients.iter().find(|(_, id)| **id == Some(highest)).map(|(client, _)| *client)
    }
}

/// Roles of one device.
#[derive(Default, Debug)]
pub(crate) struct Roles {
    roles: BTreeMap<Role, RoleState>,
}

/// Notifications in the order in which they go out.
pub(crate) type Notices = Vec<(ClientId, ArbitrationUpdate)>;

impl Roles {
    /// A client claims; `Err` ends its stream. The device has been checked.
    pub(crate) fn arbitrate(&mut self, client: ClientId, request: &ArbitrationRequest) -> Result<Notices> {
        let role = &request.role;
        let config = match &request.role_config {
            None => None,
            Some(_) if *role == Role::default() => {
                return Err(Error::invalid("the default role has full access and takes no configuration"));
            }
            Some(GivenConfig::Unknown(why)) => return Err(Error::invalid(format!("{role}: {why}"))),
            Some(GivenConfig::Known(config)) => Some(config.clone()),
        };
        if self.roles.len() >= ROLES_MAX && !self.roles.contains_key(role) {
            return Err(Error::exhausted(format!("{ROLES_MAX} roles are known already")));
        }
        let state = self.roles.entry(role.clone()).or_default();
        if let Some(id) = request.election_id
            && state.clients.iter().any(|(other, have)| *other != client && *have == Some(id))
        {
            return Err(Error::invalid(format!("another live client of {role} has the election id {id}")));
        }
        if state.clients.len() >= CLIENTS_MAX && !state.clients.contains_key(&client) {
            return Err(Error::exhausted(format!("{CLIENTS_MAX} streams of {role} are open already")));
        }
        let was_primary = state.primary() == Some(client);
        state.clients.insert(client, request.election_id);
        let becomes_primary = request.election_id.is_some_and(|id| state.highest.is_none_or(|highest| id >= highest));
        if becomes_primary {
            state.highest = request.election_id;
            state.config = config;
        }
        let everyone = becomes_primary || was_primary;
        let notices = self.notices(request.device_id, role);
        Ok(notices.into_iter().filter(|(to, _)| everyone || *to == client).collect())
    }

    /// A client is gone; the others of its role hear of it if it was primary.
    pub(crate) fn leave(&mut self, device_id: u64, role: &Role, client: ClientId) -> Notices {
        let Some(state) = self.roles.get_mut(role) else { return vec![] };
        let was_primary = state.primary() == Some(client);
        state.clients.remove(&client);
        if was_primary { self.notices(device_id, role) } else { vec![] }
    }

    /// What every client of a role is told now; the primary comes last.
    fn notices(&self, device_id: u64, role: &Role) -> Notices {
        let Some(state) = self.roles.get(role) else { return vec![] };
        let primary = state.primary();
        let backup_status = if primary.is_some() { Code::AlreadyExists } else { Code::NotFound };
        let role_config = state.config.as_ref().map(|config| config.message.clone());
        let (role, election_id) = (role.clone(), state.highest);
        let update = |status| ArbitrationUpdate {
            device_id,
            role: role.clone(),
            election_id,
            role_config: role_config.clone(),
            status,
        };
        let backups = state.clients.keys().copied().filter(|client| Some(*client) != primary);
        backups.map(|client| (client, update(backup_status))).chain(primary.map(|p| (p, update(Code::Ok)))).collect()
    }

    /// Refuses whoever is not primary.
    pub(crate) fn check_primary(&self, role: &Role, election_id: Option<ElectionId>) -> Result<()> {
        let state = match self.roles.get(role) {
            Some(state) => state,
            // Every device has the default role, also before anyone claimed it.
            None if *role == Role::default() => return Err(Error::denied("there is no primary client")),
            None => return Err(Error::not_found(format!("{role} is not known; no client has claimed it"))),
        };
        match (state.primary(), election_id) {
            (Some(_), Some(id)) if Some(id) == state.highest => Ok(()),
            (Some(_), _) => Err(Error::denied(format!("the election id is not that of the primary of {role}"))),
            (None, _) => Err(Error::denied(format!("there is no primary client of {role}"))),
        }
    }

    /// Whether a client is primary of a role.
    pub(crate) fn is_primary(&self, role: &Role, client: ClientId) -> bool {
        self.roles.get(role).and_then(RoleState::primary) == Some(client)
    }

    /// Primaries of all roles, with what they may see: they receive packets and notifications.
    pub(crate) fn primaries(&self) -> impl Iterator<Item = (ClientId, Option<&RoleConfig>)> + '_ {
        self.roles.values().filter_map(|role| Some((role.primary()?, role.config.as_ref())))
    }

    /// All roles, for the operator.
    pub(crate) fn all(&self) -> Vec<RoleInfo> {
        let info = |(role, state): (&Role, &RoleState)| RoleInfo {
            role: role.clone(),
            has_primary: state.primary().is_some(),
            election_id: state.highest,
            clients: state.clients.len(),
        };
        self.roles.iter().map(info).collect()
    }

    /// A role's configuration.
    pub(crate) fn config(&self, role: &Role) -> Option<&RoleConfig> {
        self.roles.get(role)?.config.as_ref()
    }

    /// What a role may write.
    pub(crate) fn scope(&self, role: &Role) -> Scope {
        let is_other = |other: &&Role| *role != Role::default() && *other != role;
        let others = self.roles.iter().filter(|(other, _)| is_other(other));
        Scope {
            name: role.to_string(),
            own: self.config(role).cloned(),
            others: others.filter_map(|(other, state)| Some((other.to_string(), state.config.clone()?))).collect(),
        }
    }
}

#[cfg(test)]
mod tests;

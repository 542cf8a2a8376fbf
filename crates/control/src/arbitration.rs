//! Client arbitration: primary and backup clients per device and role (P4Runtime specification, "Client Arbitration and
//! Controller Replication").
//!
//! Invariants, per device and role: no two live clients have the same election id. The primary is the live client with
//! the highest election id ever received, so there is at most one. When it disconnects there is none until a client
//! claims an id at least as high.
//!
//! A role without clients is forgotten unless it once had a primary: then its highest id and its configuration are
//! remembered. What is remembered is limited in number and bytes. When the limit is reached, the role that has been
//! without clients for the longest time is evicted, but never the default role, so only live streams can prevent a new
//! role. Eviction gives nobody additional rights: a client that can cause it could as well claim the role with a higher
//! id.

use crate::entity::{ElectionId, Role};
use crate::error::{Code, Error, Result};
use crate::roles::{GivenConfig, RoleConfig, Scope};
use std::collections::BTreeMap;

/// A controller's stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClientId(pub u64);

/// Limit on live streams per device and role.
pub const CLIENTS_MAX: usize = 64;
/// Limit on the roles that a device remembers.
pub const ROLES_MAX: usize = 1024;
/// Limit on the bytes of a role's name: ample for a name, and short enough for messages and logs.
pub const ROLE_NAME_BYTES_MAX: usize = 256;
/// Limit on the bytes of a role's configuration as sent: enough for hundreds of ids. Decoded it takes up to 20 times as
/// much.
pub const ROLE_CONFIG_BYTES_MAX: usize = 64 << 10;
/// Limit on the bytes of the configurations of all roles of a device, as sent. Decoded they take up to 20 times as
/// much.
pub const ROLE_CONFIGS_BYTES_MAX: usize = 4 << 20;

/// A `MasterArbitrationUpdate` of a client: its claim to a role.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArbitrationRequest {
    /// The device.
    pub device_id: u64,
    /// The role.
    pub role: Role,
    /// The election id; a client without one is never primary.
    pub election_id: Option<ElectionId>,
    /// The role's configuration; without one the role has full access.
    pub role_config: Option<GivenConfig>,
}

/// A role's state, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleInfo {
    /// The role.
    pub role: Role,
    /// Whether the role has a primary, whose id is then `election_id`.
    pub has_primary: bool,
    /// The highest election id ever received.
    pub election_id: Option<ElectionId>,
    /// Number of live streams, the primary's included.
    pub clients: usize,
}

/// A `MasterArbitrationUpdate` to a client: the result of arbitration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArbitrationUpdate {
    /// The device.
    pub device_id: u64,
    /// The role.
    pub role: Role,
    /// The highest election id ever received; unset if there was no primary yet.
    pub election_id: Option<ElectionId>,
    /// The role's configuration: type and value of the message as received.
    pub role_config: Option<(String, Vec<u8>)>,
    /// OK: the client is primary. ALREADY_EXISTS: another client is. NOT_FOUND: there is no primary.
    pub status: Code,
}

#[derive(Default, Debug)]
struct RoleState {
    highest: Option<ElectionId>,
    clients: BTreeMap<ClientId, Option<ElectionId>>,
    /// The configuration that the last primary sent.
    config: Option<RoleConfig>,
    /// The value of [`Roles::departures`] when the last client left: orders roles by how long they have had no clients.
    departure: u64,
}

impl RoleState {
    fn config_bytes(&self) -> usize {
        self.config.as_ref().map_or(0, config_bytes)
    }

    fn primary(&self) -> Option<ClientId> {
        let highest = self.highest?;
        self.clients.iter().find(|(_, id)| **id == Some(highest)).map(|(client, _)| *client)
    }
}

/// Roles of one device.
#[derive(Default, Debug)]
pub(crate) struct Roles {
    roles: BTreeMap<Role, RoleState>,
    /// Counts how often a role lost its last client.
    departures: u64,
}

fn config_bytes(config: &RoleConfig) -> usize {
    config.message.0.len() + config.message.1.len()
}

/// Notifications in the order in which they must be sent.
pub(crate) type Notices = Vec<(ClientId, ArbitrationUpdate)>;

impl Roles {
    /// Handles a client's claim to a role of an existing device.
    ///
    /// # Errors
    ///
    /// The claim is refused; the client's stream must then be closed.
    pub(crate) fn arbitrate(&mut self, client: ClientId, request: &ArbitrationRequest) -> Result<Notices> {
        let role = &request.role;
        // Checked first, because the messages of the other checks quote the name.
        if role.name.len() > ROLE_NAME_BYTES_MAX {
            let bytes = role.name.len();
            return Err(Error::invalid(format!("a role's name of {bytes} bytes; the limit is {ROLE_NAME_BYTES_MAX}")));
        }
        let config = match &request.role_config {
            None => None,
            Some(_) if *role == Role::default() => {
                return Err(Error::invalid("the default role has full access and takes no configuration"));
            }
            Some(GivenConfig::Unknown(why)) => return Err(Error::invalid(format!("{role}: {why}"))),
            Some(GivenConfig::Known(config)) if config_bytes(config) > ROLE_CONFIG_BYTES_MAX => {
                let bytes = config_bytes(config);
                let limit = ROLE_CONFIG_BYTES_MAX;
                return Err(Error::invalid(format!("{role}: a configuration of {bytes} bytes; the limit is {limit}")));
            }
            Some(GivenConfig::Known(config)) => Some(config),
        };
        self.evict_role(role, config.map_or(0, config_bytes))?;
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
            state.config = config.cloned();
        }
        let everyone = becomes_primary || was_primary;
        let notices = self.notices(request.device_id, role);
        Ok(notices.into_iter().filter(|(to, _)| everyone || *to == client).collect())
    }

    /// Removes a disconnected client. If it was primary, the other clients of its role are notified.
    pub(crate) fn leave(&mut self, device_id: u64, role: &Role, client: ClientId) -> Notices {
        let Some(state) = self.roles.get_mut(role) else { return vec![] };
        let was_primary = state.primary() == Some(client);
        state.clients.remove(&client);
        if state.clients.is_empty() {
            self.departures += 1;
            state.departure = self.departures;
            if state.highest.is_none() {
                self.roles.remove(role);
            }
        }
        if was_primary { self.notices(device_id, role) } else { vec![] }
    }

    /// Evicts roles without clients until the role `claimed`, with a configuration of this many bytes, fits the limits.
    fn evict_role(&mut self, claimed: &Role, bytes: usize) -> Result<()> {
        loop {
            let others = || self.roles.iter().filter(|(role, _)| *role != claimed);
            let many = others().count() >= ROLES_MAX;
            // A claim without a configuration needs no bytes.
            let large = bytes > 0
                && others().map(|(_, state)| state.config_bytes()).sum::<usize>() + bytes > ROLE_CONFIGS_BYTES_MAX;
            if !many && !large {
                return Ok(());
            }
            let left = others().filter(|(role, state)| {
                state.clients.is_empty() && **role != Role::default() && (many || state.config.is_some())
            });
            let Some(longest) = left.min_by_key(|(_, state)| state.departure).map(|(role, _)| role.clone()) else {
                return Err(Error::exhausted(match many {
                    true => format!("{ROLES_MAX} other roles have clients already, which is the limit"),
                    false => format!(
                        "{claimed}: with its configuration, those of roles with clients have more than {ROLE_CONFIGS_BYTES_MAX} \
                         bytes, which is the limit"
                    ),
                }));
            };
            self.roles.remove(&longest);
        }
    }

    /// Notifications of the current state for all clients of a role; the primary's comes last.
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

    /// Refuses a sender that is not the primary of its role.
    pub(crate) fn check_primary(&self, role: &Role, election_id: Option<ElectionId>) -> Result<()> {
        let state = match self.roles.get(role) {
            Some(state) => state,
            // The default role always exists, even before a client has claimed it.
            None if *role == Role::default() => return Err(Error::denied("there is no primary client")),
            None => return Err(Error::not_found(format!("{role} is not known; no client has claimed it"))),
        };
        match (state.primary(), election_id) {
            (Some(_), Some(id)) if Some(id) == state.highest => Ok(()),
            (Some(_), _) => Err(Error::denied(format!("the election id is not that of the primary of {role}"))),
            (None, _) => Err(Error::denied(format!("there is no primary client of {role}"))),
        }
    }

    /// Refuses an operator while a client is primary of the default role.
    pub(crate) fn check_free(&self) -> Result<()> {
        match self.roles.get(&Role::default()).filter(|state| state.primary().is_some()) {
            None => Ok(()),
            Some(state) => Err(Error::denied(format!(
                "a controller is primary, with election id {}, and only it may write",
                state.highest.unwrap_or_default()
            ))),
        }
    }

    /// Whether a client is primary of a role.
    pub(crate) fn is_primary(&self, role: &Role, client: ClientId) -> bool {
        self.roles.get(role).and_then(RoleState::primary) == Some(client)
    }

    /// The primaries of all roles, which receive packets and notifications, with their roles' configurations.
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

    /// The objects that a role may write.
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

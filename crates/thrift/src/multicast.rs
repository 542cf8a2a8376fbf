//! Multicast as in bmv2, with nodes, and mirroring sessions.
//!
//! ```text
//!   group ─▶ nodes (a replication id, ports, aggregation groups)  here, by handle
//!         ─▶ replicas (a port and an instance each)               in the control plane, used by packets
//! ```
//!
//! The replicas of a group in the control plane always follow from its nodes: a change of a node is written as a change
//! of its group's replicas. If another client writes a group, its nodes are rebuilt from the replicas. Nodes without a
//! group exist only here, and are lost on a restart.
//!
//! For an aggregation group, bmv2 sends one copy, always to the same port: port number `255 mod n` of its n ports. The
//! same is done here.
//!
//! A mirroring session to a group has the group's replicas, and is updated when these methods change the group.

use crate::fault::{Answer, Fault, multicast as code, with_code};
use crate::service::Context;
use crate::wire::{Bounded, TooLong, Value};
use control::Code;
use control::entity::{CloneSession, Entity, MulticastGroup, Replica, ReplicaPort, Update, UpdateKind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Limit on nodes, and on groups; the same as bmv2's.
const NODES_MAX: usize = 4096;
/// Limit on ports of a port map, which is a string of binary digits.
const PORTS_MAX: usize = 4096;
/// Limit on aggregation groups.
const LAGS_MAX: usize = 256;
/// Limit on ports and aggregation groups of all nodes, plus ports of all aggregation groups.
const MEMBERS_MAX: usize = 1 << 20;
/// The packet hash by which bmv2 chooses a port of an aggregation group, a constant.
const LAG_HASH: usize = 255;
/// `MirroringOperationErrorCode`.
const SESSION_NOT_FOUND: i32 = 1;

/// Nodes, groups, aggregation groups and mirroring sessions.
#[derive(Clone, Default, Debug)]
pub(crate) struct Replication {
    nodes: BTreeMap<i32, Node>,
    groups: BTreeMap<u32, Vec<i32>>,
    lags: BTreeMap<u32, BTreeSet<u32>>,
    /// Sessions that mirror to a group: the group, and an additional port.
    mirrors: BTreeMap<u32, (u32, Option<u32>)>,
    /// Sessions that mirror only to a port.
    to_ports: BTreeMap<u32, u32>,
}

/// The targets of a mirroring session: a multicast group, a port, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mirrored {
    /// The group.
    pub group: Option<u32>,
    /// The port.
    pub port: Option<u32>,
}

#[derive(Clone, Default, Debug)]
struct Node {
    rid: u32,
    ports: BTreeSet<u32>,
    lags: BTreeSet<u32>,
    group: Option<u32>,
}

impl Replication {
    /// The replicas (port, instance) of a group, in the order of its nodes.
    fn replicas(&self, group: u32) -> Vec<(u32, u32)> {
        let nodes = self.groups.get(&group).into_iter().flatten().filter_map(|handle| self.nodes.get(handle));
        let mut replicas = Vec::new();
        for node in nodes {
            let members = |lag: &u32| {
                let ports = self.lags.get(lag)?;
                ports.iter().nth(LAG_HASH.checked_rem(ports.len())?).copied()
            };
            let ports = node.ports.iter().copied().chain(node.lags.iter().filter_map(members));
            replicas.extend(ports.map(|port| (port, node.rid)));
        }
        replicas
    }

    fn members(&self) -> usize {
        let of_nodes = self.nodes.values().map(|node| node.ports.len() + node.lags.len());
        of_nodes.chain(self.lags.values().map(BTreeSet::len)).sum()
    }

    fn free_handle(&self) -> i32 {
        (0..)
            .zip(self.nodes.keys())
            .find(|(free, used)| free != *used)
            .map_or(self.nodes.len() as i32, |(free, _)| free)
    }

    fn dissociate(&mut self, handle: i32) {
        if let Some(group) = self.nodes.get_mut(&handle).and_then(|node| node.group.take())
            && let Some(nodes) = self.groups.get_mut(&group)
        {
            nodes.retain(|have| *have != handle);
        }
    }

    /// Rebuilds the nodes of groups that other clients have changed.
    fn sync(&mut self, now: &BTreeMap<u32, Vec<(u32, u32)>>) {
        let gone: Vec<u32> = self.groups.keys().filter(|group| !now.contains_key(group)).copied().collect();
        for group in gone {
            let nodes = self.groups.remove(&group).unwrap_or_default();
            nodes.iter().for_each(|handle| _ = self.nodes.remove(handle));
        }
        let mut free = 0;
        for (group, replicas) in now {
            let known = self.groups.contains_key(group);
            let sorted = |mut replicas: Vec<(u32, u32)>| {
                replicas.sort_unstable();
                replicas
            };
            if known && sorted(self.replicas(*group)) == sorted(replicas.clone()) {
                continue;
            }
            let earlier = self.groups.insert(*group, Vec::new()).unwrap_or_default();
            for handle in earlier {
                self.nodes.remove(&handle);
                free = free.min(handle);
            }
            let mut by_rid: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for (port, rid) in replicas {
                by_rid.entry(*rid).or_default().insert(*port);
            }
            for (rid, ports) in by_rid {
                // All lower handles are in use.
                free = (free..).find(|handle| !self.nodes.contains_key(handle)).unwrap_or(i32::MAX);
                let handle = free;
                self.nodes.insert(handle, Node { rid, ports, lags: BTreeSet::new(), group: Some(*group) });
                self.groups.entry(*group).or_default().push(handle);
            }
        }
    }
}

fn port_of(port: &ReplicaPort) -> Option<u32> {
    match port {
        ReplicaPort::Unset => None,
        ReplicaPort::Number(port) => Some(*port),
        ReplicaPort::Port(bytes) => {
            let bits = control::bytes::parse(32, bytes, "").ok()?;
            bits.to_u64().map(|port| port as u32)
        }
    }
}

fn replica((port, instance): (u32, u32)) -> Replica {
    Replica { port: ReplicaPort::Port(bytes_of(port)), instance, backups: vec![] }
}

fn bytes_of(port: u32) -> Vec<u8> {
    let bytes = port.to_be_bytes();
    let zeros = bytes.iter().take(3).take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

/// Parses a map of ports (or, with another `most`, of aggregation groups): binary digits, highest number first.
fn map(value: Option<&Value>, most: usize) -> Answer<BTreeSet<u32>> {
    let digits = match value {
        Some(Value::Bytes(digits)) => digits.as_slice(),
        _ => &[],
    };
    let wrong = || Fault::Coded(code::ERROR, format!("this map is {most} digits 0 and 1 at most"));
    if digits.len() > most {
        return Err(wrong());
    }
    let mut ports = BTreeSet::new();
    for (port, digit) in digits.iter().rev().enumerate() {
        match digit {
            b'0' => {}
            b'1' => _ = ports.insert(port as u32),
            _ => return Err(wrong()),
        }
    }
    Ok(ports)
}

impl Context<'_> {
    /// The current groups and nodes, updated for changes by other clients.
    fn replication(&mut self) -> Answer<Replication> {
        self.program()?;
        let query = Entity::MulticastGroup(MulticastGroup::default());
        let found = self.read(query).map_err(|error| with_code(error, code::ERROR))?;
        let group = |entity| match entity {
            Entity::MulticastGroup(group) => {
                let replicas = group.replicas.iter().filter_map(|r| Some((port_of(&r.port)?, r.instance)));
                Some((group.group_id, replicas.collect::<Vec<_>>()))
            }
            _ => None,
        };
        let now: BTreeMap<u32, Vec<(u32, u32)>> = found.into_iter().filter_map(group).collect();
        self.state.replication.sync(&now);
        let of = &self.state.replication;
        if !of.mirrors.is_empty() || !of.to_ports.is_empty() {
            // Sessions may have been removed by another client or program.
            let there: BTreeSet<u32> = self.sessions()?.iter().map(|session| session.session_id).collect();
            self.state.replication.mirrors.retain(|session, _| there.contains(session));
            self.state.replication.to_ports.retain(|session, _| there.contains(session));
        }
        Ok(self.state.replication.clone())
    }

    /// Writes the groups whose replicas change, then stores the new state.
    fn change(&mut self, next: Replication, groups: impl IntoIterator<Item = u32>) -> Answer<()> {
        self.change_by(next, groups, UpdateKind::Modify)
    }

    /// Writes groups and the sessions that mirror to them, then stores the new state. If a write is rejected, nothing
    /// changes.
    fn change_by(&mut self, next: Replication, groups: impl IntoIterator<Item = u32>, kind: UpdateKind) -> Answer<()> {
        if next.members() > MEMBERS_MAX {
            return Err(Fault::Coded(code::TABLE_FULL, format!("nodes have {MEMBERS_MAX} ports, which is the limit")));
        }
        let groups: BTreeSet<u32> = groups.into_iter().collect();
        let mut updates = Vec::new();
        for group in &groups {
            let group = match kind {
                UpdateKind::Delete => MulticastGroup { group_id: *group, ..MulticastGroup::default() },
                _ => self.group(&next, *group)?,
            };
            updates.push(Update { kind, entity: Some(Entity::MulticastGroup(group)) });
        }
        for (session, (group, port)) in next.mirrors.iter().filter(|(_, (group, _))| groups.contains(group)) {
            updates.push(self.session_update(&next, *session, Some(*group), *port)?);
        }
        if !updates.is_empty() {
            self.write_all(updates).map_err(|error| match error.code {
                Code::ResourceExhausted => Fault::Coded(code::TABLE_FULL, error.message),
                _ => with_code(error, code::ERROR),
            })?;
        }
        self.state.replication = next;
        Ok(())
    }

    /// A group with the replicas that follow from its nodes.
    fn group(&self, next: &Replication, group_id: u32) -> Answer<MulticastGroup> {
        let replicas = next.replicas(group_id).into_iter().map(replica).collect();
        let query = MulticastGroup { group_id, ..MulticastGroup::default() };
        let old = self.read(Entity::MulticastGroup(query)).map_err(|error| with_code(error, code::ERROR))?;
        // Metadata that a controller wrote are kept.
        let metadata = old.into_iter().find_map(|entity| match entity {
            Entity::MulticastGroup(group) if group.group_id == group_id => Some(group.metadata),
            _ => None,
        });
        Ok(MulticastGroup { group_id, replicas, metadata: metadata.unwrap_or_default() })
    }

    fn node<'a>(&self, of: &'a mut Replication, argument: i16) -> Answer<(i32, &'a mut Node)> {
        let handle = self.i32(argument)?;
        let none = || Fault::Coded(code::INVALID_NODE, format!("there is no node {handle}"));
        of.nodes.get_mut(&handle).map(|node| (handle, node)).ok_or_else(none)
    }

    fn group_id(&self, of: &Replication, argument: i16) -> Answer<u32> {
        let id = self.i32(argument)?;
        let found = u32::try_from(id).ok().filter(|id| of.groups.contains_key(id));
        found.ok_or_else(|| Fault::Coded(code::INVALID_GROUP, format!("there is no multicast group {id}")))
    }
}

pub(crate) fn create_group(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    let given = on.i32(2)?;
    let wrong =
        || Fault::Coded(code::INVALID_MGID, format!("{given} is not a valid multicast group; ids run from 1 to 65535"));
    let id = u16::try_from(given).ok().filter(|id| *id > 0).map(u32::from).ok_or_else(wrong)?;
    if next.groups.contains_key(&id) {
        // No error, as in bmv2.
        return Ok(Some(Value::I32(given)));
    }
    if next.groups.len() >= NODES_MAX {
        return Err(Fault::Coded(code::TABLE_FULL, format!("{NODES_MAX} multicast groups, which is the limit")));
    }
    next.groups.insert(id, Vec::new());
    on.change_by(next, Some(id), UpdateKind::Insert)?;
    Ok(Some(Value::I32(given)))
}

pub(crate) fn destroy_group(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    // A missing group is no error, as in bmv2.
    let Ok(id) = on.group_id(&next, 2) else { return Ok(None) };
    for handle in next.groups.remove(&id).unwrap_or_default() {
        if let Some(node) = next.nodes.get_mut(&handle) {
            node.group = None;
        }
    }
    // Sessions that mirror to it continue, without its copies.
    on.change_by(next, Some(id), UpdateKind::Delete)?;
    Ok(None)
}

pub(crate) fn create_node(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    let rid = on.i32(2)?;
    let rid =
        u16::try_from(rid).map_err(|_| Fault::Coded(code::ERROR, format!("{rid} is not a valid replication id")))?;
    if next.nodes.len() >= NODES_MAX {
        return Err(Fault::Coded(code::TABLE_FULL, format!("{NODES_MAX} nodes, which is the limit")));
    }
    let handle = next.free_handle();
    let (ports, lags) = (map(on.option(3), PORTS_MAX)?, map(on.option(4), LAGS_MAX)?);
    next.nodes.insert(handle, Node { rid: u32::from(rid), ports, lags, group: None });
    on.change(next, None)?;
    Ok(Some(Value::I32(handle)))
}

pub(crate) fn update_node(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    let (ports, lags) = (map(on.option(3), PORTS_MAX)?, map(on.option(4), LAGS_MAX)?);
    let (_, node) = on.node(&mut next, 2)?;
    (node.ports, node.lags) = (ports, lags);
    let group = node.group;
    on.change(next, group)?;
    Ok(None)
}

pub(crate) fn associate(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    let handle = on.node(&mut next, 3)?.0;
    let id = on.group_id(&next, 2)?;
    let (_, node) = on.node(&mut next, 3)?;
    if let Some(group) = node.group {
        let why = format!("node {handle} belongs to multicast group {group} already");
        return Err(Fault::Coded(code::ERROR, why));
    }
    node.group = Some(id);
    next.groups.entry(id).or_default().push(handle);
    on.change(next, Some(id))?;
    Ok(None)
}

pub(crate) fn dissociate(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    let (handle, node) = on.node(&mut next, 3)?;
    let group = node.group;
    let id = on.group_id(&next, 2)?;
    if group != Some(id) {
        return Err(Fault::Coded(code::ERROR, format!("node {handle} does not belong to multicast group {id}")));
    }
    next.dissociate(handle);
    on.change(next, Some(id))?;
    Ok(None)
}

pub(crate) fn destroy_node(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    let (handle, node) = on.node(&mut next, 2)?;
    let group = node.group;
    next.dissociate(handle);
    next.nodes.remove(&handle);
    on.change(next, group)?;
    Ok(None)
}

pub(crate) fn set_lag(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let mut next = on.replication()?;
    let given = on.i32(2)?;
    let lag = u32::try_from(given).ok().filter(|lag| (*lag as usize) < LAGS_MAX);
    let wrong = || {
        Fault::Coded(
            code::ERROR,
            format!("{given} is not a valid aggregation group; they run from 0 to {}", LAGS_MAX - 1),
        )
    };
    let lag = lag.ok_or_else(wrong)?;
    next.lags.insert(lag, map(on.option(3), PORTS_MAX)?);
    let used = next.nodes.values().filter(|node| node.lags.contains(&lag));
    let groups: BTreeSet<u32> = used.filter_map(|node| node.group).collect();
    on.change(next, groups)?;
    Ok(None)
}

pub(crate) fn entries(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let now = on.replication()?;
    // A node here corresponds to one of bmv2's first and one of its second level.
    let all = Entries {
        mgrps: now.groups.iter().map(|(id, nodes)| ToldGroup { id: *id, l1_handles: nodes }).collect(),
        l1_handles: now.nodes.iter().map(|(at, node)| First { handle: *at, rid: node.rid, l2_handle: *at }).collect(),
        l2_handles: now
            .nodes
            .iter()
            .map(|(at, node)| Second { handle: *at, ports: &node.ports, lags: &node.lags })
            .collect(),
        lags: now.lags.iter().map(|(id, ports)| Lag { id: *id, ports }).collect(),
    };
    // All ports of all nodes could exceed the maximum length of an answer.
    let mut text = Bounded::default();
    serde_json::to_writer(&mut text, &all).map_err(|_| TooLong)?;
    Ok(Some(Value::Bytes(text.into_bytes())))
}

/// The result of `bm_mc_get_entries`, as JSON.
#[derive(Serialize)]
struct Entries<'a> {
    mgrps: Vec<ToldGroup<'a>>,
    l1_handles: Vec<First>,
    l2_handles: Vec<Second<'a>>,
    lags: Vec<Lag<'a>>,
}

#[derive(Serialize)]
struct ToldGroup<'a> {
    id: u32,
    l1_handles: &'a [i32],
}

#[derive(Serialize)]
struct First {
    handle: i32,
    rid: u32,
    l2_handle: i32,
}

#[derive(Serialize)]
struct Second<'a> {
    handle: i32,
    ports: &'a BTreeSet<u32>,
    lags: &'a BTreeSet<u32>,
}

#[derive(Serialize)]
struct Lag<'a> {
    id: u32,
    ports: &'a BTreeSet<u32>,
}

// Mirroring sessions.
impl Context<'_> {
    fn session_id(&self) -> Answer<u32> {
        let id = self.i32(1)?;
        let known = u16::try_from(id).ok().filter(|id| *id > 0).map(u32::from);
        known.ok_or_else(|| {
            Fault::with_message(format!("{id} is not a valid mirroring session; ids run from 1 to 65535"))
        })
    }

    fn session(&self, id: u32) -> Answer<Option<CloneSession>> {
        let query = CloneSession { session_id: id, ..CloneSession::default() };
        let found = self.read(Entity::CloneSession(query)).map_err(|error| Fault::with_message(error.message))?;
        Ok(found.into_iter().find_map(|entity| match entity {
            Entity::CloneSession(session) if session.session_id == id => Some(session),
            _ => None,
        }))
    }

    /// All mirroring sessions.
    pub(crate) fn sessions(&self) -> Answer<Vec<CloneSession>> {
        let query = Entity::CloneSession(CloneSession::default());
        let found = self.read(query).map_err(|error| Fault::with_message(error.message))?;
        Ok(found
            .into_iter()
            .filter_map(|entity| if let Entity::CloneSession(s) = entity { Some(s) } else { None })
            .collect())
    }

    /// Restores sessions that were lost when the program was restarted.
    pub(crate) fn put_sessions_back(&self, sessions: Vec<CloneSession>) -> Answer<()> {
        let have: BTreeSet<u32> = self.sessions()?.iter().map(|session| session.session_id).collect();
        for session in sessions.into_iter().filter(|session| !have.contains(&session.session_id)) {
            let put = self.write_one(UpdateKind::Insert, Entity::CloneSession(session));
            put.map_err(|error| Fault::with_message(error.message))?;
        }
        Ok(())
    }

    /// Removes all groups when the program is restarted; sessions that mirror to a group have no copies of it any more.
    pub(crate) fn forget_replication(&mut self) -> Answer<()> {
        let Replication { mirrors, to_ports, .. } = std::mem::take(&mut self.state.replication);
        self.state.replication = Replication { mirrors, to_ports, ..Replication::default() };
        let of = &self.state.replication;
        let updates =
            of.mirrors.iter().map(|(session, (group, port))| self.session_update(of, *session, Some(*group), *port));
        let updates = updates.collect::<Answer<Vec<_>>>()?;
        match updates.is_empty() {
            true => Ok(()),
            false => self.write_all(updates).map_err(|error| Fault::with_message(error.message)),
        }
    }

    /// The update that sets the replicas of a session.
    fn session_update(&self, of: &Replication, id: u32, group: Option<u32>, port: Option<u32>) -> Answer<Update> {
        let mut replicas: Vec<(u32, u32)> = port.map(|port| (port, 0)).into_iter().collect();
        for copy in group.map_or(vec![], |group| of.replicas(group)) {
            if !replicas.contains(&copy) {
                replicas.push(copy);
            }
        }
        let replicas = replicas.into_iter().map(replica).collect();
        let old = self.session(id)?;
        let kind = if old.is_some() { UpdateKind::Modify } else { UpdateKind::Insert };
        let session = CloneSession { session_id: id, replicas, ..old.unwrap_or_default() };
        Ok(Update { kind, entity: Some(Entity::CloneSession(session)) })
    }

    fn add_session(&mut self, group: Option<i32>, port: Option<i32>) -> Answer<()> {
        let id = self.session_id()?;
        let port = port
            .map(|port| u32::try_from(port).map_err(|_| Fault::with_message(format!("{port} is not a valid port"))));
        let group = group.map(|group| {
            u32::try_from(group).map_err(|_| Fault::with_message(format!("{group} is not a valid group")))
        });
        let (port, group) = (port.transpose()?, group.transpose()?);
        let mut next = self.replication()?;
        let update = self.session_update(&next, id, group, port)?;
        self.write_all(vec![update]).map_err(|error| Fault::with_message(error.message))?;
        next.mirrors.remove(&id);
        next.to_ports.remove(&id);
        if let Some(group) = group {
            next.mirrors.insert(id, (group, port));
        } else if let Some(port) = port {
            next.to_ports.insert(id, port);
        }
        self.state.replication = next;
        Ok(())
    }

    fn delete_session(&mut self) -> Answer<bool> {
        let id = self.session_id()?;
        let session = CloneSession { session_id: id, ..CloneSession::default() };
        let there_was = match self.write_one(UpdateKind::Delete, Entity::CloneSession(session)) {
            Ok(()) => true,
            Err(error) if error.code == Code::NotFound => false,
            Err(error) => return Err(Fault::with_message(error.message)),
        };
        self.state.replication.mirrors.remove(&id);
        self.state.replication.to_ports.remove(&id);
        Ok(there_was)
    }

    /// The targets of a session that was created here.
    pub(crate) fn mirrored_here(&self, id: u32) -> Option<Mirrored> {
        let of = &self.state.replication;
        let to_group = of.mirrors.get(&id).map(|(group, port)| Mirrored { group: Some(*group), port: *port });
        to_group.or_else(|| of.to_ports.get(&id).map(|port| Mirrored { group: None, port: Some(*port) }))
    }

    /// The port and the group of the session in the arguments; `None` if it does not exist.
    fn mirrored(&mut self) -> Answer<Option<(Option<u32>, Option<u32>)>> {
        let id = self.session_id()?;
        let Some(session) = self.session(id)? else { return Ok(None) };
        if let Some((group, port)) = self.state.replication.mirrors.get(&id) {
            return Ok(Some((*port, Some(*group))));
        }
        // P4Runtime allows several replicas, which bmv2 has no form for.
        let port = match session.replicas.as_slice() {
            [only] => port_of(&only.port),
            _ => None,
        };
        Ok(Some((port, None)))
    }
}

pub(crate) fn session_add(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let field = |id| match on.option(2).and_then(|config| config.field(id)) {
        Some(Value::I32(number)) => Some(*number),
        _ => None,
    };
    let (port, group) = (field(1), field(2));
    on.add_session(group, port)?;
    Ok(None)
}

pub(crate) fn session_delete(on: &mut Context<'_>) -> Answer<Option<Value>> {
    match on.delete_session()? {
        true => Ok(None),
        false => Err(Fault::Coded(SESSION_NOT_FOUND, "there is no such mirroring session".to_string())),
    }
}

/// The targets of the session in the arguments, as a `MirroringSessionConfig`.
pub(crate) fn session_get(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let Some((port, group)) = on.mirrored()? else {
        return Err(Fault::Coded(SESSION_NOT_FOUND, "there is no such mirroring session".to_string()));
    };
    let field = |id: i16, number: Option<u32>| number.map(|number| (id, Value::I32(number as i32)));
    Ok(Some(Value::Struct(field(1, port).into_iter().chain(field(2, group)).collect())))
}

pub(crate) fn mapping_add(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let port = on.i32(2)?;
    on.add_session(None, Some(port))?;
    Ok(Some(Value::I32(0)))
}

pub(crate) fn mapping_delete(on: &mut Context<'_>) -> Answer<Option<Value>> {
    // Returns whether it existed, as in bmv2.
    on.delete_session().map(|there_was| Some(Value::I32(i32::from(there_was))))
}

pub(crate) fn mapping_get(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let port = on.mirrored()?.and_then(|(port, _)| port);
    Ok(Some(Value::I32(port.map_or(-1, |port| port as i32))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(rid: u32, ports: &[u32], lags: &[u32], group: Option<u32>) -> Node {
        Node { rid, ports: ports.iter().copied().collect(), lags: lags.iter().copied().collect(), group }
    }

    #[test]
    fn a_group_has_the_ports_of_its_nodes_and_one_of_each_aggregation_group() {
        let mut of = Replication::default();
        of.nodes.insert(0, node(5, &[1, 3], &[2], Some(7)));
        of.nodes.insert(1, node(0, &[9], &[4], Some(7)));
        of.groups.insert(7, vec![0, 1]);
        of.lags.insert(2, [10, 11].into());
        of.lags.insert(4, BTreeSet::new());
        // 255 mod 2 is 1.
        assert_eq!(of.replicas(7), [(1, 5), (3, 5), (11, 5), (9, 0)]);
        assert_eq!(of.replicas(8), []);
        assert_eq!(of.free_handle(), 2);
        assert_eq!(of.members(), 7);
        of.dissociate(0);
        of.nodes.remove(&0);
        assert_eq!((of.replicas(7), of.free_handle()), (vec![(9, 0)], 0));
    }

    #[test]
    fn groups_that_others_write_get_nodes() {
        let mut of = Replication::default();
        of.nodes.insert(0, node(1, &[4], &[], None));
        let now = BTreeMap::from([(3, vec![(1, 0), (2, 9), (5, 0)])]);
        of.sync(&now);
        assert_eq!(of.groups[&3], [1, 2]);
        assert_eq!((of.nodes[&1].rid, of.nodes[&1].ports.len(), of.nodes[&2].rid), (0, 2, 9));
        // The same replicas in another order are no change.
        let before = of.groups.clone();
        of.sync(&BTreeMap::from([(3, vec![(5, 0), (2, 9), (1, 0)])]));
        assert_eq!(of.groups, before);
        of.sync(&BTreeMap::new());
        assert_eq!((of.groups.len(), of.nodes.len()), (0, 1));
    }

    #[test]
    fn maps_of_ports_begin_with_the_highest() {
        let of = |digits: &str| map(Some(&Value::text(digits)), PORTS_MAX);
        assert_eq!(of("1010").unwrap(), BTreeSet::from([1, 3]));
        assert_eq!(of("").unwrap(), BTreeSet::new());
        assert!(of("12").is_err());
        assert!(of(&"0".repeat(PORTS_MAX + 1)).is_err());
        assert_eq!([bytes_of(0), bytes_of(300)], [vec![0], vec![1, 44]]);
    }
}

//! Multicast groups and clone sessions (P4Runtime specification, "PacketReplicationEngineEntry").
//!
//! What was written is stored here as sent, and published to the program's groups and sessions, which packets use.
//! Ports are the switch's numbers; the protocol's number for the controller (`SDN_PORT_CPU`) is translated.

use crate::bytes;
use crate::entity::{self, Entity, ReplicaPort, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::Forwarding;
use datapath::replication::{CloneSession, ID_LIMIT, Replica};
use std::collections::{BTreeMap, BTreeSet};

/// The protocol's port number of the controller ("Translation of Port Numbers").
const SDN_PORT_CPU: u32 = 0xffff_fffd;
/// Limit on the replicas of a group or session: more could not be made within the work budget of a burst
/// (`datapath::engine::WORK_MAX`).
pub(crate) const REPLICAS_MAX: usize = 4096;

/// The groups and sessions that controllers wrote.
#[derive(Default, Debug)]
pub(crate) struct ReplicationEntries {
    groups: BTreeMap<u32, entity::MulticastGroup>,
    sessions: BTreeMap<u32, entity::CloneSession>,
}

impl Forwarding {
    /// The controller's port: the one that the program's architecture fixes, or else the switch's.
    pub(crate) fn cpu_port(&self) -> Option<u32> {
        self.built.program.cpu_port.map(|port| port as u32).or_else(|| self.target.cpu_port())
    }

    /// The number of a port, from its byte string. The port must exist, or be one that may be named in advance.
    pub(crate) fn existing_port(&self, port: &[u8], name: &str) -> Result<u32> {
        let bits = bytes::parse(32, port, format!("{name}: the port")).map_err(|e| Error::invalid(e.message))?;
        let port = bits.to_u64().unwrap_or_default() as u32;
        let port = match self.cpu_port() {
            Some(cpu) if port == SDN_PORT_CPU || port == cpu => return Ok(cpu),
            _ => port,
        };
        let ports = self.target.ports();
        let is_recirculation = self.built.program.recirculation_port == Some(port.into());
        let may_come = self.target.ports_to_come().is_some_and(|most| port <= most);
        if is_recirculation || may_come || ports.contains(&port) {
            return Ok(port);
        }
        let ports: Vec<String> = ports.iter().map(u32::to_string).collect();
        let ports = crate::error::choices(ports.iter().map(String::as_str));
        Err(Error::invalid(format!("{name}: there is no port {port}; there is {ports}")))
    }

    /// A port number in the shortest byte string.
    pub(crate) fn port_bytes(&self, port: u32) -> Vec<u8> {
        bytes::shortest(&port.to_be_bytes())
    }

    /// Checks replicas. Returns them as sent, with ports in their shortest form, and as the switch makes them now: for
    /// a replica with backups, the first alternative whose port is up, or none.
    fn replicas(&self, replicas: &[entity::Replica], name: &str) -> Result<(Vec<entity::Replica>, Vec<Replica>)> {
        if replicas.len() > REPLICAS_MAX {
            return Err(Error::exhausted(format!("{name}: {} replicas, the limit is {REPLICAS_MAX}", replicas.len())));
        }
        let mut seen = BTreeSet::new();
        let (mut kept, mut done) = (Vec::new(), Vec::new());
        for replica in replicas {
            let (kept_port, port) = match &replica.port {
                ReplicaPort::Unset => return Err(Error::invalid(format!("{name}: a replica's port is missing"))),
                ReplicaPort::Port(given) => {
                    (ReplicaPort::Port(bytes::shortest(given)), self.existing_port(given, name)?)
                }
                ReplicaPort::Number(given) => (replica.port.clone(), self.existing_port(&given.to_be_bytes(), name)?),
            };
            let mut alternatives = vec![Replica { port, instance: replica.instance }];
            let mut backups = Vec::new();
            for backup in &replica.backups {
                let spare = Replica { port: self.existing_port(&backup.port, name)?, instance: backup.instance };
                if spare.port == port {
                    return Err(Error::invalid(format!("{name}: port {port} is its own backup")));
                }
                alternatives.push(spare);
                let port = bytes::shortest(&backup.port);
                backups.push(entity::BackupReplica { port, instance: backup.instance });
            }
            for Replica { port, instance } in &alternatives {
                if *instance > u32::from(u16::MAX) {
                    return Err(Error::invalid(format!("{name}: the instance {instance} is above {}", u16::MAX)));
                }
                if !seen.insert((*port, *instance)) {
                    return Err(Error::invalid(format!("{name}: port {port} with instance {instance} is given twice")));
                }
            }
            let has_backups = !backups.is_empty();
            kept.push(entity::Replica { port: kept_port, instance: replica.instance, backups });
            // A packet to a port that is down is dropped there, as usual; the link state matters only if there are
            // backups.
            done.extend(alternatives.into_iter().find(|r| !has_backups || self.target.port_is_up(r.port)));
        }
        Ok((kept, done))
    }

    /// Publishes groups and sessions with backups again after link states changed.
    pub(crate) fn follow_links(&self) {
        let spared = |replicas: &[entity::Replica]| replicas.iter().any(|r| !r.backups.is_empty());
        // They were checked when they were written; one whose port no longer exists stays as it is.
        for (id, group) in self.replication.groups.iter().filter(|(_, group)| spared(&group.replicas)) {
            if let Ok((_, done)) = self.replicas(&group.replicas, "") {
                let _ = publish_group(&self.built.replication, *id, done, "");
            }
        }
        for (id, session) in self.replication.sessions.iter().filter(|(_, session)| spared(&session.replicas)) {
            let done = self.replicas(&session.replicas, "");
            if let Ok(done) = done.and_then(|(_, done)| clone_session(session, done, "")) {
                let _ = publish_session(&self.built.replication, *id, done, "");
            }
        }
    }

    pub(crate) fn write_multicast_group(&mut self, kind: UpdateKind, group: &entity::MulticastGroup) -> Result<()> {
        let name = format!("multicast group {}", group.group_id);
        check_change(kind, group.group_id, self.replication.groups.contains_key(&group.group_id), &name)?;
        if kind == UpdateKind::Delete {
            self.replication.groups.remove(&group.group_id);
            let _ = self.built.replication.group_delete(group.group_id);
            return Ok(());
        }
        let (replicas, done) = self.replicas(&group.replicas, &name)?;
        self.replication.groups.insert(group.group_id, entity::MulticastGroup { replicas, ..group.clone() });
        publish_group(&self.built.replication, group.group_id, done, &name)
    }

    pub(crate) fn write_clone_session(&mut self, kind: UpdateKind, session: &entity::CloneSession) -> Result<()> {
        let id = session.session_id;
        let name = format!("clone session {id}");
        check_change(kind, id, self.replication.sessions.contains_key(&id), &name)?;
        if kind == UpdateKind::Delete {
            self.replication.sessions.remove(&id);
            let _ = self.built.replication.session_delete(id);
            return Ok(());
        }
        let (replicas, done) = self.replicas(&session.replicas, &name)?;
        let done = clone_session(session, done, &name)?;
        self.replication.sessions.insert(id, entity::CloneSession { replicas, ..session.clone() });
        publish_session(&self.built.replication, id, done, &name)
    }

    /// Imports groups and sessions that were set up without the control plane, as `--entries` files do.
    pub(crate) fn adopt_replication(&mut self) {
        let replicas = |all: &[Replica]| {
            let port = |port: u32| ReplicaPort::Port(bytes::shortest(&port.to_be_bytes()));
            let one = |r: &Replica| entity::Replica { port: port(r.port), instance: r.instance, ..Default::default() };
            all.iter().map(one).collect()
        };
        for (group_id, all) in self.built.replication.groups() {
            let adopted = || entity::MulticastGroup { group_id, replicas: replicas(&all), metadata: vec![] };
            self.replication.groups.entry(group_id).or_insert_with(adopted);
        }
        // Scripts may define session 0, which P4Runtime cannot name.
        for (session_id, session) in self.built.replication.sessions().into_iter().filter(|(id, _)| *id != 0) {
            let adopted = || entity::CloneSession {
                session_id,
                replicas: replicas(&session.replicas),
                class_of_service: session.class_of_service,
                packet_length_bytes: i32::try_from(session.packet_length_bytes).unwrap_or(0),
            };
            self.replication.sessions.entry(session_id).or_insert_with(adopted);
        }
    }

    pub(crate) fn read_multicast_groups(&self, query: &entity::MulticastGroup, into: &mut Vec<Entity>) -> Result<()> {
        let groups = self.replication.groups.iter();
        let selected = groups.filter(|(id, _)| query.group_id == 0 || query.group_id == **id);
        into.extend(selected.map(|(_, group)| Entity::MulticastGroup(group.clone())));
        Ok(())
    }

    pub(crate) fn read_clone_sessions(&self, query: &entity::CloneSession, into: &mut Vec<Entity>) -> Result<()> {
        let sessions = self.replication.sessions.iter();
        let selected = sessions.filter(|(id, _)| query.session_id == 0 || query.session_id == **id);
        into.extend(selected.map(|(_, session)| Entity::CloneSession(session.clone())));
        Ok(())
    }
}

fn check_change(kind: UpdateKind, id: u32, exists: bool, name: &str) -> Result<()> {
    match (kind, exists) {
        _ if id == 0 || id >= ID_LIMIT => Err(Error::invalid(format!("{name}: ids run from 1 to {}", ID_LIMIT - 1))),
        (UpdateKind::Insert, true) => Err(Error::already_exists(format!("{name} exists already"))),
        (UpdateKind::Modify | UpdateKind::Delete, false) => Err(Error::not_found(format!("{name} does not exist"))),
        _ => Ok(()),
    }
}

fn clone_session(session: &entity::CloneSession, replicas: Vec<Replica>, name: &str) -> Result<CloneSession> {
    let packet_length_bytes = u32::try_from(session.packet_length_bytes).map_err(|_| {
        Error::invalid(format!("{name}: the packet length {} is negative", session.packet_length_bytes))
    })?;
    Ok(CloneSession { replicas, class_of_service: session.class_of_service, packet_length_bytes })
}

fn publish_group(to: &datapath::replication::Replication, id: u32, replicas: Vec<Replica>, name: &str) -> Result<()> {
    let done = match to.group(id) {
        Some(_) => to.group_modify(id, replicas),
        None => to.group_insert(id, replicas),
    };
    done.map_err(|e| Error::internal(format!("{name}: {e}")))
}

fn publish_session(to: &datapath::replication::Replication, id: u32, session: CloneSession, name: &str) -> Result<()> {
    let done = match to.session(id) {
        Some(_) => to.session_modify(id, session),
        None => to.session_insert(id, session),
    };
    done.map_err(|e| Error::internal(format!("{name}: {e}")))
}

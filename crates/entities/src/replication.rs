//! Multicast groups and clone sessions (P4Runtime specification, "PacketReplicationEngineEntry").

use crate::names::Names;
use crate::text::{bytes_text, port_bytes, port_text};
use crate::{Change, Kind, Verb};
use messages::p4::v1 as pb;
use pb::entity::Entity;
use pb::packet_replication_engine_entry::Type;
use serde_json::{Value, json};
use std::fmt::Write;
use stf::Command;
use stf::script::ReplicaText;

/// The kind of multicast groups.
pub(crate) struct MulticastGroups;
/// The kind of clone sessions.
pub(crate) struct CloneSessions;

fn of(r#type: Type) -> Entity {
    Entity::PacketReplicationEngineEntry(pb::PacketReplicationEngineEntry { r#type: Some(r#type) })
}

fn multicast(entity: &Entity) -> Option<&pb::MulticastGroupEntry> {
    match entity {
        Entity::PacketReplicationEngineEntry(entry) => match entry.r#type.as_ref()? {
            Type::MulticastGroupEntry(group) => Some(group),
            Type::CloneSessionEntry(_) => None,
        },
        _ => None,
    }
}

fn session(entity: &Entity) -> Option<&pb::CloneSessionEntry> {
    match entity {
        Entity::PacketReplicationEngineEntry(entry) => match entry.r#type.as_ref()? {
            Type::CloneSessionEntry(session) => Some(session),
            Type::MulticastGroupEntry(_) => None,
        },
        _ => None,
    }
}

fn number(name: Option<&str>, what: &str) -> Result<u32, String> {
    name.map_or(Ok(0), |name| name.parse().map_err(|_| format!("`{name}` is no {what}: a number")))
}

impl Kind for MulticastGroups {
    fn noun(&self) -> &'static str {
        "multicast group"
    }

    fn queries(&self, _: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        let multicast_group_id = number(name, self.noun())?;
        Ok(vec![of(Type::MulticastGroupEntry(pb::MulticastGroupEntry { multicast_group_id, ..Default::default() }))])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let multicast_group_id = multicast(entity)?.multicast_group_id;
        Some(of(Type::MulticastGroupEntry(pb::MulticastGroupEntry { multicast_group_id, ..Default::default() })))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        true
    }

    fn line(&self, _: &Names, entity: &Entity) -> Option<String> {
        let group = multicast(entity)?;
        let mut line = format!("multicast {}{}", group.multicast_group_id, replicas_text(&group.replicas));
        if !group.metadata.is_empty() {
            let _ = write!(line, " metadata={}", bytes_text(&group.metadata));
        }
        Some(line)
    }

    fn order(&self, _: &Names, entity: &Entity) -> Vec<u8> {
        multicast(entity).map_or_else(Vec::new, |group| group.multicast_group_id.to_be_bytes().to_vec())
    }

    fn json(&self, _: &Names, entity: &Entity) -> Value {
        let Some(group) = multicast(entity) else { return Value::Null };
        let mut object = json!({ "group": group.multicast_group_id, "replicas": replicas_json(&group.replicas) });
        if !group.metadata.is_empty() {
            object["metadata"] = bytes_text(&group.metadata).into();
        }
        object
    }

    fn change(&self, _: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::Multicast { group, replicas, metadata } = command else { return None };
        let entry = pb::MulticastGroupEntry {
            multicast_group_id: *group,
            replicas: replicas.iter().map(replica).collect(),
            metadata: metadata.clone(),
        };
        Some(Ok(Change { verb: Verb::Set, entity: of(Type::MulticastGroupEntry(entry)) }))
    }
}

impl Kind for CloneSessions {
    fn noun(&self) -> &'static str {
        "clone session"
    }

    fn queries(&self, _: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        let session_id = number(name, self.noun())?;
        Ok(vec![of(Type::CloneSessionEntry(pb::CloneSessionEntry { session_id, ..Default::default() }))])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let session_id = session(entity)?.session_id;
        Some(of(Type::CloneSessionEntry(pb::CloneSessionEntry { session_id, ..Default::default() })))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        true
    }

    fn line(&self, _: &Names, entity: &Entity) -> Option<String> {
        let session = session(entity)?;
        let mut line = format!("clone {}{}", session.session_id, replicas_text(&session.replicas));
        if session.class_of_service != 0 {
            let _ = write!(line, " class_of_service={}", session.class_of_service);
        }
        if session.packet_length_bytes != 0 {
            let _ = write!(line, " packet_length={}", session.packet_length_bytes);
        }
        Some(line)
    }

    fn order(&self, _: &Names, entity: &Entity) -> Vec<u8> {
        session(entity).map_or_else(Vec::new, |session| session.session_id.to_be_bytes().to_vec())
    }

    fn json(&self, _: &Names, entity: &Entity) -> Value {
        let Some(session) = session(entity) else { return Value::Null };
        json!({
            "session": session.session_id,
            "replicas": replicas_json(&session.replicas),
            "class_of_service": session.class_of_service,
            "packet_length_bytes": session.packet_length_bytes,
        })
    }

    fn change(&self, _: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::Clone { session, replicas, class_of_service, packet_length_bytes } = command else { return None };
        let entry = i32::try_from(*packet_length_bytes).map(|packet_length_bytes| pb::CloneSessionEntry {
            session_id: *session,
            replicas: replicas.iter().map(replica).collect(),
            class_of_service: *class_of_service,
            packet_length_bytes,
        });
        let entry = entry.map_err(|_| format!("the length {packet_length_bytes} is too large"));
        Some(entry.map(|entry| Change { verb: Verb::Set, entity: of(Type::CloneSessionEntry(entry)) }))
    }
}

fn replica(text: &ReplicaText) -> pb::Replica {
    let mut alternatives = text.alternatives.iter();
    let first = alternatives.next();
    let backup = |&(port, instance): &(u32, u32)| pb::BackupReplica { port: port_bytes(port), instance };
    pb::Replica {
        port_kind: first.map(|(port, _)| pb::replica::PortKind::Port(port_bytes(*port))),
        instance: first.map_or(0, |(_, instance)| *instance),
        backup_replicas: alternatives.map(backup).collect(),
    }
}

#[allow(deprecated, reason = "what older controllers wrote is printed, too")]
fn port_of(replica: &pb::Replica) -> String {
    match &replica.port_kind {
        Some(pb::replica::PortKind::EgressPort(port)) => port.to_string(),
        Some(pb::replica::PortKind::Port(port)) => port_text(port),
        None => "0".to_string(),
    }
}

fn replicas_text(replicas: &[pb::Replica]) -> String {
    let mut text = String::new();
    for replica in replicas {
        let backups = replica.backup_replicas.iter().map(|b| (port_text(&b.port), b.instance));
        for (at, (port, instance)) in [(port_of(replica), replica.instance)].into_iter().chain(backups).enumerate() {
            text.push(if at == 0 { ' ' } else { '|' });
            text += &port;
            if instance != 0 {
                let _ = write!(text, ":{instance}");
            }
        }
    }
    text
}

fn replicas_json(replicas: &[pb::Replica]) -> Value {
    let backup = |b: &pb::BackupReplica| json!({ "port": port_text(&b.port), "instance": b.instance });
    let one = |r: &pb::Replica| {
        let mut object = json!({ "port": port_of(r), "instance": r.instance });
        if !r.backup_replicas.is_empty() {
            object["backups"] = r.backup_replicas.iter().map(backup).collect();
        }
        object
    };
    replicas.iter().map(one).collect()
}

//! Conversion from messages to entities.

use super::ids::{election_id, role};
use crate::proto::p4::v1 as pb;
use control::entity as to;

/// Converts a batch of updates.
///
/// # Errors
///
/// INVALID_ARGUMENT for an atomicity that the protocol does not define.
pub fn write_request(request: pb::WriteRequest) -> Result<to::WriteRequest, control::Error> {
    #[allow(deprecated, reason = "older controllers give their role by number")]
    let role = role(request.role, request.role_id);
    let atomicity = match pb::write_request::Atomicity::try_from(request.atomicity) {
        Ok(pb::write_request::Atomicity::RollbackOnError) => to::Atomicity::RollbackOnError,
        Ok(pb::write_request::Atomicity::DataplaneAtomic) => to::Atomicity::DataplaneAtomic,
        Ok(pb::write_request::Atomicity::ContinueOnError) => to::Atomicity::ContinueOnError,
        Err(_) => {
            let message = format!("there is no atomicity {}; there are 0, 1 and 2", request.atomicity);
            return Err(control::Error::invalid(message));
        }
    };
    Ok(to::WriteRequest {
        device_id: request.device_id,
        role,
        election_id: election_id(request.election_id),
        updates: request.updates.into_iter().map(update).collect(),
        atomicity,
    })
}

fn update(update: pb::Update) -> to::Update {
    let kind = match pb::update::Type::try_from(update.r#type) {
        Ok(pb::update::Type::Insert) => to::UpdateKind::Insert,
        Ok(pb::update::Type::Modify) => to::UpdateKind::Modify,
        Ok(pb::update::Type::Delete) => to::UpdateKind::Delete,
        Ok(pb::update::Type::Unspecified) | Err(_) => to::UpdateKind::Unspecified,
    };
    to::Update { kind, entity: update.entity.and_then(entity) }
}

/// Converts the entities of a read request.
pub fn read_entities(entities: Vec<pb::Entity>) -> Vec<Option<to::Entity>> {
    entities.into_iter().map(entity).collect()
}

/// Converts an entity; `None` if the message has none.
pub fn entity(entity: pb::Entity) -> Option<to::Entity> {
    use pb::entity::Entity as E;
    use pb::packet_replication_engine_entry::Type as Replication;
    Some(match entity.entity? {
        E::ExternEntry(e) => super::calculation::from_entry(e),
        E::TableEntry(e) => to::Entity::Table(table_entry(e)),
        E::ActionProfileMember(e) => to::Entity::Member(to::Member {
            action_profile_id: e.action_profile_id,
            member_id: e.member_id,
            action: e.action.map(action),
        }),
        E::ActionProfileGroup(e) => to::Entity::Group(group(e)),
        E::MeterEntry(e) => to::Entity::Meter(to::MeterEntry {
            meter_id: e.meter_id,
            index: e.index.map(|i| i.index),
            config: e.config.map(meter_config),
            counter_data: e.counter_data.map(meter_counter_data),
        }),
        E::DirectMeterEntry(e) => to::Entity::DirectMeter(to::DirectMeterEntry {
            table_entry: e.table_entry.map(table_entry),
            config: e.config.map(meter_config),
            counter_data: e.counter_data.map(meter_counter_data),
        }),
        E::CounterEntry(e) => to::Entity::Counter(to::CounterEntry {
            counter_id: e.counter_id,
            index: e.index.map(|i| i.index),
            data: e.data.map(counter_data),
        }),
        E::DirectCounterEntry(e) => to::Entity::DirectCounter(to::DirectCounterEntry {
            table_entry: e.table_entry.map(table_entry),
            data: e.data.map(counter_data),
        }),
        E::PacketReplicationEngineEntry(e) => match e.r#type? {
            Replication::MulticastGroupEntry(e) => to::Entity::MulticastGroup(to::MulticastGroup {
                group_id: e.multicast_group_id,
                replicas: e.replicas.into_iter().map(replica).collect(),
                metadata: e.metadata,
            }),
            Replication::CloneSessionEntry(e) => to::Entity::CloneSession(to::CloneSession {
                session_id: e.session_id,
                replicas: e.replicas.into_iter().map(replica).collect(),
                class_of_service: e.class_of_service,
                packet_length_bytes: e.packet_length_bytes,
            }),
        },
        E::ValueSetEntry(e) => to::Entity::ValueSet(to::ValueSetEntry {
            value_set_id: e.value_set_id,
            members: e.members.into_iter().map(|m| m.r#match.into_iter().map(field_match).collect()).collect(),
        }),
        E::RegisterEntry(e) => to::Entity::Register(to::RegisterEntry {
            register_id: e.register_id,
            index: e.index.map(|i| i.index),
            data: e.data.and_then(p4_data),
        }),
        E::DigestEntry(e) => to::Entity::Digest(to::DigestEntry {
            digest_id: e.digest_id,
            config: e.config.map(|c| to::DigestConfig {
                max_timeout_ns: c.max_timeout_ns,
                max_list_size: c.max_list_size,
                ack_timeout_ns: c.ack_timeout_ns,
            }),
        }),
    })
}

fn table_entry(e: pb::TableEntry) -> to::TableEntry {
    to::TableEntry {
        table_id: e.table_id,
        matches: e.r#match.into_iter().map(field_match).collect(),
        action: e.action.and_then(|a| a.r#type).map(table_action),
        priority: e.priority,
        #[allow(deprecated, reason = "older controllers use it")]
        controller_metadata: e.controller_metadata,
        metadata: e.metadata,
        meter_config: e.meter_config.map(meter_config),
        counter_data: e.counter_data.map(counter_data),
        meter_counter_data: e.meter_counter_data.map(meter_counter_data),
        is_default_action: e.is_default_action,
        idle_timeout_ns: e.idle_timeout_ns,
        time_since_last_hit: e.time_since_last_hit.map(|t| t.elapsed_ns),
        is_const: e.is_const,
    }
}

fn field_match(m: pb::FieldMatch) -> to::FieldMatch {
    use pb::field_match::FieldMatchType as M;
    let value = match m.field_match_type {
        None => to::MatchValue::Unset,
        Some(M::Exact(m)) => to::MatchValue::Exact(m.value),
        Some(M::Ternary(m)) => to::MatchValue::Ternary { value: m.value, mask: m.mask },
        Some(M::Lpm(m)) => to::MatchValue::Lpm { value: m.value, prefix_len: m.prefix_len },
        Some(M::Range(m)) => to::MatchValue::Range { low: m.low, high: m.high },
        Some(M::Optional(m)) => to::MatchValue::Optional(m.value),
        Some(M::Other(m)) => to::MatchValue::Other(m.type_url),
    };
    to::FieldMatch { field_id: m.field_id, value }
}

fn table_action(a: pb::table_action::Type) -> to::TableAction {
    use pb::table_action::Type as A;
    match a {
        A::Action(a) => to::TableAction::Action(action(a)),
        A::ActionProfileMemberId(id) => to::TableAction::Member(id),
        A::ActionProfileGroupId(id) => to::TableAction::Group(id),
        A::ActionProfileActionSet(set) => to::TableAction::OneShot(to::ActionSet {
            actions: set.action_profile_actions.into_iter().map(weighted_action).collect(),
            selection_mode: set.action_selection_mode,
            size_semantics: set.size_semantics,
            group_action: set.group_action.map(action),
        }),
    }
}

fn action(a: pb::Action) -> to::Action {
    to::Action { action_id: a.action_id, params: a.params.into_iter().map(|p| (p.param_id, p.value)).collect() }
}

#[allow(deprecated, reason = "older controllers give watch ports by number")]
fn weighted_action(a: pb::ActionProfileAction) -> to::WeightedAction {
    use pb::action_profile_action::WatchKind;
    let watch = match a.watch_kind {
        None => to::Watch::Unset,
        Some(WatchKind::Watch(port)) => to::Watch::Number(port),
        Some(WatchKind::WatchPort(port)) => to::Watch::Port(port),
    };
    to::WeightedAction { action: a.action.map(action), weight: a.weight, watch }
}

#[allow(deprecated, reason = "older controllers give watch ports by number")]
fn group(g: pb::ActionProfileGroup) -> to::Group {
    use pb::action_profile_group::member::WatchKind;
    let member = |m: pb::action_profile_group::Member| to::GroupMember {
        member_id: m.member_id,
        weight: m.weight,
        watch: match m.watch_kind {
            None => to::Watch::Unset,
            Some(WatchKind::Watch(port)) => to::Watch::Number(port),
            Some(WatchKind::WatchPort(port)) => to::Watch::Port(port),
        },
    };
    to::Group {
        action_profile_id: g.action_profile_id,
        group_id: g.group_id,
        members: g.members.into_iter().map(member).collect(),
        max_size: g.max_size,
    }
}

fn meter_config(c: pb::MeterConfig) -> to::MeterConfig {
    to::MeterConfig { cir: c.cir, cburst: c.cburst, pir: c.pir, pburst: c.pburst, eburst: c.eburst }
}

fn counter_data(d: pb::CounterData) -> to::CounterData {
    to::CounterData { byte_count: d.byte_count, packet_count: d.packet_count }
}

fn meter_counter_data(d: pb::MeterCounterData) -> to::MeterCounterData {
    to::MeterCounterData {
        green: d.green.map(counter_data),
        yellow: d.yellow.map(counter_data),
        red: d.red.map(counter_data),
    }
}

#[allow(deprecated, reason = "older controllers give ports by number")]
fn replica(r: pb::Replica) -> to::Replica {
    use pb::replica::PortKind;
    let port = match r.port_kind {
        None => to::ReplicaPort::Unset,
        Some(PortKind::EgressPort(port)) => to::ReplicaPort::Number(port),
        Some(PortKind::Port(port)) => to::ReplicaPort::Port(port),
    };
    let backup = |b: pb::BackupReplica| to::BackupReplica { port: b.port, instance: b.instance };
    to::Replica { port, instance: r.instance, backups: r.backup_replicas.into_iter().map(backup).collect() }
}

fn p4_header(header: pb::P4Header) -> to::P4Data {
    to::P4Data::Header { is_valid: header.is_valid, bitstrings: header.bitstrings }
}

/// A union counts as valid if it names a member or has a header; whether it has both is checked together with its type.
fn p4_header_union(union: pb::P4HeaderUnion) -> to::P4Data {
    let is_invalid = union.valid_header_name.is_empty() && union.valid_header.is_none();
    let header = Box::new(p4_header(union.valid_header.unwrap_or_default()));
    to::P4Data::HeaderUnion((!is_invalid).then_some((union.valid_header_name, header)))
}

fn p4_data(data: pb::P4Data) -> Option<to::P4Data> {
    use pb::p4_data::Data as D;
    let members = |s: pb::P4StructLike| s.members.into_iter().map(p4_data).collect::<Option<Vec<_>>>();
    Some(match data.data? {
        D::Bitstring(value) => to::P4Data::Bitstring(value),
        D::Varbit(v) => to::P4Data::Varbit { bitstring: v.bitstring, bitwidth: v.bitwidth },
        D::Bool(value) => to::P4Data::Bool(value),
        D::Tuple(s) => to::P4Data::Tuple(members(s)?),
        D::Struct(s) => to::P4Data::Struct(members(s)?),
        D::Header(h) => p4_header(h),
        D::HeaderUnion(u) => p4_header_union(u),
        D::HeaderStack(s) => to::P4Data::HeaderStack(s.entries.into_iter().map(p4_header).collect()),
        D::HeaderUnionStack(s) => to::P4Data::HeaderUnionStack(s.entries.into_iter().map(p4_header_union).collect()),
        D::Enum(name) => to::P4Data::Enum(name),
        D::Error(name) => to::P4Data::Error(name),
        D::EnumValue(value) => to::P4Data::EnumValue(value),
    })
}

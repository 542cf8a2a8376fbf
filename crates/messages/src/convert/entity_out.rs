//! Conversion from entities to messages.

use crate::proto::p4::v1 as pb;
use control::entity as from;

/// Converts an entity that was read.
pub fn entity_to_proto(entity: from::Entity) -> pb::Entity {
    use pb::entity::Entity as E;
    use pb::packet_replication_engine_entry::Type as Replication;
    let replication = |entry| E::PacketReplicationEngineEntry(pb::PacketReplicationEngineEntry { r#type: Some(entry) });
    let entity = match entity {
        from::Entity::Extern { extern_type_id, extern_id } => {
            E::ExternEntry(pb::ExternEntry { extern_type_id, extern_id, entry: None })
        }
        from::Entity::Calculation(e) => E::ExternEntry(super::calculation::to_entry(e)),
        from::Entity::Table(e) => E::TableEntry(table_entry(e)),
        from::Entity::Member(m) => E::ActionProfileMember(pb::ActionProfileMember {
            action_profile_id: m.action_profile_id,
            member_id: m.member_id,
            action: m.action.map(action),
        }),
        from::Entity::Group(g) => E::ActionProfileGroup(group(g)),
        from::Entity::Meter(e) => E::MeterEntry(pb::MeterEntry {
            meter_id: e.meter_id,
            index: e.index.map(|index| pb::Index { index }),
            config: e.config.map(meter_config),
            counter_data: e.counter_data.map(meter_counter_data),
        }),
        from::Entity::DirectMeter(e) => E::DirectMeterEntry(pb::DirectMeterEntry {
            table_entry: e.table_entry.map(table_entry),
            config: e.config.map(meter_config),
            counter_data: e.counter_data.map(meter_counter_data),
        }),
        from::Entity::Counter(e) => E::CounterEntry(pb::CounterEntry {
            counter_id: e.counter_id,
            index: e.index.map(|index| pb::Index { index }),
            data: e.data.map(counter_data),
        }),
        from::Entity::DirectCounter(e) => E::DirectCounterEntry(pb::DirectCounterEntry {
            table_entry: e.table_entry.map(table_entry),
            data: e.data.map(counter_data),
        }),
        from::Entity::MulticastGroup(g) => replication(Replication::MulticastGroupEntry(pb::MulticastGroupEntry {
            multicast_group_id: g.group_id,
            replicas: g.replicas.into_iter().map(replica).collect(),
            metadata: g.metadata,
        })),
        from::Entity::CloneSession(s) => replication(Replication::CloneSessionEntry(pb::CloneSessionEntry {
            session_id: s.session_id,
            replicas: s.replicas.into_iter().map(replica).collect(),
            class_of_service: s.class_of_service,
            packet_length_bytes: s.packet_length_bytes,
        })),
        from::Entity::ValueSet(e) => E::ValueSetEntry(pb::ValueSetEntry {
            value_set_id: e.value_set_id,
            members: e
                .members
                .into_iter()
                .map(|m| pb::ValueSetMember { r#match: m.into_iter().map(field_match).collect() })
                .collect(),
        }),
        from::Entity::Register(e) => E::RegisterEntry(pb::RegisterEntry {
            register_id: e.register_id,
            index: e.index.map(|index| pb::Index { index }),
            data: e.data.map(p4_data),
        }),
        from::Entity::Digest(e) => E::DigestEntry(pb::DigestEntry {
            digest_id: e.digest_id,
            config: e.config.map(|c| pb::digest_entry::Config {
                max_timeout_ns: c.max_timeout_ns,
                max_list_size: c.max_list_size,
                ack_timeout_ns: c.ack_timeout_ns,
            }),
        }),
    };
    pb::Entity { entity: Some(entity) }
}

pub(super) fn table_entry(e: from::TableEntry) -> pb::TableEntry {
    pb::TableEntry {
        table_id: e.table_id,
        r#match: e.matches.into_iter().map(field_match).collect(),
        action: e.action.map(|a| pb::TableAction { r#type: Some(table_action(a)) }),
        priority: e.priority,
        #[allow(deprecated, reason = "older controllers use it")]
        controller_metadata: e.controller_metadata,
        metadata: e.metadata,
        meter_config: e.meter_config.map(meter_config),
        counter_data: e.counter_data.map(counter_data),
        meter_counter_data: e.meter_counter_data.map(meter_counter_data),
        is_default_action: e.is_default_action,
        idle_timeout_ns: e.idle_timeout_ns,
        time_since_last_hit: e.time_since_last_hit.map(|elapsed_ns| pb::table_entry::IdleTimeout { elapsed_ns }),
        is_const: e.is_const,
    }
}

fn field_match(m: from::FieldMatch) -> pb::FieldMatch {
    use pb::field_match as f;
    let value = match m.value {
        from::MatchValue::Unset => None,
        from::MatchValue::Exact(value) => Some(f::FieldMatchType::Exact(f::Exact { value })),
        from::MatchValue::Ternary { value, mask } => Some(f::FieldMatchType::Ternary(f::Ternary { value, mask })),
        from::MatchValue::Lpm { value, prefix_len } => Some(f::FieldMatchType::Lpm(f::Lpm { value, prefix_len })),
        from::MatchValue::Range { low, high } => Some(f::FieldMatchType::Range(f::Range { low, high })),
        from::MatchValue::Optional(value) => Some(f::FieldMatchType::Optional(f::Optional { value })),
        from::MatchValue::Other(type_url) => {
            Some(f::FieldMatchType::Other(prost_types::Any { type_url, value: vec![] }))
        }
    };
    pb::FieldMatch { field_id: m.field_id, field_match_type: value }
}

fn table_action(a: from::TableAction) -> pb::table_action::Type {
    use pb::table_action::Type as A;
    match a {
        from::TableAction::Action(a) => A::Action(action(a)),
        from::TableAction::Member(id) => A::ActionProfileMemberId(id),
        from::TableAction::Group(id) => A::ActionProfileGroupId(id),
        from::TableAction::OneShot(set) => A::ActionProfileActionSet(pb::ActionProfileActionSet {
            action_profile_actions: set.actions.into_iter().map(weighted_action).collect(),
            action_selection_mode: set.selection_mode,
            size_semantics: set.size_semantics,
            group_action: set.group_action.map(action),
        }),
    }
}

fn action(a: from::Action) -> pb::Action {
    let params = a.params.into_iter().map(|(param_id, value)| pb::action::Param { param_id, value }).collect();
    pb::Action { action_id: a.action_id, params }
}

#[allow(deprecated, reason = "older controllers give watch ports by number")]
fn weighted_action(a: from::WeightedAction) -> pb::ActionProfileAction {
    use pb::action_profile_action::WatchKind;
    let watch_kind = match a.watch {
        from::Watch::Unset => None,
        from::Watch::Number(port) => Some(WatchKind::Watch(port)),
        from::Watch::Port(port) => Some(WatchKind::WatchPort(port)),
    };
    pb::ActionProfileAction { action: a.action.map(action), weight: a.weight, watch_kind }
}

#[allow(deprecated, reason = "older controllers give watch ports by number")]
fn group(g: from::Group) -> pb::ActionProfileGroup {
    use pb::action_profile_group::member::WatchKind;
    let member = |m: from::GroupMember| pb::action_profile_group::Member {
        member_id: m.member_id,
        weight: m.weight,
        watch_kind: match m.watch {
            from::Watch::Unset => None,
            from::Watch::Number(port) => Some(WatchKind::Watch(port)),
            from::Watch::Port(port) => Some(WatchKind::WatchPort(port)),
        },
    };
    pb::ActionProfileGroup {
        action_profile_id: g.action_profile_id,
        group_id: g.group_id,
        members: g.members.into_iter().map(member).collect(),
        max_size: g.max_size,
    }
}

fn meter_config(c: from::MeterConfig) -> pb::MeterConfig {
    pb::MeterConfig { cir: c.cir, cburst: c.cburst, pir: c.pir, pburst: c.pburst, eburst: c.eburst }
}

fn counter_data(d: from::CounterData) -> pb::CounterData {
    pb::CounterData { byte_count: d.byte_count, packet_count: d.packet_count }
}

fn meter_counter_data(d: from::MeterCounterData) -> pb::MeterCounterData {
    pb::MeterCounterData {
        green: d.green.map(counter_data),
        yellow: d.yellow.map(counter_data),
        red: d.red.map(counter_data),
    }
}

#[allow(deprecated, reason = "older controllers give ports by number")]
fn replica(r: from::Replica) -> pb::Replica {
    use pb::replica::PortKind;
    let port_kind = match r.port {
        from::ReplicaPort::Unset => None,
        from::ReplicaPort::Number(port) => Some(PortKind::EgressPort(port)),
        from::ReplicaPort::Port(port) => Some(PortKind::Port(port)),
    };
    let backup = |b: from::BackupReplica| pb::BackupReplica { port: b.port, instance: b.instance };
    pb::Replica { port_kind, instance: r.instance, backup_replicas: r.backups.into_iter().map(backup).collect() }
}

/// Converts a header of a stack or union, which contain nothing else.
fn p4_header(data: from::P4Data) -> pb::P4Header {
    match data {
        from::P4Data::Header { is_valid, bitstrings } => pb::P4Header { is_valid, bitstrings },
        _ => pb::P4Header::default(),
    }
}

fn p4_header_union(union: Option<(String, Box<from::P4Data>)>) -> pb::P4HeaderUnion {
    let (valid_header_name, valid_header) = union.map(|(name, header)| (name, p4_header(*header))).unzip();
    pb::P4HeaderUnion { valid_header_name: valid_header_name.unwrap_or_default(), valid_header }
}

pub(super) fn p4_data(data: from::P4Data) -> pb::P4Data {
    use pb::p4_data::Data as D;
    let members = |members: Vec<from::P4Data>| pb::P4StructLike { members: members.into_iter().map(p4_data).collect() };
    let data = match data {
        from::P4Data::Bitstring(value) => Some(D::Bitstring(value)),
        from::P4Data::Varbit { bitstring, bitwidth } => Some(D::Varbit(pb::P4Varbit { bitstring, bitwidth })),
        from::P4Data::Bool(value) => Some(D::Bool(value)),
        from::P4Data::Tuple(m) => Some(D::Tuple(members(m))),
        from::P4Data::Struct(m) => Some(D::Struct(members(m))),
        from::P4Data::Header { is_valid, bitstrings } => Some(D::Header(pb::P4Header { is_valid, bitstrings })),
        from::P4Data::Enum(name) => Some(D::Enum(name)),
        from::P4Data::Error(name) => Some(D::Error(name)),
        from::P4Data::EnumValue(value) => Some(D::EnumValue(value)),
        from::P4Data::HeaderUnion(union) => Some(D::HeaderUnion(p4_header_union(union))),
        from::P4Data::HeaderStack(entries) => {
            Some(D::HeaderStack(pb::P4HeaderStack { entries: entries.into_iter().map(p4_header).collect() }))
        }
        from::P4Data::HeaderUnionStack(entries) => {
            let union = |entry| match entry {
                from::P4Data::HeaderUnion(union) => p4_header_union(union),
                _ => pb::P4HeaderUnion::default(),
            };
            Some(D::HeaderUnionStack(pb::P4HeaderUnionStack { entries: entries.into_iter().map(union).collect() }))
        }
    };
    pb::P4Data { data }
}

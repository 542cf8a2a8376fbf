//! Meaningful updates and queries for a program, as a correct controller could send them, about existing and missing
//! entities.

use super::model::Model;
use super::table_rules::{Value, value_of};
use super::target::PORTS;
use crate::generate::Dice;
use base::Bits;
use base::entry::MatchKind;
use control::entity::*;
use p4info::{
    ActionProfile, ActionRef, ActionScope, DataType, MatchField, MatchType, MeterType, ObjectKind, P4Info, Table,
};

/// A random update.
pub(super) fn update(dice: &mut Dice, model: &Model) -> Update {
    let kind = *dice.pick(&[UpdateKind::Insert, UpdateKind::Insert, UpdateKind::Modify, UpdateKind::Delete]);
    let modify = |entity| Update { kind: UpdateKind::Modify, entity: Some(entity) };
    let info = &model.info;
    // Mostly tables; also if the program has no object of the chosen kind.
    let entity = match dice.below(16) {
        0 | 1 if !info.action_profiles.is_empty() => member(dice, model),
        2 | 3 if info.action_profiles.iter().any(|p| p.with_selector) => group(dice, model),
        4 if !info.counters.is_empty() => {
            let counter = dice.pick(&info.counters);
            let (counter_id, index) = (counter.preamble.id, index(dice, counter.size));
            return modify(Entity::Counter(CounterEntry { counter_id, index, data: count(dice) }));
        }
        5 if !info.meters.is_empty() => {
            let meter = dice.pick(&info.meters);
            let (meter_id, index) = (meter.preamble.id, index(dice, meter.size));
            let config = meter_config(dice, meter.meter_type);
            return modify(Entity::Meter(MeterEntry { meter_id, index, config, counter_data: colours(dice) }));
        }
        6 if !info.registers.is_empty() => {
            let register = dice.pick(&info.registers);
            let (register_id, index) = (register.preamble.id, index(dice, i64::from(register.size)));
            let data = data(dice, info, &register.type_spec);
            return modify(Entity::Register(RegisterEntry { register_id, index, data }));
        }
        7 if !info.value_sets.is_empty() => {
            let set = dice.pick(&info.value_sets);
            let members = (0..dice.below(4)).map(|_| matches(dice, info, &set.match_fields)).collect();
            return modify(Entity::ValueSet(ValueSetEntry { value_set_id: set.preamble.id, members }));
        }
        8 if !info.digests.is_empty() => {
            let digest_id = dice.pick(&info.digests).preamble.id;
            let config = DigestConfig {
                max_timeout_ns: dice.below(1000) as i64,
                max_list_size: dice.below(10) as i32,
                ack_timeout_ns: 0,
            };
            Entity::Digest(DigestEntry { digest_id, config: (!dice.one_in(4)).then_some(config) })
        }
        9 => {
            let (group_id, replicas) = (1 + dice.below(6) as u32, replicas(dice));
            Entity::MulticastGroup(MulticastGroup { group_id, replicas, metadata: metadata(dice) })
        }
        10 => Entity::CloneSession(CloneSession {
            session_id: 1 + dice.below(6) as u32,
            replicas: replicas(dice),
            class_of_service: dice.below(8) as u32,
            packet_length_bytes: dice.below(100) as i32,
        }),
        11 if info.tables.iter().any(|t| !t.direct_resource_ids.is_empty()) => {
            let tables: Vec<&Table> = info.tables.iter().filter(|t| !t.direct_resource_ids.is_empty()).collect();
            let table = *dice.pick(&tables);
            let TableEntry { table_id, matches, priority, .. } = table_entry(dice, model, table);
            let entry = match dice.one_in(5) {
                true => TableEntry { table_id, is_default_action: true, ..Default::default() },
                false => TableEntry { table_id, matches, priority, ..Default::default() },
            };
            let table_entry = Some(entry);
            let is_counter = |id: &u32| ObjectKind::of(*id) == Some(ObjectKind::DirectCounter);
            return modify(match is_counter(dice.pick(&table.direct_resource_ids)) {
                true => Entity::DirectCounter(DirectCounterEntry { table_entry, data: count(dice) }),
                false => {
                    let config = meter_config(dice, model.direct_meter_type(table_id).unwrap_or_default());
                    Entity::DirectMeter(DirectMeterEntry { table_entry, config, counter_data: colours(dice) })
                }
            });
        }
        12 if !info.tables.is_empty() => {
            let table = dice.pick(&info.tables);
            let action = (!dice.one_in(3)).then(|| TableAction::Action(action(dice, info, &table.action_refs, true)));
            let (table_id, is_default_action, metadata) = (table.preamble.id, true, metadata(dice));
            let (counter_data, meter_config, meter_counter_data) = resources(dice, model, table);
            let entry = TableEntry {
                table_id,
                is_default_action,
                action,
                metadata,
                counter_data,
                meter_config,
                meter_counter_data,
                ..Default::default()
            };
            return modify(Entity::Table(entry));
        }
        _ if !info.tables.is_empty() => {
            let table = dice.pick(&info.tables);
            Entity::Table(table_entry(dice, model, table))
        }
        _ => Entity::Digest(DigestEntry::default()),
    };
    let mut update = Update { kind, entity: Some(entity) };
    if dice.one_in(4) {
        return update;
    }
    // Prefers a kind of update that succeeds in the current state.
    let kinds = [kind, UpdateKind::Insert, UpdateKind::Modify, UpdateKind::Delete];
    for kind in kinds {
        update.kind = kind;
        if model.judge(&update).faults.is_empty() {
            break;
        }
    }
    update
}

/// A random query.
pub(super) fn query(dice: &mut Dice, model: &Model) -> Entity {
    if dice.one_in(3) {
        let all = super::read::everything(&model.info);
        return dice.pick(&all).clone();
    }
    let stranger = dice.one_in(8);
    match update(dice, model).entity {
        Some(Entity::Table(entry)) => {
            let known = model.tables.get(&entry.table_id).filter(|entries| !entries.is_empty());
            let existing = known.map(|entries| {
                let all: Vec<_> = entries.values().collect();
                dice.pick(&all).entry.clone()
            });
            let of = existing.filter(|_| !stranger).unwrap_or(entry);
            // An entry by its key, or all entries that pass one or two filters.
            let mut query = TableEntry { table_id: of.table_id, ..Default::default() };
            if dice.one_in(2) && !of.is_default_action {
                (query.matches, query.priority) = (of.matches, of.priority);
                // Queries need a valid key.
                let table = model.table(query.table_id);
                let right = table.is_some_and(|t| model.judge_key(t, &query, &mut Default::default()).is_some());
                if !right {
                    (query.matches, query.priority) = (vec![], 0);
                } else if let Some(table) = table {
                    query.matches = super::table_rules::canonical_matches(&table.match_fields, &query.matches);
                }
            } else {
                match dice.below(5) {
                    0 => query.priority = of.priority,
                    1 => query.metadata = of.metadata,
                    2 => query.controller_metadata = of.controller_metadata,
                    3 if matches!(of.action, Some(TableAction::Action(_))) => query.action = of.action,
                    _ => query.is_default_action = dice.one_in(2),
                }
            }
            query.counter_data = dice.one_in(2).then(Default::default);
            query.meter_config = dice.one_in(2).then(Default::default);
            query.meter_counter_data = dice.one_in(2).then(Default::default);
            Entity::Table(query)
        }
        None => Entity::Digest(Default::default()),
        Some(Entity::DirectCounter(e)) => {
            let table_entry = e.table_entry.map(|entry| asked(model, entry));
            Entity::DirectCounter(DirectCounterEntry { table_entry, data: None })
        }
        Some(Entity::DirectMeter(e)) => {
            let table_entry = e.table_entry.map(|entry| asked(model, entry));
            let counter_data = dice.one_in(2).then(Default::default);
            Entity::DirectMeter(DirectMeterEntry { table_entry, config: None, counter_data })
        }
        // Of a large array, the model knows single cells only.
        Some(Entity::Register(RegisterEntry { index: None, .. })) => Entity::Digest(Default::default()),
        Some(Entity::Register(e)) => Entity::Register(RegisterEntry { data: None, ..e }),
        Some(Entity::Counter(e)) => Entity::Counter(CounterEntry { data: None, ..e }),
        Some(Entity::Meter(e)) => Entity::Meter(MeterEntry { config: None, ..e }),
        Some(other) => other,
    }
}

/// A query for an entry with this key, in canonical form, or without a key if it is invalid.
fn asked(model: &Model, entry: TableEntry) -> TableEntry {
    let (table_id, is_default_action) = (entry.table_id, entry.is_default_action);
    let Some(table) = model.table(table_id) else { return entry };
    if is_default_action || model.judge_key(table, &entry, &mut Default::default()).is_none() {
        return TableEntry { table_id, is_default_action, ..Default::default() };
    }
    let matches = super::table_rules::canonical_matches(&table.match_fields, &entry.matches);
    TableEntry { matches, ..entry }
}

type Resources = (Option<CounterData>, Option<MeterConfig>, Option<MeterCounterData>);

/// Some of a table's direct resources.
fn resources(dice: &mut Dice, model: &Model, table: &Table) -> Resources {
    let has = |kind| table.direct_resource_ids.iter().any(|id| ObjectKind::of(*id) == Some(kind));
    let counter = if has(ObjectKind::DirectCounter) && dice.one_in(2) { count(dice) } else { None };
    if !has(ObjectKind::DirectMeter) {
        return (counter, None, None);
    }
    let of = model.direct_meter_type(table.preamble.id).unwrap_or_default();
    let meter = if dice.one_in(2) { meter_config(dice, of) } else { None };
    (counter, meter, colours(dice))
}

fn table_entry(dice: &mut Dice, model: &Model, table: &Table) -> TableEntry {
    let info = &model.info;
    let existing = model.tables.get(&table.preamble.id).filter(|entries| !entries.is_empty());
    // Half of the updates concern an existing entry; most do if there are many, which bounds their number.
    let reuse = existing.filter(|entries| dice.one_in(2) || entries.len() > 40);
    let (matches, priority) = match reuse {
        Some(entries) => {
            let all: Vec<_> = entries.values().collect();
            let old = &dice.pick(&all).entry;
            (old.matches.clone(), old.priority)
        }
        None => {
            let needs = |f: &MatchField| matches!(f.match_type, MatchType::Known(kind) if kind.needs_priority());
            let priority = table.match_fields.iter().any(needs).then(|| 1 + dice.below(5) as i32);
            (matches(dice, info, &table.match_fields), priority.unwrap_or(0))
        }
    };
    let (counter_data, meter_config, meter_counter_data) = resources(dice, model, table);
    TableEntry {
        table_id: table.preamble.id,
        matches,
        priority,
        action: (!dice.one_in(10)).then(|| entry_action(dice, model, table)),
        controller_metadata: if dice.one_in(4) { dice.below(3) as u64 } else { 0 },
        metadata: metadata(dice),
        counter_data,
        meter_config,
        meter_counter_data,
        idle_timeout_ns: if table.idle_timeout && dice.one_in(2) { 1 + dice.below(1 << 40) as i64 } else { 0 },
        ..Default::default()
    }
}

fn entry_action(dice: &mut Dice, model: &Model, table: &Table) -> TableAction {
    let Some(profile) = table.implementation_id.and_then(|id| model.profile(id)) else {
        return TableAction::Action(action(dice, &model.info, &table.action_refs, false));
    };
    match dice.below(4) {
        0 | 1 => TableAction::Member(1 + dice.below(8) as u32),
        2 if profile.with_selector => TableAction::Group(1 + dice.below(4) as u32),
        _ if profile.with_selector && !model.has_manual(profile.preamble.id) => {
            let actions = (0..1 + dice.below(3)).map(|_| WeightedAction {
                action: Some(profile_action(dice, model, profile)),
                weight: if profile.weights_disallowed { 0 } else { 1 + dice.below(3) as i32 },
                watch: watch(dice),
            });
            let actions = actions.collect();
            let (selection_mode, size_semantics) = (dice.below(3) as i32, dice.below(3) as i32);
            let for_groups = |a: &&ActionRef| a.scope == ActionScope::GroupAction;
            let for_groups: Vec<ActionRef> = table.action_refs.iter().filter(for_groups).cloned().collect();
            let before = !for_groups.is_empty() && dice.one_in(2);
            let group_action = before.then(|| call(dice, &model.info, &for_groups));
            TableAction::OneShot(ActionSet { actions, selection_mode, size_semantics, group_action })
        }
        _ => TableAction::Member(1 + dice.below(8) as u32),
    }
}

fn profile_action(dice: &mut Dice, model: &Model, profile: &ActionProfile) -> Action {
    let table = profile.table_ids.first().and_then(|id| model.table(*id));
    action(dice, &model.info, table.map_or(&[], |t| &t.action_refs), false)
}

fn action(dice: &mut Dice, info: &P4Info, list: &[ActionRef], default: bool) -> Action {
    let wrong = if default { ActionScope::TableOnly } else { ActionScope::DefaultOnly };
    let fits = |listed: &&ActionRef| listed.scope != wrong && listed.scope != ActionScope::GroupAction;
    call(dice, info, &list.iter().filter(fits).cloned().collect::<Vec<_>>())
}

/// A call of one of the actions in a list.
fn call(dice: &mut Dice, info: &P4Info, list: &[ActionRef]) -> Action {
    if list.is_empty() {
        return Action::default();
    }
    let action_id = dice.pick(list).id;
    let action = info.actions.iter().find(|a| a.preamble.id == action_id);
    let params = action.map_or(&[][..], |a| &a.params);
    let value = |p: &p4info::Param| (p.id, bytes(dice, value_of(info, p.bitwidth, p.type_name.as_ref())));
    Action { action_id, params: params.iter().map(value).collect() }
}

fn member(dice: &mut Dice, model: &Model) -> Entity {
    let profile = dice.pick(&model.info.action_profiles);
    let action = Some(profile_action(dice, model, profile));
    Entity::Member(Member { action_profile_id: profile.preamble.id, member_id: 1 + dice.below(8) as u32, action })
}

fn group(dice: &mut Dice, model: &Model) -> Entity {
    let profiles: Vec<&ActionProfile> = model.info.action_profiles.iter().filter(|p| p.with_selector).collect();
    let profile = *dice.pick(&profiles);
    let mut members: Vec<GroupMember> = Vec::new();
    for _ in 0..dice.below(4) {
        let member_id = 1 + dice.below(8) as u32;
        if members.iter().all(|m| m.member_id != member_id) {
            let weight = if profile.weights_disallowed { 0 } else { 1 + dice.below(3) as i32 };
            members.push(GroupMember { member_id, weight, watch: watch(dice) });
        }
    }
    let limit = profile.max_group_size;
    let max_size = if limit > 0 { limit.min(6) } else { [0, 6][dice.below(2)] };
    Entity::Group(Group {
        action_profile_id: profile.preamble.id,
        group_id: 1 + dice.below(4) as u32,
        members,
        max_size,
    })
}

fn watch(dice: &mut Dice) -> Watch {
    match dice.below(4) {
        0 => Watch::Port(vec![*dice.pick(&PORTS) as u8]),
        1 => Watch::Number(*dice.pick(&PORTS) as i32),
        _ => Watch::Unset,
    }
}

fn replicas(dice: &mut Dice) -> Vec<Replica> {
    let mut replicas: Vec<Replica> = Vec::new();
    for _ in 0..dice.below(4) {
        let (port, instance) = (*dice.pick(&PORTS), dice.below(3) as u32);
        let given = match dice.one_in(3) {
            true => ReplicaPort::Number(port),
            false => ReplicaPort::Port(vec![port as u8]),
        };
        let mut spare = || BackupReplica { port: vec![*dice.pick(&PORTS) as u8], instance: 3 + dice.below(3) as u32 };
        let backups = if port == 1 { vec![spare(), spare()] } else { vec![] };
        replicas.push(Replica { port: given, instance, backups });
    }
    replicas
}

fn metadata(dice: &mut Dice) -> Vec<u8> {
    if dice.one_in(4) { vec![dice.below(3) as u8] } else { vec![] }
}

fn index(dice: &mut Dice, size: i64) -> Option<i64> {
    let all = size <= super::read::CELLS_MAX && dice.one_in(8);
    (!all && size > 0).then(|| dice.below(size.min(super::read::CELLS_MAX) as usize) as i64)
}

fn count(dice: &mut Dice) -> Option<CounterData> {
    let data = CounterData { byte_count: dice.below(1 << 40) as i64, packet_count: dice.below(1 << 20) as i64 };
    (!dice.one_in(8)).then_some(data)
}

/// Zero counters for colours, the only values that may be written, or none.
fn colours(dice: &mut Dice) -> Option<MeterCounterData> {
    dice.one_in(4).then(|| {
        let mut of = || dice.one_in(2).then(CounterData::default);
        MeterCounterData { green: of(), yellow: of(), red: of() }
    })
}

fn meter_config(dice: &mut Dice, of: MeterType) -> Option<MeterConfig> {
    let (cir, cburst) = (dice.below(1 << 20) as i64, 1 + dice.below(9000) as i64);
    let one_rate = MeterConfig { cir, pir: cir, cburst, pburst: cburst, eburst: 0 };
    let config = match of {
        MeterType::SingleRateTwoColor => one_rate,
        MeterType::SingleRateThreeColor => MeterConfig { eburst: dice.below(9000) as i64, ..one_rate },
        MeterType::TwoRateThreeColor => {
            MeterConfig { pir: cir + dice.below(1 << 20) as i64, pburst: 1 + dice.below(9000) as i64, ..one_rate }
        }
    };
    (!dice.one_in(4)).then_some(config)
}

/// Matches on key fields, usually valid.
fn matches(dice: &mut Dice, info: &P4Info, fields: &[MatchField]) -> Vec<FieldMatch> {
    let one = |field: &MatchField| {
        let MatchType::Known(kind) = field.match_type else { return None };
        let value = value_of(info, field.bitwidth, field.type_name.as_ref());
        let value = match (kind, value) {
            (MatchKind::Exact, value) => MatchValue::Exact(bytes(dice, value)),
            _ if dice.one_in(3) => return None,
            (MatchKind::Optional, value) => MatchValue::Optional(bytes(dice, value)),
            (_, Value::Text | Value::Number(0)) => return None,
            (MatchKind::Ternary, Value::Wide(wide, _)) if dice.one_in(2) => {
                MatchValue::Ternary { value: bytes(dice, value), mask: short(&Bits::ones(wide)) }
            }
            (MatchKind::Lpm, Value::Number(width) | Value::Wide(_, width)) => {
                let prefix_len = 1 + dice.below(width as usize) as u32;
                let host = u64::from(width - prefix_len);
                let value = dice.bits(width).lshr(host).shl(host);
                MatchValue::Lpm { value: short(&value), prefix_len: prefix_len as i32 }
            }
            (MatchKind::Ternary, Value::Number(width) | Value::Wide(_, width)) => {
                let mask = dice.bits(width);
                if mask.is_zero() {
                    return None;
                }
                MatchValue::Ternary { value: short(&dice.bits(width).and(&mask)), mask: short(&mask) }
            }
            (MatchKind::Range, Value::Number(width) | Value::Wide(_, width)) => {
                let (a, b) = (dice.bits(width), dice.bits(width));
                let (low, high) = if a.ult(&b) { (a, b) } else { (b, a) };
                if low.is_zero() && high == Bits::ones(width) {
                    return None;
                }
                MatchValue::Range { low: short(&low), high: short(&high) }
            }
        };
        Some(FieldMatch { field_id: field.id, value })
    };
    fields.iter().filter_map(one).collect()
}

fn short(value: &Bits) -> Vec<u8> {
    super::model::shortest(&value.to_bytes_be())
}

fn bytes(dice: &mut Dice, value: Value) -> Vec<u8> {
    match value {
        Value::Number(0) => vec![0],
        Value::Number(width) => short(&dice.bits(width)),
        // Few values that do not fit: each permanently takes one of the data plane's numbers.
        Value::Wide(wide, _) if dice.one_in(4) => short(&Bits::ones(wide)),
        Value::Wide(_, width) => short(&dice.bits(width)),
        Value::Text => dice.pick(&["", "a", "b", "7", "port 9", "007"]).as_bytes().to_vec(),
    }
}

/// A value of a type; `None` for types without values here.
fn data(dice: &mut Dice, info: &P4Info, data_type: &DataType) -> Option<P4Data> {
    let types = &info.type_info;
    Some(match data_type {
        DataType::Bit(width) => P4Data::Bitstring(short(&dice.bits(*width))),
        DataType::Int(width) => {
            // Sign-extended to whole bytes: always valid, but not always the shortest form.
            P4Data::Bitstring(dice.bits(*width).sext(width.div_ceil(8) * 8).to_bytes_be())
        }
        DataType::Bool => P4Data::Bool(dice.one_in(2)),
        DataType::NewType(name) => data(dice, info, &types.new_types.get(name)?.underlying)?,
        DataType::SerializableEnum(name) => {
            P4Data::EnumValue(short(&dice.bits(types.serializable_enums.get(name)?.bitwidth)))
        }
        DataType::Enum(name) => P4Data::Enum(dice.pick(&types.enums.get(name)?.members).clone()),
        DataType::Error => P4Data::Error(dice.pick(types.error.as_ref()?).clone()),
        DataType::Struct(name) => {
            let members = &types.structs.get(name)?.members;
            P4Data::Struct(members.iter().map(|(_, m)| data(dice, info, m)).collect::<Option<_>>()?)
        }
        DataType::Tuple(members) => P4Data::Tuple(members.iter().map(|m| data(dice, info, m)).collect::<Option<_>>()?),
        DataType::Header(name) => {
            let is_valid = dice.one_in(2);
            let field = |(_, member): &(String, DataType)| match data(dice, info, member)? {
                P4Data::Bitstring(_) if matches!(member, DataType::Int(_)) => None,
                P4Data::Bitstring(value) | P4Data::EnumValue(value) => Some(value),
                P4Data::Varbit { bitstring, .. } => Some(bitstring),
                _ => None,
            };
            let bitstrings = types.headers.get(name)?.members.iter().map(field).collect::<Option<_>>()?;
            P4Data::Header { is_valid, bitstrings: if is_valid { bitstrings } else { vec![] } }
        }
        DataType::HeaderUnion(name) => {
            let (member, header) = dice.pick(&types.header_unions.get(name)?.members);
            let valid = match data(dice, info, header)? {
                header @ P4Data::Header { is_valid: true, .. } => Some((member.clone(), Box::new(header))),
                _ => None,
            };
            P4Data::HeaderUnion(valid)
        }
        DataType::HeaderStack { header, size } => {
            let header = DataType::Header(header.clone());
            P4Data::HeaderStack((0..*size).map(|_| data(dice, info, &header)).collect::<Option<_>>()?)
        }
        DataType::HeaderUnionStack { header_union, size } => {
            let union = DataType::HeaderUnion(header_union.clone());
            P4Data::HeaderUnionStack((0..*size).map(|_| data(dice, info, &union)).collect::<Option<_>>()?)
        }
        DataType::Varbit(max) => {
            let bytes = dice.below(*max as usize / 8 + 1) as u32;
            P4Data::Varbit { bitstring: dice.bits(bytes * 8).to_bytes_be(), bitwidth: bytes as i32 * 8 }
        }
    })
}

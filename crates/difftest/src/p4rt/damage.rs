//! Damage to requests, as by malicious, broken or outdated controllers. Not all damage makes a request invalid: a byte
//! string may have leading zeros. The model decides.

use crate::generate::Dice;
use control::Code;
use control::entity::*;

/// Damages a request outside its updates. Returns the codes with which the whole request may then be refused.
pub(super) fn envelope(dice: &mut Dice, request: &mut WriteRequest, device: u64) -> Option<Vec<Code>> {
    if !dice.one_in(100) {
        return None;
    }
    match dice.below(4) {
        0 => {
            request.device_id = device + 1;
            Some(vec![Code::NotFound])
        }
        1 => {
            request.election_id = None;
            Some(vec![Code::PermissionDenied])
        }
        2 => {
            request.election_id = request.election_id.map(|id| id - 1);
            Some(vec![Code::PermissionDenied])
        }
        _ => {
            request.role = Role { name: "nobody".to_string(), id: 0 };
            Some(vec![Code::NotFound, Code::PermissionDenied])
        }
    }
}

/// Damages an update.
pub(super) fn update(dice: &mut Dice, update: &mut Update) {
    match dice.below(24) {
        0 => update.kind = UpdateKind::Unspecified,
        1 => update.kind = *dice.pick(&[UpdateKind::Insert, UpdateKind::Modify, UpdateKind::Delete]),
        2 => update.entity = None,
        3 => {
            let (extern_type_id, extern_id) = (dice.below(200) as u32, dice.below(3) as u32);
            update.entity = Some(Entity::Extern { extern_type_id, extern_id });
        }
        _ => {
            if let Some(entity) = &mut update.entity {
                damage_entity(dice, entity);
            }
        }
    }
}

fn damage_entity(dice: &mut Dice, entity: &mut Entity) {
    match entity {
        Entity::Extern { .. } | Entity::Calculation(_) => {}
        Entity::Table(entry) => table_entry(dice, entry),
        Entity::Member(member) => match dice.below(3) {
            0 => id(dice, &mut member.action_profile_id),
            1 => id(dice, &mut member.member_id),
            _ => damage_action(dice, &mut member.action),
        },
        Entity::Group(group) => match dice.below(5) {
            0 => id(dice, &mut group.action_profile_id),
            1 => id(dice, &mut group.group_id),
            2 => group.max_size = *dice.pick(&[-1, 0, 1, 3, i32::MAX]),
            3 => repeat_one(dice, &mut group.members),
            _ => {
                if let Some(member) = one_of(dice, &mut group.members) {
                    match dice.below(3) {
                        0 => id(dice, &mut member.member_id),
                        1 => member.weight = *dice.pick(&[-1, 0, 1000]),
                        _ => watch(dice, &mut member.watch),
                    }
                }
            }
        },
        Entity::Counter(e) => cell(dice, &mut e.counter_id, &mut e.index),
        Entity::Register(e) => match (dice.one_in(2), &mut e.data) {
            (true, Some(data)) => damage_data(dice, data),
            (true, none) => *none = Some(P4Data::Bool(true)),
            (false, _) => cell(dice, &mut e.register_id, &mut e.index),
        },
        Entity::Meter(e) => match dice.below(3) {
            0 => meter(dice, &mut e.config),
            1 => e.counter_data = Some(colours(dice)),
            _ => cell(dice, &mut e.meter_id, &mut e.index),
        },
        Entity::DirectCounter(e) => match (dice.one_in(6), &mut e.table_entry) {
            (false, Some(entry)) => table_entry(dice, entry),
            _ => e.table_entry = None,
        },
        Entity::DirectMeter(e) => match (dice.one_in(3), &mut e.table_entry) {
            (false, Some(entry)) => table_entry(dice, entry),
            _ if dice.one_in(2) => e.counter_data = Some(colours(dice)),
            _ => meter(dice, &mut e.config),
        },
        Entity::MulticastGroup(group) => match dice.one_in(3) {
            true => id(dice, &mut group.group_id),
            false => replicas(dice, &mut group.replicas),
        },
        Entity::CloneSession(session) => match dice.below(4) {
            0 => id(dice, &mut session.session_id),
            1 => session.packet_length_bytes = *dice.pick(&[-1, 0, 1, i32::MAX]),
            _ => replicas(dice, &mut session.replicas),
        },
        Entity::ValueSet(set) => match dice.below(3) {
            0 => id(dice, &mut set.value_set_id),
            1 => repeat_one(dice, &mut set.members),
            _ => {
                if let Some(member) = one_of(dice, &mut set.members) {
                    matches(dice, member);
                }
            }
        },
        Entity::Digest(digest) => match (dice.one_in(3), &mut digest.config) {
            (true, Some(config)) => config.max_timeout_ns = *dice.pick(&[-1, 0, 1]),
            _ => id(dice, &mut digest.digest_id),
        },
    }
}

/// Counters for colours: values that a controller must not write, or none.
fn colours(dice: &mut Dice) -> MeterCounterData {
    let red = dice.one_in(2).then_some(CounterData { byte_count: 0, packet_count: 1 });
    MeterCounterData { red, ..Default::default() }
}

fn table_entry(dice: &mut Dice, entry: &mut TableEntry) {
    match dice.below(14) {
        0 => id(dice, &mut entry.table_id),
        1 => entry.priority = *dice.pick(&[-1, 0, 1, i32::MIN, i32::MAX]),
        2 => entry.is_const = true,
        3 => entry.is_default_action = !entry.is_default_action,
        4 => entry.idle_timeout_ns = *dice.pick(&[-1, 1, i64::MAX]),
        5 => entry.time_since_last_hit = Some(0),
        6 => entry.counter_data = Some(CounterData { byte_count: *dice.pick(&[-1, 0, i64::MAX]), packet_count: 1 }),
        7 => meter(dice, &mut entry.meter_config),
        8 => entry.meter_counter_data = Some(colours(dice)),
        9 | 10 => match &mut entry.action {
            Some(TableAction::Action(action)) => damage_params(dice, action),
            Some(TableAction::Member(number) | TableAction::Group(number)) => id(dice, number),
            Some(TableAction::OneShot(set)) => action_set(dice, set),
            none => *none = Some(TableAction::Member(1)),
        },
        11 => {
            entry.action = [None, Some(TableAction::Group(1)), Some(TableAction::OneShot(Default::default()))]
                [dice.below(3)]
            .clone()
        }
        _ => matches(dice, &mut entry.matches),
    }
}

fn action_set(dice: &mut Dice, set: &mut ActionSet) {
    match dice.below(6) {
        0 => set.selection_mode = dice.below(4) as i32,
        1 => set.size_semantics = dice.below(4) as i32,
        2 => set.group_action = Some(Action::default()),
        3 => set.actions.clear(),
        _ => {
            if let Some(part) = one_of(dice, &mut set.actions) {
                match dice.below(3) {
                    0 => part.weight = *dice.pick(&[-1, 0, 1_000_000]),
                    1 => watch(dice, &mut part.watch),
                    _ => damage_action(dice, &mut part.action),
                }
            }
        }
    }
}

fn damage_action(dice: &mut Dice, action: &mut Option<Action>) {
    match action {
        Some(given) if !dice.one_in(5) => damage_params(dice, given),
        _ => *action = None,
    }
}

fn damage_params(dice: &mut Dice, action: &mut Action) {
    if dice.one_in(4) {
        return id(dice, &mut action.action_id);
    }
    match dice.below(3) {
        0 => repeat_one(dice, &mut action.params),
        1 => {
            let _ = action.params.pop();
        }
        _ => {
            if let Some((number, value)) = one_of(dice, &mut action.params) {
                if dice.one_in(4) { id(dice, number) } else { bytes(dice, value) }
            }
        }
    }
}

fn matches(dice: &mut Dice, matches: &mut Vec<FieldMatch>) {
    match dice.below(6) {
        0 => repeat_one(dice, matches),
        1 => {
            let _ = matches.pop();
        }
        2 => matches.reverse(),
        _ => {
            let Some(field) = one_of(dice, matches) else { return };
            if dice.one_in(5) {
                return id(dice, &mut field.field_id);
            }
            match (&mut field.value, dice.below(8)) {
                (value, 0) => {
                    *value = dice
                        .pick(&[
                            MatchValue::Unset,
                            MatchValue::Exact(vec![1]),
                            MatchValue::Optional(vec![1]),
                            MatchValue::Ternary { value: vec![1], mask: vec![1] },
                            MatchValue::Ternary { value: vec![0], mask: vec![0] },
                            MatchValue::Lpm { value: vec![0], prefix_len: 0 },
                            MatchValue::Range { low: vec![3], high: vec![2] },
                            MatchValue::Other("type.googleapis.com/x".to_string()),
                        ])
                        .clone();
                }
                (MatchValue::Lpm { prefix_len, .. }, 1..=3) => *prefix_len = *dice.pick(&[-1, 0, 1, 33, i32::MAX]),
                (MatchValue::Ternary { mask, .. }, 1..=3) => bytes(dice, mask),
                (MatchValue::Range { high, .. }, 1..=3) => bytes(dice, high),
                (
                    MatchValue::Exact(value)
                    | MatchValue::Optional(value)
                    | MatchValue::Ternary { value, .. }
                    | MatchValue::Lpm { value, .. }
                    | MatchValue::Range { low: value, .. },
                    _,
                ) => bytes(dice, value),
                (MatchValue::Unset | MatchValue::Other(_), _) => {}
            }
        }
    }
}

fn bytes(dice: &mut Dice, value: &mut Vec<u8>) {
    match dice.below(6) {
        // Equivalent: a leading zero.
        0 | 1 => value.insert(0, 0),
        2 => value.clear(),
        3 => value.insert(0, 0xff),
        4 => value.push(1),
        _ => *value = vec![0xff; 1 + dice.below(20)],
    }
}

fn damage_data(dice: &mut Dice, data: &mut P4Data) {
    match data {
        P4Data::Bitstring(value) | P4Data::EnumValue(value) if !dice.one_in(4) => bytes(dice, value),
        P4Data::Struct(values) | P4Data::Tuple(values) if dice.one_in(4) => values.truncate(1),
        P4Data::Struct(values) | P4Data::Tuple(values) => {
            if let Some(value) = one_of(dice, values) {
                damage_data(dice, value);
            }
        }
        other => *other = P4Data::Error("NoSuchError".to_string()),
    }
}

fn meter(dice: &mut Dice, config: &mut Option<MeterConfig>) {
    let config = config.get_or_insert_default();
    match dice.below(4) {
        0 => config.cir = *dice.pick(&[-1, i64::MAX]),
        1 => config.pir = *dice.pick(&[-1, 0]),
        2 => config.eburst = 1,
        _ => config.pburst = *dice.pick(&[-1, 0]),
    }
}

fn replicas(dice: &mut Dice, replicas: &mut Vec<Replica>) {
    if dice.one_in(4) {
        return repeat_one(dice, replicas);
    }
    let Some(replica) = one_of(dice, replicas) else { return };
    match dice.below(5) {
        0 => replica.backups.push(BackupReplica { port: vec![2], instance: 0x1_0000 }),
        1 => replica.instance = *dice.pick(&[0xffff, 0x1_0000, u32::MAX]),
        2 => replica.port = ReplicaPort::Unset,
        3 => replica.port = ReplicaPort::Number(*dice.pick(&[0, 99, 510, 0xffff_fffd, u32::MAX])),
        _ => {
            let mut value = vec![1];
            bytes(dice, &mut value);
            replica.port = ReplicaPort::Port(value);
        }
    }
}

fn watch(dice: &mut Dice, watch: &mut Watch) {
    let mut value = vec![1];
    bytes(dice, &mut value);
    *watch = [Watch::Number(-1), Watch::Number(77), Watch::Port(value), Watch::Unset][dice.below(4)].clone();
}

fn cell(dice: &mut Dice, number: &mut u32, index: &mut Option<i64>) {
    // Without an index, another array might be written as a whole.
    if dice.one_in(2) && index.is_some() {
        return id(dice, number);
    }
    *index = Some(*dice.pick(&[-1, 0, i64::MAX, i64::MIN, 1 << 33]));
}

fn id(dice: &mut Dice, number: &mut u32) {
    *number = match dice.below(5) {
        0 => 0,
        1 => number.wrapping_add(1),
        2 => *number ^ (1 << dice.below(32)),
        3 => u32::MAX,
        _ => dice.below(20) as u32,
    };
}

fn one_of<'a, T>(dice: &mut Dice, list: &'a mut [T]) -> Option<&'a mut T> {
    if list.is_empty() { None } else { Some(&mut list[dice.below(list.len())]) }
}

fn repeat_one<T: Clone>(dice: &mut Dice, list: &mut Vec<T>) {
    if !list.is_empty() {
        let one = list[dice.below(list.len())].clone();
        list.push(one);
    }
}

//! The model of a device: the state after all writes so far, and the possible answers to the next. It consists of plain
//! maps and the specification's rules, written independently of the control plane.
//!
//! [`Model::judge`] collects all faults of an update ([`Judgement::faults`]), not only the first, since the
//! specification orders only some checks. `possible` holds answers that depend on limits outside the program.
//! `table_rules` has the rules for table entries and actions; the others are here.

use super::target::{CPU_PORT, PORTS};
use control::Code;
use control::entity::*;
use p4info::{ActionProfile, DataType, MeterType, ObjectKind, P4Info, SelectorSize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ids from here on are reserved for the server.
const RESERVED_IDS: u32 = 0xf000_0000;
/// The controller's port number (`SDN_PORT_CPU`).
const SDN_PORT_CPU: u32 = 0xffff_fffd;

/// The possible answers to an update.
#[derive(Default, Debug)]
pub struct Judgement {
    /// The codes of all faults: one of them must be the answer; if there are none, the update must succeed.
    pub faults: Vec<Code>,
    /// Codes that are possible in addition.
    pub possible: Vec<Code>,
}

impl Judgement {
    /// Adds a fault.
    pub(super) fn fault(&mut self, code: Code) {
        self.faults.push(code);
    }

    /// Adds a fault if `condition` holds.
    pub(super) fn fault_if(&mut self, condition: bool, code: Code) {
        if condition {
            self.fault(code);
        }
    }
}

/// A table entry with its direct resources.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The entry in the form in which it is read, without resources.
    pub entry: TableEntry,
    /// Its direct counter.
    pub counter: CounterData,
    /// Its direct meter.
    pub meter: Option<MeterConfig>,
}

/// The direct resources of a default entry.
#[derive(Clone, Copy, Default, Debug)]
pub struct Beside {
    /// The counter.
    pub counter: CounterData,
    /// The meter.
    pub meter: Option<MeterConfig>,
}

/// The identity of an entry: its matches as bytes, and its priority.
pub type EntryId = (Vec<u8>, i32);

/// The state that a device must have.
#[derive(Clone)]
pub struct Model {
    pub(super) info: Arc<P4Info>,
    /// Tables to which packets add entries: these may have times although P4Info does not say so.
    pub(super) timed: BTreeSet<u32>,
    pub(super) tables: BTreeMap<u32, BTreeMap<EntryId, Entry>>,
    pub(super) defaults: BTreeMap<u32, TableEntry>,
    /// The direct resources of default entries.
    pub(super) beside_defaults: BTreeMap<u32, Beside>,
    /// The program's default entries, for resets.
    initial_defaults: Arc<BTreeMap<u32, TableEntry>>,
    pub(super) members: BTreeMap<(u32, u32), Member>,
    pub(super) groups: BTreeMap<(u32, u32), Group>,
    pub(super) counters: BTreeMap<(u32, i64), CounterData>,
    pub(super) meters: BTreeMap<(u32, i64), Option<MeterConfig>>,
    pub(super) registers: BTreeMap<(u32, i64), P4Data>,
    pub(super) multicast: BTreeMap<u32, MulticastGroup>,
    pub(super) sessions: BTreeMap<u32, CloneSession>,
    pub(super) value_sets: BTreeMap<u32, Vec<Vec<FieldMatch>>>,
    pub(super) digests: BTreeMap<u32, DigestConfig>,
}

/// A value without leading zero bytes, except the last byte.
pub(super) fn shortest(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    if zeros < bytes.len() || bytes.is_empty() { bytes[zeros..].to_vec() } else { vec![0] }
}

impl Model {
    /// The model of a device without entities.
    pub fn new(info: Arc<P4Info>) -> Model {
        Model {
            timed: BTreeSet::new(),
            tables: info.tables.iter().map(|t| (t.preamble.id, BTreeMap::new())).collect(),
            defaults: BTreeMap::new(),
            beside_defaults: BTreeMap::new(),
            initial_defaults: Arc::default(),
            members: BTreeMap::new(),
            groups: BTreeMap::new(),
            counters: BTreeMap::new(),
            meters: BTreeMap::new(),
            registers: BTreeMap::new(),
            multicast: BTreeMap::new(),
            sessions: BTreeMap::new(),
            value_sets: BTreeMap::new(),
            digests: BTreeMap::new(),
            info,
        }
    }

    /// Adopts the entities of a fresh device.
    pub fn adopt(&mut self, found: Vec<Entity>) {
        for entity in found {
            match entity {
                Entity::Table(entry) if entry.is_default_action => {
                    let entry = TableEntry { counter_data: None, meter_counter_data: None, ..entry };
                    Arc::make_mut(&mut self.initial_defaults).insert(entry.table_id, entry.clone());
                    self.defaults.insert(entry.table_id, entry);
                }
                Entity::Table(entry) => {
                    let id = (super::table_rules::key_bytes(&entry.matches), entry.priority);
                    let counter = entry.counter_data.unwrap_or_default();
                    let meter = entry.meter_config;
                    let plain =
                        TableEntry { counter_data: None, meter_config: None, meter_counter_data: None, ..entry };
                    let of_table = self.tables.entry(plain.table_id).or_default();
                    of_table.insert(id, Entry { entry: plain, counter, meter });
                }
                Entity::Counter(cell) => {
                    self.counters.insert((cell.counter_id, cell.index.unwrap_or(0)), cell.data.unwrap_or_default());
                }
                Entity::Meter(cell) => {
                    self.meters.insert((cell.meter_id, cell.index.unwrap_or(0)), cell.config);
                }
                Entity::Register(cell) => {
                    let data = cell.data.unwrap_or(P4Data::Tuple(vec![]));
                    self.registers.insert((cell.register_id, cell.index.unwrap_or(0)), data);
                }
                Entity::ValueSet(set) => {
                    self.value_sets.insert(set.value_set_id, set.members);
                }
                // A fresh device has no others.
                _ => {}
            }
        }
    }

    /// The possible answers to an update.
    pub fn judge(&self, update: &Update) -> Judgement {
        let mut j = Judgement::default();
        j.fault_if(update.kind == UpdateKind::Unspecified, Code::InvalidArgument);
        let Some(entity) = &update.entity else {
            j.fault(Code::InvalidArgument);
            return j;
        };
        match entity {
            Entity::Extern { .. } | Entity::Calculation(_) => j.fault(Code::NotFound),
            Entity::Table(entry) => self.judge_table_entry(update.kind, entry, &mut j),
            Entity::Member(member) => self.judge_member(update.kind, member, &mut j),
            Entity::Group(group) => self.judge_group(update.kind, group, &mut j),
            Entity::Counter(e) => {
                self.judge_cell(ObjectKind::Counter, update.kind, e.counter_id, e.index, &mut j);
                judge_count(e.data, &mut j);
            }
            Entity::Meter(e) => {
                self.judge_cell(ObjectKind::Meter, update.kind, e.meter_id, e.index, &mut j);
                let of = self.info.meters.iter().find(|m| m.preamble.id == e.meter_id);
                judge_meter(e.config, of.map(|m| m.meter_type), &mut j);
                judge_colours(e.counter_data, &mut j);
            }
            Entity::Register(e) => {
                self.judge_cell(ObjectKind::Register, update.kind, e.register_id, e.index, &mut j);
                let info = self.info.registers.iter().find(|r| r.preamble.id == e.register_id);
                match (&e.data, info) {
                    (None, _) => j.fault(Code::InvalidArgument),
                    (Some(data), Some(info)) => judge_data(&self.info, &info.type_spec, data, &mut j),
                    (Some(_), None) => {}
                }
            }
            Entity::DirectCounter(e) => {
                self.judge_direct(ObjectKind::DirectCounter, update.kind, e.table_entry.as_ref(), &mut j);
                judge_count(e.data, &mut j);
            }
            Entity::DirectMeter(e) => {
                self.judge_direct(ObjectKind::DirectMeter, update.kind, e.table_entry.as_ref(), &mut j);
                let table = e.table_entry.as_ref().map(|entry| entry.table_id);
                judge_meter(e.config, table.and_then(|id| self.direct_meter_type(id)), &mut j);
                judge_colours(e.counter_data, &mut j);
            }
            Entity::MulticastGroup(g) => {
                judge_presence(update.kind, self.multicast.contains_key(&g.group_id), &mut j);
                judge_replication_id(g.group_id, &mut j);
                if update.kind != UpdateKind::Delete {
                    judge_replicas(&g.replicas, &mut j);
                }
            }
            Entity::CloneSession(s) => {
                judge_presence(update.kind, self.sessions.contains_key(&s.session_id), &mut j);
                judge_replication_id(s.session_id, &mut j);
                if update.kind != UpdateKind::Delete {
                    judge_replicas(&s.replicas, &mut j);
                    j.fault_if(s.packet_length_bytes < 0, Code::InvalidArgument);
                }
            }
            Entity::ValueSet(set) => self.judge_value_set(update.kind, set, &mut j),
            Entity::Digest(d) => {
                let known = self.info.digests.iter().any(|info| info.preamble.id == d.digest_id);
                unknown_object(known, &mut j);
                judge_presence(update.kind, self.digests.contains_key(&d.digest_id), &mut j);
                let config = d.config.unwrap_or_default();
                let negative = config.max_timeout_ns < 0 || config.max_list_size < 0 || config.ack_timeout_ns < 0;
                j.fault_if(negative && update.kind != UpdateKind::Delete, Code::InvalidArgument);
            }
        }
        j
    }

    fn judge_cell(&self, kind: ObjectKind, update: UpdateKind, id: u32, index: Option<i64>, j: &mut Judgement) {
        j.fault_if(update != UpdateKind::Modify, Code::InvalidArgument);
        match self.array_size(kind, id) {
            None => unknown_object(false, j),
            Some(size) => {
                j.fault_if(index.is_some_and(|i| i < 0), Code::InvalidArgument);
                j.fault_if(index.is_some_and(|i| i >= size), Code::OutOfRange);
            }
        }
    }

    /// The number of cells of a counter, meter or register.
    pub(super) fn array_size(&self, kind: ObjectKind, id: u32) -> Option<i64> {
        let info = &self.info;
        match kind {
            ObjectKind::Counter => info.counters.iter().find(|c| c.preamble.id == id).map(|c| c.size),
            ObjectKind::Meter => info.meters.iter().find(|m| m.preamble.id == id).map(|m| m.size),
            _ => info.registers.iter().find(|r| r.preamble.id == id).map(|r| i64::from(r.size)),
        }
    }

    pub(super) fn profile(&self, id: u32) -> Option<&ActionProfile> {
        self.info.action_profiles.iter().find(|p| p.preamble.id == id)
    }

    /// Whether entries with one-shot action sets use a profile.
    fn has_one_shots(&self, profile: &ActionProfile) -> bool {
        let entries = profile.table_ids.iter().filter_map(|id| self.tables.get(id)).flat_map(BTreeMap::values);
        entries.into_iter().any(|e| matches!(e.entry.action, Some(TableAction::OneShot(_))))
    }

    /// Whether a profile has members or groups that a controller created.
    pub(super) fn has_manual(&self, profile: u32) -> bool {
        self.members.keys().chain(self.groups.keys()).any(|(of, _)| *of == profile)
    }

    /// An upper bound of the members that a profile holds, however they are counted.
    pub(super) fn profile_load(&self, profile: &ActionProfile) -> i64 {
        let id = profile.preamble.id;
        let members = self.members.keys().filter(|(of, _)| *of == id).count() as i64;
        let weights: i64 = self.groups.values().filter(|g| g.action_profile_id == id).map(weight_of).sum();
        let entries = profile.table_ids.iter().filter_map(|id| self.tables.get(id)).flat_map(BTreeMap::values);
        let one_shots = entries.into_iter().filter_map(|e| e.entry.action.as_ref()).map(one_shot_load);
        members.max(weights) + one_shots.sum::<i64>()
    }

    fn judge_member(&self, kind: UpdateKind, member: &Member, j: &mut Judgement) {
        let id = (member.action_profile_id, member.member_id);
        let Some(profile) = self.profile(member.action_profile_id) else { return unknown_object(false, j) };
        j.fault_if(self.has_one_shots(profile), Code::InvalidArgument);
        j.fault_if(member.member_id == 0 || member.member_id >= RESERVED_IDS, Code::InvalidArgument);
        judge_presence(kind, self.members.contains_key(&id), j);
        if kind == UpdateKind::Delete {
            let in_group = self
                .groups
                .values()
                .any(|g| g.action_profile_id == id.0 && g.members.iter().any(|m| m.member_id == member.member_id));
            let wanted = TableAction::Member(member.member_id);
            j.fault_if(in_group || self.is_used(profile, &wanted), Code::FailedPrecondition);
            return;
        }
        match &member.action {
            None => j.fault(Code::InvalidArgument),
            Some(action) => self.judge_profile_action(profile, action, j),
        }
        if kind == UpdateKind::Insert && self.profile_load(profile) >= profile.size {
            j.possible.push(Code::ResourceExhausted);
        }
    }

    fn is_used(&self, profile: &ActionProfile, action: &TableAction) -> bool {
        let mut entries = profile.table_ids.iter().filter_map(|id| self.tables.get(id)).flat_map(BTreeMap::values);
        entries.any(|e| e.entry.action.as_ref() == Some(action))
    }

    fn judge_group(&self, kind: UpdateKind, group: &Group, j: &mut Judgement) {
        let id = (group.action_profile_id, group.group_id);
        let Some(profile) = self.profile(group.action_profile_id) else { return unknown_object(false, j) };
        j.fault_if(!profile.with_selector || self.has_one_shots(profile), Code::InvalidArgument);
        j.fault_if(group.group_id == 0 || group.group_id >= RESERVED_IDS, Code::InvalidArgument);
        judge_presence(kind, self.groups.contains_key(&id), j);
        if kind == UpdateKind::Delete {
            let wanted = TableAction::Group(group.group_id);
            j.fault_if(self.is_used(profile, &wanted), Code::FailedPrecondition);
            return;
        }
        for (at, member) in group.members.iter().enumerate() {
            self.judge_weight(profile, profile.selector_size, member.weight, &member.watch, j);
            let known = self.members.contains_key(&(id.0, member.member_id));
            j.fault_if(!known, Code::NotFound);
            let twice = group.members[..at].iter().any(|earlier| earlier.member_id == member.member_id);
            j.fault_if(twice, Code::InvalidArgument);
        }
        let limit = profile.max_group_size;
        j.fault_if(group.max_size < 0 || (limit > 0 && !(1..=limit).contains(&group.max_size)), Code::InvalidArgument);
        if let (UpdateKind::Modify, Some(old)) = (kind, self.groups.get(&id)) {
            j.fault_if(old.max_size != group.max_size, Code::InvalidArgument);
        }
        let size = group_size(profile.selector_size, group.members.iter().map(|m| m.weight));
        j.fault_if(group.max_size > 0 && size > i64::from(group.max_size), Code::ResourceExhausted);
        if self.profile_load(profile) + weight_of(group) > profile.size {
            j.possible.push(Code::ResourceExhausted);
        }
    }

    /// Judges a member's weight and watch port in a group or action set.
    pub(super) fn judge_weight(
        &self,
        profile: &ActionProfile,
        by: Option<SelectorSize>,
        weight: i32,
        watch: &Watch,
        j: &mut Judgement,
    ) {
        match profile.weights_disallowed {
            true => j.fault_if(weight != 0, Code::InvalidArgument),
            false => j.fault_if(weight <= 0, Code::InvalidArgument),
        }
        if let Some(SelectorSize::SumOfMembers { max_member_weight }) = by {
            j.fault_if(max_member_weight > 0 && weight > max_member_weight, Code::InvalidArgument);
        }
        match watch {
            Watch::Unset => {}
            Watch::Number(port) => {
                let known = u32::try_from(*port).is_ok_and(|port| port_of(&port.to_be_bytes()).is_some());
                j.fault_if(!known, Code::InvalidArgument);
            }
            Watch::Port(bytes) => j.fault_if(!bytes.is_empty() && port_of(bytes).is_none(), Code::InvalidArgument),
        }
    }

    fn judge_direct(&self, kind: ObjectKind, update: UpdateKind, entry: Option<&TableEntry>, j: &mut Judgement) {
        j.fault_if(update != UpdateKind::Modify, Code::InvalidArgument);
        let Some(entry) = entry else { return j.fault(Code::InvalidArgument) };
        let Some(table) = self.table(entry.table_id) else { return unknown_object(false, j) };
        j.fault_if(
            !table.direct_resource_ids.iter().any(|id| ObjectKind::of(*id) == Some(kind)),
            Code::InvalidArgument,
        );
        if entry.is_default_action {
            return j.fault_if(!entry.matches.is_empty() || entry.priority != 0, Code::InvalidArgument);
        }
        match self.judge_key(table, entry, j) {
            Some(id) => j.fault_if(!self.tables[&entry.table_id].contains_key(&id), Code::NotFound),
            None => j.fault(Code::InvalidArgument),
        }
    }

    fn judge_value_set(&self, kind: UpdateKind, set: &ValueSetEntry, j: &mut Judgement) {
        j.fault_if(kind != UpdateKind::Modify, Code::InvalidArgument);
        let info = self.info.value_sets.iter().find(|info| info.preamble.id == set.value_set_id);
        let Some(info) = info else { return unknown_object(false, j) };
        j.fault_if(set.members.len() as i64 > i64::from(info.size), Code::ResourceExhausted);
        let mut seen = Vec::new();
        for member in &set.members {
            if let Some(key) = self.judge_matches(&info.match_fields, member, j) {
                j.fault_if(seen.contains(&key), Code::AlreadyExists);
                seen.push(key);
            }
        }
    }

    /// Applies an update that succeeded.
    pub fn apply(&mut self, update: &Update) {
        let (kind, delete) = (update.kind, update.kind == UpdateKind::Delete);
        match update.entity.as_ref() {
            Some(Entity::Table(entry)) => self.apply_table_entry(kind, entry),
            Some(Entity::Member(member)) => {
                let id = (member.action_profile_id, member.member_id);
                let action = member.action.as_ref().map(|action| self.canonical_action(action));
                change(&mut self.members, id, delete, || Member { action, ..member.clone() });
            }
            Some(Entity::Group(group)) => {
                let id = (group.action_profile_id, group.group_id);
                change(&mut self.groups, id, delete, || canonical_group(group));
            }
            Some(Entity::Counter(e)) => {
                let Some(data) = e.data else { return };
                let cells = self.counters.iter_mut().filter(|(id, _)| is_cell(**id, e.counter_id, e.index));
                cells.for_each(|(_, cell)| *cell = data);
            }
            Some(Entity::Meter(e)) => {
                let cells = self.meters.iter_mut().filter(|(id, _)| is_cell(**id, e.meter_id, e.index));
                cells.for_each(|(_, cell)| *cell = e.config);
            }
            Some(Entity::Register(e)) => {
                let info = self.info.registers.iter().find(|r| r.preamble.id == e.register_id);
                let (Some(data), Some(register)) = (&e.data, info) else { return };
                let data = canonical_data(&self.info, &register.type_spec, data);
                let cells = self.registers.iter_mut().filter(|(id, _)| is_cell(**id, e.register_id, e.index));
                cells.for_each(|(_, cell)| *cell = data.clone());
            }
            Some(Entity::DirectCounter(e)) => {
                let Some(data) = e.data else { return };
                if let Some(beside) = self.beside_default_mut(e.table_entry.as_ref()) {
                    beside.counter = data;
                } else if let Some(entry) = self.entry_mut(e.table_entry.as_ref()) {
                    entry.counter = data;
                }
            }
            Some(Entity::DirectMeter(e)) => {
                if let Some(beside) = self.beside_default_mut(e.table_entry.as_ref()) {
                    beside.meter = e.config;
                } else if let Some(entry) = self.entry_mut(e.table_entry.as_ref()) {
                    entry.meter = e.config;
                }
            }
            Some(Entity::MulticastGroup(g)) => {
                let replicas = g.replicas.iter().map(canonical_replica).collect();
                change(&mut self.multicast, g.group_id, delete, || MulticastGroup { replicas, ..g.clone() });
            }
            Some(Entity::CloneSession(s)) => {
                let replicas = s.replicas.iter().map(canonical_replica).collect();
                change(&mut self.sessions, s.session_id, delete, || CloneSession { replicas, ..s.clone() });
            }
            Some(Entity::ValueSet(set)) => {
                let info = self.info.value_sets.iter().find(|info| info.preamble.id == set.value_set_id);
                let fields = info.map_or(&[][..], |info| &info.match_fields);
                let members = set.members.iter().map(|m| super::table_rules::canonical_matches(fields, m)).collect();
                self.value_sets.insert(set.value_set_id, members);
            }
            Some(Entity::Digest(d)) => {
                change(&mut self.digests, d.digest_id, delete, || d.config.unwrap_or_default());
            }
            Some(Entity::Extern { .. } | Entity::Calculation(_)) | None => {}
        }
    }

    /// The direct resources of a default entry, if `entry` is one.
    fn beside_default_mut(&mut self, entry: Option<&TableEntry>) -> Option<&mut Beside> {
        let entry = entry.filter(|entry| entry.is_default_action)?;
        Some(self.beside_defaults.entry(entry.table_id).or_default())
    }

    /// The type of a table's direct meter, if it has one.
    pub(super) fn direct_meter_type(&self, table: u32) -> Option<MeterType> {
        self.info.direct_meters.iter().find(|m| m.direct_table_id == table).map(|m| m.meter_type)
    }

    /// Resets a table's default entry to the program's.
    pub(super) fn reset_default(&mut self, table: u32) {
        if let Some(initial) = self.initial_defaults.get(&table) {
            self.defaults.insert(table, initial.clone());
        }
    }
}

fn change<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, delete: bool, value: impl FnOnce() -> V) {
    if delete {
        map.remove(&key);
    } else {
        map.insert(key, value());
    }
}

fn is_cell((array, cell): (u32, i64), id: u32, index: Option<i64>) -> bool {
    array == id && index.is_none_or(|index| index == cell)
}

/// Judges a reference to an object that P4Info may lack.
pub(super) fn unknown_object(known: bool, j: &mut Judgement) {
    if !known {
        // The code depends on whether another kind of object has the id.
        j.fault(Code::NotFound);
        j.fault(Code::InvalidArgument);
    }
}

pub(super) fn judge_presence(kind: UpdateKind, exists: bool, j: &mut Judgement) {
    match kind {
        UpdateKind::Insert => j.fault_if(exists, Code::AlreadyExists),
        UpdateKind::Modify | UpdateKind::Delete => j.fault_if(!exists, Code::NotFound),
        UpdateKind::Unspecified => {}
    }
}

pub(super) fn judge_count(data: Option<CounterData>, j: &mut Judgement) {
    j.fault_if(data.is_some_and(|d| d.byte_count < 0 || d.packet_count < 0), Code::InvalidArgument);
}

/// Judges a meter configuration for a meter type; without a type, any is allowed.
pub(super) fn judge_meter(config: Option<MeterConfig>, of: Option<MeterType>, j: &mut Judgement) {
    let Some(c) = config else { return };
    let negative = c.cir < 0 || c.cburst < 0 || c.pir < 0 || c.pburst < 0 || c.eburst < 0;
    j.fault_if(negative || c.pir < c.cir, Code::InvalidArgument);
    let two_rates = c.pir != c.cir || c.pburst != c.cburst;
    let wrong = match of {
        None => false,
        Some(MeterType::TwoRateThreeColor) => c.eburst != 0,
        Some(MeterType::SingleRateThreeColor) => two_rates,
        Some(MeterType::SingleRateTwoColor) => two_rates || c.eburst != 0,
    };
    j.fault_if(wrong, Code::InvalidArgument);
}

/// Judges counters for colours, which can only be set to zero.
pub(super) fn judge_colours(data: Option<MeterCounterData>, j: &mut Judgement) {
    let all = data.into_iter().flat_map(|d| [d.green, d.yellow, d.red]).flatten();
    j.fault_if(all.into_iter().any(|count| count != CounterData::default()), Code::InvalidArgument);
}

fn judge_replication_id(id: u32, j: &mut Judgement) {
    j.fault_if(id == 0 || id >= datapath::replication::ID_LIMIT, Code::InvalidArgument);
}

fn judge_replicas(replicas: &[Replica], j: &mut Judgement) {
    let mut seen = Vec::new();
    for replica in replicas {
        let port = match &replica.port {
            ReplicaPort::Unset => None,
            ReplicaPort::Number(port) => port_of(&port.to_be_bytes()),
            ReplicaPort::Port(bytes) => port_of(bytes),
        };
        let backups = replica.backups.iter().map(|backup| (port_of(&backup.port), backup.instance));
        let backups: Vec<_> = backups.collect();
        j.fault_if(port.is_some() && backups.iter().any(|(spare, _)| *spare == port), Code::InvalidArgument);
        for place in std::iter::once((port, replica.instance)).chain(backups) {
            j.fault_if(place.0.is_none() || place.1 > 0xffff || seen.contains(&place), Code::InvalidArgument);
            seen.push(place);
        }
    }
}

/// A port number; `None` for a port that the switch lacks.
pub(super) fn port_of(bytes: &[u8]) -> Option<u32> {
    let short = shortest(bytes);
    if bytes.is_empty() || short.len() > 4 {
        return None;
    }
    let number = short.iter().fold(0, |n, b| n << 8 | u32::from(*b));
    match number {
        SDN_PORT_CPU | CPU_PORT => Some(CPU_PORT),
        port => PORTS.contains(&port).then_some(port),
    }
}

fn canonical_replica(replica: &Replica) -> Replica {
    let port = match &replica.port {
        ReplicaPort::Port(bytes) => ReplicaPort::Port(shortest(bytes)),
        other => other.clone(),
    };
    let backup = |b: &BackupReplica| BackupReplica { port: shortest(&b.port), instance: b.instance };
    Replica { port, instance: replica.instance, backups: replica.backups.iter().map(backup).collect() }
}

/// A watch port in the form in which it is read.
pub(super) fn canonical_watch(watch: &Watch) -> Watch {
    let bytes = match watch {
        Watch::Unset => return Watch::Unset,
        Watch::Number(port) => port.to_be_bytes().to_vec(),
        Watch::Port(bytes) => bytes.clone(),
    };
    port_of(&bytes).map_or(Watch::Unset, |port| Watch::Port(shortest(&port.to_be_bytes())))
}

fn canonical_group(group: &Group) -> Group {
    let member = |m: &GroupMember| GroupMember { watch: canonical_watch(&m.watch), ..m.clone() };
    Group { members: group.members.iter().map(member).collect(), ..group.clone() }
}

/// The total weight of a group; each member counts one if the profile has no weights.
fn weight_of(group: &Group) -> i64 {
    group.members.iter().map(|m| i64::from(m.weight.max(1))).sum()
}

/// The size of a group, as its limits count it.
pub(super) fn group_size(by: Option<SelectorSize>, weights: impl Iterator<Item = i32>) -> i64 {
    let by_members = matches!(by, Some(SelectorSize::SumOfMembers { .. }));
    weights.map(|weight| if by_members { 1 } else { i64::from(weight.max(1)) }).sum()
}

/// Judges a value of a type; types that are not modelled are not judged.
fn judge_data(info: &P4Info, data_type: &DataType, data: &P4Data, j: &mut Judgement) {
    let types = &info.type_info;
    match (data_type, data) {
        (DataType::Bit(width), P4Data::Bitstring(bytes)) => {
            j.fault_if(!super::table_rules::fits(*width, bytes), Code::OutOfRange);
        }
        (DataType::Int(width), P4Data::Bitstring(bytes)) => {
            j.fault_if(!fits_signed(*width, bytes), Code::OutOfRange);
        }
        (DataType::Bool, P4Data::Bool(_)) => {}
        (DataType::NewType(name), data) => match types.new_types.get(name) {
            Some(new_type) => judge_data(info, &new_type.underlying, data, j),
            None => j.fault(Code::InvalidArgument),
        },
        (DataType::SerializableEnum(name), P4Data::EnumValue(bytes)) => {
            let width = types.serializable_enums.get(name).map_or(0, |e| e.bitwidth);
            j.fault_if(!super::table_rules::fits(width, bytes), Code::OutOfRange);
        }
        (DataType::Enum(name), P4Data::Enum(member)) => {
            j.fault_if(!types.enums.get(name).is_some_and(|e| e.members.contains(member)), Code::InvalidArgument);
        }
        (DataType::Error, P4Data::Error(member)) => {
            j.fault_if(!types.error.as_ref().is_some_and(|e| e.contains(member)), Code::InvalidArgument);
        }
        (DataType::Struct(name), P4Data::Struct(values)) => {
            let members = types.structs.get(name).map_or(&[][..], |s| &s.members);
            j.fault_if(members.len() != values.len(), Code::InvalidArgument);
            members.iter().zip(values).for_each(|((_, member), value)| judge_data(info, member, value, j));
        }
        (DataType::Tuple(members), P4Data::Tuple(values)) => {
            j.fault_if(members.len() != values.len(), Code::InvalidArgument);
            members.iter().zip(values).for_each(|(member, value)| judge_data(info, member, value, j));
        }
        (DataType::Varbit(max), P4Data::Varbit { bitstring, bitwidth }) => {
            let length = u32::try_from(*bitwidth).ok().filter(|length| length <= max);
            j.fault_if(length.is_none(), Code::OutOfRange);
            j.fault_if(bitwidth % 8 != 0, Code::InvalidArgument);
            let fits = |length| (length == 0 && bitstring.is_empty()) || super::table_rules::fits(length, bitstring);
            j.fault_if(length.is_some_and(|length| !fits(length)), Code::OutOfRange);
        }
        // These are generated valid, and damage gives them another type.
        (DataType::Header(_), P4Data::Header { .. })
        | (DataType::HeaderUnion(_), P4Data::HeaderUnion(_))
        | (DataType::HeaderStack { .. }, P4Data::HeaderStack(_))
        | (DataType::HeaderUnionStack { .. }, P4Data::HeaderUnionStack(_)) => {}
        _ => j.fault(Code::InvalidArgument),
    }
}

/// Whether a two's complement value fits in `width` bits.
fn fits_signed(width: u32, bytes: &[u8]) -> bool {
    let Some(first) = bytes.first() else { return false };
    let sign = if first & 0x80 != 0 { 0xff } else { 0u8 };
    // The bits that differ from the sign, and one for the sign.
    let skipped = bytes.iter().take_while(|b| **b == sign).count();
    let rest = &bytes[skipped..];
    let needed = rest.first().map_or(0, |b| rest.len() * 8 - (b ^ sign).leading_zeros() as usize);
    needed < width as usize
}

/// A value in the form in which it is read.
fn canonical_data(info: &P4Info, data_type: &DataType, data: &P4Data) -> P4Data {
    let types = &info.type_info;
    match (data_type, data) {
        (DataType::Int(_), P4Data::Bitstring(bytes)) => P4Data::Bitstring(shortest_signed(bytes)),
        (_, P4Data::Bitstring(bytes)) => P4Data::Bitstring(shortest(bytes)),
        (_, P4Data::EnumValue(bytes)) => P4Data::EnumValue(shortest(bytes)),
        (DataType::NewType(name), data) => match types.new_types.get(name) {
            Some(new_type) => canonical_data(info, &new_type.underlying, data),
            None => data.clone(),
        },
        (DataType::Varbit(_), P4Data::Varbit { bitstring, bitwidth }) => {
            let bytes = usize::try_from(*bitwidth).map_or(0, |length| length / 8);
            let (zeros, from) = (bytes.saturating_sub(bitstring.len()), bitstring.len().saturating_sub(bytes));
            let bitstring = [vec![0; zeros], bitstring[from..].to_vec()].concat();
            P4Data::Varbit { bitstring, bitwidth: *bitwidth }
        }
        (DataType::Struct(name), P4Data::Struct(values)) => {
            let members = types.structs.get(name).map_or(&[][..], |s| &s.members);
            let pairs = members.iter().zip(values);
            P4Data::Struct(pairs.map(|((_, member), value)| canonical_data(info, member, value)).collect())
        }
        (DataType::Tuple(members), P4Data::Tuple(values)) => {
            let pairs = members.iter().zip(values);
            P4Data::Tuple(pairs.map(|(member, value)| canonical_data(info, member, value)).collect())
        }
        (_, other) => other.clone(),
    }
}

/// A value without redundant sign bytes.
fn shortest_signed(bytes: &[u8]) -> Vec<u8> {
    let repeats = |pair: &[u8]| matches!((pair[0], pair[1] & 0x80), (0, 0) | (0xff, 0x80));
    let redundant = bytes.windows(2).take_while(|pair| repeats(pair)).count();
    bytes[redundant..].to_vec()
}

/// An upper bound of the members that an entry's action set takes in a profile, however they are counted.
pub(super) fn one_shot_load(action: &TableAction) -> i64 {
    match action {
        TableAction::OneShot(set) => set.actions.iter().map(|a| i64::from(a.weight.max(1))).sum(),
        _ => 0,
    }
}

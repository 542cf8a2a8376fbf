//! The state of a program in simple data structures: the reference for the match engines and fast externs.
//!
//! A single lock guards everything, so any thread may call anything, and each operation of a packet is atomic. Cells
//! that have not been used take no memory. The code favours clarity; every lookup is a linear scan.
//!
//! The optimiser never renumbers tables or externs, so one state serves a program before and after optimisation.
//!
//! Tests: `tests/state.rs`.

mod dynamic;
mod profile;
mod table;

pub use profile::choose;
pub use table::field_matches;

use crate::hash;
use crate::meter::{Colour, MeterCell};
use abi::state::{DynamicCounts, HashParameters, ReadEntry};
use abi::{PipelineState, StateError};
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, GroupMember, KeyMatch, MatchKind, MeterConfig, TableEntry};
use base::ids::{ExternId, TableId};
use ir::{CounterUnit, ExternKind, HashAlgorithm, Key, Program, TableAction};
use profile::Profile;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use table::{Installed, LinearTable};

/// All tables and externs of one program.
#[derive(Debug)]
pub struct State {
    program: Arc<Program>,
    content: Mutex<Content>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Content {
    tables: Vec<LinearTable>,
    externs: Vec<Cells>,
    ports_down: BTreeSet<u32>,
    hashes: hash::Parameters,
    /// Entries whose timeout has expired, to be reported to the control plane.
    expired: Vec<(TableId, TableEntry)>,
    /// By table.
    dynamic_counts: Vec<DynamicCounts>,
    /// The latest time in µs reported by a packet or by the owner.
    now_us: u64,
}

/// The contents of an extern. Direct counters and meters are stored with the entries.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Cells {
    Counter(BTreeMap<u64, CounterValue>),
    Meter(BTreeMap<u64, MeterCell>),
    Register(BTreeMap<u64, Bits>),
    Profile(Profile),
    None,
}

/// The result of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Match {
    /// Whether an entry matched and, with an action profile, a member was found.
    pub hit: bool,
    /// The call to run: the entry's action, the member's, or the default action.
    pub action: ActionCall,
    /// The entry's handle for direct counters and meters; 0 for the default entry.
    pub entry: u64,
    /// The entry that matched, for traces.
    pub matched: Option<TableEntry>,
    /// The member whose action it is, and the group from which it was selected, for traces.
    pub member: Option<(u32, Option<u32>)>,
    /// Whether an entry or the default entry refers to a group without members, for traces.
    pub empty_group: bool,
}

/// The call that an entry resolves to, and [`Match::member`].
type Resolved = (ActionCall, Option<(u32, Option<u32>)>);

type Result<T> = std::result::Result<T, StateError>;

fn count(value: &mut CounterValue, unit: CounterUnit, bytes: u64) {
    if unit != CounterUnit::Bytes {
        value.packets += 1;
    }
    if unit != CounterUnit::Packets {
        value.bytes += bytes;
    }
}

/// The number of units that a packet of `bytes` bytes takes from a meter's buckets.
fn units(unit: CounterUnit, bytes: u64) -> u64 {
    if unit == CounterUnit::Packets { 1 } else { bytes }
}

// Operations of packets.
impl State {
    /// The state of a newly loaded program: its constant entries, and cells with initial values.
    pub fn new(program: Arc<Program>) -> State {
        let content = Content {
            tables: program.tables.iter().map(LinearTable::new).collect(),
            externs: program
                .externs
                .iter()
                .map(|e| match &e.kind {
                    ExternKind::Counter { .. } => Cells::Counter(BTreeMap::new()),
                    ExternKind::Meter { .. } => Cells::Meter(BTreeMap::new()),
                    ExternKind::Register { .. } => Cells::Register(BTreeMap::new()),
                    ExternKind::ActionProfile { size, .. } => Cells::Profile(Profile::new(*size, false)),
                    ExternKind::ActionSelector { size, .. } => Cells::Profile(Profile::new(*size, true)),
                    ExternKind::Digest { .. } => Cells::None,
                })
                .collect(),
            ports_down: BTreeSet::new(),
            hashes: hash::Parameters::of(&program),
            expired: Vec::new(),
            dynamic_counts: vec![DynamicCounts::default(); program.tables.len()],
            now_us: 0,
        };
        State { program, content: Mutex::new(content) }
    }

    /// An independent copy.
    pub fn fork(&self) -> State {
        State { program: Arc::clone(&self.program), content: Mutex::new(self.lock().clone()) }
    }

    /// Replaces the entries and the default action of a table by those of another engine, which has validated them.
    /// Takes linear time, unlike individual insertions.
    pub fn load_table(&self, table: TableId, entries: Vec<TableEntry>, default: EntryAction) {
        let mut content = self.lock();
        let now_us = content.now_us;
        content.tables[table.index()].load(entries, default, now_us);
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // Every change is complete before anything can panic, so the data of a poisoned lock are consistent.
        self.content.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets the time, in microseconds since the switch started, for idle timeouts. It never goes back.
    pub fn set_time(&self, now_us: u64) {
        let mut content = self.lock();
        content.now_us = content.now_us.max(now_us);
    }

    /// Looks up a key (`ir::Op::Apply`).
    pub fn lookup(&self, table: TableId, key: &[Bits], selector: &[Bits]) -> Match {
        let mut content = self.lock();
        let content = &mut *content;
        let now_us = content.now_us;
        let dynamic = self.program.tables[table.index()].dynamic.as_ref();
        let found = content.tables[table.index()].lookup(key).map(|installed| {
            match dynamic {
                Some(dynamic) if dynamic.restart_on_hit => installed.last_hit_us = dynamic::tick(now_us),
                Some(_) => {}
                None => installed.last_hit_us = now_us,
            }
            (installed.serial, installed.entry.clone())
        });
        let found_entry = found.is_some();
        let mut empty_group = false;
        if let Some((entry, matched)) = found {
            if let Some((action, member)) = self.resolve(content, table, &matched.action, selector) {
                return Match { hit: true, action, entry, matched: Some(matched), member, empty_group };
            }
            empty_group = matches!(matched.action, EntryAction::Group(_));
        }
        let default = content.tables[table.index()].default.clone();
        // If the default action is a group, the program's own default action runs when the group has no member, and for
        // entries whose own group has none.
        let own = || (self.program.tables[table.index()].default_action.clone(), None);
        let by_group = matches!(default, EntryAction::Group(_));
        let (action, member) = match by_group && found_entry {
            true => own(),
            false => self.resolve(content, table, &default, selector).unwrap_or_else(|| {
                empty_group |= by_group;
                own()
            }),
        };
        Match { hit: false, action, entry: 0, matched: None, member, empty_group }
    }

    /// The call that an entry resolves to. `None` for a group without members, unless the selector has an action for
    /// that case, and for a member that does not exist.
    fn resolve(
        &self,
        content: &mut Content,
        table: TableId,
        action: &EntryAction,
        selector: &[Bits],
    ) -> Option<Resolved> {
        let (member, group) = match action {
            EntryAction::Call(call) => return Some((call.clone(), None)),
            EntryAction::Member(id) => (*id, None),
            EntryAction::Group(id) => {
                let ext = self.program.tables[table.index()].implementation?;
                let ExternKind::ActionSelector { algorithm, hash_width, empty, .. } =
                    &self.program.externs[ext.index()].kind
                else {
                    return None;
                };
                let hash = hash::hash_with(&content.hashes, *algorithm, &hash::concat(selector), &[])?;
                let hash = if *hash_width < 64 { hash & ((1 << hash_width) - 1) } else { hash };
                let Cells::Profile(profile) = &mut content.externs[ext.index()] else { return None };
                let group = profile.groups.get_mut(id)?;
                let choice = group.choice(hash);
                match choose(&group.members, &content.ports_down, choice) {
                    Some(member) => (member, Some(*id)),
                    None => return empty.clone().map(|call| (call, None)),
                }
            }
        };
        let call = self.profile(content, table)?.members.get(&member).cloned()?;
        Some((call, Some((member, group))))
    }

    fn profile<'c>(&self, content: &'c Content, table: TableId) -> Option<&'c Profile> {
        match &content.externs[self.program.tables[table.index()].implementation?.index()] {
            Cells::Profile(profile) => Some(profile),
            _ => None,
        }
    }

    /// Counts a packet of `bytes` bytes (`ir::Op::Count`).
    pub fn count(&self, counter: ExternId, index: u64, bytes: u64) {
        let ExternKind::Counter { size, unit, .. } = self.program.externs[counter.index()].kind else { return };
        if let Cells::Counter(cells) = &mut self.lock().externs[counter.index()]
            && index < size
        {
            count(cells.entry(index).or_default(), unit, bytes);
        }
    }

    /// Counts a packet at an entry (`ir::Op::CountDirect`); no effect if the entry no longer exists.
    pub fn count_direct(&self, counter: ExternId, entry: u64, bytes: u64) {
        let ExternKind::Counter { unit, direct: Some(table), .. } = self.program.externs[counter.index()].kind else {
            return;
        };
        if let Some(installed) = self.lock().tables[table.index()].by_serial(entry) {
            count(installed.counters.entry(counter).or_default(), unit, bytes);
        }
    }

    /// Executes a meter for a packet without a colour so far. Returns the packet's colour.
    pub fn meter_execute(&self, meter: ExternId, index: u64, bytes: u64, now_us: u64) -> Colour {
        self.meter_execute_after(meter, index, bytes, Colour::Green, now_us)
    }

    /// Executes a meter (`ir::Op::Meter`). Returns the packet's colour.
    pub fn meter_execute_after(&self, meter: ExternId, index: u64, bytes: u64, before: Colour, now_us: u64) -> Colour {
        let ExternKind::Meter { unit, size, .. } = self.program.externs[meter.index()].kind else {
            return Colour::Green;
        };
        match &mut self.lock().externs[meter.index()] {
            Cells::Meter(cells) if index < size => {
                cells.entry(index).or_default().execute(units(unit, bytes), bytes, before, now_us)
            }
            _ => Colour::Green,
        }
    }

    /// Executes the meter of an entry for a packet without a colour so far. Returns the packet's colour.
    pub fn meter_direct_execute(&self, meter: ExternId, entry: u64, bytes: u64, now_us: u64) -> Colour {
        self.meter_direct_execute_after(meter, entry, bytes, Colour::Green, now_us)
    }

    /// Executes the meter of an entry (`ir::Op::MeterDirect`); green if the entry no longer exists.
    pub fn meter_direct_execute_after(
        &self,
        meter: ExternId,
        entry: u64,
        bytes: u64,
        before: Colour,
        now_us: u64,
    ) -> Colour {
        let ExternKind::Meter { unit, direct: Some(table), .. } = self.program.externs[meter.index()].kind else {
            return Colour::Green;
        };
        let mut content = self.lock();
        let found = content.tables[table.index()].by_serial(entry);
        let cell = found.map(|installed| installed.meters.entry(meter).or_default());
        cell.map_or(Colour::Green, |cell| cell.execute(units(unit, bytes), bytes, before, now_us))
    }

    /// Computes a hash (`ir::Op::Hash`); `None` for the algorithm that is a random number.
    pub fn hash(&self, algorithm: HashAlgorithm, data: &Bits, payload: &[u8]) -> Option<u64> {
        hash::hash_with(&self.lock().hashes, algorithm, data, payload)
    }

    /// Reads a register cell (`ir::Op::RegisterRead`); zero if the index is out of range.
    pub fn register_read(&self, register: ExternId, index: u64) -> Bits {
        let ExternKind::Register { width, .. } = self.program.externs[register.index()].kind else {
            return Bits::zero(1);
        };
        self.register(register, index).unwrap_or_else(|_| Bits::zero(width))
    }
}

impl Content {
    fn profile(&mut self, profile: ExternId) -> Result<&mut Profile> {
        match self.externs.get_mut(profile.index()) {
            Some(Cells::Profile(profile)) => Ok(profile),
            _ => Err(StateError::WrongKind),
        }
    }
}

// Operations of the control plane.
impl State {
    /// Checks that an action's references exist, or that a call is one of the table's actions with valid arguments.
    fn check_action(&self, content: &Content, table: TableId, action: &EntryAction) -> Result<()> {
        let id = match action {
            EntryAction::Call(call) => return self.check_call(&self.program.tables[table.index()].actions, call),
            EntryAction::Member(id) | EntryAction::Group(id) => *id,
        };
        let profile = self.profile(content, table).ok_or(StateError::WrongKind)?;
        let there = match action {
            EntryAction::Group(_) => profile.groups.contains_key(&id),
            _ => profile.members.contains_key(&id),
        };
        if there { Ok(()) } else { Err(StateError::NoSuchReference(id)) }
    }

    fn check_call(&self, actions: &[TableAction], call: &ActionCall) -> Result<()> {
        let action = actions.get(call.action as usize).map(|a| &self.program.actions[a.action.index()]);
        let fits = action.is_some_and(|action| {
            action.params.len() == call.args.len()
                && action.params.iter().zip(&call.args).all(|((_, width), arg)| *width == arg.width())
        });
        if fits { Ok(()) } else { Err(StateError::WrongKind) }
    }

    /// Like `check_call`, for a member of a profile.
    fn check_member(&self, profile: ExternId, call: &ActionCall) -> Result<()> {
        match self.program.externs.get(profile.index()).map(|e| &e.kind) {
            Some(ExternKind::ActionProfile { actions, .. } | ExternKind::ActionSelector { actions, .. }) => {
                self.check_call(actions, call)
            }
            _ => Err(StateError::WrongKind),
        }
    }

    /// Checks that a key has a field of the right kind and width for each key field of the table.
    fn check_key(&self, table: TableId, key: &[KeyMatch]) -> Result<()> {
        let keys = &self.program.tables[table.index()].keys;
        let fits = keys.len() == key.len() && keys.iter().zip(key).all(|(k, field)| field_fits(k, field));
        if fits { Ok(()) } else { Err(StateError::WrongKind) }
    }

    /// Whether an entry or default entry of a table that uses the profile has this action.
    fn is_used(&self, content: &Content, profile: ExternId, action: &EntryAction) -> bool {
        let tables = self.program.tables.iter().zip(&content.tables);
        tables
            .filter(|(table, _)| table.implementation == Some(profile))
            .any(|(_, t)| t.default == *action || t.installed.iter().any(|i| i.entry.action == *action))
    }

    /// Checks that an index is within a counter, meter or register array.
    fn check_index(&self, ext: ExternId, index: u64) -> Result<()> {
        match &self.program.externs.get(ext.index()).map(|e| &e.kind) {
            Some(
                ExternKind::Counter { size, direct: None, .. }
                | ExternKind::Meter { size, direct: None, .. }
                | ExternKind::Register { size, .. },
            ) => {
                if index < *size {
                    Ok(())
                } else {
                    Err(StateError::NotFound)
                }
            }
            _ => Err(StateError::WrongKind),
        }
    }

    /// Runs `f` on an entry and its direct resources; an empty key denotes the default entry.
    fn beside<R>(
        &self,
        ext: ExternId,
        is_counter: bool,
        key: &[KeyMatch],
        priority: i32,
        f: impl FnOnce(&mut Installed) -> R,
    ) -> Result<R> {
        let table = self.direct_table(ext, is_counter)?;
        if !key.is_empty() {
            self.check_key(table, key)?;
        }
        let mut content = self.lock();
        let table = &mut content.tables[table.index()];
        Ok(f(if key.is_empty() { table.default_resources() } else { table.find(key, priority)? }))
    }

    /// The table of a direct counter or meter.
    fn direct_table(&self, ext: ExternId, is_counter: bool) -> Result<TableId> {
        match &self.program.externs.get(ext.index()).map(|e| &e.kind) {
            Some(ExternKind::Counter { direct: Some(table), .. }) if is_counter => Ok(*table),
            Some(ExternKind::Meter { direct: Some(table), .. }) if !is_counter => Ok(*table),
            _ => Err(StateError::WrongKind),
        }
    }
}

impl PipelineState for State {
    fn insert(&self, table: TableId, entry: &TableEntry) -> Result<()> {
        let mut content = self.lock();
        self.check_action(&content, table, &entry.action)?;
        self.check_key(table, &entry.key)?;
        if entry.key.is_empty() {
            return Err(StateError::Unsupported("a table without keys has no entries".to_string()));
        }
        let now_us = self.stamp(&content, table);
        content.tables[table.index()].insert(entry, now_us)
    }

    fn modify(&self, table: TableId, entry: &TableEntry) -> Result<()> {
        let mut content = self.lock();
        self.check_action(&content, table, &entry.action)?;
        self.check_key(table, &entry.key)?;
        let installed = content.tables[table.index()].find(&entry.key, entry.priority)?;
        installed.entry.action = entry.action.clone();
        installed.entry.idle_timeout_ns = entry.idle_timeout_ns;
        Ok(())
    }

    fn delete(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<()> {
        self.check_key(table, key)?;
        self.lock().tables[table.index()].delete(key, priority)
    }

    fn entries(&self, table: TableId) -> Vec<ReadEntry> {
        let content = self.lock();
        let timed = self.program.tables[table.index()].idle_timeout;
        let installed = content.tables[table.index()].installed.iter();
        installed.map(|i| read_entry(i, timed, content.now_us)).collect()
    }

    fn entry(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<ReadEntry> {
        self.check_key(table, key)?;
        let mut content = self.lock();
        let now_us = content.now_us;
        let timed = self.program.tables[table.index()].idle_timeout;
        Ok(read_entry(content.tables[table.index()].find(key, priority)?, timed, now_us))
    }

    fn len(&self, table: TableId) -> u64 {
        self.lock().tables[table.index()].installed.len() as u64
    }

    fn expire(&self, now_us: u64) {
        self.set_time(now_us);
        self.expire_all();
    }

    fn take_expired(&self) -> Vec<(TableId, TableEntry)> {
        std::mem::take(&mut self.lock().expired)
    }

    fn reports_idle(&self, table: TableId) -> bool {
        self.program.tables[table.index()].dynamic.is_some()
    }

    fn dynamic_counts(&self, table: TableId) -> DynamicCounts {
        self.lock().dynamic_counts[table.index()]
    }

    fn set_default(&self, table: TableId, action: Option<&EntryAction>) -> Result<()> {
        let mut content = self.lock();
        let action = match action {
            Some(action) => action.clone(),
            None => EntryAction::Call(self.program.tables[table.index()].default_action.clone()),
        };
        self.check_action(&content, table, &action)?;
        content.tables[table.index()].default = action;
        Ok(())
    }

    fn default_action(&self, table: TableId) -> EntryAction {
        self.lock().tables[table.index()].default.clone()
    }

    fn member_insert(&self, profile: ExternId, member: u32, action: &ActionCall, leaving: usize) -> Result<()> {
        let mut content = self.lock();
        let profile_state = content.profile(profile)?;
        profile_state.check_new_member(member, leaving)?;
        self.check_member(profile, action)?;
        profile_state.members.insert(member, action.clone());
        Ok(())
    }

    fn member_modify(&self, profile: ExternId, member: u32, action: &ActionCall) -> Result<()> {
        self.check_member(profile, action)?;
        self.lock().profile(profile)?.member_modify(member, action)
    }

    fn member_delete(&self, profile: ExternId, member: u32) -> Result<()> {
        let mut content = self.lock();
        if self.is_used(&content, profile, &EntryAction::Member(member)) {
            return Err(StateError::InUse);
        }
        content.profile(profile)?.member_delete(member)
    }

    fn members(&self, profile: ExternId) -> Vec<(u32, ActionCall)> {
        match self.lock().profile(profile) {
            Ok(profile) => profile.members.iter().map(|(id, call)| (*id, call.clone())).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn group_insert(&self, profile: ExternId, group: u32, members: &[GroupMember], max_size: u32) -> Result<()> {
        self.lock().profile(profile)?.group_insert(group, members, max_size)
    }

    fn group_modify(&self, profile: ExternId, group: u32, members: &[GroupMember]) -> Result<()> {
        self.lock().profile(profile)?.group_modify(group, members)
    }

    fn group_set_random(&self, profile: ExternId, group: u32) -> Result<()> {
        let mut content = self.lock();
        let group = content.profile(profile)?.groups.get_mut(&group).ok_or(StateError::NotFound)?;
        group.drawn.get_or_insert(0);
        Ok(())
    }

    fn group_is_random(&self, profile: ExternId, group: u32) -> bool {
        let mut content = self.lock();
        let group = content.profile(profile).ok().and_then(|p| p.groups.get(&group));
        group.is_some_and(|g| g.drawn.is_some())
    }

    fn group_delete(&self, profile: ExternId, group: u32) -> Result<()> {
        let mut content = self.lock();
        if self.is_used(&content, profile, &EntryAction::Group(group)) {
            return Err(StateError::InUse);
        }
        content.profile(profile)?.group_delete(group)
    }

    fn groups(&self, profile: ExternId) -> Vec<(u32, Vec<GroupMember>, u32)> {
        match self.lock().profile(profile) {
            Ok(profile) => profile.groups.iter().map(|(id, g)| (*id, g.members.clone(), g.max_size)).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn port_state(&self, port: u32, up: bool) {
        let mut content = self.lock();
        if up {
            content.ports_down.remove(&port);
        } else {
            content.ports_down.insert(port);
        }
    }

    fn counter(&self, counter: ExternId, index: u64) -> Result<CounterValue> {
        self.check_index(counter, index)?;
        match &self.lock().externs[counter.index()] {
            Cells::Counter(cells) => Ok(cells.get(&index).copied().unwrap_or_default()),
            _ => Err(StateError::WrongKind),
        }
    }

    fn counter_set(&self, counter: ExternId, index: u64, value: CounterValue) -> Result<()> {
        self.check_index(counter, index)?;
        match &mut self.lock().externs[counter.index()] {
            Cells::Counter(cells) => {
                cells.insert(index, value);
                Ok(())
            }
            _ => Err(StateError::WrongKind),
        }
    }

    fn direct_counter(&self, counter: ExternId, key: &[KeyMatch], priority: i32) -> Result<CounterValue> {
        self.beside(counter, true, key, priority, |i| i.counters.get(&counter).copied().unwrap_or_default())
    }

    fn direct_counter_set(
        &self,
        counter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        value: CounterValue,
    ) -> Result<()> {
        self.beside(counter, true, key, priority, |i| _ = i.counters.insert(counter, value))
    }

    fn meter(&self, meter: ExternId, index: u64) -> Result<Option<MeterConfig>> {
        self.check_index(meter, index)?;
        match &self.lock().externs[meter.index()] {
            Cells::Meter(cells) => Ok(cells.get(&index).and_then(MeterCell::config)),
            _ => Err(StateError::WrongKind),
        }
    }

    fn meter_set(&self, meter: ExternId, index: u64, config: Option<MeterConfig>) -> Result<()> {
        self.check_index(meter, index)?;
        match &mut self.lock().externs[meter.index()] {
            Cells::Meter(cells) => {
                cells.entry(index).or_default().configure(config);
                Ok(())
            }
            _ => Err(StateError::WrongKind),
        }
    }

    fn meter_counts(&self, meter: ExternId, index: u64) -> Result<[CounterValue; 3]> {
        self.check_index(meter, index)?;
        match &self.lock().externs[meter.index()] {
            Cells::Meter(cells) => Ok(cells.get(&index).map(MeterCell::counts).unwrap_or_default()),
            _ => Err(StateError::WrongKind),
        }
    }

    fn meter_counts_reset(&self, meter: ExternId, index: u64) -> Result<()> {
        self.check_index(meter, index)?;
        match &mut self.lock().externs[meter.index()] {
            Cells::Meter(cells) => {
                cells.entry(index).or_default().reset_counts();
                Ok(())
            }
            _ => Err(StateError::WrongKind),
        }
    }

    fn direct_meter_counts(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<[CounterValue; 3]> {
        self.beside(meter, false, key, priority, |i| i.meters.get(&meter).map(MeterCell::counts).unwrap_or_default())
    }

    fn direct_meter_counts_reset(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<()> {
        self.beside(meter, false, key, priority, |i| i.meters.entry(meter).or_default().reset_counts())
    }

    fn direct_meter(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<Option<MeterConfig>> {
        self.beside(meter, false, key, priority, |i| i.meters.get(&meter).and_then(MeterCell::config))
    }

    fn direct_meter_set(
        &self,
        meter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        config: Option<MeterConfig>,
    ) -> Result<()> {
        self.beside(meter, false, key, priority, |i| i.meters.entry(meter).or_default().configure(config))
    }

    fn register(&self, register: ExternId, index: u64) -> Result<Bits> {
        self.check_index(register, index)?;
        match (&self.lock().externs[register.index()], &self.program.externs[register.index()].kind) {
            (Cells::Register(cells), ExternKind::Register { initial, .. }) => {
                Ok(cells.get(&index).unwrap_or(initial).clone())
            }
            _ => Err(StateError::WrongKind),
        }
    }

    fn register_set(&self, register: ExternId, index: u64, value: &Bits) -> Result<()> {
        self.check_index(register, index)?;
        match &mut self.lock().externs[register.index()] {
            Cells::Register(cells) => {
                cells.insert(index, value.clone());
                Ok(())
            }
            _ => Err(StateError::WrongKind),
        }
    }

    fn hash_parameters_set(&self, calculation: Option<&str>, parameters: &HashParameters) -> Result<()> {
        let function = parameters.function().ok_or(StateError::WrongKind)?;
        let hashes = &mut self.lock().hashes;
        let calculations = &self.program.calculations;
        match calculation.map(|name| calculations.iter().position(|c| c.name == name)) {
            Some(None) => return Err(StateError::NotFound),
            Some(Some(at)) if calculations[at].function != function => return Err(StateError::WrongKind),
            Some(Some(at)) => hashes.calculations[at] = parameters.clone(),
            None => {
                match parameters {
                    HashParameters::Crc(crc) if crc.width == 16 => hashes.crc16 = *crc,
                    HashParameters::Crc(crc) => hashes.crc32 = *crc,
                    HashParameters::Toeplitz(_) => {}
                }
                let named = hashes.calculations.iter_mut().zip(calculations);
                named.filter(|(_, c)| c.function == function).for_each(|(known, _)| *known = parameters.clone());
            }
        }
        Ok(())
    }

    fn hash_parameters(&self) -> Vec<(Option<String>, HashParameters)> {
        let hashes = &self.lock().hashes;
        let named = self.program.calculations.iter().zip(&hashes.calculations);
        let named = named.map(|(calculation, known)| (Some(calculation.name.clone()), known.clone()));
        [hashes.crc16, hashes.crc32].map(|crc| (None, HashParameters::Crc(crc))).into_iter().chain(named).collect()
    }
}

/// Whether a match has the kind and width of a key field.
fn field_fits(key: &Key, field: &KeyMatch) -> bool {
    let width = |v: &Bits| v.width() == key.width;
    match (key.kind, field) {
        (MatchKind::Exact, KeyMatch::Exact(v)) => width(v),
        (MatchKind::Lpm, KeyMatch::Lpm { value, prefix_len }) => width(value) && *prefix_len <= key.width,
        (MatchKind::Ternary, KeyMatch::Ternary { value, mask }) => width(value) && width(mask),
        (MatchKind::Range, KeyMatch::Range { low, high }) => width(low) && width(high),
        (MatchKind::Optional, KeyMatch::Optional(v)) => v.as_ref().is_none_or(width),
        _ => false,
    }
}

fn read_entry(installed: &table::Installed, timed: bool, now_us: u64) -> ReadEntry {
    let idle_us = now_us.saturating_sub(installed.last_hit_us);
    ReadEntry { entry: installed.entry.clone(), idle_ns: timed.then(|| idle_us.saturating_mul(1000)) }
}

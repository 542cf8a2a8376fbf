//! The state of a program on the fast tables: what packets read without locks and the control plane changes.
//!
//! ```text
//!   control plane ──▶ FastState (one lock) ──▶ tables, profiles ── publish ──▶ handles ◀── compiled code
//!                                   └── cells: counters, meters, registers ◀──────────────┘
//! ```
//!
//! [`FastState`] implements [`PipelineState`], the contract that it shares with the oracle, `interp::State`.
//! [`FastWorker`] is what one worker needs to run compiled code on it. `bindings` tells `jit` where everything lies;
//! nothing of that moves while the state lives.
//!
//! Threads: changes and reads by the control plane are serialised by one lock, which packets never take. A packet sees
//! each change of a table wholly or not at all; a change of a *member* reaches entries that name it one after the other.
//!
//! A state may be made with tables, profiles and cells of the state of a program before it ([`FastState::inheriting`]):
//! the same objects, so nothing is copied and nothing lost while packets still run through the old program. Such objects
//! have locks of their own, below the state's: taken one table at a time, a profile's before a table's.
//!
//! A change that a worker could misread, and which it does not acknowledge in time, is refused before any of it is published
//! (`tables::reclaim`). A batch that may be taken back ([`Phase`]) invalidates more than it must and tells compilers nothing, so that
//! taking it back is never refused.
//!
//! Direct counters and meters are cells by the entry's index. An index is used again only after every worker has been
//! quiescent, and its cells are set to zero then, so counts never move to another entry.
//!
//! Tests: `state/tests.rs`; random operations against the oracle in `tests/state_equivalence.rs`.

mod cells;
mod dynamic;
mod inherit;
mod meters;
mod profile;
mod shape;
mod worker;

pub use inherit::Keep;
pub use worker::FastWorker;

pub(crate) use meters::Meters;
pub(crate) use shape::Activity;

use crate::calls::Messages;
use crate::calls::hash::Parametric;
use crate::memory::{self, Reservation};
use abi::state::{DigestMessage, DynamicCounts, HashParameters, Phase, ReadEntry};
use abi::{Bindings, ExternBinding, PipelineState, StateError};
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, GroupMember, KeyMatch, MeterConfig, TableEntry};
use base::ids::{ExternId, TableId};
use cells::{Counters, NoMemory, Registers, ZeroedArray};
use dynamic::Expired;
use inherit::Inherited;
use ir::{Atomicity, ExternKind, Program, TableAction};
use profile::{Profile, Resolved};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tables::{Domain, Runs, SpecError, Table, TableSpec};

type Result<T> = std::result::Result<T, StateError>;

/// Why a program's state cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// No engine matches such a table.
    #[error("table `{table}`: {reason}")]
    Table {
        /// Its name.
        table: String,
        /// What is wrong.
        reason: SpecError,
    },
    /// An entry or default action of the program does not fit its table.
    #[error("table `{table}`: the program's entry {entry} is refused: {reason:?}")]
    Entry {
        /// Its name.
        table: String,
        /// Position of the entry.
        entry: usize,
        /// What is wrong.
        reason: StateError,
    },
    /// The cells of an extern do not fit into memory.
    #[error("`{name}`: not enough memory for {cells} cells{}", bound(*.limit))]
    Memory {
        /// The extern.
        name: String,
        /// How many it has.
        cells: u64,
        /// Bytes that all programs' cells may take, if that is why.
        limit: Option<u64>,
    },
}

/// The bound in words, if there is one.
fn bound(limit: Option<u64>) -> String {
    let Some(bytes) = limit else { return String::new() };
    format!(
        ": counters, meters and registers of all programs may take {} MB, whether packets touch them or not",
        bytes >> 20
    )
}

/// What an extern keeps outside the lock.
#[derive(Clone, Debug)]
enum Cells {
    Counters(Arc<Counters>),
    Meters(Arc<Meters>),
    Registers(Arc<Registers>),
    None,
}

/// A table and what the control plane calls it.
struct TableState {
    table: Table,
    default: EntryAction,
    /// Of a table that packets write.
    _memory: Option<Reservation>,
}

/// What is under the lock.
struct Content {
    tables: Vec<Arc<Mutex<TableState>>>,
    /// By extern.
    profiles: Vec<Option<Arc<Mutex<Profile>>>>,
    ports_down: BTreeSet<u32>,
    /// What changes belong to, and how many batches there were.
    phase: (Phase, u64),
}

impl Content {
    /// A table that is about to be changed.
    fn to_change(&self, table: TableId) -> MutexGuard<'_, TableState> {
        let mut state = lock(&self.tables[table.index()]);
        state.table.set_phase(self.phase.0, self.phase.1);
        state
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All tables and externs of one program.
pub struct FastState {
    program: Arc<Program>,
    domain: Arc<Domain>,
    content: Mutex<Content>,
    /// By extern.
    cells: Vec<Cells>,
    /// How packets of several workers keep their updates of registers apart; nothing for one worker.
    atomicity: Atomicity,
    /// Hits and misses by table, one array per worker.
    table_counters: Vec<ZeroedArray<[AtomicU64; 2]>>,
    /// What tables had of both under earlier programs.
    earlier: ZeroedArray<[AtomicU64; 2]>,
    /// Packets by action, of each table; counted by watched code alone (`watch`). To code, the counters with the numbers
    /// behind the program's externs.
    actions: Vec<Counters>,
    /// For the control plane.
    expired: Expired,
    /// Worker numbers that have a [`FastWorker`].
    taken: Vec<AtomicBool>,
    /// The latest time that a worker or the owner has told.
    now_us: AtomicU64,
    messages: Arc<Messages>,
    hashes: Arc<Parametric>,
}

impl std::fmt::Debug for FastState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastState").field("program", &self.program.name).finish_non_exhaustive()
    }
}

fn param_widths(program: &Program, actions: &[TableAction]) -> Vec<Vec<u32>> {
    let widths = |a: &TableAction| program.actions[a.action.index()].params.iter().map(|(_, w)| *w).collect();
    actions.iter().map(widths).collect()
}

fn new_table(program: &Program, table: &ir::Table, domain: &Arc<Domain>) -> std::result::Result<Table, LoadError> {
    let implementation = table.implementation.map(|e| &program.externs[e.index()].kind);
    let spec = TableSpec {
        keys: table.keys.iter().map(|k| (k.width, k.kind)).collect(),
        // A program may have more entries than its size says; they are all there.
        size: table.size.max(table.entries.len() as u64),
        actions: param_widths(program, &table.actions),
        members: implementation.is_some(),
        selector: matches!(implementation, Some(ExternKind::ActionSelector { .. })),
        idle_timeout: table.idle_timeout,
        direct: !table.direct.is_empty(),
    };
    let refused = |entry: usize, reason| LoadError::Entry { table: table.name.clone(), entry, reason };
    let default = Runs::Call(&table.default_action);
    let new = match &table.dynamic {
        Some(dynamic) => Table::dynamic(spec, dynamic::spec_of(dynamic), default, Arc::clone(domain)),
        None => Table::new(spec, default, Arc::clone(domain)),
    };
    let mut new = new.map_err(|reason| LoadError::Table { table: table.name.clone(), reason })?;
    for (i, entry) in table.entries.iter().enumerate() {
        let EntryAction::Call(call) = &entry.action else { return Err(refused(i, StateError::WrongKind)) };
        match new.insert(entry, Runs::Call(call), 0) {
            // An entry that an earlier one hides.
            Ok(_) | Err(StateError::Exists) => {}
            Err(reason) => return Err(refused(i, reason)),
        }
    }
    Ok(new)
}

/// How so many workers keep their updates of registers apart; one worker need not.
fn atomicity(program: &Program, workers: usize) -> Atomicity {
    if workers > 1 { Atomicity::new(program) } else { Atomicity::default() }
}

impl FastState {
    /// The state of a freshly loaded program, for workers `0..workers`: its own entries, cells at their initial values.
    pub fn new(program: Arc<Program>, workers: usize) -> std::result::Result<FastState, LoadError> {
        // A worker's number becomes free a moment before its place does; and of two programs, one of which inherits from
        // the other, both may have one.
        let atomicity = atomicity(&program, workers);
        FastState::with(program, workers, Domain::new(4 * workers), &Inherited::default(), atomicity)
    }

    fn with(
        program: Arc<Program>,
        workers: usize,
        domain: Arc<Domain>,
        inherited: &Inherited,
        atomicity: Atomicity,
    ) -> std::result::Result<FastState, LoadError> {
        domain.renew_seeds();
        let mut tables = Vec::new();
        for (i, table) in program.tables.iter().enumerate() {
            if let Some(kept) = inherited.tables.get(&TableId::from_index(i)) {
                tables.push(Arc::clone(kept));
                continue;
            }
            let default = EntryAction::Call(table.default_action.clone());
            let new = new_table(&program, table, &domain)?;
            let _memory = dynamic::reserve(&table.name, table.size, &new)?;
            tables.push(Arc::new(Mutex::new(TableState { table: new, default, _memory })));
        }
        let mut cells = Vec::new();
        let mut profiles = Vec::new();
        for (i, ext) in program.externs.iter().enumerate() {
            if let Some((kept, profile)) = inherited.externs.get(&ExternId::from_index(i)) {
                cells.push(kept.clone());
                profiles.push(profile.clone());
                continue;
            }
            // Direct resources have a cell for each index that an entry can have, and one for the default entry.
            let count = |size: u64, direct: Option<TableId>| match direct {
                Some(table) => lock(&tables[table.index()]).table.index_limit() + 1,
                None => size,
            };
            let (kind, count) = match &ext.kind {
                ExternKind::Counter { size, direct, .. } => {
                    let count = count(*size, *direct);
                    (Counters::new(count, workers).map(Arc::new).map(Cells::Counters), count)
                }
                ExternKind::Meter { size, direct, unit } => {
                    let count = count(*size, *direct);
                    (Meters::new(count, *unit, workers).map(Arc::new).map(Cells::Meters), count)
                }
                ExternKind::Register { size, width, initial } => {
                    let has_locks = atomicity.rank(ExternId::from_index(i)).is_some();
                    let registers = Registers::new(*size, *width, initial, has_locks);
                    (registers.map(Arc::new).map(Cells::Registers), *size)
                }
                _ => (Ok(Cells::None), 0),
            };
            cells.push(kind.map_err(|NoMemory(limit)| LoadError::Memory {
                name: ext.name.clone(),
                cells: count,
                limit,
            })?);
            let profile = match &ext.kind {
                ExternKind::ActionProfile { size, actions } => {
                    Some(Profile::new(*size, false, &param_widths(&program, actions), None))
                }
                ExternKind::ActionSelector { size, actions, empty, .. } => {
                    Some(Profile::new(*size, true, &param_widths(&program, actions), empty.as_ref()))
                }
                _ => None,
            };
            profiles.push(profile.map(|profile| Arc::new(Mutex::new(profile))));
        }
        let table_count = tables.len() as u64;
        let table_counters = (0..workers).map(|_| ZeroedArray::new(table_count)).collect::<std::result::Result<_, _>>();
        let no_memory = |NoMemory(limit)| LoadError::Memory { name: "tables".to_string(), cells: table_count, limit };
        let actions = program.tables.iter().map(|table| Counters::new(table.actions.len() as u64, workers));
        let actions = actions.collect::<std::result::Result<_, _>>().map_err(no_memory)?;
        let expired = Expired::new(program.tables.len());
        let state = FastState {
            messages: Arc::new(Messages::new(&program)),
            hashes: Arc::new(Parametric::new(&program.calculations, inherited.hashes.as_deref())),
            program,
            domain,
            content: Mutex::new(Content {
                tables,
                profiles,
                ports_down: inherited.ports_down.clone(),
                phase: Default::default(),
            }),
            cells,
            atomicity,
            table_counters: table_counters.map_err(no_memory)?,
            earlier: ZeroedArray::new(table_count).map_err(no_memory)?,
            actions,
            expired,
            taken: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            now_us: AtomicU64::new(0),
        };
        state.watch_releases();
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }

    /// What `jit` needs. Valid for as long as the state lives.
    pub fn bindings(&self) -> Bindings {
        let bind = |(i, cells): (usize, &Cells)| match cells {
            Cells::Counters(counters) => ExternBinding::Counter { size: counters.size() },
            Cells::Meters(meters) => ExternBinding::Meter { size: meters.size() },
            Cells::Registers(r) => ExternBinding::Register {
                cells: r.first(),
                size: r.size(),
                width: r.width(),
                footprint_bytes: r.footprint_bytes(),
                lock_rank: self.atomicity.rank(ExternId::from_index(i)),
            },
            Cells::None => ExternBinding::None,
        };
        let actions = self.actions.iter().map(|counters| ExternBinding::Counter { size: counters.size() });
        Bindings {
            tables: self.lock().tables.iter().map(|t| lock(t).table.binding()).collect(),
            externs: self.cells.iter().enumerate().map(bind).chain(actions).collect(),
        }
    }

    /// Whether workers take turns, a batch each, to keep their updates of registers apart.
    pub fn takes_turns(&self) -> bool {
        self.atomicity.takes_turns()
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Whom retired memory waits for.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Digests, log lines and failed assertions that packets left.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Digest messages since the last call.
    pub fn take_digests(&self) -> Vec<DigestMessage> {
        self.messages.take_digests()
    }

    /// About how much memory a table's entries and what finds them take.
    pub fn table_memory_bytes(&self, table: TableId) -> u64 {
        lock(&self.lock().tables[table.index()]).table.footprint_bytes()
    }

    /// Hits and misses of a table, summed over workers.
    pub fn table_counters(&self, table: TableId) -> (u64, u64) {
        let cell = |cells: &ZeroedArray<[AtomicU64; 2]>, i: usize| cells[table.index()][i].load(Ordering::Relaxed);
        let all = || self.table_counters.iter().chain([&self.earlier]);
        let sum = |i| all().map(|cells| cell(cells, i)).fold(0, u64::wrapping_add);
        (sum(0), sum(1))
    }

    /// Packets by action of a table, in the order of its actions, as far as watched code ran.
    pub fn action_counts(&self, table: TableId) -> Vec<u64> {
        let counters = &self.actions[table.index()];
        (0..counters.size()).map(|i| counters.get(i).map_or(0, |value| value.packets)).collect()
    }

    /// Tells the time, in microseconds since the switch started, for idle timers. Workers tell it too, coarsely.
    pub fn set_time(&self, now_us: u64) {
        self.now_us.fetch_max(now_us, Ordering::Relaxed);
    }

    /// The latest time told.
    pub fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    /// Entries that have not been hit for their idle timeout.
    pub fn idle_entries(&self) -> Vec<(TableId, TableEntry)> {
        let now_us = self.now_us();
        let content = self.lock();
        let timed = content.tables.iter().enumerate().filter(|(i, _)| self.program.tables[*i].idle_timeout);
        let mut idle = Vec::new();
        for (i, table) in timed {
            for ReadEntry { entry, idle_ns } in lock(table).table.entries(now_us) {
                if entry.idle_timeout_ns > 0 && idle_ns.unwrap_or(0) >= entry.idle_timeout_ns {
                    idle.push((TableId::from_index(i), entry));
                }
            }
        }
        idle
    }

    /// Frees what no worker can see any more. To be called now and then; changes do some of it too.
    pub fn collect(&self) {
        let content = self.lock();
        content.tables.iter().for_each(|t| lock(t).table.collect());
        content.profiles.iter().flatten().for_each(|p| lock(p).collect(&self.domain));
    }

    /// What an action of a table runs, if its references exist.
    fn resolve<'a>(&self, content: &Content, table: TableId, action: &'a EntryAction) -> Result<Resolved<'a>> {
        if let EntryAction::Call(call) = action {
            return Ok(Resolved::Call(Cow::Borrowed(call)));
        }
        lock(self.profile_of(content, table).ok_or(StateError::WrongKind)?).resolve(action)
    }

    /// The profile of a table.
    fn profile_of<'c>(&self, content: &'c Content, table: TableId) -> Option<&'c Mutex<Profile>> {
        let profile = self.program.tables[table.index()].implementation?;
        content.profiles.get(profile.index())?.as_deref()
    }

    fn count_use(&self, content: &Content, table: TableId, new: Option<&EntryAction>, old: Option<&EntryAction>) {
        if let Some(profile) = self.profile_of(content, table) {
            let mut profile = lock(profile);
            new.into_iter().for_each(|action| profile.add_use(action));
            old.into_iter().for_each(|action| profile.drop_use(action));
        }
    }

    /// Sets the direct resources of an index that a new entry got.
    fn reset_direct(&self, table: TableId, index: u32) {
        for ext in &self.program.tables[table.index()].direct {
            self.cells[ext.index()].reset(index);
        }
    }

    /// Refuses what may leave more to be freed while too much waits; what is taken back was asked for when it was done.
    fn await_room(&self, content: &Content) -> Result<()> {
        if content.phase.0 != Phase::Undo {
            self.domain.await_room()?;
        }
        Ok(())
    }

    /// As [`FastState::with_profile`], for changes that may leave more to be freed.
    fn change_profile<R>(
        &self,
        profile: ExternId,
        f: impl FnOnce(&mut Profile, &BTreeSet<u32>) -> Result<R>,
    ) -> Result<R> {
        self.await_room(&self.lock())?;
        self.with_profile(profile, f)
    }

    fn with_profile<R>(
        &self,
        profile: ExternId,
        f: impl FnOnce(&mut Profile, &BTreeSet<u32>) -> Result<R>,
    ) -> Result<R> {
        let content = &*self.lock();
        let found = content.profiles.get(profile.index()).and_then(Option::as_deref);
        let found = &mut *lock(found.ok_or(StateError::WrongKind)?);
        let result = f(found, &content.ports_down);
        found.collect(&self.domain);
        result
    }

    /// Whether an index is in the array of a counter, meter or register.
    fn check_index(&self, ext: ExternId, index: u64) -> Result<()> {
        match self.program.externs.get(ext.index()).map(|e| &e.kind) {
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

    /// The cell of an entry's direct resources; of the default entry's for an empty key.
    fn direct_index(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<u64> {
        let content = self.lock();
        let mut state = lock(&content.tables[table.index()]);
        let index = if key.is_empty() { state.table.default_index() } else { state.table.find(key, priority)? };
        Ok(index.into())
    }

    /// The counters of an extern, and the cell of an entry if they are direct.
    fn direct_counters(&self, counter: ExternId, key: &[KeyMatch], priority: i32) -> Result<(&Counters, u64)> {
        match (self.cells.get(counter.index()), self.program.externs.get(counter.index()).map(|e| &e.kind)) {
            (Some(Cells::Counters(counters)), Some(ExternKind::Counter { direct: Some(table), .. })) => {
                Ok((counters, self.direct_index(*table, key, priority)?))
            }
            _ => Err(StateError::WrongKind),
        }
    }

    fn direct_meters(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<(&Meters, u64)> {
        match (self.cells.get(meter.index()), self.program.externs.get(meter.index()).map(|e| &e.kind)) {
            (Some(Cells::Meters(meters)), Some(ExternKind::Meter { direct: Some(table), .. })) => {
                Ok((meters, self.direct_index(*table, key, priority)?))
            }
            _ => Err(StateError::WrongKind),
        }
    }

    fn counters(&self, counter: ExternId) -> Result<&Counters> {
        if let Cells::Counters(counters) = &self.cells[counter.index()] {
            Ok(counters)
        } else {
            Err(StateError::WrongKind)
        }
    }

    fn meters(&self, meter: ExternId) -> Result<&Meters> {
        if let Cells::Meters(meters) = &self.cells[meter.index()] { Ok(meters) } else { Err(StateError::WrongKind) }
    }

    fn registers(&self, register: ExternId) -> Result<&Registers> {
        if let Cells::Registers(r) = &self.cells[register.index()] { Ok(r) } else { Err(StateError::WrongKind) }
    }
}

impl PipelineState for FastState {
    fn set_phase(&self, phase: Phase) -> Phase {
        let mut content = self.lock();
        let before = std::mem::replace(&mut content.phase.0, phase);
        content.phase.1 += u64::from(before == Phase::Single);
        before
    }

    fn insert(&self, table: TableId, entry: &TableEntry) -> Result<()> {
        let content = &*self.lock();
        if content.phase.0 != Phase::Undo {
            memory::entry_fits().map_err(StateError::NoMemory)?;
        }
        let resolved = self.resolve(content, table, &entry.action)?;
        let now_us = self.now_us();
        // The cells of the new index are cleared before packets can find the entry.
        let direct = |index| self.reset_direct(table, index);
        content.to_change(table).table.insert_with(entry, resolved.runs(), now_us, direct)?;
        self.count_use(content, table, Some(&entry.action), None);
        Ok(())
    }

    fn modify(&self, table: TableId, entry: &TableEntry) -> Result<()> {
        let content = &*self.lock();
        let resolved = self.resolve(content, table, &entry.action)?;
        let old = content.to_change(table).table.modify(entry, resolved.runs())?;
        self.count_use(content, table, Some(&entry.action), Some(&old));
        Ok(())
    }

    fn delete(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<()> {
        let content = &*self.lock();
        let was = content.to_change(table).table.delete(key, priority)?;
        self.count_use(content, table, None, Some(&was.action));
        Ok(())
    }

    fn entries(&self, table: TableId) -> Vec<ReadEntry> {
        let now_us = self.now_us();
        lock(&self.lock().tables[table.index()]).table.entries(now_us)
    }

    fn walk(&self, table: TableId, place: u64, about: usize) -> (Vec<ReadEntry>, Option<u64>) {
        let now_us = self.now_us();
        lock(&self.lock().tables[table.index()]).table.walk(place, about, now_us)
    }

    fn is_before(&self, table: TableId, place: u64, key: &[KeyMatch], priority: i32) -> bool {
        lock(&self.lock().tables[table.index()]).table.is_before(place, key, priority)
    }

    fn entry(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<ReadEntry> {
        let now_us = self.now_us();
        lock(&self.lock().tables[table.index()]).table.entry(key, priority, now_us)
    }

    fn len(&self, table: TableId) -> u64 {
        lock(&self.lock().tables[table.index()]).table.len()
    }

    fn expire(&self, now_us: u64) {
        self.set_time(now_us);
        self.expire_entries(now_us);
    }

    fn take_expired(&self) -> Vec<(TableId, TableEntry)> {
        self.expired.take()
    }

    fn tells_idle(&self, table: TableId) -> bool {
        self.program.tables[table.index()].dynamic.is_some()
    }

    fn dynamic_counts(&self, table: TableId) -> DynamicCounts {
        self.counts_of(table)
    }

    fn set_default(&self, table: TableId, action: Option<&EntryAction>) -> Result<()> {
        let content = &*self.lock();
        let own = EntryAction::Call(self.program.tables[table.index()].default_action.clone());
        let action = action.unwrap_or(&own);
        let resolved = self.resolve(content, table, action)?;
        let mut guard = content.to_change(table);
        let state = &mut *guard;
        // Nothing comes behind a default action, so a group has the program's own one in reserve.
        let reserve = &self.program.tables[table.index()].default_action;
        state.table.set_default(match resolved {
            Resolved::Group(group) => Runs::GroupOr(group, reserve),
            Resolved::Call(_) => resolved.runs(),
        })?;
        let old = std::mem::replace(&mut state.default, action.clone());
        drop(guard);
        self.count_use(content, table, Some(action), Some(&old));
        Ok(())
    }

    fn default_action(&self, table: TableId) -> EntryAction {
        lock(&self.lock().tables[table.index()]).default.clone()
    }

    fn member_insert(&self, profile: ExternId, member: u32, action: &ActionCall, leaving: usize) -> Result<()> {
        self.change_profile(profile, |p, _| p.member_insert(member, action, leaving))
    }

    fn member_modify(&self, profile: ExternId, member: u32, action: &ActionCall) -> Result<()> {
        let content = &*self.lock();
        let found = content.profiles.get(profile.index()).and_then(Option::as_deref);
        let found = &mut *lock(found.ok_or(StateError::WrongKind)?);
        let is_used = found.is_used(member, action)?;
        self.await_room(content)?;
        // First all of them are asked whether they may change, then all are changed.
        let uses = |(_, table): &(usize, &ir::Table)| is_used && table.implementation == Some(profile);
        let tables = self.program.tables.iter().enumerate().filter(uses);
        let mut tables: Vec<_> = tables.map(|(i, _)| content.to_change(TableId::from_index(i))).collect();
        for state in &mut tables {
            let is_default = state.default == EntryAction::Member(member);
            state.table.await_change_of_member(is_default)?;
        }
        found.member_modify(member, action, &content.ports_down, &self.domain);
        found.collect(&self.domain);
        for state in &mut tables {
            // What follows was asked for above.
            state.table.set_phase(Phase::Undo, content.phase.1);
            state.table.change_member(member, Runs::Call(action));
            if state.default == EntryAction::Member(member) {
                state.table.set_default(Runs::Call(action))?;
            }
        }
        Ok(())
    }

    fn member_delete(&self, profile: ExternId, member: u32) -> Result<()> {
        self.with_profile(profile, |p, _| p.member_delete(member, &self.domain))
    }

    fn members(&self, profile: ExternId) -> Vec<(u32, ActionCall)> {
        self.with_profile(profile, |p, _| Ok(p.members())).unwrap_or_default()
    }

    fn group_insert(&self, profile: ExternId, group: u32, members: &[GroupMember], max_size: u32) -> Result<()> {
        self.change_profile(profile, |p, down| p.group_insert(group, members, max_size, down))
    }

    fn group_modify(&self, profile: ExternId, group: u32, members: &[GroupMember]) -> Result<()> {
        self.change_profile(profile, |p, down| p.group_modify(group, members, down, &self.domain))
    }

    fn group_set_random(&self, profile: ExternId, group: u32) -> Result<()> {
        self.with_profile(profile, |p, _| p.group_set_random(group))
    }

    fn group_is_random(&self, profile: ExternId, group: u32) -> bool {
        self.with_profile(profile, |p, _| Ok(p.group_is_random(group))).unwrap_or(false)
    }

    fn group_delete(&self, profile: ExternId, group: u32) -> Result<()> {
        self.with_profile(profile, |p, _| p.group_delete(group, &self.domain))
    }

    fn groups(&self, profile: ExternId) -> Vec<(u32, Vec<GroupMember>, u32)> {
        self.with_profile(profile, |p, _| Ok(p.groups())).unwrap_or_default()
    }

    fn port_state(&self, port: u32, up: bool) {
        let content = &mut *self.lock();
        let changed = if up { content.ports_down.remove(&port) } else { content.ports_down.insert(port) };
        if changed {
            let profiles = content.profiles.iter().flatten();
            profiles.for_each(|p| lock(p).port_changed(port, &content.ports_down, &self.domain));
        }
    }

    fn counter(&self, counter: ExternId, index: u64) -> Result<CounterValue> {
        self.check_index(counter, index)?;
        self.counters(counter)?.get(index).ok_or(StateError::NotFound)
    }

    fn counter_set(&self, counter: ExternId, index: u64, value: CounterValue) -> Result<()> {
        self.check_index(counter, index)?;
        if self.counters(counter)?.set(index, value) { Ok(()) } else { Err(StateError::NotFound) }
    }

    fn direct_counter(&self, counter: ExternId, key: &[KeyMatch], priority: i32) -> Result<CounterValue> {
        let (counters, index) = self.direct_counters(counter, key, priority)?;
        counters.get(index).ok_or(StateError::NotFound)
    }

    fn direct_counter_set(
        &self,
        counter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        value: CounterValue,
    ) -> Result<()> {
        let (counters, index) = self.direct_counters(counter, key, priority)?;
        if counters.set(index, value) { Ok(()) } else { Err(StateError::NotFound) }
    }

    fn meter(&self, meter: ExternId, index: u64) -> Result<Option<MeterConfig>> {
        self.check_index(meter, index)?;
        self.meters(meter)?.config(index).ok_or(StateError::NotFound)
    }

    fn meter_set(&self, meter: ExternId, index: u64, config: Option<MeterConfig>) -> Result<()> {
        self.check_index(meter, index)?;
        if self.meters(meter)?.configure(index, config) { Ok(()) } else { Err(StateError::NotFound) }
    }

    fn meter_counts(&self, meter: ExternId, index: u64) -> Result<[CounterValue; 3]> {
        self.check_index(meter, index)?;
        self.meters(meter)?.counts(index).ok_or(StateError::NotFound)
    }

    fn meter_counts_reset(&self, meter: ExternId, index: u64) -> Result<()> {
        self.check_index(meter, index)?;
        if self.meters(meter)?.reset_counts(index) { Ok(()) } else { Err(StateError::NotFound) }
    }

    fn direct_meter_counts(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<[CounterValue; 3]> {
        let (meters, index) = self.direct_meters(meter, key, priority)?;
        meters.counts(index).ok_or(StateError::NotFound)
    }

    fn direct_meter_counts_reset(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<()> {
        let (meters, index) = self.direct_meters(meter, key, priority)?;
        if meters.reset_counts(index) { Ok(()) } else { Err(StateError::NotFound) }
    }

    fn direct_meter(&self, meter: ExternId, key: &[KeyMatch], priority: i32) -> Result<Option<MeterConfig>> {
        let (meters, index) = self.direct_meters(meter, key, priority)?;
        meters.config(index).ok_or(StateError::NotFound)
    }

    fn direct_meter_set(
        &self,
        meter: ExternId,
        key: &[KeyMatch],
        priority: i32,
        config: Option<MeterConfig>,
    ) -> Result<()> {
        let (meters, index) = self.direct_meters(meter, key, priority)?;
        if meters.configure(index, config) { Ok(()) } else { Err(StateError::NotFound) }
    }

    fn register(&self, register: ExternId, index: u64) -> Result<Bits> {
        self.check_index(register, index)?;
        self.registers(register)?.get(index).ok_or(StateError::NotFound)
    }

    fn register_set(&self, register: ExternId, index: u64, value: &Bits) -> Result<()> {
        self.check_index(register, index)?;
        if self.registers(register)?.set(index, value) { Ok(()) } else { Err(StateError::NotFound) }
    }

    fn hash_parameters_set(&self, calculation: Option<&str>, parameters: &HashParameters) -> Result<()> {
        self.hashes.set(calculation, parameters)
    }

    fn hash_parameters(&self) -> Vec<(Option<String>, HashParameters)> {
        self.hashes.all()
    }
}

#[cfg(test)]
mod tests;

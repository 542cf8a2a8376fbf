//! The state of a program on the fast tables: read by packets without locks, changed by the control plane.
//!
//! ```text
//!   control plane ──▶ FastState (one lock) ──▶ tables, profiles ── publish ──▶ handles ◀── compiled code
//!                                   └── cells: counters, meters, registers ◀──────────────┘
//! ```
//!
//! [`FastState`] implements [`PipelineState`], the interface that it shares with the oracle, `interp::State`.
//! [`FastWorker`] is what one worker needs to run compiled code on it. [`FastState::bindings`] gives `jit` the
//! addresses of everything; nothing bound moves while the state lives.
//!
//! Threads: changes and reads by the control plane are serialised by one lock, which packets never take. A packet
//! sees each change of a table completely or not at all; a change of a *member* reaches the entries that name it one
//! after the other.
//!
//! A state may share tables, profiles and cells with the state of an earlier program ([`FastState::inheriting`]):
//! they are the same objects, so nothing is copied and no count is lost while packets still run through the old
//! program. Such objects have locks of their own. Lock order: the state's, a profile's, a table's. Only one table is
//! locked at a time, except by a change of a member, which locks all tables of the profile under the profile's lock.
//!
//! A change that a worker could misread, and does not acknowledge in time, is refused before any of it is published
//! (`tables::reclaim`). A batch that may be rolled back ([`Phase`]) invalidates more than necessary and gives
//! compilers no shapes, so that rolling it back is never refused.
//!
//! Direct counters and meters are cells indexed by the entry's index. An index is reused only after every worker has
//! passed a quiescent point, and its cells are cleared then, so counts never move to another entry.
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

/// Why a program's state cannot be created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// No match engine supports this table.
    #[error("table `{table}`: {reason}")]
    Table {
        /// Its name.
        table: String,
        /// The reason.
        reason: SpecError,
    },
    /// A constant entry or default action of the program does not fit its table.
    #[error("table `{table}`: the program's entry {entry} is refused: {reason:?}")]
    Entry {
        /// Its name.
        table: String,
        /// Position of the entry in the program.
        entry: usize,
        /// The reason.
        reason: StateError,
    },
    /// There is not enough memory for the cells of an extern.
    #[error("`{name}`: not enough memory for {cells} cells{}", bound(*.limit))]
    Memory {
        /// The extern.
        name: String,
        /// The number of its cells.
        cells: u64,
        /// The limit in bytes on all programs' cells together, if it was reached.
        limit: Option<u64>,
    },
}

/// The limit as text, if there is one.
fn bound(limit: Option<u64>) -> String {
    let Some(bytes) = limit else { return String::new() };
    format!(
        ": counters, meters and registers of all programs may take {} MB, whether packets touch them or not",
        bytes >> 20
    )
}

/// The cells of an extern, which are accessed without the lock.
#[derive(Clone, Debug)]
enum Cells {
    Counters(Arc<Counters>),
    Meters(Arc<Meters>),
    Registers(Arc<Registers>),
    None,
}

/// A table with the default action as the control plane gave it.
struct TableState {
    table: Table,
    default: EntryAction,
    /// The memory of a table that packets write.
    _memory: Option<Reservation>,
}

/// The part of the state behind the lock.
struct Content {
    tables: Vec<Arc<Mutex<TableState>>>,
    /// By extern.
    profiles: Vec<Option<Arc<Mutex<Profile>>>>,
    ports_down: BTreeSet<u32>,
    /// The phase that changes belong to, and the number of batches so far.
    phase: (Phase, u64),
}

impl Content {
    /// Locks a table for a change in the current phase.
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
    /// How concurrent register updates of several workers are made atomic; empty for one worker.
    atomicity: Atomicity,
    /// Hits and misses by table; one array per worker.
    table_counters: Vec<ZeroedArray<[AtomicU64; 2]>>,
    /// Hits and misses under earlier programs.
    earlier: ZeroedArray<[AtomicU64; 2]>,
    /// Packets by action of each table, counted by watched code only (`watch`). Compiled code knows them as counters
    /// numbered after the program's externs.
    actions: Vec<Counters>,
    /// Expired entries that the control plane has not been notified of yet.
    expired: Expired,
    /// Worker numbers that have a [`FastWorker`].
    taken: Vec<AtomicBool>,
    /// The latest time reported by a worker or the owner, in microseconds.
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
        // A program may have more constant entries than the table's size; all are inserted.
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
            // An entry with the same key exists: it comes first.
            Ok(_) | Err(StateError::Exists) => {}
            Err(reason) => return Err(refused(i, reason)),
        }
    }
    Ok(new)
}

/// How concurrent register updates of `workers` workers are made atomic; one worker needs nothing.
fn atomicity(program: &Program, workers: usize) -> Atomicity {
    if workers > 1 { Atomicity::new(program) } else { Atomicity::default() }
}

impl FastState {
    /// The state of a freshly loaded program for workers `0..workers`: constant entries only, cells at their initial
    /// values.
    ///
    /// # Errors
    /// If a table is not supported, a constant entry does not fit, or memory is insufficient.
    pub fn new(program: Arc<Program>, workers: usize) -> std::result::Result<FastState, LoadError> {
        // Twice as many places as workers, since a worker's number becomes free slightly before its place does; and
        // twice that, since two programs that share state may both have executors.
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
            // Direct resources have a cell for each possible entry index, and one for the default entry.
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

    /// The addresses and layouts that `jit` compiles into code. Valid as long as the state lives.
    pub fn bindings(&self) -> Bindings {
        let bind = |(i, cells): (usize, &Cells)| match cells {
            Cells::Counters(counters) => ExternBinding::Counter { size: counters.size() },
            Cells::Meters(meters) => {
                let (cells, stride_bytes) = meters.lines();
                ExternBinding::Meter { size: meters.size(), cells, stride_bytes }
            }
            Cells::Registers(r) => ExternBinding::Register {
                cells: r.first(),
                size: r.size(),
                width: r.width(),
                footprint_bytes: r.footprint_bytes(),
                lock_rank: self.atomicity.rank(ExternId::from_index(i)),
                is_stepped: self.atomicity.is_stepped(ExternId::from_index(i)),
            },
            Cells::None => ExternBinding::None,
        };
        let actions = self.actions.iter().map(|counters| ExternBinding::Counter { size: counters.size() });
        Bindings {
            tables: self.lock().tables.iter().map(|t| lock(t).table.binding()).collect(),
            externs: self.cells.iter().enumerate().map(bind).chain(actions).collect(),
        }
    }

    /// Whether workers take turns, a batch each, to make register updates atomic.
    pub fn takes_turns(&self) -> bool {
        self.atomicity.takes_turns()
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The reclamation domain of the state's memory.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Digests, log lines and failed assertions from packets.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Digest messages since the last call.
    pub fn take_digests(&self) -> Vec<DigestMessage> {
        self.messages.take_digests()
    }

    /// Approximate memory of a table's entries and lookup structure, in bytes.
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

    /// Packets by action of a table, in the order of its actions, as far as code was watched.
    pub fn action_counts(&self, table: TableId) -> Vec<u64> {
        let counters = &self.actions[table.index()];
        (0..counters.size()).map(|i| counters.get(i).map_or(0, |value| value.packets)).collect()
    }

    /// Advances the clock of idle timers, in microseconds since the switch started. Workers advance it, too,
    /// coarsely.
    pub fn set_time(&self, now_us: u64) {
        self.now_us.fetch_max(now_us, Ordering::Relaxed);
    }

    /// The clock of idle timers, in microseconds.
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

    /// Frees memory that no worker can access any more. Called periodically; changes also free some.
    pub fn collect(&self) {
        let content = self.lock();
        content.tables.iter().for_each(|t| lock(t).table.collect());
        content.profiles.iter().flatten().for_each(|p| lock(p).collect(&self.domain));
    }

    /// Resolves a table's action: members to their calls, groups to their addresses.
    fn resolve<'a>(&self, content: &Content, table: TableId, action: &'a EntryAction) -> Result<Resolved<'a>> {
        if let EntryAction::Call(call) = action {
            return Ok(Resolved::Call(Cow::Borrowed(call)));
        }
        lock(self.profile_of(content, table).ok_or(StateError::WrongKind)?).resolve(action)
    }

    /// The action profile that a table uses, if any.
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

    /// Clears the direct resources of an index that a new entry got.
    fn reset_direct(&self, table: TableId, index: u32) {
        for ext in &self.program.tables[table.index()].direct {
            self.cells[ext.index()].reset(index);
        }
    }

    /// Refuses changes that retire memory while too much waits to be freed. Rolling back is exempt: room was ensured
    /// when the change was made.
    fn await_room(&self, content: &Content) -> Result<()> {
        if content.phase.0 != Phase::Undo {
            self.domain.await_room()?;
        }
        Ok(())
    }

    /// As [`FastState::with_profile`], for changes that may retire memory.
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

    /// Checks that an index is within the array of a counter, meter or register.
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

    /// The cell of an entry's direct resources; an empty key stands for the default entry.
    fn direct_index(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Result<u64> {
        let content = self.lock();
        let mut state = lock(&content.tables[table.index()]);
        let index = if key.is_empty() { state.table.default_index() } else { state.table.find(key, priority)? };
        Ok(index.into())
    }

    /// A direct counter's array and the cell of an entry.
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
        // The new index's cells are cleared before packets can find the entry.
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

    fn walk_has_passed(&self, table: TableId, place: u64, key: &[KeyMatch], priority: i32) -> bool {
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

    fn reports_idle(&self, table: TableId) -> bool {
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
        // Nothing follows a default action, so a group as default falls back to the program's own default action.
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
        // First check that every table that uses the profile may change, then change all.
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
            // Checked above, so this cannot be refused.
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

//! A match-action table: the control plane's operations on its entries, and the binding that readers use.
//!
//! Hash tables of exact fields store their entries only where readers look them up ([`crate::exact`]); all others keep
//! a record of each entry beside an engine ([`crate::recorded`]). Tables that packets write have many writers
//! ([`crate::exact::dynamic`]), of which the control plane is one. Readers get a [`TableBinding`]; everything here is
//! the writer's, one call at a time (`&mut`).
//!
//! **Refused changes.** A change that running code could misinterpret is made after no such code runs any more, or
//! refused with [`StateError::Unacknowledged`] before anything is written ([`crate::reclaim`]). [`Assumed`] records
//! what code may assume; a change invalidates what it needs to once it is known to be valid otherwise. A change in a
//! batch that may be rolled back ([`Phase::Atomic`]) invalidates everything that is assumed of the table's entries, and
//! leaves enough free indices to restore what the batch deleted. So a rollback is never refused, provided that no code
//! is compiled for the table meanwhile, which the caller ensures.
//!
//! Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use crate::entry::{Runs, Tag};
use crate::exact::dynamic::{DynamicSpec, DynamicTable};
use crate::exact::store::ExactTable;
use crate::key::KeyShape;
use crate::reclaim::{Assumption, Domain, Unacknowledged};
use crate::recorded::RecordedTable;
use crate::strategy;
use abi::state::{DynamicCounts, Phase, ReadEntry, StateError};
use abi::{TableBinding, TableShape};
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Indices that a table with direct resources has beyond its size, so that an entry can be added right after one was
/// deleted: an eighth of the size, plus this many.
const SPARE_INDICES: u64 = 64;

/// Changes of a table after which the backlog is checked again; the check reads cache lines that all workers write.
const ROOM_CHECK_INTERVAL: u64 = 64;

/// The declaration of a table.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Width in bits and match kind of each key field.
    pub keys: Vec<(u32, MatchKind)>,
    /// Limit of the number of entries.
    pub size: u64,
    /// Widths in bits of the parameters of each action in the table's list.
    pub actions: Vec<Vec<u32>>,
    /// Whether entries may name members of an action profile.
    pub members: bool,
    /// Whether entries may also name groups.
    pub selector: bool,
    /// Whether the time of an entry's last hit is recorded, for idle timeouts.
    pub idle_timeout: bool,
    /// Whether entries have direct counters or meters, which their indices select.
    pub direct: bool,
}

/// The information about a table's entries that code is to be specialised for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// All entries, if there are at most this many.
    pub entries_max: Option<u64>,
    /// The distinct contents of entries, if they are few.
    pub results: bool,
    /// If all entries are not wanted or too many: a filter for keys that match none of them ([`crate::prefilter`]), if
    /// a few bytes are selective enough.
    pub prefilter: bool,
}

/// Why a table cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecError {
    /// Several `lpm` keys without priorities: which of two matching entries wins would be undefined.
    SeveralLpmKeys,
    /// The table would need more indices than there are.
    TooLarge(u64),
    /// Packets can write only tables of exact fields whose entries run actions.
    NotDynamic,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::SeveralLpmKeys => write!(f, "a table without ternary, range or optional keys has one lpm key"),
            SpecError::TooLarge(size) => {
                write!(f, "a table with direct resources, or that packets write, has at most 2^31 entries, not {size}")
            }
            SpecError::NotDynamic => write!(f, "packets write tables of exact keys without action profile only"),
        }
    }
}

impl std::error::Error for SpecError {}

/// Limit of the indices of a table's entries, exclusive.
pub(crate) fn index_limit(spec: &TableSpec) -> u64 {
    if spec.direct { spec.size + spec.size / 8 + SPARE_INDICES } else { u64::from(u32::MAX) }
}

/// The tag of default entries: in tables with direct resources its index follows those of all other entries.
pub(crate) fn default_tag(spec: &TableSpec) -> Tag {
    match spec.direct {
        true => Tag { index: index_limit(spec) as u32, ..Tag::NONE },
        false => Tag::NONE,
    }
}

impl From<Unacknowledged> for StateError {
    fn from(by: Unacknowledged) -> StateError {
        StateError::Unacknowledged(by.worker)
    }
}

/// What code may assume of a table ([`Table::shape`]), and the phase that changes belong to.
#[derive(Debug, Default)]
pub(crate) struct Assumed {
    /// The set of entries.
    pub(crate) entries: Assumption,
    /// The set of distinct contents that entries have.
    pub(crate) contents: Assumption,
    /// The default action.
    default_action: Assumption,
    phase: Phase,
    /// The indices that a rollback of the batch needs: those of the entries that the batch deleted.
    pub(crate) owed_indices: u64,
}

impl Assumed {
    /// Invalidates what a change of an entry breaks. Called before the change.
    pub(crate) fn entries_change(&mut self, domain: &Domain) -> Result<(), Unacknowledged> {
        if self.phase == Phase::Atomic {
            self.contents.invalidate(domain)?;
        }
        self.entries.invalidate(domain)
    }

    /// Counts a deleted entry whose index is reused later.
    pub(crate) fn index_deleted(&mut self) {
        if self.phase == Phase::Atomic {
            self.owed_indices += 1;
        }
    }

    /// The number of indices that must be free before an entry is added or, if `is_gone`, deleted.
    pub(crate) fn indices_needed(&self, is_gone: bool) -> u64 {
        match (self.phase, is_gone) {
            (Phase::Atomic, _) => self.owed_indices + 1,
            (_, is_gone) => u64::from(!is_gone),
        }
    }
}

/// Waits, for as long as for an acknowledgement, until `needed` indices are free. `free` collects retired entries, and
/// returns the number of free indices.
pub(crate) fn await_indices(domain: &Domain, needed: u64, mut free: impl FnMut() -> u64) -> Result<(), Unacknowledged> {
    if needed == 0 || free() >= needed {
        return Ok(());
    }
    domain.await_acknowledged(domain.advance())?;
    let free = free();
    debug_assert!(free >= needed.min(1), "everything that waits is free now");
    Ok(())
}

/// A table with its one writer.
pub struct Table {
    spec: TableSpec,
    kind: Kind,
    domain: Arc<Domain>,
    /// Counts changes of entries and of the default action; other threads may read it.
    changes: Arc<AtomicU64>,
    /// Changes since the backlog was last checked.
    changes_since_shape: u64,
    assumed: Assumed,
    /// The batch of the last change.
    batch: u64,
}

enum Kind {
    Exact(Box<ExactTable>),
    Dynamic(Box<DynamicTable>),
    Recorded(Box<RecordedTable>),
}

/// Calls a method that all kinds have.
macro_rules! each {
    ($table:expr, $name:ident => $call:expr) => {
        match $table {
            Kind::Exact($name) => $call,
            Kind::Dynamic($name) => $call,
            Kind::Recorded($name) => $call,
        }
    };
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("spec", &self.spec).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Table {
    /// An empty table. `default_action` must be one of the actions, with arguments of the right widths.
    ///
    /// # Errors
    /// [`SpecError::SeveralLpmKeys`] and [`SpecError::TooLarge`].
    pub fn new(spec: TableSpec, default_action: Runs<'_>, domain: Arc<Domain>) -> Result<Table, SpecError> {
        if spec.direct && spec.size > 1 << 31 {
            return Err(SpecError::TooLarge(spec.size));
        }
        let shape = KeyShape::new(&spec.keys);
        let kind = if strategy::in_buckets(&shape, spec.size) {
            Kind::Exact(Box::new(ExactTable::new(spec.clone(), shape, default_action, Arc::clone(&domain))))
        } else {
            Kind::Recorded(Box::new(RecordedTable::new(spec.clone(), shape, default_action, Arc::clone(&domain))?))
        };
        Ok(Table {
            spec,
            kind,
            domain,
            changes: Arc::default(),
            changes_since_shape: 0,
            assumed: Assumed::default(),
            batch: 0,
        })
    }

    /// An empty table that packets write.
    ///
    /// # Errors
    /// [`SpecError::NotDynamic`] unless all keys are exact and entries run actions; [`SpecError::TooLarge`].
    pub fn dynamic(
        spec: TableSpec,
        dynamic: DynamicSpec,
        default_action: Runs<'_>,
        domain: Arc<Domain>,
    ) -> Result<Table, SpecError> {
        let all_exact = !spec.keys.is_empty() && spec.keys.iter().all(|(_, kind)| *kind == MatchKind::Exact);
        if !all_exact || spec.members || spec.selector {
            return Err(SpecError::NotDynamic);
        }
        let shape = KeyShape::new(&spec.keys);
        let table = DynamicTable::new(spec.clone(), dynamic, shape, default_action, Arc::clone(&domain))?;
        let kind = Kind::Dynamic(Box::new(table));
        Ok(Table {
            spec,
            kind,
            domain,
            changes: Arc::default(),
            changes_since_shape: 0,
            assumed: Assumed::default(),
            batch: 0,
        })
    }

    /// Whether packets write the table.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.kind, Kind::Dynamic(_))
    }

    /// For a table that packets write: bytes of the memory that depends on its size, all of which is allocated up
    /// front.
    pub fn memory_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Dynamic(t) => t.memory_bytes(),
            _ => 0,
        }
    }

    /// Sets the most entries that a packet replaces or evicts in one run, in a table that packets write
    /// (`exact::dynamic`). The caller guarantees that no packet uses the results of a lookup in this table after a later
    /// packet of its batch has looked up or added an entry.
    pub fn set_retirements(&self, each: u32) {
        if let Kind::Dynamic(t) = &self.kind {
            t.set_retirements(each);
        }
    }

    /// For a table that packets write: sets the function that resets an index's direct resources before another entry
    /// gets it.
    pub fn on_release(&self, reset: Box<dyn Fn(u32) + Send + Sync>) {
        if let Kind::Dynamic(t) = &self.kind {
            t.on_release(reset);
        }
    }

    /// For a table that packets write: removes expired entries; passes those that the control plane is notified of to
    /// `notify`.
    pub fn expire(&mut self, now_us: u64, notify: impl FnMut(TableEntry)) {
        if let Kind::Dynamic(t) = &mut self.kind {
            t.expire(now_us, notify);
        }
    }

    /// For a table that packets write: counts of refused, evicted and expired entries.
    pub fn dynamic_counts(&self) -> DynamicCounts {
        match &self.kind {
            Kind::Dynamic(t) => t.counts(),
            _ => DynamicCounts::default(),
        }
    }

    /// The table's layout, lookup functions and addresses, for compiled code.
    pub fn binding(&self) -> TableBinding {
        each!(&self.kind, t => t.binding())
    }

    /// How compiled code looks keys up; see [`TableBinding::engine`].
    pub fn engine(&self) -> abi::EngineKind {
        each!(&self.kind, t => t.engine_kind())
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        each!(&self.kind, t => t.len())
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Limit of the entries' indices, exclusive; it never changes for tables with direct resources.
    pub fn index_limit(&self) -> u64 {
        match &self.kind {
            Kind::Dynamic(t) if self.spec.direct => t.index_limit(),
            _ => index_limit(&self.spec),
        }
    }

    /// The index of the default entry's direct resources; it follows those of all other entries.
    pub fn default_index(&self) -> u32 {
        match &self.kind {
            Kind::Dynamic(t) if self.spec.direct => t.index_limit() as u32,
            _ => default_tag(&self.spec).index,
        }
    }

    /// Sets the phase and the batch number that the next changes belong to.
    pub fn set_phase(&mut self, phase: Phase, batch: u64) {
        if std::mem::replace(&mut self.batch, batch) != batch {
            self.assumed.owed_indices = 0;
        }
        self.assumed.phase = phase;
    }

    /// Adds an entry that runs `runs`. Returns its index, for tables with direct resources.
    ///
    /// # Errors
    /// As [`Table::insert_with`].
    pub fn insert(&mut self, entry: &TableEntry, runs: Runs<'_>, now_us: u64) -> Result<u32, StateError> {
        self.insert_with(entry, runs, now_us, |_| {})
    }

    /// Adds an entry that runs `runs`, and calls `prepare` with its index before packets can find it.
    ///
    /// # Errors
    /// [`StateError::WrongKind`] if the key or the action does not fit the table, [`StateError::Exists`],
    /// [`StateError::Full`], [`StateError::Unsupported`] for a table without keys, and [`StateError::Unacknowledged`].
    pub fn insert_with(
        &mut self,
        entry: &TableEntry,
        runs: Runs<'_>,
        now_us: u64,
        prepare: impl FnOnce(u32),
    ) -> Result<u32, StateError> {
        self.await_room()?;
        match &mut self.kind {
            Kind::Exact(t) => t.insert_with(entry, runs, now_us, &mut self.assumed, prepare),
            Kind::Recorded(t) => t.insert_with(entry, runs, now_us, &mut self.assumed, prepare),
            Kind::Dynamic(t) => t.insert(entry, runs, now_us, self.assumed.phase == Phase::Undo, prepare),
        }
    }

    /// Replaces action and idle timeout of the entry with this key and priority. Returns the old action.
    ///
    /// # Errors
    /// [`StateError::WrongKind`] if the key or the action does not fit the table, [`StateError::NotFound`],
    /// [`StateError::Unacknowledged`], and for a table that packets write [`StateError::Full`] if there is no free slot
    /// for the new version.
    pub fn modify(&mut self, entry: &TableEntry, runs: Runs<'_>) -> Result<EntryAction, StateError> {
        self.await_room()?;
        match &mut self.kind {
            Kind::Exact(t) => t.modify(entry, runs, &mut self.assumed),
            Kind::Recorded(t) => t.modify(entry, runs, &mut self.assumed),
            Kind::Dynamic(t) => t.modify(entry, runs),
        }
    }

    /// Prepares the change of a member: invalidates what code assumes of the entries and, if `is_default`, of the
    /// default action. On `Ok`, [`Table::change_member`] and, if `is_default`, [`Table::set_default`] may follow, with
    /// no other operation between.
    ///
    /// # Errors
    /// [`StateError::Unacknowledged`].
    pub fn await_change_of_member(&mut self, is_default: bool) -> Result<(), StateError> {
        self.await_room()?;
        self.assumed.entries.invalidate(&self.domain)?;
        self.assumed.contents.invalidate(&self.domain)?;
        if is_default {
            self.assumed.default_action.invalidate(&self.domain)?;
        }
        Ok(())
    }

    /// Replaces the action of all entries that name a member, and keeps everything else. Call
    /// [`Table::await_change_of_member`] first.
    pub fn change_member(&mut self, member: u32, runs: Runs<'_>) {
        debug_assert!(!self.assumed.entries.is_held() && !self.assumed.contents.is_held(), "code knows the entries");
        match &mut self.kind {
            Kind::Exact(t) => t.change_member(member, runs),
            Kind::Recorded(t) => t.change_member(member, runs),
            // Entries of such tables run actions, not members.
            Kind::Dynamic(_) => {}
        }
    }

    /// Removes the entry with this key and priority, and returns it. Tables without ternary, range or optional fields
    /// ignore the priority.
    ///
    /// # Errors
    /// [`StateError::WrongKind`] if the key does not fit the table, [`StateError::NotFound`], and
    /// [`StateError::Unacknowledged`].
    pub fn delete(&mut self, key: &[KeyMatch], priority: i32) -> Result<TableEntry, StateError> {
        self.await_room()?;
        match &mut self.kind {
            Kind::Exact(t) => t.delete(key, &mut self.assumed),
            Kind::Dynamic(t) => t.delete(key),
            Kind::Recorded(t) => t.delete(key, priority, &mut self.assumed),
        }
    }

    /// The index of the entry with this key and priority. In tables without direct resources it only says that there is
    /// one.
    ///
    /// # Errors
    /// [`StateError::WrongKind`] if the key does not fit the table, and [`StateError::NotFound`].
    pub fn find(&mut self, key: &[KeyMatch], priority: i32) -> Result<u32, StateError> {
        match &mut self.kind {
            Kind::Exact(t) => t.find(key),
            Kind::Dynamic(t) => t.find(key),
            Kind::Recorded(t) => t.find(key, priority),
        }
    }

    /// The entry with this key and priority.
    ///
    /// # Errors
    /// As [`Table::find`].
    pub fn entry(&mut self, key: &[KeyMatch], priority: i32, now_us: u64) -> Result<ReadEntry, StateError> {
        match &mut self.kind {
            Kind::Exact(t) => t.entry_with(key, now_us),
            Kind::Dynamic(t) => t.entry_with(key, now_us),
            Kind::Recorded(t) => t.entry_with(key, priority, now_us),
        }
    }

    /// All entries, in insertion order. Those of exact tables are in the order of their indices, or in no particular
    /// order.
    pub fn entries(&self, now_us: u64) -> Vec<ReadEntry> {
        match &self.kind {
            Kind::Exact(t) => t.entries(now_us),
            Kind::Dynamic(t) => t.entries(now_us),
            Kind::Recorded(t) => t.read_all(now_us),
        }
    }

    /// One step of an iteration over all entries: about `about` of them, and the place at which to continue, `None` at
    /// the end. The first place is 0. Entries may change between steps. An entry that does not change is returned
    /// exactly once, however the table grows; for one that changes there is no guarantee, but [`Table::is_before`] says
    /// whether it was returned.
    pub fn walk(&self, place: u64, about: usize, now_us: u64) -> (Vec<ReadEntry>, Option<u64>) {
        each!(&self.kind, t => t.walk(place, about, now_us))
    }

    /// Whether an iteration that has reached `place` has returned the entry with this key and priority, which must
    /// exist.
    pub fn is_before(&mut self, place: u64, key: &[KeyMatch], priority: i32) -> bool {
        match &mut self.kind {
            Kind::Exact(t) => t.is_before(place, key),
            Kind::Dynamic(t) => t.is_before(place, key),
            Kind::Recorded(t) => t.is_before(place, key, priority),
        }
    }

    /// Publishes another default action.
    ///
    /// # Errors
    /// [`StateError::WrongKind`] if the action does not fit the table, and [`StateError::Unacknowledged`].
    pub fn set_default(&mut self, runs: Runs<'_>) -> Result<(), StateError> {
        self.await_room()?;
        each!(&mut self.kind, t => t.set_default(runs, &mut self.assumed.default_action))
    }

    /// The number of changes of entries and the default action, including attempted ones.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The same counter for other threads. It advances before any effect of a change is visible, and before
    /// [`Domain::changes`] does.
    pub fn changes_seen(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.changes)
    }

    /// About how many bytes of memory lookups can touch.
    pub fn footprint_bytes(&self) -> u64 {
        each!(&self.kind, t => t.footprint_bytes())
    }

    /// The number of distinct contents of entries, and how many were ever made; `None` unless many keys share few.
    pub fn contents(&self) -> Option<(u64, u64)> {
        match &self.kind {
            Kind::Exact(_) | Kind::Dynamic(_) => None,
            Kind::Recorded(t) => t.contents(),
        }
    }

    /// The table as it is now, for code that is specialised for it. The information is valid while the domain's
    /// [generation](Domain::generation), read before this call, lasts.
    ///
    /// `wanted` selects more: all entries, valid until one of them changes (not with range fields or groups); the
    /// distinct contents, if there are [few](Table::contents), valid until there is a new one; and a prefilter, which
    /// remains valid while entries change.
    pub fn shape(&mut self, wanted: Option<Wanted>) -> TableShape {
        let has_range = self.spec.keys.iter().any(|(_, kind)| *kind == MatchKind::Range);
        // Assumptions about entries that packets write are never made: a packet would have to invalidate them.
        let has_rules = !has_range && !self.spec.selector && !self.is_dynamic();
        let wanted = wanted.filter(|_| has_rules);
        let entries_max = wanted.and_then(|wanted| wanted.entries_max);
        let rules = entries_max.is_some_and(|max| self.len() <= max).then(|| each!(&self.kind, t => t.rules()));
        self.assumed.default_action.hold(&self.domain);
        if rules.is_some() {
            self.assumed.entries.hold(&self.domain);
        }
        let results = match &self.kind {
            Kind::Recorded(t) if wanted.is_some_and(|wanted| wanted.results) => t.results(),
            _ => None,
        };
        if results.is_some() {
            self.assumed.contents.hold(&self.domain);
        }
        let (words, default) = each!(&self.kind, t => (t.snapshot_words(), t.default_shape()));
        // SAFETY: the handle is this table's.
        let snapshot = unsafe { (*self.binding().handle).snapshot.load(Ordering::Relaxed) };
        let prefilter = match &mut self.kind {
            Kind::Recorded(t) if rules.is_none() && wanted.is_some_and(|wanted| wanted.prefilter) => t.prefilter(),
            _ => None,
        };
        TableShape { snapshot, words, default, rules, results, prefilter }
    }

    /// Counts a change that may retire memory and, now and then, waits until the backlog has room for it.
    fn await_room(&mut self) -> Result<(), StateError> {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.domain.note_change();
        self.changes_since_shape += 1;
        // A rollback does not wait: its batch has already waited.
        if self.changes_since_shape >= ROOM_CHECK_INTERVAL && self.assumed.phase != Phase::Undo {
            self.domain.await_room()?;
            self.changes_since_shape = 0;
        }
        Ok(())
    }

    /// The default action; for a group, the one that runs when it has no member.
    pub fn default_call(&self) -> Option<ActionCall> {
        each!(&self.kind, t => t.default_call())
    }

    /// Looks up a packet's key, which has the table's layout: the entry, and the action call that it runs itself. For
    /// tests and tools; nothing changes while `self` is borrowed.
    pub fn lookup(&self, key: &[u8]) -> Option<(TableEntry, Option<ActionCall>)> {
        let binding = self.binding();
        assert_eq!(key.len(), binding.key.bytes as usize, "a key of the table's layout");
        // SAFETY: the handle is this table's; entries stay live while `self` is borrowed.
        unsafe {
            let entry = (binding.lookup)(binding.handle, key.as_ptr());
            (!entry.is_null()).then(|| self.found(entry, key))
        }
    }

    /// Looks up consecutive packets' keys in one batch; the results are those of [`lookup`](Table::lookup) for each.
    pub fn lookup_batch(&self, keys: &[u8]) -> Vec<Option<(TableEntry, Option<ActionCall>)>> {
        let binding = self.binding();
        let bytes = binding.key.bytes as usize;
        let mut entries = vec![ptr::null(); keys.len().checked_div(bytes).unwrap_or(0)];
        assert_eq!(keys.len(), entries.len() * bytes, "keys of the table's layout");
        // SAFETY: the handle is this table's; entries stay live while `self` is borrowed.
        unsafe {
            (binding.lookup_batch)(binding.handle, keys.as_ptr(), entries.len() as u32, entries.as_mut_ptr());
            let found =
                |(entry, key): (*const abi::EntryHeader, &[u8])| (!entry.is_null()).then(|| self.found(entry, key));
            entries.into_iter().zip(keys.chunks_exact(bytes.max(1))).map(found).collect()
        }
    }

    /// # Safety
    /// The entry is live, and was found under this key.
    unsafe fn found(&self, entry: *const abi::EntryHeader, key: &[u8]) -> (TableEntry, Option<ActionCall>) {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.kind {
                Kind::Exact(t) => t.found(entry, key),
                Kind::Dynamic(t) => t.found(entry, key),
                Kind::Recorded(t) => t.found(entry, key),
            }
        }
    }

    /// Frees retired memory that no reader can see any more. To be called regularly; changes also free some.
    pub fn collect(&mut self) {
        each!(&mut self.kind, t => t.collect());
    }

    /// The number of retired objects that wait for readers, about one per entry; a measure of how far behind readers
    /// are.
    pub fn waiting(&self) -> usize {
        each!(&self.kind, t => t.waiting())
    }
}

//! A table: its entries as the control plane knows them, and what readers probe.
//!
//! Tables of exact fields keep entries where readers look for them ([`crate::exact`]); all others keep a record of each
//! beside an engine ([`crate::recorded`]). Those that packets write have many writers ([`crate::exact::dynamic`]), of which this is one.
//! Readers get a [`TableBinding`]; everything here is the writer's, one at a time
//! (`&mut`).
//!
//! **Refused changes.** A change that code in use could misread is made when no such code runs any more, or refused with
//! [`StateError::Unacknowledged`] before anything is written ([`crate::reclaim`]). What code may have been told is in [`Assumed`]; a
//! change invalidates what it needs once it is known to be valid otherwise. In a batch that may have to be taken back
//! ([`Phase::Atomic`]) it invalidates all that is assumed of the table, and leaves enough indices to bring back what the batch deleted: so
//! taking back is never refused, as long as nothing is told to code meanwhile, which is the caller's to see to.
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

/// Indices that a table with direct resources has beyond its size, so that an entry can be added at once after one was
/// deleted: an eighth of the size, and this many.
const SPARE_INDICES: u64 = 64;

/// How often a table is changed before it is asked again how much waits to be freed: to ask looks at what all workers write.
const ROOM_EVERY: u64 = 64;

/// What a table is.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Widths and kinds of its key fields.
    pub keys: Vec<(u32, MatchKind)>,
    /// Most entries.
    pub size: u64,
    /// Widths of the parameters of each action in its list.
    pub actions: Vec<Vec<u32>>,
    /// Whether entries may name members of an action profile.
    pub members: bool,
    /// Whether they may name groups too.
    pub selector: bool,
    /// Whether hits are noted for idle timeouts.
    pub idle_timeout: bool,
    /// Whether direct counters or meters use the entries' indices.
    pub direct: bool,
}

/// What code that is compiled for a table is to know of its entries.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// All of them, if there are at most so many.
    pub entries_max: Option<u64>,
    /// The contents that they share, if these are few.
    pub answers: bool,
    /// If they are not known, which keys match none of them ([`crate::prefilter`]), if few bytes tell.
    pub prefilter: bool,
}

/// Why there can be no such table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecError {
    /// Without priorities, which of two matching entries wins would be undefined.
    SeveralLpmKeys,
    /// More entries than have indices.
    TooLarge(u64),
    /// Packets write tables of exact fields only, whose entries run actions.
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

/// Indices of a table's entries are below this.
pub(crate) fn index_limit(spec: &TableSpec) -> u64 {
    if spec.direct { spec.size + spec.size / 8 + SPARE_INDICES } else { u64::from(u32::MAX) }
}

/// What default entries carry: of tables with direct resources, the cell behind those of all other entries.
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

/// What code may assume of a table ([`Table::shape`]), and what changes now belong to.
#[derive(Debug, Default)]
pub(crate) struct Assumed {
    /// All entries.
    pub(crate) entries: Assumption,
    /// Which contents entries have.
    pub(crate) contents: Assumption,
    /// The default action.
    default_action: Assumption,
    phase: Phase,
    /// How many indices the batch must find free if it is taken back: those of entries that it deleted.
    pub(crate) owed_indices: u64,
}

impl Assumed {
    /// Entries are about to change.
    pub(crate) fn entries_change(&mut self, domain: &Domain) -> Result<(), Unacknowledged> {
        if self.phase == Phase::Atomic {
            self.contents.invalidate(domain)?;
        }
        self.entries.invalidate(domain)
    }

    /// An entry was deleted whose index is used again later.
    pub(crate) fn index_deleted(&mut self) {
        if self.phase == Phase::Atomic {
            self.owed_indices += 1;
        }
    }

    /// How many indices must be free for an entry to be added or, if it `is_gone`, deleted.
    pub(crate) fn indices_needed(&self, is_gone: bool) -> u64 {
        match (self.phase, is_gone) {
            (Phase::Atomic, _) => self.owed_indices + 1,
            (_, is_gone) => u64::from(!is_gone),
        }
    }
}

/// Waits, as long as for an acknowledgement, until `free`, which collects what may be freed, finds as many indices as are needed.
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
    /// How often entries or the default were changed; others may read it.
    changes: Arc<AtomicU64>,
    /// How many of the changes came after it was last found that there is room for more to be freed.
    changes_unasked: u64,
    assumed: Assumed,
    /// The batch that changes were last part of.
    batch: u64,
}

enum Kind {
    Exact(Box<ExactTable>),
    Dynamic(Box<DynamicTable>),
    Recorded(Box<RecordedTable>),
}

/// Calls the same method of whichever it is.
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
    /// An empty table. `default_action` must be one of the actions with values of the right widths.
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
            changes_unasked: 0,
            assumed: Assumed::default(),
            batch: 0,
        })
    }

    /// An empty table that packets write.
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
            changes_unasked: 0,
            assumed: Assumed::default(),
            batch: 0,
        })
    }

    /// Whether packets write it.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.kind, Kind::Dynamic(_))
    }

    /// Of a table that packets write: the bytes that it takes for its size, all of which are there from the start.
    pub fn memory_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Dynamic(t) => t.memory_bytes(),
            _ => 0,
        }
    }

    /// Of a table that packets write: what sets the direct resources of an index to zero before an entry that a packet adds gets it.
    pub fn on_release(&self, reset: Box<dyn Fn(u32) + Send + Sync>) {
        if let Kind::Dynamic(t) = &self.kind {
            t.on_release(reset);
        }
    }

    /// Of a table that packets write: ends entries whose time is over, of which `tell` gets those that the control plane is
    /// to be told of.
    pub fn expire(&mut self, now_us: u64, tell: impl FnMut(TableEntry)) {
        if let Kind::Dynamic(t) = &mut self.kind {
            t.expire(now_us, tell);
        }
    }

    /// Of a table that packets write: what became of entries.
    pub fn dynamic_counts(&self) -> DynamicCounts {
        match &self.kind {
            Kind::Dynamic(t) => t.counts(),
            _ => DynamicCounts::default(),
        }
    }

    /// What compiled code needs of the table.
    pub fn binding(&self) -> TableBinding {
        each!(&self.kind, t => t.binding())
    }

    /// How compiled code probes it: see [`TableBinding::engine`].
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

    /// Indices of entries are below this; it stays the same for tables with direct resources.
    pub fn index_limit(&self) -> u64 {
        match &self.kind {
            Kind::Dynamic(t) if self.spec.direct => t.index_limit(),
            _ => index_limit(&self.spec),
        }
    }

    /// The cell of the default entry's direct resources: the one behind those of all other entries.
    pub fn default_index(&self) -> u32 {
        match &self.kind {
            Kind::Dynamic(t) if self.spec.direct => t.index_limit() as u32,
            _ => default_tag(&self.spec).index,
        }
    }

    /// Changes from here on belong to this, and to the batch with this number.
    pub fn set_phase(&mut self, phase: Phase, batch: u64) {
        if std::mem::replace(&mut self.batch, batch) != batch {
            self.assumed.owed_indices = 0;
        }
        self.assumed.phase = phase;
    }

    /// Adds an entry that runs `runs`; its index, for tables with direct resources.
    pub fn insert(&mut self, entry: &TableEntry, runs: Runs<'_>, now_us: u64) -> Result<u32, StateError> {
        self.insert_with(entry, runs, now_us, |_| {})
    }

    /// Adds an entry that runs `runs`, and calls `prepare` with its index before packets can find it.
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

    /// Gives the entry with this key and priority another action and idle timeout; its action until now.
    pub fn modify(&mut self, entry: &TableEntry, runs: Runs<'_>) -> Result<EntryAction, StateError> {
        self.await_room()?;
        match &mut self.kind {
            Kind::Exact(t) => t.modify(entry, runs, &mut self.assumed),
            Kind::Recorded(t) => t.modify(entry, runs, &mut self.assumed),
            Kind::Dynamic(t) => t.modify(entry, runs),
        }
    }

    /// When this returns `Ok`, [`Table::change_member`] may be called, and, if the table's default action `is_default`, the member's,
    /// [`Table::set_default`], as long as nothing else is done to the table.
    pub fn await_change_of_member(&mut self, is_default: bool) -> Result<(), StateError> {
        self.await_room()?;
        self.assumed.entries.invalidate(&self.domain)?;
        self.assumed.contents.invalidate(&self.domain)?;
        if is_default {
            self.assumed.default_action.invalidate(&self.domain)?;
        }
        Ok(())
    }

    /// Gives all entries that name a member another action, and leaves all else. Behind [`Table::await_change_of_member`].
    pub fn change_member(&mut self, member: u32, runs: Runs<'_>) {
        debug_assert!(!self.assumed.entries.is_held() && !self.assumed.contents.is_held(), "code knows the entries");
        match &mut self.kind {
            Kind::Exact(t) => t.change_member(member, runs),
            Kind::Recorded(t) => t.change_member(member, runs),
            // Its entries run actions.
            Kind::Dynamic(_) => {}
        }
    }

    /// Removes the entry with this key and priority; what it was. Priorities mean nothing in tables without ternary,
    /// range or optional fields.
    pub fn delete(&mut self, key: &[KeyMatch], priority: i32) -> Result<TableEntry, StateError> {
        self.await_room()?;
        match &mut self.kind {
            Kind::Exact(t) => t.delete(key, &mut self.assumed),
            Kind::Dynamic(t) => t.delete(key),
            Kind::Recorded(t) => t.delete(key, priority, &mut self.assumed),
        }
    }

    /// The index of the entry with this key and priority, for tables with direct resources; for others, whether there
    /// is one.
    pub fn find(&mut self, key: &[KeyMatch], priority: i32) -> Result<u32, StateError> {
        match &mut self.kind {
            Kind::Exact(t) => t.find(key),
            Kind::Dynamic(t) => t.find(key),
            Kind::Recorded(t) => t.find(key, priority),
        }
    }

    /// The entry with this key and priority.
    pub fn entry(&mut self, key: &[KeyMatch], priority: i32, now_us: u64) -> Result<ReadEntry, StateError> {
        match &mut self.kind {
            Kind::Exact(t) => t.entry_with(key, now_us),
            Kind::Dynamic(t) => t.entry_with(key, now_us),
            Kind::Recorded(t) => t.entry_with(key, priority, now_us),
        }
    }

    /// All entries: in insertion order; those of exact fields in the order of their indices, or in none.
    pub fn entries(&self, now_us: u64) -> Vec<ReadEntry> {
        match &self.kind {
            Kind::Exact(t) => t.entries(now_us),
            Kind::Dynamic(t) => t.entries(now_us),
            Kind::Recorded(t) => t.read_all(now_us),
        }
    }

    /// Some entries, about so many: a step of a walk over all, which begins at place 0 and goes on at the place that comes back,
    /// until none does. Entries may be changed between steps. One that is not changed is given exactly once, however the
    /// table grows; of one that is changed nothing is promised, but [`Table::is_before`] tells which it was.
    pub fn walk(&self, place: u64, about: usize, now_us: u64) -> (Vec<ReadEntry>, Option<u64>) {
        each!(&self.kind, t => t.walk(place, about, now_us))
    }

    /// Whether a walk that has come to this place has given the entry with this key and priority, which is there.
    pub fn is_before(&mut self, place: u64, key: &[KeyMatch], priority: i32) -> bool {
        match &mut self.kind {
            Kind::Exact(t) => t.is_before(place, key),
            Kind::Dynamic(t) => t.is_before(place, key),
            Kind::Recorded(t) => t.is_before(place, key, priority),
        }
    }

    /// Publishes another default action.
    pub fn set_default(&mut self, runs: Runs<'_>) -> Result<(), StateError> {
        self.await_room()?;
        each!(&mut self.kind, t => t.set_default(runs, &mut self.assumed.default_action))
    }

    /// How often entries or the default action were to be changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The same for other threads: another number before anything of a change can be seen, and before [`Domain::changes`] is another.
    pub fn changes_seen(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.changes)
    }

    /// About how much memory lookups can touch.
    pub fn footprint_bytes(&self) -> u64 {
        each!(&self.kind, t => t.footprint_bytes())
    }

    /// How many contents entries have, and how often there was a new one, if many keys share few.
    pub fn contents(&self) -> Option<(u64, u64)> {
        match &self.kind {
            Kind::Exact(_) | Kind::Dynamic(_) => None,
            Kind::Recorded(t) => t.contents(),
        }
    }

    /// What the table is like now, for code that is compiled for it as it is, as long as the domain's
    /// [generation](Domain::generation), read before this call, lasts. Of what is wanted its entries too, if no field is a range and no group decides: until one
    /// of them changes. If there are [few contents](Table::contents), these too: until there is a new one. A prefilter without entries
    /// stays right while they change.
    pub fn shape(&mut self, wanted: Option<Wanted>) -> TableShape {
        let has_range = self.spec.keys.iter().any(|(_, kind)| *kind == MatchKind::Range);
        // What packets write is never told: it would have to be invalidated by a packet.
        let may_tell = !has_range && !self.spec.selector && !self.is_dynamic();
        let wanted = wanted.filter(|_| may_tell);
        let entries_max = wanted.and_then(|wanted| wanted.entries_max);
        let rules = entries_max.is_some_and(|max| self.len() <= max).then(|| each!(&self.kind, t => t.rules()));
        self.assumed.default_action.tell(&self.domain);
        if rules.is_some() {
            self.assumed.entries.tell(&self.domain);
        }
        let answers = match &self.kind {
            Kind::Recorded(t) if wanted.is_some_and(|wanted| wanted.answers) => t.answers(),
            _ => None,
        };
        if answers.is_some() {
            self.assumed.contents.tell(&self.domain);
        }
        let (words, default) = each!(&self.kind, t => (t.snapshot_words(), t.default_shape()));
        // SAFETY: the handle is this table's.
        let snapshot = unsafe { (*self.binding().handle).snapshot.load(Ordering::Relaxed) };
        let prefilter = match &mut self.kind {
            Kind::Recorded(t) if rules.is_none() && wanted.is_some_and(|wanted| wanted.prefilter) => t.prefilter(),
            _ => None,
        };
        TableShape { snapshot, words, default, rules, answers, prefilter }
    }

    /// Something is about to change that may leave more to be freed.
    fn await_room(&mut self) -> Result<(), StateError> {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.domain.note_change();
        self.changes_unasked += 1;
        // What is taken back was asked for when it was done.
        if self.changes_unasked >= ROOM_EVERY && self.assumed.phase != Phase::Undo {
            self.domain.await_room()?;
            self.changes_unasked = 0;
        }
        Ok(())
    }

    /// The default action; for a group the one behind it.
    pub fn default_call(&self) -> Option<ActionCall> {
        each!(&self.kind, t => t.default_call())
    }

    /// Looks a packet's key up, which has the table's layout: the entry and the action that it runs by itself. For tests
    /// and tools; nothing changes while `self` is borrowed.
    pub fn lookup(&self, key: &[u8]) -> Option<(TableEntry, Option<ActionCall>)> {
        let binding = self.binding();
        assert_eq!(key.len(), binding.key.bytes as usize, "a key of the table's layout");
        // SAFETY: the handle is this table's; entries stay live while `self` is borrowed.
        unsafe {
            let entry = (binding.lookup)(binding.handle, key.as_ptr());
            (!entry.is_null()).then(|| self.found(entry, key))
        }
    }

    /// Looks packets' keys up, which lie one after the other; the same as [`lookup`](Table::lookup) for each of them.
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

    /// Frees what no reader can see any more. To be called now and then; changes do some of it too.
    pub fn collect(&mut self) {
        each!(&mut self.kind, t => t.collect());
    }

    /// Things that wait for readers, in entries; a measure of how far behind they are.
    pub fn waiting(&self) -> usize {
        each!(&self.kind, t => t.waiting())
    }
}

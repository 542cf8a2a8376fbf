//! A table: its entries as the control plane knows them, and the engine that readers probe.
//!
//! Invariants:
//! - an entry is in the engine if and only if its record ([`crate::records`]) is in use, and both have the same index;
//! - entry memory and the indices of tables with direct resources are reused only after every worker has been
//!   quiescent, so a packet never counts for an entry that came after the one it matched;
//! - the handle, which compiled code holds, stays at one address;
//! - in tables of prefixes whose entries are nothing but action and parameters, keys with the same share one entry
//!   ([`crate::shared`]).
//!
//! Readers get a [`TableBinding`]; everything here is the writer's, one at a time (`&mut`).
//! Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use crate::engine::{Engine, Rank, Writing};
use crate::entry::{EntryMemory, EntryWriter, Runs, Source, Tag};
use crate::key::KeyShape;
use crate::reclaim::{Domain, Limbo};
use crate::records::{Record, Records};
use crate::shared::SharedEntries;
use crate::{selector, strategy};
use abi::state::StateError;
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, EntryParts, TableBinding, TableHandle};
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Indices that a table with direct resources has beyond its size, so that an entry can be added at once after one was
/// deleted: an eighth of the size, and this many.
const SPARE_INDICES: u64 = 64;

/// What a table is.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Widths and kinds of its key fields.
    pub keys: Vec<(u32, MatchKind)>,
    /// Most entries.
    pub size: u64,
    /// Widths of the parameters of each action in its list.
    pub actions: Vec<Vec<u32>>,
    /// Whether entries may name groups.
    pub selector: bool,
    /// Whether hits are noted for idle timeouts.
    pub idle_timeout: bool,
    /// Whether direct counters or meters use the entries' indices.
    pub direct: bool,
}

/// Why there can be no such table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecError {
    /// Without priorities, which of two matching entries wins would be undefined.
    SeveralLpmKeys,
    /// More entries than have indices.
    TooLarge(u64),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::SeveralLpmKeys => write!(f, "a table without ternary, range or optional keys has one lpm key"),
            SpecError::TooLarge(size) => {
                write!(f, "a table with direct resources has at most 2^31 entries, not {size}")
            }
        }
    }
}

impl std::error::Error for SpecError {}

/// What waits for the readers.
#[derive(Debug)]
struct Retired {
    entry: *mut EntryHeader,
    /// Whether the entry's index becomes free with it.
    index: bool,
}

/// A table with its one writer.
pub struct Table {
    spec: TableSpec,
    shape: KeyShape,
    handle: Box<TableHandle>,
    engine: Option<Box<dyn Engine>>,
    domain: Arc<Domain>,
    memory: EntryMemory,
    /// In tables whose entries have no index.
    shared: Option<SharedEntries>,
    records: Records,
    /// Indices that are free.
    free: Vec<u32>,
    limbo: Limbo<Retired>,
    len: u64,
    /// The packed key of the current call.
    scratch: Vec<u64>,
}

// SAFETY: the pointers lead to memory that the table owns.
unsafe impl Send for Table {}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("spec", &self.spec).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Table {
    /// An empty table. `default_action` must be one of the actions with values of the right widths.
    pub fn new(spec: TableSpec, default_action: Runs<'_>, domain: Arc<Domain>) -> Result<Table, SpecError> {
        if spec.direct && spec.size > 1 << 31 {
            return Err(SpecError::TooLarge(spec.size));
        }
        let shape = KeyShape::new(&spec.keys);
        let engine = strategy::engine(&spec, &shape)?;
        let prioritised = spec.keys.iter().any(|(_, kind)| kind.needs_priority());
        let prefixes = !prioritised && spec.keys.iter().any(|(_, kind)| *kind == MatchKind::Lpm);
        let shared = (prefixes && !spec.direct && !spec.idle_timeout).then(SharedEntries::default);
        let parts = EntryParts {
            last_hit: spec.idle_timeout,
            group: spec.selector,
            index: shared.is_none(),
            ..EntryParts::default()
        };
        let mut memory = EntryMemory::new(&spec.actions, parts);
        let snapshot = engine.as_ref().map_or(ptr::null(), |e| e.snapshot());
        let handle = Box::new(TableHandle {
            snapshot: AtomicPtr::new(snapshot.cast_mut()),
            default_entry: AtomicPtr::new(memory.make(default_action, Tag::NONE)),
        });
        let scratch = vec![0; shape.packed_words()];
        let finds = |e: &dyn Engine| matches!(e.kind(), EngineKind::ExactInline | EngineKind::DirectIndex);
        let indexed = engine.as_deref().is_some_and(|e| !finds(e));
        let records = Records::new(&shape, prioritised, indexed);
        Ok(Table {
            spec,
            shape,
            handle,
            engine,
            domain,
            memory,
            shared,
            records,
            free: Vec::new(),
            limbo: Limbo::default(),
            len: 0,
            scratch,
        })
    }

    /// What compiled code needs of the table.
    pub fn binding(&self) -> TableBinding {
        TableBinding {
            handle: &*self.handle,
            key: self.shape.layout().clone(),
            engine: self.engine.as_ref().map_or(EngineKind::Empty, |e| e.kind()),
            lookup: self.lookup_fn(),
            lookup_batch: self.lookup_batch_fn(),
            select: self.spec.selector.then_some(selector::select),
            entry: self.memory.writer().layout().clone(),
            footprint_bytes: self.footprint_bytes(),
        }
    }

    /// An estimate: a cache line of the engine's and an entry, for each entry.
    fn footprint_bytes(&self) -> u64 {
        let entry = self.memory.writer().layout();
        let size = entry.before + entry.sizes.iter().max().copied().unwrap_or(0);
        self.len * (64 + u64::from(size))
    }

    fn lookup_fn(&self) -> LookupFn {
        unsafe extern "C" fn miss(_: *const TableHandle, _: *const u8) -> *const EntryHeader {
            ptr::null()
        }
        self.engine.as_ref().map_or(miss, |e| e.lookup())
    }

    fn lookup_batch_fn(&self) -> LookupBatchFn {
        unsafe extern "C" fn misses(_: *const TableHandle, _: *const u8, count: u32, out: *mut *const EntryHeader) {
            // SAFETY: the caller has room for `count` entries.
            (0..count as usize).for_each(|i| unsafe { out.add(i).write(ptr::null()) });
        }
        self.engine.as_ref().map_or(misses, |e| e.lookup_batch())
    }

    /// Looks packets' keys up, which lie one after the other; the same as [`lookup`](Table::lookup) for each of them.
    pub fn lookup_batch(&self, keys: &[u8]) -> Vec<Option<(u32, Option<ActionCall>)>> {
        let bytes = self.shape.layout().bytes as usize;
        let mut entries = vec![ptr::null(); keys.len().checked_div(bytes).unwrap_or(0)];
        assert_eq!(keys.len(), entries.len() * bytes, "keys of the table's layout");
        // SAFETY: the handle is this table's; entries stay live while `self` is borrowed.
        unsafe {
            self.lookup_batch_fn()(&*self.handle, keys.as_ptr(), entries.len() as u32, entries.as_mut_ptr());
            let found = entries.into_iter().zip(keys.chunks_exact(bytes.max(1)));
            found.map(|(entry, key)| self.describe(entry, key)).collect()
        }
    }

    /// The index and the action of what a lookup found.
    ///
    /// # Safety
    /// The entry is live, or null.
    unsafe fn describe(&self, entry: *const EntryHeader, key: &[u8]) -> Option<(u32, Option<ActionCall>)> {
        // SAFETY: the caller's promise.
        let (index, call) = match unsafe { entry.as_ref() } {
            None => return None,
            // SAFETY: as above.
            Some(_) => unsafe { (self.entries().index(entry), self.entries().call(entry)) },
        };
        if self.shared.is_none() {
            return Some((index, call));
        }
        // The entry says nothing of the key: it is the longest prefix that there is.
        let key: Vec<u64> = key.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))).collect();
        let mut packed = vec![0; self.shape.packed_words()];
        let longest = self.shape.prefixes(&key, &mut packed, |packed| self.records.find(packed, 0));
        Some((longest.expect("the entry is of a prefix of the key"), call))
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Indices of entries are below this; it stays the same for tables with direct resources.
    pub fn index_limit(&self) -> u64 {
        if self.spec.direct { self.spec.size + self.spec.size / 8 + SPARE_INDICES } else { u64::from(u32::MAX) }
    }

    /// Adds an entry that runs `runs`; its index.
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
        self.check(runs)?;
        self.pack(&entry.key)?;
        if let Some(engine) = &self.engine {
            engine.prefetch(&self.scratch);
        }
        if self.engine.is_none() {
            return Err(StateError::Unsupported("a table without keys has no entries".to_string()));
        }
        if self.position(entry.priority).is_some() {
            return Err(StateError::Exists);
        }
        if self.len >= self.spec.size {
            return Err(StateError::Full(self.spec.size));
        }
        let index = self.take_index()?;
        prepare(index);
        let pointer = self.make(runs, self.tag(index, now_us));
        let record = Record {
            entry: pointer,
            priority: entry.priority,
            idle_timeout_ns: entry.idle_timeout_ns,
            source: Source::of(&entry.action),
        };
        let rank = (entry.priority, self.records.insert(index, &self.scratch, record));
        self.len += 1;
        self.write(|engine, w, packed| engine.insert(w, packed, rank, pointer));
        self.collect_some();
        Ok(index)
    }

    /// Gives the entry with this key and priority another action and idle timeout; its action until now.
    pub fn modify(&mut self, entry: &TableEntry, runs: Runs<'_>) -> Result<EntryAction, StateError> {
        self.check(runs)?;
        let index = self.find(&entry.key, entry.priority)?;
        let old = self.action_at(index);
        self.records.set_action(index, entry.idle_timeout_ns, Source::of(&entry.action));
        self.run_other(index, runs);
        Ok(old)
    }

    /// Gives entry `index`, which is in use, another action, and leaves all else.
    pub fn run_other(&mut self, index: u32, runs: Runs<'_>) {
        let old = self.records.entry(index);
        // SAFETY: the record is in use, so its entry is live.
        let tag = self.tag(index, unsafe { self.entries().last_hit_us(old) });
        let new = self.make(runs, tag);
        self.records.set_entry(index, new);
        let rank = self.rank(index);
        self.records.key(index, &mut self.scratch);
        self.write(|engine, w, packed| engine.replace(w, packed, rank, new));
        self.retire(Retired { entry: old, index: false });
        self.collect_some();
    }

    /// Removes the entry with this key and priority; what it was.
    pub fn delete(&mut self, key: &[KeyMatch], priority: i32) -> Result<TableEntry, StateError> {
        let index = self.find(key, priority)?;
        let was = self.entry_at(index);
        let rank = self.rank(index);
        let entry = self.records.remove(index);
        self.len -= 1;
        self.write(|engine, w, packed| engine.remove(w, packed, rank));
        self.retire(Retired { entry, index: true });
        if !self.spec.direct {
            // Nothing that readers do depends on the index.
            self.free.push(index);
        }
        self.collect_some();
        Ok(was)
    }

    /// The index of the entry with this key and priority.
    pub fn find(&mut self, key: &[KeyMatch], priority: i32) -> Result<u32, StateError> {
        self.pack(key)?;
        if let Some(engine) = &self.engine {
            engine.prefetch(&self.scratch);
        }
        self.position(priority).ok_or(StateError::NotFound)
    }

    /// The entry at an index in use.
    pub fn entry_at(&self, index: u32) -> TableEntry {
        let mut packed = vec![0; self.shape.packed_words()];
        self.records.key(index, &mut packed);
        TableEntry {
            key: self.shape.unpack(&packed),
            priority: self.records.priority(index),
            action: self.action_at(index),
            idle_timeout_ns: self.records.idle_timeout_ns(index),
        }
    }

    fn rank(&self, index: u32) -> Rank {
        (self.records.priority(index), self.records.seq(index))
    }

    fn action_at(&self, index: u32) -> EntryAction {
        let call = |entry| {
            // SAFETY: the record is in use, so its entry is live.
            unsafe { self.entries().call(entry) }.expect("it runs an action")
        };
        match self.records.source(index) {
            Source::Call => EntryAction::Call(call(self.records.entry(index))),
            Source::Member(member) => EntryAction::Member(member),
            Source::Group(group) => EntryAction::Group(group),
        }
    }

    /// Nanoseconds since the entry at an index in use was hit, for tables with idle timeouts.
    pub fn idle_ns(&self, index: u32, now_us: u64) -> Option<u64> {
        // SAFETY: the record is in use, so its entry is live.
        let last_hit = || unsafe { self.entries().last_hit_us(self.records.entry(index)) };
        self.spec.idle_timeout.then(|| now_us.saturating_sub(last_hit()).saturating_mul(1000))
    }

    /// The indices in use, in insertion order.
    pub fn indices(&self) -> Vec<u32> {
        self.records.in_order()
    }

    /// The indices of the entries that name a member.
    pub fn users_of_member(&self, member: u32) -> Vec<u32> {
        self.records.used().filter(|i| self.records.source(*i) == Source::Member(member)).collect()
    }

    /// Publishes another default action.
    pub fn set_default(&mut self, runs: Runs<'_>) -> Result<(), StateError> {
        self.check(runs)?;
        let new = self.memory.make(runs, Tag::NONE);
        let old = self.handle.default_entry.swap(new, Ordering::AcqRel);
        self.limbo.push(self.domain.advance(), Retired { entry: old, index: false });
        self.collect_some();
        Ok(())
    }

    /// The default action; for a group the one behind it.
    pub fn default_call(&self) -> Option<ActionCall> {
        // SAFETY: the default entry is live.
        unsafe { self.entries().call(self.handle.default_entry.load(Ordering::Relaxed)) }
    }

    /// Looks a packet's key up, which has the table's layout: the index of the entry and its action. For tests and
    /// tools; nothing changes while `self` is borrowed.
    pub fn lookup(&self, key: &[u8]) -> Option<(u32, Option<ActionCall>)> {
        assert_eq!(key.len(), self.shape.layout().bytes as usize, "a key of the table's layout");
        // SAFETY: the handle is this table's; entries stay live while `self` is borrowed.
        unsafe {
            let entry = self.lookup_fn()(&*self.handle, key.as_ptr());
            self.describe(entry, key)
        }
    }

    /// Frees what no reader can see any more. To be called now and then; changes do some of it too.
    pub fn collect(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.collect(&self.domain);
        }
        let Table { limbo, memory, free, spec, .. } = self;
        limbo.collect(&self.domain, |retired| {
            // SAFETY: the entry was unlinked, and every worker has been quiescent since.
            unsafe {
                if retired.index && spec.direct {
                    free.push(memory.writer().index(retired.entry));
                }
                memory.free(retired.entry);
            }
        });
    }

    /// Things that wait for readers, in entries; a measure of how far behind they are.
    pub fn waiting(&self) -> usize {
        self.limbo.len()
    }

    /// Collects once in a while.
    fn collect_some(&mut self) {
        const EVERY: u64 = 64;
        if self.limbo.len() as u64 % EVERY == EVERY - 1 || self.records.next_seq().is_multiple_of(EVERY) {
            self.collect();
        }
    }

    /// The memory of an entry; perhaps one that others have.
    fn make(&mut self, runs: Runs<'_>, tag: Tag) -> *mut EntryHeader {
        match &mut self.shared {
            Some(shared) => shared.take(&mut self.memory, runs),
            None => self.memory.make(runs, tag),
        }
    }

    /// Retires an entry that the engine does not have any more, unless others have it.
    fn retire(&mut self, retired: Retired) {
        if let Some(shared) = &mut self.shared
            && !shared.give_back(&self.memory, retired.entry)
        {
            return;
        }
        self.limbo.push(self.domain.advance(), retired);
    }

    /// What reads entries.
    fn entries(&self) -> &EntryWriter {
        self.memory.writer()
    }

    fn check(&self, runs: Runs<'_>) -> Result<(), StateError> {
        match runs {
            Runs::Call(call) | Runs::GroupOr(_, call) if !self.entries().accepts(call) => Err(StateError::WrongKind),
            Runs::Group(_) | Runs::GroupOr(..) if !self.spec.selector => Err(StateError::WrongKind),
            _ => Ok(()),
        }
    }

    fn tag(&self, index: u32, now_us: u64) -> Tag {
        Tag { index, last_hit_us: now_us, ..Tag::NONE }
    }

    /// Packs a key into `scratch`.
    fn pack(&mut self, key: &[KeyMatch]) -> Result<(), StateError> {
        if self.shape.pack(key, &mut self.scratch) { Ok(()) } else { Err(StateError::WrongKind) }
    }

    /// The index of the entry with the key in `scratch`.
    fn position(&self, priority: i32) -> Option<u32> {
        let engine = self.engine.as_ref()?;
        if let Some(entry) = engine.find(&self.scratch) {
            // SAFETY: what the engine has is live.
            return (!entry.is_null()).then(|| unsafe { self.entries().index(entry) });
        }
        self.records.find(&self.scratch, priority)
    }

    /// An unused index whose record is there.
    fn take_index(&mut self) -> Result<u32, StateError> {
        if self.free.is_empty() && self.spec.direct && self.records.positions() as u64 >= self.index_limit() {
            self.collect();
        }
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        let index = self.records.positions() as u64;
        if index >= self.index_limit() {
            return Err(StateError::Unsupported("a worker has held all deleted entries for too long".to_string()));
        }
        Ok(self.records.add_position())
    }

    /// Runs a change of the engine for the key in `scratch`.
    fn write(&mut self, change: impl FnOnce(&mut dyn Engine, &Writing<'_>, &[u64])) {
        let Table { engine, domain, handle, records, scratch, .. } = self;
        // Only engines without priorities ask.
        let stored = |packed: &[u64]| records.find(packed, 0).map_or(ptr::null_mut(), |index| records.entry(index));
        let writing = Writing { domain, handle, stored: &stored };
        if let Some(engine) = engine {
            change(engine.as_mut(), &writing, scratch);
        }
    }
}

impl Drop for Table {
    /// There are no readers any more: the owner of the table's bindings is gone.
    fn drop(&mut self) {
        // The engine names entries, so it goes first.
        self.engine = None;
        let live: Vec<_> = match &self.shared {
            Some(shared) => shared.iter().collect(),
            None => self.records.used().map(|i| self.records.entry(i)).collect(),
        };
        let retired: Vec<_> = self.limbo.drain().map(|r| r.entry).collect();
        let default = self.handle.default_entry.load(Ordering::Relaxed);
        for entry in live.into_iter().chain(retired).chain([default]) {
            // SAFETY: every entry is in exactly one of these places.
            unsafe { self.memory.free(entry) };
        }
    }
}

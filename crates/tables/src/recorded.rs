//! A table that keeps a record of each entry for the control plane, with the entries in memory of their own and an
//! engine that readers use: every table except hash tables ([`crate::exact`]).
//!
//! Invariants:
//! - an entry is in the engine if and only if its record ([`crate::records`]) is in use, and both have the same index;
//! - entry memory and the indices of tables with direct resources are reused only after every worker has been
//!   quiescent, so a packet never counts for an entry that is newer than the one it matched;
//! - the handle, which compiled code holds, stays at one address;
//! - a prefilter that code uses passes an entry's keys before the engine has the entry;
//! - in LPM tables whose entries consist only of an action and its parameters, keys with equal ones share one entry
//!   ([`crate::shared`]).
//!
//! Readers get a [`TableBinding`]; everything here is the writer's, one at a time (`&mut`).
//! Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use crate::engine::{Engine, Rank, Writing};
use crate::entry::{EntryMemory, EntryWriter, Runs, Source, Tag};
use crate::key::KeyShape;
use crate::prefilter;
use crate::reclaim::{Assumption, Domain, Limbo, Unacknowledged};
use crate::records::{Record, Records};
use crate::shared::SharedEntries;
use crate::sync::CachePadded;
use crate::table::{Assumed, SpecError, TableSpec, await_indices, default_tag, index_limit};
use crate::{selector, strategy};
use abi::state::{ReadEntry, StateError};
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, EntryParts, EntryShape, Prefilter, ResultEntries, Rule, TableBinding, TableHandle};
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

/// Limit of the positions that one step of an iteration visits.
const WALK_POSITIONS: u64 = 1 << 16;

/// Limit of the distinct contents of entries for which code may assume the set of all lookup results.
const ANSWERS_MAX: usize = 4096;

/// A retired entry, which waits until no reader can see it.
#[derive(Debug)]
struct Retired {
    entry: *mut EntryHeader,
    /// Whether the entry's index becomes free with the entry.
    index: bool,
}

/// A recorded table with its one writer.
pub(crate) struct RecordedTable {
    spec: TableSpec,
    shape: KeyShape,
    handle: Box<CachePadded<TableHandle>>,
    engine: Option<Box<dyn Engine>>,
    domain: Arc<Domain>,
    memory: EntryMemory,
    /// In tables whose entries do not store an index: entries shared by keys.
    shared: Option<SharedEntries>,
    records: Records,
    /// Free indices.
    free: Vec<u32>,
    limbo: Limbo<Retired>,
    len: u64,
    /// The prefilters that code uses while entries change.
    prefilters: Vec<Weak<Prefilter>>,
    /// The packed key of the current call.
    scratch: Vec<u64>,
}

// SAFETY: the pointers point at memory that the table owns.
unsafe impl Send for RecordedTable {}

impl RecordedTable {
    /// An empty table. `default_action` must be one of the actions, with arguments of the right widths.
    ///
    /// # Errors
    /// [`SpecError::SeveralLpmKeys`].
    pub(crate) fn new(
        spec: TableSpec,
        shape: KeyShape,
        default_action: Runs<'_>,
        domain: Arc<Domain>,
    ) -> Result<RecordedTable, SpecError> {
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
        let mut memory = match shared.is_some() {
            true => EntryMemory::in_a_row(&spec.actions, parts, ANSWERS_MAX + ANSWERS_MAX / 8),
            false => EntryMemory::new(&spec.actions, parts),
        };
        let snapshot = engine.as_ref().map_or(ptr::null(), |e| e.snapshot());
        let handle = Box::new(CachePadded(TableHandle {
            snapshot: AtomicPtr::new(snapshot.cast_mut()),
            default_entry: AtomicPtr::new(memory.make(default_action, default_tag(&spec))),
        }));
        let scratch = vec![0; shape.packed_words()];
        let finds = |e: &dyn Engine| matches!(e.kind(), EngineKind::ExactInline | EngineKind::DirectIndex);
        let indexed = engine.as_deref().is_some_and(|e| !finds(e));
        let records = Records::new(&shape, prioritised, indexed);
        Ok(RecordedTable {
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
            prefilters: Vec::new(),
            scratch,
        })
    }

    /// The table's layout, lookup functions and addresses, for compiled code.
    pub(crate) fn binding(&self) -> TableBinding {
        TableBinding {
            handle: &raw const self.handle.0,
            key: self.shape.layout().clone(),
            engine: self.engine_kind(),
            exact: None,
            lookup: self.lookup_fn(),
            lookup_batch: self.lookup_batch_fn(),
            select: self.spec.selector.then_some(selector::select),
            entry: self.memory.writer().layout().clone(),
            dynamic: None,
            footprint_bytes: self.footprint_bytes(),
        }
    }

    /// How compiled code looks keys up.
    pub(crate) fn engine_kind(&self) -> EngineKind {
        self.engine.as_ref().map_or(EngineKind::Empty, |e| e.kind())
    }

    /// An estimate of the bytes that lookups touch: for each entry, the entry and a cache line of the engine.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let entry = self.memory.writer().layout();
        let size = entry.before + entry.sizes.iter().max().copied().unwrap_or(0);
        self.len * (64 + u64::from(size))
    }

    /// The words of the engine's snapshot that code may assume.
    pub(crate) fn snapshot_words(&self) -> Vec<u64> {
        self.engine.as_ref().map_or(Vec::new(), |e| e.snapshot_words())
    }

    pub(crate) fn default_shape(&self) -> EntryShape {
        // SAFETY: the default entry is live.
        unsafe { self.entries().shape(self.handle.default_entry.load(Ordering::Relaxed)) }
    }

    /// All entries as rules for compiled code; of several that match a key the first one wins.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let words = self.shape.words();
        let prioritised = self.spec.keys.iter().any(|(_, kind)| kind.needs_priority());
        let mut packed = vec![0; self.shape.packed_words()];
        let mut ranked: Vec<(i64, u64, Rule)> = Vec::new();
        for index in self.records.used() {
            self.records.key(index, &mut packed);
            let (value, mask) = packed.split_at(words);
            // Bits outside the fields of exact keys are zero in every key.
            let mask = if mask.is_empty() { vec![u64::MAX; words] } else { mask.to_vec() };
            let (priority, seq) = self.rank(index);
            let rank = match prioritised {
                true => i64::from(priority),
                // The longest prefix wins; all other fields are exact.
                false => mask.iter().map(|word| i64::from(word.count_ones())).sum(),
            };
            // SAFETY: the record is in use, so its entry is live.
            let entry = unsafe { self.entries().shape(self.records.entry(index)) };
            ranked.push((rank, seq, Rule { mask, value: value.to_vec(), entry }));
        }
        ranked.sort_by_key(|(rank, seq, _)| (std::cmp::Reverse(*rank), *seq));
        ranked.into_iter().map(|(_, _, rule)| rule).collect()
    }

    /// A prefilter for keys that match no entry, which is kept valid while entries change; `None` if no few bytes are
    /// selective.
    pub(crate) fn prefilter(&mut self) -> Option<Arc<Prefilter>> {
        if self.len > prefilter::RULES_MAX as u64 || self.engine_kind() != EngineKind::Opaque {
            return None;
        }
        self.prefilters.retain(|prefilter| prefilter.strong_count() > 0);
        let rules = self.rules();
        let new = Arc::new(prefilter::of(&rules.iter().collect::<Vec<_>>())?);
        self.prefilters.push(Arc::downgrade(&new));
        Some(new)
    }

    /// Makes all prefilters pass the key in `scratch`, whose entry is about to be added.
    fn cover(&mut self) {
        // Only engines that are called have prefilters, and their packed keys have masks.
        let (value, mask) = self.scratch.split_at(self.shape.words());
        self.prefilters.iter().filter_map(Weak::upgrade).for_each(|p| prefilter::cover(&p, mask, value));
    }

    /// The number of distinct contents of entries, and how many were ever made; `None` if code may not assume the set
    /// of them.
    pub(crate) fn contents(&self) -> Option<(u64, u64)> {
        let shared = self.shared.as_ref().filter(|shared| shared.len() <= ANSWERS_MAX)?;
        Some((shared.len() as u64, shared.made()))
    }

    /// The possible results of a lookup besides the default entry, valid until there is a new content.
    pub(crate) fn results(&self) -> Option<ResultEntries> {
        let shared = self.shared.as_ref()?;
        let row = self.memory.row_of(shared.iter())?;
        let first = row.first().wrapping_add(self.memory.writer().layout().before as usize).cast_const().cast();
        let (stride, places) = (row.distance as u32, row.count as u32);
        let entries = self.memory.writer();
        // SAFETY: entries in use are live.
        let shapes = shared.iter().map(|entry| unsafe { entries.shape(entry) }).collect();
        Some(ResultEntries { first, stride, places, entries: shapes })
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

    /// Number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn index_limit(&self) -> u64 {
        index_limit(&self.spec)
    }

    /// Adds an entry that runs `runs`, and calls `prepare` with its index before packets can find it.
    pub(crate) fn insert_with(
        &mut self,
        entry: &TableEntry,
        runs: Runs<'_>,
        now_us: u64,
        assumed: &mut Assumed,
        prepare: impl FnOnce(u32),
    ) -> Result<u32, StateError> {
        self.check(runs)?;
        self.pack(&entry.key)?;
        let Some(engine) = &self.engine else {
            return Err(StateError::Unsupported("a table without keys has no entries".to_string()));
        };
        let hash = self.records.hash(&self.scratch, entry.priority);
        engine.prefetch(&self.scratch);
        if self.position(entry.priority, hash).is_some() {
            return Err(StateError::Exists);
        }
        if self.len >= self.spec.size {
            return Err(StateError::Full(self.spec.size));
        }
        self.await_readers(runs, assumed)?;
        let index = self.take_index(assumed)?;
        prepare(index);
        self.cover();
        let pointer = self.make(runs, self.tag(index, now_us));
        let record = Record {
            entry: pointer,
            priority: entry.priority,
            idle_timeout_ns: entry.idle_timeout_ns,
            source: Source::of(&entry.action),
        };
        let rank = (entry.priority, self.records.insert(index, &self.scratch, hash, record));
        self.len += 1;
        self.write(ptr::null_mut(), |engine, w, packed| engine.insert(w, packed, rank, pointer));
        self.collect_some();
        Ok(index)
    }

    /// Replaces action and idle timeout of the entry with this key and priority. Returns the old action.
    pub(crate) fn modify(
        &mut self,
        entry: &TableEntry,
        runs: Runs<'_>,
        assumed: &mut Assumed,
    ) -> Result<EntryAction, StateError> {
        self.check(runs)?;
        let index = self.find(&entry.key, entry.priority)?;
        self.await_readers(runs, assumed)?;
        let old = self.action_at(index);
        self.records.set_action(index, entry.idle_timeout_ns, Source::of(&entry.action));
        self.run_other(index, runs);
        Ok(old)
    }

    /// Replaces the action of the entry at a used index, and keeps everything else.
    fn run_other(&mut self, index: u32, runs: Runs<'_>) {
        let old = self.records.entry(index);
        // SAFETY: the record is in use, so its entry is live.
        let tag = self.tag(index, unsafe { self.entries().last_hit_us(old) });
        let new = self.make(runs, tag);
        self.records.set_entry(index, new);
        let rank = self.rank(index);
        self.records.key(index, &mut self.scratch);
        self.write(old, |engine, w, packed| engine.replace(w, packed, rank, new));
        self.retire(Retired { entry: old, index: false });
        self.collect_some();
    }

    /// Removes the entry with this key and priority, and returns it.
    pub(crate) fn delete(
        &mut self,
        key: &[KeyMatch],
        priority: i32,
        assumed: &mut Assumed,
    ) -> Result<TableEntry, StateError> {
        let index = self.find(key, priority)?;
        assumed.entries_change(&self.domain)?;
        if self.spec.direct {
            self.await_indices(assumed.indices_needed(true))?;
            assumed.index_deleted();
        }
        let was = self.entry_at(index);
        let rank = self.rank(index);
        let entry = self.records.remove(index);
        self.len -= 1;
        self.write(entry, |engine, w, packed| engine.remove(w, packed, rank));
        self.retire(Retired { entry, index: true });
        if !self.spec.direct {
            // Readers do not use the index.
            self.free.push(index);
        }
        self.collect_some();
        Ok(was)
    }

    /// The index of the entry with this key and priority.
    pub(crate) fn find(&mut self, key: &[KeyMatch], priority: i32) -> Result<u32, StateError> {
        self.pack(key)?;
        let hash = self.records.hash(&self.scratch, priority);
        if let Some(engine) = &self.engine {
            engine.prefetch(&self.scratch);
        }
        self.position(priority, hash).ok_or(StateError::NotFound)
    }

    /// The entry at a used index.
    fn entry_at(&self, index: u32) -> TableEntry {
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

    /// Nanoseconds since the last hit of the entry at a used index; `None` for tables without idle timeouts.
    fn idle_ns(&self, index: u32, now_us: u64) -> Option<u64> {
        // SAFETY: the record is in use, so its entry is live.
        let last_hit = || unsafe { self.entries().last_hit_us(self.records.entry(index)) };
        self.spec.idle_timeout.then(|| now_us.saturating_sub(last_hit()).saturating_mul(1000))
    }

    fn read(&self, index: u32, now_us: u64) -> ReadEntry {
        ReadEntry { entry: self.entry_at(index), idle_ns: self.idle_ns(index, now_us) }
    }

    /// All entries in insertion order.
    pub(crate) fn read_all(&self, now_us: u64) -> Vec<ReadEntry> {
        self.records.in_order().into_iter().map(|index| self.read(index, now_us)).collect()
    }

    /// One step of an iteration: up to `about` entries from position `place` on, and the position at which to continue.
    pub(crate) fn walk(&self, place: u64, about: usize, now_us: u64) -> (Vec<ReadEntry>, Option<u64>) {
        let end = self.records.positions() as u64;
        let mut entries = Vec::with_capacity(about.min(self.len as usize));
        let mut next = place;
        // Most positions are in use; the step also ends after many positions, in case they are not.
        while next < end && entries.len() < about && next - place < WALK_POSITIONS {
            let index = next as u32;
            if !self.records.entry(index).is_null() {
                entries.push(self.read(index, now_us));
            }
            next += 1;
        }
        (entries, (next < end).then_some(next))
    }

    /// Whether an iteration that has reached `place` has returned the entry, if it exists.
    pub(crate) fn is_before(&mut self, place: u64, key: &[KeyMatch], priority: i32) -> bool {
        self.find(key, priority).is_ok_and(|index| u64::from(index) < place)
    }

    pub(crate) fn entry_with(&mut self, key: &[KeyMatch], priority: i32, now_us: u64) -> Result<ReadEntry, StateError> {
        let index = self.find(key, priority)?;
        Ok(self.read(index, now_us))
    }

    /// Replaces the action of all entries that name a member, and keeps everything else.
    pub(crate) fn change_member(&mut self, member: u32, runs: Runs<'_>) {
        let users: Vec<u32> =
            self.records.used().filter(|i| self.records.source(*i) == Source::Member(member)).collect();
        users.into_iter().for_each(|index| self.run_other(index, runs));
    }

    /// Publishes another default action.
    pub(crate) fn set_default(&mut self, runs: Runs<'_>, assumed: &mut Assumption) -> Result<(), StateError> {
        self.check(runs)?;
        assumed.invalidate(&self.domain)?;
        let new = self.memory.make(runs, default_tag(&self.spec));
        let old = self.handle.default_entry.swap(new, Ordering::AcqRel);
        self.limbo.push(self.domain.advance(), Retired { entry: old, index: false });
        self.collect_some();
        Ok(())
    }

    /// The default action; for a group, the one that runs when it has no member.
    pub(crate) fn default_call(&self) -> Option<ActionCall> {
        // SAFETY: the default entry is live.
        unsafe { self.entries().call(self.handle.default_entry.load(Ordering::Relaxed)) }
    }

    /// The entry that a lookup of this key returned, and the action call that it runs.
    ///
    /// # Safety
    /// The entry is live.
    pub(crate) unsafe fn found(&self, entry: *const EntryHeader, key: &[u8]) -> (TableEntry, Option<ActionCall>) {
        // SAFETY: the caller's promise.
        let (index, call) = unsafe { (self.entries().index(entry), self.entries().call(entry)) };
        if self.shared.is_none() {
            return (self.entry_at(index), call);
        }
        // A shared entry does not know its keys: the key is the longest matching prefix in the records.
        let key: Vec<u64> = key.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))).collect();
        let mut packed = vec![0; self.shape.packed_words()];
        let longest = self.shape.prefixes(&key, &mut packed, |packed| self.records.find(packed, 0));
        (self.entry_at(longest.expect("the entry is of a prefix of the key")), call)
    }

    /// Frees retired memory that no reader can see any more. To be called regularly; changes also free some.
    pub(crate) fn collect(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.collect(&self.domain);
        }
        let RecordedTable { limbo, memory, free, spec, .. } = self;
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

    /// The number of retired entries that wait for readers; a measure of how far behind readers are.
    pub(crate) fn waiting(&self) -> usize {
        self.limbo.len()
    }

    /// Collects retired entries every 64 changes or so.
    fn collect_some(&mut self) {
        const RETIRE_INTERVAL: u64 = 64;
        if self.limbo.len() as u64 % RETIRE_INTERVAL == RETIRE_INTERVAL - 1
            || self.records.next_seq().is_multiple_of(RETIRE_INTERVAL)
        {
            self.collect();
        }
    }

    /// Invalidates what code assumes of entries, before one that runs `runs` is added or changed.
    fn await_readers(&self, runs: Runs<'_>, assumed: &mut Assumed) -> Result<(), Unacknowledged> {
        assumed.entries_change(&self.domain)?;
        // Code that assumes the set of all contents would read beyond its row for a new one.
        let is_known = |shared: &SharedEntries| shared.has(&self.memory, runs);
        match &self.shared {
            Some(shared) if assumed.contents.is_held() && !is_known(shared) => {
                assumed.contents.invalidate(&self.domain)
            }
            _ => Ok(()),
        }
    }

    /// The memory of an entry; it may be shared with others.
    fn make(&mut self, runs: Runs<'_>, tag: Tag) -> *mut EntryHeader {
        match &mut self.shared {
            Some(shared) => shared.take(&mut self.memory, runs),
            None => self.memory.make(runs, tag),
        }
    }

    /// Retires an entry that the engine no longer has, unless others share it.
    fn retire(&mut self, retired: Retired) {
        if let Some(shared) = &mut self.shared
            && !shared.release(&self.memory, retired.entry)
        {
            return;
        }
        self.limbo.push(self.domain.advance(), retired);
    }

    /// The writer, which also reads entries.
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

    /// The index of the entry with the key in `scratch`; `hash` is [`Records::hash`].
    fn position(&self, priority: i32, hash: u32) -> Option<u32> {
        let engine = self.engine.as_ref()?;
        if let Some(entry) = engine.find(&self.scratch) {
            // SAFETY: entries in the engine are live.
            return (!entry.is_null()).then(|| unsafe { self.entries().index(entry) });
        }
        self.records.find_hashed(&self.scratch, priority, hash)
    }

    /// Number of indices that could be assigned now.
    fn free_indices(&self) -> u64 {
        self.free.len() as u64 + (self.index_limit() - self.records.positions() as u64)
    }

    /// Waits for readers to release deleted entries if fewer than `needed` indices are free.
    fn await_indices(&mut self, needed: u64) -> Result<(), Unacknowledged> {
        if self.free_indices() >= needed {
            return Ok(());
        }
        let domain = Arc::clone(&self.domain);
        await_indices(&domain, needed, || {
            self.collect();
            self.free_indices()
        })
    }

    /// A free index, with a position in the records.
    fn take_index(&mut self, assumed: &Assumed) -> Result<u32, StateError> {
        self.await_indices(assumed.indices_needed(false))?;
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if self.records.positions() as u64 >= self.index_limit() {
            return Err(StateError::Full(self.spec.size));
        }
        Ok(self.records.add_position())
    }

    /// Applies a change to the engine for the key in `scratch`. `old` is the entry that it replaces or removes, or
    /// null.
    fn write(&mut self, old: *mut EntryHeader, change: impl FnOnce(&mut dyn Engine, &Writing<'_>, &[u64])) {
        let RecordedTable { engine, domain, records, scratch, .. } = self;
        // Only engines without priorities call this.
        let stored = |packed: &[u64]| records.find(packed, 0).map_or(ptr::null_mut(), |index| records.entry(index));
        let writing = Writing { domain, stored: &stored, old };
        if let Some(engine) = engine {
            change(engine.as_mut(), &writing, scratch);
        }
    }
}

impl Drop for RecordedTable {
    /// There are no readers any more: the owner of the table's bindings is gone.
    fn drop(&mut self) {
        // The engine refers to entries, so it is dropped first.
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

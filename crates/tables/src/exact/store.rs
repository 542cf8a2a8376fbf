//! An exact-match table, the control plane's side. Buckets are the only copy of the entries: keys, parameters, indices,
//! sources and idle timeouts are read back from them. Only retired slots are recorded outside.
//!
//! Invariants:
//! - a key has at most one live slot;
//! - slots, out-of-line cells and the indices of tables with direct resources are reused only after every worker has
//!   been quiescent, so a packet never counts for an entry that is newer than the one it matched;
//! - the handle, which compiled code holds, stays at one address.
//!
//! A retired slot belongs to one array: when a larger array replaces it, the new one has no retired slots.
//!
//! Threads: writer only. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use super::array::{Array, At};
use super::bucket::Shape;
use super::{ENTRY_ADDRESS_BYTES, Form, MAX_KEY_BYTES, hash, hash_words, load};
use crate::cells::Cells;
use crate::entry::{EntryMemory, EntryWriter, Runs, Source, Tag};
use crate::key::KeyShape;
use crate::reclaim::{Assumption, Domain, Limbo, Unacknowledged};
use crate::shared::SharedEntries;
use crate::sync::CachePadded;
use crate::table::{Assumed, TableSpec, await_indices, default_tag, index_limit};
use abi::state::{ReadEntry, StateError};
use abi::{EngineKind, EntryHeader, EntryLayout, EntryParts, EntryShape, ExactLayout, Rule, TableBinding, TableHandle};
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// Entries that the first array has room for, if the declared size is not smaller.
const FIRST_ROOM: u64 = 32;
/// How long a change waits for a slot to become free before all entries are copied to a new array.
const WAIT_MAX: Duration = Duration::from_millis(2);

/// Limit of the distinct entries that are kept for sharing. A table with more has entries that differ anyway.
const SHARED_MAX: usize = 1 << 16;

/// Limit of the buckets that one step of an iteration visits.
const WALK_BUCKETS: u64 = 1 << 14;

/// A slot that waits until no reader can see it.
#[derive(Debug)]
struct Retired {
    /// Generation of the array that has the slot.
    array: u32,
    at: At,
    memory: Memory,
    /// The entry's index, which becomes free.
    index: Option<u32>,
}

/// The out-of-line memory of a retired slot.
#[derive(Clone, Copy, Debug)]
enum Memory {
    /// None, or other slots still use it.
    None,
    /// A cell of so many bytes.
    Cell(*mut u8, usize),
    /// A shared entry whose last user this was.
    Entry(*mut EntryHeader),
}

/// An exact-match table with its one writer.
pub(crate) struct ExactTable {
    spec: TableSpec,
    shape: KeyShape,
    form: Form,
    handle: Box<CachePadded<TableHandle>>,
    domain: Arc<Domain>,
    writer: EntryWriter,
    /// Allocates default entries and shared entries.
    entries: EntryMemory,
    /// Shared out-of-line entries, which consist only of an action and its parameters.
    shared: Option<SharedEntries>,
    /// Allocates the other out-of-line entries.
    cells: Cells,
    array: Array,
    /// Counts the arrays that the table has had.
    generation: u32,
    /// Entries that `array` is sized for.
    room: u64,
    limbo: Limbo<Retired>,
    old_arrays: Limbo<Array>,
    old_defaults: Limbo<usize>,
    /// Free indices; indices from `fresh` on were never used.
    free: Vec<u32>,
    fresh: u32,
    len: u64,
    /// Number of changes so far.
    changes: u64,
    /// Deleted or replaced entries that were not in their home bucket: the overflow marks that they left behind slow
    /// lookups down.
    stale: u64,
    /// The packed key of the current call.
    scratch: Vec<u64>,
}

// SAFETY: the pointers point at memory that the table owns.
unsafe impl Send for ExactTable {}

/// The layout of the buckets for such a table.
fn form_of(spec: &TableSpec, shape: &KeyShape, layout: &EntryLayout) -> Form {
    let used = shape.layout().fields.iter().map(|f| f.offset + f.bytes).max().unwrap_or(0);
    let wide = used > MAX_KEY_BYTES;
    let key_bytes = if wide { 4 } else { used.next_multiple_of(4) };
    let inline_shape = Shape::new(key_bytes, layout.bytes_max());
    // Readers write the time of the last hit, so such an entry cannot be copied to another array.
    let out_of_line = wide || inline_shape.slots < 2 || spec.idle_timeout;
    Form {
        shape: if out_of_line { Shape::new(key_bytes, ENTRY_ADDRESS_BYTES) } else { inline_shape },
        before: layout.before,
        out_of_line,
        wide_words: if wide { shape.words() as u32 } else { 0 },
        mix: 1,
    }
}

/// Home buckets for so many entries at the load factor.
fn homes_for(entries: u64, shape: &Shape) -> u32 {
    let homes = (entries as f64 / (f64::from(shape.slots) * load(shape))).ceil();
    (homes as u64).clamp(1, u64::from(u32::MAX) - 1024) as u32
}

impl ExactTable {
    /// An empty table whose fields are all exact. It starts with room for [`FIRST_ROOM`] entries.
    pub(crate) fn new(spec: TableSpec, shape: KeyShape, default_action: Runs<'_>, domain: Arc<Domain>) -> ExactTable {
        let parts = EntryParts {
            last_hit: spec.idle_timeout,
            idle_timeout: spec.idle_timeout,
            group: spec.selector,
            index: spec.direct,
            source: spec.members,
            timer: false,
        };
        let mut entries = EntryMemory::new(&spec.actions, parts);
        let writer = entries.writer().clone();
        let form = form_of(&spec, &shape, writer.layout());
        let is_shared = form.out_of_line && form.wide_words == 0 && !(spec.idle_timeout || spec.direct || spec.members);
        let room = spec.size.clamp(1, FIRST_ROOM);
        let array = Array::new(homes_for(room, &form.shape), form, domain.seeds());
        let handle = Box::new(CachePadded(TableHandle {
            snapshot: AtomicPtr::new(ptr::from_ref(array.snapshot()).cast_mut().cast()),
            default_entry: AtomicPtr::new(entries.make(default_action, default_tag(&spec))),
        }));
        let scratch = vec![0; shape.words()];
        ExactTable {
            spec,
            shape,
            form,
            handle,
            domain,
            writer,
            entries,
            shared: is_shared.then(|| SharedEntries::at_most(SHARED_MAX)),
            cells: Cells::default(),
            array,
            generation: 0,
            room,
            limbo: Limbo::default(),
            old_arrays: Limbo::default(),
            old_defaults: Limbo::default(),
            free: Vec::new(),
            fresh: 0,
            len: 0,
            changes: 0,
            stale: 0,
            scratch,
        }
    }

    pub(crate) fn binding(&self) -> TableBinding {
        let (lookup, lookup_batch) = self.form.lookups();
        let Form { shape, before, out_of_line, wide_words, .. } = self.form;
        let exact = ExactLayout {
            key_bytes: shape.key_bytes,
            slots: shape.slots,
            entry_offset: shape.entry_offset(0) as u32 + if out_of_line { 0 } else { before },
            entry_bytes: shape.entry_bytes,
            out_of_line,
        };
        TableBinding {
            handle: &raw const self.handle.0,
            key: self.shape.layout().clone(),
            engine: self.engine_kind(),
            exact: (wide_words == 0).then_some(exact),
            lookup,
            lookup_batch,
            select: self.spec.selector.then_some(crate::selector::select),
            entry: self.writer.layout().clone(),
            dynamic: None,
            footprint_bytes: self.footprint_bytes(),
        }
    }

    /// How compiled code looks keys up.
    pub(crate) fn engine_kind(&self) -> EngineKind {
        if self.form.wide_words == 0 { EngineKind::ExactInline } else { EngineKind::Opaque }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn index_limit(&self) -> u64 {
        index_limit(&self.spec)
    }

    /// Bytes of memory that lookups touch: buckets and out-of-line cells.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let out_of_line = match self.shared {
            Some(_) => self.entries.chunk_bytes(),
            None => self.cells.chunk_bytes(),
        };
        (self.array.bytes() + out_of_line) as u64
    }

    /// The first words of the snapshot, which compiled code embeds as constants.
    pub(crate) fn snapshot_words(&self) -> Vec<u64> {
        let crate::exact::ExactSnapshot { buckets, count, seeds, .. } = self.array.snapshot();
        vec![*buckets as u64, *count, seeds[0], seeds[1]]
    }

    pub(crate) fn default_shape(&self) -> EntryShape {
        // SAFETY: the default entry is live.
        unsafe { self.writer.shape(self.handle.default_entry.load(Ordering::Relaxed)) }
    }

    /// All entries as rules for compiled code; the mask covers every bit.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let rule = |at: At| {
            let mut value = vec![0; self.scratch.len()];
            self.key(at, &mut value);
            // Bits outside the fields are zero in every key.
            let mask = vec![u64::MAX; value.len()];
            // SAFETY: the slot is live.
            Rule { mask, value, entry: unsafe { self.writer.shape(self.entry(at)) } }
        };
        self.array.live().map(rule).collect()
    }

    pub(crate) fn insert_with(
        &mut self,
        entry: &TableEntry,
        runs: Runs<'_>,
        now_us: u64,
        assumed: &mut Assumed,
        prepare: impl FnOnce(u32),
    ) -> Result<u32, StateError> {
        self.check(runs)?;
        let hash = self.pack(&entry.key)?;
        if self.locate(hash).is_some() {
            return Err(StateError::Exists);
        }
        if self.len >= self.spec.size {
            return Err(StateError::Full(self.spec.size));
        }
        assumed.entries_change(&self.domain)?;
        let index = self.take_index(assumed)?;
        prepare(index);
        if self.len >= self.room || self.stale > u64::from(self.array.homes()) / 4 + 64 {
            self.rebuild(0);
        }
        let at = self.slot_for(hash, None);
        let tag = Tag {
            index,
            last_hit_us: now_us,
            idle_timeout_ns: entry.idle_timeout_ns,
            source: Source::of(&entry.action),
        };
        self.write(hash, at, runs, tag, None);
        self.len += 1;
        self.collect_some();
        Ok(index)
    }

    pub(crate) fn modify(
        &mut self,
        entry: &TableEntry,
        runs: Runs<'_>,
        assumed: &mut Assumed,
    ) -> Result<EntryAction, StateError> {
        self.check(runs)?;
        let hash = self.pack(&entry.key)?;
        let at = self.locate(hash).ok_or(StateError::NotFound)?;
        assumed.entries_change(&self.domain)?;
        let old = self.action_at(at);
        let tag = Tag { idle_timeout_ns: entry.idle_timeout_ns, source: Source::of(&entry.action), ..self.tag_at(at) };
        self.replace(hash, at, runs, tag);
        Ok(old)
    }

    /// Replaces the action of all entries that name a member, and keeps everything else.
    pub(crate) fn change_member(&mut self, member: u32, runs: Runs<'_>) {
        let mut keys = Vec::new();
        for at in self.array.live() {
            // SAFETY: the slot is live.
            if unsafe { self.writer.source(self.entry(at)) } == Source::Member(member) {
                let mut packed = vec![0; self.scratch.len()];
                self.key(at, &mut packed);
                keys.push(packed);
            }
        }
        for packed in keys {
            self.scratch = packed;
            let hash = self.hash(&self.scratch);
            // A replacement may move all slots to a new array.
            if let Some(at) = self.locate(hash) {
                self.replace(hash, at, runs, self.tag_at(at));
            }
        }
    }

    pub(crate) fn delete(&mut self, key: &[KeyMatch], assumed: &mut Assumed) -> Result<TableEntry, StateError> {
        let hash = self.pack(key)?;
        let at = self.locate(hash).ok_or(StateError::NotFound)?;
        assumed.entries_change(&self.domain)?;
        if self.spec.direct {
            self.await_indices(assumed.indices_needed(true))?;
            assumed.index_deleted();
        }
        let was = self.entry_at(at);
        // SAFETY: the slot is live.
        let index = self.spec.direct.then(|| unsafe { self.writer.index(self.entry(at)) });
        self.array.unpublish(at);
        self.retire(hash, at, index);
        self.len -= 1;
        self.collect_some();
        Ok(was)
    }

    /// The index of the entry with this key, if the table has indices.
    pub(crate) fn find(&mut self, key: &[KeyMatch]) -> Result<u32, StateError> {
        let hash = self.pack(key)?;
        let at = self.locate(hash).ok_or(StateError::NotFound)?;
        // SAFETY: the slot is live.
        Ok(unsafe { self.writer.index(self.entry(at)) })
    }

    pub(crate) fn entry_with(&mut self, key: &[KeyMatch], now_us: u64) -> Result<ReadEntry, StateError> {
        let hash = self.pack(key)?;
        let at = self.locate(hash).ok_or(StateError::NotFound)?;
        Ok(self.read(at, now_us))
    }

    /// All entries: in the order of their indices, or in no particular order if the table has none.
    pub(crate) fn entries(&self, now_us: u64) -> Vec<ReadEntry> {
        let mut slots: Vec<At> = self.array.live().collect();
        if self.spec.direct {
            // SAFETY: the slots are live.
            slots.sort_by_key(|at| unsafe { self.writer.index(self.entry(*at)) });
        }
        slots.into_iter().map(|at| self.read(at, now_us)).collect()
    }

    /// One step of an iteration in the order of the hashes: about `about` entries with hashes from `place` on, and the
    /// hash at which to continue. The order does not depend on the slots of the entries, which change when the array
    /// grows.
    pub(crate) fn walk(&self, place: u64, about: usize, now_us: u64) -> (Vec<ReadEntry>, Option<u64>) {
        let homes = u64::from(self.array.homes());
        let first = home_of(place, homes);
        let some = ((about as u64).saturating_mul(homes) / self.len.max(1)).clamp(1, WALK_BUCKETS);
        let end = (first + some).min(homes);
        // The first hash whose home is `end`; `None` after the last home.
        let next = (end < homes).then(|| ((u128::from(end) << 64).div_ceil(u128::from(homes))) as u64);
        let mut packed = vec![0; self.scratch.len()];
        let mut is_here = |at: &At| {
            self.key(*at, &mut packed);
            let hash = self.hash(&packed);
            hash >= place && next.is_none_or(|next| hash < next)
        };
        let reach = self.array.reach(first as u32..end as u32);
        let here: Vec<At> = self.array.live_in(reach).filter(|at| is_here(at)).collect();
        (here.into_iter().map(|at| self.read(at, now_us)).collect(), next)
    }

    /// Whether an iteration that has reached `place` has already visited this key.
    pub(crate) fn is_before(&mut self, place: u64, key: &[KeyMatch]) -> bool {
        self.pack(key).is_ok_and(|hash| hash < place)
    }

    pub(crate) fn set_default(&mut self, runs: Runs<'_>, assumed: &mut Assumption) -> Result<(), StateError> {
        self.check(runs)?;
        assumed.invalidate(&self.domain)?;
        let new = self.entries.make(runs, default_tag(&self.spec));
        let old = self.handle.default_entry.swap(new, Ordering::AcqRel);
        self.old_defaults.push(self.domain.advance(), old.expose_provenance());
        self.collect();
        Ok(())
    }

    pub(crate) fn default_call(&self) -> Option<ActionCall> {
        // SAFETY: the default entry is live.
        unsafe { self.writer.call(self.handle.default_entry.load(Ordering::Relaxed)) }
    }

    /// The entry that a lookup returned, and the action call that it runs.
    ///
    /// # Safety
    /// The entry is live, and was found under this key.
    pub(crate) unsafe fn found(&self, entry: *const EntryHeader, key: &[u8]) -> (TableEntry, Option<ActionCall>) {
        let packed: Vec<u64> =
            key.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).collect();
        // SAFETY: the caller's promise.
        unsafe {
            let was = TableEntry {
                key: self.shape.unpack(&packed),
                priority: 0,
                action: self.action_of(entry),
                idle_timeout_ns: self.writer.idle_timeout_ns(entry),
            };
            (was, self.writer.call(entry))
        }
    }

    pub(crate) fn collect(&mut self) {
        let ExactTable { limbo, old_arrays, old_defaults, domain, array, cells, free, entries, generation, .. } = self;
        limbo.collect(domain, |retired| {
            if retired.array == *generation {
                array.release(retired.at);
            }
            // SAFETY: no reader has the address any more.
            unsafe { retired.memory.free(cells, entries) };
            free.extend(retired.index);
        });
        old_arrays.collect(domain, drop);
        old_defaults.collect(domain, |entry| {
            // SAFETY: it was unlinked, and every worker has been quiescent since.
            unsafe { entries.free(ptr::with_exposed_provenance_mut(entry)) };
        });
    }

    /// Number of retired slots.
    pub(crate) fn waiting(&self) -> usize {
        self.limbo.len()
    }

    /// Collects retired memory every 64 changes.
    fn collect_some(&mut self) {
        const RETIRE_INTERVAL: u64 = 64;
        self.changes += 1;
        if self.changes.is_multiple_of(RETIRE_INTERVAL) {
            self.collect();
        }
    }

    fn check(&self, runs: Runs<'_>) -> Result<(), StateError> {
        match runs {
            Runs::Call(call) | Runs::GroupOr(_, call) if !self.writer.accepts(call) => Err(StateError::WrongKind),
            Runs::Group(_) | Runs::GroupOr(..) if !self.spec.selector => Err(StateError::WrongKind),
            _ => Ok(()),
        }
    }

    /// Number of indices that could be assigned now.
    fn free_indices(&self) -> u64 {
        self.free.len() as u64 + (self.index_limit() - u64::from(self.fresh))
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

    fn take_index(&mut self, assumed: &Assumed) -> Result<u32, StateError> {
        if !self.spec.direct {
            return Ok(EntryLayout::NO_INDEX);
        }
        self.await_indices(assumed.indices_needed(false))?;
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if u64::from(self.fresh) >= self.index_limit() {
            return Err(StateError::Full(self.spec.size));
        }
        self.fresh += 1;
        Ok(self.fresh - 1)
    }
}

// Keys and slots.
impl ExactTable {
    /// Packs a key into `scratch`. Returns its hash.
    fn pack(&mut self, key: &[KeyMatch]) -> Result<u64, StateError> {
        if self.shape.pack(key, &mut self.scratch) { Ok(self.hash(&self.scratch)) } else { Err(StateError::WrongKind) }
    }

    fn hash(&self, packed: &[u64]) -> u64 {
        hash_packed(&self.form, self.array.snapshot().seeds, packed)
    }

    /// The key that a slot stores for a packed key: the key itself, or 32 bits of its hash.
    fn slot_key<'a>(&self, hash: u64, packed: &[u64], out: &'a mut [u32; 4]) -> &'a [u32] {
        if self.form.wide_words > 0 {
            out[0] = hash as u32;
        } else {
            let words = packed.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]);
            out.iter_mut().zip(words).for_each(|(out, word)| *out = word);
        }
        &out[..self.form.shape.key_bytes as usize / 4]
    }

    /// The slot of the key in `scratch`.
    fn locate(&self, hash: u64) -> Option<At> {
        let mut key = [0; 4];
        let key = self.slot_key(hash, &self.scratch, &mut key);
        self.array.locate(hash, key, |bucket, slot| {
            // SAFETY: the slot is live, and the key a key of the table.
            self.form.wide_words == 0 || unsafe { self.form.has_wide(bucket, slot, self.scratch.as_ptr()) }
        })
    }

    /// The entry of a live slot.
    fn entry(&self, at: At) -> *mut EntryHeader {
        // SAFETY: the slot is live.
        unsafe { self.form.entry(self.array.bucket(at.bucket), at.slot as usize) }
    }

    /// The packed key of a live slot.
    fn key(&self, at: At, packed: &mut [u64]) {
        key_of(&self.form, &self.array, at, packed);
    }

    fn tag_at(&self, at: At) -> Tag {
        let entry = self.entry(at);
        // SAFETY: the slot is live.
        unsafe {
            Tag {
                index: self.writer.index(entry),
                last_hit_us: self.writer.last_hit_us(entry),
                idle_timeout_ns: self.writer.idle_timeout_ns(entry),
                source: self.writer.source(entry),
            }
        }
    }

    fn action_at(&self, at: At) -> EntryAction {
        // SAFETY: the slot is live.
        unsafe { self.action_of(self.entry(at)) }
    }

    /// # Safety
    /// `entry` is a live entry of this table.
    unsafe fn action_of(&self, entry: *const EntryHeader) -> EntryAction {
        // SAFETY: the caller's promise.
        unsafe {
            match self.writer.source(entry) {
                Source::Call => EntryAction::Call(self.writer.call(entry).expect("it runs an action")),
                Source::Member(member) => EntryAction::Member(member),
                Source::Group(group) => EntryAction::Group(group),
            }
        }
    }

    fn entry_at(&self, at: At) -> TableEntry {
        let mut packed = [0; 8];
        let mut long = Vec::new();
        let packed = match packed.get_mut(..self.scratch.len()) {
            Some(packed) => packed,
            None => {
                long.resize(self.scratch.len(), 0);
                &mut long[..]
            }
        };
        self.key(at, packed);
        TableEntry {
            key: self.shape.unpack(packed),
            priority: 0,
            action: self.action_at(at),
            // SAFETY: the slot is live.
            idle_timeout_ns: unsafe { self.writer.idle_timeout_ns(self.entry(at)) },
        }
    }

    fn read(&self, at: At, now_us: u64) -> ReadEntry {
        // SAFETY: the slot is live.
        let last_hit = || unsafe { self.writer.last_hit_us(self.entry(at)) };
        let idle_ns = self.spec.idle_timeout.then(|| now_us.saturating_sub(last_hit()).saturating_mul(1000));
        ReadEntry { entry: self.entry_at(at), idle_ns }
    }
}

// Changes.
impl ExactTable {
    /// A free slot for a key with this hash, in bucket `from` of its probe sequence or later. If necessary it waits for
    /// readers, or moves all entries to a new array; slots found before are then invalid.
    fn slot_for(&mut self, hash: u64, from: Option<u32>) -> At {
        let mut place = self.array.reserve(hash, from);
        let nearest = from.or_else(|| self.array.path(hash).next());
        if place.map(|at| at.bucket) != nearest && !self.limbo.is_empty() {
            // Slots nearby may be free by now. Without this, a key that changes often would move along its probe
            // sequence, and at its end wait for readers at each change.
            self.collect();
            place = self.array.reserve(hash, from);
        }
        if let Some(at) = place {
            return at;
        }
        let start = Instant::now();
        while !self.limbo.is_empty() && start.elapsed() < WAIT_MAX {
            self.collect();
            if let Some(at) = self.array.reserve(hash, from) {
                return at;
            }
            std::thread::yield_now();
        }
        // A new array has no dead slots. In the unlikely case that this is not enough, it gets more buckets.
        let mut homes = 0;
        loop {
            self.rebuild(homes);
            let from = from.and_then(|_| self.locate(hash)).map(|at| at.bucket);
            if let Some(at) = self.array.reserve(hash, from) {
                return at;
            }
            homes = self.array.homes() / 8 * 9 + 1;
        }
    }

    /// Replaces the entry of the key in `scratch`, which is in slot `old`.
    fn replace(&mut self, hash: u64, old: At, runs: Runs<'_>, tag: Tag) {
        let at = self.slot_for(hash, Some(old.bucket));
        // The array may have been replaced.
        let old = self.locate(hash).expect("the key is there");
        self.write(hash, at, runs, tag, Some(old));
        self.retire(hash, old, None);
        self.collect_some();
    }

    /// Writes an entry for the key in `scratch` into a free slot, and publishes it.
    fn write(&mut self, hash: u64, at: At, runs: Runs<'_>, tag: Tag, instead_of: Option<At>) {
        let to = self.array.bucket(at.bucket).entry(&self.form.shape, at.slot as usize);
        // SAFETY: the slot is free, so its bytes are ours, and enough for any of the table's entries; the cell has room
        // for the key and the entry, and is aligned.
        unsafe {
            if let Some(shared) = &mut self.shared {
                put_out_of_line(to, shared.take(&mut self.entries, runs));
            } else if self.form.out_of_line {
                let key_bytes = 8 * self.form.wide_words as usize;
                let cell = self.cells.take(key_bytes + self.writer.bytes(runs));
                ptr::copy_nonoverlapping(self.scratch.as_ptr().cast(), cell, key_bytes);
                let entry = self.writer.write(cell.add(key_bytes), runs, tag);
                put_out_of_line(to, entry);
            } else {
                self.writer.write(to, runs, tag);
            }
        }
        let mut key = [0; 4];
        let key = self.slot_key(hash, &self.scratch, &mut key);
        self.array.publish(hash, key, at, instead_of);
    }

    /// Retires a slot that readers no longer find.
    fn retire(&mut self, hash: u64, at: At, index: Option<u32>) {
        let mut memory = Memory::None;
        if let Some(shared) = &mut self.shared {
            // SAFETY: the slot still has its entry.
            let entry = unsafe { self.form.entry(self.array.bucket(at.bucket), at.slot as usize) };
            if shared.release(&self.entries, entry) {
                memory = Memory::Entry(entry);
            }
        } else if self.form.out_of_line {
            let entry = self.entry(at);
            let front = self.form.before as usize + 8 * self.form.wide_words as usize;
            // SAFETY: the slot still has its entry.
            let action = unsafe { self.writer.action(entry) };
            let bytes = 8 * self.form.wide_words as usize + self.writer.layout().bytes(action) as usize;
            memory = Memory::Cell(entry.cast::<u8>().wrapping_sub(front), bytes);
        }
        if !self.array.is_home(hash, at) {
            self.stale += 1;
        }
        let retired = Retired { array: self.generation, at, memory, index };
        self.limbo.push(self.domain.advance(), retired);
    }

    /// Copies all entries into a new array of at least `homes_min` home buckets; a larger one if this one is full and
    /// may grow.
    fn rebuild(&mut self, homes_min: u32) {
        let limit = self.spec.size.max(1);
        // Doubles, or takes the table's limit right away if doubling would come close to it.
        let mut room = self.room;
        if self.len >= room {
            room = if (2 * room.max(1)) as f64 * 1.3 >= limit as f64 { limit } else { 2 * room.max(1) };
        }
        let mut homes = homes_for(room.max(self.len + 1), &self.form.shape).max(self.array.homes()).max(homes_min);
        let (form, seeds) = (self.form, self.array.snapshot().seeds);
        let words = self.scratch.len();
        let hash = |array: &Array, at: At| {
            let mut packed = [0; 2];
            if form.wide_words == 0 {
                key_of(&form, array, at, &mut packed[..words]);
                return hash_packed(&form, seeds, &packed[..words]);
            }
            // SAFETY: the slot is live, and the key before its entry has so many words.
            let key = unsafe {
                std::slice::from_raw_parts(form.wide_key(form.entry(array.bucket(at.bucket), at.slot as usize)), words)
            };
            hash_packed(&form, seeds, key)
        };
        let new = loop {
            let new = Array::new(homes, form, seeds);
            if new.fill_from(&self.array, hash) {
                break new;
            }
            // Very unlikely: too many keys share a home.
            homes += homes / 8 + 1;
        };
        let old = std::mem::replace(&mut self.array, new);
        let snapshot = ptr::from_ref(self.array.snapshot()).cast_mut();
        // Code may embed the old array; its results stay those of the table as it was, since that array no longer
        // changes.
        self.domain.invalidate();
        self.handle.snapshot.store(snapshot.cast(), Ordering::Release);
        self.old_arrays.push(self.domain.advance_by(old.bytes()), old);
        self.generation += 1;
        self.stale = 0;
        self.room = room.max(self.len + 1);
    }
}

impl Memory {
    /// Frees it.
    ///
    /// # Safety
    /// It was allocated from these, is freed once, and has no users.
    unsafe fn free(self, cells: &mut Cells, entries: &mut EntryMemory) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Memory::None => {}
                Memory::Cell(cell, bytes) => cells.release(cell, bytes),
                Memory::Entry(entry) => entries.free(entry),
            }
        }
    }
}

/// Writes the address of an out-of-line entry into a slot.
///
/// # Safety
/// The slot has room for it, and no one else accesses it.
pub(super) unsafe fn put_out_of_line(slot: *mut u8, entry: *mut EntryHeader) {
    let address = (entry.expose_provenance() as u64).to_le_bytes();
    debug_assert!(address[ENTRY_ADDRESS_BYTES as usize..] == [0, 0]);
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(address.as_ptr(), slot, ENTRY_ADDRESS_BYTES as usize) };
}

/// The home bucket of a hash.
fn home_of(hash: u64, homes: u64) -> u64 {
    ((u128::from(hash) * u128::from(homes)) >> 64) as u64
}

pub(super) fn hash_packed(form: &Form, seeds: [u64; 2], packed: &[u64]) -> u64 {
    if form.wide_words > 0 {
        return hash_words(packed.len(), |i| packed.get(i).copied().unwrap_or(0), seeds);
    }
    hash([packed[0], packed.get(1).copied().unwrap_or(0)], form.shape.key_bytes > 8, seeds, form.mix)
}

pub(super) fn key_of(form: &Form, array: &Array, at: At, packed: &mut [u64]) {
    let bucket = array.bucket(at.bucket);
    if form.wide_words > 0 {
        // SAFETY: the slot is live; the key before its entry has as many words.
        unsafe {
            let key = form.wide_key(form.entry(bucket, at.slot as usize));
            ptr::copy_nonoverlapping(key, packed.as_mut_ptr(), packed.len());
        }
        return;
    }
    let mut key = [0u32; 4];
    bucket.key(&form.shape, at.slot as usize, &mut key[..form.shape.key_bytes as usize / 4]);
    for (word, pair) in packed.iter_mut().zip(key.chunks(2)) {
        *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
    }
}

impl Drop for ExactTable {
    /// There are no readers any more: the owner of the table's bindings is gone.
    fn drop(&mut self) {
        let default = self.handle.default_entry.load(Ordering::Relaxed);
        let old = self.old_defaults.drain().map(ptr::with_exposed_provenance_mut);
        for entry in old.chain([default]).collect::<Vec<_>>() {
            // SAFETY: every default entry is current or in limbo, and is freed once.
            unsafe { self.entries.free(entry) };
        }
        if self.form.out_of_line {
            // Large cells are allocations of their own, which the chunks do not free.
            let live: Vec<At> = self.array.live().collect();
            for at in live {
                self.retire(0, at, None);
            }
        }
        for retired in self.limbo.drain().collect::<Vec<_>>() {
            // SAFETY: every cell belongs to live slots or was retired, once.
            unsafe { retired.memory.free(&mut self.cells, &mut self.entries) };
        }
    }
}

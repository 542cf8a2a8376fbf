//! An exact table that packets write: entries that workers add, that expire, and that the control plane changes like
//! others (PNA, "Tables with add-on-miss capability" and "Table entry idle timeout").
//! Long because workers, control plane and housekeeping keep the same invariants of slots, which are read together.
//!
//! Readers see an exact table as any other ([`super`]): the same buckets, the same probe, no lock. What differs is the
//! writers' side, of which there are many.
//!
//! # Memory
//!
//! All of it is there from the start: buckets for the table's size at a load of [`load`], a cell beside each slot for entries
//! that lie outside their bucket, and a [`Stripe`] for every 128 buckets. So the array never grows or moves, a packet never waits
//! for a copy or an allocation, and code may have the array's address as a constant for as long as the table lives.
//! Slots are numbered, `bucket * slots + slot`; a table with direct resources uses these numbers as indices.
//!
//! # Writers
//!
//! A key is added, changed and looked for by writers under the lock of its home's stripe, so it is never there twice. What is
//! done to a slot is done under the lock of the slot's stripe. A key's path is shorter than a stripe, so the two are the same
//! or neighbours, and are locked in ascending order. A worker takes the second lock only if the home is full or was passed.
//! Holders write some cache lines; nobody waits for memory, readers or other tables under a lock.
//!
//! - A *worker* adds an entry, or replaces one ([`Core::add`]).
//! - The *control plane* does what it does to every table, through `DynamicTable`, one change at a time.
//! - The *housekeeping thread* ends entries whose time is over ([`DynamicTable::expire`]), frees slots that waited for
//!   readers, and takes back marks of keys that are gone.
//!
//! An entry that ends is unpublished and its slot waits until every worker has been quiescent, as in all exact tables. Since the
//! array has slots to spare, an entry can be added meanwhile.
//!
//! # Time
//!
//! An entry has the tick at which its time began, which hits write (`abi::EntryParts::timer`), and how long it may be idle. Its time
//! is over at the end of a step of [`DynamicSpec::step_ticks`]. The timing wheel says only when to look. A timeout that becomes
//! shorter moves the entry; one that becomes longer does not.
//!
//! [`DynamicTable::expire`] goes through the stripes once in a step: it finds the slots to be looked at in the bytes of the wheel,
//! asks for their timers, and looks at them some stripes later, when memory has answered.
//!
//! # Full tables
//!
//! The table's size bounds its entries. A packet's entry beyond that is refused, or, if the table *evicts*, the entry ends that
//! has been idle for longest among those of [`SAMPLE_BUCKETS`] buckets beginning at the new key's home (of all, in a table no larger than that).
//!
//! Costs: buckets, three bytes a slot for the wheel and waiting slots, 64 bytes for every 128 buckets. With a 13-byte key and 5 bytes
//! of data that is 55 bytes an entry in a full table.
//!
//! Tests: `tests/dynamic.rs`, against a list, and with threads; `stripe/tests.rs`.
#![allow(unsafe_code)]

mod stripe;

use super::array::{Array, At};
use super::bucket::Shape;
use super::store::{hash_packed, key_of, put_far};
use super::{ExactSnapshot, FAR_BYTES, Form, MAX_KEY_BYTES, MIX, Place};
use crate::entry::{EntryMemory, EntryWriter, Runs, Tag};
use crate::key::KeyShape;
use crate::reclaim::{Assumption, Domain, Limbo};
use crate::region::Region;
use crate::sync::Apart;
use crate::table::{SpecError, TableSpec};
use abi::entry::TICK_SHIFT;
use abi::state::{DynamicCounts, ReadEntry, StateError};
use abi::{
    DynamicBinding, EngineKind, EntryHeader, EntryLayout, EntryParts, EntryShape, ExactLayout, TableBinding,
    TableHandle,
};
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stripe::{Content, Held, STRIPE_BUCKETS, Slots, Stripe};

/// Buckets among whose entries one is chosen to be evicted.
const SAMPLE_BUCKETS: u32 = 16;
/// Ticks by which a worker's clock is ahead of the housekeeping's at most, a quarter of an hour: entries look as if nobody had ever hit
/// them after 50 days.
const AHEAD_TICKS: u32 = 1 << 20;
/// Longest timeout: ticks have 32 bits. Longer ones never end.
const TIMEOUT_MS_MAX: u64 = 20 * 24 * 3600 * 1000;
/// Nanoseconds of the unit of timeouts.
const NS_PER_MS: u64 = 1_000_000;
/// Ended entries away from home in a stripe until its marks are counted again.
const STALE_MAX: u32 = 64;
/// Buckets that a step of a walk looks at, at most.
const WALK_BUCKETS: u64 = 1 << 14;
/// Stripes that are searched before the slots found in the first of them are looked at.
const AHEAD_STRIPES: usize = 16;

/// What packets do to a table's entries.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DynamicSpec {
    /// Whether entries have timeouts.
    pub expires: bool,
    /// Whether entries end when their time is over; otherwise they stay.
    pub deletes: bool,
    /// Whether the control plane is told when an entry's time is over.
    pub tells: bool,
    /// Whether each hit begins the entry's time anew.
    pub restart_on_hit: bool,
    /// Milliseconds of each expire time, by number; 0 is never.
    pub expire_ms: Vec<u32>,
    /// Whether a packet's entry takes the place of another when the table is full.
    pub evicts: bool,
    /// Ticks of a step, at least 1: an entry's time is over at the first multiple that is not before its end.
    pub step_ticks: u32,
}

/// Slots are divided less generously than in tables that grow.
fn load(shape: &Shape) -> f64 {
    if shape.slots > 3 { 0.75 } else { 0.7 }
}

/// What workers and the control plane share.
#[repr(C)]
struct Core {
    /// First: what compiled code passes to calls.
    handle: Apart<TableHandle>,
    /// Entries. Apart from what packets read.
    len: Apart<AtomicU64>,
    refused: AtomicU64,
    evicted: AtomicU64,
    expired: AtomicU64,
    size: u64,
    dynamic: DynamicSpec,
    form: Form,
    writer: EntryWriter,
    array: Array,
    /// Bytes of a slot's cell, if entries lie outside their buckets.
    cell_bytes: usize,
    cells: Option<Region<CellLine>>,
    stripes: Vec<Stripe>,
    /// By slot: when it is looked at. Used under the lock of the slot's stripe.
    times: Region<u8>,
    /// By slot: the next one of the list that waits for readers. Used as `times`.
    links: Region<u16>,
    /// Whether slots may wait for readers, or are to be looked at, although no other step has begun.
    waits: AtomicBool,
    /// By slot, of tables with direct resources: which index the slot's next entry gets, as the difference (exclusive or) from the slot's number.
    indices: Option<Region<AtomicU32>>,
    /// By slot, where entries stay when their time is over: the tick when the control plane was told, or of the beginning.
    told: Option<Region<AtomicU32>>,
    /// Sets the direct resources of an index to zero.
    reset: OnceLock<Box<dyn Fn(u32) + Send + Sync>>,
    domain: Arc<Domain>,
}

#[derive(Debug)]
#[repr(align(64))]
struct CellLine {
    _bytes: [u8; 64],
}

// SAFETY: the array's pointers lead to memory that it owns; slots are written under locks (the file's text).
unsafe impl Sync for Core {}

/// The locks of a key's path: of its home's stripe, and of the next one if the path leads there.
struct Path<'a> {
    first: u32,
    first_home: u32,
    home: Held<'a>,
    next: Option<Held<'a>>,
}

impl Path<'_> {
    fn content(&mut self, bucket: u32) -> &mut Content {
        match bucket / STRIPE_BUCKETS == self.first {
            true => &mut self.home,
            false => self.next.as_mut().expect("the path's second stripe is locked"),
        }
    }
}

/// What an entry gets besides its action.
#[derive(Clone, Copy)]
struct Timer {
    tick: u64,
    timeout_ms: u32,
}

/// What becomes of an entry that is looked at.
#[derive(Clone, Copy)]
enum Fate {
    /// It has no timeout any more.
    Stays,
    /// It is looked at again when its time is over, at a tick.
    Later(u64),
    /// Its time is over, and again at a tick.
    Told(u64),
    /// Its time is over.
    Ends,
}

/// Why an entry was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotAdded {
    Exists,
    NotFound,
    Full,
}

impl Core {
    /// # Safety
    /// The handle is that of such a table, which lives.
    unsafe fn of<'a>(handle: *const TableHandle) -> &'a Core {
        // SAFETY: the handle is the first field.
        unsafe { &*handle.cast::<Core>() }
    }

    fn place(&self, hash: u64) -> Place {
        Place::of(hash, self.array.snapshot().count)
    }

    /// The slot's number in its stripe.
    fn local(&self, at: At) -> u16 {
        (at.bucket % STRIPE_BUCKETS * self.form.shape.slots + at.slot) as u16
    }

    fn at(&self, stripe: u32, local: u16) -> At {
        let slots = self.form.shape.slots;
        At { bucket: stripe * STRIPE_BUCKETS + u32::from(local) / slots, slot: u32::from(local) % slots }
    }

    fn number(&self, at: At) -> usize {
        (at.bucket * self.form.shape.slots + at.slot) as usize
    }

    /// Times and links of a stripe's slots.
    ///
    /// # Safety
    /// The stripe is locked, and nobody else has them.
    unsafe fn slots(&self, stripe: u32) -> Slots<'_> {
        let first = self.number(At { bucket: stripe * STRIPE_BUCKETS, slot: 0 });
        let count = self.stripe_buckets(stripe).len() * self.form.shape.slots as usize;
        // SAFETY: the caller's promise; the slots are within the regions.
        unsafe {
            Slots {
                times: std::slice::from_raw_parts_mut(self.times.as_mut_ptr().add(first), count),
                links: std::slice::from_raw_parts_mut(self.links.as_mut_ptr().add(first), count),
            }
        }
    }

    /// The step at whose beginning an entry is looked at whose time is over at a tick.
    fn step_after(&self, end: u64) -> u64 {
        end.div_ceil(self.dynamic.step_ticks.into())
    }

    /// The step that a tick is in.
    fn step_of(&self, tick: u64) -> u64 {
        tick / u64::from(self.dynamic.step_ticks)
    }

    fn stripe_buckets(&self, stripe: u32) -> std::ops::Range<usize> {
        let first = (stripe * STRIPE_BUCKETS) as usize;
        first..(first + STRIPE_BUCKETS as usize).min(self.array.buckets())
    }

    /// Locks what a writer of a key with this hash may look at; of what lies in the second stripe only if it may get there.
    fn lock(&self, hash: u64, whole: bool) -> Path<'_> {
        let place = self.place(hash);
        let first = place.home / STRIPE_BUCKETS;
        let home = self.stripes[first as usize].lock();
        let last = Array::last_of_path(place.second) / STRIPE_BUCKETS;
        let leaves = || whole || self.array.is_passed_or_full(place.home, hash);
        let next = (last > first && leaves()).then(|| self.stripes[last as usize].lock());
        Path { first, first_home: place.home, home, next }
    }

    /// The slot of a key. The path is locked, or the caller is a reader.
    fn locate(&self, hash: u64, packed: &[u64]) -> Option<At> {
        let mut key = [0; 4];
        let key = self.slot_key(hash, packed, &mut key);
        self.array.locate(hash, key, |bucket, slot| {
            // SAFETY: the slot is live, and does not end while its stripe is locked.
            self.form.wide_words == 0 || unsafe { self.form.has_wide(bucket, slot, packed.as_ptr()) }
        })
    }

    fn slot_key<'a>(&self, hash: u64, packed: &[u64], out: &'a mut [u32; 4]) -> &'a [u32] {
        if self.form.wide_words > 0 {
            out[0] = hash as u32;
        } else {
            let words = packed.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]);
            out.iter_mut().zip(words).for_each(|(out, word)| *out = word);
        }
        &out[..self.form.shape.key_bytes as usize / 4]
    }

    fn hash(&self, packed: &[u64]) -> u64 {
        hash_packed(&self.form, self.array.snapshot().seeds, packed)
    }

    /// The entry of a live slot.
    fn entry(&self, at: At) -> *mut EntryHeader {
        // SAFETY: the slot is live.
        unsafe { self.form.entry(self.array.bucket(at.bucket), at.slot as usize) }
    }

    /// Where the entry's first byte of a slot goes.
    fn cell(&self, at: At) -> *mut u8 {
        match &self.cells {
            None => self.array.bucket(at.bucket).entry(&self.form.shape, at.slot as usize),
            Some(cells) => {
                let first = cells.as_mut_ptr().cast::<u8>();
                first.wrapping_add(self.number(at) * self.cell_bytes + 8 * self.form.wide_words as usize)
            }
        }
    }

    /// The words of an entry's timer: the tick and the timeout.
    ///
    /// # Safety
    /// The entry is one of this table's.
    unsafe fn timer<'a>(&self, entry: *const EntryHeader) -> [&'a AtomicU32; 2] {
        let at = self.writer.layout().timer.expect("entries of such tables have timers");
        // SAFETY: eight bytes lie there, at a multiple of four; whoever writes them writes words.
        unsafe {
            let first = entry.cast_mut().cast::<u8>().offset(at as isize).cast::<u32>();
            [AtomicU32::from_ptr(first), AtomicU32::from_ptr(first.add(1))]
        }
    }

    /// Ticks since an entry's time began.
    ///
    /// # Safety
    /// As of [`Core::timer`].
    unsafe fn age(&self, entry: *const EntryHeader, tick: u64) -> u64 {
        // SAFETY: the caller's promise.
        let began = unsafe { self.timer(entry)[0].load(Ordering::Relaxed) };
        let age = (tick as u32).wrapping_sub(began);
        // A worker's clock may be ahead.
        if age > u32::MAX - AHEAD_TICKS { 0 } else { age.into() }
    }

    /// The tick at which an entry's time is over; `None` if it has no timeout.
    ///
    /// # Safety
    /// As of [`Core::timer`].
    unsafe fn end_of(&self, entry: *const EntryHeader, tick: u64) -> Option<u64> {
        // SAFETY: the caller's promise.
        let (age, timeout) = unsafe { (self.age(entry, tick), self.timer(entry)[1].load(Ordering::Relaxed)) };
        let ticks = (u64::from(timeout) * 1000).div_ceil(1 << TICK_SHIFT);
        (timeout > 0).then(|| tick.saturating_sub(age) + ticks)
    }

    /// The timeout with a number.
    fn timeout_ms(&self, number: u32) -> Option<u32> {
        if !self.dynamic.expires { Some(0) } else { self.dynamic.expire_ms.get(number as usize).copied() }
    }

    /// Adds an entry under a key that is not there, or (`replace`) changes the one that is; its place. `write` writes its action
    /// and data to the address of an entry; `prepare` gets its index before readers find it.
    fn add(
        &self,
        packed: &[u64],
        timer: Timer,
        (replace, must, whole): (bool, bool, bool),
        write: impl FnOnce(*mut u8),
        prepare: impl FnOnce(u32),
    ) -> Result<At, NotAdded> {
        let hash = self.hash(packed);
        let mut path = self.lock(hash, whole || replace);
        if self.array.is_full(path.first_home) {
            self.collect_path(&mut path);
        }
        let old = self.locate(hash, packed);
        match (old, replace) {
            (Some(_), false) => return Err(NotAdded::Exists),
            (None, true) => return Err(NotAdded::NotFound),
            _ => {}
        }
        if old.is_none() && self.len.fetch_add(1, Ordering::Relaxed) >= self.size && !must {
            let evicts = self.dynamic.evicts && !whole && self.evict(&mut path, hash, timer.tick);
            if !evicts {
                self.len.fetch_sub(1, Ordering::Relaxed);
                self.refused.fetch_add(u64::from(!whole), Ordering::Relaxed);
                return Err(NotAdded::Full);
            }
        }
        let from = old.map(|old| old.bucket);
        let found = self.array.reserve(hash, from).or_else(|| {
            self.collect_path(&mut path);
            self.array.reserve(hash, from)
        });
        let Some(at) = found else {
            if old.is_none() {
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
            self.refused.fetch_add(u64::from(!whole), Ordering::Relaxed);
            return Err(NotAdded::Full);
        };
        if path.next.is_none() && at.bucket / STRIPE_BUCKETS != path.first {
            // Slots became free in the second stripe only: it is locked if the home is full.
            unreachable!("a slot outside of the locked stripes");
        }
        let index = self.take_index(at, old);
        self.fill(packed, at, index, timer, write);
        if old.is_none() {
            prepare(index);
        }
        let mut key = [0; 4];
        let key = self.slot_key(hash, packed, &mut key);
        self.array.publish(hash, key, at, old);
        if let Some(old) = old {
            self.retire(path.content(old.bucket), hash, old);
        }
        self.schedule(path.content(at.bucket), at, timer);
        Ok(at)
    }

    /// Writes a slot that is free, without its key.
    fn fill(&self, packed: &[u64], at: At, index: u32, timer: Timer, write: impl FnOnce(*mut u8)) {
        let layout = self.writer.layout();
        let cell = self.cell(at);
        // SAFETY: the slot is free, so its bytes are ours, and enough for any of the table's entries; words are aligned.
        unsafe {
            let entry = cell.add(layout.before as usize);
            if self.form.wide_words > 0 {
                let key = cell.sub(8 * self.form.wide_words as usize);
                ptr::copy_nonoverlapping(packed.as_ptr().cast(), key, 8 * packed.len());
            }
            write(entry);
            if let Some(told) = &self.told {
                told[self.number(at)].store(timer.tick as u32, Ordering::Relaxed);
            }
            let words = self.timer(entry.cast());
            words[0].store(timer.tick as u32, Ordering::Relaxed);
            words[1].store(timer.timeout_ms, Ordering::Relaxed);
            if let Some(offset) = layout.index {
                entry.offset(offset as isize).cast::<[u8; 4]>().write(index.to_le_bytes());
            }
            if self.form.far {
                let slot = self.array.bucket(at.bucket).entry(&self.form.shape, at.slot as usize);
                put_far(slot, entry.cast());
            }
        }
    }

    /// The index of a new entry in a slot; of one that takes another's place, that one's.
    fn take_index(&self, at: At, old: Option<At>) -> u32 {
        let Some(indices) = &self.indices else { return EntryLayout::NO_INDEX };
        let index = |at: At| indices[self.number(at)].load(Ordering::Relaxed) ^ self.number(at) as u32;
        if let Some(old) = old {
            let [mine, theirs] = [index(at), index(old)];
            indices[self.number(at)].store(theirs ^ self.number(at) as u32, Ordering::Relaxed);
            indices[self.number(old)].store(mine ^ self.number(old) as u32, Ordering::Relaxed);
        }
        index(at)
    }

    /// Has an entry looked at when its time is over.
    fn schedule(&self, content: &mut Content, at: At, timer: Timer) {
        if timer.timeout_ms == 0 {
            return;
        }
        let end = timer.tick + (u64::from(timer.timeout_ms) * 1000).div_ceil(1 << TICK_SHIFT);
        // SAFETY: the slot's stripe is locked: this is its content.
        let slots = unsafe { self.slots(at.bucket / STRIPE_BUCKETS) };
        if content.put(slots.times, self.local(at), self.step_after(end)) {
            self.waits.store(true, Ordering::Relaxed);
        }
    }

    /// Ends a live entry. The slot's stripe, whose content this is, is locked.
    fn remove(&self, content: &mut Content, hash: u64, at: At) {
        self.array.unpublish(at);
        self.retire(content, hash, at);
        self.len.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets a slot wait that readers do not find any more.
    fn retire(&self, content: &mut Content, hash: u64, at: At) {
        // SAFETY: the slot's stripe is locked: this is its content.
        let slots = unsafe { self.slots(at.bucket / STRIPE_BUCKETS) };
        let local = self.local(at);
        Content::take(slots.times, local);
        content.retire(slots.links, local, &self.domain);
        content.stale += u32::from(!self.array.is_home(hash, at));
        if !self.waits.load(Ordering::Relaxed) {
            self.waits.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the entry that has been idle for longest, of some; whether there was one. The new key's path is locked.
    fn evict(&self, path: &mut Path<'_>, hash: u64, tick: u64) -> bool {
        let homes = self.array.homes();
        let (first, all) = (path.first, self.stripe_buckets(path.first));
        let buckets = if homes <= SAMPLE_BUCKETS {
            // Everything, which is in one stripe.
            all
        } else {
            let home = self.place(hash).home as usize;
            let from = home.min(all.end.saturating_sub(SAMPLE_BUCKETS as usize)).max(all.start);
            from..(from + SAMPLE_BUCKETS as usize).min(all.end)
        };
        let age = |at: &At| {
            let entry = self.entry(*at);
            // SAFETY: the slot is live.
            unsafe { (self.timer(entry)[1].load(Ordering::Relaxed), self.age(entry, tick)) }
        };
        let may_end =
            |(at, (timeout, age)): (At, (u32, u64))| (!self.dynamic.expires || timeout > 0).then_some((at, age));
        let live = self.array.live_in(buckets).map(|at| (at, age(&at)));
        let Some((oldest, _)) = live.filter_map(may_end).max_by_key(|(_, age)| *age) else { return false };
        debug_assert_eq!(oldest.bucket / STRIPE_BUCKETS, first);
        let mut packed = [0; MAX_WORDS];
        let hash = self.hash_at(oldest, &mut packed);
        self.remove(&mut path.home, hash, oldest);
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The hash of a live slot's key.
    fn hash_at(&self, at: At, packed: &mut [u64; MAX_WORDS]) -> u64 {
        if self.form.wide_words > 0 {
            // SAFETY: the slot is live, and the key in front of its entry has so many words.
            let key = unsafe {
                std::slice::from_raw_parts(self.form.wide_key(self.entry(at)), self.form.wide_words as usize)
            };
            return self.hash(key);
        }
        let words = self.form.shape.key_bytes.div_ceil(8) as usize;
        key_of(&self.form, &self.array, at, &mut packed[..words]);
        self.hash(&packed[..words])
    }

    /// Frees slots of the path that no reader can read any more.
    fn collect_path(&self, path: &mut Path<'_>) {
        self.collect(path.first, &mut path.home);
        if let Some(next) = &mut path.next {
            self.collect(path.first + 1, next);
        }
    }

    fn collect(&self, stripe: u32, content: &mut Content) {
        if !content.has_waiting() {
            return;
        }
        // SAFETY: the stripe is locked: this is its content.
        let slots = unsafe { self.slots(stripe) };
        content.collect(slots.links, &self.domain, |local| {
            let at = self.at(stripe, local);
            if let (Some(indices), Some(reset)) = (&self.indices, self.reset.get()) {
                let number = self.number(at);
                reset(indices[number].load(Ordering::Relaxed) ^ number as u32);
            }
            self.array.release(at);
        });
    }

    /// Gives a live entry another expire time, and begins its time anew.
    ///
    /// # Safety
    /// The entry is one of this table's, not the default, and was found since the caller's thread was last quiescent.
    unsafe fn set_expire(&self, entry: *const EntryHeader, timeout_ms: u32, tick: u64) {
        // SAFETY: the caller's promise.
        let words = unsafe { self.timer(entry) };
        let was = words[1].load(Ordering::Relaxed);
        words[0].store(tick as u32, Ordering::Relaxed);
        if was == timeout_ms {
            return;
        }
        let at = self.slot_of(entry);
        let stripe = at.bucket / STRIPE_BUCKETS;
        let mut content = self.stripes[stripe as usize].lock();
        // Somebody else may have ended it.
        if !self.array.is_live(at) {
            return;
        }
        words[1].store(timeout_ms, Ordering::Relaxed);
        if was == 0 || timeout_ms < was {
            // SAFETY: the stripe is locked.
            Content::take(unsafe { self.slots(stripe) }.times, self.local(at));
            self.schedule(&mut content, at, Timer { tick, timeout_ms });
        }
    }

    /// The slot of an entry of this table.
    fn slot_of(&self, entry: *const EntryHeader) -> At {
        let cell = entry.addr() - self.writer.layout().before as usize;
        match &self.cells {
            Some(cells) => {
                let number = (cell - cells.as_mut_ptr().addr()) / self.cell_bytes;
                let slots = self.form.shape.slots as usize;
                At { bucket: (number / slots) as u32, slot: (number % slots) as u32 }
            }
            None => {
                let offset = cell - self.array.snapshot().buckets.addr();
                let (bucket, inside) = (offset / size_of::<super::Bucket>(), offset % size_of::<super::Bucket>());
                let shape = &self.form.shape;
                let slot = (inside - shape.entry_offset(0)) / shape.entry_bytes as usize;
                At { bucket: bucket as u32, slot: slot as u32 }
            }
        }
    }

    /// Asks for a slot's timer.
    fn prefetch_timer(&self, at: At) {
        let offset = self.writer.layout().timer.expect("entries of such tables have timers");
        let timer = self.cell(at).wrapping_add(self.writer.layout().before as usize).wrapping_offset(offset as isize);
        crate::sync::prefetch(timer.cast_const());
    }

    /// Finds slots of a stripe that are to be looked at by a tick, asks for their timers, and frees what waited.
    fn search_stripe(&self, stripe: u32, tick: u64, found: &mut Vec<u16>) {
        let mut content = self.stripes[stripe as usize].lock();
        // SAFETY: the stripe is locked.
        let times = unsafe { self.slots(stripe) }.times;
        content.advance(times, self.step_of(tick), found);
        self.collect(stripe, &mut content);
        if content.has_waiting() {
            self.waits.store(true, Ordering::Relaxed);
        }
        let is_stale = content.stale > STALE_MAX;
        drop(content);
        found.iter().for_each(|local| self.prefetch_timer(self.at(stripe, *local)));
        if is_stale {
            self.count_marks(stripe);
        }
    }

    /// What becomes of an entry that is looked at. It is live, and its stripe locked.
    fn fate(&self, at: At, tick: u64) -> Fate {
        let entry = self.entry(at);
        // SAFETY: the slot is live.
        let (end, timeout) = unsafe { (self.end_of(entry, tick), self.timer(entry)[1].load(Ordering::Relaxed)) };
        let Some(mut end) = end else { return Fate::Stays };
        let ticks = (u64::from(timeout) * 1000).div_ceil(1 << TICK_SHIFT);
        let told = self.told.as_ref().map(|told| &told[self.number(at)]);
        if let Some(told) = told {
            let since = u64::from((tick as u32).wrapping_sub(told.load(Ordering::Relaxed)));
            end = end.max(tick.saturating_sub(since) + ticks);
        }
        if self.step_after(end) > self.step_of(tick) {
            return Fate::Later(end);
        }
        if let Some(told) = told {
            told.store(tick as u32, Ordering::Relaxed);
        }
        // One that stays is told again when its time is over once more.
        if self.dynamic.deletes { Fate::Ends } else { Fate::Told(tick + ticks) }
    }

    /// Looks at slots that were found; ends entries whose time is over, and hands them to `over`.
    fn look(&self, stripe: u32, tick: u64, found: &[u16], mut over: impl FnMut(At)) {
        let mut content = self.stripes[stripe as usize].lock();
        let mut packed = [0; MAX_WORDS];
        let mut count = 0;
        for &local in found {
            // SAFETY: the stripe is locked.
            let times = unsafe { self.slots(stripe) }.times;
            if !Content::is_found(times, local) {
                continue;
            }
            let at = self.at(stripe, local);
            let fate = self.fate(at, tick);
            if matches!(fate, Fate::Ends | Fate::Told(_)) {
                count += 1;
                over(at);
            }
            match fate {
                Fate::Stays => Content::take(times, local),
                Fate::Later(end) | Fate::Told(end) => _ = content.put(times, local, self.step_after(end)),
                Fate::Ends => {
                    let hash = self.hash_at(at, &mut packed);
                    self.remove(&mut content, hash, at);
                }
            }
        }
        self.collect(stripe, &mut content);
        drop(content);
        if count > 0 {
            self.expired.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Takes back marks in a stripe's buckets that no live key needs.
    fn count_marks(&self, stripe: u32) {
        let mut content = self.stripes[stripe as usize].lock();
        // Keys that passed these buckets lie here or in the next stripe.
        let next = self.stripes.get(stripe as usize + 1).map(Stripe::lock);
        let here = self.stripe_buckets(stripe);
        let mut marks = [0u16; STRIPE_BUCKETS as usize];
        let mut packed = [0; MAX_WORDS];
        let reach = here.start..if next.is_some() { self.stripe_buckets(stripe + 1).end } else { here.end };
        for at in self.array.live_in(reach) {
            let hash = self.hash_at(at, &mut packed);
            let mark = self.place(hash).mark;
            for bucket in self.array.path(hash).take_while(|bucket| *bucket != at.bucket) {
                if let Some(marks) = (bucket as usize).checked_sub(here.start).and_then(|i| marks.get_mut(i)) {
                    *marks |= 1 << mark;
                }
            }
        }
        for (bucket, marks) in here.zip(marks) {
            self.array.bucket(bucket as u32).set_passed(marks);
        }
        content.stale = 0;
    }
}

/// Words of keys that lie in buckets.
const MAX_WORDS: usize = (MAX_KEY_BYTES as usize).div_ceil(8);

/// # Safety
/// As of [`abi::table::AddEntryFn`]: key and entry have the table's layouts.
unsafe fn add_from_packet(
    handle: *const TableHandle,
    key: *const u8,
    entry: *const u8,
    (bytes, expire): (u32, u32),
    now_us: u64,
    replace: bool,
) -> u32 {
    // SAFETY: the caller's promise.
    let core = unsafe { Core::of(handle) };
    let Some(timeout_ms) = core.timeout_ms(expire) else { return 1 };
    let words = match core.form.wide_words {
        0 => core.form.shape.key_bytes.div_ceil(8) as usize,
        words => words as usize,
    };
    let mut packed = [0u64; MAX_PACKET_KEY];
    let timer = Timer { tick: now_us >> TICK_SHIFT, timeout_ms };
    // SAFETY: the key has so many words, the entry so many bytes, which are the new slot's to have.
    let add = |packed: &[u64]| {
        let write = |to: *mut u8| unsafe { ptr::copy_nonoverlapping(entry, to, bytes as usize) };
        core.add(packed, timer, (replace, false, false), write, |_| {})
    };
    let added = match packed.get_mut(..words) {
        Some(packed) => {
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(key, packed.as_mut_ptr().cast(), 8 * words) };
            add(packed)
        }
        None => {
            // SAFETY: as above; compiled code aligns its buffer of words.
            add(unsafe { std::slice::from_raw_parts(key.cast(), words) })
        }
    };
    u32::from(added.is_err())
}

/// Words of keys that are copied, since nobody promises their alignment; longer ones are aligned.
const MAX_PACKET_KEY: usize = 16;

unsafe extern "C" fn add_entry(
    handle: *const TableHandle,
    key: *const u8,
    entry: *const u8,
    bytes: u32,
    expire: u32,
    now_us: u64,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { add_from_packet(handle, key, entry, (bytes, expire), now_us, false) }
}

unsafe extern "C" fn replace_entry(
    handle: *const TableHandle,
    key: *const u8,
    entry: *const u8,
    bytes: u32,
    expire: u32,
    now_us: u64,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { add_from_packet(handle, key, entry, (bytes, expire), now_us, true) }
}

unsafe extern "C" fn set_expire(handle: *const TableHandle, entry: *const EntryHeader, expire: u32, now_us: u64) {
    // SAFETY: the caller's promise: the entry came from a lookup that hit.
    unsafe {
        let core = Core::of(handle);
        if let Some(timeout_ms) = core.timeout_ms(expire) {
            core.set_expire(entry, timeout_ms, now_us >> TICK_SHIFT);
        }
    }
}

/// The control plane's side.
pub(crate) struct DynamicTable {
    core: Arc<Core>,
    spec: TableSpec,
    shape: KeyShape,
    /// Of default entries.
    defaults: EntryMemory,
    old_defaults: Limbo<usize>,
    /// Timeouts that the control plane gave and that have no whole number of milliseconds, or too many, by slot and what they are kept as.
    odd_timeouts: HashMap<u32, (u32, u64)>,
    scratch: Vec<u64>,
    /// The last step that [`DynamicTable::expire`] has seen.
    step: u64,
}

/// What a timeout of the control plane's is kept as.
fn timeout_of(ns: u64) -> u32 {
    let ms = ns.div_ceil(NS_PER_MS);
    if ms > TIMEOUT_MS_MAX { 0 } else { ms as u32 }
}

impl DynamicTable {
    /// An empty table, all of whose fields are exact.
    pub(crate) fn new(
        spec: TableSpec,
        dynamic: DynamicSpec,
        shape: KeyShape,
        default_action: Runs<'_>,
        domain: Arc<Domain>,
    ) -> Result<DynamicTable, SpecError> {
        let parts = EntryParts { timer: true, index: spec.direct, ..EntryParts::default() };
        let mut defaults = EntryMemory::new(&spec.actions, parts);
        let writer = defaults.writer().clone();
        let form = form_of(&shape, writer.layout());
        let homes = (spec.size.max(1) as f64 / (f64::from(form.shape.slots) * load(&form.shape))).ceil();
        // Slots have numbers of 32 bits.
        if homes * f64::from(form.shape.slots) > f64::from(1u32 << 31) {
            return Err(SpecError::TooLarge(spec.size));
        }
        let array = Array::new(homes as u32, form, domain.seeds());
        let buckets = array.buckets();
        let slots = buckets * form.shape.slots as usize;
        let stripes = buckets.div_ceil(STRIPE_BUCKETS as usize);
        let cell_bytes = (writer.layout().bytes_max() as usize + 8 * form.wide_words as usize).next_multiple_of(16);
        // SAFETY: zero bytes are bytes and integers.
        let (cells, indices) = unsafe {
            let cells = form.far.then(|| Region::<CellLine>::zeroed((slots * cell_bytes).div_ceil(64)));
            (cells, spec.direct.then(|| Region::<AtomicU32>::zeroed(slots)))
        };
        // SAFETY: as above.
        let (times, links) = unsafe { (Region::<u8>::zeroed(slots), Region::<u16>::zeroed(slots)) };
        // SAFETY: as above.
        let told = (dynamic.expires && !dynamic.deletes).then(|| unsafe { Region::<AtomicU32>::zeroed(slots) });
        cells.iter().for_each(Region::make_pages);
        times.make_pages();
        links.make_pages();
        let default_tag = Tag { index: if spec.direct { slots as u32 } else { EntryLayout::NO_INDEX }, ..Tag::NONE };
        let dynamic = DynamicSpec { step_ticks: dynamic.step_ticks.max(1), ..dynamic };
        let core = Arc::new(Core {
            handle: Apart(TableHandle {
                snapshot: AtomicPtr::new(ptr::from_ref(array.snapshot()).cast_mut().cast()),
                default_entry: AtomicPtr::new(defaults.make(default_action, default_tag)),
            }),
            len: Apart(AtomicU64::new(0)),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            size: spec.size,
            dynamic,
            form,
            writer,
            array,
            cell_bytes,
            cells,
            stripes: (0..stripes).map(|_| Stripe::new()).collect(),
            times,
            links,
            waits: AtomicBool::new(false),
            indices,
            told,
            reset: OnceLock::new(),
            domain,
        });
        let scratch = vec![0; shape.words()];
        let (old_defaults, odd_timeouts) = (Limbo::default(), HashMap::new());
        Ok(DynamicTable { core, spec, shape, defaults, old_defaults, odd_timeouts, scratch, step: 0 })
    }

    fn handle(&self) -> *const TableHandle {
        let core = Arc::as_ptr(&self.core);
        // SAFETY: the table lives. Calls get from the handle to the rest.
        unsafe { &raw const (*core).handle.0 }
    }

    pub(crate) fn binding(&self) -> TableBinding {
        let core = &*self.core;
        let (lookup, lookup_batch) = core.form.lookups();
        let Form { shape, before, far, wide_words, .. } = core.form;
        let exact = ExactLayout {
            key_bytes: shape.key_bytes,
            slots: shape.slots,
            entry_offset: shape.entry_offset(0) as u32 + if far { 0 } else { before },
            entry_bytes: shape.entry_bytes,
            far,
        };
        let dynamic = DynamicBinding {
            add: add_entry,
            replace: replace_entry,
            set_expire,
            restart_on_hit: core.dynamic.restart_on_hit,
            expire_ms: if core.dynamic.expires { core.dynamic.expire_ms.clone() } else { Vec::new() },
        };
        TableBinding {
            handle: self.handle(),
            key: self.shape.layout().clone(),
            engine: self.engine_kind(),
            exact: (wide_words == 0).then_some(exact),
            lookup,
            lookup_batch,
            select: None,
            entry: core.writer.layout().clone(),
            dynamic: Some(dynamic),
            footprint_bytes: self.footprint_bytes(),
        }
    }

    pub(crate) fn engine_kind(&self) -> EngineKind {
        if self.core.form.wide_words == 0 { EngineKind::ExactInline } else { EngineKind::Opaque }
    }

    pub(crate) fn len(&self) -> u64 {
        self.core.len.load(Ordering::Relaxed)
    }

    /// Numbers of slots are below this.
    pub(crate) fn index_limit(&self) -> u64 {
        self.core.times.len() as u64
    }

    /// How much lookups touch: a line for each entry, and where entries lie outside another one, but no more than there is.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let lines = if self.core.form.far { 2 } else { 1 };
        (64 * lines * self.len()).min(self.memory_bytes())
    }

    /// Bytes of everything that depends on the size, all of which is there from the start.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let core = &*self.core;
        let cells = core.cells.as_ref().map_or(0, Region::bytes);
        let indices = core.indices.as_ref().map_or(0, Region::bytes);
        let slots = core.times.bytes() + core.links.bytes();
        (core.array.bytes() + cells + indices + slots + size_of_val(&*core.stripes)) as u64
    }

    /// What of the snapshot code has as constants: all of it, for good.
    pub(crate) fn snapshot_words(&self) -> Vec<u64> {
        let ExactSnapshot { buckets, count, seeds, .. } = self.core.array.snapshot();
        vec![*buckets as u64, *count, seeds[0], seeds[1]]
    }

    pub(crate) fn default_shape(&self) -> EntryShape {
        // SAFETY: the default entry is live.
        unsafe { self.core.writer.shape(self.core.handle.default_entry.load(Ordering::Relaxed)) }
    }

    pub(crate) fn counts(&self) -> DynamicCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Core { refused, evicted, expired, .. } = &*self.core;
        DynamicCounts { refused: load(refused), evicted: load(evicted), expired: load(expired), untold: 0 }
    }

    /// What sets the direct resources of an index to zero, before another entry gets it. Once.
    pub(crate) fn on_release(&self, reset: Box<dyn Fn(u32) + Send + Sync>) {
        // A table that a second state shares keeps the first one's: they share the cells too.
        let _ = self.core.reset.set(reset);
    }

    fn pack(&mut self, key: &[KeyMatch]) -> Result<u64, StateError> {
        let packs = self.shape.pack(key, &mut self.scratch);
        if packs { Ok(self.core.hash(&self.scratch)) } else { Err(StateError::WrongKind) }
    }

    fn check(&self, runs: Runs<'_>) -> Result<(), StateError> {
        match runs {
            Runs::Call(call) if self.core.writer.accepts(call) => Ok(()),
            _ => Err(StateError::WrongKind),
        }
    }

    fn put(
        &mut self,
        entry: &TableEntry,
        runs: Runs<'_>,
        tick: u64,
        (replace, must): (bool, bool),
        prepare: impl FnOnce(u32),
    ) -> Result<At, StateError> {
        let timeout_ms = if self.core.dynamic.expires { timeout_of(entry.idle_timeout_ns) } else { 0 };
        let core = &*self.core;
        let before = core.writer.layout().before as usize;
        let write = |to: *mut u8| {
            // SAFETY: the slot is the caller's alone, with room for any of the table's entries.
            _ = unsafe { core.writer.write(to.sub(before), runs, Tag::NONE) };
        };
        let added = core.add(&self.scratch, Timer { tick, timeout_ms }, (replace, must, true), write, prepare);
        let at = added.map_err(|not| match not {
            NotAdded::Exists => StateError::Exists,
            NotAdded::NotFound => StateError::NotFound,
            NotAdded::Full => StateError::Full(self.spec.size),
        })?;
        let number = core.number(at) as u32;
        self.odd_timeouts.remove(&number);
        if u64::from(timeout_ms) * NS_PER_MS != entry.idle_timeout_ns {
            self.odd_timeouts.insert(number, (timeout_ms, entry.idle_timeout_ns));
        }
        Ok(at)
    }

    /// Adds an entry; `must`: though the table be full, since a change is taken back.
    pub(crate) fn insert(
        &mut self,
        entry: &TableEntry,
        runs: Runs<'_>,
        now_us: u64,
        must: bool,
        prepare: impl FnOnce(u32),
    ) -> Result<u32, StateError> {
        self.check(runs)?;
        self.pack(&entry.key)?;
        let tick = now_us >> TICK_SHIFT;
        let at = match self.put(entry, runs, tick, (false, must), prepare) {
            // A packet has added one since what is taken back.
            Err(StateError::Exists) if must => self.put(entry, runs, tick, (true, must), |_| {})?,
            added => added?,
        };
        Ok(self.core.take_index(at, None))
    }

    pub(crate) fn modify(&mut self, entry: &TableEntry, runs: Runs<'_>) -> Result<EntryAction, StateError> {
        self.check(runs)?;
        let hash = self.pack(&entry.key)?;
        let (old, tick) = {
            let _path = self.core.lock(hash, true);
            let at = self.core.locate(hash, &self.scratch).ok_or(StateError::NotFound)?;
            // SAFETY: the slot is live while its stripe is locked.
            let tick = unsafe { self.core.timer(self.core.entry(at))[0].load(Ordering::Relaxed) };
            (self.action_at(at), u64::from(tick))
        };
        self.put(entry, runs, tick, (true, false), |_| {})?;
        Ok(old)
    }

    pub(crate) fn delete(&mut self, key: &[KeyMatch]) -> Result<TableEntry, StateError> {
        let hash = self.pack(key)?;
        let core = Arc::clone(&self.core);
        let mut path = core.lock(hash, true);
        let at = core.locate(hash, &self.scratch).ok_or(StateError::NotFound)?;
        let was = self.read(at, 0).entry;
        core.remove(path.content(at.bucket), hash, at);
        drop(path);
        self.odd_timeouts.remove(&(core.number(at) as u32));
        Ok(was)
    }

    /// The index of the entry with this key, if the table has indices.
    pub(crate) fn find(&mut self, key: &[KeyMatch]) -> Result<u32, StateError> {
        let hash = self.pack(key)?;
        let _path = self.core.lock(hash, true);
        let at = self.core.locate(hash, &self.scratch).ok_or(StateError::NotFound)?;
        // SAFETY: the slot is live while its stripe is locked.
        Ok(unsafe { self.core.writer.index(self.core.entry(at)) })
    }

    pub(crate) fn entry_with(&mut self, key: &[KeyMatch], now_us: u64) -> Result<ReadEntry, StateError> {
        let hash = self.pack(key)?;
        let _path = self.core.lock(hash, true);
        let at = self.core.locate(hash, &self.scratch).ok_or(StateError::NotFound)?;
        Ok(self.read_at(at, now_us))
    }

    /// In no particular order.
    pub(crate) fn entries(&self, now_us: u64) -> Vec<ReadEntry> {
        self.read_buckets(0..self.core.array.buckets(), now_us)
    }

    /// The entries of some buckets, one stripe after the other.
    fn read_buckets(&self, buckets: std::ops::Range<usize>, now_us: u64) -> Vec<ReadEntry> {
        let mut entries = Vec::new();
        for (i, stripe) in self.core.stripes.iter().enumerate() {
            let here = self.core.stripe_buckets(i as u32);
            let here = here.start.max(buckets.start)..here.end.min(buckets.end);
            if !here.is_empty() {
                let _held = stripe.lock();
                entries.extend(self.core.array.live_in(here).map(|at| self.read_at(at, now_us)));
            }
        }
        entries
    }

    /// About so many entries from the bucket `place` on, and the bucket to go on from. Entries stay where they are.
    pub(crate) fn walk(&self, place: u64, about: usize, now_us: u64) -> (Vec<ReadEntry>, Option<u64>) {
        let all = self.core.array.buckets() as u64;
        let some = ((about as u64).saturating_mul(all) / self.len().max(1)).clamp(1, WALK_BUCKETS);
        let end = place.saturating_add(some).min(all);
        let entries = self.read_buckets(place.min(all) as usize..end as usize, now_us);
        (entries, (end < all).then_some(end))
    }

    pub(crate) fn is_before(&mut self, place: u64, key: &[KeyMatch]) -> bool {
        let Ok(hash) = self.pack(key) else { return false };
        let _path = self.core.lock(hash, true);
        self.core.locate(hash, &self.scratch).is_some_and(|at| u64::from(at.bucket) < place)
    }

    fn action_at(&self, at: At) -> EntryAction {
        // SAFETY: the slot is live, since its stripe is locked.
        EntryAction::Call(unsafe { self.core.writer.call(self.core.entry(at)) }.expect("it runs an action"))
    }

    fn read_at(&self, at: At, now_us: u64) -> ReadEntry {
        let mut read = self.read(at, now_us >> TICK_SHIFT);
        if let Some(idle_ns) = &mut read.idle_ns {
            // The rest of the clock's tick.
            *idle_ns += now_us % (1 << TICK_SHIFT) * 1000;
        }
        read
    }

    /// A live entry. Its stripe is locked.
    fn read(&self, at: At, tick: u64) -> ReadEntry {
        let core = &*self.core;
        let entry = core.entry(at);
        let mut packed = vec![0; self.scratch.len()];
        key_of(&core.form, &core.array, at, &mut packed);
        // SAFETY: the slot is live.
        let (age, timeout_ms) = unsafe { (core.age(entry, tick), core.timer(entry)[1].load(Ordering::Relaxed)) };
        let odd = self.odd_timeouts.get(&(core.number(at) as u32)).filter(|(ms, _)| *ms == timeout_ms);
        let idle_timeout_ns = odd.map_or(u64::from(timeout_ms) * NS_PER_MS, |(_, ns)| *ns);
        let key = self.shape.unpack(&packed);
        let entry = TableEntry { key, priority: 0, action: self.action_at(at), idle_timeout_ns };
        ReadEntry { entry, idle_ns: core.dynamic.expires.then(|| (age << TICK_SHIFT) * 1000) }
    }

    /// Ends entries whose time is over, and frees what waited for readers. Of entries whose time is over `tell` gets those
    /// that the control plane is to be told of.
    pub(crate) fn expire(&mut self, now_us: u64, mut tell: impl FnMut(TableEntry)) {
        let tick = now_us >> TICK_SHIFT;
        let core = Arc::clone(&self.core);
        let waits = core.waits.swap(false, Ordering::Relaxed);
        if core.step_of(tick) > self.step || waits {
            self.step = self.step.max(core.step_of(tick));
            self.go_through(&core, tick, &mut tell);
        }
        self.collect();
    }

    /// Looks at all stripes' entries that are to be looked at, [`AHEAD_STRIPES`] behind the search for them.
    fn go_through(&mut self, core: &Core, tick: u64, tell: &mut impl FnMut(TableEntry)) {
        let mut found: [Vec<u16>; AHEAD_STRIPES] = Default::default();
        let mut ended = Vec::new();
        for stripe in 0..core.stripes.len() + AHEAD_STRIPES {
            let found = &mut found[stripe % AHEAD_STRIPES];
            if !found.is_empty() {
                core.look((stripe - AHEAD_STRIPES) as u32, tick, found, |at| {
                    if core.dynamic.tells {
                        tell(self.read(at, tick).entry);
                    }
                    if core.dynamic.deletes && !self.odd_timeouts.is_empty() {
                        ended.push(core.number(at) as u32);
                    }
                });
                found.clear();
            }
            if stripe < core.stripes.len() {
                core.search_stripe(stripe as u32, tick, found);
            }
        }
        ended.iter().for_each(|number| _ = self.odd_timeouts.remove(number));
    }

    pub(crate) fn set_default(&mut self, runs: Runs<'_>, assumed: &mut Assumption) -> Result<(), StateError> {
        self.check(runs)?;
        assumed.invalidate(&self.core.domain)?;
        let index = if self.spec.direct { self.index_limit() as u32 } else { EntryLayout::NO_INDEX };
        let new = self.defaults.make(runs, Tag { index, ..Tag::NONE });
        let old = self.core.handle.default_entry.swap(new, Ordering::AcqRel);
        self.old_defaults.push(self.core.domain.advance(), old.expose_provenance());
        self.collect();
        Ok(())
    }

    pub(crate) fn default_call(&self) -> Option<ActionCall> {
        // SAFETY: the default entry is live.
        unsafe { self.core.writer.call(self.core.handle.default_entry.load(Ordering::Relaxed)) }
    }

    /// What a lookup found: an entry of this table.
    ///
    /// # Safety
    /// The entry is live, and was found under this key.
    pub(crate) unsafe fn found(&self, entry: *const EntryHeader, key: &[u8]) -> (TableEntry, Option<ActionCall>) {
        let packed: Vec<u64> =
            key.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).collect();
        // SAFETY: the caller's promise.
        let (call, timeout_ms) = unsafe {
            let timeout_ms = self.core.timer(entry)[1].load(Ordering::Relaxed);
            (self.core.writer.call(entry), timeout_ms)
        };
        let action = EntryAction::Call(call.clone().expect("it runs an action"));
        let idle_timeout_ns = u64::from(timeout_ms) * NS_PER_MS;
        (TableEntry { key: self.shape.unpack(&packed), priority: 0, action, idle_timeout_ns }, call)
    }

    /// What code may be told of entries: nothing.
    pub(crate) fn rules(&self) -> Vec<abi::Rule> {
        Vec::new()
    }

    pub(crate) fn collect(&mut self) {
        let DynamicTable { old_defaults, defaults, core, .. } = self;
        old_defaults.collect(&core.domain, |entry| {
            // SAFETY: it was unlinked, and every worker has been quiescent since.
            unsafe { defaults.free(ptr::with_exposed_provenance_mut(entry)) };
        });
    }

    /// Stripes with slots that wait for readers.
    pub(crate) fn waiting(&self) -> usize {
        self.core.stripes.iter().filter(|stripe| stripe.lock().has_waiting()).count()
    }
}

impl Drop for DynamicTable {
    /// There are no readers any more: the owner of the table's bindings is gone.
    fn drop(&mut self) {
        let default = self.core.handle.default_entry.load(Ordering::Relaxed);
        let old = self.old_defaults.drain().map(ptr::with_exposed_provenance_mut);
        for entry in old.chain([default]).collect::<Vec<_>>() {
            // SAFETY: every default entry is in one of these places.
            unsafe { self.defaults.free(entry) };
        }
    }
}

/// How such tables keep their entries.
fn form_of(shape: &KeyShape, layout: &EntryLayout) -> Form {
    let used = shape.layout().fields.iter().map(|f| f.offset + f.bytes).max().unwrap_or(0);
    let wide = used > MAX_KEY_BYTES;
    let key_bytes = if wide { 4 } else { used.next_multiple_of(4) };
    // Timers are aligned to words.
    let near = Shape::new(key_bytes, layout.bytes_max().next_multiple_of(4));
    let far = wide || near.slots < 2;
    Form {
        shape: if far { Shape::new(key_bytes, FAR_BYTES) } else { near },
        before: layout.before,
        far,
        wide_words: if wide { shape.words() as u32 } else { 0 },
        mix: MIX,
    }
}

//! An exact-match table that packets write: workers add entries, entries expire, and the control plane changes them as
//! in any other table (PNA, "Tables with add-on-miss capability" and "Table entry idle timeout").
//! Long because workers, control plane and housekeeping share the invariants of slots, which are best read together.
//!
//! For readers this is an ordinary exact table ([`super`]): the same buckets, the same probe, no lock. It differs on
//! the writers' side, since there are many writers.
//!
//! # Memory
//!
//! All memory is allocated up front: buckets for the table's size at a load factor of [`load`], a cell for each slot if
//! entries are stored out of line, and a [`Stripe`] for every 128 buckets. So the array never grows or moves, a packet
//! never waits for a copy or an allocation, and compiled code may embed the array's address for as long as the table
//! lives. Slots are numbered `bucket * slots + slot`; a table with direct resources starts with these numbers as
//! indices.
//!
//! # Writers
//!
//! Writers find, add and change a key under the lock of its home bucket's stripe (lock striping), so a key is never
//! stored twice. A slot is changed under the lock of its own stripe. A key's probe sequence is shorter than a stripe,
//! so the two stripes are the same or adjacent; they are locked in ascending order. A worker takes the second lock only
//! if the home bucket is full or keys with the same mark have overflowed it. A critical section writes a few cache
//! lines; no one waits for memory, readers or other tables while holding a lock.
//!
//! - A *worker* adds an entry, or replaces one ([`Core::add`]).
//! - The *control plane* makes its changes through `DynamicTable`, one at a time.
//! - The *housekeeping thread* removes expired entries ([`DynamicTable::expire`]), frees retired slots, and clears the
//!   overflow marks of keys that are gone.
//!
//! The slot of a removed entry is unpublished and stays retired until every worker has been quiescent, as in all exact
//! tables. The array has spare slots, so entries can be added meanwhile; a packet may also take a slot that an earlier
//! packet of the same batch has retired ([`stripe`]).
//!
//! # Time
//!
//! An entry stores the tick at which its idle time began, which hits update (`abi::EntryParts::timer`), and its
//! timeout. It expires at the end of a step of [`DynamicSpec::step_ticks`]. The timing wheel only says when to check an
//! entry. Shortening a timeout moves the entry in the wheel; lengthening does not.
//!
//! Once per step [`DynamicTable::expire`] visits all stripes: it finds the slots that are due in the wheel's bytes,
//! prefetches their timers, and checks them some stripes later.
//!
//! # Full tables
//!
//! The table's size limits its entries. An entry that a packet adds beyond that is refused. If the table *evicts*, the
//! entry replaces the one that has been idle longest among those of [`SAMPLE_BUCKETS`] buckets from the new key's home
//! on (of all buckets, in a table no larger than that).
//!
//! Memory costs: buckets, three bytes per slot for the wheel and the lists of retired slots, 128 bytes per 128 buckets.
//! With a 13-byte key and 5 bytes of data that is 55 bytes per entry in a full table.
//!
//! Tests: `tests/dynamic.rs`, against a list, and with threads; `stripe/tests.rs`.
#![allow(unsafe_code)]

mod stripe;

use super::array::{Array, At};
use super::bucket::Shape;
use super::store::{hash_packed, key_of, put_out_of_line};
use super::{ENTRY_ADDRESS_BYTES, ExactSnapshot, Form, MAX_KEY_BYTES, MIX, Place};
use crate::entry::{EntryMemory, EntryWriter, Runs, Tag};
use crate::key::KeyShape;
use crate::reclaim::{Assumption, Domain, Limbo};
use crate::region::Region;
use crate::sync::CachePadded;
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
use stripe::{Content, OWN_MAX, STRIPE_BUCKETS, Slots, Stripe, StripeGuard};

/// Buckets from whose entries the one to evict is chosen.
const SAMPLE_BUCKETS: u32 = 16;
/// The most ticks by which a worker's clock may be ahead of the housekeeping thread's, about 18 minutes. An entry that
/// was idle for almost as long as 32 bits of ticks last, 50 days, therefore looks as if it had just been hit.
const AHEAD_TICKS: u32 = 1 << 20;
/// Limit of timeouts in milliseconds, since ticks have 32 bits; entries with longer ones never expire.
const TIMEOUT_MS_MAX: u64 = 20 * 24 * 3600 * 1000;
/// Nanoseconds of a millisecond, the unit of timeouts.
const NS_PER_MS: u64 = 1_000_000;
/// Removed entries outside their home bucket after which a stripe's overflow marks are recomputed.
const STALE_MAX: u32 = 64;
/// Limit of the buckets that one step of an iteration visits.
const WALK_BUCKETS: u64 = 1 << 14;
/// Stripes between the search for due slots and their check, while their timers are prefetched.
const AHEAD_STRIPES: usize = 16;

/// How packets may change a table's entries.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DynamicSpec {
    /// Whether entries have timeouts.
    pub expires: bool,
    /// Whether expired entries are removed; otherwise they stay.
    pub deletes: bool,
    /// Whether the control plane is notified when an entry expires.
    pub tells: bool,
    /// Whether each hit restarts the entry's idle time.
    pub restart_on_hit: bool,
    /// The expire times in milliseconds, by their number in the program; 0 is never.
    pub expire_ms: Vec<u32>,
    /// Whether an entry that a packet adds to a full table replaces another.
    pub evicts: bool,
    /// Ticks of a step, at least 1: an entry expires at the first multiple that is not before the end of its timeout.
    pub step_ticks: u32,
}

/// The load factor, entries per slot, of a full table; higher than in tables that grow.
fn load(shape: &Shape) -> f64 {
    if shape.slots > 3 { 0.75 } else { 0.7 }
}

/// The part that workers and the control plane share.
#[repr(C)]
struct Core {
    /// The first field: compiled code passes its address to calls.
    handle: CachePadded<TableHandle>,
    /// Number of entries. On another cache line than what packets read.
    len: CachePadded<AtomicU64>,
    refused: AtomicU64,
    evicted: AtomicU64,
    expired: AtomicU64,
    size: u64,
    dynamic: DynamicSpec,
    form: Form,
    writer: EntryWriter,
    array: Array,
    /// Bytes of a slot's cell, if entries are stored out of line.
    cell_bytes: usize,
    cells: Option<Region<CellLine>>,
    stripes: Vec<Stripe>,
    /// By slot: its byte in the timing wheel. Accessed under the lock of the slot's stripe.
    times: Region<u8>,
    /// By slot: the next one in its list of retired slots. Accessed like `times`.
    links: Region<u16>,
    /// Whether slots may be retired or due before the next step begins.
    waits: AtomicBool,
    /// The most slots that a packet retires; 0 if that is not known.
    retirements: AtomicU32,
    /// By slot, for tables with direct resources: the index of the slot's next entry, XORed with the slot's number.
    indices: Option<Region<AtomicU32>>,
    /// By slot, if expired entries stay: the tick of the last notification, or of the entry's creation.
    last_notified: Option<Region<AtomicU32>>,
    /// Resets the direct resources of an index.
    reset: OnceLock<Box<dyn Fn(u32) + Send + Sync>>,
    domain: Arc<Domain>,
}

#[derive(Debug)]
#[repr(align(64))]
struct CellLine {
    _bytes: [u8; 64],
}

// SAFETY: the array's pointers point at memory that it owns; slots are written under locks (see the module
// documentation).
unsafe impl Sync for Core {}

/// The locks on a key's probe sequence: of its home bucket's stripe, and of the next one if the sequence may reach it.
struct Path<'a> {
    first: u32,
    first_home: u32,
    home: StripeGuard<'a>,
    next: Option<StripeGuard<'a>>,
}

impl Path<'_> {
    fn content(&mut self, bucket: u32) -> &mut Content {
        match bucket / STRIPE_BUCKETS == self.first {
            true => &mut self.home,
            false => self.next.as_mut().expect("the path's second stripe is locked"),
        }
    }
}

/// The time at which an entry is added or changed, and its timeout.
#[derive(Clone, Copy)]
struct Timer {
    tick: u64,
    timeout_ms: u32,
}

/// The result of checking an entry whose slot is due.
#[derive(Clone, Copy)]
enum Fate {
    /// It no longer has a timeout.
    Stays,
    /// It has not expired, and is due again at a tick.
    Later(u64),
    /// It expired, stays, and is due again at a tick.
    Told(u64),
    /// It expired, and is removed.
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
    /// The handle is that of a packet-written table that is alive.
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

    /// The wheel bytes and links of a stripe's slots.
    ///
    /// # Safety
    /// The stripe is locked, and no one else has these slices.
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

    /// The step at whose beginning an entry is due that expires at tick `end`.
    fn step_after(&self, end: u64) -> u64 {
        end.div_ceil(self.dynamic.step_ticks.into())
    }

    /// The step that contains a tick.
    fn step_of(&self, tick: u64) -> u64 {
        tick / u64::from(self.dynamic.step_ticks)
    }

    fn stripe_buckets(&self, stripe: u32) -> std::ops::Range<usize> {
        let first = (stripe * STRIPE_BUCKETS) as usize;
        first..(first + STRIPE_BUCKETS as usize).min(self.array.buckets())
    }

    /// Locks the probe sequence of a hash; its second stripe only if `whole`, or if the key may be or go beyond its
    /// home bucket.
    fn lock(&self, hash: u64, whole: bool) -> Path<'_> {
        let place = self.place(hash);
        let first = place.home / STRIPE_BUCKETS;
        let home = self.stripes[first as usize].lock();
        let last = Array::last_of_path(place.second) / STRIPE_BUCKETS;
        let leaves = || whole || self.array.is_passed_or_full(place.home, hash);
        let next = (last > first && leaves()).then(|| self.stripes[last as usize].lock());
        Path { first, first_home: place.home, home, next }
    }

    /// The slot of a key. The probe sequence is locked, or the caller is a reader.
    fn locate(&self, hash: u64, packed: &[u64]) -> Option<At> {
        let mut key = [0; 4];
        let key = self.slot_key(hash, packed, &mut key);
        self.array.locate(hash, key, |bucket, slot| {
            // SAFETY: the slot is live, and is not freed while its stripe is locked.
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

    /// The address of a slot's entry, including the bytes before its header.
    fn cell(&self, at: At) -> *mut u8 {
        match &self.cells {
            None => self.array.bucket(at.bucket).entry(&self.form.shape, at.slot as usize),
            Some(cells) => {
                let first = cells.as_mut_ptr().cast::<u8>();
                first.wrapping_add(self.number(at) * self.cell_bytes + 8 * self.form.wide_words as usize)
            }
        }
    }

    /// The two words of an entry's timer: the tick at which its idle time began, and the timeout in milliseconds.
    ///
    /// # Safety
    /// The entry belongs to this table.
    unsafe fn timer<'a>(&self, entry: *const EntryHeader) -> [&'a AtomicU32; 2] {
        let at = self.writer.layout().timer.expect("entries of such tables have timers");
        // SAFETY: eight bytes lie there, at a multiple of four; they are only written as words.
        unsafe {
            let first = entry.cast_mut().cast::<u8>().offset(at as isize).cast::<u32>();
            [AtomicU32::from_ptr(first), AtomicU32::from_ptr(first.add(1))]
        }
    }

    /// How long an entry has been idle, in ticks.
    ///
    /// # Safety
    /// As of [`Core::timer`].
    unsafe fn age(&self, entry: *const EntryHeader, tick: u64) -> u64 {
        // SAFETY: the caller's promise.
        let began = unsafe { self.timer(entry)[0].load(Ordering::Relaxed) };
        let age = (tick as u32).wrapping_sub(began);
        // The worker that hit the entry may have a clock that is ahead.
        if age > u32::MAX - AHEAD_TICKS { 0 } else { age.into() }
    }

    /// The tick at which an entry expires; `None` if it has no timeout.
    ///
    /// # Safety
    /// As of [`Core::timer`].
    unsafe fn end_of(&self, entry: *const EntryHeader, tick: u64) -> Option<u64> {
        // SAFETY: the caller's promise.
        let (age, timeout) = unsafe { (self.age(entry, tick), self.timer(entry)[1].load(Ordering::Relaxed)) };
        let ticks = (u64::from(timeout) * 1000).div_ceil(1 << TICK_SHIFT);
        (timeout > 0).then(|| tick.saturating_sub(age) + ticks)
    }

    /// The timeout in milliseconds of an expire time's number; `None` if there is no such number.
    fn timeout_ms(&self, number: u32) -> Option<u32> {
        if !self.dynamic.expires { Some(0) } else { self.dynamic.expire_ms.get(number as usize).copied() }
    }

    /// Adds an entry under a key that is not stored yet or, if `replace`, changes the stored one; returns its slot.
    /// `write` writes the action and data to the entry's address; `prepare` is called with a new entry's index before
    /// readers find it.
    ///
    /// `must` adds beyond the table's size. `whole` is for the control plane: it locks the whole probe sequence, does
    /// not evict, and its refusals are not counted.
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
        let mut evicts = false;
        if old.is_none() && self.len.fetch_add(1, Ordering::Relaxed) >= self.size && !must {
            evicts = self.dynamic.evicts && !whole && self.evict(&mut path, hash, timer.tick);
            if !evicts {
                self.len.fetch_sub(1, Ordering::Relaxed);
                self.refused.fetch_add(u64::from(!whole), Ordering::Relaxed);
                return Err(NotAdded::Full);
            }
        }
        let from = old.map(|old| old.bucket);
        // Entries that are replaced often stay where they are as long as possible: they only move away from their home.
        let mut found = from.and_then(|bucket| self.array.reserve_in(bucket));
        if found.is_none() && old.is_some() {
            self.collect_path(&mut path);
            found = from.and_then(|bucket| self.array.reserve_in(bucket));
            if found.is_none() {
                self.reuse(&mut path, evicts);
                found = from.and_then(|bucket| self.array.reserve_in(bucket));
            }
        }
        let found = found.or_else(|| self.array.reserve(hash, from)).or_else(|| {
            self.collect_path(&mut path);
            self.array.reserve(hash, from).or_else(|| {
                self.reuse(&mut path, evicts);
                // Back to the beginning, where readers of other workers could be past.
                let from = from.filter(|_| !self.is_alone());
                self.array.reserve(hash, from)
            })
        });
        let Some(at) = found else {
            if old.is_none() {
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
            self.refused.fetch_add(u64::from(!whole), Ordering::Relaxed);
            return Err(NotAdded::Full);
        };
        if path.next.is_none() && at.bucket / STRIPE_BUCKETS != path.first {
            // Slots that became free in the second stripe do not matter: if the home bucket is full, it is locked.
            unreachable!("a slot outside of the locked stripes");
        }
        let index = self.take_index(at, old);
        self.fill(packed, at, index, timer, write);
        if old.is_none() {
            prepare(index);
        }
        let mut key = [0; 4];
        let key = self.slot_key(hash, packed, &mut key);
        let goes_back = old.is_some_and(|old| {
            self.array.path(hash).find(|bucket| *bucket == at.bucket || *bucket == old.bucket) != Some(old.bucket)
        });
        self.array.publish(hash, key, at, old.filter(|_| !goes_back));
        if let Some(old) = old.filter(|_| goes_back) {
            // A worker that has gone online since may have been past the new entry: it finds the old one. One that goes online
            // later finds the new one (see `reclaim`).
            let stays = !self.is_alone();
            self.array.unpublish(if stays { at } else { old });
            if stays {
                self.take_index(old, Some(at));
                self.retire(path.content(at.bucket), hash, at, true);
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(NotAdded::Full);
            }
        }
        if let Some(old) = old {
            self.retire(path.content(old.bucket), hash, old, !whole);
        }
        self.schedule(path.content(at.bucket), at, timer);
        Ok(at)
    }

    /// Writes a free slot, except for its key.
    fn fill(&self, packed: &[u64], at: At, index: u32, timer: Timer, write: impl FnOnce(*mut u8)) {
        let layout = self.writer.layout();
        let cell = self.cell(at);
        // SAFETY: the slot is free, so its bytes are ours, and enough for any of the table's entries; words are
        // aligned.
        unsafe {
            let entry = cell.add(layout.before as usize);
            if self.form.wide_words > 0 {
                let key = cell.sub(8 * self.form.wide_words as usize);
                ptr::copy_nonoverlapping(packed.as_ptr().cast(), key, 8 * packed.len());
            }
            write(entry);
            if let Some(last_notified) = &self.last_notified {
                last_notified[self.number(at)].store(timer.tick as u32, Ordering::Relaxed);
            }
            let words = self.timer(entry.cast());
            words[0].store(timer.tick as u32, Ordering::Relaxed);
            words[1].store(timer.timeout_ms, Ordering::Relaxed);
            if let Some(offset) = layout.index {
                entry.offset(offset as isize).cast::<[u8; 4]>().write(index.to_le_bytes());
            }
            if self.form.out_of_line {
                let slot = self.array.bucket(at.bucket).entry(&self.form.shape, at.slot as usize);
                put_out_of_line(slot, entry.cast());
            }
        }
    }

    /// The index of a new entry in slot `at`. If it replaces the one in slot `old`, the slots exchange their indices.
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

    /// Puts an entry with a timeout into the timing wheel.
    fn schedule(&self, content: &mut Content, at: At, timer: Timer) {
        if timer.timeout_ms == 0 {
            return;
        }
        let end = timer.tick + (u64::from(timer.timeout_ms) * 1000).div_ceil(1 << TICK_SHIFT);
        // SAFETY: the slot's stripe is locked, since the caller has its content.
        let slots = unsafe { self.slots(at.bucket / STRIPE_BUCKETS) };
        if content.put(slots.times, self.local(at), self.step_after(end)) {
            self.waits.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a live entry, for a packet or not. `content` is that of the slot's stripe, which is locked.
    fn remove(&self, content: &mut Content, hash: u64, at: At, by_packet: bool) {
        self.array.unpublish(at);
        self.retire(content, hash, at, by_packet);
        self.len.fetch_sub(1, Ordering::Relaxed);
    }

    /// The calling worker, and the most slots that each of its packets retires, if its packets may take slots that earlier ones
    /// of the same batch have retired.
    fn reuser(&self) -> Option<(u32, usize)> {
        let each = self.retirements.load(Ordering::Relaxed) as usize;
        let worker = if (1..=OWN_MAX).contains(&each) { self.domain.current() } else { None };
        worker.map(|worker| (worker, each))
    }

    /// Whether the calling worker is the only one that may read the table now, and its packets may take retired slots.
    fn is_alone(&self) -> bool {
        self.reuser().is_some_and(|(worker, _)| self.domain.is_past_for_others(u64::MAX, worker))
    }

    /// Frees slots of the locked stripes that earlier packets of this batch have retired. `evicts`: this call has retired
    /// one, too.
    fn reuse(&self, path: &mut Path<'_>, evicts: bool) {
        let Some((worker, each)) = self.reuser() else { return };
        let each = each + usize::from(evicts);
        let first = path.first;
        let contents = [Some(&mut *path.home), path.next.as_deref_mut()];
        for (stripe, content) in (first..).zip(contents.into_iter().flatten()) {
            while let Some(local) = content.reuse(worker, each, &self.domain) {
                self.release(self.at(stripe, local));
            }
        }
    }

    /// Retires a slot that readers no longer find.
    fn retire(&self, content: &mut Content, hash: u64, at: At, by_packet: bool) {
        // SAFETY: the slot's stripe is locked, since the caller has its content.
        let slots = unsafe { self.slots(at.bucket / STRIPE_BUCKETS) };
        let local = self.local(at);
        Content::take(slots.times, local);
        match if by_packet { self.reuser() } else { None } {
            Some((worker, _)) => content.retire_by(worker, slots.links, local, &self.domain),
            None => content.retire(slots.links, local, &self.domain),
        }
        content.stale += u32::from(!self.array.is_home(hash, at));
        if !self.waits.load(Ordering::Relaxed) {
            self.waits.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the entry of the sampled buckets that has been idle longest. Returns false if there is none that may be
    /// removed. The new key's probe sequence is locked.
    fn evict(&self, path: &mut Path<'_>, hash: u64, tick: u64) -> bool {
        let homes = self.array.homes();
        let (first, all) = (path.first, self.stripe_buckets(path.first));
        let buckets = if homes <= SAMPLE_BUCKETS {
            // All buckets; they are in one stripe.
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
        self.remove(&mut path.home, hash, oldest, true);
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The hash of a live slot's key.
    fn hash_at(&self, at: At, packed: &mut [u64; MAX_WORDS]) -> u64 {
        if self.form.wide_words > 0 {
            // SAFETY: the slot is live, and the key before its entry has so many words.
            let key = unsafe {
                std::slice::from_raw_parts(self.form.wide_key(self.entry(at)), self.form.wide_words as usize)
            };
            return self.hash(key);
        }
        let words = self.form.shape.key_bytes.div_ceil(8) as usize;
        key_of(&self.form, &self.array, at, &mut packed[..words]);
        self.hash(&packed[..words])
    }

    /// Frees retired slots of the locked stripes that no reader can see any more.
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
        // SAFETY: the stripe is locked, since the caller has its content.
        let slots = unsafe { self.slots(stripe) };
        content.collect(slots.links, &self.domain, |local| self.release(self.at(stripe, local)));
    }

    /// Frees a retired slot. Its stripe is locked.
    fn release(&self, at: At) {
        if let (Some(indices), Some(reset)) = (&self.indices, self.reset.get()) {
            let number = self.number(at);
            reset(indices[number].load(Ordering::Relaxed) ^ number as u32);
        }
        self.array.release(at);
    }

    /// Sets the timeout of a live entry, and restarts its idle time.
    ///
    /// # Safety
    /// The entry belongs to this table, is not the default entry, and was found since the calling thread was last
    /// quiescent.
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
        // Another thread may have removed it.
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

    /// Prefetches a slot's timer.
    fn prefetch_timer(&self, at: At) {
        let offset = self.writer.layout().timer.expect("entries of such tables have timers");
        let timer = self.cell(at).wrapping_add(self.writer.layout().before as usize).wrapping_offset(offset as isize);
        crate::sync::prefetch(timer.cast_const());
    }

    /// Finds the slots of a stripe that are due by a tick, prefetches their timers, and frees retired slots.
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

    /// Checks a live entry whose slot is due. Its stripe is locked.
    fn fate(&self, at: At, tick: u64) -> Fate {
        let entry = self.entry(at);
        // SAFETY: the slot is live.
        let (end, timeout) = unsafe { (self.end_of(entry, tick), self.timer(entry)[1].load(Ordering::Relaxed)) };
        let Some(mut end) = end else { return Fate::Stays };
        let ticks = (u64::from(timeout) * 1000).div_ceil(1 << TICK_SHIFT);
        let last_notified = self.last_notified.as_ref().map(|last_notified| &last_notified[self.number(at)]);
        if let Some(last_notified) = last_notified {
            let since = u64::from((tick as u32).wrapping_sub(last_notified.load(Ordering::Relaxed)));
            end = end.max(tick.saturating_sub(since) + ticks);
        }
        if self.step_after(end) > self.step_of(tick) {
            return Fate::Later(end);
        }
        if let Some(last_notified) = last_notified {
            last_notified.store(tick as u32, Ordering::Relaxed);
        }
        // One that stays is reported again when its timeout has passed once more.
        if self.dynamic.deletes { Fate::Ends } else { Fate::Told(tick + ticks) }
    }

    /// Checks the slots that were found due; removes expired entries unless they stay, and passes each to `over` first.
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
                    self.remove(&mut content, hash, at, false);
                }
            }
        }
        self.collect(stripe, &mut content);
        drop(content);
        if count > 0 {
            self.expired.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Recomputes the overflow marks of a stripe's buckets, which clears those that no live key needs.
    fn count_marks(&self, stripe: u32) {
        let mut content = self.stripes[stripe as usize].lock();
        // Keys that overflowed these buckets are in this stripe or the next one.
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

/// Limit of the 64-bit words of keys that are stored in buckets.
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
    // SAFETY: the key has so many words, and the entry so many bytes, for which the new slot has room.
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

/// Limit of the words of keys that are copied because their alignment is unknown; longer ones are aligned.
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

/// The control plane's side of a packet-written table.
pub(crate) struct DynamicTable {
    core: Arc<Core>,
    spec: TableSpec,
    shape: KeyShape,
    /// Allocates default entries.
    defaults: EntryMemory,
    old_defaults: Limbo<usize>,
    /// Timeouts of the control plane that are not whole milliseconds, or too long: by slot, the milliseconds that the
    /// entry stores, and the nanoseconds that were given.
    odd_timeouts: HashMap<u32, (u32, u64)>,
    scratch: Vec<u64>,
    /// The last step that [`DynamicTable::expire`] processed.
    step: u64,
}

/// The milliseconds that an entry stores for a timeout in nanoseconds; 0 if it is too long.
fn timeout_of(ns: u64) -> u32 {
    let ms = ns.div_ceil(NS_PER_MS);
    if ms > TIMEOUT_MS_MAX { 0 } else { ms as u32 }
}

impl DynamicTable {
    /// An empty table whose fields are all exact.
    ///
    /// # Errors
    /// [`SpecError::TooLarge`] if the slots' numbers would not fit 31 bits.
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
        // Slot numbers have 32 bits.
        if homes * f64::from(form.shape.slots) > f64::from(1u32 << 31) {
            return Err(SpecError::TooLarge(spec.size));
        }
        let array = Array::new(homes as u32, form, domain.seeds());
        let buckets = array.buckets();
        let slots = buckets * form.shape.slots as usize;
        let stripes = buckets.div_ceil(STRIPE_BUCKETS as usize);
        let cell_bytes = (writer.layout().bytes_max() as usize + 8 * form.wide_words as usize).next_multiple_of(16);
        // SAFETY: the types are bytes and integers, for which zero bytes are valid.
        let (cells, indices) = unsafe {
            let cells = form.out_of_line.then(|| Region::<CellLine>::zeroed((slots * cell_bytes).div_ceil(64)));
            (cells, spec.direct.then(|| Region::<AtomicU32>::zeroed(slots)))
        };
        // SAFETY: as above.
        let (times, links) = unsafe { (Region::<u8>::zeroed(slots), Region::<u16>::zeroed(slots)) };
        // SAFETY: as above.
        let last_notified =
            (dynamic.expires && !dynamic.deletes).then(|| unsafe { Region::<AtomicU32>::zeroed(slots) });
        cells.iter().for_each(Region::make_pages);
        times.make_pages();
        links.make_pages();
        let default_tag = Tag { index: if spec.direct { slots as u32 } else { EntryLayout::NO_INDEX }, ..Tag::NONE };
        let dynamic = DynamicSpec { step_ticks: dynamic.step_ticks.max(1), ..dynamic };
        let core = Arc::new(Core {
            handle: CachePadded(TableHandle {
                snapshot: AtomicPtr::new(ptr::from_ref(array.snapshot()).cast_mut().cast()),
                default_entry: AtomicPtr::new(defaults.make(default_action, default_tag)),
            }),
            len: CachePadded(AtomicU64::new(0)),
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
            retirements: AtomicU32::new(0),
            indices,
            last_notified,
            reset: OnceLock::new(),
            domain,
        });
        let scratch = vec![0; shape.words()];
        let (old_defaults, odd_timeouts) = (Limbo::default(), HashMap::new());
        Ok(DynamicTable { core, spec, shape, defaults, old_defaults, odd_timeouts, scratch, step: 0 })
    }

    fn handle(&self) -> *const TableHandle {
        let core = Arc::as_ptr(&self.core);
        // SAFETY: the table is alive. Calls get from the handle to the whole `Core`, so the pointer must not be limited
        // to the field.
        unsafe { &raw const (*core).handle.0 }
    }

    pub(crate) fn binding(&self) -> TableBinding {
        let core = &*self.core;
        let (lookup, lookup_batch) = core.form.lookups();
        let Form { shape, before, out_of_line, wide_words, .. } = core.form;
        let exact = ExactLayout {
            key_bytes: shape.key_bytes,
            slots: shape.slots,
            entry_offset: shape.entry_offset(0) as u32 + if out_of_line { 0 } else { before },
            entry_bytes: shape.entry_bytes,
            out_of_line,
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

    /// Limit of the indices, exclusive: the number of slots.
    pub(crate) fn index_limit(&self) -> u64 {
        self.core.times.len() as u64
    }

    /// Bytes of memory that lookups touch: a cache line per entry, two if entries are out of line, but no more than is
    /// allocated.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let lines = if self.core.form.out_of_line { 2 } else { 1 };
        (64 * lines * self.len()).min(self.memory_bytes())
    }

    /// Bytes of all memory that depends on the table's size; it is allocated up front.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let core = &*self.core;
        let cells = core.cells.as_ref().map_or(0, Region::bytes);
        let indices = core.indices.as_ref().map_or(0, Region::bytes);
        let slots = core.times.bytes() + core.links.bytes();
        (core.array.bytes() + cells + indices + slots + size_of_val(&*core.stripes)) as u64
    }

    /// The words of the snapshot that compiled code embeds as constants; they never change.
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
        DynamicCounts { refused: load(refused), evicted: load(evicted), expired: load(expired), unreported: 0 }
    }

    /// Sets the function that resets an index's direct resources before another entry gets it. Only the first call
    /// counts.
    pub(crate) fn on_release(&self, reset: Box<dyn Fn(u32) + Send + Sync>) {
        // A second state that shares the table also shares the resources' cells, so the first function is kept.
        let _ = self.core.reset.set(reset);
    }

    /// Sets the most entries of the table that a packet replaces or evicts in one run of an entry point. Packets may then take
    /// the slots that earlier packets of the same worker's batch have retired. The caller guarantees that no packet uses the
    /// results of a lookup in this table after a later packet of its batch has looked up or added an entry.
    ///
    /// The highest value of several calls counts: the programs that share the table.
    pub(crate) fn set_retirements(&self, each: u32) {
        self.core.retirements.fetch_max(each, Ordering::Relaxed);
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
            // SAFETY: no one else accesses the slot, which has room for any of the table's entries.
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

    /// Adds an entry and returns its index. `must` adds it even to a full table, to roll a change back.
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
            // A packet has added the key since the change that is rolled back.
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
        core.remove(path.content(at.bucket), hash, at, false);
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

    /// All entries, in no particular order.
    pub(crate) fn entries(&self, now_us: u64) -> Vec<ReadEntry> {
        self.read_buckets(0..self.core.array.buckets(), now_us)
    }

    /// The entries of a range of buckets; their stripes are locked one at a time.
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

    /// One step of an iteration: about `about` entries from bucket `place` on, and the bucket at which to continue.
    /// Entries do not move between buckets meanwhile.
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
            // The part of the clock below a tick.
            *idle_ns += now_us % (1 << TICK_SHIFT) * 1000;
        }
        read
    }

    /// Reads a live entry. Its stripe is locked.
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

    /// Removes expired entries and frees retired slots. Passes the expired entries that the control plane is notified
    /// of to `notify`.
    pub(crate) fn expire(&mut self, now_us: u64, mut notify: impl FnMut(TableEntry)) {
        let tick = now_us >> TICK_SHIFT;
        let core = Arc::clone(&self.core);
        let waits = core.waits.swap(false, Ordering::Relaxed);
        if core.step_of(tick) > self.step || waits {
            self.step = self.step.max(core.step_of(tick));
            self.go_through(&core, tick, &mut notify);
        }
        self.collect();
    }

    /// Checks the due slots of all stripes, [`AHEAD_STRIPES`] stripes after they were found and prefetched.
    fn go_through(&mut self, core: &Core, tick: u64, notify: &mut impl FnMut(TableEntry)) {
        let mut found: [Vec<u16>; AHEAD_STRIPES] = Default::default();
        let mut ended = Vec::new();
        for stripe in 0..core.stripes.len() + AHEAD_STRIPES {
            let found = &mut found[stripe % AHEAD_STRIPES];
            if !found.is_empty() {
                core.look((stripe - AHEAD_STRIPES) as u32, tick, found, |at| {
                    if core.dynamic.tells {
                        notify(self.read(at, tick).entry);
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

    /// The entry that a lookup returned, and the action call that it runs.
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

    /// The rules that compiled code may assume: none, since packets change them.
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

    /// Number of stripes with retired slots.
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
            // SAFETY: every default entry is current or in limbo, and is freed once.
            unsafe { self.defaults.free(entry) };
        }
    }
}

/// The layout of the buckets for such a table.
fn form_of(shape: &KeyShape, layout: &EntryLayout) -> Form {
    let used = shape.layout().fields.iter().map(|f| f.offset + f.bytes).max().unwrap_or(0);
    let wide = used > MAX_KEY_BYTES;
    let key_bytes = if wide { 4 } else { used.next_multiple_of(4) };
    // Timers are aligned to 4 bytes.
    let inline_shape = Shape::new(key_bytes, layout.bytes_max().next_multiple_of(4));
    let out_of_line = wide || inline_shape.slots < 2;
    Form {
        shape: if out_of_line { Shape::new(key_bytes, ENTRY_ADDRESS_BYTES) } else { inline_shape },
        before: layout.before,
        out_of_line,
        wide_words: if wide { shape.words() as u32 } else { 0 },
        mix: MIX,
    }
}

//! The flow cache of one worker, which the engine consults for received frames.
//!
//! A hit compares one change count for all tables, and if that has advanced, the count of each table that the path
//! looked up; so a frame never takes a stale path. Hits are accumulated with the path and added to counters after 64
//! ms, when a table has changed, when the control plane reads, or when the worker goes idle ([`Front::settle`]).
//!
//! Single-threaded. State shared with the tracer and the control plane is in [`Shared`] and [`Exchange`].

use super::path::{Lookups, Path};
use super::worth::{Plan, Worth};
use super::{CacheStats, Exchange, Sample, Shared};
use abi::flows::{CacheUse, Frame, FrameCache, Received, Verdict};
use abi::packet::BATCH_MAX;
use flowcache::cache::{self, Cache, NONE};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most megaflows: Open vSwitch's default limit.
const MEGAFLOWS_MAX: usize = 200_000;
/// Longest time that counts are held back, in microseconds.
const HOLD_US: u64 = 64_000;
/// Most frames of a batch handed to the tracer.
const SAMPLES_BATCH_MAX: usize = 16;
/// Most paths taken over per batch.
const FOUND_BATCH_MAX: usize = 256;
/// Megaflows checked for idleness per batch.
const SWEEP: usize = 4;
/// Time without packets after which a megaflow is removed, in microseconds.
const IDLE_US: u64 = 10_000_000;

/// A megaflow's path, and the packets and bytes not yet added to counters.
struct Payload {
    path: Arc<Path>,
    verdict: Verdict,
    /// The common change count at which the path was last found correct.
    right_at: Option<u64>,
    /// The number of its lookup set; and whether counters of the program count its packets.
    lookups: u32,
    has_counts: bool,
    packets: u64,
    bytes: u64,
    used_us: u64,
}

/// A lookup set, and the packets not yet added to it.
struct Pending {
    lookups: Option<Arc<Lookups>>,
    packets: u64,
}

/// The flow cache of one worker.
pub(super) struct Front {
    shared: Arc<Shared>,
    exchange: Arc<Exchange>,
    worker: usize,
    cache: Cache<Payload>,
    /// Megaflows with packets not yet added to counters.
    dirty: Vec<u32>,
    /// Lookup sets by number; and the numbers of those with pending packets.
    lookups: Vec<Pending>,
    dirty_lookups: Vec<u32>,
    now_us: u64,
    settled_us: u64,
    /// The common change count when the last batch began.
    changes: u64,
    synced: u64,
    flushed: u64,
    worth: Worth,
    plan: Plan,
    /// Hits of the last batch.
    hits: usize,
    sweep: usize,
    stats: CacheStats,
}

impl Front {
    pub(super) fn new(shared: Arc<Shared>, worker: usize) -> Front {
        let exchange = shared.join(worker);
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), worker);
        Front {
            exchange,
            worker,
            cache: Cache::new(seed, MEGAFLOWS_MAX),
            dirty: Vec::new(),
            lookups: Vec::new(),
            dirty_lookups: Vec::new(),
            now_us: 0,
            settled_us: 0,
            changes: 0,
            synced: shared.sync.load(Ordering::Acquire),
            flushed: shared.flush.load(Ordering::Acquire),
            worth: Worth::default(),
            plan: Plan { is_used: false, is_timed: false },
            hits: 0,
            sweep: 0,
            stats: CacheStats::default(),
            shared,
        }
    }

    /// Adds all pending counts to counters.
    fn count(&mut self) {
        for handle in self.dirty.drain(..) {
            if let Some((_, payload)) = self.cache.get_mut(handle) {
                add(&self.shared, self.worker, payload);
            }
        }
        for number in self.dirty_lookups.drain(..) {
            let pending = &mut self.lookups[number as usize];
            let packets = std::mem::take(&mut pending.packets);
            if let Some(lookups) = &pending.lookups {
                lookups.count(&self.shared.fast, self.worker, packets);
            }
        }
        self.settled_us = self.now_us;
        self.exchange.holds.store(false, Ordering::Release);
        self.exchange.synced.store(self.synced, Ordering::Release);
        self.publish();
    }

    fn publish(&mut self) {
        let store = self.cache.statistics();
        self.stats.front_hits = store.front_hits;
        self.stats.mask_hits = store.mask_hits;
        self.stats.evictions = store.evicted;
        self.stats.megaflows = self.cache.len() as u64;
        self.stats.masks = self.cache.masks() as u64;
        self.stats.limit = self.cache.limit() as u64;
        self.stats.is_on = self.worth.is_on();
        self.stats.ticks = self.worth.times();
        if let Ok(mut stats) = self.exchange.stats.try_lock() {
            *stats = self.stats;
        }
    }

    /// Inserts paths that the tracer has found.
    #[cold]
    fn take_found(&mut self) {
        let (shared, worker) = (&self.shared, self.worker);
        let Ok(mut found) = self.exchange.found.try_lock() else { return };
        let from = found.len().saturating_sub(FOUND_BATCH_MAX);
        for found in found.drain(from..) {
            self.stats.revalidations += u64::from(found.replaces.is_some());
            let gone = |mut payload: Payload| add(shared, worker, &mut payload);
            if let Some(old) = found.replaces.and_then(|handle| self.cache.remove(handle)) {
                gone(old);
            }
            let path = found.path;
            let at = path.lookups.number as usize;
            if self.lookups.len() <= at {
                self.lookups.resize_with(at + 1, || Pending { lookups: None, packets: 0 });
            }
            self.lookups[at].lookups.get_or_insert_with(|| Arc::clone(&path.lookups));
            let payload = Payload {
                verdict: path.verdict,
                right_at: None,
                lookups: at as u32,
                has_counts: path.has_counts(),
                packets: 0,
                bytes: 0,
                used_us: self.now_us,
                path,
            };
            // If there is no room now, the path will be traced again.
            let _ = self.cache.insert(found.port, &found.pattern, found.rewrite, payload, gone);
        }
        if found.is_empty() {
            self.exchange.has_found.store(false, Ordering::Relaxed);
        }
    }

    /// Checks the next few megaflows and removes idle ones.
    fn sweep(&mut self) {
        for _ in 0..SWEEP.min(self.cache.slots()) {
            self.sweep = if self.sweep + 1 < self.cache.slots() { self.sweep + 1 } else { 0 };
            let Some(handle) = self.cache.at(self.sweep) else { continue };
            let is_idle = self.cache.get(handle).is_some_and(|megaflow| {
                self.now_us.saturating_sub(megaflow.payload.used_us) >= IDLE_US && megaflow.payload.packets == 0
            });
            if is_idle {
                self.cache.remove(handle);
            }
        }
    }

    /// Executes a pending flush of the control plane.
    fn obey(&mut self) {
        let flush = self.shared.flush.load(Ordering::Acquire);
        if self.flushed != flush {
            self.flushed = flush;
            let (shared, worker) = (&self.shared, self.worker);
            self.cache.clear(|mut payload| add(shared, worker, &mut payload));
            self.dirty.clear();
        }
    }

    /// Copies unknown frames of a port for the tracer.
    #[cold]
    fn sample(&mut self, frames: &[Received<'_>], hits: &[u32], port: u32) {
        let Ok(mut samples) = self.exchange.samples.try_lock() else { return };
        let unknown = frames.iter().zip(hits).filter(|(received, _)| received.verdict == Verdict::Unknown);
        for (received, hit) in unknown.take(SAMPLES_BATCH_MAX.min(samples.room())) {
            let Frame { buffer, offset, len } = &received.frame;
            let replaces = (*hit != NONE).then_some(*hit);
            samples.push(Sample::new(&buffer[*offset..offset + len], port, replaces));
        }
    }
}

fn add(shared: &Shared, worker: usize, payload: &mut Payload) {
    if payload.packets > 0 {
        payload.path.count(&shared.fast, worker, payload.packets, payload.bytes);
        (payload.packets, payload.bytes) = (0, 0);
    }
}

impl FrameCache for Front {
    fn is_used(&mut self, now_us: u64) -> bool {
        self.now_us = now_us;
        self.plan = match self.shared.cache_use() {
            CacheUse::Never => Plan { is_used: false, is_timed: false },
            CacheUse::Always => Plan { is_used: true, is_timed: false },
            CacheUse::Auto => self.worth.plan(now_us),
        };
        self.plan.is_used
    }

    fn bypassed_until_us(&self) -> u64 {
        match self.shared.cache_use() {
            // Bounded, so that a change of the setting is noticed soon.
            CacheUse::Never => self.now_us + HOLD_US,
            CacheUse::Always => 0,
            CacheUse::Auto => self.worth.bypassed_until_us(),
        }
    }

    fn is_timed(&self) -> bool {
        self.plan.is_timed
    }

    fn record_time(&mut self, packets: usize, ticks: u64, is_used: bool) {
        let hits = if is_used { self.hits } else { 0 };
        if !is_used {
            self.stats.bypassed += packets as u64;
        }
        self.worth.record_time(packets, hits, ticks, is_used, self.now_us);
    }

    fn decide(&mut self, frames: &mut [Received<'_>], port: u32, now_us: u64) {
        self.obey();
        if self.exchange.has_found.load(Ordering::Acquire) {
            self.take_found();
        }
        self.sweep();
        // Read after the packets were received, so that all changes acknowledged before are seen.
        let changes = self.shared.fast.domain().changes();
        self.changes = changes;
        let mut hits = [NONE; BATCH_MAX];
        let hits = &mut hits[..frames.len()];
        let (cache, shown) = (&mut self.cache, &*frames);
        let frame = |i: usize| {
            let Frame { buffer, offset, len } = &shown[i].frame;
            cache::Frame { buffer, offset: *offset, len: *len, port }
        };
        cache.lookup_by(frame, hits);
        let mut known = 0;
        for (received, hit) in frames.iter_mut().zip(hits.iter()) {
            let Some((rewrite, payload)) = self.cache.get_mut(*hit) else { continue };
            if payload.right_at != Some(changes) {
                if !payload.path.is_right() {
                    continue;
                }
                payload.right_at = Some(changes);
            }
            let frame = &mut received.frame;
            let bytes = frame.len as u64;
            if let Verdict::Send { .. } = payload.verdict {
                let Some((offset, len)) = rewrite.run(frame.buffer, frame.offset, frame.len) else { continue };
                (frame.offset, frame.len) = (offset, len);
            }
            received.verdict = payload.verdict;
            payload.used_us = now_us;
            known += 1;
            let pending = &mut self.lookups[payload.lookups as usize];
            if pending.packets == 0 {
                self.dirty_lookups.push(payload.lookups);
            }
            pending.packets += 1;
            if payload.has_counts {
                if payload.packets == 0 {
                    self.dirty.push(*hit);
                }
                payload.packets += 1;
                payload.bytes += bytes;
            }
        }
        self.hits = known;
        self.stats.hits += known as u64;
        self.stats.misses += (frames.len() - known) as u64;
        if known > 0 && !self.exchange.holds.load(Ordering::Relaxed) {
            self.exchange.holds.store(true, Ordering::Release);
        }
        if known < frames.len() {
            self.sample(frames, hits, port);
        }
    }

    fn settle(&mut self, is_idle: bool) -> bool {
        let asked = self.shared.sync.load(Ordering::Acquire);
        let is_due = self.synced != asked
            || self.now_us.saturating_sub(self.settled_us) >= HOLD_US
            || self.changes != self.shared.fast.domain().changes();
        if is_idle || is_due {
            self.synced = asked;
            self.obey();
            self.count();
        }
        self.dirty_lookups.is_empty()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.count();
        self.shared.leave(&self.exchange);
    }
}

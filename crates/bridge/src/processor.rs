//! The flow processor of a worker: passes packets through the caches, and translates those that miss.
//!
//! ```text
//! frame ─▶ frame cache (crate::front) ─▶ hit: rewritten and sent
//!            │ miss
//!          shape (crate::shapes) ─▶ plain translation ─▶ sent or dropped
//!            │ none, admitted, or not plain
//! process ─▶ cache ─┬─ hit, current ─────────────────────────────────────▶ effects
//!                   ├─ hit, outdated ─┬─ change does not concern it ─────▶ effects
//!                   │                 └─ as a miss
//!                   └─ miss ─┬─ admitted ─▶ translate ─▶ insert ─────────▶ effects
//!                            └─ not admitted ─▶ plain translation ─▶ sent
//! ```
//!
//! `crate::cache::admission` decides which misses are admitted and how much time the cache may take; with
//! [`CacheUse::Always`] all are admitted. Other misses take the plain translation (`crate::plain`), or `translate`
//! if that gives up.
//!
//! **Revalidation.** A hit first compares the megaflow's generation with the global one, and only if they differ,
//! the generations of what the megaflow depends on. So no packet sees an outdated megaflow, and a change of one
//! table costs the packets of other tables only a comparison. [`Processor::idle`] sweeps over all entries, a few at
//! a time: it removes idle ones, and translates outdated ones again.
//!
//! **Counters.** Counts of cached packets are added to flows after [`FLUSH_US`] at most, and when
//! [`Pipeline::sync_counts`] requests it.
//!
//! There is one single-threaded processor per worker; [`Pipeline`] is shared.

mod show;
#[cfg(test)]
mod tests;

pub use show::{Megaflow, Wanted};

use crate::bridge::Bridge;
use crate::cache::admission::Admission;
use crate::cache::worth::Worth;
use crate::cache::{Cache, Entry, Generation, Packet};
use crate::controllers::PacketInEvent;
use crate::effects::{Effects, Runner, add_counts};
use crate::flow::Flow;
use crate::front::{Front, Known, State};
use crate::key::Layout;
use crate::normal::Stations;
use crate::pending::{Begin, Pending};
use crate::plain::Plain;
use crate::recent::{Recent, Seen};
use crate::shapes::Shapes;
use crate::tables::Tables;
use crate::translate::{Arrays, Control, Shared, Subject, Translation, translate};
use crate::vm::Vm;
use abi::flows::{Arrival, CacheUse, FlowProcessor, FlowTables, Frame, FrameCache, Outputs, Received};
use openflow::Error;
use openflow::message::{FlowMod, PacketIn};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// How long counts may be held back, in microseconds.
const FLUSH_US: u64 = 64_000;
/// Idle timeout of megaflows, in microseconds.
const IDLE_US: u64 = 10_000_000;
/// Interval at which cached packets renew the flows with a hard timeout that they learn, in microseconds.
const RENEW_US: u64 = 1_000_000;
/// Maximum number of entries that one call of `idle` visits.
const SWEEP: usize = 64;
/// Cost of searching one mask, in ns (40 cycles).
const MASK_NS: f64 = 16.0;
/// Initial estimate of a miss's cost, in ns.
const PLAIN_NS: f64 = 1000.0;
/// Upper bound of one sample, in ns: an interrupted worker says nothing about the cost of a miss.
const PLAIN_NS_MAX: f64 = 100_000.0;
/// One in this number of misses is timed.
const TIMED_INTERVAL: u32 = 64;
/// Weight of a sample in the moving average, as a divisor.
const PLAIN_SHARE: f64 = 16.0;
/// Work limit, in steps, of a translation between batches. A megaflow that needs more is removed; its next packet
/// may make a new one.
const IDLE_WORK: u32 = 16_384;
/// Time that one call of `idle` may spend on entries.
const IDLE_TIME: Duration = Duration::from_micros(50);

impl Control for Bridge {
    fn layout(&self) -> &Arc<Layout> {
        Bridge::layout(self)
    }

    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        Bridge::tables(self)
    }

    fn recent(&self) -> &Arc<Recent> {
        Bridge::recent(self)
    }

    fn learn(&self, request: &FlowMod) -> Result<(), Error> {
        Bridge::learn(self, request)
    }

    fn shorten(&self, flow: &Arc<Flow>) {
        Bridge::shorten(self, flow);
    }

    fn packet_in(&self, event: PacketInEvent) {
        Bridge::packet_in(self, event);
    }

    fn pending(&self) -> &Pending {
        &self.pending
    }
}

/// Runs the (BPF) programs of actions on frames.
pub trait ProgramRunner: Send + Sync {
    /// Runs program `id` on a packet received on `in_port`, and takes its cost from `steps`. `None` drops the
    /// packet: the program says so, does not exist, or needs more steps; in the last case `steps` is 0.
    fn run(&self, id: u32, argument: u64, in_port: u32, frame: &mut Frame<'_>, steps: &mut u32) -> Option<()>;
}

/// Statistics of a worker's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Hits of the frame cache.
    pub frame_hits: u64,
    /// Hits of the exact-match cache.
    pub exact_hits: u64,
    /// Hits of megaflows found by a search of masks.
    pub megaflow_hits: u64,
    /// Packets that were translated.
    pub misses: u64,
    /// Those of `misses` that were decided by the shape of their frame, without the parser.
    pub plain: u64,
    /// Packets for which the cache was not used.
    pub bypassed: u64,
    /// Number of megaflows.
    pub entries: u64,
    /// Number of masks.
    pub masks: u64,
    /// Current limit on megaflows.
    pub limit: u64,
    /// Evicted megaflows.
    pub evictions: u64,
    /// Megaflows that were outdated and translated again.
    pub revalidations: u64,
    /// Outdated megaflows that were confirmed: the changes did not concern them.
    pub confirmations: u64,
    /// Packet-ins whose frames never arrived.
    pub captures_lost: u64,
    /// Megaflows in the frame cache.
    pub frames: u64,
    /// Attempts to derive a megaflow over frames from one over records.
    pub traces: u64,
    /// Those of `traces` that failed.
    pub untraceable: u64,
}

macro_rules! published {
    ($($field:ident),*) => {
        #[derive(Debug, Default)]
        struct Published { synced: AtomicU64, $($field: AtomicU64),* }
        impl Published {
            fn set(&self, stats: &CacheStats) {
                $(self.$field.store(stats.$field, Ordering::Relaxed);)*
            }
            fn get(&self) -> CacheStats {
                CacheStats { $($field: self.$field.load(Ordering::Relaxed)),* }
            }
        }
    };
}
published!(
    frame_hits,
    exact_hits,
    megaflow_hits,
    misses,
    plain,
    bypassed,
    entries,
    masks,
    limit,
    evictions,
    revalidations,
    confirmations,
    captures_lost,
    frames,
    traces,
    untraceable
);

/// State that the workers of a bridge share.
pub struct Pipeline {
    shared: Shared,
    program: Arc<ir::Program>,
    programs: RwLock<Option<Arc<dyn ProgramRunner>>>,
    use_: AtomicU8,
    /// The number of the latest request to flush counts. Each worker publishes the latest one that it has served.
    sync: AtomicU64,
    /// Advances when caches are to be emptied, before `sync` does.
    flush: AtomicU64,
    workers: Mutex<HashMap<usize, Arc<Published>>>,
    question: show::Question,
    this: std::sync::Weak<Pipeline>,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("vm", &self.shared.vm).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// The pipeline of a bridge's program.
    ///
    /// # Errors
    /// If a header action contains an operation that [`Vm`] does not support; the message names both.
    pub fn new(control: Arc<dyn Control>, program: &ir::Program) -> Result<Arc<Pipeline>, String> {
        let vm = Arc::new(Vm::new(program)?);
        let shared = Shared { control, vm, stations: Arc::new(Stations::default()) };
        let program = Arc::new(program.clone());
        Ok(Arc::new_cyclic(|this| Pipeline {
            shared,
            program,
            programs: RwLock::default(),
            use_: AtomicU8::new(CacheUse::Auto as u8),
            sync: AtomicU64::new(0),
            flush: AtomicU64::new(0),
            workers: Mutex::default(),
            question: show::Question::default(),
            this: this.clone(),
        }))
    }

    /// What translations share; for [`crate::trace::trace`].
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The MAC table of `NORMAL`.
    pub fn stations(&self) -> &Stations {
        &self.shared.stations
    }

    /// Sets the runner of programs.
    pub fn set_programs(&self, programs: Option<Arc<dyn ProgramRunner>>) {
        *self.programs.write().unwrap_or_else(PoisonError::into_inner) = programs;
    }

    /// Sets when the cache is used.
    pub fn set_use(&self, use_: CacheUse) {
        self.use_.store(use_ as u8, Ordering::Relaxed);
    }

    /// When the cache is used.
    pub fn cache_use(&self) -> CacheUse {
        CacheUse::from_u8(self.use_.load(Ordering::Relaxed))
    }

    /// Requests workers to flush their counts. Returns a request number for [`Pipeline::is_synced`].
    pub fn request_counts(&self) -> u64 {
        self.sync.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Requests workers to remove all megaflows. Returns a request number for [`Pipeline::is_synced`].
    pub fn request_flush(&self) -> u64 {
        self.flush.fetch_add(1, Ordering::AcqRel);
        self.request_counts()
    }

    /// Whether all workers have served this request.
    pub fn is_synced(&self, request: u64) -> bool {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.values().all(|worker| worker.synced.load(Ordering::Acquire) >= request)
    }

    /// Requests workers to flush their counts, and waits for them at most `time`. Returns whether all did.
    pub fn sync_counts(&self, time: Duration) -> bool {
        let (request, begin) = (self.request_counts(), Instant::now());
        while !self.is_synced(request) {
            if begin.elapsed() >= time {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// The megaflows, by worker. Also returns whether the list is incomplete: it exceeds what was wanted, or a
    /// worker did not answer within `time`. `wake` wakes workers that wait for packets.
    pub fn megaflows(&self, wanted: Wanted, time: Duration, wake: &dyn Fn()) -> (Vec<Megaflow>, bool) {
        self.question.ask(wanted, || {
            let (request, begin) = (self.request_counts(), Instant::now());
            while !self.is_synced(request) {
                if begin.elapsed() >= time {
                    return false;
                }
                wake();
                std::thread::sleep(Duration::from_micros(200));
            }
            true
        })
    }

    /// Statistics of each worker's cache, by worker.
    pub fn stats(&self) -> Vec<(usize, CacheStats)> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats: Vec<_> = workers.iter().map(|(worker, published)| (*worker, published.get())).collect();
        stats.sort_unstable_by_key(|(worker, _)| *worker);
        stats
    }

    /// Makes the processor of a worker.
    pub fn worker(&self, worker: usize) -> Processor {
        let published = Arc::new(Published::default());
        published.synced.store(self.sync.load(Ordering::Acquire), Ordering::Release);
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.insert(worker, Arc::clone(&published));
        drop(workers);
        let layout = Arc::clone(self.shared.control.layout());
        Processor {
            pipeline: self.this.upgrade(),
            worker,
            runner: Runner::new(&layout, &self.shared.vm),
            shared: self.shared.clone(),
            cache: Cache::new(&layout),
            front: Front::new(&self.program, &layout),
            worth: Worth::default(),
            recent: Arc::clone(self.shared.control.recent()),
            seen: Seen::new(self.shared.control.recent()),
            admission: Admission::default(),
            plain: Plain::new(&layout),
            shapes: Shapes::new(&layout),
            admitted: 0,
            arrays: Arrays::default(),
            record: Vec::new(),
            plain_ns: PLAIN_NS,
            misses_timed: 0,
            dirty: Vec::new(),
            flushed_us: 0,
            emptied: self.flush.load(Ordering::Acquire),
            stats: CacheStats::default(),
            published,
            sweep: Sweep::default(),
            answer: show::Answer::default(),
            layout,
        }
    }
}

impl FlowTables for Pipeline {
    fn processor(&self, worker: usize) -> Box<dyn FlowProcessor> {
        Box::new(self.worker(worker))
    }
}

/// The state of a batch that is being processed.
struct Pass<'t, 'o> {
    control: &'t dyn Control,
    /// The read lock of the tables; released before anything is called that locks them.
    tables: Option<RwLockReadGuard<'t, Tables>>,
    generation: Generation,
    now_us: u64,
    outputs: &'o mut dyn Outputs,
    /// Whether the cache may take any amount of time ([`CacheUse::Always`]).
    is_unbounded: bool,
    /// Time that the batch spent on filling the caches.
    spent: Duration,
}

/// Progress of the sweep over all entries.
#[derive(Debug, Default)]
struct Sweep {
    next: usize,
    began_us: u64,
    /// Time spent since the sweep began.
    worked: Duration,
}

/// The flow processor of a worker.
pub struct Processor {
    pipeline: Option<Arc<Pipeline>>,
    worker: usize,
    shared: Shared,
    layout: Arc<Layout>,
    runner: Runner,
    cache: Cache,
    front: Option<Front>,
    worth: Worth,
    /// The log of changes, and what this worker knows of it.
    recent: Arc<Recent>,
    seen: Seen,
    admission: Admission,
    plain: Plain,
    shapes: Shapes,
    /// Packets that are to get megaflows and are on their way through the parser.
    admitted: usize,
    arrays: Arrays,
    /// A copy of a record.
    record: Vec<u64>,
    /// Cost of a miss, in ns: a moving average of samples.
    plain_ns: f64,
    misses_timed: u32,
    /// Entries with counts that have not been flushed.
    dirty: Vec<u32>,
    flushed_us: u64,
    /// The last [`Pipeline::request_flush`] that was served.
    emptied: u64,
    stats: CacheStats,
    published: Arc<Published>,
    sweep: Sweep,
    answer: show::Answer,
}

impl std::fmt::Debug for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processor").field("worker", &self.worker).field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Processor {
    /// The current generation of everything that megaflows depend on. `seen` has followed the log of changes up to
    /// it.
    fn generation(&mut self) -> Generation {
        let generation = Generation { tables: self.recent.generation(), stations: self.shared.stations.generation() };
        self.seen.follow(generation.tables);
        generation
    }

    /// Passes one packet through the cache. Renews the batch's generation if the tables may have changed meanwhile.
    fn through_cache(&mut self, packet: usize, arrival: &mut Arrival<'_>, pass: &mut Pass<'_, '_>) {
        let key = Packet { record: &*arrival.record, bytes: arrival.bytes, start: arrival.start };
        let was_admitted = self.admitted > 0;
        self.admitted -= usize::from(was_admitted);
        let mut hit = self.cache.lookup(key);
        let mut is_admitted = pass.is_unbounded;
        if hit.is_none() && !is_admitted {
            is_admitted = match was_admitted {
                true => self.admission.has_time(),
                false => self.admission.admits(self.cache.hash(key)),
            };
            if is_admitted {
                // With many masks this takes longer than a translation, so it is paid for as one is.
                let begin = Instant::now();
                hit = self.cache.search_others(key);
                pass.spent += begin.elapsed();
            }
        }
        if let Some(hit) = hit {
            let mut is_right = self.cache.get(hit.entry).is_some_and(|entry| entry.generation == pass.generation);
            if !is_right {
                is_right = self.cache.confirm(hit.entry, &self.seen, pass.generation) || {
                    pass.tables = None;
                    is_unchanged(&self.shared, &mut self.cache, hit.entry, pass.generation)
                };
                self.stats.confirmations += u64::from(is_right);
            }
            if is_right {
                if let Some(entry) = self.cache.get_mut(hit.entry)
                    && self.runner.run(&entry.effects, packet, arrival, pass.now_us, pass.outputs).is_ok()
                {
                    if entry.packets == 0 {
                        self.dirty.push(hit.entry);
                    }
                    self.cache.touch(hit.entry, 1, u64::from(arrival.bytes), pass.now_us);
                    self.make_known(hit.entry, arrival, pass);
                    if hit.is_exact {
                        self.stats.exact_hits += 1;
                    } else {
                        self.stats.megaflow_hits += 1;
                    }
                    return;
                }
                // The packet's TTL has expired. The megaflow still holds for other packets.
                self.stats.misses += 1;
                self.translate(packet, arrival, pass);
                pass.generation = self.generation();
                return;
            }
            self.stats.revalidations += 1;
            is_admitted |= self.admission.has_time();
            self.fold();
            pass.tables = None;
            if let Some(entry) = self.cache.remove(hit.entry) {
                settle(&self.shared, &mut self.front, entry);
            }
        }
        self.stats.misses += 1;
        if is_admitted {
            self.learn(packet, arrival, pass);
        } else {
            self.translate_plain(packet, arrival, pass);
        }
    }

    /// Translates a packet and caches the result.
    fn learn(&mut self, packet: usize, arrival: &mut Arrival<'_>, pass: &mut Pass<'_, '_>) {
        let begin = Instant::now();
        self.fold();
        let before = self.generation();
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.extend_from_slice(arrival.record);
        let translation = self.translate(packet, arrival, pass);
        if let Some(translation) = translation.filter(|translation| translation.is_repeatable) {
            let key = Packet { record: &record, bytes: arrival.bytes, start: arrival.start };
            let (shared, front) = (&self.shared, &mut self.front);
            self.cache.insert(key, translation, before, pass.now_us, &mut |gone| settle(shared, front, gone));
        }
        self.record = record;
        pass.generation = self.generation();
        pass.spent += begin.elapsed();
    }

    /// Translates one packet without caching the result.
    fn translate_plain(&mut self, packet: usize, arrival: &mut Arrival<'_>, pass: &mut Pass<'_, '_>) {
        self.misses_timed = self.misses_timed.wrapping_add(1);
        let begin = self.misses_timed.is_multiple_of(TIMED_INTERVAL).then(Instant::now);
        let tables = pass.tables.get_or_insert_with(|| pass.control.tables());
        let is_plain = self.plain.run(tables, packet, arrival, pass.now_us, pass.outputs);
        if !is_plain {
            self.translate(packet, arrival, pass);
            pass.generation = self.generation();
        }
        if let Some(begin) = begin {
            let ns = begin.elapsed().as_nanos() as f64;
            self.plain_ns += (ns.min(PLAIN_NS_MAX) - self.plain_ns) / PLAIN_SHARE;
        }
        if is_plain && !arrival.frame.is_empty() && self.shapes.is_due() {
            self.make_shape(arrival, pass);
        }
    }

    /// Makes a shape of a frame, if there is time and the frame cache is in use.
    fn make_shape(&mut self, arrival: &Arrival<'_>, pass: &mut Pass<'_, '_>) {
        let Some(front) = self.front.as_ref().filter(|front| front.len() > 0) else { return };
        if pass.is_unbounded || !self.admission.has_time() {
            return;
        }
        let begin = Instant::now();
        let tables = pass.tables.get_or_insert_with(|| pass.control.tables());
        self.shapes.follow(tables, self.recent.generation());
        self.shapes.make(front, arrival.frame, arrival.port);
        pass.spent += begin.elapsed();
    }

    /// Decides about frames that the frame cache does not know, if they have shapes and need no megaflows.
    #[cold]
    fn decide_plainly(&mut self, frames: &mut [Received<'_>], port: u32, now_us: u64) {
        let use_ = self.pipeline.as_ref().map_or(CacheUse::Auto, |pipeline| pipeline.cache_use());
        self.admitted = 0;
        if use_ != CacheUse::Auto || !self.shapes.is_used(now_us) {
            return;
        }
        let begin = Instant::now();
        let control = Arc::clone(&self.shared.control);
        let tables = control.tables();
        // Under the lock, so that no flow is overlooked that matches on further words.
        self.shapes.follow(&tables, self.recent.generation());
        let (plain, admission, admitted) = (&mut self.plain, &mut self.admission, &mut self.admitted);
        let mut decided = 0;
        self.shapes.decide(frames, port, now_us, &mut |record, hash, bytes| {
            if admission.admits(hash) {
                *admitted += 1;
                return None;
            }
            let verdict = plain.decide(&tables, record, bytes, now_us)?;
            decided += 1;
            Some(verdict)
        });
        plain.settle(&tables);
        self.stats.misses += decided;
        self.stats.plain += decided;
        self.admission.earn(begin.elapsed());
    }

    /// Adds a megaflow over frames to the frame cache, derived from the cache entry `at`.
    fn make_known(&mut self, at: u32, arrival: &Arrival<'_>, pass: &mut Pass<'_, '_>) {
        let Some(front) = &mut self.front else { return };
        if arrival.start != 0 || arrival.frame.is_empty() || self.cache.get(at).is_none_or(|entry| entry.is_untraceable)
        {
            return;
        }
        let has_time = if pass.is_unbounded { front.has_time(pass.now_us) } else { self.admission.has_time() };
        if !has_time {
            return;
        }
        pass.tables = None;
        // Insertion may evict others; their counts are added before.
        self.fold();
        let (Some(front), Some(mask)) = (&mut self.front, self.cache.mask_of(at).cloned()) else { return };
        let mut gone = |known: Known| debug_assert!(known.packets == 0, "counts are lost");
        if let Some(entry) = self.cache.get_mut(at) {
            let frame = (arrival.frame, arrival.port);
            pass.spent += front.learn(frame, &mask, (at, entry), pass.generation, pass.now_us, &mut gone);
        }
    }

    /// Adds the frame cache's counts to the megaflows that its entries were derived from. To be called before any
    /// of these is removed or replaced.
    fn fold(&mut self) {
        let Some(front) = &mut self.front else { return };
        let (cache, dirty) = (&mut self.cache, &mut self.dirty);
        front.fold(|known| {
            let entry = cache.get_mut(known.entry).filter(|entry| entry.serial == known.serial);
            debug_assert!(entry.is_some(), "counts are lost");
            let Some(entry) = entry else { return };
            if entry.packets == 0 {
                dirty.push(known.entry);
            }
            cache.touch(known.entry, known.packets, known.bytes, known.used_us);
        });
    }

    /// Translates one packet and runs its effects. Returns the translation, or `None` if it must not be cached.
    fn translate(&mut self, packet: usize, arrival: &mut Arrival<'_>, pass: &mut Pass<'_, '_>) -> Option<Translation> {
        pass.tables = None;
        let (now_us, outputs) = (pass.now_us, &mut *pass.outputs);
        let work = outputs.work_left(packet);
        let subject = Subject { record: &*arrival.record, bytes: arrival.bytes, start: arrival.start, now_us, work };
        let translation = translate(&self.shared, subject, &mut self.arrays);
        outputs.spend(packet, translation.work);
        let bytes = arrival.bytes;
        let is_refused = translation.is_too_much;
        if is_refused {
            outputs.refuse(packet);
        }
        let is_over = !is_refused && self.runner.run(&translation.effects, packet, arrival, now_us, outputs).is_err();
        if is_over {
            // This translation looked at the packet's own TTL, so this cannot happen. Nothing has been sent yet.
            debug_assert!(false, "a translation is not its packet's");
            outputs.end(packet, true);
        }
        add_counts(&translation.effects, 1, u64::from(bytes), now_us);
        let tables = self.shared.control.tables();
        add_lookups(&tables, &translation.effects, 1);
        drop(tables);
        (!is_over && !is_refused).then_some(translation)
    }

    /// Adds the counts that were held back to flows, and renews learned flows.
    fn flush(&mut self, now_us: u64) {
        self.flushed_us = now_us;
        self.fold();
        let mut renewals = Vec::new();
        {
            let tables = self.shared.control.tables();
            for at in self.dirty.drain(..) {
                let Some(entry) = self.cache.get_mut(at) else { continue };
                if entry.packets == 0 {
                    continue;
                }
                add_counts(&entry.effects, entry.packets, entry.bytes, entry.used_us);
                add_lookups(&tables, &entry.effects, entry.packets);
                Cache::settle(entry);
                let is_due = now_us.saturating_sub(entry.renewed_us) >= RENEW_US;
                if is_due && entry.effects.learned.iter().any(|learned| learned.request.timeouts.hard != 0) {
                    entry.renewed_us = now_us;
                    let hard = entry.effects.learned.iter().filter(|learned| learned.request.timeouts.hard != 0);
                    renewals.extend(hard.map(|learned| learned.request.clone()));
                }
            }
        }
        for request in renewals {
            // If this is refused, the flow expires.
            let _ = self.shared.control.learn(&request);
        }
        self.publish();
    }

    /// Publishes statistics for [`Pipeline::stats`].
    pub(crate) fn publish(&mut self) {
        self.stats.entries = self.cache.len() as u64;
        self.stats.masks = self.cache.masks() as u64;
        self.stats.limit = self.cache.limit() as u64;
        self.stats.evictions = self.cache.evictions;
        self.stats.captures_lost = self.runner.captures.lost;
        if let Some(front) = &self.front {
            self.stats.frame_hits = front.hits;
            self.stats.frames = front.len() as u64;
            (self.stats.traces, self.stats.untraceable) = (front.traces, front.failures);
        }
        self.published.set(&self.stats);
    }

    /// Serves what is due: flushes of counts, and requests of other threads.
    fn keep_up(&mut self, now_us: u64) {
        let asked = self.pipeline.as_ref().map_or(0, |pipeline| pipeline.sync.load(Ordering::Acquire));
        let is_asked = self.published.synced.load(Ordering::Relaxed) != asked;
        let flush = self.pipeline.as_ref().map_or(0, |pipeline| pipeline.flush.load(Ordering::Acquire));
        if self.emptied != flush {
            self.emptied = flush;
            self.empty();
        }
        if is_asked || now_us.saturating_sub(self.flushed_us) >= FLUSH_US {
            self.flush(now_us);
            let mut answers = |pipeline: &Arc<Pipeline>| {
                self.answer.go_on(&pipeline.question, self.worker, &self.cache, &self.layout)
            };
            if !is_asked || self.pipeline.as_ref().is_none_or(&mut answers) {
                self.published.synced.store(asked, Ordering::Release);
            }
        }
    }

    /// Removes all megaflows.
    fn empty(&mut self) {
        self.fold();
        if let Some(front) = &mut self.front {
            front.clear();
        }
        let (shared, front) = (&self.shared, &mut self.front);
        self.cache.clear(&mut |gone| settle(shared, front, gone));
    }

    /// Visits some entries: removes idle ones, and revalidates outdated ones.
    fn sweep(&mut self, now_us: u64) {
        let begin = Instant::now();
        let generation = self.generation();
        for _ in 0..SWEEP {
            if self.sweep.next >= self.cache.slots() {
                let sweep_us = self.sweep.worked.as_micros() as u64;
                if self.sweep.next > 0 {
                    self.cache.adapt(sweep_us);
                }
                self.sweep = Sweep { next: 0, began_us: now_us, worked: begin.elapsed() };
                return;
            }
            if self.sweep.next == 0 && now_us.saturating_sub(self.sweep.began_us) < FLUSH_US {
                // Sweeps are not needed more often.
                return;
            }
            let at = self.sweep.next as u32;
            self.sweep.next += 1;
            let Some(entry) = self.cache.get_mut(at) else { continue };
            Cache::age(entry);
            let is_idle = now_us.saturating_sub(entry.used_us) >= IDLE_US;
            let is_outdated = entry.generation != generation;
            if is_idle {
                self.end(at);
            } else if is_outdated {
                let is_right = self.cache.confirm(at, &self.seen, generation)
                    || is_unchanged(&self.shared, &mut self.cache, at, generation);
                self.stats.confirmations += u64::from(is_right);
                if !is_right {
                    self.revalidate(at, generation, now_us);
                }
            }
            if begin.elapsed() >= IDLE_TIME {
                break;
            }
        }
        self.sweep.worked += begin.elapsed();
    }

    fn end(&mut self, at: u32) {
        self.fold();
        if let Some(entry) = self.cache.remove(at) {
            settle(&self.shared, &mut self.front, entry);
        }
    }

    /// Translates an outdated entry again and replaces its effects. If the new translation consults bits outside
    /// the entry's mask, or would learn flows or addresses, the entry is removed instead: its next packet makes a
    /// new one.
    fn revalidate(&mut self, at: u32, generation: Generation, now_us: u64) {
        self.stats.revalidations += 1;
        self.fold();
        let learns = self.cache.get(at).is_none_or(|e| !e.effects.learned.is_empty() || !e.effects.stations.is_empty());
        let example = self.cache.example(at, self.layout.words(), &mut self.record);
        let (false, Some((bytes, start))) = (learns, example) else { return self.end(at) };
        if start != 0 && !matches!(self.shared.control.pending().take(start), Some(Begin::Frozen(_))) {
            return self.end(at);
        }
        let subject = Subject { record: &self.record, bytes, start, now_us, work: IDLE_WORK };
        let translation = crate::translate::dry(&self.shared, subject, &mut self.arrays);
        if translation.would_learn || !translation.is_repeatable || !self.cache.covers(at, &translation) {
            return self.end(at);
        }
        if let Some(entry) = self.cache.get_mut_anew(at) {
            if let Some(front) = &mut self.front {
                front.forget(entry);
            }
            // The counts so far belong to the former flows.
            let before = std::mem::replace(&mut entry.effects, translation.effects);
            add_counts(&before, entry.packets, entry.bytes, entry.used_us);
            let tables = self.shared.control.tables();
            add_lookups(&tables, &before, entry.packets);
            Cache::settle(entry);
            entry.dependences = translation.dependences;
            (entry.written, entry.finds_flows) = (translation.written, translation.finds_flows);
            entry.generation = generation;
        }
    }
}

/// Whether nothing that an entry depends on has changed. If so, the entry is marked as valid at `generation`.
fn is_unchanged(shared: &Shared, cache: &mut Cache, at: u32, generation: Generation) -> bool {
    let Some(entry) = cache.get_mut(at) else { return false };
    let tables = shared.control.tables();
    let is_same = entry.dependences.iter().all(|(on, was)| on.generation(&tables, &shared.stations) == *was);
    if is_same {
        entry.generation = generation;
    }
    is_same
}

/// Finishes a removed entry: adds its counts to flows, and removes what the frame cache derived from it. The frame
/// cache's counts must have been added before ([`Processor::fold`]).
fn settle(shared: &Shared, front: &mut Option<Front>, mut entry: Entry) {
    if let Some(front) = front {
        front.forget(&mut entry);
    }
    if entry.packets > 0 {
        add_counts(&entry.effects, entry.packets, entry.bytes, entry.used_us);
        add_lookups(&shared.control.tables(), &entry.effects, entry.packets);
    }
}

fn add_lookups(tables: &Tables, effects: &Effects, packets: u64) {
    for (table, lookups, matches) in &effects.tables {
        let table = tables.table(*table);
        table.lookups.fetch_add(packets * u64::from(*lookups), Ordering::Relaxed);
        table.matches.fetch_add(packets * u64::from(*matches), Ordering::Relaxed);
    }
}

impl FrameCache for Processor {
    fn is_used(&mut self, now_us: u64) -> bool {
        let use_ = self.pipeline.as_ref().map_or(CacheUse::Auto, |pipeline| pipeline.cache_use());
        let Some(front) = self.front.as_mut().filter(|_| use_ != CacheUse::Never) else { return false };
        front.set_thrifty(use_ == CacheUse::Auto);
        front.is_worth(now_us)
    }

    fn decide(&mut self, frames: &mut [Received<'_>], port: u32, now_us: u64) {
        let generation = self.generation();
        let (shared, cache, dirty, seen) = (&self.shared, &mut self.cache, &mut self.dirty, &self.seen);
        let Some(front) = &mut self.front else { return };
        let confirmations = &mut self.stats.confirmations;
        let known = front.decide(frames, port, now_us, generation, &mut |known| {
            let at = known.entry;
            let Some(entry) = cache.get(at).filter(|entry| entry.serial == known.serial) else {
                debug_assert!(known.packets == 0, "counts are lost");
                return State::Gone;
            };
            let is_current = entry.generation == generation;
            if is_current || cache.confirm(at, seen, generation) || is_unchanged(shared, cache, at, generation) {
                *confirmations += u64::from(!is_current);
                known.generation = generation;
                return State::Right;
            }
            if known.packets > 0 {
                dirty.push(known.entry);
                cache.touch(known.entry, known.packets, known.bytes, known.used_us);
                known.packets = 0;
            }
            State::Gone
        });
        if known < frames.len() {
            self.decide_plainly(frames, port, now_us);
        }
    }
}

impl FlowProcessor for Processor {
    fn front(&mut self) -> Option<&mut dyn FrameCache> {
        Some(self)
    }

    fn process(&mut self, batch: &mut [Arrival<'_>], now_us: u64, outputs: &mut dyn Outputs) {
        self.shared.control.pending().tick(now_us);
        let use_ = self.pipeline.as_ref().map_or(CacheUse::Auto, |pipeline| pipeline.cache_use());
        let is_used = self.worth.is_used(use_);
        let begin = Instant::now();
        let control = Arc::clone(&self.shared.control);
        let is_unbounded = use_ == CacheUse::Always;
        self.cache.set_gain(if is_unbounded { u64::MAX } else { (self.plain_ns / MASK_NS) as u64 });
        let generation = self.generation();
        let spent = Duration::ZERO;
        let mut pass = Pass { control: &*control, tables: None, generation, now_us, outputs, is_unbounded, spent };
        for (packet, arrival) in batch.iter_mut().enumerate() {
            if is_used {
                self.through_cache(packet, arrival, &mut pass);
            } else {
                self.stats.bypassed += 1;
                self.translate_plain(packet, arrival, &mut pass);
            }
        }
        if !self.plain.is_settled() {
            self.plain.settle(pass.tables.get_or_insert_with(|| control.tables()));
        }
        let spent = pass.spent;
        drop(pass);
        let took = begin.elapsed();
        self.admission.spend(spent);
        self.admission.earn(took.saturating_sub(spent));
        self.worth.took(batch.len(), took.saturating_sub(spent), is_used);
        self.keep_up(now_us);
    }

    fn capture(&mut self, token: u64, frame: &[u8]) {
        let Some(captured) = self.runner.captures.take(token) else { return };
        let what = &captured.what;
        let len = if what.max_len == u16::MAX { frame.len() } else { frame.len().min(usize::from(what.max_len)) };
        // Of a table miss, each connection truncates the frame itself: to its own `miss_send_len`.
        let len = if what.is_miss { frame.len() } else { len };
        self.shared.control.packet_in(PacketInEvent {
            controller: what.controller,
            max_len: what.max_len,
            is_miss: what.is_miss,
            in_port: captured.in_port,
            packet: PacketIn {
                total_len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
                reason: what.reason,
                table: what.table,
                cookie: what.cookie,
                fields: captured.fields,
                frame: frame[..len].to_vec(),
                userdata: what.userdata.clone(),
                continuation: what.continuation.clone(),
            },
        });
    }

    fn rewrite(&mut self, start: u64, frame: &mut Frame<'_>, steps: &mut u32) -> Option<()> {
        let Some(Begin::Frozen(frozen)) = self.shared.control.pending().take(start) else { return None };
        let (id, argument) = frozen.program?;
        let programs = self.pipeline.as_ref()?.programs.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        programs.run(id, argument, frozen.in_port, frame, steps)
    }

    fn idle(&mut self, now_us: u64) {
        self.shared.control.pending().tick(now_us);
        self.shared.stations.expire(now_us);
        self.sweep(now_us);
        self.keep_up(now_us);
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.empty();
        self.publish();
        self.published.synced.store(u64::MAX, Ordering::Release);
    }
}

//! The flow cache of a program with tables: megaflows over received frames that replace the pipeline, parser included
//! (crate `flowcache`).
//!
//! ```text
//! worker   frames ─▶ Front ─┬─ hit, not stale ───▶ rewrite, count with the path ─▶ port
//!                           └─ other ─▶ pipeline,   and copies of some ─┐        ▲
//! tracer                                                  samples ◀─────┘        │ found
//!                         Contents (entries, changes) ─▶ trace ─▶ Path ──────────┘
//! ```
//!
//! No packet waits for the tracer, a thread of the pipeline. Paths whose effects cannot be cached (registers, meters,
//! clones, digests, idle timeouts, tables that packets write) stay with the pipeline, path by path, and so do
//! programs whose packets wait in queues; [`FlowCache::refusals`] lists the reasons.
//!
//! **Stale paths.** A path records the change count of each table that it looked up. Writers advance these counts,
//! and one for all tables, before any part of a change becomes visible (`tables::Domain::changes`), so before the
//! change is acknowledged. After receiving, each batch compares the common count, and the tables' counts if it
//! differs.
//!
//! **Counts** of hits are accumulated and added to counters after the batch in which 64 ms have passed, a table has
//! changed, or the control plane asks ([`FlowCache::settle`]). This happens before the worker's quiescent point, so
//! that no cell can have been reused for another entry.
//!
//! | file | holds |
//! | --- | --- |
//! | `front.rs` | a worker's cache, single-threaded |
//! | `tracer.rs`, `contents.rs`, `masks.rs` | the tracer thread, its snapshots of tables, masks shared by megaflows |
//! | `path.rs` | a path's effects on counters, and the changes that make it stale |
//! | `worth.rs` | whether the cache is worth its cost |
//!
//! Tests: `tests/flow_cache.rs`; every program of the tree in `crates/difftest/src/round.rs`.

mod contents;
mod front;
mod masks;
mod path;
mod tracer;
mod worth;

use crate::state::FastState;
use abi::flows::{CacheUse, FrameCache};
use flowcache::path::WINDOW;
use front::Front;
use path::Found;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracer::{TracerThread, Work};

/// Most frames that wait for the tracer, per worker.
const SAMPLES_MAX: usize = 64;
/// Most distinct refusal reasons that are counted.
const REFUSALS_MAX: usize = 64;

/// Statistics of one worker's cache.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CacheStats {
    /// Frames found by the exact-match front.
    pub front_hits: u64,
    /// Frames found by a search over masks.
    pub mask_hits: u64,
    /// Packets handled by a cached path.
    pub hits: u64,
    /// Packets looked up in the cache that went through the pipeline.
    pub misses: u64,
    /// Packets sent through the pipeline for comparison.
    pub bypassed: u64,
    /// Megaflows in the cache.
    pub megaflows: u64,
    /// Distinct masks.
    pub masks: u64,
    /// Most megaflows.
    pub limit: u64,
    /// Megaflows evicted to make room.
    pub evictions: u64,
    /// Stale megaflows that were traced again.
    pub revalidations: u64,
    /// Whether the cache was found worth its cost and is used for all packets.
    pub is_on: bool,
    /// Time stamp counter ticks per packet without and with the cache, as last compared.
    pub ticks: (Option<f64>, Option<f64>),
}

/// A copied frame for the tracer.
struct Sample {
    port: u32,
    len: u32,
    /// The stale megaflow that it matched, if any.
    replaces: Option<u32>,
    head: [u8; WINDOW],
}

impl Sample {
    fn new(frame: &[u8], port: u32, replaces: Option<u32>) -> Sample {
        let mut head = [0; WINDOW];
        let len = frame.len().min(WINDOW);
        head[..len].copy_from_slice(&frame[..len]);
        Sample { port, len: frame.len() as u32, replaces, head }
    }
}

/// The buffer of frames that wait for the tracer.
struct Samples(Vec<Sample>);

impl Samples {
    fn room(&self) -> usize {
        SAMPLES_MAX.saturating_sub(self.0.len())
    }

    fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }
}

/// State shared by one worker, the tracer and the control plane.
struct Exchange {
    samples: Mutex<Samples>,
    found: Mutex<Vec<Found>>,
    has_found: AtomicBool,
    /// Whether the worker holds back counts.
    holds: AtomicBool,
    /// The last value of [`Shared::sync`] that the worker has answered.
    synced: AtomicU64,
    stats: Mutex<CacheStats>,
}

/// State shared by all workers, the tracer and the control plane.
struct Shared {
    fast: Arc<FastState>,
    use_: AtomicU8,
    /// Set while the pipeline is watched: all packets go through it then.
    is_watched: AtomicBool,
    /// The number of the last request to add pending counts; workers publish the last one that they have answered.
    sync: AtomicU64,
    /// Advanced when all megaflows are to be removed, before `sync` is.
    flush: AtomicU64,
    workers: Mutex<Vec<(usize, Arc<Exchange>)>>,
    refusals: Mutex<BTreeMap<String, u64>>,
    traced: AtomicU64,
    /// The tracer's working state; created on first use.
    work: Mutex<Option<Box<Work>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    #[inline]
    fn cache_use(&self) -> CacheUse {
        match self.is_watched.load(Ordering::Relaxed) {
            true => CacheUse::Never,
            false => CacheUse::from_u8(self.use_.load(Ordering::Relaxed)),
        }
    }

    fn join(&self, worker: usize) -> Arc<Exchange> {
        let exchange = Arc::new(Exchange {
            samples: Mutex::new(Samples(Vec::with_capacity(SAMPLES_MAX))),
            found: Mutex::default(),
            has_found: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            synced: AtomicU64::new(self.sync.load(Ordering::Acquire)),
            stats: Mutex::default(),
        });
        let mut workers = lock(&self.workers);
        workers.retain(|(other, _)| *other != worker);
        workers.push((worker, Arc::clone(&exchange)));
        exchange
    }

    fn leave(&self, exchange: &Arc<Exchange>) {
        lock(&self.workers).retain(|(_, other)| !Arc::ptr_eq(other, exchange));
    }

    fn note_refusal(&self, why: String) {
        let mut refusals = lock(&self.refusals);
        if refusals.len() < REFUSALS_MAX || refusals.contains_key(&why) {
            *refusals.entry(why).or_default() += 1;
        }
    }
}

/// The flow cache of a pipeline.
pub struct FlowCache {
    shared: Arc<Shared>,
    tracer: Mutex<Option<TracerThread>>,
}

impl std::fmt::Debug for FlowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowCache").field("use", &self.cache_use()).finish_non_exhaustive()
    }
}

impl FlowCache {
    /// A flow cache that is not in use.
    pub(crate) fn new(fast: Arc<FastState>) -> FlowCache {
        let shared = Shared {
            fast,
            use_: AtomicU8::new(CacheUse::Never as u8),
            is_watched: AtomicBool::new(false),
            sync: AtomicU64::new(0),
            flush: AtomicU64::new(0),
            workers: Mutex::default(),
            refusals: Mutex::default(),
            traced: AtomicU64::new(0),
            work: Mutex::default(),
        };
        FlowCache { shared: Arc::new(shared), tracer: Mutex::default() }
    }

    /// Sets when the cache is used.
    ///
    /// # Errors
    /// If the tracer thread cannot be started; the setting is unchanged then.
    pub fn set_use(&self, use_: CacheUse) -> std::io::Result<()> {
        let mut tracer = lock(&self.tracer);
        match use_ {
            CacheUse::Never => *tracer = None,
            _ if tracer.is_none() => *tracer = Some(TracerThread::start(Arc::clone(&self.shared))?),
            _ => {}
        }
        self.shared.use_.store(use_ as u8, Ordering::Relaxed);
        Ok(())
    }

    /// When the cache is used.
    pub fn cache_use(&self) -> CacheUse {
        CacheUse::from_u8(self.shared.use_.load(Ordering::Relaxed))
    }

    /// Bypasses the cache while the pipeline is watched.
    pub(crate) fn watch(&self, on: bool) {
        self.shared.is_watched.store(on, Ordering::Relaxed);
    }

    /// The cache of a worker.
    pub(crate) fn front(&self, worker: usize) -> Box<dyn FrameCache> {
        Box::new(Front::new(Arc::clone(&self.shared), worker))
    }

    /// Makes workers add the counts of all packets that have left before this call, and waits at most `time` for it.
    /// Returns whether all have.
    pub fn settle(&self, time: Duration) -> bool {
        let workers = lock(&self.shared.workers).clone();
        if workers.iter().all(|(_, exchange)| !exchange.holds.load(Ordering::Acquire)) {
            return true;
        }
        let asked = self.shared.sync.fetch_add(1, Ordering::AcqRel) + 1;
        let begin = Instant::now();
        let is_settled = |exchange: &Exchange| {
            !exchange.holds.load(Ordering::Acquire) || exchange.synced.load(Ordering::Acquire) >= asked
        };
        while !workers.iter().all(|(_, exchange)| is_settled(exchange)) {
            if begin.elapsed() >= time {
                return false;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        true
    }

    /// Makes workers remove all megaflows before their next packets.
    pub fn flush(&self) {
        self.shared.flush.fetch_add(1, Ordering::AcqRel);
        self.shared.sync.fetch_add(1, Ordering::AcqRel);
    }

    /// Traces all waiting frames before it returns; returns how many became paths. For tests and measurements, which
    /// need not wait for the thread then.
    pub fn trace_waiting(&self) -> usize {
        let mut work = lock(&self.shared.work);
        work.get_or_insert_with(|| Box::new(Work::new(&self.shared))).round(&self.shared).1
    }

    /// The statistics of all workers, as (worker, statistics).
    pub fn stats(&self) -> Vec<(usize, CacheStats)> {
        let workers = lock(&self.shared.workers);
        let mut stats: Vec<_> = workers.iter().map(|(worker, exchange)| (*worker, *lock(&exchange.stats))).collect();
        stats.sort_unstable_by_key(|(worker, _)| *worker);
        stats
    }

    /// How many frames became paths.
    pub fn traced(&self) -> u64 {
        self.shared.traced.load(Ordering::Relaxed)
    }

    /// Why frames did not become paths, with the number of frames per reason.
    pub fn refusals(&self) -> Vec<(String, u64)> {
        lock(&self.shared.refusals).iter().map(|(why, count)| (why.clone(), *count)).collect()
    }
}

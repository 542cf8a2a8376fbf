//! The flow cache of a program with tables: what its pipeline does with received frames, known before they are parsed (crate
//! `flowcache`).
//!
//! ```text
//! worker   frames ─▶ Front ─┬─ hit, still right ─▶ rewrite, count with the path ─▶ port
//!                           └─ other ─▶ pipeline,   and copies of some ─┐        ▲
//! tracer                                                  samples ◀─────┘        │ found
//!                         Contents (entries, changes) ─▶ trace ─▶ Path ──────────┘
//! ```
//!
//! Nothing of a packet waits for the tracer, a thread of the pipeline. What programs do that no path says (registers, meters, clones,
//! digests, idle timeouts, tables that packets write) stays with the pipeline, path by path, and so does a program whose packets wait in
//! queues; [`FlowCache::refusals`] lists why.
//!
//! **Stale paths.** A path keeps how often each table that it has asked had been changed. Writers advance these numbers, and one for all
//! tables, before anything of a change can be seen (`tables::Domain::changes`), so before it is acknowledged. A batch compares the one
//! number when it has been received, and the others where it differs.
//!
//! **Counts** that hits owe are added behind the batch in which 64 ms are over, a table was changed, or somebody asks
//! ([`FlowCache::settle`]): while the worker is not yet quiescent, so that no cell has become another entry's.
//!
//! | file | holds |
//! | --- | --- |
//! | `front.rs` | a worker's cache, single-threaded |
//! | `tracer.rs`, `contents.rs`, `masks.rs` | the thread, tables' entries for it, masks that megaflows share |
//! | `path.rs` | what packets of a path count, and until when it is right |
//! | `worth.rs` | whether it pays |
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

/// Frames that wait for the tracer at most, of each worker.
const SAMPLES_MAX: usize = 64;
/// Reasons that are kept apart at most.
const REFUSALS_MAX: usize = 64;

/// A worker's cache in numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CacheStats {
    /// Frames that the exact-match front found.
    pub front_hits: u64,
    /// Frames that were found by a search of masks.
    pub mask_hits: u64,
    /// Packets that went as a path says.
    pub hits: u64,
    /// Packets that were shown to the cache and went through the pipeline.
    pub misses: u64,
    /// Packets that went through the pipeline to be compared with.
    pub bypassed: u64,
    /// Megaflows.
    pub megaflows: u64,
    /// Their masks.
    pub masks: u64,
    /// Most megaflows there may be.
    pub limit: u64,
    /// Megaflows that made room.
    pub evictions: u64,
    /// Packets of which the megaflow was not right any more and was traced again.
    pub revalidations: u64,
    /// Whether it has been found to pay, and is used for all packets.
    pub is_on: bool,
    /// Ticks of the processor's clock for a packet without the cache, and with it, as last compared.
    pub ticks: (Option<f64>, Option<f64>),
}

/// A frame for the tracer.
struct Sample {
    port: u32,
    len: u32,
    /// The megaflow that it has met, which is not right any more.
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

/// Frames that wait for the tracer.
struct Samples(Vec<Sample>);

impl Samples {
    fn room(&self) -> usize {
        SAMPLES_MAX.saturating_sub(self.0.len())
    }

    fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }
}

/// What a worker has in common with the tracer and the control plane.
struct Exchange {
    samples: Mutex<Samples>,
    found: Mutex<Vec<Found>>,
    has_found: AtomicBool,
    /// Whether hits have not been counted.
    holds: AtomicBool,
    /// The last [`Shared::sync`] that was followed.
    synced: AtomicU64,
    stats: Mutex<CacheStats>,
}

/// What workers, the tracer and the control plane share.
struct Shared {
    fast: Arc<FastState>,
    use_: AtomicU8,
    /// While somebody watches the pipeline, packets go through it.
    is_watched: AtomicBool,
    /// The number of the last request to add pending counts; workers publish the last one that they have answered.
    sync: AtomicU64,
    /// Grows when megaflows are to be forgotten; before `sync` does.
    flush: AtomicU64,
    workers: Mutex<Vec<(usize, Arc<Exchange>)>>,
    refusals: Mutex<BTreeMap<String, u64>>,
    traced: AtomicU64,
    /// What traces; there from the first time on.
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
    /// One that is not used.
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

    /// Sets when it is used.
    ///
    /// # Errors
    /// If there is no thread to be had that traces packets; it is not used then.
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

    /// When it is used.
    pub fn cache_use(&self) -> CacheUse {
        CacheUse::from_u8(self.shared.use_.load(Ordering::Relaxed))
    }

    /// Whether packets go through the pipeline all the same, since somebody watches it.
    pub(crate) fn watch(&self, on: bool) {
        self.shared.is_watched.store(on, Ordering::Relaxed);
    }

    /// What a worker asks about frames.
    pub(crate) fn front(&self, worker: usize) -> Box<dyn FrameCache> {
        Box::new(Front::new(Arc::clone(&self.shared), worker))
    }

    /// Has workers count all hits of packets that have left before this call; waits for that, for so long at most. Whether all have.
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

    /// Has workers forget all megaflows, before the next packets.
    pub fn flush(&self) {
        self.shared.flush.fetch_add(1, Ordering::AcqRel);
        self.shared.sync.fetch_add(1, Ordering::AcqRel);
    }

    /// Traces the frames that wait for it, before it returns; how many became paths. For tests and measurements, which do not want to
    /// wait for the thread.
    pub fn trace_waiting(&self) -> usize {
        let mut work = lock(&self.shared.work);
        work.get_or_insert_with(|| Box::new(Work::new(&self.shared))).round(&self.shared).1
    }

    /// Workers' caches, by worker.
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

    /// Why frames did not, and how many.
    pub fn refusals(&self) -> Vec<(String, u64)> {
        lock(&self.shared.refusals).iter().map(|(why, count)| (why.clone(), *count)).collect()
    }
}

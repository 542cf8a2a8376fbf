//! The profiler: while someone watches, the switch counts actions and samples how many cycles each part of the
//! program takes.
//!
//! It costs nothing when nobody is watching. A watcher says for how long it watches
//! ([`Switch::watch`](crate::Switch::watch)); each call extends the time, and watching ends when it is over.
//! Meanwhile
//!
//! - every pipeline runs code that counts the actions of its lookups (`tiers/counting.rs`): exact counts, from the
//!   time such code runs;
//! - a timer interrupts every worker a thousand times a second, and five times as often if it is rarely in the
//!   program (`watch/sampler.rs`). The interrupted part of the program is assigned a share of the cycles that the
//!   worker's counters report. This is an estimate that improves with time: for a part that takes a tenth of the
//!   time, the standard error is about 1 % of the total after a second, 0.3 % after ten.
//!
//! Threads: one of its own while someone watches, which collects samples every [`TICK`]. Tests: `tests/watch.rs`, and
//! those of the sampler beside it.

mod sampler;

pub(crate) use sampler::Samples;

use crate::pipeline::{Pipeline, Spot};
use crate::worker::{WorkerCounters, WorkerLoad};
use sampler::{PERIOD, SHORT_PERIOD, Timer};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two collections of samples.
const TICK: Duration = Duration::from_millis(100);

/// The cycles of a part of a program while it was watched.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionCycles {
    /// The program's device.
    pub device: u64,
    /// The part's name, as in `jit::Location::region`: `table:I.dst`, `action:I.forward`, `state:P.start`, ...
    pub region: String,
    /// The number of samples in it.
    pub samples: u64,
    /// Estimated cycles of all workers together.
    pub cycles: f64,
}

/// Everything measured since the switch started.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Watched {
    /// Whether someone is watching now.
    pub now: bool,
    /// The number of samples of all workers, including those outside programs.
    pub samples: u64,
    /// Sorted by device and name.
    pub regions: Vec<RegionCycles>,
}

/// Returns the running pipelines, by device.
pub(crate) type Pipelines = dyn Fn() -> Vec<(u64, Arc<Pipeline>)> + Send + Sync;

#[derive(Default)]
struct State {
    /// When watching ends, and the thread with it; `None` if nobody watches.
    until: Option<Instant>,
    stop: bool,
    thread: Option<JoinHandle<()>>,
    samples: u64,
    regions: BTreeMap<(u64, String), (u64, f64)>,
}

struct Shared {
    workers: Vec<(Arc<Samples>, Arc<WorkerCounters>)>,
    pipelines: Box<Pipelines>,
    state: Mutex<State>,
    /// Signalled to stop the thread.
    stopped: Condvar,
}

/// The profiler's handle; owns its thread.
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    pub(crate) fn new(workers: Vec<(Arc<Samples>, Arc<WorkerCounters>)>, pipelines: Box<Pipelines>) -> Watch {
        Watch { shared: Arc::new(Shared { workers, pipelines, state: Mutex::default(), stopped: Condvar::new() }) }
    }

    /// Watches for `time` from now on, or until the end of an earlier call if that is later.
    pub(crate) fn watch(&self, time: Duration) {
        let mut state = self.shared.lock();
        let now = Instant::now();
        // Capped at ten years, so that adding it does not overflow.
        let until = now + time.min(Duration::from_secs(10 * 365 * 86400));
        let runs = state.until.is_some();
        state.until = Some(state.until.map_or(until, |before| before.max(until)));
        if runs {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let body = move || shared.run();
        match std::thread::Builder::new().name("watch".into()).spawn(body) {
            // An earlier thread has ended: it clears `until` under the lock.
            Ok(thread) => state.thread = Some(thread),
            Err(error) => {
                state.until = None;
                tracing::warn!("nobody can watch: {error}");
            }
        }
    }

    pub(crate) fn read(&self) -> Watched {
        let state = self.shared.lock();
        let region = |((device, region), (samples, cycles)): (&(u64, String), &(u64, f64))| RegionCycles {
            device: *device,
            region: region.clone(),
            samples: *samples,
            cycles: *cycles,
        };
        Watched {
            now: state.until.is_some(),
            samples: state.samples,
            regions: state.regions.iter().map(region).collect(),
        }
    }
}

impl Drop for Watch {
    /// Runs before the workers end: a timer must not outlive the thread that it interrupts.
    fn drop(&mut self) {
        let thread = {
            let mut state = self.shared.lock();
            state.stop = true;
            self.shared.stopped.notify_all();
            state.thread.take()
        };
        // A panic has been reported already.
        thread.map(JoinHandle::join);
    }
}

/// What has been collected from a worker.
struct Taken {
    /// The sampling timer; `None` before the worker's thread has started, and if refused.
    timer: Option<Timer>,
    /// The system refused to create a timer.
    refused: bool,
    next: u64,
    load: WorkerLoad,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's body.
    fn run(&self) {
        let mut workers: Vec<Taken> = Vec::new();
        loop {
            // Includes pipelines that were started since the last round.
            let pipelines = (self.pipelines)();
            pipelines.iter().for_each(|(_, pipeline)| pipeline.watch(true));
            if workers.is_empty() {
                workers = self.workers.iter().map(Taken::begin).collect();
            }
            for (worker, taken) in self.workers.iter().zip(&mut workers) {
                self.take(worker, taken, &pipelines);
            }
            let state = self.lock();
            let (mut state, _) = self.stopped.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner);
            if state.stop || state.until.is_none_or(|until| Instant::now() >= until) {
                drop(workers);
                // Under the lock, so that the next watcher starts after this.
                if !state.stop {
                    (self.pipelines)().iter().for_each(|(_, pipeline)| pipeline.watch(false));
                }
                state.until = None;
                return;
            }
        }
    }

    /// Assigns a worker's cycles since the last call to the parts of programs.
    fn take(
        &self,
        (samples, counters): &(Arc<Samples>, Arc<WorkerCounters>),
        taken: &mut Taken,
        of: &[(u64, Arc<Pipeline>)],
    ) {
        taken.start(samples);
        let (spots, next) = samples.drain(taken.next);
        let load = counters.read();
        let cycles = load.total_cycles().saturating_sub(taken.load.total_cycles());
        let in_program = load.pipeline_cycles.saturating_sub(taken.load.pipeline_cycles);
        let is_seldom = load.packets > taken.load.packets && in_program < cycles / 5;
        if let Some(timer) = &mut taken.timer {
            // If this fails, the timer keeps its period.
            let _ = timer.set_period(if is_seldom { SHORT_PERIOD } else { PERIOD });
        }
        (taken.next, taken.load) = (next, load);
        if spots.is_empty() {
            return;
        }
        let each = cycles as f64 / spots.len() as f64;
        let mut found: Vec<(u64, String)> = Vec::new();
        let mut left: Vec<Spot> = spots.clone();
        for (device, pipeline) in of {
            let regions = pipeline.regions(&left);
            let mut rest = Vec::new();
            for (spot, region) in left.into_iter().zip(regions) {
                match region {
                    Some(region) => found.push((*device, region)),
                    None => rest.push(spot),
                }
            }
            left = rest;
        }
        let mut state = self.lock();
        state.samples += spots.len() as u64;
        for key in found {
            let (samples, sum) = state.regions.entry(key).or_default();
            *samples += 1;
            *sum += each;
        }
    }
}

impl Taken {
    fn begin((samples, counters): &(Arc<Samples>, Arc<WorkerCounters>)) -> Taken {
        Taken { timer: None, refused: false, next: samples.written(), load: counters.read() }
    }

    /// Creates the timer once the worker's thread has started.
    fn start(&mut self, samples: &Arc<Samples>) {
        if self.timer.is_some() || self.refused || !samples.has_begun() {
            return;
        }
        match Timer::start(samples) {
            Ok(timer) => self.timer = Some(timer),
            Err(error) => {
                self.refused = true;
                tracing::warn!("a worker cannot be sampled: {error}");
            }
        }
    }
}

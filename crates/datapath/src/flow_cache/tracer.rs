//! The tracer thread, which turns sampled frames into paths.
//!
//! It polls for samples: often after there were some, rarely otherwise. While hardly any frame becomes a path it
//! polls less often, so traffic that cannot be cached costs next to nothing. Snapshots of tables are freed after a
//! while without samples.

use super::contents::Contents;
use super::masks::Masks;
use super::path::{AllLookups, Found, Path};
use super::{Exchange, SAMPLES_MAX, Sample, Samples, Shared, lock};
use flowcache::path::{Pattern, WINDOW};
use flowcache::run::Prepared;
use flowcache::trace::{Tracer, Untraceable};
use heartbeat::Heartbeat;
use ir::Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Shortest and longest pause between polls.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));
/// Longest pause while frames do not become paths.
const PAUSE_REFUSED: Duration = Duration::from_millis(200);
/// A round that takes longer counts as stuck.
const ROUND_MAX: Duration = Duration::from_secs(60);
/// Time without samples after which snapshots of tables are freed.
const QUIET: Duration = Duration::from_secs(30);
/// Most paths that wait for a worker to take them over.
const FOUND_MAX: usize = 4096;
/// Longest frame that is traced, in bytes, whatever a sample says.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// The handle of the thread. Dropping it ends the thread within a pause or after the trace in progress.
pub(super) struct TracerThread {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl TracerThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<TracerThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || run(&shared, &stopped);
        let handle = std::thread::Builder::new().name("flow-cache".into()).spawn(body)?;
        Ok(TracerThread { stop, thread: handle.thread().clone() })
    }
}

impl Drop for TracerThread {
    /// Does not wait for the thread: the last owner of a pipeline may be a worker.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// The tracer's working state.
pub(super) struct Work {
    program: Arc<Program>,
    tracer: Tracer,
    contents: Contents,
    masks: Masks,
    lookups: AllLookups,
    frame: Vec<u8>,
}

fn run(shared: &Shared, stop: &AtomicBool) {
    let heart = Heartbeat::not_vital("flow-cache", ROUND_MAX);
    let mut pause = PAUSE.1;
    let mut last = Some(Instant::now());
    loop {
        heart.beat();
        std::thread::park_timeout(pause);
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut work = lock(&shared.work);
        let work = work.get_or_insert_with(|| Box::new(Work::new(shared)));
        let (samples, paths) = work.round(shared);
        pause = match (samples, paths) {
            (0, _) => (pause * 2).min(PAUSE.1),
            (_, 0) => (pause * 2).min(PAUSE_REFUSED),
            _ => PAUSE.0,
        };
        if samples > 0 {
            last = Some(Instant::now());
        } else if last.is_some_and(|last| last.elapsed() >= QUIET) {
            work.contents.clear();
            last = None;
        }
    }
}

impl Work {
    pub(super) fn new(shared: &Shared) -> Work {
        Work {
            program: Arc::clone(shared.fast.program()),
            tracer: Tracer::new(Arc::clone(shared.fast.program())),
            contents: Contents::new(Arc::clone(&shared.fast)),
            masks: Masks::default(),
            lookups: AllLookups::default(),
            frame: Vec::new(),
        }
    }

    /// Traces all waiting samples; returns how many there were, and how many became paths.
    pub(super) fn round(&mut self, shared: &Shared) -> (usize, usize) {
        let workers = lock(&shared.workers).clone();
        workers.iter().fold((0, 0), |(samples, paths), (_, exchange)| {
            let (more_samples, more_paths) = self.serve(shared, exchange);
            (samples + more_samples, paths + more_paths)
        })
    }

    /// Traces the waiting samples of a worker; returns how many there were, and how many became paths.
    fn serve(&mut self, shared: &Shared, exchange: &Exchange) -> (usize, usize) {
        let samples = {
            let mut samples = lock(&exchange.samples);
            if samples.0.is_empty() {
                return (0, 0);
            }
            std::mem::replace(&mut *samples, Samples(Vec::with_capacity(SAMPLES_MAX)))
        };
        if lock(&exchange.found).len() >= FOUND_MAX {
            return (0, 0);
        }
        let mut all: Vec<Found> = Vec::new();
        for sample in &samples.0 {
            if all.iter().any(|found| found.port == sample.port && covers(&found.pattern, sample)) {
                continue;
            }
            match self.trace(sample) {
                Ok(found) => all.push(found),
                Err(Untraceable(why)) => shared.note_refusal(why),
            }
        }
        let paths = all.len();
        shared.traced.fetch_add(paths as u64, Ordering::Relaxed);
        if paths > 0 {
            lock(&exchange.found).append(&mut all);
            exchange.has_found.store(true, Ordering::Release);
        }
        (samples.0.len(), paths)
    }

    fn trace(&mut self, sample: &Sample) -> Result<Found, Untraceable> {
        let len = (sample.len as usize).min(FRAME_BYTES_MAX);
        self.frame.clear();
        self.frame.extend_from_slice(&sample.head[..len.min(WINDOW)]);
        // Bytes beyond the window decide no path.
        self.frame.resize(len, 0);
        self.contents.begin_trace();
        let handed_over =
            &mut |_: &mut flowcache::trace::Run<'_>| Err(Untraceable("it is copied or goes round".to_string()));
        let traced = self.tracer.trace_with(&self.frame, sample.port, Some(&mut self.contents), handed_over);
        let mut traced = match (traced, self.contents.take_refused()) {
            (Ok(traced), None) => traced,
            (_, Some(why)) => return Err(Untraceable(why)),
            (Err(why), None) => return Err(why),
        };
        self.masks.share(&mut traced.pattern, &sample.head);
        let rewrite = Prepared::new(&traced.rewrite)
            .map_err(|why| Untraceable(format!("its rewriting is refused (please report this): {why}")))?;
        let lookups = self.lookups.of(self.contents.lookups());
        let lookups =
            lookups.ok_or_else(|| Untraceable("tables hit and miss in too many different ways".to_string()))?;
        let path = Path::new(&self.program, &traced, lookups, self.contents.relied()).map_err(|counter| {
            Untraceable(format!("counter {} counts bytes of frames that are cut", counter.index()))
        })?;
        let path = Arc::new(path);
        Ok(Found { port: sample.port, pattern: traced.pattern, rewrite, path, replaces: sample.replaces })
    }
}

/// Whether a sampled frame matches a path's pattern.
fn covers(pattern: &Pattern, sample: &Sample) -> bool {
    (pattern.shortest..=pattern.longest).contains(&sample.len)
        && pattern.mask.iter().zip(&pattern.value).zip(&sample.head).all(|((mask, value), byte)| byte & mask == *value)
}

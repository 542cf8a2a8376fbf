//! A thread that starts threads.
//!
//! Starting a thread maps its stack. That waits for other changes of the process's mappings, and some of these wait for
//! peers (the `mmap` in the SIGBUS handler, for example). So a worker sends a job to the spawner and continues.
//! Besides, the new threads inherit the CPU affinity of the thread that opened the first port, and not that of a
//! worker, which may have a processor to itself. While the process cannot have more threads, the spawner retries.
//!
//! Threads: any may send jobs; one spawner for all ports. Tests: `tests.rs`, through queues.

use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(100);

/// A thread to be started.
pub(super) struct Job {
    pub name: String,
    /// Set when the thread is no longer wanted.
    pub stops: Arc<AtomicBool>,
    pub run: Box<dyn FnOnce() + Send>,
}

static JOBS: OnceLock<Sender<Job>> = OnceLock::new();

/// A value that a dedicated thread keeps until it ends, such as its registration as a user of a buffer pool.
pub type Registration = Box<dyn Any>;

static REGISTER: OnceLock<fn() -> Option<Registration>> = OnceLock::new();

/// Makes each dedicated thread that is started from now on call `register` first and keep the result until it ends.
/// Only the first call in a process has an effect.
pub fn register_threads(register: fn() -> Option<Registration>) {
    let _ = REGISTER.set(register);
}

/// Starts the spawner unless it runs. To be called on a thread that may block.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn prepare() -> io::Result<()> {
    if JOBS.get().is_some() {
        return Ok(());
    }
    let (sender, jobs) = channel();
    Builder::new().name("spawner".into()).spawn(move || spawn_all(&jobs))?;
    // If two threads do this at once, one of the spawners ends, since its sender is dropped.
    let _ = JOBS.set(sender);
    Ok(())
}

/// Sends a job to the spawner.
///
/// # Errors
/// No spawner runs; the job is returned.
pub(super) fn leave(job: Job) -> Result<(), Job> {
    match JOBS.get() {
        Some(jobs) => jobs.send(job).map_err(|job| job.0),
        None => Err(job),
    }
}

/// The spawner: starts each job, and those that failed again after [`RETRY`], so that none waits for another.
fn spawn_all(jobs: &Receiver<Job>) {
    let mut failed: Vec<Job> = Vec::new();
    loop {
        let next = if failed.is_empty() { jobs.recv().ok() } else { jobs.recv_timeout(RETRY).ok() };
        if next.is_none() && failed.is_empty() {
            return;
        }
        let first_try = next.into_iter().filter_map(|job| start(job).err());
        let retried = std::mem::take(&mut failed);
        failed.extend(first_try.map(|(job, error)| {
            tracing::warn!("thread `{}` cannot be started, so its port passes no packets: {error}", job.name);
            job
        }));
        failed.extend(retried.into_iter().filter_map(|job| start(job).err()).map(|(job, _)| job));
    }
}

/// Starts a thread unless it is no longer wanted.
fn start(Job { name, stops, run }: Job) -> Result<(), (Job, io::Error)> {
    if stops.load(Ordering::Acquire) {
        return Ok(());
    }
    // A `spawn` that fails drops its closure and all that it owns, so the job is kept outside.
    let slot = Arc::new(Mutex::new(Some(run)));
    let taker = Arc::clone(&slot);
    let take =
        |slot: &Mutex<Option<Box<dyn FnOnce() + Send>>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let started = Builder::new().name(name.clone()).spawn(move || {
        if let Some(run) = take(&taker) {
            let _registration = REGISTER.get().and_then(|register| register());
            run();
        }
    });
    let Err(error) = started else { return Ok(()) };
    take(&slot).map_or(Ok(()), |run| Err((Job { name, stops, run }, error)))
}

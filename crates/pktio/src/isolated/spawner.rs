//! A thread that starts threads.
//!
//! Starting one maps its stack, which waits for other changes of the process's mappings; some of those wait for peers (the SIGBUS
//! handler's, say). So workers leave a job and go on. It also gives the new threads the processors of whoever opened the
//! first port, where a worker may have one for itself. While the process can have no more threads, it is tried again.
//!
//! Threads: any; one for all ports. Tests: `tests.rs`, through queues.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(100);

/// What a new thread is to do.
pub(super) struct Job {
    pub name: String,
    /// Nobody wants it any more.
    pub stops: Arc<AtomicBool>,
    pub run: Box<dyn FnOnce() + Send>,
}

static JOBS: OnceLock<Sender<Job>> = OnceLock::new();

/// Starts the thread, unless it runs. To be called on a thread that may wait.
pub(super) fn prepare() -> io::Result<()> {
    if JOBS.get().is_some() {
        return Ok(());
    }
    let (sender, jobs) = channel();
    Builder::new().name("spawner".into()).spawn(move || jobs.into_iter().for_each(start))?;
    // If two came at once, one of the threads ends, for nobody has its sender.
    let _ = JOBS.set(sender);
    Ok(())
}

/// Has a job done, soon; gives it back if nothing is prepared.
pub(super) fn leave(job: Job) -> Result<(), Job> {
    match JOBS.get() {
        Some(jobs) => jobs.send(job).map_err(|job| job.0),
        None => Err(job),
    }
}

fn start(Job { name, stops, run }: Job) {
    // A closure that is not started is dropped with what it owns, so the job waits outside.
    let slot = Arc::new(Mutex::new(Some(run)));
    let mut is_told = false;
    while !stops.load(Ordering::Acquire) {
        let slot = Arc::clone(&slot);
        let take = move || slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let started = Builder::new().name(name.clone()).spawn(move || {
            if let Some(run) = take() {
                run();
            }
        });
        let Err(error) = started else { return };
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!("thread `{name}` cannot be started, so its port stands still: {error}");
        }
        std::thread::sleep(RETRY);
    }
}

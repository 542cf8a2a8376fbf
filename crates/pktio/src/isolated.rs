//! Isolation of ports from workers: a dedicated thread, instead of a worker, accesses the memory of a peer that can
//! block its readers.
//!
//! ```text
//!               ┌ Direct:  queue.rx, queue.tx ─────────────────────────────┐
//!   worker ─────┤                                                          ├── the peer's memory
//!               └ Isolated: two rings of packets ── thread: queue.rx, tx ──┘
//! ```
//!
//! A page fault in shared memory blocks while the peer punches a hole around the page or truncates the file: for 0.1 to
//! 0.4 seconds of the peer's processor time per gigabyte of ordinary pages, which the peer can stretch as it likes. No
//! check beforehand can prevent this, since the peer can begin at any moment. A blocked worker serves none of its
//! ports; a blocked dedicated thread affects one queue of one port. The price is a hand-over between two threads for
//! each burst. So a worker serves a queue until the peer has held up a worker. A port stays isolated until it is closed,
//! since its peer could do it again at once.
//!
//! A thread that is held up may wait with the process's memory map locked. So a port whose peer is not trusted gets a
//! process of its own (`pktio-process`), which runs the same loop ([`serve`]).
//!
//! [`shared_memory::Overdue`], which the loops over a peer's buffers check, bounds how often a peer can hold up one
//! call. [`watch`] decides which calls were held up.
//!
//! | file | holds |
//! | --- | --- |
//! | `watch` | detects calls of a worker that were held up |
//! | `thread` | a queue's dedicated thread, and the rings between it and the worker |
//! | `serving` | the loop that serves a queue on a worker's behalf |
//! | `spawner` | starts these threads, since starting a thread could block a worker |
//! | `port` | the state that all of these share |
//!
//! Threads: the device on control, queues on workers, one thread per isolated queue. Tests: `isolated/tests.rs`; row
//! `guests` of `bench/trust`.

mod port;
mod serving;
mod spawner;
mod thread;
mod watch;

use crate::clock::{ticks, ticks_per_second};
use crate::device::{Device, LinkState, MacAddress, PortStats, Queue};
use crate::error::Error;
use crate::packet::Packet;
use crate::pool::PoolRef;
use crate::wait::Wake;
use port::Port;
pub use serving::{Exchange, serve};
use spawner::Job;
pub use spawner::register_threads;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thread::Isolated;
pub use thread::RING_MAX as ISOLATED_RING_MAX;
use watch::Watch;

struct GuardedDevice {
    /// `None` once it is being closed.
    inner: Option<Box<dyn Device>>,
    port: Arc<Port>,
    /// The queues, until they are taken.
    ready: Vec<Box<dyn Queue>>,
}

/// Wraps a device so that dedicated threads serve its queues once its peer has held up a worker.
///
/// # Errors
/// The thread that starts the others cannot be started.
pub fn guard(inner: Box<dyn Device>) -> Result<Box<dyn Device>, Error> {
    guard_from(inner, false)
}

/// As [`guard`]; from the start if `isolates` says so.
fn guard_from(mut inner: Box<dyn Device>, isolates: bool) -> Result<Box<dyn Device>, Error> {
    let refuse = |reason: String| Error::Device { device: inner.name().to_owned(), reason };
    spawner::prepare()
        .and_then(|()| shared_memory::start_monitor())
        .map_err(|error| refuse(format!("no thread is left to serve it: {error}")))?;
    let port = Arc::new(Port::new(inner.name(), inner.queue_count(), isolates));
    let queues = inner.take_queues().into_iter().enumerate();
    let guarded = queues.map(|(index, queue)| Box::new(GuardedQueue::new(queue, Arc::clone(&port), index)));
    let ready = guarded.map(|queue| queue as Box<dyn Queue>).collect();
    Ok(Box::new(GuardedDevice { inner: Some(inner), port, ready }))
}

impl GuardedDevice {
    fn inner(&self) -> &dyn Device {
        self.inner.as_deref().expect("it is not being closed")
    }
}

impl Drop for GuardedDevice {
    /// Closes the device. If a queue's thread was left behind, a thread of its own does so: the device's own thread may
    /// wait for a lock that the queue's thread holds.
    fn drop(&mut self) {
        self.ready.clear();
        let Some(inner) = self.inner.take() else { return };
        if !self.port.has_left_threads.load(Ordering::Relaxed) {
            return drop(inner);
        }
        let job = Job { name: "close".to_owned(), stops: Arc::default(), run: Box::new(move || drop(inner)) };
        // Without a spawner no queue would have had a thread.
        let left = spawner::leave(job);
        debug_assert!(left.is_ok(), "nobody starts threads");
    }
}

impl Device for GuardedDevice {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn kind(&self) -> &'static str {
        self.inner().kind()
    }

    fn queue_count(&self) -> u16 {
        self.inner().queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        std::mem::take(&mut self.ready)
    }

    fn pool(&self) -> PoolRef {
        self.inner().pool()
    }

    fn link(&self) -> LinkState {
        self.inner().link()
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.inner().stats();
        self.port.counters.iter().for_each(|counters| stats += counters.read());
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        self.inner().mac()
    }

    fn mtu(&self) -> u16 {
        self.inner().mtu()
    }

    fn note(&self) -> Option<String> {
        self.inner().note().or_else(|| self.port.note())
    }

    fn at_end(&self) -> bool {
        self.inner().at_end()
    }
}

/// Which thread calls the inner queue.
enum Served {
    /// The worker.
    Direct(Box<dyn Queue>),
    /// A dedicated thread.
    Isolated(Isolated),
    /// None: the queue is being moved to its thread.
    Moving,
}

struct GuardedQueue {
    served: Served,
    port: Arc<Port>,
    index: usize,
    watch: Watch,
    /// Time in ticks before which isolation is not attempted again.
    retry_at: u64,
}

impl GuardedQueue {
    fn new(queue: Box<dyn Queue>, port: Arc<Port>, index: usize) -> GuardedQueue {
        GuardedQueue { served: Served::Direct(queue), port, index, watch: Watch::new(), retry_at: 0 }
    }

    /// Moves the queue to a dedicated thread. Returns whether it has one; if no eventfd can be created, the worker
    /// continues to serve it.
    #[cold]
    fn isolate(&mut self) -> bool {
        self.served = match std::mem::replace(&mut self.served, Served::Moving) {
            Served::Direct(queue) => match Isolated::start(&self.port, self.index, queue) {
                Ok(isolated) => Served::Isolated(isolated),
                Err(queue) => Served::Direct(queue),
            },
            other => other,
        };
        matches!(self.served, Served::Isolated(_))
    }

    /// Isolates this queue if another queue of the port was held up: both have the same peer and may share a ring.
    #[inline]
    fn follow(&mut self) {
        if self.port.isolates.load(Ordering::Relaxed) && matches!(self.served, Served::Direct(_)) {
            self.try_to_isolate();
        }
    }

    /// Isolates the queue, at most ten times a second while no eventfd can be created.
    #[cold]
    fn try_to_isolate(&mut self) {
        let now = ticks();
        if now >= self.retry_at {
            self.isolate();
            self.retry_at = now + (ticks_per_second() / 10.0) as u64;
        }
    }

    #[cold]
    fn held_up(&mut self, time: Duration) {
        self.port.held_up(time);
        self.try_to_isolate();
    }
}

impl Queue for GuardedQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.follow();
        match &mut self.served {
            Served::Direct(queue) => {
                let call = self.watch.begin();
                let count = queue.rx(out, max);
                if let Some(time) = self.watch.end(call) {
                    self.held_up(time);
                }
                count
            }
            Served::Isolated(isolated) => isolated.rx(out, max),
            Served::Moving => 0,
        }
    }

    #[inline]
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        self.follow();
        match &mut self.served {
            Served::Direct(queue) => {
                let call = self.watch.begin();
                let count = queue.tx(packets);
                if let Some(time) = self.watch.end(call) {
                    self.held_up(time);
                }
                count
            }
            Served::Isolated(isolated) => isolated.tx(packets),
            Served::Moving => 0,
        }
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        self.follow();
        match &mut self.served {
            Served::Direct(queue) => {
                let call = self.watch.begin();
                let wake = queue.arm(files);
                let Some(time) = self.watch.end(call) else { return wake };
                self.held_up(time);
                // The queue may belong to its thread now, whose events no longer wake the worker.
                Wake::Now
            }
            Served::Isolated(isolated) => isolated.arm(files),
            Served::Moving => Wake::Poll,
        }
    }

    fn disarm(&mut self) {
        self.follow();
        match &mut self.served {
            Served::Direct(queue) => {
                let call = self.watch.begin();
                queue.disarm();
                if let Some(time) = self.watch.end(call) {
                    self.held_up(time);
                }
            }
            Served::Isolated(isolated) => isolated.disarm(),
            Served::Moving => {}
        }
    }
}

#[cfg(test)]
mod tests;

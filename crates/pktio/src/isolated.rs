//! Ports whose peer can hold up whoever touches its memory: a thread of the port's own does so instead of a worker.
//!
//! ```text
//!               ┌ Direct:  queue.rx, queue.tx ─────────────────────────────┐
//!   worker ─────┤                                                          ├── the peer's memory
//!               └ Isolated: two rings of packets ── thread: queue.rx, tx ──┘
//! ```
//!
//! A page fault in memory that a peer shares waits in the kernel for as long as the peer punches a hole around the page or
//! truncates the file: a fifth of a second for each gigabyte of ordinary pages. No check beforehand avoids that, since the
//! peer can begin at any moment. A worker that waits stops all ports that it serves; a thread that serves one queue of one port
//! stops that one. The price is a hand-over between two threads for each burst, so a queue is served by its worker
//! until its peer has held one up ([`Isolation::OnceHeldUp`]), or never ([`Isolation::Always`]) where peers are not trusted
//! at all. A port stays isolated until it is closed, since its peer could do it again at once.
//!
//! How often a peer can do so in one call is bounded by [`shared_memory::Overdue`], which the loops over its buffers ask. What
//! counts as held up is [`watch`]'s.
//!
//! | file | holds |
//! | --- | --- |
//! | `watch` | which calls of a worker were held up |
//! | `thread` | the thread of a queue, and the rings between it and the worker |
//! | `spawner` | starts these threads: a worker's own call for that could wait as well |
//! | `port` | what all of these share |
//!
//! Threads: device on control, queues on workers, one thread for each isolated queue. Tests: `isolated/tests.rs`; row `guests` of
//! `bench/trust`.

mod port;
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
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thread::Isolated;
use watch::Watch;

/// When a queue is served by a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// From the start.
    Always,
    /// From when its peer has held up a worker.
    OnceHeldUp,
}

struct GuardedDevice {
    inner: Box<dyn Device>,
    port: Arc<Port>,
    /// Queues that run already.
    ready: Vec<Box<dyn Queue>>,
}

/// The same port, whose queues are served by threads of their own when `isolation` says so.
///
/// # Errors
/// The process can have no further thread, or no eventfd for queues that are to be isolated from the start.
pub fn guard(mut inner: Box<dyn Device>, isolation: Isolation) -> Result<Box<dyn Device>, Error> {
    let refuse = |reason: String| Error::Device { device: inner.name().to_owned(), reason };
    spawner::prepare().map_err(|error| refuse(format!("no thread is left to serve it: {error}")))?;
    let port = Arc::new(Port::new(inner.name(), inner.queue_count(), isolation == Isolation::Always));
    let mut ready: Vec<Box<dyn Queue>> = Vec::new();
    for (index, queue) in inner.take_queues().into_iter().enumerate() {
        let mut queue = GuardedQueue::new(queue, Arc::clone(&port), index);
        if isolation == Isolation::Always && !queue.isolate() {
            let reason = "no file is left for `isolated`".to_owned();
            return Err(Error::Device { device: port.name.clone(), reason });
        }
        ready.push(Box::new(queue));
    }
    Ok(Box::new(GuardedDevice { inner, port, ready }))
}

impl Device for GuardedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn queue_count(&self) -> u16 {
        self.inner.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        std::mem::take(&mut self.ready)
    }

    fn pool(&self) -> PoolRef {
        self.inner.pool()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.inner.stats();
        self.port.counters.iter().for_each(|counters| stats += counters.read());
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        self.inner.mac()
    }

    fn mtu(&self) -> u16 {
        self.inner.mtu()
    }

    fn note(&self) -> Option<String> {
        self.inner.note().or_else(|| self.port.note())
    }

    fn at_end(&self) -> bool {
        self.inner.at_end()
    }
}

/// Who calls the port's queue.
enum Served {
    /// The worker.
    Direct(Box<dyn Queue>),
    /// A thread of its own.
    Isolated(Isolated),
    /// Nobody: while the queue changes hands.
    Moving,
}

struct GuardedQueue {
    served: Served,
    port: Arc<Port>,
    index: usize,
    watch: Watch,
    /// In ticks: no thread is asked for before.
    retry_at: u64,
}

impl GuardedQueue {
    fn new(queue: Box<dyn Queue>, port: Arc<Port>, index: usize) -> GuardedQueue {
        GuardedQueue { served: Served::Direct(queue), port, index, watch: Watch::new(), retry_at: 0 }
    }

    /// Gives the queue to a thread of its own; whether it has one. Where no file is left its worker goes on with it.
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

    /// Follows the port's other queues, which have the same peer and may share a ring with this one.
    #[inline]
    fn follow(&mut self) {
        if self.port.isolates.load(Ordering::Relaxed) && matches!(self.served, Served::Direct(_)) {
            self.try_to_isolate();
        }
    }

    /// Ten times a second while there are no files.
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
                // What was to wake the worker may be the thread's now.
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

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
//! **Held up** is a worker whose call took longer than [`HELD_UP`] and that has waited in the kernel since the call began, or while
//! a peer took memory away ([`shared_memory::Waits`], [`shared_memory::damages`]). That another program had the processor is no wait
//! of the worker. What a worker had waited for before the call (its own sleep) is told apart by counting again after each pause.
//!
//! The rings are behind locks that are held for the move of a burst, never while the peer's memory is touched. Workers try
//! for them and do not wait. Threads: device on control, queues on workers, one thread for each isolated queue.
//! Tests: `isolated/tests.rs`, `pktio-vhost/tests/isolated.rs`.

mod port;
mod thread;

use crate::clock::{ticks, ticks_per_second};
use crate::device::{Device, LinkState, MacAddress, PortStats, Queue};
use crate::error::Error;
use crate::packet::Packet;
use crate::pool::PoolRef;
use crate::wait::Wake;
use port::Port;
use shared_memory::Waits;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thread::Isolated;

/// A call that takes longer, and in which the worker has waited, was held up: a burst takes some ten microseconds.
const HELD_UP: Duration = Duration::from_millis(1);

/// Between two calls of a worker that does not sleep passes less. After a longer time it may have slept.
const PAUSE: Duration = Duration::from_micros(60);

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
/// No thread or eventfd is left for queues that are to be isolated from the start.
pub fn guard(mut inner: Box<dyn Device>, isolation: Isolation) -> Result<Box<dyn Device>, Error> {
    let port = Arc::new(Port::new(inner.name(), inner.queue_count(), isolation == Isolation::Always));
    let mut ready: Vec<Box<dyn Queue>> = Vec::new();
    for (index, queue) in inner.take_queues().into_iter().enumerate() {
        let mut queue = GuardedQueue::new(queue, Arc::clone(&port), index);
        if isolation == Isolation::Always && !queue.isolate() {
            return Err(Error::Device { device: port.name.clone(), reason: "no thread is left for `isolated`".into() });
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
        let held_up_us = self.port.held_up_us.load(Ordering::Relaxed);
        let isolated = (held_up_us != 0).then(|| {
            let ms = held_up_us as f64 / 1e3;
            format!("its peer held a worker up for {ms:.0} ms, so a thread of its own serves the port until it is added anew")
        });
        self.inner.note().or(isolated)
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
}

impl GuardedQueue {
    fn new(queue: Box<dyn Queue>, port: Arc<Port>, index: usize) -> GuardedQueue {
        GuardedQueue { served: Served::Direct(queue), port, index, watch: Watch::new() }
    }

    /// Gives the queue to a thread of its own; whether it has one. Where no thread is left its worker goes on with it.
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

    /// A call by the worker that began at `start` is over.
    #[inline]
    fn look(&mut self, start: u64) {
        if let Some(held_up) = self.watch.end(start) {
            self.held_up(held_up);
        }
    }

    #[cold]
    fn held_up(&mut self, time: Duration) {
        self.port.held_up_us.fetch_max((time.as_micros() as u64).max(1), Ordering::Relaxed);
        // The port's other queues follow: they have the same peer, and may share a ring with this one.
        self.port.isolates.store(true, Ordering::Relaxed);
        self.isolate();
    }

    /// Whether the worker serves the queue no longer.
    #[inline]
    fn is_isolated(&mut self) -> bool {
        match self.served {
            Served::Isolated(_) => true,
            _ => self.port.isolates.load(Ordering::Relaxed) && self.watch.may_try_again() && self.isolate(),
        }
    }
}

impl Queue for GuardedQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.is_isolated();
        match &mut self.served {
            Served::Direct(queue) => {
                let start = self.watch.begin();
                let count = queue.rx(out, max);
                self.look(start);
                count
            }
            Served::Isolated(isolated) => isolated.rx(out, max),
            Served::Moving => 0,
        }
    }

    #[inline]
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        self.is_isolated();
        match &mut self.served {
            Served::Direct(queue) => {
                let start = self.watch.begin();
                let count = queue.tx(packets);
                self.look(start);
                count
            }
            Served::Isolated(isolated) => isolated.tx(packets),
            Served::Moving => 0,
        }
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        match &mut self.served {
            Served::Direct(queue) => {
                let start = self.watch.begin();
                let wake = queue.arm(files);
                self.look(start);
                // What it was to be woken by has another owner now.
                if matches!(self.served, Served::Isolated(_)) { Wake::Now } else { wake }
            }
            Served::Isolated(isolated) => isolated.arm(files),
            Served::Moving => Wake::Poll,
        }
    }

    fn disarm(&mut self) {
        match &mut self.served {
            Served::Direct(queue) => {
                let start = self.watch.begin();
                queue.disarm();
                self.look(start);
            }
            Served::Isolated(isolated) => isolated.disarm(),
            Served::Moving => {}
        }
    }
}

/// Tells calls in which the worker was held up from others. Costs two looks at the clock for a call, and a system call
/// after each pause.
struct Watch {
    /// Ticks.
    limit: u64,
    pause: u64,
    last_end: u64,
    counted_at: u64,
    waits: Waits,
    damages: u64,
    /// When no thread was left; until some time after that none is asked for.
    failed_at: Option<u64>,
}

impl Watch {
    fn new() -> Watch {
        let ticks_of = |time: Duration| (time.as_secs_f64() * ticks_per_second()) as u64;
        let (limit, pause) = (ticks_of(HELD_UP), ticks_of(PAUSE));
        Watch { limit, pause, last_end: 0, counted_at: 0, waits: Waits::now(), damages: 0, failed_at: None }
    }

    /// A call begins; when.
    #[inline]
    fn begin(&mut self) -> u64 {
        let now = ticks();
        self.damages = shared_memory::damages();
        if now.wrapping_sub(self.last_end) > self.pause || now.wrapping_sub(self.counted_at) > self.limit {
            self.count(now);
        }
        now
    }

    #[cold]
    fn count(&mut self, now: u64) {
        self.counted_at = now;
        self.waits = Waits::now();
    }

    /// The call is over: for how long the worker was held up, if it was.
    #[inline]
    fn end(&mut self, start: u64) -> Option<Duration> {
        self.last_end = ticks();
        let took = self.last_end.wrapping_sub(start);
        if took <= self.limit { None } else { self.judge(took) }
    }

    #[cold]
    fn judge(&mut self, took: u64) -> Option<Duration> {
        let has_waited = Waits::now().is_after_waiting_since(&self.waits);
        let is_damage = shared_memory::damages() != self.damages;
        (has_waited || is_damage).then(|| Duration::from_secs_f64(took as f64 / ticks_per_second()))
    }

    /// Whether enough time has passed since no thread was left.
    #[cold]
    fn may_try_again(&mut self) -> bool {
        let (now, wait) = (ticks(), (ticks_per_second() / 10.0) as u64);
        if self.failed_at.is_some_and(|at| now.wrapping_sub(at) < wait) {
            return false;
        }
        self.failed_at = Some(now);
        true
    }
}

#[cfg(test)]
mod tests;

//! A port in the switch: the worker's [`Queue`], the [`Device`], and the state that they share with the supervisor.
//!
//! Each process of the port comes with ring ends of its own. The supervisor leaves them where the queue's worker finds them
//! and advances the queue's generation; before its next burst the worker takes them and returns the old ones. Without a
//! process nothing is received, and nothing is taken. Neither side waits for the other: a worker that finds the lock taken
//! comes back later.
//!
//! A worker wakes a sleeping process through [`shared_memory::Notifier`], and sleeps itself on a
//! [`shared_memory::Watch`]: whoever takes the process over could make a read or write of a shared eventfd block.
//!
//! Counters: what was received is counted here, by the worker; all else is counted by the process, as it says. What was in
//! the rings when a process ended was dropped. A process can make its port's counters too large, and none smaller.
//!
//! Threads: as above. Tests: `tests/isolated.rs`.

use crate::channel::{Channel, of_words, words};
use crate::ring::{Buffers, Consumer, Fault, Producer};
use pktio::{Bell, Device, LinkState, MacAddress, Packet, PoolRef, PortStats, Queue, QueueCounters, Wake, free_bulk};
use shared_memory::{Caller, Watch};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What supervisor, device and queues share.
pub(crate) struct Port {
    /// The name that its user gave it.
    pub name: String,
    pub pool: PoolRef,
    pub queues: Box<[Shared]>,
    pub live: Mutex<Live>,
    /// Wakes processes' threads, by queue.
    pub caller: Caller,
    /// Wakes the supervisor.
    pub bell: Bell,
    pub stops: AtomicBool,
}

/// The current process.
#[derive(Default)]
pub(crate) struct Live {
    /// Its memory, while its port is open.
    channel: Option<Channel>,
    /// The largest values that it has told, so that no counter goes back, whatever it says.
    told: PortStats,
    /// Counters of the processes before it, and what was lost with them.
    before: PortStats,
    /// Why there is none.
    pub note: Option<String>,
}

impl Live {
    /// A process has opened the port.
    pub(crate) fn begin(&mut self, channel: Channel) {
        self.channel = Some(channel);
        self.note = None;
    }

    /// The process serves the port no more. Its counters stay.
    pub(crate) fn stop(&mut self) -> Option<Channel> {
        let channel = self.channel.take()?;
        self.look(&channel);
        Some(channel)
    }

    /// The process has ended, or is left behind: what it has counted after [`Live::stop`] is added.
    pub(crate) fn end(&mut self, channel: &Channel) {
        self.look(channel);
        let told = std::mem::take(&mut self.told);
        self.add(told);
    }

    /// Adds to the counters of the processes before.
    pub(crate) fn add(&mut self, more: PortStats) {
        self.before = sum(&self.before, &more);
    }

    fn look(&mut self, channel: &Channel) {
        let (told, now) = (words(&self.told), words(&channel.stats()));
        let told = of_words(std::array::from_fn(|i| told[i].max(now[i].min(COUNT_MAX))));
        // These are counted by the worker.
        self.told = PortStats { rx_packets: 0, rx_bytes: 0, ..told };
    }

    /// Counters of all processes. None is ever less than it was.
    fn stats(&mut self) -> PortStats {
        if let Some(channel) = self.channel.clone() {
            self.look(&channel);
        }
        sum(&self.before, &self.told)
    }

    fn is_up(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_up)
    }
}

/// The sum of counters. None exceeds [`COUNT_MAX`], whatever processes say, so further additions do not overflow.
fn sum(one: &PortStats, other: &PortStats) -> PortStats {
    let (one, other) = (words(one), words(other));
    of_words(std::array::from_fn(|i| one[i].saturating_add(other[i]).min(COUNT_MAX)))
}

/// A queue's state that its worker and the supervisor share.
pub(crate) struct Shared {
    pub counters: QueueCounters,
    /// Advanced when `handover` changes.
    generation: AtomicU32,
    handover: Mutex<Handover>,
    /// Rung when `handover` changes.
    bell: Bell,
}

#[derive(Default)]
struct Handover {
    next: Option<Ends>,
    old: Vec<Ends>,
    fault: Option<Fault>,
}

/// A queue's ends of a process's rings.
pub(crate) struct Ends {
    pub inward: Consumer,
    pub outward: Producer,
    /// The process signals its eventfd.
    pub watch: Watch,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is consistent after every statement, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new() -> std::io::Result<Shared> {
        let (counters, generation, handover) = (QueueCounters::default(), AtomicU32::new(0), Mutex::default());
        Ok(Shared { counters, generation, handover, bell: Bell::new()? })
    }

    /// Gives the queue its ends of a new process's rings, or none.
    pub(crate) fn hand_over(&self, next: Option<Ends>) {
        let mut handover = lock(&self.handover);
        let not_taken = std::mem::replace(&mut handover.next, next);
        handover.old.extend(not_taken);
        handover.fault = None;
        self.generation.fetch_add(1, Ordering::Release);
        drop(handover);
        self.bell.ring();
    }

    /// Takes back the ends that the worker no longer uses, and the fault that it has found.
    pub(crate) fn collect(&self) -> (Vec<Ends>, Option<Fault>) {
        let mut handover = lock(&self.handover);
        (std::mem::take(&mut handover.old), handover.fault.take())
    }
}

impl Port {
    /// Counters of all processes of this port.
    fn stats(&self) -> PortStats {
        let mut stats = lock(&self.live).stats();
        self.queues.iter().for_each(|queue| stats += queue.counters.read());
        stats
    }
}

/// More than a port can count in a century.
const COUNT_MAX: u64 = 1 << 62;

/// How long closing a port waits for its process. One that nobody holds up ends within milliseconds.
pub const CLOSE_MAX: Duration = Duration::from_millis(100);

/// A port with a running supervisor. The last holder stops it.
pub(crate) struct Running {
    pub port: Arc<Port>,
    thread: Option<JoinHandle<()>>,
    closed: Arc<Closed>,
}

/// Whether the supervisor has ended.
#[derive(Default)]
pub(crate) struct Closed {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Closed {
    /// The supervisor has ended.
    pub(crate) fn tell(&self) {
        *lock(&self.is) = true;
        self.changed.notify_all();
    }
}

impl Running {
    pub(crate) fn new(port: Arc<Port>, thread: JoinHandle<()>, closed: Arc<Closed>) -> Running {
        Running { port, thread: Some(thread), closed }
    }
}

impl Drop for Running {
    /// Ends the process. Returns after [`CLOSE_MAX`] at the latest; the socket's path is free then.
    fn drop(&mut self) {
        self.port.stops.store(true, Ordering::Release);
        self.port.bell.ring();
        let is = lock(&self.closed.is);
        let waited = self.closed.changed.wait_timeout_while(is, CLOSE_MAX, |is| !*is);
        let (is, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *is && let Some(thread) = self.thread.take() {
            drop(is);
            let _ = thread.join();
        }
    }
}

pub(crate) struct ProcessDevice {
    kind: &'static str,
    mtu: u16,
    running: Arc<Running>,
    queues_taken: bool,
}

impl ProcessDevice {
    pub(crate) fn new(kind: &'static str, mtu: u16, running: Running) -> ProcessDevice {
        ProcessDevice { kind, mtu, running: Arc::new(running), queues_taken: false }
    }

    fn port(&self) -> &Port {
        &self.running.port
    }
}

impl Device for ProcessDevice {
    fn name(&self) -> &str {
        &self.port().name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn queue_count(&self) -> u16 {
        self.port().queues.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue = |index| Box::new(ProcessQueue::new(Arc::clone(&self.running), index)) as Box<dyn Queue>;
        (0..self.port().queues.len()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.port().pool)
    }

    fn link(&self) -> LinkState {
        LinkState { up: lock(&self.port().live).is_up(), speed_mbps: None }
    }

    fn stats(&self) -> PortStats {
        self.port().stats()
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn note(&self) -> Option<String> {
        lock(&self.port().live).note.clone()
    }
}

/// The packet side of a port.
struct ProcessQueue {
    running: Arc<Running>,
    index: usize,
    /// The generation that `ends` belongs to.
    seen: u32,
    ends: Option<Ends>,
    /// Ends of rings that the process has broken, until they are returned.
    broken: Option<(Ends, Fault)>,
    buffers: Buffers,
}

impl ProcessQueue {
    fn new(running: Arc<Running>, index: usize) -> ProcessQueue {
        let buffers = Buffers::new(Arc::clone(&running.port.pool));
        ProcessQueue { running, index, seen: 0, ends: None, broken: None, buffers }
    }

    fn shared(&self) -> &Shared {
        &self.running.port.queues[self.index]
    }

    /// Whether there is something to exchange with the supervisor.
    #[inline]
    fn is_due(&self) -> bool {
        self.shared().generation.load(Ordering::Acquire) != self.seen || self.broken.is_some()
    }

    #[inline]
    fn renew(&mut self) {
        if self.is_due() {
            self.change();
        }
    }

    /// Takes new ends, and returns broken ones. If the supervisor has the lock, the next call does.
    #[cold]
    fn change(&mut self) {
        let shared = &self.running.port.queues[self.index];
        let mut handover = match shared.handover.try_lock() {
            Ok(handover) => handover,
            Err(TryLockError::Poisoned(handover)) => handover.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let generation = shared.generation.load(Ordering::Acquire);
        if let Some((ends, fault)) = self.broken.take() {
            handover.old.push(ends);
            // A process that has taken its place does not pay for it.
            if generation == self.seen {
                handover.fault = Some(fault);
            }
        }
        if generation != self.seen {
            self.seen = generation;
            handover.old.extend(self.ends.take());
            self.ends = handover.next.take();
        }
        drop(handover);
        self.running.port.bell.ring();
    }

    /// Stops using rings that the process has broken; the supervisor ends it.
    #[cold]
    fn fail(&mut self, fault: Fault) {
        self.broken = self.ends.take().map(|ends| (ends, fault));
        self.change();
    }
}

impl Queue for ProcessQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.renew();
        let Some(ends) = &mut self.ends else { return 0 };
        let before = out.len();
        let result = ends.inward.take(out, max, &mut self.buffers);
        let moved = match result {
            Ok(moved) if moved.packets == 0 && moved.dropped == 0 => return 0,
            Ok(moved) => {
                ends.inward.release();
                moved
            }
            Err(fault) => {
                free_bulk(&mut out.split_off(before));
                self.fail(fault);
                return 0;
            }
        };
        self.shared().counters.add(&PortStats {
            rx_packets: moved.packets as u64,
            rx_bytes: moved.bytes,
            rx_dropped: moved.dropped,
            ..PortStats::default()
        });
        moved.packets
    }

    #[inline]
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        if packets.is_empty() {
            return 0;
        }
        self.renew();
        let Some(ends) = &mut self.ends else { return 0 };
        let offered = packets.len();
        let moved = match ends.outward.put(packets) {
            Ok(moved) => moved,
            Err(fault) => {
                self.fail(fault);
                return 0;
            }
        };
        if moved.packets != 0 && ends.outward.must_wake() {
            self.running.port.caller.call(self.index);
        }
        if moved.dropped != 0 {
            let (tx_dropped, tx_too_long) = (moved.dropped, moved.too_long);
            self.shared().counters.add(&PortStats { tx_dropped, tx_too_long, ..PortStats::default() });
        }
        offered - packets.len()
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        self.renew();
        if self.is_due() {
            return Wake::Now;
        }
        if let Some(ends) = &mut self.ends {
            match ends.inward.arm() {
                Ok(true) => files.push(ends.watch.file()),
                Ok(false) => return Wake::Now,
                Err(fault) => {
                    self.fail(fault);
                    if self.is_due() {
                        return Wake::Now;
                    }
                }
            }
        }
        files.push(self.shared().bell.file());
        Wake::File
    }

    fn disarm(&mut self) {
        if let Some(ends) = &mut self.ends {
            ends.inward.disarm();
            ends.watch.clear();
        }
        self.shared().bell.silence();
    }
}

//! The state of a port that its service thread, queues and device share; and the queues.
//!
//! The service thread creates the ring ends of a new connection, stores them where each queue's worker finds them, and
//! advances the queue's generation. Before its next burst the worker takes its new ends and returns the old ones. The
//! ends then belong to the worker alone, so receiving takes no lock. A peer may offer fewer rings than there are
//! workers; these then share rings for sending, each behind a lock held for one burst.
//!
//! Threads: as above. Nothing waits for a worker: memory that it has not returned
//! stays mapped until it does. Tests: `tests/`.

use crate::memory::REGIONS_MAX;
use crate::receive::{Fault, Receiver};
use crate::transmit::{Stop, Transmitter};
use pktio::{Bell, MemifRole, Packet, PoolRef, PortStats, Queue, QueueCounters, Wake, offload};
use shared_memory::{Notifier, Pause, Quota};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The service thread's interval in milliseconds when nothing wakes it. Bounds how long a dead connection's memory
/// waits to be unmapped after its worker returned it, and how long a worker's fault waits to be handled.
pub(crate) const TEND_INTERVAL_MS: u64 = 500;

/// A port.
pub(crate) struct Port {
    /// The name its user gave it.
    pub name: String,
    pub role: MemifRole,
    /// Interface id on the socket.
    pub id: u32,
    /// Base-2 logarithm of the descriptors per ring, as client.
    pub ring_log2: u8,
    /// Bytes per buffer, as client.
    pub buffer_bytes: u32,
    /// Maximum frame length in bytes; longer frames are not sent.
    pub frame_max: u32,
    pub pool: PoolRef,
    /// Bytes that a client may share on ordinary pages.
    pub memory_bytes: u64,
    /// Limit on mapped regions of this port: those of the connected client, of previous ones whose memory workers still
    /// hold, and of clients in the handshake. Ports do not share quotas.
    pub quota: Quota,
    /// Time without connections, after a client has truncated its memory.
    pub pause: Mutex<Pause>,
    pub queues: Box<[Shared]>,
    /// Signals the eventfds of the rings that we send on, one each.
    pub notifier: Notifier,
    up: AtomicBool,
}

/// A queue's state that its worker and the service thread share.
pub(crate) struct Shared {
    counters: QueueCounters,
    /// Advanced when `handover` changes.
    generation: AtomicU32,
    handover: Mutex<Handover>,
    /// Rung when `handover` changes.
    bell: Bell,
}

#[derive(Default)]
struct Handover {
    /// New ends for the worker.
    next: Option<Ends>,
    /// Old ends from the worker; the service thread drops them, since unmapping is slow.
    old: Vec<Ends>,
}

/// One queue's ring ends of a connection.
pub(crate) struct Ends {
    pub receiver: Option<Receiver>,
    pub sender: Option<Sender>,
    pub link: Arc<Link>,
}

/// The sending end of a ring: a queue's own, or one that queues share.
pub(crate) enum Sender {
    Own(Box<Transmitter>),
    Shared(Arc<Mutex<Transmitter>>),
}

impl Sender {
    /// Runs `body` with the ring. A ring of one's own takes no lock, whose release would wait for all preceding stores.
    #[inline]
    pub(crate) fn with<R>(&mut self, body: impl FnOnce(&mut Transmitter) -> R) -> R {
        match self {
            Sender::Own(transmitter) => body(transmitter),
            Sender::Shared(transmitter) => body(&mut lock(transmitter)),
        }
    }
}

/// A connection's state that its workers see.
pub(crate) struct Link {
    /// The first [`Fault`], or 0.
    fault: AtomicU8,
    /// Wakes the service thread.
    service: Bell,
}

impl Link {
    /// A connection whose service thread this bell wakes.
    pub(crate) fn new(service: Bell) -> Link {
        Link { fault: AtomicU8::new(0), service }
    }

    /// The first fault that a worker has found.
    pub(crate) fn fault(&self) -> Option<Fault> {
        Fault::of(self.fault.load(Ordering::Acquire))
    }

    fn set_fault(&self, fault: Fault) {
        let first = self.fault.compare_exchange(0, fault as u8, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            self.service.ring();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is consistent after every statement, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parameters of a new port.
pub(crate) struct PortConfig {
    pub name: String,
    pub role: MemifRole,
    pub id: u32,
    pub ring_log2: u8,
    pub buffer_bytes: u32,
    pub frame_max: u32,
    pub queues: u16,
    pub memory_bytes: u64,
}

impl Port {
    pub(crate) fn new(config: PortConfig, pool: PoolRef) -> io::Result<Port> {
        let PortConfig { name, role, id, ring_log2, buffer_bytes, frame_max, queues, memory_bytes } = config;
        let notifier = Notifier::new(&name, queues.into())?;
        let shared = |_| {
            let (counters, generation, handover) = (QueueCounters::default(), AtomicU32::new(0), Mutex::default());
            Ok(Shared { counters, generation, handover, bell: Bell::new()? })
        };
        let queues = (0..queues).map(shared).collect::<io::Result<_>>()?;
        let up = AtomicBool::new(false);
        // As client: our own region, that of the last connection, and that of the next.
        let quota =
            Quota::new(3 * if role == MemifRole::Server { REGIONS_MAX } else { 1 }).map_err(io::Error::other)?;
        let pause = Mutex::default();
        Ok(Port {
            name,
            role,
            id,
            ring_log2,
            buffer_bytes,
            frame_max,
            pool,
            memory_bytes,
            quota,
            pause,
            queues,
            notifier,
            up,
        })
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    pub(crate) fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        self.queues.iter().for_each(|queue| stats += queue.counters.read());
        stats
    }

    /// Gives each queue its ring ends of a new connection.
    pub(crate) fn attach(&self, ends: Vec<Ends>) {
        let mut ends = ends.into_iter();
        self.hand_over(|| ends.next());
        self.up.store(true, Ordering::Release);
    }

    /// Takes the connection from the queues.
    pub(crate) fn detach(&self) {
        self.up.store(false, Ordering::Release);
        self.hand_over(|| None);
        (0..self.queues.len()).for_each(|number| self.notifier.set(number, None));
    }

    fn hand_over(&self, mut next: impl FnMut() -> Option<Ends>) {
        for queue in &self.queues {
            let not_taken = std::mem::replace(&mut lock(&queue.handover).next, next());
            queue.generation.fetch_add(1, Ordering::Release);
            queue.bell.ring();
            drop(not_taken);
        }
    }

    /// Drops the ring ends that workers have returned.
    pub(crate) fn tend(&self) {
        for queue in &self.queues {
            let old = std::mem::take(&mut lock(&queue.handover).old);
            drop(old);
        }
    }
}

/// The packet side of a port.
pub(crate) struct PortQueue<O> {
    port: Arc<Port>,
    index: usize,
    /// The generation that `ends` belongs to.
    seen: u32,
    ends: Option<Ends>,
    /// Whether the peer's interrupt flag must be read again because something was sent.
    has_sent: bool,
    /// Keeps the port open.
    _owner: Arc<O>,
}

impl<O> PortQueue<O> {
    pub(crate) fn new(port: &Arc<Port>, index: usize, owner: &Arc<O>) -> PortQueue<O> {
        PortQueue { port: Arc::clone(port), index, seen: 0, ends: None, has_sent: false, _owner: Arc::clone(owner) }
    }

    #[inline]
    fn renew(&mut self) {
        if self.port.queues[self.index].generation.load(Ordering::Acquire) != self.seen {
            self.change();
        }
    }

    #[cold]
    fn change(&mut self) {
        let shared = &self.port.queues[self.index];
        let mut handover = lock(&shared.handover);
        self.seen = shared.generation.load(Ordering::Acquire);
        handover.old.extend(self.ends.take());
        self.ends = handover.next.take();
    }

    /// Handles a peer's breach of the protocol: stops using its rings; the service thread closes the connection.
    #[cold]
    fn fail(&mut self, fault: Fault) {
        if let Some(ends) = self.ends.take() {
            ends.link.set_fault(fault);
            lock(&self.port.queues[self.index].handover).old.push(ends);
        }
    }
}

impl<O: Send + Sync> Queue for PortQueue<O> {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.renew();
        let Some(ends) = &mut self.ends else { return 0 };
        if self.has_sent
            && let Some(sender) = &mut ends.sender
        {
            self.has_sent = sender.with(Transmitter::look);
        }
        let Some(receiver) = &mut ends.receiver else { return 0 };
        let before = out.len();
        let mut stats = PortStats::default();
        let result = receiver.receive(&*self.port.pool, out, max, &mut stats);
        if stats != PortStats::default() {
            self.port.queues[self.index].counters.add(&stats);
        }
        if let Err(fault) = result {
            self.fail(fault);
        }
        out.len() - before
    }

    #[inline]
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        self.renew();
        let offered = packets.len();
        let Some(Ends { sender: Some(sender), .. }) = &mut self.ends else { return 0 };
        let mut stats = PortStats::default();
        let frame_max = self.port.frame_max;
        let pool = &*self.port.pool;
        let result = sender.with(|transmitter| {
            let mut result = transmitter.send(packets, frame_max, &mut stats);
            if let Ok((sent, _)) = result {
                pktio::free_front(packets, sent);
            }
            if let Ok((_, Stop::Unsendable)) = result {
                let mut of_batches = PortStats::default();
                let lost = offload::send_rest(pool, packets, frame_max, |batch| {
                    result = transmitter.send(batch, frame_max, &mut of_batches);
                    if let Ok((sent, _)) = result {
                        pktio::free_front(batch, sent);
                    }
                });
                stats += of_batches;
                stats += lost;
            }
            result
        });
        self.has_sent = true;
        self.port.queues[self.index].counters.add(&stats);
        if let Err(fault) = result {
            self.fail(fault);
        }
        // Segments of a large frame may remain, more than there were packets.
        offered.saturating_sub(packets.len())
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        self.renew();
        // Rung when a peer connects or disconnects.
        files.push(self.port.queues[self.index].bell.file());
        let Some(ends) = &mut self.ends else { return Wake::File };
        if let Some(sender) = &mut ends.sender {
            sender.with(Transmitter::last_look);
        }
        let Some(receiver) = &ends.receiver else { return Wake::File };
        let Some(watch) = &receiver.watch else { return Wake::Poll };
        receiver.ring().set_flags(0);
        // Store-load barrier: either the peer sees that it must wake us, or we see what it sent before.
        std::sync::atomic::fence(Ordering::SeqCst);
        if receiver.has_some() {
            return Wake::Now;
        }
        files.push(watch.file());
        Wake::File
    }

    fn disarm(&mut self) {
        self.port.queues[self.index].bell.silence();
        if let Some(Ends { receiver: Some(receiver), .. }) = &self.ends
            && let Some(watch) = &receiver.watch
        {
            receiver.ring().set_flags(crate::ring::MASK_INTERRUPTS);
            watch.clear();
        }
    }
}

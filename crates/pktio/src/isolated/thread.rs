//! The dedicated thread of an isolated queue, and the two rings between it and the worker.
//!
//! The inward ring holds packets from the peer, at most [`RING_MAX`]. When it is full, the thread stops receiving, so
//! packets wait at the peer. The outward ring holds packets to the peer. When it is full, the worker keeps its packets,
//! as with any device that is full.
//!
//! `serving` has the thread's loop. Its heartbeat is not vital, since the peer decides for how long the thread blocks.
//! Dropping the queue waits until the thread has ended, but not longer than [`CLOSE_MAX`]: otherwise the peer would decide how
//! long a port's removal, a restart or the end of the switch takes. A thread that is left behind owns all that it uses,
//! and ends by itself when the peer lets it go.
//!
//! A ring's lock is held while a burst is moved. The worker tries to acquire it at most [`TRIES`] times and never
//! blocks. A consumer that sees a length of 0 does not lock the ring.

use super::port::Port;
use super::serving::{Exchange, serve};
use super::spawner::{self, Job};
use crate::device::{PortStats, Queue};
use crate::packet::Packet;
use crate::wait::{Bell, Wake};
use heartbeat::Heartbeat;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Maximum packets in a ring: four bursts. Their buffers are not available to other ports meanwhile.
pub const RING_MAX: usize = 256;
/// A worker's attempts to lock a ring: about as long as the other side takes to move a burst.
const TRIES: u32 = 2000;
/// How long closing a port waits for the threads of all its queues together. One that nobody holds up ends within
/// microseconds.
const CLOSE_MAX: Duration = Duration::from_millis(100);
/// A round that takes longer is reported: the peer has managed to block the thread.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// The packets of one direction.
#[derive(Default)]
struct Ring {
    /// Number of packets, written under the lock and read without it.
    len: AtomicUsize,
    locked: Mutex<Locked>,
}

#[derive(Default)]
struct Locked {
    packets: VecDeque<Packet>,
    /// Whether the consumer sleeps and must be woken.
    sleeps: bool,
}

impl Ring {
    /// Locks the ring. It is consistent after every statement, so a panic of the other thread does no harm.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries to lock the ring, a bounded number of times: the worker must not block.
    fn lock_soon(&self) -> Option<MutexGuard<'_, Locked>> {
        for _ in 0..TRIES {
            match self.locked.try_lock() {
                Ok(ring) => return Some(ring),
                Err(TryLockError::Poisoned(ring)) => return Some(ring.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Moves packets from the front of `from` into the ring, as many as fit. Returns how many, and whether the consumer
    /// must be woken.
    fn put(&self, mut locked: MutexGuard<'_, Locked>, from: &mut Vec<Packet>) -> (usize, bool) {
        let count = from.len().min(RING_MAX.saturating_sub(locked.packets.len()));
        locked.packets.extend(from.drain(..count));
        self.len.store(locked.packets.len(), Ordering::Relaxed);
        (count, std::mem::take(&mut locked.sleeps))
    }

    /// Moves at most `max` packets out of the ring. Returns how many.
    fn take(&self, mut locked: MutexGuard<'_, Locked>, into: &mut Vec<Packet>, max: usize) -> usize {
        let count = locked.packets.len().min(max);
        into.extend(locked.packets.drain(..count));
        self.len.store(locked.packets.len(), Ordering::Relaxed);
        count
    }
}

struct Rings {
    /// From the peer to the worker.
    inward: Ring,
    /// From the worker to the peer.
    outward: Ring,
    /// Wakes the worker.
    worker: Bell,
    /// Wakes the dedicated thread.
    thread: Bell,
    stops: Arc<AtomicBool>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// The worker's end of an isolated queue.
pub(super) struct Isolated {
    rings: Arc<Rings>,
    port: Arc<Port>,
}

impl Isolated {
    /// Has a dedicated thread serve queue `index`.
    ///
    /// # Errors
    /// No eventfd can be created; the queue is returned.
    pub(super) fn start(port: &Arc<Port>, index: usize, queue: Box<dyn Queue>) -> Result<Isolated, Box<dyn Queue>> {
        let (Ok(worker), Ok(thread)) = (Bell::new(), Bell::new()) else { return Err(queue) };
        let rings = Arc::new(Rings {
            inward: Ring::default(),
            outward: Ring::default(),
            worker,
            thread,
            stops: Arc::default(),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        let name = format!("isolated {}", port.name.replace('\0', "?"));
        let mut serving = Serving { rings: Arc::clone(&rings), port: Arc::clone(port), index };
        // Dropped with the job, whether or not the job has run.
        let end = End(Arc::clone(&rings));
        let run = Box::new({
            let name = name.clone();
            move || {
                let heart = Heartbeat::not_vital(name, ROUND_MAX);
                serving.run(queue, &heart);
                drop(end);
            }
        });
        // `guard` has started the spawner.
        let left = spawner::leave(Job { name, stops: Arc::clone(&rings.stops), run });
        debug_assert!(left.is_ok(), "nobody starts threads");
        Ok(Isolated { rings, port: Arc::clone(port) })
    }

    #[inline]
    pub(super) fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let ring = &self.rings.inward;
        if ring.len() == 0 {
            return 0;
        }
        ring.lock_soon().map_or(0, |locked| ring.take(locked, out, max))
    }

    #[inline]
    pub(super) fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        let ring = &self.rings.outward;
        if ring.len() >= RING_MAX {
            return 0;
        }
        let Some(locked) = ring.lock_soon() else { return 0 };
        let (count, wakes) = ring.put(locked, packets);
        if wakes {
            self.rings.thread.ring();
        }
        count
    }

    pub(super) fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        // If the thread holds the lock, it is adding packets.
        let Some(mut locked) = self.rings.inward.lock_soon() else { return Wake::Now };
        if !locked.packets.is_empty() {
            return Wake::Now;
        }
        locked.sleeps = true;
        files.push(self.rings.worker.file());
        Wake::File
    }

    pub(super) fn disarm(&mut self) {
        // If the lock is not available, the bell rings once to no purpose.
        if let Some(mut locked) = self.rings.inward.lock_soon() {
            locked.sleeps = false;
        }
        self.rings.worker.silence();
    }
}

impl Drop for Isolated {
    /// Stops the thread and waits until it has ended, or leaves it behind.
    fn drop(&mut self) {
        self.rings.stops.store(true, Ordering::Release);
        self.rings.thread.ring();
        let patience = self.port.close_by(CLOSE_MAX).saturating_duration_since(Instant::now());
        let has_ended = self.rings.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (has_ended, _) = self
            .rings
            .ended
            .wait_timeout_while(has_ended, patience, |has_ended| !*has_ended)
            .unwrap_or_else(PoisonError::into_inner);
        if !*has_ended {
            self.port.has_left_threads.store(true, Ordering::Relaxed);
            tracing::warn!(
                port = self.port.name,
                "its peer holds up a thread, which is left behind: its memory and files are freed when the peer lets it go"
            );
        }
    }
}

/// Reports, when dropped, that the thread has ended.
struct End(Arc<Rings>);

impl Drop for End {
    fn drop(&mut self) {
        *self.0.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.ended.notify_all();
    }
}

/// The dedicated thread's end of an isolated queue.
struct Serving {
    rings: Arc<Rings>,
    port: Arc<Port>,
    index: usize,
}

impl Serving {
    fn run(&mut self, queue: Box<dyn Queue>, heart: &Heartbeat) {
        self.port.isolated.fetch_add(1, Ordering::Relaxed);
        if let Some(note) = self.port.note() {
            tracing::warn!(
                port = self.port.name,
                queue = self.index,
                "{note}; `isolated` keeps a peer from doing so once"
            );
        }
        let port = Arc::clone(&self.port);
        serve(queue, self, heart);
        port.isolated.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Exchange for Serving {
    fn room(&mut self) -> usize {
        RING_MAX.saturating_sub(self.rings.inward.len())
    }

    fn deliver(&mut self, packets: &mut Vec<Packet>) {
        let ring = &self.rings.inward;
        let (_, wakes) = ring.put(ring.lock(), packets);
        debug_assert!(packets.is_empty(), "nobody else puts packets in");
        if wakes {
            self.rings.worker.ring();
        }
    }

    fn collect(&mut self, into: &mut Vec<Packet>, max: usize) {
        let ring = &self.rings.outward;
        if ring.len() != 0 {
            ring.take(ring.lock(), into, max);
        }
    }

    fn finished(&mut self, dropped: usize) {
        if dropped != 0 {
            let tx_dropped = dropped as u64;
            self.port.counters[self.index].add(&PortStats { tx_dropped, ..PortStats::default() });
        }
    }

    fn arm(&mut self) -> bool {
        let mut locked = self.rings.outward.lock();
        locked.sleeps = locked.packets.is_empty();
        locked.sleeps
    }

    fn disarm(&mut self) {
        self.rings.outward.lock().sleeps = false;
        self.rings.thread.silence();
    }

    fn file(&self) -> Arc<OwnedFd> {
        self.rings.thread.file()
    }

    fn stops(&self) -> bool {
        self.rings.stops.load(Ordering::Acquire)
    }
}

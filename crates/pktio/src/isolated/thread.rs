//! A queue with a thread of its own, and the rings between that and the worker.
//!
//! Packets from the peer wait in a ring of [`RING_MAX`]; when it is full the thread receives no more, so they wait at the peer. Packets
//! to the peer wait in another one; when that is full the worker keeps them, as with any device that is full. What the
//! peer does not take within [`PATIENCE`] is dropped, as a worker drops what a device does not take, so nothing stale is delivered
//! to a peer that comes later.
//!
//! The thread polls while packets pass, giving way to others; otherwise it sleeps until the peer or the worker wakes it.
//! It is monitored and not vital: a peer decides how long it stands. Its own end is waited for when the queue is dropped.
//!
//! A ring's lock is held for the move of a burst. The worker tries for it [`TRIES`] times and does not wait; who finds a ring empty by
//! its length does not lock it.

use super::port::Port;
use super::spawner::{self, Job};
use crate::clock::{ticks, ticks_per_second};
use crate::device::{PortStats, Queue};
use crate::packet::{Packet, free_bulk};
use crate::wait::{Bell, Wake, wait};
use abi::BATCH_MAX;
use heartbeat::Heartbeat;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::yield_now;
use std::time::Duration;

/// Most packets that wait in one direction: eight bursts. They are buffers that nobody else has meanwhile.
pub const RING_MAX: usize = 512;
/// How often a worker tries for a ring: as long as the other side moves a burst.
const TRIES: u32 = 500;
/// How long a peer may leave packets that it was offered and did not take.
const PATIENCE: Duration = Duration::from_millis(1);
/// Empty rounds before the thread sleeps.
const SPIN_ROUNDS: u32 = 64;
/// How long it sleeps where something can only be polled for.
const POLL_MIN: Duration = Duration::from_micros(20);
const POLL_MAX: Duration = Duration::from_micros(500);
/// How long it sleeps at most where it would be woken.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// A round that takes longer is told: its peer has found how to stop it.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// One direction.
#[derive(Default)]
struct Ring {
    /// As many as there are packets, but for a moment.
    len: AtomicUsize,
    locked: Mutex<Locked>,
}

#[derive(Default)]
struct Locked {
    packets: VecDeque<Packet>,
    /// Whether whoever takes packets out sleeps, and is to be woken.
    sleeps: bool,
}

impl Ring {
    /// A ring is consistent between any two statements, so a panic in the other thread does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the worker, which does not wait.
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

    /// Puts packets in from the front of `from`, as many as there is room for; how many, and whether somebody is to be woken.
    fn put(&self, mut locked: MutexGuard<'_, Locked>, from: &mut Vec<Packet>) -> (usize, bool) {
        let count = from.len().min(RING_MAX.saturating_sub(locked.packets.len()));
        locked.packets.extend(from.drain(..count));
        self.len.store(locked.packets.len(), Ordering::Relaxed);
        (count, std::mem::take(&mut locked.sleeps))
    }

    fn take(&self, mut locked: MutexGuard<'_, Locked>, into: &mut Vec<Packet>, max: usize) -> usize {
        let count = locked.packets.len().min(max);
        into.extend(locked.packets.drain(..count));
        self.len.store(locked.packets.len(), Ordering::Relaxed);
        count
    }
}

struct Rings {
    /// From the peer, to the worker.
    inward: Ring,
    /// From the worker, to the peer.
    outward: Ring,
    worker: Bell,
    thread: Bell,
    stops: Arc<AtomicBool>,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// The worker's end.
pub(super) struct Isolated {
    rings: Arc<Rings>,
}

impl Isolated {
    /// Has queue `index` served by a thread; gives it back if the process can have no more files.
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
        let serving = Serving {
            queue,
            rings: Arc::clone(&rings),
            port: Arc::clone(port),
            index,
            burst: Vec::new(),
            leaving: Vec::new(),
            since: None,
        };
        // Dropped with the job, whether or not that has run.
        let end = End(Arc::clone(&rings));
        let run = Box::new({
            let name = name.clone();
            move || {
                let heart = Heartbeat::not_vital(name, ROUND_MAX);
                serving.run(&heart);
                drop(end);
            }
        });
        // Whoever guards a port has prepared it.
        let left = spawner::leave(Job { name, stops: Arc::clone(&rings.stops), run });
        debug_assert!(left.is_ok(), "nobody starts threads");
        Ok(Isolated { rings })
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
        // Somebody who has the lock puts packets in.
        let Some(mut locked) = self.rings.inward.lock_soon() else { return Wake::Now };
        if !locked.packets.is_empty() {
            return Wake::Now;
        }
        locked.sleeps = true;
        files.push(self.rings.worker.file());
        Wake::File
    }

    pub(super) fn disarm(&mut self) {
        // If it does not succeed, the bell is rung once in vain.
        if let Some(mut locked) = self.rings.inward.lock_soon() {
            locked.sleeps = false;
        }
        self.rings.worker.silence();
    }
}

impl Drop for Isolated {
    /// Waits for the thread, and so for the port's peer if that holds it up.
    fn drop(&mut self) {
        self.rings.stops.store(true, Ordering::Release);
        self.rings.thread.ring();
        let has_ended = self.rings.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.rings.ended.wait_while(has_ended, |has_ended| !*has_ended));
    }
}

/// Says at its end that the thread is no more.
struct End(Arc<Rings>);

impl Drop for End {
    fn drop(&mut self) {
        *self.0.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.ended.notify_all();
    }
}

/// What the thread has.
struct Serving {
    queue: Box<dyn Queue>,
    rings: Arc<Rings>,
    port: Arc<Port>,
    index: usize,
    burst: Vec<Packet>,
    /// Offered to the peer; since when it has left some of that.
    leaving: Vec<Packet>,
    since: Option<u64>,
}

impl Serving {
    fn run(mut self, heart: &Heartbeat) {
        self.port.isolated.fetch_add(1, Ordering::Relaxed);
        if let Some(note) = self.port.note() {
            tracing::warn!(
                port = self.port.name,
                queue = self.index,
                "{note}; `isolated` keeps a peer from doing so once"
            );
        }
        // The worker may have armed it last.
        let entered = shared_memory::enter();
        self.queue.disarm();
        drop(entered);
        let mut empty_rounds = 0;
        let mut pause = POLL_MIN;
        while !self.rings.stops.load(Ordering::Acquire) {
            heart.beat();
            // Both, whatever the first one did.
            if self.receive() | self.send() {
                (empty_rounds, pause) = (0, POLL_MIN);
                continue;
            }
            empty_rounds += 1;
            if empty_rounds < SPIN_ROUNDS {
                yield_now();
            } else {
                self.sleep(pause);
                pause = (2 * pause).min(POLL_MAX);
            }
        }
        self.port.isolated.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a burst from the peer; whether there was one.
    fn receive(&mut self) -> bool {
        let ring = &self.rings.inward;
        let room = RING_MAX.saturating_sub(ring.len());
        // Also without room: it sees to the peer's other wishes.
        let entered = shared_memory::enter();
        self.queue.rx(&mut self.burst, room.min(BATCH_MAX));
        drop(entered);
        if self.burst.is_empty() {
            return false;
        }
        let (_, wakes) = ring.put(ring.lock(), &mut self.burst);
        debug_assert!(self.burst.is_empty(), "nobody else puts packets in");
        if wakes {
            self.rings.worker.ring();
        }
        true
    }

    /// Offers a burst to the peer; whether it took some of that.
    fn send(&mut self) -> bool {
        let ring = &self.rings.outward;
        if self.leaving.is_empty() && ring.len() != 0 {
            ring.take(ring.lock(), &mut self.leaving, BATCH_MAX);
        }
        if self.leaving.is_empty() {
            return false;
        }
        let entered = shared_memory::enter();
        let taken = self.queue.tx(&mut self.leaving);
        drop(entered);
        if self.leaving.is_empty() {
            self.since = None;
        } else {
            let now = ticks();
            let since = *self.since.get_or_insert(now);
            if now.wrapping_sub(since) as f64 > PATIENCE.as_secs_f64() * ticks_per_second() {
                let tx_dropped = self.leaving.len() as u64;
                free_bulk(&mut self.leaving);
                self.since = None;
                self.port.counters[self.index].add(&PortStats { tx_dropped, ..PortStats::default() });
            }
        }
        taken != 0
    }

    /// Sleeps until there may be something to do, for `pause` where nobody would say so.
    fn sleep(&mut self, pause: Duration) {
        if self.rings.inward.len() >= RING_MAX || !self.leaving.is_empty() {
            return std::thread::sleep(pause);
        }
        let mut files = vec![self.rings.thread.file()];
        let entered = shared_memory::enter();
        let wake = self.queue.arm(&mut files);
        drop(entered);
        let time = match wake {
            // It had nothing all the same: no buffer is left, say.
            Wake::Now => POLL_MIN,
            Wake::Poll => pause,
            Wake::File | Wake::Never => SLEEP_MAX,
        };
        let mut locked = self.rings.outward.lock();
        locked.sleeps = locked.packets.is_empty();
        let is_empty = locked.sleeps;
        drop(locked);
        if is_empty {
            wait(&files, time);
        }
        let entered = shared_memory::enter();
        self.queue.disarm();
        drop(entered);
        self.rings.outward.lock().sleeps = false;
        self.rings.thread.silence();
    }
}

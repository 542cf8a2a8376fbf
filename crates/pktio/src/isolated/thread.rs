//! A queue with a thread of its own, and the rings between that and the worker.
//!
//! Packets from the peer wait in a ring of [`RING_MAX`]; when it is full the thread receives no more, so they wait at the peer. Packets
//! to the peer wait in another one; when that is full the worker keeps them, as with any device that is full. What the
//! peer does not take within [`PATIENCE`] is dropped, as a worker drops what a device does not take, so nothing stale is delivered
//! to a peer that comes later.
//!
//! The thread polls while packets pass, giving way to others; otherwise it sleeps until the peer or the worker wakes it.
//! It is monitored and not vital: a peer decides how long it stands. Its own end is waited for when the queue is dropped.

use super::port::Port;
use crate::clock::{ticks, ticks_per_second};
use crate::device::{PortStats, Queue};
use crate::packet::{Packet, free_bulk};
use crate::wait::{Bell, Wake, wait};
use abi::BATCH_MAX;
use heartbeat::Heartbeat;
use rustix::thread::sched_setaffinity;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle, yield_now};
use std::time::Duration;

/// Most packets that wait in one direction: what a device's rings hold by default.
const RING_MAX: usize = 1024;
/// How long a peer may leave packets that are offered to it.
const PATIENCE: Duration = Duration::from_millis(1);
/// Empty rounds before the thread sleeps.
const SPIN_ROUNDS: u32 = 64;
/// How long it sleeps where something can only be polled for.
const POLL_MIN: Duration = Duration::from_micros(20);
const POLL_MAX: Duration = Duration::from_micros(500);
/// How long it sleeps at most where it would be woken.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// A round that takes longer is told: its peer has found how to stop it.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// One direction.
#[derive(Default)]
struct Ring {
    packets: VecDeque<Packet>,
    /// Whether whoever takes packets out sleeps, and is to be woken.
    sleeps: bool,
}

struct Rings {
    /// From the peer, to the worker.
    inward: Mutex<Ring>,
    /// From the worker, to the peer.
    outward: Mutex<Ring>,
    worker: Bell,
    thread: Bell,
    stops: AtomicBool,
}

/// The worker's end.
pub(super) struct Isolated {
    rings: Arc<Rings>,
    thread: Option<JoinHandle<()>>,
}

/// A ring is consistent between any two statements, so a panic in the other thread does not spoil it.
fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For the worker, which does not wait.
fn try_lock(ring: &Mutex<Ring>) -> Option<MutexGuard<'_, Ring>> {
    match ring.try_lock() {
        Ok(ring) => Some(ring),
        Err(TryLockError::Poisoned(ring)) => Some(ring.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Isolated {
    /// Starts the thread of queue `index`; gives the queue back if the process can have no more threads or files.
    pub(super) fn start(port: &Arc<Port>, index: usize, queue: Box<dyn Queue>) -> Result<Isolated, Box<dyn Queue>> {
        let (Ok(worker), Ok(thread)) = (Bell::new(), Bell::new()) else { return Err(queue) };
        let stops = AtomicBool::new(false);
        let rings = Arc::new(Rings { inward: Mutex::default(), outward: Mutex::default(), worker, thread, stops });
        // A closure that does not run is dropped with what it owns, so the queue waits where both can take it.
        let slot = Arc::new(Mutex::new(Some(queue)));
        let take = |slot: &Mutex<Option<Box<dyn Queue>>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let name = format!("isolated {}", port.name.replace('\0', "?"));
        let spawned = Builder::new().name(name.clone()).spawn({
            let (rings, slot, port) = (Arc::clone(&rings), Arc::clone(&slot), Arc::clone(port));
            move || {
                // It is not where the worker is that started it, which may have its processor for itself.
                if let Some(processors) = &port.processors {
                    let _ = sched_setaffinity(None, processors);
                }
                let held_up_us = port.held_up_us.load(Ordering::Relaxed);
                if held_up_us != 0 {
                    tracing::warn!(
                        port = port.name,
                        queue = index,
                        "its peer held a worker up for {} ms, so a thread of its own serves it until it is added anew; \
                         `isolated` keeps peers from doing so once",
                        held_up_us / 1000
                    );
                }
                if let Some(queue) = take(&slot) {
                    let heart = Heartbeat::not_vital(name, ROUND_MAX);
                    Serving { queue, rings, port, index, burst: Vec::new(), leaving: Vec::new(), since: 0 }.run(&heart);
                }
            }
        });
        match spawned {
            Ok(thread) => Ok(Isolated { rings, thread: Some(thread) }),
            Err(_) => Err(take(&slot).expect("nobody else has run")),
        }
    }

    #[inline]
    pub(super) fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let Some(mut ring) = try_lock(&self.rings.inward) else { return 0 };
        let count = ring.packets.len().min(max);
        out.extend(ring.packets.drain(..count));
        count
    }

    #[inline]
    pub(super) fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        let Some(mut ring) = try_lock(&self.rings.outward) else { return 0 };
        let count = packets.len().min(RING_MAX.saturating_sub(ring.packets.len()));
        ring.packets.extend(packets.drain(..count));
        let wakes = std::mem::take(&mut ring.sleeps);
        drop(ring);
        if wakes {
            self.rings.thread.ring();
        }
        count
    }

    pub(super) fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        // Somebody who has the lock puts packets in.
        let Some(mut ring) = try_lock(&self.rings.inward) else { return Wake::Now };
        if !ring.packets.is_empty() {
            return Wake::Now;
        }
        ring.sleeps = true;
        files.push(self.rings.worker.file());
        Wake::File
    }

    pub(super) fn disarm(&mut self) {
        if let Some(mut ring) = try_lock(&self.rings.inward) {
            ring.sleeps = false;
        }
        self.rings.worker.silence();
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        self.rings.stops.store(true, Ordering::Release);
        self.rings.thread.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Serving {
    queue: Box<dyn Queue>,
    rings: Arc<Rings>,
    port: Arc<Port>,
    index: usize,
    burst: Vec<Packet>,
    /// Offered to the peer, since when.
    leaving: Vec<Packet>,
    since: u64,
}

impl Serving {
    fn run(mut self, heart: &Heartbeat) {
        let patience = (PATIENCE.as_secs_f64() * ticks_per_second()) as u64;
        let mut empty_rounds = 0;
        let mut pause = POLL_MIN;
        while !self.rings.stops.load(Ordering::Acquire) {
            heart.beat();
            // Both, whatever the first one did.
            if self.receive() | self.send(patience) {
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
    }

    /// Takes a burst from the peer; whether there was one.
    fn receive(&mut self) -> bool {
        let room = RING_MAX.saturating_sub(lock(&self.rings.inward).packets.len());
        // Also without room: it sees to the peer's other wishes.
        let count = self.queue.rx(&mut self.burst, room.min(BATCH_MAX));
        if count == 0 {
            return false;
        }
        let mut ring = lock(&self.rings.inward);
        ring.packets.extend(self.burst.drain(..));
        let wakes = std::mem::take(&mut ring.sleeps);
        drop(ring);
        if wakes {
            self.rings.worker.ring();
        }
        true
    }

    /// Offers a burst to the peer; whether it took some of that.
    fn send(&mut self, patience: u64) -> bool {
        if self.leaving.is_empty() {
            let mut ring = lock(&self.rings.outward);
            let count = ring.packets.len().min(BATCH_MAX);
            self.leaving.extend(ring.packets.drain(..count));
            drop(ring);
            self.since = ticks();
        }
        if self.leaving.is_empty() {
            return false;
        }
        let taken = self.queue.tx(&mut self.leaving);
        if !self.leaving.is_empty() && ticks().wrapping_sub(self.since) > patience {
            let tx_dropped = self.leaving.len() as u64;
            free_bulk(&mut self.leaving);
            self.port.counters[self.index].add(&PortStats { tx_dropped, ..PortStats::default() });
        }
        taken != 0
    }

    /// Sleeps until there may be something to do, for `pause` where nobody would say so.
    fn sleep(&mut self, pause: Duration) {
        let is_full = lock(&self.rings.inward).packets.len() >= RING_MAX;
        if is_full || !self.leaving.is_empty() {
            return std::thread::sleep(POLL_MIN);
        }
        let mut files = vec![self.rings.thread.file()];
        let mut time = match self.queue.arm(&mut files) {
            Wake::Now => Duration::ZERO,
            Wake::Poll => pause,
            Wake::File | Wake::Never => SLEEP_MAX,
        };
        {
            let mut ring = lock(&self.rings.outward);
            if ring.packets.is_empty() {
                ring.sleeps = true;
            } else {
                time = Duration::ZERO;
            }
        }
        if !time.is_zero() {
            wait(&files, time);
        }
        self.queue.disarm();
        lock(&self.rings.outward).sleeps = false;
        self.rings.thread.silence();
    }
}

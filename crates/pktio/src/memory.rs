//! The `memory` device: the program that holds its [`MemoryHandle`] injects and collects the packets.
//!
//! For tests, for STF scripts and for embedding the switch. Both directions are bounded rings of
//! [`RING_LIMIT`] packets: a full receive ring refuses injections (counted), a full send ring leaves
//! packets with the worker, as hardware does.
//!
//! Threads: the handle may be cloned and used from any thread; one mutex per queue and direction.
//! Tests: `memory/tests.rs`.

use crate::device::{Device, LinkState, MTU_DEFAULT, MacAddress, PortStats, Queue, QueueCounters};
use crate::packet::Packet;
use crate::pool::PoolRef;
use crate::wait::{Bell, Wake};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Maximum packets that wait in one direction of one queue.
pub const RING_LIMIT: usize = 4096;

/// The device; its other end is a [`MemoryHandle`].
pub struct MemoryDevice {
    shared: Arc<Shared>,
    queues_taken: bool,
}

/// The far end of a [`MemoryDevice`]: injects what the switch receives, collects what it sends.
#[derive(Clone)]
pub struct MemoryHandle {
    shared: Arc<Shared>,
}

struct MemoryQueue {
    shared: Arc<Shared>,
    index: usize,
}

struct Shared {
    name: String,
    pool: PoolRef,
    up: AtomicBool,
    queues: Vec<Rings>,
}

#[derive(Default)]
struct Rings {
    to_switch: Mutex<VecDeque<Packet>>,
    from_switch: Mutex<VecDeque<Packet>>,
    /// Rung when a packet arrives for a sleeping worker.
    bell: OnceLock<Bell>,
    /// Whether the worker sleeps. Accessed only with `to_switch` locked.
    sleeps: AtomicBool,
    /// Signalled after a worker has sent.
    sent: Condvar,
    counters: QueueCounters,
    /// Refused injections; counted by the injecting thread, and so not in `counters`.
    refused: AtomicU64,
}

impl MemoryDevice {
    /// Creates a device with `queues` queues and its link up, and its handle.
    pub fn new(name: impl Into<String>, pool: PoolRef, queues: u16) -> (MemoryDevice, MemoryHandle) {
        let shared = Arc::new(Shared {
            name: name.into(),
            pool,
            up: AtomicBool::new(true),
            queues: (0..queues).map(|_| Rings::default()).collect(),
        });
        (MemoryDevice { shared: Arc::clone(&shared), queues_taken: false }, MemoryHandle { shared })
    }
}

impl MemoryHandle {
    /// Has the switch receive `bytes` on queue 0. Returns false and counts a drop if the link is down, the ring is
    /// full, or no buffer can hold them.
    pub fn inject(&self, bytes: &[u8]) -> bool {
        self.inject_on(0, bytes)
    }

    /// [`MemoryHandle::inject`] on another queue.
    pub fn inject_on(&self, queue: u16, bytes: &[u8]) -> bool {
        let rings = &self.shared.queues[usize::from(queue)];
        let packet = if self.shared.is_up() { self.shared.pool.alloc_from(bytes) } else { None };
        let mut ring = lock(&rings.to_switch);
        match packet {
            Some(packet) if ring.len() < RING_LIMIT => {
                ring.push_back(packet);
                if rings.sleeps.swap(false, Ordering::Relaxed)
                    && let Some(bell) = rings.bell.get()
                {
                    bell.ring();
                }
                true
            }
            _ => {
                rings.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Takes everything that the switch has sent so far, queue by queue, each in order.
    pub fn collect(&self) -> Vec<Vec<u8>> {
        (0..self.shared.queues.len() as u16).flat_map(|queue| self.collect_on(queue)).collect()
    }

    /// Takes everything that the switch has sent so far on one queue, in order.
    pub fn collect_on(&self, queue: u16) -> Vec<Vec<u8>> {
        take_bytes(&mut lock(&self.shared.queues[usize::from(queue)].from_switch))
    }

    /// Waits until queue 0 holds `count` sent packets or `timeout` has passed, then takes all of them.
    pub fn collect_within(&self, count: usize, timeout: Duration) -> Vec<Vec<u8>> {
        let rings = &self.shared.queues[0];
        let deadline = Instant::now() + timeout;
        let mut ring = lock(&rings.from_switch);
        while ring.len() < count {
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            ring = rings.sent.wait_timeout(ring, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        take_bytes(&mut ring)
    }

    /// Number of injected packets that the switch has not received yet.
    pub fn pending(&self) -> usize {
        self.shared.queues.iter().map(|rings| lock(&rings.to_switch).len()).sum()
    }

    /// Sets the link. While it is down, injections are refused and sent packets are dropped, both counted.
    pub fn set_link(&self, up: bool) {
        self.shared.up.store(up, Ordering::Release);
    }
}

fn take_bytes(ring: &mut VecDeque<Packet>) -> Vec<Vec<u8>> {
    ring.drain(..).map(|packet| packet.data().to_vec()).collect()
}

/// Locks a ring. Rings are consistent after every statement, so a panic in another thread does no harm.
fn lock(ring: &Mutex<VecDeque<Packet>>) -> MutexGuard<'_, VecDeque<Packet>> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn kind(&self) -> &'static str {
        "memory"
    }

    fn queue_count(&self) -> u16 {
        self.shared.queues.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue = |index| Box::new(MemoryQueue { shared: Arc::clone(&self.shared), index }) as Box<dyn Queue>;
        (0..self.shared.queues.len()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.shared.pool)
    }

    fn link(&self) -> LinkState {
        LinkState { up: self.shared.is_up(), speed_mbps: None }
    }

    fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        for rings in &self.shared.queues {
            stats += rings.counters.read();
            stats.rx_dropped += rings.refused.load(Ordering::Relaxed);
        }
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        MTU_DEFAULT
    }
}

impl Queue for MemoryQueue {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let rings = &self.shared.queues[self.index];
        let before = out.len();
        {
            let mut ring = lock(&rings.to_switch);
            let count = ring.len().min(max);
            out.extend(ring.drain(..count));
        }
        let received = &out[before..];
        rings.counters.add(&PortStats {
            rx_packets: received.len() as u64,
            rx_bytes: total_bytes(received),
            ..PortStats::default()
        });
        received.len()
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        let rings = &self.shared.queues[self.index];
        if !self.shared.is_up() {
            let count = packets.len();
            crate::free_bulk(packets);
            rings.counters.add(&PortStats { tx_dropped: count as u64, ..PortStats::default() });
            return count;
        }
        let mut ring = lock(&rings.from_switch);
        let count = packets.len().min(RING_LIMIT - ring.len());
        let bytes = total_bytes(&packets[..count]);
        ring.extend(packets.drain(..count));
        drop(ring);
        rings.sent.notify_all();
        rings.counters.add(&PortStats { tx_packets: count as u64, tx_bytes: bytes, ..PortStats::default() });
        count
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        let rings = &self.shared.queues[self.index];
        if rings.bell.get().is_none()
            && let Ok(bell) = Bell::new()
        {
            // Set by this worker only.
            let _ = rings.bell.set(bell);
        }
        let Some(bell) = rings.bell.get() else { return Wake::Poll };
        let ring = lock(&rings.to_switch);
        if !ring.is_empty() {
            return Wake::Now;
        }
        rings.sleeps.store(true, Ordering::Relaxed);
        files.push(bell.file());
        Wake::File
    }

    fn disarm(&mut self) {
        let rings = &self.shared.queues[self.index];
        let _ring = lock(&rings.to_switch);
        rings.sleeps.store(false, Ordering::Relaxed);
        if let Some(bell) = rings.bell.get() {
            bell.silence();
        }
    }
}

pub(crate) fn total_bytes(packets: &[Packet]) -> u64 {
    packets.iter().map(|packet| packet.len() as u64).sum()
}

#[cfg(test)]
mod tests;

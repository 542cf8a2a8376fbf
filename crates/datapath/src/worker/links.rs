//! Links: packets that one device sends by a port enter another device by one of its ports, on the same worker and in
//! the same buffers.
//!
//! The sending end of a link is a port whose queue accepts nothing (`PortQueue::Link`). Packets left over after
//! transmitting are rare, and dropped for other ports; for a link they continue here. So links cost nothing where
//! there are none.
//!
//! ```text
//!   received burst ──▶ device 1 ──▶ its ports
//!                         └─ link ──▶ device 2 ──▶ its ports        in the order in which they were sent
//!                                        └─ link ──▶ ...
//! ```
//!
//! A burst and everything derived from it is processed to completion before the next one is received, so packets stay
//! in order and none waits. If a link has queues (`egress.rs`), packets wait there as in a port's queues and cross
//! when they are dequeued, on the worker that serves the queues.
//!
//! **Bounds:** a packet crosses at most [`HOPS_MAX`] links. All descendants of a received burst, or of a dequeued
//! one, cross links at most [`CROSSINGS_MAX`] times (devices in a cycle that multicast would double them each time).
//! Packets beyond either bound are dropped and counted as [`RuntimeDrop::LinkLimit`] of the device that they would
//! have entered.
//!
//! One worker, one thread; any thread may read the counters. Tests: `tests/devices.rs`.

use super::Worker;
use crate::drops::{DropReason, RuntimeDrop};
use abi::BATCH_MAX;
use pktio::{Packet, free_bulk, ticks};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most links that a packet crosses.
pub const HOPS_MAX: u32 = 16;
/// Most link crossings (packets) that one received burst may cause.
pub const CROSSINGS_MAX: usize = 8192;

/// Packets and bytes that one worker has sent over a link.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl LinkCounters {
    /// The packets and bytes so far.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn add(&self, packets: &[Packet]) {
        // One writer: a plain add is enough.
        let bump = |cell: &AtomicU64, by: u64| cell.store(cell.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        bump(&self.packets, packets.len() as u64);
        bump(&self.bytes, packets.iter().map(|packet| packet.len() as u64).sum());
    }
}

/// The sending end of a link: where it leads.
pub(crate) struct LinkEnd {
    /// The device that packets enter.
    pub device: u64,
    /// The ingress port there.
    pub port: u32,
    /// This worker's counters of the link.
    pub counters: Arc<LinkCounters>,
}

/// Packets on a link.
pub(super) struct Crossing {
    device: u64,
    port: u32,
    /// Links crossed, this one included.
    hops: u32,
    packets: Vec<Packet>,
    /// Position of the sending device, which gets the buffer back.
    from: usize,
}

impl LinkEnd {
    /// Takes all packets of a port's buffer and leaves `spare` in its place.
    #[cold]
    pub(super) fn cross(&self, out: &mut Vec<Packet>, spare: Vec<Packet>) -> Crossing {
        self.counters.add(out);
        Crossing { device: self.device, port: self.port, hops: 0, packets: std::mem::replace(out, spare), from: 0 }
    }
}

impl Worker {
    /// Processes the packets that wait in a device's links, and have crossed `hops` links before, to completion.
    /// Takes and returns the time stamps (ticks) at which transmitting began and ended, adjusted as if all programs
    /// had run before it: cycles of the devices behind links count as program time.
    #[cold]
    #[inline(never)]
    pub(super) fn cross(&mut self, first: usize, hops: u32, sending: u64, end: u64) -> (u64, u64) {
        let mut in_programs = sending;
        let mut budget = CROSSINGS_MAX;
        self.collect(first, hops);
        while let Some(mut on) = self.crossing.pop_front() {
            // A device is not removed while a link leads to it, so this does not happen.
            let Some(at) = self.devices.position(on.device) else { continue };
            let slot = &self.devices.all[at];
            if on.hops > HOPS_MAX || on.packets.len() > budget {
                let drops = slot.running.as_ref().map_or(&*slot.drops, |r| r.pipeline.drops(self.setup.index));
                drops.count_many(DropReason::Runtime(RuntimeDrop::LinkLimit), on.packets.len() as u64);
                free_bulk(&mut on.packets);
            }
            budget -= on.packets.len();
            for tap in &self.taps {
                tap.copy(on.device, on.port, false, &on.packets);
            }
            // With copies there may be more than a batch.
            while !on.packets.is_empty() {
                if on.packets.len() <= BATCH_MAX {
                    std::mem::swap(&mut self.burst, &mut on.packets);
                } else {
                    self.burst.extend(on.packets.drain(..BATCH_MAX));
                }
                let now = ticks();
                self.devices.all[at].ports.hops = on.hops;
                let (sent_from, _) = self.pass(at, on.port, now);
                self.devices.all[at].ports.hops = 0;
                in_programs += sent_from - now;
                self.collect(at, on.hops);
            }
            self.devices.all[on.from].ports.spares.push(on.packets);
        }
        let end = end.max(ticks());
        (in_programs.min(end), end)
    }

    /// Appends the packets that leave a device by links to the queue of crossings.
    fn collect(&mut self, device: usize, hops: u32) {
        for on in self.devices.all[device].ports.crossing.drain(..) {
            self.crossing.push_back(Crossing { hops: hops + 1, from: device, ..on });
        }
    }
}

//! Links: what one device sends by a port enters another device by one of its ports, in the same worker and in the same
//! buffers.
//!
//! The end of a link is a port of the sending device whose queue takes nothing (`PortQueue::Link`): what is left over after
//! sending, which is seldom and dropped elsewhere, goes on here. So devices without links pay nothing for them.
//!
//! ```text
//!   received burst ──▶ device 1 ──▶ its ports
//!                         └─ link ──▶ device 2 ──▶ its ports        in the order in which they were sent
//!                                        └─ link ──▶ ...
//! ```
//!
//! A burst and all that becomes of it goes to its end before the next one is received, so packets stay in order and nothing
//! waits; but if a link has queues (`egress.rs`), packets wait in them as a port's do, and cross when their turn has come, in the
//! worker that takes them out. **Bounds:** a packet crosses at most [`HOPS_MAX`] links, and all that descends from a received burst,
//! or one that was taken out of queues, makes at most [`CROSSINGS_MAX`] crossings (devices in a circle that multicast would double
//! them each time); the rest is dropped and counted as [`RuntimeDrop::LinkLimit`] of the device that it would have entered.
//!
//! One worker, one thread; counters are read by anyone. Tests: `tests/devices.rs`.

use super::Worker;
use crate::drops::{DropReason, RuntimeDrop};
use abi::BATCH_MAX;
use pktio::{Packet, free_bulk, ticks};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most links that a packet crosses.
pub const HOPS_MAX: u32 = 16;
/// Most crossings that one received burst may cause.
pub const CROSSINGS_MAX: usize = 8192;

/// What one worker has sent over a link.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl LinkCounters {
    /// Packets and bytes so far.
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

/// Where a link leads.
pub(crate) struct LinkEnd {
    /// The device.
    pub device: u64,
    /// Its port.
    pub port: u32,
    /// What goes over it.
    pub counters: Arc<LinkCounters>,
}

/// Packets on a link.
pub(super) struct Crossing {
    device: u64,
    port: u32,
    /// Links crossed, this one included.
    hops: u32,
    packets: Vec<Packet>,
    /// The sending device's place, which gets the buffer back.
    from: usize,
}

impl LinkEnd {
    /// Takes all packets of a port's buffer, and leaves the port an empty one.
    #[cold]
    pub(super) fn cross(&self, out: &mut Vec<Packet>, spare: Vec<Packet>) -> Crossing {
        self.counters.add(out);
        Crossing { device: self.device, port: self.port, hops: 0, packets: std::mem::replace(out, spare), from: 0 }
    }
}

impl Worker {
    /// Takes what waits in the links of a device, and has crossed so many before, to its end. Given and returned is when sending began and ended, as if all
    /// programs had run before it: the cycles of the devices behind links are the programs'.
    #[cold]
    #[inline(never)]
    pub(super) fn cross(&mut self, first: usize, hops: u32, sending: u64, end: u64) -> (u64, u64) {
        let mut in_programs = sending;
        let mut budget = CROSSINGS_MAX;
        self.collect(first, hops);
        while let Some(mut on) = self.crossing.pop_front() {
            // A device is not removed while a link leads to it.
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
            // Copies may be more than a batch.
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

    /// Moves what leaves a device by links to what waits, behind packets that were sent before.
    fn collect(&mut self, device: usize, hops: u32) {
        for on in self.devices.all[device].ports.crossing.drain(..) {
            self.crossing.push_back(Crossing { hops: hops + 1, from: device, ..on });
        }
    }
}

//! The packet side of every kind of port: one [`Queue`] over the shim's functions, one owner of the shim's port.
//!
//! Packets and bytes are counted here, per queue, the same way for every kind. A packet that the shim must not take as it is
//! (another pool's, empty, too long, a large frame) stops it; [`make_mbufs`] and [`offload::send_rest`] then do what can be done, once per burst.
//!
//! Threads: each queue on its worker, the device on control; all hold the port, and the last one closes it under the EAL's
//! control lock. Tests: `tests/ports.rs`, `tests/offload.rs`.
#![allow(unsafe_code)]

use crate::ffi;
use crate::pool::{MBUF_VTABLE, make_mbufs};
use crate::shared::Shared;
use pktio::{FRAME_HEADER_MAX, Packet, PortStats, Queue, QueueCounters, RawPacket, offload};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The shim's functions for a kind of port.
pub(crate) struct Kind {
    pub rx: ffi::Rx,
    pub tx: ffi::Tx,
    pub close: unsafe extern "C" fn(*mut c_void),
}

/// An open port of the shim; closed when the last holder is gone.
pub(crate) struct Port {
    pub eal: Arc<Shared>,
    /// A structure of this kind, which begins with `shim_port`.
    shim: NonNull<c_void>,
    kind: &'static Kind,
    counters: Vec<QueueCounters>,
}

// SAFETY: the shim's functions may be called from any thread, each queue's from one at a time.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

impl Port {
    /// Takes over what the shim has opened, of this kind and with this many queues.
    pub(crate) fn new(
        eal: &Arc<Shared>,
        shim: NonNull<c_void>,
        kind: &'static Kind,
        queues: u16,
        mtu: u16,
    ) -> Arc<Port> {
        let counters = (0..queues).map(|_| QueueCounters::default()).collect();
        let port = Port { eal: Arc::clone(eal), shim, kind, counters };
        port.set_mtu(mtu);
        Arc::new(port)
    }

    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.shim.as_ptr()
    }

    fn base(&self) -> &ffi::PortBase {
        // SAFETY: the shim's structure begins with one, lives as long as `self`, and this part of it is atomic.
        unsafe { self.shim.cast::<ffi::PortBase>().as_ref() }
    }

    /// From now on frames are sent that are as long as this MTU allows.
    pub(crate) fn set_mtu(&self, mtu: u16) {
        self.base().frame_max.store(u32::from(mtu) + u32::from(FRAME_HEADER_MAX), Relaxed);
    }

    /// The MTU of [`Port::set_mtu`].
    pub(crate) fn mtu(&self) -> u16 {
        (self.base().frame_max.load(Relaxed) - u32::from(FRAME_HEADER_MAX)) as u16
    }

    pub(crate) fn queue_count(&self) -> u16 {
        self.counters.len() as u16
    }

    /// All queues; to be called once.
    pub(crate) fn queues(self: &Arc<Port>) -> Vec<Box<dyn Queue>> {
        let queue = |index| {
            let queue = PortQueue { port: Arc::clone(self), index };
            Box::new(queue) as Box<dyn Queue>
        };
        (0..self.queue_count()).map(queue).collect()
    }

    /// What the queues have counted.
    pub(crate) fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        self.counters.iter().for_each(|counters| stats += counters.read());
        stats
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _control = self.eal.lock();
        // SAFETY: no queue and no device uses the port any more, and control calls are serialised by the lock.
        unsafe { (self.kind.close)(self.as_ptr()) }
    }
}

struct PortQueue {
    port: Arc<Port>,
    index: u16,
}

impl PortQueue {
    fn counters(&self) -> &QueueCounters {
        &self.port.counters[usize::from(self.index)]
    }

    /// Hands packets over, up to the first that the shim must not take as it is; those that are taken leave the vector.
    #[inline]
    fn send(&self, packets: &mut Vec<Packet>, burst: &mut ffi::Burst) -> usize {
        let mut sent = 0;
        // SAFETY: a packet is laid out as a `RawPacket`, and those of this vtable are mbufs. The shim takes the first
        // packets: they leave the vector without being dropped, and the others move to its front. This queue belongs to
        // this thread only.
        unsafe {
            let first = packets.as_mut_ptr();
            while sent < packets.len() && burst.stopped == 0 {
                let count = (packets.len() - sent).min(usize::from(u16::MAX)) as u16;
                let from = first.add(sent).cast();
                let taken = (self.port.kind.tx)(self.port.as_ptr(), self.index, &MBUF_VTABLE, from, count, burst);
                if taken == 0 {
                    break;
                }
                sent += usize::from(taken);
            }
            let rest = packets.len() - sent;
            if rest != 0 {
                std::ptr::copy(first.add(sent), first, rest);
            }
            packets.set_len(rest);
        }
        sent
    }
}

impl Queue for PortQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let max = max.min(usize::from(u16::MAX));
        out.reserve(max);
        let before = out.len();
        let mut burst = ffi::Burst::default();
        // SAFETY: there is room for `max` packets behind `before`, and a packet is laid out as a `RawPacket`; the shim
        // writes as many as it returns, each an mbuf that is ours. This queue belongs to this thread only.
        let count = unsafe {
            let end = out.as_mut_ptr().add(before).cast::<RawPacket>();
            let port = self.port.as_ptr();
            let count = (self.port.kind.rx)(port, self.index, &MBUF_VTABLE, end, max as u16, &mut burst);
            out.set_len(before + usize::from(count));
            count
        };
        if count != 0 || burst.dropped != 0 {
            self.counters().add(&PortStats {
                rx_packets: u64::from(count),
                rx_bytes: burst.bytes,
                rx_dropped: burst.dropped,
                ..PortStats::default()
            });
        }
        usize::from(count)
    }

    #[inline]
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        if packets.is_empty() {
            return 0;
        }
        let offered = packets.len();
        let mut burst = ffi::Burst::default();
        let mut sent = self.send(packets, &mut burst);
        let mut unsendable = PortStats::default();
        if burst.stopped != 0 {
            let (mbufs, frame_max) = (self.port.eal.mbufs(), self.port.base().frame_max.load(Relaxed));
            unsendable = make_mbufs(mbufs, packets);
            unsendable += offload::send_rest(mbufs, packets, frame_max, |batch| {
                burst.stopped = 0;
                sent += self.send(batch, &mut burst);
            });
        }
        self.counters().add(&PortStats {
            tx_packets: sent as u64 - burst.dropped,
            tx_bytes: burst.bytes,
            tx_dropped: unsendable.tx_dropped + burst.dropped,
            ..unsendable
        });
        // Segments of a large frame may be left over, more than there were packets.
        offered.saturating_sub(packets.len())
    }
}

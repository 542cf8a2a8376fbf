//! A vhost-user port as [`Device`] and [`Queue`]: the rings of `shim/vhost.c`.
//!
//! Threads: the device on control, each queue on its worker; both hold the port, and the last one closes it under the EAL's
//! control lock. What the guest does meanwhile is the shim's affair. Tests: `tests/peers.rs`.
#![allow(unsafe_code)]

use crate::eal::Inner;
use crate::ffi;
use crate::pool::{MBUF_VTABLE, make_sendable};
use crate::vdev::{c_string, make_room_for_socket, socket_path};
use pktio::{
    Device, DeviceSpec, Error, LinkState, MTU_DEFAULT, MacAddress, Packet, PoolRef, PortStats, Queue, QueueCounters,
    RawPacket,
};
use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// Most queues of a port; the shim's bound.
const QUEUES_MAX: u16 = 64;

/// An open port.
struct Port {
    eal: Arc<Inner>,
    shim: NonNull<c_void>,
    counters: Vec<QueueCounters>,
}

// SAFETY: the shim's functions may be called from any thread, each queue's from one at a time.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

impl Drop for Port {
    fn drop(&mut self) {
        let _control = self.eal.lock();
        // SAFETY: no queue and no device uses the port any more.
        unsafe { ffi::shim_vhost_close(self.shim.as_ptr()) }
    }
}

struct VhostDevice {
    name: String,
    port: Arc<Port>,
    queues_taken: bool,
}

struct VhostQueue {
    port: Arc<Port>,
    index: u16,
}

/// Opens the port at `path`; its guest may come and go. Called under the control lock.
pub(crate) fn open(
    eal: &Arc<Inner>,
    spec: &DeviceSpec,
    path: &Path,
    server: bool,
    queues: u16,
) -> Result<Box<dyn Device>, Error> {
    let path = socket_path(path)?;
    if server {
        make_room_for_socket(&path)?;
    }
    let queues = queues.clamp(1, QUEUES_MAX);
    let text = c_string(path.display().to_string());
    let mut error = 0;
    // SAFETY: a C string that the shim copies; the pool lives as long as the process.
    let shim =
        unsafe { ffi::shim_vhost_open(text.as_ptr(), i32::from(!server), queues, eal.mbufs().as_ptr(), &mut error) };
    let Some(shim) = NonNull::new(shim) else {
        return Err(Error::Socket { path, reason: crate::eal::failure("DPDK's vhost library refuses it", error) });
    };
    let counters = (0..queues).map(|_| QueueCounters::default()).collect();
    let port = Arc::new(Port { eal: Arc::clone(eal), shim, counters });
    Ok(Box::new(VhostDevice { name: spec.to_string(), port, queues_taken: false }))
}

impl Device for VhostDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "vhost"
    }

    fn queue_count(&self) -> u16 {
        self.port.counters.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue = |index| Box::new(VhostQueue { port: Arc::clone(&self.port), index }) as Box<dyn Queue>;
        (0..self.queue_count()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        self.port.eal.pool()
    }

    fn link(&self) -> LinkState {
        // SAFETY: the port is open.
        LinkState { up: unsafe { ffi::shim_vhost_up(self.port.shim.as_ptr()) } != 0, speed_mbps: None }
    }

    fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        self.port.counters.iter().for_each(|counters| stats += counters.read());
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        MTU_DEFAULT
    }
}

impl VhostQueue {
    fn counters(&self) -> &QueueCounters {
        &self.port.counters[usize::from(self.index)]
    }

    /// Hands packets over, up to the first that is no mbuf or empty; those that are taken leave the vector.
    #[inline]
    fn send(&self, packets: &mut Vec<Packet>, burst: &mut ffi::Burst) -> usize {
        let shim = self.port.shim.as_ptr();
        let mut sent = 0;
        // SAFETY: a packet is laid out as a `RawPacket`, and those of this vtable are mbufs. The shim takes the first
        // packets: they leave the vector without being dropped, and the others move to its front. This queue belongs to
        // this thread only.
        unsafe {
            let first = packets.as_mut_ptr();
            while sent < packets.len() && burst.stopped == 0 {
                let count = (packets.len() - sent).min(usize::from(u16::MAX)) as u16;
                let from = first.add(sent).cast();
                let taken = ffi::shim_vhost_tx(shim, self.index, &MBUF_VTABLE, from, count, burst);
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

impl Queue for VhostQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let max = max.min(usize::from(u16::MAX));
        out.reserve(max);
        let before = out.len();
        let mut burst = ffi::Burst::default();
        // SAFETY: there is room for `max` packets behind `before`, and a packet is laid out as a `RawPacket`; the shim
        // writes as many as it returns, each a fresh mbuf. This queue belongs to this thread only.
        let count = unsafe {
            let end = out.as_mut_ptr().add(before).cast::<RawPacket>();
            let shim = self.port.shim.as_ptr();
            let count = ffi::shim_vhost_rx(shim, self.index, &MBUF_VTABLE, end, max as u16, &mut burst);
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
        let mut burst = ffi::Burst::default();
        let mut sent = self.send(packets, &mut burst);
        let mut unsendable = 0;
        if burst.stopped != 0 {
            unsendable = make_sendable(self.port.eal.mbufs(), packets, u16::MAX);
            burst.stopped = 0;
            sent += self.send(packets, &mut burst);
        }
        self.counters().add(&PortStats {
            tx_packets: sent as u64 - burst.dropped,
            tx_bytes: burst.bytes,
            tx_dropped: unsendable as u64 + burst.dropped,
            ..PortStats::default()
        });
        sent + unsendable
    }
}

//! An ethdev port as [`Device`] and [`Queue`].
//!
//! Packets and bytes are counted here, per queue, the same way for every driver; what was lost before it reached a
//! queue comes from the driver's statistics.
//!
//! Threads: the device on control, each queue on its worker; both hold the port, and the last one closes it under the
//! EAL's control lock. Tests: `tests/ports.rs`.
#![allow(unsafe_code)]

use crate::eal::{Control, Inner};
use crate::ffi;
use crate::pool::{MBUF_VTABLE, make_sendable};
use crate::reconnect::{Gate, Pass};
use pktio::{Device, LinkState, MTU_DEFAULT, MacAddress, Packet, PoolRef, PortStats, Queue, QueueCounters, RawPacket};
use std::ffi::CString;
use std::sync::Arc;

/// A started port; closed when the last holder is gone.
pub(crate) struct Port {
    pub eal: Arc<Inner>,
    pub id: u16,
    /// The virtual device to remove with the port.
    pub vdev_name: Option<CString>,
    pub counters: Vec<QueueCounters>,
    /// Received frames of this length and above may have been cut; 0 when none are.
    pub len_limit: u16,
    /// Longer packets are not shown to the driver.
    pub tx_len_max: u16,
    pub tx_errors_are_losses: bool,
    /// The kernel's interface behind the port: it knows the link, the driver says "up" always.
    pub interface: Option<CString>,
    /// For a port that is stopped and started while its queues are polled.
    pub gate: Option<Gate>,
}

impl Port {
    /// The link, asked under the EAL's control lock.
    pub(crate) fn link(&self, _control: &Control) -> LinkState {
        let mut link = ffi::Link::default();
        // SAFETY: a C string, or a port that is open; the shim writes `link` on success only.
        let result = unsafe {
            match &self.interface {
                Some(interface) => ffi::shim_interface_link(interface.as_ptr(), &mut link),
                None => ffi::shim_port_link(self.id, &mut link),
            }
        };
        match result {
            0 => LinkState { up: link.up != 0, speed_mbps: Some(link.speed_mbps).filter(|&speed| speed != 0) },
            _ => LinkState::default(),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _control = self.eal.lock();
        let vdev_name = self.vdev_name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: no queue and no device uses the port any more, and control calls are serialised by the lock.
        unsafe { ffi::shim_port_close(self.id, vdev_name) }
    }
}

pub(crate) struct DpdkDevice {
    pub name: String,
    pub kind: &'static str,
    pub port: Arc<Port>,
    pub queues_taken: bool,
}

struct DpdkQueue {
    port: Arc<Port>,
    id: u16,
    index: u16,
}

impl Device for DpdkDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn queue_count(&self) -> u16 {
        self.port.counters.len() as u16
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) {
            return Vec::new();
        }
        let queue =
            |index| Box::new(DpdkQueue { port: Arc::clone(&self.port), id: self.port.id, index }) as Box<dyn Queue>;
        (0..self.queue_count()).map(queue).collect()
    }

    fn pool(&self) -> PoolRef {
        self.port.eal.pool()
    }

    fn link(&self) -> LinkState {
        self.port.link(&self.port.eal.lock())
    }

    fn stats(&self) -> PortStats {
        let mut stats = PortStats::default();
        for counters in &self.port.counters {
            stats += counters.read();
        }
        let mut driver = ffi::Stats::default();
        let _control = self.port.eal.lock();
        // SAFETY: the port is open; the shim writes `driver` on success only.
        if unsafe { ffi::shim_port_stats(self.port.id, &mut driver) } == 0 {
            stats.rx_dropped += driver.rx_missed + driver.rx_no_buffer;
            stats.rx_errors += driver.rx_errors;
            if self.port.tx_errors_are_losses {
                // The queue counted them as sent when the driver took them.
                stats.tx_packets = stats.tx_packets.saturating_sub(driver.tx_errors);
                stats.tx_dropped += driver.tx_errors;
            }
        }
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        let mut bytes = [0; 6];
        // SAFETY: the port is open; the shim writes six bytes.
        let result = unsafe { ffi::shim_port_mac(self.port.id, &mut bytes) };
        (result == 0 && bytes != [0; 6]).then_some(MacAddress(bytes))
    }

    fn mtu(&self) -> u16 {
        // SAFETY: the port is open.
        let mtu = unsafe { ffi::shim_port_mtu(self.port.id) };
        u16::try_from(mtu).unwrap_or(MTU_DEFAULT)
    }
}

impl Queue for DpdkQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let Some(_pass) = self.pass() else { return 0 };
        let max = max.min(usize::from(u16::MAX));
        out.reserve(max);
        let before = out.len();
        let mut burst = ffi::Burst::default();
        // SAFETY: there is room for `max` packets behind `before`, and a packet is laid out as a `RawPacket`; the shim
        // writes as many as it returns, each an mbuf that the driver gave up. This queue belongs to this thread only.
        let count = unsafe {
            let end = out.as_mut_ptr().add(before).cast::<RawPacket>();
            let limit = self.port.len_limit;
            let count = ffi::shim_rx(self.id, self.index, &MBUF_VTABLE, limit, end, max as u16, &mut burst);
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
        let Some(_pass) = self.pass() else { return 0 };
        let mut burst = ffi::Burst::default();
        let mut sent = self.send(packets, &mut burst);
        let mut unsendable = 0;
        if burst.stopped != 0 {
            unsendable = make_sendable(self.port.eal.mbufs(), packets, self.port.tx_len_max);
            let mut rest = ffi::Burst::default();
            sent += self.send(packets, &mut rest);
            burst.bytes += rest.bytes;
        }
        self.counters().add(&PortStats {
            tx_packets: sent as u64,
            tx_bytes: burst.bytes,
            tx_dropped: unsendable as u64,
            ..PortStats::default()
        });
        sent + unsendable
    }
}

impl DpdkQueue {
    /// Permission to call the driver, for as long as the result lives; `None` while the port is stopped.
    #[inline]
    fn pass(&self) -> Option<Pass<'_>> {
        match &self.port.gate {
            None => Some(Pass::Open),
            Some(gate) => gate.pass(self.index),
        }
    }

    fn counters(&self) -> &QueueCounters {
        &self.port.counters[usize::from(self.index)]
    }

    /// Hands packets to the driver, up to the first that it must not see; those it takes leave the vector.
    #[inline]
    fn send(&self, packets: &mut Vec<Packet>, burst: &mut ffi::Burst) -> usize {
        let count = packets.len().min(usize::from(u16::MAX)) as u16;
        let longest = self.port.tx_len_max;
        // SAFETY: a packet is laid out as a `RawPacket`, and those of this vtable are mbufs. The driver takes the first
        // `sent` of them: they leave the vector without being dropped, and the others move to its front. This queue
        // belongs to this thread only.
        unsafe {
            let first = packets.as_mut_ptr();
            let sent = ffi::shim_tx(self.id, self.index, &MBUF_VTABLE, longest, first.cast(), count, burst);
            let sent = usize::from(sent);
            let rest = packets.len() - sent;
            if rest != 0 {
                std::ptr::copy(first.add(sent), first, rest);
            }
            packets.set_len(rest);
            sent
        }
    }
}

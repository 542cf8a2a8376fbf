//! An ethdev port, DPDK's own, as [`Device`].
//!
//! What was lost before it reached a queue comes from the driver's statistics.
//!
//! Threads: the device on control; its queues are `queue`'s. Tests: `tests/ports.rs`, `tests/peers.rs`.
#![allow(unsafe_code)]

use crate::eal::Control;
use crate::ffi;
use crate::queue::{Kind, Port, Sleep};
use pktio::{Device, LinkState, MacAddress, PoolRef, PortStats, Queue};
use std::ffi::CString;
use std::sync::Arc;

pub(crate) static ETHDEV: Kind =
    Kind { rx: ffi::shim_eth_rx, tx: ffi::shim_eth_tx, close: ffi::shim_eth_close, sleep: Sleep::Poll };

pub(crate) struct DpdkDevice {
    pub name: String,
    pub kind: &'static str,
    pub port: Arc<Port>,
    pub tx_errors_are_losses: bool,
    /// The kernel's interface behind the port: it knows the link, the driver says "up" always.
    pub interface: Option<CString>,
    pub queues_taken: bool,
}

/// The link of a port, asked under the EAL's control lock.
pub(crate) fn link(port: &Port, interface: Option<&CString>, _control: &Control) -> LinkState {
    let mut link = ffi::Link::default();
    // SAFETY: a C string, or a port that is open; the shim writes `link` on success only.
    let result = unsafe {
        match interface {
            Some(interface) => ffi::shim_interface_link(interface.as_ptr(), &mut link),
            None => ffi::shim_eth_link(port.as_ptr(), &mut link),
        }
    };
    if result == 0 { link.into() } else { LinkState::default() }
}

impl From<ffi::Link> for LinkState {
    fn from(link: ffi::Link) -> LinkState {
        LinkState { up: link.up != 0, speed_mbps: Some(link.speed_mbps).filter(|&speed| speed != 0) }
    }
}

impl Device for DpdkDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn queue_count(&self) -> u16 {
        self.port.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) { Vec::new() } else { self.port.queues() }
    }

    fn pool(&self) -> PoolRef {
        self.port.eal.pool()
    }

    fn link(&self) -> LinkState {
        link(&self.port, self.interface.as_ref(), &self.port.eal.lock())
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.port.stats();
        let mut driver = ffi::Stats::default();
        let _control = self.port.eal.lock();
        // SAFETY: the port is open; the shim writes `driver` on success only.
        if unsafe { ffi::shim_eth_stats(self.port.as_ptr(), &mut driver) } == 0 {
            stats.rx_dropped += driver.rx_missed + driver.rx_no_buffer;
            stats.rx_errors += driver.rx_errors;
            if self.tx_errors_are_losses {
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
        let result = unsafe { ffi::shim_eth_mac(self.port.as_ptr(), &mut bytes) };
        (result == 0 && bytes != [0; 6]).then_some(MacAddress(bytes))
    }

    fn mtu(&self) -> u16 {
        self.port.mtu()
    }
}

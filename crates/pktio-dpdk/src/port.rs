//! An ethdev port, DPDK's own.
//!
//! What was lost before it reached a queue comes from the driver's statistics.
//!
//! Threads: the device on control; its queues are `queue`'s. Tests: `tests/ports.rs`, `tests/peers.rs`.
#![allow(unsafe_code)]

use crate::device::Behind;
use crate::ffi;
use crate::queue::{Kind, Port};
use crate::shared::Control;
use pktio::{LinkState, MacAddress, PortStats};
use pktio_kernel::Interface;

pub(crate) static ETHDEV: Kind = Kind { rx: ffi::shim_eth_rx, tx: ffi::shim_eth_tx, close: ffi::shim_eth_close };

/// A driver of DPDK.
pub(crate) struct Driver {
    pub tx_errors_are_losses: bool,
    /// The kernel's interface behind the port: it knows the link, the driver says "up" always.
    pub interface: Option<Interface>,
}

/// The link of a port, asked under the EAL's control lock.
pub(crate) fn link(port: &Port, _control: &Control) -> LinkState {
    let mut link = ffi::Link::default();
    // SAFETY: the port is open; the shim writes `link` on success only.
    let result = unsafe { ffi::shim_eth_link(port.as_ptr(), &mut link) };
    if result == 0 { link.into() } else { LinkState::default() }
}

impl From<ffi::Link> for LinkState {
    fn from(link: ffi::Link) -> LinkState {
        LinkState { up: link.up != 0, speed_mbps: Some(link.speed_mbps).filter(|&speed| speed != 0) }
    }
}

impl Behind for Driver {
    fn link(&self, port: &Port) -> LinkState {
        match &self.interface {
            Some(interface) => interface.link(),
            None => link(port, &port.eal.lock()),
        }
    }

    fn note(&self) -> Option<String> {
        self.interface.as_ref().and_then(Interface::note)
    }

    fn add_stats(&self, port: &Port, stats: &mut PortStats) {
        let mut driver = ffi::Stats::default();
        let _control = port.eal.lock();
        // SAFETY: the port is open; the shim writes `driver` on success only.
        if unsafe { ffi::shim_eth_stats(port.as_ptr(), &mut driver) } == 0 {
            stats.rx_dropped += driver.rx_missed + driver.rx_no_buffer;
            stats.rx_errors += driver.rx_errors;
            if self.tx_errors_are_losses {
                // The queue counted them as sent when the driver took them.
                stats.tx_packets = stats.tx_packets.saturating_sub(driver.tx_errors);
                stats.tx_dropped += driver.tx_errors;
            }
        }
    }

    fn mac(&self, port: &Port) -> Option<MacAddress> {
        let mut bytes = [0; 6];
        // SAFETY: the port is open; the shim writes six bytes.
        let result = unsafe { ffi::shim_eth_mac(port.as_ptr(), &mut bytes) };
        (result == 0 && bytes != [0; 6]).then_some(MacAddress(bytes))
    }
}

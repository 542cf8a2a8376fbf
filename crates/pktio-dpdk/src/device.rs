//! A port of the shim as [`Device`]: what all kinds have in common. What differs is who is behind the port ([`Behind`]).
//!
//! Threads: control's; queues are `queue`'s. Tests: `tests/ports.rs`, `tests/peers.rs`.

use crate::queue::Port;
use pktio::{Device, LinkState, MacAddress, PoolRef, PortStats, Queue};
use std::sync::Arc;

/// Who knows of a port what its queues do not.
pub(crate) trait Behind: Send {
    fn link(&self, port: &Port) -> LinkState;

    /// Adds what was lost or broken before it reached a queue, or after it has left one.
    fn add_stats(&self, _port: &Port, _stats: &mut PortStats) {}

    fn mac(&self, _port: &Port) -> Option<MacAddress> {
        None
    }

    fn mtu(&self, port: &Port) -> u16 {
        port.mtu()
    }

    /// What keeps packets from passing.
    fn note(&self) -> Option<String> {
        None
    }
}

/// An open port.
pub(crate) struct PortDevice<B> {
    name: String,
    kind: &'static str,
    port: Arc<Port>,
    behind: B,
    queues_taken: bool,
}

impl<B: Behind> PortDevice<B> {
    /// As its user named it, and of a kind in one word.
    pub(crate) fn new(name: String, kind: &'static str, port: Arc<Port>, behind: B) -> PortDevice<B> {
        PortDevice { name, kind, port, behind, queues_taken: false }
    }
}

impl<B: Behind> Device for PortDevice<B> {
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
        self.behind.link(&self.port)
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.port.stats();
        self.behind.add_stats(&self.port, &mut stats);
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        self.behind.mac(&self.port)
    }

    fn mtu(&self) -> u16 {
        self.behind.mtu(&self.port)
    }

    fn note(&self) -> Option<String> {
        self.behind.note()
    }
}

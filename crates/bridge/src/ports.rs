//! Ports, as OpenFlow describes them.

use openflow::message::Port;
use std::collections::BTreeMap;

/// `OFPPC_` bits: those of OpenFlow 1.3, and those that only 1.0 has.
pub mod config {
    /// The port is administratively down.
    pub const PORT_DOWN: u32 = 1 << 0;
    /// Drops received packets except for spanning tree frames (1.0).
    pub const NO_STP: u32 = 1 << 1;
    /// Drops received packets.
    pub const NO_RECV: u32 = 1 << 2;
    /// Drops received spanning tree frames (1.0).
    pub const NO_RECV_STP: u32 = 1 << 3;
    /// Does not take part in flooding (1.0).
    pub const NO_FLOOD: u32 = 1 << 4;
    /// Drops packets sent to it.
    pub const NO_FWD: u32 = 1 << 5;
    /// Table misses of its packets cause no packet-ins.
    pub const NO_PACKET_IN: u32 = 1 << 6;
    /// The bits that a port mod may change.
    pub const ALL: u32 = PORT_DOWN | NO_STP | NO_RECV | NO_RECV_STP | NO_FLOOD | NO_FWD | NO_PACKET_IN;
    /// The bits that exist in 1.1 and later.
    pub const SINCE_11: u32 = PORT_DOWN | NO_RECV | NO_FWD | NO_PACKET_IN;
}

/// `OFPPS_` bits.
pub mod state {
    /// No link.
    pub const LINK_DOWN: u32 = 1 << 0;
    /// A protocol outside of OpenFlow blocks it.
    pub const BLOCKED: u32 = 1 << 1;
    /// Fast failover groups may use it.
    pub const LIVE: u32 = 1 << 2;
}

/// The ports of a bridge, by number.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    all: BTreeMap<u32, Port>,
}

impl Ports {
    /// A port.
    pub fn get(&self, number: u32) -> Option<&Port> {
        self.all.get(&number)
    }

    /// All ports, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.all.values()
    }

    /// The number of ports.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no ports.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a port has all of these [`config`] bits. A port that does not exist has none.
    pub fn has(&self, number: u32, bits: u32) -> bool {
        self.get(number).is_some_and(|port| port.config & bits == bits)
    }

    /// Whether a port can send: it exists, is not down and has a link.
    pub fn is_up(&self, number: u32) -> bool {
        self.get(number).is_some_and(is_up)
    }

    /// Replaces or removes a port; returns the old one.
    pub(crate) fn replace(&mut self, number: u32, port: Option<Port>) -> Option<Port> {
        match port {
            Some(port) => self.all.insert(number, port),
            None => self.all.remove(&number),
        }
    }
}

/// Whether a port can send.
pub fn is_up(port: &Port) -> bool {
    port.config & config::PORT_DOWN == 0 && port.state & state::LINK_DOWN == 0
}

/// Sets [`state::LIVE`] according to the port's other bits.
pub(crate) fn set_live(port: &mut Port) {
    port.state &= !state::LIVE;
    if is_up(port) {
        port.state |= state::LIVE;
    }
}

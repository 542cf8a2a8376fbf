//! A controller's packets for which workers have no room yet.
//!
//! They are sent in order, and before any later request of the controller is processed. So no packet is lost, and
//! the controller is slowed down to what workers process. Controllers take turns (`turns`), and none takes more of
//! the memory for such packets than it leaves to others (`pending`).

use crate::bridge::Bridge;
use crate::host::NotInjected;
use crate::memory::Charge;
use crate::turns::Answer;
use openflow::memory as heap;
use openflow::message::PacketOut;
use std::collections::VecDeque;

/// A resumed packet: its frame, input port, and id in [`Bridge::pending`].
pub(crate) type Resumed = (Vec<u8>, u32, u64);

/// Cost of a packet besides its frame and actions, in bytes: even short packets cost workers something.
const PACKET_BYTES: usize = 192;

/// The waiting packets of a connection. A request adds to one of the two, when both are empty.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Packet-outs that were admitted.
    pub packet_outs: VecDeque<PacketOut>,
    /// Their memory charge, if they come from a bundle.
    pub charge: Charge,
    /// A paused packet that the controller has resumed.
    pub resumed: Option<Resumed>,
    /// Whether the connection is among those that take turns.
    takes_turns: bool,
}

impl Waiting {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packet_outs.is_empty() && self.resumed.is_none()
    }

    /// Injects waiting packets until the switch takes no more. Returns whether none is left.
    pub fn send(&mut self, bridge: &Bridge, connection: u64) -> bool {
        while let Some(packet) = self.packet_outs.pop_front() {
            let bytes = (packet.frame.len() + heap::slice(&packet.actions) + PACKET_BYTES) as u64;
            if !self.ask(bridge, connection, bytes) {
                self.packet_outs.push_front(packet);
                return false;
            }
            if let Err((packet, why)) = bridge.packet_out(connection, packet) {
                self.packet_outs.push_front(packet);
                match why {
                    Held::Busy => self.wait(bridge, connection),
                    Held::Share => self.leave(bridge, connection),
                }
                return false;
            }
            bridge.turns.sent(connection, bytes);
        }
        self.charge = Charge::default();
        if let Some(resumed) = self.resumed.take()
            && let Err(why) = self.resume(bridge, connection, resumed)
        {
            tracing::debug!("a packet cannot go on: {why}");
        }
        self.resumed.is_none()
    }

    /// Injects a resumed packet, now or when there is room. Fails if the switch cannot take it at all.
    pub fn resume(&mut self, bridge: &Bridge, connection: u64, (frame, in_port, start): Resumed) -> Result<(), String> {
        let bytes = (frame.len() + PACKET_BYTES) as u64;
        if !self.ask(bridge, connection, bytes) {
            self.resumed = Some((frame, in_port, start));
            return Ok(());
        }
        match bridge.host().inject(frame, in_port, start) {
            Ok(()) => {
                bridge.turns.sent(connection, bytes);
                Ok(())
            }
            Err(NotInjected::Busy(frame)) => {
                self.resumed = Some((frame, in_port, start));
                self.wait(bridge, connection);
                Ok(())
            }
            Err(NotInjected::Failed(why)) => {
                bridge.pending.forget(start);
                Err(why)
            }
        }
    }

    /// Whether the connection may send `bytes` now.
    fn ask(&mut self, bridge: &Bridge, connection: u64, bytes: u64) -> bool {
        let (answer, woken) = bridge.turns.ask(connection, bytes, bridge.host().now_us());
        self.takes_turns |= answer != Answer::Alone;
        wake(bridge, woken);
        answer != Answer::Wait
    }

    fn wait(&mut self, bridge: &Bridge, connection: u64) {
        self.takes_turns = true;
        bridge.turns.wait(connection, bridge.host().now_us());
    }

    /// Gives up the connection's turn: it has nothing to send, or cannot now.
    pub fn leave(&mut self, bridge: &Bridge, connection: u64) {
        if std::mem::take(&mut self.takes_turns) {
            wake(bridge, bridge.turns.leave(connection, bridge.host().now_us()));
        }
    }

    /// Drops everything, because the connection ends.
    pub fn end(&mut self, bridge: &Bridge, connection: u64) {
        self.leave(bridge, connection);
        *self = Waiting::default();
    }
}

fn wake(bridge: &Bridge, connection: Option<u64>) {
    if let Some(connection) = connection {
        bridge.host().wake(connection);
    }
}

/// Why a packet cannot be injected yet.
pub(crate) enum Held {
    /// Workers have no room for packets.
    Busy,
    /// The connection's memory share is used up by packets that workers have not started on.
    Share,
}

impl Bridge {
    /// Injects an admitted packet-out ([`crate::flow_mod::Plan::packet_out`]). Returns it, with the reason, if
    /// there is no room.
    pub(crate) fn packet_out(&self, from: u64, packet: PacketOut) -> Result<(), (PacketOut, Held)> {
        let start = self.pending.insert(from, packet.actions.clone(), packet.in_port, packet.fields.clone());
        let Some(start) = start else { return Err((packet, Held::Share)) };
        match self.host.inject(packet.frame, packet.in_port, start) {
            Ok(()) => Ok(()),
            Err(NotInjected::Busy(frame)) => {
                self.pending.forget(start);
                Err((PacketOut { frame, ..packet }, Held::Busy))
            }
            Err(NotInjected::Failed(why)) => {
                self.pending.forget(start);
                tracing::debug!("packet-out: {why}");
                Ok(())
            }
        }
    }
}

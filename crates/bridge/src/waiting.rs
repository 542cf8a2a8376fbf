//! Packets of a controller that workers have no room for yet.
//!
//! They are sent in order, and before anything else that the controller asks for, so that no packet is lost and the controller is
//! slowed down to what workers take. Controllers take turns (`turns`), and none takes more of the memory for such packets than it
//! leaves to others (`pending`).

use crate::bridge::Bridge;
use crate::host::NotInjected;
use crate::memory::Charge;
use crate::turns::Answer;
use openflow::memory as heap;
use openflow::message::PacketOut;
use std::collections::VecDeque;

/// A packet that was paused: its frame, port and number among [`Bridge::pending`].
pub(crate) type Resumed = (Vec<u8>, u32, u64);

/// Bytes of a packet beside its frame and actions: it costs workers something even if these are short.
const PACKET_BYTES: usize = 192;

/// What waits. A request adds to one of the two, when both are empty.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Packet-outs that were admitted.
    pub packet_outs: VecDeque<PacketOut>,
    /// The memory that they take, if they were a bundle's.
    pub charge: Charge,
    /// A packet that goes on.
    pub resumed: Option<Resumed>,
    /// Whether the connection is among those that take turns.
    takes_turns: bool,
}

impl Waiting {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packet_outs.is_empty() && self.resumed.is_none()
    }

    /// Injects a connection's waiting packet-outs until the switch takes no more. Returns whether none is left.
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

    /// Lets a packet go on, now or when there is room; an error if nothing takes it.
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

    /// Whether it may send so many bytes now.
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

    /// Nothing is left to be sent, or not now: others may go on.
    pub fn leave(&mut self, bridge: &Bridge, connection: u64) {
        if std::mem::take(&mut self.takes_turns) {
            wake(bridge, bridge.turns.leave(connection, bridge.host().now_us()));
        }
    }

    /// The connection ends.
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

/// Why a packet waits.
pub(crate) enum Held {
    /// Workers have no room for packets.
    Busy,
    /// The connection's packets that workers have not begun with take all of its share of the memory.
    Share,
}

impl Bridge {
    /// Sends a connection's packet that [`crate::flow_mod::Plan::packet_out`] has admitted; gives it back while too many wait.
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

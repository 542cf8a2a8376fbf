//! Packets of a controller that workers have no room for yet.
//!
//! They are sent in order, and before anything else that the controller asks for, so that no packet is lost and the controller is
//! slowed down to what workers take.

use crate::bridge::Bridge;
use crate::host::NotInjected;
use crate::memory::Charge;
use openflow::message::PacketOut;
use std::collections::VecDeque;

/// A packet that was paused: its frame, port and number among [`Bridge::pending`].
pub(crate) type Resumed = (Vec<u8>, u32, u64);

/// What waits. A request adds to one of the two, when both are empty.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Packet-outs that were admitted.
    pub packet_outs: VecDeque<PacketOut>,
    /// The memory that they take, if they were a bundle's.
    pub charge: Charge,
    /// A packet that goes on.
    pub resumed: Option<Resumed>,
}

impl Waiting {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packet_outs.is_empty() && self.resumed.is_none()
    }

    /// Injects waiting packet-outs until the switch takes no more. Returns whether none is left.
    pub fn send(&mut self, bridge: &Bridge) -> bool {
        while let Some(packet) = self.packet_outs.pop_front() {
            if let Err(packet) = bridge.packet_out(packet) {
                self.packet_outs.push_front(packet);
                return false;
            }
        }
        self.charge = Charge::default();
        if let Some(resumed) = self.resumed.take()
            && let Err(why) = self.resume(bridge, resumed)
        {
            tracing::debug!("a packet cannot go on: {why}");
        }
        self.resumed.is_none()
    }

    /// Lets a packet go on, now or when there is room; an error if nothing takes it.
    pub fn resume(&mut self, bridge: &Bridge, (frame, in_port, start): Resumed) -> Result<(), String> {
        match bridge.host().inject(frame, in_port, start) {
            Ok(()) => Ok(()),
            Err(NotInjected::Busy(frame)) => {
                self.resumed = Some((frame, in_port, start));
                Ok(())
            }
            Err(NotInjected::Failed(why)) => {
                bridge.pending.forget(start);
                Err(why)
            }
        }
    }
}

//! bmv2's event stream (`--nanolog`): a nanomsg message for each step of a packet, with ids instead of names.
//!
//! Messages are in the machine's byte order, without padding; sizes are in bytes:
//!
//! ```text
//!   type (4)  device (8)  context (4)  signature (8)  packet (8)  copy (8)        then one or two numbers of 4 bytes
//! ```
//!
//! The signature is XXH64 of the frame as received; packet and copy numbers are those of the log. A condition's result
//! is 1
//! if it holds.
//!
//! Source: `event_logger.cpp` and `nanomsg_client.py` of behavioral-model. Tests: below, `tests/py/test_bmv2_events.py`.

/// Message types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum EventKind {
    PacketIn = 0,
    PacketOut = 1,
    ParserStart = 2,
    ParserDone = 3,
    ParserExtract = 4,
    DeparserStart = 5,
    DeparserDone = 6,
    DeparserEmit = 7,
    ChecksumUpdate = 8,
    PipelineStart = 9,
    PipelineDone = 10,
    ConditionEval = 11,
    TableHit = 12,
    TableMiss = 13,
    ActionExecute = 14,
    ConfigChange = 999,
}

/// A step of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub kind: EventKind,
    /// The number of the packet's copy.
    pub copy: u64,
    /// The port or ids, and the result of a condition.
    pub numbers: Vec<i32>,
}

/// The common part of the messages about one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    pub device: u64,
    pub signature: u64,
    pub packet: u64,
}

impl Event {
    /// Encodes the message.
    pub fn message(&self, subject: Subject) -> Vec<u8> {
        const CONTEXT: i32 = 0;
        let mut message = (self.kind as i32).to_ne_bytes().to_vec();
        message.extend(subject.device.to_ne_bytes());
        message.extend(CONTEXT.to_ne_bytes());
        message.extend([subject.signature, subject.packet, self.copy].into_iter().flat_map(u64::to_ne_bytes));
        message.extend(self.numbers.iter().flat_map(|number| number.to_ne_bytes()));
        message
    }
}

/// Returns the message that another program runs.
pub fn config_change(device: u64) -> Vec<u8> {
    let event = Event { kind: EventKind::ConfigChange, copy: 0, numbers: Vec::new() };
    event.message(Subject { device, ..Subject::default() })
}

/// Returns the signature of a frame.
pub fn signature(frame: &[u8]) -> u64 {
    interp::hash::hash(ir::HashAlgorithm::Xxh64, &base::Bits::zero(0), frame).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_layout_that_clients_unpack() {
        let event = Event { kind: EventKind::TableHit, copy: 2, numbers: vec![5, -1] };
        let message = event.message(Subject { device: 3, signature: 7, packet: 9 });
        let expected = [
            &12i32.to_ne_bytes()[..],
            &3u64.to_ne_bytes(),
            &0i32.to_ne_bytes(),
            &7u64.to_ne_bytes(),
            &9u64.to_ne_bytes(),
            &2u64.to_ne_bytes(),
            &5i32.to_ne_bytes(),
            &(-1i32).to_ne_bytes(),
        ];
        assert_eq!(message, expected.concat());
        assert_eq!(config_change(1).len(), 40);
        assert_eq!(config_change(1)[..4], 999i32.to_ne_bytes());
    }

    #[test]
    fn signatures_are_xxh64() {
        assert_eq!(signature(b""), 0xef46_db37_51d8_e999);
        assert_eq!(signature(b"abc"), 0x44bc_2cf5_ad77_0999);
    }
}

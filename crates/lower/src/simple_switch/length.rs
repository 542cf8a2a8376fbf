//! `packet_length` in egress: the length of the packet at that point, with headers that ingress added and without those
//! that it removed.
//!
//! bmv2 maintains a running length that `setValid` and `setInvalid` update and that egress starts with. Here it is
//! computed from the headers whose validity ingress writes, by summing them after the parser and again at the end of
//! ingress. The length of an egress-to-egress clone is computed in the same manner at the end of the egress that makes
//! it.
//!
//! ```text
//! length_start   $rest.ingress = packet_length - bytes(valid headers)
//! ingress_end    packet_length = $rest.ingress + bytes(valid headers)
//! ```
//!
//! This code is emitted only if egress reads the length, and ingress (for clones: egress) makes headers valid or
//! invalid.
//!
//! Tests: `tests/stf/v1model/length.stf` at the root.

use super::{Glue, PacketHeader};
use ir::{BinOp, Op, Operand, SlotId, StageId};

/// What is needed to track the length through a control.
pub(super) struct Length {
    packet_length: SlotId,
    /// The slot with the length in bytes without the headers that may change.
    rest: SlotId,
    headers: Vec<PacketHeader>,
}

impl Glue<'_> {
    /// For ingress: a stage after the parser, and what the end of ingress needs.
    pub(super) fn length_through_ingress(&mut self) -> (Option<StageId>, Option<Length>) {
        let Some(length) = self.length_through(self.stages.ingress, "$rest.ingress") else { return (None, None) };
        let stage = self.open_stage("length_start");
        self.note_rest(&length);
        self.close_stage();
        (Some(stage), Some(length))
    }

    /// For egress, whose clones start egress again.
    pub(super) fn length_through_egress(&mut self) -> Option<Length> {
        if !self.state.clones_at_egress {
            return None;
        }
        self.length_through(self.stages.egress, "$rest.egress")
    }

    fn length_through(&mut self, stage: StageId, name: &str) -> Option<Length> {
        let packet_length = self.standard("packet_length").filter(|s| self.reads(self.stages.egress, *s))?;
        let program = self.b.program();
        let headers: Vec<PacketHeader> = self.headers.iter().filter(|h| self.writes(stage, h.valid)).cloned().collect();
        if headers.is_empty() {
            return None;
        }
        let width = program.width(packet_length);
        Some(Length { packet_length, rest: self.b.metadata(name, width), headers })
    }

    /// At the start of the control: computes the length without the headers that may change.
    pub(super) fn note_rest(&mut self, length: &Length) {
        let bytes = self.bytes_of(length);
        self.b.emit(Op::Bin { op: BinOp::Sub, dst: length.rest, a: length.packet_length.into(), b: bytes });
    }

    /// At the end of the control: computes the new length.
    pub(super) fn set_length(&mut self, length: &Length) {
        let bytes = self.bytes_of(length);
        self.b.emit(Op::Bin { op: BinOp::Add, dst: length.packet_length, a: length.rest.into(), b: bytes });
    }

    /// Total length in bytes of those headers that are valid.
    fn bytes_of(&mut self, length: &Length) -> Operand {
        let width = self.b.program().width(length.packet_length);
        let zero = Operand::new_const(width, 0);
        let mut sum = zero.clone();
        for header in &length.headers {
            let mut bytes = Operand::new_const(width, u128::from(header.fixed_bits / 8));
            if let Some(varbit) = header.varbit_bits {
                let bits = self.b.resize_u(width, varbit);
                let more = self.b.bin(BinOp::Lshr, bits, Operand::new_const(width, 3));
                bytes = self.b.bin(BinOp::Add, bytes, more).into();
            }
            let part = self.b.select(header.valid, bytes, zero.clone());
            sum = self.b.bin(BinOp::Add, sum, part).into();
        }
        sum
    }
}

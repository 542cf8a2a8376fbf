//! Elimination of redundant checks of the packet's length.
//!
//! Needs: a well-formed program, preferably after constant propagation. Guarantees: same behaviour. A `has_bits`
//! becomes constant if on all paths an earlier one has proved that many bits, less those consumed since.
//!
//! ```text
//! %0 = has_bits 32w160                     %0 = has_bits 32w160
//! branch %0, b1, b2                        branch %0, b1, b2
//! b1:                              =>      b1:
//! extract hdr.eth        (112 bits)        extract hdr.eth
//! %1 = has_bits 32w16                      %1 = mov 1w1
//! ```
//!
//! Checks are not merged into an earlier, larger one: for a packet that is too short for the second header, the first
//! must still become valid.
//!
//! Tests: `tests/files/length_checks.ir`, `tests/properties.rs`.

use base::Bits;
use ir::packet_bounds::{PacketBounds, bounds_at_entry};
use ir::{Cfg, Op, Operand, Program, StageKind};

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut known = Vec::new();
    for (s, stage) in program.stages.iter().enumerate().filter(|(_, s)| s.kind == StageKind::Parser) {
        let cfg = Cfg::new(stage);
        let at_entry = bounds_at_entry(program, stage, &cfg);
        for b in &cfg.rpo {
            let Some(mut room) = at_entry[b.index()].clone() else { continue };
            for (i, inst) in stage.blocks[b.index()].insts.iter().enumerate() {
                if is_known(&inst.op, &room) {
                    known.push((s, b.index(), i));
                }
                let wanted = room.step(program, &inst.op);
                room.advance(&inst.op, wanted);
            }
        }
    }
    for &(s, b, i) in &known {
        let inst = &mut program.stages[s].blocks[b].insts[i];
        if let Op::HasBits { dst, .. } = inst.op {
            inst.op = Op::Mov { dst, src: Operand::Const(Bits::from_bool(true)) };
        }
    }
    !known.is_empty()
}

fn is_known(op: &Op, room: &PacketBounds) -> bool {
    match op {
        Op::HasBits { bits: Operand::Const(bits), .. } => {
            // Rounded to whole bytes, as the check proves them: after a cursor within a byte, which occurs only in
            // unreachable code, other accesses may rely on the rest of the last byte.
            room.bits != PacketBounds::TRUSTED && bits.to_u64().is_some_and(|bits| bits.div_ceil(8) <= room.bits / 8)
        }
        _ => false,
    }
}

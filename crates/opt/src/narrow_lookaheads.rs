//! Narrowing of wide lookaheads: slices and truncations of them become lookaheads of their own.
//!
//! Needs: nothing. Guarantees: same behaviour. A slice of at most 64 bits of a lookahead of more than 64 bits reads the
//! packet directly, unless the cursor moves or the value is assigned in between. If only slices read the wide value, it
//! becomes dead: a parser that looks ahead at a protocol number and a port then loads only these.
//!
//! ```text
//! %0 = lookahead 0          (304 bits)     %0 = lookahead 0
//! %1 = slice %0, 119, 112             =>    %1 = lookahead 184
//! ```
//!
//! Tests: `tests/files/narrow_lookaheads.ir`, `tests/properties.rs`.

use ir::{CastKind, Op, Operand, Program, SlotId, StageKind};
use std::collections::BTreeMap;

/// The number of bits that one load can read.
const WORD: u32 = 64;

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut changed = false;
    for s in 0..program.stages.len() {
        if program.stages[s].kind != StageKind::Parser {
            continue;
        }
        for b in 0..program.stages[s].blocks.len() {
            // For each slot with a lookahead's value, the offset from the cursor in bits.
            let mut known: BTreeMap<SlotId, u32> = BTreeMap::new();
            for i in 0..program.stages[s].blocks[b].insts.len() {
                let op = &program.stages[s].blocks[b].insts[i].op;
                let narrow = narrowed(program, op, &known);
                let examined = match *op {
                    Op::Lookahead { dst, offset } if program.width(dst) > WORD => Some((dst, offset)),
                    _ => None,
                };
                if matches!(op, Op::Extract { .. } | Op::Advance { .. }) {
                    known.clear();
                }
                op.for_each_def(program, |slot| _ = known.remove(&slot));
                known.extend(examined);
                if let Some(narrow) = narrow {
                    program.stages[s].blocks[b].insts[i].op = narrow;
                    changed = true;
                }
            }
        }
    }
    changed
}

/// The narrow lookahead for a slice or truncation.
fn narrowed(program: &Program, op: &Op, known: &BTreeMap<SlotId, u32>) -> Option<Op> {
    let (dst, of, hi, lo) = match *op {
        Op::Slice { dst, a: Operand::Slot(of), hi, lo } => (dst, of, hi, lo),
        // Truncation to the lowest bits.
        Op::Cast { kind: CastKind::Trunc, dst, a: Operand::Slot(of) } => (dst, of, program.width(dst) - 1, 0),
        _ => return None,
    };
    let offset = known.get(&of).filter(|_| hi - lo < WORD)?;
    // The packet's first bit is the value's most significant.
    Some(Op::Lookahead { dst, offset: offset + program.width(of) - 1 - hi })
}

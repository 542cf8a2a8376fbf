//! Charges that add up to little are removed, as those of loops that were unrolled.
//!
//! Needs: a well-formed program. Guarantees: same behaviour. An entry of which no loop remains spends at most the sum
//! of what the most expensive path of each of its stages is charged with; where that is within [`FREE_STEPS`], no
//! packet is given up there, and nothing of it is counted. A stage of several entries keeps its charges if one of them
//! needs them.
//!
//! ```text
//! b0: charge 14            b0: (extract of s[0])
//!     (extract of s[0])    b1: (extract of s[1])
//! b1: charge 14         =>     next
//!     (extract of s[1])
//!     next
//! ```
//!
//! Tests: `tests/files/small_charges.ir`, `tests/properties.rs`.

use ir::cost::{FREE_STEPS, charged_at_most};
use ir::{Op, Program, StageId};
use std::collections::HashSet;

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let most: Vec<Option<u64>> = program.stages.iter().map(charged_at_most).collect();
    let mut needed: HashSet<StageId> = HashSet::new();
    for entry in &program.entries {
        let together = entry.stages.iter().try_fold(0u64, |sum, s| Some(sum.saturating_add(most[s.index()]?)));
        if together.is_none_or(|steps| steps > FREE_STEPS) {
            needed.extend(&entry.stages);
        }
    }
    let mut changed = false;
    for (s, stage) in program.stages.iter_mut().enumerate() {
        if most[s].is_none_or(|steps| steps == 0) || needed.contains(&StageId::from_index(s)) {
            continue;
        }
        for block in &mut stage.blocks {
            block.insts.retain(|inst| !matches!(inst.op, Op::Charge { .. }));
        }
        changed = true;
    }
    changed
}

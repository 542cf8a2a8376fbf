//! Removes the tracer's marks, which would prevent the merging of blocks.
//!
//! Needs: nothing. Guarantees: no `mark` remains. The tracer uses the program before optimisation.
//!
//! ```text
//! mark state "start"      =>      extract hdr.eth
//! extract hdr.eth
//! ```
//!
//! Tests: `tests/files/strip_marks.ir`.

use ir::{Op, Program};

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut changed = false;
    for block in program.stages.iter_mut().flat_map(|s| &mut s.blocks) {
        let before = block.insts.len();
        block.insts.retain(|inst| !matches!(inst.op, Op::Mark(_)));
        changed |= block.insts.len() != before;
    }
    changed
}

//! Removes the tracer's marks, which would keep blocks from being merged.
//!
//! Needs: nothing. Guarantees: no `mark` is left. Traces are made on the program before optimisation.
//!
//! ```text
//! mark state "start"      =>      extract hdr.eth
//! extract hdr.eth
//! ```
//!
//! Tests: `tests/files/strip_marks.ir`.

use ir::{Op, Program};

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut changed = false;
    for block in program.stages.iter_mut().flat_map(|s| &mut s.blocks) {
        let before = block.insts.len();
        block.insts.retain(|inst| !matches!(inst.op, Op::Mark(_)));
        changed |= block.insts.len() != before;
    }
    changed
}

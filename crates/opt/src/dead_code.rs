//! Elimination of dead code and of dead tables.
//!
//! Needs: a well-formed program.
//!
//! Guarantees: same behaviour except for time. `dead_code` removes instructions whose only effect is to write slots
//! that are dead on all paths, through later stages and the replication engine. `dead_tables` removes lookups whose
//! results are not used (PVPP's *removing redundant tables*); the table's declaration remains, so that the control
//! plane can still write it. Tables with idle timeouts keep their lookups, since the control plane can observe a hit.
//!
//! ```text
//! x = add y, 8w1                                      (x is not read again)
//! %0, %1, %2, %3 = apply t (k)            =>          (nor are these)
//! ```
//!
//! One run removes chains of dead instructions within a block, since liveness is updated during the backward walk; the
//! pass pipeline repeats the passes while anything changes.
//!
//! Tests: `tests/files/dead_code.ir`, `tests/files/dead_tables.ir`, `tests/properties.rs`.

use crate::graph::Node;
use crate::liveness::Liveness;
use ir::{Op, Program};

/// Removes dead instructions; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    remove_dead(program, |_, op| op.is_removable())
}

/// Removes dead lookups; returns whether anything changed.
pub(crate) fn run_tables(program: &mut Program) -> bool {
    remove_dead(program, |program, op| match op {
        // A table that packets write may evict entries by the time of their hits, so that its lookups have an effect.
        Op::Apply { table, .. } => {
            let table = &program.tables[table.index()];
            !table.idle_timeout && table.dynamic.is_none()
        }
        _ => false,
    })
}

/// Removes the instructions that `may_go` allows and whose results are all dead.
fn remove_dead(program: &mut Program, may_go: impl Fn(&Program, &Op) -> bool) -> bool {
    let liveness = Liveness::new(program);
    let mut changed = false;
    for &node in &liveness.graph.rpo {
        let Node::Block(stage, block_id) = liveness.graph.nodes[node] else { continue };
        let block = &program.stages[stage.index()].blocks[block_id.index()];
        let mut keep = vec![true; block.insts.len()];
        liveness.for_each_backwards(program, node, block, |i, op, dead| {
            keep[i] = !(dead && may_go(program, op));
            keep[i]
        });
        if keep.contains(&false) {
            changed = true;
            let mut keep = keep.into_iter();
            program.stages[stage.index()].blocks[block_id.index()].insts.retain(|_| keep.next() == Some(true));
        }
    }
    changed
}

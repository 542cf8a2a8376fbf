//! Dead code and dead table elimination.
//!
//! Needs: a well-formed program.
//!
//! Guarantees: same behaviour, but for time. `dead_code` removes instructions that do nothing but write slots that
//! nothing reads, on any path through later stages and the replication engine. `dead_tables` removes lookups whose result
//! is not looked at (PVPP's *removing redundant tables*); the table's declaration stays, so the control plane can go on
//! writing it. Tables with idle timeouts keep their lookups: a hit is visible to the control plane.
//!
//! ```text
//! x = add y, 8w1                                      (x is not read again)
//! %0, %1, %2, %3 = apply t (k)            =>          (nor are these)
//! ```
//!
//! One run removes chains: liveness is followed backwards through what is removed within a block, and the pipeline
//! runs the passes again while they find something.
//!
//! Tests: `tests/files/dead_code.ir`, `tests/files/dead_tables.ir`, `tests/properties.rs`.

use crate::graph::Node;
use crate::liveness::Liveness;
use ir::{Op, Program};

/// Removes instructions that nothing depends on; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    remove_dead(program, |_, op| op.is_removable())
}

/// Removes lookups that nothing depends on; whether anything changed.
pub(crate) fn run_tables(program: &mut Program) -> bool {
    remove_dead(program, |program, op| match op {
        // Of a table that packets write, entries of which may be evicted by the time of their hits.
        Op::Apply { table, .. } => {
            let table = &program.tables[table.index()];
            !table.idle_timeout && table.dynamic.is_none()
        }
        _ => false,
    })
}

/// Removes the instructions that `may_go` allows to and whose results are all dead.
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

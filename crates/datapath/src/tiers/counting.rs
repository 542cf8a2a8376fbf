//! The program variant that runs while someone watches: each lookup also counts the action it returned.
//!
//! ```text
//!   apply T(keys) -> hit, action, ...          apply T(keys) -> hit, action, ...
//!                                       =>     count "actions of T", action
//! ```
//!
//! The counters are externs appended to the program's own, one per table in table order; their cells are
//! `FastState::actions`. The input is the optimised program, so the code is otherwise the same; actions that
//! `opt::assume` makes constant are constants in the counts, too.
//!
//! Tests: `tests/watch.rs`.

use base::Span;
use ir::{CounterUnit, Extern, ExternId, ExternKind, Inst, Op, Operand, Program};

/// The program with action counters added.
pub(super) fn counting(program: &Program) -> Program {
    let mut new = program.clone();
    let own = program.externs.len();
    for table in &program.tables {
        new.externs.push(Extern {
            name: format!("actions of {}", table.name),
            span: Span::NONE,
            kind: ExternKind::Counter { size: table.actions.len() as u64, unit: CounterUnit::Packets, direct: None },
        });
    }
    for block in new.stages.iter_mut().flat_map(|stage| &mut stage.blocks) {
        for inst in std::mem::take(&mut block.insts) {
            let count = match &inst.op {
                Op::Apply { table, action, .. } => Some(Inst {
                    op: Op::Count {
                        counter: ExternId::from_index(own + table.index()),
                        index: Operand::Slot(*action),
                        bytes: None,
                    },
                    span: inst.span,
                }),
                _ => None,
            };
            block.insts.push(inst);
            block.insts.extend(count);
        }
    }
    new
}

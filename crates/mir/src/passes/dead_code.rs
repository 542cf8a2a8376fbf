//! Dead code elimination, including unused block parameters.
//!
//! Marking starts from instructions with effects and from terminators and follows operands (Cytron et al., TOPLAS 1991,
//! section 7.1, without control dependences: all branches are kept). A cycle of values that only use each other is
//! removed too.
//!
//! Needs: a well-formed function. Guarantees: every value is used by an instruction with effects, a terminator or
//! another such value; unused loads and lookups, and calls that write nothing, are removed.
//!
//! ```text
//! v1 = load.i32 be4 frame v0+12
//! v2 = const.i32 1                          v2 = const.i32 1
//! jump b1(v1, v2)                  =>       jump b1(v2)
//! b1(v3: i32, v4: i32):                     b1(v4: i32):
//!   return v4                                 return v4
//! ```
//!
//! Tests: `tests/passes/dead_code.mir`.

use crate::function::{Definition, Function, Module};
use crate::op::Terminator;
use crate::types::{Block, Value};

/// Runs the pass.
pub(super) fn run(module: &Module, function: &mut Function) -> bool {
    let definitions = function.definitions();
    let mut is_needed = vec![false; function.values.len()];
    let mut waiting = Vec::new();
    // By block: the edges to it, including those from unreachable blocks, which must pass arguments too.
    let mut incoming: Vec<Vec<(Block, usize)>> = vec![Vec::new(); function.blocks.len()];
    for &block in &function.layout {
        let data = function.block(block);
        for inst in &data.insts {
            if inst.op.is_hint() || !inst.op.effects(|callee| module.effects_of(callee)).is_removable() {
                inst.op.operands(|value| waiting.push(value));
            }
        }
        for (i, edge) in data.terminator.edges().enumerate() {
            incoming[edge.block.index()].push((block, i));
        }
        match &data.terminator {
            Terminator::Branch(value, ..) | Terminator::Switch(value, ..) | Terminator::Return(Some(value)) => {
                waiting.push(*value);
            }
            _ => {}
        }
    }
    waiting.extend(function.params());
    while let Some(value) = waiting.pop() {
        if std::mem::replace(&mut is_needed[value.index()], true) {
            continue;
        }
        match definitions[value.index()] {
            Some(Definition::Inst(block, i)) => function.block(block).insts[i].op.operands(|value| waiting.push(value)),
            Some(Definition::Param(block, i)) => {
                for (from, edge) in &incoming[block.index()] {
                    let edge = function.block(*from).terminator.edges().nth(*edge).expect("an edge of the block");
                    waiting.push(edge.args[i]);
                }
            }
            None => {}
        }
    }
    let needed = |value: Value| is_needed[value.index()];
    let mut changed = false;
    // By block: which parameters are kept.
    let kept: Vec<Vec<bool>> =
        function.blocks.iter().map(|block| block.params.iter().map(|param| needed(*param)).collect()).collect();
    for block in function.layout.clone() {
        let data = function.block_mut(block);
        let before = data.insts.len();
        data.insts.retain(|inst| {
            inst.op.is_hint()
                || inst.result.is_some_and(needed)
                || !inst.op.effects(|callee| module.effects_of(callee)).is_removable()
        });
        changed |= data.insts.len() != before;
        if kept[block.index()].contains(&false) {
            data.params.retain(|param| needed(*param));
            changed = true;
        }
        for edge in data.terminator.edges_mut() {
            let mut kept = kept[edge.block.index()].iter();
            edge.args.retain(|_| *kept.next().expect("as many arguments as parameters"));
        }
    }
    changed
}

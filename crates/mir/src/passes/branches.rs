//! Branch simplification: branches with a known outcome, jump threading, block merging, unreachable blocks.
//!
//! - A branch or switch on a constant, or whose edges are all the same, becomes a jump; a branch on a negation is
//!   inverted.
//! - *Jump threading*: consider a block without instructions that ends in a jump, or in a branch on a parameter for
//!   which the edge passes a constant. The edge goes directly to the target.
//! - A block whose only predecessor jumps to it is merged into that.
//! - Unreachable blocks leave the layout.
//!
//! Needs: a well-formed function. Guarantees: every block in the layout is reachable; no edge leads to a block that
//! only jumps, unless its parameters are used in other blocks or it is part of an endless loop.
//!
//! ```text
//! v1 = const.i1 1
//! branch v1, b1, b2                         v1 = const.i1 1
//! b1:                              =>       v2 = load.i32 be4 frame v0
//!   jump b3                                 return v2
//! b3:
//!   v2 = load.i32 be4 frame v0
//!   return v2
//! ```
//!
//! Tests: `tests/passes/branches.mir`.

use crate::cfg::Cfg;
use crate::function::{Definition, Function, Module, Replacements};
use crate::op::{Edge, Op, Terminator, Unary};
use crate::types::{Block, Value};
use std::collections::HashMap;

/// Largest number of empty blocks that an edge skips at a time. The next run continues, and cycles terminate.
const STEPS_MAX: usize = 16;

/// Runs the pass.
pub(super) fn run(_: &Module, function: &mut Function) -> bool {
    let mut changed = false;
    // Merging and threading create new opportunities for each other.
    for _ in 0..3 {
        let again = decide(function) | thread(function) | remove_unreachable(function) | merge(function);
        changed |= again;
        if !again {
            break;
        }
    }
    changed
}

/// The operation that defines a value, if one does.
fn definition_of<'f>(function: &'f Function, definitions: &[Option<Definition>], value: Value) -> Option<&'f Op> {
    match definitions.get(value.index()).copied().flatten()? {
        Definition::Inst(block, i) => Some(&function.block(block).insts[i].op),
        Definition::Param(..) => None,
    }
}

/// Replaces branches with a known outcome by jumps.
fn decide(function: &mut Function) -> bool {
    let definitions = function.definitions();
    let mut changed = false;
    for block in function.layout.clone() {
        let decided = match &function.block(block).terminator {
            Terminator::Branch(value, then, other) => match definition_of(function, &definitions, *value) {
                _ if then.block == other.block && then.args == other.args => Some(Terminator::Jump(then.clone())),
                Some(Op::Const(number)) => Some(Terminator::Jump(if *number != 0 { then } else { other }.clone())),
                Some(Op::Unary(Unary::Not, of)) => Some(Terminator::Branch(*of, other.clone(), then.clone())),
                _ => None,
            },
            Terminator::Switch(value, cases, default) => {
                let is_default = |edge: &Edge| edge.block == default.block && edge.args == default.args;
                match definition_of(function, &definitions, *value) {
                    Some(Op::Const(number)) => {
                        let case = cases.iter().find(|(case, _)| u128::from(*case) == *number);
                        Some(Terminator::Jump(case.map_or(default, |(_, edge)| edge).clone()))
                    }
                    _ if cases.is_empty() => Some(Terminator::Jump(default.clone())),
                    _ if cases.iter().any(|(_, edge)| is_default(edge)) => {
                        let weight = cases.iter().filter(|(_, edge)| is_default(edge)).map(|(_, edge)| edge.weight);
                        let weight = weight.fold(default.weight, u32::saturating_add);
                        let cases = cases.iter().filter(|(_, edge)| !is_default(edge)).cloned().collect();
                        Some(Terminator::Switch(*value, cases, Edge { weight, ..default.clone() }))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some(mut decided) = decided {
            if let Terminator::Jump(edge) = &mut decided {
                edge.weight = 1;
            }
            function.block_mut(block).terminator = decided;
            changed = true;
        }
    }
    changed
}

/// Threads edges past empty blocks.
fn thread(function: &mut Function) -> bool {
    let definitions = function.definitions();
    // By block: whether only its own terminator uses its parameters, so that edges may skip it.
    let mut is_passable: Vec<bool> = function.blocks.iter().map(|block| block.insts.is_empty()).collect();
    for &block in &function.layout {
        let data = function.block(block);
        let mut uses = |value: Value| match definitions[value.index()] {
            Some(Definition::Param(of, _)) if of != block => is_passable[of.index()] = false,
            _ => {}
        };
        data.insts.iter().for_each(|inst| inst.op.operands(&mut uses));
        data.terminator.operands(&mut uses);
    }
    let mut changed = false;
    for block in function.layout.clone() {
        let mut terminator = std::mem::replace(&mut function.block_mut(block).terminator, Terminator::Unreachable);
        for edge in terminator.edges_mut() {
            for _ in 0..STEPS_MAX {
                let target = edge.block;
                if !is_passable[target.index()] || target == block {
                    break;
                }
                let Some(next) = beyond(function, &definitions, edge) else { break };
                *edge = Edge { weight: edge.weight, ..next };
                changed = true;
            }
        }
        function.block_mut(block).terminator = terminator;
    }
    changed
}

/// The edge that replaces an edge to an empty block, if its outcome is known.
fn beyond(function: &Function, definitions: &[Option<Definition>], edge: &Edge) -> Option<Edge> {
    let data = function.block(edge.block);
    let arg = |value: Value| match data.params.iter().position(|param| *param == value) {
        Some(i) => edge.args[i],
        None => value,
    };
    let next = match &data.terminator {
        Terminator::Jump(next) => next,
        Terminator::Branch(value, then, other) => {
            match (data.params.contains(value), definition_of(function, definitions, arg(*value))) {
                (true, Some(Op::Const(number))) => {
                    if *number != 0 {
                        then
                    } else {
                        other
                    }
                }
                _ => return None,
            }
        }
        Terminator::Switch(value, cases, default) => {
            match (data.params.contains(value), definition_of(function, definitions, arg(*value))) {
                (true, Some(Op::Const(number))) => {
                    let case = cases.iter().find(|(case, _)| u128::from(*case) == *number);
                    case.map_or(default, |(_, edge)| edge)
                }
                _ => return None,
            }
        }
        Terminator::Return(_) | Terminator::Unreachable => return None,
    };
    (next.block != edge.block)
        .then(|| Edge { args: next.args.iter().map(|value| arg(*value)).collect(), ..next.clone() })
}

fn remove_unreachable(function: &mut Function) -> bool {
    let cfg = Cfg::new(function);
    let before = function.layout.len();
    function.layout.retain(|block| cfg.is_reachable(*block));
    function.layout.len() != before
}

/// Merges each block into the only block that jumps to it.
fn merge(function: &mut Function) -> bool {
    let mut edges: HashMap<Block, usize> = HashMap::new();
    for block in &function.layout {
        for edge in function.block(*block).terminator.edges() {
            *edges.entry(edge.block).or_default() += 1;
        }
    }
    let mut replacements = Replacements::new(function);
    let mut is_gone = vec![false; function.blocks.len()];
    for block in function.layout.clone() {
        if is_gone[block.index()] {
            continue;
        }
        while let Terminator::Jump(edge) = &function.block(block).terminator {
            let (next, args) = (edge.block, edge.args.clone());
            if edges[&next] != 1 || next == block || next == function.entry() {
                break;
            }
            let data = function.block_mut(next);
            let params = std::mem::take(&mut data.params);
            let insts = std::mem::take(&mut data.insts);
            let terminator = std::mem::replace(&mut data.terminator, Terminator::Unreachable);
            for (param, arg) in params.into_iter().zip(args) {
                replacements.add(param, arg);
            }
            is_gone[next.index()] = true;
            let data = function.block_mut(block);
            data.insts.extend(insts);
            data.terminator = terminator;
        }
    }
    let changed = is_gone.contains(&true);
    function.layout.retain(|block| !is_gone[block.index()]);
    function.replace(&replacements);
    changed
}

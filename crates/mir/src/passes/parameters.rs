//! Removal of trivial block parameters (trivial φ functions).
//!
//! Braun et al.: "Simple and efficient construction of static single assignment form", CC 2013, section 3.1: a
//! parameter is *trivial* if all edges pass one value, or the parameter itself. It is replaced by that value, which may
//! make other parameters trivial.
//!
//! Needs: a well-formed function. Guarantees: no reachable block has a trivial parameter.
//!
//! ```text
//! jump b1(v0, v1)                           jump b1(v1)
//! b1(v2: i64, v3: i64):                     b1(v3: i64):
//!   v4 = add.i64 v3, v2            =>         v4 = add.i64 v3, v0
//!   branch v5, b1(v2, v4), b2                 branch v5, b1(v4), b2
//! ```
//!
//! Tests: `tests/passes/parameters.mir`.

use crate::cfg::Cfg;
use crate::function::{Function, Module, Replacements};
use crate::types::{Block, Value};

/// Runs the pass.
pub(super) fn run(_: &Module, function: &mut Function) -> bool {
    let cfg = Cfg::new(function);
    let mut replacements = Replacements::new(function);
    // The worklist: blocks whose parameters may be trivial.
    let mut waiting: Vec<Block> = cfg.reverse_postorder().iter().rev().copied().collect();
    let mut is_waiting = vec![true; function.blocks.len()];
    // By value: the blocks to which it is passed as an argument.
    let mut passed: Vec<Vec<Block>> = vec![Vec::new(); function.values.len()];
    for &block in cfg.reverse_postorder() {
        for edge in function.block(block).terminator.edges() {
            edge.args.iter().for_each(|arg| passed[arg.index()].push(edge.block));
        }
    }
    while let Some(block) = waiting.pop() {
        is_waiting[block.index()] = false;
        for (i, &param) in function.block(block).params.iter().enumerate() {
            if replacements.of(param) != param {
                continue;
            }
            let Some(value) = only(function, &cfg, &replacements, block, i, param) else { continue };
            replacements.add(param, value);
            let users = std::mem::take(&mut passed[param.index()]);
            for user in &users {
                if !std::mem::replace(&mut is_waiting[user.index()], true) {
                    waiting.push(*user);
                }
            }
            passed[value.index()].extend(users);
        }
    }
    if replacements.is_empty() {
        return false;
    }
    let kept: Vec<Vec<bool>> = function
        .blocks
        .iter()
        .map(|block| block.params.iter().map(|param| replacements.of(*param) == *param).collect())
        .collect();
    function.replace(&replacements);
    for block in function.layout.clone() {
        let data = function.block_mut(block);
        data.params.retain(|param| replacements.of(*param) == *param);
        for edge in data.terminator.edges_mut() {
            let mut kept = kept[edge.block.index()].iter();
            edge.args.retain(|_| *kept.next().expect("as many arguments as parameters"));
        }
    }
    true
}

/// The only value, besides the parameter itself, that edges pass for a parameter.
fn only(
    function: &Function,
    cfg: &Cfg,
    replacements: &Replacements,
    block: Block,
    i: usize,
    param: Value,
) -> Option<Value> {
    let mut only = None;
    for (from, edge) in cfg.predecessors(block) {
        let edge = function.block(*from).terminator.edges().nth(*edge).expect("an edge of the graph");
        let arg = replacements.of(edge.args[i]);
        if arg == param || only == Some(arg) {
            continue;
        }
        if only.replace(arg).is_some() {
            return None;
        }
    }
    only
}

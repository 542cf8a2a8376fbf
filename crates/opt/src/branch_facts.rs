//! Facts from branches: slot values that hold in the target of a branch.
//!
//! After `branch c, b1, b2`, `c` is 1 in `b1` and 0 in `b2`, if the target has no other predecessor. If the branching
//! block computed `c` by a comparison with a constant, by `and`, `or` or `not`, facts about its operands follow too,
//! unless they are written in between. This removes, for example, the second validity check of a header.

use crate::graph::{Graph, Node};
use base::Bits;
use base::ids::{BlockId, SlotId};
use ir::{BinOp, Block, Op, Operand, Program, Terminator, UnOp};
use std::collections::{HashMap, HashSet};

/// For each node, the slots with known values at its start, because of the branch that leads to it.
pub(crate) fn facts_on_edges(program: &Program, graph: &Graph) -> Vec<Vec<(SlotId, Bits)>> {
    let mut known = vec![Vec::new(); graph.nodes.len()];
    for &node in &graph.rpo {
        let (Some(block), Node::Block(stage, _)) = (graph.block(program, node), graph.nodes[node]) else { continue };
        let mut add = |to: BlockId, slot: SlotId, value: Bits| {
            let to = graph.node(stage, to).expect("a successor is reachable");
            if graph.preds[to].len() == 1 {
                known[to] = implied(program, block, slot, value);
            }
        };
        match &block.term {
            Terminator::Branch { cond: Operand::Slot(s), then, other } if then != other => {
                add(*then, *s, Bits::from_bool(true));
                add(*other, *s, Bits::from_bool(false));
            }
            Terminator::Switch { on: Operand::Slot(s), cases, default } => {
                let mut edges: HashMap<BlockId, u32> = HashMap::from([(*default, 1)]);
                cases.iter().for_each(|(_, to)| *edges.entry(*to).or_default() += 1);
                for (value, to) in cases.iter().filter(|(_, to)| edges[to] == 1) {
                    add(*to, *s, value.clone());
                }
            }
            _ => {}
        }
    }
    known
}

/// The maximum number of instructions examined before a branch: a condition is usually computed close to it, and a
/// switch with many cases examines them for each case.
const EXAMINED_MAX: usize = 32;

/// The facts at the end of a block that follow from a slot having a value there.
fn implied(program: &Program, block: &Block, slot: SlotId, value: Bits) -> Vec<(SlotId, Bits)> {
    let mut facts = vec![(slot, value.clone())];
    // `wanted`: slots with a known value at this point of the backward walk; `written`: slots written later in the
    // block.
    let mut wanted = HashMap::from([(slot, value)]);
    let mut written = HashSet::new();
    for inst in block.insts.iter().rev().take(EXAMINED_MAX) {
        if wanted.is_empty() {
            break;
        }
        let value = inst.op.arithmetic_dst().and_then(|dst| wanted.get(&dst).cloned());
        inst.op.for_each_def(program, |s| {
            wanted.remove(&s);
            written.insert(s);
        });
        let Some(value) = value else { continue };
        for (slot, value) in sources(&inst.op, &value) {
            if !written.contains(&slot) && !wanted.contains_key(&slot) {
                facts.push((slot, value.clone()));
                wanted.insert(slot, value);
            }
        }
    }
    facts
}

/// Facts about an operation's operands that follow from its result.
fn sources(op: &Op, value: &Bits) -> Vec<(SlotId, Bits)> {
    let bit = (value.width() == 1).then(|| value.is_true());
    match op {
        Op::Mov { src: Operand::Slot(s), .. } => vec![(*s, value.clone())],
        Op::Un { op: UnOp::Not, a: Operand::Slot(s), .. } => vec![(*s, value.not())],
        Op::Bin { op: BinOp::And, a, b, .. } if bit == Some(true) => all(&[a, b], value),
        Op::Bin { op: BinOp::Or, a, b, .. } if bit == Some(false) => all(&[a, b], value),
        Op::Bin { op: op @ (BinOp::Eq | BinOp::Ne), a, b, .. } => {
            let (slot, constant) = match (a, b) {
                (Operand::Slot(s), Operand::Const(c)) | (Operand::Const(c), Operand::Slot(s)) => (*s, c),
                _ => return Vec::new(),
            };
            if (*op == BinOp::Eq) == value.is_true() {
                vec![(slot, constant.clone())]
            } else if constant.width() == 1 {
                vec![(slot, constant.not())]
            } else {
                Vec::new()
            }
        }
        _ => Vec::new(),
    }
}

fn all(operands: &[&Operand], value: &Bits) -> Vec<(SlotId, Bits)> {
    operands.iter().filter_map(|o| o.slot()).map(|s| (s, value.clone())).collect()
}

//! Constant and copy propagation, including branches with a known outcome.
//!
//! Needs: a well-formed program.
//!
//! Guarantees: same behaviour. An operand with only one possible value becomes that constant; a branch or switch on it
//! becomes a jump; an operand that is a copy of another slot reads that slot while the slot still has the value. Also
//! removed: writes of a constant to a slot that already holds it, emits of headers that are never valid there, repeated
//! validity checks, counts on a miss, and assertions that hold. Unreachable blocks remain until `simplify_cfg`.
//!
//! ```text
//! x = mov 8w3                     x = mov 8w3
//! y = add x, 8w1                  y = mov 8w4
//! c = eq y, 8w4          =>       c = mov 1w1
//! branch c, b1, b2                jump b1
//! ```
//!
//! Sparse conditional constant propagation (Wegman and Zadeck, "Constant propagation with conditional branches", 1991)
//! on the view of `ssa`, over the whole program: slots are zero when a packet starts, so that headers that no parser
//! state on the path extracts are known to be invalid. The analysis is optimistic: a block is unreachable until a path
//! to it is found. It is near linear in the program's size.
//!
//! Tests: `tests/files/const_prop.ir`, `tests/properties.rs`.

use crate::graph::{Node, NodeId, ROOT, StartValue};
use crate::ssa::{Def, InstValues, Ssa, Use, ValueId, WORK_PER_ACCESS_MAX};
use base::Bits;
use base::ids::{SlotId, TableId};
use ir::{Block, HeaderId, Op, Operand, Program, SlotKind, Terminator};
use std::collections::BTreeSet;

/// The lattice of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Known {
    /// Undetermined: nothing that defines the value has been executed.
    Nothing,
    /// The value is this constant.
    Const(Bits),
    /// The value is not constant.
    Varies,
}

impl Known {
    fn constant(&self) -> Option<&Bits> {
        match self {
            Known::Const(c) => Some(c),
            Known::Nothing | Known::Varies => None,
        }
    }

    /// Joins with another element; returns whether this one changed.
    fn join(&mut self, other: &Known) -> bool {
        *self = match (&*self, other) {
            (_, Known::Nothing) | (Known::Varies, _) => return false,
            (Known::Nothing, _) => other.clone(),
            (Known::Const(a), Known::Const(b)) if a == b => return false,
            _ => Known::Varies,
        };
        true
    }
}

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    run_following(program, WORK_PER_ACCESS_MAX)
}

/// As [`run`], with another limit for tracking slots between blocks (see [`Ssa::new`]).
pub(crate) fn run_following(program: &mut Program, work_per_access_max: usize) -> bool {
    let ssa = Ssa::new(program, work_per_access_max);
    let mut solver = Solver::new(program, &ssa);
    solver.solve();
    let known = solver.known;
    let mut changed = false;
    for &node in &ssa.graph.rpo {
        if let Node::Block(stage, block) = ssa.graph.nodes[node] {
            let mut new = std::mem::replace(
                &mut program.stages[stage.index()].blocks[block.index()],
                Block { label: String::new(), insts: Vec::new(), term: Terminator::Next, span: base::Span::NONE },
            );
            changed |= rewrite(program, &ssa, &known, node, &mut new);
            program.stages[stage.index()].blocks[block.index()] = new;
        }
    }
    changed
}

struct Solver<'a> {
    program: &'a Program,
    ssa: &'a Ssa,
    known: Vec<Known>,
    /// For each node, whether it is reachable; and for each of its incoming edges, in the graph's order, whether it can
    /// be taken.
    executed: Vec<bool>,
    executed_edges: Vec<Vec<bool>>,
    /// For each value, the nodes that read it before they define it themselves.
    readers: Vec<Vec<NodeId>>,
    /// The worklist: nodes by their positions in reverse post-order.
    worklist: BTreeSet<usize>,
}

/// For each value, the nodes to visit again when it changes.
fn readers(ssa: &Ssa) -> Vec<Vec<NodeId>> {
    let mut made_in: Vec<Option<NodeId>> = vec![None; ssa.values.len()];
    for (node, values) in ssa.nodes.iter().enumerate() {
        let made = values.phis.iter().map(|phi| phi.value);
        let made = made.chain(values.insts.iter().flat_map(|inst| inst.writes.iter().map(|write| write.value)));
        made.for_each(|value| made_in[value] = Some(node));
    }
    let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); ssa.values.len()];
    for (node, values) in ssa.nodes.iter().enumerate() {
        let mut add = |value: ValueId| {
            if readers[value].last() != Some(&node) {
                readers[value].push(node);
            }
        };
        // A phi reads its node's own values from the previous iteration.
        values.phis.iter().flat_map(|phi| &phi.args).for_each(|arg| add(*arg));
        let uses = values.insts.iter().flat_map(|inst| &inst.uses).chain(&values.term);
        uses.filter(|read| made_in[read.value] != Some(node)).for_each(|read| add(read.value));
    }
    readers
}

impl<'a> Solver<'a> {
    fn new(program: &'a Program, ssa: &'a Ssa) -> Solver<'a> {
        let known = ssa.values.iter().map(|value| match &value.def {
            Def::Start(StartValue::Unknown) => Known::Varies,
            Def::Start(StartValue::Zero) => Known::Const(Bits::zero(program.width(value.slot))),
            Def::Known(c) => Known::Const(c.clone()),
            Def::Phi | Def::Inst => Known::Nothing,
        });
        let known: Vec<Known> = known.collect();
        let mut executed = vec![false; ssa.graph.nodes.len()];
        executed[ROOT] = true;
        let executed_edges = ssa.graph.preds.iter().map(|p| vec![false; p.len()]).collect();
        let worklist = BTreeSet::from([ssa.graph.rpo_index[ROOT]]);
        Solver { program, ssa, known, executed, executed_edges, readers: readers(ssa), worklist }
    }

    /// Visits nodes in reverse post-order, and again those that read a changed value. A loop is finished before the
    /// nodes after it, so that consecutive loops do not multiply the work.
    fn solve(&mut self) {
        while let Some(at) = self.worklist.pop_first() {
            self.node(self.ssa.graph.rpo[at]);
        }
    }

    fn refine(&mut self, value: ValueId, known: Known) {
        if self.known[value].join(&known) {
            let graph = &self.ssa.graph;
            let readers = self.readers[value].iter().filter(|node| self.executed[**node]);
            self.worklist.extend(readers.map(|node| graph.rpo_index[*node]));
        }
    }

    fn node(&mut self, node: NodeId) {
        let ssa = self.ssa;
        let values = &ssa.nodes[node];
        for phi in &values.phis {
            // It never becomes constant again.
            if self.known[phi.value] == Known::Varies {
                continue;
            }
            let mut known = Known::Nothing;
            for (arg, executed) in phi.args.iter().zip(&self.executed_edges[node]) {
                if *executed {
                    known.join(&self.known[*arg]);
                }
            }
            self.refine(phi.value, known);
        }
        let Some(block) = ssa.graph.block(self.program, node) else {
            return self.execute_all(node);
        };
        for (inst, values) in block.insts.iter().zip(&values.insts) {
            self.inst(&inst.op, values);
        }
        let on = block.term.operand().map(|operand| match operand {
            Operand::Const(c) => Known::Const(c.clone()),
            Operand::Slot(_) => self.known[values.term.expect("the terminator reads a slot").value].clone(),
        });
        let chosen = match on {
            Some(Known::Nothing) => return,
            Some(Known::Const(c)) => target(&block.term, &c),
            Some(Known::Varies) | None => None,
        };
        let Node::Block(stage, _) = ssa.graph.nodes[node] else { return };
        match chosen {
            Some(to) => {
                let to = ssa.graph.node(stage, to).expect("a successor is reachable");
                let path = ssa.graph.targets[node].iter().position(|s| *s == to).expect("it is a successor");
                self.execute(ssa.graph.succs[node][path], ssa.graph.edge[node][path]);
            }
            None => self.execute_all(node),
        }
    }

    fn execute_all(&mut self, from: NodeId) {
        let graph = &self.ssa.graph;
        for (&to, &edge) in graph.succs[from].iter().zip(&graph.edge[from]) {
            self.execute(to, edge);
        }
    }

    /// Marks an edge as taken; `edge` is its position among the incoming edges of `to`.
    fn execute(&mut self, to: NodeId, edge: usize) {
        if !std::mem::replace(&mut self.executed_edges[to][edge], true) {
            self.executed[to] = true;
            self.worklist.insert(self.ssa.graph.rpo_index[to]);
        }
    }

    fn inst(&mut self, op: &Op, values: &InstValues) {
        let program = self.program;
        match op {
            Op::SetInvalid { .. } => {
                for write in &values.writes {
                    self.refine(write.value, Known::Const(Bits::zero(program.width(write.slot))));
                }
            }
            Op::SetValid { header } | Op::Extract { header, .. } => {
                let valid = program.headers[header.index()].valid;
                for write in &values.writes {
                    let known = if write.slot == valid { Known::Const(Bits::from_bool(true)) } else { Known::Varies };
                    self.refine(write.value, known);
                }
            }
            Op::Apply { table, hit, action, .. } => {
                for write in &values.writes {
                    let known = match lookup_result(program, *table) {
                        Some(_) if write.slot == *hit => Known::Const(Bits::from_bool(false)),
                        Some(Some(default)) if write.slot == *action => Known::Const(Bits::new(32, default.into())),
                        _ => Known::Varies,
                    };
                    self.refine(write.value, known);
                }
            }
            Op::Unresolved { .. } => values.writes.iter().for_each(|write| self.refine(write.value, Known::Varies)),
            _ => {
                let Some(write) = values.writes.first() else { return };
                let width = program.width(write.slot);
                let mut waits = false;
                let value = op.evaluate(width, |operand| match operand {
                    Operand::Const(c) => Some(c.clone()),
                    Operand::Slot(s) => {
                        let known = &self.known[value_of(values, *s)];
                        waits |= *known == Known::Nothing;
                        known.constant().cloned()
                    }
                });
                let known = match value {
                    Some(value) => Known::Const(value),
                    None if waits => Known::Nothing,
                    None => match constant_result(program, op) {
                        Some(value) => Known::Const(value),
                        None => Known::Varies,
                    },
                };
                self.refine(write.value, known);
            }
        }
    }
}

fn value_of(values: &InstValues, slot: SlotId) -> ValueId {
    values.uses.iter().find(|u| u.slot == slot).expect("the view has every read").value
}

/// For a table that can only miss, its default action, or `Some(None)` if that can change; otherwise `None`.
fn lookup_result(program: &Program, table: TableId) -> Option<Option<u32>> {
    let table = &program.tables[table.index()];
    let misses = table.keys.is_empty() || table.const_entries && table.entries.is_empty();
    misses.then(|| table.const_default.then_some(table.default_action.action))
}

/// The result of an operation that is not arithmetic but constant.
fn constant_result(program: &Program, op: &Op) -> Option<Bits> {
    match op {
        Op::ActionParam { table, action, param, .. } if lookup_result(program, *table) == Some(Some(*action)) => {
            program.tables[table.index()].default_action.args.get(*param as usize).cloned()
        }
        Op::HasBits { bits: Operand::Const(c), .. } if c.is_zero() => Some(Bits::from_bool(true)),
        _ => None,
    }
}

/// The target of a terminator whose operand is a constant.
fn target(term: &Terminator, on: &Bits) -> Option<ir::BlockId> {
    match term {
        Terminator::Branch { then, other, .. } => Some(if on.is_true() { *then } else { *other }),
        Terminator::Switch { cases, default, .. } => {
            Some(cases.iter().find(|(case, _)| case == on).map_or(*default, |(_, to)| *to))
        }
        Terminator::Jump(_) | Terminator::Next | Terminator::Finish(_) => None,
    }
}

/// Rewrites a block by the result of the analysis; returns whether anything changed.
fn rewrite(program: &Program, ssa: &Ssa, known: &[Known], node: NodeId, block: &mut Block) -> bool {
    let values = &ssa.nodes[node];
    let mut changed = false;
    let mut at = 0;
    block.insts.retain_mut(|inst| {
        let values = &values.insts[at];
        at += 1;
        if is_without_effect(program, known, &inst.op, values) {
            changed = true;
            return false;
        }
        // A constant result takes precedence: its operands need not be read.
        let result = match &values.writes[..] {
            [write] if inst.op.is_removable() && inst.op.dst().is_some() => {
                known[write.value].constant().map(|c| (write.slot, c))
            }
            _ => None,
        };
        if let Some((dst, c)) = result {
            let op = Op::Mov { dst, src: Operand::Const(c.clone()) };
            changed |= inst.op != op;
            inst.op = op;
            return true;
        }
        // Hashing a field costs no more than hashing a constant: adjacent fields are read from the packet together.
        let is_hash = matches!(inst.op, Op::Hash { .. });
        inst.op.for_each_operand_mut(|operand| {
            if let Operand::Slot(s) = operand {
                if is_hash && matches!(program.slots[s.index()].kind, SlotKind::Field(_)) {
                    return;
                }
                let read = values.uses.iter().find(|u| u.slot == *s).expect("the view has every read");
                changed |= replace(operand, known, read);
            }
        });
        let chosen = match &inst.op {
            Op::Select { dst, cond: Operand::Const(c), then, other } => {
                let src = if c.is_true() { then } else { other }.clone();
                Some(Op::Mov { dst: *dst, src })
            }
            _ => None,
        };
        if let Some(op) = chosen {
            inst.op = op;
            changed = true;
        }
        let idle = matches!(&inst.op, Op::Mov { dst, src: Operand::Slot(s) } if dst == s);
        changed |= idle;
        !idle
    });
    if let (Some(read), Some(operand)) = (&values.term, block.term.operand_mut()) {
        changed |= replace(operand, known, read);
    }
    if let Some(Operand::Const(c)) = block.term.operand()
        && let Some(to) = target(&block.term, c)
    {
        block.term = Terminator::Jump(to);
        changed = true;
    }
    changed
}

fn replace(operand: &mut Operand, known: &[Known], read: &Use) -> bool {
    let new = match (&known[read.value], read.same_as) {
        (Known::Const(c), _) => Operand::Const(c.clone()),
        (_, Some(slot)) => Operand::Slot(slot),
        _ => return false,
    };
    *operand = new;
    true
}

/// Whether an instruction has no effect with these values.
fn is_without_effect(program: &Program, known: &[Known], op: &Op, values: &InstValues) -> bool {
    let is = |operand: &Operand, value: bool| match operand {
        Operand::Const(c) => c.is_true() == value,
        Operand::Slot(s) => known[value_of(values, *s)].constant().is_some_and(|c| c.is_true() == value),
    };
    match op {
        Op::Emit { header } => never_valid(program, known, *header, values),
        Op::CountDirect { hit, .. } => is(hit, false),
        Op::Assert { cond, .. } => is(cond, true),
        // Temporaries are kept: where they are handles they must not be read unassigned.
        _ if op.is_removable() && !values.writes.is_empty() => values.writes.iter().all(|write| {
            let is_temp = program.slots[write.slot.index()].kind == SlotKind::Temp;
            let after = known[write.value].constant();
            !is_temp && after.is_some() && after == write.before.and_then(|before| known[before].constant())
        }),
        _ => false,
    }
}

fn never_valid(program: &Program, known: &[Known], header: HeaderId, values: &InstValues) -> bool {
    let valid = program.headers[header.index()].valid;
    known[value_of(values, valid)].constant().is_some_and(Bits::is_zero)
}

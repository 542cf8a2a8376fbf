//! A view of the program in static single assignment form, without rewriting it: the assignment that each read sees.
//!
//! Every write of a slot defines a *value*; where paths with different values of a slot meet, a *phi* defines one. The
//! view records the value of each slot that an instruction reads or writes. Construction is by dominance frontiers
//! (Cytron et al., "Efficiently computing static single assignment form and the control dependence graph", 1991;
//! dominators by Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm"), with phis only for slots that some
//! block reads before writing them. A slot whose phis would need too many arguments per access
//! ([`WORK_PER_ACCESS_MAX`]) is not tracked between blocks, only within each: in a parser with many states, each of
//! many headers has different values on as many paths. The view is therefore near linear in the program's size.
//!
//! Two additions to the standard form: a branch that implies a slot's value defines a value at the start of its target,
//! if that has no other predecessor ([`Def::Known`]); and each value records its copy source, so that a read knows
//! another slot with the same value ([`Use::same_as`]).

use crate::branch_facts::facts_on_edges;
use crate::graph::{Graph, Node, NodeId, ROOT, StartValue, start_values};
use base::Bits;
use base::ids::SlotId;
use ir::{Op, Operand, Program, SlotKind};

/// The index of a value.
pub(crate) type ValueId = usize;

/// The maximum work for a slot's phis, in arguments and steps of placement, per access of the slot.
pub(crate) const WORK_PER_ACCESS_MAX: usize = 256;

/// No value: a slot that is not tracked between blocks and has not been written in this block.
const NONE: ValueId = usize::MAX;

/// The definition of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Def {
    /// The slot's value when the packet enters.
    Start(StartValue),
    /// A phi: one of several values, depending on the path.
    Phi,
    /// A fact from a branch.
    Known(Bits),
    /// The result of an instruction.
    Inst,
}

/// A value and the slot that it was defined for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    pub def: Def,
    pub slot: SlotId,
    node: NodeId,
    /// The original of which this is a copy, through all copies; itself if it is no copy.
    root: ValueId,
}

/// A slot read by an instruction or terminator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Use {
    pub slot: SlotId,
    pub value: ValueId,
    /// Another slot with the same value at this point.
    pub same_as: Option<SlotId>,
}

/// A slot written by an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub slot: SlotId,
    pub value: ValueId,
    /// The slot's previous value, if known.
    pub before: Option<ValueId>,
}

/// A phi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Phi {
    pub slot: SlotId,
    pub value: ValueId,
    /// The arguments by predecessor, in the graph's order.
    pub args: Vec<ValueId>,
}

/// The reads and writes of an instruction. All reads precede all writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct InstValues {
    pub uses: Vec<Use>,
    pub writes: Vec<Write>,
}

/// The values of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeValues {
    pub phis: Vec<Phi>,
    pub insts: Vec<InstValues>,
    pub term: Option<Use>,
}

/// The SSA view of a program.
#[derive(Clone, Debug)]
pub(crate) struct Ssa {
    pub graph: Graph,
    pub values: Vec<Value>,
    /// The values of each node.
    pub nodes: Vec<NodeValues>,
}

impl Ssa {
    /// Builds the view, with a limit such as [`WORK_PER_ACCESS_MAX`].
    pub fn new(program: &Program, work_per_access_max: usize) -> Ssa {
        let graph = Graph::new(program);
        let idom = immediate_dominators(&graph);
        let known = facts_on_edges(program, &graph);
        let Accesses { exposed, single, number } = Accesses::new(program, &graph);
        let work_max: Vec<usize> = number.into_iter().map(|n| n * work_per_access_max).collect();
        let mut tracked = exposed.clone();
        let mut nodes = vec![NodeValues::default(); graph.nodes.len()];
        place_phis(program, &graph, &idom, &known, &mut tracked, &work_max, &mut nodes);
        let mut renamer = Renamer {
            program,
            graph: &graph,
            known: &known,
            exposed: &exposed,
            tracked: &tracked,
            single: &single,
            values: Vec::new(),
            nodes,
            current: vec![NONE; program.slots.len()],
            undo: Vec::new(),
        };
        renamer.walk(&idom);
        let Renamer { values, nodes, .. } = renamer;
        Ssa { graph, values, nodes }
    }
}

/// The immediate dominator of each node; the root's is itself.
fn immediate_dominators(graph: &Graph) -> Vec<NodeId> {
    const UNKNOWN: NodeId = usize::MAX;
    let mut idom = vec![UNKNOWN; graph.nodes.len()];
    idom[ROOT] = ROOT;
    let mut changed = true;
    while changed {
        changed = false;
        for &node in graph.rpo.iter().skip(1) {
            let mut new = UNKNOWN;
            for &pred in graph.preds[node].iter().filter(|p| idom[**p] != UNKNOWN) {
                new = if new == UNKNOWN { pred } else { common_dominator(graph, &idom, pred, new) };
            }
            changed |= std::mem::replace(&mut idom[node], new) != new;
        }
    }
    idom
}

fn common_dominator(graph: &Graph, idom: &[NodeId], mut a: NodeId, mut b: NodeId) -> NodeId {
    while a != b {
        while graph.rpo_index[a] > graph.rpo_index[b] {
            a = idom[a];
        }
        while graph.rpo_index[b] > graph.rpo_index[a] {
            b = idom[b];
        }
    }
    a
}

/// The program's accesses to each slot.
struct Accesses {
    /// Whether some block reads it before writing it.
    exposed: Vec<bool>,
    /// Whether only one instruction writes it.
    single: Vec<bool>,
    /// The number of reads and writes.
    number: Vec<usize>,
}

impl Accesses {
    fn new(program: &Program, graph: &Graph) -> Accesses {
        let slots = program.slots.len();
        let mut exposed = vec![false; slots];
        let (mut reads, mut writes) = (vec![0usize; slots], vec![0usize; slots]);
        // The last block that wrote the slot, plus one.
        let mut written = vec![0usize; slots];
        for &node in &graph.rpo {
            let Some(block) = graph.block(program, node) else { continue };
            for inst in &block.insts {
                inst.op.for_each_use(program, |s| {
                    exposed[s.index()] |= written[s.index()] != node + 1;
                    reads[s.index()] += 1;
                });
                inst.op.for_each_def(program, |s| {
                    written[s.index()] = node + 1;
                    writes[s.index()] += 1;
                });
            }
            if let Some(Operand::Slot(s)) = block.term.operand() {
                exposed[s.index()] |= written[s.index()] != node + 1;
                reads[s.index()] += 1;
            }
        }
        let single = writes.iter().map(|n| *n == 1).collect();
        let number = reads.iter().zip(&writes).map(|(r, w)| r + w).collect();
        Accesses { exposed, single, number }
    }
}

/// The dominance frontier of each node.
fn dominance_frontiers(graph: &Graph, idom: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut frontiers: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes.len()];
    for &node in graph.rpo.iter().filter(|n| graph.preds[**n].len() > 1) {
        for &pred in &graph.preds[node] {
            let mut runner = pred;
            while runner != idom[node] {
                // Nodes are visited in order, so that a duplicate is the last element.
                if frontiers[runner].last() == Some(&node) {
                    // Another predecessor has added the node to the remaining dominators already.
                    break;
                }
                frontiers[runner].push(node);
                runner = idom[runner];
            }
        }
    }
    frontiers
}

/// Places the phis of tracked slots. A slot that needs too many gets none and is no longer tracked.
fn place_phis(
    program: &Program,
    graph: &Graph,
    idom: &[NodeId],
    known: &[Vec<(SlotId, Bits)>],
    tracked: &mut [bool],
    work_max: &[usize],
    nodes: &mut [NodeValues],
) {
    let mut def_nodes: Vec<Vec<NodeId>> = vec![Vec::new(); program.slots.len()];
    let mut starts = Vec::new();
    for &node in &graph.rpo {
        let mut def = |s: SlotId| {
            if tracked[s.index()] && def_nodes[s.index()].last() != Some(&node) {
                def_nodes[s.index()].push(node);
            }
        };
        known[node].iter().for_each(|(s, _)| def(*s));
        match graph.nodes[node] {
            Node::Root | Node::Join => {}
            Node::Start(_) => starts.push(node),
            Node::Block(..) => {
                let block = graph.block(program, node).expect("a block's node");
                block.insts.iter().for_each(|inst| inst.op.for_each_def(program, &mut def));
            }
        }
    }
    let frontiers = dominance_frontiers(graph, idom);
    // For each node, the last slot with a phi there, plus one.
    let mut has_phi = vec![0usize; graph.nodes.len()];
    for (i, defs) in def_nodes.into_iter().enumerate() {
        if !tracked[i] {
            continue;
        }
        let slot = SlotId::from_index(i);
        let mut work: Vec<NodeId> = defs.into_iter().chain(starts.iter().copied()).collect();
        let mut joins = Vec::new();
        let mut left = work_max[i] as i64;
        while let Some(node) = work.pop() {
            for &join in &frontiers[node] {
                left -= 1;
                if std::mem::replace(&mut has_phi[join], i + 1) != i + 1 {
                    left -= graph.preds[join].len() as i64;
                    joins.push(join);
                    work.push(join);
                }
            }
            if left < 0 {
                break;
            }
        }
        tracked[i] = left >= 0;
        for join in joins.into_iter().filter(|_| left >= 0) {
            let args = vec![NONE; graph.preds[join].len()];
            nodes[join].phis.push(Phi { slot, value: NONE, args });
        }
    }
}

struct Renamer<'a> {
    program: &'a Program,
    graph: &'a Graph,
    known: &'a [Vec<(SlotId, Bits)>],
    /// Slots that some block reads before writing them.
    exposed: &'a [bool],
    /// Slots with phis wherever needed. For any other slot with several writes, `current` is valid only within the
    /// block that wrote it.
    tracked: &'a [bool],
    single: &'a [bool],
    values: Vec<Value>,
    nodes: Vec<NodeValues>,
    /// The current value of each slot during the walk.
    current: Vec<ValueId>,
    /// The values to restore when a subtree of the dominator tree is finished.
    undo: Vec<(SlotId, ValueId)>,
}

impl Renamer<'_> {
    /// Renames: walks the dominator tree.
    fn walk(&mut self, idom: &[NodeId]) {
        let mut children: Vec<Vec<NodeId>> = vec![Vec::new(); self.graph.nodes.len()];
        for &node in self.graph.rpo.iter().skip(1) {
            children[idom[node]].push(node);
        }
        self.enter(ROOT);
        let mut stack = vec![(ROOT, 0usize, 0usize)];
        while let Some((node, next, undo_from)) = stack.last_mut() {
            match children[*node].get(*next) {
                Some(&child) => {
                    *next += 1;
                    let undo_from = self.undo.len();
                    self.enter(child);
                    stack.push((child, 0, undo_from));
                }
                None => {
                    for (slot, value) in self.undo.drain(*undo_from..).rev() {
                        self.current[slot.index()] = value;
                    }
                    stack.pop();
                }
            }
        }
    }

    fn define(&mut self, node: NodeId, slot: SlotId, def: Def, root: Option<ValueId>) -> ValueId {
        let value = self.values.len();
        self.values.push(Value { def, slot, node, root: root.unwrap_or(value) });
        self.undo.push((slot, std::mem::replace(&mut self.current[slot.index()], value)));
        value
    }

    fn enter(&mut self, node: NodeId) {
        let graph = self.graph;
        let mut values = std::mem::take(&mut self.nodes[node]);
        for phi in &mut values.phis {
            phi.value = self.define(node, phi.slot, Def::Phi, None);
        }
        let known = self.known;
        for (slot, value) in &known[node] {
            if self.exposed[slot.index()] {
                self.define(node, *slot, Def::Known(value.clone()), None);
            }
        }
        if let Node::Start(kind) = graph.nodes[node] {
            for (i, start) in start_values(self.program, kind).into_iter().enumerate() {
                if self.tracked[i] {
                    self.define(node, SlotId::from_index(i), Def::Start(start), None);
                }
            }
        }
        if let Some(block) = graph.block(self.program, node) {
            values.insts = block.insts.iter().map(|inst| self.inst(node, &inst.op)).collect();
            values.term = block.term.operand().and_then(Operand::slot).map(|s| self.read(node, s));
        }
        self.nodes[node] = values;
        for (&to, &position) in graph.succs[node].iter().zip(&graph.edge[node]) {
            for phi in &mut self.nodes[to].phis {
                phi.args[position] = self.current[phi.slot.index()];
            }
        }
    }

    fn inst(&mut self, node: NodeId, op: &Op) -> InstValues {
        let program = self.program;
        let mut slots: Vec<SlotId> = Vec::new();
        op.for_each_use(program, |s| {
            if !slots.contains(&s) {
                slots.push(s);
            }
        });
        let uses: Vec<Use> = slots.into_iter().map(|s| self.read(node, s)).collect();
        let root = match op {
            Op::Mov { src: Operand::Slot(_), .. } => Some(self.values[uses[0].value].root),
            _ => None,
        };
        let mut writes = Vec::new();
        op.for_each_def(program, |slot| {
            let before = self.held(node, slot);
            let value = self.define(node, slot, Def::Inst, root);
            writes.push(Write { slot, value, before });
        });
        InstValues { uses, writes }
    }

    /// The current value of a slot, if known.
    fn held(&self, node: NodeId, slot: SlotId) -> Option<ValueId> {
        let id = Some(self.current[slot.index()]).filter(|v| *v != NONE)?;
        let value = &self.values[id];
        // The slot's only write, which dominates this point.
        let is_only = self.single[slot.index()] && value.def == Def::Inst;
        (self.tracked[slot.index()] || is_only || value.node == node).then_some(id)
    }

    fn read(&mut self, node: NodeId, slot: SlotId) -> Use {
        let value = match self.held(node, slot) {
            Some(value) => value,
            None => self.define(node, slot, Def::Start(StartValue::Unknown), None),
        };
        let root = &self.values[self.values[value].root];
        let holds = root.slot != slot && self.held(node, root.slot) == Some(self.values[value].root);
        // A temporary must not be read where its stage has not assigned it.
        let is_temp = self.program.slots[root.slot.index()].kind == SlotKind::Temp;
        let allowed = !is_temp || root.def == Def::Inst && self.same_stage(root.node, node);
        Use { slot, value, same_as: (holds && allowed).then_some(root.slot) }
    }

    fn same_stage(&self, a: NodeId, b: NodeId) -> bool {
        match (self.graph.nodes[a], self.graph.nodes[b]) {
            (Node::Block(a, _), Node::Block(b, _)) => a == b,
            _ => false,
        }
    }
}

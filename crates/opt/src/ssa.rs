//! Which assignment each read sees: a view of the program in static single assignment form, without rewriting it.
//!
//! Every write of a slot makes a *value*; where paths with different values of a slot meet, a *phi* makes one. The view
//! records the value of each slot that an instruction reads and writes. Built the classic way (Cytron et al., "Efficiently
//! computing static single assignment form and the control dependence graph", 1991; dominators by Cooper, Harvey and
//! Kennedy, "A simple, fast dominance algorithm"), with phis only for slots that are read in a block before they are
//! written there. A slot whose phis would take too many arguments for the number of its accesses ([`WORK_PER_ACCESS_MAX`])
//! is not followed from block to block: with many headers in a parser of many states each has a different value on each of
//! as many paths. What is known of it is what its own block tells. So the view is near linear in the program.
//!
//! Two things go beyond the textbook. A branch that tells a slot's value makes a value of its own at the start of the
//! block it leads to, if nothing else leads there ([`Def::Known`]). And each value remembers what it is a copy of, so that
//! a read can be told by which other slot the same value can be had ([`Use::same_as`]).

use crate::graph::{Graph, Node, NodeId, ROOT, StartValue, start_values};
use crate::known::known_on_edges;
use base::Bits;
use base::ids::SlotId;
use ir::{Op, Operand, Program, SlotKind};

/// Index of a value.
pub(crate) type ValueId = usize;

/// Arguments of a slot's phis, and steps to find out where they are, for each of its accesses.
pub(crate) const WORK_PER_ACCESS_MAX: usize = 256;

/// No value: a slot that is not tracked between blocks and not written yet in this one.
const NONE: ValueId = usize::MAX;

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Def {
    /// The slot's content when the packet enters.
    Start(StartValue),
    /// One of several, depending on the path.
    Phi,
    /// A branch has told it.
    Known(Bits),
    /// An instruction.
    Inst,
}

/// A value and the slot it was made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    pub def: Def,
    pub slot: SlotId,
    node: NodeId,
    /// The value that this is a copy of, through all copies; itself if it is none.
    root: ValueId,
}

/// A slot read by an instruction or terminator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Use {
    pub slot: SlotId,
    pub value: ValueId,
    /// Another slot that holds the same value here.
    pub same_as: Option<SlotId>,
}

/// A slot written by an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub slot: SlotId,
    pub value: ValueId,
    /// What it held before, if that is known.
    pub before: Option<ValueId>,
}

/// A phi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Phi {
    pub slot: SlotId,
    pub value: ValueId,
    /// By predecessor, in the graph's order.
    pub args: Vec<ValueId>,
}

/// Reads and writes of one instruction. All reads see what was before all writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct InstValues {
    pub uses: Vec<Use>,
    pub writes: Vec<Write>,
}

/// Values of one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeValues {
    pub phis: Vec<Phi>,
    pub insts: Vec<InstValues>,
    pub term: Option<Use>,
}

/// The view.
#[derive(Clone, Debug)]
pub(crate) struct Ssa {
    pub graph: Graph,
    pub values: Vec<Value>,
    /// By node.
    pub nodes: Vec<NodeValues>,
}

impl Ssa {
    /// With [`WORK_PER_ACCESS_MAX`], or another number.
    pub fn new(program: &Program, work_per_access_max: usize) -> Ssa {
        let graph = Graph::new(program);
        let idom = immediate_dominators(&graph);
        let known = known_on_edges(program, &graph);
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

/// By node: the last node that every path to it passes; the root's is itself.
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

/// How the program uses each slot.
struct Accesses {
    /// Whether some block reads it before it writes it.
    exposed: Vec<bool>,
    /// Whether only one instruction writes it.
    single: Vec<bool>,
    /// How many reads and writes there are.
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

/// By node: where what it defines may meet other definitions.
fn dominance_frontiers(graph: &Graph, idom: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut frontiers: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes.len()];
    for &node in graph.rpo.iter().filter(|n| graph.preds[**n].len() > 1) {
        for &pred in &graph.preds[node] {
            let mut runner = pred;
            while runner != idom[node] {
                // Joins come one after the other, so a repeated one is the last.
                if frontiers[runner].last() == Some(&node) {
                    // From here on another predecessor has been here.
                    break;
                }
                frontiers[runner].push(node);
                runner = idom[runner];
            }
        }
    }
    frontiers
}

/// Places the phis of tracked slots. A slot that needs too many gets none, and is tracked no more.
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
    // The last slot that has a phi at the node, or was put on the list from it, plus one.
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
    /// Slots that some block reads before it writes them.
    exposed: &'a [bool],
    /// Slots that have phis where they need them, and those that only one instruction writes. What `current` says of any
    /// other slot is good within the block that wrote it.
    tracked: &'a [bool],
    single: &'a [bool],
    values: Vec<Value>,
    nodes: Vec<NodeValues>,
    /// By slot: the value it has at the place of the walk.
    current: Vec<ValueId>,
    /// What to put back when a node's part of the dominator tree is done.
    undo: Vec<(SlotId, ValueId)>,
}

impl Renamer<'_> {
    /// Walks the dominator tree.
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

    /// The value that a slot holds at the place of the walk, if that is known.
    fn held(&self, node: NodeId, slot: SlotId) -> Option<ValueId> {
        let id = Some(self.current[slot.index()]).filter(|v| *v != NONE)?;
        let value = &self.values[id];
        // The only write, on every path here.
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

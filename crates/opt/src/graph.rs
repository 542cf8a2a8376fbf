//! The whole program as one control flow graph: the blocks of all stages used by some entry, connected as the entries
//! say.
//!
//! A stage that several entries share exists once; its `next` has an edge to each of its followers in them. Facts
//! therefore hold on all paths through the program, and passes see across stages. A *start* node before each entry's
//! first stage stands for the moment at which slots get their values from outside. A single root precedes all start
//! nodes.
//!
//! Where more than [`EDGES_MAX`] edges meet, they are merged by a tree of *joins*, additional nodes, in the order of
//! the edges. Most slots with different values on different edges have one value on the first edges and another on the
//! rest (as with headers that successive parser states extract, each of which may be the last). Without joins, each
//! such slot needs a phi with as many arguments as there are edges; in the tree, only the joins at the boundary need
//! one.

use base::ids::{BlockId, SlotId, StageId};
use ir::{Cfg, EntryKind, Program, Terminator};

/// The index of a node.
pub(crate) type NodeId = usize;

/// A node of the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    /// The root, before everything.
    Root,
    /// Before the first stage of an entry.
    Start(EntryKind),
    /// A reachable block of a stage.
    Block(StageId, BlockId),
    /// A join of some of the edges to a block.
    Join,
}

/// A control flow graph. Nodes that the root does not reach are absent from `rpo` and `by_block`.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    pub succs: Vec<Vec<NodeId>>,
    /// The successors with joins skipped, in the order of `succs`.
    pub targets: Vec<Vec<NodeId>>,
    pub preds: Vec<Vec<NodeId>>,
    /// For each edge, in the order of `succs`: its position among the target's `preds`.
    pub edge: Vec<Vec<usize>>,
    /// Reverse post-order, beginning with the root.
    pub rpo: Vec<NodeId>,
    /// The position of each node in `rpo`.
    pub rpo_index: Vec<usize>,
    /// The nodes by stage and block; `None` for unreachable blocks.
    by_block: Vec<Vec<Option<NodeId>>>,
}

/// The maximum number of edges that meet in one node.
const EDGES_MAX: usize = 4;

/// The root is the first node.
pub(crate) const ROOT: NodeId = 0;

impl Graph {
    pub fn new(program: &Program) -> Graph {
        let mut nodes = vec![Node::Root];
        let mut succs: Vec<Vec<NodeId>> = vec![Vec::new()];
        let mut by_block: Vec<Vec<Option<NodeId>>> = vec![Vec::new(); program.stages.len()];
        let mut cfgs: Vec<Option<Cfg>> = vec![None; program.stages.len()];
        for stage in program.entries.iter().flat_map(|e| &e.stages) {
            if cfgs[stage.index()].is_some() {
                continue;
            }
            let cfg = Cfg::new(&program.stages[stage.index()]);
            let slots = &mut by_block[stage.index()];
            slots.resize(program.stages[stage.index()].blocks.len(), None);
            for block in &cfg.rpo {
                slots[block.index()] = Some(nodes.len());
                nodes.push(Node::Block(*stage, *block));
                succs.push(Vec::new());
            }
            cfgs[stage.index()] = Some(cfg);
        }
        let first = |stage: StageId| by_block[stage.index()][0].expect("block 0 is reachable");
        // The nodes after each stage's `next`.
        let mut followers: Vec<Vec<NodeId>> = vec![Vec::new(); program.stages.len()];
        for entry in &program.entries {
            let start = nodes.len();
            nodes.push(Node::Start(entry.kind));
            succs.push(entry.stages.first().map(|s| first(*s)).into_iter().collect());
            succs[ROOT].push(start);
            for pair in entry.stages.windows(2) {
                let to = first(pair[1]);
                if !followers[pair[0].index()].contains(&to) {
                    followers[pair[0].index()].push(to);
                }
            }
        }
        for (node, place) in nodes.iter().enumerate() {
            let Node::Block(stage, block) = *place else { continue };
            let cfg = cfgs[stage.index()].as_ref().expect("the stage is in the graph");
            let within = &cfg.succs[block.index()];
            succs[node].extend(within.iter().map(|b| by_block[stage.index()][b.index()].expect("reachable")));
            if matches!(program.stages[stage.index()].blocks[block.index()].term, Terminator::Next) {
                succs[node].extend(&followers[stage.index()]);
            }
        }
        let targets = insert_joins(&mut nodes, &mut succs);
        let rpo = reverse_post_order(&succs);
        let mut rpo_index = vec![0; nodes.len()];
        let mut preds = vec![Vec::new(); nodes.len()];
        let mut edge = vec![Vec::new(); nodes.len()];
        for (i, &node) in rpo.iter().enumerate() {
            rpo_index[node] = i;
            for &to in &succs[node] {
                edge[node].push(preds[to].len());
                preds[to].push(node);
            }
        }
        drop_unreached(Graph { nodes, succs, targets, preds, edge, rpo, rpo_index, by_block })
    }

    /// The node of a block, if it is reachable.
    pub fn node(&self, stage: StageId, block: BlockId) -> Option<NodeId> {
        self.by_block[stage.index()].get(block.index()).copied().flatten()
    }

    /// The block of a node, if it has one.
    pub fn block<'p>(&self, program: &'p Program, node: NodeId) -> Option<&'p ir::Block> {
        match self.nodes[node] {
            Node::Block(stage, block) => Some(&program.stages[stage.index()].blocks[block.index()]),
            Node::Root | Node::Start(_) | Node::Join => None,
        }
    }
}

/// Inserts joins before nodes with many incoming edges; returns the original successors.
fn insert_joins(nodes: &mut Vec<Node>, succs: &mut Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>> {
    let mut targets = succs.clone();
    // For each node, its incoming edges: source and position among the source's successors. Nodes dominated by one node
    // are mostly adjacent in this order.
    let mut edges: Vec<Vec<(NodeId, usize)>> = vec![Vec::new(); nodes.len()];
    for &node in &reverse_post_order(succs) {
        succs[node].iter().enumerate().for_each(|(i, &to)| edges[to].push((node, i)));
    }
    for (to, mut edges) in edges.into_iter().enumerate() {
        while edges.len() > EDGES_MAX {
            let group = |group: &[(NodeId, usize)]| {
                let join = nodes.len();
                nodes.push(Node::Join);
                succs.push(vec![to]);
                targets.push(vec![to]);
                group.iter().for_each(|&(node, i)| succs[node][i] = join);
                (join, 0)
            };
            edges = edges.chunks(EDGES_MAX).map(group).collect();
        }
    }
    targets
}

/// Removes unreached nodes from `by_block`: those of stages after one that never ends in `next`.
fn drop_unreached(mut graph: Graph) -> Graph {
    let mut reached = vec![false; graph.nodes.len()];
    for &node in &graph.rpo {
        reached[node] = true;
    }
    for node in graph.by_block.iter_mut().flatten() {
        if node.is_some_and(|n| !reached[n]) {
            *node = None;
        }
    }
    graph
}

fn reverse_post_order(succs: &[Vec<NodeId>]) -> Vec<NodeId> {
    let mut order = Vec::with_capacity(succs.len());
    let mut visited = vec![false; succs.len()];
    visited[ROOT] = true;
    let mut stack = vec![(ROOT, 0usize)];
    while let Some((node, next)) = stack.last_mut() {
        match succs[*node].get(*next) {
            Some(&to) => {
                *next += 1;
                if !std::mem::replace(&mut visited[to], true) {
                    stack.push((to, 0));
                }
            }
            None => {
                order.push(*node);
                stack.pop();
            }
        }
    }
    order.reverse();
    order
}

/// The value of a slot at the start of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartValue {
    /// Zero.
    Zero,
    /// Any value.
    Unknown,
}

/// The values of slots at the start of an entry. Entries that parse a frame start with zeros, except for intrinsics and
/// (not at `Ingress`) preserved slots; entries that continue with a record start with any values.
pub(crate) fn start_values(program: &Program, kind: EntryKind) -> Vec<StartValue> {
    let all = program.slots.len();
    let mut values = match kind {
        EntryKind::Ingress | EntryKind::Reingress | EntryKind::CloneIngress => vec![StartValue::Zero; all],
        EntryKind::Egress | EntryKind::Deparse => return vec![StartValue::Unknown; all],
    };
    let mut unknown = |slot: SlotId| values[slot.index()] = StartValue::Unknown;
    program.intrinsics.iter().for_each(|(_, slot)| unknown(*slot));
    if kind != EntryKind::Ingress {
        program.field_lists.iter().flat_map(|(_, slots)| slots).for_each(|slot| unknown(*slot));
    }
    values
}

//! The whole program as one flow graph: the blocks of all stages that some entry uses, joined as the entries say.
//!
//! A stage that several entries share is there once; its `next` leads to whatever follows it in any of them. So facts
//! are what holds on all paths through the program, and passes see across stages. Before each entry's first stage stands
//! a *start* node: the moment at which the slots come from outside. Before all of them stands one root, so that the
//! graph has one beginning.
//!
//! Where more than [`EDGES_MAX`] edges meet, they meet in a tree of *joins*: nodes of their own, in the order of the edges. Of
//! the slots that have different values on different edges, most differ from one part of the edges to the other only (headers
//! that one parser state after the other extracts, each of which may be the last). Without joins each of them takes as many
//! arguments of a phi as there are edges; in the tree only the joins on the border of the parts need one.

use base::ids::{BlockId, SlotId, StageId};
use ir::{Cfg, EntryKind, Program, Terminator};

/// Index of a node.
pub(crate) type NodeId = usize;

/// A place in the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    /// Before everything.
    Root,
    /// Before the first stage of an entry.
    Start(EntryKind),
    /// A block that can be reached from its stage's start.
    Block(StageId, BlockId),
    /// Where some of the edges to a block meet.
    Join,
}

/// Nodes and edges. Nodes that the root does not reach have no place in `rpo` and no block that names them.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    pub succs: Vec<Vec<NodeId>>,
    /// The successors behind all joins, in the order of `succs`.
    pub targets: Vec<Vec<NodeId>>,
    pub preds: Vec<Vec<NodeId>>,
    /// Of each edge, in the order of `succs`: its position among the target's `preds`.
    pub edge: Vec<Vec<usize>>,
    /// Reverse post-order; begins with the root.
    pub rpo: Vec<NodeId>,
    /// Position in `rpo`.
    pub rpo_index: Vec<usize>,
    /// By stage and block; `None` for blocks that cannot be reached.
    by_block: Vec<Vec<Option<NodeId>>>,
}

/// Most edges that meet in one node.
const EDGES_MAX: usize = 4;

/// The first node is the root.
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
        // Where `next` leads, by stage.
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

    /// The node of a block, if it can be reached.
    pub fn node(&self, stage: StageId, block: BlockId) -> Option<NodeId> {
        self.by_block[stage.index()].get(block.index()).copied().flatten()
    }

    /// The block of a node, if it is one.
    pub fn block<'p>(&self, program: &'p Program, node: NodeId) -> Option<&'p ir::Block> {
        match self.nodes[node] {
            Node::Block(stage, block) => Some(&program.stages[stage.index()].blocks[block.index()]),
            Node::Root | Node::Start(_) | Node::Join => None,
        }
    }
}

/// Puts joins in front of nodes that many edges lead to; gives the successors as they were.
fn insert_joins(nodes: &mut Vec<Node>, succs: &mut Vec<Vec<NodeId>>) -> Vec<Vec<NodeId>> {
    let mut targets = succs.clone();
    // By node: where the edges to it begin, as node and number of the successor. Of what a node dominates, most is next to
    // one another in this order.
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

/// A stage behind one that never ends in `next` has nodes that nothing reaches: they are forgotten.
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

/// What a slot holds at an entry's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartValue {
    /// Zero.
    Zero,
    /// Anything.
    Unknown,
}

/// What slots hold when a packet enters: zero at the entries that parse a frame anew, but for intrinsics and (not at
/// `Ingress`) preserved slots; anything at those that go on with a record.
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

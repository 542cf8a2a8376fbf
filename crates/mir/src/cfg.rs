//! The control-flow graph: predecessors and reverse post-order.

use crate::function::Function;
use crate::types::Block;

/// The graph of a function's reachable blocks.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// By block: each edge to it, as its source block and its index among that terminator's edges.
    predecessors: Vec<Vec<(Block, usize)>>,
    order: Vec<Block>,
    /// By block: the position in `order`.
    positions: Vec<Option<u32>>,
}

impl Cfg {
    /// Builds the graph of a function.
    pub fn new(function: &Function) -> Cfg {
        let blocks = function.blocks.len();
        let mut order = Vec::with_capacity(function.layout.len());
        let mut is_seen = vec![false; blocks];
        // Blocks on the current path, with the edge to follow next.
        let mut path = vec![(function.entry(), 0)];
        is_seen[function.entry().index()] = true;
        while let Some((block, edge)) = path.last_mut() {
            match function.block(*block).terminator.edges().nth(*edge) {
                Some(to) => {
                    *edge += 1;
                    if !std::mem::replace(&mut is_seen[to.block.index()], true) {
                        path.push((to.block, 0));
                    }
                }
                None => {
                    order.push(*block);
                    path.pop();
                }
            }
        }
        order.reverse();
        let mut predecessors = vec![Vec::new(); blocks];
        let mut positions = vec![None; blocks];
        for (position, &block) in order.iter().enumerate() {
            positions[block.index()] = Some(position as u32);
            for (i, edge) in function.block(block).terminator.edges().enumerate() {
                predecessors[edge.block.index()].push((block, i));
            }
        }
        Cfg { predecessors, order, positions }
    }

    /// The edges to a block from reachable blocks, as source block and index among the terminator's edges.
    pub fn predecessors(&self, block: Block) -> &[(Block, usize)] {
        &self.predecessors[block.index()]
    }

    /// Reachable blocks in reverse post-order: each before its successors, except along back edges.
    pub fn reverse_postorder(&self) -> &[Block] {
        &self.order
    }

    /// The position of a block in reverse post-order; `None` if it is unreachable.
    pub fn position(&self, block: Block) -> Option<u32> {
        self.positions[block.index()]
    }

    /// Whether a path leads from the entry to the block.
    pub fn is_reachable(&self, block: Block) -> bool {
        self.position(block).is_some()
    }
}

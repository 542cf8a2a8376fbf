//! Dominators.
//!
//! Cooper, Harvey and Kennedy: "A simple, fast dominance algorithm", Software Practice and Experience, 2001.

use crate::cfg::Cfg;
use crate::function::Function;
use crate::types::Block;

/// The dominator tree of a function's reachable blocks.
#[derive(Clone, Debug)]
pub struct Dominators {
    /// Immediate dominator, by block.
    parents: Vec<Option<Block>>,
    children: Vec<Vec<Block>>,
    /// By block: the times at which a depth-first walk of the tree enters and leaves it.
    times: Vec<(u32, u32)>,
}

impl Dominators {
    /// Builds the tree of a function with this graph.
    pub fn new(function: &Function, cfg: &Cfg) -> Dominators {
        let order = cfg.reverse_postorder();
        let position = |block: Block| cfg.position(block).expect("reachable") as usize;
        // By position in reverse post-order.
        let mut parents: Vec<Option<usize>> = vec![None; order.len()];
        parents[0] = Some(0);
        let mut changed = true;
        while changed {
            changed = false;
            for (i, &block) in order.iter().enumerate().skip(1) {
                let mut parent = None;
                for (from, _) in cfg.predecessors(block) {
                    let from = position(*from);
                    if parents[from].is_some() {
                        parent = Some(parent.map_or(from, |other| common(&parents, other, from)));
                    }
                }
                if parent != parents[i] {
                    parents[i] = parent;
                    changed = true;
                }
            }
        }
        let mut tree = Dominators {
            parents: vec![None; function.blocks.len()],
            children: vec![Vec::new(); function.blocks.len()],
            times: vec![(0, 0); function.blocks.len()],
        };
        for (i, &block) in order.iter().enumerate().skip(1) {
            let parent = order[parents[i].expect("a reachable block has a dominator")];
            tree.parents[block.index()] = Some(parent);
            tree.children[parent.index()].push(block);
        }
        tree.number(order[0]);
        tree
    }

    fn number(&mut self, root: Block) {
        let mut time = 1;
        let mut path = vec![(root, 0)];
        self.times[root.index()].0 = time;
        while let Some((block, next)) = path.last_mut() {
            time += 1;
            match self.children[block.index()].get(*next) {
                Some(&child) => {
                    *next += 1;
                    self.times[child.index()].0 = time;
                    path.push((child, 0));
                }
                None => {
                    self.times[block.index()].1 = time;
                    path.pop();
                }
            }
        }
    }

    /// The immediate dominator; `None` for the entry and for unreachable blocks.
    pub fn parent(&self, block: Block) -> Option<Block> {
        self.parents[block.index()]
    }

    /// Blocks that a block dominates immediately.
    pub fn children(&self, block: Block) -> &[Block] {
        &self.children[block.index()]
    }

    /// Whether every path from the entry to `b` passes `a`. A block dominates itself. Unreachable blocks neither
    /// dominate nor are dominated.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let (a, b) = (self.times[a.index()], self.times[b.index()]);
        a.0 != 0 && b.0 != 0 && a.0 <= b.0 && b.1 <= a.1
    }
}

/// The nearest common dominator.
fn common(parents: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if a > b {
            a = parents[a].expect("processed");
        } else {
            b = parents[b].expect("processed");
        }
    }
    a
}

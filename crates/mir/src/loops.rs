//! Natural loops (Aho, Lam, Sethi, Ullman: "Compilers", section 9.6.6).

use crate::cfg::Cfg;
use crate::dominators::Dominators;
use crate::function::Function;
use crate::types::Block;

/// A natural loop: a header, and the blocks dominated by it from which it can be reached without passing it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Its only entry.
    pub header: Block,
    /// All blocks including the header, in ascending order.
    pub blocks: Vec<Block>,
    /// The innermost enclosing loop, as an index into [`Loops::all`].
    pub parent: Option<usize>,
}

/// The natural loops of a function. Cycles with several entries (irreducible ones) are not included.
#[derive(Clone, Debug)]
pub struct Loops {
    all: Vec<Loop>,
    /// By block: the innermost loop.
    innermost: Vec<Option<usize>>,
}

impl Loops {
    /// Finds the loops of a function with this graph.
    pub fn new(function: &Function, cfg: &Cfg, dominators: &Dominators) -> Loops {
        let mut loops = Loops { all: Vec::new(), innermost: vec![None; function.blocks.len()] };
        // Headers of inner loops come after those of outer ones.
        for &header in cfg.reverse_postorder() {
            let edges = cfg.predecessors(header).iter().map(|(from, _)| *from);
            let latches: Vec<Block> = edges.filter(|from| dominators.dominates(header, *from)).collect();
            if latches.is_empty() {
                continue;
            }
            let (mut blocks, mut waiting) = (vec![header], latches);
            let mut is_inside = vec![false; function.blocks.len()];
            is_inside[header.index()] = true;
            while let Some(block) = waiting.pop() {
                if !std::mem::replace(&mut is_inside[block.index()], true) {
                    blocks.push(block);
                    waiting.extend(cfg.predecessors(block).iter().map(|(from, _)| *from));
                }
            }
            blocks.sort_unstable();
            let number = loops.all.len();
            let parent = loops.innermost[header.index()];
            for block in &blocks {
                loops.innermost[block.index()] = Some(number);
            }
            loops.all.push(Loop { header, blocks, parent });
        }
        loops
    }

    /// All loops, outer ones before those that they contain.
    pub fn all(&self) -> &[Loop] {
        &self.all
    }

    /// The innermost loop that contains a block.
    pub fn of(&self, block: Block) -> Option<&Loop> {
        self.innermost[block.index()].map(|number| &self.all[number])
    }

    /// Number of loops that contain a block.
    pub fn depth(&self, block: Block) -> u32 {
        let mut depth = 0;
        let mut number = self.innermost[block.index()];
        while let Some(i) = number {
            depth += 1;
            number = self.all[i].parent;
        }
        depth
    }
}

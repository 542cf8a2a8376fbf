//! Liveness: which values are used later on some path (Aho, Lam, Sethi, Ullman: "Compilers", section 9.2.5).

use crate::cfg::Cfg;
use crate::function::Function;
use crate::types::{Block, Value};

/// A set of values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueSet(Vec<u64>);

impl ValueSet {
    /// The empty set, for values of a function.
    pub fn new(function: &Function) -> ValueSet {
        ValueSet(vec![0; function.values.len().div_ceil(64)])
    }

    /// Whether a value is in the set.
    pub fn contains(&self, value: Value) -> bool {
        self.0[value.index() / 64] >> (value.index() % 64) & 1 == 1
    }

    /// Adds a value.
    pub fn insert(&mut self, value: Value) {
        self.0[value.index() / 64] |= 1 << (value.index() % 64);
    }

    /// Removes a value.
    pub fn remove(&mut self, value: Value) {
        self.0[value.index() / 64] &= !(1 << (value.index() % 64));
    }

    /// Adds all values of another set.
    pub fn extend(&mut self, other: &ValueSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    /// The values, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Value> {
        (0..64 * self.0.len() as u32).map(Value).filter(|value| self.contains(*value))
    }
}

/// Live values at the start and end of each block.
#[derive(Clone, Debug)]
pub struct Liveness {
    starts: Vec<ValueSet>,
    ends: Vec<ValueSet>,
}

impl Liveness {
    /// Computes the live values of a function with this graph.
    pub fn new(function: &Function, cfg: &Cfg) -> Liveness {
        let empty = ValueSet::new(function);
        let mut liveness =
            Liveness { starts: vec![empty.clone(); function.blocks.len()], ends: vec![empty; function.blocks.len()] };
        let mut changed = true;
        while changed {
            changed = false;
            for &block in cfg.reverse_postorder().iter().rev() {
                let data = function.block(block);
                let mut live = ValueSet::new(function);
                for edge in data.terminator.edges() {
                    live.extend(&liveness.starts[edge.block.index()]);
                }
                let mut start = live.clone();
                data.terminator.operands(|value| start.insert(value));
                for inst in data.insts.iter().rev() {
                    if let Some(result) = inst.result {
                        start.remove(result);
                    }
                    inst.op.operands(|value| start.insert(value));
                }
                data.params.iter().for_each(|param| start.remove(*param));
                liveness.ends[block.index()] = live;
                if liveness.starts[block.index()] != start {
                    liveness.starts[block.index()] = start;
                    changed = true;
                }
            }
        }
        liveness
    }

    /// Values live at the block's start (live-in), without its parameters.
    pub fn at_start(&self, block: Block) -> &ValueSet {
        &self.starts[block.index()]
    }

    /// Values live at the block's end (live-out). The arguments of its edges are used by the block itself.
    pub fn at_end(&self, block: Block) -> &ValueSet {
        &self.ends[block.index()]
    }
}

//! On-the-fly SSA construction.
//!
//! Braun et al., "Simple and efficient construction of static single assignment form", CC 2013. A block records the
//! last value that it assigns to each variable. A read that finds none continues in the predecessor if there is exactly
//! one. If there are several, or if some are not known yet (the block is not *sealed*), a block parameter is added. Its
//! arguments are looked up at the end, when all blocks exist; that may add parameters to other blocks. So a parameter
//! exists only where a variable is read behind a join. Parameters that always have the same value are left to the pass
//! `parameters` of `mir`.
//!
//! **Bound.** The number of definitions is limited ([`crate::Options::definitions_max`]). Beyond it, reads return an
//! arbitrary value of the type; the caller discards the function and starts again with slots in memory.

use mir::{Block, Function, Type, Value};
use std::collections::{HashMap, VecDeque};

/// A variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Var(pub u32);

/// The location of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Var(Var),
    /// Offset in bytes in the function's frame.
    Memory(u32),
}

/// Variables and their definitions.
pub(crate) struct Ssa {
    types: Vec<Type>,
    /// The last value of a variable in a block.
    definitions: HashMap<(Block, Var), Value>,
    /// By block: its predecessors, once for each edge.
    predecessors: Vec<Vec<Block>>,
    is_sealed: Vec<bool>,
    /// Parameters whose arguments are still to be looked up, in order of creation.
    waiting: VecDeque<(Block, usize, Var)>,
    definitions_max: usize,
    /// An arbitrary value of each type, for reads beyond the budget.
    over: Option<[Value; 2]>,
}

impl Ssa {
    /// No variables yet; `definitions_max` limits the number of definitions.
    pub fn new(definitions_max: Option<usize>) -> Ssa {
        Ssa {
            types: Vec::new(),
            definitions: HashMap::new(),
            predecessors: Vec::new(),
            is_sealed: Vec::new(),
            waiting: VecDeque::new(),
            definitions_max: definitions_max.unwrap_or(usize::MAX),
            over: None,
        }
    }

    /// A new variable, which must be written before it is read on every path.
    pub fn declare(&mut self, ty: Type) -> Var {
        self.types.push(ty);
        Var(self.types.len() as u32 - 1)
    }

    /// Whether the limit on definitions was exceeded; the function is then invalid.
    pub fn is_over_budget(&self) -> bool {
        self.over.is_some()
    }

    fn grow(&mut self, block: Block) {
        if self.predecessors.len() <= block.index() {
            self.predecessors.resize(block.index() + 1, Vec::new());
            self.is_sealed.resize(block.index() + 1, false);
        }
    }

    /// Records an edge.
    pub fn edge(&mut self, from: Block, to: Block) {
        self.grow(from);
        self.grow(to);
        debug_assert!(!self.is_sealed[to.index()], "{to} has all its predecessors");
        self.predecessors[to.index()].push(from);
    }

    /// Declares that all edges to the block are known.
    pub fn seal(&mut self, block: Block) {
        self.grow(block);
        self.is_sealed[block.index()] = true;
    }

    /// Defines a variable's value in a block from here on.
    pub fn write(&mut self, block: Block, var: Var, value: Value) {
        self.definitions.insert((block, var), value);
    }

    /// The value of a variable at the current end of a block.
    pub fn read(&mut self, function: &mut Function, block: Block, var: Var) -> Value {
        if self.definitions.len() > self.definitions_max {
            let ty = self.types[var.0 as usize];
            let any = *self.over.get_or_insert_with(|| placeholders(function));
            return any[usize::from(ty == Type::I128)];
        }
        let mut passed = Vec::new();
        let mut at = block;
        let value = loop {
            if let Some(value) = self.definitions.get(&(at, var)) {
                break *value;
            }
            self.grow(at);
            passed.push(at);
            match self.predecessors[at.index()][..] {
                [only] if self.is_sealed[at.index()] => at = only,
                _ => break self.parameter(function, at, var),
            }
        };
        passed.into_iter().for_each(|block| _ = self.definitions.insert((block, var), value));
        value
    }

    fn parameter(&mut self, function: &mut Function, block: Block, var: Var) -> Value {
        let value = function.add_param(block, self.types[var.0 as usize]);
        self.waiting.push_back((block, function.block(block).params.len() - 1, var));
        value
    }

    /// Adds the arguments of all block parameters. All blocks must have their terminators.
    pub fn finish(&mut self, function: &mut Function) {
        self.is_sealed.fill(true);
        while let Some((block, at, var)) = self.waiting.pop_front() {
            let mut from = self.predecessors[block.index()].clone();
            from.dedup();
            for from in from {
                let value = self.read(function, from, var);
                let edges = function.block_mut(from).terminator.edges_mut();
                edges
                    .filter(|edge| edge.block == block && edge.args.len() == at)
                    .for_each(|edge| edge.args.push(value));
            }
        }
    }
}

/// An arbitrary value of each type, defined in the entry block.
fn placeholders(function: &mut Function) -> [Value; 2] {
    let entry = function.entry();
    [Type::I64, Type::I128].map(|ty| {
        let value = function.add_value(ty);
        let inst = mir::Instruction { op: mir::Op::Const(0), result: Some(value), location: None };
        function.block_mut(entry).insts.insert(0, inst);
        value
    })
}

//! Modules and functions: the data that producers build, passes change and the lowering reads.

use crate::op::{Callee, Edge, Instruction, Op, Terminator};
use crate::types::{Block, Effects, FunctionId, RuntimeId, Slot, TableId, Type, Value};

/// Functions that are compiled together, and what they refer to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Module {
    /// By [`TableId`].
    pub tables: Vec<Table>,
    /// By [`RuntimeId`].
    pub runtime: Vec<Runtime>,
    /// By [`FunctionId`].
    pub functions: Vec<Function>,
}

/// A table that functions look up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its name, for messages; unique in the module.
    pub name: String,
    /// Size of a key in 64-bit words, at least 1.
    pub words: u32,
    /// The address of the lookup function's first argument.
    pub handle: u64,
    /// The address of `extern "C" fn(handle, address of the key) -> entry`.
    pub lookup: u64,
}

/// A function of the runtime: `extern "C"`, with integers of up to 64 bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runtime {
    /// Its name; unique among the module's runtime functions.
    pub name: String,
    /// Types of the arguments.
    pub params: Vec<Type>,
    /// Type of the result.
    pub result: Option<Type>,
    /// Its effects.
    pub effects: Effects,
    /// The address of the code.
    pub address: u64,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name; unique among the module's functions.
    pub name: String,
    /// Type of the result.
    pub result: Option<Type>,
    /// The effects of a call.
    pub effects: Effects,
    /// Stack memory that lives from a call to its return, by [`Slot`]; initially undefined.
    pub slots: Vec<StackSlot>,
    /// Types of values, by [`Value`].
    pub values: Vec<Type>,
    /// By [`Block`].
    pub blocks: Vec<BlockData>,
    /// The blocks that belong to the function, the entry first, in the order of the text and of the machine code.
    pub layout: Vec<Block>,
}

/// A stack slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackSlot {
    /// Its size in bytes.
    pub bytes: u32,
    /// Alignment in bytes: a power of two, at most 64.
    pub align: u32,
}

/// A basic block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockData {
    /// Values passed by the edges to it. The entry's are the function's parameters.
    pub params: Vec<Value>,
    /// In order of execution.
    pub insts: Vec<Instruction>,
    /// How it ends.
    pub terminator: Terminator,
}

/// Where a value is defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definition {
    /// A block's parameter, by position.
    Param(Block, usize),
    /// An instruction of a block, by position.
    Inst(Block, usize),
}

impl Module {
    /// The effects of a call.
    pub fn effects_of(&self, callee: Callee) -> Effects {
        match callee {
            Callee::Runtime(id) => self.runtime.get(id.index()).map_or(Effects::ANY, |runtime| runtime.effects),
            Callee::Function(id) => self.functions.get(id.index()).map_or(Effects::ANY, |function| function.effects),
        }
    }

    /// The type of a call's result; the outer `None` if there is no such function.
    pub fn result_of(&self, callee: Callee) -> Option<Option<Type>> {
        match callee {
            Callee::Runtime(id) => self.runtime.get(id.index()).map(|runtime| runtime.result),
            Callee::Function(id) => self.functions.get(id.index()).map(|function| function.result),
        }
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<FunctionId> {
        self.functions.iter().position(|function| function.name == name).map(|i| FunctionId(i as u32))
    }

    /// Adds a function of the runtime.
    pub fn add_runtime(&mut self, runtime: Runtime) -> RuntimeId {
        self.runtime.push(runtime);
        RuntimeId(self.runtime.len() as u32 - 1)
    }

    /// Adds a table.
    pub fn add_table(&mut self, table: Table) -> TableId {
        self.tables.push(table);
        TableId(self.tables.len() as u32 - 1)
    }
}

impl Function {
    /// A function with these parameters and an unfinished entry block.
    pub fn new(name: impl Into<String>, params: &[Type], result: Option<Type>) -> Function {
        let mut function = Function {
            name: name.into(),
            result,
            effects: Effects::ANY,
            slots: Vec::new(),
            values: Vec::new(),
            blocks: Vec::new(),
            layout: Vec::new(),
        };
        let entry = function.add_block();
        for ty in params {
            function.add_param(entry, *ty);
        }
        function
    }

    /// The first block.
    pub fn entry(&self) -> Block {
        self.layout[0]
    }

    /// The function's parameters.
    pub fn params(&self) -> &[Value] {
        &self.block(self.entry()).params
    }

    /// Adds a block at the end of the layout, with the terminator `unreachable`.
    pub fn add_block(&mut self) -> Block {
        let block = Block(self.blocks.len() as u32);
        self.blocks.push(BlockData { params: Vec::new(), insts: Vec::new(), terminator: Terminator::Unreachable });
        self.layout.push(block);
        block
    }

    /// Adds a parameter to a block.
    pub fn add_param(&mut self, block: Block, ty: Type) -> Value {
        let value = self.add_value(ty);
        self.block_mut(block).params.push(value);
        value
    }

    /// Adds a value without a definition.
    pub fn add_value(&mut self, ty: Type) -> Value {
        self.values.push(ty);
        Value(self.values.len() as u32 - 1)
    }

    /// Adds a stack slot.
    pub fn add_slot(&mut self, bytes: u32, align: u32) -> Slot {
        self.slots.push(StackSlot { bytes, align });
        Slot(self.slots.len() as u32 - 1)
    }

    /// A block.
    pub fn block(&self, block: Block) -> &BlockData {
        &self.blocks[block.index()]
    }

    /// A block.
    pub fn block_mut(&mut self, block: Block) -> &mut BlockData {
        &mut self.blocks[block.index()]
    }

    /// The type of a value.
    pub fn type_of(&self, value: Value) -> Type {
        self.values[value.index()]
    }

    /// The definition of each value, by value; only blocks in the layout count.
    pub fn definitions(&self) -> Vec<Option<Definition>> {
        let mut definitions = vec![None; self.values.len()];
        for &block in &self.layout {
            let data = self.block(block);
            for (i, param) in data.params.iter().enumerate() {
                definitions[param.index()] = Some(Definition::Param(block, i));
            }
            for (i, inst) in data.insts.iter().enumerate() {
                if let Some(result) = inst.result {
                    definitions[result.index()] = Some(Definition::Inst(block, i));
                }
            }
        }
        definitions
    }

    /// Replaces all operands by their replacements. Chains of replacements are followed.
    pub fn replace(&mut self, replacements: &Replacements) {
        if replacements.is_empty() {
            return;
        }
        for block in self.layout.clone() {
            let data = self.block_mut(block);
            for inst in &mut data.insts {
                inst.op.operands_mut(|value| *value = replacements.of(*value));
            }
            data.terminator.operands_mut(|value| *value = replacements.of(*value));
        }
    }

    /// Number of instructions of all blocks in the layout.
    pub fn instructions(&self) -> usize {
        self.layout.iter().map(|block| self.block(*block).insts.len()).sum()
    }
}

/// A map from values to the values that replace them.
#[derive(Clone, Debug)]
pub struct Replacements(Vec<Value>, bool);

impl Replacements {
    /// An empty map for the values of a function.
    pub fn new(function: &Function) -> Replacements {
        Replacements((0..function.values.len() as u32).map(Value).collect(), true)
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.1
    }

    /// Extends the map to values that were added to the function since.
    pub fn grow(&mut self, function: &Function) {
        self.0.extend((self.0.len() as u32..function.values.len() as u32).map(Value));
    }

    /// Replaces `value` by `by`. The value must have no replacement yet and must not be its own.
    pub fn add(&mut self, value: Value, by: Value) {
        let by = self.of(by);
        debug_assert!(by != value && self.0[value.index()] == value);
        self.0[value.index()] = by;
        self.1 = false;
    }

    /// The replacement of a value, or the value itself.
    pub fn of(&self, value: Value) -> Value {
        let mut value = value;
        while let Some(next) = self.0.get(value.index()).copied().filter(|next| *next != value) {
            value = next;
        }
        value
    }
}

/// Appends instructions to a block.
pub struct Builder<'f> {
    /// The function.
    pub function: &'f mut Function,
    /// The current block.
    pub block: Block,
    /// The source location of further instructions.
    pub location: Option<u32>,
}

impl<'f> Builder<'f> {
    /// Positions a builder at the end of a block.
    pub fn at(function: &'f mut Function, block: Block) -> Builder<'f> {
        Builder { function, block, location: None }
    }

    /// Adds an instruction with a result.
    pub fn value(&mut self, ty: Type, op: Op) -> Value {
        let value = self.function.add_value(ty);
        let inst = Instruction { op, result: Some(value), location: self.location };
        self.function.block_mut(self.block).insts.push(inst);
        value
    }

    /// Adds an instruction without a result.
    pub fn effect(&mut self, op: Op) {
        let inst = Instruction { op, result: None, location: self.location };
        self.function.block_mut(self.block).insts.push(inst);
    }

    /// A constant.
    pub fn constant(&mut self, ty: Type, number: u64) -> Value {
        self.value(ty, Op::Const(u128::from(number) & ty.mask()))
    }

    /// A binary operation, of the first operand's type.
    pub fn binary(&mut self, op: crate::op::Binary, a: Value, b: Value) -> Value {
        self.value(self.function.type_of(a), Op::Binary(op, a, b))
    }

    /// A comparison.
    pub fn compare(&mut self, condition: crate::op::Condition, a: Value, b: Value) -> Value {
        self.value(Type::I1, Op::Compare(condition, a, b))
    }

    /// A value zero-extended or truncated to a type.
    pub fn resize(&mut self, value: Value, ty: Type) -> Value {
        let from = self.function.type_of(value);
        match from.bits().cmp(&ty.bits()) {
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Less => self.value(ty, Op::Cast(crate::op::Cast::Zext, value)),
            std::cmp::Ordering::Greater => self.value(ty, Op::Cast(crate::op::Cast::Trunc, value)),
        }
    }

    /// Ends the block.
    pub fn end(&mut self, terminator: Terminator) {
        self.function.block_mut(self.block).terminator = terminator;
    }

    /// Ends the block with a jump.
    pub fn jump(&mut self, block: Block, args: Vec<Value>) {
        self.end(Terminator::Jump(Edge::new(block, args)));
    }
}

//! Lowering of functions, blocks and terminators.

use crate::flags::Flags;
use crate::type_of;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    Block, BlockArg, FuncRef, InstBuilder, SigRef, SourceLoc, StackSlot, StackSlotData, StackSlotKind, TrapCode, Value,
};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, Switch};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Module};
use mir::{Cfg, Edge, Function, Op, RuntimeId, Terminator, Type};
use std::collections::HashMap;

/// The representation of a value in Cranelift's IR.
#[derive(Clone, Debug)]
pub(crate) enum Lowered {
    Integer(Value),
    /// The words of a key.
    Probe(Vec<Value>),
}

/// A function that is being lowered.
pub(crate) struct Lowering<'m, 'f> {
    pub(crate) module: &'m mir::Module,
    pub(crate) function: &'m Function,
    pub(crate) b: FunctionBuilder<'f>,
    pub(crate) flags: Flags,
    ids: &'m [FuncId],
    code: &'m mut JITModule,
    /// By value; only values of reachable blocks.
    values: Vec<Option<Lowered>>,
    /// By value: the number, if it is a constant.
    pub(crate) constants: Vec<Option<u128>>,
    blocks: Vec<Option<Block>>,
    pub(crate) slots: Vec<StackSlot>,
    /// The stack slot that holds keys for lookups.
    pub(crate) key: Option<StackSlot>,
    functions: HashMap<u32, FuncRef>,
    pub(crate) signatures: HashMap<Option<RuntimeId>, SigRef>,
}

/// Lowers a function into the Cranelift function that `b` builds.
pub(crate) fn function<'m>(
    module: &'m mir::Module,
    function: &'m Function,
    ids: &'m [FuncId],
    code: &'m mut JITModule,
    mut b: FunctionBuilder<'_>,
    frontend: TargetFrontendConfig,
) {
    let slots = function.slots.iter().map(|slot| {
        let align = slot.align.trailing_zeros() as u8;
        b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, slot.bytes, align))
    });
    let slots = slots.collect();
    let flags = Flags::new(function, b.func);
    let mut lowering = Lowering {
        module,
        function,
        b,
        flags,
        ids,
        code,
        values: vec![None; function.values.len()],
        constants: vec![None; function.values.len()],
        blocks: vec![None; function.blocks.len()],
        slots,
        key: None,
        functions: HashMap::new(),
        signatures: HashMap::new(),
    };
    let cfg = Cfg::new(function);
    lowering.declare(&cfg);
    // In this order definitions come before their uses.
    for &block in cfg.reverse_postorder() {
        let data = function.block(block);
        lowering.b.switch_to_block(lowering.blocks[block.index()].expect("declared"));
        for inst in &data.insts {
            lowering.b.set_srcloc(inst.location.map_or(SourceLoc::default(), SourceLoc::new));
            let lowered = lowering.operation(&inst.op, inst.result);
            if let (Some(result), Some(lowered)) = (inst.result, lowered) {
                lowering.values[result.index()] = Some(lowered);
                if let Op::Const(number) = inst.op {
                    lowering.constants[result.index()] = Some(number);
                }
            }
        }
        lowering.terminator(&data.terminator);
    }
    lowering.b.seal_all_blocks();
    lowering.b.finalize(frontend);
}

impl Lowering<'_, '_> {
    /// Creates the reachable blocks with their parameters.
    fn declare(&mut self, cfg: &Cfg) {
        let (function, module) = (self.function, self.module);
        for &block in cfg.reverse_postorder() {
            let made = self.b.create_block();
            self.blocks[block.index()] = Some(made);
            for &param in &function.block(block).params {
                let lowered = match function.type_of(param) {
                    Type::Probe(table) => {
                        let words = 0..module.tables[table.index()].words;
                        Lowered::Probe(words.map(|_| self.b.append_block_param(made, I64)).collect())
                    }
                    ty => Lowered::Integer(self.b.append_block_param(made, type_of(ty))),
                };
                self.values[param.index()] = Some(lowered);
            }
        }
        // A block is warm if it is reached from the entry by edges of nonzero weight.
        let mut is_warm = vec![false; function.blocks.len()];
        let mut waiting = vec![function.entry()];
        while let Some(block) = waiting.pop() {
            if !std::mem::replace(&mut is_warm[block.index()], true) {
                let edges = function.block(block).terminator.edges();
                waiting.extend(edges.filter(|edge| edge.weight > 0).map(|edge| edge.block));
            }
        }
        for block in cfg.reverse_postorder().iter().filter(|block| !is_warm[block.index()]) {
            self.b.set_cold_block(self.blocks[block.index()].expect("just made"));
        }
    }

    /// The Cranelift value of an integer.
    pub(crate) fn get(&self, value: mir::Value) -> Value {
        match &self.values[value.index()] {
            Some(Lowered::Integer(value)) => *value,
            other => unreachable!("{value} of a verified function is {other:?}"),
        }
    }

    /// The words of a probe.
    pub(crate) fn words(&self, value: mir::Value) -> &[Value] {
        match &self.values[value.index()] {
            Some(Lowered::Probe(words)) => words,
            other => unreachable!("{value} of a verified function is {other:?}"),
        }
    }

    /// The reference to a function of the module.
    pub(crate) fn callee(&mut self, id: mir::FunctionId) -> FuncRef {
        let (code, func, ids) = (&mut *self.code, &mut *self.b.func, self.ids);
        *self.functions.entry(id.0).or_insert_with(|| code.declare_func_in_func(ids[id.index()], func))
    }

    /// The calling convention of external functions.
    pub(crate) fn call_conv(&self) -> cranelift_codegen::isa::CallConv {
        self.code.isa().default_call_conv()
    }

    fn target(&self, edge: &Edge) -> (Block, Vec<BlockArg>) {
        let mut args = Vec::new();
        for arg in &edge.args {
            match &self.values[arg.index()] {
                Some(Lowered::Integer(value)) => args.push((*value).into()),
                Some(Lowered::Probe(words)) => args.extend(words.iter().map(|word| BlockArg::from(*word))),
                None => unreachable!("{arg} of a verified function is not defined"),
            }
        }
        (self.blocks[edge.block.index()].expect("an edge of a reachable block"), args)
    }

    fn terminator(&mut self, terminator: &Terminator) {
        match terminator {
            Terminator::Jump(edge) => {
                let (block, args) = self.target(edge);
                self.b.ins().jump(block, &args);
            }
            Terminator::Branch(value, then, other) => {
                let ((then, then_args), (other, other_args)) = (self.target(then), self.target(other));
                let condition = self.get(*value);
                self.b.ins().brif(condition, then, &then_args, other, &other_args);
            }
            Terminator::Switch(value, cases, default) => {
                // Edges of a jump table have no arguments, so edges with arguments go through a block of their own.
                let mut between = Vec::new();
                let mut target = |lowering: &mut Self, edge: &Edge| match lowering.target(edge) {
                    (block, args) if args.is_empty() => block,
                    (block, args) => {
                        let made = lowering.b.create_block();
                        between.push((made, block, args));
                        made
                    }
                };
                let mut switch = Switch::new();
                for (number, edge) in cases {
                    let block = target(self, edge);
                    switch.set_entry(u128::from(*number), block);
                }
                let default = target(self, default);
                let value = self.get(*value);
                switch.emit(&mut self.b, value, default);
                for (made, block, args) in between {
                    self.b.switch_to_block(made);
                    self.b.ins().jump(block, &args);
                }
            }
            Terminator::Return(value) => {
                let values: Vec<Value> = value.iter().map(|value| self.get(*value)).collect();
                self.b.ins().return_(&values);
            }
            Terminator::Unreachable => {
                self.b.ins().trap(TrapCode::unwrap_user(1));
            }
        }
    }
}

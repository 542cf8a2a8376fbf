//! Liveness in generated code: which values of a piece of it are used.
//!
//! A phase begins by loading everything that might be live from the packet's row. What is really live is found in the
//! generated code: marks propagate backwards from instructions with effects, through values and block parameters. So
//! the translation of an operation need not declare separately what it reads.

use cranelift_codegen::entity::EntitySet;
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstructionData, Opcode, StackSlot, Value, ValueDef};
use std::collections::HashMap;

/// The values that effects of the blocks' instructions depend on, within these blocks.
pub(super) fn used_values(func: &Function, blocks: &[Block]) -> EntitySet<Value> {
    let dfg = &func.dfg;
    let mut used = EntitySet::new();
    let mut work: Vec<Value> = Vec::new();
    // The branches that pass arguments to a block's parameters.
    let mut incoming: HashMap<Block, Vec<Inst>> = HashMap::new();
    for &block in blocks {
        for inst in func.layout.block_insts(block) {
            if has_effect(func, inst) {
                work.extend(dfg.inst_args(inst));
            }
            for call in dfg.insts[inst].branch_destination(&dfg.jump_tables, &dfg.exception_tables) {
                incoming.entry(call.block(&dfg.value_lists)).or_default().push(inst);
            }
        }
    }
    while let Some(value) = work.pop() {
        let value = dfg.resolve_aliases(value);
        if !used.insert(value) {
            continue;
        }
        match dfg.value_def(value) {
            ValueDef::Result(inst, _) => work.extend(dfg.inst_args(inst)),
            ValueDef::Param(block, number) => {
                for &inst in incoming.get(&block).into_iter().flatten() {
                    for call in dfg.insts[inst].branch_destination(&dfg.jump_tables, &dfg.exception_tables) {
                        if call.block(&dfg.value_lists) == block
                            && let Some(BlockArg::Value(v)) = call.args(&dfg.value_lists).nth(number)
                        {
                            work.push(v);
                        }
                    }
                }
            }
            ValueDef::Union(a, b) => work.extend([a, b]),
        }
    }
    used
}

/// Whether any of the blocks' instructions takes the address of a stack slot.
pub(super) fn uses_stack_slot(func: &Function, blocks: &[Block], slot: StackSlot) -> bool {
    let mut insts = blocks.iter().flat_map(|&b| func.layout.block_insts(b));
    insts.any(|i| matches!(func.dfg.insts[i], InstructionData::StackAddr { stack_slot, .. } if stack_slot == slot))
}

fn has_effect(func: &Function, inst: Inst) -> bool {
    let data = &func.dfg.insts[inst];
    let opcode: Opcode = data.opcode();
    let may_trap = match *data {
        InstructionData::Load { flags, .. } => !func.dfg.mem_flags[flags].notrap(),
        _ => opcode.can_trap() && !opcode.can_load(),
    };
    may_trap
        || opcode.is_call()
        || opcode.is_branch()
        || opcode.is_terminator()
        || opcode.can_store()
        || opcode.other_side_effects()
}

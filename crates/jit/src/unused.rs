//! Dead code elimination before Cranelift's passes: Cranelift itself never removes a load or a block parameter.
//!
//! Fields are loaded where an operation reads them, and sometimes only another path needs the value, or its bytes are
//! loaded on their own. Slots become block parameters at joins, though few operations after a join read them.
//!
//! Tests: `tests/packets.rs`; crate `difftest`.

use cranelift_codegen::ir::{Block, DataFlowGraph, Function, Inst, Opcode, Value};
use std::collections::HashMap;

/// Whether an instruction may be removed if its results are unused.
fn is_removable(func: &Function, inst: Inst) -> bool {
    let data = &func.dfg.insts[inst];
    let opcode = data.opcode();
    if opcode.can_load() {
        let is_plain = matches!(
            opcode,
            Opcode::Load
                | Opcode::Uload8
                | Opcode::Uload16
                | Opcode::Uload32
                | Opcode::Sload8
                | Opcode::Sload16
                | Opcode::Sload32
        );
        return is_plain && data.memflags_data(&func.dfg).is_some_and(|flags| flags.notrap());
    }
    !(opcode.is_terminator()
        || opcode.is_branch()
        || opcode.is_call()
        || opcode.can_store()
        || opcode.can_trap()
        || opcode.other_side_effects())
}

/// Removes instructions with unused results, and unused block parameters.
pub(crate) fn remove(func: &mut Function) {
    remove_instructions(func);
    if remove_params(func) {
        remove_instructions(func);
    }
}

/// Removes block parameters that are used only as arguments of other unused ones.
fn remove_params(func: &mut Function) -> bool {
    let mut live = vec![false; func.dfg.num_values()];
    let mut passed: Vec<(Value, Value)> = Vec::new();
    let blocks: Vec<Block> = func.layout.blocks().collect();
    let Some((_, others)) = blocks.split_first() else { return false };
    for inst in blocks.iter().flat_map(|block| func.layout.block_insts(*block)) {
        for arg in func.dfg.inst_args(inst) {
            live[func.dfg.resolve_aliases(*arg).as_u32() as usize] = true;
        }
        let (tables, exceptions) = (&func.dfg.jump_tables, &func.dfg.exception_tables);
        for call in func.dfg.insts[inst].branch_destination(tables, exceptions) {
            let params = func.dfg.block_params(call.block(&func.dfg.value_lists));
            for (param, arg) in params.iter().zip(call.args(&func.dfg.value_lists)) {
                passed.extend(arg.as_value().map(|arg| (*param, func.dfg.resolve_aliases(arg))));
            }
        }
    }
    let is_live = |live: &[bool], value: Value| live[value.as_u32() as usize];
    loop {
        let before = passed.len();
        passed.retain(|(param, arg)| {
            let reached = is_live(&live, *param);
            live[arg.as_u32() as usize] |= reached;
            !reached
        });
        if passed.len() == before {
            break;
        }
    }
    let mut gone: HashMap<Block, Vec<usize>> = HashMap::new();
    for block in others {
        let params = func.dfg.block_params(*block);
        let unused: Vec<usize> = (0..params.len()).rev().filter(|i| !is_live(&live, params[*i])).collect();
        for i in &unused {
            let param = func.dfg.block_params(*block)[*i];
            func.dfg.remove_block_param(param);
        }
        if !unused.is_empty() {
            gone.insert(*block, unused);
        }
    }
    let ends: Vec<Inst> = blocks.iter().filter_map(|block| func.layout.last_inst(*block)).collect();
    for inst in ends {
        let DataFlowGraph { insts, jump_tables, exception_tables, value_lists, .. } = &mut func.dfg;
        for call in insts[inst].branch_destination_mut(jump_tables, exception_tables) {
            for i in gone.get(&call.block(value_lists)).into_iter().flatten() {
                call.remove(*i, value_lists);
            }
        }
    }
    !gone.is_empty()
}

/// Removes instructions with unused results.
fn remove_instructions(func: &mut Function) {
    let mut uses = vec![0u32; func.dfg.num_values()];
    let blocks: Vec<Block> = func.layout.blocks().collect();
    for block in &blocks {
        for inst in func.layout.block_insts(*block) {
            for value in func.dfg.inst_values(inst) {
                uses[func.dfg.resolve_aliases(value).as_u32() as usize] += 1;
            }
        }
    }
    // From last to first, so that instructions used only by removed ones are removed too.
    for block in blocks.into_iter().rev() {
        let mut next = func.layout.last_inst(block);
        while let Some(inst) = next {
            next = func.layout.prev_inst(inst);
            let is_used = func.dfg.inst_results(inst).iter().any(|result| uses[result.as_u32() as usize] > 0);
            if !is_used && is_removable(func, inst) {
                for value in func.dfg.inst_values(inst) {
                    uses[func.dfg.resolve_aliases(value).as_u32() as usize] -= 1;
                }
                func.layout.remove_inst(inst);
            }
        }
    }
}

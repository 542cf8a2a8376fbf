//! Edges of the control-flow graph: splitting them.

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstBuilder};

/// The last instruction of a block.
fn end_of(func: &Function, block: Block) -> Inst {
    func.layout.last_inst(block).expect("blocks end with a branch")
}

/// The target of each edge out of a block.
pub(crate) fn targets(func: &Function, block: Block) -> Vec<Block> {
    let end = end_of(func, block);
    let calls = func.dfg.insts[end].branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
    calls.iter().map(|call| call.block(&func.dfg.value_lists)).collect()
}

/// Inserts a block on edge `number` out of a block. It is cold if either end of the edge is.
pub(crate) fn split(func: &mut Function, from: Block, number: usize) -> Block {
    let end = end_of(func, from);
    let between = func.dfg.make_block();
    let dfg = &mut func.dfg;
    let calls = dfg.insts[end].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
    let call = &mut calls[number];
    let to = call.block(&dfg.value_lists);
    let args: Vec<BlockArg> = call.args(&dfg.value_lists).collect();
    call.clear(&mut dfg.value_lists);
    call.set_block(between, &mut dfg.value_lists);
    func.layout.insert_block_after(between, from);
    if func.layout.is_cold(from) || func.layout.is_cold(to) {
        func.layout.set_cold(between);
    }
    let mut cursor = FuncCursor::new(func).at_bottom(between);
    cursor.use_srcloc(end);
    cursor.ins().jump(to, &args);
    between
}

//! Takes out what nothing uses before Cranelift sees it: it never drops a load by itself.
//!
//! Fields are loaded where an operation reads them, and sometimes only another code path needs the value, or bytes of it that
//! are loaded on their own.
//!
//! Tests: `tests/packets.rs`; crate `difftest`.

use cranelift_codegen::ir::{Block, Function, Inst, Opcode};

/// Whether an instruction may go if nothing uses its results.
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

/// Removes instructions whose results nothing uses.
pub(crate) fn remove(func: &mut Function) {
    let mut uses = vec![0u32; func.dfg.num_values()];
    let blocks: Vec<Block> = func.layout.blocks().collect();
    for block in &blocks {
        for inst in func.layout.block_insts(*block) {
            for value in func.dfg.inst_values(inst) {
                uses[func.dfg.resolve_aliases(value).as_u32() as usize] += 1;
            }
        }
    }
    // From the last to the first, so that what only removed ones use goes too.
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

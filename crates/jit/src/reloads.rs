//! Redundant load elimination across cold calls.
//!
//! Cranelift reuses a load's result for later loads of the same bytes if no store and no call can come in between.
//! Inline lookups call their table's engine on cold paths, and after each such call all of a frame would be loaded
//! again. But a cold call ([`crate::cold_calls`]) writes to no frame and saves all registers. One cold call moves the
//! frame, to make headroom; after it the frame's address is loaded anew, so that no earlier load has the same address
//! (`ensure_headroom` in `crate::deparse`).
//!
//! Each point of the function has a *version* of the frame: the instruction that may have changed it last, or the block
//! where several such versions join. Loads of the same bytes in the same version give the same value; the first is
//! reused where it dominates the second.
//!
//! Tests: `tests/packets.rs`; crate `difftest`.

use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::{AliasRegion, Block, Function, Inst, InstBuilder, InstructionData, Opcode, Value};
use cranelift_codegen::isa::CallConv;
use std::collections::HashMap;

/// What may have changed the frame last.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Version {
    Inst(Inst),
    Join(Block),
}

/// Most earlier loads of the same bytes that are examined for one that dominates: the cases of a wide switch may each
/// have their own.
const EARLIER_MAX: usize = 8;

/// Bytes that are loaded, and the base and offset of the address.
type Load = (u32, Value, i32);

/// Removes loads from frames, which are in alias region `frames`, that repeat an earlier load.
pub(crate) fn remove(func: &mut Function, frames: Option<AliasRegion>) {
    let is_call = |inst: Inst| func.dfg.insts[inst].opcode() == Opcode::Call;
    if !func.layout.blocks().any(|block| func.layout.block_insts(block).any(is_call)) {
        return;
    }
    let graph = ControlFlowGraph::with_function(func);
    let tree = DominatorTree::with_function(func, &graph);
    let order: Vec<Block> = tree.cfg_rpo().copied().collect();
    let versions = versions(func, &graph, &order, frames);
    let mut known: HashMap<(Version, Load), Vec<(Block, Value)>> = HashMap::new();
    for block in order {
        let mut version = versions[&block];
        let insts: Vec<Inst> = func.layout.block_insts(block).collect();
        for inst in insts {
            if may_write(func, inst, frames) {
                version = Version::Inst(inst);
            }
            let Some(load) = load_of(func, inst, frames) else { continue };
            let result = func.dfg.first_result(inst);
            let earlier = known.entry((version, load)).or_default();
            match earlier.iter().rev().take(EARLIER_MAX).find(|(at, _)| tree.block_dominates(*at, block)) {
                Some((_, value)) => replace(func, inst, result, *value),
                None => earlier.push((block, result)),
            }
        }
    }
}

/// Replaces a load by an earlier one of the same bytes, whose result may be wider or narrower.
fn replace(func: &mut Function, inst: Inst, result: Value, earlier: Value) {
    let (wanted, there) = (func.dfg.value_type(result), func.dfg.value_type(earlier));
    if wanted == there {
        func.dfg.clear_results(inst);
        func.dfg.change_to_alias(result, earlier);
        func.layout.remove_inst(inst);
    } else if wanted.bits() < there.bits() {
        func.replace(inst).ireduce(wanted, earlier);
    } else {
        func.replace(inst).uextend(wanted, earlier);
    }
}

/// The version at the start of each block. Back edges are assumed to bring the same version until they have been
/// followed; a block that turns out to join versions remains a join.
fn versions(
    func: &Function,
    graph: &ControlFlowGraph,
    order: &[Block],
    frames: Option<AliasRegion>,
) -> HashMap<Block, Version> {
    let last_write = |block: Block| {
        let written = |inst: &Inst| may_write(func, *inst, frames);
        func.layout.block_insts(block).rev().find(written).map(Version::Inst)
    };
    let own: HashMap<Block, Option<Version>> = order.iter().map(|block| (*block, last_write(*block))).collect();
    let mut before: HashMap<Block, Version> = HashMap::new();
    loop {
        let mut has_changed = false;
        for block in order {
            let mut from = graph.pred_iter(*block).filter_map(|from| {
                let written = own.get(&from.block)?;
                written.or_else(|| before.get(&from.block).copied())
            });
            let version = match from.next() {
                Some(first) if from.all(|other| other == first) => first,
                _ => Version::Join(*block),
            };
            let known = before.entry(*block).or_insert(version);
            if *known != version && *known != Version::Join(*block) {
                *known = Version::Join(*block);
                has_changed = true;
            }
        }
        if !has_changed {
            return before;
        }
    }
}

/// The bytes that an instruction loads from a frame; `None` for other instructions, and for loads that must be executed
/// even if unused.
fn load_of(func: &Function, inst: Inst, frames: Option<AliasRegion>) -> Option<Load> {
    let InstructionData::Load { opcode, arg, flags, offset } = func.dfg.insts[inst] else { return None };
    let flags = func.dfg.mem_flags[flags];
    let bytes = match opcode {
        Opcode::Load => func.dfg.value_type(func.dfg.first_result(inst)).bytes(),
        Opcode::Uload8 => 1,
        Opcode::Uload16 => 2,
        Opcode::Uload32 => 4,
        _ => return None,
    };
    let is_plain = flags.notrap() && flags.alias_region() == frames && bytes <= 8;
    is_plain.then(|| (bytes, func.dfg.resolve_aliases(arg), i32::from(offset)))
}

/// Whether an instruction may change a frame.
fn may_write(func: &Function, inst: Inst, frames: Option<AliasRegion>) -> bool {
    let data = &func.dfg.insts[inst];
    match data {
        InstructionData::Call { opcode: Opcode::Call, func_ref, .. } => {
            let signature = func.dfg.ext_funcs[*func_ref].signature;
            func.dfg.signatures[signature].call_conv != CallConv::PreserveAll
        }
        _ if data.opcode().is_call() || data.opcode().other_side_effects() => true,
        _ if data.opcode().can_store() => {
            data.memflags_data(&func.dfg).is_none_or(|flags| flags.alias_region().is_none_or(|r| Some(r) == frames))
        }
        _ => false,
    }
}

//! The two rules that hold along paths: temporaries are assigned before they are read, and parsers ask for room.

use crate::flow::Cfg;
use crate::op::Operand;
use crate::program::{Program, SlotKind, Stage};
use crate::room::{Room, room_at_entry};
use base::ids::{BlockId, SlotId};
use std::collections::{HashMap, HashSet, VecDeque};

/// Called with block, instruction (`None`: terminator), code, message.
type Report<'a> = dyn FnMut(usize, Option<usize>, &'static str, String) + 'a;

/// Every temporary is assigned before it is read on every path from the stage's start.
///
/// Most temporaries live within one block, so only those read before they are assigned in some block (the *exposed*
/// ones) get a bit in the sets that flow between blocks.
pub(super) fn temporaries(program: &Program, stage: &Stage, cfg: &Cfg, report: &mut Report<'_>) {
    let is_temp = |s: SlotId| program.slots[s.index()].kind == SlotKind::Temp;
    let mut exposed: HashMap<SlotId, usize> = HashMap::new();
    for b in &cfg.rpo {
        let mut defined = HashSet::new();
        walk(program, stage, *b, &mut |_, slot, is_def| {
            if !is_temp(slot) {
                return;
            }
            if is_def {
                defined.insert(slot);
            } else if !defined.contains(&slot) {
                let number = exposed.len();
                exposed.entry(slot).or_insert(number);
            }
        });
    }
    if exposed.is_empty() {
        return;
    }
    let words = exposed.len().div_ceil(64);
    let mut defs = vec![Vec::new(); stage.blocks.len()];
    for b in &cfg.rpo {
        let set = &mut defs[b.index()];
        set.resize(words, 0u64);
        walk(program, stage, *b, &mut |_, slot, is_def| {
            if let (true, Some(i)) = (is_def, exposed.get(&slot)) {
                set[i / 64] |= 1 << (i % 64);
            }
        });
    }
    let assigned = assigned_at_entry(cfg, &defs, words);
    for b in &cfg.rpo {
        let mut set = assigned[b.index()].clone();
        walk(program, stage, *b, &mut |inst, slot, is_def| {
            let Some(i) = exposed.get(&slot) else { return };
            let bit = 1 << (i % 64);
            if !is_def && set[i / 64] & bit == 0 {
                let name = &program.slots[slot.index()].name;
                let message = format!("the temporary `{name}` is read, but not assigned on every path to here");
                report(b.index(), inst, "E0730", message);
            }
            set[i / 64] |= bit;
        });
    }
}

/// By block: what all paths to it assign. Starts from everything and takes away until nothing changes.
fn assigned_at_entry(cfg: &Cfg, defs: &[Vec<u64>], words: usize) -> Vec<Vec<u64>> {
    let mut at_entry = vec![vec![u64::MAX; words]; defs.len()];
    at_entry[Stage::START.index()] = vec![0; words];
    let mut work: VecDeque<BlockId> = cfg.rpo.iter().copied().collect();
    let mut queued = vec![true; defs.len()];
    while let Some(b) = work.pop_front() {
        queued[b.index()] = false;
        let out: Vec<u64> = at_entry[b.index()].iter().zip(&defs[b.index()]).map(|(a, d)| a | d).collect();
        for to in &cfg.succs[b.index()] {
            let mut changed = false;
            for (word, out) in at_entry[to.index()].iter_mut().zip(&out) {
                changed |= *word & !out != 0;
                *word &= out;
            }
            if changed && !std::mem::replace(&mut queued[to.index()], true) {
                work.push_back(*to);
            }
        }
    }
    at_entry
}

/// Calls `f(instruction, slot, is_def)` for all uses and definitions of a block in order.
fn walk(program: &Program, stage: &Stage, block: BlockId, f: &mut dyn FnMut(Option<usize>, SlotId, bool)) {
    let block = &stage.blocks[block.index()];
    for (i, inst) in block.insts.iter().enumerate() {
        inst.op.for_each_use(program, |s| f(Some(i), s, false));
        inst.op.for_each_def(program, |s| f(Some(i), s, true));
    }
    if let Some(Operand::Slot(s)) = block.term.operand() {
        f(None, *s, false);
    }
}

/// Nothing is taken from the packet that no `has_bits` has vouched for.
pub(super) fn room(program: &Program, stage: &Stage, cfg: &Cfg, report: &mut Report<'_>) {
    let at_entry = room_at_entry(program, stage, cfg);
    for b in &cfg.rpo {
        let Some(mut room) = at_entry[b.index()].clone() else { continue };
        for (i, inst) in stage.blocks[b.index()].insts.iter().enumerate() {
            let wanted = room.step(program, &inst.op);
            if wanted > room.bits {
                let message = if wanted == Room::TRUSTED {
                    "takes an amount of bits that no `has_bits` asked for".to_string()
                } else {
                    format!("takes {wanted} bits, but only {} are known to be there", room.bits)
                };
                report(b.index(), Some(i), "E0731", message);
            }
            room.advance(&inst.op, wanted);
        }
    }
}

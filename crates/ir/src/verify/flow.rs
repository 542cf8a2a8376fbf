//! The two rules about paths: temporaries are assigned before they are read, and parsers check the packet's length
//! before they read it.

use crate::bitset::BitSet;
use crate::flow::Cfg;
use crate::op::Operand;
use crate::packet_bounds::{PacketBounds, bounds_at_entry};
use crate::program::{Program, SlotKind, Stage};
use base::ids::{BlockId, SlotId};
use std::collections::{HashMap, HashSet, VecDeque};

/// Called with block, instruction (`None`: terminator), code, message.
type Report<'a> = dyn FnMut(usize, Option<usize>, &'static str, String) + 'a;

/// Checks that every temporary is assigned before it is read on every path from the stage's start.
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
    let mut defs: Vec<Vec<usize>> = vec![Vec::new(); stage.blocks.len()];
    for b in &cfg.rpo {
        walk(program, stage, *b, &mut |_, slot, is_def| {
            if is_def {
                defs[b.index()].extend(exposed.get(&slot));
            }
        });
    }
    let unassigned = unassigned_at_entry(cfg, &defs, exposed.len());
    for b in &cfg.rpo {
        let mut set = unassigned[b.index()].clone();
        walk(program, stage, *b, &mut |inst, slot, is_def| {
            let Some(&i) = exposed.get(&slot) else { return };
            if !is_def && set.contains(i) {
                let name = &program.slots[slot.index()].name;
                let message = format!("the temporary `{name}` is read, but not assigned on every path to here");
                report(b.index(), inst, "E0730", message);
            }
            set.remove(i);
        });
    }
}

/// By block: the temporaries that some path to it does not assign.
fn unassigned_at_entry(cfg: &Cfg, defs: &[Vec<usize>], bound: usize) -> Vec<BitSet> {
    let mut at_entry = vec![BitSet::new(bound); defs.len()];
    at_entry[Stage::START.index()] = BitSet::full(bound);
    let mut work: VecDeque<BlockId> = cfg.rpo.iter().copied().collect();
    let mut queued = vec![true; defs.len()];
    while let Some(b) = work.pop_front() {
        queued[b.index()] = false;
        let mut out = at_entry[b.index()].clone();
        defs[b.index()].iter().for_each(|i| out.remove(*i));
        for to in &cfg.succs[b.index()] {
            if at_entry[to.index()].union(&out) && !std::mem::replace(&mut queued[to.index()], true) {
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

/// Checks that parsers read no bits whose presence `has_bits` has not established.
pub(super) fn packet_bounds(program: &Program, stage: &Stage, cfg: &Cfg, report: &mut Report<'_>) {
    let at_entry = bounds_at_entry(program, stage, cfg);
    for b in &cfg.rpo {
        let Some(mut bounds) = at_entry[b.index()].clone() else { continue };
        for (i, inst) in stage.blocks[b.index()].insts.iter().enumerate() {
            let wanted = bounds.step(program, &inst.op);
            if wanted > bounds.bits {
                let message = if wanted == PacketBounds::TRUSTED {
                    "reads a number of bits that no `has_bits` has checked".to_string()
                } else {
                    format!("reads {wanted} bits, but only {} are known to be present", bounds.bits)
                };
                report(b.index(), Some(i), "E0731", message);
            }
            bounds.advance(&inst.op, wanted);
        }
    }
}

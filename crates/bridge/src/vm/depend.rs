//! Data dependences of the words that an action writes.
//!
//! The analysis ignores the order of operations within the action, so the result is an upper bound: a word depends
//! on the operands of every operation that writes it, on the conditions that decide whether these run (control
//! dependence), and on its old value if that may remain.

use super::decode::{Part, destination};
use super::{Dependences, Sources};
use crate::key::low;
use base::ids::SlotId;
use ir::layout::{RecordLayout, words_of};
use ir::{Op, Operand, Program, SlotKind, Terminator};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Words with bit masks.
type Words = BTreeMap<u32, u64>;

fn merge(into: &mut Words, from: &Words) -> bool {
    let mut has_changed = false;
    for (word, mask) in from {
        let at = into.entry(*word).or_insert(0);
        has_changed |= *at | mask != *at;
        *at |= mask;
    }
    has_changed
}

/// An operation that writes a slot, with its operands and its block.
struct Write {
    slot: SlotId,
    operands: Vec<SlotId>,
    block: usize,
    /// Whether the whole slot is written.
    is_whole: bool,
}

/// The dependences of an action.
pub fn dependences(program: &Program, record: &RecordLayout, part: &Part<'_>) -> Dependences {
    let writes: Vec<Write> =
        part.blocks.iter().enumerate().flat_map(|(at, block)| writes_of(program, part, at, block)).collect();
    let controls = controls(part);
    let words = |slot: SlotId| -> Words {
        let (offset, width) = (record.offset(slot) as u32, program.width(slot));
        (0..words_of(width)).map(|i| (offset + i, low((width - 64 * i).min(64)))).collect()
    };
    let is_temp = |slot: SlotId| program.slots[slot.index()].kind == SlotKind::Temp;

    let mut on: HashMap<SlotId, Words> = HashMap::new();
    for write in &writes {
        let may_stay = !is_temp(write.slot) && is_avoidable(part, &writes, write.slot);
        on.entry(write.slot).or_insert_with(|| if may_stay { words(write.slot) } else { Words::new() });
    }
    // Iterate to the fixpoint; there are at most as many rounds as slots.
    loop {
        let mut has_changed = false;
        for write in &writes {
            let mut sources = Words::new();
            for slot in write.operands.iter().chain(&controls[write.block]) {
                if let Some(of) = on.get(slot) {
                    merge(&mut sources, of);
                }
                if !is_temp(*slot) {
                    merge(&mut sources, &words(*slot));
                }
            }
            if let Some(of) = on.get_mut(&write.slot) {
                has_changed |= merge(of, &sources);
            }
        }
        if !has_changed {
            break;
        }
    }
    let mut written: Vec<(u32, Sources)> = Vec::new();
    for (slot, of) in on.into_iter().filter(|(slot, _)| !is_temp(*slot)) {
        let of: Sources = of.into_iter().collect();
        written.extend(words(slot).keys().map(|word| (*word, of.clone())));
    }
    written.sort_unstable();
    Dependences { written }
}

fn writes_of(program: &Program, part: &Part<'_>, at: usize, block: &ir::Block) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut push = |slot: SlotId, operands: Vec<SlotId>, is_whole: bool| {
        writes.push(Write { slot, operands, block: at, is_whole });
    };
    for inst in &block.insts {
        match &inst.op {
            Op::Apply { hit, action, entry, data, .. } => {
                [hit, action, entry, data].into_iter().for_each(|slot| push(*slot, Vec::new(), true));
            }
            Op::SetValid { header } => push(program.headers[header.index()].valid, Vec::new(), true),
            Op::SetInvalid { header } => {
                let header = &program.headers[header.index()];
                let fields = header.fields.iter().flat_map(|field| [Some(field.slot), field.varbit_length]);
                fields.flatten().chain([header.valid]).for_each(|slot| push(slot, Vec::new(), true));
            }
            Op::ActionParam { dst, .. } => push(*dst, Vec::new(), true),
            op => {
                let Some(dst) = destination(op) else { continue };
                let mut operands = Vec::new();
                op.for_each_operand(|operand| {
                    if let Operand::Slot(slot) = operand
                        && part.answer(*slot).is_none()
                    {
                        operands.push(*slot);
                    }
                });
                let is_whole = !matches!(op, Op::SetSlice { .. });
                if !is_whole {
                    operands.push(dst);
                }
                push(dst, operands, is_whole);
            }
        }
    }
    writes
}

/// Whether a goal block can be reached from a block (which may itself be one) on a path that avoids closed blocks.
fn reaches(part: &Part<'_>, from: usize, is_goal: &dyn Fn(usize) -> bool, is_closed: &dyn Fn(usize) -> bool) -> bool {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(at) = waiting.pop() {
        if is_closed(at) || !seen.insert(at) {
            continue;
        }
        if is_goal(at) {
            return true;
        }
        waiting.extend(part.successors[at].iter().map(|to| *to as usize));
    }
    false
}

fn is_end(part: &Part<'_>, at: usize) -> bool {
    part.successors[at].is_empty()
}

/// Whether the action can end without writing the whole slot.
fn is_avoidable(part: &Part<'_>, writes: &[Write], slot: SlotId) -> bool {
    let writes_it = |at: usize| writes.iter().any(|write| write.block == at && write.slot == slot && write.is_whole);
    reaches(part, 0, &|at| is_end(part, at), &writes_it)
}

/// Control dependences: for each block, the slots that decide whether it runs.
fn controls(part: &Part<'_>) -> Vec<Vec<SlotId>> {
    let deciding: Vec<(usize, SlotId)> = part
        .blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| part.decided(block).is_none())
        .filter_map(|(at, block)| match &block.term {
            Terminator::Branch { cond: Operand::Slot(slot), .. }
            | Terminator::Switch { on: Operand::Slot(slot), .. } => Some((at, *slot)),
            _ => None,
        })
        .collect();
    (0..part.blocks.len())
        .map(|block| {
            let decides = |(at, _): &&(usize, SlotId)| {
                let comes_here = part.successors[*at]
                    .iter()
                    .any(|next| reaches(part, *next as usize, &|here| here == block, &|_| false));
                // If all paths of the branch lead here, it decides nothing. A path without end counts as one that
                // misses the block.
                let may_miss = part.successors[*at].iter().any(|next| {
                    reaches(part, *next as usize, &|here| is_end(part, here) || here == *at, &|here| here == block)
                });
                comes_here && may_miss
            };
            deciding.iter().filter(decides).map(|(_, slot)| *slot).collect()
        })
        .collect()
}

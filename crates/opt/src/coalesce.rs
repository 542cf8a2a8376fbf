//! Results go straight to where they are copied.
//!
//! Needs: a well-formed program, best with copies propagated. Guarantees: same behaviour; fewer temporaries. Where a
//! temporary is written once, read once, by a copy in the same block, and the copy's destination is not touched in
//! between, the operation writes that destination itself.
//!
//! ```text
//! %0 = param t, 0, 0, %data               meta.port = param t, 0, 0, %data
//! y = add y, 8w1                  =>      y = add y, 8w1
//! meta.port = mov %0
//! ```
//!
//! Tests: `tests/files/coalesce.ir`, `tests/properties.rs`.

use base::ids::SlotId;
use ir::{Block, Op, Operand, Program, SlotKind};
use std::collections::HashMap;

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let once = written_and_read_once(program);
    let mut stages = std::mem::take(&mut program.stages);
    let mut changed = false;
    for block in stages.iter_mut().flat_map(|s| &mut s.blocks) {
        changed |= coalesce(program, block, &once);
    }
    program.stages = stages;
    changed
}

/// By slot: whether it is a temporary with one write and one read.
fn written_and_read_once(program: &Program) -> Vec<bool> {
    let mut counts = vec![(0u32, 0u32); program.slots.len()];
    for block in program.stages.iter().flat_map(|s| &s.blocks) {
        for inst in &block.insts {
            inst.op.for_each_def(program, |s| counts[s.index()].0 += 1);
            inst.op.for_each_use(program, |s| counts[s.index()].1 += 1);
        }
        if let Some(Operand::Slot(s)) = block.term.operand() {
            counts[s.index()].1 += 1;
        }
    }
    let slots = program.slots.iter().zip(counts);
    slots.map(|(slot, count)| slot.kind == SlotKind::Temp && count == (1, 1)).collect()
}

fn coalesce(program: &Program, block: &mut Block, once: &[bool]) -> bool {
    // Position of the last instruction that reads or writes a slot, and of the one that writes a temporary.
    let mut touched: HashMap<SlotId, usize> = HashMap::new();
    let mut written: HashMap<SlotId, usize> = HashMap::new();
    let mut removed_insts = vec![false; block.insts.len()];
    for (i, is_removed) in removed_insts.iter_mut().enumerate() {
        let source = match &block.insts[i].op {
            Op::Mov { dst, src: Operand::Slot(t) } if once[t.index()] && dst != t => Some((*dst, *t)),
            _ => None,
        };
        if let Some((dst, temp)) = source
            && let Some(&at) = written.get(&temp)
            && touched.get(&dst).is_none_or(|last| *last <= at)
            && set_dst(&mut block.insts[at].op, dst)
        {
            *is_removed = true;
            touched.insert(dst, at);
            if once[dst.index()] {
                written.insert(dst, at);
            }
            continue;
        }
        let op = &block.insts[i].op;
        op.for_each_use(program, |s| {
            touched.insert(s, i);
        });
        op.for_each_def(program, |s| {
            touched.insert(s, i);
            if once[s.index()] {
                written.insert(s, i);
            }
        });
    }
    let mut keep = removed_insts.iter().map(|is_removed| !is_removed);
    block.insts.retain(|_| keep.next() == Some(true));
    removed_insts.contains(&true)
}

/// Changes where an operation writes to; false if it cannot be changed.
fn set_dst(op: &mut Op, new: SlotId) -> bool {
    match op {
        Op::Mov { dst, .. }
        | Op::Bin { dst, .. }
        | Op::Un { dst, .. }
        | Op::Cast { dst, .. }
        | Op::Concat { dst, .. }
        | Op::Slice { dst, .. }
        | Op::Select { dst, .. }
        | Op::HasBits { dst, .. }
        | Op::Lookahead { dst, .. }
        | Op::Consumed { dst }
        | Op::ActionParam { dst, .. }
        | Op::Meter { dst, .. }
        | Op::MeterDirect { dst, .. }
        | Op::RegisterRead { dst, .. }
        | Op::RegisterUpdate { dst, .. }
        | Op::Hash { dst, .. }
        | Op::AddEntry { dst, .. }
        | Op::Random { dst, .. } => *dst = new,
        // A part of the old destination stays; lookups have several; the others have none.
        Op::SetSlice { .. }
        | Op::Apply { .. }
        | Op::SetValid { .. }
        | Op::SetInvalid { .. }
        | Op::Extract { .. }
        | Op::Advance { .. }
        | Op::Emit { .. }
        | Op::Truncate { .. }
        | Op::Count { .. }
        | Op::CountDirect { .. }
        | Op::RestartTimer { .. }
        | Op::RegisterWrite { .. }
        | Op::Digest { .. }
        | Op::Log { .. }
        | Op::Assert { .. }
        | Op::Unresolved { .. }
        | Op::Charge { .. }
        | Op::Mark(_) => return false,
    }
    true
}

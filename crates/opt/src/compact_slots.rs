//! Removes unused slots, which shortens packet records.
//!
//! Needs: a well-formed program. Guarantees: same behaviour; slots keep their order and are identified across the pass
//! by their names. Headers keep all their slots, used or not.
//!
//! ```text
//! slot %0: 8 temp                 slot %1: 8 temp
//! slot %1: 8 temp         =>
//! ```
//!
//! Tests: `tests/files/compact_slots.ir`, `tests/properties.rs`.

use base::ids::SlotId;
use ir::{Operand, Program, SlotKind};

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut used: Vec<bool> = program
        .slots
        .iter()
        .map(|s| !matches!(s.kind, SlotKind::HeaderPart | SlotKind::Metadata | SlotKind::Local | SlotKind::Temp))
        .collect();
    for_each_slot(program, &mut |slot| used[slot.index()] = true);
    if !used.contains(&false) {
        return false;
    }
    let mut count = 0;
    let new_id: Vec<SlotId> = used
        .iter()
        .map(|used| {
            let id = SlotId(count);
            count += u32::from(*used);
            id
        })
        .collect();
    let mut kept = used.iter();
    program.slots.retain(|_| kept.next() == Some(&true));
    for_each_slot(program, &mut |slot| *slot = new_id[slot.index()]);
    let headers = program.headers.iter_mut();
    for header in headers {
        let fields = header.fields.iter_mut().flat_map(|f| [Some(&mut f.slot), f.varbit_length.as_mut()]);
        for slot in fields.flatten().chain([&mut header.valid]) {
            *slot = new_id[slot.index()];
        }
    }
    true
}

/// Calls `f` for every reference to a slot outside headers.
fn for_each_slot(program: &mut Program, f: &mut dyn FnMut(&mut SlotId)) {
    program.intrinsics.iter_mut().for_each(|(_, slot)| f(slot));
    program.field_lists.iter_mut().flat_map(|(_, slots)| slots).for_each(&mut *f);
    if let Some(openflow) = &mut program.openflow {
        openflow.fields.iter_mut().flat_map(|field| &mut field.parts).for_each(|part| f(&mut part.slot));
        openflow.reparse.iter_mut().chain(&mut openflow.ttl_exceeded).for_each(&mut *f);
    }
    for block in program.stages.iter_mut().flat_map(|s| &mut s.blocks) {
        for inst in &mut block.insts {
            inst.op.for_each_slot_mut(&mut *f);
        }
        if let Some(Operand::Slot(slot)) = block.term.operand_mut() {
            f(slot);
        }
    }
}

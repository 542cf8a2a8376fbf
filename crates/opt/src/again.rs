//! Packets that go back to ingress by themselves: without the replication engine having to make their records.
//!
//! Needs: a well-formed program. Guarantees: same behaviour, but for time. Where a packet is handed over and asks for being
//! resubmitted and for nothing that comes before that, and where it is handed over to be recirculated, the block ends with
//! [`Fate::Again`]. Its code then knows which slots the next pass finds, so it writes no others, and the engine takes a batch of
//! such packets through ingress again as it is.
//!
//! ```text
//! b1:                                           b1:
//!   replicate ingress_end                         branch cloned, b3, b2
//!                                               b2:
//!                                                 switch resubmitted, 1w1 -> b4, default -> b3
//!                                     =>        b3:
//!                                                 replicate ingress_end
//!                                               b4:
//!                                                 switch list, 8w1 -> b5, default -> b6
//!                                               b5:
//!                                                 again resubmitted, 1
//!                                               b6:
//!                                                 again resubmitted
//! ```
//!
//! A program with more than [`LISTS_MAX`] field lists stays as it is.
//!
//! Tests: `tests/files/again.ir`, `tests/properties.rs`, the scripts of `tests/stf` on all engines, `datapath`'s `tests/again.rs`.

use crate::multicast_frames::{ask, push};
use base::{Bits, Span};
use ir::{Again, BlockId, EntryKind, Fate, Intrinsic, Operand, Program, ReplicationPoint, StageId, Terminator};

/// Field lists for which a request is specialised. Each list becomes a block at each request, so code grows with their product; a program
/// with more keeps the general request.
const LISTS_MAX: usize = 16;

/// What the engine does of a packet's requests at the end of ingress before it resubmits it, or instead.
const BEFORE: [Intrinsic; 2] = [Intrinsic::CloneFlag, Intrinsic::DropFlag];

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let blocks = || program.stages.iter().flat_map(|stage| &stage.blocks);
    // It has run, and code that was put before a hand-over would be put there again.
    let has_run = blocks().any(|block| matches!(block.term, Terminator::Finish(Fate::Again { .. })));
    if has_run || program.entry(EntryKind::Reingress).is_none() || program.field_lists.len() > LISTS_MAX {
        return false;
    }
    let mut changed = false;
    for stage in (0..program.stages.len()).map(StageId::from_index) {
        for block in 0..program.stages[stage.index()].blocks.len() {
            let Terminator::Finish(Fate::Replicate(point)) = program.stages[stage.index()].blocks[block].term else {
                continue;
            };
            let span = program.stages[stage.index()].blocks[block].span;
            let first = match point {
                ReplicationPoint::IngressEnd => resubmits(program, stage, span),
                ReplicationPoint::DeparseEnd => Some(goes_back(program, stage, Again::Recirculated, span)),
                ReplicationPoint::EgressEnd | ReplicationPoint::FrameEnd => None,
            };
            if let Some(first) = first {
                program.stages[stage.index()].blocks[block].term = Terminator::Jump(first);
                changed = true;
            }
        }
    }
    changed
}

/// Adds the blocks for a packet at the end of ingress, if it can ask for being resubmitted; the first of them.
fn resubmits(program: &mut Program, stage: StageId, span: Span) -> Option<BlockId> {
    let flag = program.intrinsic(Intrinsic::ResubmitFlag)?;
    let engine = push(program, stage, Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd)), span);
    let back = goes_back(program, stage, Again::Resubmitted, span);
    let mut first = ask(program, stage, flag, (back, engine), span);
    for slot in BEFORE.iter().filter_map(|which| program.intrinsic(*which)).collect::<Vec<_>>() {
        first = ask(program, stage, slot, (engine, first), span);
    }
    Some(first)
}

/// Adds blocks that take a packet back to ingress with what its field list keeps; the first of them.
fn goes_back(program: &mut Program, stage: StageId, why: Again, span: Span) -> BlockId {
    let list_of = match why {
        Again::Resubmitted => Intrinsic::ResubmitFieldList,
        Again::Recirculated => Intrinsic::RecirculateFieldList,
    };
    let lists: Vec<u64> = program.field_lists.iter().map(|(number, _)| *number).collect();
    let end = |list| Terminator::Finish(Fate::Again { why, list });
    let Some(slot) = program.intrinsic(list_of) else {
        // As the engine reads it.
        return push(program, stage, end(lists.contains(&0).then_some(0)), span);
    };
    let width = program.width(slot);
    let fits = |number: &u64| width >= 64 || *number >> width == 0;
    let mut cases = Vec::new();
    for number in lists.into_iter().filter(fits) {
        cases.push((Bits::new(width, number.into()), push(program, stage, end(Some(number)), span)));
    }
    let default = push(program, stage, end(None), span);
    push(program, stage, Terminator::Switch { on: Operand::Slot(slot), cases, default }, span)
}

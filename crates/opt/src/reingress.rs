//! Return to ingress without the replication engine: resubmission and recirculation as direct continuations.
//!
//! Needs: a well-formed program. Guarantees: same behaviour except for time. Where a packet is handed over to be
//! recirculated, or to be resubmitted without any request that the engine would serve first, the block ends with
//! [`Fate::Again`]. The code of such an end knows which slots the next pass reads and writes no others; the engine
//! sends a batch of such packets through ingress again as it is.
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
//! A program with more than [`LISTS_MAX`] field lists is not changed.
//!
//! Tests: `tests/files/again.ir`, `tests/properties.rs`, the scripts of `tests/stf` on all engines, `datapath`'s
//! `tests/again.rs`.

use crate::multicast_frames::{branch_on, push};
use base::{Bits, Span};
use ir::{Again, BlockId, EntryKind, Fate, Intrinsic, Operand, Program, ReplicationPoint, StageId, Terminator};

/// The maximum number of field lists for which requests are specialised. Each request gets a block per list, so that
/// code grows with their product; a program with more lists keeps the general request.
const LISTS_MAX: usize = 16;

/// Requests that the engine serves at the end of ingress before, or instead of, resubmission.
const BEFORE: [Intrinsic; 2] = [Intrinsic::CloneFlag, Intrinsic::DropFlag];

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let blocks = || program.stages.iter().flat_map(|stage| &stage.blocks);
    // The pass has run already; running it again would insert the same blocks again.
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
                ReplicationPoint::DeparseEnd => Some(reingress_blocks(program, stage, Again::Recirculated, span)),
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

/// Adds the blocks for a packet at the end of ingress, and returns the first; `None` if the program cannot request
/// resubmission.
fn resubmits(program: &mut Program, stage: StageId, span: Span) -> Option<BlockId> {
    let flag = program.intrinsic(Intrinsic::ResubmitFlag)?;
    let engine = push(program, stage, Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd)), span);
    let back = reingress_blocks(program, stage, Again::Resubmitted, span);
    let mut first = branch_on(program, stage, flag, (back, engine), span);
    for slot in BEFORE.iter().filter_map(|which| program.intrinsic(*which)).collect::<Vec<_>>() {
        first = branch_on(program, stage, slot, (engine, first), span);
    }
    Some(first)
}

/// Adds blocks that return a packet to ingress with the slots of its field list; returns the first.
fn reingress_blocks(program: &mut Program, stage: StageId, why: Again, span: Span) -> BlockId {
    let list_of = match why {
        Again::Resubmitted => Intrinsic::ResubmitFieldList,
        Again::Recirculated => Intrinsic::RecirculateFieldList,
    };
    let lists: Vec<u64> = program.field_lists.iter().map(|(number, _)| *number).collect();
    let end = |list| Terminator::Finish(Fate::Again { why, list });
    let Some(slot) = program.intrinsic(list_of) else {
        // The engine reads a missing request as field list 0.
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

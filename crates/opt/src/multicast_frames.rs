//! Multicast frames built once: where all copies of a packet take the same path through egress and deparser, the packet
//! takes it before it is copied.
//!
//! Needs: a well-formed program. Guarantees: same behaviour except for time. Where an entry hands over a packet at the
//! end of ingress that requests a multicast group and nothing else, the packet continues through the entry's remaining
//! stages, and the resulting frame is sent to the group ([`Fate::Multicast`]). Each copy is then a copy of bytes: no
//! record is written for it, and neither egress nor deparser runs again.
//!
//! The condition is that the stages after ingress treat every copy alike:
//!
//! - They read nothing that differs between copies, such as port and instance.
//! - They affect only the packet: no table, counter, register, random number or message.
//! - All their paths send the packet.
//!
//! ```text
//! stage ingress_end                             stage ingress_end
//!   %0 = ne group, 16w0                           %0 = ne group, 16w0
//!   branch %0, b1, b2                             branch %0, b1, b2
//! b1:                                           b1:
//!   replicate ingress_end                 =>      next
//! stage deparse_end                             stage deparse_end.group
//!   send port                                     %1 = ne group, 16w0
//!                                                 branch %1, b1, b2
//!                                               b1:
//!                                                 multicast group
//!                                               b2:
//!                                                 send port
//! ```
//!
//! The last stage is duplicated: packets from the replication engine must not be multicast again.
//!
//! Tests: `tests/files/multicast_frames.ir`, `tests/properties.rs`, the scripts of `tests/stf/v1model` on all engines.

use base::Span;
use base::ids::{BlockId, SlotId, StageId};
use ir::{
    BinOp, Block, EntryKind, Fate, Inst, Intrinsic, Op, Operand, Program, ReplicationPoint, Slot, SlotKind, Stage,
    Terminator,
};

/// Intrinsics that the replication engine sets for each copy or reads from it.
const OF_COPIES: &[Intrinsic] = &[
    Intrinsic::EgressPort,
    Intrinsic::EgressRid,
    Intrinsic::InstanceType,
    Intrinsic::EgressTimestamp,
    Intrinsic::EnqueueTimestamp,
    Intrinsic::EnqueueDepth,
    Intrinsic::DequeueDelta,
    Intrinsic::DequeueDepth,
    Intrinsic::PacketLength,
    Intrinsic::RecirculateFlag,
];

/// Other requests that a packet may make at the end of ingress.
const OTHER_REQUESTS: &[Intrinsic] = &[Intrinsic::CloneFlag, Intrinsic::DropFlag, Intrinsic::ResubmitFlag];

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let Some(group) = program.intrinsic(Intrinsic::MulticastGroup) else { return false };
    let mut changed = false;
    for kind in [EntryKind::Ingress, EntryKind::Reingress] {
        let Some((end, last)) = handover(program, kind, group) else { continue };
        // Entries that share the stage also share the new last stage.
        let to = match bypass_engine(program, end, group) {
            true => send_to_group(program, last, group),
            false => continue,
        };
        for entry in &mut program.entries {
            let at = entry.stages.iter().position(|stage| *stage == end);
            if at.is_some() && entry.stages.last() == Some(&last) {
                *entry.stages.last_mut().expect("it has stages") = to;
            }
        }
        changed = true;
    }
    changed
}

/// The stage at whose end an entry hands over packets to be copied, and the entry's last stage, if all copies are
/// treated alike.
fn handover(program: &Program, kind: EntryKind, group: SlotId) -> Option<(StageId, StageId)> {
    let stages = &program.entry(kind)?.stages;
    let at = stages.iter().position(|stage| ends_ingress(program, *stage))?;
    let rest = &stages[at + 1..];
    let last = *rest.last()?;
    rest.iter().all(|stage| is_alike(program, *stage, group)).then_some((stages[at], last))
}

fn ends_ingress(program: &Program, stage: StageId) -> bool {
    let ends = |block: &Block| block.term == Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd));
    program.stages[stage.index()].blocks.iter().any(ends)
}

/// Whether a stage treats all copies of a packet alike and sends them.
fn is_alike(program: &Program, stage: StageId, group: SlotId) -> bool {
    let differs: Vec<SlotId> = OF_COPIES.iter().filter_map(|which| program.intrinsic(*which)).collect();
    let reads = |slot: Option<SlotId>| slot.is_some_and(|slot| differs.contains(&slot));
    program.stages[stage.index()].blocks.iter().all(|block| {
        let ends = match &block.term {
            Terminator::Finish(Fate::Send(_)) | Terminator::Jump(_) | Terminator::Next => true,
            Terminator::Branch { cond: on, .. } | Terminator::Switch { on, .. } => !reads(on.slot()),
            Terminator::Finish(_) => false,
        };
        let mut alike = ends;
        for inst in &block.insts {
            alike &= changes_only_the_packet(&inst.op);
            inst.op.for_each_use(program, |slot| alike &= !differs.contains(&slot));
            inst.op.for_each_def(program, |slot| alike &= slot != group);
        }
        alike
    })
}

/// Whether an operation affects only the packet and depends on nothing else.
fn changes_only_the_packet(op: &Op) -> bool {
    match op {
        Op::Emit { .. } | Op::Truncate { .. } | Op::Mark(_) => true,
        // Other packets may have written the register by the time that a copy would read it.
        Op::RegisterRead { .. } => false,
        op => op.is_removable(),
    }
}

/// Lets packets that request a group and nothing else continue with the next stage; returns whether any block hands
/// packets over.
fn bypass_engine(program: &mut Program, stage: StageId, group: SlotId) -> bool {
    let others: Vec<SlotId> = OTHER_REQUESTS.iter().filter_map(|which| program.intrinsic(*which)).collect();
    let at = stage.index();
    let handing = |block: &Block| block.term == Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd));
    let blocks: Vec<usize> =
        (0..program.stages[at].blocks.len()).filter(|i| handing(&program.stages[at].blocks[*i])).collect();
    for block in &blocks {
        let span = program.stages[at].blocks[*block].span;
        // A chain of branches, one per request.
        let engine = push(program, stage, Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd)), span);
        let on = push(program, stage, Terminator::Next, span);
        let mut first = branch_on(program, stage, group, (on, engine), span);
        for slot in &others {
            first = branch_on(program, stage, *slot, (engine, first), span);
        }
        program.stages[at].blocks[*block].term = Terminator::Jump(first);
    }
    !blocks.is_empty()
}

/// Adds a block without instructions that ends with `term`.
pub(crate) fn push(program: &mut Program, stage: StageId, term: Terminator, span: Span) -> BlockId {
    let blocks = &mut program.stages[stage.index()].blocks;
    blocks.push(Block { label: String::new(), insts: Vec::new(), term, span });
    BlockId::from_index(blocks.len() - 1)
}

/// Adds a block that branches on whether a slot is not zero.
pub(crate) fn branch_on(
    program: &mut Program,
    stage: StageId,
    slot: SlotId,
    (then, other): (BlockId, BlockId),
    span: Span,
) -> BlockId {
    let block = push(program, stage, Terminator::Next, span);
    let cond = is_set(program, stage, block, slot, span);
    program.stages[stage.index()].blocks[block.index()].term = Terminator::Branch { cond, then, other };
    block
}

/// Appends a comparison of a slot with zero to a block; returns its result.
fn is_set(program: &mut Program, stage: StageId, block: BlockId, slot: SlotId, span: Span) -> Operand {
    let width = program.width(slot);
    if width == 1 {
        return slot.into();
    }
    let dst = SlotId::from_index(program.slots.len());
    let name = format!("%multicast.{}", dst.index());
    program.slots.push(Slot { name, width: 1, kind: SlotKind::Temp });
    let op = Op::Bin { op: BinOp::Ne, dst, a: slot.into(), b: Operand::new_const(width, 0) };
    program.stages[stage.index()].blocks[block.index()].insts.push(Inst { op, span });
    dst.into()
}

/// A copy of an entry's last stage that sends packets to their multicast group, if any.
fn send_to_group(program: &mut Program, last: StageId, group: SlotId) -> StageId {
    let copy = StageId::from_index(program.stages.len());
    let stage = program.stages[last.index()].clone();
    program.stages.push(Stage { name: format!("{}.group", stage.name), ..stage });
    for i in 0..program.stages[copy.index()].blocks.len() {
        let block = BlockId::from_index(i);
        let Block { term, span, .. } = program.stages[copy.index()].blocks[i].clone();
        if !matches!(term, Terminator::Finish(Fate::Send(_))) {
            continue;
        }
        let then = push(program, copy, Terminator::Finish(Fate::Multicast(group.into())), span);
        let other = push(program, copy, term, span);
        let cond = is_set(program, copy, block, group, span);
        program.stages[copy.index()].blocks[i].term = Terminator::Branch { cond, then, other };
    }
    copy
}

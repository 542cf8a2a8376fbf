//! Multicast frames that are made once: where all copies of a packet go through egress and deparser alike, the packet does so
//! before it is copied.
//!
//! Needs: a well-formed program. Guarantees: same behaviour, but for time. Where an entry hands a packet over at the end of ingress
//! and it asks for a multicast group and nothing else, it goes on through the entry's further stages, and the frame that
//! comes out is sent to the group ([`Fate::Multicast`]). Each copy is then a copy of bytes: no record is written for it, and
//! neither egress nor deparser runs again.
//!
//! This holds for stages behind ingress that every copy takes in the same way:
//!
//! - They read nothing that copies have of their own, as the port and the instance.
//! - They change nothing but the packet: no table, counter, register, random number or message.
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
//! The last stage is a copy, since packets that come from the replication engine do not ask again.
//!
//! Tests: `tests/files/multicast_frames.ir`, `tests/properties.rs`, the scripts of `tests/stf/v1model` on all engines.

use base::Span;
use base::ids::{BlockId, SlotId, StageId};
use ir::{
    BinOp, Block, EntryKind, Fate, Inst, Intrinsic, Op, Operand, Program, ReplicationPoint, Slot, SlotKind, Stage,
    Terminator,
};

/// What the replication engine gives each copy, or takes from it.
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

/// What else a packet may ask for at the end of ingress.
const OTHERS: &[Intrinsic] = &[Intrinsic::CloneFlag, Intrinsic::DropFlag, Intrinsic::ResubmitFlag];

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let Some(group) = program.intrinsic(Intrinsic::MulticastGroup) else { return false };
    let mut changed = false;
    for kind in [EntryKind::Ingress, EntryKind::Reingress] {
        let Some((end, last)) = handover(program, kind, group) else { continue };
        // Entries that share the stage share what it became.
        let to = match ask_no_more(program, end, group) {
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

/// The stage at whose end an entry hands packets over for copies, and the entry's last one, if all copies go on alike.
fn handover(program: &Program, kind: EntryKind, group: SlotId) -> Option<(StageId, StageId)> {
    let stages = &program.entry(kind)?.stages;
    let at = stages.iter().position(|stage| hands_over(program, *stage))?;
    let rest = &stages[at + 1..];
    let last = *rest.last()?;
    rest.iter().all(|stage| is_alike(program, *stage, group)).then_some((stages[at], last))
}

fn hands_over(program: &Program, stage: StageId) -> bool {
    let ends = |block: &Block| block.term == Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd));
    program.stages[stage.index()].blocks.iter().any(ends)
}

/// Whether a stage does the same for all copies of a packet, and sends it.
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

/// Whether an operation has no other effect than on the packet, and depends on nothing else.
fn changes_only_the_packet(op: &Op) -> bool {
    match op {
        Op::Emit { .. } | Op::Truncate { .. } | Op::Mark(_) => true,
        // What others write may have changed by the time of a copy's own pass.
        Op::RegisterRead { .. } => false,
        op => op.is_removable(),
    }
}

/// Takes packets that ask for a group and nothing else on to the next stage; whether there may be any.
fn ask_no_more(program: &mut Program, stage: StageId, group: SlotId) -> bool {
    let others: Vec<SlotId> = OTHERS.iter().filter_map(|which| program.intrinsic(*which)).collect();
    let at = stage.index();
    let handing = |block: &Block| block.term == Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd));
    let blocks: Vec<usize> =
        (0..program.stages[at].blocks.len()).filter(|i| handing(&program.stages[at].blocks[*i])).collect();
    for block in &blocks {
        let span = program.stages[at].blocks[*block].span;
        // One question after the other.
        let engine = push(program, stage, Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd)), span);
        let on = push(program, stage, Terminator::Next, span);
        let mut first = ask(program, stage, group, (on, engine), span);
        for slot in &others {
            first = ask(program, stage, *slot, (engine, first), span);
        }
        program.stages[at].blocks[*block].term = Terminator::Jump(first);
    }
    !blocks.is_empty()
}

/// Adds a block that ends so.
pub(crate) fn push(program: &mut Program, stage: StageId, term: Terminator, span: Span) -> BlockId {
    let blocks = &mut program.stages[stage.index()].blocks;
    blocks.push(Block { label: String::new(), insts: Vec::new(), term, span });
    BlockId::from_index(blocks.len() - 1)
}

/// Adds a block that goes to one of two, by whether a slot is other than zero.
pub(crate) fn ask(
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

/// Whether a slot is other than zero, as the last thing that a block finds out.
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

/// A copy of an entry's last stage, which sends packets to their group if they have one.
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

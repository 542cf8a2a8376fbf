//! Liveness of slots: a backward data-flow analysis of the whole program.
//!
//! A slot is live where some path reads it before writing it. Paths continue through later stages and the replication
//! engine: a packet handed over at a replication point needs the slots that the entries after that point read, the
//! intrinsics (which the engine reads), and the preserved slots of field lists. A packet that returns to ingress
//! directly needs its field list. A packet that is sent or dropped needs nothing.
//!
//! Only slots that some block reads before writing them can be live between blocks; the others get no bit. The sets of
//! different blocks share storage ([`ir::bitset`]); the analysis takes a few sweeps over the blocks in post-order.

use crate::graph::{Graph, NodeId};
use base::ids::SlotId;
use ir::{BitSet, Block, EntryKind, Fate, Op, Operand, Program, ReplicationPoint, Terminator};
use std::collections::{HashSet, VecDeque};

/// The live slots at the end of each block.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    pub graph: Graph,
    live_out: Vec<BitSet>,
    /// The bit of each slot that may be live between blocks.
    number: Vec<Option<u32>>,
}

/// The entries at which a packet continues after a replication point (see `ir::ReplicationPoint`).
fn entries_after(point: ReplicationPoint) -> &'static [EntryKind] {
    match point {
        ReplicationPoint::IngressEnd => &[EntryKind::Egress, EntryKind::CloneIngress, EntryKind::Reingress],
        ReplicationPoint::EgressEnd => &[EntryKind::Deparse, EntryKind::Egress],
        ReplicationPoint::DeparseEnd => &[EntryKind::Reingress],
        ReplicationPoint::FrameEnd => &[EntryKind::CloneIngress, EntryKind::Deparse],
    }
}

/// Calls `f(slot, is_def)` for a block's reads and writes in reverse order; for each instruction, its writes before its
/// reads.
fn walk_back(program: &Program, block: &Block, mut f: impl FnMut(SlotId, bool)) {
    if let Some(Operand::Slot(s)) = block.term.operand() {
        f(*s, false);
    }
    for inst in block.insts.iter().rev() {
        inst.op.for_each_def(program, |s| f(s, true));
        inst.op.for_each_use(program, |s| f(s, false));
    }
}

/// The slots that the engine reads or keeps, independent of the entries' reads.
fn kept_by_engine(program: &Program) -> impl Iterator<Item = SlotId> {
    let intrinsics = program.intrinsics.iter().map(|(_, slot)| *slot);
    intrinsics.chain(program.field_lists.iter().flat_map(|(_, slots)| slots).copied())
}

impl Liveness {
    pub fn new(program: &Program) -> Liveness {
        let graph = Graph::new(program);
        let number = number_exposed(program, &graph);
        let bound = number.iter().flatten().count();
        let mut kept = BitSet::new(bound);
        for slot in kept_by_engine(program) {
            if let Some(i) = number[slot.index()] {
                kept.insert(i as usize);
            }
        }
        let n = graph.nodes.len();
        let mut liveness = Liveness { graph, live_out: vec![BitSet::new(bound); n], number };
        liveness.solve(program, &kept, bound);
        liveness
    }

    fn solve(&mut self, program: &Program, kept: &BitSet, bound: usize) {
        let n = self.graph.nodes.len();
        // Upward-exposed reads and other writes of each block, computed once.
        let mut reads = vec![BitSet::new(0); n];
        let mut writes: Vec<Vec<u32>> = vec![Vec::new(); n];
        // Edges through the engine, from the start of an entry back to the blocks that hand packets over.
        let mut record_preds: Vec<Vec<NodeId>> = vec![Vec::new(); n];
        for &node in &self.graph.rpo {
            let Some(block) = self.graph.block(program, node) else { continue };
            if let Terminator::Finish(Fate::Again { list: Some(list), .. }) = &block.term {
                let kept = program.field_list(*list).iter().filter_map(|slot| self.number[slot.index()]);
                kept.for_each(|i| self.live_out[node].insert(i as usize));
            }
            let set = &mut reads[node];
            *set = BitSet::new(bound);
            let mut defs = Vec::new();
            walk_back(program, block, |slot, is_def| {
                let Some(i) = self.number[slot.index()] else { return };
                if is_def {
                    set.remove(i as usize);
                    defs.push(i);
                } else {
                    set.insert(i as usize);
                }
            });
            defs.sort_unstable();
            defs.dedup();
            writes[node] = defs;
            if let Terminator::Finish(Fate::Replicate(point)) = &block.term {
                self.live_out[node].union(kept);
                for kind in entries_after(*point) {
                    let first = program.entry(*kind).and_then(|e| e.stages.first());
                    if let Some(to) = first.and_then(|s| self.graph.node(*s, ir::Stage::START)) {
                        record_preds[to].push(node);
                    }
                }
            }
        }
        let mut work: VecDeque<NodeId> = self.graph.rpo.iter().rev().copied().collect();
        let mut queued = vec![true; n];
        while let Some(node) = work.pop_front() {
            queued[node] = false;
            let mut live_in = self.live_out[node].clone();
            writes[node].iter().for_each(|i| live_in.remove(*i as usize));
            live_in.union(&reads[node]);
            for from in self.graph.preds[node].iter().chain(&record_preds[node]) {
                if self.live_out[*from].union(&live_in) && !std::mem::replace(&mut queued[*from], true) {
                    work.push_back(*from);
                }
            }
        }
    }

    /// Calls `f(position, op, dead)` for a block's instructions in reverse order; `dead` says whether all results of
    /// the instruction are dead. If `f` returns `false`, the instruction is treated as removed.
    pub fn for_each_backwards(
        &self,
        program: &Program,
        node: NodeId,
        block: &Block,
        mut f: impl FnMut(usize, &Op, bool) -> bool,
    ) {
        let mut live =
            BlockLiveness { between: self.live_out[node].clone(), local: HashSet::new(), number: &self.number };
        if let Some(Operand::Slot(s)) = block.term.operand() {
            live.set(*s, true);
        }
        for (i, inst) in block.insts.iter().enumerate().rev() {
            let mut dead = true;
            inst.op.for_each_def(program, |s| dead &= !live.contains(s));
            if f(i, &inst.op, dead) {
                inst.op.for_each_def(program, |s| live.set(s, false));
                inst.op.for_each_use(program, |s| live.set(s, true));
            }
        }
    }
}

/// The live slots at a point within a block.
struct BlockLiveness<'a> {
    between: BitSet,
    /// Live slots without a bit, which are dead at the end of the block.
    local: HashSet<SlotId>,
    number: &'a [Option<u32>],
}

impl BlockLiveness<'_> {
    fn set(&mut self, slot: SlotId, live: bool) {
        match self.number[slot.index()] {
            Some(i) if live => self.between.insert(i as usize),
            Some(i) => self.between.remove(i as usize),
            None if live => drop(self.local.insert(slot)),
            None => drop(self.local.remove(&slot)),
        }
    }

    fn contains(&self, slot: SlotId) -> bool {
        match self.number[slot.index()] {
            Some(i) => self.between.contains(i as usize),
            None => self.local.contains(&slot),
        }
    }
}

/// Numbers the slots that some block reads before writing them, and those that the engine reads.
fn number_exposed(program: &Program, graph: &Graph) -> Vec<Option<u32>> {
    let mut exposed = BitSet::new(program.slots.len());
    kept_by_engine(program).for_each(|slot| exposed.insert(slot.index()));
    let mut reads = BitSet::new(program.slots.len());
    for &node in &graph.rpo {
        let Some(block) = graph.block(program, node) else { continue };
        let mut read_locally = Vec::new();
        walk_back(program, block, |slot, is_def| {
            if is_def {
                reads.remove(slot.index());
            } else {
                reads.insert(slot.index());
                read_locally.push(slot);
            }
        });
        for slot in read_locally {
            if reads.contains(slot.index()) {
                exposed.insert(slot.index());
                reads.remove(slot.index());
            }
        }
    }
    let mut count = 0;
    let number = |i: usize| {
        exposed.contains(i).then(|| {
            count += 1;
            count - 1
        })
    };
    (0..program.slots.len()).map(number).collect()
}

//! Dead store elimination for header fields that live in the frame ([`Where::Memory`]), by liveness analysis over the
//! path copies that [`crate::paths`] has made.
//!
//! Header stacks move as a whole: `pop_front` copies every declared element. On a path on which most elements are known
//! to be invalid, the copied values are never read. Cranelift removes dead variables, but no stores; these are left out
//! here, and so are loads of a field's old value into the frame where a header's validity changes and the field is
//! dead.
//!
//! Emitted headers are read where they are emitted or at the end of their deparser ([`crate::deparse`]), so they count
//! as read at both. A packet's fate counts as a read of all slots, unless the packet is dropped or sent.
//!
//! Tests: `tests/packets.rs`, `tests/stf/v1model/deep_stacks.stf`; crate `difftest`.

use crate::flow::{Flow, Graph};
use crate::placement::{Placement, Where};
use crate::{Optimisation, Options};
use ir::{BitSet, Fate, HeaderId, Op, Operand, Program, SlotId, SlotKind, Stage, Terminator};
use std::collections::BTreeSet;

/// Most nodes times slots of an entry point that is analysed: a bit for each in the sets of live slots, 8 MB.
const ANALYSED_MAX: usize = 1 << 26;

/// The dead operations of a node, by index.
#[derive(Clone)]
pub(crate) struct Dead {
    /// Operations that need no code.
    pub moves: BitSet,
    /// Operations that change the validity of a header whose old fields are dead.
    pub fields: BitSet,
}

/// The dead operations of each node.
pub(crate) fn find(program: &Program, flow: &Flow, placement: &Placement, options: &Options) -> Vec<Dead> {
    let graph = &flow.graph;
    let is_candidate =
        |s: SlotId| matches!(program.slots[s.index()].kind, SlotKind::Field(_)) && placement.slot(s) == Where::Memory;
    let none = || vec![Dead { moves: BitSet::new(0), fields: BitSet::new(0) }; graph.nodes.len()];
    let any = (0..program.slots.len()).map(SlotId::from_index).any(is_candidate);
    let is_wanted = any && options.has(Optimisation::DeadFields);
    if !is_wanted || graph.nodes.len() * program.slots.len() > ANALYSED_MAX {
        return none();
    }
    let liveness = Liveness { program, graph, emitted: emitted(program) };
    let mut live = vec![BitSet::new(program.slots.len()); graph.nodes.len()];
    loop {
        let mut changed = false;
        for n in (0..graph.nodes.len()).rev() {
            let now = liveness.before(n, &live, &mut |_, _| false);
            changed |= live[n].union(&now);
        }
        if !changed {
            break;
        }
    }
    let dead = |n: usize| {
        let block = graph.block(program, n);
        let mut dead = Dead { moves: BitSet::new(block.insts.len()), fields: BitSet::new(block.insts.len()) };
        liveness.before(n, &live, &mut |i, after| {
            let op = &block.insts[i].op;
            let changed = match op {
                Op::SetValid { header } => Some(*header),
                op => op.dst().and_then(|dst| match program.slots[dst.index()].kind {
                    SlotKind::Valid(header) => Some(header),
                    _ => None,
                }),
            };
            if let Some(header) = changed {
                let fields = &program.headers[header.index()].fields;
                if fields.iter().all(|field| !after.contains(field.slot.index())) {
                    dead.fields.insert(i);
                }
            }
            let is_dead = match op {
                Op::Mov { dst, .. } => is_candidate(*dst) && !after.contains(dst.index()),
                _ => false,
            };
            if is_dead {
                dead.moves.insert(i);
            }
            is_dead
        });
        dead
    };
    (0..graph.nodes.len()).map(dead).collect()
}

struct Liveness<'a> {
    program: &'a Program,
    graph: &'a Graph,
    /// By stage: the headers that it emits.
    emitted: Vec<BTreeSet<HeaderId>>,
}

impl Liveness<'_> {
    /// The slots that are live at the start of a node, if `live` are those at the start of each node. Calls `skip` with
    /// each operation, last to first, and the slots that are live after it; operations for which it returns true are
    /// left out.
    fn before(&self, n: usize, live: &[BitSet], skip: &mut dyn FnMut(usize, &BitSet) -> bool) -> BitSet {
        let (program, node) = (self.program, &self.graph.nodes[n]);
        let block = self.graph.block(program, n);
        let mut set = match &block.term {
            Terminator::Finish(Fate::Drop(_) | Fate::Send(_)) => BitSet::new(program.slots.len()),
            Terminator::Finish(_) => BitSet::full(program.slots.len()),
            _ => BitSet::new(program.slots.len()),
        };
        node.succs.iter().for_each(|s| _ = set.union(&live[*s]));
        let emitted = self.emitted_slots(n);
        set.union(&emitted);
        match &block.term {
            Terminator::Finish(Fate::Send(operand)) => operand.slot().into_iter().for_each(|s| set.insert(s.index())),
            term => term.operand().and_then(Operand::slot).into_iter().for_each(|s| set.insert(s.index())),
        }
        for (i, inst) in block.insts.iter().enumerate().rev() {
            if skip(i, &set) {
                continue;
            }
            match &inst.op {
                Op::Emit { .. } => _ = set.union(&emitted),
                Op::Unresolved { .. } => set = BitSet::full(program.slots.len()),
                op => {
                    op.for_each_def(program, |s| set.remove(s.index()));
                    op.for_each_use(program, |s| set.insert(s.index()));
                }
            }
        }
        set.union(&emitted);
        set
    }

    /// In a node of a deparser: slots of the emitted headers that are not known to be invalid.
    fn emitted_slots(&self, n: usize) -> BitSet {
        let (program, node) = (self.program, &self.graph.nodes[n]);
        let mut slots = BitSet::new(program.slots.len());
        let emitted = &self.emitted[node.stage.index()];
        if emitted.is_empty() {
            return slots;
        }
        let mut assigned = BitSet::new(program.slots.len());
        let insts = self.graph.block(program, n).insts.iter();
        insts.for_each(|inst| inst.op.for_each_def(program, |s| assigned.insert(s.index())));
        for &header in emitted {
            let valid = program.headers[header.index()].valid;
            let is_invalid = node.known.get(&valid).is_some_and(|v| v.is_zero()) && !assigned.contains(valid.index());
            if is_invalid {
                slots.insert(valid.index());
            } else {
                ir::flow::for_each_header_slot(program, header, |s| slots.insert(s.index()));
            }
        }
        slots
    }
}

/// By stage: the headers that it emits.
fn emitted(program: &Program) -> Vec<BTreeSet<HeaderId>> {
    let of = |stage: &Stage| {
        let insts = stage.blocks.iter().flat_map(|block| &block.insts);
        let headers = insts.filter_map(|inst| match inst.op {
            Op::Emit { header } => Some(header),
            _ => None,
        });
        headers.collect()
    };
    program.stages.iter().map(of).collect()
}

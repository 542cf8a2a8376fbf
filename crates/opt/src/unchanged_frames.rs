//! Frames that come out as they went in: neither parser nor egress nor deparser runs for their copies.
//!
//! Needs: a well-formed program. Guarantees: same behaviour, but for time. Where all paths through an entry send the
//! frame, unchanged, to the port that the replication engine has chosen, the entry becomes one block that sends it
//! there. The engine sees such entries ([`Program::sends_at_once`]). Clones need no record then, and records of packets
//! on their way to egress hold no headers.
//!
//! - `CloneIngress`: a path begins and ends in the entry.
//! - `Egress`: a path begins in the entry that hands the packet over (`replicate ingress_end`), which may look up
//!   tables, count and so on, and ends in egress.
//!
//! A path leaves a frame unchanged if it emits the headers that it has extracted, each once and in this order, as they
//! were extracted. The paths are followed with the list of headers extracted so far and with the constants that are
//! known, which say how many elements a header stack has by then; an entry that needs more than [`STEPS_MAX`] steps
//! stays as it is. The entry that is replaced must not do anything else that can be seen:
//!
//! - It changes no table, counter, register, random number or message, and reads none of them but registers.
//! - It writes no field of a header but by extracting it, and nothing that the engine has set or reads afterwards.
//! - Its paths end, and their loops cost no more than they may ([`ir::STEPS_MAX`]). They emit no more than there may be
//!   room for ([`ir::EMITTED_BYTES_MAX`]).
//!
//! ```text
//! entry clone_ingress (P, D, deparse_end)       entry clone_ingress (clone_ingress.unchanged)
//! stage parser P {                              stage control clone_ingress.unchanged {
//!   extract h                                     send port
//!   next                                        }
//! }                                       =>
//! stage deparser D {
//!   emit h
//!   next
//! }
//! stage control deparse_end {
//!   send port
//! }
//! ```
//!
//! Tests: `tests/files/unchanged_frames.ir`, `tests/properties.rs`, the scripts of `tests/stf` on all engines,
//! `datapath`'s `tests/clones.rs`.

use base::ids::{BlockId, HeaderId, SlotId, StageId};
use base::{Bits, Span};
use ir::flow::for_each_header_slot;
use ir::{
    Block, EMITTED_BYTES_MAX, EntryKind, Fate, Intrinsic, Op, Operand, Program, ReplicationPoint, SlotKind, Stage,
    StageKind, Terminator,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Blocks that are looked at, once for each list of headers with which they are reached. It bounds the time of the
/// pass: a parser with hundreds of states has fewer, unless it is made so that its paths multiply.
const STEPS_MAX: usize = 1 << 12;

/// What an entry may write although the engine knows it: nobody reads it once the packet is sent.
const UNREAD_AFTER_SENDING: &[Intrinsic] = &[Intrinsic::ParserError];

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let Some(port) = program.intrinsic(Intrinsic::EgressPort) else { return false };
    // A flow processor changes packets between ingress and egress.
    if program.openflow.is_some() {
        return false;
    }
    let mut changed = false;
    for kind in [EntryKind::CloneIngress, EntryKind::Egress] {
        let Some(entry) = program.entry(kind) else { continue };
        let last = &entry.stages[..];
        let before: Vec<&[StageId]> = match kind {
            EntryKind::CloneIngress => vec![&[]],
            _ => program.entries.iter().filter(|entry| entry.kind != kind).map(|entry| &entry.stages[..]).collect(),
        };
        let is_unchanged = |before: &[StageId]| Walk::new(program, port, before, last).is_unchanged();
        // A program with an entry for the deparser has it run behind egress.
        if program.sends_at_once(kind)
            || program.entry(EntryKind::Deparse).is_some()
            || !before.into_iter().all(is_unchanged)
        {
            continue;
        }
        send_at_once(program, kind, port);
        changed = true;
    }
    changed
}

/// Replaces an entry.
fn send_at_once(program: &mut Program, kind: EntryKind, port: SlotId) {
    let block = Block {
        label: String::new(),
        insts: Vec::new(),
        term: Terminator::Finish(Fate::Send(port.into())),
        span: Span::default(),
    };
    let name = format!("{}.unchanged", kind.name());
    program.stages.push(Stage { name, kind: StageKind::Control, blocks: vec![block] });
    let stage = StageId::from_index(program.stages.len() - 1);
    let entry = program.entries.iter_mut().find(|entry| entry.kind == kind).expect("it was found before");
    entry.stages = vec![stage];
}

/// A block on a path.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Step {
    /// Whether it is in the entry that hands packets over, and the position of its stage in the entry.
    is_before: bool,
    at: usize,
    block: BlockId,
    /// The headers that were extracted on the way there, and how many of them were emitted.
    extracted: Vec<HeaderId>,
    emitted: usize,
    /// Constant values of slots that were written on the way there; `None` for a slot whose value is not known.
    values: BTreeMap<SlotId, Option<Bits>>,
}

struct Walk<'a> {
    program: &'a Program,
    port: SlotId,
    /// Stages of the entry that hands packets over, none if there is none; and those of the one behind it.
    before: &'a [StageId],
    last: &'a [StageId],
    /// Slots of headers, which no operation may write that does not extract them.
    headers: HashSet<SlotId>,
    /// Slots that the last entry must not write, besides.
    kept: HashSet<SlotId>,
    /// Slots that are zero at first.
    zero: HashSet<SlotId>,
    /// Slots on which it depends where paths go.
    branched_on: HashSet<SlotId>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, port: SlotId, before: &'a [StageId], last: &'a [StageId]) -> Self {
        let known = program.intrinsics.iter().filter(|(which, _)| !UNREAD_AFTER_SENDING.contains(which));
        let all = (0..program.headers.len()).map(HeaderId::from_index);
        let headers: HashSet<SlotId> = all.flat_map(|header| slots(program, header)).collect();
        let set = program.intrinsics.iter().map(|(_, slot)| slot);
        let set: HashSet<&SlotId> = set.chain(program.field_lists.iter().flat_map(|(_, slots)| slots)).collect();
        let is_zero = |slot: &SlotId| {
            program.slots[slot.index()].kind != SlotKind::Temp && !headers.contains(slot) && !set.contains(slot)
        };
        let zero = (0..program.slots.len()).map(SlotId::from_index).filter(is_zero).collect();
        let kept = known.map(|(_, slot)| *slot).collect();
        let mut walk = Walk { program, port, before, last, headers, kept, zero, branched_on: HashSet::new() };
        walk.branched_on = walk.branched_on();
        walk
    }

    /// All blocks, and whether each is in the entry that hands packets over.
    fn blocks(&self) -> impl Iterator<Item = (&'a Block, bool)> {
        let program = self.program;
        let stages = self.before.iter().map(|stage| (stage, true)).chain(self.last.iter().map(|stage| (stage, false)));
        stages.flat_map(move |(stage, is_before)| {
            program.stages[stage.index()].blocks.iter().map(move |block| (block, is_before))
        })
    }

    /// Slots that terminators read, and those from which these are computed.
    fn branched_on(&self) -> HashSet<SlotId> {
        let ends = self.blocks().filter_map(|(block, _)| block.term.operand().and_then(Operand::slot));
        let mut branched_on: HashSet<SlotId> = ends.collect();
        loop {
            let before = branched_on.len();
            for inst in self.blocks().flat_map(|(block, _)| &block.insts) {
                if inst.op.arithmetic_dst().is_some_and(|dst| branched_on.contains(&dst)) {
                    inst.op.for_each_use(self.program, |slot| _ = branched_on.insert(slot));
                }
            }
            if branched_on.len() == before {
                return branched_on;
            }
        }
    }

    /// Whether every path through both entries sends the frame as it came.
    fn is_unchanged(&self) -> bool {
        // Paths are followed only where there is nothing that would change a frame on any.
        let are_all_permitted = self.blocks().all(|(block, is_before)| {
            let ops = block.insts.iter().map(|inst| &inst.op);
            ops.into_iter().all(|op| self.is_permitted(op, is_before))
        });
        if !are_all_permitted || !self.have_slots_of_their_own() {
            return false;
        }
        let first = Step {
            is_before: !self.before.is_empty(),
            at: 0,
            block: Stage::START,
            extracted: vec![],
            emitted: 0,
            values: BTreeMap::new(),
        };
        let mut numbers: HashMap<Step, usize> = HashMap::from([(first.clone(), 0)]);
        let mut worklist = vec![(first, 0)];
        // By step of the last entry, the steps that follow.
        let mut next: Vec<Vec<usize>> = vec![Vec::new()];
        // What all of them are charged with; a path comes to each once.
        let mut charged = 0;
        while let Some((step, number)) = worklist.pop() {
            let is_last = !step.is_before;
            charged += if is_last { self.charged(&step) } else { 0 };
            let Some(following) = self.follow(step) else { return false };
            for step in following {
                let new = numbers.len();
                let to = *numbers.entry(step.clone()).or_insert(new);
                if to == new {
                    next.push(Vec::new());
                    worklist.push((step, new));
                }
                if is_last {
                    next[number].push(to);
                }
            }
            if numbers.len() > STEPS_MAX || charged > ir::cost::FREE_STEPS {
                return false;
            }
        }
        has_no_circle(&next)
    }

    /// Whether no slot belongs to two headers, and none of a header's survives a clone: what is emitted is then what
    /// was extracted.
    fn have_slots_of_their_own(&self) -> bool {
        let mut seen: HashSet<SlotId> = self.program.field_lists.iter().flat_map(|(_, slots)| slots).copied().collect();
        let headers = (0..self.program.headers.len()).map(HeaderId::from_index);
        headers.into_iter().all(|header| slots(self.program, header).into_iter().all(|slot| seen.insert(slot)))
    }

    /// What a step of the last entry is charged with.
    fn charged(&self, step: &Step) -> u64 {
        let Some(stage) = self.last.get(step.at) else { return 0 };
        let insts = &self.program.stages[stage.index()].blocks[step.block.index()].insts;
        insts.iter().map(|inst| if let Op::Charge { steps } = inst.op { steps.into() } else { 0 }).sum()
    }

    /// Where paths go from a block; `None` if one changes the frame or does something else.
    fn follow(&self, mut step: Step) -> Option<Vec<Step>> {
        let stages = if step.is_before { self.before } else { self.last };
        let stage = &self.program.stages[stages.get(step.at)?.index()];
        let Block { insts, term, .. } = &stage.blocks[step.block.index()];
        for inst in insts {
            let Step { is_before, extracted, emitted, values, .. } = &mut step;
            match &inst.op {
                Op::Extract { header, .. } if !extracted.contains(header) && *emitted == 0 => extracted.push(*header),
                Op::Emit { header } if extracted.get(*emitted) == Some(header) => *emitted += 1,
                // It is invalid.
                Op::Emit { header } if !extracted.contains(header) => {}
                Op::Extract { .. } | Op::Emit { .. } => return None,
                op if self.is_permitted(op, *is_before) => self.write(op, values),
                _ => return None,
            }
        }
        let to = |block: BlockId| Step { block, ..step.clone() };
        let value = |operand: &Operand| self.value(operand, &step.values);
        match term {
            Terminator::Jump(next) => Some(vec![to(*next)]),
            Terminator::Branch { cond, then, other } => match value(cond) {
                Some(known) => Some(vec![to(if known.is_true() { *then } else { *other })]),
                None => Some(vec![to(*then), to(*other)]),
            },
            Terminator::Switch { on, cases, default } => match value(on) {
                Some(known) => {
                    let case = cases.iter().find(|(case, _)| *case == known);
                    Some(vec![to(case.map_or(*default, |(_, block)| *block))])
                }
                None => Some(cases.iter().map(|(_, block)| to(*block)).chain([to(*default)]).collect()),
            },
            Terminator::Next => Some(vec![Step { at: step.at + 1, block: Stage::START, ..step }]),
            Terminator::Finish(Fate::Send(Operand::Slot(port))) if !step.is_before => {
                let is_whole = step.emitted == step.extracted.len() && self.has_room(&step.extracted);
                (*port == self.port && is_whole).then(Vec::new)
            }
            Terminator::Finish(Fate::Replicate(ReplicationPoint::IngressEnd)) if step.is_before => {
                // The engine sets what it knows.
                step.values.retain(|slot, _| !self.program.intrinsics.iter().any(|(_, known)| known == slot));
                let first = Step { is_before: false, at: 0, block: Stage::START, ..step };
                (first.emitted == 0).then(|| vec![first])
            }
            // It does not come to the last entry.
            Terminator::Finish(_) => step.is_before.then(Vec::new),
        }
    }

    fn value(&self, operand: &Operand, values: &BTreeMap<SlotId, Option<Bits>>) -> Option<Bits> {
        match operand {
            Operand::Const(value) => Some(value.clone()),
            Operand::Slot(slot) => match values.get(slot) {
                Some(known) => known.clone(),
                None => self.zero.contains(slot).then(|| Bits::zero(self.program.width(*slot))),
            },
        }
    }

    /// What an operation makes of what is known.
    fn write(&self, op: &Op, values: &mut BTreeMap<SlotId, Option<Bits>>) {
        let value = op.dst().and_then(|dst| op.evaluate(self.program.width(dst), |a| self.value(a, values)));
        op.for_each_def(self.program, |slot| match (&value, self.zero.contains(&slot)) {
            _ if !self.branched_on.contains(&slot) => {}
            (None, false) => _ = values.remove(&slot),
            (known, _) => _ = values.insert(slot, known.clone()),
        });
    }

    /// Whether a deparser may emit so many headers.
    fn has_room(&self, headers: &[HeaderId]) -> bool {
        let fields = headers.iter().flat_map(|header| &self.program.headers[header.index()].fields);
        let bits: u64 = fields.map(|field| u64::from(self.program.width(field.slot))).sum();
        bits.div_ceil(8) <= EMITTED_BYTES_MAX.into()
    }

    /// Whether an operation changes no frame and, in the last entry, nothing else that can be seen.
    fn is_permitted(&self, op: &Op, is_before: bool) -> bool {
        match op {
            Op::Extract { .. } | Op::Emit { .. } | Op::Charge { .. } | Op::Mark(_) => return true,
            Op::Advance { .. } | Op::Truncate { .. } | Op::Unresolved { .. } => return false,
            op if !is_before && !op.is_removable() => return false,
            _ => {}
        }
        let mut writes = false;
        op.for_each_def(self.program, |slot| {
            writes |= self.headers.contains(&slot) || (!is_before && self.kept.contains(&slot));
        });
        !writes
    }
}

/// Whether no way along these edges comes back to where it began.
fn has_no_circle(next: &[Vec<usize>]) -> bool {
    let mut into = vec![0; next.len()];
    next.iter().flatten().for_each(|to| into[*to] += 1);
    let mut free: Vec<usize> = (0..next.len()).filter(|number| into[*number] == 0).collect();
    let mut ended = 0;
    while let Some(number) = free.pop() {
        ended += 1;
        for to in &next[number] {
            into[*to] -= 1;
            if into[*to] == 0 {
                free.push(*to);
            }
        }
    }
    ended == next.len()
}

/// All slots of a header.
fn slots(program: &Program, header: HeaderId) -> Vec<SlotId> {
    let mut slots = Vec::new();
    for_each_header_slot(program, header, |slot| slots.push(slot));
    slots
}

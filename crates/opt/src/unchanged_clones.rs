//! Clones whose frame comes out as it went in: neither parser nor egress nor deparser runs for them.
//!
//! Needs: a well-formed program. Guarantees: same behaviour, but for time. Where all paths of the entry of clones send the frame,
//! unchanged, to the port that the replication engine has chosen, the entry becomes one block that sends it there. The engine sees
//! such an entry ([`Program::sends_at_once`]) and makes no record for these clones.
//!
//! A path leaves a frame unchanged if it emits the headers that it has extracted, each once and in this order, as they were
//! extracted. The paths are followed with the list of headers extracted so far and with the constants that are known, which say how many
//! elements a header stack has by then; an entry that needs more than [`STEPS_MAX`] steps stays as it is. The entry must not do anything
//! else that can be seen:
//!
//! - It changes no table, counter, register, random number or message, and reads none of them but registers.
//! - It writes no field of a header but by extracting it, and nothing that the engine has set or reads afterwards.
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
//! Tests: `tests/files/unchanged_clones.ir`, `tests/properties.rs`, the scripts of `tests/stf` on all engines, `datapath`'s
//! `tests/clones.rs`.

use base::ids::{BlockId, HeaderId, SlotId, StageId};
use base::{Bits, Span};
use ir::flow::for_each_header_slot;
use ir::{Block, EntryKind, EntryPoint, Fate, Intrinsic, Op, Operand, Program, SlotKind, Stage, StageKind, Terminator};
use std::collections::{BTreeMap, HashSet};

/// Blocks that are looked at, once for each list of headers with which they are reached. It bounds the time of the pass: a parser with
/// hundreds of states has fewer, unless it is made so that its paths multiply.
const STEPS_MAX: usize = 1 << 14;

/// What the entry may write although the engine knows it: nobody reads it once the packet is sent.
const ENDS_HERE: &[Intrinsic] = &[Intrinsic::ParserError];

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let kind = EntryKind::CloneIngress;
    let Some(port) = program.intrinsic(Intrinsic::EgressPort) else { return false };
    let Some(entry) = program.entry(kind) else { return false };
    if program.sends_at_once(kind) || !Walk::new(program, entry, port).is_unchanged() {
        return false;
    }
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
    true
}

/// A block on a path.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Step {
    /// The position of its stage in the entry.
    at: usize,
    block: BlockId,
    /// The headers that were extracted on the way there, and how many of them were emitted.
    extracted: Vec<HeaderId>,
    emitted: usize,
    /// What is known of slots that were written on the way there; `None` of those of which nothing is.
    values: BTreeMap<SlotId, Option<Bits>>,
}

struct Walk<'a> {
    program: &'a Program,
    entry: &'a EntryPoint,
    port: SlotId,
    /// Slots that the entry must not write, unless it extracts a header.
    kept: HashSet<SlotId>,
    /// Slots that are zero at first.
    zero: HashSet<SlotId>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, entry: &'a EntryPoint, port: SlotId) -> Self {
        let known = program.intrinsics.iter().filter(|(which, _)| !ENDS_HERE.contains(which)).map(|(_, slot)| *slot);
        let headers = (0..program.headers.len()).map(HeaderId::from_index);
        let kept: HashSet<SlotId> = known.chain(headers.flat_map(|header| slots(program, header))).collect();
        let set = program.intrinsics.iter().map(|(_, slot)| slot);
        let set: HashSet<&SlotId> = set.chain(program.field_lists.iter().flat_map(|(_, slots)| slots)).collect();
        let is_zero = |slot: &SlotId| {
            program.slots[slot.index()].kind != SlotKind::Temp && !kept.contains(slot) && !set.contains(slot)
        };
        let zero = (0..program.slots.len()).map(SlotId::from_index).filter(is_zero).collect();
        Walk { program, entry, port, kept, zero }
    }

    /// Whether every path sends the frame as it came.
    fn is_unchanged(&self) -> bool {
        if !self.have_slots_of_their_own() {
            return false;
        }
        let first = Step { at: 0, block: Stage::START, extracted: vec![], emitted: 0, values: BTreeMap::new() };
        let mut waiting = vec![first];
        let mut seen: HashSet<Step> = waiting.iter().cloned().collect();
        while let Some(step) = waiting.pop() {
            let Some(next) = self.follow(step) else { return false };
            waiting.extend(next.into_iter().filter(|step| seen.insert(step.clone())));
            if seen.len() > STEPS_MAX {
                return false;
            }
        }
        true
    }

    /// Whether no slot belongs to two headers, and none of a header's survives a clone: what is emitted is then what was extracted.
    fn have_slots_of_their_own(&self) -> bool {
        let mut seen: HashSet<SlotId> = self.program.field_lists.iter().flat_map(|(_, slots)| slots).copied().collect();
        let headers = (0..self.program.headers.len()).map(HeaderId::from_index);
        headers.into_iter().all(|header| slots(self.program, header).into_iter().all(|slot| seen.insert(slot)))
    }

    /// Where paths go from a block; `None` if one changes the frame or does something else.
    fn follow(&self, mut step: Step) -> Option<Vec<Step>> {
        let stage = &self.program.stages[self.entry.stages.get(step.at)?.index()];
        let Block { insts, term, .. } = &stage.blocks[step.block.index()];
        for inst in insts {
            let Step { extracted, emitted, values, .. } = &mut step;
            match &inst.op {
                Op::Extract { header, .. } if !extracted.contains(header) && *emitted == 0 => extracted.push(*header),
                Op::Emit { header } if extracted.get(*emitted) == Some(header) => *emitted += 1,
                // It is invalid.
                Op::Emit { header } if !extracted.contains(header) => {}
                Op::Mark(_) => {}
                op if op.is_removable() && !self.writes_what_is_kept(op) => self.write(op, values),
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
            Terminator::Finish(Fate::Send(Operand::Slot(port))) => {
                (*port == self.port && step.emitted == step.extracted.len()).then(Vec::new)
            }
            Terminator::Finish(_) => None,
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
            (None, false) => _ = values.remove(&slot),
            (known, _) => _ = values.insert(slot, known.clone()),
        });
    }

    fn writes_what_is_kept(&self, op: &Op) -> bool {
        let mut writes = false;
        op.for_each_def(self.program, |slot| writes |= self.kept.contains(&slot));
        writes
    }
}

/// All slots of a header.
fn slots(program: &Program, header: HeaderId) -> Vec<SlotId> {
    let mut slots = Vec::new();
    for_each_header_slot(program, header, |slot| slots.push(slot));
    slots
}

//! Executes the stages of an entry point on one packet.
//!
//! A program that the verifier accepts runs without panic, except for errors that the verifier cannot detect (listed in
//! its module documentation). These are asserted here with the text of the instruction: to continue would hide a
//! compiler bug.
//!
//! Tests: `tests/run.rs`.

mod exec;
mod packet;

use crate::host::Host;
use crate::state::State;
use crate::trace::{Event, Trace, TraceStep};
use abi::state::DigestMessage;
use base::ids::{BlockId, SlotId};
use base::{Bits, Span};
use ir::layout::RecordLayout;
use ir::print::{slot_text, terminator_text};
use ir::{Block, EntryKind, Intrinsic, Operand, Program, ReplicationPoint, SlotKind, Stage, StageKind, Terminator};
use packet::Frame;
use std::sync::Arc;

/// The label of the block in which a parser's accepting paths meet; traces show it as well.
const ACCEPT: &str = "accept";

/// The fate of a packet at the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Dropped; the index into `Program::drops` is the reason.
    Drop(u32),
    /// Sent to a port.
    Send(u64),
    /// Sent to the ports of a multicast group.
    Multicast(u64),
    /// Handed to the replication engine; all slots are in the record.
    Replicate(ReplicationPoint),
    /// Returned to ingress. The slots of the field list are in the record; the others are unspecified.
    Again {
        /// The reason.
        why: ir::Again,
        /// The index of the field list, if one is preserved.
        list: Option<u64>,
    },
    /// Dropped after more than [`ir::STEPS_MAX`] steps in loops.
    Endless,
    /// Dropped because more than [`ir::EMITTED_BYTES_MAX`] bytes of headers were emitted.
    NoRoom,
}

/// The results of a run, apart from the record and the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The fate of the packet.
    pub fate: Fate,
    /// The frame: rewritten if a deparser ran, otherwise unchanged.
    pub packet: Vec<u8>,
    /// Maximum length of the frame in bytes during the run, before truncation. The packet buffer must be this large.
    pub longest: usize,
    /// Number of bytes at the front of `packet` that the parser consumed or the deparser emitted; the payload follows.
    pub consumed: u32,
    /// Steps spent in loops beyond [`ir::cost::FREE_STEPS`].
    pub spent: u64,
    /// Digests for the controller, in order.
    pub digests: Vec<DigestMessage>,
    /// Log lines, in order.
    pub logs: Vec<String>,
    /// Texts of failed assertions, in order.
    pub failed_assertions: Vec<String>,
}

/// An interpreter of one program. It is cheap to clone, and any number of threads may run packets.
#[derive(Clone, Debug)]
pub struct Interp {
    program: Arc<Program>,
    layout: Arc<RecordLayout>,
    state: Arc<State>,
}

impl Interp {
    /// An interpreter with fresh state. The program must have passed the verifier.
    pub fn new(program: Arc<Program>) -> Interp {
        let state = Arc::new(State::new(program.clone()));
        Interp::with_state(program, state)
    }

    /// An interpreter on existing state, such as that of the same program before optimisation.
    pub fn with_state(program: Arc<Program>, state: Arc<State>) -> Interp {
        debug_assert_eq!(ir::verify(&program), [], "an ill-formed program");
        let layout = Arc::new(RecordLayout::new(&program));
        Interp { program, layout, state }
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The layout of records.
    pub fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    /// Tables and externs. The control plane uses them through `abi::PipelineState`.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Runs one packet from an entry point to its fate.
    ///
    /// `record` has the layout's length. On entry it holds the initial values of slots: for [`EntryKind::Ingress`] the
    /// intrinsics (all other slots start as zero, whatever the record has), for other entry points all slots. On return
    /// it holds all slots, whatever the fate; temporaries and table handles in it are meaningless.
    ///
    /// `consumed` is the number of bytes that a parser has already consumed, for entry points whose first stages do not
    /// parse. A parser stage starts at the first byte.
    ///
    /// # Panics
    /// If the program has no such entry point.
    pub fn run(
        &self,
        entry: EntryKind,
        packet: &[u8],
        consumed: u32,
        record: &mut [u64],
        host: &mut dyn Host,
        trace: Option<&mut Trace>,
    ) -> Outcome {
        let program = &*self.program;
        let point = program.entry(entry).unwrap_or_else(|| panic!("the program has no entry `{}`", entry.name()));
        let slots = self.load(entry, record);
        let mut trace = trace;
        if let Some(trace) = trace.as_deref_mut() {
            let word = |which| Some(slots[program.intrinsic(which)?.index()].to_u64().unwrap_or(u64::MAX));
            trace.port = word(Intrinsic::EgressPort);
            trace.rid = word(Intrinsic::EgressRid);
        }
        let mut machine = Machine {
            program,
            state: &self.state,
            slots,
            frame: Frame::new(packet, consumed as usize),
            length: packet.len() as u64,
            matched_args: Vec::new(),
            host,
            trace,
            traced: [None; 2],
            checks: false,
            verifies: false,
            outcome: Outcome {
                fate: Fate::Endless,
                packet: Vec::new(),
                longest: packet.len(),
                consumed,
                spent: 0,
                digests: Vec::new(),
                logs: Vec::new(),
                failed_assertions: Vec::new(),
            },
            spent: 0,
        };
        self.state.set_time(machine.host.now_us());
        machine.outcome.fate = point
            .stages
            .iter()
            .find_map(|stage| machine.stage(&program.stages[stage.index()]))
            .expect("the verifier has seen that the last stage ends in a fate");
        let Machine { slots, frame, mut outcome, spent, .. } = machine;
        outcome.spent = spent.saturating_sub(ir::cost::FREE_STEPS);
        for (i, value) in slots.iter().enumerate() {
            self.layout.set(record, SlotId::from_index(i), value);
        }
        outcome.consumed = frame.consumed() as u32;
        outcome.packet = frame.into_bytes();
        outcome
    }

    fn load(&self, entry: EntryKind, record: &[u64]) -> Vec<Bits> {
        if entry != EntryKind::Ingress {
            let all = 0..self.program.slots.len();
            return all.map(|i| self.layout.get(record, SlotId::from_index(i))).collect();
        }
        let mut slots: Vec<Bits> = self.program.slots.iter().map(|s| Bits::zero(s.width)).collect();
        for (_, slot) in &self.program.intrinsics {
            slots[slot.index()] = self.layout.get(record, *slot);
        }
        slots
    }
}

struct Machine<'a> {
    program: &'a Program,
    state: &'a State,
    slots: Vec<Bits>,
    frame: Frame,
    /// Length of the packet in bytes at the entry point.
    length: u64,
    /// Arguments of the calls that lookups found; a data handle is an index into this plus one.
    matched_args: Vec<Vec<Bits>>,
    host: &'a mut dyn Host,
    trace: Option<&'a mut Trace>,
    /// The slots with the action of the last lookup and with the result of the last length check. A branch on them is
    /// not traced separately, since their own step shows the outcome.
    traced: [Option<SlotId>; 2],
    /// Whether a checksum is being verified, and whether it has been computed: the next comparison is then its
    /// verification.
    checks: bool,
    verifies: bool,
    outcome: Outcome,
    /// Steps spent in loops.
    spent: u64,
}

impl Machine<'_> {
    /// Adds a step to the trace, if there is one.
    fn note(&mut self, span: Span, event: impl FnOnce(&Self) -> Event) {
        if self.trace.is_some() {
            let event = event(self);
            if let Some(trace) = &mut self.trace {
                trace.steps.push(TraceStep { span, event });
            }
        }
    }

    fn value(&self, operand: &Operand) -> Bits {
        match operand {
            Operand::Slot(s) => self.slots[s.index()].clone(),
            Operand::Const(c) => c.clone(),
        }
    }

    /// A value as a number; values wider than 64 bits saturate.
    fn number(&self, operand: &Operand) -> u64 {
        self.value(operand).to_u64().unwrap_or(u64::MAX)
    }

    fn set(&mut self, span: Span, dst: SlotId, value: Bits) {
        debug_assert_eq!(value.width(), self.program.width(dst), "a value for `{}`", slot_text(self.program, dst));
        let old = std::mem::replace(&mut self.slots[dst.index()], value);
        if let Some(traced) = self.traced.iter_mut().find(|t| **t == Some(dst)) {
            *traced = None;
        }
        let slot = &self.program.slots[dst.index()];
        let unchanged = old == self.slots[dst.index()];
        if slot.kind == SlotKind::Temp || (unchanged && matches!(slot.kind, SlotKind::Valid(_))) {
            return;
        }
        self.note(span, |m| {
            let new = m.slots[dst.index()].clone();
            match slot.kind {
                SlotKind::Valid(h) => {
                    Event::Valid { header: m.program.headers[h.index()].name.clone(), valid: new.is_true() }
                }
                _ => Event::Change { slot: slot.name.clone(), old, new },
            }
        });
    }

    /// Runs a stage. Returns the fate if the packet ends in it.
    fn stage(&mut self, stage: &Stage) -> Option<Fate> {
        (self.checks, self.verifies) = (false, false);
        self.note(Span::NONE, |_| Event::Stage { name: stage.name.clone(), kind: stage.kind.name() });
        if stage.kind == StageKind::Parser {
            self.frame.rewind();
        }
        let mut at = Stage::START;
        let fate = loop {
            let block = &stage.blocks[at.index()];
            for inst in &block.insts {
                self.execute(inst);
                if self.spent > ir::STEPS_MAX {
                    return Some(Fate::Endless);
                }
                if self.frame.exceeds_emit_limit() {
                    return Some(Fate::NoRoom);
                }
            }
            match self.terminate(stage, block) {
                Ok(next) => at = next,
                Err(fate) => break fate,
            }
        };
        if stage.kind == StageKind::Deparser {
            let longest = self.frame.deparse();
            self.outcome.longest = self.outcome.longest.max(longest);
        }
        fate
    }

    /// Executes a block's terminator. `Ok` is the next block; `Err` ends the stage, with the packet's fate if it has
    /// one.
    fn terminate(&mut self, stage: &Stage, block: &Block) -> Result<BlockId, Option<Fate>> {
        let Block { term, span, label, .. } = block;
        let span = *span;
        let fate = match term {
            Terminator::Jump(to) => return Ok(*to),
            Terminator::Branch { cond, then, other } => {
                let value = self.value(cond);
                let to = if value.is_true() { *then } else { *other };
                self.branch(stage, span, cond, value.is_true(), to);
                return Ok(to);
            }
            Terminator::Switch { on, cases, default } => {
                let value = self.value(on);
                let to = cases.iter().find(|(case, _)| *case == value).map_or(*default, |(_, to)| *to);
                self.switch(stage, span, on, value, to);
                return Ok(to);
            }
            Terminator::Next => {
                if stage.kind == StageKind::Parser {
                    self.accept(label);
                }
                return Err(None);
            }
            Terminator::Finish(ir::Fate::Drop(reason)) => Fate::Drop(*reason),
            Terminator::Finish(ir::Fate::Send(port)) => Fate::Send(self.number(port)),
            Terminator::Finish(ir::Fate::Multicast(group)) => Fate::Multicast(self.number(group)),
            Terminator::Finish(ir::Fate::Replicate(point)) => Fate::Replicate(*point),
            Terminator::Finish(ir::Fate::Again { why, list }) => Fate::Again { why: *why, list: *list },
        };
        self.note(span, |m| {
            Event::Fate(match fate {
                Fate::Send(port) => format!("send to port {port}"),
                Fate::Multicast(group) => format!("send to multicast group {group}"),
                _ => terminator_text(m.program, term),
            })
        });
        Err(Some(fate))
    }

    /// Traces a condition. The text form shows only those that appear in the source or have a name.
    fn branch(&mut self, stage: &Stage, span: Span, cond: &Operand, value: bool, to: BlockId) {
        let to = stage.blocks[to.index()].label.clone();
        if !self.is_traced(cond) {
            self.note(span, |m| Event::Condition { on: m.author_name(cond), value, to });
        } else if !to.is_empty() {
            self.note(span, |_| Event::To(to));
        }
    }

    /// Traces a switch on an operand that the author named, or a jump to a block that the author named.
    fn switch(&mut self, stage: &Stage, span: Span, on: &Operand, value: Bits, to: BlockId) {
        let to = stage.blocks[to.index()].label.clone();
        if self.is_traced(on) {
            return;
        }
        match self.author_name(on) {
            Some(on) => self.note(span, |_| Event::Select { on, value, to }),
            None if !to.is_empty() => self.note(span, |_| Event::To(to)),
            None => {}
        }
    }

    /// Traces that a parser accepts, unless it fails or the previous step shows it.
    fn accept(&mut self, label: &str) {
        let error = self.program.intrinsic(Intrinsic::ParserError).is_some_and(|s| self.slots[s.index()].is_true());
        let last = self.trace.as_ref().and_then(|t| t.steps.last()).map(|s| &s.event);
        let traced = match last {
            Some(Event::Select { to, .. } | Event::Condition { to, .. } | Event::To(to)) => to == ACCEPT,
            _ => false,
        };
        let failed = error || (!label.is_empty() && label != ACCEPT);
        if !failed && !traced {
            self.note(Span::NONE, |_| Event::To(ACCEPT.to_string()));
        }
    }

    fn is_traced(&self, operand: &Operand) -> bool {
        operand.slot().is_some_and(|s| self.traced.contains(&Some(s)))
    }

    /// The name of a slot in the source; `None` for temporaries.
    fn author_name(&self, operand: &Operand) -> Option<String> {
        let slot = &self.program.slots[operand.slot()?.index()];
        match slot.kind {
            SlotKind::Temp => None,
            SlotKind::Valid(h) => Some(format!("{}.isValid()", self.program.headers[h.index()].name)),
            _ => Some(slot.name.clone()),
        }
    }
}

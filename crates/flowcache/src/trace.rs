//! Traces: a run of a program on one frame that finds which of its bits decide, and what the frame becomes as a function of it.
//!
//! ```text
//! pass 1   slots hold parts: constants, bits of the frame, computed nodes ─▶ what was consulted
//! pass 2   consulted bits are constants, so that expressions fold         ─▶ Pattern, Rewrite; again if more was consulted
//! ```
//!
//! What decides is *consulted*: branches, table keys, lengths, places. All bits of the frame that it depends on belong to the pattern's
//! mask from then on, or only those that matter (a 0 decides a conjunction, the first different bits an order). What no step can
//! compute is consulted as well, and is a constant. So a path is sound by construction: for all frames of the pattern the program does
//! the same operations on the same values, but for the bits that the rewriting computes.
//!
//! What depends on more than the frame and the tables (registers, random numbers, meters, times), and what leaves more behind than a
//! frame and counts (digests, log lines, new entries), is refused with a reason. The port is none of a pattern's bits: paths of
//! one port are for that port.
//!
//! | file | holds |
//! | --- | --- |
//! | `trace/value.rs`, `nodes.rs` | symbolic values and the graph of computed ones |
//! | `trace/arith.rs`, `linear.rs` | arithmetic on them; checksums |
//! | `trace/context.rs`, `outcome.rs` | what passes share; what a trace comes to |
//! | `trace/run.rs` | a pass, what was consulted, the record for a flow processor |
//! | `trace/exec.rs`, `frame.rs`, `packet.rs` | operations, parser, deparser |
//! | `trace/emit.rs`, `steps.rs` | the rewriting |
//! | `trace/tables.rs` | what tables are asked |
//!
//! Tests: `tests/trace.rs`, `openflow.rs`, `programs.rs`, against `interp`.

mod arith;
mod context;
mod emit;
mod exec;
mod frame;
mod linear;
mod nodes;
mod outcome;
mod packet;
mod run;
mod steps;
mod tables;
mod value;

use crate::path::{Pattern, Rewrite, WINDOW};
use context::{Context, Known};
use exec::Ended;
use ir::layout::RecordLayout;
use ir::{EntryKind, Intrinsic, Program, ReplicationPoint, SlotId};
pub use outcome::{Decision, Fate, Traced, Untraceable};
pub use run::Run;
use std::sync::Arc;
pub use tables::{Bytes, Counted, Entries, Looked, Lookup, Place, Tables};
use value::{Origin, Part, Value};

/// Passes of a trace. Most need two.
const PASSES_MAX: u32 = 8;

/// The name of the program's counter for packets whose egress port says drop.
const INGRESS_DROP: &str = "ingress drop";

/// Traces frames through one program. Any number of threads may use it.
#[derive(Debug)]
pub struct Tracer {
    cx: Context,
}

impl Tracer {
    /// A tracer for a program, which has passed the verifier.
    pub fn new(program: Arc<Program>) -> Tracer {
        Tracer { cx: Context::new(program) }
    }

    /// Where slots lie in the record.
    pub fn layout(&self) -> &RecordLayout {
        &self.cx.layout
    }

    /// Traces a frame that came by `port`. When the `Ingress` entry hands it over, `decide` says where it goes, once in each pass and
    /// always the same for the same record; what it reads it must consult. Tables of the program are not looked up.
    ///
    /// # Errors
    /// If the frame's way is no path: why.
    pub fn trace<T>(
        &self,
        frame: &[u8],
        port: u32,
        decide: &mut dyn FnMut(&mut Run<'_>) -> Result<Decision<T>, Untraceable>,
    ) -> Result<Traced<T>, Untraceable> {
        self.trace_with(frame, port, None, decide)
    }

    /// As [`trace`](Tracer::trace); lookups of the program itself ask `tables`.
    ///
    /// # Errors
    /// As there.
    pub fn trace_with<T>(
        &self,
        frame: &[u8],
        port: u32,
        mut tables: Option<&mut dyn Tables>,
        decide: &mut dyn FnMut(&mut Run<'_>) -> Result<Decision<T>, Untraceable>,
    ) -> Result<Traced<T>, Untraceable> {
        let mut known = Known { mask: [0; WINDOW], length: false };
        for _ in 0..PASSES_MAX {
            let mut tables = tables.as_mut().map(|tables| &mut **tables as &mut dyn Tables);
            tables.iter_mut().for_each(|tables| tables.begin());
            let mut run = Run::new(&self.cx, frame, &known, tables);
            let (fate, rewrite, value) = self.pass(&mut run, port, decide)?;
            run.check()?;
            if run.consulted == known {
                let pattern = pattern(&run);
                debug_assert!(covers(&pattern, frame), "a frame is not in its own pattern");
                let (counted, lookups) = (std::mem::take(&mut run.counted), std::mem::take(&mut run.lookups));
                return Ok(Traced { pattern, rewrite, fate, counted, lookups, value });
            }
            known = run.consulted.clone();
        }
        Err(Untraceable(format!("what decides still grows after {PASSES_MAX} passes")))
    }

    /// Traces a frame through a program whose own tables decide. A packet that is handed over goes to one port, as the intrinsics say;
    /// what asks for copies, or to be parsed again, is no path.
    ///
    /// # Errors
    /// If the frame's way is no path: why.
    pub fn trace_program(&self, frame: &[u8], port: u32, tables: &mut dyn Tables) -> Result<Traced<()>, Untraceable> {
        if self.cx.program.queues {
            return Err(Untraceable("the program's packets wait in queues".to_string()));
        }
        let mut path = self.trace_with(frame, port, Some(tables), &mut |run| self.unicast(run))?;
        if path.fate == Fate::Drop(None) {
            path.fate =
                Fate::Drop(self.cx.program.drops.iter().position(|name| name == INGRESS_DROP).map(|i| i as u32));
        }
        Ok(path)
    }

    /// What becomes of a packet at the end of ingress that asks for nothing but a port; as the datapath's engine does it.
    fn unicast(&self, run: &mut Run<'_>) -> Result<Decision<()>, Untraceable> {
        let mut asked = |which| {
            let Some(slot) = self.cx.program.intrinsic(which) else { return 0 };
            let value = run.slots[slot.index()].clone();
            run.consult_value(&value);
            value.concrete()
        };
        let refused = |what: &str| Err(Untraceable(format!("it asks for {what}")));
        if asked(Intrinsic::CloneFlag) != 0 {
            return refused("a clone");
        }
        if asked(Intrinsic::DropFlag) != 0 {
            return Ok(Decision::Drop(()));
        }
        if asked(Intrinsic::ResubmitFlag) != 0 {
            return refused("a resubmission");
        }
        // The engine reads so many bits of it.
        if asked(Intrinsic::MulticastGroup) as u32 != 0 {
            return refused("copies for a multicast group");
        }
        let to = asked(Intrinsic::EgressSpec);
        if self.cx.program.drop_port == Some(to) {
            return Ok(Decision::Drop(()));
        }
        self.set(run, Intrinsic::InstanceType, |width| Value::constant(width, self.cx.program.instance_types.normal));
        self.set(run, Intrinsic::EgressRid, |width| Value::constant(width, 0));
        for which in [
            Intrinsic::EgressTimestamp,
            Intrinsic::EnqueueTimestamp,
            Intrinsic::EnqueueDepth,
            Intrinsic::DequeueDelta,
            Intrinsic::DequeueDepth,
        ] {
            self.set(run, which, |width| volatile(width, which));
        }
        Ok(Decision::Send { egress_port: to as u32, max_len: u32::MAX, is_modified: true, value: () })
    }

    fn pass<T>(
        &self,
        run: &mut Run<'_>,
        port: u32,
        decide: &mut dyn FnMut(&mut Run<'_>) -> Result<Decision<T>, Untraceable>,
    ) -> Result<(Fate, Rewrite, Option<T>), Untraceable> {
        self.begin(run, port);
        let decision = match self.entry(run, EntryKind::Ingress)? {
            Ended::Drop(reason) => return Ok((Fate::Drop(Some(reason)), Rewrite::default(), None)),
            Ended::Send(port) => return Ok((Fate::Send(port), run.rewrite(u32::MAX), None)),
            Ended::Multicast => return Err(Untraceable("it is sent to a multicast group".to_string())),
            Ended::Again => return Err(Untraceable("it goes back to ingress".to_string())),
            Ended::Replicate(ReplicationPoint::IngressEnd) => decide(run)?,
            Ended::Replicate(point) => return Err(Untraceable(format!("it is handed over at {point:?}"))),
        };
        run.check()?;
        match decision {
            Decision::Drop(value) => Ok((Fate::Drop(None), Rewrite::default(), Some(value))),
            Decision::Send { egress_port, max_len, is_modified: false, value } => {
                Ok((Fate::Send(egress_port), run.unchanged(max_len), Some(value)))
            }
            Decision::Send { egress_port, max_len, is_modified: true, value } => {
                self.set(run, Intrinsic::EgressPort, |width| Value::constant(width, egress_port.into()));
                match self.entry(run, EntryKind::Egress)? {
                    Ended::Drop(reason) => Ok((Fate::Drop(Some(reason)), Rewrite::default(), Some(value))),
                    Ended::Send(port) => Ok((Fate::Send(port), run.rewrite(max_len), Some(value))),
                    Ended::Multicast => Err(Untraceable("it is sent to a multicast group".to_string())),
                    Ended::Again => Err(Untraceable("it goes back to ingress".to_string())),
                    Ended::Replicate(point) => Err(Untraceable(format!("it is handed over at {point:?}"))),
                }
            }
        }
    }

    fn entry(&self, run: &mut Run<'_>, kind: EntryKind) -> Result<Ended, Untraceable> {
        let Some(entry) = self.cx.program.entry(kind) else {
            return Err(Untraceable(format!("the program has no entry `{}`", kind.name())));
        };
        run.enter();
        for stage in &entry.stages {
            if let Some(ended) = run.stage(*stage)? {
                return Ok(ended);
            }
        }
        Err(Untraceable(format!("the entry `{}` has no end", kind.name())))
    }

    fn set(&self, run: &mut Run<'_>, which: Intrinsic, value: impl FnOnce(u32) -> Value) {
        if let Some(slot) = self.cx.program.intrinsic(which) {
            run.slots[slot.index()] = value(self.cx.program.width(slot));
        }
    }

    /// What a packet has when it comes.
    fn begin(&self, run: &mut Run<'_>, port: u32) {
        let length = run.frame.len() as u64;
        let origin = if run.known.length { Origin::Const } else { Origin::Length { lo: 0 } };
        let part = Part { origin, width: 32, value: length };
        self.set(run, Intrinsic::PacketLength, |width| Value::from_part(part).resize(width));
        self.set(run, Intrinsic::IngressPort, |width| Value::constant(width, port.into()));
        self.set(run, Intrinsic::InstanceType, |width| Value::constant(width, self.cx.program.instance_types.normal));
        self.set(run, Intrinsic::IngressTimestamp, |width| volatile(width, Intrinsic::IngressTimestamp));
    }

    /// The slot of an intrinsic, for flow processors.
    pub fn intrinsic(&self, which: Intrinsic) -> Option<SlotId> {
        self.cx.program.intrinsic(which)
    }
}

/// A value that differs from packet to packet.
fn volatile(width: u32, which: Intrinsic) -> Value {
    let mut all = Value::empty();
    let mut left = width;
    while left > 0 {
        let width = left.min(64);
        all.push(Part { origin: Origin::Volatile(which.name()), width, value: 0 });
        left -= width;
    }
    all
}

/// The frames for which a pass holds.
fn pattern(run: &Run<'_>) -> Pattern {
    let mask = &run.consulted.mask;
    let end = mask.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let value = (0..end).map(|i| run.frame.get(i).copied().unwrap_or(0) & mask[i]).collect();
    Pattern { mask: mask[..end].into(), value, shortest: run.shortest, longest: run.longest }
}

fn covers(pattern: &Pattern, frame: &[u8]) -> bool {
    let is_byte = |i: usize| frame.get(i).copied().unwrap_or(0) & pattern.mask[i] == pattern.value[i];
    (0..pattern.mask.len()).all(is_byte) && (pattern.shortest..=pattern.longest).contains(&(frame.len() as u32))
}

//! Traces: symbolic execution of a program along the path of one frame. Finds the bits of the frame on which the
//! path depends, and what the frame becomes, as a function of it.
//!
//! ```text
//! pass 1   slots hold parts: constants, bits of the frame, computed nodes ─▶ consulted bits
//! pass 2   consulted bits are constants, expressions are folded           ─▶ Pattern, Rewrite
//! ```
//!
//! Passes are repeated until no more bits are consulted, at most `PASSES_MAX` times.
//!
//! Values that determine the path are *consulted*: conditions of branches, table keys, lengths, offsets. Their
//! source bits become part of the pattern's mask; only the relevant ones, where possible (a 0 decides a
//! conjunction, the first different bit an order). A value that no step can compute is consulted as well, and then
//! is a constant. So a path is sound by construction: for all frames of the pattern, the program executes the same
//! operations on the same values, except for the bits that the rewrite computes.
//!
//! Frames are refused with a reason if their processing depends on more than the frame and the tables (registers,
//! random numbers, meters, timestamps), or has effects other than a frame and counters (digests, log lines, new
//! entries). The port is not part of a pattern: a path holds for one port only.
//!
//! | file | holds |
//! | --- | --- |
//! | `trace/value.rs`, `nodes.rs` | symbolic values and the graph of computed ones |
//! | `trace/arith.rs`, `linear.rs` | arithmetic on them; checksums |
//! | `trace/context.rs`, `outcome.rs` | the state shared by passes; results of a trace |
//! | `trace/shape.rs` | what the parser makes of frames, as bits of them |
//! | `trace/run.rs` | a pass, its consulted bits, the record for a flow processor |
//! | `trace/exec.rs`, `frame.rs`, `packet.rs` | operations, parser, deparser |
//! | `trace/emit.rs`, `steps.rs` | generation of the rewrite |
//! | `trace/tables.rs` | the interface to tables, and counters |
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
pub mod shape;
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

/// Maximum number of passes of a trace. Most traces need two.
const PASSES_MAX: u32 = 8;

/// The name of the program's counter for packets whose egress port means drop.
const INGRESS_DROP: &str = "ingress drop";

/// Traces frames through one program. May be shared between threads.
#[derive(Debug)]
pub struct Tracer {
    cx: Context,
}

impl Tracer {
    /// A tracer for a program that has passed the verifier.
    pub fn new(program: Arc<Program>) -> Tracer {
        Tracer { cx: Context::new(program) }
    }

    /// The record's layout.
    pub fn layout(&self) -> &RecordLayout {
        &self.cx.layout
    }

    /// Traces a frame received on `port`. When the `Ingress` entry hands the packet over, `decide` determines where
    /// it goes. It is called once in each pass, must consult what it reads, and must always decide the same for the
    /// same record. Tables of the program are not looked up.
    ///
    /// # Errors
    /// If the frame's processing cannot be cached; the message says why.
    pub fn trace<T>(
        &self,
        frame: &[u8],
        port: u32,
        decide: &mut dyn FnMut(&mut Run<'_>) -> Result<Decision<T>, Untraceable>,
    ) -> Result<Traced<T>, Untraceable> {
        self.trace_with(frame, port, None, decide)
    }

    /// Like [`trace`](Tracer::trace), with lookups in the program's own `tables`.
    ///
    /// # Errors
    /// If the frame's processing cannot be cached; the message says why.
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

    /// Traces a frame through a program whose own tables decide. When ingress ends, the packet goes to the port
    /// that the intrinsics say. Packets that ask for copies or for another pass are refused.
    ///
    /// # Errors
    /// If the frame's processing cannot be cached; the message says why.
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

    /// The decision at the end of ingress for a packet that asks for no more than a port, as in the datapath's
    /// engine.
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
        // The engine reads the low 32 bits.
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

    /// Initialises the intrinsics of a received packet.
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

/// A value that differs from packet to packet and must not be read.
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

/// The pattern of the frames for which a pass holds.
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

//! The interpreter as a backend: plain state, one packet at a time, optionally with a trace of every step.
//!
//! This adapter only moves packets and slots between `abi` descriptors and `interp`; it makes no decisions.
#![allow(unsafe_code)]

use crate::executor::Executor;
use crate::pipeline::Backend;
use abi::packet::{Batch, FateCode, PacketDesc};
use abi::state::{DigestMessage, PipelineState};
use base::ids::{SlotId, TableId};
use interp::{Fate, Host, Interp, SeededHost, Trace};
use ir::{AtReingress, EntryKind, Intrinsic, Program, ReplicationPoint};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most digest messages, log lines and traces that wait to be collected; more are dropped.
const OUTPUT_MAX: usize = 65_536;

/// Output of runs that waits to be collected.
#[derive(Default)]
struct Output {
    digests: VecDeque<DigestMessage>,
    logs: VecDeque<String>,
    traces: Vec<(EntryKind, Trace)>,
}

/// The interpreter with its state.
pub struct Oracle {
    interp: Interp,
    state: Arc<dyn PipelineState>,
    output: Arc<Mutex<Output>>,
    tracing: bool,
    draws: Option<Draws>,
}

/// Collects an [`Oracle`]'s output, also after a pipeline owns it.
#[derive(Clone)]
pub struct OracleOutput(Arc<Mutex<Output>>);

impl OracleOutput {
    /// Traces of all runs since the last call, in order: one for each entry point that a packet or a copy went
    /// through.
    pub fn take_traces(&self) -> Vec<(EntryKind, Trace)> {
        std::mem::take(&mut lock(&self.0).traces)
    }

    /// Log lines and failed assertions since the last call.
    pub fn take_logs(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0).logs).into()
    }
}

/// Random numbers that are given instead of drawn, and the ranges that were requested.
#[derive(Clone, Default)]
pub struct Draws(Arc<Mutex<DrawsState>>);

#[derive(Default)]
struct DrawsState {
    given: VecDeque<u64>,
    asked: Vec<(u64, u64)>,
}

impl Draws {
    /// Returns `values` first, and then always the lowest number of the requested range.
    pub fn given(values: impl IntoIterator<Item = u64>) -> Draws {
        let state = DrawsState { given: values.into_iter().collect(), asked: Vec::new() };
        Draws(Arc::new(Mutex::new(state)))
    }

    /// The requested range (lowest, highest) of each draw so far.
    pub fn asked(&self) -> Vec<(u64, u64)> {
        lock(&self.0).asked.clone()
    }

    fn next(&self, low: u64, high: u64) -> u64 {
        let mut state = lock(&self.0);
        state.asked.push((low, high));
        state.given.pop_front().unwrap_or(low).clamp(low, high)
    }
}

/// The clock and the random numbers, drawn or given.
struct RunHost {
    seeded: SeededHost,
    draws: Option<Draws>,
}

impl Host for RunHost {
    fn now_us(&mut self) -> u64 {
        self.seeded.now_us()
    }

    fn random(&mut self, low: u64, high: u64) -> u64 {
        match &self.draws {
            Some(draws) => draws.next(low, high),
            None => self.seeded.random(low, high),
        }
    }
}

fn lock<T>(output: &Mutex<T>) -> MutexGuard<'_, T> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Oracle {
    /// An interpreter of a verified program; with `tracing`, every run is recorded.
    pub fn new(program: Arc<Program>, tracing: bool) -> Oracle {
        Oracle::on(Interp::new(program), tracing)
    }

    /// As [`Oracle::new`], on existing state.
    pub fn with_state(program: Arc<Program>, state: Arc<interp::State>, tracing: bool) -> Oracle {
        Oracle::on(Interp::with_state(program, state), tracing)
    }

    fn on(interp: Interp, tracing: bool) -> Oracle {
        let state: Arc<dyn PipelineState> = Arc::clone(interp.state()) as _;
        Oracle { interp, state, output: Arc::default(), tracing, draws: None }
    }

    /// The same oracle with given random numbers.
    pub fn with_draws(self, draws: Draws) -> Oracle {
        Oracle { draws: Some(draws), ..self }
    }

    /// The handle that collects traces and logs.
    pub fn output(&self) -> OracleOutput {
        OracleOutput(Arc::clone(&self.output))
    }
}

impl Backend for Oracle {
    fn executor(&self, worker: usize) -> Box<dyn Executor> {
        Box::new(Run {
            interp: self.interp.clone(),
            host: RunHost { seeded: SeededHost::new(worker as u64), draws: self.draws.clone() },
            output: Arc::clone(&self.output),
            tracing: self.tracing,
            scratch: vec![0; self.interp.layout().words()],
        })
    }

    fn state(&self) -> &Arc<dyn PipelineState> {
        &self.state
    }

    fn take_digests(&self) -> Vec<DigestMessage> {
        std::mem::take(&mut lock(&self.output).digests).into()
    }

    fn table_counters(&self, _table: TableId) -> Option<(u64, u64)> {
        None
    }

    fn take_logs(&self) -> Vec<String> {
        self.output().take_logs()
    }

    fn housekeeping(&self, now_us: u64) {
        self.interp.state().set_time(now_us);
        self.state.expire(now_us);
    }
}

struct Run {
    interp: Interp,
    host: RunHost,
    output: Arc<Mutex<Output>>,
    tracing: bool,
    scratch: Vec<u64>,
}

impl Executor for Run {
    fn run(&mut self, entry: EntryKind, batch: &mut Batch) {
        self.host.seeded.now_us = batch.now_us;
        for i in 0..batch.count as usize {
            let spent = self.one(entry, &mut batch.packets[i]) as u32;
            batch.spent = batch.spent.wrapping_add(spent);
        }
    }

    fn quiescent(&mut self) {}

    fn idle(&mut self) {}
}

impl Run {
    /// Runs one packet; what it has spent.
    fn one(&mut self, entry: EntryKind, desc: &mut PacketDesc) -> u64 {
        let words = self.interp.layout().words();
        // SAFETY: the engine gives every packet a record of the layout's length (contract of `PacketDesc::record`).
        let record = unsafe { std::slice::from_raw_parts_mut(desc.record, words) };
        self.scratch.copy_from_slice(record);
        if entry == EntryKind::Ingress {
            self.scratch.fill(0);
            let program = Arc::clone(self.interp.program());
            let intrinsics = [
                (Intrinsic::IngressPort, u64::from(desc.ingress_port)),
                (Intrinsic::PacketLength, u64::from(desc.len)),
                (Intrinsic::IngressTimestamp, desc.timestamp_us),
                (Intrinsic::InstanceType, program.instance_types.normal),
            ];
            for (which, value) in intrinsics {
                if let Some(slot) = program.intrinsic(which) {
                    self.interp.layout().set_word(&mut self.scratch, slot, value);
                }
            }
        }
        // SAFETY: `len` bytes from `data` are the frame (contract of `PacketDesc`), which nothing else uses now.
        let frame = unsafe { std::slice::from_raw_parts(desc.data, desc.len as usize) };
        let mut trace = self.tracing.then(Trace::default);
        let outcome = self.interp.run(entry, frame, desc.consumed, &mut self.scratch, &mut self.host, trace.as_mut());
        match outcome.fate {
            Fate::Replicate(_) => record.copy_from_slice(&self.scratch),
            Fate::Again { why, list } => {
                let length = outcome.packet.len() as u64;
                record.fill(0);
                self.begin_again(self.interp.program().at_reingress(why, list), record, desc, length);
            }
            // Packets may share a record.
            _ => {}
        }
        desc.consumed = outcome.consumed;
        (desc.fate, desc.fate_arg) = match outcome.fate {
            Fate::Drop(reason) => (FateCode::Drop as u32, reason),
            Fate::Send(port) => {
                desc.egress_port = port as u32;
                (FateCode::Send as u32, 0)
            }
            Fate::Multicast(group) => {
                desc.egress_port = group as u32;
                (FateCode::Multicast as u32, 0)
            }
            Fate::Replicate(point) => (FateCode::Replicate as u32, point_code(point)),
            Fate::Again { .. } => (FateCode::Again as u32, 0),
            Fate::Endless => (FateCode::Endless as u32, 0),
            Fate::NoRoom => (FateCode::NoRoom as u32, 0),
        };
        let capacity = (desc.headroom + desc.len + desc.tailroom) as usize;
        if outcome.longest > capacity || !replace(desc, &outcome.packet) {
            desc.fate = FateCode::NoRoom as u32;
        }
        let mut output = lock(&self.output);
        let room = |len: usize| OUTPUT_MAX.saturating_sub(len);
        let (digests, logs) = (room(output.digests.len()), room(output.logs.len()));
        output.digests.extend(outcome.digests.into_iter().take(digests));
        let failed = outcome.failed_assertions.into_iter().map(|text| format!("assertion failed: {text}"));
        output.logs.extend(outcome.logs.into_iter().chain(failed).take(logs));
        if let Some(trace) = trace
            && output.traces.len() < OUTPUT_MAX
        {
            output.traces.push((entry, trace));
        }
        outcome.spent
    }
}

impl Run {
    /// Writes the record of a packet that goes back to ingress (resubmit, recirculate).
    fn begin_again(&self, slots: BTreeMap<SlotId, AtReingress>, record: &mut [u64], desc: &PacketDesc, length: u64) {
        let layout = self.interp.layout();
        for (slot, value) in slots {
            let number = match value {
                AtReingress::Kept => {
                    layout.set(record, slot, &layout.get(&self.scratch, slot));
                    continue;
                }
                AtReingress::IngressPort => desc.ingress_port.into(),
                AtReingress::Timestamp => desc.timestamp_us,
                AtReingress::Length => length,
                AtReingress::Number(number) => number,
            };
            layout.set_word(record, slot, number);
        }
    }
}

/// The number of a replication point in `PacketDesc::fate_arg`.
fn point_code(point: ReplicationPoint) -> u32 {
    match point {
        ReplicationPoint::IngressEnd => 0,
        ReplicationPoint::EgressEnd => 1,
        ReplicationPoint::DeparseEnd => 2,
        ReplicationPoint::FrameEnd => 3,
    }
}

/// Puts a frame into the descriptor's buffer, aligned to the old frame's end if there is room; `false` if it is
/// larger than the buffer.
fn replace(desc: &mut PacketDesc, frame: &[u8]) -> bool {
    let capacity = desc.headroom + desc.len + desc.tailroom;
    let len = frame.len() as u32;
    if len > capacity {
        return false;
    }
    let headroom = (desc.headroom + desc.len).saturating_sub(len).min(capacity - len);
    // SAFETY: the buffer has `capacity` bytes from `data - headroom` (contract of `PacketDesc`), and the new frame lies
    // within. `frame` is the interpreter's own copy.
    unsafe {
        let base = desc.data.sub(desc.headroom as usize);
        let data = base.add(headroom as usize);
        std::ptr::copy_nonoverlapping(frame.as_ptr(), data, frame.len());
        desc.data = data;
    }
    desc.headroom = headroom;
    desc.len = len;
    desc.tailroom = capacity - len - headroom;
    true
}

//! `sluice trace` of a bridge: shows what it would do with a packet, and which megaflow the packet hits.
//!
//! The interpreter runs the bridge's program on the frame, with a flow processor that takes each packet through the
//! running tables and records the path. It changes nothing: nothing is counted, metered, learned or sent to
//! controllers. BPF programs run on copies of their maps.
//!
//! Threads: that of the request. Tests: `tests/py/test_openflow_operator.py`.

use super::admin::Admin;
use super::programs::Programs;
use abi::flows::{Arrival, FlowProcessor, FlowTables, Frame, Outputs};
use bridge::effects::{Effect, Runner};
use bridge::pending::Begin;
use bridge::processor::{Megaflow, Wanted};
use bridge::trace;
use bridge::translate::{Shared, Subject};
use datapath::{CodeOptions, EngineKind, Local, Pipeline};
use messages::sluice::v1 as pb;
use pb::trace_response::{Run, Sent, Step};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One pass of the packet through the flow tables.
struct Pass {
    lines: Vec<String>,
    /// The packet's record, length in bytes and start of the pass, by which workers look up its megaflow.
    of: (Vec<u64>, u32, u64),
    /// The fields, with masks, that the packet's megaflow would match.
    key: String,
    /// Why the packet gets no megaflow, if so.
    alone: Option<&'static str>,
    effects: String,
}

/// The passes that the tracing processor has recorded.
type Seen = Arc<Mutex<Vec<Pass>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The factory of the tracing processor.
struct Tracing {
    shared: Shared,
    programs: Arc<Programs>,
    seen: Seen,
}

struct Processor {
    shared: Shared,
    programs: Arc<Programs>,
    runner: Runner,
    seen: Seen,
    now_us: u64,
}

impl FlowTables for Tracing {
    fn processor(&self, _: usize) -> Box<dyn FlowProcessor> {
        Box::new(Processor {
            runner: Runner::new(self.shared.control.layout(), &self.shared.vm),
            shared: self.shared.clone(),
            programs: Arc::clone(&self.programs),
            seen: Arc::clone(&self.seen),
            now_us: 0,
        })
    }
}

impl Processor {
    fn say(&self, line: String) {
        if let Some(pass) = lock(&self.seen).last_mut() {
            pass.lines.push(line);
        }
    }
}

impl FlowProcessor for Processor {
    fn process(&mut self, batch: &mut [Arrival<'_>], now_us: u64, outputs: &mut dyn Outputs) {
        self.now_us = now_us;
        for (packet, arrival) in batch.iter_mut().enumerate() {
            let of = (arrival.record.to_vec(), arrival.bytes, arrival.start);
            let work = outputs.work_left(packet);
            let subject = Subject { record: &of.0, bytes: of.1, start: of.2, now_us, work };
            let (mut translation, lines) = trace::path(&self.shared, subject);
            let mut key = trace::key(self.shared.control.layout(), &translation.consulted, &of.0);
            if translation.length != 0 {
                key += &format!(",frame length={:#x}/{:#x}", of.1 & translation.length, translation.length);
            }
            let alone = (!translation.is_repeatable).then_some("what becomes of it holds for no other packet");
            let effects = trace::effects(&self.shared, &translation);
            lock(&self.seen).push(Pass { lines, of, key, alone, effects });
            // Do not run meters: they would count the packet, and their verdict depends on time.
            for effect in translation.effects.list.iter_mut().filter(|effect| matches!(effect, Effect::Meter { .. })) {
                *effect = Effect::Nothing;
            }
            if self.runner.run(&translation.effects, packet, arrival, now_us, outputs).is_err() {
                outputs.end(packet, true);
            }
        }
    }

    fn capture(&mut self, token: u64, frame: &[u8]) {
        let Some(captured) = self.runner.captures.take(token) else { return };
        let what = &captured.what;
        let bytes = frame.len().min(usize::from(what.max_len));
        self.say(format!("to controllers of id {}: {bytes} of {} bytes", what.controller, frame.len()));
    }

    fn rewrite(&mut self, start: u64, frame: &mut Frame<'_>, _: &mut u32) -> Option<()> {
        let Some(Begin::Frozen(frozen)) = self.shared.control.pending().take(start) else { return None };
        let (id, argument) = frozen.program?;
        match self.programs.run_apart(id, argument, frozen.in_port, self.now_us, frame) {
            Ok(verdict) => {
                self.say(format!("program {id}: {verdict:?}"));
                matches!(verdict, bpf::Verdict::Pass | bpf::Verdict::Transmit).then_some(())
            }
            Err(why) => {
                self.say(format!("program {id}: {why}; dropped"));
                None
            }
        }
    }

    fn idle(&mut self, _: u64) {}
}

impl Admin {
    /// Traces a frame as if received on a port.
    ///
    /// # Errors
    /// If the program cannot have that port, or the frame is longer than a buffer.
    pub fn trace(&self, port: u32, frame: &[u8]) -> Result<pb::TraceResponse, String> {
        let running = self.switch.pipeline_of(self.device).ok_or("no program runs")?;
        let program = Arc::clone(running.program());
        if let Some(problem) = crate::target::port_problem(&program, port) {
            return Err(problem);
        }
        let seen = Seen::default();
        let tables = Tracing {
            shared: self.flows.shared().clone(),
            programs: Arc::clone(&self.programs),
            seen: Arc::clone(&seen),
        };
        let options = CodeOptions::default();
        let pipeline = datapath::load_bridge(program, EngineKind::Interpreter, 1, &options, Arc::new(tables));
        let pipeline: Arc<Pipeline> = Arc::new(pipeline.map_err(|error| error.to_string())?);
        let mut local = Local::new(pipeline);
        local.advance_us(self.switch.now_us());
        let sent = local.receive(port, frame).ok_or("the frame is longer than a buffer")?;
        let dropped = match sent.is_empty() {
            true => local.pipeline().drops(0).read(local.pipeline().program()),
            false => Vec::new(),
        };
        let passes = std::mem::take(&mut *lock(&seen));
        Ok(pb::TraceResponse {
            port,
            frame: frame.to_vec(),
            runs: passes.into_iter().map(|pass| self.run(pass)).collect(),
            sent: sent.into_iter().map(|sent| Sent { port: sent.port, frame: sent.bytes }).collect(),
            dropped: dropped.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect(),
            ..Default::default()
        })
    }

    fn run(&self, pass: Pass) -> Run {
        let Pass { mut lines, of, key, alone, effects } = pass;
        let entry =
            if of.2 == 0 { "flow tables".to_string() } else { format!("flow tables, parsed anew, at {}", of.2) };
        let (met, _) = self.megaflows(Wanted { of: Some(of), max: 1, port: None });
        lines.push(format!("actions: {effects}"));
        for megaflow in &met {
            let Megaflow { worker, packets, .. } = megaflow;
            let text = trace::megaflow(self.bridge.layout(), megaflow);
            lines.push(format!("megaflow of worker {worker}, {packets} packets so far: {text}"));
        }
        if met.is_empty() {
            lines.push(match alone {
                Some(why) => format!("no megaflow: {why}"),
                None => format!("no worker has a megaflow for it; it would be: {key}"),
            });
        }
        let step = |text: String| Step { text, ..Step::default() };
        Run { entry, steps: lines.into_iter().map(step).collect(), egress_port: None, instance: None }
    }
}

//! Rows of programs without a C version: NAT, load balancing, connection tracking, gateways, telemetry, queue
//! management.
//!
//! Each program is measured on the packets that are most of its traffic: those of established flows. Flows are opened
//! as on a network, by frames that answer what the switch has sent ([`Example::opening`]). All programs run in a
//! worker's engine ([`crate::engine`]), since some copy packets or use queues; the reference is a program that sends
//! the same frames to a port.
//!
//! The interpreter scans entries linearly. Therefore it opens the first [`COMPARED`] flows only, together with the code
//! that is timed, and every frame of these flows is compared, before and after the code is recompiled. The code alone
//! opens the other flows. No frame may be dropped. Damaged frames are compared before that, with a few flows.

use crate::copies::to_a_port;
use crate::engine::{self, Subject};
use crate::frames::{Frames, Writer};
use crate::measure::Ratio;
use crate::rows::{Bar, Row, Settings};
use crate::source;
use crate::workload::examples::{self as workload, Example};
use crate::workload::{Flows, sequence};
use abi::packet::BATCH_MAX;
use anyhow::{Context, Result, ensure};
use datapath::EngineKind;
use random::Random;

/// Flows whose frames are compared with the interpreter.
const COMPARED: usize = 512;
/// Flows whose frames are damaged, in a separate run; these frames may be dropped.
const DAMAGED: usize = 64;
/// Most copies of a packet.
const COPIES: usize = 4;

/// A row.
pub struct Examples {
    /// Its name on the command line.
    pub name: &'static str,
    /// The program, its entries and frames.
    pub example: &'static Example,
    /// Number of flows.
    pub flows: usize,
}

const fn row(name: &'static str, example: &'static Example, flows: usize) -> Examples {
    Examples { name, example, flows }
}

/// All rows.
pub const ALL: &[Examples] = &[
    row("l2learn", &workload::L2LEARN, 64),
    row("l2learn-30k", &workload::L2LEARN, 30_000),
    row("conntrack", &workload::CONNTRACK, 64),
    row("conntrack-100k", &workload::CONNTRACK, 100_000),
    row("nat44", &workload::NAT44, 64),
    row("nat44-100k", &workload::NAT44, 100_000),
    row("nat64", &workload::NAT64, 64),
    row("nat64-100k", &workload::NAT64, 100_000),
    row("slb", &workload::SLB, 64),
    row("slb-100k", &workload::SLB, 100_000),
    row("syn_proxy", &workload::SYN_PROXY, 64),
    row("syn_proxy-100k", &workload::SYN_PROXY, 100_000),
    row("upf", &workload::UPF, 64),
    row("upf-50k", &workload::UPF, 50_000),
    row("bng", &workload::BNG, 64),
    row("bng-30k", &workload::BNG, 30_000),
    row("int_telemetry", &workload::INT_TELEMETRY, 64),
    row("int_telemetry-100k", &workload::INT_TELEMETRY, 100_000),
    row("codel", &workload::CODEL, 64),
    row("pi2", &workload::PI2, 64),
    row("rate_limiter", &workload::RATE_LIMITER, 64),
    row("rate_limiter-50k", &workload::RATE_LIMITER, 50_000),
];

impl Examples {
    /// Its title in tables.
    pub fn title(&self) -> String {
        let flows = match self.flows {
            n if n % 1000 == 0 => format!("{}k", n / 1000),
            n => n.to_string(),
        };
        format!("{}, {flows} {}", self.example.program, self.example.flows)
    }
}

/// Open flows, with the packets that the switch has sent for their opening frames.
struct Known {
    example: &'static Example,
    answers: Vec<Vec<Vec<u8>>>,
}

impl Known {
    /// Opens the next flow at all subjects; the packets that the first subject sends are kept as answers.
    fn open(&mut self, subjects: &mut [Subject]) -> Result<()> {
        let flow = self.answers.len() as u32;
        let mut answers = Vec::new();
        let mut w = Writer::default();
        for (step, make) in self.example.opening.iter().enumerate() {
            w.clear();
            let port = make(flow, &answers, &mut w);
            let mut first = None;
            for subject in subjects.iter_mut() {
                let sent = subject.answer(port, &w.0);
                let sent = sent.with_context(|| format!("{}: step {step} of flow {flow} is dropped", subject.name))?;
                let first = first.get_or_insert_with(|| sent.clone());
                ensure!(*first == sent, "{}: step {step} of flow {flow} has another answer", subject.name);
            }
            answers.extend(first);
        }
        self.answers.push(answers);
        Ok(())
    }

    /// The frames of these flows, in blocks of at most a batch, one block for each kind of frame.
    fn frames(&self, flows: &[u32]) -> Frames {
        let mut w = Writer::default();
        let mut frames = Frames::with_capacity(flows.len() * self.example.frames.len(), 80);
        for block in flows.chunks(BATCH_MAX) {
            for make in self.example.frames {
                for &flow in block {
                    w.clear();
                    let port = make(flow, &self.answers[flow as usize], &mut w);
                    frames.push(port, &w.0);
                }
            }
        }
        frames
    }

    /// Frames with a wrong byte, truncated, or from another port.
    fn damaged(&self, flows: &[u32]) -> Frames {
        let (all, mut rng) = (self.frames(flows), Random::stream(1, 5));
        let mut frames = Frames::default();
        for i in 0..1000 {
            let (port, frame) = all.get(rng.index(all.len()));
            let (mut port, mut frame) = (port as u16, frame.to_vec());
            let at = rng.index(frame.len());
            match i % 4 {
                0 => frame.truncate(at),
                1 => port = rng.below(8) as u16,
                _ => frame[at] = rng.next_u64() as u8,
            }
            frames.push(port, &frame);
        }
        frames
    }
}

/// Measures a row.
///
/// # Errors
/// If the program cannot be loaded, differs from the interpreter, drops a frame, or the lock cannot be taken.
pub fn run(row: &Examples, settings: &Settings) -> Result<Row> {
    let Examples { name, example, .. } = row;
    let (flows, few) = if settings.quick { (row.flows.min(200), 64) } else { (row.flows, COMPARED) };
    let few = few.min(flows);
    let damaged = both(example, DAMAGED, DAMAGED, settings).and_then(|(mut subjects, known)| {
        let frames = known.damaged(&numbers(DAMAGED));
        engine::compared("damaged frames", &mut subjects, &frames, settings.batch)?;
        subjects[0].settle(settings);
        engine::compared("damaged frames", &mut subjects, &frames, settings.batch)
    });
    damaged.with_context(|| name.to_string())?;

    let (mut subjects, mut known) = both(example, flows, few, settings).with_context(|| name.to_string())?;
    let compared = known.frames(&numbers(few));
    engine::compared(name, &mut subjects, &compared, settings.batch)?;
    for _ in few..flows {
        known.open(&mut subjects[..1]).with_context(|| name.to_string())?;
    }
    subjects[0].settle(settings);
    let [sent, dropped] = engine::compared(name, &mut subjects, &compared, settings.batch)?;
    ensure!(dropped == 0, "{name}: {dropped} of {} frames were dropped", compared.len());

    let [mut sluice, _] = subjects;
    let frames = known.frames(&numbers(flows));
    let dropped = sluice.drops(&frames, settings.batch);
    ensure!(dropped == 0, "{name}: {dropped} of {} frames were dropped", frames.len());
    let plain = Subject::new("to a port", &to_a_port(), EngineKind::Machine, COPIES, &|_| Ok(()), settings)?;
    plain.settle(settings);
    let series = engine::timed(&mut [sluice, plain], &frames, settings)?;
    let bar = Bar::without("beside a packet that is sent to a port", Ratio::new(&series[0], &series[1]));
    Ok(Row { name: row.title(), series: series.to_vec(), bars: vec![bar], fates: [sent, 0, 0] })
}

/// Numbers of flows in random order.
fn numbers(count: usize) -> Vec<u32> {
    sequence(Flows::Uniform(count), &mut Random::stream(1, 4))
}

/// The program with what `flows` flows need, and the interpreter with what the first `few` need; both have opened these
/// few.
fn both(example: &'static Example, flows: usize, few: usize, settings: &Settings) -> Result<([Subject; 2], Known)> {
    let source = source::example(example.program);
    let subject = |name, kind, flows| {
        Subject::new(name, &source, kind, COPIES, &|p| (example.prepare)(p, flows as u32), settings)
    };
    let machine = subject("Sluice", EngineKind::Machine, flows)?;
    let mut subjects = [machine, subject("interpreter", EngineKind::Interpreter, few)?];
    let mut known = Known { example, answers: Vec::new() };
    for _ in 0..few {
        known.open(&mut subjects)?;
    }
    Ok((subjects, known))
}

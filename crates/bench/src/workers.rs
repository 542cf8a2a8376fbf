//! Two workers beside one, from memory: threads that play the same frames through executors of one pipeline. The one worker has
//! a pipeline of its own, whose code locks nothing.
//!
//! For programs that keep state the machine's own bound is measured in the same rounds: threads that add to as many cells as the
//! packets come to, by plain loads and stores, which lose counts. Whatever keeps them takes longer.

use crate::compare;
use crate::frames::{Frames, Writer};
use crate::measure::{Plan, Ratio, Series, Track};
use crate::rows::{Bar, Row, Settings, with_lock};
use crate::workload::Workload;
use crate::workload::examples::RATE_LIMITER;
use crate::{source, subject};
use anyhow::{Context, Result};
use datapath::timing::ticks;
use datapath::{EngineKind, Pipeline};
use random::Random;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Flows of which the interpreter compares all frames; as in [`crate::examples`].
const COMPARED: usize = 512;
/// Packets of a turn, untimed and timed: tens of milliseconds, a hundred times the time that threads need to start
/// together. Shorter turns of two workers overlapped only in part.
const WARM_MIN: usize = 250_000;
const COUNT_MIN: usize = 2_000_000;

/// The register cells that packets of a program come to.
#[derive(Clone, Copy)]
pub struct Cells {
    /// Registers, of each of which a packet comes to one cell.
    pub registers: usize,
    /// Cells of each.
    pub size: usize,
}

/// Which worker gets a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Any: both play all frames.
    Any,
    /// One for all packets of a flow, both directions, as symmetric receive-side scaling does.
    ByFlow,
}

impl Spread {
    /// The frames of each worker.
    pub(crate) fn of(self, frames: &Frames, workers: usize) -> Vec<Frames> {
        let mut parts = vec![Frames::default(); workers];
        for i in 0..frames.len() {
            let (port, frame) = frames.get(i);
            for (worker, part) in parts.iter_mut().enumerate() {
                if self == Spread::Any || flow(frame) as usize % workers == worker {
                    part.push(port as u16, frame);
                }
            }
        }
        parts
    }
}

/// A well mixed number of a frame's flow, the same for both directions, from addresses and ports of IPv4. Each end is
/// mixed before both are added: in the exclusive or of two addresses that count flows in the same bits, these bits cancel.
pub(crate) fn flow(frame: &[u8]) -> u64 {
    let word = |at: usize, len: usize| frame[at..at + len].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let end = |address, port| Random::new(word(address, 4) << 16 | word(port, 2)).next_u64();
    Random::new(end(26, 34).wrapping_add(end(30, 36))).next_u64()
}

/// Waits until all threads are here, without sleeping, so that they go on at the same moment.
pub(crate) struct Start {
    missing: AtomicUsize,
}

impl Start {
    pub(crate) fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        while self.missing.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
    }
}

/// Runs `work` on as many threads, each on a processor of its own; what it gives.
pub(crate) fn on_threads<R: Send>(count: usize, work: impl Fn(usize, &Start) -> R + Sync) -> Vec<R> {
    let start = Start { missing: AtomicUsize::new(count) };
    std::thread::scope(|scope| {
        let run = |i: usize| {
            let (work, start) = (&work, &start);
            move || {
                let mut processor = CpuSet::new();
                processor.set(i);
                // Without the right to it, or that processor, the scheduler decides.
                let _ = sched_setaffinity(None, &processor);
                work(i, start)
            }
        };
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(run(i))).collect();
        threads.into_iter().map(|t| t.join().expect("a worker's thread ends well")).collect()
    })
}

/// Cycles per packet of all together, of those of each.
pub(crate) fn shared(each: Vec<f64>) -> f64 {
    1.0 / each.into_iter().map(|cycles| 1.0 / cycles).sum::<f64>()
}

/// Cycles per packet of workers that play the frames of each at the same time.
pub(crate) fn together(pipeline: &Pipeline, frames: &[Frames], plan: Plan) -> Vec<f64> {
    on_threads(frames.len(), |worker, start| {
        let mut subject = subject::of_pipeline("", pipeline, worker);
        let mut track = Track::new(plan.batch);
        // Everybody at another place.
        let mut at = worker * frames[worker].len() / frames.len();
        start.wait();
        track.turn(&mut subject, &frames[worker], &mut at, plan.warm, plan.count)
    })
}

/// Cycles per packet of threads that only add to the packets' cells.
fn adds(memory: &[AtomicU32], cells: Cells, frames: &[Frames], plan: Plan) -> Vec<f64> {
    on_threads(frames.len(), |worker, start| {
        let frames = &frames[worker];
        let of_frame = |i: usize| {
            let mut rng = Random::stream(flow(frames.get(i).1), 7);
            (0..cells.registers).map(|r| r * cells.size + rng.index(cells.size)).collect::<Vec<usize>>()
        };
        let places: Vec<usize> = (0..frames.len()).flat_map(of_frame).collect();
        start.wait();
        let (mut spent, mut at) = (0, worker * frames.len() / 2 * cells.registers);
        for packets in [plan.warm, plan.count] {
            let begin = ticks();
            for _ in 0..packets * cells.registers {
                let cell = &memory[places[at]];
                cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                at = if at + 1 == places.len() { 0 } else { at + 1 };
            }
            spent = ticks() - begin;
        }
        spent as f64 / plan.count as f64
    })
}

/// Holds each worker against C, or the interpreter where there is no C version, packet by packet, lets the pipeline settle, and
/// does it again.
pub(crate) fn compared(title: &str, pipeline: &Pipeline, workload: &Workload, settings: &Settings) -> Result<[u64; 3]> {
    let mut c = Some(match crate::reference::named(workload.program) {
        Some(_) => subject::c(workload, false)?,
        None => subject::interpreter(workload, &settings.options)?,
    });
    let mut both = |frames: &Frames| -> Result<[u64; 3]> {
        let mut fates = [0; 3];
        for worker in 0..pipeline.workers() {
            let mut subjects = vec![subject::of_pipeline(&format!("worker {worker}"), pipeline, worker)];
            subjects.extend(c.take());
            fates = compare::all(&mut subjects, frames, settings.batch)
                .with_context(|| format!("{title}: worker {worker} and its reference differ"))?;
            c = subjects.pop();
        }
        Ok(fates)
    };
    both(&workload.odd)?;
    both(&workload.frames)?;
    pipeline.recompile(settings.options.specialise);
    both(&workload.odd)?;
    both(&workload.frames)
}

/// A program loaded for one worker, and for two.
pub struct Loaded {
    /// For one worker: its code locks nothing.
    pub alone: Arc<Pipeline>,
    /// For two.
    pub shared: Arc<Pipeline>,
    /// The frames of all flows.
    pub frames: Frames,
    /// Fates of the frames that were compared.
    pub fates: [u64; 3],
}

impl Loaded {
    /// A workload's program, compared with its reference.
    pub fn new(title: &str, workload: &Workload, settings: &Settings) -> Result<Loaded> {
        let alone = subject::load(workload, &settings.options, 1)?;
        compared(title, &alone, workload, settings)?;
        let shared = subject::load(workload, &settings.options, 2)?;
        let fates = compared(title, &shared, workload, settings)?;
        Ok(Loaded { alone, shared, frames: workload.frames.clone(), fates })
    }
}

/// `rate_limiter` with a customer for each flow, whose first [`COMPARED`] frames are compared with the interpreter.
pub fn rate_limiter(flows: usize, settings: &Settings) -> Result<Loaded> {
    let program = subject::compile(&source::example(RATE_LIMITER.program), &settings.options)?;
    let load = |engine, workers, flows: usize| -> Result<Pipeline> {
        let pipeline = datapath::load_with(Arc::clone(&program), engine, workers, &settings.options.code)?;
        (RATE_LIMITER.prepare)(&pipeline, flows as u32)?;
        Ok(pipeline)
    };
    let frames_of = |order: Vec<u32>| {
        let (mut frames, mut w) = (Frames::with_capacity(order.len(), 64), Writer::default());
        for flow in order {
            w.clear();
            let port = RATE_LIMITER.frames[0](flow, &[], &mut w);
            frames.push(port, &w.0);
        }
        frames
    };
    let interpreter = load(EngineKind::Interpreter, 1, flows.min(COMPARED))?;
    let few = frames_of((0..flows.min(COMPARED) as u32).collect());
    let compared = |workers| -> Result<(Arc<Pipeline>, [u64; 3])> {
        let pipeline = load(EngineKind::Machine, workers, flows)?;
        let mut fates = [0; 3];
        for _ in 0..2 {
            for worker in 0..workers {
                let name = format!("worker {worker}");
                let interpreter = subject::of_pipeline("interpreter", &interpreter, 0);
                let mut both = [subject::of_pipeline(&name, &pipeline, worker), interpreter];
                fates = compare::all(&mut both, &few, settings.batch)
                    .with_context(|| format!("rate_limiter: {name} and the interpreter differ"))?;
            }
            pipeline.recompile(settings.options.specialise);
        }
        Ok((Arc::new(pipeline), fates))
    };
    let mut order: Vec<u32> = (0..flows as u32).collect();
    Random::stream(1, 4).shuffle(&mut order);
    let ((alone, _), (shared, fates)) = (compared(1)?, compared(2)?);
    Ok(Loaded { alone, shared, frames: frames_of(order), fates })
}

/// Measures one workload; two workers are to be `bar` times as fast as one.
pub fn run(
    title: &str,
    workload: &Workload,
    (spread, cells): (Spread, Option<Cells>),
    bar: f64,
    settings: &Settings,
) -> Result<Row> {
    measured(title, &Loaded::new(title, workload, settings)?, (spread, cells), bar, settings)
}

/// As [`run`], of a loaded program.
pub fn measured(
    title: &str,
    loaded: &Loaded,
    (spread, cells): (Spread, Option<Cells>),
    bar: f64,
    settings: &Settings,
) -> Result<Row> {
    let Loaded { alone, shared: pipeline, frames, fates } = loaded;
    let mut plan = settings.plan(frames.len());
    if !settings.quick {
        // So long that both run at the same time for nearly all of it.
        plan = Plan { warm: plan.warm.max(WARM_MIN), count: plan.count.max(COUNT_MIN), ..plan };
    }
    let (all, parts) = (Spread::Any.of(frames, 1), spread.of(frames, 2));
    let memory: Vec<AtomicU32> =
        (0..cells.map_or(0, |cells| cells.registers * cells.size)).map(|_| AtomicU32::new(0)).collect();
    let mut rounds = [const { Vec::new() }; 5];
    with_lock(settings, || {
        for _ in 0..plan.rounds {
            rounds[0].push(shared(together(alone, &all, plan)));
            rounds[1].push(shared(together(pipeline, &all, plan)));
            rounds[2].push(shared(together(pipeline, &parts, plan)));
            if let Some(cells) = cells {
                rounds[3].push(shared(adds(&memory, cells, &all, plan)));
                rounds[4].push(shared(adds(&memory, cells, &parts, plan)));
            }
        }
    })?;
    let names = [
        "1 worker",
        "1 worker, code for two",
        "2 workers, together",
        "adds to as many cells, 1 thread",
        "adds to as many cells, 2 threads",
    ];
    let series = names.into_iter().zip(rounds).map(|(name, rounds)| Series { name: name.to_string(), rounds });
    let series: Vec<Series> = series.filter(|series| !series.rounds.is_empty()).collect();
    let ratio = Ratio::new(&series[0], &series[2]);
    let mut bars = vec![
        Bar { at_most: false, ..Bar::with("rate of 2 workers / 1 worker", ratio, bar) },
        Bar::without("cycles of code for two / for one, 1 worker", Ratio::new(&series[1], &series[0])),
    ];
    if let [_, _, _, one, two] = &series[..] {
        bars.push(Bar::without("the same of adds to as many cells", Ratio::new(one, two)));
    }
    Ok(Row { name: title.to_string(), series, bars, fates: *fates })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(of: impl Fn(u32) -> ((u32, u16), (u32, u16)), flows: u32) -> Frames {
        let (mut frames, mut w) = (Frames::default(), Writer::default());
        for flow in 0..flows {
            let ((source, from), (destination, to)) = of(flow);
            w.clear().ethernet(1, 2).ipv4(source, destination, 17, 64, 8);
            w.be::<2>(from.into()).be::<2>(to.into()).be::<4>(0);
            frames.push(0, &w.0);
        }
        frames
    }

    #[test]
    fn flows_are_spread_evenly_whatever_their_addresses_count() {
        type Ends = ((u32, u16), (u32, u16));
        let counted: [fn(u32) -> Ends; 6] = [
            // Both addresses count in the same bits, as `rate_limiter`'s.
            |flow| ((0x0a2d_0000 + flow, 1000), (0xcb00_7000 + flow % 251, 443)),
            |flow| ((0x0a00_0000 + flow, 1000), (0x0a00_0000 + flow, 1000)),
            |flow| ((0x0a00_0000 + (flow << 8), 1000), (0xcb00_7001, 443)),
            |flow| ((0x0a00_0001, 1024 + flow as u16), (0xcb00_7001, 443)),
            |flow| ((0x0a00_0001, 1024 + flow as u16), (0xcb00_7001, 1024 + flow as u16)),
            |flow| ((0x0a00_0000 + (flow << 1), (flow << 4) as u16), (0xcb00_7000 + (flow << 1), (flow << 4) as u16)),
        ];
        for (i, of) in counted.into_iter().enumerate() {
            for flows in [64, 1024] {
                for workers in [2, 8] {
                    let parts = Spread::ByFlow.of(&frames(of, flows), workers);
                    assert_eq!(parts.iter().map(Frames::len).sum::<usize>(), flows as usize);
                    // Four standard deviations of a binomial distribution.
                    let (mean, part) = (f64::from(flows) / workers as f64, 1.0 / workers as f64);
                    let most = 4.0 * (f64::from(flows) * part * (1.0 - part)).sqrt();
                    for part in &parts {
                        assert!((part.len() as f64 - mean).abs() <= most, "traffic {i}: {} of {flows}", part.len());
                    }
                }
            }
        }
    }

    #[test]
    fn both_directions_of_a_flow_go_to_one_worker() {
        for flow_number in 0..200 {
            let (a, b) = ((0x0a00_0000 + flow_number, 1000), (0xcb00_7001, 443 + flow_number as u16));
            let [there, back] = [frames(|_| (a, b), 1), frames(|_| (b, a), 1)];
            assert_eq!(flow(there.get(0).1), flow(back.get(0).1));
        }
    }
}

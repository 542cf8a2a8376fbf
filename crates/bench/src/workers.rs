//! Two workers beside one, from memory: threads that play the same frames through executors of one pipeline. The one worker has
//! a pipeline of its own, whose code locks nothing.
//!
//! For programs that keep state the machine's own bound is measured in the same rounds: threads that add to as many cells as the
//! packets come to, by plain loads and stores, which lose counts. Whatever keeps them takes longer.

use crate::compare;
use crate::frames::Frames;
use crate::measure::{Plan, Ratio, Series, Track};
use crate::rows::{Bar, Row, Settings, with_lock};
use crate::subject;
use crate::workload::Workload;
use anyhow::{Context, Result};
use datapath::Pipeline;
use datapath::timing::ticks;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

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

/// A number of a frame's flow, the same for both directions: addresses and ports of IPv4.
fn flow(frame: &[u8]) -> u64 {
    let word = |at: usize, len: usize| frame[at..at + len].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let mixed = (word(26, 4) ^ word(30, 4)) << 16 | (word(34, 2) ^ word(36, 2));
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
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
            let mut rng = random::Random::stream(flow(frames.get(i).1), 7);
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

/// Measures one workload; two workers are to be `bar` times as fast as one.
pub fn run(
    title: &str,
    workload: &Workload,
    (spread, cells): (Spread, Option<Cells>),
    bar: f64,
    settings: &Settings,
) -> Result<Row> {
    let alone = subject::load(workload, &settings.options, 1)?;
    compared(title, &alone, workload, settings)?;
    let pipeline = subject::load(workload, &settings.options, 2)?;
    let fates = compared(title, &pipeline, workload, settings)?;
    let mut plan = settings.plan(workload);
    if !settings.quick {
        // So long that both run at the same time for nearly all of it.
        plan = Plan { warm: plan.warm.max(WARM_MIN), count: plan.count.max(COUNT_MIN), ..plan };
    }
    let (all, parts) = (Spread::Any.of(&workload.frames, 1), spread.of(&workload.frames, 2));
    let memory: Vec<AtomicU32> =
        (0..cells.map_or(0, |cells| cells.registers * cells.size)).map(|_| AtomicU32::new(0)).collect();
    let mut rounds = [const { Vec::new() }; 4];
    with_lock(settings, || {
        for _ in 0..plan.rounds {
            rounds[0].push(shared(together(&alone, &all, plan)));
            rounds[1].push(shared(together(&pipeline, &parts, plan)));
            if let Some(cells) = cells {
                rounds[2].push(shared(adds(&memory, cells, &all, plan)));
                rounds[3].push(shared(adds(&memory, cells, &parts, plan)));
            }
        }
    })?;
    let names =
        ["1 worker", "2 workers, together", "adds to as many cells, 1 thread", "adds to as many cells, 2 threads"];
    let series = names.into_iter().zip(rounds).map(|(name, rounds)| Series { name: name.to_string(), rounds });
    let series: Vec<Series> = series.filter(|series| !series.rounds.is_empty()).collect();
    let ratio = Ratio::new(&series[0], &series[1]);
    let mut bars = vec![Bar { at_most: false, ..Bar::with("rate of 2 workers / 1 worker", ratio, bar) }];
    if let [_, _, one, two] = &series[..] {
        bars.push(Bar::without("the same of adds to as many cells", Ratio::new(one, two)));
    }
    Ok(Row { name: title.to_string(), series, bars, fates })
}

//! Two workers beside one, from memory: threads that play the same frames through executors of one pipeline. The single
//! worker has a pipeline of its own, whose code takes no locks.

use crate::compare;
use crate::frames::Frames;
use crate::measure::{Plan, Ratio, Series, Track};
use crate::rows::{Bar, Row, Settings, with_lock};
use crate::subject;
use crate::workload::Workload;
use anyhow::{Context, Result};
use datapath::Pipeline;
use std::sync::Barrier;

/// Cycles per packet of each of `workers` threads that play at the same time.
fn together(pipeline: &Pipeline, workers: usize, workload: &Workload, plan: Plan) -> Vec<f64> {
    let start = Barrier::new(workers);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let start = &start;
                scope.spawn(move || {
                    let mut subject = subject::of_pipeline("", pipeline, worker);
                    let mut track = Track::new(plan.batch);
                    // Each worker starts at another frame.
                    let mut at = worker * workload.frames.len() / workers;
                    start.wait();
                    track.turn(&mut subject, &workload.frames, &mut at, plan.warm, plan.count)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("a worker's thread ends well")).collect()
    })
}

/// Compares each worker with C, or with the interpreter where there is no C version, packet by packet; recompiles for
/// what was observed; and compares again.
fn compared(title: &str, pipeline: &Pipeline, workload: &Workload, settings: &Settings) -> Result<[u64; 3]> {
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

/// Measures one workload; two workers must be at least `bar` times as fast as one.
///
/// # Errors
/// If the workload cannot be loaded, a worker differs from the oracle, or the lock cannot be taken.
pub fn run(title: &str, workload: &Workload, bar: f64, settings: &Settings) -> Result<Row> {
    let alone = subject::load(workload, &settings.options, 1)?;
    compared(title, &alone, workload, settings)?;
    let pipeline = subject::load(workload, &settings.options, 2)?;
    let fates = compared(title, &pipeline, workload, settings)?;
    let plan = settings.plan(workload);
    let (mut one, mut two) = (Vec::new(), Vec::new());
    with_lock(settings, || {
        for _ in 0..plan.rounds {
            one.extend(together(&alone, 1, workload, plan));
            let rate: f64 = together(&pipeline, 2, workload, plan).into_iter().map(|cycles| 1.0 / cycles).sum();
            two.push(1.0 / rate);
        }
    })?;
    let one = Series { name: "1 worker".to_string(), rounds: one };
    let two = Series { name: "2 workers, together".to_string(), rounds: two };
    let bar = Bar { at_most: false, ..Bar::with("rate of 2 workers / 1 worker", Ratio::new(&one, &two), bar) };
    Ok(Row { name: title.to_string(), series: vec![one, two], bars: vec![bar], fates })
}

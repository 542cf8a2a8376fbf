//! Two workers beside one, from memory: threads that play the same frames through executors of one pipeline.

use crate::measure::{Plan, Ratio, Series, Track};
use crate::rows::{Bar, Row, Settings, with_lock};
use crate::subject;
use crate::workload::Workload;
use anyhow::Result;
use datapath::Pipeline;
use std::sync::Barrier;

/// Cycles per packet of each of `workers` that play at the same time.
fn together(pipeline: &Pipeline, workers: usize, workload: &Workload, plan: Plan) -> Vec<f64> {
    let start = Barrier::new(workers);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let start = &start;
                scope.spawn(move || {
                    let mut subject = subject::of_pipeline("", pipeline, worker);
                    let mut track = Track::new(plan.batch);
                    // Everybody at another place.
                    let mut at = worker * workload.frames.len() / workers;
                    start.wait();
                    track.turn(&mut subject, &workload.frames, &mut at, plan.warm, plan.count)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("a worker's thread ends well")).collect()
    })
}

/// Measures one workload.
pub fn run(title: &str, workload: &Workload, settings: &Settings) -> Result<Row> {
    let pipeline = subject::load(workload, &settings.options, 2)?;
    let plan = settings.plan(workload);
    let (mut one, mut two) = (Vec::new(), Vec::new());
    with_lock(settings, || {
        for _ in 0..plan.rounds {
            one.extend(together(&pipeline, 1, workload, plan));
            let rate: f64 = together(&pipeline, 2, workload, plan).into_iter().map(|cycles| 1.0 / cycles).sum();
            two.push(1.0 / rate);
        }
    })?;
    let one = Series { name: "1 worker".to_string(), rounds: one };
    let two = Series { name: "2 workers, together".to_string(), rounds: two };
    let bar = Bar { at_most: false, ..Bar::with("rate of 2 workers / 1 worker", Ratio::new(&one, &two), 1.9) };
    Ok(Row { name: title.to_string(), series: vec![one, two], bars: vec![bar], fates: [0; 3] })
}

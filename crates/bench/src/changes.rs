//! `l2l3acl` while one entry changes repeatedly: a rule that is removed and inserted again, a route whose next hop
//! fails over, a station that moves between two ports.
//!
//! The median batch has two bars: at the lower of the [`RATES`] it is compared with the median batch of unchanging
//! tables, and at each rate with that of generic code under the same changes. Another thread makes the changes. The
//! pipeline's own thread compiles, as in a switch.

use crate::compare;
use crate::entry::{Entry, Kinds};
use crate::measure::Track;
use crate::report::{Figure, Figures};
use crate::rows::{Settings, with_lock};
use crate::subject::{self, Subject};
use crate::updates::rounds;
use crate::workload::{Workload, l2l3acl};
use abi::state::PipelineState;
use anyhow::{Context, Result, anyhow, ensure};
use base::entry::TableEntry;
use base::ids::TableId;
use datapath::{Pipeline, Specialise};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Changes per second: of a controller, and of a flood.
const RATES: [u32; 2] = [100, 10_000];
/// Most that the median batch may take at the lower rate, relative to settled tables; and at both rates, relative to
/// generic code. Requirements of the project, not tuned values: the rows are judged by them.
const RATIO_TO_SETTLED_MAX: f64 = 1.3;
const RATIO_TO_GENERIC_MAX: f64 = 1.0;
/// Duration of one reading; and how long the code must not have been replaced for tables to count as settled.
const READING: Duration = Duration::from_secs(2);
const SETTLED: Duration = Duration::from_millis(300);
/// Time limit for settling: hundreds of compilations, which take milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// One entry in two forms.
struct Change {
    table: TableId,
    forms: [TableEntry; 2],
    /// Whether the entry is removed and inserted again, rather than modified.
    goes: bool,
}

impl Change {
    /// The change of the first entry that `which` selects.
    fn of(workload: &Workload, program: &ir::Program, which: &Which) -> Result<Change> {
        let kinds = Kinds::new(program, workload.kinds)?;
        let mut first = None;
        (workload.entries)(&mut |entry| {
            if entry.kind == which.kind && first.is_none() {
                first = Some(*entry);
            }
        });
        let first = first.context("there is no entry of this kind")?;
        let mut other = first;
        (which.other)(&mut other);
        let (table, form) = kinds.table_entry(&first);
        Ok(Change { table, forms: [form, kinds.table_entry(&other).1], goes: which.goes })
    }

    /// Makes change number `number`.
    fn make(&self, state: &dyn PipelineState, number: u64) -> Result<()> {
        let is_other = number.is_multiple_of(2);
        let form = &self.forms[usize::from(is_other)];
        let done = match (self.goes, is_other) {
            (true, true) => state.delete(self.table, &form.key, form.priority).map(drop),
            (true, false) => state.insert(self.table, form),
            (false, _) => state.modify(self.table, form),
        };
        done.map_err(|error| anyhow!("{form:?} is refused: {error:?}"))
    }

    /// Makes changes at a rate until `stop` is set and the entry has its first form again; returns the changes made per
    /// second.
    fn repeat(&self, state: &dyn PipelineState, rate: u32, stop: &AtomicBool) -> Result<f64> {
        let begin = Instant::now();
        let mut number = 0u64;
        while !(stop.load(Ordering::Relaxed) && number.is_multiple_of(2)) {
            self.make(state, number)?;
            number += 1;
            let due = Duration::from_secs_f64(number as f64 / f64::from(rate));
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        Ok(number as f64 / begin.elapsed().as_secs_f64())
    }
}

/// Cycles per packet of the median batch of a reading.
fn median(subject: &mut Subject, workload: &Workload, settings: &Settings) -> f64 {
    let mut track = Track::new(settings.batch);
    let (begin, mut at, mut batches) = (Instant::now(), 0, Vec::new());
    let reading = if settings.quick { Duration::from_millis(20) } else { READING };
    while begin.elapsed() < reading {
        let count = track.fill(&workload.frames, at, subject.record_words);
        at = (at + count) % workload.frames.len();
        batches.push(track.run(subject) as f64 / count as f64);
    }
    subject.executor.idle();
    let middle = batches.len() / 2;
    *batches.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Cycles per packet of the median batch under changes at a rate, and the changes made per second.
fn changing(
    (pipeline, subject): (&Pipeline, &mut Subject),
    change: &Change,
    rate: u32,
    workload: &Workload,
    settings: &Settings,
) -> Result<(f64, f64)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| change.repeat(pipeline.state().as_ref(), rate, &stop));
        let median = median(subject, workload, settings);
        stop.store(true, Ordering::Relaxed);
        let made = writer.join().map_err(|_| anyhow!("the writer has panicked"))??;
        Ok((median, made))
    })
}

/// Returns when specialised code has run unchanged for a while.
///
/// # Errors
/// If that takes too long.
fn settle(pipeline: &Pipeline) -> Result<()> {
    let begin = Instant::now();
    let (mut last, mut since) = (None, Instant::now());
    while last.is_none() || since.elapsed() < SETTLED {
        let code = pipeline.code_info().context("there is machine code")?;
        let now = code.specialised.then_some(code.compiled);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        ensure!(
            begin.elapsed() < TIME_LIMIT,
            "no specialised code for the current tables within {TIME_LIMIT:?}: {code:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The entry that changes, which is the first of a kind, and how.
struct Which {
    kind: u32,
    other: fn(&mut Entry),
    goes: bool,
}

fn measured(title: &str, name: &str, rules: usize, which: &Which, s: &Settings) -> Result<Figures> {
    let (size, rules) = if s.quick { (300, 30) } else { (1000, rules) };
    let workload = l2l3acl::workload(l2l3acl::Size { rules, ..l2l3acl::Size::of(size, 64) });
    let load = |mode| subject::load(&workload, &subject::Options { specialise: mode, ..s.options.clone() }, 1);
    let pipelines = [load(s.options.specialise)?, load(Specialise::Off)?];
    let [code, any] = [0, 1].map(|i| subject::of_pipeline(["code for the tables", "for any"][i], &pipelines[i], 0));
    let mut subjects = [subject::interpreter(&workload, &s.options)?, code, any];
    let change = Change::of(&workload, pipelines[0].program(), which)?;
    let mut settled = Vec::new();
    let mut by_rate: [[Vec<f64>; 4]; 2] = Default::default();
    with_lock(s, || -> Result<()> {
        for _ in 0..rounds(s) {
            // Specialisation starts again, so that each round begins with a policy that has no history of changes.
            pipelines[0].specialise(s.options.specialise);
            settle(&pipelines[0])?;
            compare::all(&mut subjects, &workload.frames, s.batch)?;
            let calm = median(&mut subjects[1], &workload, s);
            settled.push(calm);
            for (rate, into) in RATES.into_iter().zip(&mut by_rate) {
                let mut beside =
                    |i: usize| changing((&pipelines[i], &mut subjects[1 + i]), &change, rate, &workload, s);
                let ((median, made), (general, _)) = (beside(0)?, beside(1)?);
                // The entry has its first form again.
                compare::all(&mut subjects, &workload.frames, s.batch)?;
                let values = [made, median, median / calm, median / general];
                into.iter_mut().zip(values).for_each(|(into, value)| into.push(value));
            }
            pipelines[0].specialise(Specialise::Off);
        }
        Ok(())
    })??;
    let figure = |name: String, unit, values, bar: Option<f64>| {
        let bar = bar.filter(|_| !s.quick);
        Figure { name, unit, values, bar, at_most: true }
    };
    let mut figures = vec![figure("nothing changes: median batch".to_string(), " cycles a packet", settled, None)];
    for (rate, [made, median, calm, general]) in RATES.into_iter().zip(by_rate) {
        let ratio_max = (rate == RATES[0]).then_some(RATIO_TO_SETTLED_MAX);
        figures.push(figure(format!("{rate} changes a second wanted, made"), "", made, None));
        figures.push(figure(format!("{rate} a second: median batch"), " cycles a packet", median, None));
        figures.push(figure(format!("{rate} a second: median batch / nothing changes"), "", calm, ratio_max));
        figures.push(figure(
            format!("{rate} a second: median batch / code for any tables"),
            "",
            general,
            Some(RATIO_TO_GENERIC_MAX),
        ));
    }
    Ok(Figures { name: name.to_string(), title: title.to_string(), figures })
}

const RULE: Which = Which { kind: l2l3acl::DENY, other: |_| {}, goes: true };

/// A rule of an access list of 100 is removed and inserted again.
///
/// # Errors
/// If the program cannot be loaded, subjects differ, a change is refused, the code does not settle, or the lock cannot
/// be taken.
pub fn rule(title: &str, settings: &Settings) -> Result<Figures> {
    measured(title, "changes-rule", 100, &RULE, settings)
}

/// A rule of an access list of 5,000 is removed and inserted again.
///
/// # Errors
/// As [`rule`].
pub fn rule_of_many(title: &str, settings: &Settings) -> Result<Figures> {
    measured(title, "changes-rule-5k", 5000, &RULE, settings)
}

/// A route changes between two next hops.
///
/// # Errors
/// As [`rule`].
pub fn route(title: &str, settings: &Settings) -> Result<Figures> {
    let which = Which { kind: l2l3acl::ROUTE, other: |entry| entry.args[0] ^= 1, goes: false };
    measured(title, "changes-route", 100, &which, settings)
}

/// A station moves between two ports.
///
/// # Errors
/// As [`rule`].
pub fn station(title: &str, settings: &Settings) -> Result<Figures> {
    let which = Which { kind: l2l3acl::SEEN, other: |entry| entry.args[0] = entry.args[0] % 8 + 1, goes: false };
    measured(title, "changes-station", 100, &which, settings)
}

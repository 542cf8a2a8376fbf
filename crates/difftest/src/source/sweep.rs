//! A sweep over many generated cases: counts and findings, one per kind of failure.

use super::case::Case;
use super::finding::{Counts, Depth, Finding, Kind};
use super::{mutate, reduce};
use crate::generate::Dice;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The extent of a sweep.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first seed.
    pub seed: u64,
    /// The number of programs.
    pub count: u64,
    /// The time after which the sweep ends early.
    pub limit: Duration,
    /// The number of packets per program.
    pub packets: usize,
    /// The number of edited sources per program.
    pub mutations: usize,
    /// The time limit of one reduction.
    pub reduction: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            count: u64::MAX,
            limit: Duration::from_secs(60),
            packets: 256,
            mutations: 20,
            reduction: Duration::from_secs(120),
        }
    }
}

/// Failures of one kind and place.
#[derive(Clone, Debug)]
pub struct Found {
    /// The first seed that fails so.
    pub seed: u64,
    /// The number of failures.
    pub times: u64,
    /// The first failure.
    pub finding: Finding,
    /// The first failing case, reduced.
    pub case: Case,
}

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of programs generated.
    pub programs: u64,
    /// The number of edited sources that the compiler refused, and that it accepted.
    pub mutations: (u64, u64),
    /// The work of comparisons.
    pub counts: Counts,
    /// The failures by kind and place.
    pub found: BTreeMap<(Kind, String), Found>,
}

impl Report {
    /// Adds another sweep's result. Of equal failures, this one's stays.
    pub fn merge(&mut self, other: Report) {
        self.programs += other.programs;
        self.mutations.0 += other.mutations.0;
        self.mutations.1 += other.mutations.1;
        self.counts += other.counts;
        for (key, found) in other.found {
            let times = found.times;
            self.found.entry(key).and_modify(|known| known.times += times).or_insert(found);
        }
    }
}

/// The size of a seed's program: small programs find most failures, large ones the rest.
pub fn size_of(seed: u64) -> u32 {
    [1, 2, 3, 4, 6, 8][(seed % 6) as usize]
}

/// Runs cases. Calls `progress` with each seed before it runs, and with each new failure.
pub fn sweep(options: &Options, progress: &mut dyn FnMut(u64, &Report, Option<&Found>)) -> Report {
    let start = Instant::now();
    let mut report = Report::default();
    for seed in options.seed..options.seed.saturating_add(options.count) {
        if start.elapsed() > options.limit {
            break;
        }
        progress(seed, &report, None);
        let case = Case::generate(seed, size_of(seed), options.packets);
        report.programs += 1;
        match case.check(Depth::Passes, &mut report.counts) {
            Ok(()) => rewritten(&mut report, seed, &case, progress),
            Err(finding) => note(&mut report, seed, &case, finding, Depth::Passes, options, progress),
        }
        let mut dice = Dice::new(seed ^ 0x6d75_7461_7465);
        for _ in 0..options.mutations {
            let mutated = Case { source: mutate::mutate(&case.source, &mut dice), script: case.script.clone() };
            match mutated.check(Depth::Compile, &mut Counts::default()) {
                Err(finding) if finding.kind == Kind::Refused => report.mutations.0 += 1,
                Err(finding) => note(&mut report, seed, &mutated, finding, Depth::Compile, options, progress),
                // An accepted source is checked like any other program.
                Ok(()) => {
                    report.mutations.1 += 1;
                    // An edit of one side of a canary's comparison makes the canary count; that is no failure.
                    if let Err(finding) = mutated.check(Depth::Main, &mut report.counts)
                        && finding.kind != Kind::Canary
                    {
                        note(&mut report, seed, &mutated, finding, Depth::Main, options, progress);
                    }
                }
            }
        }
    }
    report
}

/// Compares a program with its rewritten form, and bisects to one construct that makes the difference.
fn rewritten(report: &mut Report, seed: u64, case: &Case, progress: &mut dyn FnMut(u64, &Report, Option<&Found>)) {
    let write = |sites: Range<u64>| {
        let (generated, count) = p4gen::rewritten(seed, size_of(seed), sites);
        let other = Case { source: generated.source, script: case.script.clone() };
        let result = case.compare_with(&other, &mut Counts::default());
        (other, count, result.err())
    };
    let (mut other, count, Some(mut finding)) = write(0..u64::MAX) else { return };
    let mut sites = 0..count;
    while sites.end - sites.start > 1 {
        let middle = sites.start + (sites.end - sites.start) / 2;
        let halves = [sites.start..middle, middle..sites.end];
        let Some((half, (smaller, _, Some(found)))) =
            halves.into_iter().map(|half| (half.clone(), write(half))).find(|(_, (_, _, found))| found.is_some())
        else {
            break;
        };
        (sites, other, finding) = (half, smaller, found);
    }
    let lines = case.source.lines().zip(other.source.lines()).filter(|(a, b)| a != b);
    let differing: Vec<String> = lines.take(3).map(|(a, b)| format!("  {}\n  {}", a.trim(), b.trim())).collect();
    let what = format!("{:?} {}\n{}\n{}", finding.kind, finding.place, finding.what, differing.join("\n"));
    let finding = Finding { kind: Kind::Rewritten, place: finding.place, what };
    let key = (finding.kind, finding.place.clone());
    if let Some(known) = report.found.get_mut(&key) {
        known.times += 1;
        return;
    }
    let found = Found { seed, times: 1, finding, case: other };
    progress(seed, report, Some(&found));
    report.found.insert(key, found);
}

fn note(
    report: &mut Report,
    seed: u64,
    case: &Case,
    finding: Finding,
    depth: Depth,
    options: &Options,
    progress: &mut dyn FnMut(u64, &Report, Option<&Found>),
) {
    let key = (finding.kind, finding.place.clone());
    if let Some(known) = report.found.get_mut(&key) {
        known.times += 1;
        return;
    }
    // A canary is not reduced: reducing its two sides separately makes it meaningless.
    let limit = if finding.kind == Kind::Canary { Duration::ZERO } else { options.reduction };
    let small = reduce::reduce(case, limit, &mut reduce::fails_like(&finding, depth));
    let finding = small.check(depth, &mut Counts::default()).err().unwrap_or(finding);
    let found = Found { seed, times: 1, finding, case: small };
    progress(seed, report, Some(&found));
    report.found.insert(key, found);
}

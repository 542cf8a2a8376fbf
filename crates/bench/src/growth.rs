//! How cycles grow with flows, entries, rules, tables, headers and fields (PISCES figures 8 to 11, and more).

use crate::compare;
use crate::measure::{self, Plan};
use crate::report::{Curves, Point};
use crate::rows::{Settings, compared, with_lock};
use crate::source::Source;
use crate::subject::{self, Options, Subject};
use crate::workload::{Flows, ORACLE_FRAMES, Workload, generated, l2l3acl, stateful_firewall};
use anyhow::{Context, Result};
use datapath::EngineKind;

/// The subject whose output is the expected one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Oracle {
    /// The C version, which is timed too.
    C,
    /// The interpreter.
    Interpreter,
    /// Code as directly after loading, with the staged strategy: for more connections than the interpreter can handle.
    /// The same program with fewer cells has a C version, and a row of its own.
    Staged,
}

/// One point to be measured.
struct Task {
    x: usize,
    line: String,
    workload: Box<dyn FnOnce() -> Workload>,
    /// What its output is compared with.
    oracle: Oracle,
    /// A strategy other than the requested one.
    strategy: Option<jit::Strategy>,
}

/// A measurement over a variable that grows.
pub struct Growth {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title in tables.
    pub title: &'static str,
    x: &'static str,
    log: bool,
    tasks: fn(bool) -> Vec<Task>,
}

/// Powers of ten; for quick runs two small numbers.
fn decades(quick: bool, from: usize, to: usize) -> Vec<usize> {
    if quick {
        return vec![from.max(1), from.max(1) * 10];
    }
    let mut all = vec![from];
    while all.last().is_some_and(|&n| n * 10 <= to) {
        all.extend(all.last().map(|n| n * 10));
    }
    all
}

/// Makes a workload of a size.
type Make = fn(usize) -> Workload;

fn tasks_of(xs: &[usize], line: &str, make: Make) -> Vec<Task> {
    let task = |&x: &usize| Task {
        x,
        line: line.to_string(),
        workload: Box::new(move || make(x)),
        oracle: Oracle::Interpreter,
        strategy: None,
    };
    xs.iter().map(task).collect()
}

/// Number of flows for a table of `n` entries: up to a million flows each entry is hit several times, above that once.
/// The frames of ten million flows take 0.8 GB, less than the table.
fn flows_for(n: usize) -> usize {
    (4 * n).clamp(64, 1_000_000).max(n)
}

fn flow_tasks(quick: bool) -> Vec<Task> {
    let entries = if quick { 300 } else { 100_000 };
    let task = |flows: Flows, x: usize, line: &str| Task {
        x,
        line: line.to_string(),
        workload: Box::new(move || l2l3acl::workload(l2l3acl::Size { flows, ..l2l3acl::Size::of(entries, 1) })),
        oracle: Oracle::C,
        strategy: None,
    };
    let xs = decades(quick, 1, 10_000_000);
    let mut all: Vec<Task> = xs.iter().map(|&x| task(Flows::Uniform(x), x, "uniform")).collect();
    all.extend(xs.iter().map(|&x| task(Flows::Zipf(x), x, "Zipf")));
    // The number of pairs of stations and routes is the same, so that tables' entries are hit as in the other curves,
    // but a flow repeats only after four million others: more than any cache of the processor, or of a switch, holds.
    let packets = if quick { 500 } else { 4_000_000 };
    all.extend(xs.iter().map(|&x| task(Flows::New { pairs: x, packets }, x, "all new")));
    all
}

/// The line that sets the size of the register of `stateful_firewall`.
const CELLS: &str = "CELLS = 1 << 20;";

/// Connections in a register of 256 MB, with both strategies.
fn connection_tasks(quick: bool) -> Vec<Task> {
    let large = |connections: usize| {
        let small = stateful_firewall::workload(Flows::Uniform(connections), 64, 1);
        let text = small.source.text().expect("an example can be read");
        assert!(text.contains(CELLS), "stateful_firewall has no `{CELLS}`");
        Workload { source: Source::Text(text.replace(CELLS, "CELLS = 1 << 26;")), ..small }
    };
    let ways = [("auto", jit::Strategy::Auto), ("run to completion", jit::Strategy::RunToCompletion)];
    let task = |x: usize, (line, strategy): (&str, jit::Strategy)| Task {
        x,
        line: line.to_string(),
        workload: Box::new(move || large(x)),
        oracle: Oracle::Staged,
        strategy: Some(strategy),
    };
    let xs = if quick { vec![64] } else { vec![1_000, 10_000, 100_000, 1_000_000, 4_000_000] };
    xs.into_iter().flat_map(|x| ways.map(|way| task(x, way))).collect()
}

/// All measurements.
pub const ALL: &[Growth] = &[
    Growth {
        name: "growth-flows",
        title: "l2l3acl with 100k entries: flows",
        x: "flows",
        log: true,
        tasks: flow_tasks,
    },
    Growth {
        name: "growth-connections",
        title: "stateful_firewall with 64M cells: connections",
        x: "connections",
        log: true,
        tasks: connection_tasks,
    },
    Growth {
        name: "growth-size",
        title: "l2l3acl with 1k entries, 64 flows: bytes of a frame",
        x: "bytes",
        log: false,
        tasks: |_| {
            let task = |&frame: &usize| Task {
                x: frame,
                line: "uniform".to_string(),
                workload: Box::new(move || l2l3acl::workload(l2l3acl::Size { frame, ..l2l3acl::Size::of(1000, 64) })),
                oracle: Oracle::C,
                strategy: None,
            };
            [64, 128, 256, 512, 1024, 1500].iter().map(task).collect()
        },
    },
    Growth {
        name: "growth-exact",
        title: "One exact table",
        x: "entries",
        log: true,
        tasks: |quick| tasks_of(&decades(quick, 1, 10_000_000), "Sluice", |n| generated::exact(n, flows_for(n))),
    },
    Growth {
        name: "growth-lpm",
        title: "One LPM table, prefixes as the Internet has them",
        x: "prefixes",
        log: true,
        tasks: |quick| tasks_of(&decades(quick, 1, 10_000_000), "Sluice", |n| generated::lpm(n, flows_for(n))),
    },
    Growth {
        name: "growth-ternary",
        title: "One ternary table of IPv4 5-tuples",
        x: "rules",
        log: true,
        tasks: |quick| {
            let make: [(usize, Make); 4] = [
                (1, |n| generated::ternary(n, 1, flows_for(n))),
                (5, |n| generated::ternary(n, 5, flows_for(n))),
                (20, |n| generated::ternary(n, 20, flows_for(n))),
                (50, |n| generated::ternary(n, 50, flows_for(n))),
            ];
            let mut all = Vec::new();
            for (masks, make) in make {
                let xs: Vec<usize> = decades(quick, 1, 10_000).into_iter().filter(|&n| n >= masks || quick).collect();
                all.extend(tasks_of(&xs, &format!("{masks} masks"), make));
            }
            all
        },
    },
    Growth {
        name: "growth-tables",
        title: "Exact tables with 1k entries in a row",
        x: "tables",
        log: false,
        tasks: |quick| {
            tasks_of(if quick { &[1, 4] } else { &[1, 2, 4, 8, 16, 24, 32] }, "Sluice", |n| generated::tables(n, 1000))
        },
    },
    Growth {
        name: "growth-parse",
        title: "Headers parsed (PISCES figure 8)",
        x: "headers",
        log: false,
        tasks: |_| tasks_of(&[1, 2, 3, 4, 5, 6, 7, 8], "Sluice", generated::parse),
    },
    Growth {
        name: "growth-set",
        title: "Fields set (PISCES figure 9)",
        x: "fields",
        log: false,
        tasks: |_| tasks_of(&[1, 2, 4, 8, 12, 16], "Sluice", generated::set),
    },
    Growth {
        name: "growth-add",
        title: "Headers added (PISCES figure 10)",
        x: "headers",
        log: false,
        tasks: |_| tasks_of(&[1, 2, 4, 8, 12, 16], "Sluice", generated::add),
    },
    Growth {
        name: "growth-remove",
        title: "Headers removed (PISCES figure 11)",
        x: "headers",
        log: false,
        tasks: |_| tasks_of(&[1, 2, 4, 8, 12, 16], "Sluice", generated::remove),
    },
];

/// Compares a program without a C version with another engine, before and after it is recompiled.
fn beside_oracle(
    oracle: Subject,
    subjects: &mut Vec<Subject>,
    workload: &Workload,
    settings: &Settings,
    options: &Options,
) -> Result<[u64; 3]> {
    subjects.push(oracle);
    // Frames that open connections are among these.
    compare::all(subjects, &workload.odd, settings.batch)?;
    compare::some(subjects, &workload.frames, settings.batch, ORACLE_FRAMES)?;
    // Plays every frame once, so that the code is recompiled for the observed paths.
    let fates = compare::all(&mut subjects[..1], &workload.frames, settings.batch)?;
    subjects[0].settle(options);
    compare::some(subjects, &workload.frames, settings.batch, ORACLE_FRAMES)
        .context("two differ, in code that was compiled again")?;
    subjects.truncate(1);
    Ok(fates)
}

/// Measures all points of one measurement.
///
/// # Errors
/// If a workload cannot be loaded, subjects differ, or the lock cannot be taken.
pub fn run(growth: &Growth, settings: &Settings) -> Result<Curves> {
    let mut points = Vec::new();
    for task in (growth.tasks)(settings.quick) {
        let context = || format!("{}: {} {}, {}", growth.name, task.x, growth.x, task.line);
        let workload = (task.workload)();
        let mut options = settings.options.clone();
        options.code.jit.strategy = task.strategy.unwrap_or(options.code.jit.strategy);
        let mut subjects = vec![subject::sluice("Sluice", &workload, &options).with_context(context)?];
        if task.oracle == Oracle::C {
            subjects.push(subject::c(&workload, false)?);
            subjects.push(subject::c(&workload, true)?);
        }
        let fates = match task.oracle {
            Oracle::C => compared(&context(), &mut subjects, &workload, settings),
            Oracle::Interpreter => {
                let oracle = subject::interpreter(&workload, &options)?;
                beside_oracle(oracle, &mut subjects, &workload, settings, &options)
            }
            Oracle::Staged => {
                let oracle = subject::as_loaded("code as loaded, staged", &workload, EngineKind::Staged, &options)?;
                beside_oracle(oracle, &mut subjects, &workload, settings, &options)
            }
        };
        let fates = fates.with_context(context)?;
        anyhow::ensure!(fates[0] > 0, "{}: every packet was dropped", context());
        let plan = if settings.quick {
            Plan { batch: settings.batch, rounds: 2, warm: 64, count: 256 }
        } else {
            let plan = Plan::for_frames(workload.frames.len(), settings.batch, settings.rounds.div_ceil(2));
            // A larger set of flows is not played twice in one turn anyway.
            Plan { count: plan.count.min(1_000_000), ..plan }
        };
        let all = with_lock(settings, || measure::interleaved(&mut subjects, &workload.frames, plan))?;
        for series in all {
            let line = match (task.oracle == Oracle::C, task.line.as_str()) {
                (true, line) => format!("{}, {line}", series.name),
                (false, line) => line.to_string(),
            };
            points.push(Point { x: task.x as f64, line, series });
        }
    }
    Ok(Curves {
        name: growth.name.to_string(),
        title: growth.title.to_string(),
        x: growth.x.to_string(),
        log: growth.log,
        points,
    })
}

//! How cycles grow with flows, entries, rules, tables, headers and fields (PISCES figures 8 to 11, and beyond).

use crate::compare;
use crate::measure::{self, Plan};
use crate::report::{Curves, Point};
use crate::rows::{Settings, compared, with_lock};
use crate::source::Source;
use crate::subject::{self, Options, Subject};
use crate::workload::{Flows, ORACLE_FRAMES, Workload, generated, l2l3acl, stateful_firewall};
use anyhow::{Context, Result};
use datapath::EngineKind;

/// What says which output is right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Oracle {
    /// The C version, which is timed beside it.
    C,
    /// The interpreter.
    Interpreter,
    /// Code as it is right after loading, staged: where connections are too many for the interpreter. The same program with
    /// fewer cells has a C version, and its row.
    Staged,
}

/// One point to be measured.
struct Task {
    x: usize,
    line: String,
    workload: Box<dyn FnOnce() -> Workload>,
    /// What it is held against.
    oracle: Oracle,
    /// Another than what is asked for.
    strategy: Option<jit::Strategy>,
}

/// A measurement over something that grows.
pub struct Growth {
    /// On the command line.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    x: &'static str,
    log: bool,
    tasks: fn(bool) -> Vec<Task>,
}

/// Powers of ten, or few small numbers.
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

/// A workload of a size.
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

/// Flows for a table of `n` entries: each asked for some times up to a million flows, and once beyond. Ten million take 0.8 GB as
/// frames, less than the table.
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
    // As many pairs of stations and routes, so that tables' entries are asked for as in the other curves, but no flow comes a second
    // time before four million others were there: more than any cache of the processor, or of a switch, remembers.
    let packets = if quick { 500 } else { 4_000_000 };
    all.extend(xs.iter().map(|&x| task(Flows::New { pairs: x, packets }, x, "all new")));
    all
}

/// What says how large the register of `stateful_firewall` is.
const CELLS: &str = "CELLS = 1 << 20;";

/// Connections in a register of 256 MB, by both ways through the code.
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

/// All of them.
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

/// Holds a program without a C version against another engine, before and after it was compiled again.
fn beside_oracle(
    oracle: Subject,
    subjects: &mut Vec<Subject>,
    workload: &Workload,
    settings: &Settings,
    options: &Options,
) -> Result<[u64; 3]> {
    subjects.push(oracle);
    // What opens connections is there, too.
    compare::all(subjects, &workload.odd, settings.batch)?;
    compare::some(subjects, &workload.frames, settings.batch, ORACLE_FRAMES)?;
    // Every frame once, so that code is compiled for where packets go.
    let fates = compare::all(&mut subjects[..1], &workload.frames, settings.batch)?;
    subjects[0].settle(options);
    compare::some(subjects, &workload.frames, settings.batch, ORACLE_FRAMES)
        .context("two differ, in code that was compiled again")?;
    subjects.truncate(1);
    Ok(fates)
}

/// Measures all points of one.
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
            // A set of flows beyond that is never seen twice in one turn anyway.
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

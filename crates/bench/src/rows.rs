//! The rows of the benchmark's table: workload, subjects, and ratios with their bars (the limits they must keep).

use crate::measure::{self, Plan, Ratio, Series};
use crate::subject::{self, Options, Subject};
use crate::workload::{Flows, Workload, l2, l2l3acl, l3router, stateful_firewall, vxlan};
use anyhow::{Context, Result};
use datapath::EngineKind;
use std::fs::File;
use std::path::PathBuf;

/// Settings shared by all rows.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Compiler options for P4 programs.
    pub options: Options,
    /// Packets per batch.
    pub batch: usize,
    /// Timed turns of each subject.
    pub rounds: usize,
    /// A file that is locked while a row is timed, so that measurements on one machine take turns.
    pub lock: Option<PathBuf>,
    /// Tiny counts: for tests of the benchmark itself.
    pub quick: bool,
}

impl Settings {
    /// How many packets of a workload with `frames` frames are played.
    pub fn plan(&self, frames: usize) -> Plan {
        if self.quick {
            return Plan { batch: self.batch, rounds: 2, warm: 64, count: 256 };
        }
        Plan::for_frames(frames, self.batch, self.rounds)
    }
}

/// Calls `f` while holding the lock.
///
/// # Errors
/// If the lock file cannot be created or locked.
pub fn with_lock<R>(settings: &Settings, f: impl FnOnce() -> R) -> Result<R> {
    let lock = settings.lock.as_ref().map(File::create).transpose().context("cannot create the lock file")?;
    if let Some(lock) = &lock {
        lock.lock().context("cannot acquire the lock")?;
    }
    Ok(f())
}

/// A ratio and the limit (bar) that it must keep.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name: what is divided by what.
    pub name: String,
    /// The measured ratio.
    pub ratio: Ratio,
    /// The limit; NaN if there is none.
    pub bar: f64,
    /// Whether the ratio must be at most the limit; otherwise at least.
    pub at_most: bool,
    /// The unit printed after the number.
    pub unit: &'static str,
}

impl Bar {
    /// A ratio with an upper limit.
    pub fn with(name: &str, ratio: Ratio, bar: f64) -> Bar {
        Bar { name: name.to_string(), ratio, bar, at_most: true, unit: "" }
    }

    /// A ratio without a limit, for information.
    pub fn without(name: &str, ratio: Ratio) -> Bar {
        Bar::with(name, ratio, f64::NAN)
    }

    /// The value with its unit.
    pub fn number(&self, value: f64) -> String {
        format!("{value:.2}{}", self.unit)
    }
}

/// A measured row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The row's title.
    pub name: String,
    /// Each subject's cycles per packet.
    pub series: Vec<Series>,
    /// The ratios.
    pub bars: Vec<Bar>,
    /// Numbers of compared packets that were sent, dropped and replicated.
    pub fates: [u64; 3],
}

/// A row to be measured.
pub struct Work {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title in tables.
    pub title: &'static str,
    /// Makes the workload; the flag makes tiny counts.
    pub workload: fn(bool) -> Workload,
    /// Most that Sluice / plain C may be.
    pub plain: Option<f64>,
    /// Most that Sluice / batched C may be.
    pub batched: Option<f64>,
}

fn l2l3acl_of(n: usize, flows: usize, quick: bool) -> Workload {
    l2l3acl::workload(if quick { l2l3acl::Size::of(n.min(300), flows.min(500)) } else { l2l3acl::Size::of(n, flows) })
}

/// A thousand entries and `rules` rules, whose sources are those of the traffic (`near`) or of another network.
fn l2l3acl_rules(rules: usize, near: bool, quick: bool) -> Workload {
    l2l3acl::workload(l2l3acl::Size { rules, near, ..l2l3acl::Size::of(if quick { 300 } else { 1000 }, 64) })
}

/// All rows that compare a program with its C version.
pub const WORKS: &[Work] = &[
    Work {
        name: "l2l3acl-1k",
        title: "l2l3acl, 1k entries, 64 flows",
        workload: |quick| l2l3acl_of(1000, 64, quick),
        plain: Some(0.90),
        batched: None,
    },
    Work {
        name: "l2l3acl-100k",
        title: "l2l3acl, 100k entries, 1M flows",
        workload: |quick| l2l3acl_of(100_000, 1_000_000, quick),
        plain: Some(0.45),
        batched: Some(0.85),
    },
    Work {
        name: "l2l3acl-1m",
        title: "l2l3acl, 1M entries, 1M flows",
        workload: |quick| l2l3acl_of(1_000_000, 1_000_000, quick),
        plain: Some(0.50),
        batched: Some(0.85),
    },
    Work {
        name: "l2l3acl-tiny",
        title: "l2l3acl, 1 station, 10 routes, 5 rules, 64 flows",
        workload: |_| l2l3acl::workload(l2l3acl::Size::tiny(64)),
        plain: Some(0.65),
        batched: None,
    },
    Work {
        name: "l2l3acl-1k-near",
        title: "l2l3acl, 1k entries, 64 flows, rules about their network",
        workload: |quick| l2l3acl_rules(100, true, quick),
        plain: Some(0.90),
        batched: None,
    },
    Work {
        name: "l2l3acl-tiny-near",
        title: "l2l3acl, 1 station, 10 routes, 5 rules about the network of 64 flows",
        workload: |_| l2l3acl::workload(l2l3acl::Size { near: true, ..l2l3acl::Size::tiny(64) }),
        plain: Some(1.0),
        batched: None,
    },
    // Numbers of rules, next hops and keys below and above the limits up to which code holds them as constants.
    Work {
        name: "l2l3acl-1k-2000r",
        title: "l2l3acl, 1k entries, 2,000 rules, 64 flows",
        workload: |quick| l2l3acl_rules(2000, false, quick),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "l2l3acl-1k-2000r-near",
        title: "l2l3acl, 1k entries, 2,000 rules about the network of 64 flows",
        workload: |quick| l2l3acl_rules(2000, true, quick),
        plain: None,
        batched: None,
    },
    Work {
        name: "l2l3acl-1k-10kr",
        title: "l2l3acl, 1k entries, 10,000 rules, 64 flows",
        workload: |quick| l2l3acl_rules(10_000, false, quick),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "l2l3acl-1k-10kr-near",
        title: "l2l3acl, 1k entries, 10,000 rules about the network of 64 flows",
        workload: |quick| l2l3acl_rules(10_000, true, quick),
        plain: None,
        batched: None,
    },
    Work {
        name: "l2l3acl-5k",
        title: "l2l3acl, 5k entries, 5k next hops, 1,000 rules, 10k flows",
        workload: |quick| {
            let all = l2l3acl::Size { next_hops: 5000, rules: 1000, ..l2l3acl::Size::of(5000, 10_000) };
            l2l3acl::workload(if quick { l2l3acl::Size { flows: Flows::Uniform(500), ..all } } else { all })
        },
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "l2l3acl-mixed",
        title: "l2l3acl, 1k entries, 64 flows on all ways",
        workload: |_| l2l3acl::workload(l2l3acl::Size { mixed: true, ..l2l3acl::Size::of(1000, 64) }),
        plain: None,
        batched: None,
    },
    Work {
        name: "l2l3acl-100k-mixed",
        title: "l2l3acl, 100k entries, 1M flows on all ways",
        workload: |quick| {
            let (n, flows) = if quick { (300, 500) } else { (100_000, 1_000_000) };
            l2l3acl::workload(l2l3acl::Size { mixed: true, ..l2l3acl::Size::of(n, flows) })
        },
        plain: None,
        batched: None,
    },
    Work {
        name: "l2",
        title: "l2, 1k stations, 64 flows",
        workload: |_| l2::workload(1000, Flows::Uniform(64), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "l2-100k",
        title: "l2, 100k stations, 1M flows",
        workload: |quick| l2::workload(few(quick, 100_000), Flows::Uniform(few(quick, 1_000_000)), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "l3router",
        title: "l3router, 1k routes, 64 flows",
        workload: |_| l3router::workload(1000, Flows::Uniform(64), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "l3router-100k",
        title: "l3router, 100k routes, 1M flows",
        workload: |quick| l3router::workload(few(quick, 100_000), Flows::Uniform(few(quick, 1_000_000)), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "vxlan",
        title: "vxlan, 1k stations, 64 flows",
        workload: |_| vxlan::workload(1000, Flows::Uniform(64), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "vxlan-100k",
        title: "vxlan, 100k stations, 1M flows",
        workload: |quick| vxlan::workload(few(quick, 100_000), Flows::Uniform(few(quick, 1_000_000)), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "stateful_firewall",
        title: "stateful_firewall, 64 connections",
        workload: |_| stateful_firewall::workload(Flows::Uniform(64), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
    Work {
        name: "stateful_firewall-100k",
        title: "stateful_firewall, 100k connections",
        workload: |quick| stateful_firewall::workload(Flows::Uniform(few(quick, 100_000)), 64, 1),
        plain: Some(1.0),
        batched: None,
    },
];

/// A count, bounded for tests of the benchmark.
fn few(quick: bool, count: usize) -> usize {
    if quick { count.min(500) } else { count }
}

/// Compares all subjects with the first, packet by packet; recompiles them for what they have observed; compares again,
/// so that the code that is timed has been compared. Returns how many of the timed packets were sent, dropped and
/// replicated.
///
/// # Errors
/// If two subjects differ.
pub fn compared(title: &str, subjects: &mut [Subject], workload: &Workload, settings: &Settings) -> Result<[u64; 3]> {
    let both = |subjects: &mut [Subject], when: &str| {
        let context = || format!("{title}: two differ{when}");
        crate::compare::all(subjects, &workload.odd, settings.batch).with_context(context)?;
        crate::compare::all(subjects, &workload.frames, settings.batch).with_context(context)
    };
    both(subjects, "")?;
    subjects.iter().for_each(|s| s.settle(&settings.options));
    both(subjects, ", in code that was compiled again")
}

/// Compares, then measures.
///
/// # Errors
/// If a subject cannot be loaded, two subjects differ, or the lock cannot be taken.
pub fn run(work: &Work, settings: &Settings) -> Result<Row> {
    let workload = (work.workload)(settings.quick);
    let mut subjects = vec![
        subject::sluice("Sluice", &workload, &settings.options)?,
        subject::c(&workload, false)?,
        subject::c(&workload, true)?,
    ];
    let fates = compared(work.name, &mut subjects, &workload, settings)?;
    let series = timed(&mut subjects, &workload, settings)?;
    let bar = |name: &str, of: &Series, bar: Option<f64>| {
        Bar::with(name, Ratio::new(&series[0], of), bar.unwrap_or(f64::NAN))
    };
    let bars =
        vec![bar("Sluice / C, plain", &series[1], work.plain), bar("Sluice / C, batched", &series[2], work.batched)];
    Ok(Row { name: work.title.to_string(), series, bars, fates })
}

/// A program with each strategy, beside C; ratios are to plain C.
///
/// # Errors
/// As [`run`].
pub fn strategies(title: &str, workload: &Workload, settings: &Settings) -> Result<Row> {
    let mut subjects = Vec::new();
    for (name, strategy) in [
        ("Sluice, auto", jit::Strategy::Auto),
        ("Sluice, run to completion", jit::Strategy::RunToCompletion),
        ("Sluice, staged", jit::Strategy::Staged),
    ] {
        let mut options = settings.options.clone();
        options.code.jit.strategy = strategy;
        subjects.push(subject::sluice(name, workload, &options)?);
    }
    subjects.push(subject::c(workload, true)?);
    subjects.push(subject::c(workload, false)?);
    let fates = compared(title, &mut subjects, workload, settings)?;
    let series = timed(&mut subjects, workload, settings)?;
    let (c, others) = series.split_last().context("there are subjects")?;
    let bars = others.iter().map(|s| Bar::without(&format!("{} / {}", s.name, c.name), Ratio::new(s, c))).collect();
    Ok(Row { name: title.to_string(), series, bars, fates })
}

/// Architectures besides v1model for which there are examples.
const OTHER_ARCHITECTURES: &[&str] = &["psa", "pna"];

/// A program on each architecture that has a version of it, with the same packets; ratios are to v1model's.
///
/// # Errors
/// As [`run`].
pub fn architectures(title: &str, workload: &Workload, settings: &Settings) -> Result<Row> {
    let mut subjects = vec![subject::sluice("v1model", workload, &settings.options)?];
    for name in OTHER_ARCHITECTURES {
        let source = crate::source::example_for(workload.program, name);
        let other = Workload { source, ..workload.same_but_frames() };
        subjects.push(subject::sluice(name, &other, &settings.options)?);
    }
    let fates = compared(title, &mut subjects, workload, settings)?;
    let series = timed(&mut subjects, workload, settings)?;
    let (first, others) = series.split_first().context("there are subjects")?;
    let ratio = |s: &Series| Bar::without(&format!("{} / {}", s.name, first.name), Ratio::new(s, first));
    let bars = others.iter().map(ratio).collect();
    Ok(Row { name: title.to_string(), series, bars, fates })
}

/// A program with each engine and strategy, beside C; ratios are to the code that a switch runs after a second.
///
/// # Errors
/// As [`run`].
pub fn engines(title: &str, workload: &Workload, settings: &Settings) -> Result<Row> {
    let with = |strategy: jit::Strategy| {
        let mut options = settings.options.clone();
        options.code.jit.strategy = strategy;
        options
    };
    let loaded = |engine| subject::as_loaded("code as loaded, for any tables", workload, engine, &settings.options);
    let settled = |name: &str, strategy| subject::sluice(&format!("settled code{name}"), workload, &with(strategy));
    let mut subjects = vec![
        settled("", settings.options.code.jit.strategy)?,
        settled(", run to completion", jit::Strategy::RunToCompletion)?,
        settled(", staged", jit::Strategy::Staged)?,
        loaded(EngineKind::Machine)?,
        subject::interpreter(workload, &settings.options)?,
        subject::c(workload, false)?,
    ];
    let fates = compared(title, &mut subjects, workload, settings)?;
    let series = timed(&mut subjects, workload, settings)?;
    let ratio = |s: &Series| Bar::without(&format!("{} / {}", s.name, series[0].name), Ratio::new(s, &series[0]));
    let bars = series[1..].iter().map(ratio).collect();
    Ok(Row { name: title.to_string(), series, bars, fates })
}

/// Times the subjects in alternation, under the lock.
///
/// # Errors
/// If the lock cannot be taken.
pub fn timed(subjects: &mut [Subject], workload: &Workload, settings: &Settings) -> Result<Vec<Series>> {
    let plan = settings.plan(workload.frames.len());
    with_lock(settings, || measure::interleaved(subjects, &workload.frames, plan))
}

/// A program without a C version, compared with the interpreter: millions of packets per second, which must be at least
/// `least`.
///
/// # Errors
/// As [`run`].
pub fn rate(title: &str, workload: &Workload, least: f64, settings: &Settings) -> Result<Row> {
    let sluice = subject::sluice("Sluice", workload, &settings.options)?;
    let mut subjects = vec![sluice, subject::interpreter(workload, &settings.options)?];
    let fates = compared(title, &mut subjects, workload, settings)?;
    anyhow::ensure!(fates[0] > 0, "{title}: every packet was dropped");
    subjects.truncate(1);
    let series = timed(&mut subjects, workload, settings)?;
    let mega = crate::origin::ticks_per_second() / 1e6;
    let at = |part| mega / measure::quantile(&series[0].rounds, part);
    let ratio = Ratio { value: at(0.5), low: at(0.75), high: at(0.25) };
    let bar = Bar { at_most: false, unit: " Mpps", ..Bar::with("packets a second", ratio, least) };
    Ok(Row { name: title.to_string(), series, bars: vec![bar], fates })
}

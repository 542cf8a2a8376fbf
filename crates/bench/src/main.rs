//! `sluice-bench`: runs the named measurements, or all; prints tables, writes CSV files and plots.

use anyhow::{Result, ensure};
use bench::frames::Frames;
use bench::report::{Figures, Report, Run};
use bench::rows::{self, Settings, WORKS, Work};
use bench::subject::Options;
use bench::workers::{Cells, Spread};
use bench::workload::{Flows, Workload, heavy_hitter, l2l3acl, pins, stateful_firewall};
use bench::{
    cached, changes, copies, disturbance, examples, growth, kinds, openflow, parts, passes, ports, projection, updates,
    workers,
};
use clap::{Parser, Subcommand};
use datapath::{Specialise, Without};
use std::path::PathBuf;

/// Default number of packets in a batch.
const BATCH: u16 = 32;

/// Measures compiled P4 programs from memory, beside hand-written C that does the same.
#[derive(Parser)]
#[command(max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// What to run, by name or a part of it; without any, all.
    names: Vec<String>,
    /// Print the names.
    #[arg(long)]
    list: bool,
    /// Packets of a batch.
    #[arg(long, default_value_t = BATCH, value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: u16,
    /// Turns of each subject; curves have half as many, tables that change five at most.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// A checkout of p4lang/p4c, for the SAI P4 program.
    #[arg(long, value_name = "DIR")]
    p4c: Option<PathBuf>,
    /// Where CSV files and plots go.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Hold this file's lock while something is timed, so that measurements on one machine take turns.
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Leave optimisations out, by name (as `sluice check --help` lists them).
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    without: Vec<String>,
    /// How machine code goes through batches: `rtc`, `staged`, or `auto` by the sizes of the tables.
    #[arg(long, default_value = "auto")]
    strategy: jit::Strategy,
    /// Name the machine code in /tmp/perf-PID.map, for `perf report`.
    #[arg(long)]
    perf_map: bool,
    /// Time code that is right for any tables, not code that was compiled again for the filled ones.
    #[arg(long)]
    generic: bool,
    /// Tiny counts, to try the benchmark itself: what it prints means nothing, and is held against nothing.
    #[arg(long)]
    quick: bool,
}

/// What is done instead of a measurement.
#[derive(Subcommand)]
enum Command {
    /// Draw what `bench/ports/run.py` has measured: a plot for each workload and kind of ports.
    PlotPorts {
        /// Its readings.
        csv: PathBuf,
        /// Where the plots go.
        folder: PathBuf,
    },
    /// Predict what many workers do that share state: measure its costs and two workers here, then simulate.
    SimulateContention {
        /// Time to get a cache line from a worker that shares no cache, instead of the measured one.
        #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
        transfer: Option<f64>,
        /// The same within a group of workers.
        #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
        near: Option<f64>,
        /// Workers of a group.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
        /// Transfers that overlap where cells are prefetched, instead of the measured number.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        overlap: Option<u16>,
        /// Time per packet that ports take.
        #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = nanoseconds)]
        ports: f64,
        /// Numbers of workers.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 8, 32], value_parser = clap::value_parser!(u16).range(1..=64))]
        workers: Vec<u16>,
        /// Of all that is random.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Rounds of each measured row.
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Where CSV files go.
        #[arg(long, value_name = "DIR", default_value = "target/bench")]
        out: PathBuf,
        /// Hold this file's lock while something is timed.
        #[arg(long, value_name = "FILE")]
        lock: Option<PathBuf>,
        /// Tiny counts, to try the program itself: what it prints means nothing.
        #[arg(long)]
        quick: bool,
    },
}

/// A time such as `120ns` or `0.1us`, in nanoseconds.
fn nanoseconds(text: &str) -> Result<f64, String> {
    let (number, scale) = match (text.strip_suffix("ns"), text.strip_suffix("us")) {
        (Some(number), _) => (number, 1.0),
        (_, Some(number)) => (number, 1000.0),
        _ => (text, 1.0),
    };
    let value: f64 = number.trim().parse().map_err(|_| format!("`{text}` is no time such as 120ns"))?;
    let is_sensible = (0.0..=1e6).contains(&value);
    is_sensible.then_some(value * scale).ok_or_else(|| format!("`{text}` is not between 0 and a millisecond"))
}

impl Args {
    /// The options that change what is measured, as written on the command line.
    fn options(&self) -> String {
        let mut all = Vec::new();
        if self.batch != BATCH {
            all.push(format!("--batch {}", self.batch));
        }
        if !self.without.is_empty() {
            all.push(format!("--without {}", self.without.join(",")));
        }
        match self.strategy {
            jit::Strategy::Auto => {}
            jit::Strategy::RunToCompletion => all.push("--strategy rtc".to_string()),
            jit::Strategy::Staged => all.push("--strategy staged".to_string()),
        }
        if self.generic {
            all.push("--generic".to_string());
        }
        all.join(" ")
    }
}

/// Measures the cost of changes to tables.
type Updates = fn(&str, &Settings) -> Result<Figures>;

/// A measurement with a name on the command line.
enum Item {
    /// A program beside its C version.
    Work(&'static Work),
    /// SAI P4.
    Sai,
    /// Two workers beside one.
    Workers(&'static str, usize, usize),
    /// Two workers beside one, with a program that keeps state.
    Scaling(&'static Scaling),
    /// Packets that are copied, resubmitted or recirculated.
    Copies(&'static copies::Copies),
    /// A program without a C version.
    Examples(&'static examples::Examples),
    /// A flow cache.
    Cached(&'static cached::Cached),
    /// OpenFlow tables.
    OpenFlow(&'static openflow::OpenFlow),
    /// OpenFlow tables under attack.
    Attack(&'static disturbance::Attack),
    /// Cycles by part.
    Parts,
    /// A program with each strategy.
    Strategies(&'static str),
    /// A program with each engine and strategy.
    Engines(&'static str),
    /// A program for several architectures.
    Architectures(&'static str, fn(quick: bool) -> Workload),
    /// The effect of each pass.
    Passes(&'static str),
    /// The cost of changes to tables.
    Updates(&'static str, &'static str, Updates),
    /// A curve.
    Growth(&'static growth::Growth),
}

/// A program that keeps state, for two workers.
struct Scaling {
    name: &'static str,
    title: &'static str,
    state: State,
    spread: Spread,
}

/// What keeps the state.
enum State {
    /// Registers.
    Cells(Make, Cells),
    /// Meters, of as many customers.
    Meters(usize),
}

/// Makes a workload; `quick` makes tiny counts.
type Make = fn(quick: bool) -> Workload;

static ARCHITECTURES: [(&str, Make); 3] = [
    // Without flooded frames: PNA has no multicast groups.
    ("architectures-l2", |quick| Workload { odd: Frames::default(), ..(work_of("", "l2").workload)(quick) }),
    ("architectures-l3router", |quick| (work_of("", "l3router").workload)(quick)),
    ("architectures-firewall", |_| stateful_firewall::without_tables(Flows::Uniform(64), 64, 1)),
];

const FIREWALL_CELLS: Cells = Cells { registers: 1, size: 1 << 20 };
const SKETCH_CELLS: Cells = Cells { registers: 4, size: 1 << 16 };

static SCALING: [Scaling; 12] = [
    Scaling {
        name: "scaling-stateful_firewall",
        title: "two workers on stateful_firewall, 64 connections",
        state: State::Cells(|_| stateful_firewall::workload(Flows::Uniform(64), 64, 1), FIREWALL_CELLS),
        spread: Spread::Any,
    },
    Scaling {
        name: "scaling-stateful_firewall-rss",
        title: "two workers on stateful_firewall, 64 connections, a flow to one worker",
        state: State::Cells(|_| stateful_firewall::workload(Flows::Uniform(64), 64, 1), FIREWALL_CELLS),
        spread: Spread::ByFlow,
    },
    Scaling {
        name: "scaling-stateful_firewall-100k",
        title: "two workers on stateful_firewall, 100k connections",
        state: State::Cells(
            |quick| stateful_firewall::workload(Flows::Uniform(if quick { 500 } else { 100_000 }), 64, 1),
            FIREWALL_CELLS,
        ),
        spread: Spread::Any,
    },
    Scaling {
        name: "scaling-stateful_firewall-100k-rss",
        title: "two workers on stateful_firewall, 100k connections, a flow to one worker",
        state: State::Cells(
            |quick| stateful_firewall::workload(Flows::Uniform(if quick { 500 } else { 100_000 }), 64, 1),
            FIREWALL_CELLS,
        ),
        spread: Spread::ByFlow,
    },
    Scaling {
        name: "scaling-heavy_hitter",
        title: "two workers on heavy_hitter, 64 flows",
        state: State::Cells(|_| heavy_hitter::workload(Flows::Uniform(64), 64, 1), SKETCH_CELLS),
        spread: Spread::Any,
    },
    Scaling {
        name: "scaling-heavy_hitter-rss",
        title: "two workers on heavy_hitter, 64 flows, a flow to one worker",
        state: State::Cells(|_| heavy_hitter::workload(Flows::Uniform(64), 64, 1), SKETCH_CELLS),
        spread: Spread::ByFlow,
    },
    Scaling {
        name: "scaling-heavy_hitter-100k",
        title: "two workers on heavy_hitter, 100k flows",
        state: State::Cells(
            |quick| heavy_hitter::workload(Flows::Uniform(if quick { 500 } else { 100_000 }), 64, 1),
            SKETCH_CELLS,
        ),
        spread: Spread::Any,
    },
    Scaling {
        name: "scaling-heavy_hitter-100k-rss",
        title: "two workers on heavy_hitter, 100k flows, a flow to one worker",
        state: State::Cells(
            |quick| heavy_hitter::workload(Flows::Uniform(if quick { 500 } else { 100_000 }), 64, 1),
            SKETCH_CELLS,
        ),
        spread: Spread::ByFlow,
    },
    Scaling {
        name: "scaling-rate_limiter",
        title: "two workers on rate_limiter, 64 customers",
        state: State::Meters(64),
        spread: Spread::Any,
    },
    Scaling {
        name: "scaling-rate_limiter-rss",
        title: "two workers on rate_limiter, 64 customers, a flow to one worker",
        state: State::Meters(64),
        spread: Spread::ByFlow,
    },
    Scaling {
        name: "scaling-rate_limiter-50k",
        title: "two workers on rate_limiter, 50k customers",
        state: State::Meters(50_000),
        spread: Spread::Any,
    },
    Scaling {
        name: "scaling-rate_limiter-50k-rss",
        title: "two workers on rate_limiter, 50k customers, a flow to one worker",
        state: State::Meters(50_000),
        spread: Spread::ByFlow,
    },
];

impl Item {
    fn all() -> Vec<Item> {
        let mut all: Vec<Item> = WORKS.iter().map(Item::Work).collect();
        all.push(Item::Sai);
        all.push(Item::Workers("workers", 1000, 64));
        all.push(Item::Workers("workers-100k", 100_000, 1_000_000));
        all.extend(SCALING.iter().map(Item::Scaling));
        all.extend(copies::ALL.iter().map(Item::Copies));
        all.extend(examples::ALL.iter().map(Item::Examples));
        all.extend(cached::ALL.iter().map(Item::Cached));
        all.extend(openflow::ALL.iter().map(Item::OpenFlow));
        all.extend(disturbance::ATTACKS.iter().map(Item::Attack));
        let revalidation = "200,000 OpenFlow megaflows after a change that they all depend on";
        all.push(Item::Updates("openflow-revalidation", revalidation, disturbance::revalidation));
        let flow_mods = "OpenFlow flow mods by the hundred thousand while packets run";
        all.push(Item::Updates("openflow-flow-mods", flow_mods, disturbance::flow_mods));
        all.push(Item::Parts);
        let large = ["strategies-l2l3acl-1k", "strategies-l2l3acl-100k", "strategies-l2l3acl-1m", "strategies-l2-100k"];
        all.extend(large.map(Item::Strategies));
        let engines =
            ["engines-l2l3acl-1k", "engines-l2", "engines-l3router", "engines-vxlan", "engines-stateful_firewall"];
        all.extend(engines.map(Item::Engines));
        all.extend(ARCHITECTURES.map(|(name, workload)| Item::Architectures(name, workload)));
        all.extend(["passes-l2l3acl", "passes-l2", "passes-l3router", "passes-vxlan"].map(Item::Passes));
        all.push(Item::Updates("insert", "Inserting while packets run, millions of entries a second", updates::insert));
        all.push(Item::Updates("memory", "Memory of a million entries", updates::memory));
        let learn = "Tables that packets write: a million stations, a flood of connections";
        all.push(Item::Updates("learn", learn, bench::learn::learn));
        let recompile = "Compiling l2l3acl again after a table has grown, while packets run";
        all.push(Item::Updates("recompile", recompile, updates::recompile));
        all.push(Item::Updates("kinds", "Kinds of tables that the other rows have none of", kinds::kinds));
        all.push(Item::Updates("changes-rule", "l2l3acl while a rule goes and comes", changes::rule));
        let of_many = "l2l3acl while a rule of 5,000 goes and comes";
        all.push(Item::Updates("changes-rule-5k", of_many, changes::rule_of_many));
        all.push(Item::Updates("changes-route", "l2l3acl while a route changes its next hop", changes::route));
        all.push(Item::Updates("changes-station", "l2l3acl while a station moves", changes::station));
        all.extend(growth::ALL.iter().map(Item::Growth));
        all
    }

    fn name(&self) -> &'static str {
        match self {
            Item::Work(work) => work.name,
            Item::Sai => "sai",
            Item::Workers(name, ..) | Item::Passes(name) | Item::Strategies(name) | Item::Engines(name) => name,
            Item::Architectures(name, _) => name,
            Item::Copies(copies) => copies.name,
            Item::Examples(row) => row.name,
            Item::Cached(row) => row.name,
            Item::OpenFlow(row) => row.name,
            Item::Attack(attack) => attack.name,
            Item::Parts => "parts",
            Item::Updates(name, ..) => name,
            Item::Growth(growth) => growth.name,
            Item::Scaling(scaling) => scaling.name,
        }
    }

    fn title(&self) -> String {
        match self {
            Item::Work(work) => work.title.to_string(),
            Item::Sai => "SAI P4: 10k routes, 100 next hops, 500 ternary entries that miss, 10k flows".to_string(),
            Item::Workers(_, entries, flows) => format!("two workers on l2l3acl, {entries} entries, {flows} flows"),
            Item::Scaling(scaling) => scaling.title.to_string(),
            Item::Copies(copies) => copies.title.to_string(),
            Item::Examples(row) => row.title(),
            Item::Cached(row) => row.title.to_string(),
            Item::OpenFlow(row) => row.title.to_string(),
            Item::Attack(attack) => attack.title.to_string(),
            Item::Parts => "parts of l2l3acl, 1k entries, 64 flows".to_string(),
            Item::Passes(name) => format!("optimisations, each alone and left out: {}", passes_work(name).title),
            Item::Strategies(name) => format!("strategies: {}", work_of("strategies-", name).title),
            Item::Engines(name) => format!("engines: {}", work_of("engines-", name).title),
            Item::Architectures(name, _) => {
                format!("{} for each architecture, 64 flows", name.trim_start_matches("architectures-"))
            }
            Item::Updates(_, title, _) => title.to_string(),
            Item::Growth(growth) => growth.title.to_string(),
        }
    }

    fn run(&self, args: &Args, settings: &Settings, report: &Report) -> Result<()> {
        let of = |n: usize, flows: usize| -> Workload {
            let size = if args.quick { (n.min(300), flows.min(500)) } else { (n, flows) };
            l2l3acl::workload(l2l3acl::Size::of(size.0, size.1))
        };
        let title = self.title();
        let row = match self {
            Item::Growth(growth) => return report.curves(&growth::run(growth, settings)?),
            Item::Updates(_, _, run) => return report.figures(&run(&title, settings)?),
            Item::Work(work) => rows::run(work, settings)?,
            Item::Sai => {
                let Some(p4c) = &args.p4c else {
                    println!("{title}: left out, there is no --p4c\n");
                    return Ok(());
                };
                let program = p4c.join("testdata/p4_16_samples/pins/pins_middleblock.p4");
                let workload = pins::workload(&program, if args.quick { 500 } else { 10_000 });
                rows::rate(&title, &workload, 3.0, settings)?
            }
            Item::Workers(_, entries, flows) => {
                if !args.quick && std::thread::available_parallelism().map_or(1, usize::from) < 2 {
                    println!("{title}: left out, there is one CPU\n");
                    return Ok(());
                }
                workers::run(&title, &of(*entries, *flows), (Spread::Any, None), 1.9, settings)?
            }
            Item::Scaling(scaling) => {
                if !args.quick && std::thread::available_parallelism().map_or(1, usize::from) < 2 {
                    println!("{title}: left out, there is one CPU\n");
                    return Ok(());
                }
                match scaling.state {
                    State::Cells(workload, cells) => {
                        workers::run(&title, &workload(args.quick), (scaling.spread, Some(cells)), 1.85, settings)?
                    }
                    State::Meters(customers) => {
                        let customers = if args.quick { customers.min(500) } else { customers };
                        let loaded = workers::rate_limiter(customers, settings)?;
                        workers::measured(&title, &loaded, (scaling.spread, None), 1.85, settings)?
                    }
                }
            }
            Item::Copies(row) => copies::run(row, settings)?,
            Item::Examples(row) => examples::run(row, settings)?,
            Item::Cached(row) => cached::run(row, settings)?,
            Item::OpenFlow(row) => openflow::run(row, settings)?,
            Item::Attack(attack) => disturbance::attack(attack, settings)?,
            Item::Parts => parts::run(&title, &of(1000, 64), settings)?,
            Item::Strategies(name) => {
                rows::strategies(&title, &(work_of("strategies-", name).workload)(args.quick), settings)?
            }
            Item::Engines(name) => rows::engines(&title, &(work_of("engines-", name).workload)(args.quick), settings)?,
            Item::Architectures(_, workload) => rows::architectures(&title, &workload(args.quick), settings)?,
            Item::Passes(name) => passes::run(&title, &(passes_work(name).workload)(args.quick), settings)?,
        };
        report.row(self.name(), &row)
    }
}

/// The row whose program `passes-...` measures.
fn passes_work(name: &str) -> &'static Work {
    let program = name.trim_start_matches("passes-");
    WORKS
        .iter()
        .find(|w| w.name.trim_end_matches("-1k") == program)
        .expect("passes are measured on programs with a row")
}

/// The row whose program `strategies-...` or `engines-...` measures.
fn work_of(prefix: &str, name: &str) -> &'static Work {
    let row = name.trim_start_matches(prefix);
    WORKS.iter().find(|w| w.name == row).expect("strategies and engines are measured on rows")
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.command {
        None => measure(&args),
        Some(Command::PlotPorts { csv, folder }) => {
            ports::plots(&csv, &folder)?.iter().for_each(|path| println!("{}", path.display()));
            Ok(())
        }
        Some(Command::SimulateContention {
            transfer,
            near,
            group,
            overlap,
            ports,
            workers,
            seed,
            rounds,
            out,
            lock,
            quick,
        }) => {
            let simulated = projection::Options {
                far_ns: transfer,
                near_ns: near,
                group: group.into(),
                overlap: overlap.map(usize::from),
                ports_ns: ports,
                workers: workers.into_iter().map(usize::from).collect(),
                seed,
                out,
            };
            let options = Options::default();
            let settings = Settings { options, batch: BATCH.into(), rounds: rounds.into(), lock, quick };
            bench::origin::lines().iter().for_each(|l| println!("{l}"));
            projection::run(&simulated, &settings)
        }
    }
}

/// Runs the named measurements.
fn measure(args: &Args) -> Result<()> {
    let mut items = Item::all();
    if args.list {
        items.iter().for_each(|i| println!("{:<24} {}", i.name(), i.title()));
        return Ok(());
    }
    // A name that is an exact match selects only that item.
    let exactly = |name: &str| args.names.iter().any(|n| n == name);
    let partly =
        |name: &str| args.names.iter().any(|n| !Item::all().iter().any(|i| i.name() == n) && name.contains(n.as_str()));
    items.retain(|i| args.names.is_empty() || exactly(i.name()) || partly(i.name()));
    ensure!(!items.is_empty(), "no benchmark has this name; --list prints all");
    let mut options = Options::default();
    let without = Without::new(&args.without).map_err(anyhow::Error::msg)?;
    options.frontend.opt = without.passes();
    options.code = without.code();
    options.code.jit.perf_map = args.perf_map;
    options.code.jit.strategy = args.strategy;
    if args.generic {
        options.specialise = Specialise::Off;
    }
    let settings = Settings {
        options,
        batch: args.batch.into(),
        rounds: args.rounds.into(),
        lock: args.lock.clone(),
        quick: args.quick,
    };
    if let Ok(kind) = std::env::var(updates::MEMORY_OF) {
        println!("{}", updates::memory_alone(&kind, &settings)?);
        return Ok(());
    }
    bench::origin::lines().iter().for_each(|l| println!("{l}"));
    println!(
        "batches of {}, subjects take turns, round by round; cycles of the time stamp counter per packet",
        args.batch
    );
    println!("ratios are of medians; quartiles are of the rounds' own ratios; spread is between quartiles");
    if args.quick {
        println!("tiny counts: nothing here is a measurement, and nothing is held against a bar");
    }
    println!();
    let report = Report::new(args.out.clone(), Run { options: args.options(), quick: args.quick })?;
    for item in &items {
        item.run(args, &settings, &report)?;
    }
    println!("CSV files and plots: {}", report.folder().display());
    Ok(())
}

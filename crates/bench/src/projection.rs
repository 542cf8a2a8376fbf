//! `sluice-bench simulate-contention`: what [`crate::contention`] predicts, beside what is measured.
//!
//! 1. Programs that keep state run with one and two workers, as in the rows `scaling-…`. Before and after each round the costs of
//!    sharing are measured ([`crate::calibration`]), since virtual processors move between near and far; a round in which they
//!    have changed is left out. The simulation gets these costs, and the round's pass: the time of one worker with code for
//!    several. It predicts two workers; nothing is fitted to a row. Threads of a few instructions are predicted, too.
//! 2. Then it runs for more workers, Zipf traffic, and other forms of the same programs.
//!
//! Files: `contention-rows.csv` and `contention.csv`.

use crate::calibration::{self, Costs, Kernel};
use crate::contention::lines::{Time, Transfers};
use crate::contention::programs::{Access, Layout, Program, Wait};
use crate::contention::simulation::{Outcome, Parameters, run as simulate};
use crate::contention::traffic::{Arrival, Shares, Spread};
use crate::csv_table::CsvTable;
use crate::frames::Frames;
use crate::measure::{Plan, Track, quantile};
use crate::origin;
use crate::report::{short, table};
use crate::rows::{Settings, with_lock};
use crate::subject;
use crate::workers::{self, Loaded, on_threads};
use crate::workload::{Flows, heavy_hitter, stateful_firewall};
use anyhow::{Context, Result};
use datapath::Pipeline;
use datapath::timing::ticks;
use random::Random;
use std::path::PathBuf;

/// What the command line may say.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nanoseconds to get a line from a worker that shares no cache, instead of the measured ones.
    pub far_ns: Option<f64>,
    /// The same within a group of workers.
    pub near_ns: Option<f64>,
    /// Workers of a group.
    pub group: usize,
    /// Transfers that overlap when lines are prefetched, instead of the measured number.
    pub overlap: Option<usize>,
    /// Nanoseconds per packet that ports take.
    pub ports_ns: f64,
    /// Numbers of workers.
    pub workers: Vec<usize>,
    /// Of all that is random.
    pub seed: u64,
    /// Where the files go.
    pub out: PathBuf,
}

/// A program that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measured {
    Firewall,
    HeavyHitter,
    RateLimiter,
}

const MEASURED: [Measured; 3] = [Measured::Firewall, Measured::HeavyHitter, Measured::RateLimiter];

/// Most customers of `rate_limiter`: its program declares a table of 65,536 entries.
const CUSTOMERS_MAX: usize = 50_000;
/// What is measured before and after a round differs by no more than this factor, or the round is left out.
const STEADY: f64 = 1.3;
/// Least nanoseconds of a transfer in a round that counts: with less, both processors are threads of one core.
const APART_MIN_NS: f64 = 5.0;
/// Times that a pass is measured.
const PASSES: usize = 4;
/// Tries for each round that counts.
const TRIES: usize = 3;
/// Costs that differ by this factor are those of near and far processors.
const APART: f64 = 2.0;
/// Exponents of Zipf's law.
const EXPONENTS: [f64; 3] = [0.0, 0.9, 1.1];
/// Numbers of flows.
const FLOWS: [u32; 3] = [64, 100_000, 1_000_000];
/// Packets that a queue holds, as a port's ring.
const QUEUE: usize = 1024;
/// Packets of a round, untimed and timed.
const ROUND: (usize, usize) = (100_000, 400_000);
/// Simulated packets, uncounted and counted.
const SIMULATED: (u64, u64) = (8_000, 24_000);

impl Measured {
    fn name(self) -> &'static str {
        match self {
            Measured::Firewall => "stateful_firewall",
            Measured::HeavyHitter => "heavy_hitter",
            Measured::RateLimiter => "rate_limiter",
        }
    }

    fn access(self) -> Access {
        match self {
            Measured::Firewall => Access::Peek(0.0),
            Measured::HeavyHitter => Access::Locked(Wait::Poll),
            Measured::RateLimiter => Access::Locked(Wait::Retry),
        }
    }

    fn layout(self) -> Layout {
        let stride = abi::register_stride_bytes(32, true) as usize;
        match self {
            Measured::Firewall => Layout::Registers { count: 1, cells: 1 << 20, stride },
            Measured::HeavyHitter => Layout::Registers { count: 4, cells: 1 << 16, stride },
            Measured::RateLimiter => Layout::Entries { cells: 1 << 16, stride: 128 },
        }
    }

    /// The flows of its rows.
    fn flows(self, many: bool) -> usize {
        match (self, many) {
            (_, false) => 64,
            (Measured::RateLimiter, true) => CUSTOMERS_MAX,
            (_, true) => 100_000,
        }
    }
}

fn load(program: Measured, flows: usize, settings: &Settings) -> Result<Loaded> {
    match program {
        Measured::Firewall => {
            Loaded::new(program.name(), &stateful_firewall::workload(Flows::Uniform(flows), 64, 1), settings)
        }
        Measured::HeavyHitter => {
            Loaded::new(program.name(), &heavy_hitter::workload(Flows::Uniform(flows), 64, 1), settings)
        }
        Measured::RateLimiter => workers::rate_limiter(flows, settings),
    }
}

/// Cycles per packet of workers that play frames at the same time, all together, and the untimed cycles per packet of each.
fn timed(pipeline: &Pipeline, parts: &[Frames], plan: Plan) -> (f64, f64) {
    let each = on_threads(parts.len(), |worker, start| {
        let mut subject = subject::of_pipeline("", pipeline, worker);
        let mut track = Track::new(plan.batch);
        let mut at = worker * parts[worker].len() / parts.len();
        start.wait();
        let begin = ticks();
        let cycles = track.turn(&mut subject, &parts[worker], &mut at, plan.warm, plan.count);
        (cycles, (ticks() - begin) as f64 / (plan.warm + plan.count) as f64 - cycles)
    });
    let gap = each.iter().map(|(_, gap)| gap.max(0.0)).sum::<f64>() / each.len() as f64;
    (workers::shared(each.into_iter().map(|(cycles, _)| cycles).collect()), gap)
}

/// Cycles as picoseconds.
#[derive(Clone, Copy)]
struct Clock {
    ticks_per_ns: f64,
}

impl Clock {
    fn time(self, cycles: f64) -> Time {
        (cycles / self.ticks_per_ns * 1000.0).round() as Time
    }

    fn ns(self, cycles: f64) -> f64 {
        cycles / self.ticks_per_ns
    }
}

/// One round of a row, in cycles per packet.
#[derive(Clone, Copy, Debug)]
struct Round {
    costs: Costs,
    /// Whether the costs were the same before and after.
    steady: bool,
    /// One worker with code for one.
    alone: f64,
    /// One worker with code for several.
    pass: f64,
    /// Two.
    two: f64,
    predicted: f64,
}

/// A row: what was measured and predicted.
struct Row {
    title: String,
    rounds: Vec<Round>,
}

impl Row {
    /// The rounds that count; all, if none does.
    fn steady(&self) -> Vec<Round> {
        let steady: Vec<Round> = self.rounds.iter().filter(|round| round.steady).copied().collect();
        if steady.is_empty() { self.rounds.clone() } else { steady }
    }

    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        quantile(&self.steady().iter().map(of).collect::<Vec<f64>>(), 0.5)
    }
}

/// Whether two measurements of the same are alike.
fn alike(a: f64, b: f64) -> bool {
    a.max(b) <= STEADY * a.min(b)
}

/// Costs before and after something, as one, and whether they are alike and those of two cores.
fn around<R>(clock: Clock, run: impl FnOnce() -> R) -> (Costs, bool, R) {
    let before = Costs::measure();
    let result = run();
    let after = Costs::measure();
    let mean = |of: fn(&Costs) -> f64| (of(&before) + of(&after)) / 2.0;
    let costs = Costs { transfer: mean(|c| c.transfer), overlap: mean(|c| c.overlap), lock: mean(|c| c.lock) };
    let steady = alike(before.transfer, after.transfer) && clock.ns(costs.transfer) >= APART_MIN_NS;
    (costs, steady, result)
}

/// Rounds until enough count, or the tries are used up.
fn rounds_of(settings: &Settings, mut round: impl FnMut() -> Round) -> Vec<Round> {
    let mut all: Vec<Round> = Vec::new();
    while all.iter().filter(|round| round.steady).count() < settings.rounds && all.len() < TRIES * settings.rounds {
        all.push(round());
    }
    all
}

/// Everything that a simulation needs but its program and traffic.
struct Ground<'a> {
    clock: Clock,
    pause: f64,
    batch: usize,
    options: &'a Options,
}

impl Ground<'_> {
    /// The parameters of two workers that do what was measured.
    fn two(&self, costs: &Costs, spread: Spread, arrival: Arrival, gap: f64) -> Parameters {
        let transfer = self.clock.time(costs.transfer);
        Parameters {
            workers: 2,
            transfers: Transfers { near: transfer, far: transfer, group: self.options.group },
            overlap: costs.overlap.round() as usize,
            retry: self.clock.time(self.pause),
            spread,
            arrival,
            batch: self.batch,
            gap: self.clock.time(gap),
            packets: SIMULATED,
            seed: self.options.seed,
        }
    }

    /// A program as measured.
    fn program(&self, measured: Measured, flows: u32, pass: f64, lock: f64) -> Program {
        let layout = measured.layout();
        let locks = layout.places(0).count() as f64;
        let in_use = 64 * layout.lines().min(flows as usize * layout.places(0).count());
        let registers = matches!(layout, Layout::Registers { .. });
        Program {
            name: measured.name().to_string(),
            access: measured.access(),
            layout,
            pass: self.clock.time(pass),
            hold: self.clock.time((locks * lock).min(pass / 2.0)),
            prefetches: registers && (in_use / layout.places(0).count()) as u64 > jit::prefetched_bytes_min(true),
        }
    }
}

/// Packets of flows by Zipf's law; without an exponent, all frames.
fn frames_of(loaded: &Loaded, exponent: f64, count: usize) -> Frames {
    if exponent == 0.0 {
        return loaded.frames.clone();
    }
    let shares = Shares::zipf(loaded.frames.len() as u32, exponent);
    let mut random = Random::stream(1, 9);
    let mut frames = Frames::with_capacity(count, 64);
    for _ in 0..count {
        let (port, frame) = loaded.frames.get(shares.draw(&mut random) as usize);
        frames.push(port as u16, frame);
    }
    frames
}

/// Measures a program with one and two workers, and predicts two.
fn measure_row(
    (program, loaded): (Measured, &Loaded),
    (spread, exponent): (Spread, f64),
    ground: &Ground<'_>,
    settings: &Settings,
) -> Row {
    let by_flow = if spread == Spread::ByFlow { ", a flow to one worker" } else { "" };
    let flows = loaded.frames.len();
    let plan = settings_plan(settings);
    let frames = frames_of(loaded, exponent, plan.count);
    let all = workers::Spread::Any.of(&frames, 1);
    let parts = match spread {
        Spread::Any => workers::Spread::Any.of(&frames, 2),
        Spread::ByFlow => workers::Spread::ByFlow.of(&frames, 2),
    };
    let shares = Shares::zipf(flows as u32, exponent);
    let arrival = if exponent == 0.0 { Arrival::Rounds } else { Arrival::Saturated };
    let round = || {
        let (costs, steady, (alone, before, (two, gap), after)) = around(ground.clock, || {
            let pass = || timed(&loaded.shared, &all, plan).0;
            (timed(&loaded.alone, &all, plan).0, pass(), timed(&loaded.shared, &parts, plan), pass())
        });
        let pass = (before + after) / 2.0;
        let parameters = ground.two(&costs, spread, arrival, gap);
        let outcome = simulate(&ground.program(program, flows as u32, pass, costs.lock), &shares, &parameters);
        let predicted = outcome.packet_ns * ground.clock.ticks_per_ns;
        Round { costs, steady: steady && alike(before, after), alone, pass, two, predicted }
    };
    let zipf = if exponent == 0.0 { String::new() } else { format!(", Zipf {exponent}") };
    let title = format!("{}, {} flows{zipf}{by_flow}", program.name(), short(flows as f64));
    Row { title, rounds: rounds_of(settings, round) }
}

fn settings_plan(settings: &Settings) -> Plan {
    let (warm, count) = if settings.quick { (64, 256) } else { ROUND };
    Plan { batch: settings.batch, rounds: settings.rounds, warm, count }
}

/// Two threads that only add or lock, which the simulation predicts as well.
fn kernel_row(
    title: &str,
    kernel: Kernel,
    access: Access,
    lines: usize,
    ground: &Ground<'_>,
    settings: &Settings,
) -> Row {
    let shares = Shares::zipf(lines as u32, 0.0);
    let round = || {
        let (costs, steady, (pass, two)) = around(ground.clock, || {
            (calibration::cycles(kernel, 1, lines), calibration::cycles(kernel, 2, lines) / 2.0)
        });
        let program = Program {
            name: String::new(),
            access,
            layout: Layout::Entries { cells: lines, stride: 64 },
            pass: ground.clock.time(pass),
            hold: ground.clock.time(costs.lock.min(pass / 2.0)),
            prefetches: false,
        };
        // A step of a kernel is a packet, in batches of one.
        let parameters = Parameters { batch: 1, ..ground.two(&costs, Spread::Any, Arrival::Saturated, 0.0) };
        let predicted = simulate(&program, &shares, &parameters).packet_ns * ground.clock.ticks_per_ns;
        Round { costs, steady, alone: pass, pass, two, predicted }
    };
    Row { title: title.to_string(), rounds: rounds_of(settings, round) }
}

/// Passes with one worker, in cycles: with code for one worker, and for several.
#[derive(Clone, Copy)]
struct Passes {
    alone: f64,
    shared: f64,
}

/// The passes of a program with flows by Zipf's law.
fn passes(loaded: &Loaded, exponent: f64, settings: &Settings) -> Passes {
    let plan = settings_plan(settings);
    let frames = [frames_of(loaded, exponent, plan.count)];
    // In turns, and the least: whatever else the machine does only adds to it.
    let each: Vec<(f64, f64)> =
        (0..PASSES).map(|_| (timed(&loaded.alone, &frames, plan).0, timed(&loaded.shared, &frames, plan).0)).collect();
    let least = |of: fn(&(f64, f64)) -> f64| each.iter().map(of).fold(f64::INFINITY, f64::min);
    Passes { alone: least(|each| each.0), shared: least(|each| each.1) }
}

/// A form of a program that is simulated.
struct Form {
    name: &'static str,
    measured: Measured,
    access: Access,
    layout: Option<Layout>,
}

/// Forms of programs. Those that no row measures have the pass of the program that does most like them.
const FORMS: [Form; 8] = [
    form("stateful_firewall, open connections", Measured::Firewall, Access::Peek(0.0)),
    form("stateful_firewall, one packet in ten changes its connection", Measured::Firewall, Access::Peek(0.1)),
    form("rate_limiter", Measured::RateLimiter, Access::Locked(Wait::Retry)),
    form("heavy_hitter", Measured::HeavyHitter, Access::Locked(Wait::Poll)),
    Form {
        layout: Some(Layout::Registers { count: 4, cells: 1 << 20, stride: 8 }),
        ..form("heavy_hitter, 16 times the cells", Measured::HeavyHitter, Access::Locked(Wait::Poll))
    },
    form("heavy_hitter, workers in turns", Measured::HeavyHitter, Access::Turn),
    Form {
        layout: Some(Layout::Registers { count: 1, cells: 1 << 16, stride: 8 }),
        ..form("a counter for each flow, by atomic adds", Measured::Firewall, Access::Add)
    },
    form("a counter for each flow and worker", Measured::Firewall, Access::Own),
];

const fn form(name: &'static str, measured: Measured, access: Access) -> Form {
    Form { name, measured, access, layout: None }
}

/// Near and far transfers among all that were measured: the medians of those below and above half of the longest.
fn distances(all: &[f64]) -> (f64, f64) {
    let longest = all.iter().copied().fold(0.0, f64::max);
    let (far, near): (Vec<f64>, Vec<f64>) = all.iter().partition(|transfer| **transfer * APART > longest);
    let far = quantile(&far, 0.5);
    (if near.is_empty() { far } else { quantile(&near, 0.5) }, far)
}

/// Measures, predicts, prints, and writes the files.
///
/// # Errors
/// If a program cannot be loaded or differs from its reference, or a file cannot be written.
pub fn run(options: &Options, settings: &Settings) -> Result<()> {
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot make {}", options.out.display()))?;
    let clock = Clock { ticks_per_ns: origin::ticks_per_second() / 1e9 };
    let ground = Ground { clock, pause: calibration::pause(), batch: settings.batch, options };
    let mut rows = Vec::new();
    // By program, few and many flows: the passes by exponent.
    let mut known: Vec<(Measured, bool, Vec<Passes>)> = Vec::new();
    let loaded = |program: Measured, many: bool| {
        let flows = program.flows(many);
        load(program, if settings.quick { flows.min(500) } else { flows }, settings)
    };
    let mut all = Vec::new();
    for program in MEASURED {
        for many in [false, true] {
            all.push((program, many, loaded(program, many)?));
        }
    }
    println!("everything is loaded and compared: now it is measured");
    with_lock(settings, || {
        for (program, many, loaded) in &all {
            let traffic = [(Spread::Any, 0.0), (Spread::ByFlow, 0.0), (Spread::Any, 1.1)];
            for how in traffic.into_iter().filter(|(_, exponent)| *many || *exponent == 0.0) {
                rows.push(measure_row((*program, loaded), how, &ground, settings));
            }
            known.push((*program, *many, EXPONENTS.map(|exponent| passes(loaded, exponent, settings)).to_vec()));
        }
        let kernels = [
            ("threads that add to 64 lines", Kernel::ChainedAdd, Access::Add, 64),
            ("threads that add to one line", Kernel::ChainedAdd, Access::Add, 1),
            ("threads that lock 64 lines", Kernel::ChainedLock, Access::Locked(Wait::Poll), 64),
            ("threads that lock one line", Kernel::ChainedLock, Access::Locked(Wait::Poll), 1),
        ];
        for (title, kernel, access, lines) in kernels {
            rows.push(kernel_row(title, kernel, access, lines, &ground, settings));
        }
    })?;
    print_rows(&rows, clock, options)?;
    let all = || rows.iter().flat_map(|row| &row.rounds);
    let mut costs: Vec<Costs> = all().filter(|round| round.steady).map(|round| round.costs).collect();
    if costs.is_empty() {
        costs = all().map(|round| round.costs).collect();
    }
    print_projection(&costs, &known, &ground)
}

fn print_rows(rows: &[Row], clock: Clock, options: &Options) -> Result<()> {
    let columns = [
        "row",
        "rounds",
        "left_out",
        "transfer_ns",
        "one_ns",
        "pass_ns",
        "two_ns",
        "predicted_ns",
        "predicted_over_measured",
        "low",
        "high",
    ];
    let mut csv = CsvTable::new(&columns);
    for row in rows {
        let steady = row.steady();
        let ratios: Vec<f64> = steady.iter().map(|round| round.predicted / round.two).collect();
        let ns = |of: fn(&Round) -> f64| format!("{:.1}", clock.ns(row.median(of)));
        let counted = row.rounds.iter().filter(|round| round.steady).count();
        let mut line = vec![row.title.clone(), counted.to_string(), (row.rounds.len() - counted).to_string()];
        line.extend([ns(|r| r.costs.transfer), ns(|r| r.alone), ns(|r| r.pass), ns(|r| r.two), ns(|r| r.predicted)]);
        line.extend([0.5, 0.0, 1.0].map(|part| format!("{:.2}", quantile(&ratios, part))));
        csv.push(line)?;
    }
    println!("Two workers, measured and predicted; times are per packet, all workers together, medians of rounds");
    println!("{}", table(&columns, csv.lines.clone()));
    csv.write(&options.out.join("contention-rows.csv"))
}

fn print_projection(costs: &[Costs], known: &[(Measured, bool, Vec<Passes>)], ground: &Ground<'_>) -> Result<()> {
    let (options, clock) = (ground.options, ground.clock);
    let median = |of: fn(&Costs) -> f64| quantile(&costs.iter().map(of).collect::<Vec<f64>>(), 0.5);
    let (near, far) = distances(&costs.iter().map(|costs| costs.transfer).collect::<Vec<f64>>());
    let far = options.far_ns.unwrap_or(clock.ns(far));
    let near = options.near_ns.unwrap_or(clock.ns(near).min(far));
    // Near transfers are so short that other work hides them: what overlaps shows in far ones.
    let longest = costs.iter().map(|costs| costs.transfer).fold(0.0, f64::max);
    let of_far = costs.iter().filter(|costs| costs.transfer * APART > longest).map(|costs| costs.overlap);
    let measured = quantile(&of_far.collect::<Vec<f64>>(), 0.5).round() as usize;
    let overlap = options.overlap.unwrap_or(measured).max(1);
    println!(
        "transfer: {far:.0} ns, {near:.0} ns within {} workers; {overlap} prefetched ones overlap; a lock: {:.1} ns; a pause: {:.1} ns",
        options.group,
        clock.ns(median(|costs| costs.lock)),
        clock.ns(ground.pause),
    );
    let columns = [
        "program",
        "flows",
        "exponent",
        "spread",
        "workers",
        "packet_ns",
        "mpps",
        "times_one",
        "transfers",
        "waits_for_lines",
        "waits_for_locks",
        "idle",
    ];
    let mut csv = CsvTable::new(&columns);
    for flows in FLOWS {
        for (i, exponent) in EXPONENTS.into_iter().enumerate() {
            let shares = Shares::zipf(flows, exponent);
            for form in &FORMS {
                let passes =
                    known.iter().find(|(measured, many, _)| *measured == form.measured && *many == (flows > 64));
                let passes = passes.context("it was measured")?.2[i];
                let mut program = ground.program(form.measured, flows, passes.shared, median(|costs| costs.lock));
                program.access = form.access;
                program.layout = form.layout.unwrap_or(program.layout);
                // Only the first pass of compiled code prefetches; atomic adds and turns have none.
                program.prefetches &= matches!(form.access, Access::Peek(_) | Access::Locked(_));
                let spreads = [(Spread::Any, "any"), (Spread::ByFlow, "by flow")];
                for (spread, spread_name) in spreads {
                    for &workers in &options.workers {
                        let parameters = Parameters {
                            workers,
                            transfers: Transfers {
                                near: (near * 1000.0).round() as Time,
                                far: (far * 1000.0).round() as Time,
                                group: options.group,
                            },
                            overlap,
                            arrival: Arrival::Stream { queue: QUEUE },
                            gap: (options.ports_ns * 1000.0).round() as Time,
                            ..ground.two(&costs[0], spread, Arrival::Saturated, 0.0)
                        };
                        let outcome = simulate(&program, &shares, &parameters);
                        let one = clock.ns(passes.alone) + options.ports_ns;
                        let mut line = vec![form.name.to_string(), flows.to_string(), exponent.to_string()];
                        line.extend([spread_name.to_string(), workers.to_string()]);
                        line.extend(figures(&outcome, one));
                        csv.push(line)?;
                    }
                }
            }
        }
    }
    println!("{}", table(&columns, csv.lines.clone()));
    csv.write(&options.out.join("contention.csv"))
}

fn figures(outcome: &Outcome, one_ns: f64) -> Vec<String> {
    let Outcome { packet_ns, transfers, lines, locks, idle } = *outcome;
    let mut all = vec![format!("{packet_ns:.2}"), format!("{:.1}", 1000.0 / packet_ns)];
    all.extend([one_ns / packet_ns, transfers, lines, locks, idle].map(|figure| format!("{figure:.2}")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_apart_or_the_same() {
        assert_eq!(distances(&[100.0, 110.0, 120.0]), (110.0, 110.0));
        assert_eq!(distances(&[40.0, 45.0, 50.0, 200.0, 210.0, 220.0]), (45.0, 210.0));
    }

    #[test]
    fn rounds_in_which_costs_changed_are_left_out_unless_all_are() {
        let costs = Costs { transfer: 1.0, overlap: 1.0, lock: 1.0 };
        let round = |steady, two| Round { costs, steady, alone: 1.0, pass: 1.0, two, predicted: 1.0 };
        let row = |rounds| Row { title: String::new(), rounds };
        assert_eq!(row(vec![round(true, 3.0), round(false, 9.0)]).median(|r| r.two), 3.0);
        assert_eq!(row(vec![round(false, 9.0)]).median(|r| r.two), 9.0);
    }
}

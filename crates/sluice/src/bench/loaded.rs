//! `sluice bench X.p4 --control --fill TABLE=N --packets FILE`: whether packets are lost while the control plane
//! writes.
//!
//! A switch with one worker and paced ports ([`super::paced`]) is created in this process and served over TCP as by
//! `sluice run`.
//!
//! The *no-loss rate* is the highest rate at which, without writes, no packet finds the ring full in a fifth of a
//! second, and then in all of `--proof` seconds (throughput in RFC 2544, section 26.1). During the search a rate is
//! tried up to three times, so that disturbances by the rest of the machine do not make the worker appear slower; the
//! final rate is tried once. A packet costs more when tables are full, and more in generic code, which runs while
//! tables grow. The rate is therefore measured with the few entries of `--entries`; with all of `--fill` in code
//! specialised for the tables' contents; the same in the generic code that the program is loaded with; and at the end.
//! The lowest of the first three is what the program sustains whatever its tables contain, and that rate is used.
//!
//! Then the program is loaded anew, with empty tables, packets arrive at a share (`--share`) of that rate, and
//! everything that `--control` measures is done meanwhile, as fast as the switch answers, so tables grow to their full
//! size under load. Losses are counted for each phase, and a second table attributes them to causes ([`super::gaps`]).
//!
//! With `--turns`, writes alternate with intervals without writes ([`super::turns`]). With `--steps` nothing is
//! written; the load changes instead ([`super::steps`]).
//!
//! `--cores W,C` binds the worker to one processor and everything else (control plane, store, compiler, client) to
//! another.

use super::Args;
use super::control::{DEVICE, ELECTION_ID, Phase, Started, Taken, go, read_request, write_head};
use super::fill::Entries;
use super::gaps::{Cause, Gaps, Machine, Sum};
use super::paced::{CodeNow, Paced, PacedHandle, Passed};
use super::turns::{Pace, Pairs, SETTLED};
use crate::target::SwitchTarget;
use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table};
use control::Control;
use control::forwarding::ForwardingConfig;
use datapath::{EngineKind, Idle, Pipeline, Specialise, Switch, SwitchConfig};
use grpc::Handle;
use grpc::client::{Client, ClientError};
use pktio::HeapPool;
use prost::bytes::Bytes;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Packet buffers: enough for a few batches; packets in a ring have no buffer yet.
const BUFFERS: usize = 4096;
/// The first rate of the search, in packets per second.
const SLOWEST: u64 = 100_000;
/// Relative precision of the search, and the relative reduction of a rate that loses packets in the proof.
const EXACT: f64 = 0.02;
const STEP: f64 = 0.05;
/// Duration of a trial during the search, and most trials of a rate.
const TRIAL: Duration = Duration::from_millis(200);
const TRIALS: usize = 3;
/// Duration of the load before anything is written.
const QUIET: Duration = Duration::from_secs(2);
/// Time limit for specialised code; and the time to wait for code of a higher tier after it.
const COMPILED: Duration = Duration::from_secs(20);
const BETTER: Duration = Duration::from_millis(500);

/// The processors of the worker and of everything else.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    pub(super) worker: usize,
    others: usize,
}

impl std::str::FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Cores, String> {
        let wrong =
            || "two numbers of processors are needed: the worker's and that of everything else, as 1,0".to_string();
        let (worker, others) = text.split_once(',').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().ok().filter(|n| *n < CpuSet::MAX_CPU).ok_or_else(wrong);
        Ok(Cores { worker: number(worker)?, others: number(others)? })
    }
}

fn bind(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).with_context(|| format!("cannot be bound to processor {processor}"))
}

/// The ports under load.
pub(super) struct Load {
    ports: Vec<PacedHandle>,
    /// The indices in `ports` of those that have frames, and their share of all frames.
    sources: Vec<(usize, f64)>,
    /// How long no packet may be lost.
    proof: Duration,
}

impl Load {
    /// The sum of all ports' counters.
    pub(super) fn passed(&self) -> Passed {
        self.ports.iter().map(PacedHandle::passed).fold(Passed::default(), |sum, one| {
            // Ports of one worker miss the same time.
            Passed { stolen_s: sum.stolen_s.max(one.stolen_s), ..sum.and(&one) }
        })
    }

    /// Sets the total rate of all ports, in packets per second.
    pub(super) fn set_rate(&self, rate: u64) {
        self.sources.iter().for_each(|(port, share)| self.ports[*port].set_rate((rate as f64 * share) as u64));
    }

    /// The worker's gaps between the last two settings of the rate.
    pub(super) fn gaps(&self) -> Gaps {
        self.sources.iter().map(|(port, _)| self.ports[*port].gaps()).fold(Gaps::default(), |sum, one| sum.and(&one))
    }

    /// Calls `body` while packets arrive at `rate`; returns the counters' increase meanwhile, and `body`'s result.
    fn during<R>(&self, rate: u64, body: impl FnOnce() -> Result<R>) -> Result<(Passed, R)> {
        let before = self.passed();
        self.set_rate(rate);
        let done = body();
        self.set_rate(0);
        // The rings drain.
        std::thread::sleep(Duration::from_millis(20));
        let now = self.passed();
        let passed = Passed {
            arrived: now.arrived - before.arrived,
            lost: now.lost - before.lost,
            taken: now.taken - before.taken,
            sent: now.sent - before.sent,
            // Since the rate became zero the rings have only drained.
            fullest: now.fullest,
            stolen_s: now.stolen_s - before.stolen_s,
            calm_s: now.calm_s,
            drained_s: now.drained_s,
        };
        Ok((passed, done?))
    }

    /// Whether every trial loses packets. One trial without loss shows what the worker can do; a loss may be the
    /// machine's.
    fn loses(&self, rate: u64, time: Duration, trials: usize) -> Result<bool> {
        for _ in 0..trials {
            let (passed, ()) = self.during(rate, || {
                std::thread::sleep(time);
                Ok(())
            })?;
            // Losses that other programs and the host cause are not the switch's.
            if passed.lost as f64 - self.gaps().of(Cause::Others).lost < 0.5 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The highest rate without loss, in packets per second.
    ///
    /// # Errors
    /// If packets are lost at any rate.
    pub(super) fn no_loss_rate(&self) -> Result<u64> {
        let (mut low, mut high) = (0, SLOWEST);
        while !self.loses(high, TRIAL, TRIALS)? {
            (low, high) = (high, high * 2);
        }
        while high > SLOWEST / 2 && (high - low) as f64 > EXACT * high as f64 {
            let middle = low.midpoint(high);
            match self.loses(middle, TRIAL, TRIALS)? {
                true => high = middle,
                false => low = middle,
            }
        }
        let found = low;
        while low > found / 4 && self.loses(low, self.proof, 1)? {
            low = (low as f64 * (1.0 - STEP)) as u64;
        }
        ensure!(low > found / 4, "packets are lost at any rate: does something else use the worker's processor?");
        Ok(low)
    }
}

/// The switch under measurement.
struct Bench<'a> {
    args: &'a Args,
    config: ForwardingConfig,
    switch: Arc<Switch>,
    load: Load,
    /// The pipeline whose code processes the packets.
    running: Arc<Mutex<Option<Arc<Pipeline>>>>,
}

/// Measures a switch under load and prints the tables.
///
/// # Errors
/// If the arguments do not fit, the program or its entries are refused, or a request fails.
pub fn run(args: &Args, frames: &[(u32, Vec<u8>)]) -> Result<()> {
    let control_args = &args.control;
    ensure!(control_args.switch.is_none(), "--packets are for a switch of our own, not one that listens elsewhere");
    let steps = &control_args.steps;
    ensure!(!control_args.fill.is_empty() || !steps.is_empty(), "--control needs a table to write: --fill TABLE=N");
    let share = control_args.share;
    ensure!(share > 0.0 && share <= 1.0, "--share is a part of the no-loss rate, as 0.9");
    // Threads inherit the binding.
    control_args.cores.map_or(Ok(()), |cores| bind(cores.others))?;
    let cores = control_args.cores;
    let beside = crate::ports::parse(&control_args.beside)?;
    let mut opener = crate::ports::Opener::new(&beside, 1)?;
    let registers = opener.register_workers();
    let bind_worker = move |worker| {
        if let Some(Err(error)) = cores.map(|cores| bind(cores.worker)) {
            tracing::warn!("{error:#}");
        }
        registers.as_ref().map_or(Box::new(()) as Box<dyn std::any::Any>, |register| register(worker))
    };
    let compile = &args.program.compile;
    let pool = if beside.is_empty() { HeapPool::shared(BUFFERS) } else { opener.pool() };
    let switch = Arc::new(Switch::new(SwitchConfig {
        idle: Idle::Busy,
        pool: Some(Arc::clone(&pool)),
        on_worker_start: Some(Arc::new(bind_worker)),
        ..SwitchConfig::default()
    }));
    let engine = EngineKind::Machine;
    let target = SwitchTarget::new(
        Arc::clone(&switch),
        crate::compiler::Compiler::in_process(),
        compile.options()?,
        compile.code()?,
        engine,
        Specialise::Auto,
    );
    let mut control = Control::new();
    control.add_device(DEVICE, Arc::new(target));
    let device_config = super::swaps::text(compile, &args.program.program)?;
    let config = ForwardingConfig { device_config, ..Default::default() };
    let running: Arc<Mutex<Option<Arc<Pipeline>>>> = Arc::default();
    let numbers: BTreeSet<u32> = frames.iter().map(|(port, _)| *port).chain(args.out_ports.iter().copied()).collect();
    let mut load = Load { ports: vec![], sources: vec![], proof: Duration::from_secs(control_args.proof) };
    for number in numbers {
        let of: Vec<Vec<u8>> = frames.iter().filter(|(port, _)| *port == number).map(|(_, f)| f.clone()).collect();
        if !of.is_empty() {
            load.sources.push((load.ports.len(), of.len() as f64 / frames.len() as f64));
        }
        let now = Arc::clone(&running);
        let code_now: CodeNow = Arc::new(move || is_specialised(&now));
        let (device, handle) = Paced::new(format!("paced{number}"), of, control_args.ring, Arc::clone(&pool), code_now);
        switch.add_port(number, Box::new(device))?;
        load.ports.push(handle);
    }
    for port in &beside {
        switch.add_port(port.number, opener.open(port)?)?;
    }
    let bench = Bench { args, config, switch, load, running };
    bench.load_program(&mut control)?;
    if let Some(dir) = &control_args.state {
        let store = Arc::new(store::Store::open(dir)?);
        control.keep(DEVICE, store, false).map_err(|e| anyhow::anyhow!(e.message))?;
    }
    let handle = Handle::new(control);
    let server = grpc::serve(([127, 0, 0, 1], 0).into(), Arc::clone(&handle)).context("cannot serve P4Runtime")?;
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|s| {
        s.spawn(|| crate::run::pump(&bench.switch, &handle, &stop, None));
        let done = match args.control.steps.as_slice() {
            [] => bench.rows(&handle, &server.address().to_string()),
            steps => bench.compiled().and_then(|()| super::steps::run(&bench.load, steps, !beside.is_empty())),
        };
        stop.store(true, Ordering::Relaxed);
        done
    });
    server.shutdown();
    done
}

fn is_specialised(running: &Mutex<Option<Arc<Pipeline>>>) -> bool {
    running.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|pipeline| pipeline.runs_specialised())
}

impl Bench<'_> {
    /// Loads the program with the entries of `--entries` only.
    fn load_program(&self, control: &mut Control) -> Result<()> {
        control.load(DEVICE, self.config.clone()).map_err(|e| anyhow::anyhow!(e.message))?;
        let pipeline = self.switch.pipeline().context("a program runs")?;
        if let Some(file) = &self.args.entries {
            ensure!(crate::run::apply_entries(file, &pipeline, pipeline.replication())?, "the entries are wrong");
        }
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(pipeline);
        Ok(())
    }

    /// Sets what code may be specialised for from now on.
    fn specialise(&self, mode: Specialise) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().for_each(|pipeline| pipeline.specialise(mode));
    }

    /// Waits for specialised code, and for a higher tier that may follow.
    fn compiled(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            // Workers that receive no packets need not release old code.
            self.load.during(SLOWEST, || {
                std::thread::sleep(BETTER);
                Ok(())
            })?;
            if is_specialised(&self.running) {
                break;
            }
            ensure!(start.elapsed() < COMPILED, "there is no code for the tables as they are");
        }
        self.load.during(SLOWEST, || {
            std::thread::sleep(BETTER);
            Ok(())
        })?;
        Ok(())
    }

    /// Measures everything and prints it.
    fn rows(&self, handle: &Handle, address: &str) -> Result<()> {
        let (load, control) = (&self.load, &self.args.control);
        let million = |rate: u64| format!("{:.2} million packets/s", rate as f64 / 1e6);
        self.compiled()?;
        let few = load.no_loss_rate()?;
        println!("no-loss rate with few entries: {}", million(few));
        self.fill(address)?;
        self.compiled()?;
        let full = load.no_loss_rate()?;
        println!("no-loss rate with full tables: {}", million(full));
        handle.with(|control| self.load_program(control))?;
        self.specialise(Specialise::Off);
        self.fill(address)?;
        let any = load.no_loss_rate()?;
        println!("no-loss rate with full tables and code for any tables: {}", million(any));
        let rate = (few.min(full).min(any) as f64 * control.share) as u64;
        println!("packets come at {} from here on; ring of {}", million(rate), control.ring);
        handle.with(|control| self.load_program(control))?;
        self.compiled()?;
        self.phases(address, rate)?;
        self.compiled()?;
        println!("no-loss rate with the tables as they are now: {}", million(load.no_loss_rate()?));
        Ok(())
    }

    /// Writes all entries.
    fn fill(&self, address: &str) -> Result<()> {
        // Not earlier: a client that is silent during a search would be considered dead.
        let client = Client::connect(address)?;
        let info = client.p4info(DEVICE)?;
        let _primary = client.become_primary(DEVICE, ELECTION_ID)?;
        for fill in &self.args.control.fill {
            let entries = Entries::new(&info, fill)?;
            let requests = Phase::Insert.requests(&entries, &write_head(), self.args.control.updates);
            client.write_encoded(&requests, self.args.control.in_flight)?;
        }
        Ok(())
    }

    /// Calls `body` while packets arrive; returns the counters' increase, the worker's gaps, the counts of its
    /// processor, and `body`'s result.
    fn turn<R>(&self, rate: u64, body: impl FnOnce() -> Result<R>) -> Result<(Passed, Gaps, Option<Machine>, R)> {
        let machine = || self.args.control.cores.map(|cores| Machine::now(cores.worker));
        let before = machine();
        let (passed, done) = self.load.during(rate, body)?;
        let counted = machine().zip(before).map(|(now, before)| now.since(&before));
        Ok((passed, self.load.gaps(), counted, done))
    }

    /// Measures a phase in alternating turns, with writes and with the same writes to another switch
    /// ([`super::turns`]).
    fn in_turns(
        &self,
        rate: u64,
        length: Duration,
        requests: &[Bytes],
        write: impl Fn(&[Bytes]) -> Result<Taken>,
        write_elsewhere: impl Fn(&[Bytes]) -> Result<Taken>,
    ) -> Result<(Taken, Pairs)> {
        let control = &self.args.control;
        let (mut left, mut taken, mut pairs) = (requests, Taken::default(), Pairs::default());
        let mut pace = Pace::new(length, control.updates, control.write_rate);
        loop {
            let (some, rest) = left.split_at(pace.next(left.len()));
            self.specialise(Specialise::Auto);
            let (passed, gaps, machine, (took, length)) = self.turn(rate, || {
                let begin = Instant::now();
                let took = write(some)?;
                let answered = Instant::now();
                while !is_specialised(&self.running) && answered.elapsed() < SETTLED {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok((took, begin.elapsed()))
            })?;
            let in_generic = gaps.of(Cause::Generic).packets > gaps.of(Cause::Specialised).packets;
            let with = (passed, gaps, machine);
            if in_generic {
                self.specialise(Specialise::Off);
            }
            let (passed, gaps, machine, ()) = self.turn(rate, || {
                let begin = Instant::now();
                write_elsewhere(some)?;
                std::thread::sleep(length.saturating_sub(begin.elapsed()));
                Ok(())
            })?;
            pairs.add(with, (passed, gaps, machine));
            pace.took(some.len(), took.time);
            taken.time += took.time;
            taken.each.extend(took.each);
            left = rest;
            if left.is_empty() {
                self.specialise(Specialise::Auto);
                return Ok((taken, pairs));
            }
        }
    }

    /// Measures the phases under load.
    fn phases(&self, address: &str, rate: u64) -> Result<()> {
        let control = &self.args.control;
        let client = Client::connect(address)?;
        let info = client.p4info(DEVICE)?;
        let _primary = client.become_primary(DEVICE, ELECTION_ID)?;
        let (mut table, mut causes) = (Rows::new(&PHASES), Rows::new(&CAUSES));
        let (passed, gaps, machine, ()) = self.turn(rate, || {
            std::thread::sleep(QUIET);
            Ok(())
        })?;
        let none = ["-", "no writes", "-", "-", "-", "-", "-"].map(String::from);
        causes.add(none[..2].to_vec(), time_row(&gaps, machine.as_ref()));
        table.add(none.to_vec(), packets(&passed, &gaps));
        let mut uneven = (0, 0);
        // The switch that is written in turns without writes.
        let other = control.turns.map(|_| Started::new(self.args, None)).transpose()?;
        let connect =
            |switch: &Started| Ok::<_, ClientError>((switch.address.clone(), Client::connect(&switch.address)?));
        let there = other.as_ref().map(connect).transpose()?;
        let _primary_there =
            there.as_ref().map(|(_, client)| client.become_primary(DEVICE, ELECTION_ID)).transpose()?;
        for fill in &control.fill {
            let entries = Entries::new(&info, fill)?;
            for phase in &control.phases {
                let requests = phase.requests(&entries, &write_head(), control.updates);
                let write_to = |client: &Client, address: &str, some: &[Bytes]| {
                    polled(control.polls, address, &entries, || go(control, client, &entries, some, *phase))
                };
                let write = |some: &[Bytes]| write_to(&client, address, some);
                let name = format!("{phase:?}").to_lowercase();
                let mut taken;
                let mut sides = Vec::new();
                if let Some((length, (address, client))) = control.turns.zip(there.as_ref()) {
                    let elsewhere = |some: &[Bytes]| write_to(client, address, some);
                    let pairs;
                    (taken, pairs) = self.in_turns(rate, length, &requests, write, elsewhere)?;
                    uneven = (uneven.0 + pairs.more, uneven.1 + pairs.fewer);
                    for (side, with) in
                        [(pairs.with, name.clone()), (pairs.without, format!("beside {name}, no writes"))]
                    {
                        let mut figures = packets(&side.passed, &side.gaps);
                        figures.push(side.turns());
                        sides.push((with, figures, time_row(&side.gaps, side.machine.as_ref())));
                    }
                } else {
                    let (passed, gaps, machine, all) = self.turn(rate, || write(&requests))?;
                    taken = all;
                    sides.push((name, packets(&passed, &gaps), time_row(&gaps, machine.as_ref())));
                }
                let [count, _, thousands, p50, p99, worst] = taken.figures(entries.count);
                let mut written = vec![count, thousands, p50, p99, worst];
                for (what, figures, times) in sides {
                    let what = vec![fill.table.clone(), what];
                    causes.add(what.clone(), times);
                    table.add([what, std::mem::replace(&mut written, vec!["-".into(); 5])].concat(), figures);
                }
            }
        }
        println!("{} updates a request, {} requests on the way", control.updates, control.in_flight);
        println!("{}", table.0);
        if control.turns.is_some() {
            println!("turns with writes lost more in {} pairs, turns without in {}", uneven.0, uneven.1);
        }
        println!("where the worker's time went, in gaps between two polls; a pause is one of more than 10 us");
        println!("{}", causes.0);
        Ok(())
    }
}

/// Calls `body` while another client reads the table `polls` times per second, if given. Polls that take longer than
/// their interval follow one another without a pause.
fn polled<R>(polls: Option<u64>, address: &str, entries: &Entries, body: impl FnOnce() -> Result<R>) -> Result<R> {
    let Some(polls) = polls else { return body() };
    let (client, request, stop) =
        (Client::connect(address)?, read_request(entries, Some(Default::default())), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| -> Result<u64> {
            let (start, mut done) = (Instant::now(), 0);
            while !stop.load(Ordering::Relaxed) {
                client.read_counted(&request, Duration::ZERO)?;
                done += 1;
                let due = Duration::from_secs_f64(done as f64 / polls as f64);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            Ok(done)
        });
        let result = body();
        stop.store(true, Ordering::Relaxed);
        let done = poller.join().map_err(|_| anyhow::anyhow!("the thread that polls has panicked"))?;
        done?;
        result
    })
}

/// A table with text in its first two columns.
struct Rows(Table);

impl Rows {
    fn new(heads: &[&str]) -> Rows {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::UTF8_BORDERS_ONLY);
        table.set_header(heads);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        Rows(table)
    }

    fn add(&mut self, what: Vec<String>, figures: Vec<String>) {
        self.0.add_row(what.into_iter().chain(figures));
    }
}

const PHASES: [&str; 14] = [
    "table",
    "phase",
    "entries",
    "k/s",
    "batch p50 ms",
    "p99",
    "worst",
    "packets",
    "lost",
    "of them beside others",
    "not sent",
    "ring, most",
    "core was others', s",
    "turns with loss",
];

fn packets(passed: &Passed, gaps: &Gaps) -> Vec<String> {
    vec![
        passed.arrived.to_string(),
        passed.lost.to_string(),
        format!("{:.0}", gaps.of(Cause::Others).lost),
        (passed.taken - passed.sent.min(passed.taken)).to_string(),
        passed.fullest.to_string(),
        format!("{:.3}", passed.stolen_s),
    ]
}

const CAUSES: [&str; 12] = [
    "table",
    "phase",
    "generic code s",
    "ns/packet of full bursts",
    "lost",
    "code for tables s",
    "ns/packet of full bursts",
    "lost",
    "pauses for pages: number, ms, longest us, lost",
    "other pauses",
    "beside others",
    "interrupts of the worker's processor",
];

/// The cells of the causes of loss.
fn time_row(gaps: &Gaps, machine: Option<&Machine>) -> Vec<String> {
    let code = |sum: &Sum| {
        // Without packets there is no time per packet.
        let each = if sum.packets > 0 { format!("{:.1}", sum.full_s * 1e9 / sum.packets as f64) } else { "-".into() };
        [format!("{:.3}", sum.time_s), each, format!("{:.0}", sum.lost)]
    };
    let pauses =
        |sum: &Sum| format!("{}, {:.1}, {:.0}, {:.0}", sum.count, sum.time_s * 1e3, sum.longest_s * 1e6, sum.lost);
    let mut row = Vec::from(code(gaps.of(Cause::Generic)));
    row.extend(code(gaps.of(Cause::Specialised)));
    row.extend([Cause::Faults, Cause::Interrupted, Cause::Others].map(|cause| pauses(gaps.of(cause))));
    row.push(machine.map_or("unknown without --cores".to_string(), Machine::to_string));
    row
}

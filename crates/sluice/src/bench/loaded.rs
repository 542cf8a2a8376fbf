//! `sluice bench X.p4 --control --fill TABLE=N --packets FILE`: whether packets are lost while the control plane writes.
//!
//! A switch with one worker and paced ports ([`super::paced`]) is made in this process, served over TCP as `sluice run` serves it.
//! First the *no-loss rate* is searched: the highest rate at which, without writes, no packet finds the ring full in a fifth of a second, and then
//! in two seconds. A rate is tried up to three times, so that what else the machine does does not make the worker slower than it is.
//! Then packets come at a share of it (`--share`), and everything that `--control` measures is done meanwhile, as fast as the
//! switch answers; losses are counted for each phase. At the end the no-loss rate is searched once more, with the
//! tables as they are then.
//!
//! `--cores W,C` binds the worker to one processor and everything else (the control plane, the store, compiling, the
//! client) to another.

use super::Args;
use super::control::{DEVICE, ELECTION_ID, Process, measure, write_head};
use super::fill::Entries;
use super::paced::{Paced, PacedHandle, Passed, RING};
use crate::target::SwitchTarget;
use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table};
use control::Control;
use control::pipeline::ForwardingConfig;
use datapath::{EngineKind, Idle, Specialise, Switch, SwitchConfig};
use grpc::Handle;
use grpc::client::Client;
use pktio::HeapPool;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Buffers: the ring's and those of a few batches.
const BUFFERS: usize = 4096;
/// Where the search begins, packets per second.
const SLOWEST: u64 = 100_000;
/// How exact the search is, and what is taken off a rate that does not last.
const EXACT: f64 = 0.02;
const STEP: f64 = 0.05;
/// How long a rate is tried while it is searched, how often at most, and how long when it is found.
const TRIAL: Duration = Duration::from_millis(200);
const TRIALS: usize = 3;
const PROOF: Duration = Duration::from_secs(2);

/// The processors of the worker and of everything else.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    worker: usize,
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
struct Load {
    ports: Vec<PacedHandle>,
    /// Of `ports`, those with frames, and how many of all frames they have.
    sources: Vec<(usize, f64)>,
}

impl Load {
    fn passed(&self) -> Passed {
        self.ports.iter().map(PacedHandle::passed).fold(Passed::default(), |sum, one| Passed {
            arrived: sum.arrived + one.arrived,
            lost: sum.lost + one.lost,
            taken: sum.taken + one.taken,
            sent: sum.sent + one.sent,
            fullest: sum.fullest.max(one.fullest),
            stolen_s: sum.stolen_s.max(one.stolen_s),
        })
    }

    /// Does something while packets come; what passed meanwhile.
    fn during<R>(&self, rate: u64, body: impl FnOnce() -> Result<R>) -> Result<(Passed, R)> {
        let before = self.passed();
        self.sources.iter().for_each(|(port, share)| self.ports[*port].set_rate((rate as f64 * share) as u64));
        let done = body();
        self.sources.iter().for_each(|(port, _)| self.ports[*port].set_rate(0));
        // What is in the rings goes on.
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
        };
        Ok((passed, done?))
    }

    /// Whether every trial loses packets: one without loss shows what the worker can do, one with may be the machine's.
    fn loses(&self, rate: u64, time: Duration) -> Result<bool> {
        for _ in 0..TRIALS {
            let (passed, ()) = self.during(rate, || {
                std::thread::sleep(time);
                Ok(())
            })?;
            if passed.lost == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The highest rate without loss.
    fn no_loss_rate(&self) -> Result<u64> {
        let (mut low, mut high) = (0, SLOWEST);
        while !self.loses(high, TRIAL)? {
            (low, high) = (high, high * 2);
        }
        while (high - low) as f64 > EXACT * high as f64 {
            let middle = low.midpoint(high);
            match self.loses(middle, TRIAL)? {
                true => high = middle,
                false => low = middle,
            }
        }
        while low > 0 && self.loses(low, PROOF)? {
            low = (low as f64 * (1.0 - STEP)) as u64;
        }
        ensure!(low > 0, "packets are lost at any rate");
        Ok(low)
    }
}

/// Runs it.
pub fn run(args: &Args, frames: &[(u32, Vec<u8>)]) -> Result<()> {
    let control_args = &args.control;
    ensure!(control_args.switch.is_none(), "--packets are for a switch of our own, not one that listens elsewhere");
    let share = control_args.share;
    ensure!(share > 0.0 && share <= 1.0, "--share is a part of the no-loss rate, as 0.9");
    // Threads inherit it.
    control_args.cores.map_or(Ok(()), |cores| bind(cores.others))?;
    let cores = control_args.cores;
    let bind_worker = move |_| {
        if let Some(Err(error)) = cores.map(|cores| bind(cores.worker)) {
            tracing::warn!("{error:#}");
        }
        Box::new(()) as Box<dyn std::any::Any>
    };
    let compile = &args.program.compile;
    let pool = HeapPool::shared(BUFFERS);
    let switch = Arc::new(Switch::new(SwitchConfig {
        idle: Idle::Busy,
        pool: Some(Arc::clone(&pool)),
        on_worker_start: Some(Arc::new(bind_worker)),
        ..SwitchConfig::default()
    }));
    let engine = EngineKind::Machine;
    let target = SwitchTarget::new(Arc::clone(&switch), compile.options()?, compile.code()?, engine, Specialise::Auto);
    let mut control = Control::new();
    control.add_device(DEVICE, Arc::new(target));
    let device_config = super::swaps::text(compile, &args.program.program)?;
    let config = ForwardingConfig { device_config, ..Default::default() };
    control.load(DEVICE, config).map_err(|e| anyhow::anyhow!(e.message))?;
    if let (Some(file), Some(pipeline)) = (&args.entries, switch.pipeline()) {
        ensure!(crate::run::apply_entries(file, &pipeline, pipeline.replication())?, "the entries are wrong");
    }
    if let Some(dir) = &control_args.state {
        let store = Arc::new(store::Store::open(dir)?);
        control.keep(DEVICE, store, false).map_err(|e| anyhow::anyhow!(e.message))?;
    }
    let numbers: BTreeSet<u32> = frames.iter().map(|(port, _)| *port).chain(args.out_ports.iter().copied()).collect();
    let mut load = Load { ports: vec![], sources: vec![] };
    for number in numbers {
        let of: Vec<Vec<u8>> = frames.iter().filter(|(port, _)| *port == number).map(|(_, f)| f.clone()).collect();
        if !of.is_empty() {
            load.sources.push((load.ports.len(), of.len() as f64 / frames.len() as f64));
        }
        let (device, handle) = Paced::new(format!("paced{number}"), of, Arc::clone(&pool));
        switch.add_port(number, Box::new(device))?;
        load.ports.push(handle);
    }
    let handle = Handle::new(control);
    let server = grpc::serve(([127, 0, 0, 1], 0).into(), Arc::clone(&handle)).context("cannot serve P4Runtime")?;
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|s| {
        s.spawn(|| crate::run::pump(&switch, &handle, &stop));
        let done = rows(args, &load, &server.address().to_string());
        stop.store(true, Ordering::Relaxed);
        done
    });
    server.shutdown();
    done
}

/// Measures everything and prints it.
fn rows(args: &Args, load: &Load, address: &str) -> Result<()> {
    let control = &args.control;
    // What is compiled for the tables as they are comes after a moment.
    load.loses(SLOWEST, Duration::from_secs(1))?;
    let no_loss = load.no_loss_rate()?;
    let rate = (no_loss as f64 * control.share) as u64;
    println!(
        "no-loss rate {:.2} million packets/s; {:.2} from here on, ring of {RING} packets",
        no_loss as f64 / 1e6,
        rate as f64 / 1e6
    );
    // After the search: a client that says nothing for so long is taken for gone.
    let client = Client::connect(address)?;
    let info = client.p4info(DEVICE)?;
    let _primary = client.become_primary(DEVICE, ELECTION_ID)?;
    let head = write_head();
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_BORDERS_ONLY);
    let heads = ["table", "phase", "entries", "k/s", "batch p50 ms", "p99", "worst"];
    let of_packets = ["packets", "lost", "not sent", "ring, most", "core taken by others, s"];
    table.set_header(heads.into_iter().chain(of_packets));
    let packets = |passed: &Passed| {
        [
            passed.arrived.to_string(),
            passed.lost.to_string(),
            (passed.taken - passed.sent.min(passed.taken)).to_string(),
            passed.fullest.to_string(),
            format!("{:.3}", passed.stolen_s),
        ]
    };
    let (passed, ()) = load.during(rate, || {
        std::thread::sleep(PROOF);
        Ok(())
    })?;
    let none = ["-", "no writes", "-", "-", "-", "-", "-"].map(String::from);
    table.add_row(none.into_iter().chain(packets(&passed)));
    for fill in &control.fill {
        let entries = Entries::new(&info, fill)?;
        for phase in &control.phases {
            let (passed, row) =
                load.during(rate, || measure(control, &client, &Process(None), &head, &entries, fill.count, *phase))?;
            let [count, _, thousands, _, p50, p99, worst, ..] = row.as_slice() else { continue };
            let what = [fill.table.clone(), format!("{phase:?}").to_lowercase()];
            let row = what.into_iter().chain([count, thousands, p50, p99, worst].map(String::clone));
            table.add_row(row.chain(packets(&passed)));
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{} updates a request, {} requests on the way", control.updates, control.in_flight);
    println!("{table}");
    println!(
        "no-loss rate with the tables as they are now: {:.2} million packets/s",
        load.no_loss_rate()? as f64 / 1e6
    );
    Ok(())
}

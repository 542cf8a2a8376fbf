//! `sluice bench X.p4 --control --fill TABLE=N`: the rate at which a switch accepts and returns many entries through
//! P4Runtime.
//!
//! A switch is started for the measurement (`sluice run`, without ports, at any free address), or a running one is used
//! with `--switch ADDR`; either is reached over TCP. The client encodes its requests before the clock starts, and
//! counts answers without decoding them, so the measurement is of the switch. For each table and each phase it prints
//!
//! - updates (or entities read) per second of time, and per second of the switch's processor time: the rate of one
//!   core;
//! - the time of a request from sending to its answer, with up to `--in-flight` requests outstanding;
//! - the switch's memory at the end of the phase and its peak.
//!
//! Deliberately absent: packets. `--packets` adds them ([`super::loaded`]).

use super::Args;
use super::fill::{Entries, Fill};
use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, Table};
use grpc::client::Client;
use messages::p4::v1 as pb;
use pb::update::Type;
use prost::bytes::Bytes;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An election id that is most probably higher than those of any connected controllers.
pub(super) const ELECTION_ID: u128 = 1 << 96;
/// Ticks of `/proc/PID/stat` per second: 100 in the kernel's ABI on every architecture.
const TICKS: f64 = 100.0;

/// Arguments of `bench --control`.
#[derive(clap::Args)]
pub struct ControlArgs {
    /// Measure P4Runtime: writes and reads of the entries that `--fill` says.
    #[arg(long)]
    pub control: bool,
    /// A table and how many entries it gets, for `--control`.
    #[arg(long, value_name = "TABLE=N", requires = "control")]
    pub(super) fill: Vec<Fill>,
    /// Updates of a request.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "control")]
    pub(super) updates: usize,
    /// Requests on the way at a time.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "control")]
    pub(super) in_flight: usize,
    /// Writes at most so many entries a second, spread evenly, instead of as many as are answered.
    #[arg(long, value_name = "N", requires = "control", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) write_rate: Option<u64>,
    /// Another client reads the table that is written so many times a second, with its direct counters, with `--packets`.
    #[arg(long, value_name = "N", requires = "control", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) polls: Option<u64>,
    /// Writes for so many seconds, and then the same to a switch without packets, again and again, with `--packets`: what is lost then is
    /// the machine's.
    #[arg(long, value_name = "SECONDS", requires = "control", value_parser = super::turns::seconds)]
    pub(super) turns: Option<Duration>,
    /// What is done with the entries, in order.
    #[arg(long, value_name = "PHASE,...", value_delimiter = ',', default_value = "insert,read,modify,delete")]
    pub(super) phases: Vec<Phase>,
    /// The switch keeps its state in this directory, as `sluice run --state`.
    #[arg(long, value_name = "DIR", requires = "control")]
    pub(super) state: Option<PathBuf>,
    /// Measure the switch that listens there instead of one of our own; it must run this program.
    #[arg(long, value_name = "ADDR", requires = "control", conflicts_with = "state")]
    pub(super) switch: Option<String>,
    /// The process of that switch, for its memory and processor time.
    #[arg(long, value_name = "PID", requires = "switch")]
    pid: Option<u32>,
    /// Packets come meanwhile (`--packets`) at this share of the rate that is forwarded without loss.
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, requires = "control")]
    pub(super) share: f64,
    /// How long no packet may be lost at a rate that counts as without loss, with `--packets`: 60 s in RFC 2544.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, requires = "control", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) proof: u64,
    /// Descriptors of the receive rings, with `--packets`.
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "control", value_parser = clap::value_parser!(u64).range(64..))]
    pub(super) ring: u64,
    /// Instead of writing, has packets come at these shares of the rate that is forwarded without loss, one after the other, each for
    /// so many seconds, with `--packets`: 0.9:1,1.5:1,0.9:2 overloads the switch and then no longer.
    #[arg(
        long,
        value_name = "SHARE:SECONDS,...",
        value_delimiter = ',',
        requires = "control",
        conflicts_with = "fill"
    )]
    pub(super) steps: Vec<super::steps::Step>,
    /// Ports that the same worker serves beside those that packets come by, as for `run -i`.
    #[arg(long, value_name = "PORT", requires = "steps")]
    pub(super) beside: Vec<String>,
    /// The processors of the worker and of everything else, with `--packets`.
    #[arg(long, value_name = "WORKER,OTHERS", requires = "control")]
    pub(super) cores: Option<super::loaded::Cores>,
}

/// What is done with the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Phase {
    Insert,
    Read,
    Modify,
    Delete,
}

/// A switch process that was started here; dropping this value ends it.
pub(super) struct Started {
    child: Child,
    pub(super) address: String,
}

impl Started {
    /// Starts a switch for the program, without ports; it keeps its state in `state` if that is given.
    ///
    /// # Errors
    /// If the process cannot be started or prints no address.
    pub(super) fn new(args: &Args, state: Option<&Path>) -> Result<Started> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg("run").arg(&args.program.program).args(["--grpc", "127.0.0.1:0"]);
        let compile = &args.program.compile;
        compile.include_dirs.iter().for_each(|dir| _ = command.args(["-I", dir]));
        compile.defines.iter().for_each(|(name, value)| _ = command.args(["-D", &format!("{name}={value}")]));
        if let Some(dir) = state {
            command.arg("--state").arg(dir);
        }
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().context("cannot start a switch")?;
        let lines = BufReader::new(child.stdout.take().context("the switch has no output")?).lines();
        let mut started = Started { child, address: String::new() };
        for line in lines {
            let line = line?;
            if let Some(rest) = line.strip_prefix("P4Runtime on ") {
                started.address = rest.split([',', ' ']).next().unwrap_or_default().to_string();
                return Ok(started);
            }
        }
        bail!("the switch did not start");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A write request of this client without updates.
pub(super) fn write_head() -> pb::WriteRequest {
    pb::WriteRequest {
        device_id: DEVICE,
        election_id: Some(pb::Uint128 { high: (ELECTION_ID >> 64) as u64, low: ELECTION_ID as u64 }),
        ..Default::default()
    }
}

/// Measures a switch without packets and prints the table.
///
/// # Errors
/// If the arguments do not fit, or the switch cannot be started or reached, or refuses a request.
pub fn run(args: &Args) -> Result<()> {
    let control = &args.control;
    ensure!(!control.fill.is_empty(), "--control needs a table to write: --fill TABLE=N");
    let started = if control.switch.is_some() { None } else { Some(Started::new(args, control.state.as_deref())?) };
    let address = started.as_ref().map(|s| &s.address).or(control.switch.as_ref()).context("there is an address")?;
    let process = Process(started.as_ref().map(|s| s.child.id()).or(control.pid));
    let client = Client::connect(address)?;
    let info = client.p4info(DEVICE)?;
    let _primary = client.become_primary(DEVICE, ELECTION_ID)?;
    let head = write_head();
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header([
        "table",
        "phase",
        "entries",
        "s",
        "k/s",
        "k/s of its core time",
        "batch p50 ms",
        "p99",
        "worst",
        "MB",
        "peak MB",
    ]);
    for fill in &control.fill {
        let entries = Entries::new(&info, fill)?;
        for phase in &control.phases {
            let requests = phase.requests(&entries, &head, control.updates);
            let row = measure(control, &client, &process, &entries, &requests, *phase)?;
            table.add_row([fill.table.clone(), format!("{phase:?}").to_lowercase()].into_iter().chain(row));
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{} updates a request, {} requests on the way", control.updates, control.in_flight);
    println!("{table}");
    Ok(())
}

/// The device id of a switch that is started without one.
pub(super) const DEVICE: u64 = 1;

impl Phase {
    /// The client's requests of a phase; none for reading, which is one request.
    pub(super) fn requests(self, entries: &Entries, head: &pb::WriteRequest, updates: usize) -> Vec<Bytes> {
        match self {
            Phase::Insert => entries.requests(Type::Insert, head, updates, 0),
            Phase::Modify => entries.requests(Type::Modify, head, updates, 1),
            Phase::Delete => entries.requests(Type::Delete, head, updates, 0),
            Phase::Read => vec![],
        }
    }
}

/// A request for all entries of the table, and for their direct counters if `counter_data` is given.
pub(super) fn read_request(entries: &Entries, counter_data: Option<pb::CounterData>) -> pb::ReadRequest {
    let id = entries.table.preamble.as_ref().map_or(0, |p| p.id);
    let of_table = pb::TableEntry { table_id: id, counter_data, ..Default::default() };
    let entities = vec![pb::Entity { entity: Some(pb::entity::Entity::TableEntry(of_table)) }];
    pb::ReadRequest { device_id: DEVICE, entities, ..Default::default() }
}

/// Measures a phase: the figures of its row that follow table and phase.
pub(super) fn measure(
    args: &ControlArgs,
    client: &Client,
    process: &Process,
    entries: &Entries,
    requests: &[Bytes],
    phase: Phase,
) -> Result<Vec<String>> {
    process.reset_peak();
    let busy = process.busy();
    let mut taken = go(args, client, entries, requests, phase)?;
    let busy = process.busy().zip(busy).map(|(now, before)| now - before);
    let (memory, peak) = process.memory();
    let [count, time, thousands, p50, p99, worst] = taken.figures(entries.count);
    let megabytes = |kilobytes: Option<u64>| kilobytes.map_or("-".to_string(), |k| (k / 1024).to_string());
    let of_core = busy.map_or("-".to_string(), |busy| rate_in_thousands(entries.count, busy));
    Ok(vec![count, time, thousands, of_core, p50, p99, worst, megabytes(memory), megabytes(peak)])
}

/// The times of a phase's requests.
#[derive(Default)]
pub(super) struct Taken {
    /// Time of the whole phase.
    pub(super) time: Duration,
    /// The time of each request, from sending to its answer.
    pub(super) each: Vec<Duration>,
}

impl Taken {
    /// Formatted: count, seconds, thousands per second, and a request's milliseconds: median, 99th percentile and
    /// maximum.
    pub(super) fn figures(&mut self, count: usize) -> [String; 6] {
        self.each.sort_unstable();
        let last = self.each.len().saturating_sub(1);
        let ms = |share: f64| {
            let time = self.each.get(((self.each.len() as f64 * share) as usize).min(last));
            time.map_or("-".to_string(), |t| format!("{:.2}", t.as_secs_f64() * 1e3))
        };
        let seconds = self.time.as_secs_f64();
        let (time, thousands) = (format!("{seconds:.2}"), rate_in_thousands(count, seconds));
        [count.to_string(), time, thousands, ms(0.5), ms(0.99), ms(1.0)]
    }
}

fn rate_in_thousands(count: usize, seconds: f64) -> String {
    format!("{:.0}", count as f64 / seconds.max(1e-9) / 1e3)
}

/// Sends the requests of a phase, at the rate of `--write-rate` if that is given, or reads the table.
pub(super) fn go(
    args: &ControlArgs,
    client: &Client,
    entries: &Entries,
    requests: &[Bytes],
    phase: Phase,
) -> Result<Taken> {
    let start = Instant::now();
    let mut each = Vec::new();
    if phase == Phase::Read {
        let read = client.read_counted(&read_request(entries, None), Duration::ZERO)?;
        // A switch that was not started here may have more entries.
        ensure!(
            read.entities >= entries.count as u64,
            "{} entries were read, {} were written",
            read.entities,
            entries.count
        );
    } else if let Some(rate) = args.write_rate {
        for (i, request) in requests.iter().enumerate() {
            let due = Duration::from_secs_f64((i * args.updates) as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            each.extend(client.write_encoded(std::slice::from_ref(request), 1)?);
        }
    } else {
        each = client.write_encoded(requests, args.in_flight)?;
    }
    Ok(Taken { time: start.elapsed(), each })
}

/// The switch's process, of which the kernel gives figures; `None` if its id is not known.
pub(super) struct Process(pub(super) Option<u32>);

impl Process {
    fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.0?)).ok()
    }

    /// Seconds of processor time of all threads except workers, which poll.
    fn busy(&self) -> Option<f64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0?)).ok()?;
        let time = |stat: String| -> Option<f64> {
            let (name, rest) = stat.rsplit_once(')')?;
            // utime and stime are fields 14 and 15 (proc(5)); `rest` begins with field 3.
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
            (!name.contains("(worker-")).then_some(ticks / TICKS)
        };
        let stats = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
        Some(stats.filter_map(time).sum())
    }

    /// Kilobytes of resident memory now, and the peak since the last [`Process::reset_peak`].
    fn memory(&self) -> (Option<u64>, Option<u64>) {
        let status = self.file("status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    fn reset_peak(&self) {
        if let Some(pid) = self.0 {
            // The peak of another user's process cannot be reset; then the older peak is shown.
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }
}

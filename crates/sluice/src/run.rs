//! `sluice run`: the switch itself.
//!
//! ```text
//!   main thread      opens ports, loads the program and entries, then: signals, link changes, log lines, end of input
//!   worker threads   packets (datapath)
//!   events thread    packet-ins, digests and time, from the switch to the control plane
//!   p4runtime threads  P4Runtime and the admin service (grpc)
//! ```
//!
//! Ends on SIGINT and SIGTERM, and when every port has read its file to the end.

use crate::compile::CompileArgs;
use crate::devices::{self, DeviceArg, Devices, Wanted};
use crate::notify::Service;
use crate::operator::SwitchOperator;
use crate::specialise::Specialise;
use crate::state::{State, StateArgs};
use crate::target::{self, SwitchTarget};
use crate::transport::TransportArgs;
use crate::{metrics, stats};
use anyhow::{Context, Result, bail};
use control::Control;
use control::pipeline::ForwardingConfig;
use datapath::replication::Replication;
use datapath::{EngineKind, Event, Idle, NewPort, Pipeline, PortOf, Sharing, Switch, SwitchConfig};
use grpc::Handle;
use pktio::{Device, HeapPool, PortSpec};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::{BTreeMap, BTreeSet};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often links and the end of input are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long packet-ins, digests and idle timeouts wait at most.
const EVENT_TICK: Duration = Duration::from_millis(5);
/// Packet-ins that are delivered before time and digests get their turn.
const EVENTS_PER_TICK: usize = 256;
/// Heap buffers when no port needs DPDK.
const HEAP_BUFFERS: usize = 16 * 1024;

/// Arguments of `run`.
#[derive(clap::Args)]
#[command(
    after_help = "SLUICE_LOG sets what is logged: off, warn, info (the default), debug, or as in `warn,control=debug`."
)]
pub struct Args {
    /// The P4 program; without one the switch waits for P4Runtime to set it.
    #[arg(value_name = "X.p4")]
    program: Option<PathBuf>,
    #[command(flatten)]
    compile: CompileArgs,
    /// A port: NUMBER@DEVICE, where DEVICE is a kernel interface, vhost:PATH, vhost-server:PATH, virtio:PATH,
    /// virtio-server:PATH, memif:PATH[,id=N][,role=server|client], xdp:IFACE, tap:NAME, pci:ADDRESS, pcap:IN[,OUT] or memory;
    /// with ,mtu=N ,queues=N ,descriptors=N and ,spread behind it if need be.
    #[arg(short = 'i', value_name = "PORT@DEVICE")]
    ports: Vec<String>,
    /// Where P4Runtime listens; `none` for nowhere.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9559")]
    grpc: String,
    #[command(flatten)]
    transport: TransportArgs,
    /// Serve metrics for Prometheus on `http://ADDR/metrics`.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// How log lines are written on stderr.
    #[arg(long, value_name = "text|json", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Lines that set the switch up: `add`, `setdefault`, `mc_*`, `mirroring_*`, ... as in STF scripts.
    #[arg(long, value_name = "FILE")]
    entries: Option<PathBuf>,
    /// Worker threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// The device id of P4Runtime, of X.p4 and of all ports that are not bound to another device; 0 is for controllers of before
    /// P4Runtime 1.5, which forbids it.
    #[arg(long, value_name = "ID", default_value_t = 1)]
    device_id: u64,
    /// Another device, with a program, tables and state of its own; without a program it waits for P4Runtime.
    #[arg(long = "device", value_name = "ID[=X.p4]", value_parser = devices::parse_device)]
    devices: Vec<DeviceArg>,
    /// Ports that belong to another device.
    #[arg(long = "bind", value_name = "PORT,...=ID", value_parser = devices::parse_binding)]
    bindings: Vec<(Vec<u32>, u64)>,
    /// A link: what the first device sends by the port enters the second one by its port, as in 1:10,2:1.
    #[arg(long = "chain", value_name = "ID:PORT,ID:PORT", value_parser = devices::parse_link)]
    links: Vec<(PortOf, PortOf)>,
    /// The port number that stands for the controller.
    #[arg(long, value_name = "PORT", default_value_t = 510)]
    cpu_port: u32,
    /// What workers do when no packet comes: `sleep` between polls, longer and longer up to half a millisecond; wait for an
    /// `interrupt` of a port (ports that have none are polled as with `sleep`); or stay `busy`, for the lowest latency.
    #[arg(long, value_name = "POLICY", default_value = "sleep", value_parser = parse_idle)]
    idle: Idle,
    /// Run the interpreter instead of machine code (slow; to find out whether the compiler is at fault).
    #[arg(long)]
    interpret: bool,
    /// Write /tmp/perf-PID.map, by which `perf report` names the program's tables, actions and parser states.
    #[arg(long)]
    perf_map: bool,
    /// Count actions and sample where the cycles go all the time, for --metrics, and not only while `sluice top` or `sluice
    /// stats --profile` watch.
    #[arg(long)]
    profile: bool,
    /// What code is compiled for in the background, while the switch runs, besides being right for all tables.
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    specialise: Specialise,
    #[command(flatten)]
    state: StateArgs,
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    init_log(args.log_format == "json");
    datapath::memory::keep_freed();
    let specs = parse_ports(&args.ports)?;
    if specs.iter().any(|s| s.number == args.cpu_port) {
        bail!("port {} stands for the controller: choose another number or another --cpu-port", args.cpu_port);
    }
    // Signals first, so that none is lost while ports open.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen for signals")?;

    let options = args.compile.options()?;
    let mut code = args.compile.code()?;
    code.jit.perf_map = args.perf_map;
    let wanted = Wanted::new(args.device_id, &args.devices, &args.bindings, &args.links)?;
    let numbers: Vec<u32> = specs.iter().map(|s| s.number).collect();
    if let Some(port) = args.bindings.iter().flat_map(|(ports, _)| ports).find(|port| !numbers.contains(port)) {
        bail!("--bind: there is no port {port}; -i {port}@DEVICE opens one");
    }
    // The texts that controllers read back: each program as one that needs no other file.
    let mut programs: BTreeMap<u64, (&Path, Vec<u8>)> = BTreeMap::new();
    let given = args.devices.iter().filter_map(|device| Some((device.id, device.program.as_ref()?)));
    for (id, path) in args.program.iter().map(|path| (args.device_id, path)).chain(given) {
        let Some(compiled) = args.compile.compile_program(path)? else { return Ok(ExitCode::from(1)) };
        programs.insert(id, (path, frontend::self_contained(path, &compiled.sources, &options)?.into_bytes()));
    }

    let state = args.state.open()?.map(Arc::new);
    let workers = usize::from(args.workers);
    let ports = Ports::open(&specs, args.workers)?;
    let switch = Arc::new(Switch::new(SwitchConfig {
        workers,
        device: args.device_id,
        cpu_port: Some(args.cpu_port),
        idle: args.idle,
        pool: ports.pool.clone(),
        on_worker_start: ports.register_workers(),
    }));
    let engine = if args.interpret { EngineKind::Interpreter } else { EngineKind::Machine };
    let target = SwitchTarget::new(Arc::clone(&switch), options, code, engine, args.specialise.into());
    let handle = Handle::new(Control::new());
    let devices = Arc::new(Devices::new(Arc::clone(&switch), Arc::clone(&handle), target, state.clone()));
    devices.begin(&wanted, &numbers)?;
    for device in switch.devices() {
        let program = programs.get(&device).map(|(path, text)| (*path, text.as_slice()));
        let restored = match &state {
            Some(state) => state.restore(&handle, device, args.device_id, program)?,
            None => false,
        };
        if let Some(file) = args.entries.as_ref().filter(|_| restored && device == args.device_id) {
            println!("{} is not read: the kept entries are in force (--forget begins anew)", file.display());
        }
        if !restored && !begin(args, device, &switch, &handle, program, state.as_deref())? {
            return Ok(ExitCode::from(1));
        }
        devices.learn_name(device);
    }
    for (id, (path, _)) in programs.iter().filter(|(id, _)| !switch.devices().contains(id)) {
        println!("device {id} was unloaded, so {} is not loaded; `sluice load` makes it again", path.display());
    }
    // Ports come last, and together: the first packet already meets the program, its entries, and the ports it may leave by.
    let mut new_ports = Vec::new();
    for (spec, device) in ports.devices {
        let owner = devices.of_port(spec.number);
        if let Some(problem) = switch.pipeline_of(owner).and_then(|p| target::port_problem(p.program(), spec.number)) {
            bail!("-i {}@{}: {problem}", spec.number, spec.device);
        }
        let of = if owner == args.device_id { String::new() } else { format!(", of device {owner}") };
        println!("port {} is {}{of}", spec.number, spec.device);
        let sharing = if spec.spread { Sharing::Spread } else { Sharing::Fixed };
        new_ports.push(NewPort { bound_to: owner, number: spec.number, device, sharing });
    }
    switch.add_ports(new_ports)?;
    if args.profile {
        switch.watch(Duration::MAX);
    }
    for link in switch.links() {
        println!("{} leads to {}", link.from, link.to);
    }
    let server = match args.grpc.as_str() {
        "none" => None,
        address => {
            let socket = socket_address("--grpc", address)?;
            let (switch, handle) = (Arc::clone(&switch), Arc::clone(&handle));
            let operator = SwitchOperator {
                switch: Arc::clone(&switch),
                handle: Arc::clone(&handle),
                devices: Arc::clone(&devices),
            };
            let operator = Arc::new(operator);
            let options = grpc::ServeOptions { operator: Some(operator), ..args.transport.options()? };
            let server = grpc::serve_with(socket, Arc::clone(&handle), options).with_context(|| {
                format!(
                    "cannot serve P4Runtime on {address} (--grpc chooses another address, --grpc none does without)"
                )
            })?;
            let ids: Vec<String> = switch.devices().iter().map(u64::to_string).collect();
            println!("P4Runtime on {}{}, device {}", server.address(), args.transport.how(), ids.join(", "));
            Some(server)
        }
    };

    let _metrics = match &args.metrics {
        None => None,
        Some(address) => {
            let (switch, handle) = (Arc::clone(&switch), Arc::clone(&handle));
            let source = move || {
                let (rpcs, lost_events) = (handle.rpcs().read(), handle.lost_events());
                metrics::text(metrics::Observed { stats: stats::collect(&switch), rpcs, lost_events })
            };
            let server = grpc::metrics::serve(socket_address("--metrics", address)?, Arc::new(source))
                .with_context(|| format!("cannot serve metrics on {address}"))?;
            println!("metrics on http://{}/metrics", server.address());
            Some(server)
        }
    };

    let stop = Arc::new(AtomicBool::new(false));
    let events = {
        let (switch, handle, stop) = (Arc::clone(&switch), Arc::clone(&handle), Arc::clone(&stop));
        std::thread::Builder::new().name("events".into()).spawn(move || pump(&switch, &handle, &stop))?
    };
    let mut service = Service::ready(&format!("{} ports, {workers} workers", specs.len()));
    let on_links = |device| handle.with(|control| control.links_changed(device));
    let ended = wait(&mut signals, &switch, &mut service, on_links);
    service.stopping();
    let (received, sent) =
        switch.ports().iter().fold((0, 0), |sum, port| (sum.0 + port.stats.rx_packets, sum.1 + port.stats.tx_packets));
    tracing::info!("stopping: {ended}; {received} packets received, {sent} sent");
    stop.store(true, Ordering::Relaxed);
    if events.join().is_err() {
        bail!("the events thread has panicked");
    }
    if let Some(server) = server {
        server.shutdown();
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads what the command line names for a device; false when an entry is wrong, which was reported.
fn begin(
    args: &Args,
    device: u64,
    switch: &Switch,
    handle: &Handle,
    program: Option<(&Path, &[u8])>,
    state: Option<&State>,
) -> Result<bool> {
    if let Some((path, text)) = program {
        let start = Instant::now();
        let name = path.display().to_string();
        let config = ForwardingConfig { device_config: text.to_vec(), name, ..ForwardingConfig::default() };
        handle.with(|control| control.load(device, config)).map_err(|e| anyhow::anyhow!("{}", e.message))?;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        println!("{} compiled in {took_ms:.1} ms, running on {} worker(s)", path.display(), args.workers);
    }
    if let Some(file) = args.entries.as_ref().filter(|_| device == args.device_id) {
        let pipeline = switch.pipeline().context("--entries needs a program")?;
        if !apply_entries(file, &pipeline, pipeline.replication())? {
            return Ok(false);
        }
    }
    if let Some(state) = state {
        state.keep(handle, device, false)?;
        if let Some((_, text)) = program {
            state.remember(device, text)?;
        }
    }
    Ok(true)
}

fn socket_address(option: &str, address: &str) -> Result<std::net::SocketAddr> {
    address.to_socket_addrs().ok().and_then(|mut all| all.next()).with_context(|| {
        format!("{option}: `{address}` is not an address: a host and a port are needed, as in 127.0.0.1:9559")
    })
}

/// Carries what packets leave for controllers, until told to stop.
pub(crate) fn pump(switch: &Switch, handle: &Handle, stop: &AtomicBool) {
    let Some(events) = switch.take_events() else { return };
    while !stop.load(Ordering::Relaxed) {
        let mut next = events.recv_timeout(EVENT_TICK).ok();
        // What has queued up goes out together, but time and digests get their turn under a flood of packet-ins.
        for _ in 0..EVENTS_PER_TICK {
            match next {
                Some(Event::PacketIn(device, frame)) => handle.packet_in(device, &frame),
                None => break,
            }
            next = events.try_recv().ok();
        }
        if let Some(Event::PacketIn(device, frame)) = next {
            handle.packet_in(device, &frame);
        }
        for device in switch.devices() {
            handle.tick(device, &switch.take_digests(device), switch.now_us() * 1000);
        }
    }
}

/// Waits until there is a reason to stop.
fn wait(signals: &mut Signals, switch: &Switch, service: &mut Service, on_links: impl Fn(u64)) -> &'static str {
    loop {
        service.alive();
        if signals.pending().next().is_some() {
            return "signal";
        }
        for line in switch.housekeeping() {
            tracing::info!("program: {line}");
        }
        let changed = switch.poll_links();
        for (PortOf { port, .. }, up) in &changed {
            tracing::info!(port, "link {}", if *up { "up" } else { "down" });
        }
        let of: BTreeSet<u64> = changed.iter().map(|(at, _)| at.device).collect();
        of.into_iter().for_each(&on_links);
        if switch.at_end() {
            // Nothing more can come in. A worker stands still between two bursts, so what it had taken is out.
            if let Err(error) = switch.hold() {
                tracing::warn!("at the end of input: {error}");
            }
            return "end of input";
        }
        std::thread::sleep(TICK);
    }
}

/// Our own lines from `info` up, others' (the code generator logs every function) from `warn` up; `SLUICE_LOG` says
/// otherwise.
fn init_log(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SLUICE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,sluice=info,grpc=info,control=info"));
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr);
    // Only a second start in one process fails, and then the first one's log serves.
    let _ = match json {
        true => log.json().try_init(),
        false => log.try_init(),
    };
}

fn parse_idle(text: &str) -> Result<Idle, String> {
    match text {
        "sleep" => Ok(Idle::Sleep),
        "interrupt" => Ok(Idle::Interrupt),
        "busy" => Ok(Idle::Busy),
        _ => Err("policies are `sleep`, `interrupt` and `busy`".to_string()),
    }
}

fn parse_ports(texts: &[String]) -> Result<Vec<PortSpec>> {
    let mut specs: Vec<PortSpec> = Vec::new();
    for text in texts {
        let spec: PortSpec = match text.parse() {
            Ok(spec) => spec,
            Err(error) => {
                let error: pktio::SpecError = error;
                bail!("-i: {error}\n{}", error.help());
            }
        };
        if specs.iter().any(|s| s.number == spec.number) {
            bail!("port {} is given twice", spec.number);
        }
        let device = spec.device.to_string();
        let shared = matches!(device.as_str(), "memory" | "null");
        if let Some(other) = specs.iter().find(|s| !shared && s.device.to_string() == device) {
            bail!("{device} is given to ports {} and {}: one device is one port", other.number, spec.number);
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// All ports, and DPDK if one of them needs it.
struct Ports {
    devices: Vec<(PortSpec, Box<dyn Device>)>,
    pool: Option<pktio::PoolRef>,
    uses_dpdk: bool,
}

impl Ports {
    fn open(specs: &[PortSpec], workers: u16) -> Result<Ports> {
        let mut devices = Vec::new();
        if !specs.iter().any(|s| s.device.needs_dpdk()) {
            let pool = HeapPool::shared(HEAP_BUFFERS);
            for spec in specs {
                let device =
                    pktio::open(&spec.device, Arc::clone(&pool)).with_context(|| format!("port {}", spec.number))?;
                devices.push((spec.clone(), device));
            }
            return Ok(Ports { devices, pool: Some(pool), uses_dpdk: false });
        }
        let pci = specs.iter().filter_map(|s| match &s.device {
            pktio::DeviceSpec::Pci { address } => Some(address.clone()),
            _ => None,
        });
        let guest = specs.iter().any(|s| matches!(s.device, pktio::DeviceSpec::Virtio { .. }));
        // Rings hold buffers, one for each packet that waits in either direction.
        let in_rings = |spec: &pktio::PortSpec| {
            2 * u32::from(spec.descriptors.unwrap_or(0)) * u32::from(spec.queues.unwrap_or(workers))
        };
        let defaults = pktio_dpdk::EalConfig::default();
        let buffers = (defaults.buffers + specs.iter().map(in_rings).sum::<u32>() + 1).next_power_of_two() - 1;
        let config = pktio_dpdk::EalConfig { pci: pci.collect(), guest, buffers, ..defaults };
        let eal = pktio_dpdk::Eal::init(&config)?;
        for notice in eal.notices() {
            tracing::warn!("{notice}");
        }
        for spec in specs {
            let queues = spec.queues.unwrap_or(workers);
            let descriptors = spec.descriptors.unwrap_or(pktio_dpdk::PortOptions::default().descriptors);
            let options = pktio_dpdk::PortOptions { queues, descriptors, mtu: spec.mtu };
            let device = eal.open(&spec.device, &options).with_context(|| format!("port {}", spec.number))?;
            devices.push((spec.clone(), device));
        }
        Ok(Ports { devices, pool: Some(eal.pool()), uses_dpdk: true })
    }

    fn register_workers(&self) -> Option<datapath::switch::WorkerHook> {
        self.uses_dpdk.then(|| {
            Arc::new(|worker| match pktio_dpdk::register_worker() {
                Ok(registration) => Box::new(registration) as Box<dyn std::any::Any>,
                Err(error) => {
                    tracing::warn!(worker, "no DPDK thread of its own, so buffers are shared under a lock: {error}");
                    Box::new(())
                }
            }) as datapath::switch::WorkerHook
        })
    }
}

/// Applies a file of set-up lines; bad lines are all reported on stderr, and the answer is false.
pub fn apply_entries(file: &Path, pipeline: &Pipeline, replication: &Replication) -> Result<bool> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let target = stf::Target { program: pipeline.program(), state: pipeline.state().as_ref(), replication };
    let Err(errors) = stf::setup::apply_all(&text, target) else { return Ok(true) };
    for error in errors {
        eprintln!("{}: {error}", file.display());
    }
    Ok(false)
}

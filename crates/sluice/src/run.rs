//! `sluice run`: the switch itself.
//!
//! ```text
//!   main thread      opens ports, loads the program and entries, then: signals, link changes, log lines, end of input
//!   worker threads   packets (datapath)
//!   events thread    packet-ins, digests and time, from the switch to the control plane
//!   p4runtime threads  P4Runtime and the admin service (grpc, `transport.rs`)
//! ```
//!
//! The switch ends on SIGINT and SIGTERM, when another process takes over (`successor.rs`), and, if it was started with
//! capture files as its only ports, at the end of all of them. SIGHUP reloads certificates and roles.

use crate::bmv2::observe::ObserveArgs;
use crate::compile::CompileArgs;
use crate::compiler::{Compiler, LimitArgs};
use crate::devices::{self, DeviceArg, Devices, Wanted};
use crate::notify::Service;
use crate::openflow::OpenFlowArgs;
use crate::operator::SwitchOperator;
use crate::ports::{self, Opener};
use crate::specialise::Specialise;
use crate::state::{State, StateArgs, StateAtStart};
use crate::successor::{Predecessor, Successors, Takeover};
use crate::target::{self, SwitchTarget};
use crate::thrift::{self, Learners, ThriftArgs};
use crate::transport::TransportArgs;
use crate::{log, metrics, openflow, qos, stats};
use anyhow::{Context, Result, bail};
use control::Control;
use control::forwarding::ForwardingConfig;
use datapath::memory::{self, Quiet};
use datapath::replication::Replication;
use datapath::{EngineKind, Event, Idle, NewPort, Pipeline, PortOf, Sharing, Switch, SwitchConfig};
use grpc::Handle;
use heartbeat::Heartbeat;
use pktio::{Device, DeviceSpec, PortSpec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

mod begin;

/// How often links and the end of input are polled.
const TICK: Duration = Duration::from_millis(100);
/// The most that digests and idle timeouts wait; a packet-in wakes the events thread at once.
const EVENT_TICK: Duration = Duration::from_millis(5);
/// A round of the events thread that takes longer counts as stuck, because deliveries to controllers do not block.
const EVENT_ROUND_MAX: Duration = Duration::from_secs(30);
/// The most packet-ins that are delivered before digests and timeouts get their turn.
const EVENTS_PER_TICK: usize = 256;

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
    /// virtio-server:PATH, memif:PATH[,id=N][,role=server|client], xdp:IFACE, tap:NAME, pci:ADDRESS, pcap:IN[,OUT][,after=S] or memory;
    /// with ,mtu=N ,queues=N ,descriptors=N ,memory=MB ,isolated ,up and ,spread behind it if need be.
    #[arg(short = 'i', value_name = "PORT@DEVICE")]
    ports: Vec<String>,
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    thrift: ThriftArgs,
    #[command(flatten)]
    openflow: OpenFlowArgs,
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
    #[command(flatten)]
    qos: qos::StartArgs,
    /// The port number that stands for the controller.
    #[arg(long, value_name = "PORT", default_value_t = 510)]
    cpu_port: u32,
    /// Queues in strict priority that each port has where the program asks for queues: if it sets `priority` or a class of
    /// service, or reads queue metadata in egress. The last one is the most urgent. `sluice qos` says more of single ports.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    priority_queues: u8,
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
    /// Go on when all packets of capture files have come.
    #[arg(long, hide = true)]
    stays: bool,
    /// What code is compiled for in the background, while the switch runs, besides being right for all tables.
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    specialise: Specialise,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    observe: ObserveArgs,
}

/// Runs `sluice run`.
///
/// # Errors
/// If the switch cannot start: wrong options, ports that cannot be opened, state that cannot be restored.
pub fn main(args: &Args) -> Result<ExitCode> {
    match run(args)? {
        End::Code(code) => Ok(code),
        // Everything is dropped by now, so ports and sockets are closed.
        End::Takeover(takeover) => {
            takeover.give_ports();
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// How the switch ended.
enum End {
    Code(ExitCode),
    /// A successor takes over.
    Takeover(Takeover),
}

fn run(args: &Args) -> Result<End> {
    log::init(args.log_format == "json")?;
    datapath::memory::keep_freed();
    let given = ports::parse(&args.ports)?;
    if given.iter().any(|s| s.number == args.cpu_port) {
        bail!("port {} stands for the controller: choose another number or another --cpu-port", args.cpu_port);
    }
    let mut predecessor = Predecessor::of_this_process().map_err(anyhow::Error::msg)?;
    // Signals first, so that none is lost while ports are opened.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;

    let options = args.compile.options()?;
    let mut code = args.compile.code()?;
    code.jit.perf_map = args.perf_map;
    code.jit.time_max = Some(args.limits.limits().time);
    let command_line = Wanted::new(args.device_id, &args.devices, &args.bindings, &args.links)?;
    let command_line = command_line.with_ports(&given).with_qos(args.qos.read()?)?;
    let numbers: Vec<u32> = given.iter().map(|s| s.number).collect();
    if let Some(port) = args.bindings.iter().flat_map(|(ports, _)| ports).find(|port| !numbers.contains(port)) {
        bail!("--bind: there is no port {port}; -i {port}@DEVICE opens one");
    }
    let mut wanted_bridge = args.openflow.wanted(args.transport.insecure(), args.limits.state_bytes())?;
    if wanted_bridge.is_some() && args.entries.is_some() {
        bail!("--entries are a P4 program's tables; a bridge gets its flows from `ovs-ofctl` or a controller");
    }
    datapath::memory::limit_cells(args.limits.state_bytes());
    let compiler = Compiler::in_children(args.limits.limits());
    let keeping = if predecessor.is_some() { args.state.taking_over() } else { args.state.clone() };
    let mut open_state = || -> Result<Option<StateAtStart>> {
        if let Some(predecessor) = &mut predecessor {
            predecessor.take_state().map_err(anyhow::Error::msg)?;
        }
        keeping.open()?.map(StateAtStart::read).transpose()
    };
    // A restart compiles while it reads the stored state. If opening would change the directory, compiling comes first,
    // so that a wrong program leaves it untouched.
    let (programs, kept) = match keeping.only_reads() {
        true => std::thread::scope(|scope| {
            let programs = scope.spawn(|| compile_all(args, &compiler));
            let kept = open_state();
            let programs = programs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (programs, Some(kept))
        }),
        false => (compile_all(args, &compiler), None),
    };
    let Some(programs) = programs? else { return Ok(End::Code(ExitCode::from(1))) };
    let kept = kept.unwrap_or_else(open_state)?;
    let (state, mut stored) = kept.map_or((None, BTreeMap::new()), |kept| (Some(Arc::new(kept.state)), kept.devices));
    let workers = usize::from(args.workers);
    let wanted = Wanted::decide(state.as_deref(), &command_line)?;
    let specs: Vec<PortSpec> = wanted.ports.values().map(|port| port.spec.clone()).collect();
    // DPDK claims a PCI device when it starts, so the predecessor has to release it before.
    let takes_card = specs.iter().any(|spec| matches!(spec.device, DeviceSpec::Pci { .. }));
    let late = predecessor.is_some() && !takes_card;
    if let Some(predecessor) = predecessor.as_mut().filter(|_| takes_card) {
        predecessor.take_ports().map_err(anyhow::Error::msg)?;
    }
    let mut opener = Opener::new(&specs, args.workers)?;
    let open_all = |open: &mut dyn FnMut(&PortSpec) -> Result<Box<dyn Device>>| {
        let mut opened: Vec<(PortSpec, Box<dyn Device>)> = Vec::new();
        for spec in &specs {
            match open(spec) {
                Ok(device) => opened.push((spec.clone(), device)),
                Err(error) if numbers.contains(&spec.number) => return Err(error),
                // A port added at run time, not on the command line: its failure must not keep the other ports from
                // opening.
                Err(error) => tracing::error!("{error:#}; `sluice port remove {}` forgets it", spec.number),
            }
        }
        Ok(opened)
    };
    if predecessor.is_some() && specs.iter().any(|spec| matches!(spec.device, DeviceSpec::Pcap { .. })) {
        bail!("ports of capture files would start from their beginning in another process");
    }
    if late {
        let failed = opener.prepare(&specs);
        if let Some((_, error)) = failed.into_iter().find(|(number, _)| numbers.contains(number)) {
            return Err(error);
        }
    }
    // A successor opens its ports last; until then it assumes that all of them can be opened.
    let opened = if late { None } else { Some(open_all(&mut |spec| opener.open(spec))?) };
    let numbers_of = |opened: &[(PortSpec, _)]| opened.iter().map(|(spec, _)| spec.number).collect::<Vec<u32>>();
    let expected = opened.as_deref().map_or_else(|| specs.iter().map(|spec| spec.number).collect(), numbers_of);
    let switch = Arc::new(Switch::new(SwitchConfig {
        workers,
        device: args.device_id,
        cpu_port: Some(args.cpu_port),
        idle: args.idle,
        pool: Some(opener.pool()),
        on_worker_start: opener.register_workers(),
        queues: traffic::Config::strict(args.priority_queues),
    }));
    let engine = if args.interpret { EngineKind::Interpreter } else { EngineKind::Machine };
    let bridge_code = (code.clone(), engine);
    let target =
        SwitchTarget::new(Arc::clone(&switch), Arc::clone(&compiler), options, code, engine, args.specialise.into())
            .with_cache(args.openflow.cache_use());
    let handle = Handle::new(Control::new());
    let devices = Arc::new(Devices::new(Arc::clone(&switch), Arc::clone(&handle), target, state.clone(), opener));
    devices.begin(&wanted, &command_line, &expected)?;
    let mut bridge = None;
    for device in switch.devices() {
        if let Some(wanted) = wanted_bridge.take_if(|_| device == args.device_id) {
            let (code, engine) = &bridge_code;
            let place = state.as_ref().map(|state| {
                let stored = stored.remove(&device).unwrap_or_default();
                openflow::Place { dir: state.dir(), journal: state.journal(), stored, handle: Arc::clone(&handle) }
            });
            bridge = wanted.begin(&switch, device, &compiler, &args.compile.options()?, (code, *engine), place)?;
            if bridge.is_none() {
                return Ok(End::Code(ExitCode::from(1)));
            }
            devices.learn_name(device);
            continue;
        }
        let program = programs.get(&device).map(|(path, text)| (*path, text.as_slice()));
        let restored = match &state {
            Some(state) => {
                let stored = stored.remove(&device).unwrap_or_default();
                state.restore(&handle, device, args.device_id, stored, program)?
            }
            None => false,
        };
        if let Some(file) = args.entries.as_ref().filter(|_| restored && device == args.device_id) {
            announce!("{} is not read: the stored entries apply (--forget starts empty)", file.display());
        }
        if !restored && !begin(args, device, &switch, &handle, program, state.as_deref())? {
            return Ok(End::Code(ExitCode::from(1)));
        }
        devices.learn_name(device);
    }
    // The limit applies from here on: stored entries are restored even if they exceed it.
    datapath::memory::limit_entries(args.limits.state_bytes());
    for (id, (path, _)) in programs.iter().filter(|(id, _)| !switch.devices().contains(id)) {
        announce!("device {id} was unloaded, so {} is not loaded; `sluice load` makes it again", path.display());
    }
    for spec in &specs {
        let owner = devices.of_port(spec.number);
        if let Some(problem) = switch.pipeline_of(owner).and_then(|p| target::port_problem(p.program(), spec.number)) {
            bail!("-i {}@{}: {problem}", spec.number, spec.device);
        }
    }
    let (options, device) = (args.compile.options()?, args.device_id);
    let transport = args.transport.read()?;
    args.thrift.check(&args.transport)?;
    args.observe.check(args.transport.insecure())?;
    // Ports are added last and together, so that the first packet already finds the program, its entries and all output
    // ports.
    let opened = match opened {
        Some(opened) => opened,
        None => {
            if let Some(predecessor) = &mut predecessor {
                predecessor.take_ports().map_err(anyhow::Error::msg)?;
            }
            open_all(&mut |spec| devices.open_device(spec))?
        }
    };
    let observer = args.observe.start(&switch, &handle, (&compiler, &options), args.device_id)?;
    let numbers = numbers_of(&opened);
    let mut new_ports = Vec::new();
    let count = opened.len();
    for (spec, device) in opened {
        let owner = devices.of_port(spec.number);
        let of = if owner == args.device_id { String::new() } else { format!(", of device {owner}") };
        announce!("port {} is {}{of}", spec.number, spec.device);
        if let Some(note) = device.note() {
            tracing::warn!(port = spec.number, "{note}");
        }
        let sharing = if spec.spread { Sharing::Spread } else { Sharing::Fixed };
        new_ports.push(NewPort { bound_to: owner, number: spec.number, device, sharing });
    }
    switch.add_ports(new_ports)?;
    for port in wanted.ports.values().filter(|port| port.out_of_service && numbers.contains(&port.spec.number)) {
        announce!("port {} is out of service", port.spec.number);
        switch.set_in_service(port.spec.number, false)?;
    }
    args.qos.begin(&switch, &wanted, &numbers)?;
    if args.profile {
        switch.watch(Duration::MAX);
    }
    for link in switch.links() {
        announce!("{} leads to {}", link.from, link.to);
    }
    let bridge_admin = bridge.as_ref().map(openflow::Running::admin);
    let bridge = bridge.map(openflow::Running::serve).transpose()?;
    let (sender, messages) = channel();
    let (ready, takeovers) = channel();
    let successors = Arc::new(Successors::new(state.clone(), std::env::args_os().collect(), ready));
    let operator = SwitchOperator {
        switch: Arc::clone(&switch),
        handle: Arc::clone(&handle),
        devices: Arc::clone(&devices),
        compiler: Arc::clone(&compiler),
        options: options.clone(),
        successors: Arc::clone(&successors),
        bridge: bridge_admin,
    };
    forward(signals, takeovers, &sender)?;
    let observed = {
        let (switch, handle) = (Arc::clone(&switch), Arc::clone(&handle));
        move || {
            let (rpcs, lost_events) = (handle.rpcs().read(), handle.lost_events());
            metrics::text(metrics::Observed { stats: stats::collect(&switch), rpcs, lost_events })
        }
    };
    let listeners =
        args.transport.serve(transport, &handle, Arc::new(operator), Arc::new(observed), &switch.devices())?;
    let parts = thrift::Parts {
        switch: &switch,
        handle: &handle,
        devices: &devices,
        compiler: &compiler,
        options,
        device,
        events: args.observe.events().map(ToString::to_string),
    };
    let (thrift, learners) = args.thrift.serve(parts, &args.transport, &listeners)?;
    if let Some(server) = &thrift {
        observer.know_handles(server.handles());
    }
    compiler.started();

    let stop = Arc::new(AtomicBool::new(false));
    let events = {
        let (switch, handle, stop) = (Arc::clone(&switch), Arc::clone(&handle), Arc::clone(&stop));
        std::thread::Builder::new().name("events".into()).spawn(move || pump(&switch, &handle, &stop, learners))?
    };
    let mut service = Service::ready(&format!("{count} ports, {workers} workers"));
    let on_links = |device| handle.with(|control| control.links_changed(device));
    // A switch with other ports does not end with its files: an operator may replace them. What counts are the ports of
    // the command line.
    let ends =
        !args.stays && !given.is_empty() && given.iter().all(|port| matches!(port.device, DeviceSpec::Pcap { .. }));
    let changes = || handle.rpcs().changes();
    let reload = || {
        listeners.reload();
        bridge.iter().for_each(openflow::Server::reload);
    };
    let ended = wait(&messages, &switch, ends, &mut service, on_links, reload, changes);
    match &ended {
        Ended::Takeover(takeover) => service.hand_over(takeover.pid),
        Ended::Signal | Ended::Input => {
            successors.stop();
            service.stopping();
        }
    }
    compiler.stop();
    let (received, sent) =
        switch.ports().iter().fold((0, 0), |sum, port| (sum.0 + port.stats.rx_packets, sum.1 + port.stats.tx_packets));
    tracing::info!("stopping: {ended}; {received} packets received, {sent} sent");
    stop.store(true, Ordering::Relaxed);
    if events.join().is_err() {
        bail!("the events thread has panicked");
    }
    drop(thrift);
    drop(bridge);
    listeners.shutdown();
    // Do not free the entries one by one: that takes a while, and a restart waits for the end of this process.
    for device in switch.devices() {
        match switch.pipeline_of(device) {
            // A reference cycle: the pipeline owns the bridge, which owns the switch and so the ports that a successor
            // waits for.
            Some(pipeline) if pipeline.flows().is_some() => _ = switch.set_pipeline_of(device, None),
            Some(pipeline) => std::mem::forget(pipeline),
            None => {}
        }
    }
    Ok(match ended {
        Ended::Takeover(takeover) => End::Takeover(takeover),
        Ended::Signal | Ended::Input => End::Code(ExitCode::SUCCESS),
    })
}

/// The reason for the switch's end.
enum Ended {
    Signal,
    /// All ports have reached the end of their input.
    Input,
    Takeover(Takeover),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Signal => f.write_str("signal"),
            Ended::Input => f.write_str("end of input"),
            Ended::Takeover(takeover) => write!(f, "process {} takes over", takeover.pid),
        }
    }
}

/// A message to the main thread.
enum Message {
    Signal(i32),
    Takeover(Takeover),
}

/// Starts threads that forward signals and takeovers to the main thread, so that these do not wait for the next tick.
fn forward(mut signals: Signals, takeovers: Receiver<Takeover>, sender: &Sender<Message>) -> Result<()> {
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        thread.map(drop).with_context(|| format!("no thread for {name}"))
    };
    let of_signals = sender.clone();
    let each = move || signals.forever().try_for_each(|signal| of_signals.send(Message::Signal(signal))).unwrap_or(());
    spawn("signals", Box::new(each))?;
    let of_takeovers = sender.clone();
    let each = move || takeovers.iter().try_for_each(|one| of_takeovers.send(Message::Takeover(one))).unwrap_or(());
    spawn("takeovers", Box::new(each))
}

/// Programs by device: the file's path, and the self-contained text.
type Programs<'a> = BTreeMap<u64, (&'a Path, Vec<u8>)>;

/// Compiles the programs of the command line; returns each as self-contained text, which controllers can read back.
/// `None` if one was refused, which has been printed.
fn compile_all<'a>(args: &'a Args, compiler: &Compiler) -> Result<Option<Programs<'a>>> {
    let mut programs = Programs::new();
    let given = args.devices.iter().filter_map(|device| Some((device.id, device.program.as_ref()?)));
    for (id, path) in args.program.iter().map(|path| (args.device_id, path)).chain(given) {
        let Some(text) = args.compile.compile_apart(path, compiler)? else { return Ok(None) };
        programs.insert(id, (path, text));
    }
    Ok(Some(programs))
}

/// Loads a device's program and entries of the command line; false if an entry is wrong, which has been printed.
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
        handle.load(device, config).map_err(|e| anyhow::anyhow!("{}", e.message))?;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        announce!("{} compiled in {took_ms:.1} ms, running on {} worker(s)", path.display(), args.workers);
    }
    if let Some(file) = args.entries.as_ref().filter(|_| device == args.device_id) {
        let pipeline = switch.pipeline().context("--entries needs a program")?;
        if !begin::entries(file, device, handle, &pipeline)? {
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

/// The events thread: delivers packet-ins, digests and idle timeouts to the control plane until `stop` is set.
pub(crate) fn pump(switch: &Switch, handle: &Handle, stop: &AtomicBool, mut learners: Option<Learners>) {
    let Some(events) = switch.take_events() else { return };
    let heart = Heartbeat::new("events", EVENT_ROUND_MAX);
    while !stop.load(Ordering::Relaxed) {
        heart.beat();
        let mut next = events.recv_timeout(EVENT_TICK).ok();
        // Deliver what is queued in one go, but bounded: digests and timeouts get their turn under a flood of
        // packet-ins.
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
            let (digests, now_us) = (switch.take_digests(device), switch.now_us());
            if let Some(learners) = learners.as_mut().filter(|learners| learners.device() == device) {
                learners.tell(switch, handle, &digests, now_us / 1000);
            }
            let idle = handle.tick(device, &digests, now_us * 1000);
            if let Some(learners) = learners.as_mut().filter(|learners| learners.device() == device) {
                learners.tell_idle(idle.to_vec());
            }
        }
    }
}

/// The main loop: runs periodic work until there is a reason to stop. The end of input is one if `ends` is set.
fn wait(
    messages: &Receiver<Message>,
    switch: &Switch,
    ends: bool,
    service: &mut Service,
    on_links: impl Fn(u64),
    reload: impl Fn(),
    changes: impl Fn() -> u64,
) -> Ended {
    let mut quiet = Quiet::new(Instant::now(), changes(), memory::resident_bytes());
    loop {
        service.alive();
        if quiet.is_due(Instant::now(), changes(), memory::resident_bytes) {
            memory::give_back();
            quiet.given_back(memory::resident_bytes());
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
        if ends && switch.at_end() {
            // No packet can arrive any more. Workers pause between two bursts, so what they had received is sent.
            if let Err(error) = switch.hold() {
                tracing::warn!("at the end of input: {error}");
            }
            return Ended::Input;
        }
        match messages.recv_timeout(TICK) {
            Ok(Message::Signal(SIGHUP)) => reload(),
            Ok(Message::Signal(_)) => return Ended::Signal,
            Ok(Message::Takeover(takeover)) => return Ended::Takeover(takeover),
            Err(RecvTimeoutError::Timeout) => {}
            // The forwarding threads have ended, so no message will come.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
        }
    }
}

fn parse_idle(text: &str) -> Result<Idle, String> {
    match text {
        "sleep" => Ok(Idle::Sleep),
        "interrupt" => Ok(Idle::Interrupt),
        "busy" => Ok(Idle::Busy),
        _ => Err("policies are `sleep`, `interrupt` and `busy`".to_string()),
    }
}

/// Applies a file of set-up lines. If lines are wrong, all of them are reported on stderr, and the result is false.
///
/// # Errors
/// If the file cannot be read.
pub fn apply_entries(file: &Path, pipeline: &Pipeline, replication: &Replication) -> Result<bool> {
    let text = crate::files::text(file)?;
    let target = stf::Target { program: pipeline.program(), state: pipeline.state().as_ref(), replication };
    let Err(errors) = stf::setup::apply_all(&text, target) else { return Ok(true) };
    for error in errors {
        eprintln!("{}: {error}", file.display());
    }
    Ok(false)
}

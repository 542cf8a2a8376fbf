//! The switch: ports, workers, devices, and the programs they run.
//!
//! This is what the control plane and the binary hold. Methods take `&self` and may be called from any thread; changes
//! are serialised inside. Packets never wait for them.
//!
//! A *device* is what P4Runtime calls one: a program with its state, and ports of its own. The switch begins with one; methods
//! that name none are about that one, as long as it is there. `switch/devices.rs` has what concerns several.

use crate::hold::Held;
use crate::pipeline::{ActionInfo, Pipeline};
use crate::queues::shared_buffer;
use crate::tap::{TapConfig, Tapped};
use crate::watch::{Samples, Watch, Watched};
use crate::worker::{
    Basket, Command, Event, Idle, Injected, Mailbox, Sharing, WorkerCounters, WorkerLoad, WorkerSetup, run, share,
};
use abi::state::{DigestMessage, PipelineState};
use devices::{DeviceEntry, LinkEntry};
use pktio::{Device, HeapPool, LinkState, MacAddress, PoolRef, PortStats};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod devices;
mod queues;

pub use devices::{LinkInfo, PortOf};
pub use queues::{QueueInfo, QueuesOf, TenantInfo};

/// Packets for the controller that may wait; more are dropped and counted.
pub const EVENTS_MAX: usize = 4096;
/// Packet-outs that may wait in a worker's mailbox.
pub const INJECT_MAX: usize = 1024;
/// How long a program change waits for the workers to pick it up.
pub(crate) const PICK_UP: Duration = Duration::from_secs(5);

/// Called on each worker's thread before it starts, with its index (drivers register threads here). What it returns is
/// dropped on that thread when the worker ends.
pub type WorkerHook = Arc<dyn Fn(usize) -> Box<dyn std::any::Any> + Send + Sync>;

/// How a switch is set up.
pub struct SwitchConfig {
    /// The id of the device that the switch begins with.
    pub device: u64,
    /// Worker threads, at least 1.
    pub workers: usize,
    /// The port number that stands for the controller.
    pub cpu_port: Option<u32>,
    /// What idle workers do.
    pub idle: Idle,
    /// Where injected packets' buffers come from; `None` for the heap.
    pub pool: Option<PoolRef>,
    /// Runs on each worker's thread first.
    pub on_worker_start: Option<WorkerHook>,
    /// Queues of ports for which none are configured, where a program asks for queues.
    pub queues: traffic::Config,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        SwitchConfig {
            device: 1,
            workers: 1,
            cpu_port: None,
            idle: Idle::default(),
            pool: None,
            on_worker_start: None,
            queues: traffic::Config::fifo(),
        }
    }
}

/// Why the switch refused something.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SwitchError {
    /// Two ports of one number.
    #[error("port {0} exists already")]
    PortExists(u32),
    /// No port of this number.
    #[error("there is no port {0}")]
    NoSuchPort(u32),
    /// No device of this id.
    #[error("there is no device {id}; {}", devices::list(.there))]
    NoSuchDevice {
        /// What was asked for.
        id: u64,
        /// What there is.
        there: Vec<u64>,
    },
    /// A device id that is taken.
    #[error("there is a device {0} already")]
    DeviceExists(u64),
    /// A device id that stands for something else.
    #[error("0 is no device id: P4Runtime takes it for the server itself")]
    NoDeviceId,
    /// A device with ports or links.
    #[error("device {id} still has {}; bind ports to another device and unchain links first", .has.join(", "))]
    DeviceInUse {
        /// The device.
        id: u64,
        /// Its ports and links.
        has: Vec<String>,
    },
    /// A port that the device has already.
    #[error("port {0} is bound to device {1} already")]
    BoundAlready(u32, u64),
    /// A number that is taken in a device.
    #[error("{0} is taken: {1}")]
    PortTaken(PortOf, String),
    /// No link begins there.
    #[error("no link begins at {from}; {}", devices::list_links(.links))]
    NoSuchLink {
        /// Where.
        from: PortOf,
        /// The links that there are.
        links: Vec<String>,
    },
    /// A packet for the pipeline, but no pipeline.
    #[error("no program is loaded")]
    NoProgram,
    /// A config that contradicts itself or the port.
    #[error("queues of {of}: {}", list_problems(.problems))]
    BadQueues {
        /// Whose they would be.
        of: QueuesOf,
        /// What is wrong.
        problems: Vec<traffic::Problem>,
    },
    /// More ports and links with queues than there may be.
    #[error("{} ports and links have queues already, and no more can", traffic::TENANTS_MAX)]
    TooManyQueues,
    /// A tenant's config that contradicts itself or what others have.
    #[error("tenant `{name}`: {}", list_problems(.problems))]
    BadTenant {
        /// Its name.
        name: String,
        /// What is wrong.
        problems: Vec<traffic::Problem>,
    },
    /// No tenant of this name.
    #[error("there is no tenant `{name}`; there is {}", if .there.is_empty() { "none".to_string() } else { .there.join(", ") })]
    NoSuchTenant {
        /// The unknown name.
        name: String,
        /// The names of all tenants.
        there: Vec<String>,
    },
    /// A tenant that queues belong to.
    #[error("queues of {} belong to tenant `{name}`", list_members(.members))]
    TenantInUse {
        /// Its name.
        name: String,
        /// Whose queues.
        members: Vec<QueuesOf>,
    },
    /// Too many packet-outs wait.
    #[error("{INJECT_MAX} packets wait to be injected already")]
    Busy,
    /// A worker does not answer.
    #[error(
        "worker {0} did not pick the change up within {PICK_UP:?}; see what thread `worker-{0}` waits for, or restart the switch"
    )]
    Stuck(usize),
}

fn list_problems(problems: &[traffic::Problem]) -> String {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    all.join("; ")
}

fn list_members(members: &[QueuesOf]) -> String {
    let all: Vec<String> = members.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// A port as `sluice stats` shows it.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// Its number.
    pub number: u32,
    /// The id of the P4Runtime device that has it.
    pub bound_to: u64,
    /// The device's name.
    pub name: String,
    /// The device's kind.
    pub kind: &'static str,
    /// Link; down while the operator has taken the port out of service.
    pub link: LinkState,
    /// Whether it is in service.
    pub in_service: bool,
    /// What keeps packets from passing, as one sentence with the remedy, or what else a user should know.
    pub note: Option<String>,
    /// The largest payload that it is meant to carry.
    pub mtu: u16,
    /// Its address.
    pub mac: Option<MacAddress>,
    /// Counters.
    pub stats: PortStats,
}

/// A table as `sluice stats` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableInfo {
    /// Control-plane name.
    pub name: String,
    /// Entries now.
    pub entries: u64,
    /// Most entries.
    pub size: u64,
    /// Lookups that matched and that did not; the interpreter does not count them.
    pub lookups: Option<(u64, u64)>,
    /// About how much memory its entries and what finds them take; the interpreter does not tell.
    pub memory_bytes: Option<u64>,
}

/// Names of drop counters that ports have.
const TOO_LONG: &str = "frame too long for its port";
const NOT_CUT: &str = "large frame that cannot be cut into segments";

struct PortEntry {
    number: u32,
    /// Whose it is.
    bound_to: u64,
    device: Box<dyn Device>,
    up: bool,
    in_service: bool,
    queues: queues::PortQueues,
}

impl PortEntry {
    fn link(&self) -> LinkState {
        let link = self.device.link();
        LinkState { up: link.up && self.in_service, ..link }
    }
}

#[derive(Default)]
struct Inner {
    ports: Vec<PortEntry>,
    devices: BTreeMap<u64, DeviceEntry>,
    links: Vec<LinkEntry>,
}

/// A running switch. Dropping it stops the workers.
pub struct Switch {
    /// Ends before the workers do.
    watch: Option<Watch>,
    inner: Arc<Mutex<Inner>>,
    mailboxes: Vec<Arc<Mailbox>>,
    counters: Vec<Arc<WorkerCounters>>,
    /// Signal handlers on the workers' threads write there: these outlive the threads.
    samples: Vec<Arc<Samples>>,
    first: u64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    events: Mutex<Option<Receiver<Event>>>,
    cpu_port: Option<u32>,
    pool: PoolRef,
    start: Instant,
    queues_default: traffic::Config,
    /// Of the buffer that all queues share. Locked behind `inner`.
    tenants: Mutex<traffic::Tenants>,
}

/// A port to be added.
pub struct NewPort {
    /// The device whose program its packets meet.
    pub bound_to: u64,
    /// Its number.
    pub number: u32,
    /// What is behind it.
    pub device: Box<dyn Device>,
    /// What becomes of workers that the device has no queue for.
    pub sharing: Sharing,
}

impl Switch {
    /// Starts the workers; without ports or a program they idle.
    pub fn new(config: SwitchConfig) -> Switch {
        let (tx, rx) = sync_channel(EVENTS_MAX);
        let pool = config.pool.unwrap_or_else(|| HeapPool::shared(4096));
        let start = Instant::now();
        let mut switch = Switch {
            watch: None,
            samples: Vec::new(),
            inner: Arc::default(),
            mailboxes: Vec::new(),
            counters: Vec::new(),
            first: config.device,
            threads: Mutex::default(),
            events: Mutex::new(Some(rx)),
            cpu_port: config.cpu_port,
            pool: Arc::clone(&pool),
            start,
            queues_default: config.queues,
            tenants: Mutex::new(traffic::Tenants::new(shared_buffer(pool.limit()))),
        };
        let mut threads = Vec::new();
        for index in 0..config.workers.max(1) {
            let setup = WorkerSetup {
                index,
                mailbox: Arc::default(),
                counters: Arc::default(),
                samples: Arc::default(),
                events: tx.clone(),
                pool: Arc::clone(&pool),
                cpu_port: config.cpu_port,
                idle: config.idle,
                start,
            };
            switch.mailboxes.push(Arc::clone(&setup.mailbox));
            switch.counters.push(Arc::clone(&setup.counters));
            switch.samples.push(Arc::clone(&setup.samples));
            let hook = config.on_worker_start.clone();
            let body = move || {
                let _registration = hook.map(|hook| hook(index));
                run(setup);
            };
            let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(body);
            threads.push(thread.expect("the system can start a thread"));
        }
        *switch.threads.get_mut().unwrap_or_else(PoisonError::into_inner) = threads;
        let first = switch.new_device(config.device);
        switch.lock().devices.insert(config.device, first);
        let workers = switch.samples.iter().cloned().zip(switch.counters.iter().cloned()).collect();
        let inner = Arc::clone(&switch.inner);
        let pipelines = move || {
            let inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            let running = |(id, device): (&u64, &DeviceEntry)| Some((*id, device.pipeline.clone()?));
            inner.devices.iter().filter_map(running).collect()
        };
        switch.watch = Some(Watch::new(workers, Box::new(pipelines)));
        switch
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// The controller's port number, for programs whose architecture leaves it open.
    pub fn cpu_port(&self) -> Option<u32> {
        self.cpu_port
    }

    /// The controller's port number in a device's program.
    pub fn cpu_port_of(&self, device: u64) -> Option<u32> {
        self.pipeline_of(device).and_then(|p| p.program().cpu_port).map(|port| port as u32).or(self.cpu_port)
    }

    /// Microseconds since the switch started: the clock of all timestamps.
    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Adds a port; returns when all workers have it, so that a packet that comes by it may leave by any that was added before.
    pub fn add_port(&self, number: u32, device: Box<dyn Device>) -> Result<(), SwitchError> {
        self.add_shared_port(number, device, Sharing::default())
    }

    /// The same, and what becomes of workers that the device has no queue for.
    pub fn add_shared_port(&self, number: u32, device: Box<dyn Device>, sharing: Sharing) -> Result<(), SwitchError> {
        self.add_port_to(self.first, number, device, sharing)
    }

    /// The same, as a port of any device.
    pub fn add_port_to(
        &self,
        bound_to: u64,
        number: u32,
        device: Box<dyn Device>,
        sharing: Sharing,
    ) -> Result<(), SwitchError> {
        self.add_ports(vec![NewPort { bound_to, number, device, sharing }])
    }

    /// Adds ports, all or, if one cannot be, none. They begin together: what comes by the first may leave by the last.
    pub fn add_ports(&self, ports: Vec<NewPort>) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        for (i, NewPort { bound_to, number, .. }) in ports.iter().enumerate() {
            let is_taken = inner.ports.iter().any(|p| p.number == *number) || Some(*number) == self.cpu_port;
            if is_taken || ports[..i].iter().any(|before| before.number == *number) {
                return Err(SwitchError::PortExists(*number));
            }
            inner.check_free(PortOf { device: *bound_to, port: *number })?;
        }
        let mut commands: Vec<Vec<Command>> = self.mailboxes.iter().map(|_| Vec::new()).collect();
        for NewPort { bound_to, number, mut device, sharing } in ports {
            let queues = share(device.take_queues(), self.workers(), inner.ports.len(), sharing);
            for (commands, queue) in commands.iter_mut().zip(queues) {
                commands.push(Command::AddPort(bound_to, number, queue));
            }
            let up = device.link().up;
            if let Some(pipeline) = inner.pipeline(bound_to) {
                pipeline.state().port_state(number, up);
            }
            let server = inner.ports.len() % self.workers();
            let queues = queues::PortQueues::served_by(server);
            inner.ports.push(PortEntry { number, bound_to, device, up, in_service: true, queues });
        }
        let posted = self.mailboxes.iter().zip(commands);
        let posted: Vec<u64> = posted.map(|(mailbox, commands)| mailbox.post_all(commands)).collect();
        self.await_each(&posted)?;
        let mut devices: Vec<u64> = inner.devices.keys().copied().collect();
        devices.retain(|device| inner.pipeline(*device).is_some_and(|pipeline| pipeline.program().queues));
        devices.into_iter().try_for_each(|device| self.tidy_queues(&mut inner, device))
    }

    /// Removes a port: returns once all workers have let go of it and it is closed, on this thread. Members of selectors and
    /// replicas that watch it are told that it is down; what it dropped stays in its device's counters.
    pub fn remove_port(&self, number: u32) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        let at = inner.ports.iter().position(|p| p.number == number).ok_or(SwitchError::NoSuchPort(number))?;
        let bound_to = inner.ports[at].bound_to;
        if inner.ports[at].queues.are_running() {
            self.take_queues(PortOf { device: bound_to, port: number }, inner.ports[at].queues.server)?;
        }
        let basket = Basket::default();
        self.tell_all(|| Command::RemovePort(bound_to, number, Arc::clone(&basket)))?;
        let port = inner.ports.remove(at);
        let stats = port.device.stats();
        if let Some(device) = inner.devices.get_mut(&bound_to) {
            for (name, count) in port_drops(&stats) {
                *device.past_drops.entry(name).or_default() += count;
            }
        }
        if let Some(pipeline) = inner.pipeline(bound_to) {
            pipeline.state().port_state(number, false);
        }
        // Closing sockets waits for the kernel: nobody who only reads counters waits with it.
        drop(inner);
        basket.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(port);
        Ok(())
    }

    /// Takes a port out of service, or into it again: out of service it receives and sends nothing, and counts as down.
    pub fn set_in_service(&self, number: u32, up: bool) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        let at = inner.ports.iter().position(|p| p.number == number).ok_or(SwitchError::NoSuchPort(number))?;
        let bound_to = inner.ports[at].bound_to;
        self.tell_all(|| Command::SetInService(bound_to, number, up))?;
        inner.ports[at].in_service = up;
        let is_up = inner.ports[at].link().up;
        inner.ports[at].up = is_up;
        if let Some(pipeline) = inner.pipeline(bound_to) {
            pipeline.state().port_state(number, is_up);
        }
        Ok(())
    }

    /// Makes all workers run `pipeline` (or nothing) and returns when all do. A packet meets one of the two programs, with
    /// its tables, groups and sessions: workers change between batches, and all copies of a packet end in its batch.
    pub fn set_pipeline(&self, pipeline: Option<Arc<Pipeline>>) -> Result<(), SwitchError> {
        self.set_pipeline_of(self.first, pipeline)
    }

    /// How often a pipeline was set.
    pub fn program_changes(&self) -> u64 {
        self.lock().devices.values().map(|device| device.program_changes).sum()
    }

    /// The running pipeline.
    pub fn pipeline(&self) -> Option<Arc<Pipeline>> {
        self.pipeline_of(self.first)
    }

    /// The running pipeline's state.
    pub fn state(&self) -> Option<Arc<dyn PipelineState>> {
        self.pipeline().map(|p| Arc::clone(p.state()))
    }

    /// Runs a frame through the pipeline as if received on `port` (packet-out: the controller's port).
    pub fn inject(&self, port: u32, frame: Vec<u8>) -> Result<(), SwitchError> {
        self.inject_into(self.first, port, frame)
    }

    /// The same, through any device's pipeline.
    pub fn inject_into(&self, device: u64, port: u32, frame: Vec<u8>) -> Result<(), SwitchError> {
        self.inject_at(device, port, 0, frame).map_err(|(error, _)| error)
    }

    /// The same, where the device's flow processor begins at `start` ([`abi::flows::Arrival::start`]). Gives back what is not taken.
    pub fn inject_at(&self, device: u64, port: u32, start: u64, frame: Vec<u8>) -> Result<(), (SwitchError, Vec<u8>)> {
        if self.pipeline_of(device).is_none() {
            return Err((SwitchError::NoProgram, frame));
        }
        let injected = Injected { device, port, start, frame };
        self.mailboxes[0].inject(injected, INJECT_MAX).map_err(|Injected { frame, .. }| (SwitchError::Busy, frame))
    }

    /// Has flow processors do their own work ([`abi::flows::FlowProcessor::idle`]), and waits for that.
    pub fn settle(&self) -> Result<(), SwitchError> {
        self.tell_all(|| Command::Settle)
    }

    /// Stops all workers between two bursts until the result is dropped: packets see all that is changed meanwhile, or
    /// nothing of it. Not to be called while something is held.
    pub fn hold(&self) -> Result<Held, SwitchError> {
        let held = Held { gate: Arc::default() };
        for mailbox in &self.mailboxes {
            mailbox.post(Command::Hold(Arc::clone(&held.gate)));
        }
        // On failure `held` is dropped, and those that stand already go on.
        match held.gate.await_standing(self.workers(), PICK_UP) {
            true => Ok(held),
            false => Err(self.stuck()),
        }
    }

    /// Which worker has not taken its commands.
    fn stuck(&self) -> SwitchError {
        SwitchError::Stuck(self.mailboxes.iter().position(|mailbox| mailbox.waiting() > 0).unwrap_or(0))
    }

    /// Copies what ports receive and send until the result is dropped. All that workers receive after the call is in it.
    pub fn tap(&self, config: TapConfig) -> Result<Tapped, SwitchError> {
        let tapped = Tapped::new(config, self.mailboxes.clone());
        self.tell_all(|| tapped.begin())?;
        Ok(tapped)
    }

    /// The channel of events; the first caller gets it.
    pub fn take_events(&self) -> Option<Receiver<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Digest messages of a device since the last call.
    pub fn take_digests(&self, device: u64) -> Vec<DigestMessage> {
        self.pipeline_of(device).map_or_else(Vec::new, |p| p.take_digests())
    }

    /// To be called now and then by the binary: frees what nobody uses any more, and gives the log lines of packets.
    pub fn housekeeping(&self) -> Vec<String> {
        let pipelines: Vec<Arc<Pipeline>> = {
            let inner = self.lock();
            inner.devices.values().filter_map(|device| device.pipeline.clone()).collect()
        };
        let mut lines = Vec::new();
        for pipeline in pipelines {
            pipeline.housekeeping(self.now_us());
            lines.extend(pipeline.take_logs());
        }
        lines
    }

    /// Looks at all ports' links and tells the state about changes; called now and then by the binary's housekeeping. Which
    /// ports of which devices have changed, and whether they are up.
    pub fn poll_links(&self) -> Vec<(PortOf, bool)> {
        let mut inner = self.lock();
        let Inner { ports, devices, .. } = &mut *inner;
        let mut changed = Vec::new();
        for port in ports {
            let up = port.link().up;
            if up != port.up {
                port.up = up;
                changed.push((PortOf { device: port.bound_to, port: port.number }, up));
                if let Some(pipeline) = devices.get(&port.bound_to).and_then(|device| device.pipeline.as_ref()) {
                    pipeline.state().port_state(port.number, up);
                }
            }
        }
        changed
    }

    /// All ports.
    pub fn ports(&self) -> Vec<PortInfo> {
        let inner = self.lock();
        inner
            .ports
            .iter()
            .map(|p| PortInfo {
                number: p.number,
                bound_to: p.bound_to,
                name: p.device.name().to_string(),
                kind: p.device.kind(),
                link: p.link(),
                in_service: p.in_service,
                note: p.device.note(),
                mtu: p.device.mtu(),
                mac: p.device.mac(),
                stats: p.device.stats(),
            })
            .collect()
    }

    /// Whether every port has come to the end of its input (capture files).
    pub fn at_end(&self) -> bool {
        let inner = self.lock();
        !inner.ports.is_empty() && inner.ports.iter().all(|p| p.device.at_end())
    }

    /// All tables of a device's running program.
    pub fn tables(&self, device: u64) -> Vec<TableInfo> {
        self.pipeline_of(device).map_or_else(Vec::new, |p| p.table_info())
    }

    /// Packet buffers that are in use, ports' receive rings included, and how many there are.
    pub fn buffers(&self) -> (usize, usize) {
        let limit = self.pool.limit();
        (limit.saturating_sub(self.pool.available()), limit)
    }

    /// Drop counters of all devices, summed over workers and all programs so far: `(reason, packets)`, zero ones of the
    /// running programs and of the switch included.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let mut sum = Vec::new();
        for device in self.devices() {
            add_drops(&mut sum, self.drops_of(device));
        }
        sum
    }

    /// The same, of one device.
    pub fn drops_of(&self, device: u64) -> Vec<(String, u64)> {
        let none = ir::Program::default();
        let mut sum = Vec::new();
        let inner = self.lock();
        let Some(entry) = inner.devices.get(&device) else { return sum };
        if let Some(pipeline) = &entry.pipeline {
            for worker in 0..self.workers() {
                add_drops(&mut sum, pipeline.drops(worker).read(pipeline.program()));
            }
        }
        for drops in &entry.without_program {
            add_drops(&mut sum, drops.read(&none));
        }
        add_drops(&mut sum, entry.past_drops.clone().into_iter().collect());
        // Workers hand these to their ports: only the ports know.
        for port in inner.ports.iter().filter(|port| port.bound_to == device) {
            add_drops(&mut sum, port_drops(&port.device.stats()));
        }
        sum
    }

    /// What each worker has done, and where its cycles went.
    pub fn worker_load(&self) -> Vec<WorkerLoad> {
        self.counters.iter().map(|counters| counters.read()).collect()
    }

    /// Counts actions and finds out where cycles go for so long from now on, or as long as it was told to before (`watch`).
    pub fn watch(&self, time: Duration) {
        if let Some(watch) = &self.watch {
            watch.watch(time);
        }
    }

    /// Where the cycles went while somebody watched.
    pub fn watched(&self) -> Watched {
        self.watch.as_ref().map_or_else(Watched::default, Watch::read)
    }

    /// How often tables of a device ran which actions while somebody watched.
    pub fn actions(&self, device: u64) -> Vec<ActionInfo> {
        self.pipeline_of(device).map_or_else(Vec::new, |p| p.action_info())
    }

    fn tell_all(&self, command: impl Fn() -> Command) -> Result<(), SwitchError> {
        self.tell_each(|_| command())
    }

    /// Gives each worker its command, and waits until all have had effect.
    fn tell_each(&self, command: impl Fn(usize) -> Command) -> Result<(), SwitchError> {
        self.await_each(&self.post_each(command))
    }

    /// Gives each worker its command; their numbers.
    fn post_each(&self, command: impl Fn(usize) -> Command) -> Vec<u64> {
        self.mailboxes.iter().enumerate().map(|(i, mailbox)| mailbox.post(command(i))).collect()
    }

    /// Waits until each worker's command has had effect.
    fn await_each(&self, numbers: &[u64]) -> Result<(), SwitchError> {
        for (worker, (mailbox, number)) in self.mailboxes.iter().zip(numbers).enumerate() {
            if !mailbox.wait(*number, PICK_UP) {
                return Err(SwitchError::Stuck(worker));
            }
        }
        Ok(())
    }
}

/// Drops that ports count.
fn port_drops(stats: &PortStats) -> Vec<(String, u64)> {
    vec![(TOO_LONG.to_string(), stats.tx_too_long), (NOT_CUT.to_string(), stats.tx_not_cut)]
}

fn add_drops(sum: &mut Vec<(String, u64)>, list: Vec<(String, u64)>) {
    for (name, n) in list {
        match sum.iter_mut().find(|(have, _)| *have == name) {
            Some((_, total)) => *total += n,
            None => sum.push((name, n)),
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // No timer may be left that interrupts a thread which has ended.
        self.watch = None;
        for mailbox in &self.mailboxes {
            mailbox.post(Command::Stop);
        }
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }
}

//! The running switch: ports, workers, devices, and the programs that they run.
//!
//! This is the handle of the control plane and the binary. Methods take `&self` and may be called from any thread;
//! changes are serialised inside. Packets never wait for them.
//!
//! Methods that change what workers do post a command to every worker and wait until all have executed it. They
//! return [`SwitchError::Stuck`] if a worker has not done so within `PICK_UP`.
//!
//! A *device* is P4Runtime's: a program with its state, and ports of its own. The switch starts with one; methods
//! without a device argument concern that one. `switch/devices.rs` has the methods that concern several.

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

/// Most packets that may wait for the controller; more are dropped and counted.
pub const EVENTS_MAX: usize = 4096;
/// Most packet-outs that may wait in a worker's mailbox.
pub const INJECT_MAX: usize = 1024;
/// Longest wait for workers to execute a command.
pub(crate) const PICK_UP: Duration = Duration::from_secs(5);

/// A function called with the worker's index on each worker's thread before it starts (drivers register threads
/// here). Its result is dropped on that thread when the worker ends.
pub type WorkerHook = Arc<dyn Fn(usize) -> Box<dyn std::any::Any> + Send + Sync>;

/// Settings of a new switch.
pub struct SwitchConfig {
    /// The id of the first device.
    pub device: u64,
    /// Worker threads, at least 1.
    pub workers: usize,
    /// The controller's port number.
    pub cpu_port: Option<u32>,
    /// The idle policy of workers.
    pub idle: Idle,
    /// The buffer pool for injected packets; `None` for the heap.
    pub pool: Option<PoolRef>,
    /// Runs first on each worker's thread.
    pub on_worker_start: Option<WorkerHook>,
    /// Queues of ports that have none configured, when their program uses queues.
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

/// Why the switch refused a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SwitchError {
    /// A port of this number exists.
    #[error("port {0} exists already")]
    PortExists(u32),
    /// There is no port of this number.
    #[error("there is no port {0}")]
    NoSuchPort(u32),
    /// There is no device of this id.
    #[error("there is no device {id}; {}", devices::list(.there))]
    NoSuchDevice {
        /// The unknown id.
        id: u64,
        /// The ids of all devices.
        there: Vec<u64>,
    },
    /// The device id is in use.
    #[error("there is a device {0} already")]
    DeviceExists(u64),
    /// 0 is not a valid device id.
    #[error("0 is not a device id: P4Runtime takes it for the server itself")]
    NoDeviceId,
    /// The device still has ports or links.
    #[error("device {id} still has {}; bind ports to another device and unchain links first", .has.join(", "))]
    DeviceInUse {
        /// The device.
        id: u64,
        /// Its ports and links.
        has: Vec<String>,
    },
    /// The port is bound to this device already.
    #[error("port {0} is bound to device {1} already")]
    BoundAlready(u32, u64),
    /// The port number is in use in the device.
    #[error("{0} is taken: {1}")]
    PortTaken(PortOf, String),
    /// No link starts at this port.
    #[error("no link begins at {from}; {}", devices::list_links(.links))]
    NoSuchLink {
        /// The port.
        from: PortOf,
        /// All links.
        links: Vec<String>,
    },
    /// A packet was injected, but no program is loaded.
    #[error("no program is loaded")]
    NoProgram,
    /// The queue config contradicts itself or the port.
    #[error("queues of {of}: {}", list_problems(.problems))]
    BadQueues {
        /// The port or link.
        of: QueuesOf,
        /// The problems found.
        problems: Vec<traffic::Problem>,
    },
    /// The maximum number of ports and links with queues is reached.
    #[error("{} ports and links have queues already, and no more can", traffic::TENANTS_MAX)]
    TooManyQueues,
    /// The tenant's config contradicts itself or other tenants' reservations.
    #[error("tenant `{name}`: {}", list_problems(.problems))]
    BadTenant {
        /// Its name.
        name: String,
        /// The problems found.
        problems: Vec<traffic::Problem>,
    },
    /// There is no tenant of this name.
    #[error("there is no tenant `{name}`; there is {}", if .there.is_empty() { "none".to_string() } else { .there.join(", ") })]
    NoSuchTenant {
        /// The unknown name.
        name: String,
        /// The names of all tenants.
        there: Vec<String>,
    },
    /// Queues still belong to the tenant.
    #[error("queues of {} belong to tenant `{name}`", list_members(.members))]
    TenantInUse {
        /// Its name.
        name: String,
        /// The ports and links with those queues.
        members: Vec<QueuesOf>,
    },
    /// [`INJECT_MAX`] packets wait to be injected already.
    #[error("{INJECT_MAX} packets wait to be injected already")]
    Busy,
    /// A worker has not executed its commands within `PICK_UP`.
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
    /// Link state; down while the port is out of service.
    pub link: LinkState,
    /// Whether it is in service.
    pub in_service: bool,
    /// A sentence for the user: what keeps packets from passing, with the remedy, or other remarks.
    pub note: Option<String>,
    /// The MTU in bytes.
    pub mtu: u16,
    /// Its MAC address.
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
    /// Maximum number of entries.
    pub size: u64,
    /// Hits and misses; `None` for the interpreter, which does not count them.
    pub lookups: Option<(u64, u64)>,
    /// Approximate memory of the entries and the lookup structure, in bytes; `None` for the interpreter.
    pub memory_bytes: Option<u64>,
}

/// Names of the drop counters that ports keep.
const TOO_LONG: &str = "frame too long for its port";
const NOT_CUT: &str = "large frame that cannot be cut into segments";

struct PortEntry {
    number: u32,
    /// The id of its device.
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
    /// Buffers that signal handlers on the workers' threads write to; they outlive the threads.
    samples: Vec<Arc<Samples>>,
    first: u64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    events: Mutex<Option<Receiver<Event>>>,
    cpu_port: Option<u32>,
    pool: PoolRef,
    start: Instant,
    queues_default: traffic::Config,
    /// The tenants of the buffer that all queues share. Lock order: after `inner`.
    tenants: Mutex<traffic::Tenants>,
}

/// A port to be added.
pub struct NewPort {
    /// The device whose program processes its packets.
    pub bound_to: u64,
    /// Its number.
    pub number: u32,
    /// The packet I/O device behind it.
    pub device: Box<dyn Device>,
    /// What happens with workers for which the device has no queue.
    pub sharing: Sharing,
}

impl Switch {
    /// Starts the workers; without ports and a program they idle.
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

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// The controller's port number for programs that do not fix it.
    pub fn cpu_port(&self) -> Option<u32> {
        self.cpu_port
    }

    /// The controller's port number in a device's program.
    pub fn cpu_port_of(&self, device: u64) -> Option<u32> {
        self.pipeline_of(device).and_then(|p| p.program().cpu_port).map(|port| port as u32).or(self.cpu_port)
    }

    /// Microseconds since the switch started: the clock of all time stamps.
    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Adds a port. Returns when all workers have it, so that its packets may leave by any port added before.
    ///
    /// # Errors
    /// As [`Switch::add_ports`].
    pub fn add_port(&self, number: u32, device: Box<dyn Device>) -> Result<(), SwitchError> {
        self.add_shared_port(number, device, Sharing::default())
    }

    /// As [`Switch::add_port`], with `sharing` for workers for which the device has no queue.
    ///
    /// # Errors
    /// As [`Switch::add_ports`].
    pub fn add_shared_port(&self, number: u32, device: Box<dyn Device>, sharing: Sharing) -> Result<(), SwitchError> {
        self.add_port_to(self.first, number, device, sharing)
    }

    /// As [`Switch::add_shared_port`], for any device.
    ///
    /// # Errors
    /// As [`Switch::add_ports`].
    pub fn add_port_to(
        &self,
        bound_to: u64,
        number: u32,
        device: Box<dyn Device>,
        sharing: Sharing,
    ) -> Result<(), SwitchError> {
        self.add_ports(vec![NewPort { bound_to, number, device, sharing }])
    }

    /// Adds all ports, or none if one is refused. They start together: packets of the first may leave by the last.
    ///
    /// # Errors
    /// [`SwitchError::PortExists`], also for the controller's port number; [`SwitchError::NoSuchDevice`];
    /// [`SwitchError::PortTaken`] if the number is in use in the device; errors of default queues;
    /// [`SwitchError::Stuck`].
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

    /// Removes a port. Returns once all workers have released it and it is closed, which happens on this thread.
    /// Selector members and replicas that watch the port see it go down; the packets it dropped stay in its device's
    /// counters.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchPort`], [`SwitchError::Stuck`].
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
        // Closing sockets waits for the kernel; callers that only read counters must not wait for that.
        drop(inner);
        basket.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(port);
        Ok(())
    }

    /// Takes a port into service (`up`) or out of it. Out of service it receives and transmits nothing, and counts as
    /// down.
    ///
    /// # Errors
    /// [`SwitchError::NoSuchPort`], [`SwitchError::Stuck`].
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

    /// Makes all workers run `pipeline` (or none), and returns when all do. Each packet is processed by exactly one
    /// of the two programs, with its tables, groups and sessions: workers change between batches, and all copies of a
    /// packet are processed within its batch.
    ///
    /// # Errors
    /// As [`Switch::set_pipeline_of`].
    pub fn set_pipeline(&self, pipeline: Option<Arc<Pipeline>>) -> Result<(), SwitchError> {
        self.set_pipeline_of(self.first, pipeline)
    }

    /// How often a pipeline was set, over all devices.
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

    /// Runs a frame through the pipeline as if received on `port` (for a packet-out: the controller's port). Returns
    /// when the frame is queued for a worker.
    ///
    /// # Errors
    /// [`SwitchError::NoProgram`]; [`SwitchError::Busy`] if [`INJECT_MAX`] frames wait.
    pub fn inject(&self, port: u32, frame: Vec<u8>) -> Result<(), SwitchError> {
        self.inject_into(self.first, port, frame)
    }

    /// As [`Switch::inject`], for any device.
    ///
    /// # Errors
    /// As [`Switch::inject`].
    pub fn inject_into(&self, device: u64, port: u32, frame: Vec<u8>) -> Result<(), SwitchError> {
        self.inject_at(device, port, 0, frame).map_err(|(error, _)| error)
    }

    /// As [`Switch::inject_into`]; the device's flow processor begins at `start` ([`abi::flows::Arrival::start`]).
    ///
    /// # Errors
    /// As [`Switch::inject`]; the frame is given back.
    pub fn inject_at(&self, device: u64, port: u32, start: u64, frame: Vec<u8>) -> Result<(), (SwitchError, Vec<u8>)> {
        if self.pipeline_of(device).is_none() {
            return Err((SwitchError::NoProgram, frame));
        }
        let injected = Injected { device, port, start, frame };
        self.mailboxes[0].inject(injected, INJECT_MAX).map_err(|Injected { frame, .. }| (SwitchError::Busy, frame))
    }

    /// Runs the flow processors' idle work ([`abi::flows::FlowProcessor::idle`]) and waits for it.
    ///
    /// # Errors
    /// [`SwitchError::Stuck`].
    pub fn settle(&self) -> Result<(), SwitchError> {
        self.tell_all(|| Command::Settle)
    }

    /// Stops all workers between two bursts until the result is dropped: packets see all changes made meanwhile, or
    /// none. Must not be called while a [`Held`] exists.
    ///
    /// # Errors
    /// [`SwitchError::Stuck`]; no worker is held then.
    pub fn hold(&self) -> Result<Held, SwitchError> {
        let held = Held { gate: Arc::default() };
        for mailbox in &self.mailboxes {
            mailbox.post(Command::Hold(Arc::clone(&held.gate)));
        }
        // On failure `held` is dropped, and workers that have stopped already continue.
        match held.gate.await_standing(self.workers(), PICK_UP) {
            true => Ok(held),
            false => Err(self.stuck()),
        }
    }

    /// The error that names the first worker with pending commands.
    fn stuck(&self) -> SwitchError {
        SwitchError::Stuck(self.mailboxes.iter().position(|mailbox| mailbox.waiting() > 0).unwrap_or(0))
    }

    /// Copies what ports receive and transmit until the result is dropped, starting with the first packet received
    /// after the call.
    ///
    /// # Errors
    /// [`SwitchError::Stuck`].
    pub fn tap(&self, config: TapConfig) -> Result<Tapped, SwitchError> {
        let tapped = Tapped::new(config, self.mailboxes.clone());
        self.tell_all(|| tapped.begin())?;
        Ok(tapped)
    }

    /// The channel of events; `None` for all but the first caller.
    pub fn take_events(&self) -> Option<Receiver<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Digest messages of a device since the last call.
    pub fn take_digests(&self, device: u64) -> Vec<DigestMessage> {
        self.pipeline_of(device).map_or_else(Vec::new, |p| p.take_digests())
    }

    /// Frees memory that is no longer used, and returns the log lines of packets. The binary calls this periodically.
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

    /// Updates the state of all ports' links; the binary calls this periodically. Returns the ports that have
    /// changed, and whether each is up.
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

    /// Whether every port has reached the end of its input (capture files).
    pub fn at_end(&self) -> bool {
        let inner = self.lock();
        !inner.ports.is_empty() && inner.ports.iter().all(|p| p.device.at_end())
    }

    /// All tables of a device's running program.
    pub fn tables(&self, device: u64) -> Vec<TableInfo> {
        self.pipeline_of(device).map_or_else(Vec::new, |p| p.table_info())
    }

    /// Packet buffers in use, ports' receive rings included, and their total number.
    pub fn buffers(&self) -> (usize, usize) {
        let limit = self.pool.limit();
        (limit.saturating_sub(self.pool.available()), limit)
    }

    /// Drop counters of all devices as `(reason, packets)`, summed over workers and all programs so far. Zero
    /// counters of the running programs and of the switch are included.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let mut sum = Vec::new();
        for device in self.devices() {
            add_drops(&mut sum, self.drops_of(device));
        }
        sum
    }

    /// As [`Switch::drops`], of one device.
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
        // Drops on transmit are counted by the ports alone.
        for port in inner.ports.iter().filter(|port| port.bound_to == device) {
            add_drops(&mut sum, port_drops(&port.device.stats()));
        }
        sum
    }

    /// The load of each worker: packets, and where its cycles went.
    pub fn worker_load(&self) -> Vec<WorkerLoad> {
        self.counters.iter().map(|counters| counters.read()).collect()
    }

    /// Counts actions and samples where cycles go for `time` from now on, or until an earlier call's end if that is
    /// later (`watch`).
    pub fn watch(&self, time: Duration) {
        if let Some(watch) = &self.watch {
            watch.watch(time);
        }
    }

    /// Where the cycles went while the switch was watched.
    pub fn watched(&self) -> Watched {
        self.watch.as_ref().map_or_else(Watched::default, Watch::read)
    }

    /// How often a device's tables ran each action while the switch was watched.
    pub fn actions(&self, device: u64) -> Vec<ActionInfo> {
        self.pipeline_of(device).map_or_else(Vec::new, |p| p.action_info())
    }

    fn tell_all(&self, command: impl Fn() -> Command) -> Result<(), SwitchError> {
        self.tell_each(|_| command())
    }

    /// Posts a command to each worker and waits until all have executed it.
    fn tell_each(&self, command: impl Fn(usize) -> Command) -> Result<(), SwitchError> {
        self.await_each(&self.post_each(command))
    }

    /// Posts a command to each worker; returns the commands' numbers.
    fn post_each(&self, command: impl Fn(usize) -> Command) -> Vec<u64> {
        self.mailboxes.iter().enumerate().map(|(i, mailbox)| mailbox.post(command(i))).collect()
    }

    /// Waits until each worker has executed the command of this number.
    fn await_each(&self, numbers: &[u64]) -> Result<(), SwitchError> {
        for (worker, (mailbox, number)) in self.mailboxes.iter().zip(numbers).enumerate() {
            if !mailbox.wait(*number, PICK_UP) {
                return Err(SwitchError::Stuck(worker));
            }
        }
        Ok(())
    }
}

/// The drops that ports count.
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
        // No timer may remain that signals a thread which has ended.
        self.watch = None;
        for mailbox in &self.mailboxes {
            mailbox.post(Command::Stop);
        }
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A panic of the worker has been reported already.
            let _ = thread.join();
        }
    }
}

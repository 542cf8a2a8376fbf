//! The switch: ports, workers, and the program they run.
//!
//! This is what the control plane and the binary hold. Methods take `&self` and may be called from any thread; changes
//! are serialised inside. Packets never wait for them.

use crate::drops::DropCounters;
use crate::hold::Held;
use crate::pipeline::Pipeline;
use crate::tap::{TapConfig, Tapped};
use crate::worker::{Command, Event, Idle, Mailbox, Sharing, WorkerCounters, WorkerLoad, WorkerSetup, run, share};
use abi::state::{DigestMessage, PipelineState};
use pktio::{Device, HeapPool, LinkState, PoolRef, PortStats};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Packets for the controller that may wait; more are dropped and counted.
pub const EVENTS_MAX: usize = 4096;
/// Packet-outs that may wait in a worker's mailbox.
pub const INJECT_MAX: usize = 1024;
/// How long a program change waits for the workers to pick it up.
const PICK_UP: Duration = Duration::from_secs(5);

/// Called on each worker's thread before it starts, with its index (drivers register threads here). What it returns is
/// dropped on that thread when the worker ends.
pub type WorkerHook = Arc<dyn Fn(usize) -> Box<dyn std::any::Any> + Send + Sync>;

/// How a switch is set up.
pub struct SwitchConfig {
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
}

impl Default for SwitchConfig {
    fn default() -> Self {
        SwitchConfig { workers: 1, cpu_port: None, idle: Idle::default(), pool: None, on_worker_start: None }
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
    /// A packet for the pipeline, but no pipeline.
    #[error("no program is loaded")]
    NoProgram,
    /// Too many packet-outs wait.
    #[error("{INJECT_MAX} packets wait to be injected already")]
    Busy,
    /// A worker does not answer.
    #[error("worker {0} did not pick the change up within {PICK_UP:?}")]
    Stuck(usize),
}

/// A port as `sluice stats` shows it.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// Its number.
    pub number: u32,
    /// The device's name.
    pub name: String,
    /// The device's kind.
    pub kind: &'static str,
    /// Link.
    pub link: LinkState,
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
}

/// Names of drop counters that ports have.
const TOO_LONG: &str = "frame too long for its port";
const NOT_CUT: &str = "large frame that cannot be cut into segments";

struct PortEntry {
    number: u32,
    device: Box<dyn Device>,
    up: bool,
}

#[derive(Default)]
struct Inner {
    ports: Vec<PortEntry>,
    pipeline: Option<Arc<Pipeline>>,
    program_changes: u64,
    /// What was dropped under earlier programs, by reason.
    past_drops: BTreeMap<String, u64>,
}

/// A running switch. Dropping it stops the workers.
pub struct Switch {
    inner: Mutex<Inner>,
    mailboxes: Vec<Arc<Mailbox>>,
    counters: Vec<Arc<WorkerCounters>>,
    orphan_drops: Vec<Arc<DropCounters>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    events: Mutex<Option<Receiver<Event>>>,
    cpu_port: Option<u32>,
    start: Instant,
}

impl Switch {
    /// Starts the workers; without ports or a program they idle.
    pub fn new(config: SwitchConfig) -> Switch {
        let (tx, rx) = sync_channel(EVENTS_MAX);
        let pool = config.pool.unwrap_or_else(|| HeapPool::shared(4096));
        let start = Instant::now();
        let mut switch = Switch {
            inner: Mutex::default(),
            mailboxes: Vec::new(),
            counters: Vec::new(),
            orphan_drops: Vec::new(),
            threads: Mutex::default(),
            events: Mutex::new(Some(rx)),
            cpu_port: config.cpu_port,
            start,
        };
        let mut threads = Vec::new();
        for index in 0..config.workers.max(1) {
            let setup = WorkerSetup {
                index,
                mailbox: Arc::default(),
                counters: Arc::default(),
                drops: Arc::new(DropCounters::new(0)),
                events: tx.clone(),
                pool: Arc::clone(&pool),
                cpu_port: config.cpu_port,
                idle: config.idle,
                start,
            };
            switch.mailboxes.push(Arc::clone(&setup.mailbox));
            switch.counters.push(Arc::clone(&setup.counters));
            switch.orphan_drops.push(Arc::clone(&setup.drops));
            let hook = config.on_worker_start.clone();
            let body = move || {
                let _registration = hook.map(|hook| hook(index));
                run(setup);
            };
            let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(body);
            threads.push(thread.expect("the system can start a thread"));
        }
        *switch.threads.get_mut().unwrap_or_else(PoisonError::into_inner) = threads;
        switch
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// The controller's port number.
    pub fn cpu_port(&self) -> Option<u32> {
        self.cpu_port
    }

    /// Microseconds since the switch started: the clock of all timestamps.
    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Adds a port; its packets flow at once.
    pub fn add_port(&self, number: u32, device: Box<dyn Device>) -> Result<(), SwitchError> {
        self.add_shared_port(number, device, Sharing::default())
    }

    /// The same, and what becomes of workers that the device has no queue for.
    pub fn add_shared_port(
        &self,
        number: u32,
        mut device: Box<dyn Device>,
        sharing: Sharing,
    ) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        if inner.ports.iter().any(|p| p.number == number) || Some(number) == self.cpu_port {
            return Err(SwitchError::PortExists(number));
        }
        let queues = share(device.take_queues(), self.workers(), inner.ports.len(), sharing);
        for (mailbox, queue) in self.mailboxes.iter().zip(queues) {
            mailbox.post(Command::AddPort(number, queue));
        }
        let up = device.link().up;
        if let Some(pipeline) = &inner.pipeline {
            pipeline.state().port_state(number, up);
        }
        inner.ports.push(PortEntry { number, device, up });
        Ok(())
    }

    /// Removes a port once all workers have let go of it.
    pub fn remove_port(&self, number: u32) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        let at = inner.ports.iter().position(|p| p.number == number).ok_or(SwitchError::NoSuchPort(number))?;
        self.tell_all(|| Command::RemovePort(number))?;
        inner.ports.remove(at);
        Ok(())
    }

    /// Makes all workers run `pipeline` (or nothing) and returns when all do. A packet meets one of the two programs, with
    /// its tables, groups and sessions: workers change between batches, and all copies of a packet end in its batch.
    pub fn set_pipeline(&self, pipeline: Option<Arc<Pipeline>>) -> Result<(), SwitchError> {
        let mut inner = self.lock();
        if let Some(pipeline) = &pipeline {
            for port in &inner.ports {
                pipeline.state().port_state(port.number, port.up);
            }
        }
        self.tell_all(|| Command::Pipeline(pipeline.clone()))?;
        inner.program_changes += 1;
        let old = std::mem::replace(&mut inner.pipeline, pipeline);
        if let Some(old) = old.filter(|old| inner.pipeline.as_ref().is_none_or(|new| !Arc::ptr_eq(old, new))) {
            let drops = (0..self.workers()).flat_map(|worker| old.drops(worker).read(old.program()));
            for (reason, packets) in drops.filter(|(_, packets)| *packets > 0) {
                *inner.past_drops.entry(reason).or_default() += packets;
            }
        }
        Ok(())
    }

    /// How often [`Switch::set_pipeline`] was done.
    pub fn program_changes(&self) -> u64 {
        self.lock().program_changes
    }

    /// The running pipeline.
    pub fn pipeline(&self) -> Option<Arc<Pipeline>> {
        self.lock().pipeline.clone()
    }

    /// The running pipeline's state.
    pub fn state(&self) -> Option<Arc<dyn PipelineState>> {
        self.pipeline().map(|p| Arc::clone(p.state()))
    }

    /// Runs a frame through the pipeline as if received on `port` (packet-out: the controller's port).
    pub fn inject(&self, port: u32, frame: Vec<u8>) -> Result<(), SwitchError> {
        if self.lock().pipeline.is_none() {
            return Err(SwitchError::NoProgram);
        }
        let mailbox = &self.mailboxes[0];
        if mailbox.waiting() >= INJECT_MAX {
            return Err(SwitchError::Busy);
        }
        mailbox.post(Command::Inject(port, frame));
        Ok(())
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
            false => Err(SwitchError::Stuck(0)),
        }
    }

    /// Copies what ports receive and send from now on, until the result is dropped.
    pub fn tap(&self, config: TapConfig) -> Tapped {
        Tapped::new(config, self.mailboxes.clone())
    }

    /// The channel of events; the first caller gets it.
    pub fn take_events(&self) -> Option<Receiver<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Digest messages since the last call.
    pub fn take_digests(&self) -> Vec<DigestMessage> {
        self.pipeline().map_or_else(Vec::new, |p| p.take_digests())
    }

    /// To be called now and then by the binary: frees what nobody uses any more, and gives the log lines of packets.
    pub fn housekeeping(&self) -> Vec<String> {
        let Some(pipeline) = self.pipeline() else {
            return Vec::new();
        };
        pipeline.housekeeping(self.now_us());
        pipeline.take_logs()
    }

    /// Looks at all links and tells the state about changes; called now and then by the binary's housekeeping.
    pub fn poll_links(&self) -> Vec<(u32, bool)> {
        let mut inner = self.lock();
        let state = inner.pipeline.as_ref().map(|p| Arc::clone(p.state()));
        let mut changed = Vec::new();
        for port in &mut inner.ports {
            let up = port.device.link().up;
            if up != port.up {
                port.up = up;
                changed.push((port.number, up));
                if let Some(state) = &state {
                    state.port_state(port.number, up);
                }
            }
        }
        changed
    }

    /// Whether the port's link was up when it was last looked at; the controller's always is, one that is not there never.
    pub fn port_is_up(&self, number: u32) -> bool {
        self.cpu_port == Some(number) || self.lock().ports.iter().any(|p| p.number == number && p.up)
    }

    /// All ports.
    pub fn ports(&self) -> Vec<PortInfo> {
        let inner = self.lock();
        inner
            .ports
            .iter()
            .map(|p| PortInfo {
                number: p.number,
                name: p.device.name().to_string(),
                kind: p.device.kind(),
                link: p.device.link(),
                stats: p.device.stats(),
            })
            .collect()
    }

    /// Whether every port has come to the end of its input (capture files).
    pub fn at_end(&self) -> bool {
        let inner = self.lock();
        !inner.ports.is_empty() && inner.ports.iter().all(|p| p.device.at_end())
    }

    /// All tables of the running program.
    pub fn tables(&self) -> Vec<TableInfo> {
        self.pipeline().map_or_else(Vec::new, |p| p.table_info())
    }

    /// Drop counters, summed over workers and all programs so far: `(reason, packets)`, zero ones of the running program
    /// and of the switch included.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let none = ir::Program::default();
        let mut sum: Vec<(String, u64)> = Vec::new();
        let mut add = |list: Vec<(String, u64)>| {
            for (name, n) in list {
                match sum.iter_mut().find(|(have, _)| *have == name) {
                    Some((_, total)) => *total += n,
                    None => sum.push((name, n)),
                }
            }
        };
        if let Some(pipeline) = self.pipeline() {
            for worker in 0..self.workers() {
                add(pipeline.drops(worker).read(pipeline.program()));
            }
        }
        for drops in &self.orphan_drops {
            add(drops.read(&none));
        }
        let inner = self.lock();
        add(inner.past_drops.clone().into_iter().collect());
        // Workers hand these to their ports: only the ports know.
        for port in &inner.ports {
            let stats = port.device.stats();
            add(vec![(TOO_LONG.to_string(), stats.tx_too_long), (NOT_CUT.to_string(), stats.tx_not_cut)]);
        }
        sum
    }

    /// What each worker has done, and where its cycles went.
    pub fn worker_load(&self) -> Vec<WorkerLoad> {
        self.counters.iter().map(|counters| counters.read()).collect()
    }

    fn tell_all(&self, command: impl Fn() -> Command) -> Result<(), SwitchError> {
        let numbers: Vec<u64> = self.mailboxes.iter().map(|m| m.post(command())).collect();
        for (worker, (mailbox, number)) in self.mailboxes.iter().zip(numbers).enumerate() {
            if !mailbox.wait(number, PICK_UP) {
                return Err(SwitchError::Stuck(worker));
            }
        }
        Ok(())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.post(Command::Stop);
        }
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }
}

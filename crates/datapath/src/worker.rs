//! A worker: polls its queues, runs batches, sends bursts.
//!
//! ```text
//!   mailbox (control) ──▶ ports, pipeline, packets to inject
//!   queue.rx ──▶ Engine::receive ──▶ tx buffer per port ──▶ queue.tx
//!                              └──▶ controller port ──▶ events (bounded channel)
//! ```
//!
//! One thread each; nothing is shared on the packet path but the tables, read without locks, and, for devices with
//! fewer queues than there are workers, those queues. The worker picks up a new pipeline between batches; the old one
//! lives until the last worker let go of it. Idle workers back off: spin, then sleep [`IDLE_SLEEP`], so that an idle
//! switch does not burn a core; `Poll::Busy` never sleeps.

use crate::drops::{DropCounters, DropReason, RuntimeDrop};
use crate::engine::{Engine, Sink};
use crate::executor::Executor;
use crate::pipeline::Pipeline;
use crate::replication::Replication;
use abi::BATCH_MAX;
use pktio::{Packet, PoolRef, Queue, free_bulk};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Packets asked of a queue at once.
const RX_BURST: usize = 32;
/// Empty rounds before a worker starts to sleep.
const SPIN_ROUNDS: u32 = 2_000;
/// How long an idle worker sleeps.
const IDLE_SLEEP: Duration = Duration::from_micros(50);
/// Tries to send a burst before the rest is dropped.
const TX_TRIES: u32 = 4;

/// What a worker does when there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Poll {
    /// Spins for a while, then sleeps between polls.
    #[default]
    Adaptive,
    /// Never sleeps.
    Busy,
}

/// Something for the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A frame for the controller, with the program's packet-in header in front.
    PacketIn(Vec<u8>),
}

/// A port's queue as one worker has it.
pub(crate) enum PortQueue {
    /// Only this worker's.
    Own(Box<dyn Queue>),
    /// A device with fewer queues than workers: whoever comes first. Only one worker receives.
    Shared {
        /// The queue.
        queue: Arc<Mutex<Box<dyn Queue>>>,
        /// Whether this worker polls it.
        receives: bool,
    },
}

impl PortQueue {
    fn rx(&mut self, out: &mut Vec<Packet>) -> usize {
        match self {
            PortQueue::Own(q) => q.rx(out, RX_BURST),
            PortQueue::Shared { queue, receives: true } => {
                queue.lock().unwrap_or_else(PoisonError::into_inner).rx(out, RX_BURST)
            }
            PortQueue::Shared { .. } => 0,
        }
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        match self {
            PortQueue::Own(q) => q.tx(packets),
            PortQueue::Shared { queue, .. } => queue.lock().unwrap_or_else(PoisonError::into_inner).tx(packets),
        }
    }
}

/// What control tells a worker.
pub(crate) enum Command {
    AddPort(u32, PortQueue),
    RemovePort(u32),
    Pipeline(Option<Arc<Pipeline>>),
    Inject(u32, Vec<u8>),
    Stop,
}

/// Control's side of a worker.
#[derive(Default)]
pub(crate) struct Mailbox {
    pending: AtomicBool,
    commands: Mutex<Vec<Command>>,
    /// Commands taken so far, for callers that wait until theirs had effect.
    taken: AtomicU64,
    posted: AtomicU64,
}

impl Mailbox {
    /// Leaves a command; returns its number for [`Mailbox::wait`].
    pub(crate) fn post(&self, command: Command) -> u64 {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push(command);
        let number = self.posted.fetch_add(1, Ordering::Relaxed) + 1;
        self.pending.store(true, Ordering::Release);
        number
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until command `number` had effect; false after `timeout`.
    pub(crate) fn wait(&self, number: u64, timeout: Duration) -> bool {
        let start = Instant::now();
        while self.taken.load(Ordering::Acquire) < number {
            if start.elapsed() > timeout {
                return false;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        true
    }
}

/// What a worker counts beside the program's own counters; one writer, many readers.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WorkerCounters {
    /// Packets received.
    pub packets: AtomicU64,
    /// Non-empty bursts.
    pub bursts: AtomicU64,
    /// Nanoseconds spent on non-empty rounds (receive, run, send).
    pub busy_ns: AtomicU64,
}

pub(crate) struct WorkerSetup {
    pub index: usize,
    pub mailbox: Arc<Mailbox>,
    pub counters: Arc<WorkerCounters>,
    /// For packets that meet no program.
    pub drops: Arc<DropCounters>,
    pub replication: Arc<Replication>,
    pub events: SyncSender<Event>,
    pub pool: PoolRef,
    pub cpu_port: Option<u32>,
    pub poll: Poll,
    pub start: Instant,
}

struct Port {
    number: u32,
    queue: PortQueue,
    out: Vec<Packet>,
}

struct Running {
    pipeline: Arc<Pipeline>,
    engine: Engine,
    executor: Box<dyn Executor>,
}

/// Where a batch's packets go: buffers per port, the controller, or a drop counter.
struct Out<'a> {
    ports: &'a mut [Port],
    by_number: &'a PortIndex,
    drops: &'a DropCounters,
    cpu_port: Option<u32>,
    events: &'a SyncSender<Event>,
}

impl Sink for Out<'_> {
    #[inline]
    fn send(&mut self, port: u32, packet: Packet) {
        if let Some(i) = self.by_number.get(port) {
            self.ports[i].out.push(packet);
        } else if Some(port) == self.cpu_port {
            if self.events.try_send(Event::PacketIn(packet.data().to_vec())).is_err() {
                self.drops.count(DropReason::Runtime(RuntimeDrop::ControllerFull));
            }
        } else {
            self.drops.count(DropReason::Runtime(RuntimeDrop::NoSuchPort));
        }
    }

    fn drop(&mut self, reason: DropReason, _packet: Packet) {
        self.drops.count(reason);
    }

    fn lost_copy(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }
}

/// Port number to position; dense for small numbers.
#[derive(Default)]
struct PortIndex {
    small: Vec<u32>,
    large: std::collections::HashMap<u32, u32>,
}

impl PortIndex {
    const SMALL: u32 = 1024;
    const NONE: u32 = u32::MAX;

    fn new(ports: &[Port]) -> PortIndex {
        let mut index = PortIndex { small: vec![Self::NONE; Self::SMALL as usize], large: Default::default() };
        for (i, port) in ports.iter().enumerate() {
            if port.number < Self::SMALL {
                index.small[port.number as usize] = i as u32;
            } else {
                index.large.insert(port.number, i as u32);
            }
        }
        index
    }

    #[inline]
    fn get(&self, number: u32) -> Option<usize> {
        if number < Self::SMALL {
            match self.small.get(number as usize) {
                None | Some(&Self::NONE) => None,
                Some(i) => Some(*i as usize),
            }
        } else {
            self.large.get(&number).map(|i| *i as usize)
        }
    }
}

/// The thread's body: runs until told to stop.
pub(crate) fn run(setup: WorkerSetup) {
    let mut ports: Vec<Port> = Vec::new();
    let mut by_number = PortIndex::new(&ports);
    let mut running: Option<Running> = None;
    let mut injected: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut burst: Vec<Packet> = Vec::with_capacity(BATCH_MAX);
    let mut idle_rounds = 0u32;
    loop {
        if setup.mailbox.pending.swap(false, Ordering::Acquire) {
            let commands = std::mem::take(&mut *setup.mailbox.commands.lock().unwrap_or_else(PoisonError::into_inner));
            let count = commands.len() as u64;
            let mut stop = false;
            for command in commands {
                match command {
                    Command::AddPort(number, queue) => ports.push(Port { number, queue, out: Vec::new() }),
                    Command::RemovePort(number) => ports.retain(|p| p.number != number),
                    Command::Pipeline(pipeline) => running = pipeline.map(|p| Running::new(p, &setup)),
                    Command::Inject(port, bytes) => injected.push((port, bytes)),
                    Command::Stop => stop = true,
                }
            }
            by_number = PortIndex::new(&ports);
            setup.mailbox.taken.fetch_add(count, Ordering::Release);
            if stop {
                return;
            }
        }

        let mut any = false;
        for (port, bytes) in injected.drain(..) {
            any = true;
            match setup.pool.alloc_from(&bytes) {
                Some(packet) => {
                    burst.push(packet);
                    process(&setup, &mut running, &mut ports, &by_number, &mut burst, port, setup.now_us());
                }
                None => setup.drops.count(DropReason::Runtime(RuntimeDrop::NoBuffer)),
            }
        }
        for i in 0..ports.len() {
            let received = ports[i].queue.rx(&mut burst);
            if received == 0 {
                continue;
            }
            any = true;
            let start = setup.start.elapsed();
            let number = ports[i].number;
            process(&setup, &mut running, &mut ports, &by_number, &mut burst, number, start.as_micros() as u64);
            let counters = &setup.counters;
            bump(&counters.packets, received as u64);
            bump(&counters.bursts, 1);
            bump(&counters.busy_ns, (setup.start.elapsed() - start).as_nanos() as u64);
        }

        if any {
            idle_rounds = 0;
        } else {
            idle_rounds = idle_rounds.saturating_add(1);
            if idle_rounds > SPIN_ROUNDS && setup.poll == Poll::Adaptive {
                if let Some(running) = &mut running {
                    running.executor.idle();
                }
                std::thread::sleep(IDLE_SLEEP);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

fn process(
    setup: &WorkerSetup,
    running: &mut Option<Running>,
    ports: &mut [Port],
    by_number: &PortIndex,
    burst: &mut Vec<Packet>,
    from: u32,
    now_us: u64,
) {
    let Some(running) = running else {
        for _ in 0..burst.len() {
            setup.drops.count(DropReason::Runtime(RuntimeDrop::NoProgram));
        }
        return free_bulk(burst);
    };
    let drops = running.pipeline.drops(setup.index);
    let mut sink = Out { ports, by_number, drops, cpu_port: setup.cpu_port, events: &setup.events };
    running.engine.receive(running.executor.as_mut(), burst, from, now_us, &mut sink);
    running.executor.quiescent();
    for port in ports {
        if port.out.is_empty() {
            continue;
        }
        for _ in 0..TX_TRIES {
            port.queue.tx(&mut port.out);
            if port.out.is_empty() {
                break;
            }
        }
        for _ in 0..port.out.len() {
            drops.count(DropReason::Runtime(RuntimeDrop::PortFull));
        }
        free_bulk(&mut port.out);
    }
}

fn bump(cell: &AtomicU64, by: u64) {
    // One writer: a plain add is enough.
    cell.store(cell.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Running {
    fn new(pipeline: Arc<Pipeline>, setup: &WorkerSetup) -> Running {
        Running {
            engine: Engine::new(Arc::clone(pipeline.program()), Arc::clone(&setup.replication)),
            executor: pipeline.executor(setup.index),
            pipeline,
        }
    }
}

impl WorkerSetup {
    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

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
//! lives until the last worker let go of it. A round polls each port once and takes each burst through the program and
//! out before the next port's: its packets are in the nearest cache all the way.
//!
//! | file | holds |
//! | --- | --- |
//! | `worker/queues` | who receives from which queue of a port |
//! | `worker/out` | the ports and what waits to leave by them |
//! | `worker/idle` | what happens when no packet comes |
//! | `worker/load` | where the cycles go |
//!
//! Tests: `tests/worker.rs`.

mod idle;
mod load;
mod out;
mod queues;

pub use idle::{Idle, SLEEP_MAX};
pub use load::{WorkerCounters, WorkerLoad};
pub use queues::Sharing;
pub(crate) use queues::{PortQueue, share};

use crate::drops::{DropCounters, DropReason, RuntimeDrop};
use crate::engine::Engine;
use crate::executor::Executor;
use crate::hold::Gate;
use crate::pipeline::Pipeline;
use crate::tap::Tap;
use abi::BATCH_MAX;
use idle::{Idler, Step};
use out::Ports;
use pktio::{Clock, Packet, PoolRef, free_bulk, ticks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Something for the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A frame for the controller, with the program's packet-in header in front.
    PacketIn(Vec<u8>),
}

/// What control tells a worker.
pub(crate) enum Command {
    AddPort(u32, PortQueue),
    RemovePort(u32),
    Pipeline(Option<Arc<Pipeline>>),
    Inject(u32, Vec<u8>),
    Hold(Arc<Gate>),
    Tap(Arc<Tap>),
    Untap(Arc<Tap>),
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

    /// Whether commands have come since the last call. A plain read as long as there are none: an exchange would wait
    /// until everything the last burst wrote has reached the guests' memory.
    #[inline]
    fn has_post(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::Acquire)
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

pub(crate) struct WorkerSetup {
    pub index: usize,
    pub mailbox: Arc<Mailbox>,
    pub counters: Arc<WorkerCounters>,
    /// For packets that meet no program.
    pub drops: Arc<DropCounters>,
    pub events: SyncSender<Event>,
    pub pool: PoolRef,
    pub cpu_port: Option<u32>,
    pub idle: Idle,
    pub start: Instant,
}

/// The thread's body: runs until told to stop.
pub(crate) fn run(setup: WorkerSetup) {
    Worker::new(setup).run();
}

/// A program with what runs it.
struct Running {
    pipeline: Arc<Pipeline>,
    engine: Engine,
    executor: Box<dyn Executor>,
}

struct Worker {
    setup: WorkerSetup,
    clock: Clock,
    ports: Ports,
    running: Option<Running>,
    injected: Vec<(u32, Vec<u8>)>,
    /// Empty most of the time.
    taps: Vec<Arc<Tap>>,
    burst: Vec<Packet>,
    idler: Idler,
    /// Until when all cycles are accounted for.
    accounted: u64,
}

impl Worker {
    fn new(setup: WorkerSetup) -> Worker {
        Worker {
            clock: Clock::since(setup.start),
            ports: Ports::default(),
            running: None,
            injected: Vec::new(),
            taps: Vec::new(),
            burst: Vec::with_capacity(BATCH_MAX),
            idler: Idler::new(setup.idle),
            accounted: ticks(),
            setup,
        }
    }

    fn run(&mut self) {
        loop {
            if self.setup.mailbox.has_post() && self.obey() {
                return;
            }
            let mut any = false;
            if !self.injected.is_empty() {
                any = true;
                self.inject();
            }
            for i in 0..self.ports.all.len() {
                any |= self.poll(i);
            }
            if any {
                self.idler.busy();
            } else {
                self.rest();
            }
        }
    }

    /// Does what control asks for; whether to stop.
    #[cold]
    fn obey(&mut self) -> bool {
        let mailbox = &self.setup.mailbox;
        let commands = std::mem::take(&mut *mailbox.commands.lock().unwrap_or_else(PoisonError::into_inner));
        let count = commands.len() as u64;
        let mut stop = false;
        for command in commands {
            match command {
                Command::AddPort(number, queue) => self.ports.add(number, queue),
                Command::RemovePort(number) => self.ports.remove(number),
                Command::Pipeline(pipeline) => self.running = pipeline.map(|p| Running::new(p, &self.setup)),
                Command::Inject(port, bytes) => self.injected.push((port, bytes)),
                Command::Hold(gate) => {
                    if let Some(running) = &mut self.running {
                        running.executor.idle();
                    }
                    gate.stand();
                }
                Command::Tap(tap) => self.taps.push(tap),
                Command::Untap(tap) => self.taps.retain(|t| !Arc::ptr_eq(t, &tap)),
                Command::Stop => stop = true,
            }
        }
        mailbox.taken.fetch_add(count, Ordering::Release);
        stop
    }

    /// Runs control's packets.
    #[cold]
    fn inject(&mut self) {
        for (port, bytes) in std::mem::take(&mut self.injected) {
            match self.setup.pool.alloc_from(&bytes) {
                Some(packet) => {
                    self.burst.push(packet);
                    let now = ticks();
                    self.process(port, now);
                }
                None => self.setup.drops.count(DropReason::Runtime(RuntimeDrop::NoBuffer)),
            }
        }
    }

    /// Takes a burst from a port through the program and out; whether there was one.
    #[inline]
    fn poll(&mut self, i: usize) -> bool {
        let port = &mut self.ports.all[i];
        let number = port.number;
        let received = port.queue.rx(&mut self.burst, BATCH_MAX);
        if received == 0 {
            return false;
        }
        for tap in &self.taps {
            tap.copy(number, false, &self.burst);
        }
        let start = ticks();
        let (sending, end) = self.process(number, start);
        let receiving = start.wrapping_sub(self.accounted);
        self.setup.counters.burst(received, receiving, sending - start, end - sending);
        self.accounted = end;
        true
    }

    /// Runs the burst; says when sending began and ended.
    #[inline]
    fn process(&mut self, from: u32, now: u64) -> (u64, u64) {
        let Some(running) = &mut self.running else {
            self.setup.drops.count_many(DropReason::Runtime(RuntimeDrop::NoProgram), self.burst.len() as u64);
            free_bulk(&mut self.burst);
            return (now, now);
        };
        let drops = running.pipeline.drops(self.setup.index);
        let mut sink = self.ports.sink(drops, self.setup.cpu_port, &self.setup.events);
        let now_us = self.clock.us_at(now);
        running.engine.receive(running.executor.as_mut(), &mut self.burst, from, now_us, &mut sink);
        running.executor.quiescent();
        let sending = ticks();
        self.ports.flush(drops, &self.taps);
        (sending, ticks())
    }

    /// After a round without packets.
    #[inline]
    fn rest(&mut self) {
        match self.idler.empty() {
            Step::Poll => std::hint::spin_loop(),
            step => self.let_go(step),
        }
        let now = ticks();
        self.setup.counters.idle(now.wrapping_sub(self.accounted));
        self.accounted = now;
    }

    /// Nobody waits for this worker until the next batch.
    #[cold]
    fn let_go(&mut self, step: Step) {
        if let Some(running) = &mut self.running {
            running.executor.idle();
        }
        if let Step::Sleep(time) = step {
            std::thread::sleep(time);
        }
    }
}

impl Running {
    fn new(pipeline: Arc<Pipeline>, setup: &WorkerSetup) -> Running {
        Running {
            engine: Engine::new(Arc::clone(pipeline.program()), Arc::clone(pipeline.replication())),
            executor: pipeline.executor(setup.index),
            pipeline,
        }
    }
}

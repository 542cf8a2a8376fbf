//! A worker thread: polls its queues, runs batches, transmits bursts.
//!
//! ```text
//!   mailbox (control) ──▶ ports, pipeline, packets to inject
//!   queue.rx ──▶ Engine::receive ──▶ tx buffer per port ──▶ queue.tx
//!                              └──▶ controller port ──▶ events (bounded channel)
//! ```
//!
//! On the packet path workers share only the tables, which they read without locks, and the queues of devices that
//! have fewer queues than there are workers. A worker changes to a new pipeline between batches; the old one lives
//! until the last worker has released it.
//!
//! A round polls each port once. A burst runs through the program and is transmitted before the next port is polled,
//! so its packets stay in the L1 cache, also when they cross links between devices. While ports are backlogged, a
//! port that has used more than its share of time is skipped (`worker/shares`).
//!
//! | file | holds |
//! | --- | --- |
//! | `worker/queues` | assigns the queues of a port to workers |
//! | `worker/devices` | the devices with their programs and ports; which have been quiet for long |
//! | `worker/out` | the ports and their transmit buffers |
//! | `worker/egress` | enqueues to and dequeues from ports' egress queues |
//! | `worker/links` | packets that cross from one device to another |
//! | `worker/idle` | spins, sleeps or waits for an interrupt when no packets arrive |
//! | `worker/load` | cycle accounting |
//! | `worker/shares` | fair sharing of the worker's time between ports |
//!
//! Tests: `tests/worker.rs`.

mod devices;
mod egress;
mod idle;
mod links;
mod load;
mod out;
mod queues;
mod shares;

pub use idle::{Idle, SLEEP_MAX};
pub(crate) use links::{LinkCounters, LinkEnd};
pub use load::{WorkerCounters, WorkerLoad};
pub use queues::Sharing;
pub(crate) use queues::{PortQueue, share};

use crate::drops::{DropCounters, DropReason, RuntimeDrop};
use crate::engine::WORK_MAX;
use crate::hold::Gate;
use crate::pipeline::Pipeline;
use crate::queues::EgressQueues;
use crate::tap::Tap;
use crate::watch::Samples;
use abi::BATCH_MAX;
use devices::{Devices, Slot};
use egress::Serving;
use heartbeat::Heartbeat;
use idle::{Idler, Step, WAIT_MAX};
use links::Crossing;
use pktio::{Bell, Clock, Packet, PoolRef, Wake, free_bulk, ticks};
use shares::{Shares, Turn};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A round that takes longer counts as stuck: bursts take microseconds, sleeps and program changes a fraction of a
/// second.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// An event for the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A device id and a frame for that device's controller; the frame starts with the program's packet-in header.
    PacketIn(u64, Vec<u8>),
}

/// The queues of removed ports, handed back by workers.
pub(crate) type Basket = Arc<Mutex<Vec<PortQueue>>>;

/// A command from the control plane to a worker.
pub(crate) enum Command {
    /// A device's id, and the drop counters for its packets while no program is loaded.
    AddDevice(u64, Arc<DropCounters>),
    RemoveDevice(u64),
    /// Device, port number, queues. The sending end of a link is added as a port, too.
    AddPort(u64, u32, PortQueue),
    /// The queues go to the basket, because closing a port takes longer than a worker may be blocked.
    RemovePort(u64, u32, Basket),
    /// Takes a device's port into (`true`) or out of service.
    SetInService(u64, u32, bool),
    /// A port's number, its device, and its new device.
    MovePort(u32, u64, u64),
    Pipeline(u64, Option<Arc<Pipeline>>),
    /// Like `Pipeline`, but the worker first waits at the gate; no packet of the device is processed in between.
    PipelineBehind(Arc<Gate>, u64, Arc<Pipeline>),
    Inject(Injected),
    /// Runs the flow processors' idle work now.
    Settle,
    Hold(Arc<Gate>),
    Tap(Arc<Tap>),
    Untap(Arc<Tap>),
    /// Sets or removes the egress queues of a device's port; the flag says whether this worker is their server.
    SetQueues(u64, u32, Option<(Arc<EgressQueues>, bool)>),
    Stop,
}

/// The command queue from the control plane to one worker.
pub(crate) struct Mailbox {
    /// Wakes the worker. `None` if the process has run out of file descriptors; a sleeping worker then checks for
    /// commands periodically.
    bell: Option<Bell>,
    pending: AtomicBool,
    commands: Mutex<Vec<Command>>,
    /// Commands completed so far, for callers that wait until theirs has taken effect.
    taken: AtomicU64,
    posted: AtomicU64,
    /// Injected frames that have not been processed yet.
    injected: AtomicUsize,
}

impl Default for Mailbox {
    fn default() -> Self {
        Mailbox {
            bell: Bell::new().ok(),
            pending: AtomicBool::new(false),
            commands: Mutex::default(),
            taken: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            injected: AtomicUsize::new(0),
        }
    }
}

impl Mailbox {
    /// Posts a command; returns its number for [`Mailbox::wait`].
    pub(crate) fn post(&self, command: Command) -> u64 {
        self.post_all(vec![command])
    }

    /// Posts commands that take effect together, between the same two bursts; returns the number of the last one.
    pub(crate) fn post_all(&self, more: Vec<Command>) -> u64 {
        let count = more.len() as u64;
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.extend(more);
        let number = self.posted.fetch_add(count, Ordering::Relaxed) + count;
        self.pending.store(true, Ordering::Release);
        drop(commands);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        number
    }

    /// Posts a frame to inject.
    ///
    /// # Errors
    /// Gives the frame back if `most` frames are waiting already.
    pub(crate) fn inject(&self, injected: Injected, most: usize) -> Result<(), Injected> {
        let one_more = |count: usize| (count < most).then_some(count + 1);
        if self.injected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return Err(injected);
        }
        self.post(Command::Inject(injected));
        Ok(())
    }

    /// Whether commands have arrived since the last call. While there are none this is a plain load: an atomic
    /// exchange would wait until the store buffer has drained everything the last burst wrote to guest memory.
    #[inline]
    fn has_post(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::Acquire)
    }

    /// Wakes the worker if it sleeps.
    pub(crate) fn wake(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// The number of commands that the worker has not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until command `number` has taken effect; `false` after `timeout`.
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

/// A frame that the control plane injects (a packet-out).
pub(crate) struct Injected {
    /// The device whose program processes it.
    pub device: u64,
    /// Its ingress port.
    pub port: u32,
    /// Where a flow processor starts ([`abi::flows::Arrival::start`]).
    pub start: u64,
    /// Its bytes.
    pub frame: Vec<u8>,
}

pub(crate) struct WorkerSetup {
    pub index: usize,
    pub mailbox: Arc<Mailbox>,
    pub counters: Arc<WorkerCounters>,
    pub samples: Arc<Samples>,
    pub events: SyncSender<Event>,
    pub pool: PoolRef,
    pub cpu_port: Option<u32>,
    pub idle: Idle,
    pub start: Instant,
}

/// The thread's body: runs until [`Command::Stop`].
pub(crate) fn run(setup: WorkerSetup) {
    setup.samples.begin();
    Worker::new(setup).run();
}

struct Worker {
    setup: WorkerSetup,
    clock: Clock,
    devices: Devices,
    /// Frames to inject, and the time spent on them, accounted for like a port's.
    injected: VecDeque<Injected>,
    injecting: Turn,
    /// Packets that cross links; empty between received bursts.
    crossing: VecDeque<Crossing>,
    /// Empty most of the time.
    taps: Vec<Arc<Tap>>,
    burst: Vec<Packet>,
    /// Work units left for the burst and everything derived from it.
    work_left: u32,
    /// Ticks of transmit retries for the burst, which are not charged to its ingress port.
    retries: u64,
    /// File descriptors that wake a sleeping worker.
    files: Vec<Arc<OwnedFd>>,
    idler: Idler,
    /// Time stamp (ticks) up to which cycles have been accounted for.
    accounted: u64,
    shares: Shares,
    /// Whether this worker serves (dequeues from) any port's queues, and its state while it does.
    serves: bool,
    serving: Serving,
    /// Whether any device's packets are decided by a flow processor.
    decides: bool,
    /// Time stamp (ticks) at which the turn of the next polled port began.
    turn: u64,
    heart: Heartbeat,
}

impl Worker {
    fn new(setup: WorkerSetup) -> Worker {
        Worker {
            clock: Clock::since(setup.start),
            devices: Devices::default(),
            injected: VecDeque::new(),
            injecting: Turn::default(),
            crossing: VecDeque::new(),
            taps: Vec::new(),
            burst: Vec::with_capacity(BATCH_MAX),
            work_left: WORK_MAX,
            retries: 0,
            files: Vec::new(),
            idler: Idler::new(setup.idle),
            accounted: ticks(),
            shares: Shares::new(),
            serves: false,
            serving: Serving::default(),
            decides: false,
            turn: ticks(),
            heart: Heartbeat::new(format!("worker-{}", setup.index), ROUND_MAX),
            setup,
        }
    }

    fn run(&mut self) {
        loop {
            self.heart.beat();
            if self.setup.mailbox.has_post() {
                if self.obey() {
                    return;
                }
                self.turn = ticks();
            }
            let mut any = false;
            if !self.injected.is_empty() {
                any = true;
                self.inject();
                self.turn = ticks();
            }
            for device in 0..self.devices.all.len() {
                for port in 0..self.devices.all[device].ports.polled {
                    any |= self.poll(device, port);
                }
            }
            if self.serves {
                any |= self.serve();
            }
            if self.decides {
                let now_us = self.clock.us_at(ticks());
                self.devices.idle(now_us);
            }
            self.shares.end_round();
            if self.devices.all.len() > 1 {
                self.devices.let_go_of_quiet_ones();
            }
            if any {
                self.idler.busy();
            } else {
                self.rest();
            }
        }
    }

    /// Executes all pending commands; returns whether to stop.
    #[cold]
    fn obey(&mut self) -> bool {
        let mailbox = &self.setup.mailbox;
        let commands = std::mem::take(&mut *mailbox.commands.lock().unwrap_or_else(PoisonError::into_inner));
        let count = commands.len() as u64;
        let mut stop = false;
        for command in commands {
            match command {
                Command::AddDevice(id, drops) => self.devices.add(id, drops),
                Command::RemoveDevice(id) => self.devices.remove(id),
                Command::AddPort(device, number, queue) => self.devices.add_port(device, number, queue),
                Command::RemovePort(device, number, basket) => {
                    let queue = self.devices.remove_port(device, number);
                    basket.lock().unwrap_or_else(PoisonError::into_inner).extend(queue);
                }
                Command::SetInService(device, number, up) => self.devices.set_in_service(device, number, up),
                Command::MovePort(number, from, to) => {
                    if let Some(at) = self.devices.position(from) {
                        self.finish_waiting(at, number);
                    }
                    self.devices.move_port(number, from, to);
                }
                Command::Pipeline(device, pipeline) => {
                    let now_us = self.clock.us_at(ticks());
                    self.devices.run(device, pipeline, &self.setup, now_us);
                }
                Command::Settle => {
                    let now_us = self.clock.us_at(ticks());
                    self.devices.idle(now_us);
                }
                Command::Inject(injected) => self.injected.push_back(injected),
                Command::Hold(gate) => {
                    self.devices.let_go();
                    gate.stand();
                }
                Command::PipelineBehind(gate, device, pipeline) => {
                    self.devices.let_go();
                    if gate.stand() {
                        let now_us = self.clock.us_at(ticks());
                        self.devices.run(device, Some(pipeline), &self.setup, now_us);
                    }
                }
                Command::Tap(tap) => self.taps.push(tap),
                Command::Untap(tap) => self.taps.retain(|t| !Arc::ptr_eq(t, &tap)),
                Command::SetQueues(device, port, queues) => self.set_queues(device, port, queues),
                Command::Stop => stop = true,
            }
        }
        // At a gate, say.
        pktio::has_waited();
        self.serves = self.devices.serves();
        self.decides = self.devices.decide();
        self.serving.next_us = self.serving.next_us.filter(|_| self.serves);
        let mailbox = &self.setup.mailbox;
        mailbox.taken.fetch_add(count, Ordering::Release);
        stop
    }

    /// Processes injected frames: at most a burst, and fewer if they cost as much work as a burst may. Skips the
    /// round if injected frames have used more than their share of time.
    #[cold]
    fn inject(&mut self) {
        if self.shares.passes_over(&self.injecting) {
            return;
        }
        let start = ticks();
        let mut work = 0;
        for _ in 0..BATCH_MAX {
            let Some(injected) = self.injected.pop_front() else { break };
            self.setup.mailbox.injected.fetch_sub(1, Ordering::Relaxed);
            self.inject_one(injected);
            work += WORK_MAX - self.work_left;
            if work >= WORK_MAX {
                break;
            }
        }
        self.shares.charge(&mut self.injecting, ticks().saturating_sub(start), !self.injected.is_empty());
    }

    fn inject_one(&mut self, Injected { device, port, start, frame }: Injected) {
        self.work_left = WORK_MAX;
        let Some(at) = self.devices.position(device) else { return };
        let Some(packet) = self.setup.pool.alloc_from(&frame) else {
            return self.devices.all[at].drops.count(DropReason::Runtime(RuntimeDrop::NoBuffer));
        };
        self.burst.push(packet);
        if let Some(running) = &mut self.devices.all[at].running {
            running.engine.begin_at(start);
        }
        self.process(at, port, ticks());
    }

    /// Receives a burst from a port, runs it and transmits the result. Returns `true` if there was a burst, or if the
    /// port was skipped and may have one.
    #[inline]
    fn poll(&mut self, device: usize, i: usize) -> bool {
        let Slot { id, ports, .. } = &mut self.devices.all[device];
        let port = &mut ports.all[i];
        if self.shares.passes_over(&port.turn) {
            return true;
        }
        let number = port.number;
        let received = port.queue.rx(&mut self.burst, port.burst);
        if received == 0 {
            let now = ticks();
            self.shares.charge(&mut port.turn, now.saturating_sub(self.turn), false);
            self.turn = now;
            return false;
        }
        let is_full = received == port.burst;
        let is_whole = port.burst == BATCH_MAX;
        for tap in &self.taps {
            tap.copy(*id, number, false, &self.burst);
        }
        let start = ticks();
        let (sending, end) = self.process(device, number, start);
        let receiving = start.wrapping_sub(self.accounted);
        self.setup.counters.burst(received, receiving, sending - start, end - sending);
        self.accounted = end;
        let turn = &mut self.devices.all[device].ports.all[i].turn;
        let ticks = end.saturating_sub(self.turn).saturating_sub(self.retries);
        self.shares.charge(turn, ticks, is_full);
        self.turn = end;
        if self.work_left != WORK_MAX || !is_whole {
            let work = WORK_MAX - self.work_left;
            self.devices.all[device].ports.all[i].fit_burst(work);
        }
        true
    }

    /// Runs the burst through a device and through all devices that its packets reach over links. Returns the time
    /// stamps (ticks) at which transmitting began and ended.
    #[inline]
    fn process(&mut self, device: usize, from: u32, now: u64) -> (u64, u64) {
        self.work_left = WORK_MAX;
        self.retries = 0;
        let (sending, end) = self.pass(device, from, now);
        match self.devices.all[device].ports.crossing.is_empty() {
            true => (sending, end),
            false => self.cross(device, 0, sending, end),
        }
    }

    /// Runs the burst through a device's program. Returns the time stamps (ticks) at which transmitting began and
    /// ended. Packets that leave by links are left in `Ports::crossing`.
    #[inline]
    fn pass(&mut self, device: usize, from: u32, now: u64) -> (u64, u64) {
        let slot = &mut self.devices.all[device];
        slot.active = true;
        let Some(running) = &mut slot.running else {
            slot.drops.count_many(DropReason::Runtime(RuntimeDrop::NoProgram), self.burst.len() as u64);
            free_bulk(&mut self.burst);
            return (now, now);
        };
        let drops = running.pipeline.drops(self.setup.index);
        let cpu_port = running.engine.cpu_port().or(self.setup.cpu_port);
        let mut sink = slot.ports.sink(drops, cpu_port, &self.setup.events, running.number());
        let now_us = self.clock.us_at(now);
        running.engine.set_work(self.work_left);
        running.engine.receive(running.executor.as_mut(), &mut self.burst, from, now_us, &mut sink);
        self.work_left = running.engine.work_left();
        running.engine.quiescent(running.executor.as_mut());
        let sending = ticks();
        self.retries += slot.ports.flush(drops, &self.taps, &mut self.shares, now_us, None);
        (sending, ticks())
    }

    /// Idles after a round without packets.
    #[inline]
    fn rest(&mut self) {
        match self.idler.empty() {
            Step::Poll => std::hint::spin_loop(),
            step => self.let_go(step),
        }
        let now = ticks();
        self.setup.counters.idle(now.wrapping_sub(self.accounted));
        self.accounted = now;
        self.turn = now;
    }

    /// Goes offline for reclamation, so that no writer waits for this worker until its next batch; then sleeps as
    /// `step` says.
    #[cold]
    fn let_go(&mut self, step: Step) {
        self.devices.let_go();
        match step {
            Step::Sleep(time) => {
                let time = time.min(self.until_turn());
                self.sleep(time);
            }
            Step::Wait(time) => self.wait(time),
            Step::Poll | Step::LetGo => {}
        }
    }

    /// Sleeps for `time`. A worker that serves queues also wakes when another worker enqueues packets there.
    fn sleep(&mut self, time: Duration) {
        match &self.setup.mailbox.bell {
            Some(bell) if self.serves => {
                self.files.clear();
                self.files.push(bell.file());
                pktio::wait(&self.files, time);
                bell.silence();
            }
            _ => pktio::sleep(time),
        }
    }

    /// Time until the next packet in a served queue may be dequeued.
    fn until_turn(&mut self) -> Duration {
        let Some(next_us) = self.serving.next_us else { return Duration::MAX };
        Duration::from_micros(next_us.saturating_sub(self.clock.us_at(ticks())))
    }

    /// Sleeps until there may be packets or commands; at most for `backoff` if a port has to be polled.
    fn wait(&mut self, backoff: Duration) {
        let mut time = backoff;
        self.files.clear();
        if let Some(bell) = &self.setup.mailbox.bell {
            self.files.push(bell.file());
            time = WAIT_MAX;
        }
        match self.devices.arm(&mut self.files) {
            Wake::Now => time = Duration::ZERO,
            Wake::Poll => time = time.min(backoff),
            Wake::File | Wake::Never => {}
        }
        time = time.min(self.until_turn());
        if !time.is_zero() {
            pktio::wait(&self.files, time);
        }
        self.devices.disarm();
        if let Some(bell) = &self.setup.mailbox.bell {
            bell.silence();
        }
    }
}

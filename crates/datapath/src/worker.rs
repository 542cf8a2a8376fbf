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
//! out before the next port's, unless the port has had more than its share of time while others are full: its packets are in the nearest cache all the way, also where they go over links from device
//! to device.
//!
//! | file | holds |
//! | --- | --- |
//! | `worker/queues` | who receives from which queue of a port |
//! | `worker/devices` | the devices, each with its program and ports, and which have been quiet for long |
//! | `worker/out` | the ports and what waits to leave by them |
//! | `worker/egress` | ports' queues: what is offered to them and what is taken out |
//! | `worker/links` | what leaves one device to enter another |
//! | `worker/idle` | what happens when no packet comes |
//! | `worker/load` | where the cycles go |
//! | `worker/shares` | how long each port has had the worker, and who is passed over |
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
use load::Pace;
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
use pktio::{Bell, Clock, Packet, PoolRef, Wake, free_bulk, ticks, ticks_per_second};
use shares::{Shares, Turn};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A round that takes longer is stuck: bursts take microseconds, sleeps and program changes a fraction of a second.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Something for the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A frame for the controller of a device, with the program's packet-in header in front.
    PacketIn(u64, Vec<u8>),
}

/// Where workers leave the queues of removed ports.
pub(crate) type Basket = Arc<Mutex<Vec<PortQueue>>>;

/// What control tells a worker.
pub(crate) enum Command {
    /// With the cells for its packets that meet no program.
    AddDevice(u64, Arc<DropCounters>),
    RemoveDevice(u64),
    /// Of a device; an end of a link is a port, too.
    AddPort(u64, u32, PortQueue),
    /// Whose queues go to the basket: closing a port takes longer than a worker may stand.
    RemovePort(u64, u32, Basket),
    /// Takes a device's port into service or out of it.
    SetInService(u64, u32, bool),
    /// A port's number, the device that has it, and the one that gets it.
    MovePort(u32, u64, u64),
    Pipeline(u64, Option<Arc<Pipeline>>),
    /// The same, once the gate is open, with no packet of the device in between.
    PipelineBehind(Arc<Gate>, u64, Arc<Pipeline>),
    Inject(Injected),
    /// Flow processors do their own work now.
    Settle,
    Hold(Arc<Gate>),
    Tap(Arc<Tap>),
    Untap(Arc<Tap>),
    /// A device's port has these queues, of which this worker is the server or not, or none.
    SetQueues(u64, u32, Option<(Arc<EgressQueues>, bool)>),
    Stop,
}

/// Control's side of a worker.
pub(crate) struct Mailbox {
    /// Wakes the worker. Without one, which is when the process has no files left, a worker that sleeps looks now and then.
    bell: Option<Bell>,
    pending: AtomicBool,
    commands: Mutex<Vec<Command>>,
    /// Commands taken so far, for callers that wait until theirs had effect.
    taken: AtomicU64,
    posted: AtomicU64,
    /// Frames of the control plane that have not run.
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
    /// Leaves a command; returns its number for [`Mailbox::wait`].
    pub(crate) fn post(&self, command: Command) -> u64 {
        self.post_all(vec![command])
    }

    /// Leaves commands that have effect together, between the same two bursts; returns the last one's number.
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

    /// Leaves a frame, or gives it back if so many wait.
    pub(crate) fn inject(&self, injected: Injected, most: usize) -> Result<(), Injected> {
        let one_more = |count: usize| (count < most).then_some(count + 1);
        if self.injected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return Err(injected);
        }
        self.post(Command::Inject(injected));
        Ok(())
    }

    /// Whether commands have come since the last call. A plain read as long as there are none: an exchange would wait
    /// until everything the last burst wrote has reached the guests' memory.
    #[inline]
    fn has_post(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::Acquire)
    }

    /// Wakes the worker if it sleeps until something comes.
    pub(crate) fn wake(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
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

/// A frame of the control plane's.
pub(crate) struct Injected {
    /// The device that it goes through.
    pub device: u64,
    /// The port by which it comes, as it were.
    pub port: u32,
    /// Where a flow processor begins with it.
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

/// The thread's body: runs until told to stop.
pub(crate) fn run(setup: WorkerSetup) {
    setup.samples.begin();
    Worker::new(setup).run();
}

struct Worker {
    setup: WorkerSetup,
    clock: Clock,
    devices: Devices,
    /// Frames of the control plane, and the time that they have had, as if they were a port's.
    injected: VecDeque<Injected>,
    injecting: Turn,
    /// What goes over links; empty between received bursts.
    crossing: VecDeque<Crossing>,
    /// Empty most of the time.
    taps: Vec<Arc<Tap>>,
    burst: Vec<Packet>,
    /// Units of work that are left for all that becomes of the burst.
    work_left: u32,
    /// Ticks of sending the burst that are not the port's from which it came.
    retries: u64,
    /// What wakes the worker when it sleeps.
    files: Vec<Arc<OwnedFd>>,
    idler: Idler,
    /// Until when all cycles are accounted for.
    accounted: u64,
    shares: Shares,
    pace: Pace,
    /// Whether it is the server of a port's queues; and what it has in hand of them.
    serves: bool,
    serving: Serving,
    /// Whether flow processors decide about packets of a device.
    decides: bool,
    /// When the turn of a port began that is polled next.
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
            pace: Pace::new(ticks_per_second()),
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

    /// Does what control asks for; whether to stop.
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
        self.serves = self.devices.serves();
        self.decides = self.devices.decide();
        self.serving.next_us = self.serving.next_us.filter(|_| self.serves);
        let mailbox = &self.setup.mailbox;
        mailbox.taken.fetch_add(count, Ordering::Release);
        stop
    }

    /// Runs frames of the control plane: a burst of them, or fewer that cause as much work as a burst may, and when others have had as much
    /// time.
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

    /// Takes a burst from a port through the program and out; whether there was one, or may be one that has to wait.
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
        let work = (WORK_MAX - self.work_left).max(self.pace.work(sending - start));
        if work != 0 || !is_whole {
            self.devices.all[device].ports.all[i].fit_burst(work);
        }
        true
    }

    /// Runs the burst through a device and all that its packets go on to; says when sending began and ended.
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

    /// Runs the burst through a device's program; says when sending began and ended. What leaves by links waits in
    /// `Ports::crossing`.
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
        self.turn = now;
    }

    /// Nobody waits for this worker until the next batch.
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

    /// Sleeps; whoever puts packets into queues of which this worker is the server wakes it.
    fn sleep(&mut self, time: Duration) {
        match &self.setup.mailbox.bell {
            Some(bell) if self.serves => {
                self.files.clear();
                self.files.push(bell.file());
                pktio::wait(&self.files, time);
                bell.silence();
            }
            _ => std::thread::sleep(time),
        }
    }

    /// How long nothing in a queue is to be taken out.
    fn until_turn(&mut self) -> Duration {
        let Some(next_us) = self.serving.next_us else { return Duration::MAX };
        Duration::from_micros(next_us.saturating_sub(self.clock.us_at(ticks())))
    }

    /// Sleeps until there may be packets or commands, or for `backoff` if a port has to be polled.
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

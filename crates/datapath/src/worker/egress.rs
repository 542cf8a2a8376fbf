//! A port's queues as one worker has them: what is offered to them after each burst, and, by the server, what is taken out.
//!
//! After each round the server takes packets out whose turn it is, as many as the port takes, runs egress for those that wait
//! before it, and sends them. A port that is full keeps its packets waiting: that is what makes a queue grow without a shaper.
//! [`LEAVING_MAX`] packets at most are out of the queue and not yet in the port. A link (`links.rs`) takes all whose turn it is.
//!
//! When another program takes over, packets that wait before egress go on through the program that they met at ingress. It is kept as
//! long as packets wait, between [`KEPT_MIN_US`] and [`KEPT_MAX_US`]; at most [`EARLIER_MAX`] programs are. The new program does not
//! inherit what it counts in that time. When a port loses its queues or is bound to another device, its packets run through egress
//! at once.
//!
//! What egress asks for when a packet goes on has a work budget of its own (`engine`): a packet that goes round waits each time in a
//! queue, which is bounded.
//!
//! One worker, one thread. Tests: `tests/queues.rs`.

use super::devices::Slot;
use super::out::Port;
use super::{PortQueue, SLEEP_MAX, Worker};
use crate::drops::{DropCounters, DropReason, RuntimeDrop};
use crate::engine::{Departure, WORK_MAX};
use crate::queues::{EgressQueues, Item, Lost, Waits};
use crate::switch::PICK_UP;
use abi::BATCH_MAX;
use pktio::{Packet, free_bulk, ticks};
use std::sync::Arc;
use traffic::Taken;

/// Most packets that are out of a port's queues and not yet in the port.
const LEAVING_MAX: usize = BATCH_MAX;
/// A full port is tried again after so many microseconds at the latest: as long as an idle worker sleeps.
const FULL_US: u64 = SLEEP_MAX.as_micros() as u64;
/// An earlier program is kept for so many microseconds at least. So long other workers may still run it.
const KEPT_MIN_US: u64 = PICK_UP.as_micros() as u64;
/// And for so many at most, lest a port that accepts no packets keeps its tables: TCP's maximum segment lifetime, two minutes (RFC 9293,
/// section 3.4.1).
const KEPT_MAX_US: u64 = 120_000_000;
/// Earlier programs of a device that are kept. Programs that inherit state have places for four executors on each worker
/// (`FastState::new`): these, the running one, and the next.
pub(super) const EARLIER_MAX: usize = 2;

/// The queues of a port.
pub(super) struct Egress {
    queues: Arc<EgressQueues>,
    /// Whether this worker takes packets out.
    pub serves: bool,
    /// What came in this burst to wait before egress, with its class.
    arrivals: Vec<(Item, u8)>,
    /// What was taken out and the port has not taken yet.
    leaving: Vec<Packet>,
    lost: Vec<Lost>,
    /// Memory for records.
    spares: Vec<Box<[u64]>>,
}

/// A packet's stay in a queue: packets there when it came and behind it when it left, when it came, and whether it is to be marked.
struct Stay {
    depths: [u64; 2],
    enqueued_us: u64,
    mark: bool,
}

/// What the server has in hand; empty between ports.
#[derive(Default)]
pub(super) struct Serving {
    taken: Vec<Taken<Item>>,
    departures: Vec<Departure>,
    /// Of all departures: the program, and over how many links they and the frames before them have come.
    program: u64,
    hops: u32,
    records: Vec<Box<[u64]>>,
    /// When something is to be taken out or sent next, in microseconds, if something waits.
    pub next_us: Option<u64>,
}

impl Egress {
    pub(super) fn new(queues: Arc<EgressQueues>, serves: bool) -> Egress {
        Egress {
            queues,
            serves,
            arrivals: Vec::new(),
            leaving: Vec::with_capacity(LEAVING_MAX),
            lost: Vec::new(),
            spares: Vec::new(),
        }
    }

    /// Whether nothing came in this burst.
    #[inline]
    pub(super) fn is_untouched(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// A packet that has come over so many links is to wait before egress.
    pub(super) fn wait(&mut self, packet: Packet, class: u8, record: &[u64], waits: Waits, hops: u32) {
        let memory = self.spares.pop().filter(|spare| spare.len() == record.len());
        let record = match memory {
            Some(mut memory) => {
                memory.copy_from_slice(record);
                memory
            }
            None => record.into(),
        };
        self.arrivals.push((Item { packet, waits: Some(Waits { record, ..waits }), hops }, class));
    }

    /// A finished frame is to wait in a class of its own choice.
    pub(super) fn wait_finished(&mut self, packet: Packet, class: u8, hops: u32) {
        self.arrivals.push((Item { packet, waits: None, hops }, class));
    }

    /// Offers what came in this burst to the queues: finished frames, which have come over so many links, and what waits before
    /// egress. `None`: the port is down.
    pub(super) fn offer(&mut self, frames: &mut Vec<Packet>, hops: Option<u32>, now_us: u64, drops: &DropCounters) {
        let Some(hops) = hops else {
            let count = frames.len() + self.arrivals.len();
            drops.count_many(DropReason::Runtime(RuntimeDrop::PortDown), count as u64);
            free_bulk(frames);
            self.arrivals.clear();
            return;
        };
        let frames = frames.drain(..).map(|packet| (Item { packet, waits: None, hops }, 0));
        let all = frames.chain(self.arrivals.drain(..));
        self.queues.offer(all, self.serves, nanoseconds(now_us), &mut self.lost, &mut self.spares);
        for Lost { reason, packet } in self.lost.drain(..) {
            drops.count(DropReason::Runtime(reason));
            drop(packet);
        }
    }

    /// Frames that are through egress wait for the port to take them.
    pub(super) fn leave(&mut self, frames: &mut Vec<Packet>) {
        self.leaving.append(frames);
    }

    /// Whether something has left the queues that the port has not taken.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether something is in the queues.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Transmits dequeued packets. Returns whether the port accepted some, and whether it accepted all.
    pub(super) fn send(&mut self, queue: &mut PortQueue) -> (bool, bool) {
        let before = self.leaving.len();
        queue.tx(&mut self.leaving);
        (self.leaving.len() < before, self.leaving.is_empty())
    }

    /// Ends the queues: the finished frames that wait, and how many packets wait before egress, which are freed.
    fn end(mut self, now_us: u64) -> (Vec<Packet>, usize) {
        let mut frames = std::mem::take(&mut self.leaving);
        let mut others = self.arrivals.len();
        let waiting = if self.serves { self.queues.drain(nanoseconds(now_us)) } else { Vec::new() };
        for Item { packet, waits, .. } in waiting {
            match waits {
                None => frames.push(packet),
                Some(_) => others += 1,
            }
        }
        (frames, others)
    }
}

fn nanoseconds(us: u64) -> u64 {
    us.saturating_mul(1000)
}

impl Serving {
    /// The server has something to do at that time.
    fn look_again(&mut self, at_us: u64) {
        self.next_us = Some(self.next_us.map_or(at_us, |next| next.min(at_us)));
    }
}

impl Worker {
    /// A port has these queues from now on, or none.
    #[cold]
    pub(super) fn set_queues(&mut self, device: u64, number: u32, queues: Option<(Arc<EgressQueues>, bool)>) {
        let Some(at) = self.devices.position(device) else { return };
        self.finish_waiting(at, number);
        let Slot { ports, running, drops, .. } = &mut self.devices.all[at];
        let drops = running.as_ref().map_or(&**drops, |running| running.pipeline.drops(self.setup.index));
        let new = queues.map(|(queues, serves)| Box::new(Egress::new(queues, serves)));
        if let Some(old) = ports.set_egress(number, new) {
            let now_us = self.clock.us_at(ticks());
            let (frames, others) = old.end(now_us);
            drops.count_many(DropReason::Runtime(RuntimeDrop::QueueFull), others as u64);
            ports.send_late(number, frames);
            ports.flush(drops, &self.taps, &mut self.shares, now_us, None);
            if !self.devices.all[at].ports.crossing.is_empty() {
                self.work_left = WORK_MAX;
                let now = ticks();
                self.cross(at, 0, now, now);
            }
        }
    }

    /// Takes what waits in a port's queues through egress, whatever its turn; it then waits to leave by the port.
    #[cold]
    pub(super) fn finish_waiting(&mut self, device: usize, number: u32) {
        let now_us = self.clock.us_at(ticks());
        let ports = &self.devices.all[device].ports;
        let Some(i) = ports.position(number) else { return };
        let Some(egress) = ports.all[i].egress.as_ref().filter(|egress| egress.serves) else { return };
        for item in egress.queues.drain(nanoseconds(now_us)) {
            self.take_one(device, i, item, Stay { depths: [0; 2], enqueued_us: now_us, mark: false }, now_us);
        }
        self.resume(device, i, now_us);
    }

    /// Sends what may leave by ports with queues of which this worker is the server; whether there was something.
    #[inline(never)]
    pub(super) fn serve(&mut self) -> bool {
        let start = ticks();
        let now_us = self.clock.us_at(start);
        self.serving.next_us = None;
        let (mut any, mut in_programs) = (false, 0);
        for device in 0..self.devices.all.len() {
            for port in 0..self.devices.all[device].ports.all.len() {
                if self.devices.all[device].ports.all[port].egress.as_ref().is_some_and(|egress| egress.serves) {
                    any |= self.serve_port(device, port, now_us, &mut in_programs);
                }
            }
            let Slot { ports, earlier, .. } = &mut self.devices.all[device];
            if !earlier.is_empty() {
                let kept_us = if ports.is_waiting() { KEPT_MAX_US } else { KEPT_MIN_US };
                earlier.retain(|(_, since_us)| now_us.saturating_sub(*since_us) < kept_us);
            }
        }
        if any {
            let end = ticks();
            self.setup.counters.served(in_programs, end.saturating_sub(self.accounted).saturating_sub(in_programs));
            self.accounted = end;
            self.turn = end;
        }
        any
    }

    fn serve_port(&mut self, device: usize, i: usize, now_us: u64, in_programs: &mut u64) -> bool {
        let mut any = false;
        // All ports may have sent a burst here; one batch more, so that a queue that has grown shrinks.
        for _ in 0..self.devices.all[device].ports.polled + 1 {
            let Slot { ports, running, drops, .. } = &mut self.devices.all[device];
            let (sent, is_clear) = ports.all[i].send_waiting(&mut self.shares);
            let Port { queue, egress: Some(egress), .. } = &mut ports.all[i] else { return any };
            if matches!(queue, PortQueue::Down(_)) {
                let waiting = egress.leaving.len() + egress.queues.drain(nanoseconds(now_us)).len();
                free_bulk(&mut egress.leaving);
                let drops = running.as_ref().map_or(&**drops, |running| running.pipeline.drops(self.setup.index));
                drops.count_many(DropReason::Runtime(RuntimeDrop::PortDown), waiting as u64);
                return any;
            }
            any |= sent;
            if !is_clear {
                // It is full.
                self.serving.look_again(now_us + FULL_US);
                return any;
            }
            if egress.queues.is_empty() {
                return any;
            }
            let next = egress.queues.take(LEAVING_MAX, nanoseconds(now_us), &mut self.serving.taken);
            if self.serving.taken.is_empty() {
                if let Some(next) = next {
                    self.serving.look_again(next.div_ceil(1000));
                }
                return any;
            }
            any = true;
            *in_programs += self.take_on(device, i, now_us);
        }
        self.serving.look_again(now_us);
        any
    }

    /// Takes those on that were taken out of a port's queues, and sends them; the cycles that this took in programs.
    fn take_on(&mut self, device: usize, i: usize, now_us: u64) -> u64 {
        let mut taken = std::mem::take(&mut self.serving.taken);
        let mut cycles = 0;
        for Taken { item, enqueued_at, packets_at_enqueue, packets_behind, mark, .. } in taken.drain(..) {
            let depths = [packets_at_enqueue, packets_behind].map(u64::from);
            let stay = Stay { depths, enqueued_us: enqueued_at / 1000, mark };
            cycles += self.take_one(device, i, item, stay, now_us);
        }
        self.serving.taken = taken;
        cycles += self.resume(device, i, now_us);
        self.devices.all[device].ports.all[i].send_waiting(&mut self.shares);
        cycles
    }

    /// Takes one on, or has it wait for those behind it that go on through the same program.
    fn take_one(&mut self, device: usize, i: usize, item: Item, stay: Stay, now_us: u64) -> u64 {
        let Stay { depths, enqueued_us, mark } = stay;
        let Item { mut packet, waits, hops } = item;
        let goes_with = |waits: &Waits| waits.program == self.serving.program;
        let is_full = self.serving.departures.len() == BATCH_MAX;
        let mut cycles = 0;
        if is_full || hops != self.serving.hops || !waits.as_ref().is_some_and(goes_with) {
            cycles = self.resume(device, i, now_us);
        }
        self.serving.hops = hops;
        match waits {
            None => {
                if mark {
                    traffic::ecn::mark(packet.data_mut());
                }
                self.devices.all[device].ports.push(i, packet);
            }
            Some(Waits { program, record, passage }) => {
                self.serving.program = program;
                self.serving.departures.push(Departure { packet, record, passage, enqueued_us, depths });
            }
        }
        cycles
    }

    /// Takes on what waits before egress of a program, behind what waits to leave by the port; the cycles that this took.
    fn resume(&mut self, device: usize, i: usize, now_us: u64) -> u64 {
        let Slot { ports, running, earlier, drops, .. } = &mut self.devices.all[device];
        let hops = std::mem::take(&mut self.serving.hops);
        ports.hops = hops;
        let Serving { departures, records, program, .. } = &mut self.serving;
        let mut all = running.iter_mut().chain(earlier.iter_mut().map(|(running, _)| running));
        let (mut start, mut end) = (0, 0);
        match all.find(|running| running.number() == *program) {
            Some(running) if !departures.is_empty() => {
                start = ticks();
                let drops = running.pipeline.drops(self.setup.index);
                let cpu_port = running.engine.cpu_port().or(self.setup.cpu_port);
                let mut sink = ports.sink(drops, cpu_port, &self.setup.events, *program);
                running.engine.set_work(WORK_MAX);
                running.engine.resume(running.executor.as_mut(), departures, records, now_us, &mut sink);
                // An earlier program gets no packets but these.
                running.executor.idle();
                end = ticks();
                ports.flush(drops, &self.taps, &mut self.shares, now_us, Some(i));
            }
            it => {
                let drops = it.map_or(&**drops, |running| running.pipeline.drops(self.setup.index));
                drops.count_many(DropReason::Runtime(RuntimeDrop::NoProgram), departures.len() as u64);
                departures.clear();
                ports.flush(drops, &self.taps, &mut self.shares, now_us, Some(i));
            }
        }
        ports.hops = 0;
        if let Some(egress) = ports.all[i].egress.as_ref().filter(|_| !self.serving.records.is_empty()) {
            egress.queues.give_back(&mut self.serving.records);
        }
        if !self.devices.all[device].ports.crossing.is_empty() {
            self.work_left = WORK_MAX;
            let now = ticks();
            let (sending, _) = self.cross(device, hops, now, now);
            end += sending.saturating_sub(now);
        }
        end.saturating_sub(start)
    }
}

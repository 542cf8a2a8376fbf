//! Egress queues as seen by one worker: each worker enqueues after a burst; the *server* of a port also dequeues.
//!
//! After each round the server dequeues as many eligible packets as the port accepts, runs egress for those that wait
//! before it, and transmits them. While a port is full, its packets stay queued: this is how a queue grows without a
//! shaper. At most [`LEAVING_MAX`] packets are dequeued but not yet accepted by the port. A link (`links.rs`) accepts
//! all eligible packets.
//!
//! When the program is replaced, packets that wait before egress continue in the program that processed them at
//! ingress. That program is kept while packets wait, at least [`KEPT_MIN_US`] and at most [`KEPT_MAX_US`]; at most
//! [`EARLIER_MAX`] such programs are kept. The new program does not inherit what the old one counts in that time.
//! When a port loses its queues or is bound to another device, its waiting packets go through egress at once.
//!
//! Egress of dequeued packets has a work budget of its own (`engine`): a recirculated packet waits in a queue each
//! time, and queues are bounded.
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

/// Most packets that are dequeued but not yet accepted by the port.
const LEAVING_MAX: usize = BATCH_MAX;
/// Longest time until a full port is tried again, in microseconds: as long as an idle worker sleeps.
const FULL_US: u64 = SLEEP_MAX.as_micros() as u64;
/// Shortest time an earlier program is kept, in microseconds: other workers may still run it that long.
const KEPT_MIN_US: u64 = PICK_UP.as_micros() as u64;
/// Longest time an earlier program is kept, in microseconds, so that a port that accepts no packets does not keep its
/// tables for ever: TCP's maximum segment lifetime, two minutes (RFC 9293, section 3.4.1).
const KEPT_MAX_US: u64 = 120_000_000;
/// Most earlier programs of a device that are kept. A state that programs inherit has room for four executors per
/// worker (`FastState::new`): these, the running one, and the next.
pub(super) const EARLIER_MAX: usize = 2;

/// A port's queues as one worker holds them.
pub(super) struct Egress {
    queues: Arc<EgressQueues>,
    /// Whether this worker is the server, which dequeues.
    pub serves: bool,
    /// Packets of this burst that are to wait before egress, each with its class.
    arrivals: Vec<(Item, u8)>,
    /// Dequeued packets that the port has not accepted yet.
    leaving: Vec<Packet>,
    lost: Vec<Lost>,
    /// Spare memory for records.
    spares: Vec<Box<[u64]>>,
}

/// A packet's stay in a queue: packets queued when it arrived and left behind when it was dequeued, its arrival time,
/// and whether to mark it (ECN).
struct Stay {
    depths: [u64; 2],
    enqueued_us: u64,
    mark: bool,
}

/// The server's working state; empty between ports.
#[derive(Default)]
pub(super) struct Serving {
    taken: Vec<Taken<Item>>,
    departures: Vec<Departure>,
    /// Common to all departures: the program, and how many links they (and the frames before them) have crossed.
    program: u64,
    hops: u32,
    records: Vec<Box<[u64]>>,
    /// When to dequeue or transmit next, in microseconds, if anything waits.
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

    /// Whether nothing arrived in this burst.
    #[inline]
    pub(super) fn is_untouched(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Notes a packet that is to wait before egress and has crossed `hops` links.
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

    /// Notes a finished frame that is to wait in a class of its own choice.
    pub(super) fn wait_finished(&mut self, packet: Packet, class: u8, hops: u32) {
        self.arrivals.push((Item { packet, waits: None, hops }, class));
    }

    /// Enqueues this burst: finished frames, which have crossed `hops` links, and packets that wait before egress. If
    /// `hops` is `None` the port is down and all are dropped.
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

    /// Takes over frames that have been through egress and wait for the port to accept them.
    pub(super) fn leave(&mut self, frames: &mut Vec<Packet>) {
        self.leaving.append(frames);
    }

    /// Whether dequeued packets wait for the port.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether packets are queued.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Transmits dequeued packets. Returns whether the port accepted some, and whether it accepted all.
    pub(super) fn send(&mut self, queue: &mut PortQueue) -> (bool, bool) {
        let before = self.leaving.len();
        queue.tx(&mut self.leaving);
        (self.leaving.len() < before, self.leaving.is_empty())
    }

    /// Dissolves the queues. Returns the finished frames that waited and the number of packets that waited before
    /// egress, which are freed.
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
    /// Schedules the server's next look, in microseconds.
    fn look_again(&mut self, at_us: u64) {
        self.next_us = Some(self.next_us.map_or(at_us, |next| next.min(at_us)));
    }
}

impl Worker {
    /// Sets or removes a port's queues.
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

    /// Dequeues all packets of a port, eligible or not, and runs egress for them; they then wait for the port to
    /// accept them.
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

    /// Serves all ports whose server this worker is; returns whether there was anything to do.
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
        // Every polled port may have sent a burst here; one more batch, so that a queue that has grown shrinks again.
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
                // The port is full.
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

    /// Processes the packets that were dequeued from a port and transmits them; returns the cycles spent in programs.
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

    /// Processes one dequeued packet, or collects it so that packets that continue in the same program form a batch.
    /// Returns the cycles spent in programs.
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

    /// Runs egress for the collected departures, behind the frames that already wait for the port; returns the cycles
    /// spent in programs.
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
                // An earlier program gets no other packets.
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

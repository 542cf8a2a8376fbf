//! A port's queues as one worker has them: what is offered to them after each burst, and, by the server, what is taken out.
//!
//! After each round the server takes packets out whose turn it is, as many as the port takes, runs egress for those that wait
//! before it, and sends them. A port that is full keeps its packets waiting: that is what makes a queue grow without a shaper.
//! [`LEAVING_MAX`] packets at most are out of the queue and not yet in the port.
//!
//! When another program takes over, packets that wait before egress go on through the program that they met at ingress, which is kept for
//! [`KEPT_US`]. What it counts in that time is not part of what the new program takes over.
//!
//! One worker, one thread. Tests: `tests/queues.rs`.

use super::devices::Slot;
use super::out::Port;
use super::{PortQueue, Worker};
use crate::drops::{DropCounters, DropReason, RuntimeDrop};
use crate::engine::{Departure, Passage, WORK_MAX};
use crate::queues::{EgressQueues, Item, Lost, Waits};
use abi::BATCH_MAX;
use pktio::{Packet, free_bulk, ticks};
use std::sync::Arc;
use traffic::Taken;

/// Packets that are taken out of a port's queues at a time.
const LEAVING_MAX: usize = BATCH_MAX;
/// Batches that are taken out of a port's queues in a round, so that other ports have their turns.
const BATCHES_MAX: usize = 4;
/// After how many microseconds a port that was full is looked at again at the latest.
const FULL_US: u64 = 500;
/// How long a program is kept for packets that it is to take on, in microseconds.
pub(super) const KEPT_US: u64 = 1_000_000;

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

/// What the server has in hand; empty between ports.
#[derive(Default)]
pub(super) struct Serving {
    taken: Vec<Taken<Item>>,
    departures: Vec<Departure>,
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

    /// A packet is to wait before egress.
    pub(super) fn wait(&mut self, packet: Packet, class: u8, record: &[u64], program: usize, passage: Passage) {
        let memory = self.spares.pop().filter(|spare| spare.len() == record.len());
        let record = match memory {
            Some(mut memory) => {
                memory.copy_from_slice(record);
                memory
            }
            None => record.into(),
        };
        self.arrivals.push((Item { packet, waits: Some(Waits { program, record, passage }) }, class));
    }

    /// Offers what came in this burst to the queues: finished frames, and what waits before egress.
    pub(super) fn offer(&mut self, frames: &mut Vec<Packet>, is_down: bool, now_us: u64, drops: &DropCounters) {
        if is_down {
            let count = frames.len() + self.arrivals.len();
            drops.count_many(DropReason::Runtime(RuntimeDrop::PortDown), count as u64);
            free_bulk(frames);
            self.arrivals.clear();
            return;
        }
        let frames = frames.drain(..).map(|packet| (Item { packet, waits: None }, 0));
        let all = frames.chain(self.arrivals.drain(..));
        self.queues.offer(all, nanoseconds(now_us), &mut self.lost, &mut self.spares);
        for Lost { reason, packet } in self.lost.drain(..) {
            drops.count(DropReason::Runtime(reason));
            drop(packet);
        }
    }

    /// Frames that are through egress wait for the port to take them.
    pub(super) fn leave(&mut self, frames: &mut Vec<Packet>) {
        self.leaving.append(frames);
    }

    /// Gives the port as much of that as it takes: whether it took something, and whether it took all.
    fn send(&mut self, queue: &mut PortQueue) -> (bool, bool) {
        let before = self.leaving.len();
        if before == 0 {
            return (false, true);
        }
        queue.tx(&mut self.leaving);
        (self.leaving.len() < before, self.leaving.is_empty())
    }

    /// The finished frames that wait, and how many packets wait before egress, which are freed. To be called when the port's
    /// queues end.
    pub(super) fn end(mut self, now_us: u64) -> (Vec<Packet>, usize) {
        let mut frames = std::mem::take(&mut self.leaving);
        let mut others = self.arrivals.len();
        let waiting = if self.serves { self.queues.drain(nanoseconds(now_us)) } else { Vec::new() };
        for Item { packet, waits } in waiting {
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
        let Slot { ports, running, drops, .. } = &mut self.devices.all[at];
        let drops = running.as_ref().map_or(&**drops, |running| running.pipeline.drops(self.setup.index));
        let new = queues.map(|(queues, serves)| Box::new(Egress::new(queues, serves)));
        if let Some(old) = ports.set_egress(number, new) {
            let now_us = self.clock.us_at(ticks());
            let (frames, others) = old.end(now_us);
            drops.count_many(DropReason::Runtime(RuntimeDrop::QueueFull), others as u64);
            ports.send_late(number, frames);
            ports.flush(drops, &self.taps, &mut self.shares, now_us, None);
        }
    }

    /// Sends what may leave by ports with queues of which this worker is the server; whether there was something.
    #[inline(never)]
    pub(super) fn serve(&mut self) -> bool {
        let start = ticks();
        let now_us = self.clock.us_at(start);
        self.serving.next_us = None;
        let (mut any, mut in_programs) = (false, 0);
        for device in 0..self.devices.all.len() {
            for port in 0..self.devices.all[device].ports.polled {
                if self.devices.all[device].ports.all[port].egress.as_ref().is_some_and(|egress| egress.serves) {
                    any |= self.serve_port(device, port, now_us, &mut in_programs);
                }
            }
            self.devices.all[device].earlier.retain(|(_, until_us)| *until_us > now_us);
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
        for _ in 0..BATCHES_MAX {
            let Slot { ports, running, drops, .. } = &mut self.devices.all[device];
            let Port { queue, egress: Some(egress), .. } = &mut ports.all[i] else { return any };
            if matches!(queue, PortQueue::Down(_)) {
                let waiting = egress.leaving.len() + egress.queues.drain(nanoseconds(now_us)).len();
                free_bulk(&mut egress.leaving);
                let drops = running.as_ref().map_or(&**drops, |running| running.pipeline.drops(self.setup.index));
                drops.count_many(DropReason::Runtime(RuntimeDrop::PortDown), waiting as u64);
                return any;
            }
            let (sent, is_clear) = egress.send(queue);
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
        let mut program = 0;
        for Taken { item, enqueued_at, packets_at_enqueue, packets_behind, mark, .. } in taken.drain(..) {
            let Item { mut packet, waits } = item;
            if waits.as_ref().is_none_or(|waits| waits.program != program) {
                cycles += self.resume(device, i, program, now_us);
            }
            match waits {
                None => {
                    if mark {
                        traffic::ecn::mark(packet.data_mut());
                    }
                    self.devices.all[device].ports.push(i, packet);
                }
                Some(Waits { program: of, record, passage }) => {
                    program = of;
                    let depths = [packets_at_enqueue, packets_behind].map(u64::from);
                    let enqueued_us = enqueued_at / 1000;
                    self.serving.departures.push(Departure { packet, record, passage, enqueued_us, depths });
                }
            }
        }
        self.serving.taken = taken;
        cycles += self.resume(device, i, program, now_us);
        let Port { queue, egress, .. } = &mut self.devices.all[device].ports.all[i];
        if let Some(egress) = egress {
            egress.send(queue);
        }
        cycles
    }

    /// Takes on what waits before egress of a program, behind what waits to leave by the port.
    fn resume(&mut self, device: usize, i: usize, program: usize, now_us: u64) -> u64 {
        let Slot { ports, running, earlier, drops, .. } = &mut self.devices.all[device];
        let departures = &mut self.serving.departures;
        let mut all = running.iter_mut().chain(earlier.iter_mut().map(|(running, _)| running));
        let it = all.find(|running| running.number() == program);
        let (mut start, mut end) = (0, 0);
        match it {
            Some(running) if !departures.is_empty() => {
                start = ticks();
                let drops = running.pipeline.drops(self.setup.index);
                let cpu_port = running.engine.cpu_port().or(self.setup.cpu_port);
                let mut sink = ports.sink(drops, cpu_port, &self.setup.events, program);
                running.engine.set_work(WORK_MAX);
                let records = &mut self.serving.records;
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
        if let Some(egress) = ports.all[i].egress.as_ref().filter(|_| !self.serving.records.is_empty()) {
            egress.queues.give_back(&mut self.serving.records);
        }
        if !self.devices.all[device].ports.crossing.is_empty() {
            self.work_left = WORK_MAX;
            let now = ticks();
            let (sending, _) = self.cross(device, now, now);
            end += sending.saturating_sub(now);
        }
        end.saturating_sub(start)
    }
}

//! Transmit side of a device on one worker: a buffer per port, the controller's channel, drop counters.
//!
//! Buffers are flushed after each received burst, so no packet waits for others. A burst that leaves as a whole by
//! one port is not touched packet by packet: its vector becomes the port's buffer. Dropped packets are freed in one
//! call. One worker, one thread.
//!
//! **Accounting for transmit time.** The first attempt to transmit is charged to the ingress port: a port that sends
//! much, or to a slow port, pays for it, and the queue bounds the cost of one attempt. Retries are charged to the
//! egress port, in a separate account ([`Port::retries`]): their number depends on that port's peer, and a peer with
//! costly buffers would otherwise use up the share of those who send to it. The account is separate because flooding
//! a port could otherwise keep it from being polled. A port whose retries took more than its share gets none while
//! others wait. The clock is read only when the first attempt leaves packets over. Tests: at the end,
//! `tests/worker.rs`.

use super::egress::Egress;
use super::links::Crossing;
use super::shares::{Shares, Turn};
use super::{Event, PortQueue};
use crate::drops::{DropCounters, DropReason, RuntimeDrop};
use crate::engine::{Arrival, Inserted, Sink, WORK_MAX};
use crate::queues::Waits;
use crate::tap::Tap;
use abi::BATCH_MAX;
use pktio::{Packet, free_bulk, ticks};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// The egress port of packets for which a program chose none: `egress_spec` starts at 0.
const UNCHOSEN_PORT: u32 = 0;

/// Attempts to transmit a burst before the remaining packets are dropped.
const TX_TRIES: u32 = 4;

/// Work units of a burst from which the next burst is halved: this one may have needed more than the budget.
const MUCH_WORK: u32 = WORK_MAX - WORK_MAX / 8;
/// Work units of a burst up to which the next burst may be doubled.
const LITTLE_WORK: u32 = WORK_MAX / 4;

/// A port as one worker holds it.
pub(super) struct Port {
    pub number: u32,
    pub queue: PortQueue,
    /// Most packets received at once; reduced for packets that cause much work (`engine::WORK_MAX`).
    pub burst: usize,
    /// Worker time charged to the port.
    pub turn: Turn,
    /// Worker time spent on transmit retries to the port.
    retries: Turn,
    /// Its egress queues, if any.
    pub egress: Option<Box<Egress>>,
    out: Vec<Packet>,
}

impl Port {
    /// Adapts the burst size to the work units that the last burst cost.
    #[cold]
    pub(super) fn fit_burst(&mut self, work: u32) {
        self.burst = next_burst(self.burst, work);
    }

    /// Transmits dequeued packets. Returns whether the port accepted any, and whether it accepted all. As for ports
    /// without queues, attempts at a full port are charged to that port as retries.
    pub(super) fn send_waiting(&mut self, shares: &mut Shares) -> (bool, bool) {
        let Some(egress) = &mut self.egress else { return (false, true) };
        if !egress.is_leaving() {
            return (false, true);
        }
        if shares.passes_over(&self.retries) {
            return (false, false);
        }
        let start = ticks();
        let (sent, is_clear) = egress.send(&mut self.queue);
        if !is_clear {
            shares.charge(&mut self.retries, ticks().saturating_sub(start), false);
        }
        (sent, is_clear)
    }

    /// Retries what the first attempt left over; returns the ticks that this took.
    #[cold]
    fn try_again(&mut self, shares: &mut Shares) -> u64 {
        if matches!(self.queue, PortQueue::Down(_)) || shares.passes_over(&self.retries) {
            return 0;
        }
        let start = ticks();
        for _ in 1..TX_TRIES {
            self.queue.tx(&mut self.out);
            if self.out.is_empty() {
                break;
            }
        }
        let took = ticks().saturating_sub(start);
        shares.charge(&mut self.retries, took, false);
        took
    }
}

/// The size of the next burst after one of at most `burst` packets that cost `work` units: halved if it may have
/// needed more than the budget, doubled when it cost little.
fn next_burst(burst: usize, work: u32) -> usize {
    match work {
        ..=LITTLE_WORK => (2 * burst).min(BATCH_MAX),
        MUCH_WORK.. => (burst / 2).max(1),
        _ => burst,
    }
}

/// All ports of a device as one worker holds them, and the packets that wait to leave by them.
#[derive(Default)]
pub(super) struct Ports {
    /// The device's id.
    pub device: u64,
    /// The ports that are polled, then the sending ends of links.
    pub all: Vec<Port>,
    /// The number of ports that are polled.
    pub polled: usize,
    index: PortIndex,
    /// Positions of the ports whose buffers are not empty.
    touched: Vec<usize>,
    dropped: Vec<Packet>,
    /// Packets that leave by links.
    pub crossing: Vec<Crossing>,
    /// How many links the running packets have crossed.
    pub hops: u32,
    /// Empty buffers for packets that cross links.
    pub spares: Vec<Vec<Packet>>,
}

impl Ports {
    /// A device without ports.
    pub(super) fn new(device: u64) -> Ports {
        Ports { device, ..Ports::default() }
    }

    /// Adds a port: polled ports before link ends.
    pub(super) fn add(&mut self, number: u32, queue: PortQueue) {
        let at = if matches!(queue, PortQueue::Link(_)) { self.all.len() } else { self.polled };
        self.all.insert(
            at,
            Port {
                number,
                queue,
                burst: BATCH_MAX,
                turn: Turn::default(),
                retries: Turn::default(),
                egress: None,
                out: Vec::with_capacity(BATCH_MAX),
            },
        );
        self.changed();
    }

    /// Removes a port.
    pub(super) fn remove(&mut self, number: u32) -> Option<PortQueue> {
        let at = self.all.iter().position(|port| port.number == number)?;
        let port = self.all.remove(at);
        self.changed();
        Some(port.queue)
    }

    /// Takes a port into service (`up`) or out of it.
    pub(super) fn set_in_service(&mut self, number: u32, up: bool) {
        let egress = self.set_egress(number, None);
        if let Some(queue) = self.remove(number) {
            self.add(number, queue.in_service(up));
            self.set_egress(number, egress);
        }
    }

    /// Replaces a port's queues; returns the old ones.
    pub(super) fn set_egress(&mut self, number: u32, egress: Option<Box<Egress>>) -> Option<Box<Egress>> {
        let port = self.all.iter_mut().find(|port| port.number == number)?;
        std::mem::replace(&mut port.egress, egress)
    }

    /// The position of a port in `all`.
    pub(super) fn position(&self, number: u32) -> Option<usize> {
        self.index.get(number)
    }

    /// Transmits frames that have waited already with the next flush, past the port's queues.
    pub(super) fn send_late(&mut self, number: u32, frames: Vec<Packet>) {
        if let Some(i) = self.index.get(number) {
            frames.into_iter().for_each(|packet| self.push(i, packet));
        }
    }

    /// Appends a frame to the buffer of the port at position `i`.
    #[inline]
    pub(super) fn push(&mut self, i: usize, packet: Packet) {
        let out = &mut self.all[i].out;
        if out.is_empty() {
            self.touched.push(i);
        }
        out.push(packet);
    }

    fn changed(&mut self) {
        self.polled = self.all.iter().filter(|port| !matches!(port.queue, PortQueue::Link(_))).count();
        self.index = PortIndex::new(&self.all);
    }

    /// Whether packets wait in queues that this worker serves.
    pub(super) fn is_waiting(&self) -> bool {
        self.all.iter().any(|port| port.egress.as_ref().is_some_and(|egress| egress.serves && egress.is_waiting()))
    }

    /// Whether this worker serves any port's queues.
    pub(super) fn serves(&self) -> bool {
        self.all.iter().any(|port| port.egress.as_ref().is_some_and(|egress| egress.serves))
    }

    /// The sink for a batch of `program`.
    pub(super) fn sink<'a>(
        &'a mut self,
        drops: &'a DropCounters,
        cpu_port: Option<u32>,
        events: &'a SyncSender<Event>,
        program: u64,
    ) -> Out<'a> {
        Out { ports: self, drops, cpu_port, events, program }
    }

    /// Transmits all buffers, and frees dropped packets and those that no port accepts. Returns the ticks spent on
    /// retries, which are not charged to the ingress port. Packets for a port with queues are enqueued there, except
    /// those just dequeued from the port at position `served`.
    #[inline]
    pub(super) fn flush(
        &mut self,
        drops: &DropCounters,
        taps: &[Arc<Tap>],
        shares: &mut Shares,
        now_us: u64,
        served: Option<usize>,
    ) -> u64 {
        let mut retries = 0;
        for i in self.touched.drain(..) {
            let port = &mut self.all[i];
            if let Some(egress) = &mut port.egress {
                if served == Some(i) {
                    for tap in taps {
                        tap.copy(self.device, port.number, true, &port.out);
                    }
                    match &port.queue {
                        PortQueue::Link(link) if !port.out.is_empty() => {
                            let spare = self.spares.pop().unwrap_or_else(|| Vec::with_capacity(BATCH_MAX));
                            self.crossing.push(link.cross(&mut port.out, spare));
                        }
                        _ => egress.leave(&mut port.out),
                    }
                }
                // Enqueue also what arrived for this port again: clones, and packets that went back to ingress.
                if served != Some(i) || !egress.is_untouched() {
                    let hops = (!matches!(port.queue, PortQueue::Down(_))).then_some(self.hops);
                    egress.offer(&mut port.out, hops, now_us, drops);
                }
                continue;
            }
            for tap in taps {
                tap.copy(self.device, port.number, true, &port.out);
            }
            port.queue.tx(&mut port.out);
            if port.out.is_empty() {
                continue;
            }
            if let PortQueue::Link(link) = &port.queue {
                let spare = self.spares.pop().unwrap_or_else(|| Vec::with_capacity(BATCH_MAX));
                self.crossing.push(link.cross(&mut port.out, spare));
                continue;
            }
            retries += port.try_again(shares);
            if !port.out.is_empty() {
                let is_down = matches!(port.queue, PortQueue::Down(_));
                let reason = if is_down { RuntimeDrop::PortDown } else { RuntimeDrop::PortFull };
                drops.count_many(DropReason::Runtime(reason), port.out.len() as u64);
                free_bulk(&mut port.out);
            }
        }
        if !self.dropped.is_empty() {
            free_bulk(&mut self.dropped);
        }
        retries
    }
}

/// The [`Sink`] of a batch.
pub(super) struct Out<'a> {
    ports: &'a mut Ports,
    drops: &'a DropCounters,
    cpu_port: Option<u32>,
    events: &'a SyncSender<Event>,
    /// The program's [`crate::pipeline::Pipeline::number`].
    program: u64,
}

impl Out<'_> {
    /// The buffer of a port; marks the port for the next flush, so the caller must put a packet in.
    #[inline]
    fn buffer(&mut self, port: u32) -> Option<&mut Vec<Packet>> {
        let i = self.ports.index.get(port)?;
        let out = &mut self.ports.all[i].out;
        if out.is_empty() {
            self.ports.touched.push(i);
        }
        Some(out)
    }

    /// Handles a packet whose port is not in `ports`: passes it to the controller, or drops it. A program that chose
    /// no port sends to [`UNCHOSEN_PORT`], which may not exist.
    #[cold]
    fn elsewhere(&mut self, port: u32, packet: Packet) {
        if Some(port) != self.cpu_port {
            let reason = if port == UNCHOSEN_PORT { RuntimeDrop::NoPortChosen } else { RuntimeDrop::NoSuchPort };
            return self.drop(DropReason::Runtime(reason), packet);
        }
        if self.events.try_send(Event::PacketIn(self.ports.device, packet.data().to_vec())).is_err() {
            self.drops.count(DropReason::Runtime(RuntimeDrop::ControllerFull));
        }
    }
}

impl Sink for Out<'_> {
    #[inline]
    fn send(&mut self, port: u32, packet: Packet) {
        match self.buffer(port) {
            Some(out) => out.push(packet),
            None => self.elsewhere(port, packet),
        }
    }

    #[inline]
    fn send_all(&mut self, port: u32, packets: &mut Vec<Packet>) {
        match self.buffer(port) {
            Some(out) if out.is_empty() => std::mem::swap(out, packets),
            Some(out) => out.append(packets),
            None => packets.drain(..).for_each(|packet| self.elsewhere(port, packet)),
        }
    }

    #[inline]
    fn send_merged(&mut self, batch: (u32, &mut Vec<Packet>), other: (u32, &mut Vec<Packet>), _: Inserted<'_>) {
        self.send_all(batch.0, batch.1);
        self.send_all(other.0, other.1);
    }

    fn send_in_class(&mut self, port: u32, class: u8, packet: Packet) {
        let Ports { all, index, touched, hops, .. } = &mut *self.ports;
        match index.get(port).map(|i| (i, &mut all[i])) {
            Some((i, Port { egress: Some(egress), out, .. })) => {
                if out.is_empty() && egress.is_untouched() {
                    touched.push(i);
                }
                egress.wait_finished(packet, class, *hops);
            }
            _ => self.send(port, packet),
        }
    }

    fn drop(&mut self, reason: DropReason, packet: Packet) {
        self.drops.count(reason);
        self.ports.dropped.push(packet);
    }

    fn drop_all(&mut self, reason: DropReason, packets: &mut Vec<Packet>) {
        self.drops.count_many(reason, packets.len() as u64);
        self.ports.dropped.append(packets);
    }

    fn lost_copies(&mut self, reason: DropReason, count: u64) {
        self.drops.count_many(reason, count);
    }

    fn queue(&mut self, port: u32, arrival: Arrival<'_>) -> Result<(), Packet> {
        let Ports { all, index, touched, hops, .. } = &mut *self.ports;
        let Some(i) = index.get(port) else { return Err(arrival.packet) };
        let Port { egress: Some(egress), out, .. } = &mut all[i] else { return Err(arrival.packet) };
        if out.is_empty() && egress.is_untouched() {
            touched.push(i);
        }
        let Arrival { packet, class, record, passage } = arrival;
        let waits = Waits { program: self.program, record: Box::default(), passage };
        egress.wait(packet, class, record, waits, *hops);
        Ok(())
    }
}

/// Maps port numbers to positions: an array for small numbers, a hash map for others.
#[derive(Default)]
struct PortIndex {
    small: Vec<u32>,
    large: HashMap<u32, u32>,
}

impl PortIndex {
    const SMALL: u32 = 1024;
    const NONE: u32 = u32::MAX;

    fn new(ports: &[Port]) -> PortIndex {
        let mut index = PortIndex { small: vec![Self::NONE; Self::SMALL as usize], large: HashMap::default() };
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

#[cfg(test)]
mod tests {
    use super::*;
    use pktio::{HeapPool, Pool, Queue, ticks_per_second};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::sync_channel;

    /// A queue that accepts nothing, and spends `ticks` per attempt.
    struct Costly {
        tries: Arc<AtomicU32>,
        ticks: u64,
    }

    impl Queue for Costly {
        fn rx(&mut self, _: &mut Vec<Packet>, _: usize) -> usize {
            0
        }

        fn tx(&mut self, _: &mut Vec<Packet>) -> usize {
            self.tries.fetch_add(1, Ordering::Relaxed);
            let start = ticks();
            while ticks() - start < self.ticks {
                std::hint::spin_loop();
            }
            0
        }
    }

    /// The finding: four attempts for each burst were charged to the sender, of 1,280 descriptors each if the
    /// destination's buffers were in many pieces.
    #[test]
    fn a_port_that_is_costly_to_send_to_pays_for_all_but_one_try() {
        let (tries, ticks) = (Arc::new(AtomicU32::new(0)), (1e-3 * ticks_per_second()) as u64);
        let queue: Box<dyn Queue> = Box::new(Costly { tries: Arc::clone(&tries), ticks });
        let (pool, drops, events) = (HeapPool::new(8), DropCounters::new(0), sync_channel(1).0);
        let (mut ports, mut shares) = (Ports::new(1), Shares::new());
        ports.add(7, PortQueue::Own { queues: vec![queue], next: 0 });
        let mut send = |shares: &mut Shares| {
            ports.sink(&drops, None, &events, 0).send(7, pool.alloc_from(&[1; 60]).expect("a buffer"));
            let retries = ports.flush(&drops, &[], shares, 0, None);
            (tries.swap(0, Ordering::Relaxed), retries)
        };
        let (count, retries) = send(&mut shares);
        assert!(count == TX_TRIES && retries >= 3 * ticks, "nobody waits: {count} tries, {retries} of {ticks} ticks");
        let mut other = Turn::default();
        let mut others_wait = |shares: &mut Shares, for_ticks| {
            shares.charge(&mut other, for_ticks, true);
            shares.end_round();
        };
        others_wait(&mut shares, ticks);
        let (count, retries) = send(&mut shares);
        assert!(count == 1 && retries == 0, "it has had its share: {count} tries");
        others_wait(&mut shares, 1000 * ticks);
        assert_eq!(send(&mut shares).0, TX_TRIES, "others have had as much");
        assert_eq!(send(&mut shares).0, 1);
        // The port that waited no longer does.
        shares.end_round();
        assert_eq!(send(&mut shares).0, TX_TRIES);
        assert_eq!(pool.available(), pool.limit());
    }

    #[test]
    fn bursts_become_as_small_as_their_work_needs_and_large_again() {
        for each in [0, 1, 48, 64, 100, 500, 4000, 10_000] {
            let work = |burst: usize| (each * burst as u32).min(WORK_MAX);
            let settled = (0..20).fold(BATCH_MAX, |burst, _| next_burst(burst, work(burst)));
            assert!(settled == 1 || each as usize * settled < WORK_MAX as usize, "{each} each: {settled}");
            assert!(settled == BATCH_MAX || each > 48, "{each} each: {settled}");
            let idle = (0..20).fold(settled, |burst, _| next_burst(burst, 0));
            assert_eq!(idle, BATCH_MAX);
        }
    }
}

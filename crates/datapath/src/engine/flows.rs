//! Packets of programs for which a flow processor decides (`abi::flows`), in the place of tables.
//!
//! A flow cache may know what becomes of a frame before it is parsed (`abi::flows::FrameCache`); that of a processor, or one of a
//! program with tables.
//!
//! ```text
//! Ingress ─▶ record ─▶ processor ─┬─ sends, unchanged ─────────────────────────────▶ port
//!    ▲                            ├─ sends, changed ──▶ Egress (write back, deparse) ─▶ port
//!    │                            ├─ captures ────────▶ Egress ─▶ processor (for a controller)
//!    └───── Egress, rewrite ◀─────┴─ again
//! ```
//!
//! Packets leave in the order of the received ones, and each one's outputs in the processor's order; passes through `Egress` go in
//! batches.
//!
//! **Bound:** copies and further passes cost units of work as the replication engine's do ([`super`]), and so do the processor's steps:
//! [`OWN_STEPS`] are free for each received packet, in all its passes, and [`UNIT_STEPS`] more cost a unit. Passes of copies have no
//! free steps. What a processor does with a frame's bytes ([`FlowProcessor::rewrite`]) costs steps likewise. A packet leaves
//! [`KEPT_UNITS`] for each one behind it that the processor decides about, so one that asks for much does not use up what ordinary
//! ones need. Packets for which nothing is left are dropped and counted as [`RuntimeDrop::FlowWork`], copies as
//! [`RuntimeDrop::ReplicationLimit`].
#![allow(unsafe_code)]

use super::copies::Copies;
use super::records::{Record, Records};
use super::waves::{Burst, borrowed, moved, owned};
use super::{Ended, Engine, PASS_LIMIT, Sink, apply, describe_received, fate, units};
use crate::drops::{DropReason, RuntimeDrop};
use crate::executor::Executor;
use abi::flows::{Arrival, FlowProcessor, Frame, FrameCache, Output, Outputs, Received, Verdict};
use abi::packet::{BATCH_MAX, FateCode};
use ir::{EntryKind, Intrinsic};
use pktio::{Packet, RawPacket, ticks};
use std::mem::MaybeUninit;

/// Steps of a flow processor that a received packet may cost before it is charged: about 50 microseconds.
pub const OWN_STEPS: u32 = 1024;

/// Steps of a flow processor for a unit of work.
pub const UNIT_STEPS: u32 = 16;

/// Units that a packet leaves for each one behind it: a quarter of a burst's, if that is full.
pub const KEPT_UNITS: u32 = super::WORK_MAX / 4 / BATCH_MAX as u32;

/// The processor of a worker, and packets on their way.
pub(super) struct Flows {
    processor: Box<dyn FlowProcessor>,
    /// Where the next received packets begin.
    start: u64,
    /// How many packets of the burst come behind those that run now, since a flow cache knows some in between.
    later: u32,
    leaving: Vec<Leaving>,
    /// Places in `leaving` of what goes through `Egress`.
    changed: Vec<u32>,
    again: Vec<Again>,
    arrivals: Vec<Parsed>,
}

/// A packet as the processor gets it.
#[derive(Clone, Copy)]
struct Parsed {
    raw: RawPacket,
    record: Record,
    consumed: u32,
    start: u64,
    passes: u32,
    /// Free steps that are left for it.
    steps: u32,
}

/// What a processor wants to be done with a frame.
#[derive(Clone, Copy)]
enum Wish {
    Send {
        port: u32,
        queue: u8,
    },
    Capture {
        token: u64,
    },
    Again {
        start: u64,
        rewrites: bool,
    },
    /// Nothing: it was lost on its way.
    Nothing,
}

struct Leaving {
    raw: RawPacket,
    record: Record,
    consumed: u32,
    max_len: u32,
    passes: u32,
    steps: u32,
    wish: Wish,
}

/// A packet that is parsed anew.
struct Again {
    raw: RawPacket,
    start: u64,
    passes: u32,
    steps: u32,
}

/// Where a packet begins, how often it has been parsed anew, and its free steps.
type Beginning = (u64, u32, u32);

impl Flows {
    fn new(processor: Box<dyn FlowProcessor>) -> Flows {
        Flows {
            processor,
            start: 0,
            later: 0,
            leaving: Vec::new(),
            changed: Vec::new(),
            again: Vec::new(),
            arrivals: Vec::new(),
        }
    }
}

impl Engine {
    /// Has a flow processor decide about packets of a program that is made for that.
    pub fn decided_by(mut self, processor: Box<dyn FlowProcessor>) -> Engine {
        self.flows = Some(Box::new(Flows::new(processor)));
        self
    }

    /// Whether a flow processor decides.
    #[inline]
    pub fn is_decided(&self) -> bool {
        self.flows.is_some()
    }

    /// The next received packets begin there ([`Arrival::start`]).
    pub fn begin_at(&mut self, start: u64) {
        if let Some(flows) = &mut self.flows {
            flows.start = start;
        }
    }

    /// Between bursts, for the processor's own work.
    pub fn idle(&mut self, now_us: u64) {
        if let Some(flows) = &mut self.flows {
            flows.processor.idle(now_us);
        }
    }

    /// Takes packets, which have been parsed, where the processor says.
    #[inline(never)]
    pub(super) fn decide<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        burst: Burst,
        sink: &mut S,
    ) {
        let Some(mut flows) = self.flows.take() else { return };
        let start = std::mem::take(&mut flows.start);
        self.take_parsed(&mut flows, packets.drain(..).map(|packet| (packet, (start, 0, OWN_STEPS))), sink);
        loop {
            self.ask(&mut flows, burst, sink);
            self.write_back(exec, &mut flows, burst, sink);
            self.take_leave(&mut flows, sink);
            self.records.free_all();
            if flows.again.is_empty() {
                break;
            }
            self.parse_anew(exec, &mut flows, packets, burst, sink);
        }
        self.copies.end();
        self.flows = Some(flows);
    }

    /// Takes over packets of the batch that has just run through `Ingress`.
    fn take_parsed<S: Sink>(
        &mut self,
        flows: &mut Flows,
        packets: impl Iterator<Item = (Packet, Beginning)>,
        sink: &mut S,
    ) {
        flows.arrivals.clear();
        for (i, (packet, (start, passes, steps))) in packets.enumerate() {
            let desc = &self.batch.packets[i];
            match fate(desc) {
                Ended::Drop(reason) => sink.drop(reason, packet),
                Ended::Send(port) => sink.send(port, packet),
                Ended::Multicast(group) => self.send_to_group(&packet.into_raw(), group, i as u8, true, sink),
                // No program for which flows decide asks for that; the processor would have to know of it.
                Ended::Again => sink.drop(DropReason::Runtime(RuntimeDrop::ReplicationLimit), packet),
                Ended::Replicate(_) => {
                    let (consumed, record) = (desc.consumed, self.records.received(i));
                    flows.arrivals.push(Parsed { raw: packet.into_raw(), record, consumed, start, passes, steps });
                }
            }
        }
    }

    /// Asks the processor about them.
    fn ask<S: Sink>(&mut self, flows: &mut Flows, burst: Burst, sink: &mut S) {
        let words = self.records.words_each();
        let records = &self.records;
        let mut arrivals: [Arrival<'_>; BATCH_MAX] =
            std::array::from_fn(|_| Arrival { record: &mut [], port: burst.port, frame: &[], bytes: 0, start: 0 });
        for (arrival, received) in arrivals.iter_mut().zip(&flows.arrivals) {
            // SAFETY: each record is its own memory, and stays there as long as the pool; nobody else uses it meanwhile.
            arrival.record = unsafe { std::slice::from_raw_parts_mut(records.pointer(received.record), words) };
            // SAFETY: the frame of a packet that stays where it is until the processor has decided; nobody writes it meanwhile.
            arrival.frame =
                unsafe { std::slice::from_raw_parts(borrowed(&received.raw).data_ptr(), received.raw.len.into()) };
            arrival.bytes = received.raw.len.into();
            arrival.start = received.start;
        }
        let count = flows.arrivals.len();
        let mut outputs = Collector {
            received: &mut flows.arrivals,
            records: &mut self.records,
            copies: &mut self.copies,
            work_left: &mut self.work_left,
            later: flows.later,
            leaving: &mut flows.leaving,
            changed: &mut flows.changed,
            sink,
            gone: 0,
        };
        flows.processor.process(&mut arrivals[..count], burst.now_us, &mut outputs);
        for packet in 0..count {
            if outputs.gone >> packet & 1 == 0 {
                outputs.end(packet, true);
            }
        }
    }

    /// Takes what was changed through `Egress`.
    fn write_back<S: Sink>(&mut self, exec: &mut dyn Executor, flows: &mut Flows, burst: Burst, sink: &mut S) {
        for batch in flows.changed.chunks(BATCH_MAX) {
            self.further.count = batch.len() as u32;
            self.further.now_us = burst.now_us;
            for (desc, at) in self.further.packets.iter_mut().zip(batch) {
                let Leaving { raw, record, consumed, wish, .. } = &flows.leaving[*at as usize];
                let (headroom, len) = (u32::from(raw.offset), u32::from(raw.len));
                if let Wish::Send { port, .. } = wish {
                    self.records.of(*record).set(Intrinsic::EgressPort, u64::from(*port));
                }
                desc.data = borrowed(raw).data_mut_ptr();
                desc.len = len;
                desc.headroom = headroom;
                desc.tailroom = u32::from(raw.capacity) - headroom - len;
                desc.ingress_port = burst.port;
                desc.consumed = *consumed;
                desc.record = self.records.pointer(*record);
                desc.timestamp_us = burst.now_us;
            }
            exec.run(EntryKind::Egress, &mut self.further);
            for (desc, at) in self.further.packets.iter().zip(batch) {
                let leaving = &mut flows.leaving[*at as usize];
                leaving.raw = moved(leaving.raw, desc);
                if let Ended::Drop(reason) = fate(desc) {
                    leaving.wish = Wish::Nothing;
                    sink.drop(reason, owned(&leaving.raw));
                }
                debug_assert!(desc.fate != FateCode::Replicate as u32);
            }
        }
        flows.changed.clear();
    }

    /// Does what the processor wished, in order.
    fn take_leave<S: Sink>(&mut self, flows: &mut Flows, sink: &mut S) {
        let mut all = flows.leaving.drain(..);
        while let Some(Leaving { raw, max_len, passes, mut steps, wish, .. }) = all.next() {
            if let Wish::Nothing = wish {
                continue;
            }
            let mut packet = owned(&raw);
            if max_len < u32::from(raw.len) {
                packet.truncate(max_len as usize);
            }
            match wish {
                Wish::Send { port, queue: 0 } => sink.send(port, packet),
                Wish::Send { port, queue } => sink.send_in_class(port, queue, packet),
                Wish::Capture { token } => flows.processor.capture(token, packet.data()),
                Wish::Again { start, rewrites } => {
                    if passes >= PASS_LIMIT || self.work_left == 0 {
                        sink.drop(DropReason::Runtime(RuntimeDrop::ReplicationLimit), packet);
                        continue;
                    }
                    self.work_left -= 1;
                    if rewrites {
                        // As for the processor's steps: those behind keep some.
                        let behind = all.len() as u32 + flows.later;
                        let units = self.work_left.saturating_sub(behind * KEPT_UNITS);
                        let most = steps + units * UNIT_STEPS;
                        let mut left = most;
                        let done = rewrite(flows.processor.as_mut(), start, &mut packet, &mut left);
                        let cost = most - left.min(most);
                        let own = steps.min(cost);
                        steps -= own;
                        self.work_left = self.work_left.saturating_sub((cost - own).div_ceil(UNIT_STEPS));
                        if done.is_none() {
                            let reason = if left == 0 { RuntimeDrop::FlowWork } else { RuntimeDrop::FlowTables };
                            sink.drop(DropReason::Runtime(reason), packet);
                            continue;
                        }
                    }
                    flows.again.push(Again { raw: packet.into_raw(), start, passes: passes + 1, steps });
                }
                Wish::Nothing => {}
            }
        }
    }

    /// Parses frames anew, at most a batch of them.
    fn parse_anew<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        flows: &mut Flows,
        packets: &mut Vec<Packet>,
        burst: Burst,
        sink: &mut S,
    ) {
        let count = flows.again.len().min(BATCH_MAX);
        let mut begins = [(0, 0, 0); BATCH_MAX];
        self.batch.count = count as u32;
        self.batch.now_us = burst.now_us;
        for (i, again) in flows.again.drain(..count).enumerate() {
            let packet = owned(&again.raw);
            describe_received(&mut self.batch.packets[i], &packet, burst);
            begins[i] = (again.start, again.passes, again.steps);
            packets.push(packet);
        }
        exec.run(EntryKind::Ingress, &mut self.batch);
        for (packet, desc) in packets.iter_mut().zip(&self.batch.packets) {
            apply(desc, packet);
        }
        self.take_parsed(flows, packets.drain(..).zip(begins), sink);
    }
}

impl Engine {
    /// Has a flow cache know packets of a program with tables.
    pub fn known_by(mut self, front: Box<dyn FrameCache>) -> Engine {
        self.front_from_us = 0;
        self.front = Some(front);
        self
    }

    /// What knows packets by their frames.
    #[inline]
    fn front(&mut self) -> Option<&mut dyn FrameCache> {
        match &mut self.flows {
            Some(flows) if flows.start != 0 => None,
            Some(flows) => flows.processor.front(),
            None => self.front.as_deref_mut().map(|front| front as &mut dyn FrameCache),
        }
    }

    /// Between batches: the worker holds no reference to any entry, and the flow cache has counted what it must.
    #[inline]
    pub fn quiescent(&mut self, exec: &mut dyn Executor) {
        match self.is_unsettled {
            false => exec.quiescent(),
            true => exec.quiescent_behind(&mut || self.settle(false)),
        }
    }

    /// The same, and no batch may come for a while.
    pub fn rest(&mut self, exec: &mut dyn Executor) {
        if self.is_unsettled {
            self.settle(true);
        }
        exec.idle();
    }

    /// Lets the flow cache count, while what was deleted in the batch is kept.
    fn settle(&mut self, is_idle: bool) {
        self.is_unsettled = self.front.as_mut().is_some_and(|front| !front.settle(is_idle));
    }

    /// Asks a flow cache whether it wants received packets; whether they have been taken to their ends then.
    #[inline(never)]
    pub(super) fn look_up<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        burst: Burst,
        sink: &mut S,
    ) -> bool {
        let Some(front) = self.front() else { return false };
        let is_used = front.is_used(burst.now_us);
        let (is_timed, rests) = (front.is_timed(), front.bypassed_until_us());
        if self.flows.is_none() {
            self.front_from_us = rests;
            self.is_unsettled |= is_used;
        }
        let (begin, count) = (if is_timed { ticks() } else { 0 }, packets.len());
        match is_used {
            true => self.sort_known(exec, packets, burst, sink),
            false if is_timed => self.run_pipeline(exec, packets, burst.port, burst.now_us, sink),
            false => return false,
        }
        if is_timed && let Some(front) = self.front() {
            front.record_time(count, ticks().saturating_sub(begin), is_used);
        }
        true
    }

    /// Takes all packets to their ends: those that a flow cache knows as it says, the others through the pipeline, in the order in
    /// which they were received.
    fn sort_known<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        Burst { port, now_us }: Burst,
        sink: &mut S,
    ) {
        if self.flows.is_none() {
            // What the cache counts is counted at cells that must not become another entry's meanwhile.
            exec.begin(now_us);
        }
        let Some(front) = self.front() else { return self.run_pipeline(exec, packets, port, now_us, sink) };
        let mut received: [MaybeUninit<Received<'_>>; BATCH_MAX] = [const { MaybeUninit::uninit() }; BATCH_MAX];
        for (received, packet) in received.iter_mut().zip(packets.iter_mut()) {
            let (offset, len) = (packet.headroom(), packet.len());
            // SAFETY: the buffer of a packet, which is ours alone, and stays where it is.
            let buffer = unsafe { std::slice::from_raw_parts_mut(packet.base_ptr(), packet.capacity()) };
            received.write(Received { frame: Frame { buffer, offset, len }, verdict: Verdict::Unknown });
        }
        // SAFETY: those of as many packets were just written; they need no drop.
        let received = unsafe { received[..packets.len()].assume_init_mut() };
        front.decide(received, port, now_us);
        let first = received[0].verdict;
        if let Verdict::Send { port, queue: 0 } = first
            && received.iter().all(|received| received.verdict == first)
        {
            for (packet, Received { frame, .. }) in packets.iter_mut().zip(received) {
                adjust(packet, frame.offset, frame.len);
            }
            return sink.send_all(port, packets);
        }
        let is_unknown = |at: usize| received.get(at).is_some_and(|one| one.verdict == Verdict::Unknown);
        let unknown = (0..received.len()).filter(|at| is_unknown(*at)).count();
        let together = (0..received.len()).filter(|at| is_unknown(*at) && !is_unknown(at + 1)).count();
        if together > 1 && self.flows.is_none() {
            return self.run_unknown(exec, packets, received, Burst { port, now_us }, sink);
        }
        let mut later = unknown as u32;
        let mut all = std::mem::take(&mut self.known);
        std::mem::swap(&mut all, packets);
        for (mut packet, Received { frame, verdict }) in all.drain(..).zip(received) {
            if let Verdict::Unknown = verdict {
                packets.push(packet);
                continue;
            }
            if !packets.is_empty() {
                later -= packets.len() as u32;
                if let Some(flows) = &mut self.flows {
                    flows.later = later;
                }
                self.run_pipeline(exec, packets, port, now_us, sink);
            }
            match *verdict {
                Verdict::Unknown => {}
                Verdict::Drop { reason: None } => sink.drop(DropReason::Runtime(RuntimeDrop::FlowTables), packet),
                Verdict::Drop { reason: Some(reason) } => sink.drop(DropReason::Program(reason), packet),
                Verdict::Send { port, queue } => {
                    adjust(&mut packet, frame.offset, frame.len);
                    match queue {
                        0 => sink.send(port, packet),
                        queue => sink.send_in_class(port, queue, packet),
                    }
                }
            }
        }
        self.known = all;
        if let Some(flows) = &mut self.flows {
            flows.later = 0;
        }
        if !packets.is_empty() {
            self.run_pipeline(exec, packets, port, now_us, sink);
        }
    }

    /// Takes all packets of a program with tables to their ends where a flow cache knows some between others. The others run
    /// together, so that those that ask for copies share the units of work: one run for each row of them would leave nothing for
    /// the later ones.
    fn run_unknown<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        received: &[Received<'_>],
        burst: Burst,
        sink: &mut S,
    ) {
        let mut places = [0; BATCH_MAX];
        let mut count = 0;
        for (place, (packet, Received { frame, verdict })) in packets.iter_mut().zip(received).enumerate() {
            if let Verdict::Send { .. } = verdict {
                adjust(packet, frame.offset, frame.len);
            }
            let desc = &mut self.batch.packets[place];
            describe_received(desc, packet, burst);
            match *verdict {
                Verdict::Unknown => {
                    self.further.packets[count] = *desc;
                    places[count] = place as u8;
                    count += 1;
                }
                // Where tables decide, the only drop without a reason in the program's code is that at the end of ingress.
                Verdict::Drop { reason } => {
                    (desc.fate, desc.fate_arg) = (FateCode::Drop as u32, reason.unwrap_or(self.ingress_drop));
                }
                Verdict::Send { port, queue } => {
                    debug_assert_eq!(queue, 0, "only flow processors know queues");
                    (desc.fate, desc.egress_port) = (FateCode::Send as u32, port);
                }
            }
        }
        self.batch.count = packets.len() as u32;
        self.batch.now_us = burst.now_us;
        self.further.count = count as u32;
        self.further.now_us = burst.now_us;
        exec.run(EntryKind::Ingress, &mut self.further);
        for (desc, place) in self.further.packets.iter().zip(&places[..count]) {
            let place = usize::from(*place);
            self.batch.packets[place] = *desc;
            apply(desc, &mut packets[place]);
        }
        self.sort_out(exec, packets, burst, sink);
    }
}

/// The frame is there now. A cache that says what cannot be is not followed.
#[inline]
fn adjust(packet: &mut Packet, offset: usize, len: usize) {
    if (offset, len) != (packet.headroom(), packet.len()) && packet.adjust(offset, len).is_err() {
        debug_assert!(false, "a flow cache has made a frame that is not in its buffer");
    }
}

/// Lets the processor work on a frame's bytes, for so many steps.
fn rewrite(processor: &mut dyn FlowProcessor, start: u64, packet: &mut Packet, steps: &mut u32) -> Option<()> {
    let (headroom, len, capacity) = (packet.headroom(), packet.len(), packet.capacity());
    // SAFETY: the buffer of a packet, which is ours alone, begins `headroom` bytes before its data and has `capacity` bytes.
    let buffer = unsafe { std::slice::from_raw_parts_mut(packet.data_mut_ptr().sub(headroom), capacity) };
    let mut frame = Frame { buffer, offset: headroom, len };
    processor.rewrite(start, &mut frame, steps)?;
    let (offset, len) = (frame.offset, frame.len);
    if len == 0 || offset.checked_add(len)? > capacity {
        return None;
    }
    // SAFETY: checked.
    unsafe { packet.adjust_unchecked(offset as u16, len as u16) }
    Some(())
}

const _: () = assert!(BATCH_MAX <= u64::BITS as usize);

/// Takes down what the processor says.
struct Collector<'a, S: Sink> {
    received: &'a mut [Parsed],
    records: &'a mut Records,
    copies: &'a mut Copies,
    work_left: &'a mut u32,
    leaving: &'a mut Vec<Leaving>,
    changed: &'a mut Vec<u32>,
    /// How many packets of the burst come behind all of these.
    later: u32,
    sink: &'a mut S,
    /// Packets whose buffers are given away or back: a bit each.
    gone: u64,
}

impl<S: Sink> Collector<'_, S> {
    /// Whether the packet is there; if `ends`, not any more.
    fn is_there(&mut self, packet: usize, ends: bool) -> bool {
        let bit = 1u64 << packet;
        let is_there = packet < self.received.len() && self.gone & bit == 0;
        debug_assert!(is_there, "a processor goes on with a packet that it has ended");
        if is_there && ends {
            self.gone |= bit;
        }
        is_there
    }

    /// Units that the packet may cost: those behind it keep some.
    fn units_left(&self, packet: usize) -> u32 {
        let behind = self.received.len().saturating_sub(packet + 1) as u32 + self.later;
        self.work_left.saturating_sub(behind * KEPT_UNITS)
    }

    fn push(&mut self, output: Output, words: &[u64], wish: Wish) {
        if !self.is_there(output.packet, output.is_last) {
            return;
        }
        let Parsed { raw, record, consumed, passes, steps, .. } = self.received[output.packet];
        let mut leaving = Leaving { raw, record, consumed, max_len: output.max_len, passes, steps, wish };
        if !output.is_last {
            let cost = units(usize::from(raw.len) + if output.is_modified { self.records.bytes() } else { 0 });
            if self.units_left(output.packet) < cost {
                return self.sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), 1);
            }
            *self.work_left -= cost;
            self.copies.prepare(&borrowed(&raw), 1, self.received.len());
            let Some(copy) = self.copies.copy(&borrowed(&raw)) else {
                return self.sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1);
            };
            (leaving.raw, leaving.steps) = (copy.into_raw(), 0);
            if output.is_modified {
                leaving.record = self.records.holding(words);
            }
        }
        if output.is_modified {
            self.changed.push(self.leaving.len() as u32);
        }
        self.leaving.push(leaving);
    }
}

impl<S: Sink> Outputs for Collector<'_, S> {
    fn send(&mut self, output: Output, record: &[u64], port: u32, queue: u8) {
        self.push(output, record, Wish::Send { port, queue });
    }

    fn capture(&mut self, output: Output, record: &[u64], token: u64) {
        self.push(output, record, Wish::Capture { token });
    }

    fn again(&mut self, output: Output, record: &[u64], start: u64, rewrites: bool) {
        self.push(output, record, Wish::Again { start, rewrites });
    }

    fn end(&mut self, packet: usize, is_dropped: bool) {
        if !self.is_there(packet, true) {
            return;
        }
        let packet = owned(&self.received[packet].raw);
        if is_dropped {
            self.sink.drop(DropReason::Runtime(RuntimeDrop::FlowTables), packet);
        }
    }

    fn work_left(&self, packet: usize) -> u32 {
        self.received.get(packet).map_or(0, |of| of.steps + self.units_left(packet) * UNIT_STEPS)
    }

    fn spend(&mut self, packet: usize, steps: u32) {
        debug_assert!(steps <= self.work_left(packet), "a processor does more than it may");
        let Some(of) = self.received.get_mut(packet) else { return };
        let own = of.steps.min(steps);
        of.steps -= own;
        *self.work_left = self.work_left.saturating_sub((steps - own).div_ceil(UNIT_STEPS));
    }

    fn refuse(&mut self, packet: usize) {
        if self.is_there(packet, true) {
            self.sink.drop(DropReason::Runtime(RuntimeDrop::FlowWork), owned(&self.received[packet].raw));
        }
    }
}

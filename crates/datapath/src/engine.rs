//! The replication engine: batches in, packets with a port out; everything a packet may ask for between ingress and
//! egress.
//!
//! The common path is a batch through `Ingress` whose packets are sent or dropped. A packet whose fate is
//! `Replicate` has its slots in a record; the engine reads the intrinsics there and makes work items:
//!
//! ```text
//! IngressEnd   clone?     -> copy of the packet as received -> CloneIngress (per replica)
//!              drop?      -> dropped                                                (and nothing else)
//!              resubmit?  -> the packet as received         -> Reingress            (and nothing else)
//!              multicast? -> copy per replica               -> Egress               (and nothing else)
//!              drop port? -> dropped;  else unicast         -> Egress
//! EgressEnd    clone?     -> copy, headers as they are      -> Egress (per replica); the packet itself -> Deparse
//! DeparseEnd   recirculate -> the packet as deparsed        -> Reingress
//! FrameEnd     clone?     -> copy of the packet as deparsed -> CloneIngress (per replica); the packet itself -> Deparse
//! ```
//!
//! A packet with the fate `Multicast` is through the pipeline: each replica is a copy of its frame (`opt`'s `multicast_frames`).
//!
//! The order and what metadata survives follow bmv2's simple_switch (docs/simple_switch.md of behavioral-model):
//! clones, resubmitted and recirculated packets start with zero metadata but for the preserved field list, the ingress
//! port and the instance type; multicast copies keep all metadata.
//!
//! What goes on from there goes in batches ([`waves`]). On each port packets leave in the order of the received ones, and those
//! that descend from the same one first in, first out.
//!
//! Packets of programs that ask for queues wait in those of their ports, which `EnqueueDepth` and `DequeueDepth` are about
//! ([`queued`]). Where there are none (scripts, traces), what waits here is the only queue: packets with the same received ancestor
//! that wait when one comes, and when it goes on. Packets of the common path never wait.
//!
//! **Bound:** copies and further passes cost *units* of work: one each, and one more for every [`UNIT_BYTES`] of frame and
//! record that are copied. All that a received burst causes may cost [`WORK_MAX`] units, also behind links. The packets of the
//! burst that ask for copies share the remaining units equally. Packets are finished in groups, and units that a group leaves
//! unused go to the next. A packet whose first request is larger than its share begins a new group, since unused units of
//! those before it may cover it. Units are taken before anything is copied; a copy that fails costs as much as one that
//! succeeds. A packet that has waited in a queue of its port begins with a share of a new budget: queues are bounded, too. What no unit is left for is dropped and counted as [`RuntimeDrop::ReplicationLimit`]. A packet's own way through
//! egress and deparser costs none, and its line of descent goes back at most [`PASS_LIMIT`] times. The same on every
//! executor: only packets and programs decide, no clock.
//!
//! Units do not pay for loops, in which each run of an entry may spend `ir::STEPS_MAX` steps. All that a received burst causes may
//! spend so much in them as two runs of each packet (egress, deparser) and one more; batches that are to run behind that are
//! dropped, counted in the same way. What a run is spared (`ir::cost::FREE_STEPS`) is not counted.
//!
//! | file | holds |
//! | --- | --- |
//! | `engine/waves` | what waits, and how it goes through its entries in batches |
//! | `engine/queued` | packets that wait in a queue of their port |
//! | `engine/again` | packets that go back to ingress |
//! | `engine/clones` | batches whose packets ask for clones and for nothing else |
//! | `engine/records` | records of packets on their way |
//! | `engine/lookups` | groups and sessions, as this worker knows them |
//! | `engine/copies` | copies of frames |
//! | `engine/flows` | packets of programs for which a flow processor decides |
//!
//! Single-threaded: one engine per worker. Nothing is allocated once buffers have grown to what bursts need. Tests: `tests/copies.rs`,
//! `tests/waves.rs`, `tests/stf/v1model/limits.stf`, `replication.stf`.
#![allow(unsafe_code)]

mod again;
mod clones;
mod copies;
mod flows;
mod lookups;
mod queued;
mod records;
mod waves;

use crate::drops::{DropReason, RuntimeDrop};
use crate::executor::Executor;
use crate::pipeline::Pipeline;
use crate::replication::{Replica, Replication};
use abi::flows::FrameCache;
use abi::packet::{BATCH_MAX, Batch, FateCode, PacketDesc};
use clones::{Clones, Mirroring};
use copies::Copies;
use ir::{BitSet, EntryKind, Intrinsic, Operand, Program};
use lookups::{Lookups, Targets};
use pktio::{Packet, RawPacket};
use records::{Intrinsics, Record, Records};
use std::sync::Arc;
use waves::{Burst, Descent, Held, Item, Waiting, borrowed, owned};

pub use flows::{KEPT_UNITS, OWN_STEPS, UNIT_STEPS};
pub use queued::{Arrival, Departure, Passage};

/// Units of work that what one received burst asks for may cost. A unit is a quarter of a microsecond with small frames and
/// programs, so other ports wait for a millisecond; and a burst of 64 packets for 64 ports each has enough.
pub const WORK_MAX: u32 = 4096;

/// Bytes of frame and record for which a copy costs one unit more: as many as are copied in the time of one.
pub const UNIT_BYTES: usize = 2048;

/// Most times one packet's line of descent goes back to ingress or is cloned from egress.
pub const PASS_LIMIT: u32 = 64;

/// Where packets are inserted into a batch.
#[derive(Clone, Copy)]
pub struct Inserted<'a> {
    /// Of each the place of a packet in the batch, in order, no two the same.
    pub places: &'a [u8],
    /// Whether it goes before that one; else behind it.
    pub are_before: bool,
}

/// Where packets end.
pub trait Sink {
    /// Takes a packet for a port.
    fn send(&mut self, port: u32, packet: Packet);
    /// Takes a whole batch for one port; `packets` is empty afterwards.
    fn send_all(&mut self, port: u32, packets: &mut Vec<Packet>) {
        packets.drain(..).for_each(|packet| self.send(port, packet));
    }
    /// Takes a batch for one port, and one for another port whose packets are inserted into the first. Both are empty afterwards. Who
    /// looks at each port alone may take one behind the other.
    fn send_merged(&mut self, batch: (u32, &mut Vec<Packet>), other: (u32, &mut Vec<Packet>), inserted: Inserted<'_>) {
        let mut places = inserted.places.iter().peekable();
        let mut others = other.1.drain(..);
        for (place, packet) in batch.1.drain(..).enumerate() {
            let is_there = places.next_if(|at| usize::from(**at) == place).is_some();
            let mut insert = if is_there { others.next() } else { None };
            if let Some(other_packet) = insert.take_if(|_| inserted.are_before) {
                self.send(other.0, other_packet);
            }
            self.send(batch.0, packet);
            if let Some(other_packet) = insert {
                self.send(other.0, other_packet);
            }
        }
    }
    /// Takes a finished packet for a port, of a class of service there.
    fn send_in_class(&mut self, port: u32, _class: u8, packet: Packet) {
        self.send(port, packet);
    }
    /// Takes a packet that is dropped.
    fn drop(&mut self, reason: DropReason, packet: Packet);
    /// Takes a whole batch that is dropped; `packets` is empty afterwards.
    fn drop_all(&mut self, reason: DropReason, packets: &mut Vec<Packet>) {
        packets.drain(..).for_each(|packet| self.drop(reason, packet));
    }
    /// Counts copies that were not made.
    fn lost_copies(&mut self, reason: DropReason, count: u64);
    /// Takes a packet that is to wait in a queue of its port; one that has no queues gives it back.
    fn queue(&mut self, _port: u32, arrival: Arrival<'_>) -> Result<(), Packet> {
        Err(arrival.packet)
    }
}

/// One worker's engine for one program.
pub struct Engine {
    program: Arc<Program>,
    lookups: Lookups,
    copies: Copies,
    records: Records,
    /// Received packets; their descriptors point at the first of `records`.
    batch: Box<Batch>,
    /// What goes on from there.
    further: Box<Batch>,
    /// What waits, and what runs of that.
    next: Waiting,
    wave: Vec<Item>,
    /// Received packets that are through egress and wait for the deparser.
    received: Vec<Item>,
    held: Held,
    /// Buffers of [`waves`]: places of packets of each kind, of those that run together, of those that are then deparsed, and each family's.
    kinds: [Vec<u32>; 3],
    taken: Vec<u32>,
    deparsing: Vec<u32>,
    families: Vec<(usize, usize)>,
    /// Whether packets of a family that is earlier may yet run in the wave.
    is_by_kind: bool,
    /// Whether the program reads how many packets wait; and how many do behind the one that runs, if so.
    shows_depth: bool,
    behind: u64,
    /// How batches are taken on whose packets ask for clones only, and buffers for that.
    mirroring: Mirroring,
    clones: Clones,
    some: Box<Batch>,
    /// The bits of the number of a port that programs can tell.
    port_mask: u32,
    /// Whether packets wait in queues of their ports, those that have some.
    queues: bool,
    /// Whether packets go on from queues now; then by which ports each one's ancestor came.
    is_resuming: bool,
    origins: [u32; BATCH_MAX],
    /// How often each packet of the received batch has gone back to ingress.
    passes: [u8; BATCH_MAX],
    /// At most as many packets as this ask for copies now, one after the other.
    askers: usize,
    /// Units that are left for the burst, without those that are set aside for packets on their way; and these, by family.
    work_left: u32,
    /// Steps that packets on their way may still spend in loops, above what each run is spared.
    steps_left: u64,
    shares: [u32; BATCH_MAX],
    /// The reason for which packets are dropped at the end of ingress, in the program's list.
    ingress_drop: u32,
    /// What decides about packets, if tables of the program do not.
    flows: Option<Box<flows::Flows>>,
    /// The flow cache of a program with tables, the time from which on it is used, and a buffer for the batch that it looks up.
    front: Option<Box<dyn FrameCache>>,
    front_from_us: u64,
    known: Vec<Packet>,
    /// Whether it holds counts back.
    is_unsettled: bool,
}

/// The slots that a program's operations read.
fn slots_read(program: &Program) -> BitSet {
    let mut read = BitSet::new(program.slots.len());
    for block in program.stages.iter().flat_map(|stage| &stage.blocks) {
        block.insts.iter().for_each(|inst| inst.op.for_each_use(program, |slot| read.insert(slot.index())));
        if let Some(slot) = block.term.operand().and_then(Operand::slot) {
            read.insert(slot.index());
        }
    }
    read
}

/// A mask of as many bits as a program's port of egress has.
fn port_mask(program: &Program) -> u32 {
    let width = program.intrinsic(Intrinsic::EgressPort).map_or(u32::BITS, |slot| program.width(slot));
    u32::MAX.checked_shr(u32::BITS.saturating_sub(width)).unwrap_or(0)
}

impl Engine {
    /// An engine for a program.
    pub fn new(program: Arc<Program>, replication: Arc<Replication>) -> Engine {
        let read = slots_read(&program);
        let shows_depth = [Intrinsic::EnqueueDepth, Intrinsic::DequeueDepth]
            .iter()
            .any(|which| program.intrinsic(*which).is_some_and(|slot| read.contains(slot.index())));
        let mut records = Records::new(&program, &read);
        let mut batch = Box::new(Batch::new());
        for (i, desc) in batch.packets.iter_mut().enumerate() {
            let record = records.received(i);
            desc.record = records.pointer(record);
        }
        let ingress_drop = program.drops.iter().position(|d| d == INGRESS_DROP).unwrap_or(0);
        Engine {
            lookups: Lookups::new(&program, replication),
            copies: Copies::default(),
            records,
            batch,
            further: Box::new(Batch::new()),
            next: Waiting::default(),
            wave: Vec::new(),
            received: Vec::new(),
            held: Held::default(),
            kinds: Default::default(),
            taken: Vec::new(),
            deparsing: Vec::new(),
            families: Vec::new(),
            is_by_kind: false,
            shows_depth,
            behind: 0,
            mirroring: Mirroring::new(&program, &read, shows_depth),
            clones: Clones::default(),
            some: Box::new(Batch::new()),
            port_mask: port_mask(&program),
            queues: program.queues,
            is_resuming: false,
            origins: [0; BATCH_MAX],
            passes: [0; BATCH_MAX],
            askers: 0,
            work_left: WORK_MAX,
            steps_left: 0,
            shares: [0; BATCH_MAX],
            ingress_drop: ingress_drop as u32,
            flows: None,
            front: None,
            front_from_us: u64::MAX,
            known: Vec::new(),
            is_unsettled: false,
            program,
        }
    }

    /// A worker's engine for a pipeline, with what decides about its packets or knows them. At most one per worker at a time.
    pub fn of_pipeline(pipeline: &Pipeline, worker: usize) -> Engine {
        let engine = Engine::new(Arc::clone(pipeline.program()), Arc::clone(pipeline.replication()));
        match (pipeline.flows(), pipeline.flow_cache()) {
            (Some(flows), _) => engine.decided_by(flows.processor(worker)),
            (None, Some(cache)) => engine.known_by(cache.front(worker)),
            (None, None) => engine,
        }
    }

    /// The port to the controller, if the program's architecture fixes it.
    #[inline]
    pub fn cpu_port(&self) -> Option<u32> {
        self.program.cpu_port.map(|port| port as u32)
    }

    /// Units that the calls of [`receive`](Engine::receive) from here on may cost together. To be called for each received burst.
    #[inline]
    pub fn set_work(&mut self, units: u32) {
        self.work_left = units;
    }

    /// What is left of them.
    #[inline]
    pub fn work_left(&self) -> u32 {
        self.work_left
    }

    /// Runs packets received on `port` to their ends. At most [`BATCH_MAX`] packets; `packets` is empty afterwards.
    ///
    /// Generic over the sink, so that sending a packet is inlined into the loop; what is rare takes it as `dyn`.
    #[inline]
    pub fn receive<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        port: u32,
        now_us: u64,
        sink: &mut S,
    ) {
        debug_assert!(packets.len() <= BATCH_MAX);
        if packets.is_empty() {
            return;
        }
        self.steps_left = steps_for(packets.len());
        let has_front = self.flows.is_some() || now_us >= self.front_from_us;
        if has_front && self.look_up(exec, packets, Burst { port, now_us }, sink) {
            return;
        }
        self.run_pipeline(exec, packets, port, now_us, sink);
    }

    /// Takes packets through the pipeline.
    #[inline]
    fn run_pipeline<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        port: u32,
        now_us: u64,
        sink: &mut S,
    ) {
        self.batch.count = packets.len() as u32;
        self.batch.now_us = now_us;
        for (packet, desc) in packets.iter().zip(&mut self.batch.packets) {
            describe_received(desc, packet, Burst { port, now_us });
        }
        exec.run(EntryKind::Ingress, &mut self.batch);
        // One pass over the descriptors, without a branch: the common batch leaves as a whole by one port.
        let to = self.batch.packets[0].egress_port;
        let mut differ = 0;
        for (packet, desc) in packets.iter_mut().zip(&self.batch.packets) {
            apply(desc, packet);
            differ |= (desc.fate ^ FateCode::Send as u32) | (desc.egress_port ^ to);
        }
        if differ == 0 {
            return sink.send_all(to, packets);
        }
        self.sort_out(exec, packets, Burst { port, now_us }, sink);
    }

    /// Takes each packet of the batch where its descriptor says.
    fn sort_out<S: Sink>(&mut self, exec: &mut dyn Executor, packets: &mut Vec<Packet>, burst: Burst, sink: &mut S) {
        let seen = self.survey(packets.len());
        if seen.asking != 0 {
            return self.sort_out_requests(exec, packets, seen, burst, sink);
        }
        if self.flows.is_some() {
            return self.decide(exec, packets, burst, sink);
        }
        self.send_or_drop(packets, sink);
    }

    /// What the batch's packets have come to.
    #[inline(always)]
    fn survey(&self, count: usize) -> Survey {
        let port = self.batch.packets[0].egress_port;
        let mut seen = Survey { fates: 0, asking: 0, ports_differ: 0 };
        for desc in &self.batch.packets[..count] {
            let fate = 1u32 << (desc.fate & 31);
            seen.fates |= fate;
            seen.asking += u32::from(fate & REQUESTS != 0);
            seen.ports_differ |= desc.egress_port ^ port;
        }
        seen
    }

    /// Takes packets of the batch where their descriptors say: none asks for anything.
    #[inline(always)]
    fn send_or_drop<S: Sink>(&mut self, packets: &mut Vec<Packet>, sink: &mut S) {
        for (packet, desc) in packets.drain(..).zip(&self.batch.packets) {
            match fate(desc) {
                Ended::Drop(reason) => sink.drop(reason, packet),
                Ended::Send(to) => sink.send(to, packet),
                Ended::Replicate(_) | Ended::Multicast(_) | Ended::Again => unreachable!("it asks for something"),
            }
        }
    }

    /// The same where some ask for something.
    #[inline(never)]
    fn sort_out_requests<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        mut seen: Survey,
        burst: Burst,
        sink: &mut S,
    ) {
        let count = packets.len();
        // A program that reads how many packets wait sees each by itself.
        let goes_again = seen.fates & (1 << FateCode::Again as u32) != 0 && !self.shows_depth;
        if goes_again {
            self.go_again(exec, packets);
            seen = self.survey(count);
        }
        self.lookups.renew();
        if !(seen.fates.is_power_of_two() && self.end_alike(packets, seen, sink)) {
            let asking = seen.asking as usize;
            if self.flows.is_some() {
                self.decide(exec, packets, burst, sink);
            } else if asking == 0 {
                self.send_or_drop(packets, sink);
            } else if !self.mirroring.is_possible || !self.mirror(exec, packets, asking, burst, sink) {
                self.take_on(exec, packets, asking, burst, sink);
            }
        }
        if goes_again {
            self.passes = [0; BATCH_MAX];
        }
    }

    /// Ends a batch whose packets have the same fate and for which no more is to be done than for one of them; whether it is one.
    #[inline(always)]
    fn end_alike<S: Sink>(&mut self, packets: &mut Vec<Packet>, seen: Survey, sink: &mut S) -> bool {
        if seen.ports_differ != 0 {
            return false;
        }
        match fate(&self.batch.packets[0]) {
            Ended::Send(to) => sink.send_all(to, packets),
            Ended::Multicast(group) => match self.lookups.group(group) {
                Some(group @ Targets { count: 1.., .. }) => return self.flood(packets, group, sink),
                _ => sink.drop_all(DropReason::Runtime(RuntimeDrop::NoSuchGroup), packets),
            },
            Ended::Drop(_) | Ended::Replicate(_) | Ended::Again => return false,
        }
        true
    }

    /// Sends all packets of a batch to a group, if there is work for it; whether there is.
    #[inline(always)]
    fn flood<S: Sink>(&mut self, packets: &mut Vec<Packet>, group: Targets, sink: &mut S) -> bool {
        let copies = group.count - 1;
        let longest = packets.iter().map(Packet::len).max().unwrap_or(0);
        let cost = (copies * packets.len()) as u64 * u64::from(units(longest + self.records.bytes()));
        if cost > u64::from(self.work_left) {
            return false;
        }
        let count = packets.len();
        for (i, packet) in packets.drain(..).enumerate() {
            if copies > 0 {
                self.work_left -= copies as u32 * units(packet.len() + self.records.bytes());
                self.copies.prepare(&packet, copies, count - i);
                for k in 0..copies {
                    match self.copies.copy(&packet) {
                        Some(copy) => sink.send(group.replica(k).port & self.port_mask, copy),
                        None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1),
                    }
                }
            }
            sink.send(group.replica(copies).port & self.port_mask, packet);
        }
        self.copies.end();
        true
    }

    /// The same where some packets are handed to the engine: takes these to their ends, as many at a time as make up batches.
    fn take_on<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        mut asking: usize,
        burst: Burst,
        sink: &mut S,
    ) {
        // A packet that could not ask for as many units need not be looked at before its turn.
        let members_max = 2 * self.lookups.members_max() as u32;
        let mut received = std::mem::take(&mut self.received);
        let record_bytes = self.records.bytes();
        let all = packets.len();
        let raws = packets.as_ptr().cast::<RawPacket>();
        // SAFETY: below, each is taken out once, to its end. (A packet is laid out as a `RawPacket`.)
        unsafe { packets.set_len(0) };
        // Those on their way are from here on.
        let mut first = 0;
        let mut share = self.work_left / asking as u32;
        for i in 0..all {
            // SAFETY: there are `all` packets, and nothing else touches them now.
            let raw = unsafe { &*raws.add(i) };
            let desc = &self.batch.packets[i];
            if !asks(desc) {
                match fate(desc) {
                    Ended::Send(to) | Ended::Replicate(to) | Ended::Multicast(to) => {
                        self.send(*raw, to, i as u8, received.is_empty(), sink);
                    }
                    Ended::Drop(reason) => sink.drop(reason, owned(raw)),
                    Ended::Again => unreachable!("it asks for something"),
                }
                continue;
            }
            let (point, goes_again) = (desc.fate_arg, desc.fate == FateCode::Again as u32);
            let group = (desc.fate == FateCode::Multicast as u32).then_some(desc.egress_port);
            let from = Descent::received(self.records.received(i), desc.consumed, self.passes[i], i);
            let each = units(usize::from(raw.len) + record_bytes);
            if members_max.saturating_mul(each) > share
                && i > first
                && !goes_again
                && self.asks_more(from.record, point, group, each, share)
            {
                self.finish(exec, &mut received, first..i, burst, sink);
                first = i;
                share = self.work_left / asking as u32;
            }
            self.shares[i] = share;
            self.work_left -= share;
            (self.askers, asking) = (asking, asking - 1);
            let before = self.next.items.len();
            // Most ask for copies and nothing else.
            if goes_again {
                self.reenter(raw, from, sink);
            } else if let Some(group) = group {
                self.send_to_group(raw, group, i as u8, received.is_empty(), sink);
            } else if point != 0 || !self.only_multicasts(raw, from, burst, sink) {
                self.take_in(raw, from, point, burst, &mut received, sink);
            }
            let waiting = self.next.items.len();
            // The next one may ask for as many.
            if waiting + (waiting - before) > BATCH_MAX || self.shows_depth {
                self.finish(exec, &mut received, first..i + 1, burst, sink);
                first = i + 1;
                share = self.work_left / asking.max(1) as u32;
            }
        }
        self.finish(exec, &mut received, first..all, burst, sink);
        self.received = received;
        self.copies.end();
    }

    /// Takes on a received packet that asks for copies and nothing else; whether it is one.
    #[inline(always)]
    fn only_multicasts<S: Sink>(&mut self, raw: &RawPacket, from: Descent, burst: Burst, sink: &mut S) -> bool {
        let asked = self.records.of(from.record);
        let others = [Intrinsic::CloneFlag, Intrinsic::DropFlag, Intrinsic::ResubmitFlag];
        let group = asked.get(Intrinsic::MulticastGroup) as u32;
        let only = group != 0 && others.iter().all(|other| asked.get(*other) == 0);
        if only {
            self.multicast(raw, from, group, burst, sink);
        }
        only
    }

    /// Takes on any received packet that asks for something.
    #[inline(never)]
    fn take_in<S: Sink>(
        &mut self,
        raw: &RawPacket,
        from: Descent,
        point: u32,
        burst: Burst,
        received: &mut Vec<Item>,
        sink: &mut S,
    ) {
        if self.replicate(raw, from, point, burst, sink) {
            received.push(Item::deparses(raw, from));
        }
    }

    /// Takes these families to their ends, and takes back what units they have left.
    fn finish<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        received: &mut Vec<Item>,
        families: std::ops::Range<usize>,
        burst: Burst,
        sink: &mut S,
    ) {
        self.drain(exec, received, burst, sink);
        for share in &mut self.shares[families] {
            self.work_left += std::mem::take(share);
        }
    }

    /// Sends copies of a frame to the members of a group; the last one takes the frame itself.
    #[inline]
    fn send_to_group<S: Sink>(&mut self, raw: &RawPacket, group: u32, family: u8, may_pass: bool, sink: &mut S) {
        let Some(group @ Targets { count: count @ 1.., .. }) = self.lookups.group(group) else {
            return sink.drop(DropReason::Runtime(RuntimeDrop::NoSuchGroup), owned(raw));
        };
        if count > 1 {
            for i in 0..self.affordable(count - 1, raw, family, sink) {
                let Some(copy) = self.duplicate(raw, sink) else { continue };
                self.send(copy, group.replica(i).port & self.port_mask, family, may_pass, sink);
            }
        }
        self.send(*raw, group.replica(count - 1).port & self.port_mask, family, may_pass, sink);
    }

    /// Whether a received packet, which may be sent to a group, asks for more than so many units at once.
    fn asks_more(&mut self, record: Record, point: u32, group: Option<u32>, each: u32, share: u32) -> bool {
        if let Some(group) = group {
            return self.lookups.group(group).map_or(0, |group| group.count) * each as usize > share as usize;
        }
        let mut copies = 0;
        let asked = self.records.of(record);
        let (clone, group) = (asked.get(Intrinsic::CloneFlag), asked.get(Intrinsic::MulticastGroup) as u32);
        if clone != 0 {
            copies += self.session(record).map_or(0, |session| session.count);
        }
        if point == 0 && group != 0 {
            copies += self.lookups.group(group).map_or(0, |group| group.count);
        }
        copies * each as usize > share as usize
    }

    /// Does what a packet asks for. Whether it is through egress, and still the caller's: it leaves before its clones go through.
    #[inline(always)]
    fn replicate<S: Sink>(&mut self, raw: &RawPacket, from: Descent, point: u32, burst: Burst, sink: &mut S) -> bool {
        match point {
            0 => self.ingress_end(raw, from, burst, sink),
            1 => self.egress_end(raw, from, burst, sink),
            2 => {
                let list = self.records.of(from.record).get(Intrinsic::RecirculateFieldList);
                self.again(raw, from, list, self.program.instance_types.recirculate, burst, sink);
            }
            _ => self.frame_end(raw, from, burst, sink),
        }
        point == 1 || point > 2
    }

    #[inline(always)]
    fn ingress_end<S: Sink>(&mut self, raw: &RawPacket, from: Descent, burst: Burst, sink: &mut S) {
        if self.records.of(from.record).take(Intrinsic::CloneFlag) != 0 {
            match self.session(from.record) {
                None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), 1),
                Some(session) => {
                    let instance_type = self.program.instance_types.ingress_clone;
                    self.clone_frames(raw, from, session, instance_type, burst, sink);
                }
            }
        }
        let asked = self.records.of(from.record);
        if asked.get(Intrinsic::DropFlag) != 0 {
            return sink.drop(DropReason::Program(self.ingress_drop), owned(raw));
        }
        if asked.take(Intrinsic::ResubmitFlag) != 0 {
            let list = asked.get(Intrinsic::ResubmitFieldList);
            return self.again(raw, from, list, self.program.instance_types.resubmit, burst, sink);
        }
        let group = asked.get(Intrinsic::MulticastGroup) as u32;
        if group != 0 {
            return self.multicast(raw, from, group, burst, sink);
        }
        let to = asked.get(Intrinsic::EgressSpec);
        if self.program.drop_port == Some(to) {
            return sink.drop(DropReason::Program(self.ingress_drop), owned(raw));
        }
        asked.set(Intrinsic::InstanceType, self.program.instance_types.normal);
        let from = Descent { entry: EntryKind::Egress, ..from };
        self.pass_to_egress(raw, from, Replica { port: to as u32, instance: 0 }, burst, sink);
    }

    /// Copies for the members of a group; the last one takes the packet itself.
    #[inline(always)]
    fn multicast<S: Sink>(&mut self, raw: &RawPacket, from: Descent, group: u32, burst: Burst, sink: &mut S) {
        let Some(group @ Targets { count: count @ 1.., .. }) = self.lookups.group(group) else {
            return sink.drop(DropReason::Runtime(RuntimeDrop::NoSuchGroup), owned(raw));
        };
        let from = Descent { entry: EntryKind::Egress, ..from };
        let asked = self.records.of(from.record);
        asked.set(Intrinsic::InstanceType, self.program.instance_types.replication);
        // A request to recirculate is the packet's own; its copies do not have it.
        asked.clear(Intrinsic::RecirculateFlag);
        if count > 1 {
            for i in 0..self.affordable(count - 1, raw, from.family, sink) {
                let Some(copy) = self.duplicate(raw, sink) else { continue };
                let record = self.records.copy(from.record);
                self.pass_to_egress(&copy, Descent { record, truncate: 0, ..from }, group.replica(i), burst, sink);
            }
        }
        self.pass_to_egress(raw, from, group.replica(count - 1), burst, sink);
    }

    #[inline(never)]
    fn egress_end<S: Sink>(&mut self, raw: &RawPacket, from: Descent, burst: Burst, sink: &mut S) {
        let Some(session) = self.asked_clones(from, sink) else { return };
        let asked = self.records.of(from.record);
        let (list, length) = (asked.get(Intrinsic::CloneFieldList), asked.get(Intrinsic::PacketLength) as usize);
        let from = Descent { entry: EntryKind::Egress, truncate: session.length, passes: from.passes + 1, ..from };
        let origin = self.origin(burst, from.family);
        for i in 0..self.affordable(session.count, raw, from.family, sink) {
            let Some(copy) = self.duplicate(raw, sink) else { continue };
            let record = self.records.preserved(from.record, list);
            self.records.copy_headers(from.record, record);
            let to = self.records.of(record);
            to.set(Intrinsic::InstanceType, self.program.instance_types.egress_clone);
            to.set(Intrinsic::ClassOfService, session.class_of_service.into());
            ingress_intrinsics(to, length, origin, burst);
            self.pass_to_egress(&copy, Descent { record, ..from }, session.replica(i), burst, sink);
        }
    }

    #[inline(never)]
    fn frame_end<S: Sink>(&mut self, raw: &RawPacket, from: Descent, burst: Burst, sink: &mut S) {
        if let Some(session) = self.asked_clones(from, sink) {
            let instance_type = self.program.instance_types.egress_clone;
            let from = Descent { passes: from.passes + 1, ..from };
            self.clone_frames(raw, from, session, instance_type, burst, sink);
        }
    }

    /// Where the clones go that a packet asks for at the end of egress; it asks no more. `None` if there are none or may be none, which
    /// is counted.
    fn asked_clones<S: Sink>(&mut self, from: Descent, sink: &mut S) -> Option<Targets> {
        if self.records.of(from.record).take(Intrinsic::CloneFlag) == 0 {
            return None;
        }
        let Some(session) = self.session(from.record) else {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), 1);
            return None;
        };
        if u32::from(from.passes) >= PASS_LIMIT {
            let copies = session.count as u64;
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), copies);
            return None;
        }
        Some(session)
    }

    /// Where the clones of a packet go: to a session's ports, or to the one that the program names.
    fn session(&mut self, record: Record) -> Option<Targets> {
        if self.mirroring.names_session == Intrinsic::ClonePort {
            return Some(self.lookups.port(self.records.of(record).get(Intrinsic::ClonePort) as u32));
        }
        self.lookups.session(self.records.of(record).get(Intrinsic::CloneSession) as u32)
    }

    /// Copies of the frame as it is, which are parsed anew and go through egress.
    #[inline(never)]
    fn clone_frames<S: Sink>(
        &mut self,
        raw: &RawPacket,
        from: Descent,
        session: Targets,
        instance_type: u64,
        burst: Burst,
        sink: &mut S,
    ) {
        let list = self.records.of(from.record).get(Intrinsic::CloneFieldList);
        let Targets { class_of_service, length, .. } = session;
        let whole = usize::from(raw.len);
        let (cut, truncate) = match length {
            0 => (whole, 0),
            bytes if self.program.cuts_clones_first => (whole.min(bytes as usize), 0),
            bytes => (whole, bytes),
        };
        let from = Descent { entry: EntryKind::CloneIngress, consumed: 0, truncate, ..from };
        let origin = self.origin(burst, from.family);
        for i in 0..self.affordable(session.count, raw, from.family, sink) {
            let Some(mut copy) = self.duplicate(raw, sink) else { continue };
            let record = self.records.preserved(from.record, list);
            let to = self.records.of(record);
            to.set(Intrinsic::InstanceType, instance_type);
            to.set(Intrinsic::ClassOfService, class_of_service.into());
            ingress_intrinsics(to, cut, origin, burst);
            if cut < whole {
                // What is cut is no large frame any more.
                copy = copy.with_window(copy.offset, cut as u16).with_segment(0);
            }
            self.pass_to_egress(&copy, Descent { record, ..from }, session.replica(i), burst, sink);
        }
    }

    /// As many of so many copies as there are units for, which are taken; the others are counted as lost. Takes their buffers.
    #[inline]
    fn affordable<S: Sink>(&mut self, copies: usize, raw: &RawPacket, family: u8, sink: &mut S) -> usize {
        let each = units(usize::from(raw.len) + self.records.bytes());
        let share = &mut self.shares[usize::from(family)];
        let cost = copies * each as usize;
        let mut count = copies;
        if cost <= *share as usize {
            *share -= cost as u32;
        } else {
            count = (*share / each) as usize;
            *share -= count as u32 * each;
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), (copies - count) as u64);
        }
        if count > 0 {
            self.copies.prepare(&borrowed(raw), count, self.askers);
        }
        count
    }

    #[inline(always)]
    fn duplicate<S: Sink>(&mut self, raw: &RawPacket, sink: &mut S) -> Option<RawPacket> {
        let Some(copy) = self.copies.copy(&borrowed(raw)) else {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1);
            return None;
        };
        Some(copy.into_raw())
    }
}

#[inline(always)]
fn ingress_intrinsics(to: Intrinsics, length: usize, port: u32, burst: Burst) {
    to.set(Intrinsic::IngressPort, u64::from(port));
    to.set(Intrinsic::IngressTimestamp, burst.now_us);
    to.set(Intrinsic::PacketLength, length as u64);
}

#[inline(always)]
fn egress_intrinsics(to: Intrinsics, replica: Replica, now_us: u64) {
    to.set(Intrinsic::EgressPort, u64::from(replica.port));
    to.set(Intrinsic::EgressRid, u64::from(replica.instance));
    to.set(Intrinsic::EgressTimestamp, now_us);
    to.set(Intrinsic::EnqueueTimestamp, now_us);
}

/// The name of the program's counter for packets whose egress port says drop; architectures with a drop port have it.
pub const INGRESS_DROP: &str = "ingress drop";

/// Steps that all that so many received packets cause may spend in loops.
fn steps_for(packets: usize) -> u64 {
    (2 * packets as u64 + 1) * ir::STEPS_MAX
}

/// Runs a further pass of a burst and charges its loops to the burst. Its packets are dropped once nothing is left to spend.
#[inline(always)]
fn run_within(steps_left: &mut u64, exec: &mut dyn Executor, entry: EntryKind, batch: &mut Batch) {
    if *steps_left == 0 {
        let all = &mut batch.packets[..batch.count as usize];
        return all.iter_mut().for_each(|desc| desc.fate = FateCode::OverLimit as u32);
    }
    batch.spent = 0;
    exec.run(entry, batch);
    *steps_left = steps_left.saturating_sub(batch.spent.into());
}

/// What a copy or pass costs for which so many bytes are copied.
fn units(bytes: usize) -> u32 {
    1 + (bytes / UNIT_BYTES) as u32
}

/// Describes a received packet: only what compiled code reads. It writes the rest itself, and the records are where they were put.
#[inline(always)]
fn describe_received(desc: &mut PacketDesc, packet: &Packet, burst: Burst) {
    desc.data = packet.data_mut_ptr();
    desc.len = packet.len() as u32;
    desc.headroom = packet.headroom() as u32;
    desc.tailroom = packet.tailroom() as u32;
    desc.ingress_port = burst.port;
    desc.consumed = 0;
    desc.timestamp_us = burst.now_us;
}

/// What packets of a batch have come to.
#[derive(Clone, Copy)]
struct Survey {
    /// A bit for each [`FateCode`].
    fates: u32,
    /// How many are for the engine.
    asking: u32,
    /// Not 0 if the descriptors name more than one port or group.
    ports_differ: u32,
}

/// The fates of packets that are for the engine.
const REQUESTS: u32 = 1 << FateCode::Replicate as u32 | 1 << FateCode::Multicast as u32 | 1 << FateCode::Again as u32;

enum Ended {
    Send(u32),
    Drop(DropReason),
    Replicate(u32),
    Multicast(u32),
    Again,
}

/// Whether a packet is for the replication engine.
#[inline(always)]
fn asks(desc: &PacketDesc) -> bool {
    FateCode::is_request(desc.fate)
}

#[inline]
fn fate(desc: &PacketDesc) -> Ended {
    if desc.fate == FateCode::Send as u32 {
        Ended::Send(desc.egress_port)
    } else if desc.fate == FateCode::Replicate as u32 {
        Ended::Replicate(desc.fate_arg)
    } else if desc.fate == FateCode::Multicast as u32 {
        Ended::Multicast(desc.egress_port)
    } else if desc.fate == FateCode::Again as u32 {
        Ended::Again
    } else if desc.fate == FateCode::OverLimit as u32 {
        Ended::Drop(DropReason::Runtime(RuntimeDrop::ReplicationLimit))
    } else if desc.fate == FateCode::NoRoom as u32 {
        Ended::Drop(DropReason::Runtime(RuntimeDrop::NoRoom))
    } else if desc.fate == FateCode::Endless as u32 {
        Ended::Drop(DropReason::Runtime(RuntimeDrop::Endless))
    } else {
        debug_assert_eq!(desc.fate, FateCode::Drop as u32);
        Ended::Drop(DropReason::Program(desc.fate_arg))
    }
}

/// Takes over what the executor did to the frame's place in its buffer.
#[inline]
fn apply(desc: &PacketDesc, packet: &mut Packet) {
    debug_assert!((desc.headroom + desc.len) as usize <= packet.capacity());
    // SAFETY: executors keep `headroom + len + tailroom` at the buffer's capacity (contract of `PacketDesc`).
    unsafe { packet.adjust_unchecked(desc.headroom as u16, desc.len as u16) }
}

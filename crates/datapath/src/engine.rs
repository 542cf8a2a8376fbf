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
//! The order and what metadata survives follow bmv2's simple_switch (docs/simple_switch.md of behavioral-model):
//! clones, resubmitted and recirculated packets start with zero metadata but for the preserved field list, the ingress
//! port and the instance type; multicast copies keep all metadata.
//!
//! What goes on from there goes in batches ([`waves`]). On each port packets leave in the order of the received ones, and those
//! that descend from the same one first in, first out.
//!
//! What waits here is the switch's only queue between ingress and egress, so it is what `EnqueueDepth` and `DequeueDepth`
//! count: packets with the same received ancestor that wait when one comes, and when it goes on. Packets of the common path never wait.
//!
//! **Bound:** copies and further passes cost *units* of work: one each, and one more for every [`UNIT_BYTES`] of frame and record that
//! are copied. All that a received burst causes may cost [`WORK_MAX`] units, also behind links. The packets of the burst that
//! ask for copies share the remaining units equally; units that one leaves unused go to those after it, as soon as it is
//! through: a packet whose first request is larger than its share waits for that. Units are asked for before anything is copied, and a
//! copy that fails has cost what one that succeeds costs. What there is no unit for is dropped and
//! counted as [`RuntimeDrop::ReplicationLimit`]; a packet's own way through egress and deparser costs none, and its line of
//! descent goes back at most [`PASS_LIMIT`] times. The same on every executor: only packets and programs are looked at, no clock.
//!
//! | file | holds |
//! | --- | --- |
//! | `engine/waves` | what waits, and how it goes through its entries in batches |
//! | `engine/records` | records of packets on their way |
//! | `engine/lookups` | groups and sessions, as this worker knows them |
//! | `engine/copies` | copies of frames |
//!
//! Single-threaded: one engine per worker. Nothing is allocated once buffers have grown to what bursts need. Tests: `tests/copies.rs`,
//! `tests/waves.rs`, `tests/stf/v1model/limits.stf`, `replication.stf`.
#![allow(unsafe_code)]

mod copies;
mod lookups;
mod records;
mod waves;

use crate::drops::{DropReason, RuntimeDrop};
use crate::executor::Executor;
use crate::replication::{Replica, Replication};
use abi::packet::{BATCH_MAX, Batch, FateCode, PacketDesc};
use copies::Copies;
use ir::{EntryKind, Intrinsic, Operand, Program};
use lookups::{Lookups, Targets};
use pktio::Packet;
use records::{Record, Records};
use std::sync::Arc;
use waves::{Burst, Held, Item, Waiting};

/// Units of work that what one received burst asks for may cost. A unit is a quarter of a microsecond with small frames and
/// programs, so other ports wait for a millisecond; and a burst of 64 packets for 64 ports each has enough.
pub const WORK_MAX: u32 = 4096;

/// Bytes of frame and record for which a copy costs one unit more: as many as are copied in the time of one.
pub const UNIT_BYTES: usize = 2048;

/// Most times one packet's line of descent goes back to ingress or is cloned from egress.
pub const PASS_LIMIT: u32 = 64;

/// Where packets end.
pub trait Sink {
    /// Takes a packet for a port.
    fn send(&mut self, port: u32, packet: Packet);
    /// Takes a whole batch for one port; `packets` is empty afterwards.
    fn send_all(&mut self, port: u32, packets: &mut Vec<Packet>) {
        packets.drain(..).for_each(|packet| self.send(port, packet));
    }
    /// Takes a packet that is dropped.
    fn drop(&mut self, reason: DropReason, packet: Packet);
    /// Counts copies that were not made.
    fn lost_copies(&mut self, reason: DropReason, count: u64);
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
    /// Received packets that are through egress and asked for something there.
    received: Vec<Item>,
    held: Held,
    /// Buffers of [`waves`]: places of packets that run together, of those that are then deparsed, and each family's.
    taken: Vec<u32>,
    deparsing: Vec<u32>,
    families: Vec<(usize, usize)>,
    /// Whether packets of a family that is earlier may yet run in the wave.
    is_by_kind: bool,
    /// Whether the program reads how many packets wait; and how many do behind the one that runs, if so.
    shows_depth: bool,
    behind: u64,
    /// At most as many packets as this ask for copies now, one after the other.
    askers: usize,
    /// Units that are left for the burst, without those that are set aside for packets on their way; and these, by family.
    work_left: u32,
    shares: [u32; BATCH_MAX],
    ingress_drop: DropReason,
}

/// Whether a program reads how many packets wait.
fn reads_depth(program: &Program) -> bool {
    let depths = [Intrinsic::EnqueueDepth, Intrinsic::DequeueDepth].map(|which| program.intrinsic(which));
    let mut reads = false;
    for block in program.stages.iter().flat_map(|stage| &stage.blocks) {
        block.insts.iter().for_each(|inst| inst.op.for_each_use(program, |slot| reads |= depths.contains(&Some(slot))));
        reads |= block.term.operand().and_then(Operand::slot).is_some_and(|slot| depths.contains(&Some(slot)));
    }
    reads
}

impl Engine {
    /// An engine for a program.
    pub fn new(program: Arc<Program>, replication: Arc<Replication>) -> Engine {
        let mut records = Records::new(&program);
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
            taken: Vec::new(),
            deparsing: Vec::new(),
            families: Vec::new(),
            is_by_kind: false,
            shows_depth: reads_depth(&program),
            behind: 0,
            askers: 0,
            work_left: WORK_MAX,
            shares: [0; BATCH_MAX],
            ingress_drop: DropReason::Program(ingress_drop as u32),
            program,
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
        self.batch.count = packets.len() as u32;
        self.batch.now_us = now_us;
        // Only what compiled code reads: it writes the rest itself, and the records are where they were put.
        for (packet, desc) in packets.iter().zip(&mut self.batch.packets) {
            desc.data = packet.data_mut_ptr();
            desc.len = packet.len() as u32;
            desc.headroom = packet.headroom() as u32;
            desc.tailroom = packet.tailroom() as u32;
            desc.ingress_port = port;
            desc.consumed = 0;
            desc.timestamp_us = now_us;
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
        self.sort_out(exec, packets, port, now_us, sink);
    }

    /// Takes each packet of the batch where its descriptor says.
    fn sort_out<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        port: u32,
        now_us: u64,
        sink: &mut S,
    ) {
        let asks = |desc: &&PacketDesc| desc.fate == FateCode::Replicate as u32;
        let asking = self.batch.packets[..packets.len()].iter().filter(asks).count();
        if asking != 0 {
            return self.take_on(exec, packets, asking, Burst { port, now_us }, sink);
        }
        for (packet, desc) in packets.drain(..).zip(&self.batch.packets) {
            match fate(desc) {
                Ended::Drop(reason) => sink.drop(reason, packet),
                Ended::Send(to) | Ended::Replicate(to) => sink.send(to, packet),
            }
        }
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
        self.lookups.renew();
        let mut received = std::mem::take(&mut self.received);
        // Those on their way are from here on.
        let mut first = 0;
        for (i, packet) in packets.drain(..).enumerate() {
            let desc = &self.batch.packets[i];
            let point = match fate(desc) {
                Ended::Send(to) => {
                    self.send(packet, to, i as u8, received.is_empty(), sink);
                    continue;
                }
                Ended::Drop(reason) => {
                    sink.drop(reason, packet);
                    continue;
                }
                Ended::Replicate(point) => point,
            };
            let mut item = Item::received(packet, self.records.received(i), i as u8, desc.consumed);
            let mut share = self.work_left / asking as u32;
            if i > first && self.may_ask_more(&item, point, share) {
                self.finish(exec, &mut received, first..i, burst, sink);
                first = i;
                share = self.work_left / asking as u32;
            }
            self.shares[i] = share;
            self.work_left -= share;
            (self.askers, asking) = (asking, asking - 1);
            let before = self.next.items.len();
            self.replicate(&mut item, point, i as u64, burst, sink);
            let waiting = self.next.items.len();
            if item.packet.is_some() {
                received.push(item);
            }
            // The next one may ask for as many.
            if waiting + (waiting - before) > BATCH_MAX || self.shows_depth {
                self.finish(exec, &mut received, first..i + 1, burst, sink);
                first = i + 1;
            }
        }
        self.finish(exec, &mut received, first..BATCH_MAX, burst, sink);
        self.received = received;
        self.copies.end();
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

    /// Whether a received packet asks for more than so many units at once.
    fn may_ask_more(&mut self, item: &Item, point: u32, share: u32) -> bool {
        let each = units(item.packet().len() + self.records.bytes());
        // Most of the time nobody can.
        if 2 * self.lookups.members_max() * each as usize <= share as usize {
            return false;
        }
        let mut copies = 0;
        if self.records.get(item.record, Intrinsic::CloneFlag) != 0 {
            copies += self.session(item.record).map_or(0, |session| self.lookups.count(session));
        }
        let group = self.records.get(item.record, Intrinsic::MulticastGroup) as u32;
        if point == 0 && group != 0 {
            copies += self.lookups.group(group).map_or(0, |group| self.lookups.count(group));
        }
        copies * each as usize > share as usize
    }

    /// Does what a packet asks for, which is the one at this place. What it leaves of the packet waits for the deparser.
    fn replicate<S: Sink>(&mut self, item: &mut Item, point: u32, place: u64, burst: Burst, sink: &mut S) {
        match point {
            0 => self.ingress_end(item, place, burst, sink),
            1 => self.egress_end(item, place, burst, sink),
            2 => self.deparse_end(item, place, burst, sink),
            _ => self.frame_end(item, place, burst, sink),
        }
    }

    #[inline]
    fn ingress_end<S: Sink>(&mut self, item: &mut Item, place: u64, burst: Burst, sink: &mut S) {
        let record = item.record;
        if self.records.take(record, Intrinsic::CloneFlag) != 0 {
            match self.session(record) {
                None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), 1),
                Some(session) => {
                    let instance_type = self.program.instance_types.ingress_clone;
                    self.clone_frames(item, place, session, instance_type, item.passes, burst, sink);
                }
            }
        }
        if self.records.get(record, Intrinsic::DropFlag) != 0 {
            return sink.drop(self.ingress_drop, item.take());
        }
        if self.records.take(record, Intrinsic::ResubmitFlag) != 0 {
            let list = self.records.get(record, Intrinsic::ResubmitFieldList);
            return self.again(item, place, list, self.program.instance_types.resubmit, burst, sink);
        }
        let group = self.records.get(record, Intrinsic::MulticastGroup) as u32;
        if group != 0 {
            return self.multicast(item, place, group, burst, sink);
        }
        let to = self.records.get(record, Intrinsic::EgressSpec);
        if self.program.drop_port == Some(to) {
            return sink.drop(self.ingress_drop, item.take());
        }
        self.records.set(record, Intrinsic::InstanceType, self.program.instance_types.normal);
        self.egress_intrinsics(record, Replica { port: to as u32, instance: 0 }, burst);
        let on = item.itself(EntryKind::Egress);
        self.enqueue(on, place);
    }

    /// Copies for the members of a group; the last one takes the packet itself.
    #[inline]
    fn multicast<S: Sink>(&mut self, item: &mut Item, place: u64, group: u32, burst: Burst, sink: &mut S) {
        let record = item.record;
        let group = self.lookups.group(group).map(|group| (group, self.lookups.count(group)));
        let Some((group, count @ 1..)) = group else {
            return sink.drop(DropReason::Runtime(RuntimeDrop::NoSuchGroup), item.take());
        };
        self.records.set(record, Intrinsic::InstanceType, self.program.instance_types.replication);
        // A request to recirculate is the packet's own; its copies do not have it.
        self.records.set(record, Intrinsic::RecirculateFlag, 0);
        for i in 0..self.affordable(count - 1, item, sink) {
            let Some(packet) = self.duplicate(item, sink) else { continue };
            let copy = self.records.copy(record);
            self.egress_intrinsics(copy, self.lookups.replica(group, i), burst);
            self.enqueue(item.child(packet, copy, EntryKind::Egress), place);
        }
        self.egress_intrinsics(record, self.lookups.replica(group, count - 1), burst);
        let last = item.itself(EntryKind::Egress);
        self.enqueue(last, place);
    }

    fn egress_end<S: Sink>(&mut self, item: &mut Item, place: u64, burst: Burst, sink: &mut S) {
        let record = item.record;
        if let Some(session) = self.asked_clones(item, sink) {
            let list = self.records.get(record, Intrinsic::CloneFieldList);
            let (_, truncate) = self.lookups.class_and_length(session);
            for i in 0..self.affordable(self.lookups.count(session), item, sink) {
                let Some(packet) = self.duplicate(item, sink) else { continue };
                let copy = self.records.preserved(record, list);
                self.records.copy_headers(record, copy);
                self.records.set(copy, Intrinsic::InstanceType, self.program.instance_types.egress_clone);
                let length = self.records.get(record, Intrinsic::PacketLength) as usize;
                self.ingress_intrinsics(copy, length, burst);
                self.egress_intrinsics(copy, self.lookups.replica(session, i), burst);
                let child = item.child(packet, copy, EntryKind::Egress);
                self.enqueue(Item { passes: item.passes + 1, truncate, ..child }, place);
            }
        }
        // It is through egress: it leaves before its clones go through.
        item.entry = EntryKind::Deparse;
    }

    /// Where the clones go that a packet asks for at the end of egress; it asks no more. `None` if there are none or may be none, which is counted.
    fn asked_clones<S: Sink>(&mut self, item: &Item, sink: &mut S) -> Option<Targets> {
        if self.records.take(item.record, Intrinsic::CloneFlag) == 0 {
            return None;
        }
        let Some(session) = self.session(item.record) else {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), 1);
            return None;
        };
        if item.passes >= PASS_LIMIT {
            let copies = self.lookups.count(session) as u64;
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), copies);
            return None;
        }
        Some(session)
    }

    /// Where the clones of a packet go: to a session's ports, or to the one that the program names.
    fn session(&mut self, record: Record) -> Option<Targets> {
        if self.program.intrinsic(Intrinsic::ClonePort).is_some() {
            return Some(Targets::Port(self.records.get(record, Intrinsic::ClonePort) as u32));
        }
        self.lookups.session(self.records.get(record, Intrinsic::CloneSession) as u32)
    }

    fn deparse_end<S: Sink>(&mut self, item: &mut Item, place: u64, burst: Burst, sink: &mut S) {
        let list = self.records.get(item.record, Intrinsic::RecirculateFieldList);
        self.again(item, place, list, self.program.instance_types.recirculate, burst, sink);
    }

    fn frame_end<S: Sink>(&mut self, item: &mut Item, place: u64, burst: Burst, sink: &mut S) {
        if let Some(session) = self.asked_clones(item, sink) {
            let instance_type = self.program.instance_types.egress_clone;
            self.clone_frames(item, place, session, instance_type, item.passes + 1, burst, sink);
        }
        // It is through egress: it leaves before its clones go through.
        item.entry = EntryKind::Deparse;
    }

    /// Copies of the frame as it is, which are parsed anew and go through egress.
    #[allow(clippy::too_many_arguments)]
    fn clone_frames<S: Sink>(
        &mut self,
        item: &Item,
        place: u64,
        session: Targets,
        instance_type: u64,
        passes: u32,
        burst: Burst,
        sink: &mut S,
    ) {
        let list = self.records.get(item.record, Intrinsic::CloneFieldList);
        let (class_of_service, length) = self.lookups.class_and_length(session);
        let whole = item.packet().len();
        let cuts_first = self.program.cuts_clones_first;
        let (cut, truncate) = match length {
            0 => (whole, 0),
            bytes if cuts_first => (whole.min(bytes as usize), 0),
            bytes => (whole, bytes),
        };
        for i in 0..self.affordable(self.lookups.count(session), item, sink) {
            let Some(mut packet) = self.duplicate(item, sink) else { continue };
            let copy = self.records.preserved(item.record, list);
            self.records.set(copy, Intrinsic::InstanceType, instance_type);
            self.records.set(copy, Intrinsic::ClassOfService, class_of_service.into());
            self.ingress_intrinsics(copy, cut, burst);
            self.egress_intrinsics(copy, self.lookups.replica(session, i), burst);
            packet.truncate(cut);
            let child = item.child(packet, copy, EntryKind::CloneIngress);
            self.enqueue(Item { passes, consumed: 0, truncate, ..child }, place);
        }
    }

    /// Sends the packet itself back to ingress.
    fn again<S: Sink>(
        &mut self,
        item: &mut Item,
        place: u64,
        list: u64,
        instance_type: u64,
        burst: Burst,
        sink: &mut S,
    ) {
        // The packet itself goes on; only its record is made anew.
        let units = units(self.records.bytes());
        let share = &mut self.shares[usize::from(item.family)];
        if item.passes >= PASS_LIMIT || *share < units {
            return sink.drop(DropReason::Runtime(RuntimeDrop::ReplicationLimit), item.take());
        }
        *share -= units;
        let (record, length) = (item.record, item.packet().len());
        self.records.preserve(record, list);
        self.records.set(record, Intrinsic::InstanceType, instance_type);
        self.ingress_intrinsics(record, length, burst);
        let on = item.itself(EntryKind::Reingress);
        self.enqueue(Item { consumed: 0, passes: item.passes + 1, ..on }, place);
    }

    /// As many of so many copies as there are units for, which are taken; the others are counted as lost. Takes their buffers.
    #[inline]
    fn affordable<S: Sink>(&mut self, copies: usize, item: &Item, sink: &mut S) -> usize {
        let each = units(item.packet().len() + self.records.bytes());
        let share = &mut self.shares[usize::from(item.family)];
        let count = copies.min((*share / each) as usize);
        *share -= count as u32 * each;
        if count < copies {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), (copies - count) as u64);
        }
        if count > 0 {
            self.copies.prepare(item.packet(), count, self.askers);
        }
        count
    }

    #[inline]
    fn duplicate<S: Sink>(&mut self, item: &Item, sink: &mut S) -> Option<Packet> {
        let packet = self.copies.copy(item.packet());
        if packet.is_none() {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1);
        }
        packet
    }

    fn ingress_intrinsics(&mut self, record: Record, length: usize, burst: Burst) {
        self.records.set(record, Intrinsic::IngressPort, u64::from(burst.port));
        self.records.set(record, Intrinsic::IngressTimestamp, burst.now_us);
        self.records.set(record, Intrinsic::PacketLength, length as u64);
    }

    #[inline]
    fn egress_intrinsics(&mut self, record: Record, replica: Replica, burst: Burst) {
        self.records.set(record, Intrinsic::EgressPort, u64::from(replica.port));
        self.records.set(record, Intrinsic::EgressRid, u64::from(replica.instance));
        self.records.set(record, Intrinsic::EgressTimestamp, burst.now_us);
        self.records.set(record, Intrinsic::EnqueueTimestamp, burst.now_us);
    }
}

/// The name of the program's counter for packets whose egress port says drop; architectures with a drop port have it.
pub const INGRESS_DROP: &str = "ingress drop";

/// What a copy or pass costs for which so many bytes are copied.
fn units(bytes: usize) -> u32 {
    1 + (bytes / UNIT_BYTES) as u32
}

enum Ended {
    Send(u32),
    Drop(DropReason),
    Replicate(u32),
}

#[inline]
fn fate(desc: &PacketDesc) -> Ended {
    if desc.fate == FateCode::Send as u32 {
        Ended::Send(desc.egress_port)
    } else if desc.fate == FateCode::Replicate as u32 {
        Ended::Replicate(desc.fate_arg)
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

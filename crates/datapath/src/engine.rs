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
//! What waits here is the switch's only queue between ingress and egress, so it is what `EnqueueDepth` and `DequeueDepth`
//! count: packets of this worker that wait when one comes, and when it goes on. Packets of the common path never wait.
//!
//! **Bound:** copies and further passes cost *units* of work: one each, and one more for every [`UNIT_BYTES`] of frame and record that
//! are copied. All that a received burst causes may cost [`WORK_MAX`] units, also behind links. The packets of the burst that
//! ask for copies share the remaining units equally; units that one leaves unused go to those after it. Units are asked for before
//! anything is copied, and a copy that fails has cost what one that succeeds costs. What there is no unit for is dropped and
//! counted as [`RuntimeDrop::ReplicationLimit`]; a packet's own way through egress and deparser costs none, and its line of
//! descent goes back at most [`PASS_LIMIT`] times. The same on every executor: only packets and programs are looked at, no clock.
//!
//! Single-threaded: one engine per worker. Tests: `tests/copies.rs`, `tests/stf/v1model/limits.stf`.
#![allow(unsafe_code)]

use crate::drops::{DropReason, RuntimeDrop};
use crate::executor::Executor;
use crate::replication::{CloneSession, Replica, Replication};
use abi::packet::{BATCH_MAX, Batch, FateCode, PacketDesc};
use base::ids::SlotId;
use ir::layout::RecordLayout;
use ir::{EntryKind, Intrinsic, Program, SlotKind};
use pktio::Packet;
use std::collections::VecDeque;
use std::sync::Arc;

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

/// A packet that waits for an entry.
struct Item {
    packet: Packet,
    record: Box<[u64]>,
    entry: EntryKind,
    consumed: u32,
    ingress_port: u32,
    timestamp_us: u64,
    passes: u32,
    /// The frame is cut to this many bytes when it is sent; 0 for never (clone sessions, unless the program has them cut first).
    truncate: u32,
}

impl Item {
    /// A descendant of the same received packet.
    fn child(&self, packet: Packet, record: Box<[u64]>, entry: EntryKind) -> Item {
        Item {
            packet,
            record,
            entry,
            consumed: self.consumed,
            ingress_port: self.ingress_port,
            timestamp_us: self.timestamp_us,
            passes: self.passes,
            truncate: 0,
        }
    }

    /// Whether it waits for egress; what goes back to ingress or on to the deparser is in no egress queue.
    fn is_queued(&self) -> bool {
        matches!(self.entry, EntryKind::Egress | EntryKind::CloneIngress)
    }
}

/// One worker's engine for one program.
pub struct Engine {
    program: Arc<Program>,
    layout: RecordLayout,
    replication: Arc<Replication>,
    batch: Box<Batch>,
    /// The batch of one for what waits.
    single: Box<Batch>,
    /// Records of the packets of a batch, `layout.words()` each; the descriptors of `batch` point at them.
    records: Vec<u64>,
    waiting: VecDeque<Item>,
    /// The clone session that is there as long as the control plane has made none of its number.
    default_session: Option<(u32, Arc<CloneSession>)>,
    /// Units that are left for the burst, and of these for the packet that is being replicated.
    work_left: u32,
    share: u32,
}

impl Engine {
    /// An engine for a program.
    pub fn new(program: Arc<Program>, replication: Arc<Replication>) -> Engine {
        let layout = RecordLayout::new(&program);
        let words = layout.words().max(1);
        let mut records = vec![0; words * BATCH_MAX];
        let mut batch = Box::new(Batch::new());
        for (desc, record) in batch.packets.iter_mut().zip(records.chunks_exact_mut(words)) {
            desc.record = record.as_mut_ptr();
        }
        let default_session = program.cpu_session.zip(program.cpu_port).map(|(session, port)| {
            let replicas = vec![Replica { port: port as u32, instance: 0 }];
            (session as u32, Arc::new(CloneSession { replicas, ..CloneSession::default() }))
        });
        Engine {
            records,
            layout,
            default_session,
            program,
            replication,
            batch,
            single: Box::new(Batch::new()),
            waiting: VecDeque::new(),
            work_left: WORK_MAX,
            share: 0,
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
        let words = self.layout.words().max(1);
        let asks = |desc: &&PacketDesc| desc.fate == FateCode::Replicate as u32;
        let mut asking = self.batch.packets[..packets.len()].iter().filter(asks).count() as u32;
        for (i, packet) in packets.drain(..).enumerate() {
            let desc = &self.batch.packets[i];
            match fate(desc) {
                Ended::Send(to) => sink.send(to, packet),
                Ended::Drop(reason) => sink.drop(reason, packet),
                Ended::Replicate(point) => {
                    let consumed = desc.consumed;
                    let share = self.work_left / asking;
                    (self.share, asking) = (share, asking - 1);
                    let record: Box<[u64]> = self.records[i * words..(i + 1) * words].into();
                    let item = Item {
                        packet,
                        record,
                        entry: EntryKind::Ingress,
                        consumed,
                        ingress_port: port,
                        timestamp_us: now_us,
                        passes: 0,
                        truncate: 0,
                    };
                    self.replicate(item, point, now_us, sink);
                    self.drain(exec, now_us, sink);
                    self.work_left -= share - self.share;
                }
            }
        }
    }

    /// Runs waiting items until none is left.
    fn drain(&mut self, exec: &mut dyn Executor, now_us: u64, sink: &mut dyn Sink) {
        while let Some(mut item) = self.waiting.pop_front() {
            if item.is_queued() {
                self.set(&mut item.record, Intrinsic::DequeueDepth, self.waiting.len() as u64);
            }
            self.single.count = 1;
            self.single.now_us = now_us;
            self.single.packets[0] =
                describe(&item.packet, item.ingress_port, item.timestamp_us, item.consumed, item.record.as_mut_ptr());
            exec.run(item.entry, &mut self.single);
            let desc = self.single.packets[0];
            apply(&desc, &mut item.packet);
            item.consumed = desc.consumed;
            match fate(&desc) {
                Ended::Send(to) => {
                    if item.truncate != 0 {
                        item.packet.truncate(item.truncate as usize);
                    }
                    sink.send(to, item.packet);
                }
                Ended::Drop(reason) => sink.drop(reason, item.packet),
                Ended::Replicate(point) => self.replicate(item, point, now_us, sink),
            }
        }
    }

    fn replicate(&mut self, item: Item, point: u32, now_us: u64, sink: &mut dyn Sink) {
        match point {
            0 => self.ingress_end(item, now_us, sink),
            1 => self.egress_end(item, now_us, sink),
            2 => self.deparse_end(item, sink),
            _ => self.frame_end(item, now_us, sink),
        }
    }

    fn ingress_end(&mut self, mut item: Item, now_us: u64, sink: &mut dyn Sink) {
        if self.take(&mut item.record, Intrinsic::CloneFlag) != 0 {
            let list = self.get(&item.record, Intrinsic::CloneFieldList);
            match self.clone_session(&item.record) {
                None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), 1),
                Some(session) => {
                    let instance_type = self.program.instance_types.ingress_clone;
                    self.clone_frames(&item, &session, list, instance_type, now_us, sink);
                }
            }
        }
        if self.get(&item.record, Intrinsic::DropFlag) != 0 {
            return sink.drop(self.ingress_drop(), item.packet);
        }
        if self.take(&mut item.record, Intrinsic::ResubmitFlag) != 0 {
            let list = self.get(&item.record, Intrinsic::ResubmitFieldList);
            let mut record = self.preserved(&item.record, list);
            self.set(&mut record, Intrinsic::InstanceType, self.program.instance_types.resubmit);
            self.ingress_intrinsics(&mut record, &item, item.packet.len());
            return self.again(item, record, EntryKind::Reingress, sink);
        }
        let group = self.get(&item.record, Intrinsic::MulticastGroup) as u32;
        if group != 0 {
            let Some(replicas) = self.replication.group(group) else {
                return sink.drop(DropReason::Runtime(RuntimeDrop::NoSuchGroup), item.packet);
            };
            self.set(&mut item.record, Intrinsic::InstanceType, self.program.instance_types.replication);
            // A request to recirculate is the packet's own; its copies do not have it.
            self.set(&mut item.record, Intrinsic::RecirculateFlag, 0);
            let Some((last, others)) = replicas.split_last() else {
                return sink.drop(DropReason::Runtime(RuntimeDrop::NoSuchGroup), item.packet);
            };
            for replica in self.affordable(others, &item, sink) {
                let mut record = item.record.clone();
                self.egress_intrinsics(&mut record, *replica, now_us);
                self.copy(&item, record, sink);
            }
            // The last replica takes the packet itself.
            self.egress_intrinsics(&mut item.record, *last, now_us);
            return self.enqueue(Item { entry: EntryKind::Egress, ..item });
        }
        let to = self.get(&item.record, Intrinsic::EgressSpec);
        if self.program.drop_port == Some(to) {
            return sink.drop(self.ingress_drop(), item.packet);
        }
        self.set(&mut item.record, Intrinsic::InstanceType, self.program.instance_types.normal);
        self.egress_intrinsics(&mut item.record, Replica { port: to as u32, instance: 0 }, now_us);
        self.enqueue(Item { entry: EntryKind::Egress, ..item });
    }

    fn egress_end(&mut self, mut item: Item, now_us: u64, sink: &mut dyn Sink) {
        if self.take(&mut item.record, Intrinsic::CloneFlag) != 0 {
            let list = self.get(&item.record, Intrinsic::CloneFieldList);
            match self.clone_session(&item.record) {
                None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), 1),
                Some(session) if item.passes < PASS_LIMIT => {
                    for replica in self.affordable(&session.replicas, &item, sink) {
                        let mut record = self.preserved(&item.record, list);
                        self.copy_headers(&item.record, &mut record);
                        self.set(&mut record, Intrinsic::InstanceType, self.program.instance_types.egress_clone);
                        let length = self.get(&item.record, Intrinsic::PacketLength) as usize;
                        self.ingress_intrinsics(&mut record, &item, length);
                        self.egress_intrinsics(&mut record, *replica, now_us);
                        let Some(packet) = self.duplicate(&item, sink) else { continue };
                        let mut clone = item.child(packet, record, EntryKind::Egress);
                        clone.passes = item.passes + 1;
                        clone.truncate = session.packet_length_bytes;
                        self.enqueue(clone);
                    }
                }
                Some(session) => {
                    let copies = session.replicas.len() as u64;
                    sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), copies);
                }
            }
        }
        // It is through egress: it leaves before its clone goes through.
        self.waiting.push_front(Item { entry: EntryKind::Deparse, ..item });
    }

    /// Where the copies of a packet go: to a session's ports, or to the one that the program names.
    fn clone_session(&self, record: &[u64]) -> Option<Arc<CloneSession>> {
        if self.program.intrinsic(Intrinsic::ClonePort).is_some() {
            let port = self.get(record, Intrinsic::ClonePort) as u32;
            let replicas = vec![Replica { port, instance: 0 }];
            return Some(Arc::new(CloneSession { replicas, ..CloneSession::default() }));
        }
        let id = self.get(record, Intrinsic::CloneSession) as u32;
        let default = || self.default_session.as_ref().filter(|(of, _)| *of == id).map(|(_, session)| session.clone());
        self.replication.session(id).or_else(default)
    }

    fn deparse_end(&mut self, item: Item, sink: &mut dyn Sink) {
        let list = self.get(&item.record, Intrinsic::RecirculateFieldList);
        let mut record = self.preserved(&item.record, list);
        self.set(&mut record, Intrinsic::InstanceType, self.program.instance_types.recirculate);
        self.ingress_intrinsics(&mut record, &item, item.packet.len());
        self.again(item, record, EntryKind::Reingress, sink);
    }

    fn frame_end(&mut self, mut item: Item, now_us: u64, sink: &mut dyn Sink) {
        if self.take(&mut item.record, Intrinsic::CloneFlag) != 0 {
            let list = self.get(&item.record, Intrinsic::CloneFieldList);
            match self.clone_session(&item.record) {
                None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), 1),
                Some(session) if item.passes < PASS_LIMIT => {
                    let instance_type = self.program.instance_types.egress_clone;
                    item.passes += 1;
                    self.clone_frames(&item, &session, list, instance_type, now_us, sink);
                    item.passes -= 1;
                }
                Some(session) => {
                    let copies = session.replicas.len() as u64;
                    sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), copies);
                }
            }
        }
        // It is through egress: it leaves before its clones go through.
        self.waiting.push_front(Item { entry: EntryKind::Deparse, ..item });
    }

    /// Copies of the frame as it is, which are parsed anew and go through egress.
    fn clone_frames(
        &mut self,
        item: &Item,
        session: &CloneSession,
        list: u64,
        instance_type: u64,
        now_us: u64,
        sink: &mut dyn Sink,
    ) {
        let cuts_first = self.program.cuts_clones_first;
        for replica in self.affordable(&session.replicas, item, sink) {
            let mut record = self.preserved(&item.record, list);
            self.set(&mut record, Intrinsic::InstanceType, instance_type);
            self.set(&mut record, Intrinsic::ClassOfService, session.class_of_service.into());
            let whole = item.packet.len();
            let cut = match session.packet_length_bytes {
                bytes @ 1.. if cuts_first => whole.min(bytes as usize),
                _ => whole,
            };
            self.ingress_intrinsics(&mut record, item, cut);
            self.egress_intrinsics(&mut record, *replica, now_us);
            let Some(mut packet) = self.duplicate(item, sink) else { continue };
            if cut < whole {
                packet.truncate(cut);
            }
            let truncate = if cuts_first { 0 } else { session.packet_length_bytes };
            let clone = item.child(packet, record, EntryKind::CloneIngress);
            self.enqueue(Item { consumed: 0, truncate, ..clone });
        }
    }

    /// Why a packet is dropped that ingress has dropped.
    fn ingress_drop(&self) -> DropReason {
        let reason = self.program.drops.iter().position(|d| d == INGRESS_DROP).unwrap_or(0);
        DropReason::Program(reason as u32)
    }

    /// Sends the packet itself back to ingress.
    fn again(&mut self, item: Item, record: Box<[u64]>, entry: EntryKind, sink: &mut dyn Sink) {
        // The packet itself goes on; only its record is made anew.
        let units = units(size_of_val(&*record));
        if item.passes >= PASS_LIMIT || self.share < units {
            return sink.drop(DropReason::Runtime(RuntimeDrop::ReplicationLimit), item.packet);
        }
        self.share -= units;
        self.enqueue(Item { record, entry, consumed: 0, passes: item.passes + 1, ..item });
    }

    /// Makes a copy of the packet wait for egress.
    fn copy(&mut self, item: &Item, record: Box<[u64]>, sink: &mut dyn Sink) {
        if let Some(packet) = self.duplicate(item, sink) {
            self.enqueue(item.child(packet, record, EntryKind::Egress));
        }
    }

    fn duplicate(&self, item: &Item, sink: &mut dyn Sink) -> Option<Packet> {
        let packet = item.packet.copy();
        if packet.is_none() {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1);
        }
        packet
    }

    /// As many of the replicas as there are units for, which are taken; the others are counted as lost.
    fn affordable<'r>(&mut self, replicas: &'r [Replica], item: &Item, sink: &mut dyn Sink) -> &'r [Replica] {
        let each = units(item.packet.len() + size_of_val(&*item.record));
        let count = replicas.len().min((self.share / each) as usize);
        self.share -= count as u32 * each;
        let (made, lost) = replicas.split_at(count);
        if !lost.is_empty() {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::ReplicationLimit), lost.len() as u64);
        }
        made
    }

    fn enqueue(&mut self, mut item: Item) {
        if item.is_queued() {
            self.set(&mut item.record, Intrinsic::EnqueueDepth, self.waiting.len() as u64);
        }
        self.waiting.push_back(item);
    }

    /// A record with zeros but for the slots of a field list.
    fn preserved(&self, from: &[u64], list: u64) -> Box<[u64]> {
        let mut record = vec![0; from.len()].into_boxed_slice();
        for slot in self.program.field_list(list) {
            self.copy_slot(from, &mut record, *slot);
        }
        record
    }

    fn copy_headers(&self, from: &[u64], to: &mut [u64]) {
        for (i, slot) in self.program.slots.iter().enumerate() {
            let of_headers = matches!(
                slot.kind,
                SlotKind::Field(_) | SlotKind::Valid(_) | SlotKind::VarbitLength(_) | SlotKind::HeaderPart
            );
            if of_headers {
                self.copy_slot(from, to, SlotId::from_index(i));
            }
        }
    }

    fn copy_slot(&self, from: &[u64], to: &mut [u64], slot: SlotId) {
        let at = self.layout.offset(slot);
        let range = at..at + ir::layout::words_of(self.program.width(slot)) as usize;
        to[range.clone()].copy_from_slice(&from[range]);
    }

    fn ingress_intrinsics(&self, record: &mut [u64], item: &Item, length: usize) {
        self.set(record, Intrinsic::IngressPort, u64::from(item.ingress_port));
        self.set(record, Intrinsic::IngressTimestamp, item.timestamp_us);
        self.set(record, Intrinsic::PacketLength, length as u64);
    }

    fn egress_intrinsics(&self, record: &mut [u64], replica: Replica, now_us: u64) {
        self.set(record, Intrinsic::EgressPort, u64::from(replica.port));
        self.set(record, Intrinsic::EgressRid, u64::from(replica.instance));
        self.set(record, Intrinsic::EgressTimestamp, now_us);
        self.set(record, Intrinsic::EnqueueTimestamp, now_us);
    }

    fn get(&self, record: &[u64], which: Intrinsic) -> u64 {
        self.program.intrinsic(which).map_or(0, |slot| self.layout.get_word(record, slot))
    }

    fn set(&self, record: &mut [u64], which: Intrinsic, value: u64) {
        if let Some(slot) = self.program.intrinsic(which) {
            self.layout.set_word(record, slot, value);
        }
    }

    /// Reads and clears.
    fn take(&self, record: &mut [u64], which: Intrinsic) -> u64 {
        let value = self.get(record, which);
        self.set(record, which, 0);
        value
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

#[inline]
fn describe(packet: &Packet, port: u32, timestamp_us: u64, consumed: u32, record: *mut u64) -> PacketDesc {
    PacketDesc {
        data: packet.data_mut_ptr(),
        len: packet.len() as u32,
        headroom: packet.headroom() as u32,
        tailroom: packet.tailroom() as u32,
        ingress_port: port,
        consumed,
        record,
        timestamp_us,
        ..PacketDesc::EMPTY
    }
}

/// Takes over what the executor did to the frame's place in its buffer.
#[inline]
fn apply(desc: &PacketDesc, packet: &mut Packet) {
    debug_assert!((desc.headroom + desc.len) as usize <= packet.capacity());
    // SAFETY: executors keep `headroom + len + tailroom` at the buffer's capacity (contract of `PacketDesc`).
    unsafe { packet.adjust_unchecked(desc.headroom as u16, desc.len as u16) }
}

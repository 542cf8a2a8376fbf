//! Batches whose packets ask for clones and otherwise are sent or dropped, as with mirrors of all or some packets and with copies
//! to the controller.
//!
//! It is what [`waves`](super::waves) would do with them, without items that wait. Frames are copied, into the descriptors of a
//! batch for each place in the packets' sessions. Then, by where they ask ([`Form`]):
//!
//! - At the end of ingress: the clones go through their entry, and the received packets that asked through egress, in their
//!   descriptors. Each leaves behind its clones.
//! - At the end of egress, and behind the deparser: the received packets go through the deparser, and the clones through their
//!   entry. Each leaves before its clones.
//!
//! Per family that is the order of the waves. Packets that make further requests go on in waves. Where the clones' entry only
//! sends ([`Program::sends_at_once`]), clones are copies of bytes, without a record, and no code runs for them; the same holds for
//! received packets where egress only sends. Clones that begin with the same values share one record where their entry cannot hand
//! them over to the engine again, which is what writes a record.
//!
//! Tests: `tests/mirrors.rs`, `tests/clones.rs`, `tests/waves.rs`, `tests/again.rs`.

use super::records::Record;
use super::waves::{Burst, Descent, Item, Row, describe, owned};
use super::{
    Ended, Engine, Inserted, PASS_LIMIT, REQUESTS, Sink, Survey, apply, asks, egress_intrinsics, fate,
    ingress_intrinsics, run_within, units,
};
use crate::drops::{DropReason, RuntimeDrop};
use crate::executor::Executor;
use crate::replication::Replica;
use abi::packet::{BATCH_MAX, FateCode};
use ir::{BitSet, EntryKind, Fate, Intrinsic, Operand, Program, SlotId, Terminator};
use pktio::{Packet, RawPacket};

/// How the clones of a program, and the packets that they are of, can be taken on.
#[derive(Clone, Copy)]
pub(super) struct Mirroring {
    /// Whether batches may go this way: packets neither wait in queues nor are changed between ingress and egress.
    pub is_possible: bool,
    /// Whether clones need not go through their entry, and packets behind ingress not through egress.
    sends_clones_at_once: bool,
    sends_at_once: bool,
    /// Whether clones with the same values may share a record: their entry writes none, nor reads the frame's length.
    shares_records: bool,
    /// Whether packets may come to the engine with a record behind egress, or egress reads whether they ask for clones.
    egress_asks: bool,
    /// Whether a field list holds what the switch sets.
    lists_intrinsics: bool,
    /// What names a clone's session: its number, or its port.
    pub names_session: Intrinsic,
}

impl Mirroring {
    /// For a program whose operations read these slots.
    pub(super) fn new(program: &Program, read: &BitSet, shows_depth: bool) -> Mirroring {
        let reads_length = program.intrinsic(Intrinsic::PacketLength).is_some_and(|slot| read.contains(slot.index()));
        let flag = program.intrinsic(Intrinsic::CloneFlag);
        let reads_flag = flag.is_some_and(|slot| reads(program, EntryKind::Egress, slot));
        let mut listed = program.field_lists.iter().flat_map(|(_, slots)| slots);
        Mirroring {
            is_possible: !shows_depth && !program.queues && program.openflow.is_none(),
            sends_clones_at_once: program.sends_at_once(EntryKind::CloneIngress),
            sends_at_once: program.sends_at_once(EntryKind::Egress),
            shares_records: !hands_over(program, EntryKind::CloneIngress) && !reads_length,
            egress_asks: hands_over(program, EntryKind::Egress) || reads_flag,
            lists_intrinsics: listed.any(|slot| program.intrinsics.iter().any(|(_, known)| known == slot)),
            names_session: match program.intrinsic(Intrinsic::ClonePort) {
                Some(_) => Intrinsic::ClonePort,
                None => Intrinsic::CloneSession,
            },
        }
    }
}

/// Whether an entry reads a slot.
fn reads(program: &Program, kind: EntryKind, slot: SlotId) -> bool {
    let stages = program.entry(kind).map_or(&[][..], |entry| &entry.stages);
    stages.iter().flat_map(|stage| &program.stages[stage.index()].blocks).any(|block| {
        let mut is_read = block.term.operand().and_then(Operand::slot) == Some(slot);
        block.insts.iter().for_each(|inst| inst.op.for_each_use(program, |used| is_read |= used == slot));
        is_read
    })
}

/// Whether packets may come from an entry to the engine, with a record.
fn hands_over(program: &Program, kind: EntryKind) -> bool {
    let stages = program.entry(kind).map_or(&[][..], |entry| &entry.stages);
    let mut ends = stages.iter().flat_map(|stage| &program.stages[stage.index()].blocks).map(|block| &block.term);
    ends.any(|end| matches!(end, Terminator::Finish(Fate::Replicate(_) | Fate::Again { .. })))
}

/// What becomes of clones, and of the packets that they are of, by where these ask for them.
#[derive(Clone, Copy)]
struct Form {
    /// The entries of both.
    of_clones: EntryKind,
    of_received: EntryKind,
    instance_type: u64,
    /// Whether clones run and leave before the packets that they are of; else behind them.
    clones_first: bool,
    /// Whether clones keep the headers as they are; else they are parsed anew.
    keeps_headers: bool,
}

impl Form {
    /// Most clones that a packet may have here. More are made one batch after the other, which frames must outlast.
    #[inline(always)]
    fn clones_max(&self) -> usize {
        if self.clones_first { BATCH_MAX } else { 1 }
    }
}

/// What the packets of a batch ask for.
struct Asked {
    form: Form,
    /// How many ask for clones, and of each its place.
    count: usize,
    places: [u8; BATCH_MAX],
    /// A bit for each whose session or field list is not that of the one before, and how many clones it has.
    begins: u64,
    clones: [u8; BATCH_MAX],
    /// Most clones of one of them, and how many name a session that does not exist.
    clones_max: usize,
    lost: u64,
}

/// The places of a batch.
const ALL: [u8; BATCH_MAX] = {
    let mut all = [0; BATCH_MAX];
    let mut place = 0;
    while place < BATCH_MAX {
        all[place] = place as u8;
        place += 1;
    }
    all
};

impl Asked {
    /// Those with the same session and field list, from the `first` on.
    #[inline(always)]
    fn alike(&self, first: usize) -> std::ops::Range<usize> {
        let further = self.begins & (u64::MAX << 1).checked_shl(first as u32).unwrap_or(0);
        first..self.count.min(further.trailing_zeros() as usize)
    }
}

/// Clones of a batch that are through: their frames, and of each the port and the place of the received packet.
#[derive(Default)]
pub(super) struct Clones {
    packets: Vec<Packet>,
    ports: Vec<u32>,
    places: Vec<u8>,
    /// Not 0 if these ports are not all the same.
    ports_differ: u32,
    /// A buffer.
    ran: Vec<Packet>,
}

/// What clones of the same place in a session have in common.
#[derive(Clone, Copy)]
struct Common {
    /// Whether the session and that replica are there.
    is_there: bool,
    to: Replica,
    class_of_service: u32,
    /// To how many bytes frames are cut when they are copied, and when they are sent.
    cut: u16,
    truncate: u16,
    /// A record with what is the same in all.
    record: Record,
}

/// How clones are made of packets that are alike.
struct Make {
    /// These packets, by their numbers in [`Asked`].
    alike: std::ops::Range<usize>,
    common: Common,
    list: u64,
    /// The place of the batch's first one in [`Clones`].
    first: usize,
}

/// Clones that were made together.
struct Run {
    /// What becomes of them, if they are to run.
    form: Option<Form>,
    /// The place of the first one in [`Clones`].
    first: usize,
    burst: Burst,
    /// To how many bytes each is cut when it is sent, and whether any is.
    are_truncated: bool,
    truncate: [u16; BATCH_MAX],
}

impl Engine {
    /// Takes a batch on of which so many ask for something, if they ask for clones; `packets` is empty then, and otherwise nothing
    /// has been done.
    #[inline(never)]
    pub(super) fn mirror<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        asking: usize,
        burst: Burst,
        sink: &mut S,
    ) -> bool {
        let count = packets.len();
        let share = self.work_left / asking as u32;
        let Some(asked) = self.only_clones_alike(packets, asking, share).or_else(|| self.only_clones(packets, share))
        else {
            self.shares[..count].fill(0);
            return false;
        };
        self.work_left -= share * asking as u32;
        if asked.lost > 0 {
            sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), asked.lost);
        }
        if self.sends_all_at_once(&asked, packets, sink) {
            return true;
        }
        let mut clones = std::mem::take(&mut self.clones);
        let mut deparsing = std::mem::take(&mut self.received);
        // They leave with the packet that they are of.
        self.is_by_kind = true;
        let form = asked.form;
        if form.clones_first {
            for number in 0..asked.clones_max {
                let run = self.make_clones(packets, &asked, number, &mut clones, burst, sink);
                self.run_clones(exec, run, packets, &mut clones, &mut deparsing, sink);
                self.deparse_now(exec, &mut deparsing, burst, sink);
            }
            self.run_received(exec, packets, &asked);
        } else {
            // Copied before frames are written.
            let run = self.make_clones(packets, &asked, 0, &mut clones, burst, sink);
            self.run_received(exec, packets, &asked);
            if self.survey(count).asking != 0 {
                // Each is through before its clone runs, which is described in `further` meanwhile.
                self.go_on_with_received(packets, form, &mut deparsing, burst, sink);
                std::mem::swap(&mut self.further, &mut self.some);
                self.deparse_now(exec, &mut deparsing, burst, sink);
                std::mem::swap(&mut self.further, &mut self.some);
            }
            self.run_clones(exec, run, packets, &mut clones, &mut deparsing, sink);
        }
        let seen = self.survey(count);
        if seen.asking == 0 && asked.clones_max <= 1 && self.next.items.is_empty() && self.held.items.is_empty() {
            self.leave_together(packets, &mut clones, form, seen, sink);
        } else if form.clones_first {
            self.hold_all(&mut clones, sink);
            self.go_on_with_received(packets, form, &mut deparsing, burst, sink);
        } else {
            self.go_on_with_received(packets, form, &mut deparsing, burst, sink);
            self.hold_all(&mut clones, sink);
        }
        self.is_by_kind = false;
        clones.ports.clear();
        clones.places.clear();
        clones.ports_differ = 0;
        self.clones = clones;
        self.finish(exec, &mut deparsing, 0..count, burst, sink);
        self.received = deparsing;
        self.copies.end();
        true
    }

    /// How clones that packets request at this replication point are made; `None` if only the general path
    /// ([`super::waves`]) can make them.
    fn form(&self, point: u32) -> Option<Form> {
        let types = &self.program.instance_types;
        let form = match point {
            0 => Form {
                of_clones: EntryKind::CloneIngress,
                of_received: EntryKind::Egress,
                instance_type: types.ingress_clone,
                clones_first: true,
                keeps_headers: false,
            },
            1 => Form {
                of_clones: EntryKind::Egress,
                of_received: EntryKind::Deparse,
                instance_type: types.egress_clone,
                clones_first: false,
                keeps_headers: true,
            },
            3 => Form {
                of_clones: EntryKind::CloneIngress,
                of_received: EntryKind::Deparse,
                instance_type: types.egress_clone,
                clones_first: false,
                keeps_headers: false,
            },
            _ => return None,
        };
        let has = |kind| self.program.entry(kind).is_some();
        (has(form.of_clones) && has(form.of_received)).then_some(form)
    }

    /// What packets ask for, if all do, for the same clones and nothing else, as [`only_clones`](Engine::only_clones).
    #[inline(always)]
    fn only_clones_alike(&mut self, packets: &[Packet], asking: usize, share: u32) -> Option<Asked> {
        if asking < packets.len() {
            return None;
        }
        let first = self.batch.packets[0];
        let form = self.form(first.fate_arg)?;
        let model = self.records.received(0);
        let [flag, resubmits, group, list, session] = self.records.places([
            Intrinsic::CloneFlag,
            Intrinsic::ResubmitFlag,
            Intrinsic::MulticastGroup,
            Intrinsic::CloneFieldList,
            self.mirroring.names_session,
        ]);
        let [list_is, session_is] = [list, session].map(|place| self.records.read(model, place));
        // A group named in egress is none.
        let others = if form.clones_first { [resubmits, group] } else { [self.records.nowhere(); 2] };
        if self.passes.iter().any(|passes| u32::from(*passes) >= PASS_LIMIT) {
            return None;
        }
        let mut differ = 0;
        for (place, desc) in self.batch.packets[..packets.len()].iter().enumerate() {
            let is_request = desc.fate == FateCode::Replicate as u32 && desc.fate_arg == first.fate_arg;
            if !is_request {
                return None;
            }
            let record = self.records.received(place);
            let read = |place| self.records.read(record, place);
            differ |= (read(list) ^ list_is) | (read(session) ^ session_is) | read(others[0]) | read(others[1]);
            differ |= u64::from(read(flag) == 0);
        }
        if differ != 0 {
            return None;
        }
        let targets = self.session(model);
        let clones = targets.map_or(0, |targets| targets.count);
        if clones > form.clones_max() {
            return None;
        }
        let record_bytes = self.records.bytes();
        for (left, packet) in self.shares.iter_mut().zip(packets) {
            *left = share.checked_sub(clones as u32 * units(packet.len() + record_bytes))?;
        }
        let lost = if targets.is_none() { packets.len() as u64 } else { 0 };
        let (count, clones_max) = (packets.len(), clones);
        Some(Asked { form, count, places: ALL, begins: 1, clones: [clones as u8; BATCH_MAX], clones_max, lost })
    }

    /// What packets ask for, if those that ask for anything ask for clones and nothing else, and none costs more than a share. What
    /// is left of each one's share is in `shares`.
    #[inline(never)]
    fn only_clones(&mut self, packets: &[Packet], share: u32) -> Option<Asked> {
        let first = self.batch.packets[..packets.len()].iter().find(|desc| asks(desc))?;
        let (point, form) = (first.fate_arg, self.form(first.fate_arg)?);
        let record_bytes = self.records.bytes();
        let mut asked =
            Asked { form, count: 0, places: [0; BATCH_MAX], begins: 0, clones: [0; BATCH_MAX], clones_max: 0, lost: 0 };
        let mut last = None;
        let mut clones = Some(0);
        for (place, packet) in packets.iter().enumerate() {
            let desc = &self.batch.packets[place];
            self.shares[place] = 0;
            if !asks(desc) {
                continue;
            }
            // Records hold something only then.
            if desc.fate != FateCode::Replicate as u32 || desc.fate_arg != point {
                return None;
            }
            let record = self.records.received(place);
            let slots = self.records.of(record);
            if slots.get(Intrinsic::CloneFlag) == 0 || u32::from(self.passes[place]) >= PASS_LIMIT {
                return None;
            }
            if form.clones_first && slots.get(Intrinsic::ResubmitFlag) | slots.get(Intrinsic::MulticastGroup) != 0 {
                return None;
            }
            let request = (slots.get(self.mirroring.names_session), slots.get(Intrinsic::CloneFieldList));
            if last != Some(request) {
                last = Some(request);
                asked.begins |= 1 << asked.count;
                clones = self.session(record).map(|targets| targets.count);
            }
            asked.lost += u64::from(clones.is_none());
            let clones = clones.unwrap_or(0);
            if clones > form.clones_max() {
                return None;
            }
            self.shares[place] = share.checked_sub(clones as u32 * units(packet.len() + record_bytes))?;
            asked.places[asked.count] = place as u8;
            asked.clones[asked.count] = clones as u8;
            asked.count += 1;
            asked.clones_max = asked.clones_max.max(clones);
        }
        Some(asked)
    }

    /// Sends a batch of packets that are alike, each behind its clones, where nothing changes either; whether it is one.
    #[inline(always)]
    fn sends_all_at_once<S: Sink>(&mut self, asked: &Asked, packets: &mut Vec<Packet>, sink: &mut S) -> bool {
        let Mirroring { sends_clones_at_once, sends_at_once, .. } = self.mirroring;
        let count = packets.len();
        if !(sends_clones_at_once && sends_at_once && asked.form.clones_first)
            || asked.begins != 1
            || asked.count < count
            || asked.lost > 0
        {
            return false;
        }
        let model = self.records.received(0);
        let Some(session) = self.session(model) else { return false };
        let [drops, port] = self.records.places([Intrinsic::DropFlag, Intrinsic::EgressSpec]);
        let drop_port = self.program.drop_port;
        let bytes = if session.length == 0 { u16::MAX } else { session.length.min(u16::MAX.into()) as u16 };
        let clones = session.count.min(asked.clones_max);
        for (place, packet) in packets.drain(..).enumerate() {
            for number in 0..clones {
                self.copies.prepare(&packet, 1, clones * (count - place) - number);
                match self.copies.copy(&packet) {
                    Some(copy) => {
                        let to = session.replica(number).port & self.port_mask;
                        sink.send(to, owned(&shortened(copy.into_raw(), bytes)));
                    }
                    None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1),
                }
            }
            let record = self.records.received(place);
            let to = self.records.read(record, port);
            match self.records.read(record, drops) != 0 || drop_port == Some(to) {
                true => sink.drop(DropReason::Program(self.ingress_drop), packet),
                false => sink.send(to as u32 & self.port_mask, packet),
            }
        }
        // What they have left.
        self.work_left += self.shares[..count].iter_mut().map(std::mem::take).sum::<u32>();
        self.copies.end();
        true
    }

    /// What the clones for a session's replica have in common.
    #[inline(never)]
    fn common(&mut self, of: Record, form: Form, number: usize, burst: Burst) -> Common {
        // The control plane may have changed it since it was looked up for the first time.
        let targets = self.session(of).filter(|targets| number < targets.count);
        let to = targets.map_or(Replica { port: 0, instance: 0 }, |targets| targets.replica(number));
        let bytes = targets.map_or(0, |targets| targets.length);
        let bytes = if bytes == 0 { u16::MAX } else { bytes.min(u16::MAX.into()) as u16 };
        let class_of_service = targets.map_or(0, |targets| targets.class_of_service);
        let is_run = self.runs(form);
        let is_cut_first = !is_run || (self.program.cuts_clones_first && !form.keeps_headers);
        let (cut, truncate) = if is_cut_first { (bytes, u16::MAX) } else { (u16::MAX, bytes) };
        let record = if is_run { self.records.zeroed() } else { of };
        let common = Common { is_there: targets.is_some(), to, class_of_service, cut, truncate, record };
        if is_run {
            self.set_intrinsics(record, form, &common, burst);
        }
        common
    }

    /// Whether clones run.
    #[inline(always)]
    fn runs(&self, form: Form) -> bool {
        form.keeps_headers || !self.mirroring.sends_clones_at_once
    }

    /// Sets what the switch sets for clones, but for the frame's length.
    #[inline(always)]
    fn set_intrinsics(&mut self, record: Record, form: Form, common: &Common, burst: Burst) {
        let slots = self.records.of(record);
        slots.set(Intrinsic::InstanceType, form.instance_type);
        slots.set(Intrinsic::ClassOfService, common.class_of_service.into());
        ingress_intrinsics(slots, 0, burst.port, burst);
        egress_intrinsics(slots, common.to, burst.now_us);
    }

    /// Makes the clones of all packets for one place in their sessions. Those that are to run are described in `further`.
    #[inline(always)]
    fn make_clones<S: Sink>(
        &mut self,
        packets: &[Packet],
        asked: &Asked,
        number: usize,
        clones: &mut Clones,
        burst: Burst,
        sink: &mut S,
    ) -> Run {
        let form = asked.form;
        let is_run = self.runs(form);
        let first = clones.packets.len();
        let truncate = [u16::MAX; BATCH_MAX];
        let mut run = Run { form: is_run.then_some(form), first, burst, are_truncated: false, truncate };
        clones.packets.reserve(asked.count);
        clones.places.reserve(asked.count);
        let mut next = 0;
        while next < asked.count {
            let alike = asked.alike(next);
            next = alike.end;
            if number >= usize::from(asked.clones[alike.start]) {
                continue;
            }
            let model = self.records.received(asked.places[alike.start].into());
            let common = self.common(model, form, number, burst);
            if !common.is_there {
                sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoSuchGroup), alike.len() as u64);
                continue;
            }
            let list = self.records.of(model).get(Intrinsic::CloneFieldList);
            let has_own = form.keeps_headers || !self.mirroring.shares_records || self.records.keeps(list);
            run.are_truncated |= is_run && common.truncate != u16::MAX;
            run.truncate[clones.packets.len() - first..][..alike.len()].fill(common.truncate);
            let make = Make { alike, common, list, first };
            match (is_run, has_own) {
                (false, _) => self.copy_frames::<false, false, S>(packets, asked, make, clones, burst, sink),
                (true, false) => self.copy_frames::<true, false, S>(packets, asked, make, clones, burst, sink),
                (true, true) => self.copy_frames::<true, true, S>(packets, asked, make, clones, burst, sink),
            }
            if !is_run {
                let port = common.to.port & self.port_mask;
                clones.ports.resize(clones.packets.len(), port);
                clones.ports_differ |= clones.ports.first().map_or(0, |first| first ^ port);
            }
        }
        run
    }

    /// Copies the frames of packets that are alike. Clones that are to run are described, with records of their own if they have some.
    #[inline(never)]
    fn copy_frames<const RUN: bool, const OWN: bool, S: Sink>(
        &mut self,
        packets: &[Packet],
        asked: &Asked,
        make: Make,
        clones: &mut Clones,
        burst: Burst,
        sink: &mut S,
    ) {
        let Make { alike, common, list, first } = make;
        let form = asked.form;
        let shared = self.records.pointer(common.record);
        for k in alike {
            let place = asked.places[k];
            let packet = &packets[usize::from(place)];
            self.copies.prepare(packet, 1, asked.count - k);
            let Some(copy) = self.copies.copy(packet) else {
                sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1);
                continue;
            };
            let copy = shortened(copy.into_raw(), common.cut);
            if RUN {
                let mut record = shared;
                if OWN {
                    let own = self.own_record(&common, form, usize::from(place), list, &copy, burst);
                    record = self.records.pointer(own);
                }
                let consumed =
                    if OWN && form.keeps_headers { self.batch.packets[usize::from(place)].consumed } else { 0 };
                describe(&mut self.further.packets[clones.packets.len() - first], &copy, record, consumed, burst);
            }
            clones.packets.push(owned(&copy));
            clones.places.push(place);
        }
    }

    /// The record of a clone that differs from others.
    #[inline(always)]
    fn own_record(
        &mut self,
        common: &Common,
        form: Form,
        place: usize,
        list: u64,
        copy: &RawPacket,
        burst: Burst,
    ) -> Record {
        let received = self.records.received(place);
        let record = self.records.copy(common.record);
        self.records.copy_list(received, record, list);
        if self.mirroring.lists_intrinsics {
            self.set_intrinsics(record, form, common, burst);
        }
        let mut length = copy.len.into();
        if form.keeps_headers {
            self.records.copy_headers(received, record);
            length = self.records.of(received).get(Intrinsic::PacketLength);
        }
        self.records.of(record).set(Intrinsic::PacketLength, length);
        record
    }

    /// Takes clones through their entry: keeps those that are sent; the others are dropped or go on.
    #[inline(always)]
    fn run_clones<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        run: Run,
        packets: &mut Vec<Packet>,
        clones: &mut Clones,
        deparsing: &mut Vec<Item>,
        sink: &mut S,
    ) {
        let Run { form: Some(form), first, burst, are_truncated, .. } = run else { return };
        if clones.packets.len() == first {
            return;
        }
        self.further.count = (clones.packets.len() - first) as u32;
        self.further.now_us = burst.now_us;
        self.run_further(exec, form.of_clones);
        let mut fates = 0;
        for (clone, desc) in clones.packets[first..].iter_mut().zip(&self.further.packets) {
            apply(desc, clone);
            fates |= 1u32 << (desc.fate & 31);
        }
        let ran = &self.further.packets[..clones.packets.len() - first];
        clones.ports.extend(ran.iter().map(|desc| desc.egress_port));
        let port = clones.ports.first().copied().unwrap_or(0);
        clones.ports_differ |= ran.iter().fold(0, |differ, desc| differ | (desc.egress_port ^ port));
        if fates & REQUESTS != 0 {
            if !form.clones_first {
                // Each of them leaves before its clone.
                self.go_on_with_received(packets, form, deparsing, burst, sink);
            }
            self.go_on_with_clones(&run, form, clones, deparsing, burst, sink);
        } else if fates != 1 << FateCode::Send as u32 {
            self.keep_sent(&run, clones, sink);
        } else if are_truncated {
            let all = clones.packets[first..].iter_mut().zip(run.truncate);
            all.for_each(|(clone, bytes)| clone.truncate(bytes.into()));
        }
    }

    /// Where some clones are dropped: keeps the others.
    #[inline(never)]
    fn keep_sent<S: Sink>(&mut self, run: &Run, clones: &mut Clones, sink: &mut S) {
        let mut ran = std::mem::take(&mut clones.ran);
        ran.extend(clones.packets.drain(run.first..));
        let mut kept = run.first;
        for (k, mut packet) in ran.drain(..).enumerate() {
            match fate(&self.further.packets[k]) {
                Ended::Send(port) => {
                    packet.truncate(run.truncate[k].into());
                    clones.packets.push(packet);
                    (clones.ports[kept], clones.places[kept]) = (port, clones.places[run.first + k]);
                    kept += 1;
                }
                Ended::Drop(reason) => sink.drop(reason, packet),
                Ended::Replicate(_) | Ended::Multicast(_) | Ended::Again => unreachable!("it asks for something"),
            }
        }
        clones.ran = ran;
        clones.ports.truncate(kept);
        clones.places.truncate(kept);
    }

    /// Where some ask for more: these go on, and the others are held.
    #[inline(never)]
    fn go_on_with_clones<S: Sink>(
        &mut self,
        run: &Run,
        form: Form,
        clones: &mut Clones,
        deparsing: &mut Vec<Item>,
        burst: Burst,
        sink: &mut S,
    ) {
        let mut ran = std::mem::take(&mut clones.ran);
        ran.extend(clones.packets.drain(run.first..));
        // Those of places before this one.
        self.hold_all(clones, sink);
        let count = ran.len();
        for (k, packet) in ran.drain(..).enumerate() {
            let desc = self.further.packets[k];
            let (place, bytes) = (clones.places[run.first + k], run.truncate[k]);
            let passes = self.passes[usize::from(place)] + u8::from(!form.clones_first);
            let from = Descent {
                entry: form.of_clones,
                truncate: if bytes == u16::MAX { 0 } else { bytes.into() },
                ..Descent::received(self.records.at(desc.record), desc.consumed, passes, place.into())
            };
            self.askers = count - k;
            self.go_on_from(Item::waits(&packet.into_raw(), from), k, deparsing, burst, sink);
        }
        clones.ran = ran;
        clones.ports.clear();
        clones.places.clear();
    }

    /// Takes the packets that have been cloned on: those that are dropped have come to their end, the others go through their next
    /// entry, in their descriptors.
    #[inline(always)]
    fn run_received(&mut self, exec: &mut dyn Executor, packets: &mut [Packet], asked: &Asked) {
        let mut places = [0; BATCH_MAX];
        let mut count = 0;
        let (normal, now_us) = (self.program.instance_types.normal, self.batch.now_us);
        let to_egress = self.records.constants([
            (Intrinsic::InstanceType, normal),
            (Intrinsic::EgressRid, 0),
            (Intrinsic::EgressTimestamp, now_us),
            (Intrinsic::EnqueueTimestamp, now_us),
        ]);
        let Mirroring { sends_at_once, egress_asks, .. } = self.mirroring;
        let may_ask_again = egress_asks || !asked.form.clones_first;
        let [drops, spec] = self.records.places([Intrinsic::DropFlag, Intrinsic::EgressSpec]);
        let (drop_port, port_mask) = (self.program.drop_port, self.port_mask);
        for place in &asked.places[..asked.count] {
            let at = usize::from(*place);
            let record = self.records.received(at);
            if may_ask_again {
                self.records.of(record).clear(Intrinsic::CloneFlag);
            }
            if asked.form.clones_first {
                let desc = &mut self.batch.packets[at];
                let port = self.records.read(record, spec);
                if self.records.read(record, drops) != 0 || drop_port == Some(port) {
                    (desc.fate, desc.fate_arg) = (FateCode::Drop as u32, self.ingress_drop);
                    continue;
                }
                if sends_at_once {
                    (desc.fate, desc.egress_port) = (FateCode::Send as u32, port as u32 & port_mask);
                    continue;
                }
                self.records.of(record).set(Intrinsic::EgressPort, port);
                self.records.write(record, &to_egress);
            }
            places[count] = *place;
            count += 1;
        }
        if count == packets.len() {
            run_within(&mut self.steps_left, exec, asked.form.of_received, &mut self.batch);
        } else if count > 0 {
            self.run_some(exec, asked.form.of_received, &places[..count]);
        }
        if count > 0 {
            // Long before they are moved: a packet that is moved right after its fields were written is slow to read.
            packets.iter_mut().zip(&self.batch.packets).for_each(|(packet, desc)| apply(desc, packet));
        }
    }

    /// Takes the received packets at these places through an entry.
    fn run_some(&mut self, exec: &mut dyn Executor, entry: EntryKind, places: &[u8]) {
        // Clones may be described in `further`.
        (self.some.count, self.some.now_us) = (places.len() as u32, self.batch.now_us);
        for (desc, place) in self.some.packets.iter_mut().zip(places) {
            *desc = self.batch.packets[usize::from(*place)];
        }
        run_within(&mut self.steps_left, exec, entry, &mut self.some);
        for (desc, place) in self.some.packets.iter().zip(places) {
            self.batch.packets[usize::from(*place)] = *desc;
        }
    }

    /// All have come to their ends: each received packet leaves behind its clone, or before it, if it has one.
    #[inline(always)]
    fn leave_together<S: Sink>(
        &mut self,
        packets: &mut Vec<Packet>,
        clones: &mut Clones,
        form: Form,
        seen: Survey,
        sink: &mut S,
    ) {
        let to = self.batch.packets[0].egress_port;
        let are_sent_alike = seen.ports_differ == 0 && seen.fates == 1 << FateCode::Send as u32;
        if let Some(port) = clones.ports.first().copied()
            && (clones.ports_differ == 0 && are_sent_alike && port != to)
        {
            let inserted = Inserted { places: &clones.places, are_before: form.clones_first };
            return sink.send_merged((to, packets), (port, &mut clones.packets), inserted);
        }
        let mut cloned = clones.packets.drain(..).zip(&clones.ports);
        let mut places = clones.places.iter().peekable();
        for (place, packet) in packets.drain(..).enumerate() {
            let of_it = places.next_if(|of| usize::from(**of) == place);
            let clone = of_it.and_then(|_| cloned.next());
            let last = match clone {
                Some((clone, port)) if form.clones_first => {
                    sink.send(*port, clone);
                    None
                }
                other => other,
            };
            match fate(&self.batch.packets[place]) {
                Ended::Send(port) => sink.send(port, packet),
                Ended::Drop(reason) => sink.drop(reason, packet),
                Ended::Replicate(_) | Ended::Multicast(_) | Ended::Again => unreachable!("it asks for something"),
            }
            if let Some((clone, port)) = last {
                sink.send(*port, clone);
            }
        }
    }

    /// Takes received packets on that have run: those that are through are held.
    #[inline(never)]
    fn go_on_with_received<S: Sink>(
        &mut self,
        packets: &mut Vec<Packet>,
        form: Form,
        deparsing: &mut Vec<Item>,
        burst: Burst,
        sink: &mut S,
    ) {
        let count = packets.len();
        // Of a clone that has run.
        let first = self.further.packets[0];
        for (place, packet) in packets.drain(..).enumerate() {
            let desc = self.batch.packets[place];
            let received = Descent::received(self.records.received(place), desc.consumed, self.passes[place], place);
            let item = Item::waits(&packet.into_raw(), Descent { entry: form.of_received, ..received });
            self.askers = count - place;
            self.further.packets[0] = desc;
            self.go_on_from(item, 0, deparsing, burst, sink);
        }
        self.further.packets[0] = first;
    }

    /// Takes packets through the deparser that wait for it.
    #[inline(always)]
    fn deparse_now<S: Sink>(&mut self, exec: &mut dyn Executor, deparsing: &mut Vec<Item>, burst: Burst, sink: &mut S) {
        if !deparsing.is_empty() {
            let all = Row(0, deparsing.len());
            self.deparse(exec, deparsing, all, true, burst, sink);
            deparsing.clear();
        }
    }

    /// Clones that are through are held.
    fn hold_all<S: Sink>(&mut self, clones: &mut Clones, sink: &mut S) {
        let of = clones.ports.iter().zip(&clones.places);
        for (clone, (port, place)) in clones.packets.drain(..).zip(of) {
            self.send(clone.into_raw(), *port, *place, false, sink);
        }
    }

    /// Takes one on that has run as the `k`th: it is held, dropped or waits behind what its family has asked for.
    fn go_on_from<S: Sink>(&mut self, mut item: Item, k: usize, deparsing: &mut Vec<Item>, burst: Burst, sink: &mut S) {
        let place = item.family().into();
        if self.go_on(&mut item, k, place, burst, sink) {
            deparsing.push(item);
        } else {
            self.hold(&mut item, sink);
        }
    }
}

/// A copy of at most so many bytes.
#[inline(always)]
fn shortened(copy: RawPacket, bytes: u16) -> RawPacket {
    match bytes < copy.len {
        // What is cut is no large frame any more.
        true => copy.with_window(copy.offset, bytes).with_segment(0),
        false => copy,
    }
}

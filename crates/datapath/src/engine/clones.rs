//! Batches of which every packet is sent to a port and cloned to one session, as mirrors do.
//!
//! It is what [`waves`](super::waves) would do with them, without the detour of a queue: first all clones go through their entry, then all
//! received packets go through egress where they are, in their descriptors. Per family that is the order of the waves, and each
//! leaves behind its clones. Packets that make further requests go on in waves. Where the clones' entry only sends
//! ([`Program::sends_at_once`]), clones are copies of bytes, without a record, and no code runs for them.

use super::waves::{Burst, Descent, Item, Row, owned};
use super::{Ended, Engine, Sink, Targets, apply, asks, egress_intrinsics, fate, ingress_intrinsics, units};
use crate::drops::{DropReason, RuntimeDrop};
use crate::executor::Executor;
use crate::replication::Replica;
use abi::packet::{BATCH_MAX, FateCode};
use ir::{EntryKind, Intrinsic, Program};
use pktio::{Packet, RawPacket};

/// What all packets of a batch ask for.
#[derive(Clone, Copy)]
struct Request {
    session: Targets,
    list: u64,
}

/// Whether batches of a program can go this way: its packets meet the engine at the end of ingress, and are through after egress.
pub(super) fn may_be_mirrored(program: &Program) -> bool {
    let has = |kind| program.entry(kind).is_some();
    has(EntryKind::CloneIngress) && has(EntryKind::Egress) && !has(EntryKind::Deparse) && !program.queues
}

impl Engine {
    /// Takes a batch on, if it is one; `packets` is empty then, and otherwise nothing has been done.
    pub(super) fn mirror<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Packet>,
        burst: Burst,
        sink: &mut S,
    ) -> bool {
        let count = packets.len();
        let Some(request) = self.common_request(packets) else { return false };
        let replicas = request.session.count;
        let share = self.work_left / count as u32;
        let longest = packets.iter().map(Packet::len).max().unwrap_or(0);
        let cost = replicas as u64 * u64::from(units(longest + self.records.bytes()));
        if cost > u64::from(share) || replicas > BATCH_MAX {
            return false;
        }
        if self.sends_clones_at_once && self.sends_at_once {
            self.send_with_copies(packets, request.session, sink);
            return true;
        }
        self.work_left -= share * count as u32;
        self.shares[..count].fill(share);
        let mut clones = std::mem::take(&mut self.wave);
        // They leave with the packet that they are of.
        self.is_by_kind = true;
        if self.sends_clones_at_once {
            self.copy_all(packets, request.session, &mut clones, sink);
        } else {
            self.clone_all(packets, request, &mut clones, burst, sink);
            for first in (0..clones.len()).step_by(BATCH_MAX) {
                let end = clones.len().min(first + BATCH_MAX);
                self.run_clones(exec, &mut clones[first..end], burst, sink);
            }
        }
        self.run_egress(exec, packets);
        let is_through = self.batch.packets[..count].iter().all(|desc| !asks(desc));
        if is_through && self.next.items.is_empty() && self.held.items.is_empty() {
            self.leave_together(packets, &clones, sink);
        } else {
            self.go_on_together(packets, &mut clones, burst, sink);
        }
        self.is_by_kind = false;
        clones.clear();
        self.wave = clones;
        self.finish(exec, &mut Vec::new(), 0..count, burst, sink);
        self.copies.end();
        true
    }

    /// Sends each packet behind its clones, where nothing changes either. There is work for them.
    fn send_with_copies<S: Sink>(&mut self, packets: &mut Vec<Packet>, session: Targets, sink: &mut S) {
        let (count, replicas) = (packets.len(), session.count);
        let (cuts, truncate) = self.lengths(session);
        let bytes = if truncate == 0 { cuts } else { truncate.min(u16::MAX.into()) as u16 };
        for (place, packet) in packets.drain(..).enumerate() {
            self.work_left -= replicas as u32 * units(packet.len() + self.records.bytes());
            self.copies.prepare(&packet, replicas, count - place);
            for i in 0..replicas {
                match self.copies.copy(&packet) {
                    Some(copy) => {
                        let to = session.replica(i).port & self.port_mask;
                        sink.send(to, owned(&cut(copy.into_raw(), bytes)));
                    }
                    None => sink.lost_copies(DropReason::Runtime(RuntimeDrop::NoBuffer), 1),
                }
            }
            let to = self.records.received(place);
            let to = self.records.of(to).get(Intrinsic::EgressSpec) as u32 & self.port_mask;
            sink.send(to, packet);
        }
        self.copies.end();
    }

    /// Makes the clones of all packets, which leave as they are.
    fn copy_all<S: Sink>(&mut self, packets: &[Packet], session: Targets, clones: &mut Vec<Item>, sink: &mut S) {
        let (cuts, truncate) = self.lengths(session);
        for (place, packet) in packets.iter().enumerate() {
            let raw = packet.raw();
            self.askers = packets.len() - place;
            let received = Descent::received(self.records.received(place), 0, self.passes[place], place);
            let from = Descent { truncate, ..received };
            for i in 0..self.affordable(session.count, raw, from.family, sink) {
                let Some(copy) = self.duplicate(raw, sink) else { continue };
                let to = session.replica(i).port & self.port_mask;
                clones.push(Item::leaves(&cut(copy, cuts), to, from));
            }
        }
    }

    /// To how many bytes a session's copies are cut when they are made, and when they are sent (0: not at all).
    fn lengths(&self, session: Targets) -> (u16, u32) {
        match session.length {
            0 => (u16::MAX, 0),
            bytes if self.program.cuts_clones_first => (bytes.min(u16::MAX.into()) as u16, 0),
            bytes => (u16::MAX, bytes),
        }
    }

    /// Makes the clones of all packets, which wait for their entry.
    fn clone_all<S: Sink>(
        &mut self,
        packets: &[Packet],
        request: Request,
        clones: &mut Vec<Item>,
        burst: Burst,
        sink: &mut S,
    ) {
        let Request { session, list } = request;
        let (cuts, truncate) = self.lengths(session);
        // All have the same but for the frame's length, the copy's port and what the list keeps.
        let template = self.records.zeroed();
        let common = self.records.of(template);
        common.set(Intrinsic::InstanceType, self.program.instance_types.ingress_clone);
        common.set(Intrinsic::ClassOfService, session.class_of_service.into());
        ingress_intrinsics(common, 0, burst.port, burst);
        egress_intrinsics(common, session.replica(0), burst.now_us);
        for (place, packet) in packets.iter().enumerate() {
            let raw = packet.raw();
            self.askers = packets.len() - place;
            let record = self.records.received(place);
            let from = Descent {
                entry: EntryKind::CloneIngress,
                truncate,
                ..Descent::received(record, 0, self.passes[place], place)
            };
            for i in 0..self.affordable(session.count, raw, from.family, sink) {
                let Some(copy) = self.duplicate(raw, sink) else { continue };
                let copy = cut(copy, cuts);
                let to = self.records.copy(template);
                self.records.copy_list(record, to, list);
                let slots = self.records.of(to);
                slots.set(Intrinsic::PacketLength, copy.len.into());
                if i > 0 {
                    let Replica { port, instance } = session.replica(i);
                    slots.set(Intrinsic::EgressPort, port.into());
                    slots.set(Intrinsic::EgressRid, instance.into());
                }
                clones.push(Item::waits(&copy, Descent { record: to, ..from }));
            }
        }
    }

    /// Takes clones through their entry, at most a batch. Those that are through stay where they are.
    fn run_clones<S: Sink>(&mut self, exec: &mut dyn Executor, clones: &mut [Item], burst: Burst, sink: &mut S) {
        self.call(exec, EntryKind::CloneIngress, clones, Row(0, clones.len()), burst);
        for (k, clone) in clones.iter_mut().enumerate() {
            let desc = &self.further.packets[k];
            match desc.fate == FateCode::Send as u32 {
                true => clone.is_through(desc),
                false => self.go_on_from(clone, k, burst, sink),
            }
        }
    }

    /// Takes the received packets through egress, in their descriptors.
    fn run_egress(&mut self, exec: &mut dyn Executor, packets: &mut [Packet]) {
        let normal = self.program.instance_types.normal;
        let now_us = self.batch.now_us;
        for place in 0..packets.len() {
            let record = self.records.received(place);
            let slots = self.records.of(record);
            slots.clear(Intrinsic::CloneFlag);
            slots.set(Intrinsic::InstanceType, normal);
            let port = slots.get(Intrinsic::EgressSpec) as u32;
            egress_intrinsics(slots, Replica { port, instance: 0 }, now_us);
        }
        exec.run(EntryKind::Egress, &mut self.batch);
        // Long before they are moved: a packet that is moved right after its fields were written is slow to read.
        packets.iter_mut().zip(&self.batch.packets).for_each(|(packet, desc)| apply(desc, packet));
    }

    /// All have come to their ends: each received packet leaves behind its clones.
    fn leave_together<S: Sink>(&mut self, packets: &mut Vec<Packet>, clones: &[Item], sink: &mut S) {
        let mut clones = clones.iter().peekable();
        for (place, packet) in packets.drain(..).enumerate() {
            while let Some(clone) = clones.next_if(|clone| usize::from(clone.family()) == place) {
                if let Some((packet, port)) = clone.leaving() {
                    sink.send(port, packet);
                }
            }
            match fate(&self.batch.packets[place]) {
                Ended::Send(port) => sink.send(port, packet),
                Ended::Drop(reason) => sink.drop(reason, packet),
                Ended::Replicate(_) | Ended::Multicast(_) | Ended::Again => unreachable!("it asks for something"),
            }
        }
    }

    /// Some ask for more: those that are through are held until the others are.
    fn go_on_together<S: Sink>(&mut self, packets: &mut Vec<Packet>, clones: &mut [Item], burst: Burst, sink: &mut S) {
        for clone in clones {
            self.hold(clone, sink);
        }
        let count = packets.len();
        for (place, packet) in packets.drain(..).enumerate() {
            let desc = self.batch.packets[place];
            let received = Descent::received(self.records.received(place), desc.consumed, self.passes[place], place);
            let mut item = Item::waits(&packet.into_raw(), Descent { entry: EntryKind::Egress, ..received });
            self.askers = count - place;
            self.further.packets[0] = desc;
            match desc.fate == FateCode::Send as u32 {
                true => {
                    item.is_through(&desc);
                    self.hold(&mut item, sink);
                }
                false => self.go_on_from(&mut item, 0, burst, sink),
            }
        }
    }

    /// The session that all packets of the batch are to be cloned to, if they ask for that and nothing else, alike.
    fn common_request(&mut self, packets: &[Packet]) -> Option<Request> {
        let others = [Intrinsic::DropFlag, Intrinsic::ResubmitFlag, Intrinsic::MulticastGroup];
        let clones = [Intrinsic::CloneSession, Intrinsic::ClonePort, Intrinsic::CloneFieldList];
        let first = self.records.received(0);
        let common = clones.map(|which| self.records.of(first).get(which));
        for (place, desc) in self.batch.packets[..packets.len()].iter().enumerate() {
            let record = self.records.received(place);
            let asked = self.records.of(record);
            let is_request = desc.fate == FateCode::Replicate as u32 && desc.fate_arg == 0;
            // Records hold something only then.
            let is_alike = is_request
                && asked.get(Intrinsic::CloneFlag) != 0
                && others.iter().all(|other| asked.get(*other) == 0)
                && clones.iter().zip(common).all(|(which, value)| asked.get(*which) == value)
                && self.program.drop_port != Some(asked.get(Intrinsic::EgressSpec));
            if !is_alike {
                return None;
            }
        }
        let session = self.session(first).filter(|session| session.count > 0)?;
        Some(Request { session, list: common[2] })
    }
}

/// A copy of at most so many bytes.
#[inline(always)]
fn cut(copy: RawPacket, bytes: u16) -> RawPacket {
    match bytes < copy.len {
        // What is cut is no large frame any more.
        true => copy.with_window(copy.offset, bytes).with_segment(0),
        false => copy,
    }
}

//! How packets wait for their further passes, and go through them in batches.
//!
//! What a burst asks for is done in *waves*: all that waits is run, what that asks for waits for the next wave. Packets wait in the order
//! of the received packets that they descend from, each one's descendants being its *family*, and within a family in the order
//! in which they were asked for. Then:
//!
//! - Within a family packets begin each pass in that order, first in first out, as if the family was alone. A packet that is
//!   through egress is deparsed before what waits behind the batch that it is in.
//! - Across families there is no order of passes: those of one kind make up a batch.
//! - Packets leave family by family ([`Engine::leave`]), so on each port in the order of the received ones.
//!
//! A program that reads how many packets wait sees each family alone, packet by packet.

use super::{Ended, Engine, Sink, fate};
use crate::engine::records::Record;
use crate::executor::Executor;
use abi::packet::{BATCH_MAX, PacketDesc};
use ir::{EntryKind, Intrinsic};
use pktio::Packet;

/// What all packets of a received burst have in common.
#[derive(Clone, Copy)]
pub(super) struct Burst {
    pub port: u32,
    pub now_us: u64,
}

/// A packet on its way.
pub(super) struct Item {
    /// `None` once it has gone elsewhere.
    pub packet: Option<Packet>,
    pub record: Record,
    pub entry: EntryKind,
    /// The received packet that it descends from, by its place in the batch.
    pub family: u8,
    /// Whether it is through and leaves by `port`, as soon as those before it have left.
    pub leaves: bool,
    pub port: u32,
    pub passes: u32,
    pub consumed: u32,
    /// The frame is cut to this many bytes when it is sent; 0 for never (clone sessions, unless the program has them cut first).
    pub truncate: u32,
    /// Its place among what waits: that of the packet that asked for it, then when.
    pub order: u64,
}

impl Item {
    /// A packet of the received batch.
    pub(super) fn received(packet: Packet, record: Record, family: u8, consumed: u32) -> Item {
        Item {
            packet: Some(packet),
            record,
            entry: EntryKind::Ingress,
            family,
            leaves: false,
            port: 0,
            passes: 0,
            consumed,
            truncate: 0,
            order: 0,
        }
    }

    /// What goes on from here as this packet.
    pub(super) fn child(&self, packet: Packet, record: Record, entry: EntryKind) -> Item {
        let Item { family, passes, consumed, .. } = *self;
        Item { entry, passes, ..Item::received(packet, record, family, consumed) }
    }

    /// The packet itself, on its way to another entry.
    #[inline]
    pub(super) fn itself(&mut self, entry: EntryKind) -> Item {
        let packet = self.take();
        Item { truncate: self.truncate, ..self.child(packet, self.record, entry) }
    }

    /// Its packet, for the one who looks at it.
    #[inline]
    pub(super) fn packet(&self) -> &Packet {
        self.packet.as_ref().expect("it has not gone")
    }

    /// Its packet, for the one who takes it elsewhere.
    #[inline]
    pub(super) fn take(&mut self) -> Packet {
        self.packet.take().expect("it has not gone")
    }

    /// Whether it waits for egress; what goes back to ingress or on to the deparser is in no egress queue.
    fn is_queued(&self) -> bool {
        matches!(self.entry, EntryKind::Egress | EntryKind::CloneIngress)
    }
}

/// Packets that wait for the next wave.
#[derive(Default)]
pub(super) struct Waiting {
    pub items: Vec<Item>,
    /// A bit for each kind of entry that they wait for.
    kinds: u8,
    is_unsorted: bool,
}

/// A packet that is through.
pub(super) struct Leaving {
    packet: Option<Packet>,
    port: u32,
    family: u8,
}

/// Packets that wait until those of earlier families have left.
#[derive(Default)]
pub(super) struct Held {
    items: Vec<Leaving>,
    is_unsorted: bool,
    order: Vec<u32>,
}

impl Engine {
    /// Makes a packet wait that was asked for by the one at this place.
    #[inline]
    pub(super) fn enqueue(&mut self, mut item: Item, asked_by: u64) {
        let waiting = self.next.items.len() as u64;
        if self.shows_depth && item.is_queued() {
            self.records.set(item.record, Intrinsic::EnqueueDepth, self.behind + waiting);
        }
        item.order = asked_by << 32 | waiting;
        self.next.kinds |= 1 << item.entry as u8;
        self.next.is_unsorted |= self.next.items.last().is_some_and(|last| last.order > item.order);
        self.next.items.push(item);
    }

    /// Runs what waits until nothing does: first those of the received packets that are through egress, in `received`.
    pub(super) fn drain<S: Sink>(&mut self, exec: &mut dyn Executor, received: &mut Vec<Item>, burst: Burst, sink: &mut S) {
        if !received.is_empty() {
            self.deparse(exec, received, None, burst, sink);
            received.clear();
        }
        let mut wave = std::mem::take(&mut self.wave);
        while !self.next.items.is_empty() {
            std::mem::swap(&mut wave, &mut self.next.items);
            let kinds = std::mem::take(&mut self.next.kinds);
            if std::mem::take(&mut self.next.is_unsorted) {
                wave.sort_unstable_by_key(|item| item.order);
            }
            if self.shows_depth {
                self.one_by_one(exec, &mut wave, burst, sink);
            } else if kinds.is_power_of_two() {
                self.in_order(exec, &mut wave, burst, sink);
            } else {
                self.by_kind(exec, &mut wave, burst, sink);
            }
            wave.clear();
        }
        self.wave = wave;
        self.records.free_all();
        self.release(sink);
    }

    /// A wave of one kind.
    fn in_order<S: Sink>(&mut self, exec: &mut dyn Executor, wave: &mut [Item], burst: Burst, sink: &mut S) {
        for first in (0..wave.len()).step_by(BATCH_MAX) {
            let end = wave.len().min(first + BATCH_MAX);
            self.taken.clear();
            self.taken.extend(first as u32..end as u32);
            self.run(exec, wave, burst, sink);
        }
    }

    /// A wave for which it must look as if each packet went alone.
    fn one_by_one<S: Sink>(&mut self, exec: &mut dyn Executor, wave: &mut [Item], burst: Burst, sink: &mut S) {
        for i in 0..wave.len() {
            self.behind = (wave.len() - i - 1) as u64;
            if wave[i].is_queued() {
                let depth = self.behind + self.next.items.len() as u64;
                self.records.set(wave[i].record, Intrinsic::DequeueDepth, depth);
            }
            self.taken.clear();
            self.taken.push(i as u32);
            self.run(exec, wave, burst, sink);
        }
        self.behind = 0;
    }

    /// A wave of several kinds: in turns, of all families that go on with the same kind each as much as goes on with that.
    fn by_kind<S: Sink>(&mut self, exec: &mut dyn Executor, wave: &mut [Item], burst: Burst, sink: &mut S) {
        let mut families = std::mem::take(&mut self.families);
        for (i, item) in wave.iter().enumerate() {
            match families.last_mut() {
                Some((_, end)) if wave[*end - 1].family == item.family => *end = i + 1,
                _ => families.push((i, i + 1)),
            }
        }
        self.is_by_kind = true;
        while !families.is_empty() {
            // Egress last: that is where most of them end.
            let kinds = || families.iter().map(|(head, _)| wave[*head].entry);
            let kind = kinds().find(|kind| *kind != EntryKind::Egress).unwrap_or(EntryKind::Egress);
            self.taken.clear();
            for (head, end) in &mut families {
                while *head < *end && wave[*head].entry == kind {
                    self.taken.push(*head as u32);
                    *head += 1;
                    if self.taken.len() == BATCH_MAX {
                        self.run(exec, wave, burst, sink);
                        self.taken.clear();
                    }
                }
            }
            if !self.taken.is_empty() {
                self.run(exec, wave, burst, sink);
            }
            families.retain(|(head, end)| head < end);
        }
        self.is_by_kind = false;
        self.families = families;
    }

    /// Runs the packets at `taken`, all of one kind, and takes each on.
    fn run<S: Sink>(&mut self, exec: &mut dyn Executor, wave: &mut [Item], burst: Burst, sink: &mut S) {
        let mut taken = std::mem::take(&mut self.taken);
        let entry = wave[taken[0] as usize].entry;
        self.call(exec, entry, wave, &taken, burst);
        let mut deparsing = 0;
        for k in 0..taken.len() {
            let at = taken[k] as usize;
            self.askers = taken.len() - k;
            let item = &mut wave[at];
            let ended = self.ended(item, k);
            match ended {
                Ended::Send(port) if deparsing == 0 => self.leave(item, port, sink),
                Ended::Send(port) => (item.leaves, item.port) = (true, port),
                Ended::Drop(reason) => sink.drop(reason, item.take()),
                Ended::Replicate(point) => {
                    self.replicate(item, point, at as u64, burst, sink);
                    deparsing += usize::from(item.entry == EntryKind::Deparse && item.packet.is_some());
                }
            }
        }
        if deparsing > 0 {
            self.deparse(exec, wave, Some(&taken), burst, sink);
        }
        taken.clear();
        self.taken = taken;
    }

    /// Takes those through the deparser that are through egress, of the received packets or of those at `taken`; then all leave, in order, that can.
    #[inline(never)]
    fn deparse<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        items: &mut [Item],
        taken: Option<&[u32]>,
        burst: Burst,
        sink: &mut S,
    ) {
        let mut all = std::mem::take(&mut self.deparsing);
        loop {
            all.clear();
            let waits = |at: &u32| {
                let item = &items[*at as usize];
                item.entry == EntryKind::Deparse && item.packet.is_some() && !item.leaves
            };
            match taken {
                Some(taken) => all.extend(taken.iter().copied().filter(waits)),
                None => all.extend((0..items.len() as u32).filter(waits)),
            }
            if all.is_empty() {
                break;
            }
            self.call(exec, EntryKind::Deparse, items, &all, burst);
            for (k, at) in all.iter().enumerate() {
                self.askers = all.len() - k;
                let item = &mut items[*at as usize];
                match self.ended(item, k) {
                    Ended::Send(port) => (item.leaves, item.port) = (true, port),
                    Ended::Drop(reason) => sink.drop(reason, item.take()),
                    Ended::Replicate(point) => {
                        let place = if taken.is_some() { u64::from(*at) } else { u64::from(item.family) };
                        self.replicate(item, point, place, burst, sink);
                    }
                }
            }
        }
        self.deparsing = all;
        let mut leave = |item: &mut Item| {
            if item.leaves {
                item.leaves = false;
                self.leave(item, item.port, sink);
            }
        };
        match taken {
            Some(taken) => taken.iter().for_each(|at| leave(&mut items[*at as usize])),
            None => items.iter_mut().for_each(leave),
        }
    }

    /// Runs packets, at most a batch.
    #[inline]
    fn call(&mut self, exec: &mut dyn Executor, entry: EntryKind, items: &[Item], which: &[u32], burst: Burst) {
        self.further.count = which.len() as u32;
        self.further.now_us = burst.now_us;
        for (desc, at) in self.further.packets.iter_mut().zip(which) {
            let Item { packet: Some(packet), consumed, record, .. } = &items[*at as usize] else {
                unreachable!("a packet that waits has not gone")
            };
            *desc = PacketDesc {
                data: packet.data_mut_ptr(),
                len: packet.len() as u32,
                headroom: packet.headroom() as u32,
                tailroom: packet.tailroom() as u32,
                ingress_port: burst.port,
                consumed: *consumed,
                record: self.records.pointer(*record),
                timestamp_us: burst.now_us,
                ..PacketDesc::EMPTY
            };
        }
        exec.run(entry, &mut self.further);
    }

    /// What became of a packet, the `k`th of those that have just run.
    #[inline]
    fn ended(&self, item: &mut Item, k: usize) -> Ended {
        let desc = &self.further.packets[k];
        if let Some(packet) = &mut item.packet {
            super::apply(desc, packet);
        }
        item.consumed = desc.consumed;
        fate(desc)
    }

    #[inline]
    fn leave<S: Sink>(&mut self, item: &mut Item, port: u32, sink: &mut S) {
        let mut packet = item.take();
        if item.truncate != 0 {
            packet.truncate(item.truncate as usize);
        }
        let may_pass = !self.is_by_kind;
        self.send(packet, port, item.family, may_pass, sink);
    }

    /// Sends a packet, at once if none can come that is to leave before it.
    #[inline]
    pub(super) fn send<S: Sink>(&mut self, packet: Packet, port: u32, family: u8, may_pass: bool, sink: &mut S) {
        if may_pass && self.held.items.is_empty() && self.next.items.is_empty() {
            return sink.send(port, packet);
        }
        self.held.is_unsorted |= self.held.items.last().is_some_and(|last| last.family > family);
        self.held.items.push(Leaving { packet: Some(packet), port, family });
    }

    /// Sends what is held, family by family.
    #[inline]
    fn release<S: Sink>(&mut self, sink: &mut S) {
        let Held { items, is_unsorted, order } = &mut self.held;
        let mut send = |leaving: &mut Leaving| {
            if let Some(packet) = leaving.packet.take() {
                sink.send(leaving.port, packet);
            }
        };
        if std::mem::take(is_unsorted) {
            // A counting sort.
            let mut ends = [0; BATCH_MAX];
            items.iter().for_each(|leaving| ends[usize::from(leaving.family)] += 1);
            let mut sum = 0;
            for end in &mut ends {
                (*end, sum) = (sum, sum + *end);
            }
            order.clear();
            order.resize(items.len(), 0);
            for (i, leaving) in items.iter().enumerate() {
                let end = &mut ends[usize::from(leaving.family)];
                order[*end as usize] = i as u32;
                *end += 1;
            }
            order.iter().for_each(|i| send(&mut items[*i as usize]));
        } else {
            items.iter_mut().for_each(send);
        }
        items.clear();
    }
}

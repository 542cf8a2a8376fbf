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

use super::records::Record;
use super::{Ended, Engine, Sink, apply, fate};
use crate::executor::Executor;
use abi::packet::{BATCH_MAX, PacketDesc};
use ir::{EntryKind, Intrinsic};
use pktio::{Packet, RawPacket};

/// What all packets of a received burst have in common.
#[derive(Clone, Copy)]
pub(super) struct Burst {
    pub port: u32,
    pub now_us: u64,
}

/// What a packet on its way takes along besides its frame.
#[derive(Clone, Copy)]
pub(super) struct Descent {
    pub record: Record,
    pub consumed: u32,
    /// The frame is cut to this many bytes when it is sent; 0 for never (clone sessions, unless the program has them cut first).
    pub truncate: u32,
    /// Its place in what runs: of the received batch, or of a wave.
    pub place: u32,
    /// The received packet that it descends from, by its place in the batch.
    pub family: u8,
    pub passes: u8,
}

/// A packet on its way.
pub(super) struct Item {
    /// `None` once it has gone elsewhere.
    packet: Option<Packet>,
    record: Record,
    /// Its place among what waits: that of the packet that asked for it, then when.
    order: u64,
    consumed: u32,
    truncate: u32,
    /// Whether it is through and leaves by this port, as soon as those before it have left.
    port: u32,
    leaves: bool,
    entry: EntryKind,
    family: u8,
    passes: u8,
}

const _: () = assert!(size_of::<Item>() == 64);

impl Item {
    #[inline(always)]
    fn new(packet: Packet, descent: Descent, entry: EntryKind, order: u64) -> Item {
        let Descent { record, consumed, truncate, family, passes, .. } = descent;
        Item { packet: Some(packet), record, order, consumed, truncate, port: 0, leaves: false, entry, family, passes }
    }

    /// A received packet that is through egress.
    pub(super) fn deparses(packet: Packet, descent: Descent) -> Item {
        Item::new(packet, descent, EntryKind::Deparse, 0)
    }

    #[inline(always)]
    fn descent(&self, place: u32) -> Descent {
        let Item { record, consumed, truncate, family, passes, .. } = *self;
        Descent { record, consumed, truncate, place, family, passes }
    }

    /// Its packet, for the one who takes it elsewhere.
    #[inline(always)]
    fn take(&mut self) -> Packet {
        self.packet.take().expect("it has not gone")
    }
}

/// Whether what waits for an entry waits for egress; what goes back to ingress or on to the deparser is in no egress queue.
fn is_queued(entry: EntryKind) -> bool {
    matches!(entry, EntryKind::Egress | EntryKind::CloneIngress)
}

/// Packets that wait for the next wave.
#[derive(Default)]
pub(super) struct Waiting {
    pub items: Vec<Item>,
    /// A bit for each kind of entry that they wait for.
    kinds: u8,
    is_unsorted: bool,
    /// The place of the one that asked last.
    last: u32,
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
    /// Makes a packet wait, which the one at `descent.place` has asked for. Inlined, so that the item is written where it stays: one that
    /// is moved right after its fields were written is slow to read.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, packet: Packet, descent: Descent, entry: EntryKind) {
        let waiting = self.next.items.len() as u64;
        if self.shows_depth && is_queued(entry) {
            self.records.of(descent.record).set(Intrinsic::EnqueueDepth, self.behind + waiting);
        }
        self.next.kinds |= 1 << entry as u8;
        self.next.is_unsorted |= descent.place < self.next.last;
        self.next.last = descent.place;
        self.next.items.push(Item::new(packet, descent, entry, u64::from(descent.place) << 32 | waiting));
    }

    /// Runs what waits until nothing does: first, if there are any, the received packets that are through egress.
    pub(super) fn drain<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        received: &mut Vec<Item>,
        burst: Burst,
        sink: &mut S,
    ) {
        if !received.is_empty() {
            self.deparse(exec, received, None, burst, sink);
            received.clear();
        }
        let mut wave = std::mem::take(&mut self.wave);
        while !self.next.items.is_empty() {
            std::mem::swap(&mut wave, &mut self.next.items);
            let kinds = std::mem::take(&mut self.next.kinds);
            self.next.last = 0;
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
            if is_queued(wave[i].entry) {
                let depth = self.behind + self.next.items.len() as u64;
                self.records.of(wave[i].record).set(Intrinsic::DequeueDepth, depth);
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
            let item = &mut wave[at];
            match fate(&self.further.packets[k]) {
                Ended::Send(port) if deparsing == 0 => {
                    let packet = moved(item.take(), &self.further.packets[k]);
                    self.leave(packet, port, item, sink);
                }
                Ended::Send(port) => {
                    self.ended(item, k);
                    (item.leaves, item.port) = (true, port);
                }
                Ended::Drop(reason) => sink.drop(reason, item.take()),
                Ended::Replicate(point) => {
                    self.askers = taken.len() - k;
                    let packet = moved(item.take(), &self.further.packets[k]);
                    item.consumed = self.further.packets[k].consumed;
                    item.packet = self.replicate(packet, item.descent(at as u32), point, burst, sink);
                    if item.packet.is_some() {
                        item.entry = EntryKind::Deparse;
                        deparsing += 1;
                    }
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
                self.ended(item, k);
                match fate(&self.further.packets[k]) {
                    Ended::Send(port) => (item.leaves, item.port) = (true, port),
                    Ended::Drop(reason) => sink.drop(reason, item.take()),
                    Ended::Replicate(point) => {
                        let place = if taken.is_some() { *at } else { item.family.into() };
                        let packet = item.take();
                        item.packet = self.replicate(packet, item.descent(place), point, burst, sink);
                    }
                }
            }
        }
        self.deparsing = all;
        let mut leave = |item: &mut Item| {
            if item.leaves {
                item.leaves = false;
                let packet = item.take();
                self.leave(packet, item.port, item, sink);
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

    /// Takes over what became of a packet that does not leave yet, the `k`th of those that have just run.
    #[inline]
    fn ended(&self, item: &mut Item, k: usize) {
        let desc = &self.further.packets[k];
        if let Some(packet) = &mut item.packet {
            apply(desc, packet);
        }
        item.consumed = desc.consumed;
    }

    #[inline(always)]
    fn leave<S: Sink>(&mut self, mut packet: Packet, port: u32, item: &Item, sink: &mut S) {
        if item.truncate != 0 {
            packet.truncate(item.truncate as usize);
        }
        let may_pass = !self.is_by_kind;
        self.send(packet, port, item.family, may_pass, sink);
    }

    /// Sends a packet, at once if none can come that is to leave before it.
    #[inline(always)]
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

/// The packet with its frame where the executor has left it: `apply` for one that goes on at once.
#[inline(always)]
fn moved(packet: Packet, desc: &PacketDesc) -> Packet {
    debug_assert!((desc.headroom + desc.len) as usize <= packet.capacity());
    let raw = RawPacket { offset: desc.headroom as u16, len: desc.len as u16, ..packet.into_raw() };
    // SAFETY: it is the packet's own buffer, and executors keep `headroom + len + tailroom` at its capacity (contract of `PacketDesc`).
    unsafe { Packet::from_raw(raw) }
}

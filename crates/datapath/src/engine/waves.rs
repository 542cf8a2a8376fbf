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
#![allow(unsafe_code)]

use super::records::Record;
use super::{Ended, Engine, Sink, fate, run_within};
use crate::executor::Executor;
use abi::packet::{BATCH_MAX, FateCode, PacketDesc};
use ir::{EntryKind, Intrinsic};
use pktio::{Packet, RawPacket};
use std::mem::ManuallyDrop;

/// What all packets of a received burst have in common.
#[derive(Clone, Copy)]
pub(super) struct Burst {
    /// The port it came by, for [`Engine::origin`].
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
    /// Its place in what runs: in the received batch, or in a wave; while it waits, that of the one that asked for it.
    pub place: u32,
    /// The received packet that it descends from, by its place in the batch.
    pub family: u8,
    pub passes: u8,
    pub entry: EntryKind,
    pub state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    /// It is through, and leaves as soon as those before it have left.
    Leaves,
    /// It has been sent, dropped or queued again, so the item no longer owns the buffer.
    Gone,
}

/// A packet in the engine. It owns its buffer unless its state is `Gone`. It is plain data without a destructor; buffers
/// are given back by whoever takes an item to its end.
pub(super) struct Item {
    raw: RawPacket,
    descent: Descent,
    /// Where it leaves.
    port: u32,
    /// How many waited when it came.
    number: u32,
}

const _: () = assert!(size_of::<Item>() == 64);

impl Descent {
    /// A packet of the received batch.
    #[inline(always)]
    pub(super) fn received(record: Record, consumed: u32, passes: u8, place: usize) -> Descent {
        Descent {
            record,
            consumed,
            truncate: 0,
            place: place as u32,
            family: place as u8,
            passes,
            entry: EntryKind::Ingress,
            state: State::Waits,
        }
    }
}

impl Item {
    /// A packet that waits for `descent.entry`.
    #[inline(always)]
    pub(super) fn waits(raw: &RawPacket, descent: Descent) -> Item {
        Item { raw: *raw, descent, port: 0, number: 0 }
    }

    /// The received packet that it descends from, by its place.
    #[inline(always)]
    pub(super) fn family(&self) -> u8 {
        self.descent.family
    }

    /// A received packet that is through egress.
    pub(super) fn deparses(raw: &RawPacket, descent: Descent) -> Item {
        Item { raw: *raw, descent: Descent { entry: EntryKind::Deparse, ..descent }, port: 0, number: 0 }
    }
}

/// What packets wait for, in the order in which kinds take turns. Egress is last: that is where most of them end.
const ORDER: [EntryKind; 3] = [EntryKind::CloneIngress, EntryKind::Reingress, EntryKind::Egress];

/// Whether what waits for an entry waits for egress; what goes back to ingress or on to the deparser is in no egress queue.
fn is_queued(entry: EntryKind) -> bool {
    matches!(entry, EntryKind::Egress | EntryKind::CloneIngress)
}

/// The packet that an item holds, whose owner it is from here on.
#[inline(always)]
pub(super) fn owned(raw: &RawPacket) -> Packet {
    // SAFETY: items hold what packets were; whoever calls this takes the item to its end, once.
    unsafe { Packet::from_raw(*raw) }
}

/// The packet that an item holds and goes on holding.
#[inline(always)]
pub(super) fn borrowed(raw: &RawPacket) -> ManuallyDrop<Packet> {
    ManuallyDrop::new(owned(raw))
}

/// Which items of a wave run together.
pub(super) trait Places: Copy {
    fn count(self) -> usize;
    fn at(self, k: usize) -> usize;
}

/// These many from here on.
#[derive(Clone, Copy)]
pub(super) struct Row(pub usize, pub usize);

impl Places for Row {
    #[inline(always)]
    fn count(self) -> usize {
        self.1
    }

    #[inline(always)]
    fn at(self, k: usize) -> usize {
        self.0 + k
    }
}

impl Places for &[u32] {
    #[inline(always)]
    fn count(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn at(self, k: usize) -> usize {
        self[k] as usize
    }
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
    raw: RawPacket,
    port: u32,
    family: u8,
}

/// Packets that wait until those of earlier families have left.
#[derive(Default)]
pub(super) struct Held {
    pub items: Vec<Leaving>,
    is_unsorted: bool,
    order: Vec<u32>,
}

impl Engine {
    /// Makes a packet wait for `descent.entry`, which the one at `descent.place` has asked for. Inlined, so that the item is written
    /// where it stays: one that is moved right after its fields were written is slow to read.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, raw: &RawPacket, descent: Descent) {
        let waiting = self.next.items.len();
        if self.shows_depth && !self.is_resuming && is_queued(descent.entry) {
            self.records.of(descent.record).set(Intrinsic::EnqueueDepth, self.behind + waiting as u64);
        }
        self.next.kinds |= 1 << descent.entry as u8;
        self.next.is_unsorted |= descent.place < self.next.last;
        self.next.last = descent.place;
        self.next.items.push(Item { raw: *raw, descent, port: 0, number: waiting as u32 });
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
            let all = Row(0, received.len());
            self.deparse(exec, received, all, true, burst, sink);
            received.clear();
        }
        let mut wave = std::mem::take(&mut self.wave);
        while !self.next.items.is_empty() {
            std::mem::swap(&mut wave, &mut self.next.items);
            let kinds = std::mem::take(&mut self.next.kinds);
            self.next.last = 0;
            if std::mem::take(&mut self.next.is_unsorted) {
                wave.sort_unstable_by_key(|item| (item.descent.place, item.number));
            }
            if self.shows_depth && !self.is_resuming {
                self.one_by_one(exec, &mut wave, burst, sink);
            } else if kinds.is_power_of_two() {
                for first in (0..wave.len()).step_by(BATCH_MAX) {
                    let count = BATCH_MAX.min(wave.len() - first);
                    self.run(exec, &mut wave, Row(first, count), burst, sink);
                }
            } else {
                self.is_by_kind = true;
                if self.sort_by_kind(&wave) {
                    self.kind_after_kind(exec, &mut wave, burst, sink);
                } else {
                    self.in_turns(exec, &mut wave, burst, sink);
                }
                self.is_by_kind = false;
            }
            wave.clear();
        }
        self.wave = wave;
        self.records.free_all();
        if !self.held.items.is_empty() {
            self.release(sink);
        }
    }

    /// A wave for which it must look as if each packet went alone.
    fn one_by_one<S: Sink>(&mut self, exec: &mut dyn Executor, wave: &mut [Item], burst: Burst, sink: &mut S) {
        for i in 0..wave.len() {
            self.behind = (wave.len() - i - 1) as u64;
            if is_queued(wave[i].descent.entry) {
                let depth = self.behind + self.next.items.len() as u64;
                self.records.of(wave[i].descent.record).set(Intrinsic::DequeueDepth, depth);
            }
            self.run(exec, wave, Row(i, 1), burst, sink);
        }
        self.behind = 0;
    }

    /// Lists the places of each kind; whether all families want the kinds in the same order.
    fn sort_by_kind(&mut self, wave: &[Item]) -> bool {
        self.kinds.iter_mut().for_each(Vec::clear);
        let (mut same, mut family, mut last) = (true, 0, 0);
        for (at, item) in wave.iter().enumerate() {
            let rank = match item.descent.entry {
                EntryKind::CloneIngress => 0,
                EntryKind::Reingress => 1,
                _ => 2,
            };
            same &= item.descent.family != family || rank >= last;
            (family, last) = (item.descent.family, rank);
            self.kinds[rank].push(at as u32);
        }
        same
    }

    /// A wave of several kinds, which are listed and which all families want in the same order.
    fn kind_after_kind<S: Sink>(&mut self, exec: &mut dyn Executor, wave: &mut [Item], burst: Burst, sink: &mut S) {
        let kinds = std::mem::take(&mut self.kinds);
        for batch in kinds.iter().flat_map(|places| places.chunks(BATCH_MAX)) {
            self.run(exec, wave, batch, burst, sink);
        }
        self.kinds = kinds;
    }

    /// A wave of several kinds: in turns, of all families that go on with the same kind each as much as goes on with that.
    fn in_turns<S: Sink>(&mut self, exec: &mut dyn Executor, wave: &mut [Item], burst: Burst, sink: &mut S) {
        let mut families = std::mem::take(&mut self.families);
        let mut taken = std::mem::take(&mut self.taken);
        for (i, item) in wave.iter().enumerate() {
            match families.last_mut() {
                Some((_, end)) if wave[*end - 1].descent.family == item.descent.family => *end = i + 1,
                _ => families.push((i, i + 1)),
            }
        }
        while !families.is_empty() {
            let heads = || families.iter().map(|(head, _)| wave[*head].descent.entry);
            let kind = ORDER.into_iter().find(|kind| heads().any(|head| head == *kind));
            let kind = kind.expect("no packet waits for another kind of entry");
            taken.clear();
            for (head, end) in &mut families {
                while *head < *end && wave[*head].descent.entry == kind {
                    taken.push(*head as u32);
                    *head += 1;
                    if taken.len() == BATCH_MAX {
                        self.run(exec, wave, &*taken, burst, sink);
                        taken.clear();
                    }
                }
            }
            if !taken.is_empty() {
                self.run(exec, wave, &*taken, burst, sink);
            }
            families.retain(|(head, end)| head < end);
        }
        (self.families, self.taken) = (families, taken);
    }

    /// Runs packets that wait for the same entry, and takes each on.
    fn run<S: Sink, P: Places>(
        &mut self,
        exec: &mut dyn Executor,
        wave: &mut [Item],
        places: P,
        burst: Burst,
        sink: &mut S,
    ) {
        let entry = wave[places.at(0)].descent.entry;
        self.call(exec, entry, wave, places, burst);
        let mut deparsing = false;
        // Until one goes on.
        let mut may_pass = !self.is_by_kind && self.held.items.is_empty() && self.next.items.is_empty();
        for k in 0..places.count() {
            let at = places.at(k);
            let item = &mut wave[at];
            let desc = &self.further.packets[k];
            if desc.fate == FateCode::Send as u32 && !deparsing {
                let (raw, port) = (moved(item.raw, desc), desc.egress_port);
                if may_pass && item.descent.truncate == 0 {
                    sink.send(port, owned(&raw));
                } else {
                    self.leave(raw, port, &item.descent, sink);
                }
            } else {
                may_pass = false;
                self.askers = places.count() - k;
                deparsing |= self.go_on(item, k, at as u32, burst, sink);
            }
        }
        if deparsing {
            self.deparse(exec, wave, places, false, burst, sink);
        }
    }

    /// Takes a packet on that has run, as the `k`th, and does not leave at once; whether it is through egress and goes on to the deparser.
    #[inline(never)]
    pub(super) fn go_on<S: Sink>(&mut self, item: &mut Item, k: usize, place: u32, burst: Burst, sink: &mut S) -> bool {
        let desc = &self.further.packets[k];
        let raw = moved(item.raw, desc);
        item.raw = raw;
        item.descent.consumed = desc.consumed;
        match fate(desc) {
            Ended::Send(port) => (item.port, item.descent.state) = (port, State::Leaves),
            Ended::Drop(reason) => {
                item.descent.state = State::Gone;
                sink.drop(reason, owned(&raw));
            }
            Ended::Multicast(group) => {
                item.descent.state = State::Gone;
                let (family, may_pass) = (item.descent.family, !self.is_by_kind);
                self.send_to_group(&raw, group, family, may_pass, sink);
            }
            Ended::Again => {
                self.reenter(&raw, Descent { place, ..item.descent }, sink);
                item.descent.state = State::Gone;
            }
            Ended::Replicate(point) => {
                let deparses = self.replicate(&raw, Descent { place, ..item.descent }, point, burst, sink);
                item.descent.state = if deparses { State::Waits } else { State::Gone };
                if deparses {
                    item.descent.entry = EntryKind::Deparse;
                }
                return deparses;
            }
        }
        false
    }

    /// Makes a packet that is through, if it is, leave behind what is held.
    pub(super) fn hold<S: Sink>(&mut self, item: &mut Item, sink: &mut S) {
        if item.descent.state == State::Leaves {
            item.descent.state = State::Gone;
            self.leave(item.raw, item.port, &item.descent, sink);
        }
    }

    /// Takes those through the deparser that are through egress, of the received packets or of a wave's; then all leave, in order, that can.
    #[inline(never)]
    pub(super) fn deparse<S: Sink, P: Places>(
        &mut self,
        exec: &mut dyn Executor,
        items: &mut [Item],
        places: P,
        are_received: bool,
        burst: Burst,
        sink: &mut S,
    ) {
        let mut all = std::mem::take(&mut self.deparsing);
        loop {
            all.clear();
            all.extend((0..places.count()).map(|k| places.at(k) as u32).filter(|at| {
                let descent = &items[*at as usize].descent;
                descent.entry == EntryKind::Deparse && descent.state == State::Waits
            }));
            if all.is_empty() {
                break;
            }
            self.call(exec, EntryKind::Deparse, items, &*all, burst);
            for (k, at) in all.iter().enumerate() {
                let item = &mut items[*at as usize];
                self.askers = all.len() - k;
                let place = if are_received { item.descent.place } else { *at };
                self.go_on(item, k, place, burst, sink);
            }
        }
        self.deparsing = all;
        for k in 0..places.count() {
            let item = &mut items[places.at(k)];
            if item.descent.state == State::Leaves {
                item.descent.state = State::Gone;
                self.leave(item.raw, item.port, &item.descent, sink);
            }
        }
    }

    /// Runs packets, at most a batch.
    #[inline]
    pub(super) fn call<P: Places>(
        &mut self,
        exec: &mut dyn Executor,
        entry: EntryKind,
        items: &[Item],
        places: P,
        burst: Burst,
    ) {
        self.further.count = places.count() as u32;
        self.further.now_us = burst.now_us;
        for (k, desc) in self.further.packets.iter_mut().take(places.count()).enumerate() {
            let Item { raw, descent, .. } = &items[places.at(k)];
            debug_assert!(descent.state == State::Waits);
            let port = match self.is_resuming {
                true => self.origins[usize::from(descent.family)],
                false => burst.port,
            };
            describe(desc, raw, self.records.pointer(descent.record), descent.consumed, Burst { port, ..burst });
        }
        self.run_further(exec, entry);
    }

    /// Runs what is in `further`, unless loops have spent all that they may.
    pub(super) fn run_further(&mut self, exec: &mut dyn Executor, entry: EntryKind) {
        run_within(&mut self.steps_left, exec, entry, &mut self.further);
    }

    /// A packet leaves, or is held until it can.
    #[inline(always)]
    fn leave<S: Sink>(&mut self, raw: RawPacket, port: u32, descent: &Descent, sink: &mut S) {
        if descent.truncate != 0 {
            return self.leave_cut(raw, port, descent, sink);
        }
        let may_pass = !self.is_by_kind;
        self.send(raw, port, descent.family, may_pass, sink);
    }

    #[cold]
    fn leave_cut<S: Sink>(&mut self, raw: RawPacket, port: u32, descent: &Descent, sink: &mut S) {
        let mut packet = owned(&raw);
        packet.truncate(descent.truncate as usize);
        let may_pass = !self.is_by_kind;
        self.send(packet.into_raw(), port, descent.family, may_pass, sink);
    }

    /// Sends a packet, at once if none can come that is to leave before it.
    #[inline(always)]
    pub(super) fn send<S: Sink>(&mut self, raw: RawPacket, port: u32, family: u8, may_pass: bool, sink: &mut S) {
        if may_pass && self.held.items.is_empty() && self.next.items.is_empty() {
            return sink.send(port, owned(&raw));
        }
        self.held.is_unsorted |= self.held.items.last().is_some_and(|last| last.family > family);
        self.held.items.push(Leaving { raw, port, family });
    }

    /// Sends what is held, family by family.
    fn release<S: Sink>(&mut self, sink: &mut S) {
        let Held { items, is_unsorted, order } = &mut self.held;
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
            for i in order {
                let leaving = &items[*i as usize];
                sink.send(leaving.port, owned(&leaving.raw));
            }
        } else {
            items.iter().for_each(|leaving| sink.send(leaving.port, owned(&leaving.raw)));
        }
        items.clear();
    }
}

/// Describes a packet for an entry: only what compiled code reads.
#[inline(always)]
pub(super) fn describe(desc: &mut PacketDesc, raw: &RawPacket, record: *mut u64, consumed: u32, burst: Burst) {
    let (headroom, len) = (u32::from(raw.offset), u32::from(raw.len));
    desc.data = borrowed(raw).data_mut_ptr();
    desc.len = len;
    desc.headroom = headroom;
    desc.tailroom = u32::from(raw.capacity) - headroom - len;
    desc.ingress_port = burst.port;
    desc.consumed = consumed;
    desc.record = record;
    desc.timestamp_us = burst.now_us;
}

/// The packet with its frame where the executor has left it.
#[inline(always)]
pub(super) fn moved(raw: RawPacket, desc: &PacketDesc) -> RawPacket {
    raw.with_window(desc.headroom as u16, desc.len as u16)
}

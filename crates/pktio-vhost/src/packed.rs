//! A packed virtqueue (virtio 1.2, 2.8): one descriptor ring, in which driver and
//! device mark descriptors as available or used.
//!
//! Descriptor chains are contiguous, so the start of the next is known only after the previous
//! has been walked. [`Scan`] walks as many as a burst needs. It is not kept between calls: all
//! chains taken are given back in the same call.
//!
//! Frames in one buffer each are handled by `plain`; [`Packed::receive_rest`] and [`Packed::send_rest`] continue at the
//! first chain of another form.
//!
//! Threads: the holder of the queue's lock. Tests: `ring/tests.rs`.

use crate::chain::{self, Piece, Read, Room, Written};
use crate::memory::Memory;
use crate::plain::{self, Frame, Frames};
use crate::terms::{BURST_MAX, Budget, Burst, CHAINS_MAX, Desc, Fault, NEXT, PIECES_MAX, Parts, Table, Terms, WRITE};
use pktio::{Packet, Pool};
use shared_memory::Array;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const EVENTS_ENABLE: u16 = 0;
const EVENTS_DISABLE: u16 = 1;
/// Offset of the flags in an event suppression structure.
const EVENT_FLAGS_AT: usize = 2;
const DESC_BYTES: usize = 16;
/// Descriptors in a cache line.
const DESC_PER_LINE: usize = 4;
/// Bit 15 of a ring index in the protocol: the wrap counter.
const WRAP: u16 = 1 << 15;

/// A position in the ring with its wrap counter, which inverts on each lap and with it the meaning of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    at: u16,
    wrap: bool,
}

impl Spot {
    fn advance(&mut self, size: u16, steps: u16) {
        let at = u32::from(self.at) + u32::from(steps);
        if at >= u32::from(size) {
            self.wrap = !self.wrap;
        }
        // `steps` is at most `size`, so at most one lap is added.
        self.at = (at % u32::from(size)) as u16;
    }

    #[inline(always)]
    fn step(&mut self, size: u16) {
        self.at += 1;
        if self.at == size {
            *self = Spot { at: 0, wrap: !self.wrap };
        }
    }

    /// Whether the flags of the descriptor at this position mark it as available.
    #[inline(always)]
    fn has(self, flags: u16) -> bool {
        (flags & AVAIL != 0) == self.wrap && (flags & USED != 0) != self.wrap
    }

    /// The flags that mark a descriptor at this position as used.
    #[inline(always)]
    fn marks(self) -> u16 {
        if self.wrap { AVAIL | USED } else { 0 }
    }
}

pub(crate) struct Packed {
    memory: Arc<Memory>,
    parts: Parts,
    /// Position of the first descriptor that was not given back.
    next: Spot,
    /// Frames received in the last burst; as many descriptors are prefetched. The
    /// guest is about to write those behind them.
    last: usize,
    hint: usize,
}

/// Length and alignment in bytes of the parts of a ring with `size` descriptors: descriptor ring, driver and device
/// event suppression structures.
pub(crate) fn layout(size: u16) -> [(usize, usize); 3] {
    [(DESC_BYTES * usize::from(size), 16), (4, 4), (4, 4)]
}

struct View<'a> {
    /// Two words per descriptor: the address; then length, buffer id and flags.
    descriptors: Array<'a, u64>,
    size: u16,
}

impl Table for View<'_> {
    #[inline]
    fn desc(&self, index: u16) -> Option<Desc> {
        let rest = self.rest(index, Ordering::Relaxed)?;
        let addr = self.descriptors.load(2 * usize::from(index), Ordering::Relaxed)?;
        let next = if index + 1 == self.size { 0 } else { index + 1 };
        Some(Desc { addr, len: rest as u32, flags: (rest >> 48) as u16, next })
    }
}

impl View<'_> {
    /// The second word of a descriptor: length, buffer id and flags.
    #[inline(always)]
    fn rest(&self, index: u16, order: Ordering) -> Option<u64> {
        self.descriptors.load(2 * usize::from(index) + 1, order)
    }

    #[inline]
    fn id(&self, index: u16) -> u16 {
        self.rest(index, Ordering::Relaxed).map_or(0, |rest| (rest >> 32) as u16)
    }

    /// Whether the guest has made a chain available at this position.
    #[inline]
    fn is_available(&self, spot: Spot) -> bool {
        spot.has(self.rest(spot.at, Ordering::Acquire).map_or(0, |rest| (rest >> 48) as u16))
    }

    /// Writes the second word of a used descriptor, which returns it to the guest.
    #[inline(always)]
    fn give_back(&self, spot: Spot, rest: u64, order: Ordering) {
        self.descriptors.store(2 * usize::from(spot.at) + 1, rest, order);
    }

    /// Prefetches descriptors for writing, since they are marked as used in place.
    #[inline]
    fn prefetch(&self, spot: Spot, count: usize) {
        let size = usize::from(self.size);
        for i in (0..count.min(size)).step_by(DESC_PER_LINE) {
            let at = usize::from(spot.at) + i;
            self.descriptors.prefetch_to_write(2 * if at < size { at } else { at - size });
        }
    }

    /// Collects frames from `spot` on while each is a chain of one descriptor that `plain` accepts.
    #[inline(always)]
    fn frames<'b>(
        &self,
        mut spot: Spot,
        count: usize,
        mut plain: impl FnMut(Desc, u16) -> Option<Frame<'b>>,
    ) -> Frames<'b> {
        let mut frames = Frames::default();
        for _ in 0..count {
            // Acquire: the descriptor's contents are read after its flags.
            let Some(rest) = self.rest(spot.at, Ordering::Acquire) else { break };
            let flags = (rest >> 48) as u16;
            if !spot.has(flags) || flags & NEXT != 0 {
                break;
            }
            let Some(addr) = self.descriptors.load(2 * usize::from(spot.at), Ordering::Relaxed) else { break };
            let Some(frame) = plain(Desc { addr, len: rest as u32, flags, next: 0 }, (rest >> 32) as u16) else {
                break;
            };
            frames.push(frame);
            spot.step(self.size);
        }
        frames
    }
}

/// Returns chains of one descriptor to the guest, in order. The first is written last: the guest looks at used
/// descriptors in order, and must see all buffers of a packet at once (virtio 1.2, 5.1.6.4.2).
struct Giving<'a, 'b> {
    view: &'a View<'b>,
    first: u64,
    spot: Spot,
}

impl Giving<'_, '_> {
    #[inline(always)]
    fn give(&mut self, i: usize, id: u16, length: u32) {
        let flags = self.spot.marks() | if length != 0 { WRITE } else { 0 };
        let rest = u64::from(length) | u64::from(id) << 32 | u64::from(flags) << 48;
        if i == 0 {
            self.first = rest;
        } else {
            self.view.give_back(self.spot, rest, Ordering::Relaxed);
        }
        self.spot.step(self.view.size);
    }
}

/// A descriptor chain.
#[derive(Clone, Copy, Default)]
struct Entry {
    head: u16,
    pieces: u16,
    /// The guest's buffer id, which is in the chain's last descriptor.
    id: u16,
}

/// The chains that have been walked.
struct Scan {
    entries: [Entry; CHAINS_MAX],
    count: usize,
    spot: Spot,
    /// Descriptors of all chains.
    pieces: u32,
    /// Whether the guest has made no further chain available.
    at_end: bool,
}

impl Scan {
    fn new(spot: Spot) -> Scan {
        Scan { entries: [Entry::default(); CHAINS_MAX], count: 0, spot, pieces: 0, at_end: false }
    }

    /// Walks until `wanted` chains are known or no more are available.
    fn extend(&mut self, view: &View<'_>, wanted: usize, budget: &mut Budget) -> Result<(), Fault> {
        while self.count < wanted.min(CHAINS_MAX) && !self.at_end && !budget.is_spent() {
            if self.pieces >= u32::from(view.size) || !view.is_available(self.spot) {
                self.at_end = true;
                break;
            }
            let mut entry = Entry { head: self.spot.at, ..Entry::default() };
            let mut spot = self.spot;
            loop {
                let Some(desc) = view.desc(spot.at) else { return Err(Fault::Index) };
                entry.id = view.id(spot.at);
                entry.pieces += 1;
                self.pieces += 1;
                budget.spend(1, 0);
                spot.advance(view.size, 1);
                if desc.flags & NEXT == 0 {
                    break;
                }
                if u32::from(entry.pieces) >= PIECES_MAX || self.pieces >= u32::from(view.size) {
                    return Err(Fault::LongChain);
                }
            }
            self.spot = spot;
            self.entries[self.count] = entry;
            self.count += 1;
        }
        Ok(())
    }
}

impl Packed {
    pub(crate) fn new(memory: Arc<Memory>, parts: Parts, base: u16) -> Option<Packed> {
        let next = Spot { at: base & !WRAP, wrap: base & WRAP != 0 };
        let ring = Packed { memory, parts, next, last: 0, hint: 0 };
        (next.at < parts.size && ring.view().is_some()).then_some(ring)
    }

    pub(crate) fn base(&self) -> u16 {
        self.next.at | if self.next.wrap { WRAP } else { 0 }
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    fn view(&self) -> Option<View<'_>> {
        view(&self.memory, &self.parts)
    }

    pub(crate) fn wants_calls(&self) -> bool {
        let flags =
            self.memory.at(self.parts.driver).and_then(|event| event.load_u16(EVENT_FLAGS_AT, Ordering::Relaxed));
        flags.is_some_and(|flags| flags != EVENTS_DISABLE)
    }

    pub(crate) fn want_kicks(&self, wanted: bool) {
        if let Some(event) = self.memory.at(self.parts.device) {
            let flags = if wanted { EVENTS_ENABLE } else { EVENTS_DISABLE };
            event.store_u16(EVENT_FLAGS_AT, flags, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_entries(&self) -> bool {
        self.view().is_some_and(|view| view.is_available(self.next))
    }

    /// See [`crate::ring::Ring::receive`]. Returns how many chains were taken.
    pub(crate) fn receive(
        &mut self,
        terms: &Terms,
        pool: &dyn Pool,
        out: &mut Vec<Packet>,
        max: usize,
        burst: &mut Burst,
    ) -> Result<usize, Fault> {
        let memory = &*self.memory;
        let Some(view) = view(memory, &self.parts) else { return Ok(0) };
        if !view.is_available(self.next) {
            self.last = 0;
            return Ok(0);
        }
        let (next, mut budget) = (self.next, Budget::of_a_poll());
        view.prefetch(next, self.last.min(max));
        let mut finder = memory.finder(&mut self.hint);
        let frames = view.frames(next, max, |desc, id| {
            if budget.is_overdue() { None } else { plain::from_guest(&mut finder, terms, desc, id) }
        });
        let mut giving = Giving { view: &view, first: 0, spot: next };
        let taken = plain::receive(&frames, terms, pool, out, &mut budget, burst, |i, id| giving.give(i, id, 0));
        self.next = giving.spot;
        if taken != 0 {
            view.give_back(next, giving.first, Ordering::Release);
            log(&view, terms, &self.parts);
        }
        self.last = taken;
        if taken == max || budget.is_overdue() || !view.is_available(self.next) {
            return Ok(taken);
        }
        match self.receive_rest(terms, pool, out, max - taken, &mut budget, burst) {
            // The next call reports the error; the frames of this call have been received.
            Err(_) if taken != 0 => Ok(taken),
            rest => Ok(taken + rest?),
        }
    }

    /// Receives at most `max` frames of any form. Returns how many chains were taken.
    #[cold]
    fn receive_rest(
        &mut self,
        terms: &Terms,
        pool: &dyn Pool,
        out: &mut Vec<Packet>,
        max: usize,
        budget: &mut Budget,
        burst: &mut Burst,
    ) -> Result<usize, Fault> {
        let memory = &*self.memory;
        let Some(view) = view(memory, &self.parts) else { return Ok(0) };
        let mut scan = Scan::new(self.next);
        scan.extend(&view, max, budget)?;
        let before = out.len();
        let count = pool.alloc_bulk(out, scan.count);
        let mut pieces: [Piece<'_>; BURST_MAX] = [None; BURST_MAX];
        for (piece, entry) in pieces.iter_mut().zip(&scan.entries[..count]) {
            if budget.is_overdue() {
                break;
            }
            *piece = chain::piece(memory, &mut self.hint, view.desc(entry.head));
            if let Some((_, Some(slice))) = piece {
                chain::prefetch(slice, terms);
            }
        }
        let (mut taken, mut done) = (0, 0);
        for piece in &pieces[..count] {
            // The scan's cost is not charged to the first packet, so that every call makes progress.
            if taken != 0 && budget.is_spent() {
                break;
            }
            let packet = &mut out[before + done];
            let read = chain::receive(memory, &mut self.hint, &view, *piece, terms, pool, budget, packet);
            taken += 1;
            if read == Read::Done {
                burst.bytes += packet.len() as u64;
                done += 1;
            } else {
                burst.dropped += 1;
            }
        }
        burst.packets += done as u64;
        chain::free_rest(out, before + done);
        self.next = publish(&view, self.next, &scan.entries[..taken], |_| 0, terms, &self.parts);
        Ok(taken)
    }

    /// See [`crate::ring::Ring::send`]. Returns how many chains were taken, and adds the packets sent to `done`.
    pub(crate) fn send(
        &mut self,
        terms: &Terms,
        packets: &mut [Packet],
        frame_max: u32,
        burst: &mut Burst,
        done: &mut usize,
    ) -> Result<usize, Fault> {
        let memory = &*self.memory;
        let Some(view) = view(memory, &self.parts) else { return Ok(0) };
        if packets.is_empty() || !view.is_available(self.next) {
            return Ok(0);
        }
        let (next, mut budget) = (self.next, Budget::of_a_poll());
        view.prefetch(next, packets.len());
        // Only the general path writes the dirty log.
        let quick = if terms.log.is_some() { 0 } else { packets.len() };
        let mut finder = memory.finder(&mut self.hint);
        let frames = view.frames(next, quick, |desc, id| {
            if budget.is_overdue() { None } else { plain::to_guest(&mut finder, terms, desc, id) }
        });
        let mut giving = Giving { view: &view, first: 0, spot: next };
        let taken = plain::send(&frames, packets, terms, frame_max, &mut budget, burst, |i, id, length| {
            giving.give(i, id, length);
        });
        self.next = giving.spot;
        *done += taken;
        if taken != 0 {
            view.give_back(next, giving.first, Ordering::Release);
        }
        if budget.is_overdue() {
            return Ok(taken);
        }
        if taken == packets.len() || budget.is_spent() {
            view.prefetch(self.next, taken);
            return Ok(taken);
        }
        match self.send_rest(terms, &mut packets[taken..], frame_max, &mut budget, burst, done) {
            Err(_) if taken != 0 => Ok(taken),
            rest => Ok(taken + rest?),
        }
    }

    /// Sends packets of any form. Returns how many chains were taken.
    #[cold]
    fn send_rest(
        &mut self,
        terms: &Terms,
        packets: &mut [Packet],
        frame_max: u32,
        budget: &mut Budget,
        burst: &mut Burst,
        done: &mut usize,
    ) -> Result<usize, Fault> {
        let memory = &*self.memory;
        let Some(view) = view(memory, &self.parts) else { return Ok(0) };
        if !view.is_available(self.next) {
            return Ok(0);
        }
        let mut scan = Scan::new(self.next);
        scan.extend(&view, packets.len(), budget)?;
        let mut rooms: [Room<'_>; BURST_MAX] = [None; BURST_MAX];
        for (room, entry) in rooms.iter_mut().zip(&scan.entries[..scan.count]) {
            if budget.is_overdue() {
                break;
            }
            *room = chain::room(memory, &mut self.hint, view.desc(entry.head));
            if let Some((slice, _)) = room {
                chain::prefetch_to_write(slice, terms);
            }
        }
        let mut all_lengths = [0u32; CHAINS_MAX];
        let mut taken = 0usize;
        for packet in packets.iter_mut() {
            if taken != 0 && budget.is_spent() {
                break;
            }
            let Ok(header) = chain::header_for(packet, terms, frame_max) else {
                burst.stopped = true;
                break;
            };
            if taken >= scan.count {
                break;
            }
            let room = rooms.get(taken).copied().flatten().filter(|_| header.is_none());
            match chain::write_plain(room, terms, budget, packet) {
                Some(length) => {
                    all_lengths[taken] = length;
                    taken += 1;
                    burst.bytes += packet.len() as u64;
                }
                None => {
                    // The packet may need more than one chain.
                    scan.extend(&view, CHAINS_MAX, budget)?;
                    let mut lengths = [0; CHAINS_MAX];
                    let first = |i| scan.entries[..scan.count].get(taken + i).map(|entry: &Entry| entry.head);
                    let (data, header) = (packet.data(), header.as_ref());
                    let hint = &mut self.hint;
                    let written = chain::write(memory, hint, &view, first, terms, budget, data, header, &mut lengths);
                    let entries = match written {
                        // All of the guest's buffers together, or as many as are examined, are too small for it.
                        Written::Wait
                            if taken == 0 && (scan.count == CHAINS_MAX || scan.pieces == u32::from(view.size)) =>
                        {
                            lengths.fill(0);
                            burst.dropped += 1;
                            1
                        }
                        Written::Wait => break,
                        Written::Done(entries) => {
                            burst.bytes += data.len() as u64;
                            entries
                        }
                        Written::Lost(entries) => {
                            burst.dropped += 1;
                            entries
                        }
                    };
                    all_lengths[taken..taken + entries].copy_from_slice(&lengths[..entries]);
                    taken += entries;
                }
            }
            *done += 1;
        }
        if taken != 0 {
            let entries = &scan.entries[..taken];
            self.next = publish(&view, self.next, entries, |i| all_lengths[i], terms, &self.parts);
        }
        Ok(taken)
    }
}

#[inline]
fn view<'a>(memory: &'a Memory, parts: &Parts) -> Option<View<'a>> {
    Some(View { descriptors: Array::<u64>::new(memory.at(parts.descriptors)?)?, size: parts.size })
}

/// Returns chains to the guest, the first last as in [`Giving`]. Returns the position behind them.
fn publish(
    view: &View<'_>,
    next: Spot,
    entries: &[Entry],
    length: impl Fn(usize) -> u32,
    terms: &Terms,
    parts: &Parts,
) -> Spot {
    let mut spot = next;
    let mut first = 0;
    for (i, entry) in entries.iter().enumerate() {
        let length = length(i);
        let flags = spot.marks() | if length != 0 { WRITE } else { 0 };
        let rest = u64::from(length) | u64::from(entry.id) << 32 | u64::from(flags) << 48;
        if i == 0 {
            first = rest;
        } else {
            view.give_back(spot, rest, Ordering::Relaxed);
        }
        spot.advance(view.size, entry.pieces);
    }
    if !entries.is_empty() {
        view.give_back(next, first, Ordering::Release);
    }
    log(view, terms, parts);
    spot
}

/// Marks the descriptor ring in the dirty log.
#[inline]
fn log(view: &View<'_>, terms: &Terms, parts: &Parts) {
    if let (Some(log), Some(at)) = (&terms.log, parts.log_at) {
        log.mark(at, DESC_BYTES as u64 * u64::from(view.size));
    }
}

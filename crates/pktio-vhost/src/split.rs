//! A split virtqueue (virtio 1.2, 2.7): a descriptor table, the available ring, which the guest
//! writes, and the used ring, which we write.
//!
//! A burst goes over its entries three times: read heads and prefetch their descriptors; copy descriptors and prefetch
//! the buffers; copy packets. So the cache misses on lines that the guest's processor has written overlap. Frames in
//! one buffer each are handled by `plain`, all others by [`Split::receive_rest`] and [`Split::send_rest`].
//!
//! Threads: the holder of the queue's lock. Tests: `ring/tests.rs`.

use crate::chain::{self, HEADER_MAX, Piece, Read, Room, Written};
use crate::memory::{Memory, Place};
use crate::plain::{self, Frame, Frames};
use crate::terms::{BURST_MAX, Budget, Burst, CHAINS_MAX, Desc, Fault, Parts, Table, Terms};
use pktio::offload::VirtioNetHeader;
use pktio::{Packet, Pool};
use shared_memory::{Array, Slice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const AVAIL_NO_INTERRUPT: u16 = 1;
const USED_NO_NOTIFY: u16 = 1;
/// Byte offsets in the available and the used ring.
const FLAGS_AT: usize = 0;
const INDEX_AT: usize = 2;
const ENTRIES_AT: usize = 4;

const DESC_BYTES: usize = 16;
/// Descriptors in a cache line.
const DESC_PER_LINE: usize = 4;
/// Elements of the used ring in a cache line.
const USED_PER_LINE: usize = 8;

pub(crate) struct Split {
    memory: Arc<Memory>,
    parts: Parts,
    /// The next available entry to take; all entries before it were given back.
    next: u16,
    /// The available index as last read; the entries before it are available.
    seen: u16,
    hint: usize,
}

/// Length and alignment in bytes of the parts of a ring of `size`: descriptor table, available ring, used ring.
pub(crate) fn layout(size: u16) -> [(usize, usize); 3] {
    let size = usize::from(size);
    [(DESC_BYTES * size, 16), (ENTRIES_AT + 2 * size, 2), (ENTRIES_AT + 8 * size, 4)]
}

/// The ring's parts, mapped for one burst.
struct View<'a> {
    /// Two words per descriptor.
    descriptors: Array<'a, u64>,
    avail: Array<'a, u16>,
    used: Slice<'a>,
    mask: u16,
}

impl Table for View<'_> {
    #[inline]
    fn desc(&self, index: u16) -> Option<Desc> {
        let rest = self.descriptors.load(2 * usize::from(index) + 1, Ordering::Relaxed)?;
        let addr = self.descriptors.load(2 * usize::from(index), Ordering::Relaxed)?;
        Some(Desc { addr, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 })
    }
}

impl View<'_> {
    /// The number of available entries from `next` on. Reads the guest's index only if fewer than `wanted` are known:
    /// the guest writes it with each burst, so its cache line is mostly on the guest's processor.
    #[inline]
    fn look_for(&self, wanted: usize, next: u16, seen: &mut u16) -> Result<usize, Fault> {
        let known = usize::from(seen.wrapping_sub(next));
        if known >= wanted {
            return Ok(known);
        }
        let count = self.available(next)?;
        *seen = next.wrapping_add(count as u16);
        Ok(count)
    }

    /// The number of available entries from `next` on.
    #[inline]
    fn available(&self, next: u16) -> Result<usize, Fault> {
        let index = self.avail.load(INDEX_AT / 2, Ordering::Acquire).unwrap_or(next);
        let count = index.wrapping_sub(next);
        if count <= self.mask.wrapping_add(1) { Ok(count.into()) } else { Err(Fault::Index) }
    }

    /// The index of an entry's first descriptor.
    #[inline]
    fn head(&self, entry: u16) -> u16 {
        // The slice contains all entries; an invalid descriptor index is refused where it is used.
        self.avail.load(ENTRIES_AT / 2 + usize::from(entry & self.mask), Ordering::Relaxed).unwrap_or(u16::MAX)
    }

    #[inline]
    fn give_back(&self, entry: u16, head: u16, length: u32) {
        let element = u64::from(head) | u64::from(length) << 32;
        self.used.write(ENTRIES_AT + 8 * usize::from(entry & self.mask), element);
    }

    /// Prefetches for writing the elements of the used ring for `count` entries: a store that
    /// misses the cache delays all later stores.
    #[inline]
    fn prefetch_used(&self, next: u16, count: usize) {
        for i in (0..count).step_by(USED_PER_LINE).chain([count - 1]) {
            let entry = next.wrapping_add(i as u16) & self.mask;
            self.used.prefetch_to_write(ENTRIES_AT + 8 * usize::from(entry));
        }
        self.used.prefetch_to_write(INDEX_AT);
    }

    /// Prefetches the descriptors of `count` entries from `next` on.
    #[inline]
    fn prefetch_descriptors(&self, next: u16, count: usize) {
        let mut line = usize::MAX;
        for i in 0..count {
            let head = usize::from(self.head(next.wrapping_add(i as u16)));
            // Heads are mostly consecutive.
            if head / DESC_PER_LINE != line {
                line = head / DESC_PER_LINE;
                self.descriptors.prefetch(2 * head);
            }
        }
    }

    /// Prefetches the descriptors of a burst and the used elements that it will write.
    #[inline]
    fn prepare(&self, next: u16, count: usize) {
        if count == 0 {
            return;
        }
        self.prefetch_used(next, count);
        self.prefetch_descriptors(next, count);
    }

    /// Collects frames of the entries from `next` on, up to the first descriptor that `plain` does not accept.
    #[inline(always)]
    fn frames<'b>(&self, next: u16, count: usize, mut plain: impl FnMut(Desc, u16) -> Option<Frame<'b>>) -> Frames<'b> {
        let mut frames = Frames::default();
        for i in 0..count {
            let head = self.head(next.wrapping_add(i as u16));
            let Some(frame) = self.desc(head).and_then(|desc| plain(desc, head)) else { break };
            frames.push(frame);
        }
        frames
    }
}

impl Split {
    pub(crate) fn new(memory: Arc<Memory>, parts: Parts, base: u16) -> Option<Split> {
        if !parts.size.is_power_of_two() {
            return None;
        }
        let mut ring = Split { memory, parts, next: base, seen: base, hint: 0 };
        let used = ring.view()?.used.load_u16(INDEX_AT, Ordering::Acquire)?;
        // The used index tells what was given back, so `base` is ignored. If a device ended without handing over its
        // index, the entries in between are processed again.
        (ring.next, ring.seen) = (used, used);
        Some(ring)
    }

    pub(crate) fn base(&self) -> u16 {
        self.next
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    #[inline]
    fn view(&self) -> Option<View<'_>> {
        view(&self.memory, &self.parts)
    }

    fn part(&self, place: Place) -> Option<Slice<'_>> {
        self.memory.at(place)
    }

    pub(crate) fn wants_calls(&self) -> bool {
        let flags = self.part(self.parts.driver).and_then(|avail| avail.load_u16(FLAGS_AT, Ordering::Relaxed));
        flags.is_some_and(|flags| flags & AVAIL_NO_INTERRUPT == 0)
    }

    pub(crate) fn want_kicks(&self, wanted: bool) {
        if let Some(used) = self.part(self.parts.device) {
            used.store_u16(FLAGS_AT, if wanted { 0 } else { USED_NO_NOTIFY }, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_entries(&self) -> bool {
        self.view().is_some_and(|view| view.available(self.next).is_ok_and(|count| count != 0))
    }

    /// See [`crate::ring::Ring::receive`]. Returns how many entries were taken.
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
        let ready = view.look_for(max, self.next, &mut self.seen)?;
        let count = ready.min(max);
        if count == 0 {
            return Ok(0);
        }
        let (first, mut budget) = (self.next, Budget::of_a_poll());
        view.prepare(first, count);
        let mut finder = memory.finder(&mut self.hint);
        let frames = view.frames(first, count, |desc, head| {
            if budget.is_overdue() { None } else { plain::from_guest(&mut finder, terms, desc, head) }
        });
        let taken = plain::receive(&frames, terms, pool, out, &mut budget, burst, |i, head| {
            view.give_back(first.wrapping_add(i as u16), head, 0);
        });
        self.next = first.wrapping_add(taken as u16);
        publish(&view, self.next, terms, &self.parts);
        if budget.is_overdue() {
            return Ok(taken);
        }
        if taken == count {
            view.prepare(self.next, (ready - taken).min(taken));
            return Ok(taken);
        }
        let rest = self.receive_rest(terms, pool, out, count - taken, &mut budget, burst);
        Ok(taken + rest)
    }

    /// Receives up to `count` available frames of any form. Returns how many entries were taken.
    #[cold]
    fn receive_rest(
        &mut self,
        terms: &Terms,
        pool: &dyn Pool,
        out: &mut Vec<Packet>,
        count: usize,
        budget: &mut Budget,
        burst: &mut Burst,
    ) -> usize {
        let memory = &*self.memory;
        let Some(view) = view(memory, &self.parts) else { return 0 };
        let before = out.len();
        let count = pool.alloc_bulk(out, count);
        let mut heads = [0u16; BURST_MAX];
        (0..count).for_each(|i| heads[i] = view.head(self.next.wrapping_add(i as u16)));
        let mut pieces: [Piece<'_>; BURST_MAX] = [None; BURST_MAX];
        for (piece, head) in pieces.iter_mut().zip(&heads[..count]) {
            if budget.is_overdue() {
                break;
            }
            *piece = chain::piece(memory, &mut self.hint, view.desc(*head));
            if let Some((_, Some(slice))) = piece {
                chain::prefetch(slice, terms);
            }
        }
        let (mut taken, mut done) = (0, 0);
        for (piece, head) in pieces.iter().zip(&heads[..count]) {
            if budget.is_spent() {
                break;
            }
            let packet = &mut out[before + done];
            let read = chain::receive(memory, &mut self.hint, &view, *piece, terms, pool, budget, packet);
            view.give_back(self.next.wrapping_add(taken as u16), *head, 0);
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
        self.next = self.next.wrapping_add(taken as u16);
        publish(&view, self.next, terms, &self.parts);
        taken
    }

    /// See [`crate::ring::Ring::send`]. Returns how many entries were taken, and adds the packets sent to `done`.
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
        let ready = view.look_for(packets.len(), self.next, &mut self.seen)?;
        let count = ready.min(packets.len());
        if count == 0 {
            return Ok(0);
        }
        let (first, mut budget) = (self.next, Budget::of_a_poll());
        view.prepare(first, count);
        // Only the general path writes the dirty log.
        let quick = if terms.log.is_some() { 0 } else { count };
        let mut finder = memory.finder(&mut self.hint);
        let frames = view.frames(first, quick, |desc, head| {
            if budget.is_overdue() { None } else { plain::to_guest(&mut finder, terms, desc, head) }
        });
        let taken = plain::send(&frames, packets, terms, frame_max, &mut budget, burst, |i, head, length| {
            view.give_back(first.wrapping_add(i as u16), head, length);
        });
        *done += taken;
        if taken != 0 {
            self.next = first.wrapping_add(taken as u16);
            publish(&view, self.next, terms, &self.parts);
        }
        if budget.is_overdue() {
            return Ok(taken);
        }
        if taken == packets.len() || budget.is_spent() {
            view.prepare(self.next, (ready - taken).min(taken));
            return Ok(taken);
        }
        match self.send_rest(terms, &mut packets[taken..], frame_max, &mut budget, burst, done) {
            // The next call reports the error; the packets of this call have been sent.
            Err(Fault::Index) if taken != 0 => Ok(taken),
            rest => Ok(taken + rest?),
        }
    }

    /// Sends packets of any form. Returns how many entries were taken.
    #[cold]
    #[allow(clippy::too_many_arguments)]
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
        // A packet may need more entries than were looked for.
        let ready = view.look_for(usize::from(u16::MAX), self.next, &mut self.seen)?;
        let count = ready.min(packets.len());
        let mut heads = [0u16; BURST_MAX];
        (0..count).for_each(|i| heads[i] = view.head(self.next.wrapping_add(i as u16)));
        let mut rooms: [Room<'_>; BURST_MAX] = [None; BURST_MAX];
        for (room, head) in rooms.iter_mut().zip(&heads[..count]) {
            if budget.is_overdue() {
                break;
            }
            *room = chain::room(memory, &mut self.hint, view.desc(*head));
            if let Some((slice, _)) = room {
                chain::prefetch_to_write(slice, terms);
            }
        }
        let mut taken = 0usize;
        for packet in packets.iter_mut() {
            if taken >= ready || budget.is_spent() {
                break;
            }
            let Ok(header) = chain::header_for(packet, terms, frame_max) else {
                burst.stopped = true;
                break;
            };
            let entry = self.next.wrapping_add(taken as u16);
            let room = rooms.get(taken).copied().flatten().filter(|_| header.is_none());
            match chain::write_plain(room, terms, budget, packet) {
                Some(length) => {
                    view.give_back(entry, heads[taken], length);
                    taken += 1;
                    burst.bytes += packet.len() as u64;
                }
                None => {
                    let mut lengths = [0; CHAINS_MAX];
                    let first = |i| (taken + i < ready).then(|| view.head(entry.wrapping_add(i as u16)));
                    let data = packet.data();
                    let hint = &mut self.hint;
                    let header = header.as_ref();
                    let written = chain::write(memory, hint, &view, first, terms, budget, data, header, &mut lengths);
                    let entries = match written {
                        Written::Wait if taken == 0 && ready == usize::from(self.parts.size) => {
                            // All of the guest's buffers together are too small for it.
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
                    for (i, length) in lengths[..entries].iter().enumerate() {
                        let entry = entry.wrapping_add(i as u16);
                        view.give_back(entry, view.head(entry), *length);
                    }
                    taken += entries;
                }
            }
            *done += 1;
        }
        if taken != 0 {
            self.next = self.next.wrapping_add(taken as u16);
            publish(&view, self.next, terms, &self.parts);
        }
        Ok(taken)
    }
}

#[inline]
fn view<'a>(memory: &'a Memory, parts: &Parts) -> Option<View<'a>> {
    Some(View {
        descriptors: Array::<u64>::new(memory.at(parts.descriptors)?)?,
        avail: Array::<u16>::new(memory.at(parts.driver)?)?,
        used: memory.at(parts.device)?,
        mask: parts.size - 1,
    })
}

/// Publishes the used index, which makes the used elements visible to the guest.
#[inline]
fn publish(view: &View<'_>, next: u16, terms: &Terms, parts: &Parts) {
    view.used.store_u16(INDEX_AT, next, Ordering::Release);
    if let (Some(log), Some(at)) = (&terms.log, parts.log_at) {
        log.mark(at, view.used.len() as u64);
    }
}

const _: () = assert!(HEADER_MAX >= VirtioNetHeader::BYTES);

//! The receiving end of a ring.
//!
//! A burst has these steps: read and check the peer's index; read each descriptor once, check it and prefetch its
//! frame; allocate buffers from the pool in one call; copy the frames; publish our index once. Frames in several
//! buffers or longer than 2 KB take the slow path, [`Receiver::chain`].
//!
//! **Invariants.** Nothing outside the peer's regions is read. An invalid descriptor costs its frame (`rx_errors`), an
//! invalid index costs the connection ([`Fault`]). Work per call is bounded by [`DESCRIPTORS_PER_POLL`] descriptors and
//! by the bytes of `max` frames.
//!
//! Threads: one at a time. Tests: `tests.rs`, `tests/hostile.rs`.
#![allow(unsafe_code)]

use crate::layout::Buffers;
use crate::ring::{Descriptor, NEXT, Ring};
use pktio::{BUFFER_CAPACITY, HEADROOM, Packet, Pool, PortStats};
use shared_memory::{Overdue, Watch, copy, prefetch};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Frames that are processed together.
const BURST: usize = 64;

/// Maximum descriptors of a frame: the longest frame in buffers of 512 bytes.
pub(crate) const PIECES_MAX: usize = 128;

/// Maximum descriptors that one call reads on the slow path: as many as `max` jumbo
/// frames have. The rest waits for the next call.
const DESCRIPTORS_PER_POLL: usize = 1024;

/// Maximum frame in a small buffer, in bytes.
const SMALL_BYTES: u32 = (BUFFER_CAPACITY - HEADROOM) as u32;

/// A peer's breach of the protocol, after which its rings cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// A head or tail that is out of bounds.
    Index = 1,
    /// A buffer for us to fill that lies outside its region, or is empty.
    Buffer = 2,
    /// The file of a region was truncated.
    Truncated = 3,
}

impl Fault {
    /// The reason in words, for the peer and the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Fault::Index => "an index of a ring is out of bounds",
            Fault::Buffer => "a buffer of a ring is empty or outside of its region",
            Fault::Truncated => "the file of a region was truncated",
        }
    }

    /// The fault with this number; `None` for 0, which means no fault.
    pub(crate) fn of(number: u8) -> Option<Fault> {
        [Fault::Index, Fault::Buffer, Fault::Truncated].into_iter().find(|fault| *fault as u8 == number)
    }
}

/// Why a burst of single-buffer frames ended.
#[derive(PartialEq, Eq)]
enum Stop {
    /// All available or all requested frames were received.
    Done,
    /// The pool is empty, or the peer has held up the call. The remaining frames wait in the ring.
    Ended,
    /// The next frame needs the slow path.
    Other,
}

/// The receiving end of a ring.
pub(crate) struct Receiver {
    ring: Ring,
    /// Index of the next descriptor.
    at: u16,
    /// As client: our buffers, which we give back empty.
    buffers: Option<Buffers>,
    /// Whether descriptors are skipped up to the end of a frame that was too long.
    skips: bool,
    /// Wakes a sleeping worker.
    pub watch: Option<Watch>,
}

impl Receiver {
    /// The server's end of a ring.
    pub(crate) fn of_server(ring: Ring, watch: Option<Watch>) -> Receiver {
        Receiver { ring, at: 0, buffers: None, skips: false, watch }
    }

    /// The client's end of a ring, with the buffers that the server fills.
    pub(crate) fn of_client(ring: Ring, buffers: Buffers, watch: Option<Watch>) -> Receiver {
        Receiver { ring, at: 0, buffers: Some(buffers), skips: false, watch }
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Initialises our index; as client, offers all buffers. To be called once the server is connected, since it may
    /// have reset the ring before.
    pub(crate) fn begin(&self) {
        match self.buffers {
            Some(_) => self.ring.set_head(self.ring.size()),
            None => self.ring.set_tail(0),
        }
    }

    /// Whether a frame is available.
    pub(crate) fn has_some(&self) -> bool {
        self.peer_index() != self.at
    }

    #[inline]
    fn peer_index(&self) -> u16 {
        if self.buffers.is_some() { self.ring.tail() } else { self.ring.head() }
    }

    /// Appends at most `max` frames to `out`.
    ///
    /// # Errors
    /// The peer's index is out of bounds, or its memory was truncated.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        pool: &dyn Pool,
        out: &mut Vec<Packet>,
        max: usize,
        stats: &mut PortStats,
    ) -> Result<(), Fault> {
        let mut waiting = self.peer_index().wrapping_sub(self.at);
        if waiting == 0 {
            // The index also reads as 0 if its page was lost.
            return if self.ring.memory().is_damaged() { Err(Fault::Truncated) } else { Ok(()) };
        }
        // As client we have offered every descriptor that we took, so this is the limit in both roles.
        if waiting > self.ring.size() {
            return Err(Fault::Index);
        }
        let (from, before) = (self.at, out.len());
        let (mut budget, overdue) = (DESCRIPTORS_PER_POLL, Overdue::of_this_thread());
        loop {
            let room = max - (out.len() - before);
            let count = room.min(BURST).min(usize::from(waiting));
            if count == 0 {
                break;
            }
            let (taken, stop) = if self.skips { (0, Stop::Other) } else { self.singles(pool, out, count, stats) };
            self.at = self.at.wrapping_add(taken);
            waiting -= taken;
            if stop == Stop::Ended || budget == 0 || overdue.is_now() {
                break;
            }
            if stop == Stop::Other {
                let taken = self.chain(pool, out, waiting, stats);
                self.at = self.at.wrapping_add(taken);
                waiting -= taken;
                if taken == 0 {
                    break;
                }
                budget = budget.saturating_sub(usize::from(taken));
            }
        }
        self.give_back(from);
        if self.ring.memory().is_damaged() {
            // The frames may consist of zeros that the peer never sent.
            out.truncate(before);
            *stats = PortStats::default();
            return Err(Fault::Truncated);
        }
        stats.rx_packets += (out.len() - before) as u64;
        Ok(())
    }

    /// Returns the descriptors from `from` to the current one to the peer.
    #[inline]
    fn give_back(&self, from: u16) {
        if from == self.at {
            return;
        }
        match &self.buffers {
            None => self.ring.set_tail(self.at),
            Some(buffers) => {
                let count = self.at.wrapping_sub(from);
                for i in 0..count {
                    let index = from.wrapping_add(i);
                    self.ring.store(index, buffers.empty(index));
                }
                self.ring.set_head(self.at.wrapping_add(self.ring.size()));
            }
        }
    }

    /// Receives up to `count` (at most [`BURST`]) small single-buffer frames, up to the first of another form.
    #[inline]
    fn singles(&self, pool: &dyn Pool, out: &mut Vec<Packet>, count: usize, stats: &mut PortStats) -> (u16, Stop) {
        let (ring, overdue) = (&self.ring, Overdue::of_this_thread());
        let mut frames = [const { MaybeUninit::<(NonNull<u8>, u32)>::uninit() }; BURST];
        let mut found = 0;
        for i in (0..count).step_by(4) {
            ring.prefetch(self.at.wrapping_add(i as u16));
        }
        let mut stop = Stop::Done;
        while found < count {
            if overdue.is_now() {
                stop = Stop::Ended;
                break;
            }
            let Descriptor { flags, region, length, offset } = ring.load(self.at.wrapping_add(found as u16));
            let place = ring.memory().find(region, offset, length);
            let (Some(place), true) = (place, flags & NEXT == 0 && length.wrapping_sub(1) < SMALL_BYTES) else {
                stop = Stop::Other;
                break;
            };
            prefetch(place.as_ptr());
            frames[found].write((place, length));
            found += 1;
        }
        let before = out.len();
        let buffers = pool.alloc_bulk(out, found);
        if buffers < found {
            stop = Stop::Ended;
        }
        let (mut bytes, mut copied) = (0, 0);
        for (packet, frame) in out[before..].iter_mut().zip(&frames[..found]) {
            if overdue.is_now() {
                stop = Stop::Ended;
                break;
            }
            copied += 1;
            // SAFETY: the first `found` elements were initialised.
            let (place, length) = unsafe { frame.assume_init() };
            let fits = packet.adjust(packet.headroom(), length as usize);
            debug_assert!(fits.is_ok(), "small buffers hold as much");
            if fits.is_ok() {
                // SAFETY: `find` has checked that the frame is mapped, and the mapping is kept by the ring; the
                // packet's data are `length` bytes of ours. The peer may write meanwhile: then the copy is a mixture.
                unsafe { copy(place.as_ptr(), packet.data_mut_ptr(), length as usize) }
            }
            bytes += u64::from(length);
        }
        out.truncate(before + copied);
        stats.rx_bytes += bytes;
        (copied as u16, stop)
    }

    /// Receives one frame of any form. Returns how many descriptors it took; 0 if its last one is not available yet.
    #[cold]
    fn chain(&mut self, pool: &dyn Pool, out: &mut Vec<Packet>, waiting: u16, stats: &mut PortStats) -> u16 {
        let overdue = Overdue::of_this_thread();
        let mut pieces = [const { MaybeUninit::<(NonNull<u8>, u32)>::uninit() }; PIECES_MAX];
        let (mut count, mut total, mut is_right, mut is_whole) = (0, 0u64, true, false);
        while count < PIECES_MAX.min(usize::from(waiting)) && !is_whole {
            let Descriptor { flags, region, length, offset } = self.ring.load(self.at.wrapping_add(count as u16));
            match self.ring.memory().find(region, offset, length) {
                Some(place) => _ = pieces[count].write((place, length)),
                None => is_right = false,
            }
            total += u64::from(length);
            is_whole = flags & NEXT == 0;
            count += 1;
        }
        if self.skips {
            self.skips = !is_whole;
            return count as u16;
        }
        if !is_whole {
            // The rest of the frame may still arrive, unless there is no space for it.
            if count < PIECES_MAX && waiting < self.ring.size() {
                return 0;
            }
            self.skips = true;
            stats.rx_errors += 1;
            return count as u16;
        }
        if !is_right || total == 0 {
            stats.rx_errors += 1;
            return count as u16;
        }
        let Some(packet) = buffer_for(pool, total) else {
            stats.rx_dropped += 1;
            return count as u16;
        };
        let mut to = packet.data_mut_ptr();
        for piece in &pieces[..count] {
            if overdue.is_now() {
                stats.rx_errors += 1;
                return count as u16;
            }
            // SAFETY: all of the first `count` pieces were written, since `is_right`; each is mapped, as `find` has
            // checked, and together they are as long as the packet's data.
            unsafe {
                let (place, length) = piece.assume_init();
                to.copy_from_nonoverlapping(place.as_ptr(), length as usize);
                to = to.add(length as usize);
            }
        }
        stats.rx_bytes += total;
        out.push(packet);
        count as u16
    }
}

/// Allocates a packet of `bytes` bytes in the smallest buffer that holds it.
fn buffer_for(pool: &dyn Pool, bytes: u64) -> Option<Packet> {
    let mut packet = if bytes <= u64::from(SMALL_BYTES) { pool.alloc() } else { pool.alloc_large() }?;
    let headroom = packet.headroom();
    packet.adjust(headroom, usize::try_from(bytes).ok()?).ok()?;
    Some(packet)
}

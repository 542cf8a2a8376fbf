//! The receiving end of a ring.
//!
//! A burst goes in steps: the peer's index is read and checked; descriptors are read once each, checked, and their frames
//! asked for from memory; buffers are taken from the pool in one call; frames are copied; our index is published once.
//! What is not a frame in one piece of up to 2 KB takes the longer way of [`Receiver::chain`].
//!
//! **Promises.** Nothing outside of the peer's regions is read. A wrong descriptor costs its frame (`rx_errors`), an index
//! that cannot be costs the connection ([`Fault`]). Work per call is bounded by [`DESCRIPTORS_PER_POLL`] descriptors and by
//! the bytes of `max` frames.
//!
//! Threads: one at a time. Tests: `tests.rs`, `tests/hostile.rs`.
#![allow(unsafe_code)]

use crate::layout::Buffers;
use crate::ring::{Descriptor, NEXT, Ring};
use pktio::{BUFFER_CAPACITY, HEADROOM, Packet, Pool, PortStats};
use shared_memory::{Watch, copy, prefetch};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Frames that are read together.
const BURST: usize = 64;

/// Most pieces of a frame: the longest frame in buffers of 512 bytes.
pub(crate) const PIECES_MAX: usize = 128;

/// Most descriptors that one call looks at beyond those of frames in one piece, as many as `max` jumbo frames have. What is
/// left waits for the next call.
const DESCRIPTORS_PER_POLL: usize = 1024;

/// What fits into a small buffer.
const SMALL_BYTES: u32 = (BUFFER_CAPACITY - HEADROOM) as u32;

/// A ring that cannot be used any more: the peer breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// A head or tail that is out of bounds.
    Index = 1,
    /// A buffer for us that lies outside of its region, or is empty.
    Buffer = 2,
    /// The file of a region was truncated.
    Truncated = 3,
}

impl Fault {
    /// For the peer and the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Fault::Index => "an index of a ring is out of bounds",
            Fault::Buffer => "a buffer of a ring is empty or outside of its region",
            Fault::Truncated => "the file of a region was truncated",
        }
    }

    /// The fault of a number; `None` for 0, which is none.
    pub(crate) fn of(number: u8) -> Option<Fault> {
        [Fault::Index, Fault::Buffer, Fault::Truncated].into_iter().find(|fault| *fault as u8 == number)
    }
}

/// Why a burst of frames in one piece ended.
#[derive(PartialEq, Eq)]
enum Stop {
    /// As many as there were, or as were wanted.
    Done,
    /// The pool has no buffer. What is left waits in the ring.
    NoBuffer,
    /// The next is none of these.
    Other,
}

/// The receiving end of a ring.
pub(crate) struct Receiver {
    ring: Ring,
    /// The next descriptor.
    at: u16,
    /// Ours, which we give back, if we are the client.
    buffers: Option<Buffers>,
    /// Descriptors are skipped up to the end of a frame that was too long.
    skips: bool,
    /// Wakes a sleeping worker.
    pub watch: Option<Watch>,
}

impl Receiver {
    /// The server's end of a ring.
    pub(crate) fn of_server(ring: Ring, watch: Option<Watch>) -> Receiver {
        Receiver { ring, at: 0, buffers: None, skips: false, watch }
    }

    /// The client's, with the buffers that the server fills.
    pub(crate) fn of_client(ring: Ring, buffers: Buffers, watch: Option<Watch>) -> Receiver {
        Receiver { ring, at: 0, buffers: Some(buffers), skips: false, watch }
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Offers all buffers; to be called once the server is there, which may have emptied the ring before.
    pub(crate) fn begin(&self) {
        match self.buffers {
            Some(_) => self.ring.set_head(self.ring.size()),
            None => self.ring.set_tail(0),
        }
    }

    /// Whether there is something in the ring.
    pub(crate) fn has_some(&self) -> bool {
        self.peer_index() != self.at
    }

    #[inline]
    fn peer_index(&self) -> u16 {
        if self.buffers.is_some() { self.ring.tail() } else { self.ring.head() }
    }

    /// Appends at most `max` frames to `out`.
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
            // Of a lost page the index is 0, too.
            return if self.ring.memory().is_damaged() { Err(Fault::Truncated) } else { Ok(()) };
        }
        // As client we have offered all that we have taken, so this is the bound in both roles.
        if waiting > self.ring.size() {
            return Err(Fault::Index);
        }
        let (from, before) = (self.at, out.len());
        let mut budget = DESCRIPTORS_PER_POLL;
        loop {
            let room = max - (out.len() - before);
            let count = room.min(BURST).min(usize::from(waiting));
            if count == 0 {
                break;
            }
            let (taken, stop) = if self.skips { (0, Stop::Other) } else { self.singles(pool, out, count, stats) };
            self.at = self.at.wrapping_add(taken);
            waiting -= taken;
            if stop == Stop::NoBuffer || budget == 0 {
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
            // What was read may be zeros that nobody sent.
            out.truncate(before);
            *stats = PortStats::default();
            return Err(Fault::Truncated);
        }
        stats.rx_packets += (out.len() - before) as u64;
        Ok(())
    }

    /// Lets the peer have the descriptors from `from` up to where we are.
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

    /// Receives up to `count` frames, at most [`BURST`], that are in one piece and short, up to the first that is not.
    #[inline]
    fn singles(&self, pool: &dyn Pool, out: &mut Vec<Packet>, count: usize, stats: &mut PortStats) -> (u16, Stop) {
        let ring = &self.ring;
        let mut frames = [const { MaybeUninit::<(NonNull<u8>, u32)>::uninit() }; BURST];
        let mut found = 0;
        for i in (0..count).step_by(4) {
            ring.prefetch(self.at.wrapping_add(i as u16));
        }
        let mut stop = Stop::Done;
        while found < count {
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
            stop = Stop::NoBuffer;
        }
        let mut bytes = 0;
        for (packet, frame) in out[before..].iter_mut().zip(&frames[..found]) {
            // SAFETY: the first `found` were written.
            let (place, length) = unsafe { frame.assume_init() };
            let fits = packet.adjust(packet.headroom(), length as usize);
            debug_assert!(fits.is_ok(), "small buffers hold as much");
            if fits.is_ok() {
                // SAFETY: `find` has checked that the frame is mapped, and the mapping is kept by the ring; the packet's
                // data are `length` bytes of ours. The peer may write meanwhile: then the copy is a mixture.
                unsafe { copy(place.as_ptr(), packet.data_mut_ptr(), length as usize) }
            }
            bytes += u64::from(length);
        }
        stats.rx_bytes += bytes;
        (buffers as u16, stop)
    }

    /// Receives one frame of any shape; returns how many descriptors it took, 0 if its end is not there yet.
    #[cold]
    fn chain(&mut self, pool: &dyn Pool, out: &mut Vec<Packet>, waiting: u16, stats: &mut PortStats) -> u16 {
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
            // Its end may come, unless there is no place for it.
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

/// A packet of `bytes` bytes in the smallest buffer that holds them.
fn buffer_for(pool: &dyn Pool, bytes: u64) -> Option<Packet> {
    let mut packet = if bytes <= u64::from(SMALL_BYTES) { pool.alloc() } else { pool.alloc_large() }?;
    let headroom = packet.headroom();
    packet.adjust(headroom, usize::try_from(bytes).ok()?).ok()?;
    Some(packet)
}

//! The sending end of a ring.
//!
//! A burst has these steps, as in `receive`: find the buffers and prefetch them for writing; copy frames and write
//! descriptors; publish our index once, and have the port's notifier interrupt the peer if it asked for that. Frames
//! longer than a buffer go into several ([`Transmitter::chain`]).
//!
//! **Invariants.** Nothing outside the peer's regions is written, and nothing but the bytes of frames. An invalid
//! buffer or index costs the connection ([`Fault`]).
//!
//! Threads: one at a time; workers that share a ring lock it. Tests: `tests.rs`, `tests/hostile.rs`.
#![allow(unsafe_code)]

use crate::layout::Buffers;
use crate::receive::{Fault, PIECES_MAX};
use crate::ring::{Descriptor, NEXT, Ring};
use pktio::{Packet, PortStats};
use shared_memory::{Doorbell, Overdue, copy, prefetch_to_write};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// Frames that are processed together.
const BURST: usize = 64;
/// Checks of the peer's interrupt flag after the one at sending: one without a fence, then one with.
const LOOKS: u8 = 2;

/// Why a burst ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All were sent.
    Done,
    /// The ring is full.
    Full,
    /// The next packet cannot be sent as it is: empty, too long, or a large frame.
    Unsendable,
}

/// The sending end of a ring.
pub(crate) struct Transmitter {
    ring: Ring,
    /// Index of the next descriptor.
    at: u16,
    /// Number of descriptors from there on that are known to be free.
    free: u16,
    /// As client: our buffers.
    buffers: Option<Buffers>,
    doorbell: Doorbell,
    /// Number of checks of the peer's interrupt flag that are due.
    looks: u8,
}

impl Transmitter {
    /// The server's end of a ring.
    pub(crate) fn of_server(ring: Ring, doorbell: Doorbell) -> Transmitter {
        Transmitter { ring, at: 0, free: 0, buffers: None, doorbell, looks: 0 }
    }

    /// The client's end of a ring, with the buffers that we fill.
    pub(crate) fn of_client(ring: Ring, buffers: Buffers, doorbell: Doorbell) -> Transmitter {
        Transmitter { ring, at: 0, free: 0, buffers: Some(buffers), doorbell, looks: 0 }
    }

    /// Initialises our index. To be called once the client has initialised its rings.
    pub(crate) fn begin(&self) {
        match self.buffers {
            Some(_) => self.ring.set_head(0),
            None => self.ring.set_tail(0),
        }
    }

    /// Sends packets from the front, none longer than `frame_max` bytes. Returns how many were sent, and why it
    /// stopped. The packets still belong to the caller.
    ///
    /// # Errors
    /// The peer's index or a buffer is out of bounds, or its memory was truncated.
    #[inline]
    pub(crate) fn send(
        &mut self,
        packets: &[Packet],
        frame_max: u32,
        stats: &mut PortStats,
    ) -> Result<(usize, Stop), Fault> {
        let from = self.at;
        let overdue = Overdue::of_this_thread();
        let mut sent = 0;
        let mut stop = Stop::Done;
        while sent < packets.len() && stop == Stop::Done {
            let burst = &packets[sent..packets.len().min(sent + BURST)];
            self.look_for(burst.len())?;
            let count = burst.len().min(usize::from(self.free));
            let (written, unlike) = self.singles(&burst[..count], frame_max, stats)?;
            sent += written;
            stop = match unlike {
                Some(Unlike::Unsendable) => Stop::Unsendable,
                Some(Unlike::Long) if self.chain(&burst[written], stats)? => {
                    sent += 1;
                    Stop::Done
                }
                Some(Unlike::Long) => Stop::Full,
                None if count < burst.len() || overdue.is_now() => Stop::Full,
                None => Stop::Done,
            };
        }
        if self.ring.memory().is_damaged() {
            return Err(Fault::Truncated);
        }
        if self.at != from {
            self.publish();
            self.prefetch_ahead(self.at.wrapping_sub(from));
        }
        Ok((sent, stop))
    }

    /// Interrupts the peer if it has asked for that since something was sent. Returns whether another check is due.
    ///
    /// The peer sets its flag and then reads the index; we have written the index, and read the flag after a fence. A
    /// fence at sending would wait for all preceding stores, so only the second check has one. A ring that sends at
    /// each poll never reaches it, since sending restarts the checks.
    #[inline]
    pub(crate) fn look(&mut self) -> bool {
        if self.looks == 0 {
            return false;
        }
        self.looks -= 1;
        if self.looks == 0 {
            fence(Ordering::SeqCst);
        }
        if self.ring.wants_interrupts() {
            self.looks = 0;
            self.doorbell.ring();
        }
        self.looks != 0
    }

    /// Does all checks that are due at once.
    pub(crate) fn last_look(&mut self) {
        self.looks = self.looks.min(1);
        self.look();
    }

    #[inline]
    fn publish(&mut self) {
        match self.buffers {
            Some(_) => self.ring.set_head(self.at),
            None => self.ring.set_tail(self.at),
        }
        let wants = self.ring.wants_interrupts();
        self.looks = if wants { 0 } else { LOOKS };
        if wants {
            self.doorbell.ring();
        }
    }

    /// Prefetches for writing the buffers of the next burst, assuming that it is as long as the last, and the
    /// descriptors of the burst after it.
    #[inline]
    fn prefetch_ahead(&self, last: u16) {
        let count = last.min(self.free).min(BURST as u16);
        for i in 0..count {
            let index = self.at.wrapping_add(i);
            let Descriptor { region, offset, .. } = match &self.buffers {
                Some(buffers) => buffers.empty(index),
                None => self.ring.load(index),
            };
            if let Some(place) = self.ring.memory().find(region, offset, 1) {
                prefetch_to_write(place.as_ptr());
            }
        }
        for i in (0..count).step_by(4) {
            self.ring.prefetch_to_write(self.at.wrapping_add(count + i));
        }
    }

    /// Reads the peer's index if fewer free descriptors are known than are wanted.
    #[inline]
    fn look_for(&mut self, wanted: usize) -> Result<(), Fault> {
        if usize::from(self.free) >= wanted {
            return Ok(());
        }
        let size = self.ring.size();
        let used_or_free = match self.buffers {
            Some(_) => self.at.wrapping_sub(self.ring.tail()),
            None => self.ring.head().wrapping_sub(self.at),
        };
        if used_or_free > size {
            return Err(Fault::Index);
        }
        self.free = if self.buffers.is_some() { size - used_or_free } else { used_or_free };
        Ok(())
    }

    /// The buffer of a descriptor.
    #[inline]
    fn buffer(&self, index: u16) -> Result<(NonNull<u8>, Descriptor), Fault> {
        let descriptor = match &self.buffers {
            Some(buffers) => buffers.empty(index),
            None => self.ring.load(index),
        };
        let Descriptor { region, offset, length, .. } = descriptor;
        let place = self.ring.memory().find(region, offset, length).filter(|_| length != 0).ok_or(Fault::Buffer)?;
        Ok((place, descriptor))
    }

    /// Sends packets that fit into one buffer each, up to the first that does not or cannot be sent. The caller has
    /// ensured that there are as many free descriptors.
    #[inline]
    fn singles(
        &mut self,
        packets: &[Packet],
        frame_max: u32,
        stats: &mut PortStats,
    ) -> Result<(usize, Option<Unlike>), Fault> {
        let overdue = Overdue::of_this_thread();
        let mut places = [const { MaybeUninit::<(NonNull<u8>, Descriptor)>::uninit() }; BURST];
        for i in (0..packets.len()).step_by(4) {
            self.ring.prefetch_to_write(self.at.wrapping_add(i as u16));
        }
        let mut unlike = None;
        let mut found = 0;
        for (packet, place) in packets.iter().zip(&mut places) {
            if overdue.is_now() {
                break;
            }
            let length = packet.len() as u32;
            if packet.segment() != 0 || length.wrapping_sub(1) >= frame_max {
                unlike = Some(Unlike::Unsendable);
                break;
            }
            let (to, descriptor) = self.buffer(self.at.wrapping_add(found as u16))?;
            if length > descriptor.length {
                unlike = Some(Unlike::Long);
                break;
            }
            prefetch_to_write(to.as_ptr());
            place.write((to, descriptor));
            found += 1;
        }
        let (mut bytes, mut copied) = (0, 0);
        for (packet, place) in packets[..found].iter().zip(&places) {
            if overdue.is_now() {
                unlike = None;
                break;
            }
            copied += 1;
            // SAFETY: the first `found` elements were initialised.
            let (to, descriptor) = unsafe { place.assume_init() };
            // SAFETY: `buffer` has checked that the descriptor's length is mapped, and the packet
            // is not longer; the ring keeps the mapping.
            unsafe { copy(packet.data_ptr(), to.as_ptr(), packet.len()) }
            self.ring.store(self.at, Descriptor { flags: 0, length: packet.len() as u32, ..descriptor });
            self.at = self.at.wrapping_add(1);
            bytes += packet.len() as u64;
        }
        self.free -= copied as u16;
        stats.tx_packets += copied as u64;
        stats.tx_bytes += bytes;
        Ok((copied, unlike))
    }

    /// Sends a packet in several buffers. Returns false if not enough are free. A packet that is too long for an empty
    /// ring of this size is dropped and counted.
    #[cold]
    fn chain(&mut self, packet: &Packet, stats: &mut PortStats) -> Result<bool, Fault> {
        let most = PIECES_MAX.min(usize::from(self.ring.size()));
        self.look_for(most)?;
        let overdue = Overdue::of_this_thread();
        let mut places = [const { MaybeUninit::<(NonNull<u8>, Descriptor)>::uninit() }; PIECES_MAX];
        let (mut count, mut room) = (0, 0);
        while room < packet.len() {
            if count == most {
                stats.tx_dropped += 1;
                stats.tx_too_long += 1;
                return Ok(true);
            }
            if count == usize::from(self.free) {
                return Ok(false);
            }
            let (to, descriptor) = self.buffer(self.at.wrapping_add(count as u16))?;
            places[count].write((to, descriptor));
            room += descriptor.length as usize;
            count += 1;
        }
        let (first, mut rest) = (self.at, packet.data());
        for (i, place) in places[..count].iter().enumerate() {
            if overdue.is_now() {
                // Nothing of it is published yet.
                self.at = first;
                return Ok(false);
            }
            // SAFETY: the first `count` elements were initialised.
            let (to, descriptor) = unsafe { place.assume_init() };
            let (piece, behind) = rest.split_at(rest.len().min(descriptor.length as usize));
            // SAFETY: as in `singles`.
            unsafe { to.as_ptr().copy_from_nonoverlapping(piece.as_ptr(), piece.len()) }
            let flags = if i + 1 == count { 0 } else { NEXT };
            self.ring.store(self.at, Descriptor { flags, length: piece.len() as u32, ..descriptor });
            self.at = self.at.wrapping_add(1);
            rest = behind;
        }
        self.free -= count as u16;
        stats.tx_packets += 1;
        stats.tx_bytes += packet.len() as u64;
        Ok(true)
    }
}

/// Why a packet needs another path.
#[derive(PartialEq, Eq)]
enum Unlike {
    /// It is longer than its buffer.
    Long,
    /// It is empty, too long, or a large frame.
    Unsendable,
}

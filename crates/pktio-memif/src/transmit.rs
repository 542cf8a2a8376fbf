//! The sending end of a ring.
//!
//! A burst goes in steps, as in `receive`: buffers are found and asked for, to be written; frames are copied and
//! descriptors written; our index is published once, and the peer woken once if it asked for that, by the port's notifier. Frames longer than a
//! buffer go into several ([`Transmitter::chain`]).
//!
//! **Promises.** Nothing is written outside of the peer's regions, and of a frame nothing but its bytes. A buffer or an
//! index that cannot be costs the connection ([`Fault`]).
//!
//! Threads: one at a time; workers that share a ring lock it. Tests: `tests.rs`, `tests/hostile.rs`.
#![allow(unsafe_code)]

use crate::layout::Buffers;
use crate::receive::{Fault, PIECES_MAX};
use crate::ring::{Descriptor, NEXT, Ring};
use pktio::{Packet, PortStats};
use shared_memory::{Doorbell, copy, prefetch_to_write};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// Frames that are written together.
const BURST: usize = 64;
/// Looks at whether the peer wants interrupts, after the one at sending: one without a fence, and one behind it.
const LOOKS: u8 = 2;

/// What came of a burst.
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
    /// The next descriptor.
    at: u16,
    /// How many descriptors are surely free from there on.
    free: u16,
    /// Ours, if we are the client.
    buffers: Option<Buffers>,
    doorbell: Doorbell,
    /// How many looks are due at whether the peer has asked for interrupts.
    looks: u8,
}

impl Transmitter {
    /// The server's end of a ring.
    pub(crate) fn of_server(ring: Ring, doorbell: Doorbell) -> Transmitter {
        Transmitter { ring, at: 0, free: 0, buffers: None, doorbell, looks: 0 }
    }

    /// The client's, with the buffers that we fill.
    pub(crate) fn of_client(ring: Ring, buffers: Buffers, doorbell: Doorbell) -> Transmitter {
        Transmitter { ring, at: 0, free: 0, buffers: Some(buffers), doorbell, looks: 0 }
    }

    /// Publishes that nothing was sent yet; to be called once the client has made its rings.
    pub(crate) fn begin(&self) {
        match self.buffers {
            Some(_) => self.ring.set_head(0),
            None => self.ring.set_tail(0),
        }
    }

    /// Sends packets from the front, none longer than `frame_max` bytes. Says how many were sent, which are still the
    /// caller's, and why not more.
    #[inline]
    pub(crate) fn send(
        &mut self,
        packets: &[Packet],
        frame_max: u32,
        stats: &mut PortStats,
    ) -> Result<(usize, Stop), Fault> {
        let from = self.at;
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
                None if count < burst.len() => Stop::Full,
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

    /// Rings for the peer if it has asked for interrupts since something was sent. Says whether another look is due.
    ///
    /// The peer writes its wish and then looks at the index; we have written the index and look at its wish, behind a fence. A
    /// fence at sending would wait for all that was written, so it is left to the second look, and a ring that sends at each
    /// poll never comes to that: the next sending begins again.
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

    /// All looks that are due, at once.
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

    /// Asks for the buffers that the next burst will write, if it is like the last, and for the descriptors of that after
    /// it: these have arrived when they are needed.
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

    /// Looks for free descriptors, if fewer are known than are wanted.
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

    /// Sends packets that each fit into a buffer, up to the first that does not or cannot be sent. There are as many free
    /// descriptors.
    #[inline]
    fn singles(
        &mut self,
        packets: &[Packet],
        frame_max: u32,
        stats: &mut PortStats,
    ) -> Result<(usize, Option<Unlike>), Fault> {
        let mut places = [const { MaybeUninit::<(NonNull<u8>, Descriptor)>::uninit() }; BURST];
        for i in (0..packets.len()).step_by(4) {
            self.ring.prefetch_to_write(self.at.wrapping_add(i as u16));
        }
        let mut unlike = None;
        let mut found = 0;
        for (packet, place) in packets.iter().zip(&mut places) {
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
        let mut bytes = 0;
        for (packet, place) in packets[..found].iter().zip(&places) {
            // SAFETY: the first `found` were written.
            let (to, descriptor) = unsafe { place.assume_init() };
            // SAFETY: `buffer` has checked that the descriptor's length is mapped, and the packet is not longer; the ring
            // keeps the mapping.
            unsafe { copy(packet.data_ptr(), to.as_ptr(), packet.len()) }
            self.ring.store(self.at, Descriptor { flags: 0, length: packet.len() as u32, ..descriptor });
            self.at = self.at.wrapping_add(1);
            bytes += packet.len() as u64;
        }
        self.free -= found as u16;
        stats.tx_packets += found as u64;
        stats.tx_bytes += bytes;
        Ok((found, unlike))
    }

    /// Sends a packet in several buffers; false if they are not free. One that no ring of this size holds is dropped and
    /// counted.
    #[cold]
    fn chain(&mut self, packet: &Packet, stats: &mut PortStats) -> Result<bool, Fault> {
        let most = PIECES_MAX.min(usize::from(self.ring.size()));
        self.look_for(most)?;
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
        let mut rest = packet.data();
        for (i, place) in places[..count].iter().enumerate() {
            // SAFETY: the first `count` were written.
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

/// Why a packet is not sent like the others.
#[derive(PartialEq, Eq)]
enum Unlike {
    /// It is longer than its buffer.
    Long,
    /// It is empty, too long, or a large frame.
    Unsendable,
}

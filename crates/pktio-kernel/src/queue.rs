//! The packet side of a port: one queue, one worker.
//!
//! AF_PACKET: frames arrive in a ring shared with the kernel, without a system call. A frame longer than a slot of the
//! ring waits in the socket and is read with a system call. A burst is sent with one call. TAP: one call per frame.
//!
//! Tests: `tests/follow.rs`; `pktio-dpdk/tests/`.

use crate::io::Io;
use crate::port::{Port, lock};
use crate::ring::Ring;
use crate::sys;
use pktio::offload::{self, Accepted, VirtioNetHeader};
use pktio::{Packet, Pool, PortStats, Queue, Wake, free_bulk};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a frame is refused with ENOBUFS before it is dropped. The kernel returns this error both when the device's
/// queue is full and when the frame is longer than the far end of a veth pair accepts. A frame that is refused this
/// often is dropped, with the following ones that are at least as long, so that the others can be sent.
const REFUSALS_MAX: u32 = 2;

/// Bytes of a VLAN tag, and its offset in a frame.
const TAG_BYTES: usize = 4;
const TAG_AT: usize = 12;
const ETHERNET_BYTES: usize = 14;

pub(crate) struct KernelQueue {
    port: Arc<Port>,
    index: usize,
    io: Option<Arc<Io>>,
    /// The port's change counter as last seen.
    changes: u32,
    /// Index of the ring slot that the kernel fills next.
    next: usize,
    /// Buffers allocated for the next frames of the ring.
    fresh: Vec<Packet>,
    /// TAP: buffer for the next frame, and a second one for the rest of a long frame.
    small: Option<Packet>,
    large: Option<Packet>,
    /// The frame last refused with ENOBUFS (its buffer's address), and how often it was refused.
    refused: (usize, u32),
}

impl KernelQueue {
    pub(crate) fn new(port: Arc<Port>, index: usize) -> KernelQueue {
        KernelQueue {
            // Differs from the port's counter, so that the first call reads the slot.
            changes: port.changes.load(Ordering::Relaxed).wrapping_sub(1),
            port,
            index,
            io: None,
            next: 0,
            fresh: Vec::new(),
            small: None,
            large: None,
            refused: (0, 0),
        }
    }

    /// Takes the current sockets; the caller puts them back after use.
    #[inline]
    fn take_io(&mut self) -> Option<Arc<Io>> {
        if self.changes != self.port.changes.load(Ordering::Relaxed) {
            self.change();
        }
        self.io.take()
    }

    #[cold]
    fn change(&mut self) {
        self.changes = self.port.changes.load(Ordering::Acquire);
        let io = lock(&self.port.slots[self.index]).clone();
        let is_other = match (&io, &self.io) {
            (Some(new), Some(old)) => !Arc::ptr_eq(new, old),
            _ => true,
        };
        if is_other {
            (self.io, self.next) = (io, 0);
        }
    }

    fn count(&self, burst: &PortStats) {
        self.port.counters[self.index].add(burst);
    }

    fn receive_ring(&mut self, input: &OwnedFd, ring: &Ring, out: &mut Vec<Packet>, max: usize) -> PortStats {
        let mut burst = PortStats::default();
        // Allocates as many buffers as there are frames, in one call.
        let mut ready = 0;
        let mut place = self.next;
        while ready < max && ring.is_full(place) {
            (ready, place) = (ready + 1, ring.after(place));
        }
        if ready == 0 {
            return burst;
        }
        self.port.pool.alloc_bulk(&mut self.fresh, ready);
        for _ in 0..ready {
            let Some(place) = ring.place(self.next) else { break };
            self.next = ring.after(self.next);
            let (received, tag) = if place.is_beside() {
                (read_beside(input, &*self.port.pool), place.tag())
            } else {
                let copy = |(header, data): ([u8; 10], &[u8])| {
                    let packet = self.fresh.pop().filter(|packet| packet.tailroom() >= data.len());
                    let mut packet = packet.or_else(|| self.port.pool.alloc_large())?;
                    packet.set_data(data).ok()?;
                    Some((packet, VirtioNetHeader::from_bytes(&header)))
                };
                (place.frame().and_then(copy), place.tag())
            };
            drop(place);
            deliver(received, tag, out, &mut burst);
        }
        free_bulk(&mut self.fresh);
        burst
    }

    fn receive_tap(&mut self, file: &OwnedFd, out: &mut Vec<Packet>, max: usize) -> PortStats {
        let mut burst = PortStats::default();
        let pool = &self.port.pool;
        for _ in 0..max {
            let Some(mut small) = self.small.take().or_else(|| pool.alloc()) else { break };
            let mut large = self.large.take().or_else(|| pool.alloc_large());
            let mut header = [0; VirtioNetHeader::BYTES];
            let room = small.tailroom() + small.len();
            let rest = large.as_ref().map_or(0, |large| large.tailroom() + large.len());
            let fits = small.set_len(room).is_ok() && large.as_mut().is_none_or(|large| large.set_len(rest).is_ok());
            debug_assert!(fits);
            let nothing: &mut [u8] = &mut [];
            let behind = large.as_mut().map_or(nothing, |large| large.data_mut().get_mut(room..).unwrap_or_default());
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(small.data_mut()), IoSliceMut::new(behind)];
            let result = rustix::io::readv(file, &mut parts);
            let Some(len) = result.ok().and_then(|len| len.checked_sub(header.len())).filter(|len| *len > 0) else {
                (self.small, self.large) = (Some(small), large);
                break;
            };
            let packet = match large {
                Some(mut long) if len > room => {
                    long.data_mut()[..room].copy_from_slice(small.data());
                    self.small = Some(small);
                    long.set_len(len).ok().map(|()| long)
                }
                large => {
                    self.large = large;
                    small.set_len(len).ok().map(|()| small)
                }
            };
            let received = packet.map(|packet| (packet, VirtioNetHeader::from_bytes(&header)));
            deliver(received, None, out, &mut burst);
        }
        burst
    }

    /// Sends packets up to the first that cannot be sent as it is. Packets that the kernel took, or will never take,
    /// are removed from the vector. Returns whether it stopped at a packet that needs another form.
    fn send(&mut self, io: &Io, packets: &mut Vec<Packet>, burst: &mut PortStats) -> bool {
        let frame_max = self.port.frame_max.load(Ordering::Relaxed);
        let mut headers = [[0; VirtioNetHeader::BYTES]; sys::BURST_MAX];
        let mut too_long = usize::MAX;
        loop {
            let mut ready = 0;
            let mut stopped = false;
            for (packet, header) in packets.iter_mut().zip(&mut headers) {
                match header_for(packet, frame_max) {
                    Some(made) => *header = made,
                    None => {
                        stopped = true;
                        break;
                    }
                }
                ready += 1;
            }
            let mut done = 0;
            while done < ready {
                match hand_over(io, &headers[done..ready], &packets[done..ready]) {
                    Ok(count) => {
                        self.refused = (0, 0);
                        burst.tx_packets += count as u64;
                        burst.tx_bytes += packets[done..done + count].iter().map(|p| p.len() as u64).sum::<u64>();
                        done += count;
                    }
                    Err(error) if self.is_full(&packets[done], &mut too_long, error) => break,
                    Err(_) => {
                        // Too short or too long, or the interface is down or gone: this frame is never sent.
                        burst.tx_dropped += 1;
                        done += 1;
                    }
                }
            }
            let is_full = done < ready;
            remove_first(packets, done);
            if is_full || stopped || packets.is_empty() {
                return stopped && !is_full;
            }
        }
    }

    /// Whether the packet should wait until the kernel has space again. `too_long` is the
    /// length of the shortest frame that was dropped.
    fn is_full(&mut self, packet: &Packet, too_long: &mut usize, error: Errno) -> bool {
        if error != Errno::NOBUFS {
            return error == Errno::AGAIN || error == Errno::INTR;
        }
        if packet.len() >= *too_long {
            return false;
        }
        let which = packet.base_ptr() as usize;
        let refusals = if self.refused.0 == which { self.refused.1 + 1 } else { 1 };
        self.refused = (which, refusals);
        if refusals < REFUSALS_MAX {
            return true;
        }
        self.refused = (0, 0);
        *too_long = packet.len();
        false
    }
}

/// Removes and frees the first packets.
fn remove_first(packets: &mut Vec<Packet>, count: usize) {
    if count == packets.len() {
        free_bulk(packets);
    } else {
        packets.drain(..count);
    }
}

/// The virtio header for sending a packet; `None` if the kernel does not accept it as it is.
#[inline]
fn header_for(packet: &mut Packet, frame_max: u32) -> Option<[u8; VirtioNetHeader::BYTES]> {
    if packet.segment() == 0 {
        let fits = !packet.is_empty() && packet.len() as u32 <= frame_max;
        return fits.then_some([0; VirtioNetHeader::BYTES]);
    }
    // There is no way to find out whether a kernel accepts large UDP frames.
    if packet.segment() & offload::SEGMENT_UDP != 0 {
        return None;
    }
    let segment = packet.segment();
    let header = offload::for_peer(packet.data_mut(), segment)?;
    (header.segment_frame_bytes() <= frame_max).then(|| header.to_bytes())
}

/// Passes frames to the kernel. Returns how many it took, at least one.
fn hand_over(io: &Io, headers: &[[u8; VirtioNetHeader::BYTES]], packets: &[Packet]) -> Result<usize, Errno> {
    match io {
        Io::Packet { output, .. } => {
            let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
            sys::send_burst(output, headers, packets).map_err(errno)
        }
        Io::Tap(file) => {
            let parts = [IoSlice::new(&headers[0]), IoSlice::new(packets[0].data())];
            rustix::io::writev(file, &parts).map(|_| 1)
        }
    }
}

/// Reads the frame that waits in the socket. It is read even without a buffer, because it must not remain there when
/// the next slot of this kind is handled.
fn read_beside(input: &OwnedFd, pool: &dyn Pool) -> Option<(Packet, VirtioNetHeader)> {
    let mut packet = pool.alloc_large();
    let mut header = [0; VirtioNetHeader::BYTES];
    let room = packet.as_ref().map_or(0, |packet| packet.tailroom());
    let nothing: &mut [u8] = &mut [0];
    let to = match &mut packet {
        Some(packet) => packet.set_len(room).map(|()| packet.data_mut()).ok()?,
        None => nothing,
    };
    let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(to)];
    let result = recvmsg(input, &mut parts, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT).ok()?;
    let len = result.bytes.checked_sub(header.len()).filter(|len| *len > 0)?;
    let mut packet = packet.filter(|_| !result.flags.contains(ReturnFlags::TRUNC))?;
    packet.set_len(len).ok()?;
    Some((packet, VirtioNetHeader::from_bytes(&header)))
}

/// Completes a received frame: restores the VLAN tag that the kernel has stripped, and completes the checksum. A frame
/// that is missing or invalid is counted.
#[inline]
fn deliver(
    received: Option<(Packet, VirtioNetHeader)>,
    tag: Option<[u8; TAG_BYTES]>,
    out: &mut Vec<Packet>,
    burst: &mut PortStats,
) {
    let finished = received.and_then(|(mut packet, mut header)| {
        if let Some(tag) = tag.filter(|_| packet.len() >= ETHERNET_BYTES) {
            // The headroom is larger than what programs rely on.
            let data = packet.push_front(TAG_BYTES).ok()?;
            data.copy_within(TAG_BYTES..TAG_BYTES + TAG_AT, 0);
            data[TAG_AT..TAG_AT + TAG_BYTES].copy_from_slice(&tag);
            header.csum_start = header.csum_start.saturating_add(TAG_BYTES as u16);
        }
        let segment = offload::complete(packet.data_mut(), &header, Accepted::ALL).ok()?;
        packet.set_segment(segment);
        Some(packet)
    });
    match finished {
        Some(packet) => {
            burst.rx_packets += 1;
            burst.rx_bytes += packet.len() as u64;
            out.push(packet);
        }
        None => burst.rx_dropped += 1,
    }
}

impl Queue for KernelQueue {
    #[inline]
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let Some(io) = self.take_io() else { return 0 };
        out.reserve(max);
        let burst = match &*io {
            Io::Packet { input, ring, .. } => self.receive_ring(input, ring, out, max),
            Io::Tap(file) => self.receive_tap(file, out, max),
        };
        self.io = Some(io);
        if burst.rx_packets != 0 || burst.rx_dropped != 0 {
            self.count(&burst);
        }
        burst.rx_packets as usize
    }

    #[inline]
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        if packets.is_empty() {
            return 0;
        }
        let offered = packets.len();
        let mut burst = PortStats::default();
        match self.take_io() {
            None => {
                burst.tx_dropped = offered as u64;
                free_bulk(packets);
            }
            Some(io) => {
                if self.send(&io, packets, &mut burst) {
                    let frame_max = self.port.frame_max.load(Ordering::Relaxed);
                    let pool = Arc::clone(&self.port.pool);
                    let lost = offload::send_rest(&*pool, packets, frame_max, |batch| {
                        self.send(&io, batch, &mut burst);
                    });
                    burst += lost;
                }
                self.io = Some(io);
            }
        }
        self.count(&burst);
        // Segments of a large frame may remain, more than there were packets.
        offered.saturating_sub(packets.len())
    }

    fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        let Some(io) = self.take_io() else { return Wake::Never };
        let file = io.file();
        // A link that went down leaves an error, which makes the file readable until it is read.
        sys::take_error(file);
        files.push(Arc::clone(file));
        self.io = Some(io);
        Wake::File
    }
}

impl Drop for KernelQueue {
    fn drop(&mut self) {
        free_bulk(&mut self.fresh);
    }
}

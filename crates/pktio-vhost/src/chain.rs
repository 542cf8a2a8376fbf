//! Copies between a guest's chains of descriptors and packets.
//!
//! Each descriptor is copied once, its address checked against the memory table, and the walk is bounded in descriptors
//! ([`PIECES_MAX`] a packet). Threads: the holder of the queue's lock. Tests: `ring/tests.rs`.

use crate::memory::{Log, Memory};
use crate::terms::{Budget, CHAINS_MAX, Desc, INDIRECT, NEXT, PIECES_MAX, Table, Terms, WRITE};
use pktio::offload::{self, VirtioNetHeader};
use pktio::{Packet, Pool};
use shared_memory::Slice;

/// Longest header before a frame: `struct virtio_net_hdr_mrg_rxbuf`.
pub(crate) const HEADER_MAX: usize = 12;

/// What came of a chain that a guest sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    Done,
    /// It does not fit into the packet's buffer.
    Long,
    Bad,
}

/// A copy of a chain's first descriptor, and its bytes if they are in the guest's memory.
pub(crate) type Piece<'a> = Option<(Desc, Option<Slice<'a>>)>;

/// The bytes of a descriptor that was copied.
#[inline(always)]
pub(crate) fn piece<'a>(memory: &'a Memory, hint: &mut usize, desc: Option<Desc>) -> Piece<'a> {
    desc.map(|desc| (desc, memory.translate(desc.addr, desc.len, hint)))
}

/// Copies a chain into an empty packet of the pool's, or a large one in its place.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) fn receive(
    memory: &Memory,
    hint: &mut usize,
    table: &impl Table,
    piece: Piece<'_>,
    terms: &Terms,
    pool: &dyn Pool,
    budget: &mut Budget,
    packet: &mut Packet,
) -> Read {
    match piece {
        Some((desc, Some(slice))) if is_plain(&desc, &slice, terms, packet) => {
            let len = slice.len() - terms.header_bytes;
            // There is room: `is_plain`.
            let _ = packet.adjust(packet.headroom(), len);
            slice.read_bytes(terms.header_bytes, packet.data_mut());
            budget.spend(1, len);
            Read::Done
        }
        Some((desc, _)) => {
            let read = read(memory, hint, table, desc, terms, budget, packet);
            if read != Read::Long {
                return read;
            }
            let Some(large) = pool.alloc_large() else { return read };
            *packet = large;
            self::read(memory, hint, table, desc, terms, budget, packet)
        }
        None => Read::Bad,
    }
}

/// Whether a frame is in one descriptor, fits into the packet's buffer, and left nothing to the device.
#[inline]
fn is_plain(desc: &Desc, slice: &Slice<'_>, terms: &Terms, packet: &Packet) -> bool {
    let len = slice.len();
    // The first two bytes of the header are flags and the kind of large frame.
    desc.flags & (NEXT | WRITE | INDIRECT) == 0
        && len > terms.header_bytes
        && len - terms.header_bytes <= packet.capacity() - packet.headroom()
        && (!terms.leaves_work
            || slice.read::<[u8; 2]>(0).is_some_and(|[flags, gso_type]| {
                VirtioNetHeader { flags, gso_type, ..VirtioNetHeader::default() }.is_plain()
            }))
}

/// Frees the packets behind those that were filled.
#[inline]
pub(crate) fn free_rest(out: &mut Vec<Packet>, from: usize) {
    if from < out.len() {
        let mut rest = out.split_off(from);
        pktio::free_bulk(&mut rest);
    }
}

/// Copies a chain that begins with `first` into an empty packet, and completes what was left to the device.
pub(crate) fn read(
    memory: &Memory,
    hint: &mut usize,
    table: &impl Table,
    first: Desc,
    terms: &Terms,
    budget: &mut Budget,
    packet: &mut Packet,
) -> Read {
    let mut header = [0; HEADER_MAX];
    let (mut of_header, mut len) = (0, 0);
    let (base, room) = (packet.headroom(), packet.capacity() - packet.headroom());
    let mut desc = first;
    for _ in 0..PIECES_MAX {
        budget.spend(1, 0);
        if desc.flags & (WRITE | INDIRECT) != 0 || budget.is_overdue() {
            return Read::Bad;
        }
        let Some(piece) = memory.translate(desc.addr, desc.len, hint) else { return Read::Bad };
        let skip = (terms.header_bytes - of_header).min(piece.len());
        piece.read_bytes(0, &mut header[of_header..of_header + skip]);
        of_header += skip;
        let n = piece.len() - skip;
        if n > room - len {
            return Read::Long;
        }
        if packet.adjust(base, len + n).is_err() {
            return Read::Long;
        }
        piece.read_bytes(skip, &mut packet.data_mut()[len..]);
        // Here and not at the end: what turns out to be no frame was copied all the same.
        budget.spend(0, n);
        len += n;
        if desc.flags & NEXT == 0 {
            if of_header < terms.header_bytes || len == 0 {
                return Read::Bad;
            }
            return if terms.leaves_work { complete(&header, terms, budget, packet) } else { Read::Done };
        }
        let Some(next) = table.desc(desc.next) else { return Read::Bad };
        desc = next;
    }
    Read::Bad
}

/// Does what the guest has left to the device.
fn complete(header: &[u8; HEADER_MAX], terms: &Terms, budget: &mut Budget, packet: &mut Packet) -> Read {
    let Some(header) = header.first_chunk().map(VirtioNetHeader::from_bytes) else { return Read::Bad };
    match offload::complete(packet.data_mut(), &header, terms.accepts) {
        Ok(segment) => {
            packet.set_segment(segment);
            budget.spend_segments(if segment == 0 { 0 } else { offload::segments(packet) });
            Read::Done
        }
        Err(_) => Read::Bad,
    }
}

/// What came of a packet for a guest; the number is of entries, whose lengths were noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    Done(usize),
    /// The guest's buffers cannot hold it: they go back empty.
    Lost(usize),
    /// Too few entries are there.
    Wait,
}

/// A buffer that a guest offers, and its address there; `None` unless it is a descriptor to be written, of memory that the guest has.
pub(crate) type Room<'a> = Option<(Slice<'a>, u64)>;

/// The buffer of a chain's first descriptor.
#[inline(always)]
pub(crate) fn room<'a>(memory: &'a Memory, hint: &mut usize, desc: Option<Desc>) -> Room<'a> {
    let desc = desc.filter(|desc| desc.flags & (WRITE | INDIRECT) == WRITE)?;
    Some((memory.translate(desc.addr, desc.len, hint)?, desc.addr))
}

/// Prefetches the beginning of a frame and of the header before it, which often ends a cache line, to write them.
#[inline(always)]
pub(crate) fn prefetch_to_write(slice: &Slice<'_>, terms: &Terms) {
    slice.prefetch_to_write(0);
    slice.prefetch_to_write(terms.header_bytes);
}

/// The same to read them, the header only if it is read.
#[inline(always)]
pub(crate) fn prefetch(slice: &Slice<'_>, terms: &Terms) {
    if terms.leaves_work {
        slice.prefetch(0);
    }
    slice.prefetch(terms.header_bytes);
}

/// The virtio header for a packet, or none if it is plain; `Err` if it must not be sent as it is.
#[inline(always)]
pub(crate) fn header_for(
    packet: &mut Packet,
    terms: &Terms,
    frame_max: u32,
) -> Result<Option<VirtioNetHeader>, Unsendable> {
    if packet.segment() != 0 {
        offload_for(packet, terms, frame_max).map(Some).ok_or(Unsendable)
    } else if (packet.len() as u32).wrapping_sub(1) >= frame_max {
        // An empty packet's length wraps around.
        Err(Unsendable)
    } else {
        Ok(None)
    }
}

/// See [`header_for`].
pub(crate) struct Unsendable;

/// Copies a plain packet into a buffer that holds it with its header; `None` if it does not. Says how many bytes were written.
#[inline(always)]
pub(crate) fn write_plain(room: Room<'_>, terms: &Terms, budget: &mut Budget, packet: &Packet) -> Option<u32> {
    let (slice, address) = room?;
    let bytes = terms.header_bytes + packet.len();
    if bytes > slice.len() {
        return None;
    }
    write_header(&slice, terms, None, 1);
    slice.write_bytes(terms.header_bytes, packet.data());
    mark(terms.log.as_deref(), address, bytes);
    budget.spend(1, packet.len());
    Some(bytes as u32)
}

/// The first `header_bytes` before a frame that takes `buffers` entries.
#[inline]
pub(crate) fn write_header(at: &Slice<'_>, terms: &Terms, offload: Option<&VirtioNetHeader>, buffers: u16) {
    // Constants: a copy from a structure on the stack would wait for the stores to it.
    match offload {
        None => {
            at.write(0, 0u64);
            at.write(8, 0u16);
        }
        Some(header) => {
            at.write_bytes(0, &header.to_bytes());
        }
    }
    if terms.header_bytes > VirtioNetHeader::BYTES {
        at.write(VirtioNetHeader::BYTES, buffers);
    }
}

/// Copies a packet into the chains that begin at `first(0)`, `first(1)`, ... and notes what was written into each in
/// `lengths`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn write(
    memory: &Memory,
    hint: &mut usize,
    table: &impl Table,
    mut first: impl FnMut(usize) -> Option<u16>,
    terms: &Terms,
    budget: &mut Budget,
    data: &[u8],
    offload: Option<&VirtioNetHeader>,
    lengths: &mut [u32; CHAINS_MAX],
) -> Written {
    let log = terms.log.as_deref();
    let mut header_at: Option<(Slice<'_>, u64)> = None;
    let (mut done, mut taken, mut pieces) = (0, 0, 0);
    while header_at.is_none() || done < data.len() {
        if taken == CHAINS_MAX || pieces >= PIECES_MAX {
            return lost(lengths, taken);
        }
        let Some(mut index) = first(taken) else { return Written::Wait };
        let mut written = 0;
        while pieces < PIECES_MAX && (header_at.is_none() || done < data.len()) {
            budget.spend(1, 0);
            pieces += 1;
            if budget.is_overdue() {
                return lost(lengths, taken);
            }
            let Some(desc) = table.desc(index) else { break };
            if desc.flags & WRITE == 0 || desc.flags & INDIRECT != 0 {
                break;
            }
            let Some(piece) = memory.translate(desc.addr, desc.len, hint) else { break };
            let mut skip = 0;
            if header_at.is_none() {
                // The header is in one piece: everybody's is.
                if piece.len() < terms.header_bytes {
                    break;
                }
                header_at = Some((piece, desc.addr));
                skip = terms.header_bytes;
            }
            let n = (piece.len() - skip).min(data.len() - done);
            piece.write_bytes(skip, &data[done..done + n]);
            // Also of a packet that does not fit in the end.
            budget.spend(0, n);
            mark(log, desc.addr + skip as u64, n);
            done += n;
            written += (skip + n) as u32;
            if desc.flags & NEXT == 0 {
                break;
            }
            index = desc.next;
        }
        lengths[taken] = written;
        taken += 1;
        let is_whole = header_at.is_some() && done == data.len();
        if !is_whole && (written == 0 || !terms.mergeable) {
            // A chain that is none, or a buffer that is too small.
            return lost(lengths, taken);
        }
    }
    let Some((at, address)) = header_at else { return lost(lengths, taken) };
    write_header(&at, terms, offload, taken as u16);
    // After it was written: the page may have been sent since its data was logged.
    mark(log, address, terms.header_bytes);
    Written::Done(taken)
}

fn lost(lengths: &mut [u32; CHAINS_MAX], taken: usize) -> Written {
    lengths[..taken].fill(0);
    Written::Lost(taken)
}

#[inline]
pub(crate) fn mark(log: Option<&Log>, address: u64, bytes: usize) {
    if let Some(log) = log {
        log.mark(address, bytes as u64);
    }
}

/// The header for a packet that is a large frame, if this guest takes it so. `None`: it must not be sent as it is.
#[cold]
fn offload_for(packet: &mut Packet, terms: &Terms, frame_max: u32) -> Option<VirtioNetHeader> {
    if packet.is_empty() || terms.takes == 0 {
        return None;
    }
    let segment = packet.segment();
    let header = offload::for_peer(packet.data_mut(), segment)?;
    let is_taken = terms.takes >> header.gso_type()? as u8 & 1 != 0;
    (is_taken && header.segment_frame_bytes() <= frame_max).then_some(header)
}

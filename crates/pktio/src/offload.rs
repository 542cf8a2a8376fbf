//! Offloads that a sender requests from the device: checksums and segmentation.
//!
//! How transport checksums stay correct, whatever the program does to addresses and ports:
//!
//! - On reception, a requested checksum is completed before anybody sees the packet ([`complete`]). The program works
//!   on the frame as it would be on a wire: it may verify, update or ignore the checksum, and the result is sent
//!   unchanged. No flag travels with the packet, so none can become stale.
//! - A *large frame* (GSO: several segments of one TCP or UDP stream in one packet) carries its segment size,
//!   [`Packet::segment`], through the switch. Its checksum is completed too. On transmission every segment gets a
//!   checksum computed from its final headers, either by us ([`cut`]) or by a peer that accepts large frames
//!   ([`for_peer`]), which gets the pseudo header's sum over the final addresses.
//!
//! Headers are located in the frame as it leaves (`layers`): the program may have inserted headers
//! before the IP header, or a tunnel (VXLAN, IP in IP) around it. A frame that cannot be parsed cannot
//! be segmented; it is dropped and counted.
//!
//! Headers and frames come from guests, peers and the kernel: any bytes are accepted, and nothing here panics or reads
//! beyond the frame. There is no unsafe code here. Buffers come from the pool; only [`send_rest`] allocates.
//!
//! Work is bounded: a sender may request only what it has negotiated ([`Accepted`]), segments have a minimum size, a
//! port counts the segments that it takes in a poll ([`segments`]), and frames are segmented only as fast as a port
//! takes their segments ([`send_rest`]).
//!
//! Sources: virtio 1.2, 5.1.6 (`struct virtio_net_hdr`); RFC 1071 (checksum), RFC 9293 (TCP), RFC 768 (UDP),
//! RFC 8200, 8.1 (pseudo header), RFC 3168, 6.1.2 (CWR), RFC 7348 (VXLAN), RFC 2003 and 2473 (IP in IP).
//! Threads: any. Tests: `offload/tests.rs`, and against the kernel in `pktio-dpdk/tests/offload.rs`.

mod checksum;
mod layers;
#[cfg(test)]
mod tests;
mod virtio;

pub use virtio::{GsoType, VirtioNetHeader};

use crate::device::PortStats;
use crate::packet::Packet;
use crate::pool::Pool;
use checksum::{Sum, store_sum};
use layers::{Layer, Layers, UDP_BYTES, load_u16, load_u32, store_u16, store_u32};

/// UDP flag in [`Packet::segment`]; the segment size is smaller than this.
pub const SEGMENT_UDP: u16 = 0x8000;

/// Maximum segments of a large frame: more than the largest frame has at the smallest usual segment size of 536 bytes,
/// but few enough that a hostile frame of tiny segments neither empties the pool nor occupies a worker for long.
pub const SEGMENTS_MAX: usize = 128;

/// Minimum accepted TCP segment size in bytes: Linux sends no MSS below 48 bytes, of which options take up to 40.
pub const TCP_SEGMENT_MIN: u16 = 8;

/// Packets that [`send_rest`] passes on at a time (plus the last frame's segments): a port's burst.
pub const SEND_BATCH: usize = 64;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Offset of the checksum in the TCP and the UDP header.
const TCP_CHECKSUM_AT: usize = 16;
const UDP_CHECKSUM_AT: usize = 6;

/// Offloads that a sender may request, as negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Whether checksums may be left incomplete.
    pub checksums: bool,
    /// Accepted types of large frames: one bit per [`GsoType`].
    pub large: u8,
}

impl Accepted {
    /// Everything that is implemented; for the kernel.
    pub const ALL: Accepted = Accepted {
        checksums: true,
        large: 1 << GsoType::TcpV4 as u8 | 1 << GsoType::TcpV6 as u8 | 1 << GsoType::UdpL4 as u8,
    };
}

/// Error: a received virtio header that contradicts its frame, or requests what was not negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the virtio header does not fit its frame")]
pub struct BadHeader;

/// Why a large frame was not segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCut {
    /// The segments would exceed the port's maximum frame length.
    #[error("its segments are longer than the port carries")]
    TooLong,
    /// It has no known TCP or UDP headers, or too many segments.
    #[error("its segments are not understood")]
    NotUnderstood,
    /// The pool has no buffer left.
    #[error("no buffer is left")]
    NoBuffer,
}

/// Completes the checksum of a received frame (virtio 1.2, 5.1.6.4.2). Returns the value for [`Packet::segment`]: 0
/// unless it is a large frame. `data` is the frame without the virtio header.
///
/// # Errors
/// The header contradicts the frame, or requests an offload that is not `accepted`.
#[inline]
pub fn complete(data: &mut [u8], header: &VirtioNetHeader, accepted: Accepted) -> Result<u16, BadHeader> {
    if header.is_plain() { Ok(0) } else { complete_offloaded(data, header, accepted) }
}

fn complete_offloaded(data: &mut [u8], header: &VirtioNetHeader, accepted: Accepted) -> Result<u16, BadHeader> {
    let kind = header.gso_type().ok_or(BadHeader)?;
    if kind != GsoType::None && accepted.large >> kind as u8 & 1 == 0 || header.needs_checksum() && !accepted.checksums
    {
        return Err(BadHeader);
    }
    if header.needs_checksum() {
        let start = usize::from(header.csum_start);
        let covered = data.get_mut(start..).filter(|covered| !covered.is_empty()).ok_or(BadHeader)?;
        // The sender has stored the pseudo header's sum in the checksum field.
        let sum = Sum::of(covered).checksum();
        let at = usize::from(header.csum_offset);
        covered.get_mut(at..at + 2).ok_or(BadHeader)?.copy_from_slice(&sum);
    }
    let (udp, least) = match kind {
        GsoType::None => return Ok(0),
        GsoType::TcpV4 | GsoType::TcpV6 => (0, TCP_SEGMENT_MIN),
        GsoType::UdpL4 => (SEGMENT_UDP, 1),
    };
    match header.gso_size {
        size if size < least || size & SEGMENT_UDP != 0 => Err(BadHeader),
        size => Ok(size | udp),
    }
}

/// An upper bound for the number of packets that this one becomes on a port that takes no large
/// frames: the work that its sender requests.
#[inline]
pub fn segments(packet: &Packet) -> usize {
    match packet.segment() & !SEGMENT_UDP {
        0 => 1,
        each => packet.len().div_ceil(usize::from(each)).min(SEGMENTS_MAX),
    }
}

/// Prepares a large frame for a peer that segments it. Returns the virtio header, and stores the pseudo header's sum,
/// which the peer completes, in the frame. `segment` is the frame's [`Packet::segment`]. Returns `None` and leaves the
/// frame unchanged if virtio's header cannot describe it. The caller checks whether the peer accepts this type and
/// segments of this size ([`VirtioNetHeader::gso_type`], [`VirtioNetHeader::segment_frame_bytes`]).
pub fn for_peer(data: &mut [u8], segment: u16) -> Option<VirtioNetHeader> {
    let is_udp = segment & SEGMENT_UDP != 0;
    let layers = Layers::find(data, is_udp)?;
    let layer = layers.only()?;
    let (hdr_len, csum_start) = (u16::try_from(layers.payload).ok()?, u16::try_from(layers.transport).ok()?);
    // Only the first segment carries CWR (RFC 3168, 6.1.2), which peers must negotiate as a feature of its own.
    if !is_udp && data[layers.transport + 13] & TCP_CWR != 0 {
        return None;
    }
    let offset = if is_udp { UDP_CHECKSUM_AT } else { TCP_CHECKSUM_AT };
    let sum = pseudo_header(data, layer, layers.protocol(), data.len() - layers.transport);
    store_sum(data, layers.transport + offset, sum.folded());
    let gso_type = match (is_udp, layer.is_v6) {
        (true, _) => GsoType::UdpL4,
        (false, true) => GsoType::TcpV6,
        (false, false) => GsoType::TcpV4,
    };
    Some(VirtioNetHeader::large(gso_type, hdr_len, segment & !SEGMENT_UDP, csum_start, offset as u16))
}

/// Segments a large frame: appends its segments to `out`, at most [`SEGMENTS_MAX`], none longer than
/// `frame_max` bytes. `packet` is not changed.
///
/// # Errors
/// Why it was not segmented; `out` is unchanged.
pub fn cut(packet: &Packet, pool: &dyn Pool, frame_max: u32, out: &mut Vec<Packet>) -> Result<(), NotCut> {
    let from = packet.data();
    let is_udp = packet.segment() & SEGMENT_UDP != 0;
    let each = usize::from(packet.segment() & !SEGMENT_UDP);
    let layers = Layers::find(from, is_udp).filter(|_| each != 0).ok_or(NotCut::NotUnderstood)?;
    let (headers, payload) = from.split_at(layers.payload);
    let count = payload.len().div_ceil(each);
    if count > SEGMENTS_MAX {
        return Err(NotCut::NotUnderstood);
    }
    if headers.len() + each.min(payload.len()) > frame_max as usize {
        return Err(NotCut::TooLong);
    }
    let before = out.len();
    for (number, part) in payload.chunks(each).enumerate() {
        let Some(mut segment) = with_data(pool, headers, part) else {
            out.truncate(before);
            return Err(NotCut::NoBuffer);
        };
        layers.finish(segment.data_mut(), number, number * each, number + 1 == count);
        out.push(segment);
    }
    Ok(())
}

/// Sends the remaining packets, after a port without segmentation offload has stopped at one. Segments large frames, in
/// buffers of `pool`, and frees packets that the port can never send: empty ones, those longer than `frame_max` bytes,
/// and large frames that cannot be segmented. `send` takes packets from the front and leaves those that do not fit now.
///
/// Frames are segmented only as long as their segments are taken: [`SEND_BATCH`] packets at a time, and none after some
/// were left. So a burst's cost is bounded by what the port sends, not by the segments that its frames could become.
/// What is left stays in `packets`, in order. Returns what was freed, as `tx_dropped`, `tx_too_long` and `tx_not_cut`.
#[cold]
pub fn send_rest(
    pool: &dyn Pool,
    packets: &mut Vec<Packet>,
    frame_max: u32,
    mut send: impl FnMut(&mut Vec<Packet>),
) -> PortStats {
    let mut lost = PortStats::default();
    let mut batch = Vec::with_capacity(SEND_BATCH + SEGMENTS_MAX);
    let mut rest = packets.drain(..);
    loop {
        while batch.len() < SEND_BATCH
            && let Some(packet) = rest.next()
        {
            if packet.segment() != 0 {
                let why = cut(&packet, pool, frame_max, &mut batch).err();
                lost.tx_dropped += u64::from(why.is_some());
                lost.tx_too_long += u64::from(why == Some(NotCut::TooLong));
                lost.tx_not_cut += u64::from(why == Some(NotCut::NotUnderstood));
            } else if packet.is_empty() || packet.len() as u32 > frame_max {
                lost.tx_dropped += 1;
                lost.tx_too_long += u64::from(!packet.is_empty());
            } else {
                batch.push(packet);
            }
        }
        if batch.is_empty() {
            break;
        }
        send(&mut batch);
        if !batch.is_empty() {
            break;
        }
    }
    batch.extend(rest);
    packets.append(&mut batch);
    lost
}

/// A packet with the concatenation of two slices, in the smallest buffer that holds it.
fn with_data(pool: &dyn Pool, headers: &[u8], part: &[u8]) -> Option<Packet> {
    let len = headers.len() + part.len();
    let small = pool.alloc()?;
    let mut packet = if small.tailroom() >= len { small } else { pool.alloc_large()? };
    packet.adjust(packet.headroom(), len).ok()?;
    let (front, back) = packet.data_mut().split_at_mut(headers.len());
    front.copy_from_slice(headers);
    back.copy_from_slice(part);
    Some(packet)
}

/// The sum over the pseudo header of TCP or UDP: addresses, protocol and length.
fn pseudo_header(data: &[u8], layer: &Layer, protocol: u8, len: usize) -> Sum {
    let addresses = if layer.is_v6 { layer.ip + 8..layer.ip + 40 } else { layer.ip + 12..layer.ip + 20 };
    let mut tail = [0; 8];
    store_u32(&mut tail, 0, len as u32);
    tail[7] = protocol;
    Sum::of(&data[addresses]) + Sum::of(&tail)
}

/// Computes and stores the checksum, at `checksum_at`, of the transport header at `at` and everything after it.
fn store_transport_checksum(data: &mut [u8], layer: &Layer, protocol: u8, at: usize, checksum_at: usize) {
    store_sum(data, checksum_at, [0; 2]);
    let sum = pseudo_header(data, layer, protocol, data.len() - at) + Sum::of(&data[at..]);
    store_sum(data, checksum_at, sum.checksum());
}

impl Layers {
    /// Turns segment `number`, which has copies of the headers and its payload, into a complete frame. `skipped` is the
    /// number of payload bytes in earlier segments.
    fn finish(&self, data: &mut [u8], number: usize, skipped: usize, is_last: bool) {
        let at = self.transport;
        let checksum_at = if self.is_udp {
            store_u16(data, at + 4, (data.len() - at) as u16);
            at + UDP_CHECKSUM_AT
        } else {
            let sequence = load_u32(data, at + 4).wrapping_add(skipped as u32);
            store_u32(data, at + 4, sequence);
            if !is_last {
                data[at + 13] &= !(TCP_FIN | TCP_PSH);
            }
            if number != 0 {
                data[at + 13] &= !TCP_CWR;
            }
            at + TCP_CHECKSUM_AT
        };
        store_transport_checksum(data, self.inner(), self.protocol(), at, checksum_at);
        // From the innermost layer outwards, since an outer checksum covers the inner headers.
        for layer in self.all().iter().rev() {
            layer.finish(data, number);
        }
    }
}

impl Layer {
    /// Updates lengths and checksums of an IP header, and of the tunnel's UDP header behind
    /// it, in a frame that ends where `data` does.
    fn finish(&self, data: &mut [u8], number: usize) {
        let ip = self.ip;
        if self.is_v6 {
            store_u16(data, ip + 4, (data.len() - ip - 40) as u16);
        } else {
            store_u16(data, ip + 2, (data.len() - ip) as u16);
            let identification = load_u16(data, ip + 4).wrapping_add(number as u16);
            store_u16(data, ip + 4, identification);
            store_sum(data, ip + 10, [0; 2]);
            let sum = Sum::of(&data[ip..ip + self.ip_bytes]).complement();
            store_sum(data, ip + 10, sum);
        }
        let Some(udp) = self.tunnel else { return };
        store_u16(data, udp + 4, (data.len() - udp) as u16);
        // A zero checksum means none and stays zero (RFC 6935).
        if load_u16(data, udp + UDP_CHECKSUM_AT) != 0 {
            debug_assert!(udp + UDP_BYTES <= data.len());
            store_transport_checksum(data, self, layers::UDP, udp, udp + UDP_CHECKSUM_AT);
        }
    }
}

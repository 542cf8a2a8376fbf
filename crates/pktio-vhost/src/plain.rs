//! Fast path of both ring formats: frames in one buffer each, which nearly all frames are.
//!
//! A burst has two steps: descriptors are read once each and checked, and their buffers prefetched; then frames are
//! copied. The fast path ends at the first frame of another form. The ring's general path then reads that descriptor
//! again from scratch and continues.
//!
//! Threads: the holder of the queue's lock. Tests: `ring/tests.rs`.

use crate::chain;
use crate::memory::Finder;
use crate::terms::{BURST_MAX, Budget, Burst, Desc, INDIRECT, NEXT, POLL_BYTES_MAX, Terms, WRITE};
use pktio::offload::VirtioNetHeader;
use pktio::{BUFFER_CAPACITY, HEADROOM, Packet, Pool};
use shared_memory::{Batch, Slice};

/// Maximum frame in a small buffer, in bytes.
const SMALL_BYTES: usize = BUFFER_CAPACITY - HEADROOM;

/// A burst of such frames stays within a poll's budget, so the budget is checked only afterwards.
const _: () = assert!(BURST_MAX * SMALL_BYTES < POLL_BYTES_MAX as usize);

/// A buffer in the guest's memory for a header and a frame, and its id (split ring: the head's index).
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    slice: Slice<'a>,
    name: u16,
}

pub(crate) type Frames<'a> = Batch<Frame<'a>, BURST_MAX>;

/// The buffer of a frame from the guest, prefetched; `None` unless it is a single readable buffer for a small frame.
#[inline(always)]
pub(crate) fn from_guest<'a>(finder: &mut Finder<'a, '_>, terms: &Terms, desc: Desc, name: u16) -> Option<Frame<'a>> {
    let len = (desc.len as usize).wrapping_sub(terms.header_bytes);
    // A length shorter than the header wraps around to a large one.
    if desc.flags & (NEXT | WRITE | INDIRECT) != 0 || len.wrapping_sub(1) >= SMALL_BYTES {
        return None;
    }
    let slice = finder.translate(desc.addr, desc.len)?;
    chain::prefetch(&slice, terms);
    Some(Frame { slice, name })
}

/// The buffer for a frame to the guest, prefetched; `None` unless the descriptor is writable and in guest memory.
#[inline(always)]
pub(crate) fn to_guest<'a>(finder: &mut Finder<'a, '_>, terms: &Terms, desc: Desc, name: u16) -> Option<Frame<'a>> {
    if desc.flags & (WRITE | INDIRECT) != WRITE {
        return None;
    }
    let slice = finder.translate(desc.addr, desc.len)?;
    chain::prefetch_to_write(&slice, terms);
    Some(Frame { slice, name })
}

/// Copies frames into packets, up to the first that requests an offload. Returns how many, and calls `give` for each.
#[inline(always)]
pub(crate) fn receive(
    frames: &[Frame<'_>],
    terms: &Terms,
    pool: &dyn Pool,
    out: &mut Vec<Packet>,
    budget: &mut Budget,
    burst: &mut Burst,
    mut give: impl FnMut(usize, u16),
) -> usize {
    if frames.first().is_none_or(|frame| !leaves_nothing(frame, terms)) {
        return 0;
    }
    let before = out.len();
    let count = pool.alloc_bulk(out, frames.len());
    let (mut done, mut bytes) = (0, 0);
    for (packet, frame) in out[before..].iter_mut().zip(frames) {
        let len = frame.slice.len() - terms.header_bytes;
        if budget.is_overdue() || !leaves_nothing(frame, terms) || packet.adjust(packet.headroom(), len).is_err() {
            break;
        }
        frame.slice.read_bytes(terms.header_bytes, packet.data_mut());
        give(done, frame.name);
        done += 1;
        bytes += len;
    }
    if done < count {
        chain::free_rest(out, before + done);
    }
    budget.spend(done as u32, bytes);
    burst.packets += done as u64;
    burst.bytes += bytes as u64;
    done
}

/// Whether the frame's header, if it is meaningful, requests no offload.
#[inline(always)]
fn leaves_nothing(frame: &Frame<'_>, terms: &Terms) -> bool {
    // The first two bytes are the flags and the GSO type.
    !terms.leaves_work
        || frame.slice.read::<u16>(0).is_some_and(|word| {
            let [flags, gso_type] = word.to_le_bytes();
            VirtioNetHeader { flags, gso_type, ..VirtioNetHeader::default() }.is_plain()
        })
}

/// Copies packets into buffers, up to the first that needs segmentation or does not fit. Returns how many, and calls
/// `give` for each buffer with the bytes written.
#[inline(always)]
pub(crate) fn send(
    frames: &[Frame<'_>],
    packets: &[Packet],
    terms: &Terms,
    frame_max: u32,
    budget: &mut Budget,
    burst: &mut Burst,
    mut give: impl FnMut(usize, u16, u32),
) -> usize {
    let (mut done, mut bytes) = (0, 0);
    for (packet, frame) in packets.iter().zip(frames) {
        let len = packet.len();
        let all = terms.header_bytes + len;
        // An empty packet's length wraps around to a large one.
        if packet.segment() != 0
            || (len as u32).wrapping_sub(1) >= frame_max
            || all > frame.slice.len()
            || bytes >= POLL_BYTES_MAX as usize
            || budget.is_overdue()
        {
            break;
        }
        chain::write_header(&frame.slice, terms, None, 1);
        frame.slice.write_bytes(terms.header_bytes, packet.data());
        give(done, frame.name, all as u32);
        done += 1;
        bytes += len;
    }
    budget.spend(done as u32, bytes);
    burst.bytes += bytes as u64;
    done
}

//! Frames in one buffer each, as nearly all are: the quick part of both kinds of rings.
//!
//! A burst goes in steps: descriptors are read once each and checked, and their buffers prefetched; then frames are copied. The first that is
//! not plain ends the quick part; the ring's general part reads its descriptor again, as if for the first time, and goes on.
//!
//! Threads: the holder of the queue's lock. Tests: `ring/tests.rs`.

use crate::chain;
use crate::memory::Finder;
use crate::terms::{BURST_MAX, Budget, Burst, Desc, INDIRECT, NEXT, POLL_BYTES_MAX, Terms, WRITE};
use pktio::offload::VirtioNetHeader;
use pktio::{BUFFER_CAPACITY, HEADROOM, Packet, Pool};
use shared_memory::{Batch, Slice};

/// What fits into a small buffer.
const SMALL_BYTES: usize = BUFFER_CAPACITY - HEADROOM;

/// Plain frames need less than a poll's budget, which is looked at afterwards.
const _: () = assert!(BURST_MAX * SMALL_BYTES < POLL_BYTES_MAX as usize);

/// A buffer for a header and a frame, all in the guest's memory, and what the guest knows it by.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    slice: Slice<'a>,
    name: u16,
}

pub(crate) type Frames<'a> = Batch<Frame<'a>, BURST_MAX>;

/// The buffer of a frame from the guest, prefetched; `None` unless it is in one piece and short.
#[inline(always)]
pub(crate) fn from_guest<'a>(finder: &mut Finder<'a, '_>, terms: &Terms, desc: Desc, name: u16) -> Option<Frame<'a>> {
    let len = (desc.len as usize).wrapping_sub(terms.header_bytes);
    // A shorter one's length wraps around.
    if desc.flags & (NEXT | WRITE | INDIRECT) != 0 || len.wrapping_sub(1) >= SMALL_BYTES {
        return None;
    }
    let slice = finder.translate(desc.addr, desc.len)?;
    chain::prefetch(&slice, terms);
    Some(Frame { slice, name })
}

/// A buffer for a frame to the guest, prefetched; `None` if there is none.
#[inline(always)]
pub(crate) fn to_guest<'a>(finder: &mut Finder<'a, '_>, terms: &Terms, desc: Desc, name: u16) -> Option<Frame<'a>> {
    if desc.flags & (WRITE | INDIRECT) != WRITE {
        return None;
    }
    let slice = finder.translate(desc.addr, desc.len)?;
    chain::prefetch_to_write(&slice, terms);
    Some(Frame { slice, name })
}

/// Copies frames into packets, up to the first that left something to the device; how many. Each is given back by `give`.
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
        if !leaves_nothing(frame, terms) || packet.adjust(packet.headroom(), len).is_err() {
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

/// Whether its header, if that says anything, leaves nothing to the device.
#[inline(always)]
fn leaves_nothing(frame: &Frame<'_>, terms: &Terms) -> bool {
    // The first two bytes are flags and the kind of large frame.
    !terms.leaves_work
        || frame.slice.read::<u16>(0).is_some_and(|word| {
            let [flags, gso_type] = word.to_le_bytes();
            VirtioNetHeader { flags, gso_type, ..VirtioNetHeader::default() }.is_plain()
        })
}

/// Copies packets into buffers, up to the first that is not plain or does not fit; how many. Each buffer is given back by `give`, with the
/// bytes written.
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
        // An empty packet's length wraps around.
        if packet.segment() != 0
            || (len as u32).wrapping_sub(1) >= frame_max
            || all > frame.slice.len()
            || bytes >= POLL_BYTES_MAX as usize
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

//! One ring, split or packed: what is common to both.
//!
//! A ring is made from addresses that were checked against the memory table, and keeps that table mapped. It never changes
//! its size, addresses or kind: whenever the front end says something new, another one is made, which goes on at the same
//! index. All that is taken from a ring is given back in the same call, in order, so one index says where it stands.
//!
//! Notifications: whether the guest wants to be called is asked at the poll after its entries were given back. The guest
//! writes its wish and then looks at the index; we have written the index and look at its wish; the exchange that takes
//! the queue's lock keeps these in order. A fence right behind the stores would wait for all of them.
//!
//! Threads: the holder of the queue's lock. Tests: `ring/tests.rs`, `tests/hostile.rs`.

use crate::memory::{Log, Memory, Place};
use crate::packed::Packed;
use crate::split::Split;
use pktio::offload::Accepted;
use pktio::{Packet, Pool};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Flags of a descriptor, the same in both kinds.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Most packets of a burst; bounds the arrays on the stack.
pub(crate) const BURST_MAX: usize = 64;
/// Most descriptors of one packet, over all its chains. Linux uses up to 18, DPDK one for each of its buffers; a large frame
/// in buffers of 256 bytes fits.
pub(crate) const PIECES_MAX: u32 = 256;
/// Most chains of one packet (mergeable receive buffers): a large frame in buffers of 512 bytes fits.
pub(crate) const CHAINS_MAX: usize = 128;
/// Most descriptors that one poll looks at, but for those of its last packet: some 10 microseconds of a worker's time.
/// 64 packets of 16 descriptors are within it.
pub(crate) const POLL_PIECES_MAX: u32 = 1024;
/// Most bytes that one poll copies, but for those of its last packet: some 30 microseconds. A guest that sends large frames
/// has four in a poll, and so as many of the large buffers, which are few.
pub(crate) const POLL_BYTES_MAX: u64 = 256 << 10;
/// Most segments that the large frames of one poll may become, but for its last frame: cutting one costs a worker up to
/// three microseconds. A frame of 64 KB has 45 of the usual size.
pub(crate) const POLL_SEGMENTS_MAX: usize = 64;
/// Largest ring (virtio 1.2, 2.7).
pub(crate) const SIZE_MAX: u32 = 32_768;

/// What one poll may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub pieces: u32,
    pub bytes: u64,
    pub segments: usize,
}

impl Budget {
    pub(crate) fn of_a_poll() -> Budget {
        Budget { pieces: POLL_PIECES_MAX, bytes: POLL_BYTES_MAX, segments: POLL_SEGMENTS_MAX }
    }

    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.pieces == 0 || self.bytes == 0 || self.segments == 0
    }

    #[inline]
    pub(crate) fn spend(&mut self, pieces: u32, bytes: usize) {
        self.pieces = self.pieces.saturating_sub(pieces);
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }

    pub(crate) fn spend_segments(&mut self, segments: usize) {
        self.segments = self.segments.saturating_sub(segments);
    }
}

/// A copy of a descriptor.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Desc {
    pub addr: u64,
    pub len: u32,
    pub flags: u16,
    /// Where the next one of its chain is.
    pub next: u16,
}

/// A ring's descriptors.
pub(crate) trait Table {
    /// A copy of one; `None` if there is none of this number.
    fn desc(&self, index: u16) -> Option<Desc>;
}

/// What the guest has done wrong, so that its ring or its memory is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// More entries than there are places. The ring waits until that is right.
    Index,
    /// A chain in a packed ring that is longer than [`PIECES_MAX`]: where the next begins is not known.
    LongChain,
    /// Its file was truncated.
    Damaged,
    /// It could not be made.
    Unfit,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Index => f.write_str("its index says that more entries are there than the ring has"),
            Fault::LongChain => write!(f, "a chain has more than {PIECES_MAX} descriptors"),
            Fault::Unfit => f.write_str(
                "its parts are not in the guest's memory as it is shared now, or its size, alignment or index is wrong",
            ),
            Fault::Damaged => f.write_str("shared memory was taken away: its file was truncated"),
        }
    }
}

/// What a burst did.
#[derive(Default, Debug)]
pub(crate) struct Burst {
    pub packets: u64,
    pub bytes: u64,
    /// Taken from the guest or from the worker, and lost.
    pub dropped: u64,
    /// It came to a packet that must not be sent as it is.
    pub stopped: bool,
}

/// What the front end has negotiated, for all rings of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Bytes before each frame: 10 or 12.
    pub header_bytes: usize,
    pub mergeable: bool,
    /// Whether the guest may leave checksums and segmentation to us. If not, nothing in its headers says anything (virtio 1.2,
    /// 5.1.6.2.1), and they are not read: they mostly lie in a cache line of their own.
    pub leaves_work: bool,
    /// The kinds of large frames that the guest takes: bits of [`pktio::offload::GsoType`].
    pub takes: u8,
    /// What the guest may leave to us.
    pub accepts: Accepted,
    /// Where written pages are logged, while the guest is migrated.
    pub log: Option<Arc<Log>>,
}

/// A ring's places in a memory table, all checked, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub size: u16,
    pub descriptors: Place,
    /// Split: the available ring. Packed: the driver's event suppression.
    pub driver: Place,
    /// Split: the used ring. Packed: the device's event suppression.
    pub device: Place,
    /// The guest's address of what we write (split: the used ring), if that is logged.
    pub log_at: Option<u64>,
}

pub(crate) struct Ring {
    kind: Kind,
    terms: Terms,
    /// Entries were given back, and the guest was not asked whether it wants to be called.
    owes_call: bool,
    fault: Option<Fault>,
    /// That the guest counts wrongly was reported. Nothing is taken meanwhile, and the ring goes on when it is right again.
    counts_wrongly: bool,
}

enum Kind {
    Split(Split),
    Packed(Packed),
}

impl Ring {
    /// A ring that goes on at `base`, as the protocol has it: for packed rings the index of the next entry, and in bit 15
    /// its wrap counter. `None` if these do not fit the ring.
    pub(crate) fn new(memory: Arc<Memory>, parts: Parts, is_packed: bool, base: u32, terms: Terms) -> Option<Ring> {
        let kind = if is_packed {
            Kind::Packed(Packed::new(memory, parts, base as u16)?)
        } else {
            Kind::Split(Split::new(memory, parts, base as u16)?)
        };
        Some(Ring { kind, terms, owes_call: false, fault: None, counts_wrongly: false })
    }

    /// Where another ring goes on: see [`Ring::new`].
    pub(crate) fn base(&self) -> u32 {
        match &self.kind {
            Kind::Split(ring) => ring.base().into(),
            // Both indices, which are one here.
            Kind::Packed(ring) => u32::from(ring.base()) | u32::from(ring.base()) << 16,
        }
    }

    #[inline]
    fn memory(&self) -> &Memory {
        match &self.kind {
            Kind::Split(ring) => ring.memory(),
            Kind::Packed(ring) => ring.memory(),
        }
    }

    /// Whether the guest is to be called now; asked once after entries were given back.
    #[inline]
    pub(crate) fn take_call(&mut self) -> bool {
        std::mem::take(&mut self.owes_call)
            && match &self.kind {
                Kind::Split(ring) => ring.wants_calls(),
                Kind::Packed(ring) => ring.wants_calls(),
            }
    }

    /// Says whether the guest is to kick.
    pub(crate) fn want_kicks(&mut self, wanted: bool) {
        match &self.kind {
            Kind::Split(ring) => ring.want_kicks(wanted),
            Kind::Packed(ring) => ring.want_kicks(wanted),
        }
    }

    /// Whether there is an entry. Behind a full barrier if it follows [`Ring::want_kicks`].
    pub(crate) fn has_entries(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.fault.is_none()
            && match &self.kind {
                Kind::Split(ring) => ring.has_entries(),
                Kind::Packed(ring) => ring.has_entries(),
            }
    }

    /// Appends at most `max` packets that the guest sends to `out`. An error is reported once; the ring is dead then.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        pool: &dyn Pool,
        out: &mut Vec<Packet>,
        max: usize,
        burst: &mut Burst,
    ) -> Result<(), Fault> {
        if self.fault.is_some() {
            return Ok(());
        }
        let max = max.min(BURST_MAX);
        let taken = match &mut self.kind {
            Kind::Split(ring) => ring.receive(&self.terms, pool, out, max, burst),
            Kind::Packed(ring) => ring.receive(&self.terms, pool, out, max, burst),
        };
        self.finish(taken)
    }

    /// Copies packets from the front of `packets` into the guest's buffers; how many. Stops before one that it must not
    /// take as it is: empty, longer than `frame_max`, or large and not for this guest.
    #[inline]
    pub(crate) fn send(&mut self, packets: &mut [Packet], frame_max: u32, burst: &mut Burst) -> Result<usize, Fault> {
        if self.fault.is_some() {
            return Ok(0);
        }
        let count = packets.len().min(BURST_MAX);
        let mut done = 0;
        let taken = match &mut self.kind {
            Kind::Split(ring) => ring.send(&self.terms, &mut packets[..count], frame_max, burst, &mut done),
            Kind::Packed(ring) => ring.send(&self.terms, &mut packets[..count], frame_max, burst, &mut done),
        };
        self.finish(taken)?;
        Ok(done)
    }

    #[inline]
    fn finish(&mut self, taken: Result<usize, Fault>) -> Result<(), Fault> {
        // What reads as zeros since it was taken away may look like anything.
        let is_damaged = self.memory().is_damaged() || self.terms.log.as_ref().is_some_and(|log| log.is_damaged());
        let result = match taken {
            _ if is_damaged => Err(Fault::Damaged),
            Ok(0) => return Ok(()),
            Ok(_) => Ok(()),
            Err(Fault::Index) => {
                let is_new = !std::mem::replace(&mut self.counts_wrongly, true);
                return if is_new { Err(Fault::Index) } else { Ok(()) };
            }
            Err(fault) => Err(fault),
        };
        self.owes_call = true;
        self.fault = result.err();
        result
    }
}

#[cfg(test)]
mod tests;

//! Definitions shared by both ring formats: limits, descriptors, faults, and the negotiated parameters.

use crate::memory::{Log, Place};
use pktio::offload::Accepted;
use shared_memory::Overdue;
use std::sync::Arc;

/// Descriptor flags, the same in both formats.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Maximum packets in a burst; bounds the arrays on the stack.
pub(crate) const BURST_MAX: usize = 64;
/// Maximum descriptors of one packet, over all its chains. Linux uses up to 18, DPDK one per mbuf; a
/// large frame in buffers of 256 bytes fits.
pub(crate) const PIECES_MAX: u32 = 256;
/// Maximum chains of one packet (mergeable receive buffers): a large frame in buffers of 512 bytes fits.
pub(crate) const CHAINS_MAX: usize = 128;
/// Maximum descriptors that one poll reads, not counting those of its last packet: some 10 microseconds of a worker's
/// time. 64 packets of 16 descriptors are within it.
pub(crate) const POLL_PIECES_MAX: u32 = 1024;
/// Maximum bytes that one poll copies, not counting those of its last packet: some 30 microseconds. A guest that sends
/// large frames gets four per poll, and so occupies at most as many of the scarce large buffers.
pub(crate) const POLL_BYTES_MAX: u64 = 256 << 10;
/// Maximum segments made from the large frames of one poll, not counting its last frame: segmenting one takes a worker
/// up to three microseconds. A frame of 64 KB has 45 segments of the usual size.
pub(crate) const POLL_SEGMENTS_MAX: usize = 64;
/// Maximum ring size in entries (virtio 1.2, 2.7).
pub(crate) const SIZE_MAX: u32 = 32_768;

/// What one poll may still spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub pieces: u32,
    pub bytes: u64,
    pub segments: usize,
    /// Whether the call has taken so long that the peer must have held it up.
    overdue: Overdue,
}

impl Budget {
    pub(crate) fn of_a_poll() -> Budget {
        Budget {
            pieces: POLL_PIECES_MAX,
            bytes: POLL_BYTES_MAX,
            segments: POLL_SEGMENTS_MAX,
            overdue: Overdue::of_this_thread(),
        }
    }

    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.pieces == 0 || self.bytes == 0 || self.segments == 0 || self.is_overdue()
    }

    /// Whether no further access to the guest's memory is to be risked in this call.
    #[inline(always)]
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.is_now()
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
    /// Index of the next descriptor in the chain.
    pub next: u16,
}

/// A ring's descriptors.
pub(crate) trait Table {
    /// A copy of a descriptor; `None` if the index is out of range.
    fn desc(&self, index: u16) -> Option<Desc>;
}

/// An error of the guest that stops a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// More entries are available than the ring has. The ring pauses until the index is valid again.
    Index,
    /// A packed ring's chain longer than [`PIECES_MAX`]: the start of the next chain is unknown.
    LongChain,
    /// The file of a memory region or log was truncated.
    Damaged,
    /// The ring could not be built.
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

/// The result of a burst.
#[derive(Default, Debug)]
pub(crate) struct Burst {
    pub packets: u64,
    pub bytes: u64,
    /// Packets that were taken from the guest or from the worker, and lost.
    pub dropped: u64,
    /// The burst stopped at a packet that cannot be sent as it is.
    pub stopped: bool,
}

/// Parameters negotiated with the front end, for all rings of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Bytes of the virtio-net header before each frame: 10 or 12.
    pub header_bytes: usize,
    pub mergeable: bool,
    /// Whether the guest may request checksum or segmentation offloads. If not, its headers have no meaning (virtio
    /// 1.2, 5.1.6.2.1) and are not read: they mostly lie in a cache line of their own.
    pub leaves_work: bool,
    /// The types of large frames that the guest accepts: bits of [`pktio::offload::GsoType`].
    pub takes: u8,
    /// Offloads that the guest may request from us.
    pub accepts: Accepted,
    /// The dirty log, during a migration.
    pub log: Option<Arc<Log>>,
}

/// The checked places of a ring's parts in a memory table, and its size.
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

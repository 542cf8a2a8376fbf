//! What both kinds of rings work with: limits, descriptors, faults, and what was negotiated.

use crate::memory::{Log, Place};
use pktio::offload::Accepted;
use std::sync::Arc;

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

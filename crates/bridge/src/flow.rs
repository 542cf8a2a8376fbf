//! Flows, groups and meters, as tables hold them and packets use them.
//!
//! They are immutable except for counters and times, which workers update. Modifying a flow makes a new [`Flow`]
//! that shares the old one's [`Usage`].

use crate::memory::Charge;
use openflow::message::{Band, GroupKind, Selection, Timeouts};
use openflow::{Bucket, Instructions, Match, memory as heap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of an [`Arc`]'s two counters.
const ARC: usize = 16;
/// Bytes that a flow takes in the indices of its table, of cookies and of timeouts, with the allocator's overhead.
/// Measured by `tests/memory_measured.rs`.
const FLOW_INDEX: usize = 384;
/// Bytes of these indices for each field that the flow matches: a word of the key, a node of a trie.
const TERM_INDEX: usize = 32;
/// Bytes that a group or meter takes in indices.
const INDEX: usize = 128;

/// Counters and the time of last use of a flow, a bucket or a meter.
#[derive(Debug, Default)]
pub struct Usage {
    packets: AtomicU64,
    bytes: AtomicU64,
    used_us: AtomicU64,
}

impl Usage {
    /// Zero counters, last used at this time.
    pub fn new(now_us: u64) -> Usage {
        Usage { used_us: AtomicU64::new(now_us), ..Usage::default() }
    }

    /// Adds packets and bytes, last used at `now_us`.
    pub fn add(&self, packets: u64, bytes: u64, now_us: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Usually the time is set already; this saves an atomic write.
        if self.used_us.load(Ordering::Relaxed) < now_us {
            self.used_us.fetch_max(now_us, Ordering::Relaxed);
        }
    }

    /// The counts of packets and bytes.
    pub fn counts(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// The time of last use, in microseconds of the switch's clock.
    pub fn used_us(&self) -> u64 {
        self.used_us.load(Ordering::Relaxed)
    }

    /// Sets the counts to zero.
    pub fn reset(&self) {
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// A flow entry.
#[derive(Debug)]
pub struct Flow {
    /// Its table.
    pub table: u8,
    /// Its match.
    pub matching: Match,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// [`openflow::message::flow_flag`] bits.
    pub flags: u16,
    /// Its importance.
    pub importance: u16,
    /// Its timeouts, in seconds.
    pub timeouts: Timeouts,
    /// The timeouts that `fin_timeout` set after a TCP FIN or RST: idle in the high half, hard in the low one;
    /// `u32::MAX` if it did not.
    pub fin_timeouts: AtomicU32,
    /// Its instructions.
    pub instructions: Instructions,
    /// When it was added, in microseconds of the switch's clock; negative if that was before the switch started.
    pub created_us: i64,
    /// When its instructions were last modified, likewise.
    pub modified_us: i64,
    /// Its counters, shared with the flows that it has replaced.
    pub usage: Arc<Usage>,
    /// Its charge to the bridge's memory.
    pub(crate) charge: Charge,
}

/// A group.
#[derive(Debug)]
pub struct Group {
    /// Its id.
    pub id: u32,
    /// Its type, which determines the buckets that are executed.
    pub kind: GroupKind,
    /// Its buckets with their counters.
    pub buckets: Vec<(Bucket, Arc<Usage>)>,
    /// The hash of a select group, if a controller sets it.
    pub selection: Selection,
    /// When it was added, in microseconds of the switch's clock.
    pub created_us: u64,
    /// Its counters.
    pub usage: Arc<Usage>,
    /// Its charge to the bridge's memory.
    pub(crate) charge: Charge,
}

/// A meter.
#[derive(Debug)]
pub struct Meter {
    /// Its id.
    pub id: u32,
    /// [`openflow::message::meter_flag`] bits.
    pub flags: u16,
    /// Its bands, each with its token bucket and counters.
    pub bands: Vec<MeterBand>,
    /// When it was added, in microseconds of the switch's clock.
    pub created_us: u64,
    /// Its counters.
    pub usage: Arc<Usage>,
    /// Its charge to the bridge's memory.
    pub(crate) charge: Charge,
}

/// A meter band.
#[derive(Debug)]
pub struct MeterBand {
    /// Its type, rate and burst size.
    pub band: Band,
    /// The token bucket, updated by workers: its level in thousandths of a packet or bit, and the time of the last
    /// update in microseconds.
    pub bucket: std::sync::Mutex<(u64, u64)>,
    /// Counters of the packets that it took effect on.
    pub usage: Arc<Usage>,
}

impl Flow {
    /// Bytes that the flow takes in its table.
    pub(crate) fn bytes(&self) -> u64 {
        let own = size_of::<Flow>() + size_of::<Usage>() + 2 * ARC + FLOW_INDEX;
        let terms = self.matching.heap_bytes() + self.matching.terms().len() * TERM_INDEX;
        (own + terms + heap::instructions(&self.instructions)) as u64
    }
}

impl Group {
    /// Bytes that the group takes.
    pub(crate) fn bytes(&self) -> u64 {
        let own = size_of::<Group>() + size_of::<Usage>() + 2 * ARC + INDEX + heap::selection(&self.selection);
        let bucket = size_of::<(Bucket, Arc<Usage>)>() + size_of::<Usage>() + ARC;
        let actions = self.buckets.iter().map(|(bucket, _)| heap::actions(&bucket.actions));
        (own + self.buckets.len() * bucket + actions.sum::<usize>()) as u64
    }
}

impl Meter {
    /// Bytes that the meter takes.
    pub(crate) fn bytes(&self) -> u64 {
        let own = size_of::<Meter>() + size_of::<Usage>() + 2 * ARC + INDEX;
        (own + self.bands.len() * (size_of::<MeterBand>() + size_of::<Usage>() + ARC)) as u64
    }
}

//! Flows, groups and meters, as tables hold them and packets use them.
//!
//! All are immutable but for counts and times, which workers add to. A change of a flow's instructions makes a new [`Flow`] that
//! shares the old one's [`Usage`].

use crate::memory::Charge;
use openflow::message::{Band, GroupKind, Selection, Timeouts};
use openflow::{Bucket, Instructions, Match, memory as heap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Two counts before an [`Arc`]'s value.
const ARC: usize = 16;
/// Bytes that a flow adds to the indices of its table, of cookies and of timeouts, with the allocator's overhead. Measured by
/// `tests/memory_measured.rs`.
const FLOW_INDEX: usize = 384;
/// The same for each field that it matches: a word of the key, a node of a trie.
const TERM_INDEX: usize = 32;
/// A group's or meter's part of indices.
const INDEX: usize = 128;

/// What packets leave at a flow, a bucket or a meter.
#[derive(Debug, Default)]
pub struct Usage {
    packets: AtomicU64,
    bytes: AtomicU64,
    used_us: AtomicU64,
}

impl Usage {
    /// One that has been used last at this time, by nothing.
    pub fn new(now_us: u64) -> Usage {
        Usage { used_us: AtomicU64::new(now_us), ..Usage::default() }
    }

    /// Adds packets of the time `now_us`.
    pub fn add(&self, packets: u64, bytes: u64, now_us: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Mostly it is so already.
        if self.used_us.load(Ordering::Relaxed) < now_us {
            self.used_us.fetch_max(now_us, Ordering::Relaxed);
        }
    }

    /// Packets and bytes.
    pub fn counts(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// When it was last used, in microseconds of the switch's clock.
    pub fn used_us(&self) -> u64 {
        self.used_us.load(Ordering::Relaxed)
    }

    /// Sets counts to zero.
    pub fn reset(&self) {
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// A flow.
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
    /// In seconds.
    pub timeouts: Timeouts,
    /// The timeouts once a TCP FIN or RST went through it; `u32::MAX` if none did: idle in the high half, hard in the low one.
    pub fin_timeouts: AtomicU32,
    /// What it does.
    pub instructions: Instructions,
    /// When it was added, in microseconds of the switch's clock; negative if that was before the switch started.
    pub created_us: i64,
    /// When its instructions were changed last, in the same way.
    pub modified_us: i64,
    /// What went through it; shared with the flows that it has replaced.
    pub usage: Arc<Usage>,
    /// Its part of the bridge's memory.
    pub(crate) charge: Charge,
}

/// A group.
#[derive(Debug)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// How it chooses.
    pub kind: GroupKind,
    /// Its buckets and what went through each.
    pub buckets: Vec<(Bucket, Arc<Usage>)>,
    /// How it chooses, if a controller says.
    pub selection: Selection,
    /// When it was added.
    pub created_us: u64,
    /// What went through it.
    pub usage: Arc<Usage>,
    /// Its part of the bridge's memory.
    pub(crate) charge: Charge,
}

/// A meter.
#[derive(Debug)]
pub struct Meter {
    /// Its number.
    pub id: u32,
    /// [`openflow::message::meter_flag`] bits.
    pub flags: u16,
    /// Its bands, each with its bucket and what it acted on.
    pub bands: Vec<MeterBand>,
    /// When it was added.
    pub created_us: u64,
    /// What went through it.
    pub usage: Arc<Usage>,
    /// Its part of the bridge's memory.
    pub(crate) charge: Charge,
}

/// A meter's band.
#[derive(Debug)]
pub struct MeterBand {
    /// The band.
    pub band: Band,
    /// What is in its bucket, in thousandths of a packet or bit, and when that was so (microseconds): read and written by workers.
    pub bucket: std::sync::Mutex<(u64, u64)>,
    /// What it acted on.
    pub usage: Arc<Usage>,
}

impl Flow {
    /// Bytes that it takes in its table.
    pub(crate) fn bytes(&self) -> u64 {
        let own = size_of::<Flow>() + size_of::<Usage>() + 2 * ARC + FLOW_INDEX;
        let terms = self.matching.heap_bytes() + self.matching.terms().len() * TERM_INDEX;
        (own + terms + heap::instructions(&self.instructions)) as u64
    }
}

impl Group {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let own = size_of::<Group>() + size_of::<Usage>() + 2 * ARC + INDEX + heap::selection(&self.selection);
        let bucket = size_of::<(Bucket, Arc<Usage>)>() + size_of::<Usage>() + ARC;
        let actions = self.buckets.iter().map(|(bucket, _)| heap::actions(&bucket.actions));
        (own + self.buckets.len() * bucket + actions.sum::<usize>()) as u64
    }
}

impl Meter {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let own = size_of::<Meter>() + size_of::<Usage>() + 2 * ARC + INDEX;
        (own + self.bands.len() * (size_of::<MeterBand>() + size_of::<Usage>() + ARC)) as u64
    }
}

//! Limits on the memory that controllers can make a bridge use.
//!
//! There are five pools. Each counts bytes of decoded messages in memory ([`openflow::memory`]), and has a limit:
//!
//! - *state*: flows, groups and meters, and the indices of flows. An object counts as long as anything refers to
//!   it, such as a bundle that has not finished replacing it, or a reader that has not been notified yet.
//! - *bundles*: messages of open bundles of all connections.
//! - *queues*: messages queued for connections, all together.
//! - *rests*: frozen translations of packets that are parsed again or that a controller resumes (`pending`).
//! - *packet-outs*: actions of packet-outs that workers have not taken.
//!
//! Of bundles and queues, a connection may use as much as the others leave free (dynamic thresholds: Choudhury and
//! Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998): a single one gets half, and
//! there is always something left for the next.
//!
//! A [`Charge`] is stored in the object that it accounts for and is released with it, so nothing is counted after
//! it is gone.
//!
//! Tests: `tests/memory.rs`.

use admission::LogLimit;
use openflow::{Error, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Default limit of the messages in bundles of all connections, in bytes; see [`crate::Bridge::limit_memory`].
const BUNDLE_BYTES: u64 = 1 << 30;
/// Default limit of the messages queued for all connections, in bytes; `--state-memory` sets another one.
const QUEUE_BYTES: u64 = 1 << 30;
/// Default limits of frozen translations and of packet-outs, in bytes; `--state-memory` sets others.
const PENDING_BYTES: u64 = 1 << 28;
/// Bytes of a subtable, which holds the flows with one mask: a hash table with its filter.
pub(crate) const SUBTABLE: u64 = 2048;

/// An amount of memory with a limit, in bytes.
#[derive(Debug)]
pub(crate) struct Pool {
    max: AtomicU64,
    used: AtomicU64,
}

impl Pool {
    fn new(max: u64) -> Arc<Pool> {
        Arc::new(Pool { max: AtomicU64::new(max), used: AtomicU64::new(0) })
    }

    /// The limit in bytes.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// The bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether `bytes` more fit after `freed` bytes are released.
    pub fn fits(&self, bytes: u64, freed: u64) -> bool {
        self.used().saturating_sub(freed).saturating_add(bytes) <= self.max()
    }

    /// Charges `bytes` if they fit after `freed` bytes are released.
    pub fn charge(self: &Arc<Pool>, bytes: u64, freed: u64) -> Option<Charge> {
        let max = self.max();
        let with = |used: u64| (used.saturating_sub(freed).saturating_add(bytes) <= max).then_some(used + bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).ok()?;
        Some(Charge { pool: Some(Arc::clone(self)), bytes })
    }

    /// Charges `bytes` even beyond the limit; later charges are refused then.
    pub fn charge_anyway(self: &Arc<Pool>, bytes: u64) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { pool: Some(Arc::clone(self)), bytes }
    }
}

/// A charge to a pool, which is released when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    pool: Option<Arc<Pool>>,
    bytes: u64,
}

impl Charge {
    /// An empty charge to a pool.
    pub fn nothing(pool: &Arc<Pool>) -> Charge {
        Charge { pool: Some(Arc::clone(pool)), bytes: 0 }
    }

    /// A charge to no pool; it is never refused.
    pub fn uncounted(bytes: u64) -> Charge {
        Charge { pool: None, bytes }
    }

    /// Its amount in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Increases the charge by `bytes` if `own` plus `bytes` is at most what is free, where `own` is what the owner
    /// uses of the pool.
    #[must_use]
    pub fn grow(&mut self, bytes: u64, own: u64) -> bool {
        let Some(pool) = &self.pool else { return true };
        let max = pool.max();
        let with = |used: u64| {
            let free = max.saturating_sub(used);
            (own.saturating_add(bytes) <= free).then(|| used + bytes)
        };
        let is_taken = pool.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok();
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Releases part of the charge.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some(pool) = &self.pool {
            pool.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// The pools of a bridge.
#[derive(Debug)]
pub(crate) struct Memory {
    pub state: Arc<Pool>,
    pub bundles: Arc<Pool>,
    pub queues: Arc<Pool>,
    pub rests: Arc<Pool>,
    pub packet_outs: Arc<Pool>,
    /// Rate limit of log messages about refusals.
    refused: Mutex<LogLimit>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            state: Pool::new(u64::MAX),
            bundles: Pool::new(BUNDLE_BYTES),
            queues: Pool::new(QUEUE_BYTES),
            rests: Pool::new(PENDING_BYTES),
            packet_outs: Pool::new(PENDING_BYTES),
            refused: Mutex::default(),
        }
    }
}

impl Memory {
    /// Sets the limit of state to `bytes`, those of bundles and queues to a quarter of it each, those of frozen
    /// translations and packet-outs to a sixteenth each. Nothing is removed if more is in use.
    pub fn limit(&self, bytes: u64) {
        self.state.max.store(bytes, Ordering::Relaxed);
        self.bundles.max.store(bytes / 4, Ordering::Relaxed);
        self.queues.max.store(bytes / 4, Ordering::Relaxed);
        self.rests.max.store(bytes / 16, Ordering::Relaxed);
        self.packet_outs.max.store(bytes / 16, Ordering::Relaxed);
    }

    /// The error for an object that does not fit; also logs it, at a limited rate.
    pub fn refuse(&self, kind: ErrorKind, what: &str) -> Error {
        let (used, max) = (self.state.used() >> 20, self.state.max() >> 20);
        let why = format!(
            "{what}: flows, groups and meters take {used} MB of memory, and {max} MB is the most; delete some, or start the switch with a \
             larger --state-memory"
        );
        self.log(&why);
        Error::new(kind, why)
    }

    /// Logs a refusal, at a limited rate.
    pub fn log(&self, why: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.say(|times| tracing::warn!("OpenFlow: refused: {why} ({times} refused)"));
    }
}

impl crate::Bridge {
    /// Limits the memory of flows, groups and meters to `bytes`, that of bundles and of queued messages to a
    /// quarter of it each, and that of frozen translations and of packet-outs to a sixteenth each. Nothing is
    /// removed if more is in use.
    pub fn limit_memory(&self, bytes: u64) {
        self.memory.limit(bytes);
    }

    /// Bytes in use for flows, groups and meters.
    pub fn state_bytes(&self) -> u64 {
        self.memory.state.used()
    }

    /// Bytes in use for the bundles of all connections.
    pub fn bundle_bytes(&self) -> u64 {
        self.memory.bundles.used()
    }

    /// Bytes in use for frozen translations, which packets resume after they were parsed again or a controller has
    /// resumed them.
    pub fn rest_bytes(&self) -> u64 {
        self.memory.rests.used()
    }

    /// Bytes in use for the actions of packet-outs that workers have not taken.
    pub fn packet_out_bytes(&self) -> u64 {
        self.memory.packet_outs.used()
    }

    /// Bytes of messages queued for connections.
    pub fn queue_bytes(&self) -> u64 {
        self.memory.queues.used()
    }
}

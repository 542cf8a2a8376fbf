//! How much memory controllers may make a bridge take.
//!
//! There are five pools. Each counts the bytes that decoded messages take in memory ([`openflow::memory`]), and has a limit:
//!
//! - *state*: flows, groups and meters, and the indices of flows. A thing counts for as long as anything holds it: also while a bundle
//!   that replaces it is not done, or a reader has not been told of it.
//! - *bundles*: messages of bundles that are open, of all connections.
//! - *queues*: what waits to be sent to connections, all together.
//! - *rests*: what is left to be done with packets that are parsed anew or that a controller lets go on (`pending`).
//! - *packet-outs*: what is to be done with packets of controllers that workers have not taken.
//!
//! Of bundles and queues a connection may take as much as the others leave free (dynamic thresholds: Choudhury and Hahne, "Dynamic Queue
//! Length Thresholds for Shared-Memory Packet Switches", 1998): one alone gets half, and there is always something left for the next.
//!
//! A [`Charge`] is in the thing that it is for and ends with it, so nothing is counted that is gone, whatever path it went.
//!
//! Tests: `tests/memory.rs`.

use openflow::{Error, ErrorKind};
use places::Seldom;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of messages in the bundles of all connections, unless [`crate::Bridge::limit_memory`] says otherwise.
const BUNDLE_BYTES: u64 = 1 << 30;
/// The limit for messages that wait to be sent, of all connections together, unless `--state-memory` sets it.
const QUEUE_BYTES: u64 = 1 << 30;
/// The limits for rests of translations and for packet-outs, unless `--state-memory` sets them.
const PENDING_BYTES: u64 = 1 << 28;
/// A mask that no other flow of its table has: a hash table with its filter.
pub(crate) const SUBTABLE: u64 = 2048;

/// A bound, and what is taken of it. In bytes.
#[derive(Debug)]
pub(crate) struct Pool {
    max: AtomicU64,
    used: AtomicU64,
}

impl Pool {
    fn new(max: u64) -> Arc<Pool> {
        Arc::new(Pool { max: AtomicU64::new(max), used: AtomicU64::new(0) })
    }

    /// Bytes that may be taken.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Bytes that are taken.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether so many more bytes fit, once `freed` are given back.
    pub fn fits(&self, bytes: u64, freed: u64) -> bool {
        self.used().saturating_sub(freed).saturating_add(bytes) <= self.max()
    }

    /// Takes bytes that fit once `freed` are given back.
    pub fn charge(self: &Arc<Pool>, bytes: u64, freed: u64) -> Option<Charge> {
        let max = self.max();
        let with = |used: u64| (used.saturating_sub(freed).saturating_add(bytes) <= max).then_some(used + bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).ok()?;
        Some(Charge { pool: Some(Arc::clone(self)), bytes })
    }

    /// Takes bytes, over the bound if need be: what follows is refused then.
    pub fn charge_anyway(self: &Arc<Pool>, bytes: u64) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { pool: Some(Arc::clone(self)), bytes }
    }
}

/// A part of a pool, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    pool: Option<Arc<Pool>>,
    bytes: u64,
}

impl Charge {
    /// None of a pool yet.
    pub fn nothing(pool: &Arc<Pool>) -> Charge {
        Charge { pool: Some(Arc::clone(pool)), bytes: 0 }
    }

    /// A part of no pool, where nothing is counted.
    pub fn uncounted(bytes: u64) -> Charge {
        Charge { pool: None, bytes }
    }

    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more, if its owner, who has `own` bytes of the pool, has no more than is free then.
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

    /// Gives a part back.
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
    /// Refusals.
    refused: Mutex<Seldom>,
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
    /// Sets the limit of state to `bytes`, those of bundles and of queues to a quarter each, those of rests and packet-outs to a
    /// sixteenth. Nothing is removed if more is in use.
    pub fn limit(&self, bytes: u64) {
        self.state.max.store(bytes, Ordering::Relaxed);
        self.bundles.max.store(bytes / 4, Ordering::Relaxed);
        self.queues.max.store(bytes / 4, Ordering::Relaxed);
        self.rests.max.store(bytes / 16, Ordering::Relaxed);
        self.packet_outs.max.store(bytes / 16, Ordering::Relaxed);
    }

    /// The error for what does not fit, which is also logged now and then.
    pub fn refuse(&self, kind: ErrorKind, what: &str) -> Error {
        let (used, max) = (self.state.used() >> 20, self.state.max() >> 20);
        let why = format!(
            "{what}: flows, groups and meters take {used} MB of memory, and {max} MB is the most; delete some, or start the switch with a \
             larger --state-memory"
        );
        self.log(&why);
        Error::new(kind, why)
    }

    /// Says that something was refused, unless that was said a moment ago.
    pub fn log(&self, why: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.say(|times| tracing::warn!("OpenFlow: refused: {why} ({times} refused)"));
    }
}

impl crate::Bridge {
    /// Limits the memory of flows, groups and meters to `bytes`, that of bundles and of messages that wait to be sent to a quarter of
    /// that each, and that of packets that wait to be translated further to a sixteenth. Nothing is removed if more is in use.
    pub fn limit_memory(&self, bytes: u64) {
        self.memory.limit(bytes);
    }

    /// Bytes that flows, groups and meters take.
    pub fn state_bytes(&self) -> u64 {
        self.memory.state.used()
    }

    /// Bytes that the bundles of all connections take.
    pub fn bundle_bytes(&self) -> u64 {
        self.memory.bundles.used()
    }

    /// Bytes of stored translations, which packets resume after they were parsed again or a controller has released them.
    pub fn rest_bytes(&self) -> u64 {
        self.memory.rests.used()
    }

    /// Bytes of packet-outs' actions that workers have not taken.
    pub fn packet_out_bytes(&self) -> u64 {
        self.memory.packet_outs.used()
    }

    /// Bytes of messages that wait to be sent to connections.
    pub fn queue_bytes(&self) -> u64 {
        self.memory.queues.used()
    }
}

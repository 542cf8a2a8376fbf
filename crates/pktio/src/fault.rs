//! A wrapper that injects faults: it drops, duplicates and corrupts packets, the same ones for the same seed.
//!
//! Faults apply to received packets, to sent ones, or to both ([`FaultConfig`]). A duplicate follows its original; a
//! corruption flips one bit. Every fault is counted ([`FaultCounts`]), so that a test can check:
//! received by the worker = received by the device - dropped + duplicated.
//!
//! Threads: each queue has its own random numbers (from seed and queue index), so workers do not affect each other.
//! Tests: `fault/tests.rs`.

use crate::device::{Device, LinkState, MacAddress, PortStats, Queue};
use crate::packet::Packet;
use crate::pool::PoolRef;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Which faults to inject: probabilities from 0.0 (never) to 1.0 (always), and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultConfig {
    /// Probability that a packet is dropped.
    pub drop: f64,
    /// Probability that a packet is duplicated.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Whether received packets are affected.
    pub on_rx: bool,
    /// Whether sent packets are affected.
    pub on_tx: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for FaultConfig {
    fn default() -> Self {
        FaultConfig { drop: 0.0, duplicate: 0.0, corrupt: 0.0, on_rx: true, on_tx: false, seed: 1 }
    }
}

/// Number of faults so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets corrupted.
    pub corrupted: u64,
}

/// Reads the [`FaultCounts`] of a [`FaultInjector`].
#[derive(Clone)]
pub struct FaultHandle {
    counts: Arc<Counts>,
}

/// The wrapped device.
pub struct FaultInjector {
    inner: Box<dyn Device>,
    config: FaultConfig,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    dropped: AtomicU64,
    duplicated: AtomicU64,
    corrupted: AtomicU64,
}

struct FaultQueue {
    inner: Box<dyn Queue>,
    faults: Faults,
    /// Packets received beyond what the caller asked for, because of duplicates.
    held: VecDeque<Packet>,
    /// Packets accepted from the worker, with faults applied, that the device has not taken yet.
    unsent: Vec<Packet>,
    scratch: Vec<Packet>,
}

/// One queue's random numbers and fault decisions.
struct Faults {
    config: FaultConfig,
    counts: Arc<Counts>,
    state: u64,
}

impl FaultInjector {
    /// Wraps `inner`.
    pub fn wrap(inner: Box<dyn Device>, config: FaultConfig) -> (FaultInjector, FaultHandle) {
        let counts = Arc::new(Counts::default());
        (FaultInjector { inner, config, counts: Arc::clone(&counts) }, FaultHandle { counts })
    }
}

impl FaultHandle {
    /// Faults so far, of all queues.
    pub fn counts(&self) -> FaultCounts {
        FaultCounts {
            dropped: self.counts.dropped.load(Relaxed),
            duplicated: self.counts.duplicated.load(Relaxed),
            corrupted: self.counts.corrupted.load(Relaxed),
        }
    }
}

impl Faults {
    /// SplitMix64 (Steele, Lea, Flood 2014): one multiply-xor chain per number, good enough to pick packets.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, share: f64) -> bool {
        // 53 bits, the precision of a double: 1.0 always happens, 0.0 never.
        ((self.random() >> 11) as f64) < share * (1u64 << 53) as f64
    }

    /// Applies faults to `packet`, and passes the result to `out`.
    fn apply(&mut self, mut packet: Packet, mut out: impl FnMut(Packet)) {
        // Draws the same number of random numbers per packet, so that one
        // probability does not shift the others' choices.
        let drop = self.happens(self.config.drop);
        let corrupt = self.happens(self.config.corrupt);
        let duplicate = self.happens(self.config.duplicate);
        let position = self.random();
        if drop {
            self.counts.dropped.fetch_add(1, Relaxed);
            return;
        }
        if corrupt && !packet.is_empty() {
            let bit = position % (packet.len() as u64 * 8);
            packet.data_mut()[bit as usize / 8] ^= 1 << (bit % 8);
            self.counts.corrupted.fetch_add(1, Relaxed);
        }
        let copy = if duplicate { packet.copy() } else { None };
        out(packet);
        if let Some(copy) = copy {
            self.counts.duplicated.fetch_add(1, Relaxed);
            out(copy);
        }
    }
}

impl Device for FaultInjector {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn queue_count(&self) -> u16 {
        self.inner.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        let (config, counts) = (self.config, &self.counts);
        let wrap = |(index, inner)| {
            // Places the queues' seeds far apart in SplitMix64's sequence.
            let state = config.seed ^ (index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
            let faults = Faults { config, counts: Arc::clone(counts), state };
            let (held, unsent, scratch) = Default::default();
            Box::new(FaultQueue { inner, faults, held, unsent, scratch }) as Box<dyn Queue>
        };
        self.inner.take_queues().into_iter().enumerate().map(wrap).collect()
    }

    fn pool(&self) -> PoolRef {
        self.inner.pool()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }

    fn stats(&self) -> PortStats {
        self.inner.stats()
    }

    fn mac(&self) -> Option<MacAddress> {
        self.inner.mac()
    }

    fn mtu(&self) -> u16 {
        self.inner.mtu()
    }

    fn note(&self) -> Option<String> {
        self.inner.note()
    }

    fn at_end(&self) -> bool {
        self.inner.at_end()
    }
}

impl Queue for FaultQueue {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        if !self.faults.config.on_rx {
            return self.inner.rx(out, max);
        }
        let before = out.len();
        let from_held = self.held.len().min(max);
        out.extend(self.held.drain(..from_held));
        self.inner.rx(&mut self.scratch, max - from_held);
        let (faults, held) = (&mut self.faults, &mut self.held);
        for packet in self.scratch.drain(..) {
            faults.apply(
                packet,
                |packet| {
                    if out.len() - before < max { out.push(packet) } else { held.push_back(packet) }
                },
            );
        }
        out.len() - before
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        if !self.faults.config.on_tx {
            return self.inner.tx(packets);
        }
        // Packets accepted earlier go first; only then are new packets accepted, all of them.
        self.inner.tx(&mut self.unsent);
        if !self.unsent.is_empty() {
            return 0;
        }
        let count = packets.len();
        let (faults, unsent) = (&mut self.faults, &mut self.unsent);
        for packet in packets.drain(..) {
            faults.apply(packet, |packet| unsent.push(packet));
        }
        self.inner.tx(unsent);
        count
    }
}

#[cfg(test)]
mod tests;

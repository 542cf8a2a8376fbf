//! Meter arrays: token buckets of RFC 2698 (two rates) and RFC 2697 (single rate), with the arithmetic that
//! `base::entry::MeterConfig` defines.
//!
//! All workers share a cell, because a rate applies to the switch, not to a core: a packet takes the cell's lock,
//! which is one word and held for a few instructions. Unconfigured cells give green after one load. Counts by colour
//! are kept per worker, so counting shares nothing.
//!
//! Threads: any. Tests: at the end of the file; against the oracle in `tests/state_equivalence.rs`.
#![allow(unsafe_code)]

use super::cells::{Counters, NoMemory, Zeroable, ZeroedArray};
use base::entry::{CounterValue, MeterConfig};
use ir::CounterUnit;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bucket fill levels are in millionths of a unit (packet or byte).
const SCALE: u128 = 1_000_000;

/// A meter cell; all-zero bytes are an unconfigured, unlocked one.
#[derive(Debug)]
struct Cell {
    configured: AtomicU32,
    locked: AtomicBool,
    buckets: UnsafeCell<Buckets>,
}

#[derive(Clone, Copy, Debug)]
struct Buckets {
    cir: u64,
    cburst: u64,
    pir: u64,
    pburst: u64,
    eburst: u64,
    /// Fill level of the committed bucket, in millionths of a unit.
    committed: u128,
    /// Fill level of the peak bucket (RFC 2698) or excess bucket (RFC 2697).
    peak: u128,
    last_us: u64,
}

// SAFETY: `buckets` is only touched under `locked`.
unsafe impl Sync for Cell {}
// SAFETY: integers; `false` is zero.
unsafe impl Zeroable for Cell {}

impl Cell {
    fn with<R>(&self, f: impl FnOnce(&mut Buckets) -> R) -> R {
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is held, and `f` cannot get here again: it has no access to the cell.
        let result = f(unsafe { &mut *self.buckets.get() });
        self.locked.store(false, Ordering::Release);
        result
    }
}

impl Buckets {
    fn full(config: MeterConfig) -> Buckets {
        let MeterConfig { cir, cburst, pir, pburst, eburst } = config;
        let second = if eburst > 0 { eburst } else { pburst };
        let (committed, peak) = (u128::from(cburst) * SCALE, u128::from(second) * SCALE);
        Buckets { cir, cburst, pir, pburst, eburst, committed, peak, last_us: 0 }
    }

    fn config(&self) -> MeterConfig {
        MeterConfig { cir: self.cir, cburst: self.cburst, pir: self.pir, pburst: self.pburst, eburst: self.eburst }
    }

    fn take(&mut self, units: u64, before: u32, now_us: u64) -> u32 {
        let elapsed = u128::from(now_us.saturating_sub(self.last_us));
        self.last_us = self.last_us.max(now_us);
        if self.eburst > 0 {
            return self.take_single_rate(units, before, elapsed);
        }
        self.committed = (u128::from(self.cburst) * SCALE).min(self.committed + elapsed * u128::from(self.cir));
        self.peak = (u128::from(self.pburst) * SCALE).min(self.peak + elapsed * u128::from(self.pir));
        let need = u128::from(units) * SCALE;
        if before >= Meters::RED || self.peak < need {
            return Meters::RED;
        }
        self.peak -= need;
        if before == Meters::YELLOW || self.committed < need {
            return Meters::YELLOW;
        }
        self.committed -= need;
        Meters::GREEN
    }

    /// The single rate three colour marker, RFC 2697.
    fn take_single_rate(&mut self, units: u64, before: u32, elapsed: u128) -> u32 {
        let filled = self.committed + elapsed * u128::from(self.cir);
        self.committed = filled.min(u128::from(self.cburst) * SCALE);
        let excess = self.peak + (filled - self.committed);
        self.peak = excess.min(u128::from(self.eburst) * SCALE);
        let need = u128::from(units) * SCALE;
        if before == Meters::GREEN && self.committed >= need {
            self.committed -= need;
            return Meters::GREEN;
        }
        if before <= Meters::YELLOW && self.peak >= need {
            self.peak -= need;
            return Meters::YELLOW;
        }
        Meters::RED
    }
}

/// A meter array.
#[derive(Debug)]
pub(crate) struct Meters {
    cells: ZeroedArray<Cell>,
    unit: CounterUnit,
    /// Three counters per cell, one for each colour.
    counts: Counters,
}

impl Meters {
    pub(crate) const GREEN: u32 = 0;
    pub(crate) const YELLOW: u32 = 1;
    pub(crate) const RED: u32 = 2;

    pub(super) fn new(size: u64, unit: CounterUnit, workers: usize) -> Result<Meters, NoMemory> {
        let counts = Counters::new(size.checked_mul(3).ok_or(NoMemory(None))?, workers)?;
        Ok(Meters { cells: ZeroedArray::new(size)?, unit, counts })
    }

    pub(super) fn size(&self) -> u64 {
        self.cells.len() as u64
    }

    fn cell(&self, index: u64) -> Option<&Cell> {
        self.cells.get(usize::try_from(index).ok()?)
    }

    /// Marks and counts a packet of `bytes` bytes that has colour `before`; returns its colour, green if the index is
    /// out of range. To be called on `worker`'s own thread.
    pub(crate) fn colour_after(&self, worker: usize, index: u64, (bytes, before): (u32, u32), now_us: u64) -> u32 {
        let Some(cell) = self.cell(index) else { return Meters::GREEN };
        let colour = self.mark(cell, bytes, before, now_us);
        self.counts.count(worker, 3 * index + u64::from(colour), bytes.into());
        colour
    }

    fn mark(&self, cell: &Cell, bytes: u32, before: u32, now_us: u64) -> u32 {
        if cell.configured.load(Ordering::Acquire) == 0 {
            return Meters::GREEN;
        }
        let units = if self.unit == CounterUnit::Packets { 1 } else { u64::from(bytes) };
        cell.with(|buckets| buckets.take(units, before, now_us))
    }

    /// Packets and bytes that a cell marked green, yellow and red; `None` if there is no such cell.
    pub(super) fn counts(&self, index: u64) -> Option<[CounterValue; 3]> {
        self.cell(index)?;
        let of = |colour: u64| self.counts.get(3 * index + colour);
        Some([of(0)?, of(1)?, of(2)?])
    }

    /// Clears a cell's counts; `false` if there is no such cell.
    pub(super) fn reset_counts(&self, index: u64) -> bool {
        self.cell(index).is_some() && (0..3).all(|colour| self.counts.set(3 * index + colour, CounterValue::default()))
    }

    /// A cell's configuration, `Some(None)` if unconfigured; `None` if there is no such cell.
    pub(super) fn config(&self, index: u64) -> Option<Option<MeterConfig>> {
        let cell = self.cell(index)?;
        Some((cell.configured.load(Ordering::Acquire) != 0).then(|| cell.with(|buckets| buckets.config())))
    }

    /// Takes over the counts of an old cell that is no longer used, and its buckets if both cells have the same
    /// configuration: what was taken from either bucket counts as taken.
    pub(super) fn inherit(&self, index: u64, old: &Meters, old_index: u64) {
        for (colour, counted) in (0..3).zip(old.counts(old_index).unwrap_or_default()) {
            self.counts.add(3 * index + colour, counted);
        }
        let (Some(cell), Some(was)) = (self.cell(index), old.cell(old_index)) else { return };
        if self.unit != old.unit || [cell, was].iter().any(|c| c.configured.load(Ordering::Acquire) == 0) {
            return;
        }
        let was = was.with(|buckets| *buckets);
        cell.with(|now| {
            if now.config() == was.config() {
                let full = Buckets::full(now.config());
                now.committed = was.committed.saturating_sub(full.committed - now.committed);
                now.peak = was.peak.saturating_sub(full.peak - now.peak);
                now.last_us = now.last_us.max(was.last_us);
            }
        });
    }

    /// Sets a cell's configuration, with full buckets; `false` if there is no such cell.
    pub(super) fn configure(&self, index: u64, config: Option<MeterConfig>) -> bool {
        let Some(cell) = self.cell(index) else { return false };
        if let Some(config) = config {
            cell.with(|buckets| *buckets = Buckets::full(config));
        }
        // An untouched zero page stays untouched.
        let configured = u32::from(config.is_some());
        if cell.configured.load(Ordering::Relaxed) != configured {
            cell.configured.store(configured, Ordering::Release);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{CounterUnit, MeterConfig, Meters};

    impl Meters {
        /// The colour of a packet that is not marked yet.
        fn colour(&self, worker: usize, index: u64, bytes: u32, now_us: u64) -> u32 {
            self.colour_after(worker, index, (bytes, Meters::GREEN), now_us)
        }
    }

    #[test]
    fn colours_follow_the_buckets() {
        let meters = Meters::new(2, CounterUnit::Packets, 4).expect("memory");
        assert_eq!(meters.colour(0, 0, 1000, 0), Meters::GREEN, "not configured");
        assert!(meters.configure(0, Some(MeterConfig { cir: 100, cburst: 2, pir: 200, pburst: 3, eburst: 0 })));
        let colours: Vec<u32> = (0..4).map(|_| meters.colour(0, 0, 1000, 1000)).collect();
        assert_eq!(colours, [Meters::GREEN, Meters::GREEN, Meters::YELLOW, Meters::RED]);
        // 5 ms add one unit to the peak bucket and half a unit to the committed one.
        assert_eq!(meters.colour(0, 0, 1000, 6_000), Meters::YELLOW);
        assert_eq!(meters.colour(0, 1, 1000, 0), Meters::GREEN);
        assert_eq!(meters.colour(0, 2, 1000, 0), Meters::GREEN, "out of range");
        assert!(!meters.configure(2, None));
        meters.configure(0, None);
        assert_eq!((meters.colour(0, 0, 1000, 0), meters.config(0)), (Meters::GREEN, Some(None)));
    }

    #[test]
    fn workers_share_a_cell() {
        let meters = Meters::new(1, CounterUnit::Packets, 4).expect("memory");
        meters.configure(0, Some(MeterConfig { cir: 0, cburst: 1000, pir: 0, pburst: 1500, eburst: 0 }));
        let meters = &meters;
        let of = |colours: &[u32], c: u32| colours.iter().filter(|x| **x == c).count();
        let colours: Vec<u32> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4)
                .map(|w| s.spawn(move || (0..500).map(|_| meters.colour(w, 0, 1, 0)).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!([0, 1, 2].map(|c| of(&colours, c)), [1000, 500, 500]);
        let counts = meters.counts(0).expect("the cell").map(|c| (c.packets, c.bytes));
        assert_eq!(counts, [(1000, 1000), (500, 500), (500, 500)]);
        assert!(meters.reset_counts(0));
        assert_eq!(meters.counts(0), Some(Default::default()));
    }
}

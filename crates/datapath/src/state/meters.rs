//! Meter arrays: RFC 2698 token buckets, with the arithmetic that `base::entry::MeterConfig` spells out.
//!
//! A cell is shared by all workers, since a rate is of the switch, not of a core: a packet takes the cell's lock, which
//! is one word and held for a few instructions. Cells without configuration are green after one load.
//!
//! Threads: any. Tests: at the end of the file; against the oracle in `tests/state_equivalence.rs`.
#![allow(unsafe_code)]

use super::cells::{NoMemory, Zeroable, ZeroedArray};
use base::entry::MeterConfig;
use ir::CounterUnit;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Buckets count millionths of a unit.
const SCALE: u128 = 1_000_000;

/// All zero bytes are an unconfigured, unlocked cell.
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
    /// Millionths of units.
    committed: u128,
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
        let MeterConfig { cir, cburst, pir, pburst } = config;
        let (committed, peak) = (u128::from(cburst) * SCALE, u128::from(pburst) * SCALE);
        Buckets { cir, cburst, pir, pburst, committed, peak, last_us: 0 }
    }

    fn config(&self) -> MeterConfig {
        MeterConfig { cir: self.cir, cburst: self.cburst, pir: self.pir, pburst: self.pburst }
    }

    fn take(&mut self, units: u64, now_us: u64) -> u32 {
        let elapsed = u128::from(now_us.saturating_sub(self.last_us));
        self.last_us = self.last_us.max(now_us);
        self.committed = (u128::from(self.cburst) * SCALE).min(self.committed + elapsed * u128::from(self.cir));
        self.peak = (u128::from(self.pburst) * SCALE).min(self.peak + elapsed * u128::from(self.pir));
        let need = u128::from(units) * SCALE;
        if self.peak < need {
            return Meters::RED;
        }
        self.peak -= need;
        if self.committed < need {
            return Meters::YELLOW;
        }
        self.committed -= need;
        Meters::GREEN
    }
}

/// A meter array.
#[derive(Debug)]
pub(crate) struct Meters {
    cells: ZeroedArray<Cell>,
    unit: CounterUnit,
}

impl Meters {
    pub(crate) const GREEN: u32 = 0;
    pub(crate) const YELLOW: u32 = 1;
    pub(crate) const RED: u32 = 2;

    pub(super) fn new(size: u64, unit: CounterUnit) -> Result<Meters, NoMemory> {
        Ok(Meters { cells: ZeroedArray::new(size)?, unit })
    }

    pub(super) fn size(&self) -> u64 {
        self.cells.len() as u64
    }

    fn cell(&self, index: u64) -> Option<&Cell> {
        self.cells.get(usize::try_from(index).ok()?)
    }

    /// The colour of a packet; green out of range.
    pub(crate) fn colour(&self, index: u64, bytes: u32, now_us: u64) -> u32 {
        let Some(cell) = self.cell(index) else { return Meters::GREEN };
        if cell.configured.load(Ordering::Acquire) == 0 {
            return Meters::GREEN;
        }
        let units = if self.unit == CounterUnit::Packets { 1 } else { u64::from(bytes) };
        cell.with(|buckets| buckets.take(units, now_us))
    }

    /// `None` if there is no such cell.
    pub(super) fn config(&self, index: u64) -> Option<Option<MeterConfig>> {
        let cell = self.cell(index)?;
        Some((cell.configured.load(Ordering::Acquire) != 0).then(|| cell.with(|buckets| buckets.config())))
    }

    /// Takes over the buckets of a cell that is no longer used, if both have the same configuration: what is gone from
    /// the one or the other is gone.
    pub(super) fn inherit(&self, index: u64, old: &Meters, old_index: u64) {
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

    /// False if there is no such cell.
    pub(super) fn configure(&self, index: u64, config: Option<MeterConfig>) -> bool {
        let Some(cell) = self.cell(index) else { return false };
        if let Some(config) = config {
            cell.with(|buckets| *buckets = Buckets::full(config));
        }
        // An untouched page of zeros stays one.
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

    #[test]
    fn colours_follow_the_buckets() {
        let meters = Meters::new(2, CounterUnit::Packets).expect("memory");
        assert_eq!(meters.colour(0, 1000, 0), Meters::GREEN, "not configured");
        assert!(meters.configure(0, Some(MeterConfig { cir: 100, cburst: 2, pir: 200, pburst: 3 })));
        let colours: Vec<u32> = (0..4).map(|_| meters.colour(0, 1000, 1000)).collect();
        assert_eq!(colours, [Meters::GREEN, Meters::GREEN, Meters::YELLOW, Meters::RED]);
        // 5 ms bring one unit to the peak bucket and half a unit to the committed one.
        assert_eq!(meters.colour(0, 1000, 6_000), Meters::YELLOW);
        assert_eq!(meters.colour(1, 1000, 0), Meters::GREEN);
        assert_eq!(meters.colour(2, 1000, 0), Meters::GREEN, "out of range");
        assert!(!meters.configure(2, None));
        meters.configure(0, None);
        assert_eq!((meters.colour(0, 1000, 0), meters.config(0)), (Meters::GREEN, Some(None)));
    }

    #[test]
    fn workers_share_a_cell() {
        let meters = Meters::new(1, CounterUnit::Packets).expect("memory");
        meters.configure(0, Some(MeterConfig { cir: 0, cburst: 1000, pir: 0, pburst: 1500 }));
        let of = |colours: &[u32], c: u32| colours.iter().filter(|x| **x == c).count();
        let colours: Vec<u32> = std::thread::scope(|s| {
            let threads: Vec<_> =
                (0..4).map(|_| s.spawn(|| (0..500).map(|_| meters.colour(0, 1, 0)).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!([0, 1, 2].map(|c| of(&colours, c)), [1000, 500, 500]);
    }
}

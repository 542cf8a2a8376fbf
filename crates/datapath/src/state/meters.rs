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
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Bucket fill levels are in millionths of a unit (packet or byte).
const SCALE: u128 = 1_000_000;

/// A meter cell; all-zero bytes are an unconfigured, unlocked one. What packets need is in its first cache line, so that
/// they wait for no more. It takes two lines, a pair that is prefetched together, so that workers with packets of different
/// cells do not take lines from each other.
#[derive(Debug)]
#[repr(C, align(128))]
struct Cell {
    /// Of [`CONFIGURED`], [`PLAIN`].
    flags: AtomicU8,
    locked: AtomicBool,
    hot: UnsafeCell<Hot>,
    cold: UnsafeCell<Cold>,
}

/// Bits of [`Cell::flags`]: the cell is configured.
const CONFIGURED: u8 = 1;
/// It has two rates, and bursts whose millionths fit 64 bits.
const PLAIN: u8 = 2;

#[derive(Clone, Copy, Debug)]
struct Hot {
    cir: u64,
    cburst: u64,
    pir: u64,
    /// The size of the second bucket: of the peak bucket (RFC 2698), or of the excess bucket (RFC 2697).
    second: u64,
    /// Low words of the fill levels.
    committed: u64,
    peak: u64,
    last_us: u64,
}

const _: () = assert!(std::mem::offset_of!(Cell, cold) == 64 && size_of::<Cell>() == 128);

/// The rest of a cell, for control and for other cells than [`PLAIN`] ones.
#[derive(Clone, Copy, Debug)]
struct Cold {
    pburst: u64,
    eburst: u64,
    /// High words of the fill levels.
    committed: u64,
    peak: u64,
}

/// A cell's configuration and fill levels, for exact arithmetic of any size.
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

// SAFETY: `hot` and `cold` are only touched under `locked`.
unsafe impl Sync for Cell {}
// SAFETY: integers; `false` is zero.
unsafe impl Zeroable for Cell {}

/// A held lock; released when dropped.
struct Locked<'a>(&'a Cell);

impl Cell {
    fn lock(&self) -> Locked<'_> {
        while self.locked.swap(true, Ordering::Acquire) {
            while self.locked.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        Locked(self)
    }

    fn is_configured(&self, order: Ordering) -> bool {
        self.flags.load(order) & CONFIGURED != 0
    }
}

impl Locked<'_> {
    fn hot(&mut self) -> &mut Hot {
        // SAFETY: the lock is held, and it is ours.
        unsafe { &mut *self.0.hot.get() }
    }

    /// Calls `f` with the cell's buckets, and keeps what it makes of them.
    fn with<R>(&mut self, f: impl FnOnce(&mut Buckets) -> R) -> R {
        // SAFETY: as above; `f` cannot get here: it has no access to the cell.
        let cold = unsafe { &mut *self.0.cold.get() };
        let hot = self.hot();
        let level = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        let mut buckets = Buckets {
            cir: hot.cir,
            cburst: hot.cburst,
            pir: hot.pir,
            pburst: cold.pburst,
            eburst: cold.eburst,
            committed: level(hot.committed, cold.committed),
            peak: level(hot.peak, cold.peak),
            last_us: hot.last_us,
        };
        let result = f(&mut buckets);
        let Buckets { cir, cburst, pir, pburst, eburst, committed, peak, last_us } = buckets;
        let second = if eburst > 0 { eburst } else { pburst };
        *hot = Hot { cir, cburst, pir, second, committed: committed as u64, peak: peak as u64, last_us };
        *cold = Cold { pburst, eburst, committed: (committed >> 64) as u64, peak: (peak >> 64) as u64 };
        result
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

impl Hot {
    /// [`Buckets::take`] for a [`PLAIN`] cell. A product or sum that does not fit 64 bits is more than the bucket holds,
    /// so a saturated one gives the same level.
    fn take(&mut self, units: u64, before: u32, now_us: u64) -> u32 {
        const SCALE: u64 = self::SCALE as u64;
        let elapsed = now_us.saturating_sub(self.last_us);
        self.last_us = self.last_us.max(now_us);
        let filled = |level: u64, rate: u64| level.saturating_add(elapsed.saturating_mul(rate));
        let committed = (self.cburst * SCALE).min(filled(self.committed, self.cir));
        let peak = (self.second * SCALE).min(filled(self.peak, self.pir));
        let need = units * SCALE;
        let colour = match () {
            () if before >= Meters::RED || peak < need => Meters::RED,
            () if before == Meters::YELLOW || committed < need => Meters::YELLOW,
            () => Meters::GREEN,
        };
        self.peak = if colour == Meters::RED { peak } else { peak - need };
        self.committed = if colour == Meters::GREEN { committed - need } else { committed };
        colour
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

    /// Where a cell's line is, and how far apart cells are, for prefetching.
    pub(super) fn lines(&self) -> (*const u8, u32) {
        (self.cells.as_ptr().cast(), size_of::<Cell>() as u32)
    }

    /// The counts of a worker: three for each cell, one for each colour.
    pub(super) fn counts_of_worker(&self, worker: usize) -> *mut [u64; 2] {
        self.counts.of_worker(worker)
    }

    /// Marks and counts a packet of `bytes` bytes that has colour `before`; returns its colour, green if the index is
    /// out of range. To be called on `worker`'s own thread.
    pub(crate) fn colour_after(&self, worker: usize, index: u64, (bytes, before): (u32, u32), now_us: u64) -> u32 {
        if index >= self.size() {
            return Meters::GREEN;
        }
        // It comes while the cell does.
        self.counts.prefetch(worker, 3 * index);
        let colour = self.mark(index, bytes, before, now_us);
        self.counts.count(worker, 3 * index + u64::from(colour), bytes.into());
        colour
    }

    fn mark(&self, index: u64, bytes: u32, before: u32, now_us: u64) -> u32 {
        let cell = &self.cells[index as usize];
        if !cell.is_configured(Ordering::Acquire) {
            return Meters::GREEN;
        }
        let units = if self.unit == CounterUnit::Packets { 1 } else { u64::from(bytes) };
        let mut locked = cell.lock();
        // Changed under the lock only, but for a cell that is no longer configured.
        match cell.flags.load(Ordering::Relaxed) & PLAIN {
            0 => locked.with(|buckets| buckets.take(units, before, now_us)),
            _ => locked.hot().take(units, before, now_us),
        }
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
        Some(cell.is_configured(Ordering::Acquire).then(|| cell.lock().with(|buckets| buckets.config())))
    }

    /// Takes over the counts of an old cell that is no longer used, and its buckets if both cells have the same
    /// configuration: what was taken from either bucket counts as taken.
    pub(super) fn inherit(&self, index: u64, old: &Meters, old_index: u64) {
        for (colour, counted) in (0..3).zip(old.counts(old_index).unwrap_or_default()) {
            self.counts.add(3 * index + colour, counted);
        }
        let (Some(cell), Some(was)) = (self.cell(index), old.cell(old_index)) else { return };
        if self.unit != old.unit || [cell, was].iter().any(|c| !c.is_configured(Ordering::Acquire)) {
            return;
        }
        let was = was.lock().with(|buckets| *buckets);
        cell.lock().with(|now| {
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
        // An untouched zero page stays untouched.
        match config {
            None if cell.flags.load(Ordering::Relaxed) == 0 => {}
            None => cell.flags.store(0, Ordering::Release),
            Some(config) => {
                let full = Buckets::full(config);
                let fits = |level: u128| u64::try_from(level).is_ok();
                let is_plain = config.eburst == 0 && fits(full.committed) && fits(full.peak);
                let mut locked = cell.lock();
                locked.with(|buckets| *buckets = full);
                // Before the lock is released: flags and buckets belong together.
                cell.flags.store(CONFIGURED | if is_plain { PLAIN } else { 0 }, Ordering::Release);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Buckets, CONFIGURED, CounterUnit, MeterConfig, Meters, PLAIN};
    use std::sync::atomic::Ordering;

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
    fn arithmetic_of_64_bits_gives_the_same_colours_and_levels() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 8
        };
        // Of any magnitude, so that products and sums overflow, too.
        let mut number = |bits: u64| random() & ((1 << (random() % (bits + 1))) - 1);
        let mut plain = 0;
        for case in 0..2000 {
            let eburst = if case % 8 == 0 { number(48) } else { 0 };
            let [cir, cburst, pir, pburst] = [number(56), number(46), number(56), number(46)];
            let config = MeterConfig { cir, cburst, pir, pburst, eburst };
            let meters = Meters::new(1, CounterUnit::Bytes, 1).expect("memory");
            assert!(meters.configure(0, Some(config)));
            let flags = meters.cells[0].flags.load(Ordering::Relaxed);
            plain += usize::from(flags == CONFIGURED | PLAIN);
            let (mut expected, mut now_us) = (Buckets::full(config), 0_u64);
            for _ in 0..40 {
                now_us = now_us.wrapping_add(number(50));
                let (bytes, before) = (number(32) as u32, number(2) as u32);
                let colour = expected.take(bytes.into(), before, now_us);
                assert_eq!(meters.colour_after(0, 0, (bytes, before), now_us), colour, "{config:?}");
                meters.cells[0].lock().with(|got| assert_eq!(format!("{got:?}"), format!("{expected:?}")));
            }
            assert_eq!(meters.config(0), Some(Some(config)));
        }
        assert!((500..1900).contains(&plain), "{plain} of both kinds");
    }

    #[test]
    fn a_cell_is_a_pair_of_cache_lines() {
        let meters = Meters::new(3, CounterUnit::Packets, 1).expect("memory");
        let (first, stride) = meters.lines();
        assert_eq!((first as usize % 128, stride), (0, 128));
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

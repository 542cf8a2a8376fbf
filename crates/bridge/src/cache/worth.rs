//! Measures whether the flow cache pays, and bypasses it if not.
//!
//! If hardly any packet finds a megaflow, lookups cost time and gain nothing. So both alternatives are sampled.
//! While the cache is on, one batch in [`SAMPLE_ON`] bypasses it; while it is off, one in [`SAMPLE_OFF`] uses it,
//! so that megaflows are still learned. The times per packet are compared, as moving averages over the batches of
//! each kind, and the alternative that has lost [`LOSSES_MAX`] comparisons in a row is given up.
//!
//! Only packets that miss the frame cache are measured: its hits cost the same in both cases. The cost of learning
//! is bounded separately (`cache::admission`) and left out here.

use abi::flows::CacheUse;
use std::time::Duration;

/// While the cache is on, one batch in this number bypasses it.
const SAMPLE_ON: u32 = 256;
/// While it is off, one batch in this number uses it.
const SAMPLE_OFF: u32 = 16;
/// Smaller batches are not measured.
const PACKETS_MIN: usize = 4;
/// Consecutive losses after which the cache is switched on or off.
const LOSSES_MAX: u32 = 8;
/// Weight of a sample in the moving average, as a divisor.
const SHARE: f64 = 16.0;
/// A sample counts as at most this multiple of the average: an interrupted worker says nothing about the cache.
const OUTLIER: f64 = 4.0;

/// Average times of batches with and without the cache.
#[derive(Debug, Default)]
pub struct Worth {
    batches: u32,
    is_off: bool,
    /// Average time per packet, in ns, with the cache and without.
    with: Option<f64>,
    without: Option<f64>,
    losses: u32,
}

impl Worth {
    /// Whether the next batch goes through the cache.
    pub fn is_used(&mut self, use_: CacheUse) -> bool {
        match use_ {
            CacheUse::Always => return true,
            CacheUse::Never => return false,
            CacheUse::Auto => {}
        }
        self.batches = self.batches.wrapping_add(1);
        match self.is_off {
            false => !self.batches.is_multiple_of(SAMPLE_ON),
            true => self.batches.is_multiple_of(SAMPLE_OFF),
        }
    }

    /// Records the time of a batch, without the time spent on learning.
    pub fn took(&mut self, packets: usize, time: Duration, is_used: bool) {
        if packets < PACKETS_MIN {
            return;
        }
        let ns = time.as_nanos() as f64 / packets as f64;
        let average = if is_used { &mut self.with } else { &mut self.without };
        *average = Some(average.map_or(ns, |old| old + (ns.min(old * OUTLIER) - old) / SHARE));
        // Compare only at samples, that is, at batches of the rarer kind.
        let (true, Some(with), Some(without)) = (is_used == self.is_off, self.with, self.without) else { return };
        let loses = if self.is_off { with <= without } else { with > without };
        self.losses = if loses { self.losses + 1 } else { 0 };
        if self.losses >= LOSSES_MAX {
            self.is_off = !self.is_off;
            self.losses = 0;
        }
    }

    /// Average times per packet, in ns, with the cache and without, as far as they are known.
    pub fn times(&self) -> (Option<f64>, Option<f64>) {
        (self.with, self.without)
    }

    /// Whether the cache is off because it did not pay.
    pub fn is_off(&self) -> bool {
        self.is_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(worth: &mut Worth, batches: u64, with: u64, without: u64) -> u64 {
        let mut used = 0;
        for _ in 0..batches {
            let is_used = worth.is_used(CacheUse::Auto);
            used += u64::from(is_used);
            let ns = 32 * if is_used { with } else { without };
            worth.took(32, Duration::from_nanos(ns), is_used);
        }
        used
    }

    #[test]
    fn a_cache_that_loses_is_turned_off_and_tried_again() {
        let mut worth = Worth::default();
        assert_eq!(drive(&mut worth, 25_600, 50, 400), 25_500, "one batch of 256 is a sample");
        let used = drive(&mut worth, 256_000, 900, 400);
        assert!(used < 30_000 && worth.is_off(), "{used}");
        // It is switched on again as soon as it wins.
        let used = drive(&mut worth, 25_600, 50, 400);
        assert!(used > 24_000 && !worth.is_off(), "{used}");
    }

    #[test]
    fn an_interruption_decides_nothing() {
        let mut worth = Worth::default();
        for i in 0..100_000u64 {
            let is_used = worth.is_used(CacheUse::Auto);
            // Now and then a batch takes a thousand times as long.
            let ns = 3200 * if i % 997 == 0 { 1000 } else { 1 } * if is_used { 1 } else { 2 };
            worth.took(32, Duration::from_nanos(ns), is_used);
            assert!(!worth.is_off());
        }
    }

    #[test]
    fn it_can_be_forced() {
        let mut worth = Worth::default();
        assert!((0..1000).all(|_| worth.is_used(CacheUse::Always)));
        assert!((0..1000).all(|_| !worth.is_used(CacheUse::Never)));
    }
}

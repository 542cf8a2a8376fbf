//! Whether the cache is worth its cost.
//!
//! Traffic of which hardly a packet has a megaflow twice pays for lookups and gains nothing. So while the cache is on, one batch of
//! [`SAMPLE_ON`] goes without it; while it is off, one of [`SAMPLE_OFF`] goes through it, so that megaflows are learned all the same.
//! Times per packet are compared, as moving averages over batches of each kind, and whoever has lost [`LOSSES_MAX`] comparisons in a row
//! gives way to the other.
//!
//! Only packets that miss the front are measured; hits of the front cost the same whether this cache is on or off. What learning costs is
//! bounded by its share (`cache::admission`) and left out here.

use abi::flows::CacheUse;
use std::time::Duration;

/// While it is on, one batch of so many goes without the cache.
const SAMPLE_ON: u32 = 256;
/// While it is off, one batch of so many goes through the cache.
const SAMPLE_OFF: u32 = 16;
/// Batches of fewer packets say little.
const PACKETS_MIN: usize = 4;
/// Comparisons lost in a row.
const LOSSES_MAX: u32 = 8;
/// A new value's share of the average is one of so many parts.
const SHARE: f64 = 16.0;
/// A batch counts as if it had taken so many times the average at most: a worker that was interrupted says nothing.
const OUTLIER: f64 = 4.0;

/// Times of batches.
#[derive(Debug, Default)]
pub struct Worth {
    batches: u32,
    is_off: bool,
    /// Nanoseconds per packet with and without the cache.
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

    /// A batch took so long, without what was learned.
    pub fn took(&mut self, packets: usize, time: Duration, is_used: bool) {
        if packets < PACKETS_MIN {
            return;
        }
        let ns = time.as_nanos() as f64 / packets as f64;
        let average = if is_used { &mut self.with } else { &mut self.without };
        *average = Some(average.map_or(ns, |old| old + (ns.min(old * OUTLIER) - old) / SHARE));
        // The rare ones are samples.
        let (true, Some(with), Some(without)) = (is_used == self.is_off, self.with, self.without) else { return };
        let loses = if self.is_off { with <= without } else { with > without };
        self.losses = if loses { self.losses + 1 } else { 0 };
        if self.losses >= LOSSES_MAX {
            self.is_off = !self.is_off;
            self.losses = 0;
        }
    }

    /// Nanoseconds per packet with and without the cache, as far as they are known.
    pub fn times(&self) -> (Option<f64>, Option<f64>) {
        (self.with, self.without)
    }

    /// Whether it is off because it did not pay.
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
        // It is back as soon as it wins.
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

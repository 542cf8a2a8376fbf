//! Whether the cache is worth its cost.
//!
//! Traffic of which hardly a packet has a megaflow twice pays for lookups and insertions and gains nothing. So one batch of
//! [`SAMPLE_INTERVAL`] goes without the cache, and times per packet are compared, as moving averages over batches of each kind. If
//! the cache has lost [`LOSSES_MAX`] comparisons in a row it is off for a while, then tried again; the while doubles as long as it
//! keeps losing.

use abi::flows::CacheUse;
use std::time::Duration;

/// One batch of so many goes without the cache.
const SAMPLE_INTERVAL: u32 = 256;
/// Batches of fewer packets say little.
const PACKETS_MIN: usize = 4;
/// Comparisons lost in a row.
const LOSSES_MAX: u32 = 8;
/// How long it is off, first and at most.
const OFF_US: (u64, u64) = (500_000, 32_000_000);
/// A new value's share of the average is one of so many parts.
const SHARE: f64 = 16.0;

/// Times of batches.
#[derive(Debug, Default)]
pub struct Worth {
    batches: u32,
    /// Nanoseconds per packet with and without the cache.
    with: Option<f64>,
    without: Option<f64>,
    losses: u32,
    off_until_us: Option<u64>,
    off_us: u64,
}

impl Worth {
    /// Whether the next batch goes through the cache.
    pub fn is_used(&mut self, use_: CacheUse, now_us: u64) -> bool {
        match use_ {
            CacheUse::Always => return true,
            CacheUse::Never => return false,
            CacheUse::Auto => {}
        }
        match self.off_until_us {
            Some(until) if now_us < until => false,
            Some(_) => {
                // What was measured is of another time.
                *self = Worth { off_us: self.off_us, ..Worth::default() };
                true
            }
            None => {
                self.batches = self.batches.wrapping_add(1);
                !self.batches.is_multiple_of(SAMPLE_INTERVAL)
            }
        }
    }

    /// A batch took so long.
    pub fn took(&mut self, packets: usize, time: Duration, is_used: bool, now_us: u64) {
        if packets < PACKETS_MIN || self.off_until_us.is_some_and(|until| now_us < until) {
            return;
        }
        let ns = time.as_nanos() as f64 / packets as f64;
        let average = if is_used { &mut self.with } else { &mut self.without };
        *average = Some(average.map_or(ns, |old| old + (ns - old) / SHARE));
        if is_used {
            return;
        }
        if let (Some(with), Some(without)) = (self.with, self.without) {
            if with <= without {
                self.losses = 0;
                self.off_us = 0;
                return;
            }
            self.losses += 1;
            if self.losses >= LOSSES_MAX {
                self.losses = 0;
                self.off_us = (self.off_us * 2).clamp(OFF_US.0, OFF_US.1);
                self.off_until_us = Some(now_us + self.off_us);
            }
        }
    }

    /// Nanoseconds per packet with and without the cache, as far as they are known.
    pub fn times(&self) -> (Option<f64>, Option<f64>) {
        (self.with, self.without)
    }

    /// Whether it is off because it did not pay.
    pub fn is_off(&self) -> bool {
        self.off_until_us.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(worth: &mut Worth, from_us: u64, batches: u64, with: u64, without: u64) -> u64 {
        let mut used = 0;
        for i in 0..batches {
            let now_us = from_us + i * 10;
            let is_used = worth.is_used(CacheUse::Auto, now_us);
            used += u64::from(is_used);
            let ns = 32 * if is_used { with } else { without };
            worth.took(32, Duration::from_nanos(ns), is_used, now_us);
        }
        used
    }

    #[test]
    fn a_cache_that_loses_is_turned_off_and_tried_again() {
        let mut worth = Worth::default();
        assert_eq!(drive(&mut worth, 0, 25_600, 50, 400), 25_500, "one batch of 256 is a sample");
        let used = drive(&mut worth, 1_000_000, 25_600, 900, 400);
        assert!(used < 6000 && worth.is_off(), "{used}");
        // Once the time is over it is tried, and stays if it wins.
        let used = drive(&mut worth, 10_000_000, 25_600, 50, 400);
        assert!(used > 25_000 && !worth.is_off(), "{used}");
    }

    #[test]
    fn it_can_be_forced() {
        let mut worth = Worth::default();
        assert!((0..1000).all(|_| worth.is_used(CacheUse::Always, 0)));
        assert!((0..1000).all(|_| !worth.is_used(CacheUse::Never, 0)));
    }
}

//! Clocks from the processor's time stamp counter (TSC): reading one costs a few cycles, so every burst can be timed.
//!
//! [`ticks`] counts at a constant rate on all processors with an invariant TSC; [`Clock`] converts ticks to time. On
//! other architectures, ticks are nanoseconds of the system's clock.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The current time stamp counter. Not serialising: other instructions may be reordered with it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing but its result.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds of the system's clock, on processors without a time stamp counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks per second, measured once per process against the system's clock: the first call takes 20 milliseconds.
pub fn ticks_per_second() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(20));
        (ticks() - first) as f64 / start.elapsed().as_secs_f64()
    })
}

/// The time after which a clock synchronises with the system's clock.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// The time since a start, from ticks. It synchronises with the system's clock ten times a second, so the error stays
/// within microseconds; it never runs backwards. Each thread has its own.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    /// Ticks and microseconds at the last synchronisation.
    ticks: u64,
    us: u64,
    /// Microseconds per tick, times 2^64: conversion is a 128-bit multiplication and a shift, not a division.
    us_per_tick: u64,
    sync_after_ticks: u64,
}

impl Clock {
    /// A clock for the time since `start`.
    pub fn since(start: Instant) -> Clock {
        let rate = ticks_per_second();
        let us = start.elapsed().as_micros() as u64;
        let sync_after_ticks = (SYNC_INTERVAL.as_secs_f64() * rate) as u64;
        Clock { start, ticks: ticks(), us, us_per_tick: scaled(rate), sync_after_ticks }
    }

    /// Microseconds at this tick count, which must not be lower than in the last call.
    #[inline]
    pub fn us_at(&mut self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.ticks);
        if since > self.sync_after_ticks {
            return self.sync();
        }
        self.us + ((u128::from(since) * u128::from(self.us_per_tick)) >> 64) as u64
    }

    /// Synchronises with the system's clock.
    #[cold]
    fn sync(&mut self) -> u64 {
        let (now, real) = both_clocks(self.start);
        let real = real.as_micros() as u64;
        let (passed, passed_us) = (now.saturating_sub(self.ticks), real.saturating_sub(self.us));
        if passed > 0 && passed_us > 0 {
            self.us_per_tick = scaled(passed as f64 / passed_us as f64 * 1e6);
        }
        (self.ticks, self.us) = (now, real.max(self.us));
        self.us
    }
}

/// Reads both clocks at the same moment: ticks, and the time since `start`. The thread may be preempted between the two
/// readings, so the best of a few attempts counts, which took the fewest ticks.
fn both_clocks(start: Instant) -> (u64, Duration) {
    let attempt = || {
        let before = ticks();
        let real = start.elapsed();
        (ticks().saturating_sub(before), before, real)
    };
    let mut best = attempt();
    for _ in 0..2 {
        let other = attempt();
        // Prefers the later attempt unless it was much slower, since time passes between attempts.
        if other.0 <= best.0.saturating_mul(4) {
            best = other;
        }
    }
    (best.1, best.2)
}

/// Microseconds per tick at this rate, times 2^64.
fn scaled(ticks_per_second: f64) -> u64 {
    (1e6 / ticks_per_second * 2f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock's deviation from the system's, measured when this thread was not preempted between the readings.
    fn deviation(clock: &mut Clock, start: Instant) -> Duration {
        loop {
            let before = start.elapsed();
            let shown = Duration::from_micros(clock.us_at(ticks()));
            let after = start.elapsed();
            if after - before < Duration::from_millis(1) {
                return shown.abs_diff(before);
            }
        }
    }

    #[test]
    fn the_clock_follows_the_systems_and_never_goes_back() {
        let start = Instant::now() - Duration::from_millis(1500);
        let mut clock = Clock::since(start);
        let mut last = 0;
        for _ in 0..300 {
            let shown = clock.us_at(ticks());
            assert!(shown >= last, "{shown} after {last}");
            last = shown;
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(deviation(&mut clock, start) < Duration::from_millis(10));
    }

    #[test]
    fn a_wrong_rate_is_put_right() {
        let start = Instant::now();
        let mut clock = Clock::since(start);
        clock.us_per_tick *= 4;
        clock.sync_after_ticks /= 10;
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            clock.us_at(ticks());
        }
        // A clock that is ahead waits for the system's clock: the longer, the later this thread was scheduled.
        let deadline = Instant::now() + Duration::from_secs(120);
        while deviation(&mut clock, start) > Duration::from_millis(2) {
            assert!(Instant::now() < deadline, "it never comes right");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

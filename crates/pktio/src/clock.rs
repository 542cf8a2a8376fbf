//! The processor's time stamp counter: a clock that costs a few cycles to read, for what is timed on every burst.
//!
//! [`ticks`] counts at a constant rate on every processor of this century ("invariant TSC"); [`Clock`] turns ticks into
//! the time since it was made. Where there is no such counter, ticks are nanoseconds of the system's clock.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The counter now. Not serialised: neighbouring instructions may move across it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing but its result.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds where there is no time stamp counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks in a second, measured once per process against the system's clock: the first call takes 20 milliseconds.
pub fn ticks_per_second() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(20));
        (ticks() - first) as f64 / start.elapsed().as_secs_f64()
    })
}

/// Ticks between two looks at the system's clock are those of this time.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// The time since a moment, from ticks. Ten times a second it looks at the system's clock, so it stays within
/// microseconds of it for ever; it never goes back. Each thread has its own.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    /// Ticks and microseconds of the last look at the system's clock.
    ticks: u64,
    us: u64,
    /// Microseconds per tick, times 2^64: a product of 128 bits, shifted, instead of a division.
    us_per_tick: u64,
    sync_after_ticks: u64,
}

impl Clock {
    /// The time since `start`.
    pub fn since(start: Instant) -> Clock {
        let rate = ticks_per_second();
        let us = start.elapsed().as_micros() as u64;
        let sync_after_ticks = (SYNC_INTERVAL.as_secs_f64() * rate) as u64;
        Clock { start, ticks: ticks(), us, us_per_tick: scaled(rate), sync_after_ticks }
    }

    /// Microseconds on this clock at a count of ticks, which is not before those of the last call.
    #[inline]
    pub fn us_at(&mut self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.ticks);
        if since > self.sync_after_ticks {
            return self.sync();
        }
        self.us + ((u128::from(since) * u128::from(self.us_per_tick)) >> 64) as u64
    }

    /// Follows the system's clock from now on.
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

/// A count of ticks and the time since `start` at the same moment. A thread may lose its processor between the two readings,
/// so that of a few attempts counts which took the fewest ticks.
fn both_clocks(start: Instant) -> (u64, Duration) {
    let attempt = || {
        let before = ticks();
        let real = start.elapsed();
        (ticks().saturating_sub(before), before, real)
    };
    let mut best = attempt();
    for _ in 0..2 {
        let other = attempt();
        // Ticks go on between attempts, and the clock never goes back: the later one unless it was slower by far.
        if other.0 <= best.0.saturating_mul(4) {
            best = other;
        }
    }
    (best.1, best.2)
}

/// Microseconds per tick at a rate, times 2^64.
fn scaled(ticks_per_second: f64) -> u64 {
    (1e6 / ticks_per_second * 2f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far the clock is from the system's, at a moment when this thread was not held up between the readings.
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
        // What it was ahead of the system's clock by, it waits for: the longer, the later this thread had its turn.
        let deadline = Instant::now() + Duration::from_secs(120);
        while deviation(&mut clock, start) > Duration::from_millis(2) {
            assert!(Instant::now() < deadline, "it never comes right");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

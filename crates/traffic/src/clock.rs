//! Monotonic time from readings of a clock that may run backwards. All values are in nanoseconds.
//!
//! Readings that lag by up to [`JITTER_MAX`] come from threads whose clocks differ: time stands still until
//! they catch up, so that no interval counts twice. A reading that lags by more means that the clock was set
//! back: time continues from there. A forward jump counts as [`STEP_MAX`] at most; the burst of a shaper
//! bounds the credit that it gives. Tests below.

/// Readings that lag by no more than this (10 ms) do not change the time. Threads that derive time from tick counters
/// and read the system's clock ten times a second differ by less.
const JITTER_MAX: u64 = 10_000_000;
/// Maximum advance per reading: one day. 64 bits of time then last for 200,000 jumps.
const STEP_MAX: u64 = 86_400_000_000_000;

/// The clock of one port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    reading: u64,
    time: u64,
}

impl Clock {
    /// Returns the time at this reading.
    pub fn advance(&mut self, reading: u64) -> u64 {
        if reading >= self.reading {
            self.time = self.time.saturating_add((reading - self.reading).min(STEP_MAX));
            self.reading = reading;
        } else if self.reading - reading > JITTER_MAX {
            self.reading = reading;
        }
        self.time
    }

    /// The reading at which the time will be `time`.
    pub fn reading_at(&self, time: u64) -> u64 {
        self.reading.saturating_add(time.saturating_sub(self.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_once() {
        let mut clock = Clock::default();
        let start = clock.advance(1_000_000_000_000);
        // Two threads, one of which is 5 µs behind the other.
        for i in 0..1000 {
            clock.advance(1_000_000_000_000 + i * 1000);
            clock.advance(1_000_000_000_000 + i * 1000 - 5000);
        }
        assert_eq!(clock.advance(1_000_000_999_000) - start, 999_000);
    }

    #[test]
    fn a_clock_that_was_set_goes_on() {
        let mut clock = Clock::default();
        let start = clock.advance(1_000_000_000_000);
        assert_eq!(clock.advance(5), start);
        assert_eq!(clock.advance(105), start + 100);
        assert_eq!(clock.reading_at(start + 150), 155);
        assert_eq!(clock.advance(u64::MAX), start + 100 + STEP_MAX);
        assert_eq!(clock.advance(0), start + 100 + STEP_MAX);
    }
}

//! Time that does not run backwards, made from readings of a clock that may.
//!
//! Readings that lag by up to [`JITTER_MAX`] come from threads whose clocks differ: time stands still until they have caught up,
//! so that no interval counts twice. A reading that lags by more means that the clock was set back: time goes on from there. A
//! jump forward counts as [`STEP_MAX`] at most; shapers bound what it is worth by their burst. Tests below.

/// Readings that lag by no more than this do not move time: 10 ms. Threads that make time from tick counters and look at the
/// system's clock ten times a second differ by less.
const JITTER_MAX: u64 = 10_000_000;
/// The most that one reading advances time: a day. Time then lasts for 200,000 jumps.
const STEP_MAX: u64 = 86_400_000_000_000;

/// The clock of one port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    reading: u64,
    time: u64,
}

impl Clock {
    /// The time at this reading.
    pub fn advance(&mut self, reading: u64) -> u64 {
        if reading >= self.reading {
            self.time = self.time.saturating_add((reading - self.reading).min(STEP_MAX));
            self.reading = reading;
        } else if self.reading - reading > JITTER_MAX {
            self.reading = reading;
        }
        self.time
    }

    /// The reading at which it will be this time.
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
        // Two threads, one 5 µs behind the other.
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

//! How often a peer may ask for something: so many times a second.
//!
//! A port's thread works on what its peers say, and one that says something without end would keep a processor busy. So what is
//! beyond the limit waits, unread, for the next second.
//!
//! Threads: none. Tests: below, `tests/hostile.rs` of both ports.

use std::time::{Duration, Instant};

/// How long a count lasts.
const SECOND: Duration = Duration::from_secs(1);

/// So many a second.
#[derive(Debug)]
pub struct Limit {
    most: u32,
    since: Instant,
    count: u32,
}

impl Limit {
    /// For `most` in each second.
    pub fn new(most: u32) -> Limit {
        Limit { most, since: Instant::now(), count: 0 }
    }

    /// Counts one; false if there were as many this second.
    pub fn take(&mut self) -> bool {
        if self.since.elapsed() >= SECOND {
            (self.since, self.count) = (Instant::now(), 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= self.most
    }

    /// How long until there may be more; zero if there may be now.
    pub fn pause(&self) -> Duration {
        if self.count < self.most { Duration::ZERO } else { SECOND.saturating_sub(self.since.elapsed()) }
    }

    /// Whether nothing was counted for so long that another limit says the same.
    pub fn is_over(&self) -> bool {
        self.since.elapsed() >= SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_waits_for_the_next_second() {
        let mut limit = Limit::new(3);
        assert!((0..3).all(|_| limit.pause().is_zero() && limit.take()));
        assert!(!limit.take() && !limit.pause().is_zero() && !limit.is_over());
        limit.since -= SECOND;
        assert!(limit.pause().is_zero() && limit.is_over());
        assert!(limit.take() && limit.pause().is_zero());
    }
}

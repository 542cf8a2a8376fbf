//! Rate limit of a peer's requests: so many in each second (a fixed window).
//!
//! A port's thread handles its peers' messages, and a peer that sends without end would keep a processor busy. Messages
//! beyond the limit wait, unread, for the next second.
//!
//! Threads: none. Tests: below, `tests/hostile.rs` of both ports.

use std::time::{Duration, Instant};

/// Length of the window.
const SECOND: Duration = Duration::from_secs(1);

/// A maximum number of events per second.
#[derive(Debug)]
pub struct Limit {
    most: u32,
    since: Instant,
    count: u32,
}

impl Limit {
    /// A limit of `most` events per second.
    pub fn new(most: u32) -> Limit {
        Limit { most, since: Instant::now(), count: 0 }
    }

    /// Counts an event; false if it exceeds this second's limit.
    pub fn take(&mut self) -> bool {
        if self.since.elapsed() >= SECOND {
            (self.since, self.count) = (Instant::now(), 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= self.most
    }

    /// Time until the next event is allowed; zero if one is allowed now.
    pub fn pause(&self) -> Duration {
        if self.count < self.most { Duration::ZERO } else { SECOND.saturating_sub(self.since.elapsed()) }
    }

    /// Whether the window has ended, so that the limit is equivalent to a new one.
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

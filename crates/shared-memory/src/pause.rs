//! How long a port accepts no peer after one has truncated its memory: exponential back-off.
//!
//! Such a peer costs a worker a signal, and the kernel the mapping's page tables; thousands of times a second, this
//! would take all of the worker's time. Threads: none. Tests: below.

use std::time::{Duration, Instant};

/// Pause after the first damage; a virtual machine monitor hardly restarts faster.
const SHORTEST: Duration = Duration::from_secs(1);
/// Maximum pause.
const LONGEST: Duration = Duration::from_secs(64);

/// A port's pause. It doubles with each damage, and is short again after some time without.
#[derive(Debug, Default)]
pub struct Pause {
    length: Duration,
    until: Option<Instant>,
}

impl Pause {
    /// Starts a pause, after a peer has done damage.
    pub fn begin(&mut self, now: Instant) {
        let is_forgiven = self.until.is_none_or(|until| now > until + LONGEST);
        self.length = if is_forgiven { SHORTEST } else { (2 * self.length).min(LONGEST) };
        self.until = Some(now + self.length);
    }

    /// Remaining time; zero if a peer may connect.
    pub fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a front end that truncated its memory reconnected hundreds of
    /// times a second, for 10 ms of a worker each.
    #[test]
    fn who_does_damage_again_and_again_waits_longer_and_longer() {
        let (mut pause, mut now) = (Pause::default(), Instant::now());
        assert_eq!(pause.left(now), Duration::ZERO);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            pause.begin(now);
            assert_eq!(pause.left(now), Duration::from_secs(seconds));
            now += Duration::from_secs(seconds);
            assert_eq!(pause.left(now), Duration::ZERO);
        }
        pause.begin(now + 2 * LONGEST);
        assert_eq!(pause.left(now + 2 * LONGEST), SHORTEST, "the past is forgotten");
    }
}

//! A rate limit for log messages that a peer can trigger as often as it likes.

use std::time::{Duration, Instant};

/// The window of the rate limit.
const EVERY: Duration = Duration::from_secs(10);

/// A rate-limited log message.
#[derive(Debug)]
pub struct LogLimit {
    lines: u32,
    begin: Option<Instant>,
    said: u32,
    count: u64,
}

impl Default for LogLimit {
    /// One message per window.
    fn default() -> LogLimit {
        LogLimit::lines(1)
    }
}

impl LogLimit {
    /// At most `lines` messages in ten seconds.
    pub fn lines(lines: u32) -> LogLimit {
        LogLimit { lines, begin: None, said: 0, count: 0 }
    }

    /// Counts an event. Unless the limit is reached, calls `how` with the number of events since the last message.
    pub fn say(&mut self, how: impl FnOnce(u64)) {
        self.count += 1;
        if self.begin.is_none_or(|begin| begin.elapsed() >= EVERY) {
            (self.begin, self.said) = (Some(Instant::now()), 0);
        }
        if self.said < self.lines {
            self.said += 1;
            how(std::mem::take(&mut self.count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_times_are_said_once() {
        let (mut seldom, mut said) = (LogLimit::default(), Vec::new());
        for _ in 0..1000 {
            seldom.say(|times| said.push(times));
        }
        assert_eq!(said[0], 1);
        assert!(said.len() < 100, "{said:?}");
        seldom.begin = None;
        seldom.say(|times| said.push(times));
        assert_eq!(said.iter().sum::<u64>(), 1001);
    }

    #[test]
    fn the_first_few_are_told_one_by_one() {
        let (mut seldom, mut said) = (LogLimit::lines(3), Vec::new());
        for _ in 0..3 {
            seldom.say(|times| said.push(times));
        }
        assert_eq!(said, [1, 1, 1]);
    }
}

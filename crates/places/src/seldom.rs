//! What a peer can cause as often as it likes, and a log says now and then.

use std::time::{Duration, Instant};

/// How often it is said at most.
const EVERY: Duration = Duration::from_secs(10);

/// Something that may happen often, and is said seldom.
#[derive(Debug, Default)]
pub struct Seldom {
    last: Option<Instant>,
    count: u64,
}

impl Seldom {
    /// It has happened. `how` is called at most once in ten seconds, with how often it has happened since.
    pub fn say(&mut self, how: impl FnOnce(u64)) {
        self.count += 1;
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            how(std::mem::take(&mut self.count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_times_are_said_once() {
        let (mut seldom, mut said) = (Seldom::default(), Vec::new());
        for _ in 0..1000 {
            seldom.say(|times| said.push(times));
        }
        assert_eq!(said[0], 1);
        assert!(said.len() < 100, "{said:?}");
        seldom.last = None;
        seldom.say(|times| said.push(times));
        assert_eq!(said.iter().sum::<u64>(), 1001);
    }
}

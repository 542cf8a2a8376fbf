//! How many packets are due at a rate.

/// Lets packets go at a rate. What could not be sent in time is not made up for later than one millisecond.
pub struct Pace {
    ticks_per_packet: f64,
    /// When the next packet is due.
    due: f64,
    slack: f64,
}

impl Pace {
    /// `rate` packets a second from `now` on.
    pub fn new(rate: f64, ticks_per_second: f64, now: u64) -> Pace {
        Pace { ticks_per_packet: ticks_per_second / rate, due: now as f64, slack: ticks_per_second / 1e3 }
    }

    /// How many packets, at most `max`, may go now; they count as gone.
    pub fn due(&mut self, now: u64, max: usize) -> usize {
        self.due = self.due.max(now as f64 - self.slack);
        let count = ((now as f64 - self.due) / self.ticks_per_packet).max(0.0) as usize;
        let count = count.min(max);
        self.due += count as f64 * self.ticks_per_packet;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_a_pause_is_not_made_up_for() {
        let mut pace = Pace::new(1000.0, 1e6, 0); // a packet every 1000 ticks
        assert_eq!(pace.due(500, 32), 0);
        assert_eq!(pace.due(1000, 32), 1);
        assert_eq!(pace.due(1000, 32), 0);
        let sent: usize = (1000..101_000).step_by(100).map(|now| pace.due(now, 32)).sum();
        assert!((99..=100).contains(&sent), "{sent}");
        assert!(pace.due(1_000_000, 32) <= 1, "one millisecond is 1000 ticks");
    }
}

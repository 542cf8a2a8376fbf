//! How a worker's time is shared by its ports: deficit round robin, by time instead of bytes (Shreedhar, Varghese: "Efficient fair
//! queueing using deficit round robin", SIGCOMM 1995).
//!
//! A port whose packets or descriptors cost much, or that is flooded, would otherwise take as much of each round as it can. So the time
//! of each turn is added up, and while ports are *backlogged* (their last burst was a full one) a port that has had [`SLACK`] more than the
//! one of these that has had least is passed over. Nobody waits when no port is backlogged: what was added up is forgotten then, so a port may
//! use all time that others leave. A port that comes back begins with what the others have had, so silence gives no credit.
//!
//! What a port has had is the time of receiving from it, of the program, and of sending on what it has sent; but not of trying again to
//! send, which the destination pays for from an account of its own (`out.rs`).
//!
//! Costs a look at the clock in each turn without packets; those with packets look anyway. One worker, one thread. Tests: at the end, and
//! `tests/worker.rs`.

use pktio::ticks_per_second;

/// How much longer than others a port may have had the worker, in seconds: some bursts of ordinary packets.
const SLACK_S: f64 = 20e-6;

/// A port's time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turn {
    /// When what was added up was last forgotten.
    epoch: u32,
    ticks: u64,
}

/// What all ports of a worker have had.
#[derive(Debug)]
pub(super) struct Shares {
    epoch: u32,
    slack: u64,
    /// The least that a port had that was backlogged in the last round, if one was.
    floor: Option<u64>,
    /// The same of this round.
    next: Option<u64>,
}

impl Shares {
    /// Nobody has had anything.
    pub(super) fn new() -> Shares {
        Shares { epoch: 1, slack: (SLACK_S * ticks_per_second()) as u64, floor: None, next: None }
    }

    /// Whether a port is passed over in this round.
    #[inline]
    pub(super) fn passes_over(&self, turn: &Turn) -> bool {
        self.floor.is_some_and(|floor| turn.epoch == self.epoch && turn.ticks > floor + self.slack)
    }

    /// A port has had a turn of so many ticks, and has more for the next one.
    #[inline]
    pub(super) fn charge(&mut self, turn: &mut Turn, ticks: u64, is_backlogged: bool) {
        let before = if turn.epoch == self.epoch { turn.ticks } else { 0 };
        let now = before.max(self.floor.unwrap_or(0)).saturating_add(ticks);
        *turn = Turn { epoch: self.epoch, ticks: now };
        if is_backlogged {
            self.next = Some(self.next.map_or(now, |next| next.min(now)));
        }
    }

    /// All ports have had their turns or were passed over.
    #[inline]
    pub(super) fn end_round(&mut self) {
        self.floor = self.next.take();
        if self.floor.is_none() {
            self.epoch = self.epoch.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of ports that cost so many slacks a turn and are backlogged or not; how often each had its turn.
    fn turns(ports: &[(u64, bool)], rounds: usize) -> Vec<u64> {
        let mut shares = Shares { epoch: u32::MAX - 3, slack: 100, floor: None, next: None };
        let mut all = vec![(Turn::default(), 0); ports.len()];
        for _ in 0..rounds {
            for ((turn, count), (cost, backlogged)) in all.iter_mut().zip(ports) {
                if !shares.passes_over(turn) {
                    *count += 1;
                    shares.charge(turn, cost * shares.slack, *backlogged);
                }
            }
            shares.end_round();
        }
        all.into_iter().map(|(_, count)| count).collect()
    }

    #[test]
    fn backlogged_ports_get_the_same_time() {
        let counts = turns(&[(1, true), (10, true), (2, true)], 10_000);
        assert!((9_000..=10_000).contains(&counts[0]), "{counts:?}");
        assert!(counts[1] * 10 <= counts[0] + 20 && counts[1] * 11 >= counts[0] - 20, "{counts:?}");
        assert!(counts[2].abs_diff(counts[0] / 2) < 100, "{counts:?}");
    }

    #[test]
    fn a_port_that_takes_time_without_packets_waits_for_those_that_have_some() {
        let counts = turns(&[(1, true), (50, false)], 10_000);
        assert!(counts[0] == 10_000 && (150..=250).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn nobody_waits_for_ports_that_have_nothing_more() {
        assert_eq!(turns(&[(1, false), (50, false), (10, false)], 1000), [1000, 1000, 1000]);
        assert_eq!(turns(&[(1, false), (50, true)], 1000), [1000, 1000], "what others leave is the busy one's");
    }

    #[test]
    fn silence_gives_no_credit() {
        let mut shares = Shares { epoch: 1, slack: 100, floor: None, next: None };
        let (mut busy, mut late) = (Turn::default(), Turn::default());
        for _ in 0..1000 {
            shares.charge(&mut busy, 1000, true);
            shares.end_round();
        }
        shares.charge(&mut late, 1000, true);
        shares.charge(&mut busy, 1000, true);
        shares.end_round();
        assert!(!shares.passes_over(&busy) && !shares.passes_over(&late));
    }
}

//! Shares a worker's time fairly between its ports: deficit round robin by time instead of bytes (Shreedhar,
//! Varghese: "Efficient fair queueing using deficit round robin", SIGCOMM 1995).
//!
//! A port whose packets or descriptors are costly, or that is flooded, would otherwise take an unbounded part of each
//! round. So each port is charged for the time of its turns. A port is *backlogged* if its last burst was full. While
//! any port is backlogged, a port is skipped once it has used [`SLACK_S`] more than the backlogged port that has used
//! least. When no port is backlogged the accounts are cleared, so a port may use all the time that others leave. A
//! port that returns starts with the account of the others, so idling earns no credit.
//!
//! A port is charged for receiving from it, for the program, and for the first attempt to transmit the result.
//! Retries are charged to a separate account of the egress port (`out.rs`).
//!
//! This costs one clock read per turn without packets; turns with packets read the clock anyway. One worker, one
//! thread. Tests: at the end, and `tests/worker.rs`.

use pktio::ticks_per_second;

/// How much more time than others a port may use before it is skipped, in seconds: a few bursts of ordinary packets.
const SLACK_S: f64 = 20e-6;

/// A port's account.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turn {
    /// The epoch in which `ticks` was charged; the account counts as zero in any other.
    epoch: u32,
    ticks: u64,
}

/// The accounts of all ports of a worker, as far as they are common.
#[derive(Debug)]
pub(super) struct Shares {
    epoch: u32,
    slack: u64,
    /// The smallest account of a port that was backlogged in the last round, if any.
    floor: Option<u64>,
    /// The same for this round.
    next: Option<u64>,
}

impl Shares {
    /// Empty accounts.
    pub(super) fn new() -> Shares {
        Shares { epoch: 1, slack: (SLACK_S * ticks_per_second()) as u64, floor: None, next: None }
    }

    /// Whether a port is skipped in this round.
    #[inline]
    pub(super) fn passes_over(&self, turn: &Turn) -> bool {
        self.floor.is_some_and(|floor| turn.epoch == self.epoch && turn.ticks > floor + self.slack)
    }

    /// Charges a port for a turn of `ticks`; `is_backlogged`: it has more packets waiting.
    #[inline]
    pub(super) fn charge(&mut self, turn: &mut Turn, ticks: u64, is_backlogged: bool) {
        let before = if turn.epoch == self.epoch { turn.ticks } else { 0 };
        let now = before.max(self.floor.unwrap_or(0)).saturating_add(ticks);
        *turn = Turn { epoch: self.epoch, ticks: now };
        if is_backlogged {
            self.next = Some(self.next.map_or(now, |next| next.min(now)));
        }
    }

    /// Ends a round, in which every port had its turn or was skipped.
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

    /// Simulates ports, each with its cost per turn in slacks and whether it is backlogged; returns the number of
    /// turns each got.
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

//! `sluice bench --control --packets FILE --turns SECONDS`: turns with writes, alternating with turns of the same
//! length in which another switch is written.
//!
//! A virtual machine may stop for longer than a ring lasts, or become slower for minutes, because of other users of its
//! processors or memory; no counter of the guest shows that. Its effect is measured in the same run. Packets arrive at
//! one rate in both kinds of turns, and both lose what the machine makes them lose; the additional loss of turns *with*
//! writes is the switch's.
//!
//! - A turn with writes begins with the first request, with the compiler enabled. It ends when the last request is
//!   answered and specialised code runs, or when [`SETTLED`] has passed without it: compilation and publication caused
//!   by the writes are part of the turn.
//! - A turn without writes is as long. The same requests go to a switch without packets, in a process of its own on the
//!   processors of everything but the worker: a machine whose processors and memory are busy gets less of its host than
//!   one that is half idle. If most packets of the previous turn met generic code, this turn begins with generic code
//!   and without the compiler, so that its worker has as little time to spare; otherwise the only difference is which
//!   tables are written.
//!
//! A turn has lost if a packet was lost for a reason other than other programs ([`super::gaps`]). Two consecutive turns
//! are a pair. If writes do no harm, either turn of a pair is equally likely to lose more (the sign test).
//!
//! Threads: values of the calling thread. Tests: at the end.

use super::gaps::{Cause, Gaps, Machine};
use super::paced::Passed;
use std::time::Duration;

/// Time limit for specialised code after writes.
pub(super) const SETTLED: Duration = Duration::from_secs(2);
/// Requests of the first turn, if no write rate is given.
const FIRST: usize = 10;

/// Parses the argument: seconds.
///
/// # Errors
/// For anything but a number from 0.01 to 3600.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "it is a number of seconds from 0.01 to 3600, as 1".to_string())
}

/// The turns of one kind.
#[derive(Clone, Default)]
pub(super) struct Side {
    pub(super) passed: Passed,
    pub(super) gaps: Gaps,
    pub(super) machine: Option<Machine>,
    turns: u64,
    with_loss: u64,
}

impl Side {
    /// Adds a turn; returns the packets that it lost.
    fn add(&mut self, passed: &Passed, gaps: &Gaps, machine: Option<Machine>) -> u64 {
        self.passed = self.passed.and(passed);
        self.gaps = self.gaps.and(gaps);
        self.machine = match (self.machine.take(), machine) {
            (Some(sum), Some(more)) => Some(sum.and(&more)),
            (sum, more) => sum.or(more),
        };
        let lost = (passed.lost as f64 - gaps.of(Cause::Others).lost).round().max(0.0) as u64;
        self.turns += 1;
        self.with_loss += u64::from(lost > 0);
        lost
    }

    /// Formatted: how many of the turns have lost packets.
    pub(super) fn turns(&self) -> String {
        format!("{} of {}", self.with_loss, self.turns)
    }
}

/// The measurements of a turn.
pub(super) type Turn = (Passed, Gaps, Option<Machine>);

/// Pairs of turns.
#[derive(Default)]
pub(super) struct Pairs {
    pub(super) with: Side,
    pub(super) without: Side,
    /// Pairs in which the turn with writes lost more, and pairs in which the other one did.
    pub(super) more: u64,
    pub(super) fewer: u64,
}

impl Pairs {
    pub(super) fn add(&mut self, with: Turn, without: Turn) {
        let a = self.with.add(&with.0, &with.1, with.2);
        let b = self.without.add(&without.0, &without.1, without.2);
        self.more += u64::from(a > b);
        self.fewer += u64::from(a < b);
    }
}

/// The number of requests per turn.
pub(super) struct Pace {
    length: Duration,
    next: usize,
}

impl Pace {
    /// Turns of this length, with requests of `updates` updates each, written at `rate` updates per second if given.
    pub(super) fn new(length: Duration, updates: usize, rate: Option<u64>) -> Pace {
        let paced = |rate: u64| (length.as_secs_f64() * rate as f64 / updates.max(1) as f64) as usize;
        Pace { length, next: rate.map_or(FIRST, paced).max(1) }
    }

    /// The number of requests of the next turn, if `left` remain.
    pub(super) fn next(&self, left: usize) -> usize {
        self.next.min(left)
    }

    /// Records how long a turn of `count` requests took.
    pub(super) fn took(&mut self, count: usize, time: Duration) {
        if count == self.next {
            let fits = count as f64 * self.length.as_secs_f64() / time.as_secs_f64().max(1e-6);
            // At most four times as many at once: the first requests may have been the fast ones.
            self.next = (fits as usize).clamp(1, count.saturating_mul(4));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_have_as_many_requests_as_fit() {
        let second = Duration::from_secs(1);
        assert_eq!(Pace::new(second, 100, Some(10_000)).next(1_000), 100);
        assert_eq!(Pace::new(second, 1_000, Some(10)).next(1_000), 1);
        let mut pace = Pace::new(second, 1_000, None);
        assert_eq!((pace.next(1_000), pace.next(3)), (10, 3));
        pace.took(10, Duration::from_millis(10));
        assert_eq!(pace.next(1_000), 40);
        pace.took(40, Duration::from_secs(4));
        assert_eq!(pace.next(1_000), 10);
        // A shorter last turn is no measure of a whole turn.
        pace.took(2, Duration::from_secs(4));
        assert_eq!(pace.next(1_000), 10);
        assert!(seconds("0.5").is_ok() && ["", "0", "-1", "inf", "nan"].iter().all(|text| seconds(text).is_err()));
    }

    #[test]
    fn pairs_say_which_turn_lost_more() {
        let turn = |lost| (Passed { arrived: 1_000, lost, ..Passed::default() }, Gaps::default(), None);
        let mut pairs = Pairs::default();
        for (with, without) in [(0, 0), (5, 0), (5, 7), (9, 8)] {
            pairs.add(turn(with), turn(without));
        }
        assert_eq!((pairs.more, pairs.fewer), (2, 1));
        assert_eq!((pairs.with.turns(), pairs.without.turns()), ("3 of 4".into(), "2 of 4".into()));
        assert_eq!((pairs.with.passed.arrived, pairs.with.passed.lost, pairs.without.passed.lost), (4_000, 19, 15));
    }
}

//! What a worker does when no packet comes.
//!
//! `Busy` polls without end: the lowest latency, at the price of a processor. `Sleep` polls for a while (a pause between
//! two bursts costs nothing), then sleeps between polls, longer and longer up to [`SLEEP_MAX`]: an idle switch takes
//! about one per cent of a processor, and the first packet after a silence waits at most [`SLEEP_MAX`] and what the
//! kernel adds. `Interrupt` polls for a while, then sleeps until a port says that packets have come; where one cannot say
//! so, no longer than `Sleep` would. Time is an argument nowhere here: rounds are counted. One worker, one thread.

use std::time::Duration;

/// Empty rounds before a worker starts to sleep.
const SPIN_ROUNDS: u32 = 2_000;
/// The first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(20);
/// The longest sleep.
pub const SLEEP_MAX: Duration = Duration::from_micros(500);

/// The longest that a worker sleeps whom all ports would wake: long enough to cost nothing, short enough that a port which
/// forgets to wake it is no more than slow.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(100);

/// What a worker does when there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Polls on.
    Busy,
    /// Polls for a while, then sleeps between polls.
    #[default]
    Sleep,
    /// Polls for a while, then sleeps until packets come.
    Interrupt,
}

/// How long nothing has come.
pub(super) struct Idler {
    policy: Idle,
    empty_rounds: u32,
    sleep: Duration,
}

/// What to do after an empty round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Poll again.
    Poll,
    /// Nothing has come for some time: let go of what others wait for, then poll again.
    LetGo,
    /// The same, and sleep before the next poll.
    Sleep(Duration),
    /// The same, and sleep until a port wakes the worker: for so long where one cannot.
    Wait(Duration),
}

impl Idler {
    pub(super) fn new(policy: Idle) -> Idler {
        Idler { policy, empty_rounds: 0, sleep: SLEEP_MIN }
    }

    /// A round had packets.
    #[inline]
    pub(super) fn busy(&mut self) {
        self.empty_rounds = 0;
        self.sleep = SLEEP_MIN;
    }

    /// A round had none.
    #[inline]
    pub(super) fn empty(&mut self) -> Step {
        self.empty_rounds = self.empty_rounds.saturating_add(1);
        match (self.empty_rounds, self.policy) {
            (SPIN_ROUNDS, _) => Step::LetGo,
            (0..SPIN_ROUNDS, _) | (_, Idle::Busy) => Step::Poll,
            (_, policy) => {
                let now = self.sleep;
                self.sleep = (now * 2).min(SLEEP_MAX);
                if policy == Idle::Interrupt { Step::Wait(now) } else { Step::Sleep(now) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(idler: &mut Idler, count: usize) -> Vec<Step> {
        (0..count).map(|_| idler.empty()).collect()
    }

    #[test]
    fn sleeps_grow_to_their_limit_and_start_anew_after_packets() {
        let mut idler = Idler::new(Idle::Sleep);
        for _ in 0..2 {
            let spin = steps(&mut idler, SPIN_ROUNDS as usize);
            assert!(spin[..spin.len() - 1].iter().all(|step| *step == Step::Poll));
            assert_eq!(spin.last(), Some(&Step::LetGo));
            let us = |us| Step::Sleep(Duration::from_micros(us));
            assert_eq!(steps(&mut idler, 7), [us(20), us(40), us(80), us(160), us(320), us(500), us(500)]);
            idler.busy();
        }
    }

    #[test]
    fn waits_grow_like_sleeps() {
        let mut idler = Idler::new(Idle::Interrupt);
        assert_eq!(steps(&mut idler, SPIN_ROUNDS as usize).last(), Some(&Step::LetGo));
        let us = |us| Step::Wait(Duration::from_micros(us));
        assert_eq!(steps(&mut idler, 3), [us(20), us(40), us(80)]);
    }

    #[test]
    fn busy_workers_never_sleep_but_let_go_once() {
        let all = steps(&mut Idler::new(Idle::Busy), 5 * SPIN_ROUNDS as usize);
        assert_eq!(all.iter().filter(|step| **step == Step::LetGo).count(), 1);
        assert!(all.iter().all(|step| matches!(step, Step::Poll | Step::LetGo)));
    }
}

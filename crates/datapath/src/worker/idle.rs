//! What a worker does when no packets arrive.
//!
//! - `Busy` polls without pause: lowest latency, at the price of a processor.
//! - `Sleep` polls for a while (a pause between two bursts costs nothing), then sleeps between polls, doubling the
//!   time up to [`SLEEP_MAX`]. An idle switch uses about one per cent of a processor, and the first packet after a
//!   silence waits at most [`SLEEP_MAX`] plus what the kernel adds.
//! - `Interrupt` polls for a while, then sleeps until a port signals packets. Where a port cannot signal, it sleeps
//!   no longer than `Sleep` would.
//!
//! The policy counts rounds and reads no clock. One worker, one thread.

use std::time::Duration;

/// Empty rounds before a worker starts to sleep.
const SPIN_ROUNDS: u32 = 2_000;
/// The first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(20);
/// The longest sleep.
pub const SLEEP_MAX: Duration = Duration::from_micros(500);

/// The longest sleep if all ports can wake the worker: long enough to cost nothing, short enough that a port that
/// fails to wake it is merely slow.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(100);

/// The idle policy of workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Keeps polling.
    Busy,
    /// Polls for a while, then sleeps between polls.
    #[default]
    Sleep,
    /// Polls for a while, then sleeps until packets come.
    Interrupt,
}

/// The policy's state: for how long no packets have arrived.
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
    /// Nothing has arrived for some time: go offline for reclamation, then poll again.
    LetGo,
    /// Like `LetGo`, and sleep before the next poll.
    Sleep(Duration),
    /// Like `LetGo`, and sleep until a port wakes the worker; for this long if a port cannot.
    Wait(Duration),
}

impl Idler {
    pub(super) fn new(policy: Idle) -> Idler {
        Idler { policy, empty_rounds: 0, sleep: SLEEP_MIN }
    }

    /// Notes a round with packets.
    #[inline]
    pub(super) fn busy(&mut self) {
        self.empty_rounds = 0;
        self.sleep = SLEEP_MIN;
    }

    /// Notes a round without packets; returns what to do next.
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

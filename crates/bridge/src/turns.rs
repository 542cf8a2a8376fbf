//! Fair scheduling of packet-outs while workers have no room for all: waiting connections take turns.
//!
//! Deficit round robin (Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round Robin", 1995), by
//! connection. At its turn, a connection gets [`QUANTUM`] bytes of credit; unused credit is kept while it waits. So
//! a connection waits for at most one quantum of each other connection, however much these have to send. While no
//! connection waits, all send at once.
//!
//! Each connection sends on its own thread. One that does not use its turn within [`TURN_US`] loses it, so that a
//! blocked thread does not block others. Threads: any. Tests: below, `tests/packet_outs.rs`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Credit per turn, in bytes: some dozens of small packets, so that threads do not wake each other for every
/// packet. A longer packet is sent after several turns.
pub(crate) const QUANTUM: u64 = 16 << 10;

/// After this time a connection that does not send loses its turn, in microseconds: ten times the interval between
/// its tries.
const TURN_US: u64 = 10_000;

#[derive(Debug)]
struct Turn {
    connection: u64,
    credit: u64,
}

#[derive(Debug, Default)]
struct Ring {
    /// Waiting connections; it is the turn of the first.
    waiting: VecDeque<Turn>,
    /// When the first one began its turn or last used it.
    since_us: u64,
}

impl Ring {
    fn begin(&mut self, now_us: u64) -> Option<u64> {
        self.since_us = now_us;
        let first = self.waiting.front_mut()?;
        first.credit += QUANTUM;
        Some(first.connection)
    }

    fn next(&mut self, now_us: u64) -> Option<u64> {
        self.waiting.rotate_left(1);
        self.begin(now_us)
    }

    fn join(&mut self, connection: u64, now_us: u64) {
        if self.waiting.iter().all(|turn| turn.connection != connection) {
            self.waiting.push_back(Turn { connection, credit: 0 });
            if self.waiting.len() == 1 {
                self.begin(now_us);
            }
        }
    }
}

/// The answer to a request to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Yes: no other connection waits. This one is not added to those that wait.
    Alone,
    /// Yes: it is the connection's turn. It takes part until [`Turns::leave`].
    Turn,
    /// No. It takes part until [`Turns::leave`].
    Wait,
}

/// The connections that take turns. Calls return the connection whose turn has begun, if any, which is to be woken.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Ring>);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks whether a connection may send `bytes` now.
    pub fn ask(&self, connection: u64, bytes: u64, now_us: u64) -> (Answer, Option<u64>) {
        let mut ring = self.lock();
        let is_alone = ring.waiting.iter().all(|turn| turn.connection == connection);
        if is_alone {
            return (Answer::Alone, None);
        }
        ring.join(connection, now_us);
        let mut woken = None;
        if ring.waiting[0].connection != connection && now_us.saturating_sub(ring.since_us) > TURN_US {
            woken = ring.next(now_us);
        }
        if ring.waiting[0].connection != connection {
            return (Answer::Wait, woken);
        }
        ring.since_us = now_us;
        if ring.waiting[0].credit >= bytes { (Answer::Turn, None) } else { (Answer::Wait, ring.next(now_us)) }
    }

    /// Records that a connection has sent `bytes`.
    pub fn sent(&self, connection: u64, bytes: u64) {
        let mut ring = self.lock();
        if let Some(first) = ring.waiting.front_mut().filter(|first| first.connection == connection) {
            first.credit = first.credit.saturating_sub(bytes);
        }
    }

    /// Adds a connection for which workers had no room.
    pub fn wait(&self, connection: u64, now_us: u64) {
        self.lock().join(connection, now_us);
    }

    /// Removes a connection that has nothing to send, or that has exhausted its own memory share.
    pub fn leave(&self, connection: u64, now_us: u64) -> Option<u64> {
        let mut ring = self.lock();
        let at = ring.waiting.iter().position(|turn| turn.connection == connection)?;
        ring.waiting.remove(at);
        if at == 0 { ring.begin(now_us) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sends_a_quantum_in_its_turn() {
        let turns = Turns::default();
        assert_eq!(turns.ask(1, QUANTUM, 0), (Answer::Alone, None), "nobody waits");
        turns.wait(1, 0);
        assert_eq!(turns.ask(1, QUANTUM, 0), (Answer::Alone, None));
        assert_eq!(turns.ask(2, 100, 0), (Answer::Wait, None));
        let sends = |connection| {
            let sent = (0..1000).take_while(|_| {
                let may = turns.ask(connection, 1000, 0).0 != Answer::Wait;
                if may {
                    turns.sent(connection, 1000);
                }
                may
            });
            sent.count()
        };
        let quantum = QUANTUM as usize / 1000;
        assert_eq!([1, 1, 2, 2, 1].map(sends), [quantum, 0, quantum, 0, quantum]);
        // What was left of a quantum is kept: 384, 768, 1,152 bytes.
        assert_eq!([2, 1, 2].map(sends), [quantum, quantum + 1, quantum + 1]);
    }

    #[test]
    fn a_packet_longer_than_a_quantum_goes_after_several_turns() {
        let turns = Turns::default();
        turns.wait(1, 0);
        turns.wait(2, 0);
        let rounds = (1..).find(|_| {
            if turns.ask(2, QUANTUM, 0).0 == Answer::Turn {
                turns.sent(2, QUANTUM);
            }
            turns.ask(1, 3 * QUANTUM, 0).0 == Answer::Turn
        });
        assert!(rounds.is_some_and(|rounds| rounds <= 6), "{rounds:?}");
    }

    #[test]
    fn who_does_not_come_or_leaves_makes_place_for_the_next() {
        let turns = Turns::default();
        (1..4).for_each(|connection| turns.wait(connection, 0));
        assert_eq!(turns.ask(2, 1, TURN_US).0, Answer::Wait);
        assert_eq!(turns.ask(2, 1, TURN_US + 1).0, Answer::Turn, "1 does not come");
        assert_eq!(turns.leave(2, 0), Some(3));
        assert_eq!(turns.leave(1, 0), None);
        assert_eq!(turns.leave(3, 0), None);
        assert_eq!(turns.ask(4, 1, 0).0, Answer::Alone);
    }
}

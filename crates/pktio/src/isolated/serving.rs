//! The loop that serves a queue on behalf of a worker: what the peer sends goes to an [`Exchange`], and what the worker
//! sends comes from it.
//!
//! While packets pass, the loop polls, and yields the processor in empty rounds; otherwise it sleeps until the peer or the
//! worker wakes it. Packets that the peer does not take within [`PATIENCE`] are dropped, as a worker drops what a device
//! does not take; so no stale packet reaches a peer that connects later.
//!
//! Threads: the queue's own, in the switch (`thread`) or in the process of a port (`pktio-process`). Tests: those of both.

use crate::clock::{ticks, ticks_per_second};
use crate::device::Queue;
use crate::packet::{Packet, free_bulk};
use crate::wait::{Wake, wait};
use abi::BATCH_MAX;
use heartbeat::Heartbeat;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::yield_now;
use std::time::Duration;

/// How long packets are offered to a peer that does not take them.
const PATIENCE: Duration = Duration::from_millis(1);
/// Empty rounds before the loop sleeps.
const SPIN_ROUNDS: u32 = 64;
/// The first and the longest sleep while the loop has to poll.
const POLL_MIN: Duration = Duration::from_micros(20);
const POLL_MAX: Duration = Duration::from_micros(500);
/// The longest sleep if events wake the loop.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// What lies between a queue and the worker that uses it. All methods are of the serving thread.
pub trait Exchange {
    /// How many packets from the peer may be received now; an estimate.
    fn room(&mut self) -> usize;

    /// Passes packets from the peer on, from the front; those that do not fit stay. Wakes the worker.
    fn deliver(&mut self, packets: &mut Vec<Packet>);

    /// Takes at most `max` packets for the peer.
    fn collect(&mut self, into: &mut Vec<Packet>, max: usize);

    /// All collected packets have been taken by the peer, but for `dropped`, which it has not taken in time.
    fn finished(&mut self, dropped: usize);

    /// Announces that the thread will sleep. Returns whether there is nothing to collect; what the worker sends from
    /// then on makes [`Exchange::file`] readable.
    fn arm(&mut self) -> bool;

    /// Ends [`Exchange::arm`].
    fn disarm(&mut self);

    /// The file that announces packets of the worker, or [`Exchange::stops`].
    fn file(&self) -> Arc<OwnedFd>;

    /// Whether the loop is to end.
    fn stops(&self) -> bool;
}

/// Serves a queue until [`Exchange::stops`].
pub fn serve(queue: Box<dyn Queue>, exchange: &mut impl Exchange, heart: &Heartbeat) {
    Serving { queue, exchange, burst: Vec::new(), leaving: Vec::new(), since: None }.run(heart);
}

struct Serving<'a, E> {
    queue: Box<dyn Queue>,
    exchange: &'a mut E,
    /// Packets from the peer that are being passed on.
    burst: Vec<Packet>,
    /// Packets that are being offered to the peer.
    leaving: Vec<Packet>,
    /// Time in ticks at which the peer first left some of them.
    since: Option<u64>,
}

impl<E: Exchange> Serving<'_, E> {
    fn run(&mut self, heart: &Heartbeat) {
        // The worker may have left it armed.
        let entered = shared_memory::enter();
        self.queue.disarm();
        drop(entered);
        let mut empty_rounds = 0;
        let mut pause = POLL_MIN;
        while !self.exchange.stops() {
            heart.beat();
            // `|` and not `||`: both run in every round.
            if self.receive() | self.send() {
                (empty_rounds, pause) = (0, POLL_MIN);
                continue;
            }
            empty_rounds += 1;
            if empty_rounds < SPIN_ROUNDS {
                yield_now();
            } else {
                self.sleep(pause);
                pause = (2 * pause).min(POLL_MAX);
            }
        }
    }

    /// Receives a burst from the peer. Returns whether packets were passed on.
    fn receive(&mut self) -> bool {
        let room = if self.burst.is_empty() { self.exchange.room().min(BATCH_MAX) } else { 0 };
        // Called without room, too: `rx` also sends the notifications that the peer has asked for.
        let entered = shared_memory::enter();
        self.queue.rx(&mut self.burst, room);
        drop(entered);
        let count = self.burst.len();
        if count != 0 {
            self.exchange.deliver(&mut self.burst);
        }
        self.burst.len() < count
    }

    /// Offers a burst to the peer. Returns whether the peer took any packets.
    fn send(&mut self) -> bool {
        if self.leaving.is_empty() {
            self.exchange.collect(&mut self.leaving, BATCH_MAX);
        }
        if self.leaving.is_empty() {
            return false;
        }
        let entered = shared_memory::enter();
        let taken = self.queue.tx(&mut self.leaving);
        drop(entered);
        if self.leaving.is_empty() {
            self.since = None;
            self.exchange.finished(0);
            return true;
        }
        let now = ticks();
        let since = *self.since.get_or_insert(now);
        if now.wrapping_sub(since) as f64 > PATIENCE.as_secs_f64() * ticks_per_second() {
            let dropped = self.leaving.len();
            free_bulk(&mut self.leaving);
            self.since = None;
            self.exchange.finished(dropped);
        }
        taken != 0
    }

    /// Sleeps until there may be work; for `pause` if nothing would announce it.
    fn sleep(&mut self, pause: Duration) {
        if !self.burst.is_empty() || !self.leaving.is_empty() || self.exchange.room() == 0 {
            return std::thread::sleep(pause);
        }
        let mut files = vec![self.exchange.file()];
        let entered = shared_memory::enter();
        let wake = self.queue.arm(&mut files);
        drop(entered);
        let time = match wake {
            // Even so, the last `rx` returned nothing: perhaps there was no free buffer.
            Wake::Now => pause,
            Wake::Poll => pause,
            Wake::File | Wake::Never => SLEEP_MAX,
        };
        if self.exchange.arm() {
            wait(&files, time);
        }
        let entered = shared_memory::enter();
        self.queue.disarm();
        drop(entered);
        self.exchange.disarm();
    }
}

//! What a worker counts beside the program's own counters: packets, bursts, and the cycles that went into receiving,
//! into the program, into sending, and into waiting.
//!
//! The clock is the time stamp counter, read three times per burst: some two cycles per packet, so it is always on.
//! Polls that find nothing count as receiving in a round of all ports that had packets, and as idle in one that had none.
//! One writer, the worker; anyone reads.

use crate::engine::WORK_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cells of one worker, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WorkerCounters {
    packets: AtomicU64,
    bursts: AtomicU64,
    receive: AtomicU64,
    pipeline: AtomicU64,
    send: AtomicU64,
    idle: AtomicU64,
}

/// A worker's counters at some moment. Cycles are ticks of the time stamp counter, [`pktio::ticks_per_second`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerLoad {
    /// Packets received.
    pub packets: u64,
    /// Bursts that were not empty.
    pub bursts: u64,
    /// Cycles spent on receiving, in rounds in which there was something to receive.
    pub receive_cycles: u64,
    /// Cycles spent in the program: parsing, matching, acting, deparsing and replication.
    pub pipeline_cycles: u64,
    /// Cycles spent on sending, and on freeing what was dropped.
    pub send_cycles: u64,
    /// Cycles spent waiting for packets, awake or asleep.
    pub idle_cycles: u64,
}

impl WorkerLoad {
    /// All of them.
    pub fn total_cycles(&self) -> u64 {
        self.receive_cycles + self.pipeline_cycles + self.send_cycles + self.idle_cycles
    }
}

impl WorkerCounters {
    /// The counters now.
    pub fn read(&self) -> WorkerLoad {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        WorkerLoad {
            packets: get(&self.packets),
            bursts: get(&self.bursts),
            receive_cycles: get(&self.receive),
            pipeline_cycles: get(&self.pipeline),
            send_cycles: get(&self.send),
            idle_cycles: get(&self.idle),
        }
    }

    /// A burst came, went through the program and left.
    #[inline]
    pub(super) fn burst(&self, packets: usize, receive: u64, pipeline: u64, send: u64) {
        bump(&self.packets, packets as u64);
        bump(&self.bursts, 1);
        bump(&self.receive, receive);
        bump(&self.pipeline, pipeline);
        bump(&self.send, send);
    }

    /// Packets have gone on from queues.
    pub(super) fn served(&self, pipeline: u64, send: u64) {
        bump(&self.pipeline, pipeline);
        bump(&self.send, send);
    }

    /// A round after the last burst, or without any.
    #[inline]
    pub(super) fn idle(&self, cycles: u64) {
        bump(&self.idle, cycles);
    }
}

/// Seconds of a unit of work: `WORK_MAX` of them are a millisecond.
const UNIT_S: f64 = 1e-3 / WORK_MAX as f64;

/// Time as units of work. What a burst does besides copies and further passes is not paid before it is done, but each packet's part of
/// it is bounded (`ir::cost`); a port whose bursts take long gets smaller ones, as if they had cost so much work.
#[derive(Debug)]
pub(super) struct Pace {
    unit_ticks: u64,
}

impl Pace {
    pub(super) fn new(ticks_per_second: f64) -> Pace {
        Pace { unit_ticks: ((UNIT_S * ticks_per_second) as u64).max(1) }
    }

    /// The work that so many ticks are; 0 if they are few.
    #[inline]
    pub(super) fn work(&self, ticks: u64) -> u32 {
        if ticks < u64::from(WORK_MAX / 64) * self.unit_ticks {
            return 0;
        }
        (ticks / self.unit_ticks).min(WORK_MAX.into()) as u32
    }
}

fn bump(cell: &AtomicU64, by: u64) {
    // One writer: a plain add is enough.
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_millisecond_is_all_the_work_that_a_burst_may_cost() {
        let pace = Pace::new(2.5e9);
        let us = |us: u64| pace.work(us * 2500);
        assert_eq!(us(0), 0);
        assert_eq!(us(10), 0, "bursts of ordinary programs");
        assert!((800..1200).contains(&us(250)), "{}", us(250));
        assert_eq!([us(1100), us(1_000_000), pace.work(u64::MAX)], [WORK_MAX; 3]);
        assert!(Pace::new(0.0).work(1 << 20) > 0);
    }
}

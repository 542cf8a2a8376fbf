//! Random early detection: Floyd and Jacobson, "Random early detection gateways for congestion avoidance", IEEE/ACM
//! Transactions on Networking 1(4), 1993, with the gentle slope that Floyd added in 2000.
//!
//! At each arrival the average moves towards the queue's level by `weight`. After an idle time it decays as if packets
//! of `packet_time` had arrived at an empty queue. Between the thresholds `p_b` rises linearly from 0 to `probability`,
//! and the packet is dropped or marked with probability `p_b / (1 - count · p_b)`, where `count` is the number of
//! packets that passed since the last drop. The gap between drops is then uniform on 1 to 1/p_b (section 7, "method 2";
//! its pseudocode also counts the dropped packet, which would exclude the longest gap). So about `2 p_b` of the packets
//! are dropped, evenly spread. The probability does not depend on a packet's length (RFC 7141, section 2.3).
//!
//! Tests: `tests/red.rs`.

use crate::config::{Ecn, Red};
use crate::units::Level;

/// RED's decision about an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is enqueued.
    Pass,
    /// It is enqueued and marked.
    Mark,
    /// It is dropped.
    Drop,
}

/// A queue's level, in each unit.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub packets: usize,
    pub bytes: u64,
    /// Time that the head has waited, in nanoseconds.
    pub head_ns: u64,
}

/// The state of RED for one queue.
#[derive(Clone, Debug)]
pub struct State {
    config: Red,
    min: f64,
    max: f64,
    average: f64,
    /// Packets that passed since the last drop or mark, while the average was at least `min`.
    count: f64,
    /// Start of the idle time, if the queue is empty.
    idle_since: Option<u64>,
    random: u64,
}

fn number(level: Level) -> f64 {
    match level {
        Level::Packets(n) => f64::from(n),
        Level::Bytes(size) => size.0 as f64,
        Level::Time(span) => span.0 as f64,
    }
}

/// The probability `p_b` for this average.
pub fn probability(red: &Red, average: f64) -> f64 {
    let (min, max) = (number(red.min), number(red.max));
    if average < min {
        0.0
    } else if average < max {
        red.probability * (average - min) / (max - min)
    } else if red.gentle && average < 2.0 * max {
        red.probability + (1.0 - red.probability) * (average - max) / max
    } else {
        1.0
    }
}

impl State {
    pub fn new(config: &Red, seed: u64, now: u64) -> State {
        let (min, max) = (number(config.min), number(config.max));
        State { config: config.clone(), min, max, average: 0.0, count: 0.0, idle_since: Some(now), random: seed }
    }

    /// Takes over an earlier state: its random numbers, and its average if that has the same unit.
    pub fn inherit(&mut self, old: &State) {
        if std::mem::discriminant(&self.config.min) == std::mem::discriminant(&old.config.min) {
            self.average = old.average;
            self.count = old.count;
            self.idle_since = old.idle_since;
        }
        self.random = old.random;
    }

    pub fn average(&self) -> f64 {
        self.average
    }

    /// Starts an idle time: the last packet left, or an arrival was refused at an empty queue.
    pub fn emptied(&mut self, now: u64) {
        self.idle_since = Some(now);
    }

    /// Decides about a packet that arrives at a queue of this level.
    pub fn arrival(&mut self, fill: Fill, ecn_capable: bool, now: u64) -> Verdict {
        let level = match self.config.max {
            Level::Packets(_) => fill.packets as f64,
            Level::Bytes(_) => fill.bytes as f64,
            Level::Time(_) => fill.head_ns as f64,
        };
        let weight = self.config.weight;
        if let Some(since) = self.idle_since.take()
            && self.average > 0.0
        {
            let packets = now.saturating_sub(since) as f64 / self.config.packet_time.0 as f64;
            self.average *= (1.0 - weight).powf(packets);
            if self.average < 1e-9 * self.max {
                self.average = 0.0;
            }
        }
        self.average += weight * (level - self.average);
        if self.average < self.min {
            self.count = 0.0;
            return Verdict::Pass;
        }
        let base = probability(&self.config, self.average);
        let forced = base >= 1.0;
        if !forced {
            let rest = 1.0 - self.count * base;
            if rest > 0.0 && self.unit() >= base / rest {
                self.count += 1.0;
                return Verdict::Pass;
            }
        }
        self.count = 0.0;
        match self.config.ecn {
            Ecn::Mark if ecn_capable && !forced => Verdict::Mark,
            Ecn::MarkAlways if ecn_capable => Verdict::Mark,
            _ => Verdict::Drop,
        }
    }

    /// Records that the queue's limit dropped the packet.
    pub fn forced(&mut self) {
        self.count = 0.0;
    }

    /// A random number in [0, 1): SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    fn unit(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

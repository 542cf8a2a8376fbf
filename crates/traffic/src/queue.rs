//! One queue: packets in the order of their arrival, its limit and its drop policy.

use std::collections::VecDeque;

use crate::config::{Policy, Queue as QueueConfig};
use crate::red::{self, Verdict};
use crate::statistics::{QueueStatistics, Reason};

/// Packets for which a new queue has room without allocating.
const ROOM: usize = 64;

/// A queue.
#[derive(Debug)]
pub struct Queue<T> {
    entries: VecDeque<Entry<T>>,
    packets_max: usize,
    bytes_max: u64,
    time_max: u64,
    red: Option<red::State>,
    pub statistics: QueueStatistics,
}

/// A packet that waits.
#[derive(Debug)]
pub struct Entry<T> {
    pub item: T,
    pub bytes: u32,
    pub packets_before: u32,
    pub enqueued_at: u64,
    pub class: u8,
    pub mark: bool,
}

impl<T> Queue<T> {
    pub fn new(config: &QueueConfig, number: u8, now: u64) -> Queue<T> {
        let mut queue = Queue {
            entries: VecDeque::with_capacity(ROOM),
            packets_max: 0,
            bytes_max: 0,
            time_max: 0,
            red: None,
            statistics: QueueStatistics::default(),
        };
        queue.configure(config, number, now);
        queue
    }

    /// Another limit and policy for the same packets.
    pub fn configure(&mut self, config: &QueueConfig, number: u8, now: u64) {
        self.packets_max = config.limit.packets_max() as usize;
        self.bytes_max = config.limit.bytes.map_or(u64::MAX, |bytes| bytes.0);
        self.time_max = config.limit.time.map_or(u64::MAX, |time| time.0);
        let red = match &config.policy {
            Policy::TailDrop => None,
            Policy::Red(config) => {
                let mut state = red::State::new(config, u64::from(number), now);
                if let Some(old) = &self.red {
                    state.inherit(old);
                }
                Some(state)
            }
        };
        self.red = red;
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn bytes(&self) -> u64 {
        self.statistics.depth.bytes
    }

    /// RED's average.
    pub fn red_average(&self) -> Option<f64> {
        self.red.as_ref().map(red::State::average)
    }

    /// The first packet's bytes.
    pub fn head_bytes(&self) -> Option<u32> {
        self.entries.front().map(|entry| entry.bytes)
    }

    fn head_waited(&self, now: u64) -> u64 {
        self.entries.front().map_or(0, |head| now.saturating_sub(head.enqueued_at))
    }

    /// Whether a packet would stay within the limit.
    pub fn has_room(&self, bytes: u32, now: u64) -> Result<(), Reason> {
        if self.entries.len() >= self.packets_max || self.statistics.depth.bytes + u64::from(bytes) > self.bytes_max {
            Err(Reason::TailDrop)
        } else if self.head_waited(now) >= self.time_max {
            Err(Reason::Time)
        } else {
            Ok(())
        }
    }

    /// Whether a packet may come in: with or without a mark, or why not. Counts nothing.
    pub fn admit(&mut self, bytes: u32, ecn_capable: bool, now: u64) -> Result<bool, Reason> {
        let head_ns = self.head_waited(now);
        let verdict = match &mut self.red {
            None => Verdict::Pass,
            Some(red) => {
                let fill = red::Fill { packets: self.entries.len(), bytes: self.statistics.depth.bytes, head_ns };
                red.arrival(fill, ecn_capable, now)
            }
        };
        if let Err(reason) = self.has_room(bytes, now) {
            if let Some(red) = &mut self.red {
                red.forced();
            }
            return Err(reason);
        }
        match verdict {
            Verdict::Pass => Ok(false),
            Verdict::Mark => Ok(true),
            Verdict::Drop => Err(Reason::Red),
        }
    }

    /// Counts a refused packet.
    pub fn refused(&mut self, bytes: u32, reason: Reason, now: u64) {
        self.statistics.dropped.of_mut(reason).add(bytes);
        if self.entries.is_empty()
            && let Some(red) = &mut self.red
        {
            red.emptied(now);
        }
    }

    /// Appends a packet that was admitted.
    pub fn push(&mut self, mut entry: Entry<T>) {
        entry.packets_before = self.entries.len() as u32;
        let statistics = &mut self.statistics;
        statistics.accepted.add(entry.bytes);
        if entry.mark {
            statistics.marked.add(entry.bytes);
        }
        statistics.depth.add(entry.bytes);
        statistics.highest.packets = statistics.highest.packets.max(statistics.depth.packets);
        statistics.highest.bytes = statistics.highest.bytes.max(statistics.depth.bytes);
        self.entries.push_back(entry);
    }

    /// The first packet, to be sent.
    pub fn pop(&mut self, now: u64) -> Option<Entry<T>> {
        let entry = self.remove(now)?;
        self.statistics.sent.add(entry.bytes);
        self.statistics.waited.record(now.saturating_sub(entry.enqueued_at));
        Some(entry)
    }

    /// The first packet, not to be sent from here.
    pub fn discard(&mut self, now: u64) -> Option<Entry<T>> {
        let entry = self.remove(now)?;
        self.statistics.removed.add(entry.bytes);
        Some(entry)
    }

    fn remove(&mut self, now: u64) -> Option<Entry<T>> {
        let entry = self.entries.pop_front()?;
        self.statistics.depth.packets -= 1;
        self.statistics.depth.bytes -= u64::from(entry.bytes);
        if self.entries.is_empty()
            && let Some(red) = &mut self.red
        {
            red.emptied(now);
        }
        Some(entry)
    }
}

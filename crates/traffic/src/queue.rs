//! One FIFO queue with its limit and its drop policy.

use std::collections::VecDeque;

use crate::buffer::Tenant;
use crate::config::{Policy, Queue as QueueConfig};
use crate::red::{self, Verdict};
use crate::statistics::{QueueStatistics, Reason};

/// Packets that a new queue can hold without allocating.
const ROOM: usize = 64;

/// A queue.
#[derive(Debug)]
pub struct Queue<T> {
    entries: VecDeque<Entry<T>>,
    packets_max: usize,
    bytes_max: u64,
    time_max: u64,
    red: Option<red::State>,
    /// The tenant of the shared buffer that is charged for the bytes.
    tenant: Option<Tenant>,
    pub statistics: QueueStatistics,
}

/// A waiting packet.
#[derive(Debug)]
pub struct Entry<T> {
    pub item: T,
    pub bytes: u32,
    pub packets_before: u32,
    pub enqueued_at: u64,
    pub class: u8,
    pub mark: bool,
}

/// Whether both are the same tenant, or none.
pub fn is_same(one: Option<&Tenant>, other: Option<&Tenant>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl<T> Queue<T> {
    pub fn new(config: &QueueConfig, number: u8, tenant: Option<Tenant>, now: u64) -> Queue<T> {
        let mut queue = Queue {
            entries: VecDeque::with_capacity(ROOM),
            packets_max: 0,
            bytes_max: 0,
            time_max: 0,
            red: None,
            tenant,
            statistics: QueueStatistics::default(),
        };
        queue.configure(config, number, now);
        queue
    }

    /// Changes the limit and the policy; packets are kept.
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

    /// The tenant.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    /// Assigns the queue to another tenant, which is charged for the waiting packets, even beyond its limit.
    pub fn set_tenant(&mut self, tenant: Option<Tenant>) {
        if is_same(self.tenant(), tenant.as_ref()) {
            return;
        }
        let old = std::mem::replace(&mut self.tenant, tenant);
        for entry in &self.entries {
            if let Some(new) = &self.tenant {
                new.charge(entry.bytes);
            }
            if let Some(old) = &old {
                old.release(entry.bytes);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn bytes(&self) -> u64 {
        self.statistics.depth.bytes
    }

    /// RED's moving average, in the unit of its thresholds.
    pub fn red_average(&self) -> Option<f64> {
        self.red.as_ref().map(red::State::average)
    }

    /// Length in bytes of the first packet.
    pub fn head_bytes(&self) -> Option<u32> {
        self.entries.front().map(|entry| entry.bytes)
    }

    fn head_waited(&self, now: u64) -> u64 {
        self.entries.front().map_or(0, |head| now.saturating_sub(head.enqueued_at))
    }

    /// Checks whether a packet stays within the queue's limit.
    ///
    /// # Errors
    /// The limit that it would exceed.
    pub fn has_room(&self, bytes: u32, now: u64) -> Result<(), Reason> {
        if self.entries.len() >= self.packets_max || self.statistics.depth.bytes + u64::from(bytes) > self.bytes_max {
            Err(Reason::TailDrop)
        } else if self.head_waited(now) >= self.time_max {
            Err(Reason::Time)
        } else {
            Ok(())
        }
    }

    /// Admits a packet, which the caller must then push. Returns whether it must be marked.
    ///
    /// # Errors
    /// Why it is refused.
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
        let mark = match verdict {
            Verdict::Pass => false,
            Verdict::Mark => true,
            Verdict::Drop => return Err(Reason::Red),
        };
        self.tenant.as_ref().map_or(Ok(mark), |tenant| tenant.admit(bytes).map(|()| mark))
    }

    /// Admits a packet that waited in another queue, charged to tenant `from`. RED is not applied.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take_over(&self, bytes: u32, from: Option<&Tenant>, now: u64) -> Result<(), Reason> {
        self.has_room(bytes, now)?;
        match &self.tenant {
            Some(tenant) if !is_same(from, Some(tenant)) => tenant.admit(bytes),
            _ => Ok(()),
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

    /// Removes the first packet, to be sent.
    pub fn pop(&mut self, now: u64) -> Option<Entry<T>> {
        let entry = self.remove(now)?;
        self.release(entry.bytes);
        self.statistics.sent.add(entry.bytes);
        self.statistics.waited.record(now.saturating_sub(entry.enqueued_at));
        Some(entry)
    }

    /// Releases a packet's bytes to the tenant.
    pub fn release(&self, bytes: u32) {
        if let Some(tenant) = &self.tenant {
            tenant.release(bytes);
        }
    }

    /// Removes the first packet without sending it. Its bytes stay charged to the tenant until they are released.
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

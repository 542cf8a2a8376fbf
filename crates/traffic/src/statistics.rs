//! Counters of queues.
//!
//! For each queue, offered = `accepted` + `dropped` and `accepted` = `sent` + `removed` + `depth`.

use crate::histogram::Histogram;

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    /// Counts one packet.
    pub fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// Why a packet was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The queue has reached its limit of packets or bytes.
    TailDrop,
    /// The head of the queue has waited too long.
    Time,
    /// Random early detection.
    Red,
    /// The shared buffer has no room for the tenant.
    Buffer,
    /// The tenant has reached its limit.
    Tenant,
}

/// Refused packets by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// The queue's limit of packets or bytes.
    pub tail: Count,
    /// The queue's limit of time.
    pub time: Count,
    /// Random early detection.
    pub red: Count,
    /// The shared buffer.
    pub buffer: Count,
    /// The tenant's limit.
    pub tenant: Count,
}

impl Dropped {
    /// Refused packets of this reason.
    pub fn of(&self, reason: Reason) -> Count {
        match reason {
            Reason::TailDrop => self.tail,
            Reason::Time => self.time,
            Reason::Red => self.red,
            Reason::Buffer => self.buffer,
            Reason::Tenant => self.tenant,
        }
    }

    /// The counter of this reason, for changing it.
    pub fn of_mut(&mut self, reason: Reason) -> &mut Count {
        match reason {
            Reason::TailDrop => &mut self.tail,
            Reason::Time => &mut self.time,
            Reason::Red => &mut self.red,
            Reason::Buffer => &mut self.buffer,
            Reason::Tenant => &mut self.tenant,
        }
    }

    /// All refused packets.
    pub fn total(&self) -> Count {
        let all = [self.tail, self.time, self.red, self.buffer, self.tenant];
        Count { packets: all.iter().map(|c| c.packets).sum(), bytes: all.iter().map(|c| c.bytes).sum() }
    }
}

/// Counters of one queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueStatistics {
    /// Packets that were admitted.
    pub accepted: Count,
    /// Packets that were dequeued to be sent.
    pub sent: Count,
    /// Packets that were refused, by reason.
    pub dropped: Dropped,
    /// Packets that left without being sent from here: drained, or moved to another queue.
    pub removed: Count,
    /// Packets that were admitted with an ECN mark.
    pub marked: Count,
    /// Packets and bytes that wait now.
    pub depth: Count,
    /// The highest number of waiting packets so far, and of waiting bytes.
    pub highest: Count,
    /// Waiting times of sent packets.
    pub waited: Histogram,
}

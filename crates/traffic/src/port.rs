//! The queues of one port.
//!
//! Used by one thread at a time (`&mut`); ports share only a [`crate::Buffer`]. `now` is in nanoseconds of any clock
//! and may jump (`clock.rs`). [`PortQueues::offer`] and [`PortQueues::take`] cost a few operations per level of the
//! tree, and allocate only while a queue grows beyond its longest so far.
//!
//! Tests: `tests/port.rs`, `tests/model.rs`.

use crate::buffer::Tenant;
use crate::check::Problem;
use crate::clock::Clock;
use crate::config::{CLASSES, Config};
use crate::queue::{Entry, Queue, is_same};
use crate::statistics::{QueueStatistics, Reason};
use crate::tree::Tree;

/// The queues of one port, holding items of type `T`.
#[derive(Debug)]
pub struct PortQueues<T> {
    config: Config,
    classes: [u8; CLASSES],
    queues: Vec<Queue<T>>,
    tree: Tree,
    clock: Clock,
    packets: usize,
    bytes: u64,
}

/// The result of a packet that was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offered {
    /// Its queue.
    pub queue: u8,
    /// Packets ahead of it in the queue.
    pub packets_before: u32,
    /// Bytes ahead of it in the queue.
    pub bytes_before: u64,
    /// Whether it will be marked (ECN).
    pub mark: bool,
}

/// The result of a packet that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused<T> {
    /// The packet.
    pub item: T,
    /// The queue that it was for.
    pub queue: u8,
    /// Why it was refused.
    pub reason: Reason,
}

/// A packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken<T> {
    /// The packet.
    pub item: T,
    /// Its length in bytes, as offered.
    pub bytes: u32,
    /// Its class, as offered.
    pub class: u8,
    /// The queue that it was in.
    pub queue: u8,
    /// Time that it waited, in nanoseconds.
    pub waited_ns: u64,
    /// Time of its arrival, on the clock of `take`: `now - waited_ns`.
    pub enqueued_at: u64,
    /// Packets that were ahead of it in the queue at its arrival.
    pub packets_at_enqueue: u32,
    /// Packets that remain in the queue.
    pub packets_behind: u32,
    /// Bytes that remain in the queue.
    pub bytes_behind: u64,
    /// Whether it must be marked (ECN).
    pub mark: bool,
}

impl<T> PortQueues<T> {
    /// Creates empty queues.
    ///
    /// # Errors
    /// The configuration is inconsistent: see [`Config::check`].
    pub fn new(config: &Config) -> Result<PortQueues<T>, Vec<Problem>> {
        PortQueues::of_tenants(config, |_| None)
    }

    /// Creates empty queues that all belong to one tenant of a shared buffer.
    ///
    /// # Errors
    /// As [`PortQueues::new`].
    pub fn with_tenant(config: &Config, tenant: Tenant) -> Result<PortQueues<T>, Vec<Problem>> {
        PortQueues::of_tenants(config, |_| Some(tenant.clone()))
    }

    /// Creates empty queues, each of which belongs to the tenant of its number.
    ///
    /// # Errors
    /// As [`PortQueues::new`].
    pub fn with_tenants(config: &Config, tenants: &[Tenant]) -> Result<PortQueues<T>, Vec<Problem>> {
        PortQueues::of_tenants(config, |queue| tenants.get(queue).cloned())
    }

    fn of_tenants(config: &Config, tenant: impl Fn(usize) -> Option<Tenant>) -> Result<PortQueues<T>, Vec<Problem>> {
        config.check(None)?;
        let queue = |(number, queue)| Queue::new(queue, number as u8, tenant(number), 0);
        Ok(PortQueues {
            classes: config.class_map(),
            queues: config.queues.iter().enumerate().map(queue).collect(),
            tree: Tree::new(config, 0),
            clock: Clock::default(),
            packets: 0,
            bytes: 0,
            config: config.clone(),
        })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The queue of a class. Classes above 63 are treated as 63.
    pub fn queue_of(&self, class: u8) -> u8 {
        self.classes[usize::from(class).min(CLASSES - 1)]
    }

    /// Number of waiting packets.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Number of waiting bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waiting packets and bytes of a queue; zero if there is no such queue.
    pub fn depth(&self, queue: u8) -> (usize, u64) {
        self.queues.get(usize::from(queue)).map_or((0, 0), |queue| (queue.len(), queue.bytes()))
    }

    /// Enqueues a packet in the queue of its class.
    ///
    /// # Errors
    /// The packet itself, with the reason for which it was refused.
    pub fn offer(
        &mut self,
        item: T,
        bytes: u32,
        class: u8,
        ecn_capable: bool,
        now: u64,
    ) -> Result<Offered, Refused<T>> {
        let now = self.clock.advance(now);
        let number = self.queue_of(class);
        let queue = &mut self.queues[usize::from(number)];
        match queue.admit(bytes, ecn_capable, now) {
            Err(reason) => {
                queue.refused(bytes, reason, now);
                Err(Refused { item, queue: number, reason })
            }
            Ok(mark) => {
                let (packets_before, bytes_before) = (queue.len() as u32, queue.bytes());
                queue.push(Entry { item, bytes, packets_before, enqueued_at: now, class, mark });
                self.packets += 1;
                self.bytes += u64::from(bytes);
                if packets_before == 0 {
                    self.tree.filled(number);
                }
                Ok(Offered { queue: number, packets_before, bytes_before, mark })
            }
        }
    }

    /// Dequeues the packet to be sent now; `None` if none may be sent.
    pub fn take(&mut self, now: u64) -> Option<Taken<T>> {
        let reading = now;
        let now = self.clock.advance(now);
        let number = self.choose(now)?;
        let queue = &mut self.queues[usize::from(number)];
        let entry = queue.pop(now)?;
        self.tree.sent(now, u64::from(entry.bytes) + u64::from(self.config.overhead));
        let (packets_behind, bytes_behind) = (queue.len() as u32, queue.bytes());
        if packets_behind == 0 {
            self.tree.emptied(number);
        }
        self.left(entry.bytes);
        let waited_ns = now.saturating_sub(entry.enqueued_at);
        Some(Taken {
            item: entry.item,
            bytes: entry.bytes,
            class: entry.class,
            queue: number,
            waited_ns,
            enqueued_at: reading.saturating_sub(waited_ns),
            packets_at_enqueue: entry.packets_before,
            packets_behind,
            bytes_behind,
            mark: entry.mark,
        })
    }

    /// A lower bound for the time at which a packet may be sent: `now` if one may at once, `None` if none waits. The
    /// bound may be too early when the packet to be sent then is of another queue or size; `take` then returns `None`,
    /// and `next_at` a later time.
    pub fn next_at(&mut self, now: u64) -> Option<u64> {
        if self.packets == 0 {
            return None;
        }
        let reading = now;
        let now = self.clock.advance(now);
        if self.choose(now).is_some() {
            return Some(reading);
        }
        self.tree.next_at().map(|time| self.clock.reading_at(time))
    }

    fn choose(&mut self, now: u64) -> Option<u8> {
        let PortQueues { tree, queues, config, .. } = self;
        let bytes = |queue: u8| u64::from(queues[usize::from(queue)].head_bytes().unwrap_or(0));
        tree.choose(now, |queue| bytes(queue) + u64::from(config.overhead))
    }

    /// Subtracts a packet that has left.
    fn left(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }

    /// Changes the configuration. Packets and counters of queues that still exist are kept, even beyond a lower
    /// limit. Packets of removed queues move to the new queue of their class, in order of arrival; those that find
    /// no room are returned. Shapers keep their tokens if the new tree has a shaper at the same position. New
    /// queues belong to the first queue's tenant.
    ///
    /// # Errors
    /// The configuration is inconsistent; nothing is changed.
    pub fn reconfigure(&mut self, config: &Config, now: u64) -> Result<Vec<T>, Vec<Problem>> {
        let tenants: Vec<Option<Tenant>> = self.queues.iter().map(|queue| queue.tenant().cloned()).collect();
        self.change(config, |queue| tenants.get(queue).or(tenants.first()).cloned().flatten(), now)
    }

    /// Like [`PortQueues::reconfigure`], and assigns each queue to its tenant. Waiting packets of a queue that changes
    /// its tenant are charged to the new one, even beyond its limit.
    ///
    /// # Errors
    /// As [`PortQueues::reconfigure`].
    pub fn reconfigure_with(&mut self, config: &Config, tenants: &[Tenant], now: u64) -> Result<Vec<T>, Vec<Problem>> {
        self.change(config, |queue| tenants.get(queue).cloned(), now)
    }

    fn change(
        &mut self,
        config: &Config,
        tenant: impl Fn(usize) -> Option<Tenant>,
        now: u64,
    ) -> Result<Vec<T>, Vec<Problem>> {
        config.check(None)?;
        let now = self.clock.advance(now);
        let kept = config.queues.len().min(self.queues.len());
        let mut homeless = Vec::new();
        for queue in &mut self.queues[kept..] {
            let tenant = queue.tenant().cloned();
            homeless.extend(std::iter::from_fn(|| Some((queue.discard(now)?, tenant.clone()))));
        }
        // A stable sort: packets of one queue that arrived at the same time stay in order.
        homeless.sort_by_key(|(entry, _)| entry.enqueued_at);
        self.queues.truncate(kept);
        for (place, queue) in config.queues.iter().enumerate() {
            match self.queues.get_mut(place) {
                Some(old) => {
                    old.configure(queue, place as u8, now);
                    old.set_tenant(tenant(place));
                }
                None => self.queues.push(Queue::new(queue, place as u8, tenant(place), now)),
            }
        }
        let mut tree = Tree::new(config, now);
        tree.inherit(&self.tree);
        self.tree = tree;
        self.classes = config.class_map();
        self.config = config.clone();
        let mut refused = Vec::new();
        for (entry, old) in homeless {
            let number = self.queue_of(entry.class);
            let queue = &mut self.queues[usize::from(number)];
            // A packet that was admitted once is not dropped by RED, but marked packets stay marked.
            let taken_over = queue.take_over(entry.bytes, old.as_ref(), now);
            if let Some(old) = old.filter(|old| taken_over.is_err() || !is_same(Some(old), queue.tenant())) {
                old.release(entry.bytes);
            }
            match taken_over {
                Ok(()) => queue.push(entry),
                Err(reason) => {
                    queue.refused(entry.bytes, reason, now);
                    self.left(entry.bytes);
                    refused.push(entry.item);
                }
            }
        }
        for number in 0..self.queues.len() as u8 {
            if self.queues[usize::from(number)].len() > 0 {
                self.tree.filled(number);
            }
        }
        Ok(refused)
    }

    /// Removes all packets, queue by queue, regardless of shapers.
    pub fn drain(&mut self, now: u64) -> Vec<T> {
        let now = self.clock.advance(now);
        let mut items = Vec::with_capacity(self.packets);
        for number in 0..self.queues.len() as u8 {
            while let Some(entry) = self.queues[usize::from(number)].discard(now) {
                self.queues[usize::from(number)].release(entry.bytes);
                self.left(entry.bytes);
                items.push(entry.item);
            }
            self.tree.emptied(number);
        }
        items
    }

    /// Counters of all queues.
    pub fn statistics(&self) -> Vec<QueueStatistics> {
        self.queues.iter().map(|queue| queue.statistics.clone()).collect()
    }

    /// Counters of one queue.
    pub fn queue_statistics(&self, queue: u8) -> Option<&QueueStatistics> {
        self.queues.get(usize::from(queue)).map(|queue| &queue.statistics)
    }

    /// RED's moving average of a queue, in the unit of its thresholds.
    pub fn red_average(&self, queue: u8) -> Option<f64> {
        self.queues.get(usize::from(queue))?.red_average()
    }

    /// The tenant of the shared buffer that a queue belongs to.
    pub fn tenant(&self, queue: u8) -> Option<&Tenant> {
        self.queues.get(usize::from(queue))?.tenant()
    }
}

impl<T> Drop for PortQueues<T> {
    fn drop(&mut self) {
        if self.queues.iter().any(|queue| queue.tenant().is_some()) {
            self.drain(0);
        }
    }
}

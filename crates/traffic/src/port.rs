//! The queues of one port.
//!
//! One thread at a time (`&mut`); a shared [`crate::Buffer`] is the only thing that several ports touch. `now` is in nanoseconds of
//! any clock and may jump (`clock.rs`). [`PortQueues::offer`] and [`PortQueues::take`] cost a few operations for each level of the
//! tree and allocate only while a queue grows beyond its longest so far.
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

/// A packet that waits now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offered {
    /// Its queue.
    pub queue: u8,
    /// Packets of the queue before it.
    pub packets_before: u32,
    /// Bytes of the queue before it.
    pub bytes_before: u64,
    /// It is to be marked (ECN).
    pub mark: bool,
}

/// A packet that is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused<T> {
    /// The packet.
    pub item: T,
    /// The queue that it was for.
    pub queue: u8,
    /// Why.
    pub reason: Reason,
}

/// A packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken<T> {
    /// The packet.
    pub item: T,
    /// Its bytes as they were offered.
    pub bytes: u32,
    /// Its class as it was offered.
    pub class: u8,
    /// The queue that it was in.
    pub queue: u8,
    /// How long it waited.
    pub waited_ns: u64,
    /// When it came, on the clock of `take`: `now - waited_ns`.
    pub enqueued_at: u64,
    /// Packets of the queue before it when it came.
    pub packets_at_enqueue: u32,
    /// Packets of the queue that still wait.
    pub packets_behind: u32,
    /// Bytes of the queue that still wait.
    pub bytes_behind: u64,
    /// It is to be marked (ECN).
    pub mark: bool,
}

impl<T> PortQueues<T> {
    /// Empty queues.
    pub fn new(config: &Config) -> Result<PortQueues<T>, Vec<Problem>> {
        PortQueues::of_tenants(config, |_| None)
    }

    /// Empty queues whose bytes count against a shared buffer, as one tenant's.
    pub fn with_tenant(config: &Config, tenant: Tenant) -> Result<PortQueues<T>, Vec<Problem>> {
        PortQueues::of_tenants(config, |_| Some(tenant.clone()))
    }

    /// Empty queues, each of a tenant of a shared buffer.
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

    /// The queue of a class. Classes above 63 are as urgent as 63.
    pub fn queue_of(&self, class: u8) -> u8 {
        self.classes[usize::from(class).min(CLASSES - 1)]
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets and bytes that wait in a queue; nothing for a queue that does not exist.
    pub fn depth(&self, queue: u8) -> (usize, u64) {
        self.queues.get(usize::from(queue)).map_or((0, 0), |queue| (queue.len(), queue.bytes()))
    }

    /// Lets a packet wait in the queue of its class, or hands it back.
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

    /// The packet that is to be sent now, if any may.
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

    /// When a packet may be sent: `now` if one may at once, nothing if none waits. Never later than one may; where a packet of
    /// another queue or size has to be looked at first, it may be earlier, and `take` then gives nothing and a new time follows.
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

    /// A packet is not here any more.
    fn left(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }

    /// Changes the configuration. Packets and counters of queues that still exist stay, even beyond a lower limit. Packets of
    /// other queues go to the new queue of their class, in the order of their arrival; those that find no room are returned.
    /// Shapers at the same place of the tree keep their tokens. New queues belong to the first one's tenant. On a problem nothing
    /// changes.
    pub fn reconfigure(&mut self, config: &Config, now: u64) -> Result<Vec<T>, Vec<Problem>> {
        let tenants: Vec<Option<Tenant>> = self.queues.iter().map(|queue| queue.tenant().cloned()).collect();
        self.change(config, |queue| tenants.get(queue).or(tenants.first()).cloned().flatten(), now)
    }

    /// The same, and each queue belongs to its tenant from now on. Packets that wait in a queue that goes over to another tenant are
    /// that one's, even beyond its limit.
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
        // Stable: packets of one queue and one moment stay in order.
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
            // A packet that was let in once is not dropped early, but marked packets stay marked.
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

    /// Takes everything out, queue by queue, regardless of shapers.
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

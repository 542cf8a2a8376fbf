//! The egress queues of a port.
//!
//! All workers enqueue; one worker, the *server*, dequeues, so that a port has one order, one rate and one set of
//! weights however many workers there are. The crate `traffic` decides which packet is next.
//!
//! ```text
//!   program with queue metadata or classes     ingress ─▶ queue ─▶ egress, deparser ─▶ port
//!   any other program                          ingress, egress, deparser ─▶ queue ─▶ port
//! ```
//!
//! In the first case a packet waits with its record (`engine/queued.rs`), and egress runs when it is dequeued. In the
//! second it waits as a finished frame of class 0. A port without queues costs nothing; one with queues costs a lock
//! per burst that goes there.
//!
//! Any thread. Tests: `tests/queues.rs`.

use crate::drops::RuntimeDrop;
use crate::engine::Passage;
use crate::worker::Mailbox;
use abi::BATCH_MAX;
use pktio::Packet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use traffic::{
    Buffer, BufferConfig, CAPACITY_MAX, Config, Ecn, Policy, PortQueues, Problem, QueueStatistics, Reason, Refused,
    Size, Taken, Tenant,
};

/// A queued packet.
pub(crate) struct Item {
    pub packet: Packet,
    /// How it continues; `None` for a finished frame.
    pub waits: Option<Waits>,
    /// How many links it has crossed.
    pub hops: u32,
}

/// How a packet that waits before egress continues.
pub(crate) struct Waits {
    /// The number of its pipeline ([`crate::pipeline::Pipeline::number`]).
    pub program: u64,
    pub record: Box<[u64]>,
    pub passage: Passage,
}

/// A packet that a queue refused, and why.
pub(crate) struct Lost {
    pub packet: Packet,
    pub reason: RuntimeDrop,
}

/// The size of a cell of the shared buffer, in bytes: each packet buffer of the switch takes one cell, whatever it
/// holds.
const CELL: Size = Size(1 << 16);

/// The buffer that all ports' queues share. Queued packets take at most half of the pool's `pool_buffers` buffers, so
/// that a port that accepts no packets does not use up the buffers that others receive into. Each port is a tenant,
/// unless it belongs to another tenant, and may use as many buffers as are free (dynamic threshold with alpha 1): one
/// slow port gets half, two get a third each.
pub(crate) fn shared_buffer(pool_buffers: usize) -> Arc<Buffer> {
    let cells = (pool_buffers as u64 / 2).max(1);
    let config = BufferConfig {
        capacity: Size(cells.saturating_mul(CELL.0).min(CAPACITY_MAX.0)),
        cell: CELL,
        alpha: 1.0,
        tenants: Vec::new(),
    };
    Buffer::new(&config).expect("nothing is reserved, and the capacity is within bounds")
}

/// The queues of one port.
pub(crate) struct EgressQueues {
    state: Mutex<State>,
    /// The tenant of queues that are assigned to no other.
    own: Tenant,
    /// The number of queued packets.
    waiting: AtomicUsize,
    /// The server's mailbox, to wake it.
    server: Arc<Mailbox>,
}

struct State {
    queues: PortQueues<Item>,
    /// Whether any queue marks frames (ECN).
    marks: bool,
    /// Spare memory for records.
    spares: Vec<Box<[u64]>>,
    /// When the server will look again, in nanoseconds; it may sleep until then.
    due_ns: Option<u64>,
}

/// Most records whose memory is kept: a burst from each of 64 ports.
const SPARES_MAX: usize = 64 * BATCH_MAX;

impl EgressQueues {
    /// Empty queues, each assigned to a tenant of the shared buffer and served by the mailbox's worker.
    ///
    /// # Errors
    /// The problems of `config`.
    pub(crate) fn new(
        config: &Config,
        own: Tenant,
        tenants: &[Tenant],
        server: &Arc<Mailbox>,
    ) -> Result<EgressQueues, Vec<Problem>> {
        let queues = PortQueues::with_tenants(config, tenants)?;
        let state = State { queues, marks: marks(config), spares: Vec::new(), due_ns: None };
        Ok(EgressQueues { state: Mutex::new(state), own, waiting: AtomicUsize::new(0), server: Arc::clone(server) })
    }

    /// The tenant of queues that are assigned to no other.
    pub(crate) fn own(&self) -> &Tenant {
        &self.own
    }

    /// Blocks enqueue and dequeue until the result is dropped.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.lock()
    }

    /// The current config.
    pub(crate) fn config(&self) -> Config {
        self.lock().queues.config().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no packet is queued.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Enqueues packets by class, in order. Refused packets are appended to `lost`. For each record enqueued, spare
    /// record memory is appended to `spares`, if the queues have any. `is_server`: the calling worker serves this
    /// port.
    pub(crate) fn offer(
        &self,
        arrivals: impl Iterator<Item = (Item, u8)>,
        is_server: bool,
        now_ns: u64,
        lost: &mut Vec<Lost>,
        spares: &mut Vec<Box<[u64]>>,
    ) {
        let mut state = self.lock();
        let marks = state.marks;
        for (item, class) in arrivals {
            // A packet that waits before egress is deparsed later: marking it is left to its program.
            let is_capable = marks && item.waits.is_none() && traffic::ecn::is_capable(item.packet.data());
            let bytes = item.packet.len() as u32;
            let has_record = item.waits.is_some();
            match state.queues.offer(item, bytes, class, is_capable, now_ns) {
                Ok(_) if has_record => spares.extend(state.spares.pop()),
                Ok(_) => {}
                Err(Refused { item: Item { packet, waits, .. }, reason, .. }) => {
                    spares.extend(waits.map(|waits| waits.record));
                    lost.push(Lost { packet, reason: dropped(reason) });
                }
            }
        }
        let count = state.queues.len();
        let before = self.waiting.swap(count, Ordering::AcqRel);
        if is_server || count == 0 {
            return;
        }
        // The server may sleep until packets arrive, or until a shaper releases one that is less urgent than these.
        let sooner = state.due_ns.is_some_and(|due| state.queues.next_at(now_ns).is_some_and(|next| next < due));
        if sooner {
            state.due_ns = None;
        }
        drop(state);
        if before == 0 || sooner {
            self.server.wake();
        }
    }

    /// Dequeues at most `max` eligible packets, in order. Returns when the next one becomes eligible, in nanoseconds,
    /// if one waits.
    pub(crate) fn take(&self, max: usize, now_ns: u64, out: &mut Vec<Taken<Item>>) -> Option<u64> {
        let mut state = self.lock();
        for _ in 0..max {
            let Some(taken) = state.queues.take(now_ns) else { break };
            out.push(taken);
        }
        self.waiting.store(state.queues.len(), Ordering::Release);
        state.due_ns = state.queues.next_at(now_ns);
        state.due_ns
    }

    /// Returns memory of records for reuse.
    pub(crate) fn give_back(&self, records: &mut Vec<Box<[u64]>>) {
        let mut state = self.lock();
        let room = SPARES_MAX.saturating_sub(state.spares.len());
        records.truncate(room);
        state.spares.append(records);
    }

    /// Dequeues all packets, eligible or not.
    pub(crate) fn drain(&self, now_ns: u64) -> Vec<Item> {
        let mut state = self.lock();
        self.waiting.store(0, Ordering::Release);
        state.queues.drain(now_ns)
    }

    /// Applies another config, each queue assigned to its tenant; returns the packets that no longer fit.
    ///
    /// # Errors
    /// The problems of `config`; the queues are unchanged.
    pub(crate) fn reconfigure(
        &self,
        config: &Config,
        tenants: &[Tenant],
        now_ns: u64,
    ) -> Result<Vec<Item>, Vec<Problem>> {
        let mut state = self.lock();
        let refused = state.queues.reconfigure_with(config, tenants, now_ns)?;
        state.marks = marks(config);
        self.waiting.store(state.queues.len(), Ordering::Release);
        drop(state);
        self.server.wake();
        Ok(refused)
    }

    /// Statistics, by queue number.
    pub(crate) fn statistics(&self) -> Vec<QueueStatistics> {
        self.lock().queues.statistics()
    }
}

fn marks(config: &Config) -> bool {
    config.queues.iter().any(|queue| matches!(&queue.policy, Policy::Red(red) if red.ecn != Ecn::Off))
}

fn dropped(reason: Reason) -> RuntimeDrop {
    match reason {
        Reason::TailDrop | Reason::Time => RuntimeDrop::QueueFull,
        Reason::Red => RuntimeDrop::QueueEarly,
        Reason::Buffer => RuntimeDrop::SharedBufferFull,
        Reason::Tenant => RuntimeDrop::TenantLimit,
    }
}

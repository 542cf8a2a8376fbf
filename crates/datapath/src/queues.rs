//! The queues of a port: what waits there, and for whom.
//!
//! Packets of all workers come in; one worker, the *server*, takes them out, so that a port has one order, one rate and one set of
//! weights however many workers there are. Which packet goes next is `traffic`'s to say.
//!
//! ```text
//!   program with queue metadata or classes     ingress ─▶ queue ─▶ egress, deparser ─▶ port
//!   any other program                          ingress, egress, deparser ─▶ queue ─▶ port
//! ```
//!
//! In the first case a packet waits with its record (`engine/queued.rs`), and egress runs when its turn has come. In the second it waits
//! as a finished frame, of class 0. A port without queues costs nothing; one with queues costs a lock for each burst that
//! goes there.
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

/// A packet in a queue.
pub(crate) struct Item {
    pub packet: Packet,
    /// Where it is to go on; `None` for a frame that is to be sent as it is.
    pub waits: Option<Waits>,
    /// Over how many links it has come.
    pub hops: u32,
}

/// How a packet goes on that waits before egress.
pub(crate) struct Waits {
    /// The program, by the number of its pipeline.
    pub program: u64,
    pub record: Box<[u64]>,
    pub passage: Passage,
}

/// A packet that a queue did not take, and why.
pub(crate) struct Lost {
    pub packet: Packet,
    pub reason: RuntimeDrop,
}

/// A buffer of a switch takes one cell, whatever is in it.
const CELL: Size = Size(1 << 16);

/// What all ports share. Packets that wait in queues take half of the pool's buffers at most, so that a port which accepts no packets
/// does not keep the buffers that others receive into. Each port is a tenant, unless it belongs to another one, and may have as many
/// as are free: with one slow port that is half of them, with two a third each.
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
    /// Whose queues are that belong to no other tenant.
    own: Tenant,
    /// Packets that wait.
    waiting: AtomicUsize,
    /// The server's, which may be asleep.
    server: Arc<Mailbox>,
}

struct State {
    queues: PortQueues<Item>,
    /// Whether a queue marks frames.
    marks: bool,
    /// Memory of records, for those of packets to come.
    spares: Vec<Box<[u64]>>,
    /// When the server will look again, which may be asleep until then.
    due_ns: Option<u64>,
}

/// Records whose memory is kept: as many as 64 ports send in a round, a burst each.
const SPARES_MAX: usize = 64 * BATCH_MAX;

impl EgressQueues {
    /// Empty queues, each of a tenant of the shared buffer, whose packets the worker of a mailbox takes out.
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

    /// The tenant of queues that belong to no other.
    pub(crate) fn own(&self) -> &Tenant {
        &self.own
    }

    /// Nothing comes in and goes out until the result is dropped.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.lock()
    }

    /// The config.
    pub(crate) fn config(&self) -> Config {
        self.lock().queues.config().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Enqueues packets by class, in order. Refused packets are appended to `lost`. For each record that is enqueued, memory for
    /// another one is appended to `spares`, if the queues keep some. `is_server`: the calling worker dequeues here.
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
            // A frame before egress is put together anew: its program marks it, if it wants to.
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
        // It may sleep until packets come, or until a shaper lets one go that is less urgent than these.
        let sooner = state.due_ns.is_some_and(|due| state.queues.next_at(now_ns).is_some_and(|next| next < due));
        if sooner {
            state.due_ns = None;
        }
        drop(state);
        if before == 0 || sooner {
            self.server.wake();
        }
    }

    /// Takes out at most `max` packets whose turn it is, in order. When the next one may be taken, if one waits.
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

    /// Gives memory of records back.
    pub(crate) fn give_back(&self, records: &mut Vec<Box<[u64]>>) {
        let mut state = self.lock();
        let room = SPARES_MAX.saturating_sub(state.spares.len());
        records.truncate(room);
        state.spares.append(records);
    }

    /// Takes out all that waits, whatever its turn.
    pub(crate) fn drain(&self, now_ns: u64) -> Vec<Item> {
        let mut state = self.lock();
        self.waiting.store(0, Ordering::Release);
        state.queues.drain(now_ns)
    }

    /// Goes by another config from now on, each queue as one of its tenant; packets that it has no place for are returned.
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

    /// What the queues have done, by number.
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

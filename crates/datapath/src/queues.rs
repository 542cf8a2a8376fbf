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
use pktio::Packet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use traffic::{Config, Ecn, Policy, PortQueues, Problem, QueueStatistics, Reason, Refused, Taken};

/// A packet in a queue.
pub(crate) struct Item {
    pub packet: Packet,
    /// Where it is to go on; `None` for a frame that is to be sent as it is.
    pub waits: Option<Waits>,
}

/// How a packet goes on that waits before egress.
pub(crate) struct Waits {
    /// The program, by the number of its pipeline.
    pub program: u64,
    pub record: Box<[u64]>,
    pub passage: Passage,
    /// Over how many links it has come.
    pub hops: u32,
}

/// A packet that a queue did not take, and why.
pub(crate) struct Lost {
    pub packet: Packet,
    pub reason: RuntimeDrop,
}

/// How many packets may wait in the queues of all ports together, so that a port which takes nothing does not keep the buffers that
/// others receive into. A port may have as many as are free: one that is slow leaves half to the others, two leave a third, and so
/// on (Choudhury, Hahne: "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM ToN 1998, with alpha 1).
pub(crate) struct Room {
    limit: usize,
    held: AtomicUsize,
}

impl Room {
    /// For packets in buffers of a pool of so many: half of them.
    pub(crate) fn of(buffers: usize) -> Arc<Room> {
        Arc::new(Room { limit: buffers / 2, held: AtomicUsize::new(0) })
    }

    /// A port that has had `before` packets has `now`.
    fn note(&self, before: usize, now: usize) {
        // A sum that wraps, and is right when all have been added.
        self.held.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Packets that a port may have while others have what they have.
    fn most(&self, own: usize) -> usize {
        let others = self.held.load(Ordering::Relaxed).saturating_sub(own);
        self.limit.saturating_sub(others) / 2
    }
}

/// The queues of one port.
pub(crate) struct EgressQueues {
    state: Mutex<State>,
    /// Packets that wait.
    waiting: AtomicUsize,
    /// The server's, which may be asleep.
    server: Arc<Mailbox>,
    room: Arc<Room>,
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

/// Records whose memory is kept.
const SPARES_MAX: usize = 4096;

impl EgressQueues {
    /// Empty queues, whose packets the worker of a mailbox takes out.
    pub(crate) fn new(config: &Config, server: &Arc<Mailbox>, room: &Arc<Room>) -> Result<EgressQueues, Vec<Problem>> {
        let state = State { queues: PortQueues::new(config)?, marks: marks(config), spares: Vec::new(), due_ns: None };
        let (server, room) = (Arc::clone(server), Arc::clone(room));
        Ok(EgressQueues { state: Mutex::new(state), waiting: AtomicUsize::new(0), server, room })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many wait now; how many did.
    fn set_waiting(&self, count: usize) -> usize {
        let before = self.waiting.swap(count, Ordering::AcqRel);
        self.room.note(before, count);
        before
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Offers packets with their classes, in order, on the server or elsewhere; those that are refused go to `lost`. Memory for as
    /// many records as were put in comes back in `spares`, if there is some.
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
        let most = self.room.most(state.queues.len());
        for (item, class) in arrivals {
            // A frame before egress is put together anew: its program marks it, if it wants to.
            let is_capable = marks && item.waits.is_none() && traffic::ecn::is_capable(item.packet.data());
            let bytes = item.packet.len() as u32;
            let has_record = item.waits.is_some();
            if state.queues.len() >= most {
                lost.push(Lost { packet: item.packet, reason: RuntimeDrop::SharedBufferFull });
                spares.extend(item.waits.map(|waits| waits.record));
                continue;
            }
            match state.queues.offer(item, bytes, class, is_capable, now_ns) {
                Ok(_) if has_record => spares.extend(state.spares.pop()),
                Ok(_) => {}
                Err(Refused { item: Item { packet, waits }, reason, .. }) => {
                    spares.extend(waits.map(|waits| waits.record));
                    lost.push(Lost { packet, reason: dropped(reason) });
                }
            }
        }
        let count = state.queues.len();
        let before = self.set_waiting(count);
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
        self.set_waiting(state.queues.len());
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
        self.set_waiting(0);
        state.queues.drain(now_ns)
    }

    /// Goes by another config from now on; packets that it has no place for are returned.
    pub(crate) fn reconfigure(&self, config: &Config, now_ns: u64) -> Result<Vec<Item>, Vec<Problem>> {
        let mut state = self.lock();
        let refused = state.queues.reconfigure(config, now_ns)?;
        state.marks = marks(config);
        self.set_waiting(state.queues.len());
        drop(state);
        self.server.wake();
        Ok(refused)
    }

    /// What the queues have done, by number.
    pub(crate) fn statistics(&self) -> Vec<QueueStatistics> {
        self.lock().queues.statistics()
    }
}

impl Drop for EgressQueues {
    fn drop(&mut self) {
        self.set_waiting(0);
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
    }
}

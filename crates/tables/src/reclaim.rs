//! Quiescent-state-based reclamation (QSBR): when memory that readers could have seen may be freed.
//!
//! Workers read tables without locks, and keep pointers into them only within one batch. A writer first makes an object
//! unreachable, then calls [`Domain::advance`], which returns the *epoch* of the retirement. It frees the object once
//! every online worker has announced a quiescent point in that epoch or a later one. (Hart, McKenney, Brown, Walpole:
//! "Performance of memory reclamation for lockless synchronization", section 3.1.)
//!
//! Cost: a reader pays one load and one store to its own cache line per batch, nothing per lookup. A worker that waits
//! for packets or parks goes [offline](Worker::offline), and then does not delay reclamation.
//!
//! Correctness. Suppose that a writer unlinks `p` (with any store), then `advance`s to `e`, then reads the workers'
//! slots.
//! - *Online worker.* A slot shows `s >= e` only if the worker loaded an epoch `>= e`. All changes of the epoch are
//!   read-modify-writes, so that load acquires from the writer's `advance`: whatever the worker reads afterwards, it
//!   sees `p` unlinked. And its slot store (release), read by the writer (acquire), comes after its last use of `p`.
//! - *Worker going online.* The writer may have read the slot as offline just before. Both sides have a sequentially
//!   consistent fence between their store and their load: if the writer's load misses the slot's store, the worker's
//!   loads after its fence see `p` unlinked.
//!
//! **Assumptions of specialised code.** Code that is compiled for the tables as they are embeds addresses of objects
//! that writers may retire, and contents that they may change. Its compiler reads the [`Domain::generation`] first and
//! the tables afterwards. A writer [invalidates](Domain::invalidate), which begins another generation, *before* it
//! changes anything that such code may embed. A worker compares the generation once per batch, while it is online, and
//! runs other code if it differs. The proof above covers this: the addresses in the code are reachable only through its
//! generation, and `invalidate` is the store that unlinks them.
//!
//! Code that embeds the contents of entries still looks other entries up in the table, so a batch that began before
//! `invalidate` could find a new entry and apply the contents of the old ones to it. Before such a change every worker
//! must *acknowledge* the new generation, that is, be quiescent or offline once after it began. A writer waits for that
//! for at most [`ACKNOWLEDGE_MAX`]; then the change is refused ([`Unacknowledged`]), and no part of it has been
//! published. Only [`Assumption`] does this. No acknowledgement is needed for changes that leave the old code's results
//! equal to those of the table as it was (a bucket array that moves).
//!
//! After a refusal, changes that need an acknowledgement are refused at once until that worker has passed a quiescent
//! point ([`Domain::await_acknowledged`]). So a caller that waits behind a lock waits for one such bound, not for one
//! per change.
//!
//! **Backlog.** Retired memory is never freed while a worker may use it, however long the worker is stalled; so a
//! stalled worker would let memory grow without bound. Each epoch counts for [`BACKLOG_UNIT_BYTES`] of retired memory,
//! and changes are refused while more than [`BACKLOG_MAX`] units wait to be freed ([`Domain::await_room`]).
//!
//! Threads: any number of writers; each [`Worker`] belongs to one thread. Tests: `reclaim/tests.rs`; all interleavings
//! of small cases in `tests/loom.rs`; workers stopped at any instruction in `crates/datapath/tests/stopped.rs`.

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a writer waits for workers to acknowledge. A batch takes microseconds, and a preempted worker is without a
/// processor for tens of milliseconds; a worker that takes longer than this is stalled.
pub const ACKNOWLEDGE_MAX: Duration = Duration::from_secs(1);

/// The most that one iteration of the wait counts towards that time. If the whole process was stopped, so was the
/// writer, and its wait says nothing about the workers.
#[cfg(not(loom))]
const POLL_TIME_MAX: Duration = Duration::from_millis(10);

/// Limit of the retired memory that may wait before changes are refused, in units: 256 MB, or as many small objects.
pub const BACKLOG_MAX: u64 = 1 << 16;
/// Bytes of retired memory that count as one unit.
pub const BACKLOG_UNIT_BYTES: u64 = 4096;

/// The announcement of a worker that holds no pointers.
const OFFLINE: u64 = 0;

/// One worker's announcement, on cache lines of its own (two, for the adjacent-line prefetcher).
#[repr(align(128))]
#[derive(Debug)]
struct Slot {
    /// The last epoch announced, or [`OFFLINE`].
    announced: AtomicU64,
    /// Whether a [`Worker`] owns the slot.
    taken: AtomicBool,
    /// The worker's number in messages.
    number: AtomicU32,
}

/// Counts table changes, on cache lines of its own: workers without a flow cache do not read it.
#[repr(align(128))]
#[derive(Debug)]
struct Changes(AtomicU64);

/// Error: a worker has not acknowledged a change in time, so the change was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unacknowledged {
    /// The worker's number.
    pub worker: u32,
}

impl fmt::Display for Unacknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} has not finished its batch within {ACKNOWLEDGE_MAX:?}", self.worker)
    }
}

impl std::error::Error for Unacknowledged {}

#[cfg(not(loom))]
thread_local! {
    /// The workers that are online on the thread: of each the address of its domain and its slot.
    static ONLINE: std::cell::RefCell<Vec<(usize, u32)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The workers and writers that share tables.
#[derive(Debug)]
pub struct Domain {
    epoch: AtomicU64,
    /// Counts the invalidations of assumptions.
    generation: AtomicU64,
    /// The last epoch for which a writer's wait timed out; 0 for none.
    gave_up: AtomicU64,
    changes: Changes,
    /// The seeds of the hash for exact tables that are made from now on.
    #[cfg(not(loom))]
    seeds: [AtomicU64; 2],
    slots: Box<[Slot]>,
}

impl Domain {
    /// A domain for at most `max_workers` workers at a time.
    pub fn new(max_workers: usize) -> Arc<Domain> {
        let slot = |number| Slot {
            announced: AtomicU64::new(OFFLINE),
            taken: AtomicBool::new(false),
            number: AtomicU32::new(number as u32),
        };
        Arc::new(Domain {
            epoch: AtomicU64::new(OFFLINE + 1),
            generation: AtomicU64::new(0),
            gave_up: AtomicU64::new(0),
            changes: Changes(AtomicU64::new(0)),
            #[cfg(not(loom))]
            seeds: crate::random_seeds().map(AtomicU64::new),
            slots: (0..max_workers).map(slot).collect(),
        })
    }

    /// The hash seeds for exact tables that are made now: the same for all tables of a program, so that specialised
    /// code that looks a key up in two of them hashes it once.
    #[cfg(not(loom))]
    pub(crate) fn seeds(&self) -> [u64; 2] {
        [0, 1].map(|i| self.seeds[i].load(Ordering::Relaxed))
    }

    /// Replaces the hash seeds; called before another program's tables are made. With the old seeds, entries read from
    /// existing tables, which come in hash order, would collide when they are written to the new ones.
    #[cfg(not(loom))]
    pub fn renew_seeds(&self) {
        self.seeds.iter().zip(crate::random_seeds()).for_each(|(seed, new)| seed.store(new, Ordering::Relaxed));
    }

    /// A new worker, offline; `None` if there are `max_workers` already.
    pub fn register(self: &Arc<Domain>) -> Option<Worker> {
        let free = |s: &Slot| s.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = self.slots.iter().position(free)?;
        Some(Worker {
            domain: Arc::clone(self),
            slot,
            #[cfg(not(loom))]
            is_online: false,
        })
    }

    /// As [`Domain::register`], with the worker's number in messages.
    pub fn register_as(self: &Arc<Domain>, number: u32) -> Option<Worker> {
        let worker = self.register()?;
        self.slots[worker.slot].number.store(number, Ordering::Relaxed);
        Some(worker)
    }

    /// The generation under which code may assume what was read of the tables *after* this call; see the module
    /// documentation.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Invalidates all assumptions by beginning another generation. A writer calls it before it changes anything that
    /// was assumed.
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of table changes so far. It advances before any effect of a change is visible. Flow caches compare
    /// it.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.0.load(Ordering::Acquire)
    }

    /// Counts a table change; called before the change.
    pub fn note_change(&self) {
        self.changes.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until every worker has been quiescent or offline since `epoch` began, for at most [`ACKNOWLEDGE_MAX`]. It
    /// does not wait at all while the worker for which an earlier call timed out is still stalled.
    ///
    /// # Errors
    /// [`Unacknowledged`] with the worker that has not been quiescent in time.
    pub fn await_acknowledged(&self, epoch: u64) -> Result<(), Unacknowledged> {
        if self.is_past(epoch) {
            return Ok(());
        }
        let gave_up = self.gave_up.load(Ordering::Relaxed);
        let may_wait = gave_up == 0 || self.is_past(gave_up);
        if may_wait && self.wait_until_past(epoch) {
            return Ok(());
        }
        // The worker may have become quiescent just now.
        let Some(worker) = self.worker_before(epoch) else { return Ok(()) };
        if may_wait {
            self.gave_up.store(epoch, Ordering::Relaxed);
        }
        Err(Unacknowledged { worker })
    }

    #[cfg(not(loom))]
    fn wait_until_past(&self, epoch: u64) -> bool {
        let (mut waited, mut last) = (Duration::ZERO, std::time::Instant::now());
        for poll in 0u64.. {
            if self.is_past(epoch) {
                return true;
            }
            let now = std::time::Instant::now();
            waited += now.duration_since(last).min(POLL_TIME_MAX);
            last = now;
            if waited >= ACKNOWLEDGE_MAX {
                break;
            }
            // A batch takes some microseconds, but the worker may have been preempted.
            match poll {
                ..100 => std::hint::spin_loop(),
                _ => std::thread::sleep(Duration::from_micros(20)),
            }
        }
        self.is_past(epoch)
    }

    /// The model checker has no time: the wait ends after one look.
    #[cfg(loom)]
    fn wait_until_past(&self, epoch: u64) -> bool {
        self.is_past(epoch)
    }

    /// The number of a worker that is online and has not been quiescent since `epoch` began.
    fn worker_before(&self, epoch: u64) -> Option<u32> {
        fence(Ordering::SeqCst);
        let is_before = |slot: &&Slot| match slot.announced.load(Ordering::Acquire) {
            OFFLINE => false,
            announced => announced < epoch,
        };
        self.slots.iter().find(is_before).map(|slot| slot.number.load(Ordering::Relaxed))
    }

    /// The retired memory that waits to be freed, in units of [`BACKLOG_UNIT_BYTES`].
    pub fn backlog(&self) -> u64 {
        let now = self.epoch.load(Ordering::Acquire);
        now.saturating_sub(self.safe_epoch())
    }

    /// Waits, for as long as for an acknowledgement, until at most [`BACKLOG_MAX`] units wait to be freed.
    ///
    /// # Errors
    /// As [`Domain::await_acknowledged`].
    pub fn await_room(&self) -> Result<(), Unacknowledged> {
        let now = self.epoch.load(Ordering::Acquire);
        match now.checked_sub(BACKLOG_MAX) {
            Some(epoch) if self.backlog() > BACKLOG_MAX => self.await_acknowledged(epoch),
            _ => Ok(()),
        }
    }

    /// Begins a new epoch and returns it: objects unlinked before this call may be freed once
    /// [`is_past`](Domain::is_past) is true for the returned epoch.
    pub fn advance(&self) -> u64 {
        self.advance_by(0)
    }

    /// As [`advance`](Domain::advance), for retired memory of so many bytes, which count as backlog.
    pub fn advance_by(&self, bytes: usize) -> u64 {
        let units = 1 + bytes as u64 / BACKLOG_UNIT_BYTES;
        self.epoch.fetch_add(units, Ordering::AcqRel) + units
    }

    /// Whether every worker has been quiescent, or offline, since `epoch` began.
    pub fn is_past(&self, epoch: u64) -> bool {
        epoch <= self.safe_epoch()
    }

    /// As [`is_past`](Domain::is_past), for all workers but one, by the slot that [`Domain::current`] returned.
    #[cfg(not(loom))]
    pub(crate) fn is_past_for_others(&self, epoch: u64, own: u32) -> bool {
        fence(Ordering::SeqCst);
        let others = self.slots.iter().enumerate().filter(|(slot, _)| *slot != own as usize);
        others.map(|(_, slot)| slot.announced.load(Ordering::Acquire)).all(|seen| seen == OFFLINE || seen >= epoch)
    }

    /// The slot of the worker of this domain that is online on the calling thread; `None` if there is none, or more than
    /// one.
    #[cfg(not(loom))]
    pub(crate) fn current(&self) -> Option<u32> {
        let here = std::ptr::from_ref(self).addr();
        ONLINE.with_borrow(|online| {
            let mut slots = online.iter().filter(|(domain, _)| *domain == here).map(|(_, slot)| *slot);
            slots.next().filter(|_| slots.next().is_none())
        })
    }

    /// The latest epoch that [is past](Domain::is_past): the earliest one announced by an online worker.
    pub fn safe_epoch(&self) -> u64 {
        fence(Ordering::SeqCst);
        let mut safe = self.epoch.load(Ordering::Acquire);
        for slot in &self.slots {
            match slot.announced.load(Ordering::Acquire) {
                OFFLINE => {}
                announced => safe = safe.min(announced),
            }
        }
        safe
    }
}

/// An assumption: what specialised code may embed of a table. The table's owner invalidates it before it changes that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assumption {
    /// The generation in which code was last compiled with it.
    generation: Option<u64>,
    /// An epoch that began after that generation had ended.
    ended_before: Option<u64>,
}

impl Assumption {
    /// Records that code is about to be compiled with the assumption. The caller excludes changes meanwhile.
    pub fn hold(&mut self, domain: &Domain) {
        *self = Assumption { generation: Some(domain.generation()), ended_before: None };
    }

    /// Whether code may rely on the assumption.
    pub fn is_held(&self) -> bool {
        self.generation.is_some()
    }

    /// Invalidates the assumption. On `Ok`, no batch runs or will run with code that relies on it, so the table may be
    /// changed.
    ///
    /// # Errors
    /// As [`Domain::await_acknowledged`]. The table must not be changed then; the assumption is held until a later call
    /// succeeds.
    pub fn invalidate(&mut self, domain: &Domain) -> Result<(), Unacknowledged> {
        let Some(generation) = self.generation else { return Ok(()) };
        if domain.generation() == generation {
            domain.invalidate();
        }
        // Also needed if another writer has invalidated it: batches that began before may still run.
        let epoch = *self.ended_before.get_or_insert_with(|| domain.advance());
        domain.await_acknowledged(epoch)?;
        *self = Assumption::default();
        Ok(())
    }
}

/// One reader thread's membership in a [`Domain`]. It is offline when it is created and after it is dropped.
#[derive(Debug)]
pub struct Worker {
    domain: Arc<Domain>,
    slot: usize,
    #[cfg(not(loom))]
    is_online: bool,
}

impl Worker {
    /// The domain that the worker belongs to.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Goes online: from here on the worker may read tables.
    pub fn online(&mut self) {
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        // Release: a writer that sees this store but not the earlier `offline` frees what the worker read before that.
        self.domain.slots[self.slot].announced.store(epoch, Ordering::Release);
        fence(Ordering::SeqCst);
        self.is_current(true);
    }

    /// Notes on the thread whether the worker is online there.
    #[cfg(not(loom))]
    fn is_current(&mut self, is_online: bool) {
        if std::mem::replace(&mut self.is_online, is_online) == is_online {
            return;
        }
        let this = (Arc::as_ptr(&self.domain).addr(), self.slot as u32);
        // A thread that ends has no workers online any more.
        let _ = ONLINE.try_with(|online| match is_online {
            true => online.borrow_mut().push(this),
            false => online.borrow_mut().retain(|other| *other != this),
        });
    }

    #[cfg(loom)]
    fn is_current(&mut self, _is_online: bool) {}

    /// Announces a quiescent point, between two batches: the worker is online, and holds no pointer into any table.
    #[inline]
    pub fn quiescent(&mut self) {
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        self.domain.slots[self.slot].announced.store(epoch, Ordering::Release);
    }

    /// As [`quiescent`](Worker::quiescent), after running `settle`. `settle` may still use memory that was retired
    /// before this call, and sees everything that was done before the announced epoch began.
    #[inline]
    pub fn quiescent_behind(&mut self, settle: impl FnOnce()) {
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        settle();
        self.domain.slots[self.slot].announced.store(epoch, Ordering::Release);
    }

    /// Goes offline: the worker holds no pointers until it goes [online](Worker::online) again.
    pub fn offline(&mut self) {
        self.domain.slots[self.slot].announced.store(OFFLINE, Ordering::Release);
        self.is_current(false);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.offline();
        self.domain.slots[self.slot].taken.store(false, Ordering::Release);
    }
}

/// A writer's queue of retired objects, each waiting for its epoch to be past.
///
/// Dropping the queue drops the objects, so it must outlive the readers.
#[derive(Debug)]
pub struct Limbo<T> {
    waiting: VecDeque<(u64, T)>,
}

impl<T> Default for Limbo<T> {
    fn default() -> Self {
        Limbo { waiting: VecDeque::new() }
    }
}

impl<T> Limbo<T> {
    /// Queues an object that was unlinked before `epoch` began. Epochs must not decrease from call to call.
    pub fn push(&mut self, epoch: u64, item: T) {
        debug_assert!(self.waiting.back().is_none_or(|(last, _)| *last <= epoch), "epochs out of order");
        self.waiting.push_back((epoch, item));
    }

    /// Passes every object whose epoch is past to `free`.
    pub fn collect(&mut self, domain: &Domain, mut free: impl FnMut(T)) {
        if self.waiting.is_empty() {
            return;
        }
        let safe = domain.safe_epoch();
        while self.waiting.front().is_some_and(|(epoch, _)| *epoch <= safe) {
            let (_, item) = self.waiting.pop_front().expect("front was there");
            free(item);
        }
    }

    /// The number of waiting objects.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no object waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns all objects, whether their epochs are past or not. For teardown, when there are no readers
    /// any more.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.waiting.drain(..).map(|(_, item)| item)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

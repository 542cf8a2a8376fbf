//! Quiescent-state based reclamation: when may memory that readers could have seen be freed?
//!
//! Workers read tables without locks and keep pointers into them only within one batch. A writer first makes an object
//! unreachable, then calls [`Domain::advance`], which gives the *epoch* of the retirement, and frees the object once
//! every online worker has announced a quiescent point in that epoch or a later one. (Hart, McKenney, Brown, Walpole:
//! "Performance of memory reclamation for lockless synchronization", section 3.1.)
//!
//! Cost: a reader pays one load and one store to its own cache line per batch, nothing per lookup. A worker that waits
//! for packets or parks goes [offline](Worker::offline) and then holds nothing back.
//!
//! Why it is correct. Let a writer unlink `p` (any store), then `advance` to `e`, then read the workers' slots.
//! - *Online worker.* A slot shows `s >= e` only if the worker loaded an epoch `>= e`. All changes of the epoch are
//!   read-modify-writes, so that load acquires from the writer's `advance`: whatever the worker reads afterwards, it
//!   sees `p` unlinked. And its slot store (release), read by the writer (acquire), comes after its last use of `p`.
//! - *Worker going online.* The writer may have read the slot as offline just before. Both sides have a sequentially
//!   consistent fence between their store and their load: if the writer's load misses the slot's store, the worker's
//!   loads after its fence see `p` unlinked.
//!
//! **Assumptions of code.** Code that is compiled for tables as they are holds addresses of what writers may retire
//! (and contents of what they may change). Whoever compiles it reads the [`Domain::generation`] first and the tables then; a
//! writer [invalidates](Domain::invalidate) *before* it changes anything that such code may hold, which begins another generation; a
//! worker compares the number once per batch, when it is online, and runs other code if it is not the same. This adds nothing to
//! the proof above: the addresses in the code are reachable through that number only, and `invalidate` is what unlinks them.
//!
//! Code that knows what entries say still looks others up in the table itself, so a batch that began before `invalidate` could meet
//! a new entry with what the old ones said. Before such a change every worker must *acknowledge* the new generation: be quiescent or
//! offline once since. A writer waits for that, but for no longer than [`ACKNOWLEDGE_MAX`]; then the change is refused
//! ([`Unacknowledged`]), and nothing of it has been published. [`Assumption`] is the one place where this is done. Before changes after
//! which the old code is right for what the table was (a bucket array that moves), nobody need acknowledge anything.
//!
//! After a refusal other writers need not find out again: until that worker has moved, changes that need it are refused at once
//! ([`Domain::await_acknowledged`]), so whoever waits behind a lock waits for one bound, not for one per change.
//!
//! **Backlog.** What is retired is never freed under a worker, however long it stands; so a worker that stands would let memory
//! grow without end. Each epoch stands for [`BACKLOG_UNIT_BYTES`] that were retired, and changes are refused while more than
//! [`BACKLOG_MAX`] wait ([`Domain::await_room`]).
//!
//! Threads: any number of writers; each [`Worker`] belongs to one thread. Tests: `reclaim/tests.rs`; all interleavings
//! of small cases in `tests/loom.rs`; workers that are stopped at any instruction in `crates/datapath/tests/stopped.rs`.

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a writer waits for workers to acknowledge. A batch takes microseconds, but a worker may be without a processor for tens
/// of milliseconds; longer than this, nobody would call it delayed.
pub const ACKNOWLEDGE_MAX: Duration = Duration::from_secs(1);

/// The most that one look counts for in that time: if the whole process was stopped, the writer was as well, and nothing is known
/// of the workers.
#[cfg(not(loom))]
const LOOK_MAX: Duration = Duration::from_millis(10);

/// Most units of retired memory that may wait before changes are refused: 256 MB, or as many small things.
pub const BACKLOG_MAX: u64 = 1 << 16;
/// Bytes of retired memory that count as one unit.
pub const BACKLOG_UNIT_BYTES: u64 = 4096;

/// The slot value of a worker that holds no pointers.
const OFFLINE: u64 = 0;

/// One worker's announcement, alone on its cache line (two, for the adjacent-line prefetcher).
#[repr(align(128))]
#[derive(Debug)]
struct Slot {
    /// The last epoch announced, or [`OFFLINE`].
    announced: AtomicU64,
    /// Whether a [`Worker`] owns the slot.
    taken: AtomicBool,
    /// What people call the worker.
    number: AtomicU32,
}

/// How often tables were to be changed, on lines of its own: workers without a flow cache do not read it.
#[repr(align(128))]
#[derive(Debug)]
struct Changes(AtomicU64);

/// A worker has not acknowledged a change in time, so the change was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unacknowledged {
    /// The worker's number.
    pub worker: u32,
}

impl fmt::Display for Unacknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} has not come to the end of a batch for {ACKNOWLEDGE_MAX:?}", self.worker)
    }
}

impl std::error::Error for Unacknowledged {}

/// The workers and writers that share tables.
#[derive(Debug)]
pub struct Domain {
    epoch: AtomicU64,
    /// How often assumptions of code were invalidated.
    generation: AtomicU64,
    /// The last epoch that a writer has waited for in vain; 0 for none.
    gave_up: AtomicU64,
    changes: Changes,
    /// What exact tables that are made next hash with.
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

    /// The seeds of exact tables that are made now: the same for all tables of a program, so that code that looks a key up in
    /// two of them hashes it once.
    #[cfg(not(loom))]
    pub(crate) fn seeds(&self) -> [u64; 2] {
        [0, 1].map(|i| self.seeds[i].load(Ordering::Relaxed))
    }

    /// Tables that are made from here on are another program's: what is read from those that there are, in the order of its hashes,
    /// may be written to them.
    #[cfg(not(loom))]
    pub fn renew_seeds(&self) {
        self.seeds.iter().zip(crate::random_seeds()).for_each(|(seed, new)| seed.store(new, Ordering::Relaxed));
    }

    /// A new worker, offline; `None` when there are `max_workers` already.
    pub fn register(self: &Arc<Domain>) -> Option<Worker> {
        let free = |s: &Slot| s.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = self.slots.iter().position(free)?;
        Some(Worker { domain: Arc::clone(self), slot })
    }

    /// As [`Domain::register`], with the number that messages name the worker by.
    pub fn register_as(self: &Arc<Domain>, number: u32) -> Option<Worker> {
        let worker = self.register()?;
        self.slots[worker.slot].number.store(number, Ordering::Relaxed);
        Some(worker)
    }

    /// The number under which code may assume what it read of the tables *after* this call; see the file's text.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// From here on no assumption holds: begins another generation. A writer's, before it changes any of what was assumed.
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// How often tables were to be changed: another number before anything of a change can be seen. Flow caches compare it.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.0.load(Ordering::Acquire)
    }

    /// A table is about to be changed, and says so itself.
    pub fn note_change(&self) {
        self.changes.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until every worker has been quiescent or offline since `epoch` began, or [`ACKNOWLEDGE_MAX`] is over. If an earlier
    /// call has waited in vain and that worker still stands, there is no wait.
    pub fn await_acknowledged(&self, epoch: u64) -> Result<(), Unacknowledged> {
        if self.is_past(epoch) {
            return Ok(());
        }
        let gave_up = self.gave_up.load(Ordering::Relaxed);
        let may_wait = gave_up == 0 || self.is_past(gave_up);
        if may_wait && self.wait_until_past(epoch) {
            return Ok(());
        }
        // Whoever it is may have moved just now.
        let Some(worker) = self.worker_before(epoch) else { return Ok(()) };
        if may_wait {
            self.gave_up.store(epoch, Ordering::Relaxed);
        }
        Err(Unacknowledged { worker })
    }

    #[cfg(not(loom))]
    fn wait_until_past(&self, epoch: u64) -> bool {
        let (mut waited, mut last) = (Duration::ZERO, std::time::Instant::now());
        for look in 0u64.. {
            if self.is_past(epoch) {
                return true;
            }
            let now = std::time::Instant::now();
            waited += now.duration_since(last).min(LOOK_MAX);
            last = now;
            if waited >= ACKNOWLEDGE_MAX {
                break;
            }
            // A batch takes some microseconds; but the worker may be without a processor.
            match look {
                ..100 => std::hint::spin_loop(),
                _ => std::thread::sleep(Duration::from_micros(20)),
            }
        }
        self.is_past(epoch)
    }

    /// The model checker knows no time: a writer that has looked once gives up.
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

    /// How much waits to be freed, in units of [`BACKLOG_UNIT_BYTES`].
    pub fn backlog(&self) -> u64 {
        let now = self.epoch.load(Ordering::Acquire);
        now.saturating_sub(self.safe_epoch())
    }

    /// Waits, as long as for an acknowledgement, until no more than [`BACKLOG_MAX`] units wait to be freed.
    pub fn await_room(&self) -> Result<(), Unacknowledged> {
        let now = self.epoch.load(Ordering::Acquire);
        match now.checked_sub(BACKLOG_MAX) {
            Some(epoch) if self.backlog() > BACKLOG_MAX => self.await_acknowledged(epoch),
            _ => Ok(()),
        }
    }

    /// Begins a new epoch and returns it: what was unlinked before this call may be freed once
    /// [`is_past`](Domain::is_past) says so for the returned epoch.
    pub fn advance(&self) -> u64 {
        self.advance_by(0)
    }

    /// As [`advance`](Domain::advance), when so many bytes are retired: they count as backlog.
    pub fn advance_by(&self, bytes: usize) -> u64 {
        let units = 1 + bytes as u64 / BACKLOG_UNIT_BYTES;
        self.epoch.fetch_add(units, Ordering::AcqRel) + units
    }

    /// Whether every worker has been quiescent, or offline, since `epoch` began.
    pub fn is_past(&self, epoch: u64) -> bool {
        epoch <= self.safe_epoch()
    }

    /// The latest epoch that [is past](Domain::is_past).
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

/// What code may have been told of a table, and may rely on until it is invalidated: its owner asks before it changes that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assumption {
    /// The generation in which it was last told.
    told_in: Option<u64>,
    /// An epoch that began after that generation had ended.
    ended_before: Option<u64>,
}

impl Assumption {
    /// Code is told. The caller excludes changes meanwhile.
    pub fn tell(&mut self, domain: &Domain) {
        *self = Assumption { told_in: Some(domain.generation()), ended_before: None };
    }

    /// Whether code may have been told.
    pub fn is_held(&self) -> bool {
        self.told_in.is_some()
    }

    /// When this returns `Ok`, no batch runs any more, and none will begin, with code that was told: what it was told may change.
    /// On `Err` it must not; the assumption is held until a later call succeeds.
    pub fn invalidate(&mut self, domain: &Domain) -> Result<(), Unacknowledged> {
        let Some(told_in) = self.told_in else { return Ok(()) };
        if domain.generation() == told_in {
            domain.invalidate();
        }
        // Also if somebody else has invalidated it: batches that began before may still run.
        let epoch = *self.ended_before.get_or_insert_with(|| domain.advance());
        domain.await_acknowledged(epoch)?;
        *self = Assumption::default();
        Ok(())
    }
}

/// One reader thread's membership in a [`Domain`]. Offline when made and when dropped.
#[derive(Debug)]
pub struct Worker {
    domain: Arc<Domain>,
    slot: usize,
}

impl Worker {
    /// The domain it belongs to.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// From here on the worker may read tables.
    pub fn online(&mut self) {
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        // Release: the writer may see this and not the `offline` before it, and then frees what was read before that.
        self.domain.slots[self.slot].announced.store(epoch, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Between two batches: the worker, online, holds no pointer into any table at this moment.
    #[inline]
    pub fn quiescent(&mut self) {
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        self.domain.slots[self.slot].announced.store(epoch, Ordering::Release);
    }

    /// As [`quiescent`](Worker::quiescent), behind `settle`, which may still use what was retired before this call, and sees what
    /// was done before that.
    #[inline]
    pub fn quiescent_behind(&mut self, settle: impl FnOnce()) {
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        settle();
        self.domain.slots[self.slot].announced.store(epoch, Ordering::Release);
    }

    /// From here on the worker holds no pointers, until it goes [online](Worker::online) again.
    pub fn offline(&mut self) {
        self.domain.slots[self.slot].announced.store(OFFLINE, Ordering::Release);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.offline();
        self.domain.slots[self.slot].taken.store(false, Ordering::Release);
    }
}

/// A writer's queue of things that wait for their epoch to be past.
///
/// Dropping it drops what waits, so it must outlive the readers.
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
    /// Queues something that was unlinked before `epoch` began. Epochs must not decrease from call to call.
    pub fn push(&mut self, epoch: u64, item: T) {
        debug_assert!(self.waiting.back().is_none_or(|(last, _)| *last <= epoch), "epochs out of order");
        self.waiting.push_back((epoch, item));
    }

    /// Hands everything whose epoch is past to `free`.
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

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Everything that waits, whether its epoch is past or not. For teardown, when there are no readers any more.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.waiting.drain(..).map(|(_, item)| item)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

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
//! **What code takes for granted.** Code that is compiled for tables as they are holds addresses of what writers may retire
//! (and contents of what they may change). Whoever compiles it reads [`Domain::granted`] together with the tables; a
//! writer calls [`Domain::withdraw`] *before* it changes anything that such code may hold; a worker compares the number
//! once per batch, when it is online, and runs other code if it is not the same. This adds nothing to the proof above:
//! the addresses in the code are reachable through that number only, and `withdraw` is what unlinks them.
//!
//! Code that knows what entries say still looks others up in the table itself, so a batch that began before `withdraw` could meet
//! a new entry with what the old ones said. Before such a change a writer waits until those batches are over
//! ([`Domain::withdraw_and_wait`]); before changes after which the old code is right for what the table was, it need not.
//!
//! Threads: any number of writers; each [`Worker`] belongs to one thread. Tests: `reclaim/tests.rs`; all interleavings
//! of small cases in `tests/loom.rs`.

use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};
use std::collections::VecDeque;
use std::sync::Arc;

/// How long a writer waits for a batch to end.
#[cfg(not(loom))]
pub const STUCK: std::time::Duration = std::time::Duration::from_secs(1);

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
}

/// The workers and writers that share tables.
#[derive(Debug)]
pub struct Domain {
    epoch: AtomicU64,
    /// How often what code takes for granted was withdrawn.
    granted: AtomicU64,
    /// What exact tables that are made next hash with.
    #[cfg(not(loom))]
    seeds: [AtomicU64; 2],
    slots: Box<[Slot]>,
}

impl Domain {
    /// A domain for at most `max_workers` workers at a time.
    pub fn new(max_workers: usize) -> Arc<Domain> {
        let slot = |_| Slot { announced: AtomicU64::new(OFFLINE), taken: AtomicBool::new(false) };
        Arc::new(Domain {
            epoch: AtomicU64::new(OFFLINE + 1),
            granted: AtomicU64::new(0),
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

    /// The number under which code may take the tables as they are for granted; see the file's text.
    #[inline]
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Acquire)
    }

    /// From here on nothing that was taken for granted holds. A writer's, before it changes any of it.
    pub fn withdraw(&self) {
        self.granted.fetch_add(1, Ordering::AcqRel);
    }

    /// As [`withdraw`](Domain::withdraw); then waits until no batch runs that began before it, but for a worker that is stuck in one
    /// for longer than [`STUCK`]: then it is false.
    #[cfg(not(loom))]
    pub fn withdraw_and_wait(&self) -> bool {
        self.withdraw();
        let epoch = self.advance();
        let start = std::time::Instant::now();
        let mut looks = 0;
        while !self.is_past(epoch) && start.elapsed() < STUCK {
            // A batch takes some microseconds; but the worker may be without a processor.
            looks += 1;
            match looks {
                ..100 => std::hint::spin_loop(),
                _ => std::thread::sleep(std::time::Duration::from_micros(20)),
            }
        }
        self.is_past(epoch)
    }

    /// Begins a new epoch and returns it: what was unlinked before this call may be freed once
    /// [`is_past`](Domain::is_past) says so for the returned epoch.
    pub fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
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

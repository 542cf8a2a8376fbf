//! What one worker needs to run compiled code on a [`FastState`]: the context it passes, its place among the readers, its
//! clock and its random numbers.
//!
//! Rules for the worker: [`FastWorker::begin`] before each batch, [`FastWorker::quiescent`] between batches, when no
//! pointer into the state is held any more, and [`FastWorker::idle`] when no batch may come for a while: a worker that is
//! neither quiescent nor idle keeps everything that was deleted meanwhile from being freed.
//!
//! Threads: one, the worker's.
#![allow(unsafe_code)]

use super::{Cells, FastState};
use crate::calls::WorkerRuntime;
use abi::WorkerCtx;
use base::ids::{ExternId, TableId};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tables::Worker;

/// Microseconds by which the state's clock may lag behind a worker's: it is shared, so it is not written per batch.
const CLOCK_GRAIN_US: u64 = 1000;

/// One worker's membership. At most one per worker number at a time.
pub struct FastWorker {
    state: Arc<FastState>,
    reader: Worker,
    online: bool,
    /// Owned; compiled code and the runtime's calls get at it through `ctx`.
    runtime: *mut WorkerRuntime,
    ctx: Box<WorkerCtx>,
    /// What `ctx.place` points at.
    place: Arc<AtomicU64>,
    /// What `ctx.counters` points at.
    _counters: Box<[*mut [u64; 2]]>,
}

// SAFETY: the pointers lead to memory that the worker owns or that `state` keeps alive; nothing is bound to a thread.
unsafe impl Send for FastWorker {}

impl FastState {
    /// What worker number `worker` runs packets with; `None` if there is no such number, or it is taken.
    pub fn worker(self: &Arc<FastState>, worker: usize) -> Option<FastWorker> {
        let table_counters = self.table_counters.get(worker)?.as_ptr().cast();
        if self.taken[worker].swap(true, Ordering::Acquire) {
            return None;
        }
        let reader = self.domain.register_as(worker as u32).expect("the domain has a place for each worker");
        let base = |cells: &Cells| match cells {
            Cells::Counters(counters) => counters.of_worker(worker),
            _ => ptr::null_mut(),
        };
        let actions = self.actions.iter().map(|counters| counters.of_worker(worker));
        let counters: Box<[*mut [u64; 2]]> = self.cells.iter().map(base).chain(actions).collect();
        let meters = |cells: &Cells| match cells {
            Cells::Meters(meters) => Some(Arc::clone(meters)),
            _ => None,
        };
        let meters = self.cells.iter().map(meters).collect();
        let runtime = WorkerRuntime::new(worker, meters, Arc::clone(&self.hashes), Arc::clone(&self.messages));
        let runtime = Box::into_raw(Box::new(runtime));
        let place = Arc::new(AtomicU64::new(0));
        let ctx = Box::new(WorkerCtx {
            counters: counters.as_ptr(),
            table_counters,
            runtime: runtime.cast(),
            worker: worker as u32,
            flags: 0,
            place: place.as_ptr(),
        });
        Some(FastWorker { state: Arc::clone(self), reader, online: false, runtime, ctx, place, _counters: counters })
    }
}

/// What a flow cache counts for packets that it has kept from the code of worker `worker`, on that worker's thread.
impl FastState {
    /// Packets at a cell of a counter; nothing if there is no such cell.
    pub(crate) fn count_packets(&self, worker: usize, counter: ExternId, cell: u64, packets: u64, bytes: u64) {
        if let Some(Cells::Counters(counters)) = self.cells.get(counter.index()) {
            counters.count_many(worker, cell, packets, bytes);
        }
    }

    /// Lookups of a table that have hit, or missed.
    pub(crate) fn count_lookups(&self, worker: usize, table: TableId, is_hit: bool, packets: u64) {
        let cells = self.table_counters.get(worker).and_then(|cells| cells.get(table.index()));
        if let Some(cells) = cells {
            // Nobody else writes there.
            let cell = &cells[usize::from(!is_hit)];
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(packets), Ordering::Relaxed);
        }
    }
}

impl FastWorker {
    /// What compiled code is called with, between [`begin`](FastWorker::begin) and
    /// [`quiescent`](FastWorker::quiescent).
    pub fn ctx(&self) -> *const WorkerCtx {
        &*self.ctx
    }

    /// The state.
    pub fn state(&self) -> &Arc<FastState> {
        &self.state
    }

    /// Where watched code says what it calls somebody for.
    pub fn report_to(&mut self, place: &Arc<AtomicU64>) {
        self.ctx.place = place.as_ptr();
        self.place = Arc::clone(place);
    }

    /// A batch begins, at this time.
    #[inline]
    pub fn begin(&mut self, now_us: u64) {
        if !self.online {
            self.reader.online();
            self.online = true;
        }
        // SAFETY: the runtime is ours, and no call runs now.
        unsafe { (*self.runtime).now_us = now_us };
        if now_us >= self.state.now_us() + CLOCK_GRAIN_US {
            self.state.set_time(now_us);
        }
    }

    /// An entry's code has returned.
    #[inline]
    pub fn end(&mut self) {
        // SAFETY: the runtime is ours, and no call runs now.
        unsafe { (*self.runtime).settle() };
    }

    /// The batch is over: no pointer into the state is held.
    #[inline]
    pub fn quiescent(&mut self) {
        if self.online {
            self.reader.quiescent();
        }
    }

    /// As [`quiescent`](FastWorker::quiescent), behind `settle`, which may count at cells of entries that were deleted in the batch.
    #[inline]
    pub fn quiescent_behind(&mut self, settle: impl FnOnce()) {
        match self.online {
            true => self.reader.quiescent_behind(settle),
            false => settle(),
        }
    }

    /// As [`quiescent`](FastWorker::quiescent), and nothing waits for this worker until it begins the next batch.
    pub fn idle(&mut self) {
        if self.online {
            self.reader.offline();
            self.online = false;
        }
    }

    /// Starts the worker's random numbers anew.
    pub fn seed(&mut self, seed: u64) {
        // SAFETY: the runtime is ours, and no call runs now.
        unsafe { (*self.runtime).seed(seed) };
    }
}

impl Drop for FastWorker {
    fn drop(&mut self) {
        // SAFETY: it came from `Box::into_raw`, and no compiled code runs with it any more.
        drop(unsafe { Box::from_raw(self.runtime) });
        self.reader.offline();
        // `reader` gives its place back only after this; there are twice as many as workers.
        self.state.taken[self.ctx.worker as usize].store(false, Ordering::Release);
    }
}

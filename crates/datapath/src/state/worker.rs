//! What one worker needs to run compiled code on a [`FastState`]: the context it passes, its registration as a
//! reader, its clock and its random numbers.
//!
//! Rules for the worker: call [`FastWorker::begin`] before each batch, [`FastWorker::quiescent`] between batches,
//! when it holds no pointer into the state, and [`FastWorker::idle`] when no batch may follow for a while. Until one
//! of the latter two, everything deleted meanwhile is kept from being freed.
//!
//! Threads: the worker's alone.
#![allow(unsafe_code)]

use super::{Cells, FastState};
use crate::calls::WorkerRuntime;
use abi::WorkerCtx;
use base::ids::{ExternId, TableId};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tables::Worker;

/// How far the state's clock may lag behind a worker's, in microseconds: the clock is shared, so it is not written in
/// every batch.
const CLOCK_GRAIN_US: u64 = 1000;

/// One worker's registration with a state. At most one per worker number at a time.
pub struct FastWorker {
    state: Arc<FastState>,
    reader: Worker,
    online: bool,
    /// Owned; compiled code and runtime calls access it through `ctx`.
    runtime: *mut WorkerRuntime,
    ctx: Box<WorkerCtx>,
    /// The target of `ctx.place`.
    place: Arc<AtomicU64>,
    /// The target of `ctx.counters`.
    _counters: Box<[*mut [u64; 2]]>,
}

// SAFETY: the pointers point to memory that the worker owns or that `state` keeps alive; nothing is bound to a
// thread.
unsafe impl Send for FastWorker {}

impl FastState {
    /// Registers worker number `worker`; `None` if the number is out of range or taken.
    pub fn worker(self: &Arc<FastState>, worker: usize) -> Option<FastWorker> {
        let table_counters = self.table_counters.get(worker)?.as_ptr().cast();
        if self.taken[worker].swap(true, Ordering::Acquire) {
            return None;
        }
        let reader = self.domain.register_as(worker as u32).expect("the domain has a place for each worker");
        let base = |cells: &Cells| match cells {
            Cells::Counters(counters) => counters.of_worker(worker),
            Cells::Meters(meters) => meters.counts_of_worker(worker),
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

/// Counting for packets that a flow cache handled in place of compiled code; to be called on the thread of worker
/// `worker`.
impl FastState {
    /// Adds packets to a cell of a counter; ignored if there is no such cell.
    pub(crate) fn count_packets(&self, worker: usize, counter: ExternId, cell: u64, packets: u64, bytes: u64) {
        if let Some(Cells::Counters(counters)) = self.cells.get(counter.index()) {
            counters.count_many(worker, cell, packets, bytes);
        }
    }

    /// Adds hits or misses of a table.
    pub(crate) fn count_lookups(&self, worker: usize, table: TableId, is_hit: bool, packets: u64) {
        let cells = self.table_counters.get(worker).and_then(|cells| cells.get(table.index()));
        if let Some(cells) = cells {
            // This worker is the only writer.
            let cell = &cells[usize::from(!is_hit)];
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(packets), Ordering::Relaxed);
        }
    }
}

impl FastWorker {
    /// The context to call compiled code with, between [`begin`](FastWorker::begin) and
    /// [`quiescent`](FastWorker::quiescent).
    pub fn ctx(&self) -> *const WorkerCtx {
        &*self.ctx
    }

    /// The state.
    pub fn state(&self) -> &Arc<FastState> {
        &self.state
    }

    /// Sets where watched code stores its position before it calls the runtime.
    pub fn report_to(&mut self, place: &Arc<AtomicU64>) {
        self.ctx.place = place.as_ptr();
        self.place = Arc::clone(place);
    }

    /// Begins a batch at time `now_us`; brings the worker online.
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

    /// To be called after each call of compiled code.
    #[inline]
    pub fn end(&mut self) {
        // SAFETY: the runtime is ours, and no call runs now.
        unsafe { (*self.runtime).settle() };
    }

    /// Marks a quiescent point after a batch: no pointer into the state is held.
    #[inline]
    pub fn quiescent(&mut self) {
        if self.online {
            self.reader.quiescent();
        }
    }

    /// As [`quiescent`](FastWorker::quiescent), after calling `settle`, which may count in cells of entries that were
    /// deleted during the batch.
    #[inline]
    pub fn quiescent_behind(&mut self, settle: impl FnOnce()) {
        match self.online {
            true => self.reader.quiescent_behind(settle),
            false => settle(),
        }
    }

    /// As [`quiescent`](FastWorker::quiescent), and goes offline: no writer waits for this worker until its next
    /// batch.
    pub fn idle(&mut self) {
        if self.online {
            self.reader.offline();
            self.online = false;
        }
    }

    /// Seeds the worker's random number generator.
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
        // `reader` releases its place only after this; there are more places than workers.
        self.state.taken[self.ctx.worker as usize].store(false, Ordering::Release);
    }
}

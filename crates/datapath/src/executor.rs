//! The [`Executor`] trait: what runs packets, machine code or an interpreter.
//!
//! The replication engine is written once against [`Executor`], so `sluice stf --engine all` compares everything
//! below it: parsing, matching, actions, deparsing, state.

use abi::Batch;
use ir::EntryKind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Runs batches through an entry point of the program. One per worker.
pub trait Executor: Send {
    /// Runs all packets of the batch to their fate.
    ///
    /// Descriptors are as `abi::PacketDesc` says: for [`EntryKind::Ingress`] slots start at zero and intrinsics come
    /// from the descriptor; for other entry points all slots come from `record`. The program must have this entry
    /// point.
    fn run(&mut self, entry: EntryKind, batch: &mut Batch);

    /// Marks a quiescent point between batches: this worker holds no reference to any table entry.
    fn quiescent(&mut self);

    /// As `quiescent`, after calling `settle`, which may still count in cells of entries that were deleted during the
    /// batch.
    fn quiescent_behind(&mut self, settle: &mut dyn FnMut()) {
        settle();
        self.quiescent();
    }

    /// Begins a batch in which `run` may not be called: entries deleted from here on are kept until the worker is
    /// quiescent.
    fn begin(&mut self, _now_us: u64) {}

    /// As `quiescent`, and goes offline: no writer waits for this worker until its next batch.
    fn idle(&mut self);

    /// Sets where watched code stores its position before it calls the runtime; ignored by executors without such
    /// code.
    fn report_to(&mut self, _place: &Arc<AtomicU64>) {}
}

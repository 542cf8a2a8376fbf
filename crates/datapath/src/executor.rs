//! What runs packets: machine code, or the interpreter on raw or optimised IR.
//!
//! The replication engine is written once against [`Executor`], so that `sluice stf --engine all` compares what is below
//! it: parsing, matching, acting, deparsing, state.

use abi::Batch;
use ir::EntryKind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Runs batches through one way in.
pub trait Executor: Send {
    /// Runs all packets of the batch to their fate.
    ///
    /// Descriptors are as `abi::PacketDesc` says: for [`EntryKind::Ingress`] slots start at zero and intrinsics come
    /// from the descriptor; for the others all slots come from `record`. The program has an entry of this kind.
    fn run(&mut self, entry: EntryKind, batch: &mut Batch);

    /// Between batches: this worker holds no reference to any entry.
    fn quiescent(&mut self);

    /// As `quiescent`, behind `settle`, which may still count at cells of entries that were deleted in the batch.
    fn quiescent_behind(&mut self, settle: &mut dyn FnMut()) {
        settle();
        self.quiescent();
    }

    /// Begins a batch for which `run` may not be called: what is deleted from here on is kept until the worker is quiescent.
    fn begin(&mut self, _now_us: u64) {}

    /// As `quiescent`, and no batch may come for a while: nobody waits for this worker until then.
    fn idle(&mut self);

    /// From now on, where watched code says what it calls somebody for; nothing where there is none.
    fn report_to(&mut self, _place: &Arc<AtomicU64>) {}
}

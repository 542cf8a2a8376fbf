//! The `repr(C)` contract between compiled pipelines and the runtime, and the engine-neutral contract for their state.
//!
//! - [`packet`]: a packet, a batch and a worker as compiled code sees them.
//! - [`table`]: the memory layout of keys, and the description of a table that is bound into compiled code.
//! - [`entry`]: the memory layout of entries.
//! - [`shape`]: a snapshot of table contents, from which specialised code is compiled.
//! - [`calls`]: the functions that compiled code may call.
//! - [`state`]: the operations of the control plane on a pipeline's state, implemented once by the fast tables and once
//!   by the oracle's linear ones.
//! - [`flows`]: flow processors, which decide about packets in place of a program's tables.
//!
//! Nothing here computes. The sizes of [`PacketDesc`], [`WorkerCtx`] and [`TableHandle`] are checked at compile time.

pub mod calls;
pub mod entry;
pub mod flows;
pub mod packet;
pub mod shape;
pub mod state;
pub mod table;

pub use calls::RuntimeCalls;
pub use entry::{EntryHeader, EntryLayout, EntryParts};
pub use packet::{BATCH_MAX, Batch, FateCode, PacketDesc, PipelineFn, WorkerCtx};
pub use shape::{EntryShape, Prefilter, PrefilterColumn, ResultEntries, Rule, Shapes, TableShape};
pub use state::{Phase, PipelineState, StateError};
pub use table::DynamicBinding;
pub use table::{Bindings, EngineKind, ExactLayout, ExternBinding, KeyLayout, TableBinding, TableHandle};
pub use table::{register_cell_bytes, register_stride_bytes};

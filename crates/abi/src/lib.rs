//! The `repr(C)` contract between compiled pipelines and the runtime, and the engine-neutral contract for their state.
//!
//! - [`packet`]: what compiled code sees of a packet, a batch, a worker.
//! - [`table`]: how keys lie in memory, and what compiled code is told about a table when it is made.
//! - [`entry`]: how entries lie in memory.
//! - [`shape`]: what tables are like at one moment, for code that is made for them as they are.
//! - [`calls`]: the functions that compiled code may call.
//! - [`state`]: what the control plane may ask of a pipeline's state, implemented once by the fast tables and once by
//!   the oracle's naive ones.
//! - [`flows`]: what decides about packets in the place of a program's tables.
//!
//! Nothing here computes; every layout has a compile-time size check in its file.

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

//! Workers, replication, extern state; loading and replacing programs.
//!
//! | module | holds |
//! | --- | --- |
//! | [`switch`] | the running switch: ports, workers, the program they run |
//! | `worker` | one thread: receive, run, send |
//! | `queues` | packets that wait in queues of ports |
//! | [`engine`] | batches and replication: clone, multicast, resubmit, recirculate |
//! | [`executor`] | what runs a batch: machine code or the interpreter |
//! | [`tiers`] | machine code as a backend |
//! | `lowered` | machine-level IR as a backend, compiled or interpreted |
//! | [`state`], [`calls`] | the state and the runtime of machine code |
//! | [`oracle`] | the interpreter as a backend |
//! | [`pipeline`] | a loaded program with its state |
//! | [`local`] | a pipeline without threads, for scripts, traces and tests |
//! | [`replication`] | multicast groups and clone sessions |
//! | [`switches`] | all optimisations by name, to leave some out |
//! | [`bench`] | times a pipeline from memory |
//! | `flow_cache` | what the pipeline does with frames, known before they are parsed |
//! | [`snapshot`] | the state of a running pipeline for the interpreter |
//! | [`tap`] | copies of packets for captures |
//! | `watch` | actions' counts and where the cycles go, while somebody watches |
//! | [`memory`] | what the allocator must not do while workers run |
//! | [`drops`] | every way a packet can end, counted |
//!
//! **Invariant:** on the common path no packet allocates, locks or logs.

pub mod calls;
pub mod descriptors;
pub mod drops;
pub mod engine;
pub mod executor;
mod flow_cache;
mod hold;
pub mod local;
mod lowered;
pub mod memory;
pub mod oracle;
pub mod pipeline;
mod queues;
pub mod replication;
pub mod snapshot;
pub mod state;
pub mod switch;
pub mod switches;
pub mod tap;
pub mod tiers;
pub mod timing;
mod watch;
mod worker;

pub use abi::flows::CacheUse;
pub use flow_cache::{CacheStats, FlowCache};
pub use hold::Held;
pub use local::{Local, Sent};
pub use pipeline::{
    ActionInfo, Backend, CodeInfo, EngineKind, Limit, PhaseInfo, Pipeline, PipelineError, Spot, check_code, listing,
    load, load_bridge, load_keeping, load_with, mir_text, updates_registers,
};
pub use state::Keep;
pub use switch::{LinkInfo, NewPort, PortOf, QueueInfo, QueuesOf, Switch, SwitchConfig, SwitchError, TenantInfo};
pub use switches::{CodeOptions, Optimisation, Without, optimisations};
pub use tables::reclaim::ACKNOWLEDGE_MAX;
pub use tiers::Specialise;
pub use watch::{RegionCycles, Watched};
pub use worker::{Event, Idle, SLEEP_MAX, Sharing, WorkerLoad};

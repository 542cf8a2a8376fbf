//! Workers, replication, extern state; loading and replacing programs.
//!
//! | module | holds |
//! | --- | --- |
//! | [`switch`] | the running switch: ports, workers, the program they run |
//! | `worker` | one thread: receive, run, send |
//! | `queues` | egress queues of ports: where packets wait to be sent |
//! | [`engine`] | runs batches; replication: clone, multicast, resubmit, recirculate |
//! | [`executor`] | what runs a batch: machine code or the interpreter |
//! | [`tiers`] | machine code as a backend: generic, baseline and specialised code |
//! | `lowered` | machine-level IR as a backend, compiled or interpreted |
//! | [`state`], [`calls`] | the state of machine code, and the runtime functions that it calls |
//! | [`oracle`] | the interpreter as a backend, for comparison |
//! | [`pipeline`] | a loaded program: IR, backend and state |
//! | [`local`] | a pipeline without worker threads, for scripts, traces and tests |
//! | [`replication`] | multicast groups and clone sessions |
//! | [`switches`] | all optimisations by name, so that each can be switched off |
//! | [`timing`] | measures a pipeline on packets from memory |
//! | `flow_cache` | megaflows in front of the parser: known packets bypass the pipeline |
//! | [`snapshot`] | copies the state of a running pipeline for the interpreter |
//! | [`tap`] | copies packets for captures |
//! | `watch` | action counts and a sampling profiler, active only while someone watches |
//! | `hold` | stops all workers between two bursts |
//! | [`memory`] | allocator settings for running workers; memory budgets |
//! | [`drops`] | drop reasons and their counters |
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

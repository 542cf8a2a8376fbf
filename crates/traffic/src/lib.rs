//! The queueing core of the traffic manager: queues of a port, schedulers and shapers, drop policies, a shared buffer.
//!
//! ```text
//!  Config ─check▶ PortQueues ◀offer── packets of a class          Buffer: bytes of all ports,
//!                   │ Queue: limit, RED, ECN ── reserve ─────────▶ a share for each tenant
//!                   │ Tree: strict, weighted, shapers, minimum rates
//!                   └──take▶ the next packet to send
//! ```
//!
//! Pure data structures: no thread, no clock (callers pass the time in nanoseconds), no I/O, and no knowledge of what
//! an item is. Only [`ecn`] looks at frames. Every structure is bounded; an inconsistent configuration is refused, with
//! the names of the settings ([`Config::check`]).

mod bucket;
mod buffer;
mod check;
mod clock;
mod config;
pub mod ecn;
mod histogram;
mod port;
mod queue;
mod red;
mod statistics;
mod tenants;
mod tree;
mod units;

pub use buffer::{Buffer, BufferConfig, CAPACITY_MAX, Share, TENANTS_MAX, Tenant, TenantStatistics};
pub use check::Problem;
pub use config::{
    BURST_MAX, CLASSES, Config, DEFAULT_PACKETS, DEPTH_MAX, Ecn, Kind, Limit, MTU_MAX, NODES_MAX, Node, PACKETS_MAX,
    PacketShaper, Policy, QUEUES_MAX, Queue, RATE_MAX, Red, Shaper, WEIGHT_MAX, check_name,
};
pub use histogram::Histogram;
pub use port::{Offered, PortQueues, Refused, Taken};
pub use red::probability as red_probability;
pub use statistics::{Count, Dropped, QueueStatistics, Reason};
pub use tenants::{TenantConfig, TenantLimit, Tenants};
pub use units::{Level, Rate, Size, Span, UnitError};

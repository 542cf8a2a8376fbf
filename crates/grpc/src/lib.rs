//! P4Runtime over gRPC: the only crate with an async runtime.
//!
//! [`serve`] runs the service on a thread of its own; a [`Handle`] shares the control plane between it, the command line
//! and whoever polls the switch. `convert` turns messages into the control plane's values and back, `status` errors into
//! statuses; the protocol's rules are in `control`.

pub mod access;
pub mod admin;
mod admission;
pub mod audit;
mod authorise;
pub mod budget;
mod capabilities;
pub mod client;
pub mod convert;
mod events;
mod listen;
pub mod metrics;
pub mod peer;
mod places;
pub mod proto;
mod reads;
pub mod rpcs;
mod serve;
pub mod server;
mod socket;
pub mod status;
pub mod tls;
pub mod wire;

pub use listen::ConnectionLimits;
pub use serve::{MEMORY_BYTES_MAX, MESSAGE_BYTES_MAX, ServeOptions, Server, serve, serve_on, serve_with};
pub use server::{Handle, LostEvents};
pub use socket::Socket;

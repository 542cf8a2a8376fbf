//! P4Runtime over gRPC: the only crate with an async runtime.
//!
//! [`serve`] runs the service on a thread of its own; a [`Handle`] shares the control plane between it, the command line
//! and whoever polls the switch. `services` are the generated clients and servers, `status` turns errors into statuses;
//! messages and their conversion are in `messages`, the protocol's rules in `control`.

pub mod access;
pub mod admin;
mod admission;
pub mod audit;
mod authorise;
pub mod budget;
mod capabilities;
pub mod client;
mod events;
mod handle;
mod listen;
pub mod metrics;
pub mod peer;
mod reads;
pub mod rpcs;
mod sender;
mod serve;
pub mod server;
pub mod services;
mod socket;
pub mod status;
pub mod tls;
pub mod wire;

pub use handle::{Handle, LostEvents};
pub use listen::ConnectionLimits;
pub use serve::{MEMORY_BYTES_MAX, MESSAGE_BYTES_MAX, ServeOptions, Server, serve, serve_on, serve_with};
pub use socket::Socket;

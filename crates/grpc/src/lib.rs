//! P4Runtime over gRPC: the only crate with an async runtime.
//!
//! [`serve`] runs the service on a thread of its own. A [`Handle`] shares the control plane between the service, the
//! command line and the thread that polls the switch. `services` holds the generated clients and servers, and `status`
//! turns errors into statuses. Messages and their conversion are in `messages`, the protocol's semantics in `control`.

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

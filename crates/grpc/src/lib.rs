//! P4Runtime over gRPC: the only crate with an async runtime.
//!
//! [`serve`] runs the service on a thread of its own; a [`Handle`] shares the control plane between it, the command line
//! and whoever polls the switch. `convert` turns messages into the control plane's values and back, `status` errors into
//! statuses; the protocol's rules are in `control`.

pub mod admin;
mod capabilities;
pub mod client;
pub mod convert;
pub mod metrics;
pub mod proto;
mod reads;
pub mod rpcs;
mod serve;
pub mod server;
pub mod status;
pub mod tls;

pub use serve::{ServeOptions, Server, serve, serve_with};
pub use server::{Handle, LostEvents};

//! bmv2's thrift services for a switch, used by `simple_switch_CLI` and scripts for bmv2.
//!
//! ```text
//!   client ═TCP═▶ server: places, deadlines ─▶ wire: bounded messages ─▶ service: methods ─▶ control: validation
//! ```
//!
//! The services are bmv2's `standard`, `simple_pre`, `simple_pre_lag` and `simple_switch`, over the multiplexed
//! protocol. Calls are converted to typed requests of `control` (names become ids of the P4Info), so validation, the
//! journal and the audit log are the same for all clients. State that only bmv2 has is kept here: handles of entries
//! (`handles`) and nodes of multicast groups (`multicast`).
//!
//! **Invariant:** no other crate uses thrift. This one accesses files and ports of the machine through [`Switch`] only.
//!
//! The protocol has neither encryption nor authentication: every client that can connect has an operator's rights.

mod arrays;
mod device;
mod fault;
pub mod fuzz;
mod handles;
mod learning;
mod multicast;
mod notices;
mod profiles;
mod program;
pub mod server;
mod service;
pub mod switch;
mod tables;
mod value_sets;
pub mod wire;

pub use handles::HandleLookup;
pub use learning::Learning;
pub use multicast::Mirrored;
pub use notices::{Ageing, PortNotices};
pub use server::Server;
pub use switch::{Port, QueueSetting, Record, Switch};

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Starts the services of a switch; `learning` has its learning lists, if it sends digests.
///
/// # Errors
/// If the address cannot be bound, or the system refuses a thread.
pub fn serve(address: SocketAddr, switch: Arc<dyn Switch>, learning: Option<Arc<Learning>>) -> std::io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    let port = listener.local_addr()?.port();
    let services = Arc::new(service::Services::new(switch, port, learning));
    Server::start(listener, services, (server::CONNECTIONS_MAX, server::PATIENCE))
}

//! bmv2's thrift services for a switch: what `simple_switch_CLI` and scripts for bmv2 speak.
//!
//! ```text
//!   client ══TCP══▶ server: places, patience ─▶ wire: bounded messages ─▶ service: methods ─▶ control: checked as P4Runtime's are
//! ```
//!
//! The services are bmv2's `standard`, `simple_pre`, `simple_pre_lag` and `simple_switch`, behind the multiplexed protocol. Requests become
//! the typed requests of `control` (names become ids of the P4Info), so that validation, the journal and the audit log are the same for
//! all clients. What bmv2 has and the control plane has not is kept here: handles of entries (`handles`) and nodes of multicast groups
//! (`multicast`).
//!
//! **Invariant:** the only crate that knows thrift; no file and no port of the machine but by [`Switch`].
//!
//! The protocol has neither encryption nor authentication: whoever can connect is an operator.

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

/// Serves a switch; its digest messages are those of `learning`, if it sends any.
pub fn serve(address: SocketAddr, switch: Arc<dyn Switch>, learning: Option<Arc<Learning>>) -> std::io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    let port = listener.local_addr()?.port();
    let services = Arc::new(service::Services::new(switch, port, learning));
    Server::start(listener, services, (server::CONNECTIONS_MAX, server::PATIENCE))
}

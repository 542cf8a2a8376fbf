//! An OpenFlow bridge: flow tables, translation of packets, a flow cache, and controller connections.
//!
//! ```text
//! controllers ─▶ connection ─▶ tables, groups, meters ──read by──▶ translate ─▶ effects ─▶ cache ◀─ packets
//! ```
//!
//! Protocols come from a P4 program (`ir::OpenFlow`): no file here names a header. Flows match and write the
//! program's fields. The program's actions push, pop and decrement headers; [`vm`] runs them on a packet's record.

mod admit;
pub mod bridge;
pub mod bundle;
pub mod cache;
mod change;
pub mod classifier;
pub mod connection;
pub mod controllers;
pub mod effects;
pub mod expiry;
pub mod features;
pub mod flow;
pub mod flow_mod;
mod front;
mod groups;
pub mod host;
pub mod keep;
pub mod key;
mod memory;
mod meters;
mod monitor;
pub mod normal;
pub mod pending;
mod plain;
mod port_mod;
pub mod ports;
pub mod processor;
mod recent;
mod references;
mod settings;
mod shapes;
mod stats;
pub mod tables;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod translate;
mod turns;
mod view;
pub mod vm;
mod waiting;

pub use bridge::{Bridge, BridgeOptions};
pub use connection::{Connection, ConnectionOptions};
pub use controllers::PacketInEvent;
pub use flow_mod::Origin;
pub use host::{Host, NotInjected};

/// The default P4 program of a bridge, `p4/openflow.p4`, which defines its protocols.
pub const PROTOCOLS: &str = include_str!("../p4/openflow.p4");

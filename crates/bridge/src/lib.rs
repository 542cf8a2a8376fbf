//! An OpenFlow bridge.
//!
//! ```text
//! controllers ─▶ connection ─▶ tables, groups, meters ──read by──▶ translate ─▶ effects ─▶ cache ◀─ packets (abi::flows)
//! ```
//!
//! Protocols are the P4 program's (`ir::OpenFlow`): no file here names a header. What a flow can match and write are its fields;
//! what pushes, pops and decrements are actions of the program, which [`vm`] runs on a packet's record.

mod admit;
pub mod bridge;
mod change;
pub mod controllers;
pub mod expiry;
pub mod features;
pub mod flow;
pub mod flow_mod;
mod groups;
pub mod host;
mod meters;
mod monitor;
pub mod ports;
mod references;
pub mod tables;

pub use bridge::{Bridge, BridgeOptions};

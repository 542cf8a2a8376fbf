//! The P4Runtime control plane as a state machine that does no I/O.
//!
//! [`Control`] takes typed requests ([`entity`], [`control`]), answers with typed errors ([`error`]) and returns the
//! notifications that its caller must send to clients. Each kind of entity has one file, which implements the P4Runtime
//! specification's section on it. `schema` maps P4Runtime ids to the objects of the loaded program;
//! [`forwarding::Target`] is the interface that a switch implements.
//!
//! **Invariant:** nothing here depends on sockets, async or protobuf.

mod adopt;
pub mod arbitration;
mod arrays;
pub mod bytes;
mod calculations;
mod calls;
pub mod compare;
pub mod control;
mod data;
pub mod digests;
pub mod entity;
pub mod error;
pub mod forwarding;
mod idle;
pub mod journal;
mod matches;
pub mod objects;
pub mod packets;
pub mod preparation;
mod profiles;
pub mod reads;
pub mod reconcile;
mod replication;
pub mod restore;
pub mod roles;
pub mod schema;
mod tables;
pub mod translate;
mod value_sets;
pub mod writes;

pub use control::Control;
pub use error::{Code, Error, Result};

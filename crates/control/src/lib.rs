//! The control plane as a state machine without sockets.
//!
//! [`Control`] takes typed requests ([`entity`], [`control`]) and answers with typed errors ([`error`]); what must be told
//! to clients it returns. One file per kind of entity says what the P4Runtime specification wants of it; `schema` is
//! where control-plane ids meet the loaded program, `pipeline` what the switch must offer.
//!
//! **Invariant:** nothing here knows sockets, async, or protobuf.

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

pub use control::Control;
pub use error::{Code, Error, Result};

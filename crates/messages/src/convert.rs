//! Conversion between protobuf messages and the control plane's values.
//!
//! Nothing is validated here: a missing message becomes `None`, an unknown enum number becomes the "unspecified" value,
//! and `control` reports the error.

mod calculation;
mod entity_in;
mod entity_out;
mod ids;
pub mod p4info;
mod role_config;
mod stream;

pub use entity_in::{entity, read_entities, write_request};
pub use entity_out::entity_to_proto;
pub use ids::{election_id, role};
pub use role_config::role_config;
pub use stream::{event_to_proto, stream_request};

//! Between messages and the control plane's values.
//!
//! Nothing is decided here: a missing message becomes `None`, a number outside an enum becomes the "unspecified" value,
//! and `control` says what is wrong with that.

mod entity_in;
mod entity_out;
pub mod p4info;
mod role_config;
mod stream;

pub use entity_in::{entity, read_entities, write_request};
pub use entity_out::entity_to_proto;
pub use stream::{event_to_proto, stream_request};

pub use role_config::role_config;

use crate::proto::p4::v1 as pb;
use control::entity::{ElectionId, Role};

/// A 128-bit number.
pub fn election_id(id: Option<pb::Uint128>) -> Option<ElectionId> {
    id.map(|id| u128::from(id.high) << 64 | u128::from(id.low))
}

fn uint128(id: ElectionId) -> pb::Uint128 {
    pb::Uint128 { high: (id >> 64) as u64, low: id as u64 }
}

/// A role by name and by the older protocol's number.
pub fn role(name: String, id: u64) -> Role {
    Role { name, id }
}

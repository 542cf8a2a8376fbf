//! Election ids and roles.

use crate::proto::p4::v1 as pb;
use control::entity::{ElectionId, Role};

/// Converts a 128-bit election id.
pub fn election_id(id: Option<pb::Uint128>) -> Option<ElectionId> {
    id.map(|id| u128::from(id.high) << 64 | u128::from(id.low))
}

/// Converts a 128-bit election id to a message.
pub(super) fn uint128(id: ElectionId) -> pb::Uint128 {
    pb::Uint128 { high: (id >> 64) as u64, low: id as u64 }
}

/// A role from its name and its deprecated number.
pub fn role(name: String, id: u64) -> Role {
    Role { name, id }
}

//! The sender of a request: its device, role and election id, for authorisation and audit records.
//!
//! Tests: in `authorise`, against the decoded messages.

use crate::access::{About, role_name};
use control::entity::{ElectionId, Role};
use messages::convert;
use messages::p4::v1 as pb;

/// The device and role of a request.
pub(crate) fn about(device: u64, role: &Role) -> About {
    About { device: Some(device), role: Some(role_name(&role.name, role.id)) }
}

/// `device 1, role sdn, election id 7`.
pub(crate) fn sender(device: u64, role: &Role, election_id: Option<ElectionId>) -> String {
    let role = role_name(&role.name, role.id);
    let id = election_id.map(|id| format!(", election id {id}")).unwrap_or_default();
    format!("device {device}, role {role}{id}")
}

/// The fields of a writing request that identify its sender, read by the same decoder as the whole message: for
/// refusing a large request before it is decoded. `WriteRequest` and `SetForwardingPipelineConfigRequest` have them
/// under the same field numbers.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Sender {
    #[prost(uint64, tag = "1")]
    pub(crate) device_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) role_id: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) election_id: Option<pb::Uint128>,
    #[prost(string, tag = "6")]
    pub(crate) role: String,
}

impl Sender {
    pub(crate) fn role(&self) -> Role {
        convert::role(self.role.clone(), self.role_id)
    }

    pub(crate) fn about(&self) -> About {
        about(self.device_id, &self.role())
    }

    pub(crate) fn described(&self) -> String {
        sender(self.device_id, &self.role(), convert::election_id(self.election_id))
    }
}

//! Capabilities: which optional parts of P4Runtime this server supports, so that controllers need not try (P4Runtime
//! specification, "Capabilities RPC"). Tests: `tests/loopback.rs`.

use control::arbitration::{CLIENTS_MAX, ROLES_MAX};
use control::control::UPDATES_MAX;
use messages::p4::v1 as pb;
use messages::sluice::v1::Capabilities;
use prost::Message;

/// The type URL of the message in [`experimental`].
const TYPE_URL: &str = "type.googleapis.com/sluice.v1.Capabilities";

/// The answer to a `Capabilities` request.
pub fn response(api_version: &str) -> pb::CapabilitiesResponse {
    pb::CapabilitiesResponse { p4runtime_api_version: api_version.to_string(), experimental: Some(experimental()) }
}

fn experimental() -> prost_types::Any {
    use pb::set_forwarding_pipeline_config_request::Action;
    use pb::write_request::Atomicity;
    let atomicities = [Atomicity::ContinueOnError, Atomicity::RollbackOnError, Atomicity::DataplaneAtomic];
    let actions =
        [Action::Verify, Action::VerifyAndSave, Action::VerifyAndCommit, Action::Commit, Action::ReconcileAndCommit];
    let capabilities = Capabilities {
        server_version: env!("CARGO_PKG_VERSION").to_string(),
        atomicities: atomicities.map(i32::from).to_vec(),
        config_actions: actions.map(i32::from).to_vec(),
        updates_max: UPDATES_MAX as u64,
        streams_per_role_max: CLIENTS_MAX as u64,
        roles_max: ROLES_MAX as u64,
    };
    prost_types::Any { type_url: TYPE_URL.to_string(), value: capabilities.encode_to_vec() }
}

//! Authorisation of decoded requests: the device and role that a request names, and whether its sender may make it.
//!
//! Rights are checked on the same message that the service executes, never on a second parsing of its bytes: where two
//! decoders can disagree, a client can exploit the difference. Services access a request only through [`authorised`],
//! and a stream's claims go through [`Call::admit`]. The checks before decoding (`admission`) limit size and memory and
//! refuse early, but grant nothing.
//!
//! Threads: any. Tests: below (arbitrary bytes), and `tests/rights.rs` through a socket.

use crate::access::About;
use crate::admission::Call;
use crate::sender::{about, sender};
use crate::status;
use control::arbitration::ArbitrationRequest;
use control::entity::Role;
use messages::convert;
use messages::p4::v1 as pb;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::{Code, Request, Status};

/// A decoded request, for authorisation and audit records.
pub(crate) trait Subject {
    /// The device and role that it names.
    fn about(&self) -> About;
    /// A description, for the audit log.
    fn described(&self) -> String;
}

/// The message of a request and its call, if the sender may make it.
///
/// # Errors
///
/// PERMISSION_DENIED.
pub(crate) fn authorised<T: Subject>(mut request: Request<T>) -> Result<(T, Arc<Call>), Status> {
    // Every call passes the admission layer; one that did not has no rights.
    let call = request.extensions_mut().remove::<Arc<Call>>();
    let call = call.ok_or_else(|| status::new(Code::PermissionDenied, "the call came without its sender"))?;
    let message = request.into_inner();
    call.admit(message.about(), message.described())?;
    Ok((message, call))
}

/// The device and role of a claim to be primary.
pub(crate) fn about_claim(claim: &ArbitrationRequest) -> About {
    about(claim.device_id, &claim.role)
}

/// A description of a claim to be primary, for the audit log.
pub(crate) fn described_claim(claim: &ArbitrationRequest) -> String {
    sender(claim.device_id, &claim.role, claim.election_id) + ", claims to be primary"
}

#[allow(deprecated, reason = "older controllers give their role by number")]
fn writer_role(request: &pb::WriteRequest) -> Role {
    convert::role(request.role.clone(), request.role_id)
}

impl Subject for pb::WriteRequest {
    fn about(&self) -> About {
        about(self.device_id, &writer_role(self))
    }

    fn described(&self) -> String {
        use pb::entity::Entity as E;
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for update in &self.updates {
            let kind =
                ["UNSPECIFIED", "INSERT", "MODIFY", "DELETE"].get(update.r#type as usize).unwrap_or(&"UNSPECIFIED");
            let entity = match update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
                None => "nothing",
                Some(E::ExternEntry(_)) => "extern_entry",
                Some(E::TableEntry(_)) => "table_entry",
                Some(E::ActionProfileMember(_)) => "action_profile_member",
                Some(E::ActionProfileGroup(_)) => "action_profile_group",
                Some(E::MeterEntry(_)) => "meter_entry",
                Some(E::DirectMeterEntry(_)) => "direct_meter_entry",
                Some(E::CounterEntry(_)) => "counter_entry",
                Some(E::DirectCounterEntry(_)) => "direct_counter_entry",
                Some(E::PacketReplicationEngineEntry(_)) => "packet_replication_engine_entry",
                Some(E::ValueSetEntry(_)) => "value_set_entry",
                Some(E::RegisterEntry(_)) => "register_entry",
                Some(E::DigestEntry(_)) => "digest_entry",
            };
            *counts.entry((kind, entity)).or_default() += 1;
        }
        let counts = counts.into_iter().map(|((kind, entity), count)| format!(", {kind} {entity} x{count}"));
        sender(self.device_id, &writer_role(self), convert::election_id(self.election_id)) + &counts.collect::<String>()
    }
}

impl Subject for pb::ReadRequest {
    fn about(&self) -> About {
        about(self.device_id, &convert::role(self.role.clone(), 0))
    }

    fn described(&self) -> String {
        sender(self.device_id, &convert::role(self.role.clone(), 0), None)
    }
}

#[allow(deprecated, reason = "older controllers give their role by number")]
fn config_role(request: &pb::SetForwardingPipelineConfigRequest) -> Role {
    convert::role(request.role.clone(), request.role_id)
}

impl Subject for pb::SetForwardingPipelineConfigRequest {
    fn about(&self) -> About {
        about(self.device_id, &config_role(self))
    }

    fn described(&self) -> String {
        let action = pb::set_forwarding_pipeline_config_request::Action::try_from(self.action);
        let action = action.map_or("UNSPECIFIED", |action| action.as_str_name());
        let bytes = self.config.as_ref().map_or(0, |config| config.p4_device_config.len());
        let sender = sender(self.device_id, &config_role(self), convert::election_id(self.election_id));
        format!("{sender}, {action}, program of {bytes} bytes")
    }
}

impl Subject for pb::GetForwardingPipelineConfigRequest {
    fn about(&self) -> About {
        About { device: Some(self.device_id), role: None }
    }

    fn described(&self) -> String {
        format!("device {}", self.device_id)
    }
}

impl Subject for pb::CapabilitiesRequest {
    fn about(&self) -> About {
        // Device 0 is the server itself.
        About { device: Some(self.device_id).filter(|device| *device != 0), role: None }
    }

    fn described(&self) -> String {
        format!("device {}", self.device_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sender::Sender;
    use prost::Message;

    /// Fields with the message's field numbers, in any order and number, some of them malformed.
    fn arbitrary(random: &mut impl FnMut(u64) -> u64, depth: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..random(6) {
            let number = 1 + random(7);
            match random(5) {
                0 => bytes.extend([(number << 3) as u8, random(4) as u8]),
                1 if depth < 3 => {
                    let inner = arbitrary(random, depth + 1);
                    prost::encoding::encode_varint(number << 3 | 2, &mut bytes);
                    prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
                    bytes.extend(inner);
                }
                2 => bytes.extend([(number << 3 | 2) as u8, 1, b'a' + random(3) as u8]),
                3 => bytes.extend([(number << 3 | 2) as u8, 0]),
                _ if random(20) == 0 => bytes.push(random(256) as u8),
                _ => bytes.extend([(number << 3 | 2) as u8, 2, 8, 1 + random(3) as u8]),
            }
        }
        bytes
    }

    #[test]
    fn the_early_reading_of_a_sender_is_that_of_the_decoded_message_for_any_bytes() {
        let mut numbers = random::Random::new(1);
        let mut random = move |n: u64| numbers.below(n);
        let (mut writes, mut configs) = (0, 0);
        for _ in 0..50_000 {
            let bytes = arbitrary(&mut random, 0);
            if let Ok(whole) = pb::WriteRequest::decode(bytes.as_slice()) {
                let early = Sender::decode(bytes.as_slice()).unwrap();
                assert_eq!(early.about(), whole.about(), "{bytes:?}");
                assert_eq!(early.election_id, whole.election_id, "{bytes:?}");
                writes += u32::from(!whole.role.is_empty());
            }
            if let Ok(whole) = pb::SetForwardingPipelineConfigRequest::decode(bytes.as_slice()) {
                let early = Sender::decode(bytes.as_slice()).unwrap();
                assert_eq!(early.about(), whole.about(), "{bytes:?}");
                assert_eq!(early.election_id, whole.election_id, "{bytes:?}");
                configs += 1;
            }
        }
        assert!(writes > 1000 && configs > 1000, "{writes} {configs}");
    }

    #[test]
    fn a_write_is_described_with_its_role_and_what_it_changes() {
        let entity = pb::Entity { entity: Some(pb::entity::Entity::TableEntry(pb::TableEntry::default())) };
        let insert = pb::Update { r#type: pb::update::Type::Insert as i32, entity: Some(entity) };
        let request = pb::WriteRequest {
            device_id: 1,
            role: "sdn".into(),
            election_id: Some(pb::Uint128 { high: 0, low: 7 }),
            updates: vec![insert.clone(), insert, pb::Update { r#type: -1, entity: None }],
            ..Default::default()
        };
        let said = "device 1, role sdn, election id 7, INSERT table_entry x2, UNSPECIFIED nothing x1";
        assert_eq!(request.described(), said);
    }
}

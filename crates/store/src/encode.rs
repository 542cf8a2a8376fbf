//! Entities and configs as bytes: P4Runtime's messages, and ours of `sluice/v1/state.proto`.

use control::Error;
use control::entity::Entity;
use control::pipeline::ForwardingConfig;
use grpc::convert;
use grpc::proto::p4::config::v1::P4Info;
use grpc::proto::p4::v1 as pb;
use grpc::proto::sluice::v1 as state;
use prost::{DecodeError, Message};

/// An entity's value.
pub fn entity(entity: &Entity) -> Vec<u8> {
    convert::entity_to_proto(entity.clone()).encode_to_vec()
}

/// The entity of a value.
pub fn decode_entity(bytes: &[u8]) -> Result<Entity, String> {
    let message = pb::Entity::decode(bytes).map_err(|e| e.to_string())?;
    convert::entity(message).ok_or_else(|| Error::internal("it is of an unknown kind").message)
}

/// A config's value.
pub fn config(config: &ForwardingConfig) -> Vec<u8> {
    let ForwardingConfig { device_config, p4info, claims: _, cookie, name } = config.clone();
    state::KeptConfig { device_config, p4info, cookie, name }.encode_to_vec()
}

/// The config of a value.
pub fn decode_config(bytes: &[u8]) -> Result<ForwardingConfig, DecodeError> {
    let state::KeptConfig { device_config, p4info, cookie, name } = state::KeptConfig::decode(bytes)?;
    // Checked again when it is restored: the compiler may have become another meanwhile.
    let claims = match p4info.is_empty() {
        true => vec![],
        false => convert::p4info::claims(&P4Info::decode(p4info.as_slice())?),
    };
    Ok(ForwardingConfig { device_config, p4info, claims, cookie, name })
}

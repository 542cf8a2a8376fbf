//! Conversion of the messages of `StreamChannel`.

use super::entity_out::{p4_data, table_entry};
use super::ids::{election_id, role, uint128};
use super::role_config::role_config;
use crate::proto::google::rpc;
use crate::proto::p4::v1 as pb;
use control::Code;
use control::arbitration::{ArbitrationRequest, ArbitrationUpdate};
use control::control::{StreamError, StreamErrorAbout, StreamEvent, StreamRequest};
use control::packets::Packet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Converts a message from a client.
pub fn stream_request(message: pb::StreamMessageRequest) -> StreamRequest {
    use pb::stream_message_request::Update;
    match message.update {
        Some(Update::Arbitration(update)) => {
            let given = update.role.unwrap_or_default();
            StreamRequest::Arbitration(ArbitrationRequest {
                device_id: update.device_id,
                role_config: given.config.map(role_config),
                #[allow(deprecated, reason = "older controllers give their role by number")]
                role: role(given.name, given.id),
                election_id: election_id(update.election_id),
            })
        }
        Some(Update::Packet(packet)) => {
            let metadata = packet.metadata.into_iter().map(|m| (m.metadata_id, m.value)).collect();
            StreamRequest::PacketOut(Packet { payload: packet.payload, metadata })
        }
        Some(Update::DigestAck(ack)) => StreamRequest::DigestAck(ack.digest_id, ack.list_id),
        Some(Update::Other(_)) | None => StreamRequest::Other,
    }
}

/// Converts a message to a client.
pub fn event_to_proto(event: StreamEvent) -> pb::StreamMessageResponse {
    use pb::stream_message_response::Update;
    let update = match event {
        StreamEvent::Arbitration(update) => Update::Arbitration(arbitration(update)),
        StreamEvent::PacketIn(packet) => {
            let metadata = metadata(packet.metadata);
            Update::Packet(pb::PacketIn { payload: packet.payload, metadata })
        }
        StreamEvent::Digest(list) => Update::Digest(pb::DigestList {
            digest_id: list.digest_id,
            list_id: list.list_id,
            // The last client's conversion needs no copy.
            data: Arc::unwrap_or_clone(list).data.into_iter().map(p4_data).collect(),
            timestamp: nanoseconds_since_epoch(),
        }),
        StreamEvent::IdleTimeout(entries) => Update::IdleTimeoutNotification(pb::IdleTimeoutNotification {
            table_entry: entries.iter().cloned().map(table_entry).collect(),
            timestamp: nanoseconds_since_epoch(),
        }),
        StreamEvent::Error(error) => Update::Error(stream_error(error)),
    };
    pb::StreamMessageResponse { update: Some(update) }
}

fn arbitration(update: ArbitrationUpdate) -> pb::MasterArbitrationUpdate {
    let message = match update.status {
        Code::Ok => "you are the primary client",
        Code::NotFound => "there is no primary client",
        _ => "another client is primary",
    };
    let is_default = update.role == Default::default();
    #[allow(deprecated, reason = "a role that came by number goes by number")]
    let role = pb::Role {
        id: update.role.id,
        name: update.role.name,
        config: update.role_config.map(|(type_url, value)| prost_types::Any { type_url, value }),
    };
    pb::MasterArbitrationUpdate {
        device_id: update.device_id,
        role: (!is_default).then_some(role),
        election_id: update.election_id.map(uint128),
        status: Some(rpc::Status { code: update.status as i32, message: message.to_string(), details: vec![] }),
    }
}

fn metadata(metadata: Vec<(u32, Vec<u8>)>) -> Vec<pb::PacketMetadata> {
    metadata.into_iter().map(|(metadata_id, value)| pb::PacketMetadata { metadata_id, value }).collect()
}

fn stream_error(error: StreamError) -> pb::StreamError {
    use pb::stream_error::Details;
    let details = match error.about {
        StreamErrorAbout::PacketOut(packet) => {
            let metadata = metadata(packet.metadata);
            let packet_out = Some(pb::PacketOut { payload: packet.payload, metadata });
            Details::PacketOut(pb::PacketOutError { packet_out })
        }
        StreamErrorAbout::DigestAck(digest_id, list_id) => {
            let digest_list_ack = Some(pb::DigestListAck { digest_id, list_id });
            Details::DigestListAck(pb::DigestListAckError { digest_list_ack })
        }
        StreamErrorAbout::Other => Details::Other(pb::StreamOtherError { other: None }),
    };
    pb::StreamError {
        canonical_code: error.error.code as i32,
        message: error.error.message,
        space: String::new(),
        code: 0,
        details: Some(details),
    }
}

fn nanoseconds_since_epoch() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)
}

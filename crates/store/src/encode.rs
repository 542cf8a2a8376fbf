//! Entities and configs as bytes: P4Runtime's messages, and ours of `sluice/v1/state.proto`.

use control::Error;
use control::entity::{Entity, MatchValue, TableAction, TableEntry};
use control::pipeline::ForwardingConfig;
use grpc::convert;
use grpc::proto::p4::config::v1::P4Info;
use grpc::proto::p4::v1 as pb;
use grpc::proto::sluice::v1 as state;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{DecodeError, Message};

/// Appends an entity's value.
pub fn entity_into(entity: &Entity, out: &mut Vec<u8>) {
    match entity {
        Entity::Table(entry) if is_plain(entry) => table_entry(entry, out),
        // A vector has room for anything.
        other => _ = convert::entity_to_proto(other.clone()).encode(out),
    }
}

/// The value of an entry that has nothing but key, priority and action, as nearly all have: the same bytes, without a copy of the
/// entry on the way. Numbers are those of `p4runtime.proto`.
fn table_entry(entry: &TableEntry, out: &mut Vec<u8>) {
    nested(2, out, |out| {
        number(1, entry.table_id.into(), out);
        for field in &entry.matches {
            nested(2, out, |out| {
                number(1, field.field_id.into(), out);
                match &field.value {
                    MatchValue::Exact(value) => nested(2, out, |out| bytes(1, value, out)),
                    MatchValue::Ternary { value, mask } => nested(3, out, |out| {
                        bytes(1, value, out);
                        bytes(2, mask, out);
                    }),
                    MatchValue::Lpm { value, prefix_len } => nested(4, out, |out| {
                        bytes(1, value, out);
                        number(2, i64::from(*prefix_len) as u64, out);
                    }),
                    MatchValue::Range { low, high } => nested(6, out, |out| {
                        bytes(1, low, out);
                        bytes(2, high, out);
                    }),
                    MatchValue::Optional(value) => nested(7, out, |out| bytes(1, value, out)),
                    // No entry in force has one.
                    MatchValue::Unset | MatchValue::Other(_) => {}
                }
            });
        }
        if let Some(TableAction::Action(action)) = &entry.action {
            nested(3, out, |out| {
                nested(1, out, |out| {
                    number(1, action.action_id.into(), out);
                    for (id, value) in &action.params {
                        nested(4, out, |out| {
                            number(2, (*id).into(), out);
                            bytes(3, value, out);
                        });
                    }
                });
            });
        }
        number(4, i64::from(entry.priority) as u64, out);
    });
}

/// Whether there is nothing but key, priority and one action.
fn is_plain(entry: &TableEntry) -> bool {
    // Every field, so that a new one is not forgotten.
    let TableEntry {
        table_id: _,
        matches: _,
        action,
        priority: _,
        controller_metadata,
        metadata,
        meter_config,
        counter_data,
        meter_counter_data,
        is_default_action,
        idle_timeout_ns,
        time_since_last_hit,
        is_const,
    } = entry;
    matches!(action, Some(TableAction::Action(_)))
        && (*controller_metadata, metadata.is_empty(), *idle_timeout_ns) == (0, true, 0)
        && (meter_config.is_none(), counter_data.is_none(), meter_counter_data.is_none()) == (true, true, true)
        && (*is_default_action, time_since_last_hit.is_none(), *is_const) == (false, true, false)
}

/// A number, left out if it is zero.
fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        encode_key(field, WireType::Varint, out);
        encode_varint(value, out);
    }
}

/// Bytes, left out if there are none.
fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        encode_key(field, WireType::LengthDelimited, out);
        encode_varint(value.len() as u64, out);
        out.extend_from_slice(value);
    }
}

/// A message.
fn nested(field: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    encode_key(field, WireType::LengthDelimited, out);
    let at = out.len();
    // Most are short: one byte for the length is right, or moved for.
    out.push(0);
    content(out);
    let length = (out.len() - at - 1) as u64;
    match u8::try_from(length) {
        Ok(length) if length < 0x80 => out[at] = length,
        _ => {
            let mut prefix = Vec::new();
            encode_varint(length, &mut prefix);
            out.splice(at..=at, prefix);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use control::entity::{Action, FieldMatch};

    #[test]
    fn plain_entries_have_the_bytes_of_their_messages() {
        let values = [
            MatchValue::Exact(vec![0]),
            MatchValue::Exact(vec![7; 200]),
            MatchValue::Ternary { value: vec![1, 2], mask: vec![0xff] },
            MatchValue::Lpm { value: vec![10, 0, 0, 0], prefix_len: 8 },
            MatchValue::Range { low: vec![0], high: vec![1, 0] },
            MatchValue::Optional(vec![9; 128]),
        ];
        let params = [vec![], vec![(1, vec![5])], vec![(1, vec![0]), (2, vec![3; 300])]];
        for many in 0..=values.len() {
            for params in &params {
                let matches = (1..).zip(&values[..many]).map(|(field_id, v)| FieldMatch { field_id, value: v.clone() });
                let entry = TableEntry {
                    table_id: 0x0200_1234,
                    matches: matches.collect(),
                    action: Some(TableAction::Action(Action { action_id: 0x0100_0001, params: params.clone() })),
                    priority: if many % 2 == 0 { 0 } else { 77_777 },
                    ..Default::default()
                };
                let message = convert::entity_to_proto(Entity::Table(entry.clone())).encode_to_vec();
                assert!(is_plain(&entry));
                let value = |entry: &TableEntry| {
                    let mut out = Vec::new();
                    entity_into(&Entity::Table(entry.clone()), &mut out);
                    out
                };
                assert_eq!(value(&entry), message);
                let other = TableEntry { metadata: vec![1], ..entry };
                assert!(!is_plain(&other));
                assert_eq!(decode_entity(&value(&other)), Ok(Entity::Table(other)));
            }
        }
    }
}

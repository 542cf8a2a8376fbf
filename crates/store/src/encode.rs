//! Encoding of entities and configs: P4Runtime's messages, and our own of `sluice/v1/state.proto`.

use control::Error;
use control::entity::{Entity, MatchValue, TableAction, TableEntry};
use control::forwarding::ForwardingConfig;
use messages::convert;
use messages::p4::config::v1::P4Info;
use messages::p4::v1 as pb;
use messages::sluice::v1 as state;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{DecodeError, Message};

/// Appends an entity's encoding.
pub fn entity_into(entity: &Entity, out: &mut Vec<u8>) {
    match entity {
        Entity::Table(entry) if is_plain(entry) => table_entry(entry, out),
        // Cannot fail: a vector grows.
        other => _ = convert::entity_to_proto(other.clone()).encode(out),
    }
}

/// Encodes an entry that has only a key, a priority, an action and optionally metadata, an idle timeout and a direct
/// counter, as nearly all entries do. The bytes equal those of the message, without an intermediate copy of the entry.
/// Field numbers are those of `p4runtime.proto`.
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
                    // Does not occur in accepted entries.
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
        number(5, entry.controller_metadata, out);
        if let Some(counter) = entry.counter_data {
            nested(7, out, |out| {
                number(1, counter.byte_count as u64, out);
                number(2, counter.packet_count as u64, out);
            });
        }
        number(9, entry.idle_timeout_ns as u64, out);
        bytes(11, &entry.metadata, out);
    });
}

/// Whether [`table_entry`] encodes all fields that are set.
fn is_plain(entry: &TableEntry) -> bool {
    // Names every field, so that a new one is not forgotten.
    let TableEntry {
        table_id: _,
        matches: _,
        action,
        priority: _,
        controller_metadata: _,
        metadata: _,
        meter_config,
        counter_data: _,
        meter_counter_data,
        is_default_action,
        idle_timeout_ns: _,
        time_since_last_hit,
        is_const,
    } = entry;
    matches!(action, Some(TableAction::Action(_)))
        && meter_config.is_none()
        && meter_counter_data.is_none()
        && time_since_last_hit.is_none()
        && !is_default_action
        && !is_const
}

/// Appends an integer field, unless it is zero.
fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        encode_key(field, WireType::Varint, out);
        encode_varint(value, out);
    }
}

/// Appends a bytes field, unless it is empty.
fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        encode_key(field, WireType::LengthDelimited, out);
        encode_varint(value.len() as u64, out);
        out.extend_from_slice(value);
    }
}

/// Appends a field that is a message.
fn nested(field: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    encode_key(field, WireType::LengthDelimited, out);
    let at = out.len();
    // Reserves one byte for the length, which suffices for most; otherwise the content is moved.
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

/// Decodes an entity.
///
/// # Errors
/// The bytes are not an entity's message, or of an unknown kind.
pub fn decode_entity(bytes: &[u8]) -> Result<Entity, String> {
    if let Some(entry) = plain::table_entry(bytes) {
        return Ok(Entity::Table(entry));
    }
    let message = pb::Entity::decode(bytes).map_err(|e| e.to_string())?;
    convert::entity(message).ok_or_else(|| Error::internal("it is of an unknown kind").message)
}

/// Encodes a config, and whether it belongs to an OpenFlow bridge.
pub fn config(config: &ForwardingConfig, openflow: bool) -> Vec<u8> {
    let ForwardingConfig { device_config, p4info, claims: _, platform: _, cookie, name } = config.clone();
    state::KeptConfig { device_config, p4info, cookie, name, openflow }.encode_to_vec()
}

/// Decodes a config, and whether it belongs to an OpenFlow bridge.
///
/// # Errors
/// The bytes are not a config's message.
pub fn decode_config(bytes: &[u8]) -> Result<(ForwardingConfig, bool), DecodeError> {
    let state::KeptConfig { device_config, p4info, cookie, name, openflow } = state::KeptConfig::decode(bytes)?;
    // Checked again when it is restored, since the compiler may have changed meanwhile.
    let message = P4Info::decode(p4info.as_slice())?;
    let (claims, platform) = (convert::p4info::claims(&message), convert::p4info::platform(&message));
    Ok((ForwardingConfig { device_config, p4info, claims, platform, cookie, name }, openflow))
}

/// Checks that the bytes decode as a value of a config of this kind.
///
/// # Errors
/// Why they do not.
pub fn check_value(bytes: &[u8], openflow: bool) -> Result<(), String> {
    match openflow {
        true => state::KeptOpenFlow::decode(bytes).map(drop).map_err(|e| e.to_string()),
        false => decode_entity(bytes).map(drop),
    }
}

/// Decodes the values that [`table_entry`](super::table_entry) encodes, without intermediate messages: a restart
/// decodes every entry. Anything that is not exactly of this form is left to the protobuf decoder.
mod plain {
    use control::entity::{Action, CounterData, FieldMatch, MatchValue, TableAction, TableEntry};
    use prost::encoding::decode_varint;

    pub fn table_entry(mut rest: &[u8]) -> Option<TableEntry> {
        let mut entry = nested(2, &mut rest).filter(|_| rest.is_empty())?;
        let table_id = u32::try_from(number(1, &mut entry)?).ok()?;
        let mut matches = Vec::with_capacity(1);
        while let Some(field) = nested(2, &mut entry) {
            matches.push(field_match(field)?);
        }
        let mut action = nested(3, &mut entry)?;
        let call = nested(1, &mut action).filter(|_| action.is_empty())?;
        let action = Some(TableAction::Action(self::action(call)?));
        let priority = i32::try_from(number(4, &mut entry).unwrap_or(0)).ok()?;
        let controller_metadata = number(5, &mut entry).unwrap_or(0);
        let counter_data = match nested(7, &mut entry) {
            Some(counter) => Some(counter_data(counter)?),
            None => None,
        };
        let idle_timeout_ns = number(9, &mut entry).unwrap_or(0) as i64;
        let metadata = bytes(11, &mut entry);
        entry.is_empty().then(|| TableEntry {
            table_id,
            matches,
            action,
            priority,
            controller_metadata,
            metadata,
            counter_data,
            idle_timeout_ns,
            ..TableEntry::default()
        })
    }

    fn counter_data(mut rest: &[u8]) -> Option<CounterData> {
        let byte_count = number(1, &mut rest).unwrap_or(0) as i64;
        let packet_count = number(2, &mut rest).unwrap_or(0) as i64;
        rest.is_empty().then_some(CounterData { byte_count, packet_count })
    }

    fn field_match(mut rest: &[u8]) -> Option<FieldMatch> {
        let field_id = u32::try_from(number(1, &mut rest)?).ok()?;
        let kind = *rest.first()?;
        let mut given = nested(kind >> 3, &mut rest).filter(|_| rest.is_empty())?;
        let value = match kind >> 3 {
            2 => MatchValue::Exact(bytes(1, &mut given)),
            3 => MatchValue::Ternary { value: bytes(1, &mut given), mask: bytes(2, &mut given) },
            4 => {
                let value = bytes(1, &mut given);
                let prefix_len = i32::try_from(number(2, &mut given).unwrap_or(0)).ok()?;
                MatchValue::Lpm { value, prefix_len }
            }
            6 => MatchValue::Range { low: bytes(1, &mut given), high: bytes(2, &mut given) },
            7 => MatchValue::Optional(bytes(1, &mut given)),
            _ => return None,
        };
        given.is_empty().then_some(FieldMatch { field_id, value })
    }

    fn action(mut rest: &[u8]) -> Option<Action> {
        let action_id = u32::try_from(number(1, &mut rest)?).ok()?;
        let mut params = Vec::with_capacity(1);
        while let Some(mut param) = nested(4, &mut rest) {
            let id = u32::try_from(number(2, &mut param)?).ok()?;
            params.push((id, bytes(3, &mut param)));
            if !param.is_empty() {
                return None;
            }
        }
        rest.is_empty().then_some(Action { action_id, params })
    }

    /// Takes off an integer field (wire type 0), if it comes next.
    fn number(field: u8, rest: &mut &[u8]) -> Option<u64> {
        let mut value = rest.strip_prefix(&[field << 3])?;
        let number = decode_varint(&mut value).ok()?;
        *rest = value;
        Some(number)
    }

    /// Takes off a length-delimited field (wire type 2), if it comes next.
    fn nested<'a>(field: u8, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let mut value = rest.strip_prefix(&[field << 3 | 2])?;
        let length = usize::try_from(decode_varint(&mut value).ok()?).ok()?;
        let (taken, left) = value.split_at_checked(length)?;
        *rest = left;
        Some(taken)
    }

    /// Takes off a bytes field, which is absent if it is empty.
    fn bytes(field: u8, rest: &mut &[u8]) -> Vec<u8> {
        nested(field, rest).unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::entity::{Action, CounterData, FieldMatch, MeterConfig};

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
                    controller_metadata: if many % 3 == 0 { 0 } else { u64::MAX },
                    counter_data: match many % 3 {
                        0 => None,
                        1 => Some(CounterData::default()),
                        _ => Some(CounterData { byte_count: i64::MAX, packet_count: 1 }),
                    },
                    idle_timeout_ns: if many % 4 == 0 { 0 } else { 1 << 40 },
                    metadata: vec![9; many],
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
                assert_eq!(plain::table_entry(&message), Some(entry.clone()));
                let other = TableEntry { meter_config: Some(MeterConfig::default()), ..entry };
                assert!(!is_plain(&other));
                assert_eq!(decode_entity(&value(&other)), Ok(Entity::Table(other)));
            }
        }
    }

    /// Whatever the fast decoder accepts, protobuf's decoder decodes to the same; also for damaged bytes.
    #[test]
    fn quick_decoding_agrees_with_the_protocols() {
        let entry = TableEntry {
            table_id: 0x0200_0007,
            matches: vec![
                FieldMatch { field_id: 1, value: MatchValue::Lpm { value: vec![10, 0, 0, 0], prefix_len: 8 } },
                FieldMatch { field_id: 2, value: MatchValue::Ternary { value: vec![1], mask: vec![3] } },
            ],
            action: Some(TableAction::Action(Action {
                action_id: 0x0100_0001,
                params: vec![(1, vec![5]), (2, vec![6])],
            })),
            priority: 300,
            counter_data: Some(CounterData { byte_count: 700, packet_count: 3 }),
            idle_timeout_ns: 5,
            metadata: vec![4, 5],
            ..Default::default()
        };
        let mut message = Vec::new();
        entity_into(&Entity::Table(entry), &mut message);
        let mut taken = 0;
        for at in 0..message.len() {
            for byte in 0..=255 {
                let mut changed = message.clone();
                changed[at] = byte;
                for changed in [&changed[..], &changed[..at]] {
                    let Some(quick) = plain::table_entry(changed) else { continue };
                    taken += 1;
                    let slow = pb::Entity::decode(changed).ok().and_then(convert::entity);
                    assert_eq!(Some(Entity::Table(quick)), slow, "byte {at} is {byte}");
                }
            }
        }
        assert!(taken > 1000, "{taken}");
    }
}

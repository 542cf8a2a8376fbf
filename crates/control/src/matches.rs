//! Keys of entries: translates between a controller's match fields and the keys of match engines (P4Runtime
//! specification, "Match Format").
//!
//! The rules are the specification's: every exact field is present, a don't-care match is omitted, and masked-out bits
//! are zero. So a key has exactly one form, and what is read equals what was written.

use crate::bytes::canonical;
use crate::entity::{FieldMatch, MatchValue};
use crate::error::{Error, Result, choices};
use crate::schema::{FieldSchema, View};
use base::Bits;
use base::entry::{KeyMatch, MatchKind};

/// Decodes the key of an entry of `owner` (a table or value set, named in messages).
///
/// # Errors
///
/// INVALID_ARGUMENT if a match field is unknown, repeated, missing, of the wrong kind or not in canonical form;
/// OUT_OF_RANGE if a value does not fit its field; UNIMPLEMENTED for a match kind that is not supported.
pub fn decode(owner: &str, fields: &[FieldSchema], matches: &[FieldMatch]) -> Result<Vec<KeyMatch>> {
    for (i, given) in matches.iter().enumerate() {
        if !fields.iter().any(|f| f.id == given.field_id) {
            let names = choices(fields.iter().map(|f| f.name.as_str()));
            let message = format!("{owner} has no match field {}; its fields are {names}", given.field_id);
            return Err(Error::invalid(message));
        }
        if matches[..i].iter().any(|earlier| earlier.field_id == given.field_id) {
            return Err(Error::invalid(format!("{owner}: match field {} is given twice", given.field_id)));
        }
    }
    fields.iter().map(|field| field_match(owner, field, matches)).collect()
}

fn field_match(owner: &str, field: &FieldSchema, matches: &[FieldMatch]) -> Result<KeyMatch> {
    let what = format_args!("{owner}, match field `{}`", field.name);
    let kind = field.kind.ok_or_else(|| Error::unimplemented(format!("{what}: its match kind is not supported")))?;
    let width = field.value.width;
    let Some(given) = matches.iter().find(|m| m.field_id == field.id) else {
        return dont_care(kind, width).ok_or_else(|| Error::invalid(format!("{what} is exact and must be given")));
    };
    if let (View::String(_), MatchKind::Lpm | MatchKind::Ternary | MatchKind::Range) = (&field.value.view, kind) {
        let kind = kind.name();
        return Err(Error::unimplemented(format!(
            "{what} is a string for controllers; `{kind}` of strings is undefined"
        )));
    }
    let value = |bytes: &[u8]| field.value.decode(bytes, what);
    // Masks, prefixes and ranges are matched on the data plane's width.
    let part = |bytes: &[u8]| match field.value.wide() {
        Some(_) => crate::bytes::parse(width, bytes, what),
        None => value(bytes),
    };
    match (kind, &given.value) {
        (MatchKind::Exact, MatchValue::Exact(bytes)) => Ok(KeyMatch::Exact(value(bytes)?)),
        (MatchKind::Optional, MatchValue::Optional(bytes)) => Ok(KeyMatch::Optional(Some(value(bytes)?))),
        (MatchKind::Lpm, MatchValue::Lpm { value: bytes, prefix_len }) => {
            let value = part(bytes)?;
            let prefix_len =
                u32::try_from(*prefix_len).ok().filter(|len| (1..=width).contains(len)).ok_or_else(|| {
                    Error::invalid(format!("{what}: the prefix length {prefix_len} is not from 1 to {width}"))
                })?;
            if value.shl(u64::from(prefix_len)).is_true() {
                return Err(Error::invalid(format!("{what}: {value:#} has bits set after the prefix /{prefix_len}")));
            }
            Ok(KeyMatch::Lpm { value, prefix_len })
        }
        (MatchKind::Ternary, MatchValue::Ternary { value: bytes, mask }) => {
            if let Some(wide) = field.value.wide()
                && crate::bytes::parse(wide, mask, what)? == Bits::ones(wide)
            {
                return Ok(KeyMatch::Ternary { value: value(bytes)?, mask: Bits::ones(width) });
            }
            let (value, mask) = (part(bytes)?, part(mask)?);
            if let (Some(wide), true) = (field.value.wide(), mask == Bits::ones(width)) {
                return Err(Error::invalid(format!(
                    "{what} has {wide} bits for controllers, of which all or none count"
                )));
            }
            if mask.is_zero() {
                return Err(Error::invalid(format!("{what}: a zero mask is a don't care, which is left out")));
            }
            if value.and(&mask.not()).is_true() {
                return Err(Error::invalid(format!("{what}: {value:#} has bits set outside its mask {mask:#}")));
            }
            Ok(KeyMatch::Ternary { value, mask })
        }
        (MatchKind::Range, MatchValue::Range { low, high }) => {
            let (low, high) = (part(low)?, part(high)?);
            if high.ult(&low) {
                return Err(Error::invalid(format!("{what}: the range {low:#}..{high:#} is empty")));
            }
            if low.is_zero() && high == Bits::ones(width) {
                return Err(Error::invalid(format!("{what}: the full range is a don't care, which is left out")));
            }
            Ok(KeyMatch::Range { low, high })
        }
        (_, MatchValue::Unset) => Err(Error::invalid(format!("{what}: the match is missing"))),
        (_, MatchValue::Other(type_url)) => {
            // Architecture-specific match kinds; v1model has none that the protocol lacks.
            let message = format!("{what}: a match of type `{type_url}`, but no field has a match kind of that sort");
            Err(Error::invalid(message))
        }
        (kind, other) => Err(Error::invalid(format!("{what} is matched `{}`, not `{}`", kind.name(), name_of(other)))),
    }
}

fn name_of(value: &MatchValue) -> &str {
    match value {
        MatchValue::Unset | MatchValue::Other(_) => "other",
        MatchValue::Exact(_) => "exact",
        MatchValue::Ternary { .. } => "ternary",
        MatchValue::Lpm { .. } => "lpm",
        MatchValue::Range { .. } => "range",
        MatchValue::Optional(_) => "optional",
    }
}

fn dont_care(kind: MatchKind, width: u32) -> Option<KeyMatch> {
    Some(match kind {
        MatchKind::Exact => return None,
        MatchKind::Lpm => KeyMatch::Lpm { value: Bits::zero(width), prefix_len: 0 },
        MatchKind::Ternary => KeyMatch::Ternary { value: Bits::zero(width), mask: Bits::zero(width) },
        MatchKind::Range => KeyMatch::Range { low: Bits::zero(width), high: Bits::ones(width) },
        MatchKind::Optional => KeyMatch::Optional(None),
    })
}

/// The match fields of a key, as a controller sees them; don't-care matches are omitted.
pub fn encode(fields: &[FieldSchema], key: &[KeyMatch]) -> Vec<FieldMatch> {
    let matches = fields.iter().zip(key).filter_map(|(field, key)| {
        let value = match key {
            KeyMatch::Exact(value) => MatchValue::Exact(field.value.encode(value)),
            KeyMatch::Optional(Some(value)) => MatchValue::Optional(field.value.encode(value)),
            KeyMatch::Lpm { value, prefix_len } if *prefix_len > 0 => {
                let prefix_len = i32::try_from(*prefix_len).unwrap_or(i32::MAX);
                MatchValue::Lpm { value: field.value.encode(value), prefix_len }
            }
            KeyMatch::Ternary { value, mask } if field.value.wide().is_some() && *mask == Bits::ones(mask.width()) => {
                let mask = Bits::ones(field.value.wide().unwrap_or(mask.width()));
                MatchValue::Ternary { value: field.value.encode(value), mask: canonical(&mask) }
            }
            KeyMatch::Ternary { value, mask } if mask.is_true() => {
                MatchValue::Ternary { value: canonical(value), mask: canonical(mask) }
            }
            KeyMatch::Range { low, high } if low.is_true() || *high != Bits::ones(high.width()) => {
                MatchValue::Range { low: canonical(low), high: canonical(high) }
            }
            KeyMatch::Optional(None) | KeyMatch::Lpm { .. } | KeyMatch::Ternary { .. } | KeyMatch::Range { .. } => {
                return None;
            }
        };
        Some(FieldMatch { field_id: field.id, value })
    });
    matches.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::schema::ValueType;
    use crate::translate::Names;
    use std::sync::Arc;

    /// A field of 9 bits that controllers see as 32 bits.
    fn wide(kind: MatchKind) -> Vec<FieldSchema> {
        let view = View::Wide(32, Arc::new(Names::of_numbers("port_t")));
        vec![FieldSchema { id: 1, name: "port".into(), kind: Some(kind), value: ValueType { width: 9, view } }]
    }

    #[track_caller]
    fn round(fields: &[FieldSchema], value: MatchValue) -> KeyMatch {
        let given = vec![FieldMatch { field_id: 1, value }];
        let key = decode("t", fields, &given).unwrap();
        assert_eq!(encode(fields, &key), given);
        key.into_iter().next().unwrap()
    }

    #[test]
    fn translated_numbers_with_more_bits_than_the_data_plane_are_mapped_and_read_back() {
        let fields = wide(MatchKind::Optional);
        assert_eq!(round(&fields, MatchValue::Optional(vec![3])), KeyMatch::Optional(Some(Bits::new(9, 3))));
        let large = vec![1, 0, 0];
        assert_eq!(round(&fields, MatchValue::Optional(large)), KeyMatch::Optional(Some(Bits::new(9, 510))));
        let too_large = FieldMatch { field_id: 1, value: MatchValue::Optional(vec![1, 0, 0, 0, 0]) };
        assert_eq!(decode("t", &fields, &[too_large]).unwrap_err().code, Code::OutOfRange);
    }

    #[test]
    fn translated_fields_in_ternary_keys_have_the_mask_of_all_bits_that_controllers_see() {
        let fields = wide(MatchKind::Ternary);
        let ternary = |value: &[u8], mask: &[u8]| MatchValue::Ternary { value: value.to_vec(), mask: mask.to_vec() };
        let all = [0xff; 4];
        let full = |value| KeyMatch::Ternary { value: Bits::new(9, value), mask: Bits::ones(9) };
        assert_eq!(round(&fields, ternary(&[5], &all)), full(5));
        assert_eq!(round(&fields, ternary(&[1, 0, 0], &all)), full(510));
        let low = KeyMatch::Ternary { value: Bits::new(9, 4), mask: Bits::new(9, 6) };
        assert_eq!(round(&fields, ternary(&[4], &[6])), low);
        let refused = |value| decode("t", &fields, &[FieldMatch { field_id: 1, value }]).unwrap_err().code;
        assert_eq!(refused(ternary(&[4], &[2, 4])), Code::OutOfRange);
        assert_eq!(refused(ternary(&[4], &[1, 0xff])), Code::InvalidArgument);
    }
}

//! The program in terms of bmv2's clients: tables, actions and other objects by fully qualified names, and values with
//! as many bytes as their width needs.
//!
//! Names are converted to ids of the schema, and values to P4Runtime's encoding, so that requests are validated in one
//! place, `control`. A name may be a suffix of a fully qualified one if it is the only one with that suffix: some
//! commands send what the user typed.

use crate::fault::{Answer, Fault};
use crate::service::logged;
use crate::wire::Value;
use base::Bits;
use base::entry::MatchKind;
use control::bytes;
use control::entity::{Action, FieldMatch, MatchValue};
use control::schema::{FieldSchema, ListedAction, Schema, TableSchema, View};
use p4info::ActionScope;
use p4info::ids::plain;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// `BmMatchParamType`.
const EXACT: i32 = 0;
const LPM: i32 = 1;
const TERNARY: i32 = 2;
const VALID: i32 = 3;
const RANGE: i32 = 4;

/// A program with its description in bmv2's JSON.
pub(crate) struct Program {
    pub(crate) schema: Arc<Schema>,
    /// The description, from which clients read names and widths; or why there is none.
    pub(crate) config: Result<Arc<str>, String>,
    described: Described,
}

/// Facts from the description that the schema does not have.
#[derive(Default)]
struct Described {
    /// Key fields that clients match by `valid`: the table's name, and the field's index.
    valid: HashSet<(String, usize)>,
    /// Tables without a default entry.
    without_default: HashSet<String>,
    /// Ids, by kind and name of the object.
    ids: BTreeMap<(i32, String), i32>,
}

/// The parts of the description that are used. Everything else is skipped, at any nesting depth.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Description {
    pipelines: Vec<Pipeline>,
    counter_arrays: Vec<Object>,
    meter_arrays: Vec<Object>,
    register_arrays: Vec<Object>,
    learn_lists: Vec<Object>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pipeline {
    tables: Vec<Table>,
    action_profiles: Vec<Object>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Table {
    name: Option<String>,
    id: Option<i64>,
    default_entry: Option<IgnoredAny>,
    key: Vec<KeyField>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct KeyField {
    match_type: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Object {
    name: Option<String>,
    id: Option<i64>,
}

/// A key from a client.
pub(crate) struct Key {
    /// The key as P4Runtime matches.
    pub(crate) matches: Vec<FieldMatch>,
    /// An encoding of the key that is unique within a table.
    pub(crate) bytes: Vec<u8>,
}

impl Described {
    fn read(config: &str) -> serde_json::Result<Described> {
        let from: Description = serde_json::from_str(config)?;
        let mut out = Described::default();
        let mut note = |kind: i32, objects: Vec<Object>| {
            out.ids.extend(objects.into_iter().filter_map(|object| Some(((kind, object.name?), object.id? as i32))));
        };
        note(2, from.counter_arrays);
        note(3, from.meter_arrays);
        note(4, from.register_arrays);
        note(5, from.learn_lists);
        for pipeline in from.pipelines {
            note(1, pipeline.action_profiles);
            for table in pipeline.tables {
                let name = table.name.unwrap_or_default();
                if table.default_entry.is_none() {
                    out.without_default.insert(name.clone());
                }
                let by_valid = |(_, field): &(usize, &KeyField)| field.match_type.as_deref() == Some("valid");
                let places = table.key.iter().enumerate().filter(by_valid);
                out.valid.extend(places.map(|(at, _)| (name.clone(), at)));
                note(0, vec![Object { name: Some(name), id: table.id }]);
            }
        }
        Ok(out)
    }
}

impl Program {
    /// A program; reads the facts that only the description has.
    pub(crate) fn new(schema: Arc<Schema>, config: Result<String, String>) -> Program {
        let described = config.as_ref().map_or_else(
            |_| Described::default(),
            |config| {
                Described::read(config).unwrap_or_else(|error| {
                    let why = logged(&error.to_string());
                    tracing::warn!("thrift: the program's description is not read, so ids are missing: {why}");
                    Described::default()
                })
            },
        );
        Program { schema, config: config.map(Arc::from), described }
    }

    /// The id of an object in the description.
    pub(crate) fn id_of(&self, kind: i32, name: &str) -> Option<i32> {
        self.described.ids.get(&(kind, name.to_string())).copied()
    }

    pub(crate) fn table(&self, name: &str) -> Option<(u32, &TableSchema)> {
        find(name, self.schema.tables.iter().map(|(id, table)| (*id, table.name.as_str(), table)))
    }

    /// Whether the program gives a table a default entry. In P4 it always does; in JSON it may not.
    pub(crate) fn has_default(&self, table: &TableSchema) -> bool {
        !self.described.without_default.contains(&table.name)
    }

    /// The action with a name in a list, if its scope allows it (`default`: as default action).
    pub(crate) fn action(&self, list: &[ListedAction], name: &str, default: bool) -> Option<u32> {
        let may = |listed: &&ListedAction| match listed.scope {
            ActionScope::TableAndDefault => true,
            ActionScope::TableOnly => !default,
            ActionScope::DefaultOnly => default,
            ActionScope::GroupAction => false,
        };
        let listed = list.iter().filter(may);
        let named = listed.filter_map(|l| Some((l.id, self.schema.actions.get(&l.id)?.name.as_str(), ())));
        find(name, named).map(|(id, ())| id)
    }

    /// An action call with arguments; `code` is for invalid ones.
    ///
    /// # Errors
    /// A [`Fault`] with `code`, if the number of arguments is wrong, or an argument is invalid.
    pub(crate) fn call(&self, action_id: u32, data: &[Vec<u8>], code: i32) -> Answer<Action> {
        let schema = self.schema.actions.get(&action_id).ok_or_else(|| Fault::with_message("the action is gone"))?;
        if data.len() != schema.params.len() {
            let (name, wants, given) = (&schema.name, schema.params.len(), data.len());
            return Err(Fault::Coded(code, format!("action `{name}` has {wants} parameters, {given} are given")));
        }
        let params = schema.params.iter().zip(data).map(|(param, bytes)| {
            let what = format!("action `{}`, parameter `{}`", schema.name, param.name);
            let bits = number(param.value.width, bytes, &what).map_err(|why| Fault::Coded(code, why))?;
            Ok((param.id, param.value.encode(&bits)))
        });
        Ok(Action { action_id, params: params.collect::<Answer<_>>()? })
    }

    /// The name of an action, and its arguments in as few bytes as they need, as in bmv2.
    pub(crate) fn called(&self, action: &Action) -> Option<(String, Vec<Value>)> {
        let schema = self.schema.actions.get(&action.action_id)?;
        let data = schema.params.iter().map(|param| {
            let (_, sent) = action.params.iter().find(|(id, _)| *id == param.id)?;
            Some(Value::Bytes(bytes::canonical(&param.value.decode(sent, "").ok()?)))
        });
        Some((plain(&schema.name).to_string(), data.collect::<Option<_>>()?))
    }

    /// Converts a client's key for a table; `code` is for invalid ones.
    ///
    /// # Errors
    /// A [`Fault`] with `code`, if the number of fields is wrong, or a field is invalid.
    pub(crate) fn key(&self, table: &TableSchema, params: &[Value], code: i32) -> Answer<Key> {
        let wrong = |why: String| Fault::Coded(code, why);
        if params.len() != table.fields.len() {
            let (name, wants, given) = (&table.name, table.fields.len(), params.len());
            return Err(wrong(format!("table `{name}` has {wants} key fields, {given} are given")));
        }
        let mut key = Key { matches: Vec::new(), bytes: Vec::new() };
        for (field, param) in table.fields.iter().zip(params) {
            let what = format!("table `{}`, match field `{}`", table.name, field.name);
            let value = self.field(field, param, &what, &mut key.bytes).map_err(wrong)?;
            key.matches.extend(value.map(|value| FieldMatch { field_id: field.id, value }));
        }
        Ok(key)
    }

    /// The match of a key field, `None` if it matches everything; its encoding is appended to `bytes`.
    fn field(
        &self,
        field: &FieldSchema,
        param: &Value,
        what: &str,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<MatchValue>, String> {
        let width = field.value.width;
        let kind = field.kind.ok_or_else(|| format!("{what}: its match kind is not supported"))?;
        let given = match param.field(1) {
            Some(Value::I32(given)) => *given,
            _ => return Err(format!("{what}: the match has no type")),
        };
        let part = |of: i16, id: i16| match param.field(of).and_then(|part| part.field(id)) {
            Some(Value::Bytes(bytes)) => number(width, bytes, what),
            _ => Err(format!("{what}: the match is incomplete")),
        };
        let mut keep = |bits: &Bits| bytes.extend(bits.to_bytes_be());
        let sent = |bits: &Bits| field.value.encode(bits);
        let ones = Bits::ones(width);
        Ok(match (kind, given) {
            (MatchKind::Exact, EXACT) => {
                let value = part(2, 1)?;
                keep(&value);
                Some(MatchValue::Exact(sent(&value)))
            }
            (MatchKind::Exact, VALID) => {
                let Some(Value::Bool(is)) = param.field(5).and_then(|part| part.field(1)) else {
                    return Err(format!("{what}: the match is incomplete"));
                };
                let value = Bits::new(width, u128::from(*is));
                keep(&value);
                Some(MatchValue::Exact(sent(&value)))
            }
            (MatchKind::Lpm, LPM) => {
                let Some(Value::I32(length)) = param.field(3).and_then(|part| part.field(2)) else {
                    return Err(format!("{what}: the match is incomplete"));
                };
                let in_width = u32::try_from(*length).ok().filter(|length| *length <= width);
                let length =
                    in_width.ok_or_else(|| format!("{what}: the prefix length {length} is not in 0..{width}"))?;
                let value = part(3, 1)?.and(&ones.shl(u64::from(width - length)));
                keep(&value);
                keep(&Bits::new(32, u128::from(length)));
                (length > 0).then(|| MatchValue::Lpm { value: bytes::canonical(&value), prefix_len: length as i32 })
            }
            (MatchKind::Ternary, TERNARY) => {
                let mask = part(4, 2)?;
                let value = part(4, 1)?.and(&mask);
                keep(&value);
                keep(&mask);
                // If P4Runtime's field is wider than the key, a mask of all ones is extended to that width.
                let wide = match field.value.view {
                    View::Wide(bits, _) if mask == ones => Some(bits),
                    _ => None,
                };
                let mask_sent =
                    wide.map_or_else(|| bytes::canonical(&mask), |bits| bytes::canonical(&Bits::ones(bits)));
                let value_sent = if wide.is_some() { sent(&value) } else { bytes::canonical(&value) };
                mask.is_true().then_some(MatchValue::Ternary { value: value_sent, mask: mask_sent })
            }
            (MatchKind::Optional, TERNARY) => {
                let mask = part(4, 2)?;
                if mask.is_true() && mask != ones {
                    return Err(format!("{what} is optional: its mask has all bits or none"));
                }
                let value = part(4, 1)?.and(&mask);
                keep(&value);
                keep(&mask);
                mask.is_true().then(|| MatchValue::Optional(sent(&value)))
            }
            (MatchKind::Range, RANGE) => {
                let (low, high) = (part(6, 1)?, part(6, 2)?);
                // Both have the same number of bytes.
                if low.to_bytes_be() > high.to_bytes_be() {
                    return Err(format!("{what}: the range's low end is above its high end"));
                }
                keep(&low);
                keep(&high);
                let all = low.is_zero() && high == ones;
                (!all).then(|| MatchValue::Range { low: bytes::canonical(&low), high: bytes::canonical(&high) })
            }
            _ => return Err(format!("{what} is matched `{}`; the match is of another type", kind.name())),
        })
    }

    /// The encoding of a P4Runtime key, as in [`Program::key`]; `None` if it cannot be represented.
    pub(crate) fn key_bytes(&self, table: &TableSchema, matches: &[FieldMatch]) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        for field in &table.fields {
            let width = field.value.width;
            let given = matches.iter().find(|given| given.field_id == field.id).map(|given| &given.value);
            let value = |bytes: &[u8]| field.value.decode(bytes, "").ok();
            let part = |bytes: &[u8]| bytes::parse(width, bytes, "").ok();
            let (zero, ones) = (Bits::zero(width), Bits::ones(width));
            let parts = match (field.kind?, given) {
                (MatchKind::Exact, Some(MatchValue::Exact(bytes))) => vec![value(bytes)?],
                (MatchKind::Exact, _) => return None,
                (MatchKind::Lpm, Some(MatchValue::Lpm { value: bytes, prefix_len })) => {
                    vec![part(bytes)?, Bits::new(32, *prefix_len as u128)]
                }
                (MatchKind::Lpm, _) => vec![zero, Bits::zero(32)],
                // A mask wider than the field is that of all bits.
                (MatchKind::Ternary, Some(MatchValue::Ternary { value: bytes, mask })) => match part(mask) {
                    Some(mask) => vec![part(bytes)?, mask],
                    None => vec![value(bytes)?, ones],
                },
                (MatchKind::Optional, Some(MatchValue::Optional(bytes))) => vec![value(bytes)?, ones],
                (MatchKind::Ternary | MatchKind::Optional, _) => vec![zero.clone(), zero],
                (MatchKind::Range, Some(MatchValue::Range { low, high })) => vec![part(low)?, part(high)?],
                (MatchKind::Range, _) => vec![zero, ones],
            };
            parts.iter().for_each(|bits| key.extend(bits.to_bytes_be()));
        }
        Some(key)
    }

    /// The prefix value in a client's key, in as many bytes as its field has, if bits beyond the prefix length are set.
    /// bmv2 keeps it in tables with only LPM and exact keys; in other tables it masks all values.
    pub(crate) fn prefix_given(&self, table: &TableSchema, params: &[Value]) -> Option<Vec<u8>> {
        let at = table
            .fields
            .iter()
            .position(|field| field.kind == Some(MatchKind::Lpm))
            .filter(|_| !table.needs_priority)?;
        let (width, prefix) = (table.fields[at].value.width, params.get(at)?.field(3)?);
        let (Some(Value::Bytes(value)), Some(Value::I32(length))) = (prefix.field(1), prefix.field(2)) else {
            return None;
        };
        let value = bytes::parse(width, value, "").ok()?;
        value.shl(u64::try_from(*length).ok()?).is_true().then(|| value.to_bytes_be())
    }

    /// Converts an encoded key to the form for clients; `given` is the prefix value, if it differs.
    pub(crate) fn params(&self, table: &TableSchema, key: &[u8], given: Option<&[u8]>) -> Option<Vec<Value>> {
        let mut rest = key;
        let mut take = |bytes: usize| {
            let (first, others) = rest.split_at_checked(bytes)?;
            rest = others;
            Some(first.to_vec())
        };
        let of = |kind: i32, id: i16, fields: Vec<(i16, Value)>| {
            Value::Struct(vec![(1, Value::I32(kind)), (id, Value::Struct(fields))])
        };
        let mut params = Vec::new();
        for (at, field) in table.fields.iter().enumerate() {
            let bytes = field.value.width.div_ceil(8) as usize;
            let first = take(bytes)?;
            params.push(match field.kind? {
                MatchKind::Exact if self.described.valid.contains(&(table.name.clone(), at)) => {
                    of(VALID, 5, vec![(1, Value::Bool(first.iter().any(|byte| *byte != 0)))])
                }
                MatchKind::Exact => of(EXACT, 2, vec![(1, Value::Bytes(first))]),
                MatchKind::Lpm => {
                    let length = i32::from_be_bytes(take(4)?.try_into().ok()?);
                    let value = given.map_or(first, <[u8]>::to_vec);
                    of(LPM, 3, vec![(1, Value::Bytes(value)), (2, Value::I32(length))])
                }
                MatchKind::Ternary | MatchKind::Optional => {
                    of(TERNARY, 4, vec![(1, Value::Bytes(first)), (2, Value::Bytes(take(bytes)?))])
                }
                MatchKind::Range => of(RANGE, 6, vec![(1, Value::Bytes(first)), (2, Value::Bytes(take(bytes)?))]),
            });
        }
        Some(params)
    }
}

/// The object with this name, or else the only object whose name ends with it.
pub(crate) fn find<'a, T>(name: &str, all: impl Iterator<Item = (u32, &'a str, T)>) -> Option<(u32, T)> {
    let mut ends = Vec::new();
    for (id, have, thing) in all {
        let have = plain(have);
        if have == name {
            return Some((id, thing));
        }
        if have.strip_suffix(name).is_some_and(|front| front.ends_with('.')) {
            ends.push((id, thing));
        }
    }
    if ends.len() == 1 { ends.pop() } else { None }
}

/// Parses a number of `width` bits; leading zero bytes are allowed.
///
/// # Errors
/// A message about `what`, if the number has more than `width` bits.
pub(crate) fn number(width: u32, bytes: &[u8], what: &str) -> Result<Bits, String> {
    // A number of 0 bits, which has 1 bit here, has no bytes.
    if width == 1 && bytes.is_empty() {
        return Ok(Bits::zero(1));
    }
    bytes::parse(width, bytes, what).map_err(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_the_names_that_the_json_has() {
        let actions =
            |names: &'static [&'static str]| names.iter().enumerate().map(|(id, name)| (id as u32, *name, ()));
        assert_eq!(find("c.set", actions(&["NoAction", "c.set#2"])), Some((1, ())));
        assert_eq!(find("set", actions(&["c.set#2", "c.unset"])), Some((0, ())));
        assert_eq!(find("c.set#2", actions(&["c.set#x", "c.set#"])), None);
        assert_eq!(find("c.set#x", actions(&["c.set#x"])), Some((0, ())));
        assert_eq!(number(1, &[], "x").map(|bits| bits.is_zero()), Ok(true));
        assert!(number(8, &[], "x").is_err());
    }

    #[test]
    fn descriptions_are_read_however_deep_they_are_nested() {
        let deep = format!("{}1{}", "[{\"x\":".repeat(500), "}]".repeat(500));
        let text = format!(
            r#"{{"__meta__": {{"version": [2, 18]}}, "parsers": {deep}, "actions": [{{"name": "a", "primitives": {deep}}}],
                "pipelines": [{{"name": "ingress", "conditionals": {deep}, "action_profiles": [{{"name": "p", "id": 4}}], "tables": [
                    {{"name": "t", "id": 7, "key": [{{"match_type": "exact", "target": {deep}}}, {{"match_type": "valid"}}],
                      "default_entry": {{"action_id": 1, "x": {deep}}}}},
                    {{"name": "u", "id": 8, "default_entry": null}}, {{"name": "v", "id": 9}}]}}],
                "counter_arrays": [{{"name": "c", "id": 1, "x": {deep}}}], "meter_arrays": [{{"name": "m", "id": 2}}],
                "register_arrays": [{{"name": "r", "id": 3}}, {{"id": 5}}], "learn_lists": [{{"name": "l", "id": 6}}]}}"#
        );
        let described = Described::read(&text).unwrap();
        let ids = [(0, "t"), (0, "v"), (1, "p"), (2, "c"), (3, "m"), (4, "r"), (5, "l"), (0, "c")];
        let found = ids.map(|(kind, name)| described.ids.get(&(kind, name.to_string())).copied());
        assert_eq!(found, [Some(7), Some(9), Some(4), Some(1), Some(2), Some(3), Some(6), None]);
        assert_eq!(described.valid, HashSet::from([("t".to_string(), 1)]));
        assert_eq!(described.without_default, HashSet::from(["u".to_string(), "v".to_string()]));
    }
}

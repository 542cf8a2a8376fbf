//! Matches on fields, and actions with arguments: what table entries, members and value sets have in common.

use crate::names::{Names, id_of, key, match_kind, name_of};
use crate::text::{Holds, name_text, value_bytes, value_json, value_text};
use base::Bits;
use base::entry::{KeyMatch, MatchKind};
use control::bytes::canonical;
use messages::p4::config::v1 as config;
use messages::p4::v1 as pb;
use pb::field_match::FieldMatchType;
use serde_json::{Value, json};
use stf::script::ActionText;

// Parsing.
impl Names {
    /// The match that a word represents; `Ok(None)` for a don't-care match, which the protocol omits.
    pub(crate) fn field_match(
        &self,
        field: &config::MatchField,
        text: Option<&str>,
    ) -> Result<Option<pb::FieldMatch>, String> {
        let place = |why: String| format!("key `{}`: {why}", key(field).name);
        let kind = match_kind(field).ok_or_else(|| place("its match kind is not supported".to_string()))?;
        let given = |field_match_type| {
            Ok(Some(pb::FieldMatch { field_id: field.id, field_match_type: Some(field_match_type) }))
        };
        if self.holds(field.bitwidth, field.type_name.as_ref()) == Holds::String {
            let bytes = match text {
                None | Some("*") if kind != MatchKind::Exact => return Ok(None),
                text => value_bytes(text.unwrap_or("\"\""), Holds::String).map_err(place)?,
            };
            return match kind {
                MatchKind::Exact => given(FieldMatchType::Exact(pb::field_match::Exact { value: bytes })),
                MatchKind::Optional => given(FieldMatchType::Optional(pb::field_match::Optional { value: bytes })),
                kind => {
                    Err(place(format!("it is a string for controllers, and `{}` of strings is undefined", kind.name())))
                }
            };
        }
        if let Some(quoted) = text.filter(|text| text.starts_with('"')) {
            return Err(place(format!("{quoted} is a string, but the field is a number of {} bits", field.bitwidth)));
        }
        given(match stf::setup::match_of(&key(field), text)? {
            KeyMatch::Exact(value) => FieldMatchType::Exact(pb::field_match::Exact { value: canonical(&value) }),
            KeyMatch::Lpm { value, prefix_len } if prefix_len > 0 => {
                let prefix_len = i32::try_from(prefix_len).unwrap_or(i32::MAX);
                FieldMatchType::Lpm(pb::field_match::Lpm { value: canonical(&value), prefix_len })
            }
            KeyMatch::Ternary { value, mask } if mask.is_true() => {
                FieldMatchType::Ternary(pb::field_match::Ternary { value: canonical(&value), mask: canonical(&mask) })
            }
            KeyMatch::Range { low, high } if low.is_true() || high != Bits::ones(high.width()) => {
                FieldMatchType::Range(pb::field_match::Range { low: canonical(&low), high: canonical(&high) })
            }
            KeyMatch::Optional(Some(value)) => {
                FieldMatchType::Optional(pb::field_match::Optional { value: canonical(&value) })
            }
            KeyMatch::Lpm { .. } | KeyMatch::Ternary { .. } | KeyMatch::Range { .. } | KeyMatch::Optional(None) => {
                return Ok(None);
            }
        })
    }

    /// An action with arguments; it must be one of those with these ids.
    pub(crate) fn call(&self, ids: &[u32], text: &ActionText) -> Result<pb::Action, String> {
        let listed: Vec<&config::Action> = ids.iter().filter_map(|id| self.action_of_id(*id)).collect();
        // In the reference compiler's scripts, a top-level action may have a leading dot.
        let wanted = text.name.trim_start_matches('.');
        let items = listed.iter().copied().enumerate();
        let (_, info) = stf::setup::by_suffix("action", wanted, items, |a: &config::Action| name_of(&a.preamble))?;
        let name = name_of(&info.preamble);
        let mut args: Vec<Option<Vec<u8>>> = vec![None; info.params.len()];
        for (position, (param, value)) in text.args.iter().enumerate() {
            let at = if param.is_empty() {
                position
            } else {
                let names: Vec<&str> = info.params.iter().map(|p| p.name.as_str()).collect();
                let found = names.iter().position(|name| name == param);
                found.ok_or_else(|| {
                    format!("action `{name}` has no parameter `{param}`; it has: {}", names.join(", "))
                })?
            };
            let of =
                info.params.get(at).ok_or_else(|| format!("action `{name}` has {} parameters", info.params.len()))?;
            if args[at].is_some() {
                return Err(format!("action `{name}`: `{}` is given twice", of.name));
            }
            let bytes = value_bytes(value, self.holds(of.bitwidth, of.type_name.as_ref()));
            args[at] = Some(bytes.map_err(|why| format!("parameter `{}` of `{name}`: {why}", of.name))?);
        }
        let param = |(arg, of): (Option<Vec<u8>>, &config::action::Param)| {
            let value = arg.ok_or_else(|| format!("action `{name}` needs a value for `{}`", of.name))?;
            Ok(pb::action::Param { param_id: of.id, value })
        };
        let params = args.into_iter().zip(&info.params).map(param).collect::<Result<_, String>>()?;
        Ok(pb::Action { action_id: id_of(&info.preamble), params })
    }
}

// Printing.
impl Names {
    pub(crate) fn call_text(&self, call: &pb::Action) -> String {
        let param = |given: &pb::action::Param| {
            let (name, holds) = self.param(call.action_id, given.param_id);
            format!("{}:{}", name_text(&name), value_text(&given.value, holds))
        };
        let params: Vec<String> = call.params.iter().map(param).collect();
        format!("{}({})", name_text(&self.action_name(call.action_id)), params.join(", "))
    }

    pub(crate) fn call_json(&self, call: &pb::Action) -> Value {
        let param = |given: &pb::action::Param| {
            let (name, holds) = self.param(call.action_id, given.param_id);
            (name, value_json(&given.value, holds))
        };
        let params: serde_json::Map<String, Value> = call.params.iter().map(param).collect();
        json!({ "name": self.action_name(call.action_id), "params": params })
    }

    fn param(&self, action: u32, id: u32) -> (String, Holds) {
        let param = self.action_of_id(action).and_then(|info| info.params.iter().find(|param| param.id == id));
        match param {
            Some(param) => (param.name.clone(), self.holds(param.bitwidth, param.type_name.as_ref())),
            None => (format!("param_{id}"), Holds::Bits(0)),
        }
    }

    /// A match as a word; `field` describes the field, if the P4Info has it.
    pub(crate) fn match_text(&self, given: &pb::FieldMatch, field: Option<&config::MatchField>) -> String {
        let holds = field.map_or(Holds::Bits(0), |field| self.holds(field.bitwidth, field.type_name.as_ref()));
        let text = |bytes: &[u8]| value_text(bytes, holds);
        match &given.field_match_type {
            Some(FieldMatchType::Exact(m)) => text(&m.value),
            Some(FieldMatchType::Optional(m)) => text(&m.value),
            Some(FieldMatchType::Lpm(m)) => format!("{}/{}", text(&m.value), m.prefix_len),
            Some(FieldMatchType::Ternary(m)) => format!("{}&&&{}", text(&m.value), text(&m.mask)),
            Some(FieldMatchType::Range(m)) => format!("{}..{}", text(&m.low), text(&m.high)),
            Some(FieldMatchType::Other(any)) => format!("({})", any.type_url),
            None => "*".to_string(),
        }
    }

    pub(crate) fn match_json(&self, given: &pb::FieldMatch, field: Option<&config::MatchField>) -> Value {
        let holds = field.map_or(Holds::Bits(0), |field| self.holds(field.bitwidth, field.type_name.as_ref()));
        let value = |bytes: &[u8]| value_json(bytes, holds);
        match &given.field_match_type {
            Some(FieldMatchType::Exact(m)) => json!({ "exact": value(&m.value) }),
            Some(FieldMatchType::Optional(m)) => json!({ "optional": value(&m.value) }),
            Some(FieldMatchType::Lpm(m)) => json!({ "lpm": value(&m.value), "prefix_len": m.prefix_len }),
            Some(FieldMatchType::Ternary(m)) => json!({ "ternary": value(&m.value), "mask": value(&m.mask) }),
            Some(FieldMatchType::Range(m)) => json!({ "range": [value(&m.low), value(&m.high)] }),
            Some(FieldMatchType::Other(any)) => json!({ "other": any.type_url }),
            None => Value::Null,
        }
    }
}

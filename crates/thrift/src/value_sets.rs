//! Parser value sets. A value is one number: the concatenated fields of the set, the first one most significant.
//!
//! P4Runtime can write members that match several values; such a member is shown as its value under its mask.

use crate::fault::{Answer, Fault, value_set as code, with_code};
use crate::program::{Program, find, number};
use crate::service::Context;
use crate::wire::Value;
use base::Bits;
use base::entry::MatchKind;
use control::bytes;
use control::entity::{Entity, FieldMatch, MatchValue, UpdateKind, ValueSetEntry};
use control::schema::ValueSetSchema;
use std::sync::Arc;

struct Set {
    program: Arc<Program>,
    id: u32,
}

impl Set {
    fn schema(&self) -> &ValueSetSchema {
        // It was looked up there.
        &self.program.schema.value_sets[&self.id]
    }

    fn width(&self) -> u32 {
        self.schema().fields.iter().map(|field| field.value.width).sum()
    }

    /// A member that matches exactly one value.
    fn member(&self, value: &[u8]) -> Answer<Vec<FieldMatch>> {
        let name = &self.schema().name;
        let bits = number(self.width(), value, &format!("value set `{name}`"));
        let bits = bits.map_err(|why| Fault::Coded(code::ERROR, why))?;
        let mut below = self.width();
        let matched = self.schema().fields.iter().map(|field| {
            let width = field.value.width;
            below -= width;
            let part = bits.lshr(u64::from(below)).resize_u(width);
            let (sent, ones) = (field.value.encode(&part), bytes::canonical(&Bits::ones(width)));
            let value = match field.kind {
                Some(MatchKind::Exact) => MatchValue::Exact(sent),
                Some(MatchKind::Optional) => MatchValue::Optional(sent),
                Some(MatchKind::Ternary) => MatchValue::Ternary { value: sent, mask: ones },
                Some(MatchKind::Lpm) => MatchValue::Lpm { value: sent, prefix_len: width as i32 },
                Some(MatchKind::Range) => MatchValue::Range { low: sent.clone(), high: sent },
                None => return Err(Fault::unsupported(&format!("the match kind of value set `{name}`"))),
            };
            Ok(FieldMatch { field_id: field.id, value })
        });
        matched.collect()
    }

    /// The value of a member.
    fn value(&self, member: &[FieldMatch]) -> Option<Bits> {
        let mut all = Bits::zero(0);
        for field in &self.schema().fields {
            let given = member.iter().find(|given| given.field_id == field.id);
            let bytes = match given.map(|given| &given.value) {
                Some(MatchValue::Exact(value) | MatchValue::Optional(value)) => value,
                Some(MatchValue::Ternary { value, .. } | MatchValue::Lpm { value, .. }) => value,
                Some(MatchValue::Range { low, .. }) => low,
                _ => &vec![0],
            };
            all = all.concat(&field.value.decode(bytes, "").ok()?);
        }
        Some(all)
    }
}

impl Context<'_> {
    fn set_of(&mut self) -> Answer<Set> {
        let name = self.text(2)?;
        let program = self.program()?;
        let all = program.schema.value_sets.iter().map(|(id, set)| (*id, set.name.as_str(), ()));
        match find(name, all) {
            Some((id, ())) => Ok(Set { program, id }),
            None => Err(Fault::Coded(code::INVALID_NAME, format!("there is no value set `{name}`"))),
        }
    }

    fn members_of(&self, set: &Set) -> Answer<Vec<Vec<FieldMatch>>> {
        let query = ValueSetEntry { value_set_id: set.id, members: vec![] };
        let found = self.read(Entity::ValueSet(query)).map_err(|error| with_code(error, code::ERROR))?;
        let members = found.into_iter().find_map(|entity| match entity {
            Entity::ValueSet(entry) => Some(entry.members),
            _ => None,
        });
        Ok(members.unwrap_or_default())
    }

    fn write_set(&self, set: &Set, members: Vec<Vec<FieldMatch>>) -> Answer<Option<Value>> {
        let entry = ValueSetEntry { value_set_id: set.id, members };
        let done = self.write_one(UpdateKind::Modify, Entity::ValueSet(entry));
        done.map_err(|error| with_code(error, code::ERROR))?;
        Ok(None)
    }
}

pub(crate) fn add(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let set = on.set_of()?;
    let member = set.member(on.bytes(3)?)?;
    let mut members = on.members_of(&set)?;
    // An existing value is no error, as in bmv2.
    if members.contains(&member) {
        return Ok(None);
    }
    members.push(member);
    on.write_set(&set, members)
}

pub(crate) fn remove(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let set = on.set_of()?;
    let member = set.member(on.bytes(3)?)?;
    let mut members = on.members_of(&set)?;
    members.retain(|have| *have != member);
    on.write_set(&set, members)
}

pub(crate) fn get(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let set = on.set_of()?;
    let members = on.members_of(&set)?;
    let values = members.iter().filter_map(|member| set.value(member)).map(|bits| Value::Bytes(bits.to_bytes_be()));
    Ok(Some(Value::List(values.collect())))
}

pub(crate) fn clear(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let set = on.set_of()?;
    on.write_set(&set, vec![])
}

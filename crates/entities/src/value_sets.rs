//! Parser value sets (P4Runtime specification, "ValueSetEntry"). A write replaces all members. A line has one member or
//! several, each with a value for every field.

use crate::names::{Names, find, id_of, key, name_of};
use crate::text::name_text;
use crate::{Change, Kind, Verb};
use messages::p4::config::v1 as config;
use messages::p4::v1 as pb;
use pb::entity::Entity;
use serde_json::{Value, json};
use stf::Command;

/// The kind of value sets.
pub(crate) struct ValueSets;

impl Names {
    fn value_set_of_id(&self, id: u32) -> Option<&config::ValueSet> {
        self.info.value_sets.iter().find(|set| id_of(&set.preamble) == id)
    }

    fn member_words(&self, set: Option<&config::ValueSet>, member: &pb::ValueSetMember) -> String {
        let given = |id: u32| member.r#match.iter().find(|given| given.field_id == id);
        let fields = set.map_or(&[][..], |set| &set.r#match);
        let word =
            |field: &config::MatchField| given(field.id).map_or("*".to_string(), |g| self.match_text(g, Some(field)));
        fields.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

impl Kind for ValueSets {
    fn noun(&self) -> &'static str {
        "value set"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        if names.info.value_sets.is_empty() && name.is_none() {
            return Ok(vec![]);
        }
        let set = name.map(|name| find("value set", name, &names.info.value_sets, |set| &set.preamble)).transpose()?;
        let value_set_id = set.map_or(0, |set| id_of(&set.preamble));
        Ok(vec![Entity::ValueSetEntry(pb::ValueSetEntry { value_set_id, members: vec![] })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let Entity::ValueSetEntry(entry) = entity else { return None };
        Some(Entity::ValueSetEntry(pb::ValueSetEntry { value_set_id: entry.value_set_id, members: vec![] }))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        false
    }

    /// One line for each member, sorted because members have no order.
    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::ValueSetEntry(entry) = entity else { return None };
        let set = names.value_set_of_id(entry.value_set_id);
        let name =
            set.map_or_else(|| format!("value_set_{:#010x}", entry.value_set_id), |s| name_of(&s.preamble).to_string());
        let line = |member| format!("value_set {} {}", name_text(&name), names.member_words(set, member));
        let mut lines: Vec<String> = entry.members.iter().map(line).collect();
        lines.sort();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        let Entity::ValueSetEntry(entry) = entity else { return Value::Null };
        let set = names.value_set_of_id(entry.value_set_id);
        let member = |member: &pb::ValueSetMember| {
            let field = |given: &pb::FieldMatch| {
                let field = set.and_then(|set| set.r#match.iter().find(|field| field.id == given.field_id));
                let name = field.map_or_else(|| format!("field_{}", given.field_id), |field| field.name.clone());
                (name, names.match_json(given, field))
            };
            Value::Object(member.r#match.iter().map(field).collect())
        };
        json!({
            "value_set": names.name_in(&names.info.value_sets, |set| &set.preamble, entry.value_set_id),
            "members": entry.members.iter().map(member).collect::<Vec<_>>(),
            "size": set.map(|set| set.size),
        })
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::ValueSet { name, values } = command else { return None };
        let entry = || {
            let set = find("value set", name, &names.info.value_sets, |set| &set.preamble)?;
            let fields: Vec<String> = set.r#match.iter().map(|field| key(field).name).collect();
            let members = stf::setup::members_of(name_of(&set.preamble), &fields, values)?;
            let member = |values: &[String]| {
                let given = set.r#match.iter().zip(values).map(|(field, value)| names.field_match(field, Some(value)));
                let given: Vec<Option<pb::FieldMatch>> = given.collect::<Result<_, _>>()?;
                Ok(pb::ValueSetMember { r#match: given.into_iter().flatten().collect() })
            };
            let members = members.map(member).collect::<Result<Vec<_>, String>>()?;
            if let Some(at) = (1..members.len()).find(|at| members[..*at].contains(&members[*at])) {
                return Err(format!("the member `{}` is given twice", names.member_words(Some(set), &members[at])));
            }
            Ok(Entity::ValueSetEntry(pb::ValueSetEntry { value_set_id: id_of(&set.preamble), members }))
        };
        Some(entry().map(|entity| Change { verb: Verb::Extend, entity }))
    }
}

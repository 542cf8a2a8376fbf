//! Members and groups of action profiles (P4Runtime specification, "ActionProfileMember & ActionProfileGroup").

use crate::names::{Names, find, id_of, name_of};
use crate::text::{name_text, port_bytes, port_text};
use crate::{Change, Kind, Verb};
use messages::p4::config::v1 as config;
use messages::p4::v1 as pb;
use pb::action_profile_group::member::WatchKind;
use pb::entity::Entity;
use serde_json::{Value, json};
use std::fmt::Write;
use stf::Command;

/// The kind of action profile members: actions with arguments that entries refer to.
pub(crate) struct Members;
/// The kind of groups: members of which one is selected for each packet.
pub(crate) struct Groups;

impl Names {
    fn profile(&self, name: &str) -> Result<&config::ActionProfile, String> {
        find("action profile", name, &self.info.action_profiles, |profile| &profile.preamble)
    }

    fn profile_id(&self, name: Option<&str>) -> Result<u32, String> {
        name.map_or(Ok(0), |name| self.profile(name).map(|profile| id_of(&profile.preamble)))
    }

    pub(crate) fn profile_name(&self, id: u32) -> String {
        self.name_in(&self.info.action_profiles, |profile| &profile.preamble, id)
    }
}

impl Kind for Members {
    fn noun(&self) -> &'static str {
        "member"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        // Some servers answer with an error if the program has no action profiles.
        if names.info.action_profiles.is_empty() && name.is_none() {
            return Ok(vec![]);
        }
        let action_profile_id = names.profile_id(name)?;
        Ok(vec![Entity::ActionProfileMember(pb::ActionProfileMember { action_profile_id, ..Default::default() })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let Entity::ActionProfileMember(member) = entity else { return None };
        Some(Entity::ActionProfileMember(pb::ActionProfileMember { action: None, ..member.clone() }))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        true
    }

    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::ActionProfileMember(member) = entity else { return None };
        let profile = name_text(&names.profile_name(member.action_profile_id));
        let action = member.action.as_ref().map_or("# no action".to_string(), |action| names.call_text(action));
        Some(format!("member {profile} {} {action}", member.member_id))
    }

    fn order(&self, _: &Names, entity: &Entity) -> Vec<u8> {
        let Entity::ActionProfileMember(member) = entity else { return vec![] };
        [member.action_profile_id, member.member_id].map(u32::to_be_bytes).concat()
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        let Entity::ActionProfileMember(member) = entity else { return Value::Null };
        json!({
            "profile": names.profile_name(member.action_profile_id),
            "member": member.member_id,
            "action": member.action.as_ref().map(|action| names.call_json(action)),
        })
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::Member { profile, id, action } = command else { return None };
        let member = || {
            let info = names.profile(profile)?;
            let tables = names.info.tables.iter().filter(|table| info.table_ids.contains(&id_of(&table.preamble)));
            let mut ids: Vec<u32> = tables.flat_map(|table| table.action_refs.iter().map(|r| r.id)).collect();
            ids.dedup();
            // Tables that share a profile have the same actions.
            let mut seen = std::collections::BTreeSet::new();
            ids.retain(|id| seen.insert(*id));
            let action = action.as_ref().map(|action| names.call(&ids, action)).transpose()?;
            let action_profile_id = id_of(&info.preamble);
            Ok(Entity::ActionProfileMember(pb::ActionProfileMember { action_profile_id, member_id: *id, action }))
        };
        Some(member().map(|entity| Change { verb: Verb::Set, entity }))
    }
}

impl Kind for Groups {
    fn noun(&self) -> &'static str {
        "group"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        if !names.info.action_profiles.iter().any(|profile| profile.with_selector) && name.is_none() {
            return Ok(vec![]);
        }
        let action_profile_id = names.profile_id(name)?;
        Ok(vec![Entity::ActionProfileGroup(pb::ActionProfileGroup { action_profile_id, ..Default::default() })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let Entity::ActionProfileGroup(group) = entity else { return None };
        let (action_profile_id, group_id) = (group.action_profile_id, group.group_id);
        Some(Entity::ActionProfileGroup(pb::ActionProfileGroup { action_profile_id, group_id, ..Default::default() }))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        true
    }

    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::ActionProfileGroup(group) = entity else { return None };
        let mut line = format!("group {} {}", name_text(&names.profile_name(group.action_profile_id)), group.group_id);
        if group.max_size != 0 {
            let _ = write!(line, " max_size={}", group.max_size);
        }
        for member in &group.members {
            let _ = write!(line, " {}", member.member_id);
            // The weight is 0 if the program disallows weights.
            if member.weight > 1 {
                let _ = write!(line, ":{}", member.weight);
            }
            if let Some(port) = watched(member.watch_kind.as_ref()) {
                let _ = write!(line, "@{port}");
            }
        }
        Some(line)
    }

    fn order(&self, _: &Names, entity: &Entity) -> Vec<u8> {
        let Entity::ActionProfileGroup(group) = entity else { return vec![] };
        [group.action_profile_id, group.group_id].map(u32::to_be_bytes).concat()
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        let Entity::ActionProfileGroup(group) = entity else { return Value::Null };
        let member = |m: &pb::action_profile_group::Member| json!({ "member": m.member_id, "weight": m.weight, "watch_port": watched(m.watch_kind.as_ref()) });
        json!({
            "profile": names.profile_name(group.action_profile_id),
            "group": group.group_id,
            "max_size": group.max_size,
            "members": group.members.iter().map(member).collect::<Vec<_>>(),
        })
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::Group { profile, id, max_size, members } = command else { return None };
        let group = || {
            let info = names.profile(profile)?;
            if !info.with_selector {
                return Err(format!(
                    "action profile `{}` is no selector: it has members but no groups",
                    name_of(&info.preamble)
                ));
            }
            // If the program disallows weights, the default is 0, meaning none.
            let unsaid = if info.weights_disallowed { 0 } else { 1 };
            let member = |part: &stf::script::GroupPart| {
                let weight = part.weight.unwrap_or(unsaid);
                Ok(pb::action_profile_group::Member {
                    member_id: part.member,
                    weight: i32::try_from(weight).map_err(|_| format!("the weight {weight} is too large"))?,
                    watch_kind: part.watch.map(|port| WatchKind::WatchPort(port_bytes(port))),
                })
            };
            Ok(Entity::ActionProfileGroup(pb::ActionProfileGroup {
                action_profile_id: id_of(&info.preamble),
                group_id: *id,
                members: members.iter().map(member).collect::<Result<_, String>>()?,
                max_size: i32::try_from(*max_size).map_err(|_| format!("the size {max_size} is too large"))?,
            }))
        };
        Some(group().map(|entity| Change { verb: Verb::Set, entity }))
    }
}

#[allow(deprecated, reason = "what older controllers wrote is printed, too")]
fn watched(watch: Option<&WatchKind>) -> Option<String> {
    match watch? {
        WatchKind::Watch(port) => Some(port.to_string()),
        WatchKind::WatchPort(port) if port.is_empty() => None,
        WatchKind::WatchPort(port) => Some(port_text(port)),
    }
}

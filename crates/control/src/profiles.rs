//! Action profiles and selectors: members, groups, one-shot action sets (P4Runtime specification, "ActionProfileMember
//! & ActionProfileGroup", "One Shot Action Selector Programming").
//!
//! A one-shot action set becomes a group and members with ids from [`ONE_SHOT_IDS`] on, which controllers can neither
//! use nor see. The set as sent is stored with its entry and returned on reading. A profile is programmed in one style
//! at a time: while an entry with an action set exists, members and groups are refused, and vice versa. A set's group
//! action runs before the selected member: the program has an action for each such pair ([`ir::combined_action_name`]),
//! and the members of such a set call it with the arguments of both.

use crate::entity::{self, Entity, TableAction, UpdateKind, Watch};
use crate::error::{Error, Result, choices};
use crate::forwarding::Forwarding;
use crate::schema::{ListedAction, ProfileSchema, present};
use base::Bits;
use base::entry::{EntryAction, GroupMember};
use base::ids::ExternId;
use p4info::{ActionScope, ObjectKind};
use std::collections::{BTreeSet, HashMap};

/// The first id of members and groups that belong to one-shot action sets.
const ONE_SHOT_IDS: u32 = 0xf000_0000;

/// Ids in use for one-shot action sets, by profile.
#[derive(Default, Debug)]
pub(crate) struct OneShotIds {
    /// The members of each group.
    groups: HashMap<ExternId, HashMap<u32, Vec<u32>>>,
    members: HashMap<ExternId, BTreeSet<u32>>,
}

impl OneShotIds {
    /// Copies the ids of a profile of an earlier program.
    pub(crate) fn copy(&mut self, earlier: &OneShotIds, from: ExternId, to: ExternId) {
        self.groups.extend(earlier.groups.get(&from).map(|groups| (to, groups.clone())));
        self.members.extend(earlier.members.get(&from).map(|members| (to, members.clone())));
    }

    fn used(&self, profile: ExternId) -> bool {
        self.groups.get(&profile).is_some_and(|groups| !groups.is_empty())
    }

    fn new_group(&self, profile: ExternId) -> Option<u32> {
        let groups = self.groups.get(&profile);
        (ONE_SHOT_IDS..=u32::MAX).find(|id| groups.is_none_or(|groups| !groups.contains_key(id)))
    }

    fn new_member(&mut self, profile: ExternId) -> Option<u32> {
        let members = self.members.entry(profile).or_default();
        let next = members.last().map_or(Some(ONE_SHOT_IDS), |last| last.checked_add(1));
        let id = next.or_else(|| (ONE_SHOT_IDS..=u32::MAX).find(|id| !members.contains(id)))?;
        members.insert(id);
        Some(id)
    }
}

impl Forwarding {
    /// The profile, its id in the program and its label, or an error if it is programmed with action sets.
    fn manual_profile(&self, id: u32) -> Result<(&ProfileSchema, ExternId, String)> {
        let profile = self.schema.profile_by_id(id)?;
        let name = format!("action profile `{}`", profile.name);
        let target = present(profile.target, ObjectKind::ActionProfile, &profile.name)?;
        if self.one_shots.used(target) {
            let message = format!("{name} is programmed with action sets; delete those entries before using members");
            return Err(Error::invalid(message));
        }
        Ok((profile, target, name))
    }

    pub(crate) fn write_member(&mut self, kind: UpdateKind, member: &entity::Member) -> Result<()> {
        let (profile, target, name) = self.manual_profile(member.action_profile_id)?;
        let name = format!("member {} of {name}", member.member_id);
        check_id(member.member_id, &name)?;
        let call = || {
            let action = member.action.as_ref();
            let action = action.ok_or_else(|| Error::invalid(format!("{name}: the action is missing")))?;
            self.schema.action_call(&name, &profile.actions, action, false)
        };
        let done = match kind {
            UpdateKind::Insert => self.state().member_insert(target, member.member_id, &call()?, 0),
            UpdateKind::Modify => self.state().member_modify(target, member.member_id, &call()?),
            UpdateKind::Delete => self.state().member_delete(target, member.member_id),
            UpdateKind::Unspecified => Ok(()),
        };
        done.map_err(|e| Error::from_state(e, &name))
    }

    pub(crate) fn write_group(&mut self, kind: UpdateKind, group: &entity::Group) -> Result<()> {
        let (profile, target, name) = self.manual_profile(group.action_profile_id)?;
        if !profile.with_selector {
            return Err(Error::invalid(format!("{name} is not an action selector; it has members but no groups")));
        }
        let name = format!("group {} of {name}", group.group_id);
        check_id(group.group_id, &name)?;
        let done = match kind {
            UpdateKind::Delete => self.state().group_delete(target, group.group_id),
            UpdateKind::Unspecified => Ok(()),
            UpdateKind::Insert | UpdateKind::Modify => {
                let parts = group.members.iter().map(|m| (m.member_id, m.weight, &m.watch));
                let semantics = profile.size_semantics();
                let members = self.group_members(profile, semantics, &name, parts)?;
                for (i, member) in members.iter().enumerate() {
                    if members[..i].iter().any(|earlier| earlier.member == member.member) {
                        return Err(Error::invalid(format!("{name}: member {} is given twice", member.member)));
                    }
                }
                let max_size = max_size(profile, group.max_size, &name)?;
                if kind == UpdateKind::Insert {
                    check_size(semantics, &members, max_size, &name)?;
                    self.state().group_insert(target, group.group_id, &members, max_size)
                } else {
                    let groups = self.state().groups(target);
                    if let Some((_, _, inserted)) = groups.iter().find(|(id, ..)| *id == group.group_id) {
                        if *inserted != max_size {
                            let message =
                                format!("{name} was inserted with `max_size` {inserted}, which cannot change");
                            return Err(Error::invalid(message));
                        }
                        check_size(semantics, &members, max_size, &name)?;
                    }
                    self.state().group_modify(target, group.group_id, &members)
                }
            }
        };
        done.map_err(|e| Error::from_state(e, &name))
    }

    /// The members of a group, with their weights and watch ports checked.
    fn group_members<'a>(
        &self,
        profile: &ProfileSchema,
        semantics: SizeSemantics,
        name: &str,
        parts: impl Iterator<Item = (u32, i32, &'a Watch)>,
    ) -> Result<Vec<GroupMember>> {
        let limit = match semantics {
            SizeSemantics::Members { max_member_weight } => max_member_weight,
            SizeSemantics::Weights => 0,
        };
        let mut members = Vec::new();
        for (member, weight, watch) in parts {
            let weight = match (profile.weights_disallowed, weight) {
                (true, 0) => 1,
                (true, weight) => {
                    return Err(Error::invalid(format!("{name}: the program disallows weights, {weight} is given")));
                }
                (false, weight) if weight <= 0 => {
                    return Err(Error::invalid(format!("{name}: a weight must be above 0, {weight} is given")));
                }
                (false, weight) if limit > 0 && weight > limit => {
                    return Err(Error::invalid(format!("{name}: the weight {weight} is above the limit of {limit}")));
                }
                (false, weight) => weight as u32,
            };
            let watch_port = match watch {
                Watch::Unset => None,
                Watch::Port(bytes) if bytes.is_empty() => None,
                Watch::Port(bytes) => Some(self.existing_port(bytes, name)?),
                Watch::Number(port) => {
                    let port = u32::try_from(*port).map_err(|_| Error::invalid(format!("{name}: no port {port}")))?;
                    Some(self.existing_port(&port.to_be_bytes(), name)?)
                }
            };
            members.push(GroupMember { member, weight, watch_port });
        }
        Ok(members)
    }

    /// The data plane's action for an entry of a table with a profile. `earlier` is the group of the action set that
    /// the entry used so far.
    pub(crate) fn profile_action(
        &mut self,
        table_id: u32,
        profile_id: u32,
        action: &TableAction,
        earlier: Option<u32>,
    ) -> Result<(EntryAction, Option<(u32, entity::ActionSet)>)> {
        let profile = self.schema.profile_by_id(profile_id)?;
        let name = format!("action profile `{}`", profile.name);
        match action {
            TableAction::Member(0) | TableAction::Group(0) => Err(Error::invalid(format!("{name}: the id is missing"))),
            TableAction::Member(id) => {
                let (_, target, _) = self.manual_profile(profile_id)?;
                if !self.state().members(target).iter().any(|(have, _)| have == id) {
                    return Err(Error::not_found(format!("{name} has no member {id}")));
                }
                Ok((EntryAction::Member(*id), None))
            }
            TableAction::Group(id) => {
                let (profile, target, _) = self.manual_profile(profile_id)?;
                if !profile.with_selector {
                    return Err(Error::invalid(format!("{name} is not an action selector; entries give a member")));
                }
                if !self.state().groups(target).iter().any(|(have, ..)| have == id) {
                    return Err(Error::not_found(format!("{name} has no group {id}")));
                }
                Ok((EntryAction::Group(*id), None))
            }
            TableAction::OneShot(set) => {
                let (group, set) = self.insert_one_shot(profile_id, set, earlier)?;
                Ok((EntryAction::Group(group), Some((group, set))))
            }
            TableAction::Action(_) => Err(Error::invalid(format!("table {table_id:#010x} has an action profile"))),
        }
    }

    /// Creates the group and members of an action set, or nothing if one of them is refused. The members of the
    /// `earlier` group, which the new one replaces, do not count against the profile's size. Also returns the set in
    /// the form in which it is read back, with canonical values.
    fn insert_one_shot(
        &mut self,
        profile_id: u32,
        set: &entity::ActionSet,
        earlier: Option<u32>,
    ) -> Result<(u32, entity::ActionSet)> {
        let profile = self.schema.profile_by_id(profile_id)?;
        let name = format!("action selector `{}`", profile.name);
        let target = present(profile.target, ObjectKind::ActionProfile, &profile.name)?;
        if !profile.with_selector {
            return Err(Error::invalid(format!(
                "action profile `{}` is not an action selector; entries give a member",
                profile.name
            )));
        }
        // The selector's default, by hash (which is the same), at random.
        let random = match set.selection_mode {
            0 | 1 => false,
            2 => true,
            mode => return Err(Error::invalid(format!("{name}: there is no selection mode {mode}"))),
        };
        let semantics = match set.size_semantics {
            0 => profile.size_semantics(),
            1 => SizeSemantics::Weights,
            2 => SizeSemantics::Members { max_member_weight: profile.max_member_weight },
            semantics => return Err(Error::invalid(format!("{name}: there are no size semantics {semantics}"))),
        };
        let manual = self.state().members(target).iter().any(|(id, _)| *id < ONE_SHOT_IDS)
            || self.state().groups(target).iter().any(|(id, ..)| *id < ONE_SHOT_IDS);
        if manual {
            let message =
                format!("{name} is programmed with members and groups; delete those before using action sets");
            return Err(Error::invalid(message));
        }
        let mut calls = Vec::new();
        for part in &set.actions {
            let action = part.action.as_ref();
            let action = action.ok_or_else(|| Error::invalid(format!("{name}: an action of the set is missing")))?;
            calls.push(self.schema.action_call(&name, &profile.actions, action, false)?);
        }
        let before = set.group_action.as_ref().map(|action| self.group_action(&name, profile, action)).transpose()?;
        let group_action = before.as_ref().map(|(action, _)| action.clone());
        let parts = set.actions.iter().map(|part| (0, part.weight, &part.watch));
        let mut members = self.group_members(profile, semantics, &name, parts)?;
        check_size(semantics, &members, profile.max_group_size.max(0) as u32, &name)
            .map_err(|e| Error::invalid(e.message))?;
        let kept = set.actions.iter().zip(&calls).zip(&members).map(|((part, call), member)| entity::WeightedAction {
            action: self.encode_action(&profile.actions, call),
            weight: part.weight,
            watch: member.watch_port.map_or(Watch::Unset, |port| Watch::Port(self.port_bytes(port))),
        });
        let kept = entity::ActionSet { actions: kept.collect(), group_action, ..set.clone() };
        if let Some((action, before)) = &before {
            for call in &mut calls {
                let combined = profile.combined.get(&(action.action_id, call.action)).copied();
                let missing = || Error::internal(format!("{name}: a member cannot follow the group action"));
                call.action = combined.ok_or_else(missing)?;
                call.args.splice(0..0, before.iter().cloned());
            }
        }
        let no_ids = || Error::exhausted(format!("{name}: no ids are left"));
        let group = self.one_shots.new_group(target).ok_or_else(no_ids)?;
        let groups = self.one_shots.groups.get(&target);
        let leaving = earlier.and_then(|earlier| groups?.get(&earlier)).map_or(0, Vec::len);
        let mut ids = Vec::new();
        let mut failed = None;
        for (member, call) in members.iter_mut().zip(&calls) {
            let Some(id) = self.one_shots.new_member(target) else {
                failed = Some(no_ids());
                break;
            };
            member.member = id;
            ids.push(id);
            if let Err(error) = self.state().member_insert(target, id, call, leaving) {
                failed = Some(Error::from_state(error, &name));
                break;
            }
        }
        if failed.is_none() {
            let mut inserted = self.state().group_insert(target, group, &members, 0);
            if random {
                inserted = inserted.and_then(|()| self.state().group_set_random(target, group));
            }
            failed = inserted.err().map(|e| Error::from_state(e, &name));
        }
        self.one_shots.groups.entry(target).or_default().insert(group, ids);
        match failed {
            None => Ok((group, kept)),
            Some(error) => {
                self.remove_one_shot(target, group);
                Err(error)
            }
        }
    }

    /// Checks a set's group action (P4Runtime 1.6), which must be an action that the program marks `@groupaction`.
    /// Returns it in the form in which it is read back, and its arguments.
    fn group_action(
        &self,
        name: &str,
        profile: &ProfileSchema,
        action: &entity::Action,
    ) -> Result<(entity::Action, Vec<Bits>)> {
        let fits = |listed: &&ListedAction| listed.scope == ActionScope::GroupAction;
        let found = profile.actions.iter().filter(fits).find(|listed| listed.id == action.action_id);
        let Some(schema) = found.and_then(|listed| self.schema.actions.get(&listed.id)) else {
            let names: Vec<String> =
                profile.actions.iter().filter(fits).map(|a| self.schema.action_name(a.id)).collect();
            let names = choices(names.iter().map(String::as_str));
            let given = self.schema.action_name(action.action_id);
            return Err(Error::invalid(format!(
                "{name}: `{given}` is not a group action; its actions marked `@groupaction`: {names}"
            )));
        };
        let args = self.schema.action_arguments(name, schema, action)?;
        let params = schema.params.iter().zip(&args).map(|(p, value)| (p.id, p.value.encode(value))).collect();
        Ok((entity::Action { action_id: action.action_id, params }, args))
    }

    /// Removes the group of an action set whose entry was removed.
    pub(crate) fn release_one_shot(&mut self, table_id: u32, one_shot: Option<&(u32, entity::ActionSet)>) {
        let profile = self.schema.tables.get(&table_id).and_then(|t| t.profile);
        let target = profile.and_then(|id| self.schema.profiles.get(&id)?.target);
        if let (Some(target), Some((group, _))) = (target, one_shot) {
            self.remove_one_shot(target, *group);
        }
    }

    fn remove_one_shot(&mut self, target: ExternId, group: u32) {
        let ids = self.one_shots.groups.get_mut(&target).and_then(|groups| groups.remove(&group)).unwrap_or_default();
        // After a refused insertion some of these do not exist; then nothing needs to be removed.
        let _ = self.state().group_delete(target, group);
        for id in ids {
            let _ = self.state().member_delete(target, id);
            if let Some(members) = self.one_shots.members.get_mut(&target) {
                members.remove(&id);
            }
        }
    }

    pub(crate) fn read_members(&self, query: &entity::Member, into: &mut Vec<Entity>) -> Result<()> {
        for (profile_id, profile, target) in self.profiles_of(query.action_profile_id)? {
            for (member_id, call) in self.state().members(target) {
                let selected = query.member_id == 0 || query.member_id == member_id;
                if selected && member_id < ONE_SHOT_IDS {
                    let action = self.encode_action(&profile.actions, &call);
                    into.push(Entity::Member(entity::Member { action_profile_id: profile_id, member_id, action }));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn read_groups(&self, query: &entity::Group, into: &mut Vec<Entity>) -> Result<()> {
        for (action_profile_id, profile, target) in self.profiles_of(query.action_profile_id)? {
            if !profile.with_selector {
                continue;
            }
            for (group_id, members, max_size) in self.state().groups(target) {
                let selected = query.group_id == 0 || query.group_id == group_id;
                if selected && group_id < ONE_SHOT_IDS {
                    let member = |m: &GroupMember| entity::GroupMember {
                        member_id: m.member,
                        weight: if profile.weights_disallowed {
                            0
                        } else {
                            i32::try_from(m.weight).unwrap_or(i32::MAX)
                        },
                        watch: m.watch_port.map_or(Watch::Unset, |port| Watch::Port(self.port_bytes(port))),
                    };
                    let members = members.iter().map(member).collect();
                    let max_size = i32::try_from(max_size).unwrap_or(i32::MAX);
                    into.push(Entity::Group(entity::Group { action_profile_id, group_id, members, max_size }));
                }
            }
        }
        Ok(())
    }

    /// The profile with an id, or all profiles for 0.
    fn profiles_of(&self, id: u32) -> Result<Vec<(u32, &ProfileSchema, ExternId)>> {
        if id != 0 {
            let profile = self.schema.profile_by_id(id)?;
            return Ok(vec![(id, profile, present(profile.target, ObjectKind::ActionProfile, &profile.name)?)]);
        }
        Ok(self.schema.profiles.iter().filter_map(|(id, p)| Some((*id, p, p.target?))).collect())
    }
}

fn check_id(id: u32, name: &str) -> Result<()> {
    match id {
        0 => Err(Error::invalid(format!("{name}: ids are above 0"))),
        id if id >= ONE_SHOT_IDS => Err(Error::invalid(format!("{name}: ids from {ONE_SHOT_IDS:#x} on are reserved"))),
        _ => Ok(()),
    }
}

/// How the size of a group is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SizeSemantics {
    /// As the sum of its members' weights.
    Weights,
    /// As the number of its members.
    Members {
        /// Limit on a member's weight; 0 for none.
        max_member_weight: i32,
    },
}

impl ProfileSchema {
    /// The semantics that the program declares.
    fn size_semantics(&self) -> SizeSemantics {
        match self.counts_members {
            true => SizeSemantics::Members { max_member_weight: self.max_member_weight },
            false => SizeSemantics::Weights,
        }
    }
}

/// Checks a group's `max_size`: from 1 to the profile's limit, or any number from 0 if the profile has none.
fn max_size(profile: &ProfileSchema, given: i32, name: &str) -> Result<u32> {
    let limit = profile.max_group_size;
    if given < 0 || (limit > 0 && !(1..=limit).contains(&given)) {
        let range = if limit > 0 { format!("from 1 to {limit}") } else { "0 or above".to_string() };
        return Err(Error::invalid(format!("{name}: `max_size` must be {range}, {given} is given")));
    }
    Ok(given as u32)
}

fn check_size(semantics: SizeSemantics, members: &[GroupMember], limit: u32, name: &str) -> Result<()> {
    let (size, unit) = match semantics {
        SizeSemantics::Members { .. } => (members.len() as u64, "members"),
        SizeSemantics::Weights => (members.iter().map(|m| u64::from(m.weight)).sum(), "total weight"),
    };
    if limit > 0 && size > u64::from(limit) {
        return Err(Error::exhausted(format!("{name}: {size} {unit}, the limit is {limit}")));
    }
    Ok(())
}

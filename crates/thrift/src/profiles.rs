//! Action profiles and selectors: members and groups.
//!
//! A handle is P4Runtime's id minus 1, so no mapping is needed: bmv2 numbers from 0, P4Runtime from 1. A new member or
//! group gets the lowest free id.

use crate::fault::{Answer, Fault, table as code, with_code};
use crate::program::{Program, find};
use crate::service::Context;
use crate::wire::{Elements, Value};
use control::Code;
use control::entity::{Action, Entity, Group, GroupMember, Member, UpdateKind};
use std::sync::Arc;

pub(crate) fn member_id(handle: i32) -> u32 {
    (handle as u32).wrapping_add(1)
}

pub(crate) fn member_handle(id: u32) -> i32 {
    id.wrapping_sub(1) as i32
}

pub(crate) fn group_id(handle: i32) -> u32 {
    member_id(handle)
}

pub(crate) fn group_handle(id: u32) -> i32 {
    member_handle(id)
}

struct Profile {
    program: Arc<Program>,
    id: u32,
    name: String,
}

impl Context<'_> {
    fn profile(&mut self) -> Answer<Profile> {
        let name = self.text(2)?;
        let program = self.program()?;
        let all =
            program.schema.profiles.iter().map(|(id, profile)| (*id, profile.name.as_str(), profile.name.clone()));
        let found = find(name, all);
        let Some((id, name)) = found else {
            return Err(Fault::Coded(code::INVALID_PROFILE_NAME, format!("there is no action profile `{name}`")));
        };
        Ok(Profile { program, id, name })
    }

    /// The action selector in the arguments; an error if the profile has no groups.
    fn selector(&mut self) -> Answer<Profile> {
        let profile = self.profile()?;
        match profile.program.schema.profiles.get(&profile.id).is_some_and(|of| of.with_selector) {
            true => Ok(profile),
            false => Err(Fault::Coded(
                code::NO_SELECTION,
                format!("action profile `{}` is not an action selector", profile.name),
            )),
        }
    }

    pub(crate) fn read_member(&self, profile: u32, id: u32) -> Answer<Option<Member>> {
        if id == 0 {
            return Ok(None);
        }
        let query = Member { action_profile_id: profile, member_id: id, action: None };
        let found = self.read(Entity::Member(query)).map_err(|error| with_code(error, code::ERROR))?;
        Ok(found.into_iter().find_map(|entity| match entity {
            Entity::Member(member) if member.member_id == id => Some(member),
            _ => None,
        }))
    }

    pub(crate) fn read_group(&self, profile: u32, id: u32) -> Answer<Option<Group>> {
        if id == 0 {
            return Ok(None);
        }
        let query = Group { action_profile_id: profile, group_id: id, ..Group::default() };
        let found = self.read(Entity::Group(query)).map_err(|error| with_code(error, code::ERROR))?;
        Ok(found.into_iter().find_map(|entity| match entity {
            Entity::Group(group) if group.group_id == id => Some(group),
            _ => None,
        }))
    }

    fn existing(&mut self, profile: &Profile, argument: i16) -> Answer<Member> {
        let handle = self.i32(argument)?;
        let member = self.read_member(profile.id, member_id(handle))?;
        member.ok_or_else(|| Fault::Coded(code::INVALID_MEMBER, format!("`{}` has no member {handle}", profile.name)))
    }

    fn existing_of(&mut self, profile: &Profile, argument: i16) -> Answer<Group> {
        let handle = self.i32(argument)?;
        let group = self.read_group(profile.id, group_id(handle))?;
        group.ok_or_else(|| Fault::Coded(code::INVALID_GROUP, format!("`{}` has no group {handle}", profile.name)))
    }

    /// Inserts an entity with the lowest free id.
    fn insert(&mut self, profile: &Profile, group: bool, entity: impl Fn(u32) -> Entity) -> Answer<u32> {
        let mut id = *self.next_id(profile.id, group);
        loop {
            match self.write_one(UpdateKind::Insert, entity(id)) {
                Ok(()) => break,
                Err(error) if error.code == Code::AlreadyExists => id = id.wrapping_add(1).max(1),
                Err(error) if error.code == Code::ResourceExhausted => {
                    return Err(Fault::Coded(code::FULL, error.message));
                }
                Err(error) => return Err(with_code(error, code::ERROR)),
            }
        }
        *self.next_id(profile.id, group) = id.wrapping_add(1).max(1);
        Ok(id)
    }

    /// Marks an id as free.
    fn freed(&mut self, profile: &Profile, group: bool, id: u32) {
        let next = self.next_id(profile.id, group);
        *next = (*next).min(id);
    }

    fn member_action(&self, profile: &Profile, name: i16, data: i16) -> Answer<Action> {
        let (name, data) = (self.text(name)?, self.data(data)?);
        let list = profile.program.schema.profiles.get(&profile.id).map_or(&[][..], |of| &of.actions);
        let Some(id) = profile.program.action(list, name, false) else {
            let why = format!("action profile `{}` has no action `{name}`", profile.name);
            return Err(Fault::Coded(code::INVALID_ACTION_NAME, why));
        };
        profile.program.call(id, &data, code::BAD_ACTION_DATA)
    }
}

pub(crate) fn add_member(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.profile()?;
    let action = Some(on.member_action(&profile, 3, 4)?);
    let member =
        |member_id| Entity::Member(Member { action_profile_id: profile.id, member_id, action: action.clone() });
    let id = on.insert(&profile, false, member)?;
    Ok(Some(Value::I32(member_handle(id))))
}

pub(crate) fn delete_member(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.profile()?;
    let member = on.existing(&profile, 3)?;
    let id = member.member_id;
    on.write_one(UpdateKind::Delete, Entity::Member(member)).map_err(|error| in_use(error, code::MEMBER_STILL_USED))?;
    on.freed(&profile, false, id);
    Ok(None)
}

/// The fault for a rejected deletion; `code` if the object is in use.
fn in_use(error: control::Error, code: i32) -> Fault {
    match error.code {
        Code::FailedPrecondition => Fault::Coded(code, error.message),
        _ => with_code(error, code::ERROR),
    }
}

pub(crate) fn modify_member(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.profile()?;
    let member = on.existing(&profile, 3)?;
    let action = Some(on.member_action(&profile, 4, 5)?);
    let done = on.write_one(UpdateKind::Modify, Entity::Member(Member { action, ..member }));
    done.map_err(|error| with_code(error, code::ERROR))?;
    Ok(None)
}

pub(crate) fn create_group(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.selector()?;
    let group = |group_id| Entity::Group(Group { action_profile_id: profile.id, group_id, ..Group::default() });
    let id = on.insert(&profile, true, group)?;
    Ok(Some(Value::I32(group_handle(id))))
}

pub(crate) fn delete_group(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.selector()?;
    let group = on.existing_of(&profile, 3)?;
    let id = group.group_id;
    on.write_one(UpdateKind::Delete, Entity::Group(group)).map_err(|error| in_use(error, code::GROUP_STILL_USED))?;
    on.freed(&profile, true, id);
    Ok(None)
}

pub(crate) fn join(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.selector()?;
    let member = on.existing(&profile, 3)?;
    let mut group = on.existing_of(&profile, 4)?;
    if group.members.iter().any(|have| have.member_id == member.member_id) {
        let why = format!("the member is in the group of `{}` already", profile.name);
        return Err(Fault::Coded(code::MEMBER_ALREADY_IN_GROUP, why));
    }
    let weightless = profile.program.schema.profiles.get(&profile.id).is_some_and(|of| of.weights_disallowed);
    let weight = i32::from(!weightless);
    group.members.push(GroupMember { member_id: member.member_id, weight, ..GroupMember::default() });
    write_group(on, group)
}

pub(crate) fn leave(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.selector()?;
    let member = on.existing(&profile, 3)?;
    let mut group = on.existing_of(&profile, 4)?;
    let before = group.members.len();
    group.members.retain(|have| have.member_id != member.member_id);
    if group.members.len() == before {
        let why = format!("the member is not in the group of `{}`", profile.name);
        return Err(Fault::Coded(code::MEMBER_NOT_IN_GROUP, why));
    }
    write_group(on, group)
}

fn write_group(on: &mut Context<'_>, group: Group) -> Answer<Option<Value>> {
    on.write_one(UpdateKind::Modify, Entity::Group(group)).map_err(|error| match error.code {
        Code::ResourceExhausted => Fault::Coded(code::FULL, error.message),
        _ => with_code(error, code::ERROR),
    })?;
    Ok(None)
}

/// A member as a `BmMtActProfMember`.
fn member_value(profile: &Profile, member: &Member) -> Answer<Value> {
    let called = member.action.as_ref().and_then(|action| profile.program.called(action));
    let (name, data) = called.ok_or_else(|| Fault::with_message("a member's action cannot be represented"))?;
    let handle = Value::I32(member_handle(member.member_id));
    Ok(Value::Struct(vec![(1, handle), (2, Value::text(name)), (3, Value::List(data))]))
}

/// A group as a `BmMtActProfGroup`.
fn group_value(group: &Group) -> Value {
    let members = group.members.iter().map(|member| Value::I32(member_handle(member.member_id)));
    Value::Struct(vec![(1, Value::I32(group_handle(group.group_id))), (2, Value::List(members.collect()))])
}

pub(crate) fn member(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.profile()?;
    let member = on.existing(&profile, 3)?;
    member_value(&profile, &member).map(Some)
}

pub(crate) fn group(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.selector()?;
    on.existing_of(&profile, 3).map(|group| Some(group_value(&group)))
}

pub(crate) fn members(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.profile()?;
    let mut list = Elements::of(&Value::Struct(vec![]));
    let query = Member { action_profile_id: profile.id, ..Member::default() };
    let told = on.read_each(Entity::Member(query), |entity| {
        if let Entity::Member(member) = entity {
            list.push(&member_value(&profile, &member)?)?;
        }
        Ok(())
    });
    told.map_err(|error| error.fault(code::ERROR))?;
    Ok(Some(Value::Elements(list)))
}

pub(crate) fn groups(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let profile = on.selector()?;
    let mut list = Elements::of(&Value::Struct(vec![]));
    let query = Group { action_profile_id: profile.id, ..Group::default() };
    let told = on.read_each(Entity::Group(query), |entity| {
        if let Entity::Group(group) = entity {
            list.push(&group_value(&group))?;
        }
        Ok(())
    });
    told.map_err(|error| error.fault(code::ERROR))?;
    Ok(Some(Value::Elements(list)))
}

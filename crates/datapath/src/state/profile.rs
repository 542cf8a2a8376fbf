//! Action profiles and selectors: members, groups, references.
//!
//! An entry that names a *member* holds a copy of the member's action, so lookups need no indirection; changing the
//! member publishes new versions of all entries that name it. An entry that names a *group* points at the group,
//! whose slots point at the members' own entries ([`tables::selector`]). Changing a member or a port's state replaces
//! the slots of the affected groups, atomically for each group.
//!
//! Threads: the control plane's, under the profile's lock; readers follow pointers. Tests: `state/tests.rs`,
//! `tests/state_equivalence.rs`.
#![allow(unsafe_code)]

use abi::{EntryHeader, EntryParts, StateError};
use base::entry::{ActionCall, EntryAction, GroupMember};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use tables::entry::{EntryMemory, Tag};
use tables::selector::{Group, OldMembers};
use tables::{Domain, Limbo, Runs};

type Result<T> = std::result::Result<T, StateError>;

/// One action profile or selector.
pub(super) struct Profile {
    /// Maximum number of members.
    size: u64,
    /// Whether it is a selector, which has groups.
    selector: bool,
    memory: EntryMemory,
    members: BTreeMap<u32, Member>,
    groups: BTreeMap<u32, GroupState>,
    /// The entry chosen in groups without an available member; if `None`, such groups choose nothing.
    empty: Option<*mut EntryHeader>,
    limbo: Limbo<Retired>,
}

struct Member {
    call: ActionCall,
    entry: *mut EntryHeader,
    /// Number of entries and default actions that name it.
    uses: u64,
}

struct GroupState {
    /// Boxed, since entries hold its address.
    group: Box<Group>,
    members: Vec<GroupMember>,
    max_size: u32,
    /// Number of entries and default actions that name it.
    uses: u64,
}

enum Retired {
    Entry(*mut EntryHeader),
    Members(#[allow(dead_code, reason = "kept alive until dropped")] OldMembers),
    Group(#[allow(dead_code, reason = "kept alive until dropped")] Box<Group>),
}

// SAFETY: the pointers point to memory that the profile owns.
unsafe impl Send for Profile {}

/// What an entry's action resolves to.
pub(super) enum Resolved<'a> {
    Call(Cow<'a, ActionCall>),
    Group(*const c_void),
}

impl Resolved<'_> {
    pub(super) fn runs(&self) -> Runs<'_> {
        match self {
            Resolved::Call(call) => Runs::Call(call),
            Resolved::Group(group) => Runs::Group(*group),
        }
    }
}

impl Profile {
    pub(super) fn new(size: u64, selector: bool, actions: &[Vec<u32>], empty: Option<&ActionCall>) -> Profile {
        let mut memory = EntryMemory::new(actions, EntryParts::default());
        let (members, groups, limbo) = (BTreeMap::new(), BTreeMap::new(), Limbo::default());
        let empty = empty.map(|call| memory.make(Runs::Call(call), Tag::NONE));
        Profile { size, selector, memory, members, groups, empty, limbo }
    }

    /// What an action that may name a member or group runs.
    pub(super) fn resolve<'a>(&self, action: &'a EntryAction) -> Result<Resolved<'a>> {
        match action {
            EntryAction::Call(call) => Ok(Resolved::Call(Cow::Borrowed(call))),
            EntryAction::Member(id) => {
                let member = self.members.get(id).ok_or(StateError::NoSuchReference(*id))?;
                Ok(Resolved::Call(Cow::Owned(member.call.clone())))
            }
            EntryAction::Group(id) => {
                let group = self.groups.get(id).ok_or(StateError::NoSuchReference(*id))?;
                Ok(Resolved::Group(group.group.as_ptr()))
            }
        }
    }

    /// Counts a new reference to the member or group that `action` names.
    pub(super) fn add_use(&mut self, action: &EntryAction) {
        if let Some(uses) = self.uses(action) {
            *uses += 1;
        }
    }

    /// Removes a reference to the member or group that `action` names.
    pub(super) fn drop_use(&mut self, action: &EntryAction) {
        if let Some(uses) = self.uses(action) {
            *uses -= 1;
        }
    }

    fn uses(&mut self, action: &EntryAction) -> Option<&mut u64> {
        match action {
            EntryAction::Call(_) => None,
            EntryAction::Member(id) => self.members.get_mut(id).map(|m| &mut m.uses),
            EntryAction::Group(id) => self.groups.get_mut(id).map(|g| &mut g.uses),
        }
    }

    pub(super) fn member_insert(&mut self, id: u32, call: &ActionCall, leaving: usize) -> Result<()> {
        if self.members.contains_key(&id) {
            return Err(StateError::Exists);
        }
        if self.members.len().saturating_sub(leaving) as u64 >= self.size {
            return Err(StateError::Full(self.size));
        }
        self.check_call(call)?;
        let entry = self.memory.make(Runs::Call(call), Tag::NONE);
        self.members.insert(id, Member { call: call.clone(), entry, uses: 0 });
        Ok(())
    }

    /// Whether entries name a member, so that they must change with it. Also checks that the member may run `call`.
    pub(super) fn is_used(&self, id: u32, call: &ActionCall) -> Result<bool> {
        self.check_call(call)?;
        Ok(self.members.get(&id).ok_or(StateError::NotFound)?.uses > 0)
    }

    /// Changes a member and its groups; does nothing if there is no such member. Call [`Profile::is_used`] first.
    pub(super) fn member_modify(&mut self, id: u32, call: &ActionCall, down: &BTreeSet<u32>, domain: &Domain) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let new = self.memory.make(Runs::Call(call), Tag::NONE);
        let old = std::mem::replace(&mut member.entry, new);
        member.call = call.clone();
        self.republish(down, domain, |g| g.members.iter().any(|m| m.member == id));
        self.limbo.push(domain.advance(), Retired::Entry(old));
    }

    pub(super) fn member_delete(&mut self, id: u32, domain: &Domain) -> Result<()> {
        let member = self.members.get(&id).ok_or(StateError::NotFound)?;
        if member.uses > 0 || self.groups.values().any(|g| g.members.iter().any(|m| m.member == id)) {
            return Err(StateError::InUse);
        }
        let entry = member.entry;
        self.members.remove(&id);
        self.limbo.push(domain.advance(), Retired::Entry(entry));
        Ok(())
    }

    pub(super) fn members(&self) -> Vec<(u32, ActionCall)> {
        self.members.iter().map(|(id, m)| (*id, m.call.clone())).collect()
    }

    pub(super) fn group_insert(
        &mut self,
        id: u32,
        members: &[GroupMember],
        max_size: u32,
        down: &BTreeSet<u32>,
    ) -> Result<()> {
        if !self.selector {
            return Err(StateError::WrongKind);
        }
        if self.groups.contains_key(&id) {
            return Err(StateError::Exists);
        }
        self.check_group(members)?;
        let group = Box::new(Group::new(&self.available(members, down)));
        self.groups.insert(id, GroupState { group, members: members.to_vec(), max_size, uses: 0 });
        Ok(())
    }

    pub(super) fn group_modify(
        &mut self,
        id: u32,
        members: &[GroupMember],
        down: &BTreeSet<u32>,
        domain: &Domain,
    ) -> Result<()> {
        self.groups.get(&id).ok_or(StateError::NotFound)?;
        self.check_group(members)?;
        let available = self.available(members, down);
        if let Some(group) = self.groups.get_mut(&id) {
            group.members = members.to_vec();
            let old = group.group.set(&available);
            self.limbo.push(domain.advance_by(old.bytes()), Retired::Members(old));
        }
        Ok(())
    }

    pub(super) fn group_set_random(&mut self, id: u32) -> Result<()> {
        self.groups.get(&id).ok_or(StateError::NotFound)?.group.set_random();
        Ok(())
    }

    pub(super) fn group_is_random(&self, id: u32) -> bool {
        self.groups.get(&id).is_some_and(|g| g.group.is_random())
    }

    pub(super) fn group_delete(&mut self, id: u32, domain: &Domain) -> Result<()> {
        if self.groups.get(&id).ok_or(StateError::NotFound)?.uses > 0 {
            return Err(StateError::InUse);
        }
        if let Some(group) = self.groups.remove(&id) {
            self.limbo.push(domain.advance(), Retired::Group(group.group));
        }
        Ok(())
    }

    pub(super) fn groups(&self) -> Vec<(u32, Vec<GroupMember>, u32)> {
        self.groups.iter().map(|(id, g)| (*id, g.members.clone(), g.max_size)).collect()
    }

    /// Updates groups that watch `port`, whose state has changed in `down`.
    pub(super) fn port_changed(&mut self, port: u32, down: &BTreeSet<u32>, domain: &Domain) {
        self.republish(down, domain, |g| g.members.iter().any(|m| m.watch_port == Some(port)));
    }

    pub(super) fn collect(&mut self, domain: &Domain) {
        let memory = &mut self.memory;
        self.limbo.collect(domain, |retired| match retired {
            // SAFETY: it was unlinked, and every worker has been quiescent since.
            Retired::Entry(entry) => unsafe { memory.free(entry) },
            Retired::Members(_) | Retired::Group(_) => {}
        });
    }

    fn republish(&mut self, down: &BTreeSet<u32>, domain: &Domain, wanted: impl Fn(&GroupState) -> bool) {
        for group in self.groups.values().filter(|g| wanted(g)) {
            let old = group.group.set(&self.available(&group.members, down));
            self.limbo.push(domain.advance_by(old.bytes()), Retired::Members(old));
        }
    }

    /// Weights and entries of the members whose port is up, or the `empty` entry if there is none.
    fn available(&self, members: &[GroupMember], down: &BTreeSet<u32>) -> Vec<(u32, *const EntryHeader)> {
        let up = |m: &&GroupMember| m.weight > 0 && m.watch_port.is_none_or(|port| !down.contains(&port));
        let available = members.iter().filter(up).map(|m| (m.weight, self.members[&m.member].entry.cast_const()));
        let available: Vec<_> = available.collect();
        match self.empty {
            Some(empty) if available.is_empty() => vec![(1, empty.cast_const())],
            _ => available,
        }
    }

    fn check_call(&self, call: &ActionCall) -> Result<()> {
        if self.memory.writer().accepts(call) { Ok(()) } else { Err(StateError::WrongKind) }
    }

    fn check_group(&self, members: &[GroupMember]) -> Result<()> {
        if let Some(missing) = members.iter().find(|m| !self.members.contains_key(&m.member)) {
            return Err(StateError::NoSuchReference(missing.member));
        }
        Ok(())
    }
}

impl Drop for Profile {
    /// Frees all entries; there are no readers any more.
    fn drop(&mut self) {
        let mut entries: Vec<*mut EntryHeader> = self.members.values().map(|m| m.entry).collect();
        entries.extend(self.empty);
        self.limbo.drain().for_each(|retired| {
            if let Retired::Entry(entry) = retired {
                entries.push(entry);
            }
        });
        // SAFETY: every entry is a member's or was retired, once.
        entries.into_iter().for_each(|entry| unsafe { self.memory.free(entry) });
    }
}

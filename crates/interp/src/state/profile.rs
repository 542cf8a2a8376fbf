//! Action profiles and selectors: members, groups, and which member of a group a packet gets.
//!
//! The choice is a function of the hash alone; a group that draws at random has the numbers of a sequence of its own instead.
//! The group's members whose watch port is up (a port that nobody has
//! spoken of is up) stand in the group's order, each as often as its weight says; the one at position
//! `hash mod (sum of those weights)` is chosen. A group without such members chooses none, and the lookup counts as a
//! miss.

use abi::StateError;
use base::entry::{ActionCall, GroupMember};
use std::collections::{BTreeMap, BTreeSet};

/// A group as installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub members: Vec<GroupMember>,
    pub max_size: u32,
    /// Of a group that draws at random, how often it did.
    pub drawn: Option<u64>,
}

impl Group {
    /// What chooses a member: the hash, or the next number of the group's sequence, which is SplitMix64 from 0 on.
    pub fn choice(&mut self, hash: u64) -> u64 {
        let Some(drawn) = &mut self.drawn else { return hash };
        *drawn += 1;
        let mut z = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The content of an action profile or selector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Profile {
    pub size: u64,
    /// Whether it has groups.
    pub selector: bool,
    pub members: BTreeMap<u32, ActionCall>,
    pub groups: BTreeMap<u32, Group>,
}

/// Position of the chosen member, as the text above says.
pub fn choose(members: &[GroupMember], down: &BTreeSet<u32>, hash: u64) -> Option<u32> {
    let live = || members.iter().filter(|m| m.watch_port.is_none_or(|port| !down.contains(&port)));
    let total: u64 = live().map(|m| u64::from(m.weight)).sum();
    let mut at = hash.checked_rem(total)?;
    for member in live() {
        match at.checked_sub(member.weight.into()) {
            None => return Some(member.member),
            Some(rest) => at = rest,
        }
    }
    None
}

impl Profile {
    pub fn new(size: u64, selector: bool) -> Profile {
        Profile { size, selector, members: BTreeMap::new(), groups: BTreeMap::new() }
    }

    /// Whether there is room for a member of this number.
    pub fn check_new_member(&self, id: u32, leaving: usize) -> Result<(), StateError> {
        if self.members.contains_key(&id) {
            return Err(StateError::Exists);
        }
        if self.members.len().saturating_sub(leaving) as u64 >= self.size {
            return Err(StateError::Full(self.size));
        }
        Ok(())
    }

    pub fn member_modify(&mut self, id: u32, action: &ActionCall) -> Result<(), StateError> {
        *self.members.get_mut(&id).ok_or(StateError::NotFound)? = action.clone();
        Ok(())
    }

    /// Whether tables refer to the member is the caller's question.
    pub fn member_delete(&mut self, id: u32) -> Result<(), StateError> {
        if self.groups.values().any(|g| g.members.iter().any(|m| m.member == id)) {
            return Err(StateError::InUse);
        }
        self.members.remove(&id).map(drop).ok_or(StateError::NotFound)
    }

    fn check_group(&self, members: &[GroupMember]) -> Result<(), StateError> {
        if let Some(missing) = members.iter().find(|m| !self.members.contains_key(&m.member)) {
            return Err(StateError::NoSuchReference(missing.member));
        }
        Ok(())
    }

    pub fn group_insert(&mut self, id: u32, members: &[GroupMember], max_size: u32) -> Result<(), StateError> {
        if !self.selector {
            return Err(StateError::WrongKind);
        }
        if self.groups.contains_key(&id) {
            return Err(StateError::Exists);
        }
        self.check_group(members)?;
        self.groups.insert(id, Group { members: members.to_vec(), max_size, drawn: None });
        Ok(())
    }

    pub fn group_modify(&mut self, id: u32, members: &[GroupMember]) -> Result<(), StateError> {
        self.groups.get(&id).ok_or(StateError::NotFound)?;
        self.check_group(members)?;
        if let Some(group) = self.groups.get_mut(&id) {
            group.members = members.to_vec();
        }
        Ok(())
    }

    /// Whether tables refer to the group is the caller's question.
    pub fn group_delete(&mut self, id: u32) -> Result<(), StateError> {
        self.groups.remove(&id).map(drop).ok_or(StateError::NotFound)
    }
}

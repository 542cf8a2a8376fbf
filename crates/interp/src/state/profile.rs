//! Action profiles and selectors: members, groups, and the selection of a group's member for a packet.
//!
//! The choice depends only on the hash, except in groups that draw at random, which use a sequence of random numbers
//! instead. The eligible members are those whose watch port is up (the default for a port), in the group's order, each
//! repeated as often as its weight. The member at position `hash mod (sum of the weights)` is selected. If there is no
//! eligible member, none is selected, and the lookup is a miss.

use abi::StateError;
use base::entry::{ActionCall, GroupMember};
use std::collections::{BTreeMap, BTreeSet};

/// An installed group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub members: Vec<GroupMember>,
    pub max_size: u32,
    /// For a group that draws at random, the number of draws so far.
    pub drawn: Option<u64>,
}

impl Group {
    /// The number that selects a member: the hash, or the next random number of the group (SplitMix64 from state 0).
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
    /// Whether it can have groups.
    pub selector: bool,
    pub members: BTreeMap<u32, ActionCall>,
    pub groups: BTreeMap<u32, Group>,
}

/// The selected member, as described at the top of the file; `None` if no member is eligible.
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

    /// Checks that a new member with this id can be inserted; `leaving` members are about to be removed.
    ///
    /// # Errors
    /// [`StateError::Exists`] if the id is in use, [`StateError::Full`] if there is no room.
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

    /// Deletes a member that is in no group. The caller checks that no table refers to it.
    ///
    /// # Errors
    /// [`StateError::InUse`] if it is in a group, [`StateError::NotFound`] if it does not exist.
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

    /// Deletes a group. The caller checks that no table refers to it.
    ///
    /// # Errors
    /// [`StateError::NotFound`] if it does not exist.
    pub fn group_delete(&mut self, id: u32) -> Result<(), StateError> {
        self.groups.remove(&id).map(drop).ok_or(StateError::NotFound)
    }
}

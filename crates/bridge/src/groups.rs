//! Planning of group mods (OpenFlow 1.3.5, 6.7; bucket commands as of 1.5.1, 7.3.4.3).
//!
//! Groups may chain to other groups; a loop is refused with `OFPGMFC_LOOP`. A group that another one chains to or
//! watches can only be deleted together with all others (`OFPGMFC_CHAINED_GROUP`).

use crate::change::Change;
use crate::flow::{Group, Usage};
use crate::flow_mod::Plan;
use crate::memory::Charge;
use crate::references::{each_next_group, goes_through_any};
use crate::tables::limit;
use openflow::action::port;
use openflow::message::{
    GROUP_ALL, GROUP_ANY, GROUP_MAX, GroupCommand, GroupKind, GroupMod, RemovedReason, Selection, bucket,
};
use openflow::{Bucket, Error, ErrorKind};
use std::collections::HashSet;
use std::sync::Arc;

impl Plan<'_> {
    /// The changes of a group mod.
    pub fn group_mod(&self, request: &GroupMod) -> Result<Vec<Change>, Error> {
        let id = request.group;
        if id > GROUP_MAX && !(request.command == GroupCommand::Delete && id == GROUP_ALL) {
            return Err(Error::new(ErrorKind::GmfcInvalidGroup, format!("no group can have the number {id:#x}")));
        }
        let old = self.tables.group(id);
        let unknown = || Error::new(ErrorKind::GmfcUnknownGroup, format!("there is no group {id}"));
        match request.command {
            GroupCommand::Add => match old {
                Some(_) => Err(Error::new(ErrorKind::GmfcGroupExists, format!("group {id} exists"))),
                None => self.put(id, request.kind, &request.buckets, &request.selection),
            },
            GroupCommand::Modify if old.is_none() => Err(unknown()),
            GroupCommand::Modify | GroupCommand::AddOrModify => {
                self.put(id, request.kind, &request.buckets, &request.selection)
            }
            GroupCommand::Delete => self.delete_group(id),
            GroupCommand::InsertBucket(place) => {
                let old = old.ok_or_else(unknown)?;
                let mut buckets: Vec<Bucket> = old.buckets.iter().map(|(bucket, _)| bucket.clone()).collect();
                let at = match place {
                    bucket::FIRST => 0,
                    bucket::LAST => buckets.len(),
                    place => place_of(&buckets, place)? + 1,
                };
                buckets.splice(at..at, request.buckets.iter().cloned());
                self.put(id, old.kind, &buckets, &old.selection)
            }
            GroupCommand::RemoveBucket(place) => {
                let old = old.ok_or_else(unknown)?;
                let mut buckets: Vec<Bucket> = old.buckets.iter().map(|(bucket, _)| bucket.clone()).collect();
                match place {
                    bucket::ALL => buckets.clear(),
                    bucket::FIRST | bucket::LAST if buckets.is_empty() => {}
                    bucket::FIRST => drop(buckets.remove(0)),
                    bucket::LAST => drop(buckets.pop()),
                    place => drop(buckets.remove(place_of(&buckets, place)?)),
                }
                self.put(id, old.kind, &buckets, &old.selection)
            }
        }
    }

    fn delete_group(&self, id: u32) -> Result<Vec<Change>, Error> {
        let is_gone = |other: u32| id == GROUP_ALL || other == id;
        if id != GROUP_ALL && self.tables.group(id).is_some() && self.index.groups_of_group(id) > 0 {
            return Err(Error::new(ErrorKind::GmfcChainedGroup, format!("another group goes through group {id}")));
        }
        let groups: Vec<&Arc<Group>> = match id {
            GROUP_ALL => self.tables.groups().collect(),
            id => self.tables.group(id).into_iter().collect(),
        };
        let mut changes = Vec::new();
        if groups.iter().any(|group| self.index.flows_of_group(group.id) > 0) {
            let flows = self.remove(RemovedReason::GroupDelete, &|flow| goes_through_any(&flow.instructions, &is_gone));
            changes.extend(flows.into_iter().map(Change::Flow));
        }
        let removal = |group: &&Arc<Group>| Change::Group { id: group.id, old: Some(Arc::clone(group)), new: None };
        changes.extend(groups.iter().map(removal));
        Ok(changes)
    }

    /// Adds or replaces a group.
    fn put(&self, id: u32, kind: GroupKind, buckets: &[Bucket], selection: &Selection) -> Result<Vec<Change>, Error> {
        let old = self.tables.group(id);
        if old.is_none() && self.tables.group_count() >= limit::GROUPS {
            return Err(Error::new(ErrorKind::GmfcOutOfGroups, format!("there are {} groups", limit::GROUPS)));
        }
        // Buckets that are unchanged keep their counters.
        let usage = |bucket: &Bucket| {
            let mut known = old.into_iter().flat_map(|old| &old.buckets);
            let known = known.find(|(other, _)| other.id == bucket.id && other.actions == bucket.actions);
            known.map_or_else(|| Arc::new(Usage::new(self.now_us)), |(_, usage)| Arc::clone(usage))
        };
        let mut new = Group {
            id,
            kind,
            buckets: buckets.iter().map(|bucket| (bucket.clone(), usage(bucket))).collect(),
            selection: selection.clone(),
            created_us: old.map_or(self.now_us, |old| old.created_us),
            usage: old.map_or_else(|| Arc::new(Usage::new(self.now_us)), |old| Arc::clone(&old.usage)),
            charge: Charge::default(),
        };
        self.check_chain(&new)?;
        self.check_buckets(kind, buckets)?;
        let charge = self.tables.charge(&self.memory.state, new.bytes(), 0);
        new.charge = charge.ok_or_else(|| self.memory.refuse(ErrorKind::GmfcOutOfGroups, &format!("group {id}")))?;
        Ok(vec![Change::Group { id, old: old.cloned(), new: Some(Arc::new(new)) }])
    }

    fn check_buckets(&self, kind: GroupKind, buckets: &[Bucket]) -> Result<(), Error> {
        if buckets.len() > limit::BUCKETS {
            return Err(Error::new(ErrorKind::GmfcOutOfBuckets, format!("more than {} buckets", limit::BUCKETS)));
        }
        if kind == GroupKind::Indirect && buckets.len() != 1 {
            return Err(Error::new(ErrorKind::GmfcInvalidGroup, "an indirect group has one bucket"));
        }
        let mut ids = HashSet::new();
        for bucket in buckets {
            if bucket.id > bucket::MAX {
                return Err(Error::new(
                    ErrorKind::GmfcBadBucket,
                    format!("no bucket can have the number {:#x}", bucket.id),
                ));
            }
            if !ids.insert(bucket.id) {
                return Err(Error::new(
                    ErrorKind::GmfcBucketExists,
                    format!("two buckets have the number {}", bucket.id),
                ));
            }
            if kind != GroupKind::Select && bucket.weight > 1 {
                return Err(Error::new(ErrorKind::GmfcInvalidGroup, "only buckets of select groups have weights"));
            }
            let watched_port = bucket.watch_port.filter(|watched| *watched != port::ANY);
            let watches = watched_port.is_some() || bucket.watch_group.is_some_and(|watched| watched != GROUP_ANY);
            if watches && matches!(kind, GroupKind::All | GroupKind::Indirect) {
                return Err(Error::new(
                    ErrorKind::GmfcWatchUnsupported,
                    "only buckets of select and fast failover groups watch a port or group",
                ));
            }
            if kind == GroupKind::FastFailover && !watches {
                return Err(Error::new(
                    ErrorKind::GmfcInvalidGroup,
                    "a bucket of a fast failover group watches a port or group",
                ));
            }
            self.admit.list(&self.tables, &bucket.actions)?;
        }
        Ok(())
    }

    /// Checks that the groups that the new one refers to exist, and do not chain back to it.
    fn check_chain(&self, new: &Group) -> Result<(), Error> {
        let mut seen = HashSet::new();
        let mut open = Vec::new();
        each_next_group(new, &mut |id| open.push(id));
        while let Some(id) = open.pop() {
            if id == new.id {
                return Err(Error::new(ErrorKind::GmfcLoop, format!("group {id} would go through itself")));
            }
            if !seen.insert(id) {
                continue;
            }
            match self.tables.group(id) {
                Some(next) => each_next_group(next, &mut |id| open.push(id)),
                None => {
                    let is_watched = new.buckets.iter().any(|(bucket, _)| bucket.watch_group == Some(id));
                    let kind = if is_watched { ErrorKind::GmfcBadWatch } else { ErrorKind::BacBadOutGroup };
                    return Err(Error::new(kind, format!("there is no group {id}")));
                }
            }
        }
        Ok(())
    }
}

fn place_of(buckets: &[Bucket], id: u32) -> Result<usize, Error> {
    let found = buckets.iter().position(|bucket| bucket.id == id);
    found.ok_or_else(|| Error::new(ErrorKind::GmfcUnknownBucket, format!("there is no bucket {id:#x}")))
}

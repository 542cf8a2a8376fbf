//! Multicast groups and clone sessions, written by the control plane and read by the replication engine.
//!
//! One writer (the control plane), lock-free readers (workers). Ids of both kinds are small (16 bits), so each kind
//! is an array of published pointers in pages, and an update touches one pointer. Each update advances a version,
//! which tells workers when cached lookups are stale. See P4Runtime, section "PacketReplicationEngineEntry".

use arc_swap::ArcSwapOption;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Upper bound (exclusive) of ids (P4Runtime allows 32 bits; v1model's `mcast_grp` has 16, bmv2's sessions 15).
pub const ID_LIMIT: u32 = 1 << 16;

/// One copy of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The copy's egress port.
    pub port: u32,
    /// The copy's `egress_rid`.
    pub instance: u32,
}

/// A clone session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CloneSession {
    /// The copies.
    pub replicas: Vec<Replica>,
    /// Class of service of the copies; kept for reading back.
    pub class_of_service: u32,
    /// Copies are cut to this many bytes; 0 for whole packets.
    pub packet_length_bytes: u32,
}

/// Why a change was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplicationError {
    /// The id is in use.
    #[error("exists already")]
    Exists,
    /// There is no group or session of this id.
    #[error("does not exist")]
    NotFound,
    /// The id is out of range: too large, or 0 for a group.
    #[error("ids of groups run from 1, of sessions from 0, to {}", ID_LIMIT - 1)]
    BadId,
}

/// Ids per page.
const PAGE_IDS: u32 = 256;

type Page<T> = Box<[ArcSwapOption<T>]>;

/// Published pointers by id. A page is allocated with the first of its ids and never freed. Most ids are never used,
/// and dropping an existing pointer costs a check of all readers.
struct Registry<T> {
    pages: Vec<OnceLock<Page<T>>>,
    /// The lowest id: 1 for groups, where 0 means none; 0 for sessions, as in bmv2 (P4Runtime has no session 0;
    /// `control` refuses it).
    first_id: u32,
}

impl<T> Registry<T> {
    fn new(first_id: u32) -> Registry<T> {
        Registry { pages: (0..ID_LIMIT / PAGE_IDS).map(|_| OnceLock::new()).collect(), first_id }
    }

    fn page(&self, id: u32) -> Result<&OnceLock<Page<T>>, ReplicationError> {
        let page = self.pages.get((id / PAGE_IDS) as usize).filter(|_| id >= self.first_id);
        page.ok_or(ReplicationError::BadId)
    }

    /// The pointer of an id; `None` if its page does not exist.
    fn slot(&self, id: u32) -> Result<Option<&ArcSwapOption<T>>, ReplicationError> {
        Ok(self.page(id)?.get().map(|page| &page[(id % PAGE_IDS) as usize]))
    }

    /// All pointers that exist, by id.
    fn slots(&self) -> impl Iterator<Item = (u32, &ArcSwapOption<T>)> {
        let pages = (0..).step_by(PAGE_IDS as usize).zip(&self.pages);
        pages.flat_map(|(first, page)| (first..).zip(page.get().into_iter().flatten()))
    }

    fn get(&self, id: u32) -> Option<Arc<T>> {
        self.slot(id).ok()??.load_full()
    }

    fn insert(&self, id: u32, value: T) -> Result<(), ReplicationError> {
        let page = self.page(id)?.get_or_init(|| (0..PAGE_IDS).map(|_| ArcSwapOption::empty()).collect());
        let slot = &page[(id % PAGE_IDS) as usize];
        if slot.load().is_some() {
            return Err(ReplicationError::Exists);
        }
        slot.store(Some(Arc::new(value)));
        Ok(())
    }

    fn modify(&self, id: u32, value: T) -> Result<(), ReplicationError> {
        match self.slot(id)? {
            Some(slot) if slot.load().is_some() => {
                slot.store(Some(Arc::new(value)));
                Ok(())
            }
            _ => Err(ReplicationError::NotFound),
        }
    }

    fn delete(&self, id: u32) -> Result<(), ReplicationError> {
        self.slot(id)?.and_then(|slot| slot.swap(None)).map(drop).ok_or(ReplicationError::NotFound)
    }

    fn all(&self) -> Vec<(u32, Arc<T>)> {
        self.slots().filter_map(|(id, slot)| Some((id, slot.load_full()?))).collect()
    }

    fn clear(&self) {
        // Most pointers are empty, and reading is much cheaper than writing.
        self.slots().filter(|(_, slot)| slot.load().is_some()).for_each(|(_, slot)| slot.store(None));
    }
}

/// All multicast groups and clone sessions of a program. Callers must serialise writes; reads need no lock.
pub struct Replication {
    groups: Registry<Vec<Replica>>,
    sessions: Registry<CloneSession>,
    version: AtomicU64,
    members_max: AtomicUsize,
}

impl Default for Replication {
    fn default() -> Self {
        Replication::new()
    }
}

impl Replication {
    /// No groups, no sessions.
    pub fn new() -> Replication {
        Replication {
            groups: Registry::new(1),
            sessions: Registry::new(0),
            version: AtomicU64::new(0),
            members_max: AtomicUsize::new(0),
        }
    }

    /// The version, which each change advances: a reader that sees a version sees all changes made before it.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// An upper bound on the members of any group or session so far.
    #[inline]
    pub fn members_max(&self) -> usize {
        self.members_max.load(Ordering::Relaxed)
    }

    /// Performs a change that publishes a group or session of `members` members, and advances the version.
    fn change<R>(&self, members: usize, change: impl FnOnce() -> R) -> R {
        self.members_max.fetch_max(members, Ordering::Relaxed);
        let result = change();
        self.version.fetch_add(1, Ordering::Release);
        result
    }

    /// The copies of a multicast group; `None` if there is no such group.
    pub fn group(&self, id: u32) -> Option<Arc<Vec<Replica>>> {
        self.groups.get(id)
    }

    /// A clone session; `None` if there is no such session.
    pub fn session(&self, id: u32) -> Option<Arc<CloneSession>> {
        self.sessions.get(id)
    }

    /// Adds a multicast group.
    ///
    /// # Errors
    /// [`ReplicationError::BadId`], [`ReplicationError::Exists`].
    pub fn group_insert(&self, id: u32, replicas: Vec<Replica>) -> Result<(), ReplicationError> {
        self.change(replicas.len(), || self.groups.insert(id, replicas))
    }

    /// Replaces a multicast group's copies.
    ///
    /// # Errors
    /// [`ReplicationError::BadId`], [`ReplicationError::NotFound`].
    pub fn group_modify(&self, id: u32, replicas: Vec<Replica>) -> Result<(), ReplicationError> {
        self.change(replicas.len(), || self.groups.modify(id, replicas))
    }

    /// Removes a multicast group.
    ///
    /// # Errors
    /// [`ReplicationError::BadId`], [`ReplicationError::NotFound`].
    pub fn group_delete(&self, id: u32) -> Result<(), ReplicationError> {
        self.change(0, || self.groups.delete(id))
    }

    /// All multicast groups by id.
    pub fn groups(&self) -> Vec<(u32, Arc<Vec<Replica>>)> {
        self.groups.all()
    }

    /// Adds a clone session.
    ///
    /// # Errors
    /// [`ReplicationError::BadId`], [`ReplicationError::Exists`].
    pub fn session_insert(&self, id: u32, session: CloneSession) -> Result<(), ReplicationError> {
        self.change(session.replicas.len(), || self.sessions.insert(id, session))
    }

    /// Replaces a clone session.
    ///
    /// # Errors
    /// [`ReplicationError::BadId`], [`ReplicationError::NotFound`].
    pub fn session_modify(&self, id: u32, session: CloneSession) -> Result<(), ReplicationError> {
        self.change(session.replicas.len(), || self.sessions.modify(id, session))
    }

    /// Removes a clone session.
    ///
    /// # Errors
    /// [`ReplicationError::BadId`], [`ReplicationError::NotFound`].
    pub fn session_delete(&self, id: u32) -> Result<(), ReplicationError> {
        self.change(0, || self.sessions.delete(id))
    }

    /// All clone sessions by id.
    pub fn sessions(&self) -> Vec<(u32, Arc<CloneSession>)> {
        self.sessions.all()
    }

    /// Removes all groups and sessions, as a new forwarding config does.
    pub fn clear(&self) {
        self.change(0, || {
            self.groups.clear();
            self.sessions.clear();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_and_changes_need_presence() {
        let r = Replication::new();
        let one = vec![Replica { port: 1, instance: 0 }];
        assert_eq!(r.group_insert(0, one.clone()), Err(ReplicationError::BadId));
        assert_eq!(r.group_insert(ID_LIMIT, one.clone()), Err(ReplicationError::BadId));
        assert_eq!(r.group_modify(3, one.clone()), Err(ReplicationError::NotFound));
        r.group_insert(3, one.clone()).unwrap();
        assert_eq!(r.group_insert(3, one.clone()), Err(ReplicationError::Exists));
        assert_eq!(*r.group(3).unwrap(), one);
        r.group_delete(3).unwrap();
        assert_eq!(r.group_delete(3), Err(ReplicationError::NotFound));
        assert!(r.groups().is_empty());
    }

    #[test]
    fn groups_of_all_pages_are_listed_in_order_and_cleared() {
        let r = Replication::new();
        for id in [ID_LIMIT - 1, 1, PAGE_IDS, PAGE_IDS - 1] {
            r.group_insert(id, vec![Replica { port: id, instance: 0 }]).unwrap();
        }
        let listed: Vec<(u32, u32)> = r.groups().into_iter().map(|(id, group)| (id, group[0].port)).collect();
        assert_eq!(listed, [1, PAGE_IDS - 1, PAGE_IDS, ID_LIMIT - 1].map(|id| (id, id)));
        assert_eq!(r.group(2), None);
        assert_eq!(r.group(ID_LIMIT), None);
        r.clear();
        assert!(r.groups().is_empty());
    }
}

//! Where copies go: one worker's cache of multicast groups and clone sessions.
//!
//! A group is looked up in `Replication` once and kept until the control plane changes any, which a number tells. Groups and sessions
//! that do not exist are kept, too: packets that name them cost no more than others.
#![allow(unsafe_code)]

use crate::replication::{CloneSession, Replica, Replication};
use ir::Program;
use std::ptr::NonNull;
use std::sync::Arc;

/// Groups, and sessions, that are kept.
const KEPT: usize = 64;

/// The replicas of a group or session. They are in the cache's memory, so this is valid until the next lookup.
#[derive(Clone, Copy)]
pub(super) struct Targets {
    replicas: NonNull<Replica>,
    /// How many copies there are to be.
    pub count: usize,
    /// The class of service of a session's copies, and how many bytes they are cut to, 0 for not at all.
    pub class_of_service: u32,
    pub length: u32,
}

impl Targets {
    #[inline(always)]
    fn new(replicas: &[Replica]) -> Targets {
        let count = replicas.len();
        Targets { replicas: NonNull::from(replicas).cast(), count, class_of_service: 0, length: 0 }
    }

    /// Where one of the copies goes.
    #[inline(always)]
    pub(super) fn replica(&self, i: usize) -> Replica {
        debug_assert!(i < self.count);
        // SAFETY: there are `count`, and they are kept until the next lookup, which nobody makes before copies are made.
        unsafe { *self.replicas.as_ptr().add(i) }
    }
}

/// An id that was looked up last of those with the same place.
type Kept<T> = [(u32, Option<Arc<T>>); KEPT];

pub(super) struct Lookups {
    replication: Arc<Replication>,
    version: u64,
    groups: Box<Kept<Vec<Replica>>>,
    sessions: Box<Kept<CloneSession>>,
    port: Box<Replica>,
    /// The clone session that is there as long as the control plane has made none of its number.
    default_session: Option<(u32, Arc<CloneSession>)>,
}

fn none<T>() -> Box<Kept<T>> {
    // Each in a place where it does not belong.
    Box::new(std::array::from_fn(|i| (i as u32 + 1, None)))
}

/// Looks an id up, if it is not the one that is kept.
#[inline(always)]
fn find<T>(kept: &mut Kept<T>, id: u32, look_up: impl FnOnce() -> Option<Arc<T>>) -> Option<&T> {
    let kept = &mut kept[id as usize % KEPT];
    if kept.0 != id {
        *kept = (id, look_up());
    }
    kept.1.as_deref()
}

impl Lookups {
    pub(super) fn new(program: &Program, replication: Arc<Replication>) -> Lookups {
        let default_session = program.cpu_session.zip(program.cpu_port).map(|(session, port)| {
            let replicas = vec![Replica { port: port as u32, instance: 0 }];
            (session as u32, Arc::new(CloneSession { replicas, ..CloneSession::default() }))
        });
        let version = replication.version();
        let port = Box::new(Replica { port: 0, instance: 0 });
        Lookups { replication, version, groups: none(), sessions: none(), port, default_session }
    }

    /// Before packets of a burst ask: forgets what has changed.
    #[inline]
    pub(super) fn renew(&mut self) {
        let version = self.replication.version();
        if version != self.version {
            (self.groups, self.sessions, self.version) = (none(), none(), version);
        }
    }

    /// No group or session has more members, or has had.
    pub(super) fn members_max(&self) -> usize {
        self.replication.members_max().max(1)
    }

    /// A multicast group.
    #[inline(always)]
    pub(super) fn group(&mut self, id: u32) -> Option<Targets> {
        let replication = &self.replication;
        find(&mut self.groups, id, || look_up_group(replication, id)).map(|group| Targets::new(group))
    }

    /// A clone session.
    #[inline]
    pub(super) fn session(&mut self, id: u32) -> Option<Targets> {
        let (replication, default) = (&self.replication, &self.default_session);
        let default = || default.as_ref().filter(|(of, _)| *of == id).map(|(_, session)| session.clone());
        let session = find(&mut self.sessions, id, || replication.session(id).or_else(default))?;
        let CloneSession { replicas, class_of_service, packet_length_bytes } = session;
        let (class_of_service, length) = (*class_of_service, *packet_length_bytes);
        Some(Targets { class_of_service, length, ..Targets::new(replicas) })
    }

    /// A port that the program names itself.
    pub(super) fn port(&mut self, port: u32) -> Targets {
        *self.port = Replica { port, instance: 0 };
        Targets::new(std::slice::from_ref(&self.port))
    }
}

#[cold]
#[inline(never)]
fn look_up_group(replication: &Replication, id: u32) -> Option<Arc<Vec<Replica>>> {
    replication.group(id)
}

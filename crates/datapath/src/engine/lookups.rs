//! Where copies go: one worker's cache of multicast groups and clone sessions.
//!
//! A group is looked up in `Replication` once and kept until the control plane changes any, which a number tells. Groups and sessions
//! that do not exist are kept, too: packets that name them cost no more than others.

use crate::replication::{CloneSession, Replica, Replication};
use ir::Program;
use std::sync::Arc;

/// Groups, and sessions, that are kept.
const KEPT: usize = 64;

/// Where the copies of a packet go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Targets {
    /// The members of a group that is kept here.
    Group(usize),
    /// Those of a session.
    Session(usize),
    /// A port that the program names itself.
    Port(u32),
}

/// An id that was looked up last of those with the same place.
type Kept<T> = [(u32, Option<Arc<T>>); KEPT];

pub(super) struct Lookups {
    replication: Arc<Replication>,
    version: u64,
    groups: Box<Kept<Vec<Replica>>>,
    sessions: Box<Kept<CloneSession>>,
    /// The clone session that is there as long as the control plane has made none of its number.
    default_session: Option<(u32, Arc<CloneSession>)>,
}

fn none<T>() -> Box<Kept<T>> {
    // Each in a place where it does not belong.
    Box::new(std::array::from_fn(|i| (i as u32 + 1, None)))
}

/// Looks an id up, if it is not the one that is kept; its place, if it exists.
#[inline]
fn find<T>(kept: &mut Kept<T>, id: u32, look_up: impl FnOnce() -> Option<Arc<T>>) -> Option<usize> {
    let at = id as usize % KEPT;
    if kept[at].0 != id {
        kept[at] = (id, look_up());
    }
    kept[at].1.is_some().then_some(at)
}

impl Lookups {
    pub(super) fn new(program: &Program, replication: Arc<Replication>) -> Lookups {
        let default_session = program.cpu_session.zip(program.cpu_port).map(|(session, port)| {
            let replicas = vec![Replica { port: port as u32, instance: 0 }];
            (session as u32, Arc::new(CloneSession { replicas, ..CloneSession::default() }))
        });
        let version = replication.version();
        Lookups { replication, version, groups: none(), sessions: none(), default_session }
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
    #[inline]
    pub(super) fn group(&mut self, id: u32) -> Option<Targets> {
        let replication = &self.replication;
        find(&mut self.groups, id, || replication.group(id)).map(Targets::Group)
    }

    /// A clone session.
    #[inline]
    pub(super) fn session(&mut self, id: u32) -> Option<Targets> {
        let (replication, default) = (&self.replication, &self.default_session);
        let default = || default.as_ref().filter(|(of, _)| *of == id).map(|(_, session)| session.clone());
        find(&mut self.sessions, id, || replication.session(id).or_else(default)).map(Targets::Session)
    }

    /// How many copies there are to be.
    #[inline]
    pub(super) fn count(&self, targets: Targets) -> usize {
        match targets {
            Targets::Group(at) => self.groups[at].1.as_ref().map_or(0, |group| group.len()),
            Targets::Session(at) => self.sessions[at].1.as_ref().map_or(0, |session| session.replicas.len()),
            Targets::Port(_) => 1,
        }
    }

    /// Where one of them goes.
    #[inline]
    pub(super) fn replica(&self, targets: Targets, i: usize) -> Replica {
        let none = Replica { port: 0, instance: 0 };
        match targets {
            Targets::Group(at) => self.groups[at].1.as_ref().map_or(none, |group| group[i]),
            Targets::Session(at) => self.sessions[at].1.as_ref().map_or(none, |session| session.replicas[i]),
            Targets::Port(port) => Replica { port, instance: 0 },
        }
    }

    /// The class of service of a session's copies, and how many bytes they are cut to, 0 for not at all.
    pub(super) fn class_and_length(&self, targets: Targets) -> (u32, u32) {
        match targets {
            Targets::Session(at) => {
                self.sessions[at].1.as_ref().map_or((0, 0), |s| (s.class_of_service, s.packet_length_bytes))
            }
            _ => (0, 0),
        }
    }
}

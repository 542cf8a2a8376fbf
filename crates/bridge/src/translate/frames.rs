//! What is left to be done in a translation, as a stack of frames.
//!
//! A translation is a loop over the top frame and no recursion, so that it can stop at any action: the frames are then the rest of
//! it ([`Frozen`]), which goes on with a packet that was parsed anew or let go on by a controller.

use crate::flow::{Flow, Group};
use openflow::{Action, Bucket, memory as heap};
use std::sync::Arc;

/// Compared by identity.
#[derive(Debug)]
pub struct Same<T>(pub Arc<T>);

impl<T> Clone for Same<T> {
    fn clone(&self) -> Same<T> {
        Same(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Same<T> {
    fn eq(&self, other: &Same<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A list of actions.
#[derive(Clone, PartialEq, Debug)]
pub enum List {
    /// Those that a flow applies.
    Flow(Same<Flow>),
    /// Others.
    Owned(Arc<[Action]>),
}

impl List {
    /// Its actions.
    pub fn actions(&self) -> &[Action] {
        match self {
            List::Flow(flow) => &flow.0.instructions.apply,
            List::Owned(actions) => actions,
        }
    }
}

/// On whose behalf actions are done.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The table.
    pub table: u8,
    /// The flow.
    pub flow: Option<Same<Flow>>,
    /// What a controller is told of why it gets the packet.
    pub reason: u8,
    /// Searches of tables that are not further on, within each other.
    pub depth: u16,
}

impl Default for Place {
    fn default() -> Place {
        Place { table: 0, flow: None, reason: crate::controllers::packet_in_reason::ACTION, depth: 0 }
    }
}

/// Something left to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// Actions from `at` on.
    Actions {
        /// The actions.
        list: List,
        /// The next one.
        at: usize,
        /// On whose behalf.
        place: Place,
    },
    /// The flow's instructions behind its actions. `is_written` if only the goto is left.
    Rest {
        /// The flow.
        flow: Same<Flow>,
        /// See there.
        is_written: bool,
        /// Depth of its table's search.
        depth: u16,
    },
    /// The packet is again what it was.
    Restore(Box<Saved>),
    /// Buckets of a group from `next` on, each on a copy.
    Buckets {
        /// The group.
        group: Same<Group>,
        /// The next one.
        next: usize,
        /// On whose behalf.
        place: Place,
    },
}

/// What a copy of a packet may change.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Saved {
    /// Of the record's changes.
    pub journal: usize,
    /// Where the effects of the copy begin.
    pub effects: usize,
    /// The stack's entries: value and bits.
    pub stack: Vec<(u128, u32)>,
    /// The action set.
    pub set: Vec<Action>,
    /// The queue.
    pub queue: u32,
    /// Whether the frame must be parsed anew.
    pub needs_reparse: bool,
    /// Whether the action set has been done.
    pub is_set_done: bool,
}

/// The rest of a translation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frozen {
    /// Metadata as words.
    pub metadata: Vec<crate::key::WordTerm>,
    /// The stack.
    pub stack: Vec<(u128, u32)>,
    /// The action set.
    pub set: Vec<Action>,
    /// Whether it is done.
    pub is_set_done: bool,
    /// The queue.
    pub queue: u32,
    /// Frames.
    pub frames: Vec<Frame>,
    /// The program that runs on the frame before, and its argument.
    pub program: Option<(u32, u64)>,
    /// The port by which the packet came, for the program.
    pub in_port: u32,
}

impl Frozen {
    /// Bytes that it takes, without the flows and groups that it goes through: these count as long as they are held.
    pub fn bytes(&self) -> u64 {
        fn of_vec<T>(vec: &Vec<T>) -> usize {
            vec.capacity() * size_of::<T>()
        }
        let of_frame = |frame: &Frame| match frame {
            Frame::Actions { list: List::Owned(actions), .. } => heap::slice(actions),
            Frame::Restore(saved) => size_of::<Saved>() + of_vec(&saved.stack) + heap::actions(&saved.set),
            Frame::Actions { .. } | Frame::Rest { .. } | Frame::Buckets { .. } => 0,
        };
        let own = size_of::<Frozen>() + of_vec(&self.metadata) + of_vec(&self.stack) + heap::actions(&self.set);
        (own + of_vec(&self.frames) + self.frames.iter().map(of_frame).sum::<usize>()) as u64
    }
}

/// The actions of a set, in the order in which they are done (OpenFlow 1.5.1, 5.6): of each kind the last one, but for fields; a
/// group in the place of an output.
pub fn in_order(set: &[Action]) -> Vec<Action> {
    let ranked = set.iter().filter_map(|action| Some((rank(action)?, action)));
    let mut last = [None; OUTPUT as usize + 1];
    for (at, ((rank, _), _)) in ranked.clone().enumerate() {
        last[usize::from(rank)] = Some(at);
    }
    let is_kept = |at: usize, rank: u8, is_single: bool| !is_single || last[usize::from(rank)] == Some(at);
    let mut ordered: Vec<(u8, &Action)> = ranked
        .enumerate()
        .filter_map(|(at, ((rank, is_single), action))| is_kept(at, rank, is_single).then_some((rank, action)))
        .collect();
    ordered.sort_by_key(|(rank, _)| *rank);
    if ordered.iter().any(|(rank, _)| *rank == GROUP) {
        ordered.retain(|(rank, _)| *rank != OUTPUT);
    }
    ordered.into_iter().map(|(_, action)| action.clone()).collect()
}

const GROUP: u8 = 40;
const OUTPUT: u8 = 41;

/// An action's place in a set, and whether there is only one of its kind. `None` for what cannot be in a set.
fn rank(action: &Action) -> Option<(u8, bool)> {
    use openflow::action::HeaderAction as H;
    Some(match action {
        Action::Header { name, .. } => match name {
            H::CopyTtlIn => (0, true),
            H::PopVlan => (1, true),
            H::PopMpls => (2, true),
            H::PopPbb => (3, true),
            H::PushMpls => (4, true),
            H::PushPbb => (5, true),
            H::PushVlan => (6, true),
            H::CopyTtlOut => (7, true),
            H::DecMplsTtl => (8, true),
            H::DecNwTtl => (9, true),
            H::SetMplsTtl => (10, true),
            H::SetNwTtl => (11, true),
            H::SetVlanVid => (12, true),
            H::SetVlanPcp => (13, true),
        },
        Action::DecTtlControllers(_) => (9, true),
        Action::SetField { .. } | Action::SetFieldIfPresent { .. } | Action::Move { .. } | Action::DeleteField(_) => {
            (20, false)
        }
        Action::SetQueue(_) => (30, true),
        Action::Meter(_) => (31, true),
        Action::Group(_) => (GROUP, true),
        Action::Output { .. }
        | Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Controller(_)
        | Action::Enqueue { .. }
        | Action::Resubmit { .. } => (OUTPUT, true),
        _ => return None,
    })
}

/// A bucket's actions: they are a set (OpenFlow 1.3.5, 5.6.1).
pub fn of_bucket(bucket: &Bucket) -> List {
    List::Owned(in_order(&bucket.actions).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::action::HeaderAction;

    #[test]
    fn a_set_is_done_in_its_order() {
        let header = |name| Action::Header { name, argument: 0 };
        let output = |port| Action::Output { port, max_len: 0 };
        let set =
            [output(1), header(HeaderAction::DecNwTtl), header(HeaderAction::PushVlan), output(2), Action::SetQueue(1)];
        let expected = [header(HeaderAction::PushVlan), header(HeaderAction::DecNwTtl), Action::SetQueue(1), output(2)];
        assert_eq!(in_order(&set), expected);
        let with_group = [Action::Group(7), output(1), Action::Exit];
        assert_eq!(in_order(&with_group), [Action::Group(7)]);
    }
}

//! The stack of a translation: frames that say what is left to be done.
//!
//! A translation is a loop over the top frame, not a recursion, so that it can stop at any action. Its remaining
//! frames are then frozen ([`Frozen`]) and resumed with a packet that was parsed again or that a controller has
//! resumed.

use crate::flow::{Flow, Group};
use openflow::{Action, Bucket, memory as heap};
use std::sync::Arc;

/// A reference that is compared by identity.
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
    /// A flow's Apply-Actions list.
    Flow(Same<Flow>),
    /// Another list.
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

/// The context in which actions are executed.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The table.
    pub table: u8,
    /// The flow, if there is one.
    pub flow: Option<Same<Flow>>,
    /// The reason of packet-ins from here.
    pub reason: u8,
    /// Nesting depth of resubmissions to the same or an earlier table.
    pub depth: u16,
}

impl Default for Place {
    fn default() -> Place {
        Place { table: 0, flow: None, reason: crate::controllers::packet_in_reason::ACTION, depth: 0 }
    }
}

/// A piece of work that is left to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// The actions of a list from `at` on.
    Actions {
        /// The actions.
        list: List,
        /// The index of the next action.
        at: usize,
        /// Their context.
        place: Place,
    },
    /// The instructions of a flow that follow Apply-Actions.
    Rest {
        /// The flow.
        flow: Same<Flow>,
        /// Whether only Goto-Table is left.
        is_written: bool,
        /// Nesting depth of its table's lookup.
        depth: u16,
    },
    /// The end of a copy: restores the packet and the state of the translation.
    Restore(Box<Saved>),
    /// The buckets of a group from `next` on, each executed on a copy of the packet.
    Buckets {
        /// The group.
        group: Same<Group>,
        /// The index of the next bucket.
        next: usize,
        /// Their context.
        place: Place,
    },
}

/// The state of a translation that a copy of the packet may change.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Saved {
    /// Length of the record's undo journal.
    pub journal: usize,
    /// Index of the copy's first effect.
    pub effects: usize,
    /// The stack of `push` and `pop`: values with their widths.
    pub stack: Vec<(u128, u32)>,
    /// The action set.
    pub set: Vec<Action>,
    /// The output queue.
    pub queue: u32,
    /// Whether the frame must be parsed again.
    pub needs_reparse: bool,
    /// Whether the action set has been executed.
    pub is_set_done: bool,
}

/// A frozen translation: everything needed to resume it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frozen {
    /// Metadata fields, as words.
    pub metadata: Vec<crate::key::WordTerm>,
    /// The stack of `push` and `pop`.
    pub stack: Vec<(u128, u32)>,
    /// The action set.
    pub set: Vec<Action>,
    /// Whether the action set has been executed.
    pub is_set_done: bool,
    /// The output queue.
    pub queue: u32,
    /// The frames.
    pub frames: Vec<Frame>,
    /// The program to run on the frame first, with its argument.
    pub program: Option<(u32, u64)>,
    /// The packet's input port, for the program.
    pub in_port: u32,
}

impl Frozen {
    /// Bytes that it takes, without the flows and groups that it refers to: these count as long as they are
    /// referenced.
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

/// The actions of an action set, in the order of execution (OpenFlow 1.5.1, 5.6). Of each kind only the last one is
/// kept, except for set-field actions; a group replaces an output.
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

/// An action's rank in an action set, and whether only one of its kind is kept. `None` for actions that cannot be
/// in a set.
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

/// A bucket's actions, which are an action set (OpenFlow 1.3.5, 5.6.1).
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

//! Heap sizes of decoded values, in bytes.
//!
//! A decoded value takes several times as many bytes as its encoding, so that memory bounds count these. Vectors count
//! with their capacity; shared values (`Arc`) and the allocator's overhead do not count.

use crate::action::{Action, Bucket, Instructions};
use crate::message::{FlowMod, GroupMod, Message, PacketIn, PacketOut, Selection};
use std::mem::size_of;

fn vec_bytes<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}

/// The size of a vector of actions, nested ones included.
#[allow(clippy::ptr_arg, reason = "its capacity counts")]
pub fn actions(list: &Vec<Action>) -> usize {
    vec_bytes(list) - size_of_val(list.as_slice()) + slice(list)
}

/// The size of a slice of actions, the elements included.
pub fn slice(list: &[Action]) -> usize {
    let inner = |action: &Action| match action {
        Action::Controller(controller) => vec_bytes(&controller.userdata),
        Action::DecTtlControllers(ids) => vec_bytes(ids),
        Action::Learn(learn) => size_of_val(&**learn) + vec_bytes(&learn.specs),
        Action::Bundle { members, .. } => vec_bytes(members),
        Action::Note(bytes) => vec_bytes(bytes),
        Action::Clone(inner) | Action::WriteActions(inner) => actions(inner),
        _ => 0,
    };
    size_of_val(list) + list.iter().map(inner).sum::<usize>()
}

/// The size of a flow's instructions.
pub fn instructions(of: &Instructions) -> usize {
    actions(&of.apply) + actions(&of.write)
}

/// The size of a group's selection method.
pub fn selection(of: &Selection) -> usize {
    of.method.capacity() + vec_bytes(&of.fields)
}

#[allow(clippy::ptr_arg, reason = "its capacity counts")]
fn buckets(of: &Vec<Bucket>) -> usize {
    vec_bytes(of) + of.iter().map(|bucket| actions(&bucket.actions)).sum::<usize>()
}

fn flow_mod(of: &FlowMod) -> usize {
    of.matching.heap_bytes() + instructions(&of.instructions)
}

fn group_mod(of: &GroupMod) -> usize {
    buckets(&of.buckets) + selection(&of.selection)
}

fn packet_out(of: &PacketOut) -> usize {
    of.fields.heap_bytes() + actions(&of.actions) + vec_bytes(&of.frame)
}

/// The size of a packet-in.
pub fn packet_in(of: &PacketIn) -> usize {
    let continuation = of.continuation.as_ref().map_or(0, vec_bytes);
    of.fields.heap_bytes() + vec_bytes(&of.frame) + vec_bytes(&of.userdata) + continuation
}

/// The size of a message that a switch keeps: part of a bundle, or asynchronous. Others are answered at once and count
/// 0.
pub fn message(of: &Message) -> usize {
    match of {
        Message::FlowMod(request) => flow_mod(request),
        Message::GroupMod(request) => group_mod(request),
        Message::MeterMod(request) => vec_bytes(&request.bands),
        Message::PacketOut(packet) => packet_out(packet),
        Message::PacketIn(packet) | Message::Resume(packet) => size_of_val(&**packet) + packet_in(packet),
        Message::BundleAdd { message: inner, .. } | Message::Requestforward(inner) => {
            size_of_val(&**inner) + message(&inner.message)
        }
        Message::FlowRemoved(removed) => removed.matching.heap_bytes(),
        Message::PortStatus { port, .. } => port.name.capacity(),
        Message::ControllerStatus(status) => status.uri.capacity(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Framed;
    use crate::{Match, Version};

    #[test]
    fn what_is_inside_counts() {
        let note = vec![Action::Note(vec![0; 1000])];
        let of_note = actions(&note);
        assert!(of_note >= 1000 + size_of::<Action>());
        assert_eq!(actions(&vec![Action::Clone(note.clone())]), size_of::<Action>() + of_note);
        let packet = PacketOut { buffer: 0, fields: Match::any(), in_port: 0, actions: note, frame: vec![0; 60] };
        let inner = Framed { version: Version::V14, xid: 0, message: Message::PacketOut(packet) };
        let outer = Message::BundleAdd { bundle: 0, flags: 0, message: Box::new(inner) };
        assert_eq!(message(&outer), size_of::<Framed>() + of_note + 60);
    }
}

//! Execution of single actions.

use super::Translator;
use super::frames::{Frame, List, Place};
use crate::controllers::packet_in_reason;
use crate::effects::Effect;
use crate::recent::Dependence;
use openflow::action::{Controller, HeaderAction, Subfield, port};
use openflow::message::BandKind;
use openflow::{Action, FieldId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of values on the stack of `push` and `pop`.
const STACK_MAX: usize = 256;
/// Header actions after which a TTL may have expired.
const DECREMENTS: [HeaderAction; 2] = [HeaderAction::DecNwTtl, HeaderAction::DecMplsTtl];
/// The FIN and RST flags in `tcp_flags` (OXM number 42).
const FIN_RST: u128 = 0b101;

impl Translator<'_> {
    /// Executes an action.
    pub(super) fn action(&mut self, action: &Action, place: &Place) {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len, u32::MAX, self.queue, place),
            Action::OutputTruncated { port, max_len } => self.output(*port, 0xffff, *max_len, self.queue, place),
            Action::OutputField { field, max_len } => {
                let to = self.read(*field);
                self.output(wide_port(to, field.bits), *max_len, u32::MAX, self.queue, place);
            }
            Action::Enqueue { port, queue } => self.output(*port, 0xffff, u32::MAX, *queue, place),
            Action::Controller(controller) => self.controller(controller, place),
            Action::SetQueue(queue) => self.queue = *queue,
            Action::PopQueue => self.queue = 0,
            Action::Group(id) => self.group(*id, place),
            Action::Meter(id) => self.meter(*id),
            Action::SetField { field, value, mask } => self.set_field(*field, *value, *mask),
            Action::SetFieldIfPresent { field, value, mask } => {
                if self.layout.fields().get(*field).writable {
                    self.set_field(*field, *value, *mask);
                }
            }
            Action::DeleteField(field) => self.set_field(*field, 0, u128::MAX),
            Action::Move { from, to } => {
                if self.is_present(from.field) && self.is_present(to.field) {
                    let bits = from.bits.min(to.bits);
                    let (from, to) = (Subfield { bits, ..*from }, Subfield { bits, ..*to });
                    let (from, to) = (self.layout.part(from), self.layout.part(to));
                    if from.width == to.width {
                        self.state.copy(&from, &to);
                    }
                }
            }
            Action::StackPush(from) => {
                if self.stack.len() >= STACK_MAX {
                    return self.fail("the stack is full");
                }
                let value = self.read(*from);
                self.stack.push((value, from.bits));
            }
            Action::StackPop(to) => match self.stack.pop() {
                Some((value, _)) => self.load(*to, value),
                // As in Open vSwitch, this has no effect except a warning.
                None => self.note(|| "the stack is empty".to_string()),
            },
            Action::Header { name, argument } => {
                let controllers = if DECREMENTS.contains(name) { &[0][..] } else { &[] };
                self.header(*name, *argument, controllers, place);
            }
            Action::DecTtlControllers(ids) => self.header(HeaderAction::DecNwTtl, 0, ids, place),
            Action::Resubmit { port, table, .. } => {
                let port = port.filter(|port| *port != port::IN_PORT);
                self.search(table.unwrap_or(place.table), port, false, place.clone());
            }
            Action::Learn(learn) => self.learn(learn),
            // These only matter in a lookup.
            Action::Conjunction { .. } | Action::Note(_) => {}
            Action::Multipath { hash, basis, algorithm, max_link, argument, to } => {
                let hash = self.hash_fields(*hash, u32::from(*basis));
                let link = super::hash::link(*algorithm, hash, u32::from(*max_link) + 1, *argument);
                self.load(*to, u128::from(link));
            }
            Action::Bundle { hash, basis, algorithm, members, to } => {
                self.bundle(*hash, *basis, *algorithm, members, *to, place);
            }
            Action::CheckPacketLarger { bytes, to } => {
                let is_larger = self.is_larger(u32::from(*bytes));
                self.load(*to, u128::from(is_larger));
            }
            Action::FinTimeout { idle, hard } => self.fin_timeout(*idle, *hard, place),
            Action::Exit => self.exit(),
            Action::Clone(actions) => {
                self.copy();
                let list = List::Owned(actions.as_slice().into());
                self.frames.push(Frame::Actions { list, at: 0, place: place.clone() });
            }
            Action::ClearActions => self.set.clear(),
            Action::WriteActions(actions) => self.set.extend(actions.iter().cloned()),
            Action::WriteMetadata { value, mask } => self.write_metadata(*value, *mask),
            Action::GotoTable(table) => self.search(*table, None, true, place.clone()),
            Action::Program { id, argument } => self.freeze(Some((*id, *argument))),
            Action::Unsupported(name) => {
                let why = format!("`{name}` is not supported");
                self.fail(&why);
            }
        }
    }

    /// Whether an action can be executed before the frame is parsed again: it neither reads nor writes fields that
    /// parsing may change.
    pub(super) fn is_blind(&self, action: &Action) -> bool {
        let is_metadata = |field: FieldId| self.layout.is_metadata(field);
        match action {
            Action::Output { port, .. } | Action::OutputTruncated { port, .. } | Action::Enqueue { port, .. } => {
                !matches!(*port, port::NORMAL | port::TABLE)
            }
            Action::OutputField { field, .. } => is_metadata(field.field),
            Action::SetField { field, .. } | Action::SetFieldIfPresent { field, .. } | Action::DeleteField(field) => {
                is_metadata(*field)
            }
            Action::Move { from, to } => is_metadata(from.field) && is_metadata(to.field),
            Action::StackPush(part) | Action::StackPop(part) => is_metadata(part.field),
            Action::Controller(_)
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::Conjunction { .. }
            | Action::Note(_)
            | Action::Exit
            | Action::Clone(_)
            | Action::ClearActions
            | Action::WriteActions(_)
            | Action::WriteMetadata { .. }
            | Action::Program { .. }
            | Action::Unsupported(_) => true,
            _ => false,
        }
    }

    /// Reads and consults a part of a field.
    pub(super) fn read(&mut self, part: Subfield) -> u128 {
        let place = self.layout.part(part);
        self.state.read(&place)
    }

    /// Whether a field is present; consults its prerequisites.
    pub(super) fn is_present(&mut self, field: FieldId) -> bool {
        self.scratch.clear();
        let is = self.layout.is_present(&self.state.record, field, &mut self.scratch);
        self.state.consult_all(&self.scratch);
        is
    }

    /// Writes a field if it is present, as Open vSwitch does.
    fn set_field(&mut self, field: FieldId, value: u128, mask: u128) {
        if self.is_present(field) {
            let layout = self.layout;
            self.state.write(layout.place(field), value & mask, mask);
        }
    }

    /// Writes the low bits of a value to a part of a field, if that is present.
    pub(super) fn load(&mut self, to: Subfield, value: u128) {
        if self.is_present(to.field) {
            let place = self.layout.part(to);
            self.state.write(&place, value & crate::key::low128(to.bits), u128::MAX);
        }
    }

    /// Writes the metadata field (OXM number 2).
    pub(super) fn write_metadata(&mut self, value: u64, mask: u64) {
        if let Some(field) = self.layout.fields().basic(2) {
            self.set_field(field, u128::from(value), u128::from(mask));
        }
    }

    /// Runs a header action. If a TTL expires, the packet is sent to `controllers`, and the list of actions ends.
    fn header(&mut self, name: HeaderAction, argument: u128, controllers: &[u16], place: &Place) {
        let vm = Arc::clone(&self.shared.vm);
        let Some(action) = vm.action(name.name()) else {
            let why = format!("the program has no action `{}`", name.name());
            return self.fail(&why);
        };
        let writes = |part: crate::key::Part| {
            vm.dependences(action).written.binary_search_by_key(&part.word, |(word, _)| *word).is_ok()
        };
        let exceeded = self.layout.ttl_exceeded().filter(|part| writes(*part));
        let args: Vec<u128> = if vm.params(action) > 0 { vec![argument] } else { Vec::new() };
        let before = self.state.journal_len();
        let effects = self.state.effects.len();
        self.state.run(&vm, action, &args, exceeded.is_some());
        if let Some(flag) = exceeded {
            if crate::effects::is_set(&self.state.record, flag) {
                // This packet's TTL is consulted; that of other packets is checked when the effects are run.
                self.state.consult(flag.word, flag.mask());
                self.state.undo(before);
                self.state.effects.truncate(effects);
                return self.ttl_over(controllers, place);
            }
            self.state.assume(flag);
        }
        if let Some(flag) = self.layout.reparse().filter(|part| writes(*part)) {
            self.needs_reparse |= self.state.read_flag(flag);
        }
    }

    fn ttl_over(&mut self, controllers: &[u16], place: &Place) {
        self.note(|| "the TTL is over".to_string());
        for id in controllers {
            let what = Controller {
                max_len: 0xffff,
                id: *id,
                reason: packet_in_reason::INVALID_TTL,
                userdata: Vec::new(),
                pause: false,
                meter: None,
            };
            self.capture(&what, false, place, None);
        }
        // Ends the list of actions, and the instructions of its flow after it.
        let list = self.frames.pop();
        if let (Some(Frame::Actions { list: List::Flow(flow), .. }), Some(Frame::Rest { flow: next, .. })) =
            (list, self.frames.last())
            && flow == *next
        {
            self.frames.pop();
        }
    }

    /// Applies a meter. A meter that does not exist has no effect.
    pub(super) fn meter(&mut self, id: u32) {
        self.depend(Dependence::Meters);
        let Some(meter) = self.tables.as_ref().and_then(|tables| tables.meter(id)).cloned() else { return };
        self.note(|| format!("meter {id}"));
        if meter.bands.iter().any(|band| matches!(band.band.kind, BandKind::DscpRemark(_)))
            && let Some(dscp) = self.layout.fields().basic(8)
            && self.is_present(dscp)
        {
            let layout = self.layout;
            self.state.blur(layout.place(dscp));
        }
        self.state.effects.push(Effect::Meter { meter, skip: u32::MAX });
    }

    /// Whether the frame is longer than `bytes`. Consults the leading bits of the length that determine this.
    fn is_larger(&mut self, bytes: u32) -> bool {
        let len = self.subject.bytes;
        let differing = len ^ bytes;
        self.length |= if differing == 0 { u32::MAX } else { u32::MAX << (31 - differing.leading_zeros()) };
        len > bytes
    }

    /// Shortens the flow's timeouts if the packet has a TCP FIN or RST flag (ovs-actions(7), "fin_timeout").
    fn fin_timeout(&mut self, idle: u16, hard: u16, place: &Place) {
        let Some(field) = self.layout.fields().basic(42) else { return };
        if !self.is_present(field) {
            return;
        }
        let layout = self.layout;
        self.state.consult_place(layout.place(field), FIN_RST);
        let is_end = layout.place(field).read(&self.state.record) & FIN_RST != 0;
        let (true, true, Some(flow)) = (is_end, self.learns, &place.flow) else { return };
        let shorter = |old: u16, new: u16| {
            if new == 0 {
                old
            } else if old == 0 {
                new
            } else {
                old.min(new)
            }
        };
        let timeouts = flow.0.timeouts;
        let (idle, hard) = (shorter(timeouts.idle, idle), shorter(timeouts.hard, hard));
        flow.0.fin_timeouts.store(u32::from(idle) << 16 | u32::from(hard), Ordering::Relaxed);
        self.shared.control.shorten(&flow.0);
    }
}

/// The port number in a field of this width: reserved ports of OpenFlow 1.0 have 16 bits and are widened.
pub(super) fn wide_port(value: u128, bits: u32) -> u32 {
    let value = value as u32;
    if bits <= 16 && value >= 0xff00 { value | 0xffff_0000 } else { value }
}

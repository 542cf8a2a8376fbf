//! Execution of operations.

use super::Machine;
use crate::hash;
use crate::meter::Colour;
use crate::state::Match;
use crate::trace::{Event, Use};
use abi::PipelineState;
use abi::state::DigestMessage;
use base::entry::ActionCall;
use base::ids::{HeaderId, SlotId, TableId};
use base::{Bits, Span};
use ir::flow::for_each_header_slot;
use ir::print::{key_match_text, op_text};
use ir::{Inst, Mark, Op, Operand};

impl Machine<'_> {
    pub(super) fn execute(&mut self, inst: &Inst) {
        let span = inst.span;
        let op = &inst.op;
        if let Some(dst) = op.arithmetic_dst() {
            let width = self.program.width(dst);
            let value = op.evaluate(width, |o| Some(self.value(o))).expect("all operands have values");
            if self.verifies
                && let Op::Bin { op: ir::BinOp::Ne, a, b, .. } = op
            {
                self.verifies = false;
                self.note(span, |m| Event::Verified { computed: m.value(a), actual: m.value(b) });
            }
            return self.set(span, dst, value);
        }
        match op {
            Op::Mov { .. }
            | Op::Bin { .. }
            | Op::Un { .. }
            | Op::Cast { .. }
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::SetSlice { .. }
            | Op::Select { .. } => unreachable!("arithmetic is done above"),
            Op::SetValid { header } => {
                self.set(span, self.program.headers[header.index()].valid, Bits::from_bool(true));
            }
            Op::SetInvalid { header } => {
                let program = self.program;
                for_each_header_slot(program, *header, |s| self.set(span, s, Bits::zero(program.width(s))));
            }
            Op::HasBits { dst, bits } => {
                let bits = self.number(bits);
                let there = self.frame.has_bits(bits);
                if !there {
                    self.note(span, |_| Event::HasBits { bits, there });
                }
                self.set(span, *dst, Bits::from_bool(there));
                self.traced[1] = Some(*dst);
            }
            Op::Extract { header, varbit_bits } => self.extract(inst, *header, varbit_bits.as_ref()),
            Op::Advance { bits } => {
                let bits = self.number(bits);
                assert!(bits.is_multiple_of(8) && self.frame.has_bits(bits), "advance by {bits}: {}", self.text(inst));
                self.note(span, |_| Event::Advance { bits });
                self.frame.advance(bits);
            }
            Op::Lookahead { dst, offset } => {
                let (offset, width) = (u64::from(*offset), self.program.width(*dst));
                assert!(self.frame.has_bits(offset + u64::from(width)), "no such bits: {}", self.text(inst));
                let value = self.frame.peek(offset, width);
                self.note(span, |_| Event::Lookahead { offset, value: value.clone() });
                self.set(span, *dst, value);
            }
            Op::Consumed { dst } => self.set(span, *dst, Bits::new(32, self.frame.consumed() as u128)),
            Op::Emit { header } => self.emit(span, *header),
            Op::Truncate { bytes } => self.frame.truncate(self.number(bytes)),
            Op::Apply { table, keys, selector, hit, action, entry, data } => {
                self.apply(span, *table, keys, selector, [*hit, *action, *entry, *data]);
            }
            Op::ActionParam { dst, param, data, .. } => {
                let handle = self.slots[data.index()].to_u64().unwrap_or(0) as usize;
                let args = handle.checked_sub(1).and_then(|i| self.matched_args.get(i));
                let value = args.and_then(|args| args.get(*param as usize)).cloned();
                let value = value.filter(|v| v.width() == self.program.width(*dst));
                let value = value.unwrap_or_else(|| panic!("not the action that was matched: {}", self.text(inst)));
                self.set(span, *dst, value);
            }
            Op::Hash { .. } => self.hash(inst),
            Op::Random { dst, low, high } => {
                let (low, high) = (self.number(low), self.number(high));
                let value = if high < low { low } else { self.host.random(low, high) };
                self.note(span, |_| Event::Extern { name: "random".into(), what: Use::Random { low, high, value } });
                self.set(span, *dst, Bits::new(self.program.width(*dst), value.into()));
            }
            Op::Digest { digest, data } => {
                let fields: Vec<Bits> = data.iter().map(|o| self.value(o)).collect();
                self.note_extern(span, *digest, || Use::Digest);
                self.outcome.digests.push(DigestMessage { digest: *digest, fields });
            }
            Op::Log { format, args } => {
                let text = self.format(format, args);
                self.note(span, |_| Event::Log(text.clone()));
                self.outcome.logs.push(text);
            }
            Op::Assert { cond, text } => {
                if !self.value(cond).is_true() {
                    self.note(span, |_| Event::AssertFailed(text.clone()));
                    self.outcome.failed_assertions.push(text.clone());
                }
            }
            Op::Unresolved { callee, args, results } => {
                let args: Vec<Bits> = args.iter().map(|o| self.value(o)).collect();
                let widths: Vec<u32> = results.iter().map(|s| self.program.width(*s)).collect();
                let values = self.host.unresolved(callee, &args, &widths);
                self.note(span, |_| Event::Extern { name: callee.clone(), what: Use::Other("called".to_string()) });
                for ((slot, width), value) in results.iter().zip(widths).zip(values) {
                    self.set(span, *slot, value.resize_u(width));
                }
            }
            Op::Charge { steps } => self.spent += u64::from(*steps),
            Op::Mark(mark) => {
                if !matches!(mark, Mark::Statement | Mark::OutOfRange { .. }) {
                    (self.checks, self.verifies) = (matches!(mark, Mark::Checksum { update: false, .. }), false);
                }
                self.note(span, |_| match mark {
                    Mark::State(name) => Event::State(name.clone()),
                    Mark::Block(name) => Event::Block(name.clone()),
                    Mark::Action(name) => Event::Action(name.clone()),
                    Mark::Checksum { name, update } => Event::Checksum { name: name.clone(), update: *update },
                    Mark::Decision { name, holds } => Event::Decision { name: name.clone(), holds: *holds },
                    Mark::Statement => Event::Statement,
                    Mark::Direct { table, action } => Event::Direct { table: table.clone(), action: action.clone() },
                    Mark::Exit => Event::Exit,
                    Mark::OutOfRange { stack, size } => Event::OutOfRange { stack: stack.clone(), size: *size },
                });
            }
            Op::Count { .. }
            | Op::CountDirect { .. }
            | Op::AddEntry { .. }
            | Op::RestartTimer { .. }
            | Op::Meter { .. }
            | Op::MeterDirect { .. }
            | Op::RegisterRead { .. }
            | Op::RegisterWrite { .. }
            | Op::RegisterUpdate { .. } => self.stateful(inst),
        }
    }

    /// The length in bytes that an operation specifies, or else the packet's.
    fn given_length(&self, bytes: &Option<Operand>) -> u64 {
        bytes.as_ref().map_or(self.length, |bytes| self.number(bytes))
    }

    /// The colour that an operation specifies, or else green.
    fn colour(&self, before: &Option<Operand>) -> Colour {
        match before.as_ref().map_or(0, |before| self.number(before)) {
            0 => Colour::Green,
            1 => Colour::Yellow,
            _ => Colour::Red,
        }
    }

    /// Operations on counters, meters and registers.
    fn stateful(&mut self, inst: &Inst) {
        let span = inst.span;
        match &inst.op {
            Op::Count { counter, index, bytes } => {
                let index = self.number(index);
                self.note_extern(span, *counter, || Use::Count { index });
                self.state.count(*counter, index, self.given_length(bytes));
            }
            Op::CountDirect { counter, hit, entry, bytes } => {
                if self.value(hit).is_true() {
                    self.note_extern(span, *counter, || Use::Other("count the entry".to_string()));
                    self.state.count_direct(*counter, self.handle(*entry), self.given_length(bytes));
                }
            }
            Op::AddEntry { table, keys, action, args, expire, replace, dst } => {
                let values = |operands: &[Operand]| operands.iter().map(|o| self.value(o)).collect::<Vec<Bits>>();
                let (keys, call) = (values(keys), ActionCall { action: *action, args: values(args) });
                let described = &self.program.tables[table.index()];
                let runs = &self.program.actions[described.actions[*action as usize].action.index()].name;
                let done = self.state.add_entry(*table, &keys, call, self.number(expire), *replace);
                self.note(span, |_| {
                    let verb = if *replace { "replaced" } else { "added" };
                    let what = if done { format!("entry {verb}, runs {runs}") } else { format!("no entry {verb}") };
                    Event::Extern { name: described.name.clone(), what: Use::Other(what) }
                });
                self.set(span, *dst, Bits::from_bool(!done));
            }
            Op::RestartTimer { table, hit, entry, expire } => {
                if self.value(hit).is_true() {
                    let expire = expire.as_ref().map(|o| self.number(o));
                    let name = &self.program.tables[table.index()].name;
                    self.note(span, |_| Event::Extern {
                        name: name.clone(),
                        what: Use::Other("timer restarted".to_string()),
                    });
                    self.state.restart_timer(*table, self.handle(*entry), expire);
                }
            }
            Op::Meter { meter, dst, index, before, bytes } => {
                let (index, bytes, before) = (self.number(index), self.given_length(bytes), self.colour(before));
                let colour = self.state.meter_execute_after(*meter, index, bytes, before, self.host.now_us());
                self.note_extern(span, *meter, || Use::Meter { index, colour });
                self.set(span, *dst, Bits::new(self.program.width(*dst), colour as u128));
            }
            Op::MeterDirect { meter, dst, hit, entry, before, bytes } => {
                let entry = if self.value(hit).is_true() { self.handle(*entry) } else { 0 };
                let (bytes, before) = (self.given_length(bytes), self.colour(before));
                let colour = self.state.meter_direct_execute_after(*meter, entry, bytes, before, self.host.now_us());
                self.note_extern(span, *meter, || Use::Other(format!("the entry's cell says {colour:?}")));
                self.set(span, *dst, Bits::new(self.program.width(*dst), colour as u128));
            }
            Op::RegisterRead { register, dst, index, .. } => {
                let index = self.number(index);
                let value = self.state.register_read(*register, index);
                self.note_extern(span, *register, || Use::Read { index, value: value.clone() });
                self.set(span, *dst, value);
            }
            Op::RegisterWrite { register, index, src } => {
                let (index, value) = (self.number(index), self.value(src));
                self.note_extern(span, *register, || Use::Write { index, value: value.clone() });
                // A write out of range has no effect; no other error is possible.
                let _ = self.state.register_set(*register, index, &value);
            }
            Op::RegisterUpdate { register, dst, index, update, src } => {
                let (index, operand) = (self.number(index), self.value(src));
                let value = self.state.register_read(*register, index);
                self.note_extern(span, *register, || Use::Read { index, value: value.clone() });
                let new = update.operation().map_or(operand.clone(), |op| op.apply(&value, &operand));
                self.note_extern(span, *register, || Use::Write { index, value: new.clone() });
                // As a write.
                let _ = self.state.register_set(*register, index, &new);
                self.set(span, *dst, value);
            }
            _ => unreachable!("called for stateful externs only"),
        }
    }

    fn handle(&self, slot: SlotId) -> u64 {
        self.slots[slot.index()].to_u64().unwrap_or(0)
    }

    /// The text of an instruction, for the message of a failed assertion.
    fn text(&self, inst: &Inst) -> String {
        op_text(self.program, &inst.op)
    }

    fn note_extern(&mut self, span: Span, ext: ir::ExternId, what: impl FnOnce() -> Use) {
        self.note(span, |m| Event::Extern { name: m.program.externs[ext.index()].name.clone(), what: what() });
    }

    fn extract(&mut self, inst: &Inst, header: HeaderId, varbit_bits: Option<&Operand>) {
        let program = self.program;
        let header = &program.headers[header.index()];
        let varbit = varbit_bits.map_or(0, |o| self.number(o));
        let start = self.frame.consumed() as u64;
        let mut fields = Vec::new();
        let mut offset = 0;
        let mut changes = Vec::new();
        for field in &header.fields {
            let width = program.width(field.slot);
            let bits = if field.varbit_length.is_some() { varbit } else { width.into() };
            let possible = bits <= width.into() && self.frame.has_bits(offset + bits);
            assert!(possible, "no room for `{}`: {}", field.name, self.text(inst));
            let value = self.frame.peek(offset, bits as u32);
            offset += bits;
            fields.push((field.name.clone(), value.clone()));
            changes.push((field.slot, value.resize_u(width)));
            changes.extend(field.varbit_length.map(|length| (length, Bits::new(32, bits.into()))));
        }
        assert!(offset.is_multiple_of(8), "{offset} bits are no whole bytes: {}", self.text(inst));
        self.frame.advance(offset);
        self.note(inst.span, |_| Event::Extract { header: header.name.clone(), offset: start, fields });
        // The step above shows the fields; individual changes would repeat them.
        for (slot, value) in changes {
            self.slots[slot.index()] = value;
        }
        self.slots[header.valid.index()] = Bits::from_bool(true);
    }

    fn emit(&mut self, span: Span, header: HeaderId) {
        let header = &self.program.headers[header.index()];
        if !self.slots[header.valid.index()].is_true() {
            return;
        }
        let mut bits = Bits::zero(0);
        for field in &header.fields {
            let value = &self.slots[field.slot.index()];
            let width = match field.varbit_length {
                Some(length) => (self.handle(length) as u32).min(value.width()),
                None => value.width(),
            };
            bits = bits.concat(&value.resize_u(width));
        }
        let padding = bits.width().next_multiple_of(8) - bits.width();
        let bytes = bits.concat(&Bits::zero(padding)).to_bytes_be();
        self.note(span, |_| Event::Emit { header: header.name.clone(), bytes: bytes.clone() });
        self.frame.emit(&bytes);
    }

    fn apply(&mut self, span: Span, table: TableId, keys: &[Operand], selector: &[Operand], dst: [SlotId; 4]) {
        let keys: Vec<Bits> = keys.iter().map(|o| self.value(o)).collect();
        let selector: Vec<Bits> = selector.iter().map(|o| self.value(o)).collect();
        let Match { hit, action, entry, matched, member, empty_group } = self.state.lookup(table, &keys, &selector);
        self.note(span, |m| {
            let table = &m.program.tables[table.index()];
            let call = &m.program.actions[table.actions[action.action as usize].action.index()];
            let described = matched.as_ref().map(|entry| {
                let fields: Vec<String> = entry.key.iter().map(key_match_text).collect();
                let mut text = format!("({})", fields.join(", "));
                if table.keys.iter().any(|k| k.kind.needs_priority()) {
                    text.push_str(&format!(" priority {}", entry.priority));
                }
                text
            });
            Event::Apply {
                table: table.name.clone(),
                keys: table.keys.iter().map(|k| k.name.clone()).zip(keys).collect(),
                entry: described,
                matched: matched.map(Box::new),
                member,
                empty_group,
                action: call.name.clone(),
                args: call.params.iter().map(|(name, _)| name.clone()).zip(action.args.iter().cloned()).collect(),
            }
        });
        self.matched_args.push(action.args);
        let data = self.matched_args.len() as u128;
        let values = [(1, u128::from(hit)), (32, action.action.into()), (64, entry.into()), (64, data)];
        for (slot, (width, value)) in dst.into_iter().zip(values) {
            // The step above shows the result of the lookup.
            self.slots[slot.index()] = Bits::new(width, value);
        }
        self.traced = [Some(dst[1]), None];
    }

    fn hash(&mut self, inst: &Inst) {
        let Op::Hash { algorithm, dst, base, max, data, varbits, payload } = &inst.op else { return };
        let mut parts: Vec<Bits> = data.iter().map(|o| self.value(o)).collect();
        for (operand, length) in varbits {
            let part = &mut parts[*operand as usize];
            *part = part.resize_u((self.handle(*length) as u32).min(part.width()));
        }
        let payload = if *payload { self.frame.payload() } else { &[] };
        let hash = self.state.hash(*algorithm, &hash::concat(&parts), payload);
        let hash = hash.unwrap_or_else(|| self.host.random(0, u64::MAX));
        let max = max.as_ref().map(|o| self.value(o));
        let base = self.value(base);
        let value = hash::scale(hash, &base, max.as_ref());
        self.note(inst.span, |_| Event::Extern {
            name: algorithm.name().to_string(),
            what: Use::Hash { hash, base, max, value: value.clone() },
        });
        self.verifies = self.checks;
        self.set(inst.span, *dst, value);
    }

    /// Formats arguments in decimal, one for each `{}`; excess arguments are appended.
    fn format(&self, format: &str, args: &[Operand]) -> String {
        let mut args = args.iter().map(|o| self.value(o).to_biguint().to_string());
        let mut text = String::new();
        let mut parts = format.split("{}");
        text.push_str(parts.next().unwrap_or(""));
        for part in parts {
            text.push_str(&args.next().unwrap_or_else(|| "{}".to_string()));
            text.push_str(part);
        }
        for arg in args {
            text.push(' ');
            text.push_str(&arg);
        }
        text
    }
}

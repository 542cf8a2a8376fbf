//! Execution of operations on symbolic values, corresponding to `interp::interpreter::exec` on bits.

use super::context::BLOCKS_MAX;
use super::outcome::Untraceable;
use super::run::Run;
use super::tables::{Bytes, Counted, Looked, Lookup, Place};
use super::value::{Origin, Value};
use base::Bits;
use base::ids::{BlockId, ExternId, SlotId, StageId, TableId};
use ir::flow::for_each_header_slot;
use ir::{BinOp, CastKind, Fate, HashAlgorithm, Inst, Op, Operand, ReplicationPoint, Stage, StageKind, Terminator};

/// How an entry ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Drop(u32),
    Send(u32),
    Multicast,
    Replicate(ReplicationPoint),
    Again,
}

/// Failures are checked once per block, which is often enough: every loop has at least one block.
impl Run<'_> {
    pub(super) fn value(&self, operand: &Operand) -> Value {
        match operand {
            Operand::Slot(slot) => self.slots[slot.index()].clone(),
            Operand::Const(bits) => Value::from_bits(bits),
        }
    }

    /// A number that is consulted, saturated to 64 bits.
    fn number(&mut self, operand: &Operand) -> u64 {
        let value = self.value(operand);
        self.consult_value(&value);
        value.number()
    }

    fn set(&mut self, slot: SlotId, value: Value) {
        debug_assert_eq!(value.width(), self.cx.program.width(slot));
        self.slots[slot.index()] = value;
    }

    /// Runs a stage. Returns how the entry ends, if it ends in this stage.
    pub(super) fn stage(&mut self, id: StageId) -> Result<Option<Ended>, Untraceable> {
        let cx = self.cx;
        let stage = &cx.program.stages[id.index()];
        if stage.kind == StageKind::Parser {
            self.packet.cursor = 0;
        }
        let mut at = Stage::START;
        let ended = loop {
            let Some(left) = self.blocks_left.checked_sub(1) else {
                return Err(Untraceable(format!("`{}` goes through more than {} blocks", stage.name, BLOCKS_MAX)));
            };
            self.blocks_left = left;
            let block = &stage.blocks[at.index()];
            block.insts.iter().for_each(|inst| self.execute(inst));
            let next = self.terminate(&block.term);
            self.check()?;
            match next {
                Ok(next) => at = next,
                Err(ended) => break ended,
            }
        };
        if stage.kind == StageKind::Deparser {
            self.deparse();
        }
        Ok(ended)
    }

    fn terminate(&mut self, term: &Terminator) -> Result<BlockId, Option<Ended>> {
        Err(match term {
            Terminator::Jump(to) => return Ok(*to),
            Terminator::Branch { cond, then, other } => {
                return Ok(if self.number(cond) != 0 { *then } else { *other });
            }
            Terminator::Switch { on, cases, default } => {
                let on = self.value(on);
                self.consult_value(&on);
                let on = on.to_bits();
                return Ok(cases.iter().find(|(case, _)| *case == on).map_or(*default, |(_, to)| *to));
            }
            Terminator::Next => None,
            Terminator::Finish(Fate::Drop(reason)) => Some(Ended::Drop(*reason)),
            Terminator::Finish(Fate::Send(port)) => Some(Ended::Send(self.number(port) as u32)),
            Terminator::Finish(Fate::Multicast(_)) => Some(Ended::Multicast),
            Terminator::Finish(Fate::Replicate(point)) => Some(Ended::Replicate(*point)),
            Terminator::Finish(Fate::Again { .. }) => Some(Ended::Again),
        })
    }

    fn execute(&mut self, inst: &Inst) {
        let cx = self.cx;
        let program = &*cx.program;
        match &inst.op {
            Op::Mov { dst, src } => {
                let value = self.value(src);
                self.set(*dst, value);
            }
            Op::Bin { op, dst, a, b } => {
                let value = self.binary(*op, &self.value(a), &self.value(b));
                self.set(*dst, value);
            }
            Op::Un { op, dst, a } => {
                let value = self.unary(*op, &self.value(a));
                self.set(*dst, value);
            }
            Op::Cast { kind, dst, a } => {
                let (value, width) = (self.value(a), program.width(*dst));
                let value = match kind {
                    CastKind::Zext | CastKind::Trunc => value.resize(width),
                    CastKind::Sext => self.sign_extend(&value, width),
                };
                self.set(*dst, value);
            }
            Op::Concat { dst, hi, lo } => {
                let value = self.value(hi).concat(&self.value(lo));
                self.set(*dst, value);
            }
            Op::Slice { dst, a, hi, lo } => {
                let value = self.value(a).slice(*lo, hi - lo + 1);
                self.set(*dst, value);
            }
            Op::SetSlice { dst, lo, a, .. } => {
                let value = self.slots[dst.index()].set_slice(*lo, &self.value(a));
                self.set(*dst, value);
            }
            Op::Select { dst, cond, then, other } => {
                let value = self.select(&self.value(cond), &self.value(then), &self.value(other));
                self.set(*dst, value);
            }
            Op::SetValid { header } => self.set(program.headers[header.index()].valid, Value::constant(1, 1)),
            Op::SetInvalid { header } => {
                for_each_header_slot(program, *header, |slot| {
                    self.set(slot, Value::constant(program.width(slot), 0));
                });
            }
            Op::HasBits { dst, bits } => {
                let bits = self.number(bits);
                let there = self.has_bits(bits);
                self.set(*dst, Value::constant(1, there.into()));
            }
            Op::Extract { header, varbit_bits } => {
                let varbit = varbit_bits.as_ref().map_or(0, |bits| self.number(bits));
                self.extract(*header, varbit);
            }
            Op::Advance { bits } => {
                let bits = self.number(bits);
                self.advance(bits);
            }
            Op::Lookahead { dst, offset } => {
                let value = self.peek((*offset).into(), program.width(*dst));
                self.set(*dst, value);
            }
            Op::Consumed { dst } => {
                let consumed = self.packet.consumed();
                self.set(*dst, Value::constant(32, consumed.into()));
            }
            Op::Emit { header } => self.emit(*header),
            Op::Truncate { bytes } => {
                let bytes = self.number(bytes);
                self.packet.truncate = Some(bytes);
            }
            Op::Apply { table, keys, selector, hit, action, entry, data } => {
                self.apply(*table, keys, selector, [*hit, *action, *entry, *data]);
            }
            Op::ActionParam { dst, param, data, table, .. } => {
                let handle = self.number(&Operand::Slot(*data)) as usize;
                let args = handle.checked_sub(1).and_then(|i| self.matched.get(i));
                let arg = args.and_then(|args| args.get(*param as usize)).cloned();
                match arg.filter(|arg| arg.width() == program.width(*dst)) {
                    Some(arg) => self.set(*dst, Value::from_bits(&arg)),
                    None => {
                        self.refuse("action data that no lookup gave of table", &program.tables[table.index()].name)
                    }
                }
            }
            Op::Count { counter, index, bytes } => {
                let index = self.number(index);
                let bytes = self.counted_bytes(bytes);
                self.counted.push(Counted { counter: *counter, at: Place::Index(index), bytes });
            }
            Op::CountDirect { counter, hit, entry, bytes } => {
                if self.number(hit) != 0 {
                    let entry = self.number(&Operand::Slot(*entry));
                    let bytes = self.counted_bytes(bytes);
                    self.counted.push(Counted { counter: *counter, at: Place::Entry(entry), bytes });
                }
            }
            Op::Hash { .. } => self.hash(&inst.op),
            Op::Charge { steps } => match self.steps_left.checked_sub((*steps).into()) {
                Some(left) => self.steps_left = left,
                None => self.refuse("more steps than may be spent in loops", ""),
            },
            Op::Mark(_) => {}
            Op::Random { .. } => self.refuse("a random number", ""),
            Op::Digest { digest, .. } => self.refuse_extern("a message of digest", *digest),
            Op::Log { .. } => self.refuse("a line for the log", ""),
            Op::Assert { text, .. } => self.refuse("an assertion", text),
            Op::Unresolved { callee, .. } => self.refuse("a call of", callee),
            Op::AddEntry { table, .. } => self.refuse("an entry added to table", &program.tables[table.index()].name),
            Op::RestartTimer { table, .. } => {
                self.refuse("a timer restarted in table", &program.tables[table.index()].name);
            }
            Op::Meter { meter, .. } | Op::MeterDirect { meter, .. } => self.refuse_extern("meter", *meter),
            Op::RegisterRead { register, .. }
            | Op::RegisterWrite { register, .. }
            | Op::RegisterUpdate { register, .. } => {
                self.refuse_extern("register", *register);
            }
        }
    }

    fn refuse(&mut self, what: &str, name: &str) {
        let name = if name.is_empty() { String::new() } else { format!(" `{name}`") };
        self.fail(|| format!("it needs {what}{name}"));
    }

    fn refuse_extern(&mut self, what: &str, which: ExternId) {
        let program = std::sync::Arc::clone(&self.cx.program);
        self.refuse(what, &program.externs[which.index()].name);
    }

    fn advance(&mut self, bits: u64) {
        let end = (self.packet.cursor / 8).saturating_add(bits.div_ceil(8));
        if !bits.is_multiple_of(8) || end > self.length().into() {
            return self.fail(|| format!("it advances by {bits} bits, which are not there"));
        }
        self.packet.cursor += bits;
    }

    fn apply(&mut self, table: TableId, keys: &[Operand], selector: &[Operand], dst: [SlotId; 4]) {
        let chosen = self.chosen.as_ref().filter(|chosen| chosen.table == table).map(|chosen| chosen.action);
        let lookup = match chosen {
            Some(action) => Lookup { hit: true, action, ..Lookup::default() },
            None => {
                let name = &self.cx.program.tables[table.index()].name;
                let keys: Vec<Value> = keys.iter().map(|key| self.value(key)).collect();
                let selector: Vec<Value> = selector.iter().map(|key| self.value(key)).collect();
                let bits = |values: &[Value]| values.iter().map(Value::to_bits).collect::<Vec<Bits>>();
                let found =
                    self.tables.as_mut().and_then(|tables| tables.lookup(table, &bits(&keys), &bits(&selector)));
                let Some(found) = found else { return self.refuse("a lookup in table", name) };
                for (i, key) in keys.iter().enumerate() {
                    match found.consulted.get(i) {
                        Some(mask) if mask.width() == key.width() => self.consult_mask(key, mask),
                        _ => self.consult_value(key),
                    }
                }
                if found.by_selector {
                    selector.iter().for_each(|key| self.consult_value(key));
                }
                self.matched.push(found.args.as_slice().into());
                self.lookups.push(Looked { table, hit: found.hit, entry: found.entry });
                found
            }
        };
        let data = self.matched.len() as u64;
        let values = [(1, u64::from(lookup.hit)), (32, lookup.action.into()), (64, lookup.entry), (64, data)];
        for (slot, (width, value)) in dst.into_iter().zip(values) {
            self.set(slot, Value::constant(width, value));
        }
    }

    /// Consults the bits of a value under a mask of the same width.
    fn consult_mask(&mut self, value: &Value, mask: &Bits) {
        let mut hi = value.width();
        for part in value.parts() {
            let needed = mask.slice(hi - 1, hi - part.width).to_u64().unwrap_or(u64::MAX);
            hi -= part.width;
            self.consult_part(part, needed);
        }
    }

    fn counted_bytes(&mut self, bytes: &Option<Operand>) -> Bytes {
        let Some(bytes) = bytes else { return self.entered };
        let value = self.value(bytes);
        // The frame's length, possibly zero-extended.
        let mut parts = value.parts().iter().skip_while(|part| part.is_const() && part.value == 0);
        if let (Some(part), None) = (parts.next(), parts.next())
            && part.origin == (Origin::Length { lo: 0 })
            && part.width == 32
        {
            return Bytes::Received { plus: 0, at_most: u32::MAX };
        }
        self.consult_value(&value);
        Bytes::Exactly(value.number())
    }

    fn hash(&mut self, op: &Op) {
        let Op::Hash { algorithm, dst, base, max, data, varbits, payload } = op else { return };
        let mut parts: Vec<Value> = data.iter().map(|operand| self.value(operand)).collect();
        for (operand, length) in varbits {
            let length = self.number(&Operand::Slot(*length)) as u32;
            let part = &mut parts[*operand as usize];
            *part = part.resize(length.min(part.width()));
        }
        let mut all = Value::empty();
        parts.iter().for_each(|part| all.append(part));
        if *payload && *algorithm != HashAlgorithm::Identity {
            return self.refuse("a hash of the payload,", algorithm.name());
        }
        let Some(hash) = self.digest(*algorithm, all) else { return };
        let base = self.value(base);
        let mut hash = hash.resize(64);
        if let Some(max) = max {
            let max = self.value(max);
            self.consult_value(&max);
            match max.number() {
                0 => hash = Value::constant(64, 0),
                // A maximum of more than 64 bits leaves the hash unchanged.
                _ if max.to_bits().to_u64().is_none() => {}
                number => hash = self.binary(BinOp::Mod, &hash, &Value::constant(64, number)),
            }
        }
        let value = self.binary(BinOp::Add, &base, &hash.resize(base.width()));
        self.set(*dst, value);
    }

    /// A hash of at most 64 bits.
    fn digest(&mut self, algorithm: HashAlgorithm, mut data: Value) -> Option<Value> {
        let bits = data.width();
        data.push_zeros(bits.next_multiple_of(8) - bits);
        match algorithm {
            HashAlgorithm::Csum16 => {
                let sum = self.sum(&data);
                Some(self.unary(ir::UnOp::Not, &sum))
            }
            HashAlgorithm::Identity => {
                let width = data.width().min(64);
                Some(data.slice(data.width() - width, width))
            }
            HashAlgorithm::Xor16 => {
                data.push_zeros(data.width().next_multiple_of(16) - data.width());
                let words: Vec<Value> = (0..data.width() / 16).map(|i| data.slice(16 * i, 16)).collect();
                Some(words.iter().fold(Value::constant(16, 0), |all, word| self.binary(BinOp::Xor, &all, word)))
            }
            HashAlgorithm::Crc32 | HashAlgorithm::Crc16 => {
                self.consult_value(&data);
                let bytes = if data.width() == 0 { Vec::new() } else { data.to_bits().to_bytes_be() };
                Some(Value::constant(32, crc(algorithm == HashAlgorithm::Crc32, &bytes).into()))
            }
            // Random numbers, and algorithms with parameters from the control plane.
            other => {
                self.refuse("the hash", other.name());
                None
            }
        }
    }
}

/// CRC-32 (IEEE 802.3) or CRC-16/ARC: both reflected, bit by bit.
fn crc(is_wide: bool, bytes: &[u8]) -> u32 {
    let (polynomial, begin) = if is_wide { (0xedb8_8320, u32::MAX) } else { (0xa001, 0) };
    let remainder = bytes.iter().fold(begin, |remainder, byte| {
        (0..8).fold(remainder ^ u32::from(*byte), |r, _| r >> 1 ^ if r & 1 == 1 { polynomial } else { 0 })
    });
    remainder ^ begin
}

#[cfg(test)]
mod tests {
    #[test]
    fn published_check_values() {
        assert_eq!(super::crc(true, b"123456789"), 0xcbf4_3926);
        assert_eq!(super::crc(false, b"123456789"), 0xbb3d);
    }
}

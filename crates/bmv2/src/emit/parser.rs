//! Lowers the parser: a block for each state, and a check before each operation that needs bits of the packet.
//!
//! An exception (too few bits, a full stack, `verify`) ends the parser; headers that were extracted remain. It sets
//! `parser_error`, which otherwise has the value of `NoError`: 0, or 1 in the output of old versions of p4c.

use super::{Cx, Role};
use crate::headers::CORE_ERRORS;
use crate::model::{Expr, ExtractTo, KeyPart, ParserOp, ParserValue, State, TransitionOn};
use base::Bits;
use ir::{BinOp, BlockId, Mark, Op, Operand, StageKind};

/// More bits than any packet has: frames have at most 65,344 bytes.
const BITS_MAX: u128 = 1 << 24;

impl Cx<'_> {
    pub(super) fn parser(&mut self) -> ir::StageId {
        let m = self.m;
        let stage = self.open(Role::Parser, "parser", StageKind::Parser);
        self.declare_value_sets();
        let end = self.b.block("accept");
        let blocks: Vec<BlockId> = m.states.iter().map(|s| self.b.block(s.name.clone())).collect();
        let target = |state: Option<usize>| state.map_or(end, |s| blocks[s]);
        let none = m.errors.iter().position(|error| error == CORE_ERRORS[0]).unwrap_or(0);
        if let (1.., Some(slot)) = (none, self.standard("parser_error")) {
            self.b.set(slot, none as u128);
        }
        self.b.jump(target(m.first_state));
        for (state, block) in m.states.iter().zip(&blocks) {
            self.b.switch_to(*block);
            self.set_location(state.location);
            self.b.emit(Op::Mark(Mark::State(state.name.clone())));
            for op in &state.ops {
                self.parser_op(op);
            }
            self.transitions(state, &target);
        }
        let mut fails: Vec<(Option<u32>, BlockId)> = self.fail_blocks.drain().collect();
        fails.sort();
        for (error, block) in fails {
            self.b.switch_to(block);
            if let (Some(error), Some(slot)) = (error, self.standard("parser_error")) {
                self.b.set(slot, u128::from(error));
            }
            self.b.jump(end);
        }
        self.b.switch_to(end);
        self.close();
        stage
    }

    /// The block that sets an error (`None`: leaves it unchanged) and ends the parser.
    fn fail_block(&mut self, error: Option<u32>) -> BlockId {
        if let Some(block) = self.fail_blocks.get(&error) {
            return *block;
        }
        let label = error.and_then(|e| self.m.errors.get(e as usize).cloned()).unwrap_or_default();
        let block = self.b.block(label);
        self.fail_blocks.insert(error, block);
        block
    }

    /// Continues where a condition holds; otherwise the parser ends with an error of the core library.
    fn fail_unless(&mut self, cond: impl Into<Operand>, error: &str) {
        let cond = cond.into();
        if matches!(&cond, Operand::Const(c) if c.is_true()) {
            return;
        }
        let error = self.m.errors.iter().position(|e| e == error).map(|e| e as u32);
        let fail = self.fail_block(error);
        let go_on = self.b.block("");
        self.b.branch(cond, go_on, fail);
        self.b.switch_to(go_on);
    }

    fn require_bits(&mut self, bits: Operand) {
        if matches!(&bits, Operand::Const(c) if c.is_zero()) {
            return;
        }
        let there = self.b.temp(1);
        self.b.emit(Op::HasBits { dst: there, bits });
        self.fail_unless(there, "PacketTooShort");
    }

    fn parser_op(&mut self, op: &ParserOp) {
        if self.is_over_limit() {
            return;
        }
        match op {
            ParserOp::Extract { to, length } => self.extract_op(to, length.as_ref()),
            ParserOp::Set { to, value: ParserValue::Expr(value) } => {
                to.iter().for_each(|to| self.assign_field(*to, value));
            }
            ParserOp::Set { to, value: ParserValue::Lookahead(offset, width) } => {
                let bits = self.lookahead(*offset, *width);
                let Some(to) = to else { return };
                let ty = self.m.field(*to);
                let value = super::arithmetic::Value::unsigned(bits);
                let value = match ty.saturating {
                    true => self.saturate(value, ty.width, ty.signed).operand,
                    false => self.resize(&value, ty.width),
                };
                self.write(*to, value);
            }
            ParserOp::Verify { condition, error } => self.verify(condition, error),
            ParserOp::Advance(bits) => {
                let bits = self.amount(bits);
                self.require_bits(bits.clone());
                self.b.emit(Op::Advance { bits });
            }
            ParserOp::Primitive(name, call) => {
                self.b.emit(Op::Mark(Mark::Action(name.clone())));
                self.set_location(call.location);
                self.b.emit(Op::Mark(Mark::Statement));
                self.call(call);
            }
        }
    }

    /// A number of bits of the packet, in 32 bits. The parser fails unless it is whole bytes and a packet can be as long.
    fn amount(&mut self, bits: &Expr) -> Operand {
        let bits = self.index(bits);
        let width = bits.width(self.b.program());
        let bits = match &bits {
            Operand::Const(c) => {
                let clipped = c.to_u128().unwrap_or(u128::MAX).min(BITS_MAX + 8 + (c.to_u128().unwrap_or(0) % 8));
                Operand::new_const(32, clipped)
            }
            Operand::Slot(_) if width <= 24 => self.b.resize_u(32, bits),
            Operand::Slot(_) => {
                let limit = Operand::new_const(width, BITS_MAX);
                let fits = self.b.bin(BinOp::Ule, bits.clone(), limit);
                self.whole_bytes(&bits);
                self.fail_unless(fits, "PacketTooShort");
                self.b.resize_u(32, bits)
            }
        };
        self.whole_bytes(&bits);
        bits
    }

    fn whole_bytes(&mut self, bits: &Operand) {
        let whole: Operand = match bits {
            Operand::Const(c) => Bits::from_bool(c.to_u128().unwrap_or(0).is_multiple_of(8)).into(),
            slot if slot.width(self.b.program()) >= 3 => {
                let rest = self.b.slice(slot.clone(), 2, 0);
                self.b.bin(BinOp::Eq, rest, Operand::new_const(3, 0)).into()
            }
            slot => {
                let zero = Operand::new_const(slot.width(self.b.program()), 0);
                self.b.bin(BinOp::Eq, slot.clone(), zero).into()
            }
        };
        self.fail_unless(whole, "ParserInvalidArgument");
    }

    fn verify(&mut self, condition: &Expr, error: &Expr) {
        let cond = self.boolean(condition);
        if matches!(&cond, Operand::Const(c) if c.is_true()) {
            return;
        }
        if let Expr::Number(n) = error {
            let fail = self.fail_block(u32::try_from(n).ok());
            let go_on = self.b.block("");
            self.b.branch(cond, go_on, fail);
            return self.b.switch_to(go_on);
        }
        let go_on = self.b.block("");
        let wrong = self.b.block("");
        self.b.branch(cond, go_on, wrong);
        self.b.switch_to(wrong);
        if let Some(slot) = self.standard("parser_error") {
            let width = self.b.program().width(slot);
            let value = self.modulo(error, width);
            self.b.mov(slot, value);
        }
        let reject = self.fail_block(None);
        self.b.jump(reject);
        self.b.switch_to(go_on);
    }

    fn lookahead(&mut self, offset: u32, width: u32) -> Operand {
        self.require_bits(Operand::new_const(32, u128::from(offset) + u128::from(width)));
        let dst = self.b.temp(width);
        self.b.emit(Op::Lookahead { dst, offset });
        dst.into()
    }

    fn extract_op(&mut self, to: &ExtractTo, length: Option<&Expr>) {
        let m = self.m;
        let (headers, next): (Vec<usize>, _) = match to {
            ExtractTo::Header(header) => {
                let bits = self.check_extractable(*header, length);
                return self.extract(*header, bits);
            }
            ExtractTo::Stack(stack) => (m.stacks[*stack].elements.clone(), self.next_of_stack[*stack]),
            ExtractTo::UnionStack(stack, member) => {
                let of = |union: &usize| m.unions[*union].members[*member];
                (m.union_stacks[*stack].elements.iter().map(of).collect(), self.next_of_union_stack[*stack])
            }
        };
        let there_is = self.b.bin(BinOp::Ult, next, Operand::new_const(32, headers.len() as u128));
        self.fail_unless(there_is, "StackOutOfBounds");
        let bits = self.check_extractable(headers[0], length);
        let done = self.b.block("");
        let blocks: Vec<BlockId> = headers.iter().map(|_| self.b.block("")).collect();
        let Some((last, others)) = blocks.split_last() else { return };
        let cases = others.iter().enumerate().map(|(i, b)| (Bits::new(32, i as u128), *b)).collect();
        self.b.switch(next, cases, *last);
        for (i, (block, header)) in blocks.iter().zip(headers).enumerate() {
            self.b.switch_to(*block);
            self.extract(header, bits.clone());
            self.b.set(next, i as u128 + 1);
            self.b.jump(done);
        }
        self.b.switch_to(done);
    }

    /// Fails unless a header can be extracted; returns the bits of its varbit field.
    fn check_extractable(&mut self, header: usize, length: Option<&Expr>) -> Option<Operand> {
        let ty = self.m.header_type(header);
        let fixed: u32 = ty.fields.iter().filter(|f| !f.varbit).map(|f| f.width).sum();
        let Some(at) = ty.fields.iter().position(|f| f.varbit) else {
            self.require_bits(Operand::new_const(32, u128::from(fixed)));
            return None;
        };
        let max = ty.fields[at].width;
        let bits = match (length, &ty.length) {
            (Some(length), _) => self.amount(length),
            (None, Some(length)) => {
                // Computed from the fields before the varbit, which are not extracted yet.
                let before: u32 = ty.fields[..at].iter().map(|f| f.width).sum();
                self.require_bits(Operand::new_const(32, u128::from(before)));
                let (mut offset, mut values) = (0, Vec::new());
                for field in &ty.fields[..at] {
                    let dst = self.b.temp(field.width);
                    self.b.emit(Op::Lookahead { dst, offset });
                    offset += field.width;
                    values.push(Operand::from(dst));
                }
                let outer = std::mem::replace(&mut self.locals, values);
                let bits = self.amount(length);
                self.locals = outer;
                bits
            }
            (None, None) => Operand::new_const(32, 0),
        };
        let all: Operand = match &bits {
            Operand::Const(c) => Operand::new_const(32, c.to_u128().unwrap_or(0) + u128::from(fixed)),
            Operand::Slot(_) => self.b.bin(BinOp::Add, bits.clone(), Operand::new_const(32, u128::from(fixed))).into(),
        };
        self.require_bits(all);
        let fits: Operand = match &bits {
            Operand::Const(c) => Bits::from_bool(c.to_u64().is_some_and(|c| c <= u64::from(max))).into(),
            Operand::Slot(_) => self.b.bin(BinOp::Ule, bits.clone(), Operand::new_const(32, u128::from(max))).into(),
        };
        self.fail_unless(fits, "HeaderTooShort");
        Some(bits)
    }

    /// Lowers transitions, which are tried in order. A sequence of exact values becomes one switch.
    fn transitions(&mut self, state: &State, target: &dyn Fn(Option<usize>) -> BlockId) {
        let default = target(state.default);
        if state.key.is_empty() || state.transitions.is_empty() {
            return self.b.jump(default);
        }
        let mut parts = Vec::new();
        for part in &state.key {
            parts.push(match part {
                KeyPart::Expr { value, .. } => self.exact(value).operand,
                KeyPart::Lookahead(offset, width) => self.lookahead(*offset, *width),
            });
        }
        let mut whole: Option<Operand> = None;
        let mut rest = state.transitions.iter().peekable();
        while let Some(transition) = rest.next() {
            if self.is_over_limit() {
                break;
            }
            let to = target(transition.next);
            match &transition.on {
                TransitionOn::Value(values) if values.iter().all(|(_, mask)| mask.is_none()) => {
                    let joined = |values: &[(Bits, Option<Bits>)]| {
                        values.iter().map(|(v, _)| v.clone()).reduce(|a, b| a.concat(&b)).unwrap_or(Bits::zero(1))
                    };
                    let mut cases = vec![(joined(values), to)];
                    while let Some(next) = rest.peek()
                        && let TransitionOn::Value(values) = &next.on
                        && values.iter().all(|(_, mask)| mask.is_none())
                    {
                        let value = joined(values);
                        if cases.iter().all(|(known, _)| *known != value) {
                            cases.push((value, target(next.next)));
                        }
                        rest.next();
                    }
                    let key = match whole.clone() {
                        Some(key) => key,
                        None => {
                            let mut parts = parts.iter().cloned();
                            let mut key = parts.next().unwrap_or(Operand::new_const(1, 0));
                            for part in parts {
                                key = self.b.concat(key, part).into();
                            }
                            whole = Some(key.clone());
                            key
                        }
                    };
                    let other = self.b.block("");
                    self.b.switch(key, cases, other);
                    self.b.switch_to(other);
                }
                TransitionOn::Value(values) => {
                    let mut matches: Operand = Bits::from_bool(true).into();
                    for (part, (value, mask)) in parts.iter().zip(values) {
                        let ones = Bits::ones(value.width());
                        let mask = mask.as_ref().unwrap_or(&ones);
                        if mask.is_zero() {
                            continue;
                        }
                        let masked: Operand = match *mask == ones {
                            true => part.clone(),
                            false => self.b.bin(BinOp::And, part.clone(), mask.clone()).into(),
                        };
                        let same = self.b.bin(BinOp::Eq, masked, value.clone()).into();
                        matches = self.and(matches, same);
                    }
                    let other = self.b.block("");
                    match matches {
                        Operand::Const(c) if c.is_true() => self.b.jump(to),
                        matches => self.b.branch(matches, to, other),
                    }
                    self.b.switch_to(other);
                }
                TransitionOn::Set(set, mask) => {
                    let mut keys = self.set_keys(*set, &parts);
                    let mut table = self.value_sets[*set].whole;
                    if let Some(mask) = *mask {
                        table = self.value_sets[*set].masked[mask];
                        for (key, mask) in keys.iter_mut().zip(&self.m.value_sets[*set].masks[mask]) {
                            *key = self.b.bin(BinOp::And, key.clone(), mask.clone()).into();
                        }
                    }
                    let [hit, action, entry, data] = [1, 32, 64, 64].map(|w| self.b.temp(w));
                    self.b.emit(Op::Apply { table, keys, selector: Vec::new(), hit, action, entry, data });
                    let other = self.b.block("");
                    self.b.branch(hit, to, other);
                    self.b.switch_to(other);
                }
            }
        }
        self.b.jump(default);
    }

    /// The parts of a key regrouped as those of a value set, which may be divided otherwise.
    fn set_keys(&mut self, set: usize, parts: &[Operand]) -> Vec<Operand> {
        let m = self.m;
        let wanted = &m.value_sets[set].parts;
        let widths = parts.iter().map(|p| p.width(self.b.program()));
        if widths.eq(wanted.iter().map(|(_, w)| *w)) {
            return parts.to_vec();
        }
        let mut all = parts[0].clone();
        for part in &parts[1..] {
            all = self.b.concat(all, part.clone()).into();
        }
        let mut top = all.width(self.b.program());
        let mut keys = Vec::new();
        for (_, width) in wanted {
            keys.push(self.b.slice(all.clone(), top - 1, top - width).into());
            top -= width;
        }
        keys
    }
}

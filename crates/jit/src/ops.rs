//! Dispatch of operations and terminators to their translation, in the sibling files or here; and fates.
//!
//! Tests: all tests of this crate.

use crate::Error;
use crate::flow::LayoutChange;
use crate::placement::Where;
use crate::translate::Translator;
use crate::value::Val;
use abi::{Batch, FateCode, PacketDesc};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self as clif, InstBuilder, Value};
use cranelift_frontend::Switch;
use ir::{Fate, Inst, Op, Operand, ReplicationPoint, SlotId, SlotKind, Terminator};
use std::mem::offset_of;

/// Depth up to which a flag computed with `or` is translated to one branch per operand.
const OR_DEPTH_MAX: u32 = 3;
/// Most nodes that are followed to see whether a block leads to a drop.
const DROP_NODES_MAX: usize = 8;

/// Values, and the block to jump to for each.
type Cases = Vec<(u64, clif::Block)>;

/// A word concatenated of two parts, one of which has the same value in all cases.
struct CommonPart {
    /// The part with the common value, and that value.
    part: Value,
    value: u64,
    /// The other part, and its cases.
    other: Value,
    cases: Cases,
}

// Operations and terminators.
impl Translator<'_, '_> {
    /// Translates an operation. Returns `false` if it was omitted, so that its destinations were not written.
    ///
    /// # Errors
    /// Those of the operation's translation.
    pub fn inst(&mut self, inst: &Inst) -> Result<bool, Error> {
        let op = &inst.op;
        self.locate(Some(op), inst.span);
        // An operation with only unused results and no other effect is omitted. (The facts are updated all the same, so
        // that they agree with the analysis.)
        let mut used = !op.is_removable() || matches!(op, Op::SetValid { .. } | Op::SetInvalid { .. });
        op.for_each_def(self.program, |s| used |= self.flow.needed.contains(s.index()));
        let (node, place) = self.program_point;
        used &= !self.dead[node].moves.contains(place);
        used |= self.acquires_or_releases();
        let (flow, program, facts, position) = (self.flow, self.program, self.facts, self.position);
        let validity = self.validity_changed_by(op);
        let before = validity.filter(|_| flow.layout_may_change).map(|slot| self.read_flag(slot));
        let may_load = !matches!(op, Op::SetInvalid { .. }) && !self.dead[node].fields.contains(place);
        if validity.is_some() && may_load {
            let mut after = self.facts_now.clone();
            flow.step(program, facts, position, op, &mut after);
            self.materialise(&flow.turning_dirty(program, facts, &self.facts_now, &after));
        }
        if used {
            self.op(inst)?;
        }
        let change = flow.step(program, facts, position, op, &mut self.facts_now);
        self.note_layout_change(change, before);
        Ok(used)
    }

    pub fn op(&mut self, inst: &Inst) -> Result<(), Error> {
        match &inst.op {
            Op::Count { .. }
            | Op::CountDirect { .. }
            | Op::RestartTimer { .. }
            | Op::RegisterWrite { .. }
            | Op::Digest { .. }
            | Op::Log { .. }
            | Op::Assert { .. }
            | Op::Charge { .. }
                if self.is_prefetch_pass() => {}
            Op::Mov { dst, src } => {
                let val = self.read(src);
                self.write_slot(*dst, &val);
            }
            Op::Bin { op, dst, a, b } => self.bin(*op, *dst, a, b),
            Op::Un { op, dst, a } => self.un(*op, *dst, a),
            Op::Cast { kind, dst, a } => self.cast(*kind, *dst, a),
            Op::Concat { dst, hi, lo } => self.concat(*dst, hi, lo),
            Op::Slice { dst, a, hi, lo } => self.slice(*dst, a, *hi, *lo),
            Op::SetSlice { dst, hi, lo, a } => self.set_slice(*dst, *hi, *lo, a),
            Op::Select { dst, cond, then, other } => self.select(*dst, cond, then, other),
            Op::SetValid { header } => {
                let one = self.iconst(1);
                self.write_slot(self.facts.headers[header.index()].valid, &Val::Word(one));
            }
            Op::SetInvalid { header } => {
                let zeros = self.zeros();
                self.set_header_pointer(*header, zeros);
                let mut slots = Vec::new();
                ir::flow::for_each_header_slot(self.program, *header, |s| slots.push(s));
                // Fields become clean: those that are loaded where they are read are not stored.
                slots.retain(|&s| self.placement.slot(s) != Where::Memory || self.facts.lazy_field(s).is_none());
                for slot in slots {
                    let zero = self.zero(self.program.width(slot));
                    self.write_slot(slot, &zero);
                }
            }
            Op::HasBits { dst, bits } => self.has_bits(*dst, bits),
            Op::Extract { header, varbit_bits } => self.extract(*header, varbit_bits.as_ref()),
            Op::Advance { bits } => self.advance(bits),
            Op::Lookahead { dst, offset } => self.lookahead(*dst, *offset),
            Op::Consumed { dst } => self.consumed(*dst),
            Op::Emit { header } => self.emit(*header),
            Op::Truncate { bytes } => self.truncate(bytes),
            Op::Apply { table, keys, selector, hit, action, entry, data } => {
                self.apply(*table, keys, selector, [*hit, *action, *entry, *data])?;
            }
            Op::ActionParam { dst, table, action, param, data } => {
                self.action_param(*dst, *table, *action, *param, *data)?;
            }
            Op::AddEntry { table, keys, action, args, expire, replace, dst } => {
                self.add_entry(*table, keys, (*action, args), expire, *replace, *dst)?;
            }
            Op::RestartTimer { table, hit, entry, expire } => {
                self.restart_timer(*table, hit, *entry, expire.as_ref())?;
            }
            Op::Count { counter, index, bytes } => self.count(*counter, index, bytes.as_ref())?,
            Op::CountDirect { counter, hit, entry, bytes } => {
                self.count_direct(*counter, hit, *entry, bytes.as_ref())?;
            }
            Op::Meter { meter, dst, index, before, bytes } => {
                self.meter(*meter, *dst, index, (before.as_ref(), bytes.as_ref()));
            }
            Op::MeterDirect { meter, dst, hit, entry, before, bytes } => {
                self.meter_direct(*meter, *dst, (hit, *entry), (before.as_ref(), bytes.as_ref()))?;
            }
            Op::RegisterRead { register, dst, index, peek } => self.register_read(*register, *dst, index, *peek)?,
            Op::RegisterUpdate { register, dst, index, update, src } => {
                self.register_update(*register, *dst, index, *update, src)?;
            }
            Op::RegisterWrite { register, index, src } => self.register_write(*register, index, src)?,
            Op::Hash { algorithm, dst, base, max, data, varbits, payload } => {
                self.hash(*algorithm, *dst, base, max.as_ref(), data, varbits, *payload);
            }
            Op::Random { dst, low, high } => self.random(*dst, low, high)?,
            Op::Digest { digest, data } => self.digest(*digest, data),
            Op::Log { format, args } => self.log(format, args, inst.span),
            Op::Assert { cond, text } => self.assert(cond, text, inst.span),
            Op::Unresolved { callee, args, results } => self.unresolved(callee, args, results),
            Op::Charge { steps } => self.charge(*steps),
            Op::Mark(_) => {}
        }
        Ok(())
    }

    /// The validity slot that an operation assigns other than by extracting.
    pub fn validity_changed_by(&self, op: &Op) -> Option<SlotId> {
        match op {
            Op::SetValid { header } | Op::SetInvalid { header } => Some(self.facts.headers[header.index()].valid),
            _ => op.dst().filter(|s| matches!(self.program.slots[s.index()].kind, SlotKind::Valid(_))),
        }
    }

    pub fn note_layout_change(&mut self, change: LayoutChange, before: Option<Value>) {
        let moved = match (change, before) {
            (LayoutChange::Always, _) => self.iconst(1),
            (LayoutChange::Validated(_), Some(before)) => match self.as_constant(before) {
                Some(before) => self.iconst(u64::from(before == 0)),
                None => self.b.ins().bxor_imm_u(before, 1),
            },
            (LayoutChange::Invalidated(_), Some(before)) => before,
            (LayoutChange::Assigned(slot), Some(before)) => {
                let after = self.read_flag(slot);
                self.b.ins().bxor(before, after)
            }
            _ => return,
        };
        // With a constant flag the deparser needs code for one of the two cases only.
        let flag = self.b.use_var(self.vars.layout_changed);
        let flag = match (self.as_constant(flag), self.as_constant(moved)) {
            (_, Some(0)) => return,
            (Some(0), _) => moved,
            (_, Some(_)) => self.iconst(1),
            _ => self.b.ins().bor(flag, moved),
        };
        self.b.def_var(self.vars.layout_changed, flag);
    }

    pub fn terminator(
        &mut self,
        term: &Terminator,
        block: &dyn Fn(ir::BlockId) -> clif::Block,
        next: Option<(usize, clif::Block)>,
    ) -> Result<(), Error> {
        match term {
            Terminator::Jump(to) => {
                self.b.ins().jump(block(*to), &[]);
            }
            Terminator::Branch { cond, then, other } => {
                let cond = self.read_word(cond);
                match self.as_constant(cond).or_else(|| self.same_in_rows(cond).map(|c| c as i64)) {
                    Some(cond) => _ = self.b.ins().jump(block(if cond == 0 { *other } else { *then }), &[]),
                    None => {
                        let is_cold = self.leads_to_drop(*then) || self.leads_to_drop(*other);
                        self.branch(cond, block(*then), block(*other), if is_cold { OR_DEPTH_MAX } else { 0 });
                    }
                }
            }
            Terminator::Switch { on, cases, default } => {
                let cases: Vec<_> = cases.iter().map(|(v, to)| (v, block(*to))).collect();
                self.switch(on, &cases, block(*default));
            }
            Terminator::Next => {
                let (node, next) = next.expect("`Next` has a successor");
                self.leave_stage();
                self.materialise_for(node);
                self.enter_stage(self.position + 1);
                self.b.ins().jump(next, &[]);
            }
            Terminator::Finish(fate) => match fate {
                Fate::Drop(reason) => self.finish(FateCode::Drop, *reason),
                Fate::Send(port) => {
                    let port = self.read_word(port);
                    self.leave_stage();
                    self.store_desc32(port, offset_of!(PacketDesc, egress_port));
                    self.finish(FateCode::Send, 0);
                }
                Fate::Multicast(group) => {
                    let group = self.read_word(group);
                    self.leave_stage();
                    self.store_desc32(group, offset_of!(PacketDesc, egress_port));
                    self.finish(FateCode::Multicast, 0);
                }
                Fate::Replicate(point) => {
                    self.leave_stage();
                    self.spill(*point);
                    self.finish(
                        FateCode::Replicate,
                        match point {
                            ReplicationPoint::IngressEnd => 0,
                            ReplicationPoint::EgressEnd => 1,
                            ReplicationPoint::DeparseEnd => 2,
                            ReplicationPoint::FrameEnd => 3,
                        },
                    );
                }
                Fate::Again { why, list } => {
                    self.leave_stage();
                    self.spill_for_reingress(*why, *list);
                    self.finish(FateCode::Again, 0);
                }
            },
        }
        Ok(())
    }

    /// Jumps to `then` if a flag is set, else to `other`. A flag that is an `or` is translated to one branch per
    /// operand, down to `depth`: branches that are hardly ever taken cost less than computing the `or`.
    fn branch(&mut self, flag: Value, then: clif::Block, other: clif::Block, depth: u32) {
        if depth > 0
            && let Some([a, b]) = self.either_of(flag)
        {
            let next = self.b.create_block();
            self.branch(a, then, next, depth - 1);
            self.b.seal_block(next);
            self.b.switch_to_block(next);
            return self.branch(b, then, other, depth - 1);
        }
        self.b.ins().brif(flag, then, &[], other, &[]);
    }

    /// Whether all packets that reach a block of the current node's stage are dropped soon after.
    fn leads_to_drop(&self, to: ir::BlockId) -> bool {
        let graph = &self.flow.graph;
        let mut node = graph.target(self.node, to);
        for _ in 0..DROP_NODES_MAX {
            let end = &graph.block(self.program, node).term;
            match (end, &graph.nodes[node].succs[..]) {
                (Terminator::Finish(Fate::Drop(_)), _) => return true,
                (_, [only]) if *only > node => node = *only,
                _ => return false,
            }
        }
        false
    }

    /// Adds the packet's steps in loops to the batch's sum.
    fn add_spent(&mut self) {
        let at = offset_of!(Batch, spent) as i32;
        let (spent, spared) = (self.b.use_var(self.vars.spent), self.iconst(ir::cost::FREE_STEPS));
        let counted = self.b.ins().umax(spent, spared);
        let counted = self.b.ins().isub(counted, spared);
        let before = self.b.ins().uload32(self.flags.desc, self.batch, at);
        let sum = self.b.ins().iadd(before, counted);
        let sum = self.b.ins().ireduce(I32, sum);
        self.b.ins().store(self.flags.desc, sum, self.batch, at);
    }

    /// Writes the fate and goes on to the next packet.
    pub fn finish(&mut self, fate: FateCode, arg: u32) {
        self.release_at_end();
        if self.has_charges && !self.is_prefetch_pass() {
            self.add_spent();
        }
        let cursor = self.cursor_value();
        self.store_desc32(cursor, offset_of!(PacketDesc, consumed));
        // The two fields are adjacent.
        const { assert!(offset_of!(PacketDesc, fate_arg) == offset_of!(PacketDesc, fate) + 4) };
        let both = [(fate as u32).to_ne_bytes(), arg.to_ne_bytes()].concat();
        let both = self.iconst(u64::from_ne_bytes(both.try_into().expect("two words of four bytes")));
        self.b.ins().store(self.flags.desc, both, self.packet, offset_of!(PacketDesc, fate) as i32);
        self.b.ins().jump(self.next_packet, &[]);
    }

    pub fn switch(&mut self, on: &Operand, cases: &[(&base::Bits, clif::Block)], default: clif::Block) {
        let val = self.read(on);
        let few = cases.len() <= crate::COMPARED_CASES_MAX;
        let scrutinee = match &val {
            Val::Word(v) if !few && self.width(on) <= 32 => Some(self.b.ins().ireduce(I32, *v)),
            Val::Word(v) | Val::Pair(v) if !few => Some(*v),
            _ => None,
        };
        if let Some(scrutinee) = scrutinee {
            let mut switch = Switch::new();
            for (value, to) in cases {
                switch.set_entry(value.to_u128().expect("at most 128 bits"), *to);
            }
            switch.emit(&mut self.b, scrutinee, default);
            return;
        }
        if let Val::Word(word) = val {
            let cases: Vec<_> = cases.iter().map(|(value, to)| (crate::value::const_words(value)[0], *to)).collect();
            return self.choose(word, &cases, default);
        }
        for (value, to) in cases {
            let same = match (&val, self.constant(value)) {
                (Val::Word(a), Val::Word(b)) | (Val::Pair(a), Val::Pair(b)) => self.icmp(IntCC::Equal, *a, b),
                (a, b) => {
                    let (a, b) = (self.words_of_val(a), self.words_of_val(&b));
                    let mut difference = self.iconst(0);
                    for (a, b) in a.into_iter().zip(b) {
                        let d = self.b.ins().bxor(a, b);
                        difference = self.b.ins().bor(difference, d);
                    }
                    self.icmp_imm(IntCC::Equal, difference, 0)
                }
            };
            let miss = self.b.create_block();
            self.b.ins().brif(same, *to, &[], miss, &[]);
            self.b.seal_block(miss);
            self.b.switch_to_block(miss);
        }
        self.b.ins().jump(default, &[]);
    }

    /// Jumps to the block of the case that equals a word, or to `default`. If the word is concatenated of two parts and
    /// all cases agree in one of them, that part is compared once, first, and then the other; the word itself is not
    /// computed.
    pub fn choose(&mut self, word: Value, cases: &[(u64, clif::Block)], default: clif::Block) {
        if let Some(word) = self.as_constant(word) {
            let to = cases.iter().find(|(value, _)| *value == word as u64).map_or(default, |(_, to)| *to);
            self.b.ins().jump(to, &[]);
            return;
        }
        if let Some(common_part) = self.common_part(word, cases) {
            let next = self.b.create_block();
            let other = match self.compare_together(&common_part, next, default) {
                Some(together) => together,
                None => {
                    self.choose(common_part.part, &[(common_part.value, next)], default);
                    Some((common_part.other, common_part.cases))
                }
            };
            self.b.seal_block(next);
            self.b.switch_to_block(next);
            return match other {
                Some((other, cases)) => self.choose(other, &cases, default),
                None => _ = self.b.ins().jump(cases[0].1, &[]),
            };
        }
        if let [(_, to), _, ..] = *cases
            && cases.iter().all(|(value, other)| *other == to && *value < u64::from(u64::BITS))
        {
            // All cases have one target: which value it is varies between packets and would be mispredicted; whether it
            // is one of them is predictable. So their set is tested as a bit mask.
            let set = cases.iter().fold(0, |set, (value, _)| set | 1 << value);
            let may_be = self.b.create_block();
            let is_low = self.icmp_imm(IntCC::UnsignedLessThan, word, u64::from(u64::BITS));
            self.b.ins().brif(is_low, may_be, &[], default, &[]);
            self.b.seal_block(may_be);
            self.b.switch_to_block(may_be);
            let set = self.iconst(set);
            let bit = self.b.ins().ushr(set, word);
            let is_one = self.b.ins().band_imm_u(bit, 1);
            self.b.ins().brif(is_one, to, &[], default, &[]);
            return;
        }
        for (value, to) in cases {
            let same = self.icmp_imm(IntCC::Equal, word, *value);
            let miss = self.b.create_block();
            self.b.ins().brif(same, *to, &[], miss, &[]);
            self.b.seal_block(miss);
            self.b.switch_to_block(miss);
        }
        self.b.ins().jump(default, &[]);
    }

    /// The part in which all cases agree, if the word is concatenated of two parts and there is one.
    fn common_part(&self, word: Value, cases: &[(u64, clif::Block)]) -> Option<CommonPart> {
        let ((high, up, low), [first, ..]) = (self.parts_of(word)?, cases) else { return None };
        let ones = (1 << up) - 1;
        let agree = |part: &dyn Fn(u64) -> u64| cases.iter().all(|(value, _)| part(*value) == part(first.0));
        let rest = |part: &dyn Fn(u64) -> u64| cases.iter().map(|(v, to)| (part(*v), *to)).collect();
        let (high_of, low_of) = (|value: u64| value >> up, |value: u64| value & ones);
        if agree(&high_of) {
            Some(CommonPart { part: high, value: high_of(first.0), other: low, cases: rest(&low_of) })
        } else if agree(&low_of) {
            Some(CommonPart { part: low, value: low_of(first.0), other: high, cases: rest(&high_of) })
        } else {
            None
        }
    }

    /// Compares parts that are close together in the frame with one load, then jumps to `next` or `default`. Returns
    /// what remains to be compared, if anything; `None` if no two parts can be compared together.
    fn compare_together(
        &mut self,
        first: &CommonPart,
        next: clif::Block,
        default: clif::Block,
    ) -> Option<Option<(Value, Cases)>> {
        let mut test = self.frame_test(first.part, first.value)?;
        let mut left = Some((first.other, first.cases.clone()));
        let mut count = 1;
        while let Some((other, cases)) = &left {
            let (part, value, behind) = match (self.common_part(*other, cases), &cases[..]) {
                (Some(common_part), _) => {
                    (common_part.part, common_part.value, Some((common_part.other, common_part.cases)))
                }
                (None, [(value, _)]) => (*other, *value, None),
                _ => break,
            };
            let Some(both) = self.frame_test(part, value).and_then(|other| test.with(&other)) else { break };
            (test, left) = (both, behind);
            count += 1;
        }
        if count == 1 {
            return None;
        }
        let (packet, offset) = (self.flags.packet, test.at.offset as i32);
        let loaded = match test.size {
            1 => self.b.ins().uload8(I64, packet, test.at.base, offset),
            2 => self.b.ins().uload16(I64, packet, test.at.base, offset),
            4 => self.b.ins().uload32(packet, test.at.base, offset),
            _ => self.b.ins().load(I64, packet, test.at.base, offset),
        };
        let asked = self.b.ins().band_imm_u(loaded, test.mask as i64);
        let value = self.iconst(test.value);
        let same = self.b.ins().icmp(IntCC::Equal, asked, value);
        self.b.ins().brif(same, next, &[], default, &[]);
        Some(left)
    }
}

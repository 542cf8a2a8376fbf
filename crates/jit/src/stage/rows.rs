//! Rows: the state that a packet keeps while it waits, and how it is written and read.

use super::live;
use crate::Error;
use crate::paths::Known;
use crate::probe::is_inlined;
use crate::stage::header_places::HeaderPlace;
use crate::translate::Translator;
use crate::value::{Class, Place};
use abi::PacketDesc;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::immediates::Offset32;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, Inst, InstBuilder, InstructionData, StackSlot, Value};
use cranelift_frontend::Variable;
use ir::{BitSet, SlotId};
use std::mem::offset_of;

/// A value that a row can hold besides the descriptor's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// A variable.
    Var(Variable),
    /// What a lookup needs to be finished; once it is finished, its result.
    Lookup(usize),
    /// The frame's length at entry.
    EntryLen,
    /// A wide slot.
    Wide(StackSlot),
}

/// A member of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub what: Kept,
    pub offset: u32,
    /// 1, 2, 4 or a multiple of 8.
    pub bytes: u32,
}

/// A load at a phase's start whose value may turn out to be unused.
pub(super) struct Candidate {
    what: Kept,
    bytes: u32,
    /// The loads, each of at most eight bytes, in order of offset.
    loads: Vec<(Inst, Value)>,
}

// Rows.
impl Translator<'_, '_> {
    /// Restores all variables to what they were when the packet began to wait. The loads have no offsets yet, and some
    /// may turn out to be unused; see [`Self::lay_out_row`].
    ///
    /// # Errors
    /// If a table has no binding.
    pub(super) fn reload(&mut self, p: usize, row: Value) -> Result<Vec<Candidate>, Error> {
        let data = self.b.ins().load(I64, self.flags.desc, self.packet, offset_of!(PacketDesc, data) as i32);
        self.b.def_var(self.vars.data, data);
        let mut candidates = Vec::new();
        let vars = &self.vars;
        let mut wanted: Vec<(Variable, u32)> =
            [vars.cursor, vars.truncate, vars.emitted, vars.spent].map(|v| (v, 8)).to_vec();
        let header_places = &self.header_places[p];
        match header_places.layout_changed {
            None => wanted.push((vars.layout_changed, 1)),
            Some(changed) => {
                let flag = self.b.ins().iconst(I64, i64::from(changed));
                self.b.def_var(vars.layout_changed, flag);
            }
        }
        let mut made: Vec<(Variable, Value)> = Vec::new();
        for header in 0..self.header_pointers.len() {
            // Staged code has all pointers in variables; see `placement`.
            let Some(Place::Var(var)) = self.header_pointers[header] else { continue };
            match self.header_places[p].headers[header] {
                HeaderPlace::Zeros => made.push((var, self.zeros())),
                HeaderPlace::At(offset) => made.push((var, self.add_imm(data, offset.into()))),
                HeaderPlace::Varying => wanted.push((var, 8)),
            }
        }
        made.into_iter().for_each(|(var, value)| self.b.def_var(var, value));
        let assigned = self.assigned_before(p);
        let known = self.known_at_cut(p);
        let mut unassigned = BitSet::new(self.program.slots.len());
        for s in self.flow.needed.iter() {
            let slot = SlotId::from_index(s);
            let width = self.program.width(slot);
            if matches!(Class::of(width), Class::Words(_)) {
                continue;
            }
            if let Some(value) = known.get(&slot) {
                let value = self.constant(value);
                self.write_slot(slot, &value);
                continue;
            }
            if let Place::Var(var) = self.place(slot) {
                if !assigned.contains(s) {
                    unassigned.insert(s);
                    continue;
                }
                wanted.push((var, width.div_ceil(8).next_power_of_two().max(1)));
            }
        }
        for (var, bytes) in wanted {
            let (value, loads) = self.load_member(row, bytes);
            self.b.def_var(var, value);
            candidates.push(Candidate { what: Kept::Var(var), bytes, loads });
        }
        let plan = self.plan;
        let phase = &plan.phases[p];
        for lookup in phase.begun() {
            let binding = self.binding(plan.lookups[lookup].table)?.clone();
            if !self.carried[lookup].is_empty() {
                let mut all = Vec::new();
                for var in self.carried[lookup].clone() {
                    let (value, loads) = self.load_member(row, 8);
                    self.b.def_var(var, value);
                    all.extend(loads);
                }
                candidates.push(Candidate { what: Kept::Lookup(lookup), bytes: 8 * all.len() as u32, loads: all });
                continue;
            }
            let probed = is_inlined(binding.engine, self.options) && !phase.passed.contains(&lookup);
            let words = if probed { self.carried_words(plan.lookups[lookup].table, &binding) } else { 1 };
            let (value, loads) = self.load_member(row, 8);
            self.b.def_var(self.results[lookup], value);
            candidates.push(Candidate { what: Kept::Lookup(lookup), bytes: 8 * words as u32, loads });
        }
        let (value, loads) = self.load_member(row, 4);
        self.entry_len = value;
        let cut = phase.cut.expect("only the first phase has none");
        let position = self.flow.graph.nodes[plan.lookups[cut].program_point.0].position;
        let len = match self.flow.is_before_deparsers(position) {
            true => value,
            false => self.load_desc32(offset_of!(PacketDesc, len)),
        };
        self.b.def_var(self.vars.len, len);
        candidates.push(Candidate { what: Kept::EntryLen, bytes: 4, loads });
        // Slots that still have their initial value need no place in the row.
        self.set_slots(&|s| unassigned.contains(s.index()));
        Ok(candidates)
    }

    /// Slots whose value is known where packets begin to wait for phase `p`.
    fn known_at_cut(&self, p: usize) -> Known {
        let cut = self.plan.phases[p].cut.expect("only the first phase has none");
        let (node, inst) = self.plan.lookups[cut].program_point;
        let mut known = self.flow.graph.nodes[node].known.clone();
        for inst in &self.flow.graph.block(self.program, node).insts[..inst] {
            inst.op.for_each_def(self.program, |s| _ = known.remove(&s));
        }
        known
    }

    /// The slots that any operation may have assigned before packets wait for phase `p`.
    fn assigned_before(&self, p: usize) -> BitSet {
        let cut = self.plan.phases[p].cut.expect("only the first phase has none");
        let program_point = self.plan.lookups[cut].program_point;
        let nodes = &self.flow.graph.nodes;
        let mut preds: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for (n, node) in nodes.iter().enumerate() {
            node.succs.iter().for_each(|&s| preds[s].push(n));
        }
        let mut assigned = BitSet::new(self.program.slots.len());
        let mut add = |n: usize, count: usize| {
            let block = &self.program.stages[nodes[n].stage.index()].blocks[nodes[n].block.index()];
            let ops = block.insts.iter().take(count).map(|i| &i.op);
            ops.for_each(|op| op.for_each_def(self.program, |s| assigned.insert(s.index())));
        };
        // A cut is never inside a loop.
        add(program_point.0, program_point.1);
        let mut seen = BitSet::new(nodes.len());
        let mut stack = preds[program_point.0].clone();
        while let Some(n) = stack.pop() {
            if !seen.contains(n) {
                seen.insert(n);
                add(n, usize::MAX);
                stack.extend(&preds[n]);
            }
        }
        assigned
    }

    fn load_member(&mut self, row: Value, bytes: u32) -> (Value, Vec<(Inst, Value)>) {
        // Loads with the flags of rows may be moved to their uses.
        let flags = self.flags.row;
        let value = match bytes {
            1 => self.b.ins().uload8(I64, flags, row, 0),
            2 => self.b.ins().uload16(I64, flags, row, 0),
            4 => self.b.ins().uload32(flags, row, 0),
            8 => self.b.ins().load(I64, flags, row, 0),
            _ => {
                let (low, high) = (self.b.ins().load(I64, flags, row, 0), self.b.ins().load(I64, flags, row, 0));
                let loads = [low, high].map(|v| (self.defining(v), v)).to_vec();
                return (self.b.ins().iconcat(low, high), loads);
            }
        };
        (value, vec![(self.defining(value), value)])
    }

    fn defining(&self, value: Value) -> Inst {
        self.b.func.dfg.value_def(value).unwrap_inst()
    }

    /// Determines which members a phase's row must hold, assigns their offsets, and corrects the loads that
    /// [`Self::reload`] made.
    pub(super) fn lay_out_row(
        &mut self,
        p: usize,
        candidates: &[Candidate],
        body: Block,
        row: Value,
        blocks: &[Block],
    ) {
        let used = live::used_values(self.b.func, blocks);
        let mut members: Vec<(Member, &[(Inst, Value)])> = candidates
            .iter()
            .filter(|c| c.loads.iter().any(|&(_, v)| used.contains(v)))
            .map(|c| (Member { what: c.what, offset: 0, bytes: c.bytes }, &c.loads[..]))
            .collect();
        for place in self.places.iter().flatten() {
            if let Place::Stack(slot) = *place
                && live::uses_stack_slot(self.b.func, blocks, slot)
            {
                let bytes = self.b.func.sized_stack_slots[slot].size;
                members.push((Member { what: Kept::Wide(slot), offset: 0, bytes }, &[]));
            }
        }
        // In order of descending size no padding is needed.
        members.sort_by_key(|(m, _)| std::cmp::Reverse(m.bytes));
        let mut at = 8;
        for (member, loads) in &mut members {
            member.offset = at;
            for (i, &(inst, _)) in loads.iter().enumerate() {
                if let InstructionData::Load { offset, .. } = &mut self.b.func.dfg.insts[inst] {
                    *offset = Offset32::new((at + 8 * i as u32) as i32);
                }
            }
            at += member.bytes;
        }
        let stack = self.flags.stack;
        let mut cursor = FuncCursor::new(self.b.func).at_first_insertion_point(body);
        for (member, _) in &members {
            let Kept::Wide(slot) = member.what else { continue };
            let to = cursor.ins().stack_addr(I64, slot, 0);
            for i in (0..member.bytes).step_by(8) {
                let word = cursor.ins().load(I64, stack, row, (member.offset + i) as i32);
                cursor.ins().store(stack, word, to, i as i32);
            }
        }
        let row_bytes = at.next_multiple_of(8);
        let chunk = self.chunk();
        let mut waiting = self.waiting[p].take().expect("declared");
        waiting.row_bytes = row_bytes;
        waiting.members = members.into_iter().map(|(m, _)| m).collect();
        self.grow(waiting.rows, row_bytes * chunk);
        self.waiting[p] = Some(waiting);
    }

    /// Makes the packet wait for a lookup: stores its row and goes on to the next packet.
    ///
    /// # Errors
    /// Those of starting a lookup.
    pub fn park(&mut self, lookup: usize) -> Result<(), Error> {
        self.release_at_end();
        let plan = self.plan;
        let p = plan.phase_of(lookup).expect("what stops a phase is a cut");
        let waiting = self.waiting[p].take().expect("declared");
        let stack = self.flags.stack;
        let next = self.stack_addr(waiting.next);
        let row = self.b.ins().load(I64, stack, next, 0);
        self.b.ins().store(stack, self.packet, row, 0);
        // Variables first, so that the values they are computed from need not stay live across the hashes.
        for member in waiting.members.iter().filter(|m| !matches!(m.what, Kept::Lookup(_))) {
            let value = match member.what {
                Kept::Var(var) => self.b.use_var(var),
                // The descriptor still holds it, so no register has to.
                Kept::EntryLen if self.flow.is_before_deparsers(self.position) => {
                    self.load_desc32(offset_of!(PacketDesc, len))
                }
                Kept::EntryLen => self.entry_len,
                Kept::Lookup(_) => unreachable!("they come behind"),
                Kept::Wide(slot) => {
                    let from = self.stack_addr(slot);
                    for i in (0..member.bytes).step_by(8) {
                        let word = self.b.ins().load(I64, stack, from, i as i32);
                        self.b.ins().store(stack, word, row, (member.offset + i) as i32);
                    }
                    continue;
                }
            };
            self.store_member(value, row, member);
        }
        let mut begun: Vec<(usize, Vec<Value>)> = Vec::new();
        for l in plan.phases[p].cut.iter().chain(&plan.phases[p].fresh).copied() {
            if waiting.members.iter().any(|m| m.what == Kept::Lookup(l)) {
                let called = waiting.called.iter().find(|c| c.lookup == l);
                let words = self.begin(l, called, l == lookup)?;
                begun.push((l, words));
            }
        }
        for member in &waiting.members {
            if let Kept::Lookup(l) = member.what {
                let words = match begun.iter().find(|(of, _)| *of == l) {
                    Some((_, words)) => words.clone(),
                    None if self.carried[l].is_empty() => vec![self.b.use_var(self.results[l])],
                    None => self.carried[l].clone().into_iter().map(|var| self.b.use_var(var)).collect(),
                };
                self.store_words(stack, &words, row, member.offset);
            }
        }
        let behind = self.add_imm(row, waiting.row_bytes.into());
        self.b.ins().store(stack, behind, next, 0);
        self.b.ins().jump(self.next_packet, &[]);
        self.waiting[p] = Some(waiting);
        Ok(())
    }

    fn store_member(&mut self, value: Value, row: Value, member: &Member) {
        let (stack, offset) = (self.flags.stack, member.offset as i32);
        match member.bytes {
            1 => self.b.ins().istore8(stack, value, row, offset),
            2 => self.b.ins().istore16(stack, value, row, offset),
            4 => self.b.ins().istore32(stack, value, row, offset),
            8 => self.b.ins().store(stack, value, row, offset),
            _ => {
                let (low, high) = self.b.ins().isplit(value);
                self.b.ins().store(stack, low, row, offset);
                self.b.ins().store(stack, high, row, offset + 8)
            }
        };
    }
}

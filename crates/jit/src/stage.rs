//! Staged execution: many packets up to a lookup, then the lookup for all of them.
//!
//! A table that does not fit in the caches answers after hundreds of cycles. Run to completion waits for it packet by
//! packet. Staged code ([`plan`] says where it is cut) hashes the keys of a chunk of packets and asks for their cache lines;
//! when it comes back to the first packet, memory has answered.
//!
//! ```text
//! for each chunk of the batch
//!     phase 0:  for each packet         run until a fate or a cut
//!     phase 1:  for each row of cut 1   finish the lookup, and ask for the entry's cache line
//!               for each row of cut 1   go on behind the lookup, until a fate or a later cut
//!     ...
//! ```
//!
//! **Rows.** A packet that comes to a cut appends a row to the cut's array in the function's frame: its descriptor, what its
//! lookups need ([`crate::probe::Begun::carried`]) and every variable that is live behind the cut. Appending is a few stores
//! and no branch. Every phase is translated with the variables set anew from its row at its start; which of them are live is
//! seen in the code that comes out ([`live`]). Therefore phases are translated last to first: who parks packets knows what
//! to keep.
//!
//! **Calls.** For engines that are not probed inline the key goes to an array, and the phase begins with one call of
//! `TableBinding::lookup_batch` for all of them; then the entries are asked for. What such a lookup carries is the address of its answer. Where the lookup
//! is begun ahead of its apply, packets in which a header of the key is not valid are left out (most programs do not apply
//! the table to them); their address is null, and should the apply come nevertheless it looks up on the spot.
//!
//! What is known about a packet at a cut ([`crate::flow::Facts`]) does not depend on the phase that parks it. A frame's
//! place and length are always the same in the descriptor as in the variables, so they are not kept.
//!
//! Tests: `tests/staged.rs`; all other tests of this crate with `JIT_STAGED=1`; `difftest`.

mod live;
pub(crate) mod plan;

use crate::Error;
use crate::probe::{carried_words, is_inlined};
use crate::translate::Translator;
use crate::value::{Class, Place};
use abi::{Batch, PacketDesc};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::Offset32;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, Inst, InstBuilder, InstructionData, StackSlot, Value};
use cranelift_frontend::Variable;
use ir::{HeaderId, Op, Operand, SlotId, SlotKind};
use std::mem::offset_of;

/// What a row can hold besides the descriptor's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// A variable.
    Var(Variable),
    /// What a lookup needs to be finished, and when it has been, its answer.
    Lookup(usize),
    /// The frame's length when it entered.
    EntryLen,
    /// A wide slot.
    Wide(StackSlot),
}

/// A member of a row.
#[derive(Clone, Copy, Debug)]
struct Member {
    what: Kept,
    offset: u32,
    /// 1, 2, 4 or a multiple of 8.
    bytes: u32,
}

/// A load at a phase's start that may turn out to be of use.
struct Candidate {
    what: Kept,
    bytes: u32,
    /// The loads, each of at most eight bytes, one after the other.
    loads: Vec<(Inst, Value)>,
}

/// The lookups of a cut that are answered by one call.
struct Called {
    lookup: usize,
    keys: StackSlot,
    answers: StackSlot,
    /// Keys so far, in eight bytes.
    count: StackSlot,
}

/// Where the packets of a phase wait.
pub(crate) struct Waiting {
    rows: StackSlot,
    /// Address of the next row, in eight bytes.
    next: StackSlot,
    row_bytes: u32,
    members: Vec<Member>,
    called: Vec<Called>,
}

// The loops.
impl<'a> Translator<'a, '_> {
    /// The loop over chunks of the packets from `first` to `end`.
    pub fn staged_loop(&mut self, first: Value, end: Value) -> Result<(), Error> {
        self.declare_all()?;
        let phases = self.plan.phases.len();
        let (chunks, chunk, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let from = self.b.append_block_param(chunks, I64);
        self.b.ins().jump(chunks, &[from_arg(first)]);
        self.b.switch_to_block(chunks);
        let over = self.icmp(IntCC::Equal, from, end);
        self.b.ins().brif(over, exit, &[], chunk, &[]);
        self.b.seal_block(chunk);
        self.b.seal_block(exit);

        let begins: Vec<Block> = (0..=phases).map(|_| self.b.create_block()).collect();
        for p in (1..phases).rev() {
            self.later_phase(p, begins[p], begins[p + 1])?;
        }

        self.locate_outside();
        self.b.switch_to_block(chunk);
        let left = self.b.ins().isub(end, from);
        let most = self.iconst(u64::from(self.chunk()) * size_of::<PacketDesc>() as u64);
        let size = self.b.ins().umin(left, most);
        let to = self.b.ins().iadd(from, size);
        self.empty_rows();
        self.b.ins().jump(begins[0], &[]);
        self.b.switch_to_block(begins[0]);
        let (head, body) = (self.b.create_block(), self.b.create_block());
        self.packet = self.b.append_block_param(head, I64);
        self.next_packet = self.b.create_block();
        self.b.ins().jump(head, &[from_arg(from)]);
        self.b.switch_to_block(head);
        let over = self.icmp(IntCC::Equal, self.packet, to);
        self.b.ins().brif(over, begins[1], &[], body, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        self.start_packet();
        self.run_phase(0)?;
        self.locate_outside();
        self.b.seal_block(self.next_packet);
        self.b.switch_to_block(self.next_packet);
        let next = self.add_imm(self.packet, size_of::<PacketDesc>() as u64);
        self.b.ins().jump(head, &[from_arg(next)]);

        self.b.switch_to_block(begins[phases]);
        self.b.ins().jump(chunks, &[from_arg(to)]);
        self.b.switch_to_block(exit);
        self.b.ins().return_(&[]);
        self.b.seal_all_blocks();
        debug_assert!(
            begins.iter().all(|&b| self.b.func.dfg.block_params(b).is_empty()),
            "a phase reads a variable that its row does not set"
        );
        Ok(())
    }

    /// Packets of the batch that are worked on together.
    fn chunk(&self) -> u32 {
        self.options.chunk.clamp(1, abi::BATCH_MAX as u32)
    }

    /// Makes variables and memory of all phases, so that each can be translated before those that come to it.
    fn declare_all(&mut self) -> Result<(), Error> {
        let plan = self.plan;
        for lookup in &plan.lookups {
            self.binding(lookup.table)?;
            let var = self.b.declare_var(I64);
            self.answers.push(var);
        }
        let chunk = self.chunk();
        for phase in &plan.phases {
            let mut called = Vec::new();
            for lookup in phase.cut.iter().chain(&phase.fresh).copied() {
                let binding = self.binding(plan.lookups[lookup].table)?;
                let (inlined, bytes) = (is_inlined(binding.engine, self.options), binding.key.bytes);
                if !inlined {
                    let (keys, answers) = (self.stack_slot(chunk * bytes), self.stack_slot(chunk * 8));
                    called.push(Called { lookup, keys, answers, count: self.stack_slot(8) });
                }
            }
            let (rows, next) = (self.stack_slot(8), self.stack_slot(8));
            self.waiting.push(Some(Waiting { rows, next, row_bytes: 8, members: Vec::new(), called }));
        }
        Ok(())
    }

    /// Nobody waits.
    fn empty_rows(&mut self) {
        let stack = self.flags.stack;
        for p in 1..self.plan.phases.len() {
            let waiting = self.waiting[p].take().expect("declared");
            let (rows, next) = (self.stack_addr(waiting.rows), self.stack_addr(waiting.next));
            self.b.ins().store(stack, rows, next, 0);
            for called in &waiting.called {
                let (zero, count) = (self.iconst(0), self.stack_addr(called.count));
                self.b.ins().store(stack, zero, count, 0);
            }
            self.waiting[p] = Some(waiting);
        }
    }

    /// Phase `p`, from block `begin` on; control leaves to `after`.
    fn later_phase(&mut self, p: usize, begin: Block, after: Block) -> Result<(), Error> {
        let first_block = self.b.func.dfg.num_blocks();
        let waiting = self.waiting[p].take().expect("declared");
        let stack = self.flags.stack;
        let (calls, head, body) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let row = self.b.append_block_param(head, I64);

        self.locate_lookup(p);
        self.b.switch_to_block(begin);
        let rows = self.stack_addr(waiting.rows);
        let next = self.stack_addr(waiting.next);
        let until = self.b.ins().load(I64, stack, next, 0);
        let nobody = self.icmp(IntCC::Equal, rows, until);
        self.b.ins().brif(nobody, after, &[], calls, &[]);
        self.b.seal_block(calls);
        self.b.switch_to_block(calls);
        for called in &waiting.called {
            let binding = self.binding(self.plan.lookups[called.lookup].table)?;
            let (handle, lookup_batch) = (binding.handle as u64, binding.lookup_batch as usize);
            let handle = self.address(handle);
            let (keys, count) = (self.stack_addr(called.keys), self.stack_addr(called.count));
            let count = self.b.ins().load(I32, stack, count, 0);
            let answers = self.stack_addr(called.answers);
            self.call(lookup_batch, &[handle, keys, count, answers], None);
            self.prefetch_answers(answers, count);
        }
        let resolve = self.b.create_block();
        self.b.ins().jump(resolve, &[]);
        self.b.seal_block(resolve);
        self.b.switch_to_block(head);
        let over = self.icmp(IntCC::Equal, row, until);
        self.b.ins().brif(over, after, &[], body, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        self.packet = self.b.ins().load(I64, stack, row, 0);
        let candidates = self.reload(p, row)?;
        self.next_packet = self.b.create_block();
        self.waiting[p] = Some(waiting);
        self.run_phase(p)?;
        self.b.seal_block(self.next_packet);

        let last_block = self.b.func.dfg.num_blocks();
        let blocks: Vec<Block> = (first_block..last_block).map(|b| Block::from_u32(b as u32)).collect();
        self.lay_out_row(p, &candidates, body, row, &blocks);

        self.locate_outside();
        self.b.switch_to_block(self.next_packet);
        let row_bytes = self.waiting[p].as_ref().map_or(8, |w| w.row_bytes);
        let next = self.add_imm(row, row_bytes.into());
        self.b.ins().jump(head, &[from_arg(next)]);
        self.locate_lookup(p);
        self.b.switch_to_block(resolve);
        self.resolve(p, rows, until)?;
        self.b.ins().jump(head, &[from_arg(rows)]);
        Ok(())
    }

    /// What is generated from now on belongs to the table that the packets of phase `p` wait for.
    fn locate_lookup(&mut self, p: usize) {
        let cut = self.plan.phases[p].cut.expect("only the first phase has none");
        let spot = self.plan.lookups[cut].spot;
        self.node = spot.0;
        let inst = self.inst_at(spot);
        self.locate(Some(&inst.op), inst.span);
    }

    /// Asks for the entries in an array of `count` (an `I32`) answers.
    fn prefetch_answers(&mut self, answers: Value, count: Value) {
        let (head, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let at = self.b.append_block_param(head, I64);
        let bytes = self.b.ins().uextend(I64, count);
        let bytes = self.b.ins().ishl_imm_u(bytes, 3);
        let end = self.b.ins().iadd(answers, bytes);
        self.b.ins().jump(head, &[from_arg(answers)]);
        self.b.switch_to_block(head);
        let over = self.icmp(IntCC::Equal, at, end);
        self.b.ins().brif(over, done, &[], body, &[]);
        self.b.switch_to_block(body);
        let entry = self.b.ins().load(I64, self.flags.stack, at, 0);
        self.prefetch(entry);
        let next = self.add_imm(at, 8);
        self.b.ins().jump(head, &[from_arg(next)]);
        [head, body, done].into_iter().for_each(|b| self.b.seal_block(b));
        self.b.switch_to_block(done);
    }

    /// Finishes the probes of the rows of phase `p`, which are those from `rows` to `until`, and asks for the entries.
    fn resolve(&mut self, p: usize, rows: Value, until: Value) -> Result<(), Error> {
        let waiting = self.waiting[p].take().expect("declared");
        let phase = &self.plan.phases[p];
        let mut probed = Vec::new();
        for member in &waiting.members {
            if let Kept::Lookup(l) = member.what
                && !phase.passed.contains(&l)
                && is_inlined(self.binding(self.plan.lookups[l].table)?.engine, self.options)
            {
                probed.push((l, *member));
            }
        }
        if !probed.is_empty() {
            let (head, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
            let row = self.b.append_block_param(head, I64);
            self.b.ins().jump(head, &[from_arg(rows)]);
            self.b.switch_to_block(head);
            let over = self.icmp(IntCC::Equal, row, until);
            self.b.ins().brif(over, done, &[], body, &[]);
            self.b.seal_block(body);
            self.b.switch_to_block(body);
            let stack = self.flags.stack;
            for (lookup, member) in probed {
                let binding = self.binding(self.plan.lookups[lookup].table)?.clone();
                let words: Vec<Value> = (0..member.bytes)
                    .step_by(8)
                    .map(|i| self.b.ins().load(I64, stack, row, (member.offset + i) as i32))
                    .collect();
                let entry = self.probe_finish(&binding, &words);
                self.prefetch(entry);
                self.b.ins().store(stack, entry, row, member.offset as i32);
            }
            let next = self.add_imm(row, waiting.row_bytes.into());
            self.b.ins().jump(head, &[from_arg(next)]);
            self.b.seal_block(head);
            self.b.seal_block(done);
            self.b.switch_to_block(done);
        }
        self.waiting[p] = Some(waiting);
        Ok(())
    }
}

fn from_arg(value: Value) -> cranelift_codegen::ir::BlockArg {
    value.into()
}

// Rows.
impl Translator<'_, '_> {
    /// Sets all variables as a packet left them when it began to wait: loads that may turn out to be of no use, with offsets
    /// that are not known yet.
    fn reload(&mut self, p: usize, row: Value) -> Result<Vec<Candidate>, Error> {
        let data = self.b.ins().load(I64, self.flags.desc, self.packet, offset_of!(PacketDesc, data) as i32);
        self.b.def_var(self.vars.data, data);
        let len = self.load_desc32(offset_of!(PacketDesc, len));
        self.b.def_var(self.vars.len, len);
        let mut candidates = Vec::new();
        let vars = &self.vars;
        let mut wanted: Vec<(Variable, u32)> =
            [vars.cursor, vars.truncate, vars.emitted, vars.rounds].map(|v| (v, 8)).to_vec();
        wanted.push((vars.layout_changed, 1));
        wanted.extend(self.header_pointers.iter().flatten().map(|&v| (v, 8)));
        for s in self.flow.needed.iter() {
            let slot = SlotId::from_index(s);
            let width = self.program.width(slot);
            if matches!(Class::of(width), Class::Words(_)) {
                continue;
            }
            if let Place::Var(var) = self.place(slot) {
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
            let binding = self.binding(plan.lookups[lookup].table)?;
            let probed = is_inlined(binding.engine, self.options) && !phase.passed.contains(&lookup);
            let words = if probed { carried_words(binding) } else { 1 };
            let (value, loads) = self.load_member(row, 8);
            self.b.def_var(self.answers[lookup], value);
            candidates.push(Candidate { what: Kept::Lookup(lookup), bytes: 8 * words as u32, loads });
        }
        let (value, loads) = self.load_member(row, 4);
        self.entry_len = value;
        candidates.push(Candidate { what: Kept::EntryLen, bytes: 4, loads });
        Ok(candidates)
    }

    fn load_member(&mut self, row: Value, bytes: u32) -> (Value, Vec<(Inst, Value)>) {
        let stack = self.flags.stack;
        let value = match bytes {
            1 => self.b.ins().uload8(I64, stack, row, 0),
            2 => self.b.ins().uload16(I64, stack, row, 0),
            4 => self.b.ins().uload32(stack, row, 0),
            8 => self.b.ins().load(I64, stack, row, 0),
            _ => {
                let (low, high) = (self.b.ins().load(I64, stack, row, 0), self.b.ins().load(I64, stack, row, 0));
                let loads = [low, high].map(|v| (self.defining(v), v)).to_vec();
                return (self.b.ins().iconcat(low, high), loads);
            }
        };
        (value, vec![(self.defining(value), value)])
    }

    fn defining(&self, value: Value) -> Inst {
        self.b.func.dfg.value_def(value).unwrap_inst()
    }

    /// Finds out what a phase's row must hold, gives it places, and corrects the loads made by [`Self::reload`].
    fn lay_out_row(&mut self, p: usize, candidates: &[Candidate], body: Block, row: Value, blocks: &[Block]) {
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
        // Descending sizes need no gaps.
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

    /// Lets the packet wait for a lookup, and goes on with the next one.
    pub fn park(&mut self, lookup: usize) -> Result<(), Error> {
        let plan = self.plan;
        let p = plan.phase_of(lookup).expect("what stops a phase is a cut");
        let waiting = self.waiting[p].take().expect("declared");
        let stack = self.flags.stack;
        let mut begun: Vec<(usize, Vec<Value>)> = Vec::new();
        for l in plan.phases[p].cut.iter().chain(&plan.phases[p].fresh).copied() {
            if waiting.members.iter().any(|m| m.what == Kept::Lookup(l)) {
                let called = waiting.called.iter().find(|c| c.lookup == l);
                let words = self.begin(l, called, l == lookup)?;
                begun.push((l, words));
            }
        }
        let next = self.stack_addr(waiting.next);
        let row = self.b.ins().load(I64, stack, next, 0);
        self.b.ins().store(stack, self.packet, row, 0);
        for member in &waiting.members {
            let value = match member.what {
                Kept::Var(var) => self.b.use_var(var),
                Kept::EntryLen => self.entry_len,
                Kept::Lookup(l) => {
                    let words = match begun.iter().find(|(of, _)| *of == l) {
                        Some((_, words)) => words.clone(),
                        None => vec![self.b.use_var(self.answers[l])],
                    };
                    self.store_words(stack, &words, row, member.offset);
                    continue;
                }
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

// Lookups.
impl<'a> Translator<'a, '_> {
    /// Begins a lookup of the packet at hand, whose key has its value: what it carries. `called` is where its key goes if it
    /// is answered by a call; `certain` says that the packet will want the answer.
    fn begin(&mut self, lookup: usize, called: Option<&Called>, certain: bool) -> Result<Vec<Value>, Error> {
        let lookup = &self.plan.lookups[lookup];
        let binding = self.binding(lookup.table)?.clone();
        let Op::Apply { keys, .. } = &self.inst_at(lookup.spot).op else { unreachable!("lookups are applies") };
        let words = self.key_words(&binding.key, keys);
        let Some(called) = called else {
            let begun = self.probe_begin(lookup.table, &binding, &words);
            self.prefetch(begun.prefetch);
            return Ok(begun.carried);
        };
        let stack = self.flags.stack;
        let counter = self.stack_addr(called.count);
        let count = self.b.ins().load(I64, stack, counter, 0);
        let key_offset = self.b.ins().imul_imm_u(count, i64::from(binding.key.bytes));
        let key = self.stack_addr(called.keys);
        let key = self.b.ins().iadd(key, key_offset);
        self.store_words(stack, &words, key, 0);
        let answers = self.stack_addr(called.answers);
        let offset = self.b.ins().ishl_imm_u(count, 3);
        let answer = self.b.ins().iadd(answers, offset);
        let mut wanted = None;
        for header in self.headers_of(keys).into_iter().filter(|_| !certain) {
            let valid = self.read_flag(self.facts.headers[header.index()].valid);
            wanted = Some(match wanted {
                Some(so_far) => self.b.ins().band(so_far, valid),
                None => valid,
            });
        }
        let (more, answer) = match wanted {
            None => (self.iconst(1), answer),
            Some(wanted) => {
                let null = self.iconst(0);
                (wanted, self.b.ins().select(wanted, answer, null))
            }
        };
        let count = self.b.ins().iadd(count, more);
        self.b.ins().store(stack, count, counter, 0);
        Ok(vec![answer])
    }

    /// The headers that key fields belong to, each once.
    fn headers_of(&self, keys: &[Operand]) -> Vec<HeaderId> {
        let mut headers = Vec::new();
        for slot in keys.iter().filter_map(|k| k.slot()) {
            if let SlotKind::Field(h) = self.program.slots[slot.index()].kind
                && !headers.contains(&h)
            {
                headers.push(h);
            }
        }
        headers
    }

    fn inst_at(&self, spot: plan::Spot) -> &'a ir::Inst {
        let (flow, program) = (self.flow, self.program);
        let node = &flow.graph.nodes[spot.0];
        &program.stages[node.stage.index()].blocks[node.block.index()].insts[spot.1]
    }

    /// The entry that a lookup found which was begun before this phase, for the apply being translated.
    pub fn finish_begun(&mut self, lookup: usize, keys: &[Operand]) -> Result<Value, Error> {
        let plan = self.plan;
        let binding = self.binding(plan.lookups[lookup].table)?.clone();
        let answer = self.b.use_var(self.answers[lookup]);
        if is_inlined(binding.engine, self.options) {
            return Ok(answer);
        }
        let stack = self.flags.stack;
        let certain = plan.phases[self.phase].cut == Some(lookup) || self.headers_of(keys).is_empty();
        if certain {
            return Ok(self.b.ins().load(I64, stack, answer, 0));
        }
        let (there, not_there, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let found = self.b.append_block_param(done, I64);
        self.b.ins().brif(answer, there, &[], not_there, &[]);
        self.b.seal_block(there);
        self.b.seal_block(not_there);
        self.b.switch_to_block(there);
        let entry = self.b.ins().load(I64, stack, answer, 0);
        self.b.ins().jump(done, &[from_arg(entry)]);
        self.b.switch_to_block(not_there);
        self.b.set_cold_block(not_there);
        let entry = self.lookup_by_call(&binding, keys);
        self.b.ins().jump(done, &[from_arg(entry)]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(found)
    }

    /// The lookup at the place of the operation being translated, if it was begun before this phase.
    pub fn begun_here(&self) -> Option<usize> {
        let lookup = self.plan.lookup_at(self.spot)?;
        self.plan.phases[self.phase].has_begun(lookup).then_some(lookup)
    }
}

// The frame's place and length are read from the descriptor at the start of every phase.
const _: () = assert!(offset_of!(Batch, packets).is_multiple_of(8) && size_of::<PacketDesc>().is_multiple_of(8));

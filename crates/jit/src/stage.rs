//! Staged execution (group prefetching): many packets up to a lookup, then the lookup for all of them.
//!
//! A table that does not fit in the caches answers after hundreds of cycles. Run-to-completion code waits for it packet
//! by packet. Staged code ([`plan`] chooses the cuts) hashes the keys of a chunk of packets and prefetches their cache
//! lines; by the time it returns to the first packet, its line has arrived. (For hash joins of databases: Chen,
//! Ailamaki, Gibbons, Mowry, "Improving hash join performance through prefetching", ICDE 2004.)
//!
//! ```text
//! for each chunk of the batch
//!     phase 0:  for each packet         run until a fate or a cut
//!     phase 1:  for each row of cut 1   if what was prefetched leads to another cache line, prefetch that
//!               for each row of cut 1   finish the lookup, and prefetch the entry's cache line
//!               for each row of cut 1   continue after the lookup, until a fate or a later cut
//!     ...
//! ```
//!
//! **Rows.** A packet that reaches a cut appends a row, its saved state, to the cut's array in the function's frame:
//! its descriptor, what its lookups need ([`crate::probe::PendingProbe::carried`]) and every variable that is live
//! after the cut. Appending takes a few stores and no branch. Slots that cannot have been assigned before the cut are
//! not saved: they have their initial values. Every phase is translated with its variables defined from the row at its
//! start; which of them are live is found in the code that results ([`live`]). Phases are therefore translated last to
//! first, so that the code that appends a row knows what to save.
//!
//! **Calls.** For engines that are not probed inline, the key goes to an array, and the phase begins with one call of
//! `TableBinding::lookup_batch` for all keys; then the entries are prefetched. The row of such a lookup holds the
//! address of its answer. Where the lookup is begun ahead of its apply, packets in which a header of the key is invalid
//! are left out (most programs do not apply the table to them). Their address is null; if the apply is reached
//! nevertheless, it makes the lookup itself.
//!
//! Facts about a packet at a cut ([`crate::flow::Facts`]) do not depend on the phase that saves it. The descriptor
//! always holds the same address and length of the frame as the variables, so these are not saved.
//!
//! **Cache lines.** Where the entries of an exact table are next to their keys, in the line that was prefetched,
//! nothing more is to be prefetched: such a lookup is finished where the packet reaches its apply.
//!
//! Tests: `tests/staged.rs`; all other tests of this crate with `JIT_STAGED=1`; `difftest`.

pub(crate) mod header_places;
mod live;
mod lookups;
pub(crate) mod plan;
pub(crate) mod report;
mod rows;

use crate::Error;
use crate::probe::is_inlined;
use crate::translate::Translator;
use abi::{PacketDesc, TableBinding};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder, StackSlot, Value};
use ir::TableId;
use rows::{Kept, Member};
use std::collections::BTreeSet;

/// The lookups of a cut that one call of the engine answers.
struct Called {
    lookup: usize,
    keys: StackSlot,
    results: StackSlot,
    /// Keys so far: a counter of eight bytes.
    count: StackSlot,
}

/// The waiting packets of a phase.
pub(crate) struct Waiting {
    rows: StackSlot,
    /// Address of the next row, eight bytes.
    next: StackSlot,
    row_bytes: u32,
    members: Vec<Member>,
    called: Vec<Called>,
}

// The loops.
impl<'a> Translator<'a, '_> {
    /// Bytes saved of each waiting packet, by phase.
    pub fn row_bytes(&self) -> Vec<u32> {
        self.waiting.iter().map(|waiting| waiting.as_ref().map_or(0, |w| w.row_bytes)).collect()
    }

    /// Generates the loop over chunks of the packets from `first` to `end`.
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
        // The loop bound is compared in memory: no register can be spared for it.
        let bound = self.stack_slot(8);
        let at = self.stack_addr(bound);
        self.b.ins().store(self.flags.stack, to, at, 0);
        self.empty_rows();
        self.b.ins().jump(begins[0], &[]);
        self.b.switch_to_block(begins[0]);
        let (head, body) = (self.b.create_block(), self.b.create_block());
        self.packet = self.b.append_block_param(head, I64);
        self.next_packet = self.b.create_block();
        self.b.ins().jump(head, &[from_arg(from)]);
        self.b.switch_to_block(head);
        let over = self.is_at_end(self.packet, bound);
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
        self.end_entry(None);
        self.b.seal_all_blocks();
        debug_assert!(
            begins.iter().all(|&b| self.b.func.dfg.block_params(b).is_empty()),
            "a phase reads a variable that its row does not set"
        );
        Ok(())
    }

    /// Packets of the batch that go through the phases together.
    fn chunk(&self) -> u32 {
        self.options.chunk.clamp(1, abi::BATCH_MAX as u32)
    }

    /// Declares variables and memory of all phases, so that each can be translated before the phases that lead to it.
    fn declare_all(&mut self) -> Result<(), Error> {
        let plan = self.plan;
        self.header_places = header_places::header_places(self.program, self.facts, self.flow, plan, self.entry);
        for lookup in &plan.lookups {
            let binding = self.binding(lookup.table)?.clone();
            let var = self.b.declare_var(I64);
            self.results.push(var);
            let words = match self.is_finished_late(&binding) {
                true => self.carried_words(lookup.table, &binding),
                false => 0,
            };
            let vars = (0..words).map(|_| self.b.declare_var(I64)).collect();
            self.carried.push(vars);
        }
        let chunk = self.chunk();
        for phase in &plan.phases {
            let mut called = Vec::new();
            for lookup in phase.cut.iter().chain(&phase.fresh).copied() {
                let binding = self.binding(plan.lookups[lookup].table)?;
                let (inlined, bytes) = (is_inlined(binding.engine, self.options), binding.key.bytes);
                if !inlined {
                    let (keys, results) = (self.stack_slot(chunk * bytes), self.stack_slot(chunk * 8));
                    called.push(Called { lookup, keys, results, count: self.stack_slot(8) });
                }
            }
            let (rows, next) = (self.stack_slot(8), self.stack_slot(8));
            self.waiting.push(Some(Waiting { rows, next, row_bytes: 8, members: Vec::new(), called }));
        }
        Ok(())
    }

    /// Empties the rows of all phases.
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

    /// Generates phase `p`, from block `begin` on; control continues at `after`.
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
            let results = self.stack_addr(called.results);
            self.call(lookup_batch, &[handle, keys, count, results], None);
            self.prefetch_results(results, count, &|t, entry| {
                t.prefetch(entry);
                Ok(())
            })?;
            let table = self.plan.lookups[called.lookup].table;
            if self.has_direct_cells(table) {
                self.prefetch_results(results, count, &|t, entry| t.prefetch_direct_cells(table, entry))?;
            }
        }
        let resolve = self.b.create_block();
        self.b.ins().jump(resolve, &[]);
        self.b.seal_block(resolve);
        self.b.switch_to_block(head);
        let over = self.is_at_end(row, waiting.next);
        self.b.ins().brif(over, after, &[], body, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        self.packet = self.b.ins().load(I64, self.flags.row, row, 0);
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
        self.resolve(p, rows)?;
        self.b.ins().jump(head, &[from_arg(rows)]);
        Ok(())
    }

    /// Attributes the code that follows to the table that the packets of phase `p` wait for.
    fn locate_lookup(&mut self, p: usize) {
        let cut = self.plan.phases[p].cut.expect("only the first phase has none");
        let program_point = self.plan.lookups[cut].program_point;
        self.node = program_point.0;
        let inst = self.inst_at(program_point);
        self.locate(Some(&inst.op), inst.span);
    }

    /// Prefetches something for each entry in an array of `count` (an `I32`) results; an entry may be null.
    fn prefetch_results(
        &mut self,
        results: Value,
        count: Value,
        prefetch: &dyn Fn(&mut Self, Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (head, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let at = self.b.append_block_param(head, I64);
        let bytes = self.b.ins().uextend(I64, count);
        let bytes = self.b.ins().ishl_imm_u(bytes, 3);
        let end = self.b.ins().iadd(results, bytes);
        self.b.ins().jump(head, &[from_arg(results)]);
        self.b.switch_to_block(head);
        let over = self.icmp(IntCC::Equal, at, end);
        self.b.ins().brif(over, done, &[], body, &[]);
        self.b.switch_to_block(body);
        let entry = self.b.ins().load(I64, self.flags.stack, at, 0);
        prefetch(self, entry)?;
        let next = self.add_imm(at, 8);
        self.b.ins().jump(head, &[from_arg(next)]);
        [head, body, done].into_iter().for_each(|b| self.b.seal_block(b));
        self.b.switch_to_block(done);
        Ok(())
    }

    /// Whether a loop has reached the address in `bound`.
    fn is_at_end(&mut self, at: Value, bound: StackSlot) -> Value {
        let bound = self.stack_addr(bound);
        let end = self.b.ins().load(I64, self.flags.stack, bound, 0);
        self.icmp(IntCC::Equal, at, end)
    }

    /// Finishes the probes of the rows of phase `p`, from `rows` on, and prefetches the entries.
    fn resolve(&mut self, p: usize, rows: Value) -> Result<(), Error> {
        let waiting = self.waiting[p].take().expect("declared");
        let phase = &self.plan.phases[p];
        let mut probed = Vec::new();
        for member in &waiting.members {
            if let Kept::Lookup(l) = member.what
                && !phase.passed.contains(&l)
                && self.carried[l].is_empty()
            {
                let table = self.plan.lookups[l].table;
                let binding = self.binding(table)?.clone();
                if is_inlined(binding.engine, self.options) {
                    probed.push(Probed { table, binding, member: *member });
                }
            }
        }
        let advancing: Vec<&Probed> = probed.iter().filter(|probed| self.probe_advances(&probed.binding)).collect();
        if !advancing.is_empty() {
            self.for_rows(&waiting, rows, |t, row| {
                for probed in &advancing {
                    let mut words = t.load_words(row, &probed.member);
                    t.probe_advance(&probed.binding, &mut words);
                    t.prefetch(words[0]);
                    t.b.ins().store(t.flags.stack, words[0], row, probed.member.offset as i32);
                }
            });
        }
        let mut with_rows = BTreeSet::new();
        if !probed.is_empty() {
            self.for_rows(&waiting, rows, |t, row| {
                // The packet of the row: cold calls return their results through its descriptor.
                t.packet = t.b.ins().load(I64, t.flags.row, row, 0);
                for Probed { table, binding, member } in &probed {
                    let words = t.load_words(row, member);
                    let entry = t.probe_pointer(*table, binding, &words);
                    let wanted = t.row_of(*table, entry);
                    t.prefetch(wanted);
                    if wanted != entry {
                        with_rows.insert(*table);
                    }
                    t.b.ins().store(t.flags.stack, entry, row, member.offset as i32);
                }
            });
        }
        // Where materialised rows are found, there is no address of an entry yet.
        probed.retain(|probed| self.has_direct_cells(probed.table) && !with_rows.contains(&probed.table));
        if !probed.is_empty() {
            let mut result = Ok(());
            self.for_rows(&waiting, rows, |t, row| {
                for Probed { table, member, .. } in &probed {
                    let entry = t.b.ins().load(I64, t.flags.stack, row, member.offset as i32);
                    if result.is_ok() {
                        result = t.prefetch_direct_cells(*table, entry);
                    }
                }
            });
            result?;
        }
        self.waiting[p] = Some(waiting);
        Ok(())
    }

    /// A loop over the rows of a phase, from `rows` on; there is at least one.
    fn for_rows(&mut self, waiting: &Waiting, rows: Value, mut body_of: impl FnMut(&mut Self, Value)) {
        let (head, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let row = self.b.append_block_param(head, I64);
        self.b.ins().jump(head, &[from_arg(rows)]);
        self.b.switch_to_block(head);
        let over = self.is_at_end(row, waiting.next);
        self.b.ins().brif(over, done, &[], body, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        body_of(self, row);
        let next = self.add_imm(row, waiting.row_bytes.into());
        self.b.ins().jump(head, &[from_arg(next)]);
        self.b.seal_block(head);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
    }

    /// The words that a row holds for a lookup.
    fn load_words(&mut self, row: Value, member: &Member) -> Vec<Value> {
        let words = (0..member.bytes).step_by(8);
        words.map(|i| self.b.ins().load(I64, self.flags.stack, row, (member.offset + i) as i32)).collect()
    }
}

/// A lookup that is to be finished for the rows of a phase.
struct Probed {
    table: TableId,
    binding: TableBinding,
    member: Member,
}

fn from_arg(value: Value) -> cranelift_codegen::ir::BlockArg {
    value.into()
}

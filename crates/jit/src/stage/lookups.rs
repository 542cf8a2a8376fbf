//! Lookups that are begun in one phase and finished in a later one.

use super::{Called, from_arg};
use crate::Error;
use crate::probe::is_inlined;
use crate::stage::plan::ProgramPoint;
use crate::translate::Translator;
use abi::TableBinding;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{HeaderId, Op, Operand, SlotKind};

impl<'a> Translator<'a, '_> {
    /// Begins a lookup for the current packet, whose key is computed, and returns what its row carries. `called`
    /// receives its key if a call answers it; `certain` says that the packet will reach the apply.
    pub(super) fn begin(&mut self, lookup: usize, called: Option<&Called>, certain: bool) -> Result<Vec<Value>, Error> {
        let lookup = &self.plan.lookups[lookup];
        let binding = self.binding(lookup.table)?.clone();
        let Op::Apply { keys, .. } = &self.inst_at(lookup.program_point).op else {
            unreachable!("lookups are applies")
        };
        let Some(called) = called else {
            let begun = self.probe_begin(lookup.table, &binding, keys);
            self.prefetch(begun.prefetch);
            return Ok(begun.carried);
        };
        let words = self.key_words(&binding.key, keys);
        let stack = self.flags.stack;
        let counter = self.stack_addr(called.count);
        let count = self.b.ins().load(I64, stack, counter, 0);
        let key_offset = self.b.ins().imul_imm_u(count, i64::from(binding.key.bytes));
        let key = self.stack_addr(called.keys);
        let key = self.b.ins().iadd(key, key_offset);
        self.store_words(stack, &words, key, 0);
        let results = self.stack_addr(called.results);
        let offset = self.b.ins().ishl_imm_u(count, 3);
        let result = self.b.ins().iadd(results, offset);
        let mut wanted = None;
        for header in self.headers_of(keys).into_iter().filter(|_| !certain) {
            let valid = self.read_flag(self.facts.headers[header.index()].valid);
            wanted = Some(match wanted {
                Some(so_far) => self.b.ins().band(so_far, valid),
                None => valid,
            });
        }
        let (more, result) = match wanted {
            None => (self.iconst(1), result),
            Some(wanted) => {
                let null = self.iconst(0);
                (wanted, self.b.ins().select(wanted, result, null))
            }
        };
        let count = self.b.ins().iadd(count, more);
        self.b.ins().store(stack, count, counter, 0);
        Ok(vec![result])
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

    pub(super) fn inst_at(&self, program_point: ProgramPoint) -> &'a ir::Inst {
        let (flow, program) = (self.flow, self.program);
        let node = &flow.graph.nodes[program_point.0];
        &program.stages[node.stage.index()].blocks[node.block.index()].insts[program_point.1]
    }

    /// Whether a begun lookup is finished only where the packet reaches its apply, because its first cache line holds
    /// the entry too.
    pub(super) fn is_finished_late(&self, binding: &TableBinding) -> bool {
        super::plan::is_finished_late(binding, self.options)
    }

    /// The entry that a lookup begun before this phase found, for the apply being translated.
    pub fn finish_pending(&mut self, lookup: usize, keys: &[Operand]) -> Result<Value, Error> {
        let plan = self.plan;
        let binding = self.binding(plan.lookups[lookup].table)?.clone();
        let result = self.b.use_var(self.results[lookup]);
        if is_inlined(binding.engine, self.options) {
            return Ok(result);
        }
        let stack = self.flags.stack;
        let certain = plan.phases[self.phase].cut == Some(lookup) || self.headers_of(keys).is_empty();
        if certain {
            return Ok(self.b.ins().load(I64, stack, result, 0));
        }
        let (there, not_there, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let found = self.b.append_block_param(done, I64);
        self.b.ins().brif(result, there, &[], not_there, &[]);
        self.b.seal_block(there);
        self.b.seal_block(not_there);
        self.b.switch_to_block(there);
        let entry = self.b.ins().load(I64, stack, result, 0);
        self.b.ins().jump(done, &[from_arg(entry)]);
        self.b.switch_to_block(not_there);
        self.b.set_cold_block(not_there);
        let entry = self.lookup_by_call(&binding, keys);
        self.b.ins().jump(done, &[from_arg(entry)]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(found)
    }

    /// The lookup at the current operation, if it was begun before this phase.
    pub fn pending_lookup(&self) -> Option<usize> {
        let lookup = self.plan.lookup_at(self.program_point)?;
        self.plan.phases[self.phase].has_begun(lookup).then_some(lookup)
    }
}

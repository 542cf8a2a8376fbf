//! Lookups that are part of the code: tables whose engine lets compiled code read its memory.
//!
//! A probe has two halves, so that code that works on many packets at a time can do something else while memory answers:
//!
//! - [`Translator::probe_begin`] computes from the key where the lookup's first cache line is, without touching it: the
//!   address to prefetch, and the words that the second half needs ([`Begun::carried`]; their number depends on the
//!   binding alone). Whoever calls it may keep them in registers or in memory.
//! - [`Translator::probe_finish`] takes those words, reads the table and gives the entry that matches, or null.
//!
//! Run to completion calls one after the other. The memory layouts are those of `tables::exact` and `tables::direct`; what
//! changes when a table is resized (where the buckets begin, the mask, the seeds) comes from [`Translator::exact_base`]
//! alone.
//!
//! **Snapshots** of inlined tables are loaded once per batch, if they are few: entries that were there when the batch began
//! are found, which is what a batch that started a little earlier would have seen. Many snapshots would only be many
//! values that live through all of the code, for which the register allocator takes time and has no registers; they are
//! loaded at each lookup.

use crate::translate::Translator;
use crate::{Error, Optimisation, Options};
use abi::{EngineKind, TableBinding, TableHandle};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I64, I128};
use cranelift_codegen::ir::{InstBuilder, Value};
use ir::{Op, TableId};
use std::mem::offset_of;
use tables::exact::{BUCKET_BYTES, ENTRY_OFFSETS, ExactSnapshot, KEY_OFFSETS, OVERFLOW_OFFSET};

/// Most inlined tables whose snapshots are loaded once per batch.
const HOISTED_SNAPSHOTS_MAX: usize = 8;

/// Whether a table with this engine is probed by the code itself.
pub(crate) fn is_inlined(engine: EngineKind, options: &Options) -> bool {
    options.has(Optimisation::InlineTables) && matches!(engine, EngineKind::ExactInline | EngineKind::DirectIndex)
}

/// How many words [`Begun::carried`] has.
pub(crate) fn carried_words(binding: &TableBinding) -> usize {
    match binding.engine {
        EngineKind::ExactInline => 1 + binding.key.bytes as usize / 8,
        EngineKind::DirectIndex => 1,
        EngineKind::Empty | EngineKind::Opaque => unreachable!("only inlined tables are probed"),
    }
}

/// A probe that has not touched its table yet.
pub(crate) struct Begun {
    /// An address in the cache line that the second half reads first.
    pub prefetch: Value,
    /// What the second half needs, as 64-bit words.
    pub carried: Vec<Value>,
}

/// Where an exact table's buckets are and how keys are spread over them.
struct ExactBase {
    first: Value,
    mask: Value,
    seeds: [Value; 2],
}

// Snapshots.
impl Translator<'_, '_> {
    /// Loads the snapshots of the tables that are probed inline, if they are few; once per batch.
    pub fn load_snapshots(&mut self) -> Result<(), Error> {
        let flow = self.flow;
        let mut tables = Vec::new();
        for node in &flow.graph.nodes {
            for inst in &self.program.stages[node.stage.index()].blocks[node.block.index()].insts {
                let Op::Apply { table, .. } = &inst.op else { continue };
                let binding = self.binding(*table)?;
                if is_inlined(binding.engine, self.options) && !tables.contains(table) {
                    tables.push(*table);
                }
                if tables.len() > HOISTED_SNAPSHOTS_MAX {
                    return Ok(());
                }
            }
        }
        for table in tables {
            let binding = self.binding(table)?.clone();
            let snapshot = self.load_snapshot(&binding);
            self.snapshots.insert(table, snapshot);
        }
        Ok(())
    }

    fn load_snapshot(&mut self, binding: &TableBinding) -> Value {
        let handle = self.address(binding.handle as u64);
        self.b.ins().load(I64, self.flags.state, handle, offset_of!(TableHandle, snapshot) as i32)
    }

    /// The snapshot of a table that is probed inline.
    fn snapshot(&mut self, table: TableId, binding: &TableBinding) -> Value {
        match self.snapshots.get(&table) {
            Some(&snapshot) => snapshot,
            None => self.load_snapshot(binding),
        }
    }
}

// The two halves.
impl Translator<'_, '_> {
    /// The first half of the lookup of the key `words` in a table that is probed inline.
    pub fn probe_begin(&mut self, table: TableId, binding: &TableBinding, words: &[Value]) -> Begun {
        let snapshot = self.snapshot(table, binding);
        match binding.engine {
            EngineKind::ExactInline => {
                let bucket = self.exact_bucket(snapshot, words);
                Begun { prefetch: bucket, carried: std::iter::once(bucket).chain(words.iter().copied()).collect() }
            }
            EngineKind::DirectIndex => {
                let offset = self.b.ins().ishl_imm_u(words[0], 3);
                let at = self.b.ins().iadd(snapshot, offset);
                Begun { prefetch: at, carried: vec![at] }
            }
            EngineKind::Empty | EngineKind::Opaque => unreachable!("only inlined tables are probed"),
        }
    }

    /// The second half: the entry that matches, or null.
    pub fn probe_finish(&mut self, binding: &TableBinding, carried: &[Value]) -> Value {
        match binding.engine {
            EngineKind::ExactInline => self.exact_find(carried[0], &carried[1..]),
            EngineKind::DirectIndex => self.b.ins().load(I64, self.flags.state, carried[0], 0),
            EngineKind::Empty | EngineKind::Opaque => unreachable!("only inlined tables are probed"),
        }
    }
}

// Exact tables.
impl Translator<'_, '_> {
    fn exact_base(&mut self, snapshot: Value) -> ExactBase {
        let mut load = |offset: usize| self.b.ins().load(I64, self.flags.state, snapshot, offset as i32);
        let seeds = offset_of!(ExactSnapshot, seeds);
        ExactBase {
            first: load(offset_of!(ExactSnapshot, buckets)),
            mask: load(offset_of!(ExactSnapshot, mask)),
            seeds: [load(seeds), load(seeds + 8)],
        }
    }

    /// The address of a key's bucket.
    fn exact_bucket(&mut self, snapshot: Value, key: &[Value]) -> Value {
        let base = self.exact_base(snapshot);
        let a = self.b.ins().bxor(key[0], base.seeds[0]);
        let b = match key.get(1) {
            Some(&word) => self.b.ins().bxor(word, base.seeds[1]),
            None => base.seeds[1],
        };
        let (a, b) = (self.b.ins().uextend(I128, a), self.b.ins().uextend(I128, b));
        let product = self.b.ins().imul(a, b);
        let (low, high) = self.b.ins().isplit(product);
        let hash = self.b.ins().bxor(low, high);
        let index = self.b.ins().band(hash, base.mask);
        let offset = self.b.ins().ishl_imm_u(index, i64::from(BUCKET_BYTES.ilog2()));
        self.b.ins().iadd(base.first, offset)
    }

    /// Goes through a bucket and those that it overflows to.
    fn exact_find(&mut self, start: Value, key: &[Value]) -> Value {
        let load = |t: &mut Self, base: Value, offset: usize| t.b.ins().load(I64, t.flags.state, base, offset as i32);
        let (head, done) = (self.b.create_block(), self.b.create_block());
        let bucket = self.b.append_block_param(head, I64);
        self.b.ins().jump(head, &[start.into()]);
        self.b.switch_to_block(head);
        // Entries before keys: see "Why readers may run while the writer writes" there.
        let entries = ENTRY_OFFSETS.map(|offset| load(self, bucket, offset));
        let next = load(self, bucket, OVERFLOW_OFFSET);
        let zero = self.iconst(0);
        let mut found = zero;
        for (entry, key_offset) in entries.into_iter().zip(KEY_OFFSETS) {
            let mut same = None;
            for (i, &word) in key.iter().enumerate() {
                let stored = load(self, bucket, key_offset + 8 * i);
                let equal = self.icmp(IntCC::Equal, stored, word);
                same = Some(match same {
                    Some(so_far) => self.b.ins().band(so_far, equal),
                    None => equal,
                });
            }
            let same = same.expect("a key has a word");
            let entry = self.b.ins().select(same, entry, zero);
            found = self.b.ins().bor(found, entry);
        }
        let missed = self.icmp_imm(IntCC::Equal, found, 0);
        let more = self.icmp_imm(IntCC::NotEqual, next, 0);
        let again = self.b.ins().band(missed, more);
        self.b.ins().brif(again, head, &[next.into()], done, &[]);
        self.b.seal_block(head);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        found
    }
}

//! Inline lookups: tables whose engine lets compiled code read its memory.
//!
//! A probe has two halves, so that code for many packets can prefetch in between:
//!
//! - [`Translator::probe_begin`] computes from the key where the lookup's first cache line is, without touching it: the
//!   address to prefetch, and the words that the second half needs ([`PendingProbe::carried`]; their number depends on
//!   the binding alone). The caller may keep them in registers or in memory.
//! - [`Translator::probe_finish`] takes these words and reads the table. The code that follows is for hits, with the
//!   entry; misses branch away.
//!
//! Between them is [`Translator::probe_advance`], for lookups whose first line holds the address of the second.
//!
//! Run-to-completion code calls both at once. The memory layouts are those of `tables::exact`, `tables::direct` and
//! `tables::lpm::dir1688` ([`crate::prefixes`]). What changes when a table is resized (the buckets' address, the mask,
//! the seeds) comes from [`Translator::exact_base`] alone. Where the table's shape is known ([`Translator::shape`]),
//! all of that is constant, and no snapshot is loaded.
//!
//! **Snapshots** of inlined tables are loaded once per batch, if there are few: a batch finds the entries that were
//! there when it began, as a batch that had started a little earlier would. If there are many, each would be live
//! through all of the code, which costs compile time and exceeds the registers; then they are loaded at each lookup.

use crate::translate::Translator;
use crate::wide::{self, Lanes};
use crate::{Error, Optimisation, Options};
use abi::{EngineKind, ExactLayout, TableBinding, TableHandle};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I32X4, I64, I64X2, I128};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use ir::{Op, Operand, TableId};
use std::mem::offset_of;
use tables::direct;
use tables::exact::{
    BUCKET_BYTES, ENTRY_ADDRESS_BYTES, ExactSnapshot, MARK_SHIFT, META_OFFSET, MIX, PASSED_MARKS, PASSED_SHIFT, WINDOW,
};

/// Most inlined tables whose snapshots are loaded once per batch.
const HOISTED_SNAPSHOTS_MAX: usize = 8;

/// Whether the code itself probes a table with this engine.
pub(crate) fn is_inlined(engine: EngineKind, options: &Options) -> bool {
    options.has(Optimisation::InlineTables)
        && matches!(engine, EngineKind::ExactInline | EngineKind::DirectIndex | EngineKind::Prefixes)
}

/// A probe whose table has not been read yet.
pub(crate) struct PendingProbe {
    /// An address in the cache line that the second half reads first.
    pub prefetch: Value,
    /// What the second half needs, as 64-bit words.
    pub carried: Vec<Value>,
}

/// The buckets of an exact table and the parameters of its hash.
struct ExactBase {
    first: Value,
    count: Value,
    seeds: [Value; 2],
}

fn exact_layout(binding: &TableBinding) -> ExactLayout {
    binding.exact.expect("a table with such an engine tells its layout")
}

// Snapshots.
impl Translator<'_, '_> {
    /// Loads the snapshots of inlined tables once per batch, if there are few.
    pub fn load_snapshots(&mut self) -> Result<(), Error> {
        let flow = self.flow;
        let mut tables = Vec::new();
        for node in &flow.graph.nodes {
            for inst in &self.program.stages[node.stage.index()].blocks[node.block.index()].insts {
                let Op::Apply { table, .. } = &inst.op else { continue };
                let binding = self.binding(*table)?;
                let is_wanted = is_inlined(binding.engine, self.options) && self.shape(*table).is_none();
                if is_wanted && !tables.contains(table) {
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

    /// The snapshot of an inlined table.
    fn snapshot(&mut self, table: TableId, binding: &TableBinding) -> Value {
        if let Some(shape) = self.shape(table) {
            let snapshot = shape.snapshot as u64;
            return self.iconst(snapshot);
        }
        match self.snapshots.get(&table) {
            Some(&snapshot) => snapshot,
            None => self.load_snapshot(binding),
        }
    }
}

// The two halves.
impl Translator<'_, '_> {
    /// The number of words of [`PendingProbe::carried`].
    pub fn carried_words(&self, table: TableId, binding: &TableBinding) -> usize {
        match binding.engine {
            EngineKind::ExactInline => 1 + binding.key.bytes as usize / 8 + usize::from(self.carries_hash(table)),
            EngineKind::DirectIndex => 1,
            EngineKind::Prefixes => self.prefix_words(table),
            EngineKind::Empty | EngineKind::Opaque => unreachable!("only inlined tables are probed"),
        }
    }

    /// Whether the second half receives the hash. It is needed on a cold path only, and can be computed again if the
    /// snapshot is still the same.
    fn carries_hash(&self, table: TableId) -> bool {
        self.shape(table).is_none() && !self.snapshots.contains_key(&table)
    }

    /// The first half of a lookup in an inlined table.
    pub fn probe_begin(&mut self, table: TableId, binding: &TableBinding, keys: &[Operand]) -> PendingProbe {
        let snapshot = self.snapshot(table, binding);
        match binding.engine {
            EngineKind::ExactInline => {
                let words = self.key_words(&binding.key, keys);
                let two = exact_layout(binding).key_bytes > 8;
                let (bucket, hash) = self.exact_home(table, snapshot, &words, two);
                let hash = self.carries_hash(table).then_some(hash);
                PendingProbe { prefetch: bucket, carried: [bucket].into_iter().chain(words).chain(hash).collect() }
            }
            EngineKind::DirectIndex => {
                let index = self.direct_index(binding, keys);
                let offset = self.b.ins().ishl_imm_u(index, 3);
                let at = self.b.ins().iadd(snapshot, offset);
                PendingProbe { prefetch: at, carried: vec![at] }
            }
            EngineKind::Prefixes => {
                let words = self.key_words(&binding.key, keys);
                let up = 32 - i64::from(binding.key.fields[0].width);
                let key = if up > 0 { self.b.ins().ishl_imm_u(words[0], up) } else { words[0] };
                let carried = self.prefix_begin(table, snapshot, key);
                PendingProbe { prefetch: carried[0], carried }
            }
            EngineKind::Empty | EngineKind::Opaque => unreachable!("only inlined tables are probed"),
        }
    }

    /// The index of a key in the array of `tables::direct`.
    fn direct_index(&mut self, binding: &TableBinding, keys: &[Operand]) -> Value {
        let mut index = None;
        for (key, shift) in keys.iter().zip(direct::shifts(&binding.key)) {
            let word = self.read_word(key);
            let word = if shift > 0 { self.b.ins().ishl_imm_u(word, i64::from(shift)) } else { word };
            index = Some(match index {
                Some(so_far) => self.b.ins().bor(so_far, word),
                None => word,
            });
        }
        index.expect("a table that is probed has a key")
    }

    /// Whether there is a step between the two halves.
    pub fn probe_advances(&self, binding: &TableBinding) -> bool {
        binding.engine == EngineKind::Prefixes
    }

    /// The step between the two halves: reads the prefetched line and computes the address that the second half reads
    /// first, which replaces the first carried word.
    pub fn probe_advance(&mut self, binding: &TableBinding, carried: &mut [Value]) {
        if self.probe_advances(binding) {
            carried[0] = self.prefix_advance(carried);
        }
    }

    /// The second half: continues with the matching entry, or at `miss`.
    pub fn probe_finish(&mut self, table: TableId, binding: &TableBinding, carried: &[Value], miss: Block) -> Value {
        match binding.engine {
            EngineKind::ExactInline => {
                let (words, hash) = carried[1..].split_at(binding.key.bytes as usize / 8);
                self.exact_find(table, binding, carried[0], words, hash.first().copied(), miss)
            }
            EngineKind::DirectIndex => {
                let entry = self.b.ins().load(I64, self.flags.state, carried[0], 0);
                let hit = self.b.create_block();
                self.b.ins().brif(entry, hit, &[], miss, &[]);
                self.b.seal_block(hit);
                self.b.switch_to_block(hit);
                entry
            }
            EngineKind::Prefixes => self.prefix_find(table, binding, carried, miss),
            EngineKind::Empty | EngineKind::Opaque => unreachable!("only inlined tables are probed"),
        }
    }

    /// The second half with a null pointer for a miss.
    pub fn probe_pointer(&mut self, table: TableId, binding: &TableBinding, carried: &[Value]) -> Value {
        let (miss, done) = (self.b.create_block(), self.b.create_block());
        let pointer = self.b.append_block_param(done, I64);
        let entry = self.probe_finish(table, binding, carried, miss);
        self.b.ins().jump(done, &[entry.into()]);
        self.b.seal_block(miss);
        self.b.set_cold_block(miss);
        self.b.switch_to_block(miss);
        let null = self.iconst(0);
        self.b.ins().jump(done, &[null.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        pointer
    }
}

// Exact tables: see "Hash and probe" and "Why readers may run while the writer writes" in `tables::exact`.
impl Translator<'_, '_> {
    fn exact_base(&mut self, table: TableId, snapshot: Value) -> ExactBase {
        let mut load = |offset: usize| self.snapshot_word(table, snapshot, offset);
        let seeds = offset_of!(ExactSnapshot, seeds);
        ExactBase {
            first: load(offset_of!(ExactSnapshot, buckets)),
            count: load(offset_of!(ExactSnapshot, count)),
            seeds: [load(seeds), load(seeds + 8)],
        }
    }

    /// A word of a snapshot.
    fn snapshot_word(&mut self, table: TableId, snapshot: Value, offset: usize) -> Value {
        match self.shape(table).and_then(|shape| shape.words.get(offset / 8).copied()) {
            Some(word) => self.iconst(word),
            None => self.b.ins().load(I64, self.flags.state, snapshot, offset as i32),
        }
    }

    /// The address of a key's home bucket and the key's hash. Keys have `two` words or one significant one.
    fn exact_home(&mut self, table: TableId, snapshot: Value, key: &[Value], two: bool) -> (Value, Value) {
        let base = self.exact_base(table, snapshot);
        let second = if two { key[1] } else { self.b.ins().rotl_imm_u(key[0], 32) };
        let (a, b) = (self.b.ins().bxor(key[0], base.seeds[0]), self.b.ins().bxor(second, base.seeds[1]));
        let (a, b) = (self.b.ins().uextend(I128, a), self.b.ins().uextend(I128, b));
        let product = self.b.ins().imul(a, b);
        let (low, high) = self.b.ins().isplit(product);
        let hash = self.b.ins().bxor(low, high);
        let hash = match self.bindings.tables[table.index()].dynamic.is_some() {
            true => self.b.ins().imul_imm_s(hash, MIX as i64),
            false => hash,
        };
        // The offset of bucket `hash * count >> 64`, with the bits below a bucket cleared.
        let bytes = self.b.ins().ishl_imm_u(base.count, i64::from(BUCKET_BYTES.ilog2()));
        let offset = self.b.ins().umulhi(hash, bytes);
        let offset = self.b.ins().band_imm_s(offset, -i64::from(BUCKET_BYTES));
        (self.b.ins().iadd(base.first, offset), hash)
    }

    /// Searches a key's home bucket and, if its marks say so, the following ones; continues at `miss` if none has the
    /// key.
    fn exact_find(
        &mut self,
        table: TableId,
        binding: &TableBinding,
        home: Value,
        key: &[Value],
        hash: Option<Value>,
        miss: Block,
    ) -> Value {
        let layout = exact_layout(binding);
        // Most keys are found in their home bucket; where else to look is computed on the cold path.
        let done = self.b.create_block();
        let [bucket, live] = [(); 2].map(|()| self.b.append_block_param(done, I64));
        let next_bucket = self.b.create_block();
        let (at_home, meta) = self.exact_live(layout, home, key);
        // The bits are never negative. With a signed comparison they need not be combined a second time for the test.
        let is_there = self.icmp_imm(IntCC::SignedGreaterThan, at_home, 0);
        self.b.ins().brif(is_there, done, &[home.into(), at_home.into()], next_bucket, &[]);
        self.b.seal_block(next_bucket);
        self.b.set_cold_block(next_bucket);

        self.b.switch_to_block(next_bucket);
        let hash = hash.unwrap_or_else(|| {
            let snapshot = self.snapshot(table, binding);
            self.exact_home(table, snapshot, key, layout.key_bytes > 8).1
        });
        let mark = self.b.ins().ushr_imm_u(hash, i64::from(MARK_SHIFT));
        let mark = self.b.ins().band_imm_u(mark, i64::from(PASSED_MARKS - 1));
        let mark = self.add_imm(mark, u64::from(PASSED_SHIFT));
        let passed = self.b.ins().ushr(meta, mark);
        let passed = self.b.ins().band_imm_u(passed, 1);
        let (second, head, next) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(passed, second, &[], miss, &[]);
        self.b.seal_block(second);
        self.b.set_cold_block(second);
        self.b.switch_to_block(second);
        let step = self.b.ins().band_imm_u(hash, WINDOW as i64 - 1);
        let step = self.b.ins().ishl_imm_u(step, i64::from(BUCKET_BYTES.ilog2()));
        let first = self.b.ins().iadd(home, step);
        let first = self.add_imm(first, u64::from(BUCKET_BYTES));
        self.b.ins().jump(head, &[first.into()]);

        let at = self.b.append_block_param(head, I64);
        self.b.set_cold_block(head);
        self.b.switch_to_block(head);
        let (found, meta) = self.exact_live(layout, at, key);
        self.b.ins().brif(found, done, &[at.into(), found.into()], next, &[]);
        self.b.seal_block(next);
        self.b.set_cold_block(next);
        self.b.switch_to_block(next);
        let passed = self.b.ins().ushr(meta, mark);
        let passed = self.b.ins().band_imm_u(passed, 1);
        let after = self.add_imm(at, u64::from(BUCKET_BYTES));
        self.b.ins().brif(passed, head, &[after.into()], miss, &[]);
        self.b.seal_block(head);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        let slot = self.b.ins().ctz(live);
        let offset = self.times(slot, layout.entry_bytes);
        let entry = self.b.ins().iadd(bucket, offset);
        if layout.out_of_line {
            // An address of six bytes is loaded with the two bytes before it: keys come first, so these are of the same
            // bucket.
            let before = 8 - ENTRY_ADDRESS_BYTES;
            let at = (layout.entry_offset - before) as i32;
            let address = self.b.ins().load(I64, self.flags.state, entry, at);
            self.b.ins().ushr_imm_u(address, i64::from(8 * before))
        } else {
            self.add_imm(entry, u64::from(layout.entry_offset))
        }
    }

    /// `value * by`; the sum of two shifts has a cycle less latency than a multiplication.
    fn times(&mut self, value: Value, by: u32) -> Value {
        let low = by.trailing_zeros();
        match by.count_ones() {
            1 => self.b.ins().ishl_imm_u(value, i64::from(low)),
            2 => {
                let high = self.b.ins().ishl_imm_u(value, i64::from(by.ilog2()));
                let low = if low > 0 { self.b.ins().ishl_imm_u(value, i64::from(low)) } else { value };
                self.b.ins().iadd(low, high)
            }
            _ => self.b.ins().imul_imm_u(value, i64::from(by)),
        }
    }

    /// A bit for each slot of a bucket that has this key and is live; the bucket's metadata.
    fn exact_live(&mut self, layout: ExactLayout, bucket: Value, key: &[Value]) -> (Value, Value) {
        // The metadata is loaded before keys and entries.
        let meta = self.b.ins().uload32(self.flags.state, bucket, META_OFFSET as i32);
        let same = self.exact_matches(layout, bucket, key);
        (self.b.ins().band(same, meta), meta)
    }

    /// A bit for each slot of a bucket that has this key, live or not.
    fn exact_matches(&mut self, layout: ExactLayout, bucket: Value, key: &[Value]) -> Value {
        let mut bits = None;
        // What follows the last slot may look like a key too; its bit is one that no slot has, and zero in the live
        // bits.
        let words = &key[..layout.key_bytes.div_ceil(8) as usize];
        let is_wide = self.options.has(Optimisation::WideCompare) && wide::is_available();
        if is_wide && !words.iter().any(|&word| self.is_constant(word)) {
            let rest = 8 * layout.slots;
            return match layout.key_bytes {
                4 => self.equal_lanes(Lanes::EightHalves, words[0], bucket, 0),
                8 => self.equal_lanes(Lanes::EightWords, words[0], bucket, 0),
                bytes => {
                    let behind = if bytes == 12 { Lanes::EightHalves } else { Lanes::FourWords };
                    let front = self.equal_lanes(Lanes::FourWords, words[0], bucket, 0);
                    let rest = self.equal_lanes(behind, words[1], bucket, rest);
                    self.b.ins().band(front, rest)
                }
            };
        }
        // Short keys are compared sixteen bytes at a time.
        if let Some(lanes) = match layout.key_bytes {
            4 => Some(I32X4),
            8 => Some(I64X2),
            _ => None,
        } {
            let count = lanes.lane_count();
            let word = if count == 4 { self.b.ins().ireduce(I32, key[0]) } else { key[0] };
            let wanted = self.b.ins().splat(lanes, word);
            for slot in (0..layout.slots).step_by(count as usize) {
                let at = (slot * layout.key_bytes) as i32;
                let stored = self.b.ins().load(lanes, self.flags.state, bucket, at);
                let equal = self.b.ins().icmp(IntCC::Equal, stored, wanted);
                let some = self.b.ins().vhigh_bits(I64, equal);
                bits = Some(self.exact_bit(bits, some, slot));
            }
            return bits.expect("a bucket has slots");
        }
        for slot in 0..layout.slots {
            let mut differ = None;
            for word in 0..layout.key_bytes.div_ceil(8) {
                let left = layout.key_bytes - 8 * word;
                let at = (8 * word * layout.slots + slot * left.min(8)) as i32;
                let stored = if left >= 8 {
                    self.b.ins().load(I64, self.flags.state, bucket, at)
                } else {
                    self.b.ins().uload32(self.flags.state, bucket, at)
                };
                let other = self.b.ins().bxor(stored, key[word as usize]);
                differ = Some(match differ {
                    Some(so_far) => self.b.ins().bor(so_far, other),
                    None => other,
                });
            }
            let differ = differ.expect("a key has a word");
            let equal = self.icmp_imm(IntCC::Equal, differ, 0);
            let one = self.bool_word(equal);
            bits = Some(self.exact_bit(bits, one, slot));
        }
        bits.expect("a bucket has slots")
    }

    /// `bits | more << slot`.
    fn exact_bit(&mut self, bits: Option<Value>, more: Value, slot: u32) -> Value {
        let more = if slot > 0 { self.b.ins().ishl_imm_u(more, i64::from(slot)) } else { more };
        match bits {
            Some(bits) => self.b.ins().bor(bits, more),
            None => more,
        }
    }
}

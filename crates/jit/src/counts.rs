//! Hits and misses of tables.
//!
//! The shared counters belong to the worker. Counting there keeps one more value, their address, live through all of
//! the code. So lookups on hot paths count in the function's own frame, which needs no register, and a batch's counts
//! are added to the shared counters when the entry point returns: readers between two batches see all of them. At most
//! [`CELLS_MAX`] cells are kept in the frame, since batches of a single packet pay for them too; other cells, and those
//! on cold paths, are counted in the shared counters directly.
//!
//! Where each packet goes round the loop once, most of these cells need not be counted: [`derived`] finds which follow
//! from others.
//!
//! Tests: `tests/state.rs`; `crates/datapath/tests/joined.rs` and `recompile.rs`, which compare hits and misses with
//! the interpreter's.

mod derived;

pub(crate) use derived::PacketLoop;

use crate::Optimisation;
use crate::edges;
use crate::rules::{Counted, Selected};
use crate::translate::Translator;
use abi::{Batch, WorkerCtx};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::types::{I8X16, I64};
use cranelift_codegen::ir::{Block, Inst, InstBuilder, MemFlagsData, StackSlot, Value};
use derived::{Counted as CountedEdge, Derived};
use ir::TableId;
use std::collections::HashMap;
use std::mem::offset_of;

/// Most cells that are counted in the frame.
const CELLS_MAX: usize = 16;
/// Most cells that replace them where counts are derived.
const DERIVED_MAX: usize = 32;
/// Cells that the frame has room for. They are cleared in pairs.
const ROOM: usize = if CELLS_MAX > DERIVED_MAX { CELLS_MAX } else { DERIVED_MAX };
const _: () = assert!(ROOM.is_multiple_of(2));
/// Bytes of a cell.
const CELL_BYTES: u32 = 8;

/// The cells that are counted in the frame.
#[derive(Default)]
pub(crate) struct Counts {
    /// The stack slot, with room for the most cells that there can be.
    slot: Option<StackSlot>,
    /// By cell of the stack slot: the offset in the shared counters.
    cells: Vec<u32>,
    /// Where the code adds to cells: the block, the store, and the cell.
    sites: Vec<(Block, Inst, usize)>,
}

impl Translator<'_, '_> {
    /// Counts the hit or miss of a lookup in entries that are part of the code.
    pub fn count_selected(&mut self, table: TableId, selected: &Selected) {
        match selected.counted {
            Counted::Already => {}
            Counted::At(offset) => self.count_apply_at(table, offset),
            Counted::ByHit => self.count_apply_if(table, selected.hit),
        }
    }

    /// Counts a hit or miss of a table.
    pub fn count_apply(&mut self, table: TableId, is_hit: bool) {
        if self.is_prefetch_pass() {
            return;
        }
        let offset = 16 * table.0 + if is_hit { 0 } else { CELL_BYTES };
        match self.cell_in_frame(offset) {
            Some((slot, at)) => {
                let base = self.b.ins().stack_addr(I64, slot, at as i32);
                let old = self.b.ins().load(I64, self.flags.stack, base, 0);
                let new = self.add_imm(old, 1);
                let store = self.b.ins().store(self.flags.stack, new, base, 0);
                let block = self.b.current_block().expect("an operation is being translated");
                self.counts.sites.push((block, store, (at / CELL_BYTES) as usize));
            }
            None => {
                let cells = self.table_counters();
                self.add_to_cell(cells, offset, None);
            }
        }
    }

    /// Counts a hit or miss of a table where `hit` is a value.
    pub fn count_apply_if(&mut self, table: TableId, hit: Value) {
        if let Some(hit) = self.as_constant(hit) {
            return self.count_apply(table, hit == 1);
        }
        let miss = self.b.ins().bxor_imm_u(hit, 1);
        let offset = self.b.ins().ishl_imm_u(miss, 3);
        self.count_apply_at(table, offset);
    }

    /// Counts at `offset`: 0 for a hit, 8 for a miss.
    fn count_apply_at(&mut self, table: TableId, offset: Value) {
        let cells = self.table_counters();
        let at = self.b.ins().iadd(cells, offset);
        self.add_to_cell(at, 16 * table.0, None);
    }

    fn table_counters(&mut self) -> Value {
        let block = self.b.current_block().expect("an operation is being translated");
        // A load that may be moved is hoisted out of the loop, and its result carried by packets that are not counted
        // here.
        let flags = match self.is_cold || self.b.func.layout.is_cold(block) {
            true => MemFlagsData::new().with_notrap().with_alias_region(self.flags.context.alias_region()),
            false => self.flags.context,
        };
        let ctx = self.context();
        self.b.ins().load(I64, flags, ctx, offset_of!(WorkerCtx, table_counters) as i32)
    }

    /// The stack slot and offset of a cell that is counted in the frame; `None` if it is not.
    fn cell_in_frame(&mut self, offset: u32) -> Option<(StackSlot, u32)> {
        let block = self.b.current_block().expect("an operation is being translated");
        if !self.options.has(Optimisation::BatchedCounts) || self.is_cold || self.b.func.layout.is_cold(block) {
            return None;
        }
        let known = self.counts.cells.iter().position(|cell| *cell == offset);
        let at = match known {
            Some(at) => at,
            None if self.counts.cells.len() == CELLS_MAX => return None,
            None => {
                self.counts.cells.push(offset);
                self.counts.cells.len() - 1
            }
        };
        let slot = match self.counts.slot {
            Some(slot) => slot,
            None => {
                let slot = self.stack_slot(ROOM as u32 * CELL_BYTES);
                *self.counts.slot.insert(slot)
            }
        };
        Some((slot, at as u32 * CELL_BYTES))
    }

    /// Where the entry point ends: adds the counts of the batch to the shared counters. All other code has been
    /// generated; the cells are cleared where the function begins. `packet_loop` is the loop in which everything is
    /// counted, if there is one.
    pub fn add_up_counts(&mut self, packet_loop: Option<PacketLoop>) {
        let Counts { slot: Some(slot), cells, sites } = std::mem::take(&mut self.counts) else { return };
        let shared = self.table_counters();
        let places: Vec<(Block, usize)> = sites.iter().map(|(block, _, place)| (*block, *place)).collect();
        let derived = packet_loop
            .filter(|_| self.options.has(Optimisation::DerivedCounts))
            .and_then(|packet_loop| Derived::new(self.b.func, packet_loop, &places, cells.len(), DERIVED_MAX));
        let Some(derived) = derived else {
            for (i, offset) in cells.iter().enumerate() {
                let counted = self.counted(slot, i);
                self.add_to_cell(shared, *offset, Some(counted));
            }
            return self.clear_counts(slot, cells.len());
        };
        // Dead code elimination removes what these stores would have stored.
        sites.into_iter().for_each(|(_, store, _)| self.b.func.layout.remove_inst(store));
        self.count_edges(slot, &derived.counted);
        let packets = self.b.ins().uload32(self.flags.desc, self.batch, offset_of!(Batch, count) as i32);
        let terms: Vec<Value> =
            [packets].into_iter().chain((0..derived.cells.len()).map(|cell| self.counted(slot, cell))).collect();
        let factors = |counter: usize| -> Vec<i64> {
            [derived.packets[counter]].into_iter().chain(derived.cells.iter().map(|cell| cell[counter])).collect()
        };
        // Each sum is computed from the most similar earlier one.
        let mut sums: Vec<(Vec<i64>, Option<Value>)> = vec![(vec![0; terms.len()], None)];
        for (counter, offset) in cells.iter().enumerate() {
            let own = factors(counter);
            let difference = |other: &[i64]| -> Vec<i64> { own.iter().zip(other).map(|(a, b)| a - b).collect() };
            let (rest, mut sum) = sums
                .iter()
                .map(|(other, sum)| (difference(other), *sum))
                .min_by_key(|(rest, _)| rest.iter().filter(|factor| **factor != 0).count())
                .expect("there is the empty sum");
            for (factor, term) in rest.into_iter().zip(&terms).filter(|(factor, _)| *factor != 0) {
                let part = if factor.abs() == 1 { *term } else { self.b.ins().imul_imm_s(*term, factor.abs()) };
                sum = Some(match sum {
                    Some(sum) if factor < 0 => self.b.ins().isub(sum, part),
                    Some(sum) => self.b.ins().iadd(sum, part),
                    None if factor < 0 => self.b.ins().ineg(part),
                    None => part,
                });
            }
            if let Some(sum) = sum {
                self.add_to_cell(shared, *offset, Some(sum));
            }
            sums.push((own, sum));
        }
        self.clear_counts(slot, derived.cells.len());
    }

    /// Loads a cell of the frame.
    fn counted(&mut self, slot: StackSlot, cell: usize) -> Value {
        let at = self.b.ins().stack_addr(I64, slot, (cell as u32 * CELL_BYTES) as i32);
        self.b.ins().load(I64, self.flags.stack, at, 0)
    }

    /// Clears the first cells of the frame where the function begins.
    fn clear_counts(&mut self, slot: StackSlot, cells: usize) {
        let start = self.b.func.layout.entry_block().expect("the function has begun");
        let zero = self.b.func.dfg.constants.insert(vec![0; 16].into());
        debug_assert!(cells <= ROOM, "there is room for all of them");
        for cell in (0..cells).step_by(2) {
            let mut first = FuncCursor::new(self.b.func).at_first_insertion_point(start);
            let zero = first.ins().vconst(I8X16, zero);
            let cells = first.ins().stack_addr(I64, slot, (cell as u32 * CELL_BYTES) as i32);
            first.ins().store(self.flags.stack, zero, cells, 0);
        }
    }

    /// Adds to cells on these edges.
    fn count_edges(&mut self, slot: StackSlot, edges: &[CountedEdge]) {
        let flags = self.flags.stack;
        let before = ControlFlowGraph::with_function(self.b.func);
        // Once for each block: wide switches have many outgoing edges, all of which may be counted.
        let mut known: HashMap<Block, HashMap<Block, Vec<usize>>> = HashMap::new();
        for CountedEdge { from, to, cell, amount } in edges {
            let has_other_edges_in = before.pred_iter(*to).nth(1).is_some();
            let blocks: Vec<Block> = if has_other_edges_in {
                let edges_out = known.entry(*from).or_insert_with(|| {
                    let mut numbers: HashMap<Block, Vec<usize>> = HashMap::new();
                    for (number, target) in edges::targets(self.b.func, *from).into_iter().enumerate() {
                        numbers.entry(target).or_default().push(number);
                    }
                    numbers
                });
                match (&edges_out[to][..], edges_out.len()) {
                    ([_], 1) => vec![*from],
                    (numbers, _) => numbers.iter().map(|n| edges::split(self.b.func, *from, *n)).collect(),
                }
            } else {
                vec![*to]
            };
            for block in blocks {
                let cursor = FuncCursor::new(self.b.func);
                let mut cursor = match block == *to {
                    true => cursor.at_first_insertion_point(block),
                    false => cursor.at_last_inst(block),
                };
                let next = cursor.current_inst().expect("blocks end with a branch");
                cursor.use_srcloc(next);
                let at = cursor.ins().stack_addr(I64, slot, (*cell as u32 * CELL_BYTES) as i32);
                let old = cursor.ins().load(I64, flags, at, 0);
                let amount = cursor.ins().iconst(I64, *amount);
                let new = cursor.ins().iadd(old, amount);
                cursor.ins().store(flags, new, at, 0);
            }
        }
    }
}

//! Hits and misses of tables.
//!
//! The shared counters belong to the worker; their address is one more value to keep through all of the code, and each count goes
//! through it. So lookups on ways that packets are likely to take count in the function's own frame, which needs no register, and
//! what a batch has counted is added to the shared counters when the entry returns: who reads them between two batches sees all.
//! At most [`CELLS_MAX`] cells are kept so, since batches of a single packet pay for them too; others, and those on ways that are
//! seldom taken, are counted where they are.
//!
//! Tests: `crates/datapath/tests/joined.rs` and `recompile.rs`, which compare hits and misses with the interpreter's; `tests/state.rs`
//! for those that are counted where they are.

use crate::Optimisation;
use crate::rules::{Counted, Selected};
use crate::translate::Translator;
use abi::WorkerCtx;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::types::{I8X16, I64};
use cranelift_codegen::ir::{InstBuilder, StackSlot, Value};
use ir::TableId;
use std::mem::offset_of;

/// Most cells that are counted in the frame.
const CELLS_MAX: usize = 16;
/// Bytes of a cell.
const CELL_BYTES: u32 = 8;

/// The cells that are counted in the frame.
#[derive(Default)]
pub(crate) struct Counts {
    /// Where, with room for all that there can be.
    slot: Option<StackSlot>,
    /// By place in the slot: the offset among the shared counters.
    cells: Vec<u32>,
}

impl Translator<'_, '_> {
    /// The hit or miss of a lookup in entries that are part of the code.
    pub fn count_selected(&mut self, table: TableId, selected: &Selected) {
        match selected.counted {
            Counted::Already => {}
            Counted::At(offset) => self.count_apply_at(table, offset),
            Counted::ByHit => self.count_apply_if(table, selected.hit),
        }
    }

    /// One more hit or miss of the table.
    pub fn count_apply(&mut self, table: TableId, is_hit: bool) {
        if self.is_ahead() {
            return;
        }
        let offset = 16 * table.0 + if is_hit { 0 } else { CELL_BYTES };
        match self.cell_in_frame(offset) {
            Some((slot, at)) => {
                let base = self.b.ins().stack_addr(I64, slot, at as i32);
                let old = self.b.ins().load(I64, self.flags.stack, base, 0);
                let new = self.add_imm(old, 1);
                self.b.ins().store(self.flags.stack, new, base, 0);
            }
            None => {
                let cells = self.table_counters();
                self.add_to_cell(cells, offset, None);
            }
        }
    }

    /// The same where it is a value.
    pub fn count_apply_if(&mut self, table: TableId, hit: Value) {
        if let Some(hit) = self.as_constant(hit) {
            return self.count_apply(table, hit == 1);
        }
        let miss = self.b.ins().bxor_imm_u(hit, 1);
        let offset = self.b.ins().ishl_imm_u(miss, 3);
        self.count_apply_at(table, offset);
    }

    /// The same where `offset` is 0 for a hit and 8 for a miss.
    fn count_apply_at(&mut self, table: TableId, offset: Value) {
        let cells = self.table_counters();
        let at = self.b.ins().iadd(cells, offset);
        self.add_to_cell(at, 16 * table.0, None);
    }

    fn table_counters(&mut self) -> Value {
        self.b.ins().load(I64, self.flags.context, self.ctx, offset_of!(WorkerCtx, table_counters) as i32)
    }

    /// Where a cell is counted in the frame, if it is.
    fn cell_in_frame(&mut self, offset: u32) -> Option<(StackSlot, u32)> {
        let block = self.b.current_block().expect("an operation is being translated");
        if !self.options.has(Optimisation::BatchedCounts) || self.is_seldom || self.b.func.layout.is_cold(block) {
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
                let slot = self.stack_slot(CELLS_MAX as u32 * CELL_BYTES);
                *self.counts.slot.insert(slot)
            }
        };
        Some((slot, at as u32 * CELL_BYTES))
    }

    /// The entry ends: what was counted is added up, and nothing had been when it began.
    pub fn add_up_counts(&mut self) {
        let Some(slot) = self.counts.slot else { return };
        let shared = self.table_counters();
        for (i, offset) in std::mem::take(&mut self.counts.cells).into_iter().enumerate() {
            let at = (i as u32 * CELL_BYTES) as i32;
            let cell = self.b.ins().stack_addr(I64, slot, at);
            let counted = self.b.ins().load(I64, self.flags.stack, cell, 0);
            self.add_to_cell(shared, offset, Some(counted));
            if i % 2 == 0 {
                let start = self.b.func.layout.entry_block().expect("the function has begun");
                let zero = self.b.func.dfg.constants.insert(vec![0; 16].into());
                let mut first = FuncCursor::new(self.b.func).at_first_insertion_point(start);
                let zero = first.ins().vconst(I8X16, zero);
                let cells = first.ins().stack_addr(I64, slot, at);
                first.ins().store(self.flags.stack, zero, cells, 0);
            }
        }
    }
}

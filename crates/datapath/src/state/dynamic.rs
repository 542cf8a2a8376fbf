//! Tables that packets write: creation, expiry, and notification of the control plane.
//!
//! Their memory is allocated up front and reserved like that of registers ([`crate::memory`]): a program whose tables
//! need too much is refused when it is loaded, and packets never allocate.
//!
//! Threads: workers add entries themselves (`tables::exact::dynamic`). This file is for housekeeping, which expires
//! entries, and for the control plane, which is notified through a bounded list.
//!
//! Tests: `tests/dynamic.rs`.

use super::{Cells, FastState, LoadError, lock};
use crate::memory::Reservation;
use abi::entry::TICK_US;
use abi::state::{DynamicCounts, EXPIRED_MAX};
use base::entry::{CounterValue, TableEntry};
use base::ids::TableId;
use ir::{Cfg, Dynamic, EntryPoint, Expiry, Inst, Op, Program, StageId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tables::{DynamicSpec, Table};

/// Expired entries for the control plane.
#[derive(Debug, Default)]
pub(super) struct Expired {
    waiting: Mutex<Vec<(TableId, TableEntry)>>,
    /// By table: entries not reported because the list was full.
    unreported: Vec<AtomicU64>,
}

impl Expired {
    pub(super) fn new(tables: usize) -> Expired {
        Expired { waiting: Mutex::default(), unreported: (0..tables).map(|_| AtomicU64::new(0)).collect() }
    }

    fn push(&self, table: TableId, entry: TableEntry) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < EXPIRED_MAX {
            waiting.push((table, entry));
        } else {
            self.unreported[table.index()].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self) -> Vec<(TableId, TableEntry)> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The settings of a dynamic table for the match engine.
pub(super) fn spec_of(dynamic: &Dynamic) -> DynamicSpec {
    DynamicSpec {
        expires: dynamic.expiry != Expiry::Never,
        deletes: dynamic.expiry.deletes(),
        tells: matches!(dynamic.expiry, Expiry::Notify | Expiry::DeleteAndNotify),
        restart_on_hit: dynamic.restart_on_hit,
        expire_ms: dynamic.expire_ms.clone(),
        evicts: dynamic.evicts,
        step_ticks: dynamic.step_ticks(TICK_US) as u32,
    }
}

/// The most entries of a table that a packet replaces or evicts in one run; `None` if it may do so in a loop.
fn retirements(program: &Program, table: TableId) -> Option<u32> {
    let evicts = program.tables[table.index()].dynamic.as_ref().is_some_and(|dynamic| dynamic.evicts);
    let retires = |inst: &&Inst| matches!(&inst.op, Op::AddEntry { table: of, replace, .. } if *of == table && (*replace || evicts));
    let of_stage = |stage: &StageId| -> Option<u32> {
        let stage = &program.stages[stage.index()];
        let cfg = Cfg::new(stage);
        let in_loops = cfg.blocks_in_loops();
        let mut most = vec![0; stage.blocks.len()];
        for block in &cfg.rpo {
            let here = stage.blocks[block.index()].insts.iter().filter(retires).count() as u32;
            if here > 0 && in_loops[block.index()] {
                return None;
            }
            // Only in loops does an edge lead back, to where nothing has been counted.
            let before = cfg.preds[block.index()].iter().map(|pred| most[pred.index()]).max().unwrap_or(0);
            most[block.index()] = before + here;
        }
        Some(most.into_iter().max().unwrap_or(0))
    };
    let of_entry = |entry: &EntryPoint| entry.stages.iter().map(of_stage).sum::<Option<u32>>();
    program.entries.iter().map(of_entry).try_fold(0, |most, of_entry| Some(most.max(of_entry?)))
}

/// Reserves the memory of a table that packets write; `None` for other tables.
pub(super) fn reserve(name: &str, size: u64, table: &Table) -> Result<Option<Reservation>, LoadError> {
    if !table.is_dynamic() {
        return Ok(None);
    }
    let refused = |limit| LoadError::Memory { name: name.to_string(), cells: size, limit: Some(limit) };
    Reservation::new(table.memory_bytes()).map(Some).map_err(refused)
}

impl FastState {
    /// Makes tables clear the direct resources of removed entries before their indices are reused, and tells them how many
    /// entries a packet may replace.
    pub(super) fn watch_releases(&self) {
        let content = self.lock();
        for (i, table) in self.program.tables.iter().enumerate().filter(|(_, t)| t.dynamic.is_some()) {
            let retirements = retirements(&self.program, TableId::from_index(i)).unwrap_or(u32::MAX);
            lock(&content.tables[i]).table.set_retirements(retirements);
            let cells: Vec<Cells> = table.direct.iter().map(|ext| self.cells[ext.index()].clone()).collect();
            if cells.is_empty() {
                continue;
            }
            let reset = move |index: u32| cells.iter().for_each(|cells| cells.reset(index));
            lock(&content.tables[i]).table.on_release(Box::new(reset));
        }
    }

    /// Removes or reports entries whose time has run out.
    pub(super) fn expire_entries(&self, now_us: u64) {
        for (i, _) in self.program.tables.iter().enumerate().filter(|(_, t)| t.dynamic.is_some()) {
            let id = TableId::from_index(i);
            // The state's lock is not held during expiry.
            let table = std::sync::Arc::clone(&self.lock().tables[i]);
            lock(&table).table.expire(now_us, |entry| self.expired.push(id, entry));
        }
    }

    pub(super) fn counts_of(&self, table: TableId) -> DynamicCounts {
        let counts = lock(&self.lock().tables[table.index()]).table.dynamic_counts();
        DynamicCounts { unreported: self.expired.unreported[table.index()].load(Ordering::Relaxed), ..counts }
    }
}

impl Cells {
    /// Clears the resources of an index.
    pub(super) fn reset(&self, index: u32) {
        match self {
            Cells::Counters(counters) => _ = counters.set(index.into(), CounterValue::default()),
            Cells::Meters(meters) => _ = meters.configure(index.into(), None) && meters.reset_counts(index.into()),
            Cells::Registers(_) | Cells::None => {}
        }
    }
}

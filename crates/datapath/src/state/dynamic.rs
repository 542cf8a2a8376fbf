//! Tables that packets write: how they are made, and what ends in them.
//!
//! Their memory is there from the start, so it is reserved like that of registers ([`crate::memory`]): a program whose tables
//! would take too much is refused when it is loaded, and packets never ask for memory.
//!
//! Threads: workers add entries by themselves (`tables::exact::dynamic`). What is here is the housekeeping's, which ends
//! entries, and the control plane's, which is told of them through a bounded list.
//!
//! Tests: `tests/dynamic.rs`.

use super::{Cells, FastState, LoadError, lock};
use crate::memory::Reservation;
use abi::entry::TICK_US;
use abi::state::{DynamicCounts, EXPIRED_MAX};
use base::entry::{CounterValue, TableEntry};
use base::ids::TableId;
use ir::{Dynamic, Expiry};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tables::{DynamicSpec, Table};

/// Entries whose time is over, for the control plane.
#[derive(Debug, Default)]
pub(super) struct Expired {
    waiting: Mutex<Vec<(TableId, TableEntry)>>,
    /// By table: those that found no room.
    untold: Vec<AtomicU64>,
}

impl Expired {
    pub(super) fn new(tables: usize) -> Expired {
        Expired { waiting: Mutex::default(), untold: (0..tables).map(|_| AtomicU64::new(0)).collect() }
    }

    fn push(&self, table: TableId, entry: TableEntry) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < EXPIRED_MAX {
            waiting.push((table, entry));
        } else {
            self.untold[table.index()].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self) -> Vec<(TableId, TableEntry)> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What packets do, to the table.
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

/// Reserves the memory that a table takes for its size, if packets write it.
pub(super) fn reserve(name: &str, size: u64, table: &Table) -> Result<Option<Reservation>, LoadError> {
    if !table.is_dynamic() {
        return Ok(None);
    }
    let refused = |limit| LoadError::Memory { name: name.to_string(), cells: size, limit: Some(limit) };
    Reservation::new(table.memory_bytes()).map(Some).map_err(refused)
}

impl FastState {
    /// Has the direct resources of entries that packets end set to zero before others get their indices.
    pub(super) fn watch_releases(&self) {
        let content = self.lock();
        for (i, table) in self.program.tables.iter().enumerate().filter(|(_, t)| t.dynamic.is_some()) {
            let cells: Vec<Cells> = table.direct.iter().map(|ext| self.cells[ext.index()].clone()).collect();
            if cells.is_empty() {
                continue;
            }
            let reset = move |index: u32| cells.iter().for_each(|cells| cells.reset(index));
            lock(&content.tables[i]).table.on_release(Box::new(reset));
        }
    }

    /// Ends entries whose time is over.
    pub(super) fn expire_entries(&self, now_us: u64) {
        for (i, _) in self.program.tables.iter().enumerate().filter(|(_, t)| t.dynamic.is_some()) {
            let id = TableId::from_index(i);
            // The state's lock is free meanwhile.
            let table = std::sync::Arc::clone(&self.lock().tables[i]);
            lock(&table).table.expire(now_us, |entry| self.expired.push(id, entry));
        }
    }

    pub(super) fn counts_of(&self, table: TableId) -> DynamicCounts {
        let counts = lock(&self.lock().tables[table.index()]).table.dynamic_counts();
        DynamicCounts { untold: self.expired.untold[table.index()].load(Ordering::Relaxed), ..counts }
    }
}

impl Cells {
    /// Sets the resources of an index to zero.
    pub(super) fn reset(&self, index: u32) {
        match self {
            Cells::Counters(counters) => _ = counters.set(index.into(), CounterValue::default()),
            Cells::Meters(meters) => _ = meters.configure(index.into(), None) && meters.reset_counts(index.into()),
            Cells::Registers(_) | Cells::None => {}
        }
    }
}

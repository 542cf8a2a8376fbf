//! Snapshots of table shapes for specialised compilation ([`crate::tiers`]) and for traces of flow caches
//! ([`crate::flow_cache`]).

use super::cells::Registers;
use super::profile::Resolved;
use super::{Cells, FastState, lock};
use abi::state::{Phase, ReadEntry};
use abi::{EngineKind, Shapes};
use base::entry::{ActionCall, EntryAction, KeyMatch};
use base::ids::TableId;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tables::Wanted;

/// Polling interval of a compilation that waits for the end of a batch of updates; batches take milliseconds, and
/// compilations longer.
const BATCH_POLL: Duration = Duration::from_millis(1);

/// Size and change counts of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Activity {
    /// Entries.
    pub(crate) len: u64,
    /// Changes of entries or of the default action since the table was created.
    pub(crate) changes: u64,
    /// The number of distinct entry contents, and how often a new one was added, if many keys share few contents.
    pub(crate) contents: Option<(u64, u64)>,
    /// Approximate memory that lookups can touch, in bytes.
    pub(crate) footprint_bytes: u64,
    /// How code probes it; may change permanently when the table grows.
    pub(crate) engine: EngineKind,
}

impl FastState {
    /// The current generation. It advances before anything changes that [`FastState::shapes`] has returned.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.domain.generation()
    }

    /// The shapes of all tables, and the generation in which they are valid. `wanted` selects what to return about a
    /// table's entries. Waits for the end of a batch that may be rolled back: otherwise rolling back would have to
    /// invalidate shapes that were handed out meanwhile.
    pub(crate) fn shapes(&self, wanted: impl Fn(TableId) -> Option<Wanted>) -> (u64, Shapes) {
        loop {
            let content = self.lock();
            if content.phase.0 == Phase::Single {
                // Read the generation first: another state may share some tables and change them without this state's
                // lock.
                let generation = self.domain.generation();
                let tables = content.tables.iter().enumerate();
                let shapes = tables.map(|(i, t)| lock(t).table.shape(wanted(TableId::from_index(i)))).collect();
                return (generation, Shapes { tables: shapes });
            }
            drop(content);
            std::thread::sleep(BATCH_POLL);
        }
    }

    /// Estimates how much of each register is in use, for [`FastState::registers_are_large`].
    pub(crate) fn look_at_registers(&self) {
        self.all_registers().for_each(Registers::look);
    }

    /// For each register: whether packets use so much of it that code prefetches cells.
    pub(crate) fn registers_are_large(&self) -> Vec<bool> {
        self.all_registers().map(|r| r.footprint_bytes() > jit::prefetched_bytes_min(r.has_locks())).collect()
    }

    fn all_registers(&self) -> impl Iterator<Item = &Registers> {
        self.cells.iter().filter_map(|cells| match cells {
            Cells::Registers(registers) => Some(&**registers),
            _ => None,
        })
    }

    /// A table's change count, readable from any thread. It advances before any part of a change becomes visible, and
    /// before the domain's generation does.
    pub(crate) fn changes_of(&self, table: TableId) -> Arc<AtomicU64> {
        lock(&self.lock().tables[table.index()]).table.changes_seen()
    }

    /// An entry of a table, and the cell index of its direct resources.
    pub(crate) fn find_with_cell(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Option<(ReadEntry, u32)> {
        let now_us = self.now_us();
        let content = self.lock();
        let mut state = lock(&content.tables[table.index()]);
        let entry = state.table.entry(key, priority, now_us).ok()?;
        let cell = state.table.find(key, priority).ok()?;
        Some((entry, cell))
    }

    /// The action call that a table's action resolves to; `None` if a group chooses it, or a member does not exist.
    pub(crate) fn call_of(&self, table: TableId, action: &EntryAction) -> Option<ActionCall> {
        match self.resolve(&self.lock(), table, action).ok()? {
            Resolved::Call(call) => Some(call.into_owned()),
            Resolved::Group(_) => None,
        }
    }

    /// The cell index of direct resources of a table's default entry.
    pub(crate) fn default_cell(&self, table: TableId) -> u32 {
        lock(&self.lock().tables[table.index()]).table.default_index()
    }

    /// The [`Activity`] of each table.
    pub(crate) fn activity(&self) -> Vec<Activity> {
        let content = self.lock();
        let of = |table: &tables::Table| Activity {
            len: table.len(),
            changes: table.changes(),
            contents: table.contents(),
            footprint_bytes: table.footprint_bytes(),
            engine: table.engine(),
        };
        content.tables.iter().map(|t| of(&lock(t).table)).collect()
    }
}

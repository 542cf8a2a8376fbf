//! What the tables are like at a moment, for code that is compiled for them as they are ([`crate::tiers`]), and for traces of flow caches
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

/// How often a compilation looks whether a batch has ended: batches take milliseconds, and compilations more.
const BATCH_POLL: Duration = Duration::from_millis(1);

/// How much a table is used by its writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Activity {
    /// Entries.
    pub(crate) len: u64,
    /// Changes of entries or the default since the table was made.
    pub(crate) changes: u64,
    /// How many contents entries have, and how often there was a new one, if many keys share few.
    pub(crate) contents: Option<(u64, u64)>,
    /// About how much memory lookups can touch.
    pub(crate) footprint_bytes: u64,
    /// How code probes it, which may change for good when it grows.
    pub(crate) engine: EngineKind,
}

impl FastState {
    /// The generation in which what [`FastState::shapes`] says holds; another one begins before any of that changes.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.domain.generation()
    }

    /// All tables as they are, and the generation in which that holds. `wanted` says what is to be known of a table's entries. Waits for
    /// the end of a batch that may be taken back: that would need what code was told meanwhile to be invalidated.
    pub(crate) fn shapes(&self, wanted: impl Fn(TableId) -> Option<Wanted>) -> (u64, Shapes) {
        loop {
            let content = self.lock();
            if content.phase.0 == Phase::Single {
                // Before the tables are read: another state may share some of them, and change them without this one's lock.
                let generation = self.domain.generation();
                let tables = content.tables.iter().enumerate();
                let shapes = tables.map(|(i, t)| lock(t).table.shape(wanted(TableId::from_index(i)))).collect();
                return (generation, Shapes { tables: shapes });
            }
            drop(content);
            std::thread::sleep(BATCH_POLL);
        }
    }

    /// Looks how much of each register is in use; [`FastState::registers_are_large`] says what was seen.
    pub(crate) fn look_at_registers(&self) {
        self.all_registers().for_each(Registers::look);
    }

    /// Of each register, whether packets use so much of it that code asks for cells ahead.
    pub(crate) fn registers_are_large(&self) -> Vec<bool> {
        self.all_registers().map(|r| r.footprint_bytes() > jit::prefetched_bytes_min(r.has_locks())).collect()
    }

    fn all_registers(&self) -> impl Iterator<Item = &Registers> {
        self.cells.iter().filter_map(|cells| match cells {
            Cells::Registers(registers) => Some(&**registers),
            _ => None,
        })
    }

    /// How often a table was to be changed, for any thread: another number before anything of a change can be seen, and before the
    /// domain's is another.
    pub(crate) fn changes_of(&self, table: TableId) -> Arc<AtomicU64> {
        lock(&self.lock().tables[table.index()]).table.changes_seen()
    }

    /// An entry of a table, and the cell of its direct resources.
    pub(crate) fn find_with_cell(&self, table: TableId, key: &[KeyMatch], priority: i32) -> Option<(ReadEntry, u32)> {
        let now_us = self.now_us();
        let content = self.lock();
        let mut state = lock(&content.tables[table.index()]);
        let entry = state.table.entry(key, priority, now_us).ok()?;
        let cell = state.table.find(key, priority).ok()?;
        Some((entry, cell))
    }

    /// What an action of a table runs by itself: nothing if a group chooses, or a member is not there.
    pub(crate) fn call_of(&self, table: TableId, action: &EntryAction) -> Option<ActionCall> {
        match self.resolve(&self.lock(), table, action).ok()? {
            Resolved::Call(call) => Some(call.into_owned()),
            Resolved::Group(_) => None,
        }
    }

    /// The cell of direct resources of a table's default entry.
    pub(crate) fn default_cell(&self, table: TableId) -> u32 {
        lock(&self.lock().tables[table.index()]).table.default_index()
    }

    /// What has been done to each table.
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

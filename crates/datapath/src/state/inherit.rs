//! State that a new program takes over from the old one; [`Keep`] lists it object by object.
//!
//! - Objects of the same shape are *shared*: the new state uses the old one's tables, profiles and cells. Packets of
//!   both programs may use them at the same time, as two workers of one program do; one `Domain` tracks the epochs of
//!   both programs' workers. A change-over with a million entries moves none of them.
//! - Registers of another size are *copied* while no packet runs ([`FastState::take_registers`]): values that packets
//!   read and write back cannot be merged by addition. The same holds for registers that the two programs lock
//!   differently: workers of one program would not exclude those of the other.
//! - Counts of objects that the control plane copies because their shape differs are *added* once the old program has
//!   run its last packet ([`FastState::inherit`]), so that none is lost between copying and changing over.
//!
//! Both programs have the same workers: each counter cell still has one writer, the worker's thread, which runs one
//! program after the other.
//!
//! Threads: the control plane's. Tests: whole programs under load in `crates/sluice/src/target/tests.rs`.

use super::{Cells, FastState, LoadError, Profile, TableState, lock};
use crate::calls::hash::Parametric;
use base::ids::{ExternId, TableId};
use ir::{Atomicity, ExternKind, Program};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// What a new program takes over from an old one. In each pair, the first id is the old program's, the second the new
/// one's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// Shared tables and value sets, of the same shape. With a table go its profile and its direct resources, which
    /// must be in `externs`, and with a profile all tables that use it.
    pub tables: Vec<(TableId, TableId)>,
    /// Shared counters, meters, registers, action profiles and selectors, of the same shape.
    pub externs: Vec<(ExternId, ExternId)>,
    /// Tables whose entries are copied, with the same keys.
    pub copied_tables: Vec<(TableId, TableId)>,
    /// Counters and meters of another shape, and direct ones of `copied_tables`.
    pub copied_externs: Vec<(ExternId, ExternId)>,
    /// Registers of another size with cells of the same type.
    pub copied_registers: Vec<(ExternId, ExternId)>,
}

/// An extern's cells, and its profile if it has members.
type InheritedExtern = (Cells, Option<Arc<Mutex<Profile>>>);

/// The objects that a new state shares, by ids of its own program.
#[derive(Default)]
pub(super) struct Inherited {
    pub(super) tables: HashMap<TableId, Arc<Mutex<TableState>>>,
    pub(super) externs: HashMap<ExternId, InheritedExtern>,
    pub(super) ports_down: BTreeSet<u32>,
    pub(super) hashes: Option<Arc<Parametric>>,
}

impl FastState {
    /// As [`FastState::new`], sharing the objects of `old` that `keep` lists.
    ///
    /// # Errors
    /// As [`FastState::new`].
    pub fn inheriting(program: Arc<Program>, old: &FastState, keep: &Keep) -> Result<FastState, LoadError> {
        let mut inherited = {
            let content = old.lock();
            let table = |(from, to): &(TableId, TableId)| (*to, Arc::clone(&content.tables[from.index()]));
            let ext = |(from, to): &(ExternId, ExternId)| {
                (*to, (old.cells[from.index()].clone(), content.profiles[from.index()].clone()))
            };
            Inherited {
                tables: keep.tables.iter().map(table).collect(),
                externs: keep.externs.iter().map(ext).collect(),
                ports_down: content.ports_down.clone(),
                hashes: Some(Arc::clone(&old.hashes)),
            }
        };
        let atomicity = super::atomicity(&program, old.taken.len());
        if !old.is_locked_alike(&atomicity, keep) {
            inherited.externs.retain(|_, (cells, _)| !matches!(cells, Cells::Registers(_)));
        }
        let state = FastState::with(program, old.taken.len(), Arc::clone(&old.domain), &inherited, atomicity)?;
        state.set_time(old.now_us());
        Ok(state)
    }

    /// Adds the counts of `old` for objects that are not shared. Must be called once, when no packet runs through the
    /// old program any more.
    pub fn inherit(&self, old: &FastState, keep: &Keep) {
        for (from, to) in keep.tables.iter().chain(&keep.copied_tables) {
            let (hits, misses) = old.table_counters(*from);
            let cell = &self.earlier[to.index()];
            cell[0].fetch_add(hits, Ordering::Relaxed);
            cell[1].fetch_add(misses, Ordering::Relaxed);
        }
        for (from, to) in &keep.copied_externs {
            for (old_index, new_index) in self.same_cells(old, *from, *to, keep) {
                match (&old.cells[from.index()], &self.cells[to.index()]) {
                    (Cells::Counters(was), Cells::Counters(now)) => {
                        let _ = was.get(old_index).is_some_and(|value| now.add(new_index, value));
                    }
                    (Cells::Meters(was), Cells::Meters(now)) => now.inherit(new_index, was, old_index),
                    _ => {}
                }
            }
        }
    }

    /// Whether packets of a program with atomicity `new` may use the kept registers at the same time as packets of
    /// this program: both lock the same cells in the same order, or both take turns.
    fn is_locked_alike(&self, new: &Atomicity, keep: &Keep) -> bool {
        let registers = keep.externs.iter().filter(|(from, _)| matches!(self.cells[from.index()], Cells::Registers(_)));
        let pairs = registers.map(|(from, to)| (self.atomicity.rank(*from), new.rank(*to)));
        let mut ranks: Vec<(Option<u32>, Option<u32>)> = pairs.collect();
        ranks.sort_unstable();
        let is_same_form = ranks.iter().all(|(was, now)| was.is_some() == now.is_some());
        let is_same_order = ranks.windows(2).all(|pair| pair[0].1 <= pair[1].1);
        is_same_form && is_same_order && self.takes_turns() == new.takes_turns()
    }

    /// The registers that are copied: those that `keep` lists, and those that could not be shared.
    fn copied_registers<'k>(
        &'k self,
        old: &'k FastState,
        keep: &'k Keep,
    ) -> impl Iterator<Item = &'k (ExternId, ExternId)> {
        let apart = move |(from, to): &&(ExternId, ExternId)| match (&old.cells[from.index()], &self.cells[to.index()])
        {
            (Cells::Registers(was), Cells::Registers(now)) => !Arc::ptr_eq(was, now),
            _ => false,
        };
        keep.copied_registers.iter().chain(keep.externs.iter().filter(apart))
    }

    /// Whether [`FastState::take_registers`] has anything to copy.
    pub fn takes_registers(&self, old: &FastState, keep: &Keep) -> bool {
        self.copied_registers(old, keep).next().is_some()
    }

    /// Copies registers that are not shared; cells with the old program's initial value get the new one's. Must be
    /// called while no packet runs through either program.
    pub fn take_registers(&self, old: &FastState, keep: &Keep) {
        let initial = |state: &FastState, ext: ExternId| match &state.program.externs[ext.index()].kind {
            ExternKind::Register { initial, .. } => Some(initial.clone()),
            _ => None,
        };
        for (from, to) in self.copied_registers(old, keep) {
            let cells = (&old.cells[from.index()], &self.cells[to.index()]);
            let (Cells::Registers(was), Cells::Registers(now)) = cells else { continue };
            if let (Some(before), Some(after)) = (initial(old, *from), initial(self, *to)) {
                now.take(was, &before, &after);
            }
        }
    }

    /// Pairs of cells (old index, new index) that correspond: the same array index, or direct resources of entries
    /// with the same key.
    fn same_cells(&self, old: &FastState, from: ExternId, to: ExternId, keep: &Keep) -> Vec<(u64, u64)> {
        let kind = |state: &FastState, ext: ExternId| match state.program.externs[ext.index()].kind {
            ExternKind::Counter { size, direct, .. } | ExternKind::Meter { size, direct, .. } => Some((size, direct)),
            _ => None,
        };
        match (kind(old, from), kind(self, to)) {
            (Some((was, None)), Some((now, None))) => (0..was.min(now)).map(|index| (index, index)).collect(),
            (Some((_, Some(was))), Some((_, Some(now)))) if keep.copied_tables.contains(&(was, now)) => {
                let was = Arc::clone(&old.lock().tables[was.index()]);
                let now = Arc::clone(&self.lock().tables[now.index()]);
                let default = |table: &Mutex<TableState>| u64::from(lock(table).table.default_index());
                let mut pairs = vec![(default(&was), default(&now))];
                let entries = lock(&now).table.entries(0);
                for entry in entries.iter().map(|read| &read.entry) {
                    let find = |table: &Mutex<TableState>| lock(table).table.find(&entry.key, entry.priority);
                    if let (Ok(was), Ok(now)) = (find(&was), find(&now)) {
                        pairs.push((was.into(), now.into()));
                    }
                }
                pairs
            }
            _ => vec![],
        }
    }
}

//! Table contents for traces: snapshots of entries with the tables' change counts.
//!
//! Tables of exact fields are looked up directly. The entries of all others are copied into a [`Classifier`], again
//! after changes, but only so often that this takes at most an eighth of a processor. A table that changes faster, or
//! is too large, is left to the pipeline. Change counts are read before contents: if a path's counts still equal
//! those of the tables later, the path is correct then ([`super::path`]).
//!
//! One thread, the tracer's.

use crate::state::FastState;
use abi::PipelineState;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::TableId;
use flowcache::tables::Classifier;
use flowcache::trace::{Lookup, Tables};
use ir::Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most entries copied from all tables together; an entry takes some hundred bytes.
const ENTRIES_MAX: u64 = 1 << 18;
/// After copying a table, the tracer waits this many times as long as copying took before it copies the table again.
const REST: u32 = 7;

/// A snapshot of a table's entries.
struct Snapshot {
    changes: u64,
    entries: Vec<TableEntry>,
    classifier: Classifier,
}

struct TableContents {
    changes: Arc<AtomicU64>,
    keys: Vec<(u32, MatchKind)>,
    /// Whether the table is looked up directly.
    is_exact: bool,
    has_direct: bool,
    snapshot: Option<Snapshot>,
    not_before: Option<Instant>,
    /// The change count that the current trace relies on.
    relied: Option<u64>,
}

/// The tables of a program, as the tracer sees them.
pub(super) struct Contents {
    fast: Arc<FastState>,
    program: Arc<Program>,
    tables: Vec<TableContents>,
    entries: u64,
    /// Lookups of the trace, in order.
    lookups: Vec<(TableId, bool)>,
    /// Why a lookup of the current trace was refused.
    refused: Option<String>,
}

/// What a lookup matched.
struct Matched {
    action: EntryAction,
    cell: u32,
    is_timed: bool,
}

impl Contents {
    pub(super) fn new(fast: Arc<FastState>) -> Contents {
        let program = Arc::clone(fast.program());
        let of = |(i, table): (usize, &ir::Table)| TableContents {
            changes: fast.changes_of(TableId::from_index(i)),
            keys: table.keys.iter().map(|key| (key.width, key.kind)).collect(),
            is_exact: table.keys.iter().all(|key| key.kind == MatchKind::Exact),
            has_direct: !table.direct.is_empty(),
            snapshot: None,
            not_before: None,
            relied: None,
        };
        let tables = program.tables.iter().enumerate().map(of).collect();
        Contents { fast, program, tables, entries: 0, lookups: Vec::new(), refused: None }
    }

    /// Begins a trace.
    pub(super) fn begin_trace(&mut self) {
        self.tables.iter_mut().for_each(|table| table.relied = None);
        self.refused = None;
    }

    /// Why a lookup of the trace was refused, if one was.
    pub(super) fn take_refused(&mut self) -> Option<String> {
        self.refused.take()
    }

    /// The lookups of the trace, with whether each hit.
    pub(super) fn lookups(&self) -> &[(TableId, bool)] {
        &self.lookups
    }

    /// The tables that the trace has looked up, with their change counts.
    pub(super) fn relied(&self) -> Vec<(Arc<AtomicU64>, u64)> {
        self.tables.iter().filter_map(|table| Some((Arc::clone(&table.changes), table.relied?))).collect()
    }

    /// Frees all snapshots; they are copied again when needed.
    pub(super) fn clear(&mut self) {
        self.tables.iter_mut().for_each(|table| table.snapshot = None);
        self.entries = 0;
    }

    fn refuse<T>(&mut self, table: TableId, why: &str) -> Option<T> {
        self.refused.get_or_insert_with(|| format!("table `{}`: {why}", self.program.tables[table.index()].name));
        None
    }

    /// The entry that a key matches, and the key bits that decided (by field; missing fields decided with all bits).
    /// `None` if the lookup is refused.
    fn matched(&mut self, id: TableId, keys: &[Bits]) -> Option<(Option<Matched>, Vec<Bits>)> {
        let table = &mut self.tables[id.index()];
        if table.is_exact {
            // Contents read after this are at least as new.
            let changes = table.changes.load(Ordering::Acquire);
            if *table.relied.get_or_insert(changes) != changes {
                return self.refuse(id, "it has changed meanwhile");
            }
            if table.keys.is_empty() {
                return Some((None, Vec::new()));
            }
            let key: Vec<KeyMatch> = keys.iter().cloned().map(KeyMatch::Exact).collect();
            let found = self.fast.find_with_cell(id, &key, 0);
            let matched = found.map(|(read, cell)| Matched {
                action: read.entry.action,
                cell,
                is_timed: read.entry.idle_timeout_ns != 0,
            });
            return Some((matched, Vec::new()));
        }
        self.renew(id)?;
        let table = &mut self.tables[id.index()];
        let snapshot = table.snapshot.as_ref()?;
        if *table.relied.get_or_insert(snapshot.changes) != snapshot.changes {
            return self.refuse(id, "it has changed meanwhile");
        }
        let found = snapshot.classifier.lookup(keys);
        let Some(entry) = found.entry.and_then(|at| snapshot.entries.get(at as usize)) else {
            return Some((None, found.consulted));
        };
        let cell = match table.has_direct {
            false => 0,
            true => match self.fast.find_with_cell(id, &entry.key, entry.priority) {
                Some((_, cell)) => cell,
                None => return self.refuse(id, "it has changed meanwhile"),
            },
        };
        let is_timed = entry.idle_timeout_ns != 0;
        Some((Some(Matched { action: entry.action.clone(), cell, is_timed }), found.consulted))
    }

    /// Copies a table's entries unless the snapshot is current.
    fn renew(&mut self, id: TableId) -> Option<()> {
        let table = &mut self.tables[id.index()];
        let changes = table.changes.load(Ordering::Acquire);
        if table.snapshot.as_ref().is_some_and(|snapshot| snapshot.changes == changes) {
            return Some(());
        }
        let begin = Instant::now();
        if table.not_before.is_some_and(|not_before| begin < not_before) {
            return self.refuse(id, "it changes too often");
        }
        if let Some(old) = table.snapshot.take() {
            self.entries -= old.entries.len() as u64;
        }
        if self.entries + self.fast.len(id) > ENTRIES_MAX {
            return self.refuse(id, &format!("it and others have more than {ENTRIES_MAX} entries"));
        }
        let entries: Vec<TableEntry> = self.fast.entries(id).into_iter().map(|read| read.entry).collect();
        let table = &mut self.tables[id.index()];
        let classifier = Classifier::new(&table.keys, &entries);
        let took = begin.elapsed();
        table.not_before = Some(begin + took + (took * REST).max(Duration::from_millis(1)));
        if table.changes.load(Ordering::Acquire) != changes {
            return self.refuse(id, "it changes too often");
        }
        self.entries += entries.len() as u64;
        table.snapshot = Some(Snapshot { changes, entries, classifier });
        Some(())
    }

    /// The action call that an entry runs; `None` if refused.
    fn call(&mut self, id: TableId, action: EntryAction) -> Option<ActionCall> {
        match action {
            EntryAction::Call(call) => Some(call),
            EntryAction::Group(_) => self.refuse(id, "a group chooses the action"),
            // Read after the entry: a change of a member changes the table's count first.
            EntryAction::Member(_) => match self.fast.call_of(id, &action) {
                Some(call) => Some(call),
                None => self.refuse(id, "it has changed meanwhile"),
            },
        }
    }
}

impl Tables for Contents {
    fn begin(&mut self) {
        self.lookups.clear();
    }

    fn lookup(&mut self, id: TableId, keys: &[Bits], _: &[Bits]) -> Option<Lookup> {
        let table = &self.program.tables[id.index()];
        if table.dynamic.is_some() {
            return self.refuse(id, "packets write it");
        }
        let (matched, consulted) = self.matched(id, keys)?;
        let hit = matched.is_some();
        let (action, cell) = match matched {
            Some(Matched { is_timed: true, .. }) => return self.refuse(id, "the entry has an idle timeout"),
            Some(_) if self.program.tables[id.index()].idle_timeout => {
                return self.refuse(id, "it keeps the times of hits");
            }
            Some(matched) => (matched.action, matched.cell),
            None => (self.fast.default_action(id), self.fast.default_cell(id)),
        };
        let call = self.call(id, action)?;
        self.lookups.push((id, hit));
        Some(Lookup { hit, action: call.action, args: call.args, entry: cell.into(), consulted, by_selector: false })
    }
}

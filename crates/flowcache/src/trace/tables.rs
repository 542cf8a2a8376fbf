//! The interface of a trace to tables, and the counter updates that it reports.

use crate::tables::Classifier;
use base::Bits;
use base::entry::{EntryAction, TableEntry};
use base::ids::{ExternId, TableId};
use ir::Program;

/// The result of a table lookup.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// Whether an entry matched.
    pub hit: bool,
    /// The index of the action in the table's list; on a miss, that of the default action.
    pub action: u32,
    /// The action's arguments, with the widths of its parameters.
    pub args: Vec<Bits>,
    /// A handle of the entry, for direct counters; its meaning is up to the [`Tables`].
    pub entry: u64,
    /// For each key, the bits that determined the result, with the key's width. Missing keys determined it wholly.
    pub consulted: Vec<Bits>,
    /// Whether the selector determined the result as well.
    pub by_selector: bool,
}

/// Tables that can tell on which key bits a result depends.
pub trait Tables {
    /// Begins a pass of the trace: earlier lookups will be repeated.
    fn begin(&mut self) {}

    /// Looks up a key (`ir::Op::Apply`). `None` if the result does not hold for other packets.
    ///
    /// All keys that agree in the bits of `consulted` must have the same result.
    fn lookup(&mut self, table: TableId, keys: &[Bits], selector: &[Bits]) -> Option<Lookup>;
}

/// A lookup on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looked {
    /// The table.
    pub table: TableId,
    /// Whether an entry matched.
    pub hit: bool,
    /// The entry ([`Lookup::entry`]).
    pub entry: u64,
}

/// A counter update on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// The counter.
    pub counter: ExternId,
    /// The cell.
    pub at: Place,
    /// The number of bytes to add.
    pub bytes: Bytes,
}

/// A cell of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A cell by index, which may be out of range.
    Index(u64),
    /// The cell of an entry ([`Lookup::entry`]).
    Entry(u64),
}

/// The number of bytes that a packet counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// The received length plus `plus`, at most `at_most`.
    Received {
        /// Difference to the received length.
        plus: i32,
        /// Upper bound.
        at_most: u32,
    },
    /// A fixed number.
    Exactly(u64),
}

impl Bytes {
    /// The number for a frame of `received` bytes.
    pub fn of(self, received: u32) -> u64 {
        match self {
            Bytes::Received { plus, at_most } => u64::from(received.saturating_add_signed(plus).min(at_most)),
            Bytes::Exactly(bytes) => bytes,
        }
    }
}

/// Tables as lists of entries, searched by [`Classifier`]. Entries that use action profiles, and tables that
/// packets write, are not supported.
#[derive(Debug)]
pub struct Entries {
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Table {
    classifier: Classifier,
    entries: Vec<TableEntry>,
    default: EntryAction,
    is_constant: bool,
    has_keys: bool,
}

impl Entries {
    /// The entries that a program itself declares.
    pub fn new(program: &Program) -> Entries {
        let tables = program.tables.iter().map(|table| Table {
            classifier: classifier(table, &table.entries),
            entries: table.entries.clone(),
            default: EntryAction::Call(table.default_action.clone()),
            is_constant: table.dynamic.is_none(),
            has_keys: !table.keys.is_empty(),
        });
        Entries { tables: tables.collect() }
    }

    /// Replaces a table's entries and default action. The handle of an entry is its index in the list plus one.
    pub fn set(&mut self, program: &Program, table: TableId, entries: Vec<TableEntry>, default: EntryAction) {
        let to = &mut self.tables[table.index()];
        to.classifier = classifier(&program.tables[table.index()], &entries);
        (to.entries, to.default) = (entries, default);
    }
}

fn classifier(table: &ir::Table, entries: &[TableEntry]) -> Classifier {
    let keys: Vec<_> = table.keys.iter().map(|key| (key.width, key.kind)).collect();
    Classifier::new(&keys, entries)
}

impl Tables for Entries {
    fn lookup(&mut self, table: TableId, keys: &[Bits], _: &[Bits]) -> Option<Lookup> {
        let table = self.tables.get(table.index()).filter(|table| table.is_constant)?;
        let found = table.has_keys.then(|| table.classifier.lookup(keys));
        let (entry, consulted) = found.map_or((None, Vec::new()), |found| (found.entry, found.consulted));
        let action = match entry {
            Some(entry) => &table.entries.get(entry as usize)?.action,
            None => &table.default,
        };
        let EntryAction::Call(call) = action else { return None };
        let (hit, handle) = (entry.is_some(), entry.map_or(0, |entry| u64::from(entry) + 1));
        Some(Lookup { hit, action: call.action, args: call.args.clone(), entry: handle, consulted, by_selector: false })
    }
}

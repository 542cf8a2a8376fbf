//! What a trace asks of tables, and what it says about counters.

use crate::tables::Classifier;
use base::Bits;
use base::entry::{EntryAction, TableEntry};
use base::ids::{ExternId, TableId};
use ir::Program;

/// What a lookup found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// Whether an entry matched.
    pub hit: bool,
    /// The position of the action in the table's list; the default one's on a miss.
    pub action: u32,
    /// Its arguments, of the parameters' widths.
    pub args: Vec<Bits>,
    /// The handle of the entry, for direct counters; what it means is the tables' own.
    pub entry: u64,
    /// For each key the bits that decided, of the key's width. Keys that are missing here decided wholly.
    pub consulted: Vec<Bits>,
    /// Whether the selector decided, too.
    pub by_selector: bool,
}

/// Tables that can say why they found what they found.
pub trait Tables {
    /// A pass of the trace begins: what was looked up before is looked up again.
    fn begin(&mut self) {}

    /// Looks a key up (`ir::Op::Apply`). `None` if that cannot be said for other packets.
    ///
    /// All keys that agree in the bits of `consulted` find the same.
    fn lookup(&mut self, table: TableId, keys: &[Bits], selector: &[Bits]) -> Option<Lookup>;
}

/// A lookup of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looked {
    /// Where.
    pub table: TableId,
    /// Whether an entry matched.
    pub hit: bool,
    /// Which ([`Lookup::entry`]).
    pub entry: u64,
}

/// A counter that a packet of the path counts at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Which.
    pub counter: ExternId,
    /// Where.
    pub at: Place,
    /// The bytes that it counts.
    pub bytes: Bytes,
}

/// A cell of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Its index, which may be out of range.
    Index(u64),
    /// That of an entry ([`Lookup::entry`]).
    Entry(u64),
}

/// How many bytes a packet counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// Those that were received and so many more, at most `at_most`.
    Received {
        /// How many more.
        plus: i32,
        /// At most so many.
        at_most: u32,
    },
    /// So many.
    Exactly(u64),
}

impl Bytes {
    /// Those of a frame of which `received` bytes came.
    pub fn of(self, received: u32) -> u64 {
        match self {
            Bytes::Received { plus, at_most } => u64::from(received.saturating_add_signed(plus).min(at_most)),
            Bytes::Exactly(bytes) => bytes,
        }
    }
}

/// Tables as lists of entries, searched by [`Classifier`]. Entries of action profiles, and tables that packets write, are not traced.
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
    /// Those that a program has itself.
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

    /// Replaces the entries of a table and its default action; the handle of an entry is its place in the list plus one.
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

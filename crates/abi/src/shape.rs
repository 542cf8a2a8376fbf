//! What tables are like at one moment, for code that is compiled for them as they are.
//!
//! All of it is copied, so that nothing that a writer frees meanwhile is read. Addresses in it may be put into code, but
//! that code may run only in batches that begin before any of it is changed: whoever takes shapes also takes the number
//! that `tables` changes *before* it changes any of it, and compares the two at the start of each batch
//! (`tables::reclaim`, "Assumptions of code").

use crate::entry::EntryHeader;
use base::entry::ActionCall;
use core::ffi::c_void;

/// The shapes of tables, by id. A table that is not there is compiled as any.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    /// By `TableId`.
    pub tables: Vec<TableShape>,
}

/// What a table is like.
#[derive(Clone, Debug)]
pub struct TableShape {
    /// What `TableHandle::snapshot` holds.
    pub snapshot: *const c_void,
    /// The first words behind it, for engines that are probed inline and whose snapshots do not change.
    pub words: Vec<u64>,
    /// What `TableHandle::default_entry` holds.
    pub default: EntryShape,
    /// All entries, if they are few and may be assumed too; the first that accepts a key is the one that
    /// matches.
    pub rules: Option<Vec<Rule>>,
    /// What its lookups can give, if that may be assumed while keys change.
    pub answers: Option<Answers>,
}

/// All that lookups in a table can give but its default entry, where many keys share few entries.
#[derive(Clone, Debug)]
pub struct Answers {
    /// What entries lie at a multiple of [`Answers::stride`] behind.
    pub first: *const EntryHeader,
    /// Bytes from one entry to the next.
    pub stride: u32,
    /// How many places there are for them; at most these are read for entries that are not here.
    pub places: u32,
    /// The entries, in any order.
    pub entries: Vec<EntryShape>,
}

impl Answers {
    /// Which of the places from [`Answers::first`] on an entry has.
    pub fn place(&self, entry: &EntryShape) -> usize {
        (entry.entry.addr() - self.first.addr()) / self.stride as usize
    }
}

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryShape {
    /// Where it lies.
    pub entry: *const EntryHeader,
    /// What it runs; `None` if a group decides.
    pub call: Option<ActionCall>,
}

/// An entry with its key: it accepts a key if `key & mask == value` in every word of the table's key layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The bits that count.
    pub mask: Vec<u64>,
    /// What they are.
    pub value: Vec<u64>,
    /// The entry.
    pub entry: EntryShape,
}

impl Rule {
    /// Whether it accepts every key.
    pub fn accepts_all(&self) -> bool {
        self.mask.iter().all(|word| *word == 0)
    }
}

impl TableShape {
    /// The entries that packets can meet as the table is: the rules up to the first that accepts everything, and the
    /// default entry if there is none such. `None` if the rules are not known.
    pub fn possible(&self) -> Option<(Vec<&Rule>, Option<&EntryShape>)> {
        let rules = self.rules.as_ref()?;
        let met = match rules.iter().position(Rule::accepts_all) {
            Some(last) => &rules[..=last],
            None => &rules[..],
        };
        let may_miss = met.last().is_none_or(|last| !last.accepts_all());
        Some((met.iter().collect(), may_miss.then_some(&self.default)))
    }
}

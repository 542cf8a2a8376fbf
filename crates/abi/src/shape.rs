//! What tables are like at one moment, for code that is compiled for them as they are.
//!
//! All of it is copied, but for prefilters, which are shared, so that nothing that a writer frees meanwhile is read. Addresses in it may be put into code, but
//! that code may run only in batches that begin before any of it is changed: whoever takes shapes also takes the number
//! that `tables` changes *before* it changes any of it, and compares the two at the start of each batch
//! (`tables::reclaim`, "Assumptions of code").

use crate::entry::EntryHeader;
use base::entry::ActionCall;
use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    pub results: Option<ResultEntries>,
    /// Keys that surely match none of the entries, if few bytes tell them. With [`TableShape::rules`], but for a last one that accepts
    /// everything; without, none at all, and it may be assumed while entries change.
    pub prefilter: Option<Arc<Prefilter>>,
}

/// Tells keys that match no entry by a few of their bytes: those for which the words that these bytes select, one from each column,
/// have no bit in common.
///
/// While a table's entries change, its writer sets the bits of an entry before lookups can find it, and clears none: so it stays right,
/// and code reads it while it is written.
#[derive(Debug)]
pub struct Prefilter {
    /// At least one.
    pub columns: Vec<PrefilterColumn>,
}

/// A byte of the key, and what it says.
#[derive(Debug)]
pub struct PrefilterColumn {
    /// The word of the key that has the byte.
    pub word: usize,
    /// Which of the word's bytes it is, from the lowest.
    pub byte: u32,
    /// For each value of the byte, which groups of entries accept it, a bit each.
    pub rows: Box<[AtomicU64; 256]>,
    /// The bytes of keys that the prefilter was chosen for.
    pub samples: Vec<u8>,
}

/// All that lookups in a table can give but its default entry, where many keys share few entries.
#[derive(Clone, Debug)]
pub struct ResultEntries {
    /// What entries lie at a multiple of [`ResultEntries::stride`] behind.
    pub first: *const EntryHeader,
    /// Bytes from one entry to the next.
    pub stride: u32,
    /// How many places there are for them; at most these are read for entries that are not here.
    pub places: u32,
    /// The entries, in any order.
    pub entries: Vec<EntryShape>,
}

impl ResultEntries {
    /// Which of the places from [`ResultEntries::first`] on an entry has.
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

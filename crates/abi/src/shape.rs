//! Snapshots of table contents, from which specialised code is compiled.
//!
//! Everything is copied, so nothing is read here that a writer may free meanwhile; only prefilters are shared.
//! Addresses in a snapshot may be compiled into code, but that code may run only in batches that begin before any of
//! the contents change. Whoever takes shapes therefore also takes the generation, which `tables` advances *before* it
//! changes any of this, and compares it at the start of each batch (`tables::reclaim`, "Assumptions of code").

use crate::entry::EntryHeader;
use base::entry::ActionCall;
use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The shapes of tables, by id. For a table without one, code for any contents is compiled.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    /// By `TableId`.
    pub tables: Vec<TableShape>,
}

/// The contents of a table.
#[derive(Clone, Debug)]
pub struct TableShape {
    /// What `TableHandle::snapshot` holds.
    pub snapshot: *const c_void,
    /// The first words at that address, for engines that are probed inline and whose snapshots do not change.
    pub words: Vec<u64>,
    /// What `TableHandle::default_entry` holds.
    pub default: EntryShape,
    /// All entries in order of precedence (the first that matches a key wins), if they are few and code may assume
    /// them.
    pub rules: Option<Vec<Rule>>,
    /// The possible results of lookups, if code may assume them while keys change.
    pub results: Option<ResultEntries>,
    /// A filter for keys that match no entry, if few bytes of the key suffice. With [`TableShape::rules`] it leaves out
    /// a last rule that matches everything. Without them it covers all entries, and code may use it while entries
    /// change.
    pub prefilter: Option<Arc<Prefilter>>,
}

/// A filter for keys that match no entry: aggregated bit vectors over a few bytes of the key (`tables::prefilter`).
/// Each column selects a word by one byte of the key. A key matches no entry if these words have no bit in common.
///
/// While entries change, the table's writer sets the bits of a new entry before lookups can find it, and never clears
/// any. So the filter stays sound, and code may read it during writes.
#[derive(Debug)]
pub struct Prefilter {
    /// At least one.
    pub columns: Vec<PrefilterColumn>,
}

/// The bit vectors of one byte of the key.
#[derive(Debug)]
pub struct PrefilterColumn {
    /// The index of the key's 64-bit word that has the byte.
    pub word: usize,
    /// The byte within that word; 0 is the lowest.
    pub byte: u32,
    /// By value of the byte: the groups of entries that match it, one bit per group.
    pub rows: Box<[AtomicU64; 256]>,
    /// This byte of the sample keys with which the prefilter was chosen.
    pub samples: Vec<u8>,
}

/// All entries that lookups in a table can return, apart from its default entry, where many keys share few entries
/// (prefixes with few next hops).
#[derive(Clone, Debug)]
pub struct ResultEntries {
    /// The address of place 0. Entries lie at multiples of [`ResultEntries::stride`] from it.
    pub first: *const EntryHeader,
    /// Bytes from one entry to the next.
    pub stride: u32,
    /// Number of places. Code reads at most these, also for entries that are not in `entries`.
    pub places: u32,
    /// The entries, in any order.
    pub entries: Vec<EntryShape>,
}

impl ResultEntries {
    /// The number of the entry's place, counted from [`ResultEntries::first`].
    pub fn place(&self, entry: &EntryShape) -> usize {
        (entry.entry.addr() - self.first.addr()) / self.stride as usize
    }
}

/// An entry and its action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryShape {
    /// Its address.
    pub entry: *const EntryHeader,
    /// Its action; `None` if a group decides.
    pub call: Option<ActionCall>,
}

/// An entry with its key. It matches a key if `key & mask == value` in every word of the table's key layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The bits that are compared.
    pub mask: Vec<u64>,
    /// Their values.
    pub value: Vec<u64>,
    /// The entry.
    pub entry: EntryShape,
}

impl Rule {
    /// Whether it matches every key.
    pub fn accepts_all(&self) -> bool {
        self.mask.iter().all(|word| *word == 0)
    }
}

impl TableShape {
    /// The possible results of a lookup: the rules up to the first that matches everything, and the default entry if
    /// there is no such rule. `None` if the rules are not known.
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

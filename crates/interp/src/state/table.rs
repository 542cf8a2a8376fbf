//! A match-action table as a list that is scanned linearly: the reference for all match engines.
//!
//! `base::entry` defines which entry wins. Two entries are the same if their keys and priorities are equal; in a table
//! whose match kinds need no priority, if their keys are equal.

use crate::meter::MeterCell;
use abi::StateError;
use base::Bits;
use base::entry::{CounterValue, EntryAction, KeyMatch, TableEntry};
use base::ids::ExternId;
use std::collections::BTreeMap;

/// An installed entry with its direct resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Installed {
    /// The handle that `Apply` returns, never reused in a table; 0 for the default entry.
    pub serial: u64,
    pub entry: TableEntry,
    pub last_hit_us: u64,
    /// Time in µs of the last idle notification to the control plane.
    pub notified_us: u64,
    pub counters: BTreeMap<ExternId, CounterValue>,
    pub meters: BTreeMap<ExternId, MeterCell>,
}

impl Installed {
    fn new(serial: u64, entry: TableEntry, now_us: u64) -> Installed {
        Installed {
            serial,
            entry,
            last_hit_us: now_us,
            notified_us: 0,
            counters: BTreeMap::new(),
            meters: BTreeMap::new(),
        }
    }
}

/// A table's entries in order of insertion, and its default action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LinearTable {
    pub size: u64,
    pub installed: Vec<Installed>,
    pub default: EntryAction,
    /// The direct resources of the default entry; its action is `default`.
    default_resources: Installed,
    last_serial: u64,
    by_priority: bool,
}

/// Whether a key field matches a value.
pub fn field_matches(field: &KeyMatch, value: &Bits) -> bool {
    match field {
        KeyMatch::Exact(v) => v == value,
        KeyMatch::Lpm { value: v, prefix_len } => {
            let rest = u64::from(value.width() - prefix_len);
            v.lshr(rest) == value.lshr(rest)
        }
        KeyMatch::Ternary { value: v, mask } => v.and(mask) == value.and(mask),
        KeyMatch::Range { low, high } => low.ule(value) && value.ule(high),
        KeyMatch::Optional(v) => v.as_ref().is_none_or(|v| v == value),
    }
}

fn prefix_len(entry: &TableEntry) -> u32 {
    let lengths = entry.key.iter().map(|k| if let KeyMatch::Lpm { prefix_len, .. } = k { *prefix_len } else { 0 });
    lengths.sum()
}

impl LinearTable {
    pub fn new(table: &ir::Table) -> LinearTable {
        let mut linear = LinearTable {
            size: table.size,
            installed: Vec::new(),
            default: EntryAction::Call(table.default_action.clone()),
            default_resources: Installed::new(
                0,
                TableEntry {
                    key: Vec::new(),
                    priority: 0,
                    action: EntryAction::Call(table.default_action.clone()),
                    idle_timeout_ns: 0,
                },
                0,
            ),
            last_serial: 0,
            by_priority: table.keys.iter().any(|k| k.kind.needs_priority()),
        };
        for entry in &table.entries {
            // An entry that an earlier one shadows completely is not installed.
            if linear.position(&entry.key, entry.priority).is_none() {
                linear.push(entry.clone(), 0);
            }
        }
        linear
    }

    /// Replaces all entries and the default action.
    pub fn load(&mut self, entries: Vec<TableEntry>, default: EntryAction, now_us: u64) {
        self.installed.clear();
        self.default = default;
        entries.into_iter().for_each(|entry| self.push(entry, now_us));
    }

    pub fn push(&mut self, entry: TableEntry, now_us: u64) {
        self.last_serial += 1;
        self.installed.push(Installed::new(self.last_serial, entry, now_us));
    }

    /// The winning entry for a key.
    pub fn lookup(&mut self, key: &[Bits]) -> Option<&mut Installed> {
        let mut best: Option<usize> = None;
        for (i, candidate) in self.installed.iter().enumerate() {
            if !candidate.entry.key.iter().zip(key).all(|(field, value)| field_matches(field, value)) {
                continue;
            }
            let wins = best.is_none_or(|best| {
                let (new, old) = (&candidate.entry, &self.installed[best].entry);
                if self.by_priority { new.priority > old.priority } else { prefix_len(new) > prefix_len(old) }
            });
            if wins {
                best = Some(i);
            }
        }
        best.map(|i| &mut self.installed[i])
    }

    pub fn position(&self, key: &[KeyMatch], priority: i32) -> Option<usize> {
        self.installed.iter().position(|i| i.entry.key == key && (!self.by_priority || i.entry.priority == priority))
    }

    pub fn find(&mut self, key: &[KeyMatch], priority: i32) -> Result<&mut Installed, StateError> {
        match self.position(key, priority) {
            Some(i) => Ok(&mut self.installed[i]),
            None => Err(StateError::NotFound),
        }
    }

    /// The direct resources of the default entry.
    pub fn default_resources(&mut self) -> &mut Installed {
        &mut self.default_resources
    }

    pub fn by_serial(&mut self, serial: u64) -> Option<&mut Installed> {
        if serial == 0 {
            return Some(self.default_resources());
        }
        self.installed.iter_mut().find(|i| i.serial == serial)
    }

    pub fn insert(&mut self, entry: &TableEntry, now_us: u64) -> Result<(), StateError> {
        if self.position(&entry.key, entry.priority).is_some() {
            return Err(StateError::Exists);
        }
        if self.installed.len() as u64 >= self.size {
            return Err(StateError::Full(self.size));
        }
        self.push(entry.clone(), now_us);
        Ok(())
    }

    pub fn delete(&mut self, key: &[KeyMatch], priority: i32) -> Result<(), StateError> {
        let i = self.position(key, priority).ok_or(StateError::NotFound)?;
        self.installed.remove(i);
        Ok(())
    }
}

//! Folding: what the log has grown to becomes tables of the configs' keyspaces.
//!
//! ```text
//!   log (8 MB of records) ──sort──▶ one table per config, not through memory or the store's log ──▶ records removed
//! ```
//!
//! A fold works on a copy of the list of records, so requests are logged meanwhile; the thread `state-fold` does it. It only adds a table
//! to a keyspace, and the records it stands for are removed afterwards, in the same order in which requests are logged:
//! whenever the machine stops, records and tables together are what was acknowledged.
//!
//! Tests: `tests/kept`.

use crate::layout::{Layout, Logged};
use crate::log::Overlay;
use fjall::Keyspace;
use std::collections::BTreeMap;

/// Records to fold.
pub struct Fold {
    /// With the keyspace of the config that they are of.
    of: Vec<(Keyspace, Vec<Logged>)>,
    /// The last one.
    pub(crate) to: u64,
}

impl Fold {
    /// All records that there are now.
    pub fn begin(layout: &Layout) -> fjall::Result<Fold> {
        let mut by_config: BTreeMap<u64, Vec<Logged>> = BTreeMap::new();
        let mut to = 0;
        for logged in layout.logged() {
            by_config.entry(logged.config).or_default().push(logged.clone());
            to = logged.sequence;
        }
        let of = by_config.into_iter().map(|(config, records)| Ok((layout.entities(config)?, records)));
        Ok(Fold { of: of.collect::<fjall::Result<_>>()?, to })
    }

    /// Writes the tables; they are on disk when it returns.
    pub fn run(&self) -> Result<(), String> {
        let explain = |e: fjall::Error| crate::layout::explain(&e);
        for (keyspace, records) in &self.of {
            let overlay = Overlay::new(records.iter().map(|logged| &logged.record[..]));
            let overlay = overlay.ok_or("a record of the log is damaged")?;
            let mut changes = overlay.changes;
            let cleared = overlay.cleared.iter().flat_map(|below| keyspace.prefix(below));
            let cleared: Result<Vec<_>, _> = cleared.map(fjall::Guard::key).collect();
            let cleared = cleared.map_err(explain)?;
            let of_log = changes.len();
            for key in &cleared {
                if changes[..of_log].binary_search_by(|(other, _)| (*other).cmp(key)).is_err() {
                    changes.push((key, None));
                }
            }
            changes[..].sort_by(|a, b| a.0.cmp(b.0));
            changes.dedup_by(|a, b| a.0 == b.0);
            ingest(keyspace, changes.into_iter()).map_err(explain)?;
        }
        Ok(())
    }
}

/// Writes a table: keys in order, each once, with their values or that they are gone.
pub fn ingest<'a>(into: &Keyspace, items: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> fjall::Result<()> {
    let mut table = into.start_ingestion()?;
    for (key, value) in items {
        match value {
            Some(value) => table.write(key, value)?,
            None => table.write_tombstone(key)?,
        }
    }
    table.finish()
}

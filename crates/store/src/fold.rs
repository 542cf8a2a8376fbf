//! Folding: moves the log's records into sorted tables of the configs. This corresponds to the memtable flush and the
//! compaction of a log-structured merge tree.
//!
//! ```text
//!   log ──next log starts──▶ old log, sorted ──▶ one table per config ──tables merged──▶ manifest ──▶ old log removed
//! ```
//!
//! A fold works on a copy of the list of records, in the thread `state-fold`, so requests are logged meanwhile. Its
//! tables take effect with the manifest that names them and no longer names the old log. So whenever the machine stops,
//! logs and tables together are what was acknowledged.
//!
//! Tests: `tests/kept`.

use crate::error::explain;
use crate::folder::Folder;
use crate::image::Logged;
use crate::layout::Layout;
use crate::log::Overlay;
use crate::manifest::table_name;
use crate::tables::{Writer, merge, to_merge};
use messages::sluice::v1::state_manifest::File as Sealed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The input of a fold. Functions of folds fail with the reason why a file cannot be read or written.
pub struct Fold {
    folder: Arc<Folder>,
    id: u64,
    numbers: Arc<AtomicU64>,
    /// By config number: its tables, and its records in the log.
    of: BTreeMap<u64, (Vec<Sealed>, Vec<Logged>)>,
    /// The log that was started with the fold.
    until: u64,
    /// Approximate size in bytes of a table made by one fold.
    small: u64,
}

impl Fold {
    /// Starts a fold of all current records.
    pub fn begin(layout: &mut Layout, small: u64) -> Result<Fold, String> {
        let until = layout.rotate()?;
        let configs = layout.manifest.configs.iter();
        let mut of: BTreeMap<u64, (Vec<Sealed>, Vec<Logged>)> =
            configs.map(|config| (config.number, (config.tables.clone(), vec![]))).collect();
        for logged in layout.logged() {
            if let Some((_, records)) = of.get_mut(&logged.config) {
                records.push(logged.clone());
            }
        }
        of.retain(|_, (_, records)| !records.is_empty());
        let (folder, numbers) = (Arc::clone(&layout.folder), Arc::clone(&layout.numbers));
        Ok(Fold { folder, id: layout.manifest.id, numbers, of, until, small })
    }

    /// Writes the tables. Their contents are on disk when it returns.
    pub fn run(self) -> Result<Folded, String> {
        let number = || self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut all = Vec::new();
        let mut merged_away = Vec::new();
        for (config, (mut tables, records)) in self.of {
            let overlay = Overlay::new(records.iter().map(|logged| &logged.record[..]));
            let overlay = overlay.ok_or("a record of the log is damaged")?;
            let written = Writer::table(&self.folder, self.id, number(), overlay.cleared.iter().copied()).and_then(
                |mut writer| {
                    overlay.changes.iter().try_for_each(|(key, value)| writer.push(key, *value))?;
                    writer.finish()
                },
            );
            let old = tables.len();
            tables.push(written.map_err(|e| explain(&e))?);
            let mut mine = tables[old..].to_vec();
            loop {
                let many = to_merge(&tables, self.small);
                if many == 0 {
                    break;
                }
                let merged = merge(&self.folder, self.id, number(), &tables, many)?;
                tables.truncate(tables.len() - many);
                tables.push(merged);
                mine.push(merged);
            }
            merged_away.extend(mine.into_iter().filter(|file| !tables.contains(file)));
            all.push((config, tables));
        }
        // Intermediate results of merges: no manifest ever names them.
        for file in merged_away {
            self.folder.remove(&table_name(file.number)).map_err(|e| explain(&e))?;
        }
        Ok(Folded { tables: all, until: self.until })
    }
}

/// The result of a fold.
pub struct Folded {
    tables: Vec<(u64, Vec<Sealed>)>,
    until: u64,
}

impl Folded {
    /// Puts the tables into effect.
    pub fn finish(self, layout: &mut Layout) -> Result<(), String> {
        layout.folded(self.tables, self.until)
    }
}

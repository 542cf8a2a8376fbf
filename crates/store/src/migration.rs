//! Migration of directories of formats 2 and 3 to the current format.
//!
//! Those formats used the embedded store `fjall`, with keyspaces `devices`, `configs`, `entities-NUMBER` and, in format
//! 3, `log`. fjall verifies checksums, but it takes a damaged record of its own log for the log's end, and missing
//! files for a new store. So such a directory cannot be proved complete, and what was found in it is reported with
//! counts. A directory without any device is refused.
//!
//! **Invariant.** The old files are removed only after everything is in the new ones and `format` says so: an
//! interrupted migration starts again.
//!
//! Tests: `tests/kept/migration.rs`.

use crate::encode;
use crate::error::OpenError;
use crate::folder::Folder;
use crate::layout::Layout;
use crate::log::{Overlay, config_of};
use control::Error;
use control::entity::Entity;
use control::journal::Key;
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use messages::sluice::v1::KeptDevice;
use prost::Message;
use std::path::Path;
use std::sync::Arc;

/// Block cache in bytes; small, since everything is read once.
const CACHE_BYTES: u64 = 8 << 20;

fn open(dir: &Path) -> Result<Database, OpenError> {
    let name = dir.display().to_string();
    if !dir.join("db").is_dir() {
        let why = "its folder `db` is missing; restore it from a copy, or start with --forget".to_string();
        return Err(OpenError::Io { dir: name, why });
    }
    let db = Database::builder(dir.join("db")).worker_threads(1).cache_size(CACHE_BYTES).open();
    db.map_err(|error| match error {
        fjall::Error::Locked => OpenError::InUse(name),
        other => unreadable(&name, &other),
    })
}

fn unreadable(dir: &str, error: &fjall::Error) -> OpenError {
    let why = format!("its store cannot be read ({error:?}); restore it from a copy, or start with --forget");
    OpenError::Io { dir: dir.to_string(), why }
}

/// Checks that no other process uses the directory.
///
/// # Errors
/// [`OpenError::InUse`].
pub fn check_unused(dir: &Path) -> Result<(), OpenError> {
    match open(dir) {
        Err(error @ OpenError::InUse(_)) => Err(error),
        // An unreadable store can still be deleted.
        _ => Ok(()),
    }
}

/// Migrates a directory to the current format.
///
/// # Errors
/// The store cannot be read, contains no device, or the new files cannot be written.
pub fn migrate(folder: Arc<Folder>, format: &str) -> Result<Layout, OpenError> {
    let dir = folder.path().to_path_buf();
    let name = dir.display().to_string();
    let io = |why: String| OpenError::Io { dir: name.clone(), why };
    let db = open(&dir)?;
    let mut layout = Layout::begin(folder).map_err(&io)?;
    let (devices, entities) = copy(&db, &name, &mut layout)?;
    if devices == 0 {
        return Err(io(format!(
            "it is of format {format} and names no device: either nothing was ever kept there, or its files are damaged; start with \
             --forget, or restore it from a copy"
        )));
    }
    drop(db);
    layout.write_format().map_err(&io)?;
    std::fs::remove_dir_all(dir.join("db")).map_err(|e| io(format!("db: {e}")))?;
    layout.note(format!(
        "the directory was of format {format}: {devices} devices with {entities} entities were taken over"
    ));
    Ok(layout)
}

fn copy(db: &Database, dir: &str, layout: &mut Layout) -> Result<(usize, usize), OpenError> {
    let fjall = |e: fjall::Error| unreadable(dir, &e);
    let io = |why: String| OpenError::Io { dir: dir.to_string(), why };
    let keyspace = |name: &str| db.keyspace(name, KeyspaceCreateOptions::default).map_err(fjall);
    let (devices, configs, log) = (keyspace("devices")?, keyspace("configs")?, keyspace("log")?);
    let mut records: Vec<(u64, fjall::Slice)> = Vec::new();
    for item in log.iter() {
        let (_, record) = item.into_inner().map_err(fjall)?;
        let config = config_of(&record).ok_or_else(|| io("a record of its log is damaged".into()))?;
        records.push((config, record));
    }
    let (mut found, mut entities) = (0, 0);
    for item in devices.iter() {
        let (key, value) = item.into_inner().map_err(fjall)?;
        let Ok(id) = <[u8; 8]>::try_from(&key[..]).map(u64::from_be_bytes) else {
            let name = String::from_utf8_lossy(&key).into_owned();
            layout.set_record(&name, &value).map_err(io)?;
            continue;
        };
        let old = KeptDevice::decode(&value[..]).map_err(|e| io(format!("device {id}: {e}")))?;
        let mut one = |number: Option<u64>| -> Result<Option<u64>, OpenError> {
            let Some(number) = number else { return Ok(None) };
            let config = configs.get(number.to_be_bytes()).map_err(fjall)?;
            let config = config.ok_or_else(|| io(format!("config {number} is missing")))?;
            let (config, _) = encode::decode_config(&config).map_err(|e| io(format!("config {number}: {e}")))?;
            let kept = old_entities(&keyspace(&format!("entities-{number}"))?, number, &records).map_err(io)?;
            entities += kept.len();
            let mut kept = kept.into_iter().map(Ok::<_, Error>);
            layout.write_config(&config, &mut kept).map(Some).map_err(io)
        };
        let new = KeptDevice { running: one(old.running)?, saved: one(old.saved)? };
        layout.set_device(id, &new).map_err(io)?;
        found += 1;
    }
    Ok((found, entities))
}

/// The entities of a config: its keyspace, overlaid with the log.
fn old_entities(keyspace: &Keyspace, number: u64, log: &[(u64, fjall::Slice)]) -> Result<Vec<(Key, Entity)>, String> {
    let of = log.iter().filter(|(config, _)| *config == number);
    let overlay = Overlay::new(of.map(|(_, record)| &record[..])).ok_or("a record of its log is damaged")?;
    let mut all = std::collections::BTreeMap::new();
    for item in keyspace.iter() {
        let (key, value) = item.into_inner().map_err(|e| format!("config {number}: {e:?}"))?;
        if !overlay.clears(&key) {
            all.insert(key.to_vec(), value.to_vec());
        }
    }
    for (key, value) in &overlay.changes {
        match value {
            Some(value) => _ = all.insert(key.to_vec(), value.to_vec()),
            None => _ = all.remove(*key),
        }
    }
    let decode = |(key, value): (Key, Vec<u8>)| encode::decode_entity(&value).map(|entity| (key, entity));
    all.into_iter().map(decode).collect()
}

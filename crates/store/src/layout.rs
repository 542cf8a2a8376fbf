//! The directory: what is where.
//!
//! ```text
//!   DIR/format    "sluice state 3": what this version writes
//!   DIR/db/       fjall: keyspace `devices`: device id ▶ KeptDevice, "ID/command-line" ▶ the program it was started with
//!                                            "wiring", "wiring/command-line" ▶ KeptWiring
//!                        keyspace `configs`: number ▶ KeptConfig
//!                        keyspace `entities-NUMBER`: control::journal::Key ▶ p4.v1.Entity
//!                        keyspace `log`: sequence number ▶ what a request changed (`log`)
//! ```
//!
//! A config's entities are those of its keyspace with what the log has of it put over them. Format 2 had no log; opening such a
//! directory makes it one of format 3.
//!
//! Each config that is set gets a number of its own. Numbers that no device refers to are left over from a change that a
//! crash cut off, or that was undone; opening removes them, with their records in the log.

use crate::fold::{Fold, ingest};
use crate::log::{self, Overlay};
use crate::{OpenError, encode};
use control::Error;
use control::entity::Entity;
use control::journal::Key;
use control::pipeline::ForwardingConfig;
use fjall::compaction::Leveled;
use fjall::config::FilterPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use grpc::proto::sluice::v1::KeptDevice;
use prost::Message;
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What this version writes.
pub const FORMAT: &str = "3";
/// What it also reads.
pub const FORMAT_BEFORE: &str = "2";
const FORMAT_LINE: &str = "sluice state ";
/// Bytes of entities that are sorted and written at a time while a whole config is written.
const CHUNK_BYTES: usize = 8 << 20;
/// Tables of a config's entities that are merged at once. Many, because each merge writes all of the config's entities anew, and
/// they are read once, at start.
const TABLES_TO_MERGE: u8 = 12;
/// The log is moved to tables when it is folded, and not before.
const LOG_MEMTABLE_BYTES: u64 = 1 << 30;
/// Memory for blocks that were read: entities are read once, at start.
const CACHE_BYTES: u64 = 8 << 20;

/// What is kept of a device.
#[derive(Debug, Default)]
pub struct Kept {
    /// What packets went through.
    pub running: Option<KeptConfig>,
    /// What was saved and not committed.
    pub saved: Option<KeptConfig>,
    /// The program that the switch was last started with.
    pub command_line: Option<Vec<u8>>,
}

/// A config with its entities, in the order in which they can be written.
#[derive(Debug)]
pub struct KeptConfig {
    /// As it was set.
    pub config: ForwardingConfig,
    /// Its entities.
    pub entities: Vec<Entity>,
}

/// An open directory.
pub struct Layout {
    dir: String,
    pub db: Database,
    devices: Keyspace,
    configs: Keyspace,
    log: Keyspace,
    /// What the log holds.
    logged: VecDeque<Logged>,
    logged_bytes: usize,
    last: u64,
}

/// A record of the log.
#[derive(Clone)]
pub struct Logged {
    pub sequence: u64,
    pub config: u64,
    /// As `log::record` made it.
    pub record: fjall::Slice,
}

impl Layout {
    /// Opens a directory, or makes one.
    pub fn open(dir: &Path) -> Result<Layout, OpenError> {
        let name = dir.display().to_string();
        let io = |why: String| OpenError::Io { dir: name.clone(), why };
        if dir.exists() && !dir.is_dir() {
            return Err(io("this is no directory".to_string()));
        }
        std::fs::create_dir_all(dir).map_err(|e| io(e.to_string()))?;
        check_format(dir)?;
        let db = Database::builder(dir.join("db")).worker_threads(1).cache_size(CACHE_BYTES).open();
        let db = db.map_err(|error| match error {
            fjall::Error::Locked => OpenError::InUse(name.clone()),
            fjall::Error::InvalidVersion(Some(found)) => {
                OpenError::Format { dir: name.clone(), found: format!("of its store {found:?}") }
            }
            other => cannot_open(&name, &other),
        })?;
        let keyspace = |called: &str| keyspace(&db, called).map_err(|e| cannot_open(&name, &e));
        let (devices, configs) = (keyspace("devices")?, keyspace("configs")?);
        let options = || KeyspaceCreateOptions::default().max_memtable_size(LOG_MEMTABLE_BYTES);
        let log = db.keyspace("log", options).map_err(|e| cannot_open(&name, &e))?;
        let (logged, logged_bytes) = (VecDeque::new(), 0);
        let mut layout = Layout { dir: name, db, devices, configs, log, logged, logged_bytes, last: 0 };
        layout.read_log()?;
        layout.remove_left_over()?;
        Ok(layout)
    }

    pub fn broken(&self, what: &str, why: impl ToString) -> OpenError {
        OpenError::Broken { dir: self.dir.clone(), what: what.to_string(), why: why.to_string() }
    }

    fn io(&self, error: &fjall::Error) -> OpenError {
        cannot_open(&self.dir, error)
    }

    /// Which configs a device has.
    pub fn device(&self, device_id: u64) -> Result<KeptDevice, OpenError> {
        match self.devices.get(device_id.to_be_bytes()).map_err(|e| self.io(&e))? {
            None => Ok(KeptDevice::default()),
            Some(value) => KeptDevice::decode(&value[..]).map_err(|e| self.broken(&format!("device {device_id}"), e)),
        }
    }

    fn read_log(&mut self) -> Result<(), OpenError> {
        for item in self.log.iter() {
            let (key, record) = item.into_inner().map_err(|e| self.io(&e))?;
            let sequence = <[u8; 8]>::try_from(&key[..]).ok().map(u64::from_be_bytes);
            let (Some(sequence), Some(config)) = (sequence, log::config_of(&record)) else {
                return Err(self.broken("the log", "a record is damaged"));
            };
            self.logged_bytes += record.len();
            self.logged.push_back(Logged { sequence, config, record });
        }
        Ok(())
    }

    fn remove_left_over(&mut self) -> Result<(), OpenError> {
        let mut used = BTreeSet::new();
        for item in self.devices.iter() {
            let (key, _) = item.into_inner().map_err(|e| self.io(&e))?;
            if let Ok(id) = <[u8; 8]>::try_from(&key[..]) {
                let device = self.device(u64::from_be_bytes(id))?;
                used.extend(device.running.into_iter().chain(device.saved));
            }
        }
        let names = self.db.list_keyspace_names();
        let numbers = names.iter().filter_map(|n| n.strip_prefix("entities-")?.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect();
        self.last = numbers.iter().copied().max().unwrap_or(0);
        for number in numbers.into_iter().filter(|n| !used.contains(n)) {
            self.remove(number).map_err(|e| self.io(&e))?;
        }
        // Their numbers may be given again.
        self.unlog(|logged| !used.contains(&logged.config)).map_err(|e| self.io(&e))
    }

    /// The keyspace of a config's entities.
    pub fn entities(&self, number: u64) -> fjall::Result<Keyspace> {
        // They are read in order, once, and never one by one, so filters would be for nothing.
        let options = || {
            let merges = Leveled::default().with_l0_threshold(TABLES_TO_MERGE);
            KeyspaceCreateOptions::default()
                .filter_policy(FilterPolicy::disabled())
                .compaction_strategy(Arc::new(merges))
        };
        self.db.keyspace(&format!("entities-{number}"), options)
    }

    /// Writes a config that no device refers to yet; not yet kept. Returns its number.
    pub fn write_config(
        &mut self,
        config: &ForwardingConfig,
        entities: &mut dyn Iterator<Item = Result<(Key, Entity), Error>>,
    ) -> Result<u64, String> {
        self.last += 1;
        let number = self.last;
        let into = self.entities(number).map_err(|e| explain(&e))?;
        self.configs.insert(number.to_be_bytes(), encode::config(config)).map_err(|e| explain(&e))?;
        let mut chunk: Vec<(Key, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        loop {
            let next = entities.next().transpose().map_err(|e| e.message)?.map(|(key, entity)| {
                let mut value = Vec::new();
                encode::entity_into(&entity, &mut value);
                (key, value)
            });
            let ended = next.is_none();
            bytes += next.as_ref().map_or(0, |(key, value)| key.len() + value.len());
            chunk.extend(next);
            if ended || bytes >= CHUNK_BYTES {
                chunk.sort_by(|a, b| a.0.cmp(&b.0));
                // An entity comes once.
                chunk.dedup_by(|a, b| a.0 == b.0);
                ingest(&into, chunk.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))))
                    .map_err(|e| explain(&e))?;
                (chunk, bytes) = (Vec::new(), 0);
            }
            if ended {
                break;
            }
        }
        Ok(number)
    }

    /// Says which configs a device has, and keeps it with all that was written before.
    pub fn set_device(&self, device_id: u64, device: &KeptDevice) -> fjall::Result<()> {
        // First what it refers to, then the reference.
        self.db.persist(PersistMode::SyncAll)?;
        self.devices.insert(device_id.to_be_bytes(), device.encode_to_vec())?;
        self.db.persist(PersistMode::SyncAll)?;
        // A log is removed when everything in it is in tables, and these would keep the first one for ever.
        self.configs.rotate_memtable_and_wait()?;
        self.devices.rotate_memtable_and_wait()
    }

    /// Removes a config that no device refers to any more.
    pub fn remove(&mut self, number: u64) -> fjall::Result<()> {
        self.unlog(|logged| logged.config == number)?;
        self.configs.remove(number.to_be_bytes())?;
        self.db.delete_keyspace(self.entities(number)?)
    }

    /// Adds records to the log, each with the config that it is of; all or none of them are there after a crash. Not yet kept.
    pub fn log(&mut self, records: impl Iterator<Item = (u64, Vec<u8>)>) -> fjall::Result<()> {
        let mut batch = self.db.batch();
        let mut sequence = self.logged.back().map_or(0, |last| last.sequence);
        let from = self.logged.len();
        for (config, record) in records {
            sequence += 1;
            let record = fjall::Slice::from(record);
            batch.insert(&self.log, sequence.to_be_bytes(), record.clone());
            self.logged_bytes += record.len();
            self.logged.push_back(Logged { sequence, config, record });
        }
        batch.commit().inspect_err(|_| self.logged.truncate(from))
    }

    /// What the log holds, in order.
    pub fn logged(&self) -> impl Iterator<Item = &Logged> {
        self.logged.iter()
    }

    /// How much that is.
    pub fn logged_bytes(&self) -> usize {
        self.logged_bytes
    }

    /// A fold is on disk: its records are not needed any more.
    pub fn folded(&mut self, fold: &Fold) -> fjall::Result<()> {
        self.unlog(|logged| logged.sequence <= fold.to)?;
        // Little is left to be moved, and then the store begins a new log file if the old one has grown large. That is removed
        // when everything in it is in tables, so nothing may stay behind.
        [&self.configs, &self.devices, &self.log]
            .into_iter()
            .try_for_each(|keyspace| keyspace.rotate_memtable().map(drop))
    }

    fn unlog(&mut self, which: impl Fn(&Logged) -> bool) -> fjall::Result<()> {
        let mut batch = self.db.batch();
        self.logged
            .iter()
            .filter(|logged| which(logged))
            .for_each(|l| batch.remove(&self.log, l.sequence.to_be_bytes()));
        batch.commit()?;
        self.logged.retain(|logged| !which(logged));
        self.logged_bytes = self.logged.iter().map(|logged| logged.record.len()).sum();
        Ok(())
    }

    /// Remembers the program of the command line.
    pub fn set_command_line(&self, device_id: u64, program: &[u8]) -> fjall::Result<()> {
        self.devices.insert(command_line_key(device_id), program)?;
        self.db.persist(PersistMode::SyncAll)
    }

    /// A record of the switch as a whole. Its name must not have eight bytes: those are device ids.
    pub fn record(&self, name: &str) -> Result<Option<Vec<u8>>, OpenError> {
        Ok(self.devices.get(name).map_err(|e| self.io(&e))?.map(|bytes| bytes.to_vec()))
    }

    /// Keeps such a record.
    pub fn set_record(&self, name: &str, value: &[u8]) -> fjall::Result<()> {
        self.devices.insert(name, value)?;
        self.db.persist(PersistMode::SyncAll)
    }

    /// Everything of a device.
    pub fn kept(&self, device_id: u64) -> Result<Kept, OpenError> {
        let device = self.device(device_id)?;
        let command_line = self.devices.get(command_line_key(device_id)).map_err(|e| self.io(&e))?;
        Ok(Kept {
            running: device.running.map(|number| self.kept_config(number)).transpose()?,
            saved: device.saved.map(|number| self.kept_config(number)).transpose()?,
            command_line: command_line.map(|bytes| bytes.to_vec()),
        })
    }

    fn kept_config(&self, number: u64) -> Result<KeptConfig, OpenError> {
        let what = format!("config {number}");
        let value = self.configs.get(number.to_be_bytes()).map_err(|e| self.io(&e))?;
        let value = value.ok_or_else(|| self.broken(&what, "it is missing"))?;
        let config = encode::decode_config(&value).map_err(|e| self.broken(&what, e))?;
        let of = self.logged.iter().filter(|logged| logged.config == number);
        let overlay = Overlay::new(of.map(|logged| &logged.record[..]));
        let overlay = overlay.ok_or_else(|| self.broken("the log", "a record is damaged"))?;
        let mut entities = Vec::new();
        let mut add = |value: &[u8]| {
            let entity = encode::decode_entity(value);
            entities.push(entity.map_err(|e| self.broken(&format!("an entity of {what}"), e))?);
            Ok(())
        };
        let mut changes = overlay.changes.iter().peekable();
        for item in self.entities(number).map_err(|e| self.io(&e))?.iter() {
            let (key, value) = item.into_inner().map_err(|e| self.io(&e))?;
            while let Some((_, new)) = changes.next_if(|(new, _)| *new < &key[..]) {
                new.map_or(Ok(()), &mut add)?;
            }
            match changes.next_if(|(new, _)| *new == &key[..]) {
                Some((_, new)) => new.map_or(Ok(()), &mut add)?,
                None if overlay.clears(&key) => {}
                None => add(&value)?,
            }
        }
        for (_, new) in changes {
            new.map_or(Ok(()), &mut add)?;
        }
        Ok(KeptConfig { config, entities })
    }
}

fn command_line_key(device_id: u64) -> String {
    format!("{device_id}/command-line")
}

fn keyspace(db: &Database, name: &str) -> fjall::Result<Keyspace> {
    db.keyspace(name, KeyspaceCreateOptions::default)
}

/// Reads the `format` file, or makes it in an empty directory.
fn check_format(dir: &Path) -> Result<(), OpenError> {
    let name = dir.display().to_string();
    let io = |e: std::io::Error| OpenError::Io { dir: name.clone(), why: e.to_string() };
    let file: PathBuf = dir.join("format");
    let beginning = dir.join("format.new");
    // Whole or not at all, whenever the machine stops.
    let write = || -> std::io::Result<()> {
        let mut new = std::fs::File::create(&beginning)?;
        writeln!(new, "{FORMAT_LINE}{FORMAT}")?;
        new.sync_all()?;
        std::fs::rename(&beginning, &file)?;
        std::fs::File::open(dir)?.sync_all()
    };
    match std::fs::read_to_string(&file) {
        Ok(text) => match text.trim_end().strip_prefix(FORMAT_LINE) {
            Some(FORMAT) => Ok(()),
            // An older version must not open it from now on: it would not see the log.
            Some(FORMAT_BEFORE) => write().map_err(io),
            Some(other) => Err(OpenError::Format { dir: name.clone(), found: other.to_string() }),
            None => Err(OpenError::Foreign(name.clone())),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let others = std::fs::read_dir(dir).map_err(io)?.filter_map(Result::ok);
            // What journalled file systems put into every new one is nobody's.
            if others.map(|e| e.path()).any(|path| path != beginning && !path.ends_with("lost+found")) {
                return Err(OpenError::Foreign(name.clone()));
            }
            write().map_err(io)
        }
        Err(e) => Err(io(e)),
    }
}

/// Why a directory cannot be read.
fn cannot_open(dir: &str, error: &fjall::Error) -> OpenError {
    let (dir, why) = (dir.to_string(), explain(error));
    if damage(error).is_some() { OpenError::Damaged { dir, why } } else { OpenError::Io { dir, why } }
}

/// What is wrong with what was read, if that is the error.
fn damage(error: &fjall::Error) -> Option<&'static str> {
    use fjall::{Error, LsmError};
    match error {
        Error::Storage(LsmError::ChecksumMismatch { .. }) => Some("checksums do not fit what is in its files"),
        Error::Storage(LsmError::Unrecoverable) | Error::Unrecoverable => Some("files are missing"),
        Error::Storage(LsmError::InvalidVersion(_)) | Error::InvalidVersion(None) => Some("a file's version is none"),
        Error::Storage(
            LsmError::Decompress(_)
            | LsmError::InvalidTag(_)
            | LsmError::InvalidTrailer
            | LsmError::InvalidHeader(_)
            | LsmError::Utf8(_),
        )
        | Error::JournalRecovery(_)
        | Error::Decompress(_)
        | Error::InvalidTrailer
        | Error::InvalidTag(_) => Some("files hold what is never written there"),
        _ => None,
    }
}

/// An error of the store in words for an operator.
pub fn explain(error: &fjall::Error) -> String {
    let io = |e: &std::io::Error| match e.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            format!("{e}; free some space, then writes are taken again without a restart")
        }
        _ => e.to_string(),
    };
    match error {
        fjall::Error::Io(e) | fjall::Error::Storage(fjall::LsmError::Io(e)) => io(e),
        fjall::Error::Poisoned => "an earlier write to the disk failed".to_string(),
        other => damage(other).map_or_else(|| other.to_string(), str::to_string),
    }
}

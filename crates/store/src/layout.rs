//! The layout of a state directory.
//!
//! ```text
//!   DIR/format       "sluice state 4"
//!   DIR/manifest     all other files with lengths and checksums; devices, configs, records (`manifest`)
//!   DIR/mark         how far the log was acknowledged
//!   DIR/log-N        changes by requests since the last fold (`log`); append-only
//!   DIR/table-N      entities of a config, sorted (`tables`); immutable
//!   DIR/blob-N       a KeptConfig, a KeptWiring or a program of the command line; immutable
//! ```
//!
//! All files except `format` consist of frames with checksums (`frames`). A config's entities are those of its tables,
//! newer over older ones, overlaid with its records in the log. Formats 2 and 3 were directories of an embedded store;
//! opening one migrates it to format 4 (`before`).
//!
//! **Invariants.** The manifest names a file only after the file is on disk; a file is removed only after a manifest
//! without it is on disk. Files that no manifest names are left over from an interrupted change; opening removes them.
//! A start that finds damage changes nothing (`image`).

use crate::encode;
use crate::error::{OpenError, Severity, explain};
use crate::folder::Folder;
use crate::format::{FORMAT, FORMAT_FILE, FORMAT_LINE};
use crate::frames::{Chain, PAYLOAD_BYTES_MAX};
use crate::image::{Image, Logged, blob, entities};
use crate::log;
use crate::manifest::{self, Acknowledged, MANIFEST, Mark, blob_name, log_name, table_name};
use crate::tables::{Damage, Writer};
use control::Error;
use control::entity::Entity;
use control::forwarding::ForwardingConfig;
use control::journal::Key;
use control::restore::Parts;
use messages::sluice::v1::state_manifest::{Config, Device, File as Sealed, Log, Record};
use messages::sluice::v1::{KeptDevice, StateManifest};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of entities that are sorted and written at a time when a whole config is written.
const CHUNK_BYTES: usize = 32 << 20;
/// Interval of the check that all files still exist; the directory and the log are checked with each sync.
const CHECK_ALL: Duration = Duration::from_millis(100);

/// The stored state of a device, with entities not yet decoded.
#[derive(Default)]
pub struct Stored {
    /// The running config.
    pub running: Option<StoredConfig>,
    /// The config that was saved but not committed.
    pub saved: Option<StoredConfig>,
    /// The program given on the command line at the last start.
    pub command_line: Option<Vec<u8>>,
}

/// The stored state of a device.
#[derive(Debug, Default)]
pub struct Kept {
    /// The running config.
    pub running: Option<KeptConfig>,
    /// The config that was saved but not committed.
    pub saved: Option<KeptConfig>,
    /// The program given on the command line at the last start.
    pub command_line: Option<Vec<u8>>,
}

/// A config with its entities, in an order in which they can be written to a device.
#[derive(Debug)]
pub struct KeptConfig {
    /// The config, as it was set.
    pub config: ForwardingConfig,
    /// Its entities.
    pub entities: Vec<Entity>,
}

impl Stored {
    /// Decodes all entities.
    ///
    /// # Errors
    /// An entity is invalid.
    pub fn decode(self) -> Result<Kept, OpenError> {
        let decode = |StoredConfig { config, entities, .. }: StoredConfig| -> Result<KeptConfig, OpenError> {
            Ok(KeptConfig { config, entities: entities.decode()? })
        };
        Ok(Kept {
            running: self.running.map(decode).transpose()?,
            saved: self.saved.map(decode).transpose()?,
            command_line: self.command_line,
        })
    }
}

/// A stored config, with entities not yet decoded.
pub struct StoredConfig {
    /// The config, as it was set.
    pub config: ForwardingConfig,
    /// Its entities.
    pub entities: Values,
    /// Whether it belongs to an OpenFlow bridge: then `entities` are `KeptOpenFlow` messages.
    pub openflow: bool,
}

/// Encoded entities, in an order in which they can be written to a device; decoded in parts.
pub struct Values {
    dir: String,
    bytes: Vec<u8>,
    /// End offset of each entity in `bytes`.
    ends: Vec<usize>,
}

/// Entities per part of [`Values`]: some hundred microseconds of work for one thread.
const PART_ENTITIES: usize = 1024;

impl Values {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    /// All encoded entities, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    /// Decodes all entities.
    ///
    /// # Errors
    /// An entity is invalid.
    pub fn decode(&self) -> Result<Vec<Entity>, OpenError> {
        let mut entities = Vec::with_capacity(self.ends.len());
        self.decode_range(0..self.ends.len(), &mut |entity| entities.push(entity))?;
        Ok(entities)
    }

    fn decode_range(&self, range: Range<usize>, each: &mut dyn FnMut(Entity)) -> Result<(), OpenError> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied()).skip(range.start);
        for (begin, end) in begins.zip(&self.ends[range]) {
            let entity = encode::decode_entity(&self.bytes[begin..*end]);
            let broken = |why| OpenError::Broken { dir: self.dir.clone(), what: "an entity".into(), why };
            each(entity.map_err(broken)?);
        }
        Ok(())
    }
}

impl Parts for Values {
    fn count(&self) -> usize {
        self.ends.len().div_ceil(PART_ENTITIES)
    }

    fn part(&self, at: usize, each: &mut dyn FnMut(Entity)) -> Result<(), String> {
        let from = at * PART_ENTITIES;
        self.decode_range(from..self.ends.len().min(from + PART_ENTITIES), each).map_err(|e| e.to_string())
    }
}

/// Small named records. The process keeps a copy, in case the directory is lost.
pub type Records = BTreeMap<String, Vec<u8>>;

/// An open state directory. Functions that return `Result<_, String>` fail with the reason why a file cannot be
/// written.
pub struct Layout {
    dir: String,
    pub(crate) folder: Arc<Folder>,
    pub(crate) manifest: StateManifest,
    /// Number of the next file.
    pub(crate) numbers: Arc<AtomicU64>,
    mark: Mark,
    records: Records,
    /// The current log, to which records are appended; its length in bytes, and its chain's position.
    log: File,
    log_bytes: u64,
    chain: Chain,
    frame: Vec<u8>,
    /// The records of all logs.
    logged: VecDeque<Logged>,
    logged_bytes: usize,
    checked: Option<Instant>,
    /// Whether a record on disk may be one that was refused, because a manifest could not be written for certain.
    is_unsure: bool,
    /// Messages that a start should report: a truncated torn write, a migration.
    notes: Vec<String>,
}

impl Layout {
    /// Initialises a directory, deleting files with our names. It becomes a state
    /// directory only with [`Layout::write_format`].
    pub(crate) fn begin(folder: Arc<Folder>) -> Result<Layout, String> {
        let io = |e: std::io::Error| explain(&e);
        for name in folder.names().map_err(io)?.iter().filter(|name| manifest::is_numbered(name)) {
            folder.remove(name).map_err(io)?;
        }
        // Need not be secret, only unique.
        let id = RandomState::new().hash_one(folder.path());
        let log = Log { number: 1, first: 1, previous: manifest::seed(id, 1), bytes: None };
        let chain = Chain::begin(log.first, log.previous);
        let manifest =
            StateManifest { id, generation: 0, next_file: 2, next_config: 1, logs: vec![log], ..Default::default() };
        let file = folder.create(&log_name(1)).map_err(io)?;
        let mark = Mark::create(&folder, id, Acknowledged::default()).map_err(io)?;
        let mut layout = Layout {
            dir: folder.path().display().to_string(),
            numbers: Arc::new(AtomicU64::new(manifest.next_file)),
            folder,
            manifest,
            mark,
            records: Records::new(),
            log: file,
            log_bytes: 0,
            chain,
            frame: vec![],
            logged: VecDeque::new(),
            logged_bytes: 0,
            checked: None,
            is_unsure: false,
            notes: vec![],
        };
        layout.save()?;
        Ok(layout)
    }

    /// Writes the file `format`, which makes this a state directory.
    pub(crate) fn write_format(&self) -> Result<(), String> {
        let line = format!("{FORMAT_LINE}{FORMAT}\n");
        self.folder.replace(FORMAT_FILE, line.as_bytes()).map_err(|e| explain(&e))
    }

    pub(crate) fn open_current(folder: Arc<Folder>) -> Result<Layout, OpenError> {
        let dir = folder.path().display().to_string();
        let of = dir.clone();
        let io = |e: std::io::Error| OpenError::Io { dir: of.clone(), why: explain(&e) };
        let image = Image::read(&folder, false)?;
        if let Some(refusal) = image.refusal(&dir) {
            return Err(refusal);
        }
        let Image { manifest, mark, records, log_end: (log_bytes, chain), findings } = image;
        let Some(last) = manifest.logs.last().map(|log| log_name(log.number)) else {
            return Err(OpenError::Io { dir, why: "there is no log".into() });
        };
        let log = folder.file_to_write(&last).map_err(io)?;
        if findings.iter().any(|finding| finding.severity == Severity::Torn) {
            log.set_len(log_bytes).and_then(|()| log.sync_all()).map_err(io)?;
        }
        let acknowledged = Acknowledged { generation: manifest.generation, record: chain.next - 1 };
        let mark = match mark {
            Some((counter, found)) => {
                let mut mark = Mark::open(&folder, manifest.id, counter).map_err(io)?;
                // Records after the mark may not be on disk yet, if the process was killed before it had synced them.
                if found != acknowledged {
                    log.sync_all().and_then(|()| mark.set_synced(acknowledged)).map_err(io)?;
                }
                mark
            }
            None => Mark::create(&folder, manifest.id, acknowledged).map_err(io)?,
        };
        let mut layout = Layout {
            numbers: Arc::new(AtomicU64::new(manifest.next_file)),
            mark,
            records: Records::new(),
            log,
            log_bytes,
            chain,
            frame: vec![],
            logged_bytes: records.iter().map(|logged| logged.record.len()).sum(),
            logged: records.into(),
            checked: None,
            is_unsure: false,
            notes: findings.iter().map(ToString::to_string).collect(),
            dir,
            folder,
            manifest,
        };
        for record in &layout.manifest.records {
            let Some(file) = &record.file else { continue };
            let bytes = blob(&layout.folder, layout.manifest.id, file).map_err(|e| layout.damaged(e))?;
            layout.records.insert(record.name.clone(), bytes);
        }
        layout.remove_left_over().map_err(io)?;
        Ok(layout)
    }

    /// Messages that a start should report.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub fn broken(&self, what: &str, why: impl ToString) -> OpenError {
        OpenError::Broken { dir: self.dir.clone(), what: what.to_string(), why: why.to_string() }
    }

    fn damaged(&self, damage: Damage) -> OpenError {
        OpenError::Io { dir: self.dir.clone(), why: damage.to_string() }
    }

    /// Removes files that no manifest names, and configs that no device uses.
    fn remove_left_over(&mut self) -> std::io::Result<()> {
        let used = |number: u64| {
            let kept = self.manifest.devices.iter().filter_map(|device| device.kept.as_ref());
            kept.flat_map(|kept| kept.running.iter().chain(&kept.saved)).any(|n| *n == number)
        };
        let unused = self.manifest.configs.iter().map(|config| config.number);
        let unused: Vec<u64> = unused.filter(|number| !used(*number)).collect();
        self.manifest.configs.retain(|config| !unused.contains(&config.number));
        let named: std::collections::BTreeSet<String> = manifest::files(&self.manifest).collect();
        if !unused.is_empty() {
            self.save().map_err(std::io::Error::other)?;
        }
        for name in self.folder.names()? {
            if (manifest::is_numbered(&name) && !named.contains(&name)) || name.ends_with(".new") {
                self.folder.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Writes the manifest. When it returns, the manifest is on disk, with all files that it names.
    fn save(&mut self) -> Result<(), String> {
        self.manifest.generation += 1;
        self.manifest.next_file = self.numbers.load(Ordering::Relaxed);
        let bytes = manifest::encode(&self.manifest);
        // Syncs the names of new files first.
        let done = self.folder.sync().and_then(|()| self.folder.replace(MANIFEST, &bytes));
        done.map_err(|e| format!("{MANIFEST}: {}", explain(&e)))?;
        self.set_mark(true)
    }

    fn set_mark(&mut self, synced: bool) -> Result<(), String> {
        let acknowledged = Acknowledged { generation: self.manifest.generation, record: self.chain.next - 1 };
        let set = if synced { self.mark.set_synced(acknowledged) } else { self.mark.set(acknowledged) };
        set.map_err(|e| format!("{}: {}", manifest::MARK, explain(&e)))
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The configs of a device.
    pub fn device(&self, device_id: u64) -> KeptDevice {
        let found = self.manifest.devices.iter().find(|device| device.device_id == device_id);
        found.and_then(|device| device.kept).unwrap_or_default()
    }

    fn write_blob(&self, payload: &[u8]) -> Result<Sealed, String> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(format!("a program of more than {PAYLOAD_BYTES_MAX} bytes cannot be kept"));
        }
        let number = self.number();
        let written = Writer::create(&self.folder, &blob_name(number), self.manifest.id, number)
            .and_then(|mut writer| writer.frame(payload).map(|()| writer))
            .and_then(Writer::finish);
        written.map_err(|e| explain(&e))
    }

    /// Writes a config and its entities, not yet used by any device. Returns its number.
    ///
    /// # Errors
    /// An entity cannot be read, or a file cannot be written.
    pub fn write_config(
        &mut self,
        config: &ForwardingConfig,
        entities: &mut dyn Iterator<Item = Result<(Key, Entity), Error>>,
    ) -> Result<u64, String> {
        let mut values = entities.map(|entity| {
            let (key, entity) = entity.map_err(|e| e.message)?;
            let mut value = Vec::new();
            encode::entity_into(&entity, &mut value);
            Ok((key, value))
        });
        self.write_values(&encode::config(config, false), &mut values)
    }

    /// Like [`Layout::write_config`], for an encoded config and encoded entities.
    pub fn write_values(
        &mut self,
        config: &[u8],
        values: &mut dyn Iterator<Item = Result<(Key, Vec<u8>), String>>,
    ) -> Result<u64, String> {
        let number = self.manifest.next_config;
        self.manifest.next_config += 1;
        let blob = self.write_blob(config)?;
        let mut tables = Vec::new();
        let mut chunk: Vec<(Key, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        loop {
            let next = values.next().transpose()?;
            let ended = next.is_none();
            bytes += next.as_ref().map_or(0, |(key, value)| key.len() + value.len());
            chunk.extend(next);
            if !chunk.is_empty() && (ended || bytes >= CHUNK_BYTES) {
                chunk.sort_by(|a, b| a.0.cmp(&b.0));
                // Each key occurs at most once.
                chunk.dedup_by(|a, b| a.0 == b.0);
                tables.push(self.write_table(&chunk).map_err(|e| explain(&e))?);
                (chunk, bytes) = (Vec::new(), 0);
            }
            if ended {
                break;
            }
        }
        self.manifest.configs.push(Config { number, config: Some(blob), tables });
        Ok(number)
    }

    fn write_table(&self, items: &[(Key, Vec<u8>)]) -> std::io::Result<Sealed> {
        let mut writer = Writer::table(&self.folder, self.manifest.id, self.number(), std::iter::empty())?;
        items.iter().try_for_each(|(key, value)| writer.push(key, Some(value)))?;
        writer.finish()
    }

    /// Sets the configs of a device, and syncs this with everything written before.
    pub fn set_device(&mut self, device_id: u64, kept: &KeptDevice) -> Result<(), String> {
        match self.manifest.devices.iter_mut().find(|device| device.device_id == device_id) {
            Some(device) => device.kept = Some(*kept),
            None => self.manifest.devices.push(Device { device_id, kept: Some(*kept) }),
        }
        self.save()
    }

    /// Removes configs that no device uses any more.
    pub fn remove(&mut self, numbers: &[u64]) -> Result<(), String> {
        let named = |manifest: &StateManifest| manifest::files(manifest).collect::<Vec<_>>();
        let before = named(&self.manifest);
        self.manifest.configs.retain(|config| !numbers.contains(&config.number));
        let after = named(&self.manifest);
        self.save()?;
        // Their records stay in the log's file, where they are ignored, until it is folded.
        self.logged.retain(|logged| !numbers.contains(&logged.config));
        self.logged_bytes = self.logged.iter().map(|logged| logged.record.len()).sum();
        self.delete(before.into_iter().filter(|name| !after.contains(name)))
    }

    fn delete(&self, names: impl Iterator<Item = String>) -> Result<(), String> {
        for name in names {
            self.folder.remove(&name).map_err(|e| format!("{name}: {}", explain(&e)))?;
        }
        Ok(())
    }

    /// Appends records, each with its config's number, to the log as one frame: after a crash all or none of them are
    /// there. They are on disk when it returns.
    ///
    /// # Errors
    /// They are too long, or the log cannot be written.
    pub fn log(&mut self, records: Vec<(u64, Vec<u8>)>) -> Result<(), String> {
        self.frame.clear();
        let mut chain = self.chain;
        chain.frame(&mut self.frame, |out| records.iter().for_each(|(_, record)| log::put_record(out, record)));
        if self.frame.len() > PAYLOAD_BYTES_MAX {
            return Err(format!("a request of {} bytes is too large to be kept", self.frame.len()));
        }
        let name = self.log_name();
        let io = |e: std::io::Error| format!("{name}: {}", explain(&e));
        self.log.write_all_at(&self.frame, self.log_bytes).map_err(io)?;
        self.log.sync_data().map_err(io)?;
        self.log_bytes += self.frame.len() as u64;
        self.chain = chain;
        self.set_mark(false)?;
        self.check()?;
        let log = self.manifest.logs.last().map_or(0, |log| log.number);
        for (config, record) in records {
            self.logged_bytes += record.len();
            self.logged.push_back(Logged { log, config, record: Arc::new(record) });
        }
        Ok(())
    }

    fn log_name(&self) -> String {
        self.manifest.logs.last().map_or(String::new(), |log| log_name(log.number))
    }

    /// Checks that the directory and its files still exist. Deleted files can be written and synced without an error,
    /// but vanish with the process.
    ///
    /// # Errors
    /// What is gone or was replaced.
    pub fn check(&mut self) -> Result<(), String> {
        let all = self.checked.is_none_or(|checked| checked.elapsed() >= CHECK_ALL);
        let names = ["format", MANIFEST, manifest::MARK].map(str::to_string);
        let files = all.then(|| manifest::files(&self.manifest)).into_iter().flatten();
        let files: Vec<String> = files.chain(names).collect();
        self.folder.check(files.iter().map(String::as_str))?;
        if self.log.metadata().map_err(|e| explain(&e))?.nlink() == 0 {
            return Err(format!("{}/{} was deleted while the switch used it", self.dir, self.log_name()));
        }
        if all {
            self.checked = Some(Instant::now());
        }
        Ok(())
    }

    /// The records of all logs, in order.
    pub fn logged(&self) -> impl Iterator<Item = &Logged> {
        self.logged.iter()
    }

    /// Total length of these records in bytes.
    pub fn logged_bytes(&self) -> usize {
        self.logged_bytes
    }

    /// Ends the current log and starts the next one. Returns its number.
    pub(crate) fn rotate(&mut self) -> Result<u64, String> {
        let number = self.number();
        let file = self.folder.create(&log_name(number)).map_err(|e| explain(&e))?;
        if let Some(last) = self.manifest.logs.last_mut() {
            last.bytes = Some(self.log_bytes);
        }
        self.manifest.logs.push(Log { number, first: self.chain.next, previous: self.chain.last, bytes: None });
        self.save()?;
        (self.log, self.log_bytes) = (file, 0);
        Ok(number)
    }

    /// Puts a completed fold into effect: sets the configs' tables, and removes logs before `until`.
    pub(crate) fn folded(&mut self, tables: Vec<(u64, Vec<Sealed>)>, until: u64) -> Result<(), String> {
        let before: Vec<String> = manifest::files(&self.manifest).collect();
        for (number, tables) in tables {
            match self.manifest.configs.iter_mut().find(|config| config.number == number) {
                Some(config) => config.tables = tables,
                // The config was removed meanwhile.
                None => self.delete(tables.iter().map(|file| table_name(file.number)))?,
            }
        }
        self.manifest.logs.retain(|log| log.number >= until);
        self.save()?;
        self.logged.retain(|logged| logged.log >= until);
        self.logged_bytes = self.logged.iter().map(|logged| logged.record.len()).sum();
        let after: std::collections::BTreeSet<String> = manifest::files(&self.manifest).collect();
        self.delete(before.into_iter().filter(|name| !after.contains(name)))
    }

    /// Stores the program of the command line.
    pub fn set_command_line(&mut self, device_id: u64, program: &[u8]) -> Result<(), String> {
        self.set_record(&command_line_name(device_id), program)
    }

    /// A record of the switch as a whole.
    pub fn record(&self, name: &str) -> Option<&[u8]> {
        self.records.get(name).map(Vec::as_slice)
    }

    /// All such records.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Stores such a record, unless it already has this value, as at most starts.
    pub fn set_record(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        if self.record(name) == Some(value) && !self.is_unsure {
            return self.check();
        }
        let file = Some(self.write_blob(value)?);
        let before = self.manifest.records.clone();
        let old = match self.manifest.records.iter_mut().find(|record| record.name == name) {
            Some(record) => std::mem::replace(&mut record.file, file),
            None => {
                self.manifest.records.push(Record { name: name.to_string(), file });
                None
            }
        };
        if let Err(why) = self.save().and_then(|()| self.check()) {
            // What was refused is not to be written with the next change of something else.
            (self.manifest.records, self.is_unsure) = (before, true);
            return Err(why);
        }
        self.is_unsure = false;
        self.records.insert(name.to_string(), value.to_vec());
        // The record is stored. What cannot be deleted is deleted when the directory is opened.
        let _ = self.delete(old.into_iter().map(|file| blob_name(file.number)));
        Ok(())
    }

    /// The devices that have stored state.
    pub fn devices(&self) -> Vec<u64> {
        let programs = self.records.keys().filter_map(|name| name.strip_suffix(COMMAND_LINE)?.parse().ok());
        let mut all: Vec<u64> = self.manifest.devices.iter().map(|device| device.device_id).chain(programs).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Reads the stored state of a device.
    ///
    /// # Errors
    /// A file is damaged, invalid or cannot be read.
    pub fn stored(&self, device_id: u64) -> Result<Stored, OpenError> {
        let device = self.device(device_id);
        Ok(Stored {
            running: device.running.map(|number| self.stored_config(number)).transpose()?,
            saved: device.saved.map(|number| self.stored_config(number)).transpose()?,
            command_line: self.record(&command_line_name(device_id)).map(<[u8]>::to_vec),
        })
    }

    fn stored_config(&self, number: u64) -> Result<StoredConfig, OpenError> {
        let what = format!("config {number}");
        let found = self.manifest.configs.iter().find(|config| config.number == number);
        let (Some(found), Some(file)) = (found, found.and_then(|found| found.config.as_ref())) else {
            return Err(self.broken(&what, "the manifest does not name it"));
        };
        let value = blob(&self.folder, self.manifest.id, file).map_err(|e| self.damaged(e))?;
        let (config, openflow) = encode::decode_config(&value).map_err(|e| self.broken(&what, e))?;
        let of = self.logged.iter().filter(|logged| logged.config == number);
        let overlay = log::Overlay::new(of.map(|logged| &logged.record[..]));
        let overlay = overlay.ok_or_else(|| self.broken("the log", "a record holds what is never written there"))?;
        // The files' lengths are an upper bound, so the vector never grows.
        let bytes = found.tables.iter().map(|file| file.bytes as usize).sum();
        let mut values = Values { dir: self.dir.clone(), bytes: Vec::with_capacity(bytes), ends: vec![] };
        let merged = entities(&self.folder, self.manifest.id, found, overlay).map_err(|e| self.damaged(e))?;
        merged.for_each_value(|value| values.push(value)).map_err(|e| self.damaged(e))?;
        Ok(StoredConfig { config, entities: values, openflow })
    }
}

const COMMAND_LINE: &str = "/command-line";

/// The record name of a device's command line program.
pub fn command_line_name(device_id: u64) -> String {
    format!("{device_id}{COMMAND_LINE}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::entity::{TableAction, TableEntry};

    #[test]
    fn parts_of_values_are_all_of_them_in_order() {
        for count in [0, 1, PART_ENTITIES, 2 * PART_ENTITIES + 5] {
            let mut values = Values { dir: String::new(), bytes: vec![], ends: vec![] };
            let entity = |number: usize| {
                let action = Some(TableAction::Member(number as u32));
                Entity::Table(TableEntry { table_id: 7, action, ..Default::default() })
            };
            for number in 0..count {
                let mut value = Vec::new();
                encode::entity_into(&entity(number), &mut value);
                values.push(&value);
            }
            let mut parts = Vec::new();
            (0..values.count()).for_each(|at| values.part(at, &mut |entity| parts.push(entity)).unwrap());
            assert_eq!(parts, (0..count).map(entity).collect::<Vec<_>>());
            assert_eq!(values.decode().unwrap(), parts);
        }
        let broken = Values { dir: "dir".into(), bytes: vec![0xff], ends: vec![1] };
        assert!(broken.part(0, &mut |_| {}).unwrap_err().contains("dir"));
    }
}

//! Reads and checks a whole directory, without changing it.
//!
//! Start, `sluice state check`, `dump` and backups all read a directory here, so they agree on what is damaged. Each
//! file that the manifest names is read to its end. Every problem is a [`Finding`]: a torn write, which a start
//! truncates and reports; damage, which makes a start fail; or a note.
//!
//! Tests: `tests/kept/damaged.rs`.

use crate::error::{Finding, OpenError, Severity};
use crate::folder::Folder;
use crate::format::{FORMAT, FORMAT_FILE, FORMAT_LINE, OLDER_FORMATS};
use crate::frames::{Chain, Fault, Tail, classify_tail, intact_frames};
use crate::log::{self, Overlay};
use crate::manifest::{self, Acknowledged, MANIFEST, MARK, Mark, blob_name, log_name};
use crate::tables::{Damage, Merged, Reader, Source, Table};
use messages::sluice::v1::StateManifest;
use messages::sluice::v1::state_manifest::{Config, File as Sealed};
use std::sync::Arc;

/// A record of the log.
#[derive(Clone)]
pub struct Logged {
    /// Number of its log.
    pub log: u64,
    /// Number of its config.
    pub config: u64,
    /// Its bytes, as made by `log::record`.
    pub record: Arc<Vec<u8>>,
}

/// The kind of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Empty, or its creation was interrupted.
    New,
    /// Of the current format.
    Current,
    /// Of an earlier format.
    Older(String),
}

/// Determines the kind of a directory from its `format` file.
///
/// # Errors
/// It is not a state directory, of an unknown format, damaged, or cannot be read.
pub fn kind(folder: &Folder) -> Result<Kind, OpenError> {
    let dir = || folder.path().display().to_string();
    let io = |e: std::io::Error| OpenError::Io { dir: dir(), why: e.to_string() };
    let names = folder.names().map_err(io)?;
    let has_manifest = || names.iter().any(|name| name == MANIFEST);
    let no_format = |why: &str| {
        let finding = Finding {
            severity: Severity::Damage,
            file: FORMAT_FILE.into(),
            at: 0,
            why: why.into(),
            lost: format!("nothing else; a file `format` with the line `{FORMAT_LINE}{FORMAT}` mends it"),
        };
        OpenError::Damaged { dir: dir(), finding: Box::new(finding), more: 0 }
    };
    match folder.read(FORMAT_FILE) {
        Ok(bytes) => match std::str::from_utf8(&bytes).ok().and_then(|t| t.trim_end().strip_prefix(FORMAT_LINE)) {
            Some(FORMAT) => Ok(Kind::Current),
            Some(before) if OLDER_FORMATS.contains(&before) && !has_manifest() => Ok(Kind::Older(before.into())),
            // An interrupted migration.
            Some(before) if OLDER_FORMATS.contains(&before) && names.iter().any(|name| name == "db") => {
                Ok(Kind::Older(before.into()))
            }
            Some(other) if other.parse::<u32>().is_ok() || !has_manifest() => {
                Err(OpenError::Format { dir: dir(), found: other.to_string() })
            }
            _ if has_manifest() => Err(no_format("it does not say which format this is")),
            _ => Err(OpenError::Foreign(dir())),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            // `format` is the last file that is created.
            let unfinished = |name: &String| {
                let is_empty = || folder.read(name).is_ok_and(|bytes| bytes.is_empty());
                matches!(name.as_str(), "format.new" | "manifest.new" | MARK)
                    || (*name == log_name(1) && is_empty())
                    || (name == MANIFEST && read_manifest(folder).is_ok_and(|m| m.generation == 1))
            };
            match names.iter().all(unfinished) {
                true => Ok(Kind::New),
                false if has_manifest() => Err(no_format("the file is missing")),
                false => Err(OpenError::Foreign(dir())),
            }
        }
        Err(e) => Err(io(e)),
    }
}

fn read_manifest(folder: &Folder) -> Result<StateManifest, OpenError> {
    let dir = folder.path().display().to_string();
    let damage = |why: String| {
        let lost = "everything that is kept: no other file says what belongs together".to_string();
        let finding = Finding { severity: Severity::Damage, file: MANIFEST.into(), at: 0, why, lost };
        OpenError::Damaged { dir: dir.clone(), finding: Box::new(finding), more: 0 }
    };
    match folder.read(MANIFEST) {
        Ok(bytes) => manifest::decode(&bytes).map_err(damage),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(damage("the file is missing".into())),
        Err(e) => Err(OpenError::Io { dir, why: format!("{MANIFEST}: {e}") }),
    }
}

/// The contents of a directory of the current format.
pub struct Image {
    /// The manifest.
    pub manifest: StateManifest,
    /// Counter and contents of the acknowledgement mark; `None` if it is unreadable.
    pub mark: Option<(u64, Acknowledged)>,
    /// The records of the log, in order.
    pub records: Vec<Logged>,
    /// End of the last log: length of its intact part in bytes, and the chain's position there.
    pub log_end: (u64, Chain),
    /// The problems that were found.
    pub findings: Vec<Finding>,
}

impl Image {
    /// Reads a directory of the current format. With `salvage`, intact records of
    /// the log are taken even after damaged ones.
    ///
    /// # Errors
    /// The manifest is missing or unreadable, so that nothing is known of the contents.
    pub fn read(folder: &Folder, salvage: bool) -> Result<Image, OpenError> {
        let manifest = read_manifest(folder)?;
        let mark = folder.read(MARK).ok().and_then(|bytes| Mark::read(&bytes, manifest.id));
        let mut image = Image { manifest, mark, records: vec![], log_end: (0, Chain::begin(1, 0)), findings: vec![] };
        image.read_mark();
        image.read_logs(folder, salvage);
        image.check_files(folder);
        Ok(image)
    }

    /// Whether everything that was acknowledged is present.
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity <= Severity::Torn)
    }

    /// The error with which a start refuses the directory, if there is one.
    pub fn refusal(&self, dir: &str) -> Option<OpenError> {
        let bad = || self.findings.iter().filter(|finding| finding.severity > Severity::Torn);
        // Unreadable files are not damage, but that is reported only if there is no damage.
        let worst = bad().find(|f| f.severity == Severity::Damage).or_else(|| bad().next())?;
        let dir = dir.to_string();
        Some(match worst.severity {
            Severity::Damage => OpenError::Damaged { dir, finding: Box::new(worst.clone()), more: bad().count() - 1 },
            _ => OpenError::Io { dir, why: format!("{}: {}", worst.file, worst.why) },
        })
    }

    fn found(&mut self, severity: Severity, file: impl Into<String>, at: u64, why: impl ToString, lost: String) {
        self.findings.push(Finding { severity, file: file.into(), at, why: why.to_string(), lost });
    }

    fn read_mark(&mut self) {
        match self.mark {
            None => {
                let why = "it is missing or damaged, so a log that was cut off at its end would not be noticed";
                self.found(Severity::Note, MARK, 0, why, String::new());
            }
            Some((_, mark)) if mark.generation > self.manifest.generation => {
                let why = format!(
                    "it is of generation {}, but {} was acknowledged: an older copy has taken its place",
                    self.manifest.generation, mark.generation
                );
                self.found(Severity::Damage, MANIFEST, 0, why, "everything since that generation".into());
            }
            Some(_) => {}
        }
    }

    fn acknowledged(&self) -> u64 {
        self.mark.map_or(0, |(_, mark)| mark.record)
    }

    fn read_logs(&mut self, folder: &Folder, salvage: bool) {
        let logs = self.manifest.logs.clone();
        let acknowledged = self.acknowledged();
        // The start of each log tells whether it follows the previous one.
        let mut expected: Option<Chain> = None;
        for (i, entry) in logs.iter().enumerate() {
            let (name, is_last) = (log_name(entry.number), i + 1 == logs.len());
            let begin = Chain::begin(entry.first, entry.previous);
            if expected.is_some_and(|chain| chain != begin) {
                let why = format!("the log before it does not end at record {}", entry.first.saturating_sub(1));
                self.found(Severity::Damage, &name, 0, why, "records between them".into());
            }
            let mut chain = begin;
            let bytes = match folder.read(&name) {
                Ok(bytes) => bytes,
                Err(e) => {
                    let (severity, why) = match e.kind() {
                        std::io::ErrorKind::NotFound => (Severity::Damage, "the file is missing".to_string()),
                        _ => (Severity::Unreadable, e.to_string()),
                    };
                    self.found(severity, &name, 0, why, format!("all records from number {} on", entry.first));
                    expected = None;
                    continue;
                }
            };
            let mut at = 0;
            let fault = loop {
                match chain.read(&bytes, &mut at) {
                    Ok(Some(frame)) if self.take_frame(entry.number, frame) => {}
                    Ok(Some(_)) => break Some(Fault::Payload),
                    Ok(None) => break None,
                    Err(fault) => break Some(fault),
                }
            };
            let length = bytes.len() as u64;
            if let Some(fault) = fault {
                // Only the last log could be appended to when the machine stopped.
                let acknowledged = if is_last { acknowledged } else { u64::MAX };
                let last = chain.next.saturating_sub(1);
                match classify_tail(&bytes, at, &chain, fault, acknowledged) {
                    Tail::Torn => {
                        let why =
                            format!("a record was being written when the machine stopped ({} bytes)", bytes.len() - at);
                        let lost = format!("nothing that was acknowledged; {last} is the last record");
                        self.found(Severity::Torn, &name, at as u64, why, lost);
                    }
                    Tail::Damaged { intact } => {
                        let mut lost = format!("records from number {} on", last + 1);
                        match intact {
                            0 => {}
                            1 => lost.push_str(", of which 1 is intact"),
                            n => lost.push_str(&format!(", of which {n} are intact")),
                        }
                        self.found(Severity::Damage, &name, at as u64, fault, lost);
                        if salvage {
                            let rest: Vec<_> = intact_frames(&bytes[at..]).map(|(_, frame)| frame).collect();
                            rest.into_iter().for_each(|frame| _ = self.take_frame(entry.number, frame));
                        }
                    }
                }
            } else if let Some(whole) = entry.bytes.filter(|whole| *whole != length) {
                let why = format!("it has {length} bytes instead of {whole}");
                self.found(Severity::Damage, &name, length, why, format!("records from number {} on", chain.next));
            } else if is_last && chain.next <= acknowledged {
                let why = format!(
                    "it ends with record {}, but {acknowledged} was acknowledged",
                    chain.next.saturating_sub(1)
                );
                self.found(Severity::Damage, &name, length, why, format!("records {} to {acknowledged}", chain.next));
            }
            expected = fault.is_none().then_some(chain);
            self.log_end = (at as u64, chain);
        }
        if logs.is_empty() {
            self.found(Severity::Damage, MANIFEST, 0, "it names no log", "all records of the log".into());
        }
    }

    fn take_frame(&mut self, log: u64, frame: &[u8]) -> bool {
        let Some(records) = log::records(frame) else { return false };
        for record in records {
            let Some(config) = log::config_of(record) else { return false };
            self.records.push(Logged { log, config, record: Arc::new(record.to_vec()) });
        }
        true
    }

    fn check_files(&mut self, folder: &Folder) {
        let id = self.manifest.id;
        let mut all: Vec<(String, Sealed, String)> = Vec::new();
        for config in &self.manifest.configs {
            let whose = self.owner_of(config.number);
            let blobs = config.config.iter().map(|f| (blob_name(f.number), *f, format!("the program of {whose}")));
            let tables = config
                .tables
                .iter()
                .map(|file| (manifest::table_name(file.number), *file, format!("entities of {whose}")));
            all.extend(blobs.chain(tables));
        }
        for record in &self.manifest.records {
            let files = record.file.iter();
            all.extend(files.map(|file| (blob_name(file.number), *file, format!("the record `{}`", record.name))));
        }
        for (name, sealed, lost) in all {
            if let Err(damage) = Reader::open(folder, name, id, &sealed).and_then(Reader::check) {
                let severity = if damage.io { Severity::Unreadable } else { Severity::Damage };
                self.found(severity, damage.file, damage.at, damage.why, lost);
            }
        }
    }

    /// Describes which device and slot a config belongs to.
    fn owner_of(&self, number: u64) -> String {
        for device in &self.manifest.devices {
            let kept = device.kept.unwrap_or_default();
            for (slot, which) in [("running", kept.running), ("saved", kept.saved)] {
                if which == Some(number) {
                    return format!("the {slot} config of device {}", device.device_id);
                }
            }
        }
        format!("config {number}, which no device has")
    }

    /// The log's records of one config, combined.
    pub fn overlay(&self, config: u64) -> Option<Overlay<'_>> {
        Overlay::new(self.records.iter().filter(|logged| logged.config == config).map(|logged| &logged.record[..]))
    }
}

/// Reads a config's entities: its tables, overlaid with the log.
///
/// # Errors
/// A table is damaged or cannot be read.
pub fn entities<'a>(folder: &Folder, id: u64, config: &Config, overlay: Overlay<'a>) -> Result<Merged<'a>, Damage> {
    let open = |sealed| Table::open(folder, id, sealed).map(|table| Source::Table(Box::new(table)));
    let mut sources: Vec<Source<'a>> = config.tables.iter().map(open).collect::<Result<_, _>>()?;
    if !overlay.is_empty() {
        sources.push(Source::Overlay(overlay, 0));
    }
    Ok(Merged::new(sources))
}

/// Like [`entities`], for a config with damaged tables: takes the blocks that are intact.
pub fn salvage(folder: &Folder, config: &Config, overlay: &Overlay) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = std::collections::BTreeMap::new();
    for sealed in &config.tables {
        let bytes = folder.read(&manifest::table_name(sealed.number)).unwrap_or_default();
        for (_, mut frame) in intact_frames(&bytes) {
            while let Some((key, change)) = log::take_change(&mut frame) {
                match change {
                    log::Change::Value(value) => _ = all.insert(key.to_vec(), value.to_vec()),
                    log::Change::Gone => _ = all.remove(key),
                    log::Change::GoneBelow => all.retain(|other, _| !other.starts_with(key)),
                }
            }
        }
    }
    all.retain(|key, _| !overlay.clears(key));
    for (key, value) in &overlay.changes {
        match value {
            Some(value) => _ = all.insert(key.to_vec(), value.to_vec()),
            None => _ = all.remove(*key),
        }
    }
    all.into_iter().collect()
}

/// Reads the single payload of a blob.
///
/// # Errors
/// The blob is damaged or cannot be read.
pub fn blob(folder: &Folder, id: u64, sealed: &Sealed) -> Result<Vec<u8>, Damage> {
    let mut reader = Reader::open(folder, blob_name(sealed.number), id, sealed)?;
    let payload = reader.next()?.unwrap_or_default().to_vec();
    reader.next()?;
    Ok(payload)
}

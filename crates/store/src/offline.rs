//! An operator's commands on a directory: check, copy, dump, and restore from a dump.
//!
//! | | reads | while a switch runs on it |
//! | --- | --- | --- |
//! | [`check`], [`dump`] | the whole directory | refused |
//! | [`backup`] | a copy that is made first | yes: files are opened all at once, the log copied up to the mark |
//! | [`restore`] | a backup or a dump, into an empty directory | |
//!
//! A dump is text, one line per item; values are protobuf text format:
//!
//! ```text
//!   # sluice state dump 1
//!   record { name: ... value: ... }                  a DumpedRecord: devices and ports, programs of the command line
//!   config { device_id: ... config { ... } }         a DumpedConfig
//!   entity KEY { table_entry { ... } }               a p4.v1.Entity of the preceding config, with its key in hex;
//!                                                    for an OpenFlow bridge's config, a KeptOpenFlow
//!   end COUNT                                        number of lines before this one: a truncated dump is refused
//! ```
//!
//! Tests: `tests/kept/offline.rs`, `tests/py/test_state.py`.

use crate::error::{Finding, OpenError, Severity, explain};
use crate::folder::Folder;
use crate::format::FORMAT_FILE;
use crate::frames::{Chain, HEADER_BYTES};
use crate::image::{self, Image, Kind, blob, kind};
use crate::log::Overlay;
use crate::manifest::{self, Acknowledged, MANIFEST, MARK, Mark, log_name};
use crate::tables::Damage;
use crate::writer::forget;
use crate::{encode, opening};
use control::journal::Key;
use messages::FILE_DESCRIPTOR_SET;
use messages::sluice::v1::{DumpedConfig, DumpedRecord, KeptConfig, KeptDevice, StateManifest};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::path::Path;

/// First line of a dump.
const DUMP_LINE: &str = "# sluice state dump 1";
/// Maximum retries of a backup whose files the switch removed before they were opened.
const TRIES: usize = 100;

/// The result of checking a directory.
#[derive(Debug, Default)]
pub struct Report {
    /// All problems.
    pub findings: Vec<Finding>,
    /// Generation of the manifest.
    pub generation: u64,
    /// Number of the last record.
    pub records: u64,
    /// Device, slot, and number of entities of each config.
    pub configs: Vec<(u64, &'static str, usize)>,
}

impl Report {
    /// The worst severity of the findings.
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Note)
    }
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> OpenError {
    let dir = path.display().to_string();
    move |e| OpenError::Io { dir: dir.clone(), why: explain(&e) }
}

fn refuse<T>(path: &Path, why: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Io { dir: path.display().to_string(), why: why.into() })
}

/// Opens a directory that no switch is using, with a shared lock.
fn open(dir: &Path) -> Result<Folder, OpenError> {
    let folder = Folder::open(dir).map_err(io(dir))?;
    if !folder.lock(false).map_err(io(dir))? {
        return refuse(dir, "a switch is using it; `sluice state backup` copies it meanwhile, and checks the copy");
    }
    match kind(&folder)? {
        Kind::Current => Ok(folder),
        Kind::New => refuse(dir, "there is nothing in it"),
        Kind::Older(format) => refuse(
            dir,
            format!("it is of format {format}: a start with `sluice run --state` makes it one of this version"),
        ),
    }
}

/// Each device's configs, with their slots and numbers.
fn configs(manifest: &StateManifest) -> Vec<(u64, &'static str, u64)> {
    let of = |device: &messages::sluice::v1::state_manifest::Device| {
        let kept = device.kept.unwrap_or_default();
        let slots = [("running", kept.running), ("saved", kept.saved)];
        slots.into_iter().filter_map(|(slot, number)| Some((device.device_id, slot, number?))).collect::<Vec<_>>()
    };
    manifest.devices.iter().flat_map(of).collect()
}

/// Calls `config` with the config, and then `entity` with each entity and its
/// key. With `salvage`, takes what is readable.
fn each(
    folder: &Folder,
    image: &Image,
    number: u64,
    salvage: bool,
    mut config: impl FnMut(Vec<u8>) -> std::io::Result<()>,
    mut entity: impl FnMut(&[u8], &[u8]) -> std::io::Result<()>,
) -> Result<(), OpenError> {
    let dir = folder.path();
    let damage = |damage: Damage| OpenError::Io { dir: dir.display().to_string(), why: damage.to_string() };
    let found = image.manifest.configs.iter().find(|config| config.number == number);
    let Some((found, file)) = found.and_then(|found| Some((found, found.config.as_ref()?))) else {
        return refuse(dir, format!("config {number} is not in the manifest"));
    };
    config(blob(folder, image.manifest.id, file).map_err(damage)?).map_err(io(dir))?;
    let overlay = match image.overlay(number) {
        Some(overlay) => overlay,
        None if salvage => Overlay::default(),
        None => return refuse(dir, "a record of the log holds what is never written there"),
    };
    if salvage {
        let all = image::salvage(folder, found, &overlay);
        return all.iter().try_for_each(|(key, value)| entity(key, value)).map_err(io(dir));
    }
    let mut merged = image::entities(folder, image.manifest.id, found, overlay).map_err(damage)?;
    while let Some((key, value)) = merged.next().map_err(damage)? {
        if let Some(value) = value {
            entity(&key, &value).map_err(io(dir))?;
        }
    }
    Ok(())
}

/// Reads and checks everything, without changing anything.
///
/// # Errors
/// A switch is using the directory, it has another format, or its manifest is unreadable. Other problems are findings.
pub fn check(dir: &Path) -> Result<Report, OpenError> {
    check_open(&open(dir)?)
}

fn check_open(folder: &Folder) -> Result<Report, OpenError> {
    let image = Image::read(folder, false)?;
    let mut report =
        Report { generation: image.manifest.generation, records: image.log_end.1.next - 1, ..Report::default() };
    for (device, slot, number) in configs(&image.manifest) {
        let mut entities = 0;
        let whole = image.is_whole();
        let openflow = Cell::new(false);
        let decoded = |bytes: Vec<u8>| {
            openflow.set(encode::decode_config(&bytes).map_err(std::io::Error::other)?.1);
            Ok(())
        };
        let counted = |_: &[u8], value: &[u8]| {
            entities += 1;
            encode::check_value(value, openflow.get()).map_err(std::io::Error::other)
        };
        if whole {
            each(folder, &image, number, false, decoded, counted)?;
            report.configs.push((device, slot, entities));
        }
    }
    report.findings = image.findings;
    Ok(report)
}

fn descriptor(name: &str) -> Result<MessageDescriptor, String> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|e| e.to_string())?;
    pool.get_message_by_name(name).ok_or_else(|| format!("{name} is not described"))
}

fn text(of: &MessageDescriptor, bytes: &[u8]) -> std::io::Result<String> {
    DynamicMessage::decode(of.clone(), bytes).map(|message| message.to_text_format()).map_err(std::io::Error::other)
}

fn from_text(of: &MessageDescriptor, text: &str) -> Result<Vec<u8>, String> {
    DynamicMessage::parse_text_format(of.clone(), text)
        .map(|message| message.encode_to_vec())
        .map_err(|e| e.to_string())
}

/// Writes everything that is stored as a dump. With `salvage`, also works on a damaged directory: writes what is
/// readable, and returns the problems.
///
/// # Errors
/// The directory is in use, of another format or (without `salvage`) damaged, or `out` cannot be written.
pub fn dump(dir: &Path, salvage: bool, out: &mut dyn Write) -> Result<Vec<Finding>, OpenError> {
    let folder = open(dir)?;
    let image = Image::read(&folder, salvage)?;
    if let Some(refusal) = image.refusal(&dir.display().to_string()).filter(|_| !salvage) {
        return Err(refusal);
    }
    let no_descriptor = |why| OpenError::Io { dir: dir.display().to_string(), why };
    let of = |name| descriptor(name).map_err(no_descriptor);
    let (of_record, of_config) = (of("sluice.v1.DumpedRecord")?, of("sluice.v1.DumpedConfig")?);
    let (of_entity, of_openflow) = (of("p4.v1.Entity")?, of("sluice.v1.KeptOpenFlow")?);
    let mut findings = image.findings.clone();
    let lines = Cell::new(0u64);
    let out = std::cell::RefCell::new(out);
    let line = |words: std::fmt::Arguments| {
        lines.set(lines.get() + 1);
        writeln!(out.borrow_mut(), "{words}")
    };
    line(format_args!("{DUMP_LINE}")).map_err(io(dir))?;
    for record in &image.manifest.records {
        let Some(file) = &record.file else { continue };
        match blob(&folder, image.manifest.id, file) {
            Ok(value) => {
                let message = DumpedRecord { name: record.name.clone(), value };
                let text = text(&of_record, &message.encode_to_vec()).map_err(io(dir))?;
                line(format_args!("record {text}")).map_err(io(dir))?;
            }
            // It is already among the findings.
            Err(_) if salvage => {}
            Err(damage) => return refuse(dir, damage.to_string()),
        }
    }
    for (device_id, slot, number) in configs(&image.manifest) {
        let openflow = Cell::new(false);
        let config = |bytes: Vec<u8>| {
            let config = KeptConfig::decode(bytes.as_slice()).map_err(std::io::Error::other)?;
            openflow.set(config.openflow);
            let message = DumpedConfig { device_id, saved: slot == "saved", config: Some(config) };
            line(format_args!("config {}", text(&of_config, &message.encode_to_vec())?))
        };
        let entity = |key: &[u8], value: &[u8]| {
            let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            let of = if openflow.get() { &of_openflow } else { &of_entity };
            line(format_args!("entity {hex} {}", text(of, value)?))
        };
        match each(&folder, &image, number, salvage, config, entity) {
            Ok(()) => {}
            Err(error) if salvage => findings.push(Finding {
                severity: Severity::Damage,
                file: format!("config {number}"),
                at: 0,
                why: error.to_string(),
                lost: format!("the {slot} config of device {device_id} with its entities"),
            }),
            Err(error) => return Err(error),
        }
    }
    let count = lines.get();
    line(format_args!("end {count}")).map_err(io(dir))?;
    out.borrow_mut().flush().map_err(io(dir))?;
    Ok(findings)
}

/// Copies a directory as of one moment after the call; a switch may run on it. `to` must be
/// empty or not exist. The copy is checked.
///
/// # Errors
/// The directory is of another format, a file is missing or cannot be read, or `to` is not empty or cannot be written.
pub fn backup(dir: &Path, to: &Path) -> Result<Report, OpenError> {
    let from = Folder::open(dir).map_err(io(dir))?;
    match kind(&from)? {
        Kind::Current => {}
        Kind::New => return refuse(dir, "there is nothing in it"),
        Kind::Older(format) => {
            return refuse(dir, format!("it is of format {format}; start this version's switch on it first"));
        }
    }
    let target = empty(to)?;
    let mut tries = 0;
    let (manifest, files) = loop {
        match open_all(&from) {
            Ok(opened) => break opened,
            // The switch has replaced files; its new manifest names the current ones.
            Err((e, _)) if e.kind() == std::io::ErrorKind::NotFound && tries < TRIES => tries += 1,
            Err((_, Some(refusal))) => return Err(refusal),
            Err((e, None)) => return Err(io(dir)(e)),
        }
    };
    let mark = from.read(MARK).ok().and_then(|bytes| Mark::read(&bytes, manifest.id)).map(|(_, mark)| mark);
    let acknowledged = mark.map_or(u64::MAX, |mark| mark.record);
    let copied = copy_files(&target, &manifest, files, acknowledged).map_err(io(to))?;
    let acknowledged = Acknowledged { generation: manifest.generation, record: copied };
    let finish = || {
        Mark::create(&target, manifest.id, acknowledged)?;
        target.replace(MANIFEST, &manifest::encode(&manifest))?;
        target.replace(FORMAT_FILE, &from.read(FORMAT_FILE)?)
    };
    finish().map_err(io(to))?;
    let report = check_open(&target)?;
    match report.findings.iter().find(|finding| finding.severity > Severity::Torn) {
        Some(finding) => Err(OpenError::Damaged {
            dir: dir.display().to_string(),
            finding: Box::new(finding.clone()),
            more: report.findings.len() - 1,
        }),
        None => Ok(report),
    }
}

type Opened = (StateManifest, Vec<(String, File)>);

fn open_all(from: &Folder) -> Result<Opened, (std::io::Error, Option<OpenError>)> {
    let bytes = from.read(MANIFEST).map_err(|e| (e, None))?;
    let manifest = manifest::decode(&bytes).map_err(|why| {
        let lost = "everything that is kept".to_string();
        let finding = Finding { severity: Severity::Damage, file: MANIFEST.into(), at: 0, why, lost };
        let dir = from.path().display().to_string();
        (std::io::Error::other("damaged"), Some(OpenError::Damaged { dir, finding: Box::new(finding), more: 0 }))
    })?;
    let open = |name: String| from.file(&name).map(|file| (name.clone(), file)).map_err(|e| (e, name));
    match manifest::files(&manifest).map(open).collect::<Result<Vec<_>, _>>() {
        Ok(files) => Ok((manifest, files)),
        Err((e, name)) => {
            let gone = e.kind() == std::io::ErrorKind::NotFound;
            // Either named by an outdated manifest, or really missing.
            let newer = from.read(MANIFEST).is_ok_and(|now| now != bytes);
            let why = format!("{name}: {}", if gone { "the file is missing".into() } else { explain(&e) });
            match gone && newer {
                true => Err((e, None)),
                false => {
                    let refusal = OpenError::Io { dir: from.path().display().to_string(), why };
                    Err((std::io::Error::other("missing"), Some(refusal)))
                }
            }
        }
    }
}

/// Copies files; logs only up to record `until`. Returns the number of the last record copied.
fn copy_files(to: &Folder, manifest: &StateManifest, files: Vec<(String, File)>, until: u64) -> std::io::Result<u64> {
    let mut last = 0;
    for (name, mut file) in files {
        let mut copy = to.create(&name)?;
        match manifest.logs.iter().find(|log| log_name(log.number) == name) {
            None => _ = std::io::copy(&mut file, &mut copy)?,
            Some(log) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                let (mut chain, mut at) = (Chain::begin(log.first, log.previous), 0);
                while chain.next <= until && bytes.len() - at >= HEADER_BYTES {
                    if !matches!(chain.read(&bytes, &mut at), Ok(Some(_))) {
                        break;
                    }
                }
                // A damaged part that was acknowledged is copied as it is: the check of the copy finds it.
                let whole = chain.next > until;
                copy.write_all(if whole { &bytes[..at] } else { &bytes })?;
                last = if until == u64::MAX { chain.next.saturating_sub(1) } else { until };
            }
        }
        copy.sync_all()?;
    }
    Ok(last)
}

/// Opens an empty directory, which is created if it does not exist.
fn empty(path: &Path) -> Result<Folder, OpenError> {
    std::fs::create_dir_all(path).map_err(io(path))?;
    let folder = Folder::open(path).map_err(io(path))?;
    match folder.names().map_err(io(path))?.first() {
        Some(name) => refuse(path, format!("it is not empty (it has `{name}`); name an empty directory or a new one")),
        None => Ok(folder),
    }
}

/// Creates a directory from a backup or a dump. `into` must be empty or not exist.
///
/// # Errors
/// `from` is damaged or cannot be read, or `into` is not empty or cannot be written.
pub fn restore(from: &Path, into: &Path) -> Result<Report, OpenError> {
    if from.is_dir() {
        return backup(from, into);
    }
    let file = File::open(from).map_err(io(from))?;
    drop(empty(into)?);
    let restored = restore_dump(std::io::BufReader::new(file), into);
    match restored {
        Ok(()) => check(into),
        Err(why) => {
            forget(into)?;
            refuse(from, why)
        }
    }
}

/// Maximum length of a dump's line in bytes: a config has its program as text and as a descriptor, among others.
const LINE_BYTES_MAX: u64 = 1 << 30;

struct Lines<R> {
    from: R,
    peeked: Option<String>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The rest of the next line after `word` and a space; `None` if the next line starts with another word.
    fn after(&mut self, word: &str) -> Result<Option<String>, String> {
        if self.peeked.is_none() {
            let mut line = String::new();
            let read = (&mut self.from).take(LINE_BYTES_MAX + 1).read_line(&mut line).map_err(|e| e.to_string())?;
            if read as u64 > LINE_BYTES_MAX {
                return Err(format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.number + 1));
            }
            let text = line.strip_suffix('\n').unwrap_or(&line);
            self.peeked = (read != 0).then(|| text.strip_suffix('\r').unwrap_or(text).to_string());
        }
        let rest = self.peeked.as_deref().and_then(|line| line.strip_prefix(word)?.strip_prefix(' '));
        let rest = rest.map(str::to_string);
        if rest.is_some() {
            self.peeked = None;
            self.number += 1;
        }
        Ok(rest)
    }
}

fn restore_dump(from: impl BufRead, into: &Path) -> Result<(), String> {
    let mut lines = Lines { from, peeked: None, number: 0 };
    if lines.after("#")?.is_none_or(|rest| format!("# {rest}") != DUMP_LINE) {
        return Err(format!("this is not a dump: its first line is not `{DUMP_LINE}`"));
    }
    let mut layout = opening::open(into).map_err(|e| e.to_string())?;
    let (of_record, of_config) = (descriptor("sluice.v1.DumpedRecord")?, descriptor("sluice.v1.DumpedConfig")?);
    let (of_entity, of_openflow) = (descriptor("p4.v1.Entity")?, descriptor("sluice.v1.KeptOpenFlow")?);
    let mut devices: BTreeMap<u64, KeptDevice> = BTreeMap::new();
    let at = |number: u64, why: String| format!("line {number}: {why}");
    while let Some(text) = lines.after("record")? {
        let bytes = from_text(&of_record, &text).map_err(|why| at(lines.number, why))?;
        let record = DumpedRecord::decode(bytes.as_slice()).map_err(|e| e.to_string())?;
        layout.set_record(&record.name, &record.value)?;
    }
    while let Some(text) = lines.after("config")? {
        let bytes = from_text(&of_config, &text).map_err(|why| at(lines.number, why))?;
        let dumped = DumpedConfig::decode(bytes.as_slice()).map_err(|e| e.to_string())?;
        let config = dumped.config.unwrap_or_default().encode_to_vec();
        let (_, openflow) = encode::decode_config(&config).map_err(|e| at(lines.number, e.to_string()))?;
        let of = if openflow { &of_openflow } else { &of_entity };
        let mut values = std::iter::from_fn(|| match lines.after("entity") {
            Ok(line) => {
                let line = line?;
                Some(value(of, &line, openflow).map_err(|why| at(lines.number, why)))
            }
            Err(why) => Some(Err(why)),
        });
        let number = layout.write_values(&config, &mut values)?;
        let device = devices.entry(dumped.device_id).or_default();
        let slot = if dumped.saved { &mut device.saved } else { &mut device.running };
        if slot.replace(number).is_some() {
            return Err(format!("device {} has two configs of one kind", dumped.device_id));
        }
    }
    match lines.after("end")? {
        Some(count) if count.trim().parse() == Ok(lines.number - 1) => {}
        Some(_) => return Err("lines are missing: its last line counts others than there are".into()),
        None => {
            return Err(match &lines.peeked {
                Some(other) => {
                    let begin: String = other.chars().take(40).collect();
                    at(lines.number + 1, format!("`{begin}` is not expected here"))
                }
                None => "it was cut off: there is no last line `end`".into(),
            });
        }
    }
    devices.iter().try_for_each(|(id, device)| layout.set_device(*id, device))
}

fn value(of: &MessageDescriptor, line: &str, openflow: bool) -> Result<(Key, Vec<u8>), String> {
    let (key, text) = line.split_once(' ').ok_or("an entity needs its key and its value")?;
    let byte = |at: usize| key.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Key> = (0..key.len()).step_by(2).map(byte).collect();
    let key = bytes.filter(|key| !key.is_empty()).ok_or("its key is not hexadecimal")?;
    let value = from_text(of, text)?;
    encode::check_value(&value, openflow)?;
    Ok((key, value))
}

//! The manifest, which names every file of the directory with its length and checksum; and the mark, which records how
//! far the log was acknowledged.
//!
//! ```text
//!   manifest   one frame: StateManifest. Replaced atomically: written under another name, synced, renamed
//!   mark       two slots in separate sectors, written in turn: a frame with id, counter, generation, last record
//! ```
//!
//! A log alone cannot tell that its end is missing, since a truncated log may also end with an intact record. So the
//! mark is written after each sync of the log, before the requests are answered. The mark itself is not synced: after
//! `kill -9` it is exact; after a power failure it may lag behind, and is a lower bound.
//!
//! Tests: `tests/kept/damaged.rs`.

use crate::folder::Folder;
use crate::frames::{Chain, Fault, intact_frames};
use messages::sluice::v1::StateManifest;
use messages::sluice::v1::state_manifest::File as Sealed;
use prost::Message;
use std::fs::File;
use std::os::unix::fs::FileExt;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Name of the manifest's file.
pub const MANIFEST: &str = "manifest";
/// Name of the mark's file.
pub const MARK: &str = "mark";
/// Size of a slot in bytes: a sector, which is written atomically.
const SLOT_BYTES: usize = 512;

/// Encodes a manifest as its file's contents.
pub fn encode(manifest: &StateManifest) -> Vec<u8> {
    let mut out = Vec::new();
    Chain::begin(0, 0).frame(&mut out, |out| out.extend_from_slice(&manifest.encode_to_vec()));
    out
}

/// Decodes the contents of a manifest's file.
///
/// # Errors
/// Why they are damaged.
pub fn decode(bytes: &[u8]) -> Result<StateManifest, String> {
    let (mut chain, mut at) = (Chain::begin(0, 0), 0);
    let payload = chain.read(bytes, &mut at).map_err(|fault| fault.to_string())?;
    let payload = payload.ok_or("it is empty")?;
    if at != bytes.len() {
        return Err("more follows its only record".into());
    }
    StateManifest::decode(payload).map_err(|e| e.to_string())
}

/// The seed of the chain of file `number`.
pub fn seed(id: u64, number: u64) -> u64 {
    xxh3_64_with_seed(&number.to_le_bytes(), id)
}

/// The chain of an immutable file, at its start.
pub fn chain_of(id: u64, file: &Sealed) -> Chain {
    Chain::begin(0, seed(id, file.number))
}

/// Checks that a chain ends where the immutable file should end.
///
/// # Errors
/// How it differs.
pub fn is_complete(file: &Sealed, chain: &Chain) -> Result<(), Fault> {
    match (chain.next, chain.last) == (file.frames, file.last) {
        true => Ok(()),
        false if chain.next < file.frames => Err(Fault::Incomplete),
        false => Err(Fault::Chain),
    }
}

/// Name of a table's file.
pub fn table_name(number: u64) -> String {
    format!("table-{number}")
}

/// Name of a blob's file: a config or a record.
pub fn blob_name(number: u64) -> String {
    format!("blob-{number}")
}

/// Name of a log's file.
pub fn log_name(number: u64) -> String {
    format!("log-{number}")
}

/// Whether a name is one of the numbered files that manifests name.
pub fn is_numbered(name: &str) -> bool {
    let number = ["table-", "blob-", "log-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The names of all files in a manifest.
pub fn files(manifest: &StateManifest) -> impl Iterator<Item = String> {
    let tables = manifest.configs.iter().flat_map(|config| &config.tables).map(|file| table_name(file.number));
    let configs = manifest.configs.iter().filter_map(|config| config.config.as_ref());
    let records = manifest.records.iter().filter_map(|record| record.file.as_ref());
    let blobs = configs.chain(records).map(|file| blob_name(file.number));
    let logs = manifest.logs.iter().map(|log| log_name(log.number));
    tables.chain(blobs).chain(logs)
}

/// How far changes were acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledged {
    /// Generation of the newest manifest.
    pub generation: u64,
    /// Number of the last record.
    pub record: u64,
}

/// Adds the mark's file name to an error.
fn named(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{MARK}: {error}"))
}

/// The open mark file. Functions that return `Result` fail with the system's error.
pub struct Mark {
    file: File,
    id: u64,
    counter: u64,
}

impl Mark {
    /// Creates the file and syncs it, but not the directory.
    pub fn create(folder: &Folder, id: u64, first: Acknowledged) -> std::io::Result<Mark> {
        let mut mark = Mark { file: folder.create(MARK).map_err(named)?, id, counter: 0 };
        mark.file.set_len(2 * SLOT_BYTES as u64)?;
        mark.set(first)?;
        mark.set(first)?;
        mark.file.sync_all()?;
        Ok(mark)
    }

    /// Decodes the newer slot: its counter and contents; `None` if neither slot is valid.
    pub fn read(bytes: &[u8], id: u64) -> Option<(u64, Acknowledged)> {
        let slot = |at: usize| {
            let slot = bytes.get(at..bytes.len().min(at + SLOT_BYTES))?;
            let (range, payload) = intact_frames(slot).next()?;
            let numbers: Vec<u64> =
                payload.chunks_exact(8).filter_map(|b| b.try_into().ok().map(u64::from_le_bytes)).collect();
            match numbers.as_slice() {
                [of, counter, generation, record] if *of == id && range.start == 0 => {
                    Some((*counter, Acknowledged { generation: *generation, record: *record }))
                }
                _ => None,
            }
        };
        [slot(0), slot(SLOT_BYTES)].into_iter().flatten().max_by_key(|(counter, _)| *counter)
    }

    /// Opens an existing mark, whose counter was read before.
    pub fn open(folder: &Folder, id: u64, counter: u64) -> std::io::Result<Mark> {
        Ok(Mark { file: folder.file_to_write(MARK).map_err(named)?, id, counter })
    }

    /// Writes how far changes are acknowledged; not synced.
    pub fn set(&mut self, acknowledged: Acknowledged) -> std::io::Result<()> {
        self.counter += 1;
        let mut out = Vec::with_capacity(128);
        let numbers = [self.id, self.counter, acknowledged.generation, acknowledged.record];
        Chain::begin(self.counter, self.id)
            .frame(&mut out, |out| numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes())));
        self.file.write_all_at(&out, (self.counter % 2) * SLOT_BYTES as u64)
    }

    /// Like [`Mark::set`], and syncs.
    pub fn set_synced(&mut self, acknowledged: Acknowledged) -> std::io::Result<()> {
        self.set(acknowledged)?;
        self.file.sync_data()
    }
}

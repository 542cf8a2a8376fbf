//! The manifest, which names every file of the directory with its length and checksum, and the mark, which says how far the log was
//! acknowledged.
//!
//! ```text
//!   manifest   one frame: StateManifest. Replaced as a whole: written beside, synced, renamed
//!   mark       two slots in sectors of their own, written in turn: a frame with id, counter, generation, number of the last acknowledged record
//! ```
//!
//! A log alone cannot say that its end is missing: that it ends with an intact record is what a shorter one does, too. So after
//! each sync of the log the mark is written, before the requests are answered. It is not synced itself: after `kill -9` it is exact, after
//! a power cut it may lag behind, and is a lower bound.
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

/// Its file.
pub const MANIFEST: &str = "manifest";
/// The mark's file.
pub const MARK: &str = "mark";
/// Sectors are written whole or not at all.
const SLOT_BYTES: usize = 512;

/// The manifest as its file's bytes.
pub fn encode(manifest: &StateManifest) -> Vec<u8> {
    let mut out = Vec::new();
    Chain::begin(0, 0).frame(&mut out, |out| out.extend_from_slice(&manifest.encode_to_vec()));
    out
}

/// The manifest of its file's bytes.
pub fn decode(bytes: &[u8]) -> Result<StateManifest, String> {
    let (mut chain, mut at) = (Chain::begin(0, 0), 0);
    let payload = chain.read(bytes, &mut at).map_err(|fault| fault.to_string())?;
    let payload = payload.ok_or("it is empty")?;
    if at != bytes.len() {
        return Err("more follows its only record".into());
    }
    StateManifest::decode(payload).map_err(|e| e.to_string())
}

/// The seed of a file's chain.
pub fn seed(id: u64, number: u64) -> u64 {
    xxh3_64_with_seed(&number.to_le_bytes(), id)
}

/// The chain of a complete file, from its beginning.
pub fn chain_of(id: u64, file: &Sealed) -> Chain {
    Chain::begin(0, seed(id, file.number))
}

/// Whether a chain has come to the end of a complete file.
pub fn is_complete(file: &Sealed, chain: &Chain) -> Result<(), Fault> {
    match (chain.next, chain.last) == (file.frames, file.last) {
        true => Ok(()),
        false if chain.next < file.frames => Err(Fault::Incomplete),
        false => Err(Fault::Chain),
    }
}

/// Names of files.
pub fn table_name(number: u64) -> String {
    format!("table-{number}")
}

/// The file of a config or a record.
pub fn blob_name(number: u64) -> String {
    format!("blob-{number}")
}

/// A log.
pub fn log_name(number: u64) -> String {
    format!("log-{number}")
}

/// Whether a name is one of ours that manifests name.
pub fn is_numbered(name: &str) -> bool {
    let number = ["table-", "blob-", "log-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Every file that a manifest names.
pub fn files(manifest: &StateManifest) -> impl Iterator<Item = String> {
    let tables = manifest.configs.iter().flat_map(|config| &config.tables).map(|file| table_name(file.number));
    let configs = manifest.configs.iter().filter_map(|config| config.config.as_ref());
    let records = manifest.records.iter().filter_map(|record| record.file.as_ref());
    let blobs = configs.chain(records).map(|file| blob_name(file.number));
    let logs = manifest.logs.iter().map(|log| log_name(log.number));
    tables.chain(blobs).chain(logs)
}

/// What was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledged {
    /// The newest manifest.
    pub generation: u64,
    /// The last record.
    pub record: u64,
}

/// An error about the mark's file, with its name.
fn named(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{MARK}: {error}"))
}

/// The open mark.
pub struct Mark {
    file: File,
    id: u64,
    counter: u64,
}

impl Mark {
    /// Makes it; on disk when it returns, but for its name.
    pub fn create(folder: &Folder, id: u64, first: Acknowledged) -> std::io::Result<Mark> {
        let mut mark = Mark { file: folder.create(MARK).map_err(named)?, id, counter: 0 };
        mark.file.set_len(2 * SLOT_BYTES as u64)?;
        mark.set(first)?;
        mark.set(first)?;
        mark.file.sync_all()?;
        Ok(mark)
    }

    /// What its file says: the newer of its slots. `None` if neither is one.
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

    /// Opens one that was read.
    pub fn open(folder: &Folder, id: u64, counter: u64) -> std::io::Result<Mark> {
        Ok(Mark { file: folder.file_to_write(MARK).map_err(named)?, id, counter })
    }

    /// Says what is acknowledged from now on.
    pub fn set(&mut self, acknowledged: Acknowledged) -> std::io::Result<()> {
        self.counter += 1;
        let mut out = Vec::with_capacity(128);
        let numbers = [self.id, self.counter, acknowledged.generation, acknowledged.record];
        Chain::begin(self.counter, self.id)
            .frame(&mut out, |out| numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes())));
        self.file.write_all_at(&out, (self.counter % 2) * SLOT_BYTES as u64)
    }

    /// The same, on disk when it returns.
    pub fn set_synced(&mut self, acknowledged: Acknowledged) -> std::io::Result<()> {
        self.set(acknowledged)?;
        self.file.sync_data()
    }
}

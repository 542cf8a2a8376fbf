//! Tables: the entities of one config, sorted by key, in an immutable file (an SSTable).
//!
//! ```text
//!   frame 0    the prefixes whose keys in older tables are deleted, encoded as changes of the log
//!   frame ...  changes in the order of their keys, each key once (encoded as in `log`)
//! ```
//!
//! A config's entities are the merge of its tables, where newer tables override older ones: [`Merged`] reads them
//! together. New tables come from folds of the log. [`to_merge`] decides which of them are merged into one (tiered
//! compaction), so that there are few tables and none is rewritten too often.
//!
//! **Invariant.** Reading a table to its end succeeds only if its frames are those that the manifest counts.
//!
//! Tests: below, `tests/kept`.

use crate::folder::Folder;
use crate::frames::{Chain, Frames, Stop};
use crate::log::{self, Change};
use crate::manifest::{chain_of, is_complete, seed, table_name};
use messages::sluice::v1::state_manifest::File as Sealed;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::ops::Range;

/// Bytes of changes per frame: the unit of reading and checking.
const BLOCK_BYTES: usize = 64 << 10;
/// Number of tables of similar size that are merged into one. With more, a start reads more files; with
/// fewer, entities are rewritten more often.
const SAME_SIZE_MAX: usize = 8;

/// A key with its value; `None` if the key is deleted.
pub type Item = (Vec<u8>, Option<Vec<u8>>);

/// Writes a file of frames, which is complete when [`finish`](Writer::finish) returns. Functions that return `Result`
/// fail with the system's error.
pub struct Writer {
    file: BufWriter<File>,
    chain: Chain,
    sealed: Sealed,
    block: Vec<u8>,
    frame: Vec<u8>,
}

impl Writer {
    /// Creates a file.
    pub fn create(folder: &Folder, name: &str, id: u64, number: u64) -> std::io::Result<Writer> {
        let file = BufWriter::with_capacity(BLOCK_BYTES, folder.create(name)?);
        let (chain, sealed) = (Chain::begin(0, seed(id, number)), Sealed { number, ..Sealed::default() });
        Ok(Writer { file, chain, sealed, block: vec![], frame: vec![] })
    }

    /// Creates a table that deletes the prefixes `cleared` in older tables.
    pub fn table<'a>(
        folder: &Folder,
        id: u64,
        number: u64,
        cleared: impl Iterator<Item = &'a [u8]>,
    ) -> std::io::Result<Writer> {
        let mut writer = Writer::create(folder, &table_name(number), id, number)?;
        cleared.for_each(|below| log::put_change(&mut writer.block, below, &Change::GoneBelow));
        writer.end_frame()?;
        Ok(writer)
    }

    /// Appends the next key of a table; keys must be pushed in order.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> std::io::Result<()> {
        log::put_change(&mut self.block, key, &value.map_or(Change::Gone, Change::Value));
        if self.block.len() >= BLOCK_BYTES { self.end_frame() } else { Ok(()) }
    }

    /// Appends a frame.
    pub fn frame(&mut self, payload: &[u8]) -> std::io::Result<()> {
        self.block.extend_from_slice(payload);
        self.end_frame()
    }

    fn end_frame(&mut self) -> std::io::Result<()> {
        self.frame.clear();
        self.chain.frame(&mut self.frame, |out| out.extend_from_slice(&self.block));
        self.block.clear();
        self.sealed.bytes += self.frame.len() as u64;
        self.file.write_all(&self.frame)
    }

    /// Completes the file and syncs its contents; its name is not synced yet.
    pub fn finish(mut self) -> std::io::Result<Sealed> {
        if !self.block.is_empty() {
            self.end_frame()?;
        }
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        Ok(Sealed { frames: self.chain.next, last: self.chain.last, ..self.sealed })
    }
}

/// The location of damage in a file.
#[derive(Debug)]
pub struct Damage {
    /// Name of the file.
    pub file: String,
    /// Byte offset in the file.
    pub at: u64,
    /// What was found.
    pub why: String,
    /// Whether the system failed to read the file, so that its contents are unknown.
    pub io: bool,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, byte {}: {}", self.file, self.at, self.why)
    }
}

/// Reads the frames of an immutable file.
pub struct Reader {
    name: String,
    sealed: Sealed,
    frames: Frames<BufReader<File>>,
}

impl Reader {
    /// Opens the file, whose length must match the manifest.
    ///
    /// # Errors
    /// The file is missing, has another length, or cannot be read.
    pub fn open(folder: &Folder, name: String, id: u64, sealed: &Sealed) -> Result<Reader, Damage> {
        let damage = |at, why: String, io| Damage { file: name.clone(), at, why, io };
        let file = folder.file(&name).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => damage(0, "the file is missing".into(), false),
            _ => damage(0, e.to_string(), true),
        })?;
        let bytes = file.metadata().map_err(|e| damage(0, e.to_string(), true))?.len();
        if bytes != sealed.bytes {
            return Err(damage(
                bytes.min(sealed.bytes),
                format!("it has {bytes} bytes instead of {}", sealed.bytes),
                false,
            ));
        }
        let frames = Frames::new(BufReader::with_capacity(BLOCK_BYTES, file), bytes, chain_of(id, sealed));
        Ok(Reader { name, sealed: *sealed, frames })
    }

    /// The next payload; `None` at the end.
    ///
    /// # Errors
    /// A frame is damaged, the file ends too early or too late, or cannot be read.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Damage> {
        let at = self.frames.at;
        let damage = |why: String, io| Damage { file: self.name.clone(), at, why, io };
        match self.frames.advance() {
            Ok(true) => Ok(Some(self.frames.payload())),
            Ok(false) => {
                let end = is_complete(&self.sealed, &self.frames.chain);
                end.map(|()| None).map_err(|fault| damage(fault.to_string(), false))
            }
            Err(Stop::Fault(fault)) => Err(damage(fault.to_string(), false)),
            Err(Stop::Io(e)) => Err(damage(e.to_string(), true)),
        }
    }

    /// Reads the file to its end. Returns the number of payloads.
    ///
    /// # Errors
    /// As [`Reader::next`].
    pub fn check(mut self) -> Result<u64, Damage> {
        while self.next()?.is_some() {}
        Ok(self.frames.chain.next)
    }
}

/// Iterates over the items of a table.
pub struct Table {
    reader: Reader,
    block: Vec<u8>,
    /// Offset in `block` of the item after the current one.
    at: usize,
    /// Ranges in `block` of the current item's key and value; `None` at the end.
    item: Option<(Range<usize>, Option<Range<usize>>)>,
    /// Prefixes whose keys in older tables are deleted.
    cleared: Vec<Vec<u8>>,
}

impl Table {
    /// Opens a table at its first item.
    pub fn open(folder: &Folder, id: u64, sealed: &Sealed) -> Result<Table, Damage> {
        let mut reader = Reader::open(folder, table_name(sealed.number), id, sealed)?;
        let mut rest = reader.next()?.unwrap_or_default();
        let mut cleared = Vec::new();
        while let Some((key, _)) = log::take_change(&mut rest) {
            cleared.push(key.to_vec());
        }
        let mut table = Table { reader, block: vec![], at: 0, item: None, cleared };
        table.advance()?;
        Ok(table)
    }

    fn advance(&mut self) -> Result<(), Damage> {
        self.item = None;
        while self.at == self.block.len() {
            let Some(block) = self.reader.next()? else { return Ok(()) };
            self.block.clear();
            self.block.extend_from_slice(block);
            self.at = 0;
        }
        let begin = self.at;
        let mut rest = &self.block[begin..];
        let change = log::take_change(&mut rest);
        self.at = self.block.len() - rest.len();
        // A change ends with its value; the key precedes the four bytes that tell the kind of change.
        let key_to = |value: usize| self.at - value - 4;
        self.item = match change {
            Some((key, Change::Value(value))) => {
                let end = key_to(value.len());
                Some((end - key.len()..end, Some(self.at - value.len()..self.at)))
            }
            Some((key, Change::Gone)) => Some((key_to(0) - key.len()..key_to(0), None)),
            // The checksum is correct, so the record was written like this.
            Some((_, Change::GoneBelow)) | None => {
                return Err(Damage {
                    file: self.reader.name.clone(),
                    at: self.reader.frames.at,
                    why: "a record holds what this version never writes".into(),
                    io: false,
                });
            }
        };
        Ok(())
    }
}

/// A source of sorted items.
pub enum Source<'a> {
    /// A table's file.
    Table(Box<Table>),
    /// The log's changes over the tables, and the index of the next one.
    Overlay(log::Overlay<'a>, usize),
}

impl Source<'_> {
    /// The current key with its value; `None` at the end.
    fn item(&self) -> Option<(&[u8], Option<&[u8]>)> {
        match self {
            Source::Table(table) => {
                let (key, value) = table.item.as_ref()?;
                Some((&table.block[key.clone()], value.clone().map(|value| &table.block[value])))
            }
            Source::Overlay(overlay, at) => overlay.changes.get(*at).copied(),
        }
    }

    fn advance(&mut self) -> Result<(), Damage> {
        match self {
            Source::Table(table) => table.advance(),
            Source::Overlay(_, at) => {
                *at += 1;
                Ok(())
            }
        }
    }

    fn clears(&self, key: &[u8]) -> bool {
        match self {
            Source::Table(table) => table.cleared.iter().any(|below| key.starts_with(below)),
            Source::Overlay(overlay, _) => overlay.clears(key),
        }
    }
}

/// A k-way merge of sorted sources, in which newer sources override older ones.
pub struct Merged<'a> {
    /// Oldest first.
    sources: Vec<Source<'a>>,
    /// Indices of the sources that have the current key.
    same: Vec<usize>,
}

impl<'a> Merged<'a> {
    /// Merges these sources, oldest first.
    pub fn new(sources: Vec<Source<'a>>) -> Merged<'a> {
        Merged { sources, same: vec![] }
    }

    /// Advances to the next key, and passes it with its newest value to `take`.
    fn next_with<R>(&mut self, mut take: impl FnMut(&[u8], Option<&[u8]>) -> R) -> Result<Option<R>, Damage> {
        loop {
            let Merged { sources, same } = self;
            let mut next: Option<(&[u8], Option<&[u8]>)> = None;
            for (at, source) in sources.iter().enumerate() {
                let Some((key, value)) = source.item() else { continue };
                match next.map_or(Less, |(least, _)| key.cmp(least)) {
                    Less => same.clear(),
                    Equal => {}
                    Greater => continue,
                }
                next = Some((key, value));
                same.push(at);
            }
            let (Some((key, value)), Some(newest)) = (next, same.last()) else { return Ok(None) };
            let is_cleared = sources[newest + 1..].iter().any(|source| source.clears(key));
            let taken = (!is_cleared).then(|| take(key, value));
            for at in same.drain(..) {
                sources[at].advance()?;
            }
            if taken.is_some() {
                return Ok(taken);
            }
        }
    }

    /// The next key with its newest value; `None` at the end.
    ///
    /// # Errors
    /// A table is damaged or cannot be read.
    pub fn next(&mut self) -> Result<Option<Item>, Damage> {
        self.next_with(|key, value| (key.to_vec(), value.map(<[u8]>::to_vec)))
    }

    /// Calls `take` with the value of each key that is not deleted, in order of the keys.
    ///
    /// # Errors
    /// As [`Merged::next`].
    pub fn for_each_value(mut self, mut take: impl FnMut(&[u8])) -> Result<(), Damage> {
        while self.next_with(|_, value| value.into_iter().for_each(&mut take))?.is_some() {}
        Ok(())
    }

    /// All prefixes that the sources delete, for the merged table.
    pub fn cleared(&self) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for source in &self.sources {
            match source {
                Source::Table(table) => all.extend(table.cleared.iter().cloned()),
                Source::Overlay(overlay, _) => all.extend(overlay.cleared.iter().map(|below| below.to_vec())),
            }
        }
        all.sort();
        all.dedup();
        all
    }
}

/// How many of a config's newest tables should be merged; 0 if none. `small` is
/// the size in bytes of a table of one fold.
pub fn to_merge(tables: &[Sealed], small: u64) -> usize {
    let class = |bytes: u64| (bytes / small.max(1)).checked_ilog(SAME_SIZE_MAX as u64).unwrap_or(0);
    let Some(newest) = tables.last() else { return 0 };
    let same = tables.iter().rev().take_while(|table| class(table.bytes) <= class(newest.bytes)).count();
    if same >= SAME_SIZE_MAX { same } else { 0 }
}

/// Merges the newest `many` tables of a config into one.
///
/// # Errors
/// A table is damaged or cannot be read, or the new one cannot be written.
pub fn merge(folder: &Folder, id: u64, number: u64, tables: &[Sealed], many: usize) -> Result<Sealed, String> {
    let from = tables.len() - many;
    // Tombstones are dropped when the oldest table is included: there is nothing older that they could delete.
    let is_all = from == 0;
    let open = |sealed| Table::open(folder, id, sealed).map(|table| Source::Table(Box::new(table)));
    let sources: Result<Vec<_>, Damage> = tables[from..].iter().map(open).collect();
    let mut merged = Merged::new(sources.map_err(|e| e.to_string())?);
    let cleared = if is_all { vec![] } else { merged.cleared() };
    let io = |e: std::io::Error| crate::error::explain(&e);
    let mut writer = Writer::table(folder, id, number, cleared.iter().map(Vec::as_slice)).map_err(io)?;
    while let Some((key, value)) = merged.next().map_err(|e| e.to_string())? {
        if value.is_some() || !is_all {
            writer.push(&key, value.as_deref()).map_err(io)?;
        }
    }
    writer.finish().map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a str, Option<&'a str>);

    fn table(folder: &Folder, number: u64, cleared: &[&str], rows: &[Row]) -> Sealed {
        let mut writer = Writer::table(folder, 9, number, cleared.iter().map(|c| c.as_bytes())).unwrap();
        rows.iter().for_each(|(key, value)| writer.push(key.as_bytes(), value.map(str::as_bytes)).unwrap());
        writer.finish().unwrap()
    }

    fn read(folder: &Folder, tables: &[Sealed]) -> Vec<(String, Option<String>)> {
        let open = |sealed| Source::Table(Box::new(Table::open(folder, 9, sealed).unwrap()));
        let mut merged = Merged::new(tables.iter().map(open).collect());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        std::iter::from_fn(|| merged.next().unwrap()).map(|(key, value)| (text(key), value.map(text))).collect()
    }

    #[test]
    fn later_tables_lie_over_earlier_ones_merged_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let tables = [
            table(&folder, 1, &[], &[("a1", Some("1")), ("a2", Some("1")), ("b", Some("1")), ("c", Some("1"))]),
            table(&folder, 2, &["a"], &[("a2", Some("2")), ("b", None)]),
            table(&folder, 3, &["x"], &[("c", Some("3")), ("d", Some("3"))]),
        ];
        let some = |rows: &[Row]| -> Vec<(String, Option<String>)> {
            rows.iter().map(|(key, value)| (key.to_string(), value.map(str::to_string))).collect()
        };
        assert_eq!(read(&folder, &tables), some(&[("a2", Some("2")), ("b", None), ("c", Some("3")), ("d", Some("3"))]));
        // Merging the newest two gives the same result over the oldest; merging all drops the tombstones.
        let two = merge(&folder, 9, 4, &tables, 2).unwrap();
        assert_eq!(read(&folder, &[tables[0], two]), read(&folder, &tables));
        let all = merge(&folder, 9, 5, &tables, 3).unwrap();
        assert_eq!(read(&folder, &[all]), some(&[("a2", Some("2")), ("c", Some("3")), ("d", Some("3"))]));
    }

    #[test]
    fn tables_of_one_size_are_merged_before_there_are_many() {
        let of = |bytes: &[u64]| bytes.iter().map(|b| Sealed { bytes: *b, ..Default::default() }).collect::<Vec<_>>();
        assert_eq!(to_merge(&of(&[10; 7]), 10), 0);
        assert_eq!(to_merge(&of(&[10; 8]), 10), 8);
        assert_eq!(to_merge(&of(&[1000, 10, 10, 10, 10, 10, 10, 10, 10]), 10), 8);
        // Small tables after large ones wait for more small ones.
        assert_eq!(to_merge(&of(&[1000, 1000, 10, 10, 10]), 10), 0);
    }
}

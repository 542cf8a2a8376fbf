//! Tables: entities of one config, sorted by key, in a file that is written once.
//!
//! ```text
//!   frame 0    the prefixes of which this table clears all keys in older tables, as changes of the log
//!   frame ...  changes in the order of their keys, each key once (`log` has their form)
//! ```
//!
//! A config's entities are its tables put one over the other: [`Merged`] reads them together, oldest first. New tables come
//! from folds of the log; [`to_merge`] says which of them become one, so that there are few and none is written too often.
//!
//! **Invariant.** A table is read to its end only if its frames are those that the manifest counts.
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

/// Changes in a frame: what is read and checked at a time.
const BLOCK_BYTES: usize = 64 << 10;
/// So many tables of about the same size become one. More would make starts read from more files; fewer would write entities more often.
const SAME_SIZE_MAX: usize = 8;

/// A key with its value, or that it is gone.
pub type Item = (Vec<u8>, Option<Vec<u8>>);

/// Writes a file of frames that is complete once [`finish`](Writer::finish) returns.
pub struct Writer {
    file: BufWriter<File>,
    chain: Chain,
    sealed: Sealed,
    block: Vec<u8>,
    frame: Vec<u8>,
}

impl Writer {
    /// Begins a file.
    pub fn create(folder: &Folder, name: &str, id: u64, number: u64) -> std::io::Result<Writer> {
        let file = BufWriter::with_capacity(BLOCK_BYTES, folder.create(name)?);
        let (chain, sealed) = (Chain::begin(0, seed(id, number)), Sealed { number, ..Sealed::default() });
        Ok(Writer { file, chain, sealed, block: vec![], frame: vec![] })
    }

    /// Begins a table.
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

    /// Adds the next key of a table.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> std::io::Result<()> {
        log::put_change(&mut self.block, key, &value.map_or(Change::Gone, Change::Value));
        if self.block.len() >= BLOCK_BYTES { self.end_frame() } else { Ok(()) }
    }

    /// Adds a frame.
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

    /// Ends it; its contents are on disk, its name not yet.
    pub fn finish(mut self) -> std::io::Result<Sealed> {
        if !self.block.is_empty() {
            self.end_frame()?;
        }
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        Ok(Sealed { frames: self.chain.next, last: self.chain.last, ..self.sealed })
    }
}

/// Where a file is damaged.
#[derive(Debug)]
pub struct Damage {
    /// Which.
    pub file: String,
    /// Bytes from its beginning.
    pub at: u64,
    /// What was found.
    pub why: String,
    /// Whether the system refused to read it, and nothing is known of what it holds.
    pub io: bool,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, byte {}: {}", self.file, self.at, self.why)
    }
}

/// Reads a complete file's frames.
pub struct Reader {
    name: String,
    sealed: Sealed,
    frames: Frames<BufReader<File>>,
}

impl Reader {
    /// Opens it; its length must be what the manifest says.
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

    /// The next payload; nothing at the end, if that is where it should be.
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

    /// Reads it to its end; says how many payloads that are.
    pub fn check(mut self) -> Result<u64, Damage> {
        while self.next()?.is_some() {}
        Ok(self.frames.chain.next)
    }
}

/// Reads the items of a table.
pub struct Table {
    reader: Reader,
    block: Vec<u8>,
    /// Where the item after the current one begins.
    at: usize,
    /// The current item in the block: its key, and its value; nothing at the end.
    item: Option<(Range<usize>, Option<Range<usize>>)>,
    /// Of the keys of older tables that begin so none is left.
    cleared: Vec<Vec<u8>>,
}

impl Table {
    /// Opens it, at its first item.
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
        // A value is the last of a change, and the key is in front of the four bytes that say what the change is.
        let key_to = |value: usize| self.at - value - 4;
        self.item = match change {
            Some((key, Change::Value(value))) => {
                let end = key_to(value.len());
                Some((end - key.len()..end, Some(self.at - value.len()..self.at)))
            }
            Some((key, Change::Gone)) => Some((key_to(0) - key.len()..key_to(0), None)),
            // Its checksum is right, so this was written so.
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
    /// What the log says, put over the tables; which of its changes is next.
    Overlay(log::Overlay<'a>, usize),
}

impl Source<'_> {
    /// The current key with its value; nothing at the end.
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

/// Several sources read together.
pub struct Merged<'a> {
    /// Oldest first.
    sources: Vec<Source<'a>>,
    /// Sources that have the current key.
    same: Vec<usize>,
}

impl<'a> Merged<'a> {
    /// Of sources, oldest first.
    pub fn new(sources: Vec<Source<'a>>) -> Merged<'a> {
        Merged { sources, same: vec![] }
    }

    /// The next key, with what its newest source says of it, as `take` makes something of it.
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

    /// The next key, with what its newest source says of it.
    pub fn next(&mut self) -> Result<Option<Item>, Damage> {
        self.next_with(|key, value| (key.to_vec(), value.map(<[u8]>::to_vec)))
    }

    /// Calls `take` with the value of each key that has one, in the order of the keys.
    pub fn for_each_value(mut self, mut take: impl FnMut(&[u8])) -> Result<(), Damage> {
        while self.next_with(|_, value| value.into_iter().for_each(&mut take))?.is_some() {}
        Ok(())
    }

    /// Everything that the sources clear, for a table that stands for all of them.
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

/// How many of a config's newest tables should become one; 0 if none. `small` is the size of a table of one fold.
pub fn to_merge(tables: &[Sealed], small: u64) -> usize {
    let class = |bytes: u64| (bytes / small.max(1)).checked_ilog(SAME_SIZE_MAX as u64).unwrap_or(0);
    let Some(newest) = tables.last() else { return 0 };
    let same = tables.iter().rev().take_while(|table| class(table.bytes) <= class(newest.bytes)).count();
    if same >= SAME_SIZE_MAX { same } else { 0 }
}

/// Writes the table that stands for the newest `many` of a config's tables.
pub fn merge(folder: &Folder, id: u64, number: u64, tables: &[Sealed], many: usize) -> Result<Sealed, String> {
    let from = tables.len() - many;
    // Below the oldest table there is nothing that could be gone.
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
        // The newest two say the same over the oldest as before; all of them need not say what is gone.
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
        // Small ones behind large ones wait for their like.
        assert_eq!(to_merge(&of(&[1000, 1000, 10, 10, 10]), 10), 0);
    }
}

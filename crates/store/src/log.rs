//! The write-ahead log: the changes since the last *fold*, one record per request.
//!
//! ```text
//!   frame    the records of all requests that are synced together:   varint length | record ...
//!   record   number of the config, then changes:   varint number | change ...
//!   change   varint length of key | key | u32 (little endian) what | value
//!            what: 0 key deleted, 1 all keys with this prefix deleted, n + 2 a value of n bytes follows
//! ```
//!
//! A frame (`frames`) is written and synced as a whole, so a crash can damage only the last one, and
//! a request is kept completely or not at all. From time to time the log is sorted into tables of
//! its configs (`fold`), and its file removed.
//!
//! **Invariants.** Records are in the order of the requests, and later changes of a key replace earlier
//! ones. Applying records again that were already folded changes nothing, so a crash between a fold and
//! the removal of its records does no harm.
//!
//! Tests: below, and `tests/kept`; the fuzz target `state_log`.

use control::entity::Entity;
use control::journal::{After, Batch};
use std::collections::BTreeMap;

const GONE: u32 = 0;
const GONE_BELOW: u32 = 1;
const VALUE: u32 = 2;

/// A change of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// The key is set to this value.
    Value(&'a [u8]),
    /// The key is deleted (a tombstone).
    Gone,
    /// All keys with this prefix are deleted.
    GoneBelow,
}

/// Appends a change.
pub fn put_change(out: &mut Vec<u8>, key: &[u8], change: &Change) {
    match change {
        Change::Gone => put(out, key, GONE),
        Change::GoneBelow => put(out, key, GONE_BELOW),
        Change::Value(value) => {
            put(out, key, VALUE.saturating_add(u32::try_from(value.len()).unwrap_or(u32::MAX)));
            out.extend_from_slice(value);
        }
    }
}

/// Takes the next change off; `None` if the bytes are not a valid change.
pub fn take_change<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Change<'a>)> {
    let length = prost::encoding::decode_varint(rest).ok()?;
    let key = take(rest, length)?;
    let what = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    let change = match what {
        GONE => Change::Gone,
        GONE_BELOW => Change::GoneBelow,
        _ => Change::Value(take(rest, u64::from(what - VALUE))?),
    };
    Some((key, change))
}

/// Appends a record to a frame.
pub fn put_record(out: &mut Vec<u8>, record: &[u8]) {
    prost::encoding::encode_varint(record.len() as u64, out);
    out.extend_from_slice(record);
}

/// Splits a frame into records; `None` if it is invalid.
pub fn records(mut frame: &[u8]) -> Option<Vec<&[u8]>> {
    let mut records = Vec::new();
    while !frame.is_empty() {
        let length = prost::encoding::decode_varint(&mut frame).ok()?;
        records.push(take(&mut frame, length)?);
    }
    Some(records)
}

/// Encodes the record of a request.
pub fn record(config: u64, batch: &Batch) -> Vec<u8> {
    // A capacity that suffices for most entries.
    let mut out = Vec::with_capacity(16 + batch.changes.len() * 96);
    prost::encoding::encode_varint(config, &mut out);
    for change in &batch.changes {
        match &change.after {
            After::Gone => put(&mut out, &change.key, GONE),
            After::GoneBelow => put(&mut out, &change.key, GONE_BELOW),
            After::Is(entity) => put_entity(&mut out, &change.key, entity),
            After::Value(value) => put_change(&mut out, &change.key, &Change::Value(value)),
            After::Given(at) => match batch.request.updates.get(*at).and_then(|update| update.entity.as_ref()) {
                Some(entity) => put_entity(&mut out, &change.key, entity),
                None => put(&mut out, &change.key, GONE),
            },
        }
    }
    out
}

fn put(out: &mut Vec<u8>, key: &[u8], what: u32) {
    prost::encoding::encode_varint(key.len() as u64, out);
    out.extend_from_slice(key);
    out.extend_from_slice(&what.to_le_bytes());
}

fn put_entity(out: &mut Vec<u8>, key: &[u8], entity: &Entity) {
    put(out, key, VALUE);
    let begin = out.len();
    crate::encode::entity_into(entity, out);
    // Messages are limited to less than 4 GB.
    let length = u32::try_from(out.len() - begin).unwrap_or(u32::MAX - VALUE);
    out[begin - 4..begin].copy_from_slice(&(length + VALUE).to_le_bytes());
}

/// The number of the config that a record belongs to.
pub fn config_of(record: &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(&mut &record[..]).ok()
}

/// Decodes the records of one config as a start would, without tables: keys with their entities, in order of the keys.
///
/// # Errors
/// A record or entity is invalid.
pub fn read(records: &[&[u8]]) -> Result<Vec<(Vec<u8>, Entity)>, String> {
    if let Some(at) = records.iter().position(|record| config_of(record).is_none()) {
        return Err(format!("record {at} is damaged"));
    }
    let overlay = Overlay::new(records.iter().copied()).ok_or("a record is damaged")?;
    let kept = overlay.changes.iter().filter_map(|(key, value)| Some((key.to_vec(), (*value)?)));
    kept.map(|(key, value)| crate::encode::decode_entity(value).map(|entity| (key, entity)).map_err(|e| e.to_string()))
        .collect()
}

/// The combined changes of a config's records, to be applied over its tables.
#[derive(Default)]
pub struct Overlay<'a> {
    /// Sorted by key: the value, or `None` if the key is deleted.
    pub changes: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// Deleted prefixes. Of the keys with these prefixes, only those in `changes` remain.
    pub cleared: Vec<&'a [u8]>,
}

impl<'a> Overlay<'a> {
    /// Combines records of one config, in order; `None` if one is damaged.
    pub fn new(records: impl Iterator<Item = &'a [u8]>) -> Option<Overlay<'a>> {
        let mut changes: Vec<Sortable<'a>> = Vec::new();
        let mut cleared: BTreeMap<&[u8], usize> = BTreeMap::new();
        for mut rest in records {
            prost::encoding::decode_varint(&mut rest).ok()?;
            while !rest.is_empty() {
                match take_change(&mut rest)? {
                    (key, Change::Gone) => changes.push((first_bytes(key), key, None)),
                    (below, Change::GoneBelow) => _ = cleared.insert(below, changes.len()),
                    (key, Change::Value(value)) => changes.push((first_bytes(key), key, Some(value))),
                }
            }
        }
        if !cleared.is_empty() {
            for (at, (_, key, value)) in changes.iter_mut().enumerate() {
                if cleared.iter().any(|(below, when)| at < *when && key.starts_with(below)) {
                    *value = None;
                }
            }
        }
        // The sort is stable, so the last of equal keys is the latest change.
        changes.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)));
        let mut last: Vec<(&[u8], Option<&[u8]>)> = Vec::with_capacity(changes.len());
        for (_, key, value) in changes {
            match last.last_mut().filter(|(earlier, _)| *earlier == key) {
                Some(same) => same.1 = value,
                None => last.push((key, value)),
            }
        }
        Some(Overlay { changes: last, cleared: cleared.into_keys().collect() })
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.cleared.is_empty()
    }

    /// Whether a key that is not in `changes` is deleted by a prefix.
    pub fn clears(&self, key: &[u8]) -> bool {
        self.cleared.iter().any(|below| key.starts_with(below))
    }
}

/// A key's first 16 bytes as an integer with the same order, the key, and its value. Most keys differ in these bytes,
/// so sorting rarely compares the keys themselves.
type Sortable<'a> = (u128, &'a [u8], Option<&'a [u8]>);

fn first_bytes(key: &[u8]) -> u128 {
    let mut first = [0; 16];
    let length = key.len().min(16);
    first[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(first)
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: &[(&str, u32, &str)]) -> Vec<u8> {
        let mut out = vec![7];
        for (key, what, value) in changes {
            put(&mut out, key.as_bytes(), *what + value.len() as u32);
            out.extend_from_slice(value.as_bytes());
        }
        out
    }

    #[test]
    fn the_last_change_of_a_key_counts() {
        let long = "k".repeat(300);
        let records = [
            of(&[("b", VALUE, "1"), ("a", VALUE, "2"), (&long, VALUE, "3"), ("a\0", VALUE, "4")]),
            of(&[("b", GONE, ""), ("c", VALUE, ""), (&long, VALUE, "5")]),
        ];
        let overlay = Overlay::new(records.iter().map(Vec::as_slice)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let changes: Vec<_> = overlay.changes.iter().map(|(k, v)| (text(k), v.map(text))).collect();
        let some = |text: &str| Some(text.to_string());
        let expected = [
            ("a".into(), some("2")),
            ("a\0".into(), some("4")),
            ("b".into(), None),
            ("c".into(), some("")),
            (long, some("5")),
        ];
        assert_eq!(changes, expected);
        assert!(records.iter().all(|record| config_of(record) == Some(7)));
    }

    #[test]
    fn what_is_cleared_is_gone_until_it_is_written_again() {
        let records = [
            of(&[("ab", VALUE, "1"), ("ac", VALUE, "2"), ("b", VALUE, "3")]),
            of(&[("a", GONE_BELOW, ""), ("ac", VALUE, "4")]),
        ];
        let overlay = Overlay::new(records.iter().map(Vec::as_slice)).unwrap();
        let expected: [(&[u8], Option<&[u8]>); 3] = [(b"ab", None), (b"ac", Some(b"4")), (b"b", Some(b"3"))];
        assert_eq!(overlay.changes, expected);
        assert!(overlay.clears(b"ad") && !overlay.clears(b"bd"));
    }

    #[test]
    fn a_record_that_is_cut_off_is_noticed() {
        let whole = of(&[("key", VALUE, "value")]);
        assert!(Overlay::new([whole.as_slice()].into_iter()).is_some());
        for length in (2..whole.len()).chain([0]) {
            assert!(Overlay::new([&whole[..length]].into_iter()).is_none(), "{length}");
        }
    }
}

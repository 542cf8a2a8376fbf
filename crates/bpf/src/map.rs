//! Maps: memory shared by programs and the control plane.
//!
//! **Addresses of values stay valid.** All entries of a map are allocated with the map and freed with it, and a program
//! holds its maps. An address that `map_lookup_elem` returns can therefore be accessed until the program ends, as in
//! Linux. If the entry is deleted meanwhile, its slot may be reused for another key, but as late as possible: free
//! slots are reused in the order in which they were freed.
//!
//! **Threads.** Any number of workers and control threads may use a map. Lookups take no lock (see `hash`); a mutex per
//! map serialises changes of a hash map's keys; the keys of an array map are fixed. Values consist of atomic words. A
//! value that programs modify in place may be read half-modified, as in Linux; `update` of a hash map publishes a new
//! slot, so that lookups see the old or the new value.

mod entry;
mod hash;
#[cfg(test)]
mod tests;
mod words;

use crate::error::MapError;
pub(crate) use entry::Refused;
pub use entry::{KEY_BYTES_MAX, Update, VALUE_BYTES_MAX};
use hash::HashIndex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use words::{WORD, Words};

/// The maximum total size in bytes of the entries of one map, and of all maps of an object. They are allocated when the
/// object is loaded, on behalf of any client that may load programs.
pub const MAP_BYTES_MAX: u64 = 256 << 20;
/// The number of slots of a hash map beyond its maximum number of entries, for old values that programs may still use.
const SPARE_SLOTS: u32 = 64;
/// The length in bytes of the prefix length in `struct bpf_lpm_trie_key`, which precedes the prefix.
const PREFIX_LEN_BYTES: usize = 4;

/// Map types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// Exact match; refuses new entries when full.
    Hash,
    /// Values by index; all entries always exist.
    Array,
    /// Exact match; evicts an entry that was not used recently when full.
    LruHash,
    /// Longest prefix match.
    LpmTrie,
}

impl MapKind {
    /// All types.
    pub const ALL: [MapKind; 4] = [MapKind::Hash, MapKind::Array, MapKind::LruHash, MapKind::LpmTrie];

    /// The type with a number in `linux/bpf.h`.
    pub fn of(number: u32) -> Option<MapKind> {
        MapKind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Its number in `linux/bpf.h`.
    pub fn number(self) -> u32 {
        match self {
            MapKind::Hash => 1,
            MapKind::Array => 2,
            MapKind::LruHash => 9,
            MapKind::LpmTrie => 11,
        }
    }

    /// Its name in `linux/bpf.h` in lower case, without prefix.
    pub fn name(self) -> &'static str {
        match self {
            MapKind::Hash => "hash",
            MapKind::Array => "array",
            MapKind::LruHash => "lru_hash",
            MapKind::LpmTrie => "lpm_trie",
        }
    }

    pub(crate) fn known() -> String {
        MapKind::ALL.map(|kind| format!("{} ({})", kind.name(), kind.number())).join(", ")
    }
}

/// The definition of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapSpec {
    /// The name of the variable or of the data section.
    pub name: String,
    /// The map's type.
    pub kind: MapKind,
    /// The size of a key in bytes.
    pub key_size: u32,
    /// The size of a value in bytes.
    pub value_size: u32,
    /// The maximum number of entries.
    pub max_entries: u32,
    /// Whether programs may only read it.
    pub read_only: bool,
    /// The initial value, for data sections.
    pub initial: Option<Vec<u8>>,
}

impl MapSpec {
    /// Checks that a map of this definition can be created.
    pub(crate) fn check(&self) -> Result<(), MapError> {
        let bad = |reason: String| Err(MapError::Unsupported { map: self.name.clone(), reason });
        if self.key_size == 0 || self.key_size > KEY_BYTES_MAX {
            return bad(format!("a key has {} bytes; 1 to {KEY_BYTES_MAX} are supported", self.key_size));
        }
        if self.value_size == 0 || self.value_size > VALUE_BYTES_MAX {
            return bad(format!("a value has {} bytes; 1 to {VALUE_BYTES_MAX} are supported", self.value_size));
        }
        if self.max_entries == 0 {
            return bad("`max_entries` is 0; give it at least 1".to_string());
        }
        if self.kind == MapKind::Array && self.key_size != 4 {
            return bad(format!("the key of an array has 4 bytes, not {}", self.key_size));
        }
        let prefix = self.key_size as usize;
        if self.kind == MapKind::LpmTrie && !(PREFIX_LEN_BYTES + 1..=PREFIX_LEN_BYTES + 256).contains(&prefix) {
            return bad(format!(
                "the key of an LPM trie is a 4-byte prefix length and 1 to 256 bytes of data, not {prefix} bytes"
            ));
        }
        let bytes = self.bytes();
        if bytes > MAP_BYTES_MAX {
            return bad(format!(
                "{} entries take {bytes} bytes; at most {MAP_BYTES_MAX} are allowed: lower `max_entries`",
                self.max_entries
            ));
        }
        Ok(())
    }

    /// The size of the map's entries in bytes, all of which are allocated with the map.
    pub fn bytes(&self) -> u64 {
        let words = (self.value_size as usize).div_ceil(WORD) + (self.key_size as usize).div_ceil(WORD) + 2;
        u64::from(self.slots()) * (words * WORD) as u64
    }

    fn slots(&self) -> u32 {
        match self.kind {
            MapKind::Array => self.max_entries,
            _ => self.max_entries.saturating_add(SPARE_SLOTS),
        }
    }
}

/// A map.
pub struct Map {
    spec: MapSpec,
    values: Words,
    index: Index,
}

enum Index {
    Array,
    Hash(HashIndex),
    /// The prefixes, with the bits after the prefix zero, and the number of prefixes of each length.
    Prefixes(HashIndex, Vec<AtomicU32>),
}

impl Map {
    /// Creates a map without entries, or an array of zeros.
    ///
    /// # Errors
    /// [`MapError::Unsupported`] if sizes or the number of entries are not supported.
    pub fn new(spec: MapSpec) -> Result<Map, MapError> {
        spec.check()?;
        let slots = spec.slots();
        let hash = || HashIndex::new(slots, spec.max_entries, spec.key_size, spec.kind == MapKind::LruHash);
        let index = match spec.kind {
            MapKind::Array => Index::Array,
            MapKind::Hash | MapKind::LruHash => Index::Hash(hash()),
            MapKind::LpmTrie => {
                let bits = 8 * (spec.key_size as usize - PREFIX_LEN_BYTES);
                Index::Prefixes(hash(), (0..=bits).map(|_| AtomicU32::new(0)).collect())
            }
        };
        let map = Map { values: Words::new(slots, spec.value_size), spec, index };
        if let Some(initial) = &map.spec.initial {
            map.values.write(0, initial);
        }
        Ok(map)
    }

    /// The map's definition.
    pub fn spec(&self) -> &MapSpec {
        &self.spec
    }

    /// A copy of the value of a key; in an LPM trie, of the longest matching prefix.
    ///
    /// # Errors
    /// [`MapError::Size`] if the key has a wrong size.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        self.check_size("key", key.len(), self.spec.key_size)?;
        let Some(slot) = self.find(key) else { return Ok(None) };
        Ok(Some(self.value(slot)))
    }

    /// Creates or replaces an entry.
    ///
    /// # Errors
    /// If the key or value has a wrong size, the map is full or constant, the key is not allowed, or `update` forbids
    /// the change.
    pub fn update(&self, key: &[u8], value: &[u8], update: Update) -> Result<(), MapError> {
        self.check_size("key", key.len(), self.spec.key_size)?;
        self.check_size("value", value.len(), self.spec.value_size)?;
        self.try_update(key, value, update).map_err(|refused| self.error(refused))
    }

    /// [`Map::update`] for a key and a value of the right sizes; does not allocate.
    pub(crate) fn try_update(&self, key: &[u8], value: &[u8], update: Update) -> Result<(), Refused> {
        if self.is_constant() {
            return Err(Refused::Constant);
        }
        match &self.index {
            Index::Array => {
                let slot = self.find(key).ok_or(Refused::Number)?;
                if update == Update::New {
                    return Err(Refused::Exists(true));
                }
                self.values.write(slot, value);
                Ok(())
            }
            Index::Hash(hash) => hash.update(key, update, |slot| self.values.write(slot, value)).map(drop),
            Index::Prefixes(hash, counts) => {
                let (mut buffer, length) = shortened(key, counts.len() - 1)?;
                let key = &mut buffer[..key.len()];
                if hash.update(key, update, |slot| self.values.write(slot, value))? {
                    counts[length].fetch_add(1, Relaxed);
                }
                Ok(())
            }
        }
    }

    /// Deletes an entry; false if there was none.
    ///
    /// # Errors
    /// If the key has a wrong size or is not allowed, or the map does not support deletion.
    pub fn delete(&self, key: &[u8]) -> Result<bool, MapError> {
        self.check_size("key", key.len(), self.spec.key_size)?;
        self.try_delete(key).map_err(|refused| self.error(refused))
    }

    /// [`Map::delete`] for a key of the right size; does not allocate.
    pub(crate) fn try_delete(&self, key: &[u8]) -> Result<bool, Refused> {
        match &self.index {
            Index::Array => Err(Refused::Delete),
            Index::Hash(hash) => Ok(hash.delete(key)),
            Index::Prefixes(hash, counts) => {
                let (buffer, length) = shortened(key, counts.len() - 1)?;
                let deleted = hash.delete(&buffer[..key.len()]);
                if deleted {
                    counts[length].fetch_sub(1, Relaxed);
                }
                Ok(deleted)
            }
        }
    }

    fn error(&self, refused: Refused) -> MapError {
        let map = self.spec.name.clone();
        match refused {
            Refused::Full => MapError::Full { map, max: self.spec.max_entries },
            Refused::Exists(exists) => MapError::Exists { map, exists },
            Refused::Number => {
                let reason = format!("the number must be below {}", self.spec.max_entries);
                MapError::Key { map, reason }
            }
            Refused::Length(found) => {
                let bits = 8 * (self.spec.key_size as usize - PREFIX_LEN_BYTES);
                let reason = format!("the prefix length is {found}, at most {bits} are possible");
                MapError::Key { map, reason }
            }
            Refused::Delete => {
                let reason = "entries of an array cannot be deleted; write zeros".to_string();
                MapError::Unsupported { map, reason }
            }
            Refused::Constant => {
                MapError::Unsupported { map, reason: "constants of a program cannot be changed".to_string() }
            }
        }
    }

    /// Copies of all entries, in no particular order. Entries that change meanwhile may be missing.
    pub fn dump(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        match &self.index {
            Index::Array => (0..self.spec.max_entries).map(|i| (i.to_ne_bytes().to_vec(), self.value(i))).collect(),
            Index::Hash(hash) | Index::Prefixes(hash, _) => {
                let mut entries = Vec::new();
                hash.for_each(|slot, key| entries.push((key.to_vec(), self.value(slot))));
                entries
            }
        }
    }

    /// The number of entries.
    pub fn len(&self) -> u32 {
        match &self.index {
            Index::Array => self.spec.max_entries,
            Index::Hash(hash) | Index::Prefixes(hash, _) => hash.len(),
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn value(&self, slot: u32) -> Vec<u8> {
        let mut value = vec![0; self.spec.value_size as usize];
        self.values.read(slot, &mut value);
        value
    }

    fn check_size(&self, what: &'static str, found: usize, expected: u32) -> Result<(), MapError> {
        match found == expected as usize {
            true => Ok(()),
            false => Err(MapError::Size { map: self.spec.name.clone(), what, found, expected: expected as usize }),
        }
    }

    /// The slot of a key of the right size, as for a program's lookup.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        match &self.index {
            Index::Array => {
                let number = u32::from_ne_bytes(key.try_into().ok()?);
                (number < self.spec.max_entries).then_some(number)
            }
            Index::Hash(hash) => hash.find(key),
            Index::Prefixes(hash, counts) => {
                let mut buffer = [0; KEY_BYTES_MAX as usize];
                let masked = &mut buffer[..key.len()];
                masked.copy_from_slice(key);
                let longest = prefix_len(key).min(counts.len() - 1);
                for length in (0..=longest).rev().filter(|length| counts[*length].load(Relaxed) > 0) {
                    mask(masked, length);
                    if let Some(slot) = hash.find(masked) {
                        return Some(slot);
                    }
                }
                None
            }
        }
    }

    /// The maximum number of hash lookups that a map lookup takes.
    pub(crate) fn hashes(&self) -> u32 {
        match &self.index {
            Index::Array => 0,
            Index::Hash(_) => 1,
            Index::Prefixes(hash, counts) => hash.len().clamp(1, counts.len() as u32),
        }
    }

    /// Whether the map is a section of constants, which nothing changes.
    pub(crate) fn is_constant(&self) -> bool {
        self.spec.read_only && self.spec.initial.is_some()
    }

    /// The memory of all values.
    pub(crate) fn value_words(&self) -> &[AtomicU64] {
        &self.values.words
    }

    /// The distance in bytes between the values of two slots.
    pub(crate) fn value_stride(&self) -> usize {
        self.values.stride * WORD
    }
}

fn prefix_len(key: &[u8]) -> usize {
    u32::from_ne_bytes([key[0], key[1], key[2], key[3]]) as usize
}

/// A key with the bits after the prefix zeroed, and the prefix length.
fn shortened(key: &[u8], bits: usize) -> Result<([u8; KEY_BYTES_MAX as usize], usize), Refused> {
    let length = prefix_len(key);
    if length > bits {
        return Err(Refused::Length(length));
    }
    let mut buffer = [0; KEY_BYTES_MAX as usize];
    buffer[..key.len()].copy_from_slice(key);
    mask(&mut buffer[..key.len()], length);
    Ok((buffer, length))
}

/// Zeroes the bits of a key after a prefix length.
fn mask(key: &mut [u8], length: usize) {
    key[..PREFIX_LEN_BYTES].copy_from_slice(&(length as u32).to_ne_bytes());
    for (i, byte) in key[PREFIX_LEN_BYTES..].iter_mut().enumerate() {
        let kept = length.saturating_sub(8 * i).min(8);
        *byte &= !(0xffu32 >> kept) as u8;
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("spec", &self.spec).finish_non_exhaustive()
    }
}

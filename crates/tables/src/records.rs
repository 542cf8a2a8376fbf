//! The control plane's records of a table's entries: for each its key, the address of its memory, priority, idle
//! timeout, insertion number and the source of its action.
//!
//! Tables have millions of entries that differ in little but the key, so records are stored by column: a column with
//! the same value everywhere takes no memory ([`Column`]), keys are [compact](CompactForm), and the hash index has
//! 4-byte cells. An IPv4 prefix without priority or timeout thus takes 5 bytes for its key, 8 for the pointer to its
//! entry, and 5 to 11 in the index.
//!
//! Positions are the entries' *indices*: dense, and reused after an entry is removed and the table has freed its index.
//!
//! Threads: writer only. Tests: `tests/properties.rs`, through tables; `index/tests.rs`, `key/tests.rs`.

use crate::entry::Source;
use crate::index::Index;
use crate::key::KeyShape;
use crate::key::compact::CompactForm;
use abi::EntryHeader;
use std::ptr;

/// A column: a value for each position, most of which are the default.
#[derive(Debug, Default)]
struct Column<T>(Vec<T>);

impl<T: Copy + Default + PartialEq> Column<T> {
    fn get(&self, at: usize) -> T {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn set(&mut self, at: usize, value: T) {
        if at >= self.0.len() {
            if value == T::default() {
                return;
            }
            self.0.resize(at + 1, T::default());
        }
        self.0[at] = value;
    }

    /// Whether every value has always been the default.
    fn is_unused(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is recorded of an entry, except for its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) entry: *mut EntryHeader,
    pub(crate) priority: i32,
    pub(crate) idle_timeout_ns: u64,
    pub(crate) source: Source,
}

/// The records of a table.
#[derive(Debug)]
pub(crate) struct Records {
    form: CompactForm,
    /// Whether entries with the same key and different priorities are different.
    prioritised: bool,
    /// Whether the records have a hash index; otherwise the engine finds keys.
    indexed: bool,
    /// Null at unused positions.
    entries: Vec<*mut EntryHeader>,
    keys: Vec<u8>,
    priorities: Column<i32>,
    idle_timeouts: Column<u64>,
    sources: Column<Source>,
    /// Insertion numbers, each minus its position: zero until a position is reused.
    seqs: Column<u64>,
    next_seq: u64,
    index: Index,
    /// The hash's seed: whoever chooses keys cannot make them collide.
    seed: u64,
}

impl Records {
    pub(crate) fn new(shape: &KeyShape, prioritised: bool, indexed: bool) -> Records {
        Records {
            form: CompactForm::new(shape),
            prioritised,
            indexed,
            entries: Vec::new(),
            keys: Vec::new(),
            priorities: Column::default(),
            idle_timeouts: Column::default(),
            sources: Column::default(),
            seqs: Column::default(),
            next_seq: 0,
            index: Index::default(),
            seed: crate::random_seeds()[0],
        }
    }

    /// Number of positions, used or not.
    pub(crate) fn positions(&self) -> usize {
        self.entries.len()
    }

    /// Adds an unused position and returns it.
    pub(crate) fn add_position(&mut self) -> u32 {
        let position = self.entries.len() as u32;
        self.entries.push(ptr::null_mut());
        self.keys.resize(self.keys.len() + self.form.bytes(), 0);
        position
    }

    /// The next insertion number: how many entries were ever inserted.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Records an entry at an unused position, given its [hash](Records::hash). Returns its insertion number.
    pub(crate) fn insert(&mut self, position: u32, packed: &[u64], hash: u32, record: Record) -> u64 {
        let at = position as usize;
        let bytes = self.form.bytes();
        self.form.compact(packed, &mut self.keys[at * bytes..][..bytes]);
        self.entries[at] = record.entry;
        self.priorities.set(at, record.priority);
        self.set_action(position, record.idle_timeout_ns, record.source);
        let seq = self.next_seq;
        self.next_seq += 1;
        self.seqs.set(at, seq.wrapping_sub(u64::from(position)));
        if self.indexed {
            if self.index.is_crowded(position) {
                let Records { index, entries, keys, priorities, prioritised, form, seed, .. } = self;
                let there = (0..).zip(&*entries).filter(|(i, e)| *i != position && !e.is_null());
                let hashed = |(i, _): (u32, _)| {
                    let identity = if *prioritised { priorities.get(i as usize) } else { 0 };
                    (hash_compact(*seed, form, &keys[i as usize * bytes..][..bytes], identity), i)
                };
                index.grow(position, there.map(hashed));
            }
            self.index.insert(hash, position);
        }
        seq
    }

    /// Removes an entry's record. Returns the address of the entry.
    pub(crate) fn remove(&mut self, position: u32) -> *mut EntryHeader {
        if self.indexed {
            let hash = self.hash_at(position);
            let Records { index, keys, form, priorities, prioritised, seed, .. } = self;
            let bytes = form.bytes();
            let hash_of = |i: u32| {
                let identity = if *prioritised { priorities.get(i as usize) } else { 0 };
                hash_compact(*seed, form, &keys[i as usize * bytes..][..bytes], identity)
            };
            index.remove(hash, |p| p == position, hash_of);
        }
        std::mem::replace(&mut self.entries[position as usize], ptr::null_mut())
    }

    /// The hash of a key and priority in the index; prefetches the cell where the search will start.
    pub(crate) fn hash(&self, packed: &[u64], priority: i32) -> u32 {
        if !self.indexed {
            return 0;
        }
        let identity = if self.prioritised { priority } else { 0 };
        let hash = hash(self.seed, packed, identity);
        self.index.prefetch(hash);
        hash
    }

    /// The position of the entry with this key and priority.
    pub(crate) fn find(&self, packed: &[u64], priority: i32) -> Option<u32> {
        self.find_hashed(packed, priority, self.hash(packed, priority))
    }

    /// As [`Records::find`], given the [hash](Records::hash).
    pub(crate) fn find_hashed(&self, packed: &[u64], priority: i32, hash: u32) -> Option<u32> {
        debug_assert!(self.indexed);
        let bytes = self.form.bytes();
        self.with_compact(packed, |key| {
            self.index.find(hash, |p| {
                let at = p as usize;
                self.keys[at * bytes..][..bytes] == *key && (!self.prioritised || self.priorities.get(at) == priority)
            })
        })
    }

    /// Calls `f` with a key's compact form.
    fn with_compact<R>(&self, packed: &[u64], f: impl FnOnce(&[u8]) -> R) -> R {
        let bytes = self.form.bytes();
        const SHORT: usize = 64;
        if bytes <= SHORT {
            let mut key = [0; SHORT];
            self.form.compact(packed, &mut key[..bytes]);
            f(&key[..bytes])
        } else {
            let mut key = vec![0; bytes];
            self.form.compact(packed, &mut key);
            f(&key)
        }
    }

    /// The packed key of an entry.
    pub(crate) fn key(&self, position: u32, packed: &mut [u64]) {
        let bytes = self.form.bytes();
        self.form.expand(&self.keys[position as usize * bytes..][..bytes], packed);
    }

    /// The address of an entry; null if the position is unused.
    pub(crate) fn entry(&self, position: u32) -> *mut EntryHeader {
        self.entries[position as usize]
    }

    /// Changes the address of an entry.
    pub(crate) fn set_entry(&mut self, position: u32, entry: *mut EntryHeader) {
        self.entries[position as usize] = entry;
    }

    /// Changes the idle timeout and the source of an entry.
    pub(crate) fn set_action(&mut self, position: u32, idle_timeout_ns: u64, source: Source) {
        self.idle_timeouts.set(position as usize, idle_timeout_ns);
        self.sources.set(position as usize, source);
    }

    /// An entry's priority.
    pub(crate) fn priority(&self, position: u32) -> i32 {
        self.priorities.get(position as usize)
    }

    /// An entry's insertion number.
    pub(crate) fn seq(&self, position: u32) -> u64 {
        self.seqs.get(position as usize).wrapping_add(u64::from(position))
    }

    /// An entry's idle timeout in nanoseconds.
    pub(crate) fn idle_timeout_ns(&self, position: u32) -> u64 {
        self.idle_timeouts.get(position as usize)
    }

    /// The source of an entry's action.
    pub(crate) fn source(&self, position: u32) -> Source {
        self.sources.get(position as usize)
    }

    /// The used positions in ascending order.
    pub(crate) fn used(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.entries).filter(|(_, e)| !e.is_null()).map(|(i, _)| i)
    }

    /// The used positions in insertion order.
    pub(crate) fn in_order(&self) -> Vec<u32> {
        let mut positions: Vec<u32> = self.used().collect();
        if !self.seqs.is_unused() {
            positions.sort_unstable_by_key(|p| self.seq(*p));
        }
        positions
    }

    fn hash_at(&self, position: u32) -> u32 {
        let bytes = self.form.bytes();
        let identity = if self.prioritised { self.priority(position) } else { 0 };
        hash_compact(self.seed, &self.form, &self.keys[position as usize * bytes..][..bytes], identity)
    }
}

/// The hash of a packed key and a priority.
fn hash(seed: u64, packed: &[u64], priority: i32) -> u32 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |h: u64, word: &u64| {
        let product = u128::from(h ^ word) * u128::from(K);
        product as u64 ^ (product >> 64) as u64
    };
    let h = mix(packed.iter().fold(seed, mix), &(priority as u64));
    (h ^ h >> 32) as u32
}

/// The same hash, given the key's compact form.
fn hash_compact(seed: u64, form: &CompactForm, key: &[u8], priority: i32) -> u32 {
    const SHORT: usize = 16;
    let words = form.packed_words();
    if words <= SHORT {
        let mut packed = [0; SHORT];
        form.expand(key, &mut packed[..words]);
        hash(seed, &packed[..words], priority)
    } else {
        let mut packed = vec![0; words];
        form.expand(key, &mut packed);
        hash(seed, &packed, priority)
    }
}

//! Perfect hashing and direct indexing of exact tables of up to some thousand entries, as part of the code.
//!
//! A bucket lookup compares with all keys of a bucket, because the keys are not known in advance (`tables::exact`).
//! Where they are known, a hash without collisions among them is searched for (perfect hashing: Fredman, Komlós,
//! Szemerédi, "Storing a sparse table with O(1) worst case access time", JACM 1984; the second level here by
//! displacement of rows: Tarjan, Yao, "Storing a sparse table", CACM 1979). A lookup compares one key, without a loop:
//!
//! ```text
//! h     = key0 * multiplier0 + key1 * multiplier1 + …   modulo 2^64; a product for each word
//! row   = rows[h >> (64 - row bits)]                    an address; small tables have one row, a constant
//! place = row + (the next bits of h, times the size of a place)
//! hit if place.key == key; then place.entry is the entry's address, or a copy of the entry if that fits
//! ```
//!
//! Dense keys of one word (for example numbers that a controller assigned consecutively) are indices themselves (direct
//! indexing):
//!
//! ```text
//! hit if key - first < number of places and places[key - first] is not null; then that is the entry's address
//! ```
//!
//! Entries that are only an action and its parameters never change: a changed table has other code. Places hold copies
//! of such entries if these are short; with direct indexing, only if no key is missing.
//!
//! An empty place holds a key that hashes to another place, so no key is found there. The hash need not resist
//! adversaries that choose colliding keys: a lookup takes one comparison whatever the packets' keys, and the table's
//! own keys do not collide.
//!
//! The places belong to the code that is specialised for the entries ([`crate::rules`] says when that is right).
//!
//! Tests: below; `crates/datapath/tests/recompile.rs`, against the interpreter.

use crate::translate::Translator;
use abi::{EngineKind, EntryLayout, EntryShape, Rule, TableBinding};
use base::ids::TableId;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, Value, ValueDef};
use std::cell::RefCell;
use std::sync::Arc;

/// Flags for loading a pointer to an entry that may be null. The load is not marked movable, although it may be the
/// same for all packets: if it were hoisted out of the batch loop, loads of the entry's parameters, which are movable,
/// would be hoisted with it, above the null test.
const ENTRY_OR_NONE: MemFlagsData = MemFlagsData::trusted().with_readonly();
/// Most entries of a table.
pub const EXACT_INDEX_MAX: usize = 2048;
/// Most entries with a single row of places.
const ONE_ROW_MAX: usize = 32;
/// Most places per key for direct indexing; up to [`DENSE_PLACES_MIN`] places are always allowed.
const DENSE_PLACES_PER_KEY: u64 = 4;
const DENSE_PLACES_MIN: u64 = 512;
/// Most words of a key: with an address after it, such a key fills a cache line.
pub const KEY_WORDS_MAX: usize = 7;
/// Hashes that are tried.
const TRIES: u64 = 200;

/// Words of places, aligned so that a place (its size is a power of two) of at most a cache line does not cross lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Places([u64; 8]);

/// A lookup structure for the known entries of a table.
#[derive(Debug)]
pub(crate) enum ExactIndex {
    /// Direct index.
    DenseIndex(DenseIndex),
    /// Perfect hash.
    PerfectHash(PerfectHash),
}

/// A direct index over dense keys.
#[derive(Debug)]
pub(crate) struct DenseIndex {
    first: u64,
    /// The number of places: the last key minus the first, plus one.
    count: u64,
    /// Words of the entry's copy in each place; 0 if a place holds the entry's address or null.
    copied_words: usize,
    words: Box<[u64]>,
}

/// A perfect hash and its places.
#[derive(Debug)]
pub(crate) struct PerfectHash {
    multipliers: [u64; KEY_WORDS_MAX],
    /// Words of a key, at least one.
    words: usize,
    /// Whether places hold copies of entries instead of their addresses.
    has_entries: bool,
    /// Bits of the hash that select a row, and those that select a place in it.
    row_bits: u32,
    place_bits: u32,
    /// Addresses of the rows in `places`; empty if there is only one row.
    rows: Box<[u64]>,
    /// Places of [`place_words`] each: key, entry, padding.
    places: Box<[Places]>,
}

/// Lookup structures of one compilation, by table; `None` for a table that can have none.
pub(crate) type ExactIndexes = RefCell<Vec<(TableId, Option<Arc<ExactIndex>>)>>;

/// The next pseudo-random number (SplitMix64).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl ExactIndex {
    /// The structure for rules that match whole keys of `words` words. `None` if there are too many, or no hash is
    /// found.
    fn new(rules: &[Rule], words: usize, layout: &EntryLayout) -> Option<ExactIndex> {
        let dense = (words == 1).then(|| DenseIndex::new(rules, layout)).flatten().map(ExactIndex::DenseIndex);
        dense.or_else(|| PerfectHash::new(rules, words, layout).map(ExactIndex::PerfectHash))
    }
}

/// Bytes of an entry, if it is only an action and its parameters, so that a copy is as good as the entry.
fn size_of(entry: &EntryShape, layout: &EntryLayout) -> Option<usize> {
    let EntryLayout { last_hit: None, idle_timeout: None, group: None, index: None, .. } = layout else { return None };
    layout.sizes.get(entry.call.as_ref()?.action as usize).map(|size| *size as usize)
}

/// Copies an entry's action and arguments to zeroed bytes of the entry's size.
fn copy(entry: &EntryShape, layout: &EntryLayout, bytes: &mut [u8]) -> Option<()> {
    let call = entry.call.as_ref()?;
    let action_bytes = layout.action_bytes as usize;
    bytes[..action_bytes].copy_from_slice(&call.action.to_le_bytes()[..action_bytes]);
    for (arg, at) in call.args.iter().zip(layout.params.get(call.action as usize)?) {
        let size = arg.width().div_ceil(8) as usize;
        let place = bytes.get_mut(*at as usize..)?.get_mut(..size)?;
        match arg.to_u128().map(u128::to_le_bytes) {
            Some(value) if size <= value.len() => place.copy_from_slice(&value[..size]),
            _ => {
                place.copy_from_slice(&arg.to_bytes_be());
                place.reverse();
            }
        }
    }
    Some(())
}

/// Copies an entry to the beginning of `bytes` and returns its size in bytes. `None` if it has no [size](size_of) or
/// does not fit.
pub(crate) fn copy_to(entry: &EntryShape, layout: &EntryLayout, bytes: &mut [u8]) -> Option<usize> {
    let size = size_of(entry, layout)?;
    let bytes = bytes.get_mut(..size)?;
    bytes.fill(0);
    copy(entry, layout, bytes)?;
    Some(size)
}

/// A key, padded with zeros.
type KeyWords = [u64; KEY_WORDS_MAX];
/// The words of an entry's copy.
type EntryWords = [u64; KEY_WORDS_MAX];

/// Words of a place for keys of `words` words; what the key leaves is for the entry's address or a copy of the entry.
fn place_words(words: usize) -> usize {
    (words + 1).next_power_of_two()
}

fn padded(words: &[u64]) -> [u64; KEY_WORDS_MAX] {
    let mut all = [0; KEY_WORDS_MAX];
    all[..words.len()].copy_from_slice(words);
    all
}

/// The entry's copy in words, if at most `max` suffice.
fn words_of(entry: &EntryShape, layout: &EntryLayout, max: usize) -> Option<EntryWords> {
    let size = size_of(entry, layout).filter(|size| *size <= 8 * max.min(KEY_WORDS_MAX))?;
    let mut bytes = [0; 8 * KEY_WORDS_MAX];
    copy(entry, layout, &mut bytes[..size])?;
    let mut words = bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    Some([(); KEY_WORDS_MAX].map(|()| words.next().expect("as many words")))
}

impl DenseIndex {
    fn new(rules: &[Rule], layout: &EntryLayout) -> Option<DenseIndex> {
        if rules.len() > EXACT_INDEX_MAX {
            return None;
        }
        let key = |rule: &Rule| rule.value[0];
        let (first, last) = (rules.iter().map(key).min()?, rules.iter().map(key).max()?);
        if last - first >= (DENSE_PLACES_PER_KEY * rules.len() as u64).max(DENSE_PLACES_MIN) {
            return None;
        }
        let count = last - first + 1;
        // Without gaps, every place has an entry.
        let own = [1, 2].into_iter().filter(|_| count == rules.len() as u64).find_map(|words| {
            let entries: Option<Vec<_>> = rules.iter().map(|rule| words_of(&rule.entry, layout, words)).collect();
            Some((words, entries?))
        });
        let (copied_words, entries) = match own {
            Some(own) => own,
            None => (0, rules.iter().map(|rule| padded(&[rule.entry.entry as u64])).collect()),
        };
        let size = copied_words.max(1);
        let mut words = vec![0; count as usize * size];
        for (rule, entry) in rules.iter().zip(entries) {
            words[(key(rule) - first) as usize * size..][..size].copy_from_slice(&entry[..size]);
        }
        Some(DenseIndex { first, count, copied_words, words: words.into() })
    }
}

impl PerfectHash {
    /// A perfect hash for rules that match whole keys of `words` words. `None` if there are too many, or none is found.
    fn new(rules: &[Rule], words: usize, layout: &EntryLayout) -> Option<PerfectHash> {
        if rules.is_empty() || rules.len() > EXACT_INDEX_MAX || !(1..=KEY_WORDS_MAX).contains(&words) {
            return None;
        }
        let keys: Vec<KeyWords> = rules.iter().map(|rule| padded(&rule.value[..words])).collect();
        let one_row = keys.len() <= ONE_ROW_MAX;
        // With `n` keys, two to a row on average, `n` pairs of keys share a row. With `n` places in a row, all pairs
        // are free of collisions once in e tries.
        let row_bits = if one_row { 0 } else { keys.len().div_ceil(2).next_power_of_two().ilog2() };
        let place_bits = match one_row {
            true => (keys.len() * keys.len() / 2).max(4).next_power_of_two().ilog2(),
            false => row_bits + 1,
        };
        let room = place_words(words) - words;
        let entries: Option<Vec<_>> = rules.iter().map(|rule| words_of(&rule.entry, layout, room)).collect();
        let mut random = 1;
        (0..TRIES).find_map(|_| {
            let multipliers = [(); KEY_WORDS_MAX].map(|()| next_random(&mut random) | 1);
            let mut exact_index = PerfectHash {
                multipliers,
                words,
                has_entries: entries.is_some(),
                row_bits,
                place_bits,
                rows: Box::default(),
                places: Box::default(),
            };
            let starts = exact_index.displacements(&keys)?;
            exact_index.fill(rules, entries.as_deref(), &keys, &starts.rows, starts.places);
            Some(exact_index)
        })
    }

    fn hash(&self, key: KeyWords) -> u64 {
        let products = key.iter().zip(self.multipliers).take(self.words).map(|(word, by)| word.wrapping_mul(by));
        products.fold(0, u64::wrapping_add)
    }

    fn row_of(&self, hash: u64) -> usize {
        if self.row_bits == 0 { 0 } else { (hash >> (64 - self.row_bits)) as usize }
    }

    fn place_in_row(&self, hash: u64) -> usize {
        (hash >> (64 - self.row_bits - self.place_bits)) as usize & ((1 << self.place_bits) - 1)
    }

    /// Whether two keys have the same place in the same row: why most hashes fail.
    fn collide(&self, keys: &[KeyWords]) -> bool {
        let mut taken = vec![0u64; (1usize << (self.row_bits + self.place_bits)).div_ceil(64)];
        keys.iter().any(|key| {
            let hash = self.hash(*key);
            let at = self.row_of(hash) << self.place_bits | self.place_in_row(hash);
            let (word, bit) = (&mut taken[at / 64], 1 << (at % 64));
            let is_taken = *word & bit != 0;
            *word |= bit;
            is_taken
        })
    }

    /// Displaces the rows so that no two keys share a place; `None` if two keys of a row do, or a row fits nowhere.
    fn displacements(&self, keys: &[KeyWords]) -> Option<RowStarts> {
        if self.collide(keys) {
            return None;
        }
        let row_length = 1 << self.place_bits;
        let mut rows: Vec<(usize, Vec<usize>)> = (0..1 << self.row_bits).map(|row| (row, Vec::new())).collect();
        for key in keys {
            let hash = self.hash(*key);
            rows[self.row_of(hash)].1.push(self.place_in_row(hash));
        }
        rows.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
        // So many row starts that one place in four is taken.
        let beginnings =
            if self.row_bits == 0 { 1 } else { (4 * keys.len()).saturating_sub(row_length).max(row_length) };
        let mut taken = vec![false; beginnings + row_length];
        let mut at = vec![0; rows.len()];
        let mut from = 0;
        for (row, places) in &rows {
            if places.is_empty() {
                continue;
            }
            let tried = (0..beginnings).map(|i| (from + i) % beginnings);
            let begin = tried.into_iter().find(|begin| places.iter().all(|p| !taken[begin + p]))?;
            places.iter().for_each(|p| taken[begin + p] = true);
            at[*row] = begin;
            // Continue far from the last row, where fewer places are taken.
            from = (begin + beginnings / 3 + 1) % beginnings;
        }
        Some(RowStarts { rows: at, places: taken.len() })
    }

    fn place_bytes(&self) -> u32 {
        8 * place_words(self.words) as u32
    }

    fn fill(
        &mut self,
        rules: &[Rule],
        entries: Option<&[EntryWords]>,
        keys: &[KeyWords],
        rows: &[usize],
        places: usize,
    ) {
        let size = place_words(self.words);
        let mut words = vec![0u64; (places * size).next_multiple_of(8)];
        // Empty places hold the key zero; the home place of key zero holds a key with another home. No key is found in
        // them.
        let place_of = |key: KeyWords| {
            let hash = self.hash(key);
            rows[self.row_of(hash)] + self.place_in_row(hash)
        };
        let home = place_of(padded(&[0]));
        let other = (1..).find(|k| place_of(padded(&[*k])) != home).expect("not all keys have the same place");
        words[home * size] = other;
        for (i, (rule, key)) in rules.iter().zip(keys).enumerate() {
            let at = place_of(*key) * size;
            let (of_key, of_entry) = words[at..at + size].split_at_mut(self.words);
            of_key.copy_from_slice(&key[..self.words]);
            match entries {
                Some(entries) => of_entry.copy_from_slice(&entries[i][..size - self.words]),
                None => of_entry[0] = rule.entry.entry as u64,
            }
        }
        self.places = words.chunks_exact(8).map(|w| Places(w.try_into().expect("eight words"))).collect();
        let first = self.places.as_ptr() as u64;
        if self.row_bits > 0 {
            self.rows = rows.iter().map(|row| first + u64::from(self.place_bytes()) * *row as u64).collect();
        }
    }
}

/// The start of each row, and the number of places.
struct RowStarts {
    rows: Vec<usize>,
    places: usize,
}

impl Translator<'_, '_> {
    /// The lookup structure of an exact table, if its entries are known and one can be built.
    pub fn exact_index(&mut self, table: TableId, binding: &TableBinding) -> Option<Arc<ExactIndex>> {
        let words = match binding.engine {
            EngineKind::DirectIndex => 1,
            EngineKind::ExactInline => binding.exact?.key_bytes.div_ceil(8) as usize,
            _ => binding.key.bytes as usize / 8,
        };
        let rules = self.shape(table)?.rules.as_ref()?;
        let known =
            self.exact_index.borrow().iter().find(|(t, _)| *t == table).map(|(_, exact_index)| exact_index.clone());
        // A direct-index engine is an array of all keys already; a hash would not be faster.
        let helps = |exact_index: &ExactIndex| {
            binding.engine != EngineKind::DirectIndex || matches!(exact_index, ExactIndex::DenseIndex(..))
        };
        known.unwrap_or_else(|| {
            let new = ExactIndex::new(rules, words, &binding.entry).filter(helps).map(Arc::new);
            self.exact_index.borrow_mut().push((table, new.clone()));
            new
        })
    }

    /// The entry of a key; the code continues with hits, and misses go to the block `miss`.
    pub fn find_in_exact_index(&mut self, exact_index: &ExactIndex, key: &[Value], miss: Block) -> Value {
        match exact_index {
            ExactIndex::DenseIndex(dense) => self.find_dense(dense, key[0], miss),
            ExactIndex::PerfectHash(hashed) => self.find_by_perfect_hash(hashed, key, miss),
        }
    }

    /// Whether a value is computed from the packet's own memory, so that it differs between packets.
    fn is_loaded(&self, value: Value) -> bool {
        let dfg = &self.b.func.dfg;
        let mut waiting = vec![value];
        for _ in 0..16 {
            let Some(next) = waiting.pop() else { return false };
            let ValueDef::Result(inst, _) = dfg.value_def(dfg.resolve_aliases(next)) else { continue };
            let data = &dfg.insts[inst];
            let can_move = data.memflags_data(dfg).is_some_and(|flags| flags.can_move());
            if data.opcode().can_load() && !can_move {
                return true;
            }
            waiting.extend(dfg.inst_args(inst));
        }
        false
    }

    fn find_dense(&mut self, dense: &DenseIndex, key: Value, miss: Block) -> Value {
        let mut position = self.add_imm(key, dense.first.wrapping_neg());
        let bits = self.significant_bits(key);
        // Short keys may have a place for each value, so that no range check is needed.
        if dense.first > 0 || bits >= 32 || dense.count < 1 << bits {
            let is_in = self.icmp_imm(IntCC::UnsignedLessThan, position, dense.count);
            let there = self.b.create_block();
            self.b.ins().brif(is_in, there, &[], miss, &[]);
            self.b.seal_block(there);
            self.b.switch_to_block(there);
            if !self.is_loaded(key) {
                // The key may be the same for all packets; then the load below may be hoisted above the range check, so
                // its index must be valid anyway.
                let first = self.iconst(0);
                position = self.b.ins().select(is_in, position, first);
            }
        }
        let base = self.iconst(dense.words.as_ptr() as u64);
        let up = 3 + dense.copied_words.max(1).ilog2();
        let offset = self.b.ins().ishl_imm_u(position, i64::from(up));
        let at = self.b.ins().iadd(base, offset);
        if dense.copied_words > 0 {
            return at;
        }
        let entry = self.b.ins().load(I64, ENTRY_OR_NONE, at, 0);
        let found = self.b.create_block();
        self.b.ins().brif(entry, found, &[], miss, &[]);
        self.b.seal_block(found);
        self.b.switch_to_block(found);
        entry
    }

    /// Whether part of a key is equal to that at its place in memory; all parts have the same number of words.
    fn is_at(&mut self, (part, words): (usize, &[Value]), at: Value, flags: MemFlagsData) -> Value {
        let stored = |t: &mut Self, i: usize| t.b.ins().load(I64, flags, at, 8 * (part * words.len() + i) as i32);
        if let [word] = words {
            let stored = stored(self, 0);
            return self.b.ins().icmp(IntCC::Equal, *word, stored);
        }
        let differences = words.iter().enumerate().map(|(i, word)| {
            let stored = stored(self, i);
            self.b.ins().bxor(*word, stored)
        });
        let differences: Vec<Value> = differences.collect();
        let any = differences.into_iter().reduce(|a, b| self.b.ins().bor(a, b)).expect("a key has a word");
        self.icmp_imm(IntCC::Equal, any, 0)
    }

    fn find_by_perfect_hash(&mut self, exact_index: &PerfectHash, key: &[Value], miss: Block) -> Value {
        let product = |t: &mut Self, i: usize| {
            let multiplier = t.iconst(exact_index.multipliers[i]);
            t.b.ins().imul(key[i], multiplier)
        };
        let mut hash = product(self, 0);
        for i in 1..exact_index.words {
            let next = product(self, i);
            hash = self.b.ins().iadd(hash, next);
        }
        // The index in the row, times the size of a place.
        let up = exact_index.place_bytes().ilog2();
        let below = 64 - exact_index.row_bits - exact_index.place_bits - up;
        let place = self.b.ins().rotr_imm_u(hash, i64::from(below));
        let place = self.b.ins().band_imm_u(place, ((1i64 << exact_index.place_bits) - 1) << up);
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let row = if exact_index.row_bits > 0 {
            let rows = self.iconst(exact_index.rows.as_ptr() as u64);
            let row = self.b.ins().ushr_imm_u(hash, i64::from(64 - exact_index.row_bits));
            let offset = self.b.ins().ishl_imm_u(row, 3);
            let at = self.b.ins().iadd(rows, offset);
            self.b.ins().load(I64, flags, at, 0)
        } else {
            self.iconst(exact_index.places.as_ptr() as u64)
        };
        let at = self.b.ins().iadd(row, place);
        // Keys of two words have a branch for each word, longer keys a single branch.
        let parts = if exact_index.words > 2 { 1 } else { exact_index.words };
        for part in key[..exact_index.words].chunks(exact_index.words / parts).enumerate() {
            let same = self.is_at(part, at, flags);
            let next = self.b.create_block();
            self.b.ins().brif(same, next, &[], miss, &[]);
            self.b.seal_block(next);
            self.b.switch_to_block(next);
        }
        match exact_index.has_entries {
            true => self.add_imm(at, 8 * exact_index.words as u64),
            false => self.b.ins().load(I64, ENTRY_OR_NONE, at, 8 * exact_index.words as i32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Bits;
    use base::entry::ActionCall;

    fn rule(key: &[u64], number: usize) -> Rule {
        let entry = EntryShape { entry: std::ptr::without_provenance(8 * (number + 1)), call: None };
        Rule { mask: vec![u64::MAX; key.len()], value: key.to_vec(), entry }
    }

    /// A layout whose entries cannot be copied: places hold addresses.
    fn out_of_line() -> EntryLayout {
        EntryLayout::default()
    }

    /// A layout of entries with an action of one byte and a parameter of 48 bits.
    fn short() -> EntryLayout {
        EntryLayout { action_bytes: 1, params: vec![vec![], vec![1]], sizes: vec![1, 7], ..EntryLayout::default() }
    }

    /// As `rule`, with the call of an entry of layout `short`.
    fn short_rule(key: &[u64], number: usize) -> Rule {
        let call = ActionCall { action: 1, args: vec![Bits::new(48, 0x0200_0000_0000 + number as u128)] };
        let mut rule = rule(key, number);
        rule.entry.call = Some(call);
        rule
    }

    fn short_entry(number: usize) -> u64 {
        (0x0200_0000_0000 + number as u64) << 8 | 1
    }

    /// What the generated code would find: an address, or the first word of a copy.
    fn find(exact_index: &ExactIndex, key: &[u64]) -> Option<u64> {
        let exact_index = match exact_index {
            ExactIndex::DenseIndex(dense) => {
                let position = key[0].wrapping_sub(dense.first) as usize;
                let entry = dense.words.get(position.checked_mul(dense.copied_words.max(1))?).copied()?;
                return (dense.copied_words > 0 || entry != 0).then_some(entry);
            }
            ExactIndex::PerfectHash(hashed) => hashed,
        };
        let hash = exact_index.hash(padded(&key[..exact_index.words]));
        let first = exact_index.places.as_ptr() as u64;
        let row = if exact_index.row_bits > 0 { exact_index.rows[exact_index.row_of(hash)] } else { first };
        let at = (row - first) as usize / 8 + exact_index.place_in_row(hash) * place_words(exact_index.words);
        let word = |i: usize| exact_index.places[i / 8].0[i % 8];
        let same = (0..exact_index.words).all(|i| word(at + i) == key[i]);
        same.then(|| word(at + exact_index.words))
    }

    #[test]
    fn only_keys_of_the_table_are_found() {
        let mut random = 7;
        for words in 1..=KEY_WORDS_MAX {
            for count in [1, 2, 4, 9, 32, 33, 100, 1000, EXACT_INDEX_MAX] {
                let draw = |random: &mut u64, i: u64| {
                    let mut key = match i % 3 {
                        // Consecutive addresses; ports in the high bits; random keys.
                        0 => vec![0x0000_0200_0000_0000 + i, i / 7],
                        1 => vec![(i << 48) | 0x0200_0000_0001, 3],
                        _ => vec![next_random(random), next_random(random) >> 40],
                    };
                    // Longer keys differ in their last words too, or only there.
                    key.resize(words, i % 2 * i);
                    key
                };
                let mut keys: Vec<Vec<u64>> = (0..count as u64).map(|i| draw(&mut random, i)).collect();
                keys.sort_unstable();
                keys.dedup();
                let rules: Vec<Rule> = keys.iter().enumerate().map(|(i, k)| rule(k, i)).collect();
                let exact_index = ExactIndex::new(&rules, words, &out_of_line()).expect("a hash is found");
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(find(&exact_index, key), Some(8 * (i as u64 + 1)), "{count} keys, {key:x?}");
                }
                let mut few = [vec![0; words], vec![0; words]];
                few[1][words - 1] = 1;
                for key in (0..3000).map(|i| draw(&mut random, 1_000_000 + i)).chain(few) {
                    if keys.binary_search(&key).is_err() {
                        assert_eq!(find(&exact_index, &key), None, "{count} keys, {key:x?}");
                    }
                }
            }
        }
    }

    #[test]
    fn dense_keys_are_direct_indices() {
        for (first, step, is_dense) in [(0, 1, true), (1000, 3, true), (u64::MAX - 2999, 3, true), (1, 50, false)] {
            let rules: Vec<Rule> = (0..1000).map(|i| rule(&[first + step * i], i as usize)).collect();
            let exact_index = ExactIndex::new(&rules, 1, &out_of_line()).expect("there is a way");
            assert_eq!(matches!(exact_index, ExactIndex::DenseIndex(..)), is_dense);
            for i in 0..1000 {
                assert_eq!(find(&exact_index, &[first + step * i]), Some(8 * (i + 1)));
            }
            for other in [first.wrapping_sub(1), first.wrapping_add(1000 * step), u64::MAX / 2] {
                assert_eq!(find(&exact_index, &[other]), None);
            }
        }
    }

    #[test]
    fn short_entries_are_copied_into_the_index() {
        for (words, step) in [(1, 1), (1, 1 << 20), (2, 1), (3, 1), (5, 1), (7, 1)] {
            let key = |i: u64| if words > 1 { vec![i; words] } else { vec![5 + step * i] };
            let rules: Vec<Rule> = (0..300).map(|i| short_rule(&key(i), i as usize)).collect();
            let exact_index = ExactIndex::new(&rules, words, &short()).expect("there is a way");
            for i in 0..300 {
                assert_eq!(find(&exact_index, &key(i)), Some(short_entry(i as usize)), "{words} words, key {i}");
            }
            assert_eq!(find(&exact_index, &key(300)), None);
            // Entries that readers write to (times of hits) are not copied.
            let timed = EntryLayout { last_hit: Some(-8), ..short() };
            let exact_index = ExactIndex::new(&rules, words, &timed).expect("there is a way");
            assert_eq!(find(&exact_index, &key(7)), Some(64));
        }
    }

    #[test]
    fn copies_have_parameters_of_any_width_least_significant_byte_first() {
        let layout =
            EntryLayout { action_bytes: 2, params: vec![vec![2, 4, 20]], sizes: vec![48], ..EntryLayout::default() };
        let bytes: Vec<u8> = (1..26).collect();
        let args = vec![Bits::new(9, 0x155), Bits::new(128, 0xfedc << 112 | 3), Bits::from_bytes_be(200, &bytes)];
        let call = Some(ActionCall { action: 0, args });
        let entry = EntryShape { entry: std::ptr::null(), call };
        let mut expected = vec![0, 0, 0x55, 1, 3];
        expected.resize(18, 0);
        expected.extend([0xdc, 0xfe]);
        expected.extend(bytes.iter().rev());
        expected.resize(48, 0);
        let mut bytes = [0xff; 50];
        assert_eq!(copy_to(&entry, &layout, &mut bytes), Some(48));
        assert_eq!((&bytes[..48], &bytes[48..]), (&expected[..], &[0xff; 2][..]));
        assert_eq!(copy_to(&entry, &layout, &mut bytes[..47]), None, "there is no room");
        assert_eq!(words_of(&entry, &layout, 2), None, "it is too long");
    }

    #[test]
    fn too_many_keys_or_words_are_refused() {
        let rules: Vec<Rule> = (0..=EXACT_INDEX_MAX).map(|i| rule(&[i as u64; 8], i)).collect();
        assert!(
            ExactIndex::new(&rules, 1, &out_of_line()).is_none() && ExactIndex::new(&[], 1, &out_of_line()).is_none()
        );
        assert!(ExactIndex::new(&rules[..5], 8, &out_of_line()).is_none());
    }
}

//! Bit vector classification of tables of some tens of rules, as part of the code: for each value of each byte of the
//! key a bit vector over the rules.
//!
//! A masked rule accepts a key if it accepts each of its bytes. So for each byte of the key that some rule examines (a
//! *column*) there are 256 bit vectors (*rows*), one for each value, with the bits of the rules that accept it. The
//! intersection of all columns' vectors has the bits of the matching rules, and its lowest bit is the rule that wins.
//! (Lakshman, Stiliadis: "High-speed policy-based packet forwarding using efficient multi-dimensional range matching",
//! SIGCOMM 1998; here with bytes instead of ranges of whole fields.) Nothing is predicted, no load depends on another,
//! and the number of rules matters no more than their masks do.
//!
//! The highest bit is set in all vectors: it stands for the default entry, or for the last rule if that accepts
//! everything.
//!
//! **Aggregation.** If there are more rules than bits, similar rules share a bit, which is set in a vector if one of
//! them accepts the byte (aggregated bit vectors: Baboescu, Varghese, "Scalable packet classification", SIGCOMM 2001).
//! Keys with no common bit except the highest match none of the rules; most lookups in an access list are of this kind.
//! The others are looked up by a call of the engine.
//!
//! The vectors belong to the code that is specialised for the rules, and are shared by all lookups of the table in it.
//! [`crate::rules`] says when code is specialised for rules, and chooses between bit vectors and comparing one by one.
//!
//! Tests: below; `crates/datapath/tests/rules.rs` and `recompile.rs`, against the interpreter.

use crate::translate::Translator;
use abi::{EntryShape, KeyLayout, Rule};
use cranelift_codegen::ir::types::{I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use ir::{Operand, TableId};
use std::cell::RefCell;
use std::mem::offset_of;
use std::sync::Arc;
use tables::columns::{BYTE_VALUES, Column, accepted, byte_of, columns};

/// Most bytes of the key that rules may examine.
pub const COLUMNS_MAX: usize = 32;
/// Most rules with a bit each, not counting the last one if that accepts everything.
pub const RULES_MAX: usize = 127;
/// Most rules that share bits.
const GROUPED_RULES_MAX: usize = 1024;
/// Most common bits of random keys, on average, with which a prefilter of shared bits is used.
const COMMON_MAX: f64 = 0.5;
/// The bit vectors of a table, and the entries of its rules.
#[derive(Debug)]
pub(crate) struct BitVectors {
    columns: Vec<Column>,
    /// Words of a vector: 1 or 2.
    words: usize,
    /// The vectors of the columns one after the other, aligned so that one load reads a vector.
    vectors: Box<[u128]>,
    /// By bit. Bits that are never the lowest common one have no entry.
    entries: Box<[BitEntry]>,
}

/// What a bit stands for.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
struct BitEntry {
    entry: u64,
    /// The action that it runs, if that is known.
    action: u64,
    /// Whether it is a rule and not the default or last entry.
    is_rule: u64,
    /// The offset of its counter from the counter of hits.
    counter: u64,
}

/// A key as a list of its fields.
pub(crate) struct KeyParts {
    /// The bit of the key at which each word of a field begins, ascending, and the word.
    fields: Vec<(u32, Value)>,
}

/// The bit vectors of one compilation, by table.
pub(crate) type AllBitVectors = RefCell<Vec<(TableId, Arc<BitVectors>)>>;

/// The approximate number of instructions of a lookup; `None` if there are too many rules or columns.
pub(crate) fn cost(rules: &[&Rule]) -> Option<usize> {
    if rules.len() > RULES_MAX {
        return None;
    }
    let columns = columns(rules).len();
    let fits = (1..=COLUMNS_MAX).contains(&columns);
    // Per column a shift, a mask, and the load with the AND; then from the bits to the entry.
    let two = rules.len() > 63;
    fits.then_some(3 * columns + if two { 11 } else { 5 })
}

impl BitVectors {
    /// The vectors for rules in descending order of priority, and for the entry of all other keys, which may be a miss.
    /// If there are more rules than bits, they are grouped.
    fn new(rules: &[&Rule], last: &EntryShape, may_miss: bool) -> BitVectors {
        let words = if rules.len() > 63 { 2 } else { 1 };
        let columns = columns(rules);
        let sentinel = 64 * words - 1;
        let mut vectors = vec![0u64; columns.len() * BYTE_VALUES * words];
        let bits = bits(rules);
        for (column, vectors) in columns.iter().zip(vectors.chunks_exact_mut(BYTE_VALUES * words)) {
            // The bits that are set for all values.
            let mut all = vec![0u64; words];
            all[sentinel / 64] |= 1 << (sentinel % 64);
            for (rule, bit) in rules.iter().zip(&bits) {
                let of = |all: &[u64]| byte_of(all[column.word], column.byte);
                let (mask, wanted) = (of(&rule.mask), of(&rule.value));
                let (word, bit) = (bit / 64, 1 << (bit % 64));
                match mask {
                    0 => all[word] |= bit,
                    0xff => vectors[wanted as usize * words + word] |= bit,
                    _ => accepted(mask, wanted).for_each(|value| vectors[value * words + word] |= bit),
                }
            }
            vectors
                .chunks_exact_mut(words)
                .flat_map(|vector| vector.iter_mut().zip(&all))
                .for_each(|(word, all)| *word |= all);
        }
        let mut entries = vec![BitEntry::default(); sentinel + 1];
        let of = |entry: &EntryShape, is_rule: bool| BitEntry {
            entry: entry.entry as u64,
            action: entry.call.as_ref().map_or(0, |call| u64::from(call.action)),
            is_rule: is_rule.into(),
            counter: if is_rule || !may_miss { 0 } else { 8 },
        };
        rules.iter().zip(&mut entries[..sentinel]).for_each(|(rule, place)| *place = of(&rule.entry, true));
        entries[sentinel] = of(last, false);
        let vectors = vectors.chunks_exact(2).map(|pair| u128::from(pair[0]) | u128::from(pair[1]) << 64).collect();
        BitVectors { columns, words, vectors, entries: entries.into() }
    }
}

/// The bit of each rule: its own, or that of its group of rules that are adjacent by mask and value.
fn bits(rules: &[&Rule]) -> Vec<usize> {
    if rules.len() <= RULES_MAX {
        return (0..rules.len()).collect();
    }
    let mut order: Vec<usize> = (0..rules.len()).collect();
    order.sort_by_key(|i| (&rules[*i].mask, &rules[*i].value));
    let mut bits = vec![0; rules.len()];
    order.into_iter().enumerate().for_each(|(at, rule)| bits[rule] = at * RULES_MAX / rules.len());
    bits
}

impl BitVectors {
    /// The average number of groups that a random key may match.
    fn common(&self) -> f64 {
        let mut found = [1.0; RULES_MAX];
        for vectors in self.vectors.chunks_exact(BYTE_VALUES) {
            // Most groups accept either all values of a byte or few.
            let any = vectors.iter().fold(u128::MAX, |any, vector| any & vector);
            let mut accepted = [0u32; RULES_MAX + 1];
            for vector in vectors {
                let mut rest = vector & !any;
                while rest != 0 {
                    accepted[rest.trailing_zeros() as usize] += 1;
                    rest &= rest - 1;
                }
            }
            for (bit, found) in found.iter_mut().enumerate().filter(|(bit, _)| any >> bit & 1 == 0) {
                *found *= f64::from(accepted[bit]) / BYTE_VALUES as f64;
            }
        }
        found.iter().sum()
    }
}

/// The result of a lookup.
pub(crate) struct Row {
    /// Whether it is a rule and not the default or last entry, as a one-bit word.
    pub is_rule: Value,
    /// The offset of its counter from the counter of hits.
    pub counter: Value,
    pub entry: Value,
    /// The action that it runs, if it is known of all entries.
    pub action: Value,
}

impl Translator<'_, '_> {
    /// The bit vectors of a table's rules.
    fn bit_vectors(&self, table: TableId, rules: &[&Rule], last: &EntryShape, may_miss: bool) -> Arc<BitVectors> {
        let known = self.bit_vectors.borrow().iter().find(|(t, _)| *t == table).map(|(_, m)| Arc::clone(m));
        known.unwrap_or_else(|| {
            let new = Arc::new(BitVectors::new(rules, last, may_miss));
            self.bit_vectors.borrow_mut().push((table, Arc::clone(&new)));
            new
        })
    }

    /// A key's fields.
    pub fn key_parts(&mut self, layout: &KeyLayout, keys: &[Operand]) -> KeyParts {
        let mut fields = Vec::new();
        for (field, key) in layout.fields.iter().zip(keys) {
            let words = self.read_words(key);
            fields.extend(words.into_iter().enumerate().map(|(i, word)| (8 * field.offset + 64 * i as u32, word)));
        }
        fields.sort_unstable_by_key(|(at, _)| *at);
        KeyParts { fields }
    }

    /// Whether one of the rules may accept the key, as a condition, for rules that share bits; `None` if the test is
    /// not worth its cost.
    pub fn may_match(
        &mut self,
        table: TableId,
        rules: &[&Rule],
        last: &EntryShape,
        layout: &KeyLayout,
        keys: &[Operand],
    ) -> Option<Value> {
        if rules.len() > GROUPED_RULES_MAX || !(1..=COLUMNS_MAX).contains(&columns(rules).len()) {
            return None;
        }
        let bit_vectors = self.bit_vectors(table, rules, last, true);
        if bit_vectors.common() > COMMON_MAX {
            return None;
        }
        let key = self.key_parts(layout, keys);
        let common = self.common_bits(&bit_vectors, &key);
        let (low, high) = (self.b.ins().extractlane(common, 0), self.b.ins().extractlane(common, 1));
        // Without the highest bit, which is set in all vectors.
        let high = self.b.ins().ishl_imm_u(high, 1);
        Some(self.b.ins().bor(low, high))
    }

    /// The first rule that accepts the key, or else the last entry, which is that of a miss if there `may` be one.
    pub fn first_accepting_rule(
        &mut self,
        table: TableId,
        rules: &[&Rule],
        last: &EntryShape,
        may_miss: bool,
        key: &KeyParts,
    ) -> Row {
        let bit_vectors = self.bit_vectors(table, rules, last, may_miss);
        let common = self.common_bits(&bit_vectors, key);
        let first = if bit_vectors.words == 1 {
            self.b.ins().ctz(common)
        } else {
            let (low, high) = (self.b.ins().extractlane(common, 0), self.b.ins().extractlane(common, 1));
            let (in_low, in_high) = (self.b.ins().ctz(low), self.b.ins().ctz(high));
            let in_high = self.add_imm(in_high, 64);
            self.b.ins().select(low, in_low, in_high)
        };
        let entries = self.iconst(bit_vectors.entries.as_ptr() as u64);
        let offset = self.b.ins().ishl_imm_u(first, i64::from(size_of::<BitEntry>().ilog2()));
        let at = self.b.ins().iadd(entries, offset);
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let mut word = |offset: usize| self.b.ins().load(I64, flags, at, offset as i32);
        Row {
            is_rule: word(offset_of!(BitEntry, is_rule)),
            counter: word(offset_of!(BitEntry, counter)),
            entry: word(offset_of!(BitEntry, entry)),
            action: word(offset_of!(BitEntry, action)),
        }
    }

    /// The intersection of the bit vectors of all of a key's bytes: a word, or a vector of two.
    fn common_bits(&mut self, bit_vectors: &BitVectors, key: &KeyParts) -> Value {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move().with_aligned();
        let vector_bytes = 8 * bit_vectors.words as u32;
        let (vector_type, up) = if bit_vectors.words == 1 { (I64, 3) } else { (I64X2, 4) };
        let vectors = self.iconst(bit_vectors.vectors.as_ptr() as u64);
        // Two chains of ANDs, so that they run in parallel.
        let mut common: [Option<Value>; 2] = [None; 2];
        for (i, column) in bit_vectors.columns.iter().enumerate() {
            let offset = self.key_byte(key, *column, up);
            let at = self.b.ins().iadd(vectors, offset);
            let vector = self.b.ins().load(vector_type, flags, at, (i * BYTE_VALUES) as i32 * vector_bytes as i32);
            common[i % 2] = Some(match common[i % 2] {
                Some(so_far) => self.b.ins().band(so_far, vector),
                None => vector,
            });
        }
        match common {
            [Some(a), Some(b)] => self.b.ins().band(a, b),
            [first, _] => first.expect("there is a column"),
        }
    }

    /// A byte of a key, shifted left by `up`. If the field is still in the frame, the byte is loaded from there.
    pub fn key_byte(&mut self, key: &KeyParts, column: Column, up: u32) -> Value {
        let at = 64 * column.word as u32 + 8 * column.byte;
        let (from, field) = *key.fields.iter().rfind(|(from, _)| *from <= at).expect("a column is a byte of a field");
        let byte = (at - from) / 8;
        if let Some(frame) = self.frame_bytes(field) {
            let value = match frame.byte(byte) {
                Some(at) => self.load_be(at, 1),
                None => self.iconst(0),
            };
            return self.b.ins().ishl_imm_u(value, i64::from(up));
        }
        let turned = self.b.ins().rotr_imm_u(field, i64::from((64 + 8 * byte - up) % 64));
        self.b.ins().band_imm_u(turned, 0xff << up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: usize) -> EntryShape {
        EntryShape { entry: std::ptr::without_provenance(8 * number), call: None }
    }

    /// What the generated code would find.
    fn find(bit_vectors: &BitVectors, key: &[u64]) -> u64 {
        let columns = bit_vectors.columns.iter().enumerate();
        let common = columns.fold(u128::MAX, |common, (i, column)| {
            let at = i * BYTE_VALUES + byte_of(key[column.word], column.byte) as usize;
            common
                & match bit_vectors.words {
                    1 => bit_vectors.vectors[at / 2] >> (64 * (at % 2)) & u128::from(u64::MAX),
                    _ => bit_vectors.vectors[at],
                }
        });
        bit_vectors.entries[common.trailing_zeros() as usize].entry
    }

    #[test]
    fn rules_that_share_bits_are_not_missed() {
        let rules: Vec<Rule> = (0..500u64)
            .map(|i| {
                let mask = [0xffff, 0xff_0000_ff00][i as usize % 2];
                Rule { mask: vec![mask], value: vec![(i * 0x0123_4567_89ab) & mask], entry: entry(i as usize) }
            })
            .collect();
        let rules: Vec<&Rule> = rules.iter().collect();
        let bit_vectors = BitVectors::new(&rules, &entry(1000), true);
        let mut passed = 0;
        for key in (0..20_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let matches = rules.iter().any(|rule| key & rule.mask[0] == rule.value[0]);
            let common = bit_vectors.columns.iter().enumerate().fold(u128::MAX, |common, (i, column)| {
                common & bit_vectors.vectors[i * BYTE_VALUES + byte_of(key, column.byte) as usize]
            });
            assert!(!matches || common << 1 != 0, "{key:x}");
            passed += u32::from(common << 1 != 0);
        }
        // 500 rules of 65,536 values each match one key of 131; groups of four let up to four times four as many pass.
        assert!((100..4000).contains(&passed), "{passed} pass");
        let expected = f64::from(passed) / 20_000.0;
        assert!((bit_vectors.common() - expected).abs() < expected / 2.0, "{} of {expected}", bit_vectors.common());
    }

    #[test]
    fn the_lowest_common_bit_is_the_first_rule_that_accepts_the_key() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        for count in [1, 2, 62, 63, 64, 65, 126, 127] {
            let masks = [0xff, 0xff00_00ff, 0x0ff0, 0, 0xf << 60];
            let rule = |number: usize, mask: Vec<u64>, value: Vec<u64>| {
                let value = value.iter().zip(&mask).map(|(v, m)| v & m).collect();
                Rule { mask, value, entry: entry(number) }
            };
            let mut draw =
                |wide: bool| vec![(next() % 5) | ((next() % 3) << 8) | ((next() % 2) << 24), u64::from(wide) << 61];
            let rules: Vec<Rule> =
                (0..count).map(|i| rule(i, vec![masks[i % 3], masks[3 + i % 2]], draw(i % 7 == 0))).collect();
            let rules: Vec<&Rule> = rules.iter().collect();
            let bit_vectors = BitVectors::new(&rules, &entry(1000), true);
            assert!(cost(&rules).is_some());
            for i in 0..500 {
                let key = draw(i % 3 == 0);
                let accepts = |rule: &Rule| rule.mask.iter().zip(&rule.value).zip(&key).all(|((m, v), k)| k & m == *v);
                let expected = rules.iter().find(|rule| accepts(rule)).map_or(8000, |rule| rule.entry.entry as u64);
                assert_eq!(find(&bit_vectors, &key), expected, "{count} rules, {key:x?}");
            }
        }
    }
}

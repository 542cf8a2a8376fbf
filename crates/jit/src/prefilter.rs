//! Keys that surely meet none of a table's rules, told by few of their bytes.
//!
//! Most packets are asked about by an access list and meet none of its rules, and often one byte says so: rules are about
//! certain networks, hosts or ports. Of the bytes that rules look at, those are chosen that tell most, up to
//! [`BYTES_MAX`]; for each of their values a word says which rules accept it, a bit for each group of rules. Keys whose words
//! have no bit in common go to the default entry at once; for the others the table is looked up.
//!
//! What tells most is reckoned for keys that are like the rules where all rules are alike, and of any bytes elsewhere: a list about
//! hosts of one network is mostly asked about that network. If no few bytes keep such keys back, it is reckoned for keys of any bytes.
//! Where packets are not like that, it costs some instructions and a branch that is always taken the same way; it is only made where
//! at most one key in [`PASS_MAX`] would pass.
//!
//! The words belong to the code that is made for the rules, as the rows of [`crate::bit_vectors`] do.
//!
//! Tests: below; `crates/datapath/tests/rules.rs` and `recompile.rs`, against the interpreter.

use crate::bit_vectors::{Column, KeyParts, ROWS, accepted, byte_of, columns};
use crate::translate::Translator;
use abi::Rule;
use base::ids::TableId;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use std::cell::RefCell;
use std::sync::Arc;

/// Most bytes that are looked at.
const BYTES_MAX: usize = 3;
/// Most rules.
pub const PREFILTERED_RULES_MAX: usize = 16_384;
/// Rules are alike in a byte if they have at most so many values there, and half as many as they are.
const ALIKE_MAX: usize = 4;
/// A prefilter passes at most one key of any bytes in so many.
const PASS_MAX: f64 = 4.0;
/// Another byte is looked at if it keeps back so large a part of what passed.
const WORTHWHILE: f64 = 0.5;
/// Keys that are tried to reckon what passes.
const SAMPLES: u32 = 1024;

/// The bytes that tell most, and which groups of rules accept which of their values.
#[derive(Debug)]
pub(crate) struct Prefilter {
    columns: Vec<Column>,
    rows: Vec<[u64; ROWS]>,
}

/// Those of code that is being made, by table; `None` if there is none.
pub(crate) type Prefilters = RefCell<Vec<(TableId, Option<Arc<Prefilter>>)>>;

/// A word whose high bits depend on all of this one's (Fibonacci hashing).
fn mixed(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// For each column a row for each value of the byte: the groups of rules that accept it.
fn rows(rules: &[&Rule], columns: &[Column]) -> Vec<[u64; ROWS]> {
    let mut rows = vec![[0; ROWS]; columns.len()];
    // What is the same for all values.
    let mut all = vec![0; columns.len()];
    for (i, rule) in rules.iter().enumerate() {
        let bit = 1 << (i * 64 / rules.len());
        for ((column, rows), all) in columns.iter().zip(&mut rows).zip(&mut all) {
            let of = |words: &[u64]| byte_of(words[column.word], column.byte);
            match (of(&rule.mask), of(&rule.value)) {
                (0, _) => *all |= bit,
                (0xff, wanted) => rows[wanted as usize] |= bit,
                (mask, wanted) => accepted(mask, wanted).for_each(|value| rows[value] |= bit),
            }
        }
    }
    for (rows, all) in rows.iter_mut().zip(all) {
        rows.iter_mut().for_each(|row| *row |= all);
    }
    rows
}

impl Prefilter {
    /// For these rules; `None` if a few bytes do not tell enough.
    fn new(rules: &[&Rule]) -> Option<Prefilter> {
        if rules.is_empty() || rules.len() > PREFILTERED_RULES_MAX || rules.iter().any(|rule| rule.accepts_all()) {
            return None;
        }
        // Rules that are like each other share a bit.
        let mut sorted = rules.to_vec();
        sorted.sort_by_key(|rule| (&rule.mask, &rule.value));
        let columns = columns(rules);
        let rows = rows(&sorted, &columns);
        let all: Vec<(Column, [u64; ROWS])> = columns.into_iter().zip(rows).collect();
        Prefilter::choose(all.clone(), &near(rules, &all)).or_else(|| Prefilter::choose(all, &|_, _| None))
    }

    /// Of these columns with their rows. `near` says what byte a sample has in a column, if it is not any.
    fn choose(mut left: Vec<(Column, [u64; ROWS])>, near: &Near<'_>) -> Option<Prefilter> {
        let mut prefilter = Prefilter { columns: Vec::new(), rows: Vec::new() };
        // What the keys that are tried have in common with the bytes so far.
        let mut common = vec![u64::MAX; SAMPLES as usize];
        let mut passing = 1.0;
        while prefilter.columns.len() < BYTES_MAX && !left.is_empty() {
            let value_of = |sample: usize, column: &Column| {
                near(sample, *column).unwrap_or_else(|| {
                    let seed = (sample as u64 + 1) << 16 | (column.word as u64) << 8 | u64::from(column.byte);
                    (mixed(seed) >> 56) as usize
                })
            };
            let pass = |(column, rows): &(Column, [u64; ROWS])| {
                common.iter().enumerate().filter(|(s, bits)| **bits & rows[value_of(*s, column)] != 0).count()
            };
            let best = (0..left.len()).min_by_key(|i| pass(&left[*i]))?;
            let part = pass(&left[best]) as f64 / f64::from(SAMPLES);
            if part > WORTHWHILE * passing {
                break;
            }
            let (column, rows) = left.swap_remove(best);
            common.iter_mut().enumerate().for_each(|(s, bits)| *bits &= rows[value_of(s, &column)]);
            prefilter.columns.push(column);
            prefilter.rows.push(rows);
            passing = part;
            if passing * PASS_MAX * PASS_MAX <= 1.0 {
                break;
            }
        }
        (passing * PASS_MAX <= 1.0).then_some(prefilter)
    }
}

/// The byte that a sample has in a column, if it is not any.
type Near<'a> = dyn Fn(usize, Column) -> Option<usize> + 'a;

/// Samples that are like one of the rules in the columns in which rules are alike.
fn near<'a>(rules: &'a [&Rule], all: &[(Column, [u64; ROWS])]) -> Box<Near<'a>> {
    let of = |words: &[u64], column: Column| byte_of(words[column.word], column.byte) as usize;
    let is_alike = |column: Column| {
        let (mut count, mut values) = (0, Vec::new());
        for rule in rules.iter().filter(|rule| of(&rule.mask, column) == 0xff) {
            let value = of(&rule.value, column);
            if !values.contains(&value) {
                values.push(value);
            }
            if values.len() > ALIKE_MAX {
                return false;
            }
            count += 1;
        }
        count > 0 && 2 * values.len() <= count
    };
    let alike: Vec<Column> = all.iter().map(|(column, _)| *column).filter(|column| is_alike(*column)).collect();
    Box::new(move |sample, column| {
        let rule = rules[sample * 7919 % rules.len()];
        (of(&rule.mask, column) == 0xff && alike.contains(&column)).then(|| of(&rule.value, column))
    })
}

impl Translator<'_, '_> {
    /// The prefilter of a table's rules, if there is a good one.
    pub fn prefilter(&mut self, table: TableId, rules: &[&Rule]) -> Option<Arc<Prefilter>> {
        let known = self.prefilters.borrow().iter().find(|(t, _)| *t == table).map(|(_, prefilter)| prefilter.clone());
        known.unwrap_or_else(|| {
            let new = Prefilter::new(rules).map(Arc::new);
            self.prefilters.borrow_mut().push((table, new.clone()));
            new
        })
    }

    /// Whether a key passes, as a condition.
    pub fn passes_prefilter(&mut self, prefilter: &Prefilter, key: &KeyParts) -> Value {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let mut common = None;
        for (column, rows) in prefilter.columns.iter().zip(&prefilter.rows) {
            let rows = self.iconst(rows.as_ptr() as u64);
            let offset = self.key_byte(key, *column, size_of::<u64>().ilog2());
            let at = self.b.ins().iadd(rows, offset);
            let row = self.b.ins().load(I64, flags, at, 0);
            common = Some(match common {
                Some(so_far) => self.b.ins().band(so_far, row),
                None => row,
            });
        }
        common.expect("a prefilter looks at a byte")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::EntryShape;
    use random::Random;

    fn rule(mask: u64, value: u64) -> Rule {
        Rule { mask: vec![mask], value: vec![value & mask], entry: EntryShape { entry: std::ptr::null(), call: None } }
    }

    fn passes(prefilter: &Prefilter, key: u64) -> bool {
        let rows = prefilter.columns.iter().zip(&prefilter.rows);
        rows.fold(u64::MAX, |common, (c, rows)| common & rows[byte_of(key, c.byte) as usize]) != 0
    }

    #[test]
    fn what_meets_a_rule_passes_and_most_else_does_not() {
        let mut random = Random::new(3);
        for count in [1, 5, 64, 100, 1000, 5000] {
            // One network, hosts in it, and any ports.
            let masks = [0xff00_0000_0000_0000, 0xffff_ff00_0000_0000, 0xffff_ffff_0000_ffff];
            let rules: Vec<Rule> =
                (0..count).map(|i| rule(masks[i % 3], 0x0a00_0000_0000_0000 | random.next_u64() >> 8)).collect();
            let rules: Vec<&Rule> = rules.iter().collect();
            let prefilter = Prefilter::new(&rules).expect("one byte tells");
            let mut passed = 0;
            for i in 0..4000 {
                let any = random.next_u64();
                let near = rules[i % rules.len()];
                let key = if i % 2 == 0 { any } else { (any & !near.mask[0]) | near.value[0] };
                let meets = rules.iter().any(|r| key & r.mask[0] == r.value[0]);
                assert!(!meets || passes(&prefilter, key), "{count} rules, {key:x}");
                passed += u32::from(i % 2 == 0 && passes(&prefilter, key));
            }
            assert!(passed < 500, "{passed} of 2000 keys of any bytes pass with {count} rules");
        }
    }

    /// Of hosts and networks of 100.64.0.0/10, with a port each.
    #[test]
    fn keys_of_the_network_that_all_rules_are_about_are_kept_back_too() {
        let mut random = Random::new(5);
        for count in [5, 100] {
            let masks = [0xffff_ffff_0000_ffff, 0xffff_ff00_0000_0000, 0xffff_0000_0000_ffff];
            let network = |random: &mut Random| 0x6440_0000_0000_0000 | random.next_u64() >> 10;
            let rules: Vec<Rule> = (0..count).map(|i| rule(masks[i % 3], network(&mut random))).collect();
            let rules: Vec<&Rule> = rules.iter().collect();
            let prefilter = Prefilter::new(&rules).expect("few bytes tell");
            let passed = (0..2000).filter(|_| passes(&prefilter, network(&mut random))).count();
            assert!(passed < 500, "{passed} of 2000 keys of the network pass with {count} rules");
        }
    }

    #[test]
    fn rules_that_accept_most_keys_have_none() {
        assert!(Prefilter::new(&[&rule(0x80, 0), &rule(0x80, 0x80)]).is_none());
        assert!(Prefilter::new(&[&rule(0xff, 7), &rule(0, 0)]).is_none());
        assert!(Prefilter::new(&[]).is_none());
    }
}

//! Prefilters: aggregated bit vectors over a few bytes of the key, which reject most keys that match no rule
//! ([`abi::Prefilter`]).
//!
//! Most packets that an access list is applied to match none of its rules, and often one byte shows it: rules are about
//! certain networks, hosts or ports. Of the key bytes that rules test, the most selective are chosen, up to
//! [`BYTES_MAX`]. For each value of such a byte a word says which rules match it, one bit for each group of rules
//! (aggregated bit vectors: Baboescu, Varghese, "Scalable packet classification", SIGCOMM 2001). If the words of a key
//! have no bit in common the packet gets the default entry at once; otherwise the table is looked up.
//!
//! Selectivity is estimated with sample keys. In bytes in which all rules are alike the samples have the rules' values,
//! elsewhere random ones: a list about hosts of one network is mostly applied to packets of that network. If no few
//! bytes reject such keys, it is estimated with random keys. If packets are unlike the samples, a prefilter costs some
//! instructions and a well-predicted branch. One is made only if at most one sample in [`PASS_MAX`] would pass.
//!
//! **Changes of rules.** A prefilter stays valid: [`cover`] sets a rule's bits before lookups can find it. Changing a
//! rule's action changes no bit, and a deleted rule leaves its bits set. So a prefilter passes more and more keys,
//! until it [`needs_rebuild`] and code with a new one is compiled. A table for which no prefilter can be made (because
//! a rule matches every key, say) has none until code is compiled again.
//!
//! Tests: below; `tests/stress.rs`; `crates/datapath/tests/rules.rs` and `recompile.rs`, against the interpreter.

use crate::columns::{BYTE_VALUES, Column, accepted, byte_of, columns};
use abi::{Prefilter, PrefilterColumn, Rule, TableShape};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of the bytes that a prefilter tests.
const BYTES_MAX: usize = 3;
/// Limit of the rules. A prefilter is made under the table's lock while rules change, so writers wait for it.
pub const RULES_MAX: usize = 16_384;
/// Rules are alike in a byte if they have at most this many values there, and at most half as many values as there are
/// rules.
const ALIKE_MAX: usize = 4;
/// A prefilter passes at most one sample in this many. If it passes at most one in the square of that, another byte is
/// not worth testing.
const PASS_MAX: f64 = 4.0;
/// Another byte is tested only if at most this part of the samples that passed so far still passes.
const USEFUL_RATIO_MAX: f64 = 0.5;
/// Number of sample keys.
const SAMPLES: usize = 1024;

/// Fibonacci hashing: a word whose high bits depend on all bits of this one.
fn mixed(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// For each column, a row for each value of the byte: the groups of rules that match it.
fn rows(rules: &[&Rule], columns: &[Column]) -> Vec<[u64; BYTE_VALUES]> {
    let mut rows = vec![[0; BYTE_VALUES]; columns.len()];
    // Groups with a rule that matches all values.
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

/// A prefilter for these rules; `None` if no few bytes are selective enough.
pub fn of(rules: &[&Rule]) -> Option<Prefilter> {
    if rules.is_empty() || rules.len() > RULES_MAX || rules.iter().any(|rule| rule.accepts_all()) {
        return None;
    }
    // Sorted, so that similar rules share a bit.
    let mut sorted = rules.to_vec();
    sorted.sort_by_key(|rule| (&rule.mask, &rule.value));
    let columns = columns(rules);
    let rows = rows(&sorted, &columns);
    let all: Vec<(Column, [u64; BYTE_VALUES])> = columns.into_iter().zip(rows).collect();
    choose(all.clone(), &nearest(rules, &all)).or_else(|| choose(all, &|_, _| None))
}

/// A prefilter for a table's entries, if they are known; `None` if they are not, or if no few bytes are selective
/// enough.
pub fn of_known(shape: &TableShape) -> Option<Arc<Prefilter>> {
    let (rules, default) = shape.possible()?;
    of(&rules[..rules.len() - usize::from(default.is_none())]).map(Arc::new)
}

/// A prefilter with some of these columns and their rows. `nearest` returns a sample's byte in a column, or `None` for
/// a random one.
fn choose(mut left: Vec<(Column, [u64; BYTE_VALUES])>, nearest: &Nearest<'_>) -> Option<Prefilter> {
    let mut chosen = Vec::new();
    // For each sample, the AND of its rows in the chosen columns.
    let mut common = vec![u64::MAX; SAMPLES];
    let mut passing = 1.0;
    while chosen.len() < BYTES_MAX && !left.is_empty() {
        let value_of = |sample: usize, column: &Column| {
            nearest(sample, *column).unwrap_or_else(|| {
                let seed = (sample as u64 + 1) << 16 | (column.word as u64) << 8 | u64::from(column.byte);
                (mixed(seed) >> 56) as usize
            })
        };
        let pass = |(column, rows): &(Column, [u64; BYTE_VALUES])| {
            common.iter().enumerate().filter(|(s, bits)| **bits & rows[value_of(*s, column)] != 0).count()
        };
        let best = (0..left.len()).min_by_key(|i| pass(&left[*i]))?;
        let part = pass(&left[best]) as f64 / SAMPLES as f64;
        if part > USEFUL_RATIO_MAX * passing {
            break;
        }
        let (column, rows) = left.swap_remove(best);
        let samples: Vec<u8> = (0..SAMPLES).map(|s| value_of(s, &column) as u8).collect();
        common.iter_mut().zip(&samples).for_each(|(bits, value)| *bits &= rows[usize::from(*value)]);
        let rows = Box::new(rows.map(AtomicU64::new));
        chosen.push(PrefilterColumn { word: column.word, byte: column.byte, rows, samples });
        passing = part;
        if passing * PASS_MAX * PASS_MAX <= 1.0 {
            break;
        }
    }
    (passing * PASS_MAX <= 1.0).then_some(Prefilter { columns: chosen })
}

/// Makes a prefilter pass all keys that a rule matches; similar rules share a bit.
pub fn cover(prefilter: &Prefilter, mask: &[u64], value: &[u64]) {
    let of = |column: &PrefilterColumn| {
        let byte = |words: &[u64]| byte_of(words[column.word], column.byte);
        accepted(byte(mask), byte(value))
    };
    let row = |column: &PrefilterColumn, value: usize| column.rows[value].load(Ordering::Relaxed);
    // For each column, the groups whose bits are set for all byte values that the rule matches.
    let covered: Vec<u64> =
        prefilter.columns.iter().map(|c| of(c).fold(u64::MAX, |bits, value| bits & row(c, value))).collect();
    if covered.iter().fold(u64::MAX, |all, bits| all & bits) != 0 {
        return;
    }
    // The group that already covers the rule in the most columns; ties are broken by a hash of the rule.
    let turn = mixed(mask.iter().chain(value).fold(0, |hash, word| mixed(hash ^ word))) >> 58;
    let has = |bit: u64| covered.iter().filter(|bits| **bits >> bit & 1 != 0).count();
    let bit = (0..64).map(|i| (i + turn) % 64).max_by_key(|bit| has(*bit)).unwrap_or(0);
    for (column, _) in prefilter.columns.iter().zip(&covered).filter(|(_, bits)| **bits >> bit & 1 == 0) {
        of(column).for_each(|value| {
            column.rows[value].fetch_or(1 << bit, Ordering::Release);
        });
    }
}

/// Whether so many samples pass that such a prefilter would not be made.
pub fn needs_rebuild(prefilter: &Prefilter) -> bool {
    let row = |c: &PrefilterColumn, sample: usize| c.rows[usize::from(c.samples[sample])].load(Ordering::Relaxed);
    let passes = |sample: &usize| prefilter.columns.iter().fold(u64::MAX, |bits, c| bits & row(c, *sample)) != 0;
    (0..SAMPLES).filter(passes).count() as f64 * PASS_MAX > SAMPLES as f64
}

/// A sample's byte in a column; `None` for a random one.
type Nearest<'a> = dyn Fn(usize, Column) -> Option<usize> + 'a;

/// Sample bytes taken from one of the rules, in the columns in which rules are alike.
fn nearest<'a>(rules: &'a [&Rule], all: &[(Column, [u64; BYTE_VALUES])]) -> Box<Nearest<'a>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use abi::EntryShape;
    use random::Random;

    fn rule(mask: u64, value: u64) -> Rule {
        Rule { mask: vec![mask], value: vec![value & mask], entry: EntryShape { entry: std::ptr::null(), call: None } }
    }

    fn passes(prefilter: &Prefilter, key: u64) -> bool {
        let row = |c: &PrefilterColumn| c.rows[byte_of(key, c.byte) as usize].load(Ordering::Relaxed);
        prefilter.columns.iter().fold(u64::MAX, |common, c| common & row(c)) != 0
    }

    #[test]
    fn matching_keys_pass_the_prefilter_and_most_others_do_not() {
        let mut random = Random::new(3);
        for count in [1, 5, 64, 100, 1000, 5000] {
            // Rules about one network, about hosts in it, and about ports anywhere.
            let masks = [0xff00_0000_0000_0000, 0xffff_ff00_0000_0000, 0xffff_ffff_0000_ffff];
            let rules: Vec<Rule> =
                (0..count).map(|i| rule(masks[i % 3], 0x0a00_0000_0000_0000 | random.next_u64() >> 8)).collect();
            let rules: Vec<&Rule> = rules.iter().collect();
            let prefilter = of(&rules).expect("one byte tells");
            let mut passed = 0;
            for i in 0..4000 {
                let any = random.next_u64();
                let nearest = rules[i % rules.len()];
                let key = if i % 2 == 0 { any } else { (any & !nearest.mask[0]) | nearest.value[0] };
                let meets = rules.iter().any(|r| key & r.mask[0] == r.value[0]);
                assert!(!meets || passes(&prefilter, key), "{count} rules, {key:x}");
                passed += u32::from(i % 2 == 0 && passes(&prefilter, key));
            }
            assert!(passed < 500, "{passed} of 2000 keys of any bytes pass with {count} rules");
        }
    }

    /// Rules about hosts and networks of 100.64.0.0/10, some with a port.
    #[test]
    fn keys_of_the_network_of_all_rules_are_filtered_too() {
        let mut random = Random::new(5);
        for count in [5, 100] {
            let masks = [0xffff_ffff_0000_ffff, 0xffff_ff00_0000_0000, 0xffff_0000_0000_ffff];
            let network = |random: &mut Random| 0x6440_0000_0000_0000 | random.next_u64() >> 10;
            let rules: Vec<Rule> = (0..count).map(|i| rule(masks[i % 3], network(&mut random))).collect();
            let rules: Vec<&Rule> = rules.iter().collect();
            let prefilter = of(&rules).expect("few bytes tell");
            let passed = (0..2000).filter(|_| passes(&prefilter, network(&mut random))).count();
            assert!(passed < 500, "{passed} of 2000 keys of the network pass with {count} rules");
        }
    }

    #[test]
    fn rules_that_accept_most_keys_have_no_prefilter() {
        assert!(of(&[&rule(0x80, 0), &rule(0x80, 0x80)]).is_none());
        assert!(of(&[&rule(0xff, 7), &rule(0, 0)]).is_none());
        assert!(of(&[]).is_none());
    }

    #[test]
    fn a_later_rule_passes_at_once_and_a_repeated_rule_costs_nothing() {
        let mut random = Random::new(7);
        let masks = [0xff00_0000_0000_0000, 0xffff_ff00_0000_0000, 0xfff8_0000_0000_ffff, 0xffff];
        let mut draw = |i: usize| rule(masks[i % 3], 0x0a00_0000_0000_0000 | random.next_u64() >> 8);
        let rules: Vec<Rule> = (0..100).map(&mut draw).collect();
        let prefilter = of(&rules.iter().collect::<Vec<_>>()).expect("one byte tells");
        let bits = || -> u32 {
            let rows = prefilter.columns.iter().flat_map(|c| c.rows.iter());
            rows.map(|row| row.load(Ordering::Relaxed).count_ones()).sum()
        };
        let before = bits();
        rules.iter().for_each(|r| cover(&prefilter, &r.mask, &r.value));
        assert_eq!(bits(), before, "they are covered");
        assert!(!needs_rebuild(&prefilter));
        let mut random = Random::new(8);
        for i in 0..3000 {
            let new = rule(masks[i % 4], random.next_u64());
            cover(&prefilter, &new.mask, &new.value);
            for _ in 0..4 {
                let key = (random.next_u64() & !new.mask[0]) | new.value[0];
                assert!(passes(&prefilter, key), "rule {i}, {key:x}");
            }
        }
        assert!(needs_rebuild(&prefilter), "3,000 rules about anything");
    }
}

//! Classifiers against a linear scan: the same entry is found, and changing bits that were not consulted changes
//! nothing.

use super::classifier::Classifier;
use super::lanes::prefix;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use random::Random;

fn matches(of: &KeyMatch, value: &Bits) -> bool {
    match of {
        KeyMatch::Exact(wanted) | KeyMatch::Optional(Some(wanted)) => wanted == value,
        KeyMatch::Optional(None) => true,
        KeyMatch::Lpm { value: wanted, prefix_len } => value.and(&prefix(value.width(), *prefix_len)) == *wanted,
        KeyMatch::Ternary { value: wanted, mask } => value.and(mask) == *wanted,
        KeyMatch::Range { low, high } => low.ule(value) && value.ule(high),
    }
}

/// The entry of a key by a linear scan: the highest priority, or the longest prefix; among equals the first.
fn scan(entries: &[TableEntry], key: &[Bits]) -> Option<u32> {
    let weight = |entry: &TableEntry| {
        let lens = entry.key.iter().map(|of| if let KeyMatch::Lpm { prefix_len, .. } = of { *prefix_len } else { 0 });
        (entry.priority, lens.sum::<u32>())
    };
    let has_priorities = entries.iter().any(|entry| entry.priority != 0);
    let mut best: Option<(usize, &TableEntry)> = None;
    for (i, entry) in entries.iter().enumerate() {
        let is_better = best.is_none_or(|(_, best)| match has_priorities {
            true => entry.priority > best.priority,
            false => weight(entry) > weight(best),
        });
        if is_better && entry.key.iter().zip(key).all(|(of, value)| matches(of, value)) {
            best = Some((i, entry));
        }
    }
    best.map(|(i, _)| i as u32)
}

/// A random value, parts of which often equal those of other values.
fn value(random: &mut Random, width: u32) -> Bits {
    let bytes: Vec<u8> = (0..width.div_ceil(8))
        .map(|_| match random.below(3) {
            0 => 0,
            1 => random.below(4) as u8,
            _ => random.next_u64() as u8,
        })
        .collect();
    Bits::from_bytes_be(width, &bytes)
}

fn key_match(random: &mut Random, width: u32, kind: MatchKind, masks: &[Bits]) -> KeyMatch {
    let value = value(random, width);
    match kind {
        MatchKind::Exact => KeyMatch::Exact(value),
        MatchKind::Lpm => {
            let prefix_len = random.range(0, width);
            KeyMatch::Lpm { value: value.and(&prefix(width, prefix_len)), prefix_len }
        }
        MatchKind::Ternary => {
            let mask = random.pick(masks).clone();
            KeyMatch::Ternary { value: value.and(&mask), mask }
        }
        MatchKind::Optional => KeyMatch::Optional((!random.one_in(3)).then_some(value)),
        MatchKind::Range => {
            let other = self::value(random, width);
            let (low, high) = if value.ule(&other) { (value, other) } else { (other, value) };
            KeyMatch::Range { low, high }
        }
    }
}

/// A value that mostly matches an entry's field.
fn inside(random: &mut Random, of: &KeyMatch, width: u32) -> Bits {
    let noise = value(random, width);
    match of {
        KeyMatch::Exact(value) | KeyMatch::Optional(Some(value)) => value.clone(),
        KeyMatch::Optional(None) => noise,
        KeyMatch::Lpm { value, prefix_len } => value.or(&noise.and(&prefix(width, *prefix_len).not())),
        KeyMatch::Ternary { value, mask } => value.or(&noise.and(&mask.not())),
        KeyMatch::Range { low, high } => random.pick(&[low.clone(), high.clone(), noise]).clone(),
    }
}

fn rounds(of_ci: u64) -> u64 {
    std::env::var("SLUICE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(of_ci)
}

#[test]
fn a_lookup_is_a_scan_and_bits_that_it_leaves_out_change_nothing() {
    let mut consulted_bits = [0u64; 2];
    for round in 0..rounds(300) {
        let mut random = Random::stream(1, round);
        let kinds = [MatchKind::Exact, MatchKind::Ternary, MatchKind::Optional, MatchKind::Range];
        let mut keys: Vec<(u32, MatchKind)> = (0..random.range(1, 4))
            .map(|_| (*random.pick(&[1, 8, 9, 16, 32, 48, 128, 200]), *random.pick(&kinds)))
            .collect();
        if random.one_in(2) {
            let at = random.index(keys.len());
            keys[at].1 = MatchKind::Lpm;
            if random.one_in(2) {
                keys.iter_mut()
                    .filter(|(_, kind)| *kind != MatchKind::Lpm)
                    .for_each(|(_, kind)| *kind = MatchKind::Exact);
            }
        }
        let has_priorities = keys.iter().any(|(_, kind)| kind.needs_priority());
        let masks: Vec<Vec<Bits>> = keys
            .iter()
            .map(|(width, _)| {
                let only_prefixes = random.one_in(2);
                let mask = |random: &mut Random| match only_prefixes {
                    true => prefix(*width, random.range(0, *width)),
                    false => value(random, *width),
                };
                (0..4).map(|_| mask(&mut random)).collect()
            })
            .collect();
        let entries: Vec<TableEntry> = (0..random.below(60))
            .map(|_| TableEntry {
                key: keys
                    .iter()
                    .zip(&masks)
                    .map(|((w, kind), masks)| key_match(&mut random, *w, *kind, masks))
                    .collect(),
                priority: if has_priorities { random.range(1, 10) as i32 } else { 0 },
                action: EntryAction::Call(ActionCall { action: 0, args: Vec::new() }),
                idle_timeout_ns: 0,
            })
            .collect();
        let classifier = Classifier::new(&keys, &entries);
        for _ in 0..60 {
            let like = (!entries.is_empty()).then(|| random.pick(&entries).clone());
            let key: Vec<Bits> = keys
                .iter()
                .enumerate()
                .map(|(i, (width, _))| match &like {
                    Some(entry) if !random.one_in(4) => inside(&mut random, &entry.key[i], *width),
                    _ => value(&mut random, *width),
                })
                .collect();
            let found = classifier.lookup(&key);
            assert_eq!(found.entry, scan(&entries, &key), "{keys:?} {entries:?} {key:?}");
            for consulted in &found.consulted {
                consulted_bits[0] += consulted.to_biguint().count_ones();
                consulted_bits[1] += u64::from(consulted.width());
            }
            for _ in 0..8 {
                let flip = |(value, consulted): (&Bits, &Bits)| {
                    let noise = self::value(&mut random, value.width());
                    let noise = if random.one_in(2) { noise } else { noise.not() };
                    value.and(consulted).or(&noise.and(&consulted.not()))
                };
                let other: Vec<Bits> = key.iter().zip(&found.consulted).map(flip).collect();
                assert_eq!(classifier.lookup(&other).entry, found.entry, "{keys:?} {entries:?} {key:?} {other:?}");
            }
        }
    }
    // Consulting all bits would be correct, but too many.
    assert!(consulted_bits[0] * 10 < consulted_bits[1] * 8, "{consulted_bits:?}");
}

#[test]
fn a_large_table_of_prefixes_is_searched_by_few_bits() {
    let mut random = Random::new(7);
    let entries: Vec<TableEntry> = (0..100_000)
        .map(|_| {
            let prefix_len = *random.pick(&[8, 16, 24, 24, 24, 32]);
            let value = Bits::new(32, u128::from(random.next_u64() as u32)).and(&prefix(32, prefix_len));
            TableEntry {
                key: vec![KeyMatch::Lpm { value, prefix_len }],
                priority: 0,
                action: EntryAction::Call(ActionCall { action: 0, args: Vec::new() }),
                idle_timeout_ns: 0,
            }
        })
        .collect();
    let classifier = Classifier::new(&[(32, MatchKind::Lpm)], &entries);
    assert!(classifier.memory_bytes() < 64 << 20, "{}", classifier.memory_bytes());
    let mut bits = 0;
    for _ in 0..1000 {
        let key = Bits::new(32, u128::from(random.next_u64() as u32));
        bits += classifier.lookup(&[key]).consulted[0].to_biguint().count_ones();
    }
    assert!(bits < 21 * 1000, "{bits}");
}

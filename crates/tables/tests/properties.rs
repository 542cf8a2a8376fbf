//! Every engine compared with a linear scan, after each of many random changes.
#![cfg(not(loom))]

mod common;

use abi::StateError;
use base::Bits;
use base::entry::KeyMatch;
use base::entry::MatchKind::{self, Exact, Lpm, Optional, Range, Ternary};
use common::{Draw, Linear, Random, call, call_of, entry, key_bytes};
use tables::{Domain, Runs, SpecError, Table, TableSpec};

fn spec(keys: &[(u32, MatchKind)], size: u64) -> TableSpec {
    let actions = vec![vec![64]];
    TableSpec { keys: keys.to_vec(), size, actions, members: false, selector: false, idle_timeout: false, direct: true }
}

/// Whether entries store indices; without, a table may let several keys share an entry.
const EACH: [bool; 2] = [true, false];

fn table(spec: TableSpec) -> Table {
    Table::new(spec, Runs::Call(&call(0)), Domain::new(1)).expect("a table of this shape")
}

/// Random changes of a table; after each, random lookups, and now and then a comparison of all entries.
fn check(spec: TableSpec, changes: u64, seed: u64) {
    let what = format!("{spec:?}, seed {seed}");
    let (keys, size) = (&spec.keys.clone()[..], spec.size);
    let mut random = Random::new(seed);
    let mut fast = table(spec);
    let layout = fast.binding().key;
    let mut slow = Linear::default();
    let prioritised = keys.iter().any(|(_, kind)| kind.needs_priority());
    for step in 0..changes {
        let known = (random.below(3) > 0 && !slow.entries.is_empty())
            .then(|| slow.entries[random.below(slow.entries.len() as u64) as usize].clone());
        let (key, priority) = known.map(|e| (e.key, e.priority)).unwrap_or_else(|| {
            let key = keys.iter().map(|(width, kind)| random.key(*width, *kind)).collect();
            (key, if prioritised { 1 + random.below(4) as i32 } else { 0 })
        });
        // Few different actions, and now and then a new one.
        let new = entry(key, priority, if random.below(4) == 0 { step + 10 } else { random.below(4) });
        let at = slow.position(&new.key, priority);
        match random.below(5) {
            0 => {
                let result = fast.delete(&new.key, priority);
                assert_eq!(result, at.map(|at| slow.entries.remove(at)).ok_or(StateError::NotFound), "{what}");
            }
            1 => {
                let result = fast.modify(&new, Runs::Call(call_of(&new)));
                assert_eq!(result.map(|_| ()), at.map(|_| ()).ok_or(StateError::NotFound), "{what}");
                if let Some(at) = at {
                    slow.entries[at] = new;
                }
            }
            _ => {
                let result = fast.insert(&new, Runs::Call(call_of(&new)), 0);
                let full = slow.entries.len() as u64 >= size;
                match (at, full) {
                    (Some(_), _) => assert_eq!(result, Err(StateError::Exists), "{what}"),
                    (None, true) => assert_eq!(result, Err(StateError::Full(size)), "{what}"),
                    (None, false) => {
                        assert!(result.is_ok(), "{what}: {result:?}");
                        slow.entries.push(new);
                    }
                }
            }
        }
        assert_eq!(fast.len(), slow.entries.len() as u64, "{what}");
        let (mut keys_of_batch, mut found_one_by_one) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let inline_entry =
                (!slow.entries.is_empty()).then(|| &slow.entries[random.below(slow.entries.len() as u64) as usize]);
            let value = |(i, (width, _)): (usize, &(u32, MatchKind))| match inline_entry {
                Some(entry) => random.inline_entry(&entry.key[i], *width),
                None => random.bits(*width),
            };
            let values: Vec<Bits> = keys.iter().enumerate().map(value).collect();
            let key = key_bytes(&layout, &values);
            let found = fast.lookup(&key);
            found_one_by_one.push(found.clone());
            keys_of_batch.extend(key);
            let expected = slow.lookup(&values).map(|e| (e.clone(), Some(call_of(e).clone())));
            assert_eq!(found, expected, "{what}, step {step}, {values:x?}");
        }
        assert_eq!(fast.lookup_batch(&keys_of_batch), found_one_by_one, "{what}, step {step}");
        if step % 64 == 0 {
            let mut entries: Vec<_> = fast.entries(0).into_iter().map(|read| read.entry).collect();
            let mut expected = slow.entries.clone();
            if keys.iter().all(|(_, kind)| *kind == Exact) {
                // The order is not specified.
                entries.sort_by_key(|e| format!("{e:?}"));
                expected.sort_by_key(|e| format!("{e:?}"));
            }
            assert_eq!(entries, expected, "{what}, step {step}");
            for expected in &slow.entries {
                let read = fast.entry(&expected.key, expected.priority, 0).map(|read| read.entry);
                assert_eq!(read.as_ref(), Ok(expected), "{what}, step {step}");
            }
        }
    }
}

/// Small tables (full, with many deletions) and larger ones (that grow).
fn check_all(keys: &[(u32, MatchKind)]) {
    for (seed, direct) in (0..4).flat_map(|seed| EACH.map(|direct| (seed, direct))) {
        let spec = |size| TableSpec { direct, ..spec(keys, size) };
        check(spec(12), 400, seed);
        check(spec(20), 600, 50 + seed);
        check(spec(2000), 1000, 100 + seed);
    }
}

#[test]
fn direct() {
    check_all(&[(9, Exact)]);
    check_all(&[(1, Exact)]);
    check_all(&[(16, Exact)]);
    check_all(&[(8, Exact), (3, Exact)]);
    // Direct index in the table of 2,000 entries, buckets otherwise.
    check_all(&[(9, Exact), (1, Exact), (7, Exact)]);
}

#[test]
fn exact_in_a_bucket() {
    check_all(&[(48, Exact)]);
    check_all(&[(48, Exact), (12, Exact)]);
    check_all(&[(8, Exact), (20, Exact)]);
    check_all(&[(128, Exact)]);
}

/// Entries out of line; those with equal contents are shared.
#[test]
fn exact_with_out_of_line_entries() {
    for (keys, seed) in [&[(48, Exact)][..], &[(24, Exact), (48, Exact)], &[(128, Exact)]].into_iter().zip(0..) {
        for direct in EACH {
            let spec = |size| TableSpec { direct, actions: vec![vec![64], vec![500]], ..spec(keys, size) };
            check(spec(20), 1000, seed);
            check(spec(2000), 3000, seed);
        }
    }
}

#[test]
fn exact_beyond_a_bucket() {
    check_all(&[(128, Exact), (128, Exact), (16, Exact)]);
    check_all(&[(300, Exact)]);
}

#[test]
fn prefixes_of_every_word() {
    for width in [1, 7, 8, 9, 16, 17, 32, 33, 48, 64, 65, 128] {
        check_all(&[(width, Lpm)]);
    }
}

#[test]
fn prefixes_beside_exact_fields() {
    check_all(&[(12, Exact), (32, Lpm)]);
    check_all(&[(128, Lpm), (64, Exact), (5, Exact)]);
    check_all(&[(16, Exact), (20, Lpm), (8, Exact)]);
}

/// Prefixes as in routing tables: many in the same nodes, and nested.
#[test]
fn prefixes_shaped_like_the_internets() {
    for seed in 0..4 {
        let direct = seed % 2 == 0;
        let (mut random, mut slow) = (Random::new(seed), Linear::default());
        let mut fast = table(TableSpec { direct, ..spec(&[(32, Lpm)], 2000) });
        let prefixes = tables::workload::ipv4_prefixes(800, seed);
        for step in 0..2500u64 {
            let (value, prefix_len) = prefixes[random.below(800) as usize];
            let new = entry(vec![KeyMatch::Lpm { value: Bits::new(32, value.into()), prefix_len }], 0, step % 5);
            // At first more insertions, later more deletions.
            match slow.position(&new.key, 0) {
                None if random.below(2500) >= step => {
                    fast.insert(&new, Runs::Call(call_of(&new)), 0).expect("there is room");
                    slow.entries.push(new);
                }
                Some(at) if random.below(2500) < step => {
                    assert_eq!(fast.delete(&new.key, 0), Ok(slow.entries.remove(at)));
                }
                Some(at) => {
                    fast.modify(&new, Runs::Call(call_of(&new))).expect("it is there");
                    slow.entries[at] = new;
                }
                None => {}
            }
            let values: Vec<Bits> = (0..8)
                .map(|_| {
                    let (value, len) = prefixes[random.below(800) as usize];
                    let rest = u32::MAX.checked_shr(len).unwrap_or(0);
                    Bits::new(32, u128::from(value | random.next_u64() as u32 & rest))
                })
                .collect();
            let layout = fast.binding().key;
            let keys: Vec<u8> = values.iter().flat_map(|v| key_bytes(&layout, std::slice::from_ref(v))).collect();
            for (value, found) in values.iter().zip(fast.lookup_batch(&keys)) {
                let expected = slow.lookup(std::slice::from_ref(value)).map(|e| (e.clone(), Some(call_of(e).clone())));
                assert_eq!(found, expected, "seed {seed}, step {step}, {value:x?}");
            }
        }
    }
}

/// More different entries than DIR-16-8-8 has next-hop indices; the trie takes over.
#[test]
fn prefixes_with_too_many_next_hops_move_to_the_trie() {
    let mut fast = table(TableSpec { direct: false, ..spec(&[(32, Lpm)], 1 << 20) });
    let most = tables::lpm::dir1688::next_hops::NEXT_HOPS_MAX as u64 - 1;
    let of = |value: u64, prefix_len: u32, action: u64| {
        entry(vec![KeyMatch::Lpm { value: Bits::new(32, value.into()), prefix_len }], 0, action)
    };
    let put = |fast: &mut Table, new: &base::entry::TableEntry| {
        fast.insert(new, Runs::Call(call_of(new)), 0).expect("there is room");
    };
    let look = |fast: &Table, value: u64| {
        let found = fast.lookup(&key_bytes(&fast.binding().key, &[Bits::new(32, value.into())]));
        found.and_then(|(_, call)| call)
    };
    // Prefixes of many lengths, with nine different actions.
    let mut others = vec![of(0, 0, 1), of(0x8000_0000, 1, 2), of(0x7000_0000, 9, 3), of(0x7001_0000, 16, 4)];
    others.extend([of(0x7001_0200, 23, 5), of(0x7001_0280, 25, 6), of(0x7001_0290, 28, 7)]);
    others.extend((0..40).map(|i| of(0x7001_0300 + 3 * i, 32, 8 + i % 2)));
    let mut slow = Linear::default();
    for new in others {
        put(&mut fast, &new);
        slow.entries.push(new);
    }
    // A /24 in each of many /16, from both ends to the middle.
    let site = |i: u64| (if i.is_multiple_of(2) { i / 2 } else { 0xffff - i / 2 }) << 16 | 0x0500;
    let check = |fast: &Table, count: u64, gone: u64| {
        for i in (0..most + 10).step_by(97).chain(count.saturating_sub(3)..count + 3) {
            for low in [0x0500u64, 0x05ff, 0x0600] {
                let value = site(i) & 0xffff_0000 | low;
                let covered = (gone..count).contains(&i) && low < 0x0600;
                let other = if value >> 31 == 1 { 2 } else { 1 };
                let expected = if covered { 10 + i } else { other };
                assert_eq!(look(fast, value), Some(call(expected)), "{count} prefixes, {gone} of them gone, {value:x}");
            }
        }
        for value in (0x7001_01fe..0x7001_0390).chain([0x7000_0000, 0x707f_ffff, 0x7080_0000]) {
            let expected = slow.lookup(&[Bits::new(32, value.into())]).map(|e| call_of(e).clone());
            assert_eq!(look(fast, value), expected, "{count} prefixes, {value:x}");
        }
    };
    // Nine actions are in use; that of the empty prefix needs no next-hop index.
    let room = most - 8;
    for i in 0..room + 5 {
        put(&mut fast, &of(site(i), 24, 10 + i));
        if i % 5000 == 4999 || (room - 2..room + 3).contains(&i) {
            check(&fast, i + 1, 0);
        }
        let spread = matches!(fast.binding().engine, abi::EngineKind::Prefixes);
        assert_eq!(spread, i < room, "after {} prefixes", i + 1);
    }
    for i in 0..1000 {
        fast.delete(&of(site(i), 24, 0).key, 0).expect("it is there");
    }
    check(&fast, room + 5, 1000);
}

/// Next-hop indices are reused.
#[test]
fn next_hops_may_change_without_limit() {
    let mut fast = table(TableSpec { direct: false, ..spec(&[(32, Lpm)], 1 << 20) });
    let of = |action: u64| entry(vec![KeyMatch::Lpm { value: Bits::new(32, 0x0a00_0000), prefix_len: 8 }], 0, action);
    fast.insert(&of(0), Runs::Call(&call(0)), 0).expect("there is room");
    for i in 1..3 * tables::lpm::dir1688::next_hops::NEXT_HOPS_MAX as u64 {
        fast.modify(&of(i), Runs::Call(&call(i))).expect("it is there");
        let found = fast.lookup(&key_bytes(&fast.binding().key, &[Bits::new(32, 0x0a01_0203)]));
        assert_eq!(found.and_then(|(_, call)| call), Some(call(i)));
    }
    assert!(matches!(fast.binding().engine, abi::EngineKind::Prefixes));
}

#[test]
fn prefixes_that_the_trie_does_not_take() {
    check_all(&[(200, Lpm)]);
    check_all(&[(128, Exact), (32, Exact), (32, Lpm)]);
}

#[test]
fn ternary() {
    check_all(&[(32, Ternary)]);
    check_all(&[(9, Ternary), (128, Ternary), (3, Exact)]);
    check_all(&[(200, Ternary)]);
}

/// Rules that all have different masks, then few masks, then many again: the table switches to bit vectors and back.
#[test]
fn tables_of_many_masks_become_tables_of_few_and_many_again() {
    for (keys, seed) in
        [&[(32, Ternary), (32, Ternary)][..], &[(32, Ternary), (16, Range), (9, Optional)]].into_iter().zip(0..)
    {
        let (mut random, mut slow) = (Random::new(seed), Linear::default());
        let mut fast = table(spec(keys, 4000));
        let layout = fast.binding().key;
        // For each phase: the number of different masks, and the number of rules at its end.
        let phases = [(700, 700), (3, 1500), (3, 700), (3, 40), (300, 600), (300, 0)];
        for (phase, (masks, count)) in phases.into_iter().enumerate() {
            let masks: Vec<Bits> = (0..masks).map(|_| random.bits(32)).collect();
            let more = count > slow.entries.len();
            while slow.entries.len() != count {
                // In the third phase the oldest rules are deleted, which have many masks.
                let at = if phase == 2 { 0 } else { random.below(slow.entries.len().max(1) as u64) as usize };
                if more {
                    let mut key: Vec<KeyMatch> = keys.iter().map(|(width, kind)| random.key(*width, *kind)).collect();
                    let mask = masks[random.below(masks.len() as u64) as usize].clone();
                    key[0] = KeyMatch::Ternary { value: random.bits(32).and(&mask), mask };
                    if keys.len() == 2 {
                        key[1] = KeyMatch::Ternary { value: Bits::zero(32), mask: Bits::zero(32) };
                    }
                    let new = entry(key, 1 + random.below(100) as i32, random.below(50));
                    if slow.position(&new.key, new.priority).is_none() {
                        fast.insert(&new, Runs::Call(call_of(&new)), 0).expect("there is room");
                        slow.entries.push(new);
                    }
                } else {
                    let old = slow.entries.remove(at);
                    fast.delete(&old.key, old.priority).expect("it is there");
                }
                if let Some(changed) = slow.entries.get_mut(at / 2) {
                    *changed = entry(changed.key.clone(), changed.priority, random.below(50));
                    fast.modify(changed, Runs::Call(call_of(changed))).expect("it is there");
                }
                let (mut batch, mut expected) = (Vec::new(), Vec::new());
                for i in 0..4 {
                    let inline_entry = slow.entries.get(at.wrapping_sub(i));
                    let value = |(i, (width, _)): (usize, &(u32, MatchKind))| match inline_entry {
                        Some(entry) => random.inline_entry(&entry.key[i], *width),
                        None => random.bits(*width),
                    };
                    let values: Vec<Bits> = keys.iter().enumerate().map(value).collect();
                    let key = key_bytes(&layout, &values);
                    expected.push(slow.lookup(&values).map(|e| (e.clone(), Some(call_of(e).clone()))));
                    assert_eq!(fast.lookup(&key), expected[i], "phase {phase} of {keys:?}, {values:x?}");
                    batch.extend(key);
                }
                assert_eq!(fast.lookup_batch(&batch), expected, "phase {phase} of {keys:?}");
            }
        }
    }
}

#[test]
fn ranges() {
    check_all(&[(16, Range)]);
    check_all(&[(16, Range), (16, Range), (8, Exact)]);
    check_all(&[(64, Range)]);
    check_all(&[(150, Range), (4, Ternary)]);
}

#[test]
fn optional_and_mixes() {
    check_all(&[(16, Optional)]);
    check_all(&[(32, Lpm), (16, Range), (8, Optional), (48, Ternary), (4, Exact)]);
    check_all(&[(32, Lpm), (32, Lpm), (8, Optional)]);
}

#[test]
fn without_keys_there_are_no_entries() {
    let mut table = table(spec(&[], 10));
    assert_eq!(table.lookup(&[]), None);
    let new = entry(vec![], 0, 1);
    assert!(matches!(table.insert(&new, Runs::Call(call_of(&new)), 0), Err(StateError::Unsupported(_))));
}

#[test]
fn several_prefixes_without_priorities_are_refused() {
    let result = Table::new(spec(&[(32, Lpm), (32, Lpm)], 10), Runs::Call(&call(0)), Domain::new(1));
    assert_eq!(result.err(), Some(SpecError::SeveralLpmKeys));
}

#[test]
fn deleted_entries_make_room_while_a_worker_holds_them() {
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a slot is free");
    worker.online();
    let mut table = Table::new(spec(&[(32, Exact)], 1), Runs::Call(&call(0)), domain.clone()).expect("a table");
    let mut random = Random::new(1);
    let mut indices = Vec::new();
    for _ in 0..40 {
        let new = entry(vec![random.key(32, Exact)], 0, 1);
        indices.push(table.insert(&new, Runs::Call(call_of(&new)), 0).expect("there is room"));
        table.delete(&new.key, 0).expect("it is there");
    }
    assert_eq!(table.waiting(), 40);
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), 40, "an index is not used again before the worker was quiescent");
    worker.quiescent();
    table.collect();
    assert_eq!(table.waiting(), 0);
}

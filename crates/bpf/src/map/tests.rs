//! Maps compared with simple models, and used by several threads.

use super::*;
use random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

fn map(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> Map {
    let spec =
        MapSpec { name: "m".to_string(), kind, key_size, value_size, max_entries, read_only: false, initial: None };
    Map::new(spec).expect("made")
}

#[test]
fn hash_maps_against_a_model() {
    let mut random = Random::new(1);
    for (key_size, value_size) in [(1, 1), (4, 8), (6, 3), (8, 16), (13, 40)] {
        let map = map(MapKind::Hash, key_size, value_size, 20);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..4000 {
            let mut key = vec![0; key_size as usize];
            key[random.index(key_size as usize)] = random.below(5) as u8;
            let value: Vec<u8> = (0..value_size).map(|_| random.next_u64() as u8).collect();
            match random.below(4) {
                0 => assert_eq!(map.delete(&key), Ok(model.remove(&key).is_some())),
                n => {
                    let update = [Update::Any, Update::New, Update::Existing][n as usize - 1];
                    let expected = match (model.contains_key(&key), update) {
                        (true, Update::New) => Err(Refused::Exists(true)),
                        (false, Update::Existing) => Err(Refused::Exists(false)),
                        (false, _) if model.len() == 20 => Err(Refused::Full),
                        _ => {
                            model.insert(key.clone(), value.clone());
                            Ok(())
                        }
                    };
                    assert_eq!(map.try_update(&key, &value, update), expected);
                }
            }
            assert_eq!(map.lookup(&key).expect("size"), model.get(&key).cloned());
            assert_eq!(map.len() as usize, model.len());
        }
        let mut dump = map.dump();
        dump.sort();
        assert_eq!(dump, model.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn prefixes_against_a_model() {
    let mut random = Random::new(2);
    let map = map(MapKind::LpmTrie, 8, 4, 200);
    let mut model: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let shorten = |address: u32, length: u32| if length == 0 { 0 } else { address >> (32 - length) << (32 - length) };
    let key = |length: u32, address: u32| [length.to_ne_bytes(), address.to_be_bytes()].concat();
    for round in 0..5000u32 {
        let (length, address) = (random.range(0, 32), (random.next_u64() as u32) & 0xc0e0_0f03);
        let prefix = (length, shorten(address, length));
        match random.below(3) {
            0 => assert_eq!(map.delete(&key(length, address)), Ok(model.remove(&prefix).is_some())),
            _ if model.len() < 200 || model.contains_key(&prefix) => {
                map.update(&key(length, address), &round.to_ne_bytes(), Update::Any).expect("room");
                model.insert(prefix, round);
            }
            _ => {}
        }
        let (longest, address) = (random.range(0, 32), random.next_u64() as u32 & 0xc0e0_0f03);
        let expected = (0..=longest).rev().find_map(|length| model.get(&(length, shorten(address, length))));
        let found = map.lookup(&key(longest, address)).expect("size");
        assert_eq!(found, expected.map(|value| value.to_ne_bytes().to_vec()));
    }
    let error = map.update(&key(33, 0), &[0; 4], Update::Any).expect_err("too long").to_string();
    assert_eq!(error, "map `m`: the prefix length is 33, at most 32 are possible");
}

#[test]
fn arrays() {
    let map = map(MapKind::Array, 4, 5, 3);
    assert_eq!(map.lookup(&2u32.to_ne_bytes()), Ok(Some(vec![0; 5])));
    assert_eq!(map.lookup(&3u32.to_ne_bytes()), Ok(None));
    map.update(&1u32.to_ne_bytes(), b"hello", Update::Existing).expect("written");
    assert_eq!(map.dump()[1], (1u32.to_ne_bytes().to_vec(), b"hello".to_vec()));
    let words = |result: Result<(), MapError>| result.expect_err("refused").to_string();
    assert_eq!(words(map.update(&3u32.to_ne_bytes(), b"hello", Update::Any)), "map `m`: the number must be below 3");
    assert_eq!(words(map.update(&[0; 4], b"hello", Update::New)), "map `m`: the key exists already");
    assert_eq!(
        words(map.update(&[0; 4], b"long value", Update::Any)),
        "map `m`: the value has 10 bytes, the map's have 5"
    );
    assert_eq!(words(map.delete(&[0; 4]).map(drop)), "map `m`: entries of an array cannot be deleted; write zeros");
}

#[test]
fn entries_that_are_used_survive() {
    let map = map(MapKind::LruHash, 4, 4, 100);
    let used = 0..20u32;
    for i in 0..1000u32 {
        map.update(&i.to_ne_bytes(), &i.to_ne_bytes(), Update::Any).expect("always room");
        for key in used.clone().filter(|key| *key <= i) {
            assert!(map.lookup(&key.to_ne_bytes()).expect("size").is_some(), "{key} was evicted at {i}");
        }
        assert!(map.len() <= 100);
    }
    assert_eq!(map.len(), 100);
}

#[test]
fn a_deleted_value_stays_as_it_was_for_a_while() {
    let map = map(MapKind::Hash, 4, 8, 4);
    map.update(&[1; 4], &[7; 8], Update::Any).expect("room");
    let slot = map.find(&[1; 4]).expect("there");
    map.delete(&[1; 4]).expect("size");
    for i in 0..4u32 {
        map.update(&i.to_ne_bytes(), &[9; 8], Update::Any).expect("room");
    }
    assert_eq!(map.value(slot), [7; 8]);
}

#[test]
fn readers_and_writers() {
    // A value is derived from its key, so that a reader notices another entry's value.
    for kind in [MapKind::Hash, MapKind::LruHash] {
        let map = map(kind, 8, 32, 8);
        let value = |key: u64| [key, !key, key ^ 5, key.rotate_left(9)].map(u64::to_ne_bytes).concat();
        let permanent = BTreeSet::from([1u64, 2]);
        for key in &permanent {
            map.update(&key.to_ne_bytes(), &value(*key), Update::Any).expect("room");
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let (map, stop, value) = (&map, &stop, &value);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    while !stop.load(Relaxed) {
                        let key = 100 + random.below(12);
                        match random.one_in(2) {
                            true => _ = map.update(&key.to_ne_bytes(), &value(key), Update::Any),
                            false => _ = map.delete(&key.to_ne_bytes()),
                        }
                    }
                });
            }
            let mut random = Random::new(9);
            for _ in 0..200_000 {
                let key = 1 + random.below(2);
                if kind == MapKind::Hash {
                    assert!(map.find(&key.to_ne_bytes()).is_some(), "an entry that nobody touches was missed");
                }
                let key = 100 + random.below(12);
                if let Some(slot) = map.find(&key.to_ne_bytes()) {
                    // The slot may have been reused since: its value is some entry's, or partly written.
                    assert_eq!(map.value(slot).len(), 32);
                }
            }
            stop.store(true, Relaxed);
        });
        for (key, found) in map.dump() {
            let key = u64::from_ne_bytes(key.try_into().expect("8"));
            assert_eq!(found, value(key));
        }
    }
}

/// The finding: once all entries of a large map were marked as used, one packet's update cleared all marks.
#[test]
fn an_eviction_passes_a_bounded_number_of_entries() {
    const ENTRIES: u32 = 10_000;
    let map = map(MapKind::LruHash, 4, 4, ENTRIES);
    let Index::Hash(hash) = &map.index else { panic!("it is one") };
    for key in 0..ENTRIES {
        map.try_update(&key.to_ne_bytes(), &[0; 4], Update::Any).expect("there is room");
        assert!(map.find(&key.to_ne_bytes()).is_some());
    }
    for key in ENTRIES..ENTRIES + 500 {
        let before = hash.marked();
        map.try_update(&key.to_ne_bytes(), &[0; 4], Update::Any).expect("another one goes");
        assert!(before - hash.marked() <= 65, "{before} marks, and {}", hash.marked());
        assert_eq!(map.len(), ENTRIES);
    }
}

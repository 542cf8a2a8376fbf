//! Readers on their own threads while the writer changes tables as fast as it can.
//!
//! Entries hold `[tag, tag * K + generation, generation]`, with a tag that follows from the key, so a reader recognises
//! a torn, freed or wrong entry. Readers keep what they found until the end of their batch, and check it again then.
//! One of them looks keys up in batches. Each test runs for a fixed short time; `STRESS_MS` makes it longer.
#![cfg(not(loom))]
#![allow(unsafe_code)]

mod common;

use abi::state::{Phase, StateError};
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EntryHeader, TableHandle};
use base::Bits;
use base::entry::MatchKind::{self, Exact, Lpm, Range, Ternary};
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use common::{Random, key_bytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tables::reclaim::{ACKNOWLEDGE_MAX, BACKLOG_MAX};
use tables::selector::{Group, select};
use tables::{Domain, Limbo, Runs, Table, TableSpec, Wanted};

const K: u32 = 0x9e37_79b9;
const READERS: usize = 2;
/// Lookups between two quiescent points.
const BATCH: usize = 64;

fn duration() -> Duration {
    let ms = std::env::var("STRESS_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(300);
    Duration::from_millis(ms)
}

fn call(tag: u64, generation: u64) -> ActionCall {
    let (tag, generation) = (tag as u32, generation as u32);
    let args = [tag, tag.wrapping_mul(K).wrapping_add(generation), generation];
    ActionCall { action: 0, args: args.map(|a| Bits::new(32, a.into())).to_vec() }
}

fn entry(key: Vec<KeyMatch>, priority: i32, tag: u64, generation: u64) -> TableEntry {
    TableEntry { key, priority, action: EntryAction::Call(call(tag, generation)), idle_timeout_ns: 0 }
}

fn call_of(entry: &TableEntry) -> &ActionCall {
    common::call_of(entry)
}

/// `large` are the widths of the parameters of an action that no entry runs: they decide whether entries fit into
/// buckets.
fn table(keys: &[(u32, MatchKind)], large: &[u32], domain: &Arc<Domain>) -> Table {
    Table::new(spec(keys, large), Runs::Call(&call(0, 0)), Arc::clone(domain)).expect("a table of this shape")
}

fn spec(keys: &[(u32, MatchKind)], large: &[u32]) -> TableSpec {
    TableSpec {
        keys: keys.to_vec(),
        size: 1 << 20,
        actions: vec![vec![32; 3], large.to_vec()],
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    }
}

/// The tag of an entry, after a check that the entry is intact.
///
/// # Safety
/// The reader has not been quiescent since it found the entry.
unsafe fn tag(found: *const EntryHeader) -> u64 {
    // SAFETY: the entry has three words of parameters after the byte of its action.
    let [tag, check, generation] = unsafe { found.byte_add(1).cast::<[u32; 3]>().read_unaligned() };
    assert_eq!(check, tag.wrapping_mul(K).wrapping_add(generation), "a torn or freed entry");
    tag.into()
}

#[derive(Clone, Copy)]
struct Probe(*const TableHandle, LookupFn, LookupBatchFn);

// SAFETY: the table outlives the readers.
unsafe impl Send for Probe {}

/// Calls `write` repeatedly while readers draw keys with `key`, and check lookups with `check`, which gets the key's
/// values and the tag found, or `None` on a miss.
fn stress(
    (keys, large): (&[(u32, MatchKind)], &[u32]),
    key: impl Fn(&mut Random) -> Vec<Bits> + Copy + Send,
    check: impl Fn(&[Bits], Option<u64>) + Copy + Send,
    prepare: impl FnOnce(&mut Table),
    mut write: impl FnMut(&mut Table, &mut Random, u64),
) {
    let domain = Domain::new(READERS);
    let mut table = table(keys, large, &domain);
    prepare(&mut table);
    let binding = table.binding();
    let (stop, lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut writes = 0;
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let mut worker = domain.register().expect("a slot is free");
            let probe = Probe(binding.handle, binding.lookup, binding.lookup_batch);
            let (layout, stop, lookups) = (&binding.key, &stop, &lookups);
            scope.spawn(move || {
                let probe = probe;
                let mut random = Random::new(1000 + reader as u64);
                let keys: Vec<(Vec<Bits>, Vec<u8>)> = (0..4096)
                    .map(|_| {
                        let values = key(&mut random);
                        let bytes = key_bytes(layout, &values);
                        (values, bytes)
                    })
                    .collect();
                let mut held = Vec::with_capacity(BATCH);
                for batch in keys.chunks(BATCH).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    worker.online();
                    let mut all = [std::ptr::null(); BATCH];
                    if reader > 0 {
                        let bytes: Vec<u8> = batch.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
                        // SAFETY: the worker is online, the table outlives the scope; there is room for all entries.
                        unsafe { probe.2(probe.0, bytes.as_ptr(), batch.len() as u32, all.as_mut_ptr()) };
                    }
                    for ((values, bytes), found) in batch.iter().zip(all) {
                        // SAFETY: the worker is online, the table outlives the scope.
                        let found = if reader > 0 { found } else { unsafe { probe.1(probe.0, bytes.as_ptr()) } };
                        // SAFETY: found since the worker went online.
                        let tag = (!found.is_null()).then(|| unsafe { tag(found) });
                        check(values, tag);
                        held.extend((!found.is_null()).then_some((found, tag)));
                    }
                    for (found, before) in held.drain(..) {
                        // SAFETY: the worker has not been quiescent since it found the entry.
                        assert_eq!(Some(unsafe { self::tag(found) }), before, "freed while a reader held it");
                    }
                    lookups.fetch_add(BATCH as u64, Ordering::Relaxed);
                    if reader == 0 { worker.quiescent() } else { worker.offline() }
                }
                worker.offline();
            });
        }
        let start = Instant::now();
        let mut random = Random::new(7);
        // On a busy machine the readers may start late.
        while start.elapsed() < duration() || lookups.load(Ordering::Relaxed) == 0 || writes <= 100 {
            for _ in 0..16 {
                writes += 1;
                write(&mut table, &mut random, writes);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    table.collect();
    assert_eq!(table.waiting(), 0, "everything is freed once the readers are gone");
}

/// Inserts, modifies or deletes one of few keys, whose first value is the tag.
fn churn(keys: &[(u32, MatchKind)], large: &[u32], values: u64, width: u32) {
    let other = keys.len() - 1;
    let exact = move |value: u64| -> Vec<Bits> {
        let rest = std::iter::repeat_n(Bits::new(16, 3), other);
        std::iter::once(Bits::new(width, value.into())).chain(rest).collect()
    };
    let put = move |table: &mut Table, value: u64, generation: u64, insert: bool| {
        let new = entry(exact(value).into_iter().map(KeyMatch::Exact).collect(), 0, value, generation);
        if insert {
            _ = table.insert(&new, Runs::Call(call_of(&new)), 0);
        } else {
            _ = table.modify(&new, Runs::Call(call_of(&new)));
        }
    };
    stress(
        (keys, large),
        |random| exact(random.below(values)),
        |key, tag| {
            let value = key[0].to_u64();
            // Every fourth key is never deleted.
            assert!(if tag.is_none() { value.is_some_and(|v| v % 4 != 0) } else { tag == value }, "{key:?}: {tag:?}");
        },
        |table| (0..values).step_by(4).for_each(|value| put(table, value, 0, true)),
        |table, random, generation| {
            let value = random.below(values);
            match random.below(3) {
                0 => put(table, value, generation, true),
                1 => put(table, value, generation, false),
                _ if value % 4 == 0 => {}
                _ => {
                    let key: Vec<KeyMatch> = exact(value).into_iter().map(KeyMatch::Exact).collect();
                    _ = table.delete(&key, 0);
                }
            }
        },
    );
}

#[test]
fn exact_keys_of_one_word() {
    churn(&[(48, Exact)], &[], 200, 48);
}

#[test]
fn exact_keys_of_two_words() {
    churn(&[(64, Exact), (16, Exact)], &[], 50, 64);
}

#[test]
fn exact_keys_beyond_a_bucket() {
    churn(&[(128, Exact), (16, Exact)], &[], 100, 128);
}

#[test]
fn exact_keys_with_entries_outside_of_buckets() {
    churn(&[(32, Exact)], &[400], 60, 32);
    churn(&[(96, Exact)], &[400], 60, 96);
}

#[test]
fn direct_index() {
    churn(&[(10, Exact)], &[], 1000, 10);
}

/// A table that grows from empty: existing entries stay, and new ones are right.
#[test]
fn exact_while_it_grows() {
    let key = |value: u64| vec![Bits::new(48, value.into())];
    let put = |table: &mut Table, value: u64| {
        let new = entry(key(value).into_iter().map(KeyMatch::Exact).collect(), 0, value, value);
        _ = table.insert(&new, Runs::Call(call_of(&new)), 0);
    };
    stress(
        (&[(48, Exact)], &[]),
        |random| key(random.below(20_000)),
        |key, tag| {
            let value = key[0].to_u64();
            assert!(if tag.is_none() { value.is_some_and(|v| v >= 10) } else { tag == value });
        },
        |table| (0..10).for_each(|value| put(table, value)),
        |table, _, value| put(table, 10 + value),
    );
}

/// Make before break: a covering prefix is added before the one that it replaces is removed, so every address has a
/// route at any time.
fn moving_routes(keys: &'static [(u32, MatchKind)]) {
    let width = keys[0].0;
    let route = move |group: u64, len: u32| {
        let value = Bits::new(width, u128::from(10 << 16 | group)).shl(u64::from(width - 24));
        let mask = Bits::ones(width).shl(u64::from(width - len));
        let mut key = vec![KeyMatch::Lpm { value: value.and(&mask), prefix_len: len }];
        key.extend(keys[1..].iter().map(|(w, _)| KeyMatch::Exact(Bits::new(*w, 1))));
        key
    };
    // The tag is the length, plus the first octet of the route.
    let put = move |table: &mut Table, group: u64, len: u32| {
        let new = entry(route(group, len), 0, u64::from(len) << 8 | 10, group);
        table.insert(&new, Runs::Call(call_of(&new)), 0).expect("the route is new");
    };
    const LENGTHS: [u32; 6] = [24, 9, 20, 14, 17, 11];
    let mut current = [0usize; 4];
    stress(
        (keys, &[]),
        move |random| {
            let value = Bits::new(width, u128::from(10 << 16 | random.below(4) << 14 | random.below(2)));
            let mut key = vec![value.shl(u64::from(width - 24)).or(&Bits::new(width, random.below(200).into()))];
            key.extend(keys[1..].iter().map(|(w, _)| Bits::new(*w, 1)));
            key
        },
        |key, tag| assert_eq!(tag.map(|t| t & 0xff), Some(10), "{key:?} has a route at any time"),
        |table| {
            for group in 0..4 {
                // Two /24 per group; the second stays where it is, so that moving the first leaves a neighbour alone.
                put(table, group << 14 | 1, 24);
                put(table, group << 14, 24);
            }
        },
        |table, random, _| {
            let group = random.below(4);
            let now = current[group as usize];
            let next = (now + 1) % LENGTHS.len();
            let (old, new) = (LENGTHS[now], LENGTHS[next]);
            // The four groups differ in bits 9 and 10 only, so their shorter prefixes may coincide.
            let there = |table: &mut Table, len| table.find(&route(group << 14, len), 0).is_ok();
            if new > 10 && old > 10 && !there(table, new) {
                put(table, group << 14, new);
                table.delete(&route(group << 14, old), 0).expect("the route is there");
                current[group as usize] = next;
            } else {
                // Skip a length at which groups share the prefix.
                let skip = (next + 1) % LENGTHS.len();
                if old > 10 && !there(table, LENGTHS[skip]) {
                    put(table, group << 14, LENGTHS[skip]);
                    table.delete(&route(group << 14, old), 0).expect("the route is there");
                    current[group as usize] = skip;
                }
            }
        },
    );
}

#[test]
fn routes_of_32_bits() {
    moving_routes(&[(32, Lpm)]);
}

#[test]
fn routes_of_128_bits() {
    moving_routes(&[(128, Lpm)]);
}

#[test]
fn routes_beside_an_exact_field() {
    moving_routes(&[(32, Lpm), (12, Exact)]);
}

#[test]
fn rules_that_move_between_tuples() {
    moving_rules(0, 0);
}

/// With bit vectors: the moving rule is added and deleted, and after some time is in the rows.
#[test]
fn rules_that_move_among_many_masks() {
    moving_rules(300, 0);
}

/// With more masks than a segment of the list of tuples has, in keys too long for bit vectors.
#[test]
fn rules_that_move_between_segments() {
    moving_rules(900, 5);
}

/// A rule moves between tuples and priorities; the new version is added before the old one is deleted. Other rules
/// match no key. Keys have `long` more fields, in which the other rules' masks have bits.
fn moving_rules(others: u64, long: usize) {
    let keys: &[(u32, MatchKind)] =
        &[(32, Ternary), (16, Range), (128, Ternary), (128, Ternary), (128, Ternary), (128, Ternary), (128, Ternary)];
    let keys = &keys[..2 + long];
    let with = move |key: [KeyMatch; 2], mask: Bits| {
        let field = KeyMatch::Ternary { value: Bits::zero(128), mask };
        key.into_iter().chain(std::iter::repeat_n(field, long)).collect::<Vec<_>>()
    };
    let rule = move |at: u64| {
        let mask = Bits::ones(32).shl(at % 5);
        let range =
            KeyMatch::Range { low: Bits::new(16, (at % 3).into()), high: Bits::new(16, 1000 + u128::from(at % 7)) };
        with([KeyMatch::Ternary { value: Bits::new(32, 0xabc0).and(&mask), mask }, range], Bits::zero(128))
    };
    let put = move |table: &mut Table, at: u64| {
        let new = entry(rule(at), 1 + (at * 7 % 11) as i32, 5, at);
        table.insert(&new, Runs::Call(call_of(&new)), 0).expect("the rule is new");
    };
    stress(
        (keys, &[]),
        |random| {
            let values = [Bits::new(32, 0xabc0), Bits::new(16, (10 + random.below(900)).into())];
            values.into_iter().chain(std::iter::repeat_n(Bits::zero(128), long)).collect()
        },
        |_, tag| assert_eq!(tag, Some(5), "a rule matches at any time"),
        |table| {
            put(table, 0);
            for i in 1..=others {
                let (value, mask) = (Bits::new(32, 1 << 31), Bits::new(32, u128::from(1 << 31 | i)));
                let range = KeyMatch::Range { low: Bits::zero(16), high: Bits::ones(16) };
                let key = with([KeyMatch::Ternary { value, mask }, range], Bits::ones(128));
                let new = entry(key, 1 + (i % 11) as i32, 6, i);
                table.insert(&new, Runs::Call(call_of(&new)), 0).expect("the rule is new");
            }
        },
        |table, _, step| {
            put(table, step);
            let old = step - 1;
            table.delete(&rule(old), 1 + (old * 7 % 11) as i32).expect("the rule is there");
        },
    );
}

/// Groups change atomically: a packet gets a member of the set before or after the change.
#[test]
fn groups_that_change() {
    let domain = Domain::new(READERS);
    let mut memory = tables::entry::EntryMemory::new(&[vec![32; 3]], abi::EntryParts::default());
    let members: Vec<usize> =
        (0..8).map(|i| memory.make(Runs::Call(&call(i, i)), tables::entry::Tag::NONE) as usize).collect();
    let of = |i: usize| members[i] as *const EntryHeader;
    let group = Group::new(&[(1, of(0))]);
    let holder = group.as_ptr() as usize;
    let stop = AtomicBool::new(false);
    // Objects that are left in it are freed after the readers have ended.
    let mut limbo = Limbo::default();
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let mut worker = domain.register().expect("a slot is free");
            let stop = &stop;
            scope.spawn(move || {
                let mut random = Random::new(reader as u64);
                while !stop.load(Ordering::Relaxed) {
                    worker.online();
                    for _ in 0..BATCH {
                        // SAFETY: the group is live; the worker is online.
                        unsafe {
                            let chosen = select(holder as *const std::ffi::c_void, random.next_u64());
                            assert!(!chosen.is_null(), "the group is never empty");
                            tag(chosen);
                        }
                    }
                    worker.quiescent();
                }
            });
        }
        let start = Instant::now();
        let mut random = Random::new(3);
        while start.elapsed() < duration() {
            let mut set = || (1 + random.below(700) as u32, of(random.below(8) as usize));
            let members: Vec<_> = (0..8).map(|_| set()).take(1 + start.elapsed().subsec_nanos() as usize % 8).collect();
            let old = group.set(&members);
            limbo.push(domain.advance(), old);
            limbo.collect(&domain, drop);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A change of something that code may assume of a table.
#[derive(Clone, Copy)]
struct Change {
    what: &'static str,
    /// The assumptions that code makes of the table.
    wanted: Wanted,
    make: fn(&mut Table) -> Result<(), StateError>,
    /// Whether code with these assumptions could misread the changed table, so that the change must wait.
    waits: bool,
}

fn prefix(i: u64, tag: u64) -> TableEntry {
    let key = KeyMatch::Lpm { value: Bits::new(32, u128::from(i) << 20), prefix_len: 14 };
    entry(vec![key], 0, tag, 0)
}

fn insert(table: &mut Table, new: &TableEntry) -> Result<(), StateError> {
    table.insert(new, Runs::Call(call_of(new)), 0).map(drop)
}

/// Changes of a table of 40 prefixes with the contents 1 to 3.
const CHANGES: [Change; 9] = [
    Change {
        what: "an entry",
        wanted: Wanted { entries_max: Some(100), results: true, prefilter: false },
        make: |table| insert(table, &prefix(50, 2)),
        waits: true,
    },
    Change {
        what: "another action of an entry",
        wanted: Wanted { entries_max: Some(100), results: false, prefilter: false },
        make: |table| table.modify(&prefix(1, 3), Runs::Call(call_of(&prefix(1, 3)))).map(drop),
        waits: true,
    },
    Change {
        what: "an entry that goes",
        wanted: Wanted { entries_max: Some(100), results: false, prefilter: false },
        make: |table| table.delete(&prefix(1, 2).key, 0).map(drop),
        waits: true,
    },
    Change {
        what: "a new content",
        wanted: Wanted { entries_max: Some(10), results: true, prefilter: false },
        make: |table| insert(table, &prefix(50, 7)),
        waits: true,
    },
    Change {
        what: "a new content of an entry",
        wanted: Wanted { entries_max: Some(10), results: true, prefilter: false },
        make: |table| table.modify(&prefix(1, 7), Runs::Call(call_of(&prefix(1, 7)))).map(drop),
        waits: true,
    },
    Change {
        what: "a known content",
        wanted: Wanted { entries_max: Some(10), results: true, prefilter: false },
        make: |table| insert(table, &prefix(50, 2)),
        waits: false,
    },
    Change {
        what: "a content without a held assumption",
        wanted: Wanted { entries_max: Some(10), results: false, prefilter: false },
        make: |table| insert(table, &prefix(50, 7)),
        waits: false,
    },
    Change {
        what: "an entry that is there already",
        wanted: Wanted { entries_max: Some(100), results: true, prefilter: false },
        make: |table| match insert(table, &prefix(1, 2)) {
            Err(StateError::Exists) => Ok(()),
            other => panic!("{other:?}"),
        },
        waits: false,
    },
    Change {
        what: "the default action",
        wanted: Wanted { entries_max: Some(0), results: false, prefilter: false },
        make: |table| table.set_default(Runs::Call(&call(3, 0))),
        waits: true,
    },
];

/// A table of 40 prefixes for which code has been compiled with assumptions.
fn with_held_assumptions(change: &Change, domain: &Arc<Domain>) -> Table {
    let mut table = table(&[(32, Lpm)], &[], domain);
    (0..40).for_each(|i| insert(&mut table, &prefix(i, 1 + i % 3)).expect("there is room"));
    let shape = table.shape(Some(change.wanted));
    assert_eq!(shape.rules.is_some(), change.wanted.entries_max > Some(40), "{}", change.what);
    assert_eq!(shape.results.is_some(), change.wanted.results, "{}", change.what);
    table
}

/// A key that is modified repeatedly stays near its home bucket. At the end of its probe sequence a modification would
/// wait for readers and, if a worker were stalled for 2 ms, copy the array, which invalidates code.
#[test]
fn an_entry_that_changes_again_and_again_invalidates_nothing() {
    let domain = Domain::new(1);
    let mut table = table(&[(32, Exact)], &[], &domain);
    let key = |i: u64| vec![KeyMatch::Exact(Bits::new(32, i.into()))];
    (0..20).for_each(|i| insert(&mut table, &entry(key(i), 0, i, 0)).expect("there is room"));
    let mut worker = domain.register().expect("a slot is free");
    worker.online();
    let generation = domain.generation();
    let mut change = |number: u64| {
        let new = entry(key(7), 0, 7, number);
        table.modify(&new, Runs::Call(call_of(&new))).expect("it is there");
    };
    for number in 0..4000 {
        change(number);
        worker.quiescent();
    }
    (4000..4016).for_each(&mut change);
    assert_eq!(domain.generation(), generation);
}

/// A prefilter passes a rule's keys before lookups find the rule, for any reader.
#[test]
fn prefilters_pass_what_lookups_find() {
    let domain = Domain::new(1);
    let mut table = table(&[(32, Ternary)], &[], &domain);
    let rule = |value: u64| {
        let key = KeyMatch::Ternary { value: Bits::new(32, value.into()), mask: Bits::ones(32) };
        entry(vec![key], 1, value, 0)
    };
    (0..50).for_each(|i| insert(&mut table, &rule(10 << 24 | i)).expect("there is room"));
    let shape = table.shape(Some(Wanted { entries_max: None, results: false, prefilter: true }));
    let prefilter = shape.prefilter.expect("its first byte tells");
    let binding = table.binding();
    let probe = Probe(binding.handle, binding.lookup, binding.lookup_batch);
    let values: Vec<u64> = (0..2000u64).map(|i| u64::from((i as u32).wrapping_mul(K))).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut worker = domain.register().expect("a slot is free");
        let (values, is_over) = (&values, &is_over);
        scope.spawn(move || {
            let probe = probe;
            worker.online();
            let mut found = 0;
            while !is_over.load(Ordering::Acquire) || found == 0 {
                for value in values {
                    // SAFETY: the table outlives the readers, and its key is a word.
                    let hit = unsafe { !(probe.1)(probe.0, value.to_le_bytes().as_ptr()).is_null() };
                    let row = |c: &abi::PrefilterColumn| {
                        c.rows[(value >> (8 * c.byte) & 0xff) as usize].load(Ordering::Relaxed)
                    };
                    let passes = prefilter.columns.iter().fold(u64::MAX, |bits, c| bits & row(c)) != 0;
                    assert!(!hit || passes, "{value:x}");
                    found += u32::from(hit);
                }
                worker.quiescent();
            }
        });
        for value in values {
            insert(&mut table, &rule(*value)).expect("there is room");
        }
        is_over.store(true, Ordering::Release);
    });
}

/// Everything about a table that readers and the control plane can see.
fn seen(table: &Table) -> (Vec<TableEntry>, Option<ActionCall>, Option<(u64, u64)>) {
    (table.entries(0).into_iter().map(|read| read.entry).collect(), table.default_call(), table.contents())
}

/// A change of something that code assumes of a table (entries, contents, the default action) waits until no batch runs
/// any more that began before it; other changes are made at once.
#[test]
fn changes_wait_for_batches_that_began_before() {
    for change in CHANGES {
        let (domain, what) = (Domain::new(1), change.what);
        let mut table = with_held_assumptions(&change, &domain);
        let mut worker = domain.register().expect("a slot is free");
        worker.online();
        let generation = domain.generation();
        let (done, is_done) = std::sync::mpsc::channel();
        let start = Instant::now();
        let writer = std::thread::spawn(move || {
            // A worker that is preempted for long looks stalled.
            while (change.make)(&mut table) == Err(StateError::Unacknowledged(0)) {}
            done.send(()).expect("somebody listens");
        });
        if change.waits {
            while domain.generation() == generation {
                assert!(start.elapsed() < Duration::from_secs(60), "{what} invalidates nothing");
                std::thread::yield_now();
            }
            assert!(is_done.recv_timeout(ACKNOWLEDGE_MAX / 10).is_err(), "{what} did not wait");
            worker.quiescent();
            assert!(is_done.recv_timeout(Duration::from_secs(60)).is_ok(), "{what} waits on");
        } else {
            is_done.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what} waits"));
            assert_eq!(domain.generation(), generation, "{what} invalidates something");
        }
        writer.join().expect("it is right");
    }
}

/// While a worker is stalled in a batch, changes that it could misread are refused with its number and leave no trace;
/// at once when it is known to be stalled. They are made after it continues.
#[test]
fn a_change_that_a_stopped_worker_could_misread_is_refused_and_leaves_no_trace() {
    for change in CHANGES.into_iter().filter(|change| change.waits) {
        let (domain, what) = (Domain::new(9), change.what);
        let mut table = with_held_assumptions(&change, &domain);
        let mut worker = domain.register_as(7).expect("a slot is free");
        worker.online();
        let before = seen(&table);
        let start = Instant::now();
        assert_eq!((change.make)(&mut table), Err(StateError::Unacknowledged(7)), "{what}");
        assert!(start.elapsed() >= ACKNOWLEDGE_MAX / 2, "{what} did not wait");
        assert_eq!(seen(&table), before, "{what} left something");
        for _ in 0..1000 {
            // If each waited a second, this would take a quarter of an hour.
            assert_eq!((change.make)(&mut table), Err(StateError::Unacknowledged(7)), "{what}");
        }
        assert_eq!(seen(&table), before, "{what} left something");
        worker.quiescent();
        assert_eq!((change.make)(&mut table), Ok(()), "{what}");
        assert_ne!(seen(&table), before, "{what} did nothing");
    }
}

/// The memory that waits for a stalled worker is bounded: then changes are refused, until the worker continues.
#[test]
fn changes_are_refused_when_too_much_waits_for_a_stopped_worker() {
    for keys in [&[(32, Exact)][..], &[(32, Lpm)], &[(32, Ternary)]] {
        let domain = Domain::new(1);
        let mut table = table(keys, &[], &domain);
        let key = match keys[0].1 {
            Exact => KeyMatch::Exact(Bits::new(32, 1)),
            Lpm => KeyMatch::Lpm { value: Bits::new(32, 1 << 20), prefix_len: 14 },
            _ => KeyMatch::Ternary { value: Bits::new(32, 1), mask: Bits::new(32, 1) },
        };
        let of = |tag| entry(vec![key.clone()], i32::from(keys[0].1 == Ternary), tag, 0);
        insert(&mut table, &of(1)).expect("there is room");
        let mut worker = domain.register().expect("a slot is free");
        worker.online();
        let mut change = |tag| table.modify(&of(tag), Runs::Call(call_of(&of(tag)))).map(drop);
        // A change retires at most a few units.
        let refused = (1..40 * BACKLOG_MAX).find_map(|i| change(1 + i % 3).err());
        assert_eq!(refused, Some(StateError::Unacknowledged(0)), "{keys:?}");
        assert!(domain.backlog() < 2 * BACKLOG_MAX, "{keys:?}: {}", domain.backlog());
        worker.quiescent();
        for i in 0..200 {
            assert_eq!(change(1 + i % 3), Ok(()), "{keys:?}");
            worker.quiescent();
        }
    }
}

/// The same with alternating insertions and deletions, so that every change that checks the backlog is a deletion.
#[test]
fn entries_that_come_and_go_are_refused_when_too_much_waits_for_a_stopped_worker() {
    for keys in [(32, Exact), (32, Lpm), (32, Ternary)] {
        let domain = Domain::new(1);
        let mut table = table(&[keys], &[], &domain);
        let value = Bits::new(32, 1 << 20);
        let (key, priority) = match keys.1 {
            Exact => (KeyMatch::Exact(value), 0),
            Lpm => (KeyMatch::Lpm { value, prefix_len: 14 }, 0),
            _ => (KeyMatch::Ternary { value: value.clone(), mask: value }, 1),
        };
        let one = entry(vec![key], priority, 1, 0);
        let mut worker = domain.register().expect("a slot is free");
        worker.online();
        let mut come_and_go = || {
            insert(&mut table, &one)?;
            table.delete(&one.key, priority).map(drop)
        };
        let refused = (1..40 * BACKLOG_MAX).find_map(|_| come_and_go().err());
        assert_eq!(refused, Some(StateError::Unacknowledged(0)), "{keys:?}");
        // Every further change is refused, insertion or deletion, not only those that check the backlog.
        for _ in 0..200 {
            assert_eq!(insert(&mut table, &entry(one.key.clone(), priority, 2, 0)).err(), refused, "{keys:?}");
            assert_eq!(table.delete(&one.key, priority).err(), refused, "{keys:?}");
        }
        assert!(domain.backlog() < 2 * BACKLOG_MAX, "{keys:?}: {}", domain.backlog());
    }
}

/// Deleted entries of a table with direct resources keep their indices while a worker may still count for them. A batch
/// that deletes more entries than could be restored meanwhile is refused at that deletion.
#[test]
fn a_batch_deletes_no_more_than_can_be_brought_back_under_a_stopped_worker() {
    const SIZE: u64 = 200;
    for keys in [(32, Exact), (32, Lpm)] {
        let domain = Domain::new(1);
        let spec = TableSpec { size: SIZE, direct: true, ..spec(&[keys], &[]) };
        let mut table = Table::new(spec, Runs::Call(&call(0, 0)), Arc::clone(&domain)).expect("it has an engine");
        let of = |i: u64| {
            let value = Bits::new(32, u128::from(i) << 20);
            let key = if keys.1 == Exact { KeyMatch::Exact(value) } else { KeyMatch::Lpm { value, prefix_len: 14 } };
            entry(vec![key], 0, 1, 0)
        };
        (0..SIZE).for_each(|i| insert(&mut table, &of(i)).expect("there is room"));
        let mut worker = domain.register().expect("a slot is free");
        for batch in 1..4 {
            worker.online();
            table.set_phase(Phase::Atomic, batch);
            let mut done: Vec<(u64, u64)> = Vec::new();
            let refused = (0..SIZE).find_map(|i| {
                table.delete(&of(i).key, 0).err().or_else(|| {
                    done.push((i, SIZE + i));
                    insert(&mut table, &of(SIZE + i)).err()
                })
            });
            assert_eq!(refused, Some(StateError::Unacknowledged(0)), "{keys:?}");
            assert!(done.len() > 20, "{keys:?}: only {} of {SIZE}", done.len());
            table.set_phase(Phase::Undo, batch);
            for (gone, new) in done.into_iter().rev() {
                match table.delete(&of(new).key, 0) {
                    Ok(_) | Err(StateError::NotFound) => {}
                    Err(error) => panic!("{keys:?}: {error:?}"),
                }
                insert(&mut table, &of(gone)).unwrap_or_else(|e| panic!("{keys:?}: {gone} cannot come back: {e:?}"));
            }
            table.set_phase(Phase::Single, batch);
            assert_eq!(table.len(), SIZE);
            worker.quiescent();
            worker.offline();
            table.collect();
        }
    }
}

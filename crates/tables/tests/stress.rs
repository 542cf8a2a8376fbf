//! Readers on their own threads while the writer changes tables as fast as it can.
//!
//! Entries carry `[tag, tag * K + generation, generation]`, with a tag that follows from the key, so a reader knows a
//! torn, freed or wrong entry when it sees one. Readers keep what they found until the end of their batch and look at it
//! again. One of them looks keys up in batches. Each test runs for a fixed short time; `STRESS_MS` makes it longer.
#![cfg(not(loom))]
#![allow(unsafe_code)]

mod common;

use abi::table::{LookupBatchFn, LookupFn};
use abi::{EntryHeader, TableHandle};
use base::Bits;
use base::entry::MatchKind::{self, Exact, Lpm, Range, Ternary};
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use common::{Random, key_bytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tables::reclaim::STUCK;
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

/// `large` are the parameters of an action that no entry runs: they decide whether entries fit into buckets.
fn table(keys: &[(u32, MatchKind)], large: &[u32], domain: &Arc<Domain>) -> Table {
    let spec = TableSpec {
        keys: keys.to_vec(),
        size: 1 << 20,
        actions: vec![vec![32; 3], large.to_vec()],
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    };
    Table::new(spec, Runs::Call(&call(0, 0)), Arc::clone(domain)).expect("a table of this shape")
}

/// The tag of an entry, which must be whole.
///
/// # Safety
/// The reader that found it has not been quiescent since.
unsafe fn tag(found: *const EntryHeader) -> u64 {
    // SAFETY: the entry has three words of parameters behind the byte of its action.
    let [tag, check, generation] = unsafe { found.byte_add(1).cast::<[u32; 3]>().read_unaligned() };
    assert_eq!(check, tag.wrapping_mul(K).wrapping_add(generation), "a torn or freed entry");
    tag.into()
}

#[derive(Clone, Copy)]
struct Probe(*const TableHandle, LookupFn, LookupBatchFn);

// SAFETY: the table outlives the readers.
unsafe impl Send for Probe {}

/// Runs `write` again and again while readers draw keys with `key` and check what they find with `check`, which gets the
/// key's values and the tag, or `None` on a miss.
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
                let mut random = Random(1000 + reader as u64);
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
        let mut random = Random(7);
        // On a busy machine the readers may come late.
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

/// Insert, modify or delete one of few keys, whose first value is the tag.
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
            // Every fourth key is always there.
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

/// A table that grows from nothing: what was there stays, what comes is right.
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

/// Make before break: a covering prefix comes before the one it replaces goes, so every address always has a route.
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
                // Two /24 per group, of which the second keeps what the first one's moving leaves alone.
                put(table, group << 14 | 1, 24);
                put(table, group << 14, 24);
            }
        },
        |table, random, _| {
            let group = random.below(4);
            let now = current[group as usize];
            let next = (now + 1) % LENGTHS.len();
            let (old, new) = (LENGTHS[now], LENGTHS[next]);
            // The four groups differ in bits 9 and 10 only, so shorter ones of different groups may coincide.
            let there = |table: &mut Table, len| table.find(&route(group << 14, len), 0).is_ok();
            if new > 10 && old > 10 && !there(table, new) {
                put(table, group << 14, new);
                table.delete(&route(group << 14, old), 0).expect("the route is there");
                current[group as usize] = next;
            } else {
                // Skip the length that groups share.
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

/// A rule moves from tuple to tuple and priority to priority, the new one before the old one goes.
#[test]
fn rules_that_move_between_tuples() {
    let keys: &[(u32, MatchKind)] = &[(32, Ternary), (16, Range)];
    let rule = |at: u64| {
        let mask = Bits::ones(32).shl(at % 5);
        let range =
            KeyMatch::Range { low: Bits::new(16, (at % 3).into()), high: Bits::new(16, 1000 + u128::from(at % 7)) };
        vec![KeyMatch::Ternary { value: Bits::new(32, 0xabc0).and(&mask), mask }, range]
    };
    let put = move |table: &mut Table, at: u64| {
        let new = entry(rule(at), 1 + (at * 7 % 11) as i32, 5, at);
        table.insert(&new, Runs::Call(call_of(&new)), 0).expect("the rule is new");
    };
    stress(
        (keys, &[]),
        |random| vec![Bits::new(32, 0xabc0), Bits::new(16, (10 + random.below(900)).into())],
        |_, tag| assert_eq!(tag, Some(5), "a rule matches at any time"),
        |table| put(table, 0),
        |table, _, step| {
            put(table, step);
            let old = step - 1;
            table.delete(&rule(old), 1 + (old * 7 % 11) as i32).expect("the rule is there");
        },
    );
}

/// Groups change as a whole: a packet gets a member of the set before or after.
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
    // What is in it at the end is freed when the readers are gone.
    let mut limbo = Limbo::default();
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let mut worker = domain.register().expect("a slot is free");
            let stop = &stop;
            scope.spawn(move || {
                let mut random = Random(reader as u64);
                while !stop.load(Ordering::Relaxed) {
                    worker.online();
                    for _ in 0..BATCH {
                        // SAFETY: the group is live; the worker is online.
                        unsafe {
                            let chosen = select(holder as *const std::ffi::c_void, random.next());
                            assert!(!chosen.is_null(), "the group is never empty");
                            tag(chosen);
                        }
                    }
                    worker.quiescent();
                }
            });
        }
        let start = Instant::now();
        let mut random = Random(3);
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

/// What compiled code takes for granted of a table (entries, contents, the default action) changes when no batch runs any more
/// that began before; what it does not, at once.
#[test]
fn changes_wait_for_batches_that_take_things_for_granted() {
    let prefix = |i: u64, tag: u64| {
        entry(vec![KeyMatch::Lpm { value: Bits::new(32, u128::from(i << 20)), prefix_len: 14 }], 0, tag, 0)
    };
    let insert = |new: TableEntry| move |table: &mut Table| _ = table.insert(&new, Runs::Call(call_of(&new)), 0);
    type Change = Box<dyn FnOnce(&mut Table) + Send>;
    let changes: [(&str, Wanted, Change, bool); 5] = [
        ("an entry", Wanted { entries_max: 100, answers: true }, Box::new(insert(prefix(50, 2))), true),
        ("a new content", Wanted { entries_max: 10, answers: true }, Box::new(insert(prefix(50, 7))), true),
        ("a known content", Wanted { entries_max: 10, answers: true }, Box::new(insert(prefix(50, 2))), false),
        ("a content", Wanted { entries_max: 10, answers: false }, Box::new(insert(prefix(50, 7))), false),
        (
            "the default action",
            Wanted { entries_max: 0, answers: false },
            Box::new(|table| table.set_default(Runs::Call(&call(3, 0))).expect("it may change")),
            true,
        ),
    ];
    for (what, wanted, change, waits) in changes {
        let domain = Domain::new(1);
        let mut table = table(&[(32, Lpm)], &[], &domain);
        (0..40).for_each(|i| insert(prefix(i, 1 + i % 3))(&mut table));
        let shape = table.shape(Some(wanted));
        assert_eq!(shape.rules.is_some(), wanted.entries_max > 40, "{what}");
        assert_eq!(shape.answers.is_some(), wanted.answers, "{what}");
        let mut worker = domain.register().expect("a slot is free");
        worker.online();
        let granted = domain.granted();
        let (done, is_done) = std::sync::mpsc::channel();
        let start = Instant::now();
        let writer = std::thread::spawn(move || {
            change(&mut table);
            done.send(()).expect("somebody listens");
        });
        if waits {
            while domain.granted() == granted {
                assert!(start.elapsed() < Duration::from_secs(60), "{what} withdraws nothing");
                std::thread::yield_now();
            }
            let early = is_done.recv_timeout(STUCK / 10).is_ok();
            assert!(!early || start.elapsed() >= STUCK, "{what} did not wait");
            worker.quiescent();
            let later = early || is_done.recv_timeout(Duration::from_secs(60)).is_ok();
            assert!(later, "{what} waits on");
        } else {
            is_done.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what} waits"));
            assert_eq!(domain.granted(), granted, "{what} withdraws something");
        }
        writer.join().expect("it is right");
    }
}

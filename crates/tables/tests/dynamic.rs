//! Packet-written tables: compared with a list after every change, and used by several threads.
#![cfg(not(loom))]
#![allow(unsafe_code, reason = "entries are added through the functions that compiled code calls")]

use abi::state::{Phase, StateError};
use abi::{EntryHeader, TableBinding};
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tables::{Domain, DynamicSpec, Runs, Table, TableSpec};

/// Microseconds of a tick.
const TICK: u64 = abi::entry::TICK_US;
/// Widths in bits of the parameters of two actions: one has none, one has two.
const ACTIONS: [&[u32]; 2] = [&[], &[9, 33]];

fn spec(widths: &[u32], size: u64, direct: bool) -> TableSpec {
    TableSpec {
        keys: widths.iter().map(|w| (*w, MatchKind::Exact)).collect(),
        size,
        actions: ACTIONS.iter().map(|a| a.to_vec()).collect(),
        members: false,
        selector: false,
        idle_timeout: true,
        direct,
    }
}

fn dynamic() -> DynamicSpec {
    DynamicSpec {
        expires: true,
        deletes: true,
        tells: true,
        restart_on_hit: false,
        expire_ms: vec![50, 1000, 30_000, 2_000_000, 0],
        evicts: false,
        step_ticks: 1,
    }
}

fn made(widths: &[u32], size: u64, spec_of: DynamicSpec, domain: &Arc<Domain>) -> Table {
    let default = ActionCall { action: 0, args: vec![] };
    Table::dynamic(spec(widths, size, true), spec_of, Runs::Call(&default), Arc::clone(domain)).expect("exact keys")
}

fn call(value: u64) -> ActionCall {
    match value % 2 {
        0 => ActionCall { action: 0, args: vec![] },
        _ => ActionCall {
            action: 1,
            args: vec![Bits::new(9, u128::from(value % 512)), Bits::new(33, u128::from(value << 20 | 3) % (1 << 33))],
        },
    }
}

/// A key whose fields all hold this number.
fn key(widths: &[u32], number: u64) -> Vec<KeyMatch> {
    let field = |w: &u32| {
        let bits = if *w >= 64 {
            Bits::new(*w, u128::from(number) << (w - 64).min(60) | u128::from(number))
        } else {
            Bits::new(*w, u128::from(number) % (1 << w))
        };
        KeyMatch::Exact(bits)
    };
    widths.iter().map(field).collect()
}

/// The key as compiled code builds it.
fn packed(binding: &TableBinding, key: &[KeyMatch]) -> Vec<u64> {
    let mut bytes = vec![0u8; binding.key.bytes as usize];
    for (field, key) in binding.key.fields.iter().zip(key) {
        let KeyMatch::Exact(value) = key else { unreachable!() };
        let mut little = value.to_bytes_be();
        little.reverse();
        bytes[field.offset as usize..][..little.len()].copy_from_slice(&little);
    }
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))).collect()
}

/// The bytes of an entry, from its action on.
fn image(binding: &TableBinding, call: &ActionCall) -> Vec<u8> {
    let mut bytes = vec![0u8; binding.entry.sizes[call.action as usize] as usize];
    bytes[0] = call.action as u8;
    for (offset, value) in binding.entry.params[call.action as usize].iter().zip(&call.args) {
        let mut little = value.to_bytes_be();
        little.reverse();
        bytes[*offset as usize..][..little.len()].copy_from_slice(&little);
    }
    bytes
}

/// Adds or replaces an entry as a packet does. Returns whether that succeeded.
fn add(binding: &TableBinding, key: &[KeyMatch], call: &ActionCall, expire: u32, now: u64, replace: bool) -> bool {
    let (key, image) = (packed(binding, key), image(binding, call));
    let dynamic = binding.dynamic.as_ref().expect("a table that packets write");
    let function = if replace { dynamic.replace } else { dynamic.add };
    // SAFETY: key and entry have the table's layout, and the table lives.
    unsafe { function(binding.handle, key.as_ptr().cast(), image.as_ptr(), image.len() as u32, expire, now) == 0 }
}

fn lookup(binding: &TableBinding, key: &[KeyMatch]) -> *const EntryHeader {
    // SAFETY: as above.
    unsafe { (binding.lookup)(binding.handle, packed(binding, key).as_ptr().cast()) }
}

/// The bytes of an entry that runs the second action.
fn content(binding: &TableBinding, entry: *const EntryHeader) -> Vec<u8> {
    // SAFETY: a lookup's result is an entry of the table with so many bytes.
    unsafe { std::slice::from_raw_parts(entry.cast::<u8>(), binding.entry.sizes[1] as usize) }.to_vec()
}

#[derive(Clone, Debug)]
struct Kept {
    call: ActionCall,
    timeout_ms: u64,
    began: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Add(u64, u64, u32),
    Replace(u64, u64, u32),
    Restart(u64),
    SetExpire(u64, u32),
    Insert(u64, u64, u64),
    Modify(u64, u64, u64),
    Delete(u64),
    Pass(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let number = 0..40u64;
    prop_oneof![
        6 => (number.clone(), any::<u16>(), 0..6u32).prop_map(|(k, v, e)| Change::Add(k, v.into(), e)),
        1 => (number.clone(), any::<u16>(), 0..6u32).prop_map(|(k, v, e)| Change::Replace(k, v.into(), e)),
        1 => number.clone().prop_map(Change::Restart),
        2 => (number.clone(), 0..6u32).prop_map(|(k, e)| Change::SetExpire(k, e)),
        1 => (number.clone(), any::<u16>(), 0..3000u64).prop_map(|(k, v, t)| Change::Insert(k, v.into(), t * 1_000_000)),
        1 => (number.clone(), any::<u16>(), 0..3000u64).prop_map(|(k, v, t)| Change::Modify(k, v.into(), t * 999_999)),
        1 => number.prop_map(Change::Delete),
        2 => (0..22u32, any::<u32>()).prop_map(|(shift, n)| Change::Pass(u64::from(n) % (1 << (shift + 4)))),
    ]
}

fn agree(widths: &[u32], size: u64, step_ticks: u32, changes: &[Change], online: bool) {
    let domain = Domain::new(2);
    let mut worker = domain.register().expect("a place");
    if online {
        worker.online();
    }
    let mut table = made(widths, size, DynamicSpec { step_ticks, ..dynamic() }, &domain);
    let released: Arc<Mutex<Vec<u32>>> = Arc::default();
    let sink = Arc::clone(&released);
    table.on_release(Box::new(move |index| sink.lock().expect("no panic").push(index)));
    let binding = table.binding();
    let timeouts = dynamic().expire_ms;
    let mut model: BTreeMap<u64, Kept> = BTreeMap::new();
    let mut now = TICK * 5;
    let entry = |k: u64, v: u64, ns: u64| TableEntry {
        key: key(widths, k),
        priority: 0,
        action: EntryAction::Call(call(v)),
        idle_timeout_ns: ns,
    };
    for change in changes {
        match *change {
            Change::Add(k, v, e) => {
                let timeout = timeouts.get(e as usize);
                let may = timeout.is_some() && !model.contains_key(&k) && (model.len() as u64) < size;
                assert_eq!(add(&binding, &key(widths, k), &call(v), e, now, false), may, "{change:?}");
                if let (true, Some(ms)) = (may, timeout) {
                    model.insert(k, Kept { call: call(v), timeout_ms: (*ms).into(), began: now / TICK });
                }
            }
            Change::Replace(k, v, e) => {
                let timeout = timeouts.get(e as usize);
                let may = timeout.is_some() && model.contains_key(&k);
                assert_eq!(add(&binding, &key(widths, k), &call(v), e, now, true), may, "{change:?}");
                if let (true, Some(ms)) = (may, timeout) {
                    model.insert(k, Kept { call: call(v), timeout_ms: (*ms).into(), began: now / TICK });
                }
            }
            Change::Restart(k) | Change::SetExpire(k, _) => {
                let found = lookup(&binding, &key(widths, k));
                assert_eq!(!found.is_null(), model.contains_key(&k));
                if found.is_null() {
                    continue;
                }
                let kept = model.get_mut(&k).expect("it is there");
                match *change {
                    Change::SetExpire(_, e) => {
                        let dynamic = binding.dynamic.as_ref().expect("dynamic");
                        // SAFETY: the entry was just found.
                        unsafe { (dynamic.set_expire)(binding.handle, found, e, now) };
                        let Some(ms) = timeouts.get(e as usize) else { continue };
                        kept.timeout_ms = (*ms).into();
                    }
                    _ => {
                        let at = binding.entry.timer.expect("timers");
                        // SAFETY: compiled code does the same.
                        unsafe {
                            found.cast_mut().cast::<u8>().offset(at as isize).cast::<u32>().write((now / TICK) as u32)
                        };
                    }
                }
                kept.began = now / TICK;
            }
            Change::Insert(k, v, ns) => {
                let new = entry(k, v, ns);
                let EntryAction::Call(runs) = &new.action else { unreachable!() };
                let done = table.insert(&new, Runs::Call(runs), now);
                if model.contains_key(&k) {
                    assert_eq!(done, Err(StateError::Exists));
                } else if model.len() as u64 >= size {
                    assert_eq!(done, Err(StateError::Full(size)));
                } else {
                    assert!(done.is_ok());
                    model.insert(k, Kept { call: call(v), timeout_ms: ns / 1_000_000, began: now / TICK });
                }
            }
            Change::Modify(k, v, ns) => {
                let new = entry(k, v, ns);
                let EntryAction::Call(runs) = &new.action else { unreachable!() };
                let before = table.find(&new.key, 0);
                let done = table.modify(&new, Runs::Call(runs));
                match model.get_mut(&k) {
                    Some(kept) => {
                        assert_eq!(done, Ok(EntryAction::Call(kept.call.clone())));
                        assert_eq!(table.find(&new.key, 0), before, "an entry keeps its index");
                        assert_eq!(table.entry(&new.key, 0, now).map(|e| e.entry), Ok(new));
                        *kept = Kept { call: call(v), timeout_ms: ns.div_ceil(1_000_000), began: kept.began };
                    }
                    None => assert_eq!(done, Err(StateError::NotFound)),
                }
            }
            Change::Delete(k) => {
                let done = table.delete(&key(widths, k), 0).map(|was| was.action);
                match model.remove(&k) {
                    Some(kept) => assert_eq!(done, Ok(EntryAction::Call(kept.call))),
                    None => assert_eq!(done, Err(StateError::NotFound)),
                }
            }
            Change::Pass(ms) => {
                now += ms * 1000;
                if online {
                    worker.quiescent();
                }
                let mut expired = Vec::new();
                table.expire(now, |entry| expired.push(entry.key));
                let over = |kept: &Kept| {
                    let ticks = (kept.timeout_ms * 1000).div_ceil(TICK);
                    kept.timeout_ms > 0 && (kept.began + ticks).next_multiple_of(step_ticks.into()) <= now / TICK
                };
                let mut ended: Vec<_> =
                    model.iter().filter(|(_, kept)| over(kept)).map(|(k, _)| key(widths, *k)).collect();
                model.retain(|_, kept| !over(kept));
                expired.sort_by_key(|k| format!("{k:?}"));
                ended.sort_by_key(|k| format!("{k:?}"));
                assert_eq!(expired, ended, "at {now}");
            }
        }
        assert_eq!(table.len(), model.len() as u64);
    }
    // Readers and the control plane find exactly the stored entries.
    for k in 0..40 {
        let found =
            table.lookup(&packed(&binding, &key(widths, k)).iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
        assert_eq!(found.and_then(|(_, call)| call), model.get(&k).map(|kept| kept.call.clone()), "{k}");
        let read = table.entry(&key(widths, k), 0, now);
        let idle = |kept: &Kept| (now - (kept.began * TICK).min(now)) * 1000;
        assert_eq!(read.ok().map(|r| r.idle_ns), model.get(&k).map(|kept| Some(idle(kept))));
    }
    let mut indices: Vec<u32> = model.keys().map(|k| table.find(&key(widths, *k), 0).expect("there")).collect();
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), model.len(), "no two entries have one index");
    let (mut walked, mut place) = (0, Some(0));
    while let Some(at) = place {
        let (some, next) = table.walk(at, 7, now);
        for read in &some {
            assert!(!table.is_before(at, &read.entry.key, 0));
            assert!(next.is_none_or(|next| table.is_before(next, &read.entry.key, 0)));
        }
        walked += some.len();
        place = next;
    }
    assert_eq!((walked, table.entries(now).len()), (model.len(), model.len()));
    assert!(released.lock().expect("no panic").iter().all(|index| u64::from(*index) < table.index_limit()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 60 } else { 300 }))]

    #[test]
    fn agrees_with_a_list(
        changes in prop::collection::vec(change(), 1..120), shape in 0..4usize, size in 3..60u64, step in 1..40u32, online: bool
    ) {
        let widths: [&[u32]; 4] = [&[32], &[48, 12], &[32, 32, 16, 16, 8], &[128, 128, 16, 16, 8]];
        agree(widths[shape], size, step, &changes, online);
    }
}

#[test]
fn a_table_that_is_full_refuses_or_evicts_the_oldest() {
    let domain = Domain::new(1);
    for evicts in [false, true] {
        let table = made(&[32], 8, DynamicSpec { evicts, ..dynamic() }, &domain);
        let binding = table.binding();
        for k in 0..20 {
            let added = add(&binding, &key(&[32], k), &call(k), 2, k * 10 * TICK, false);
            assert_eq!(added, evicts || k < 8, "{k}");
        }
        let counts = table.dynamic_counts();
        assert_eq!((counts.refused, counts.evicted), if evicts { (0, 12) } else { (12, 0) });
        let there: Vec<u64> = (0..20).filter(|k| !lookup(&binding, &key(&[32], *k)).is_null()).collect();
        assert_eq!(there, if evicts { (12..20).collect::<Vec<_>>() } else { (0..8).collect() });
    }
}

/// The bug: each replacement in a batch needed a slot of its own, and an entry that had moved to the end of its probe sequence
/// found four in each batch from then on.
#[test]
fn packets_of_a_batch_may_replace_an_entry_any_number_of_times() {
    const FULL: u64 = 600;
    for others in [1, FULL] {
        let domain = Domain::new(2);
        let table = made(&[32], FULL, dynamic(), &domain);
        let binding = table.binding();
        for each in 1..3 {
            table.set_retirements(each);
            let mut worker = domain.register().expect("a place");
            worker.online();
            for k in 0..others {
                add(&binding, &key(&[32], k), &call(k), 2, 0, false);
            }
            for value in 0..10_000 {
                if value % 1000 == 0 {
                    worker.quiescent();
                }
                assert!(add(&binding, &key(&[32], 0), &call(2 * value + 1), 2, 0, true), "{value}");
                assert_eq!(content(&binding, lookup(&binding, &key(&[32], 0))), image(&binding, &call(2 * value + 1)));
            }
        }
        assert_eq!(table.dynamic_counts().refused, 0);
    }
}

#[test]
fn a_slot_is_not_taken_again_while_another_worker_or_the_same_packet_may_read_it() {
    let domain = Domain::new(2);
    for (each, other_online) in [(1, true), (2, false), (4, false), (5, false)] {
        let table = made(&[32], 100, dynamic(), &domain);
        table.set_retirements(each);
        let binding = table.binding();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let (ready, begin) = std::sync::mpsc::channel();
        let thread_domain = Arc::clone(&domain);
        let other = std::thread::spawn(move || {
            let mut other = thread_domain.register().expect("a place");
            if other_online {
                other.online();
            }
            ready.send(()).expect("the test waits");
            let _ = receiver.recv();
        });
        begin.recv().expect("the thread begins");
        let mut worker = domain.register().expect("a place");
        worker.online();
        assert!(add(&binding, &key(&[32], 7), &call(1), 2, 0, false));
        // A packet replaces an entry as often as it may; what it has found stays what it was.
        for round in 0..300u64 {
            let mut seen = Vec::new();
            for turn in 0..u64::from(each) {
                let value = 2 * (10 * round + turn) + 3;
                let entry = lookup(&binding, &key(&[32], 7));
                seen.push((entry, content(&binding, entry)));
                let replaced = add(&binding, &key(&[32], 7), &call(value), 2, 0, true);
                assert!(replaced || other_online || each > 4, "{each} {round}");
                for (entry, was) in &seen {
                    assert_eq!(content(&binding, *entry), *was, "{each} {round}");
                }
            }
        }
        if other_online {
            assert!(table.dynamic_counts().refused > 0, "the other worker may read all of the probe sequence");
        }
        drop(sender);
        other.join().expect("it ends");
    }
}

#[test]
fn undoing_a_deletion_restores_the_entry_in_a_full_table() {
    let domain = Domain::new(1);
    let mut table = made(&[32], 4, dynamic(), &domain);
    let binding = table.binding();
    for k in 0..4 {
        assert!(add(&binding, &key(&[32], k), &call(1), 2, 0, false));
    }
    table.set_phase(Phase::Atomic, 1);
    let was = table.delete(&key(&[32], 2), 0).expect("there");
    assert!(add(&binding, &key(&[32], 9), &call(3), 2, 0, false));
    table.set_phase(Phase::Undo, 1);
    let EntryAction::Call(runs) = &was.action else { unreachable!() };
    assert!(table.insert(&was, Runs::Call(runs), 0).is_ok());
    assert_eq!(table.len(), 5);
    table.set_phase(Phase::Single, 1);
    assert!(!add(&binding, &key(&[32], 10), &call(3), 2, 0, false));
}

#[test]
fn overflow_marks_of_expired_entries_are_cleared() {
    let domain = Domain::new(1);
    let mut table = made(&[32], 20_000, dynamic(), &domain);
    let binding = table.binding();
    let mut now = 0;
    // Every round fills the table with different keys and lets them expire. Keys are spread: consecutive ones may
    // cluster, and would then be refused before the table is full. Each step of the mixing is invertible, so keys
    // differ.
    let spread = |round: u64, k: u64| {
        let mut key = (round << 20 | k) as u32;
        for factor in [0x7feb_352d, 0x846c_a68b] {
            key = (key ^ key >> 16).wrapping_mul(factor);
        }
        u64::from(key ^ key >> 15)
    };
    for round in 0..6 {
        for k in 0..20_000 {
            assert!(add(&binding, &key(&[32], spread(round, k)), &call(k), 0, now, false), "{round} {k}");
        }
        for k in (0..20_000).step_by(77) {
            assert!(!lookup(&binding, &key(&[32], spread(round, k))).is_null());
        }
        now += 1_000_000;
        table.expire(now, |_| {});
        table.expire(now, |_| {});
        assert_eq!((table.len(), table.waiting()), (0, 0));
    }
    assert_eq!(table.dynamic_counts().refused, 0);
}

/// Workers add the same and different keys and look them up, while the housekeeping removes expired entries and the
/// control plane deletes others.
#[test]
fn threads_add_find_and_expire_entries() {
    const KEYS: u64 = 3000;
    let domain = Domain::new(4);
    let table =
        Arc::new(Mutex::new(made(&[32, 32, 16, 16, 8], 2000, DynamicSpec { evicts: true, ..dynamic() }, &domain)));
    let clock = Arc::new(AtomicU64::new(1));
    let stop = Arc::new(AtomicBool::new(false));
    let widths: &[u32] = &[32, 32, 16, 16, 8];
    let workers: Vec<_> = (0..2u64)
        .map(|id| {
            let (table, domain, clock, stop) =
                (Arc::clone(&table), Arc::clone(&domain), Arc::clone(&clock), Arc::clone(&stop));
            std::thread::spawn(move || {
                struct Shared(TableBinding);
                // SAFETY: the table outlives the threads.
                unsafe impl Send for Shared {}
                let binding = Shared(table.lock().expect("no panic").binding());
                let binding = &binding.0;
                let mut worker = domain.register().expect("a place");
                let (mut random, mut added) = (id + 1, 0u64);
                worker.online();
                while !stop.load(Ordering::Relaxed) {
                    let now = clock.load(Ordering::Relaxed) * TICK;
                    for _ in 0..32 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
                        let k = (random >> 40) % KEYS;
                        let found = lookup(binding, &key(widths, k));
                        if found.is_null() {
                            if add(binding, &key(widths, k), &call(2 * k + 1), (k % 2) as u32, now, false) {
                                added += 1;
                                let again = lookup(binding, &key(widths, k));
                                // Another thread may have removed it at once, but none may have changed it.
                                if !again.is_null() {
                                    check(binding, again, k);
                                }
                            }
                        } else {
                            check(binding, found, k);
                        }
                    }
                    worker.quiescent();
                }
                added
            })
        })
        .collect();
    let began = std::time::Instant::now();
    let mut random = 99u64;
    while began.elapsed() < std::time::Duration::from_millis(1500) {
        let now = clock.fetch_add(20, Ordering::Relaxed) * TICK;
        let mut table = table.lock().expect("no panic");
        table.expire(now, |_| {});
        for _ in 0..10 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
            let k = (random >> 40) % KEYS;
            let _ = table.delete(&key(widths, k), 0);
            if let Ok(read) = table.entry(&key(widths, (k + 1) % KEYS), 0, now) {
                assert_eq!(read.entry.action, EntryAction::Call(call(2 * ((k + 1) % KEYS) + 1)));
            }
        }
        assert!(table.len() <= 2002);
    }
    stop.store(true, Ordering::Relaxed);
    let added: u64 = workers.into_iter().map(|w| w.join().expect("no panic")).sum();
    assert!(added > 1000, "{added}");
    let mut table = table.lock().expect("no panic");
    let mut keys: Vec<_> = table.entries(0).into_iter().map(|e| format!("{:?}", e.entry.key)).collect();
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((all as u64, keys.len()), (table.len(), all), "no key is there twice");
    table.expire(clock.load(Ordering::Relaxed) * TICK + 10_000_000, |_| {});
    assert_eq!(table.len(), 0);

    fn check(binding: &TableBinding, entry: *const EntryHeader, k: u64) {
        let expected = image(binding, &call(2 * k + 1));
        // SAFETY: the entry was found since this thread was last quiescent.
        let found = unsafe { std::slice::from_raw_parts(entry.cast::<u8>(), expected.len()) };
        assert_eq!(found, expected, "an entry has another key's data");
    }
}

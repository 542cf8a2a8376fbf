//! Ternary tables: cycles of the time stamp counter per lookup by number of rules and masks, for random headers that
//! miss and for headers that hit, one by one and in batches of 32; insertions and deletions per second while a reader
//! runs.
//!
//! Run: `cargo run --release -p tables --example classifiers [5tuple|acl [rules masks]]`. The keys of `5tuple` are
//! addresses, protocol and ports; those of `acl` 300 bits of fields of a switch's access list, MAC and IPv6 addresses
//! among them.
#![allow(unsafe_code)]

use abi::EntryHeader;
use base::Bits;
use base::entry::MatchKind::Ternary;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use random::Random;
use std::arch::x86_64::_rdtsc;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tables::{Domain, Runs, Table, TableSpec};

fn runs(entry: &TableEntry) -> Runs<'_> {
    match &entry.action {
        EntryAction::Call(call) => Runs::Call(call),
        other => panic!("only calls here, not {other:?}"),
    }
}

fn any(random: &mut Random, width: u32) -> Bits {
    Bits::new(width, u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()))
}

/// Different masks: prefixes of addresses, all or no bits of other fields.
fn masks(widths: &[u32], count: usize, random: &mut Random) -> Vec<Vec<Bits>> {
    let mut seen = HashSet::new();
    while seen.len() < count {
        let mask: Vec<Bits> = widths
            .iter()
            .map(|&width| match random.below(3) {
                0 if width >= 32 => Bits::ones(width).shl(random.below(u64::from(width - 8))),
                1 => Bits::zero(width),
                _ => Bits::ones(width),
            })
            .collect();
        // Rules that match nearly everything would make every header hit.
        if mask.iter().map(|m| (0..m.width()).filter(|i| m.bit(*i)).count()).sum::<usize>() >= 40 {
            seen.insert(mask.iter().map(|m| m.to_bytes_be()).collect::<Vec<_>>());
        }
    }
    let mut masks: Vec<Vec<Vec<u8>>> = seen.into_iter().collect();
    masks.sort_unstable();
    let bits = |mask: Vec<Vec<u8>>| widths.iter().zip(mask).map(|(w, b)| Bits::from_bytes_be(*w, &b)).collect();
    masks.into_iter().map(bits).collect()
}

/// A packet's key of these field values.
fn key(table: &Table, values: &[Bits]) -> Vec<u64> {
    let layout = table.binding().key;
    let mut bytes = vec![0u8; layout.bytes as usize];
    for (field, value) in layout.fields.iter().zip(values) {
        for (i, byte) in value.to_bytes_be().iter().rev().enumerate() {
            bytes[field.offset as usize + i] = *byte;
        }
    }
    bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))).collect()
}

/// Cycles per key, the minimum of several rounds.
fn cycles(keys: &[u64], words: usize, mut look: impl FnMut(&[u64]) -> usize) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..7 {
        // SAFETY: reading the counter has no effects.
        let start = unsafe { _rdtsc() };
        std::hint::black_box(look(keys));
        // SAFETY: as above.
        let end = unsafe { _rdtsc() };
        best = best.min((end - start) as f64 / (keys.len() / words) as f64);
    }
    best
}

fn measure(name: &str, widths: &[u32], rules: usize, mask_count: usize) {
    let mut random = Random::new(1);
    let masks = masks(widths, mask_count, &mut random);
    let mut seen = HashSet::new();
    let mut entries = Vec::new();
    while entries.len() < rules {
        let mask = &masks[entries.len() % mask_count];
        let values: Vec<Bits> = widths.iter().zip(mask).map(|(w, m)| any(&mut random, *w).and(m)).collect();
        let key: Vec<KeyMatch> =
            values.iter().zip(mask).map(|(v, m)| KeyMatch::Ternary { value: v.clone(), mask: m.clone() }).collect();
        if seen.insert(format!("{key:?}")) {
            let action = EntryAction::Call(ActionCall { action: 0, args: vec![any(&mut random, 16)] });
            let priority = 1 + random.below(1000) as i32;
            entries.push(TableEntry { key, priority, action, idle_timeout_ns: 0 });
        }
    }
    let spec = TableSpec {
        keys: widths.iter().map(|w| (*w, Ternary)).collect(),
        size: 1 << 20,
        actions: vec![vec![16]],
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    };
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a slot is free");
    let mut table = Table::new(spec, runs(&entries[0]), domain).expect("a table");
    let binding = table.binding();
    let (handle, words) = (binding.handle as usize, binding.key.bytes as usize / 8);
    let handle = || handle as *const abi::TableHandle;
    const KEYS: usize = 1 << 14;
    let misses: Vec<u64> = (0..KEYS)
        .flat_map(|_| {
            let values: Vec<Bits> = widths.iter().map(|w| any(&mut random, *w)).collect();
            key(&table, &values)
        })
        .collect();
    let hits: Vec<u64> = (0..KEYS)
        .flat_map(|_| {
            let rule = &entries[random.below(rules as u64) as usize].key;
            let values: Vec<Bits> = rule
                .iter()
                .map(|field| match field {
                    KeyMatch::Ternary { value, mask } => value.or(&any(&mut random, mask.width()).and(&mask.not())),
                    other => panic!("only ternary fields here, not {other:?}"),
                })
                .collect();
            key(&table, &values)
        })
        .collect();
    let one_by_one = |keys: &[u64]| {
        let found = |key: &&[u64]| {
            // SAFETY: the table lives, nothing changes meanwhile or the worker is online; the key has its layout.
            !unsafe { (binding.lookup)(handle(), key.as_ptr().cast()) }.is_null()
        };
        keys.chunks_exact(words).filter(found).count()
    };
    let in_batches = |keys: &[u64]| {
        let mut found = 0;
        let mut out = [std::ptr::null::<EntryHeader>(); 32];
        for batch in keys.chunks(32 * words) {
            let n = batch.len() / words;
            // SAFETY: as above; there is room for 32 entries.
            unsafe { (binding.lookup_batch)(handle(), batch.as_ptr().cast(), n as u32, out.as_mut_ptr()) };
            found += out[..n].iter().filter(|e| !e.is_null()).count();
        }
        found
    };
    let stop = AtomicBool::new(false);
    let (mut inserted, mut deleted) = (0.0, 0.0);
    let repeat = (20_000 / rules).clamp(1, 200);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for batch in hits.chunks(32 * words) {
                    worker.online();
                    std::hint::black_box(in_batches(batch));
                    worker.quiescent();
                }
            }
            worker.offline();
        });
        for round in 0..repeat {
            let start = Instant::now();
            entries.iter().for_each(|e| _ = table.insert(e, runs(e), 0).expect("there is room"));
            inserted += start.elapsed().as_secs_f64();
            if round + 1 < repeat {
                let start = Instant::now();
                entries.iter().for_each(|e| _ = table.delete(&e.key, e.priority).expect("it is there"));
                deleted += start.elapsed().as_secs_f64();
            }
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader does not panic");
    });
    table.collect();
    assert_eq!(one_by_one(&hits), KEYS, "all hit");
    assert_eq!(in_batches(&misses), one_by_one(&misses));
    let missed = KEYS - one_by_one(&misses);
    println!(
        "{name:6} {rules:6} rules, {mask_count:3} masks: cycles per lookup: miss {:6.1}, in batches {:6.1}; hit {:6.1}, in \
         batches {:6.1}; insert {:5.2} M/s, delete {:5.2} M/s; {:.3} of the misses miss",
        cycles(&misses, words, one_by_one),
        cycles(&misses, words, in_batches),
        cycles(&hits, words, one_by_one),
        cycles(&hits, words, in_batches),
        (rules * repeat) as f64 / inserted / 1e6,
        (rules * (repeat - 1)) as f64 / deleted / 1e6,
        missed as f64 / KEYS as f64,
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).map(|n| n.parse().expect("a number"));
    for (name, widths) in
        [("5tuple", &[32, 32, 8, 16, 16][..]), ("acl", &[1, 1, 48, 48, 16, 32, 32, 64, 64, 8, 6, 2, 8, 16, 16, 8])]
    {
        if args.first().is_some_and(|only| only != name) {
            continue;
        }
        if let (Some(rules), Some(masks)) = (number(1), number(2)) {
            measure(name, widths, rules, masks);
            continue;
        }
        for (rules, masks) in [
            (1, 1),
            (5, 5),
            (10, 10),
            (16, 16),
            (100, 1),
            (100, 10),
            (500, 10),
            (500, 50),
            (1000, 20),
            (10_000, 1),
            (10_000, 20),
            (10_000, 50),
        ] {
            measure(name, widths, rules, masks);
        }
    }
}

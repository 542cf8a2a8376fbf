//! How fast tables fill and change while a reader looks keys up, the time of lookups, and memory per entry. Times are
//! the writer's processor time; lookups are measured alone.
//!
//! Run: `cargo run --release -p tables --example rates [entries [table]]`. Memory is right only for the first table of
//! a run, since the allocator keeps what the others free.
#![allow(unsafe_code)]

use base::Bits;
use base::entry::MatchKind::{self, Exact, Lpm, Range, Ternary};
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use std::sync::atomic::{AtomicBool, Ordering};
use tables::{Domain, Runs, Table, TableSpec};

fn mix(n: u64) -> u64 {
    let z = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn bits(width: u32, value: u64) -> Bits {
    Bits::new(width, u128::from(value))
}

/// Prefix lengths roughly as in the Internet's tables: most are /24 (or /48), some longer, the rest spread over shorter
/// ones.
fn lpm(width: u32, n: u64) -> KeyMatch {
    let (most, longest) = if width == 32 { (24, 32) } else { (48, 64) };
    let prefix_len = match n % 10 {
        0..6 => most,
        6 => longest,
        _ => most - 8 + (n / 10 % 8) as u32,
    };
    let mask = Bits::ones(width).shl(u64::from(width - prefix_len));
    let value = if width == 32 { bits(32, mix(n)) } else { bits(128, mix(n) >> 3 | 1 << 61).shl(64) };
    KeyMatch::Lpm { value: value.and(&mask), prefix_len }
}

fn entry(kinds: &[(u32, MatchKind)], n: u64) -> TableEntry {
    let field = |(i, (width, kind)): (usize, &(u32, MatchKind))| match kind {
        Lpm => lpm(*width, n),
        Ternary => {
            let mask = Bits::ones(*width).shl(n % 9);
            KeyMatch::Ternary { value: bits(*width, mix(n + i as u64)).and(&mask), mask }
        }
        Range => KeyMatch::Range { low: bits(*width, n % 1000), high: bits(*width, n % 1000 + n % 3) },
        _ => KeyMatch::Exact(bits(*width, mix(n + i as u64))),
    };
    let action = EntryAction::Call(ActionCall { action: 0, args: vec![bits(48, n), bits(9, n)] });
    let priority = if kinds.iter().any(|(_, k)| k.needs_priority()) { 1 + (n % 100) as i32 } else { 0 };
    TableEntry { key: kinds.iter().enumerate().map(field).collect(), priority, action, idle_timeout_ns: 0 }
}

/// Time that this thread has run, so that other work on the machine does not count.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|s| s.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn call(entry: &TableEntry) -> Runs<'_> {
    match &entry.action {
        EntryAction::Call(call) => Runs::Call(call),
        other => panic!("only calls here, not {other:?}"),
    }
}

fn measure(name: &str, kinds: &[(u32, MatchKind)], count: u64) {
    let spec = TableSpec {
        keys: kinds.to_vec(),
        size: count,
        actions: vec![vec![48, 9]],
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    };
    let entries: Vec<TableEntry> = (0..count).map(|n| entry(kinds, n)).collect();
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a slot is free");
    let before = resident_bytes();
    let mut table = Table::new(spec, call(&entries[0]), domain).expect("a table");
    let binding = table.binding();
    let stop = AtomicBool::new(false);
    let words = binding.key.bytes as usize / 8;
    // Keys of entries in another order; the bits after a prefix are zero.
    let keys: Vec<u64> = (0..1 << 16)
        .flat_map(|i| {
            let key = &entries[(mix(i) % count) as usize].key;
            let mut bytes = vec![0u8; 8 * words];
            for (field, value) in binding.key.fields.iter().zip(key) {
                let value = match value {
                    KeyMatch::Exact(v) | KeyMatch::Lpm { value: v, .. } | KeyMatch::Ternary { value: v, .. } => v,
                    KeyMatch::Range { low, .. } => low,
                    KeyMatch::Optional(_) => continue,
                };
                for (i, byte) in value.to_bytes_be().iter().rev().enumerate() {
                    bytes[field.offset as usize + i] = *byte;
                }
            }
            bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))).collect::<Vec<_>>()
        })
        .collect();
    let handle = binding.handle as usize;
    let look = |key: &[u64]| -> bool {
        // SAFETY: the table lives until the reader has stopped; the key has its layout.
        !unsafe { (binding.lookup)(handle as *const abi::TableHandle, key.as_ptr().cast()) }.is_null()
    };
    let mut looked = 0u64;
    let [mut inserted, mut modified, mut deleted] = [0.0; 3];
    let mut alone = 0.0;
    let mut installed = 0;
    let mut bytes = 0;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looked = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for batch in keys.chunks(32 * words) {
                    worker.online();
                    looked += batch.chunks(words).filter(|key| look(key)).count() as u64;
                    worker.quiescent();
                }
            }
            worker.offline();
            looked
        });
        let start = cpu_seconds();
        installed = entries.iter().filter(|e| table.insert(e, call(e), 0).is_ok()).count();
        inserted = cpu_seconds() - start;
        bytes = resident_bytes().saturating_sub(before) / installed.max(1) as u64;
        let start = cpu_seconds();
        entries.iter().for_each(|e| _ = table.modify(e, call(e)));
        modified = cpu_seconds() - start;
        stop.store(true, Ordering::Relaxed);
        looked = reader.join().expect("the reader does not panic");
        let start = cpu_seconds();
        let hits = (0..16).flat_map(|_| keys.chunks(words)).filter(|key| look(key)).count();
        alone = (cpu_seconds() - start) / (16.0 * 65536.0);
        assert_eq!(hits, 16 * 65536, "all keys are there");
        let start = cpu_seconds();
        entries.iter().for_each(|e| _ = table.delete(&e.key, e.priority));
        deleted = cpu_seconds() - start;
    });
    let rate = |seconds: f64| installed as f64 / seconds / 1e6;
    println!(
        "{name:24} {installed:9} entries: insert {:5.2} M/s, modify {:5.2} M/s, delete {:5.2} M/s, lookup {:6.1} ns, \
         {bytes} B/entry; {looked} lookups meanwhile",
        rate(inserted),
        rate(modified),
        rate(deleted),
        alone * 1e9,
    );
}

fn main() {
    let count = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number of entries"));
    let only = std::env::args().nth(2);
    let tables: [(&str, &[(u32, MatchKind)]); 7] = [
        ("exact 48", &[(48, Exact)]),
        ("exact 128", &[(128, Exact)]),
        ("exact 272", &[(128, Exact), (128, Exact), (16, Exact)]),
        ("lpm 32", &[(32, Lpm)]),
        ("lpm 128", &[(128, Lpm)]),
        ("exact 12 + lpm 32", &[(12, Exact), (32, Lpm)]),
        ("ternary 32 + range 16", &[(32, Ternary), (16, Range)]),
    ];
    for (name, kinds) in tables.into_iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)) {
        measure(name, kinds, count);
    }
}

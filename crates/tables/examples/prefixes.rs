//! Longest prefix match on tables shaped like the Internet's (`tables::workload`): cycles of the time stamp counter per
//! lookup, one by one and in batches of 32; bytes per prefix, counted by the allocator; insertions while a reader runs.
//!
//! Run: `cargo run --release -p tables --example prefixes [v4|v6|vrf [entries [hops]]]`. `hops` is the number of
//! different actions; with `0` all are different.
#![allow(unsafe_code)]

use abi::EntryHeader;
use base::Bits;
use base::entry::MatchKind::{Exact, Lpm};
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use random::Random;
use std::alloc::{GlobalAlloc, Layout, System};
use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tables::workload::{ipv4_prefixes, ipv6_prefixes};
use tables::{Domain, Runs, Table, TableSpec};

/// Counts the bytes that are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Only one thread allocates while it counts, so counting needs no atomic addition, which would distort the times.
fn count(bytes: usize) {
    IN_USE.store(IN_USE.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size().wrapping_neg());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.wrapping_sub(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|s| s.split(' ').nth(1)?.parse::<usize>().ok()).unwrap_or(0) * 4096
}

fn call(entry: &TableEntry) -> Runs<'_> {
    match &entry.action {
        EntryAction::Call(call) => Runs::Call(call),
        other => panic!("only calls here, not {other:?}"),
    }
}

/// The prefixes of a table and, with VRFs, the exact field of each entry.
struct Content {
    width: u32,
    vrf: bool,
    prefixes: Vec<(u128, u32)>,
    hops: u64,
}

const VRFS: u64 = 16;

impl Content {
    fn entry(&self, i: usize) -> TableEntry {
        let (value, prefix_len) = self.prefixes[i];
        let mut key = vec![KeyMatch::Lpm { value: Bits::new(self.width, value), prefix_len }];
        if self.vrf {
            key.insert(0, KeyMatch::Exact(Bits::new(12, u128::from(i as u64 % VRFS))));
        }
        let hop = if self.hops == 0 { i as u64 } else { Random::new(i as u64).below(self.hops) };
        let args = vec![Bits::new(48, hop.into()), Bits::new(9, u128::from(hop & 255))];
        TableEntry { key, priority: 0, action: EntryAction::Call(ActionCall { action: 0, args }), idle_timeout_ns: 0 }
    }

    /// Seconds that `f` takes for the entries from `from` on. Entries are made a few at a time, so that they are in the
    /// cache as those of a request would be.
    fn time(&self, from: usize, mut f: impl FnMut(&TableEntry)) -> f64 {
        let mut seconds = 0.0;
        for first in (from..self.prefixes.len()).step_by(256) {
            let last = (first + 256).min(self.prefixes.len());
            let entries: Vec<TableEntry> = (first..last).map(|i| self.entry(i)).collect();
            let start = Instant::now();
            entries.iter().for_each(&mut f);
            seconds += start.elapsed().as_secs_f64();
        }
        seconds
    }

    /// Keys of packets whose destinations are covered by some prefix.
    fn keys(&self, count: usize, words: usize) -> Vec<u64> {
        let mut random = Random::new(7);
        let mut keys = Vec::with_capacity(count * words);
        for _ in 0..count {
            let i = random.below(self.prefixes.len() as u64) as usize;
            let (value, len) = self.prefixes[i];
            let rest = if len == 128 { 0 } else { u128::MAX >> len };
            let any = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
            let value = (value << (128 - self.width) | any & rest) >> (128 - self.width);
            let vrf = i as u64 % VRFS;
            match (self.width, self.vrf) {
                (32, false) => keys.push(value as u64),
                (32, true) => keys.push(vrf | (value as u64) << 32),
                (_, false) => keys.extend([value as u64, (value >> 64) as u64]),
                (_, true) => keys.extend([vrf, value as u64, (value >> 64) as u64]),
            }
        }
        keys
    }
}

/// Cycles per key, the minimum of several rounds.
fn cycles(keys: &[u64], words: usize, rounds: usize, mut look: impl FnMut(&[u64]) -> usize) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let repeat = (1 << 18) / (keys.len() / words) + 1;
        // SAFETY: reading the counter has no effects.
        let start = unsafe { _rdtsc() };
        let found: usize = (0..repeat).map(|_| look(keys)).sum();
        // SAFETY: as above.
        let end = unsafe { _rdtsc() };
        assert!(found > 0);
        best = best.min((end - start) as f64 / (repeat * (keys.len() / words)) as f64);
    }
    best
}

fn measure(name: &str, content: &Content) {
    let count = content.prefixes.len();
    let lpm = (content.width, Lpm);
    let keys = if content.vrf { vec![(12, Exact), lpm] } else { vec![lpm] };
    let actions = vec![vec![48, 9]];
    let spec = TableSpec {
        keys,
        size: count as u64,
        actions,
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    };
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a slot is free");
    let default = content.entry(0);
    let (counted, resident) = (IN_USE.load(Ordering::Relaxed), resident_bytes());
    let mut table = Table::new(spec, call(&default), domain).expect("a table");
    let binding = table.binding();
    let (handle, words) = (binding.handle as usize, binding.key.bytes as usize / 8);
    let hot = content.keys(64, words);
    let cold = content.keys(1 << 20, words);
    let (counted, resident) = (counted + 8 * (hot.len() + cold.len()), resident + 8 * (hot.len() + cold.len()));
    let handle = || handle as *const abi::TableHandle;
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
    let (mut first_insert, mut inserted, mut looked) = (0.0, 0.0, 0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looked = 0usize;
            while !stop.load(Ordering::Relaxed) {
                for batch in cold.chunks(32 * words) {
                    worker.online();
                    in_batches(batch);
                    looked += batch.len() / words;
                    worker.quiescent();
                }
            }
            worker.offline();
            looked
        });
        let mut insert = |e: &TableEntry| _ = table.insert(e, call(e), 0).expect("there is room");
        let first = content.entry(0);
        let start = Instant::now();
        insert(&first);
        first_insert = start.elapsed().as_secs_f64();
        inserted = content.time(1, insert);
        stop.store(true, Ordering::Relaxed);
        looked = reader.join().expect("the reader does not panic");
    });
    table.collect();
    let bytes = (IN_USE.load(Ordering::Relaxed) - counted) as f64 / count as f64;
    let resident = resident_bytes().saturating_sub(resident) as f64 / count as f64;
    assert_eq!(one_by_one(&cold), cold.len() / words, "all keys match");
    assert_eq!(in_batches(&cold), cold.len() / words, "all keys match");
    let [hot_one, hot_batch] = [cycles(&hot, words, 9, one_by_one), cycles(&hot, words, 9, in_batches)];
    let [cold_one, cold_batch] = [cycles(&cold, words, 3, one_by_one), cycles(&cold, words, 3, in_batches)];
    let deleted = content.time(0, |e| _ = table.delete(&e.key, 0).expect("it is there"));
    println!(
        "{name:4} {count:8} prefixes: cycles per lookup: hot {hot_one:5.1}, in batches {hot_batch:5.1}; \
         random {cold_one:5.1}, in batches {cold_batch:5.1}; {bytes:5.1} B/prefix (resident {resident:5.1}); \
         insert {:4.2} M/s after the first one in {:3.0} us ({looked} lookups meanwhile), delete {:4.2} M/s",
        (count - 1) as f64 / inserted / 1e6,
        first_insert * 1e6,
        count as f64 / deleted / 1e6,
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let only = args.first();
    let counts = match args.get(1) {
        Some(count) => vec![count.parse().expect("a number of entries")],
        None => vec![1_000_000, 100_000, 1_000],
    };
    let hops = args.get(2).map_or(1000, |n| n.parse().expect("a number of next hops"));
    for name in ["v4", "v6", "vrf"].into_iter().filter(|name| only.is_none_or(|only| only == name)) {
        for &count in &counts {
            let prefixes = match name {
                "v6" => ipv6_prefixes(count, 1),
                _ => ipv4_prefixes(count, 1).into_iter().map(|(value, len)| (value.into(), len)).collect(),
            };
            let width = if name == "v6" { 128 } else { 32 };
            measure(name, &Content { width, vrf: name == "vrf", prefixes, hops });
        }
    }
}

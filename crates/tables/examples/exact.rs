//! Exact tables alone: memory per entry; how fast tables fill and change while a reader looks keys up; the longest
//! insertion; and the time of lookups that hit and that miss, one by one and in batches. Times are the thread's
//! processor time, except for the longest insertion.
//!
//! Run: `cargo run --release -p tables --example exact [shape [entries ...]]`, shapes as printed; without entries: 1k,
//! 100k, 1M, 10M.
#![allow(unsafe_code)]

use abi::EntryHeader;
use base::Bits;
use base::entry::MatchKind::Exact;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tables::{Domain, Runs, Table, TableSpec};

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn mix(n: u64) -> u64 {
    let z = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Widths in bits of key fields and parameters.
struct Shape {
    name: &'static str,
    keys: &'static [u32],
    params: &'static [u32],
}

const SHAPES: [Shape; 4] = [
    Shape { name: "vlan+mac", keys: &[12, 48], params: &[9] },
    Shape { name: "16-byte", keys: &[128], params: &[48, 16] },
    Shape { name: "ipv6-tuple", keys: &[128, 128, 16], params: &[48, 9] },
    Shape { name: "next-hop", keys: &[32], params: &[48, 48, 9] },
];

/// The values of key `n`, in the order of the table's layout.
fn values(shape: &Shape, n: u64) -> Vec<Bits> {
    let value = |(i, width): (usize, &u32)| {
        let word = |j: u64| u128::from(mix(n + ((i as u64) << 40) + (j << 50)));
        match *width {
            // The factor is odd, so no key is drawn twice.
            32 => Bits::new(32, u128::from(n.wrapping_mul(0x9e37_79b1))),
            _ => Bits::new(*width, word(1) << 64 | word(2)),
        }
    };
    shape.keys.iter().enumerate().map(value).collect()
}

fn entry(shape: &Shape, n: u64) -> TableEntry {
    let args = shape.params.iter().map(|w| Bits::new(*w, u128::from(n))).collect();
    let key = values(shape, n).into_iter().map(KeyMatch::Exact).collect();
    TableEntry { key, priority: 0, action: EntryAction::Call(ActionCall { action: 0, args }), idle_timeout_ns: 0 }
}

fn call(entry: &TableEntry) -> Runs<'_> {
    match &entry.action {
        EntryAction::Call(call) => Runs::Call(call),
        other => panic!("only calls here, not {other:?}"),
    }
}

/// Time that this thread has run, so that other work on the machine does not count.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn key_words(table: &Table, shape: &Shape, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let layout = table.binding().key;
    let words = layout.bytes as usize / 8;
    let mut keys = Vec::new();
    for n in numbers {
        let at = keys.len();
        keys.resize(at + words, 0);
        for (field, value) in layout.fields.iter().zip(values(shape, n)) {
            for (i, byte) in value.to_bytes_be().iter().rev().enumerate() {
                let byte_at = field.offset as usize + i;
                keys[at + byte_at / 8] |= u64::from(*byte) << (byte_at % 8 * 8);
            }
        }
    }
    keys
}

/// Nanoseconds per lookup, the minimum of several rounds.
fn lookups(table: &Table, keys: &[u64], batched: bool) -> f64 {
    const BATCH: usize = 64;
    let binding = table.binding();
    let words = binding.key.bytes as usize / 8;
    let count = keys.len() / words;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = cpu_seconds();
        for batch in keys.chunks(BATCH * words) {
            let mut out = [std::ptr::null::<EntryHeader>(); BATCH];
            // SAFETY: the table lives, the keys have its layout, there is room.
            unsafe {
                if batched {
                    let count = (batch.len() / words) as u32;
                    (binding.lookup_batch)(binding.handle, batch.as_ptr().cast(), count, out.as_mut_ptr());
                } else {
                    for (key, out) in batch.chunks(words).zip(&mut out) {
                        *out = (binding.lookup)(binding.handle, key.as_ptr().cast());
                    }
                }
            }
            black_box(&out);
        }
        best = best.min((cpu_seconds() - start) / count as f64);
    }
    best * 1e9
}

fn measure(shape: &Shape, count: u64) {
    let spec = TableSpec {
        keys: shape.keys.iter().map(|w| (*w, Exact)).collect(),
        size: count,
        actions: vec![shape.params.to_vec()],
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    };
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a slot is free");
    let first = entry(shape, 0);
    let before = ALLOCATED.load(Ordering::Relaxed);
    let mut table = Table::new(spec, call(&first), domain).expect("a table");
    let some = count.min(1 << 18);
    let hits = key_words(&table, shape, (0..some).map(|i| mix(i) % count));
    let misses = key_words(&table, shape, (0..some).map(|i| count + mix(i) % (1 << 30)));
    let others = hits.capacity() * 8 + misses.capacity() * 8;
    let binding = table.binding();
    let words = binding.key.bytes as usize / 8;
    let (handle, lookup_batch) = (binding.handle as usize, binding.lookup_batch);
    let stop = AtomicBool::new(false);
    let (mut inserted, mut modified, mut deleted, mut longest_ns) = (0.0, 0.0, 0.0, 0);
    let chunk = 4096;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for batch in hits.chunks(32 * words) {
                    worker.online();
                    let mut out = [std::ptr::null::<EntryHeader>(); 32];
                    let count = (batch.len() / words) as u32;
                    // SAFETY: the table lives until the reader has stopped; the keys have its layout, there is room.
                    unsafe {
                        lookup_batch(handle as *const abi::TableHandle, batch.as_ptr().cast(), count, out.as_mut_ptr())
                    };
                    black_box(&out);
                    worker.quiescent();
                }
            }
            worker.offline();
        });
        // Entries are made chunk by chunk, outside of the measured time.
        let mut each = |work: &mut dyn FnMut(&mut Table, &TableEntry)| -> f64 {
            let mut seconds = 0.0;
            for from in (0..count).step_by(chunk) {
                let entries: Vec<TableEntry> =
                    (from..(from + chunk as u64).min(count)).map(|n| entry(shape, n)).collect();
                let start = cpu_seconds();
                entries.iter().for_each(|e| work(&mut table, e));
                seconds += cpu_seconds() - start;
            }
            seconds
        };
        inserted = each(&mut |table, e| {
            let start = Instant::now();
            table.insert(e, call(e), 0).expect("there is room");
            longest_ns = longest_ns.max(start.elapsed().as_nanos());
        });
        modified = each(&mut |table, e| _ = table.modify(e, call(e)).expect("it is there"));
        stop.store(true, Ordering::Relaxed);
    });
    table.collect();
    let other_bytes = ALLOCATED.load(Ordering::Relaxed) - before - others;
    let bytes = table.binding().footprint_bytes as f64 / count as f64;
    let needed: f64 = shape.keys.iter().chain(shape.params).map(|w| f64::from(w.div_ceil(8))).sum();
    let times = [(&hits, false), (&hits, true), (&misses, false), (&misses, true)];
    let [hit, hit_batched, miss, miss_batched] = times.map(|(keys, batched)| lookups(&table, keys, batched));
    for from in (0..count).step_by(chunk) {
        let entries: Vec<TableEntry> = (from..(from + chunk as u64).min(count)).map(|n| entry(shape, n)).collect();
        let start = cpu_seconds();
        entries.iter().for_each(|e| _ = table.delete(&e.key, 0).expect("it is there"));
        deleted += cpu_seconds() - start;
    }
    let rate = |seconds: f64| count as f64 / seconds / 1e6;
    println!(
        "{:10} {count:9} entries: {bytes:5.1} B/entry, {:5.1} beyond key and data (allocated besides: {other_bytes} B); \
         insert {:5.2} M/s, longest {:6.2} ms, modify {:5.2} M/s, delete {:5.2} M/s; \
         hit {hit:5.1} ns, batched {hit_batched:5.1}; miss {miss:5.1}, batched {miss_batched:5.1}",
        shape.name,
        bytes - needed,
        rate(inserted),
        longest_ns as f64 / 1e6,
        rate(modified),
        rate(deleted),
    );
}

fn main() {
    let only = std::env::args().nth(1);
    let counts: Vec<u64> = std::env::args().skip(2).map(|n| n.parse().expect("a number of entries")).collect();
    let counts = if counts.is_empty() { vec![1_000, 100_000, 1_000_000, 10_000_000] } else { counts };
    for shape in SHAPES.iter().filter(|s| only.as_ref().is_none_or(|only| only == s.name)) {
        counts.iter().for_each(|count| measure(shape, *count));
    }
}

//! Ternary tables in which every entry has a mask of its own: microseconds per insertion, change of action, change of
//! rank and deletion, by the number of entries, and the longest single insertion. Times are the writer's processor
//! time.
//!
//! Run: `cargo run --release -p tables --example masks [entries [field width]]`.

use base::Bits;
use base::entry::MatchKind::{Range, Ternary};
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use tables::{Domain, Runs, Table, TableSpec};

fn mix(n: u64) -> u64 {
    let z = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn runs(entry: &TableEntry) -> Runs<'_> {
    match &entry.action {
        EntryAction::Call(call) => Runs::Call(call),
        other => panic!("only calls here, not {other:?}"),
    }
}

/// Entry `n`, whose mask no other one has.
fn entry(width: u32, ranges: bool, n: u64, argument: u64) -> TableEntry {
    let mask = Bits::new(width, u128::from(mix(n)) << 64 | u128::from(n.reverse_bits() | n));
    let mut key = vec![KeyMatch::Ternary { value: Bits::new(width, u128::from(mix(n + 7))).and(&mask), mask }];
    if ranges {
        key.push(KeyMatch::Range {
            low: Bits::new(16, u128::from(n % 1000)),
            high: Bits::new(16, u128::from(n % 1000 + n % 7)),
        });
    }
    let action = EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(16, u128::from(argument))] });
    TableEntry { key, priority: 1 + (mix(n) % 1000) as i32, action, idle_timeout_ns: 0 }
}

/// Time that this thread has run, so that other work on the machine does not count.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

/// Microseconds per step, of all and of the last tenth, and milliseconds of the longest step by the clock.
fn time(count: u64, mut step: impl FnMut(u64)) -> String {
    let (start, mut last, mut longest) = (cpu_seconds(), 0.0, 0.0f64);
    for n in 0..count {
        if n == count - count / 10 {
            last = cpu_seconds();
        }
        let before = std::time::Instant::now();
        step(n);
        longest = longest.max(before.elapsed().as_secs_f64());
    }
    let end = cpu_seconds();
    let of = |from: f64, count: u64| (end - from) * 1e6 / count as f64;
    format!("{:7.2} {:7.2} {:6.2} ms", of(start, count), of(last, count / 10), longest * 1e3)
}

fn measure(width: u32, ranges: bool, count: u64) {
    let keys = [(width, Ternary), (16, Range)][..1 + usize::from(ranges)].to_vec();
    let spec = TableSpec {
        keys,
        size: count,
        actions: vec![vec![16]],
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    };
    let entries: Vec<TableEntry> = (0..count).map(|n| entry(width, ranges, n, n)).collect();
    let mut table = Table::new(spec, runs(&entries[0]), Domain::new(1)).expect("a table");
    let insert = time(count, |n| {
        table.insert(&entries[n as usize], runs(&entries[n as usize]), 0).expect("room");
    });
    let modify = time(count, |n| {
        let other = TableEntry { action: entry(width, ranges, n, n + 1).action, ..entries[n as usize].clone() };
        table.modify(&other, runs(&other)).expect("it is there");
    });
    let delete = time(count, |n| {
        let gone = &entries[n as usize];
        table.delete(&gone.key, gone.priority).expect("it is there");
    });
    let name = format!("{width} bits{}", if ranges { ", range" } else { "" });
    println!("{name:15} {count:>8} insert {insert}  modify {modify}  delete {delete}");
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let only = arguments.next();
    let width = arguments.next().map(|width| width as u32);
    println!("microseconds per step: of all, of the last tenth; the longest step");
    for count in [1_000, 5_000, 10_000, 19_000, 38_000, 100_000] {
        for (width, ranges) in [(width.unwrap_or(32), false), (width.unwrap_or(104), false), (64, true)] {
            if only.is_none_or(|only| only >= count) {
                measure(width, ranges, count);
            }
        }
    }
}

//! The cost of a packet-written table on this machine: entries added per second, with lookups between them; bytes per
//! entry; the cost of expiry for lookups; and the cost of a flood of new keys for established ones.
//!
//! `cargo run --release -p tables --example learn [ENTRIES]`
#![allow(unsafe_code, reason = "calls what compiled code calls")]

use abi::TableBinding;
use base::Bits;
use base::entry::{ActionCall, MatchKind};
use std::sync::Arc;
use std::time::Instant;
use tables::{Domain, DynamicSpec, Runs, Table, TableSpec};

const TICK: u64 = abi::entry::TICK_US;
/// Lookups or insertions between two quiescent points.
const BATCH: usize = 32;

/// A table of IPv4 connections: 13 bytes of key, one parameter of 40 bits.
fn made(size: u64, evicts: bool, domain: &Arc<Domain>) -> Table {
    let keys = [32, 32, 16, 16, 8].map(|w| (w, MatchKind::Exact)).to_vec();
    let actions = vec![vec![40], vec![]];
    let spec = TableSpec { keys, size, actions, members: false, selector: false, idle_timeout: true, direct: false };
    let dynamic = DynamicSpec {
        expires: true,
        deletes: true,
        tells: false,
        restart_on_hit: false,
        expire_ms: vec![300_000, 5_000],
        evicts,
        step_ticks: 512,
    };
    let default = ActionCall { action: 1, args: vec![] };
    Table::dynamic(spec, dynamic, Runs::Call(&default), Arc::clone(domain)).expect("exact keys")
}

fn key(number: u64) -> [u64; 2] {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed, number & 0xff_ffff_ffff]
}

fn entry(binding: &TableBinding) -> Vec<u8> {
    let value = Bits::new(40, 0x12_3456_789a).to_bytes_be();
    let mut bytes = vec![0; binding.entry.sizes[0] as usize];
    bytes[binding.entry.params[0][0] as usize..][..5].copy_from_slice(&value);
    bytes
}

fn add(binding: &TableBinding, entry: &[u8], number: u64, expire: u32, now: u64) -> bool {
    let call = binding.dynamic.as_ref().expect("a table that packets write").add;
    // SAFETY: key and entry have the table's layout.
    unsafe { call(binding.handle, key(number).as_ptr().cast(), entry.as_ptr(), entry.len() as u32, expire, now) == 0 }
}

/// Looks a batch up as compiled code does, and restarts the idle time of the entries found. Returns the number of hits.
fn hits(binding: &TableBinding, numbers: &[u64], now: u64) -> usize {
    let keys: Vec<[u64; 2]> = numbers.iter().map(|n| key(*n)).collect();
    let mut found = vec![std::ptr::null(); numbers.len()];
    let timer = binding.entry.timer.expect("timers") as isize;
    // SAFETY: keys of the table's layout; what is found is written as compiled code does.
    unsafe {
        (binding.lookup_batch)(binding.handle, keys.as_ptr().cast(), numbers.len() as u32, found.as_mut_ptr());
        for entry in found.iter().filter(|e| !e.is_null()) {
            entry.cast::<u8>().cast_mut().offset(timer).cast::<u32>().write((now / TICK) as u32);
        }
    }
    found.iter().filter(|e| !e.is_null()).count()
}

fn ns_each(began: Instant, count: u64) -> f64 {
    began.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn main() {
    let entries: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    let domain = Domain::new(2);
    let mut worker = domain.register().expect("a place");
    worker.online();
    let mut table = made(entries, false, &domain);
    let binding = table.binding();
    let entry = entry(&binding);
    let bytes = table.memory_bytes() as f64 / entries as f64;
    println!("{entries} entries: {bytes:.1} bytes each, {:.1} beyond key and data", bytes - 13.0 - 5.0);

    let began = Instant::now();
    for number in 0..entries {
        assert!(add(&binding, &entry, number, 0, 0));
        if number.is_multiple_of(BATCH as u64) {
            worker.quiescent();
        }
    }
    println!("added, nothing else: {:.1} ns each, {:.2} M/s", ns_each(began, entries), 1e3 / ns_each(began, entries));

    let some: Vec<u64> = (0..1_000_000u64).map(|i| i.wrapping_mul(2_654_435_761) % entries).collect();
    let mut now = 1_000_000;
    let rounds = 8;
    let lookups = |table: &mut Option<&mut Table>, worker: &mut tables::Worker, now: &mut u64| {
        let began = Instant::now();
        let mut found = 0;
        for (i, batch) in some.chunks(BATCH).cycle().take(rounds * some.len() / BATCH).enumerate() {
            found += hits(&binding, batch, *now);
            worker.quiescent();
            // The clock advances as for a million packets per second; housekeeping runs every 100 ms of it.
            *now += BATCH as u64;
            if let Some(table) = table
                && i % (100_000 / BATCH) == 0
            {
                table.expire(*now, |_| {});
            }
        }
        (ns_each(began, (rounds * some.len()) as u64), found)
    };
    let (without, found) = lookups(&mut None, &mut worker, &mut now);
    println!("lookups: {without:.1} ns each, {found} hits");
    let (with, _) = lookups(&mut Some(&mut table), &mut worker, &mut now);
    println!("with expiry: {with:.1} ns each, {:+.1} %", (with / without - 1.0) * 100.0);

    // All entries that were not looked up expire.
    let began = Instant::now();
    let before = table.len();
    table.expire(now + 299_000_000, |_| {});
    let ended = before - table.len();
    println!("ended: {ended} at once, {:.1} ns each", ns_each(began, ended.max(1)));

    // A tenth of the packets add new keys to a full table: a flood beside established connections.
    for evicts in [false, true] {
        let size = 1 << 20;
        let mut table = made(size, evicts, &domain);
        let binding = table.binding();
        let established = size / 2;
        (0..established).for_each(|n| _ = add(&binding, &entry, n, 0, 0));
        let run = |flood: bool, table: &mut Table, worker: &mut tables::Worker| {
            let (began, mut spent, mut new, mut now) = (Instant::now(), 0.0, 1 << 40, 1_000_000u64);
            let packets = 4_000_000u64;
            for i in 0..packets / BATCH as u64 {
                let numbers: Vec<u64> =
                    (0..BATCH as u64).map(|j| (i * 31 + j).wrapping_mul(2_654_435_761) % established).collect();
                hits(&binding, &numbers, now);
                if flood {
                    let flooding = Instant::now();
                    for _ in 0..BATCH {
                        new += 1;
                        add(&binding, &entry, new, 1, now);
                    }
                    spent += flooding.elapsed().as_secs_f64();
                }
                worker.quiescent();
                now += BATCH as u64;
                if i % 3000 == 0 {
                    table.expire(now, |_| {});
                }
            }
            let own = (began.elapsed().as_secs_f64() - spent) * 1e9 / packets as f64;
            (own, spent * 1e9 / packets as f64)
        };
        let (quiet, _) = run(false, &mut table, &mut worker);
        let (own, flood) = run(true, &mut table, &mut worker);
        let counts = table.dynamic_counts();
        println!(
            "flood, evicts {evicts}: {flood:.1} ns a new key; established ones {quiet:.1} ns without, {own:.1} ns with, {:+.1} %; {counts:?}",
            (own / quiet - 1.0) * 100.0
        );
    }
}

//! Entries and frames for generated programs.

use super::{Flows, ORACLE_FRAMES, Workload, sequence};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::generated;
use crate::prefixes;
use crate::source::Source;
use random::Random;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

const SEED: u64 = 1;
const FORWARD: &[&str] = &["t.forward"];

fn workload(kinds: &'static [&'static str], text: String, entries: super::Entries, frames: Frames) -> Workload {
    Workload {
        program: "generated",
        source: Source::Text(text),
        kinds,
        entries,
        frames,
        odd: Frames::default(),
        oracle: None,
        setup: None,
    }
}

/// The `i`th address of a sequence without repetition.
fn address(i: u64) -> u64 {
    // A bijection of 40-bit numbers: multiplication by an odd number modulo 2^40.
    0x0200_0000_0000 | i.wrapping_mul(0x9e_3779_b97f_4a7d) & 0xff_ffff_ffff
}

/// `count` numbers below `n` in random order: each one once before any repeats.
fn every(n: usize, count: usize, rng: &mut Random) -> Vec<u32> {
    let mut all = Vec::with_capacity(count + n);
    while all.len() < count {
        all.extend(sequence(Flows::Uniform(n), rng));
    }
    all.truncate(count);
    all
}

/// One exact table with `n` entries, hit equally often.
pub fn exact(n: usize, flows: usize) -> Workload {
    let mut frames = Frames::with_capacity(flows, 64);
    let mut w = Writer::default();
    let sampled = every(n, flows, &mut Random::stream(SEED, 1));
    for &i in &sampled {
        w.clear().ethernet(address(i.into()), 0x0200_0000_0001).be::<2>(0x88b5).pad(64);
        frames.push(1, &w.0);
    }
    let entry = |i: u64| Entry::exact(0, &[address(i)], &[1 + i % 16]);
    let entries = move |emit: &mut dyn FnMut(&Entry)| (0..n as u64).for_each(|i| emit(&entry(i)));
    let first: BTreeSet<u32> = sampled.into_iter().take(ORACLE_FRAMES).collect();
    let oracle = move |emit: &mut dyn FnMut(&Entry)| first.iter().for_each(|&i| emit(&entry(i.into())));
    let text = generated::one_table("exact", n.max(1024));
    Workload { oracle: Some(Arc::new(oracle)), ..workload(FORWARD, text, Arc::new(entries), frames) }
}

fn tcp(w: &mut Writer, from: u32, to: u32, protocol: u8, ports: (u64, u64)) {
    w.clear().ethernet(0x0200_5e00_0001, 0x0200_0000_0001).ipv4(from, to, protocol, 64, 30);
    w.be::<2>(ports.0).be::<2>(ports.1).pad(64);
}

/// One LPM table with `n` prefixes, hit equally often.
pub fn lpm(n: usize, flows: usize) -> Workload {
    let routes = prefixes::ipv4(n, SEED);
    let mut frames = Frames::with_capacity(flows, 64);
    let (mut rng, mut w) = (Random::stream(SEED, 1), Writer::default());
    // Prefixes of all lengths that contain the addresses of the first frames.
    let mut met = HashSet::new();
    for (k, i) in every(routes.len(), flows, &mut rng).into_iter().enumerate() {
        let (address, len) = routes[i as usize];
        let to = address | (rng.below(1 << 32) as u32 & !prefixes::mask(len));
        tcp(&mut w, 0x6440_0001, to, 6, (1, 2));
        frames.push(1, &w.0);
        if k < ORACLE_FRAMES {
            met.extend((0..=32).map(|len| (to & prefixes::mask(len), len)));
        }
    }
    let entry = |i: usize, (address, len): (u32, u32)| Entry::lpm(0, &[address.into()], len, &[1 + i as u64 % 16]);
    let first: Vec<(usize, (u32, u32))> = routes.iter().copied().enumerate().filter(|r| met.contains(&r.1)).collect();
    let oracle = move |emit: &mut dyn FnMut(&Entry)| first.iter().for_each(|&(i, route)| emit(&entry(i, route)));
    let entries =
        move |emit: &mut dyn FnMut(&Entry)| routes.iter().enumerate().for_each(|(i, &route)| emit(&entry(i, route)));
    let text = generated::one_table("lpm", n.max(1024));
    Workload { oracle: Some(Arc::new(oracle)), ..workload(FORWARD, text, Arc::new(entries), frames) }
}

/// One ternary table of an IPv4 5-tuple: `n` rules over `masks` masks; each frame hits one.
pub fn ternary(n: usize, masks: usize, flows: usize) -> Workload {
    // Each mask has other prefix lengths; ports and protocol are masked out in turn.
    let mask = move |i: usize| {
        let (k, prefix) = (i % masks, |len: usize| u64::from(prefixes::mask(len as u32)));
        let (src, dst) = (prefix(32 - k % 8), prefix(32 - k / 8));
        [src, dst, 0xff, if k % 2 == 0 { 0xffff } else { 0 }, if k % 3 == 0 { 0 } else { 0xffff }]
    };
    let values = |i: usize| {
        let mut rng = Random::stream(SEED, 0x3000_0000 + i as u64);
        [rng.below(1 << 32), rng.below(1 << 32), 6 + 11 * rng.below(2), rng.below(1 << 16), rng.below(1 << 16)]
    };
    let mut frames = Frames::with_capacity(flows, 64);
    let (mut rng, mut w) = (Random::stream(SEED, 1), Writer::default());
    for _ in 0..flows {
        let i = rng.index(n);
        let (value, mask) = (values(i), mask(i));
        let mut field = |k: usize, width: u64| (value[k] & mask[k]) | (rng.below(1 << width) & !mask[k]);
        let (from, to, protocol) = (field(0, 32), field(1, 32), value[2]);
        let ports = (field(3, 16), field(4, 16));
        tcp(&mut w, from as u32, to as u32, protocol as u8, ports);
        frames.push(1, &w.0);
    }
    let entries = move |emit: &mut dyn FnMut(&Entry)| {
        for i in 0..n {
            let (mask, mut key) = (mask(i), values(i));
            key.iter_mut().zip(mask).for_each(|(k, m)| *k &= m);
            emit(&Entry::ternary(0, 1 + i as i32, &key, &mask, &[1 + i as u64 % 16]));
        }
    };
    workload(FORWARD, generated::one_table("ternary", n.max(1024)), Arc::new(entries), frames)
}

/// The kinds of up to 32 tables, in order.
const TABLES: &[&str] = &[
    "t0.a0", "t1.a1", "t2.a2", "t3.a3", "t4.a4", "t5.a5", "t6.a6", "t7.a7", "t8.a8", "t9.a9", "t10.a10", "t11.a11",
    "t12.a12", "t13.a13", "t14.a14", "t15.a15", "t16.a16", "t17.a17", "t18.a18", "t19.a19", "t20.a20", "t21.a21",
    "t22.a22", "t23.a23", "t24.a24", "t25.a25", "t26.a26", "t27.a27", "t28.a28", "t29.a29", "t30.a30", "t31.a31",
];

/// `n` exact tables with the same 1,000 addresses, which the flows hit in turn.
pub fn tables(n: usize, flows: usize) -> Workload {
    const ENTRIES: u64 = 1000;
    let n = n.clamp(1, TABLES.len());
    let mut frames = Frames::with_capacity(flows, 64);
    let mut w = Writer::default();
    for i in sequence(Flows::Uniform(flows), &mut Random::stream(SEED, 1)) {
        let station = address(u64::from(i) % ENTRIES);
        w.clear().ethernet(station, 0x0200_0000_0000 | u64::from(i)).be::<2>(0x88b5).pad(64);
        frames.push(1, &w.0);
    }
    let entries = move |emit: &mut dyn FnMut(&Entry)| {
        for table in 0..n as u32 {
            (0..ENTRIES).for_each(|i| emit(&Entry::exact(table, &[address(i)], &[i % 1000])));
        }
    };
    workload(&TABLES[..n], generated::tables(n), Arc::new(entries), frames)
}

/// Sixty-four frames, each written by `write`.
fn few(write: impl Fn(&mut Writer, u64)) -> Frames {
    let mut frames = Frames::with_capacity(64, 160);
    let mut w = Writer::default();
    for i in 0..64 {
        w.clear();
        write(&mut w, i);
        frames.push(1, &w.0);
    }
    frames
}

/// Parses `n` of the eight headers that every frame has.
pub fn parse(n: usize) -> Workload {
    let frames = few(|w, i| {
        w.ethernet(0x0200_5e00_0001, i).vlan(10).ipv4(1, 2, 17, 64, 94);
        w.be::<2>(i).be::<2>(4789).be::<4>(0).be::<4>(0x0800_0000).be::<4>(i << 8);
        w.ethernet(0x0200_5e00_0002, i).ipv4(1, 2, 6, 64, 20).be::<2>(i).pad(128);
    });
    workload(&[], generated::parse(n), Arc::new(|_| {}), frames)
}

fn values(kind: u32) -> Entry {
    Entry::exact(kind, &[1], &[1, 2, 3, 4, 5, 6, 7, 8])
}

/// Sets `n` fields.
pub fn set(n: usize) -> Workload {
    let frames = few(|w, i| tcp(w, 0x0a00_0001, 0x0a00_0002, 6, (i, 80)));
    workload(&["t.write"], generated::set(n), Arc::new(|emit| emit(&values(0))), frames)
}

/// Adds `n` headers.
pub fn add(n: usize) -> Workload {
    let frames = few(|w, i| tcp(w, 0x0a00_0001, 0x0a00_0002, 6, (i, 80)));
    workload(&["t.push"], generated::add(n), Arc::new(|emit| emit(&values(0))), frames)
}

/// Removes `n` of sixteen headers.
pub fn remove(n: usize) -> Workload {
    let frames = few(|w, i| {
        w.ethernet(0x0200_5e00_0001, i).be::<2>(0x8847);
        (0..16).for_each(|k| _ = w.be::<4>(k << 12 | u64::from(k == 15) << 8 | 64));
        w.pad(128);
    });
    workload(&["t.pop"], generated::remove(n), Arc::new(|emit| emit(&values(0))), frames)
}

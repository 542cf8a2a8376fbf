//! Programs of one table, or of one construct, of kinds that no other row has: wide exact keys, an exact field with a
//! prefix, ranges, many masks, many tables in sequence, long header stacks.
//!
//! They test that lookups are general: a technique that exists for a row of a whole program should help here, too.

use crate::compare;
use crate::entry::{self, Is};
use crate::frames::{Frames, Writer};
use crate::generated as programs;
use crate::measure;
use crate::report::{Figure, Figures};
use crate::rows::{Settings, with_lock};
use crate::source::Source;
use crate::subject;
use crate::workload::{Flows, ORACLE_FRAMES, Workload, generated, sequence};
use abi::state::PipelineState;
use anyhow::{Context, Result, ensure};
use random::Random;
use std::sync::Arc;

/// Flows of each kind.
const FLOWS: [usize; 2] = [64, 20_000];
const SEED: u64 = 1;
/// Number of values of the exact field beside a prefix.
const VRFS: usize = 16;

/// A kind to be measured.
struct Kind {
    title: &'static str,
    /// Most cycles per packet.
    bar: f64,
    /// Makes the workload of this many entries and flows.
    workload: fn(entries: usize, flows: usize) -> Workload,
    entries: usize,
}

const KINDS: &[Kind] = &[
    Kind { title: "exact key of 160 bits, 1,000 entries", bar: 20.0, workload: |n, f| wide(n, f, 1), entries: 1000 },
    Kind { title: "exact key of 256 bits, 1,000 entries", bar: 20.0, workload: |n, f| wide(n, f, 2), entries: 1000 },
    Kind { title: "exact key of 288 bits, 1,000 entries", bar: 20.0, workload: |n, f| wide(n, f, 3), entries: 1000 },
    Kind { title: "VRF and IPv4 prefix, 1,000 entries", bar: 25.0, workload: vrf, entries: 1000 },
    Kind { title: "VRF and IPv4 prefix, 100,000 entries", bar: 45.0, workload: vrf, entries: 100_000 },
    Kind {
        title: "two ranges, 200 entries that hardly overlap",
        bar: 80.0,
        workload: |n, f| ranges(n, f, 600),
        entries: 200,
    },
    Kind {
        title: "two ranges, 200 entries that overlap",
        bar: 80.0,
        workload: |n, f| ranges(n, f, 20_000),
        entries: 200,
    },
    Kind {
        title: "two ranges, 1,000 entries that overlap",
        bar: 150.0,
        workload: |n, f| ranges(n, f, 20_000),
        entries: 1000,
    },
    Kind {
        title: "ternary, 1,000 rules, 50 masks",
        bar: 150.0,
        workload: |n, f| generated::ternary(n, 50, f),
        entries: 1000,
    },
    Kind {
        title: "ternary, 10,000 rules, 50 masks",
        bar: 250.0,
        workload: |n, f| generated::ternary(n, 50, f),
        entries: 10_000,
    },
    Kind {
        title: "16 exact tables in a row, 1,000 entries",
        bar: 60.0,
        workload: |_, f| generated::tables(16, f),
        entries: 1000,
    },
    Kind {
        title: "32 exact tables in a row, 1,000 entries",
        bar: 120.0,
        workload: |_, f| generated::tables(32, f),
        entries: 1000,
    },
    Kind {
        title: "a stack of 4 labels, of which packets have three: one is popped",
        bar: 80.0,
        workload: |_, f| stack(f, 4),
        entries: 0,
    },
    Kind {
        title: "a stack of 16 labels, of which packets have three: one is popped",
        bar: 80.0,
        workload: |_, f| stack(f, 16),
        entries: 0,
    },
    Kind {
        title: "a stack of 128 labels, of which packets have three: one is popped",
        bar: 80.0,
        workload: |_, f| stack(f, 128),
        entries: 0,
    },
];

fn workload(
    text: String,
    frames: Frames,
    more: impl Fn(&ir::Program, &dyn PipelineState) -> Result<()> + Send + Sync + 'static,
) -> Workload {
    Workload {
        program: "generated",
        source: Source::Text(text),
        kinds: &[],
        entries: Arc::new(|_| {}),
        frames,
        odd: Frames::default(),
        oracle: None,
        setup: Some(Box::new(more)),
    }
}

/// A frame for each flow. Flow `i` matches entry `i` modulo `entries`, so all entries are matched equally often.
fn frames(flows: usize, entries: usize, write: impl Fn(&mut Writer, usize, &mut Random)) -> Frames {
    let (mut rng, mut w) = (Random::stream(SEED, 1), Writer::default());
    let mut frames = Frames::with_capacity(flows, 80);
    for i in sequence(Flows::Uniform(flows), &mut Random::stream(SEED, 2)) {
        w.clear();
        write(&mut w, i as usize % entries.max(1), &mut rng);
        frames.push(1, &w.0);
    }
    frames
}

/// The two IPv6 addresses of an entry.
fn addresses(i: usize) -> [u128; 2] {
    let mut rng = Random::stream(SEED, 0x5000_0000 + i as u64);
    [0, 1].map(|_| 0x2001_0db8 << 96 | u128::from(rng.next_u64()))
}

/// Exact keys of IPv6: 32 bits of Ethernet's source and the IPv6 source (`fields` 1), both IPv6 addresses (2), or all
/// three (3).
fn wide(entries: usize, flows: usize, fields: usize) -> Workload {
    let all = ["hdr.ethernet.srcAddr[31:0]", "hdr.ipv6.srcAddr", "hdr.ipv6.dstAddr"];
    let which: &'static [usize] = [&[0usize, 1][..], &[1, 2], &[0, 1, 2]][fields - 1];
    let keys: String = which.iter().map(|k| format!("{}: exact @name(\"f{k}\"); ", all[*k])).collect();
    let frames = frames(flows, entries, |w, i, _| {
        let [from, to] = addresses(i);
        w.ethernet(0x0200_0000_0002, 0x0200_0000_0000 | i as u64).be::<2>(0x86dd).be::<8>(0);
        [from, to].iter().for_each(|a| _ = w.be::<8>((a >> 64) as u64).be::<8>(*a as u64));
        w.pad(64);
    });
    workload(programs::addressed(&keys, entries.max(1024)), frames, move |program, state| {
        (0..entries).try_for_each(|i| {
            let [from, to] = addresses(i);
            let values = [("f0", Is::Exact(i as u128)), ("f1", Is::Exact(from)), ("f2", Is::Exact(to))];
            let key: Vec<(&str, Is)> = which.iter().map(|k| values[*k]).collect();
            entry::add(program, state, ("t", "forward"), 0, &key, &[i as u128, i as u128 & 0xfff])
        })
    })
}

/// An exact field of 12 bits, and an IPv4 prefix.
fn vrf(entries: usize, flows: usize) -> Workload {
    let routes = Arc::new(tables::workload::ipv4_prefixes(entries, SEED));
    let keys = "hdr.ethernet.srcAddr[11:0]: exact @name(\"vrf\"); hdr.ipv6.dstAddr[31:0]: lpm @name(\"to\");";
    let of = Arc::clone(&routes);
    let frames = frames(flows, entries, move |w, i, rng| {
        let (address, len) = of[i];
        let to = address | if len < 32 { rng.next_u64() as u32 >> len } else { 0 };
        w.ethernet(0x0200_0000_0002, (i % VRFS) as u64).be::<2>(0x86dd).be::<8>(0).be::<8>(0).be::<8>(0);
        w.be::<8>(0).be::<8>(to.into()).pad(64);
    });
    workload(programs::addressed(keys, entries.max(1024)), frames, move |program, state| {
        routes.iter().enumerate().try_for_each(|(i, (address, len))| {
            let key = [("vrf", Is::Exact((i % VRFS) as u128)), ("to", Is::Prefix((*address).into(), *len))];
            // The routes share a thousand next hops.
            entry::add(program, state, ("t", "forward"), 0, &key, &[i as u128 % 1000, i as u128 % 1000])
        })
    })
}

/// Ranges over both TCP ports, each of up to `span` numbers.
fn ranges(entries: usize, flows: usize, span: u64) -> Workload {
    let range = move |i: usize| {
        let mut rng = Random::stream(SEED, 0x6000_0000 + i as u64);
        [0, 1].map(|_| {
            let low = rng.below((1 << 16) - span);
            (low, low + rng.below(span))
        })
    };
    let frames = frames(flows, entries, move |w, i, rng| {
        let [from, to] = range(i).map(|(low, high)| low + rng.below(high - low + 1));
        w.ethernet(0x0200_5e00_0001, 0x0200_0000_0001).ipv4(1, 2, 6, 64, 30).be::<2>(from).be::<2>(to).pad(64);
    });
    workload(programs::ranges(entries.max(1024)), frames, move |program, state| {
        (0..entries).try_for_each(|i| {
            let [from, to] = range(i).map(|(low, high)| Is::Range(low.into(), high.into()));
            let key = [("from", from), ("to", to)];
            entry::add(program, state, ("t", "forward"), 1 + i as i32, &key, &[1 + i as u128 % 16])
        })
    })
}

/// Three MPLS labels, in a stack of `declared` elements.
fn stack(flows: usize, declared: usize) -> Workload {
    let frames = frames(flows, 0, |w, _, rng| {
        w.ethernet(0x0200_5e00_0001, 0x0200_0000_0001).be::<2>(0x8847);
        (0..3).for_each(|k| _ = w.be::<4>(rng.below(1 << 20) << 12 | u64::from(k == 2) << 8 | 64));
        w.pad(64);
    });
    workload(programs::stack(declared), frames, |_, _| Ok(()))
}

/// Cycles per packet, by round.
fn measured(kind: &Kind, flows: usize, settings: &Settings) -> Result<Vec<f64>> {
    let (entries, flows) = if settings.quick { (kind.entries.min(100), flows.min(100)) } else { (kind.entries, flows) };
    let workload = (kind.workload)(entries, flows);
    let mut subjects = vec![
        subject::sluice("Sluice", &workload, &settings.options)?,
        subject::interpreter(&workload, &settings.options)?,
    ];
    let frames = if settings.quick { 100 } else { ORACLE_FRAMES };
    let fates = compare::some(&mut subjects, &workload.frames, settings.batch, frames)?;
    ensure!(fates[0] > 0, "every packet was dropped");
    subjects[0].settle(&settings.options);
    compare::some(&mut subjects, &workload.frames, settings.batch, frames)
        .context("in code that was compiled again")?;
    subjects.truncate(1);
    let plan = settings.plan(workload.frames.len());
    let mut series = with_lock(settings, || measure::interleaved(&mut subjects, &workload.frames, plan))?;
    Ok(series.remove(0).rounds)
}

/// Measures all kinds.
///
/// # Errors
/// If a program cannot be loaded, differs from the interpreter, or the lock cannot be taken.
pub fn kinds(title: &str, settings: &Settings) -> Result<Figures> {
    let mut figures = Vec::new();
    for kind in KINDS {
        for flows in FLOWS {
            let name = format!("{}, {flows} flows", kind.title);
            let values = measured(kind, flows, settings).with_context(|| name.clone())?;
            let bar = (!settings.quick).then_some(kind.bar);
            figures.push(Figure { name, unit: " cycles", values, bar, at_most: true });
        }
    }
    Ok(Figures { name: "kinds".to_string(), title: title.to_string(), figures })
}

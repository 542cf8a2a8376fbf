//! The cost of changes to tables: entries inserted while packets run, memory, and recompilation after a table has
//! grown.
//!
//! *Insert* writes to the state that the control plane uses, while another thread runs packets that match the entries:
//! millions of entries per second of the writer's processor time. Entries are created in small chunks outside the timed
//! section, as requests create them. *Memory* is the growth of the process's resident memory, everything included.
//! *Recompile* grows a table until its specialised code becomes invalid, and times what follows.

use crate::frames::{Frames, Writer};
use crate::generated;
use crate::measure::Track;
use crate::report::{Figure, Figures};
use crate::rows::{Settings, with_lock};
use crate::source::Source;
use crate::subject::{self, Subject};
use crate::workload::l2l3acl;
use abi::state::{PipelineState, StateError};
use anyhow::{Context, Result, ensure};
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use datapath::{EngineKind, Pipeline};
use random::Random;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The key of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    /// An exact key of 16 bytes.
    Exact,
    /// An IPv4 prefix.
    Ipv4,
    /// An IPv6 prefix.
    Ipv6,
    /// An exact field of 12 bits, and an IPv4 prefix.
    Vrf,
}

/// Entries of one kind, and frames that match them.
struct Content {
    key: Key,
    keys: Vec<(u128, u32)>,
}

/// Bytes of a 16-byte key and its action's parameters.
const KEY_AND_DATA: f64 = 24.0;
const SEED: u64 = 1;
const VRFS: usize = 16;
const FLOWS: usize = 1 << 16;
/// Number of entries that are created at once.
const CHUNK: usize = 1024;

impl Content {
    fn new(key: Key, count: usize) -> Content {
        let mut rng = Random::stream(SEED, 5);
        let wide = |(value, len): (u32, u32)| (value.into(), len);
        let keys = match key {
            Key::Exact => (0..count).map(|i| (u128::from(rng.next_u64()) << 64 | i as u128, 128)).collect(),
            Key::Ipv4 | Key::Vrf => tables::workload::ipv4_prefixes(count, SEED).into_iter().map(wide).collect(),
            Key::Ipv6 => tables::workload::ipv6_prefixes(count, SEED),
        };
        Content { key, keys }
    }

    fn program(&self) -> String {
        let keys = match self.key {
            Key::Exact => "hdr.ipv6.dstAddr: exact;",
            Key::Ipv6 => "hdr.ipv6.dstAddr: lpm;",
            Key::Ipv4 => "hdr.ipv6.dstAddr[31:0]: lpm;",
            Key::Vrf => "hdr.ethernet.srcAddr[11:0]: exact; hdr.ipv6.dstAddr[31:0]: lpm;",
        };
        generated::addressed(keys, self.keys.len().max(1024))
    }

    fn entry(&self, i: usize) -> TableEntry {
        let (value, prefix_len) = self.keys[i];
        let prefix = |width| KeyMatch::Lpm { value: Bits::new(width, value), prefix_len };
        let key = match self.key {
            Key::Exact => vec![KeyMatch::Exact(Bits::new(128, value))],
            Key::Ipv6 => vec![prefix(128)],
            Key::Ipv4 => vec![prefix(32)],
            Key::Vrf => vec![KeyMatch::Exact(Bits::new(12, (i % VRFS) as u128)), prefix(32)],
        };
        // The routes share a thousand next hops; every other entry has data of its own.
        let data = if self.key == Key::Exact { i as u128 } else { Random::stream(SEED, i as u64).below(1000).into() };
        let call = ActionCall { action: 0, args: vec![Bits::new(48, data), Bits::new(16, data & 0xfff)] };
        TableEntry { key, priority: 0, action: EntryAction::Call(call), idle_timeout_ns: 0 }
    }

    fn frames(&self) -> Frames {
        let (mut rng, mut w) = (Random::stream(SEED, 6), Writer::default());
        let mut frames = Frames::with_capacity(FLOWS, 64);
        for _ in 0..FLOWS.min(4 * self.keys.len()) {
            let i = rng.index(self.keys.len());
            let (value, len) = self.keys[i];
            let width = if matches!(self.key, Key::Ipv4 | Key::Vrf) { 32 } else { 128 };
            let rest = if len >= width {
                0
            } else {
                (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())) >> (128 - width + len)
            };
            let address = value | rest;
            w.clear().ethernet(0x0200_0000_0002, (i % VRFS) as u64).be::<2>(0x86dd).be::<8>(0).be::<8>(0).be::<8>(0);
            w.be::<8>((address >> 64) as u64).be::<8>(address as u64).pad(64);
            frames.push(1, &w.0);
        }
        frames
    }

    fn load(&self, settings: &Settings) -> Result<Pipeline> {
        let program = subject::compile(&Source::Text(self.program()), &settings.options)?;
        Ok(datapath::load_with(program, EngineKind::Machine, 1, &settings.options.code)?)
    }

    /// Inserts all entries; returns the seconds of this thread's processor time.
    fn insert(&self, state: &dyn PipelineState) -> Result<f64> {
        let mut seconds = 0.0;
        for from in (0..self.keys.len()).step_by(CHUNK) {
            let entries: Vec<TableEntry> = (from..(from + CHUNK).min(self.keys.len())).map(|i| self.entry(i)).collect();
            let start = processor_seconds();
            for entry in &entries {
                state.insert(TableId(0), entry).map_err(|e| anyhow::anyhow!("{entry:?} is refused: {e:?}"))?;
            }
            seconds += processor_seconds() - start;
        }
        Ok(seconds)
    }
}

pub(crate) fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub(crate) fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = statm.and_then(|s| s.split(' ').nth(1)?.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * rustix::param::page_size() as f64
}

/// Counts of the traffic that runs during a measurement.
#[derive(Default)]
struct Traffic {
    stop: AtomicBool,
    packets: AtomicU64,
    /// Packets that were not sent although they were in the first round of all frames.
    lost: AtomicU64,
    longest_batch_ns: AtomicU64,
}

impl Traffic {
    /// Plays all frames repeatedly. With `same`, every round must send as many packets as the first one.
    fn run(&self, subject: &mut Subject, frames: &Frames, batch: usize, same: bool) {
        let mut track = Track::new(batch);
        let mut first = None;
        while !self.stop.load(Ordering::Relaxed) {
            let mut sent = 0;
            for at in (0..frames.len()).step_by(batch) {
                let played = track.fill(frames, at, subject.record_words);
                let start = Instant::now();
                track.run(subject);
                self.longest_batch_ns.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                sent += track.fates()[0];
                self.packets.fetch_add(played as u64, Ordering::Relaxed);
            }
            let wanted = *first.get_or_insert(sent);
            if same {
                self.lost.fetch_add(wanted.saturating_sub(sent), Ordering::Relaxed);
            }
        }
        subject.executor.idle();
    }

    /// Returns when packets run.
    fn wait(&self) {
        while self.packets.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
    }
}

fn few(settings: &Settings, count: usize) -> usize {
    if settings.quick { count.min(2000) } else { count }
}

pub(crate) fn rounds(settings: &Settings) -> usize {
    if settings.quick { 1 } else { settings.rounds.min(5) }
}

/// Measures millions of entries per second, while packets run on another processor.
///
/// # Errors
/// If a program cannot be loaded, an entry is refused or missing, or the lock cannot be taken.
pub fn insert(title: &str, settings: &Settings) -> Result<Figures> {
    let mut figures = Vec::new();
    for (name, key, count, bar) in [
        ("exact, 16-byte keys, 100k entries", Key::Exact, 100_000, 2.0),
        ("exact, 16-byte keys, 1M entries", Key::Exact, 1_000_000, 2.0),
        ("IPv4 prefixes, 100k", Key::Ipv4, 100_000, 1.0),
        ("IPv4 prefixes, 1M", Key::Ipv4, 1_000_000, 1.0),
        ("IPv6 prefixes, 1M", Key::Ipv6, 1_000_000, 1.0),
        ("16 VRFs and IPv4 prefixes, 1M", Key::Vrf, 1_000_000, 1.0),
    ] {
        let content = Content::new(key, few(settings, count));
        let frames = content.frames();
        let mut values = Vec::new();
        for _ in 0..rounds(settings) {
            let pipeline = content.load(settings)?;
            let (traffic, state) = (Traffic::default(), pipeline.state());
            let seconds = with_lock(settings, || {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut subject = subject::of_pipeline("", &pipeline, 0);
                        traffic.run(&mut subject, &frames, settings.batch, false);
                    });
                    traffic.wait();
                    let seconds = content.insert(state.as_ref());
                    traffic.stop.store(true, Ordering::Relaxed);
                    seconds
                })
            })?
            .with_context(|| name.to_string())?;
            values.push(content.keys.len() as f64 / seconds / 1e6);
            // Every entry is found.
            let mut subject = subject::of_pipeline("", &pipeline, 0);
            let fates = crate::compare::all(std::slice::from_mut(&mut subject), &frames, settings.batch)?;
            ensure!(fates[0] as usize == frames.len().next_multiple_of(settings.batch), "{name}: {fates:?}");
        }
        figures.push(Figure { name: format!("insert, {name}"), unit: " M/s", values, bar: Some(bar), at_most: false });
    }
    Ok(Figures { name: "insert".to_string(), title: title.to_string(), figures })
}

/// Environment variable that makes `sluice-bench` print the memory of entries of this kind and do nothing else
/// ([`memory_alone`]).
pub const MEMORY_OF: &str = "SLUICE_BENCH_MEMORY_OF";

/// Bytes of resident memory that a million entries add: of the kind `exact`, else IPv4 prefixes.
///
/// # Errors
/// If the program cannot be loaded or refuses an entry.
pub fn memory_alone(kind: &str, settings: &Settings) -> Result<f64> {
    let content = Content::new(if kind == "exact" { Key::Exact } else { Key::Ipv4 }, few(settings, 1_000_000));
    let pipeline = content.load(settings)?;
    let before = resident_bytes();
    content.insert(pipeline.state().as_ref())?;
    Ok(resident_bytes() - before)
}

/// The same in a new process: this one would reuse memory that was freed before, which would not be seen.
fn memory_of(kind: &str, settings: &Settings) -> Result<f64> {
    if settings.quick {
        return memory_alone(kind, settings);
    }
    let this = std::env::current_exe().context("where is this program?")?;
    let output = std::process::Command::new(this).env(MEMORY_OF, kind).output().context("it does not run again")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Measures the memory of a million entries.
///
/// # Errors
/// As [`memory_alone`], or if the new process fails.
pub fn memory(title: &str, settings: &Settings) -> Result<Figures> {
    let count = few(settings, 1_000_000) as f64;
    let (mut beyond, mut routes) = (Vec::new(), Vec::new());
    for _ in 0..rounds(settings).min(3) {
        beyond.push(memory_of("exact", settings)? / count - KEY_AND_DATA);
        routes.push(memory_of("ipv4", settings)? / 1e6);
    }
    let exact = "exact entry with a 16-byte key, beyond key and data".to_string();
    let lpm = "1M IPv4 prefixes".to_string();
    let figures = vec![
        Figure { name: exact, unit: " B", values: beyond, bar: Some(24.0), at_most: true },
        Figure { name: lpm, unit: " MB", values: routes, bar: Some(64.0), at_most: true },
    ];
    Ok(Figures { name: "memory".to_string(), title: title.to_string(), figures })
}

/// Grows tables of `l2l3acl` until the specialised code becomes invalid; returns when that was.
fn grow(pipeline: &Pipeline, size: l2l3acl::Size) -> Result<Instant> {
    let larger = l2l3acl::workload(l2l3acl::Size { stations: 64 * size.stations.max(1000), ..size });
    let kinds = crate::entry::Kinds::new(pipeline.program(), larger.kinds)?;
    let special = || pipeline.code_info().is_some_and(|code| code.specialised);
    let mut result = Ok(());
    let mut grown = (!special()).then(Instant::now);
    (larger.entries)(&mut |entry| {
        if grown.is_some() || result.is_err() {
            return;
        }
        let (table, entry) = kinds.table_entry(entry);
        match pipeline.state().insert(table, &entry) {
            Ok(()) => grown = (!special()).then(Instant::now),
            Err(StateError::Exists) => {}
            Err(error) => result = Err(anyhow::anyhow!("{entry:?} is refused: {error:?}")),
        }
    });
    result?;
    grown.context("no table has moved")
}

/// Measures recompilation of `l2l3acl` after a table has grown, while packets run.
///
/// # Errors
/// If the program cannot be loaded, or the code is not replaced in time.
pub fn recompile(title: &str, settings: &Settings) -> Result<Figures> {
    let mut figures = Vec::new();
    // The bar is for tables of the first two sizes.
    for (name, size, bar) in [
        ("1k entries, 100 rules", l2l3acl::Size::of(1000, 64), Some(5.0)),
        ("1k entries, 1,000 rules", l2l3acl::Size { rules: 1000, ..l2l3acl::Size::of(1000, 64) }, Some(5.0)),
        ("1k entries, 10,000 rules", l2l3acl::Size { rules: 10_000, ..l2l3acl::Size::of(1000, 64) }, None),
        ("100k entries, 1,000 rules", l2l3acl::Size::of(100_000, 64), None),
    ] {
        let workload = l2l3acl::workload(size);
        let (mut quick, mut full, mut background) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lost, mut longest) = (Vec::new(), Vec::new());
        for _ in 0..rounds(settings) {
            let pipeline = subject::load(&workload, &settings.options, 1)?;
            let traffic = Traffic::default();
            with_lock(settings, || -> Result<()> {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut subject = subject::of_pipeline("", &pipeline, 0);
                        traffic.run(&mut subject, &workload.frames, settings.batch, true);
                    });
                    let result = (|| {
                        traffic.wait();
                        grow(&pipeline, size)?;
                        let start = Instant::now();
                        let first = pipeline.recompile(settings.options.specialise).context("it does not compile")?;
                        full.push(start.elapsed().as_secs_f64() * 1e3);
                        quick.push(first.as_secs_f64() * 1e3);
                        // Once more, by the thread that specialises in the background: it begins with the tables as
                        // they are.
                        let compiled = |pipeline: &Pipeline| pipeline.code_info().map_or(0, |code| code.compiled);
                        let before = compiled(&pipeline);
                        pipeline.specialise(settings.options.specialise);
                        settle(&pipeline, before)?;
                        // The new code may be installed before this thread looks.
                        let before = compiled(&pipeline);
                        let start = grow(&pipeline, l2l3acl::Size { seed: 2, ..size })?;
                        settle(&pipeline, before)?;
                        background.push(start.elapsed().as_secs_f64() * 1e3);
                        pipeline.specialise(datapath::Specialise::Off);
                        Ok(())
                    })();
                    traffic.stop.store(true, Ordering::Relaxed);
                    result
                })
            })??;
            ensure!(traffic.packets.load(Ordering::Relaxed) > 0, "no packet ran");
            lost.push(traffic.lost.load(Ordering::Relaxed) as f64);
            longest.push(traffic.longest_batch_ns.load(Ordering::Relaxed) as f64 / 1e3);
        }
        let figure = |what: &str, unit, values, bar| Figure {
            name: format!("{name}: {what}"),
            unit,
            values,
            bar,
            at_most: true,
        };
        figures.push(figure("compile and publish", " ms", quick, bar));
        figures.push(figure("the same and then the code of more effort", " ms", full, None));
        figures.push(figure(
            "from growth to code in the background, waiting for 20 quiet ms included",
            " ms",
            background,
            None,
        ));
        figures.push(figure("packets lost meanwhile", "", lost, Some(0.0)));
        figures.push(figure("longest batch of 32 packets meanwhile", " us", longest, None));
    }
    Ok(Figures { name: "recompile".to_string(), title: title.to_string(), figures })
}

/// Waits until code that was compiled after count `compiled` is valid.
fn settle(pipeline: &Pipeline, compiled: u64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let code = pipeline.code_info().context("there is machine code")?;
        if code.compiled > compiled && code.specialised {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no code within 10 s: {code:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

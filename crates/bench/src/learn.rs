//! The cost of tables that packets write: `l2learn` with a million stations, and `conntrack` in a flood of new
//! connections.
//!
//! *Adding* plays frames, each from a new station to a known one. *Expiry* plays frames of known stations on a clock of
//! a million packets per second, and calls the housekeeping on the same thread every tenth of a second of that clock,
//! in turns of 40 s with and without. A station expires after 30 s without a frame, so its timer is examined about as
//! often. *Flood* times batches of established connections, alone and alternating with batches that open new ones.

use crate::frames::{Frames, Writer};
use crate::measure::Track;
use crate::report::{Figure, Figures};
use crate::rows::{Settings, with_lock};
use crate::source::{self, Source};
use crate::subject::{self, Subject};
use crate::updates::{processor_seconds, resident_bytes, rounds};
use abi::state::PipelineState;
use anyhow::{Context, Result, ensure};
use base::ids::TableId;
use datapath::{EngineKind, Pipeline};
use random::Random;

/// The station that frames are sent to.
const KNOWN: u64 = 0x0200_0000_0001;
/// Microseconds of the clock between two calls of the housekeeping, at a million packets per second.
const HOUSEKEEPING_US: u64 = 100_000;
/// Bytes of a station's key and parameter: an address and a port.
const STATION_BYTES: f64 = 6.0 + 2.0;

fn load(program: &str, changes: &[(&str, String)], settings: &Settings) -> Result<Pipeline> {
    let mut text = source::example(program).text()?;
    for (from, to) in changes {
        ensure!(text.contains(from), "{program} has no `{from}`");
        text = text.replace(from, to);
    }
    let program = subject::compile(&Source::Text(text), &settings.options)?;
    let pipeline = datapath::load_with(program, EngineKind::Machine, 1, &settings.options.code)?;
    pipeline.recompile(settings.options.specialise);
    Ok(pipeline)
}

fn stations(size: usize, expire_ms: u64, settings: &Settings) -> Result<Pipeline> {
    let changes = [("size = 65536", format!("size = {size}")), ("(300000)", format!("({expire_ms})"))];
    load("l2learn", &changes, settings)
}

/// Frames from `count` stations, in random order, to the known one; and a frame of the known one.
fn station_frames(count: usize) -> (Frames, Frames) {
    let mut w = Writer::default();
    let mut frames = Frames::with_capacity(count, 64);
    for i in crate::workload::sequence(crate::workload::Flows::Uniform(count), &mut Random::stream(1, 3)) {
        w.clear().ethernet(KNOWN, 0x0200_0100_0000 + u64::from(i)).be::<2>(0x88b5).pad(64);
        frames.push(1, &w.0);
    }
    let mut known = Frames::default();
    w.clear().ethernet(KNOWN + 1, KNOWN).be::<2>(0x88b5).pad(64);
    known.push(2, &w.0);
    (frames, known)
}

/// Plays all frames once, with a clock that continues from `clock`. If a state is given, calls its housekeeping
/// whenever that is due.
fn play(track: &mut Track, subject: &mut Subject, frames: &Frames, clock: &mut u64, state: Option<&dyn PipelineState>) {
    let mut due = *clock + HOUSEKEEPING_US;
    let mut at = 0;
    while at < frames.len() {
        let played = track.fill(frames, at, subject.record_words);
        *clock += played as u64;
        track.work.now_us = *clock;
        track.run(subject);
        at += played;
        if let Some(state) = state
            && *clock >= due
        {
            state.expire(*clock);
            due = *clock + HOUSEKEEPING_US;
        }
    }
}

/// Measures adding, expiry and flood.
///
/// # Errors
/// If a program cannot be loaded, stations are missing afterwards, or the lock cannot be taken.
pub fn learn(title: &str, settings: &Settings) -> Result<Figures> {
    let count = if settings.quick { 1000 } else { 1_000_000 };
    let (frames, known) = station_frames(count);
    let (mut added, mut aged) = (Vec::new(), Vec::new());
    for _ in 0..rounds(settings) {
        let pipeline = stations(2 * count, 30_000, settings)?;
        let (state, mut track) = (pipeline.state().clone(), Track::new(settings.batch));
        let mut subject = subject::of_pipeline("", &pipeline, 0);
        let mut clock = 1_000_000;
        play(&mut track, &mut subject, &known, &mut clock, None);
        let seconds = with_lock(settings, || {
            let start = processor_seconds();
            play(&mut track, &mut subject, &frames, &mut clock, None);
            processor_seconds() - start
        })?;
        ensure!(state.len(TableId(0)) == count as u64 + 1, "{} stations were learned", state.len(TableId(0)));
        added.push(count as f64 / seconds / 1e6);
        let many = if settings.quick { 2 } else { 40 };
        let mut timed = |state: Option<&dyn PipelineState>| {
            with_lock(settings, || {
                let start = processor_seconds();
                (0..many).for_each(|_| play(&mut track, &mut subject, &frames, &mut clock, state));
                processor_seconds() - start
            })
        };
        // A table's first forty passes are faster than all later ones, whether or not entries expire.
        timed(Some(state.as_ref()))?;
        let (mut without, mut with) = (0.0, 0.0);
        for _ in 0..2 {
            without += timed(None)?;
            with += timed(Some(state.as_ref()))?;
        }
        ensure!(state.len(TableId(0)) >= count as u64, "stations ended that sent frames");
        aged.push((with / without - 1.0) * 100.0);
    }
    let size = if settings.quick { 10_000 } else { 10_000_000 };
    let before = resident_bytes();
    let pipeline = stations(size, 300_000, settings)?;
    let bytes = (resident_bytes() - before) / size as f64 - STATION_BYTES;
    drop(pipeline);
    let floods = flood(settings).context("conntrack")?;
    let figure = |name: &str, unit, values, bar, at_most| Figure {
        name: name.to_string(),
        unit,
        values,
        bar: Some(bar),
        at_most,
    };
    let figures = vec![
        figure("new stations learned while frames are forwarded", " M/s", added, 1.0, false),
        figure("what expiry costs frames of a million stations", " %", aged, 3.0, true),
        figure("bytes of a station of ten million beyond its address and port", " B", vec![bytes], 100.0, true),
        figure("what a flood of new connections costs established ones", " %", floods, 10.0, true),
    ];
    Ok(Figures { name: "learn".to_string(), title: title.to_string(), figures })
}

/// A TCP segment between an inside host and an outside server, in either direction.
fn segment(w: &mut Writer, host: u32, port: u16, flags: u8, goes_out: bool) {
    const SERVER: u32 = 0xc000_0201;
    let (src, dst) = if goes_out { (host, SERVER) } else { (SERVER, host) };
    let (from, to) = if goes_out { (u64::from(port), 443) } else { (443, u64::from(port)) };
    w.clear().ethernet(2, 1).be::<2>(0x0800).ipv4(src, dst, 6, 64, 20);
    w.be::<2>(from)
        .be::<2>(to)
        .be::<4>(1)
        .be::<4>(2)
        .be::<1>(0x50)
        .be::<1>(flags.into())
        .be::<2>(512)
        .be::<4>(0)
        .pad(64);
}

/// The extra time of batches of established connections, in percent, while others open as many new connections.
fn flood(settings: &Settings) -> Result<Vec<f64>> {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let (connections, new) = if settings.quick { (500, 2000) } else { (200_000, 4_000_000) };
    let mut values = Vec::new();
    for _ in 0..rounds(settings) {
        let pipeline = load("conntrack", &[], settings)?;
        let (mut track, mut other) = (Track::new(settings.batch), Track::new(settings.batch));
        let mut subject = subject::of_pipeline("", &pipeline, 0);
        let (mut w, mut clock) = (Writer::default(), 1_000_000);
        let mut established = Frames::default();
        for (flags, goes_out) in [(SYN, true), (SYN | ACK, false), (ACK, true)] {
            established = Frames::with_capacity(connections, 64);
            for i in 0..connections as u32 {
                segment(&mut w, 0x0a00_0000 | i, 1024 + i as u16 % 50_000, flags, goes_out);
                established.push(if goes_out { 1 } else { 2 }, &w.0);
            }
            play(&mut track, &mut subject, &established, &mut clock, None);
        }
        let mut flooding = Frames::with_capacity(new, 64);
        for i in 0..new as u32 {
            segment(&mut w, 0x0b00_0000 | i & 0xff_ffff, (i >> 8) as u16 | 1, SYN, true);
            flooding.push(1, &w.0);
        }
        let mut batches = |flooded: bool| {
            let (mut cycles, mut at) = (0u64, 0);
            while at < new {
                track.fill(&established, at % connections, subject.record_words);
                cycles += track.run(&mut subject);
                at += settings.batch;
                if flooded {
                    other.fill(&flooding, at % new, subject.record_words);
                    other.run(&mut subject);
                }
            }
            cycles as f64
        };
        let (quiet, loud) = with_lock(settings, || (batches(false), batches(true)))?;
        values.push((loud / quiet - 1.0) * 100.0);
    }
    Ok(values)
}

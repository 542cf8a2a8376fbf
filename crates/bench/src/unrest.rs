//! OpenFlow tables while somebody disturbs them: hostile packets, changes that make all megaflows outdated, flow mods by the million.
//!
//! *Attack* is tuple space explosion (Csikor et al., "Tuple Space Explosion: A Denial-of-Service Attack Against a Software Packet
//! Classifier", CoNEXT 2019; CVE-2019-25076): an access list admits by one field each of three, and one burst in a hundred has packets
//! that differ from the admitted values at another bit of each, so that each wants a megaflow with a mask of its own.
//!
//! *Revalidation* is what a change costs that all megaflows depend on, while packets run and the worker revalidates between batches.

use crate::engine;
use crate::frames::{Frames, Writer};
use crate::measure::{Ratio, Series};
use crate::openflow::{IPV4, Switch, Tables, compared, cycles, first, output, switch};
use crate::report::{Figure, Figures};
use crate::rows::{Bar, Row, Settings, with_lock};
use crate::updates::rounds;
use anyhow::{Context, Result, ensure};
use datapath::{CacheUse, EngineKind};
use openflow::Match;
use std::time::{Duration, Instant};

/// Flows of those who do no harm.
const FLOWS: u32 = 64;
/// Bursts of others for each hostile one.
const BURSTS: usize = 99;
/// Widths of the three fields of the access list: source, TCP source port, TCP destination port.
const WIDTHS: [u32; 3] = [32, 16, 16];
/// What it admits.
const ADMITTED: [u32; 3] = [0x0a00_0001, 12345, 80];
/// Ports of the others and of the attacker.
const PORTS: [u16; 2] = [1, 3];

/// The part of the throughput that is left under attack, at least.
const LEFT: f64 = 0.95;
/// Sources and destinations of the megaflows that are revalidated, which are all pairs.
const PAIRS: [u32; 2] = [500, 400];
/// A revalidation, ms, and the longest time that a packet waits for it, ms.
const REVALIDATION_MS: (f64, f64) = (500.0, 1.0);
/// It has failed after so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn access_list(tables: &Tables<'_>) -> Result<()> {
    let [src, sport, dport] = ADMITTED.map(u128::from);
    let tcp = [("eth_type", IPV4), ("ip_proto", 6)];
    let [by_port, by_source, by_client] = [("tcp_dst", dport), ("ipv4_src", src), ("tcp_src", sport)];
    tables.add((0, 3), tables.exact(&[tcp[0], tcp[1], by_port])?, vec![output(2)], None)?;
    tables.add((0, 2), tables.exact(&[tcp[0], by_source])?, vec![output(2)], None)?;
    tables.add((0, 1), tables.exact(&[tcp[0], tcp[1], by_client])?, vec![output(2)], None)
}

fn tcp(w: &mut Writer, [src, sport, dport]: [u32; 3]) {
    w.clear().ethernet(0x0200_0000_0001, 0x0200_0000_0002).ipv4(src, 0x0a00_0100, 6, 64, 30);
    w.be::<2>(sport.into()).be::<2>(dport.into()).be::<8>(0).be::<2>(0x5010);
    w.pad(64);
}

/// Those who do no harm, in batches; with the attacker's, one batch in a hundred is hostile.
fn traffic(is_attacked: bool, settings: &Settings) -> Frames {
    let mut w = Writer::default();
    let mut hostile = Vec::new();
    for bits in 0..WIDTHS.iter().product::<u32>() {
        let at = [bits % 32, bits / 32 % 16, bits / 512];
        hostile.push(std::array::from_fn(|i| ADMITTED[i] ^ 1 << at[i]));
    }
    let mut frames = Frames::default();
    let mut flow = 0;
    let count = if settings.quick { 4 * settings.batch } else { hostile.len() };
    for burst in hostile[..count].chunks(settings.batch) {
        for _ in 0..BURSTS * settings.batch {
            flow = (flow + 1) % FLOWS;
            tcp(&mut w, [0x0a00_0200 + flow, 20_000 + flow, 80]);
            frames.push(PORTS[0], &w.0);
        }
        for fields in burst {
            if is_attacked {
                tcp(&mut w, *fields);
            }
            frames.push(PORTS[usize::from(is_attacked)], &w.0);
        }
    }
    frames
}

/// Throughput under attack beside throughput without.
pub fn attack(title: &str, settings: &Settings) -> Result<Row> {
    let frames = [false, true].map(|is_attacked| traffic(is_attacked, settings));
    let few = first(&frames[1], 400 * settings.batch);
    let (clean, fates) = compared(title, CacheUse::Auto, &access_list, &[&few], settings)?;
    let (attacked, _) = compared(title, CacheUse::Auto, &access_list, &[&few], settings)?;
    let mut subjects = [clean.subject, attacked.subject];
    [subjects[0].name, subjects[1].name] = ["clean", "attacked"];
    let series = engine::timed_each(&mut subjects, frames.each_ref(), settings)?;
    let throughput = |series: &Series| Series {
        name: series.name.clone(),
        rounds: series.rounds.iter().map(|cycles| 1.0 / cycles).collect(),
    };
    let ratio = Ratio::new(&throughput(&series[1]), &throughput(&series[0]));
    let left = Bar { at_most: false, ..Bar::with("throughput, attacked / clean", ratio, LEFT) };
    let told = Bar { unit: " cycles", ..Bar::without("a received packet, clean", cycles(&series[0])) };
    Ok(Row { name: title.to_string(), series: series.to_vec(), bars: vec![left, told], fates })
}

fn pair(w: &mut Writer, source: u32, destination: u32) {
    w.clear().ethernet(0x0200_0000_0001, 0x0200_0000_0002).ipv4(source, destination, 17, 64, 30).pad(64);
}

/// One table decides by source, the next by destination.
fn pairs(tables: &Tables<'_>, count: [u32; 2]) -> Result<()> {
    for source in 0..count[0] {
        let matching = tables.exact(&[("eth_type", IPV4), ("ipv4_src", source.into())])?;
        tables.add((0, 1), matching, Vec::new(), 1)?;
    }
    for destination in 0..count[1] {
        let matching = tables.exact(&[("eth_type", IPV4), ("ipv4_dst", destination.into())])?;
        tables.add((1, 1), matching, vec![output(2 + destination % 8)], None)?;
    }
    Ok(())
}

/// A change that is about none of the packets, but that all megaflows depend on.
fn change(switch: &Switch, number: u32) -> Result<()> {
    let mut matching = Match::any();
    let fields = switch.bridge.fields();
    let id = fields.named("ipv4_dst").context("there is no field `ipv4_dst`")?;
    let eth_type = fields.named("eth_type").context("there is no field `eth_type`")?;
    matching.add(eth_type, IPV4, 0xffff);
    matching.add(id, (0xc000_0000 | number).into(), u32::MAX.into());
    Tables(&switch.bridge).add_match((1, 1), matching)
}

/// Milliseconds until all megaflows are revalidated after one change, and the longest time that a batch took meanwhile.
pub fn revalidation(title: &str, settings: &Settings) -> Result<Figures> {
    let count = if settings.quick { [20, 10] } else { PAIRS };
    let fill = move |tables: &Tables<'_>| pairs(tables, count);
    let mut w = Writer::default();
    let (mut frames, mut running) = (Frames::default(), Frames::default());
    for source in 0..count[0] {
        for destination in 0..count[1] {
            pair(&mut w, source, destination);
            frames.push(PORTS[0], &w.0);
            if frames.len() <= FLOWS as usize {
                running.push(PORTS[0], &w.0);
            }
        }
    }
    let mut switch = switch("OpenFlow", EngineKind::Machine, CacheUse::Always, &fill, settings)?;
    let batch = settings.batch;
    let play = |switch: &mut Switch, frames: &Frames| {
        let (mut at, mut longest) = (0, Duration::ZERO);
        while at < frames.len() {
            let (played, took) = switch.subject.play(frames, at, batch);
            (at, longest) = (at + played, longest.max(took));
        }
        longest
    };
    let wanted = u64::from(count[0]) * u64::from(count[1]);
    let (mut times, mut longest, mut calm) = (Vec::new(), Vec::new(), Vec::new());
    with_lock(settings, || -> Result<()> {
        for round in 0..rounds(settings) {
            play(&mut switch, &frames);
            let before = switch.stats(&running, batch);
            ensure!(before.entries >= wanted, "{} megaflows of {wanted}", before.entries);
            let (begin, mut without) = (Instant::now(), Duration::ZERO);
            while begin.elapsed() < Duration::from_millis(if settings.quick { 1 } else { 300 }) {
                without = without.max(play(&mut switch, &running));
            }
            change(&switch, round as u32)?;
            let (begin, mut with) = (Instant::now(), Duration::ZERO);
            // An entry is looked at when it is its turn, or when it is hit.
            while switch.stats(&running, batch).revalidations < before.revalidations + wanted {
                with = with.max(play(&mut switch, &running));
                ensure!(begin.elapsed() < PATIENCE, "{title}: not done after {PATIENCE:?}");
            }
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            longest.push(with.as_secs_f64() * 1e3);
            calm.push(without.as_secs_f64() * 1e3);
        }
        Ok(())
    })??;
    let figure = |name: &str, values, bar| Figure { name: name.to_string(), unit: " ms", values, bar, at_most: true };
    let bar = |bar: f64| (!settings.quick).then_some(bar);
    Ok(Figures {
        name: "openflow-revalidation".to_string(),
        title: title.to_string(),
        figures: vec![
            figure("all megaflows revalidated", times, bar(REVALIDATION_MS.0)),
            figure("longest batch meanwhile, work between batches included", longest, bar(REVALIDATION_MS.1)),
            figure("longest batch before", calm, None),
        ],
    })
}

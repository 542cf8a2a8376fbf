//! OpenFlow tables under disturbance: hostile packets, changes that make all megaflows outdated, flow mods in large
//! numbers.
//!
//! *Attack* is tuple space explosion (Csikor et al., "Tuple Space Explosion: A Denial-of-Service Attack Against a
//! Software Packet Classifier", CoNEXT 2019; CVE-2019-25076): an access list of three rules admits by one field each.
//! One burst in a hundred consists of packets that differ from the admitted values in another combination of bits, one
//! bit of each field, so that each packet needs a megaflow with a mask of its own. The other attack is random: a longer
//! access list of many prefixes, and every hostile packet is of a new flow.
//!
//! *Revalidation* measures a change that all megaflows depend on, while packets run and the worker revalidates between
//! batches: a flow that matches none of their packets, and one that matches all of them with a lower priority than the
//! flows that decide.

use crate::engine;
use crate::frames::{Frames, Writer};
use crate::measure::{Ratio, Series};
use crate::openflow::{self, IPV4, Switch, Tables, compared, cycles, first, output, switch};
use crate::report::{Figure, Figures};
use crate::rows::{Bar, Row, Settings, with_lock};
use crate::updates::rounds;
use ::openflow::Match;
use anyhow::{Context, Result, anyhow, ensure};
use bridge::processor::CacheStats;
use datapath::{CacheUse, EngineKind};
use random::Random;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of harmless flows.
const FLOWS: u32 = 64;
/// Harmless bursts for each hostile one.
const BURSTS: usize = 99;
/// Widths in bits of the access list's three fields: source, TCP source port, TCP destination port.
const WIDTHS: [u32; 3] = [32, 16, 16];
/// The admitted value of each field.
const ADMITTED: [u32; 3] = [0x0a00_0001, 12345, 80];
/// The ports of harmless and of hostile packets.
const PORTS: [u16; 2] = [1, 3];

/// Least part of the throughput under attack: a requirement of the project, by which the row is judged.
const THROUGHPUT_UNDER_ATTACK_MIN: f64 = 0.95;
/// Numbers of sources and destinations of the megaflows that are revalidated; a megaflow for each pair.
const PAIRS: [u32; 2] = [500, 400];
/// Most milliseconds that a revalidation may take, and that a packet may wait because of it.
const REVALIDATION_MS: (f64, f64) = (500.0, 1.0);
/// Flow mods of a round; the least rate per second and the least part of the throughput meanwhile, both requirements.
const FLOW_MODS: u32 = 200_000;
const FLOW_MODS_RATE: f64 = 100_000.0;
const THROUGHPUT_DURING_CHANGES_MIN: f64 = 0.9;
/// Time limit for a revalidation: a hundred times what it may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// An attack.
pub struct Attack {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title in tables.
    pub title: &'static str,
    fill: fn(&Tables<'_>) -> Result<()>,
    /// Writes a harmless packet of a flow.
    harmless: fn(&mut Writer, u32),
    /// Writes a hostile packet, by number.
    hostile: fn(&mut Writer, u32),
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "openflow-attack",
        title: "OpenFlow access list, tuple space explosion by 1 % of the packets",
        fill: access_list,
        harmless: |w, flow| tcp(w, [0x0a00_0200 + flow, 20_000 + flow, 80]),
        hostile: |w, number| {
            let at = [number % 32, number / 32 % 16, number / 512];
            tcp(w, std::array::from_fn(|i| ADMITTED[i] ^ 1 << at[i]));
        },
    },
    Attack {
        name: "openflow-attack-random",
        title: "OpenFlow access list of 20 masks, 1 % of the packets of random flows",
        fill: long_access_list,
        harmless: |w, flow| five_tuple(w, flow.into()),
        hostile: |w, number| five_tuple(w, u64::from(number) + (1 << 32)),
    },
];

/// A table like those of the rows `openflow-15-ternary`; each rule sends.
fn long_access_list(tables: &Tables<'_>) -> Result<()> {
    tables.add((0, 0), Match::any(), vec![output(2)], None)?;
    let mut random = Random::stream(11, 0);
    for (i, mask) in openflow::masks(0).into_iter().enumerate() {
        for k in 0..openflow::TERNARY.2 {
            let about = openflow::tuple(random.below(200_000));
            let priority = (1 + i * openflow::TERNARY.2 + k) as u16;
            tables.add((0, priority), tables.five_tuple(about, mask)?, vec![output(3 + priority as u32 % 8)], None)?;
        }
    }
    Ok(())
}

fn five_tuple(w: &mut Writer, flow: u64) {
    openflow::write_tuple(w, openflow::tuple(flow));
}

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

/// Harmless packets in batches; under attack, one batch in a hundred is hostile.
fn traffic(attack: &Attack, is_attacked: bool, settings: &Settings) -> Frames {
    let mut w = Writer::default();
    let hostile: Vec<u32> = (0..WIDTHS.iter().product::<u32>()).collect();
    let mut frames = Frames::default();
    let mut flow = 0;
    let count = if settings.quick { 4 * settings.batch } else { hostile.len() };
    for burst in hostile[..count].chunks(settings.batch) {
        for _ in 0..BURSTS * settings.batch {
            flow = (flow + 1) % FLOWS;
            (attack.harmless)(&mut w, flow);
            frames.push(PORTS[0], &w.0);
        }
        for number in burst {
            if is_attacked {
                (attack.hostile)(&mut w, *number);
            }
            frames.push(PORTS[usize::from(is_attacked)], &w.0);
        }
    }
    frames
}

/// Measures the throughput under attack relative to that without.
///
/// # Errors
/// If a switch cannot be set up or differs from the interpreter, or the lock cannot be taken.
pub fn attack(attack: &Attack, settings: &Settings) -> Result<Row> {
    let title = attack.title;
    let frames = [false, true].map(|is_attacked| traffic(attack, is_attacked, settings));
    let few = first(&frames[1], 400 * settings.batch);
    let (clean, fates) = compared(title, CacheUse::Auto, &attack.fill, &[&few], settings)?;
    let (attacked, _) = compared(title, CacheUse::Auto, &attack.fill, &[&few], settings)?;
    let mut subjects = [clean.subject, attacked.subject];
    [subjects[0].name, subjects[1].name] = ["clean", "attacked"];
    let series = engine::timed_each(&mut subjects, frames.each_ref(), settings)?;
    let throughput = |series: &Series| Series {
        name: series.name.clone(),
        rounds: series.rounds.iter().map(|cycles| 1.0 / cycles).collect(),
    };
    let ratio = Ratio::new(&throughput(&series[1]), &throughput(&series[0]));
    let left = Bar { at_most: false, ..Bar::with("throughput, attacked / clean", ratio, THROUGHPUT_UNDER_ATTACK_MIN) };
    let unbounded = Bar { unit: " cycles", ..Bar::without("a received packet, clean", cycles(&series[0])) };
    Ok(Row { name: title.to_string(), series: series.to_vec(), bars: vec![left, unbounded], fates })
}

fn pair(w: &mut Writer, source: u32, destination: u32) {
    w.clear().ethernet(0x0200_0000_0001, 0x0200_0000_0002).ipv4(source, destination, 17, 64, 30).pad(64);
}

/// The first table matches sources, the second destinations.
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

/// A change of a table that all megaflows depend on: a flow that matches none of their packets, or one that matches all
/// of them with a lower priority than the flows that they match. Only translating the megaflows again shows which it
/// is.
fn change(switch: &Switch, number: u32, affects_all: bool) -> Result<()> {
    let mut matching = Match::any();
    let fields = switch.bridge.fields();
    let id = fields.named("ipv4_dst").context("there is no field `ipv4_dst`")?;
    let eth_type = fields.named("eth_type").context("there is no field `eth_type`")?;
    matching.add(eth_type, IPV4, 0xffff);
    if affects_all {
        return Tables(&switch.bridge).add_match((1, 0), matching);
    }
    matching.add(id, (0xc000_0000 | number).into(), u32::MAX.into());
    Tables(&switch.bridge).add_match((1, 1), matching)
}

/// Processor time of this thread, which excludes the time in which others ran.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn worked_since(before: Duration) -> Duration {
    worked().saturating_sub(before)
}

/// The number of megaflows that were examined after a change.
fn examined(stats: CacheStats) -> u64 {
    stats.revalidations + stats.confirmations
}

/// Measures the milliseconds until all megaflows are revalidated after one change, and the longest time of a batch
/// meanwhile.
///
/// # Errors
/// If the switch cannot be set up, or revalidation takes too long.
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
    let wanted = u64::from(count[0]) * u64::from(count[1]);
    let play = |switch: &mut Switch, frames: &Frames| {
        let (mut at, mut longest) = (0, Duration::ZERO);
        while at < frames.len() {
            let (played, took) = switch.subject.play(frames, at, batch);
            (at, longest) = (at + played, longest.max(took));
        }
        longest
    };
    let settle = |switch: &mut Switch, since: u64| -> Result<(Duration, [Duration; 2])> {
        let (begin, mut longest) = (Instant::now(), [Duration::ZERO; 2]);
        // A megaflow is examined in its turn, or when it is hit.
        while examined(switch.stats(&running, batch)) < since + wanted {
            let mut at = 0;
            while at < running.len() {
                let worked = worked();
                let (played, took) = switch.subject.play(&running, at, batch);
                (at, longest) = (at + played, [longest[0].max(took), longest[1].max(worked_since(worked))]);
            }
            ensure!(begin.elapsed() < TIME_LIMIT, "{title}: not done after {TIME_LIMIT:?}");
        }
        Ok((begin.elapsed(), longest))
    };
    let mut calm = Vec::new();
    let mut measured: [[Vec<f64>; 3]; 2] = Default::default();
    with_lock(settings, || -> Result<()> {
        for round in 0..rounds(settings) {
            play(&mut switch, &frames);
            let before = switch.stats(&running, batch);
            ensure!(before.entries >= wanted, "{} megaflows of {wanted}", before.entries);
            let (begin, mut without) = (Instant::now(), Duration::ZERO);
            while begin.elapsed() < Duration::from_millis(if settings.quick { 1 } else { 300 }) {
                without = without.max(play(&mut switch, &running));
            }
            for (affects_all, into) in [false, true].into_iter().zip(&mut measured) {
                let since = examined(switch.stats(&running, batch));
                change(&switch, round as u32, affects_all)?;
                let (time, [batch, worked]) = settle(&mut switch, since)?;
                for (into, time) in into.iter_mut().zip([time, batch, worked]) {
                    into.push(time.as_secs_f64() * 1e3);
                }
            }
            calm.push(without.as_secs_f64() * 1e3);
        }
        Ok(())
    })??;
    let figure = |name: &str, values, bar| Figure { name: name.to_string(), unit: " ms", values, bar, at_most: true };
    let bar = |bar: f64| (!settings.quick).then_some(bar);
    let mut figures = Vec::new();
    for (what, [times, batches, worked]) in ["about no packet", "about all packets"].into_iter().zip(measured) {
        figures.push(figure(&format!("a change {what}: all megaflows revalidated"), times, bar(REVALIDATION_MS.0)));
        let name = "longest batch meanwhile, work between batches included";
        figures.push(figure(&format!("{what}: {name}"), batches, bar(REVALIDATION_MS.1)));
        figures.push(figure(&format!("{what}: processor time of the longest batch"), worked, bar(REVALIDATION_MS.1)));
    }
    figures.push(figure("longest batch before", calm, None));
    Ok(Figures { name: "openflow-revalidation".to_string(), title: title.to_string(), figures })
}

/// Measures flow mods per second and the throughput meanwhile, without sockets: a thread adds flows for other
/// destinations to the table that all packets pass.
///
/// # Errors
/// If the switch cannot be set up or refuses a flow.
pub fn flow_mods(title: &str, settings: &Settings) -> Result<Figures> {
    let count = if settings.quick { 1000 } else { FLOW_MODS };
    let fill = |tables: &Tables<'_>| tables.add((0, 1), tables.exact(&[("in_port", 1)])?, vec![output(2)], None);
    let frames = openflow::tuples(FLOWS as usize);
    let mut switch = switch("OpenFlow", EngineKind::Machine, CacheUse::Auto, &fill, settings)?;
    let batch = settings.batch;
    let mut play = |goes_on: &dyn Fn(Duration) -> bool| {
        let (begin, before, mut packets) = (Instant::now(), worked(), 0);
        loop {
            let mut at = 0;
            while at < frames.len() {
                at += switch.subject.play(&frames, at, batch).0;
            }
            packets += frames.len();
            if !goes_on(begin.elapsed()) {
                break;
            }
        }
        (packets as f64 / begin.elapsed().as_secs_f64(), packets as f64 / worked_since(before).as_secs_f64())
    };
    let calm_for = Duration::from_millis(if settings.quick { 1 } else { 300 });
    let (mut rates, mut left, mut left_of_time) = (Vec::new(), Vec::new(), Vec::new());
    with_lock(settings, || -> Result<()> {
        for round in 0..rounds(settings) as u32 {
            let calm = play(&|passed| passed < calm_for);
            let bridge = Arc::clone(&switch.bridge);
            let writer = std::thread::spawn(move || -> Result<f64> {
                let (tables, begin) = (Tables(&bridge), Instant::now());
                for i in 0..count {
                    let destination = 0x0b00_0000 + (round * count + i) % (1 << 24);
                    let terms = [("eth_type", IPV4), ("ipv4_dst", destination.into())];
                    tables.add((0, 10), tables.exact(&terms)?, vec![output(2)], None)?;
                }
                Ok(f64::from(count) / begin.elapsed().as_secs_f64())
            });
            let busy = play(&|_| !writer.is_finished());
            rates.push(writer.join().map_err(|_| anyhow!("the writer has panicked"))??);
            left.push(busy.0 / calm.0);
            left_of_time.push(busy.1 / calm.1);
        }
        Ok(())
    })??;
    let figure = |name: &str, values, bar: f64, unit| {
        let bar = (!settings.quick).then_some(bar);
        Figure { name: name.to_string(), unit, values, bar, at_most: false }
    };
    Ok(Figures {
        name: "openflow-flow-mods".to_string(),
        title: title.to_string(),
        figures: vec![
            figure("flow mods a second", rates, FLOW_MODS_RATE, ""),
            figure("throughput meanwhile / before", left, THROUGHPUT_DURING_CHANGES_MIN, ""),
            figure("the same of the worker's processor time", left_of_time, THROUGHPUT_DURING_CHANGES_MIN, ""),
        ],
    })
}

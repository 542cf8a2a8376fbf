//! OpenFlow tables (`p4/openflow.p4` of crate `bridge`) and their flow cache: cycles per received 64-byte packet, from
//! the batch to the ports' buffers ([`crate::engine`]).
//!
//! Before anything is timed, frames go through the machine code with the cache and through the interpreter without one;
//! the same packets must be sent to the same ports. `l2l3acl` as OpenFlow tables is also compared with the P4 program
//! of that name.
//!
//! A switch receives bursts by port, so frames are arranged as whole batches of each port in turn.

use crate::engine::{self, Subject};
use crate::entry::Entry;
use crate::frames::{Frames, Writer};
use crate::measure::{Ratio, Series, quantile};
use crate::rows::{Bar, Row, Settings};
use crate::source::Source;
use crate::workload::{Workload, l2l3acl};
use crate::{copies, prefixes, subject};
use anyhow::{Context, Result, anyhow, ensure};
use bridge::processor::CacheStats;
use bridge::{Bridge, BridgeOptions, Origin};
use datapath::{CacheUse, EngineKind};
use openflow::action::{HeaderAction, port};
use openflow::message::{FlowCommand, FlowMod, GROUP_ANY, Port, PortStats, Queue, QueueStats, Timeouts};
use openflow::{Action, Instructions, Match};
use random::Random;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The highest port number; the lowest is 1.
const PORTS: u32 = 24;
/// Most frames that are played to the interpreter.
const ORACLE: usize = 2048;
/// Frames of rows in which every packet is of a new flow: more than a cache holds.
const FRESH: usize = 100_000;
/// Most time that a cache may learn before a row is timed. Traces may use an eighth of the worker's time.
const WARM: Duration = Duration::from_secs(60);
pub(crate) const IPV4: u128 = 0x800;

/// What a row measures.
#[derive(Clone, Copy)]
enum What {
    /// `l2l3acl` with traffic of this many flows, beside the P4 program.
    L2l3acl(usize),
    /// Tables with many masks and this many flows, beside the same without the cache.
    Ternary(usize),
    /// Tables with many masks, with every packet of a new flow.
    Fresh,
    /// From port to port, beside a P4 program.
    Port,
    /// The port `NORMAL` between learned stations, beside a P4 program that sends to a port.
    Normal,
}

/// A row.
pub struct OpenFlow {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title in tables.
    pub title: &'static str,
    what: What,
    /// Most cycles per packet, if limited.
    cycles: Option<f64>,
    /// Highest ratio, if limited.
    ratio: Option<f64>,
}

/// All rows.
pub const ALL: &[OpenFlow] = &[
    OpenFlow {
        name: "openflow-port",
        title: "OpenFlow, one table, from port to port",
        what: What::Port,
        cycles: None,
        ratio: None,
    },
    OpenFlow {
        name: "openflow-normal",
        title: "OpenFlow, NORMAL between 64 stations",
        what: What::Normal,
        cycles: None,
        ratio: None,
    },
    OpenFlow {
        name: "openflow-l2l3acl-64",
        title: "l2l3acl as eight OpenFlow tables, 1k entries, 64 flows",
        what: What::L2l3acl(64),
        cycles: None,
        ratio: Some(1.5),
    },
    OpenFlow {
        name: "openflow-l2l3acl-100k",
        title: "l2l3acl as eight OpenFlow tables, 1k entries, 100k flows",
        what: What::L2l3acl(100_000),
        cycles: None,
        ratio: Some(1.5),
    },
    OpenFlow {
        name: "openflow-15-ternary",
        title: "15 OpenFlow tables, 20 masks and 200 rules each, 64 flows",
        what: What::Ternary(64),
        cycles: Some(120.0),
        ratio: None,
    },
    OpenFlow {
        name: "openflow-15-ternary-100k",
        title: "15 OpenFlow tables, 20 masks and 200 rules each, 100k flows",
        what: What::Ternary(100_000),
        cycles: Some(250.0),
        ratio: None,
    },
    OpenFlow {
        name: "openflow-15-ternary-new",
        title: "15 OpenFlow tables, 20 masks and 200 rules each, every packet a new flow",
        what: What::Fresh,
        cycles: None,
        ratio: Some(1.2),
    },
];

/// A host of a bridge that provides nothing but the time.
struct Alone;

impl bridge::Host for Alone {
    fn now_us(&self) -> u64 {
        0
    }

    fn inject(&self, _: Vec<u8>, _: u32, _: u64) -> Result<(), bridge::NotInjected> {
        Err(bridge::NotInjected::Failed("there are no packet-outs here".to_string()))
    }

    fn port_stats(&self, _: u32) -> Option<PortStats> {
        None
    }

    fn queues(&self, _: u32) -> Vec<Queue> {
        Vec::new()
    }

    fn queue_stats(&self, _: u32) -> Vec<QueueStats> {
        Vec::new()
    }

    fn set_port_config(&self, _: u32, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn sync_counts(&self) {}

    fn wake(&self, _: u64) {}
}

/// Builds flows for a bridge.
pub(crate) struct Tables<'a>(pub(crate) &'a Bridge);

impl Tables<'_> {
    fn add_term(&self, matching: &mut Match, name: &str, value: u128, mask: u128) -> Result<()> {
        let fields = self.0.fields();
        let id = fields.named(name).with_context(|| format!("there is no field `{name}`"))?;
        let mask = mask & fields.get(id).full();
        if mask != 0 {
            matching.add(id, value & mask, mask);
        }
        Ok(())
    }

    /// A match on these fields with full masks.
    ///
    /// # Errors
    /// If there is no such field.
    pub(crate) fn exact(&self, terms: &[(&str, u128)]) -> Result<Match> {
        let mut matching = Match::any();
        terms.iter().try_for_each(|(name, value)| self.add_term(&mut matching, name, *value, u128::MAX))?;
        Ok(matching)
    }

    /// A match on a five-tuple under masks of source, destination and ports.
    pub(crate) fn five_tuple(&self, about: Tuple, (src, dst, sport, dport): (u32, u32, u16, u16)) -> Result<Match> {
        let names = if about.protocol == 6 { ["tcp_src", "tcp_dst"] } else { ["udp_src", "udp_dst"] };
        let mut matching = self.exact(&[("eth_type", IPV4), ("ip_proto", about.protocol.into())])?;
        self.add_term(&mut matching, "ipv4_src", about.src.into(), src.into())?;
        self.add_term(&mut matching, "ipv4_dst", about.dst.into(), dst.into())?;
        self.add_term(&mut matching, names[0], about.sport.into(), sport.into())?;
        self.add_term(&mut matching, names[1], about.dport.into(), dport.into())?;
        Ok(matching)
    }

    fn set(&self, name: &str, value: u128) -> Result<Action> {
        let fields = self.0.fields();
        let field = fields.named(name).with_context(|| format!("there is no field `{name}`"))?;
        Ok(Action::SetField { field, value, mask: fields.get(field).full() })
    }

    /// Adds a flow that drops.
    pub(crate) fn add_match(&self, at: (u8, u16), matching: Match) -> Result<()> {
        self.add(at, matching, Vec::new(), None)
    }

    /// Adds a flow; without actions and a next table it drops.
    ///
    /// # Errors
    /// If the bridge refuses the flow.
    pub(crate) fn add(
        &self,
        (table, priority): (u8, u16),
        matching: Match,
        apply: Vec<Action>,
        goto: impl Into<Option<u8>>,
    ) -> Result<()> {
        let request = FlowMod {
            command: FlowCommand::Add,
            table,
            matching,
            priority,
            cookie: 0,
            cookie_mask: 0,
            timeouts: Timeouts::default(),
            buffer: u32::MAX,
            out_port: port::ANY,
            out_group: GROUP_ANY,
            flags: 0,
            importance: 0,
            instructions: Instructions { apply, goto: goto.into(), ..Instructions::default() },
        };
        self.0
            .flow_mod(&request, &Origin::SWITCH)
            .map_err(|error| anyhow!("table {table} refuses a flow, {request:?}: {error:?}"))
    }
}

pub(crate) fn output(port: u32) -> Action {
    Action::Output { port, max_len: 0 }
}

/// Adds the flows of a row.
pub(crate) type Fill<'a> = &'a dyn Fn(&Tables<'_>) -> Result<()>;

/// A bridge with its flows and a subject that runs them.
pub(crate) struct Switch {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) flows: Arc<bridge::processor::Pipeline>,
    pub(crate) subject: Subject,
}

impl Switch {
    /// What its cache has counted so far.
    pub(crate) fn stats(&mut self, frames: &Frames, batch: usize) -> CacheStats {
        self.flows.request_counts();
        self.subject.play(frames, 0, batch);
        self.flows.stats().first().map(|(_, stats)| *stats).unwrap_or_default()
    }

    /// Plays all frames repeatedly until the cache learns nothing more.
    pub(crate) fn warm(&mut self, frames: &Frames, settings: &Settings) {
        let begin = Instant::now();
        let longest = if settings.quick { Duration::from_millis(100) } else { WARM };
        let mut before = self.stats(frames, settings.batch);
        while begin.elapsed() < longest {
            let mut at = 0;
            while at < frames.len() {
                at += self.subject.play(frames, at, settings.batch).0;
            }
            let after = self.stats(frames, settings.batch);
            if (after.traces, after.misses) == (before.traces, before.misses) && begin.elapsed() > longest / 50 {
                break;
            }
            before = after;
        }
    }
}

/// A bridge with flows.
pub(crate) fn switch(
    name: &'static str,
    kind: EngineKind,
    use_: CacheUse,
    fill: Fill<'_>,
    settings: &Settings,
) -> Result<Switch> {
    let program = subject::compile(&Source::Text(bridge::PROTOCOLS.to_string()), &settings.options)?;
    let bridge = Bridge::new(&program, Arc::new(Alone), BridgeOptions::default()).map_err(|why| anyhow!("{why}"))?;
    (1..=PORTS).for_each(|number| bridge.put_port(Port { number, ..Port::default() }));
    fill(&Tables(&bridge))?;
    let bridge = Arc::new(bridge);
    let control = Arc::clone(&bridge) as Arc<dyn bridge::translate::Control>;
    let flows = bridge::processor::Pipeline::new(control, &program).map_err(|why| anyhow!("{why}"))?;
    flows.set_use(use_);
    let tables = Arc::clone(&flows) as Arc<dyn abi::flows::FlowTables>;
    let pipeline = datapath::load_bridge(program, kind, 1, &settings.options.code, tables)?;
    Ok(Switch { bridge, flows, subject: Subject::of_pipeline(name, pipeline, 1).in_real_time() })
}

/// The bridge with its cache, compared with the interpreter without one, before and after it is recompiled.
pub(crate) fn compared(
    title: &str,
    use_: CacheUse,
    fill: Fill<'_>,
    frames: &[&Frames],
    settings: &Settings,
) -> Result<(Switch, [u64; 3])> {
    let machine = switch("OpenFlow", EngineKind::Machine, use_, fill, settings)?;
    let interpreter = switch("interpreter", EngineKind::Interpreter, CacheUse::Never, fill, settings)?;
    let mut both = [machine.subject, interpreter.subject];
    let mut fates = [0; 3];
    for turn in 0..2 {
        for some in frames {
            let [sent, dropped] = engine::compared(title, &mut both, some, settings.batch)?;
            fates = [fates[0] + sent, fates[1] + dropped, fates[2] + some.len() as u64];
        }
        if turn == 0 {
            both[0].settle(settings);
        }
    }
    ensure!(fates[0] > 0, "{title}: every packet was dropped");
    let [subject, _] = both;
    Ok((Switch { bridge: machine.bridge, flows: machine.flows, subject }, fates))
}

/// Arranges frames as whole batches of each port in turn. The last batch of a port is filled up with its first frames.
pub(crate) fn bursts(frames: &Frames, batch: usize) -> Frames {
    let mut by_port: Vec<Vec<usize>> = Vec::new();
    for i in 0..frames.len() {
        let port = frames.get(i).0 as usize;
        by_port.resize_with(by_port.len().max(port + 1), Vec::new);
        by_port[port].push(i);
    }
    let most = by_port.iter().map(|all| all.len().div_ceil(batch)).max().unwrap_or(0);
    let mut result = Frames::default();
    for burst in 0..most {
        for all in by_port.iter().filter(|all| burst < all.len().div_ceil(batch)) {
            for k in 0..batch {
                let (port, frame) = frames.get(all[(burst * batch + k) % all.len()]);
                result.push(port as u16, frame);
            }
        }
    }
    result
}

/// The first `count` frames, for the interpreter.
pub(crate) fn first(frames: &Frames, count: usize) -> Frames {
    let mut result = Frames::default();
    (0..frames.len().min(count)).for_each(|i| {
        let (port, frame) = frames.get(i);
        result.push(port as u16, frame);
    });
    result
}

/// The numbers of the tables of [`l2l3acl_flows`].
mod table {
    pub const VLAN_INGRESS: u8 = 0;
    pub const LEARNING: u8 = 1;
    pub const ROUTABLE: u8 = 2;
    pub const ROUTING: u8 = 3;
    pub const NEXT_HOP: u8 = 4;
    pub const SWITCHING: u8 = 5;
    pub const ACL: u8 = 6;
    pub const VLAN_EGRESS: u8 = 7;
}

/// The entries of the P4 program `l2l3acl` as flows. `reg0` is the VLAN, `reg1` the next hop, `reg2` the port. Features
/// that no frame of the workload uses are left out: flooding, digests, and ports that nothing is forwarded to.
fn l2l3acl_flows(workload: &Workload, tables: &Tables<'_>) -> Result<()> {
    use table::*;
    for (at, next) in [(LEARNING, ROUTABLE), (ROUTABLE, SWITCHING), (ACL, VLAN_EGRESS)] {
        tables.add((at, 0), Match::any(), Vec::new(), next)?;
    }
    let mut result = Ok(());
    (workload.entries)(&mut |entry: &Entry| {
        if result.is_ok() {
            result = l2l3acl_flow(workload.kinds[entry.kind as usize], entry, tables);
        }
    });
    result
}

fn l2l3acl_flow(kind: &str, entry: &Entry, tables: &Tables<'_>) -> Result<()> {
    use table::*;
    let key = entry.key.map(u128::from);
    let arg = entry.args.map(u128::from);
    let tag = |vid: u128| 0x1000 | vid;
    match kind {
        "vlan_ingress.assign_vlan" => {
            let untagged = tables.exact(&[("in_port", key[0]), ("vlan_vid", 0)])?;
            tables.add((VLAN_INGRESS, 1), untagged, vec![tables.set("reg0", arg[0])?], LEARNING)
        }
        "vlan_ingress.admit" => {
            let tagged = tables.exact(&[("in_port", key[0]), ("vlan_vid", tag(key[1]))])?;
            tables.add((VLAN_INGRESS, 1), tagged, vec![tables.set("reg0", key[1])?], LEARNING)
        }
        "mac_learning.seen" => {
            let known = tables.exact(&[("reg0", key[0]), ("eth_src", key[1]), ("in_port", arg[0])])?;
            tables.add((LEARNING, 1), known, Vec::new(), ROUTABLE)
        }
        "routable.NoAction" => {
            let own = tables.exact(&[("reg0", key[0]), ("eth_dst", key[1]), ("eth_type", IPV4)])?;
            tables.add((ROUTABLE, 1), own, Vec::new(), ROUTING)
        }
        "routing.set_next_hop" => {
            let mut route = tables.exact(&[("eth_type", IPV4)])?;
            let mask = prefixes::mask(entry.prefix_len);
            tables.add_term(&mut route, "ipv4_dst", key[0], mask.into())?;
            tables.add((ROUTING, entry.prefix_len as u16), route, vec![tables.set("reg1", arg[0])?], NEXT_HOP)
        }
        "next_hop.rewrite" => {
            let hop = tables.exact(&[("reg1", key[0]), ("eth_type", IPV4)])?;
            let actions = vec![
                tables.set("reg0", arg[0])?,
                tables.set("reg2", arg[1])?,
                tables.set("eth_src", arg[2])?,
                tables.set("eth_dst", arg[3])?,
                Action::Header { name: HeaderAction::DecNwTtl, argument: 0 },
            ];
            tables.add((NEXT_HOP, 1), hop, actions, ACL)
        }
        "switching.forward" => {
            let station = tables.exact(&[("reg0", key[0]), ("eth_dst", key[1])])?;
            tables.add((SWITCHING, 1), station, vec![tables.set("reg2", arg[0])?], ACL)
        }
        "acl.permit" | "acl.drop" => rule(entry, kind == "acl.permit", tables),
        "vlan_egress.tagged" => {
            let to = [("reg2", key[0]), ("reg0", key[1])];
            let tagged = tables.set("vlan_vid", tag(key[1]))?;
            let send = output(key[0] as u32);
            let mut matching = tables.exact(&to)?;
            tables.add_term(&mut matching, "vlan_vid", 0, u128::MAX)?;
            let push = Action::Header { name: HeaderAction::PushVlan, argument: 0x8100 };
            tables.add((VLAN_EGRESS, 2), matching, vec![push, tagged.clone(), send.clone()], None)?;
            let mut matching = tables.exact(&to)?;
            tables.add_term(&mut matching, "vlan_vid", 0x1000, 0x1000)?;
            tables.add((VLAN_EGRESS, 2), matching, vec![tagged, send], None)
        }
        // Dropped, like a miss.
        _ => Ok(()),
    }
}

/// A rule of the access list. OpenFlow can match ports only of a given protocol, so a rule on ports of any protocol
/// becomes two flows.
fn rule(entry: &Entry, is_permitted: bool, tables: &Tables<'_>) -> Result<()> {
    let [src, dst, protocol, sport, dport] =
        std::array::from_fn(|i| (u128::from(entry.key[i]), u128::from(entry.mask[i])));
    let has_ports = sport.1 | dport.1 != 0;
    let protocols = match (protocol.1, has_ports) {
        (0, true) => vec![Some(6), Some(17)],
        (0, false) => vec![None],
        _ => vec![Some(protocol.0)],
    };
    for protocol in protocols {
        let mut matching = tables.exact(&[("eth_type", IPV4)])?;
        tables.add_term(&mut matching, "ipv4_src", src.0, src.1)?;
        tables.add_term(&mut matching, "ipv4_dst", dst.0, dst.1)?;
        if let Some(protocol) = protocol {
            tables.add_term(&mut matching, "ip_proto", protocol, u128::MAX)?;
            let names = if protocol == 6 { ["tcp_src", "tcp_dst"] } else { ["udp_src", "udp_dst"] };
            tables.add_term(&mut matching, names[0], sport.0, sport.1)?;
            tables.add_term(&mut matching, names[1], dport.0, dport.1)?;
        }
        let next = is_permitted.then_some(table::VLAN_EGRESS);
        tables.add((table::ACL, entry.priority as u16), matching, Vec::new(), next)?;
    }
    Ok(())
}

/// A five-tuple of the ternary tables' traffic. The protocol is TCP or UDP, whose ports flows can match.
#[derive(Clone, Copy)]
pub(crate) struct Tuple {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) protocol: u8,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

pub(crate) fn tuple(flow: u64) -> Tuple {
    let mut random = Random::stream(7, flow);
    Tuple {
        src: 0x6440_0000 | random.below(1 << 22) as u32,
        dst: 0x0a00_0000 | random.below(1 << 24) as u32,
        protocol: [6, 17][random.index(2)],
        sport: random.below(1 << 16) as u16,
        dport: random.below(1 << 16) as u16,
    }
}

/// A frame for each of `flows` flows, all received by port 1.
pub(crate) fn tuples(flows: usize) -> Frames {
    let mut w = Writer::default();
    let mut frames = Frames::with_capacity(flows, 64);
    for flow in 0..flows as u64 {
        write_tuple(&mut w, tuple(flow));
        frames.push(1, &w.0);
    }
    frames
}

/// Writes a frame of a flow.
pub(crate) fn write_tuple(w: &mut Writer, Tuple { src, dst, protocol, sport, dport }: Tuple) {
    w.clear().ethernet(0x0200_0000_0001, 0x0200_0000_0002).ipv4(src, dst, protocol, 64, 30);
    w.be::<2>(sport.into()).be::<2>(dport.into());
    w.pad(64);
}

/// Number of tables, masks per table, and rules per mask.
pub(crate) const TERNARY: (u8, usize, usize) = (15, 20, 10);

/// A table's masks: of source, destination and ports.
pub(crate) fn masks(table: u8) -> Vec<(u32, u32, u16, u16)> {
    let mut random = Random::stream(8, table.into());
    let mut all = Vec::new();
    while all.len() < TERNARY.1 {
        let prefixes = (prefixes::mask(random.below(25) as u32 + 8), prefixes::mask(random.below(25) as u32 + 8));
        let ports = ([0, 0xff00, 0xffff], [0, 0xfff0, 0xffff]);
        let mask = (prefixes.0, prefixes.1, *random.pick(&ports.0), *random.pick(&ports.1));
        if !all.contains(&mask) {
            all.push(mask);
        }
    }
    all
}

/// Each table writes a register and continues with the next; the last one sends. Rules are made from flows of the
/// traffic, so some match.
fn ternary_flows(tables: &Tables<'_>) -> Result<()> {
    let last = TERNARY.0 - 1;
    for table in 0..TERNARY.0 {
        let next = (table < last).then_some(table + 1);
        let send = |port: u32| if table == last { vec![output(port)] } else { Vec::new() };
        tables.add((table, 0), Match::any(), send(2), next)?;
        let mut random = Random::stream(9, table.into());
        for (i, mask) in masks(table).into_iter().enumerate() {
            for k in 0..TERNARY.2 {
                let about = tuple(random.below(200_000));
                let matching = tables.five_tuple(about, mask)?;
                let number = 1 + i * TERNARY.2 + k;
                let mut actions = vec![tables.set(&format!("reg{}", table % 8), number as u128)?];
                actions.extend(send(3 + number as u32 % 8));
                tables.add((table, number as u16), matching, actions, next)?;
            }
        }
    }
    Ok(())
}

/// Frames between stations; those at port 1 have even numbers, those at port 2 odd ones.
fn stations(flows: u64) -> Frames {
    let mut w = Writer::default();
    let mut frames = Frames::default();
    for flow in 0..flows {
        let to = |flow: u64| 0x0200_0000_0000 | flow;
        w.clear().ethernet(to(flow ^ 1), to(flow)).ipv4(0x0a00_0000 | flow as u32, 0x0a00_0100, 17, 64, 30).pad(64);
        frames.push(1 + (flow & 1) as u16, &w.0);
    }
    frames
}

/// A median with quartiles, in the form that is compared with a bar.
pub(crate) fn cycles(series: &Series) -> Ratio {
    let at = |part| quantile(&series.rounds, part);
    Ratio { value: at(0.5), low: at(0.25), high: at(0.75) }
}

/// Measures a row.
///
/// # Errors
/// If subjects cannot be loaded or differ, or the lock cannot be taken.
pub fn run(row: &OpenFlow, settings: &Settings) -> Result<Row> {
    match row.what {
        What::L2l3acl(flows) => l2l3acl_row(row, flows, settings),
        What::Ternary(flows) => {
            let frames = bursts(&tuples(if settings.quick { flows.min(500) } else { flows }), settings.batch);
            let (mut cached, fates) =
                compared(row.title, CacheUse::Always, &ternary_flows, &[&first(&frames, ORACLE)], settings)?;
            cached.warm(&frames, settings);
            let without = switch("without the cache", EngineKind::Machine, CacheUse::Never, &ternary_flows, settings)?;
            beside(row, [cached.subject, without.subject], &frames, fates, settings)
        }
        What::Fresh => {
            let frames = bursts(&tuples(if settings.quick { 500 } else { FRESH }), settings.batch);
            let few = first(&frames, ORACLE);
            let (auto, fates) = compared(row.title, CacheUse::Auto, &ternary_flows, &[&few], settings)?;
            let (always, _) = compared(row.title, CacheUse::Always, &ternary_flows, &[&few], settings)?;
            let (never, _) = compared(row.title, CacheUse::Never, &ternary_flows, &[&few], settings)?;
            let named = |name, switch: Switch| {
                let mut subject = switch.subject;
                subject.name = name;
                subject
            };
            let mut subjects =
                [named("cache as it pays", auto), named("without the cache", never), named("cache always", always)];
            let series = engine::timed(&mut subjects, &frames, settings)?;
            let ratio = |i: usize| Ratio::new(&series[i], &series[1]);
            let bars = vec![
                Bar::with("as it pays / without", ratio(0), row.ratio.unwrap_or(f64::NAN)),
                Bar::without("always / without", ratio(2)),
            ];
            Ok(Row { name: row.title.to_string(), series: series.to_vec(), bars, fates })
        }
        What::Port => {
            let frames = bursts(&tuples(64), settings.batch);
            let fill =
                |tables: &Tables<'_>| tables.add((0, 1), tables.exact(&[("in_port", 1)])?, vec![output(2)], None);
            let (mut openflow, fates) = compared(row.title, CacheUse::Always, &fill, &[&frames], settings)?;
            openflow.warm(&frames, settings);
            beside(row, [openflow.subject, to_a_port(settings)?], &frames, fates, settings)
        }
        What::Normal => {
            let frames = bursts(&stations(64), settings.batch);
            let fill = |tables: &Tables<'_>| tables.add((0, 0), Match::any(), vec![output(port::NORMAL)], None);
            let (mut openflow, fates) = compared(row.title, CacheUse::Always, &fill, &[&frames], settings)?;
            openflow.warm(&frames, settings);
            beside(row, [openflow.subject, to_a_port(settings)?], &frames, fates, settings)
        }
    }
}

/// A P4 program that sends to port 2.
fn to_a_port(settings: &Settings) -> Result<Subject> {
    let subject = Subject::new("P4, to a port", &copies::to_a_port(), EngineKind::Machine, 1, &|_| Ok(()), settings)?;
    subject.settle(settings);
    Ok(subject)
}

fn l2l3acl_row(row: &OpenFlow, flows: usize, settings: &Settings) -> Result<Row> {
    let size = match settings.quick {
        true => l2l3acl::Size::of(100, flows.min(500)),
        false => l2l3acl::Size::of(1000, flows),
    };
    let workload = l2l3acl::workload(size);
    let fill = |tables: &Tables<'_>| l2l3acl_flows(&workload, tables);
    let frames = bursts(&workload.frames, settings.batch);
    let odd = first(&workload.odd, if settings.quick { 200 } else { ORACLE });
    let (mut openflow, fates) =
        compared(row.title, CacheUse::Always, &fill, &[&first(&frames, ORACLE), &odd], settings)?;
    let prepare =
        |pipeline: &datapath::Pipeline| subject::insert_all(&workload, pipeline.program(), pipeline.state().as_ref());
    let p4 = Subject::new("P4", &workload.source, EngineKind::Machine, 1, &prepare, settings)?;
    p4.settle(settings);
    openflow.warm(&frames, settings);
    let mut both = [openflow.subject, p4];
    let [sent, dropped] = engine::compared_outputs(row.title, &mut both, &frames, settings.batch)?;
    let fates = [fates[0] + sent, fates[1] + dropped, fates[2] + frames.len() as u64];
    beside(row, both, &frames, fates, settings)
}

/// Times two subjects and compares the first with the row's bars.
fn beside(
    row: &OpenFlow,
    mut subjects: [Subject; 2],
    frames: &Frames,
    fates: [u64; 3],
    settings: &Settings,
) -> Result<Row> {
    let series = engine::timed(&mut subjects, frames, settings)?;
    let name = format!("OpenFlow / {}", series[1].name);
    let ratio = Bar::with(&name, Ratio::new(&series[0], &series[1]), row.ratio.unwrap_or(f64::NAN));
    let held = row.cycles.map(|bar| Bar { unit: " cycles", ..Bar::with("a received packet", cycles(&series[0]), bar) });
    Ok(Row {
        name: row.title.to_string(),
        series: series.to_vec(),
        bars: held.into_iter().chain([ratio]).collect(),
        fates,
    })
}

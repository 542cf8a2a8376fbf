//! What packets cost that the replication engine copies, drops or sends round: cycles for a received packet, from the batch to
//! the ports' buffers.
//!
//! What is timed is what a worker counts as its pipeline's: [`Engine::receive`], the copies' buffers included, with the ports' buffers
//! behind it. Freeing what was sent is not timed. Everything is held against the interpreter first: the same frames by each port in the
//! same order, the same counters.
//!
//! Copies are measured beside a program that sends each packet to a port. Resubmitting and recirculating are measured with a
//! program that routes: the ratio is the cost of the second pass over the cost of a packet that passes once.

use crate::frames::{Frames, Writer};
use crate::measure::{Plan, Ratio, Series};
use crate::rows::{Bar, Row, Settings, with_lock};
use crate::source::Source;
use crate::subject;
use abi::packet::BATCH_MAX;
use anyhow::{Result, ensure};
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use datapath::drops::{DropCounters, DropReason};
use datapath::engine::{Engine, Sink, WORK_MAX};
use datapath::executor::Executor;
use datapath::replication::{CloneSession, Replica};
use datapath::timing::ticks;
use datapath::{EngineKind, Pipeline};
use pktio::{HeapPool, Packet, Pool, free_bulk};

/// Ports have smaller numbers.
const PORTS: u32 = 16;
/// The group and the clone session.
const GROUP: u32 = 1;
const SESSION: u32 = 5;
/// Stations that the routing program knows, and flows.
const STATIONS: u64 = 1000;
const FLOWS: u64 = 64;
/// The first station's address.
const FIRST: u64 = 0x0200_0000_0000;

/// What a row holds against its bar.
#[derive(Clone, Copy)]
enum Bound {
    /// Cycles for a received packet.
    Cycles(f64),
    /// What a further pass costs, in passes of the same program.
    Pass(f64),
    /// Nothing.
    Told,
}

/// A row.
pub struct Copies {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// What ingress does besides, and egress.
    ingress: &'static str,
    egress: &'static str,
    /// Members of the group.
    replicas: u32,
    /// Bytes of a frame.
    frame: usize,
    bound: Bound,
}

/// All rows.
pub const ALL: &[Copies] = &[
    Copies {
        name: "copies-multicast-1",
        title: "multicast to 1 port",
        ingress: "std.mcast_grp = 1;",
        egress: "",
        replicas: 1,
        frame: 60,
        bound: Bound::Cycles(50.0),
    },
    Copies {
        name: "copies-multicast-2",
        title: "multicast to 2 ports",
        ingress: "std.mcast_grp = 1;",
        egress: "",
        replicas: 2,
        frame: 60,
        bound: Bound::Cycles(90.0),
    },
    Copies {
        name: "copies-multicast-4",
        title: "multicast to 4 ports",
        ingress: "std.mcast_grp = 1;",
        egress: "",
        replicas: 4,
        frame: 60,
        bound: Bound::Cycles(170.0),
    },
    Copies {
        name: "copies-multicast-4-1500",
        title: "multicast to 4 ports, frames of 1,500 bytes",
        ingress: "std.mcast_grp = 1;",
        egress: "",
        replicas: 4,
        frame: 1500,
        bound: Bound::Told,
    },
    Copies {
        name: "copies-clone",
        title: "sent to a port and cloned to another",
        ingress: "std.egress_spec = 2; clone(CloneType.I2E, 5);",
        egress: "",
        replicas: 1,
        frame: 60,
        bound: Bound::Cycles(80.0),
    },
    Copies {
        name: "copies-unknown-group",
        title: "multicast to a group that does not exist",
        ingress: "std.mcast_grp = 77;",
        egress: "",
        replicas: 1,
        frame: 60,
        bound: Bound::Cycles(15.0),
    },
    Copies {
        name: "copies-flood-and-learn",
        title: "multicast to 1 port, and the source in a digest",
        ingress: "std.mcast_grp = 1; digest<learn_t>(1, { hdr.ethernet.src, std.ingress_port });",
        egress: "",
        replicas: 1,
        frame: 60,
        bound: Bound::Told,
    },
    Copies {
        name: "copies-resubmit",
        title: "routed twice: resubmitted",
        ingress: "route.apply(); if (std.instance_type == 0) { resubmit_preserving_field_list(0); }",
        egress: "",
        replicas: 1,
        frame: 60,
        bound: Bound::Pass(1.5),
    },
    Copies {
        name: "copies-recirculate",
        title: "routed twice: recirculated",
        ingress: "route.apply();",
        egress: "if (hdr.ipv4.ttl == 63) { recirculate_preserving_field_list(0); }",
        replicas: 1,
        frame: 60,
        bound: Bound::Pass(2.0),
    },
];

/// A program that does this in its controls: one that routes parses IPv4, the others Ethernet.
fn program(ingress: &str, egress: &str) -> Source {
    let next = match ingress.contains("route") {
        true => "select(hdr.ethernet.type) { 0x0800: ipv4; default: accept; }",
        false => "accept;",
    };
    Source::Text(format!(
        r#"#include <core.p4>
#include <v1model.p4>

header ethernet_t {{ bit<48> dst; bit<48> src; bit<16> type; }}
header ipv4_t {{
    bit<4> version; bit<4> ihl; bit<8> diffserv; bit<16> total_len; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}}
struct headers_t {{ ethernet_t ethernet; ipv4_t ipv4; }}
struct meta_t {{}}
struct learn_t {{ bit<48> station; bit<9> port; }}

parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    state start {{
        pkt.extract(hdr.ethernet);
        transition {next}
    }}
    state ipv4 {{ pkt.extract(hdr.ipv4); transition accept; }}
}}

control MyVerify(inout headers_t hdr, inout meta_t meta) {{ apply {{}} }}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    action drop() {{ mark_to_drop(std); }}
    action to(bit<9> port) {{
        std.egress_spec = port;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }}
    table route {{
        key = {{ hdr.ethernet.dst: exact; hdr.ipv4.isValid(): exact; }}
        actions = {{ to; drop; }}
        default_action = drop();
        size = 4096;
    }}
    apply {{ {ingress} }}
}}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{ apply {{ {egress} }} }}

control MyCompute(inout headers_t hdr, inout meta_t meta) {{ apply {{}} }}

control MyDeparser(packet_out pkt, in headers_t hdr) {{ apply {{ pkt.emit(hdr.ethernet); pkt.emit(hdr.ipv4); }} }}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"#
    ))
}

/// Ports' buffers, as a worker has them.
struct Buffers {
    out: Vec<Vec<Packet>>,
    dropped: Vec<Packet>,
    drops: DropCounters,
}

impl Sink for Buffers {
    #[inline]
    fn send(&mut self, port: u32, packet: Packet) {
        match self.out.get_mut(port as usize) {
            Some(out) => out.push(packet),
            None => self.dropped.push(packet),
        }
    }

    #[inline]
    fn send_all(&mut self, port: u32, packets: &mut Vec<Packet>) {
        match self.out.get_mut(port as usize) {
            Some(out) if out.is_empty() => std::mem::swap(out, packets),
            Some(out) => out.append(packets),
            None => self.dropped.append(packets),
        }
    }

    fn drop(&mut self, reason: DropReason, packet: Packet) {
        self.drops.count(reason);
        self.dropped.push(packet);
    }

    fn lost_copies(&mut self, reason: DropReason, count: u64) {
        self.drops.count_many(reason, count);
    }
}

/// A program with a worker's engine.
struct Subject {
    name: &'static str,
    pipeline: Pipeline,
    executor: Box<dyn Executor>,
    engine: Engine,
    pool: HeapPool,
    burst: Vec<Packet>,
    buffers: Buffers,
    now_us: u64,
}

impl Subject {
    fn new(
        name: &'static str,
        row: &Copies,
        source: &Source,
        kind: EngineKind,
        settings: &Settings,
    ) -> Result<Subject> {
        let program = subject::compile(source, &settings.options)?;
        let pipeline = datapath::load_with(program, kind, 1, &settings.options.code)?;
        for station in 0..STATIONS {
            let key =
                vec![KeyMatch::Exact(Bits::new(48, u128::from(FIRST + station))), KeyMatch::Exact(Bits::new(1, 1))];
            let port = Bits::new(9, u128::from(1 + station % 8));
            let action = EntryAction::Call(ActionCall { action: 0, args: vec![port] });
            let entry = TableEntry { key, priority: 0, action, idle_timeout_ns: 0 };
            // Programs that do not route have no table.
            if !pipeline.program().tables.is_empty() {
                let inserted = pipeline.state().insert(TableId(0), &entry);
                ensure!(inserted.is_ok(), "{}: {inserted:?}", row.name);
            }
        }
        let replicas = (0..row.replicas).map(|i| Replica { port: 2 + i, instance: i }).collect();
        pipeline.replication().group_insert(GROUP, replicas)?;
        let replicas = vec![Replica { port: 9, instance: 1 }];
        pipeline.replication().session_insert(SESSION, CloneSession { replicas, ..CloneSession::default() })?;
        Ok(Subject {
            name,
            executor: pipeline.executor(0),
            engine: Engine::new(pipeline.program().clone(), pipeline.replication().clone()),
            buffers: Buffers {
                out: (0..PORTS).map(|_| Vec::with_capacity(BATCH_MAX * 4)).collect(),
                dropped: Vec::new(),
                drops: DropCounters::new(pipeline.program().drops.len()),
            },
            pipeline,
            pool: HeapPool::new(BATCH_MAX * (row.replicas as usize + 2) + BATCH_MAX),
            burst: Vec::new(),
            now_us: 1,
        })
    }

    /// Plays frames from `at` on as a batch; returns what it took.
    fn run(&mut self, frames: &Frames, at: usize, size: usize) -> u64 {
        self.pool.alloc_bulk(&mut self.burst, size);
        let mut port = 0;
        for (k, packet) in self.burst.iter_mut().enumerate() {
            let (from, frame) = frames.get((at + k) % frames.len());
            packet.set_data(frame).expect("frames of the generators fit a buffer");
            port = from;
        }
        self.now_us += 1;
        let start = ticks();
        self.engine.set_work(WORK_MAX);
        self.engine.receive(self.executor.as_mut(), &mut self.burst, port, self.now_us, &mut self.buffers);
        let spent = ticks() - start;
        self.executor.quiescent();
        spent
    }

    /// Frees what the last batch left.
    fn clear(&mut self) {
        self.buffers.out.iter_mut().for_each(free_bulk);
        free_bulk(&mut self.buffers.dropped);
    }

    /// Cycles for a received packet.
    fn turn(&mut self, frames: &Frames, plan: Plan) -> f64 {
        let (mut spent, mut played, mut at) = (0, 0, 0);
        while played < plan.warm + plan.count {
            let cycles = self.run(frames, at, plan.batch);
            self.clear();
            self.pipeline.take_digests();
            at = (at + plan.batch) % frames.len();
            if played >= plan.warm {
                spent += cycles;
            }
            played += plan.batch;
        }
        spent as f64 / (plan.count.div_ceil(plan.batch).max(1) * plan.batch) as f64
    }
}

/// Holds the second against the first, batch by batch; how many frames were sent and dropped.
fn compared(title: &str, subjects: &mut [Subject; 2], frames: &Frames, batch: usize) -> Result<[u64; 3]> {
    let mut fates = [0; 3];
    for at in (0..frames.len()).step_by(batch) {
        let size = batch.min(frames.len() - at);
        subjects.iter_mut().for_each(|s| _ = s.run(frames, at, size));
        let [a, b] = subjects.each_ref();
        for port in 0..PORTS as usize {
            let all = |s: &Subject| s.buffers.out[port].iter().map(|p| p.data().to_vec()).collect::<Vec<_>>();
            ensure!(all(a) == all(b), "{title}: {} and {} differ in what leaves by port {port}", a.name, b.name);
            fates[0] += a.buffers.out[port].len() as u64;
        }
        fates[1] += a.buffers.dropped.len() as u64;
        let drops = |s: &Subject| s.buffers.drops.read(s.pipeline.program());
        ensure!(drops(a) == drops(b), "{title}: {} and {} differ in what they drop", a.name, b.name);
        ensure!(a.pipeline.take_digests() == b.pipeline.take_digests(), "{title}: they differ in digests");
        subjects.iter_mut().for_each(Subject::clear);
    }
    fates[2] = frames.len() as u64;
    Ok(fates)
}

/// A subject whose code was compared, before it was compiled again for what is there and after.
fn settled(
    name: &'static str,
    row: &Copies,
    source: &Source,
    frames: &Frames,
    settings: &Settings,
) -> Result<(Subject, [u64; 3])> {
    let machine = Subject::new(name, row, source, EngineKind::Machine, settings)?;
    let mut both = [machine, Subject::new("interpreter", row, source, EngineKind::Interpreter, settings)?];
    compared(row.title, &mut both, frames, settings.batch)?;
    both[0].pipeline.recompile(settings.options.specialise);
    let fates = compared(row.title, &mut both, frames, settings.batch)?;
    let [machine, _] = both;
    Ok((machine, fates))
}

fn frames(bytes: usize) -> Frames {
    let mut w = Writer::default();
    let mut frames = Frames::default();
    for flow in 0..FLOWS {
        w.clear().ethernet(FIRST + flow * 7 % STATIONS, 0x0200_0100_0000 + flow);
        w.ipv4(0x0a00_0000 + flow as u32, 0x0b00_0000, 17, 64, bytes - 34).pad(bytes);
        frames.push(1, &w.0);
    }
    frames
}

/// Measures a row.
pub fn run(row: &Copies, settings: &Settings) -> Result<Row> {
    let frames = frames(row.frame);
    let (name, once) = match row.bound {
        Bound::Pass(_) => ("routed once", "route.apply();"),
        _ => ("to a port", "std.egress_spec = 2;"),
    };
    let plain = settled(name, row, &program(once, ""), &frames, settings)?.0;
    let (subject, fates) = settled("copied or sent round", row, &program(row.ingress, row.egress), &frames, settings)?;
    let plan = match settings.quick {
        true => Plan { batch: settings.batch, rounds: 2, warm: 64, count: 256 },
        false => Plan::for_frames(frames.len(), settings.batch, settings.rounds),
    };
    let mut subjects = [subject, plain];
    let mut series = subjects.each_ref().map(|s| Series { name: s.name.to_string(), rounds: Vec::new() });
    with_lock(settings, || {
        for _ in 0..plan.rounds {
            for (subject, series) in subjects.iter_mut().zip(&mut series) {
                series.rounds.push(subject.turn(&frames, plan));
            }
        }
    })?;
    let whole = Bar::without("beside a packet that passes once", Ratio::new(&series[0], &series[1]));
    let held = match row.bound {
        Bound::Cycles(bar) => Some(Bar { unit: " cycles", ..Bar::with("a received packet", cycles(&series[0]), bar) }),
        Bound::Pass(bar) => {
            let more = series[0].rounds.iter().zip(&series[1].rounds).map(|(twice, once)| twice - once).collect();
            let more = Series { name: "the further pass".to_string(), rounds: more };
            Some(Bar::with("the further pass / the program's own", Ratio::new(&more, &series[1]), bar))
        }
        Bound::Told => None,
    };
    Ok(Row {
        name: row.title.to_string(),
        series: series.to_vec(),
        bars: held.into_iter().chain([whole]).collect(),
        fates,
    })
}

/// A median with quartiles, as what is held against a bar.
fn cycles(series: &Series) -> Ratio {
    let at = |part| crate::measure::quantile(&series.rounds, part);
    Ratio { value: at(0.5), low: at(0.25), high: at(0.75) }
}

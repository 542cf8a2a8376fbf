//! The cost of packets that the replication engine copies, drops, resubmits or recirculates: cycles per received
//! packet, from the batch to the ports' buffers.
//!
//! [`crate::engine`] defines what is timed. Every program is compared with the interpreter first: the same frames to
//! each port in the same order, the same counters.
//!
//! Copies are measured beside a program that sends each packet to one port. Resubmission and recirculation are measured
//! with a program that routes: the ratio is the cost of the second pass over the cost of a packet that passes once.

use crate::engine::{self, Subject};
use crate::frames::{Frames, Writer};
use crate::measure::{Ratio, Series};
use crate::rows::{Bar, Row, Settings};
use crate::source::Source;
use anyhow::{Result, ensure};
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use datapath::replication::{CloneSession, Replica};
use datapath::{EngineKind, Pipeline};

/// The multicast group and the clone session.
const GROUP: u32 = 1;
const SESSION: u32 = 5;
/// Stations that the routing program knows, and flows.
const STATIONS: u64 = 1000;
const FLOWS: u64 = 64;
/// The first station's address.
const FIRST: u64 = 0x0200_0000_0000;

/// The limit (bar) of a row.
#[derive(Clone, Copy)]
enum Bound {
    /// Most cycles per received packet.
    Cycles(f64),
    /// Most that an additional pass costs, in passes of the same program.
    Pass(f64),
    /// None.
    Unlimited,
}

/// A row.
pub struct Copies {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title in tables.
    pub title: &'static str,
    /// Additional statements of ingress, and those of egress.
    ingress: &'static str,
    egress: &'static str,
    /// Members of the group.
    replicas: u32,
    /// Bytes of a frame, and those to which the session cuts clones, 0 for not at all.
    frame: usize,
    cut: u32,
    bound: Bound,
}

/// A row of short frames with one copy, before it is named.
const ONE: Copies =
    Copies { name: "", title: "", ingress: "", egress: "", replicas: 1, frame: 60, cut: 0, bound: Bound::Unlimited };

/// All rows.
pub const ALL: &[Copies] = &[
    Copies {
        name: "copies-multicast-1",
        title: "multicast to 1 port",
        ingress: "std.mcast_grp = 1;",
        bound: Bound::Cycles(50.0),
        ..ONE
    },
    Copies {
        name: "copies-multicast-2",
        title: "multicast to 2 ports",
        ingress: "std.mcast_grp = 1;",
        replicas: 2,
        bound: Bound::Cycles(90.0),
        ..ONE
    },
    Copies {
        name: "copies-multicast-4",
        title: "multicast to 4 ports",
        ingress: "std.mcast_grp = 1;",
        replicas: 4,
        bound: Bound::Cycles(170.0),
        ..ONE
    },
    Copies {
        name: "copies-multicast-4-1500",
        title: "multicast to 4 ports, frames of 1,500 bytes",
        ingress: "std.mcast_grp = 1;",
        replicas: 4,
        frame: 1500,
        ..ONE
    },
    Copies {
        name: "copies-clone",
        title: "sent to a port and cloned to another",
        ingress: "std.egress_spec = 2; clone(CloneType.I2E, 5);",
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-clone-changed",
        title: "the same, and ingress writes a header",
        ingress: "std.egress_spec = 2; clone(CloneType.I2E, 5); hdr.ethernet.src = 0x0200_0300_0000;",
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-clone-marked",
        title: "the same, and egress writes a header of the clone",
        ingress: "std.egress_spec = 2; clone(CloneType.I2E, 5);",
        egress: "if (std.instance_type == 1) { hdr.ethernet.src = 0x0200_0300_0000; }",
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-clone-both",
        title: "the same, and ingress writes another one",
        ingress: "std.egress_spec = 2; clone(CloneType.I2E, 5); hdr.ethernet.dst = 0x0200_0300_0001;",
        egress: "if (std.instance_type == 1) { hdr.ethernet.src = 0x0200_0300_0000; }",
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-clone-kept",
        title: "the same with a preserved field",
        ingress: "std.egress_spec = 2; meta.kept = hdr.ethernet.type; clone_preserving_field_list(CloneType.I2E, 5, 1);",
        egress: "if (std.instance_type == 1) { hdr.ethernet.type = meta.kept + 1; } else { hdr.ethernet.src = 1; }",
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-clone-cut",
        title: "the same with a session that truncates",
        ingress: "std.egress_spec = 2; clone(CloneType.I2E, 5); hdr.ethernet.dst = 0x0200_0300_0001;",
        egress: "if (std.instance_type == 1) { hdr.ethernet.src = 0x0200_0300_0000; }",
        cut: 40,
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-clone-egress",
        title: "sent to a port and cloned at the end of egress",
        ingress: "std.egress_spec = 2;",
        egress: "if (std.instance_type == 0) { clone(CloneType.E2E, 5); hdr.ethernet.dst = 0x0200_0300_0001; }",
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-clone-some",
        title: "every fourth packet cloned; headers change",
        ingress: "std.egress_spec = 2; if (hdr.ethernet.src & 3 == 0) { clone(CloneType.I2E, 5); } hdr.ethernet.dst = 0x0200_0300_0001;",
        egress: "if (std.instance_type == 1) { hdr.ethernet.src = 0x0200_0300_0000; }",
        bound: Bound::Cycles(80.0),
        ..ONE
    },
    Copies {
        name: "copies-unknown-group",
        title: "multicast to a group that does not exist",
        ingress: "std.mcast_grp = 77;",
        bound: Bound::Cycles(15.0),
        ..ONE
    },
    Copies {
        name: "copies-flood-and-learn",
        title: "multicast to 1 port, and the source in a digest",
        ingress: "std.mcast_grp = 1; digest<learn_t>(1, { hdr.ethernet.src, std.ingress_port });",
        ..ONE
    },
    Copies {
        name: "copies-resubmit",
        title: "routed twice: resubmitted",
        ingress: "route.apply(); if (std.instance_type == 0) { resubmit_preserving_field_list(0); }",
        bound: Bound::Pass(1.5),
        ..ONE
    },
    Copies {
        name: "copies-recirculate",
        title: "routed twice: recirculated",
        ingress: "route.apply();",
        egress: "if (hdr.ipv4.ttl == 63) { recirculate_preserving_field_list(0); }",
        bound: Bound::Pass(2.0),
        ..ONE
    },
];

/// A program with these statements in its controls: one that routes parses IPv4, the others Ethernet only.
fn program(ingress: &str, egress: &str) -> Source {
    let next = match ingress.contains("route") {
        true => "select(hdr.ethernet.type) { 0x0800: ipv4; default: accept; }",
        false => "accept;",
    };
    let meta = match ingress.contains("kept") {
        true => "@field_list(1) bit<16> kept;",
        false => "",
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
struct meta_t {{ {meta} }}
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

/// A program that sends each packet to port 2.
pub fn to_a_port() -> Source {
    program("std.egress_spec = 2;", "")
}

/// Inserts the entries, the group and the session.
fn prepare(row: &Copies, pipeline: &Pipeline) -> Result<()> {
    for station in 0..STATIONS {
        let key = vec![KeyMatch::Exact(Bits::new(48, u128::from(FIRST + station))), KeyMatch::Exact(Bits::new(1, 1))];
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
    let session = CloneSession { replicas, packet_length_bytes: row.cut, ..CloneSession::default() };
    pipeline.replication().session_insert(SESSION, session)?;
    Ok(())
}

/// A subject that was compared with the interpreter before and after it was recompiled for its state.
fn settled(
    name: &'static str,
    row: &Copies,
    source: &Source,
    frames: &Frames,
    settings: &Settings,
) -> Result<(Subject, [u64; 3])> {
    let subject = |name, kind| {
        Subject::new(name, source, kind, row.replicas as usize + 1, &|pipeline| prepare(row, pipeline), settings)
    };
    let mut both = [subject(name, EngineKind::Machine)?, subject("interpreter", EngineKind::Interpreter)?];
    engine::compared(row.title, &mut both, frames, settings.batch)?;
    both[0].settle(settings);
    let [sent, dropped] = engine::compared(row.title, &mut both, frames, settings.batch)?;
    let [machine, _] = both;
    Ok((machine, [sent, dropped, frames.len() as u64]))
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
///
/// # Errors
/// If a program cannot be loaded, differs from the interpreter, or the lock cannot be taken.
pub fn run(row: &Copies, settings: &Settings) -> Result<Row> {
    let frames = frames(row.frame);
    let (name, once) = match row.bound {
        Bound::Pass(_) => ("routed once", "route.apply();"),
        _ => ("to a port", "std.egress_spec = 2;"),
    };
    let plain = settled(name, row, &program(once, ""), &frames, settings)?.0;
    let (subject, fates) = settled("copied or sent round", row, &program(row.ingress, row.egress), &frames, settings)?;
    let series = engine::timed(&mut [subject, plain], &frames, settings)?;
    let whole = Bar::without("beside a packet that passes once", Ratio::new(&series[0], &series[1]));
    let held = match row.bound {
        Bound::Cycles(bar) => Some(Bar { unit: " cycles", ..Bar::with("a received packet", cycles(&series[0]), bar) }),
        Bound::Pass(bar) => {
            let more = series[0].rounds.iter().zip(&series[1].rounds).map(|(twice, once)| twice - once).collect();
            let more = Series { name: "the further pass".to_string(), rounds: more };
            Some(Bar::with("the further pass / the program's own", Ratio::new(&more, &series[1]), bar))
        }
        Bound::Unlimited => None,
    };
    Ok(Row {
        name: row.title.to_string(),
        series: series.to_vec(),
        bars: held.into_iter().chain([whole]).collect(),
        fates,
    })
}

/// A median with quartiles, in the form that is compared with a bar.
fn cycles(series: &Series) -> Ratio {
    let at = |part| crate::measure::quantile(&series.rounds, part);
    Ratio { value: at(0.5), low: at(0.25), high: at(0.75) }
}

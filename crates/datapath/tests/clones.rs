//! Mirrors: clones whose frame leaves as it was received (`opt`'s `unchanged_frames`), which the engine sends without
//! a record. The reference is the unoptimised program on the interpreter.

use datapath::replication::{CloneSession, Replica};
use datapath::{EngineKind, Local, Sent, Specialise};
use frontend::{Input, Until};
use ir::EntryKind;
use random::Random;
use std::sync::Arc;

/// The low bits of a frame's destination address are its egress port, those of its source address the clone session,
/// 0 for none. `CHANGE` stands for what egress does.
const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header vlan_t { bit<16> tci; bit<16> type; }
header ipv4_t { bit<8> start; bit<56> rest; bit<8> ttl; bit<88> end; }
struct headers_t { ethernet_t ethernet; vlan_t[2] vlan; ipv4_t ipv4; }
struct meta_t { @field_list(1) bit<16> kept; }

parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { pkt.extract(hdr.ethernet); transition next(hdr.ethernet.type); }
    STATES
}
control MyVerify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        meta.kept = hdr.ethernet.type;
        std.egress_spec = (bit<9>)hdr.ethernet.dst & 15;
        if (hdr.ethernet.src & 3 != 0) { clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.ethernet.src & 3, 1); }
        if (hdr.ethernet.dst & 0x10 == 0x10) { mark_to_drop(std); }
        if (hdr.ethernet.dst & 0x20 == 0x20) { std.mcast_grp = 1; }
    }
}
control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { CHANGE } }
control MyCompute(inout headers_t hdr, inout meta_t meta) { apply {} }
control MyDeparser(packet_out pkt, in headers_t hdr) {
    apply { pkt.emit(hdr.ethernet); pkt.emit(hdr.vlan); pkt.emit(hdr.ipv4); }
}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"#;

/// The parser's other states.
const STATES: &str = "
    state vlan { pkt.extract(hdr.vlan.next); transition select(hdr.vlan.last.type) { 0x8100: vlan; 0x800: ipv4; default: accept; } }
    state ipv4 { pkt.extract(hdr.ipv4); transition accept; }
";

fn text(egress: &str) -> String {
    let select = "transition select(hdr.ethernet.type) { 0x8100: vlan; 0x800: ipv4; default: accept; }";
    PROGRAM.replace("transition next(hdr.ethernet.type);", select).replace("STATES", STATES).replace("CHANGE", egress)
}

/// The program as lowered, and optimised with and without the pass.
fn programs(egress: &str) -> [Arc<ir::Program>; 3] {
    let compile = |without: &[&str]| {
        let mut options = frontend::Options::default();
        options.opt.disabled.extend(without.iter().map(|pass| pass.to_string()));
        let text = text(egress);
        let compiled = frontend::compile(Input::Text { name: "clones.p4", text: &text }, &options, Until::Ir);
        let compiled = compiled.expect("it is text");
        assert!(!compiled.failed(), "{}", compiled.render(false));
        (compiled.raw.expect("it has a main"), compiled.optimised.expect("it has a main"))
    };
    let (raw, with) = compile(&[]);
    [raw, with, compile(&["unchanged_frames"]).1].map(Arc::new)
}

fn engines(egress: &str) -> Vec<(&'static str, Local)> {
    let [raw, with, without] = programs(egress);
    let load = |(name, program, kind, again): (&'static str, &Arc<ir::Program>, EngineKind, bool)| {
        let pipeline = datapath::load(Arc::clone(program), kind, 1).expect("it loads");
        if again {
            pipeline.recompile(Specialise::Contents).expect("it compiles");
        }
        let local = Local::new(Arc::new(pipeline));
        // Programs see nine bits of a port number.
        let replicas =
            |ports: &[u32]| ports.iter().map(|port| Replica { port: 512 + *port, instance: port % 3 }).collect();
        local.replication().group_insert(1, replicas(&[20, 21])).expect("a new group");
        // Session 3 does not exist.
        let sessions = [CloneSession { replicas: replicas(&[30]), ..CloneSession::default() }, {
            CloneSession { replicas: replicas(&[31, 2, 32]), packet_length_bytes: 40, ..CloneSession::default() }
        }];
        for (number, session) in (1..).zip(sessions) {
            local.replication().session_insert(number, session).expect("a new session");
        }
        (name, local)
    };
    let all = [
        ("as lowered, interpreted", &raw, EngineKind::Interpreter, false),
        ("without the pass, compiled", &without, EngineKind::Machine, false),
        ("interpreted", &with, EngineKind::Interpreter, false),
        ("compiled", &with, EngineKind::Machine, false),
        ("compiled again", &with, EngineKind::Machine, true),
        ("staged", &with, EngineKind::Staged, true),
        ("by way of mir", &with, EngineKind::Mir, false),
    ];
    all.into_iter().map(load).collect()
}

/// A frame of any length and headers, possibly truncated, that is cloned to a session.
fn frame(rng: &mut Random, session: u8, port: u8, number: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, port, 2, 0, 0, 0, 0, session];
    for _ in 0..rng.below(4) {
        frame.extend([0x81, 0, 0, rng.below(256) as u8]);
    }
    frame.extend(*rng.pick(&[[8, 0], [0x81, 0], [0x88, 0xb5]]));
    frame.resize(frame.len() + rng.index(60), number as u8);
    frame
}

/// Sends batches of all kinds through all engines.
fn compare(egress: &str) {
    let mut rng = Random::stream(8, 22);
    let mut engines = engines(egress);
    let mut cloned = 0;
    for round in 0..200 {
        // Batches in which all packets are cloned to one session and sent to a port, and mixed batches.
        let (session, is_mirror) = (1 + rng.below(3) as u8, round % 3 != 0);
        let frames: Vec<Vec<u8>> = (0..[1, 2, 17, 64][round % 4])
            .map(|number| match is_mirror {
                true => {
                    let port = rng.below(16) as u8;
                    frame(&mut rng, session, port, number)
                }
                false => {
                    let (session, port) = (rng.below(4) as u8, rng.below(64) as u8);
                    frame(&mut rng, session, port, number)
                }
            })
            .collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let mut first: Option<(Vec<Sent>, _)> = None;
        for (name, local) in &mut engines {
            let sent = local.receive_batch(1, &frames).expect("they fit");
            let drops = local.pipeline().drops(0).read(local.pipeline().program());
            match &first {
                None => {
                    cloned += sent.iter().filter(|sent| sent.port >= 30).count();
                    first = Some((sent, drops));
                }
                Some((expected, expected_drops)) => {
                    assert_eq!(&sent, expected, "round {round}, {name} (left): {frames:02x?}");
                    assert_eq!(&drops, expected_drops, "round {round}, {name} (left): {frames:02x?}");
                }
            }
        }
    }
    assert!(cloned > 2000, "too few clones: {cloned}");
}

#[test]
fn clones_that_nothing_changes_leave_alike_on_every_engine() {
    let [raw, with, without] = programs("");
    for kind in [EntryKind::CloneIngress, EntryKind::Egress] {
        let at_once = [&raw, &with, &without].map(|program| program.sends_at_once(kind));
        assert_eq!(at_once, [false, true, false], "the premise of this test: {kind:?}");
    }
    compare("");
}

/// Changes that egress makes to clones take effect.
#[test]
fn clones_that_egress_changes_are_changed() {
    for egress in [
        "if (hdr.ipv4.isValid()) { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }",
        "if (std.instance_type == 1) { hdr.vlan[0].setInvalid(); }",
        "if (std.instance_type == 1 && meta.kept == 0x800) { mark_to_drop(std); }",
        "if (std.instance_type == 1) { truncate(30); }",
        "hdr.ethernet.src = (bit<48>)std.egress_port;",
    ] {
        let [_, with, _] = programs(egress);
        let kinds = [EntryKind::CloneIngress, EntryKind::Egress];
        assert!(!kinds.iter().any(|kind| with.sends_at_once(*kind)), "{egress}");
        compare(egress);
    }
}

/// A loop that ends only at the loop limit drops its packet.
#[test]
fn clones_that_may_go_round_for_ever_go_through_egress() {
    let egress =
        "for (bit<48> i = hdr.ethernet.src; i != hdr.ethernet.dst; i = i + 0x10000000000) { if (i == 7) { break; } }";
    let [_, with, _] = programs(egress);
    assert!(!with.sends_at_once(EntryKind::CloneIngress) && !with.sends_at_once(EntryKind::Egress));
}

/// What loops may spend is for all packets that a burst causes: the received packet comes behind its clones, and is dropped if they
/// have left nothing.
#[test]
fn a_received_packet_pays_for_its_loops_like_its_clones() {
    // A clone's loop ends only at the loop limit; a received packet has a short one.
    let egress =
        "for (bit<48> i = 0; i < 8 || std.instance_type == 1; i = i + 1) { hdr.ethernet.src = hdr.ethernet.src ^ i; }";
    let frame = frame(&mut Random::stream(8, 23), 1, 5, 0);
    for (name, mut local) in engines(egress) {
        // A received packet's burst may spend three times what one run may.
        for (clones, sent) in [(2, 1), (5, 0)] {
            let replicas = (0..clones).map(|i| Replica { port: 530 + i, instance: 0 }).collect();
            let session = CloneSession { replicas, ..CloneSession::default() };
            local.replication().session_modify(1, session).expect("it exists");
            let ports: Vec<u32> =
                local.receive_batch(1, &[&frame]).expect("it fits").iter().map(|sent| sent.port).collect();
            assert_eq!(ports, [5].repeat(sent), "{name}, {clones} clones");
        }
    }
}

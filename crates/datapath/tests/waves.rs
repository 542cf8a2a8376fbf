//! Bursts of packets that request copies and further passes, all kinds mixed. On every engine each port gets the same
//! packets in the same order, and counters agree; if no budget is shared, the result equals that of sending packet by
//! packet; and programs that read the queue depth see each received packet's descendants alone.

mod common;

use datapath::replication::{CloneSession, Replica};
use datapath::{EngineKind, Local, Sent, Specialise};
use frontend::{Input, Until};
use random::Random;
use std::sync::Arc;

/// A packet's first bytes hold its requests, one bit each. A request is cleared when it is made, so that descendants
/// make the next one; the last byte of the header tells copies apart, and each control leaves a mark in it.
const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> ingress;     // 1 clone, 2 resubmit, 4 multicast, 8 drop, 16 no such session, 32 to a port
    bit<8> egress;      // 1 clone, 2 recirculate, 4 drop, 8 clone without headers, 16 multicast copies recirculate
    bit<8> again;       // the same for ingress of those that come again
    bit<16> group;
    bit<16> mark;
}
struct headers_t { ask_t ask; }
struct meta_t { @field_list(1, 2) bit<8> rounds; @field_list(1) bit<16> mark; }

parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { pkt.extract(hdr.ask); transition accept; }
}
control MyVerify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.packets) seen;
    register<bit<16>>(1) steps;
    apply {
        seen.count((bit<32>)std.instance_type);
        // What went before, of this packet at least, is seen here.
        bit<16> step;
        steps.read(step, 0);
        steps.write(0, step + 1);
        bit<8> what = hdr.ask.ingress;
        if (std.instance_type == 4 || std.instance_type == 6) {
            what = hdr.ask.again;
            meta.rounds = meta.rounds + 1;
            if (meta.rounds > 1) {
                what = what & 0xfd;
                hdr.ask.egress = hdr.ask.egress & 0xfd;
            }
        }
        meta.mark = meta.mark + 1;
        hdr.ask.mark = hdr.ask.mark + (bit<16>)std.instance_type + meta.mark;
        std.egress_spec = (bit<9>)(hdr.ask.group & 3);
        if (what & 1 == 1) { clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.ask.group & 7, 1); }
        if (what & 16 == 16) { clone(CloneType.I2E, 99); }
        if (what & 2 == 2) { resubmit_preserving_field_list(1); }
        if (what & 4 == 4) { std.mcast_grp = hdr.ask.group; }
        if (what & 8 == 8) { mark_to_drop(std); }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.packets) left;
    apply {
        left.count((bit<32>)std.instance_type);
        hdr.ask.mark = hdr.ask.mark ^ std.egress_rid ^ (bit<16>)DEPTH;
        if (std.instance_type == 0 || std.instance_type == 5 && hdr.ask.egress & 16 == 16) {
            if (hdr.ask.egress & 1 == 1) { clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.ask.group & 7, 2); }
            if (hdr.ask.egress & 2 == 2) { recirculate_preserving_field_list(2); }
        }
        if (hdr.ask.egress & 4 == 4 && std.instance_type == 1) { mark_to_drop(std); }
        if (hdr.ask.egress & 8 == 8 && std.instance_type == 2) { hdr.ask.setInvalid(); }
    }
}

control MyCompute(inout headers_t hdr, inout meta_t meta) { apply {} }
control MyDeparser(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"#;

/// The program whose frames carry the value of `depth`, which egress reads.
fn program(depth: &str) -> Arc<ir::Program> {
    let text = PROGRAM.replace("DEPTH", depth);
    let input = Input::Text { name: "waves.p4", text: &text };
    let compiled = frontend::compile(input, &frontend::Options::default(), Until::Ir).expect("it is text");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    Arc::new(compiled.optimised.expect("it has a main"))
}

/// The program on every engine, with the same groups and sessions, which have at most `most` members, except for one
/// large group and session.
fn engines(program: &Arc<ir::Program>, most: u32, large: u32) -> Vec<(&'static str, Local)> {
    let load = |(name, kind, again): (&'static str, EngineKind, bool)| {
        let pipeline = datapath::load(Arc::clone(program), kind, 1).expect("it loads");
        if again {
            pipeline.recompile(Specialise::Contents).expect("it compiles");
        }
        let local = Local::new(Arc::new(pipeline));
        let members = |count: u32, first: u32| -> Vec<Replica> {
            (0..count).map(|i| Replica { port: (first + i) % 5, instance: 10 * first + i }).collect()
        };
        for (group, count) in [(1, 1), (2, 2), (3, 4), (4, 0), (5, 9), (6, large)] {
            let count = if group == 6 { large } else { count.min(most) };
            local.replication().group_insert(group, members(count, group)).expect("a new group");
        }
        for (session, count, length) in [(1, 1, 0), (2, 3, 0), (3, 1, 20), (5, 0, 0), (6, large, 0)] {
            let replicas = members(if session == 6 { large } else { count.min(most) }, session);
            let session_is = CloneSession { replicas, packet_length_bytes: length, ..CloneSession::default() };
            local.replication().session_insert(session, session_is).expect("a new session");
        }
        (name, local)
    };
    let all = [
        ("interpreted", EngineKind::Interpreter, false),
        ("compiled", EngineKind::Machine, false),
        ("compiled again", EngineKind::Machine, true),
        ("staged", EngineKind::Staged, true),
    ];
    all.into_iter().map(load).collect()
}

/// A random frame; `mix` sets how many requests it has, so that bursts have more or less in common.
fn frame(rng: &mut Random, mix: u64, number: usize) -> Vec<u8> {
    let mut ask = |of: u64| if rng.below(4) < mix { rng.below(of) as u8 } else { 0 };
    let (ingress, egress, again) = (ask(64), ask(32), ask(64));
    let mut frame = vec![ingress, egress, again, 0, rng.below(8) as u8, 0, 0];
    frame.resize(40 + rng.index(30), number as u8);
    frame
}

/// The frames sent, in order, by port.
fn by_port(sent: &[Sent]) -> Vec<Vec<&[u8]>> {
    (0..16).map(|port| sent.iter().filter(|s| s.port == port).map(|s| s.bytes.as_slice()).collect()).collect()
}

/// Counter names and values.
type Counters = Vec<(String, u64)>;

fn counters(local: &Local) -> Counters {
    let pipeline = local.pipeline();
    let program = pipeline.program();
    let mut all = pipeline.drops(0).read(program);
    for (i, instance) in program.externs.iter().enumerate() {
        if let ir::ExternKind::Counter { .. } = instance.kind {
            for cell in 0..16 {
                let count = pipeline.state().counter(base::ids::ExternId::from_index(i), cell).expect("it has as many");
                all.push((format!("{} {cell}", instance.name), count.packets));
            }
        }
    }
    all
}

#[test]
fn bursts_of_all_kinds_do_the_same_on_every_engine() {
    let mut rng = Random::stream(1, 22);
    // Some groups are so large that a burst's work budget is not enough.
    for (depth, large) in [("0", 3), ("std.deq_qdepth", 3), ("0", 300), ("std.deq_qdepth", 300)] {
        let mut engines = engines(&program(depth), 9, large);
        let mut sent_any = 0;
        for round in 0..60 {
            let count = [1, 2, 7, 33, 64][round % 5];
            let mix = 1 + rng.below(4);
            let frames: Vec<Vec<u8>> = (0..count).map(|i| frame(&mut rng, mix, i)).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let mut first: Option<(Vec<Sent>, Counters)> = None;
            for (name, local) in &mut engines {
                let sent = local.receive_batch(1, &frames).expect("they fit");
                let counted = counters(local);
                match &first {
                    None => {
                        sent_any += sent.len();
                        first = Some((sent, counted));
                    }
                    Some((expected, counters)) => {
                        assert_eq!(by_port(&sent), by_port(expected), "round {round}, {name} (left): {frames:02x?}");
                        assert_eq!(&sent, expected, "round {round}, {name} (left): the order across ports");
                        assert_eq!(&counted, counters, "round {round}, {name} (left)");
                    }
                }
            }
        }
        assert!(sent_any > 1500, "too few get through: {sent_any}");
    }
}

/// A burst is processed in batches, but its output equals that of its packets one by one, in the same order. Here the
/// budget suffices, and the program has no effects that other packets could see.
#[test]
fn a_burst_leaves_as_its_packets_would_one_by_one() {
    let mut rng = Random::stream(2, 22);
    for depth in ["0", "std.deq_qdepth", "std.enq_qdepth"] {
        let program = program(depth);
        let [mut together, mut alone] = [0, 1].map(|_| engines(&program, 2, 2).remove(1).1);
        for round in 0..200 {
            let count = [2, 5, 31, 40][round % 4];
            let mix = 1 + rng.below(4);
            let frames: Vec<Vec<u8>> = (0..count).map(|i| frame(&mut rng, mix, i)).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let sent = together.receive_batch(1, &frames).expect("they fit");
            let singly: Vec<Sent> = frames.iter().flat_map(|frame| alone.receive(1, frame).expect("it fits")).collect();
            assert_eq!(sent, singly, "round {round}, {depth}: {frames:02x?}");
            let counted = counters(&together);
            assert_eq!(counted, counters(&alone), "round {round}, {depth}");
            let lacking = counted.iter().find(|(name, _)| name == "replication limit").expect("it is counted");
            assert_eq!(lacking.1, 0, "round {round}, {depth}: the premise of this test");
        }
    }
}

/// A request too large for its share loses copies, without affecting others: all other copies are made.
#[test]
fn who_asks_for_little_gets_it_beside_who_asks_for_much() {
    let mut engine = engines(&program("0"), 9, 10_000).remove(1).1;
    for place in 0..64 {
        let mut frames: Vec<Vec<u8>> = (0..64).map(|i| vec![4, 0, 0, 0, 5, 0, 0, i]).collect();
        frames[place][4] = 6;
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let sent = engine.receive_batch(1, &frames).expect("they fit");
        for i in (0..64).filter(|i| *i != place) {
            let copies = sent.iter().filter(|sent| sent.bytes.last() == Some(&(i as u8))).count();
            assert_eq!(copies, 9, "of packet {i} behind {place}");
        }
        let large = sent.iter().filter(|sent| sent.bytes.last() == Some(&(place as u8))).count();
        assert!(large >= 64, "{large} at {place}");
    }
}

/// The control plane changes groups between bursts: each burst sees the current groups.
#[test]
fn a_changed_group_is_seen_by_the_next_burst() {
    let mut engine = engines(&program("0"), 9, 3).remove(1).1;
    let ports = |engine: &mut Local| -> Vec<u32> {
        let sent = engine.receive(1, &[4, 0, 0, 0, 7, 0, 0, 1]).expect("it fits");
        sent.iter().map(|sent| sent.port).collect()
    };
    let group = |ports: &[u32]| ports.iter().map(|port| Replica { port: *port, instance: 0 }).collect::<Vec<_>>();
    assert!(ports(&mut engine).is_empty());
    engine.replication().group_insert(7, group(&[3, 2])).expect("a new group");
    assert_eq!(ports(&mut engine), [3, 2]);
    engine.replication().group_modify(7, group(&[1])).expect("it is there");
    assert_eq!(ports(&mut engine), [1]);
    engine.replication().group_delete(7).expect("it is there");
    assert!(ports(&mut engine).is_empty());
    // Another id that maps to the same slot of the worker's cache.
    engine.replication().group_insert(7 + 64, group(&[4])).expect("a new group");
    engine.replication().group_insert(7, group(&[2])).expect("a new group");
    assert_eq!(ports(&mut engine), [2]);
    let sent = engine.receive(1, &[4, 0, 0, 0, 71, 0, 0, 1]).expect("it fits");
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].port, ports(&mut engine)), (4, vec![2]));
}

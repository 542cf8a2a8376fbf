//! Bursts whose packets ask for clones and otherwise are sent or dropped (`engine/clones.rs`): all alike, or some of them, at the end
//! of ingress or of egress, in sessions with one or several replicas, without any, missing or truncating. On every engine each
//! port gets the same packets in the same order as from packets that are sent one by one through the general path, and counters agree.
//!
//! The reference is the unoptimised program on the interpreter with a read of the queue's depth, which has the engine take each
//! packet on alone, pass by pass. Packets that come again also wait for queues then, so programs that send packets round are compared
//! with themselves: each packet beside one that asks for multicast, for which such a batch goes through the general path.

use datapath::replication::{CloneSession, Replica};
use datapath::{EngineKind, Local, Sent, Specialise};
use frontend::{Input, Until};
use random::Random;
use std::sync::Arc;

/// A packet's first bytes hold its requests. `INGRESS`, `EGRESS` and `DEPTH` stand for what a program does with them.
const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> what;        // 1 clone at ingress, 2 drop, 4 clone at egress, 8 clones drop, 16 recirculate, 32 resubmit, 64 shorter
    bit<8> session;
    bit<8> port;
    bit<8> left;        // so often copies and further passes ask again
    bit<16> mark;
}
header more_t { bit<32> word; }
struct headers_t { ask_t ask; more_t more; }
struct meta_t { @field_list(1) bit<16> kept; bit<16> lost; }

parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { pkt.extract(hdr.ask); pkt.extract(hdr.more); transition accept; }
}
control MyVerify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(8, CounterType.packets_and_bytes) seen;
    apply {
        seen.count((bit<32>)std.instance_type);
        meta.kept = meta.kept + hdr.ask.mark;
        meta.lost = 7;
        std.egress_spec = (bit<9>)hdr.ask.port;
        if (hdr.ask.what & 2 == 2) { mark_to_drop(std); }
        INGRESS
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(8, CounterType.packets_and_bytes) left;
    apply {
        left.count((bit<32>)std.instance_type);
        EGRESS
        DEPTH
    }
}

control MyCompute(inout headers_t hdr, inout meta_t meta) { apply {} }
control MyDeparser(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); pkt.emit(hdr.more); } }

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"#;

const CLONE: &str = "if (hdr.ask.what & 1 == 1) { clone(CloneType.I2E, (bit<32>)hdr.ask.session); }";
const CLONE_KEEPING: &str = "if (hdr.ask.what & 1 == 1) {
    if (hdr.ask.mark & 1 == 1) { clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.ask.session, 1); }
    else { clone(CloneType.I2E, (bit<32>)hdr.ask.session); }
}";
const MARK: &str = "hdr.ask.mark = hdr.ask.mark + (bit<16>)std.instance_type;";
const CLONES_DROP: &str = "if (std.instance_type == 1 || std.instance_type == 2) {
    if (hdr.ask.what & 8 == 8) { mark_to_drop(std); }
    if (hdr.ask.what & 64 == 64) { hdr.more.setInvalid(); }
}";
const CLONE_AT_EGRESS: &str = "if (hdr.ask.what & 4 == 4 && std.instance_type == 0) {
    clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.ask.session, 1);
}";
/// Copies may do the same.
const CLONE_AGAIN: &str = "if (hdr.ask.what & 4 == 4 && hdr.ask.left != 0) {
    hdr.ask.left = hdr.ask.left - 1;
    clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.ask.session, 1);
}
if (hdr.ask.what & 16 == 16 && std.instance_type == 0) { recirculate_preserving_field_list(1); hdr.ask.what = 0; }";
/// A batch with such a packet, which is dropped, is not one of clones only.
const NO_SUCH_GROUP: &str = "if (hdr.ask.what == 0x80) { std.mcast_grp = 77; }";
const SPOILER: [u8; 10] = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const RESUBMIT: &str = "if (hdr.ask.what & 32 == 32 && std.instance_type == 0) { resubmit_preserving_field_list(1); }";

/// A program without the read of the depth: as lowered and optimised; and with it, as lowered.
fn programs(ingress: &str, egress: &str) -> [Arc<ir::Program>; 3] {
    let compile = |depth: &str| {
        let text = PROGRAM.replace("INGRESS", ingress).replace("EGRESS", egress).replace("DEPTH", depth);
        let input = Input::Text { name: "mirrors.p4", text: &text };
        let compiled = frontend::compile(input, &frontend::Options::default(), Until::Ir).expect("it is text");
        assert!(!compiled.failed(), "{}", compiled.render(false));
        (compiled.raw.expect("it has a main"), compiled.optimised.expect("it has a main"))
    };
    let (raw, optimised) = compile("");
    let (reference, _) = compile("meta.lost = (bit<16>)std.deq_qdepth;");
    assert!(reference.queues && !raw.queues, "the premise of this test");
    [raw, optimised, reference].map(Arc::new)
}

fn load(program: &Arc<ir::Program>, kind: EngineKind, again: bool) -> Local {
    let pipeline = datapath::load(Arc::clone(program), kind, 1).expect("it loads");
    if again {
        pipeline.recompile(Specialise::Contents).expect("it compiles");
    }
    let local = Local::new(Arc::new(pipeline));
    let replicas =
        |ports: &[u32]| ports.iter().zip(1..).map(|(port, instance)| Replica { port: *port, instance }).collect();
    // Session 6 does not exist. Received packets go to ports 2 and 3.
    let sessions: [(&[u32], u32); 5] = [(&[9], 0), (&[9, 2, 10], 0), (&[9], 20), (&[], 0), (&[2], 0)];
    for (number, (ports, packet_length_bytes)) in (1..).zip(sessions) {
        let session = CloneSession { replicas: replicas(ports), packet_length_bytes, ..CloneSession::default() };
        local.replication().session_insert(number, session).expect("a new session");
    }
    local
}

/// The kinds of packets of a burst: one or several.
fn kinds(rng: &mut Random, requests: &[u8]) -> Vec<[u8; 4]> {
    let count = 1 + rng.index(3);
    let mut kind = || [*rng.pick(requests), 1 + rng.below(6) as u8, 2 + rng.below(2) as u8, rng.below(3) as u8];
    (0..count).map(|_| kind()).collect()
}

fn by_port(sent: &[Sent]) -> Vec<Vec<&[u8]>> {
    (0..16).map(|port| sent.iter().filter(|s| s.port == port).map(|s| s.bytes.as_slice()).collect()).collect()
}

fn counts(local: &Local) -> Vec<(String, u64)> {
    let pipeline = local.pipeline();
    let mut all = pipeline.drops(0).read(pipeline.program());
    for (i, instance) in pipeline.program().externs.iter().enumerate() {
        if let ir::ExternKind::Counter { .. } = instance.kind {
            for cell in 0..8 {
                let count = pipeline.state().counter(base::ids::ExternId::from_index(i), cell).expect("it has as many");
                all.push((format!("{} {cell}, packets", instance.name), count.packets));
                all.push((format!("{} {cell}, bytes", instance.name), count.bytes));
            }
        }
    }
    all.retain(|(_, count)| *count != 0);
    all.sort();
    all
}

fn compare(ingress: &[&str], egress: &[&str], requests: &[u8]) {
    let [raw, optimised, with_depth] = programs(&ingress.concat(), &egress.concat());
    let is_spoiled = ingress.contains(&NO_SUCH_GROUP);
    let mut reference = load(if is_spoiled { &raw } else { &with_depth }, EngineKind::Interpreter, false);
    let mut engines = [
        ("as lowered", load(&raw, EngineKind::Interpreter, false)),
        ("interpreted", load(&optimised, EngineKind::Interpreter, false)),
        ("compiled", load(&optimised, EngineKind::Machine, false)),
        ("compiled again", load(&optimised, EngineKind::Machine, true)),
        ("staged", load(&optimised, EngineKind::Staged, true)),
        ("by way of mir", load(&optimised, EngineKind::Mir, false)),
        ("mir, interpreted", load(&optimised, EngineKind::MirInterpreter, false)),
    ];
    let mut rng = Random::stream(11, 22);
    let mut cloned = 0;
    for round in 0..150 {
        let kinds = kinds(&mut rng, requests);
        let frames: Vec<Vec<u8>> = (0..[64, 1, 2, 17][round % 4])
            .map(|number| {
                let mut frame = rng.pick(&kinds).to_vec();
                // Some are shorter than the headers.
                frame.resize(if rng.below(20) == 0 { 7 } else { 10 + rng.index(60) }, number as u8);
                frame
            })
            .collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let one_by_one = frames.iter().flat_map(|frame| {
            let alone = [frame, &SPOILER[..]];
            reference.receive_batch(1, &alone[..1 + usize::from(is_spoiled)]).expect("they fit")
        });
        let expected: Vec<Sent> = one_by_one.collect();
        cloned += expected.len().saturating_sub(frames.len());
        for (name, local) in &mut engines {
            let sent = local.receive_batch(1, &frames).expect("they fit");
            for _ in frames.iter().filter(|_| is_spoiled) {
                assert!(local.receive(1, &SPOILER).expect("it fits").is_empty());
            }
            assert_eq!(by_port(&sent), by_port(&expected), "round {round}, {name} (left): {frames:02x?}");
            assert_eq!(counts(local), counts(&reference), "round {round}, {name} (left): {frames:02x?}");
        }
    }
    assert!(cloned > 500, "too few clones: {cloned}");
}

#[test]
fn clones_at_ingress_are_as_those_of_single_packets() {
    compare(&[CLONE], &[MARK], &[0, 1, 1, 2, 3]);
}

#[test]
fn clones_of_packets_that_ingress_changes_are_as_those_of_single_packets() {
    compare(&[CLONE, "hdr.ask.mark = hdr.ask.mark + 1;"], &[], &[0, 1, 1, 2, 3]);
}

#[test]
fn clones_that_egress_drops_or_shortens_are_as_those_of_single_packets() {
    compare(&[CLONE], &[MARK, CLONES_DROP], &[0, 1, 3, 9, 0x41, 0x49]);
}

#[test]
fn clones_that_keep_fields_are_as_those_of_single_packets() {
    compare(&[CLONE_KEEPING], &["hdr.ask.mark = hdr.ask.mark + meta.kept;"], &[0, 1, 1, 3]);
}

#[test]
fn clones_that_see_their_length_and_replica_are_as_those_of_single_packets() {
    let egress = "hdr.ask.mark = (bit<16>)std.packet_length; hdr.more.word = (bit<32>)std.egress_rid;";
    compare(&[CLONE], &[egress], &[0, 1, 1, 3]);
}

#[test]
fn clones_at_egress_are_as_those_of_single_packets() {
    compare(&[], &[MARK, CLONE_AT_EGRESS, CLONES_DROP], &[0, 4, 4, 0xc, 0x44]);
}

#[test]
fn clones_of_clones_and_packets_that_go_on_are_as_those_of_single_packets() {
    let all = [0, 1, 3, 4, 5, 0x11, 0x14, 0x15, 0x21, 0x24, 0xd, 0x45];
    compare(&[CLONE_KEEPING, RESUBMIT, NO_SUCH_GROUP], &[MARK, CLONE_AGAIN, CLONES_DROP], &all);
}

/// PNA: a packet asks for its copies one mirror slot after the other, behind the deparser, and leaves before them all.
#[test]
fn copies_for_several_mirror_slots_leave_behind_their_packet_and_in_the_order_of_the_slots() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stf/pna/paths.p4");
    let compiled = frontend::compile(Input::File(&path), &frontend::Options::default(), Until::Ir).expect("a file");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    let [raw, optimised] = [compiled.raw, compiled.optimised].map(|program| Arc::new(program.expect("it has a main")));
    let kinds = [EngineKind::Interpreter, EngineKind::Machine, EngineKind::Staged, EngineKind::Mir];
    for (kind, program) in kinds.iter().flat_map(|kind| [(kind, &raw), (kind, &optimised)]) {
        let mut local = Local::new(Arc::new(datapath::load(Arc::clone(program), *kind, 1).expect("it loads")));
        for (session, ports) in [(7, &[20][..]), (8, &[21, 22])] {
            let replicas = ports.iter().map(|port| Replica { port: *port, instance: 0 }).collect();
            let session_is = CloneSession { replicas, ..CloneSession::default() };
            local.replication().session_insert(session, session_is).expect("a new session");
        }
        // The first byte 4: to a port, and mirrored in two slots; 6: recirculated nine times.
        let [mirrored, other] = [4, 6].map(|what| [what, 5, 0, 0, 0xcc]);
        for (batch, count) in [(&[&mirrored[..]][..], 1), (&[&mirrored, &mirrored], 2), (&[&mirrored, &other], 1)] {
            let sent = local.receive_batch(0, batch).expect("they fit");
            let ports: Vec<u32> = sent.iter().filter(|sent| sent.bytes[0] == 4).map(|sent| sent.port).collect();
            assert_eq!(ports, [5, 20, 21, 22].repeat(count), "{kind:?}, {} packets", batch.len());
        }
    }
}

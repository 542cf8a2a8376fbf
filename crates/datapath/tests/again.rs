//! Packets that go back to ingress (resubmit, recirculate), once or repeatedly, combined with other requests. The
//! reference is the unoptimised program on the interpreter; the optimised one must agree on every engine.

use datapath::drops::RuntimeDrop;
use datapath::replication::{CloneSession, Replica};
use datapath::{EngineKind, Local, Sent, Specialise};
use frontend::{Input, Until};
use random::Random;
use std::sync::Arc;

/// A frame's plan says how often it goes back and how: each pass consumes the lowest two bits. Each pass adds the
/// metadata it finds, which may have been preserved, to the frame.
const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>

header plan_t {
    bit<32> plan;       // 0 ends, 1 resubmit, 2 recirculate, 3 copies
    bit<8>  list;
    bit<8>  first;      // the field list of the first pass
    bit<16> port;
    bit<16> passes;
    bit<32> found;
}
header pushed_t { bit<8> one; bit<24> rest; }
struct headers_t { plan_t plan; pushed_t pushed; }
struct meta_t {
    @field_list(1, 2) bit<16> both;
    @field_list(1)    bit<200> wide;
    @field_list(2)    bit<8> second;
    bit<16> none;
    bit<2> now;
}

parser MyParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { pkt.extract(hdr.plan); transition accept; }
}
control MyVerify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.packets_and_bytes) seen;
    apply {
        seen.count((bit<32>)std.instance_type);
        hdr.plan.found = hdr.plan.found * 31 + (bit<32>)meta.both + (bit<32>)meta.wide[160:130] + (bit<32>)meta.wide[15:0]
            + ((bit<32>)meta.second << 3) + (bit<32>)meta.none + (std.instance_type << 5) + std.packet_length
            + (bit<32>)std.ingress_port + (bit<32>)std.egress_spec + (bit<32>)std.mcast_grp;
        meta.now = hdr.plan.plan[1:0];
        meta.both = meta.both + 7 + (bit<16>)hdr.plan.port;
        meta.wide = (meta.wide << 9) + 3 + (bit<200>)hdr.plan.list;
        meta.second = meta.second + 5;
        meta.none = 11;
        hdr.plan.passes = hdr.plan.passes + 1;
        bit<8> list = hdr.plan.list;
        if (std.instance_type == 0) { list = hdr.plan.first; }
        std.egress_spec = (bit<9>)hdr.plan.port & 15;
        if (hdr.plan.port & 0x10 == 0x10) { std.ingress_port = 9; }
        if (meta.now == 1) {
            if (hdr.plan.port & 0x40 == 0x40) { clone_preserving_field_list(CloneType.I2E, 1, 2); }
            // Resubmitted packets are as received, so what stays of a pass is in metadata. There is no list 3.
            if (list == 3) { resubmit_preserving_field_list(3); }
            else if (meta.both < 60) {
                if (list == 1) { resubmit_preserving_field_list(1); }
                else { resubmit_preserving_field_list(2); }
            }
            if (hdr.plan.port & 0x80 == 0x80) { mark_to_drop(std); }
        }
        if (meta.now == 3) {
            std.mcast_grp = (bit<16>)hdr.plan.port & 3;
            if (hdr.plan.port & 0x20 == 0x20) { clone(CloneType.I2E, 1); }
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.packets) left;
    apply {
        left.count((bit<32>)std.instance_type);
        hdr.plan.found = hdr.plan.found ^ (bit<32>)std.egress_rid ^ (std.instance_type << 9);
        bool cloned = std.instance_type == 1;
        if (!cloned || hdr.plan.port & 8 == 8) {
            hdr.plan.plan = hdr.plan.plan >> 2;
            if (cloned || meta.now == 2 || meta.now == 3 && std.instance_type == 0 && hdr.plan.port & 0x100 == 0x100) {
                if (hdr.plan.port & 0x100 == 0x100) {
                    hdr.pushed.setValid();
                    hdr.pushed.one = (bit<8>)hdr.plan.passes;
                    hdr.pushed.rest = 0xabcdef;
                }
                if (hdr.plan.list == 1) { recirculate_preserving_field_list(1); }
                else { recirculate_preserving_field_list(2); }
            }
        }
    }
}

control MyCompute(inout headers_t hdr, inout meta_t meta) { apply {} }
control MyDeparser(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.plan); pkt.emit(hdr.pushed); } }

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"#;

/// The program as lowered, and optimised with and without the pass.
fn programs() -> [Arc<ir::Program>; 3] {
    let compile = |without: &[&str]| {
        let mut options = frontend::Options::default();
        options.opt.disabled.extend(without.iter().map(|pass| pass.to_string()));
        let compiled = frontend::compile(Input::Text { name: "again.p4", text: PROGRAM }, &options, Until::Ir);
        let compiled = compiled.expect("it is text");
        assert!(!compiled.failed(), "{}", compiled.render(false));
        (compiled.raw.expect("it has a main"), compiled.optimised.expect("it has a main"))
    };
    let (raw, with) = compile(&[]);
    let text = ir::print(&with);
    assert!(text.contains("again resubmitted, 1") && text.contains("again recirculated, 2"), "{text}");
    [raw, with, compile(&["reingress"]).1].map(Arc::new)
}

fn engines() -> Vec<(&'static str, Local)> {
    let [raw, with, without] = programs();
    let load = |(name, program, kind, again): (&'static str, &Arc<ir::Program>, EngineKind, bool)| {
        let pipeline = datapath::load(Arc::clone(program), kind, 1).expect("it loads");
        if again {
            pipeline.recompile(Specialise::Contents).expect("it compiles");
        }
        let local = Local::new(Arc::new(pipeline));
        for group in 1..3 {
            let replicas = (0..group).map(|i| Replica { port: 20 + i, instance: 3 * i }).collect();
            local.replication().group_insert(group, replicas).expect("a new group");
        }
        let replicas = vec![Replica { port: 30, instance: 2 }, Replica { port: 31, instance: 4 }];
        local
            .replication()
            .session_insert(1, CloneSession { replicas, ..CloneSession::default() })
            .expect("a new session");
        (name, local)
    };
    let all = [
        ("as lowered, interpreted", &raw, EngineKind::Interpreter, false),
        ("without the pass, interpreted", &without, EngineKind::Interpreter, false),
        ("without the pass, compiled", &without, EngineKind::Machine, false),
        ("interpreted", &with, EngineKind::Interpreter, false),
        ("compiled", &with, EngineKind::Machine, false),
        ("compiled again", &with, EngineKind::Machine, true),
        ("staged", &with, EngineKind::Staged, true),
        ("by way of mir", &with, EngineKind::Mir, false),
        ("mir, interpreted", &with, EngineKind::MirInterpreter, false),
    ];
    all.into_iter().map(load).collect()
}

/// A frame with a plan of at most `passes` passes.
fn frame(rng: &mut Random, passes: u64, number: usize) -> Vec<u8> {
    let mut plan = 0u32;
    for pass in 0..rng.below(passes + 1) {
        plan |= (rng.below(4) as u32) << (2 * pass);
    }
    let port = rng.below(0x200) as u16 & rng.below(0x200) as u16;
    let mut frame = plan.to_be_bytes().to_vec();
    frame.extend([1 + rng.below(2) as u8, 1 + rng.below(3) as u8]);
    frame.extend(port.to_be_bytes());
    frame.extend([0; 6]);
    frame.resize(40 + rng.index(30), number as u8);
    frame
}

type Counts = Vec<(String, u64)>;

/// All counters, and drops by reason.
fn counted(local: &Local) -> Vec<(String, u64)> {
    let pipeline = local.pipeline();
    let program = pipeline.program();
    let mut all = pipeline.drops(0).read(program);
    for (i, instance) in program.externs.iter().enumerate() {
        for cell in 0..16 {
            let count = pipeline.state().counter(base::ids::ExternId::from_index(i), cell).expect("it has as many");
            all.push((format!("{} {cell}", instance.name), count.packets));
            all.push((format!("{} {cell} bytes", instance.name), count.bytes));
        }
    }
    all
}

fn dropped_by(local: &Local, reason: RuntimeDrop) -> u64 {
    let counts = local.pipeline().drops(0).read(local.pipeline().program());
    counts.into_iter().find(|(name, _)| *name == reason.name()).expect("it is counted").1
}

#[test]
fn packets_go_back_alike_on_every_engine_and_without_the_pass() {
    let mut rng = Random::stream(3, 22);
    let mut engines = engines();
    let mut sent_any = 0;
    for round in 0..120 {
        // Within the work budget.
        let (count, passes) = [(1, 4), (3, 3), (8, 3), (31, 1), (64, 1)][round % 5];
        let frames: Vec<Vec<u8>> = (0..count).map(|i| frame(&mut rng, passes, i)).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let mut first: Option<(Vec<Sent>, Counts)> = None;
        for (name, local) in &mut engines {
            let sent = local.receive_batch(1, &frames).expect("they fit");
            let counts = counted(local);
            match &first {
                None => {
                    sent_any += sent.len();
                    first = Some((sent, counts));
                }
                Some((expected, expected_counts)) => {
                    assert_eq!(&sent, expected, "round {round}, {name} (left): {frames:02x?}");
                    assert_eq!(&counts, expected_counts, "round {round}, {name} (left): {frames:02x?}");
                }
            }
        }
    }
    assert!(sent_any > 1500, "too few get through: {sent_any}");
    let (_, local) = &engines[0];
    let counts = counted(local);
    let count = |name: &str| counts.iter().find(|(n, _)| n.contains(name)).expect("a counter").1;
    for instance in [4, 6] {
        assert!(count(&format!("seen {instance}")) > 100, "{instance}: {counts:?}");
    }
}

/// Each packet of a batch leaves as it would alone, in the same order.
#[test]
fn a_batch_that_goes_back_in_part_leaves_in_order() {
    let mut rng = Random::stream(4, 22);
    let mut engines = engines();
    let [together, alone] = engines.get_disjoint_mut([4, 5]).expect("there are as many").map(|(_, local)| local);
    for round in 0..100 {
        let (count, passes) = [(2, 4), (17, 3), (40, 2)][round % 3];
        let frames: Vec<Vec<u8>> = (0..count).map(|i| frame(&mut rng, passes, i)).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let sent = together.receive_batch(1, &frames).expect("they fit");
        let singly: Vec<Sent> = frames.iter().flat_map(|frame| alone.receive(1, frame).expect("it fits")).collect();
        assert_eq!(sent, singly, "round {round}: {frames:02x?}");
    }
    assert_eq!(counted(together), counted(alone));
}

/// A batch whose packets are all sent to a port and cloned takes a fast path of its own (`engine/clones.rs`). Its
/// output equals that of the general path, which the same packets take if one of the batch asks for multicast.
#[test]
fn a_batch_of_which_all_are_cloned_leaves_as_others_do() {
    let mut rng = Random::stream(5, 22);
    let other = {
        let mut frame = vec![0, 0, 0, 3, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0];
        frame.resize(60, 0xee);
        frame
    };
    for (mut together, mut mixed) in engines().into_iter().skip(3).zip(engines().into_iter().skip(3)) {
        for round in 0..60 {
            // In a third of the rounds, neither clones nor packets go back.
            let flags = [0, 8, 0x100][round % 3];
            let mut frames: Vec<Vec<u8>> = (0..[1, 2, 17, 32][round % 4])
                .map(|i| {
                    let mut frame = frame(&mut rng, 0, i);
                    let port = 0x20 | (rng.below(0x200) as u16 & (4 | flags | (rng.below(2) as u16 * 0x10)));
                    frame[3] = 3;
                    frame[6..8].copy_from_slice(&port.to_be_bytes());
                    frame
                })
                .collect();
            let refs: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let sent = together.1.receive_batch(1, &refs).expect("they fit");
            frames.push(other.clone());
            let refs: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let mut expected = mixed.1.receive_batch(1, &refs).expect("they fit");
            let others = expected.extract_if(.., |sent| sent.bytes.last() == Some(&0xee)).count();
            assert!(others > 0, "it is sent");
            assert!(sent.len() >= 3 * (frames.len() - 1), "round {round}, {}: {}", together.0, sent.len());
            assert_eq!(sent, expected, "round {round}, {}: {frames:02x?}", together.0);
        }
        let [together, mixed] = [&together.1, &mixed.1].map(|local| dropped_by(local, RuntimeDrop::ReplicationLimit));
        assert_eq!((together, mixed), (0, 0), "the premise of this test");
    }
}

/// A packet that requests another pass each time is dropped at the limit, whatever else is in the batch, and uses no
/// more than its share of work.
#[test]
fn a_packet_that_always_goes_back_is_dropped_at_the_limit() {
    // No metadata is preserved, so each pass requests the next.
    let endless = |number: u8| {
        let mut frame = vec![0, 0, 0, 1, 3, 3, 0, 2, 0, 0, 0, 0, 0, 0];
        frame.resize(60, number);
        frame
    };
    let once = |number: u8| {
        let mut frame = vec![0, 0, 0, 0, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0];
        frame.resize(60, number);
        frame
    };
    for (name, mut local) in engines() {
        for count in [1, 2, 64] {
            let frames: Vec<Vec<u8>> = (0..count).map(|i| if i % 2 == 0 { endless(i) } else { once(i) }).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let before = dropped_by(&local, RuntimeDrop::ReplicationLimit);
            let sent = local.receive_batch(1, &frames).expect("they fit");
            assert_eq!(sent.len(), frames.len() / 2, "{name}, {count}: those that do not go back");
            let dropped = dropped_by(&local, RuntimeDrop::ReplicationLimit) - before;
            assert_eq!(dropped, u64::from(count.div_ceil(2)), "{name}, {count}");
        }
    }
}

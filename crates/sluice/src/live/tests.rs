//! Traces of a running switch use its entries and members, and leave its counters unchanged.

use super::*;
use base::Bits;
use base::entry::{ActionCall, KeyMatch, TableEntry};
use datapath::EngineKind;
use frontend::{Input, Until};

const SOURCE: &str = r#"#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> kind; bit<8> group; bit<16> rest; }
struct headers { h_t h; }
struct meta_t { bit<1> unused; }
parser P(packet_in b, out headers hdr, inout meta_t m, inout standard_metadata_t sm) {
    state start { b.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply { } }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) {
    counter(4, CounterType.packets) seen;
    register<bit<16>>(4) value;
    action nothing() { mark_to_drop(sm); }
    action forward(bit<9> port) { sm.egress_spec = port; }
    action_selector(HashAlgorithm.crc16, 32, 16) members;
    table spread {
        key = { hdr.h.group: exact; hdr.h.rest: selector; }
        actions = { forward; nothing; }
        implementation = members;
    }
    table plain {
        key = { hdr.h.kind: ternary; }
        actions = { forward; nothing; }
        default_action = nothing();
    }
    apply {
        seen.count(0);
        value.read(hdr.h.rest, 2);
        if (hdr.h.kind == 9) {
            bit<32> draw;
            random(draw, 0, 0xffffffff);
            if (draw < 1000) {
                hdr.h.kind = 1;
            } else if (draw == 77777) {
                hdr.h.group = 5;
            }
        }
        if (hdr.h.group != 0) { spread.apply(); } else { plain.apply(); }
    }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout meta_t m) { apply { } }
control D(packet_out b, in headers hdr) { apply { b.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

fn running() -> Arc<Pipeline> {
    let input = Input::Text { name: "device_config.p4", text: SOURCE };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).unwrap();
    let program = Arc::new(compiled.optimised.expect("the program is right"));
    let pipeline = datapath::load(Arc::clone(&program), EngineKind::Machine, 1).expect("it runs");
    let state = pipeline.state();
    let action = |actions: &[ir::TableAction], name: &str| {
        actions.iter().position(|a| program.actions[a.action.index()].name == name).unwrap() as u32
    };
    let selector = program.extern_named("I.members").unwrap();
    let ir::ExternKind::ActionSelector { actions, .. } = &program.externs[selector.index()].kind else { panic!() };
    for port in 1..=3 {
        let call = ActionCall { action: action(actions, "I.forward"), args: vec![Bits::new(9, port.into())] };
        state.member_insert(selector, port, &call, 0).unwrap();
    }
    let member = |member| GroupMember { member, weight: 1, watch_port: None };
    state.group_insert(selector, 9, &[member(1), member(2), member(3)], 0).unwrap();
    let insert = |table: &str, key, priority, action| {
        let table = program.table_named(table).unwrap();
        let entry = TableEntry { key, priority, action, idle_timeout_ns: 0 };
        state.insert(table, &entry).unwrap();
    };
    insert("I.spread", vec![KeyMatch::Exact(Bits::new(8, 5))], 0, EntryAction::Group(9));
    let plain = program.table_named("I.plain").unwrap();
    let forward = action(&program.tables[plain.index()].actions, "I.forward");
    let call = EntryAction::Call(ActionCall { action: forward, args: vec![Bits::new(9, 7)] });
    let key = vec![KeyMatch::Ternary { value: Bits::new(8, 1), mask: Bits::new(8, 0xff) }];
    insert("I.plain", key, 3, call);
    let register = program.extern_named("I.value").unwrap();
    state.register_set(register, 2, &Bits::new(16, 0xabcd)).unwrap();
    Arc::new(pipeline)
}

fn tracer(filter: &str) -> Tracer {
    Tracer::new(
        (&crate::compiler::Compiler::in_process(), &frontend::Options::default()),
        running(),
        ("some/where/x.p4", SOURCE.as_bytes()),
        filter,
        PacketFilter::compile("").unwrap(),
        17,
    )
    .expect("the filter is right")
}

fn texts(trace: &pb::TraceResponse) -> Vec<&str> {
    trace.runs.iter().flat_map(|run| &run.steps).map(|step| step.text.as_str()).collect()
}

#[test]
fn a_packet_meets_the_running_entries_and_leaves_no_trace_in_the_switch() {
    let tracer = tracer("");
    let traces = tracer.trace(4, &[1, 0, 0, 0], true).unwrap();
    assert_eq!(traces.len(), 1, "nothing to choose");
    let sent: Vec<_> = traces[0].sent.iter().map(|s| (s.port, s.frame.clone())).collect();
    assert_eq!(sent, [(7, vec![1, 0, 0xab, 0xcd])], "the entry's port, the register's value");
    let apply = traces[0].runs[0].steps.iter().find(|s| s.text.starts_with("apply I.plain")).expect("a step");
    assert!(apply.text.contains("hit") && apply.text.contains("forward(port=0x7)"), "{}", apply.text);
    assert!(apply.file == "x.p4" && apply.source.contains("plain.apply()"), "{apply:?}");
    let missed = tracer.trace(4, &[2, 0, 0, 0], false).unwrap();
    assert!(missed[0].sent.is_empty() && !missed[0].dropped.is_empty(), "{:?}", missed[0].dropped);
    let state = tracer.pipeline.state();
    let seen = tracer.pipeline.program().extern_named("I.seen").unwrap();
    assert_eq!(state.counter(seen, 0).unwrap().packets, 0, "the switch counted nothing");
}

#[test]
fn a_trace_behaves_as_the_switch_compiles_its_programs() {
    let begin = SOURCE.find("    apply {\n        seen.count(0);").expect("the ingress");
    let end = SOURCE.find("control E(").expect("behind it");
    let body = "    apply { hdr.h.setInvalid(); sm.egress_spec = (bit<9>)hdr.h.kind; }\n}\n";
    let source = format!("{}{body}{}", &SOURCE[..begin], &SOURCE[end..]);
    for (bmv2, port) in [(false, 0), (true, 5)] {
        let options = Options { bmv2, ..Options::default() };
        let input = Input::Text { name: "device_config.p4", text: &source };
        let program = frontend::compile(input, &options, Until::Ir).unwrap().optimised.expect("the program is right");
        let pipeline = datapath::load(Arc::new(program), EngineKind::Machine, 1).expect("it runs");
        let compiler = crate::compiler::Compiler::in_process();
        let filter = PacketFilter::compile("").unwrap();
        let tracer =
            Tracer::new((&compiler, &options), Arc::new(pipeline), ("x.p4", source.as_bytes()), "", filter, 17)
                .expect("the program is right");
        let traces = tracer.trace(4, &[5, 0, 0, 0], false).unwrap();
        assert_eq!(traces[0].sent.iter().map(|sent| sent.port).collect::<Vec<_>>(), [port], "bmv2: {bmv2}");
    }
}

#[test]
fn a_tree_has_an_outcome_for_each_member() {
    let tracer = tracer("");
    let traces = tracer.trace(4, &[1, 5, 0, 0], true).unwrap();
    let outcome = |t: &pb::TraceResponse| (t.choices.clone(), t.sent.iter().map(|s| s.port).collect::<Vec<_>>());
    let expected: Vec<_> = (1..=3).map(|n| (vec![format!("I.members, group 9: member {n}")], vec![n])).collect();
    assert_eq!(traces.iter().map(outcome).collect::<Vec<_>>(), expected);
    assert_eq!(traces.iter().map(|t| t.more).collect::<Vec<_>>(), [true, true, false], "one packet's");
    let one = tracer.trace(4, &[1, 5, 0, 0], false).unwrap();
    assert!(one.len() == 1 && one[0].choices.is_empty() && one[0].sent.len() == 1);
    assert!(texts(&one[0]).iter().any(|text| text.starts_with("apply I.spread")));
}

#[test]
fn a_filter_looks_at_what_is_extracted() {
    let tracer = tracer("hdr.h.kind == 1 && port == 4");
    assert!(tracer.wants(4, &[1, 0, 0, 0]));
    assert!(!tracer.wants(3, &[1, 0, 0, 0]));
    assert!(!tracer.wants(4, &[2, 0, 0, 0]));
    assert!(!tracer.wants(4, &[1]), "too short for the header");
    let all = PacketFilter::compile("").unwrap();
    let refused = Tracer::new(
        (&crate::compiler::Compiler::in_process(), &frontend::Options::default()),
        running(),
        ("some/where/x.p4", SOURCE.as_bytes()),
        "hdr.h.knid == 1",
        all,
        0,
    )
    .err()
    .expect("refused");
    assert!(refused.contains("no field `hdr.h.knid`"), "{refused}");
}

#[test]
fn a_tree_has_an_outcome_for_each_way_that_a_random_number_leads() {
    let tracer = tracer("");
    let traces = tracer.trace(4, &[9, 0, 0, 0], true).unwrap();
    let outcome = |t: &pb::TraceResponse| (t.choices.clone(), t.sent.iter().map(|s| s.port).collect::<Vec<_>>());
    let drawn = |range: &str| format!("random number from 0 to 4294967295: {range}");
    // Numbers below 1000 go to port 7; one number goes to a group, whose members are choices, too; all others are
    // dropped.
    let mut expected =
        vec![(vec![drawn("0 to 999")], vec![7]), (vec![drawn("1000 to 77776, 77778 to 4294967295")], vec![])];
    expected.extend((1..=3).map(|n| (vec![format!("I.members, group 9: member {n}"), drawn("77777")], vec![n])));
    let got: Vec<_> = traces.iter().map(outcome).collect();
    assert_eq!(got, expected);
    assert_eq!(tracer.trace(4, &[9, 0, 0, 0], false).unwrap().len(), 1, "one is drawn");
}

#[test]
fn what_is_sent_by_a_port_that_is_not_there_is_dropped_for_the_reason_of_the_counters() {
    let ports = |there: &[u32], out_of_service: &[u32]| Ports {
        there: there.iter().copied().collect(),
        out_of_service: out_of_service.iter().copied().collect(),
    };
    let traced = |ports: Ports| {
        let [trace] = &tracer("").with_ports(ports).trace(4, &[1, 0, 0, 0], false).unwrap()[..] else { panic!() };
        (trace.sent.iter().map(|sent| sent.port).collect::<Vec<_>>(), trace.dropped.join(", "))
    };
    assert_eq!(traced(ports(&[7], &[])), (vec![7], String::new()));
    assert_eq!(traced(ports(&[1, 2], &[])), (vec![], "no such port (7)".to_string()));
    assert_eq!(traced(ports(&[7], &[7])), (vec![], "port is down (7)".to_string()));
    assert_eq!(ports(&[1], &[]).problem(0).unwrap(), "no egress port chosen");
}

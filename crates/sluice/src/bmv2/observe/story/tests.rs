//! One test for each kind of line. The expected texts are taken from bmv2's source. `json.rs`: programs in bmv2's JSON.

mod json;

use super::*;
use crate::bmv2::observe::numbers::Numbers;
use crate::compiler::Compiler;
use crate::live::{PacketFilter, Tracer};
use base::entry::{ActionCall, EntryAction, GroupMember, KeyMatch};
use datapath::replication::{CloneSession, Replica};
use datapath::{EngineKind, Pipeline};
use frontend::{Input, Options, Until};
use std::sync::Arc;

/// Returns the position of a text in the program, as lines show it.
fn place(text: &str) -> String {
    let line = SOURCE.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}"));
    format!("log.p4({})", line + 1)
}

/// The program under test; byte 0 of a frame selects what it does.
const SOURCE: &str = r#"#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> kind; bit<8> key; bit<16> sum; }
header l_t { bit<8> more; }
header o_t { varbit<16> options; }
struct headers { h_t h; l_t[2] l; o_t o; }
struct meta_t { @field_list(1) bit<8> kept; bit<16> hash; bit<32> draw; bit<8> seen; }
struct note_t { bit<8> kind; }
parser P(packet_in b, out headers hdr, inout meta_t m, inout standard_metadata_t sm) {
    state start {
        b.extract(hdr.h);
        m.seen = hdr.h.kind;
        transition select(hdr.h.kind) { 20: labels; 21: options; 22: sets; default: accept; }
    }
    state labels { b.extract(hdr.l.next); transition accept; }
    state options { b.extract(hdr.o, 16); b.advance(8); transition accept; }
    state sets {
        m.kept = 0;
        m.hash = b.lookahead<bit<16>>();
        m.draw = (bit<32>) hdr.h.sum;
        hdr.h.key = m.seen;
        transition accept;
    }
}
control V(inout headers hdr, inout meta_t m) {
    apply {
        verify_checksum(hdr.h.kind == 1 || hdr.h.kind == 2, { hdr.h.kind, hdr.h.key }, hdr.h.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) {
    counter(4, CounterType.packets) seen;
    meter(4, MeterType.packets) rate;
    register<bit<16>>(4) cells;
    action drop() { mark_to_drop(sm); }
    action send(bit<9> port) { sm.egress_spec = port; }
    action_selector(HashAlgorithm.crc16, 32, 16) members;
    table spread {
        key = { hdr.h.key: exact; hdr.h.sum: selector; }
        actions = { send; drop; }
        implementation = members;
    }
    table plain {
        key = { hdr.h.key: ternary @name("a_name_of_more_than_twenty_bytes"); }
        actions = { send; drop; }
        default_action = send(3);
    }
    apply {
        if (hdr.h.kind == 4 && hdr.h.key == 4) { clone_preserving_field_list(CloneType.I2E, 7, 1); }
        if (hdr.h.kind == 5) { sm.mcast_grp = 9; }
        else if (hdr.h.kind == 6 && sm.instance_type == 0) { resubmit_preserving_field_list(1); }
        else if (hdr.h.kind == 8) { spread.apply(); }
        else { plain.apply(); }
        if (hdr.h.kind == 10) {
            bit<32> at = (bit<32>) hdr.h.key;
            seen.count(at);
            rate.execute_meter(at, m.seen);
            cells.write(at, 77);
            cells.read(m.hash, at);
            hash(m.hash, HashAlgorithm.crc16, 16w5, { hdr.h.key }, 16w1000);
            random(m.draw, 3, 3);
            digest<note_t>(1, { hdr.h.kind });
            log_msg("kind {}", { hdr.h.kind });
        }
        if (hdr.h.kind == 11) { drop(); }
        if (hdr.h.kind == 13) { exit; }
        if (hdr.h.kind == 14) { bit<8> same; m.kept = 0; same = m.kept; m.seen = same; }
    }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) {
    apply {
        if (hdr.h.kind == 7 && sm.instance_type == 0) { recirculate_preserving_field_list(1); }
        if (hdr.h.kind == 9 && sm.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 7, 1); }
        if (hdr.h.kind == 12) { mark_to_drop(sm); }
    }
}
control C(inout headers hdr, inout meta_t m) {
    apply {
        update_checksum(hdr.h.kind != 3, { hdr.h.kind, hdr.h.key }, hdr.h.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out b, in headers hdr) { apply { b.emit(hdr.h); b.emit(hdr.l); b.emit(hdr.o); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

fn options() -> Options {
    Options { bmv2: true, ..Options::default() }
}

fn running() -> Arc<Pipeline> {
    let compiled = frontend::compile(Input::Text { name: "log.p4", text: SOURCE }, &options(), Until::Ir).unwrap();
    let program = Arc::new(compiled.optimised.expect("the program is right"));
    let pipeline = datapath::load(Arc::clone(&program), EngineKind::Machine, 1).expect("it runs");
    let state = pipeline.state();
    let action = |actions: &[ir::TableAction], name: &str| {
        actions.iter().position(|a| program.actions[a.action.index()].name == name).unwrap() as u32
    };
    let selector = program.extern_named("I.members").unwrap();
    let ExternKind::ActionSelector { actions, .. } = &program.externs[selector.index()].kind else { panic!() };
    let send = |port: u32| ActionCall { action: action(actions, "I.send"), args: vec![Bits::new(9, port.into())] };
    state.member_insert(selector, 4, &send(6), 0).unwrap();
    state.group_insert(selector, 2, &[GroupMember { member: 4, weight: 1, watch_port: None }], 0).unwrap();
    let insert = |table: &str, key, priority, action| {
        let table = program.table_named(table).unwrap();
        let entry = TableEntry { key, priority, action, idle_timeout_ns: 0 };
        state.insert(table, &entry).unwrap();
    };
    insert("I.spread", vec![KeyMatch::Exact(Bits::new(8, 5))], 0, EntryAction::Group(2));
    state.group_insert(selector, 3, &[], 0).unwrap();
    insert("I.spread", vec![KeyMatch::Exact(Bits::new(8, 6))], 0, EntryAction::Group(3));
    let plain = program.table_named("I.plain").unwrap();
    let call =
        ActionCall { action: action(&program.tables[plain.index()].actions, "I.send"), args: vec![Bits::new(9, 8)] };
    let key = vec![KeyMatch::Ternary { value: Bits::new(8, 0x42), mask: Bits::new(8, 0xff) }];
    insert("I.plain", key, i32::MAX - 10, EntryAction::Call(call));
    let replica = |port, instance| Replica { port, instance };
    let replicas = vec![replica(5, 1), replica(6, 2)];
    pipeline.replication().group_insert(9, replicas).unwrap();
    let session = CloneSession { replicas: vec![replica(4, 0)], class_of_service: 0, packet_length_bytes: 0 };
    pipeline.replication().session_insert(7, session).unwrap();
    Arc::new(pipeline)
}

struct Bench {
    pipeline: Arc<Pipeline>,
    tracer: Tracer,
    narrator: Narrator,
    /// The destination of session 7, if thrift created it.
    mirrored: Option<Mirrored>,
}

fn bench(json: Option<&serde_json::Value>) -> Bench {
    let pipeline = running();
    let program = ("log.p4", SOURCE.as_bytes());
    let filter = PacketFilter::compile("").unwrap();
    let compiler = Compiler::in_process();
    let compile = (&*compiler, &options());
    let tracer = Tracer::new(compile, Arc::clone(&pipeline), program, "", filter, 17).expect("it can be traced");
    let (program, _) = tracer.program();
    let narrator = Narrator::new(program, Numbers::new(json, program), 511);
    Bench { pipeline, tracer, narrator, mirrored: Some(Mirrored { group: None, port: Some(4) }) }
}

impl Bench {
    fn story(&mut self, frame: &[u8]) -> Story {
        let runs = self.tracer.runs(1, frame).unwrap();
        let (_, sources) = self.tracer.program();
        let handle_of = |table: &str, _: &TableEntry| (table == "I.plain").then_some(12);
        let replication = self.pipeline.replication();
        let (handle_of, mirrored) = (&handle_of, &|session| self.mirrored.filter(|_| session == 7));
        self.narrator.tell(&PacketRuns { runs: &runs, sources, replication, handle_of, mirrored, port: 1 })
    }

    fn lines(&mut self, frame: &[u8]) -> Vec<String> {
        self.story(frame).lines.iter().map(Line::said).collect()
    }

    /// Checks that a frame's lines include these, in this order.
    #[track_caller]
    fn check(&mut self, frame: &[u8], wanted: &[&str]) {
        let lines = self.lines(frame);
        let mut rest = lines.iter();
        for line in wanted {
            assert!(rest.any(|l| l == line), "{line:?} is not there, or not in its place:\n{}", lines.join("\n"));
        }
    }
}

#[test]
fn a_packet_from_end_to_end() {
    let lines = bench(None).lines(&[0, 0x42, 0, 0, 9]);
    let expected = [
        "D Processing packet received on port 1",
        "D Parser 'parser': start",
        "D Parser 'parser' entering state 'start'",
        "D Extracting header 'h'",
        "D Parser set: setting field 'm.seen' from field 'h.kind' (0)",
        "D Parser state 'start': key is 00",
        "T Bytes parsed: 4",
        "T Skipping checksum 'cksum_0' verification because condition not met",
        "D Parser 'parser': end",
        "D Pipeline 'ingress': start",
    ];
    assert_eq!(lines[..expected.len()], expected, "{}", lines.join("\n"));
    let after = lines.iter().position(|line| line == "D Pipeline 'ingress': end").expect("it ends");
    let expected = ["D Egress port is 8", "D Pipeline 'egress': start"];
    assert_eq!(lines[after + 1..after + 3], expected);
    let after = lines.iter().position(|line| line == "D Pipeline 'egress': end").expect("it ends");
    let expected = [
        "D Deparser 'deparser': start",
        "D Updating checksum 'cksum'",
        "D Deparsing header 'h'",
        "D Deparser 'deparser': end",
        "D Transmitting packet of size 5 out of port 8",
    ];
    assert_eq!(lines[after + 1..], expected);
}

#[test]
fn checksums() {
    let mut bench = bench(None);
    bench.check(
        &[1, 0, 0xfe, 0xff],
        &[
            "D Checksum 'cksum_0': computed 0xfeff - actual 0xfeff",
            "D Verified checksum 'cksum_0': passed",
            "D Parser 'parser': end",
        ],
    );
    bench.check(
        &[2, 0, 0, 7],
        &[
            "D Checksum 'cksum_0': computed 0xfdff - actual 0x7",
            "D Verified checksum 'cksum_0': failed",
            "E Checksum 'cksum_0' is not correct",
            "D Parser 'parser': end",
            "D Deparser 'deparser': start",
            "D Updating checksum 'cksum'",
        ],
    );
    bench.check(
        &[3, 0, 0, 0],
        &["T Skipping checksum 'cksum' update because condition not met", "D Deparsing header 'h'"],
    );
}

#[test]
fn parsers() {
    let mut bench = bench(None);
    bench.check(
        &[20, 0, 0, 0, 7],
        &[
            "D Parser set: setting field 'm.seen' from field 'h.kind' (20)",
            "D Parser state 'start': key is 14",
            "D Parser 'parser' entering state 'labels'",
            "D Extracting header 'l[0]'",
            "D Parser state 'labels' has no switch, going to default next state",
            "T Bytes parsed: 5",
        ],
    );
    bench.check(
        &[21, 0, 0, 0, 1, 2, 3],
        &["D Extracting variable-sized header 'o'", "D Advancing by 1 bytes", "T Bytes parsed: 7"],
    );
    bench.check(
        &[22, 0, 0, 3, 1, 2],
        &[
            "D Parser 'parser' entering state 'sets'",
            // The field was 0 before.
            "D Parser set: setting field 'm.kept' to 0",
            "D Parser set: setting field 'm.hash' from lookahead (0, 16), new value is 258",
            "D Parser set: setting field 'm.draw' from expression, new value is 3",
            "D Parser set: setting field 'h.key' from field 'm.seen' (22)",
        ],
    );
    bench.check(&[1, 2], &["E Exception while parsing: PacketTooShort", "D Parser 'parser': end"]);
    assert!(bench.lines(&[1, 2]).iter().filter(|line| line.contains("Exception")).count() == 1);
}

#[test]
fn tables_and_conditions() {
    let mut bench = bench(None);
    let condition = |text: &str, node: u32| format!("T {} Condition \"{text}\" (node_{node}) is false", place(text));
    bench.check(
        &[0, 0x42, 0, 0],
        &[
            &condition("hdr.h.kind == 4 && hdr.h.key == 4", 0),
            &condition("hdr.h.kind == 5", 1),
            "T Applying table 'I.plain'",
            "D Looking up key:\n* a_name_of_more_than_twenty_bytes: 42\n",
            "D Table 'I.plain': hit with handle 12",
            "D Dumping entry 12\nMatch key:\n* a_name_of_more_than_twenty_bytes: TERNARY   42 &&& ff\nPriority: 10\n",
            "D Action entry is I.send - 8,",
            &format!("T {} Action I.send", place("sm.egress_spec = port")),
        ],
    );
    bench.check(&[0, 0, 0, 0], &["D Table 'I.plain': miss", "D Action entry is I.send - 3,", "D Egress port is 3"]);
    bench.check(
        &[8, 5, 0, 0],
        &[
            "T Applying table 'I.spread'",
            "D Looking up key:\n* hdr.h.key           : 05\n",
            "D Choosing member 4 from group 2",
            "D Table 'I.spread': hit with entry (exact 8w0x5)",
            "D Action entry is I.send - 6,",
        ],
    );
    let of_an_empty_group = bench.lines(&[8, 6, 0, 0]);
    bench.check(
        &[8, 6, 0, 0],
        &[
            "T Applying table 'I.spread'",
            "D Looking up key:\n* hdr.h.key           : 06\n",
            "E Lookup in table 'I.spread' yielded empty group",
            "D Table 'I.spread': miss",
            "D Action entry is NoAction - ",
        ],
    );
    assert_eq!(of_an_empty_group.iter().filter(|line| line.starts_with('E')).count(), 1);
    assert!(!bench.lines(&[8, 7, 0, 0]).iter().any(|line| line.starts_with('E')));
}

#[test]
fn externs() {
    let mut bench = bench(None);
    bench.check(
        &[10, 2, 0, 0],
        &[
            "T Updated counter 'I.seen' at index 2",
            "D Executing meter I.rate[2]",
            "T Updated meter 'I.rate' at index 2, assigning dest field the color result 0",
            "T Wrote register 'I.cells' at index 2 with value 77",
            "T Read register 'I.cells' at index 2 read value 77",
        ],
    );
    let lines = bench.lines(&[10, 2, 0, 0]);
    assert!(lines.iter().any(|line| line.starts_with("T hash(base=5, max=1000) = ")), "{}", lines.join("\n"));
    bench.check(&[10, 2, 0, 0], &["T random(lo=3, hi=3) = 3"]);
    bench.check(&[10, 2, 0, 0], &["I kind 10"]);
    bench.check(&[10, 2, 0, 0], &["T Learning sample for list id 1"]);
    bench.check(
        &[10, 9, 0, 0],
        &[
            "E Attempted to update counter 'I.seen' with size 4 at out-of-bounds index 9.  No counters were updated.",
            "E Attempted to write register 'I.cells' with size 4 at out-of-bounds index 9.  No register array elements were updated.",
        ],
    );
}

#[test]
fn statements_are_primitives_also_if_they_change_nothing() {
    let mut bench = bench(None);
    for text in ["sm.egress_spec = port", "mark_to_drop(sm)"] {
        let wanted = format!("T {} Primitive {text}", place(text));
        let lines = bench.lines(if text.starts_with("mark") { &[11, 0x42, 0, 0] } else { &[0, 0x42, 0, 0] });
        assert!(lines.contains(&wanted), "{wanted}\n{}", lines.join("\n"));
    }
    let at = place("m.kept = 0; same");
    bench.check(
        &[14, 0x42, 0, 0],
        &[&format!("T {at} Primitive m.kept = 0"), &format!("T {at} Primitive m.seen = same")],
    );
    // A declaration is no statement.
    assert!(!bench.lines(&[14, 0x42, 0, 0]).iter().any(|line| line.contains("bit<8> same")));
}

#[test]
fn exits() {
    let mut bench = bench(None);
    let statement = format!("T {} Primitive exit", place("exit;"));
    let marked = "D Packet is marked for exit, interrupting pipeline";
    bench.check(&[13, 0x42, 0, 0], &[&statement, marked, "D Pipeline 'ingress': end", "D Egress port is 8"]);
    assert!(!bench.lines(&[0, 0x42, 0, 0]).iter().any(|line| line == marked));
}

#[test]
fn clones_to_groups() {
    let mut bench = bench(None);
    let begin = "D Cloning packet at ingress";
    // A session of thrift, with a group and a port.
    bench.mirrored = Some(Mirrored { group: Some(9), port: Some(4) });
    let group = [
        "D Cloning packet to MGID 9",
        "D number of packets replicated : 2 for MGID: 9",
        "D Replicating packet on port 5",
        "D Replicating packet on port 6",
    ];
    bench.check(
        &[4, 4, 0, 0],
        &[&[begin], &group[..], &["D Cloning packet to egress port 4", "D Egress port is 3"]].concat(),
    );
    // With a group only, and with a group that does not exist.
    bench.mirrored = Some(Mirrored { group: Some(9), port: None });
    assert!(!bench.lines(&[4, 4, 0, 0]).iter().any(|line| line.contains("Cloning packet to egress port")));
    bench.mirrored = Some(Mirrored { group: Some(8), port: None });
    let missing = "W Replication requested for mgid 8, which is not known to the PRE";
    bench.check(&[9, 0x42, 0, 0], &["D Cloning packet at egress", "D Cloning packet to MGID 8", missing]);
    // A session of P4Runtime.
    bench.mirrored = None;
    let own = [
        begin,
        "D Cloning packet to MGID 32775",
        "D number of packets replicated : 1 for MGID: 32775",
        "D Replicating packet on port 4",
        "D Egress port is 3",
    ];
    bench.check(&[4, 4, 0, 0], &own);
}

#[test]
fn copies() {
    let mut bench = bench(None);
    bench.check(
        &[4, 4, 0, 0],
        &[
            "D Pipeline 'ingress': end",
            "D Cloning packet at ingress",
            "D Cloning packet to egress port 4",
            "D Egress port is 3",
        ],
    );
    bench.check(
        &[5, 4, 0, 0],
        &[
            "D Multicast requested for packet",
            "D number of packets replicated : 2 for MGID: 9",
            "D Replicating packet on port 5",
            "D Replicating packet on port 6",
            "D Transmitting packet of size 4 out of port 5",
            "D Transmitting packet of size 4 out of port 6",
        ],
    );
    bench.check(
        &[6, 0x42, 0, 0],
        &[
            "D Resubmitting packet",
            "D Processing packet received on port 1",
            "D Parser 'parser': start",
            "D Egress port is 8",
        ],
    );
    bench.check(
        &[7, 0x42, 0, 0],
        &[
            "D Deparser 'deparser': end",
            "D Recirculating packet",
            "D Processing packet received on port 1",
            "D Egress port is 8",
        ],
    );
    bench.check(&[9, 0x42, 0, 0], &["D Cloning packet at egress", "D Cloning packet to egress port 4"]);
    bench.check(&[11, 0x42, 0, 0], &["D Egress port is 511", "D Dropping packet at the end of ingress"]);
    bench.check(&[12, 0x42, 0, 0], &["D Pipeline 'egress': end", "D Dropping packet at the end of egress"]);
    for dropped in [11, 12] {
        let lines = bench.lines(&[dropped, 0x42, 0, 0]);
        assert_eq!(lines.iter().filter(|line| line.contains("Dropping")).count(), 1, "{}", lines.join("\n"));
    }
}

#[test]
fn copies_have_numbers() {
    let text = |story: &Story, of: &str| {
        let found = story.lines.iter().map(|line| line.text(3)).find(|line| line.contains(of));
        found.unwrap_or_else(|| panic!("{of}"))
    };
    let mut bench = bench(None);
    let story = bench.story(&[5, 4, 0, 0]);
    assert!(text(&story, "Multicast requested").contains(" [3.0] "));
    assert!(text(&story, "out of port 5").contains(" [3.1] "), "{}", text(&story, "out of port 5"));
    assert!(text(&story, "out of port 6").contains(" [3.2] "));
    let story = bench.story(&[4, 4, 0, 0]);
    assert!(text(&story, "out of port 3").contains(" [3.0] "), "the packet itself");
    assert!(text(&story, "out of port 4").contains(" [3.1] "), "the clone");
}

#[test]
fn events_have_the_ids_of_the_description() {
    let json = crate::bmv2::config::json(&Compiler::in_process(), &options(), "log.p4", SOURCE.as_bytes()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let id = |list: &serde_json::Value, name: &str| {
        let found = list.as_array().unwrap().iter().find(|o| o["name"] == name);
        found.unwrap_or_else(|| panic!("{name}"))["id"].as_i64().unwrap() as i32
    };
    let header = id(&json["headers"], "h");
    let plain = id(&json["pipelines"][0]["tables"], "I.plain");
    let mut bench = bench(Some(&json));
    let story = bench.story(&[2, 0x42, 0, 0]);
    let events: Vec<(EventKind, Vec<i32>)> = story
        .events
        .iter()
        .map(|e| (e.kind, e.numbers.clone()))
        .filter(|(kind, _)| *kind != EventKind::ConditionEval)
        .collect();
    let send = events.iter().find(|(kind, _)| *kind == EventKind::ActionExecute).expect("an action").1[0];
    assert_eq!(json["actions"].as_array().unwrap().iter().find(|a| a["id"] == send).unwrap()["name"], "I.send");
    let expected = [
        (EventKind::PacketIn, vec![1]),
        (EventKind::ParserStart, vec![0]),
        (EventKind::ParserExtract, vec![header]),
        (EventKind::ParserDone, vec![0]),
        (EventKind::PipelineStart, vec![0]),
        (EventKind::TableHit, vec![plain, 12]),
        (EventKind::ActionExecute, vec![send]),
        (EventKind::PipelineDone, vec![0]),
        (EventKind::PipelineStart, vec![1]),
        (EventKind::PipelineDone, vec![1]),
        (EventKind::DeparserStart, vec![0]),
        (EventKind::ChecksumUpdate, vec![0]),
        (EventKind::DeparserEmit, vec![header]),
        (EventKind::DeparserDone, vec![0]),
        (EventKind::PacketOut, vec![8]),
    ];
    assert_eq!(events, expected);
    let conditions = story.events.iter().filter(|e| e.kind == EventKind::ConditionEval);
    assert!(conditions.clone().count() > 3 && conditions.clone().all(|e| e.numbers.len() == 2 && e.numbers[0] >= 0));
    let misses = bench.story(&[0, 0, 0, 0]).events;
    assert!(misses.iter().any(|e| e.kind == EventKind::TableMiss && e.numbers == [plain]));
    // A header stack has an id, too.
    let lines = bench.lines(&[20, 0, 0, 0, 7]);
    let stack = format!(
        "D Extracting to header stack {}, next header is {}",
        id(&json["header_stacks"], "l"),
        id(&json["headers"], "l[0]")
    );
    assert!(lines.contains(&stack), "{stack}\n{}", lines.join("\n"));
}

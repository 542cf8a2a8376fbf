//! Descriptions of programs: names, widths, order and targets are p4c's, and other switches refuse the file.

use bmv2::describe::{Described, FIELD, PRIMITIVE, describe};
use frontend::{Input, Options, Until};
use serde_json::{Value, json};

const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header options_t { bit<8> length; varbit<320> data; }
header tag_t { bit<16> vid; }
header left_t { int<8> x; }
header_union side_t { left_t left; tag_t right; }
struct inner_t { bit<7> a; bool b; }
struct metadata_t { bit<9> port; @field_list(1, 3) bit<32> hop; error e; tag_t kept; }
struct nested_t { inner_t i; bit<8> c; }
struct headers_t { ethernet_t ethernet; tag_t[2] tags; options_t options; side_t side; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<16>>(4) types;
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { types: tag; default: accept; }
    }
    state tag { packet.extract(hdr.tags.next); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Sub(inout headers_t hdr, inout standard_metadata_t std) {
    action send(bit<9> port) { std.egress_spec = port; }
    table late {
        key = { std.ingress_port: optional; hdr.ethernet.src: range; }
        actions = { send; NoAction; }
    }
    apply { late.apply(); }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Sub() sub;
    direct_counter(CounterType.packets) seen;
    counter(64, CounterType.bytes) ports;
    direct_meter<bit<2>>(MeterType.bytes) rate;
    register<bit<48>>(16) last;
    action_selector(HashAlgorithm.crc16, 32w128, 32w10) members;
    action drop() { mark_to_drop(std); }
    action set(bit<32> hop, bit<9> port) { meta.hop = hop; meta.port = port; ports.count((bit<32>)port); }
    action counted() { seen.count(); }
    action measured() { bit<2> colour; rate.read(colour); }
    table unused { actions = { drop; } }
    table second {
        key = { meta.hop: exact; hdr.ethernet.dst: selector; }
        actions = { drop; set; }
        implementation = members;
    }
    table first {
        key = { hdr.ethernet.dst & 0xffff: ternary; hdr.tags[1].vid: exact; hdr.ethernet.isValid(): exact; meta.hop[15:8]: exact; }
        actions = { set; counted; @defaultonly drop; }
        default_action = set(5, 511);
        counters = seen;
        support_timeout = true;
        size = 77;
    }
    table fixed {
        key = { std.ingress_port: ternary; meta.port: lpm; }
        actions = { set; NoAction; }
        const default_action = NoAction;
        const entries = {
            (1 &&& 0x1ff, 0x1f0 &&& 0x1f0): set(0x10, 2);
            (_, _): NoAction();
        }
    }
    table policed {
        key = { meta.e: exact; }
        actions = { measured; }
        meters = rate;
    }
    apply {
        if (first.apply().hit) { last.write(0, hdr.ethernet.src); }
        second.apply();
        fixed.apply();
        policed.apply();
        sub.apply(hdr, std);
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#;

fn described(source: &str) -> Value {
    let input = Input::Text { name: "x.p4", text: source };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).unwrap();
    let (typed, program) = (compiled.typed.as_ref(), compiled.raw.as_ref());
    let (Some(typed), Some(program)) = (typed, program) else { panic!("{}", compiled.render(false)) };
    describe(&Described { typed, program, name: "x.p4", source, bmv2: true })
}

/// The item of a list with this name.
fn named<'v>(list: &'v Value, name: &str) -> &'v Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|item| item["name"] == name)
        .unwrap_or_else(|| panic!("{name} is not in {list:#}"))
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn headers_are_instances_with_the_names_of_p4c() {
    let file = described(PROGRAM);
    let expected = [
        "scalars",
        "standard_metadata",
        "ethernet",
        "options",
        "tags[0]",
        "tags[1]",
        "side.left",
        "side.right",
        "userMetadata.kept",
    ];
    assert_eq!(names(&file["headers"]), expected);
    for (id, header) in file["headers"].as_array().unwrap().iter().enumerate() {
        assert_eq!(header["id"], id);
        named(&file["header_types"], header["header_type"].as_str().unwrap());
    }
    assert_eq!(file["header_stacks"][0]["header_ids"], json!([4, 5]));
    assert_eq!(file["header_unions"][0]["header_ids"], json!([6, 7]));
    assert_eq!(file["header_union_types"][0]["headers"], json!([["left", "left_t"], ["right", "tag_t"]]));
    let options = named(&file["header_types"], "options_t");
    assert_eq!(options["fields"], json!([["length", 8, false], ["data", "*", false]]));
    assert_eq!(options["max_length"], 41);
    assert_eq!(named(&file["header_types"], "left_t")["fields"], json!([["x", 8, true]]));
    let scalars = named(&file["header_types"], "scalars_0")["fields"].as_array().unwrap();
    assert_eq!(
        scalars[..3],
        [
            json!(["metadata_t.port", 9, false]),
            json!(["metadata_t.hop", 32, false]),
            json!(["metadata_t.e", 32, false])
        ]
    );
    let bits: u64 = scalars.iter().map(|field| field[1].as_u64().unwrap()).sum();
    assert_eq!(bits % 8, 0);
    let hop = json!([{ "type": "field", "value": ["scalars", "metadata_t.hop"] }]);
    assert_eq!((&file["field_lists"][0]["elements"], &file["field_lists"][1]["name"]), (&hop, &json!("field_list3")));
}

#[test]
fn tables_are_listed_in_the_order_of_application() {
    let file = described(PROGRAM);
    let ingress = named(&file["pipelines"], "ingress");
    assert_eq!(names(&ingress["tables"]), ["I.first", "I.second", "I.fixed", "I.policed", "I.sub.late"]);
    assert_eq!(names(&file["pipelines"]), ["ingress", "egress"]);
    let first = named(&ingress["tables"], "I.first");
    assert_eq!(
        (&first["match_type"], &first["type"], &first["max_size"]),
        (&json!("ternary"), &json!("simple"), &json!(77))
    );
    assert_eq!((&first["with_counters"], &first["support_timeout"]), (&json!(true), &json!(true)));
    let keys: Vec<Value> =
        first["key"].as_array().unwrap().iter().map(|key| json!([key["target"], key["mask"]])).collect();
    let expected = [
        json!([["ethernet", "dst"], "0x00000000ffff"]),
        json!([["scalars", "key_0"], null]),
        json!([["ethernet", "$valid$"], null]),
        json!([["scalars", "metadata_t.hop"], "0x0000ff00"]),
    ];
    assert_eq!(keys, expected);
    assert_eq!(first["default_entry"]["action_data"], json!(["0x5", "0x1ff"]));
    let late = named(&ingress["tables"], "I.sub.late");
    assert_eq!((&late["match_type"], &late["key"][0]["match_type"]), (&json!("range"), &json!("ternary")));
    let second = named(&ingress["tables"], "I.second");
    assert_eq!((&second["type"], &second["action_profile"]), (&json!("indirect_ws"), &json!("I.members")));
    assert_eq!(second.get("default_entry"), None);
    let profile = &ingress["action_profiles"][0];
    assert_eq!(profile["selector"]["input"], json!([{ "type": "field", "value": ["ethernet", "dst"] }]));
    assert_eq!((&profile["selector"]["algo"], &profile["max_size"]), (&json!("crc16"), &json!(128)));
}

#[test]
fn actions_have_an_id_for_each_table_and_run_in_no_other() {
    let file = described(PROGRAM);
    let actions = file["actions"].as_array().unwrap();
    for table in file["pipelines"][0]["tables"].as_array().unwrap() {
        let ids = table["action_ids"].as_array().unwrap();
        let of: Vec<&Value> = ids.iter().map(|id| &actions[id.as_u64().unwrap() as usize]["name"]).collect();
        assert_eq!(of, table["actions"].as_array().unwrap().iter().collect::<Vec<_>>());
    }
    let mut ids: Vec<u64> = actions.iter().map(|action| action["id"].as_u64().unwrap()).collect();
    ids.dedup();
    assert_eq!(ids, (0..actions.len() as u64).collect::<Vec<_>>());
    assert!(actions.iter().all(|action| action["primitives"][0]["op"] == PRIMITIVE));
    let start = &file["parsers"][0]["parse_states"][0];
    assert_eq!((&start["name"], &start["parser_ops"][0]["parameters"][0]["op"]), (&json!("start"), &json!(PRIMITIVE)));
    let data = json!([{ "name": "hop", "bitwidth": 32 }, { "name": "port", "bitwidth": 9 }]);
    assert_eq!(named(&file["actions"], "I.set")["runtime_data"], data);
}

#[test]
fn entries_and_state_are_listed() {
    let file = described(PROGRAM);
    let fixed = named(&file["pipelines"][0]["tables"], "I.fixed");
    let entries = fixed["entries"].as_array().unwrap();
    assert_eq!(entries[0]["match_key"][0], json!({ "match_type": "ternary", "key": "0x0001", "mask": "0x01ff" }));
    assert_eq!(entries[0]["match_key"][1], json!({ "match_type": "lpm", "key": "0x01f0", "prefix_length": 5 }));
    assert_eq!(entries[0]["action_entry"]["action_data"], json!(["0x10", "0x2"]));
    assert_eq!([&entries[0]["priority"], &entries[1]["priority"]], [&json!(1), &json!(2)]);
    assert_eq!(fixed["default_entry"]["action_const"], true);
    let binding = |list: &str, name: &str| named(&file[list], name)["binding"].clone();
    assert_eq!(binding("counter_arrays", "I.seen"), "I.first");
    assert_eq!(binding("meter_arrays", "I.rate"), "I.policed");
    assert_eq!(named(&file["counter_arrays"], "I.ports")["size"], 64);
    assert_eq!(named(&file["register_arrays"], "I.last")["bitwidth"], 48);
    assert_eq!(file["parse_vsets"][0], json!({ "name": "P.types", "id": 0, "compressed_bitwidth": 16, "max_size": 4 }));
    assert_eq!(file["errors"][1], json!(["PacketTooShort", 1]));
}

#[test]
fn nested_structs_are_flattened() {
    let source = PROGRAM.replace("metadata_t meta", "nested_t meta").replace("inout metadata_t", "inout nested_t");
    let source = source
        .replace("meta.hop = hop; meta.port = port;", "")
        .replace("meta.hop[15:8]", "meta.i.b")
        .replace("meta.hop", "meta.i.a");
    let source = source
        .replace("meta.port: lpm", "meta.c: lpm")
        .replace("0x1f0 &&& 0x1f0", "0xf0 &&& 0xf0")
        .replace("meta.e", "meta.c");
    let file = described(&source);
    let first = named(&file["pipelines"][0]["tables"], "I.first");
    assert_eq!(first["key"][3]["target"], json!(["scalars", "nested_t._i_b1"]));
    assert_eq!(named(&file["header_types"], "scalars_0")["fields"][2], json!(["nested_t._c2", 8, false]));
}

#[test]
fn the_file_carries_the_source_and_compiles_to_the_same() {
    let file = described(PROGRAM);
    assert_eq!(file[FIELD], json!({ "source": PROGRAM, "name": "x.p4", "bmv2": true }));
    let as_bmv2 = Options { bmv2: true, ..Options::default() };
    let ir = |text: &str, options: &Options| {
        let compiled = frontend::compile(Input::Text { name: "x.p4", text }, options, Until::Ir).unwrap();
        ir::print(compiled.optimised.as_ref().unwrap_or_else(|| panic!("{}", compiled.render(false))))
    };
    // The file behaves like the source compiled as bmv2.
    assert_eq!(ir(&file.to_string(), &Options::default()), ir(PROGRAM, &as_bmv2));
    // Without that field, it is bmv2's JSON with an unknown primitive.
    let mut without = file;
    without.as_object_mut().unwrap().remove(FIELD);
    let text = without.to_string();
    let input = Input::Text { name: "x.json", text: &text };
    let refused = frontend::compile(input, &Options::default(), Until::Ir).unwrap();
    assert!(refused.failed() && refused.render(false).contains(PRIMITIVE), "{}", refused.render(false));
}

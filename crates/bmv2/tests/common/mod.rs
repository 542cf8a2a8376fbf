//! Small programs in bmv2's JSON, assembled from pieces, and scripts that run on all engines.
#![allow(dead_code, reason = "each test uses a part of it")]

use datapath::{EngineKind, Local};
use serde_json::{Value, json};
use std::sync::Arc;

/// A base program: headers `h` (a: 8, b: 8, c: 16 bits) and `g` (x: 8, y: 8), a stack `s` of three (t: 8), metadata
/// `m`; the parser extracts `h`, and the deparser emits everything.
pub fn base() -> Value {
    let standard = json!([
        ["ingress_port", 9, false],
        ["egress_spec", 9, false],
        ["egress_port", 9, false],
        ["instance_type", 32, false],
        ["packet_length", 32, false],
        ["mcast_grp", 16, false],
        ["egress_rid", 16, false],
        ["checksum_error", 1, false],
        ["parser_error", 32, false],
        ["_padding", 5, false]
    ]);
    json!({
        "__meta__": {"version": [2, 23], "compiler": "by hand"},
        "header_types": [
            {"name": "standard_metadata", "id": 0, "fields": standard},
            {"name": "h_t", "id": 1, "fields": [["a", 8, false], ["b", 8, false], ["c", 16, false]]},
            {"name": "g_t", "id": 2, "fields": [["x", 8, false], ["y", 8, false]]},
            {"name": "s_t", "id": 3, "fields": [["t", 8, false]]},
            {"name": "m_t", "id": 4, "fields": [
                ["n", 16, false], ["wide", 64, false], ["signed", 8, true], ["full", 8, false, true], ["bit", 1, false]
            ]}
        ],
        "headers": [
            {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": true},
            {"name": "h", "id": 1, "header_type": "h_t", "metadata": false},
            {"name": "g", "id": 2, "header_type": "g_t", "metadata": false},
            {"name": "s[0]", "id": 3, "header_type": "s_t", "metadata": false},
            {"name": "s[1]", "id": 4, "header_type": "s_t", "metadata": false},
            {"name": "s[2]", "id": 5, "header_type": "s_t", "metadata": false},
            {"name": "m", "id": 6, "header_type": "m_t", "metadata": true}
        ],
        "header_stacks": [{"name": "s", "id": 0, "header_type": "s_t", "header_ids": [3, 4, 5]}],
        "field_lists": [],
        "errors": [["NoError", 0], ["PacketTooShort", 1], ["NoMatch", 2], ["StackOutOfBounds", 3], ["Mine", 4]],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [
            {"name": "start", "id": 0, "parser_ops": [extract("h")], "transition_key": [],
             "transitions": [default(Value::Null)]}
        ]}],
        "parse_vsets": [],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h", "g", "s[0]", "s[1]", "s[2]"], "primitives": []}],
        "meter_arrays": [],
        "counter_arrays": [],
        "register_arrays": [],
        "calculations": [],
        "learn_lists": [],
        "actions": [],
        "pipelines": [pipeline("ingress", 0), pipeline("egress", 1)],
        "checksums": [],
        "extern_instances": [],
        "field_aliases": [
            ["intrinsic_metadata.mcast_grp", ["standard_metadata", "mcast_grp"]],
            ["intrinsic_metadata.egress_rid", ["standard_metadata", "egress_rid"]]
        ]
    })
}

fn pipeline(name: &str, id: u32) -> Value {
    json!({"name": name, "id": id, "init_table": null, "tables": [], "action_profiles": [], "conditionals": []})
}

pub fn extract(header: &str) -> Value {
    json!({"op": "extract", "parameters": [{"type": "regular", "value": header}]})
}

pub fn default(next: Value) -> Value {
    json!({"type": "default", "value": null, "mask": null, "next_state": next})
}

pub fn field(header: &str, field: &str) -> Value {
    json!({"type": "field", "value": [header, field]})
}

pub fn hex(text: &str) -> Value {
    json!({"type": "hexstr", "value": text})
}

pub fn header(name: &str) -> Value {
    json!({"type": "header", "value": name})
}

pub fn expr(op: &str, left: Value, right: Value) -> Value {
    json!({"type": "expression", "value": {"op": op, "left": left, "right": right}})
}

pub fn call(op: &str, parameters: Value) -> Value {
    json!({"op": op, "parameters": parameters})
}

pub fn assign(to: Value, value: Value) -> Value {
    call("assign", json!([to, value]))
}

/// Sends the packet to a port.
pub fn to_port(port: u32) -> Value {
    assign(field("standard_metadata", "egress_spec"), hex(&format!("0x{port:x}")))
}

/// A program whose ingress is one action with these primitives.
pub fn doing(calls: Value) -> Value {
    let mut program = base();
    program["actions"] = json!([{"name": "act", "id": 0, "runtime_data": [], "primitives": calls}]);
    program["pipelines"][0]["tables"] = json!([keyless("tbl_act", 0, "act", 0)]);
    program["pipelines"][0]["init_table"] = json!("tbl_act");
    program
}

/// A table without a key that calls one action.
pub fn keyless(name: &str, id: u32, action: &str, action_id: u32) -> Value {
    json!({
        "name": name, "id": id, "key": [], "match_type": "exact", "type": "simple", "max_size": 1024,
        "with_counters": false, "support_timeout": false, "direct_meters": null, "action_ids": [action_id],
        "actions": [action], "base_default_next": null, "next_tables": {action: null},
        "default_entry": {
            "action_id": action_id, "action_const": true, "action_data": [], "action_entry_const": true
        }
    })
}

pub fn compile(program: &Value) -> bmv2::Compiled {
    bmv2::compile(&serde_json::to_string_pretty(program).unwrap(), "test.json", "test")
}

/// The compiled program; panics if it is refused.
pub fn accepted(program: &Value) -> bmv2::Compiled {
    let compiled = compile(program);
    let text: Vec<String> = compiled.diagnostics.iter().map(|d| d.render(&compiled.sources, false)).collect();
    assert!(compiled.program.is_some(), "{}", text.join("\n"));
    compiled
}

/// Runs a script on the interpreter, with raw and optimised IR, and as machine code, including the staged strategy.
pub fn run(program: &Value, script: &str) {
    let raw = accepted(program).program.unwrap();
    let mut optimised = raw.clone();
    opt::optimise(&mut optimised, &opt::Options::default());
    let problems = ir::verify(&optimised);
    assert!(problems.is_empty(), "{}", problems[0].message);
    let (raw, optimised) = (Arc::new(raw), Arc::new(optimised));
    let lines = stf::parse(script).unwrap();
    let engines = [
        ("raw", &raw, EngineKind::Interpreter),
        ("interp", &optimised, EngineKind::Interpreter),
        ("jit", &optimised, EngineKind::Machine),
        ("staged", &optimised, EngineKind::Staged),
    ];
    for (name, program, engine) in engines {
        let pipeline = datapath::load(Arc::clone(program), engine, 1).unwrap();
        let outcome = stf::run_script(&lines, &mut Local::new(Arc::new(pipeline)));
        assert!(outcome.failures.is_empty(), "{name}: {:#?}", outcome.failures);
    }
}

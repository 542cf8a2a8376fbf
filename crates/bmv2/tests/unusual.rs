//! JSON that compilers rarely write and bmv2 accepts: fields of 0 bits, and objects of the same name.

mod common;

use common::*;
use serde_json::{Value, json};

/// The program with fields of 0 bits before and between those of `h`, and one in the metadata.
fn with_empty(mut program: Value) -> Value {
    program["header_types"][1]["fields"] =
        json!([["none", 0, false], ["a", 8, false], ["b", 8, false], ["nil", 0, true, true], ["c", 16, false]]);
    program["header_types"][4]["fields"].as_array_mut().unwrap().insert(0, json!(["empty", 0, false]));
    program
}

#[test]
fn fields_of_no_bits_are_zero_and_take_nothing() {
    let at = |index: u32| json!({"type": "expression", "value": {"op": "access_field", "left": header("h"), "right": index}});
    let program = with_empty(doing(json!([
        assign(field("h", "none"), hex("0x1")),
        assign(at(3), hex("0x1")),
        assign(at(1), expr("+", field("h", "none"), expr("+", field("m", "empty"), hex("0x7")))),
        assign(at(4), expr("+", at(0), expr("+", at(3), field("h", "a")))),
        call("modify_field_rng_uniform", json!([field("m", "empty"), hex("0x5"), hex("0x5")])),
        to_port(1)
    ])));
    run(&program, "packet 0 01 02 0304 55\nexpect 1 07 02 0007 55$");
    let mut constant = program;
    constant["actions"][0]["primitives"][0]["parameters"][0] = hex("0x1");
    let message = &compile(&constant).diagnostics[0].message;
    assert!(message.starts_with("actions[0].primitives[0].parameters[0]: nothing can be assigned"), "{message}");
}

#[test]
fn parsers_lists_and_hashes_skip_fields_of_no_bits() {
    let hash = call(
        "modify_field_with_hash_based_offset",
        json!([
            field("h", "c"), hex("0x0"), {"type": "calculation", "value": "calc"}, hex("0x10000")
        ]),
    );
    let mut program = with_empty(doing(json!([hash, call("resubmit", json!([hex("0x0")])), to_port(1)])));
    program["calculations"] = json!([{"name": "calc", "id": 0, "algo": "xor16", "input": [
        field("m", "empty"), field("h", "a"), field("h", "nil"), field("h", "b")
    ]}]);
    program["field_lists"] = json!([{"id": 1, "elements": [field("h", "nil"), field("m", "n")]}]);
    let state = &mut program["parsers"][0]["parse_states"][0];
    state["parser_ops"].as_array_mut().unwrap().push(json!({
        "op": "set", "parameters": [field("m", "empty"), {"type": "lookahead", "value": [0, 8]}]
    }));
    state["transition_key"] = json!([field("h", "none"), field("h", "a"), field("m", "empty")]);
    state["transitions"] = json!([
        {"type": "hexstr", "value": "0x12", "mask": null, "next_state": "more"}, default(Value::Null)
    ]);
    program["parsers"][0]["parse_states"].as_array_mut().unwrap().push(json!({
        "name": "more", "id": 1, "parser_ops": [extract("g")], "transition_key": [], "transitions": [default(Value::Null)]
    }));
    run(
        &program,
        "packet 0 12 34 0000 aabb\nexpect 1 12 34 1234 aabb$\npacket 0 13 34 0000 aa\nexpect 1 13 34 1334 aa$",
    );
    // Nothing remains to be compared.
    program["parsers"][0]["parse_states"][0]["transition_key"] = json!([field("h", "none")]);
    let message = &compile(&program).diagnostics[0].message;
    assert_eq!(message, "parsers[0].parse_states[0].transition_key: a key of 0 bits");
}

/// A table in ingress with this key; entries and misses call `set`, which writes `h.b` and sends to port 1.
fn with_table(key: Value, actions: Value, listed: &[(u32, &str)]) -> Value {
    let mut program = base();
    program["actions"] = actions;
    program["pipelines"][0]["init_table"] = json!("t");
    program["pipelines"][0]["tables"] = json!([table("t", 0, key, listed, Value::Null)]);
    program
}

fn table(name: &str, id: u32, key: Value, listed: &[(u32, &str)], next: Value) -> Value {
    let ids: Vec<u32> = listed.iter().map(|(id, _)| *id).collect();
    let names: Vec<&str> = listed.iter().map(|(_, name)| *name).collect();
    let nexts: serde_json::Map<String, Value> = names.iter().map(|n| (n.to_string(), next.clone())).collect();
    json!({
        "name": name, "id": id, "key": key, "match_type": "exact", "type": "simple", "max_size": 64,
        "with_counters": false, "support_timeout": false, "direct_meters": null, "action_ids": ids, "actions": names,
        "base_default_next": next, "next_tables": nexts
    })
}

fn exact(header: &str, of: &str) -> Value {
    json!({"match_type": "exact", "name": of, "target": [header, of], "mask": null})
}

fn data(index: u32) -> Value {
    json!({"type": "runtime_data", "value": index})
}

#[test]
fn keys_and_parameters_of_no_bits_are_zero() {
    let set = json!([{
        "name": "set", "id": 0, "runtime_data": [{"name": "x", "bitwidth": 0}, {"name": "v", "bitwidth": 8}],
        "primitives": [assign(field("h", "nil"), data(0)), assign(field("h", "b"), data(1)), to_port(1)]
    }]);
    let key = json!([exact("h", "a"), exact("h", "nil")]);
    let mut program = with_empty(with_table(key, set, &[(0, "set")]));
    run(&program, "add t a:5 nil:0 set(x:0, v:0x99)\npacket 0 05 02 0304\nexpect 1 05 99 0304$");
    let entry = |key: Value| {
        json!({
            "match_key": [{"match_type": "exact", "key": "0x05"}, {"match_type": "exact", "key": key}],
            "action_entry": {"action_id": 0, "action_data": ["0x", "0x99"]}, "priority": 1
        })
    };
    for none in ["0x", "0x00"] {
        program["pipelines"][0]["tables"][0]["entries"] = json!([entry(json!(none))]);
        run(&program, "packet 0 05 02 0304\nexpect 1 05 99 0304$");
    }
}

#[test]
fn actions_of_one_name_have_other_parameters_in_other_tables() {
    let actions = json!([
        {"name": "c.set", "id": 0, "runtime_data": [{"name": "v", "bitwidth": 8}],
         "primitives": [assign(field("h", "b"), data(0)), to_port(1)]},
        {"name": "c.set", "id": 1, "runtime_data": [{"name": "v", "bitwidth": 8}, {"name": "w", "bitwidth": 16}],
         "primitives": [assign(field("h", "a"), data(0)), assign(field("h", "c"), data(1))]}
    ]);
    let mut program = with_table(json!([exact("h", "a")]), actions, &[(0, "c.set")]);
    let tables = program["pipelines"][0]["tables"].as_array_mut().unwrap();
    tables[0]["next_tables"] = json!({"c.set": "u"});
    tables.push(table("u", 1, json!([exact("h", "b")]), &[(1, "c.set")], Value::Null));
    let info = accepted(&program).p4info.unwrap();
    let names: Vec<&str> = info.actions.iter().map(|a| a.preamble.name.as_str()).collect();
    assert_eq!(names, ["c.set", "NoAction", "c.set#2"]);
    let script =
        "add t a:5 c.set(v:9)\nadd u b:9 \"c.set#2\"(v:7, w:0x8899)\npacket 0 05 02 0304\nexpect 1 07 09 8899$";
    run(&program, script);
}

#[test]
fn objects_of_other_kinds_have_the_same_name() {
    let counter = call("count", json!([{"type": "counter_array", "value": "x"}, hex("0x1")]));
    let write = call("register_write", json!([{"type": "register_array", "value": "x"}, hex("0x0"), field("h", "c")]));
    let read = call("register_read", json!([field("h", "a"), {"type": "register_array", "value": "x"}, hex("0x0")]));
    let mut program = doing(json!([counter, write, read, to_port(1)]));
    program["counter_arrays"] = json!([{"name": "x", "id": 0, "size": 4, "is_direct": false}]);
    program["register_arrays"] = json!([{"name": "x", "id": 0, "size": 4, "bitwidth": 16}]);
    run(&program, "packet 0 01 02 0304\nexpect 1 04 02 0304$\ncheck_counter x(1) packets == 1");
    let info = accepted(&program).p4info.unwrap();
    assert_eq!((&*info.counters[0].preamble.name, &*info.registers[0].preamble.name), ("x", "x#2"));
    // Two objects of the same kind must not have the same name, as in bmv2.
    let array = program["register_arrays"][0].clone();
    program["register_arrays"].as_array_mut().unwrap().push(array);
    let message = &compile(&program).diagnostics[0].message;
    assert_eq!(message, "register_arrays[1]: there is another register array `x`");
}

#[test]
fn learn_lists_of_one_type_are_one_digest() {
    let digest = |list: &str| call("generate_digest", json!([hex("0x400"), hex(list)]));
    let mut program = doing(json!([digest("0x1"), digest("0x2"), digest("0x3"), to_port(1)]));
    let list = |id: u32, fields: Value| json!({"id": id, "name": "learned", "elements": fields});
    program["learn_lists"] = json!([
        list(1, json!([field("h", "a"), field("h", "b")])),
        list(2, json!([field("h", "b"), field("h", "a")])),
        list(3, json!([field("h", "c")]))
    ]);
    let compiled = accepted(&program);
    let lowered = compiled.program.unwrap();
    let sends = |i: &&ir::Inst| matches!(i.op, ir::Op::Digest { .. });
    let insts = lowered.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts);
    assert_eq!(insts.filter(sends).count(), 3);
    let info = compiled.p4info.unwrap();
    let names: Vec<&str> = info.digests.iter().map(|d| d.preamble.name.as_str()).collect();
    assert_eq!(names, ["learned", "learned#2"]);
    run(&program, "packet 0 01 02 0304\nexpect 1 01 02 0304");
}

#[test]
fn a_selector_by_toeplitz_takes_the_first_member() {
    let set = json!([{
        "name": "set", "id": 0, "runtime_data": [{"name": "v", "bitwidth": 8}],
        "primitives": [assign(field("h", "b"), data(0)), to_port(1)]
    }]);
    let mut program = with_table(json!([exact("h", "a")]), set, &[(0, "set")]);
    let selector = json!({"algo": "toeplitz", "input": [field("h", "c")]});
    program["pipelines"][0]["action_profiles"] = json!([{"name": "ap", "id": 0, "max_size": 8, "selector": selector}]);
    let table = &mut program["pipelines"][0]["tables"][0];
    table["type"] = json!("indirect_ws");
    table["action_profile"] = json!("ap");
    let script = "member ap 1 set(v:0x11)\nmember ap 2 set(v:0x22)\ngroup ap 1 1 2\nadd t a:5 group(1)\n\
                  packet 0 05 02 0304\nexpect 1 05 11 0304\npacket 0 05 02 0305\nexpect 1 05 11 0305\n\
                  packet 0 05 02 ffff\nexpect 1 05 11 ffff";
    run(&program, script);
}

//! The effects of programs in bmv2's JSON on packets, on every engine.

mod common;

use common::*;
use serde_json::{Value, json};

#[test]
fn arithmetic_has_no_bounds_until_it_is_assigned() {
    let a = || field("h", "a");
    let b = || field("h", "b");
    // (a + b) / 2 needs nine bits for the sum.
    let mean = expr(">>", expr("+", a(), b()), hex("0x1"));
    // A negative difference is less than 0, so `b2d` gives 1.
    let below = expr("<", expr("-", a(), b()), hex("0x0"));
    let sum = expr("+", expr("b2d", Value::Null, below), expr("*", hex("0x2"), hex("-0x1")));
    let program = doing(json!([
        assign(field("m", "n"), mean),
        assign(field("m", "wide"), expr("&", sum, hex("0xffff"))),
        assign(field("h", "c"), field("m", "wide")),
        assign(field("h", "a"), field("m", "n")),
        to_port(1)
    ]));
    run(&program, "packet 0 f0 ff 0000\nexpect 1 f7 ff ffff\npacket 0 03 01 0000\nexpect 1 02 01 fffe");
}

#[test]
fn shifts_saturation_and_twos_complement() {
    let program = doing(json!([
        // 0x81 as a signed number is -127; a right shift keeps its sign.
        assign(field("m", "signed"), expr("two_comp_mod", field("h", "a"), hex("0x8"))),
        assign(field("h", "b"), expr(">>", field("m", "signed"), hex("0x1"))),
        call("add", json!([field("m", "full"), field("h", "a"), field("h", "a")])),
        assign(field("h", "a"), field("m", "full")),
        assign(
            field("h", "c"),
            expr("usat_cast", expr("+", expr("<<", field("h", "c"), hex("0x4")), hex("0x1")), hex("0x10"))
        ),
        to_port(1)
    ]));
    run(&program, "packet 0 81 00 0fff\nexpect 1 ff c0 fff1\npacket 0 07 00 1000\nexpect 1 0e 03 ffff");
}

#[test]
fn a_shift_by_a_variable_amount_is_cut_by_its_mask() {
    let shifted = expr("&", expr("<<", field("h", "c"), field("h", "a")), hex("0xffff"));
    let program = doing(json!([assign(field("h", "c"), shifted), to_port(1)]));
    run(&program, "packet 0 04 00 1234\nexpect 1 04 00 2340\npacket 0 ff 00 1234\nexpect 1 ff 00 0000");
}

#[test]
fn the_queue_of_a_packet_is_its_priority() {
    let set_priority = assign(field("intrinsic_metadata", "priority"), field("h", "a"));
    let mut program = doing(json!([set_priority, to_port(1)]));
    let metadata = json!({"name": "intrinsic_t", "id": 5, "fields": [["priority", 3, false], ["_pad", 5, false]]});
    program["header_types"].as_array_mut().unwrap().push(metadata);
    let metadata = json!({"name": "queueing_t", "id": 6, "fields": [["qid", 8, false]]});
    program["header_types"].as_array_mut().unwrap().push(metadata);
    for (id, name, ty) in [(7, "intrinsic_metadata", "intrinsic_t"), (8, "queueing_metadata", "queueing_t")] {
        let header = json!({"name": name, "id": id, "header_type": ty, "metadata": true});
        program["headers"].as_array_mut().unwrap().push(header);
    }
    let show = json!([assign(field("h", "b"), field("queueing_metadata", "qid"))]);
    let show = json!({"name": "show", "id": 1, "runtime_data": [], "primitives": show});
    program["actions"].as_array_mut().unwrap().push(show);
    program["pipelines"][1]["tables"] = json!([keyless("tbl_show", 1, "show", 1)]);
    program["pipelines"][1]["init_table"] = json!("tbl_show");
    run(&program, "packet 0 05 ff 0000\nexpect 1 05 05 0000\npacket 0 00 ff 0000\nexpect 1 00 00 0000");
}

#[test]
fn fields_of_a_removed_header_keep_their_values() {
    let program = doing(json!([
        call("remove_header", json!([header("h")])),
        call("add_header", json!([header("g")])),
        assign(field("g", "x"), field("h", "a")),
        assign(field("g", "y"), field("h", "b")),
        to_port(1)
    ]));
    run(&program, "packet 0 12 34 5678 99\nexpect 1 12 34 99");
}

#[test]
fn a_header_that_is_added_starts_with_zeros() {
    let program = doing(json!([
        // A value written to an invalid header can be read, and is cleared when the header is added.
        assign(field("g", "x"), hex("0x77")),
        assign(field("h", "a"), field("g", "x")),
        call("add_header", json!([header("g")])),
        assign(field("g", "y"), hex("0x1")),
        // Adding it again changes nothing.
        call("add_header", json!([header("g")])),
        to_port(1)
    ]));
    run(&program, "packet 0 00 01 0203\nexpect 1 77 01 0203 00 01");
}

#[test]
fn headers_are_copied_with_their_validity() {
    let mut program = doing(json!([
        call("assign_header", json!([header("s[0]"), header("s[1]")])),
        call("add_header", json!([header("s[1]")])),
        assign(field("s[1]", "t"), field("h", "a")),
        call("assign_header", json!([header("s[2]"), header("s[1]")])),
        to_port(1)
    ]));
    program["deparsers"][0]["order"] = json!(["s[0]", "s[2]"]);
    run(&program, "packet 0 42 00 0000\nexpect 1 42");
}

/// A program whose parser extracts elements of `s` while their top bit is set.
fn with_stack(calls: Value) -> Value {
    let mut program = doing(calls);
    program["parsers"][0]["parse_states"] = json!([
        {"name": "start", "id": 0, "parser_ops": [{"op": "extract", "parameters": [{"type": "stack", "value": "s"}]}],
         "transition_key": [{"type": "stack_field", "value": ["s", "t"]}],
         "transitions": [
            {"type": "hexstr", "value": "0x80", "mask": "0x80", "next_state": "start"},
            default(json!("rest"))
         ]},
        {"name": "rest", "id": 1, "parser_ops": [extract("h")], "transition_key": [],
         "transitions": [default(Value::Null)]}
    ]);
    program["deparsers"][0]["order"] = json!(["s[0]", "s[1]", "s[2]", "h"]);
    program
}

#[test]
fn stacks_are_extracted_pushed_and_popped() {
    let stack = json!({"type": "header_stack", "value": "s"});
    let program = with_stack(json!([
        call("push", json!([stack, hex("0x1")])),
        call("add_header", json!([header("s[0]")])),
        assign(field("s[0]", "t"), expr("size_stack", Value::Null, stack.clone())),
        to_port(1)
    ]));
    run(&program, "packet 0 81 02 0a0b0c0d\nexpect 1 03 81 02 0a0b0c0d\npacket 0 05 0a0b0c0d\nexpect 1 02 05 0a0b0c0d");
    let program = with_stack(json!([call("pop", json!([stack, hex("0x1")])), to_port(1)]));
    run(&program, "packet 0 81 02 0a0b0c0d\nexpect 1 02 0a0b0c0d\npacket 0 05 0a0b0c0d\nexpect 1 0a0b0c0d");
}

#[test]
fn elements_are_chosen_at_run_time() {
    let stack = json!({"type": "header_stack", "value": "s"});
    let element = expr("dereference_header_stack", stack, field("h", "a"));
    let t = expr("access_field", element, json!(0));
    let program = with_stack(json!([assign(field("h", "b"), t.clone()), assign(t, hex("0x55")), to_port(1)]));
    run(&program, "packet 0 81 82 03 01 00 0000\nexpect 1 81 55 03 01 82 0000");
}

#[test]
fn a_full_stack_ends_the_parser_with_its_error() {
    let error = expr("&", field("standard_metadata", "parser_error"), hex("0xff"));
    let program = with_stack(json!([assign(field("s[0]", "t"), error), to_port(1)]));
    run(&program, "packet 0 81 82 83 84 01 020304\nexpect 1 03 82 83 84 01 020304");
}

#[test]
fn unknown_errors_have_the_value_of_the_json() {
    let mut program = doing(json!([
        assign(field("h", "b"), expr("&", field("standard_metadata", "parser_error"), hex("0xff"))),
        to_port(1)
    ]));
    let ops = program["parsers"][0]["parse_states"][0]["parser_ops"].as_array_mut().unwrap();
    ops.push(json!({"op": "verify", "parameters": [expr("!=", field("h", "a"), hex("0xff")), hex("0x5")]}));
    ops.push(json!({"op": "verify", "parameters": [expr("!=", field("h", "a"), hex("0xfe")), hex("0x0")]}));
    // In old output of p4c, and if the program has errors before those of core.p4.
    for first in [json!(["NoError", 1]), json!(["First", 0])] {
        let mut errors = vec![first.clone(), json!(["PacketTooShort", 2]), json!(["Mine", 5])];
        if first[1] == 0 {
            errors.push(json!(["NoError", 1]));
        }
        program["errors"] = json!(errors);
        run(
            &program,
            "packet 0 04000000\nexpect 1 04010000\npacket 0 ff000000\nexpect 1 ff050000\npacket 0 fe000000\nexpect 1 fe000000",
        );
    }
}

#[test]
fn verify_lookahead_and_advance() {
    let mut program = doing(json!([
        assign(field("m", "n"), field("standard_metadata", "parser_error")),
        call("add_header", json!([header("g")])),
        assign(field("g", "x"), field("m", "n")),
        assign(field("g", "y"), field("m", "wide")),
        to_port(1)
    ]));
    program["parsers"][0]["parse_states"][0]["parser_ops"] = json!([
        {"op": "set", "parameters": [field("m", "wide"), {"type": "lookahead", "value": [4, 8]}]},
        {"op": "verify", "parameters": [expr("!=", field("m", "wide"), hex("0xff")), hex("0x4")]},
        {"op": "advance", "parameters": [hex("0x10")]},
        extract("h")
    ]);
    let script = "packet 0 1ab2 01020304\nexpect 1 01020304 00 ab\n\
                  packet 0 1ff2 01020304\nexpect 1 04 ff 1ff201020304\n\
                  packet 0 1ab2 010203\nexpect 1 01 ab 010203";
    run(&program, script);
}

#[test]
fn fields_of_variable_length() {
    let mut program = doing(json!([call("add_header", json!([header("g")])), to_port(1)]));
    program["header_types"][2] = json!(
        {"name": "g_t", "id": 2, "fields": [["x", 8, false], ["y", 8, false]]}
    );
    program["header_types"].as_array_mut().unwrap().push(json!(
        {"name": "v_t", "id": 9, "fields": [["n", 8, false], ["v", "*", false]], "max_length": 4}
    ));
    program["headers"].as_array_mut().unwrap().push(json!(
        {"name": "v", "id": 9, "header_type": "v_t", "metadata": false}
    ));
    let length = json!({"type": "expression", "value": expr("*", field("h", "a"), hex("0x8"))});
    program["parsers"][0]["parse_states"][0]["parser_ops"] = json!([
        extract("h"),
        {"op": "extract_VL", "parameters": [{"type": "regular", "value": "v"}, length]}
    ]);
    program["deparsers"][0]["order"] = json!(["v", "h", "g"]);
    // Two bytes; more than the header can have; more than the packet has.
    let script = "packet 0 02000000 aa bbcc dd\nexpect 1 aabbcc 02000000 0000 dd\n\
                  packet 0 04000000 aabbccddee\nexpect 1 04000000 0000 aabbccddee\n\
                  packet 0 03000000 aabb\nexpect 1 03000000 0000 aabb";
    run(&program, script);
    // Old compilers gave the length with the type; `local` is a field of the header.
    let mut old = program.clone();
    let n = json!({"type": "local", "value": 0});
    old["header_types"].as_array_mut().unwrap().last_mut().unwrap()["length_exp"] = expr("*", n, hex("0x8"));
    old["parsers"][0]["parse_states"][0]["parser_ops"] = json!([extract("h"), extract("v")]);
    run(&old, "packet 0 00000000 01 bb cc\nexpect 1 01bb 00000000 0000 cc");
}

/// A table in ingress with this key, whose entries set `h.b` and send to port 1; a miss sends to port 2.
fn with_table(key: Value, match_type: &str) -> Value {
    let mut program = base();
    program["actions"] = json!([
        {"name": "set", "id": 0, "runtime_data": [{"name": "v", "bitwidth": 8}],
         "primitives": [assign(field("h", "b"), json!({"type": "runtime_data", "value": 0})), to_port(1)]},
        {"name": "other", "id": 1, "runtime_data": [], "primitives": [to_port(2)]}
    ]);
    program["pipelines"][0]["init_table"] = json!("t");
    program["pipelines"][0]["tables"] = json!([{
        "name": "t", "id": 0, "key": key, "match_type": match_type, "type": "simple", "max_size": 64,
        "with_counters": false, "support_timeout": false, "direct_meters": null, "action_ids": [0, 1],
        "actions": ["set", "other"], "base_default_next": null, "next_tables": {"set": null, "other": null},
        "default_entry": {"action_id": 1, "action_const": false, "action_data": [], "action_entry_const": false}
    }]);
    program
}

fn key(kind: &str, of: &str) -> Value {
    json!([{"match_type": kind, "name": format!("hdr.h.{of}"), "target": ["h", of], "mask": null}])
}

#[test]
fn tables_of_every_kind() {
    let scripts = [
        (
            "exact",
            "a",
            "add t hdr.h.a:0x05 set(v:0x99)\npacket 0 05000000\nexpect 1 05990000\npacket 0 06000000\nexpect 2 06000000",
        ),
        (
            "lpm",
            "a",
            "add t hdr.h.a:0x50/4 set(v:0x99)\npacket 0 5f000000\nexpect 1 5f990000\npacket 0 60000000\nexpect 2 60000000",
        ),
        (
            "ternary",
            "a",
            "add t 1 hdr.h.a:0x*5 set(v:0x99)\npacket 0 75000000\nexpect 1 75990000\npacket 0 76000000\nexpect 2 76000000",
        ),
        (
            "range",
            "a",
            "add t 1 hdr.h.a:0x10..0x20 set(v:0x99)\npacket 0 20000000\nexpect 1 20990000\npacket 0 21000000\nexpect 2 21000000",
        ),
        (
            "optional",
            "a",
            "add t 1 hdr.h.a:0x05 set(v:0x99)\npacket 0 05000000\nexpect 1 05990000\npacket 0 06000000\nexpect 2 06000000",
        ),
    ];
    for (kind, of, script) in scripts {
        run(&with_table(key(kind, of), kind), script);
    }
    let valid = json!([{"match_type": "valid", "target": "h", "mask": null}]);
    run(
        &with_table(valid, "exact"),
        "add t h:1 set(v:0x99)\npacket 0 05000000\nexpect 1 05990000\npacket 0 06\nexpect 2 06",
    );
    let masked = json!([{"match_type": "exact", "target": ["h", "a"], "mask": "0x0f"}]);
    run(&with_table(masked, "exact"), "add t h.a:0x05 set(v:0x99)\npacket 0 75000000\nexpect 1 75990000");
}

#[test]
fn entries_of_the_program_and_the_smallest_priority() {
    let mut program = with_table(key("ternary", "a"), "ternary");
    let entry = |value: &str, mask: &str, v: &str, priority: u32| {
        json!({
            "match_key": [{"match_type": "ternary", "key": value, "mask": mask}],
            "action_entry": {"action_id": 0, "action_data": [v]}, "priority": priority
        })
    };
    program["pipelines"][0]["tables"][0]["entries"] =
        json!([entry("0x10", "0xf0", "0x11", 2), entry("0x1f", "0xff", "0x22", 1)]);
    run(
        &program,
        "packet 0 1f000000\nexpect 1 1f220000\npacket 0 1e000000\nexpect 1 1e110000\npacket 0 2e000000\nexpect 2 2e000000",
    );
}

#[test]
fn tables_continue_by_hit_or_miss() {
    let mut program = with_table(key("exact", "a"), "exact");
    let actions = program["actions"].as_array_mut().unwrap();
    actions.push(
        json!({"name": "mark", "id": 2, "runtime_data": [], "primitives": [assign(field("h", "c"), hex("0xbeef"))]}),
    );
    let pipeline = &mut program["pipelines"][0];
    pipeline["tables"][0]["next_tables"] = json!({"__HIT__": "odd", "__MISS__": null});
    pipeline["tables"].as_array_mut().unwrap().push(keyless("tbl_mark", 1, "mark", 2));
    let odd = expr("==", expr("&", field("h", "a"), hex("0x1")), hex("0x1"));
    let both = expr("and", odd, expr("not", Value::Null, expr("==", field("h", "c"), hex("0x1"))));
    pipeline["conditionals"] =
        json!([{"name": "odd", "id": 0, "expression": both, "true_next": "tbl_mark", "false_next": null}]);
    let script = "add t hdr.h.a:5 set(v:1)\nadd t hdr.h.a:6 set(v:2)\n\
                  packet 0 05000000\nexpect 1 0501beef\npacket 0 06000000\nexpect 1 06020000\n\
                  packet 0 05000001\nexpect 1 05010001\npacket 0 07000000\nexpect 2 07000000";
    run(&program, script);
}

#[test]
fn direct_counters_action_profiles_and_selectors() {
    let mut program = with_table(key("exact", "a"), "exact");
    program["counter_arrays"] = json!([{"name": "cnt", "id": 0, "is_direct": true, "binding": "t"}]);
    program["pipelines"][0]["tables"][0]["with_counters"] = json!(true);
    run(
        &program,
        "add t hdr.h.a:5 set(v:1) = A\npacket 0 05000000\nexpect 1 05010000\ncheck_counter cnt($A) packets == 1",
    );
    let mut program = with_table(key("exact", "a"), "exact");
    let selector = json!({"algo": "crc16", "input": [field("h", "c")]});
    program["pipelines"][0]["action_profiles"] = json!([{"name": "ap", "id": 0, "max_size": 8, "selector": selector}]);
    let table = &mut program["pipelines"][0]["tables"][0];
    table["type"] = json!("indirect_ws");
    table["action_profile"] = json!("ap");
    table.as_object_mut().unwrap().remove("default_entry");
    let compiled = accepted(&program);
    let info = compiled.p4info.unwrap();
    assert!(info.action_profiles[0].with_selector);
    assert_eq!(info.tables[0].implementation_id, Some(info.action_profiles[0].preamble.id));
}

#[test]
fn actions_jump_loop_and_exit() {
    let zero = |value: Value, to: &str| call("_jump_if_zero", json!([value, hex(to)]));
    let mut program = doing(json!([
        // b is the sum of 1 to a.
        zero(expr("b2d", Value::Null, expr("!=", field("m", "n"), field("h", "a"))), "0x4"),
        assign(field("m", "n"), expr("+", field("m", "n"), hex("0x1"))),
        assign(field("h", "b"), expr("+", field("h", "b"), field("m", "n"))),
        call("_jump", json!([hex("0x0")])),
        to_port(1),
        zero(field("h", "c"), "0x7"),
        call("exit", json!([]))
    ]));
    program["actions"].as_array_mut().unwrap().push(json!(
        {"name": "mark", "id": 1, "runtime_data": [], "primitives": [assign(field("h", "c"), hex("0xbeef"))]}
    ));
    program["pipelines"][0]["tables"].as_array_mut().unwrap().push(keyless("tbl_mark", 1, "mark", 1));
    program["pipelines"][0]["tables"][0]["next_tables"] = json!({"act": "tbl_mark"});
    run(&program, "packet 0 04000000\nexpect 1 040abeef\npacket 0 03000001\nexpect 1 03060001");
}

#[test]
fn registers_counters_meters_and_hashes() {
    let register = json!({"type": "register_array", "value": "r"});
    let mut program = doing(json!([
        call("register_read", json!([field("h", "c"), register, field("h", "a")])),
        call("register_write", json!([register, field("h", "a"), expr("+", field("h", "c"), hex("0x1"))])),
        call("count", json!([{"type": "counter_array", "value": "cnt"}, field("h", "b")])),
        call(
            "modify_field_with_hash_based_offset",
            json!([
                field("h", "b"), hex("0x10"), {"type": "calculation", "value": "calc"}, hex("0x1")
            ])
        ),
        to_port(1)
    ]));
    program["register_arrays"] = json!([{"name": "r", "id": 0, "size": 4, "bitwidth": 16}]);
    program["counter_arrays"] = json!([{"name": "cnt", "id": 0, "is_direct": false, "size": 4}]);
    program["calculations"] = json!([{"name": "calc", "id": 0, "algo": "crc32", "input": [field("h", "c")]}]);
    // Index 9 is out of range: the field keeps its value.
    let script = "packet 0 01 02 aaaa\nexpect 1 01 10 0000\npacket 0 01 02 aaaa\nexpect 1 01 10 0001\n\
                  packet 0 09 02 aaaa\nexpect 1 09 10 aaaa\ncheck_counter cnt(2) packets == 3";
    run(&program, script);
}

/// A program that writes the hash of `h` to register 0.
fn hashing(algorithm: &str) -> Value {
    let register = json!({"type": "register_array", "value": "r"});
    let calculation = json!({"type": "calculation", "value": "calc"});
    let any = hex("0xffffffffffffffff");
    let mut program = doing(json!([
        call("modify_field_with_hash_based_offset", json!([field("m", "wide"), hex("0x0"), calculation, any])),
        call("register_write", json!([register, hex("0x0"), field("m", "wide")])),
        to_port(1)
    ]));
    program["register_arrays"] = json!([{"name": "r", "id": 0, "size": 1, "bitwidth": 64}]);
    let input = json!([field("h", "a"), field("h", "b"), field("h", "c")]);
    program["calculations"] = json!([{"name": "calc", "id": 0, "algo": algorithm, "input": input}]);
    program
}

#[test]
fn hashes_have_the_values_of_bmv2() {
    let expected = [
        ("xor32", "0x0102aabb"),
        ("crc8_custom", "0x72"),
        ("crc64_custom", "0xfab0e361b0000000"),
        ("xxh64", "0x11b1e7e8022e2809"),
        ("bmv2_hash", "0x11b1e7e8022e2809"),
        ("hash_ex", "0x32ad4c62"),
        ("toeplitz", "0x0"),
    ];
    for (algorithm, value) in expected {
        let script = format!("packet 0 01 02 aabb\nexpect 1 01 02 aabb$\nexpect_register r 0 {value}");
        run(&hashing(algorithm), &script);
    }
    let script = "set_toeplitz_key calc 6d5a56da255b0ec2\npacket 0 01 02 aabb\nexpect 1 01 02 aabb$\n\
                  expect_register r 0 0xb4304c7e";
    run(&hashing("toeplitz"), script);
}

#[test]
fn a_script_on_one_engine_does_not_read_all_cells() {
    let program = std::sync::Arc::new(accepted(&hashing("xor32")).program.unwrap());
    let pipeline = datapath::load(program, datapath::EngineKind::Interpreter, 1).unwrap();
    let lines = stf::parse("packet 0 01 02 aabb\nexpect_register r 0 0x0102aabb").unwrap();
    let mut local = datapath::Local::new(std::sync::Arc::new(pipeline));
    let outcome = stf::run_watched(&lines, &mut local, &mut || {});
    assert_eq!((outcome.passed, outcome.state.len()), (1, 0));
    assert_eq!(stf::dump_state(&local)["r"], ["0: 0x102aabb"]);
}

#[test]
fn the_drop_port_is_configurable() {
    let program = doing(json!([call("mark_to_drop", json!([header("standard_metadata")]))])).to_string();
    for (asked, port) in [(None, 511), (Some(500), 500)] {
        let compiled = bmv2::compile_with(&program, "test.json", "test", asked).program.unwrap();
        assert_eq!(compiled.drop_port, Some(port));
        assert!(ir::print(&compiled).contains(&format!("9w{port:#x}")));
    }
}

#[test]
fn checksums_are_verified_and_updated_under_their_conditions() {
    let mut program = doing(json!([assign(field("h", "b"), field("standard_metadata", "checksum_error")), to_port(1)]));
    let ones = json!({"type": "hexstr", "value": "0xffff", "bitwidth": 16});
    program["calculations"] = json!([{"name": "calc", "id": 0, "algo": "csum16", "input": [field("h", "a"), field("h", "b")]},
               {"name": "of_none", "id": 1, "algo": "csum16", "input": [ones, field("g", "x"), field("g", "y")]}]);
    let checksum = |id: u32, calculation: &str, verify: bool, update: bool, condition: Value| {
        json!({"name": format!("c{id}"), "id": id, "target": ["h", "c"], "type": "generic",
               "calculation": calculation, "verify": verify, "update": update, "if_cond": condition})
    };
    let small = expr("<", field("h", "a"), hex("0x80"));
    program["checksums"] = json!([
        checksum(0, "calc", true, false, small),
        checksum(1, "calc", false, true, expr("valid", Value::Null, header("h"))),
    ]);
    // The first packet's checksum is correct, the second's wrong; the third's is not verified. All are updated.
    let script = "packet 0 12 34 edcb\nexpect 1 12 00 edff\npacket 0 12 34 edcc\nexpect 1 12 01 edfe\n\
                  packet 0 82 34 0000\nexpect 1 82 00 7dff";
    run(&program, script);
    // Without the absent header, the checksum of 0xffff is 0.
    program["checksums"] = json!([checksum(1, "of_none", false, true, Value::Null)]);
    run(&program, "packet 0 12 34 edcb\nexpect 1 12 00 0000");
}

/// In egress, metadata `m.n` and the instance type are written to the packet.
fn replicating(ingress: Value, lists: Value) -> Value {
    let mut program = doing(ingress);
    program["field_lists"] = lists;
    let show = json!([
        assign(field("h", "a"), field("standard_metadata", "instance_type")),
        assign(field("h", "c"), field("m", "n"))
    ]);
    program["actions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "show", "id": 1, "runtime_data": [], "primitives": show}));
    program["pipelines"][1]["tables"] = json!([keyless("tbl_show", 1, "show", 1)]);
    program["pipelines"][1]["init_table"] = json!("tbl_show");
    program
}

#[test]
fn clones_keep_what_their_field_list_names() {
    let lists = json!([{"id": 1, "name": "l", "elements": [field("m", "n")]}]);
    let clone = |list: &str| {
        json!([
            assign(field("m", "n"), hex("0xabcd")),
            call("clone_ingress_pkt_to_egress", json!([hex("0x7"), hex(list)])),
            to_port(1)
        ])
    };
    let script =
        |kept: &str| format!("mirroring_add 7 3\npacket 0 55 66 7788\nexpect 1 00 66 abcd\nexpect 3 01 66 {kept}");
    run(&replicating(clone("0x1"), lists.clone()), &script("abcd"));
    run(&replicating(clone("0x0"), lists), &script("0000"));
}

#[test]
fn resubmitted_packets_keep_their_field_list() {
    let lists = json!([{"id": 1, "name": "l", "elements": [field("m", "n")]}]);
    let again = expr("==", field("m", "n"), hex("0x3"));
    let program = replicating(
        json!([
            assign(field("m", "n"), expr("+", field("m", "n"), hex("0x1"))),
            to_port(1),
            call("_jump_if_zero", json!([expr("b2d", Value::Null, expr("not", Value::Null, again)), hex("0x4")])),
            call("resubmit", json!([hex("0x1")]))
        ]),
        lists,
    );
    run(&program, "packet 0 55 66 7788\nexpect 1 00 66 0003");
}

#[test]
fn learn_lists_are_sent_with_the_values_at_the_end_of_ingress() {
    let mut program = doing(json!([
        call("generate_digest", json!([hex("0x400"), hex("0x5")])),
        assign(field("h", "b"), hex("0x9")),
        to_port(1)
    ]));
    program["learn_lists"] = json!([{"id": 5, "name": "learned", "elements": [field("h", "a"), field("h", "b")]}]);
    let compiled = accepted(&program);
    let lowered = compiled.program.unwrap();
    let ingress = lowered.stages.iter().find(|s| s.name == "ingress").unwrap();
    let sends = |b: &&ir::Block| b.insts.iter().any(|i| matches!(i.op, ir::Op::Digest { .. }));
    assert_eq!(ingress.blocks.iter().filter(sends).count(), 1);
    assert_eq!(compiled.p4info.unwrap().digests[0].preamble.name, "learned");
    run(&program, "packet 0 01 02 0304\nexpect 1 01 09 0304");
}

#[test]
fn value_sets_decide_where_the_parser_goes() {
    let mut program = doing(json!([to_port(1)]));
    program["parse_vsets"] = json!([{"name": "pvs", "id": 0, "compressed_bitwidth": 8, "max_size": 4}]);
    program["parsers"][0]["parse_states"] = json!([
        {"name": "start", "id": 0, "parser_ops": [extract("h")], "transition_key": [field("h", "a")],
         "transitions": [{"type": "parse_vset", "value": "pvs", "mask": null, "next_state": "more"},
                         default(Value::Null)]},
        {"name": "more", "id": 1, "parser_ops": [extract("g")], "transition_key": [],
         "transitions": [default(Value::Null)]}
    ]);
    program["deparsers"][0]["order"] = json!(["g", "h"]);
    let compiled = accepted(&program);
    assert_eq!(compiled.p4info.unwrap().value_sets[0].size, 4);
    run(&program, "packet 0 01020304 aabb\nexpect 1 01020304 aabb");
}

/// A program whose parser extracts `g` after `h` if the value set `pvs` has the key's value under a mask.
fn masked_set(bits: u32, key: Value, mask: Value) -> Value {
    let mut program = doing(json!([to_port(1)]));
    program["parse_vsets"] = json!([{"name": "pvs", "id": 0, "compressed_bitwidth": bits}]);
    program["parsers"][0]["parse_states"] = json!([
        {"name": "start", "id": 0, "parser_ops": [extract("h")], "transition_key": key,
         "transitions": [{"type": "parse_vset", "value": "pvs", "mask": mask, "next_state": "more"},
                         default(Value::Null)]},
        {"name": "more", "id": 1, "parser_ops": [extract("g")], "transition_key": [],
         "transitions": [default(Value::Null)]}
    ]);
    program["deparsers"][0]["order"] = json!(["g", "h"]);
    program
}

#[test]
fn members_of_value_sets_are_compared_under_the_transitions_mask() {
    // Two members are equal under the mask.
    let one = masked_set(8, json!([field("h", "a")]), json!("0xf0"));
    let script = "value_set pvs 0x12\nvalue_set pvs 0x13\npacket 0 1f020304 aabb\nexpect 1 aabb 1f020304\n\
                  packet 0 22020304 aabb\nexpect 1 22020304 aabb";
    run(&one, script);
    assert_eq!(accepted(&one).p4info.unwrap().value_sets.len(), 1);
    // Each part has a mask of its own, padded to whole bytes.
    let key = json!([field("h", "a"), field("m", "bit")]);
    run(&masked_set(9, key, json!("0x0f00")), "value_set pvs 0x12 1\npacket 0 f2020304 aabb\nexpect 1 aabb f2020304");
    let key = json!([field("h", "a"), field("m", "bit")]);
    run(&masked_set(9, key, json!("0x0f01")), "value_set pvs 0x12 1\npacket 0 f2020304 aabb\nexpect 1 f2020304 aabb");
    // A mask of zeros matches any member, and nothing in an empty set.
    let any = masked_set(8, json!([field("h", "a")]), json!("0x00"));
    run(&any, "packet 0 55020304 aabb\nexpect 1 55020304 aabb");
    run(&any, "value_set pvs 1\npacket 0 55020304 aabb\nexpect 1 aabb 55020304");
}

#[test]
fn a_value_set_has_other_masks_in_other_transitions() {
    let mut program = masked_set(8, json!([field("h", "a")]), json!("0xf0"));
    let states = program["parsers"][0]["parse_states"].as_array_mut().unwrap();
    states[1]["transition_key"] = json!([field("g", "x")]);
    states[1]["transitions"] = json!([
        {"type": "parse_vset", "value": "pvs", "mask": "0x0f", "next_state": "last"},
        {"type": "parse_vset", "value": "pvs", "mask": null, "next_state": null},
        default(json!("drop"))
    ]);
    let next = |name: &str, id: u32, op: Value| {
        json!({"name": name, "id": id, "parser_ops": [op], "transition_key": [],
                                                        "transitions": [default(Value::Null)]})
    };
    let set = |value: &str| json!({"op": "set", "parameters": [field("h", "b"), hex(value)]});
    states.push(next("last", 2, set("0x77")));
    states.push(next("drop", 3, set("0x99")));
    let script = "value_set pvs 0x12\npacket 0 1f020304 a2bb\nexpect 1 a2bb 1f770304\n\
                  packet 0 1f020304 33bb\nexpect 1 33bb 1f990304";
    run(&program, script);
}

#[test]
fn source_locations_are_kept() {
    let mut program = doing(json!([to_port(1)]));
    program["actions"][0]["primitives"][0]["source_info"] =
        json!({"filename": "dir/x.p4", "line": 42, "column": 8, "source_fragment": "sm.egress_spec = 1 ..."});
    let compiled = accepted(&program);
    let program = compiled.program.unwrap();
    let spans = program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts).map(|i| i.span);
    let found: Vec<_> = spans.filter_map(|span| compiled.sources.origin(span)).collect();
    assert!(found.contains(&("dir/x.p4", 42)), "{found:?}");
    let text = compiled.sources.files().find(|f| f.name == "dir/x.p4").unwrap().line(42).unwrap();
    assert_eq!(text, "        sm.egress_spec = 1");
}

#[test]
fn ids_are_derived_from_names() {
    let info = accepted(&with_table(key("exact", "a"), "exact")).p4info.unwrap();
    let again = accepted(&with_table(key("lpm", "b"), "lpm")).p4info.unwrap();
    assert_eq!(info.tables[0].preamble.id, again.tables[0].preamble.id);
    assert_eq!(info.tables[0].preamble.id >> 24, 2);
    assert_eq!(info.tables[0].match_fields[0].name, "hdr.h.a");
    assert_eq!(info.actions.len(), 2);
    // Tables that the compiler generated for a call are absent.
    assert!(accepted(&doing(json!([to_port(1)]))).p4info.unwrap().tables.is_empty());
}

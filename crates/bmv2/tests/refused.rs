//! Incorrect JSON: messages name the location, and nothing panics.

mod common;

use base::Severity;
use bmv2::codes;
use common::*;
use serde_json::{Value, json};

/// Compiles a program that must be refused with a code and a message that starts with a path.
fn refused(program: &Value, code: &str, start: &str) {
    let compiled = compile(program);
    assert!(compiled.program.is_none() && compiled.p4info.is_none(), "accepted: {start}");
    let found = compiled.diagnostics.iter().find(|d| d.severity == Severity::Error).expect("an error");
    assert!(found.code == code && found.message.starts_with(start), "{} {}", found.code, found.message);
}

/// A program with every construct that the reader knows.
fn everything() -> Value {
    let runtime = json!({"type": "runtime_data", "value": 0});
    let mut program = doing(json!([
        assign(field("h", "a"), expr("&", expr("+", runtime.clone(), hex("0x1")), hex("0xff"))),
        call("register_read", json!([field("h", "c"), {"type": "register_array", "value": "r"}, hex("0x1")])),
        call("count", json!([{"type": "counter_array", "value": "cnt"}, field("h", "b")])),
        call("execute_meter", json!([{"type": "meter_array", "value": "mtr"}, hex("0x0"), field("h", "b")])),
        call("push", json!([{"type": "header_stack", "value": "s"}, hex("0x1")])),
        call("assign_header", json!([header("s[0]"), header("s[1]")])),
        call("log_msg", json!([{"type": "string", "value": "{}"}, {"type": "parameters_vector", "value": [runtime]}])),
        call("clone_ingress_pkt_to_egress", json!([hex("0x1"), hex("0x1")])),
        call("generate_digest", json!([hex("0x1"), hex("0x1")])),
        call("_jump_if_zero", json!([field("h", "a"), hex("0xb")])),
        to_port(1)
    ]));
    program["actions"][0]["runtime_data"] = json!([{"name": "v", "bitwidth": 8}]);
    program["actions"].as_array_mut().unwrap().push(json!({"name": "nop", "id": 1, "primitives": []}));
    program["counter_arrays"] = json!([{"name": "cnt", "id": 0, "is_direct": false, "size": 4}]);
    program["meter_arrays"] = json!([
        {"name": "mtr", "id": 0, "is_direct": false, "size": 4, "rate_count": 2, "type": "packets"},
        {"name": "dm", "id": 1, "is_direct": true, "binding": "t", "rate_count": 2, "type": "bytes",
         "result_target": ["h", "b"]}
    ]);
    program["register_arrays"] = json!([{"name": "r", "id": 0, "size": 4, "bitwidth": 16}]);
    program["field_lists"] = json!([{"id": 1, "name": "l", "elements": [field("m", "n")]}]);
    program["learn_lists"] = json!([{"id": 1, "name": "d", "elements": [field("h", "a")]}]);
    program["calculations"] = json!([
        {"name": "calc", "id": 0, "algo": "csum16", "input": [field("h", "a"), {"type": "payload", "value": null}]}
    ]);
    program["checksums"] = json!([
        {"name": "c", "id": 0, "target": ["h", "c"], "type": "generic", "calculation": "calc", "verify": true,
         "update": true, "if_cond": expr("valid", Value::Null, header("h"))}
    ]);
    program["parse_vsets"] = json!([{"name": "pvs", "id": 0, "compressed_bitwidth": 8}]);
    program["parsers"][0]["parse_states"][0] = json!({
        "name": "start", "id": 0,
        "parser_ops": [
            extract("h"),
            {"op": "set", "parameters": [field("m", "n"), {"type": "lookahead", "value": [0, 8]}]},
            {"op": "verify", "parameters": [expr("!=", field("m", "n"), hex("0x7")), hex("0x4")]}
        ],
        "transition_key": [field("h", "a")],
        "transitions": [
            {"type": "hexstr", "value": "0x01", "mask": "0x0f", "next_state": null},
            {"type": "parse_vset", "value": "pvs", "mask": null, "next_state": "start"},
            default(Value::Null)
        ]
    });
    program["header_union_types"] = json!([{"name": "u_t", "id": 0, "headers": [["one", "g_t"], ["two", "s_t"]]}]);
    let headers = program["headers"].as_array_mut().unwrap();
    headers.push(json!({"name": "u.one", "id": 20, "header_type": "g_t", "metadata": false}));
    headers.push(json!({"name": "u.two", "id": 21, "header_type": "s_t", "metadata": false}));
    program["header_unions"] = json!([{"name": "u", "id": 0, "union_type": "u_t", "header_ids": [20, 21]}]);
    program["header_union_stacks"] = json!([{"name": "us", "id": 0, "union_type": "u_t", "header_union_ids": [0]}]);
    let pipeline = &mut program["pipelines"][0];
    pipeline["init_table"] = json!("t");
    pipeline["action_profiles"] = json!([{"name": "ap", "id": 0, "max_size": 4}]);
    pipeline["tables"] = json!([{
        "name": "t", "id": 0, "key": [{"match_type": "ternary", "name": "k", "target": ["h", "a"], "mask": null}],
        "match_type": "ternary", "type": "simple", "max_size": 64, "with_counters": true, "support_timeout": false,
        "direct_meters": "dm", "action_ids": [0, 1], "actions": ["act", "nop"], "base_default_next": null,
        "next_tables": {"act": "cond", "nop": null},
        "default_entry": {"action_id": 1, "action_const": false, "action_data": [], "action_entry_const": false},
        "entries": [{
            "match_key": [{"match_type": "ternary", "key": "0x10", "mask": "0xf0"}],
            "action_entry": {"action_id": 0, "action_data": ["0x1"]}, "priority": 1
        }]
    }]);
    pipeline["conditionals"] = json!([{
        "name": "cond", "id": 0, "expression": expr("d2b", Value::Null, field("h", "$valid$")),
        "true_next": "direct", "false_next": null
    }]);
    pipeline["action_calls"] = json!([{"name": "direct", "id": 0, "action_id": 1, "next_node": null}]);
    program
}

#[test]
fn the_program_with_everything_is_accepted() {
    accepted(&everything());
}

#[test]
fn messages_contain_the_json_path() {
    let cases: [(&str, Value, &str); 28] = [
        ("/__meta__/version/1", json!(99), codes::OTHER_FORMAT),
        ("/__meta__/version", json!([3, 0]), codes::OTHER_FORMAT),
        ("/headers/1/header_type", json!("none"), codes::UNKNOWN),
        ("/headers/2/id", json!(1), codes::TWICE),
        ("/header_types/1/fields/0/1", json!(-1), codes::RANGE),
        ("/header_types/1/fields/0/1", json!(1.5), codes::RANGE),
        ("/header_types/2/fields/1/1", json!(70000), codes::RANGE),
        ("/parsers/0/parse_states/0/parser_ops/0/op", json!("swallow"), codes::UNSUPPORTED),
        ("/parsers/0/parse_states/0/transitions/0/next_state", json!("gone"), codes::UNKNOWN),
        ("/parsers/0/parse_states/0/transitions/0/value", json!("0x0001"), codes::RANGE),
        ("/actions/0/primitives/1/op", json!("teleport"), codes::UNSUPPORTED),
        ("/actions/0/primitives/1/parameters/0/value/1", json!("d"), codes::UNKNOWN),
        ("/actions/0/primitives/0/parameters/1/value/op", json!("**"), codes::UNSUPPORTED),
        ("/actions/0/primitives/9/parameters/1/value", json!("0x63"), codes::RANGE),
        ("/calculations/0/algo", json!("sha1"), codes::UNSUPPORTED),
        ("/calculations/0/algo", json!("round_robin"), codes::UNSUPPORTED),
        ("/pipelines/0/tables/0/key/0/target", json!(["h", "z"]), codes::UNKNOWN),
        ("/pipelines/0/tables/0/key/0/target", json!(7), codes::SHAPE),
        ("/pipelines/0/tables/0/match_type", json!("regex"), codes::UNSUPPORTED),
        ("/pipelines/0/tables/0/match_type", json!("lpm"), codes::CONTRADICTION),
        ("/pipelines/0/tables/0/action_ids/1", json!(77), codes::UNKNOWN),
        ("/pipelines/0/tables/0/actions/0", json!("nop"), codes::CONTRADICTION),
        ("/pipelines/0/tables/0/actions", json!(["act"]), codes::CONTRADICTION),
        ("/header_stacks/0/header_ids/1", json!(3), codes::TWICE),
        ("/pipelines/0/tables/0/entries/0/match_key/0/key", json!("0x12345"), codes::RANGE),
        ("/pipelines/0/tables/0/default_entry/action_data", json!(["0x1"]), codes::CONTRADICTION),
        ("/pipelines/0/conditionals/0/true_next", json!("nowhere"), codes::UNKNOWN),
        ("/learn_lists/0/elements/0/type", json!("payload"), codes::UNSUPPORTED),
    ];
    for (pointer, value, code) in cases {
        let mut program = everything();
        *program.pointer_mut(pointer).expect(pointer) = value;
        // The path has all steps up to the one where reading finds the error.
        let steps: Vec<&str> = pointer.split('/').skip(1).collect();
        let mut path = String::new();
        for step in steps.iter().take(3) {
            match step.parse::<usize>() {
                Ok(index) => path += &format!("[{index}]"),
                Err(_) if path.is_empty() => path += step,
                Err(_) => path += &format!(".{step}"),
            }
        }
        if pointer.starts_with("/__meta__") {
            path = "__meta__.version".into();
        }
        refused(&program, code, &path);
    }
}

#[test]
fn fields_and_tables_that_contradict_one_another_are_refused() {
    let mut program = everything();
    program["header_types"][0]["fields"][1][1] = json!(7);
    program["header_types"][0]["fields"][9][1] = json!(7);
    refused(&program, codes::CONTRADICTION, "headers: `standard_metadata.egress_spec` has 7 bits");
    let mut program = everything();
    program["pipelines"][0]["tables"][0]["action_profile"] = json!("ap");
    refused(&program, codes::CONTRADICTION, "pipelines[0].tables[0].action_profile: a table of type `simple`");
}

#[test]
fn whole_paths() {
    let mut program = everything();
    program["pipelines"][0]["tables"][0]["key"][0]["target"] = json!(["h", "z"]);
    refused(&program, codes::UNKNOWN, "pipelines[0].tables[0].key[0].target[1]: header type `h_t` has no field `z`");
    let mut program = everything();
    program.as_object_mut().unwrap().remove("headers");
    refused(&program, codes::SHAPE, "`headers` is missing");
}

#[test]
fn syntax_errors_show_their_location() {
    let mut program = everything();
    program["calculations"][0]["algo"] = json!("sha1");
    let compiled = compile(&program);
    let shown = compiled.diagnostics[0].render(&compiled.sources, false);
    assert!(shown.contains("test.json:") && shown.contains("\"algo\": \"sha1\""), "{shown}");
}

#[test]
fn cyclic_control_flow_is_refused() {
    let mut program = everything();
    program["pipelines"][0]["action_calls"][0]["next_node"] = json!("t");
    refused(&program, codes::CYCLE, "pipelines[0].");
    let mut program = everything();
    program["pipelines"][0]["conditionals"][0]["true_next"] = json!("cond");
    refused(&program, codes::CYCLE, "pipelines[0].conditionals[0]: the control flow has a cycle through `cond`");
}

#[test]
fn other_targets_and_externs_are_refused_by_name() {
    let mut program = everything();
    program["pipelines"][0]["name"] = json!("ingress_pipe");
    program["pipelines"][1]["name"] = json!("egress_pipe");
    refused(&program, codes::OTHER_FORMAT, "pipelines[0]: `ingress_pipe` where simple_switch has `ingress`");
    let mut program = everything();
    program["extern_instances"] = json!([{"name": "x", "id": 0, "type": "Cipher", "attribute_values": []}]);
    refused(&program, codes::UNSUPPORTED, "extern_instances[0].type: `x` is an instance of extern `Cipher`");
    for (name, target) in [("psa_ingress_input_metadata", "psa_switch"), ("pna_main_input_metadata", "pna_nic")] {
        let mut program = base();
        program["headers"][0]["name"] = json!(name);
        program["field_aliases"] = json!([]);
        let message =
            "headers: there is no field `standard_metadata.ingress_port`, which simple_switch needs: the JSON is for ";
        refused(&program, codes::OTHER_FORMAT, &format!("{message}{target}"));
    }
    let mut program = everything();
    program["headers"][0]["name"] = json!("other_metadata");
    let compiled = compile(&program);
    assert!(compiled.program.is_none());
}

#[test]
fn cut_off_texts_are_refused() {
    let text = serde_json::to_string_pretty(&everything()).unwrap();
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)).step_by(7) {
        let compiled = bmv2::compile(&text[..end], "cut.json", "cut");
        assert!(compiled.program.is_none(), "{end}");
        assert_eq!(compiled.diagnostics[0].code, codes::NO_JSON);
    }
}

/// The JSON pointers of all values.
fn pointers(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            for (i, inner) in list.iter().enumerate() {
                pointers(inner, format!("{path}/{i}"), found);
            }
        }
        Value::Object(map) => {
            for (key, inner) in map {
                pointers(inner, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
    if !path.is_empty() {
        found.push(path);
    }
}

/// Whether a message begins with the path of a value, or is about the whole program.
fn has_path(program: &Value, message: &str) -> bool {
    // The whole program's path is empty.
    if program.as_object().is_some() && message.starts_with('`') && message.ends_with("` is missing") {
        return true;
    }
    let Some((path, _)) = message.split_once(": ") else { return false };
    let mut value = program;
    for step in path.replace('[', ".[").split('.').filter(|step| !step.is_empty()) {
        let index = step.strip_prefix('[').and_then(|step| step.strip_suffix(']'));
        let inner = match index.map(str::parse::<usize>) {
            Some(index) => value.get(index.unwrap_or(usize::MAX)),
            None => value.get(step),
        };
        match inner {
            Some(inner) => value = inner,
            None => return false,
        }
    }
    true
}

#[test]
fn mutated_json_is_accepted_or_refused_without_panic() {
    let program = everything();
    let mut all = Vec::new();
    pointers(&program, String::new(), &mut all);
    let wrong = [
        Value::Null,
        json!(true),
        json!(0),
        json!(4294967295u32),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("h"),
        json!("0xffffffffffffffffffffffff"),
        json!([]),
        json!(["h", "a"]),
        json!({}),
        expr("-", Value::Null, field("h", "a")),
    ];
    let (mut accepted, mut refused) = (0, 0);
    let mut check = |changed: &Value| {
        let compiled = compile(changed);
        match compiled.program {
            // The program has passed the verifier; otherwise there would be a message.
            Some(_) => accepted += 1,
            None => {
                let first = compiled.diagnostics.iter().find(|d| d.severity == Severity::Error).expect("a message");
                assert!(has_path(changed, &first.message), "{}", first.message);
                refused += 1;
            }
        }
    };
    for pointer in &all {
        for value in &wrong {
            let mut changed = program.clone();
            *changed.pointer_mut(pointer).unwrap() = value.clone();
            check(&changed);
        }
        let (outer, last) = pointer.rsplit_once('/').unwrap();
        let mut changed = program.clone();
        match changed.pointer_mut(outer).unwrap() {
            Value::Object(map) => _ = map.remove(last),
            Value::Array(list) => _ = list.remove(last.parse().unwrap()),
            _ => continue,
        }
        check(&changed);
    }
    assert!(accepted > 100 && refused > 1000, "{accepted} accepted, {refused} refused");
}

#[test]
fn objects_with_the_id_of_another_are_refused() {
    let program = everything();
    let mut all = Vec::new();
    pointers(&program, String::new(), &mut all);
    let mut lists = 0;
    for pointer in &all {
        let Some(Value::Array(list)) = program.pointer(pointer) else { continue };
        let Some(first) = list.first().filter(|first| first.get("id").is_some()) else { continue };
        lists += 1;
        let mut another = first.clone();
        another["name"] = json!("another");
        let mut changed = program.clone();
        changed.pointer_mut(pointer).unwrap().as_array_mut().unwrap().push(another);
        let mut path = String::new();
        for step in pointer.split('/').skip(1) {
            path += &match step.parse::<usize>() {
                Ok(index) => format!("[{index}]"),
                Err(_) if path.is_empty() => step.to_string(),
                Err(_) => format!(".{step}"),
            };
        }
        refused(&changed, codes::TWICE, &format!("{path}[{}].id: there is another", list.len()));
    }
    assert_eq!(lists, 23);
}

#[test]
fn a_second_parser_or_pipeline_of_one_name_is_refused() {
    for (list, what) in
        [("parsers", "parser `parser`"), ("deparsers", "deparser `deparser`"), ("pipelines", "pipeline `ingress`")]
    {
        let mut program = everything();
        let objects = program[list].as_array_mut().unwrap();
        let mut another = objects[0].clone();
        another["id"] = json!(7);
        objects.push(another);
        let at = objects.len() - 1;
        refused(&program, codes::TWICE, &format!("{list}[{at}]: there is another {what}"));
    }
}

#[test]
fn deep_nesting_is_bounded() {
    let nested = |depth: usize| {
        let mut text = r#"{"type": "field", "value": ["h", "a"]}"#.to_string();
        for _ in 0..depth {
            text = format!(
                r#"{{"type": "expression", "value": {{"op": "+", "left": {text}, "right": {{"type": "hexstr", "value": "0x1"}}}}}}"#
            );
        }
        let program = doing(json!([assign(field("h", "a"), json!("HERE")), to_port(1)]));
        serde_json::to_string(&program).unwrap().replace("\"HERE\"", &text)
    };
    // With a stack as large as the compiler's.
    let run = move || {
        let deep = bmv2::compile(&nested(900), "deep.json", "deep");
        assert!(deep.program.is_some(), "{:?}", deep.diagnostics.first().map(|d| &d.message));
        let deepest = bmv2::compile(&nested(4000), "deep.json", "deep");
        assert!(deepest.program.is_some(), "{:?}", deepest.diagnostics.first().map(|d| &d.message));
        let deeper = bmv2::compile(&nested(5000), "deep.json", "deep");
        assert_eq!(deeper.diagnostics[0].code, codes::TOO_LARGE);
    };
    std::thread::Builder::new().stack_size(32 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn large_programs_are_refused() {
    let mut calls: Vec<Value> = (0..20_000).map(|_| assign(field("h", "a"), field("h", "b"))).collect();
    calls.push(to_port(1));
    let mut program = doing(json!(calls));
    let tables: Vec<Value> = (0..40)
        .map(|i| {
            let mut table = keyless(&format!("tbl_{i}"), i, "act", 0);
            table["next_tables"] = if i < 39 { json!({"act": format!("tbl_{}", i + 1)}) } else { json!({"act": null}) };
            table
        })
        .collect();
    program["pipelines"][0]["tables"] = json!(tables);
    program["pipelines"][0]["init_table"] = json!("tbl_0");
    refused(&program, codes::TOO_LARGE, "the program has more than");
}

#[test]
fn values_of_too_many_bits_are_refused() {
    let expression = |op: &str, left: Value, right: Value| json!({"type": "expression", "value": {"op": op, "left": left, "right": right}});
    let number = |text: &str| json!({"type": "hexstr", "value": text});
    let wide = expression("<<", field("h", "a"), number("0x88b8"));
    for op in ["*", "+", "-"] {
        // Each factor is within the limit, but the result is far above the widest value.
        let all = (0..40).fold(wide.clone(), |all, _| expression("*", all, wide.clone()));
        let all = expression(op, all.clone(), all);
        let program = doing(json!([assign(field("h", "a"), expression(">>", all, number("0x1"))), to_port(1)]));
        refused(&program, codes::RANGE, "a value of 700");
    }
}

//! Programs in bmv2's JSON: the narration of parts that programs from source lack or do not name.

use super::*;
use serde_json::{Value, json};

/// Returns a program with a header `h` (`a`, `b` and `c`), a stack `s` of two, a register `r` and a counter `c` of four
/// cells each, and a table `t` with the default action `nop`, which drops.
fn small() -> Value {
    serde_json::from_str(include_str!("../../../../../../difftest/src/fuzz/small.json")).unwrap()
}

fn bench_of(json: &Value) -> Bench {
    let text = json.to_string();
    let compiled = frontend::compile(Input::Text { name: "small.json", text: &text }, &options(), Until::Ir).unwrap();
    let program = Arc::new(compiled.optimised.expect("the program is right"));
    let pipeline = Arc::new(datapath::load(program, EngineKind::Machine, 1).expect("it runs"));
    let filter = PacketFilter::compile("").unwrap();
    let compiler = Compiler::in_process();
    let tracer =
        Tracer::new((&*compiler, &options()), Arc::clone(&pipeline), ("small.json", text.as_bytes()), "", filter, 17);
    let tracer = tracer.expect("it can be traced");
    let narrator = Narrator::new(tracer.program().0, Numbers::new(Some(json), tracer.program().0), 511);
    Bench { pipeline, tracer, narrator, mirrored: None }
}

fn field(header: &str, name: &str) -> Value {
    json!({ "type": "field", "value": [header, name] })
}

fn hex(value: &str) -> Value {
    json!({ "type": "hexstr", "value": value })
}

/// Returns a primitive with its source position.
fn call(op: &str, parameters: Value, line: u32, text: &str) -> Value {
    let source = json!({ "filename": "small.p4", "line": line, "column": 8, "source_fragment": text });
    json!({ "op": op, "parameters": parameters, "source_info": source })
}

/// Returns the small program with these primitives in a hidden table `tbl_act` before `t`.
fn doing(primitives: Value) -> Value {
    let mut json = small();
    let action = json!({ "name": "act", "id": 2, "runtime_data": [], "primitives": primitives });
    json["actions"].as_array_mut().unwrap().push(action);
    let ingress = &mut json["pipelines"][0];
    ingress["tables"].as_array_mut().unwrap().push(json!({
        "name": "tbl_act", "id": 9, "key": [], "match_type": "exact", "type": "simple", "max_size": 1024,
        "with_counters": false, "support_timeout": false, "direct_meters": null,
        "action_ids": [2], "actions": ["act"], "base_default_next": "t", "next_tables": { "act": "t" },
        "default_entry": { "action_id": 2, "action_const": true, "action_data": [], "action_entry_const": true },
    }));
    ingress["init_table"] = "tbl_act".into();
    json
}

#[test]
fn programs_in_json() {
    let mut json = small();
    let ingress = &mut json["pipelines"][0];
    ingress["conditionals"][0]["true_next"] = "t".into();
    ingress["conditionals"][0]["id"] = 7.into();
    ingress["conditionals"][0]["source_info"] = serde_json::json!({
        "filename": "small.p4", "line": 12, "column": 8, "source_fragment": "hdr.h.isValid()",
    });
    ingress["tables"][0]["next_tables"] = serde_json::json!({ "set": null, "nop": null });
    ingress["init_table"] = "cond".into();
    let mut bench = bench_of(&json);
    bench.check(
        &[1, 2, 0xfe, 0xfd, 5, 6, 7, 8],
        &[
            "D Extracting header 'h'",
            "D Parser state 'start': key is 01",
            "T Bytes parsed: 4",
            "D Parser 'parser' entering state 'more'",
            "D Extracting to header stack 0, next header is 2",
            "D Parser state 'more' has no switch, going to default next state",
            "T Bytes parsed: 8",
            "D Checksum 'ck': computed 0xfefd - actual 0xfefd",
            "D Verified checksum 'ck': passed",
            "D Parser 'parser': end",
            "D Pipeline 'ingress': start",
            "T small.p4(12) Condition \"hdr.h.isValid()\" (cond) is true",
            "D Looking up key:\n* k                   : 01\n",
            "D Table 't': miss",
            "D Action entry is nop - ",
            "D Dropping packet at the end of ingress",
        ],
    );
    let lines = bench.lines(&[1, 2, 0xfe, 0xfd, 5, 6, 7, 8]);
    assert!(!lines.iter().any(|line| line.contains('$') || line.contains("Parser set")), "{}", lines.join("\n"));
    assert_eq!(lines.iter().filter(|line| line.contains("Condition")).count(), 1);
    let events = bench.story(&[1, 2, 0xfe, 0xfd, 5, 6, 7, 8]).events;
    assert!(events.iter().any(|e| e.kind == EventKind::ConditionEval && e.numbers == [7, 1]));
    assert!(events.iter().any(|e| e.kind == EventKind::ParserExtract && e.numbers == [2]));
    // The checksum of an invalid header is skipped.
    bench.check(
        &[1],
        &[
            "E Exception while parsing: PacketTooShort",
            "T Skipping checksum 'ck' verification because target field invalid",
        ],
    );
}

#[test]
fn what_parsers_set() {
    let mut json = small();
    let set = |name: &str, value: Value| json!({ "op": "set", "parameters": [field("h", name), value] });
    let sum = json!({ "type": "expression", "value": {
        "type": "expression", "value": { "op": "+", "left": field("h", "a"), "right": hex("0x1") },
    }});
    let ops = [
        set("a", json!({ "type": "lookahead", "value": [8, 8] })),
        set("a", hex("0x1")),
        set("b", field("h", "a")),
        set("b", sum),
    ];
    json["parsers"][0]["parse_states"][0]["parser_ops"].as_array_mut().unwrap().extend(ops);
    let next = json["parsers"][0]["parse_states"][1]["parser_ops"].as_array_mut().unwrap();
    next.push(set("b", json!({ "type": "lookahead", "value": [0, 8] })));
    bench_of(&json).check(
        &[2, 2, 0xfe, 0xfd, 5, 6, 7, 8, 9],
        &[
            "D Extracting header 'h'",
            "D Parser set: setting field 'h.a' from lookahead (8, 8), new value is 6",
            "D Parser set: setting field 'h.a' to 1",
            "D Parser set: setting field 'h.b' from field 'h.a' (1)",
            "D Parser set: setting field 'h.b' from expression, new value is 2",
            "D Parser 'parser' entering state 'more'",
            "D Parser set: setting field 'h.b' from lookahead (0, 8), new value is 9",
        ],
    );
}

#[test]
fn tables_of_statements() {
    let one = call("assign", json!([field("h", "b"), hex("0x7")]), 20, "hdr.h.b = 7");
    let mut same = one.clone();
    same.as_object_mut().unwrap().remove("source_info");
    let json = doing(json!([one, same, call("no_op", json!([]), 21, "nothing()")]));
    let mut bench = bench_of(&json);
    let lines = bench.lines(&[2, 2, 0, 0]);
    let start = lines.iter().position(|line| line == "D Pipeline 'ingress': start").unwrap();
    let expected = [
        "T Applying table 'tbl_act'",
        "D Looking up key:\n",
        "D Table 'tbl_act': miss",
        "D Action entry is act - ",
        "T Action act",
        "T small.p4(20) Primitive hdr.h.b = 7",
        // Also primitives that change nothing or have no position.
        "T Primitive (no source info)",
        "T small.p4(21) Primitive nothing()",
        "T Applying table 't'",
        "D Looking up key:\n* k                   : 02\n",
        "D Table 't': miss",
        "D Action entry is nop - ",
        "T Action nop",
        "T Primitive (no source info)",
        "D Pipeline 'ingress': end",
    ];
    assert_eq!(lines[start + 1..start + 1 + expected.len()], expected, "{}", lines.join("\n"));
    let events = bench.story(&[2, 2, 0, 0]).events;
    let told: Vec<_> = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::TableMiss | EventKind::ActionExecute))
        .map(|e| (e.kind, e.numbers[0]))
        .collect();
    let (miss, runs) = (EventKind::TableMiss, EventKind::ActionExecute);
    assert_eq!(told, [(miss, 9), (runs, 2), (miss, 0), (runs, 1)]);
}

#[test]
fn primitives_of_parsers() {
    let mut json = small();
    let assign = call("assign", json!([field("h", "b"), hex("0x7")]), 50, "hdr.h.b = 7");
    let ops = json["parsers"][0]["parse_states"][0]["parser_ops"].as_array_mut().unwrap();
    ops.insert(1, json!({ "op": "primitive", "parameters": [assign] }));
    bench_of(&json).check(
        &[2, 2, 0, 0],
        &[
            "D Extracting header 'h'",
            "D Executing method assign",
            "T Action assign",
            "T small.p4(50) Primitive hdr.h.b = 7",
            "D Parser state 'start': key is 02",
        ],
    );
}

#[test]
fn actions_without_primitives() {
    let mut json = small();
    json["actions"][1]["primitives"] = json!([]);
    bench_of(&json).check(
        &[2, 2, 0, 0],
        &["D Table 't': miss", "D Action entry is nop - ", "T Action nop", "D Pipeline 'ingress': end"],
    );
}

#[test]
fn exits() {
    let exit = || call("exit", json!([]), 30, "exit");
    let mut json = doing(json!([exit()]));
    let marked = "D Packet is marked for exit, interrupting pipeline";
    let mut bench = bench_of(&json);
    bench.check(&[2, 2, 0, 0], &["T small.p4(30) Primitive exit", marked, "D Pipeline 'ingress': end"]);
    assert!(!bench.lines(&[2, 2, 0, 0]).iter().any(|line| line.contains("Applying table 't'")));
    // Nothing follows that `exit` could interrupt.
    let ingress = &mut json["pipelines"][0];
    ingress["tables"][1]["next_tables"] = json!({ "act": null });
    ingress["tables"][1]["base_default_next"] = Value::Null;
    let lines = bench_of(&json).lines(&[2, 2, 0, 0]);
    assert!(lines.iter().any(|line| line.ends_with("Primitive exit")) && !lines.iter().any(|line| line == marked));
    // On one path only: if `b` is not 0.
    let zero = call("_jump_if_zero", json!([field("h", "b"), hex("0x2")]), 29, "if (hdr.h.b != 0)");
    let mut bench = bench_of(&doing(json!([zero, exit()])));
    bench
        .check(&[2, 2, 0, 0], &["T small.p4(29) Primitive if (hdr.h.b != 0)", "T small.p4(30) Primitive exit", marked]);
    bench.check(&[2, 0, 0, 0], &["T small.p4(29) Primitive if (hdr.h.b != 0)", "T Applying table 't'"]);
    assert!(!bench.lines(&[2, 0, 0, 0]).iter().any(|line| line == marked));
}

#[test]
fn accesses_out_of_range() {
    let register = json!({ "type": "register_array", "value": "r" });
    let element = |index: Value| json!({ "op": "dereference_header_stack", "left": { "type": "header_stack", "value": "s" }, "right": index });
    let of = |index: Value, at: u32| json!({ "type": "expression", "value": { "op": "access_field", "left": { "type": "expression", "value": element(index) }, "right": at } });
    let by_a = || json!({ "type": "field", "value": ["h", "a"] });
    let json = doing(json!([
        call("register_read", json!([field("h", "c"), register, by_a()]), 40, "r.read(h.c, a)"),
        call("register_write", json!([register, by_a(), hex("0x1")]), 41, "r.write(a, 1)"),
        call("count", json!([{ "type": "counter_array", "value": "c" }, by_a()]), 42, "c.count(a)"),
        call("assign", json!([field("h", "b"), of(by_a(), 0)]), 43, "h.b = s[a].a"),
        call("assign", json!([of(by_a(), 1), hex("0x5")]), 44, "s[a].b = 5"),
    ]));
    let mut bench = bench_of(&json);
    let stack = "E Attempted to access header stack 's' with size 2 at an out-of-bounds index.  It reads as zeros, and is not written.";
    bench.check(
        &[9, 2, 0, 0],
        &[
            "T small.p4(40) Primitive r.read(h.c, a)",
            "E Attempted to read register 'r' with size 4 at out-of-bounds index 9.  Dest field was not updated.",
            "E Attempted to write register 'r' with size 4 at out-of-bounds index 9.  No register array elements were updated.",
            "E Attempted to update counter 'c' with size 4 at out-of-bounds index 9.  No counters were updated.",
            "T small.p4(43) Primitive h.b = s[a].a",
            stack,
            "T small.p4(44) Primitive s[a].b = 5",
            stack,
        ],
    );
    assert!(!bench.lines(&[0, 2, 0, 0]).iter().any(|line| line.contains("Attempted")));
}

//! ebpf_model's glue and externs as IR text, and errors in programs. `UPDATE_EXPECT=1` blesses.

mod common;

use common::{entries_text, lower, stage_text, try_lower, unloadable};
use expect_test::expect;

/// A filter with these declarations and this body.
fn filter(top: &str, locals: &str, body: &str) -> String {
    format!(
        "{top}
#include <ebpf_model.p4>
header A {{ bit<8> x; bit<8> y; }}
struct H {{ A a; }}
parser P(packet_in b, out H h) {{ state start {{ b.extract(h.a); transition accept; }} }}
control F(inout H h, out bool pass) {{ {locals} apply {{ {body} }} }}
ebpfFilter(P(), F()) main;\n"
    )
}

#[test]
fn an_accepted_packet_is_not_deparsed() {
    let program = lower(&filter("", "", "pass = h.a.x == 1;"));
    expect![[r#"
        entry ingress (P, parsed, F, verdict)
    "#]]
    .assert_eq(&entries_text(&program));
    assert!(program.stages.iter().all(|s| s.kind != ir::StageKind::Deparser));
    expect![[r#"
        stage control parsed {
        b0:
          branch $accepted, b1, b2
        b1:
          next
        b2:
          drop "parser reject"
        }
    "#]]
    .assert_eq(&stage_text(&program, "parsed"));
    expect![[r#"
        stage control verdict {
        b0:
          branch pass, b1, b2
        b1:
          send $input_port
        b2:
          drop "filter drop"
        }
    "#]]
    .assert_eq(&stage_text(&program, "verdict"));
}

#[test]
fn the_program_says_by_which_port_packets_pass() {
    let program = lower(&filter("#define PASS_PORT port ^ 1", "", "pass = true;"));
    let verdict = stage_text(&program, "verdict");
    assert!(verdict.contains("xor $input_port, 32w0x1"), "{verdict}");
}

#[test]
fn a_map_gives_its_table_the_size() {
    let table = "action a() {} table t { key = { h.a.x: exact; } actions = { a; NoAction; } default_action = NoAction;
        implementation = hash_table(77); }";
    let program = lower(&filter("", table, "t.apply(); pass = true;"));
    assert_eq!(program.tables[0].size, 77);
}

#[test]
fn counters_are_cells_up_to_the_last_index() {
    let program = lower(&filter("", "CounterArray(9, true) c;", "c.increment(3); c.add((bit<32>) h.a.x, 5);"));
    let ir::ExternKind::Counter { size, unit, .. } = program.externs[0].kind else { panic!("{:?}", program.externs) };
    assert_eq!((size, unit), (10, ir::CounterUnit::Both));
    let filter = stage_text(&program, "F");
    assert!(filter.contains("count F.c, 32w0x3 bytes 32w0x1"), "{filter}");
}

#[test]
fn a_map_of_no_size_and_other_properties() {
    let table = |property: &str| {
        format!(
            "table t {{ key = {{ h.a.x: exact; }} actions = {{ NoAction; }} default_action = NoAction; {property} }}"
        )
    };
    let errors = try_lower(&filter("", &table("implementation = hash_table(0);"), "t.apply();")).unwrap_err();
    expect![[r#"
        test.p4:6: E0607 the value of `implementation` has no size that a table can have
    "#]]
    .assert_eq(&errors);
}

#[test]
fn code_that_is_not_there_is_told_by_name() {
    let top = "#include <core.p4>\nextern bool looks_good(in bit<8> x); extern bool verify_ipv4_checksum(in bit<8> x);";
    let body = "pass = looks_good(h.a.x) && verify_ipv4_checksum(h.a.y);";
    expect![[r#"
        test.p4:7: extern function `looks_good` has no implementation in this switch
        test.p4:7: extern function `verify_ipv4_checksum` has no implementation in this switch
    "#]]
    .assert_eq(&unloadable(&filter(top, "", body)));
}

#[test]
fn a_package_of_the_programs_own_is_no_filter() {
    let text = "#include <core.p4>
parser P(packet_in b); control C(); package ebpfFilter(P p, C c);
parser p(packet_in b) { state start { transition accept; } } control c() { apply {} }
ebpfFilter(p(), c()) main;";
    let reasons = unloadable(text);
    assert!(reasons.contains("the package `ebpfFilter` is of no architecture"), "{reasons}");
}

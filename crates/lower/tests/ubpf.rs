//! ubpf_model's glue and externs as IR text, and errors in programs. `UPDATE_EXPECT=1` blesses.

mod common;

use common::{entries_text, lower, stage_text, try_lower};
use expect_test::expect;

/// A program with these declarations and statements in the pipeline, and these statements in a state and the deparser.
fn program(locals: &str, body: &str, state: &str, deparser: &str) -> String {
    format!(
        "#include <ubpf_model.p4>
header A {{ bit<8> x; bit<8> y; }}
struct H {{ A a; }}
struct M {{ bit<32> sum; }}
parser P(packet_in b, out H h, inout M m, inout standard_metadata s) {{
    state start {{ b.extract(h.a); {state} transition accept; }}
}}
control C(inout H h, inout M m, inout standard_metadata s) {{ {locals} apply {{ {body} }} }}
control D(packet_out b, in H h) {{ apply {{ {deparser} b.emit(h.a); }} }}
ubpf(P(), C(), D()) main;\n"
    )
}

fn piped(body: &str) -> String {
    program("", body, "", "")
}

#[test]
fn what_a_program_does_not_use_has_no_stage() {
    let plain = lower(&piped(""));
    expect![[r#"
        entry ingress (P, parsed, C, verdict, D, end)
    "#]]
    .assert_eq(&entries_text(&plain));
    expect![[r#"
        stage control verdict {
        b0:
          $to = mov std.input_port
          next
        }
    "#]]
    .assert_eq(&stage_text(&plain, "verdict"));
    let all = lower(&piped("s.output_action = ubpf_action.REDIRECT; s.clone = true; truncate(9); mark_to_drop();"));
    expect![[r#"
        entry ingress (start, P, parsed, C, clone, verdict, cut, D, end)
        entry egress (cut, D, clone_end)
        entry deparse (verdict, cut, D, end)
    "#]]
    .assert_eq(&entries_text(&all));
}

#[test]
fn marks_and_cuts_belong_into_the_pipeline() {
    let errors = try_lower(&program("", "", "mark_to_drop();", "truncate(5);")).unwrap_err();
    expect![[r#"
        test.p4:6: E0604 ubpf_model has `mark_to_drop` in the pipeline control only
        test.p4:9: E0604 ubpf_model has `truncate` in the pipeline control only
    "#]]
    .assert_eq(&errors);
}

#[test]
fn registers_of_what_has_no_bits() {
    let text = program("Register<E, bit<8>>(2) r;", "", "", "").replace("struct M", "struct E {}\nstruct M");
    let errors = try_lower(&text).unwrap_err();
    assert!(errors.contains("register `C.r` cannot hold values of type `E`"), "{errors}");
}

#[test]
fn the_hash_takes_no_varbit() {
    let text = "#include <ubpf_model.p4>
header A { varbit<32> v; }
struct H { A a; }
struct M { bit<32> sum; }
parser P(packet_in b, out H h, inout M m, inout standard_metadata s) {
    state start { b.extract(h.a, 8); transition accept; }
}
control C(inout H h, inout M m, inout standard_metadata s) {
    apply { hash(m.sum, HashAlgorithm.lookup3, { h.a.v }); }
}
control D(packet_out b, in H h) { apply {} }
ubpf(P(), C(), D()) main;";
    expect![[r#"
        test.p4:9: E0605 `hash` of ubpf_model takes data of a fixed number of bits, and this has a varbit field
    "#]]
    .assert_eq(&try_lower(text).unwrap_err());
}

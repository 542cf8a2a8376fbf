//! openflow_model: stages, match fields and their errors; the patches of `examples/openflow`. `UPDATE_EXPECT=1`
//! blesses.

mod bridge;
mod common;

use bridge::{Bridge, OPENFLOW, bytes, ethernet, frame};
use common::{entries_text, lower, stage_text, try_lower};
use expect_test::{Expect, expect};

/// A program with one header that has the fields `fields`, and a flow struct with the fields `flow`.
fn program(fields: &str, flow: &str) -> String {
    format!(
        "#include <openflow_model.p4>
header A {{ {fields} }}
struct H {{ A a; }}
struct F {{ {flow} }}
parser P(packet_in b, out H h, inout F f, in packet_t s) {{ state start {{ b.extract(h.a); transition accept; }} }}
control C(inout H h, inout F f, inout result_t r) {{
    action set(bit<8> x) {{ if (h.a.isValid()) {{ h.a.x = x; }} r.reparse = 1; }}
    table t {{ actions = {{ set; }} }}
    apply {{ t.apply(); }}
}}
control D(packet_out b, inout H h, in F f, in packet_t s) {{ apply {{ b.emit(h.a); }} }}
OpenFlowBridge(P(), C(), D()) main;\n"
    )
}

#[test]
fn what_was_parsed_is_handed_over_and_header_actions_are_in_no_entry() {
    let program = lower(&program("@oxm(3) bit<8> x; bit<8> y;", "@nxm(1, 0) bit<32> r0; bit<8> own;"));
    expect![[r#"
        entry ingress (P, hand_over)
        entry egress (D, send)
    "#]]
    .assert_eq(&entries_text(&program));
    let stages = ["P", "hand_over", "C", "send"].map(|name| stage_text(&program, name)).concat();
    expect![[r#"
        stage parser P {
        b0:
          jump b1
        b1 start:
          mark state "start"
          %0 = has_bits 32w0x10
          branch %0, b3, b2
        b2 PacketTooShort:
          next
        b3:
          extract h.a
          jump b4
        b4 accept:
          next
        }
        stage control hand_over {
        b0:
          replicate ingress_end
        }
        stage control C {
        b0:
          r.reparse = mov 1w0x0
          r.ttl_exceeded = mov 1w0x0
          mark block "C"
          %1, %2, %3, %4 = apply C.t ()
          switch %2, 32w0x0 -> b1, default -> b2
        b1 set:
          mark action "C.set"
          %5 = param C.t, 0, 0, %4
          branch h.a.$valid, b3, b4
        b2:
          next
        b3:
          h.a.x = mov %5
          jump b4
        b4:
          r.reparse = mov 1w0x1
          jump b2
        }
        stage control send {
        b0:
          send s.egress_port
        }
    "#]]
    .assert_eq(&stages);
    let text = ir::print(&program);
    let kept: Vec<&str> = text.lines().filter(|l| l.starts_with("field_list") || l.starts_with("intrinsic")).collect();
    expect![[r#"
        intrinsic ingress_port = s.in_port
        intrinsic packet_length = s.length
        intrinsic egress_port = s.egress_port
        field_list 0 (h.a.x, h.a.$valid, f.r0, s.in_port)"#]]
    .assert_eq(&kept.join("\n"));
}

/// Compares the lines that declare match fields.
fn check(fields: &str, flow: &str, expect: Expect) {
    let text = ir::print(&lower(&program(fields, flow)));
    let own = |line: &&str| line.starts_with("  field ") && !line.contains("in_port");
    expect.assert_eq(&text.lines().filter(own).map(|l| format!("{}\n", l.trim_start())).collect::<String>());
}

#[test]
fn a_field_has_names_numbers_and_places() {
    check(
        "@oxm(1) @nxm(1, 5) bit<8> x; @oxm(\"low\", 2) @bits(3, 0) @oxm(\"y\", 0xffff, 3, 9) @pad(8) bit<8> y;",
        "@oxm(\"vid\", 4) bit<12> v; @nxm(\"tci\", 0, 4) @parts(\"vid\", 2, \"low\") bit<1> unused;",
        expect![[r#"
            field x (h.a.x 0 8) numbers (32768 1 0, 1 5 0) maskable writable
            field low (h.a.y 0 4) numbers (32768 2 0) maskable writable
            field y ($zeros 0 8, h.a.y 0 8) numbers (65535 3 9) maskable writable
            field vid (f.v 0 12) numbers (32768 4 0) maskable writable
            field tci (f.v 0 12, $zeros 0 2, h.a.y 0 4) numbers (0 4 0) maskable writable
        "#]],
    );
    check(
        "@oxm(1) @present bit<8> x;",
        "@oxm(2) @exact @readonly @metadata bit<7> m;",
        expect![[r#"
        field x (h.a.$valid 0 1, h.a.x 0 8) numbers (32768 1 0) maskable writable
        field m (f.m 0 7) numbers (32768 2 0) metadata
    "#]],
    );
}

#[test]
fn a_field_needs_what_its_prerequisites_need() {
    check(
        "@oxm(1) @prereq(\"b\", 2) bit<8> x;",
        "@oxm(2) @prereq_mask(\"c\", 0xf0, 0x10, 0x20) bit<8> b; @oxm(3) bit<8> c;
        @oxm(4) @prereq(\"c\", 1, 2) bit<8> d; @oxm(5) @prereq(\"d\", 9) @prereq(\"c\", 2, 3) bit<8> e;",
        expect![[r#"
            field x (h.a.x 0 8) numbers (32768 1 0) maskable writable needs (c 240 (16, 32), b 255 (2))
            field b (f.b 0 8) numbers (32768 2 0) maskable writable needs (c 240 (16, 32))
            field c (f.c 0 8) numbers (32768 3 0) maskable writable
            field d (f.d 0 8) numbers (32768 4 0) maskable writable needs (c 255 (1, 2))
            field e (f.e 0 8) numbers (32768 5 0) maskable writable needs (c 255 (2), d 255 (9))
        "#]],
    );
}

#[track_caller]
fn refused(fields: &str, flow: &str, expect: Expect) {
    expect.assert_eq(&try_lower(&program(fields, flow)).expect_err("it is refused"));
}

#[test]
fn fields_that_cannot_be_are_refused_with_their_place() {
    refused(
        "@oxm(1) bit<8> x;",
        "@oxm(1) bit<8> b;",
        expect![[r#"
        test.p4:4: E0622 0x8000:1 is the number of match field `x` already
    "#]],
    );
    refused(
        "@oxm(\"n\", 1) bit<8> x;",
        "@oxm(\"n\", 2) bit<8> b;",
        expect![[r#"
        test.p4:4: E0622 two match fields are named `n`
    "#]],
    );
    refused(
        "@oxm(200) bit<8> x;",
        "",
        expect![[r#"
        test.p4:2: E0622 this is not the number of a match field: `@oxm(N)`, `@oxm(CLASS, N)` or `@oxm(0xffff, N, EXPERIMENTER)`, N at most 127
    "#]],
    );
    refused(
        "@oxm(0xffff, 1) bit<8> x;",
        "",
        expect![[r#"
        test.p4:2: E0622 this is not the number of a match field: `@oxm(N)`, `@oxm(CLASS, N)` or `@oxm(0xffff, N, EXPERIMENTER)`, N at most 127
    "#]],
    );
    refused(
        "@oxm(1) bit<8> x;",
        "@oxm(2) bit<129> b;",
        expect![[r#"
        test.p4:4: E0622 match field `b` has 129 bits; at most 128 are possible
    "#]],
    );
    refused(
        "@oxm(1) @prereq(\"nobody\", 1) bit<8> x;",
        "",
        expect![[r#"
        test.p4:2: E0622 it needs match field `nobody`, which does not exist
    "#]],
    );
    refused(
        "@oxm(1) @prereq(\"b\", 256) bit<8> x;",
        "@oxm(2) bit<8> b;",
        expect![[r#"
        test.p4:2: E0622 match field `b` can have no such value
    "#]],
    );
    refused(
        "@oxm(1) @prereq(\"b\", 1) bit<8> x;",
        "@oxm(2) @prereq(\"x\", 1) bit<8> b;",
        expect![[r#"
        test.p4:2: E0622 match field `x` can never be present: its prerequisites contradict each other
        test.p4:4: E0622 match field `b` can never be present: its prerequisites contradict each other
    "#]],
    );
    refused(
        "@oxm(1) @prereq(\"c\", 1) @prereq(\"b\", 1) bit<8> x;",
        "@oxm(2) @prereq(\"c\", 2) bit<8> b; @oxm(3) bit<8> c;",
        expect![[r#"
            test.p4:2: E0622 match field `x` can never be present: its prerequisites contradict each other
        "#]],
    );
    refused(
        "@oxm(1) @bits(8, 0) bit<8> x;",
        "",
        expect![[r#"
        test.p4:2: E0622 `@bits` does not have these arguments (openflow_model.p4 says which)
    "#]],
    );
    refused(
        "@exact @oxm(1) bit<8> x;",
        "",
        expect![[r#"
        test.p4:2: E0622 `@exact` must follow the `@oxm` or `@nxm` of its match field
    "#]],
    );
    refused(
        "bit<8> x;",
        "@oxm(1) @present bit<8> b;",
        expect![[r#"
        test.p4:4: E0622 `@present` does not have these arguments (openflow_model.p4 says which)
    "#]],
    );
    refused(
        "bit<8> x;",
        "@oxm(1) @parts(\"later\") bit<1> b; @oxm(\"later\", 2) bit<8> c;",
        expect![[r#"
        test.p4:4: E0622 no match field `later` is declared before this one
    "#]],
    );
    refused(
        "bit<8> x;",
        "@oxm(1) varbit<8> v;",
        expect![[r#"
        test.p4:4: E0622 `f.v` cannot be a match field: it is not a number
    "#]],
    );
}

#[test]
fn fields_in_two_places_are_refused() {
    let twice = program("@oxm(1) bit<8> x;", "").replace("struct H { A a; }", "struct H { A a; A second; }");
    expect![[r#"
        test.p4:2: E0622 `h.a` and `h.second` have one type, so its match fields would be in two places
    "#]]
    .assert_eq(&try_lower(&twice).expect_err("it is refused"));
    let stack = program("@oxm(1) bit<8> x;", "")
        .replace("struct H { A a; }", "header B { @oxm(2) bit<8> z; } struct H { A a; B[2] b; }");
    expect![[r#"
        test.p4:3: E0622 `h.b` has several elements, so their match fields would be in several places
    "#]]
    .assert_eq(&try_lower(&stack).expect_err("it is refused"));
}

#[test]
fn tables_are_openflows() {
    let keyed = program("bit<8> x;", "").replace("table t {", "table t { key = { h.a.x: exact; }");
    expect![[r#"
        test.p4:6: E0607 the table of the header actions has no key: flows choose the action
    "#]]
    .assert_eq(&try_lower(&keyed).expect_err("it is refused"));
    let two = program("bit<8> x;", "")
        .replace("table t {", "table u { actions = { set; } } table t {")
        .replace("t.apply();", "t.apply(); u.apply();");
    expect![[r#"
        test.p4:6: E0607 in an `OpenFlowBridge`, OpenFlow provides the tables: only the header actions declare one
    "#]]
    .assert_eq(&try_lower(&two).expect_err("it is refused"));
}

// The patches of examples/openflow.

/// Applies a unified diff. Returns the text, and the number of lines added and removed.
fn patched(text: &str, diff: &str) -> (String, usize) {
    let old: Vec<&str> = text.lines().collect();
    let (mut new, mut at, mut changed) = (Vec::new(), 0, 0);
    for line in diff.lines().skip_while(|l| !l.starts_with("@@")) {
        if let Some(place) = line.strip_prefix("@@ -") {
            let start: usize = place.split([',', ' ']).next().and_then(|n| n.parse().ok()).expect("a line number");
            new.extend(&old[at..start - 1]);
            at = start - 1;
            continue;
        }
        let (kind, rest) = line.split_at(1);
        if kind != "+" {
            assert_eq!(old[at], rest, "line {} is another one", at + 1);
            at += 1;
        }
        if kind != "-" {
            new.push(rest);
        }
        changed += usize::from(kind != " ");
    }
    new.extend(&old[at..]);
    (new.join("\n") + "\n", changed)
}

const STATE: &str = include_str!("../../../examples/openflow/connection-state.diff");
const OAM: &str = include_str!("../../../examples/openflow/tunnel-oam-flag.diff");
const WINDOW: &str = include_str!("../../../examples/openflow/tcp-window.diff");
const OWN: &str = include_str!("../../../examples/openflow/own-protocol.diff");

#[test]
fn the_changes_of_pisces_are_at_most_six_lines_each() {
    for diff in [STATE, OAM, WINDOW] {
        let (text, changed) = patched(OPENFLOW, diff);
        assert!(changed <= 6, "{changed} lines:\n{diff}");
        lower(&text);
    }
}

#[test]
fn connection_state_and_tunnel_flags_are_matched_and_kept() {
    for (diff, names) in [(STATE, &["ct_state", "ct_zone", "ct_mark", "ct_label"][..]), (OAM, &["tun_flags"][..])] {
        for bridge in Bridge::both(&patched(OPENFLOW, diff).0) {
            let mut packet = bridge.parse(&frame("tcp"));
            for name in names {
                assert!(bridge.field(name).is_metadata);
                assert_eq!(bridge.get(&packet, name), 0);
                bridge.set(&mut packet, name, 0x21);
                assert_eq!(bridge.get(&packet, name), 0x21);
            }
            assert_eq!(bridge.send(&packet), frame("tcp"));
        }
    }
}

#[test]
fn the_tcp_window_is_matched() {
    for bridge in Bridge::both(&patched(OPENFLOW, WINDOW).0) {
        let packet = bridge.parse(&frame("tcp"));
        assert!(bridge.has(&packet, "tcp_window") && !bridge.has(&bridge.parse(&frame("udp")), "tcp_window"));
        assert_eq!(bridge.get(&packet, "tcp_window"), 0x0400);
        assert_eq!(bridge.send(&packet), frame("tcp"));
    }
}

#[test]
fn a_protocol_of_ones_own_is_matched_and_written() {
    for bridge in Bridge::both(&patched(OPENFLOW, OWN).0) {
        let sensor = |value: &str| ethernet("8100 0003", 0x88b5, &bytes(&format!("00002a 01 {value} 9999")));
        let mut packet = bridge.parse(&sensor("0000000c"));
        let values = ["sensor_id", "sensor_kind", "sensor_value"].map(|name| bridge.get(&packet, name));
        assert_eq!(values, [42, 1, 12]);
        assert!(bridge.has(&packet, "sensor_value") && !bridge.has(&bridge.parse(&frame("tcp")), "sensor_id"));
        bridge.set(&mut packet, "sensor_value", 13);
        assert_eq!(bridge.send(&packet), sensor("0000000d"));
        assert_eq!(bridge.field("sensor_id").numbers, [(0xffff, 1, 0x0012_3456)]);
    }
}

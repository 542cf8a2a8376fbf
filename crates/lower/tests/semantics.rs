//! Semantics of lowered programs: packets are run through the interpreter.

mod common;

use base::Bits;
use common::{V1, check, run};
use interp::Interp;
use std::sync::Arc;

#[test]
fn writes_to_invalid_headers_are_lost_and_reads_give_zero() {
    check(
        V1 {
            headers: "A a; A n;",
            ingress: "h.n.x = 7; h.a.x = h.n.x; h.n.setValid(); h.a.y = h.n.x; h.n.setInvalid();",
            ..V1::default()
        },
        &[("01 02 03", "0: 00 00 03")],
    );
}

#[test]
fn copies_of_invalid_headers_are_invalid() {
    check(V1 { headers: "A a; A n;", ingress: "h.a = h.n;", ..V1::default() }, &[("01 02 03", "0: 03")]);
}

#[test]
fn a_parser_error_keeps_what_was_extracted() {
    check(
        V1 {
            headers: "A a; A n;",
            states: "state start { b.extract(h.a); b.extract(h.n); transition accept; }",
            ingress: "if (s.parser_error == error.PacketTooShort) { h.a.x = 0xee; }",
            ..V1::default()
        },
        &[("01 02 03", "0: ee 02 03"), ("01 02 03 04", "0: 01 02 03 04")],
    );
}

#[test]
fn verify_and_missing_cases_set_their_errors() {
    check(
        V1 {
            states: "state start { b.extract(h.a); verify(h.a.x != 9, error.HeaderTooShort);
                                   transition select(h.a.y) { 1: accept; 2: reject; } }",
            ingress: "if (s.parser_error == error.HeaderTooShort) { h.a.y = 0xa0; }
                      if (s.parser_error == error.NoMatch) { h.a.y = 0xb0; }
                      if (s.parser_error == error.NoError) { h.a.y = 0xc0; }",
            ..V1::default()
        },
        &[("09 01", "0: 09 a0"), ("01 03", "0: 01 b0"), ("01 01", "0: 01 c0"), ("01 02", "0: 01 c0")],
    );
}

#[test]
fn exit_copies_out_and_ends_ingress_only() {
    check(
        V1 {
            top: "control Inner(inout bit<8> p) { apply { p = p + 1; if (p == 8) { exit; } p = p + 1; } }",
            ingress_locals: "Inner() inner;",
            ingress: "inner.apply(h.a.x); h.a.y = 0xff;",
            egress: "h.a.y = h.a.y + 1;",
            ..V1::default()
        },
        &[("01 02", "0: 03 00"), ("07 02", "0: 08 03")],
    );
}

#[test]
fn return_leaves_a_function_a_control_and_an_action() {
    check(
        V1 {
            top: "bit<8> f(in bit<8> p) { if (p > 4) { return 1; } bit<8> q = p + p; return q; }
                  control Inner(inout bit<8> p) { apply { if (p == 0) { return; } p = 0xaa; } }",
            ingress_locals: "Inner() inner; action act() { h.a.y = 5; if (h.a.x == 1) { return; } h.a.y = 6; }",
            ingress: "h.a.x = f(h.a.x); act(); inner.apply(h.a.x);",
            ..V1::default()
        },
        &[("05 00", "0: aa 05"), ("03 00", "0: aa 06"), ("00 00", "0: 00 06")],
    );
}

#[test]
fn an_argument_is_read_before_the_call_that_changes_it() {
    check(
        V1 {
            top: "bit<8> bump(inout bit<8> p) { p = p + 1; return p; }",
            ingress: "h.a.y = h.a.x + bump(h.a.x);",
            ..V1::default()
        },
        &[("01 00", "0: 02 03")],
    );
}

#[test]
fn actions_with_directions_copy_in_and_out() {
    check(
        V1 {
            ingress_locals: "action twice(inout bit<8> p) { p = p + h.a.x; p = p + h.a.x; }",
            ingress: "twice(h.a.x); twice(h.a.y);",
            ..V1::default()
        },
        &[("01 00", "0: 03 06")],
    );
}

#[test]
fn making_a_member_of_a_union_valid_invalidates_the_others() {
    check(
        V1 {
            top: "header B { bit<8> z; } header_union U { A a; B b; }",
            headers: "A a; U u;",
            states: "state start { b.extract(h.a); b.extract(h.u.a); transition accept; }",
            ingress: "if (h.a.x == 1) { h.u.b.setValid(); h.u.b.z = 0xbb; }
                      if (h.a.x == 2) { h.u.b = { 0xcc }; }
                      if (h.a.x == 3) { h.u.a.setInvalid(); }",
            ..V1::default()
        },
        &[
            ("00 00 11 22", "0: 00 00 11 22"),
            ("01 00 11 22", "0: 01 00 bb"),
            ("02 00 11 22", "0: 02 00 cc"),
            ("03 00 11 22", "0: 03 00"),
        ],
    );
}

#[test]
fn stacks_fill_up_overflow_push_and_pop() {
    let stack = V1 {
        headers: "A[3] s;",
        states: "state start { b.extract(h.s.next); transition select(h.s.last.x) { 0: accept; default: start; } }",
        ..V1::default()
    };
    check(
        V1 { ingress: "h.s.pop_front(1);", ..stack },
        &[("01 aa 02 bb 00 cc dd", "0: 02 bb 00 cc dd"), ("00 aa dd", "0: dd")],
    );
    check(
        V1 { ingress: "h.s.push_front(1); h.s[0] = { 9, 9 };", ..stack },
        &[("01 aa 02 bb 00 cc dd", "0: 09 09 01 aa 02 bb dd"), ("00 aa dd", "0: 09 09 00 aa dd")],
    );
    check(
        V1 { ingress: "if (s.parser_error == error.StackOutOfBounds) { h.s[2].y = 0xee; }", ..stack },
        &[("01 aa 02 bb 03 cc 04", "0: 01 aa 02 bb 03 ee 04")],
    );
}

#[test]
fn a_dynamic_index_reads_writes_and_may_be_out_of_range() {
    check(
        V1 {
            headers: "A a; A[2] s;",
            states: "state start { b.extract(h.a); b.extract(h.s.next); b.extract(h.s.next); transition accept; }",
            ingress: "h.a.y = h.s[h.a.x].y; h.s[h.a.x].x = 0xff; h.s[h.a.x].y[3:0] = 0;",
            ..V1::default()
        },
        &[
            ("00 00 11 12 21 22", "0: 00 12 ff 10 21 22"),
            ("01 00 11 12 21 22", "0: 01 22 11 12 ff 20"),
            ("02 00 11 12 21 22", "0: 02 00 11 12 21 22"),
        ],
    );
}

#[test]
fn slices_are_read_and_written() {
    check(
        V1 { ingress: "h.a.x[7:4] = h.a.y[3:0]; h.a.y = h.a.y[0:0] ++ h.a.y[7:1];", ..V1::default() },
        &[("12 35", "0: 52 9a")],
    );
}

#[test]
fn arithmetic_follows_the_types() {
    check(
        V1 {
            meta: "int<8> i;",
            ingress:
                "m.i = (int<8>)h.a.x; h.a.x = h.a.x |+| 0x70; m.i = m.i >> 1; if (m.i < 0) { h.a.y = (bit<8>)m.i; }
                      h.a.y = h.a.y |-| 1;",
            ..V1::default()
        },
        &[("a0 00", "0: ff cf"), ("20 00", "0: 90 00"), ("20 05", "0: 90 04")],
    );
}

#[test]
fn headers_compare_by_validity_and_fields() {
    check(
        V1 {
            headers: "A a; A n; A o;",
            ingress: "h.n = { 1, 2 }; bool same = h.a == h.n; bool none = h.n == h.o; h.n.setInvalid();
                      bool both = h.n == h.o; h.a.x = (bit<8>)((bit<1>)same ++ (bit<1>)none ++ (bit<1>)both);",
            ..V1::default()
        },
        &[("01 02", "0: 05 02"), ("01 03", "0: 01 03")],
    );
}

#[test]
fn loops_reach_the_largest_value_and_leave_early() {
    check(
        V1 {
            ingress: "bit<8> n = 0; for (bit<8> i in h.a.x .. 255) { n = n + 1; } h.a.y = n;
                      for (bit<8> j = 0; j < 10; j = j + 1) { if (j == 3) { continue; } if (j == 6) { break; } h.a.x = h.a.x + j; }",
            ..V1::default()
        },
        &[("fd 00", "0: 09 03"), ("ff 00", "0: 0b 01")],
    );
}

#[test]
fn varbit_fields_are_taken_and_given_back() {
    check(
        V1 {
            top: "header L { bit<8> n; varbit<32> rest; }",
            headers: "L l; A a;",
            states: "state start { b.extract(h.l, (bit<32>)(b.lookahead<bit<8>>()) * 8); b.extract(h.a); transition accept; }",
            ingress: "h.a.x = (bit<8>)(bit<1>)(s.parser_error == error.HeaderTooShort);",
            ..V1::default()
        },
        &[("02 aa bb 11 22", "0: 02 aa bb 00 22"), ("00 11 22", "0: 00 00 22"), ("05 aa", "0: 05 aa")],
    );
}

#[test]
fn entries_win_by_place_or_by_their_priorities() {
    let table = |properties: &str, entries: &str| {
        format!(
            "action mark(bit<8> v) {{ h.a.y = v; }}
             table t {{ key = {{ h.a.x : ternary; }} actions = {{ mark; NoAction; }} default_action = NoAction();
                        {properties} entries = {{ {entries} }} }}"
        )
    };
    let run = |locals: String, packets: &[(&str, &str)]| {
        check(V1 { ingress_locals: &locals, ingress: "t.apply();", ..V1::default() }, packets);
    };
    run(
        table("", "0x10 &&& 0xf0 : mark(1); 0x11 : mark(2); 0x01 &&& 0x0f : mark(3);"),
        &[("11 00", "0: 11 01"), ("21 00", "0: 21 03"), ("22 00", "0: 22 00")],
    );
    run(
        table(
            "largest_priority_wins = false;",
            "priority = 30 : 0x10 &&& 0xf0 : mark(1); priority = 10 : 0x11 : mark(2);",
        ),
        &[("11 00", "0: 11 02"), ("12 00", "0: 12 01")],
    );
    run(
        table("", "priority = 10 : 0x10 &&& 0xf0 : mark(1); priority = 30 : 0x11 : mark(2);"),
        &[("11 00", "0: 11 02"), ("12 00", "0: 12 01")],
    );
}

#[test]
fn every_match_kind_takes_entries() {
    check(
        V1 {
            top: "header W { bit<16> p; bit<8> q; bit<8> r; }",
            headers: "W w; A a;",
            states: "state start { b.extract(h.w); b.extract(h.a); transition accept; }",
            ingress_locals: "
                action mark(bit<8> v) { h.a.x = v; }
                table t { key = { h.w.p : lpm; h.w.q : range; h.w.r : optional; h.a.y : exact; }
                          actions = { mark; @defaultonly NoAction; } default_action = NoAction();
                          const entries = { (0x1200 &&& 0xff00, 3 .. 5, 7, 1) : mark(1); (_, _, _, 1) : mark(2); } }",
            ingress: "t.apply();",
            ..V1::default()
        },
        &[
            ("12 34 04 07 00 01", "0: 12 34 04 07 01 01"),
            ("12 34 06 07 00 01", "0: 12 34 06 07 02 01"),
            ("12 34 04 07 00 02", "0: 12 34 04 07 00 02"),
        ],
    );
}

#[test]
fn action_run_and_hit_lead_to_their_code() {
    check(
        V1 {
            ingress_locals: "
                action a1() { h.a.y = 1; } action a2() { h.a.y = 2; }
                table t { key = { h.a.x : exact; } actions = { a1; a2; NoAction; } default_action = NoAction();
                          const entries = { 1 : a1(); 2 : a2(); 3 : NoAction(); } }
                table u { key = { h.a.y : exact; } actions = { NoAction; } const entries = { 0x11 : NoAction(); } }",
            ingress:
                "switch (t.apply().action_run) { a1: { h.a.y = h.a.y + 0x10; } a2: default: { h.a.y = h.a.y + 0x20; } }
                      if (!(u.apply().hit)) { h.a.x = 0xff; }",
            ..V1::default()
        },
        &[("01 00", "0: 01 11"), ("02 00", "0: ff 22"), ("03 00", "0: ff 20"), ("04 05", "0: ff 25")],
    );
}

#[test]
fn direct_counters_count_hits_without_being_asked() {
    let program = V1 {
        ingress_locals: "
            direct_counter(CounterType.packets) c;
            table t { key = { h.a.x : exact; } actions = { NoAction; } counters = c; const entries = { 1 : NoAction(); } }",
        ingress: "t.apply();",
        ..V1::default()
    };
    let interp = Interp::new(Arc::new(program.lower()));
    for packet in ["01 00", "02 00", "01 00"] {
        run(&interp, packet);
    }
    let counter = interp.program().extern_named("I.c").expect("there is a counter");
    let key = [base::entry::KeyMatch::Exact(Bits::new(8, 1))];
    let value =
        abi::PipelineState::direct_counter(interp.state().as_ref(), counter, &key, 0).expect("the entry is there");
    assert_eq!(value.packets, 2);
}

#[test]
fn sub_parsers_reject_for_their_callers_and_accept_for_themselves() {
    check(
        V1 {
            top: "parser Sub(packet_in b, out A a) { state start { b.extract(a); transition select(a.x) { 9: reject; default: accept; } } }",
            headers: "A a; A n; A o;",
            parser_locals: "Sub() sub;",
            states: "state start { sub.apply(b, h.a); sub.apply(b, h.n); b.extract(h.o); transition accept; }",
            ingress: "if (h.o.isValid()) { h.o.y = 0xff; }",
            ..V1::default()
        },
        &[("01 02 03 04 05 06", "0: 01 02 03 04 05 ff"), ("01 02 09 04 05 06", "0: 01 02 09 04 05 06")],
    );
}

#[test]
fn dropped_after_ingress_and_after_egress() {
    check(
        V1 {
            ingress: "if (h.a.x == 1) { mark_to_drop(s); }",
            egress: "if (h.a.x == 2) { mark_to_drop(s); } s.egress_port = 9;",
            ..V1::default()
        },
        &[("01 00", "drop: ingress drop"), ("02 00", "drop: egress drop"), ("03 00", "0: 03 00")],
    );
}

#[test]
fn a_checksum_is_verified_and_updated() {
    check(
        V1 {
            top: "header S { bit<16> p; bit<16> sum; }",
            headers: "S s;",
            states: "state start { b.extract(h.s); transition accept; }",
            verify: "verify_checksum(h.s.isValid(), { h.s.p }, h.s.sum, HashAlgorithm.csum16);",
            ingress: "if (s.checksum_error == 1) { h.s.p = 0x1111; }",
            compute: "update_checksum(true, { h.s.p }, h.s.sum, HashAlgorithm.csum16);",
            ..V1::default()
        },
        &[("12 34 ed cb", "0: 12 34 ed cb"), ("12 34 00 00", "0: 11 11 ee ee")],
    );
}

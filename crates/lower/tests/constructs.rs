//! The constructs of P4_16, one by one: packets are run through the interpreter on unoptimised IR.

mod common;

use common::{V1, check};

#[test]
fn controls_with_type_parameters() {
    check(
        V1 {
            top: "control Set<T>(inout T x)(T v) { apply { x = v; } }
                  control Both<T>(inout T x, inout T y)(T v) { Set<T>(v) s; apply { s.apply(x); s.apply(y); } }",
            headers: "A a; A n;",
            ingress_locals: "Both<bit<8>>(7) both; bit<16> wide = 0; Set<bit<16>>(0x0102) set; Set(8w9) inferred;",
            ingress: "if (h.a.x == 1) { both.apply(h.a.x, h.a.y); } else { set.apply(wide); h.a.x = wide[15:8];
                      inferred.apply(h.a.y); }",
            ..V1::default()
        },
        &[("01 00", "0: 07 07"), ("02 00", "0: 01 09")],
    );
}

#[test]
fn parsers_with_type_parameters() {
    check(
        V1 {
            top: "parser Read<T>(packet_in b, out T v)(T other) {
                      state start { T w = b.lookahead<T>(); v = b.lookahead<bit<8>>() == 5 ? w : other;
                                    transition accept; } }",
            meta: "bit<8> k;",
            parser_locals: "Read(8w7) r; Read<bit<16>>(0) wide;",
            states: "state start { bit<16> v; wide.apply(b, v); r.apply(b, m.k); b.extract(h.a); transition accept; }",
            ingress: "h.a.y = m.k;",
            ..V1::default()
        },
        &[("05 00", "0: 05 05"), ("06 00", "0: 06 07")],
    );
}

#[test]
fn int_parameters_are_known_where_the_block_is_applied() {
    check(
        V1 {
            top: "control Add(int a, inout bit<8> b) { apply { if (b == a) { b = b + a; } else { b = 1 + a; } } }
                  bit<64> wide(int n) { return (bit<64>)n; }
                  bit<8> twice(int n, in bit<8> x) { return x + 2 * n; }",
            ingress_locals: "Add() add;",
            ingress: "add.apply(3, h.a.x); add.apply(6, h.a.x); h.a.y = twice(4, h.a.y);
                      if (wide(-1) != 0xffffffffffffffff) { h.a.y = 0; }",
            ..V1::default()
        },
        &[("03 01", "0: 0c 09"), ("09 01", "0: 07 09")],
    );
}

#[test]
fn functions_with_every_direction() {
    check(
        V1 {
            top: "bit<8> f(in bit<8> a, out bit<8> b, inout bit<8> c) { b = a + 1; c = c + b; return c; }",
            meta: "bit<8> k;",
            ingress: "h.a.x = f(h.a.x, m.k, h.a.y); h.a.y = m.k;",
            ..V1::default()
        },
        &[("01 05", "0: 07 02")],
    );
}

#[test]
fn an_argument_that_is_in_and_out_at_once() {
    check(
        V1 {
            top: "void swap(inout bit<8> a, inout bit<8> b) { bit<8> t = a; a = b; b = t; }
                  void twist(in bit<8> a, out bit<8> b) { b = 1; b = b + a; }",
            ingress: "swap(h.a.x, h.a.y); twist(h.a.x, h.a.x);",
            ..V1::default()
        },
        &[("01 05", "0: 06 01")],
    );
}

#[test]
fn instances_of_one_control_have_tables_of_their_own() {
    check(
        V1 {
            top: "control Inner(inout bit<8> x)(bit<8> v) {
                      action set() { x = v; }
                      table t { key = { x : exact; } actions = { set; NoAction; } default_action = NoAction;
                                const entries = { 1 : set(); } }
                      apply { t.apply(); }
                  }
                  control Outer(inout bit<8> x)(bit<8> v) { Inner(v) a; Inner(v + 1) b; apply { a.apply(x); b.apply(x); } }",
            ingress_locals: "Outer(1) one; Outer(5) five;",
            ingress: "one.apply(h.a.x); five.apply(h.a.y);",
            ..V1::default()
        },
        &[("01 01", "0: 02 05"), ("02 02", "0: 02 02")],
    );
}

#[test]
fn controls_as_constructor_parameters() {
    check(
        V1 {
            top: "control Step(inout bit<8> b);
                  control One(inout bit<8> b) { apply { b = b + 1; } }
                  control Ten(inout bit<8> b)(bit<8> n) { apply { b = b + n; } }
                  control Twice(inout bit<8> b)(Step e) { apply { e.apply(b); e.apply(b); } }",
            ingress_locals: "One() one; Ten(10) ten; Twice(one) two; Twice(ten) twenty;",
            ingress: "two.apply(h.a.x); twenty.apply(h.a.y);",
            ..V1::default()
        },
        &[("01 01", "0: 03 15")],
    );
}

#[test]
fn sub_parsers_are_applied_again_and_nested() {
    check(
        V1 {
            top: "parser Inner(packet_in b, out A a) { state start { b.extract(a); transition accept; } }
                  parser Outer(packet_in b, out A a, out A n) { Inner() i;
                      state start { i.apply(b, a); transition select(a.x) { 1: more; default: accept; } }
                      state more { i.apply(b, n); transition accept; } }",
            headers: "A a; A n;",
            parser_locals: "Outer() o;",
            states: "state start { o.apply(b, h.a, h.n); transition accept; }",
            ingress: "if (h.n.isValid()) { h.a.y = h.n.y; }",
            ..V1::default()
        },
        &[("01 02 03 04 05", "0: 01 04 03 04 05"), ("02 02 03 04", "0: 02 02 03 04")],
    );
}

#[test]
fn tables_in_expressions_and_more_than_once() {
    check(
        V1 {
            ingress_locals: "action inc() { h.a.y = h.a.y + 1; }
                table t { key = { h.a.x : exact; } actions = { inc; NoAction; } default_action = NoAction;
                          const entries = { 1 : inc(); } }",
            ingress: "if (t.apply().hit && h.a.y == 1) { h.a.x = 9; } else { h.a.x = 1; }
                      if (!t.apply().miss) { h.a.y = h.a.y + 0x10; }",
            ..V1::default()
        },
        &[("01 00", "0: 09 01"), ("02 00", "0: 01 11")],
    );
}

#[test]
fn switch_on_what_ran() {
    check(
        V1 {
            ingress_locals: "action a1() { h.a.y = 1; } action a2(bit<8> v) { h.a.y = v; }
                table t { key = { h.a.x : exact; } actions = { a1; a2; NoAction; } default_action = NoAction;
                          const entries = { 1 : a1(); 2 : a2(7); } }",
            ingress: "switch (t.apply().action_run) { a1: a2: { h.a.x = 0xa0; } default: { h.a.x = 0xd0; } }",
            ..V1::default()
        },
        &[("01 00", "0: a0 01"), ("02 00", "0: a0 07"), ("03 00", "0: d0 00")],
    );
}

#[test]
fn unions_and_stacks_of_unions() {
    check(
        V1 {
            top: "header B { bit<8> z; } header_union U { A a; B b; }
                  control Make(out U u, in bit<8> k) { apply {
                      if (k == 1) { u.a.setValid(); u.a = { 1, 2 }; } else { u.b.setValid(); u.b.z = 3; } } }",
            headers: "A a; U u; U[2] us;",
            ingress_locals: "Make() make; U local;",
            ingress: "make.apply(h.u, h.a.x); make.apply(local, 2); h.us[1] = local;
                      if (h.us[1].b.isValid() && !h.us[0].isValid()) { h.a.y = h.us[1].b.z; }
                      h.us[1].a.setValid(); h.us[1].a.x = 0xee; if (h.us[1].b.isValid()) { h.a.y = 0; }",
            ..V1::default()
        },
        &[("01 00", "0: 01 03 01 02 ee 00"), ("02 00", "0: 02 03 03 ee 00")],
    );
}

#[test]
fn varbits_are_assigned_and_compared() {
    check(
        V1 {
            top: "header Var { bit<8> n; varbit<32> v; }",
            headers: "Var v; Var w;",
            states: "state start { b.extract(h.v, (bit<32>)(b.lookahead<bit<8>>() << 3)); transition accept; }",
            ingress: "h.w.setValid(); h.w.n = 0xff; h.w.v = h.v.v; if (h.w.v == h.v.v) { h.w.n = 0xee; }
                      h.v.setInvalid(); if (h.w.v == h.v.v) { h.w.n = 0; }",
            ..V1::default()
        },
        &[("02 0a 0b 0c", "0: ee 0a 0b 0c"), ("00 0c", "0: 00 0c")],
    );
}

#[test]
fn equality_of_everything_that_has_it() {
    check(
        V1 {
            top: "struct S { bit<8> a; A h; } header_union U { A a; A b; }",
            headers: "A a; A n;",
            ingress_locals: "A p; A q; S s; S t; tuple<bit<8>, bool> u; A[2] v; A[2] w; U e; U f;",
            ingress: "bit<8> r = 0;
                if (p == q) { r = r | 1; }
                p.setValid(); p = { 1, 2 }; if (p != q) { r = r | 2; }
                q.setValid(); q = { 1, 2 }; if (p == q) { r = r | 4; }
                s = { 1, p }; t = { 1, q }; if (s == t) { r = r | 8; }
                u = { 5, true }; if (u == { 5, true } && u[0] == 5) { r = r | 16; }
                v[0] = p; w[0] = q; if (v == w) { r = r | 32; } w[1] = p; if (v != w) { r = r | 64; }
                e.a.setValid(); f.b.setValid(); if (e != f) { r = r | 128; }
                h.a.x = r;",
            ..V1::default()
        },
        &[("00 00", "0: ff 00")],
    );
}

#[test]
fn lookahead_of_structs_and_advance() {
    check(
        V1 {
            top: "struct L { bit<4> a; bit<4> b; A h; }",
            meta: "bit<8> k;",
            states: "state start { L l = b.lookahead<L>(); m.k = (bit<8>)l.b + l.h.y; b.advance(8); b.extract(h.a);
                                   transition accept; }",
            ingress: "h.a.x = m.k;",
            ..V1::default()
        },
        &[("12 03 04 05", "0: 06 04 05")],
    );
}

#[test]
fn selects_of_every_kind() {
    let states = "state start { b.extract(h.a); transition select(h.a.x, h.a.y) {
                      (1, _): one; (0x10 &&& 0xf0, 2 .. 4): two; (_, 9): reject; default: accept; } }
                  state one { h.a.x = 0xa1; transition select(h.a.y, h.a.x) { set: accept; (1, 0xa1): two; _: accept; } }
                  state two { h.a.y = 0xa2; transition accept; }";
    check(
        V1 {
            top: "struct Pair { bit<8> a; bit<8> b; }",
            parser_locals: "value_set<Pair>(4) set;",
            states,
            ..V1::default()
        },
        &[
            ("01 05", "0: a1 05"),
            ("01 01", "0: a1 a2"),
            ("1f 03", "0: 1f a2"),
            ("1f 05", "0: 1f 05"),
            ("02 09", "0: 02 09"),
        ],
    );
}

#[test]
fn exit_and_return_from_inside_everything() {
    check(
        V1 {
            top: "control Deep(inout bit<8> p) {
                      action stop() { p = p + 1; exit; }
                      table t { key = { p : exact; } actions = { stop; NoAction; } default_action = NoAction;
                                const entries = { 4 : stop(); } }
                      apply { for (bit<8> i in 0 .. 9) { p = p + i; t.apply(); if (p > 0x20) { return; } } } }
                  control Mid(inout bit<8> p) { Deep() d; apply { bit<8> q = p; d.apply(q); p = q; p = p + 0x40; } }",
            ingress_locals: "Mid() mid;",
            ingress: "mid.apply(h.a.x); h.a.y = 1;",
            ..V1::default()
        },
        // 1: 1, 2, 4. It stops with q = 5, which is not copied to p by an assignment after the call.
        &[("01 00", "0: 01 00"), ("20 00", "0: 61 01")],
    );
}

#[test]
fn pushing_and_popping_stacks_by_dynamic_index() {
    check(
        V1 {
            headers: "A a; A[3] s;",
            states: "state start { b.extract(h.a); transition next; }
                     state next { b.extract(h.s.next); transition select(h.s.last.x) { 1: next; default: accept; } }",
            ingress: "h.a.x = h.s[h.a.y].y; h.s[h.a.y].y = 0xee; h.s.pop_front(1);",
            ..V1::default()
        },
        &[("00 01 01 0a 01 0b 02 0c", "0: 0b 01 01 ee 02 0c"), ("00 00 02 0a 09", "0: 0a 00 09")],
    );
}

#[test]
fn log_messages_take_strings_and_values() {
    let program =
        V1 { ingress: "log_msg(\"x is {} and y is {}\", { h.a.x, h.a.y }); log_msg(\"no values\");", ..V1::default() };
    check(program, &[("01 02", "0: 01 02")]);
    let text = ir::print(&program.lower());
    assert!(text.contains("log \"x is {} and y is {}\" (h.a.x, h.a.y)"), "{text}");
}

#[test]
fn methods_of_externs_see_what_their_control_declares() {
    let text = V1 {
        top: "extern Box { Box(); void run(); @synchronous(run) abstract bit<8> f(in bit<8> x); }",
        ingress_locals: "bit<8> local;
            Box() box = { bit<8> f(in bit<8> x) { bit<8> sum = x + local + h.a.x; return sum; } };",
        ingress: "local = 4; box.run();",
        ..V1::default()
    }
    .text();
    assert!(common::unloadable(&text).contains("extern `Box` (here its method `run`)"));
}

#[test]
fn arrays_of_externs_are_called_by_index() {
    let program = V1 {
        top: "extern Cell<T> { Cell(); T read(); void write(in T v); }",
        ingress_locals: "Cell<bit<8>>() cells[16];",
        ingress: "cells[h.a.x].write(h.a.y); h.a.y = cells[3].read();",
        ..V1::default()
    };
    let calls: Vec<String> = program.lower().unresolved().map(str::to_string).collect();
    assert_eq!(calls, ["Cell(I.cells[]).write", "Cell(I.cells[]).read"]);
}

#[test]
fn values_are_emitted_as_headers_are() {
    let text = "#include <core.p4>
        header H { bit<8> a; bit<8> b; }
        control c(packet_out p)(H k) { apply { p.emit((H){1, 2}); p.emit(k); p.emit<H>({5, 6}); } }
        control C(packet_out p);
        package top(C c);
        top(c({3, 4})) main;";
    let interp = interp::Interp::new(std::sync::Arc::new(common::lower(text)));
    let mut record = vec![0; interp.layout().words()];
    let outcome = interp.run(ir::EntryKind::Ingress, &[9], 0, &mut record, &mut interp::SeededHost::new(1), None);
    assert_eq!(outcome.packet, [1, 2, 3, 4, 5, 6, 9]);
}

#[test]
fn numbers_without_bits_are_zero() {
    check(
        V1 {
            ingress_locals: "bit<0> n = 0;",
            ingress: "bit<0> k = n + n * 0; h.a.x = (bit<8>)(k - n); if (k != n || k < n) { h.a.y = 1; }
                      if (k == n && k >= n) { h.a.y = h.a.y + 2; } h.a.y = h.a.y ++ n;",
            ..V1::default()
        },
        &[("01 04", "0: 00 06")],
    );
}

#[test]
fn action_data_that_no_controller_can_give() {
    let program = V1 {
        ingress_locals: "action set(A v) { h.a.x = v.x; } table t { actions = { set; } }",
        ingress: "t.apply();",
        ..V1::default()
    };
    assert_eq!(program.errors(), "test.p4:9: E0605 the control plane cannot give parameter `v` of type `A`\n");
}

//! The lowering of P4 constructs: IR text of small programs. `UPDATE_EXPECT=1` blesses.

mod common;

use common::{V1, stage_text};
use expect_test::{Expect, expect};

fn check_ingress(program: V1<'_>, expected: Expect) {
    expected.assert_eq(&stage_text(&program.lower(), "I"));
}

fn check_parser(program: V1<'_>, expected: Expect) {
    expected.assert_eq(&stage_text(&program.lower(), "P"));
}

#[test]
fn writes_to_headers_that_may_be_invalid_are_guarded() {
    check_ingress(
        V1 {
            ingress: "h.a.x = 1; if (h.a.isValid()) { h.a.y = h.a.x + 1; } h.a.setValid(); h.a.y = 2;",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              h.a.x = select h.a.$valid, 8w0x1, h.a.x
              branch h.a.$valid, b1, b2
            b1:
              h.a.y = add h.a.x, 8w0x1
              jump b2
            b2:
              set_valid h.a
              h.a.y = mov 8w0x2
              next
            }
        "#]],
    );
}

#[test]
fn facts_about_validity_end_where_paths_meet() {
    check_ingress(
        V1 { ingress: "if (h.a.isValid()) { h.a.setInvalid(); } else { h.a.setValid(); } h.a.x = 1;", ..V1::default() },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              branch h.a.$valid, b1, b2
            b1:
              set_invalid h.a
              jump b3
            b2:
              set_valid h.a
              jump b3
            b3:
              h.a.x = select h.a.$valid, 8w0x1, h.a.x
              next
            }
        "#]],
    );
}

#[test]
fn a_union_has_one_valid_member() {
    check_ingress(
        V1 {
            top: "header B { bit<8> z; } header_union U { A a; B b; }",
            headers: "A a; U u;",
            ingress: "h.u.b.setValid(); if (h.u.isValid()) { h.u.a = h.a; }",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              set_invalid h.u.a
              set_valid h.u.b
              %1 = or h.u.a.$valid, h.u.b.$valid
              branch %1, b1, b2
            b1:
              h.u.a.$valid = mov h.a.$valid
              h.u.a.x = mov h.a.x
              h.u.a.y = mov h.a.y
              set_invalid h.u.b
              jump b2
            b2:
              next
            }
        "#]],
    );
}

#[test]
fn dynamic_indices_select_and_guard() {
    check_ingress(
        V1 { headers: "A a; A[2] s;", ingress: "h.s[h.a.x].y = h.s[h.a.y].x;", ..V1::default() },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              %1 = eq h.a.x, 8w0x0
              %2 = eq h.a.x, 8w0x1
              %3 = eq h.a.y, 8w0x0
              %4 = eq h.a.y, 8w0x1
              %5 = select %4, h.s[1].x, 8w0x0
              %6 = select %3, h.s[0].x, %5
              %7 = and %1, h.s[0].$valid
              h.s[0].y = select %7, %6, h.s[0].y
              %8 = and %2, h.s[1].$valid
              h.s[1].y = select %8, %6, h.s[1].y
              next
            }
        "#]],
    );
}

#[test]
fn push_and_pop_move_elements() {
    check_ingress(
        V1 { headers: "A a; A[3] s;", ingress: "h.s.push_front(1); h.s.pop_front(2);", ..V1::default() },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              h.s[2].$valid = mov h.s[1].$valid
              h.s[2].x = mov h.s[1].x
              h.s[2].y = mov h.s[1].y
              h.s[1].$valid = mov h.s[0].$valid
              h.s[1].x = mov h.s[0].x
              h.s[1].y = mov h.s[0].y
              set_invalid h.s[0]
              %1 = add h.s.$next, 32w0x1
              %2 = ult 32w0x3, %1
              h.s.$next = select %2, 32w0x3, %1
              h.s[0].$valid = mov h.s[2].$valid
              h.s[0].x = mov h.s[2].x
              h.s[0].y = mov h.s[2].y
              set_invalid h.s[1]
              set_invalid h.s[2]
              h.s.$next = sat_sub_u h.s.$next, 32w0x2
              next
            }
        "#]],
    );
}

#[test]
fn arguments_stand_for_themselves_unless_they_overlap() {
    check_ingress(
        V1 {
            top: "void swap(inout bit<8> p, inout bit<8> q) { bit<8> t = p; p = q; q = t; }",
            meta: "bit<8> k; bit<8> l;",
            ingress: "swap(m.k, m.l); swap(m.k, m.k);",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              swap.t = mov m.k
              m.k = mov m.l
              m.l = mov swap.t
              swap.q = mov m.k
              swap.t = mov m.k
              m.k = mov swap.q
              swap.q = mov swap.t
              m.k = mov swap.q
              next
            }
        "#]],
    );
}

#[test]
fn swapped_fields_are_read_before_they_are_written() {
    check_ingress(
        V1 {
            top: "struct S { bit<8> p; bit<8> q; }",
            meta: "S s;",
            ingress: "m.s = { m.s.q, m.s.p };",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              %1 = mov m.s.q
              %2 = mov m.s.p
              m.s.p = mov %1
              m.s.q = mov %2
              next
            }
        "#]],
    );
}

#[test]
fn a_table_is_applied_and_its_actions_run_behind_a_switch() {
    check_ingress(
        V1 {
            ingress_locals: "
                action set(bit<8> v) { h.a.x = v; }
                action stop() { exit; }
                table t { key = { h.a.y : exact; } actions = { set; stop; NoAction; } default_action = NoAction(); }",
            ingress: "if (t.apply().hit) { h.a.y = 0; } s.egress_spec = 3;",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              %1, %2, %3, %4 = apply I.t (h.a.y)
              switch %2, 32w0x0 -> b1, 32w0x1 -> b2, default -> b3
            b1 set:
              mark action "I.set"
              %5 = param I.t, 0, 0, %4
              h.a.x = select h.a.$valid, %5, h.a.x
              jump b3
            b2 stop:
              mark action "I.stop"
              mark exit
              jump b4
            b3:
              branch %1, b5, b6
            b4 exit:
              next
            b5:
              h.a.y = select h.a.$valid, 8w0x0, h.a.y
              jump b6
            b6:
              standard_metadata.egress_spec = mov 9w0x3
              jump b4
            }
        "#]],
    );
}

#[test]
fn cases_of_action_run_follow_their_actions() {
    check_ingress(
        V1 {
            meta: "bit<8> k;",
            ingress_locals: "
                action one() { m.k = 1; }
                action two() { m.k = 2; }
                table t { key = { m.k : ternary; } actions = { one; two; NoAction; } default_action = NoAction(); }",
            ingress: "switch (t.apply().action_run) { one: two: { m.k = m.k + 8; } default: { m.k = 7; } }",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              %1, %2, %3, %4 = apply I.t (m.k)
              switch %2, 32w0x0 -> b1, 32w0x1 -> b2, default -> b3
            b1 one:
              mark action "I.one"
              m.k = mov 8w0x1
              jump b4
            b2 two:
              mark action "I.two"
              m.k = mov 8w0x2
              jump b4
            b3:
              m.k = mov 8w0x7
              jump b5
            b4:
              m.k = add m.k, 8w0x8
              jump b5
            b5:
              next
            }
        "#]],
    );
}

#[test]
fn loops_stay_loops() {
    check_ingress(
        V1 {
            meta: "bit<8> k;",
            ingress: "for (bit<8> i = 0; i < 4; i = i + 1) { if (i == 2) { continue; } m.k = m.k + i; }
                      for (bit<8> j in 8w1 .. 3) { if (j == m.k) { break; } m.k = m.k ^ j; }",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              I.i = mov 8w0x0
              jump b1
            b1 for:
              charge 8
              %1 = ult I.i, 8w0x4
              branch %1, b2, b3
            b2:
              %2 = eq I.i, 8w0x2
              branch %2, b4, b5
            b3:
              I.j.$counter = mov 8w0x1
              I.j.$counter.last = mov 8w0x3
              %5 = ule I.j.$counter, I.j.$counter.last
              branch %5, b8, b7
            b4:
              jump b6
            b5:
              m.k = add m.k, I.i
              jump b6
            b6:
              I.i = add I.i, 8w0x1
              jump b1
            b7:
              next
            b8 for:
              charge 8
              I.j = mov I.j.$counter
              %6 = eq I.j, m.k
              branch %6, b9, b10
            b9:
              jump b7
            b10:
              m.k = xor m.k, I.j
              %8 = eq I.j.$counter, I.j.$counter.last
              branch %8, b7, b11
            b11:
              I.j.$counter = add I.j.$counter, 8w0x1
              jump b8
            }
        "#]],
    );
}

#[test]
fn sides_with_effects_are_evaluated_only_when_needed() {
    check_ingress(
        V1 {
            meta: "bit<8> k;",
            top: "bool bump(inout bit<8> p) { p = p + 1; return p > 3; }",
            ingress: "bool both = h.a.isValid() && bump(m.k); if (both || bump(m.k)) { h.a.y = m.k; }",
            ..V1::default()
        },
        expect![[r#"
            stage control I {
            b0:
              mark block "I"
              %1 = mov h.a.$valid
              branch %1, b1, b2
            b1:
              m.k = add m.k, 8w0x1
              %3 = ult 8w0x3, m.k
              %1 = mov %3
              jump b2
            b2:
              I.both = mov %1
              branch I.both, b3, b4
            b3:
              h.a.y = select h.a.$valid, m.k, h.a.y
              jump b5
            b4:
              m.k = add m.k, 8w0x1
              %5 = ult 8w0x3, m.k
              branch %5, b3, b5
            b5:
              next
            }
        "#]],
    );
}

#[test]
fn a_parser_asks_for_bits_before_it_takes_them() {
    check_parser(
        V1 {
            top: "header L { bit<8> n; varbit<64> rest; }",
            headers: "A a; L l;",
            states: "state start { b.extract(h.a); transition select(h.a.x) { 1: l; 2 &&& 0xfe: accept; 4 .. 9: l; } }
                     state l { b.extract(h.l, (bit<32>)b.lookahead<bit<8>>() << 3); transition accept; }",
            ..V1::default()
        },
        expect![[r#"
            stage parser P {
            b0:
              jump b1
            b1 start:
              mark state "start"
              %0 = has_bits 32w0x10
              branch %0, b3, b2
            b2 PacketTooShort:
              standard_metadata.parser_error = mov 32w0x1
              next
            b3:
              extract h.a
              switch h.a.x, 8w0x1 -> b4, default -> b5
            b4 l:
              mark state "l"
              %6 = has_bits 32w0x8
              branch %6, b10, b2
            b5:
              %1 = and h.a.x, 8w0xfe
              %2 = eq %1, 8w0x2
              branch %2, b7, b6
            b6:
              %3 = ule 8w0x4, h.a.x
              %4 = ule h.a.x, 8w0x9
              %5 = and %3, %4
              branch %5, b4, b8
            b7 accept:
              next
            b8:
              jump b9
            b9 NoMatch:
              standard_metadata.parser_error = mov 32w0x2
              next
            b10:
              %7 = lookahead 0
              %8 = zext %7
              %9 = shl %8, 32w0x3
              %10 = ule %9, 32w0x40
              branch %10, b12, b11
            b11 HeaderTooShort:
              standard_metadata.parser_error = mov 32w0x4
              next
            b12:
              %11 = slice %9, 2, 0
              %12 = eq %11, 3w0x0
              branch %12, b14, b13
            b13 ParserInvalidArgument:
              standard_metadata.parser_error = mov 32w0x6
              next
            b14:
              %13 = add %9, 32w0x8
              %14 = has_bits %13
              branch %14, b15, b2
            b15:
              extract h.l, %9
              jump b7
            }
        "#]],
    );
}

#[test]
fn a_stack_is_filled_by_a_loop() {
    check_parser(
        V1 {
            headers: "A a; A[2] s;",
            states: "state start { b.extract(h.s.next); transition select(h.s.last.x) { 0: accept; default: start; } }",
            ..V1::default()
        },
        expect![[r#"
            stage parser P {
            b0:
              jump b1
            b1 start:
              charge 20
              mark state "start"
              %0 = ult h.s.$next, 32w0x2
              branch %0, b3, b2
            b2 StackOutOfBounds:
              standard_metadata.parser_error = mov 32w0x3
              next
            b3:
              %1 = has_bits 32w0x10
              branch %1, b5, b4
            b4 PacketTooShort:
              standard_metadata.parser_error = mov 32w0x1
              next
            b5:
              switch h.s.$next, 32w0x0 -> b6, default -> b7
            b6:
              extract h.s[0]
              h.s.$next = mov 32w0x1
              jump b8
            b7:
              extract h.s[1]
              h.s.$next = mov 32w0x2
              jump b8
            b8:
              %2 = sub h.s.$next, 32w0x1
              %3 = ult %2, 32w0x2
              branch %3, b9, b2
            b9:
              %4 = eq h.s.$next, 32w0x1
              %5 = eq h.s.$next, 32w0x2
              %6 = select %4, h.s[0].x, h.s[1].x
              switch %6, 8w0x0 -> b10, default -> b1
            b10 accept:
              next
            }
        "#]],
    );
}

#[test]
fn exact_cases_of_several_keys_are_one_switch() {
    check_parser(
        V1 {
            states: "state start { b.extract(h.a); transition select(h.a.x, h.a.y) { (1, 2): n; (3, 4): accept; (_, 5): n; } }
                     state n { verify(h.a.x != 9, error.HeaderTooShort); b.advance(8); transition accept; }",
            ..V1::default()
        },
        expect![[r#"
            stage parser P {
            b0:
              jump b1
            b1 start:
              mark state "start"
              %0 = has_bits 32w0x10
              branch %0, b3, b2
            b2 PacketTooShort:
              standard_metadata.parser_error = mov 32w0x1
              next
            b3:
              extract h.a
              %1 = concat h.a.x, h.a.y
              switch %1, 16w0x102 -> b4, 16w0x304 -> b5, default -> b6
            b4 n:
              mark state "n"
              %3 = ne h.a.x, 8w0x9
              branch %3, b10, b9
            b5 accept:
              next
            b6:
              %2 = eq h.a.y, 8w0x5
              branch %2, b4, b7
            b7:
              jump b8
            b8 NoMatch:
              standard_metadata.parser_error = mov 32w0x2
              next
            b9 HeaderTooShort:
              standard_metadata.parser_error = mov 32w0x4
              next
            b10:
              %4 = has_bits 32w0x8
              branch %4, b11, b2
            b11:
              advance 32w0x8
              jump b5
            }
        "#]],
    );
}

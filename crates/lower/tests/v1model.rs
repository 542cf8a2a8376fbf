//! v1model's glue and externs as IR text: only what a program uses is emitted. `UPDATE_EXPECT=1` blesses.

mod common;

use common::{V1, entries_text, stage_text};
use expect_test::expect;

#[test]
fn a_plain_program_has_one_way_in() {
    let program = V1 { ingress: "s.egress_spec = 1;", ..V1::default() }.lower();
    expect![[r#"
        entry ingress (P, V, I, ingress_end, E, C, D, deparse_end)
    "#]]
    .assert_eq(&entries_text(&program));
    expect![[r#"
        stage control ingress_end {
        b0:
          %1 = eq standard_metadata.egress_spec, 9w0x1ff
          branch %1, b1, b2
        b1:
          drop "ingress drop"
        b2:
          standard_metadata.egress_port = mov standard_metadata.egress_spec
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "ingress_end"));
    expect![[r#"
        stage control deparse_end {
        b0:
          send standard_metadata.egress_port
        }
    "#]]
    .assert_eq(&stage_text(&program, "deparse_end"));
}

#[test]
fn mark_to_drop_alone_is_no_multicast() {
    let program = V1 { ingress: "mark_to_drop(s);", ..V1::default() }.lower();
    expect![[r#"
        stage control I {
        b0:
          mark block "I"
          standard_metadata.egress_spec = mov 9w0x1ff
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "I"));
}

#[test]
fn multicast_clones_and_recirculation_go_through_the_replication_engine() {
    let program = V1 {
        meta: "@field_list(1) bit<8> kept; bit<8> lost;",
        states: "state start { b.extract(h.a); m.kept = 1; m.lost = 2; transition accept; }",
        ingress: "s.mcast_grp = 5; clone_preserving_field_list(CloneType.I2E, 7, 1);",
        egress: "clone(CloneType.E2E, 8); recirculate_preserving_field_list(1); s.egress_port = 3; mark_to_drop(s);",
        ..V1::default()
    }
    .lower();
    expect![[r#"
        entry ingress (P, V, I, ingress_end, egress_start, E, egress_end, C, D, deparse_end)
        entry reingress (P, V, I, ingress_end, egress_start, E, egress_end, C, D, deparse_end)
        entry clone_ingress (clone_begin, P, clone_end, egress_start, E, egress_end, C, D, deparse_end)
        entry egress (egress_start, E, egress_end, C, D, deparse_end)
        entry deparse (deparse_begin, C, D, deparse_end)
    "#]]
    .assert_eq(&entries_text(&program));
    for (stage, expected) in [
        (
            "ingress_end",
            expect![[r#"
            stage control ingress_end {
            b0:
              %1 = ne standard_metadata.mcast_grp, 16w0x0
              %2 = or $clone_flag, %1
              branch %2, b1, b2
            b1:
              replicate ingress_end
            b2:
              standard_metadata.egress_port = mov standard_metadata.egress_spec
              standard_metadata.instance_type = mov 32w0x0
              next
            }
        "#]],
        ),
        (
            "egress_start",
            expect![[r#"
            stage control egress_start {
            b0:
              standard_metadata.egress_spec = mov 9w0x0
              $output_port = mov standard_metadata.egress_port
              next
            }
        "#]],
        ),
        (
            "egress_end",
            expect![[r#"
            stage control egress_end {
            b0:
              branch $clone_flag, b1, b2
            b1:
              replicate egress_end
            b2:
              %3 = eq standard_metadata.egress_spec, 9w0x1ff
              branch %3, b3, b4
            b3:
              drop "egress drop"
            b4:
              next
            }
        "#]],
        ),
        (
            "deparse_begin",
            expect![[r#"
            stage control deparse_begin {
            b0:
              %4 = eq standard_metadata.egress_spec, 9w0x1ff
              branch %4, b1, b2
            b1:
              drop "egress drop"
            b2:
              next
            }
        "#]],
        ),
        (
            "deparse_end",
            expect![[r#"
            stage control deparse_end {
            b0:
              branch $recirculate_flag, b1, b2
            b1:
              replicate deparse_end
            b2:
              send $output_port
            }
        "#]],
        ),
        (
            "clone_begin",
            expect![[r#"
            stage control clone_begin {
            b0:
              $clone.m.kept = mov m.kept
              $clone.m.lost = mov m.lost
              $clone.standard_metadata.parser_error = mov standard_metadata.parser_error
              next
            }
        "#]],
        ),
        (
            "clone_end",
            expect![[r#"
            stage control clone_end {
            b0:
              m.kept = mov $clone.m.kept
              m.lost = mov $clone.m.lost
              standard_metadata.parser_error = mov $clone.standard_metadata.parser_error
              next
            }
        "#]],
        ),
        (
            "I",
            expect![[r#"
            stage control I {
            b0:
              mark block "I"
              standard_metadata.mcast_grp = mov 16w0x5
              $clone_session = mov 32w0x7
              $clone_flag = mov 1w0x1
              $clone_field_list = mov 16w0x1
              next
            }
        "#]],
        ),
        (
            "E",
            expect![[r#"
            stage control E {
            b0:
              mark block "E"
              $clone_session = mov 32w0x8
              $clone_flag = mov 1w0x1
              $clone_field_list = mov 16w0xffff
              $recirculate_flag = mov 1w0x1
              $recirculate_field_list = mov 16w0x1
              standard_metadata.egress_port = mov 9w0x3
              standard_metadata.egress_spec = mov 9w0x1ff
              standard_metadata.mcast_grp = mov 16w0x0
              next
            }
        "#]],
        ),
    ] {
        expected.assert_eq(&stage_text(&program, stage));
    }
    let names = |(index, slots): &(u64, Vec<ir::SlotId>)| {
        let names: Vec<&str> = slots.iter().map(|s| program.slots[s.index()].name.as_str()).collect();
        format!("{index}: {}", names.join(" "))
    };
    assert_eq!(program.field_lists.iter().map(names).collect::<Vec<_>>(), ["1: m.kept"]);
}

#[test]
fn externs_become_operations() {
    let program = V1 {
        top: "struct Learn { bit<8> p; bit<9> port; }",
        meta: "bit<8> k; bit<16> hash; bit<2> colour;",
        ingress_locals: "
            counter(16, CounterType.bytes) c; meter(4, MeterType.packets) mt; register<bit<8>>(8) r;
            direct_counter(CounterType.packets) dc; direct_meter<bit<2>>(MeterType.bytes) dm;
            action paint() { dm.read(m.colour); dc.count(); }
            table t { key = { h.a.x : exact; } actions = { paint; NoAction; } counters = dc; meters = dm; }",
        ingress: "
            c.count((bit<32>)h.a.x); mt.execute_meter(1, m.colour); r.read(m.k, 2); r.write(3, m.k);
            hash(m.hash, HashAlgorithm.crc16, 16w0, { h.a.x, m.k }, 32w1024);
            random(m.k, 1, 6); digest<Learn>(1, { m.k, s.ingress_port }); log_msg(\"k is {}\", { m.k });
            assert(m.k != 0); truncate(64); t.apply();",
        ..V1::default()
    }
    .lower();
    expect![[r#"
        stage control I {
        b0:
          mark block "I"
          %1 = zext h.a.x
          count I.c, %1
          %2 = meter I.mt, 32w0x1
          m.colour = mov %2
          %3 = read I.r, 32w0x2
          m.k = mov %3
          write I.r, 32w0x3, m.k
          %4 = hash crc16 base 16w0x0 max 32w0x400 data (h.a.x, m.k)
          m.hash = mov %4
          %5 = random 8w0x1, 8w0x6
          m.k = mov %5
          digest Learn (m.k, standard_metadata.ingress_port)
          log "k is {}" (m.k)
          %6 = ne m.k, 8w0x0
          assert %6, "assert"
          %7 = not %6
          branch %7, b1, b2
        b1:
          drop "assertion failed"
        b2:
          %8 = ult $truncate, 32w0xffffffbf
          $truncate = select %8, 32w0xffffffbf, $truncate
          %9, %10, %11, %12 = apply I.t (h.a.x)
          count_direct I.dc, 1w0x1, %11
          %13 = meter_direct I.dm, 1w0x1, %11
          branch %9, b3, b4
        b3:
          m.colour = mov %13
          jump b4
        b4:
          switch %10, 32w0x0 -> b5, default -> b6
        b5 paint:
          mark action "I.paint"
          m.colour = mov %13
          jump b6
        b6:
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "I"));
    expect![[r#"
        stage deparser D {
        b0:
          mark block "D"
          emit h.a
          %14 = not $truncate
          truncate %14
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "D"));
    let text = ir::print(&program);
    let externs: String = text
        .lines()
        .filter(|l| l.starts_with("extern "))
        .map(|l| format!("{}\n", l.split(" @").next().unwrap_or(l)))
        .collect();
    expect![[r#"
        extern I.c counter size 16 unit bytes
        extern I.mt meter size 4 unit packets
        extern I.r register size 8 width 8 initial 8w0x0
        extern I.dc counter size 1024 unit packets direct I.t
        extern I.dm meter size 1024 unit bytes direct I.t
        extern Learn digest (p: 8, port: 9)
    "#]]
    .assert_eq(&externs);
}

#[test]
fn checksums_are_hashes_under_their_condition() {
    let program = V1 {
        top: "header L { bit<16> sum; varbit<64> rest; }",
        headers: "A a; L l;",
        verify: "verify_checksum(true, { h.a.x, h.a.y, h.l.rest }, h.l.sum, HashAlgorithm.csum16);",
        compute: "update_checksum_with_payload(h.l.isValid(), { h.a.x, h.a.y }, h.l.sum, HashAlgorithm.csum16);",
        ..V1::default()
    }
    .lower();
    expect![[r#"
        stage control V {
        b0:
          mark block "V"
          mark verify "cksum_0"
          %1 = hash csum16 base 16w0x0 data (h.a.x, h.a.y, h.l.rest) varbits (2: h.l.rest.$length)
          %2 = ne %1, h.l.sum
          standard_metadata.checksum_error = or standard_metadata.checksum_error, %2
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "V"));
    expect![[r#"
        stage control C {
        b0:
          mark block "C"
          mark update "cksum"
          branch h.l.$valid, b2, b1
        b1:
          next
        b2:
          %3 = hash csum16 base 16w0x0 data (h.a.x, h.a.y) payload
          h.l.sum = mov %3
          jump b1
        }
    "#]]
    .assert_eq(&stage_text(&program, "C"));
}

#[test]
fn a_direct_meter_is_read_in_the_table_that_has_it_only() {
    let program = V1 {
        meta: "bit<2> colour;",
        ingress_locals: "
            direct_meter<bit<2>>(MeterType.bytes) dm;
            action shared() { dm.read(m.colour); }
            table a { key = { h.a.x : exact; } actions = { shared; } meters = dm; }
            table b { key = { h.a.x : exact; } actions = { shared; } }",
        ingress: "a.apply(); b.apply();",
        ..V1::default()
    }
    .lower();
    let text = stage_text(&program, "I");
    let (first, second) = text.split_once("apply I.b").expect("both tables are applied");
    assert_eq!(first.matches("meter_direct").count(), 1, "{text}");
    assert_eq!(second.matches("meter_direct").count(), 0, "{text}");
    assert!(second.contains("I.shared"), "{text}");
}

#[test]
fn what_cannot_be_done_is_refused_with_its_place() {
    let program = V1 {
        ingress_locals: "register<bit<0>>(4) odd; direct_meter<bit<2>>(MeterType.bytes) dm;",
        meta: "bit<2> colour;",
        ingress: "dm.read(m.colour);",
        ..V1::default()
    };
    expect![[r#"
        test.p4:9: E0605 register `I.odd` cannot hold values of type `bit<0>`
        test.p4:9: E0604 a direct meter is read in an action of the table that has it as `meters`
    "#]]
    .assert_eq(&program.errors());
}

#[test]
fn headers_without_a_wire_form_are_named_when_the_program_is_loaded() {
    let program = V1 {
        top: "header Odd { bit<4> a; bit<9> b; } header Var { bit<4> a; varbit<8> b; } \
              header Empty { bit<0> a; bit<8> b; }",
        headers: "Odd odd; Odd[2] odds; Var var; Empty empty;",
        states: "state start { b.extract(h.odd); b.extract(h.odds.next); b.extract(h.var, 8); \
                 b.extract(h.empty); transition accept; }",
        ..V1::default()
    };
    expect![[r#"
        test.p4:7: header `Odd` cannot be extracted: it has 13 bits, not a multiple of 8
        test.p4:7: header `Odd` cannot be extracted: it has 13 bits, not a multiple of 8
        test.p4:7: header `Var` cannot be extracted: it has 4 bits without its varbit field, not a multiple of 8
        test.p4:7: header `Empty` cannot be extracted: its field `a` has no bits
        test.p4:12: header `Odd` cannot be emitted: it has 13 bits, not a multiple of 8
    "#]]
    .assert_eq(&common::unloadable(&program.text()));
}

#[test]
fn a_program_that_explodes_when_inlined_is_refused() {
    let mut top = "void f0(inout bit<8> p) { p = p + 1; }\n".to_string();
    for i in 1..60 {
        top += &format!("void f{i}(inout bit<8> p) {{ f{}(p); f{}(p); }}\n", i - 1, i - 1);
    }
    let program = V1 { top: &top, meta: "bit<8> k;", ingress: "f59(m.k);", ..V1::default() };
    let errors = program.errors();
    assert!(errors.contains("E0611 the program has more than 100000 calls"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn no_error_is_number_zero_wherever_errors_are_declared() {
    let text = format!("error {{ Mine }}\n{}", V1::default().text());
    assert_eq!(common::lower(&text).errors[0], "NoError");
}

#[test]
fn action_parameters_are_named_as_the_control_plane_sees_them() {
    let program = V1 {
        ingress_locals: "action a(@name(\"port\") bit<9> p) { s.egress_spec = p; }
                         table t { actions = { a; } default_action = a(4); }",
        ingress: "t.apply();",
        ..V1::default()
    }
    .lower();
    let action = program.actions.iter().find(|a| a.name == "I.a").expect("it is declared");
    assert_eq!(action.params, [("port".to_string(), 9)]);
}

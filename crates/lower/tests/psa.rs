//! PSA's glue and externs as IR text: only what a program uses is emitted. `UPDATE_EXPECT=1` blesses.

mod common;

use common::{entries_text, lower, stage_text, try_lower, unloadable};
use expect_test::expect;

/// The parts of a test program; empty parts get a default that does nothing.
#[derive(Clone, Copy, Default)]
struct Psa<'a> {
    top: &'a str,
    parser: &'a str,
    ingress_locals: &'a str,
    /// By default packets go to port 1.
    ingress: &'a str,
    ingress_deparser_locals: &'a str,
    /// By default all headers are emitted.
    ingress_deparser: &'a str,
    egress: &'a str,
}

impl Psa<'_> {
    fn text(&self) -> String {
        let or = |given: &str, default: &str| if given.is_empty() { default.to_string() } else { given.to_string() };
        let ingress = or(self.ingress, "send_to_port(o, (PortId_t) 1);");
        let deparser = or(self.ingress_deparser, "b.emit(h);");
        let Psa { top, parser, ingress_locals, ingress_deparser_locals, egress, .. } = self;
        format!(
            "#include <core.p4>
#include <psa.p4>
header A {{ bit<8> x; bit<8> y; }}
{top}
struct H {{ A a; A[2] s; }}
struct M {{ bit<8> m; }}
struct C {{ bit<8> n; }}
parser IP(packet_in b, out H h, inout M m, in psa_ingress_parser_input_metadata_t i, in C r, in C c) {{
    {parser}
    state start {{ b.extract(h.a); transition accept; }}
}}
control I(inout H h, inout M m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {{
    {ingress_locals}
    apply {{ {ingress} }}
}}
control ID(packet_out b, out C c, out C r, out C n, inout H h, in M m, in psa_ingress_output_metadata_t o) {{
    {ingress_deparser_locals}
    apply {{ {deparser} }}
}}
parser EP(packet_in b, out H h, inout M m, in psa_egress_parser_input_metadata_t i, in C n, in C c, in C e) {{
    state start {{ b.extract(h.a); transition accept; }}
}}
control E(inout H h, inout M m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {{
    apply {{ {egress} }}
}}
control ED(packet_out b, out C c, out C r, inout H h, in M m, in psa_egress_output_metadata_t o,
           in psa_egress_deparser_input_metadata_t i) {{
    apply {{ b.emit(h); }}
}}
PSA_Switch(IngressPipeline(IP(), I(), ID()), PacketReplicationEngine(), EgressPipeline(EP(), E(), ED()),
           BufferingQueueingEngine()) main;\n"
        )
    }

    fn lower(&self) -> ir::Program {
        lower(&self.text())
    }

    /// The errors of a program that is rejected, without source positions.
    fn errors(&self) -> String {
        let errors = try_lower(&self.text()).err().unwrap_or_else(|| "no errors".to_string());
        errors.lines().map(|line| format!("{}\n", line.split_once(": ").map_or(line, |(_, text)| text))).collect()
    }
}

#[test]
fn a_plain_program_has_one_entry() {
    let program = Psa::default().lower();
    expect![[r#"
        entry ingress (IP, begin, I, ID, ingress_end, ID.emit, egress_start, EP, egress_begin, E, ED, egress_end, ED.emit, end)
    "#]]
    .assert_eq(&entries_text(&program));
    expect![[r#"
        stage control ingress_end {
        b0:
          branch ingress_output.drop, b1, b2
        b1:
          drop "ingress drop"
        b2:
          egress_port = mov ingress_output.egress_port
          class_of_service = mov ingress_output.class_of_service
          egress_timestamp = mov ingress_timestamp
          packet_path = mov 32w0x1
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "ingress_end"));
    expect![[r#"
        stage control end {
        b0:
          send egress_port
        }
    "#]]
    .assert_eq(&stage_text(&program, "end"));
    assert_eq!((program.cpu_port, program.cpu_session), (Some(0xffff_fffd), Some(0)));
}

#[test]
fn a_port_that_is_not_constant_may_recirculate() {
    let program = Psa { ingress: "send_to_port(o, (PortId_t) (bit<32>) h.a.x);", ..Psa::default() }.lower();
    let entries = entries_text(&program);
    assert!(entries.contains("entry reingress (again, IP, begin, "), "{entries}");
    expect![[r#"
        stage control again {
        b0:
          %4 = eq packet_path, 32w0x6
          ingress_port = select %4, 32w0xfffffffa, ingress_port
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "again"));
    expect![[r#"
        stage control end {
        b0:
          %3 = eq egress_port, 32w0xfffffffa
          branch %3, b1, b2
        b1:
          $recirculate_flag = mov 1w0x1
          $recirculate_field_list = mov 16w0x2
          replicate deparse_end
        b2:
          send egress_port
        }
    "#]]
    .assert_eq(&stage_text(&program, "end"));
}

#[test]
fn copies_have_entries_of_their_own() {
    let program = Psa {
        ingress: "o.clone = true; o.resubmit = h.a.x == 1; multicast(o, (MulticastGroup_t) 7);",
        egress: "o.clone = h.a.x == 2;",
        ..Psa::default()
    }
    .lower();
    expect![[r#"
        entry ingress (IP, begin, I, ID, ingress_end, ID.emit, egress_start, EP, egress_begin, E, ED, egress_end, ED.emit, end)
        entry reingress (again, IP, begin, I, ID, ingress_end, ID.emit, egress_start, EP, egress_begin, E, ED, egress_end, ED.emit, end)
        entry clone_ingress (clone, egress_start, EP, egress_begin, E, ED, egress_end, ED.emit, end)
        entry egress (copy, ID.emit, egress_start, EP, egress_begin, E, ED, egress_end, ED.emit, end)
        entry deparse (rest)
    "#]]
    .assert_eq(&entries_text(&program));
    let kept = |list| -> Vec<&str> {
        program.field_list(list).iter().map(|s| program.slots[s.index()].name.as_str()).collect()
    };
    assert_eq!(kept(1), ["resubmit_meta.n", "$recirculated"]);
    assert_eq!([kept(2), kept(3), kept(4)].concat(), ["recirculate_meta.n", "clone_i2e_meta.n", "clone_e2e_meta.n"]);
}

#[test]
fn deparsers_are_split_into_what_they_compute_and_what_they_emit() {
    let deparser = "b.emit(h.a); h.a.x = 1; if (m.m == 0) { b.emit(h.a); } n.n = 2;";
    let program = Psa { ingress_deparser: deparser, ..Psa::default() }.lower();
    expect![[r#"
        stage control ID {
        b0:
          mark block "ID"
          h.a.$emitted.$valid = mov h.a.$valid
          h.a.$emitted.x = mov h.a.x
          h.a.$emitted.y = mov h.a.y
          h.a.x = select h.a.$valid, 8w0x1, h.a.x
          %1 = eq m.m, 8w0x0
          branch %1, b1, b2
        b1:
          $emits = mov 1w0x1
          jump b2
        b2:
          normal_meta.n = mov 8w0x2
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "ID"));
    expect![[r#"
        stage deparser ID.emit {
        b0:
          emit h.a.$emitted
          branch $emits, b1, b2
        b1:
          emit h.a
          jump b2
        b2:
          next
        }
    "#]]
    .assert_eq(&stage_text(&program, "ID.emit"));
}

#[test]
fn checksums_in_one_block_are_one_hash() {
    let program = Psa {
        ingress_deparser_locals: "InternetChecksum() ck;",
        ingress_deparser: "ck.add({ h.a.x, h.a.y }); ck.add(16w5); n.n = ck.get()[7:0]; b.emit(h);",
        ..Psa::default()
    }
    .lower();
    let mut optimised = stage_text(&program, "ID");
    optimised.retain(|c| c != ' ');
    assert!(optimised.contains("hashcsum16base16w0x0data(%"), "{optimised}");
    assert!(optimised.contains(",16w0x5)"), "all data are in one sum\n{optimised}");
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    let loop_of_emits = "for (bit<8> k in 8w0..2) { b.emit(h.a); }";
    expect![[r#"
        E0603 `emit` in a loop is not supported in a deparser of this architecture
    "#]]
    .assert_eq(&Psa { ingress_deparser: loop_of_emits, ..Psa::default() }.errors());

    let update_in_loop = "for (bit<8> k in 8w0..2) { ck.update(k); } n.n = (bit<8>) ck.get(); b.emit(h);";
    let checksum = "Checksum<bit<16>>(PSA_HashAlgorithm_t.CRC16) ck;";
    expect![[r#"
        E0603 `update` of a `Checksum` may run again before `clear`
    "#]]
    .assert_eq(&Psa { ingress_deparser_locals: checksum, ingress_deparser: update_in_loop, ..Psa::default() }.errors());

    let empty = "ActionSelector(PSA_HashAlgorithm_t.CRC32, 8, 16) s; action a() {}
        table t { key = { h.a.x: selector; } actions = { a; NoAction; } psa_implementation = s;
                  psa_empty_group_action = a; }";
    expect![[r#"
        no errors
    "#]]
    .assert_eq(&Psa { ingress_locals: empty, ingress: "t.apply();", ..Psa::default() }.errors());
    let two = format!(
        "{empty} table u {{ key = {{ h.a.x: selector; }} actions = {{ a; NoAction; }} psa_implementation = s; }}"
    );
    expect![[r#"
        E0607 tables that share a selector run the same where a group is empty
    "#]]
    .assert_eq(&Psa { ingress_locals: &two, ingress: "t.apply(); u.apply();", ..Psa::default() }.errors());

    let counter = "DirectCounter<bit<32>>(PSA_CounterType_t.PACKETS) d; action a() { d.count(); }
        table t { key = { h.a.x: exact; } actions = { a; } }";
    expect![[r#"
        E0604 this may only be called in actions of the table that has the object as `psa_direct_counter`
    "#]]
    .assert_eq(&Psa { ingress_locals: counter, ingress: "t.apply();", ..Psa::default() }.errors());
}

#[test]
fn messages_name_the_architecture() {
    let text = Psa { top: "extern void mine(in bit<8> x);", ingress: "mine(h.a.x);", ..Psa::default() }.text();
    expect![[r#"
        test.p4:14: extern function `mine` has no implementation in this switch
    "#]]
    .assert_eq(&unloadable(&text));
}

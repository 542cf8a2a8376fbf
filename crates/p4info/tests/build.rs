//! From P4 source to P4Info: one program with an object of every kind, small ones for the rules.

use expect_test::{Expect, expect};
use std::sync::Arc;
use syntax::{FileLoader, SourceInput};

struct Embedded;

impl FileLoader for Embedded {
    fn read(&self, _: &str) -> Result<Option<Arc<str>>, String> {
        Ok(None)
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        sema::embedded(name).map(Into::into)
    }
}

fn build(text: &str) -> (p4info::P4Info, Vec<String>) {
    let mut sources = base::SourceMap::new();
    let source = SourceInput { name: "test.p4".into(), text: text.into() };
    let parsed = syntax::parse_program(source, &syntax::Options::default(), &Embedded, &mut sources);
    let checked = sema::check(&parsed.program, &sources);
    let all: Vec<_> = parsed.diagnostics.iter().chain(&checked.diagnostics).collect();
    let errors: String =
        all.iter().filter(|d| d.severity == base::Severity::Error).map(|d| d.render(&sources, false)).collect();
    let program = checked.program.unwrap_or_else(|| panic!("{errors}"));
    assert_eq!(errors, "");
    let (info, diags) = p4info::build(&program, &sources, "v1model");
    (info, diags.into_iter().map(|d| format!("{}: {}", d.code, d.message)).collect())
}

/// A v1model program with these declarations before and in its ingress.
fn program(top: &str, ingress: &str, apply: &str) -> String {
    format!(
        r#"
#include <core.p4>
#include <v1model.p4>
{top}
header eth_t {{ bit<48> dst; bit<48> src; bit<16> type; }}
struct headers_t {{ eth_t eth; }}
struct meta_t {{ bit<9> port; bit<8> group; }}
parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    value_set<bit<16>>(4) types;
    state start {{ p.extract(hdr.eth); transition select(hdr.eth.type) {{ types: accept; default: accept; }} }}
}}
control check_sums(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control compute(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
{ingress}
    apply {{ {apply} }}
}}
control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
control dep(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr.eth); }} }}
@pkginfo(name = "test", version = "1.2")
V1Switch(prs(), check_sums(), ingress(), egress(), compute(), dep()) main;
"#
    )
}

fn check(source: &str, expected: Expect) {
    let (info, diags) = build(source);
    assert_eq!(diags, Vec::<String>::new());
    let text = p4info::text::print(&info);
    expected.assert_eq(text.split_once("\n\n").expect("a header").1);
}

const EVERYTHING_TOP: &str = r#"
@p4runtime_translation("acme.com/port", 32) type bit<9> port_id_t;
@p4runtime_translation("acme.com/vrf", string) type bit<10> vrf_t;
@controller_header("packet_in") header packet_in_t { port_id_t ingress_port; bit<7> pad; }
struct learn_t { bit<48> mac; bit<9> port; }
"#;

const EVERYTHING_INGRESS: &str = r#"
    @brief("Sends") action forward(@id(7) port_id_t port, bit<48> mac) { sm.egress_spec = (bit<9>)port; }
    action discard() { mark_to_drop(sm); }
    action learn() { digest<learn_t>(1, { hdr.eth.src, sm.ingress_port }); }
    action unused() { }
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.bytes) police;
    bit<2> colour;
    @my_note("x") @description("Layer 2")
    table l2 {
        key = { hdr.eth.dst : exact @name("dmac"); sm.ingress_port : ternary; hdr.eth.type : optional; }
        actions = { forward; @tableonly discard; @defaultonly learn; }
        default_action = learn();
        counters = hits;
        meters = police;
        size = 64;
        support_timeout = true;
    }
    @max_group_size(8) action_selector(HashAlgorithm.crc16, 32w128, 32w16) sel;
    table ecmp {
        key = { meta.group : lpm; hdr.eth.src : selector; }
        actions = { forward; }
        implementation = sel;
    }
    table fixed {
        key = { meta.port : range; }
        actions = { forward; discard; }
        const default_action = forward((port_id_t)9w5, 48w1);
        const entries = { 9w1..9w3 : discard(); }
    }
    table unused_table { actions = { unused; } }
    counter(100, CounterType.bytes) tally;
    meter(10, MeterType.packets) limit;
    register<bit<32>>(16) seen;
"#;

#[test]
fn every_kind_of_object() {
    let apply = "if (l2.apply().hit) { ecmp.apply(); } fixed.apply(); tally.count(1); limit.execute_meter(1, colour); seen.write(0, 1);";
    check(
        &program(EVERYTHING_TOP, EVERYTHING_INGRESS, apply),
        expect![[r#"
            pkg_info {
              name: "test"
              version: "1.2"
              arch: "v1model"
            }
            tables {
              preamble {
                id: 41579476
                name: "ingress.l2"
                alias: "l2"
                annotations: "@my_note(\"x\")"
                annotation_locations {
                  file: "test.p4"
                  line: 28
                  column: 5
                }
                doc {
                  description: "Layer 2"
                }
              }
              match_fields {
                id: 1
                name: "dmac"
                bitwidth: 48
                match_type: EXACT
              }
              match_fields {
                id: 2
                name: "sm.ingress_port"
                bitwidth: 9
                match_type: TERNARY
              }
              match_fields {
                id: 3
                name: "hdr.eth.type"
                bitwidth: 16
                match_type: OPTIONAL
              }
              action_refs {
                id: 26512162
              }
              action_refs {
                id: 17861936
                annotations: "@tableonly"
                annotation_locations {
                  file: "test.p4"
                  line: 31
                  column: 30
                }
                scope: TABLE_ONLY
              }
              action_refs {
                id: 30654149
                annotations: "@defaultonly"
                annotation_locations {
                  file: "test.p4"
                  line: 31
                  column: 50
                }
                scope: DEFAULT_ONLY
              }
              initial_default_action {
                action_id: 30654149
              }
              direct_resource_ids: 334964341
              direct_resource_ids: 364211872
              size: 64
              idle_timeout_behavior: NOTIFY_CONTROL
            }
            tables {
              preamble {
                id: 48109069
                name: "ingress.ecmp"
                alias: "ecmp"
              }
              match_fields {
                id: 1
                name: "meta.group"
                bitwidth: 8
                match_type: LPM
              }
              action_refs {
                id: 26512162
              }
              action_refs {
                id: 21257015
                annotations: "@defaultonly"
                scope: DEFAULT_ONLY
              }
              initial_default_action {
                action_id: 21257015
              }
              implementation_id: 286626859
              size: 1024
            }
            tables {
              preamble {
                id: 38562165
                name: "ingress.fixed"
                alias: "fixed"
              }
              match_fields {
                id: 1
                name: "meta.port"
                bitwidth: 9
                match_type: RANGE
              }
              action_refs {
                id: 26512162
              }
              action_refs {
                id: 17861936
              }
              const_default_action_id: 26512162
              initial_default_action {
                action_id: 26512162
                arguments {
                  param_id: 7
                  value: "\005"
                }
                arguments {
                  param_id: 2
                  value: "\001"
                }
              }
              size: 1024
              is_const_table: true
              has_initial_entries: true
            }
            actions {
              preamble {
                id: 26512162
                name: "ingress.forward"
                alias: "forward"
                doc {
                  brief: "Sends"
                }
              }
              params {
                id: 7
                name: "port"
                bitwidth: 32
                type_name {
                  name: "port_id_t"
                }
              }
              params {
                id: 2
                name: "mac"
                bitwidth: 48
              }
            }
            actions {
              preamble {
                id: 17861936
                name: "ingress.discard"
                alias: "discard"
              }
            }
            actions {
              preamble {
                id: 30654149
                name: "ingress.learn"
                alias: "learn"
              }
            }
            actions {
              preamble {
                id: 21257015
                name: "NoAction"
                alias: "NoAction"
              }
            }
            action_profiles {
              preamble {
                id: 286626859
                name: "ingress.sel"
                alias: "sel"
              }
              table_ids: 48109069
              with_selector: true
              size: 128
              max_group_size: 8
            }
            counters {
              preamble {
                id: 303062161
                name: "ingress.tally"
                alias: "tally"
              }
              spec {
                unit: BYTES
              }
              size: 100
            }
            direct_counters {
              preamble {
                id: 334964341
                name: "ingress.hits"
                alias: "hits"
              }
              spec {
                unit: BOTH
              }
              direct_table_id: 41579476
            }
            meters {
              preamble {
                id: 350165886
                name: "ingress.limit"
                alias: "limit"
              }
              spec {
                unit: PACKETS
              }
              size: 10
            }
            direct_meters {
              preamble {
                id: 364211872
                name: "ingress.police"
                alias: "police"
              }
              spec {
                unit: BYTES
              }
              direct_table_id: 41579476
            }
            controller_packet_metadata {
              preamble {
                id: 80671331
                name: "packet_in"
                alias: "packet_in"
                annotations: "@controller_header(\"packet_in\")"
                annotation_locations {
                  file: "test.p4"
                  line: 7
                  column: 1
                }
              }
              metadata {
                id: 1
                name: "ingress_port"
                bitwidth: 32
                type_name {
                  name: "port_id_t"
                }
              }
              metadata {
                id: 2
                name: "pad"
                bitwidth: 7
              }
            }
            value_sets {
              preamble {
                id: 54412711
                name: "prs.types"
                alias: "types"
              }
              match {
                id: 1
                bitwidth: 16
                match_type: EXACT
              }
              size: 4
            }
            registers {
              preamble {
                id: 373383609
                name: "ingress.seen"
                alias: "seen"
              }
              type_spec {
                bitstring {
                  bit {
                    bitwidth: 32
                  }
                }
              }
              size: 16
            }
            digests {
              preamble {
                id: 398033514
                name: "learn_t"
                alias: "learn_t"
              }
              type_spec {
                struct {
                  name: "learn_t"
                }
              }
            }
            type_info {
              structs {
                key: "learn_t"
                value {
                  members {
                    name: "mac"
                    type_spec {
                      bitstring {
                        bit {
                          bitwidth: 48
                        }
                      }
                    }
                  }
                  members {
                    name: "port"
                    type_spec {
                      bitstring {
                        bit {
                          bitwidth: 9
                        }
                      }
                    }
                  }
                }
              }
              new_types {
                key: "port_id_t"
                value {
                  translated_type {
                    uri: "acme.com/port"
                    sdn_bitwidth: 32
                  }
                }
              }
            }
        "#]],
    );
}

#[test]
fn ids_can_be_given() {
    let ingress = r#"
        @id(0x12) action a() { }
        @id(0x02000034) table t { key = { meta.port : exact @id(9); meta.group : exact; } actions = { a; } }
    "#;
    let (info, diags) = build(&program("", ingress, "t.apply();"));
    assert_eq!(diags, Vec::<String>::new());
    assert_eq!(info.tables[0].preamble.id, 0x0200_0034);
    assert_eq!(info.actions[0].preamble.id, 0x0100_0012);
    assert_eq!(info.tables[0].match_fields.iter().map(|f| f.id).collect::<Vec<_>>(), [9, 2]);
}

#[test]
fn wrong_ids_are_reported_together() {
    let ingress = r#"
        @id(5) action a(@id(1) bit<8> x, @id(1) bit<8> y) { }
        @id(5) action b() { }
        @id(0x01000001) table t { key = { meta.port : exact; } actions = { a; b; } }
    "#;
    let (_, diags) = build(&program("", ingress, "t.apply();"));
    let expected = expect![[r#"
        E0690: wrong id for action `ingress.b`: `ingress.a` has the same `@id`
        E0690: wrong id for table `ingress.t`: the top byte of `@id` must be 0 or 0x02 here
        E0690: `@id(1)` is used twice here"#]];
    expected.assert_eq(&diags.join("\n"));
}

#[test]
fn what_cannot_run_is_left_out() {
    let ingress = r#"
        action called(bit<8> x) { meta.group = x; }
        action inner() { meta.group = 1; }
        action outer() { inner(); }
        action unused() { }
        table never { key = { meta.port : exact; } actions = { unused; } }
        table t { key = { meta.port : exact; } actions = { outer; } }
    "#;
    let (info, _) = build(&program("", ingress, "called(3); t.apply();"));
    let names: Vec<_> = info.actions.iter().map(|a| (a.preamble.name.as_str(), a.params.len())).collect();
    // What is only called takes nothing from the control plane.
    assert_eq!(names, [("ingress.called", 0), ("ingress.outer", 0), ("NoAction", 0)]);
    assert_eq!(info.tables.iter().map(|t| t.preamble.name.as_str()).collect::<Vec<_>>(), ["ingress.t"]);
}

#[test]
fn fields_of_structs_in_a_value_set_stand_in_their_place() {
    let source = program("struct inner_t { bit<9> port; } struct outer_t { bit<16> type; inner_t from; }", "", "")
        .replace("value_set<bit<16>>(4) types;", "value_set<outer_t>(4) types;")
        .replace("select(hdr.eth.type)", "select(hdr.eth.type, sm.ingress_port)");
    let (info, diags) = build(&source);
    assert_eq!(diags, Vec::<String>::new());
    let fields: Vec<_> = info.value_sets[0].match_fields.iter().map(|f| (f.id, f.name.as_str(), f.bitwidth)).collect();
    assert_eq!(fields, [(1, "type", 16), (2, "from.port", 9)]);
}

#[test]
fn annotations_say_where_they_are() {
    let ingress = "@plain(1)\n  @structured[a = 1] action nop() {}\n#line 40 \"other.p4\"\n@moved\ntable t { actions = { nop; } }";
    let source = program("", ingress, "t.apply();");
    let (info, _) = build(&source);
    let column = |text: &str| 1 + source.lines().find_map(|line| line.find(text)).expect("it is there") as u32;
    let action = info.actions.iter().find(|a| a.preamble.name.ends_with("nop")).expect("it can run");
    let at = |file: &str, line, column| p4info::model::SourceLocation { file: file.into(), line, column };
    let of = &action.preamble.annotations;
    assert_eq!(of.plain, ["@plain(1)"]);
    let line = source.lines().position(|line| line.contains("@plain")).expect("it is there") as u32 + 1;
    assert_eq!(of.plain_at, [at("test.p4", line, column("@plain"))]);
    assert_eq!(of.structured[0].at, at("test.p4", line + 1, column("@structured")));
    assert_eq!(info.tables[0].preamble.annotations.plain_at, [at("other.p4", 40, 1)]);
}

/// Code, message, and the source text that is pointed at.
fn complaints(text: &str) -> Vec<String> {
    let mut sources = base::SourceMap::new();
    let source = SourceInput { name: "test.p4".into(), text: text.into() };
    let parsed = syntax::parse_program(source, &syntax::Options::default(), &Embedded, &mut sources);
    let program = sema::check(&parsed.program, &sources).program.expect("it is well typed");
    let (_, diags) = p4info::build(&program, &sources, "v1model");
    let at = |span: base::Span| &text[span.start as usize..span.end as usize];
    diags.iter().map(|d| format!("{}: {} «{}»", d.code, d.message, at(d.span))).collect()
}

#[test]
fn restrictions_are_read_with_the_names_and_widths_of_the_data_plane() {
    let top = r#"@p4runtime_translation("", string) type bit<10> vrf_t;"#;
    let ingress = r#"
        @action_restriction("to != 511; vrf != 0x3ff") action a(bit<9> to, @name("vrf") vrf_t v) { sm.egress_spec = to; }
        @entry_restriction(
            "group::mask != 0 -> group::mask == -1;"
            "meta.port == 3 && ::priority < 9")
        table t { key = { meta.port : exact; meta.group : ternary @name("group"); } actions = { a; } }
    "#;
    let (info, diags) = build(&program(top, ingress, "t.apply();"));
    assert_eq!(diags, Vec::<String>::new());
    assert!(info.tables[0].restriction.is_some());
    let action = info.actions.iter().find(|a| a.preamble.name == "ingress.a").unwrap();
    assert!(action.restriction.is_some());
    let annotation = &info.tables[0].preamble.annotations.plain[0];
    assert!(annotation.starts_with("@entry_restriction(\"group::mask"), "{annotation}");
}

#[test]
fn a_clause_that_does_not_fit_its_table_is_a_warning_and_not_enforced() {
    let ingress = r#"
        action a() {}
        @entry_restriction("
            group::prefix_length == 0;
            group::mask == 0;
        ") table t { key = { meta.group : ternary @name("group"); } actions = { a; } }
    "#;
    let (info, _) = build(&program("", ingress, "t.apply();"));
    let found = complaints(&program("", ingress, "t.apply();"));
    let message = "a field of type `ternary<8>` has no `prefix_length`; this clause is not enforced";
    assert_eq!(found, [format!("W0696: `@entry_restriction`: {message} «group::prefix_length»")]);
    let restriction = info.tables[0].restriction.as_ref().unwrap();
    let key = |mask| [base::entry::KeyMatch::Ternary { value: base::Bits::zero(8), mask: base::Bits::new(8, mask) }];
    assert!(restriction.check(constraints::Values::Entry(&key(0), 1)).is_ok());
    assert_eq!(restriction.check(constraints::Values::Entry(&key(1), 1)), Err("group::mask == 0"));
}

#[test]
fn directives_choose_the_clauses_of_a_restriction() {
    let ingress = r#"
        action a() {}
        @entry_restriction("
            // Comments stay.
#if WIDE
            meta.port < 4;
#else
            meta.port < 2;
#endif
        ") table t { key = { meta.port : exact; } actions = { a; } }
    "#;
    let (info, diags) = build(&program("", ingress, "t.apply();"));
    assert_eq!(diags, Vec::<String>::new());
    let annotation = &info.tables[0].preamble.annotations.plain[0];
    let lines: Vec<&str> = annotation.split('\n').map(str::trim).collect();
    assert_eq!(
        lines,
        ["@entry_restriction(\"", "// Comments stay.", "", "", "", "meta.port < 2;", "", "\")"],
        "{annotation}"
    );
}

#[test]
fn wrong_restrictions_are_reported_where_they_stand() {
    let ingress = r#"
        @action_restriction("
            to < 4;
            from == 1") action a(bit<9> to) { sm.egress_spec = to; }
        @entry_restriction("meta.port == 3;" "meta.group > ") table t { key = { meta.port : exact; } actions = { a; } }
        @entry_restriction(meta.port == 3) table u { key = { meta.port : exact; } actions = { a; } }
        @entry_restriction("meta.port::mask == 0 && \\ true") table v { key = { meta.port : ternary; } actions = { a; } }
    "#;
    let found = complaints(&program("", ingress, "t.apply(); u.apply(); v.apply();"));
    let expected = expect![[r#"
        W0696: `@action_restriction`: there is no `from` here; this clause is not enforced «from»
        E0695: `@entry_restriction`: expected a condition, a name or a number, but the constraint ends «»
        E0695: `@entry_restriction` takes a constraint as a string «@entry_restriction(meta.port == 3)»
        E0695: `@entry_restriction`: `\` means nothing in a constraint «\»"#]];
    expected.assert_eq(&found.join("\n"));
}

#[test]
fn maps_of_filters_are_counters_registers_and_sizes() {
    let filter = "#include <ebpf_model.p4>
struct H {}
parser P(packet_in b, out H h) { state start { transition accept; } }
control F(inout H h, out bool pass) {
    CounterArray(99, true) seen;
    action a() { pass = true; }
    table t { key = { 8w1: exact @name(\"k\"); } actions = { a; NoAction; } default_action = NoAction; implementation = hash_table(7); }
    table u { key = { 8w1: exact @name(\"k\"); } actions = { a; NoAction; } default_action = NoAction; implementation = array_table(9); }
    apply { seen.increment(1); t.apply(); u.apply(); }
}
ebpfFilter(P(), F()) main;";
    let (info, complaints) = build(filter);
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(info.tables.iter().map(|t| (t.size, t.implementation_id)).collect::<Vec<_>>(), [(7, None), (9, None)]);
    let counter = &info.counters[0];
    assert_eq!((&*counter.preamble.name, counter.size), ("F.seen", 100));
    assert_eq!(counter.unit, p4info::model::CounterUnit::Both);

    let program = "#include <ubpf_model.p4>
struct H {}
struct M {}
struct V { bit<8> a; bit<16> b; }
parser P(packet_in b, out H h, inout M m, inout standard_metadata s) { state start { transition accept; } }
control C(inout H h, inout M m, inout standard_metadata s) {
    Register<V, bit<32>>(32) r;
    apply { V v = r.read(1); r.write(2, v); }
}
control D(packet_out b, in H h) { apply {} }
ubpf(P(), C(), D()) main;";
    let (info, complaints) = build(program);
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!((&*info.registers[0].preamble.name, info.registers[0].size), ("C.r", 32));
}

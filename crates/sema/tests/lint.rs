//! Warnings: the whole text of each, near misses that must stay silent, and `@noWarn`. (`cargo xtask scale` has their cost.)
//!
//! Programs are for a small architecture in [`ARCH`], which has v1model's shape.

use expect_test::{Expect, expect};

const ARCH: &str = "\
#include <core.p4>
struct std_t { bit<9> port; }
parser Parser<H, M>(packet_in b, out H h, inout M m, inout std_t std);
control Pipe<H, M>(inout H h, inout M m, inout std_t std);
control Deparser<H>(packet_out b, in H h);
package Switch<H, M>(Parser<H, M> p, Pipe<H, M> ingress, Pipe<H, M> egress, Deparser<H> d);
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
header ip_t { bit<8> ttl; bit<8> proto; bit<32> dst; }
header tcp_t { bit<16> port; }
";

struct Files;

impl syntax::FileLoader for Files {
    fn read(&self, name: &str) -> Result<Option<std::sync::Arc<str>>, String> {
        Ok(name.ends_with("arch.p4").then(|| ARCH.into()))
    }

    fn embedded(&self, name: &str) -> Option<std::sync::Arc<str>> {
        sema::embedded(name).map(Into::into)
    }
}

fn check(text: &str) -> (sema::Checked, base::SourceMap, syntax::ast::Program) {
    let mut sources = base::SourceMap::new();
    let input = syntax::SourceInput { name: "test.p4".to_string(), text: text.into() };
    let parsed = syntax::parse_program(input, &syntax::Options::default(), &Files, &mut sources);
    assert!(parsed.diagnostics.is_empty(), "{}", parsed.diagnostics[0].render(&sources, false));
    (sema::check(&parsed.program, &sources), sources, parsed.program)
}

/// All warnings about a program, as text. There is no error.
fn warnings(text: &str) -> String {
    let (checked, sources, _) = check(text);
    let text = checked.diagnostics.iter().map(|d| d.render(&sources, false)).collect::<Vec<_>>().join("\n");
    assert!(checked.program.is_some(), "{text}");
    text
}

fn silent(text: &str) {
    assert_eq!(warnings(text), "", "{text}");
}

/// A program with an Ethernet header always, IP under a condition, TCP in some IP; what is given stands in the ingress control.
fn pipeline(ingress: &str, apply: &str) -> String {
    pipeline_and("", ingress, apply, "")
}

fn pipeline_and(fields: &str, ingress: &str, apply: &str, egress: &str) -> String {
    format!(
        "#include \"arch.p4\"
struct headers {{ eth_t eth; ip_t ip; tcp_t tcp; {fields} }}
struct meta {{ bit<8> class; bit<8> other; }}
parser P(packet_in b, out headers h, inout meta m, inout std_t std) {{
    state start {{ b.extract(h.eth); transition select(h.eth.type) {{ 0x800: ip; default: accept; }} }}
    state ip {{ b.extract(h.ip); transition select(h.ip.proto) {{ 6: tcp; default: accept; }} }}
    state tcp {{ b.extract(h.tcp); transition accept; }}
}}
control I(inout headers h, inout meta m, inout std_t std) {{
{ingress}
    apply {{
{apply}
    }}
}}
control E(inout headers h, inout meta m, inout std_t std) {{ apply {{ {egress} }} }}
control D(packet_out b, in headers h) {{ apply {{ b.emit(h); }} }}
Switch(P(), I(), E(), D()) main;
"
    )
}

/// A control without package.
fn control(params: &str, locals: &str, apply: &str) -> String {
    format!("#include \"arch.p4\"\ncontrol c({params}) {{\n{locals}\napply {{\n{apply}\n}} }}\n")
}

/// A parser without package.
fn parser(states: &str) -> String {
    format!(
        "#include \"arch.p4\"\nstruct headers {{ eth_t eth; ip_t ip; }}\nparser p(packet_in b, out headers h) {{\n{states}\n}}\n"
    )
}

fn expects(text: &str, expected: Expect) {
    expected.assert_eq(&warnings(text));
}

// -------------------------------------------------------------------------------------------------- W0801, W0802

#[test]
fn a_variable_without_value() {
    expects(
        &control("inout bit<8> a", "", "bit<8> x;\na = x + x;"),
        expect![[r#"
        warning[W0801]: the variable `x` is read before it has a value
         --> test.p4:6:5
          |
        5 | bit<8> x;
          |        - declared here
        6 | a = x + x;
          |     ^ no value on any path to here
          |
          = help: assign it on every path before, or where it is declared: x = …;
    "#]],
    );
}

#[test]
fn a_variable_without_value_on_some_path() {
    expects(
        &control("inout bit<8> a", "", "bit<8> x;\nif (a == 1) { x = 2; }\na = x;"),
        expect![[r#"
        warning[W0801]: the variable `x` may be read before it has a value
         --> test.p4:7:5
          |
        5 | bit<8> x;
          |        - declared here
        6 | if (a == 1) { x = 2; }
        7 | a = x;
          |     ^ no value on some path to here
          |
          = help: assign it on every path before, or where it is declared: x = …;
    "#]],
    );
}

#[test]
fn a_variable_that_only_some_actions_of_a_table_assign() {
    let locals = "bit<8> x;\naction set(bit<8> v) { x = v; }\n\
                  table t { key = { a: exact; } actions = { set; NoAction; } default_action = NoAction(); }";
    expects(
        &control("inout bit<8> a", locals, "t.apply();\na = x;"),
        expect![[r#"
        warning[W0801]: the variable `x` may be read before it has a value
         --> test.p4:8:5
          |
        3 | bit<8> x;
          |        - declared here
        ...
        8 | a = x;
          |     ^ no value on some path to here
          |
          = help: assign it on every path before, or where it is declared: x = …;
    "#]],
    );
}

#[test]
fn a_variable_of_a_parser_in_a_loop() {
    let states = "bit<8> n;\nstate start { b.extract(h.eth); transition select(n) { 0: accept; default: more; } }\n\
                  state more { n = n - 1; transition start; }";
    expects(
        &parser(states),
        expect![[r#"
        warning[W0801]: the variable `n` may be read before it has a value
         --> test.p4:5:51
          |
        4 | bit<8> n;
          |        - declared here
        5 | state start { b.extract(h.eth); transition select(n) { 0: accept; default: more; } }
          |                                                   ^ no value on some path to here
          |
          = help: assign it on every path before, or where it is declared: n = …;
    "#]],
    );
}

#[test]
fn a_field_of_a_struct_and_an_out_parameter_read() {
    let text = control("inout bit<8> a", "", "pair p;\np.a = 1;\na = p.a + p.b;\nf(a);");
    let before = "struct pair { bit<8> a; bit<8> b; }\nvoid f(out bit<8> r) { r = r + 1; }\ncontrol";
    expects(
        &text.replace("control", before),
        expect![[r#"
        warning[W0801]: the parameter `r` is read before it has a value
         --> test.p4:3:28
          |
        3 | void f(out bit<8> r) { r = r + 1; }
          |                   -        ^ no value on any path to here
          |                   |
          |                   an `out` parameter has no value at the start
          |
          = help: assign it first, or make the parameter `inout`

        warning[W0801]: the variable `p.b` is read before it has a value
         --> test.p4:9:11
          |
        7 | pair p;
          |      - declared here
        8 | p.a = 1;
        9 | a = p.a + p.b;
          |           ^^^ no value on any path to here
          |
          = help: assign it on every path before
    "#]],
    );
}

#[test]
fn unwritten_out_parameters() {
    expects(
        "#include \"arch.p4\"\nvoid never(out bit<8> r) { }\n\
         void sometimes(in bool c, out bit<8> r) { if (c) { r = 1; } }\n\
         struct pair { bit<8> a; bit<8> b; }\naction part(out pair p) { p.a = 1; }\n",
        expect![[r#"
            warning[W0802]: the `out` parameter `r` is never written
             --> test.p4:2:23
              |
            2 | void never(out bit<8> r) { }
              |                       ^ the caller gets an undefined value
              |
              = help: assign `r` at the start, or make the parameter `inout` to keep the caller's value

            warning[W0802]: the `out` parameter `r` is not written on every path
             --> test.p4:3:38
              |
            3 | void sometimes(in bool c, out bit<8> r) { if (c) { r = 1; } }
              |                                      ^ the caller gets an undefined value
              |
              = help: assign `r` at the start, or make the parameter `inout` to keep the caller's value

            warning[W0802]: the `out` parameter `p.b` is never written
             --> test.p4:5:22
              |
            5 | action part(out pair p) { p.a = 1; }
              |                      ^ the caller gets an undefined value
              |
              = help: assign `p.b` at the start, or make the parameter `inout` to keep the caller's value
        "#]],
    );
}

#[test]
fn variables_with_values_are_silent() {
    let a = "inout bit<8> a";
    // Both branches; every case; a return on the other path; a struct as a whole; an `out` argument; a slice.
    silent(&control(a, "", "bit<8> x; if (a == 1) { x = 1; } else { x = 2; } a = x;"));
    silent(&control(a, "", "bit<8> x; switch (a) { 1: { x = 1; } default: { x = 2; } } a = x;"));
    silent(&control(a, "", "bit<8> x; if (a == 1) { x = 1; } else { return; } a = x;"));
    silent(&control(a, "", "bit<8> x; for (bit<8> i in 0 .. 3) { x = i; } a = x;"));
    silent(&control(a, "", "bit<8> x; x[3:0] = 1; a = x;"));
    silent(&control(a, "action set(out bit<8> r) { r = 1; }", "bit<8> x; set(x); a = x;"));
    silent(&control(a, "", "tuple<bit<8>, bit<8>> t = { 1, a }; a = t[0];"));
    silent(&control(a, "eth_t h;", "h.setValid(); a = h.type[7:0];"));
    // All actions of the table assign; the case of the action that does.
    let table = "bit<8> x; action s(bit<8> v) { x = v; } action z() { x = 0; }\n\
                 table t { key = { a: exact; } actions = { s; z; } default_action = z(); }";
    silent(&control(a, table, "t.apply(); a = x;"));
    let table = "bit<8> x; action s(bit<8> v) { x = v; }\n\
                 table t { key = { a: exact; } actions = { s; NoAction; } default_action = NoAction(); }";
    silent(&control(a, table, "switch (t.apply().action_run) { s: { a = x; } }"));
    silent(&control(a, table, "if (t.apply().hit) { a = x; }"));
    // Conditions that go together are beyond this analysis.
    silent(&control(a, "", "bit<8> x; if (a == 1) { x = 1; } if (a == 1) { a = x; }"));
    silent(&control(a, "", "bit<8> x; if (a < 2) { x = 1; } if (a == 3) {} else { x = 2; } a = x;"));
    silent(
        "#include \"arch.p4\"\nvoid f(out bit<8> r) { r = 1; }\nbool g(in bool c, out bit<8> r) { if (c) { r = 0; return c; } r = 1; return false; }\n",
    );
}

// -------------------------------------------------------------------------------------------------- W0803, W0804

#[test]
fn a_header_that_is_invalid() {
    expects(
        &control("inout bit<8> a", "ip_t ip;", "ip.ttl = 1;\nip.setValid();"),
        expect![[r#"
        warning[W0803]: a field of `ip` is written, but the header is invalid
         --> test.p4:5:1
          |
        3 | ip_t ip;
          |      -- the header
        4 | apply {
        5 | ip.ttl = 1;
          | ^^^^^^ does nothing: invalid on every path to here
          |
          = help: call setValid() before
    "#]],
    );
    expects(
        &pipeline("", "h.ip.setInvalid();\nm.class = h.ip.ttl;"),
        expect![[r#"
        warning[W0803]: a field of `h.ip` is read, but the header is invalid
          --> test.p4:13:11
           |
         2 | struct headers { eth_t eth; ip_t ip; tcp_t tcp;  }
           |                                  -- the header
        ...
        13 | m.class = h.ip.ttl;
           |           ^^^^^^^^ invalid on every path to here
           |
           = help: extract it, or call setValid() and write its fields before
    "#]],
    );
    expects(
        &pipeline("", "if (!h.ip.isValid()) {\nm.class = h.ip.ttl; }"),
        expect![[r#"
        warning[W0803]: a field of `h.ip` is read, but the header is invalid
          --> test.p4:13:11
           |
         2 | struct headers { eth_t eth; ip_t ip; tcp_t tcp;  }
           |                                  -- the header
        ...
        13 | m.class = h.ip.ttl; }
           |           ^^^^^^^^ invalid on every path to here
           |
           = help: extract it, or call setValid() and write its fields before
    "#]],
    );
}

#[test]
fn a_header_that_no_parser_extracts() {
    let text = pipeline_and("ip_t outer;", "", "h.outer.ttl = 64;", "");
    expects(
        &text,
        expect![[r#"
        warning[W0803]: a field of `h.outer` is written, but the header is invalid
          --> test.p4:12:1
           |
         2 | struct headers { eth_t eth; ip_t ip; tcp_t tcp; ip_t outer; }
           |                                                      ----- the header
        ...
        12 | h.outer.ttl = 64;
           | ^^^^^^^^^^^ does nothing: invalid on every path to here
           |
           = help: call setValid() before
    "#]],
    );
}

#[test]
fn a_stack_without_valid_header_and_a_member_of_a_union() {
    expects(
        &control("inout bit<8> a", "ip_t[2] s;", "a = s[0].ttl;"),
        expect![[r#"
            warning[W0803]: a field of `s` is read, but every header of the stack is invalid
             --> test.p4:5:5
              |
            3 | ip_t[2] s;
              |         - the stack
            4 | apply {
            5 | a = s[0].ttl;
              |     ^^^^^^^^ invalid on every path to here
              |
              = help: extract it, or call setValid() and write its fields before
        "#]],
    );
    let union = "header_union u_t { ip_t ip; tcp_t tcp; }\ncontrol";
    let text = control("inout bit<8> a", "u_t u;", "u.ip.setValid();\nu.tcp.setValid();\na = u.ip.ttl;");
    expects(
        &text.replace("control", union),
        expect![[r#"
        warning[W0803]: a field of `u.ip` is read, but the header is invalid
         --> test.p4:8:5
          |
        2 | header_union u_t { ip_t ip; tcp_t tcp; }
          |                         -- the header
        ...
        8 | a = u.ip.ttl;
          |     ^^^^^^^^ invalid on every path to here
          |
          = help: extract it, or call setValid() and write its fields before
    "#]],
    );
}

#[test]
fn a_header_that_may_be_invalid() {
    let table = "action hop() { h.ip.ttl = h.ip.ttl - 1; }\n\
                 table route { key = { h.ip.dst: exact; } actions = { hop; NoAction; } }";
    expects(
        &pipeline(table, "route.apply();"),
        expect![[r#"
        warning[W0804]: a field of `h.ip` is read while the header may be invalid
          --> test.p4:10:27
           |
         2 | struct headers { eth_t eth; ip_t ip; tcp_t tcp;  }
           |                                  -- the header
        ...
        10 | action hop() { h.ip.ttl = h.ip.ttl - 1; }
           |                           ^^^^^^^^ maybe invalid: not valid on every path, and isValid() is not tested
           |
           = help: put it under if (h.ip.isValid())
    "#]],
    );
    // In the egress control, and in an action.
    expects(
        &pipeline_and("", "", "", "m.class = h.tcp.port[7:0];"),
        expect![[r#"
        warning[W0804]: a field of `h.tcp` is read while the header may be invalid
          --> test.p4:15:79
           |
         2 | struct headers { eth_t eth; ip_t ip; tcp_t tcp;  }
           |                                            --- the header
        ...
        15 | control E(inout headers h, inout meta m, inout std_t std) { apply { m.class = h.tcp.port[7:0]; } }
           |                                                                               ^^^^^^^^^^^^^^^ maybe invalid: not valid on every path, and isValid() is not tested
           |
           = help: put it under if (h.tcp.isValid())
    "#]],
    );
}

#[test]
fn headers_that_another_parser_extracts() {
    let program = |condition: &str| {
        format!(
            "#include \"arch.p4\"
struct headers {{ eth_t eth; ip_t ip; tcp_t tcp; }}
struct meta {{ bit<8> class; }}
parser Transport(packet_in b, out ip_t ip, out tcp_t tcp) {{
    state start {{ b.extract(ip); transition select(ip.proto) {{ 6: more; default: accept; }} }}
    state more {{ b.extract(tcp); transition accept; }}
}}
parser P(packet_in b, out headers h, inout meta m, inout std_t std) {{
    state start {{ b.extract(h.eth); transition select(h.eth.type) {{ 0x800: ip; default: accept; }} }}
    state ip {{ Transport.apply(b, h.ip, h.tcp); transition accept; }}
}}
control I(inout headers h, inout meta m, inout std_t std) {{ apply {{ {condition} {{ m.class = h.ip.ttl; }} }} }}
control E(inout headers h, inout meta m, inout std_t std) {{ apply {{ }} }}
control D(packet_out b, in headers h) {{ apply {{ b.emit(h); }} }}
Switch(P(), I(), E(), D()) main;
"
        )
    };
    silent(&program("if (h.tcp.isValid())"));
    // What the caller itself extracts says nothing of them.
    let said = warnings(&program("if (h.eth.isValid())"));
    assert!(said.contains("warning[W0804]: a field of `h.ip` is read"), "{said}");
}

#[test]
fn a_header_that_may_be_invalid_in_a_parser() {
    let states = "state start { transition select(b.lookahead<bit<8>>()) { 1: eth; default: ip; } }\n\
                  state eth { b.extract(h.eth); transition both; }\nstate ip { b.extract(h.ip); transition both; }\n\
                  state both { transition select(h.ip.ttl) { 0: reject; default: accept; } }";
    expects(
        &parser(states),
        expect![[r#"
        warning[W0804]: a field of `h.ip` is read while the header may be invalid
         --> test.p4:7:32
          |
        2 | struct headers { eth_t eth; ip_t ip; }
          |                                  -- the header
        ...
        7 | state both { transition select(h.ip.ttl) { 0: reject; default: accept; } }
          |                                ^^^^^^^^ maybe invalid: not valid on every path, and isValid() is not tested
          |
          = help: put it under if (h.ip.isValid())
    "#]],
    );
}

#[test]
fn headers_that_are_guarded_are_silent() {
    let table = "action hop() { h.ip.ttl = h.ip.ttl - 1; }\n\
                 table route { key = { h.ip.dst: exact; } actions = { hop; NoAction; } }";
    silent(&pipeline(table, "if (h.ip.isValid()) { route.apply(); }"));
    silent(&pipeline(table, "if (h.ip.isValid() && h.ip.ttl > 1) { route.apply(); }"));
    silent(&pipeline(table, "if (!h.ip.isValid() || h.ip.ttl == 0) { return; } route.apply();"));
    silent(&pipeline(table, "if (!h.ip.isValid()) { exit; } route.apply();"));
    // TCP comes behind IP only.
    silent(&pipeline(table, "if (h.tcp.isValid()) { route.apply(); }"));
    // Always extracted; made valid here; copied from a valid one.
    silent(&pipeline("", "m.class = h.eth.type[7:0];"));
    silent(&pipeline("", "h.ip.setValid(); h.ip.ttl = 1; m.class = h.ip.ttl;"));
    // Other knowledge: the type field, a flag, a key that the control plane can use.
    silent(&pipeline("", "if (h.eth.type == 0x800) { m.class = h.ip.ttl; }"));
    silent(&pipeline("", "if (h.ip.isValid()) { m.class = 1; } if (m.class == 1) { m.other = h.ip.ttl; }"));
    let keys = "action hop() { h.ip.ttl = h.ip.ttl - 1; }\n\
                table route { key = { h.ip.isValid(): exact; h.ip.dst: ternary; } actions = { hop; NoAction; } }";
    silent(&pipeline(keys, "route.apply();"));
    // Writing a field of a header that may be invalid does no harm.
    silent(&pipeline("", "h.ip.ttl = 1;"));
    // A guard in an earlier block.
    silent(&pipeline_and("", "", "if (!h.ip.isValid()) { std.port = 511; }", "m.class = h.ip.ttl;"));
    // Headers that come from outside.
    silent(&control("inout ip_t ip, inout bit<8> a", "", "a = ip.ttl;"));
}

#[test]
fn calls_are_analysed_across_functions() {
    let sub = |body: &str, apply: &str, rest: &str| {
        let text = pipeline("Sub() sub;", &format!("{apply}\n{rest}"));
        text.replace("control I(", &format!("control Sub(inout headers h, inout meta m) {{ {body} }}\ncontrol I("))
    };
    let read = "m.class = h.ip.ttl;";
    // Made valid, asked, or left by `exit` in what is called.
    silent(&sub("apply { h.ip.setValid(); }", "sub.apply(h, m);", read));
    silent(&sub("apply { if (!h.ip.isValid()) { exit; } }", "sub.apply(h, m);", read));
    silent(&sub("action leave() { exit; } apply { if (!h.ip.isValid()) { leave(); } }", "sub.apply(h, m);", read));
    silent(&sub("apply { m.class = h.ip.ttl; }", "if (h.ip.isValid()) { sub.apply(h, m); }", ""));
    silent(&sub(
        "apply { h.ip.setInvalid(); }",
        "if (m.other == 1) { sub.apply(h, m); } else { h.ip.setValid(); return; }",
        "",
    ));
    expects(
        &sub("apply { h.ip.setInvalid(); }", "sub.apply(h, m);", read),
        expect![[r#"
        warning[W0803]: a field of `h.ip` is read, but the header is invalid
          --> test.p4:14:11
           |
         2 | struct headers { eth_t eth; ip_t ip; tcp_t tcp;  }
           |                                  -- the header
        ...
        14 | m.class = h.ip.ttl;
           |           ^^^^^^^^ invalid on every path to here
           |
           = help: extract it, or call setValid() and write its fields before
    "#]],
    );
    expects(
        &sub("apply {\nm.class = h.ip.ttl; }", "sub.apply(h, m);", ""),
        expect![[r#"
        warning[W0804]: a field of `h.ip` is read while the header may be invalid
          --> test.p4:10:11
           |
         2 | struct headers { eth_t eth; ip_t ip; tcp_t tcp;  }
           |                                  -- the header
        ...
        10 | m.class = h.ip.ttl; } }
           |           ^^^^^^^^ maybe invalid: not valid on every path, and isValid() is not tested
           |
           = help: put it under if (h.ip.isValid())
    "#]],
    );
    // A parser in a parser.
    let parsers = "#include \"arch.p4\"\nstruct headers { eth_t eth; ip_t ip; }\n\
                   parser inner(packet_in b, inout headers h) { state start { b.extract(h.ip); transition accept; } }\n\
                   parser p(packet_in b, out headers h, out bit<8> ttl) { inner() i;\n\
                   state start { i.apply(b, h); ttl = h.ip.ttl; transition accept; } }\n";
    silent(parsers);
    expects(
        &parsers.replace("i.apply(b, h); ttl = h.ip.ttl;", "ttl = h.ip.ttl; i.apply(b, h);"),
        expect![[r#"
        warning[W0803]: a field of `h.ip` is read, but the header is invalid
         --> test.p4:5:21
          |
        2 | struct headers { eth_t eth; ip_t ip; }
          |                                  -- the header
        ...
        5 | state start { ttl = h.ip.ttl; i.apply(b, h); transition accept; } }
          |                     ^^^^^^^^ invalid on every path to here
          |
          = help: extract it, or call setValid() and write its fields before
    "#]],
    );
}

// -------------------------------------------------------------------------------------------------- W0810 to W0813

#[test]
fn states_that_are_not_reached() {
    let states = "state start { transition select(b.lookahead<bit<8>>()) { _: accept; 1: lost; } }\n\
                  state lost { transition more; }\nstate more { transition accept; }\nstate alone { transition alone; }";
    expects(
        &parser(states),
        expect![[r#"
        warning[W0811]: this case can never match
         --> test.p4:4:69
          |
        4 | state start { transition select(b.lookahead<bit<8>>()) { _: accept; 1: lost; } }
          |                                                          ---------- ^^^^^^^^ an earlier case matches everything that this one does
          |                                                          |
          |                                                          the earlier case
          |
          = help: move it up, or remove it

        warning[W0810]: the state `lost` is never reached
         --> test.p4:5:7
          |
        3 | parser p(packet_in b, out headers h) {
          |        - in this parser
        4 | state start { transition select(b.lookahead<bit<8>>()) { _: accept; 1: lost; } }
        5 | state lost { transition more; }
          |       ^^^^ no transition from `start` leads here
          |
          = help: add a transition to it, or remove it

        warning[W0810]: the state `alone` is never reached
         --> test.p4:7:7
          |
        3 | parser p(packet_in b, out headers h) {
          |        - in this parser
        ...
        7 | state alone { transition alone; }
          |       ^^^^^ no transition from `start` leads here
          |
          = help: add a transition to it, or remove it
    "#]],
    );
}

#[test]
fn cases_that_never_match() {
    let states = "state start { transition select(b.lookahead<bit<8>>()) {\n0x10 &&& 0xf0: accept;\n0x12: reject;\n\
                  1 .. 5: accept;\n2 .. 3: reject;\n4: reject;\n9: reject;\n9: accept; } }";
    expects(
        &parser(states),
        expect![[r#"
        warning[W0811]: this case can never match
         --> test.p4:6:1
          |
        5 | 0x10 &&& 0xf0: accept;
          | ---------------------- the earlier case
        6 | 0x12: reject;
          | ^^^^^^^^^^^^^ an earlier case matches everything that this one does
          |
          = help: move it up, or remove it

        warning[W0811]: this case can never match
         --> test.p4:8:1
          |
        7 | 1 .. 5: accept;
          | --------------- the earlier case
        8 | 2 .. 3: reject;
          | ^^^^^^^^^^^^^^^ an earlier case matches everything that this one does
          |
          = help: move it up, or remove it

        warning[W0811]: this case can never match
         --> test.p4:9:1
          |
        7 | 1 .. 5: accept;
          | --------------- the earlier case
        8 | 2 .. 3: reject;
        9 | 4: reject;
          | ^^^^^^^^^^ an earlier case matches everything that this one does
          |
          = help: move it up, or remove it

        warning[W0811]: this case can never match
          --> test.p4:11:1
           |
        10 | 9: reject;
           | ---------- the earlier case
        11 | 9: accept; } }
           | ^^^^^^^^^^ an earlier case matches everything that this one does
           |
           = help: move it up, or remove it
    "#]],
    );
}

#[test]
fn loops_without_progress() {
    let states = "state start { b.extract(h.eth); transition wait; }\n\
                  state wait { transition select(h.eth.type) { 1: again; default: accept; } }\nstate again { transition wait; }";
    expects(
        &parser(states),
        expect![[r#"
        warning[W0812]: the states `wait`, `again` form a loop that changes nothing
         --> test.p4:5:7
          |
        3 | parser p(packet_in b, out headers h) {
          |        - in this parser
        4 | state start { b.extract(h.eth); transition wait; }
        5 | state wait { transition select(h.eth.type) { 1: again; default: accept; } }
          |       ^^^^ every iteration is the same
          |
          = help: extract or advance in the loop, or change what its `select` decides upon
    "#]],
    );
}

#[test]
fn a_state_without_transition() {
    expects(
        &parser("state start { b.extract(h.eth); }"),
        expect![[r#"
        warning[W0813]: the state `start` has no transition
         --> test.p4:4:7
          |
        4 | state start { b.extract(h.eth); }
          |       ^^^^^ goes to `reject`
          |
          = help: write transition accept; or transition reject;
    "#]],
    );
}

#[test]
fn ordinary_parsers_are_silent() {
    // Overlapping cases; a value set; cases by two keys; loops that extract, advance or count.
    silent(&parser(
        "value_set<bit<8>>(4) vs;\nstate start { transition select(b.lookahead<bit<8>>()) {\n\
         0x12: accept; 0x10 &&& 0xf0: accept; 1 .. 5: reject; 4 .. 6: accept; vs: accept; vs: reject; default: accept; } }",
    ));
    silent(&parser(
        "state start { transition select(b.lookahead<bit<8>>(), b.length()) { (1, _): accept; (_, 1): reject; (2, 2): accept; } }",
    ));
    silent(&parser("state start { b.extract(h.eth); transition select(h.eth.type) { 1: start; default: accept; } }"));
    silent(&parser(
        "state start { b.advance(8); transition select(b.lookahead<bit<8>>()) { 1: start; default: accept; } }",
    ));
    silent(&parser("bit<8> n = 3; state start { n = n - 1; transition select(n) { 0: accept; default: start; } }"));
    silent(&parser("state start { transition reject; }"));
}

// -------------------------------------------------------------------------------------------------- W0820 to W0822

#[test]
fn unused_declarations() {
    let locals = "bit<8> x;\naction lost() {}\naction used() {}\n\
                  table never { key = { a: exact; } actions = { used; } }";
    expects(
        &control("inout bit<8> a", locals, "bit<8> y = a;"),
        expect![[r#"
        warning[W0822]: the variable `x` is never used
         --> test.p4:3:8
          |
        3 | bit<8> x;
          |        ^ neither read nor written
          |
          = help: remove it

        warning[W0820]: the action `lost` is never used
         --> test.p4:4:8
          |
        2 | control c(inout bit<8> a) {
          |         - in this control
        3 | bit<8> x;
        4 | action lost() {}
          |        ^^^^ in no table, and nothing calls it
          |
          = help: list it in the `actions` of a table, or remove it

        warning[W0821]: the table `never` is never applied
         --> test.p4:6:7
          |
        2 | control c(inout bit<8> a) {
          |         - in this control
        ...
        6 | table never { key = { a: exact; } actions = { used; } }
          |       ^^^^^ no packet is looked up in it
          |
          = help: call never.apply(), or remove the table

        warning[W0822]: the variable `y` is never used
         --> test.p4:8:8
          |
        8 | bit<8> y = a;
          |        ^ neither read nor written
          |
          = help: remove it
    "#]],
    );
}

#[test]
fn used_declarations_are_silent() {
    let locals = "action called() {}\naction listed() { called(); }\n@noWarn(\"unused\") action kept() {}\n\
                  table t { key = { a: exact; } actions = { listed; } }";
    silent(&control("inout bit<8> a, in bit<8> unused", locals, "bit<8> y = a; if (t.apply().hit) { a = y; }"));
}

// -------------------------------------------------------------------------------------------------- W0830 to W0832

#[test]
fn a_key_that_nothing_sets() {
    let table = "table t { key = { m.class: exact; } actions = { NoAction; } }";
    expects(
        &pipeline(table, "t.apply();"),
        expect![[r#"
        warning[W0830]: the key `class` is never set
          --> test.p4:10:19
           |
         3 | struct meta { bit<8> class; bit<8> other; }
           |                      ----- the field
        ...
        10 | table t { key = { m.class: exact; } actions = { NoAction; } }
           |                   ^^^^^^^ nothing in the program writes this field
           |
           = help: assign it before the table is applied
    "#]],
    );
}

#[test]
fn keys_that_something_sets_are_silent() {
    let table = "table t { key = { m.class: exact; std.port: exact; h.eth.type: exact; } actions = { NoAction; } }";
    silent(&pipeline(table, "m.class = 1; t.apply();"));
    silent(&pipeline(table, "m = { 1, 2 }; t.apply();"));
    silent(&pipeline(&format!("action set(bit<8> c) {{ m.class = c; }}\n{table}"), "set(1); t.apply();"));
    silent(&pipeline(&format!("action set(out bit<8> c) {{ c = 1; }}\n{table}"), "set(m.class); t.apply();"));
}

fn deparser(fields: &str, extract: &str, ingress: &str, emit: &str) -> String {
    format!(
        "#include \"arch.p4\"
struct headers {{ eth_t eth; ip_t ip; {fields} }}
struct meta {{ }}
parser P(packet_in b, out headers h, inout meta m, inout std_t std) {{
    state start {{ b.extract(h.eth);\n{extract}\ntransition accept; }}
}}
control I(inout headers h, inout meta m, inout std_t std) {{ apply {{ {ingress} }} }}
control E(inout headers h, inout meta m, inout std_t std) {{ apply {{ }} }}
control D(packet_out b, in headers h) {{ apply {{ b.emit(h.eth);\n{emit} }} }}
Switch(P(), I(), E(), D()) main;
"
    )
}

#[test]
fn a_header_that_is_not_emitted() {
    expects(
        &deparser("", "b.extract(h.ip);", "", ""),
        expect![[r#"
        warning[W0831]: the header `ip` is extracted and never emitted
         --> test.p4:6:11
          |
        2 | struct headers { eth_t eth; ip_t ip;  }
          |                                  -- the header
        ...
        6 | b.extract(h.ip);
          |           ^^^^ taken from the packet here
          |
          = help: emit it in the deparser, or call setInvalid() where it is removed on purpose
    "#]],
    );
}

#[test]
fn a_header_that_is_emitted_and_never_valid() {
    expects(
        &deparser("", "", "", "b.emit(h.ip);"),
        expect![[r#"
        warning[W0832]: the header `ip` is emitted, but never valid
          --> test.p4:12:8
           |
         2 | struct headers { eth_t eth; ip_t ip;  }
           |                                  -- the header
        ...
        12 | b.emit(h.ip); } }
           |        ^^^^ emits nothing: no parser extracts it, nothing calls setValid()
           |
           = help: make it valid where it is to be added, or do not emit it
    "#]],
    );
}

#[test]
fn headers_that_are_added_and_removed_are_silent() {
    silent(&deparser("", "b.extract(h.ip);", "", "b.emit(h.ip);"));
    silent(&deparser("", "b.extract(h.ip);", "h.ip.setInvalid();", ""));
    silent(&deparser("", "b.extract(h.ip);", "", "b.emit(h);"));
    silent(&deparser("ip_t other;", "b.extract(h.ip);", "h.other = h.ip;", "b.emit(h.other);"));
    silent(&deparser("", "", "h.ip.setValid();", "b.emit(h.ip);"));
    silent(&deparser("ip_t[2] s;", "b.extract(h.s.next);", "", "b.emit(h.s);"));
    let text = deparser("", "b.extract(h.ip);", "", "");
    let text =
        text.replace("struct headers", "@controller_header(\"packet_out\") header out_t { bit<8> x; }\nstruct headers");
    silent(&text.replace("ip_t ip", "out_t ip"));
}

// -------------------------------------------------------------------------------------------------- W0840, W0841

#[test]
fn shifts_that_leave_nothing() {
    expects(
        &control("inout bit<8> a, inout bit<32> w", "", "w = (bit<32>)(a << 8);\na >>= 9;"),
        expect![[r#"
        warning[W0840]: a value of type `bit<8>` is shifted by 8
         --> test.p4:5:14
          |
        5 | w = (bit<32>)(a << 8);
          |              ^^^^^^^^ none of its bits are left
          |
          = help: cast it to a wider type before the shift, or shift by less than 8

        warning[W0840]: a value of type `bit<8>` is shifted by 9
         --> test.p4:6:1
          |
        6 | a >>= 9;
          | ^^^^^^^^ none of its bits are left
          |
          = help: cast it to a wider type before the shift, or shift by less than 8
    "#]],
    );
}

#[test]
fn comparisons_with_one_result() {
    let apply = "if (a >= 0) { a = 1; }\nif (s > 127) { a = 2; }\nif (256 == (bit<16>)a) { a = 3; }\n\
                 if (a & 0x0f == 0x10) { a = 4; }\nif (a & 0x50 != 0x20) { a = 5; }";
    expects(
        &control("inout bit<8> a, in int<8> s", "", apply),
        expect![[r#"
        warning[W0841]: this comparison is always true
         --> test.p4:5:5
          |
        5 | if (a >= 0) { a = 1; }
          |     ^^^^^^ a value from 0 to 255 against 0
          |
          = help: check the constant and the width of the other side

        warning[W0841]: this comparison is always false
         --> test.p4:6:5
          |
        6 | if (s > 127) { a = 2; }
          |     ^^^^^^^ a value from -128 to 127 against 127
          |
          = help: check the constant and the width of the other side

        warning[W0841]: this comparison is always false
         --> test.p4:7:5
          |
        7 | if (256 == (bit<16>)a) { a = 3; }
          |     ^^^^^^^^^^^^^^^^^ a value from 0 to 255 against 256
          |
          = help: check the constant and the width of the other side

        warning[W0841]: this comparison is always false
         --> test.p4:8:5
          |
        8 | if (a & 0x0f == 0x10) { a = 4; }
          |     ^^^^^^^^^^^^^^^^ a value from 0 to 15 against 16
          |
          = help: check the constant and the width of the other side

        warning[W0841]: this comparison is always true
         --> test.p4:9:5
          |
        9 | if (a & 0x50 != 0x20) { a = 5; }
          |     ^^^^^^^^^^^^^^^^ bits of 32 lie outside of the mask
          |
          = help: check the constant and the width of the other side
    "#]],
    );
}

#[test]
fn ordinary_numbers_are_silent() {
    let apply = "a = a << 7; w = (bit<32>)a << 24; w = w << a; if (a > 0 && a < 255 && s >= 0 && a & 0x0f == 0x08) { a = 1; }\n\
                 if ((bit<16>)a == 255) { a = 2; } if (a == 0 || a != 255) { a = 3; }";
    silent(&control("inout bit<8> a, inout bit<32> w, in int<8> s", "", apply));
}

// -------------------------------------------------------------------------------------------------- all of them

#[test]
fn no_warn_silences_by_name_and_by_code() {
    let text = |annotation: &str| {
        format!("#include \"arch.p4\"\n{annotation} control c(inout bit<8> a) {{ apply {{ bit<8> x; a = x; }} }}\n")
    };
    assert!(warnings(&text("")).contains("W0801"));
    assert!(warnings(&text("@noWarn(\"unused\")")).contains("W0801"));
    silent(&text("@noWarn(\"uninitialized_use\")"));
    silent(&text("@noWarn(\"uninitialized-use\")"));
    silent(&text("@noWarn(\"W0801\")"));
    silent(&control("inout bit<8> a", "", "@noWarn(\"uninitialized_use\") bit<8> x; a = x;"));
}

#[test]
fn errors_come_without_these_warnings() {
    let (checked, _, _) = check(&control("inout bit<8> a", "", "bit<8> x; a = x; a = nothing;"));
    assert!(checked.program.is_none());
    assert!(checked.diagnostics.iter().all(|d| !d.code.starts_with("W08")));
}

#[test]
fn every_warning_has_a_code_of_its_own_and_a_test() {
    let tests = include_str!("lint.rs");
    let mut codes: Vec<&str> = sema::lint::LINTS.iter().map(|l| l.code).collect();
    assert!(codes.is_sorted());
    codes.dedup();
    assert_eq!(codes.len(), sema::lint::LINTS.len());
    for lint in sema::lint::LINTS {
        assert!(tests.contains(&format!("warning[{}]", lint.code)), "{} has no text in a test", lint.code);
        assert!(!lint.names.is_empty(), "{}", lint.code);
    }
}

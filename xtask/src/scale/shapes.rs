//! The shapes of programs that `cargo xtask scale` grows.

use std::fmt::Write;

/// A shape of programs.
pub struct Shape {
    pub name: &'static str,
    /// Its smallest size.
    pub smallest: usize,
    /// How many times larger than usual it is for `large`.
    pub large: usize,
    /// `--strategy` of the compiler.
    pub strategy: &'static str,
    /// What makes a program of a size.
    pub parts: fn(usize) -> Parts,
}

const fn shape(name: &'static str, smallest: usize, large: usize, parts: fn(usize) -> Parts) -> Shape {
    Shape { name, smallest, large, strategy: "auto", parts }
}

const fn staged(name: &'static str, smallest: usize, large: usize, parts: fn(usize) -> Parts) -> Shape {
    Shape { name, smallest, large, strategy: "staged", parts }
}

/// All of them.
pub const SHAPES: &[Shape] = &[
    shape("tables", 25, 4, tables),
    shape("actions", 50, 16, actions),
    shape("entries", 250, 8, entries),
    shape("parser states", 25, 16, parser_states),
    shape("parser branches", 25, 16, parser_branches),
    shape("headers", 12, 16, headers),
    shape("header copies", 6, 16, header_copies),
    shape("added headers", 250, 4, added_headers),
    shape("stack", 8, 4, stack),
    shape("straight line", 250, 16, straight_line),
    shape("ifs in a row", 50, 16, ifs_in_a_row),
    shape("loops in a row", 50, 16, loops_in_a_row),
    shape("ifs in each other", 4, 1, ifs_in_each_other),
    shape("else ifs", 25, 1, else_ifs),
    shape("switch", 50, 16, switch),
    shape("arms that apply a table", 50, 16, arms),
    shape("controls", 12, 16, controls),
    shape("locals", 50, 16, locals),
    shape("dirty fields", 12, 16, dirty_fields),
    staged("staged tables", 25, 4, tables),
    staged("staged headers", 12, 16, staged_headers),
    staged("staged locals", 50, 16, staged_locals),
];

/// The parts of a program that shapes fill in.
#[derive(Default)]
pub struct Parts {
    /// Header types.
    types: String,
    /// Members of the headers' struct besides `eth`.
    headers: String,
    /// Members of the metadata struct besides `a` to `d`, which have 32 bits.
    metadata: String,
    /// Parser states; the first is `next`. Nothing: `next` accepts.
    states: String,
    /// Declarations before the ingress control.
    before: String,
    /// Declarations in the ingress control.
    declarations: String,
    /// Its statements.
    apply: String,
    /// Emits after `eth`.
    emits: String,
}

impl Parts {
    /// The program.
    pub fn program(self) -> String {
        let Parts { types, headers, metadata, states, before, declarations, apply, emits } = self;
        let states = if states.is_empty() { "    state next { transition accept; }\n".to_string() } else { states };
        format!(
            "#include <core.p4>\n#include <v1model.p4>\n
header eth_t {{ bit<48> dst; bit<48> src; bit<16> type; }}
{types}struct headers_t {{
    eth_t eth;
{headers}}}
struct meta_t {{
    bit<32> a; bit<32> b; bit<32> c; bit<32> d;
{metadata}}}
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {{
    state start {{ p.extract(h.eth); m.a = (bit<32>)h.eth.type; m.b = h.eth.src[31:0]; m.c = h.eth.dst[31:0]; m.d = h.eth.dst[47:16]; transition next; }}
{states}}}
control V(inout headers_t h, inout meta_t m) {{ apply {{ }} }}
{before}control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {{
{declarations}    apply {{
{apply}        h.eth.src[31:0] = m.a ^ m.b ^ m.c ^ m.d;
        s.egress_spec = 1;
    }}
}}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control C(inout headers_t h, inout meta_t m) {{ apply {{ }} }}
control D(packet_out p, in headers_t h) {{
    apply {{
        p.emit(h.eth);
{emits}    }}
}}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"
        )
    }
}

/// Text made of a piece for each number below `n`.
fn repeat(n: usize, piece: impl Fn(usize) -> String) -> String {
    (0..n).fold(String::new(), |mut all, i| {
        writeln!(all, "{}", piece(i)).expect("strings grow");
        all
    })
}

/// One of the metadata's names, as if at random.
fn name(i: usize) -> char {
    ['a', 'b', 'c', 'd'][(i * 7 + i / 4) % 4]
}

fn assign(i: usize) -> String {
    let op = ["+", "^", "-", "|"][i % 4];
    format!("m.{} = m.{} {op} (m.{} ^ {i});", name(i), name(i + 1), name(i + 2))
}

fn tables(n: usize) -> Parts {
    let table = |i: usize| {
        let (a, b) = (name(i), name(i + 1));
        format!(
            "    action x{i}(bit<32> v) {{ m.{a} = m.{a} + v; }}\n    action y{i}(bit<32> v) {{ m.{b} = v; }}
    table t{i} {{ key = {{ m.{b} : exact; }} actions = {{ x{i}; y{i}; NoAction; }} size = 65536; }}"
        )
    };
    let apply = |i: usize| match i % 3 {
        0 => format!("        t{i}.apply();"),
        1 => format!("        if (t{i}.apply().hit) {{ m.c = {i}; }}"),
        _ => format!("        switch (t{i}.apply().action_run) {{ x{i}: {{ m.d = {i}; }} default: {{ m.d = m.a; }} }}"),
    };
    Parts { declarations: repeat(n, table), apply: repeat(n, apply), ..Parts::default() }
}

fn actions(n: usize) -> Parts {
    let action = |i: usize| format!("    action x{i}(bit<32> v) {{ m.{} = m.{} + v; }}", name(i), name(i + 1));
    let list = repeat(n, |i| format!("x{i};"));
    let table = format!("    table t {{ key = {{ m.a : exact; }} actions = {{ {list} NoAction; }} }}\n");
    Parts { declarations: repeat(n, action) + &table, apply: "        t.apply();\n".into(), ..Parts::default() }
}

fn entries(n: usize) -> Parts {
    let entry = |i: usize| format!("            ({}, {} &&& 0xffff) : x({i});", i * 3, i * 5 % 65536);
    let table = format!(
        "    action x(bit<32> v) {{ m.d = v; }}
    table t {{
        key = {{ m.a : exact; m.b : ternary; }}
        actions = {{ x; NoAction; }}
        const entries = {{\n{}        }}\n    }}\n",
        repeat(n, entry)
    );
    Parts { declarations: table, apply: "        t.apply();\n".into(), ..Parts::default() }
}

/// The header of shape `i`.
fn header_type(i: usize) -> String {
    format!("header h{i}_t {{ bit<16> type; bit<4> u; bit<12> v; bit<32> w; bit<64> x; }}")
}

fn with_headers(n: usize) -> Parts {
    Parts {
        types: repeat(n, header_type),
        headers: repeat(n, |i| format!("    h{i}_t h{i};")),
        emits: repeat(n, |i| format!("        p.emit(h.h{i});")),
        ..Parts::default()
    }
}

fn parser_states(n: usize) -> Parts {
    let state = |i: usize| {
        let own = if i == 0 { "next".to_string() } else { format!("s{i}") };
        let next = if i + 1 == n { "accept".to_string() } else { format!("s{}", i + 1) };
        let set = assign(i);
        format!("    state {own} {{ {set} transition select(m.{}) {{ {i}: accept; default: {next}; }} }}", name(i))
    };
    Parts { states: repeat(n, state), ..Parts::default() }
}

fn parser_branches(n: usize) -> Parts {
    let hub = format!(
        "    state next {{ transition select(h.eth.type) {{\n{}        default: accept;\n    }} }}\n",
        repeat(n, |i| format!("        {i}: s{i};"))
    );
    // All of them meet again and go round: a parser of tunnels.
    let state = |i: usize| {
        format!(
            "    state s{i} {{ h.eth.setInvalid(); p.extract(h.eth); m.{} = {i}; transition select(h.eth.src[7:0]) {{ 0: next; default: accept; }} }}",
            name(i)
        )
    };
    Parts { states: hub + &repeat(n, state), ..Parts::default() }
}

fn headers(n: usize) -> Parts {
    let state = |i: usize| {
        let own = if i == 0 { "next".to_string() } else { format!("s{i}") };
        let next = if i + 1 == n { "accept".to_string() } else { format!("s{}", i + 1) };
        format!(
            "    state {own} {{ p.extract(h.h{i}); transition select(h.h{i}.type) {{ {i}: accept; default: {next}; }} }}"
        )
    };
    let apply = |i: usize| match i % 4 {
        0 => format!("        if (h.h{i}.isValid()) {{ h.h{i}.w = h.h{i}.w + m.a; }}"),
        1 => format!("        if (h.h{i}.v == 7) {{ h.h{i}.setInvalid(); }}"),
        2 => format!("        m.a = m.a + (bit<32>)h.h{i}.v;"),
        _ => format!("        if (m.a == {i}) {{ h.h{i}.setValid(); h.h{i}.w = m.b; }}"),
    };
    Parts { states: repeat(n, state), apply: repeat(n, apply), ..with_headers(n) }
}

fn header_copies(n: usize) -> Parts {
    let same = |i: usize| format!("    one_t h{i};");
    let state = |i: usize| {
        let own = if i == 0 { "next".to_string() } else { format!("s{i}") };
        let next = if i + 1 == n { "accept".to_string() } else { format!("s{}", i + 1) };
        format!(
            "    state {own} {{ p.extract(h.h{i}); transition select(h.h{i}.type) {{ 0: accept; default: {next}; }} }}"
        )
    };
    let copy = |i: usize| format!("        if (m.{} == {i}) {{ h.h{} = h.h{i}; }}", name(i), (i * 5 + 1) % n);
    Parts {
        types: "header one_t { bit<16> type; bit<4> u; bit<12> v; bit<32> w; bit<64> x; }\n".into(),
        headers: repeat(n, same),
        states: repeat(n, state),
        apply: repeat(n, copy),
        emits: repeat(n, |i| format!("        p.emit(h.h{i});")),
        ..Parts::default()
    }
}

/// Headers that are not extracted, so that the deparser finds out at run time which there are.
fn added_headers(n: usize) -> Parts {
    let add = |i: usize| format!("        if (m.{} == {i}) {{ h.h{i}.setValid(); }}", name(i));
    Parts {
        types: "header one_t { bit<8> v; }\n".into(),
        headers: repeat(n, |i| format!("    one_t h{i};")),
        apply: repeat(n, add),
        emits: repeat(n, |i| format!("        p.emit(h.h{i});")),
        ..Parts::default()
    }
}

fn stack(n: usize) -> Parts {
    Parts {
        types: "header tag_t { bit<15> v; bit<1> last; }\n".into(),
        headers: format!("    tag_t[{n}] tags;\n"),
        states: "    state next { p.extract(h.tags.next); transition select(h.tags.last.last) { 0: next; 1: accept; } }\n"
            .into(),
        apply: "        if (m.a == 1) { h.tags.push_front(1); h.tags[0].setValid(); }\n        if (m.b == 2) { h.tags.pop_front(2); }\n        m.c = (bit<32>)h.tags[m.a].v;\n"
            .into(),
        emits: "        p.emit(h.tags);\n".into(),
        ..Parts::default()
    }
}

fn straight_line(n: usize) -> Parts {
    Parts { apply: repeat(n, |i| format!("        {}", assign(i))), ..Parts::default() }
}

fn ifs_in_a_row(n: usize) -> Parts {
    let one = |i: usize| format!("        if (m.{} == {i}) {{ {} }} else {{ {} }}", name(i), assign(i), assign(i + 3));
    Parts { apply: repeat(n, one), ..Parts::default() }
}

fn loops_in_a_row(n: usize) -> Parts {
    let one = |i: usize| format!("        for (bit<8> i{i} = 0; i{i} < 4; i{i} = i{i} + 1) {{ {} }}", assign(i));
    Parts { apply: repeat(n, one), ..Parts::default() }
}

fn ifs_in_each_other(n: usize) -> Parts {
    let open = repeat(n, |i| format!("        if (m.{} > {i}) {{ {}", name(i), assign(i)));
    let close = repeat(n, |i| format!("        }} else {{ {} }}", assign(i + 1)));
    Parts { apply: open + &close, ..Parts::default() }
}

fn else_ifs(n: usize) -> Parts {
    let one = |i: usize| format!("        if (h.eth.type == {i}) {{ {} }} else", assign(i));
    Parts { apply: repeat(n, one) + "        { m.a = 1; }\n", ..Parts::default() }
}

fn switch(n: usize) -> Parts {
    let case = |i: usize| format!("            {}: {{ {} }}", i * 3, assign(i));
    let apply =
        format!("        switch (m.a) {{\n{}            default: {{ m.b = 0; }}\n        }}\n", repeat(n, case));
    Parts { apply, ..Parts::default() }
}

fn arms(n: usize) -> Parts {
    let arm = |i: usize| format!("            {i}: {{ t.apply(); m.d = m.d ^ {i}; }}");
    let declarations = "    action x(bit<32> v) { m.c = m.c + v; }
    table t { actions = { x; } default_action = x(1); }\n";
    let apply = format!(
        "        switch (m.a) {{\n{}            default: {{ m.c = 0; }}\n        }}\n        log_msg(\"behind the arms\");\n",
        repeat(n, arm)
    );
    Parts { declarations: declarations.into(), apply, ..Parts::default() }
}

fn controls(n: usize) -> Parts {
    let control = |i: usize| {
        format!(
            "control K{i}(inout meta_t m, in bit<32> v) {{
    action x(bit<32> w) {{ m.{a} = w + v; }}
    table t {{ key = {{ m.{b} : ternary; }} actions = {{ x; NoAction; }} }}
    apply {{ bit<32> old = m.{a}; t.apply(); if (old != m.{a}) {{ m.d = old; }} }}
}}",
            a = name(i),
            b = name(i + 1)
        )
    };
    Parts {
        before: repeat(n, control),
        declarations: repeat(n, |i| format!("    K{i}() k{i};")),
        apply: repeat(n, |i| format!("        k{i}.apply(m, m.{} + {i});", name(i + 2))),
        ..Parts::default()
    }
}

fn locals(n: usize) -> Parts {
    let member = |i: usize| format!("    bit<{}> f{i};", 1 + i * 13 % 100);
    let set = |i: usize| format!("        m.f{i} = (bit<{}>)(m.{} + {i});", 1 + i * 13 % 100, name(i));
    let get = |i: usize| format!("        if (m.b != {i}) {{ m.{} = m.{} ^ (bit<32>)m.f{i}; }}", name(i), name(i + 1));
    Parts { metadata: repeat(n, member), apply: repeat(n, set) + &repeat(n, get), ..Parts::default() }
}

/// A choice between as many ways as there are headers, each of which writes a field of another one: where they meet, all of
/// these fields may differ from the packet.
fn dirty_fields(n: usize) -> Parts {
    let extract = repeat(n, |i| format!("        p.extract(h.h{i});"));
    let case = |i: usize| format!("            {i}: {{ h.h{i}.w = m.{}; }}", name(i));
    let used = repeat(n, |i| format!("        m.a = m.a ^ h.h{i}.w;"));
    Parts {
        states: format!("    state next {{\n{extract}        transition accept;\n    }}\n"),
        apply: format!("        switch (m.b) {{\n{}            default: {{}}\n        }}\n{used}", repeat(n, case)),
        ..with_headers(n)
    }
}

/// Two tables, of which the second depends on the first, at the beginning of a control, or behind a part of it.
fn with_tables(parts: Parts, behind: &str) -> Parts {
    let tables = "    action p(bit<32> v) { m.b = v; }
    action q(bit<32> v) { m.c = v; }
    table one { key = { m.a : exact; } actions = { p; NoAction; } size = 65536; }
    table two { key = { m.b : exact; } actions = { q; NoAction; } size = 65536; }\n";
    let apply = format!("{behind}        one.apply();\n        two.apply();\n{}", parts.apply);
    Parts { declarations: parts.declarations + tables, apply, ..parts }
}

fn staged_headers(n: usize) -> Parts {
    with_tables(headers(n), "")
}

/// What is assigned before the tables is read behind them.
fn staged_locals(n: usize) -> Parts {
    let mut parts = locals(n);
    let reads = parts.apply.split_off(parts.apply.find("        if").expect("it reads"));
    let assignments = std::mem::replace(&mut parts.apply, reads);
    with_tables(parts, &assignments)
}

//! `cargo xtask scale`: no phase of the compiler is worse than n log n in the size of the program.
//!
//! Programs of several shapes, each at one, four and sixteen times a size, are compiled to machine code by
//! `sluice check --time`, and each phase's growth is printed as the exponent of the last step: 1 is linear, 2 quadratic.
//! A phase counts as too slow only far above n log n, and only if it takes a time that can be measured; the best of several
//! runs is taken. It wants a machine with an idle core all the same.
//!
//! `cargo xtask scale SHAPE` runs one shape; `cargo xtask scale SHAPE 4` runs it at four times the sizes (`""` is all
//! shapes). The programs stay in `target/scale`.

use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Sizes relative to a shape's own.
const STEPS: [usize; 3] = [1, 4, 16];
/// n log n between the last two steps is at most 1.2; caches that no longer hold everything add some.
const EXPONENT_MAX: f64 = 1.6;
/// Phases that take less at the largest size are not judged.
const JUDGED_FROM_MS: f64 = 15.0;
const SHOWN_FROM_MS: f64 = 1.5;
const RUNS: usize = 5;
const RETRIES: usize = 5;

/// Milliseconds of each phase.
type Times = Vec<(String, f64)>;

/// A shape: its name, its smallest size, and what makes a program of a size.
type Shape = (&'static str, usize, fn(usize) -> Parts);

const SHAPES: &[Shape] = &[
    ("tables", 25, tables),
    ("actions", 50, actions),
    ("entries", 250, entries),
    ("parser states", 25, parser_states),
    ("parser branches", 25, parser_branches),
    ("headers", 12, headers),
    ("header copies", 6, header_copies),
    ("stack", 8, stack),
    ("straight line", 250, straight_line),
    ("ifs in a row", 50, ifs_in_a_row),
    ("ifs in each other", 4, ifs_in_each_other),
    ("else ifs", 25, else_ifs),
    ("switch", 50, switch),
    ("controls", 12, controls),
    ("locals", 50, locals),
];

/// The parts of a program that shapes fill in.
#[derive(Default)]
struct Parts {
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
    fn program(self) -> String {
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

/// Phases in their order, in milliseconds: the best of [`RUNS`] runs.
fn times(sluice: &Path, program: &Path) -> Result<Times> {
    let mut best: Times = Vec::new();
    for _ in 0..RUNS {
        let out = Command::new(sluice).arg("check").arg("--time").arg(program).output()?;
        ensure!(
            out.status.success(),
            "{} does not compile:\n{}",
            program.display(),
            String::from_utf8_lossy(&out.stderr)
        );
        let rows = String::from_utf8(out.stdout)?;
        // The other lines count the program's.
        for (i, line) in rows.lines().filter_map(|line| line.strip_suffix(" ms")).enumerate() {
            let (phase, time) = line.rsplit_once(' ').context("a row of `--time`")?;
            let (phase, time) = (phase.trim().to_string(), time.trim().parse::<f64>()?);
            match best.get_mut(i) {
                Some((_, best)) => *best = time.min(*best),
                None => best.push((phase, time)),
            }
        }
    }
    Ok(best)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Small,
    Good,
    TooSlow,
}

/// How a phase grows over the last step.
fn exponent(columns: &[Times], phase: usize) -> f64 {
    (columns[2][phase].1 / columns[1][phase].1).ln() / 4f64.ln()
}

fn judge(columns: &[Times], phase: usize) -> Verdict {
    let (name, last) = &columns[2][phase];
    match () {
        () if *last < JUDGED_FROM_MS => Verdict::Small,
        // The total is as bad as its worst phase.
        () if exponent(columns, phase) <= EXPONENT_MAX || name == "total" => Verdict::Good,
        () => Verdict::TooSlow,
    }
}

/// Builds `sluice` and says where it is.
fn release_binary() -> Result<PathBuf> {
    let status = Command::new(env!("CARGO")).args(["build", "--release", "--quiet", "--bin", "sluice"]).status()?;
    ensure!(status.success(), "sluice does not build");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    Ok(Path::new(&target).join("release/sluice").canonicalize()?)
}

/// Runs the shapes whose name contains `only`, with programs that are so many times larger.
pub fn run(only: &str, times_larger: usize) -> Result<ExitCode> {
    let sluice = release_binary()?;
    let dir = Path::new("target/scale");
    std::fs::create_dir_all(dir)?;
    let steps = STEPS.map(|step| step * times_larger);
    let mut too_slow = Vec::new();
    for (shape, size, parts) in SHAPES.iter().filter(|(shape, ..)| shape.contains(only)) {
        let mut files = Vec::new();
        let mut columns = Vec::new();
        for step in steps {
            let file = dir.join(format!("{}-{}.p4", shape.replace(' ', "-"), size * step));
            std::fs::write(&file, parts(size * step).program())?;
            columns.push(times(&sluice, &file)?);
            files.push(file);
        }
        // What looks bad may have been interrupted: the largest program has some more chances.
        for _ in 0..RETRIES {
            if (0..columns[2].len()).all(|phase| judge(&columns, phase) != Verdict::TooSlow) {
                break;
            }
            for (best, again) in columns[2].iter_mut().zip(times(&sluice, &files[2])?) {
                best.1 = best.1.min(again.1);
            }
        }
        println!("{shape}: {}", steps.map(|step| (size * step).to_string()).join(", "));
        for (i, (phase, last)) in columns[2].iter().enumerate().filter(|(_, (_, last))| *last >= SHOWN_FROM_MS) {
            let verdict = judge(&columns, i);
            let mark = match verdict {
                Verdict::Small => String::new(),
                Verdict::Good => format!("n^{:.2}", exponent(&columns, i)),
                Verdict::TooSlow => format!("n^{:.2}  too slow", exponent(&columns, i)),
            };
            println!("    {phase:20} {:9.2} {:9.2} {last:9.2} ms  {mark}", columns[0][i].1, columns[1][i].1);
            if verdict == Verdict::TooSlow {
                too_slow.push(format!("{shape}: {phase}"));
            }
        }
    }
    ensure!(too_slow.is_empty(), "worse than n log n: {}", too_slow.join(", "));
    Ok(ExitCode::SUCCESS)
}

//! Small programs that would make something huge or deep are refused with a message, or checked without harm.

use std::fmt::Write;
use syntax::{MemoryLoader, Options, SourceInput};

/// The codes of the errors of a program, with the stack that the front end gives.
fn errors(text: &str) -> Vec<&'static str> {
    let stack = std::thread::Builder::new().stack_size(32 * 1024 * 1024);
    std::thread::scope(|scope| stack.spawn_scoped(scope, || errors_here(text)).unwrap().join().unwrap())
}

fn errors_here(text: &str) -> Vec<&'static str> {
    let mut sources = base::SourceMap::new();
    let input = SourceInput { name: "limits.p4".to_string(), text: text.into() };
    let parsed = syntax::parse_program(input, &Options::default(), &MemoryLoader::default(), &mut sources);
    assert_eq!(parsed.diagnostics, []);
    sema::check(&parsed.program, &sources).diagnostics.iter().map(|d| d.code).collect()
}

fn repeat(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).map(line).collect()
}

#[test]
fn structs_that_double_are_refused() {
    let text = repeat(40, |i| match i {
        0 => "struct S0 { bit<8> x; }\n".to_string(),
        _ => format!("struct S{i} {{ S{0} a; S{0} b; }}\n", i - 1),
    });
    assert_eq!(errors(&text).first(), Some(&"E0550"));
}

#[test]
fn tuples_and_arrays_that_double_are_refused() {
    let tuples = repeat(40, |i| match i {
        0 => "typedef bit<8> T0;\n".to_string(),
        _ => format!("typedef tuple<T{0}, T{0}> T{i};\n", i - 1),
    });
    assert_eq!(errors(&tuples).first(), Some(&"E0550"));
    let arrays = "typedef bit<8> A0;\n".to_string() + &repeat(8, |i| format!("typedef A{i}[1000] A{};\n", i + 1));
    assert_eq!(errors(&arrays).first(), Some(&"E0550"));
}

#[test]
fn generic_structs_and_functions_that_double_are_refused() {
    let structs = "struct G<T> { T a; T b; }\ntypedef bit<8> G0;\n".to_string()
        + &repeat(40, |i| format!("typedef G<G{i}> G{};\n", i + 1));
    assert_eq!(errors(&structs).first(), Some(&"E0550"));
    let mut functions = "bit<8> f0<T>(in T x) { return 1; }\n".to_string();
    for i in 1..40 {
        let _ = writeln!(functions, "bit<8> f{i}<T>(in T x) {{ tuple<T, T> y = {{ x, x }}; return f{}(y); }}", i - 1);
    }
    functions.push_str("bit<8> g() { return f39(8w1); }\n");
    assert_eq!(errors(&functions).first(), Some(&"E0550"));
}

#[test]
fn constants_that_double_are_refused() {
    let numbers =
        "const int N0 = 1 << 1000;\n".to_string() + &repeat(20, |i| format!("const int N{} = N{i} * N{i};\n", i + 1));
    assert_eq!(errors(&numbers), ["E0502"]);
    let strings = "const string S0 = \"text\";\n".to_string()
        + &repeat(40, |i| format!("const string S{} = S{i} ++ S{i};\n", i + 1));
    assert_eq!(errors(&strings), ["E0502"]);
    let mut params = "control C()(bit<8> p) {\nconst bit<8> K0 = p;\n".to_string();
    params += &repeat(40, |i| format!("const bit<8> K{} = K{i} + K{i};\n", i + 1));
    params += "apply {} }\n";
    assert_eq!(errors(&params), ["E0550"]);
    assert_eq!(errors("const int BIG = 1 << (1 << 60);\n"), ["E0502"]);
    assert_eq!(errors("const bit<(1 << 40)> WIDE = 1;\n"), ["E0503"]);
}

#[test]
fn instances_that_double_are_refused() {
    let text = "extern E { E(); }\ncontrol C0() { E() e; apply {} }\n".to_string()
        + &repeat(30, |i| {
            format!("control C{}() {{ C{i}() a; C{i}() b; apply {{ a.apply(); b.apply(); }} }}\n", i + 1)
        })
        + "control T();\npackage P(T t);\nP(C30()) main;\n";
    assert_eq!(errors(&text), ["E0551"]);
    let deep = "control C0() { apply {} }\n".to_string()
        + &repeat(2000, |i| format!("control C{}() {{ C{i}() a; apply {{ a.apply(); }} }}\n", i + 1))
        + "control T();\npackage P(T t);\nP(C2000()) main;\n";
    assert_eq!(errors(&deep), ["E0551"]);
}

#[test]
fn deep_expressions_and_statements_are_checked() {
    let sum = "x + ".repeat(900) + "x";
    let text = format!("bit<8> f(in bit<8> x) {{ return {sum}; }}\n");
    assert_eq!(errors(&text), Vec::<&str>::new());
    let ifs = "if (x == 1) { } else ".repeat(900);
    let text = format!("void f(in bit<8> x) {{ {ifs} {{ }} }}\n");
    assert_eq!(errors(&text), Vec::<&str>::new());
    let nested = format!("{}x{}", "(bit<8>)(1w1 ++ ".repeat(60), ")".repeat(60));
    let text = format!("bit<8> f(in bit<8> x) {{ return {nested}; }}\n");
    assert_eq!(errors(&text), Vec::<&str>::new());
}

#[test]
fn a_large_program_is_checked_quickly() {
    let mut text = "header h_t { bit<32> a; bit<32> b; }\nmatch_kind { exact }\naction NoAction() {}\n".to_string();
    text.push_str("control C(inout h_t h, inout bit<32> x) {\n");
    for i in 0..1000 {
        let _ = writeln!(
            text,
            "action a{i}(bit<32> v) {{\n h.a = v + h.b;\n x = x ^ h.a;\n}}\n\
             table t{i} {{\n key = {{ h.a: exact; h.b: exact; }}\n actions = {{ a{i}; NoAction; }}\n}}"
        );
    }
    text.push_str("apply {\n");
    for i in 0..1000 {
        let _ = writeln!(text, "if (h.b == {i}) {{ t{i}.apply(); }}");
    }
    text.push_str("} }\n");
    let mut sources = base::SourceMap::new();
    let input = SourceInput { name: "large.p4".to_string(), text: text.as_str().into() };
    let parsed = syntax::parse_program(input, &Options::default(), &MemoryLoader::default(), &mut sources);
    let start = std::time::Instant::now();
    let checked = sema::check(&parsed.program, &sources);
    let took = start.elapsed();
    assert!(checked.program.is_some());
    println!("{} lines in {took:?}", text.lines().count());
    // Far above what it takes, so that a busy machine does not matter; far below anything quadratic.
    assert!(took.as_secs() < 60, "{took:?}");
}

#[test]
fn many_warnings_hide_no_error() {
    let text = repeat(1000, |i| format!("const bit<8> w{i} = 300;\n")) + "const bool b = 1;\n";
    let codes = errors(&text);
    assert!(codes.iter().any(|c| c.starts_with('E')), "{} diagnostics, none an error", codes.len());
}

#[test]
fn many_unknown_names_are_checked_quickly() {
    let text = repeat(30_000, |i| format!("const bit<8> a{i} = unknown{i};\n"));
    let start = std::time::Instant::now();
    assert_eq!(errors(&text).len(), 200);
    // A search for similar names at each took minutes.
    assert!(start.elapsed() < std::time::Duration::from_secs(60));
}

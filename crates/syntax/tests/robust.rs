//! Whatever the text: no panic, no hang, and every span lies in its file.
//!
//! Inputs are arbitrary bytes, sequences of tokens, prefixes of the programs in `ok/`, and those programs with
//! parts removed, doubled or exchanged; and nests and chains that would overflow the stack without limits.

use std::path::Path;
use std::sync::LazyLock;

use base::diag::has_errors;
use base::{SourceMap, Span};
use proptest::prelude::*;
use syntax::{MemoryLoader, Options, Parsed, SourceInput, codes, dump, parse_program};

fn parse(text: &str) -> (Parsed, SourceMap) {
    let mut loader = MemoryLoader::default();
    loader.embedded.insert("core.p4".into(), "error { NoError }\n".into());
    let mut sources = SourceMap::new();
    let source = SourceInput { name: "main.p4".into(), text: text.into() };
    let parsed = parse_program(source, &Options::default(), &loader, &mut sources);
    (parsed, sources)
}

/// Parses, prints and renders; every step must end and every place must exist.
fn check(text: &str) {
    let (parsed, sources) = parse(text);
    let in_file = |span: Span| {
        span.is_none()
            || sources.get(span.file).is_some_and(|f| {
                span.start <= span.end
                    && f.text.is_char_boundary(span.start as usize)
                    && f.text.is_char_boundary(span.end as usize)
            })
    };
    for decl in &parsed.program.decls {
        assert!(in_file(decl.span), "{:?} {}", decl.span, decl.name);
    }
    for diag in &parsed.diagnostics {
        assert!(in_file(diag.span), "{diag:?}");
        diag.render(&sources, false);
    }
    dump::dump(&parsed.program);
}

static PROGRAMS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ok");
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "p4"));
    paths.sort();
    paths.iter().map(|p| std::fs::read_to_string(p).unwrap()).collect()
});

const WORDS: &str = "abstract action actions apply bit bool break const continue control default else entries enum error \
    exit extern false for header header_union if in inout int key list match_kind out package parser priority return \
    select state string struct switch table this transition true tuple type typedef value_set varbit void _ x y T 0 8w3 \
    4s1 \"s\" &&& ... .. << && || == != >= <= ++ += |+|= {#} |+| |-| + - * / % | & ^ ~ ( ) [ ] { } < > ! : , ? . = ; @ # \
    \n#if \n#endif \n#define \n#else @pragma ' \\ \n";

fn token_soup() -> impl Strategy<Value = String> {
    let words: Vec<&str> = WORDS.split(' ').filter(|w| !w.is_empty()).collect();
    proptest::collection::vec(proptest::sample::select(words), 0..120).prop_map(|words| words.join(" "))
}

/// A program of `ok/` cut into words, with a few edits.
fn mutant() -> impl Strategy<Value = String> {
    let edit = (0_u8..4, any::<prop::sample::Index>(), any::<prop::sample::Index>());
    let program = any::<prop::sample::Index>();
    (program, proptest::collection::vec(edit, 1..6)).prop_map(|(program, edits)| {
        let text = program.get(&PROGRAMS);
        let mut words: Vec<&str> = text.split_inclusive([' ', '(', ')', '{', '}', ';', '<', '>', '\n']).collect();
        for (kind, at, from) in edits {
            if words.is_empty() {
                break;
            }
            let (at, from) = (at.index(words.len()), from.index(words.len()));
            match kind {
                0 => drop(words.remove(at)),
                1 => words.insert(at, words[from]),
                2 => words.swap(at, from),
                _ => words.truncate(at),
            }
        }
        words.concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn arbitrary_tokens(text in token_soup()) {
        check(&text);
    }

    #[test]
    fn mutated_programs(text in mutant()) {
        check(&text);
    }
}

#[test]
fn every_prefix_of_a_program() {
    for program in PROGRAMS.iter() {
        for end in (0..program.len()).step_by(7).filter(|end| program.is_char_boundary(*end)) {
            check(&program[..end]);
        }
    }
}

#[track_caller]
fn too_deep(text: &str) {
    let (parsed, _) = parse(text);
    let found: Vec<_> = parsed.diagnostics.iter().map(|d| d.code).collect();
    assert_eq!(found, [codes::TOO_DEEP]);
    dump::dump(&parsed.program);
}

#[test]
fn deep_nests_are_refused() {
    let n = 100_000;
    let (open, close) = ("(".repeat(n), ")".repeat(n));
    too_deep(&format!("const int a = {open}1{close};"));
    too_deep(&format!("const int a = {}1{};", "{".repeat(n), "}".repeat(n)));
    too_deep(&format!("const int a = {}1;", "- ".repeat(n)));
    too_deep(&format!("const int a = {}1;", "(bit<8>)".repeat(n)));
    too_deep(&format!("const int a = {}1{};", "f(".repeat(n), ")".repeat(n)));
    too_deep(&format!("const int a = {}1{};", "x[".repeat(n), "]".repeat(n)));
    too_deep(&format!("const int a = {}1{};", "a ? b : (".repeat(n), ")".repeat(n)));
    too_deep(&format!("typedef {}bool{} t;", "list<".repeat(n), ">".repeat(n)));
    too_deep(&format!("typedef {}1{} t;", "bit<(".repeat(n), ")>".repeat(n)));
    too_deep(&format!("void f() {{ {}{} }}", "{".repeat(n), "}".repeat(n)));
    too_deep(&format!("void f() {{ {} x = 1; }}", "if (x) ".repeat(n)));
    too_deep(&format!("void f() {{ {} x = 1; }}", "for (bit i in x) ".repeat(n)));
    too_deep(&format!("@a[{}1{}] const int a = 1;", "{".repeat(n), "}".repeat(n)));
}

#[test]
fn long_chains_are_refused_or_flat() {
    let n = 100_000;
    too_deep(&format!("const int a = 1{};", " + 1".repeat(n)));
    too_deep(&format!("const int a = a{};", ".b".repeat(n)));
    too_deep(&format!("const int a = a{};", "[0]".repeat(n)));
    too_deep(&format!("typedef bit<8>{} t;", "[2]".repeat(n)));
    too_deep(&format!("const bit<8> a{} = 1;", "[2]".repeat(n)));
    too_deep(&format!("void f() {{ {} x = 1; }}", "if (x) x = 1; else ".repeat(n)));
    let chain = "if (x == 1) x = 1; else ".repeat(500);
    assert!(!has_errors(&parse(&format!("void f() {{ {chain} x = 2; }}")).0.diagnostics));
    let list = format!("const list<int> a = {{ {} }};", "1, ".repeat(n));
    assert!(!has_errors(&parse(&list).0.diagnostics));
}

/// Scans ahead must not make nests of `<` quadratic or worse beyond the nesting limit.
#[test]
fn ambiguous_generic_comparisons_are_parsed_in_bounded_time() {
    for pattern in ["a < ", "T < ", "f<bit<(", "a < bit<(a < ", "(T<", "x<(", "(a<b>(", "T<T,"] {
        check(&format!("struct T {{}} void f() {{ x = {}", pattern.repeat(20_000)));
        check(&format!("struct T {{}} void f() {{ {}", pattern.repeat(20_000)));
    }
    check(&"a(".repeat(50_000));
    check(&"{ a(; ".repeat(20_000));
    check(&format!("void f() {{ {} }}", "T(a, b); ".repeat(20_000)));
}

#[test]
fn many_errors_stop() {
    let (parsed, _) = parse(&"const int = ;\n".repeat(1000));
    assert_eq!(parsed.diagnostics.len(), syntax::parser::ERRORS_MAX + 1);
    assert_eq!(parsed.diagnostics.last().map(|d| d.code), Some(codes::TOO_MANY_ERRORS));
}

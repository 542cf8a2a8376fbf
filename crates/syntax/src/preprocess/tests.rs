//! Tests of the preprocessor: program in, tokens (one space between) and codes out.

use super::*;
use crate::loader::MemoryLoader;

fn run_tokens(main: &str, files: &[(&str, &str)]) -> (Vec<Token>, SourceMap) {
    let mut loader = MemoryLoader::default();
    loader.files.extend(files.iter().map(|(name, text)| ((*name).into(), (*text).into())));
    let mut sources = SourceMap::new();
    let source = SourceInput { name: "dir/main.p4".into(), text: main.into() };
    let (tokens, diags) = preprocess(source, &Options::default(), &loader, &mut sources);
    assert!(diags.is_empty(), "{diags:?}");
    (tokens, sources)
}

fn run_with(main: &str, files: &[(&str, &str)], limits: Limits) -> (String, Vec<String>) {
    let mut loader = MemoryLoader::default();
    for (name, text) in files {
        match name.strip_prefix('<').and_then(|n| n.strip_suffix('>')) {
            Some(name) => loader.embedded.insert(name.into(), (*text).into()),
            None => loader.files.insert((*name).into(), (*text).into()),
        };
    }
    let mut sources = SourceMap::new();
    let options = Options {
        include_dirs: vec!["inc".into(), "sys/".into()],
        defines: vec![("D1".into(), "1".into()), ("EMPTY".into(), String::new())],
    };
    let source = SourceInput { name: "dir/main.p4".into(), text: main.into() };
    let (tokens, diags) = preprocess_within(source, &options, &loader, &mut sources, limits);
    let text: Vec<String> = tokens.iter().take(tokens.len() - 1).map(Token::spelling).collect();
    let codes = diags
        .iter()
        .map(|d| format!("{}@{}", d.code, sources.locate(d.span).map_or("?".into(), |l| format!("{}:{}", l.0, l.1))))
        .collect();
    (text.join(" "), codes)
}

fn run(main: &str) -> (String, Vec<String>) {
    run_with(main, &[], Limits::default())
}

#[track_caller]
fn check(main: &str, expected: &str) {
    assert_eq!(run(main), (expected.to_owned(), vec![]));
}

#[test]
fn object_macros_expand_and_rescan() {
    check("#define A B + 1\n#define B 2\nA B", "2 + 1 2");
    check("#define A A + B\n#define B A\nA", "A + A");
    check("#define A 1\n#undef A\nA", "A");
    check("D1 EMPTY x", "1 x");
    check("#define A 1 + \\\n 2\nA", "1 + 2");
    check("#define bit 8\nbit", "8");
}

#[test]
fn function_macros_take_arguments() {
    check("#define F(a, b) b a\nF(1, (2, 3)) F x", "( 2 , 3 ) 1 F x");
    check("#define F(a) [a]\n#define G F\nG(F(1))", "[ [ 1 ] ]");
    check("#define F() x\nF( )", "x");
    check("#define F (a)\nF", "( a )");
    check("#define F(a) a\nF(\n1\n+\n2)", "1 + 2");
    check("#define V(f, ...) f(__VA_ARGS__)\nV(g, 1, 2) V(g)", "g ( 1 , 2 ) g ( )");
    check("#define V(args...) f(args)\nV(1, 2)", "f ( 1 , 2 )");
}

#[test]
fn hash_operators() {
    check("#define S(a) #a\nS(x + \"y\")", r#""x + \"y\"""#);
    check("#define P(a, b) a##b\nP(8w, 0xFF) P(x, y) P(, z) P(z,)", "8w0xFF xy z z");
    check("#define X 1\n#define P(a) X ## a\nP(X)", "XX");
    assert_eq!(run("#define P(a) ## a").1, ["E0009@dir/main.p4:1"]);
}

#[test]
fn paste_that_makes_no_token_leaves_both() {
    check("#define P(a) a ## +\nP(x)", "x +");
    check("#define S(n) f(x) ## stage ## n ##_c;\nS(1)", "f ( x ) stage1_c ;");
    check("#define STR(a) #a\n#define S(n) STR(acl.stage ## n)\nS(2)", "\"acl.stage2\"");
}

#[test]
fn directives_within_multiline_strings_are_processed() {
    let main = "a(\"\n  x;\n#if D1\n  y;\n# else\n  z;\n  #endif\n  w\") b";
    check(main, "a ( \"\n  x;\n\n  y;\n\n\n\n  w\" ) b");
    // One quote in a group that is read, and another in a skipped group.
    check("\"x\n#ifdef NO\ny\" c\n#else\nz\" d\n#endif\ne", "\"x\n\n\n\nz\" d e");
    check("\"x\n#ifdef D1\ny\" c\n#else\nz\" d\n#endif\ne", "\"x\n\ny\" c e");
    // A continued line, and lines that are not directives.
    check("\"x\\\n#if 0\\\n\" a", "\"x#if 0\" a");
    check("\"\n# note\n#if 0 /* no */\n#endif\n\"", "\"\n# note\n\n\n\"");
    // Definitions.
    check("\"\n#define A 7\n\" A", "\"\n\n\" 7");
    assert_eq!(run("\"\n#include <core.p4>\n\"").1, ["E0002@dir/main.p4:2"]);
    assert_eq!(run("\"\n#if 0\n\"\n#endif").1, ["E0103@dir/main.p4:1"]);
    assert_eq!(run("\"\n#if 1\n\"").1, ["E0005@dir/main.p4:2"]);
    assert_eq!(run("\"\n#endif\n\"").1, ["E0005@dir/main.p4:2"]);
}

#[test]
fn macros_within_multiline_strings_are_expanded() {
    let defines = "#define W 4095\n#define F(a, b) a != b\n";
    let check = |string: &str, expected: &str| check(&format!("{defines}{string}"), expected);
    check(
        "\"W\n W + F(x, W); // W\n don't W\n it's W' W\n\\\" W\" W",
        "\"W\n 4095 + x != 4095; // W\n don't W\n it's W' 4095\n\\\" W\" 4095",
    );
    check("\"W F(1, 2)\"", "\"W F(1, 2)\"");
}

#[test]
fn an_unbalanced_quote_in_a_skipped_group_hides_nothing() {
    check("#if 0\nit says \"hello\n#endif\na \"b\"", "a \"b\"");
    check("#if 0\n#error say \"hello\n#else\na\n#endif\nb", "a b");
    check("#if 0\n/* \"\n#endif */ x\n// \" \\\n#endif\n## \0\n#endif\na", "a");
    assert_eq!(run("#if 0\n/* x\n#endif\n").1, ["E0005@dir/main.p4:1"]);
}

#[test]
fn conditionals_nest_and_choose_one_branch() {
    check("#if 0\na\n#elif 1\nb\n#elif 1\nc\n#else\nd\n#endif\ne", "b e");
    check("#ifdef D1\n#ifndef D1\na\n#else\nb\n#endif\n#endif", "b");
    check("#if 0\n#if 1\na\n#else\nb\n#endif\n' \" /* unclosed stuff is fine */\n#error no\n#bogus\n#endif\nx", "x");
    check("#if defined(D1) && !defined D2 && (1 ? 2 : 3) == 2 && 0x10 == 020 && 1 << 4 >> 2 == 4\na\n#endif", "a");
    check("#if 0 && 1 / 0\n#else\na\n#endif", "a");
    assert_eq!(run("#if 1 / 0\na\n#endif").1, ["E0006@dir/main.p4:1"]);
    assert_eq!(run("#if\n#endif\n#if (1\n#endif\n#if 1 2\n#endif").1.len(), 3);
    assert_eq!(
        run("#endif\n#else\n#if 1\n#else\n#else\n#endif\n#ifdef D1").1,
        ["E0005@dir/main.p4:1", "E0005@dir/main.p4:2", "E0005@dir/main.p4:5", "E0005@dir/main.p4:7"]
    );
}

#[test]
fn includes_look_in_order() {
    let files = [
        ("dir/a.p4", "dir_a"),
        ("inc/a.p4", "inc_a"),
        ("sys/b.p4", "sys_b\n#include \"c.p4\""),
        ("sys/c.p4", "sys_c"),
        ("<core.p4>", "core"),
        ("<a.p4>", "embedded_a"),
    ];
    let main = "#include \"a.p4\"\n#include <a.p4>\n#include <b.p4>\n#include <core.p4>\n#include \"core.p4\"";
    let (text, codes) = run_with(main, &files, Limits::default());
    assert_eq!(text, "dir_a inc_a sys_b sys_c core core");
    assert_eq!(codes, [""; 0]);
    let (text, codes) = run_with("#define F <core.p4>\n#include F", &files, Limits::default());
    assert_eq!((text.as_str(), codes.len()), ("core", 0));
    assert_eq!(run("\n#include <no.p4>").1, ["E0001@dir/main.p4:2"]);
    assert_eq!(run("#include\n#include <x").1, ["E0002@dir/main.p4:1", "E0002@dir/main.p4:2"]);
}

#[test]
fn pragma_once_and_guards_include_once() {
    let files = [("dir/once.p4", "#pragma once\na"), ("dir/guard.p4", "#ifndef G\n#define G\nb\n#endif")];
    let main = "#include \"once.p4\"\n#include \"once.p4\"\n#include \"guard.p4\"\n#include \"guard.p4\"";
    assert_eq!(run_with(main, &files, Limits::default()).0, "a b");
}

#[test]
fn builtin_macros_give_file_and_line() {
    check("\n__LINE__ __FILE__", "2 \"dir/main.p4\"");
    check("#define L __LINE__\n\nL", "3");
}

#[test]
fn messages_name_the_directive() {
    assert_eq!(
        run("#error don't\n#warning w\n#defin X\n#define\n#define 3\n#undef").1,
        [
            "E0004@dir/main.p4:1",
            "W0001@dir/main.p4:2",
            "E0003@dir/main.p4:3",
            "E0002@dir/main.p4:4",
            "E0002@dir/main.p4:5",
            "E0002@dir/main.p4:6"
        ]
    );
    assert_eq!(run("#define A 1\n#define A 1\n#define A 2").1, ["W0002@dir/main.p4:3"]);
    assert_eq!(run("#define F(a) a\nF(1, 2)\nF(1").1, ["E0008@dir/main.p4:2", "E0008@dir/main.p4:3"]);
    assert_eq!(run("#if 1\n#endif x").1, ["W0003@dir/main.p4:2"]);
    check("# 12 \"other.p4\"\n#line 3\n#\nx", "x");
}

#[test]
fn preprocessed_text_has_line_markers() {
    let files = [("dir/h.p4", "// a header\nheader h_t { bit<8> a;\n}")];
    let main = "#define W 9\n#include \"h.p4\"\n\nconst bit<W> x = 1;\n\n\n\n\n\n\nstruct s_t { }";
    let tokens = run_tokens(main, &files);
    let text = to_text(&tokens.0, &tokens.1);
    let expected = "#line 2 \"h.p4\"\nheader h_t { bit<8> a;\n}\n#line 4 \"main.p4\"\nconst bit<9> x = 1;\n#line 11 \"main.p4\"\nstruct s_t { }\n";
    assert_eq!(text, expected);
    // Preprocessed again, each token has the same origin.
    let again = run_tokens(&text, &[]);
    let origins = |(tokens, sources): &(Vec<Token>, SourceMap)| -> Vec<(String, u32)> {
        let base = |name: &str| name.rsplit('/').next().unwrap_or(name).to_string();
        tokens.iter().filter_map(|t| sources.origin(t.span)).map(|(name, line)| (base(name), line)).collect()
    };
    let (first, second) = (origins(&tokens), origins(&again));
    assert_eq!(first[..tokens.0.len() - 1], second[..again.0.len() - 1]);
    assert_eq!(to_text(&again.0, &again.1), text);
}

#[test]
fn text_after_a_multiline_string_has_a_line_marker() {
    let tokens = run_tokens("@a(\"\n#if 0\n#endif\n\")\nx", &[]);
    assert_eq!(to_text(&tokens.0, &tokens.1), "#line 1 \"main.p4\"\n@a(\"\n\n\n\")\nx\n");
}

#[test]
fn limits_are_errors() {
    let mut bomb = String::from("#define A0 x x\n");
    for i in 1..60 {
        bomb.push_str(&format!("#define A{i} A{} A{}\n", i - 1, i - 1));
    }
    let limits = Limits { expansion_tokens_max: 10_000, ..Limits::default() };
    assert_eq!(run_with(&format!("{bomb}A59"), &[], limits).1, ["E0007@dir/main.p4:61"]);
    let own = [("dir/main.p4", "#include \"main.p4\"\n#include \"main.p4\"")];
    assert_eq!(run_with("#include \"main.p4\"", &own, Limits::default()).1, ["E0007@dir/main.p4:1"]);
    let nested = format!("#define F(a) a\n{}1{}", "F(".repeat(5000), ")".repeat(5000));
    assert_eq!(run(&nested).1, ["E0007@dir/main.p4:2"]);
    let parens = format!("#if {}1{}\n#endif", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(run(&parens).1, ["E0006@dir/main.p4:1"]);
}

#[test]
fn expansions_point_at_the_use() {
    let mut sources = SourceMap::new();
    let source = SourceInput { name: "m".into(), text: "#define A b + c\n  A;".into() };
    let (tokens, _) = preprocess(source, &Options::default(), &MemoryLoader::default(), &mut sources);
    let places: Vec<_> = tokens.iter().map(|t| sources.locate(t.span).map(|l| (l.1, l.2))).collect();
    assert_eq!(places, [Some((2, 3)), Some((2, 3)), Some((2, 3)), Some((2, 4)), Some((2, 5))]);
}

#[test]
fn small_texts_that_take_quadratic_time_are_refused() {
    let refused = |text: &str| {
        let codes = run(text).1;
        assert!(codes.last().is_some_and(|code| code.starts_with("E0007")), "{codes:?}");
    };
    refused(&"#if 1\n".repeat(100_000));
    let mut chain = "#define A0 x\n".to_string();
    (1..5000).for_each(|i| chain += &format!("#define A{i} A{}\n", i - 1));
    refused(&format!("{chain}A4999"));
    let params: Vec<String> = (0..5000).map(|i| format!("a{i}")).collect();
    refused(&format!("#define F({}) 1\n", params.join(",")));
    refused(&"#foo\n".repeat(100_000));
}

#[test]
fn pasted_names_that_double_are_refused() {
    let nested = format!("{}aaaa{}", "D(".repeat(60), ")".repeat(60));
    let codes = run(&format!("#define P(a,b) a##b\n#define Q(a,b) P(a,b)\n#define D(x) Q(x,x)\n{nested}")).1;
    assert_eq!(codes, ["E0007@dir/main.p4:4"]);
}

#[test]
fn tokens_are_counted_while_they_are_read() {
    let limits = Limits { tokens_max: 1000, ..Limits::default() };
    assert_eq!(run_with(&"(".repeat(1001), &[], limits).1, ["E0007@dir/main.p4:1"]);
    assert_eq!(run_with(&"(".repeat(1000), &[], limits).1, [""; 0]);
    let files = [("dir/h.p4", "( ( ( (")];
    assert_eq!(run_with(&"#include \"h.p4\"\n".repeat(200), &files, limits).1, ["E0007@dir/h.p4:1"]);
    assert_eq!(run(&"a".repeat(100_000)).1, ["E0007@dir/main.p4:1"]);
}

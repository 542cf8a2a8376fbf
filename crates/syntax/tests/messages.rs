//! What the messages say: one mistake, the message, and the help. Codes and places are in `err/`.

use base::SourceMap;
use expect_test::{Expect, expect};
use syntax::{MemoryLoader, Options, SourceInput, parse_program};

#[track_caller]
fn check(text: &str, expected: Expect) {
    let mut sources = SourceMap::new();
    let source = SourceInput { name: "x.p4".into(), text: text.into() };
    let parsed = parse_program(source, &Options::default(), &MemoryLoader::default(), &mut sources);
    let shown: String = parsed.diagnostics.iter().map(|d| d.render(&sources, false)).collect();
    expected.assert_eq(&shown);
}

#[test]
fn operators_of_other_languages() {
    check(
        "void f() { if (x = 1) { } }",
        expect![[r#"
        error[E0203]: expected `)`, found `=`
         --> x.p4:1:18
          |
        1 | void f() { if (x = 1) { } }
          |               -  ^
          |               |
          |               to close this
          |
          = help: `==` compares, `=` assigns and is not an expression
    "#]],
    );
    check(
        "void f() { x++; }",
        expect![[r#"
        error[E0201]: expected an expression, found `;`
         --> x.p4:1:15
          |
        1 | void f() { x++; }
          |               ^
          |
          = help: `++` concatenates bits; to count write `x = x + 1`
    "#]],
    );
    check(
        "void f() { x = a and b; }",
        expect![[r#"
        error[E0202]: expected `;`, found `and`
         --> x.p4:1:17
          |
        1 | void f() { x = a and b; }
          |                 ^
          |
          = help: logical and is written `&&`
    "#]],
    );
}

#[test]
fn separators() {
    check(
        "control c() { table t { actions = { a, b; } } apply { } }",
        expect![[r#"
        error[E0202]: expected `;`, found `,`
         --> x.p4:1:38
          |
        1 | control c() { table t { actions = { a, b; } } apply { } }
          |                                      ^ write `;` instead of `,`
    "#]],
    );
    check(
        "const bit<8> x = 1\nconst bit<8> y = 2;",
        expect![[r#"
        error[E0202]: expected `;`, found the keyword `const`
         --> x.p4:1:19
          |
        1 | const bit<8> x = 1
          |                   ^ add `;` here
    "#]],
    );
    check(
        "void f() { if (a { x = 1; } }",
        expect![[r#"
        error[E0203]: expected `)`, found `{`
         --> x.p4:1:18
          |
        1 | void f() { if (a { x = 1; } }
          |               -  ^
          |               |
          |               to close this
    "#]],
    );
}

#[test]
fn keywords() {
    check(
        "void f() { if (a) { } esle { } }",
        expect![[r#"
        error[E0201]: expected `=`, an assignment operator, or a call, found `{`
         --> x.p4:1:28
          |
        1 | void f() { if (a) { } esle { } }
          |                            ^
          |
          = help: did you mean `else` instead of `esle`?
    "#]],
    );
    check(
        "tabel t { }",
        expect![[r#"
            error[E0201]: expected `(`, found `{`
             --> x.p4:1:9
              |
            1 | tabel t { }
              |         ^
              |
              = help: did you mean `table` instead of `tabel`?
        "#]],
    );
    check(
        "struct s { bit<8> state; bit<8> table; }",
        expect![[r#"
        error[E0207]: expected a field's name, found the keyword `table`
         --> x.p4:1:33
          |
        1 | struct s { bit<8> state; bit<8> table; }
          |                                 ^^^^^
          |
          = help: `table` cannot be used as a name
    "#]],
    );
}

/// The help of a program `main` that includes what is not there, beside files of these names.
#[track_caller]
fn include_help(main: &str, include: &str, beside: &[&str], expected: &str) {
    let mut loader = MemoryLoader::default();
    loader.files.extend(beside.iter().chain([&main]).map(|name| (name.to_string(), "".into())));
    loader.embedded.extend(["core.p4", "v1model.p4"].map(|name| (name.to_string(), "".into())));
    let source = SourceInput { name: main.into(), text: format!("#include {include}\n").into() };
    let parsed = parse_program(source, &Options::default(), &loader, &mut SourceMap::new());
    assert_eq!(parsed.diagnostics.len(), 1, "{:?}", parsed.diagnostics);
    assert_eq!(parsed.diagnostics[0].code, "E0001");
    assert_eq!(parsed.diagnostics[0].help.as_deref().unwrap_or_default(), expected);
}

#[test]
fn a_missing_architecture_is_named_as_one_beside_a_file_of_a_similar_name() {
    let there_are = "the compiler comes with <core.p4> and <v1model.p4>, and no other architecture";
    include_help("x.p4", "\"pna.p4\"", &["pnaq.p4"], &format!("did you mean \"pnaq.p4\"? {there_are}"));
    include_help("d/x.p4", "\"psa.p4\"", &["d/psb.p4"], &format!("did you mean \"psb.p4\"? {there_are}"));
    let looked = "looked in: .; add a directory with -I";
    include_help("x.p4", "\"tna.p4\"", &[], &format!("{there_are}; {looked}"));
    include_help("x.p4", "\"bmv2/psa.p4\"", &[], &format!("{there_are}; {looked}"));
    let no_folder = "no include directory is given; add one with -I";
    include_help("x.p4", "<ubpf_model.p4>", &[], &format!("{there_are}; {no_folder}"));
    include_help("x.p4", "<dpdk/pna.p4>", &[], &format!("{there_are}; {no_folder}"));
    // Any other file.
    include_help("x.p4", "\"headres.p4\"", &["headers.p4"], "did you mean \"headers.p4\"?");
    include_help("x.p4", "\"tables.p4\"", &[], looked);
}

#[test]
fn the_including_file_is_not_suggested() {
    let there_are = "the compiler comes with <core.p4> and <v1model.p4>, and no other architecture";
    let looked = "looked in: .; add a directory with -I";
    include_help("pnaq.p4", "\"pna.p4\"", &[], &format!("{there_are}; {looked}"));
    include_help("d/router1.p4", "\"router.p4\"", &[], "looked in: d; add a directory with -I");
    include_help("d/router1.p4", "\"router.p4\"", &["d/router2.p4"], "did you mean \"router2.p4\"?");
}

#[test]
fn preprocessor() {
    check(
        "#include <v1model.p4>",
        expect![[r#"
        error[E0001]: cannot find `v1model.p4`
         --> x.p4:1:10
          |
        1 | #include <v1model.p4>
          |          ^^^^^^^^^^^^
          |
          = help: no include directory is given; add one with -I
    "#]],
    );
    check(
        "#ifdfe X\n#endif",
        expect![[r#"
            error[E0003]: unknown directive `#ifdfe`
             --> x.p4:1:1
              |
            1 | #ifdfe X
              | ^^^^^^
              |
              = help: did you mean `#ifdef`?
        "#]],
    );
    check(
        "#define ADD(a, b) (a + b)\nconst int x = ADD(1);",
        expect![[r#"
            error[E0008]: macro `ADD` takes 2 arguments, not 1
             --> x.p4:2:15
              |
            1 | #define ADD(a, b) (a + b)
              |         --- the macro is defined here
            2 | const int x = ADD(1);
              |               ^^^
        "#]],
    );
}

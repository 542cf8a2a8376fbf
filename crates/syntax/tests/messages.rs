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
          = help: `==` compares, `=` assigns and is no expression
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

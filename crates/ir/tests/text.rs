//! The text form: every construct survives printing and parsing, and malformed text is refused with its location.

use base::FileId;
use expect_test::{Expect, expect};
use ir::{parse, print, verify};

/// A program with every construct of the text form.
const EVERYTHING: &str = include_str!("everything.ir");

fn parsed(text: &str) -> ir::Program {
    parse(text, FileId(0)).unwrap_or_else(|diags| panic!("{diags:#?}"))
}

#[test]
fn printing_what_was_parsed_gives_the_same_text() {
    let program = parsed(EVERYTHING);
    let lines: Vec<&str> = EVERYTHING.lines().filter(|l| !l.starts_with("//")).collect();
    assert_eq!(print(&program), lines.join("\n") + "\n");
    assert_eq!(parsed(&print(&program)), program);
}

#[test]
fn the_program_with_everything_is_well_formed() {
    let diags = verify(&parsed(EVERYTHING));
    assert!(diags.is_empty(), "{diags:#?}");
}

#[test]
fn everything_has_every_operation() {
    // The operations' words; a new operation must be added to `everything.ir`.
    let words = "mov add sub mul div mod and or xor shl lshr ashr sat_add_u sat_sub_u sat_add_s sat_sub_s eq ne ult ule \
        slt sle not neg zext sext trunc concat slice set_slice select set_valid set_invalid has_bits extract advance \
        lookahead consumed emit truncate apply param count count_direct meter meter_direct read write update hash random \
        digest log assert charge mark jump branch switch next drop send replicate";
    for word in words.split_whitespace() {
        let found = EVERYTHING.lines().any(|l| l.starts_with("  ") && l.split_whitespace().any(|w| w == word));
        assert!(found, "`{word}` is missing in everything.ir");
    }
}

fn check_errors(text: &str, expect: Expect) {
    let diags = parse(text, FileId(0)).expect_err("the text is broken");
    let lines: Vec<String> = diags
        .iter()
        .map(|d| {
            let line = text[..d.span.start as usize].matches('\n').count() + 1;
            format!("{line}: {} {}\n", d.code, d.message)
        })
        .collect();
    expect.assert_eq(&lines.concat());
}

#[test]
fn one_run_reports_several_errors_each_with_its_line() {
    check_errors(
        "slot a: 8 metadata\n\
         slot a: 9 metadata\n\
         slot b: 4294967296 metadata\n\
         intrinsic nonsense = a\n\
         stage control c {\n\
         b0:\n\
         \x20 a = add a, nobody\n\
         \x20 a = frobnicate a\n\
         \x20 a = mov 8w256\n\
         b2:\n\
         \x20 next\n\
         \x20 next\n\
         }\n\
         what is this {\n\
         \x20 inside\n\
         }\n\
         slot c: 8 \"unfinished\n\
         stage parser p {\n\
         b0:\n",
        expect![[r#"
            17: E0701 broken text in quotes
            2: E0704 two slots are named `a`
            3: E0705 `4294967296` is not a number that fits here
            4: E0702 expected an intrinsic, found `nonsense`
            7: E0703 there is no slot `nobody`
            8: E0702 expected an operation, found `frobnicate`
            9: E0705 `8w256`: the value does not fit into the width
            10: E0706 expected block b1: blocks are numbered in order
            12: E0706 expected a block after a terminator
            14: E0702 there is no declaration `what`
            18: E0702 expected `}` before the end of the text
            18: E0706 block b0 has no terminator
        "#]],
    );
}

#[test]
fn names_that_look_odd_are_quoted_and_come_back() {
    let mut b = ir::Builder::new("odd \"name\"\n");
    for name in ["", "two words", "7up", "tab\there", "ünïcode", "back\\slash", "\u{7f}", "b0", "a=b"] {
        b.metadata(name, 8);
    }
    let program = b.finish();
    assert_eq!(parsed(&print(&program)), program);
}

proptest::proptest! {
    #[test]
    fn generated_programs_are_well_formed_and_go_through_their_text(
        choices in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..1500),
    ) {
        let program = ir::generate::generate(&choices);
        let diags = verify(&program);
        assert!(diags.is_empty(), "{diags:#?}\n{}", print(&program));
        assert_eq!(parsed(&print(&program)), program);
    }

    #[test]
    fn no_text_makes_the_parser_panic(cut in 0usize..4000, junk in "\\PC{0,20}") {
        // Damaged in the middle, so that most of the grammar is reached.
        let at = EVERYTHING.len().min(cut);
        let at = (0..=at).rev().find(|i| EVERYTHING.is_char_boundary(*i)).unwrap_or(0);
        let text = format!("{}{junk}{}", &EVERYTHING[..at], &EVERYTHING[at..]);
        if let Ok(program) = parse(&text, FileId(0)) {
            verify(&program);
        }
    }
}

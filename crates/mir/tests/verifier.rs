//! Errors of the verifier and the parser, and their messages.

use mir::{parse, verify};

/// The text of a module with this function and all declarations that it can refer to.
fn module(body: &str) -> String {
    format!(
        "table @t words 2 handle 0x0 lookup 0x0
runtime @r(i64, i32) -> i64 reads stack writes state at 0x0
function @g -> i64 {{
b0(v0: i64):
  return v0
}}
function @f -> i64 any {{
  slot s0 16 align 8
b0(v0: i64, v1: i32, v2: i1):
{body}
}}
"
    )
}

#[track_caller]
fn refused(body: &str, expected: &str) {
    let module = parse(&module(body)).unwrap_or_else(|e| panic!("{e}"));
    let violations: Vec<String> = verify(&module).iter().map(|violation| violation.to_string()).collect();
    assert!(violations.iter().any(|violation| violation == expected), "{violations:#?}");
}

#[test]
fn what_is_right_is_accepted() {
    let body = "  v3 = call.runtime @r(v0, v1)
  v4 = issue @t v0, v3
  jump b1(v4)
b1(v5: probe @t):
  v6 = take v5
  v7 = address s0+16
  v8 = call @g(v6)
  branch v2, b2, b1(v5) weight 0
b2:
  return v8";
    let module = parse(&module(body)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(verify(&module), []);
}

#[test]
fn types() {
    refused("  v3 = add.i64 v0, v1\n  return v3", "f, b0, `v3 = add.i64 v0, v1`: v1 is of type i32, not i64");
    refused("  v3 = eq v0, v1\n  return v0", "f, b0, `v3 = eq v0, v1`: v1 is of type i32, not i64");
    refused("  v3 = zext.i32 v0\n  return v0", "f, b0, `v3 = zext.i32 v0`: cannot make i32 of i64");
    refused("  v3 = neg.i1 v2\n  return v0", "f, b0, `v3 = neg.i1 v2`: there is no such operation on i1");
    refused("  v3 = const.i8 256\n  return v0", "f, b0, `v3 = const.i8 256`: 0x100 has more bits than i8");
    refused("  v3 = take v0\n  return v3", "f, b0, `v3 = take v0`: v0 is of type i64, which is not a probe");
    refused("  return v1", "f, b0, `terminator`: returns i32, not i64");
    refused("  return", "f, b0, `terminator`: returns nothing, not i64");
    refused("  branch v0, b1, b1\nb1:\n  return v0", "f, b0, `terminator`: v0 is of type i64, not i1");
}

#[test]
fn definitions_dominate_uses() {
    let body = "  branch v2, b1, b2\nb1:\n  v3 = const.i64 1\n  jump b2\nb2:\n  return v3";
    refused(body, "f, b2, `terminator`: v3 is not defined on all paths to here");
    let body = "  v3 = add.i64 v4, v0\n  v4 = const.i64 1\n  return v3";
    refused(body, "f, b0, `v3 = add.i64 v4, v0`: v4 is not defined on all paths to here");
    refused("  jump b0(v0, v1, v2)", "f, b0, `parameters`: an edge leads to the entry");
}

#[test]
fn arguments() {
    refused("  jump b1\nb1(v3: i64):\n  return v3", "f, b0, `terminator`: b1 takes 1 values, and there are 0");
    refused("  jump b1(v1)\nb1(v3: i64):\n  return v3", "f, b0, `terminator`: v1 is of type i32, not i64");
    refused(
        "  v3 = call.runtime @r(v0)\n  return v3",
        "f, b0, `v3 = call.runtime @r(v0)`: runtime function `r` takes 2 values, and there are 1",
    );
    refused(
        "  v3 = issue @t v0\n  return v0",
        "f, b0, `v3 = issue @t v0`: a key of table `t` takes 2 values, and there are 1",
    );
    refused("  switch v0, 1: b1, 1: b1, else b1\nb1:\n  return v0", "f, b0, `terminator`: two cases of 1");
}

#[test]
fn memory() {
    refused(
        "  store le4 entry v0+4, v1\n  return v0",
        "f, b0, `store le4 entry v0+4, v1`: entry never changes while the code runs",
    );
    refused(
        "  v3 = load.i32 le8 frame v0\n  return v0",
        "f, b0, `v3 = load.i32 le8 frame v0`: 8 bytes and a value of type i32",
    );
    refused(
        "  v3 = load.i128 be9 frame v0\n  return v0",
        "f, b0, `v3 = load.i128 be9 frame v0`: an access has 1 to 8 or 16 bytes, not 9",
    );
    refused(
        "  v3 = load.i64 le8 none v0\n  return v3",
        "f, b0, `v3 = load.i64 le8 none v0`: an access is in some region",
    );
    refused("  v3 = address s0+17\n  return v3", "f, b0, `v3 = address s0+17`: 17 is outside of the slot's 16 bytes");
    refused(
        "  v3 = pack.i64 v1:20 at 0, v1:20 at 19\n  return v3",
        "f, b0, `v3 = pack.i64 v1:20 at 0, v1:20 at 19`: v1 lies over another part",
    );
}

#[test]
fn effects_cover_what_a_function_does() {
    let text = "function @f reads frame {\nb0(v0: i64):\n  v1 = load.i8 le1 frame|value v0\n  store le1 record v0, v1\n  return\n}\n";
    let module = parse(text).unwrap_or_else(|e| panic!("{e}"));
    let violations: Vec<String> = verify(&module).iter().map(|violation| violation.to_string()).collect();
    assert_eq!(
        violations,
        ["f: reads value, which its effects do not declare", "f: writes record, which its effects do not declare"]
    );
}

#[test]
fn the_parser_says_line_and_reason() {
    let message = |body: &str| parse(&module(body)).expect_err("no module").to_string();
    assert_eq!(message("  v3 = ad.i64 v0, v0\n  return v3"), "line 10: there is no instruction `ad.i64`");
    assert_eq!(message("  v3 = load.i64 le8 frme v0\n  return v3"), "line 10: there is no region `frme`");
    assert_eq!(message("  return v9"), "line 11: `v9` is not defined in function `f`");
    assert_eq!(message("  v0 = const.i64 1\n  return v0"), "line 10: `v0` is defined twice");
    assert_eq!(message("  v3 = const.i7 1\n  return v0"), "line 10: there is no instruction `const.i7`");
    assert_eq!(message("  v3 = phase 1\n  return v0"), "line 10: this instruction has no result");
    assert_eq!(message("  v3 = call @h(v0)\n  return v0"), "line 10: there is no function `h`");
    assert_eq!(message("  jump"), "line 11: expected a block, found `}`");
}

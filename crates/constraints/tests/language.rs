//! The constraint language: what holds, what is refused and where.

use base::Bits;
use base::entry::{KeyMatch, MatchKind};
use constraints::{Constraint, Operand, Scope, Values};

fn scope() -> Scope {
    let field = |name: &str, kind, width| (name.to_string(), Operand::Field(kind, width));
    Scope {
        names: vec![
            field("valid", MatchKind::Exact, 1),
            field("hdr.ip.dst", MatchKind::Ternary, 32),
            field("route", MatchKind::Lpm, 32),
            field("ports", MatchKind::Range, 16),
            field("vlan", MatchKind::Optional, 12),
            field("hdr.ip.src", MatchKind::Ternary, 32),
        ],
        has_priority: true,
    }
}

/// valid 1, dst 10.0.0.0 &&& 255.0.0.0, route 10.1.0.0/16, ports 80..=443, vlan 5, src don't care, priority 7.
fn key() -> Vec<KeyMatch> {
    let ternary = |value, mask| KeyMatch::Ternary { value: Bits::new(32, value), mask: Bits::new(32, mask) };
    vec![
        KeyMatch::Exact(Bits::new(1, 1)),
        ternary(0x0a00_0000, 0xff00_0000),
        KeyMatch::Lpm { value: Bits::new(32, 0x0a01_0000), prefix_len: 16 },
        KeyMatch::Range { low: Bits::new(16, 80), high: Bits::new(16, 443) },
        KeyMatch::Optional(Some(Bits::new(12, 5))),
        ternary(0, 0),
    ]
}

#[track_caller]
fn holds(text: &str) -> bool {
    let constraint = Constraint::new(text, &scope()).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    constraint.check(Values::Entry(&key(), 7)).is_ok()
}

#[test]
fn conditions_about_fields_hold_or_not() {
    for text in [
        "true",
        "valid == 1",
        "valid::value != 0",
        "hdr.ip.dst::mask == 0xff000000 && hdr.ip.dst::value == ipv4('10.0.0.0')",
        "hdr.ip.dst != 0x0a000000", // not all bits count
        "hdr.ip.src::mask == 0 -> hdr.ip.src::value == 0;",
        "route::prefix_length <= 24; route::prefix_length >= 0b10000",
        "-route::prefix_length == -16",
        "ports::low < ports::high",
        "ports != 80",
        "vlan == 5 && vlan::mask == -1 && vlan == 0o5",
        "hdr.ip.src != hdr.ip.dst && hdr.ip.src == hdr.ip.src",
        "::priority < 0x7fffffff",
        "!(valid == 0)",
        "false -> valid == 0",
        "(valid == 1) == true",
        "// a comment\n valid == 1 /* and\n another */ ;",
        "valid == 3", // modulo two, as in P4
        "false && true || true",
        "(true; true;) && true",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in [
        "false",
        "valid == 0",
        "hdr.ip.dst == 0x0a000000",
        "route == 0x0a010000",
        "vlan::mask == 0",
        "valid == 1 -> vlan == 6",
        "ports::high <= 442",
        "::priority >= 8",
        "true; true; false; true",
        "true || true && false -> false",
    ] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn an_optional_field_that_is_left_out_has_no_mask() {
    let constraint = Constraint::new("vlan::mask == 0 && vlan::value == 0 && vlan != 0", &scope()).unwrap();
    let mut key = key();
    key[4] = KeyMatch::Optional(None);
    assert_eq!(constraint.check(Values::Entry(&key, 1)), Ok(()));
}

#[test]
fn the_clause_that_does_not_hold_is_named() {
    let text = "valid == 1;\n  // why\n  vlan == 5 ->\n    ports::low == 1;\n true";
    let constraint = Constraint::new(text, &scope()).unwrap();
    assert_eq!(constraint.check(Values::Entry(&key(), 7)), Err("vlan == 5 -> ports::low == 1"));
}

#[test]
fn clauses_that_do_not_fit_are_left_out() {
    let text = "valid == 0; hdr.ip.dst::prefix_length == 0; no_such == 1; route::prefix_length == 16";
    let (constraint, misfits) = Constraint::fitting(text, &scope()).unwrap();
    let messages: Vec<&str> = misfits.iter().map(|misfit| misfit.message.as_str()).collect();
    assert_eq!(messages, ["a field of type `ternary<32>` has no `prefix_length`", "there is no `no_such` here"]);
    assert_eq!(constraint.check(Values::Entry(&key(), 7)), Err("valid == 0"));
    let (rest, _) = Constraint::fitting("hdr.ip.dst::prefix_length == 0", &scope()).unwrap();
    assert_eq!(rest.check(Values::Entry(&key(), 7)), Ok(()));
    assert!(Constraint::fitting("valid == 0; valid ==", &scope()).is_err());
}

#[test]
fn parameters_of_actions_are_numbers() {
    let scope = Scope { names: vec![("vlan_id".to_string(), Operand::Param(12))], has_priority: false };
    let constraint = Constraint::new("vlan_id != 0 && vlan_id != 4095 && vlan_id::value < 4000", &scope).unwrap();
    assert_eq!(constraint.check(Values::Call(&[Bits::new(12, 1)])), Ok(()));
    assert!(constraint.check(Values::Call(&[Bits::new(12, 4095)])).is_err());
    assert!(Constraint::new("::priority == 1", &scope).is_err());
}

#[test]
fn addresses_are_numbers() {
    let scope = Scope { names: vec![("a".to_string(), Operand::Param(128))], has_priority: false };
    for (text, value) in [
        ("a == ipv4('1.2.3.4')", 0x0102_0304),
        ("a == ipv6('::1:2')", 0x1_0002),
        ("a == mac('00:00:00:00:01:05')", 0x105),
    ] {
        let constraint = Constraint::new(text, &scope).unwrap();
        assert_eq!(constraint.check(Values::Call(&[Bits::new(128, value)])), Ok(()), "{text}");
    }
}

#[test]
fn what_is_wrong_is_refused_at_its_place() {
    for (text, place, message) in [
        ("", "", "expected a condition, a name or a number, but the constraint ends"),
        ("foo.bar == 2", "foo.bar", "there is no `foo.bar` here"),
        ("valid == 0b2", "0b2", "`0b2` is no number"),
        ("valid == 1 here", "here", "expected an operator or the end, but there is `here`"),
        ("vlan::prefix_length == 1", "vlan::prefix_length", "a field of type `optional<12>` has no `prefix_length`"),
        ("0x0F0F :: value", "0x0F0F", "`::value` is for fields, this is `int`"),
        ("-false", "false", "`-` is for `int`, this is `bool`"),
        ("!1", "1", "expected a condition, this is `int`"),
        ("vlan > 10", "vlan > 10", "`optional<12> > int` means nothing"),
        ("::unknown > 10", "::unknown", "there is no attribute `unknown`"),
        ("valid == 1 == 1", "==", "this does not chain"),
        ("true -> true -> true", "->", "this does not chain"),
        ("vlan::mask == ports::low", "vlan::mask == ports::low", "`bit<12> == bit<16>` means nothing"),
        ("valid == true", "valid == true", "`bit<1> == bool` means nothing"),
        ("true < false", "true < false", "`bool < bool` means nothing"),
        ("valid", "valid", "expected a condition, this is `bit<1>`"),
        ("valid == 1 & true", "&", "`&` means nothing in a constraint"),
        ("(valid == 1", "", "expected `)`, but the constraint ends"),
        ("/* valid", "/* valid", "this comment has no end"),
        ("hdr.ip.dst == ipv4('1.2.3')", "'1.2.3'", "'1.2.3' is no ipv4 address"),
        ("valid == 1; ; true", ";", "expected a condition, a name or a number, but there is `;`"),
    ] {
        let error = Constraint::new(text, &scope()).expect_err(text);
        assert_eq!(error.message, message, "{text}");
        assert_eq!(&text[error.place.clone()], place, "{text}: {:?}", error.place);
    }
}

#[test]
fn deep_nesting_is_refused() {
    for text in ["(".repeat(5000), "!".repeat(5000), "true && ".repeat(5000), "-".repeat(5000)] {
        assert!(Constraint::new(&text, &scope()).is_err());
    }
}

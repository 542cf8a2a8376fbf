//! The trace of a packet, as `sluice trace` shows it.

mod common;

use base::SourceMap;
use expect_test::expect;
use interp::trace::Form;

#[test]
fn steps_stand_under_the_source_lines_they_came_from() {
    let source = "parse h\nkey h.a\nh.b = x;\nemit h\n";
    let text = r#"program "t"
drops short
slot h.a: 8 field h
slot h.b: 8 field h
slot h.$valid: 1 valid h
slot %0: 1 temp
slot %1: 32 temp
slot %2: 64 temp
slot %3: 64 temp
header h valid h.$valid {
  a = h.a
  b = h.b
}
action set (x: 8)
table t {
  key h.a: 8 ternary
  action set
  default 0 (8w7)
  size 4
  entry (ternary 8w1 &&& 8w0xf) priority 3 -> call 0 (8w9)
}
entry ingress (P, C, D)
stage parser P {
b0:
  mark state "start" @0:0-5
  %0 = has_bits 8w16 @0:0-5
  branch %0, b1, b2
b1:
  extract h @0:0-5
  next
b2 reject:
  drop short @0:0-5
}
stage control C {
b0:
  %0, %1, %2, %3 = apply t (h.a) @0:8-11
  mark action "set" @0:16-17
  h.b = param t, 0, 0, %3 @0:16-17
  next
}
stage deparser D {
b0:
  emit h @0:25-26
  send 9w5
}
"#;
    let mut sources = SourceMap::new();
    sources.add("t.p4", source);
    let interp = common::interp(text);
    let mut trace = interp::Trace::default();
    for packet in ["2102", "2202ff", "00"] {
        common::traced(&interp, packet, 0, Some(&mut trace));
    }
    expect![[r#"
        == parser P
        t.p4:1: parse h
            state start
            extract h at byte 0: a=0x21, b=0x2
            to accept
        == control C
        t.p4:2: key h.a
            apply t (h.a=0x21): hit (ternary 8w0x1 &&& 8w0xf) priority 3 -> set(x=0x9)
        t.p4:3: h.b = x;
            action set
            h.b: 0x2 -> 0x9
        == deparser D
        t.p4:4: emit h
            emit h: 2109
            send to port 5
        == parser P
        t.p4:1: parse h
            state start
            extract h at byte 0: a=0x22, b=0x2
            to accept
        == control C
        t.p4:2: key h.a
            apply t (h.a=0x22): miss -> set(x=0x7)
        t.p4:3: h.b = x;
            action set
            h.b: 0x2 -> 0x7
        == deparser D
        t.p4:4: emit h
            emit h: 2207
            send to port 5
        == parser P
        t.p4:1: parse h
            state start
            packet too short: 16 bits are not there
            to reject
            drop short
    "#]]
    .assert_eq(&trace.render(&sources, Form::Lowered));
}

#[test]
fn conditions_show_their_source_text_and_parsers_where_they_end() {
    let source = "extract(h);\nif (h.isValid() && h.a <=\n  1) f();\ntransition select(h.a) {\ng();\n";
    let at = |text: &str| {
        let start = source.find(text).expect("the text is there");
        format!("@0:{start}-{}", start + text.len())
    };
    let text = r#"program "t"
drops short
slot h.a: 8 field h
slot h.$valid: 1 valid h
slot %0: 1 temp
slot %1: 32 temp
slot %2: 64 temp
slot %3: 64 temp
header h valid h.$valid {
  a = h.a
}
action f ()
action g ()
table t {
  key h.a: 8 exact
  action f
  action g
  default 0 ()
  size 4
  entry (exact 8w1) priority 0 -> call 1 ()
}
entry ingress (P, C)
stage parser P {
b0:
  %0 = has_bits 8w8 EXTRACT
  branch %0, b1, b4 EXTRACT
b1:
  extract h EXTRACT
  %0 = ule h.a, 8w5
  branch %0, b2, b3 SELECT
b2 low:
  next
b3:
  next
b4 PacketTooShort:
  next
}
stage control C {
b0:
  mark block "C" GUARD
  branch h.$valid, b1, b5 VALID
b1:
  %0 = ule h.a, 8w1
  branch %0, b2, b5 COMPARE
b2:
  %0, %1, %2, %3 = apply t (h.a) GUARD
  switch %1, 32w1 -> b3, default -> b4 GUARD
b3 g:
  %0 = eq h.a, 8w3
  branch %0, b4, b5 GUARD
b4 f:
  send 9w5
b5:
  branch h.$valid, b6, b6 GUARD
b6:
  send 9w6
}
"#;
    let places = [("EXTRACT", "extract(h)"), ("SELECT", "select(h.a)"), ("GUARD", "g()")];
    let conditions = [("VALID", "h.isValid()"), ("COMPARE", "h.a <=\n  1")];
    let text = places
        .iter()
        .chain(&conditions)
        .fold(text.to_string(), |text, (name, at_text)| text.replace(name, &at(at_text)));
    let mut sources = SourceMap::new();
    sources.add("t.p4", source);
    let interp = common::interp(&text);
    let mut trace = interp::Trace::default();
    for packet in ["01", "09", ""] {
        common::traced(&interp, packet, 0, Some(&mut trace));
    }
    expect![[r#"
        == parser P
        t.p4:1: extract(h);
            extract h at byte 0: a=0x1
        t.p4:4: transition select(h.a) {
            to low
        == control C
        t.p4:2: if (h.isValid() && h.a <=
            h.isValid() is true
            h.a <= 1 is true
        t.p4:5: g();
            apply t (h.a=0x1): hit (exact 8w0x1) -> g()
            h.isValid() is true
            send to port 6
        == parser P
        t.p4:1: extract(h);
            extract h at byte 0: a=0x9
            to accept
        == control C
        t.p4:2: if (h.isValid() && h.a <=
            h.isValid() is true
            h.a <= 1 is false
        t.p4:5: g();
            h.isValid() is true
            send to port 6
        == parser P
        t.p4:1: extract(h);
            packet too short: 8 bits are not there
            to PacketTooShort
        == control C
        t.p4:2: if (h.isValid() && h.a <=
            h.isValid() is false
        t.p4:5: g();
            h.isValid() is false
            send to port 6
    "#]]
    .assert_eq(&trace.render(&sources, Form::Lowered));
}

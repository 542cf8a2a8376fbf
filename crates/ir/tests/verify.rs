//! The verifier: each rule is violated once, by replacing a line of a well-formed program.

use base::FileId;
use expect_test::{Expect, expect};
use ir::{parse, verify};

const EVERYTHING: &str = include_str!("everything.ir");

/// Replaces the first `from` by `to` and expects these violations.
fn check(from: &str, to: &str, expect: Expect) {
    assert!(EVERYTHING.contains(from), "`{from}` is not in everything.ir");
    let program = parse(&EVERYTHING.replacen(from, to, 1), FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"));
    let lines: Vec<String> = verify(&program).iter().map(|d| format!("{} {}\n", d.code, d.message)).collect();
    expect.assert_eq(&lines.concat());
}

#[test]
fn widths_are_exact() {
    check(
        "m8 = add m8, 8w0x1",
        "m8 = add m8, 9w0x1",
        expect![[r#"
        E0728 stage `C`, block b2: `m8 = add m8, 9w0x1`: the second operand has 9 bits, not 8
    "#]],
    );
    check(
        "m16 = concat m8, m8",
        "m8 = concat m8, m8",
        expect![[r#"
        E0728 stage `C`, block b2: `m8 = concat m8, m8`: the parts have 8 and 8 bits, the destination 8
    "#]],
    );
    check(
        "m8 = trunc m16",
        "m16 = trunc m8",
        expect![[r#"
        E0728 stage `C`, block b2: `m16 = trunc m8`: the destination is wider
    "#]],
    );
    check(
        "m16 = sext m8",
        "m8 = sext m16",
        expect![[r#"
        E0728 stage `C`, block b2: `m8 = sext m16`: the destination is narrower
    "#]],
    );
    check(
        "m1 = ult m8, m8",
        "m8 = ult m8, m8",
        expect![[r#"
        E0728 stage `C`, block b2: `m8 = ult m8, m8`: the destination has 8 bits, not 1
    "#]],
    );
    check(
        "m8 = slice m16, 15, 8",
        "m8 = slice m16, 16, 9",
        expect![[r#"
        E0728 stage `C`, block b2: `m8 = slice m16, 16, 9`: bits 16 to 9 of 16
    "#]],
    );
    check(
        "%4 = param C.t, 0, 0, %3",
        "%4 = param C.t, 0, 1, %3",
        expect![[r#"
        E0728 stage `C`, block b1: `%4 = param C.t, 0, 1, %3`: the destination has 9 bits, not 48
    "#]],
    );
    check(
        "branch m1, b1, b2",
        "branch m8, b1, b2",
        expect![[r#"
            E0728 stage `glue`, block b0: `branch m8, b1, b2`: the condition has 8 bits, not 1
        "#]],
    );
    check(
        "slot m16: 16 metadata",
        "slot m16: 0 metadata\nslot other: 16 metadata",
        expect![[r#"
            E0722 slot `m16` has 0 bits; 1 to 1048576 are possible
            E0728 stage `C`, block b0: `%0, %1, %2, %3 = apply C.t (hdr.eth.dst, hdr.eth.type, m8, m32, m16)`: the keys do not fit those of `C.t`
            E0728 stage `C`, block b2: `m16 = zext m8`: the destination is narrower
            E0728 stage `C`, block b2: `m16 = sext m8`: the destination is narrower
            E0728 stage `C`, block b2: `m8 = trunc m16`: the destination is wider
            E0728 stage `C`, block b2: `m16 = concat m8, m8`: the parts have 8 and 8 bits, the destination 0
            E0728 stage `C`, block b2: `m8 = slice m16, 15, 8`: bits 15 to 8 of 0
            E0728 stage `C`, block b2: `m16 = set_slice 7, 0, m8`: bits 7 to 0 of 0
            E0728 stage `C`, block b2: `m16 = read C.reg, m32`: the destination has 0 bits, not 16
            E0728 stage `C`, block b2: `write C.reg, m32, m16`: the source has 0 bits, not 16
            E0728 stage `C`, block b2: `m16 = update C.reg, m32, add, 16w0x1`: the destination has 0 bits, not 16
            E0728 stage `C`, block b2: `m16 = update C.reg, m32, exchange, m16`: the destination has 0 bits, not 16
            E0728 stage `C`, block b2: `m16 = hash crc16 base 16w0x0 max 32w0x64 data (m8, hdr.opt.data) varbits (1: hdr.opt.data.$length)`: the base has 16 bits, not 0
            E0728 stage `C`, block b2: `m16 = hash csum16 base 16w0x0 data () payload`: the base has 16 bits, not 0
            E0728 stage `C`, block b2: `m16 = hash calculation calc_0 base 16w0x0 data (m8)`: the base has 16 bits, not 0
            E0728 stage `C`, block b2: `m16 = random 16w0x0, m16`: the lower end has 16 bits, not 0
            E0732 match field `odd field` takes bits that slot `m16` does not have
        "#]],
    );
}

#[test]
fn headers_are_consistent() {
    check(
        "slot hdr.eth.dst: 48 field",
        "slot hdr.eth.dst: 48 valid",
        expect![[r#"
        E0723 slot `hdr.eth.dst` says it is Valid(HeaderId(0)) but is Field(HeaderId(0))
    "#]],
    );
    check(
        "slot hdr.opt.len: 8 field hdr.opt",
        "slot hdr.opt.len: 7 field hdr.opt",
        expect![[r#"
        E0723 header `hdr.opt` has 7 fixed bits, not a multiple of 8
    "#]],
    );
    check(
        "  type = hdr.eth.type",
        "  type = hdr.eth.dst",
        expect![[r#"
        E0723 slot `hdr.eth.dst` is both Field(HeaderId(0)) and Field(HeaderId(0))
        E0723 slot `hdr.eth.type` says it is Field(HeaderId(0)) but is no part of a header
        E0731 stage `P`, block b1: `extract hdr.eth`: reads 96 bits, but only 80 are known to be present
        E0731 stage `P`, block b1: `m16 = lookahead 0`: reads 16 bits, but only 0 are known to be present
    "#]],
    );
    check(
        "data = hdr.opt.data varbit hdr.opt.data.$length",
        "data = hdr.opt.data",
        expect![[r#"
        E0723 slot `hdr.opt.data.$length` says it is VarbitLength(HeaderId(1)) but is no part of a header
        E0728 stage `P`, block b5: `extract hdr.opt, m32`: an amount goes with a varbit field, and only with one
    "#]],
    );
    check(
        "extract hdr.opt, m32",
        "extract hdr.opt",
        expect![[r#"
        E0728 stage `P`, block b5: `extract hdr.opt`: an amount goes with a varbit field, and only with one
    "#]],
    );
}

#[test]
fn tables_fit_their_actions_and_externs() {
    check(
        "default 1 ()",
        "default 7 ()",
        expect![[r#"
        E0720 the default action of table `C.t` is action 7 of 2
    "#]],
    );
    check(
        "default 1 ()",
        "default 0 ()",
        expect![[r#"
        E0724 the default action of table `C.t` has arguments that do not fit the parameters of `C.forward`
    "#]],
    );
    check(
        "priority 10 -> call 0",
        "priority 10 -> call 1",
        expect![[r#"
        E0724 an entry of table `C.t` may not be `NoAction`
        E0724 an entry of table `C.t` has arguments that do not fit the parameters of `NoAction`
    "#]],
    );
    check(
        "lpm 32w0xa000000/8",
        "lpm 32w0xa000001/8",
        expect![[r#"
        E0724 an entry of table `C.t` has `lpm 32w0xa000001/8` for lpm key `m32`
    "#]],
    );
    check(
        "exact 48w0x1",
        "ternary 48w0x1 &&& 48w0x1",
        expect![[r#"
        E0724 an entry of table `C.t` has `ternary 48w0x1 &&& 48w0x1` for exact key `hdr.eth.dst`
    "#]],
    );
    check(
        "  implementation C.profile",
        "  implementation C.reg",
        expect![[r#"
        E0724 the implementation of table `C.p` is not an action profile
    "#]],
    );
    check(
        "  direct C.direct_meter",
        "  direct C.meter",
        expect![[r#"
        E0724 `C.meter` is not a direct counter or meter of table `C.t`
        E0725 extern `C.direct_meter` is not in the list of its table `C.t`
    "#]],
    );
    check(
        "  implementation C.selector\n",
        "",
        expect![[r#"
        E0724 an entry of table `C.s` names a member or group, but the table has no action profile
        E0728 stage `C`, block b2: `%0, %1, %2, %3 = apply C.s (m8) select (m16, m32)`: the table has no action selector
    "#]],
    );
    check(
        "initial 16w0x7",
        "initial 8w0x7",
        expect![[r#"
        E0725 extern `C.reg` has 16 bits and starts at 8w0x7
    "#]],
    );
    check(
        "empty 1 ()",
        "empty 2 ()",
        expect![[r#"
        E0720 extern `C.selector` has action 2 of 2 for empty groups
    "#]],
    );
    check(
        "empty 1 ()",
        "empty 0 (9w0x1)",
        expect![[r#"
        E0724 extern `C.selector` gives `C.forward` other parameters than it has, for empty groups
    "#]],
    );
}

#[test]
fn operations_stand_where_they_belong() {
    check(
        "  replicate ingress_end",
        "  emit hdr.eth\n  replicate ingress_end",
        expect![[r#"
            E0727 stage `glue`, block b4: `emit hdr.eth`: may stand in a deparser only, not in a control
        "#]],
    );
    check(
        "  truncate m32",
        "  advance m32",
        expect![[r#"
        E0727 stage `D`, block b0: `advance m32`: may stand in a parser only, not in a deparser
    "#]],
    );
    check(
        "= apply P.pvs (hdr.eth.type)",
        "= apply C.p (m8)",
        expect![[r#"
        E0727 stage `P`, block b1: `n1, %1, %2, %3 = apply C.p (m8)`: may stand in a control only, not in a parser
    "#]],
    );
}

#[test]
fn control_flow_is_sound() {
    check(
        "switch %1, 32w0x0 -> b1, default -> b2",
        "switch %1, 32w0x0 -> b1, 32w0x0 -> b2, default -> b9",
        expect![[r#"
            E0729 stage `C`, block b0: `switch %1, 32w0x0 -> b1, 32w0x0 -> b2, default -> b9`: block b9 does not exist
        "#]],
    );
    check(
        "switch %1, 32w0x0 -> b1, default -> b2",
        "switch %1, 32w0x0 -> b1, 32w0x0 -> b2, default -> b2",
        expect![[r#"
            E0729 stage `C`, block b0: `switch %1, 32w0x0 -> b1, 32w0x0 -> b2, default -> b2`: case 32w0x0 is there twice
        "#]],
    );
    check(
        "  replicate ingress_end",
        "  next",
        expect![[r#"
        E0726 entry `ingress` ends with stage `glue`, which does not always end in a fate
    "#]],
    );
    check(
        "entry ingress (P, C, glue)",
        "entry egress (P, C, glue)",
        expect![[r#"
        E0726 entry `egress` is there twice
        E0726 there is no entry `ingress`
    "#]],
    );
}

#[test]
fn temporaries_are_assigned_on_every_path() {
    check(
        "jump b2\nb2:\n",
        "jump b2\nb2:\n  std.egress_spec = mov %4\n",
        expect![[r#"
        E0730 stage `C`, block b2: `std.egress_spec = mov %4`: the temporary `%4` is read, but not assigned on every path to here
    "#]],
    );
}

#[test]
fn loops_are_charged() {
    check(
        "  charge 7\n",
        "  charge 0\n",
        expect![[r#"
            E0728 stage `C`, block b2: `charge 0`: a round costs 1 to 2097153 steps
        "#]],
    );
    check(
        "  again recirculated\n",
        "  jump b2\n",
        expect![[r#"
            E0733 stage `glue`, block b2: `branch m1, b3, b4`: a loop comes back to here without a `charge`
        "#]],
    );
}

#[test]
fn parsers_ask_before_they_take() {
    check(
        "has_bits 32w0x50",
        "has_bits 32w0x38",
        expect![[r#"
        E0731 stage `P`, block b1: `extract hdr.eth`: reads 64 bits, but only 56 are known to be present
        E0731 stage `P`, block b1: `m16 = lookahead 0`: reads 16 bits, but only 0 are known to be present
    "#]],
    );
    check(
        "m16 = lookahead 0",
        "m16 = lookahead 1",
        expect![[r#"
        E0731 stage `P`, block b1: `m16 = lookahead 1`: reads 17 bits, but only 16 are known to be present
    "#]],
    );
    check(
        "branch %0, b1, b4",
        "branch n1, b1, b4",
        expect![[r#"
        E0731 stage `P`, block b1: `extract hdr.eth`: reads 64 bits, but only 0 are known to be present
        E0731 stage `P`, block b1: `m16 = lookahead 0`: reads 16 bits, but only 0 are known to be present
    "#]],
    );
    check(
        "advance 8w0x10",
        "advance m8",
        expect![[r#"
        E0731 stage `P`, block b6: `advance m8`: reads a number of bits that no `has_bits` has checked
    "#]],
    );
}

#[test]
fn match_fields_are_bits_of_slots_and_can_be_told_apart() {
    check(
        "(hdr.eth.dst 0 48)",
        "(hdr.eth.dst 1 48)",
        expect![[r#"
        E0732 match field `eth_dst` takes bits that slot `hdr.eth.dst` does not have
    "#]],
    );
    check(
        "(hdr.eth.dst 0 48)",
        "(hdr.eth.dst 0 48, hdr.opt.data 0 81)",
        expect![[r#"
        E0732 match field `eth_dst` has 129 bits; 1 to 128 are possible
    "#]],
    );
    check(
        "(hdr.eth.dst 0 48)",
        "(%0 0 1)",
        expect![[r#"
        E0732 match field `eth_dst` is the temporary `%0`
    "#]],
    );
    check(
        "field \"odd field\"",
        "field eth_dst",
        expect![[r#"
        E0721 two match fields are named `eth_dst`
    "#]],
    );
    check(
        "(65535 1 4294967295)",
        "(65535 1 4294967295, 0 3 0)",
        expect![[r#"
        E0732 match field `odd field` is not the first 0x0:3
    "#]],
    );
    check(
        "numbers (32768 3 0)",
        "numbers ()",
        expect![[r#"
        E0732 match field `eth_dst` has no number
    "#]],
    );
    check(
        "actions C, C.t",
        "actions D, C.t",
        expect![[r#"
        E0732 the header actions are stage `D`, which is not a control
    "#]],
    );
    check(
        "again resubmitted, 1",
        "again resubmitted, 7",
        expect![[r#"
        E0726 stage `glue`, block b1: `again resubmitted, 7`: there is no field list 7
    "#]],
    );
    check(
        "reparse m1",
        "reparse m8",
        expect![[r#"
        E0732 reparse takes bits that slot `m8` does not have
    "#]],
    );
}

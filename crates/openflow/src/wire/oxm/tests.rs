use random::Random;

use super::*;
use crate::testing::{bytes, fields, fields_with_aliases, hex, named, random_match};
use crate::text;

fn read(version: Version, bytes: &[u8], fields: &Fields) -> Result<Match> {
    let mut r = Reader::new(bytes, ErrorKind::BrcBadLen);
    let matching = read_match(version, &mut r, fields)?;
    assert!(r.is_empty(), "the match with its padding is passed over");
    Ok(matching)
}

fn written(version: Version, matching: &Match, fields: &Fields) -> Vec<u8> {
    let mut out = Vec::new();
    write_match(version, matching, fields, &mut out).unwrap_or_else(|error| panic!("{matching:?}: {error}"));
    out
}

fn read_nx(bytes: &[u8], fields: &Fields) -> Result<Match> {
    read_nx_match(bytes.len(), &mut Reader::new(bytes, ErrorKind::BrcBadLen), fields)
}

#[test]
fn random_matches_are_read_as_written() {
    let fields = fields();
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut random = Random::stream(3, version as u64);
        for _ in 0..3000 {
            let matching = random_match(&mut random, &fields);
            let out = written(version, &matching, &fields);
            assert_eq!(out.len() % 8, 0);
            assert_eq!(read(version, &out, &fields).as_ref(), Ok(&matching), "{}", hex(&out));
        }
    }
}

#[test]
fn random_matches_by_nicira_s_numbers_are_read_as_written() {
    let fields = fields();
    let mut random = Random::new(4);
    for _ in 0..5000 {
        let matching = random_match(&mut random, &fields);
        // A priority with part of a VLAN id has several encodings as value and mask.
        let mut out = Vec::new();
        write_nx_match(Version::V10, &matching, &fields, &mut out).unwrap();
        assert_eq!(
            read_nx(&out, &fields).as_ref(),
            Ok(&matching),
            "{} {}",
            text::matching(&matching, &fields),
            hex(&out)
        );
    }
}

#[test]
fn matches_that_1_0_can_say_are_read_as_written() {
    let fields = fields();
    let mut random = Random::new(5);
    let mut said = 0;
    for _ in 0..20000 {
        let matching = random_match(&mut random, &fields);
        let mut out = Vec::new();
        match write_match(Version::V10, &matching, &fields, &mut out) {
            Ok(()) => {
                said += 1;
                assert_eq!(out.len(), 40);
                assert_eq!(read(Version::V10, &out, &fields).as_ref(), Ok(&matching), "{}", hex(&out));
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::NxbrcUnencodableError),
        }
    }
    assert!(said > 1000, "{said}");
}

#[test]
fn corrupt_matches_are_refused_or_mean_something() {
    let fields = fields();
    for version in Version::ALL {
        let mut random = Random::stream(6, version as u64);
        for _ in 0..3000 {
            let matching = random_match(&mut random, &fields);
            let mut out = Vec::new();
            if write_match(version, &matching, &fields, &mut out).is_err() {
                continue;
            }
            for cut in 0..out.len() {
                assert!(read(version, &out[..cut], &fields).is_err());
            }
            for _ in 0..1 + random.below(3) {
                let at = random.below(out.len() as u64) as usize;
                out[at] ^= 1 << random.below(8);
            }
            let mut r = Reader::new(&out, ErrorKind::BrcBadLen);
            if let Ok(matching) = read_match(version, &mut r, &fields) {
                let again = written(Version::V13, &matching, &fields);
                assert_eq!(read(Version::V13, &again, &fields), Ok(matching), "{}", hex(&out));
            }
        }
    }
}

/// Matches as Open vSwitch 3.1 prints them, and their text.
#[rustfmt::skip]
const BYTES: &[(Version, &str, &str)] = &[
    (Version::V13, "0001 0004 00000000", ""),
    (Version::V13, "0001 000c 80000004 00000003 00000000", "in_port=3"),
    (Version::V13, "0001 0016 80000a02 0800 80001708 0a000000 ff000000 0000", "eth_type=0x800,ipv4_src=10.0.0.0/8"),
    (Version::V13, "0001 0017 80000a02 0800 80001401 06 80001d04 0050fff0 00", "eth_type=0x800,ip_proto=6,tcp_dst=0x50/0xfff0"),
    (Version::V13, "0001 000f 80000c02 1064 80000e01 03 00", "vlan_vid=0x1064,vlan_pcp=3"),
    (Version::V13, "0001 0014 8000070c 010000000000 010000000000 00000000", "eth_dst=01:00:00:00:00:00/01:00:00:00:00:00"),
    (Version::V13, "0001 000c 00010004 12345678 00000000", "reg0=0x12345678"),
    (Version::V13, "0001 0018 80010110 0000000100000000 000000ff00000000", "reg0=0x1/0xff"),
    (Version::V15, "0001 0010 80010008 0000000100000002", "reg0=0x1,reg1=0x2"),
    (Version::V13, "0001 001e 80000a02 86dd 80003410 20010db8000000000000000000000001 0000", "eth_type=0x86dd,ipv6_src=2001:db8::1"),
    (Version::V13, "0001 0012 80000a02 8847 80004404 00054321 000000000000", "eth_type=0x8847,mpls_label=0x54321"),
    (Version::V10, "003820ff 0000 000000000000 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000", ""),
    (Version::V10, "003820fe fffe 000000000000 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000", "in_port=LOCAL"),
    (Version::V10, "003820fd 0000 000000000000 000000000000 ffff 00 00 0000 00 00 0000 00000000 00000000 0000 0000", "vlan_vid=0x0"),
    (Version::V10, "002820fd 0000 000000000000 000000000000 0064 05 00 0000 00 00 0000 00000000 00000000 0000 0000", "vlan_vid=0x1064,vlan_pcp=5"),
    (Version::V10, "002820ff 0000 000000000000 000000000000 0000 05 00 0000 00 00 0000 00000000 00000000 0000 0000",
        "vlan_vid=0x1000/0x1000,vlan_pcp=5"),
    (Version::V10, "003208cf 0000 000000000000 000000000000 0000 00 00 0800 00 06 0000 0a010200 c0a80001 0000 0000",
        "eth_type=0x800,ip_proto=6,ipv4_src=10.1.2.0/24,ipv4_dst=192.168.0.0/24"),
    (Version::V10, "0018200f 0000 000000000000 000000000000 0000 00 00 0800 b8 01 0000 00000000 00000000 0008 0000",
        "eth_type=0x800,ip_dscp=46,ip_proto=1,icmpv4_type=8,icmpv4_code=0"),
    (Version::V10, "003820cf 0000 000000000000 000000000000 0000 00 00 0806 00 01 0000 00000000 00000000 0000 0000", "eth_type=0x806,arp_op=1"),
];

#[test]
fn bytes_are_what_open_vswitch_takes_them_for() {
    let fields = fields();
    for (version, hex, expected) in BYTES {
        let matching = read(*version, &bytes(hex), &fields).unwrap_or_else(|error| panic!("{hex}: {error}"));
        assert_eq!(text::matching(&matching, &fields), *expected, "{hex}");
        let out = written(*version, &matching, &fields);
        assert_eq!(read(*version, &out, &fields), Ok(matching), "{hex}");
    }
}

#[test]
fn entries_are_written_behind_those_that_they_need() {
    let fields = fields();
    let mut matching = Match::any();
    matching.add(named("tcp_dst", &fields), 80, 0xffff);
    matching.add(named("eth_type", &fields), 0x800, 0xffff);
    matching.add(named("ip_proto", &fields), 6, 0xff);
    let out = written(Version::V13, &matching, &fields);
    assert_eq!(hex(&out), "0001001580000a0208008000140106".to_owned() + "80001c020050000000");
    let mut out = Vec::new();
    write_nx_match(Version::V10, &matching, &fields, &mut out).unwrap();
    assert_eq!(hex(&out), "000006020800".to_owned() + "00000c0106" + "000014020050");
}

#[test]
fn nicira_s_numbers_are_the_same_fields() {
    for fields in [fields(), fields_with_aliases()] {
        check_nicira_s_numbers(&fields);
    }
}

fn check_nicira_s_numbers(fields: &Fields) {
    let is = |hex: &str| text::matching(&read_nx(&bytes(hex), fields).unwrap(), fields);
    assert_eq!(is("00000002 fffe"), "in_port=LOCAL");
    assert_eq!(is("00000802 b064"), "vlan_vid=0x1064,vlan_pcp=5");
    assert_eq!(is("00000904 1064 1fff"), "vlan_vid=0x1064");
    assert_eq!(is("00000904 1000 1000"), "vlan_vid=0x1000/0x1000");
    assert_eq!(is("00000802 0000"), "vlan_vid=0x0");
    assert_eq!(is("00000904 a000 e000"), "vlan_vid=0x1000/0x1000,vlan_pcp=5");
    assert_eq!(is("00000602 0800 00000a01 b8"), "eth_type=0x800,ip_dscp=46");
    assert_eq!(read_nx(&bytes("00000602 0800 00000a01 b9"), fields).unwrap_err().kind, ErrorKind::BmcBadValue);
    assert_eq!(is("0001de10 00000001 00000000 00000000 00000004"), "reg0=0x1,reg1=0x0,reg2=0x0,reg3=0x4");
    // OXM and NXM numbers give the same flow.
    assert_eq!(is("80000a02 0800 80001604 0a000001"), is("00000602 0800 00000e04 0a000001"));
    // They are encoded with Nicira's numbers again.
    let matching = read_nx(&bytes("00000002 fffe 00000602 0800 00000a01 b8"), fields).unwrap();
    let mut out = Vec::new();
    write_nx_match(Version::V10, &matching, fields, &mut out).unwrap();
    assert_eq!(hex(&out), "00000002fffe00000602080000000a01b8");
}

#[test]
fn a_cookie_is_read_only_where_it_may_stand() {
    let fields = fields();
    let hex = bytes("00010004 00000007 00013d10 0000000000000005 00000000000000ff");
    let mut r = Reader::new(&hex, ErrorKind::BrcBadLen);
    let (matching, cookie, mask) = read_nx_match_with_cookie(hex.len(), &mut r, &fields).unwrap();
    assert_eq!((text::matching(&matching, &fields).as_str(), cookie, mask), ("reg0=0x7", 5, 0xff));
    assert_eq!(read_nx(&hex, &fields).unwrap_err().kind, ErrorKind::BmcBadField);
    // A field has the same number; its values have another length.
    let hex = bytes("00000602 8847 00013c08 0000000000000007 00013c01 40");
    let mut r = Reader::new(&hex, ErrorKind::BrcBadLen);
    let (matching, cookie, mask) = read_nx_match_with_cookie(hex.len(), &mut r, &fields).unwrap();
    let text = text::matching(&matching, &fields);
    assert_eq!((text.as_str(), cookie, mask), ("eth_type=0x8847,mpls_ttl=64", 7, u64::MAX));
}

#[rustfmt::skip]
const ERRORS: &[(&str, ErrorKind)] = &[
    ("0001 0003 00000000", ErrorKind::BmcBadLen),
    ("0001 000c 80000004 0000", ErrorKind::BmcBadLen),
    ("0000 0058 00000000", ErrorKind::BmcBadType),
    ("0001 0008 80007a00", ErrorKind::BmcBadField),
    ("0001 000a 80000002 0001 000000000000", ErrorKind::BmcBadLen),
    // The header's length exceeds the bytes present.
    ("0001 000a 80000004 0001 000000000000", ErrorKind::BmcBadLen),
    ("0001 0010 80000108 00000001 0000ffff", ErrorKind::BmcBadMask),
    ("0001 0010 80000908 001122334455 ffffff", ErrorKind::BmcBadLen),
    ("0001 0014 80000708 010000000000 000000000001 00000000", ErrorKind::BmcBadLen),
    ("0001 0014 8000070c 010000000000 000000000001 00000000", ErrorKind::BmcBadWildcards),
    ("0001 000a 80000c02 2001 000000000000", ErrorKind::BmcBadValue),
    ("0001 0012 80000a02 8847 80004404 00100001 000000000000", ErrorKind::BmcBadValue),
    ("0001 0012 80000a02 86dd 80003804 00100001 000000000000", ErrorKind::BmcBadValue),
    ("0001 0009 80000e01 03 00000000000000", ErrorKind::BmcBadPrereq),
    ("0001 000c 80001604 0a000001 00000000", ErrorKind::BmcBadPrereq),
    ("0001 0012 80001604 0a000001 80000a02 0800 000000000000", ErrorKind::BmcBadPrereq),
    ("0001 0014 80000004 00000001 80000004 00000001 00000000", ErrorKind::BmcDupField),
    ("0001 0012 80000004 00000001 00000002 0001 000000000000", ErrorKind::BmcDupField),
    ("0001 000a ffff0a02 0001 000000000000", ErrorKind::BmcBadLen),
    ("0001 0018 ffff0a08 00000001 00000001 00000000 00000000", ErrorKind::BmcBadField),
];

#[test]
fn errors_name_the_cause() {
    let fields = fields();
    for (hex, kind) in ERRORS {
        let bytes = bytes(hex);
        let mut r = Reader::new(&bytes, ErrorKind::BrcBadLen);
        let error = read_match(Version::V13, &mut r, &fields).expect_err(hex);
        assert_eq!(error.kind, *kind, "{hex}: {error}");
    }
}

#[test]
fn headers_of_fields_are_read_as_written() {
    let fields = fields();
    for version in Version::ALL {
        for (id, field) in fields.iter() {
            for has_mask in [false, true] {
                let mut out = Vec::new();
                write_field_header(version, id, has_mask, &fields, &mut out).unwrap();
                let (read, mask, len) =
                    read_field_header(&mut Reader::new(&out, ErrorKind::BrcBadLen), &fields).unwrap();
                assert_eq!((read, mask), (id, has_mask));
                let is_short = version == Version::V10 && field.name == "in_port";
                let bytes = if is_short { 2 } else { field.bytes() };
                assert_eq!(len, bytes * if has_mask { 2 } else { 1 }, "{}", field.name);
            }
        }
    }
}

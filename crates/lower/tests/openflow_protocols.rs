//! `openflow.p4`: parsing and deparsing of frames, and header actions; on unoptimised and optimised IR.

mod bridge;
mod common;

use base::Bits;
use bridge::{Bridge, OPENFLOW, bytes, checksums_are_right, frame, frames, mask_of};

/// The fields and values expected of each frame.
const VALUES: &[(&str, &[(&str, u128)])] = &[
    ("unknown", &[("eth_dst", 0x0200_0000_00d1), ("eth_src", 0x0200_0000_0051), ("eth_type", 0x88b5), ("vlan_tci", 0)]),
    ("802.3", &[("eth_type", 0x05ff), ("eth_src", 0x0200_0000_0051)]),
    ("snap", &[("eth_type", 0x0800), ("udp_src", 0x1002)]),
    ("snap without type", &[("eth_type", 0x05ff)]),
    ("vlan", &[("vlan_vid", 0x1005), ("vlan_pcp", 5), ("vlan_tci", 0xb005), ("eth_type", 0x0800), ("tcp_src", 0x1001)]),
    ("two tags", &[("vlan_vid", 0x1064), ("vlan_pcp", 3), ("eth_type", 0x0800), ("tcp_dst", 80)]),
    ("three tags", &[("vlan_vid", 0x1064), ("eth_type", 0x8100)]),
    ("mpls", &[("mpls_label", 16), ("mpls_tc", 5), ("mpls_bos", 1), ("mpls_ttl", 64), ("eth_type", 0x8847)]),
    ("mpls ipv6", &[("mpls_label", 16), ("eth_type", 0x8847), ("vlan_vid", 0x1005)]),
    ("two labels", &[("mpls_label", 32), ("mpls_tc", 6), ("mpls_bos", 0), ("mpls_ttl", 63), ("eth_type", 0x8848)]),
    ("three labels", &[("mpls_label", 32), ("mpls_bos", 0)]),
    (
        "arp",
        &[
            ("eth_type", 0x0806),
            ("arp_op", 1),
            ("arp_spa", 0x0a00_0001),
            ("arp_tpa", 0x0a00_0002),
            ("arp_sha", 0x0200_0000_0051),
            ("arp_tha", 0),
        ],
    ),
    (
        "tcp",
        &[
            ("eth_type", 0x0800),
            ("ip_proto", 6),
            ("ip_dscp", 46),
            ("nw_tos", 0xb8),
            ("ip_ecn", 1),
            ("nw_ttl", 64),
            ("ip_frag", 0),
            ("ipv4_src", 0x0a00_0001),
            ("ipv4_dst", 0x0a00_0002),
            ("tcp_src", 0x1001),
            ("tcp_dst", 80),
            ("tcp_flags", 0xa12),
        ],
    ),
    ("udp", &[("ip_proto", 17), ("udp_src", 0x1002), ("udp_dst", 53)]),
    ("options", &[("ip_proto", 17), ("udp_src", 0x1002), ("udp_dst", 53)]),
    ("most options", &[("udp_dst", 53)]),
    ("first fragment", &[("ip_frag", 1), ("udp_dst", 53)]),
    ("later fragment", &[("ip_frag", 3), ("ip_proto", 17), ("udp_dst", 0)]),
    ("sctp", &[("ip_proto", 132), ("sctp_src", 0x1003), ("sctp_dst", 0x0b59)]),
    ("icmp", &[("ip_proto", 1), ("icmpv4_type", 8), ("icmpv4_code", 0)]),
    ("igmp", &[("ip_proto", 2), ("ipv4_dst", 0x0a00_0002)]),
    (
        "tcp6",
        &[
            ("eth_type", 0x86dd),
            ("ip_proto", 6),
            ("ip_dscp", 46),
            ("ip_ecn", 1),
            ("nw_ttl", 64),
            ("ipv6_flabel", 0x12345),
            ("ipv6_src", 0xfd00_0000_0000_0000_0000_0000_0000_0001),
            ("ipv6_dst", 0xfd00_0000_0000_0000_0000_0000_0000_0002),
            ("tcp_src", 0x1001),
            ("tcp_flags", 0xa12),
        ],
    ),
    ("udp6", &[("ip_proto", 17), ("udp_dst", 53)]),
    ("extensions", &[("ip_proto", 6), ("tcp_dst", 80)]),
    ("authentication", &[("ip_proto", 6), ("tcp_dst", 80)]),
    ("first fragment6", &[("ip_frag", 1), ("ip_proto", 17), ("udp_dst", 53)]),
    ("later fragment6", &[("ip_frag", 3), ("ip_proto", 44)]),
    ("three extensions", &[("ip_proto", 60)]),
    ("long extension", &[("ip_proto", 60)]),
    ("echo6", &[("ip_proto", 58), ("icmpv6_type", 128), ("icmpv6_code", 0)]),
    (
        "solicitation",
        &[
            ("icmpv6_type", 135),
            ("nd_target", 0xfd00_0000_0000_0000_0000_0000_0000_00ff),
            ("nd_sll", 0x0200_0000_0051),
            ("nd_reserved", 0),
            ("nd_options_type", 1),
        ],
    ),
    (
        "solicitation of code 1",
        &[("icmpv6_type", 135), ("icmpv6_code", 1), ("nd_target", 0), ("nd_sll", 0), ("nd_options_type", 0)],
    ),
    (
        "advertisement",
        &[
            ("icmpv6_type", 136),
            ("nd_target", 0xfd00_0000_0000_0000_0000_0000_0000_00ff),
            ("nd_tll", 0x0200_0000_00d1),
            ("nd_reserved", 0x6000_0000),
            ("nd_options_type", 2),
        ],
    ),
];

#[test]
fn frames_have_the_fields_of_their_protocols() {
    for bridge in Bridge::both(OPENFLOW) {
        for (name, values) in VALUES {
            let packet = bridge.parse(&frame(name));
            for (field, value) in *values {
                assert_eq!(bridge.get(&packet, field), *value, "{field} of {name}");
                let is_absent = *field == "vlan_tci" || *name == "later fragment";
                assert!(is_absent || bridge.has(&packet, field), "{name} has {field}");
            }
            assert_eq!((bridge.get(&packet, "in_port_oxm"), bridge.get(&packet, "reg7")), (7, 0), "{name}");
        }
    }
}

#[test]
fn fields_have_no_more_bits_than_values_may_have() {
    for bridge in Bridge::both(OPENFLOW) {
        for (name, bits) in
            [("mpls_label", 20), ("ipv6_flabel", 20), ("ip_frag", 2), ("tcp_flags", 12), ("vlan_vid", 13)]
        {
            let field = bridge.fields().iter().find(|field| field.name == name).expect(name);
            assert_eq!(field.parts.iter().map(|part| part.width).sum::<u32>(), bits, "{name}");
        }
    }
}

/// A frame with some bits changed.
fn mangled(frame: &[u8], seed: u64) -> Vec<u8> {
    let mut host = interp::SeededHost::new(seed);
    let mut frame = frame.to_vec();
    for _ in 0..1 + seed % 4 {
        let at = host.next_u64() as usize % frame.len();
        frame[at] ^= 1 << (host.next_u64() % 8);
    }
    frame.truncate(frame.len() - (host.next_u64() % 3) as usize);
    frame
}

#[test]
fn what_nobody_changed_leaves_as_it_came() {
    for bridge in Bridge::both(OPENFLOW) {
        let check = |frame: &[u8], what: &str| assert_eq!(bridge.send(&bridge.parse(frame)), frame, "{what}");
        for (name, frame) in frames() {
            (0..=frame.len()).for_each(|len| check(&frame[..len], &format!("{name}, cut to {len}")));
            (0..500).for_each(|seed| check(&mangled(&frame, seed), &format!("{name}, seed {seed}")));
        }
    }
}

#[test]
fn checksums_of_all_ones_and_zeros_stay_as_they_came() {
    for bridge in Bridge::both(OPENFLOW) {
        for (name, at) in [("tcp", 24), ("tcp", 50), ("udp", 40), ("icmp", 36), ("echo6", 56)] {
            for sum in [[0, 0], [0xff, 0xff]] {
                let mut frame = frame(name);
                frame[at..at + 2].copy_from_slice(&sum);
                assert_eq!(bridge.send(&bridge.parse(&frame)), frame, "{name}");
            }
        }
    }
}

/// Whether a write to one field may also change another.
fn follows(written: &str, other: &str) -> bool {
    let same = |names: &[&str]| names.contains(&written) && names.contains(&other);
    let of_icmp = ["icmpv4_type", "icmpv6_type", "icmpv4_code", "icmpv6_code"].contains(&written);
    same(&["vlan_vid", "vlan_tci", "vlan_pcp"])
        || same(&["ip_dscp", "nw_tos"])
        || same(&["tcp_src", "udp_src", "sctp_src"])
        || same(&["tcp_dst", "udp_dst", "sctp_dst"])
        || same(&["icmpv4_type", "icmpv6_type"])
        || same(&["icmpv4_code", "icmpv6_code"])
        || same(&["nd_sll", "nd_tll"])
        || of_icmp && other.starts_with("nd_")
}

#[test]
fn each_written_field_is_in_the_frame_and_nothing_else_changes() {
    let mut written = std::collections::BTreeSet::new();
    for bridge in Bridge::both(OPENFLOW) {
        let fields: Vec<ir::MatchField> = bridge.fields().to_vec();
        for (name, frame) in frames() {
            let before = bridge.parse(&frame);
            for (i, field) in fields.iter().enumerate().filter(|(_, f)| f.writable && !f.is_metadata) {
                let can_be = match field.name.as_str() {
                    "nd_options_type" => continue, // another option has another meaning
                    nd if nd.starts_with("nd_") => bridge.has(&before, nd) && bridge.get(&before, "icmpv6_code") == 0,
                    "vlan_vid" | "vlan_tci" => bridge.get(&before, "vlan_vid") != 0,
                    _ => bridge.has(&before, &field.name),
                };
                if !can_be || bridge.get(&before, "ip_frag") == 3 && field.name.contains("dp_") {
                    continue;
                }
                let zeros: u32 = field.parts.iter().map(|p| p.width).sum();
                let mut value =
                    0x5af0_96c3_1234_8765_0fed_cba9_7b52_e46du128.rotate_left(i as u32 * 7) & mask_of(zeros);
                match field.name.as_str() {
                    "vlan_vid" | "vlan_tci" => value |= 0x1000,
                    "nw_tos" => value &= 0xfc,
                    _ => {}
                }
                let mut packet = before.clone();
                bridge.set(&mut packet, &field.name, value);
                let sent = bridge.send(&packet);
                let after = bridge.parse(&sent);
                let what = format!("{} of {name}", field.name);
                assert_eq!(bridge.get(&after, &field.name), value, "{what}");
                written.insert(field.name.clone());
                for other in fields.iter().filter(|o| o.name != field.name && !follows(&field.name, &o.name)) {
                    assert_eq!(
                        bridge.get(&after, &other.name),
                        bridge.get(&before, &other.name),
                        "{what}: {}",
                        other.name
                    );
                }
                let is_plain =
                    ["tcp", "udp", "icmp", "tcp6", "udp6", "echo6", "solicitation", "options"].contains(&name);
                assert!(!is_plain || checksums_are_right(&sent), "checksums of {what}: {sent:02x?}");
            }
        }
        let all = fields.iter().filter(|f| f.writable && !f.is_metadata && f.name != "nd_options_type");
        let missing: Vec<&str> = all.map(|f| f.name.as_str()).filter(|f| !written.contains(*f)).collect();
        assert_eq!(missing, Vec::<&str>::new(), "no frame has them");
    }
}

#[test]
fn udp_without_checksum_keeps_none_and_none_becomes_zero() {
    for bridge in Bridge::both(OPENFLOW) {
        let mut packet = frame("udp");
        packet[40..42].fill(0);
        let mut packet = bridge.parse(&packet);
        bridge.set(&mut packet, "udp_src", 99);
        assert_eq!(bridge.send(&packet)[40..42], [0, 0]);
        // For one of all source ports the sum is zero, which is sent as all ones.
        let packet = bridge.parse(&frame("udp"));
        let sums: Vec<[u8; 2]> = (0..=0xffff)
            .map(|port| {
                let mut packet = packet.clone();
                bridge.set(&mut packet, "udp_src", port);
                let sent = bridge.send(&packet);
                [sent[40], sent[41]]
            })
            .collect();
        assert!(!sums.contains(&[0, 0]) && sums.contains(&[0xff, 0xff]));
    }
}

#[test]
fn writing_the_presence_of_a_tag_adds_and_removes_it() {
    for bridge in Bridge::both(OPENFLOW) {
        let plain = frame("tcp");
        let mut packet = bridge.parse(&plain);
        bridge.set(&mut packet, "vlan_tci", 0xf00a);
        let tagged = [&plain[..12], &bytes("8100 e00a"), &plain[12..]].concat();
        assert_eq!(bridge.send(&packet), tagged);
        let mut packet = bridge.parse(&tagged);
        bridge.set(&mut packet, "vlan_tci", 0);
        assert_eq!(bridge.send(&packet), plain);
    }
}

/// Runs actions in order (argument: width in bits, value). Checks the frame that is sent, and whether the last action
/// requests reparsing and reports an expired TTL.
#[track_caller]
fn check_actions(name: &str, actions: &[(&str, u32, u128)], expected: &[u8], told: (bool, bool)) {
    for bridge in Bridge::both(OPENFLOW) {
        let mut packet = bridge.parse(&frame(name));
        let mut last = (false, false);
        for (action, width, value) in actions {
            last = bridge.act(&mut packet, action, (*width > 0).then(|| Bits::new(*width, *value)));
        }
        let sent = bridge.send(&packet);
        assert_eq!((format!("{sent:02x?}"), last), (format!("{expected:02x?}"), told), "{name}: {actions:?}");
        // The record after the actions agrees with the frame.
        if !last.0 {
            let parsed = bridge.parse(&sent);
            for field in bridge.fields().iter().filter(|f| !f.is_metadata && bridge.has(&packet, &f.name)) {
                assert_eq!(
                    bridge.get(&packet, &field.name),
                    bridge.get(&parsed, &field.name),
                    "{name}: {}",
                    field.name
                );
            }
        }
    }
}

/// A frame in which `removed` bytes at offset `at` are replaced by these bytes.
fn spliced(name: &str, at: usize, removed: usize, put: &str) -> Vec<u8> {
    let frame = frame(name);
    [&frame[..at], &bytes(put), &frame[at + removed..]].concat()
}

const NOTHING: (bool, bool) = (false, false);
const REPARSE: (bool, bool) = (true, false);
const EXCEEDED: (bool, bool) = (false, true);

#[test]
fn tags_are_pushed_and_popped() {
    check_actions("tcp", &[("push_vlan", 16, 0x88a8)], &spliced("tcp", 12, 0, "88a80000"), NOTHING);
    let vid = ("set_vlan_vid", 12, 9);
    check_actions("tcp", &[vid], &spliced("tcp", 12, 0, "81000009"), NOTHING);
    check_actions("tcp", &[("set_vlan_pcp", 3, 7)], &spliced("tcp", 12, 0, "8100e000"), NOTHING);
    check_actions("vlan", &[vid], &spliced("vlan", 12, 4, "8100a009"), NOTHING);
    check_actions("vlan", &[("push_vlan", 16, 0x88a8), vid], &spliced("vlan", 12, 0, "88a80009"), NOTHING);
    check_actions("vlan", &[("pop_vlan", 0, 0)], &spliced("vlan", 12, 4, ""), NOTHING);
    check_actions("two tags", &[("pop_vlan", 0, 0)], &spliced("two tags", 12, 4, ""), NOTHING);
    check_actions("two tags", &[("pop_vlan", 0, 0); 2], &spliced("two tags", 12, 8, ""), NOTHING);
    check_actions("two tags", &[("push_vlan", 16, 0x88a8)], &spliced("two tags", 12, 0, "88a80000"), REPARSE);
    check_actions("three tags", &[("pop_vlan", 0, 0)], &spliced("three tags", 12, 4, ""), REPARSE);
    check_actions("tcp", &[("pop_vlan", 0, 0)], &frame("tcp"), NOTHING);
    check_actions("arp", &[vid, ("pop_vlan", 0, 0)], &frame("arp"), NOTHING);
}

#[test]
fn labels_are_pushed_and_popped() {
    let push = ("push_mpls", 16, 0x8847);
    let pop = |ethertype| ("pop_mpls", 16, ethertype);
    // The frame's DSCP 46 yields traffic class 6; the label is at the bottom of the stack; TTL 64.
    check_actions("tcp", &[push], &spliced("tcp", 12, 2, "8847 00000d40"), NOTHING);
    check_actions("tcp6", &[push], &spliced("tcp6", 12, 2, "8847 00002d40"), NOTHING);
    check_actions("arp", &[push], &spliced("arp", 12, 2, "8847 00000140"), NOTHING);
    check_actions("tcp", &[push, push], &spliced("tcp", 12, 2, "8847 00000c40 00000d40"), NOTHING);
    check_actions("tcp", &[push; 3], &spliced("tcp", 12, 2, "8847 00000c40 00000c40 00000d40"), REPARSE);
    check_actions("tcp", &[push, push, pop(0x8847), pop(0x0800)], &frame("tcp"), NOTHING);
    check_actions("mpls", &[pop(0x0800)], &spliced("mpls", 12, 6, "0800"), NOTHING);
    check_actions("mpls", &[pop(0x86dd)], &spliced("mpls", 12, 6, "86dd"), REPARSE);
    check_actions("mpls ipv6", &[pop(0x86dd)], &spliced("mpls ipv6", 16, 6, "86dd"), NOTHING);
    check_actions("two labels", &[pop(0x8847)], &spliced("two labels", 12, 6, "8847"), NOTHING);
    check_actions("arp", &[pop(0x0800)], &frame("arp"), NOTHING);
    check_actions("three labels", &[pop(0x8847)], &spliced("three labels", 12, 6, "8847"), REPARSE);
}

#[test]
fn ttls_are_set_decremented_and_copied() {
    check_actions("mpls", &[("set_mpls_ttl", 8, 9)], &spliced("mpls", 17, 1, "09"), NOTHING);
    check_actions("mpls", &[("dec_mpls_ttl", 0, 0)], &spliced("mpls", 17, 1, "3f"), NOTHING);
    check_actions("mpls", &[("set_mpls_ttl", 8, 1), ("dec_mpls_ttl", 0, 0)], &spliced("mpls", 17, 1, "01"), EXCEEDED);
    check_actions("two labels", &[("copy_ttl_out", 0, 0)], &spliced("two labels", 17, 1, "40"), NOTHING);
    check_actions("two labels", &[("copy_ttl_in", 0, 0)], &spliced("two labels", 21, 1, "3f"), NOTHING);
    check_actions("mpls", &[("set_mpls_ttl", 8, 9), ("copy_ttl_out", 0, 0)], &frame("mpls"), NOTHING);
    check_actions("arp", &[("dec_nw_ttl", 0, 0)], &frame("arp"), NOTHING);
    check_actions("arp", &[("set_mpls_ttl", 8, 3), ("dec_mpls_ttl", 0, 0)], &frame("arp"), NOTHING);
    for (name, at) in [("tcp", 22), ("tcp6", 21)] {
        for bridge in Bridge::both(OPENFLOW) {
            let mut packet = bridge.parse(&frame(name));
            assert_eq!(bridge.act(&mut packet, "dec_nw_ttl", None), NOTHING);
            let sent = bridge.send(&packet);
            assert_eq!(sent[at], 63);
            assert!(checksums_are_right(&sent));
            bridge.act(&mut packet, "set_nw_ttl", Some(Bits::new(8, 1)));
            assert_eq!(bridge.act(&mut packet, "dec_nw_ttl", None), EXCEEDED);
            let sent = bridge.send(&packet);
            assert_eq!(sent[at], 1);
            assert!(checksums_are_right(&sent));
        }
    }
    for bridge in Bridge::both(OPENFLOW) {
        let mut packet = bridge.parse(&frame("mpls"));
        bridge.act(&mut packet, "set_mpls_ttl", Some(Bits::new(8, 9)));
        bridge.act(&mut packet, "copy_ttl_in", None);
        bridge.act(&mut packet, "pop_mpls", Some(Bits::new(16, 0x0800)));
        let sent = bridge.send(&packet);
        assert_eq!(sent[22], 9);
        assert!(checksums_are_right(&sent));
    }
}

#[test]
fn the_file_is_as_short_as_promised() {
    // The number of lines that PISCES counts for the protocols of Open vSwitch (table 2).
    assert!(OPENFLOW.lines().count() <= 341);
}

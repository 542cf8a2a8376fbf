use super::*;
use crate::testing::{fields, named};

#[test]
fn values_look_like_what_they_are() {
    let fields = fields();
    let text = |name: &str, value: u128, mask: Option<u128>| {
        let id = named(name, &fields);
        let mut all = Match::any();
        all.add(id, value, mask.unwrap_or(fields.get(id).full()));
        matching(&all, &fields)
    };
    assert_eq!(text("in_port", 0xffff_fffe, None), "in_port=LOCAL");
    assert_eq!(text("eth_src", 0x0011_2233_4455, None), "eth_src=00:11:22:33:44:55");
    assert_eq!(
        text("eth_src", 0x0100_0000_0000, Some(0x0100_0000_0000)),
        "eth_src=01:00:00:00:00:00/01:00:00:00:00:00"
    );
    assert_eq!(text("eth_type", 0x800, None), "eth_type=0x800");
    assert_eq!(text("tcp_dst", 80, None), "tcp_dst=80");
    assert_eq!(text("tcp_dst", 80, Some(0xfff0)), "tcp_dst=0x50/0xfff0");
    assert_eq!(text("ipv4_src", 0x0a00_0000, Some(0xff00_0000)), "ipv4_src=10.0.0.0/8");
    assert_eq!(text("ipv4_src", 0x0a00_0001, Some(0xff00_00ff)), "ipv4_src=10.0.0.1/255.0.0.255");
    assert_eq!(text("ipv6_dst", 0x2001_0db8 << 96, Some(u128::MAX << 96)), "ipv6_dst=2001:db8::/32");
    assert_eq!(text("ct_label", 5, None), "ct_label=0x5");
    assert_eq!(text("metadata", 5, Some(0xff)), "metadata=0x5/0xff");
}

#[test]
fn a_flow_without_actions_drops() {
    let fields = fields();
    assert_eq!(actions(&[], &fields), "drop");
    assert_eq!(instructions(&Instructions::default(), &fields), "drop");
    let all = Instructions {
        meter: Some(1),
        apply: vec![Action::Exit],
        clear: true,
        write: vec![Action::Group(2)],
        metadata: Some((3, u64::MAX)),
        goto: Some(4),
    };
    assert_eq!(
        instructions(&all, &fields),
        "meter:1,exit,clear_actions,write_actions(group:2),write_metadata:0x3,goto_table:4"
    );
}

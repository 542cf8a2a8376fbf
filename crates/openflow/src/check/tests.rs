use super::*;
use crate::action::HeaderAction;
use crate::testing::{fields, named};

fn matching(terms: &[(&str, u128)], fields: &Fields) -> Match {
    terms.iter().fold(Match::any(), |mut all, (name, value)| {
        let id = named(name, fields);
        all.add(id, *value, fields.get(id).full());
        all
    })
}

fn set(name: &str, fields: &Fields) -> Action {
    let field = named(name, fields);
    Action::SetField { field, value: 1, mask: fields.get(field).full() }
}

fn bits(name: &str, fields: &Fields) -> Subfield {
    Subfield { field: named(name, fields), offset: 0, bits: 8 }
}

#[test]
fn fields_are_touched_only_where_the_match_makes_sure_of_them() {
    let fields = fields();
    let ip = matching(&[("eth_type", 0x800)], &fields);
    let tcp = matching(&[("eth_type", 0x800), ("ip_proto", 6)], &fields);
    let kind = |action: Action, matching: &Match| check_list(&[action], matching, &fields).map_err(|error| error.kind);
    assert_eq!(kind(set("ipv4_src", &fields), &ip), Ok(()));
    assert_eq!(kind(set("ipv4_src", &fields), &Match::any()), Err(ErrorKind::BacMatchInconsistent));
    assert_eq!(kind(set("tcp_src", &fields), &ip), Err(ErrorKind::BacMatchInconsistent));
    assert_eq!(kind(set("tcp_src", &fields), &tcp), Ok(()));
    assert_eq!(kind(set("reg0", &fields), &Match::any()), Ok(()));
    let copy = |from: &str, to: &str| Action::Move { from: bits(from, &fields), to: bits(to, &fields) };
    assert_eq!(kind(copy("ip_ttl", "reg0"), &ip), Ok(()));
    assert_eq!(kind(copy("ip_ttl", "reg0"), &Match::any()), Err(ErrorKind::BacMatchInconsistent));
    assert_eq!(kind(copy("reg0", "ip_ttl"), &Match::any()), Err(ErrorKind::BacMatchInconsistent));
    assert_eq!(kind(copy("reg0", "ip_proto"), &ip), Err(ErrorKind::BacBadSetArgument));
    let nested = Action::Clone(vec![set("tcp_src", &fields)]);
    assert_eq!(kind(nested, &ip), Err(ErrorKind::BacMatchInconsistent));
    let too_long = Action::StackPush(Subfield { field: named("reg0", &fields), offset: 30, bits: 3 });
    assert_eq!(kind(too_long, &ip), Err(ErrorKind::BacBadSetLen));
}

#[test]
fn behind_a_change_of_headers_nothing_is_refused() {
    let fields = fields();
    let push = Action::Header { name: HeaderAction::PushMpls, argument: 0x8847 };
    let label = set("mpls_label", &fields);
    assert_eq!(check_list(&[push.clone(), label.clone()], &Match::any(), &fields), Ok(()));
    assert!(check_list(&[label, push], &Match::any(), &fields).is_err());
}

#[test]
fn behind_a_write_of_the_cfi_nothing_is_refused() {
    let fields = crate::testing::fields_with_aliases();
    let tag = Action::SetField { field: named("vlan_tci", &fields), value: 0x1000, mask: 0x1000 };
    let priority = set("vlan_pcp", &fields);
    assert_eq!(check_list(&[tag, priority.clone()], &Match::any(), &fields), Ok(()));
    assert!(check_list(&[priority], &Match::any(), &fields).is_err());
}

#[test]
fn a_set_action_of_1_0_is_refused_if_its_field_is_there_but_cannot_be_written() {
    let fields = fields();
    let port = |name: &str| Action::SetFieldIfPresent { field: named(name, &fields), value: 1, mask: 0xffff };
    // Of SCTP's ports, actions may write the source here.
    let all = [port("tcp_dst"), port("udp_dst"), port("sctp_dst")];
    let kind = |proto: u128| {
        let matching = matching(&[("eth_type", 0x800), ("ip_proto", proto)], &fields);
        check_list(&all, &matching, &fields).map_err(|error| error.kind)
    };
    assert_eq!(kind(6), Ok(()));
    assert_eq!(kind(132), Err(ErrorKind::BacBadSetArgument));
    assert_eq!(check_list(&all, &Match::any(), &fields), Ok(()));
}

#[test]
fn the_action_set_is_checked_as_well() {
    let fields = fields();
    let instructions = Instructions { write: vec![set("tcp_src", &fields)], ..Instructions::default() };
    let error = check(&instructions, &Match::any(), &fields).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BacMatchInconsistent);
}

#[test]
fn a_learned_flow_must_match_what_it_needs() {
    let fields = fields();
    let tcp = matching(&[("eth_type", 0x800), ("ip_proto", 6)], &fields);
    let whole = |name: &str| {
        let field = named(name, &fields);
        Subfield { field, offset: 0, bits: fields.get(field).width }
    };
    let constant = |name: &str, value: u128| LearnSpec::Match { to: whole(name), from: Source::Value(value) };
    let port = LearnSpec::Match { to: whole("tcp_src"), from: Source::Field(whole("tcp_dst")) };
    let learn = |specs: Vec<LearnSpec>| {
        let (limit, result) = (0, None);
        let learn = Learn {
            idle_timeout: 0,
            hard_timeout: 0,
            priority: 1,
            cookie: 0,
            table: 1,
            flags: 0,
            fin_idle_timeout: 0,
            fin_hard_timeout: 0,
            limit,
            result,
            specs,
        };
        check_list(&[Action::Learn(Box::new(learn))], &tcp, &fields).map_err(|error| error.kind)
    };
    let all = [constant("eth_type", 0x800), constant("ip_proto", 6), port.clone()];
    assert_eq!(learn(all.to_vec()), Ok(()));
    assert_eq!(learn(vec![port.clone()]), Err(ErrorKind::BacMatchInconsistent));
    // The wrong order; a constant that does not satisfy the prerequisite.
    assert_eq!(
        learn(vec![constant("eth_type", 0x800), port, constant("ip_proto", 6)]),
        Err(ErrorKind::BacMatchInconsistent)
    );
    assert_eq!(learn(vec![constant("eth_type", 0x806), constant("ip_proto", 6)]), Err(ErrorKind::BacMatchInconsistent));
}

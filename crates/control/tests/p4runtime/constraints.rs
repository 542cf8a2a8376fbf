//! `@entry_restriction` and `@action_restriction` (p4-constraints). The router's `acl` says
//! «hdr.udp.dst::low != 666; ::priority < 1000», its `forward` «port != 0x1fe».

use super::*;
use UpdateKind::{Insert, Modify};

fn acl(low: u16, priority: i32, port: u16) -> TableEntry {
    let match_of = |field_id, value| FieldMatch { field_id, value };
    let range = MatchValue::Range { low: low.to_be_bytes().to_vec(), high: vec![0xff, 0] };
    let params = vec![(1, port.to_be_bytes().to_vec()), (2, vec![1])];
    TableEntry {
        table_id: table("ingress.acl"),
        matches: vec![match_of(2, range), match_of(4, MatchValue::Exact(vec![1]))],
        action: Some(TableAction::Action(Action { action_id: id(ObjectKind::Action, "ingress.forward"), params })),
        priority,
        ..Default::default()
    }
}

#[test]
fn a_violating_entry_is_refused_with_the_clause() {
    let mut bed = Bed::new();
    let write = |bed: &mut Bed, kind, entry| bed.write(kind, Entity::Table(entry));
    assert_refused(write(&mut bed, Insert, acl(666, 7, 1)), Code::InvalidArgument, "`hdr.udp.dst::low != 666`");
    assert_refused(write(&mut bed, Insert, acl(665, 1000, 1)), Code::InvalidArgument, "`::priority < 1000`");
    write(&mut bed, Insert, acl(665, 999, 1)).unwrap();
    assert_eq!(bed.read_tables(TableEntry { table_id: table("ingress.acl"), ..Default::default() }).len(), 1);
    // What is not there cannot violate anything: the answer to a wrong key is what it always is.
    assert_refused(write(&mut bed, Modify, acl(666, 7, 1)), Code::NotFound, "acl");
}

#[test]
fn an_action_is_refused_wherever_it_is_called_against_its_restriction() {
    let mut bed = Bed::new();
    let text = "`port != 0x1fe`";
    assert_refused(bed.write(Insert, Entity::Table(acl(1, 1, 0x1fe))), Code::InvalidArgument, text);
    bed.write(Insert, Entity::Table(acl(1, 1, 2))).unwrap();
    assert_refused(bed.write(Modify, Entity::Table(acl(1, 1, 0x1fe))), Code::InvalidArgument, text);
    let action = acl(1, 1, 0x1fe).action;
    let TableAction::Action(call) = action.clone().unwrap() else { unreachable!() };
    let default = TableEntry { table_id: table("ingress.acl"), action, is_default_action: true, ..Default::default() };
    assert_refused(bed.write(Modify, Entity::Table(default)), Code::InvalidArgument, text);
    let action_profile_id = id(ObjectKind::ActionProfile, "ingress.selector");
    let member = Member { action_profile_id, member_id: 1, action: Some(call.clone()) };
    assert_refused(bed.write(Insert, Entity::Member(member)), Code::InvalidArgument, text);
    let set = ActionSet {
        actions: vec![WeightedAction { action: Some(call), weight: 1, watch: Watch::Unset }],
        ..Default::default()
    };
    let one_shot = TableEntry {
        table_id: table("ingress.ecmp"),
        matches: vec![FieldMatch { field_id: 1, value: MatchValue::Exact(vec![1]) }],
        action: Some(TableAction::OneShot(set)),
        ..Default::default()
    };
    assert_refused(bed.write(Insert, Entity::Table(one_shot)), Code::InvalidArgument, text);
}

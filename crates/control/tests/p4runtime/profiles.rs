//! "ActionProfileMember & ActionProfileGroup", "One Shot Action Selector Programming".

use super::*;
use UpdateKind::{Delete, Insert, Modify};

fn profile() -> u32 {
    id(ObjectKind::ActionProfile, "ingress.selector")
}

fn member(member_id: u32, port: u8) -> Entity {
    Entity::Member(Member { action_profile_id: profile(), member_id, action: Some(forward(port)) })
}

fn group(group_id: u32, members: &[(u32, i32)]) -> Group {
    let member =
        |(member_id, weight): &(u32, i32)| GroupMember { member_id: *member_id, weight: *weight, ..Default::default() };
    Group { action_profile_id: profile(), group_id, members: members.iter().map(member).collect(), max_size: 6 }
}

fn entry(key: u8, action: TableAction) -> Entity {
    let matches = vec![FieldMatch { field_id: 1, value: MatchValue::Exact(vec![key]) }];
    Entity::Table(TableEntry { table_id: table("ingress.ecmp"), matches, action: Some(action), ..Default::default() })
}

fn one_shot(weights: &[(u8, i32)]) -> ActionSet {
    let part = |(port, weight): &(u8, i32)| WeightedAction {
        action: Some(forward(*port)),
        weight: *weight,
        watch: Watch::Port(vec![*port]),
    };
    ActionSet { actions: weights.iter().map(part).collect(), ..Default::default() }
}

fn all_members() -> Entity {
    Entity::Member(Member::default())
}

fn all_groups() -> Entity {
    Entity::Group(Group::default())
}

#[test]
fn members_groups_and_entries_refer_to_each_other() {
    let mut bed = Bed::new();
    assert_refused(bed.write(Insert, entry(1, TableAction::Member(1))), Code::NotFound, "no member 1");
    bed.write(Insert, member(1, 1)).unwrap();
    bed.write(Insert, member(2, 2)).unwrap();
    assert_refused(bed.write(Insert, member(1, 3)), Code::AlreadyExists, "member 1");
    assert_refused(bed.write(Modify, member(3, 3)), Code::NotFound, "member 3");
    assert_refused(bed.write(Insert, Entity::Group(group(1, &[(1, 1), (9, 1)]))), Code::NotFound, "9");
    bed.write(Insert, Entity::Group(group(1, &[(1, 1), (2, 3)]))).unwrap();
    assert_refused(bed.write(Insert, Entity::Group(group(1, &[]))), Code::AlreadyExists, "group 1");
    assert_refused(bed.write(Insert, entry(1, TableAction::Group(2))), Code::NotFound, "no group 2");
    bed.write(Insert, entry(1, TableAction::Group(1))).unwrap();
    assert_eq!(bed.read(all_groups()).unwrap(), [Entity::Group(group(1, &[(1, 1), (2, 3)]))]);
    assert_eq!(bed.read(all_members()).unwrap(), [member(1, 1), member(2, 2)]);
    assert_refused(bed.write(Delete, member(1, 1)), Code::FailedPrecondition, "in use");
    assert_refused(bed.write(Delete, Entity::Group(group(1, &[]))), Code::FailedPrecondition, "in use");
    bed.write(Delete, entry(1, TableAction::Group(1))).unwrap();
    bed.write(Delete, Entity::Group(group(1, &[]))).unwrap();
    bed.write(Delete, member(1, 1)).unwrap();
    assert_refused(bed.write(Delete, member(1, 1)), Code::NotFound, "member 1");
}

#[test]
fn ids_weights_and_sizes_are_checked() {
    let mut bed = Bed::new();
    let invalid = Code::InvalidArgument;
    bed.write(Insert, member(1, 1)).unwrap();
    bed.write(Insert, member(2, 1)).unwrap();
    let mut refuse =
        |group: Group, code, says: &str| assert_refused(bed.write(Insert, Entity::Group(group)), code, says);
    refuse(group(0, &[]), invalid, "above 0");
    refuse(group(0xf000_0000, &[]), invalid, "reserved");
    refuse(group(1, &[(1, 0)]), invalid, "above 0");
    refuse(group(1, &[(1, -2)]), invalid, "above 0");
    refuse(group(1, &[(1, 1), (1, 1)]), invalid, "given twice");
    refuse(group(1, &[(1, 4), (2, 3)]), Code::ResourceExhausted, "total weight");
    refuse(Group { max_size: 7, ..group(1, &[]) }, invalid, "from 1 to 6");
    refuse(Group { max_size: 0, ..group(1, &[]) }, invalid, "from 1 to 6");
    let mut watched = group(1, &[(1, 1)]);
    watched.members[0].watch = Watch::Port(vec![77]);
    refuse(watched, invalid, "no port 77; there is `1`, `2` or `3`");
    bed.write(Insert, Entity::Group(group(1, &[(1, 1)]))).unwrap();
    let resized = Group { max_size: 3, ..group(1, &[(1, 1)]) };
    assert_refused(bed.write(Modify, Entity::Group(resized)), invalid, "cannot change");
    assert_refused(bed.write(Insert, member(0, 1)), invalid, "above 0");
    let without_action = Member { action_profile_id: profile(), member_id: 5, action: None };
    assert_refused(bed.write(Insert, Entity::Member(without_action)), invalid, "action is missing");
}

#[test]
fn a_watch_port_is_read_back() {
    let mut bed = Bed::new();
    bed.write(Insert, member(1, 1)).unwrap();
    let mut watched = group(1, &[(1, 1)]);
    watched.members[0].watch = Watch::Port(vec![3]);
    bed.write(Insert, Entity::Group(watched.clone())).unwrap();
    assert_eq!(bed.read(all_groups()).unwrap(), [Entity::Group(watched)]);
}

#[test]
fn entries_of_a_table_with_a_profile_give_no_action() {
    let mut bed = Bed::new();
    let direct = entry(1, TableAction::Action(forward(1)));
    assert_refused(bed.write(Insert, direct), Code::InvalidArgument, "action profile");
    assert_refused(bed.write(Insert, entry(1, TableAction::Member(0))), Code::InvalidArgument, "id is missing");
}

#[test]
fn an_action_set_is_read_back_as_sent_and_its_parts_stay_hidden() {
    let mut bed = Bed::new();
    // The same action twice is two members.
    let set = one_shot(&[(1, 1), (2, 2), (2, 1)]);
    let written = entry(1, TableAction::OneShot(set));
    bed.write(Insert, written.clone()).unwrap();
    let query = || Entity::Table(TableEntry { table_id: table("ingress.ecmp"), ..Default::default() });
    assert_eq!(bed.read(query()).unwrap(), [written]);
    assert_eq!(bed.read(all_members()).unwrap(), []);
    assert_eq!(bed.read(all_groups()).unwrap(), []);
    let changed = entry(1, TableAction::OneShot(one_shot(&[(3, 1)])));
    bed.write(Modify, changed.clone()).unwrap();
    assert_eq!(bed.read(query()).unwrap(), std::slice::from_ref(&changed));
    bed.write(Delete, changed).unwrap();
    // Nothing is left behind: the other style is open again, and all of the room is there.
    for i in 1..=16 {
        bed.write(Insert, member(i, 1)).unwrap();
    }
}

#[test]
fn the_two_styles_do_not_mix() {
    let mut bed = Bed::new();
    bed.write(Insert, entry(1, TableAction::OneShot(one_shot(&[(1, 1)])))).unwrap();
    assert_refused(bed.write(Insert, member(1, 1)), Code::InvalidArgument, "action sets");
    bed.write(Delete, entry(1, TableAction::OneShot(one_shot(&[])))).unwrap();
    bed.write(Insert, member(1, 1)).unwrap();
    let set = entry(1, TableAction::OneShot(one_shot(&[(1, 1)])));
    assert_refused(bed.write(Insert, set), Code::InvalidArgument, "members and groups");
}

#[test]
fn action_sets_are_checked_and_leave_nothing_behind() {
    let mut bed = Bed::new();
    let mut refuse = |set: ActionSet, code, says: &str| {
        assert_refused(bed.write(Insert, entry(1, TableAction::OneShot(set))), code, says);
    };
    refuse(one_shot(&[(1, 0)]), Code::InvalidArgument, "above 0");
    refuse(one_shot(&[(1, 4), (2, 3)]), Code::InvalidArgument, "the limit is 6");
    refuse(ActionSet { selection_mode: 3, ..one_shot(&[(1, 1)]) }, Code::InvalidArgument, "selection mode 3");
    refuse(ActionSet { size_semantics: 3, ..one_shot(&[(1, 1)]) }, Code::InvalidArgument, "size semantics 3");
    let seven = one_shot(&[(1, 1), (2, 1), (3, 1), (1, 1), (2, 1), (3, 1), (1, 1)]);
    refuse(ActionSet { size_semantics: 2, ..seven }, Code::InvalidArgument, "7 members, the limit is 6");
    refuse(
        ActionSet { actions: vec![WeightedAction::default()], ..Default::default() },
        Code::InvalidArgument,
        "missing",
    );
    // The profile holds 16 members: a set that does not fit is taken back whole.
    for key in 1..=5 {
        bed.write(Insert, entry(key, TableAction::OneShot(one_shot(&[(1, 1), (2, 1), (3, 1)])))).unwrap();
    }
    let too_many = entry(6, TableAction::OneShot(one_shot(&[(1, 1), (2, 1)])));
    assert_refused(bed.write(Insert, too_many), Code::ResourceExhausted, "16");
    bed.write(Insert, entry(6, TableAction::OneShot(one_shot(&[(1, 1)])))).unwrap();
}

/// The members of the set that goes make room for those of the one that comes, also when a batch is rolled back.
#[test]
fn an_action_set_takes_the_place_of_another_where_there_is_no_room_for_both() {
    let mut bed = Bed::new();
    let threes = |key: u8, ports: [u8; 3]| entry(key, TableAction::OneShot(one_shot(&ports.map(|port| (port, 1)))));
    for key in 1..=5 {
        bed.write(Insert, threes(key, [1, 2, 3])).unwrap();
    }
    bed.write(Modify, threes(1, [3, 2, 1])).unwrap();
    let four = entry(2, TableAction::OneShot(one_shot(&[(1, 1), (2, 1), (3, 1), (1, 1)])));
    bed.write(Modify, four).unwrap();
    let five = entry(3, TableAction::OneShot(one_shot(&[(1, 1), (2, 1), (3, 1), (1, 1)])));
    assert_refused(bed.write(Modify, five), Code::ResourceExhausted, "16");
    let all = || Entity::Table(TableEntry { table_id: table("ingress.ecmp"), ..Default::default() });
    let before = bed.read(all()).unwrap();
    let Entity::Table(third) = threes(3, [1, 2, 3]) else { panic!("an entry") };
    let entities = [
        threes(3, [2, 2, 2]),
        Entity::Table(TableEntry { action: None, controller_metadata: 4, ..third }),
        threes(4, [1, 1, 1]),
        entry(9, TableAction::Member(0)),
    ];
    let updates = entities.map(|entity| Update { kind: Modify, entity: Some(entity) }).to_vec();
    let request = WriteRequest { updates, atomicity: Atomicity::RollbackOnError, ..batch() };
    let results = bed.control.write(&request).unwrap();
    let codes: Vec<Code> = results.iter().map(|result| result.as_ref().unwrap_err().code).collect();
    assert_eq!(codes, [Code::Aborted, Code::Aborted, Code::Aborted, Code::NotFound]);
    assert_eq!(bed.read(all()).unwrap(), before);
}

#[test]
fn a_group_action_runs_before_the_member_that_is_selected() {
    let mut bed = Bed::new();
    let mark =
        |tag: &[u8]| Action { action_id: id(ObjectKind::Action, "ingress.mark"), params: vec![(1, tag.to_vec())] };
    let set = |action: Action| ActionSet { group_action: Some(action), ..one_shot(&[(1, 1), (2, 1)]) };
    let sent = entry(1, TableAction::OneShot(set(mark(&[7]))));
    bed.write(Insert, sent.clone()).unwrap();
    assert_eq!(bed.read(sent.clone()).unwrap(), std::slice::from_ref(&sent));
    let call = |bed: &Bed| {
        let state = bed.switch.state();
        state.lookup(table_named("ingress.ecmp"), &[base::Bits::new(8, 1)], &[base::Bits::new(16, 5)]).action
    };
    let first = call(&bed);
    assert_eq!(first.args[0], base::Bits::new(8, 7), "the group action's argument");
    assert!([1, 2].contains(&first.args[1].to_u64().unwrap()), "then the member's");
    // Another group action, with a longer string than it needs, then none.
    bed.write(Modify, entry(1, TableAction::OneShot(set(mark(&[0, 9]))))).unwrap();
    assert_eq!(bed.read(sent).unwrap(), [entry(1, TableAction::OneShot(set(mark(&[9]))))]);
    assert_eq!(call(&bed).args[0], base::Bits::new(8, 9));
    bed.write(Modify, entry(1, TableAction::OneShot(one_shot(&[(1, 1), (2, 1)])))).unwrap();
    assert_eq!(call(&bed).args.len(), 2);

    let mut refuse = |set: ActionSet, code, says: &str| {
        assert_refused(bed.write(Insert, entry(2, TableAction::OneShot(set))), code, says);
    };
    refuse(set(forward(1)), Code::InvalidArgument, "`ingress.forward` is not a group action; its actions marked");
    refuse(set(mark(&[1, 0])), Code::OutOfRange, "parameter `tag` of action `ingress.mark`");
    refuse(set(Action { params: vec![], ..mark(&[]) }), Code::InvalidArgument, "`tag`");
    let part = WeightedAction { action: Some(mark(&[1])), weight: 1, ..Default::default() };
    refuse(ActionSet { actions: vec![part], ..Default::default() }, Code::PermissionDenied, "for action sets");
}

#[test]
fn an_action_set_chooses_its_own_size_semantics_and_selection() {
    let mut bed = Bed::new();
    // By weights 7 are too many for the selector, by members 2 are not; sets of one selector may differ.
    let by_members = ActionSet { size_semantics: 2, ..one_shot(&[(1, 4), (2, 3)]) };
    let by_weights = ActionSet { size_semantics: 1, selection_mode: 1, ..one_shot(&[(1, 3), (2, 3)]) };
    let at_random = ActionSet { selection_mode: 2, ..one_shot(&[(1, 1), (2, 3)]) };
    for (key, set) in (1..).zip([by_members, by_weights, at_random]) {
        let sent = entry(key, TableAction::OneShot(set));
        bed.write(Insert, sent.clone()).unwrap();
        assert_eq!(bed.read(sent.clone()).unwrap(), [sent]);
    }
    // The same packet, again and again: by hash one member, at random each by its weight.
    let ports = |key: u64| -> Vec<u64> {
        let state = bed.switch.state();
        let look = |_| {
            let found =
                state.lookup(table_named("ingress.ecmp"), &[base::Bits::new(8, key.into())], &[base::Bits::new(16, 5)]);
            found.action.args[0].to_u64().unwrap()
        };
        (0..400).map(look).collect()
    };
    let share = |ports: &[u64]| ports.iter().filter(|port| **port == 1).count();
    assert!([0, 400].contains(&share(&ports(2))));
    assert!((60..140).contains(&share(&ports(3))), "{}", share(&ports(3)));
}

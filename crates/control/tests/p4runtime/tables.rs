//! "TableEntry".

use super::*;
use UpdateKind::{Delete, Insert, Modify};

fn acl(matches: Vec<FieldMatch>, priority: i32) -> TableEntry {
    let action = Some(TableAction::Action(forward(1)));
    TableEntry { table_id: table("ingress.acl"), matches, action, priority, ..Default::default() }
}

fn exact(field_id: u32, value: &[u8]) -> FieldMatch {
    FieldMatch { field_id, value: MatchValue::Exact(value.to_vec()) }
}

fn ternary(field_id: u32, value: &[u8], mask: &[u8]) -> FieldMatch {
    FieldMatch { field_id, value: MatchValue::Ternary { value: value.to_vec(), mask: mask.to_vec() } }
}

fn range(field_id: u32, low: &[u8], high: &[u8]) -> FieldMatch {
    FieldMatch { field_id, value: MatchValue::Range { low: low.to_vec(), high: high.to_vec() } }
}

#[test]
fn what_is_written_is_read_back() {
    let mut bed = Bed::new();
    let lpm = TableEntry {
        metadata: vec![1, 2],
        controller_metadata: 99,
        idle_timeout_ns: 5_000_000_000,
        ..route([10, 0, 0, 0], 8, 1)
    };
    let full = acl(
        vec![
            ternary(1, &[10, 0, 0, 1], &[255, 255, 255, 255]),
            range(2, &[80], &[0x01, 0xbb]),
            FieldMatch { field_id: 3, value: MatchValue::Optional(vec![6]) },
            exact(4, &[1, 0xff]),
        ],
        7,
    );
    for entry in [lpm, full] {
        bed.write(Insert, Entity::Table(entry.clone())).unwrap();
        let query = TableEntry { table_id: entry.table_id, ..Default::default() };
        assert_eq!(bed.read_tables(query), [entry]);
    }
}

#[test]
fn longer_byte_strings_are_accepted_and_read_back_in_the_shortest_form() {
    let mut bed = Bed::new();
    let mut entry = acl(vec![exact(4, &[0, 0, 0, 3])], 1);
    bed.write(Insert, Entity::Table(entry.clone())).unwrap();
    entry.matches = vec![exact(4, &[3])];
    assert_eq!(bed.read_tables(TableEntry { table_id: entry.table_id, ..Default::default() }), [entry]);
}

#[test]
fn an_entry_exists_once() {
    let mut bed = Bed::new();
    let entry = || Entity::Table(route([10, 0, 0, 0], 8, 1));
    assert_refused(bed.write(Modify, entry()), Code::NotFound, "ipv4_lpm");
    assert_refused(bed.write(Delete, entry()), Code::NotFound, "ipv4_lpm");
    bed.write(Insert, entry()).unwrap();
    assert_refused(bed.write(Insert, entry()), Code::AlreadyExists, "ipv4_lpm");
    bed.write(Modify, Entity::Table(route([10, 0, 0, 0], 8, 2))).unwrap();
    bed.write(Delete, entry()).unwrap();
    assert_eq!(bed.read_tables(TableEntry { table_id: table("ingress.ipv4_lpm"), ..Default::default() }), []);
}

#[test]
fn deleting_looks_at_the_key_only() {
    let mut bed = Bed::new();
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    let nonsense = Some(TableAction::Action(Action { action_id: 77, params: vec![] }));
    bed.write(Delete, Entity::Table(TableEntry { action: nonsense, ..route([10, 0, 0, 0], 8, 1) })).unwrap();
}

#[test]
fn a_modify_without_action_keeps_the_action() {
    let mut bed = Bed::new();
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    let change = TableEntry { action: None, metadata: vec![9], ..route([10, 0, 0, 0], 8, 1) };
    bed.write(Modify, Entity::Table(change)).unwrap();
    let expected = TableEntry { metadata: vec![9], ..route([10, 0, 0, 0], 8, 1) };
    assert_eq!(bed.read_tables(TableEntry { table_id: expected.table_id, ..Default::default() }), [expected]);
}

#[test]
fn the_match_format_is_checked() {
    let mut bed = Bed::new();
    let mut refuse = |matches: Vec<FieldMatch>, code, says: &str| {
        assert_refused(bed.write(Insert, Entity::Table(acl(matches, 1))), code, says);
    };
    let invalid = Code::InvalidArgument;
    refuse(vec![], invalid, "`meta.port` is exact and must be given");
    refuse(vec![exact(4, &[])], Code::OutOfRange, "empty");
    refuse(vec![exact(4, &[2, 0])], Code::OutOfRange, "more than 9 bits");
    refuse(vec![exact(4, &[1]), exact(9, &[1])], invalid, "no match field 9");
    refuse(vec![exact(4, &[1]), exact(4, &[1])], invalid, "given twice");
    refuse(vec![exact(4, &[1]), exact(1, &[1])], invalid, "matched `ternary`, not `exact`");
    refuse(vec![exact(4, &[1]), ternary(1, &[1], &[0])], invalid, "don't care");
    refuse(vec![exact(4, &[1]), ternary(1, &[3], &[1])], invalid, "outside its mask");
    refuse(vec![exact(4, &[1]), range(2, &[5], &[4])], invalid, "is empty");
    refuse(vec![exact(4, &[1]), range(2, &[0], &[255, 255])], invalid, "don't care");
    refuse(vec![exact(4, &[1]), FieldMatch { field_id: 3, value: MatchValue::Unset }], invalid, "missing");
    let other = MatchValue::Other("type.googleapis.com/x".into());
    // What architectures add: this one adds no match kind.
    refuse(vec![exact(4, &[1]), FieldMatch { field_id: 3, value: other }], invalid, "type.googleapis.com/x");
    for (prefix_len, says) in [(0, "from 1 to 32"), (33, "from 1 to 32"), (-1, "from 1 to 32"), (7, "after the prefix")]
    {
        assert_refused(bed.write(Insert, Entity::Table(route([11, 0, 0, 0], prefix_len, 1))), invalid, says);
    }
}

#[test]
fn a_dont_care_is_left_out_and_stays_left_out() {
    let mut bed = Bed::new();
    let entry = acl(vec![exact(4, &[1])], 3);
    bed.write(Insert, Entity::Table(entry.clone())).unwrap();
    assert_eq!(bed.read_tables(TableEntry { table_id: entry.table_id, ..Default::default() }), [entry]);
    let default_route = TableEntry { matches: vec![], ..route([0; 4], 1, 1) };
    bed.write(Insert, Entity::Table(default_route.clone())).unwrap();
    assert_eq!(bed.read_tables(TableEntry { table_id: default_route.table_id, ..Default::default() }), [default_route]);
}

#[test]
fn priorities_are_where_they_belong() {
    let mut bed = Bed::new();
    for priority in [0, -1] {
        let entry = acl(vec![exact(4, &[1])], priority);
        assert_refused(bed.write(Insert, Entity::Table(entry)), Code::InvalidArgument, "priority above 0");
    }
    let with_priority = TableEntry { priority: 1, ..route([10, 0, 0, 0], 8, 1) };
    assert_refused(bed.write(Insert, Entity::Table(with_priority)), Code::InvalidArgument, "no priority");
    // The same key with two priorities is two entries.
    bed.write(Insert, Entity::Table(acl(vec![exact(4, &[1])], 1))).unwrap();
    bed.write(Insert, Entity::Table(acl(vec![exact(4, &[1])], 2))).unwrap();
}

#[test]
fn the_action_is_checked() {
    let mut bed = Bed::new();
    let mut refuse = |action: Option<TableAction>, code, says: &str| {
        let entry = TableEntry { action, ..route([10, 0, 0, 0], 8, 1) };
        assert_refused(bed.write(Insert, Entity::Table(entry)), code, says);
    };
    let of = |action_id, params| Some(TableAction::Action(Action { action_id, params }));
    let forward = id(ObjectKind::Action, "ingress.forward");
    refuse(None, Code::InvalidArgument, "action is missing");
    refuse(of(5, vec![]), Code::InvalidArgument, "no action `0x00000005`; it has `ingress.forward`");
    refuse(
        of(id(ObjectKind::Action, "ingress.elsewhere"), vec![]),
        Code::InvalidArgument,
        "no action `ingress.elsewhere`",
    );
    refuse(of(id(ObjectKind::Action, "NoAction"), vec![]), Code::PermissionDenied, "default entry only");
    refuse(of(forward, vec![(1, vec![1])]), Code::InvalidArgument, "parameter `mac`");
    refuse(of(forward, vec![(1, vec![1]), (2, vec![2]), (3, vec![3])]), Code::InvalidArgument, "no parameter 3");
    refuse(of(forward, vec![(1, vec![1]), (1, vec![1]), (2, vec![2])]), Code::InvalidArgument, "given twice");
    refuse(of(forward, vec![(1, vec![2, 0]), (2, vec![2])]), Code::OutOfRange, "more than 9 bits");
    refuse(of(forward, vec![(1, vec![]), (2, vec![2])]), Code::OutOfRange, "empty");
    refuse(Some(TableAction::Member(1)), Code::InvalidArgument, "no action profile");
}

#[test]
fn unknown_and_wrong_ids_are_named() {
    let mut bed = Bed::new();
    let of = |table_id| Entity::Table(TableEntry { table_id, ..route([10, 0, 0, 0], 8, 1) });
    assert_refused(bed.write(Insert, of(0)), Code::InvalidArgument, "id is missing");
    assert_refused(bed.write(Insert, of(0x02ff_ffff)), Code::NotFound, "ingress.ipv4_lpm");
    let counter = id(ObjectKind::Counter, "ingress.count");
    assert_refused(bed.write(Insert, of(counter)), Code::InvalidArgument, "is the id of a counter, expected a table");
    let nothing = WriteRequest { updates: vec![Update { kind: Insert, entity: None }], ..batch() };
    assert_refused(bed.control.write(&nothing).unwrap().remove(0), Code::InvalidArgument, "entity is missing");
    assert_refused(bed.write(UpdateKind::Unspecified, of(1)), Code::InvalidArgument, "type is missing");
}

#[test]
fn a_full_table_says_so() {
    let mut bed = Bed::new();
    for i in 0..8 {
        bed.write(Insert, Entity::Table(route([i, 0, 0, 0], 8, 1))).unwrap();
    }
    let one_more = Entity::Table(route([100, 0, 0, 0], 8, 1));
    assert_refused(bed.write(Insert, one_more), Code::ResourceExhausted, "the limit is 8");
}

#[test]
fn a_keyless_table_has_no_entries() {
    let mut bed = Bed::new();
    let action = Some(TableAction::Action(forward(1)));
    let entry = TableEntry { table_id: table("ingress.keyless"), action, ..Default::default() };
    assert_refused(bed.write(Insert, Entity::Table(entry)), Code::InvalidArgument, "no key");
}

#[test]
fn the_default_entry_is_modified_and_reset() {
    let mut bed = Bed::new();
    let no_action = Action { action_id: id(ObjectKind::Action, "NoAction"), params: vec![] };
    let entry = |action: Option<Action>| TableEntry {
        table_id: table("ingress.ipv4_lpm"),
        is_default_action: true,
        action: action.map(TableAction::Action),
        ..Default::default()
    };
    let query = || entry(None);
    assert_eq!(bed.read_tables(query()), [entry(Some(no_action.clone()))]);
    for kind in [Insert, Delete] {
        let written = bed.write(kind, Entity::Table(entry(Some(forward(1)))));
        assert_refused(written, Code::InvalidArgument, "can only be modified");
    }
    let set = TableEntry { metadata: vec![5], ..entry(Some(forward(1))) };
    bed.write(Modify, Entity::Table(set.clone())).unwrap();
    assert_eq!(bed.read_tables(query()), [set]);
    // Without an action it is the program's again, metadata included.
    bed.write(Modify, Entity::Table(entry(None))).unwrap();
    assert_eq!(bed.read_tables(query()), [entry(Some(no_action))]);

    let discard = Action { action_id: id(ObjectKind::Action, "ingress.discard"), params: vec![] };
    let table_only = bed.write(Modify, Entity::Table(entry(Some(discard))));
    assert_refused(table_only, Code::PermissionDenied, "for entries only");
    let with_key = TableEntry { is_default_action: true, ..route([10, 0, 0, 0], 8, 1) };
    assert_refused(bed.write(Modify, Entity::Table(with_key)), Code::InvalidArgument, "neither match fields");
    let with_timeout = TableEntry { idle_timeout_ns: 1, ..entry(Some(forward(1))) };
    assert_refused(bed.write(Modify, Entity::Table(with_timeout)), Code::InvalidArgument, "no idle timeout");
    let of_const = TableEntry { table_id: table("ingress.fixed"), ..entry(Some(forward(1))) };
    assert_refused(bed.write(Modify, Entity::Table(of_const)), Code::PermissionDenied, "constant");
    let of_profile = TableEntry { table_id: table("ingress.ecmp"), ..entry(Some(forward(1))) };
    assert_refused(bed.write(Modify, Entity::Table(of_profile)), Code::PermissionDenied, "action profile");
}

#[test]
fn a_constant_table_is_read_but_not_changed() {
    let mut bed = Bed::new();
    let table_id = table("ingress.fixed");
    let of = |value| TableEntry {
        table_id,
        matches: vec![exact(1, &[value])],
        action: Some(TableAction::Action(forward(1))),
        ..Default::default()
    };
    for kind in [Insert, Modify, Delete] {
        assert_refused(bed.write(kind, Entity::Table(of(7))), Code::PermissionDenied, "constant");
    }
    let found = bed.read_tables(TableEntry { table_id, ..Default::default() });
    let action = Action { params: vec![(1, vec![1]), (2, vec![2])], ..forward(1) };
    assert_eq!(found, [TableEntry { is_const: true, action: Some(TableAction::Action(action)), ..of(7) }]);
    let flagged = TableEntry { is_const: true, ..route([10, 0, 0, 0], 8, 1) };
    assert_refused(bed.write(Insert, Entity::Table(flagged)), Code::InvalidArgument, "is_const");
}

#[test]
fn reads_are_filtered() {
    let mut bed = Bed::new();
    for (i, priority) in [(1, 5), (2, 5), (3, 6)] {
        let entry =
            TableEntry { metadata: vec![i], controller_metadata: i.into(), ..acl(vec![exact(4, &[i])], priority) };
        bed.write(Insert, Entity::Table(entry)).unwrap();
    }
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    let all = TableEntry { table_id: table("ingress.acl"), ..Default::default() };
    let mut count = |query: TableEntry| bed.read_tables(query).len();
    assert_eq!(count(all.clone()), 3);
    assert_eq!(count(TableEntry { priority: 5, ..all.clone() }), 2);
    assert_eq!(count(TableEntry { metadata: vec![2], ..all.clone() }), 1);
    assert_eq!(count(TableEntry { controller_metadata: 3, ..all.clone() }), 1);
    assert_eq!(count(TableEntry { matches: vec![exact(4, &[3])], priority: 6, ..all.clone() }), 1);
    assert_eq!(count(TableEntry { matches: vec![exact(4, &[3])], priority: 5, ..all.clone() }), 0);
    let by_action =
        |name| Some(TableAction::Action(Action { action_id: id(ObjectKind::Action, name), params: vec![] }));
    assert_eq!(count(TableEntry { action: by_action("ingress.forward"), ..all.clone() }), 3);
    assert_eq!(count(TableEntry { action: by_action("ingress.discard"), ..all }), 0);
    // Table id 0: all tables, constant ones included.
    assert_eq!(count(TableEntry::default()), 7);
}

#[test]
fn a_preinitialised_table_may_have_some_constant_entries() {
    let mut bed = Bed::new();
    let of = |key: u8, port| TableEntry {
        table_id: table("ingress.mixed"),
        matches: vec![exact(1, &[key])],
        action: Some(TableAction::Action(forward(port))),
        ..Default::default()
    };
    let all = TableEntry { table_id: table("ingress.mixed"), ..Default::default() };
    let constant = |bed: &mut Bed| -> Vec<bool> { bed.read_tables(all.clone()).iter().map(|e| e.is_const).collect() };
    assert_eq!(constant(&mut bed), [false, true]);
    // What is not `const` is as any other entry, and there is room for more.
    bed.write(Modify, Entity::Table(of(1, 3))).unwrap();
    bed.write(Delete, Entity::Table(of(1, 3))).unwrap();
    bed.write(Insert, Entity::Table(of(5, 1))).unwrap();
    // What is `const` stays.
    assert_refused(bed.write(Modify, Entity::Table(of(2, 3))), Code::PermissionDenied, "constant");
    assert_refused(bed.write(Delete, Entity::Table(of(2, 3))), Code::PermissionDenied, "constant");
    assert_refused(bed.write(Insert, Entity::Table(of(2, 3))), Code::AlreadyExists, "exists");
    bed.write(Modify, Entity::Table(TableEntry { action: None, ..of(2, 3) })).unwrap();
    assert_eq!(constant(&mut bed), [true, false]);
}

#[test]
fn direct_resources_are_written_and_read_with_the_entry() {
    let mut bed = Bed::new();
    let counter_data = Some(CounterData { byte_count: 1000, packet_count: 10 });
    let meter_config = Some(MeterConfig { cir: 100, cburst: 10, pir: 200, pburst: 20, eburst: 0 });
    let entry = TableEntry { counter_data, meter_config, ..route([10, 0, 0, 0], 8, 1) };
    bed.write(Insert, Entity::Table(entry.clone())).unwrap();
    let bare = TableEntry { table_id: entry.table_id, ..Default::default() };
    let asked =
        TableEntry { counter_data: Some(Default::default()), meter_config: Some(Default::default()), ..bare.clone() };
    assert_eq!(bed.read_tables(bare), [route([10, 0, 0, 0], 8, 1)]);
    assert_eq!(bed.read_tables(asked.clone()), std::slice::from_ref(&entry));
    // A modify without them keeps the counter and resets the meter.
    bed.write(Modify, Entity::Table(route([10, 0, 0, 0], 8, 2))).unwrap();
    let expected = TableEntry { counter_data, ..route([10, 0, 0, 0], 8, 2) };
    assert_eq!(bed.read_tables(asked), [expected]);

    let of_acl = TableEntry { counter_data, ..acl(vec![exact(4, &[1])], 1) };
    assert_refused(bed.write(Insert, Entity::Table(of_acl)), Code::InvalidArgument, "no direct counter");
    let of_acl = TableEntry { meter_counter_data: Some(Default::default()), ..acl(vec![exact(4, &[1])], 1) };
    assert_refused(bed.write(Insert, Entity::Table(of_acl)), Code::InvalidArgument, "no direct meter");
}

#[test]
fn idle_timeouts_are_for_tables_that_have_them() {
    let mut bed = Bed::new();
    let entry = TableEntry { idle_timeout_ns: 1, ..acl(vec![exact(4, &[1])], 1) };
    assert_refused(bed.write(Insert, Entity::Table(entry)), Code::InvalidArgument, "idle timeouts");
    let negative = TableEntry { idle_timeout_ns: -1, ..route([10, 0, 0, 0], 8, 1) };
    assert_refused(bed.write(Insert, Entity::Table(negative)), Code::InvalidArgument, "negative");
    let since = TableEntry { time_since_last_hit: Some(0), ..route([10, 0, 0, 0], 8, 1) };
    assert_refused(bed.write(Insert, Entity::Table(since)), Code::InvalidArgument, "read only");
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    bed.switch.state().set_time(7);
    let query = TableEntry { time_since_last_hit: Some(0), ..Default::default() };
    let found = bed.read_tables(TableEntry { table_id: table("ingress.ipv4_lpm"), ..query.clone() });
    assert_eq!(found[0].time_since_last_hit, Some(7000));
    let of_acl = bed.read(Entity::Table(TableEntry { table_id: table("ingress.acl"), ..query }));
    assert_refused(of_acl, Code::InvalidArgument, "idle timeouts");
}

#[test]
fn a_translated_field_is_a_name_for_the_controller_and_a_number_for_the_data_plane() {
    let mut bed = Bed::new();
    let of = |name: &str| TableEntry {
        table_id: table("ingress.vrfs"),
        matches: vec![exact(1, name.as_bytes())],
        action: Some(TableAction::Action(forward(1))),
        ..Default::default()
    };
    for name in ["red", "7", "blue"] {
        bed.write(Insert, Entity::Table(of(name))).unwrap();
    }
    assert_refused(bed.write(Insert, Entity::Table(of("red"))), Code::AlreadyExists, "vrfs");
    let query = TableEntry { table_id: table("ingress.vrfs"), ..Default::default() };
    assert_eq!(bed.read_tables(query), [of("red"), of("7"), of("blue")]);
    use abi::state::PipelineState;
    let (_, program) = fixture::program("router").unwrap();
    let keys = bed.switch.state().entries(program.table_named("ingress.vrfs").unwrap());
    let keys: Vec<_> = keys.into_iter().map(|e| e.entry.key).collect();
    let number = |n| vec![base::entry::KeyMatch::Exact(base::Bits::new(10, n))];
    assert_eq!(keys, [number(1), number(7), number(2)]);
    assert_refused(
        bed.write(Insert, Entity::Table(TableEntry { matches: vec![exact(1, &[0xff])], ..of("x") })),
        Code::InvalidArgument,
        "string",
    );
}

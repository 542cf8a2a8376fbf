//! The reference state: which entry wins, profiles and selectors, cells, and errors.

mod common;

use abi::{PipelineState, StateError};
use base::Bits;
use base::entry::{ActionCall, EntryAction, GroupMember, KeyMatch, MeterConfig, TableEntry};
use interp::{Colour, State};
use ir::{ExternId, TableId};

const DECLARATIONS: &str = r#"program "state"
drops end
action a (x: 8)
extern profile action_profile size 2 actions (a)
extern selector action_selector size 8 hash identity width 8 actions (a)
extern meter meter size 2 unit packets
extern direct meter size 4 unit bytes direct ternary
table lpm {
  key k: 32 lpm
  key l: 8 exact
  action a
  default 0 (8w0)
  size 3
}
table ternary {
  key k: 8 ternary
  key l: 8 range
  key m: 8 optional
  action a
  default 0 (8w0)
  size 4
  direct direct
  idle_timeout
}
table members {
  key k: 8 exact
  action a
  default 0 (8w0)
  size 4
  implementation profile
}
table groups {
  key k: 8 exact
  action a
  default 0 (8w99)
  size 4
  implementation selector
}
entry ingress (C)
stage control C {
b0:
  drop end
}
"#;

struct Fixture {
    state: State,
    tables: [TableId; 4],
    externs: [ExternId; 4],
}

fn fixture() -> Fixture {
    let program = common::program(DECLARATIONS);
    let tables = ["lpm", "ternary", "members", "groups"].map(|n| program.table_named(n).expect("declared"));
    let externs = ["profile", "selector", "meter", "direct"].map(|n| program.extern_named(n).expect("declared"));
    Fixture { state: State::new(program), tables, externs }
}

fn byte(value: u128) -> Bits {
    Bits::new(8, value)
}

fn call(value: u128) -> ActionCall {
    ActionCall { action: 0, args: vec![byte(value)] }
}

fn entry(key: Vec<KeyMatch>, priority: i32, value: u128) -> TableEntry {
    TableEntry { key, priority, action: EntryAction::Call(call(value)), idle_timeout_ns: 0 }
}

fn prefix(value: u128, prefix_len: u32, exact: u128) -> Vec<KeyMatch> {
    vec![KeyMatch::Lpm { value: Bits::new(32, value), prefix_len }, KeyMatch::Exact(byte(exact))]
}

/// Whether a lookup hits, and the argument of the action that it finds.
fn found(f: &Fixture, table: usize, key: &[Bits], selector: &[Bits]) -> (bool, u64) {
    let found = f.state.lookup(f.tables[table], key, selector);
    (found.hit, found.action.args[0].to_u64().expect("eight bits"))
}

#[test]
fn the_longest_prefix_wins_whatever_the_order() {
    let f = fixture();
    for (len, value) in [(8, 1), (24, 3), (16, 2)] {
        assert_eq!(f.state.insert(f.tables[0], &entry(prefix(0x0a00_0000, len, 5), 0, value)), Ok(()));
    }
    let look = |k: u128, l: u128| found(&f, 0, &[Bits::new(32, k), byte(l)], &[]);
    assert_eq!(look(0x0a00_0001, 5), (true, 3));
    assert_eq!(look(0x0a00_ff01, 5), (true, 2));
    assert_eq!(look(0x0aff_0001, 5), (true, 1));
    assert_eq!(look(0x0aff_0001, 6), (false, 0));
    assert_eq!(look(0x0b00_0001, 5), (false, 0));
    assert_eq!(f.state.insert(f.tables[0], &entry(prefix(0, 0, 0), 0, 0)), Err(StateError::Full(3)));
}

#[test]
fn the_highest_priority_wins_and_of_equals_the_first() {
    let f = fixture();
    let key = |mask: u128, high: u128, m: Option<u128>| {
        vec![
            KeyMatch::Ternary { value: byte(0), mask: byte(mask) },
            KeyMatch::Range { low: byte(2), high: byte(high) },
            KeyMatch::Optional(m.map(byte)),
        ]
    };
    for (key, priority, value) in
        [(key(0, 9, None), 1, 1), (key(1, 9, None), 5, 2), (key(3, 9, Some(7)), 5, 3), (key(0, 4, Some(7)), 9, 4)]
    {
        assert_eq!(f.state.insert(f.tables[1], &entry(key, priority, value)), Ok(()));
    }
    let look = |k: u128, l: u128, m: u128| found(&f, 1, &[byte(k), byte(l), byte(m)], &[]);
    assert_eq!(look(1, 9, 0), (true, 1));
    assert_eq!(look(0, 9, 7), (true, 2), "of equal priorities the first");
    assert_eq!(look(0, 4, 7), (true, 4));
    assert_eq!(look(0, 1, 7), (false, 0));
    assert_eq!(look(0, 10, 7), (false, 0));
    assert_eq!(f.state.insert(f.tables[1], &entry(key(0, 9, None), 1, 9)), Err(StateError::Exists));
}

#[test]
fn entries_are_changed_and_found_by_key_and_priority() {
    let f = fixture();
    let table = f.tables[0];
    let key = prefix(0x0a00_0000, 8, 1);
    assert_eq!(f.state.modify(table, &entry(key.clone(), 0, 1)), Err(StateError::NotFound));
    assert_eq!(f.state.insert(table, &entry(key.clone(), 0, 1)), Ok(()));
    assert_eq!(f.state.modify(table, &entry(key.clone(), 0, 2)), Ok(()));
    assert_eq!(f.state.entry(table, &key, 0).map(|e| e.entry), Ok(entry(key.clone(), 0, 2)));
    assert_eq!((f.state.len(table), f.state.entries(table).len()), (1, 1));
    assert_eq!(f.state.delete(table, &key, 0), Ok(()));
    assert_eq!(f.state.delete(table, &key, 0), Err(StateError::NotFound));
}

#[test]
fn the_default_action_can_be_set_and_reset() {
    let f = fixture();
    let look = || found(&f, 0, &[Bits::zero(32), byte(0)], &[]);
    assert_eq!(f.state.set_default(f.tables[0], Some(&EntryAction::Call(call(7)))), Ok(()));
    assert_eq!(look(), (false, 7));
    assert_eq!(f.state.set_default(f.tables[0], None), Ok(()));
    assert_eq!(look(), (false, 0));
}

#[test]
fn members_are_shared_and_kept_while_they_are_used() {
    let f = fixture();
    let (table, profile) = (f.tables[2], f.externs[0]);
    let entry = |key: u128, member: u32| TableEntry {
        key: vec![KeyMatch::Exact(byte(key))],
        priority: 0,
        action: EntryAction::Member(member),
        idle_timeout_ns: 0,
    };
    assert_eq!(f.state.insert(table, &entry(1, 5)), Err(StateError::NoSuchReference(5)));
    assert_eq!(f.state.member_insert(profile, 5, &call(50), 0), Ok(()));
    assert_eq!(f.state.member_insert(profile, 5, &call(50), 0), Err(StateError::Exists));
    assert_eq!(f.state.member_insert(profile, 6, &call(60), 0), Ok(()));
    assert_eq!(f.state.member_insert(profile, 7, &call(70), 0), Err(StateError::Full(2)));
    assert_eq!(f.state.member_insert(profile, 7, &call(70), 1), Ok(()));
    assert_eq!(f.state.member_insert(profile, 8, &call(80), 1), Err(StateError::Full(2)));
    assert_eq!(f.state.member_delete(profile, 7), Ok(()));
    assert_eq!(f.state.insert(table, &entry(1, 5)), Ok(()));
    assert_eq!(f.state.insert(table, &entry(2, 5)), Ok(()));
    assert_eq!(f.state.member_modify(profile, 5, &call(51)), Ok(()));
    assert_eq!((found(&f, 2, &[byte(1)], &[]), found(&f, 2, &[byte(2)], &[])), ((true, 51), (true, 51)));
    assert_eq!(f.state.member_delete(profile, 5), Err(StateError::InUse));
    assert_eq!(f.state.member_delete(profile, 6), Ok(()));
    assert_eq!(f.state.member_delete(profile, 6), Err(StateError::NotFound));
    assert_eq!(f.state.insert(f.tables[0], &entry(1, 5)), Err(StateError::WrongKind));
}

#[test]
fn groups_share_by_weight_and_leave_out_members_whose_port_is_down() {
    let f = fixture();
    let (table, selector) = (f.tables[3], f.externs[1]);
    let member = |member, weight, watch_port| GroupMember { member, weight, watch_port };
    for id in 1..=3 {
        assert_eq!(f.state.member_insert(selector, id, &call(id.into()), 0), Ok(()));
    }
    let members = [member(1, 1, None), member(2, 2, Some(9)), member(3, 1, None)];
    assert_eq!(f.state.group_insert(selector, 1, &[member(4, 1, None)], 0), Err(StateError::NoSuchReference(4)));
    assert_eq!(f.state.group_insert(selector, 1, &members, 4), Ok(()));
    let entry = TableEntry {
        key: vec![KeyMatch::Exact(byte(1))],
        priority: 0,
        action: EntryAction::Group(1),
        idle_timeout_ns: 0,
    };
    assert_eq!(f.state.insert(table, &entry), Ok(()));
    // The hash is the selector key itself.
    let chosen = || (0..6).map(|hash| found(&f, 3, &[byte(1)], &[byte(hash)])).collect::<Vec<_>>();
    let hits = |values: [u64; 6]| values.map(|v| (true, v)).to_vec();
    assert_eq!(chosen(), hits([1, 2, 2, 3, 1, 2]));
    f.state.port_state(9, false);
    assert_eq!(chosen(), hits([1, 3, 1, 3, 1, 3]));
    f.state.port_state(9, true);
    assert_eq!(chosen(), hits([1, 2, 2, 3, 1, 2]));

    assert_eq!(f.state.group_delete(selector, 1), Err(StateError::InUse));
    assert_eq!(f.state.member_delete(selector, 3), Err(StateError::InUse));
    assert_eq!(f.state.group_modify(selector, 1, &[]), Ok(()));
    assert_eq!(chosen()[0], (false, 99), "an empty group is a miss");
}

#[test]
fn meters_are_configured_by_cell_and_by_entry() {
    let f = fixture();
    let config = MeterConfig { cir: 1, cburst: 1, pir: 1, pburst: 2, eburst: 0 };
    let [.., meter, direct] = f.externs;
    assert_eq!(f.state.meter(meter, 0), Ok(None));
    assert_eq!(f.state.meter_set(meter, 2, Some(config)), Err(StateError::NotFound));
    assert_eq!(f.state.meter_set(meter, 1, Some(config)), Ok(()));
    assert_eq!(f.state.meter(meter, 1), Ok(Some(config)));
    let colours: Vec<Colour> = (0..3).map(|_| f.state.meter_execute(meter, 1, 1000, 0)).collect();
    assert_eq!(colours, [Colour::Green, Colour::Yellow, Colour::Red], "one packet is one unit");
    assert_eq!(f.state.meter_execute(meter, 0, 1000, 0), Colour::Green);

    let key = vec![
        KeyMatch::Ternary { value: byte(0), mask: byte(0) },
        KeyMatch::Range { low: byte(0), high: byte(255) },
        KeyMatch::Optional(None),
    ];
    assert_eq!(f.state.direct_meter(direct, &key, 1), Err(StateError::NotFound));
    assert_eq!(f.state.insert(f.tables[1], &entry(key.clone(), 1, 0)), Ok(()));
    assert_eq!(f.state.direct_meter_set(direct, &key, 1, Some(config)), Ok(()));
    let handle = f.state.lookup(f.tables[1], &[byte(0), byte(0), byte(0)], &[]).entry;
    assert_eq!(f.state.meter_direct_execute(direct, handle, 3, 0), Colour::Red, "three bytes are three units");
    assert_eq!(f.state.meter_direct_execute(direct, handle, 2, 0), Colour::Yellow);
    assert_eq!(f.state.meter(direct, 0), Err(StateError::WrongKind));
}

#[test]
fn idle_time_counts_from_the_last_hit() {
    let f = fixture();
    let key = vec![
        KeyMatch::Ternary { value: byte(0), mask: byte(0) },
        KeyMatch::Range { low: byte(0), high: byte(9) },
        KeyMatch::Optional(None),
    ];
    f.state.set_time(10);
    assert_eq!(f.state.insert(f.tables[1], &entry(key.clone(), 1, 0)), Ok(()));
    let idle = || f.state.entry(f.tables[1], &key, 1).expect("inserted").idle_ns;
    f.state.set_time(15);
    assert_eq!(idle(), Some(5_000));
    f.state.lookup(f.tables[1], &[byte(0), byte(0), byte(0)], &[]);
    f.state.set_time(17);
    assert_eq!(idle(), Some(2_000));
    f.state.lookup(f.tables[1], &[byte(0), byte(10), byte(0)], &[]);
    assert_eq!(idle(), Some(2_000), "a miss is no hit");
}

#[test]
fn a_table_without_keys_has_no_entries() {
    let text = "program \"keyless\"\ndrops end\naction a ()\ntable t {\n  action a\n  default 0 ()\n  size 4\n}\n\
                entry ingress (C)\nstage control C {\nb0:\n  drop end\n}\n";
    let program = common::program(text);
    let table = program.table_named("t").expect("declared");
    let action = EntryAction::Call(ActionCall { action: 0, args: Vec::new() });
    let entry = TableEntry { key: Vec::new(), priority: 0, action, idle_timeout_ns: 0 };
    let refused = State::new(program).insert(table, &entry);
    assert!(matches!(refused, Err(StateError::Unsupported(_))), "{refused:?}");
}

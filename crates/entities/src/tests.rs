use super::*;
use expect_test::expect;
use messages::p4::config::v1 as config;
use pb::field_match::FieldMatchType;
use pb::table_action::Type as ActionType;
use proptest::prelude::*;

fn preamble(id: u32, name: &str) -> Option<config::Preamble> {
    Some(config::Preamble { id, name: name.into(), ..Default::default() })
}

fn field(id: u32, name: &str, bitwidth: i32, kind: config::match_field::MatchType) -> config::MatchField {
    let r#match = Some(config::match_field::Match::MatchType(kind.into()));
    config::MatchField { id, name: name.into(), bitwidth, r#match, ..Default::default() }
}

/// A table with a key of every kind, one with an action profile, and a few actions.
fn names() -> Names {
    use config::match_field::MatchType;
    let param =
        |id, name: &str, bitwidth| config::action::Param { id, name: name.into(), bitwidth, ..Default::default() };
    let action = |id, name: &str, params| config::Action { preamble: preamble(id, name), params };
    let refs = |ids: &[u32]| ids.iter().map(|id| config::ActionRef { id: *id, ..Default::default() }).collect();
    Names::new(config::P4Info {
        tables: vec![
            config::Table {
                preamble: preamble(0x0200_0001, "Ingress.all"),
                match_fields: vec![
                    field(1, "hdr.a.exact", 9, MatchType::Exact),
                    field(2, "hdr.a.lpm", 32, MatchType::Lpm),
                    field(3, "hdr.a.ternary", 48, MatchType::Ternary),
                    field(4, "hdr.a.range", 16, MatchType::Range),
                    field(5, "hdr.a.isValid()", 1, MatchType::Optional),
                ],
                action_refs: refs(&[0x0100_0001, 0x0100_0002]),
                size: 1024,
                direct_resource_ids: vec![0x1300_0001],
                ..Default::default()
            },
            config::Table {
                preamble: preamble(0x0200_0002, "Ingress.ecmp"),
                match_fields: vec![field(1, "meta.hash", 8, MatchType::Exact)],
                action_refs: refs(&[0x0100_0001]),
                implementation_id: 0x1100_0001,
                ..Default::default()
            },
        ],
        actions: vec![
            action(0x0100_0001, "Ingress.send", vec![param(1, "port", 9), param(2, "mac", 48)]),
            action(0x0100_0002, "drop", vec![]),
        ],
        direct_counters: vec![config::DirectCounter {
            preamble: preamble(0x1300_0001, "Ingress.count"),
            direct_table_id: 0x0200_0001,
            ..Default::default()
        }],
        ..Default::default()
    })
}

fn update(names: &Names, line: &str) -> Result<Change, String> {
    let commands = stf::parse(line).map_err(|errors| errors[0].message.clone())?;
    names.change(&commands[0].command).unwrap_or_else(|| Err("not about an entity".to_string()))
}

fn entry(change: &Change) -> &pb::TableEntry {
    match &change.entity {
        Entity::TableEntry(entry) => entry,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_become_updates_and_lines_again() {
    let names = names();
    let line = "add all 7 exact:0x1f lpm:10.0.0.0/8 ternary:0x00ff**000000 a.range:1..2 hdr.a.isValid():1 \
                send(port:3, mac:02:00:00:00:00:01)";
    let update = update(&names, line).unwrap();
    assert_eq!(update.verb, Verb::Insert);
    expect![[
        r#"Ingress.all 7 hdr.a.exact:0x01f hdr.a.lpm:0x0a000000/8 hdr.a.ternary:0x00ff00000000&&&0xffff00ffffff hdr.a.range:0x0001..0x0002 hdr.a.isValid():0x1 Ingress.send(port:0x003, mac:0x020000000001)"#
    ]]
    .assert_eq(&names.entry_line(entry(&update)));
}

#[test]
fn what_accepts_everything_is_left_out() {
    let names = names();
    let update = update(&names, "add all exact:1 lpm:0/0 ternary:* drop()").unwrap();
    assert_eq!(entry(&update).r#match.len(), 1);
    let line = names.entry_line(entry(&update));
    assert_eq!(line, "Ingress.all 1 hdr.a.exact:0x001 drop()");
}

#[test]
fn deletes_defaults_members_and_groups() {
    let names = names();
    let delete = update(&names, "delete ecmp hash:3").unwrap();
    assert_eq!((delete.verb, entry(&delete).action.clone()), (Verb::Delete, None));
    let default = update(&names, "setdefault all send(1, 2)").unwrap();
    assert_eq!(default.verb, Verb::Modify);
    assert!(entry(&default).is_default_action);
    let reset = names.reset_default("all").unwrap();
    assert!(entry(&reset).is_default_action && entry(&reset).action.is_none());
    for line in ["Ingress.ecmp meta.hash:0x03 member(9)", "Ingress.ecmp meta.hash:0xff group(1)"] {
        let update = update(&names, &format!("add {line}")).unwrap();
        assert_eq!(names.entry_line(entry(&update)), line);
    }
}

#[test]
fn refusals_name_what_there_is() {
    let names = names();
    for (line, message) in [
        ("add nothing a:1 drop()", "there is no table `nothing`; there are: Ingress.all, Ingress.ecmp"),
        ("add all lpm:0/0 drop()", "key `hdr.a.exact` of table `Ingress.all` is exact and must be given"),
        ("add all exact:512 drop()", "key `hdr.a.exact`: `512` does not fit in 9 bits"),
        ("add all exact:1 send(port:1)", "action `Ingress.send` needs a value for `mac`"),
        ("packet 1 00", "not about an entity"),
        ("add all exact:1 one_of(drop())", "table `Ingress.all` has no action selector, so an entry runs one action"),
        ("add all exact:1 drop() meter=1,2,3,4", "table `Ingress.all` has no meter"),
        ("group servers 1 2", "the program has no action profile"),
        ("digest d", "the program has no digest"),
    ] {
        assert_eq!(update(&names, line).unwrap_err(), message, "{line}");
    }
}

#[test]
fn counters_and_other_facts_stand_in_a_comment() {
    let names = names();
    let table = names.table("all").unwrap();
    assert!(names.query(table).counter_data.is_some() && names.query(table).meter_config.is_none());
    let entry = pb::TableEntry {
        table_id: 0x0200_0001,
        counter_data: Some(pb::CounterData { byte_count: 60, packet_count: 1 }),
        idle_timeout_ns: 1_500_000_000,
        is_const: true,
        metadata: vec![0xab],
        ..Default::default()
    };
    expect!["Ingress.all # no action metadata=0xab timeout=1500ms  # 1 packets, 60 bytes, const"]
        .assert_eq(&names.entry_line(&entry));
}

#[test]
fn odd_answers_are_printed() {
    let info = config::P4Info {
        tables: vec![config::Table {
            match_fields: vec![
                config::MatchField { id: 1, name: "a b".into(), bitwidth: -5, ..Default::default() },
                field(1, "", i32::MAX, config::match_field::MatchType::Ternary),
            ],
            action_refs: vec![config::ActionRef { id: 77, scope: 99, ..Default::default() }],
            size: -1,
            ..Default::default()
        }],
        ..Default::default()
    };
    let names = Names::new(info);
    let action = pb::Action { action_id: 5, params: vec![pb::action::Param { param_id: 9, value: vec![] }] };
    let set = pb::ActionProfileActionSet { action_profile_actions: vec![Default::default()], ..Default::default() };
    let other = FieldMatchType::Other(Default::default());
    let table = &names.tables()[0];
    let matches = vec![
        pb::FieldMatch { field_id: 1, field_match_type: None },
        pb::FieldMatch { field_id: 8, field_match_type: Some(other) },
        pb::FieldMatch { field_id: 0, field_match_type: Some(FieldMatchType::Exact(Default::default())) },
    ];
    let line = |r#type| {
        let action = Some(pb::TableAction { r#type });
        names.entry_line(&pb::TableEntry { r#match: matches.clone(), action, priority: -1, ..Default::default() })
    };
    expect![[r#""" -1 "a b":* field_8:() field_0:0x0 action_0x00000005(param_9:0x0)"#]]
        .assert_eq(&line(Some(ActionType::Action(action))));
    expect![[r#""" -1 "a b":* field_8:() field_0:0x0 one_of(# no action *0)"#]]
        .assert_eq(&line(Some(ActionType::ActionProfileActionSet(set))));
    assert_eq!(names.actions(table), ["action_0x0000004d"]);
}

#[test]
fn a_priority_for_a_table_without_priorities_is_refused_and_not_ignored() {
    let names = names();
    for line in ["add ecmp 5 hash:1 group(2)", "delete ecmp 5 hash:1"] {
        let why = update(&names, line).unwrap_err();
        assert!(why.contains("table `Ingress.ecmp`") && why.contains("no priority; 5 is given"), "{line}: {why}");
    }
    // Scripts of the reference compiler contain such lines.
    let names = names.lenient();
    assert_eq!(entry(&update(&names, "add ecmp 5 hash:1 group(2)").unwrap()).priority, 0);
    assert_eq!(entry(&update(&names, "add all exact:1 drop()").unwrap()).priority, 1);
}

proptest! {
    #[test]
    fn printed_entries_are_read_as_the_same(
        exact in 0u16..512, prefix in any::<u32>(), length in 0u32..=32, value: u64, mask: u64, ends: (u16, u16),
        valid: Option<bool>, priority in 1i32.., port in 0u16..512, mac: u64,
    ) {
        let names = names();
        let lpm = u64::from(prefix) >> (32 - length) << (32 - length);
        let (mac, mask) = (mac >> 16, mask >> 16);
        let valid = valid.map_or("*".to_string(), |v| u8::from(v).to_string());
        let (low, high) = (ends.0.min(ends.1), ends.0.max(ends.1));
        let line = format!(
            "add all {priority} exact:{exact} lpm:{lpm}/{length} ternary:{:#x}&&&{mask:#x} range:{low}..{high} \
             isValid():{valid} send({port}, {mac})", value & mask
        );
        let first = update(&names, &line).unwrap();
        let printed = names.entry_line(entry(&first));
        prop_assert_eq!(update(&names, &format!("add {printed}")).unwrap(), first, "{}", printed);
    }
}

fn bits(bitwidth: i32) -> config::P4DataTypeSpec {
    use config::p4_bitstring_like_type_spec::TypeSpec as BitSpec;
    let type_spec = Some(BitSpec::Bit(config::P4BitTypeSpec { bitwidth }));
    let bits = config::P4BitstringLikeTypeSpec { type_spec, ..Default::default() };
    config::P4DataTypeSpec { type_spec: Some(config::p4_data_type_spec::TypeSpec::Bitstring(bits)) }
}

/// A value set of one field and one of two, a meter, two registers.
fn value_sets() -> Names {
    use config::match_field::MatchType;
    let set = |id, name: &str, r#match| config::ValueSet { preamble: preamble(id, name), r#match, size: 8 };
    let two = vec![field(1, "low", 16, MatchType::Exact), field(2, "high", 16, MatchType::Ternary)];
    Names::new(config::P4Info {
        value_sets: vec![
            set(0x0300_0001, "P.one", vec![field(1, "", 16, MatchType::Exact)]),
            set(0x0300_0002, "P.two", two),
        ],
        meters: vec![config::Meter { preamble: preamble(0x1400_0001, "I.police"), size: 4, ..Default::default() }],
        registers: ["I.seen", "I.last"]
            .into_iter()
            .zip(0x1600_0001..)
            .map(|(name, id)| config::Register {
                preamble: preamble(id, name),
                type_spec: Some(bits(32)),
                size: 2,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    })
}

#[test]
fn a_line_about_a_value_set_takes_several_members() {
    let names = value_sets();
    let line = |text: &str| update(&names, text).map(|change| names.line(&change.entity).unwrap_or_default());
    assert_eq!(line("value_set one 5"), Ok("value_set P.one 0x0005".into()));
    assert_eq!(line("value_set one 7 6"), Ok("value_set P.one 0x0006\nvalue_set P.one 0x0007".into()));
    assert_eq!(
        line("value_set two 1 * 2 3"),
        Ok("value_set P.two 0x0001 *\nvalue_set P.two 0x0002 0x0003&&&0xffff".into())
    );
    assert_eq!(
        line("value_set two 1 2 3").unwrap_err(),
        "a member of `P.two` is 2 values, one for each of its fields (low high), and 3 are given; several members are written \
         one behind the other: `P.two low high low high`"
    );
    assert!(line("value_set two 1").unwrap_err().contains("and 1 is given"));
    assert_eq!(line("value_set one 5 6 5").unwrap_err(), "the member `0x0005` is given twice");
}

#[test]
fn members_of_value_sets_are_set_added_and_removed_together() {
    let names = value_sets();
    let change = |verb, text: &str| Change { verb, ..update(&names, text).unwrap() };
    let members = |changes: &[Change]| {
        let there = update(&names, "value_set one 1").unwrap().entity;
        let updates = crate::config::resolve(changes, vec![there]).map_err(|(_, why)| why)?;
        let (_, last) = updates.last().unwrap();
        Ok::<_, String>(names.line(last.entity.as_ref().unwrap().entity.as_ref().unwrap()).unwrap_or_default())
    };
    let lines = |of: &[u8]| of.iter().map(|n| format!("value_set P.one {n:#06x}")).collect::<Vec<_>>().join("\n");
    assert_eq!(members(&[change(Verb::Extend, "value_set one 2 3")]), Ok(lines(&[1, 2, 3])));
    // Two lines that set the same value set give its members together.
    assert_eq!(
        members(&[change(Verb::Set, "value_set one 4"), change(Verb::Set, "value_set one 5 6")]),
        Ok(lines(&[4, 5, 6]))
    );
    assert_eq!(
        members(&[change(Verb::Extend, "value_set one 2 3"), change(Verb::Shrink, "value_set one 1 3")]),
        Ok(lines(&[2]))
    );
    assert_eq!(members(&[change(Verb::Set, "value_set one")]), Ok(String::new()));
    assert!(
        members(&[change(Verb::Extend, "value_set one")]).unwrap_err().starts_with("no member is given: NAME VALUE...")
    );
}

#[test]
fn a_plan_names_what_begins_anew_and_what_stays() {
    use crate::config::{Wanted, plan};
    let names = value_sets();
    let of = |line: &str| update(&names, line).unwrap().entity;
    let there = || vec![of("value_set one 1"), of("meter_write police 2 100 10 200 20"), of("value_set two 1 2")];
    let planned = |file: &str| {
        let plan = plan(&names, there(), &Wanted::read(&names, file).unwrap(), true);
        let title = |step: &crate::config::Step| {
            let entity = step.update.entity.as_ref().and_then(|e| e.entity.as_ref()).unwrap();
            (names.title(entity), names.line(entity))
        };
        (plan.steps.iter().map(title).collect::<Vec<_>>(), plan.untouched)
    };
    let reset = |title: &str| (title.to_string(), None);
    let (steps, untouched) = planned("value_set two 1 2\n");
    assert_eq!(steps, [reset("meter I.police 2"), reset("value set P.one")]);
    assert_eq!(untouched, ["I.seen", "I.last"]);
    let (_, untouched) = planned("register_write seen all 0\nregister_write last 0 7\n");
    assert_eq!(untouched, ["I.last"]);
    let (_, untouched) = planned("register_write seen all 0\nregister_write last 0 7\nregister_write last 1 7\n");
    assert_eq!(untouched, Vec::<String>::new());
}

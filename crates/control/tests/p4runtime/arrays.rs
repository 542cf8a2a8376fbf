//! "CounterEntry & DirectCounterEntry", "MeterEntry & DirectMeterEntry", "RegisterEntry", "ValueSetEntry".

use super::*;
use UpdateKind::{Delete, Insert, Modify};

fn counter(index: Option<i64>, data: Option<CounterData>) -> Entity {
    Entity::Counter(CounterEntry { counter_id: id(ObjectKind::Counter, "ingress.count"), index, data })
}

fn count(packet_count: i64) -> Option<CounterData> {
    Some(CounterData { packet_count, byte_count: packet_count * 100 })
}

#[test]
fn counters_are_modified_and_read_by_cell_or_all() {
    let mut bed = Bed::new();
    bed.write(Modify, counter(None, count(1))).unwrap();
    bed.write(Modify, counter(Some(2), count(5))).unwrap();
    // Without data nothing changes.
    bed.write(Modify, counter(Some(2), None)).unwrap();
    let all = [1, 1, 5, 1].iter().enumerate().map(|(i, n)| counter(Some(i as i64), count(*n))).collect::<Vec<_>>();
    assert_eq!(bed.read(counter(None, None)).unwrap(), all);
    assert_eq!(bed.read(counter(Some(2), None)).unwrap(), [all[2].clone()]);
    assert_eq!(bed.read(Entity::Counter(CounterEntry::default())).unwrap(), all);
    for kind in [Insert, Delete] {
        assert_refused(bed.write(kind, counter(Some(0), count(1))), Code::InvalidArgument, "only be modified");
    }
    assert_refused(bed.write(Modify, counter(Some(-1), count(1))), Code::InvalidArgument, "negative");
    assert_refused(bed.write(Modify, counter(Some(4), count(1))), Code::OutOfRange, "4 cells");
    assert_refused(bed.read(counter(Some(4), None)), Code::OutOfRange, "4 cells");
    assert_refused(bed.write(Modify, counter(Some(0), count(-1))), Code::InvalidArgument, "negative");
}

#[test]
fn meters_are_configured_and_reset() {
    let mut bed = Bed::new();
    let meter_id = id(ObjectKind::Meter, "ingress.police");
    let meter = |index, config| Entity::Meter(MeterEntry { meter_id, index, config, counter_data: None });
    let config = MeterConfig { cir: 10, cburst: 1, pir: 20, pburst: 2, eburst: 0 };
    bed.write(Modify, meter(Some(1), Some(config))).unwrap();
    assert_eq!(bed.read(meter(Some(1), None)).unwrap(), [meter(Some(1), Some(config))]);
    assert_eq!(bed.read(meter(Some(0), None)).unwrap(), [meter(Some(0), None)]);
    bed.write(Modify, meter(None, None)).unwrap();
    assert_eq!(bed.read(meter(Some(1), None)).unwrap(), [meter(Some(1), None)]);
    let with_eburst = meter(Some(1), Some(MeterConfig { eburst: 1, ..config }));
    assert_refused(bed.write(Modify, with_eburst), Code::InvalidArgument, "eburst");
    let upside_down = meter(Some(1), Some(MeterConfig { pir: 5, ..config }));
    assert_refused(bed.write(Modify, upside_down), Code::InvalidArgument, "below the committed rate");
    assert_refused(bed.write(Insert, meter(Some(1), None)), Code::InvalidArgument, "only be modified");
    assert_refused(bed.write(Modify, meter(Some(9), None)), Code::OutOfRange, "4 cells");
}

#[test]
fn meters_keep_to_their_type() {
    let mut bed = Bed::new();
    let meter = |name: &str, config| {
        let meter_id = id(ObjectKind::Meter, name);
        Entity::Meter(MeterEntry { meter_id, index: Some(0), config: Some(config), counter_data: None })
    };
    // One rate and two colours is fine for meters of every type.
    let two_colours = MeterConfig { cir: 10, cburst: 3, pir: 10, pburst: 3, eburst: 0 };
    for name in ["ingress.police", "ingress.one_rate", "ingress.two_colours"] {
        bed.write(Modify, meter(name, two_colours)).unwrap();
        assert_eq!(bed.read(meter(name, two_colours)).unwrap(), [meter(name, two_colours)]);
    }
    let one_rate = MeterConfig { eburst: 7, ..two_colours };
    bed.write(Modify, meter("ingress.one_rate", one_rate)).unwrap();
    assert_eq!(bed.read(meter("ingress.one_rate", one_rate)).unwrap(), [meter("ingress.one_rate", one_rate)]);
    let mut refuse = |name, config, says| {
        assert_refused(bed.write(Modify, meter(name, config)), Code::InvalidArgument, says);
    };
    refuse("ingress.police", one_rate, "two rates");
    refuse("ingress.two_colours", one_rate, "this has two");
    for name in ["ingress.one_rate", "ingress.two_colours"] {
        refuse(name, MeterConfig { pir: 11, ..two_colours }, "a single rate");
        refuse(name, MeterConfig { pburst: 4, ..two_colours }, "a single rate");
    }
    refuse("ingress.one_rate", MeterConfig { eburst: -1, ..two_colours }, "negative");
}

fn colours(counts: [i64; 3]) -> Option<MeterCounterData> {
    let of = |n: i64| Some(CounterData { packet_count: n, byte_count: 100 * n });
    Some(MeterCounterData { green: of(counts[0]), yellow: of(counts[1]), red: of(counts[2]) })
}

#[test]
fn meters_count_by_colour() {
    let mut bed = Bed::new();
    let meter_id = id(ObjectKind::Meter, "ingress.police");
    let meter = |config, counter_data| Entity::Meter(MeterEntry { meter_id, index: Some(1), config, counter_data });
    let asked = || meter(None, Some(MeterCounterData::default()));
    // Without a configuration everything is green, and counted.
    let police = extern_named("ingress.police");
    bed.switch.state().meter_execute(police, 1, 100, 0);
    assert_eq!(bed.read(asked()).unwrap(), [meter(None, colours([1, 0, 0]))]);
    let config = Some(MeterConfig { cir: 0, cburst: 200, pir: 0, pburst: 300, eburst: 0 });
    // Configuring leaves the counts alone.
    bed.write(Modify, meter(config, None)).unwrap();
    (0..4).for_each(|_| _ = bed.switch.state().meter_execute(police, 1, 100, 0));
    assert_eq!(bed.read(asked()).unwrap(), [meter(config, colours([3, 1, 1]))]);
    // They are read only when asked for, and can only be set to zero.
    assert_eq!(bed.read(meter(None, None)).unwrap(), [meter(config, None)]);
    assert_refused(bed.write(Modify, meter(config, colours([1, 0, 0]))), Code::InvalidArgument, "set to 0");
    assert_eq!(bed.read(asked()).unwrap(), [meter(config, colours([3, 1, 1]))]);
    bed.write(Modify, meter(config, Some(MeterCounterData::default()))).unwrap();
    assert_eq!(bed.read(asked()).unwrap(), [meter(config, colours([0, 0, 0]))]);
    let all = Entity::Meter(MeterEntry { meter_id, counter_data: Some(Default::default()), ..Default::default() });
    assert_eq!(bed.read(all).unwrap().len(), 4);
}

#[test]
fn direct_meters_count_by_colour() {
    let mut bed = Bed::new();
    let entry = TableEntry { action: None, ..route([10, 0, 0, 0], 8, 1) };
    let with_counts = TableEntry { meter_counter_data: colours([0, 0, 1]), ..route([10, 0, 0, 0], 8, 1) };
    assert_refused(bed.write(Insert, Entity::Table(with_counts)), Code::InvalidArgument, "set to 0");
    let config = Some(MeterConfig { cir: 0, cburst: 100, pir: 0, pburst: 100, eburst: 0 });
    let inserted =
        TableEntry { meter_config: config, meter_counter_data: colours([0, 0, 0]), ..route([10, 0, 0, 0], 8, 1) };
    bed.write(Insert, Entity::Table(inserted)).unwrap();
    let police = extern_named("ingress.route_police");
    let hit = |bed: &Bed| {
        let state = bed.switch.state();
        let found = state.lookup(table_named("ingress.ipv4_lpm"), &[base::Bits::new(32, 10 << 24)], &[]);
        assert!(found.hit);
        state.meter_direct_execute(police, found.entry, 100, 0);
    };
    (0..3).for_each(|_| hit(&bed));
    let of = |counter_data| {
        let table_entry =
            Some(TableEntry { matches: entry.matches.clone(), table_id: entry.table_id, ..Default::default() });
        Entity::DirectMeter(DirectMeterEntry { table_entry, config, counter_data })
    };
    assert_eq!(bed.read(of(Some(Default::default()))).unwrap(), [of(colours([1, 0, 2]))]);
    let query = TableEntry { meter_counter_data: Some(Default::default()), ..entry.clone() };
    assert_eq!(bed.read_tables(query.clone())[0].meter_counter_data, colours([1, 0, 2]));
    // MODIFY leaves them, unless they are set.
    let modified = TableEntry { meter_config: config, ..route([10, 0, 0, 0], 8, 2) };
    bed.write(Modify, Entity::Table(modified.clone())).unwrap();
    assert_eq!(bed.read_tables(query.clone())[0].meter_counter_data, colours([1, 0, 2]));
    assert_refused(bed.write(Modify, of(colours([1, 0, 0]))), Code::InvalidArgument, "set to 0");
    bed.write(Modify, Entity::Table(TableEntry { meter_counter_data: Some(Default::default()), ..modified })).unwrap();
    assert_eq!(bed.read_tables(query.clone())[0].meter_counter_data, colours([0, 0, 0]));
    hit(&bed);
    bed.write(Modify, of(Some(Default::default()))).unwrap();
    assert_eq!(bed.read_tables(query)[0].meter_counter_data, colours([0, 0, 0]));
    // A new entry with the key counts from zero.
    hit(&bed);
    bed.write(Delete, Entity::Table(entry.clone())).unwrap();
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    let found = bed.read_tables(TableEntry { meter_counter_data: Some(Default::default()), ..entry });
    assert_eq!(found[0].meter_counter_data, colours([0, 0, 0]));
}

#[test]
fn default_entries_have_direct_resources() {
    let mut bed = Bed::new();
    let default = TableEntry { table_id: table("ingress.ipv4_lpm"), is_default_action: true, ..Default::default() };
    let counter = |data| Entity::DirectCounter(DirectCounterEntry { table_entry: Some(default.clone()), data });
    let config = Some(MeterConfig { cir: 0, cburst: 100, pir: 0, pburst: 200, eburst: 0 });
    let meter = |config, counter_data| {
        Entity::DirectMeter(DirectMeterEntry { table_entry: Some(default.clone()), config, counter_data })
    };
    assert_eq!(bed.read(counter(None)).unwrap(), [counter(count(0))]);
    assert_eq!(bed.read(meter(None, None)).unwrap(), [meter(None, None)]);
    bed.write(Modify, counter(count(5))).unwrap();
    bed.write(Modify, meter(config, None)).unwrap();
    // A packet that misses is the default entry's.
    let (hits, police) = ["ingress.route_count", "ingress.route_police"].map(extern_named).into();
    let miss = bed.switch.state().lookup(table_named("ingress.ipv4_lpm"), &[base::Bits::new(32, 1)], &[]);
    assert!(!miss.hit);
    for _ in 0..3 {
        bed.switch.state().count_direct(hits, miss.entry, 100);
        bed.switch.state().meter_direct_execute(police, miss.entry, 100, 0);
    }
    assert_eq!(bed.read(counter(None)).unwrap(), [counter(count(8))]);
    assert_eq!(bed.read(meter(None, Some(Default::default()))).unwrap(), [meter(config, colours([1, 1, 1]))]);
    // Beside the entry.
    let query = TableEntry {
        counter_data: Some(Default::default()),
        meter_config: Some(Default::default()),
        meter_counter_data: Some(Default::default()),
        ..default.clone()
    };
    let beside = |bed: &mut Bed| {
        let found = bed.read_tables(query.clone()).remove(0);
        (found.counter_data, found.meter_config, found.meter_counter_data)
    };
    assert_eq!(beside(&mut bed), (count(8), config, colours([1, 1, 1])));
    let forward = Some(TableAction::Action(forward(1)));
    let modified = TableEntry { action: forward, counter_data: count(2), meter_config: config, ..default.clone() };
    bed.write(Modify, Entity::Table(modified)).unwrap();
    assert_eq!(beside(&mut bed), (count(2), config, colours([1, 1, 1])));
    // Without an action it is as the program has it, the meter's configuration included; counts stay, as of other entries.
    let reset = TableEntry { meter_counter_data: Some(Default::default()), ..default.clone() };
    bed.write(Modify, Entity::Table(reset)).unwrap();
    assert_eq!(beside(&mut bed), (count(2), None, colours([0, 0, 0])));
    // No entry of the table is meant, and no key is taken.
    assert_eq!(bed.read_tables(TableEntry { table_id: default.table_id, ..Default::default() }), []);
    let with_key = TableEntry { is_default_action: true, ..route([10, 0, 0, 0], 8, 1) };
    let with_key = Entity::DirectCounter(DirectCounterEntry { table_entry: Some(with_key), data: count(1) });
    assert_refused(bed.write(Modify, with_key), Code::InvalidArgument, "neither match fields");
    let of_ecmp = TableEntry { table_id: table("ingress.ecmp"), is_default_action: true, ..Default::default() };
    let wrong = DirectCounterEntry { table_entry: Some(of_ecmp.clone()), data: count(1) };
    assert_refused(bed.write(Modify, Entity::DirectCounter(wrong)), Code::InvalidArgument, "no direct counter");
    let wrong = TableEntry { counter_data: count(1), ..of_ecmp };
    assert_refused(bed.write(Modify, Entity::Table(wrong)), Code::InvalidArgument, "no direct counter");
    // All tables' default entries.
    let all = TableEntry { is_default_action: true, ..Default::default() };
    let all = bed.read(Entity::DirectCounter(DirectCounterEntry { table_entry: Some(all), data: None })).unwrap();
    assert_eq!(all, [counter(count(2))]);
}

#[test]
fn direct_resources_are_found_by_their_entry() {
    let mut bed = Bed::new();
    let entry = TableEntry { action: None, ..route([10, 0, 0, 0], 8, 1) };
    let counter = |data| Entity::DirectCounter(DirectCounterEntry { table_entry: Some(entry.clone()), data });
    assert_refused(bed.write(Modify, counter(count(3))), Code::NotFound, "ipv4_lpm");
    assert_refused(bed.read(counter(None)), Code::NotFound, "ipv4_lpm");
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    bed.write(Modify, counter(count(3))).unwrap();
    assert_eq!(bed.read(counter(None)).unwrap(), [counter(count(3))]);
    // A read without key is for all entries.
    let all = DirectCounterEntry {
        table_entry: Some(TableEntry { table_id: entry.table_id, ..Default::default() }),
        data: None,
    };
    assert_eq!(bed.read(Entity::DirectCounter(all)).unwrap(), [counter(count(3))]);
    assert_refused(bed.write(Insert, counter(count(3))), Code::InvalidArgument, "only be modified");
    let config = Some(MeterConfig { cir: 1, cburst: 1, pir: 1, pburst: 1, eburst: 0 });
    let meter =
        |config| Entity::DirectMeter(DirectMeterEntry { table_entry: Some(entry.clone()), config, counter_data: None });
    bed.write(Modify, meter(config)).unwrap();
    assert_eq!(bed.read(meter(None)).unwrap(), [meter(config)]);
    bed.write(Modify, meter(None)).unwrap();
    assert_eq!(bed.read(meter(None)).unwrap(), [meter(None)]);
    let of_ecmp = TableEntry { table_id: table("ingress.ecmp"), ..Default::default() };
    let wrong = DirectCounterEntry { table_entry: Some(of_ecmp), data: None };
    assert_refused(bed.read(Entity::DirectCounter(wrong)), Code::InvalidArgument, "no direct counter");
}

#[test]
fn registers_hold_values_of_their_type() {
    let mut bed = Bed::new();
    let register = |name, index, data| {
        Entity::Register(RegisterEntry { register_id: id(ObjectKind::Register, name), index, data })
    };
    let word = |value: &[u8]| Some(P4Data::Bitstring(value.to_vec()));
    bed.write(Modify, register("ingress.state", Some(1), word(&[0, 0, 7]))).unwrap();
    let found = bed.read(register("ingress.state", None, None)).unwrap();
    assert_eq!(found[0], register("ingress.state", Some(0), word(&[0])));
    assert_eq!(found[1], register("ingress.state", Some(1), word(&[7])));
    let pair = Some(P4Data::Struct(vec![P4Data::Bitstring(vec![0xfd, 0x1d]), P4Data::Bool(true)]));
    bed.write(Modify, register("ingress.pair", Some(0), pair.clone())).unwrap();
    assert_eq!(bed.read(register("ingress.pair", Some(0), None)).unwrap(), [register("ingress.pair", Some(0), pair)]);
    let wrong = register("ingress.state", Some(0), Some(P4Data::Bool(true)));
    assert_refused(bed.write(Modify, wrong), Code::InvalidArgument, "type");
    let wide = register("ingress.state", Some(0), word(&[1, 0, 0, 0, 0]));
    assert_refused(bed.write(Modify, wide), Code::OutOfRange, "32 bits");
    assert_refused(bed.write(Modify, register("ingress.state", Some(4), word(&[1]))), Code::OutOfRange, "4 cells");
    assert_refused(
        bed.write(Modify, register("ingress.state", Some(-4), word(&[1]))),
        Code::InvalidArgument,
        "negative",
    );
    assert_refused(bed.write(Modify, register("ingress.state", Some(0), None)), Code::InvalidArgument, "missing");
    let short = register("ingress.pair", Some(0), Some(P4Data::Struct(vec![])));
    assert_refused(bed.write(Modify, short), Code::InvalidArgument, "0 members given");
}

#[test]
fn a_value_set_is_replaced_as_a_whole() {
    let mut bed = Bed::new();
    let value_set_id = id(ObjectKind::ValueSet, "parser.types");
    let set = |values: &[&[u8]]| {
        let member = |value: &&[u8]| vec![FieldMatch { field_id: 1, value: MatchValue::Exact(value.to_vec()) }];
        Entity::ValueSet(ValueSetEntry { value_set_id, members: values.iter().map(member).collect() })
    };
    bed.write(Modify, set(&[&[0x22, 0xf3], &[0x89, 0x3b]])).unwrap();
    assert_eq!(bed.read(set(&[])).unwrap(), [set(&[&[0x22, 0xf3], &[0x89, 0x3b]])]);
    bed.write(Modify, set(&[&[0x89, 0x3b], &[1]])).unwrap();
    assert_eq!(bed.read(Entity::ValueSet(Default::default())).unwrap(), [set(&[&[0x89, 0x3b], &[1]])]);
    assert_refused(bed.write(Modify, set(&[&[1], &[1]])), Code::AlreadyExists, "given twice");
    assert_refused(bed.write(Modify, set(&[&[1], &[2], &[3]])), Code::ResourceExhausted, "the limit is 2");
    assert_refused(bed.write(Insert, set(&[])), Code::InvalidArgument, "only be modified");
    bed.write(Modify, set(&[])).unwrap();
    assert_eq!(bed.read(set(&[])).unwrap(), [set(&[])]);
}

#[test]
fn an_entry_of_dont_cares_is_one_of_all_when_direct_resources_are_read() {
    let mut bed = Bed::new();
    bed.write(Insert, Entity::Table(TableEntry { matches: vec![], ..route([0, 0, 0, 0], 1, 1) })).unwrap();
    bed.write(Insert, Entity::Table(route([10, 0, 0, 0], 8, 1))).unwrap();
    let all = || Some(TableEntry { table_id: table("ingress.ipv4_lpm"), ..Default::default() });
    let counters = DirectCounterEntry { table_entry: all(), data: None };
    assert_eq!(bed.read(Entity::DirectCounter(counters)).unwrap().len(), 2);
    let meters = DirectMeterEntry { table_entry: all(), config: None, counter_data: None };
    assert_eq!(bed.read(Entity::DirectMeter(meters)).unwrap().len(), 2);
}

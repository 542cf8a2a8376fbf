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
    let colours = MeterEntry { meter_id, counter_data: Some(Default::default()), ..Default::default() };
    assert_refused(bed.read(Entity::Meter(colours)), Code::Unimplemented, "colour");
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

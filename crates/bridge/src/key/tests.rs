use super::*;
use crate::testing::program;

fn field(layout: &Layout, name: &str) -> FieldId {
    layout.fields().named(name).expect("a field of the program")
}

#[test]
fn values_are_written_and_read_under_masks() {
    let layout = Layout::new(&program()).unwrap();
    let mut random = random::Random::new(1);
    for (id, field) in layout.fields().iter().filter(|(_, field)| !field.name.starts_with("reg")) {
        let place = layout.place(id);
        let mut record: Vec<u64> = vec![0; layout.words()];
        let mut expected = 0;
        for _ in 0..20 {
            let (value, mask) = (random.next_u128(), random.next_u128());
            place.write(&mut record, value, mask);
            expected = (expected & !mask | value & mask) & field.full();
            assert_eq!(place.read(&record), expected, "{}", field.name);
        }
        place.write(&mut record, 0, u128::MAX);
        assert!(record.iter().all(|word| *word == 0), "{} wrote other bits", field.name);
    }
}

#[test]
fn parts_of_fields_are_fields() {
    let layout = Layout::new(&program()).unwrap();
    let mut record = vec![0; layout.words()];
    let id = field(&layout, "ipv6_dst");
    layout.place(id).write(&mut record, 0x0123_4567_89ab_cdef_0011_2233_4455_6677, u128::MAX);
    let part = |offset, bits| layout.part(Subfield { field: id, offset, bits }).read(&record);
    assert_eq!(part(60, 8), 0xf0);
    assert_eq!(part(0, 128), layout.place(id).read(&record));
    assert_eq!(part(124, 64), 0x0, "what the field does not have is left out");
    assert_eq!(part(120, 8), 0x01);
    assert_eq!(part(500, 8), 0);
}

#[test]
fn stages_follow_prerequisites() {
    let layout = Layout::new(&program()).unwrap();
    let stage = |name| layout.stage(field(&layout, name));
    assert_eq!((stage("reg1"), stage("eth_type"), stage("ipv4_src"), stage("tcp_dst")), (0, 1, 2, 3));
}

#[test]
fn overlapping_fields_agree_or_never_match() {
    let layout = Layout::new(&program()).unwrap();
    let mut matching = Match::any();
    matching.add(field(&layout, "xreg0"), 0x11_0000_0022, u128::MAX);
    matching.add(field(&layout, "reg1"), 0x22, 0xffff_ffff);
    assert_eq!(layout.terms(&matching).map(|terms| terms.len()), Some(1));
    matching.add(field(&layout, "reg0"), 0x12, 0xffff_ffff);
    assert_eq!(layout.terms(&matching), None);
}

#[test]
fn a_field_is_present_if_all_that_it_needs_is() {
    let layout = Layout::new(&program()).unwrap();
    let mut record = vec![0; layout.words()];
    let mut consulted = Consulted::new(layout.words());
    let tcp = field(&layout, "tcp_src");
    layout.place(field(&layout, "ip_proto")).write(&mut record, 6, u128::MAX);
    assert!(!layout.is_present(&record, tcp, &mut consulted));
    layout.place(field(&layout, "eth_type")).write(&mut record, 0x800, u128::MAX);
    assert!(layout.is_present(&record, tcp, &mut consulted));
    assert_eq!(consulted.iter().map(|(_, mask)| mask.count_ones()).sum::<u32>(), 24);
}

#[test]
fn a_field_beyond_its_slot_is_refused() {
    let mut program = program();
    program.openflow.as_mut().unwrap().fields[0].parts[0].lo = 1;
    assert!(Layout::new(&program).unwrap_err().contains("in_port"));
}

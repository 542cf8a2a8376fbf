use super::*;

fn one(line: &str) -> Command {
    parse(line).unwrap().remove(0).command
}

#[test]
fn packets_and_patterns() {
    assert_eq!(one("packet 3 00 ffAB # x"), Command::Packet { port: 3, frame: vec![0, 0xff, 0xab] });
    let Command::Expect { frame: Some(p), .. } = one("expect 1 0*ff$") else { panic!() };
    assert!(p.matches(&[0x07, 0xff]) && !p.matches(&[0x07, 0xff, 0]) && !p.matches(&[0x07]));
    assert_eq!(p.first_difference(&[0x07, 0xff]), None);
    assert_eq!(p.first_difference(&[0x07, 0xfe]), Some(3));
    assert_eq!(p.first_difference(&[0x17, 0xff]), Some(0));
    assert_eq!(p.first_difference(&[0x07]), Some(2));
    assert_eq!(p.first_difference(&[0x07, 0xff, 0]), Some(4));
    for (line, why) in [("packet 1", "no bytes"), ("packet 1 0*", "no `*`"), ("packet 1 000", "3 hexadecimal")] {
        let errors = parse(line).unwrap_err();
        assert!(errors[0].message.contains(why), "{errors:?}");
    }
    let Command::Expect { frame: Some(p), .. } = one("expect 1 0*ff") else { panic!() };
    assert!(p.matches(&[0x07, 0xff, 0]));
    assert_eq!(one("expect 4"), Command::Expect { port: 4, frame: None });
}

#[test]
fn table_lines_with_priorities_validity_and_handles() {
    let Command::Entry { table, priority, key, action, handle, .. } =
        one("add t1 100 data.$valid:0b1 hdr.x.isValid():1 data.f1:0x****0101 c.set(val:0x7f, port:2) = $A")
    else {
        panic!()
    };
    assert_eq!(handle.as_deref(), Some("A"));
    assert_eq!((table.as_str(), priority), ("t1", Some(100)));
    assert_eq!(key.len(), 3);
    assert_eq!(key[1], ("hdr.x.isValid()".into(), "1".into()));
    assert_eq!(action.name, "c.set");
    assert_eq!(action.args, [("val".into(), "0x7f".into()), ("port".into(), "2".into())]);
}

#[test]
fn mac_addresses_are_values() {
    let Command::SetDefault { action, .. } = one("setdefault t a(mac:02:00:00:00:00:01, 9)") else { panic!() };
    assert_eq!(action.args, [("mac".into(), "02:00:00:00:00:01".into()), (String::new(), "9".into())]);
}

#[test]
fn quoted_names_have_any_character() {
    let line = "add \"I.my table\" 7 \"h.a[7:0]\":0b1*** \"x (#1)\":0x2 h.b[3:0]:1 \"I.act (x)\"(\"p:0, q\":0x1,\"r\":2) # end";
    let Command::Entry { table, priority, key, action, handle, .. } = one(line) else { panic!() };
    assert_eq!((table.as_str(), priority, handle), ("I.my table", Some(7), None));
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(key, [pair("h.a[7:0]", "0b1***"), pair("x (#1)", "0x2"), pair("h.b[3:0]", "1")]);
    assert_eq!((action.name.as_str(), action.args), ("I.act (x)", vec![pair("p:0, q", "0x1"), pair("r", "2")]));
    let Command::SetDefault { table, action, .. } = one("setdefault \"I.t\" \"I.a\"(\"p\":0x01)") else { panic!() };
    assert_eq!((table.as_str(), action.name.as_str(), action.args), ("I.t", "I.a", vec![pair("p", "0x01")]));
    let Command::RegisterRead { name, index } = one("register_read \"a b\" 3") else { panic!() };
    assert_eq!((name.as_str(), index), ("a b", 3));
    for (line, why) in [
        ("add \"t k:1 a()", "no closing quote"),
        ("setdefault t\"x a()", "needs a table and an action"),
        ("add t\"x\" k:1 a()", "is not a name"),
        ("add t k:1 a() b", "is not `= HANDLE`"),
        ("add t k:1 a() colour=1", "no option `colour`"),
        ("add t k:1 a() timeout=5", "is no time"),
        ("add t k:1 one_of(a() 3)", "is neither *WEIGHT nor @PORT"),
        ("multicast 1 2:x", "`x` is not an instance"),
        ("group p 1 max=3 4", "no option `max`"),
    ] {
        let errors = parse(line).unwrap_err();
        assert!(errors[0].message.contains(why), "{line}: {errors:?}");
    }
}

#[test]
fn entries_have_options_and_lists_of_actions() {
    let line = "set t 3 k:1 one_of(first nat(\"x;y)\":1); send(1) *3 @2; send(2)) mode=random size=members metadata=0x0aff = $h";
    let Command::Entry { verb, action, options, handle, .. } = one(line) else { panic!() };
    assert_eq!((verb, handle.as_deref(), action.name.as_str()), (EntryVerb::Set, Some("h"), ONE_OF));
    let parts: Vec<_> = action.parts.iter().map(|p| (p.action.name.as_str(), p.weight, p.watch)).collect();
    assert_eq!(parts, [("nat", None, None), ("send", Some(3), Some(2)), ("send", Some(1), None)]);
    assert_eq!((options.random, options.size_is_weights), (Some(true), Some(false)));
    assert_eq!(options.metadata, [0x0a, 0xff]);
    let Command::Entry { options, .. } = one("add t k:1 a() timeout=1500ms meter=1,2,3,4 counter=7,9") else {
        panic!()
    };
    assert_eq!((options.idle_timeout_ns, options.counter), (1_500_000_000, Some((7, 9))));
    assert_eq!(options.meter, Some(MeterRates { cir: 1, cburst: 2, pir: 3, pburst: 4, eburst: 0 }));
    for (ns, text) in [(0, "0s"), (1_500_000_000, "1500ms"), (7, "7ns"), (2_000, "2us")] {
        assert_eq!(time_text(ns), text);
        assert_eq!(time_ns(text), Ok(ns));
    }
}

#[test]
fn groups_sessions_and_digests_say_what_the_protocol_says() {
    let Command::Group { max_size, members, .. } = one("group p 1 max_size=4 7 8:3@2") else { panic!() };
    assert_eq!(max_size, 4);
    assert_eq!(members[0], GroupPart { member: 7, weight: None, watch: None });
    assert_eq!(members[1], GroupPart { member: 8, weight: Some(3), watch: Some(2) });
    let Command::Multicast { group, replicas, metadata } = one("multicast 5 1 2:3|4:5|6 metadata=0x01") else {
        panic!()
    };
    assert_eq!((group, metadata), (5, vec![1]));
    assert_eq!(replicas[1].alternatives, [(2, 3), (4, 5), (6, 0)]);
    let line = "clone 9 510 packet_length=128 class_of_service=2";
    let Command::Clone { session: 9, packet_length_bytes: 128, class_of_service: 2, .. } = one(line) else { panic!() };
    let line = "digest d max_list_size=3 max_timeout=1ms";
    let Command::Digest { max_timeout_ns: 1_000_000, max_list_size: 3, ack_timeout_ns: 0, .. } = one(line) else {
        panic!()
    };
}

#[test]
fn counters_are_checked_by_index_or_handle() {
    let Command::CheckCounter { name, cell, .. } = one("check_counter \"c (1)\"($h) packets == 2") else { panic!() };
    assert_eq!((name.as_str(), cell), ("c (1)", CounterCell::Handle("h".into())));
    let Command::CheckCounter { cell, .. } = one("check_counter c(0x2)") else { panic!() };
    assert_eq!(cell, CounterCell::Index(2));
}

#[test]
fn every_bad_line_is_reported() {
    let errors = parse("packet 1 0g\nfrobnicate\nexpect 1 00\nadd\n").unwrap_err();
    assert_eq!(errors.iter().map(|e| e.line).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(errors[1].message, "there is no command `frobnicate`");
}

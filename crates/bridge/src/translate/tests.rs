use super::*;
use crate::flow::Group;
use crate::processor::{Pipeline, Processor};
use crate::testing::{Left, TestBridge, pass, program};
use openflow::action::{HashFields, HeaderAction, Learn, LearnSpec, MultipathAlgorithm, Source, Subfield, port};
use openflow::message::{GroupKind, Selection};
use openflow::{Bucket, Instructions};

struct Bench {
    program: ir::Program,
    bridge: Arc<TestBridge>,
    pipeline: Arc<Pipeline>,
    processor: Processor,
}

fn output(port: u32) -> Action {
    Action::Output { port, max_len: 0xffff }
}

fn resubmit(port: Option<u32>, table: u8) -> Action {
    Action::Resubmit { port, table: Some(table), with_ct: false }
}

fn header(name: HeaderAction) -> Action {
    Action::Header { name, argument: 0x8847 }
}

impl Bench {
    fn new() -> Bench {
        let program = program();
        let bridge = TestBridge::new(&program);
        let pipeline = Pipeline::new(Arc::clone(&bridge) as Arc<dyn Control>, &program).unwrap();
        let processor = pipeline.worker(0);
        Bench { program, bridge, pipeline, processor }
    }

    fn set(&self, name: &str, value: u128) -> Action {
        let field = self.bridge.field(name);
        Action::SetField { field, value, mask: self.bridge.layout().fields().get(field).full() }
    }

    fn part(&self, name: &str) -> Subfield {
        let field = self.bridge.field(name);
        Subfield { field, offset: 0, bits: self.bridge.layout().fields().get(field).width }
    }

    fn record(&self, fields: &[(&str, u128)]) -> Vec<u64> {
        let mut all = vec![("in_port", 1), ("eth_type", 0x800), ("nw_ttl", 64), ("ip_proto", 6)];
        all.extend(fields);
        self.bridge.record(&self.program, &all)
    }

    fn send_from(&mut self, fields: &[(&str, u128)], start: u64) -> Vec<Left> {
        let record = self.record(fields);
        pass(&mut self.processor, &self.program, &Arc::clone(self.bridge.layout()), (&record, 100), start, 0)
    }

    /// The ports to which a packet is sent; 0 stands for controllers.
    fn ports(&mut self, fields: &[(&str, u128)]) -> Vec<u32> {
        self.send_from(fields, 0)
            .iter()
            .filter_map(|left| match left {
                Left::Port(port, ..) => Some(*port),
                Left::Capture(_) => Some(0),
                _ => None,
            })
            .collect()
    }

    /// The mask of a packet's megaflow.
    fn mask(&self, fields: &[(&str, u128)]) -> String {
        let record = self.record(fields);
        let subject = Subject { record: &record, bytes: 100, start: 0, now_us: 0, work: crate::testing::WORK };
        crate::trace::mask(
            self.bridge.layout(),
            &translate(self.pipeline.shared(), subject, &mut Arrays::default()).consulted,
        )
    }

    fn group(&self, id: u32, kind: GroupKind, buckets: &[(Option<u32>, u16, Vec<Action>)]) -> Arc<Group> {
        let buckets = buckets.iter().enumerate().map(|(id, (watch_port, weight, actions))| {
            let id = id as u32;
            let bucket =
                Bucket { id, weight: *weight, watch_port: *watch_port, watch_group: None, actions: actions.clone() };
            (bucket, Arc::default())
        });
        let (buckets, selection) = (buckets.collect(), Selection::default());
        let usage = Arc::default();
        let charge = Default::default();
        let group = Arc::new(Group { id, kind, buckets, selection, created_us: 0, usage, charge });
        self.bridge.write().replace_group(id, Some(Arc::clone(&group)));
        group
    }
}

#[test]
fn a_resubmission_by_another_port_is_a_search_only() {
    let mut bench = Bench::new();
    bench.bridge.add(0, 1, Match::any(), vec![resubmit(Some(3), 1), output(1), output(4)]);
    let by_3 = bench.bridge.matching(&[("in_port", 3)]);
    bench.bridge.add(1, 1, by_3, vec![output(1), output(3)]);
    // Port 1 is the input port, in both tables.
    assert_eq!(bench.ports(&[]), [3, 4]);
}

#[test]
fn fragments_are_treated_as_configured() {
    let mut bench = Bench::new();
    let to = |port: u128| bench.bridge.matching(&[("eth_type", 0x800), ("ip_proto", 6), ("tcp_dst", port)]);
    let (to_7, to_0) = (to(7), to(0));
    bench.bridge.add(0, 1, to_7, vec![output(2)]);
    bench.bridge.add(0, 1, to_0, vec![output(3)]);
    // Not a fragment, the first one, a later one, of which the parser finds no transport header.
    let packets: [&[(&str, u128)]; 3] =
        [&[("tcp_dst", 7)], &[("tcp_dst", 7), ("nw_frag", 1)], &[("tcp_dst", 0), ("nw_frag", 3)]];
    let modes: [(u16, [&[u32]; 3]); 3] = [(0, [&[2], &[3], &[3]]), (1, [&[2], &[], &[]]), (3, [&[2], &[2], &[3]])];
    for (mode, expected) in modes {
        bench.bridge.write().set_fragments(mode);
        for (packet, ports) in packets.iter().zip(expected) {
            assert_eq!(bench.ports(packet), ports, "mode {mode}, {packet:?}");
        }
    }
}

#[test]
fn actions_read_hidden_fields_as_zero_and_the_frame_keeps_them() {
    let mut bench = Bench::new();
    let copy = Action::Move { from: bench.part("tcp_src"), to: Subfield { bits: 16, ..bench.part("reg0") } };
    bench.bridge.add(0, 1, Match::any(), vec![copy, bench.set("tcp_dst", 9), resubmit(None, 1)]);
    for (reg, port) in [(0, 2), (5, 3)] {
        let matching = bench.bridge.matching(&[("reg0", reg), ("eth_type", 0x800), ("ip_proto", 6), ("tcp_dst", 9)]);
        bench.bridge.add(1, 1, matching, vec![output(port)]);
    }
    for (fragment, to) in [(0, 3), (1, 2), (0, 3), (1, 2)] {
        let left = bench.send_from(&[("tcp_src", 5), ("tcp_dst", 7), ("nw_frag", fragment)], 0);
        let [Left::Port(port, _, _, _, record)] = &left[..] else { panic!("{left:?}") };
        // The last header is TCP's.
        let [.., src, dst, _is_valid] = record[..] else { panic!("{record:?}") };
        assert_eq!((*port, src, dst), (to, 5, 9), "fragment {fragment}");
    }
    // Megaflows that do not depend on hidden fields are for fragments as well.
    let mask = bench.mask(&[("tcp_src", 5)]);
    assert!(mask.contains("nw_frag"), "{mask}");
    let mut bench = Bench::new();
    bench.bridge.add(0, 1, Match::any(), vec![bench.set("tcp_dst", 9), output(2)]);
    assert!(!bench.mask(&[]).contains("nw_frag"), "{}", bench.mask(&[]));
    assert_eq!(bench.ports(&[("nw_frag", 1)]), [2]);
}

#[test]
fn the_action_set_is_done_last_also_behind_exit() {
    let mut bench = Bench::new();
    let instructions =
        Instructions { apply: vec![output(2)], write: vec![output(4)], goto: Some(1), ..Instructions::default() };
    bench.bridge.add_with(0, 1, Match::any(), instructions);
    bench.bridge.add(1, 1, Match::any(), vec![output(3), Action::Exit, output(2)]);
    assert_eq!(bench.ports(&[]), [2, 3, 4]);
    let clear = Instructions { clear: true, ..Instructions::default() };
    bench.bridge.add_with(1, 2, Match::any(), clear);
    assert_eq!(bench.ports(&[]), [2], "the set is forgotten");
}

#[test]
fn a_clone_leaves_the_packet_as_it_was() {
    let mut bench = Bench::new();
    let set = |value| bench.set("tcp_dst", value);
    let inside = vec![set(99), output(2), Action::Exit, output(4)];
    bench.bridge.add(0, 1, Match::any(), vec![Action::Clone(inside), output(3)]);
    let left = bench.send_from(&[("tcp_dst", 7)], 0);
    let [Left::Port(2, _, _, true, changed), Left::Port(3, _, _, false, same)] = &left[..] else { panic!("{left:?}") };
    assert_ne!(changed, same);
}

#[test]
fn groups_choose_buckets() {
    let mut bench = Bench::new();
    bench.bridge.add(0, 1, Match::any(), vec![Action::Group(1), output(4)]);
    let all = bench.group(
        1,
        GroupKind::All,
        &[(None, 0, vec![output(2)]), (None, 0, vec![output(3), bench.set("tcp_dst", 1)])],
    );
    assert_eq!(bench.ports(&[]), [2, 3, 4]);
    assert_eq!(all.usage.counts().0, 1);

    bench.group(1, GroupKind::FastFailover, &[(Some(9), 0, vec![output(2)]), (Some(3), 0, vec![output(3)])]);
    assert_eq!(bench.ports(&[]), [3, 4], "port 9 is not there");

    let buckets = [(None, 1, vec![output(2)]), (None, 3, vec![output(3)]), (None, 0, vec![output(1)])];
    bench.group(1, GroupKind::Select, &buckets);
    let mut counts = [0; 5];
    for source in 0..2000 {
        let ports = bench.ports(&[("tcp_src", source)]);
        assert_eq!(ports, bench.ports(&[("tcp_src", source)]), "a flow stays");
        counts[ports[0] as usize] += 1;
    }
    assert_eq!(counts[2] + counts[3], 2000);
    assert!((1400..1600).contains(&counts[3]), "in proportion to weights: {counts:?}");
}

#[test]
fn what_must_be_parsed_anew_goes_on_behind_it() {
    let mut bench = Bench::new();
    let write = vec![output(4)];
    let apply = vec![
        bench.set("reg0", 5),
        Action::StackPush(bench.part("reg0")),
        header(HeaderAction::PushMpls),
        output(2),
        bench.set("eth_dst", 1),
        Action::StackPop(bench.part("reg1")),
        resubmit(None, 1),
    ];
    bench.bridge.add_with(0, 1, Match::any(), Instructions { apply, write, ..Instructions::default() });
    let matching = bench.bridge.matching(&[("reg0", 5), ("reg1", 5), ("eth_type", 0x8847), ("in_port", 1)]);
    bench.bridge.add(1, 1, matching, vec![output(3)]);
    for _ in 0..2 {
        let left = bench.send_from(&[], 0);
        let ports: Vec<u32> = left
            .iter()
            .filter_map(|left| match left {
                Left::Port(port, ..) => Some(*port),
                _ => None,
            })
            .collect();
        assert_eq!(ports, [2, 3, 4], "{left:?}");
        assert_eq!(left.iter().filter(|left| matches!(left, Left::Again(..))).count(), 1);
    }
    assert_eq!(bench.bridge.pending().len(), 1, "packets share the rest");
}

#[test]
fn a_learned_flow_is_there_at_once_and_learned_once() {
    let mut bench = Bench::new();
    let learn = Learn {
        idle_timeout: 60,
        hard_timeout: 0,
        priority: 5,
        cookie: 1,
        table: 1,
        flags: 4,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 2,
        result: Some(Subfield { bits: 1, ..bench.part("reg1") }),
        specs: vec![
            LearnSpec::Match { to: bench.part("eth_dst"), from: Source::Field(bench.part("eth_src")) },
            LearnSpec::Output { from: bench.part("in_port") },
        ],
    };
    bench.bridge.add(0, 1, Match::any(), vec![Action::Learn(Box::new(learn)), resubmit(None, 1), resubmit(None, 2)]);
    let has_learned = bench.bridge.matching(&[("reg1", 1)]);
    bench.bridge.add(2, 1, has_learned, vec![output(4)]);
    for _ in 0..3 {
        assert_eq!(bench.ports(&[("eth_src", 7), ("eth_dst", 9)]), [4]);
    }
    assert_eq!(bench.bridge.learned.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(bench.ports(&[("in_port", 2), ("eth_src", 9), ("eth_dst", 7)]), [1, 4], "the way back");
    assert_eq!(bench.ports(&[("eth_src", 8), ("eth_dst", 9)]), [2], "the limit is reached");
    assert_eq!(bench.bridge.tables().table(1).flows.len(), 2);
}

#[test]
fn endless_searches_end_and_drop_the_packet() {
    let mut bench = Bench::new();
    bench.bridge.add(0, 1, Match::any(), vec![output(2), resubmit(None, 0), resubmit(None, 0)]);
    assert_eq!(bench.send_from(&[], 0), [Left::Dropped]);
    bench.bridge.add(0, 1, Match::any(), vec![output(2), Action::Group(1)]);
    bench.group(1, GroupKind::Indirect, &[(None, 0, vec![Action::Group(1)])]);
    assert_eq!(bench.send_from(&[], 0), [Left::Dropped]);
    // Many lookups, not nested.
    let many = vec![resubmit(None, 1); 100];
    (0..100).for_each(|table| {
        bench.bridge.add(table, 1, Match::any(), vec![resubmit(None, table + 1); 3]);
    });
    bench.bridge.add(0, 1, Match::any(), many);
    assert_eq!(bench.send_from(&[], 0), [Left::Dropped]);
}

#[test]
fn normal_learns_and_floods() {
    let mut bench = Bench::new();
    bench.bridge.add(0, 1, Match::any(), vec![output(port::NORMAL)]);
    let frame = |from: u128, to: u128, port: u128| [("eth_src", from), ("eth_dst", to), ("in_port", port)];
    assert_eq!(bench.ports(&frame(7, 8, 1)), [2, 3, 4]);
    assert_eq!(bench.ports(&frame(8, 7, 3)), [1]);
    assert_eq!(bench.ports(&frame(7, 8, 1)), [3], "what was cached is not right any more");
    assert_eq!(bench.ports(&frame(9, 7, 1)), [], "the receiver is where it came from");
    assert_eq!(bench.ports(&frame(7, 0xffff_ffff_ffff, 1)), [2, 3, 4]);
}

#[test]
fn packet_outs_begin_with_their_actions() {
    let mut bench = Bench::new();
    bench.bridge.add(0, 1, Match::any(), vec![output(3)]);
    let start = bench
        .bridge
        .pending()
        .insert(1, vec![output(2), output(port::TABLE), output(port::CONTROLLER)], 4, Match::any())
        .unwrap();
    let left = bench.send_from(&[], start);
    assert!(matches!(&left[..], [Left::Port(2, ..), Left::Port(3, ..), Left::Capture(_)]), "{left:?}");
    let event = bench.bridge.packet_ins.lock().unwrap()[0].clone();
    assert_eq!((event.in_port, event.packet.reason), (4, crate::controllers::packet_in_reason::PACKET_OUT));
    assert_eq!(bench.send_from(&[], start), [Left::Dropped], "once");
}

#[test]
fn a_paused_packet_goes_on_when_it_is_let_go() {
    let mut bench = Bench::new();
    let pause =
        openflow::action::Controller { max_len: 0xffff, id: 0, reason: 1, userdata: vec![4], pause: true, meter: None };
    bench.bridge.add(
        0,
        1,
        Match::any(),
        vec![bench.set("reg0", 5), Action::Controller(pause), output(2), resubmit(None, 1)],
    );
    let with = bench.bridge.matching(&[("reg0", 6)]);
    bench.bridge.add(1, 1, with.clone(), vec![output(3)]);
    assert_eq!(bench.ports(&[]), [0]);
    let event = bench.bridge.packet_ins.lock().unwrap()[0].clone();
    assert_eq!(event.packet.fields.term(bench.bridge.field("reg0")), None, "told as a part of xreg0");
    let start = bench.bridge.pending().resume(1, &event.packet.continuation.unwrap(), &with).unwrap();
    let left = bench.send_from(&[], start);
    assert!(matches!(&left[..], [Left::Port(2, ..), Left::Port(3, ..)]), "{left:?}");
}

#[test]
fn a_ttl_that_is_over_goes_to_controllers() {
    let mut bench = Bench::new();
    bench.bridge.add(0, 1, Match::any(), vec![output(4), header(HeaderAction::DecNwTtl), output(2)]);
    assert_eq!(bench.ports(&[("nw_ttl", 64)]), [4, 2]);
    assert_eq!(bench.mask(&[("nw_ttl", 64)]), "in_port", "the TTL makes no megaflow");
    assert_eq!(bench.ports(&[("nw_ttl", 1)]), [4, 0], "though the megaflow is cached");
    assert_eq!(bench.ports(&[("nw_ttl", 2)]), [4, 2]);
    let events = bench.bridge.packet_ins.lock().unwrap();
    assert_eq!(events[0].packet.reason, crate::controllers::packet_in_reason::INVALID_TTL);
}

#[test]
fn masks_have_what_decided_and_no_more() {
    let bench = Bench::new();
    let (dst, src) = (bench.part("tcp_dst"), bench.part("tcp_src"));
    let apply = vec![bench.set("metadata", 3), Action::Move { from: src, to: dst }, resubmit(None, 1)];
    let tcp = bench.bridge.matching(&[("eth_type", 0x800), ("ip_proto", 6)]);
    bench.bridge.add(0, 1, tcp, apply);
    let matching = bench.bridge.matching(&[("metadata", 3), ("tcp_dst", 80)]);
    bench.bridge.add(1, 1, matching, vec![output(2)]);
    // The destination port was overwritten with the source port; the metadata field is a constant.
    let mask = bench.mask(&[("tcp_src", 80)]);
    // Of a first fragment the source port is hidden.
    assert_eq!(mask, "in_port,eth_type,ip_proto,nw_frag,tcp_src");
}

#[test]
fn a_megaflow_is_for_frames_of_lengths_that_decide_alike() {
    let mut bench = Bench::new();
    bench.pipeline.set_use(abi::flows::CacheUse::Always);
    let to = Subfield { bits: 1, ..bench.part("reg1") };
    bench.bridge.add(0, 1, Match::any(), vec![Action::CheckPacketLarger { bytes: 100, to }, resubmit(None, 1)]);
    let larger = bench.bridge.matching(&[("reg1", 1)]);
    bench.bridge.add(1, 2, larger, vec![output(2)]);
    bench.bridge.add(1, 1, Match::any(), vec![output(3)]);
    let record = bench.record(&[]);
    let layout = Arc::clone(bench.bridge.layout());
    for bytes in (0..2000).chain((0..2000).rev()) {
        let left = pass(&mut bench.processor, &bench.program, &layout, (&record, bytes), 0, 0);
        let expected = if bytes > 100 { 2 } else { 3 };
        assert!(matches!(left[..], [Left::Port(port, ..)] if port == expected), "{bytes} bytes: {left:?}");
    }
    bench.processor.publish();
    let entries = bench.pipeline.stats()[0].1.entries;
    assert!(entries <= 32, "not one for each length: {entries}");
}

/// Regression: an action that hashes each of 65,536 links cost one step, and a flow with hundreds of them stalled a
/// worker for seconds.
#[test]
fn a_choice_among_many_links_is_paid_for() {
    let work = |algorithm, max_link: u16, argument| {
        let bench = Bench::new();
        let (hash, to) = (HashFields::EthSrc, bench.part("reg0"));
        let multipath = Action::Multipath { hash, basis: 0, algorithm, max_link, argument, to };
        bench.bridge.add(0, 1, Match::any(), vec![multipath, output(2)]);
        let record = bench.record(&[]);
        let subject = Subject { record: &record, bytes: 100, start: 0, now_us: 0, work: 4000 };
        let translation = translate(bench.pipeline.shared(), subject, &mut Arrays::default());
        (translation.work, translation.is_too_much)
    };
    let [modulo, few] = [MultipathAlgorithm::ModuloN, MultipathAlgorithm::HighestRandomWeight].map(|a| work(a, 7, 0));
    assert_eq!(few, (modulo.0 + 1, false));
    let (more, is_too_much) = work(MultipathAlgorithm::HighestRandomWeight, 8000, 0);
    assert!(more > 1000 && !is_too_much, "{more} steps");
    assert!(work(MultipathAlgorithm::HighestRandomWeight, u16::MAX, 0).1);
    assert_eq!(work(MultipathAlgorithm::IterativeHash, 7, 8).0, modulo.0 + 1);
    assert_eq!(work(MultipathAlgorithm::IterativeHash, 0, u32::MAX).0, modulo.0 + 256 / 8);
}

/// Regression: a lookup cost four steps however many masks a table had, and controllers may add as many as memory
/// permits.
#[test]
fn searches_of_many_masks_and_of_many_conjunctions_are_paid_for() {
    let work = |bench: &Bench, work| {
        let record = bench.record(&[]);
        let subject = Subject { record: &record, bytes: 100, start: 0, now_us: 0, work };
        let translation = translate(bench.pipeline.shared(), subject, &mut Arrays::default());
        (translation.work, translation.is_too_much)
    };
    let with_masks = |masks: u128| {
        let bench = Bench::new();
        for mask in 1..masks {
            let mut matching = Match::any();
            matching.add(bench.bridge.field("eth_dst"), mask, mask);
            bench.bridge.add(0, 2, matching, vec![output(3)]);
        }
        bench
    };
    let few = work(&with_masks(16), 1000);
    assert!(few.0 < 10 && !few.1, "{few:?}");
    let mut many = with_masks(3001);
    assert_eq!(work(&many, 1000), (few.0 + 3000 / 4 - 4, false));
    assert!(work(&many, 700).1);
    many.bridge.add(0, 1, Match::any(), vec![output(2)]);
    assert_eq!(many.ports(&[]), [2]);
    // Each conjunction whose clauses are all satisfied costs a lookup.
    let bench = with_masks(100);
    for (clause, term) in [(0, ("in_port", 1)), (1, ("ip_proto", 6))] {
        let actions = (0..100).map(|id| Action::Conjunction { clause, clauses: 2, id }).collect();
        bench.bridge.add(0, 5, bench.bridge.matching(&[term]), actions);
    }
    let cost = work(&bench, 10_000);
    assert!(cost.0 > 100 * 100 / 4 && !cost.1, "{cost:?}");
}

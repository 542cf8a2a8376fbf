//! A bridge with the cache against one without it: random tables, groups and packets, with random changes in
//! between.

use super::*;
use crate::flow::{Group, Meter, MeterBand};
use crate::key::low128;
use crate::testing::{Left, TestBridge, pass, program, set_validity};
use openflow::action::{
    BundleAlgorithm, Controller, HashFields, HeaderAction, Learn, LearnSpec, MultipathAlgorithm, NO_BUFFER, Source,
    Subfield, port,
};
use openflow::message::{Band, BandKind, GroupKind, Selection, meter_flag};
use openflow::{Action, Bucket, FieldId, Instructions, Match};
use random::Random;

/// Two bridges with the same tables, one with the cache.
struct Pair {
    program: ir::Program,
    bridges: [Arc<TestBridge>; 2],
    pipelines: [Arc<Pipeline>; 2],
    processors: [Processor; 2],
}

impl Pair {
    fn new() -> Pair {
        let program = program();
        let bridges = [TestBridge::new(&program), TestBridge::new(&program)];
        let pipelines = bridges.clone().map(|bridge| Pipeline::new(bridge, &program).unwrap());
        pipelines[0].set_use(CacheUse::Always);
        pipelines[1].set_use(CacheUse::Never);
        let processors = [pipelines[0].worker(0), pipelines[1].worker(0)];
        Pair { program, bridges, pipelines, processors }
    }

    fn both(&self, change: impl Fn(&TestBridge)) {
        self.bridges.iter().for_each(|bridge| change(bridge));
    }

    /// Sends a packet through both bridges, and compares the outputs.
    fn send(&mut self, record: &[u64], bytes: u32, start: [u64; 2], now_us: u64) -> Vec<Left> {
        let layout = Arc::clone(self.bridges[0].layout());
        let mut got =
            (0..2).map(|i| pass(&mut self.processors[i], &self.program, &layout, (record, bytes), start[i], now_us));
        let (with, without) = (got.next().unwrap(), got.next().unwrap());
        if with != without {
            for (pipeline, start) in self.pipelines.iter().zip(start) {
                let subject = Subject { record, bytes, start, now_us, work: crate::testing::WORK };
                eprintln!("{}", crate::trace::trace(pipeline.shared(), subject).join("\n"));
            }
        }
        assert_eq!(with, without, "the cache makes a difference");
        without
    }

    /// Compares the counters of flows, tables and groups.
    fn compare_counts(&mut self, now_us: u64) {
        self.pipelines[0].request_counts();
        self.processors[0].idle(now_us);
        let counts = |bridge: &TestBridge| {
            let tables = bridge.tables();
            let mut all = Vec::new();
            for (number, table) in tables.iter().take(6) {
                let mut flows: Vec<_> =
                    table.flows.iter().map(|f| (f.priority, f.matching.clone(), f.usage.counts())).collect();
                flows.sort();
                let lookups = [&table.lookups, &table.matches].map(|count| count.load(Ordering::Relaxed));
                all.push((number, lookups, flows));
            }
            let mut groups: Vec<_> = tables
                .groups()
                .map(|g| {
                    (g.id, g.usage.counts(), g.buckets.iter().map(|(_, usage)| usage.counts()).collect::<Vec<_>>())
                })
                .collect();
            groups.sort();
            let meters = tables.meters().map(|m| (m.id, m.usage.counts(), m.bands[0].usage.counts()));
            (all, groups, meters.collect::<Vec<_>>())
        };
        assert_eq!(counts(&self.bridges[0]), counts(&self.bridges[1]), "counts differ");
        let packet_ins = self.bridges.each_ref().map(|bridge| bridge.packet_ins.lock().unwrap().clone());
        let strip = |events: &[PacketInEvent]| -> Vec<PacketInEvent> {
            let mut events = events.to_vec();
            events.iter_mut().for_each(|event| event.packet.continuation = None);
            events
        };
        assert_eq!(strip(&packet_ins[0]), strip(&packet_ins[1]));
    }
}

fn value(random: &mut Random, name: &str, width: u32) -> u128 {
    let value = match name {
        "eth_type" => *random.pick(&[0x800, 0x800, 0x800, 0x86dd, 0x1234]),
        "ip_proto" => *random.pick(&[6, 6, 17]),
        "in_port" => u128::from(random.range(1, 4)),
        "nw_frag" => *random.pick(&[0, 0, 0, 1, 3]),
        "nw_ttl" => u128::from(random.range(1, 3)),
        "vlan_vid" => *random.pick(&[0, 0x1001, 0x1002]),
        _ => match random.below(3) {
            0 => u128::from(random.below(3)),
            1 => u128::from(random.below(4)) << (width - 2).min(60),
            _ => random.next_u128(),
        },
    };
    value & low128(width)
}

fn random_record(random: &mut Random, bridge: &TestBridge, program: &ir::Program) -> Vec<u64> {
    let layout = bridge.layout();
    let mut record = vec![0; layout.words()];
    for (id, field) in layout.fields().iter().filter(|(id, field)| !layout.is_metadata(*id) || field.name == "in_port")
    {
        layout.place(id).write(&mut record, value(random, &field.name, field.width), u128::MAX);
    }
    set_validity(layout, program, &mut record);
    record
}

/// Varies some bits of fields, so that megaflows are hit by packets other than those that made them.
fn vary(random: &mut Random, bridge: &TestBridge, program: &ir::Program, record: &[u64]) -> Vec<u64> {
    let layout = bridge.layout();
    let mut record = record.to_vec();
    for _ in 0..random.below(3) {
        let id = FieldId(random.index(layout.fields().len()) as u16);
        let field = layout.fields().get(id);
        if layout.is_metadata(id) && field.name != "in_port" {
            continue;
        }
        let new = if random.one_in(2) {
            value(random, &field.name, field.width)
        } else {
            layout.place(id).read(&record) ^ 1u128.checked_shl(random.range(0, field.width - 1)).unwrap_or(1)
        };
        layout.place(id).write(&mut record, new, u128::MAX);
    }
    set_validity(layout, program, &mut record);
    record
}

fn random_field<'a>(random: &mut Random, bridge: &'a TestBridge) -> (FieldId, &'a openflow::Field) {
    let fields = bridge.layout().fields();
    let id = FieldId(random.index(fields.len()) as u16);
    (id, fields.get(id))
}

fn random_match(random: &mut Random, bridge: &TestBridge) -> Match {
    let mut matching = Match::any();
    for _ in 0..random.below(4) {
        let (id, field) = random_field(random, bridge);
        let mask = match random.below(3) {
            0 => !low128(field.width - random.range(1, field.width)),
            1 => u128::MAX,
            _ => random.next_u128() | random.next_u128(),
        };
        matching.add(id, value(random, &field.name, field.width), mask & field.full());
    }
    matching
}

fn random_part(random: &mut Random, bridge: &TestBridge, bits: u32) -> Subfield {
    loop {
        let (field, of) = random_field(random, bridge);
        if of.width >= bits {
            return Subfield { field, offset: random.range(0, of.width - bits), bits };
        }
    }
}

fn random_actions(random: &mut Random, bridge: &TestBridge, table: u8, depth: u32) -> Vec<Action> {
    let count = random.below(5);
    (0..count).map(|_| random_action(random, bridge, table, depth)).collect()
}

fn random_action(random: &mut Random, bridge: &TestBridge, table: u8, depth: u32) -> Action {
    let bits = *random.pick(&[1, 3, 8, 12]);
    match random.below(27) {
        0..4 => {
            let ports = [1, 2, 3, 4, port::IN_PORT, port::FLOOD, port::ALL, port::CONTROLLER, port::NORMAL, 9];
            Action::Output { port: *random.pick(&ports), max_len: NO_BUFFER }
        }
        4..7 => {
            let (field, of) = random_field(random, bridge);
            let mask = if random.one_in(2) { u128::MAX } else { random.next_u128() } & of.full();
            Action::SetField { field, value: value(random, &of.name, of.width) & mask, mask }
        }
        7..9 => Action::Move { from: random_part(random, bridge, bits), to: random_part(random, bridge, bits) },
        9 => Action::StackPush(random_part(random, bridge, bits)),
        10 => Action::StackPop(random_part(random, bridge, bits)),
        11..14 => {
            let next = if random.one_in(6) { random.below(6) as u8 } else { table + 1 + random.below(2) as u8 };
            let in_port = random.one_in(3).then(|| random.range(1, 4));
            Action::Resubmit { port: in_port, table: Some(next.min(5)), with_ct: false }
        }
        14 => Action::Group(random.range(1, 4)),
        15 => Action::Header { name: HeaderAction::DecNwTtl, argument: 0 },
        16 => Action::Header { name: HeaderAction::PushVlan, argument: 0x8100 },
        17 => match random.below(3) {
            0 => Action::Header { name: HeaderAction::PopVlan, argument: 0 },
            1 => Action::Header { name: HeaderAction::PushMpls, argument: 0x800 },
            _ => Action::Exit,
        },
        18 if depth < 2 => Action::Clone(random_actions(random, bridge, table, depth + 1)),
        19 => {
            let from = random_part(random, bridge, 8);
            Action::Learn(Box::new(Learn {
                idle_timeout: 0,
                hard_timeout: 0,
                priority: 3,
                cookie: 7,
                table: 5,
                flags: 0,
                fin_idle_timeout: 0,
                fin_hard_timeout: 0,
                limit: 0,
                result: None,
                specs: vec![
                    LearnSpec::Match { to: from, from: Source::Field(from) },
                    LearnSpec::Output { from: Subfield { field: bridge.field("in_port"), offset: 0, bits: 32 } },
                ],
            }))
        }
        21 => Action::Meter(random.range(1, 3)),
        22 => Action::Multipath {
            hash: *random.pick(&[HashFields::EthSrc, HashFields::SymmetricL4, HashFields::SymmetricL3]),
            basis: 5,
            algorithm: MultipathAlgorithm::ModuloN,
            max_link: 3,
            argument: 0,
            to: random_part(random, bridge, 8),
        },
        23 => Action::Bundle {
            hash: HashFields::SymmetricL4,
            basis: 0,
            algorithm: BundleAlgorithm::HighestRandomWeight,
            members: vec![1, 2, 3],
            to: random.one_in(2).then(|| random_part(random, bridge, 16)),
        },
        24 => Action::OutputField { field: random_part(random, bridge, 3), max_len: NO_BUFFER },
        25 => Action::Controller(Controller {
            max_len: 20,
            id: 1,
            reason: 1,
            userdata: vec![1],
            pause: random.one_in(2),
            meter: random.one_in(3).then_some(1),
        }),
        26 => Action::Conjunction { clause: random.below(2) as u8, clauses: 2, id: random.below(2) as u32 },
        20 => Action::CheckPacketLarger { bytes: *random.pick(&[64, 100, 128]), to: random_part(random, bridge, 1) },
        _ => Action::WriteActions(vec![Action::Output { port: random.range(1, 4), max_len: 0 }]),
    }
}

fn random_instructions(random: &mut Random, bridge: &TestBridge, table: u8) -> Instructions {
    Instructions {
        meter: random.one_in(10).then(|| random.range(1, 3)),
        apply: random_actions(random, bridge, table, 0),
        clear: random.one_in(8),
        write: if random.one_in(4) { random_actions(random, bridge, table, 2) } else { Vec::new() },
        metadata: random.one_in(6).then(|| (random.next_u64() & 0xff, 0xff)),
        goto: (table < 4 && random.one_in(3)).then_some(table + 1),
    }
}

fn random_group(random: &mut Random, bridge: &TestBridge, id: u32) -> Arc<Group> {
    let kind = *random.pick(&[GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover]);
    let buckets = (0..random.range(1, 3))
        .map(|number| {
            let mut actions = random_actions(random, bridge, 4, 2);
            actions.retain(|action| !matches!(action, Action::Group(other) if *other <= id));
            actions.push(Action::Output { port: random.range(1, 4), max_len: 0 });
            let watch_port = random.one_in(2).then(|| random.range(1, 4));
            let watch_group = random.one_in(4).then(|| random.range(1, 4));
            (Bucket { id: number, weight: 1 + number as u16, watch_port, watch_group, actions }, Arc::default())
        })
        .collect();
    let (selection, usage) = (Selection::default(), Arc::default());
    Arc::new(Group { id, kind, buckets, selection, created_us: 0, usage, charge: Default::default() })
}

fn change(random: &mut Random, pair: &Pair) {
    let bridge = &pair.bridges[0];
    if random.one_in(8) {
        let fragments = *random.pick(&[0, 0, 1, 3]);
        pair.both(|bridge| bridge.write().set_fragments(fragments));
    }
    match random.below(8) {
        0..5 => {
            let table = random.below(6) as u8;
            let (priority, matching) = (random.below(5) as u16, random_match(random, bridge));
            let instructions = random_instructions(random, bridge, table);
            pair.both(|bridge| {
                bridge.add_with(table, priority, matching.clone(), instructions.clone());
            });
        }
        5 => {
            let table = random.below(6) as u8;
            let mut flows: Vec<_> =
                bridge.tables().table(table).flows.iter().map(|f| (f.matching.clone(), f.priority)).collect();
            flows.sort();
            if !flows.is_empty() {
                let (matching, priority) = random.pick(&flows).clone();
                pair.both(|bridge| {
                    bridge.write().remove_flow(table, &matching, priority).expect("a flow");
                });
            }
        }
        6 => {
            let id = random.range(1, 4);
            let group = random_group(random, bridge, id);
            for (i, bridge) in pair.bridges.iter().enumerate() {
                // Each bridge has its own counters.
                let buckets = group.buckets.iter().map(|(bucket, _)| (bucket.clone(), Arc::default())).collect();
                let own = Group {
                    id,
                    kind: group.kind,
                    buckets,
                    selection: group.selection.clone(),
                    created_us: i as u64,
                    usage: Arc::default(),
                    charge: Default::default(),
                };
                bridge.write().replace_group(id, Some(Arc::new(own)));
            }
        }
        _ => {
            let number = random.range(1, 4);
            let is_down = u32::from(random.one_in(2));
            let config = *random.pick(&[0, 0, crate::ports::config::NO_FWD, crate::ports::config::NO_FLOOD]);
            pair.both(|bridge| {
                let port = openflow::message::Port { number, state: is_down, config, ..Default::default() };
                bridge.write().replace_port(number, Some(port));
            });
        }
    }
}

/// Statistics of the cache, and the number of packets of the other bridge that took the plain translation.
fn round(seed: u64, changes: usize, packets: usize) -> (CacheStats, u64) {
    let mut random = Random::new(seed);
    let mut pair = Pair::new();
    for _ in 0..20 {
        change(&mut random, &pair);
    }
    for (id, kind) in [(1, BandKind::Drop), (2, BandKind::DscpRemark(1))] {
        pair.both(|bridge| {
            let band = Band { kind, rate: 200, burst: 2 };
            let bands = vec![MeterBand { band, bucket: Mutex::new((0, 0)), usage: Arc::default() }];
            let flags = meter_flag::PKTPS | meter_flag::BURST;
            let meter = Meter { id, flags, bands, created_us: 0, usage: Arc::default(), charge: Default::default() };
            bridge.write().replace_meter(id, Some(Arc::new(meter)));
        });
    }
    let mut records: Vec<Vec<u64>> = Vec::new();
    let mut now_us = 0;
    for _ in 0..changes {
        for _ in 0..packets {
            let bridge = &pair.bridges[0];
            let record = if records.is_empty() || random.one_in(4) {
                random_record(&mut random, bridge, &pair.program)
            } else {
                let from = random.pick(&records).clone();
                vary(&mut random, bridge, &pair.program, &from)
            };
            if records.len() < 200 {
                records.push(record.clone());
            }
            let start = if random.one_in(20) {
                let actions = random_actions(&mut random, &pair.bridges[0], 0, 1);
                pair.bridges
                    .each_ref()
                    .map(|bridge| bridge.pending().insert(1, actions.clone(), 2, Match::any()).unwrap())
            } else {
                [0, 0]
            };
            pair.send(&record, random.range(60, 200), start, now_us);
            now_us += random.below(2000);
            if random.one_in(10) {
                pair.processors.iter_mut().for_each(|processor| processor.idle(now_us));
            }
        }
        pair.compare_counts(now_us);
        change(&mut random, &pair);
    }
    (pair.processors[0].stats, pair.processors[1].plain.packets)
}

#[test]
fn the_cache_makes_no_difference() {
    let (mut sum, mut plain) = (CacheStats::default(), 0);
    let rounds = std::env::var("SLUICE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(60);
    for seed in 0..rounds {
        let (stats, taken) = round(seed, 12, 60);
        plain += taken;
        sum.confirmations += stats.confirmations;
        sum.exact_hits += stats.exact_hits;
        sum.megaflow_hits += stats.megaflow_hits;
        sum.misses += stats.misses;
        sum.revalidations += stats.revalidations;
    }
    assert!(sum.exact_hits > 1000 && sum.megaflow_hits > 5000 && sum.revalidations > 500, "{sum:?}");
    assert!(sum.confirmations > 100 && plain > 1000, "{sum:?}, {plain} plain translations");
}

/// A bridge whose table 0 forwards by `eth_type` and `tcp_dst`, and a worker.
fn by_port(use_: CacheUse) -> (ir::Program, Arc<TestBridge>, Processor) {
    let program = program();
    let bridge = TestBridge::new(&program);
    let to = |port| vec![Action::Output { port, max_len: 0 }];
    bridge.add(0, 1, bridge.matching(&[("eth_type", 0x800), ("ip_proto", 6), ("tcp_dst", 80)]), to(2));
    let pipeline = Pipeline::new(Arc::clone(&bridge) as Arc<dyn Control>, &program).unwrap();
    pipeline.set_use(use_);
    let processor = pipeline.worker(0);
    (program, bridge, processor)
}

#[test]
fn packets_that_do_not_come_again_make_no_megaflows_once_time_is_short() {
    let (program, bridge, mut processor) = by_port(CacheUse::Auto);
    let send = |processor: &mut Processor, dst: u128| {
        let record = bridge.record(
            &program,
            &[("in_port", 1), ("eth_type", 0x800), ("ip_proto", 6), ("ipv4_dst", dst), ("tcp_dst", 80)],
        );
        pass(processor, &program, bridge.layout(), (&record, 100), 0, 1)
    };
    // This flow makes the destination address matter.
    bridge.add(0, 2, bridge.matching(&[("eth_type", 0x800), ("ipv4_dst", 1)]), Vec::new());
    let sent = |left: &[Left]| matches!(left, [Left::Port(2, ..)]);
    // So the megaflow compares all bits of the destination, and the doorkeeper hashes them from then on.
    assert!(sent(&send(&mut processor, 0)) && processor.cache.len() == 1, "there is time at first");
    for time in [Duration::from_micros(1500), Duration::from_secs(1000)] {
        processor.admission.spend(time);
        let before = (processor.cache.len(), processor.plain.packets);
        assert!((1..30).all(|bit| sent(&send(&mut processor, 1 << bit))));
        assert_eq!((processor.cache.len(), processor.plain.packets), (before.0, before.1 + 29));
    }
    processor.admission = crate::cache::admission::Admission::default();
    processor.admission.spend(Duration::from_micros(1100));
    (0..2).for_each(|_| assert!(sent(&send(&mut processor, 1 << 20))));
    assert_eq!(processor.cache.len(), 2, "the second packet is learned");
    assert!(send(&mut processor, 1).iter().all(|left| !matches!(left, Left::Port(..))));
}

#[test]
fn changes_of_other_packets_flows_leave_megaflows_alone() {
    let (program, bridge, mut processor) = by_port(CacheUse::Always);
    let fields = [("in_port", 1), ("eth_type", 0x800), ("ip_proto", 6), ("tcp_dst", 80)];
    let record = bridge.record(&program, &fields);
    let send = |processor: &mut Processor| pass(processor, &program, bridge.layout(), (&record, 100), 0, 1);
    (0..2).for_each(|_| drop(send(&mut processor)));
    for port in 0..10_000 {
        bridge.add(
            0,
            5,
            bridge.matching(&[("eth_type", 0x800), ("ip_proto", 6), ("tcp_dst", 1000 + port)]),
            Vec::new(),
        );
        if port % 3000 == 0 {
            assert!(matches!(send(&mut processor)[..], [Left::Port(2, ..)]));
        }
    }
    assert_eq!((processor.stats.misses, processor.stats.revalidations), (1, 0));
    (1..4).for_each(|i| processor.idle(i * FLUSH_US));
    assert_eq!((processor.stats.confirmations, processor.stats.revalidations), (5, 0), "four packets and the sweep");
    bridge.add(0, 6, bridge.matching(&[("eth_type", 0x800)]), vec![Action::Output { port: 3, max_len: 0 }]);
    assert!(matches!(send(&mut processor)[..], [Left::Port(3, ..)]), "a change of its own");
}

#[test]
fn counts_come_when_they_are_asked_for_or_after_a_while() {
    let program = program();
    let bridge = TestBridge::new(&program);
    let flow = bridge.add(0, 1, Match::any(), vec![Action::Output { port: 2, max_len: 0 }]);
    let pipeline = Pipeline::new(Arc::clone(&bridge) as Arc<dyn Control>, &program).unwrap();
    pipeline.set_use(CacheUse::Always);
    let mut processor = pipeline.worker(0);
    let record = bridge.record(&program, &[("in_port", 1)]);
    let send = |processor: &mut Processor, now_us| {
        pass(processor, &program, bridge.layout(), (&record, 100), 0, now_us);
    };
    (0..10).for_each(|_| send(&mut processor, 1000));
    assert_eq!(flow.usage.counts(), (1, 100), "the first one was translated");
    let request = pipeline.request_counts();
    assert!(!pipeline.is_synced(request));
    processor.idle(1001);
    assert!(pipeline.is_synced(request));
    assert_eq!(flow.usage.counts(), (10, 1000));
    send(&mut processor, 2000);
    processor.idle(2000 + FLUSH_US);
    assert_eq!((flow.usage.counts().0, flow.usage.used_us()), (11, 2000));
    // Idle megaflows are removed.
    let mut now_us = 2000 + IDLE_US;
    for _ in 0..4 {
        processor.idle(now_us);
        now_us += FLUSH_US;
    }
    assert_eq!(processor.cache.len(), 0);
    send(&mut processor, now_us);
    send(&mut processor, now_us);
    drop(processor);
    assert_eq!(flow.usage.counts().0, 13, "what is held back is added when a worker ends");
}

#[test]
fn outdated_megaflows_are_translated_again_in_the_background() {
    let program = program();
    let bridge = TestBridge::new(&program);
    bridge.add(0, 1, Match::any(), vec![Action::Output { port: 2, max_len: 0 }]);
    let pipeline = Pipeline::new(Arc::clone(&bridge) as Arc<dyn Control>, &program).unwrap();
    pipeline.set_use(CacheUse::Always);
    let mut processor = pipeline.worker(0);
    let record = bridge.record(&program, &[("in_port", 1)]);
    let send = |processor: &mut Processor| pass(processor, &program, bridge.layout(), (&record, 100), 0, 0);
    assert!(matches!(send(&mut processor)[..], [Left::Port(2, ..)]));
    bridge.add(0, 2, Match::any(), vec![Action::Output { port: 3, max_len: 0 }]);
    (1..4).for_each(|i| processor.idle(i * FLUSH_US));
    let misses = processor.stats.misses;
    assert!(matches!(send(&mut processor)[..], [Left::Port(3, ..)]));
    assert_eq!((processor.stats.misses, processor.stats.revalidations), (misses, 1));
    // A flow with a narrower match than the megaflow invalidates it.
    let tcp = bridge.matching(&[("eth_type", 0x800)]);
    bridge.add(0, 3, tcp, vec![Action::Output { port: 4, max_len: 0 }]);
    (4..8).for_each(|i| processor.idle(i * FLUSH_US));
    assert_eq!(processor.cache.len(), 0);
}

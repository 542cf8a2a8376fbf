//! OpenFlow bridges over `openflow.p4` with generated flows and frames. While flows, groups and frames change,
//! machine code with the flow cache must send the same frames and count the same as the interpreter without one.
//! `SLUICE_ROUNDS` sets the number of bridges.

use bridge::processor::Pipeline;
use bridge::translate::Control;
use bridge::{Bridge, BridgeOptions, Host, Origin};
use datapath::engine::{KEPT_UNITS, OWN_STEPS, UNIT_STEPS, WORK_MAX};
use datapath::{CacheUse, CodeOptions, EngineKind, Local, Sent, load_bridge};
use frontend::{Input, Until};
use openflow::action::{HeaderAction, Subfield, port};
use openflow::message::{
    FlowCommand, FlowMod, GROUP_ANY, GroupCommand, GroupKind, GroupMod, Port, PortStats, Queue, QueueStats, Selection,
    Timeouts,
};
use openflow::{Action, Bucket, Instructions, Match};
use random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames for each bridge between two changes of its flows.
const FRAMES: usize = 40;
/// Number of changes of flows.
const CHANGES: usize = 12;
/// Time without packets after which megaflows are idle, in microseconds.
const IDLE_US: u64 = 11_000_000;
/// Tables that flows use.
const TABLES: u64 = 4;
/// Ports.
const PORTS: u32 = 4;

#[derive(Default)]
struct Clock(AtomicU64);

impl Host for Clock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn inject(&self, _: Vec<u8>, _: u32, _: u64) -> Result<(), bridge::NotInjected> {
        Err(bridge::NotInjected::Failed("no packet-outs here".to_string()))
    }
    fn port_stats(&self, _: u32) -> Option<PortStats> {
        None
    }
    fn queues(&self, _: u32) -> Vec<Queue> {
        Vec::new()
    }
    fn queue_stats(&self, _: u32) -> Vec<QueueStats> {
        Vec::new()
    }
    fn set_port_config(&self, _: u32, _: u32) -> Result<(), String> {
        Ok(())
    }
    fn sync_counts(&self) {}
    fn wake(&self, _: u64) {}
}

/// A bridge with the engine that runs its packets.
struct Engine {
    name: &'static str,
    bridge: Arc<Bridge>,
    flows: Arc<Pipeline>,
    local: Local,
}

impl Engine {
    fn new(program: &Arc<ir::Program>, name: &'static str, kind: EngineKind, cache: CacheUse) -> Engine {
        let host = Arc::new(Clock::default());
        let bridge = Arc::new(Bridge::new(program, host, BridgeOptions::default()).expect("it is made for OpenFlow"));
        for number in 1..=PORTS {
            bridge.put_port(Port { number, name: format!("p{number}"), ..Port::default() });
        }
        let flows = Pipeline::new(Arc::clone(&bridge) as Arc<dyn Control>, program).expect("its actions can be run");
        flows.set_use(cache);
        let tables = Arc::clone(&flows) as Arc<dyn abi::flows::FlowTables>;
        let pipeline = load_bridge(Arc::clone(program), kind, 1, &CodeOptions::default(), tables).expect("it loads");
        Engine { name, bridge, flows, local: Local::new(Arc::new(pipeline)) }
    }

    /// All flows with their counts.
    fn counts(&mut self) -> Vec<String> {
        self.flows.request_counts();
        self.local.idle();
        let tables = self.bridge.tables();
        let mut all = Vec::new();
        for table in 0..TABLES as u8 {
            for flow in tables.table(table).flows.iter() {
                all.push(format!("{table} {} {:?} {:?}", flow.priority, flow.matching, flow.usage.counts()));
            }
        }
        all.sort();
        all
    }
}

fn pick<'a, T>(rng: &mut Random, all: &'a [T]) -> &'a T {
    &all[rng.index(all.len())]
}

fn sum(bytes: &[u8], first: u32) -> u16 {
    let mut sum = first;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A TCP, UDP, ICMP or other payload.
fn layer4(rng: &mut Random, proto: u8, pseudo: &[u8]) -> Vec<u8> {
    let ports = [*pick(rng, &[53u16, 80, 1000, 1001]), *pick(rng, &[53u16, 80, 1000])];
    let mut bytes: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    match proto {
        6 => bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, rng.below(32) as u8, 1, 0, 0, 0, 0, 0]),
        17 => bytes.extend([0, 16, 0, 0]),
        _ => bytes = vec![*pick(rng, &[0, 8, 128, 135]), 0, 0, 0, 1, 2, 3, 4],
    }
    bytes.extend((0..8).map(|_| rng.below(256) as u8));
    let at = match proto {
        6 => 16,
        17 => 6,
        _ => 2,
    };
    let length = bytes.len() as u32;
    let first = if proto == 1 { 0 } else { u32::from(proto) + length };
    let all: Vec<u8> = pseudo.iter().filter(|_| proto != 1).chain(&bytes).copied().collect();
    let checksum = sum(&all, first);
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// A frame of one of the protocols, occasionally truncated or damaged.
fn frame(rng: &mut Random) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, rng.below(4) as u8, 2, 0, 0, 0, 1, rng.below(4) as u8];
    for _ in 0..*pick(rng, &[0, 0, 0, 1, 1, 2, 3]) {
        let tag = (rng.below(8) as u16) << 13 | *pick(rng, &[0u16, 1, 2, 100]);
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    match rng.below(5) {
        0 => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1 + rng.below(2) as u8, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
            frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, rng.below(4) as u8]);
        }
        1 => {
            let mut addresses = [0u8; 32];
            (addresses[0], addresses[16]) = (0xfd, 0xfd);
            (addresses[15], addresses[31]) = (rng.below(4) as u8, rng.below(4) as u8);
            let proto = *pick(rng, &[6, 17, 58]);
            let inner = layer4(rng, proto, &addresses);
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, inner.len() as u8, proto, *pick(rng, &[0, 1, 2, 64])]);
            frame.extend(addresses);
            frame.extend(inner);
        }
        2 if rng.below(2) == 0 => {
            for _ in 0..rng.below(2) {
                frame.extend([0x88, 0x47, 0, 1, 0, *pick(rng, &[1, 2, 64])]);
            }
            frame.extend([0x88, 0x47, 0, 1, 1, *pick(rng, &[1, 64]), 0x45, 0, 0, 20]);
        }
        _ => {
            let addresses =
                [10, 0, rng.below(2) as u8, rng.below(4) as u8, 10, 0, rng.below(2) as u8, rng.below(4) as u8];
            let proto = *pick(rng, &[1, 6, 6, 17, 17, 132]);
            let inner = layer4(rng, proto, &addresses);
            let fragment = *pick(rng, &[0u16, 0, 0, 0, 0x2000, 0x2010]);
            let mut ip = vec![0x45, rng.below(256) as u8, 0, 20 + inner.len() as u8, 0, 0];
            ip.extend(fragment.to_be_bytes());
            ip.extend([*pick(rng, &[0, 1, 2, 64]), proto, 0, 0]);
            ip.extend(addresses);
            let checksum = sum(&ip, 0);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
            frame.extend(inner);
        }
    }
    match rng.below(12) {
        0 => frame.truncate(1 + rng.index(frame.len())),
        1 => {
            let at = rng.index(frame.len());
            frame[at] ^= 1 << rng.below(8);
        }
        _ => {}
    }
    frame
}

/// A match whose fields occur together in frames.
fn matching(rng: &mut Random, bridge: &Bridge) -> Match {
    let fields = bridge.fields();
    let mut matching = Match::any();
    let mut add = |name: &str, value: u128, mask: u128| {
        let id = fields.named(name).unwrap_or_else(|| panic!("openflow.p4 declares {name}"));
        let full = fields.get(id).full();
        matching.add(id, value, mask & full);
    };
    if rng.below(3) == 0 {
        add("in_port_oxm", u128::from(1 + rng.below(u64::from(PORTS))), u128::MAX);
    }
    if rng.below(3) == 0 {
        add("eth_dst", 0x0200_0000_0000 + u128::from(rng.below(4)), u128::MAX);
    }
    match rng.below(6) {
        0 => add("vlan_vid", 0, u128::MAX),
        1 => add("vlan_vid", 0x1000, 0x1000),
        2 => add("vlan_vid", 0x1000 + u128::from(rng.below(3)), u128::MAX),
        _ => {}
    }
    match rng.below(6) {
        0 => add("eth_type", 0x0806, u128::MAX),
        1 => {
            add("eth_type", 0x86dd, u128::MAX);
            add("ipv6_dst", 0xfd << 120 | u128::from(rng.below(4)), u128::MAX << *pick(rng, &[0, 1, 64]));
        }
        2 | 3 => {
            add("eth_type", 0x0800, u128::MAX);
            let bits = *pick(rng, &[0, 1, 2, 8, 16]);
            add("ipv4_dst", 0x0a00_0000 + u128::from(rng.below(2) << 8 | rng.below(4)), u128::MAX << bits);
            if rng.below(2) == 0 {
                let (proto, port) = *pick(rng, &[(6, "tcp_dst"), (17, "udp_dst"), (6, "tcp_src")]);
                add("ip_proto", proto, u128::MAX);
                add(port, *pick(rng, &[53, 80, 1000]), u128::MAX << *pick(rng, &[0, 0, 3]));
            }
        }
        _ => {}
    }
    if rng.below(5) == 0 {
        add("metadata", u128::from(rng.below(3)), 3);
    }
    matching
}

fn actions(rng: &mut Random, bridge: &Bridge, depth: u32) -> Vec<Action> {
    let fields = bridge.fields();
    let id = |name: &str| fields.named(name).unwrap_or_else(|| panic!("openflow.p4 declares {name}"));
    let set = |name: &str, value: u128| Action::SetField { field: id(name), value, mask: fields.get(id(name)).full() };
    let whole = |name: &str, bits: u32| Subfield { field: id(name), offset: 0, bits };
    let header = |name, argument| Action::Header { name, argument };
    let mut all = Vec::new();
    for _ in 0..rng.below(4) {
        all.push(match rng.below(15) {
            0..=3 => Action::Output { port: 1 + rng.below(u64::from(PORTS)) as u32, max_len: 0 },
            4 => {
                Action::Output { port: *pick(rng, &[port::FLOOD, port::ALL, port::IN_PORT, port::NORMAL]), max_len: 0 }
            }
            5 => set("eth_dst", 0x0200_0000_0000 + u128::from(rng.below(4))),
            6 => set("eth_src", 0x0200_0000_0100 + u128::from(rng.below(4))),
            7 => header(HeaderAction::PushVlan, 0x8100),
            8 => header(HeaderAction::PopVlan, 0),
            9 => header(HeaderAction::SetVlanVid, u128::from(rng.below(3))),
            10 => header(HeaderAction::DecNwTtl, 0),
            11 => Action::Move { from: whole("eth_src", 32), to: whole("reg1", 32) },
            12 if depth < 2 => Action::Clone(actions(rng, bridge, depth + 1)),
            13 => Action::Group(1 + rng.below(3) as u32),
            14 => Action::OutputTruncated { port: 1 + rng.below(u64::from(PORTS)) as u32, max_len: 20 },
            _ => Action::Resubmit { port: None, table: Some(1 + rng.below(TABLES - 1) as u8), with_ct: false },
        });
    }
    all
}

fn flow_mod(rng: &mut Random, bridge: &Bridge) -> FlowMod {
    let table = rng.below(TABLES) as u8;
    let matching = matching(rng, bridge);
    let mut apply = actions(rng, bridge, 0);
    let named = |name: &str| matching.term(bridge.fields().named(name).expect("it is declared")).map(|term| term.value);
    let mut set = |name: &str, value: u128| {
        let field = bridge.fields().named(name).expect("it is declared");
        apply.insert(0, Action::SetField { field, value, mask: bridge.fields().get(field).full() });
    };
    if named("eth_type") == Some(0x0800) && rng.below(2) == 0 {
        match rng.below(3) {
            0 => set("ipv4_dst", 0x0a00_0100 + u128::from(rng.below(4))),
            1 => set("ip_dscp", u128::from(rng.below(64))),
            _ if named("ip_proto") == Some(6) => set("tcp_dst", 80),
            _ => set("ipv4_src", 0x0a00_0100 + u128::from(rng.below(4))),
        }
    }
    let goto = (rng.below(2) == 0 && u64::from(table) + 1 < TABLES)
        .then(|| table + 1 + rng.below(TABLES - 1 - u64::from(table)) as u8);
    FlowMod {
        command: *pick(
            rng,
            &[FlowCommand::Add, FlowCommand::Add, FlowCommand::Add, FlowCommand::Modify, FlowCommand::DeleteStrict],
        ),
        table,
        matching,
        priority: rng.below(4) as u16,
        cookie: 0,
        cookie_mask: 0,
        timeouts: Timeouts::default(),
        buffer: u32::MAX,
        out_port: port::ANY,
        out_group: GROUP_ANY,
        flags: 0,
        importance: 0,
        instructions: Instructions {
            apply,
            write: if rng.below(4) == 0 {
                vec![Action::Output { port: 1 + rng.below(4) as u32, max_len: 0 }]
            } else {
                Vec::new()
            },
            metadata: (rng.below(3) == 0).then(|| (rng.below(3), 3)),
            goto,
            ..Instructions::default()
        },
    }
}

fn group_mod(rng: &mut Random, id: u32, command: GroupCommand) -> GroupMod {
    let kind = *pick(rng, &[GroupKind::All, GroupKind::Select]);
    let bucket = |id| Bucket {
        id,
        weight: if kind == GroupKind::Select { 1 + id as u16 } else { 0 },
        watch_port: None,
        watch_group: None,
        actions: vec![Action::Output { port: 1 + (id + id % 2) % PORTS, max_len: 0 }],
    };
    GroupMod {
        command,
        group: id,
        kind,
        buckets: (0..1 + rng.below(3) as u32).map(bucket).collect(),
        selection: Selection::default(),
    }
}

fn program() -> Arc<ir::Program> {
    let input = Input::Text { name: "openflow.p4", text: bridge::PROTOCOLS };
    let compiled = frontend::compile(input, &frontend::Options::default(), Until::Ir).expect("it is text");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    Arc::new(compiled.optimised.expect("it has a main"))
}

fn by_port(sent: Vec<Sent>) -> Vec<Vec<Vec<u8>>> {
    let mut ports = vec![Vec::new(); PORTS as usize + 1];
    sent.into_iter().for_each(|sent| ports[sent.port as usize].push(sent.bytes));
    ports
}

#[test]
fn machine_code_and_the_cache_do_what_the_interpreter_does() {
    let rounds = std::env::var("SLUICE_ROUNDS").map_or(6, |rounds| rounds.parse().expect("SLUICE_ROUNDS is a number"));
    let program = program();
    let (mut sent, mut cached, mut known, mut accepted) = (0, 0, 0, 0);
    for seed in 0..rounds {
        let mut rng = Random::new(seed);
        let mut engines = [
            Engine::new(&program, "interpreted", EngineKind::Interpreter, CacheUse::Never),
            Engine::new(&program, "compiled", EngineKind::Machine, CacheUse::Never),
            Engine::new(&program, "compiled, cached", EngineKind::Machine, CacheUse::Always),
        ];
        for id in 1..=3 {
            let request = group_mod(&mut rng, id, GroupCommand::Add);
            engines.iter().for_each(|e| e.bridge.group_mod(&request, &Origin::SWITCH).expect("a new group"));
        }
        for change in 0..CHANGES {
            for _ in 0..if change == 0 { 24 } else { 1 + rng.below(3) } {
                let request = flow_mod(&mut rng, &engines[0].bridge);
                let done = engines.each_ref().map(|e| e.bridge.flow_mod(&request, &Origin::SWITCH).is_ok());
                assert!(done.iter().all(|ok| *ok == done[0]));
                accepted += u32::from(done[0]);
            }
            if rng.below(4) == 0 {
                let request = group_mod(&mut rng, 1 + (change % 3) as u32, GroupCommand::Modify);
                engines.iter().for_each(|e| e.bridge.group_mod(&request, &Origin::SWITCH).expect("the group is there"));
            }
            // Few distinct frames, so that some recur, in bursts.
            let few: Vec<Vec<u8>> = (0..8).map(|_| frame(&mut rng)).collect();
            for burst in 0..FRAMES / 4 {
                if rng.below(12) == 0 {
                    // Megaflows expire after being idle this long, although the flows they depend on have not
                    // changed.
                    engines.iter_mut().for_each(|e| {
                        e.local.advance_us(IDLE_US);
                        e.local.idle();
                    });
                }
                let port = 1 + rng.below(u64::from(PORTS)) as u32;
                let frames: Vec<&[u8]> = (0..4).map(|_| pick(&mut rng, &few).as_slice()).collect();
                let got = engines.each_mut().map(|e| {
                    e.local.advance_us(1000);
                    by_port(e.local.receive_batch(port, &frames).expect("they are short"))
                });
                sent += got[0].iter().map(Vec::len).sum::<usize>();
                for (engine, of_it) in engines.iter().zip(&got) {
                    // Cached frames leave at once, so the others go in smaller batches: frames that need a second
                    // pass leave behind fewer others.
                    let [mut of_it, mut wanted] = [of_it.clone(), got[0].clone()];
                    if engine.name.contains("cached") {
                        [&mut of_it, &mut wanted].into_iter().flatten().for_each(|sent| sent.sort());
                    }
                    assert_eq!(
                        of_it, wanted,
                        "seed {seed}, change {change}, burst {burst}, port {port}: {} sends {frames:02x?}",
                        engine.name
                    );
                }
            }
            let counts = engines.each_mut().map(Engine::counts);
            for (engine, counts_of) in engines.iter().zip(&counts) {
                assert_eq!(counts_of, &counts[0], "seed {seed}, change {change}: {}", engine.name);
            }
        }
        cached += engines[2].flows.stats().iter().map(|(_, stats)| stats.exact_hits + stats.megaflow_hits).sum::<u64>();
        known += engines[2].flows.stats().iter().map(|(_, stats)| stats.frame_hits).sum::<u64>();
    }
    assert!(
        sent > 100 * rounds as usize && cached > 100 * rounds && known > 10 * rounds && accepted > 20 * rounds as u32,
        "{sent} {cached} {known} {accepted}"
    );
}

/// Frames of flows that come once, beside others: what needs no megaflow is decided by its shape, without the parser.
#[test]
fn frames_of_new_flows_are_treated_as_the_interpreter_treats_them() {
    let rounds = std::env::var("SLUICE_ROUNDS").map_or(4, |rounds| rounds.parse().expect("SLUICE_ROUNDS is a number"));
    let program = program();
    let (mut sent, mut plain, mut known) = (0, 0, 0);
    for seed in 0..rounds {
        let mut rng = Random::stream(seed, 1);
        let mut engines = [
            Engine::new(&program, "interpreted", EngineKind::Interpreter, CacheUse::Never),
            Engine::new(&program, "compiled, cached as it pays", EngineKind::Machine, CacheUse::Auto),
        ];
        for change in 0..CHANGES {
            for _ in 0..if change == 0 { 40 } else { 1 + rng.below(3) } {
                // Flows that need no megaflow to be cheap: they write and send.
                let mut request = flow_mod(&mut rng, &engines[0].bridge);
                let is_plain = |action: &Action| match action {
                    Action::Output { port, .. } => *port <= PORTS,
                    Action::SetField { .. } => true,
                    _ => false,
                };
                request.instructions.apply.retain(is_plain);
                request.instructions.write.clear();
                let done = engines.each_ref().map(|e| e.bridge.flow_mod(&request, &Origin::SWITCH).is_ok());
                assert_eq!(done[0], done[1]);
            }
            let few: Vec<Vec<u8>> = (0..4).map(|_| frame(&mut rng)).collect();
            for burst in 0..FRAMES {
                let port = 1 + rng.below(2) as u32;
                let mut frames: Vec<Vec<u8>> = (0..32).map(|_| pick(&mut rng, &few).clone()).collect();
                for new in frames.iter_mut().skip(8) {
                    *new = frame(&mut rng);
                    for _ in 0..8 {
                        let at = rng.index(new.len());
                        new[at] = rng.next_u64() as u8;
                    }
                }
                let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                let [wanted, got] = engines.each_mut().map(|e| {
                    e.local.advance_us(1000);
                    let mut sent = by_port(e.local.receive_batch(port, &frames).expect("they are short"));
                    // Known frames leave before others.
                    sent.iter_mut().for_each(|sent| sent.sort());
                    sent
                });
                sent += got.iter().map(Vec::len).sum::<usize>();
                assert_eq!(got, wanted, "seed {seed}, change {change}, burst {burst}, port {port}: {frames:02x?}");
            }
            let counts = engines.each_mut().map(Engine::counts);
            assert_eq!(counts[1], counts[0], "seed {seed}, change {change}");
        }
        let stats = engines[1].flows.stats()[0].1;
        plain += stats.plain;
        known += stats.frame_hits;
    }
    println!("{sent} sent, {plain} decided by their shapes, {known} known");
    assert!(sent > 1000 * rounds as usize && plain > 10 * rounds && known > 100 * rounds, "{sent} {plain} {known}");
}

#[test]
fn packets_that_come_after_their_megaflow_has_ended_are_counted() {
    let mut engine = Engine::new(&program(), "compiled, cached", EngineKind::Machine, CacheUse::Always);
    let apply = vec![Action::Output { port: 2, max_len: 0 }];
    let request = FlowMod {
        command: FlowCommand::Add,
        table: 0,
        matching: Match::any(),
        priority: 1,
        cookie: 0,
        cookie_mask: 0,
        timeouts: Timeouts::default(),
        buffer: u32::MAX,
        out_port: port::ANY,
        out_group: GROUP_ANY,
        flags: 0,
        importance: 0,
        instructions: Instructions { apply, ..Instructions::default() },
    };
    engine.bridge.flow_mod(&request, &Origin::SWITCH).expect("a flow");
    let send = |engine: &mut Engine| {
        engine.local.advance_us(100_000);
        engine.local.receive_batch(1, &[&[2; 60]]).expect("it is short");
        engine.local.idle();
    };
    (0..6).for_each(|_| send(&mut engine));
    let known = engine.flows.stats()[0].1;
    assert!(known.frame_hits > 0 && known.entries == 1, "{known:?}");
    engine.local.advance_us(IDLE_US);
    engine.local.idle();
    (0..6).for_each(|_| send(&mut engine));
    let tables = engine.bridge.tables();
    let counts = tables.table(0).flows.iter().next().expect("the flow").usage.counts();
    assert_eq!(counts, (12, 12 * 60));
}

/// A frame for one of a few receivers.
fn frame_to(last: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, last, 2, 0, 0, 0, 1, 0, 0x12, 0x34];
    frame.extend([0; 50]);
    frame
}

/// Adds a flow that applies actions to frames for a receiver.
fn add_flow(bridge: &Bridge, last: u8, apply: Vec<Action>) {
    let id = bridge.fields().named("eth_dst").expect("it is declared");
    let mut matching = Match::any();
    matching.add(id, 0x0200_0000_0000 + u128::from(last), bridge.fields().get(id).full());
    let request = FlowMod {
        command: FlowCommand::Add,
        table: 0,
        matching,
        priority: 1,
        cookie: 0,
        cookie_mask: 0,
        timeouts: Timeouts::default(),
        buffer: u32::MAX,
        out_port: port::ANY,
        out_group: GROUP_ANY,
        flags: 0,
        importance: 0,
        instructions: Instructions { apply, ..Instructions::default() },
    };
    bridge.flow_mod(&request, &Origin::SWITCH).expect("it can be added");
}

/// Adds a group that sends copies to the ports in turn.
fn add_flood(bridge: &Bridge, group: u32, outputs: u32) {
    let to = |id: u32| vec![Action::Output { port: 2 + id % (PORTS - 1), max_len: 0 }];
    let bucket = |id| Bucket { id, weight: 0, watch_port: None, watch_group: None, actions: to(id) };
    let request = GroupMod {
        command: GroupCommand::Add,
        group,
        kind: GroupKind::All,
        buckets: (0..outputs).map(bucket).collect(),
        selection: Selection::default(),
    };
    bridge.group_mod(&request, &Origin::SWITCH).expect("a new group");
}

#[test]
fn packets_that_a_cache_knows_between_others_leave_those_behind_their_copies() {
    const PAIRS: usize = 31;
    let program = program();
    for cache in [CacheUse::Never, CacheUse::Always] {
        let mut engine = Engine::new(&program, "compiled", EngineKind::Machine, cache);
        add_flood(&engine.bridge, 1, 2000);
        add_flood(&engine.bridge, 2, KEPT_UNITS);
        add_flow(&engine.bridge, 1, vec![Action::Group(1)]);
        add_flow(&engine.bridge, 2, vec![Action::Group(2)]);
        add_flow(&engine.bridge, 3, vec![Action::Output { port: 3, max_len: 0 }]);
        let [many, few, one] = [1, 2, 3].map(frame_to);
        // From here on a cache knows it.
        (0..4).for_each(|_| drop(engine.local.receive_batch(1, &[&one]).expect("it is short")));
        let mut burst = [many.as_slice(), &one].repeat(PAIRS);
        burst.push(&few);
        let sent = engine.local.receive_batch(1, &burst).expect("they are short");
        let of = |frame: &[u8]| sent.iter().filter(|sent| sent.bytes == frame).count();
        assert_eq!((of(&few), of(&one)), (KEPT_UNITS as usize, PAIRS), "{cache:?}");
        assert!(of(&many) <= WORK_MAX as usize, "{cache:?}");
    }
}

#[test]
fn a_burst_to_a_group_of_many_outputs_costs_no_more_than_it_may_and_leaves_others_their_copies() {
    const BURST: u32 = 64;
    let program = program();
    for cache in [CacheUse::Never, CacheUse::Always] {
        let mut engine = Engine::new(&program, "compiled", EngineKind::Machine, cache);
        add_flood(&engine.bridge, 1, 2000);
        add_flood(&engine.bridge, 2, KEPT_UNITS);
        add_flow(&engine.bridge, 1, vec![Action::Group(1)]);
        add_flow(&engine.bridge, 2, vec![Action::Group(2)]);
        add_flow(&engine.bridge, 3, vec![Action::Output { port: 3, max_len: 0 }]);
        let [many, few, one] = [1, 2, 3].map(frame_to);
        // All but the last two go to the large group.
        let mut burst = vec![many.as_slice(); BURST as usize];
        burst[BURST as usize - 2] = &few;
        burst[BURST as usize - 1] = &one;
        let sent = engine.local.receive_batch(1, &burst).expect("they are short");
        let of = |frame: &[u8]| sent.iter().filter(|sent| sent.bytes == frame).count() as u32;
        assert_eq!((of(&few), of(&one)), (KEPT_UNITS, 1), "{cache:?}: others' packets leave, all of them");
        let copies = of(&many);
        assert!((2000..=WORK_MAX).contains(&copies), "{cache:?}: {copies}, the first packet has all of its copies");
        // Every bucket that a packet goes through counts it, whether or not the packet was translated for it.
        engine.counts();
        let buckets: u64 = {
            let tables = engine.bridge.tables();
            let group = tables.group(1).expect("it was added");
            group.buckets.iter().map(|(_, usage)| usage.counts().0).sum()
        };
        if cache == CacheUse::Never {
            let steps = u64::from(BURST * OWN_STEPS + WORK_MAX * UNIT_STEPS);
            assert!(buckets > 2000 && buckets * 4 < steps, "{buckets} buckets, each of four steps at least");
        }
        let pipeline = engine.local.pipeline();
        let drops = pipeline.drops(0).read(pipeline.program());
        let dropped = |name: &str| drops.iter().find(|(of, _)| of == name).expect("it is a reason").1;
        let refused = dropped("flow work limit");
        assert!(refused > 0 && refused < u64::from(BURST), "{cache:?}: {refused} packets without work left for them");
        // The next burst has a budget of its own.
        let sent = engine.local.receive_batch(1, &[&many]).expect("it is short");
        assert_eq!(sent.len(), 2000, "{cache:?}");
    }
}

#[test]
fn a_large_group_that_is_alone_in_its_burst_gets_most_of_its_copies_and_an_ordinary_one_all() {
    let program = program();
    let mut engine = Engine::new(&program, "compiled", EngineKind::Machine, CacheUse::Never);
    add_flood(&engine.bridge, 1, 4096);
    add_flood(&engine.bridge, 2, 64);
    add_flow(&engine.bridge, 1, vec![Action::Group(1)]);
    add_flow(&engine.bridge, 2, vec![Action::Group(2)]);
    let [many, few] = [1, 2].map(frame_to);
    let sent = engine.local.receive_batch(1, &[&many]).expect("it is short").len();
    assert!((2048..4096).contains(&sent), "{sent}");
    // Its path is paid from the same budget as its copies: units spent on it are missing for copies, and counted.
    let lost = |engine: &Engine| {
        let pipeline = engine.local.pipeline();
        let drops = pipeline.drops(0).read(pipeline.program());
        drops.iter().find(|(of, _)| of == "replication limit").expect("it is a reason").1 as usize
    };
    assert_eq!(sent + lost(&engine), 4096);
    let before = lost(&engine);
    // As many output ports as packets in the burst.
    let sent = engine.local.receive_batch(1, &[few.as_slice(); 64]).expect("they are short").len();
    assert_eq!((sent, lost(&engine)), (64 * 64, before));
}

//! The flow cache of a program with tables against the interpreter and against the pipeline without it: frames,
//! counters, hits and misses, with changes of everything in between. `SLUICE_ROUNDS` sets the number of rounds.

use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::{ExternId, TableId};
use datapath::replication::{CloneSession, Replica};
use datapath::{CacheUse, EngineKind, Local, Pipeline};
use frontend::{Input, Options, Until};
use ir::{ExternKind, Program};
use random::Random;
use std::sync::Arc;

const PROGRAM: &str = r#"
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> etype; }
header vlan_t { bit<3> pcp; bit<1> dei; bit<12> vid; bit<16> etype; }
header ipv4_t { bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<16> fragment; bit<8> ttl; bit<8> protocol;
    bit<16> checksum; bit<32> src; bit<32> dst; }
header ports_t { bit<16> src; bit<16> dst; }
struct headers { ethernet_t ethernet; vlan_t vlan; ipv4_t ipv4; ports_t ports; }
struct metadata { bit<12> vid; bit<16> hop; bit<8> class; }
parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start { pkt.extract(hdr.ethernet); transition select(hdr.ethernet.etype) { 0x8100: vlan; 0x800: ipv4; default: accept; } }
    state vlan { pkt.extract(hdr.vlan); transition select(hdr.vlan.etype) { 0x800: ipv4; default: accept; } }
    state ipv4 { pkt.extract(hdr.ipv4); transition select(hdr.ipv4.protocol) { 6: ports; 17: ports; default: accept; } }
    state ports { pkt.extract(hdr.ports); transition accept; }
}
control Check(inout headers hdr, inout metadata meta) {
    apply { verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.len, hdr.ipv4.id,
        hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16); }
}
control In(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) routes;
    direct_counter(CounterType.packets_and_bytes) rules;
    counter(16, CounterType.packets_and_bytes) classes;
    register<bit<32>>(4) seen;
    action drop() { mark_to_drop(std); }
    action admit(bit<12> vid) { meta.vid = vid; }
    action next_hop(bit<16> hop) { routes.count(); meta.hop = hop; }
    action miss() { routes.count(); }
    action rewrite(bit<48> dst, bit<9> port) { hdr.ethernet.src = hdr.ethernet.dst; hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1; std.egress_spec = port; }
    action deny() { rules.count(); mark_to_drop(std); }
    action permit(bit<8> class) { rules.count(); meta.class = class; }
    action remember() { seen.write(1, hdr.ipv4.src); }
    action tag(bit<12> vid) { hdr.vlan.setValid(); hdr.vlan.vid = vid; hdr.vlan.etype = hdr.ethernet.etype; hdr.ethernet.etype = 0x8100; }
    action untag() { hdr.ethernet.etype = hdr.vlan.etype; hdr.vlan.setInvalid(); }
    table vlans { key = { std.ingress_port: exact; hdr.vlan.isValid(): exact; hdr.vlan.vid: exact; }
        actions = { admit; drop; NoAction; } default_action = NoAction(); size = 64; }
    table routing { key = { hdr.ipv4.dst: lpm; } actions = { next_hop; miss; } default_action = miss(); counters = routes; size = 1024; }
    table hops { key = { meta.hop: exact; } actions = { rewrite; drop; } default_action = drop(); size = 64;
        implementation = action_profile(32); }
    table acl { key = { hdr.ipv4.src: ternary; hdr.ipv4.protocol: optional; hdr.ports.dst: range; }
        actions = { permit; deny; remember; NoAction; } default_action = NoAction(); counters = rules; size = 1024; }
    table egress_tags { key = { std.egress_spec: exact; meta.vid: ternary; }
        actions = { tag; untag; NoAction; } default_action = NoAction(); size = 64; }
    apply {
        vlans.apply();
        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            if (routing.apply().hit) { hops.apply(); } else { std.egress_spec = 7; }
            acl.apply();
            classes.count((bit<32>) meta.class);
        } else { std.egress_spec = (bit<9>) hdr.ethernet.dst[2:0]; }
        egress_tags.apply();
    }
}
control Out(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }
control Sum(inout headers hdr, inout metadata meta) {
    apply { update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.len, hdr.ipv4.id,
        hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16); }
}
control D(packet_out pkt, in headers hdr) {
    apply { pkt.emit(hdr.ethernet); pkt.emit(hdr.vlan); pkt.emit(hdr.ipv4); pkt.emit(hdr.ports); }
}
V1Switch(P(), Check(), In(), Out(), Sum(), D()) main;
"#;

fn compile() -> (Arc<Program>, Arc<Program>) {
    let input = Input::Text { name: "cached.p4", text: PROGRAM };
    let compiled = frontend::compile(input, &Options::default(), Until::Ir).expect("no file is read");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    (Arc::new(compiled.raw.expect("it has a main")), Arc::new(compiled.optimised.expect("it was asked for")))
}

fn load(program: &Arc<Program>, kind: EngineKind, use_: CacheUse) -> Local {
    let pipeline = datapath::load(Arc::clone(program), kind, 1).expect("a small program");
    if let Some(cache) = pipeline.flow_cache() {
        cache.set_use(use_).expect("a thread");
    }
    Local::new(Arc::new(pipeline))
}

fn rounds(of_ci: u64) -> u64 {
    std::env::var("SLUICE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(of_ci)
}

/// One of few values, so that packets and entries match.
fn value(random: &mut Random, width: u32) -> Bits {
    let few = u128::from(random.below(6));
    let value = match width {
        32 => 0x0a00_0000 | few << 8 | u128::from(random.below(4)),
        48 => 0x0200_0000_0000 | few,
        _ => few,
    };
    Bits::new(width, value)
}

fn key(random: &mut Random, width: u32, kind: MatchKind) -> KeyMatch {
    let value = value(random, width);
    let prefix = |len: u32| Bits::ones(width).shl(u64::from(width - len));
    match kind {
        MatchKind::Exact => KeyMatch::Exact(value),
        MatchKind::Lpm => {
            let prefix_len = *random.pick(&[0, 8, 20, 24, 31, 32]);
            KeyMatch::Lpm { value: value.and(&prefix(prefix_len)), prefix_len }
        }
        MatchKind::Ternary => {
            let mask =
                random.pick(&[Bits::zero(width), Bits::ones(width), Bits::new(width, 1), prefix(width / 2)]).clone();
            KeyMatch::Ternary { value: value.and(&mask), mask }
        }
        MatchKind::Optional => KeyMatch::Optional(random.one_in(2).then_some(value)),
        MatchKind::Range => {
            let high = Bits::new(width, u128::from(3 + random.below(40)));
            if value.ule(&high) {
                KeyMatch::Range { low: value, high }
            } else {
                KeyMatch::Range { low: high.clone(), high }
            }
        }
    }
}

/// A random change by the controller.
#[derive(Debug)]
enum Change {
    Insert(TableId, TableEntry),
    Modify(TableId, TableEntry),
    Delete(TableId, TableEntry),
    Default(TableId, ActionCall),
    Member(u32, ActionCall),
    CounterSet(ExternId, u64),
}

fn call(random: &mut Random, program: &Program, actions: &[ir::TableAction]) -> ActionCall {
    let action = random.index(actions.len());
    let params = &program.actions[actions[action].action.index()].params;
    let args = params.iter().map(|(_, width)| value(random, *width)).collect();
    ActionCall { action: action as u32, args }
}

fn change(random: &mut Random, program: &Program, state: &dyn abi::PipelineState) -> Change {
    let at = random.index(program.tables.len());
    let (id, table) = (TableId::from_index(at), &program.tables[at]);
    let there = state.entries(id);
    let action = |random: &mut Random| match table.implementation {
        Some(_) => EntryAction::Member(random.below(4) as u32),
        None => EntryAction::Call(call(random, program, &table.actions)),
    };
    let profile = program.externs.iter().find_map(|e| match &e.kind {
        ExternKind::ActionProfile { actions, .. } => Some(actions),
        _ => None,
    });
    let counter = program.externs.iter().position(|e| matches!(e.kind, ExternKind::Counter { direct: None, .. }));
    match random.below(10) {
        0 if !there.is_empty() => Change::Delete(id, random.pick(&there).entry.clone()),
        1 if !there.is_empty() => {
            let entry = random.pick(&there).entry.clone();
            Change::Modify(id, TableEntry { action: action(random), ..entry })
        }
        2 if table.implementation.is_none() => Change::Default(id, call(random, program, &table.actions)),
        3 => Change::Member(random.below(4) as u32, call(random, program, profile.expect("there is one"))),
        4 => Change::CounterSet(ExternId::from_index(counter.expect("there is one")), random.below(16)),
        _ => {
            let has_priorities = table.keys.iter().any(|key| key.kind.needs_priority());
            let entry = TableEntry {
                key: table.keys.iter().map(|k| key(random, k.width, k.kind)).collect(),
                priority: if has_priorities { 1 + random.below(8) as i32 } else { 0 },
                action: action(random),
                idle_timeout_ns: 0,
            };
            Change::Insert(id, entry)
        }
    }
}

fn apply(change: &Change, pipeline: &Pipeline) -> String {
    let (state, program) = (pipeline.state(), pipeline.program());
    let profile = program.externs.iter().position(|e| matches!(e.kind, ExternKind::ActionProfile { .. }));
    let profile = ExternId::from_index(profile.expect("there is one"));
    pipeline.settle_counts();
    match change {
        Change::Insert(table, entry) => format!("{:?}", state.insert(*table, entry)),
        Change::Modify(table, entry) => format!("{:?}", state.modify(*table, entry)),
        Change::Delete(table, entry) => format!("{:?}", state.delete(*table, &entry.key, entry.priority)),
        Change::Default(table, call) => {
            format!("{:?}", state.set_default(*table, Some(&EntryAction::Call(call.clone()))))
        }
        Change::Member(member, call) => match state.member_insert(profile, *member, call, 0) {
            Ok(()) => "Ok(())".to_string(),
            Err(_) => format!("{:?}", state.member_modify(profile, *member, call)),
        },
        Change::CounterSet(counter, index) => {
            format!("{:?}", state.counter_set(*counter, *index, CounterValue { packets: 7, bytes: 70 }))
        }
    }
}

fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut put = |value: u128, bytes: usize| frame.extend_from_slice(&value.to_be_bytes()[16 - bytes..]);
    let number = |bits: Bits| bits.to_u128().expect("small");
    put(number(value(random, 48)), 6);
    put(number(value(random, 48)), 6);
    let is_ip = !random.one_in(6);
    if random.one_in(3) {
        put(0x8100, 2);
        put(u128::from(random.below(6)), 2);
    }
    put(if is_ip { 0x800 } else { 0x806 }, 2);
    if is_ip {
        let mut ip: Vec<u8> = vec![0x45, 0, 0, 40, 0, 0, 0, 0];
        ip.push(*random.pick(&[1, 2, 64, 64, 64, 63, 255]));
        ip.push(*random.pick(&[1, 6, 17, 17, 2]));
        ip.extend([0, 0]);
        for _ in 0..2 {
            ip.extend((number(value(random, 32)) as u32).to_be_bytes());
        }
        let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let mut checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        if random.one_in(8) {
            checksum ^= 0x55;
        }
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        ip.iter().for_each(|byte| put((*byte).into(), 1));
        put(u128::from(random.below(40)), 2);
        put(u128::from(random.below(40)), 2);
    }
    let payload = random.below(60) as usize;
    frame.extend(std::iter::repeat_n(0xab, payload));
    // Also frames truncated within a header.
    if random.one_in(10) {
        frame.truncate(random.below(frame.len() as u64) as usize);
    }
    frame
}

/// All counts that the control plane can read.
fn counts(local: &Local) -> Vec<String> {
    let pipeline = local.pipeline();
    let (state, program) = (pipeline.state(), pipeline.program());
    let mut all = Vec::new();
    for (i, e) in program.externs.iter().enumerate() {
        let id = ExternId::from_index(i);
        match &e.kind {
            ExternKind::Counter { direct: Some(table), .. } => {
                for read in state.entries(*table) {
                    all.push(format!(
                        "{:?}: {:?}",
                        read.entry.key,
                        state.direct_counter(id, &read.entry.key, read.entry.priority)
                    ));
                }
                all.push(format!("default: {:?}", state.direct_counter(id, &[], 0)));
            }
            ExternKind::Counter { size, .. } => {
                all.extend((0..*size).map(|cell| format!("{} {cell}: {:?}", e.name, state.counter(id, cell))));
            }
            ExternKind::Register { size, .. } => {
                all.extend((0..*size).map(|cell| format!("{} {cell}: {:?}", e.name, state.register(id, cell))));
            }
            _ => {}
        }
    }
    all.extend(pipeline.drops(0).read(program).into_iter().map(|(name, count)| format!("{name}: {count}")));
    all.sort_unstable();
    all
}

fn lookups(local: &Local) -> Vec<(String, Option<(u64, u64)>)> {
    local.pipeline().table_info().into_iter().map(|table| (table.name, table.lookups)).collect()
}

#[test]
fn packets_meet_no_stale_path_and_all_are_counted() {
    let (raw, optimised) = compile();
    let (mut hits, mut packets, mut revalidations) = (0, 0, 0);
    let mut refusals = std::collections::BTreeSet::new();
    for round in 0..rounds(6) {
        let mut random = Random::stream(21, round);
        let mut all = [
            load(&raw, EngineKind::Interpreter, CacheUse::Never),
            load(&optimised, EngineKind::Machine, CacheUse::Never),
            load(&optimised, EngineKind::Machine, CacheUse::Always),
        ];
        let mut flows: Vec<Vec<u8>> = (0..40).map(|_| frame(&mut random)).collect();
        for step in 0..250 {
            let changes = if step < 5 { 12 } else { random.below(8).saturating_sub(5) };
            for _ in 0..changes {
                let change = change(&mut random, &optimised, all[1].pipeline().state().as_ref());
                let answers = all.each_ref().map(|local| apply(&change, local.pipeline()));
                assert!(answers.iter().all(|answer| *answer == answers[0]), "{change:?}: {answers:?}");
            }
            if random.one_in(4) {
                let at = random.index(flows.len());
                flows[at] = frame(&mut random);
            }
            let port = 1 + random.below(2) as u32;
            let frames: Vec<&[u8]> = (0..1 + random.below(32)).map(|_| random.pick(&flows).as_slice()).collect();
            let sent = all.each_mut().map(|local| {
                local.advance_us(20);
                local.receive_batch(port, &frames).expect("short frames")
            });
            assert_eq!(sent[1], sent[0], "round {round}, step {step}");
            assert_eq!(sent[2], sent[0], "round {round}, step {step}: the cache says something else");
            packets += frames.len() as u64;
            all[2].pipeline().flow_cache().expect("it has one").trace_waiting();
            if random.one_in(16) {
                assert_eq!(counts(&all[2]), counts(&all[0]), "round {round}, step {step}");
            }
        }
        assert_eq!(counts(&all[2]), counts(&all[0]), "round {round}");
        assert_eq!(lookups(&all[2]), lookups(&all[1]), "round {round}");
        let cache = all[2].pipeline().flow_cache().expect("it has one");
        let stats = cache.stats()[0].1;
        hits += stats.hits;
        revalidations += stats.revalidations;
        refusals.extend(cache.refusals().into_iter().map(|(why, _)| why));
    }
    println!("{packets} packets, {hits} hits, {revalidations} traced again");
    assert!(refusals.iter().any(|why| why.contains("register")), "{refusals:?}");
    assert!(hits > packets / 4 && revalidations > 0, "{hits} hits of {packets} packets, {revalidations} traced again");
}

#[test]
fn a_cache_that_is_not_used_knows_nothing() {
    let (_, optimised) = compile();
    let mut local = load(&optimised, EngineKind::Machine, CacheUse::Never);
    let mut random = Random::new(3);
    for _ in 0..20 {
        local.receive(1, &frame(&mut random)).expect("short frames");
    }
    let cache = local.pipeline().flow_cache().expect("it has one");
    assert_eq!(cache.trace_waiting(), 0);
    assert_eq!(cache.stats()[0].1.megaflows, 0);
}

/// A packet that goes round until it may no longer, one that is forwarded and cached, and one with a clone.
#[test]
fn packets_that_the_cache_knows_leave_those_between_them_their_share_of_the_work() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/stf/v1model/limits.p4");
    let text = std::fs::read_to_string(path).expect("it is there");
    let compiled = frontend::compile(Input::Text { name: "limits.p4", text: &text }, &Options::default(), Until::Ir);
    let program = Arc::new(compiled.expect("no file is read").optimised.expect("it is right"));
    let mut both = [CacheUse::Never, CacheUse::Always].map(|use_| {
        let local = load(&program, EngineKind::Machine, use_);
        let to = |port| Replica { port, instance: 0 };
        local.replication().group_insert(1, [1, 2, 3].map(to).into()).expect("a new group");
        let session = CloneSession { replicas: vec![to(9)], ..CloneSession::default() };
        local.replication().session_insert(1, session).expect("a new session");
        local
    });
    let mut random = Random::new(4);
    let frames: Vec<[u8; 2]> = (0..12).map(|what| [what, 1 + random.below(80) as u8]).collect();
    let (endless, forwarded, cloned) = (&[2, 0], &[9, 9], &[3, 1]);
    let mut bursts: Vec<Vec<&[u8]>> = vec![vec![endless, forwarded, cloned, &[8, 8], &[4, 3]]; 2];
    bursts.extend((0..rounds(40)).map(|_| {
        // Few are endless, since each spends all that is left.
        let few = |frame: &[u8]| frame[0] != 2;
        let count = 1 + random.below(12);
        let mut burst: Vec<&[u8]> = (0..count).map(|_| random.pick(&frames).as_slice()).filter(|f| few(f)).collect();
        burst.insert(random.below(burst.len() as u64 + 1) as usize, if random.one_in(2) { endless } else { cloned });
        burst
    }));
    for burst in &bursts {
        let [without, with] = both.each_mut().map(|local| local.receive_batch(0, burst).expect("short frames"));
        assert_eq!(with, without, "{burst:?}");
        assert_eq!(counts(&both[1]), counts(&both[0]), "{burst:?}");
        both[1].pipeline().flow_cache().expect("it has one").trace_waiting();
    }
    let stats = both[1].pipeline().flow_cache().expect("it has one").stats()[0].1;
    assert!(stats.hits > 20, "{} hits", stats.hits);
}

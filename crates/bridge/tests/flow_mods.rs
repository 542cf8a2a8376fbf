//! Flow mods: a table of cases, and random ones against a list of flows.

mod common;

use bridge::tables::{limit, table_config};
use common::{bridge, by, flow_mod, flows, matching, output};
use openflow::action::{HeaderAction, port};
use openflow::message::{
    Band, BandKind, FlowCommand, FlowMod, GroupCommand, GroupKind, GroupMod, MeterCommand, MeterMod,
};
use openflow::message::{Selection, flow_flag, meter_flag};
use openflow::{Action, Bucket, ErrorKind, Instructions, Match, Version};
use random::Random;

use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
use Version::{V10, V13};

fn apply(actions: Vec<Action>) -> Instructions {
    Instructions { apply: actions, ..Instructions::default() }
}

#[test]
fn what_is_refused_and_why() {
    let (bridge, _) = bridge();
    let any = Match::any;
    let with = |instructions: Instructions| flow_mod(Add, any(), 1, instructions);
    let unknown_table = FlowMod { table: limit::TABLES, ..with(output(1)) };
    let all_tables = FlowMod { table: 255, ..with(output(1)) };
    let buffered = FlowMod { buffer: 3, ..with(output(1)) };
    let flagged = FlowMod { flags: 0x8000, ..with(output(1)) };
    let lacking = flow_mod(Add, matching(&bridge, &[("ipv4_src", 1)]), 1, output(1));
    let eth_src = bridge.fields().named("eth_src").unwrap();
    let (ip_src, proto) = (bridge.fields().named("ipv4_src").unwrap(), bridge.fields().named("ip_proto").unwrap());
    let set = |field| Action::SetField { field, value: 1, mask: 0xff };
    let conjunction = Action::Conjunction { clause: 0, clauses: 2, id: 1 };
    let header = |name| apply(vec![Action::Header { name, argument: 0 }]);
    let cases: Vec<(FlowMod, Result<(), ErrorKind>)> = vec![
        (with(output(1)), Ok(())),
        (with(output(77)), Ok(())),
        (with(output(port::NORMAL)), Ok(())),
        (with(output(0)), Err(ErrorKind::BacBadOutPort)),
        (with(output(port::ANY)), Err(ErrorKind::BacBadOutPort)),
        (with(output(port::MAX)), Err(ErrorKind::BacBadOutPort)),
        (with(apply(vec![Action::Group(9)])), Err(ErrorKind::BacBadOutGroup)),
        (with(apply(vec![Action::Clone(vec![Action::Group(9)])])), Err(ErrorKind::BacBadOutGroup)),
        (with(Instructions { meter: Some(9), ..Instructions::default() }), Err(ErrorKind::MmfcInvalidMeter)),
        (with(Instructions { goto: Some(0), ..Instructions::default() }), Err(ErrorKind::BicBadTableId)),
        (with(Instructions { goto: Some(1), ..Instructions::default() }), Ok(())),
        (with(Instructions { goto: Some(254), ..Instructions::default() }), Err(ErrorKind::BicBadTableId)),
        (with(header(HeaderAction::PopVlan)), Ok(())),
        (with(header(HeaderAction::PushPbb)), Err(ErrorKind::BacBadType)),
        (with(apply(vec![Action::Unsupported("ct")])), Err(ErrorKind::BacBadType)),
        (with(apply(vec![set(eth_src)])), Ok(())),
        (with(apply(vec![set(ip_src)])), Err(ErrorKind::BacMatchInconsistent)),
        (
            flow_mod(Add, matching(&bridge, &[("eth_type", 0x800)]), 1, apply(vec![set(proto)])),
            Err(ErrorKind::BacBadSetArgument),
        ),
        (with(apply(vec![conjunction.clone()])), Ok(())),
        (with(apply(vec![conjunction, Action::Output { port: 1, max_len: 0 }])), Err(ErrorKind::NxbacBadConjunction)),
        (unknown_table, Err(ErrorKind::FmfcBadTableId)),
        (all_tables, Err(ErrorKind::FmfcBadTableId)),
        (buffered, Err(ErrorKind::BrcBufferUnknown)),
        (flagged, Err(ErrorKind::FmfcBadFlags)),
        (lacking, Err(ErrorKind::BmcBadPrereq)),
    ];
    for (request, expected) in cases {
        let before = flows(&bridge);
        let result = bridge.flow_mod(&request, &by(V13)).map_err(|error| error.kind);
        assert_eq!(result, expected, "{request:?}");
        if expected.is_err() {
            assert_eq!(flows(&bridge), before, "{request:?}");
        }
        let _ = bridge.flow_mod(&flow_mod(Delete, any(), 0, Instructions::default()), &by(V13));
    }
}

#[test]
fn an_add_replaces_and_keeps_counts_unless_told() {
    let (bridge, host) = bridge();
    let counts = || bridge.tables().table(0).flows.iter().next().unwrap().usage.counts();
    let add = flow_mod(Add, Match::any(), 5, output(1));
    bridge.flow_mod(&add, &by(V13)).unwrap();
    bridge.tables().table(0).flows.iter().next().unwrap().usage.add(3, 180, 0);
    host.now_us.store(9, std::sync::atomic::Ordering::Relaxed);
    bridge.flow_mod(&FlowMod { cookie: 8, instructions: output(2), ..add.clone() }, &by(V13)).unwrap();
    assert_eq!(flows(&bridge), [(0, 5, 8, Some(2))]);
    assert_eq!(counts(), (3, 180));
    assert_eq!(bridge.tables().table(0).flows.iter().next().unwrap().created_us, 9);
    bridge.flow_mod(&FlowMod { flags: flow_flag::RESET_COUNTS, ..add.clone() }, &by(V13)).unwrap();
    assert_eq!(counts(), (0, 0));
    bridge.tables().table(0).flows.iter().next().unwrap().usage.add(1, 60, 0);
    bridge.flow_mod(&add, &by(V10)).unwrap();
    assert_eq!(counts(), (0, 0), "1.0 always resets");
}

#[test]
fn modifications() {
    let (bridge, _) = bridge();
    let narrow = matching(&bridge, &[("eth_type", 0x800)]);
    // In 1.3 a modification that finds nothing does nothing; in 1.0 it adds.
    bridge.flow_mod(&flow_mod(ModifyStrict, narrow.clone(), 5, output(1)), &by(V13)).unwrap();
    assert_eq!(flows(&bridge), []);
    bridge.flow_mod(&FlowMod { cookie: 4, ..flow_mod(Modify, narrow.clone(), 5, output(1)) }, &by(V10)).unwrap();
    assert_eq!(flows(&bridge), [(0, 5, 4, Some(1))]);
    bridge.flow_mod(&FlowMod { cookie: 6, ..flow_mod(Add, Match::any(), 1, output(3)) }, &by(V13)).unwrap();
    // Not strict: all within the match, whatever their priority; cookies are kept in 1.3 and changed in 1.0.
    bridge.flow_mod(&flow_mod(Modify, Match::any(), 99, output(2)), &by(V13)).unwrap();
    assert_eq!(flows(&bridge), [(0, 1, 6, Some(2)), (0, 5, 4, Some(2))]);
    bridge.flow_mod(&FlowMod { cookie: 9, ..flow_mod(Modify, narrow.clone(), 99, output(1)) }, &by(V10)).unwrap();
    assert_eq!(flows(&bridge), [(0, 1, 6, Some(2)), (0, 5, 9, Some(1))]);
    // Strict: the same match and priority.
    bridge.flow_mod(&flow_mod(ModifyStrict, narrow.clone(), 4, output(3)), &by(V13)).unwrap();
    assert_eq!(flows(&bridge), [(0, 1, 6, Some(2)), (0, 5, 9, Some(1))]);
    // By cookie.
    let by_cookie = FlowMod { cookie: 6, cookie_mask: u64::MAX, ..flow_mod(Modify, Match::any(), 0, output(3)) };
    bridge.flow_mod(&by_cookie, &by(V13)).unwrap();
    assert_eq!(flows(&bridge), [(0, 1, 6, Some(3)), (0, 5, 9, Some(1))]);
}

#[test]
fn deletions_by_table_port_group_and_cookie() {
    let (bridge, _) = bridge();
    let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions: Vec::new() };
    let group = GroupMod {
        command: GroupCommand::Add,
        group: 7,
        kind: GroupKind::All,
        buckets: vec![bucket],
        selection: Selection::default(),
    };
    bridge.group_mod(&group, &by(V13)).unwrap();
    let delete = flow_mod(Delete, Match::any(), 0, Instructions::default());
    let fill = || {
        bridge.flow_mod(&FlowMod { cookie: 1, ..flow_mod(Add, Match::any(), 1, output(1)) }, &by(V13)).unwrap();
        bridge.flow_mod(&FlowMod { cookie: 2, ..flow_mod(Add, Match::any(), 2, output(2)) }, &by(V13)).unwrap();
        let grouped = flow_mod(Add, Match::any(), 3, apply(vec![Action::Group(7)]));
        bridge.flow_mod(&FlowMod { cookie: 3, table: 4, ..grouped }, &by(V13)).unwrap();
    };
    let cases: [(FlowMod, &[u64]); 7] = [
        (FlowMod { out_port: 2, table: 255, ..delete.clone() }, &[1, 3]),
        (FlowMod { out_group: 7, table: 255, ..delete.clone() }, &[1, 2]),
        (FlowMod { table: 4, ..delete.clone() }, &[1, 2]),
        (FlowMod { table: 255, ..delete.clone() }, &[]),
        (FlowMod { table: 255, cookie: 1, cookie_mask: 1, ..delete.clone() }, &[2]),
        (FlowMod { command: DeleteStrict, priority: 2, ..delete.clone() }, &[1, 3]),
        (FlowMod { command: DeleteStrict, priority: 3, ..delete.clone() }, &[1, 2, 3]),
    ];
    for (request, left) in cases {
        fill();
        bridge.flow_mod(&request, &by(V13)).unwrap();
        let cookies: Vec<u64> = flows(&bridge).iter().map(|flow| flow.2).collect();
        assert_eq!(cookies, left, "{request:?}");
    }
}

#[test]
fn overlap_is_checked_among_flows_of_one_priority() {
    let (bridge, _) = bridge();
    let tcp = matching(&bridge, &[("eth_type", 0x800), ("ip_proto", 6)]);
    let to_ten = matching(&bridge, &[("eth_type", 0x800), ("ipv4_dst", 10)]);
    bridge.flow_mod(&flow_mod(Add, tcp, 5, output(1)), &by(V13)).unwrap();
    let checked = FlowMod { flags: flow_flag::CHECK_OVERLAP, ..flow_mod(Add, to_ten, 5, output(2)) };
    assert_eq!(bridge.flow_mod(&checked, &by(V13)).unwrap_err().kind, ErrorKind::FmfcOverlap);
    bridge.flow_mod(&FlowMod { priority: 6, ..checked.clone() }, &by(V13)).unwrap();
    bridge.flow_mod(&FlowMod { flags: 0, ..checked }, &by(V13)).unwrap();
    assert_eq!(flows(&bridge).len(), 3);
}

#[test]
fn a_flow_that_is_learned_anew_keeps_its_age() {
    let (bridge, host) = bridge();
    let learned = FlowMod { cookie: 5, ..flow_mod(Add, Match::any(), 1, output(1)) };
    let ages = |bridge: &bridge::Bridge| {
        let tables = bridge.tables();
        let flow = tables.table(0).flows.iter().next().unwrap();
        (flow.created_us, flow.modified_us)
    };
    for (now_us, request, created_us) in [
        (1, &learned, 1),
        (2_000_000, &learned, 1),
        (4_000_000, &FlowMod { cookie: 6, ..learned.clone() }, 4_000_000),
        (6_000_000, &FlowMod { instructions: output(2), ..learned.clone() }, 6_000_000),
    ] {
        host.now_us.store(now_us, std::sync::atomic::Ordering::Relaxed);
        bridge.flow_mod(request, &bridge::Origin::SWITCH).unwrap();
        assert_eq!(ages(&bridge), (created_us, now_us.cast_signed()));
    }
    // A controller's flow mod makes another flow.
    host.now_us.store(8_000_000, std::sync::atomic::Ordering::Relaxed);
    bridge.flow_mod(&FlowMod { instructions: output(2), ..learned }, &by(V13)).unwrap();
    assert_eq!(ages(&bridge), (8_000_000, 8_000_000));
}

#[test]
fn a_full_table_refuses_or_evicts() {
    let (bridge, _) = bridge();
    // The limit is too large to be reached here; eviction is not tied to it when settings say less.
    bridge.table_mod(0, table_config::EVICTION, None, &by(Version::V14)).unwrap();
    bridge.set_max_flows(0, Some(2));
    let timed = |priority: u16, importance: u16| {
        let mut request = flow_mod(Add, Match::any(), priority, output(1));
        request.importance = importance;
        request.timeouts.hard = 100;
        request
    };
    for request in [timed(1, 5), timed(2, 3), timed(3, 9)] {
        bridge.flow_mod(&request, &by(Version::V14)).unwrap();
    }
    let left: Vec<u16> = flows(&bridge).iter().map(|flow| flow.1).collect();
    assert_eq!(left, [1, 3], "the least important one made room");
    bridge.table_mod(0, 0, None, &by(Version::V14)).unwrap();
    assert_eq!(bridge.flow_mod(&timed(4, 9), &by(Version::V14)).unwrap_err().kind, ErrorKind::FmfcTableFull);
    // What replaces a flow needs no room.
    bridge.flow_mod(&timed(3, 9), &by(Version::V14)).unwrap();
}

#[test]
fn flows_go_with_their_group_and_meter() {
    let (bridge, _) = bridge();
    let meter = MeterMod {
        command: MeterCommand::Add,
        flags: meter_flag::KBPS,
        meter: 1,
        bands: vec![Band { kind: BandKind::Drop, rate: 10, burst: 0 }],
    };
    bridge.meter_mod(&meter, &by(V13)).unwrap();
    assert_eq!(bridge.meter_mod(&meter, &by(V13)).unwrap_err().kind, ErrorKind::MmfcMeterExists);
    let metered = Instructions { meter: Some(1), ..output(1) };
    bridge.flow_mod(&flow_mod(Add, Match::any(), 1, metered), &by(V13)).unwrap();
    bridge.flow_mod(&flow_mod(Add, Match::any(), 2, output(1)), &by(V13)).unwrap();
    bridge.meter_mod(&MeterMod { command: MeterCommand::Delete, ..meter.clone() }, &by(V13)).unwrap();
    assert_eq!(flows(&bridge), [(0, 2, 0, Some(1))]);
    // A drop precedence, which is 1 to 3, can be raised by 1 or 2.
    for (by_level, expected) in
        [(0, Err(ErrorKind::MmfcBadBandValue)), (2, Ok(())), (5, Err(ErrorKind::MmfcBadBandValue))]
    {
        let bands = vec![Band { kind: BandKind::DscpRemark(by_level), rate: 10, burst: 0 }];
        let remark = MeterMod { meter: 2 + u32::from(by_level), bands, ..meter.clone() };
        assert_eq!(bridge.meter_mod(&remark, &by(V13)).map_err(|error| error.kind), expected);
    }
    let unknown = MeterMod { command: MeterCommand::Modify, ..meter };
    assert_eq!(bridge.meter_mod(&unknown, &by(V13)).unwrap_err().kind, ErrorKind::MmfcUnknownMeter);
}

/// The same semantics, with a list and no index.
#[derive(Default)]
struct Model(Vec<(Match, u16, u64, u32)>);

impl Model {
    fn run(&mut self, request: &FlowMod) {
        let port = request.instructions.apply.iter().find_map(|action| match action {
            Action::Output { port, .. } => Some(*port),
            _ => None,
        });
        let new = (request.matching.clone(), request.priority, request.cookie, port.unwrap_or(0));
        let is_same = |flow: &(Match, u16, u64, u32)| flow.0 == request.matching && flow.1 == request.priority;
        let is_meant = |flow: &(Match, u16, u64, u32)| {
            let fits = match request.command {
                Modify | Delete => flow.0.is_within(&request.matching),
                _ => is_same(flow),
            };
            fits && (flow.2 ^ request.cookie) & request.cookie_mask == 0
        };
        match request.command {
            Add => {
                self.0.retain(|flow| !is_same(flow));
                self.0.push(new);
            }
            Modify | ModifyStrict => {
                let changed = self.0.iter_mut().filter(|flow| is_meant(flow));
                changed.for_each(|flow| flow.3 = new.3);
            }
            Delete | DeleteStrict => {
                let outputs =
                    |flow: &(Match, u16, u64, u32)| request.out_port == port::ANY || flow.3 == request.out_port;
                self.0.retain(|flow| !(is_meant(flow) && outputs(flow)));
            }
        }
    }
}

#[test]
fn random_flow_mods_do_what_a_list_does() {
    for seed in 0..20 {
        let (bridge, _) = bridge();
        let mut rng = Random::new(seed);
        let mut model = Model::default();
        for step in 0..400 {
            let mut wanted = Match::any();
            if rng.below(3) > 0 {
                let field = bridge.fields().named(["eth_src", "eth_dst", "reg0"][rng.below(3) as usize]).unwrap();
                wanted.add(field, u128::from(rng.below(3)), [0xff, 1][rng.below(2) as usize]);
            }
            if rng.below(3) == 0 {
                let field = bridge.fields().named("eth_type").unwrap();
                wanted.add(field, u128::from(rng.below(2)), 0xffff);
            }
            let command = [Add, Add, Add, Modify, ModifyStrict, Delete, DeleteStrict][rng.below(7) as usize];
            let mut request = flow_mod(command, wanted, rng.below(3) as u16, output(1 + rng.below(3) as u32));
            request.cookie = rng.below(4);
            if command != Add && rng.below(2) == 0 {
                request.cookie_mask = [1, 3][rng.below(2) as usize];
            }
            if matches!(command, Delete | DeleteStrict) {
                request.out_port = if rng.below(2) == 0 { port::ANY } else { 1 };
            }
            bridge.flow_mod(&request, &by(V13)).unwrap();
            model.run(&request);
            let mut expected: Vec<_> = model.0.iter().map(|flow| (flow.0.clone(), flow.1, flow.2, flow.3)).collect();
            let tables = bridge.tables();
            let mut found: Vec<_> = tables
                .table(0)
                .flows
                .iter()
                .map(|flow| {
                    let Action::Output { port, .. } = flow.instructions.apply[0] else { panic!("{flow:?}") };
                    (flow.matching.clone(), flow.priority, flow.cookie, port)
                })
                .collect();
            drop(tables);
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "seed {seed}, step {step}: {request:?}");
            assert_eq!(bridge.flow_count(), expected.len());
        }
    }
}

/// The bug: a request took the lock of the tables again before a waiting worker had woken up, for seconds.
#[test]
fn workers_read_the_tables_while_many_flows_are_deleted() {
    use std::collections::BTreeSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    const FLOWS: u64 = 10_000;
    let (bridge, _) = bridge();
    // How many different numbers of flows a worker sees while all are deleted.
    let seen_meanwhile = || {
        for address in 0..FLOWS {
            let flow = flow_mod(Add, matching(&bridge, &[("eth_src", address.into())]), 1, output(1));
            bridge.flow_mod(&flow, &by(V13)).unwrap();
        }
        let (is_over, begin) = (AtomicBool::new(false), Barrier::new(2));
        let read = || {
            begin.wait();
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                seen.insert(bridge.tables().table(0).flows.len() as u64);
            }
            seen.range(1..FLOWS).count()
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(read);
            begin.wait();
            let delete = flow_mod(Delete, Match::any(), 0, Instructions::default());
            bridge.flow_mod(&delete, &by(V13)).unwrap();
            is_over.store(true, Ordering::Relaxed);
            reader.join().unwrap()
        })
    };
    // The reader may be without a processor meanwhile.
    let most = (0..100).map(|_| seen_meanwhile()).find(|seen| *seen > 60);
    assert!(most.is_some(), "a reader hardly gets the lock");
}

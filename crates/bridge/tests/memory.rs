//! What controllers can make a bridge take of memory: flows, groups, meters, bundles, and messages that are not read.

mod common;

use common::{Controller, bridge, by, flow_mod, flows, output, told};
use openflow::message::{
    AsyncConfig, Band, BandKind, BundleControl, FlowCommand, FlowFilter, FlowMod, Framed, GROUP_ALL, GroupCommand,
    GroupKind, GroupMod, MeterCommand, MeterMod, PacketIn, Reply, Request, Selection, meter, meter_flag,
};
use openflow::{Action, Bucket, ErrorKind, Instructions, Match, Message, Version};

use Version::{V13, V14, V15};

const MB: u64 = 1 << 20;

/// Instructions of 62 KB on the wire.
fn long() -> Instructions {
    Instructions { apply: vec![Action::Output { port: 2, max_len: 0 }; 3900], ..Instructions::default() }
}

fn add(bridge: &bridge::Bridge, number: u32, instructions: Instructions) -> FlowMod {
    let matching = common::matching(bridge, &[("eth_src", number.into())]);
    flow_mod(FlowCommand::Add, matching, 1, instructions)
}

fn delete_all() -> FlowMod {
    flow_mod(FlowCommand::Delete, Match::any(), 0, Instructions::default())
}

fn group(command: GroupCommand, group: u32, buckets: u32) -> GroupMod {
    let actions = vec![Action::Output { port: 1, max_len: 0 }; 10];
    let bucket = |id| Bucket { id, weight: 0, watch_port: None, watch_group: None, actions: actions.clone() };
    let buckets = (0..buckets).map(bucket).collect();
    GroupMod { command, group, kind: GroupKind::All, buckets, selection: Selection::default() }
}

fn meter(command: MeterCommand, meter: u32) -> MeterMod {
    let bands = match command {
        MeterCommand::Delete => Vec::new(),
        _ => vec![Band { kind: BandKind::Drop, rate: 10, burst: 0 }; 8],
    };
    MeterMod { command, flags: meter_flag::KBPS, meter, bands }
}

/// Does something for 0, 1, … until it is refused: how often it was done, and the error.
fn until_refused(mut f: impl FnMut(u32) -> Result<(), openflow::Error>) -> (u32, openflow::Error) {
    (0..1_000_000).find_map(|number| f(number).err().map(|error| (number, error))).expect("nothing is refused")
}

#[test]
fn flows_groups_and_meters_are_refused_beyond_the_bound_on_memory() {
    let (bridge, _) = bridge();
    let by = by(V15);
    bridge.limit_memory(8 * MB);
    let (some, error) = until_refused(|number| bridge.flow_mod(&add(&bridge, number, long()), &by));
    assert_eq!(error.kind, ErrorKind::FmfcTableFull);
    assert!(error.text.contains("--state-memory"), "{}", error.text);
    let least = 3900 * size_of::<Action>() as u64;
    assert!(some > 0 && u64::from(some) * least <= 8 * MB && bridge.state_bytes() <= 8 * MB, "{some} flows");
    assert!(u64::from(some + 2) * least > 7 * MB, "{some} flows: the bound is not used");
    // The same for flows that packets learn.
    let learned = bridge.learn(&add(&bridge, some, long())).unwrap_err();
    assert_eq!(learned.kind, ErrorKind::FmfcTableFull);
    bridge.flow_mod(&delete_all(), &by).unwrap();
    assert_eq!(bridge.state_bytes(), 0);

    let add_group = |number| bridge.group_mod(&group(GroupCommand::Add, number, 4000), &by);
    let (some, error) = until_refused(add_group);
    assert_eq!((some > 0, error.kind), (true, ErrorKind::GmfcOutOfGroups));
    assert!(bridge.state_bytes() <= 8 * MB);
    let insert = group(GroupCommand::InsertBucket(openflow::message::bucket::FIRST), 0, 0);
    assert_eq!(
        bridge.group_mod(&insert, &by).unwrap_err().kind,
        ErrorKind::GmfcOutOfGroups,
        "both are there for a moment"
    );
    bridge.group_mod(&group(GroupCommand::Delete, GROUP_ALL, 0), &by).unwrap();
    assert_eq!(bridge.state_bytes(), 0);

    let (some, error) = until_refused(|number| bridge.meter_mod(&meter(MeterCommand::Add, number + 1), &by));
    assert_eq!((some > 0, error.kind), (true, ErrorKind::MmfcOutOfMeters));
    bridge.meter_mod(&meter(MeterCommand::Delete, meter::ALL), &by).unwrap();
    assert_eq!(bridge.state_bytes(), 0);
}

#[test]
fn a_modification_of_many_flows_that_takes_too_much_changes_none() {
    let (bridge, _) = bridge();
    let by = by(V13);
    bridge.limit_memory(8 * MB);
    (0..1000).for_each(|number| bridge.flow_mod(&add(&bridge, number, output(1)), &by).unwrap());
    let (before, bytes) = (flows(&bridge), bridge.state_bytes());
    let modify = flow_mod(FlowCommand::Modify, Match::any(), 0, long());
    assert_eq!(bridge.flow_mod(&modify, &by).unwrap_err().kind, ErrorKind::FmfcTableFull);
    assert_eq!((flows(&bridge), bridge.state_bytes()), (before, bytes));
    bridge.flow_mod(&FlowMod { instructions: output(2), ..modify }, &by).unwrap();
    assert_eq!(bridge.state_bytes(), bytes);
}

#[test]
fn flows_of_many_masks_count_for_their_subtables() {
    let (bridge, _) = bridge();
    let field = bridge.fields().named("eth_src").unwrap();
    let added = |mask: u32| {
        let mut matching = Match::any();
        matching.add(field, 0, u128::from(mask));
        let before = bridge.state_bytes();
        bridge.flow_mod(&flow_mod(FlowCommand::Add, matching, mask as u16, output(1)), &by(V13)).unwrap();
        bridge.state_bytes() - before
    };
    added(1);
    let same = {
        let before = bridge.state_bytes();
        let mut matching = Match::any();
        matching.add(field, 1, 1);
        bridge.flow_mod(&flow_mod(FlowCommand::Add, matching, 1, output(1)), &by(V13)).unwrap();
        bridge.state_bytes() - before
    };
    assert!(added(2) > 2 * same, "a mask of its own costs more than {same} bytes");
    bridge.flow_mod(&delete_all(), &by(V13)).unwrap();
    assert_eq!(bridge.state_bytes(), 0);
}

#[test]
fn a_table_that_evicts_makes_room_in_memory() {
    let (bridge, _) = bridge();
    bridge.limit_memory(MB);
    bridge.table_mod(0, bridge::tables::table_config::EVICTION, None, &by(V14)).unwrap();
    for number in 0..2000 {
        let mut request = add(&bridge, number, output(1));
        request.timeouts.idle = 100;
        request.importance = number as u16;
        bridge.flow_mod(&request, &by(V14)).unwrap();
    }
    let few = bridge.flow_count();
    assert!(few < 2000 && bridge.state_bytes() <= MB, "{few} flows");
    // A long one takes the place of many.
    bridge.flow_mod(&add(&bridge, 2000, long()), &by(V14)).unwrap();
    assert!(bridge.flow_count() < few && bridge.state_bytes() <= MB);
    bridge.limit_memory(MB / 8);
    let error = bridge.flow_mod(&add(&bridge, 2001, long()), &by(V14)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FmfcTableFull);
}

fn bundle_add(number: u32, message: Message) -> Message {
    let message = Box::new(Framed { version: V14, xid: 7, message });
    Message::BundleAdd { bundle: number, flags: 0, message }
}

#[test]
fn bundles_of_all_connections_share_a_bound_on_memory() {
    let (bridge, _) = bridge();
    bridge.limit_memory(256 * MB);
    let max = 64 * MB;
    let mut controllers: Vec<Controller> = (0..64).map(|_| Controller::new(&bridge, V14)).collect();
    let mut taken = Vec::new();
    for controller in &mut controllers {
        let before = bridge.bundle_bytes();
        let refusal = (0..100_000).find_map(|number| {
            let answers = controller.ask(bundle_add(number % 60, Message::FlowMod(add(&bridge, number, long()))));
            answers.into_iter().next()
        });
        let Some(Message::Error { kind, .. }) = refusal else { panic!("{refusal:?}") };
        assert_eq!(kind, ErrorKind::BfcMsgTooMany);
        assert!(bridge.bundle_bytes() <= max);
        taken.push(bridge.bundle_bytes() - before);
        if taken.len() == 6 {
            break;
        }
    }
    assert!(taken[0] > max / 2 - MB && taken[0] <= max / 2, "one alone gets half: {taken:?}");
    assert!(taken.iter().all(|bytes| *bytes > 0), "something is left for each: {taken:?}");
    // Others are served meanwhile, and what is committed or ends with its connection is free again.
    let last = controllers.last_mut().unwrap();
    assert_eq!(last.ask(bundle_add(1, Message::FlowMod(add(&bridge, 0, output(1))))), []);
    let commit = Message::BundleControl { bundle: 1, kind: BundleControl::CommitRequest, flags: 0 };
    let done = Message::BundleControl { bundle: 1, kind: BundleControl::CommitReply, flags: 0 };
    assert_eq!(last.ask(commit), [done]);
    controllers.clear();
    assert_eq!(bridge.bundle_bytes(), 0);
}

/// A flow is counted until the bundle that replaces it is done: until then both are there.
#[test]
fn a_bundle_cannot_make_more_than_the_bound_by_replacing_its_own_flows() {
    let (bridge, _) = bridge();
    bridge.limit_memory(32 * MB);
    let mut controller = Controller::new(&bridge, V14);
    let before = bridge.state_bytes();
    let modify = flow_mod(FlowCommand::Modify, Match::any(), 0, long());
    let adds = (0..40).map(|number| Message::FlowMod(add(&bridge, number, output(1))));
    let modifications = (0..12).map(|_| Message::FlowMod(modify.clone()));
    for message in adds.chain(modifications) {
        assert_eq!(controller.ask(bundle_add(1, message)), []);
    }
    let commit = Message::BundleControl { bundle: 1, kind: BundleControl::CommitRequest, flags: 0 };
    let answers = controller.ask(commit);
    let kinds: Vec<ErrorKind> = answers
        .iter()
        .map(|answer| match answer {
            Message::Error { kind, .. } => *kind,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [ErrorKind::FmfcTableFull, ErrorKind::BfcMsgFailed]);
    assert_eq!((bridge.flow_count(), bridge.state_bytes(), bridge.bundle_bytes()), (0, before, 0));
}

#[test]
fn a_controller_that_does_not_read_is_closed_before_it_takes_the_memory() {
    let (bridge, _) = bridge();
    bridge.limit_memory(64 * MB);
    let max = 16 * MB;
    let mut reader = Controller::new(&bridge, V14);
    let mut silent = Controller::new(&bridge, V14);
    let mut writer = Controller::new(&bridge, V14);
    for controller in [&mut reader, &mut silent] {
        let config = AsyncConfig { requestforward: [0b11, 0b11], ..AsyncConfig::default() };
        assert_eq!(controller.ask(Message::SetAsync(config)), []);
    }
    assert_eq!(writer.ask(Message::GroupMod(group(GroupCommand::Add, 1, 300))), []);
    let mut most = 0;
    let mut read = 0;
    for _ in 0..300 {
        assert_eq!(writer.ask(Message::GroupMod(group(GroupCommand::Modify, 1, 300))), []);
        most = most.max(bridge.queue_bytes());
        read += reader.read().len();
    }
    assert!(most > max / 4 && most <= max, "{most} bytes waited");
    assert_eq!(bridge.queue_bytes(), 0, "what waited for a connection that ends is gone");
    assert_eq!(read, 301, "one that reads is told everything");
    silent.connection.poll(0);
    assert_eq!(silent.connection.close_reason(), Some("it does not read what it is told"));
}

#[test]
fn removed_flows_and_packets_that_wait_for_a_controller_count() {
    let (bridge, _) = bridge();
    bridge.limit_memory(64 * MB);
    let mut silent = Controller::new(&bridge, V13);
    let mut closed = false;
    for number in 0..300 {
        bridge.flow_mod(&told(add(&bridge, number, long())), &by(V13)).unwrap();
        bridge.flow_mod(&delete_all(), &by(V13)).unwrap();
        assert!(bridge.queue_bytes() <= 16 * MB && bridge.state_bytes() <= 64 * MB);
        closed |= number > 0 && bridge.queue_bytes() == 0;
    }
    silent.connection.poll(0);
    assert!(closed && silent.connection.is_closed());

    // Packet-ins are dropped, and counted.
    bridge.limit_memory(4 * MB);
    let silent = Controller::new(&bridge, V13);
    let packet = PacketIn { frame: vec![0; 1500], reason: 1, ..PacketIn::default() };
    let event = bridge::PacketInEvent { controller: 0, max_len: 0xffff, is_miss: false, in_port: 1, packet };
    (0..1000).for_each(|_| bridge.packet_in(event.clone()));
    let dropped = bridge.connections().last().unwrap().packet_ins_dropped;
    assert!(bridge.queue_bytes() <= MB && (600..1000).contains(&dropped), "{dropped} dropped");
    assert!(!silent.connection.is_closed());
    drop(silent);
    assert_eq!(bridge.queue_bytes(), 0);
}

#[test]
fn answers_that_are_not_read_count() {
    let (bridge, _) = bridge();
    (0..20_000).for_each(|number| bridge.flow_mod(&add(&bridge, number, output(1)), &by(V13)).unwrap());
    bridge.limit_memory(4 * MB);
    let filter = FlowFilter {
        table: 0xff,
        out_port: openflow::action::port::ANY,
        out_group: u32::MAX,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::any(),
    };
    let mut controllers: Vec<Controller> = (0..8).map(|_| Controller::new(&bridge, V13)).collect();
    for controller in &mut controllers {
        controller.send(7, Message::Multipart(Request::Flow(filter.clone())));
        assert!(bridge.queue_bytes() <= MB);
    }
    let answers: Vec<Vec<Framed>> = controllers.iter_mut().map(Controller::read).collect();
    let is_error = |answers: &Vec<Framed>| {
        matches!(
            answers[..],
            [Framed { message: Message::Error { kind: ErrorKind::BrcMultipartBufferOverflow, .. }, .. }]
        )
    };
    assert!(!is_error(&answers[0]) && is_error(answers.last().unwrap()));
    assert_eq!(bridge.queue_bytes(), 0);
}

/// A controller that reads an answer slowly does not keep replaced or deleted flows in memory, and they are not counted.
#[test]
fn a_long_answer_that_is_read_slowly_holds_no_flow_group_or_meter() {
    const FLOWS: u32 = 300;
    let (bridge, _) = bridge();
    let by = by(V15);
    let all = FlowFilter {
        table: 0xff,
        out_port: openflow::action::port::ANY,
        out_group: u32::MAX,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::any(),
    };
    let fill = || {
        (0..FLOWS).for_each(|number| bridge.flow_mod(&add(&bridge, number, long()), &by).unwrap());
        (0..100).for_each(|number| bridge.group_mod(&group(GroupCommand::Add, number, 1000), &by).unwrap());
        (0..100).for_each(|number| bridge.meter_mod(&meter(MeterCommand::Add, number + 1), &by).unwrap());
    };
    fill();
    let requests = [
        Request::Flow(all),
        Request::Group { group: GROUP_ALL },
        Request::GroupDesc { group: GROUP_ALL },
        Request::MeterConfig { meter: meter::ALL },
    ];
    let mut readers: Vec<Controller> = requests.iter().map(|_| Controller::new(&bridge, V15)).collect();
    for (reader, request) in readers.iter_mut().zip(requests) {
        // The first part is in the connection's output, and nothing is read.
        reader.send(7, Message::Multipart(request));
    }
    let held: Vec<_> = {
        let tables = bridge.tables();
        tables.table(0).flows.iter().map(std::sync::Arc::downgrade).collect()
    };
    bridge.flow_mod(&flow_mod(FlowCommand::Modify, Match::any(), 0, output(2)), &by).unwrap();
    assert!(held.iter().all(|flow| flow.strong_count() == 0), "replaced flows are gone");
    bridge.flow_mod(&delete_all(), &by).unwrap();
    bridge.group_mod(&group(GroupCommand::Delete, GROUP_ALL, 0), &by).unwrap();
    bridge.meter_mod(&meter(MeterCommand::Delete, meter::ALL), &by).unwrap();
    assert_eq!(bridge.state_bytes(), 0, "nothing of what was deleted counts");
    for reader in &mut readers {
        let answers = reader.read();
        assert!(
            !answers.is_empty()
                && answers.iter().all(|answer| matches!(answer.message, Message::MultipartReply { .. }))
        );
    }
    assert_eq!(bridge.queue_bytes(), 0);
}

#[test]
fn a_long_answer_shows_each_flow_that_stays_once_and_replaced_ones_as_they_are() {
    const FLOWS: u32 = 20_000;
    let (bridge, _) = bridge();
    let by = by(V13);
    let cookie = |number: u32, cookie: u64| FlowMod { cookie, ..add(&bridge, number, output(1)) };
    (0..FLOWS).for_each(|number| bridge.flow_mod(&cookie(number, number.into()), &by).unwrap());
    let filter = FlowFilter {
        table: 0,
        out_port: openflow::action::port::ANY,
        out_group: u32::MAX,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::any(),
    };
    let mut reader = Controller::new(&bridge, V13);
    reader.send(7, Message::Multipart(Request::Flow(filter)));
    // Odd ones are replaced, some are deleted, others come.
    (1..FLOWS).step_by(2).for_each(|number| bridge.flow_mod(&cookie(number, u64::MAX), &by).unwrap());
    let deletes =
        (0..FLOWS).step_by(10).map(|number| FlowMod { command: FlowCommand::DeleteStrict, ..cookie(number, 0) });
    deletes.for_each(|request| bridge.flow_mod(&request, &by).unwrap());
    (FLOWS..2 * FLOWS).for_each(|number| bridge.flow_mod(&cookie(number, number.into()), &by).unwrap());
    let mut seen = vec![0; FLOWS as usize];
    let (mut new, mut old) = (0, 0);
    for answer in reader.read() {
        let Message::MultipartReply { reply: Reply::Flow(entries), .. } = answer.message else { panic!("{answer:?}") };
        for entry in entries {
            let number = entry.matching.terms()[0].value as usize;
            seen[number] += 1;
            new += u32::from(entry.cookie == u64::MAX);
            old += u32::from(number % 2 == 1 && entry.cookie != u64::MAX);
        }
    }
    for (number, times) in seen.iter().enumerate() {
        let stays = number % 10 != 0;
        assert!(*times == 1 || !stays && *times == 0, "flow {number} is shown {times} times");
    }
    assert!(new > 0 && old > 0, "{new} as they are, {old} were shown before they were replaced");
}

/// The finding: a flow was refused, or others were evicted, while indices that only make checks quick had the memory.
#[test]
fn indices_of_overlap_checks_are_given_up_before_a_flow_is_refused() {
    let by = by(V13);
    let fill = |checks: u32| {
        let (bridge, _) = bridge();
        bridge.limit_memory(MB);
        let add = |number: u32| {
            let matching = common::matching(&bridge, &[("eth_src", number.into()), ("eth_dst", 1)]);
            flow_mod(FlowCommand::Add, matching, 1, output(1))
        };
        (0..500).for_each(|number| bridge.flow_mod(&add(number), &by).unwrap());
        let before = bridge.state_bytes();
        let matching = common::matching(&bridge, &[("eth_dst", 1)]);
        let mut checked = flow_mod(FlowCommand::Add, matching, 1, output(1));
        checked.flags |= openflow::message::flow_flag::CHECK_OVERLAP;
        for _ in 0..checks {
            assert_eq!(bridge.flow_mod(&checked, &by).unwrap_err().kind, ErrorKind::FmfcOverlap);
        }
        let indices = bridge.state_bytes() - before;
        let (more, _) = until_refused(|number| bridge.flow_mod(&add(500 + number), &by));
        assert!(bridge.state_bytes() <= MB);
        (indices, more)
    };
    let ((none, most), (some, with_indices)) = (fill(0), fill(100));
    assert!(none == 0 && some > 500 * 48, "{some} bytes of indices");
    assert_eq!(with_indices, most, "all of the memory is for flows");
}

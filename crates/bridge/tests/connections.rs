//! Connections: hello, roles, bundles, timeouts, monitors, packet-ins, ports, and hostile input.

mod common;

use bridge::pending::Pending;
use bridge::tables::limit;
use bridge::translate::frames::Frozen;
use bridge::{Connection, ConnectionOptions, PacketInEvent};
use common::{Controller, bridge, by, flow_mod, flows, matching, output, told};
use openflow::message::{
    BundleControl, FlowCommand, FlowFilter, FlowMod, FlowMonitor, FlowUpdate, Framed, GroupCommand, GroupKind,
    GroupMod, MonitorCommand, PacketIn, PacketOut, PortMod, PortReason, RemovedReason, Reply, Request, Role,
    RoleRequest, Selection, SwitchConfig, TableFeatures, UpdateEvent, monitor_flag,
};
use openflow::wire::{self, Formats};
use openflow::{Action, Bucket, ErrorKind, Instructions, Match, Message, Version};
use random::Random;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use FlowCommand::{Add, Delete};
use Version::{V10, V13, V14, V15};

fn error_of(messages: &[Message]) -> Option<ErrorKind> {
    messages.iter().find_map(|message| match message {
        Message::Error { kind, .. } => Some(*kind),
        _ => None,
    })
}

fn role(role: Role, generation: u64) -> Message {
    Message::RoleRequest(RoleRequest { role, generation: Some(generation), short: u16::MAX })
}

#[test]
fn the_highest_common_version_is_spoken() {
    let (bridge, _) = bridge();
    for version in Version::ALL {
        let mut controller = Controller::new(&bridge, version);
        let reply = controller.ask(Message::FeaturesRequest);
        let Message::FeaturesReply(features) = &reply[0] else { panic!("{reply:?}") };
        assert_eq!((features.datapath, features.tables), (0x1234, limit::TABLES));
        assert_eq!(features.ports.len(), if version == V10 { 3 } else { 0 });
        assert_eq!(controller.ask(Message::EchoRequest(vec![1, 2])), [Message::EchoReply(vec![1, 2])]);
        assert_eq!(controller.ask(Message::BarrierRequest), [Message::BarrierReply]);
    }
    // Only 1.3 here, 1.0 and 1.4 there.
    let options = ConnectionOptions { versions: 1 << 4, ..ConnectionOptions::default() };
    let mut connection = Connection::new(Arc::clone(&bridge), options);
    let hello = Framed { version: V14, xid: 3, message: Message::Hello { versions: 1 << 1 | 1 << 5 } };
    let mut bytes = Vec::new();
    wire::write(&hello, bridge.fields(), &Formats::default(), &mut bytes).unwrap();
    connection.output().clear();
    connection.input(&bytes);
    assert!(connection.is_closed());
    let answer = wire::read(connection.output(), bridge.fields()).unwrap();
    assert!(matches!(answer.message, Message::Error { kind: ErrorKind::HfcIncompatible, .. }), "{answer:?}");
}

#[test]
fn roles_follow_generations_and_slaves_change_nothing() {
    let (bridge, _) = bridge();
    let mut first = Controller::new(&bridge, V14);
    let mut second = Controller::new(&bridge, V13);
    let reply = first.ask(role(Role::Master, 10));
    let Message::RoleReply(RoleRequest { role: Role::Master, generation: Some(10), .. }) = reply[0] else {
        panic!("{reply:?}")
    };
    assert_eq!(error_of(&second.ask(role(Role::Master, 9))), Some(ErrorKind::RrfcStale));
    assert_eq!(error_of(&second.ask(role(Role::Master, 11))), None);
    let status: Vec<Message> = first.read().into_iter().map(|framed| framed.message).collect();
    assert!(matches!(status[..], [Message::RoleStatus { role: Role::Slave, generation: 11, .. }]), "{status:?}");
    let add = Message::FlowMod(flow_mod(Add, Match::any(), 1, output(1)));
    assert_eq!(error_of(&first.ask(add.clone())), Some(ErrorKind::BrcIsSlave));
    assert_eq!(flows(&bridge), []);
    assert_eq!(second.ask(add), []);
    assert_eq!(flows(&bridge).len(), 1);
    // Generations wrap around.
    assert_eq!(error_of(&second.ask(role(Role::Master, 11u64.wrapping_sub(1 << 63)))), Some(ErrorKind::RrfcStale));
    assert_eq!(error_of(&second.ask(role(Role::Equal, 0))), None, "equal has no generation");
}

#[test]
fn a_bundle_is_done_as_a_whole_or_leaves_nothing() {
    for (is_good, expected) in [(true, 3), (false, 1)] {
        let (bridge, _) = bridge();
        let mut controller = Controller::new(&bridge, V14);
        bridge.flow_mod(&flow_mod(Add, Match::any(), 1, output(1)), &by(V13)).unwrap();
        let before = (flows(&bridge), bridge.tables().ports().get(1).cloned());
        let control = |kind| Message::BundleControl { bundle: 5, kind, flags: 3 };
        assert_eq!(
            controller.ask(control(BundleControl::OpenRequest)),
            [Message::BundleControl { bundle: 5, kind: BundleControl::OpenReply, flags: 0 }]
        );
        let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions: Vec::new() };
        let group = GroupMod {
            command: GroupCommand::Add,
            group: 7,
            kind: GroupKind::All,
            buckets: vec![bucket],
            selection: Selection::default(),
        };
        let through = Instructions { apply: vec![Action::Group(7)], ..Instructions::default() };
        let last = Instructions { apply: vec![Action::Group(if is_good { 7 } else { 8 })], ..Instructions::default() };
        let steps = [
            Message::FlowMod(flow_mod(Delete, Match::any(), 0, Instructions::default())),
            Message::GroupMod(group),
            Message::FlowMod(flow_mod(Add, Match::any(), 2, through)),
            Message::PortMod(PortMod { port: 1, address: [2, 0, 0, 0, 0, 1], config: 4, mask: 4, advertise: 0 }),
            Message::FlowMod(flow_mod(Add, Match::any(), 3, output(2))),
            Message::FlowMod(flow_mod(Add, Match::any(), 4, last)),
        ];
        for (i, message) in steps.into_iter().enumerate() {
            let xid = 100 + i as u32;
            let message = Box::new(Framed { version: V14, xid, message });
            controller.send(xid, Message::BundleAdd { bundle: 5, flags: 3, message });
        }
        assert_eq!(controller.read(), []);
        assert_eq!((flows(&bridge), bridge.tables().ports().get(1).cloned()), before, "nothing before the commit");
        controller.send(9, control(BundleControl::CommitRequest));
        let replies = controller.read();
        assert_eq!(flows(&bridge).len(), expected);
        assert_eq!(bridge.tables().group(7).is_some(), is_good);
        if is_good {
            let last = &replies.last().unwrap().message;
            assert!(matches!(last, Message::BundleControl { kind: BundleControl::CommitReply, .. }), "{replies:?}");
            assert!(bridge.tables().ports().has(1, 4));
        } else {
            assert_eq!((flows(&bridge), bridge.tables().ports().get(1).cloned()), before);
            let errors: Vec<_> =
                replies.iter().map(|reply| (reply.xid, error_of(std::slice::from_ref(&reply.message)))).collect();
            assert_eq!(errors, [(105, Some(ErrorKind::BacBadOutGroup)), (9, Some(ErrorKind::BfcMsgFailed))]);
            // References were undone too: the group can be added and deleted.
            assert_eq!(error_of(&controller.ask(control(BundleControl::CommitRequest))), Some(ErrorKind::BfcBadId));
        }
    }
}

#[test]
fn bundles_that_are_misused_or_left_alone() {
    let (bridge, host) = bridge();
    let mut controller = Controller::new(&bridge, V14);
    let control = |bundle, kind, flags| Message::BundleControl { bundle, kind, flags };
    let open = BundleControl::OpenRequest;
    controller.ask(control(1, open, 3));
    assert_eq!(error_of(&controller.ask(control(1, open, 3))), Some(ErrorKind::BfcBadId));
    assert_eq!(error_of(&controller.ask(control(1, BundleControl::CloseRequest, 3))), Some(ErrorKind::BfcBadId));
    controller.ask(control(1, open, 3));
    assert_eq!(error_of(&controller.ask(control(1, BundleControl::CommitRequest, 1))), Some(ErrorKind::BfcBadFlags));
    controller.ask(control(1, open, 3));
    controller.ask(control(1, BundleControl::CloseRequest, 3));
    let add = |xid, inner| {
        let message = Message::FlowMod(flow_mod(Add, Match::any(), 1, output(1)));
        let message = Box::new(Framed { version: V14, xid: inner, message });
        (xid, Message::BundleAdd { bundle: 1, flags: 3, message })
    };
    let (_, message) = add(7, 7);
    assert_eq!(error_of(&controller.ask(message)), Some(ErrorKind::BfcBundleClosed));
    let (_, message) = add(7, 8);
    assert_eq!(error_of(&controller.ask(message)), Some(ErrorKind::BfcMsgBadXid));
    for id in 0..limit::BUNDLES as u32 {
        assert_eq!(error_of(&controller.ask(control(id, open, 0))), None);
    }
    assert_eq!(error_of(&controller.ask(control(999, open, 0))), Some(ErrorKind::BfcOutOfBundles));
    host.now_us.store(bridge::bundle::IDLE_US, Ordering::Relaxed);
    let errors = controller.read();
    assert_eq!(errors.len(), limit::BUNDLES);
    assert_eq!(error_of(&[errors[0].message.clone()]), Some(ErrorKind::BfcTimeout));
}

#[test]
fn flows_end_at_their_time_and_controllers_are_told() {
    let (bridge, host) = bridge();
    let mut controller = Controller::new(&bridge, V13);
    let timed = |priority: u16, idle: u16, hard: u16| {
        let mut request = told(flow_mod(Add, Match::any(), priority, output(1)));
        (request.timeouts.idle, request.timeouts.hard) = (idle, hard);
        request
    };
    for request in [timed(1, 10, 0), timed(2, 0, 25), timed(3, 10, 12), timed(4, 0, 0)] {
        controller.send(1, Message::FlowMod(request));
    }
    let left = |at_s: u64| {
        host.now_us.store(at_s * 1_000_000, Ordering::Relaxed);
        bridge.tick(at_s * 1_000_000);
        flows(&bridge).iter().map(|flow| flow.1).collect::<Vec<u16>>()
    };
    assert_eq!(left(9), [1, 2, 3, 4]);
    for flow in bridge.tables().table(0).flows.iter() {
        flow.usage.add(2, 120, 9_000_000);
    }
    assert_eq!(left(11), [1, 2, 3, 4]);
    assert_eq!(left(12), [1, 2, 4]);
    assert_eq!(left(18), [1, 2, 4]);
    assert_eq!(left(19), [2, 4]);
    assert_eq!(left(1000), [4]);
    let told: Vec<_> = controller
        .read()
        .into_iter()
        .map(|framed| match framed.message {
            Message::FlowRemoved(removed) => {
                (removed.priority, removed.reason, removed.duration.0, removed.counts.packets)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (3, RemovedReason::HardTimeout, 12, 2),
        (1, RemovedReason::IdleTimeout, 19, 2),
        (2, RemovedReason::HardTimeout, 1000, 2),
    ];
    assert_eq!(told, expected);
    // A timeout that a packet has shortened.
    let mut request = timed(5, 0, 0);
    request.timeouts.idle = 100;
    bridge.flow_mod(&request, &by(V13)).unwrap();
    let flow = Arc::clone(bridge.tables().table(0).flows.find(&Match::any(), 5).unwrap());
    flow.fin_timeouts.store(5 << 16, Ordering::Relaxed);
    bridge.shorten(&flow);
    assert_eq!(left(1004), [4, 5]);
    assert_eq!(left(1005), [4]);
}

#[test]
fn long_answers_come_in_parts_and_are_complete() {
    let (bridge, _) = bridge();
    let field = bridge.fields().named("eth_src").unwrap();
    // A flow that OpenFlow 1.0 has no words for does not take the others along.
    let register = matching(&bridge, &[("reg0", 3)]);
    bridge.flow_mod(&FlowMod { cookie: 99_999, ..flow_mod(Add, register, 1, output(1)) }, &by(V13)).unwrap();
    for i in 0..20_000u32 {
        let mut wanted = Match::any();
        wanted.add(field, u128::from(i), 0xffff_ffff_ffff);
        bridge.flow_mod(&FlowMod { cookie: u64::from(i), ..flow_mod(Add, wanted, 1, output(1)) }, &by(V13)).unwrap();
    }
    let filter = FlowFilter {
        table: 255,
        out_port: openflow::action::port::ANY,
        out_group: u32::MAX,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::any(),
    };
    for version in Version::ALL {
        let mut controller = Controller::new(&bridge, version);
        let filter = if version == V10 { FlowFilter { table: 0, ..filter.clone() } } else { filter.clone() };
        controller.send(42, Message::Multipart(Request::Flow(filter)));
        controller.send(43, Message::BarrierRequest);
        assert!(controller.connection.output().len() < 2 * bridge::connection::OUTPUT_MAX);
        let replies = controller.read();
        let mut cookies = Vec::new();
        let (barrier, parts) = replies.split_last().unwrap();
        assert_eq!((barrier.xid, &barrier.message), (43, &Message::BarrierReply));
        for (i, part) in parts.iter().enumerate() {
            let Message::MultipartReply { reply: Reply::Flow(flows), more } = &part.message else { panic!("{part:?}") };
            assert_eq!((part.xid, *more), (42, i + 1 < parts.len()));
            cookies.extend(flows.iter().map(|flow| flow.cookie));
        }
        cookies.sort_unstable();
        let expected = if version == V10 { 20_000 } else { 20_001 };
        assert_eq!(cookies.len(), expected, "{version:?}");
        cookies.dedup();
        assert_eq!(cookies.len(), expected);
    }
}

#[test]
fn every_multipart_request_has_an_answer() {
    let (bridge, _) = bridge();
    let any = openflow::action::port::ANY;
    let requests = [
        Request::Desc,
        Request::Table,
        Request::TableFeatures(Vec::new()),
        Request::PortStats { port: any },
        Request::PortDesc { port: any },
        Request::Queue { port: any, queue: u32::MAX },
        Request::Group { group: openflow::message::GROUP_ALL },
        Request::GroupDesc { group: openflow::message::GROUP_ALL },
        Request::GroupFeatures,
        Request::Meter { meter: u32::MAX },
        Request::MeterConfig { meter: u32::MAX },
        Request::MeterFeatures,
        Request::TableDesc,
        Request::QueueDesc { port: any, queue: u32::MAX },
        Request::ControllerStatus,
        Request::BundleFeatures { flags: 0 },
    ];
    let mut controller = Controller::new(&bridge, V15);
    for request in requests {
        let replies = controller.ask(Message::Multipart(request.clone()));
        assert!(!replies.is_empty(), "{request:?}");
        for reply in &replies {
            assert!(matches!(reply, Message::MultipartReply { .. }), "{request:?}: {reply:?}");
        }
    }
    let unknown = controller.ask(Message::Multipart(Request::PortStats { port: 99 }));
    assert_eq!(error_of(&unknown), Some(ErrorKind::BrcBadPort));
}

#[test]
fn tables_are_configured_by_what_they_have() {
    let (bridge, _) = bridge();
    for version in [V13, V14, V15] {
        let mut controller = Controller::new(&bridge, version);
        let mut ask = |tables: Vec<TableFeatures>| {
            let replies = controller.ask(Message::Multipart(Request::TableFeatures(tables)));
            let error = error_of(&replies);
            let all = replies.into_iter().filter_map(|reply| match reply {
                Message::MultipartReply { reply: Reply::TableFeatures(tables), .. } => Some(tables),
                _ => None,
            });
            error.map_or_else(|| Ok(all.flatten().collect::<Vec<_>>()), Err)
        };
        let all = ask(Vec::new()).unwrap();
        let (fourth, name) = (all[4].clone(), format!("acl-{version:?}"));
        let named = TableFeatures { name: name.clone(), ..fourth.clone() };
        // Less than a table can is granted; the reply says what it can.
        let less = TableFeatures {
            max: 10,
            next: [vec![5, 7], vec![5]],
            matches: named.matches[..2].to_vec(),
            ..named.clone()
        };
        for request in [named.clone(), less] {
            let after = ask(vec![request]).unwrap();
            assert_eq!((after.len(), &after[4], &after[5]), (all.len(), &named, &all[5]), "{version:?}");
        }
        let refused = [
            (vec![TableFeatures { max: fourth.max + 1, ..fourth.clone() }], ErrorKind::TffcEperm),
            (vec![TableFeatures { next: [vec![4], Vec::new()], ..fourth.clone() }], ErrorKind::TffcEperm),
            (vec![TableFeatures { table: limit::TABLES, ..fourth.clone() }], ErrorKind::TffcBadTable),
            (vec![fourth.clone(), fourth.clone()], ErrorKind::NxtffcDupTable),
            // A table that must not be configured: those before it are not either.
            (vec![fourth.clone(), TableFeatures { table: 253, ..fourth.clone() }], ErrorKind::TffcEperm),
        ];
        for (request, error) in refused {
            assert_eq!(ask(request).unwrap_err(), error, "{version:?}");
        }
        assert_eq!(ask(Vec::new()).unwrap()[4].name, name);
        if version == V15 {
            assert_eq!(ask(vec![TableFeatures { command: 3, ..fourth }]).unwrap_err(), ErrorKind::TffcEperm);
        }
    }
}

fn packet(reason: u8) -> PacketInEvent {
    PacketInEvent {
        controller: 0,
        max_len: 20,
        is_miss: false,
        in_port: 1,
        packet: PacketIn { total_len: 60, reason, cookie: u64::MAX, frame: vec![7; 60], ..PacketIn::default() },
    }
}

#[test]
fn packet_ins_go_to_those_who_want_them_and_are_bounded() {
    let (bridge, host) = bridge();
    let mut master = Controller::new(&bridge, V13);
    let mut slave = Controller::new(&bridge, V13);
    let mut other = Controller::new(&bridge, V13);
    let options = ConnectionOptions { is_service: true, probe_us: 0, ..ConnectionOptions::default() };
    let mut service = Controller::with(&bridge, V13, options);
    master.ask(role(Role::Master, 1));
    slave.ask(role(Role::Slave, 1));
    other.ask(Message::SetControllerId(5));
    let lens = |controller: &mut Controller| -> Vec<usize> {
        let messages = controller.read().into_iter().map(|framed| framed.message);
        messages
            .map(|message| if let Message::PacketIn(packet) = message { packet.frame.len() } else { panic!() })
            .collect()
    };
    bridge.packet_in(packet(1));
    assert_eq!(lens(&mut master), [20]);
    assert_eq!((lens(&mut slave), lens(&mut other), lens(&mut service)), (vec![], vec![], vec![]));
    bridge.packet_in(PacketInEvent { controller: 5, ..packet(1) });
    assert_eq!((lens(&mut master), lens(&mut other)), (vec![], vec![20]));
    service.ask(Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 40 }));
    bridge.packet_in(packet(1));
    assert_eq!((lens(&mut master), lens(&mut service)), (vec![20], vec![20]));
    // Invalid TTLs only on demand; table misses of 1.3 never without a flow.
    bridge.packet_in(packet(2));
    bridge.packet_in(PacketInEvent { is_miss: true, ..packet(0) });
    assert_eq!(lens(&mut master), Vec::<usize>::new());
    assert!(bridge.tables().miss() == bridge::tables::Miss::Drop);
    let mut old = Controller::new(&bridge, V10);
    assert!(bridge.tables().miss() == bridge::tables::Miss::Controller);
    bridge.packet_in(PacketInEvent { is_miss: true, ..packet(0) });
    assert_eq!((lens(&mut master), lens(&mut old)), (vec![], vec![60]), "128 bytes at most");
    drop(old);
    assert!(bridge.tables().miss() == bridge::tables::Miss::Drop);
    // A port whose misses send nothing.
    let quiet = PortMod { port: 1, address: [2, 0, 0, 0, 0, 1], config: 64, mask: 64, advertise: 0 };
    assert_eq!(error_of(&master.ask(Message::PortMod(quiet))), None);
    master.read();
    bridge.packet_in(packet(0));
    bridge.packet_in(packet(1));
    assert_eq!(lens(&mut master), [20]);
    // Nobody reads: what does not fit is dropped and counted.
    host.woken.lock().unwrap().clear();
    for _ in 0..3 * limit::PACKET_INS {
        bridge.packet_in(packet(1));
    }
    let info = bridge.connections().into_iter().find(|info| info.id == master.connection.id()).unwrap();
    assert_eq!(info.packet_ins_dropped, 2 * limit::PACKET_INS as u64);
    assert!(host.woken.lock().unwrap().contains(&master.connection.id()));
    assert_eq!(lens(&mut master).len(), limit::PACKET_INS);
}

#[test]
fn packet_outs_are_checked_and_injected() {
    let (bridge, host) = bridge();
    let mut controller = Controller::new(&bridge, V13);
    let out = |in_port: u32, actions: Vec<Action>| {
        let packet = PacketOut { buffer: u32::MAX, fields: Match::any(), in_port, actions, frame: vec![1; 60] };
        Message::PacketOut(packet)
    };
    let to = |port| vec![Action::Output { port, max_len: 0 }];
    assert_eq!(error_of(&controller.ask(out(openflow::action::port::CONTROLLER, to(2)))), None);
    assert_eq!(host.injected.lock().unwrap().len(), 1);
    assert_eq!(error_of(&controller.ask(out(0, to(2)))), Some(ErrorKind::BrcBadPort));
    assert_eq!(error_of(&controller.ask(out(1, vec![Action::Group(4)]))), Some(ErrorKind::BacBadOutGroup));
    assert_eq!(host.injected.lock().unwrap().len(), 1);
}

#[test]
fn nothing_waits_for_packets_that_are_not_taken() {
    let (bridge, host) = bridge();
    let mut controller = Controller::new(&bridge, V13);
    let (rest, _held) = bridge.pending.freeze(Frozen::default()).unwrap();
    let actions = vec![Action::Output { port: 2, max_len: 0 }];
    let frame = vec![1; 60];
    let out = PacketOut { buffer: u32::MAX, fields: Match::any(), in_port: 1, actions, frame: frame.clone() };
    let resume = Box::new(PacketIn {
        total_len: 60,
        reason: 1,
        table: 0,
        cookie: 0,
        fields: matching(&bridge, &[("in_port", 1)]),
        frame,
        userdata: Vec::new(),
        continuation: Some(Pending::continuation(rest)),
    });
    let mut ask = |message| error_of(&controller.ask(message));
    host.refuses.store(true, Ordering::Relaxed);
    assert_eq!(ask(Message::PacketOut(out.clone())), None);
    assert_eq!(ask(Message::Resume(resume.clone())), Some(ErrorKind::NxrStale));
    assert_eq!(bridge.pending.len(), 1, "the rest of the translation alone");
    host.refuses.store(false, Ordering::Relaxed);
    assert_eq!(ask(Message::PacketOut(out)), None);
    assert_eq!(ask(Message::Resume(resume)), None);
    assert_eq!(bridge.pending.len(), 3);
    assert!(host.injected.lock().unwrap().iter().all(|(_, in_port, start)| *in_port == 1 && *start != rest));
}

#[test]
fn packet_outs_wait_for_room() {
    let (bridge, host) = bridge();
    let mut controller = Controller::with(&bridge, V14, ConnectionOptions::default());
    let out = |number: u8| {
        let actions = vec![Action::Output { port: 2, max_len: 0 }];
        PacketOut { buffer: u32::MAX, fields: Match::any(), in_port: 1, actions, frame: vec![number; 60] }
    };
    let bundle = |kind| Message::BundleControl { bundle: 1, kind, flags: 0 };
    let mut requests: Vec<Message> = (0..5).map(|number| Message::PacketOut(out(number))).collect();
    requests.push(bundle(BundleControl::OpenRequest));
    for number in 5..9 {
        let message = Box::new(Framed { version: V14, xid: 0, message: Message::PacketOut(out(number)) });
        requests.push(Message::BundleAdd { bundle: 1, flags: 0, message });
    }
    requests.push(bundle(BundleControl::CommitRequest));
    requests.push(Message::BarrierRequest);
    *host.room.lock().unwrap() = Some(3);
    let mut answers = Vec::new();
    for request in requests {
        controller.send(0, request);
        answers.extend(controller.read());
    }
    let has_barrier = |answers: &[Framed]| answers.iter().any(|framed| framed.message == Message::BarrierReply);
    assert_eq!((host.injected.lock().unwrap().len(), has_barrier(&answers)), (3, false));
    assert!(controller.connection.is_stalled() && !controller.connection.wants_input());
    // Silence of a controller that is not read says nothing.
    host.now_us.store(60_000_000, Ordering::Relaxed);
    for room in [1, 3, 1] {
        *host.room.lock().unwrap() = Some(room);
        controller.connection.poll(60_000_000);
        answers.extend(controller.read());
        assert!(controller.connection.is_stalled() && !controller.connection.is_closed() && !has_barrier(&answers));
    }
    *host.room.lock().unwrap() = None;
    controller.connection.poll(60_000_000);
    answers.extend(controller.read());
    assert!(!controller.connection.is_stalled() && controller.connection.wants_input() && has_barrier(&answers));
    let sent: Vec<u8> = host.injected.lock().unwrap().iter().map(|(frame, ..)| frame[0]).collect();
    assert_eq!(sent, (0..9).collect::<Vec<u8>>());
}

#[test]
fn ports_are_changed_and_told() {
    let (bridge, host) = bridge();
    let mut controller = Controller::new(&bridge, V13);
    let request = |port: u32, last: u8| {
        Message::PortMod(PortMod { port, address: [2, 0, 0, 0, 0, last], config: 1, mask: 1, advertise: 0 })
    };
    assert_eq!(error_of(&controller.ask(request(9, 9))), Some(ErrorKind::PmfcBadPort));
    assert_eq!(error_of(&controller.ask(request(1, 9))), Some(ErrorKind::PmfcBadHwAddr));
    let told = controller.ask(request(1, 1));
    assert!(
        matches!(&told[..], [Message::PortStatus { reason: PortReason::Modify, port }] if port.config == 1),
        "{told:?}"
    );
    assert_eq!(*host.configured.lock().unwrap(), [(1, 1)]);
    assert!(!bridge.tables().ports().is_up(1));
    let refused = controller.ask(request(2, 2));
    assert_eq!(error_of(&refused), Some(ErrorKind::PmfcEperm));
    assert!(bridge.tables().ports().is_up(2));
    bridge.remove_port(3);
    let told = controller.read();
    assert!(matches!(told[0].message, Message::PortStatus { reason: PortReason::Delete, .. }), "{told:?}");
}

#[test]
fn flow_monitors_report_and_abbreviate() {
    for version in [V10, V14] {
        let (bridge, _) = bridge();
        bridge.flow_mod(&flow_mod(Add, Match::any(), 1, output(1)), &by(V13)).unwrap();
        let mut controller = Controller::new(&bridge, version);
        let monitor = FlowMonitor {
            id: 3,
            command: MonitorCommand::Add,
            flags: monitor_flag::INITIAL | monitor_flag::ADD | monitor_flag::REMOVED | monitor_flag::MODIFY,
            out_port: openflow::action::port::ANY,
            out_group: u32::MAX,
            table: 255,
            matching: Match::any(),
        };
        let events = |messages: Vec<Message>| -> Vec<Option<UpdateEvent>> {
            let updates = messages.into_iter().flat_map(|message| match message {
                Message::MultipartReply { reply: Reply::FlowMonitor(updates), .. } => updates,
                other => panic!("{other:?}"),
            });
            let event = |update| match update {
                FlowUpdate::Full { event, .. } => Some(event),
                FlowUpdate::Abbreviated { .. } => None,
                FlowUpdate::Paused(_) => panic!(),
            };
            updates.map(event).collect()
        };
        let request = Message::Multipart(Request::FlowMonitor(vec![monitor]));
        let initial = events(controller.ask(request.clone()));
        // Nicira's has no event of its own for flows that there are.
        assert_eq!(initial.len(), 1, "{version:?}");
        let exists = error_of(&controller.ask(request));
        assert_eq!(exists, Some(ErrorKind::MofcMonitorExists));
        let mut add = flow_mod(Add, Match::any(), 2, output(2));
        if version == V10 {
            // No table is named.
            add.table = 255;
        }
        let same: Vec<Message> = controller.ask(Message::FlowMod(add));
        assert_eq!(events(same), [None], "its own change");
        bridge.flow_mod(&flow_mod(Add, Match::any(), 3, output(2)), &by(V13)).unwrap();
        bridge.flow_mod(&flow_mod(FlowCommand::Modify, Match::any(), 0, output(2)), &by(V13)).unwrap();
        bridge.flow_mod(&flow_mod(FlowCommand::DeleteStrict, Match::any(), 3, output(2)), &by(V13)).unwrap();
        let seen = events(controller.read().into_iter().map(|framed| framed.message).collect());
        let expected = [UpdateEvent::Added, UpdateEvent::Modified, UpdateEvent::Removed].map(Some);
        assert_eq!(seen, expected, "{version:?}: only one of the flows was changed");
    }
}

#[test]
fn a_flow_monitor_of_own_changes_in_full_and_one_of_them_only() {
    use monitor_flag::{ADD, NO_ABBREV, ONLY_OWN};
    // With `ONLY_OWN` alone, `ovs-ofctl` asks for its own changes in full beside the others.
    for (flags, expected) in [(ONLY_OWN, 2), (ONLY_OWN | NO_ABBREV, 1), (NO_ABBREV, 2)] {
        let (bridge, _) = bridge();
        let mut controller = Controller::new(&bridge, V14);
        let monitor = FlowMonitor {
            id: 3,
            command: MonitorCommand::Add,
            flags: flags | ADD,
            out_port: openflow::action::port::ANY,
            out_group: u32::MAX,
            table: 255,
            matching: Match::any(),
        };
        controller.ask(Message::Multipart(Request::FlowMonitor(vec![monitor])));
        let own = controller.ask(Message::FlowMod(flow_mod(Add, Match::any(), 2, output(2))));
        bridge.flow_mod(&flow_mod(Add, Match::any(), 3, output(2)), &by(V13)).unwrap();
        let all = own.into_iter().chain(controller.read().into_iter().map(|framed| framed.message));
        let full = all.flat_map(|message| match message {
            Message::MultipartReply { reply: Reply::FlowMonitor(updates), .. } => updates,
            other => panic!("{other:?}"),
        });
        let full = full.filter(|update| matches!(update, FlowUpdate::Full { event: UpdateEvent::Added, .. }));
        assert_eq!(full.count(), expected, "flags {flags:#x}");
    }
}

#[test]
fn silence_is_probed_and_ends() {
    let (bridge, host) = bridge();
    let options = ConnectionOptions { probe_us: 1_000_000, ..ConnectionOptions::default() };
    let mut controller = Controller::with(&bridge, V13, options);
    host.now_us.store(1_000_000, Ordering::Relaxed);
    let probe = controller.read();
    assert!(matches!(probe[..], [Framed { message: Message::EchoRequest(_), .. }]), "{probe:?}");
    host.now_us.store(1_900_000, Ordering::Relaxed);
    controller.send(probe[0].xid, Message::EchoReply(Vec::new()));
    host.now_us.store(2_800_000, Ordering::Relaxed);
    assert_eq!(controller.read(), []);
    host.now_us.store(3_000_000, Ordering::Relaxed);
    assert_eq!(controller.read().len(), 1);
    host.now_us.store(3_900_000, Ordering::Relaxed);
    controller.read();
    assert!(!controller.connection.is_closed(), "it has the probe's time to answer");
    host.now_us.store(4_000_000, Ordering::Relaxed);
    controller.read();
    assert!(controller.connection.is_closed());
    let mut silent = Connection::new(Arc::clone(&bridge), ConnectionOptions::default());
    silent.poll(4_000_000 + bridge::connection::HELLO_US + 1);
    assert_eq!(silent.close_reason(), Some("no hello"));
}

#[test]
fn hostile_input_closes_or_is_refused() {
    let (bridge, _) = bridge();
    let mut rng = Random::new(7);
    let valid: Vec<Vec<u8>> = [
        Message::FlowMod(flow_mod(Add, matching(&bridge, &[("eth_type", 0x800), ("ipv4_src", 7)]), 9, output(1))),
        Message::Multipart(Request::TableFeatures(Vec::new())),
        Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 9 }),
        Message::BundleControl { bundle: 1, kind: BundleControl::OpenRequest, flags: 3 },
        role(Role::Slave, 4),
    ]
    .into_iter()
    .map(|message| {
        let mut bytes = Vec::new();
        let framed = Framed { version: V14, xid: 1, message };
        wire::write(&framed, bridge.fields(), &Formats::default(), &mut bytes).unwrap();
        bytes
    })
    .collect();
    for _ in 0..3000 {
        let options = ConnectionOptions { probe_us: 0, ..ConnectionOptions::default() };
        let mut connection = Connection::new(Arc::clone(&bridge), options);
        if rng.below(8) > 0 {
            connection.input(&[5, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x32]);
        }
        for _ in 0..rng.below(6) {
            let mut bytes = valid[rng.index(valid.len())].clone();
            match rng.below(4) {
                0 => bytes = (0..rng.below(64)).map(|_| rng.next_u64() as u8).collect(),
                1 => bytes.truncate(rng.index(bytes.len() + 1)),
                2 => {}
                _ => {
                    let at = rng.index(bytes.len());
                    bytes[at] ^= 1 << rng.below(8);
                }
            }
            // In pieces.
            for piece in bytes.chunks(1 + rng.index(40)) {
                connection.input(piece);
            }
        }
        connection.poll(0);
        assert!(connection.output().len() < 4 * bridge::connection::OUTPUT_MAX);
    }
    // Bytes that are handed over though none are wanted.
    let mut connection = Connection::new(Arc::clone(&bridge), ConnectionOptions::default());
    connection.input(&[5, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x32]);
    let echo = [&[5, 2, 0x80, 0, 0, 0, 0, 1][..], &[0; 0x8000 - 8]].concat();
    for _ in 0..2 * bridge::connection::INPUT_MAX / echo.len() {
        connection.input(&echo);
    }
    assert!(connection.is_closed());
}

//! Bundles against the same messages one by one.

mod common;

use bridge::tables::limit;
use common::{Controller, bridge, by, flow_mod, flows, output};
use openflow::message::{Band, BandKind, meter_flag};
use openflow::message::{
    BundleControl, FlowCommand, FlowMod, Framed, GroupCommand, GroupKind, GroupMod, MeterCommand, MeterMod, Selection,
    flow_flag,
};
use openflow::{Action, Bucket, ErrorKind, FieldId, Instructions, Match, Message, Version};
use random::Random;
use std::sync::Arc;

const V: Version = Version::V14;

/// A message of few kinds, so that it meets what others have made.
fn message(rng: &mut Random, bridge: &bridge::Bridge) -> Message {
    let id = 1 + rng.below(3) as u32;
    match rng.below(10) {
        0 => {
            let command = *rng.pick(&[GroupCommand::Add, GroupCommand::AddOrModify, GroupCommand::Delete]);
            let actions = match rng.below(3) {
                0 => vec![Action::Group(1 + rng.below(3) as u32)],
                _ => vec![Action::Output { port: id, max_len: 0 }],
            };
            let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
            let (kind, selection) = (GroupKind::All, Selection::default());
            let buckets = if command == GroupCommand::Delete { Vec::new() } else { vec![bucket] };
            Message::GroupMod(GroupMod { command, group: id, kind, buckets, selection })
        }
        1 => {
            let command = *rng.pick(&[MeterCommand::Add, MeterCommand::Delete]);
            let bands = vec![Band { kind: BandKind::Drop, rate: 10, burst: 0 }];
            let bands = if command == MeterCommand::Delete { Vec::new() } else { bands };
            Message::MeterMod(MeterMod { command, flags: meter_flag::KBPS, meter: id, bands })
        }
        _ => {
            let mut matching = Match::any();
            for name in ["eth_src", "reg0"] {
                if rng.one_in(2) {
                    let field = bridge.fields().named(name).unwrap();
                    matching.add(field, u128::from(rng.below(3)), *rng.pick(&[0xff, 1]));
                }
            }
            use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
            let command = *rng.pick(&[Add, Add, Add, Add, Modify, ModifyStrict, Delete, DeleteStrict]);
            let instructions = match rng.below(6) {
                0 => Instructions { apply: vec![Action::Group(id)], ..Instructions::default() },
                1 => Instructions { meter: Some(id), ..output(id) },
                _ => output(id),
            };
            let mut request = flow_mod(command, matching, rng.below(4) as u16, instructions);
            request.table = rng.below(2) as u8;
            request.cookie = rng.below(3);
            if command == Add && rng.one_in(3) {
                request.flags |= flow_flag::CHECK_OVERLAP;
            }
            Message::FlowMod(FlowMod { ..request })
        }
    }
}

/// Flows as [`flows`] has them, groups and meters.
type Contents = (Vec<(u8, u16, u64, Option<u32>)>, Vec<u32>, Vec<u32>);

fn contents(bridge: &bridge::Bridge) -> Contents {
    let tables = bridge.tables();
    let mut groups: Vec<u32> = tables.groups().map(|group| group.id).collect();
    groups.sort_unstable();
    let meters = tables.meters().map(|meter| meter.id).collect();
    drop(tables);
    (flows(bridge), groups, meters)
}

fn alone(bridge: &bridge::Bridge, message: &Message) -> bool {
    let by = by(V);
    let result = match message {
        Message::FlowMod(request) => bridge.flow_mod(request, &by),
        Message::GroupMod(request) => bridge.group_mod(request, &by),
        Message::MeterMod(request) => bridge.meter_mod(request, &by),
        _ => unreachable!(),
    };
    result.is_ok()
}

#[test]
fn random_bundles_do_what_their_messages_do_or_nothing() {
    let (mut done, mut undone) = (0, 0);
    for seed in 0..300 {
        let mut rng = Random::new(seed);
        let (bundled, _) = bridge();
        let mut controller = Controller::new(&bundled, V);
        // What has happened so far, to be done again on a bridge where each message is for itself.
        let mut past: Vec<Message> = Vec::new();
        for round in 0..8 {
            let messages: Vec<Message> = (0..1 + rng.below(6)).map(|_| message(&mut rng, &bundled)).collect();
            let before = contents(&bundled);
            let control = |kind| Message::BundleControl { bundle: 1, kind, flags: 0 };
            controller.ask(control(BundleControl::OpenRequest));
            for message in &messages {
                let framed = Framed { version: V, xid: 7, message: message.clone() };
                controller.ask(Message::BundleAdd { bundle: 1, flags: 0, message: Box::new(framed) });
            }
            let answers = controller.ask(control(BundleControl::CommitRequest));
            let is_done = answers.contains(&control(BundleControl::CommitReply));
            let (single, _) = bridge();
            past.iter().for_each(|message| assert!(alone(&single, message)));
            let all_good = messages.iter().all(|message| alone(&single, message));
            assert_eq!(is_done, all_good, "seed {seed}, round {round}: {messages:?}: {answers:?}");
            if is_done {
                assert_eq!(contents(&bundled), contents(&single), "seed {seed}, round {round}");
                past.extend(messages);
                done += 1;
            } else {
                assert_eq!(contents(&bundled), before, "seed {seed}, round {round}");
                undone += 1;
            }
        }
        // What the bridge counts of references is right: all groups and meters can go, and take their flows.
        let all = Arc::clone(&bundled);
        drop(controller);
        for message in past.iter().rev() {
            if let Message::GroupMod(request) = message {
                let delete =
                    GroupMod { command: GroupCommand::Delete, group: openflow::message::GROUP_ALL, ..request.clone() };
                all.group_mod(&GroupMod { buckets: Vec::new(), ..delete }, &by(V)).unwrap();
            }
        }
        let tables = all.tables();
        let mut flows = tables.iter().flat_map(|(_, table)| table.flows.iter());
        let has_groups = past.iter().any(|message| matches!(message, Message::GroupMod(_)));
        let is_group = |action: &Action| matches!(action, Action::Group(_));
        assert!(!has_groups || flows.all(|flow| !flow.instructions.apply.iter().any(is_group)), "seed {seed}");
    }
    assert!(done > 200 && undone > 200, "{done} done, {undone} undone");
}

#[test]
fn a_bundle_that_looks_at_too_many_flows_is_refused_and_others_go_on() {
    const FLOWS: u32 = 1 << 16;
    let (bridge, _) = bridge();
    let reg0 = bridge.fields().named("reg0").unwrap();
    let of = |value: u32| {
        let mut matching = Match::any();
        matching.add(reg0, u128::from(value), 0xffff_ffff);
        matching
    };
    for value in 0..FLOWS {
        bridge.flow_mod(&flow_mod(FlowCommand::Add, of(value), 1, output(1)), &by(V)).unwrap();
    }
    let mut controller = Controller::new(&bridge, V);
    let control = |kind| Message::BundleControl { bundle: 1, kind, flags: 0 };
    let mut commit = |requests: &[FlowMod]| {
        controller.ask(control(BundleControl::OpenRequest));
        for request in requests {
            let framed = Framed { version: V, xid: 7, message: Message::FlowMod(request.clone()) };
            controller.ask(Message::BundleAdd { bundle: 1, flags: 0, message: Box::new(framed) });
        }
        controller.ask(control(BundleControl::CommitRequest))
    };
    let kinds = |answers: &[Message]| -> Vec<ErrorKind> {
        let kind = |answer: &Message| match answer {
            Message::Error { kind, .. } => Some(*kind),
            _ => None,
        };
        answers.iter().filter_map(kind).collect()
    };
    // Each looks at all flows and changes none.
    let scan = flow_mod(FlowCommand::Modify, of(FLOWS), 1, output(2));
    let add = flow_mod(FlowCommand::Add, of(FLOWS + 1), 1, output(1));
    let scans = (limit::BUNDLE_VISITS / u64::from(FLOWS)) as usize;
    let mut requests = vec![scan.clone(); scans / 4];
    requests.push(add.clone());
    assert_eq!(commit(&requests), [control(BundleControl::CommitReply)], "not too many");
    requests = vec![flow_mod(FlowCommand::DeleteStrict, of(FLOWS + 1), 1, Instructions::default())];
    requests.resize(scans + 2, scan);
    requests.push(add);
    assert_eq!(kinds(&commit(&requests)), [ErrorKind::BfcTimeout, ErrorKind::BfcMsgFailed]);
    assert_eq!(bridge.tables().table(0).flows.len(), FLOWS as usize + 1, "nothing of it was done");
}

#[test]
fn a_bundle_with_overlap_checks_among_many_flows_is_within_its_work() {
    const FLOWS: u32 = 1 << 16;
    let (bridge, _) = bridge();
    let [reg0, src, dst] = ["reg0", "eth_src", "eth_dst"].map(|name| bridge.fields().named(name).unwrap());
    let of = |terms: &[(FieldId, u32)]| {
        let mut matching = Match::any();
        for (field, value) in terms {
            matching.add(*field, u128::from(*value), bridge.fields().get(*field).full());
        }
        matching
    };
    for value in 0..FLOWS {
        let request = flow_mod(FlowCommand::Add, of(&[(dst, value), (src, value % 100)]), 1, output(1));
        bridge.flow_mod(&request, &by(V)).unwrap();
    }
    let mut controller = Controller::new(&bridge, V);
    let control = |kind| Message::BundleControl { bundle: 1, kind, flags: 0 };
    controller.ask(control(BundleControl::OpenRequest));
    // One by one they would look at all flows; so many are more than a bundle may look at.
    let checks = 2 * (limit::BUNDLE_VISITS / u64::from(FLOWS)) as u32;
    for value in 0..checks {
        let mut request = flow_mod(FlowCommand::Add, of(&[(reg0, value), (src, 100 + value)]), 1, output(1));
        request.flags |= flow_flag::CHECK_OVERLAP;
        let framed = Framed { version: V, xid: 7, message: Message::FlowMod(request) };
        controller.ask(Message::BundleAdd { bundle: 1, flags: 0, message: Box::new(framed) });
    }
    assert_eq!(controller.ask(control(BundleControl::CommitRequest)), [control(BundleControl::CommitReply)]);
    assert_eq!(bridge.tables().table(0).flows.len(), (FLOWS + checks) as usize);
    // What the checks were made with counts as memory, and ends with the flows.
    let delete = flow_mod(FlowCommand::Delete, Match::any(), 0, Instructions::default());
    bridge.flow_mod(&delete, &by(V)).unwrap();
    assert_eq!(bridge.state_bytes(), 0);
}

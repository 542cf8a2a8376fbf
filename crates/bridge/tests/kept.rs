//! What a bridge keeps, and what comes back of it: a keeper in memory, beside random requests.

mod common;

use bridge::keep::{Keeper, Kept, KeptChange};
use bridge::{Bridge, Origin};
use common::{Controller, bridge, by, flow_mod, flows, matching, output};
use openflow::action::port;
use openflow::message::{
    Band, BandKind, FlowCommand, GroupCommand, GroupKind, GroupMod, MeterCommand, MeterMod, PortMod, Selection,
    SwitchConfig, Timeouts, meter_flag,
};
use openflow::{Action, Bucket, Error, ErrorKind, Instructions, Message, Version};
use random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Keeps in memory; fails on demand.
#[derive(Default)]
struct Memory {
    all: Mutex<BTreeMap<Vec<u8>, Kept>>,
    batches: Mutex<Vec<usize>>,
    fails: AtomicBool,
    has_lost: AtomicBool,
    is_behind: AtomicBool,
    waits: AtomicUsize,
}

impl Memory {
    fn all(&self) -> BTreeMap<Vec<u8>, Kept> {
        self.all.lock().unwrap().clone()
    }
}

impl Keeper for Memory {
    fn append(&self, changes: Vec<KeptChange>) {
        if self.fails.load(Ordering::Relaxed) || self.has_lost.load(Ordering::Relaxed) {
            self.has_lost.store(true, Ordering::Relaxed);
            return;
        }
        self.batches.lock().unwrap().push(changes.len());
        let mut all = self.all.lock().unwrap();
        for KeptChange { key, after } in changes {
            match after {
                Some(kept) => _ = all.insert(key, kept),
                None => _ = all.remove(&key),
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    fn wait(&self) -> Result<(), String> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        match self.has_lost.load(Ordering::Relaxed) {
            true => Err("no space left".to_string()),
            false => Ok(()),
        }
    }

    fn failure(&self) -> Option<String> {
        self.has_lost.load(Ordering::Relaxed).then(|| "no space left".to_string())
    }

    fn renew(&self, all: &mut dyn Iterator<Item = (Vec<u8>, Kept)>) -> Result<(), String> {
        if self.fails.load(Ordering::Relaxed) {
            return Err("still none".to_string());
        }
        *self.all.lock().unwrap() = all.collect();
        self.has_lost.store(false, Ordering::Relaxed);
        Ok(())
    }
}

fn kept_bridge() -> (Arc<Bridge>, Arc<Memory>) {
    let (bridge, _) = bridge();
    let memory = Arc::new(Memory::default());
    bridge.set_keeper(Arc::clone(&memory) as Arc<dyn Keeper>, false).unwrap();
    (bridge, memory)
}

/// Everything that a request can have changed.
fn shown(bridge: &Bridge) -> String {
    let tables = bridge.tables();
    let mut flows: Vec<String> = tables
        .iter()
        .flat_map(|(_, table)| table.flows.iter())
        .map(|flow| {
            let bridge::flow::Flow { table, priority, cookie, flags, importance, timeouts, .. } = &**flow;
            let rest = (&flow.matching, &flow.instructions, flow.created_us, flow.modified_us);
            format!("{table} {priority} {cookie} {flags} {importance} {timeouts:?} {rest:?}\n")
        })
        .collect();
    flows.sort();
    let mut groups: Vec<String> = tables
        .groups()
        .map(|group| {
            let buckets: Vec<&Bucket> = group.buckets.iter().map(|(bucket, _)| bucket).collect();
            format!("{} {:?} {:?} {buckets:?}\n", group.id, group.kind, group.selection)
        })
        .collect();
    groups.sort();
    let meters = tables.meters().map(|meter| {
        let bands: Vec<Band> = meter.bands.iter().map(|band| band.band).collect();
        format!("{} {} {bands:?}\n", meter.id, meter.flags)
    });
    let settings = tables.iter().map(|(_, table)| format!("{:?}", table.settings));
    let ports = tables.ports().iter().map(|port| format!("{} {}\n", port.number, port.config));
    let rest = settings.chain(ports).chain(meters).collect::<String>();
    format!("{}{}{rest}{}", flows.concat(), groups.concat(), tables.fragments())
}

fn group(id: u32, command: GroupCommand, actions: Vec<Action>) -> GroupMod {
    let bucket = Bucket { id: 1, weight: 0, watch_port: None, watch_group: None, actions };
    GroupMod { command, group: id, kind: GroupKind::All, buckets: vec![bucket], selection: Selection::default() }
}

fn random_actions(rng: &mut Random, bridge: &Bridge) -> Vec<Action> {
    let field = |name: &str| bridge.fields().named(name).unwrap();
    let one = |rng: &mut Random| match rng.below(8) {
        0 => Action::Output { port: 1 + rng.below(3) as u32, max_len: 0 },
        1 => Action::Enqueue { port: 1, queue: rng.below(9) as u32 },
        2 => Action::SetFieldIfPresent { field: field("tcp_dst"), value: u128::from(rng.below(9)), mask: 0xffff },
        3 => Action::SetField { field: field("reg0"), value: u128::from(rng.below(9)), mask: u32::MAX.into() },
        4 => Action::Group(rng.below(5) as u32),
        5 => Action::Note(vec![rng.below(9) as u8; 6]),
        6 => Action::Resubmit { port: None, table: Some(rng.below(9) as u8), with_ct: false },
        _ => Action::SetField { field: field("eth_src"), value: 5, mask: 7 },
    };
    (0..rng.below(4)).map(|_| one(rng)).collect()
}

fn random_request(rng: &mut Random, bridge: &Arc<Bridge>) -> Result<(), Error> {
    let version = [Version::V10, Version::V13, Version::V15][rng.below(3) as usize];
    match rng.below(10) {
        0 => {
            let command = [GroupCommand::AddOrModify, GroupCommand::Delete][usize::from(rng.below(4) == 0)];
            let actions = random_actions(rng, bridge);
            bridge.group_mod(&group(rng.below(5) as u32, command, actions), &by(version))
        }
        1 => {
            let command = [MeterCommand::Add, MeterCommand::Modify, MeterCommand::Delete][rng.below(3) as usize];
            let band = Band { kind: BandKind::Drop, rate: 1 + rng.below(9) as u32, burst: 0 };
            let meter = 1 + rng.below(3) as u32;
            bridge.meter_mod(&MeterMod { command, flags: meter_flag::KBPS, meter, bands: vec![band] }, &by(version))
        }
        2 => {
            let number = [1, 3][rng.below(2) as usize];
            let address = [2, 0, 0, 0, 0, number as u8];
            let config = rng.below(128) as u32;
            bridge.port_mod(&PortMod { port: number, address, config, mask: 0x7f, advertise: 0 }, &by(version))
        }
        3 => {
            if rng.below(3) == 0 {
                let name = ["", "first", "x"][rng.below(3) as usize].to_string();
                let features =
                    openflow::message::TableFeatures { table: rng.below(4) as u8, name, ..Default::default() };
                let mut controller = Controller::new(bridge, Version::V13);
                let wanted = openflow::message::Request::TableFeatures(vec![features]);
                let answer = controller.ask(Message::Multipart(wanted));
                assert!(!answer.iter().any(|message| matches!(message, Message::Error { .. })), "{answer:?}");
                return Ok(());
            }
            let vacancy = (rng.below(2) == 0).then(|| (rng.below(50) as u8, 50));
            let (table, bits) = (rng.below(4) as u8, (rng.below(4) << 2) as u32);
            bridge.table_mod(table, bits, vacancy, &by(Version::V15))
        }
        _ => {
            use FlowCommand::*;
            let command = [Add, Add, Add, Modify, ModifyStrict, Delete, DeleteStrict][rng.below(7) as usize];
            let mut wanted = matching(bridge, &[]);
            if rng.below(3) > 0 {
                let field = ["eth_src", "reg0", "eth_type"][rng.below(3) as usize];
                wanted.add(
                    bridge.fields().named(field).unwrap(),
                    rng.below(3).into(),
                    [0xff, 1][rng.below(2) as usize],
                );
            }
            let apply = random_actions(rng, bridge);
            let mut request =
                flow_mod(command, wanted, rng.below(3) as u16, Instructions { apply, ..Default::default() });
            request.table = rng.below(3) as u8;
            request.cookie = rng.below(4);
            request.timeouts = Timeouts { idle: rng.below(2) as u16 * 50, hard: rng.below(2) as u16 * 70 };
            request.flags = rng.below(2) as u16;
            request.importance = rng.below(3) as u16;
            if rng.below(3) == 0 && version != Version::V10 {
                request.instructions.meter = Some(1 + rng.below(3) as u32);
                request.instructions.goto = Some(5);
            }
            bridge.flow_mod(&request, &by(version))
        }
    }
}

#[test]
fn a_bridge_that_is_restored_is_as_it_was() {
    let mut done = 0;
    for seed in 0..30 {
        let (first, memory) = kept_bridge();
        let mut rng = Random::new(seed);
        for _ in 0..300 {
            done += usize::from(random_request(&mut rng, &first).is_ok());
        }
        let (second, _) = bridge();
        for port in 1..=3 {
            second.remove_port(port);
        }
        let restored = second.restore(memory.all().values());
        assert_eq!(restored.refused, Vec::<String>::new(), "seed {seed}");
        let ports: Vec<_> = first.tables().ports().iter().cloned().collect();
        for port in ports {
            second.put_port(openflow::message::Port { config: 0, ..port });
        }
        assert_eq!(shown(&second), shown(&first), "seed {seed}");
        // What is kept of it is the same.
        let again = Arc::new(Memory::default());
        second.set_keeper(Arc::clone(&again) as Arc<dyn Keeper>, false).unwrap();
        assert_eq!(again.all(), memory.all(), "seed {seed}");
        second.clear();
        assert!(again.all().keys().all(|key| key[0] < bridge::keep::kind::METER));
    }
    assert!(done > 5000, "{done}");
}

#[test]
fn what_ends_is_kept_no_longer_and_a_bundle_is_kept_at_once() {
    let (bridge, host) = bridge();
    let memory = Arc::new(Memory::default());
    bridge.set_keeper(Arc::clone(&memory) as Arc<dyn Keeper>, false).unwrap();
    let mut request = flow_mod(FlowCommand::Add, matching(&bridge, &[("eth_type", 1)]), 1, output(1));
    request.timeouts.hard = 2;
    bridge.flow_mod(&request, &by(Version::V13)).unwrap();
    let learns = Action::Learn(Box::new(openflow::action::Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: 1,
        cookie: 9,
        table: 4,
        flags: 1 << 1,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 0,
        result: None,
        specs: Vec::new(),
    }));
    let apply = Instructions { apply: vec![learns], ..Instructions::default() };
    bridge.flow_mod(&flow_mod(FlowCommand::Add, matching(&bridge, &[]), 7, apply), &by(Version::V13)).unwrap();
    let mut learned = flow_mod(FlowCommand::Add, matching(&bridge, &[]), 1, output(2));
    (learned.table, learned.cookie) = (4, 9);
    bridge.learn(&learned).unwrap();
    assert_eq!(memory.all().len(), 3);
    host.now_us.store(3_000_000, Ordering::Relaxed);
    bridge.tick(3_000_000);
    assert_eq!(memory.all().len(), 2);
    // The learned one goes with the one that has learned it, in one step.
    bridge
        .flow_mod(&flow_mod(FlowCommand::DeleteStrict, matching(&bridge, &[]), 7, output(1)), &by(Version::V13))
        .unwrap();
    assert_eq!((memory.all().len(), memory.batches.lock().unwrap().last().copied()), (0, Some(2)));
    memory.is_behind.store(true, Ordering::Relaxed);
    assert!(bridge.learn(&learned).is_err());
}

#[test]
fn nothing_is_acknowledged_that_is_not_kept() {
    let (bridge, memory) = kept_bridge();
    let mut controller = Controller::new(&bridge, Version::V13);
    let add = |priority| Message::FlowMod(flow_mod(FlowCommand::Add, matching(&bridge, &[]), priority, output(1)));
    assert_eq!(controller.ask(add(1)), []);
    assert_eq!(memory.waits.load(Ordering::Relaxed), 0);
    assert_eq!(controller.ask(Message::BarrierRequest), [Message::BarrierReply]);
    // A controller that changes more than the disk takes waits for it.
    memory.is_behind.store(true, Ordering::Relaxed);
    assert_eq!(controller.ask(add(1)), []);
    memory.is_behind.store(false, Ordering::Relaxed);
    assert_eq!(memory.waits.load(Ordering::Relaxed), 2);
    assert_eq!(controller.ask(Message::BarrierRequest), [Message::BarrierReply]);
    memory.fails.store(true, Ordering::Relaxed);
    let is_refused = |messages: &[Message]| matches!(messages, [Message::Error { kind: ErrorKind::BrcEperm, .. }]);
    // Done, before it is known that it cannot be kept.
    assert_eq!(controller.ask(add(2)), []);
    let refused = controller.ask(Message::BarrierRequest);
    assert!(refused.len() == 2 && refused.chunks(1).all(is_refused), "the change and the barrier: {refused:?}");
    let filter = openflow::message::FlowFilter {
        table: 255,
        out_port: port::ANY,
        out_group: u32::MAX,
        cookie: 0,
        cookie_mask: 0,
        matching: matching(&bridge, &[]),
    };
    let reads = Message::Multipart(openflow::message::Request::Flow(filter));
    // What is in force is told.
    assert!(matches!(&controller.ask(reads.clone())[..], [Message::MultipartReply { .. }]));
    // Not even done. What packets and time do goes on.
    assert!(is_refused(&controller.ask(add(3))));
    assert!(is_refused(&controller.ask(Message::SetConfig(SwitchConfig { flags: 1, miss_send_len: 9 }))));
    assert_eq!(flows(&bridge).len(), 2);
    let learned = flow_mod(FlowCommand::Add, matching(&bridge, &[]), 9, output(2));
    bridge.learn(&learned).unwrap();
    memory.fails.store(false, Ordering::Relaxed);
    assert_eq!(controller.ask(add(4)), []);
    assert_eq!(controller.ask(Message::BarrierRequest), [Message::BarrierReply]);
    assert_eq!(controller.ask(reads).len(), 1);
    let (second, _) = common::bridge();
    assert_eq!(second.restore(memory.all().values()).flows, 4);
    assert_eq!(flows(&second), flows(&bridge));
}

#[test]
fn times_are_those_of_before_and_what_does_not_fit_is_named() {
    let (bridge, _) = bridge();
    let request = flow_mod(FlowCommand::Add, matching(&bridge, &[]), 1, output(1));
    let message = bridge::keep::encode_flow_mod(&request, bridge.fields()).unwrap();
    let kept = Kept { message, created_us: -5_000_000, modified_us: -2_000_000, ..Kept::default() };
    let groups = |id| {
        let (other, memory) = kept_bridge();
        other.group_mod(&group(7, GroupCommand::Add, Vec::new()), &Origin::SWITCH).unwrap();
        other.group_mod(&group(id, GroupCommand::Add, vec![Action::Group(7)]), &Origin::SWITCH).unwrap();
        let mut all = memory.all();
        all.retain(|key, _| key.last() != Some(&7));
        all.into_values().next().unwrap()
    };
    let junk = Kept { message: vec![1, 2, 3], ..Kept::default() };
    let all = [junk, groups(3), kept];
    let restored = bridge.restore(all.iter());
    assert_eq!((restored.flows, restored.groups, restored.refused.len()), (1, 0, 2));
    assert!(restored.refused[1].contains("group 3: there is no group 7"), "{:?}", restored.refused);
    let tables = bridge.tables();
    let flow = tables.table(0).flows.iter().next().unwrap();
    assert_eq!((flow.created_us, flow.modified_us), (-5_000_000, -2_000_000));
}

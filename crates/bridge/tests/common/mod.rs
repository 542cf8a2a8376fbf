//! A bridge over a small program, a host that records, and a controller.
#![allow(dead_code)]

use base::ids::SlotId;
use bridge::{Bridge, BridgeOptions, Connection, ConnectionOptions, Host, NotInjected, Origin};
use ir::{
    Builder, EntryKind, Fate, FieldPart, Intrinsic, MatchField, Op, OpenFlow, Program, StageKind, Table, TableAction,
};
use openflow::message::{
    Counts, FlowCommand, FlowMod, Framed, Port, PortStats, Queue, QueueStats, Timeouts, flow_flag,
};
use openflow::wire::{self, Formats};
use openflow::{Action, Instructions, Match, Message, Version};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Fields in metadata and the header actions `push_vlan`, `pop_vlan` and `dec_nw_ttl`.
pub fn program() -> Program {
    let mut b = Builder::new("test");
    let in_port = b.metadata("in_port", 32);
    b.intrinsic(Intrinsic::IngressPort, in_port);
    let mut fields = Vec::new();
    let mut add = |name: &str, slot: SlotId, width: u32, numbers: &[(u16, u8)], needs: &[(u32, u128, u128)]| {
        fields.push(MatchField {
            name: name.to_string(),
            parts: vec![FieldPart { slot, lo: 0, width }],
            numbers: numbers.iter().map(|(class, field)| (*class, *field, 0)).collect(),
            maskable: true,
            writable: name != "ip_proto",
            is_metadata: name == "in_port" || name.starts_with("reg"),
            prerequisites: needs.iter().map(|(at, mask, value)| (*at, *mask, vec![*value])).collect(),
        });
    };
    let slots: Vec<SlotId> = [16, 48, 48, 16, 32, 32, 8, 16]
        .iter()
        .enumerate()
        .map(|(i, width)| b.metadata(format!("f{i}"), *width))
        .collect();
    add("in_port", in_port, 32, &[(0x8000, 0), (0, 0)], &[]);
    add("eth_type", slots[0], 16, &[(0x8000, 5), (0, 3)], &[]);
    add("eth_dst", slots[1], 48, &[(0x8000, 3), (0, 1)], &[]);
    add("eth_src", slots[2], 48, &[(0x8000, 4), (0, 2)], &[]);
    add("ip_proto", slots[6], 8, &[(0x8000, 10), (0, 6)], &[(1, 0xffff, 0x800)]);
    add("ipv4_src", slots[4], 32, &[(0x8000, 11), (0, 7)], &[(1, 0xffff, 0x800)]);
    add("ipv4_dst", slots[5], 32, &[(0x8000, 12), (0, 8)], &[(1, 0xffff, 0x800)]);
    add("tcp_dst", slots[7], 16, &[(0x8000, 14), (0, 10)], &[(1, 0xffff, 0x800), (4, 0xff, 6)]);
    let reg = b.metadata("reg0", 32);
    add("reg0", reg, 32, &[(1, 0)], &[]);

    let names = ["push_vlan", "pop_vlan", "dec_nw_ttl"];
    let actions: Vec<_> =
        names.iter().map(|name| b.action(ir::Action { name: format!("Actions.{name}"), params: Vec::new() })).collect();
    let table = b.table(Table {
        name: "Actions.header_actions".to_string(),
        span: base::Span::NONE,
        keys: Vec::new(),
        actions: actions.iter().map(|a| TableAction { action: *a, default_only: false, table_only: false }).collect(),
        default_action: base::entry::ActionCall { action: 0, args: Vec::new() },
        const_default: false,
        entries: Vec::new(),
        const_entries: false,
        size: 1,
        implementation: None,
        direct: Vec::new(),
        idle_timeout: false,
        value_set: false,
        dynamic: None,
    });
    let stage = b.begin_stage("Actions", StageKind::Control);
    let (hit, action, entry, data) = (b.temp(1), b.temp(32), b.temp(64), b.temp(64));
    b.emit(Op::Apply { table, keys: Vec::new(), selector: Vec::new(), hit, action, entry, data });
    b.next_stage();
    b.end_stage();
    let last = b.begin_stage("end", StageKind::Control);
    let drop = b.drop_reason("end");
    b.fate(Fate::Drop(drop));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[last]);
    let mut program = b.finish();
    program.openflow = Some(OpenFlow { fields, actions: Some((stage, table)), reparse: None, ttl_exceeded: None });
    program
}

/// A host with a clock that is set by hand.
#[derive(Debug, Default)]
pub struct Recorder {
    pub now_us: AtomicU64,
    pub injected: Mutex<Vec<(Vec<u8>, u32, u64)>>,
    /// Takes no frames.
    pub refuses: AtomicBool,
    /// How many more frames there is room for, if that is bounded.
    pub room: Mutex<Option<usize>>,
    pub woken: Mutex<Vec<u64>>,
    pub configured: Mutex<Vec<(u32, u32)>>,
}

impl Host for Recorder {
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    fn inject(&self, frame: Vec<u8>, in_port: u32, start: u64) -> Result<(), NotInjected> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(NotInjected::Failed("nothing takes frames".to_string()));
        }
        if let Some(room) = &mut *self.room.lock().unwrap() {
            if *room == 0 {
                return Err(NotInjected::Busy(frame));
            }
            *room -= 1;
        }
        self.injected.lock().unwrap().push((frame, in_port, start));
        Ok(())
    }

    fn port_stats(&self, port: u32) -> Option<PortStats> {
        Some(PortStats { port, received: Counts { packets: 5, bytes: 300 }, ..PortStats::default() })
    }

    fn queues(&self, port: u32) -> Vec<Queue> {
        vec![Queue { port, queue: 0, rates: [None, None] }]
    }

    fn queue_stats(&self, port: u32) -> Vec<QueueStats> {
        vec![QueueStats { port, ..QueueStats::default() }]
    }

    fn set_port_config(&self, port: u32, config: u32) -> Result<(), String> {
        if port == 2 {
            return Err("port 2 cannot be configured".to_string());
        }
        self.configured.lock().unwrap().push((port, config));
        Ok(())
    }

    fn sync_counts(&self) {}

    fn wake(&self, connection: u64) {
        self.woken.lock().unwrap().push(connection);
    }
}

/// A bridge with ports 1 to 3.
pub fn bridge() -> (Arc<Bridge>, Arc<Recorder>) {
    let host = Arc::new(Recorder::default());
    let options = BridgeOptions { datapath: 0x1234, ..BridgeOptions::default() };
    let bridge = Arc::new(Bridge::new(&program(), Arc::clone(&host) as Arc<dyn Host>, options).unwrap());
    for number in 1..=3 {
        bridge.put_port(Port {
            number,
            address: [2, 0, 0, 0, 0, number as u8],
            name: format!("p{number}"),
            ..Port::default()
        });
    }
    (bridge, host)
}

/// A request of nobody in particular.
pub fn by(version: Version) -> Origin {
    Origin { connection: None, xid: 1, version }
}

/// A match of fields by their names.
pub fn matching(bridge: &Bridge, terms: &[(&str, u128)]) -> Match {
    let mut matching = Match::any();
    for (name, value) in terms {
        let id = bridge.fields().named(name).unwrap();
        matching.add(id, *value, bridge.fields().get(id).full());
    }
    matching
}

/// Applies an output.
pub fn output(port: u32) -> Instructions {
    Instructions { apply: vec![Action::Output { port, max_len: 0 }], ..Instructions::default() }
}

/// A flow mod for table 0.
pub fn flow_mod(command: FlowCommand, matching: Match, priority: u16, instructions: Instructions) -> FlowMod {
    FlowMod {
        command,
        table: 0,
        matching,
        priority,
        cookie: 0,
        cookie_mask: 0,
        timeouts: Timeouts::default(),
        buffer: u32::MAX,
        out_port: openflow::action::port::ANY,
        out_group: u32::MAX,
        flags: 0,
        importance: 0,
        instructions,
    }
}

/// A flow mod that asks to be told of the end.
pub fn told(mut request: FlowMod) -> FlowMod {
    request.flags |= flow_flag::SEND_FLOW_REM;
    request
}

/// A controller of a version, behind a connection.
pub struct Controller {
    pub connection: Connection,
    bridge: Arc<Bridge>,
    version: Version,
}

impl Controller {
    /// One that has said hello.
    pub fn new(bridge: &Arc<Bridge>, version: Version) -> Controller {
        Controller::with(bridge, version, ConnectionOptions { probe_us: 0, ..ConnectionOptions::default() })
    }

    /// The same with other options.
    pub fn with(bridge: &Arc<Bridge>, version: Version, options: ConnectionOptions) -> Controller {
        let connection = Connection::new(Arc::clone(bridge), options);
        let mut controller = Controller { connection, bridge: Arc::clone(bridge), version };
        controller.send(0, Message::Hello { versions: 1 << version as u32 });
        let hello = controller.read();
        assert!(matches!(hello[..], [Framed { message: Message::Hello { .. }, .. }]), "{hello:?}");
        assert_eq!(controller.connection.version(), Some(version));
        controller
    }

    /// Sends a message.
    pub fn send(&mut self, xid: u32, message: Message) {
        let mut bytes = Vec::new();
        let framed = Framed { version: self.version, xid, message };
        wire::write(&framed, self.bridge.fields(), &Formats::default(), &mut bytes).unwrap();
        self.connection.input(&bytes);
    }

    /// All that is to be read.
    pub fn read(&mut self) -> Vec<Framed> {
        let mut messages = Vec::new();
        loop {
            let now_us = self.bridge.host().now_us();
            self.connection.poll(now_us);
            let bytes = std::mem::take(self.connection.output());
            if bytes.is_empty() {
                return messages;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let len = wire::length(rest[..8].try_into().unwrap()).unwrap();
                messages.push(wire::read(&rest[..len], self.bridge.fields()).unwrap());
                rest = &rest[len..];
            }
        }
    }

    /// Sends a message and gives what is to be read then.
    pub fn ask(&mut self, message: Message) -> Vec<Message> {
        self.send(7, message);
        self.read().into_iter().map(|framed| framed.message).collect()
    }
}

/// All flows: table, priority, cookie, and the port of the first output.
pub fn flows(bridge: &Bridge) -> Vec<(u8, u16, u64, Option<u32>)> {
    let tables = bridge.tables();
    let flows = tables.iter().flat_map(|(_, table)| table.flows.iter());
    let mut all: Vec<_> = flows
        .map(|flow| {
            let port = flow.instructions.apply.iter().find_map(|action| match action {
                Action::Output { port, .. } => Some(*port),
                _ => None,
            });
            (flow.table, flow.priority, flow.cookie, port)
        })
        .collect();
    all.sort_unstable();
    all
}
